// SPDX-License-Identifier: Apache-2.0 OR MIT
// Headers: Ethernet to TCP, INT-MD 1.0 and 2.1 (INT data plane specification, sections 5.6 and 5.7), Telemetry Report 1.0 and 2.0.

#ifndef HEADERS_P4
#define HEADERS_P4

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_QINQ = 0x88a8;
const bit<16> ETHERTYPE_QINQ_OLD = 0x9100;
const bit<16> ETHERTYPE_TRANSPARENT = 0x6558;
const bit<16> PORT_VXLAN = 4789;
const bit<16> PORT_GPE = 4790;
const bit<16> PORT_GENEVE = 6081;
const bit<8> PROTO_TCP = 6;
const bit<8> PROTO_UDP = 17;

/// DSCP of packets with INT. The same in the whole domain.
#ifndef INT_DSCP
#define INT_DSCP 0x17
#endif

const bit<4> INT_VERSION_10 = 1;
const bit<4> INT_VERSION_2 = 2;
const bit<8> SHIM_10_HOP_BY_HOP = 1;
const bit<4> SHIM_2_MD = 1;
const bit<4> SHIM_2_MX = 3;
/// In the reserved bits of the metadata header: SF-INT.
const bit<12> SF_FLAG = 0x800;
/// Words of shim and metadata header that the shim's length covers.
const bit<8> HEADER_WORDS_10 = 3;
const bit<8> HEADER_WORDS_2 = 3;
/// Bytes that a source inserts before its record.
const bit<16> SOURCE_BYTES_10 = 12;
const bit<16> SOURCE_BYTES_2 = 16;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ethertype;
}

header vlan_t {
    bit<16> tag;
    bit<16> ethertype;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_len;
    bit<16> id;
    bit<3> flags;
    bit<13> fragment;
    bit<8> ttl;
    bit<8> proto;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header ipv4_options_t {
    varbit<320> options;
}

header ipv6_t {
    bit<4> version;
    bit<6> dscp;
    bit<2> ecn;
    bit<20> flow_label;
    bit<16> payload_len;
    bit<8> next_header;
    bit<8> hop_limit;
    bit<128> src;
    bit<128> dst;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> len;
    bit<16> checksum;
}

/// The fixed part of TCP: INT follows it, before the options.
header tcp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> seq;
    bit<32> ack;
    bit<4> data_offset;
    bit<12> flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

/// Shim of INT 1.0; the length includes the shim.
header shim_10_t {
    bit<8> type;
    bit<8> rsvd;
    bit<8> length;
    bit<6> dscp;
    bit<2> rsvd2;
}

/// Shim of INT 2.x with NPT 0; the length does not include the shim.
header shim_2_t {
    bit<4> type;
    bit<2> npt;
    bit<2> rsvd;
    bit<8> length;
    bit<8> rsvd2;
    bit<6> dscp;
    bit<2> rsvd3;
}

header md_10_t {
    bit<4> version;
    bit<2> replication;
    bit<1> copy;
    bit<1> hops_exceeded;
    bit<1> mtu_exceeded;
    bit<10> rsvd;
    bit<5> hop_ml;
    bit<8> remaining;
    bit<16> bitmap;
    bit<16> rsvd2;
}

header md_2_t {
    bit<4> version;
    bit<1> discard;
    bit<1> hops_exceeded;
    bit<1> mtu_exceeded;
    bit<12> rsvd;
    bit<5> hop_ml;
    bit<8> remaining;
    bit<16> bitmap;
    bit<16> ds_id;
    bit<16> ds_instruction;
    bit<16> ds_flags;
}

/// One metadata item, or half of one.
header word_t {
    bit<32> value;
}

header wide_t {
    bit<64> value;
}

/// Records: up to 252 words.
header stack_t {
    varbit<8064> records;
}

/// The record of one node, as it is.
header hop_t {
    varbit<992> record;
}

/// The items of one record, in the order of the instruction bitmap. A timestamp has four bytes in INT 1.0.
struct record_t {
    word_t node;
    word_t interfaces;
    word_t latency;
    word_t queue;
    wide_t ingress_ts;
    word_t ingress_ts_10;
    wide_t egress_ts;
    word_t egress_ts_10;
    wide_t l2_interfaces;
    word_t utilization;
    word_t buffer;
    /// Bits 9 to 14 are reserved, four bytes each: all-ones.
    word_t rsvd_9;
    word_t rsvd_10;
    word_t rsvd_11;
    word_t rsvd_12;
    word_t rsvd_13;
    word_t rsvd_14;
    word_t complement;
}

header group_t {
    bit<4> version;
    bit<6> hw_id;
    bit<22> seq;
    bit<32> node;
}

header report_t {
    bit<4> rep_type;
    bit<4> in_type;
    bit<8> length;
    bit<8> md_length;
    bit<1> drop;
    bit<1> queue;
    bit<1> flow;
    bit<1> intermediate;
    bit<4> rsvd;
    bit<16> md_bits;
    bit<16> ds_id;
    bit<16> ds_md_bits;
    bit<16> ds_md_status;
}

/// Report 1.0, up to its optional metadata.
header report_10_t {
    bit<4> version;
    /// Words of this header and of the metadata.
    bit<4> length;
    /// 1 IPv4, 2 IPv6; 0 Ethernet, or nothing.
    bit<3> next_proto;
    /// Ports, hop latency, queue, egress timestamp, drop reason, utilization.
    bit<6> md_bits;
    bit<6> rsvd;
    bit<1> drop;
    bit<1> queue;
    bit<1> flow;
    bit<6> hw_id;
    bit<32> node;
    bit<32> seq;
    bit<32> ingress_ts;
}

/// The first four bytes of UDP or TCP, with which the packet in a report of a drop or a queue ends.
header ports_t {
    bit<16> src_port;
    bit<16> dst_port;
}

/// A payload shorter than what a report includes of it, so that padding can follow it.
header short_payload_t {
    varbit<56> bytes;
}

header pad_t {
    bit<8> zero;
}

#endif
