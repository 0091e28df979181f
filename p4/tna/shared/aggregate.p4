// SPDX-License-Identifier: Apache-2.0 OR MIT
// What ingress of the aggregator hands to egress in front of an aggregate, and what the controls share.

#ifndef TNA_AGGREGATE_P4
#define TNA_AGGREGATE_P4

/// Postcards that a register holds before the last one: R is one more, at least 2. As many do all tables and registers know.
#define EACH_PLACE(do) do(0) do(1) do(2) do(3)

const bit<8> NO_TIMER = 0;
const bit<8> TIMER = 1;
const bit<8> STOP = 2;

/// Bytes of a timer's frame of the least length after its header.
header timer_padding_t {
    bit<304> rest;
}

header operation_t {
    bit<8> kind;
    bit<8> is_timer;
    bit<8> rsvd;
    /// R, less one.
    bit<8> last;
    /// Frames of the timer that a register waits.
    bit<16> ticks;
    bit<16> slot;
    /// Of the postcard's register; of kinds without them, zero.
    bit<32> node;
    bit<32> flow;
}

header reading_t {
    bit<32> ingress_high;
    bit<32> ingress_low;
    bit<32> egress_high;
    bit<32> egress_low;
}

struct arriving_t {
    operation_t operation;
    ethernet_t ethernet;
    timer_t timer;
    timer_padding_t padding;
    ipv4_t ipv4;
    udp_t udp;
    group_t group;
    report_t report;
    word_t queue;
    reading_t times;
    word_t flow;
    aggregate_t aggregate;
    postcard_t last;
}

struct arriving_local_t {
    bool wrong_checksum;
    bit<8> kind;
    bit<1> has_settings;
    bit<1> is_ours;
    bit<1> is_good;
    bit<32> crc;
    bit<1> is_exact;
    bit<1> no_node;
    bit<1> no_flow;
    bit<16> mask;
    bit<16> ticks;
}

#define PLACE_FIELD(n) postcard_t p ## n;

struct leaving_t {
    operation_t operation;
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    aggregate_t aggregate;
    EACH_PLACE(PLACE_FIELD)
    postcard_t last;
}

struct leaving_local_t {
    bit<32> old_node;
    bit<32> old_flow;
    bit<32> other_node;
    bit<32> other_flow;
    bit<1> is_other;
    /// Postcards in the register before this one.
    bit<16> held;
    /// The place that this postcard takes, one bit each.
    bit<8> own;
    bit<1> sends;
    /// The aggregate has the postcards of the register only.
    bit<1> is_old;
    bit<8> records;
}

#endif
