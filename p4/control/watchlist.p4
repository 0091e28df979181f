// SPDX-License-Identifier: Apache-2.0 OR MIT
// Watchlist: which flows are measured, and how.
//
// The control plane installs: flows. Its own reports must not be watched: an entry with `watch_nothing` and the highest priority excludes
// them. `drops`: every node reports packets of the flow that it drops.
// `sample`: one packet of so many is measured, all with 0 and 1; `sampler`: a number that no other entry with a `sample` has.

#ifndef WATCHLIST_P4
#define WATCHLIST_P4

/// What a program can do with a flow.
#ifndef WATCH_ACTIONS
#define WATCH_ACTIONS watch_md_21; watch_md_10; watch_mx_21; watch_postcard; watch_nothing;
#endif

control Watchlist(inout headers_t hdr, inout local_t local) {
    /// INT-MD 2.1. `words`: of the items of `instructions`.
    @name("watch_md_21") @id(0x01000001)
    action watch_md_21(@id(1) bit<8> remaining_hops, @id(2) bit<16> instructions, @id(3) bit<5> words, @id(4) bit<1> drops,
            @id(5) bit<32> sample, @id(6) bit<10> sampler) {
        local.watch.mode = WATCH_MD_21;
        local.watch.hops = remaining_hops;
        local.watch.bitmap = instructions;
        local.watch.words = words;
        local.watch.drops = drops;
        local.watch.sample = sample;
        local.watch.sampler = sampler;
    }

    /// INT-MD 1.0.
    @name("watch_md_10") @id(0x01000002)
    action watch_md_10(@id(1) bit<8> remaining_hops, @id(2) bit<16> instructions, @id(3) bit<5> words, @id(4) bit<1> drops,
            @id(5) bit<32> sample, @id(6) bit<10> sampler) {
        watch_md_21(remaining_hops, instructions, words, drops, sample, sampler);
        local.watch.mode = WATCH_MD_10;
    }

    /// INT-MX 2.1: packets carry the instructions, and every node reports its own record.
    @name("watch_mx_21") @id(0x01000005)
    action watch_mx_21(@id(1) bit<16> instructions, @id(2) bit<1> drops, @id(3) bit<32> sample, @id(4) bit<10> sampler) {
        watch_md_21(0, instructions, 0, drops, sample, sampler);
        local.watch.mode = WATCH_MX_21;
    }

    /// Postcards (INT-XD): packets are not changed, and every node that watches the flow reports its own record.
    @name("watch_postcard") @id(0x01000006)
    action watch_postcard(@id(1) bit<16> instructions, @id(2) bit<1> drops, @id(3) bit<32> sample) {
        watch_md_21(0, instructions, 0, drops, sample, 0);
        local.watch.mode = WATCH_POSTCARD;
    }

    /// SF-INT: a packet carries the record of one node.
    @name("watch_sf") @id(0x01000017)
    action watch_sf(@id(1) bit<8> remaining_hops, @id(2) bit<16> instructions, @id(3) bit<5> words, @id(4) bit<32> sample,
            @id(5) bit<10> sampler) {
        watch_md_21(remaining_hops, instructions, words, 0, sample, sampler);
        local.watch.mode = WATCH_SF;
    }

    @name("watch_nothing") @id(0x01000003)
    action watch_nothing() {
        local.watch.mode = WATCH_NOTHING;
        local.watch.drops = 0;
    }

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
        actions = { WATCH_ACTIONS }
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
        actions = { WATCH_ACTIONS }
        const default_action = watch_nothing();
        size = WATCHLIST_SIZE;
    }

    apply {
        local.watch.is_missing = 0;
        if (hdr.ipv4.isValid()) {
            if (!watchlist_v4.apply().hit) { local.watch.is_missing = 1; }
        } else {
            if (!watchlist_v6.apply().hit) { local.watch.is_missing = 1; }
        }
    }
}

#endif
