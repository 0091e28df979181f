// SPDX-License-Identifier: Apache-2.0 OR MIT
// Report: makes a Telemetry Report 2.0 of the copy of a packet, which has the items in front of it: this node's record (a postcard), or
// the packet's drop. As `control/report.p4`, but cut where the mirror session cuts, which depends only on the kind of its headers.

#ifndef TNA_POSTCARD_REPORT_P4
#define TNA_POSTCARD_REPORT_P4

control Report(inout leaving_t hdr, inout leaving_local_t local, inout bit<3> drops) {
    Session() session;

    action drop() { drops = 1; }

    action write_headers() {
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
        session.apply(hdr, local.node, drops);
        write_headers();
        lengths.apply();
        if (hdr.measured.bits & 0x2000 != 0) { add_latency(); }
        if (hdr.measured.bits & 0x4000 == 0) { remove_interfaces(); }
        if (hdr.measured.bits & 0x1000 == 0) { remove_queue(); }
        if (hdr.measured.bits & 0x0800 == 0) { remove_ingress_ts(); } else { add_ingress_zero(); }
        if (hdr.measured.bits & 0x0400 == 0) { remove_egress_ts(); } else { add_egress_zero(); }
    }
}

#endif
