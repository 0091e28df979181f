// SPDX-License-Identifier: Apache-2.0 OR MIT
// Transit: adds this node's record before all others, if hop count, MTU and the shim's length allow it (INT data plane specification
// 2.1, section 5.7). A node that cannot add everything adds nothing, and sets E or M.

#ifndef TRANSIT_P4
#define TRANSIT_P4

control Transit(inout headers_t hdr, inout local_t local) {
    Record() record;

    apply {
        bit<16> bytes = (bit<16>)local.record_words * 4;
        // The shim counts itself in INT 1.0.
        bit<16> length = 0;
        if (hdr.shim_10.isValid()) { length = (bit<16>)hdr.shim_10.length; } else if (hdr.shim_2.isValid()) { length = (bit<16>)hdr.shim_2.length; }
        if (local.remaining == 0) {
            local.outcome = COUNT_HOPS_EXCEEDED;
            if (hdr.md_10.isValid()) {
                if (hdr.md_10.hops_exceeded == 0) { local.sum = local.sum + 0x0100; }
                hdr.md_10.hops_exceeded = 1;
            } else if (hdr.md_2.isValid()) {
                if (hdr.md_2.hops_exceeded == 0) { local.sum = local.sum + 0x0400; }
                hdr.md_2.hops_exceeded = 1;
            }
        } else if (local.ip_bytes + local.grown + bytes > local.visit.mtu || length + (bit<16>)local.record_words > 255) {
            local.outcome = COUNT_MTU_EXCEEDED;
            if (hdr.md_10.isValid()) {
                if (hdr.md_10.mtu_exceeded == 0) { local.sum = local.sum + 0x0080; }
                hdr.md_10.mtu_exceeded = 1;
            } else if (hdr.md_2.isValid()) {
                if (hdr.md_2.mtu_exceeded == 0) { local.sum = local.sum + 0x0200; }
                hdr.md_2.mtu_exceeded = 1;
            }
        } else {
            local.outcome = COUNT_RECORDED;
            if (hdr.shim_10.isValid() && hdr.md_10.isValid()) {
                hdr.shim_10.length = hdr.shim_10.length + local.record_words;
                hdr.md_10.remaining = hdr.md_10.remaining - 1;
                // The length is the high byte of its word.
                local.sum = local.sum + (bit<32>)(local.record_words ++ 8w0) + 0xfffe;
                record.apply(hdr.record, local.visit, local.node, local.bitmap, local.available, 1, local.sum);
            } else if (hdr.shim_2.isValid() && hdr.md_2.isValid()) {
                hdr.shim_2.length = hdr.shim_2.length + local.record_words;
                hdr.md_2.remaining = hdr.md_2.remaining - 1;
                local.sum = local.sum + (bit<32>)local.record_words + 0xfffe;
                record.apply(hdr.record, local.visit, local.node, local.bitmap, local.available, 0, local.sum);
            }
            local.grown = local.grown + bytes;
        }
    }
}

#endif
