// SPDX-License-Identifier: Apache-2.0 OR MIT
// Source: inserts INT into watched packets that enter the domain here. The stack is empty at first; the transit control then adds this
// node's record, as at any other node.

#ifndef SOURCE_P4
#define SOURCE_P4

control Source(inout headers_t hdr, inout local_t local) {
    action insert_10() {
        hdr.shim_10.setValid();
        hdr.shim_10.type = SHIM_10_HOP_BY_HOP;
        hdr.shim_10.rsvd = 0;
        hdr.shim_10.length = HEADER_WORDS_10;
        hdr.shim_10.dscp = local.dscp;
        hdr.shim_10.rsvd2 = 0;
        hdr.md_10.setValid();
        hdr.md_10.version = INT_VERSION_10;
        hdr.md_10.replication = 0;
        hdr.md_10.copy = 0;
        hdr.md_10.hops_exceeded = 0;
        hdr.md_10.mtu_exceeded = 0;
        hdr.md_10.rsvd = 0;
        hdr.md_10.hop_ml = local.watch.words;
        hdr.md_10.remaining = local.watch.hops;
        hdr.md_10.bitmap = local.watch.bitmap;
        hdr.md_10.rsvd2 = 0;
        local.grown = SOURCE_BYTES_10;
    }

    /// `type`: INT-MD, or INT-MX, which has instructions only.
    action insert_2(bit<4> type) {
        hdr.shim_2.setValid();
        hdr.shim_2.type = type;
        hdr.shim_2.npt = 0;
        hdr.shim_2.rsvd = 0;
        hdr.shim_2.length = HEADER_WORDS_2;
        hdr.shim_2.rsvd2 = 0;
        hdr.shim_2.dscp = local.dscp;
        hdr.shim_2.rsvd3 = 0;
        hdr.md_2.setValid();
        hdr.md_2.version = INT_VERSION_2;
        hdr.md_2.discard = 0;
        hdr.md_2.hops_exceeded = 0;
        hdr.md_2.mtu_exceeded = 0;
        hdr.md_2.rsvd = 0;
        hdr.md_2.hop_ml = local.watch.words;
        hdr.md_2.remaining = local.watch.hops;
        hdr.md_2.bitmap = local.watch.bitmap;
        hdr.md_2.ds_id = 0;
        hdr.md_2.ds_instruction = 0;
        hdr.md_2.ds_flags = 0;
        local.grown = SOURCE_BYTES_2;
    }

    /// The packet is the same again after a sink: no checksum is the other form of zero, which no update yields.
    action mark() {
        hdr.ipv4.dscp = INT_DSCP;
        hdr.ipv6.dscp = INT_DSCP;
        local.carries_int = 1;
        local.record_words = (bit<8>)local.watch.words;
        local.remaining = local.watch.hops;
        local.bitmap = local.watch.bitmap;
    }

    apply {
        bit<1> is_10 = local.watch.mode == WATCH_MD_10 ? 1w1 : 1w0;
        bit<16> header_bytes = is_10 == 1 ? SOURCE_BYTES_10 : SOURCE_BYTES_2;
        if (local.ip_bytes + header_bytes > local.visit.mtu) {
            local.outcome = COUNT_MTU_EXCEEDED;
        } else if ((hdr.ipv4.isValid() && hdr.ipv4.checksum == 0xffff) || (hdr.tcp.isValid() && hdr.tcp.checksum == 0xffff)) {
            local.outcome = COUNT_NOT_RESTORABLE;
        } else {
            bit<32> instructions = (bit<32>)local.watch.words * 256 + (bit<32>)local.watch.hops + (bit<32>)local.watch.bitmap;
            if (is_10 == 1) {
                insert_10();
                local.sum = local.sum + (bit<32>)(hdr.shim_10.type ++ hdr.shim_10.rsvd)
                    + (bit<32>)(hdr.shim_10.length ++ hdr.shim_10.dscp ++ hdr.shim_10.rsvd2) + 0x1000 + instructions;
            } else {
                if (local.watch.mode == WATCH_MX_21) {
                    insert_2(SHIM_2_MX);
                    local.is_mx = 1;
                } else {
                    insert_2(SHIM_2_MD);
                }
                local.sum = local.sum + (bit<32>)(hdr.shim_2.type ++ 12w0) + (bit<32>)HEADER_WORDS_2 + (bit<32>)(local.dscp ++ 2w0)
                    + 0x2000 + instructions;
            }
            mark();
        }
    }
}

#endif
