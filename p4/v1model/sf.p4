// SPDX-License-Identifier: Apache-2.0 OR MIT
// SF-INT on v1model: source, transit and sink, over IPv4 behind UDP and TCP, and over IPv6 in the hop-by-hop header. All of it takes
// place at egress, after the queue, because latency and occupancy are known only there.
//
// BMv2 counts time in microseconds since its start and queues in packets; `INT_DSCP` is set when the program is compiled.

#include <core.p4>
#include <v1model.p4>

/// The flows of this program are measured by SF-INT, or not.
#define WATCH_ACTIONS watch_sf; watch_nothing;

#include "../shared/sizes.p4"
#include "../shared/headers.p4"
#include "../shared/local.p4"
#include "../shared/sf.p4"
#include "../shared/report.p4"
#include "../control/record.p4"
#include "../control/items.p4"
#include "../control/edges.p4"
#include "../control/watchlist.p4"
#include "../control/sampling.p4"
#include "../control/flow_id.p4"
#include "../control/lengths.p4"
#include "../control/sf.p4"
#include "../control/sf_report.p4"

/// The instance type of what `clone_preserving_field_list` made at egress.
const bit<32> EGRESS_CLONE = 2;
/// The clone session whose port leads to the collector.
const bit<32> REPORT_SESSION = 500;
/// Where `mark_to_drop` sends packets.
const bit<9> DROP_PORT = 511;

/// States for an option: it is kept as it is. The header ends with bytes that are no option, or with a fifth option.
#define OPTION(N, NEXT) state option_##N { \
        transition select(local.options_left) { \
            0: behind_options; \
            1: last_##N; \
            default: head_##N; \
        } \
    } \
    state last_##N { \
        local.option_len = 1; \
        transition select(packet.lookahead<bit<8>>()) { \
            0: bytes_##N; \
            default: parse_rest; \
        } \
    } \
    state head_##N { \
        bit<16> head_of_##N = packet.lookahead<bit<16>>(); \
        local.option_len = head_of_##N[15:8] == 0 ? 16w1 : (bit<16>)head_of_##N[7:0] + 2; \
        local.has_others = local.has_others | (head_of_##N[15:8] > 1 ? 1w1 : 1w0); \
        local.has_more_int = local.has_more_int | (head_of_##N[15:8] == OPTION_INT ? 1w1 : 1w0); \
        transition select(local.option_len <= local.options_left ? 1w1 : 1w0) { \
            1: bytes_##N; \
            default: parse_rest; \
        } \
    } \
    state bytes_##N { \
        packet.extract(hdr.option_##N, (bit<32>)local.option_len * 8); \
        local.options_left = local.options_left - local.option_len; \
        transition NEXT; \
    }

parser SfParser(packet_in packet, out headers_t hdr, inout local_t local, inout standard_metadata_t meta) {
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
            default: accept;
        }
    }

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
        transition select(hdr.ipv6.version, local.l4_bytes) {
            (6, 0): no_length;
            (6, _): by_next_header;
            default: accept;
        }
    }

    // A length of 0, as segmentation offload leaves it: the rest of the frame may have INT, which is left alone.
    state no_length {
        local.bad_l4 = 1;
        local.l4_bytes = meta.packet_length < (bit<32>)local.link_bytes + 40 ? 0 : meta.packet_length[15:0] - local.link_bytes - 40;
        transition by_next_header;
    }

    state by_next_header {
        transition select(local.proto) {
            PROTO_UDP: length_udp;
            PROTO_TCP: length_tcp;
            PROTO_HOP_BY_HOP: length_hop_by_hop;
            default: accept;
        }
    }

    // The hop-by-hop header, and INT if that is its first option.
    state length_hop_by_hop {
        transition select(local.l4_bytes) {
            8 .. 0xffff: hop_by_hop_bytes;
            default: accept;
        }
    }

    state hop_by_hop_bytes {
        bit<16> hop_by_hop = packet.lookahead<bit<16>>();
        local.header_bytes = ((bit<16>)hop_by_hop[7:0] + 1) * 8;
        transition select(local.header_bytes <= local.l4_bytes ? 1w1 : 1w0) {
            1: parse_hop_by_hop;
            default: accept;
        }
    }

    state parse_hop_by_hop {
        packet.extract(hdr.hop_by_hop);
        local.proto = hdr.hop_by_hop.next_header;
        local.body_bytes = local.l4_bytes - local.header_bytes;
        local.options_left = local.header_bytes - 2;
        transition select(packet.lookahead<bit<8>>()) {
            OPTION_INT: by_option;
            0 .. 1: padding_first;
            default: option_0;
        }
    }

    state padding_first {
        local.begins_with_padding = 1;
        transition option_0;
    }

    // The option has a shim, a metadata header and a stack, and nothing else, and INT lies in the header.
    state by_option {
        local.refused = 1;
        bit<16> option = packet.lookahead<bit<16>>();
        int_words = (bit<16>)option[7:0] >> 2;
        transition select(option[1:0], int_words, (int_words * 4 + 2 <= local.options_left) ? 1w1 : 1w0) {
            (0, 4 .. 63, 1): by_option_shim;
            default: accept;
        }
    }

    state by_option_shim {
        bit<56> option_shim = packet.lookahead<bit<56>>();
        transition select(option_shim[39:34], (bit<16>)option_shim[31:24] + 1 == int_words ? 1w1 : 1w0, option_shim[7:4]) {
            (0b010000, 1, INT_VERSION_2): parse_int_option;
            (0b000100, 1, INT_VERSION_2): other_int;
            (0b001100, 1, INT_VERSION_2): other_int;
            default: accept;
        }
    }

    state parse_int_option {
        packet.extract(hdr.int_option);
        local.has_option = 1;
        local.options_left = local.options_left - 2 - int_words * 4;
        transition parse_sf;
    }

    state padding_behind {
        transition select(local.options_left) {
            0: behind_options;
            1: last_padding;
            default: padding_head;
        }
    }

    state last_padding {
        local.padding_bytes = 1;
        transition select(packet.lookahead<bit<8>>()) {
            0: parse_padding;
            default: no_padding;
        }
    }

    state padding_head {
        bit<16> padding = packet.lookahead<bit<16>>();
        local.padding_bytes = padding[15:8] == 0 ? 16w1 : (bit<16>)padding[7:0] + 2;
        transition select(padding[15:9], (local.padding_bytes <= local.options_left) ? 1w1 : 1w0) {
            (0, 1): parse_padding;
            default: no_padding;
        }
    }

    state no_padding {
        local.padding_bytes = 0;
        transition option_0;
    }

    state parse_padding {
        packet.extract(hdr.padding, (bit<32>)local.padding_bytes * 8);
        local.options_left = local.options_left - local.padding_bytes;
        transition option_0;
    }

    OPTION(0, option_1)
    OPTION(1, option_2)
    OPTION(2, option_3)
    OPTION(3, behind_four)

    // What follows may be INT.
    state behind_four {
        local.has_more_int = local.has_more_int | (local.options_left != 0 ? 1w1 : 1w0);
        transition select(local.options_left) {
            0: behind_options;
            default: parse_rest;
        }
    }

    // Malformed options are not padding.
    state parse_rest {
        packet.extract(hdr.options_rest, (bit<32>)local.options_left * 8);
        local.has_others = 1;
        transition behind_options;
    }

    // L4 is not changed, so only its ports and its length are read.
    state behind_options {
        transition select(local.proto, local.body_bytes) {
            (PROTO_UDP, 8 .. 0xffff): behind_udp;
            (PROTO_TCP, 20 .. 0xffff): behind_tcp;
            (PROTO_UDP, 4 .. 7): behind_ports;
            (PROTO_TCP, 4 .. 19): behind_ports;
            default: parse_payload;
        }
    }

    state behind_ports {
        bit<32> ports = packet.lookahead<bit<32>>();
        local.src_port = ports[31:16];
        local.dst_port = ports[15:0];
        transition parse_payload;
    }

    state behind_udp {
        bit<48> udp = packet.lookahead<bit<48>>();
        local.src_port = udp[47:32];
        local.dst_port = udp[31:16];
        local.bad_length = (local.bad_l4 == 0 && (udp[15:0] < 8 || udp[15:0] > local.body_bytes)) ? 1w1 : 1w0;
        local.has_l4 = 1;
        transition parse_payload;
    }

    state behind_tcp {
        bit<104> tcp = packet.lookahead<bit<104>>();
        local.src_port = tcp[103:88];
        local.dst_port = tcp[87:72];
        bit<16> tcp_bytes = (bit<16>)tcp[7:4] * 4;
        local.has_l4 = (tcp_bytes >= 20 && tcp_bytes <= local.body_bytes) ? 1w1 : 1w0;
        transition parse_payload;
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
        int_words = (bit<16>)head[31:24] + 1;
        transition select(head[39:32], head[7:4], int_words, (int_words * 4 - 1 < local.body_bytes) ? 1w1 : 1w0) {
            (0x40 &&& 0xfc, INT_VERSION_2, 4 .. 256, 1): parse_sf;
            (0x10 &&& 0xfc, INT_VERSION_2, _, _): other_int;
            (0x30 &&& 0xfc, INT_VERSION_2, _, _): other_int;
            (SHIM_10_HOP_BY_HOP, INT_VERSION_10, _, _): other_int;
            default: accept;
        }
    }

    state other_int {
        local.is_other_int = 1;
        transition accept;
    }

    state parse_sf {
        packet.extract(hdr.shim_2);
        packet.extract(hdr.md_2);
        local.refused = 0;
        local.carries_int = 1;
        local.record_words = (bit<8>)hdr.md_2.hop_ml;
        local.remaining = hdr.md_2.remaining;
        local.bitmap = hdr.md_2.bitmap;
        local.is_urgent = hdr.md_2.rsvd[10:10];
        local.state = hdr.md_2.rsvd[9:8];
        local.stack_words = (bit<16>)hdr.shim_2.length - (bit<16>)HEADER_WORDS_2;
        transition select(local.is_urgent, local.stack_words, local.stack_words == (bit<16>)local.record_words ? 1w1 : 1w0) {
            (0, 1 .. 18, 1): parse_word;
            default: parse_stack;
        }
    }

    state parse_word {
        packet.extract(hdr.words.next);
        local.stack_words = local.stack_words - 1;
        transition select(local.stack_words) {
            0: behind_int;
            default: parse_word;
        }
    }

    state parse_stack {
        packet.extract(hdr.stack, (bit<32>)local.stack_words * 32);
        transition behind_int;
    }

    state behind_int {
        transition select(local.has_option) {
            1: padding_behind;
            default: behind_l4_int;
        }
    }

    state behind_l4_int {
        local.body_bytes = local.body_bytes - int_words * 4;
        transition parse_payload;
    }

    // What a report includes of a shorter payload must be followed by padding.
    state parse_payload {
        transition select(local.body_bytes) {
            1 .. 7: parse_short_payload;
            default: accept;
        }
    }

    state parse_short_payload {
        packet.extract(hdr.payload, (bit<32>)local.body_bytes * 8);
        transition accept;
    }
}

/// A switch forwards no IPv4 packet with a wrong checksum; the lab and tests rely on INT being left alone in it.
control SfVerifyChecksum(inout headers_t hdr, inout local_t local) {
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

control SfIngress(inout headers_t hdr, inout local_t local, inout standard_metadata_t meta) {
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

    apply {
        if (meta.parser_error != error.NoError || local.is_ip == 0 || (bit<32>)local.link_bytes + (bit<32>)local.ip_bytes > meta.packet_length) {
            // Headers or a packet that the frame does not hold.
            drop();
        } else if (hdr.ipv4.isValid() && meta.checksum_error == 1) {
            drop();
        } else if ((hdr.ipv4.isValid() && hdr.ipv4.ttl <= 1) || (hdr.ipv6.isValid() && hdr.ipv6.hop_limit <= 1)) {
            drop();
        } else if (hdr.ipv4.isValid()) {
            route_v4.apply();
            if (meta.egress_spec != DROP_PORT) {
                hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                // RFC 1141: the hop limit is the high byte of its word.
                bit<32> sum = (bit<32>)hdr.ipv4.checksum + 0x0100;
                hdr.ipv4.checksum = sum[15:0] + sum[31:16];
            }
        } else {
            route_v6.apply();
            if (meta.egress_spec != DROP_PORT) {
                hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            }
        }
    }
}

control SfEgress(inout headers_t hdr, inout local_t local, inout standard_metadata_t meta) {
    SfShape() shape;
    Entrance() entrance;
    SfBorder() border;
    Edges() edges;
    Watchlist() watchlist;
    CountDown() count_down;
    FlowId() flow_id;
    SfSource() source;
    SfSwap() swap;
    SfPush() push;
    SfSink() sink;
    Lengths() lengths;
    LeaveChecksum() leave;
    SfReport() report;
    @name("packets") counter(SF_COUNTS, CounterType.packets) packets;

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

    /// `aging`: how long a record in a register may be sent, ns. `compact`: reports have INT header and record only. `urgent_every`,
    /// `urgent_queue`: which packets a source marks urgent; 0: none.
    @name("set_sf") @id(0x01000030)
    action set_sf(@id(1) bit<64> aging, @id(2) bit<1> compact, @id(3) bit<32> urgent_every, @id(4) bit<24> urgent_queue) {
        local.settings.aging = aging;
        local.settings.is_compact = compact;
        local.settings.urgent_every = urgent_every;
        local.settings.urgent_queue = urgent_queue;
    }

    @name("sf_settings") @id(0x02000030)
    table sf_settings {
        key = { }
        actions = { set_sf; }
        default_action = set_sf(1000000000, 0, 0, 0);
    }

    action measure() {
        local.visit.ingress_if = (bit<16>)meta.ingress_port;
        local.visit.egress_if = (bit<16>)meta.egress_port;
        local.visit.ingress_ts = (bit<64>)meta.ingress_global_timestamp * 1000;
        local.visit.egress_ts = (bit<64>)meta.egress_global_timestamp * 1000;
        local.visit.queue_id = 0;
        local.visit.queue_occupancy = (bit<24>)meta.deq_qdepth;
    }

    apply {
        bit<32> frame_bytes = 0;
        node.apply();
        sf_settings.apply();
        if (meta.instance_type == EGRESS_CLONE) {
            report.apply(hdr, local, frame_bytes);
            if (frame_bytes == 0) {
                mark_to_drop(meta);
            } else {
                truncate(frame_bytes);
            }
        } else {
            bit<1> behind_l4 = 0;
            if (local.carries_int == 1 && hdr.shim_2.isValid() && hdr.md_2.isValid()) { shape.apply(hdr, local); }
            if (local.bad_length == 1 && local.malformed_stack == 0) {
                local.carries_int = 0;
                local.refused = 1;
            }
            if (local.bad_l4 == 1 && local.carries_int == 1) {
                local.carries_int = 0;
                local.malformed_stack = 0;
                local.refused = 1;
            }
            if (hdr.hop_by_hop.isValid() && local.carries_int == 0 && local.refused == 0
                    && (local.has_more_int == 1 || (local.dscp == INT_DSCP && local.has_l4 == 1))) {
                // INT that is not the first option, or behind L4 that is not the first header.
                local.is_other_int = 1;
                local.refused = 1;
            }
            entrance.apply(local, meta.ingress_port);
            if (local.visit.from_outside == 1) {
                if (local.carries_int == 1 && hdr.shim_2.isValid() && hdr.md_2.isValid()) {
                    border.apply(hdr, local);
                } else if (local.is_other_int == 1 && local.bad_l4 == 0) {
                    // INT that this program cannot remove.
                    local.edge_refused = 1;
                }
            }
            if (local.edge_refused == 1) {
                packets.count(COUNT_REFUSED);
                packets.count(COUNT_EDGE_REFUSED);
                mark_to_drop(meta);
            } else {
                if (local.edge_stripped == 1) { packets.count(COUNT_EDGE_STRIPPED); }
                if (local.is_plain_node == 1) { packets.count(COUNT_PLAIN_NODES); }
                measure();
                edges.apply(local, meta.egress_port);
                bit<16> l4_checksum = hdr.udp.isValid() ? hdr.udp.checksum : hdr.tcp.checksum;
                local.outcome = (local.refused == 1 || local.malformed_stack == 1) ? COUNT_REFUSED : COUNT_PLAIN;
                bit<1> is_flow = 0;
                if (hdr.udp.isValid() || hdr.tcp.isValid()) {
                    is_flow = ~local.bad_l4;
                } else if (hdr.hop_by_hop.isValid() || local.has_l4 == 1) {
                    // INT that was removed at the border may have taken the whole header with it.
                    is_flow = ~local.bad_l4;
                }
                flow_id.apply(hdr, local, local.tag);
                if (local.carries_int == 1) {
                    behind_l4 = ~local.has_option;
                    if (local.malformed_stack == 0 && local.visit.to_edge == 0 && hdr.shim_2.isValid() && hdr.md_2.isValid()) {
                        if (local.is_urgent == 1) { push.apply(hdr, local); } else { swap.apply(hdr, local); }
                        if (behind_l4 == 1) { lengths.apply(hdr, local, INT_DSCP); }
                    }
                } else if (local.refused == 0 && is_flow == 1 && local.visit.from_edge == 1) {
                    watchlist.apply(hdr, local);
                    if (local.watch.mode == WATCH_SF && local.watch.sample > 1) { count_down.apply(local); }
                    if (local.watch.mode == WATCH_SF) {
                        source.apply(hdr, local);
                        if (local.has_own_record == 1) {
                            behind_l4 = ~local.has_option;
                            if (local.is_urgent == 1) { packets.count(COUNT_URGENT); }
                        }
                    }
                }
                if (local.carries_int == 1 && local.visit.to_edge == 1 && hdr.shim_2.isValid() && hdr.md_2.isValid()) {
                    bit<1> discard = hdr.md_2.discard;
                    sink.apply(hdr, local);
                    if (local.malformed_stack == 1) { packets.count(COUNT_MALFORMED_STRIPPED); }
                    if (discard == 1) { mark_to_drop(meta); }
                }
                packets.count(local.outcome);
                if (local.leave_l4_checksum == 1 && behind_l4 == 1) { leave.apply(hdr, l4_checksum); }
            }
        }
        if (local.is_reported == 1 && meta.instance_type != EGRESS_CLONE) {
            clone_preserving_field_list(CloneType.E2E, REPORT_SESSION, REPORT_FIELDS);
        }
    }
}

control SfComputeChecksum(inout headers_t hdr, inout local_t local) {
    apply {
        update_checksum(hdr.report_ipv4.isValid(),
            { hdr.report_ipv4.version, hdr.report_ipv4.ihl, hdr.report_ipv4.dscp, hdr.report_ipv4.ecn, hdr.report_ipv4.total_len,
              hdr.report_ipv4.id, hdr.report_ipv4.flags, hdr.report_ipv4.fragment, hdr.report_ipv4.ttl, hdr.report_ipv4.proto,
              hdr.report_ipv4.src, hdr.report_ipv4.dst },
            hdr.report_ipv4.checksum, HashAlgorithm.csum16);
    }
}

control SfDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.report_ethernet);
        packet.emit(hdr.report_ipv4);
        packet.emit(hdr.report_udp);
        packet.emit(hdr.group);
        packet.emit(hdr.report);
        packet.emit(hdr.metadata);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv4_options);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.udp);
        packet.emit(hdr.tcp);
        packet.emit(hdr.hop_by_hop);
        packet.emit(hdr.int_option);
        packet.emit(hdr.shim_2);
        packet.emit(hdr.md_2);
        packet.emit(hdr.record);
        packet.emit(hdr.words);
        packet.emit(hdr.stack);
        packet.emit(hdr.padding);
        packet.emit(hdr.pad_one);
        packet.emit(hdr.pad_n);
        packet.emit(hdr.pad_zero_1);
        packet.emit(hdr.pad_zero_2);
        packet.emit(hdr.pad_zero_3);
        packet.emit(hdr.pad_zero_4);
        packet.emit(hdr.pad_zero_5);
        packet.emit(hdr.option_0);
        packet.emit(hdr.option_1);
        packet.emit(hdr.option_2);
        packet.emit(hdr.option_3);
        packet.emit(hdr.options_rest);
        packet.emit(hdr.behind_udp);
        packet.emit(hdr.behind_tcp);
        packet.emit(hdr.payload);
        packet.emit(hdr.pad1);
        packet.emit(hdr.pad2);
        packet.emit(hdr.pad3);
    }
}

V1Switch(SfParser(), SfVerifyChecksum(), SfIngress(), SfEgress(), SfComputeChecksum(), SfDeparser()) main;
