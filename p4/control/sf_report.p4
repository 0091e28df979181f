// SPDX-License-Identifier: Apache-2.0 OR MIT
// Report of a packet of SF-INT (wire-formats section 3.7): a Telemetry Report 2.0 with this node's items in its main contents, and the
// packet from its IP header to eight bytes after INT; in its compact form INT header and record only.
//
// The control plane installs: the collector and the addresses of the report in `report_session`, and a clone session to its port.

#ifndef SF_REPORT_P4
#define SF_REPORT_P4

const bit<4> IN_TYPE_DOMAIN = 2;

control SfReport(inout headers_t hdr, inout local_t local, out bit<32> frame_bytes) {
    Record() items;
    Record() record;
    WritePadding() write_padding;
    @name("sequence")
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

    /// The packet as the sink had it.
    action restore() {
        hdr.ipv4 = hdr.seen_ipv4;
        hdr.ipv6 = hdr.seen_ipv6;
        hdr.udp = hdr.seen_udp;
        hdr.tcp = hdr.seen_tcp;
        hdr.hop_by_hop = hdr.seen_hop_by_hop;
        hdr.int_option = hdr.seen_int_option;
        hdr.shim_2 = hdr.seen_shim_2;
        hdr.md_2 = hdr.seen_md_2;
        EACH_SF_WORD(RESTORE_WORD)
        hdr.stack = hdr.seen_stack;
        remove_padding(hdr);
        hdr.padding = hdr.seen_padding;
        hdr.option_0 = hdr.seen_option_0;
        hdr.option_1 = hdr.seen_option_1;
        hdr.option_2 = hdr.seen_option_2;
        hdr.option_3 = hdr.seen_option_3;
    }

    /// Leaves INT header and record.
    action cut_to_int() {
        hdr.ipv4.setInvalid();
        hdr.ipv4_options.setInvalid();
        hdr.ipv6.setInvalid();
        hdr.udp.setInvalid();
        hdr.tcp.setInvalid();
        hdr.hop_by_hop.setInvalid();
        hdr.int_option.setInvalid();
        hdr.shim_2.setInvalid();
    }

    apply {
        frame_bytes = 0;
        report_session.apply();
        if (has_session == 1) {
            hdr.ethernet.setInvalid();
            hdr.vlan[0].setInvalid();
            hdr.vlan[1].setInvalid();
            hdr.vlan[2].setInvalid();
            hdr.vlan[3].setInvalid();
            restore();
            bit<32> unused = 0;
            if (local.has_own_record == 1) {
                record.apply(hdr.record, local.visit, local.node, local.own_bitmap, local.available, 0, unused);
                if (hdr.hop_by_hop.isValid()) { write_padding.apply(hdr, local.padding_bytes); }
            }
            bit<4> in_type = hdr.ipv4.isValid() ? IN_TYPE_IPV4 : IN_TYPE_IPV6;
            bit<16> bits = local.report_bits;
            bit<16> bytes = local.report_bytes;
            hdr.report.setValid();
            hdr.report.ds_id = 0;
            if (local.is_compact == 1) {
                cut_to_int();
                in_type = IN_TYPE_DOMAIN;
                hdr.report.ds_id = SF_DOMAIN;
            }
            bit<32> seq;
            sequence.read(seq, 0);
            sequence.write(0, seq + 1);
            items.apply(hdr.metadata, local.visit, 0, bits, 0xffff, 0, unused);
            bit<8> md_words = (bit<8>)bits[14:14] + (bit<8>)bits[13:13] + (bit<8>)bits[12:12] + (bit<8>)bits[11:11] * 2
                + (bit<8>)bits[10:10] * 2 + (bit<8>)bits[9:9] * 2 + (bit<8>)bits[8:8] + (bit<8>)bits[7:7];
            // Padded to a word.
            bit<16> padded = (bytes + 3) & 0xfffc;
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
            bit<16> words = 2 + (bit<16>)md_words + (padded >> 2);
            hdr.group.setValid();
            hdr.group.version = REPORT_VERSION;
            hdr.group.hw_id = 0;
            hdr.group.seq = seq[21:0];
            hdr.group.node = local.node;
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
            hdr.report.md_bits = bits;
            hdr.report.ds_md_bits = 0;
            hdr.report.ds_md_status = 0;
            hdr.report_udp.len = UDP_BYTES + REPORT_BYTES + (bit<16>)md_words * 4 + padded;
            hdr.report_ipv4.total_len = IPV4_BYTES + hdr.report_udp.len;
            frame_bytes = (bit<32>)(ETHERNET_BYTES + hdr.report_ipv4.total_len);
        }
    }
}

#endif
