// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the controls of one packet share. The main program of a target fills `visit`; no control knows the target.

#ifndef LOCAL_P4
#define LOCAL_P4

/// Fields that the copy of a packet keeps, from which its report is made.
const bit<8> REPORT_FIELDS = 1;
/// The same of a packet that ingress drops: also what the parser has found. A target parses the copy again, and clears the metadata then.
const bit<8> DROP_FIELDS = 2;

/// The measurement of a packet at this switch.
struct visit_t {
    /// 0: unknown.
    @field_list(1, 2) bit<16> ingress_if;
    @field_list(1) bit<16> egress_if;
    /// Nanoseconds.
    @field_list(1, 2) bit<64> ingress_ts;
    @field_list(1) bit<64> egress_ts;
    @field_list(1) bit<8> queue_id;
    @field_list(1) bit<24> queue_occupancy;
    /// It arrived from outside the domain.
    @field_list(1) bit<1> from_edge;
    /// It leaves the domain.
    @field_list(1) bit<1> to_edge;
    /// Its ingress port is at the border of the domain: INT that it carries is not the domain's.
    bit<1> from_outside;
    /// MTU of the egress link, bytes.
    bit<16> mtu;
}

/// How a flow is measured.
const bit<3> WATCH_NOTHING = 0;
const bit<3> WATCH_MD_21 = 1;
const bit<3> WATCH_MD_10 = 2;
const bit<3> WATCH_MX_21 = 3;
const bit<3> WATCH_POSTCARD = 4;

/// An entry of the watchlist.
struct watch_t {
    bit<3> mode;
    bit<8> hops;
    bit<16> bitmap;
    /// Words of the items of `bitmap`.
    bit<5> words;
    /// Report dropped packets of the flow.
    bit<1> drops;
    /// No entry matches.
    bit<1> is_missing;
}

/// Reports of a queue that a packet causes.
const bit<2> QUEUE_NOTHING = 0;
/// It became congested, or has recovered.
const bit<2> QUEUE_CHANGED = 1;
/// The packet passes it while it is congested.
const bit<2> QUEUE_CONGESTED = 2;

/// Reports about a flow.
const bit<2> FLOW_NOTHING = 0;
/// A sink's, with the packet's path.
const bit<2> FLOW_PATH = 1;
/// A node's, of a packet of INT-MX.
const bit<2> FLOW_RECORD = 2;
/// A node's, of a packet without INT.
const bit<2> FLOW_POSTCARD = 3;

/// How packets to report are selected: the algorithms of the crate `detect`.
const bit<3> FILTER_NONE = 0;
const bit<3> FILTER_NOOP = 1;
const bit<3> FILTER_PER_HOP = 2;
const bit<3> FILTER_PER_HOP_OF_FLOW = 3;
const bit<3> FILTER_PER_FLOW = 4;
const bit<3> FILTER_MOVING_AVERAGE = 5;
const bit<3> FILTER_CHANGE = 6;

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

/// The first four words of the records before this node's, left-aligned: node, interfaces, latency and queue, as far as they are in it.
struct firsts_t {
    bit<128> hop_0;
    bit<128> hop_1;
    bit<128> hop_2;
    bit<128> hop_3;
    bit<128> hop_4;
    bit<128> hop_5;
    bit<128> hop_6;
    bit<128> hop_7;
}

struct local_t {
    visit_t visit;
    watch_t watch;
    filter_t filter;
    firsts_t firsts;
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
    /// The L4 header contradicts itself: INT is neither put behind it nor read there.
    @field_list(2) bit<1> bad_l4;
    /// Bytes from the L4 header to the end of the IP packet, and of that after the L4 header (TCP: its fixed part).
    @field_list(2) bit<16> l4_bytes;
    @field_list(2) bit<16> body_bytes;

    /// Words of the stack that are not parsed yet; after parsing, those in `hdr.stack`.
    bit<16> stack_words;

    // Of the packet, in either version of INT.
    bit<16> link_bytes;
    @field_list(2) bit<16> ip_bytes;
    @field_list(2) bit<16> bitmap;
    /// Words of one record.
    @field_list(2) bit<8> record_words;
    /// Words of the items of the bitmap.
    bit<8> item_words;
    bit<8> remaining;
    @field_list(2) bit<16> src_port;
    @field_list(2) bit<16> dst_port;
    @field_list(2) bit<8> proto;
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
