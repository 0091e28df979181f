// SPDX-License-Identifier: Apache-2.0 OR MIT
// Aggregate: puts postcards into registers, as `control/aggregate.p4`: one for all (Agg), for a node, or for a node and a flow. A register
// is sent when it has R postcards, when it has waited for the timer, or when another node or flow needs it.

#ifndef TNA_AGGREGATE_CONTROL_P4
#define TNA_AGGREGATE_CONTROL_P4

/// The words of one place, with a register each.
#define WORD(n, word) Register<bit<32>, bit<16>>(AGGREGATOR_SLOTS) word ## _of_ ## n; \
    RegisterAction<bit<32>, bit<16>, bit<32>>(word ## _of_ ## n) keep_ ## word ## _ ## n = { \
        void apply(inout bit<32> value) { value = hdr.last.word; } \
    }; \
    RegisterAction<bit<32>, bit<16>, bit<32>>(word ## _of_ ## n) swap_ ## word ## _ ## n = { \
        void apply(inout bit<32> value, out bit<32> was) { was = value; value = hdr.last.word; } \
    }; \
    RegisterAction<bit<32>, bit<16>, bit<32>>(word ## _of_ ## n) read_ ## word ## _ ## n = { \
        void apply(inout bit<32> value, out bit<32> is) { is = value; } \
    }; \
    action do_keep_ ## word ## _ ## n() { keep_ ## word ## _ ## n.execute(hdr.operation.slot); } \
    action do_swap_ ## word ## _ ## n() { hdr.p ## n.word = swap_ ## word ## _ ## n.execute(hdr.operation.slot); } \
    action do_read_ ## word ## _ ## n() { hdr.p ## n.word = read_ ## word ## _ ## n.execute(hdr.operation.slot); } \
    table word ## _ ## n { \
        key = { local.own[n:n] : exact @name("own"); local.sends : exact @name("sends"); } \
        actions = { do_keep_ ## word ## _ ## n; do_swap_ ## word ## _ ## n; do_read_ ## word ## _ ## n; @defaultonly NoAction; } \
        const default_action = NoAction(); \
        const entries = { \
            (1, 0) : do_keep_ ## word ## _ ## n(); \
            (1, 1) : do_swap_ ## word ## _ ## n(); \
            (0, 1) : do_read_ ## word ## _ ## n(); \
        } \
        size = 3; \
    }
#define PLACE(n) WORD(n, node) WORD(n, flow) WORD(n, ingress_ts) WORD(n, egress_ts) WORD(n, queue)
#define PLACE_APPLY(n) node_ ## n.apply(); flow_ ## n.apply(); ingress_ts_ ## n.apply(); egress_ts_ ## n.apply(); queue_ ## n.apply();

control Places(inout leaving_t hdr, in leaving_local_t local) {
    EACH_PLACE(PLACE)

    apply {
        EACH_PLACE(PLACE_APPLY)
    }
}

/// Postcards that wait, and frames of the timer since the first of them.
struct waiting_t {
    bit<16> held;
    bit<16> ticks;
}

control Aggregate(inout leaving_t hdr, inout leaving_local_t local, inout bit<3> drops) {
    Places() places;
    @name("sent") Counter<bit<32>, bit<3>>(CAUSES, CounterType_t.PACKETS) sent;

    Register<bit<32>, bit<16>>(AGGREGATOR_SLOTS) node_of;
    RegisterAction<bit<32>, bit<16>, bit<32>>(node_of) swap_node = {
        void apply(inout bit<32> value, out bit<32> was) { was = value; value = hdr.operation.node; }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(node_of) read_node = {
        void apply(inout bit<32> value, out bit<32> is) { is = value; }
    };
    Register<bit<32>, bit<16>>(AGGREGATOR_SLOTS) flow_of;
    RegisterAction<bit<32>, bit<16>, bit<32>>(flow_of) swap_flow = {
        void apply(inout bit<32> value, out bit<32> was) { was = value; value = hdr.operation.flow; }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(flow_of) read_flow = {
        void apply(inout bit<32> value, out bit<32> is) { is = value; }
    };

    Register<waiting_t, bit<16>>(AGGREGATOR_SLOTS) waiting;
    RegisterAction<waiting_t, bit<16>, bit<16>>(waiting) add = {
        void apply(inout waiting_t value, out bit<16> was) {
            was = value.held;
            if (value.held == 0) { value.ticks = 0; }
            if (value.held == (bit<16>)hdr.operation.last) { value.held = 0; } else { value.held = value.held + 1; }
        }
    };
    RegisterAction<waiting_t, bit<16>, bit<16>>(waiting) begin = {
        void apply(inout waiting_t value, out bit<16> was) {
            was = value.held;
            value.held = 1;
            value.ticks = 0;
        }
    };
    RegisterAction<waiting_t, bit<16>, bit<16>>(waiting) tick = {
        void apply(inout waiting_t value, out bit<16> was) {
            was = 0;
            if (value.ticks >= hdr.operation.ticks) {
                was = value.held;
                value.held = 0;
            } else {
                value.ticks = value.ticks + 1;
            }
        }
    };

    Register<bit<32>, bit<1>>(1, 0) sequence;
    RegisterAction<bit<32>, bit<1>, bit<32>>(sequence) next_sequence = {
        void apply(inout bit<32> value, out bit<32> was) { was = value; value = value + 1; }
    };

    bit<3> cause = 0;

    action drop() { drops = 1; }
    action do_swap_node() { local.old_node = swap_node.execute(hdr.operation.slot); }
    action do_read_node() { local.old_node = read_node.execute(hdr.operation.slot); }
    action do_swap_flow() { local.old_flow = swap_flow.execute(hdr.operation.slot); }
    action do_read_flow() { local.old_flow = read_flow.execute(hdr.operation.slot); }
    action compare() {
        local.other_node = local.old_node ^ hdr.operation.node;
        local.other_flow = local.old_flow ^ hdr.operation.flow;
    }
    action do_add() { local.held = add.execute(hdr.operation.slot); }
    action do_begin() { local.held = begin.execute(hdr.operation.slot); }
    action do_tick() { local.held = tick.execute(hdr.operation.slot); }

    action wait(bit<8> own) { local.own = own; }
    action send_full(bit<8> records) {
        local.sends = 1;
        local.records = records;
        cause = (bit<3>)CAUSE_FULL;
    }
    action send_evicted(bit<8> records) {
        local.sends = 1;
        local.own = 1;
        local.is_old = 1;
        local.records = records;
        cause = (bit<3>)CAUSE_EVICTED;
    }
    action send_late(bit<8> records) {
        local.sends = 1;
        local.is_old = 1;
        local.records = records;
        cause = (bit<3>)CAUSE_TIMER;
        hdr.aggregate.by_timer = 1;
    }
    action send_stopped(bit<8> records) {
        local.sends = 1;
        local.is_old = 1;
        local.records = records;
        cause = (bit<3>)CAUSE_STOPPED;
    }

    /// What becomes of the register, by what it holds.
    table outcome {
        key = { hdr.operation.is_timer : exact; local.is_other : exact; local.held : exact; hdr.operation.last : ternary; }
        actions = { wait; send_full; send_evicted; send_late; send_stopped; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
#include "../tables/outcomes.p4"
        }
        size = 64;
    }

    action do_next_sequence() { hdr.aggregate.sequence = next_sequence.execute(0); }

    action scope_of_old_node() { hdr.aggregate.node_scope = local.old_node; }
    action scope_of_old_flow() {
        hdr.aggregate.node_scope = local.old_node;
        hdr.aggregate.flow_scope = local.old_flow;
    }
    action scope_of_node() { hdr.aggregate.node_scope = hdr.operation.node; }
    action scope_of_flow() {
        hdr.aggregate.node_scope = hdr.operation.node;
        hdr.aggregate.flow_scope = hdr.operation.flow;
    }

    /// Whose postcards they are; ingress has written all-ones.
    table scope {
        key = { hdr.operation.kind : exact; local.is_old : exact; }
        actions = { scope_of_old_node; scope_of_old_flow; scope_of_node; scope_of_flow; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (2, 1) : scope_of_old_node();
            (3, 1) : scope_of_old_flow();
            (2, 0) : scope_of_node();
            (3, 0) : scope_of_flow();
        }
        size = 4;
    }

    action set_lengths(bit<16> count, bit<16> udp, bit<16> ip) {
        hdr.aggregate.count = count;
        hdr.udp.len = udp;
        hdr.ipv4.total_len = ip;
    }
    action places_1(bit<16> count, bit<16> udp, bit<16> ip) {
        set_lengths(count, udp, ip);
        hdr.p0.setValid();
    }
    action places_2(bit<16> count, bit<16> udp, bit<16> ip) {
        places_1(count, udp, ip);
        hdr.p1.setValid();
    }
    action places_3(bit<16> count, bit<16> udp, bit<16> ip) {
        places_2(count, udp, ip);
        hdr.p2.setValid();
    }
    action places_4(bit<16> count, bit<16> udp, bit<16> ip) {
        places_3(count, udp, ip);
        hdr.p3.setValid();
    }
    table extend {
        key = { local.records : exact; local.is_old : exact; }
        actions = { places_1; places_2; places_3; places_4; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
#include "../tables/places.p4"
        }
        size = 16;
    }

    action remove_last() { hdr.last.setInvalid(); }

    apply {
        if (hdr.operation.is_timer != NO_TIMER) {
            do_read_node();
            do_read_flow();
            do_tick();
        } else {
            do_swap_node();
            do_swap_flow();
            compare();
            if (local.other_node != 0) { local.is_other = 1; }
            if (local.other_flow != 0) { local.is_other = 1; }
            if (local.is_other == 1) { do_begin(); } else { do_add(); }
        }
        outcome.apply();
        extend.apply();
        scope.apply();
        if (local.sends == 1) {
            do_next_sequence();
            sent.count(cause);
        } else {
            drop();
        }
        places.apply(hdr, local);
        if (local.is_old == 1) { remove_last(); }
    }
}

#endif
