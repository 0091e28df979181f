// SPDX-License-Identifier: Apache-2.0 OR MIT
// The aggregator on Tofino: postcards in, aggregates out, over IPv4, to one destination. Other packets are forwarded by their ingress port.
//
// Ingress reads the postcard and finds its register; it has no state, so that postcards may arrive in any pipe. Registers are at egress, in
// the pipe of the destination's port: each word of each postcard that a register holds is a register of its own.

#include <core.p4>
#include <tna.p4>

#include "../shared/headers.p4"
#include "../shared/aggregate.p4"
#include "shared/aggregate.p4"
#include "control/aggregate.p4"

/// Bytes of the UDP datagram of one postcard.
const bit<16> DATAGRAM_BYTES = 52;

parser AggregatorParser(packet_in packet, out arriving_t hdr, out arriving_local_t local, out ingress_intrinsic_metadata_t meta) {
    Checksum() ipv4_checksum;

    state start {
        packet.extract(meta);
        packet.advance(PORT_METADATA_SIZE);
        local = { false, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_TIMER: parse_timer;
            default: accept;
        }
    }

    state parse_timer {
        packet.extract(hdr.timer);
        packet.extract(hdr.padding);
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        ipv4_checksum.add(hdr.ipv4);
        local.wrong_checksum = ipv4_checksum.verify();
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.proto) {
            (4, 5, 0 &&& 1, 0, PROTO_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.len) {
            DATAGRAM_BYTES: parse_postcard;
            default: accept;
        }
    }

    state parse_postcard {
        packet.extract(hdr.group);
        packet.extract(hdr.report);
        packet.extract(hdr.queue);
        packet.extract(hdr.times);
        packet.extract(hdr.flow);
        transition accept;
    }
}

control AggregatorIngress(inout arriving_t hdr, inout arriving_local_t local, in ingress_intrinsic_metadata_t meta,
        in ingress_intrinsic_metadata_from_parser_t from_parser, inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
        inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    CRCPolynomial<bit<32>>(32w0x1edc6f41, true, false, false, 32w0xffffffff, 32w0xffffffff) polynomial;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) hash;
    @name("postcards") Counter<bit<32>, bit<3>>(COUNTS_OF_POSTCARDS, CounterType_t.PACKETS) postcards;
    @name("unreadable") Counter<bit<32>, bit<1>>(1, CounterType_t.PACKETS) unreadable;

    bit<3> outcome = 0;

    action drop() { for_deparser.drop_ctl = 1; }

    @name("forward") @id(0x01000030)
    action forward(@id(1) bit<9> port) {
        for_tm.ucast_egress_port = port;
        for_tm.bypass_egress = 1;
    }

    /// Of packets that are no postcards.
    @name("other") @id(0x02000030)
    table other {
        key = { meta.ingress_port : exact @name("ingress_port"); }
        actions = { forward; drop; }
        const default_action = drop();
        size = AGGREGATOR_PORTS;
    }

    action accept_timer() {
        local.is_ours = 1;
        hdr.operation.setValid();
        hdr.operation.is_timer = TIMER;
        hdr.operation.slot = hdr.timer.slot[15:0];
        hdr.operation.node = 0;
        hdr.operation.flow = 0;
    }

    @name("timer_port") @id(0x02000031)
    table timer_port {
        key = { meta.ingress_port : exact @name("ingress_port"); }
        actions = { accept_timer; drop; }
        const default_action = drop();
        size = AGGREGATOR_PORTS;
    }

    /// `last` is R less one: 1 to 4. `ticks` is how many frames of the timer a register waits; `registers` is a mask.
    @name("aggregate") @id(0x01000032)
    action set_aggregator(@id(1) bit<8> kind, @id(2) bit<8> last, @id(3) bit<16> ticks, @id(4) bit<32> aggregator, @id(5) bit<16> registers) {
        local.has_settings = 1;
        local.kind = kind;
        local.mask = registers;
        local.ticks = ticks;
        hdr.operation.last = last;
        hdr.aggregate.setValid();
        hdr.aggregate.aggregator = aggregator;
    }

    @name("aggregator") @id(0x02000032)
    table aggregator {
        key = { }
        actions = { set_aggregator; NoAction; }
        default_action = NoAction();
        size = 1;
    }

    action accept_postcards() {
        local.is_ours = 1;
        hdr.operation.setValid();
        hdr.operation.is_timer = NO_TIMER;
        hdr.operation.node = 0;
        hdr.operation.flow = 0;
        hdr.operation.slot = 0;
        hdr.last.setValid();
        hdr.last.node = hdr.group.node;
        hdr.last.flow = hdr.flow.value;
        hdr.last.queue = hdr.queue.value;
        hdr.last.ingress_ts = hdr.times.ingress_low;
        hdr.last.egress_ts = hdr.times.egress_low;
    }

    @name("postcard_port") @id(0x02000034)
    table postcard_port {
        key = { hdr.udp.dst_port : exact @name("udp_dport"); }
        actions = { accept_postcards; @defaultonly NoAction; }
        const default_action = NoAction();
        size = AGGREGATOR_PORTS;
    }

    action is_exact() { local.is_exact = 1; }

    /// The one form of postcards.
    table form {
        key = {
            hdr.ipv4.total_len : exact;
            hdr.group.isValid() : exact;
            hdr.group.version : exact;
            hdr.report.rep_type : exact;
            hdr.report.in_type : exact;
            hdr.report.length : exact;
            hdr.report.md_length : exact;
            hdr.report.drop : exact;
            hdr.report.md_bits : exact;
            hdr.report.ds_id : exact;
            hdr.report.ds_md_bits : exact;
            hdr.report.ds_md_status : exact;
        }
        actions = { is_exact; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = { (72, true, 2, 1, 0, 8, 6, 0, 0x1c00, 0x5043, 0x8000, 0) : is_exact(); }
        size = 1;
    }

    // The low half of a time; all-ones would mean that it is missing.
    action lower_ingress() { hdr.last.ingress_ts = 0xfffffffe; }
    action lower_egress() { hdr.last.egress_ts = 0xfffffffe; }
    action is_missing() { }
    table ingress_time {
        key = { hdr.times.ingress_high : ternary; hdr.times.ingress_low : ternary; }
        actions = { lower_ingress; is_missing; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (0xffffffff, 0xffffffff) : is_missing();
            (_, 0xffffffff) : lower_ingress();
        }
        size = 2;
    }
    table egress_time {
        key = { hdr.times.egress_high : ternary; hdr.times.egress_low : ternary; }
        actions = { lower_egress; is_missing; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (0xffffffff, 0xffffffff) : is_missing();
            (_, 0xffffffff) : lower_egress();
        }
        size = 2;
    }

    action of_node() { hdr.operation.node = hdr.last.node; }
    action of_flow() {
        hdr.operation.node = hdr.last.node;
        hdr.operation.flow = hdr.last.flow;
    }
    action hash_key() { local.crc = hash.get({ hdr.operation.node, hdr.operation.flow }); }
    action find_slot() { hdr.operation.slot = local.crc[15:0] & local.mask; }
    action limit_slot() { hdr.operation.slot = hdr.operation.slot & (AGGREGATOR_SLOTS - 1); }

    action stop() { hdr.operation.is_timer = STOP; }
    action hand_over() {
        hdr.operation.kind = local.kind;
        hdr.operation.rsvd = 0;
        hdr.operation.ticks = local.ticks;
        hdr.timer.setInvalid();
        hdr.padding.setInvalid();
        hdr.group.setInvalid();
        hdr.report.setInvalid();
        hdr.queue.setInvalid();
        hdr.times.setInvalid();
        hdr.flow.setInvalid();
        hdr.aggregate.version = 1;
        hdr.aggregate.kind = local.kind[3:0];
        hdr.aggregate.by_timer = 0;
        hdr.aggregate.packet_fields = 0;
        hdr.aggregate.rsvd = 0;
        hdr.aggregate.record_len = 20;
        hdr.aggregate.rsvd2 = 0;
        hdr.aggregate.node_scope = 0xffffffff;
        hdr.aggregate.flow_scope = 0xffffffff;
    }
    action stop_waiting() { hdr.operation.ticks = 0; }

    @name("send") @id(0x01000033)
    action send(@id(1) bit<9> port, @id(2) bit<48> src_mac, @id(3) bit<48> dst_mac, @id(4) bit<32> src_ip, @id(5) bit<32> dst_ip,
            @id(6) bit<16> dst_port) {
        for_tm.ucast_egress_port = port;
        hdr.ethernet.dst = dst_mac;
        hdr.ethernet.src = src_mac;
        hdr.ethernet.ethertype = ETHERTYPE_IPV4;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4;
        hdr.ipv4.ihl = 5;
        hdr.ipv4.dscp = 0;
        hdr.ipv4.ecn = 0;
        hdr.ipv4.id = 0;
        hdr.ipv4.flags = 2;
        hdr.ipv4.fragment = 0;
        hdr.ipv4.ttl = 64;
        hdr.ipv4.proto = PROTO_UDP;
        hdr.ipv4.src = src_ip;
        hdr.ipv4.dst = dst_ip;
        hdr.udp.setValid();
        hdr.udp.src_port = 0;
        hdr.udp.dst_port = dst_port;
        hdr.udp.checksum = 0;
    }

    @name("destination") @id(0x02000033)
    table destination {
        key = { }
        actions = { send; drop; }
        default_action = drop();
        size = 1;
    }

    apply {
        if (hdr.timer.isValid()) { timer_port.apply(); } else if (hdr.udp.isValid()) { postcard_port.apply(); }
        if (local.is_ours == 1) { aggregator.apply(); }
        if (local.is_ours == 0) {
            if (!hdr.timer.isValid()) { other.apply(); }
        } else if (local.has_settings == 0) {
            drop();
        } else {
            if (hdr.timer.isValid()) {
                local.is_good = 1;
                limit_slot();
                if (hdr.timer.stop == 1) { stop(); }
            } else {
                form.apply();
                ingress_time.apply();
                egress_time.apply();
                if (hdr.last.node == 0xffffffff) { local.no_node = 1; }
                if (hdr.last.flow == 0xffffffff) { local.no_flow = 1; }
                if (local.is_exact == 0 || local.wrong_checksum) {
                    unreadable.count(0);
                } else if (local.no_node == 1 && local.kind != 0) {
                    postcards.count((bit<3>)COUNT_NO_NODE);
                } else if (local.no_flow == 1 && local.kind == 3) {
                    postcards.count((bit<3>)COUNT_NO_FLOW);
                } else {
                    postcards.count((bit<3>)COUNT_POSTCARDS);
                    local.is_good = 1;
                }
                if (local.kind == 2) { of_node(); } else if (local.kind == 3) { of_flow(); }
                if (local.kind != 0) {
                    hash_key();
                    find_slot();
                    limit_slot();
                }
            }
            if (local.is_good == 1) {
                hand_over();
                if (hdr.operation.is_timer == STOP) { stop_waiting(); }
                destination.apply();
            } else {
                drop();
            }
        }
    }
}

control AggregatorIngressDeparser(packet_out packet, inout arriving_t hdr, in arriving_local_t local,
        in ingress_intrinsic_metadata_for_deparser_t meta) {
    apply {
        packet.emit(hdr.operation);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.timer);
        packet.emit(hdr.padding);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.group);
        packet.emit(hdr.report);
        packet.emit(hdr.queue);
        packet.emit(hdr.times);
        packet.emit(hdr.flow);
        packet.emit(hdr.aggregate);
        packet.emit(hdr.last);
    }
}

parser AggregatorLeaving(packet_in packet, out leaving_t hdr, out leaving_local_t local, out egress_intrinsic_metadata_t meta) {
    state start {
        packet.extract(meta);
        local = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        packet.extract(hdr.operation);
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.aggregate);
        transition select(hdr.operation.is_timer) {
            NO_TIMER: parse_last;
            default: accept;
        }
    }

    state parse_last {
        packet.extract(hdr.last);
        transition accept;
    }
}

control AggregatorEgress(inout leaving_t hdr, inout leaving_local_t local, in egress_intrinsic_metadata_t meta,
        in egress_intrinsic_metadata_from_parser_t from_parser, inout egress_intrinsic_metadata_for_deparser_t for_deparser,
        inout egress_intrinsic_metadata_for_output_port_t for_port) {
    Aggregate() aggregate;

    apply {
        aggregate.apply(hdr, local, for_deparser.drop_ctl);
    }
}

#define PLACE_EMIT(n) packet.emit(hdr.p ## n);

control AggregatorDeparser(packet_out packet, inout leaving_t hdr, in leaving_local_t local, in egress_intrinsic_metadata_for_deparser_t meta) {
    Checksum() ipv4_checksum;

    apply {
        hdr.ipv4.checksum = ipv4_checksum.update({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len,
            hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.src, hdr.ipv4.dst });
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.aggregate);
        EACH_PLACE(PLACE_EMIT)
        packet.emit(hdr.last);
    }
}

Pipeline(AggregatorParser(), AggregatorIngress(), AggregatorIngressDeparser(), AggregatorLeaving(), AggregatorEgress(), AggregatorDeparser()) pipe;
Switch(pipe) main;
