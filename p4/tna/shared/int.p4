// SPDX-License-Identifier: Apache-2.0 OR MIT
// INT on Tofino: what ingress hands to egress in front of a packet, and what the controls share.

#ifndef TNA_INT_P4
#define TNA_INT_P4

#ifndef SF
// What programs besides this one have otherwise: see `sf.p4`.
#define SHIM_OURS 0x10
#define SHIM_OTHER 0x40
#define SHIM_TYPE SHIM_2_MD
typedef bit<4> count_t;
/// Of a packet that comes a second time.
const count_t NOT_COUNTED = 15;
#define PACKET_COUNTS COUNTS
#define WATCH watch_md_21
#define WATCH_ACTION @name("watch_md_21") @id(0x01000001) action watch_md_21
#define RSVD_OF_SOURCE 0
/// The first reserved bit marks SF-INT, which has a type of its own.
#define IS_OURS hdr.md.rsvd[11:11] == 0
#define EACH_WORD(X)
#define WORD_FIELDS
#define SF_ARRIVING_NOTHING
#define SF_LEAVING_NOTHING
#define IS_IPV6 hdr.ipv6.isValid()
#define BY_IPV6(STATE) ETHERTYPE_IPV6: STATE;
#define EMIT_IPV6 packet.emit(hdr.ipv6);
#define IP_BYTES local.ip_bytes
#define COVERED_LENGTH local.covered
#define WATCHLIST if (IS_IPV6) { watchlist_v6.apply(); } else { watchlist_v4.apply(); }
#else
// SF-INT over IPv6 is in an option of the hop-by-hop header, which no parser here reads: the program has no IPv6.
#define IS_IPV6 false
#define BY_IPV6(STATE)
#define EMIT_IPV6
#define IP_BYTES hdr.ipv4.total_len
#define COVERED_LENGTH hdr.ipv4.total_len
#define WATCHLIST watchlist_v4.apply();
#endif

/// What egress does: the record of this node, a flag that tells why there is none, or the report of a sink, from the copy of a packet.
const bit<8> ADD_RECORD = 1;
const bit<8> EXCEEDS_HOPS = 2;
const bit<8> EXCEEDS_MTU = 3;
const bit<8> REPORT_PATH = 4;

const bit<3> COPY = 1;
/// The mirror session whose port leads to the collector. The packet in a report has at most this many bytes.
const bit<10> REPORT_SESSION = 500;
const bit<16> COPIED_BYTES = 304;
/// Items of a sink's report that are known before the queue: interfaces, and ingress time.
const bit<16> ITEMS_OF_SINK = 0x4800;

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
#ifdef SF
    /// CRC-32C of the flow, and the time in units of 65,536 ns.
    bit<32> tag;
    bit<32> now;
#endif
}

/// In front of the copy of a packet.
header copy_t {
    bit<8> kind;
    bit<8> rsvd;
    bit<16> bits;
    bit<16> ingress_if;
    bit<16> egress_if;
    bit<48> ingress_ts;
}

/// The part of it that is no item.
header copied_t {
    bit<8> kind;
    bit<8> rsvd;
    bit<16> bits;
}

/// Words behind a shim, which a sink removes.
header words_8_t {
    bit<256> words;
}

header words_4_t {
    bit<128> words;
}

struct arriving_t {
    change_t change;
    ethernet_t ethernet;
    vlan_t vlan;
    ipv4_t ipv4;
    ipv6_t ipv6;
    udp_t udp;
    tcp_t tcp;
    shim_2_t shim;
    md_2_t md;
    // Not emitted.
    words_8_t words_0;
    words_8_t words_8;
    words_8_t words_16;
    words_8_t words_24;
    words_8_t words_32;
    words_8_t words_40;
    words_8_t words_48;
    words_4_t words_56;
    wide_t words_60;
    word_t words_62;
}

struct arriving_local_t {
    bool wrong_checksum;
    /// INT was removed: the packet comes a second time.
    bit<1> is_stripped;
    /// Sum of what the L4 checksum covers, without INT and lengths.
    bit<16> rest;
    /// It is updated.
    bool has_ip_checksum;
    bool has_udp_checksum;
    bool has_tcp_checksum;
    bit<1> leave_l4_checksum;
    // Of the copy.
    bit<10> session;
    bit<8> copy_kind;
    bit<16> copy_bits;
    bit<16> ingress_if;
    bit<16> egress_if;
    bit<48> ingress_ts;
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
    /// Bytes of the IP packet, and the field with its length, of which the pseudo-header has as much.
    bit<16> ip_bytes;
    bit<16> covered;
#ifdef SF
    SF_ARRIVING
#endif
}

struct leaving_t {
    copied_t copied;
    ethernet_t report_ethernet;
    ipv4_t report_ipv4;
    udp_t report_udp;
    group_t group;
    report_t report;
    interfaces_t report_interfaces;
    half_t report_zero;
    nanoseconds_t report_ts;

    change_t change;
    ethernet_t ethernet;
    vlan_t vlan;
    ipv4_t ipv4;
    ipv6_t ipv6;
    udp_t udp;
    tcp_t tcp;
    shim_2_t shim;
    md_2_t md;
    word_t node;
    interfaces_t interfaces;
    word_t latency;
    queue_t queue;
    half_t ingress_zero;
    nanoseconds_t ingress_ts;
    half_t egress_zero;
    nanoseconds_t egress_ts;
    EACH_WORD(WORD_HEADER)
}

struct leaving_local_t {
    /// Sum of what the L4 checksum covers, without what this node may change.
    bit<16> rest;
    /// The IP header's length field.
    bit<16> covered;
    /// It is updated.
    bool has_udp_checksum;
    bool has_tcp_checksum;
    bit<32> node;
    bit<1> leave_l4_checksum;
    /// Of the packet in a report.
    bit<16> bytes;
#ifdef SF
    SF_LEAVING
#endif
}

#endif
