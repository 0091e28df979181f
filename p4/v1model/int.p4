// SPDX-License-Identifier: Apache-2.0 OR MIT
// INT on v1model: source, transit and sink of INT-MD, INT-MX and postcards, and reports of flows, drops and queues. All of it takes place
// at egress, after the queue, because latency and occupancy are known only there; dropped packets pass egress as a copy.
//
// BMv2 counts time in microseconds since its start and queues in packets; `INT_DSCP` is set when the program is compiled.

#include <core.p4>
#include <v1model.p4>

#include "../shared/sizes.p4"
#include "../shared/headers.p4"
#include "../shared/local.p4"
#ifdef DTA_REPORTER
#include "../shared/crc.p4"
#include "../shared/dta.p4"
#include "../shared/reporter.p4"
#endif
#include "../shared/int.p4"
#include "../shared/report.p4"
#include "../control/record.p4"
#include "../control/items.p4"
#include "../control/stack_shape.p4"
#include "../control/edges.p4"
#include "../control/watchlist.p4"
#include "../control/sampling.p4"
#include "../control/selection.p4"
#include "../control/queue.p4"
#include "../control/flow_id.p4"
#include "../control/filter.p4"
#include "../control/source.p4"
#include "../control/transit.p4"
#include "../control/sink.p4"
#include "../control/lengths.p4"
#include "../control/border.p4"
#ifdef DTA_REPORTER
#include "../control/dta_destination.p4"
#include "../control/dta_report.p4"
#else
#include "../control/report.p4"
#endif

/// Instance types of what `clone_preserving_field_list` made at ingress and at egress.
const bit<32> INGRESS_CLONE = 1;
const bit<32> EGRESS_CLONE = 2;
/// Bytes of the packet after INT that a report includes.
const bit<16> SNAP_BYTES = 8;
/// The clone session whose port leads to the collector.
const bit<32> REPORT_SESSION = 500;
/// Where `mark_to_drop` sends packets.
const bit<9> DROP_PORT = 511;
/// Drop reasons, as in the switch in Rust.
const bit<8> DROP_HOP_LIMIT = 26;
const bit<8> DROP_NO_ROUTE = 29;

/// A report by DTA may take several passes.
#ifdef DTA_REPORTER
#define ANOTHER_PASS local.reporter.continues == 1
#else
#define ANOTHER_PASS false
#endif

/// States for a record: its first words, as many as there are of four, and then all of it.
#define HOP(N, NEXT) state hop_##N { \
        transition select((local.record_words != 0 && (bit<16>)local.record_words <= local.stack_words) ? local.record_words : 0) { \
            0: parse_rest; \
            1: first_##N##_1; \
            2: first_##N##_2; \
            3: first_##N##_3; \
            default: first_##N##_4; \
        } \
    } \
    state first_##N##_1 { local.firsts.hop_##N = packet.lookahead<bit<32>>() ++ 96w0; transition record_##N; } \
    state first_##N##_2 { local.firsts.hop_##N = packet.lookahead<bit<64>>() ++ 64w0; transition record_##N; } \
    state first_##N##_3 { local.firsts.hop_##N = packet.lookahead<bit<96>>() ++ 32w0; transition record_##N; } \
    state first_##N##_4 { local.firsts.hop_##N = packet.lookahead<bit<128>>(); transition record_##N; } \
    state record_##N { \
        packet.extract(hdr.hop_##N, (bit<32>)local.record_words * 32); \
        local.stack_words = local.stack_words - (bit<16>)local.record_words; \
        transition NEXT; \
    }

/// States for a payload of so many bytes, and for the rest of one behind its first 16 bytes.
#define BODY(N, BITS, ZEROS, NEXT) state body_##N { local.body_0 = packet.lookahead<bit<BITS>>() ++ ZEROS; transition NEXT; }
#define BODY_16(N, BITS, ZEROS) state body_##N { local.body_16 = packet.lookahead<bit<BITS>>() ++ ZEROS; transition accept; }

parser IntParser(packet_in packet, out headers_t hdr, inout local_t local, inout standard_metadata_t meta) {
    bit<16> int_words = 0;

    state start {
        packet.extract(hdr.ethernet);
        local.link_bytes = 14;
        transition by_ethertype_0;
    }

    state by_ethertype_0 {
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            ETHERTYPE_VLAN: parse_vlan;
            ETHERTYPE_QINQ: parse_vlan;
            ETHERTYPE_QINQ_OLD: parse_vlan;
#ifdef DTA_REPORTER
            ETHERTYPE_TIMER: parse_timer;
#endif
            default: accept;
        }
    }

#ifdef DTA_REPORTER
    state parse_timer {
        packet.extract(hdr.timer);
        transition accept;
    }
#endif

    state parse_vlan {
        packet.extract(hdr.vlan.next);
        local.link_bytes = local.link_bytes + 4;
        transition select(hdr.vlan.last.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            ETHERTYPE_VLAN: parse_vlan;
            ETHERTYPE_QINQ: parse_vlan;
            ETHERTYPE_QINQ_OLD: parse_vlan;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        local.ip_bytes = hdr.ipv4.total_len;
        local.proto = hdr.ipv4.proto;
        local.dscp = hdr.ipv4.dscp;
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, (hdr.ipv4.total_len >= (bit<16>)hdr.ipv4.ihl * 4) ? 1w1 : 1w0) {
            (4, 5, 1): fragments;
            (4, 6 .. 15, 1): parse_ipv4_options;
            default: accept;
        }
    }

    state parse_ipv4_options {
        packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.ihl - 5) * 32);
        transition fragments;
    }

    state fragments {
        local.is_ip = 1;
        local.l4_bytes = hdr.ipv4.total_len - (bit<16>)hdr.ipv4.ihl * 4;
        transition select(hdr.ipv4.flags & 1, hdr.ipv4.fragment, local.proto) {
            (0, 0, PROTO_UDP): length_udp;
            (0, 0, PROTO_TCP): length_tcp;
            default: accept;
        }
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        local.ip_bytes = hdr.ipv6.payload_len + 40;
        local.proto = hdr.ipv6.next_header;
        local.dscp = hdr.ipv6.dscp;
        local.l4_bytes = hdr.ipv6.payload_len;
        local.is_ip = (hdr.ipv6.version == 6 && hdr.ipv6.payload_len <= 0xffd7) ? 1w1 : 1w0;
        transition select(hdr.ipv6.version, local.proto, local.l4_bytes) {
            (6, PROTO_UDP, 0): no_length;
            (6, PROTO_TCP, 0): no_length;
            (6, PROTO_UDP, _): length_udp;
            (6, PROTO_TCP, _): length_tcp;
            default: accept;
        }
    }

    // A length of 0, as segmentation offload leaves it: the rest of the frame may have INT, which is left alone.
    state no_length {
        local.bad_l4 = 1;
        local.l4_bytes = meta.packet_length < (bit<32>)local.link_bytes + 40 ? 0 : meta.packet_length[15:0] - local.link_bytes - 40;
        transition select(local.proto) {
            PROTO_UDP: length_udp;
            default: length_tcp;
        }
    }

    // A header that reaches beyond the IP packet is none.
    state length_udp {
        transition select(local.l4_bytes) {
            8 .. 0xffff: parse_udp;
            default: accept;
        }
    }

    state length_tcp {
        transition select(local.l4_bytes) {
            20 .. 0xffff: parse_tcp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        local.src_port = hdr.udp.src_port;
        local.dst_port = hdr.udp.dst_port;
        local.body_bytes = local.l4_bytes - 8;
        local.refused = (local.bad_l4 == 0 && (hdr.udp.len < 8 || hdr.udp.len > local.l4_bytes)) ? 1w1 : 1w0;
        transition select(local.refused, hdr.udp.dst_port) {
            (1, _): accept;
            (0, PORT_VXLAN): by_vxlan;
            (0, PORT_GPE): by_vxlan;
            (0, PORT_GENEVE): by_geneve;
            default: by_dscp;
        }
    }

    state parse_tcp {
        packet.extract(hdr.tcp);
        local.src_port = hdr.tcp.src_port;
        local.dst_port = hdr.tcp.dst_port;
        local.body_bytes = local.l4_bytes - 20;
        local.bad_l4 = local.bad_l4 | ((hdr.tcp.data_offset < 5 || (bit<16>)hdr.tcp.data_offset * 4 > local.l4_bytes) ? 1w1 : 1w0);
        transition by_dscp;
    }

    // A tunnel may copy the DSCP of its packet: what follows is then no shim.
    state by_vxlan {
        transition select(local.body_bytes) {
            0: accept;
            default: by_vxlan_flags;
        }
    }

    state by_vxlan_flags {
        transition select(packet.lookahead<bit<8>>()) {
            0x08 &&& 0x08: parse_payload;
            default: by_dscp;
        }
    }

    state by_geneve {
        transition select(local.body_bytes) {
            0 .. 3: by_dscp;
            default: by_geneve_protocol;
        }
    }

    state by_geneve_protocol {
        bit<32> geneve = packet.lookahead<bit<32>>();
        transition select(geneve[31:30], geneve[15:0]) {
            (0, ETHERTYPE_TRANSPARENT): parse_payload;
            (0, ETHERTYPE_IPV4): parse_payload;
            (0, ETHERTYPE_IPV6): parse_payload;
            default: by_dscp;
        }
    }

    // A packet that ends behind L4 has no shim.
    state by_dscp {
        transition select(local.dscp, local.body_bytes) {
            (INT_DSCP, 0): accept;
            (INT_DSCP, _): by_version;
            default: parse_payload;
        }
    }

    state by_version {
        local.refused = 1;
        transition select(local.body_bytes) {
            0 .. 11: accept;
            default: by_type;
        }
    }

    state by_type {
        bit<40> head = packet.lookahead<bit<40>>();
        transition select(head[39:32], head[7:4]) {
            (SHIM_10_HOP_BY_HOP, INT_VERSION_10): parse_10;
            (0x10 &&& 0xfc, INT_VERSION_2): parse_2;
            (0x30 &&& 0xfc, INT_VERSION_2): parse_mx;
            default: accept;
        }
    }

    state parse_10 {
        packet.extract(hdr.shim_10);
        packet.extract(hdr.md_10);
        int_words = (bit<16>)hdr.shim_10.length;
        local.record_words = (bit<8>)hdr.md_10.hop_ml;
        local.remaining = hdr.md_10.remaining;
        local.bitmap = hdr.md_10.bitmap;
        transition select(hdr.shim_10.length, (int_words * 4 - 1 < local.body_bytes) ? 1w1 : 1w0) {
            (0 .. 2, _): accept;
            (_, 1): parse_stack_10;
            default: accept;
        }
    }

    state parse_mx {
        local.is_mx = 1;
        packet.extract(hdr.shim_2);
        packet.extract(hdr.md_2);
        int_words = (bit<16>)hdr.shim_2.length + 1;
        local.bitmap = hdr.md_2.bitmap;
        transition select(hdr.shim_2.length, (int_words * 4 - 1 < local.body_bytes) ? 1w1 : 1w0) {
            (0 .. 2, _): accept;
            (_, 1): parse_stack_2;
            default: accept;
        }
    }

    state parse_2 {
        packet.extract(hdr.shim_2);
        packet.extract(hdr.md_2);
        int_words = (bit<16>)hdr.shim_2.length + 1;
        local.record_words = (bit<8>)hdr.md_2.hop_ml;
        local.remaining = hdr.md_2.remaining;
        local.bitmap = hdr.md_2.bitmap;
        // The first reserved bit marks SF-INT, which has a type of its own.
        transition select(hdr.shim_2.length, (int_words * 4 - 1 < local.body_bytes) ? 1w1 : 1w0, hdr.md_2.rsvd) {
            (0 .. 2, _, _): accept;
            (_, _, SF_FLAG &&& SF_FLAG): accept;
            (_, 1, _): parse_stack_2;
            default: accept;
        }
    }

    state parse_stack_10 {
        local.stack_words = (bit<16>)hdr.shim_10.length - 3;
        transition hop_0;
    }

    state parse_stack_2 {
        local.stack_words = (bit<16>)hdr.shim_2.length - 3;
        transition hop_0;
    }

    HOP(0, hop_1)
    HOP(1, hop_2)
    HOP(2, hop_3)
    HOP(3, hop_4)
    HOP(4, hop_5)
    HOP(5, hop_6)
    HOP(6, hop_7)
    HOP(7, parse_rest)

    // Further records, words of the source, and what is no record.
    state parse_rest {
        packet.extract(hdr.stack, (bit<32>)local.stack_words * 32);
        transition have_stack;
    }

    state have_stack {
        local.refused = 0;
        local.carries_int = 1;
        local.body_bytes = local.body_bytes - int_words * 4;
        transition parse_payload;
    }

    // What selects postcards: up to 12 bytes behind TCP, 24 behind UDP.
    state parse_payload {
        transition select(local.proto, local.body_bytes) {
            (_, 0): accept;
            (_, 1): body_1;
            (_, 2): body_2;
            (_, 3): body_3;
            (_, 4): body_4;
            (_, 5): body_5;
            (_, 6): body_6;
            (_, 7): body_7;
            (_, 8): body_8;
            (_, 9): body_9;
            (_, 10): body_10;
            (_, 11): body_11;
            (PROTO_TCP, _): body_12;
            (_, 12): body_12;
            (_, 13): body_13;
            (_, 14): body_14;
            (_, 15): body_15;
            default: parse_long_payload;
        }
    }

    BODY(1, 8, 120w0, parse_short_payload)
    BODY(2, 16, 112w0, parse_short_payload)
    BODY(3, 24, 104w0, parse_short_payload)
    BODY(4, 32, 96w0, parse_short_payload)
    BODY(5, 40, 88w0, parse_short_payload)
    BODY(6, 48, 80w0, parse_short_payload)
    BODY(7, 56, 72w0, parse_short_payload)
    BODY(8, 64, 64w0, accept)
    BODY(9, 72, 56w0, accept)
    BODY(10, 80, 48w0, accept)
    BODY(11, 88, 40w0, accept)
    BODY(12, 96, 32w0, accept)
    BODY(13, 104, 24w0, accept)
    BODY(14, 112, 16w0, accept)
    BODY(15, 120, 8w0, accept)

    state parse_long_payload {
        packet.extract(hdr.long_payload);
        local.body_0 = hdr.long_payload.bytes;
        transition select(local.body_bytes) {
            16: accept;
            17: body_17;
            18: body_18;
            19: body_19;
            20: body_20;
            21: body_21;
            22: body_22;
            23: body_23;
            default: body_24;
        }
    }

    BODY_16(17, 8, 56w0)
    BODY_16(18, 16, 48w0)
    BODY_16(19, 24, 40w0)
    BODY_16(20, 32, 32w0)
    BODY_16(21, 40, 24w0)
    BODY_16(22, 48, 16w0)
    BODY_16(23, 56, 8w0)

    state body_24 {
        local.body_16 = packet.lookahead<bit<64>>();
        transition accept;
    }

    // What a report includes of a shorter payload must be followed by padding.

    state parse_short_payload {
        packet.extract(hdr.payload, (bit<32>)local.body_bytes * 8);
        transition accept;
    }
}

/// A switch forwards no IPv4 packet with a wrong checksum; the lab and tests rely on INT being left alone in it.
control IntVerifyChecksum(inout headers_t hdr, inout local_t local) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment,
              hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4_options.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment,
              hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4_options.options },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control IntIngress(inout headers_t hdr, inout local_t local, inout standard_metadata_t meta) {
    @name("drop") @id(0x01000015)
    action drop() {
        mark_to_drop(meta);
    }

    @name("next_hop") @id(0x01000010)
    action next_hop(@id(1) bit<9> port, @id(2) bit<48> src_mac, @id(3) bit<48> dst_mac) {
        meta.egress_spec = port;
        hdr.ethernet.src = src_mac;
        hdr.ethernet.dst = dst_mac;
    }

    @name("route_v4") @id(0x02000010)
    table route_v4 {
        key = { hdr.ipv4.dst : lpm @name("ipv4_dst"); }
        actions = { next_hop; drop; }
        const default_action = drop();
        size = ROUTES_SIZE;
    }

    @name("route_v6") @id(0x02000011)
    table route_v6 {
        key = { hdr.ipv6.dst : lpm @name("ipv6_dst"); }
        actions = { next_hop; drop; }
        const default_action = drop();
        size = ROUTES_SIZE;
    }

    action report_drop(bit<8> reason) {
        local.drop_reason = reason;
        local.visit.ingress_if = (bit<16>)meta.ingress_port;
        local.visit.ingress_ts = (bit<64>)meta.ingress_global_timestamp * 1000;
        clone_preserving_field_list(CloneType.I2E, REPORT_SESSION, DROP_FIELDS);
        mark_to_drop(meta);
    }

#ifdef DTA_REPORTER
    /// A translator's message goes to the port of reports.
    @name("from_translator") @id(0x01000058)
    action from_translator(@id(1) bit<8> which, @id(2) bit<9> port) {
        local.reporter.is_control = 1;
        local.reporter.collector = which;
        meta.egress_spec = port;
    }

    @name("translator") @id(0x02000057)
    table translator {
        key = {
            hdr.ipv4.src : exact @name("ipv4_src");
            hdr.udp.src_port : exact @name("udp_sport");
            hdr.ipv4.dst : exact @name("ipv4_dst");
            hdr.udp.dst_port : exact @name("udp_dport");
        }
        actions = { from_translator; @defaultonly NoAction; }
        const default_action = NoAction();
        size = REPORTER_COLLECTORS;
    }

    @name("accept_timer") @id(0x01000059)
    action accept_timer(@id(1) bit<9> port) {
        local.reporter.is_timer = 1;
        local.reporter.collector = hdr.timer.collector;
        meta.egress_spec = port;
    }

    @name("timer_port") @id(0x02000058)
    table timer_port {
        key = { meta.ingress_port : exact @name("ingress_port"); }
        actions = { accept_timer; drop; }
        const default_action = drop();
        size = PORTS_SIZE;
    }
#endif

    apply {
#ifdef DTA_REPORTER
        if (hdr.timer.isValid()) {
            timer_port.apply();
            return;
        }
        if (meta.parser_error == error.NoError && meta.checksum_error == 0 && hdr.ipv4.isValid() && hdr.udp.isValid()
                && (bit<32>)local.link_bytes + (bit<32>)local.ip_bytes <= meta.packet_length) {
            if (translator.apply().hit) { return; }
        }
#endif
        if (meta.parser_error != error.NoError || local.is_ip == 0 || (bit<32>)local.link_bytes + (bit<32>)local.ip_bytes > meta.packet_length) {
            // Headers or a packet that the frame does not hold.
            drop();
        } else if (hdr.ipv4.isValid() && meta.checksum_error == 1) {
            drop();
        } else if ((hdr.ipv4.isValid() && hdr.ipv4.ttl <= 1) || (hdr.ipv6.isValid() && hdr.ipv6.hop_limit <= 1)) {
            report_drop(DROP_HOP_LIMIT);
        } else if (hdr.ipv4.isValid()) {
            if (!route_v4.apply().hit) {
                report_drop(DROP_NO_ROUTE);
            } else if (meta.egress_spec != DROP_PORT) {
                hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                // RFC 1141: the hop limit is the high byte of its word.
                bit<32> sum = (bit<32>)hdr.ipv4.checksum + 0x0100;
                hdr.ipv4.checksum = sum[15:0] + sum[31:16];
            }
        } else {
            if (!route_v6.apply().hit) {
                report_drop(DROP_NO_ROUTE);
            } else if (meta.egress_spec != DROP_PORT) {
                hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            }
        }
    }
}

/// Adds the sum of a packet's INT to `sum`. A checksum is the complement of a sum: what is removed is added as its complement.
control Removed(in headers_t hdr, inout bit<32> sum) {
    apply {
        bit<32> removed = 0;
        if (hdr.shim_10.isValid() && hdr.md_10.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0,
                { hdr.shim_10.type, hdr.shim_10.rsvd, hdr.shim_10.length, hdr.shim_10.dscp, hdr.shim_10.rsvd2,
                  hdr.md_10.version, hdr.md_10.replication, hdr.md_10.copy, hdr.md_10.hops_exceeded, hdr.md_10.mtu_exceeded,
                  hdr.md_10.rsvd, hdr.md_10.hop_ml, hdr.md_10.remaining, hdr.md_10.bitmap, hdr.md_10.rsvd2 },
                32w0x10000);
        } else if (hdr.shim_2.isValid() && hdr.md_2.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0,
                { hdr.shim_2.type, hdr.shim_2.npt, hdr.shim_2.rsvd, hdr.shim_2.length, hdr.shim_2.rsvd2, hdr.shim_2.dscp,
                  hdr.shim_2.rsvd3, hdr.md_2.version, hdr.md_2.discard, hdr.md_2.hops_exceeded, hdr.md_2.mtu_exceeded,
                  hdr.md_2.rsvd, hdr.md_2.hop_ml, hdr.md_2.remaining, hdr.md_2.bitmap, hdr.md_2.ds_id, hdr.md_2.ds_instruction,
                  hdr.md_2.ds_flags },
                32w0x10000);
        }
        sum = sum + removed;
        if (hdr.hop_0.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0, { hdr.hop_0.record }, 32w0x10000);
            sum = sum + removed;
        }
        if (hdr.hop_1.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0, { hdr.hop_1.record }, 32w0x10000);
            sum = sum + removed;
        }
        if (hdr.hop_2.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0, { hdr.hop_2.record }, 32w0x10000);
            sum = sum + removed;
        }
        if (hdr.hop_3.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0, { hdr.hop_3.record }, 32w0x10000);
            sum = sum + removed;
        }
        if (hdr.hop_4.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0, { hdr.hop_4.record }, 32w0x10000);
            sum = sum + removed;
        }
        if (hdr.hop_5.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0, { hdr.hop_5.record }, 32w0x10000);
            sum = sum + removed;
        }
        if (hdr.hop_6.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0, { hdr.hop_6.record }, 32w0x10000);
            sum = sum + removed;
        }
        if (hdr.hop_7.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0, { hdr.hop_7.record }, 32w0x10000);
            sum = sum + removed;
        }
        if (hdr.stack.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0, { hdr.stack.records }, 32w0x10000);
            sum = sum + removed;
        }
    }
}

control IntEgress(inout headers_t hdr, inout local_t local, inout standard_metadata_t meta) {
    StackShape() shape;
    Entrance() entrance;
    Border() border;
    Edges() edges;
    Watchlist() watchlist;
    CountDown() count_down;
    Selection() selection;
    Queue() queue;
    FlowId() flow_id;
    Filter() filter;
    Decide() decide;
    Source() source;
    Transit() transit;
    Sink() sink;
    Removed() removed_at_border;
    Removed() removed;
    Lengths() lengths;
    Lengths() lengths_of_sink;
    LeaveChecksum() leave;
    Report() report;
    @name("packets") counter(COUNTS, CounterType.packets) packets;

    @name("set_node") @id(0x01000011)
    action set_node(@id(1) bit<32> node, @id(2) bit<16> available, @id(3) bit<1> leave_l4_checksum) {
        local.node = node;
        local.available = available;
        local.leave_l4_checksum = leave_l4_checksum;
    }

    @name("node") @id(0x02000012)
    table node {
        key = { }
        actions = { set_node; NoAction; }
        default_action = NoAction();
    }

    action measure() {
        local.visit.ingress_if = (bit<16>)meta.ingress_port;
        local.visit.egress_if = (bit<16>)meta.egress_port;
        local.visit.ingress_ts = (bit<64>)meta.ingress_global_timestamp * 1000;
        local.visit.egress_ts = (bit<64>)meta.egress_global_timestamp * 1000;
        local.visit.queue_id = 0;
        local.visit.queue_occupancy = (bit<24>)meta.deq_qdepth;
    }

    /// What the report of a flow has.
    action report_flow(bit<2> kind) {
        bit<16> snap = local.body_bytes < SNAP_BYTES ? local.body_bytes : SNAP_BYTES;
        local.flow_report = kind;
        local.report_bytes = local.ip_bytes - local.body_bytes + snap;
        local.report_bits = local.bitmap & local.available & REPORTABLE;
    }

    apply {
        bit<32> frame_bytes = 0;
        bit<1> is_report = 0;
        node.apply();
#ifdef DTA_REPORTER
        if (meta.instance_type == EGRESS_CLONE || local.reporter.is_control == 1 || local.reporter.is_timer == 1) {
#else
        if (meta.instance_type == EGRESS_CLONE) {
#endif
            is_report = 1;
        } else {
            if (local.carries_int == 1) { shape.apply(hdr, local); }
            if (local.bad_l4 == 1 && local.carries_int == 1) {
                local.carries_int = 0;
                local.malformed_stack = 0;
                local.refused = 1;
            }
            entrance.apply(local, meta.instance_type == INGRESS_CLONE ? local.visit.ingress_if[8:0] : meta.ingress_port);
            if (local.visit.from_outside == 1 && local.carries_int == 1) {
                removed_at_border.apply(hdr, local.sum);
                border.apply(hdr, local);
            }
            bit<1> is_flow = local.refused == 0 && local.malformed_stack == 0 && local.bad_l4 == 0
                && (hdr.udp.isValid() || hdr.tcp.isValid()) ? 1w1 : 1w0;
            if (is_flow == 1 && (local.carries_int == 0 || meta.instance_type == INGRESS_CLONE)) { watchlist.apply(hdr, local); }
            if (meta.instance_type == INGRESS_CLONE) {
                // A node without an entry of its own reports what its source watches: packets with INT.
                is_report = is_flow == 1 && local.edge_refused == 0 && (local.watch.drops == 1 || (local.watch.is_missing == 1 && local.carries_int == 1)) ? 1w1 : 1w0;
                if (is_report == 1) { packets.count(COUNT_DROPS_REPORTED); }
                report_flow(FLOW_NOTHING);
            } else if (local.edge_refused == 1) {
                packets.count(COUNT_REFUSED);
                packets.count(COUNT_EDGE_REFUSED);
                mark_to_drop(meta);
            } else {
                if (local.edge_stripped == 1) { packets.count(COUNT_EDGE_STRIPPED); }
                measure();
                edges.apply(local, meta.egress_port);
                queue.apply(hdr, local, meta.egress_port);
                if (local.queue_report == QUEUE_CHANGED) { packets.count(COUNT_QUEUES_REPORTED); }
                if (local.queue_report == QUEUE_CONGESTED) { packets.count(COUNT_CONGESTED_REPORTED); }
                local.outcome = local.refused == 1 ? COUNT_REFUSED : COUNT_PLAIN;
                bit<6> dscp = local.dscp;
                bit<16> l4_checksum = hdr.udp.isValid() ? hdr.udp.checksum : hdr.tcp.checksum;
                if (local.watch.sample > 1) {
                    if (local.watch.mode == WATCH_POSTCARD) {
                        selection.apply(hdr, local);
                    } else if (local.watch.mode != WATCH_NOTHING && local.visit.from_edge == 1) {
                        count_down.apply(local);
                    }
                }
                if (local.watch.mode == WATCH_POSTCARD) {
                    local.outcome = COUNT_REPORTED;
                    local.bitmap = local.watch.bitmap;
                    report_flow(FLOW_POSTCARD);
                    see(hdr);
                } else if (local.watch.mode != WATCH_NOTHING && local.visit.from_edge == 1) {
                    source.apply(hdr, local);
                }
                if (local.grown != 0 && (local.visit.to_edge == 1 || local.is_mx == 1)) {
                    // This switch reports what it has inserted itself.
                    lengths.apply(hdr, local, dscp);
                    dscp = INT_DSCP;
                }
                if (local.malformed_stack == 1) {
                    local.outcome = COUNT_REFUSED;
                } else if (local.carries_int == 1 && local.is_mx == 1) {
                    local.outcome = COUNT_REPORTED;
                    report_flow(FLOW_RECORD);
                    see(hdr);
                } else if (local.carries_int == 1 && local.visit.to_edge == 0) {
                    transit.apply(hdr, local);
                }
                if (local.carries_int == 1 && local.visit.to_edge == 1) {
                    removed.apply(hdr, local.sum);
                    if (local.is_mx == 0) { report_flow(FLOW_PATH); }
                    bit<1> discard = 0;
                    if (hdr.md_2.isValid()) { discard = hdr.md_2.discard; } else if (hdr.md_10.isValid()) { discard = hdr.md_10.copy; }
                    sink.apply(hdr, local);
                    if (local.malformed_stack == 1) {
                        packets.count(COUNT_MALFORMED_STRIPPED);
                        local.flow_report = FLOW_NOTHING;
                    } else {
                        local.outcome = COUNT_REPORTED;
                    }
                    if (discard == 1) { mark_to_drop(meta); }
                }
                if (local.flow_report != FLOW_NOTHING) { filter.apply(hdr, local); }
                if (local.flow_report == FLOW_POSTCARD || local.filter.algorithm != FILTER_NONE) { flow_id.apply(hdr, local, local.flow_id); }
                if (local.filter.algorithm != FILTER_NONE) { decide.apply(hdr, local); }
                packets.count(local.outcome);
                if (local.grown != 0 || local.sum != 0) {
                    lengths_of_sink.apply(hdr, local, dscp);
                }
                if (local.leave_l4_checksum == 1) { leave.apply(hdr, l4_checksum); }
            }
        }
        if (is_report == 1) {
#ifdef DTA_REPORTER
            report.apply(hdr, local, meta.egress_global_timestamp, frame_bytes);
#else
            report.apply(hdr, local, frame_bytes);
#endif
            if (frame_bytes == 0) {
                mark_to_drop(meta);
            } else {
                truncate(frame_bytes);
            }
            // A packet may cause two reports: that of its queue is copied again for that of its flow.
            if (ANOTHER_PASS) {
                // Of the same report.
            } else if (local.queue_report != QUEUE_NOTHING && local.drop_reason == 0) {
                local.queue_report = QUEUE_NOTHING;
            } else {
                local.flow_report = FLOW_NOTHING;
            }
        } else if (meta.instance_type == INGRESS_CLONE) {
            mark_to_drop(meta);
        }
        if (local.queue_report != QUEUE_NOTHING || local.flow_report != FLOW_NOTHING || ANOTHER_PASS) {
            clone_preserving_field_list(CloneType.E2E, REPORT_SESSION, REPORT_FIELDS);
        }
    }
}

control IntComputeChecksum(inout headers_t hdr, inout local_t local) {
    apply {
        update_checksum(hdr.report_ipv4.isValid(),
            { hdr.report_ipv4.version, hdr.report_ipv4.ihl, hdr.report_ipv4.dscp, hdr.report_ipv4.ecn, hdr.report_ipv4.total_len,
              hdr.report_ipv4.id, hdr.report_ipv4.flags, hdr.report_ipv4.fragment, hdr.report_ipv4.ttl, hdr.report_ipv4.proto,
              hdr.report_ipv4.src, hdr.report_ipv4.dst },
            hdr.report_ipv4.checksum, HashAlgorithm.csum16);
    }
}

control IntDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.report_ethernet);
        packet.emit(hdr.report_ipv4);
        packet.emit(hdr.report_udp);
        packet.emit(hdr.group);
        packet.emit(hdr.report);
        packet.emit(hdr.report_10);
        packet.emit(hdr.metadata);
        packet.emit(hdr.flow_id);
#ifdef DTA_REPORTER
        packet.emit(hdr.dta);
        packet.emit(hdr.key_write);
        packet.emit(hdr.append);
        packet.emit(hdr.key_increment);
        packet.emit(hdr.postcard);
        packet.emit(hdr.key_4);
        packet.emit(hdr.key_13);
        packet.emit(hdr.key_16);
        packet.emit(hdr.data);
#endif
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv4_options);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.ports);
        packet.emit(hdr.udp);
        packet.emit(hdr.tcp);
        packet.emit(hdr.shim_10);
        packet.emit(hdr.md_10);
        packet.emit(hdr.shim_2);
        packet.emit(hdr.md_2);
        packet.emit(hdr.record);
        packet.emit(hdr.hop_0);
        packet.emit(hdr.hop_1);
        packet.emit(hdr.hop_2);
        packet.emit(hdr.hop_3);
        packet.emit(hdr.hop_4);
        packet.emit(hdr.hop_5);
        packet.emit(hdr.hop_6);
        packet.emit(hdr.hop_7);
        packet.emit(hdr.stack);
        packet.emit(hdr.payload);
        packet.emit(hdr.long_payload);
        packet.emit(hdr.pad1);
        packet.emit(hdr.pad2);
        packet.emit(hdr.pad3);
    }
}

V1Switch(IntParser(), IntVerifyChecksum(), IntIngress(), IntEgress(), IntComputeChecksum(), IntDeparser()) main;
