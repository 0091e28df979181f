// SPDX-License-Identifier: Apache-2.0 OR MIT
// The aggregator on v1model: postcards in, aggregates out, over IPv4. Other packets are forwarded by their ingress port.
//
// All of it takes place at ingress, which BMv2 executes for one packet at a time. It has no timer: the control plane, or a packet
// generator, sends a timer frame for each register.

#include <core.p4>
#include <v1model.p4>

#include "../shared/headers.p4"
#include "../shared/crc.p4"
#include "../shared/aggregate.p4"
#include "../control/aggregate.p4"

/// Bytes of a postcard's UDP datagram, and of the headers of an aggregate: Ethernet, IPv4, UDP, and its own.
const bit<16> POSTCARD_BYTES = 52;
const bit<32> AGGREGATE_HEADERS = 66;

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
        transition select(hdr.udp.len, local.l4_bytes) {
            (POSTCARD_BYTES, POSTCARD_BYTES .. 0xffff): parse_postcard;
            default: accept;
        }
    }

    state parse_postcard {
        packet.extract(hdr.group);
        packet.extract(hdr.report);
        packet.extract(hdr.body);
        transition accept;
    }
}

/// A checksum over what includes it is zero. UDP over IPv4 may have none.
control AggregatorVerify(inout aggregator_headers_t hdr, inout aggregator_local_t local) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment,
              hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.checksum, hdr.ipv4.src, hdr.ipv4.dst },
            local.zero, HashAlgorithm.csum16);
        verify_checksum(hdr.body.isValid() && hdr.ipv4.isValid() && hdr.udp.checksum != 0,
            { hdr.ipv4.src, hdr.ipv4.dst, 8w0, hdr.ipv4.proto, hdr.udp.len, hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.len, hdr.udp.checksum,
              hdr.group, hdr.report, hdr.body },
            local.zero, HashAlgorithm.csum16);
        verify_checksum(hdr.body.isValid() && hdr.ipv6.isValid(),
            { hdr.ipv6.src, hdr.ipv6.dst, 8w0, hdr.ipv6.next_header, hdr.udp.len, hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.len,
              hdr.udp.checksum, hdr.group, hdr.report, hdr.body },
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

    @name("send") @id(0x01000033)
    action send(@id(1) bit<9> port, @id(2) bit<48> src_mac, @id(3) bit<48> dst_mac, @id(4) bit<32> src_ip, @id(5) bit<32> dst_ip,
            @id(6) bit<16> dst_port) {
        meta.egress_spec = port;
        hdr.ethernet = { dst_mac, src_mac, ETHERTYPE_IPV4 };
        bit<16> udp_bytes = 32 + (bit<16>)local.frame_bytes;
        hdr.ipv4.setValid();
        hdr.ipv4 = { 4, 5, 0, 0, 20 + udp_bytes, 0, 2, 0, 64, PROTO_UDP, 0, src_ip, dst_ip };
        hdr.udp.setValid();
        hdr.udp = { 0, dst_port, udp_bytes, 0 };
        hdr.timer.setInvalid();
        hdr.ipv6.setInvalid();
        hdr.group.setInvalid();
        hdr.report.setInvalid();
        hdr.body.setInvalid();
        local.frame_bytes = local.frame_bytes + AGGREGATE_HEADERS;
    }

    @name("destination") @id(0x02000033)
    table destination {
        key = { local.destination : exact @name("destination"); }
        actions = { send; drop; }
        const default_action = drop();
        size = AGGREGATOR_DESTINATIONS;
    }

    apply {
        bit<1> is_exact = (hdr.body.isValid() && hdr.group.version == 2 && hdr.report.rep_type == 1 && hdr.report.in_type == 0
            && hdr.report.length == 8 && hdr.report.md_length == 6 && hdr.report.drop == 0 && hdr.report.md_bits == 0x1c00
            && hdr.report.ds_id == 0x5043 && hdr.report.ds_md_bits == 0x8000 && hdr.report.ds_md_status == 0) ? 1w1 : 1w0;
        aggregator.apply();
        if (hdr.timer.isValid()) {
            if (timer_port.apply().hit) {
                aggregate.apply(hdr, local, meta.ingress_global_timestamp);
            }
        } else if (hdr.udp.isValid() && postcard_port.apply().hit) {
            if (is_exact == 1 && meta.checksum_error == 0) {
                aggregate.apply(hdr, local, meta.ingress_global_timestamp);
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
        if (local.sends == 1) { truncate(local.frame_bytes); }
    }
}

control AggregatorChecksum(inout aggregator_headers_t hdr, inout aggregator_local_t local) {
    apply {
        update_checksum(local.sends == 1,
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
        packet.emit(hdr.group);
        packet.emit(hdr.report);
        packet.emit(hdr.body);
        packet.emit(hdr.aggregate);
        packet.emit(hdr.postcards);
        packet.emit(hdr.last);
        packet.emit(hdr.latency);
        packet.emit(hdr.queue);
    }
}

V1Switch(AggregatorParser(), AggregatorVerify(), AggregatorIngress(), AggregatorEgress(), AggregatorChecksum(), AggregatorDeparser()) main;
