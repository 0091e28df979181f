// SPDX-License-Identifier: Apache-2.0 OR MIT
// Lengths and checksums after INT was inserted, extended or removed. Checksums are updated, not computed anew (RFC 1624): a wrong one
// stays wrong. The payload is not needed for this.

#ifndef LENGTHS_P4
#define LENGTHS_P4

/// `was`: the DSCP before; headers have the new one already.
control Lengths(inout headers_t hdr, inout local_t local, in bit<6> was) {
    action fold(inout bit<32> sum) {
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
    }

    apply {
        bit<16> after = local.ip_bytes + local.grown;
        bit<32> lengths = (bit<32>)(local.ip_bytes ^ 0xffff) + (bit<32>)after;
        bit<32> sum;
        if (hdr.ipv4.isValid()) {
            sum = (bit<32>)(hdr.ipv4.checksum ^ 0xffff) + lengths
                + (bit<32>)((8w0 ++ was ++ 2w0) ^ 0xffff) + (bit<32>)(8w0 ++ hdr.ipv4.dscp ++ 2w0);
            fold(sum);
            hdr.ipv4.checksum = sum[15:0] ^ 0xffff;
            hdr.ipv4.total_len = after;
        } else {
            hdr.ipv6.payload_len = hdr.ipv6.payload_len + local.grown;
        }
        // The length is in the pseudo-header; UDP includes it a second time.
        if (hdr.udp.isValid()) {
            hdr.udp.len = hdr.udp.len + local.grown;
            if (hdr.udp.checksum != 0) {
                sum = (bit<32>)(hdr.udp.checksum ^ 0xffff) + lengths + lengths + local.sum;
                fold(sum);
                hdr.udp.checksum = sum[15:0] == 0xffff ? 16w0xffff : sum[15:0] ^ 0xffff;
            }
        } else if (hdr.tcp.isValid()) {
            sum = (bit<32>)(hdr.tcp.checksum ^ 0xffff) + lengths + local.sum;
            fold(sum);
            hdr.tcp.checksum = sum[15:0] ^ 0xffff;
        }
        local.ip_bytes = after;
        local.grown = 0;
        local.sum = 0;
    }
}

/// In a domain whose nodes leave the L4 checksum: puts it back, and sets the checksum complement of the record that this node added, so
/// that the original checksum is correct with the inserted bytes (INT data plane specification 2.1, section 5.7.1, bit 15).
control LeaveChecksum(inout headers_t hdr, in bit<16> original) {
    apply {
        bit<16> updated = 0;
        if (hdr.udp.isValid()) { updated = hdr.udp.checksum; } else if (hdr.tcp.isValid()) { updated = hdr.tcp.checksum; }
        // A packet without a checksum needs no complement.
        if (hdr.record.complement.isValid() && (hdr.tcp.isValid() || original != 0)) {
            bit<32> sum = (bit<32>)updated + (bit<32>)(original ^ 0xffff);
            hdr.record.complement.value = (sum & 0xffff) + (sum >> 16);
        }
        if (hdr.udp.isValid()) { hdr.udp.checksum = original; }
        if (hdr.tcp.isValid()) { hdr.tcp.checksum = original; }
    }
}

#endif
