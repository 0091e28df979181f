// SPDX-License-Identifier: Apache-2.0 OR MIT
// Border: removes the INT of a packet that comes from outside the domain, so that it is like any packet without INT. What would carry INT
// or its mark after that is refused: one header is removed for each packet at most.

#ifndef BORDER_P4
#define BORDER_P4

/// `local.sum` has the sum of what is removed already.
control Border(inout headers_t hdr, inout local_t local) {
    Strip() strip;
    Lengths() lengths;

    apply {
        strip.apply(hdr, local);
        local.l4_bytes = local.l4_bytes + local.grown;
        lengths.apply(hdr, local, INT_DSCP);
        local.carries_int = 0;
        local.is_mx = 0;
        local.malformed_stack = 0;
        local.bitmap = 0;
        local.record_words = 0;
        local.stack_words = 0;
        // The options of TCP may have been in INT.
        if (hdr.tcp.isValid() && (bit<16>)hdr.tcp.data_offset * 4 > local.l4_bytes) { local.bad_l4 = 1; }
        if ((local.dscp == INT_DSCP && local.body_bytes != 0) || (hdr.udp.isValid() && (hdr.udp.len < 8 || hdr.udp.len > local.l4_bytes))) {
            local.edge_refused = 1;
        } else {
            local.edge_stripped = 1;
        }
    }
}

#endif
