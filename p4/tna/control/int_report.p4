// SPDX-License-Identifier: Apache-2.0 OR MIT
// Report: makes a Telemetry Report 2.0 of the copy of a packet that a sink has received, with its path.

#ifndef TNA_INT_REPORT_P4
#define TNA_INT_REPORT_P4

control Report(inout leaving_t hdr, inout leaving_local_t local, inout bit<3> drops) {
    Session() session;

    action drop() { drops = 1; }

    action begin() {
        hdr.ethernet.setInvalid();
        hdr.report.setValid();
        hdr.report.rep_type = REP_TYPE_INT;
        // The specification's value for a report that ends with its datagram.
        hdr.report.length = 255;
        hdr.report.drop = 0;
        hdr.report.queue = 0;
        hdr.report.flow = 1;
        hdr.report.intermediate = 0;
        hdr.report.rsvd = 0;
        hdr.report.md_bits = hdr.copied.bits;
        hdr.report.ds_id = 0;
        hdr.report.ds_md_bits = 0;
        hdr.report.ds_md_status = 0;
    }

    action begin_v4() {
        begin();
        local.bytes = min(hdr.ipv4.total_len, COPIED_BYTES);
        hdr.report.in_type = IN_TYPE_IPV4;
    }
    action begin_v6() {
        begin();
        local.bytes = hdr.ipv6.payload_len + 40;
        hdr.report.in_type = IN_TYPE_IPV6;
    }
    action limit() { local.bytes = min(local.bytes, COPIED_BYTES); }

    action with_items(bit<8> words, bit<16> udp, bit<16> ip) {
        hdr.report.md_length = words;
        hdr.report_udp.len = local.bytes + udp;
        hdr.report_ipv4.total_len = local.bytes + ip;
    }

    table items {
        key = { hdr.copied.bits : exact; }
        actions = { with_items; @defaultonly drop; }
        const default_action = drop();
        const entries = {
            0x0000 : with_items(0, 28, 48);
            0x4000 : with_items(1, 32, 52);
            0x0800 : with_items(2, 36, 56);
            0x4800 : with_items(3, 40, 60);
        }
        size = 4;
    }

    action remove_interfaces() { hdr.report_interfaces.setInvalid(); }
    action remove_ts() { hdr.report_ts.setInvalid(); }
    action add_zero() {
        hdr.report_zero.setValid();
        hdr.report_zero.value = 0;
    }

    apply {
        session.apply(hdr, local.node, drops);
        if (IS_IPV6) {
            begin_v6();
            limit();
        } else {
            begin_v4();
        }
        items.apply();
        if (hdr.copied.bits & 0x4000 == 0) { remove_interfaces(); }
        if (hdr.copied.bits & 0x0800 == 0) { remove_ts(); } else { add_zero(); }
    }
}

#endif
