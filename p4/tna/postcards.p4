// SPDX-License-Identifier: Apache-2.0 OR MIT
// Postcards (INT-XD) on Tofino: packets are forwarded unchanged, and every node that watches their flow reports its own record of each,
// and of each that it drops. The control plane sees the tables of `int`.
//
// Only watched packets pass egress, which knows latency and queue and copies them. A copy comes to egress again with the items of its
// report in front, each in its form there: what the report lacks is removed, and nothing is moved. Mirror sessions cut the copy.

#include <core.p4>
#include <tna.p4>

#include "../shared/headers.p4"
#include "../shared/report.p4"
#include "../shared/sizes.p4"
#include "shared/items.p4"
#include "shared/postcards.p4"
#ifdef DTA_REPORTER
#include "control/dta_report.p4"
#else
#include "control/report_session.p4"
#include "control/postcard_report.p4"
#endif

/// Drop reasons, as in the switch in Rust, where a report has them.
const bit<32> DROP_HOP_LIMIT = 26 << 16;
const bit<32> DROP_NO_ROUTE = 29 << 16;

#define SESSIONS const entries = { \
    UDP_OVER_IPV4 : set_session(500); \
    TCP_OVER_IPV4 : set_session(501); \
    UDP_OVER_IPV6 : set_session(502); \
    TCP_OVER_IPV6 : set_session(503); \
}

parser PostcardsParser(packet_in packet, out arriving_t hdr, out arriving_local_t local, out ingress_intrinsic_metadata_t meta) {
    Checksum() ipv4_checksum;

    state start {
        packet.extract(meta);
        packet.advance(PORT_METADATA_SIZE);
        local = { false, 0, NO_L4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            ETHERTYPE_VLAN: parse_vlan;
            default: accept;
        }
    }

    // Forwarded, and not measured.
    state parse_vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        ipv4_checksum.add(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.ihl) {
            (4, 5): verify_ipv4;
            // The checksum of options is left to others.
            (4, 6 &&& 6): is_ip;
            (4, 8 &&& 8): is_ip;
            default: accept;
        }
    }

    state verify_ipv4 {
        local.wrong_checksum = ipv4_checksum.verify();
        local.is_ip = 1;
        transition select(hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.proto) {
            (0 &&& 1, 0, PROTO_UDP): parse_udp_v4;
            (0 &&& 1, 0, PROTO_TCP): parse_tcp_v4;
            default: accept;
        }
    }

    state is_ip {
        local.is_ip = 1;
        transition accept;
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.version) {
            6: by_next_header;
            default: accept;
        }
    }

    state by_next_header {
        local.is_ip = 1;
        transition select(hdr.ipv6.next_header) {
            PROTO_UDP: parse_udp_v6;
            PROTO_TCP: parse_tcp_v6;
            default: accept;
        }
    }

    state parse_udp_v4 {
        local.headers = UDP_OVER_IPV4;
        transition parse_ports;
    }

    state parse_tcp_v4 {
        local.headers = TCP_OVER_IPV4;
        transition parse_ports;
    }

    state parse_udp_v6 {
        local.headers = UDP_OVER_IPV6;
        transition parse_ports;
    }

    state parse_tcp_v6 {
        local.headers = TCP_OVER_IPV6;
        transition parse_ports;
    }

    state parse_ports {
        packet.extract(hdr.ports);
        transition accept;
    }
}

control PostcardsIngress(inout arriving_t hdr, inout arriving_local_t local, in ingress_intrinsic_metadata_t meta,
        in ingress_intrinsic_metadata_from_parser_t from_parser, inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
        inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    CRCPolynomial<bit<32>>(32w0x1edc6f41, true, false, false, 32w0xffffffff, 32w0xffffffff) polynomial_v4;
    CRCPolynomial<bit<32>>(32w0x1edc6f41, true, false, false, 32w0xffffffff, 32w0xffffffff) polynomial_v6;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_v4) hash_v4;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_v6) hash_v6;
    @name("packets") Counter<bit<32>, bit<4>>(COUNTS, CounterType_t.PACKETS) packets;

    bit<1> has_route = 0;
    bit<1> expires = 0;
    bit<4> outcome = 0;

    @name("drop") @id(0x01000015)
    action drop() { for_deparser.drop_ctl = 1; }

    @name("next_hop") @id(0x01000010)
    action next_hop(@id(1) bit<9> port, @id(2) bit<48> src_mac, @id(3) bit<48> dst_mac) {
        for_tm.ucast_egress_port = port;
        hdr.ethernet.src = src_mac;
        hdr.ethernet.dst = dst_mac;
        has_route = 1;
    }

    action no_route() { }

    @name("route_v4") @id(0x02000010)
    table route_v4 {
        key = { hdr.ipv4.dst : lpm @name("ipv4_dst"); }
        actions = { next_hop; @defaultonly no_route; }
        const default_action = no_route();
        size = ROUTES_SIZE;
    }

    @name("route_v6") @id(0x02000011)
    table route_v6 {
        key = { hdr.ipv6.dst : lpm @name("ipv6_dst"); }
        actions = { next_hop; @defaultonly no_route; }
        const default_action = no_route();
        size = ROUTES_SIZE;
    }

    @name("watch_postcard") @id(0x01000006)
    action watch_postcard(@id(1) bit<16> instructions, @id(2) bit<1> drops) {
        local.is_watched = 1;
        local.drops = drops;
        local.bits = instructions & ITEMS_OF_POSTCARD;
    }

    @name("watch_nothing") @id(0x01000003)
    action watch_nothing() { }

    @name("watchlist_v4") @id(0x02000002)
    table watchlist_v4 {
        key = {
            hdr.ipv4.src : ternary @name("ipv4_src");
            hdr.ipv4.dst : ternary @name("ipv4_dst");
            hdr.ipv4.proto : ternary @name("ip_proto");
            hdr.ipv4.dscp : ternary @name("dscp");
            hdr.ports.src_port : range @name("l4_sport");
            hdr.ports.dst_port : range @name("l4_dport");
        }
        actions = { watch_postcard; watch_nothing; }
        const default_action = watch_nothing();
        size = WATCHLIST_SIZE;
    }

    @name("watchlist_v6") @id(0x02000003)
    table watchlist_v6 {
        key = {
            hdr.ipv6.src : ternary @name("ipv6_src");
            hdr.ipv6.dst : ternary @name("ipv6_dst");
            hdr.ipv6.next_header : ternary @name("ip_proto");
            hdr.ipv6.dscp : ternary @name("dscp");
            hdr.ports.src_port : range @name("l4_sport");
            hdr.ports.dst_port : range @name("l4_dport");
        }
        actions = { watch_postcard; watch_nothing; }
        const default_action = watch_nothing();
        size = WATCHLIST_SIZE;
    }

    @name("from_edge") @id(0x01000013)
    action from_edge() { local.status = FROM_EDGE; }

    @name("source_port") @id(0x02000001)
    table source_port {
        key = { meta.ingress_port : exact @name("ingress_port"); }
        actions = { from_edge; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    @name("to_edge") @id(0x01000014)
    action to_edge() { local.status = local.status | TO_EDGE; }

    @name("sink_port") @id(0x02000004)
    table sink_port {
        key = { for_tm.ucast_egress_port : exact @name("egress_port"); }
        actions = { to_edge; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    action id_v4() { local.flow_id = hash_v4.get({ hdr.ipv4.src, hdr.ipv4.dst, hdr.ports.src_port, hdr.ports.dst_port, hdr.ipv4.proto }); }
    action id_v6() {
        local.flow_id = hash_v6.get({ hdr.ipv6.src, hdr.ipv6.dst, hdr.ports.src_port, hdr.ports.dst_port, hdr.ipv6.next_header });
    }

    action older_v4() {
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        // RFC 1141: the hop limit is the high byte of its word.
        hdr.ipv4.checksum = hdr.ipv4.checksum + 0x0100;
    }
    action older_v4_carry() {
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        hdr.ipv4.checksum = hdr.ipv4.checksum + 0x0101;
    }
    action older_v6() { hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1; }

    action set_session(bit<10> session) {
        for_deparser.mirror_type = COPY;
        local.session = session;
        local.copy_kind = KIND_DROP;
        local.copy_bits = ITEMS_OF_DROP;
        local.ingress_if = (bit<16>)meta.ingress_port;
        local.ingress_ts = from_parser.global_tstamp;
    }
    table session {
        key = { local.headers : exact; }
        actions = { set_session; @defaultonly NoAction; }
        const default_action = NoAction();
        SESSIONS
        size = 4;
    }
    action set_reason(bit<32> reason) { local.reason = reason; }

    action hand_over() {
        hdr.measured.setValid();
        hdr.measured.kind = KIND_PACKET;
        hdr.measured.headers = local.headers;
        hdr.measured.bits = local.bits;
        hdr.measured.status = local.status;
        hdr.watched.setValid();
        hdr.watched.ingress_if = (bit<16>)meta.ingress_port;
        hdr.watched.ingress_ts = from_parser.global_tstamp;
        hdr.watched.flow_id = local.flow_id;
    }
    action pass_by() { for_tm.bypass_egress = 1; }

    apply {
        // What may be INT is not a packet of a host.
        if (hdr.ports.isValid() && !hdr.vlan.isValid()) {
            if (hdr.ipv4.isValid() && hdr.ipv4.dscp != INT_DSCP) {
                watchlist_v4.apply();
                id_v4();
            } else if (hdr.ipv6.isValid() && hdr.ipv6.dscp != INT_DSCP) {
                watchlist_v6.apply();
                id_v6();
            }
        }
        if (hdr.ipv4.isValid()) { route_v4.apply(); } else if (hdr.ipv6.isValid()) { route_v6.apply(); }
        if (hdr.ipv4.isValid() && (hdr.ipv4.ttl == 0 || hdr.ipv4.ttl == 1)) { expires = 1; }
        if (hdr.ipv6.isValid() && (hdr.ipv6.hop_limit == 0 || hdr.ipv6.hop_limit == 1)) { expires = 1; }
        source_port.apply();
        sink_port.apply();
        if (local.is_ip == 0 || local.wrong_checksum || from_parser.parser_err != 0) {
            drop();
        } else if (has_route == 0 || expires == 1) {
            drop();
#ifndef DTA_REPORTER
            if (local.drops == 1) {
                if (expires == 1) { set_reason(DROP_HOP_LIMIT); } else { set_reason(DROP_NO_ROUTE); }
                session.apply();
                packets.count((bit<4>)COUNT_DROPS_REPORTED);
            }
#endif
        } else {
            if (hdr.ipv6.isValid()) {
                older_v6();
            } else if (hdr.ipv4.checksum[15:8] == 0xff) {
                older_v4_carry();
            } else {
                older_v4();
            }
            if (local.is_watched == 1) {
                hand_over();
                outcome = (bit<4>)COUNT_REPORTED;
            } else {
                pass_by();
                outcome = (bit<4>)COUNT_PLAIN;
            }
            packets.count(outcome);
        }
    }
}

control PostcardsIngressDeparser(packet_out packet, inout arriving_t hdr, in arriving_local_t local,
        in ingress_intrinsic_metadata_for_deparser_t meta) {
    Mirror() mirror;

    apply {
        if (meta.mirror_type == COPY) {
            mirror.emit<copy_t>(local.session, { local.copy_kind, local.headers, local.copy_bits, 0, local.ingress_if, 0, 0, 0, local.ingress_ts,
                0, local.reason });
        }
        packet.emit(hdr.measured);
        packet.emit(hdr.watched);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.ports);
    }
}

parser PostcardsLeaving(packet_in packet, out leaving_t hdr, out leaving_local_t local, out egress_intrinsic_metadata_t meta) {
    state start {
        packet.extract(meta);
        local = { 0, 0, 0, 0, 0, 0, 0, 0 };
        packet.extract(hdr.measured);
        transition select(hdr.measured.kind) {
            KIND_PACKET: parse_watched;
            default: parse_copy;
        }
    }

    state parse_watched {
        packet.extract(hdr.watched);
        transition accept;
    }

    // The packet in a report begins at its IP header.
    state parse_copy {
        packet.extract(hdr.interfaces);
        packet.extract(hdr.queue);
        packet.extract(hdr.ingress_ts);
        packet.extract(hdr.egress_ts);
        packet.extract(hdr.last);
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control PostcardsEgress(inout leaving_t hdr, inout leaving_local_t local, in egress_intrinsic_metadata_t meta,
        in egress_intrinsic_metadata_from_parser_t from_parser, inout egress_intrinsic_metadata_for_deparser_t for_deparser,
        inout egress_intrinsic_metadata_for_output_port_t for_port) {
    Report() report;

    @name("set_node") @id(0x01000011)
    action set_node(@id(1) bit<32> node, @id(2) bit<16> available) {
        local.node = node;
        local.available = available;
    }

    @name("node") @id(0x02000012)
    table node {
        key = { }
        actions = { set_node; NoAction; }
        default_action = NoAction();
        size = 1;
    }

    action measure() {
        for_deparser.mirror_type = COPY;
        local.copy_kind = KIND_POSTCARD;
        local.egress_if = (bit<16>)meta.egress_port;
        local.egress_ts = from_parser.global_tstamp;
        local.queue_id = (bit<8>)meta.egress_qid;
        local.queue_occupancy = (bit<24>)meta.deq_qdepth;
    }
    action mask_available() { hdr.measured.bits = hdr.measured.bits & local.available; }

    action set_session(bit<10> session) { local.session = session; }
    table session {
        key = { hdr.measured.headers : exact; }
        actions = { set_session; @defaultonly NoAction; }
        const default_action = NoAction();
        SESSIONS
        size = 4;
    }

    apply {
        node.apply();
        if (hdr.watched.isValid()) {
            measure();
            session.apply();
            mask_available();
        } else {
            report.apply(hdr, local, for_deparser.drop_ctl);
        }
    }
}

control PostcardsDeparser(packet_out packet, inout leaving_t hdr, in leaving_local_t local, in egress_intrinsic_metadata_for_deparser_t meta) {
    Checksum() report_checksum;
    Mirror() mirror;

    apply {
        if (meta.mirror_type == COPY) {
            mirror.emit<copy_t>(local.session, { local.copy_kind, hdr.measured.headers, hdr.measured.bits, hdr.measured.status,
                hdr.watched.ingress_if, local.egress_if, local.queue_id, local.queue_occupancy, hdr.watched.ingress_ts, local.egress_ts,
                hdr.watched.flow_id });
        }
        hdr.report_ipv4.checksum = report_checksum.update({ hdr.report_ipv4.version, hdr.report_ipv4.ihl, hdr.report_ipv4.dscp,
            hdr.report_ipv4.ecn, hdr.report_ipv4.total_len, hdr.report_ipv4.id, hdr.report_ipv4.flags, hdr.report_ipv4.fragment,
            hdr.report_ipv4.ttl, hdr.report_ipv4.proto, hdr.report_ipv4.src, hdr.report_ipv4.dst });
        packet.emit(hdr.report_ethernet);
        packet.emit(hdr.report_ipv4);
        packet.emit(hdr.report_udp);
#ifdef DTA_REPORTER
        packet.emit(hdr.dta);
        packet.emit(hdr.key_write);
        packet.emit(hdr.key);
#else
        packet.emit(hdr.group);
        packet.emit(hdr.report);
#endif
        packet.emit(hdr.interfaces);
        packet.emit(hdr.latency);
        packet.emit(hdr.queue);
        packet.emit(hdr.ingress_zero);
        packet.emit(hdr.ingress_ts);
        packet.emit(hdr.egress_zero);
        packet.emit(hdr.egress_ts);
        packet.emit(hdr.last);
    }
}

Pipeline(PostcardsParser(), PostcardsIngress(), PostcardsIngressDeparser(), PostcardsLeaving(), PostcardsEgress(), PostcardsDeparser()) pipe;
Switch(pipe) main;
