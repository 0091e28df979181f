// SPDX-License-Identifier: Apache-2.0 OR MIT
// Report: makes a Telemetry Report 2.0 of the copy of a packet (specification 2.0, section 3). It has the sink's own items in the main
// contents, and the packet as it arrived, from its IP header to eight bytes after INT.
//
// The control plane installs: the collector and the addresses of the report in `report_session`, and a clone session to its port.

#ifndef REPORT_P4
#define REPORT_P4

const bit<4> REPORT_VERSION = 2;
const bit<4> REP_TYPE_INT = 1;
const bit<4> IN_TYPE_IPV4 = 4;
const bit<4> IN_TYPE_IPV6 = 5;
/// Instruction bits with a field in the main contents: 1 to 8.
const bit<16> REPORTABLE = 0x7f80;
/// Bytes of group header, report header and main contents.
const bit<16> REPORT_BYTES = 20;
const bit<16> UDP_BYTES = 8;
const bit<16> IPV4_BYTES = 20;
const bit<16> ETHERNET_BYTES = 14;

control Report(inout headers_t hdr, inout local_t local, out bit<32> frame_bytes) {
    Record() record;
    register<bit<32>>(SUBSYSTEMS) sequence;

    bit<1> has_session = 0;

    @name("report_to") @id(0x01000004)
    action report_to(@id(1) bit<48> src_mac, @id(2) bit<48> dst_mac, @id(3) bit<32> src_ip, @id(4) bit<32> dst_ip, @id(5) bit<16> dst_port) {
        has_session = 1;
        hdr.report_ethernet.setValid();
        hdr.report_ethernet.dst = dst_mac;
        hdr.report_ethernet.src = src_mac;
        hdr.report_ethernet.ethertype = ETHERTYPE_IPV4;
        hdr.report_ipv4.setValid();
        hdr.report_ipv4.version = 4;
        hdr.report_ipv4.ihl = 5;
        hdr.report_ipv4.dscp = 0;
        hdr.report_ipv4.ecn = 0;
        hdr.report_ipv4.id = 0;
        hdr.report_ipv4.flags = 2;
        hdr.report_ipv4.fragment = 0;
        hdr.report_ipv4.ttl = 64;
        hdr.report_ipv4.proto = PROTO_UDP;
        hdr.report_ipv4.src = src_ip;
        hdr.report_ipv4.dst = dst_ip;
        hdr.report_udp.setValid();
        hdr.report_udp.src_port = 0;
        hdr.report_udp.dst_port = dst_port;
        // None, as IPv4 allows.
        hdr.report_udp.checksum = 0;
    }

    action no_session() { }

    @name("report_session") @id(0x02000005)
    table report_session {
        key = { }
        actions = { report_to; no_session; }
        default_action = no_session();
    }

    /// The packet as it arrived.
    action restore() {
        hdr.ipv4 = hdr.seen_ipv4;
        hdr.ipv6 = hdr.seen_ipv6;
        hdr.udp = hdr.seen_udp;
        hdr.tcp = hdr.seen_tcp;
        hdr.shim_10 = hdr.seen_shim_10;
        hdr.shim_2 = hdr.seen_shim_2;
        hdr.md_10 = hdr.seen_md_10;
        hdr.md_2 = hdr.seen_md_2;
        hdr.stack = hdr.seen_stack;
        hdr.ethernet.setInvalid();
        hdr.vlan[0].setInvalid();
        hdr.vlan[1].setInvalid();
        hdr.vlan[2].setInvalid();
        hdr.vlan[3].setInvalid();
    }

    action write_headers(bit<4> in_type, bit<32> seq, bit<16> words, bit<8> md_words) {
        hdr.group.setValid();
        hdr.group.version = REPORT_VERSION;
        hdr.group.hw_id = 0;
        hdr.group.seq = seq[21:0];
        hdr.group.node = local.node;
        hdr.report.setValid();
        hdr.report.rep_type = REP_TYPE_INT;
        hdr.report.in_type = in_type;
        // The specification's value for a report that ends with its datagram.
        hdr.report.length = words > 254 ? 8w255 : words[7:0];
        hdr.report.md_length = md_words;
        hdr.report.drop = 0;
        hdr.report.queue = 0;
        hdr.report.flow = 1;
        hdr.report.intermediate = 0;
        hdr.report.rsvd = 0;
        hdr.report.md_bits = local.report_bits;
        hdr.report.ds_id = 0;
        hdr.report.ds_md_bits = 0;
        hdr.report.ds_md_status = 0;
    }

    apply {
        frame_bytes = 0;
        report_session.apply();
        if (has_session == 1) {
            restore();
            bit<32> seq;
            sequence.read(seq, 0);
            sequence.write(0, seq + 1);
            bit<32> unused = 0;
            record.apply(hdr.metadata, local.visit, 0, local.report_bits, 0xffff, 0, unused);
            bit<16> b = local.report_bits;
            bit<8> md_words = (bit<8>)b[14:14] + (bit<8>)b[13:13] + (bit<8>)b[12:12] + (bit<8>)b[11:11] * 2 + (bit<8>)b[10:10] * 2
                + (bit<8>)b[9:9] * 2 + (bit<8>)b[8:8] + (bit<8>)b[7:7];
            // Padded to a word.
            if (local.report_bytes & 3 != 0) {
                hdr.pad1.setValid();
                hdr.pad1.zero = 0;
                if (local.report_bytes & 3 != 3) {
                    hdr.pad2.setValid();
                    hdr.pad2.zero = 0;
                    if (local.report_bytes & 3 == 1) {
                        hdr.pad3.setValid();
                        hdr.pad3.zero = 0;
                    }
                }
            }
            bit<16> padded = (local.report_bytes + 3) & 0xfffc;
            bit<16> md_bytes = (bit<16>)md_words * 4;
            bit<4> in_type = hdr.ipv4.isValid() ? IN_TYPE_IPV4 : IN_TYPE_IPV6;
            write_headers(in_type, seq, 2 + (bit<16>)md_words + (padded >> 2), md_words);
            hdr.report_udp.len = UDP_BYTES + REPORT_BYTES + md_bytes + padded;
            hdr.report_ipv4.total_len = IPV4_BYTES + hdr.report_udp.len;
            frame_bytes = (bit<32>)(ETHERNET_BYTES + hdr.report_ipv4.total_len);
        }
    }
}

#endif
