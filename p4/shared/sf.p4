// SPDX-License-Identifier: Apache-2.0 OR MIT
// Headers of a packet of the program `sf`, and what the controls of one packet share (wire-formats section 3): SF-INT behind UDP or TCP,
// and in an option of the IPv6 hop-by-hop header.

#ifndef SF_P4
#define SF_P4

#include "sf_rules.p4"

/// The type of the IPv6 option with INT: experimental (RFC 4727).
const bit<8> OPTION_INT = 0x3e;
const bit<8> PROTO_HOP_BY_HOP = 0;
/// The domain of a compact report, "SF".
const bit<16> SF_DOMAIN = 0x5346;

/// Words of a record with all items.
const int SF_WORDS = 18;
/// For each word of a record.
#define EACH_SF_WORD(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17)


header hop_by_hop_t {
    bit<8> next_header;
    /// Units of eight bytes after the first eight.
    bit<8> length;
}

header option_head_t {
    bit<8> type;
    bit<8> length;
}

/// An option with its head; Pad1 has no length.
header option_t {
    varbit<2056> bytes;
}

/// Bytes of the hop-by-hop header that are no options, or after the fourth.
header options_rest_t {
    varbit<16384> bytes;
}

struct headers_t {
    ethernet_t report_ethernet;
    ipv4_t report_ipv4;
    udp_t report_udp;
    group_t group;
    report_t report;
    record_t metadata;

    ethernet_t ethernet;
    vlan_t[4] vlan;
    ipv4_t ipv4;
    ipv4_options_t ipv4_options;
    ipv6_t ipv6;
    // INT behind L4.
    udp_t udp;
    tcp_t tcp;
    // INT before L4.
    hop_by_hop_t hop_by_hop;
    option_head_t int_option;
    shim_2_t shim_2;
    md_2_t md_2;
    /// This node's record.
    record_t record;
    /// The record that the packet arrived with, unless there are several.
    word_t[SF_WORDS] words;
    /// The records of an urgent packet, and words that are no record.
    stack_t stack;
    /// Padding after INT, as it arrived, and as this node writes it.
    option_t padding;
    pad_t pad_one;
    option_head_t pad_n;
    pad_t pad_zero_1;
    pad_t pad_zero_2;
    pad_t pad_zero_3;
    pad_t pad_zero_4;
    pad_t pad_zero_5;
    /// Other options.
    option_t option_0;
    option_t option_1;
    option_t option_2;
    option_t option_3;
    options_rest_t options_rest;
    /// L4 of a packet into which this node has inserted a hop-by-hop header.
    udp_t behind_udp;
    tcp_t behind_tcp;
    short_payload_t payload;
    pad_t pad1;
    pad_t pad2;
    pad_t pad3;

    // The packet of a sink's report; not emitted.
    ipv4_t seen_ipv4;
    ipv6_t seen_ipv6;
    udp_t seen_udp;
    tcp_t seen_tcp;
    hop_by_hop_t seen_hop_by_hop;
    option_head_t seen_int_option;
    shim_2_t seen_shim_2;
    md_2_t seen_md_2;
    word_t[SF_WORDS] seen_words;
    stack_t seen_stack;
    option_t seen_padding;
    option_t seen_option_0;
    option_t seen_option_1;
    option_t seen_option_2;
    option_t seen_option_3;
}

/// The settings of SF-INT at this node.
struct settings_t {
    /// How long a record in a register may be sent, ns.
    bit<64> aging;
    /// Reports have INT header and record only.
    bit<1> is_compact;
    /// A source marks one in this many packets of a flow urgent; 0: none.
    bit<32> urgent_every;
    /// And those that leave a queue of at least this length; 0: none.
    bit<24> urgent_queue;
}

struct local_t {
    visit_t visit;
    watch_t watch;
    settings_t settings;
    /// The switch's id, and the instruction bits that it supports.
    bit<32> node;
    bit<16> available;
    /// The domain's nodes do not change the L4 checksum.
    bit<1> leave_l4_checksum;

    // Of the parser.
    /// The IP header is of its version, and fits its length.
    bit<1> is_ip;
    /// The packet has SF-INT whose header and lengths fit.
    bit<1> carries_int;
    /// It claims to carry INT, and does not, or in another form.
    bit<1> refused;
    /// It carries INT that is not SF-INT.
    bit<1> is_other_int;
    /// It came from outside with INT, which was removed; or with more than that, and is dropped.
    bit<1> edge_stripped;
    bit<1> edge_refused;
    /// Not one record, or not whole ones, behind a valid header: a sink removes them.
    bit<1> malformed_stack;
    /// A node that does not know SF-INT has added a record.
    bit<1> is_plain_node;
    /// The L4 header contradicts itself, or lies behind the IP packet: INT is neither put behind it nor read there.
    bit<1> bad_l4;
    /// L4 behind a hop-by-hop header is whole.
    bit<1> has_l4;
    /// And the length of UDP there is wrong.
    bit<1> bad_length;
    bit<16> l4_bytes;
    /// Bytes after INT, or after the headers behind which it may be inserted.
    bit<16> body_bytes;
    bit<16> stack_words;
    /// Of the hop-by-hop header, of which the rest is not parsed yet.
    bit<16> header_bytes;
    bit<16> options_left;
    bit<16> option_len;
    bit<1> has_option;
    /// There are options that are neither INT nor padding, and INT once more.
    bit<1> has_others;
    bit<1> has_more_int;
    /// The first option of a header without INT is padding.
    bit<1> begins_with_padding;

    // Of the packet.
    bit<16> link_bytes;
    bit<16> ip_bytes;
    bit<16> bitmap;
    bit<8> record_words;
    bit<8> item_words;
    bit<8> remaining;
    bit<1> is_urgent;
    bit<2> state;
    bit<16> src_port;
    bit<16> dst_port;
    bit<8> proto;
    bit<6> dscp;
    /// Of its flow; the low bits select a register.
    bit<32> tag;

    /// A counter: what happened to the packet.
    bit<32> outcome;
    /// Sum of the 16-bit words that were added to what the L4 checksum covers, and of the complements of those removed (RFC 1624).
    bit<32> sum;
    /// Bytes by which the packet grew or, as a negative number, shrank.
    bit<16> grown;

    /// Sum of the INT that this node has inserted.
    bit<32> own_sum;

    // For the report.
    @field_list(1) bit<1> is_reported;
    /// The packet has this node's record: it is source and sink.
    @field_list(1) bit<1> has_own_record;
    @field_list(1) bit<16> own_bitmap;
    @field_list(1) bit<16> padding_bytes;
    /// INT header and record only, and the bytes of that.
    @field_list(1) bit<1> is_compact;
    /// Items of this node in the report, and bytes of the packet.
    @field_list(1) bit<16> report_bits;
    @field_list(1) bit<16> report_bytes;
}

#endif
