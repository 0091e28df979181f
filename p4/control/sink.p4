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
    hdr.seen_hop_0 = hdr.hop_0;
    hdr.seen_hop_1 = hdr.hop_1;
    hdr.seen_hop_2 = hdr.hop_2;
    hdr.seen_hop_3 = hdr.hop_3;
    hdr.seen_hop_4 = hdr.hop_4;
    hdr.seen_hop_5 = hdr.hop_5;
    hdr.seen_hop_6 = hdr.hop_6;
    hdr.seen_hop_7 = hdr.hop_7;
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
        hdr.hop_0.setInvalid();
        hdr.hop_1.setInvalid();
        hdr.hop_2.setInvalid();
        hdr.hop_3.setInvalid();
        hdr.hop_4.setInvalid();
        hdr.hop_5.setInvalid();
        hdr.hop_6.setInvalid();
        hdr.hop_7.setInvalid();
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
