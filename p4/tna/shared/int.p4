// SPDX-License-Identifier: Apache-2.0 OR MIT
// INT on Tofino: what ingress hands to egress in front of a packet, and what the controls share.

#ifndef TNA_INT_P4
#define TNA_INT_P4

/// What egress does: the record of this node, or a flag that tells why there is none.
const bit<8> ADD_RECORD = 1;
const bit<8> EXCEEDS_HOPS = 2;
const bit<8> EXCEEDS_MTU = 3;

/// In front of a packet that passes egress.
header change_t {
    bit<8> kind;
    /// INT was inserted here: the L4 checksum does not cover it yet.
    bit<8> is_source;
    /// Words of the record, and bytes by which the packet grows.
    bit<8> words;
    bit<8> rsvd;
    bit<16> grown;
    bit<16> ingress_if;
    bit<48> ingress_ts;
}

header interfaces_t {
    bit<16> ingress;
    bit<16> egress;
}

header queue_t {
    bit<8> id;
    bit<24> occupancy;
}

header time_t {
    bit<16> zero;
    bit<48> nanoseconds;
}

struct arriving_t {
    change_t change;
    ethernet_t ethernet;
    vlan_t vlan;
    ipv4_t ipv4;
    udp_t udp;
    tcp_t tcp;
    shim_2_t shim;
    md_2_t md;
}

struct arriving_local_t {
    bool wrong_checksum;
    bit<1> is_ip;
    bit<1> has_l4;
    /// It has the DSCP of INT, and INT of a form that this program does not know.
    bit<1> has_dscp;
    bit<1> is_other_int;
    bit<1> is_source;
    bit<1> is_whole;
    bit<1> is_too_long;
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> bitmap;
    bit<8> hop_ml;
    bit<8> hops;
    bit<8> words;
    bit<16> grown;
    bit<16> room;
}

struct leaving_t {
    change_t change;
    ethernet_t ethernet;
    vlan_t vlan;
    ipv4_t ipv4;
    udp_t udp;
    tcp_t tcp;
    shim_2_t shim;
    md_2_t md;
    word_t node;
    interfaces_t interfaces;
    word_t latency;
    queue_t queue;
    time_t ingress_ts;
    time_t egress_ts;
}

struct leaving_local_t {
    /// Sum of what the L4 checksum covers, without what this node may change.
    bit<16> rest;
    /// It is updated.
    bool has_udp_checksum;
    bool has_tcp_checksum;
    bit<32> node;
    bit<1> leave_l4_checksum;
}

#endif
