// SPDX-License-Identifier: Apache-2.0 OR MIT
// Postcards on Tofino: what ingress hands to egress in front of a packet, what a copy has in front of it, and what the controls share.

#ifndef TNA_POSTCARDS_P4
#define TNA_POSTCARDS_P4

/// The first byte of what egress reads: a packet that is copied for its postcard; the copy of a packet, for its postcard or of its drop.
const bit<8> KIND_PACKET = 1;
const bit<8> KIND_POSTCARD = 2;
const bit<8> KIND_DROP = 3;

/// How long the headers of a packet are: its copies are cut behind eight bytes of its payload, by the mirror session 499 + this.
const bit<8> NO_L4 = 0;
const bit<8> UDP_OVER_IPV4 = 1;
const bit<8> TCP_OVER_IPV4 = 2;
const bit<8> UDP_OVER_IPV6 = 3;
const bit<8> TCP_OVER_IPV6 = 4;

const bit<3> COPY = 1;
/// Items of a postcard: interfaces, latency, queue, times.
const bit<16> ITEMS_OF_POSTCARD = 0x7c00;
/// Status of the domain of postcards: the packet entered or left the domain here.
const bit<16> FROM_EDGE = 0x8000;
const bit<16> TO_EDGE = 0x4000;

/// What a packet's report is made of.
header measured_t {
    bit<8> kind;
    bit<8> headers;
    bit<16> bits;
    bit<16> status;
}

/// In front of a packet that is copied at egress.
header watched_t {
    bit<16> ingress_if;
    bit<48> ingress_ts;
    bit<32> flow_id;
}

/// In front of the copy: `measured_t`, and each item that its report can have. `last` is the Flow ID of a postcard, or a drop's reason.
header copy_t {
    bit<8> kind;
    bit<8> headers;
    bit<16> bits;
    bit<16> status;
    bit<16> ingress_if;
    bit<16> egress_if;
    bit<8> queue_id;
    bit<24> queue_occupancy;
    bit<48> ingress_ts;
    bit<48> egress_ts;
    bit<32> last;
}

struct arriving_t {
    measured_t measured;
    watched_t watched;
    ethernet_t ethernet;
    vlan_t vlan;
    ipv4_t ipv4;
    ipv6_t ipv6;
    ports_t ports;
}

struct arriving_local_t {
    bool wrong_checksum;
    bit<1> is_ip;
    bit<8> headers;
    bit<1> is_watched;
    bit<1> drops;
    /// Items of the postcard.
    bit<16> bits;
    bit<16> status;
    bit<32> flow_id;
    // Of the copy of a dropped packet.
    bit<10> session;
    bit<8> copy_kind;
    bit<16> copy_bits;
    bit<16> ingress_if;
    bit<48> ingress_ts;
    bit<32> reason;
}

struct leaving_t {
    ethernet_t report_ethernet;
    ipv4_t report_ipv4;
    udp_t report_udp;
#ifdef DTA_REPORTER
    dta_t dta;
    key_write_t key_write;
    key_8_t key;
#else
    group_t group;
    report_t report;
#endif
    interfaces_t interfaces;
    word_t latency;
    queue_t queue;
    half_t ingress_zero;
    nanoseconds_t ingress_ts;
    half_t egress_zero;
    nanoseconds_t egress_ts;
    word_t last;

    measured_t measured;
    watched_t watched;
    ethernet_t ethernet;
}

struct leaving_local_t {
    bit<32> node;
    bit<16> available;
    // Of the copy.
    bit<10> session;
    bit<8> copy_kind;
    bit<16> egress_if;
    bit<8> queue_id;
    bit<24> queue_occupancy;
    bit<48> egress_ts;
}

#endif
