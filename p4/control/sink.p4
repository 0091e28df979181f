// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sink: keeps the packet as it arrived for its report, removes INT, and restores DSCP, lengths and checksums.

#ifndef SINK_P4
#define SINK_P4

/// Keeps the packet for its report.
action see(inout headers_t hdr) {
    hdr.seen_ipv4 = hdr.ipv4;
    hdr.seen_ipv6 = hdr.ipv6;
    hdr.seen_udp = hdr.udp;
    hdr.seen_tcp = hdr.tcp;
    hdr.seen_shim_10 = hdr.shim_10;
    hdr.seen_shim_2 = hdr.shim_2;
    hdr.seen_md_10 = hdr.md_10;
    hdr.seen_md_2 = hdr.md_2;
    hdr.seen_stack = hdr.stack;
}

/// Removes INT; `local.sum` has the sum of it already.
control Strip(inout headers_t hdr, inout local_t local) {
    apply {
        if (hdr.shim_10.isValid()) {
            local.grown = 0 - (bit<16>)hdr.shim_10.length * 4;
            local.dscp = hdr.shim_10.dscp;
        } else if (hdr.shim_2.isValid()) {
            local.grown = 0 - ((bit<16>)hdr.shim_2.length + 1) * 4;
            local.dscp = hdr.shim_2.dscp;
        }
        hdr.ipv4.dscp = local.dscp;
        hdr.ipv6.dscp = local.dscp;
        hdr.shim_10.setInvalid();
        hdr.shim_2.setInvalid();
        hdr.md_10.setInvalid();
        hdr.md_2.setInvalid();
        hdr.stack.setInvalid();
    }
}

control Sink(inout headers_t hdr, inout local_t local) {
    Strip() strip;

    apply {
        see(hdr);
        strip.apply(hdr, local);
    }
}

#endif
