// SPDX-License-Identifier: Apache-2.0 OR MIT
// Source, transit and sink of INT-MD 2.1 on Tofino, over IPv4 and IPv6, behind UDP and TCP. The control plane sees the tables of `int`.
//
// Ingress decides what becomes of a packet: all that it needs are the headers and the length of a record. Only packets that get a record
// pass egress, which knows latency and queue; it updates the L4 checksum by what has changed. A sink copies the packet for its report, and
// has it come a second time (resubmission): then the parser removes INT.

#include <core.p4>
#include <tna.p4>

#include "../shared/headers.p4"
#include "../shared/sizes.p4"
#include "../shared/report.p4"
#include "shared/items.p4"
#ifdef SF
#include "../shared/sf_rules.p4"
#include "shared/sf.p4"
#endif
#include "shared/int.p4"
#include "control/report_session.p4"
#include "control/int_record.p4"
#include "control/int_report.p4"
#ifdef SF
#include "control/sf_source.p4"
#include "control/sf_swap.p4"
#endif

parser IntParser(packet_in packet, out arriving_t hdr, out arriving_local_t local, out ingress_intrinsic_metadata_t meta) {
    Checksum() ipv4_checksum;
    Checksum() rest;

    state start {
        packet.extract(meta);
        packet.advance(PORT_METADATA_SIZE);
        local = { false, 0, 0, false, false, false, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
            SF_ARRIVING_NOTHING };
        transition select(meta.resubmit_flag) {
            1: parse_again;
            default: parse_ethernet;
        }
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            BY_IPV6(parse_ipv6)
            ETHERTYPE_VLAN: parse_vlan;
            default: accept;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            BY_IPV6(parse_ipv6)
            default: accept;
        }
    }

#ifndef SF
    state parse_ipv6 {
        bit<48> head = packet.lookahead<bit<48>>();
        transition select(head[47:44], head[15:0]) {
            (6, 0): no_length;
            // With its header, more than 0xffff bytes.
            (6, 0xffd8 &&& 0xfff8): accept;
            (6, 0xffe0 &&& 0xffe0): accept;
            (6, _): by_next_header;
            default: accept;
        }
    }

    // A length of 0, as segmentation offload leaves it: INT there is left alone.
    state no_length {
        packet.extract(hdr.ipv6);
        local.is_ip = 1;
        transition select(hdr.ipv6.dscp, hdr.ipv6.next_header) {
            (INT_DSCP, PROTO_UDP): refused;
            (INT_DSCP, PROTO_TCP): refused;
            default: accept;
        }
    }

    state refused {
        local.has_dscp = 1;
        transition accept;
    }

    state by_next_header {
        packet.extract(hdr.ipv6);
        local.is_ip = 1;
        transition select(hdr.ipv6.next_header) {
            PROTO_UDP: parse_udp_v6;
            PROTO_TCP: parse_tcp_v6;
            default: accept;
        }
    }

    state parse_udp_v6 {
        packet.extract(hdr.udp);
        local.src_port = hdr.udp.src_port;
        local.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.dst_port) {
            PORT_VXLAN: accept;
            PORT_GPE: accept;
            PORT_GENEVE: accept;
            default: by_dscp_v6;
        }
    }

    state parse_tcp_v6 {
        packet.extract(hdr.tcp);
        local.src_port = hdr.tcp.src_port;
        local.dst_port = hdr.tcp.dst_port;
        transition by_dscp_v6;
    }

    state by_dscp_v6 {
        local.has_l4 = 1;
        transition select(hdr.ipv6.dscp) {
            INT_DSCP: by_type;
            default: accept;
        }
    }
#endif

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
            (0 &&& 1, 0, PROTO_UDP): parse_udp;
            (0 &&& 1, 0, PROTO_TCP): parse_tcp;
            default: accept;
        }
    }

    state is_ip {
        local.is_ip = 1;
        transition accept;
    }

    // Tunnels, whose header may copy the DSCP of their packet, carry none.
    state parse_udp {
        packet.extract(hdr.udp);
        local.src_port = hdr.udp.src_port;
        local.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.dst_port) {
            PORT_VXLAN: accept;
            PORT_GPE: accept;
            PORT_GENEVE: accept;
            default: by_dscp;
        }
    }

    state parse_tcp {
        packet.extract(hdr.tcp);
        local.src_port = hdr.tcp.src_port;
        local.dst_port = hdr.tcp.dst_port;
        transition by_dscp;
    }

    state by_dscp {
        local.has_l4 = 1;
        transition select(hdr.ipv4.dscp) {
            INT_DSCP: by_type;
            default: accept;
        }
    }

    state by_type {
        local.has_dscp = 1;
        bit<40> head = packet.lookahead<bit<40>>();
        transition select(head[39:32], head[7:4]) {
            (SHIM_10_HOP_BY_HOP, INT_VERSION_10): other_int;
            (SHIM_OURS &&& 0xfc, INT_VERSION_2): parse_shim;
            (SHIM_OTHER &&& 0xfc, INT_VERSION_2): other_int;
            (0x30 &&& 0xfc, INT_VERSION_2): other_int;
            default: accept;
        }
    }

    state other_int {
        local.is_other_int = 1;
        transition accept;
    }

    state parse_shim {
        packet.extract(hdr.shim);
        transition select(hdr.shim.length) {
            0: accept;
            1: accept;
            2: accept;
            default: parse_md;
        }
    }

    state parse_md {
        packet.extract(hdr.md);
        transition accept;
    }

    // The second time, the packet is known to have INT. As many words as the shim says are removed.
    state parse_again {
        local.is_stripped = 1;
        local.is_ip = 1;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_VLAN: parse_vlan_again;
            BY_IPV6(parse_ipv6_again)
            default: parse_ipv4_again;
        }
    }

    state parse_vlan_again {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.ethertype) {
            BY_IPV6(parse_ipv6_again)
            default: parse_ipv4_again;
        }
    }

#ifndef SF
    state parse_ipv6_again {
        packet.extract(hdr.ipv6);
        local.covered = hdr.ipv6.payload_len;
        rest.subtract({ hdr.ipv6.payload_len });
        transition select(hdr.ipv6.next_header) {
            PROTO_UDP: parse_udp_again;
            default: parse_tcp_again;
        }
    }
#endif

    state parse_ipv4_again {
        packet.extract(hdr.ipv4);
        local.covered = hdr.ipv4.total_len;
        rest.subtract({ hdr.ipv4.total_len });
        transition select(hdr.ipv4.proto) {
            PROTO_UDP: parse_udp_again;
            default: parse_tcp_again;
        }
    }

    state parse_udp_again {
        packet.extract(hdr.udp);
        rest.subtract({ hdr.udp.len, hdr.udp.checksum });
        transition strip;
    }

    state parse_tcp_again {
        packet.extract(hdr.tcp);
        rest.subtract({ hdr.tcp.checksum });
        transition strip;
    }

    state strip {
        packet.extract(hdr.shim);
        rest.subtract({ hdr.shim });
        transition select(hdr.shim.length) {
            0x20 &&& 0x20: strip_32;
            0x10 &&& 0x30: strip_16;
            0x08 &&& 0x38: strip_8;
            0x04 &&& 0x3c: strip_4;
            0x02 &&& 0x3e: strip_2;
            0x01 &&& 0x3f: strip_1;
            default: stripped;
        }
    }

    state strip_32 {
        packet.extract(hdr.words_0);
        rest.subtract({ hdr.words_0 });
        transition strip_32_8;
    }

    state strip_32_8 {
        packet.extract(hdr.words_8);
        rest.subtract({ hdr.words_8 });
        transition strip_32_16;
    }

    state strip_32_16 {
        packet.extract(hdr.words_16);
        rest.subtract({ hdr.words_16 });
        transition strip_32_24;
    }

    state strip_32_24 {
        packet.extract(hdr.words_24);
        rest.subtract({ hdr.words_24 });
        transition select(hdr.shim.length) {
            0x10 &&& 0x10: strip_16;
            0x08 &&& 0x18: strip_8;
            0x04 &&& 0x1c: strip_4;
            0x02 &&& 0x1e: strip_2;
            0x01 &&& 0x1f: strip_1;
            default: stripped;
        }
    }

    state strip_16 {
        packet.extract(hdr.words_32);
        rest.subtract({ hdr.words_32 });
        transition strip_16_8;
    }

    state strip_16_8 {
        packet.extract(hdr.words_40);
        rest.subtract({ hdr.words_40 });
        transition select(hdr.shim.length) {
            0x08 &&& 0x08: strip_8;
            0x04 &&& 0x0c: strip_4;
            0x02 &&& 0x0e: strip_2;
            0x01 &&& 0x0f: strip_1;
            default: stripped;
        }
    }

    state strip_8 {
        packet.extract(hdr.words_48);
        rest.subtract({ hdr.words_48 });
        transition select(hdr.shim.length) {
            0x04 &&& 0x04: strip_4;
            0x02 &&& 0x06: strip_2;
            0x01 &&& 0x07: strip_1;
            default: stripped;
        }
    }

    state strip_4 {
        packet.extract(hdr.words_56);
        rest.subtract({ hdr.words_56 });
        transition select(hdr.shim.length) {
            0x02 &&& 0x02: strip_2;
            0x01 &&& 0x03: strip_1;
            default: stripped;
        }
    }

    state strip_2 {
        packet.extract(hdr.words_60);
        rest.subtract({ hdr.words_60 });
        transition select(hdr.shim.length) {
            0x01 &&& 0x01: strip_1;
            default: stripped;
        }
    }

    state strip_1 {
        packet.extract(hdr.words_62);
        rest.subtract({ hdr.words_62 });
        transition stripped;
    }

    state stripped {
        local.rest = rest.get();
        transition accept;
    }
}

control IntIngress(inout arriving_t hdr, inout arriving_local_t local, in ingress_intrinsic_metadata_t meta,
        in ingress_intrinsic_metadata_from_parser_t from_parser, inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
        inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    @name("packets") Counter<bit<32>, count_t>(PACKET_COUNTS, CounterType_t.PACKETS) packets;
#ifdef SF
    FlowTag() flow_tag;
    Count() count;
    Number() number;
#endif

    bit<1> has_route = 0;
    bit<1> expires = 0;
    bit<1> from_edge = 0;
    bit<1> from_outside = 0;
    bit<1> to_edge = 0;
    bit<16> left = 0;
    bit<1> is_short = 0;
    bit<1> is_not_restorable = 0;
    bit<16> removed = 0;
    bit<1> is_beyond = 0;
    bit<1> is_ours = 0;
    count_t outcome = 0;

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

#ifndef SF
    @name("route_v6") @id(0x02000011)
    table route_v6 {
        key = { hdr.ipv6.dst : lpm @name("ipv6_dst"); }
        actions = { next_hop; @defaultonly no_route; }
        const default_action = no_route();
        size = ROUTES_SIZE;
    }

    action size_v4() { local.ip_bytes = hdr.ipv4.total_len; }
    action size_v6() { local.ip_bytes = hdr.ipv6.payload_len + 40; }
#endif

    @name("from_edge") @id(0x01000013)
    action set_from_edge() {
        from_edge = 1;
        from_outside = 1;
    }

    @name("source_port") @id(0x02000001)
    table source_port {
        key = { meta.ingress_port : exact @name("ingress_port"); }
        actions = { set_from_edge; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    @name("from_border") @id(0x01000016)
    action from_border() { from_outside = 1; }

    /// The port is at the border of the domain, also if packets from there are not measured: INT from there is not the domain's.
    @name("border_port") @id(0x02000014)
    table border_port {
        key = { meta.ingress_port : exact @name("ingress_port"); }
        actions = { from_border; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    @name("to_edge") @id(0x01000014)
    action set_to_edge() { to_edge = 1; }

    /// Packets that leave the domain here are not measured.
    @name("sink_port") @id(0x02000004)
    table sink_port {
        key = { for_tm.ucast_egress_port : exact @name("egress_port"); }
        actions = { set_to_edge; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    @name("set_mtu") @id(0x01000012)
    action set_mtu(@id(1) bit<16> mtu) { local.room = mtu |-| IP_BYTES; }

    @name("port_mtu") @id(0x02000013)
    table port_mtu {
        key = { for_tm.ucast_egress_port : exact @name("egress_port"); }
        actions = { set_mtu; }
        default_action = set_mtu(1500);
        size = PORTS_SIZE;
    }

    /// `words`: of the items of `instructions`.
    WATCH_ACTION(@id(1) bit<8> remaining_hops, @id(2) bit<16> instructions, @id(3) bit<8> words) {
        local.is_source = 1;
        local.bitmap = instructions;
        local.hop_ml = words;
        local.hops = remaining_hops;
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
            local.src_port : range @name("l4_sport");
            local.dst_port : range @name("l4_dport");
        }
        actions = { WATCH; watch_nothing; }
        const default_action = watch_nothing();
        size = WATCHLIST_SIZE;
    }

#ifndef SF
    @name("watchlist_v6") @id(0x02000003)
    table watchlist_v6 {
        key = {
            hdr.ipv6.src : ternary @name("ipv6_src");
            hdr.ipv6.dst : ternary @name("ipv6_dst");
            hdr.ipv6.next_header : ternary @name("ip_proto");
            hdr.ipv6.dscp : ternary @name("dscp");
            local.src_port : range @name("l4_sport");
            local.dst_port : range @name("l4_dport");
        }
        actions = { WATCH; watch_nothing; }
        const default_action = watch_nothing();
        size = WATCHLIST_SIZE;
    }
#endif

    action take_instructions() {
        local.bitmap = hdr.md.bitmap;
        local.hop_ml = (bit<8>)hdr.md.hop_ml;
    }

    action set_record(bit<8> words, bit<16> grown) {
        local.words = words;
        local.grown = grown;
    }

    /// Instructions that this program knows, with the length of their record.
    table record {
        key = { local.bitmap : exact; local.hop_ml : exact; local.is_source : exact; }
        actions = { set_record; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
#include "tables/records.p4"
        }
        size = 256;
    }

    action is_whole() { local.is_whole = 1; }
    action is_too_long() {
        local.is_whole = 1;
        local.is_too_long = 1;
    }

    /// Whether a stack is a whole number of records, and has space for one more.
    table stack_shape {
#ifdef SF
        key = { hdr.shim.length : ternary; local.hop_ml : ternary; hdr.md.rsvd[10:10] : ternary; }
#else
        key = { hdr.shim.length : ternary; local.hop_ml : ternary; }
#endif
        actions = { is_whole; is_too_long; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
#ifdef SF
#include "tables/sf_stacks.p4"
#else
#include "tables/stacks.p4"
#endif
        }
        size = 256;
    }

    action find_left() { left = local.room - local.grown; }

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

    @name("leave") @id(0x01000018)
    action leave() { local.leave_l4_checksum = 1; }

    /// What a sink does with the L4 checksum: the same as `node` says of records.
    @name("sink_checksum") @id(0x02000016)
    table sink_checksum {
        key = { }
        actions = { leave; NoAction; }
        default_action = NoAction();
        size = 1;
    }

    action widen_removed() { removed = (bit<16>)hdr.shim.length; }
    action add_shim() { removed = removed + 1; }
    action to_bytes() { removed = removed << 2; }
    action strip() {
        local.covered = local.covered - removed;
        hdr.udp.len = hdr.udp.len - removed;
        hdr.shim.setInvalid();
    }
    action strip_v4() {
        hdr.ipv4.dscp = hdr.shim.dscp;
        hdr.ipv4.total_len = hdr.ipv4.total_len - removed;
        local.has_ip_checksum = true;
        strip();
    }
    action strip_v6() {
        hdr.ipv6.dscp = hdr.shim.dscp;
        hdr.ipv6.payload_len = hdr.ipv6.payload_len - removed;
        strip();
    }
    action update_udp() { local.has_udp_checksum = true; }
    action update_tcp() { local.has_tcp_checksum = true; }
    action come_again() { for_deparser.resubmit_type = COPY; }
    action copy_path() {
        for_deparser.mirror_type = COPY;
        local.session = REPORT_SESSION;
        local.copy_kind = REPORT_PATH;
        local.copy_bits = hdr.md.bitmap & ITEMS_OF_SINK;
        local.ingress_if = (bit<16>)meta.ingress_port;
        local.egress_if = (bit<16>)for_tm.ucast_egress_port;
        local.ingress_ts = from_parser.global_tstamp;
    }

    action pass_by() { for_tm.bypass_egress = 1; }
    action hand_over(bit<8> kind) {
        hdr.change.setValid();
        hdr.change.kind = kind;
        hdr.change.is_source = 0;
        hdr.change.words = local.words;
        hdr.change.rsvd = 0;
        hdr.change.grown = local.grown;
        hdr.change.ingress_if = (bit<16>)meta.ingress_port;
        hdr.change.ingress_ts = from_parser.global_tstamp;
#ifdef SF
        hdr.change.tag = local.tag;
        hdr.change.now = from_parser.global_tstamp[47:16];
#endif
    }
    action add_record() { hand_over(ADD_RECORD); }
    action exceed_hops() { hand_over(EXCEEDS_HOPS); }
    action exceed_mtu() { hand_over(EXCEEDS_MTU); }
#ifdef SF
    /// The packet does not grow.
    action swap_record() {
        hand_over(SWAP_RECORD);
        hdr.change.words = 0;
        hdr.change.grown = 0;
    }
#endif

    /// An empty stack; egress then adds the record as at any other node.
    action insert() {
        hand_over(ADD_RECORD);
        hdr.shim.setValid();
        hdr.shim.type = SHIM_TYPE;
        hdr.shim.npt = 0;
        hdr.shim.rsvd = 0;
        hdr.shim.length = HEADER_WORDS_2;
        hdr.shim.rsvd2 = 0;
        hdr.shim.rsvd3 = 0;
        hdr.md.setValid();
        hdr.md.version = INT_VERSION_2;
        hdr.md.discard = 0;
        hdr.md.hops_exceeded = 0;
        hdr.md.mtu_exceeded = 0;
        hdr.md.rsvd = RSVD_OF_SOURCE;
        hdr.md.hop_ml = local.hop_ml[4:0];
        hdr.md.remaining = local.hops;
        hdr.md.bitmap = local.bitmap;
        hdr.md.ds_id = 0;
        hdr.md.ds_instruction = 0;
        hdr.md.ds_flags = 0;
    }
    action mark_v4() {
        hdr.shim.dscp = hdr.ipv4.dscp;
        hdr.ipv4.dscp = INT_DSCP;
        hdr.change.is_source = 1;
    }
    action mark_v6() {
        hdr.shim.dscp = hdr.ipv6.dscp;
        hdr.ipv6.dscp = INT_DSCP;
        hdr.change.is_source = 1;
    }

    apply {
#ifdef SF
        route_v4.apply();
#else
        if (IS_IPV6) {
            route_v6.apply();
            size_v6();
        } else {
            route_v4.apply();
            size_v4();
        }
#endif
        source_port.apply();
        border_port.apply();
        if (!IS_IPV6 && (hdr.ipv4.ttl == 0 || hdr.ipv4.ttl == 1)) { expires = 1; }
        if (IS_IPV6 && (hdr.ipv6.hop_limit == 0 || hdr.ipv6.hop_limit == 1)) { expires = 1; }
        sink_port.apply();
        port_mtu.apply();
        if (hdr.md.isValid()) {
            take_instructions();
        } else if (local.has_l4 == 1 && local.has_dscp == 0 && from_edge == 1 && to_edge == 0 && !hdr.vlan.isValid()) {
            WATCHLIST
#ifdef SF
            if (local.is_source == 1) { count.apply(local); }
#endif
        }
#ifdef SF
        flow_tag.apply(hdr, local);
#endif
        record.apply();
        if (hdr.md.isValid()) { stack_shape.apply(); }
        find_left();
        widen_removed();
        add_shim();
        to_bytes();
        sink_checksum.apply();
        // One shim is removed at most, with up to 63 words.
        if (from_outside == 1 && local.is_other_int == 1) { is_beyond = 1; }
        if (local.is_stripped == 1 && from_outside == 1 && hdr.shim.dscp == INT_DSCP) { is_beyond = 1; }
        if (hdr.md.isValid() && hdr.shim.length[7:6] != 0 && (from_outside == 1 || to_edge == 1)) { is_beyond = 1; }
        if (left[15:15] == 1 || local.is_too_long == 1) { is_short = 1; }
        if (IS_OURS) { is_ours = 1; }
        if (!IS_IPV6 && hdr.ipv4.checksum == 0xffff) { is_not_restorable = 1; }
        if (hdr.tcp.isValid() && hdr.tcp.checksum == 0xffff) { is_not_restorable = 1; }
        if (local.is_ip == 0 || local.wrong_checksum) {
            drop();
        } else if (has_route == 0 || expires == 1) {
            drop();
        } else if (is_beyond == 1) {
            drop();
            packets.count((count_t)COUNT_EDGE_REFUSED);
        } else {
            if (IS_IPV6) { older_v6(); } else if (hdr.ipv4.checksum[15:8] == 0xff) { older_v4_carry(); } else { older_v4(); }
            if (local.is_stripped == 1) {
                // Counted when it came first.
                if (IS_IPV6) { strip_v6(); } else { strip_v4(); }
                if (local.leave_l4_checksum == 0) {
                    if (hdr.tcp.isValid()) { update_tcp(); } else if (hdr.udp.checksum != 0) { update_udp(); }
                }
                pass_by();
                outcome = NOT_COUNTED;
            } else if (hdr.md.isValid() && from_outside == 1) {
                come_again();
                outcome = (count_t)COUNT_EDGE_STRIPPED;
            } else if (hdr.md.isValid() && to_edge == 1) {
                if (hdr.md.discard == 1) { drop(); } else { come_again(); }
                copy_path();
                outcome = (count_t)COUNT_REPORTED;
            } else if (hdr.md.isValid()) {
                if (is_ours == 0 || local.is_whole == 0 || local.words == 0) {
                    pass_by();
                    outcome = (count_t)COUNT_REFUSED;
                } else if (hdr.md.remaining == 0) {
                    exceed_hops();
                    outcome = (count_t)COUNT_HOPS_EXCEEDED;
#ifdef SF
                } else if (hdr.md.rsvd[10:10] == 0) {
                    swap_record();
                    outcome = (count_t)COUNT_SWAPPED;
#endif
                } else if (is_short == 1) {
                    exceed_mtu();
                    outcome = (count_t)COUNT_MTU_EXCEEDED;
                } else {
                    add_record();
                    outcome = (count_t)COUNT_RECORDED;
                }
            } else if (local.has_dscp == 1) {
                pass_by();
                outcome = (count_t)COUNT_REFUSED;
            } else if (local.is_source == 1 && local.words != 0) {
                if (is_short == 1) {
                    pass_by();
                    outcome = (count_t)COUNT_MTU_EXCEEDED;
                } else if (is_not_restorable == 1) {
                    pass_by();
                    outcome = (count_t)COUNT_NOT_RESTORABLE;
                } else {
                    insert();
                    if (IS_IPV6) { mark_v6(); } else { mark_v4(); }
#ifdef SF
                    number.apply(hdr, local);
#endif
                    outcome = (count_t)COUNT_RECORDED;
                }
            } else {
                pass_by();
                outcome = (count_t)COUNT_PLAIN;
            }
            packets.count(outcome);
        }
    }
}

control IntIngressDeparser(packet_out packet, inout arriving_t hdr, in arriving_local_t local,
        in ingress_intrinsic_metadata_for_deparser_t meta) {
    Checksum() ipv4_checksum;
    Checksum() udp_checksum;
    Checksum() tcp_checksum;
    Mirror() mirror;
    Resubmit() resubmit;

    apply {
        if (meta.resubmit_type == COPY) { resubmit.emit(); }
        if (meta.mirror_type == COPY) {
            mirror.emit<copy_t>(local.session, { local.copy_kind, 0, local.copy_bits, local.ingress_if, local.egress_if, local.ingress_ts });
        }
        if (local.has_ip_checksum) {
            hdr.ipv4.checksum = ipv4_checksum.update({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len,
                hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.src, hdr.ipv4.dst });
        }
        if (local.has_udp_checksum) {
            hdr.udp.checksum = udp_checksum.update({ local.rest, COVERED_LENGTH, hdr.udp.len }, true);
        }
        if (local.has_tcp_checksum) {
            hdr.tcp.checksum = tcp_checksum.update({ local.rest, COVERED_LENGTH });
        }
        packet.emit(hdr.change);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        EMIT_IPV6
        packet.emit(hdr.udp);
        packet.emit(hdr.tcp);
        packet.emit(hdr.shim);
        packet.emit(hdr.md);
    }
}

parser IntLeaving(packet_in packet, out leaving_t hdr, out leaving_local_t local, out egress_intrinsic_metadata_t meta) {
    Checksum() rest;

    state start {
        packet.extract(meta);
        local = { 0, 0, false, false, 0, 0, 0 SF_LEAVING_NOTHING };
        transition select(packet.lookahead<bit<8>>()) {
            REPORT_PATH: parse_copy;
            default: parse_change;
        }
    }

    // The packet in a report begins at its IP header.
    state parse_copy {
        packet.extract(hdr.copied);
        packet.extract(hdr.report_interfaces);
        packet.extract(hdr.report_ts);
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_VLAN: parse_vlan_of_copy;
            BY_IPV6(parse_ipv6_of_copy)
            default: parse_ipv4_of_copy;
        }
    }

    state parse_vlan_of_copy {
        bit<32> tag = packet.lookahead<bit<32>>();
        packet.advance(32);
        transition select(tag[15:0]) {
            BY_IPV6(parse_ipv6_of_copy)
            default: parse_ipv4_of_copy;
        }
    }

#ifndef SF
    state parse_ipv6_of_copy {
        packet.extract(hdr.ipv6);
        transition accept;
    }
#endif

    state parse_ipv4_of_copy {
        packet.extract(hdr.ipv4);
        transition accept;
    }

    state parse_change {
        packet.extract(hdr.change);
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_VLAN: parse_vlan;
            BY_IPV6(parse_ipv6)
            default: parse_ipv4;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.ethertype) {
            BY_IPV6(parse_ipv6)
            default: parse_ipv4;
        }
    }

#ifndef SF
    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        local.covered = hdr.ipv6.payload_len;
        rest.subtract({ hdr.ipv6.payload_len });
        transition select(hdr.ipv6.next_header) {
            PROTO_UDP: parse_udp;
            default: parse_tcp;
        }
    }
#endif

    // The L4 checksum covers the length of L4, which changes as that of IP does.
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        local.covered = hdr.ipv4.total_len;
        rest.subtract({ hdr.ipv4.total_len });
        transition select(hdr.ipv4.proto) {
            PROTO_UDP: parse_udp;
            default: parse_tcp;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        rest.subtract({ hdr.udp.len, hdr.udp.checksum });
        transition select(hdr.udp.checksum) {
            0: parse_int;
            default: parse_udp_checksum;
        }
    }

    state parse_udp_checksum {
        local.has_udp_checksum = true;
        transition parse_int;
    }

    state parse_tcp {
        packet.extract(hdr.tcp);
        rest.subtract({ hdr.tcp.checksum });
        local.has_tcp_checksum = true;
        transition parse_int;
    }

    state parse_int {
        transition select(hdr.change.is_source) {
            1: parse_own_int;
            default: parse_other_int;
        }
    }

    state parse_own_int {
        packet.extract(hdr.shim);
        packet.extract(hdr.md);
        local.rest = rest.get();
        transition accept;
    }

    state parse_other_int {
        packet.extract(hdr.shim);
        packet.extract(hdr.md);
        rest.subtract({ hdr.shim, hdr.md });
#ifdef SF
        transition select(hdr.change.kind) {
            SWAP_RECORD: parse_word_0;
            default: have_words;
        }
    }

    WORD_STATE(0, 1, parse_word_1)
    WORD_STATE(1, 2, parse_word_2)
    WORD_STATE(2, 3, parse_word_3)
    WORD_STATE(3, 4, parse_word_4)
    WORD_STATE(4, 5, parse_word_5)
    WORD_STATE(5, 6, parse_word_6)
    WORD_STATE(6, 7, parse_word_7)

    state parse_word_7 {
        packet.extract(hdr.w7);
        rest.subtract({ hdr.w7 });
        transition have_words;
    }

    state have_words {
#endif
        local.rest = rest.get();
        transition accept;
    }
}

control IntEgress(inout leaving_t hdr, inout leaving_local_t local, in egress_intrinsic_metadata_t meta,
        in egress_intrinsic_metadata_from_parser_t from_parser, inout egress_intrinsic_metadata_for_deparser_t for_deparser,
        inout egress_intrinsic_metadata_for_output_port_t for_port) {
    Record() record;
    Report() report;
#ifdef SF
    Swap() swap;
#endif

    @name("set_node") @id(0x01000011)
    action set_node(@id(1) bit<32> node, @id(3) bit<1> leave_l4_checksum) {
        local.node = node;
        local.leave_l4_checksum = leave_l4_checksum;
    }

    @name("node") @id(0x02000012)
    table node {
        key = { }
        actions = { set_node; NoAction; }
        default_action = NoAction();
        size = 1;
    }

    action exceed_hops() { hdr.md.hops_exceeded = 1; }
    action exceed_mtu() { hdr.md.mtu_exceeded = 1; }
    action leave() {
        local.has_udp_checksum = false;
        local.has_tcp_checksum = false;
    }

    apply {
        node.apply();
        if (hdr.copied.isValid()) {
            report.apply(hdr, local, for_deparser.drop_ctl);
#ifdef SF
        } else if (hdr.change.kind == ADD_RECORD || hdr.change.kind == SWAP_RECORD) {
            if (hdr.change.kind == SWAP_RECORD) { swap.apply(hdr, local); }
            if (hdr.change.kind == ADD_RECORD || local.forward == FORWARD_LOCAL) { record.apply(hdr, local, meta, from_parser); }
#else
        } else if (hdr.change.kind == ADD_RECORD) {
            record.apply(hdr, local, meta, from_parser);
#endif
        } else if (hdr.change.kind == EXCEEDS_HOPS) {
            exceed_hops();
        } else {
            exceed_mtu();
        }
        if (local.leave_l4_checksum == 1) { leave(); }
    }
}

#define INT_FIELDS hdr.shim.type, hdr.shim.npt, hdr.shim.rsvd, hdr.shim.length, hdr.shim.rsvd2, hdr.shim.dscp, hdr.shim.rsvd3, \
    hdr.md.version, hdr.md.discard, hdr.md.hops_exceeded, hdr.md.mtu_exceeded, hdr.md.rsvd, hdr.md.hop_ml, hdr.md.remaining, hdr.md.bitmap, \
    hdr.md.ds_id, hdr.md.ds_instruction, hdr.md.ds_flags, \
    hdr.node.value, hdr.interfaces.ingress, hdr.interfaces.egress, hdr.latency.value, hdr.queue.id, hdr.queue.occupancy, \
    hdr.ingress_zero.value, hdr.ingress_ts.value, hdr.egress_zero.value, hdr.egress_ts.value WORD_FIELDS

control IntDeparser(packet_out packet, inout leaving_t hdr, in leaving_local_t local, in egress_intrinsic_metadata_for_deparser_t meta) {
    Checksum() ipv4_checksum;
    Checksum() udp_checksum;
    Checksum() tcp_checksum;
    Checksum() report_checksum;

    apply {
        hdr.report_ipv4.checksum = report_checksum.update({ hdr.report_ipv4.version, hdr.report_ipv4.ihl, hdr.report_ipv4.dscp,
            hdr.report_ipv4.ecn, hdr.report_ipv4.total_len, hdr.report_ipv4.id, hdr.report_ipv4.flags, hdr.report_ipv4.fragment,
            hdr.report_ipv4.ttl, hdr.report_ipv4.proto, hdr.report_ipv4.src, hdr.report_ipv4.dst });
        hdr.ipv4.checksum = ipv4_checksum.update({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len,
            hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.src, hdr.ipv4.dst });
        if (local.has_udp_checksum) {
            hdr.udp.checksum = udp_checksum.update({ local.rest, COVERED_LENGTH, hdr.udp.len, INT_FIELDS }, true);
        }
        if (local.has_tcp_checksum) {
            hdr.tcp.checksum = tcp_checksum.update({ local.rest, COVERED_LENGTH, INT_FIELDS });
        }
        packet.emit(hdr.report_ethernet);
        packet.emit(hdr.report_ipv4);
        packet.emit(hdr.report_udp);
        packet.emit(hdr.group);
        packet.emit(hdr.report);
        packet.emit(hdr.report_interfaces);
        packet.emit(hdr.report_zero);
        packet.emit(hdr.report_ts);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        EMIT_IPV6
        packet.emit(hdr.udp);
        packet.emit(hdr.tcp);
        packet.emit(hdr.shim);
        packet.emit(hdr.md);
        packet.emit(hdr.node);
        packet.emit(hdr.interfaces);
        packet.emit(hdr.latency);
        packet.emit(hdr.queue);
        packet.emit(hdr.ingress_zero);
        packet.emit(hdr.ingress_ts);
        packet.emit(hdr.egress_zero);
        packet.emit(hdr.egress_ts);
        EACH_WORD(WORD_EMIT)
    }
}

Pipeline(IntParser(), IntIngress(), IntIngressDeparser(), IntLeaving(), IntEgress(), IntDeparser()) pipe;
Switch(pipe) main;
