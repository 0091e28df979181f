// SPDX-License-Identifier: Apache-2.0 OR MIT
// Source: inserts INT-MD into packets of the watchlist that enter the domain here. The stack is empty at first; the transit control
// then adds this node's record, as at any other node.
//
// The control plane installs: ports to hosts in `source_port`, flows in `watchlist`. Its own reports must not be watched: an entry with
// `watch_nothing` and the highest priority excludes them.

#ifndef SOURCE_P4
#define SOURCE_P4

control Source(inout headers_t hdr, inout local_t local, in bit<9> ingress_port) {
    action from_edge() {
        local.visit.from_edge = 1;
    }

    @name("source_port") @id(0x02000001)
    table source_port {
        key = { ingress_port : exact @name("ingress_port"); }
        actions = { from_edge; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    bit<1> is_watched = 0;
    bit<1> is_10 = 0;
    bit<8> hops = 0;
    bit<16> bitmap = 0;
    bit<5> hop_ml = 0;

    /// INT-MD 2.1. `hop_ml`: the words of the items of `bitmap`.
    @name("watch_md_21") @id(0x01000001)
    action watch_md_21(@id(1) bit<8> remaining_hops, @id(2) bit<16> instructions, @id(3) bit<5> words) {
        is_watched = 1;
        hops = remaining_hops;
        bitmap = instructions;
        hop_ml = words;
    }

    /// INT-MD 1.0.
    @name("watch_md_10") @id(0x01000002)
    action watch_md_10(@id(1) bit<8> remaining_hops, @id(2) bit<16> instructions, @id(3) bit<5> words) {
        watch_md_21(remaining_hops, instructions, words);
        is_10 = 1;
    }

    @name("watch_nothing") @id(0x01000003)
    action watch_nothing() { }

    @name("watchlist_v4") @id(0x02000002)
    table watchlist_v4 {
        key = {
            hdr.ipv4.src : ternary @name("ipv4_src");
            hdr.ipv4.dst : ternary @name("ipv4_dst");
            local.proto : ternary @name("ip_proto");
            local.dscp : ternary @name("dscp");
            local.src_port : range @name("l4_sport");
            local.dst_port : range @name("l4_dport");
        }
        actions = { watch_md_21; watch_md_10; watch_nothing; }
        const default_action = watch_nothing();
        size = WATCHLIST_SIZE;
    }

    @name("watchlist_v6") @id(0x02000003)
    table watchlist_v6 {
        key = {
            hdr.ipv6.src : ternary @name("ipv6_src");
            hdr.ipv6.dst : ternary @name("ipv6_dst");
            local.proto : ternary @name("ip_proto");
            local.dscp : ternary @name("dscp");
            local.src_port : range @name("l4_sport");
            local.dst_port : range @name("l4_dport");
        }
        actions = { watch_md_21; watch_md_10; watch_nothing; }
        const default_action = watch_nothing();
        size = WATCHLIST_SIZE;
    }

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
        hdr.md_10.hop_ml = hop_ml;
        hdr.md_10.remaining = hops;
        hdr.md_10.bitmap = bitmap;
        hdr.md_10.rsvd2 = 0;
        local.grown = SOURCE_BYTES_10;
    }

    action insert_2() {
        hdr.shim_2.setValid();
        hdr.shim_2.type = SHIM_2_MD;
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
        hdr.md_2.hop_ml = hop_ml;
        hdr.md_2.remaining = hops;
        hdr.md_2.bitmap = bitmap;
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
        local.record_words = (bit<8>)hop_ml;
        local.remaining = hops;
        local.bitmap = bitmap;
    }

    /// `outcome`: a counter, or COUNTS if the packet goes on to the transit.
    apply {
        source_port.apply();
        if (local.visit.from_edge == 1 && local.carries_int == 0 && local.refused == 0 && local.bad_l4 == 0 && (hdr.udp.isValid() || hdr.tcp.isValid())) {
            if (hdr.ipv4.isValid()) {
                watchlist_v4.apply();
            } else {
                watchlist_v6.apply();
            }
            if (is_watched == 1) {
                bit<16> header_bytes = is_10 == 1 ? SOURCE_BYTES_10 : SOURCE_BYTES_2;
                if (local.ip_bytes + header_bytes > local.visit.mtu) {
                    local.outcome = COUNT_MTU_EXCEEDED;
                } else if ((hdr.ipv4.isValid() && hdr.ipv4.checksum == 0xffff) || (hdr.tcp.isValid() && hdr.tcp.checksum == 0xffff)) {
                    local.outcome = COUNT_NOT_RESTORABLE;
                } else {
                    if (is_10 == 1) {
                        insert_10();
                        local.sum = local.sum + (bit<32>)(hdr.shim_10.type ++ hdr.shim_10.rsvd)
                            + (bit<32>)(hdr.shim_10.length ++ hdr.shim_10.dscp ++ hdr.shim_10.rsvd2)
                            + 0x1000 + (bit<32>)hop_ml * 256 + (bit<32>)hops + (bit<32>)bitmap;
                    } else {
                        insert_2();
                        local.sum = local.sum + 0x1000 + (bit<32>)HEADER_WORDS_2 + (bit<32>)(local.dscp ++ 2w0)
                            + 0x2000 + (bit<32>)hop_ml * 256 + (bit<32>)hops + (bit<32>)bitmap;
                    }
                    mark();
                }
            }
        }
    }
}

#endif
