// SPDX-License-Identifier: Apache-2.0 OR MIT
// Aggregate: puts postcards into registers, one for all (Agg, Cor), for a node, or for a node and a flow, and sends a register when it
// has R postcards, when its first one has waited for the timer, or when another node or flow needs it.
//
// The control plane installs: the settings in `aggregator`, where aggregates go in `destination`, and the ports of timer frames.

#ifndef AGGREGATE_CONTROL_P4
#define AGGREGATE_CONTROL_P4

#define EACH_HELD(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) do(12) do(13) do(14) do(15) do(16) \
    do(17) do(18) do(19) do(20) do(21) do(22) do(23)
/// The sum of the two halves of a word, for a checksum.
#define WORDS(word) (bit<32>)word[31:16] + (bit<32>)word[15:0]
#define READ_HELD(n) if (read > n) { \
    hdr.postcards[n].setValid(); \
    held_node.read(hdr.postcards[n].node, base + n); \
    held_flow.read(hdr.postcards[n].flow, base + n); \
    held_ingress.read(hdr.postcards[n].ingress_ts, base + n); \
    held_egress.read(hdr.postcards[n].egress_ts, base + n); \
    held_queue.read(hdr.postcards[n].queue, base + n); \
    local.sum = local.sum + WORDS(hdr.postcards[n].node) + WORDS(hdr.postcards[n].flow) + WORDS(hdr.postcards[n].ingress_ts) \
        + WORDS(hdr.postcards[n].egress_ts) + WORDS(hdr.postcards[n].queue); \
}

/// Minimum, maximum, sum and number of a metric's values.
struct range_t {
    bit<32> min;
    bit<32> max;
    bit<64> sum;
    bit<32> samples;
}

/// The range of one metric in each register.
control Summarize(inout summary_t summary, in bit<32> slot, in bit<8> metric, in bit<1> has_value, in bit<32> value, in bit<1> starts,
        in bit<1> sends, in bit<1> adds_first, inout bit<32> sum_of) {
    register<bit<32>>(AGGREGATOR_SLOTS) min;
    register<bit<32>>(AGGREGATOR_SLOTS) max;
    register<bit<64>>(AGGREGATOR_SLOTS) sum;
    register<bit<32>>(AGGREGATOR_SLOTS) samples;

    action emit(range_t values) {
        summary.setValid();
        summary.metric = metric;
        summary.rsvd = 0;
        summary.min = values.min;
        summary.max = values.max;
        summary.sum = values.sum;
        summary.samples = values.samples;
        sum_of = sum_of + (bit<32>)(metric ++ 8w0) + WORDS(values.min) + WORDS(values.max) + WORDS(values.sum[63:32]) + WORDS(values.sum[31:0])
            + WORDS(values.samples);
    }

    apply {
        range_t values;
        min.read(values.min, slot);
        max.read(values.max, slot);
        sum.read(values.sum, slot);
        samples.read(values.samples, slot);
        if (sends == 1 && adds_first == 0 && values.samples != 0) {
            emit(values);
        }
        if (starts == 1) {
            values = { 0xffffffff, 0, 0, 0 };
        }
        if (has_value == 1) {
            if (value < values.min) { values.min = value; }
            if (value > values.max) { values.max = value; }
            values.sum = values.sum + (bit<64>)value;
            values.samples = values.samples + 1;
        }
        min.write(slot, values.min);
        max.write(slot, values.max);
        sum.write(slot, values.sum);
        samples.write(slot, values.samples);
        if (sends == 1 && adds_first == 1 && values.samples != 0) {
            emit(values);
        }
    }
}

control Aggregate(inout aggregator_headers_t hdr, inout aggregator_local_t local, in bit<48> now) {
    Summarize() latencies;
    Summarize() queues;
    register<bit<32>>(AGGREGATOR_SLOTS) node_of;
    /// The flow, of kinds without one the destination.
    register<bit<32>>(AGGREGATOR_SLOTS) flow_of;
    register<bit<8>>(AGGREGATOR_SLOTS) destination_of;
    register<bit<32>>(AGGREGATOR_SLOTS) count_of;
    register<bit<48>>(AGGREGATOR_SLOTS) since_of;
    register<bit<32>>(AGGREGATOR_SLOTS * AGGREGATOR_HELD) held_node;
    register<bit<32>>(AGGREGATOR_SLOTS * AGGREGATOR_HELD) held_flow;
    register<bit<32>>(AGGREGATOR_SLOTS * AGGREGATOR_HELD) held_ingress;
    register<bit<32>>(AGGREGATOR_SLOTS * AGGREGATOR_HELD) held_egress;
    register<bit<32>>(AGGREGATOR_SLOTS * AGGREGATOR_HELD) held_queue;
    register<bit<32>>(AGGREGATOR_DESTINATIONS) sequence;
    @name("postcards") counter(COUNTS_OF_POSTCARDS, CounterType.packets) postcards;
    @name("sent") counter(CAUSES, CounterType.packets) sent;

    bit<32> slot = 0;
    bit<32> held = 0;
    bit<32> cause = CAUSE_FULL;
    /// The key of this postcard's register.
    bit<32> key_node = 0;
    bit<32> key_flow = 0;
    bit<32> destination = 0;
    bit<32> latency = 0;
    bit<1> has_latency = 0;
    bit<1> has_queue = 0;

    /// The low half of a time; all-ones would mean that it is missing.
    action low(out bit<32> stamp, in bit<64> time) {
        stamp = time[31:0];
        if (time != 0xffffffffffffffff && time[31:0] == 0xffffffff) { stamp = 0xfffffffe; }
    }

    action read_postcard() {
        hdr.last.setValid();
        hdr.last.node = hdr.group.node;
        hdr.last.flow = hdr.reports[0].flow;
        hdr.last.queue = hdr.reports[0].queue;
        low(hdr.last.ingress_ts, hdr.reports[0].ingress_ts);
        low(hdr.last.egress_ts, hdr.reports[0].egress_ts);
        latency = hdr.last.egress_ts - hdr.last.ingress_ts;
        has_latency = (hdr.reports[0].ingress_ts != 0xffffffffffffffff && hdr.reports[0].egress_ts != 0xffffffffffffffff) ? 1w1 : 1w0;
        has_queue = hdr.last.queue != 0xffffffff ? 1w1 : 1w0;
    }

    action choose_destination() {
        bit<32> of = local.by_node == 1 ? hdr.last.node : hdr.last.flow;
        bit<32> crc = CRC_32C_LENGTH_8 ^ CRC_32C_FROM_0(of);
        bit<64> product = (bit<64>)crc * (bit<64>)local.destinations;
        destination = product[63:32];
    }

    action choose_slot() {
        key_node = hdr.last.node;
        key_flow = (local.kind & KIND_FLOW) == KIND_FLOW ? hdr.last.flow : destination;
        bit<64> key = key_node ++ key_flow;
        bit<32> crc = CRC_32C_8(key);
        slot = crc & local.mask & (AGGREGATOR_SLOTS - 1);
    }

    action claim() {
        node_of.write(slot, key_node);
        flow_of.write(slot, key_flow);
        destination_of.write(slot, (bit<8>)destination);
        since_of.write(slot, now);
    }

    action write_header(bit<32> node, bit<32> flow, bit<32> records) {
        hdr.aggregate.setValid();
        hdr.aggregate.version = 1;
        hdr.aggregate.kind = local.kind;
        hdr.aggregate.by_timer = cause == CAUSE_TIMER ? 1w1 : 1w0;
        hdr.aggregate.packet_fields = 0;
        hdr.aggregate.rsvd = 0;
        hdr.aggregate.count = (bit<16>)records;
        hdr.aggregate.record_len = (local.kind & KIND_CORRELATED) != 0 ? 16w24 : 16w20;
        hdr.aggregate.rsvd2 = 0;
        hdr.aggregate.aggregator = local.aggregator;
        hdr.aggregate.node_scope = (local.kind & KIND_NODE) != 0 ? node : 0xffffffff;
        hdr.aggregate.flow_scope = (local.kind & KIND_FLOW) == KIND_FLOW ? flow : 0xffffffff;
        bit<32> number;
        sequence.read(number, local.destination);
        hdr.aggregate.sequence = number;
        sequence.write(local.destination, number + 1);
        local.sum = local.sum + (bit<32>)(4w1 ++ local.kind ++ hdr.aggregate.by_timer ++ 7w0) + (bit<32>)hdr.aggregate.count
            + (bit<32>)hdr.aggregate.record_len + WORDS(hdr.aggregate.aggregator) + WORDS(number) + WORDS(hdr.aggregate.node_scope)
            + WORDS(hdr.aggregate.flow_scope);
    }

    apply {
        bit<1> correlated = (local.kind & KIND_CORRELATED) != 0 ? 1w1 : 1w0;
        bit<1> good = 0;
        bit<1> full = 0;
        if (hdr.timer.isValid()) {
            slot = hdr.timer.slot & (AGGREGATOR_SLOTS - 1);
            good = hdr.timer.slot < AGGREGATOR_SLOTS ? 1w1 : 1w0;
        } else {
            read_postcard();
            if ((local.kind & KIND_NODE) != 0 && hdr.last.node == 0xffffffff) {
                postcards.count(COUNT_NO_NODE);
            } else if ((local.kind & KIND_FLOW) == KIND_FLOW && hdr.last.flow == 0xffffffff) {
                postcards.count(COUNT_NO_FLOW);
            } else if (correlated == 1 && has_latency == 0 && has_queue == 0) {
                postcards.count(COUNT_NO_VALUE);
            } else {
                postcards.count(COUNT_POSTCARDS);
                good = 1;
                if (correlated == 1 && (has_latency == 0 || has_queue == 0)) { postcards.count(COUNT_MISSING_VALUES); }
                if (local.destinations > 1) { choose_destination(); }
                if ((local.kind & KIND_NODE) != 0) {
                    choose_slot();
                } else {
                    key_flow = destination;
                    slot = destination & (AGGREGATOR_DESTINATIONS - 1);
                }
            }
        }
        if (good == 1) {
            bit<32> node;
            bit<32> flow;
            bit<8> old_destination;
            bit<48> since;
            count_of.read(held, slot);
            node_of.read(node, slot);
            flow_of.read(flow, slot);
            destination_of.read(old_destination, slot);
            since_of.read(since, slot);
            bit<32> records = held;
            bit<32> read = 0;
            local.destination = (bit<32>)old_destination;
            bit<1> starts = held == 0 ? 1w1 : 1w0;
            if (hdr.timer.isValid()) {
                if (held != 0 && (hdr.timer.stop == 1 || now - since >= local.timer)) {
                    cause = hdr.timer.stop == 1 ? CAUSE_STOPPED : CAUSE_TIMER;
                    local.sends = 1;
                    read = held;
                    count_of.write(slot, 0);
                }
            } else {
                if (held != 0 && (node != key_node || flow != key_flow) && (local.kind & KIND_NODE) != 0) {
                    cause = CAUSE_EVICTED;
                    local.sends = 1;
                    starts = 1;
                    read = held;
                    held = 0;
                } else if (held + 1 == local.r || (correlated == 0 && held == AGGREGATOR_HELD)) {
                    local.sends = 1;
                    full = 1;
                    read = held;
                    records = held + 1;
                    node = key_node;
                    flow = key_flow;
                    local.destination = destination;
                }
                if (starts == 1) { claim(); }
                count_of.write(slot, full == 1 ? 0 : held + 1);
            }
            if (correlated == 1) {
                latencies.apply(hdr.latency, slot, METRIC_LATENCY, has_latency, latency, starts, local.sends, full, local.sum);
                queues.apply(hdr.queue, slot, METRIC_QUEUE, has_queue, hdr.last.queue & 0xffffff, starts, local.sends, full, local.sum);
                records = (bit<32>)(bit<1>)(hdr.latency.isValid() ? 1w1 : 1w0) + (bit<32>)(bit<1>)(hdr.queue.isValid() ? 1w1 : 1w0);
                local.frame_bytes = records * 24;
            } else {
                bit<32> base = slot * AGGREGATOR_HELD;
                EACH_HELD(READ_HELD)
                if (full == 0 && !hdr.timer.isValid()) {
                    held_node.write(base + held, hdr.last.node);
                    held_flow.write(base + held, hdr.last.flow);
                    held_ingress.write(base + held, hdr.last.ingress_ts);
                    held_egress.write(base + held, hdr.last.egress_ts);
                    held_queue.write(base + held, hdr.last.queue);
                }
                local.frame_bytes = records * 20;
            }
            if (local.sends == 1) {
                sent.count(cause);
                write_header(node, flow, records);
            }
        }
        if (full == 0 || correlated == 1) {
            hdr.last.setInvalid();
        } else {
            local.sum = local.sum + WORDS(hdr.last.node) + WORDS(hdr.last.flow) + WORDS(hdr.last.ingress_ts) + WORDS(hdr.last.egress_ts)
                + WORDS(hdr.last.queue);
        }
    }
}

#endif
