// SPDX-License-Identifier: Apache-2.0 OR MIT
// Report: makes a Telemetry Report 2.0 of the copy of a packet, which has the items in front of it: this node's record (a postcard), or
// the packet's drop. As `control/report.p4`, but cut where the mirror session cuts, which depends only on the kind of its headers.

#ifndef TNA_POSTCARD_REPORT_P4
#define TNA_POSTCARD_REPORT_P4

control Report(inout leaving_t hdr, inout leaving_local_t local, inout bit<3> drops) {
    Register<bit<32>, bit<1>>(1, 0) sequence;
    RegisterAction<bit<32>, bit<1>, bit<32>>(sequence) next_sequence = {
        void apply(inout bit<32> value, out bit<32> was) { was = value; value = value + 1; }
    };

    action drop() { drops = 1; }

    @name("report_to") @id(0x01000004)
    action report_to(@id(1) bit<48> src_mac, @id(2) bit<48> dst_mac, @id(3) bit<32> src_ip, @id(4) bit<32> dst_ip, @id(5) bit<16> dst_port) {
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

    @name("report_session") @id(0x02000005)
    table report_session {
        key = { }
        actions = { report_to; drop; }
        default_action = drop();
        size = 1;
    }

    action do_next_sequence() { local.seq = next_sequence.execute(0); }
    action write_sequence() { hdr.group.seq = local.seq[21:0]; }

    action write_headers() {
        hdr.group.setValid();
        hdr.group.version = REPORT_VERSION;
        hdr.group.hw_id = 0;
        hdr.group.node = local.node;
        hdr.report.setValid();
        hdr.report.rep_type = REP_TYPE_INT;
        hdr.report.queue = 0;
        hdr.report.intermediate = 0;
        hdr.report.rsvd = 0;
        hdr.report.md_bits = hdr.measured.bits;
        hdr.report.ds_md_status = hdr.measured.status;
    }

    action of_postcard(bit<4> in_type, bit<8> words, bit<8> md_words, bit<16> udp, bit<16> ip) {
        hdr.report.in_type = in_type;
        hdr.report.length = words;
        hdr.report.md_length = md_words;
        hdr.report.drop = 0;
        hdr.report.flow = 1;
        hdr.report.ds_id = POSTCARD_DOMAIN;
        hdr.report.ds_md_bits = POSTCARD_FLOW_ID;
        hdr.report_udp.len = udp;
        hdr.report_ipv4.total_len = ip;
    }

    action of_drop(bit<4> in_type, bit<8> words, bit<8> md_words, bit<16> udp, bit<16> ip) {
        hdr.report.in_type = in_type;
        hdr.report.length = words;
        hdr.report.md_length = md_words;
        hdr.report.drop = 1;
        hdr.report.flow = 0;
        hdr.report.ds_id = 0;
        hdr.report.ds_md_bits = 0;
        hdr.report_udp.len = udp;
        hdr.report_ipv4.total_len = ip;
    }

    table lengths {
        key = { hdr.measured.kind : exact; hdr.measured.headers : exact; hdr.measured.bits : exact; }
        actions = { of_postcard; of_drop; @defaultonly drop; }
        const default_action = drop();
        const entries = {
#include "../tables/postcard_lengths.p4"
        }
        size = 256;
    }

    action remove_interfaces() { hdr.interfaces.setInvalid(); }
    action remove_queue() { hdr.queue.setInvalid(); }
    action remove_ingress_ts() { hdr.ingress_ts.setInvalid(); }
    action remove_egress_ts() { hdr.egress_ts.setInvalid(); }
    action add_latency() {
        hdr.latency.setValid();
        hdr.latency.value = hdr.egress_ts.value[31:0] - hdr.ingress_ts.value[31:0];
    }
    action add_ingress_zero() {
        hdr.ingress_zero.setValid();
        hdr.ingress_zero.value = 0;
    }
    action add_egress_zero() {
        hdr.egress_zero.setValid();
        hdr.egress_zero.value = 0;
    }

    apply {
        report_session.apply();
        do_next_sequence();
        write_headers();
        lengths.apply();
        write_sequence();
        if (hdr.measured.bits & 0x2000 != 0) { add_latency(); }
        if (hdr.measured.bits & 0x4000 == 0) { remove_interfaces(); }
        if (hdr.measured.bits & 0x1000 == 0) { remove_queue(); }
        if (hdr.measured.bits & 0x0800 == 0) { remove_ingress_ts(); } else { add_ingress_zero(); }
        if (hdr.measured.bits & 0x0400 == 0) { remove_egress_ts(); } else { add_egress_zero(); }
    }
}

#endif
