// SPDX-License-Identifier: Apache-2.0 OR MIT
// Report: makes a Telemetry Report of the copy of a packet: of its path or of this node's record of it (a postcard), of its drop, or of
// its queue, in version 1.0 or 2.0. It has this node's items in its own header, and the packet from its IP header to eight bytes after INT
// or L4; of a queue, and of a drop of a packet with INT, to the ports.
//
// The control plane installs: the collector and the addresses of the report in `report_session`, and a clone session to its port.

#ifndef REPORT_P4
#define REPORT_P4

/// The packet in a report.
const bit<2> REPORTS_NOTHING = 0;
const bit<2> REPORTS_PACKET = 1;
const bit<2> REPORTS_PORTS = 2;

control Report(inout headers_t hdr, inout local_t local, out bit<32> frame_bytes) {
    Record() record;
    register<bit<32>>(SUBSYSTEMS) sequence;

    bit<1> has_session = 0;
    bit<1> is_10 = 0;

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

    /// The same in version 1.0.
    @name("report_to_10") @id(0x01000008)
    action report_to_10(@id(1) bit<48> src_mac, @id(2) bit<48> dst_mac, @id(3) bit<32> src_ip, @id(4) bit<32> dst_ip, @id(5) bit<16> dst_port) {
        report_to(src_mac, dst_mac, src_ip, dst_ip, dst_port);
        is_10 = 1;
    }

    action no_session() { }

    @name("report_session") @id(0x02000005)
    table report_session {
        key = { }
        actions = { report_to; report_to_10; no_session; }
        default_action = no_session();
    }

    /// The packet of a flow's report.
    action restore() {
        hdr.ipv4 = hdr.seen_ipv4;
        hdr.ipv6 = hdr.seen_ipv6;
        hdr.udp = hdr.seen_udp;
        hdr.tcp = hdr.seen_tcp;
        hdr.shim_10 = hdr.seen_shim_10;
        hdr.shim_2 = hdr.seen_shim_2;
        hdr.md_10 = hdr.seen_md_10;
        hdr.md_2 = hdr.seen_md_2;
        hdr.hop_0 = hdr.seen_hop_0;
        hdr.hop_1 = hdr.seen_hop_1;
        hdr.hop_2 = hdr.seen_hop_2;
        hdr.hop_3 = hdr.seen_hop_3;
        hdr.hop_4 = hdr.seen_hop_4;
        hdr.hop_5 = hdr.seen_hop_5;
        hdr.hop_6 = hdr.seen_hop_6;
        hdr.hop_7 = hdr.seen_hop_7;
        hdr.stack = hdr.seen_stack;
        hdr.ports.setInvalid();
    }

    /// Only the IP header and the ports: what follows is cut off.
    action cut_at_ports() {
        hdr.ports.setValid();
        hdr.ports.src_port = hdr.udp.isValid() ? hdr.udp.src_port : hdr.tcp.src_port;
        hdr.ports.dst_port = hdr.udp.isValid() ? hdr.udp.dst_port : hdr.tcp.dst_port;
    }

    action begin_at_ip() {
        hdr.ethernet.setInvalid();
        hdr.vlan[0].setInvalid();
        hdr.vlan[1].setInvalid();
        hdr.vlan[2].setInvalid();
        hdr.vlan[3].setInvalid();
    }

    action write_headers_10(bit<3> next_proto, bit<32> seq, bit<4> md_words, bit<16> bits, bit<3> flags) {
        hdr.report_10.setValid();
        hdr.report_10.version = REPORT_VERSION_10;
        hdr.report_10.length = 4 + md_words;
        hdr.report_10.next_proto = next_proto;
        hdr.report_10.md_bits = bits[14:14] ++ bits[13:13] ++ bits[12:12] ++ bits[10:10] ++ bits[0:0] ++ bits[8:8];
        hdr.report_10.rsvd = 0;
        hdr.report_10.drop = flags[2:2];
        hdr.report_10.queue = flags[1:1];
        hdr.report_10.flow = flags[0:0];
        hdr.report_10.hw_id = 0;
        hdr.report_10.node = local.node;
        hdr.report_10.seq = seq;
        hdr.report_10.ingress_ts = local.visit.ingress_ts[31:0];
    }

    action write_headers(bit<4> in_type, bit<32> seq, bit<16> words, bit<8> md_words, bit<16> bits, bit<3> flags) {
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
        hdr.report.drop = flags[2:2];
        hdr.report.queue = flags[1:1];
        hdr.report.flow = flags[0:0];
        hdr.report.intermediate = 0;
        hdr.report.rsvd = 0;
        hdr.report.md_bits = bits;
        hdr.report.ds_id = 0;
        hdr.report.ds_md_bits = 0;
        hdr.report.ds_md_status = 0;
    }

    action write_domain() {
        hdr.report.ds_id = POSTCARD_DOMAIN;
        hdr.report.ds_md_status = local.visit.from_edge ++ local.visit.to_edge ++ 14w0;
    }

    /// What the copy of a copy has of the report before it.
    action clear() {
        hdr.metadata.interfaces.setInvalid();
        hdr.metadata.latency.setInvalid();
        hdr.metadata.queue.setInvalid();
        hdr.metadata.ingress_ts.setInvalid();
        hdr.metadata.egress_ts.setInvalid();
        hdr.metadata.egress_ts_10.setInvalid();
        hdr.metadata.l2_interfaces.setInvalid();
        hdr.metadata.utilization.setInvalid();
        hdr.metadata.buffer.setInvalid();
        hdr.metadata.complement.setInvalid();
        hdr.flow_id.setInvalid();
        hdr.pad1.setInvalid();
        hdr.pad2.setInvalid();
        hdr.pad3.setInvalid();
    }

    apply {
        frame_bytes = 0;
        report_session.apply();
        if (has_session == 1) {
            bit<16> bits;
            bit<3> flags;
            bit<2> contents;
            bit<16> bytes;
            bit<1> is_flow = 0;
            begin_at_ip();
            clear();
            if (local.drop_reason != 0) {
                bits = ITEMS_OF_DROP;
                flags = 0b100;
                contents = local.carries_int == 1 ? REPORTS_PORTS : REPORTS_PACKET;
                bytes = local.report_bytes;
            } else if (local.queue_report != QUEUE_NOTHING) {
                bits = ITEMS_OF_QUEUE;
                flags = 0b010;
                contents = local.queue_report == QUEUE_CONGESTED ? REPORTS_PORTS : REPORTS_NOTHING;
                bytes = 0;
                if (local.queue_report == QUEUE_CONGESTED) {
                    hdr.ipv4 = hdr.arrived_ipv4;
                    hdr.ipv6 = hdr.arrived_ipv6;
                }
            } else {
                is_flow = 1;
                bits = local.report_bits;
                flags = 0b001;
                contents = REPORTS_PACKET;
                bytes = local.report_bytes;
                restore();
            }
            bit<1> is_v4 = hdr.ipv4.isValid() ? 1w1 : 1w0;
            if (contents == REPORTS_PORTS) {
                cut_at_ports();
                bytes = is_v4 == 1 ? (bit<16>)hdr.ipv4.ihl * 4 + 4 : 44;
            }
            bit<32> seq;
            sequence.read(seq, 0);
            sequence.write(0, seq + 1);
            bit<32> unused = 0;
            if (is_10 == 1) { bits = bits & REPORTABLE_10; }
            record.apply(hdr.metadata, local.visit, 0, bits, 0xffff, is_10, unused);
            if (hdr.metadata.complement.isValid()) { hdr.metadata.complement.value = local.visit.queue_id ++ local.drop_reason ++ 16w0; }
            bit<8> md_words = (bit<8>)bits[14:14] + (bit<8>)bits[13:13] + (bit<8>)bits[12:12] + (bit<8>)bits[11:11] * 2
                + (bit<8>)bits[10:10] * (is_10 == 1 ? 8w1 : 8w2) + (bit<8>)bits[9:9] * 2 + (bit<8>)bits[8:8] + (bit<8>)bits[7:7] + (bit<8>)bits[0:0];
            bit<16> header_bytes;
            bit<16> padded = bytes;
            if (is_10 == 1) {
                bit<3> next_proto = contents == REPORTS_NOTHING ? 3w0 : (is_v4 == 1 ? 3w1 : 3w2);
                write_headers_10(next_proto, seq, md_words[3:0], bits, flags);
                header_bytes = REPORT_BYTES_10 + (bit<16>)md_words * 4;
            } else {
                // Padded to a word.
                padded = (bytes + 3) & 0xfffc;
                if (bytes[1:0] != 0) {
                    hdr.pad1.setValid();
                    hdr.pad1.zero = 0;
                    if (bytes[1:0] != 3) {
                        hdr.pad2.setValid();
                        hdr.pad2.zero = 0;
                        if (bytes[1:0] == 1) {
                            hdr.pad3.setValid();
                            hdr.pad3.zero = 0;
                        }
                    }
                }
                bit<4> in_type = contents == REPORTS_NOTHING ? 4w0 : (is_v4 == 1 ? IN_TYPE_IPV4 : IN_TYPE_IPV6);
                if (is_flow == 1 && local.flow_report == FLOW_POSTCARD) {
                    hdr.flow_id.setValid();
                    hdr.flow_id.value = local.flow_id;
                    md_words = md_words + 1;
                }
                header_bytes = REPORT_BYTES + (bit<16>)md_words * 4;
                write_headers(in_type, seq, 2 + (bit<16>)md_words + (padded >> 2), md_words, bits, flags);
                if (is_flow == 1 && local.flow_report != FLOW_PATH) {
                    write_domain();
                    if (local.flow_report == FLOW_POSTCARD) { hdr.report.ds_md_bits = POSTCARD_FLOW_ID; }
                }
            }
            hdr.report_udp.len = UDP_BYTES + header_bytes + padded;
            hdr.report_ipv4.total_len = IPV4_BYTES + hdr.report_udp.len;
            frame_bytes = (bit<32>)(ETHERNET_BYTES + hdr.report_ipv4.total_len);
        }
    }
}

#endif
