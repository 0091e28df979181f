// SPDX-License-Identifier: Apache-2.0 OR MIT
// Headers of the aggregator: postcards as a node sends them, and aggregates of postcards.

#ifndef AGGREGATE_P4
#define AGGREGATE_P4

/// Registers, of which a controller may use the first ones: a power of two.
#ifndef AGGREGATOR_SLOTS
#define AGGREGATOR_SLOTS 4096
#endif
/// Postcards that a register holds before the last one: R is at most one more.
#define AGGREGATOR_HELD 24
const int AGGREGATOR_DESTINATIONS = 64;
const int AGGREGATOR_PORTS = 64;

/// Local experiments (IEEE 802): the frames of a timer, from the control plane or a packet generator.
const bit<16> ETHERTYPE_TIMER = 0x88b5;

// Kinds of aggregates are numbers with these bits.
const bit<4> KIND_CORRELATED = 4;
const bit<4> KIND_NODE = 2;
const bit<4> KIND_FLOW = 3;

const bit<8> METRIC_LATENCY = 1;
const bit<8> METRIC_QUEUE = 2;

// Instances of the counter of what arrived, named as the counters of the aggregator in Rust.
const bit<32> COUNT_POSTCARDS = 0;
const bit<32> COUNT_NO_NODE = 1;
const bit<32> COUNT_NO_FLOW = 2;
const bit<32> COUNT_NO_VALUE = 3;
const bit<32> COUNT_MISSING_VALUES = 4;
const int COUNTS_OF_POSTCARDS = 5;

// Why a register was sent.
const bit<32> CAUSE_FULL = 0;
const bit<32> CAUSE_TIMER = 1;
const bit<32> CAUSE_EVICTED = 2;
const bit<32> CAUSE_STOPPED = 3;
const int CAUSES = 4;

/// Bytes of UDP and group header before the postcards of a datagram, and of each postcard.
const bit<16> GROUP_BYTES = 16;
const bit<16> POSTCARD_BYTES = 36;
/// Postcards of a datagram: as many as 1,500 bytes hold over IPv6.
#define AGGREGATOR_DATAGRAM 40

/// A report of one node without a packet (wire-formats 4.1): 8 words, 6 of them metadata; queue, both timestamps, domain "PC" with a
/// Flow ID. Flags other than D do not count.
const bit<96> POSTCARD_HEAD = 0x10080600_1c005043_80000000;
const bit<96> POSTCARD_HEAD_MASK = 0xffffff80_ffffffff_ffffffff;

header postcard_report_t {
    bit<96> head;
    bit<32> queue;
    bit<64> ingress_ts;
    bit<64> egress_ts;
    bit<32> flow;
}

header aggregate_t {
    bit<4> version;
    bit<4> kind;
    bit<1> by_timer;
    bit<1> packet_fields;
    bit<6> rsvd;
    bit<16> count;
    bit<16> record_len;
    bit<16> rsvd2;
    bit<32> aggregator;
    bit<32> sequence;
    bit<32> node_scope;
    bit<32> flow_scope;
}

header postcard_t {
    bit<32> node;
    bit<32> flow;
    bit<32> ingress_ts;
    bit<32> egress_ts;
    bit<32> queue;
}

header summary_t {
    bit<8> metric;
    bit<24> rsvd;
    bit<32> min;
    bit<32> max;
    bit<64> sum;
    bit<32> samples;
}

/// Sends a register if its timer has expired, or, with `stop`, whatever it holds.
header timer_t {
    bit<8> stop;
    bit<24> rsvd;
    bit<32> slot;
}

struct aggregator_headers_t {
    ethernet_t ethernet;
    timer_t timer;
    ipv4_t ipv4;
    ipv6_t ipv6;
    udp_t udp;
    group_t group;
    postcard_report_t[AGGREGATOR_DATAGRAM] reports;
    aggregate_t aggregate;
    postcard_t[AGGREGATOR_HELD] postcards;
    postcard_t last;
    summary_t latency;
    summary_t queue;
}

struct aggregator_local_t {
    // Of the parser.
    bit<16> l4_bytes;
    /// Bytes of the datagram that are not parsed yet.
    bit<16> left;
    /// The datagram has nothing but postcards.
    bit<1> is_whole;
    /// The first postcards of this datagram were processed and taken out: it was checked then.
    @field_list(1) bit<1> is_rest;
    // What a controller sets.
    bit<4> kind;
    bit<32> r;
    bit<48> timer;
    bit<32> aggregator;
    bit<32> mask;
    bit<32> destinations;
    bit<1> by_node;
    /// The register's aggregate is sent.
    bit<1> sends;
    bit<32> destination;
    bit<32> frame_bytes;
    /// Sum of the 16-bit words of the aggregate.
    bit<32> sum;
    /// No postcard and no timer frame.
    bit<1> is_other;
    /// Never set.
    bit<16> zero;
}

#endif
