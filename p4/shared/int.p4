// SPDX-License-Identifier: Apache-2.0 OR MIT
// Headers of a packet of the program `int`, and what the controls of one packet share.

#ifndef INT_P4
#define INT_P4

/// Reports of a queue that a packet causes.
const bit<2> QUEUE_NOTHING = 0;
/// It became congested, or has recovered.
const bit<2> QUEUE_CHANGED = 1;
/// The packet passes it while it is congested.
const bit<2> QUEUE_CONGESTED = 2;

/// How packets to report are selected: the algorithms of the crate `detect`.
const bit<3> FILTER_NONE = 0;
const bit<3> FILTER_NOOP = 1;
const bit<3> FILTER_PER_HOP = 2;
const bit<3> FILTER_PER_HOP_OF_FLOW = 3;
const bit<3> FILTER_PER_FLOW = 4;
const bit<3> FILTER_MOVING_AVERAGE = 5;
const bit<3> FILTER_CHANGE = 6;
const bit<3> FILTER_RULE = 7;

/// An entry of the filter table.
struct filter_t {
    bit<3> algorithm;
    /// Which registers and counters it has.
    bit<8> number;
    bit<3> metric;
    bit<48> threshold;
    /// Weight of a new value, 256ths.
    bit<8> alpha;
    bit<8> latency_bits;
    bit<8> queue_bits;
    bit<64> keep_alive;
}

/// What copies keep of the path, where reports are made of its values.
#ifdef DTA_REPORTER
#define OF_PATH @field_list(1, 2)
#define OF_PACKET @field_list(1, 2)
#else
#define OF_PATH
#define OF_PACKET @field_list(2)
#endif

/// The first four words of the records before this node's, left-aligned: node, interfaces, latency and queue, as far as they are in it.
struct firsts_t {
    OF_PATH bit<128> hop_0;
    OF_PATH bit<128> hop_1;
    OF_PATH bit<128> hop_2;
    OF_PATH bit<128> hop_3;
    OF_PATH bit<128> hop_4;
    OF_PATH bit<128> hop_5;
    OF_PATH bit<128> hop_6;
    OF_PATH bit<128> hop_7;
}

/// The first 16 bytes of a longer payload.
header payload_t {
    bit<128> bytes;
}

struct headers_t {
#ifdef DTA_REPORTER
    reporter_timer_t timer;
#endif
    ethernet_t report_ethernet;
    ipv4_t report_ipv4;
    ipv6_t report_ipv6;
    udp_t report_udp;
    group_t group;
    report_t report;
    report_10_t report_10;
    record_t metadata;
    /// Domain-specific metadata of a postcard.
    word_t flow_id;
#ifdef DTA_REPORTER
    dta_t dta;
    key_write_t key_write;
    append_t append;
    key_increment_t key_increment;
    postcard_report_t postcard;
    key_4_t key_4;
    key_13_t key_13;
    key_16_t key_16;
    word_t[REPORT_WORDS] data;
#endif

    ethernet_t ethernet;
    vlan_t[4] vlan;
    ipv4_t ipv4;
    ipv4_options_t ipv4_options;
    ipv6_t ipv6;
    ports_t ports;
    udp_t udp;
    tcp_t tcp;
    shim_10_t shim_10;
    shim_2_t shim_2;
    md_10_t md_10;
    md_2_t md_2;
    record_t record;
    /// The records of the nodes before this one, the latest first; further ones, and words of the source, are in `stack`.
    hop_t hop_0;
    hop_t hop_1;
    hop_t hop_2;
    hop_t hop_3;
    hop_t hop_4;
    hop_t hop_5;
    hop_t hop_6;
    hop_t hop_7;
    stack_t stack;
    short_payload_t payload;
    /// Or the first bytes of a longer one.
    payload_t long_payload;
    pad_t pad1;
    pad_t pad2;
    pad_t pad3;

    // The IP header as it arrived at this node, for a report of its queue; not emitted.
    ipv4_t arrived_ipv4;
    ipv6_t arrived_ipv6;

    // The packet of a flow's report; not emitted.
    ipv4_t seen_ipv4;
    ipv6_t seen_ipv6;
    udp_t seen_udp;
    tcp_t seen_tcp;
    shim_10_t seen_shim_10;
    shim_2_t seen_shim_2;
    md_10_t seen_md_10;
    md_2_t seen_md_2;
    hop_t seen_hop_0;
    hop_t seen_hop_1;
    hop_t seen_hop_2;
    hop_t seen_hop_3;
    hop_t seen_hop_4;
    hop_t seen_hop_5;
    hop_t seen_hop_6;
    hop_t seen_hop_7;
    stack_t seen_stack;
}

struct local_t {
    visit_t visit;
    watch_t watch;
    filter_t filter;
    firsts_t firsts;
#ifdef DTA_REPORTER
    reporter_t reporter;
#endif
    /// The switch's id, and the instruction bits that it supports.
    bit<32> node;
    bit<16> available;
    /// The domain's nodes do not change the L4 checksum.
    bit<1> leave_l4_checksum;

    // Of the parser.
    /// The IP header is of its version, and fits its length.
    bit<1> is_ip;
    /// The packet has a DSCP, version and type of INT that this switch supports, and its lengths fit.
    @field_list(2) bit<1> carries_int;
    /// That is INT-MX: instructions without records.
    @field_list(2) bit<1> is_mx;
    /// It claims to carry INT, and does not or in another form.
    @field_list(2) bit<1> refused;
    /// It came from outside with INT, which was removed; or with more than that, and is dropped.
    bit<1> edge_stripped;
    bit<1> edge_refused;
    /// A stack that contradicts itself behind a valid header: a sink removes it.
    bit<1> malformed_stack;
    /// The L4 header contradicts itself, or lies behind the IP packet: INT is neither put behind it nor read there.
    @field_list(2) bit<1> bad_l4;
    /// Bytes from the L4 header to the end of the IP packet, and of that after the L4 header (TCP: its fixed part).
    @field_list(2) bit<16> l4_bytes;
    @field_list(2) bit<16> body_bytes;

    /// What follows L4 and INT, as far as it is within 32 bytes from the L4 header on; zeros behind a shorter packet.
    bit<128> body_0;
    bit<64> body_16;

    /// Words of the stack that are not parsed yet; after parsing, those in `hdr.stack`.
    OF_PATH bit<16> stack_words;

    // Of the packet, in either version of INT.
    bit<16> link_bytes;
    @field_list(2) bit<16> ip_bytes;
    OF_PACKET bit<16> bitmap;
    /// Words of one record.
    OF_PACKET bit<8> record_words;
    /// Words of the items of the bitmap.
    bit<8> item_words;
    bit<8> remaining;
    OF_PACKET bit<16> src_port;
    OF_PACKET bit<16> dst_port;
    OF_PACKET bit<8> proto;
    @field_list(2) bit<6> dscp;

    /// A counter: what happened to the packet.
    bit<32> outcome;

    /// Sum of the 16-bit words that were added to what the L4 checksum covers, and of the complements of those removed (RFC 1624).
    bit<32> sum;
    /// Bytes by which the packet grew or, as a negative number, shrank.
    bit<16> grown;

    /// Why the packet was dropped: a code of Telemetry Report; 0: it was not.
    @field_list(1, 2) bit<8> drop_reason;
    /// Reports that are due.
    @field_list(1) bit<2> queue_report;
    @field_list(1) bit<2> flow_report;
    /// Of a postcard.
    @field_list(1) bit<32> flow_id;

    /// Items of the flow's report of this node, and bytes of its packet.
    @field_list(1) bit<16> report_bits;
    @field_list(1) bit<16> report_bytes;
}

#endif
