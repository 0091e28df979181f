// SPDX-License-Identifier: Apache-2.0 OR MIT
// The aggregator on v1model: postcards in, aggregates out. Other packets are forwarded by their ingress port.
//
// All of it takes place at ingress, which BMv2 executes for one packet at a time, and a pass processes one postcard. The rest of its datagram
// is a copy, which loses the postcard at egress and is recirculated. There is no timer: the control plane, or a packet generator, sends a
// timer frame for each register.

#include <core.p4>
#include <v1model.p4>

#include "../shared/headers.p4"
#include "../shared/crc.p4"
#include "../shared/aggregate.p4"
#include "../control/aggregate.p4"

/// Bytes of the headers of an aggregate: Ethernet, IPv4 or IPv6, UDP, and its own.
const bit<32> AGGREGATE_HEADERS_V4 = 66;
const bit<32> AGGREGATE_HEADERS_V6 = 86;
/// The instance type of what `clone_preserving_field_list` made at ingress.
const bit<32> INGRESS_CLONE = 1;
/// What the rest of a datagram keeps.
const bit<8> REST_FIELDS = 1;
/// The clone session of the rest of a datagram; its port does not matter.
const bit<32> REST_SESSION = 501;

parser AggregatorParser(packet_in packet, out aggregator_headers_t hdr, inout aggregator_local_t local, inout standard_metadata_t meta) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            ETHERTYPE_TIMER: parse_timer;
            default: accept;
        }
    }

    state parse_timer {
        packet.extract(hdr.timer);
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        local.l4_bytes = hdr.ipv4.total_len - 20;
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.flags & 1, hdr.ipv4.fragment, hdr.ipv4.proto, hdr.ipv4.total_len) {
            (4, 5, 0, 0, PROTO_UDP, 28 .. 0xffff): parse_udp;
            default: accept;
        }
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        local.l4_bytes = hdr.ipv6.payload_len;
        transition select(hdr.ipv6.version, hdr.ipv6.next_header, hdr.ipv6.payload_len) {
            (6, PROTO_UDP, 8 .. 0xffff): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        local.left = hdr.udp.len - GROUP_BYTES;
        transition select(hdr.udp.len, (hdr.udp.len <= local.l4_bytes) ? 1w1 : 1w0) {
            (GROUP_BYTES + POSTCARD_BYTES .. 0xffff, 1): parse_group;
            default: accept;
        }
    }

    state parse_group {
        packet.extract(hdr.group);
        transition select(hdr.group.version) {
            2: by_head;
            default: accept;
        }
    }

    state by_head {
        transition select(packet.lookahead<bit<96>>()) {
            POSTCARD_HEAD &&& POSTCARD_HEAD_MASK: parse_postcard;
            default: accept;
        }
    }

    state parse_postcard {
        packet.extract(hdr.reports.next);
        local.left = local.left - POSTCARD_BYTES;
        transition select(local.left) {
            0: whole;
            1 .. 35: accept;
            default: by_head;
        }
    }

    state whole {
        local.is_whole = 1;
        transition accept;
    }
}

#define REPORTS hdr.reports[0], hdr.reports[1], hdr.reports[2], hdr.reports[3], hdr.reports[4], hdr.reports[5], hdr.reports[6], hdr.reports[7], hdr.reports[8], \
    hdr.reports[9], hdr.reports[10], hdr.reports[11], hdr.reports[12], hdr.reports[13], hdr.reports[14], hdr.reports[15], hdr.reports[16], \
    hdr.reports[17], hdr.reports[18], hdr.reports[19], hdr.reports[20], hdr.reports[21], hdr.reports[22], hdr.reports[23], hdr.reports[24], \
    hdr.reports[25], hdr.reports[26], hdr.reports[27], hdr.reports[28], hdr.reports[29], hdr.reports[30], hdr.reports[31], hdr.reports[32], \
    hdr.reports[33], hdr.reports[34], hdr.reports[35], hdr.reports[36], hdr.reports[37], hdr.reports[38], hdr.reports[39]

/// A checksum over what includes it is zero. UDP over IPv4 may have none.
control AggregatorVerify(inout aggregator_headers_t hdr, inout aggregator_local_t local) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment,
              hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.checksum, hdr.ipv4.src, hdr.ipv4.dst },
            local.zero, HashAlgorithm.csum16);
        verify_checksum(local.is_whole == 1 && hdr.ipv4.isValid() && hdr.udp.checksum != 0,
            { hdr.ipv4.src, hdr.ipv4.dst, 8w0, hdr.ipv4.proto, hdr.udp.len, hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.len, hdr.udp.checksum,
              hdr.group, REPORTS },
            local.zero, HashAlgorithm.csum16);
        verify_checksum(local.is_whole == 1 && hdr.ipv6.isValid(),
            { hdr.ipv6.src, hdr.ipv6.dst, 8w0, hdr.ipv6.next_header, hdr.udp.len, hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.len,
              hdr.udp.checksum, hdr.group, REPORTS },
            local.zero, HashAlgorithm.csum16);
    }
}

control AggregatorIngress(inout aggregator_headers_t hdr, inout aggregator_local_t local, inout standard_metadata_t meta) {
    Aggregate() aggregate;
    @name("unreadable") counter(1, CounterType.packets) unreadable;

    action drop() {
        mark_to_drop(meta);
    }

    @name("forward") @id(0x01000030)
    action forward(@id(1) bit<9> port) {
        meta.egress_spec = port;
    }

    /// Of packets that are no postcards.
    @name("other") @id(0x02000030)
    table other {
        key = { meta.ingress_port : exact @name("ingress_port"); }
        actions = { forward; drop; }
        const default_action = drop();
        size = AGGREGATOR_PORTS;
    }

    action accept_timer() { }

    @name("timer_port") @id(0x02000031)
    table timer_port {
        key = { meta.ingress_port : exact @name("ingress_port"); }
        actions = { accept_timer; drop; }
        const default_action = drop();
        size = AGGREGATOR_PORTS;
    }

    /// `r` at most 25 for kinds that hold the postcards; `registers` is a mask.
    @name("aggregate") @id(0x01000032)
    action set_aggregator(@id(1) bit<4> kind, @id(2) bit<32> r, @id(3) bit<48> timer, @id(4) bit<32> aggregator, @id(5) bit<32> registers,
            @id(6) bit<32> destinations, @id(7) bit<1> by_node) {
        local.kind = kind;
        local.r = r;
        local.timer = timer;
        local.aggregator = aggregator;
        local.mask = registers;
        local.destinations = destinations;
        local.by_node = by_node;
    }

    @name("aggregator") @id(0x02000032)
    table aggregator {
        key = { }
        actions = { set_aggregator; NoAction; }
        default_action = NoAction();
    }

    action accept_postcards() { }

    @name("postcard_port") @id(0x02000034)
    table postcard_port {
        key = { hdr.udp.dst_port : exact @name("udp_dport"); }
        actions = { accept_postcards; @defaultonly NoAction; }
        const default_action = NoAction();
        size = AGGREGATOR_PORTS;
    }

    action send_to(bit<9> port, bit<48> src_mac, bit<48> dst_mac, bit<16> dst_port, bit<16> ethertype) {
        meta.egress_spec = port;
        hdr.ethernet = { dst_mac, src_mac, ethertype };
        hdr.udp.setValid();
        hdr.udp = { 0, dst_port, 32 + (bit<16>)local.frame_bytes, 0 };
        hdr.timer.setInvalid();
    }

    @name("send") @id(0x01000033)
    action send(@id(1) bit<9> port, @id(2) bit<48> src_mac, @id(3) bit<48> dst_mac, @id(4) bit<32> src_ip, @id(5) bit<32> dst_ip,
            @id(6) bit<16> dst_port) {
        send_to(port, src_mac, dst_mac, dst_port, ETHERTYPE_IPV4);
        hdr.ipv4.setValid();
        hdr.ipv4 = { 4, 5, 0, 0, 20 + hdr.udp.len, 0, 2, 0, 64, PROTO_UDP, 0, src_ip, dst_ip };
        hdr.ipv6.setInvalid();
        local.frame_bytes = local.frame_bytes + AGGREGATE_HEADERS_V4;
    }

    /// Over IPv6 a checksum is required (RFC 8200, section 8.1).
    @name("send_v6") @id(0x01000034)
    action send_v6(@id(1) bit<9> port, @id(2) bit<48> src_mac, @id(3) bit<48> dst_mac, @id(4) bit<128> src_ip, @id(5) bit<128> dst_ip,
            @id(6) bit<16> dst_port) {
        send_to(port, src_mac, dst_mac, dst_port, ETHERTYPE_IPV6);
        hdr.ipv6.setValid();
        hdr.ipv6 = { 6, 0, 0, 0, hdr.udp.len, PROTO_UDP, 64, src_ip, dst_ip };
        hdr.ipv4.setInvalid();
        bit<32> sum = local.sum + (bit<32>)PROTO_UDP + (bit<32>)hdr.udp.len + (bit<32>)hdr.udp.len + (bit<32>)dst_port
            + WORDS(src_ip[127:96]) + WORDS(src_ip[95:64]) + WORDS(src_ip[63:32]) + WORDS(src_ip[31:0])
            + WORDS(dst_ip[127:96]) + WORDS(dst_ip[95:64]) + WORDS(dst_ip[63:32]) + WORDS(dst_ip[31:0]);
        sum = WORDS(sum);
        sum = WORDS(sum);
        hdr.udp.checksum = sum[15:0] == 0xffff ? 16w0xffff : ~sum[15:0];
        local.frame_bytes = local.frame_bytes + AGGREGATE_HEADERS_V6;
    }

    @name("destination") @id(0x02000033)
    table destination {
        key = { local.destination : exact @name("destination"); }
        actions = { send; send_v6; drop; }
        const default_action = drop();
        size = AGGREGATOR_DESTINATIONS;
    }

    apply {
        aggregator.apply();
        if (hdr.timer.isValid()) {
            if (timer_port.apply().hit) {
                aggregate.apply(hdr, local, meta.ingress_global_timestamp);
            }
        } else if (hdr.udp.isValid() && postcard_port.apply().hit) {
            if (local.is_whole == 1 && (meta.checksum_error == 0 || local.is_rest == 1)) {
                aggregate.apply(hdr, local, meta.ingress_global_timestamp);
                if (hdr.reports[1].isValid()) {
                    local.is_rest = 1;
                    clone_preserving_field_list(CloneType.I2E, REST_SESSION, REST_FIELDS);
                }
            } else {
                unreadable.count(0);
            }
        } else {
            other.apply();
            local.is_other = 1;
        }
        if (local.sends == 1) {
            destination.apply();
        } else if (local.is_other == 0) {
            drop();
        }
    }
}

control AggregatorEgress(inout aggregator_headers_t hdr, inout aggregator_local_t local, inout standard_metadata_t meta) {
    apply {
        if (local.sends == 1) {
            truncate(local.frame_bytes);
        } else if (meta.instance_type == INGRESS_CLONE) {
            hdr.reports[0].setInvalid();
            hdr.udp.len = hdr.udp.len - POSTCARD_BYTES;
            hdr.ipv4.total_len = hdr.ipv4.total_len - POSTCARD_BYTES;
            hdr.ipv6.payload_len = hdr.ipv6.payload_len - POSTCARD_BYTES;
            recirculate_preserving_field_list(REST_FIELDS);
        }
    }
}

control AggregatorChecksum(inout aggregator_headers_t hdr, inout aggregator_local_t local) {
    apply {
        update_checksum(local.sends == 1 && hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment,
              hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control AggregatorDeparser(packet_out packet, in aggregator_headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.timer);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.udp);
        packet.emit(hdr.aggregate);
        packet.emit(hdr.postcards);
        packet.emit(hdr.last);
        packet.emit(hdr.latency);
        packet.emit(hdr.queue);
        // An aggregate is cut off before these.
        packet.emit(hdr.group);
        packet.emit(hdr.reports);
    }
}

V1Switch(AggregatorParser(), AggregatorVerify(), AggregatorIngress(), AggregatorEgress(), AggregatorChecksum(), AggregatorDeparser()) main;
