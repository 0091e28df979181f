// SPDX-License-Identifier: Apache-2.0 OR MIT
// Swap: transit of a packet of SF-INT that is not urgent, as in `control/sf.p4`. A register has the flow's tag and instructions, the state
// and age of its record, and a word for each of its words; a stateful ALU writes each once for a packet.

#ifndef TNA_SF_SWAP_P4
#define TNA_SF_SWAP_P4

struct sf_owner_t {
    bit<32> tag;
    bit<32> bitmap;
}

struct sf_age_t {
    bit<32> state;
    bit<32> since;
}

/// A word of the record: the one that has arrived is kept, and the one from the register leaves with the packet, or this node's own.
#define SF_WORD(N) Register<bit<32>, bit<10>>(SF_REGISTERS) sf_word_ ## N; \
    RegisterAction<bit<32>, bit<10>, bit<32>>(sf_word_ ## N) swap_word_ ## N = { \
        void apply(inout bit<32> value, out bit<32> was) { was = value; value = hdr.w ## N.value; } \
    }; \
    RegisterAction<bit<32>, bit<10>, bit<32>>(sf_word_ ## N) keep_word_ ## N = { \
        void apply(inout bit<32> value) { value = hdr.w ## N.value; } \
    }; \
    action do_swap_ ## N() { hdr.w ## N.value = swap_word_ ## N.execute(hdr.change.tag[9:0]); } \
    action do_keep_ ## N() { \
        keep_word_ ## N.execute(hdr.change.tag[9:0]); \
        hdr.w ## N.setInvalid(); \
    } \
    table word_ ## N { \
        key = { hdr.w ## N.isValid() : exact; local.forward : exact; } \
        actions = { do_swap_ ## N; do_keep_ ## N; @defaultonly NoAction; } \
        const default_action = NoAction(); \
        const entries = { \
            (true, FORWARD_REGISTER) : do_swap_ ## N(); \
            (true, FORWARD_LOCAL) : do_keep_ ## N(); \
        } \
        size = 2; \
    }
/// What left the packet no longer counts for its checksum, which a Tofino sums up also of what is not sent.
#define CLEAR_WORD(N) hdr.w ## N.value = 0;
#define APPLY_WORD(N) word_ ## N.apply();

control Swap(inout leaving_t hdr, inout leaving_local_t local) {
    @name("sf_rules") Counter<bit<32>, bit<4>>(SF_RULES, CounterType_t.PACKETS) applied;

    /// The instructions of the record in the register, if it is one of the flow and has those of the packet; otherwise 0. An arriving
    /// record in state medium takes the register in any case.
    Register<sf_owner_t, bit<10>>(SF_REGISTERS) sf_owner;
    RegisterAction<sf_owner_t, bit<10>, bit<32>>(sf_owner) take = {
        void apply(inout sf_owner_t value, out bit<32> same) {
            same = 0;
            if (value.tag == hdr.change.tag && value.bitmap == local.bitmap) { same = value.bitmap; }
            value.tag = hdr.change.tag;
            value.bitmap = local.bitmap;
        }
    };
    RegisterAction<sf_owner_t, bit<10>, bit<32>>(sf_owner) see = {
        void apply(inout sf_owner_t value, out bit<32> same) {
            same = 0;
            if (value.tag == hdr.change.tag && value.bitmap == local.bitmap) { same = value.bitmap; }
        }
    };

    /// The state of the record, if it is not older than `oldest`; and by the rules, which state the arriving record has there.
    Register<sf_age_t, bit<10>>(SF_REGISTERS) sf_age;
    RegisterAction<sf_age_t, bit<10>, bit<32>>(sf_age) by_medium = {
        void apply(inout sf_age_t value, out bit<32> was) {
            was = 0;
            if (value.since >= local.oldest) { was = value.state; }
            if (value.since >= local.oldest && value.state == (bit<32>)STATE_HIGH) { value.state = (bit<32>)STATE_LOW; } else { value.state = (bit<32>)STATE_HIGH; }
            value.since = hdr.change.now;
        }
    };
    RegisterAction<sf_age_t, bit<10>, bit<32>>(sf_age) by_high = {
        void apply(inout sf_age_t value, out bit<32> was) {
            was = 0;
            if (value.since >= local.oldest) { was = value.state; } else { value.state = 0; }
            value.since = hdr.change.now;
        }
    };
    RegisterAction<sf_age_t, bit<10>, bit<32>>(sf_age) by_low = {
        void apply(inout sf_age_t value, out bit<32> was) {
            was = 0;
            if (value.since >= local.oldest) { was = value.state; }
            if (value.since >= local.oldest && value.state != 0) { value.state = (bit<32>)STATE_LOW; } else { value.state = 0; }
            value.since = hdr.change.now;
        }
    };

    Register<bit<16>, bit<10>>(SF_REGISTERS) sf_packet_id;
    RegisterAction<bit<16>, bit<10>, bit<16>>(sf_packet_id) swap_id = {
        void apply(inout bit<16> value, out bit<16> was) { was = value; value = hdr.md.ds_id; }
    };
    RegisterAction<bit<16>, bit<10>, bit<16>>(sf_packet_id) keep_id = {
        void apply(inout bit<16> value) { value = hdr.md.ds_id; }
    };

    bit<4> number = 0;
    bit<2> state_after = STATE_LOW;

    /// `aging`: how long a record in a register may be sent, in units of 65,536 ns.
    @name("set_sf") @id(0x01000030)
    action set_sf(@id(1) bit<32> aging) {
        local.oldest = aging;
        local.bitmap = (bit<32>)hdr.md.bitmap;
    }

    @name("sf_settings") @id(0x02000030)
    table sf_settings {
        key = { }
        actions = { set_sf; }
        default_action = set_sf(15259);
        size = 1;
    }

    action find_oldest() { local.oldest = hdr.change.now |-| local.oldest; }
    /// Nothing in the register is of use.
    action is_other() { local.oldest = 0xffffffff; }

    action do_take() { local.same = take.execute(hdr.change.tag[9:0]); }
    action do_see() { local.same = see.execute(hdr.change.tag[9:0]); }
    action do_by_medium() { local.stored = by_medium.execute(hdr.change.tag[9:0]); }
    action do_by_high() { local.stored = by_high.execute(hdr.change.tag[9:0]); }
    action do_by_low() { local.stored = by_low.execute(hdr.change.tag[9:0]); }

    /// `sends`: which record leaves, and in which state; `keeps`: the state in which the arriving one is stored, or that it is not.
    @name("sf_rule") @id(0x01000031)
    action sf_rule(@id(1) bit<4> rule, @id(2) bit<2> sends, @id(3) bit<2> sends_state, @id(4) bit<2> keeps) {
        number = rule;
        local.forward = sends;
        state_after = sends_state;
    }

    @name("sf_rules") @id(0x02000031)
    table rules {
        key = {
            hdr.md.rsvd[9:8] : exact @name("arrival");
            local.stored[1:0] : exact @name("register");
        }
        actions = { sf_rule; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            SF_RULE_ENTRIES
        }
        size = 9;
    }

    action do_swap_id() { hdr.md.ds_id = swap_id.execute(hdr.change.tag[9:0]); }
    action do_keep_id() { keep_id.execute(hdr.change.tag[9:0]); }
    table packet_id {
        key = { local.forward : exact; }
        actions = { do_swap_id; do_keep_id; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            FORWARD_REGISTER : do_swap_id();
            FORWARD_LOCAL : do_keep_id();
        }
        size = 2;
    }

    EACH_WORD(SF_WORD)

    action clear_words() { EACH_WORD(CLEAR_WORD) }
    action write_state() { hdr.md.rsvd[9:8] = state_after; }

    apply {
        sf_settings.apply();
        find_oldest();
        if (hdr.md.rsvd[9:8] == STATE_MEDIUM) { do_take(); } else { do_see(); }
        if (local.same == 0) { is_other(); }
        if (hdr.md.rsvd[9:8] == STATE_MEDIUM) { do_by_medium(); } else if (hdr.md.rsvd[9:8] == STATE_HIGH) { do_by_high(); } else { do_by_low(); }
        rules.apply();
        applied.count(number);
        packet_id.apply();
        EACH_WORD(APPLY_WORD)
        if (local.forward == FORWARD_LOCAL) { clear_words(); }
        write_state();
    }
}

#endif
