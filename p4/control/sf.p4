// SPDX-License-Identifier: Apache-2.0 OR MIT
// SF-INT (wire-formats section 3): packets have a constant size, and each carries one node's record. A node swaps the record with which a
// packet arrives with the one in the register of its flow, by nine rules. An urgent packet collects all records, as in INT-MD.
//
// A register has a tag, the packet's number, its instructions, its age and a word for each word of a record: one access each for a packet.

#ifndef SF_CONTROL_P4
#define SF_CONTROL_P4

/// Whether the stack is what header and mode require.
control SfShape(inout headers_t hdr, inout local_t local) {
    Items() items;
    Remainder() remainder;

    apply {
        items.apply(local.bitmap, local.item_words);
        // Timestamps have eight bytes.
        local.item_words = local.item_words + (bit<8>)local.bitmap[11:11] + (bit<8>)local.bitmap[10:10];
        bit<16> left = (bit<16>)hdr.shim_2.length - (bit<16>)HEADER_WORDS_2;
        bit<16> words = (bit<16>)local.record_words;
        // Every record has a node id, and none a checksum complement, which is of one packet.
        if (hdr.md_2.rsvd & SF_FLAG == 0 || local.state == STATE_EMPTY || local.bitmap & 0x8001 != 0x8000 || hdr.md_2.ds_instruction != 0
                || hdr.md_2.ds_flags != 0 || local.record_words != local.item_words) {
            local.carries_int = 0;
            local.refused = 1;
        } else if (local.is_urgent == 0) {
            if (left != words) {
                local.malformed_stack = 1;
                local.is_plain_node = 1;
            }
        } else {
            remainder.apply(left, words);
            if (left != 0) { local.malformed_stack = 1; }
        }
    }
}

/// Pad1 or PadN of up to seven bytes (RFC 8200, section 4.2).
control WritePadding(inout headers_t hdr, in bit<16> bytes) {
    apply {
        if (bytes == 1) {
            hdr.pad_one.setValid();
            hdr.pad_one.zero = 0;
        } else if (bytes != 0) {
            hdr.pad_n.setValid();
            hdr.pad_n.type = 1;
            hdr.pad_n.length = bytes[7:0] - 2;
            if (bytes > 2) { hdr.pad_zero_1.setValid(); hdr.pad_zero_1.zero = 0; }
            if (bytes > 3) { hdr.pad_zero_2.setValid(); hdr.pad_zero_2.zero = 0; }
            if (bytes > 4) { hdr.pad_zero_3.setValid(); hdr.pad_zero_3.zero = 0; }
            if (bytes > 5) { hdr.pad_zero_4.setValid(); hdr.pad_zero_4.zero = 0; }
            if (bytes > 6) { hdr.pad_zero_5.setValid(); hdr.pad_zero_5.zero = 0; }
        }
    }
}

action remove_padding(inout headers_t hdr) {
    hdr.padding.setInvalid();
    hdr.pad_one.setInvalid();
    hdr.pad_n.setInvalid();
    hdr.pad_zero_1.setInvalid();
    hdr.pad_zero_2.setInvalid();
    hdr.pad_zero_3.setInvalid();
    hdr.pad_zero_4.setInvalid();
    hdr.pad_zero_5.setInvalid();
}

#define REMOVED_WORD(N) if (hdr.words[N].isValid()) { \
        sum = sum + (bit<32>)(hdr.words[N].value[31:16] ^ 0xffff) + (bit<32>)(hdr.words[N].value[15:0] ^ 0xffff); \
    }
#define DROP_WORD(N) hdr.words[N].setInvalid();

/// Adds the sum of a packet's INT to `sum`. A checksum is the complement of a sum: what is removed is added as its complement.
control SfRemoved(in headers_t hdr, inout bit<32> sum) {
    apply {
        bit<32> removed = 0;
        hash(removed, HashAlgorithm.csum16, 32w0,
            { hdr.shim_2.type, hdr.shim_2.npt, hdr.shim_2.rsvd, hdr.shim_2.length, hdr.shim_2.rsvd2, hdr.shim_2.dscp,
              hdr.shim_2.rsvd3, hdr.md_2.version, hdr.md_2.discard, hdr.md_2.hops_exceeded, hdr.md_2.mtu_exceeded,
              hdr.md_2.rsvd, hdr.md_2.hop_ml, hdr.md_2.remaining, hdr.md_2.bitmap, hdr.md_2.ds_id, hdr.md_2.ds_instruction,
              hdr.md_2.ds_flags },
            32w0x10000);
        sum = sum + removed;
        EACH_SF_WORD(REMOVED_WORD)
        if (hdr.stack.isValid()) {
            hash(removed, HashAlgorithm.csum16, 32w0, { hdr.stack.records }, 32w0x10000);
            sum = sum + removed;
        }
    }
}

/// Removes INT, and restores DSCP, lengths and checksums. A hop-by-hop header that has nothing else goes with it.
control SfStrip(inout headers_t hdr, inout local_t local) {
    SfRemoved() removed;
    Lengths() lengths;
    WritePadding() write_padding;

    apply {
        if (hdr.int_option.isValid() && hdr.hop_by_hop.isValid()) {
            bit<16> taken = local.header_bytes;
            if (local.has_others == 1) {
                bit<16> option_bytes = (bit<16>)hdr.int_option.length + 2;
                bit<16> pad = (local.padding_bytes + option_bytes) & 7;
                remove_padding(hdr);
                write_padding.apply(hdr, pad);
                taken = option_bytes + local.padding_bytes - pad;
                hdr.hop_by_hop.length = hdr.hop_by_hop.length - taken[10:3];
                if (pad != 0) { local.begins_with_padding = 1; }
            } else {
                hdr.ipv6.next_header = hdr.hop_by_hop.next_header;
                hdr.hop_by_hop.setInvalid();
                hdr.option_0.setInvalid();
                hdr.option_1.setInvalid();
                hdr.option_2.setInvalid();
                hdr.option_3.setInvalid();
                remove_padding(hdr);
            }
            local.header_bytes = local.header_bytes - taken;
            local.has_option = 0;
            hdr.int_option.setInvalid();
            hdr.ipv6.payload_len = hdr.ipv6.payload_len - taken;
            local.ip_bytes = local.ip_bytes - taken;
        } else if (hdr.shim_2.isValid() && hdr.md_2.isValid()) {
            if (local.has_own_record == 1) {
                local.sum = local.sum + (local.own_sum ^ 0xffff);
            } else {
                removed.apply(hdr, local.sum);
            }
            local.grown = 0 - ((bit<16>)hdr.shim_2.length + 1) * 4;
            local.dscp = hdr.shim_2.dscp;
            hdr.ipv4.dscp = local.dscp;
            hdr.ipv6.dscp = local.dscp;
            local.l4_bytes = local.l4_bytes + local.grown;
            lengths.apply(hdr, local, INT_DSCP);
        }
        hdr.shim_2.setInvalid();
        hdr.md_2.setInvalid();
        hdr.stack.setInvalid();
        hdr.record.node.setInvalid();
        hdr.record.interfaces.setInvalid();
        hdr.record.latency.setInvalid();
        hdr.record.queue.setInvalid();
        hdr.record.ingress_ts.setInvalid();
        hdr.record.egress_ts.setInvalid();
        hdr.record.l2_interfaces.setInvalid();
        hdr.record.utilization.setInvalid();
        hdr.record.buffer.setInvalid();
        hdr.record.rsvd_9.setInvalid();
        hdr.record.rsvd_10.setInvalid();
        hdr.record.rsvd_11.setInvalid();
        hdr.record.rsvd_12.setInvalid();
        hdr.record.rsvd_13.setInvalid();
        hdr.record.rsvd_14.setInvalid();
        EACH_SF_WORD(DROP_WORD)
    }
}

/// Removes the INT of a packet that comes from outside the domain, so that it is like any packet without INT. What would carry INT
/// or its mark after that is refused: one header is removed for each packet at most.
control SfBorder(inout headers_t hdr, inout local_t local) {
    SfStrip() strip;

    apply {
        bit<1> has_option = local.has_option;
        strip.apply(hdr, local);
        local.sum = 0;
        local.carries_int = 0;
        local.malformed_stack = 0;
        local.is_plain_node = 0;
        bit<1> has_body = local.body_bytes != 0 ? 1w1 : 1w0;
        if (has_option == 1) {
            has_body = has_body & local.has_l4;
        } else if (hdr.tcp.isValid() && (bit<16>)hdr.tcp.data_offset * 4 > local.l4_bytes) {
            // The options of TCP may have been in INT.
            local.bad_l4 = 1;
        }
        if (local.has_more_int == 1 || local.bad_length == 1 || (local.dscp == INT_DSCP && has_body == 1)
                || (hdr.udp.isValid() && (hdr.udp.len < 8 || hdr.udp.len > local.l4_bytes))) {
            local.edge_refused = 1;
        } else {
            local.edge_stripped = 1;
        }
    }
}

/// Numbers the packets of each flow. A flow that finds another flow's counter continues from the source's own.
control SfNumber(inout local_t local, out bit<16> packet_id, out bit<1> is_urgent) {
    @name("sf_sent")
    register<bit<16>>(1) sent;
    /// A flow's tag, with a bit that says that there is one.
    @name("sf_counter_tag")
    register<bit<33>>(SF_REGISTERS) counter_tag;
    @name("sf_next")
    register<bit<16>>(SF_REGISTERS) next;
    /// Packets until the next urgent one.
    @name("sf_left")
    register<bit<32>>(SF_REGISTERS) left;

    apply {
        bit<32> index = local.tag & SF_INDEX;
        bit<16> count;
        sent.read(count, 0);
        count = count + 1;
        sent.write(0, count);
        bit<33> stored;
        counter_tag.read(stored, index);
        counter_tag.write(index, 1w1 ++ local.tag);
        next.read(packet_id, index);
        bit<32> until;
        left.read(until, index);
        if (stored != 1w1 ++ local.tag) {
            packet_id = count;
            until = local.settings.urgent_every;
        }
        next.write(index, packet_id + 1);
        until = until - 1;
        is_urgent = 0;
        if (local.settings.urgent_every != 0 && until == 0) {
            is_urgent = 1;
            until = local.settings.urgent_every;
        }
        left.write(index, until);
        if (local.settings.urgent_queue != 0 && local.visit.queue_occupancy >= local.settings.urgent_queue) { is_urgent = 1; }
    }
}

/// Source: inserts SF-INT with this node's own record into watched packets that enter the domain here: over IPv4 behind L4, over IPv6
/// into the hop-by-hop header, before other options.
control SfSource(inout headers_t hdr, inout local_t local) {
    SfNumber() number;
    Record() record;
    Lengths() lengths;
    WritePadding() write_padding;

    bit<16> packet_id = 0;
    bit<1> is_urgent = 0;

    action insert(bit<6> dscp) {
        hdr.shim_2.setValid();
        hdr.shim_2.type = SHIM_2_SF;
        hdr.shim_2.npt = 0;
        hdr.shim_2.rsvd = 0;
        hdr.shim_2.length = HEADER_WORDS_2 + (bit<8>)local.watch.words;
        hdr.shim_2.rsvd2 = 0;
        hdr.shim_2.dscp = dscp;
        hdr.shim_2.rsvd3 = 0;
        hdr.md_2.setValid();
        hdr.md_2.version = INT_VERSION_2;
        hdr.md_2.discard = 0;
        hdr.md_2.hops_exceeded = 0;
        hdr.md_2.mtu_exceeded = 0;
        hdr.md_2.rsvd = 1w1 ++ is_urgent ++ STATE_MEDIUM ++ 8w0;
        hdr.md_2.hop_ml = local.watch.words;
        hdr.md_2.remaining = local.watch.hops == 0 ? 8w0 : local.watch.hops - 1;
        hdr.md_2.bitmap = local.watch.bitmap;
        hdr.md_2.ds_id = packet_id;
        hdr.md_2.ds_instruction = 0;
        hdr.md_2.ds_flags = 0;
        local.carries_int = 1;
        local.has_own_record = 1;
        local.own_bitmap = local.watch.bitmap;
        local.bitmap = local.watch.bitmap;
        local.record_words = (bit<8>)local.watch.words;
        local.is_urgent = is_urgent;
        local.state = STATE_MEDIUM;
        local.outcome = COUNT_RECORDED;
    }

    /// A packet has a hop-by-hop header now: L4 follows that.
    action move_l4() {
        hdr.hop_by_hop.setValid();
        hdr.hop_by_hop.next_header = hdr.ipv6.next_header;
        hdr.ipv6.next_header = PROTO_HOP_BY_HOP;
        hdr.behind_udp = hdr.udp;
        hdr.behind_tcp = hdr.tcp;
        hdr.udp.setInvalid();
        hdr.tcp.setInvalid();
    }

    apply {
        number.apply(local, packet_id, is_urgent);
        bit<16> bytes = SOURCE_BYTES_2 + (bit<16>)local.watch.words * 4;
        bit<32> unused = 0;
        if (hdr.ipv6.isValid()) {
            bit<16> fixed = hdr.hop_by_hop.isValid() ? 16w2 : 16w4;
            bit<16> len = (fixed + bytes + 7) & 0xfff8;
            if (hdr.hop_by_hop.isValid() && (local.begins_with_padding == 1 || hdr.options_rest.isValid() || local.header_bytes + len > 2048)) {
                local.outcome = COUNT_NOT_RESTORABLE;
            } else if (local.ip_bytes + len > local.visit.mtu) {
                local.outcome = COUNT_MTU_EXCEEDED;
            } else {
                insert(0);
                record.apply(hdr.record, local.visit, local.node, local.watch.bitmap, local.available, 0, unused);
                hdr.int_option.setValid();
                hdr.int_option.type = OPTION_INT;
                hdr.int_option.length = bytes[7:0];
                if (hdr.hop_by_hop.isValid()) {
                    hdr.hop_by_hop.length = hdr.hop_by_hop.length + len[10:3];
                } else {
                    if (hdr.udp.isValid()) { local.body_bytes = local.body_bytes + 8; }
                    if (hdr.tcp.isValid()) { local.body_bytes = local.body_bytes + 20; }
                    move_l4();
                    hdr.hop_by_hop.length = len[10:3] - 1;
                    local.header_bytes = 0;
                    local.has_others = 0;
                }
                local.header_bytes = local.header_bytes + len;
                local.padding_bytes = len - fixed - bytes;
                local.has_option = 1;
                write_padding.apply(hdr, local.padding_bytes);
                hdr.ipv6.payload_len = hdr.ipv6.payload_len + len;
                local.ip_bytes = local.ip_bytes + len;
            }
        } else if (local.ip_bytes + bytes > local.visit.mtu) {
            local.outcome = COUNT_MTU_EXCEEDED;
        } else if (hdr.ipv4.checksum == 0xffff || (hdr.tcp.isValid() && hdr.tcp.checksum == 0xffff)) {
            // The packet is the same again after a sink: no checksum is the other form of zero, which no update yields.
            local.outcome = COUNT_NOT_RESTORABLE;
        } else {
            bit<6> dscp = local.dscp;
            insert(dscp);
            // The first word of the metadata header, as far as it is not 0.
            local.sum = local.sum + (bit<32>)(SHIM_2_SF ++ 4w0 ++ hdr.shim_2.length) + (bit<32>)(dscp ++ 2w0)
                + (bit<32>)(INT_VERSION_2 ++ 3w0 ++ 1w1 ++ is_urgent ++ STATE_MEDIUM ++ 5w0)
                + (bit<32>)(hdr.md_2.hop_ml ++ hdr.md_2.remaining) + (bit<32>)hdr.md_2.bitmap + (bit<32>)packet_id;
            record.apply(hdr.record, local.visit, local.node, local.watch.bitmap, local.available, 0, local.sum);
            local.own_sum = (local.sum & 0xffff) + (local.sum >> 16);
            local.own_sum = (local.own_sum & 0xffff) + (local.own_sum >> 16);
            hdr.ipv4.dscp = INT_DSCP;
            local.grown = bytes;
            lengths.apply(hdr, local, dscp);
        }
    }
}

#define REGISTER_WORD(N) register<bit<32>>(SF_REGISTERS) sf_word_##N;
#define SWAP_WORD(N) if (hdr.words[N].isValid()) { \
        sf_word_##N.read(stored, index); \
        sf_word_##N.write(index, hdr.words[N].value); \
        if (forward != FORWARD_REGISTER) { stored = hdr.words[N].value; } \
        local.sum = local.sum + (bit<32>)(hdr.words[N].value[31:16] ^ 0xffff) + (bit<32>)(hdr.words[N].value[15:0] ^ 0xffff) \
            + (bit<32>)stored[31:16] + (bit<32>)stored[15:0]; \
        hdr.words[N].value = stored; \
    }
#define REPLACE_WORD(N) if (hdr.words[N].isValid()) { \
        sf_word_##N.write(index, hdr.words[N].value); \
        local.sum = local.sum + (bit<32>)(hdr.words[N].value[31:16] ^ 0xffff) + (bit<32>)(hdr.words[N].value[15:0] ^ 0xffff); \
        hdr.words[N].setInvalid(); \
    }

/// Transit of a packet that is not urgent. Its size does not change.
control SfSwap(inout headers_t hdr, inout local_t local) {
    Record() record;

    @name("sf_tag")
    register<bit<32>>(SF_REGISTERS) tag;
    @name("sf_packet_id")
    register<bit<16>>(SF_REGISTERS) packet_id;
    @name("sf_bitmap")
    register<bit<16>>(SF_REGISTERS) bitmap;
    @name("sf_state")
    register<bit<2>>(SF_REGISTERS) state;
    @name("sf_since")
    register<bit<64>>(SF_REGISTERS) since;
    EACH_SF_WORD(REGISTER_WORD)
    @name("sf_rules") counter(SF_RULES, CounterType.packets) applied;

    bit<2> stored_state = STATE_EMPTY;
    bit<4> number = 0;
    bit<2> forward = FORWARD_ARRIVAL;
    bit<2> state_after = STATE_LOW;
    bit<2> keep = STATE_EMPTY;

    /// `sends`: which record leaves, and in which state; `keeps`: the state in which the arriving one is stored, or that it is not.
    @name("sf_rule") @id(0x01000031)
    action sf_rule(@id(1) bit<4> rule, @id(2) bit<2> sends, @id(3) bit<2> sends_state, @id(4) bit<2> keeps) {
        number = rule;
        forward = sends;
        state_after = sends_state;
        keep = keeps;
    }

    @name("sf_rules") @id(0x02000031)
    table rules {
        key = {
            local.state : exact @name("arrival");
            stored_state : exact @name("register");
        }
        actions = { sf_rule; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            SF_RULE_ENTRIES
        }
    }

    apply {
        if (local.remaining == 0) {
            local.outcome = COUNT_HOPS_EXCEEDED;
            applied.count(0);
            if (hdr.md_2.hops_exceeded == 0) { local.sum = local.sum + 0x0400; }
            hdr.md_2.hops_exceeded = 1;
        } else {
            bit<32> index = local.tag & SF_INDEX;
            bit<32> stored_tag;
            bit<16> stored_id;
            bit<16> stored_bitmap;
            bit<64> stored_since;
            bit<2> is_there;
            tag.read(stored_tag, index);
            packet_id.read(stored_id, index);
            bitmap.read(stored_bitmap, index);
            since.read(stored_since, index);
            state.read(is_there, index);
            // If the clock was set back, the age is 0.
            bit<64> age = local.visit.egress_ts >= stored_since ? local.visit.egress_ts - stored_since : 0;
            if (stored_tag == local.tag && stored_bitmap == local.bitmap && age <= local.settings.aging) { stored_state = is_there; }
            rules.apply();
            applied.count((bit<32>)number);
            state.write(index, keep);
            bit<16> arrived_id = hdr.md_2.ds_id;
            if (keep != STATE_EMPTY) {
                tag.write(index, local.tag);
                packet_id.write(index, arrived_id);
                bitmap.write(index, local.bitmap);
                since.write(index, local.visit.egress_ts);
            }
            if (forward == FORWARD_LOCAL) {
                EACH_SF_WORD(REPLACE_WORD)
                record.apply(hdr.record, local.visit, local.node, local.bitmap, local.available, 0, local.sum);
                hdr.md_2.remaining = hdr.md_2.remaining - 1;
                local.sum = local.sum + 0xfffe;
                local.outcome = COUNT_RECORDED;
            } else {
                local.outcome = COUNT_SWAPPED;
                if (keep != STATE_EMPTY) {
                    bit<32> stored;
                    EACH_SF_WORD(SWAP_WORD)
                }
            }
            if (forward == FORWARD_REGISTER) { hdr.md_2.ds_id = stored_id; }
            hdr.md_2.rsvd = hdr.md_2.rsvd[11:10] ++ state_after ++ hdr.md_2.rsvd[7:0];
            local.sum = local.sum + (bit<32>)(arrived_id ^ 0xffff) + (bit<32>)hdr.md_2.ds_id
                + (bit<32>)((9w0 ++ local.state ++ 5w0) ^ 0xffff) + (bit<32>)(9w0 ++ state_after ++ 5w0);
        }
    }
}

/// Transit of an urgent packet: adds this node's record before all others, as in INT-MD.
control SfPush(inout headers_t hdr, inout local_t local) {
    Record() record;
    WritePadding() write_padding;

    apply {
        bit<16> more = (bit<16>)local.record_words * 4;
        bit<16> room = (bit<16>)hdr.shim_2.length + (bit<16>)local.record_words;
        bit<1> has_room = 0;
        if (local.has_option == 1) {
            // An option has up to 255 bytes, and its header up to 256 units.
            has_room = room <= 62 && local.header_bytes + more + 8 <= 2048 ? 1w1 : 1w0;
        } else {
            has_room = room <= 255 ? 1w1 : 1w0;
        }
        if (local.remaining == 0) {
            local.outcome = COUNT_HOPS_EXCEEDED;
            if (hdr.md_2.hops_exceeded == 0) { local.sum = local.sum + 0x0400; }
            hdr.md_2.hops_exceeded = 1;
            more = 0;
        } else if (local.ip_bytes + more > local.visit.mtu || has_room == 0) {
            local.outcome = COUNT_MTU_EXCEEDED;
            if (hdr.md_2.mtu_exceeded == 0) { local.sum = local.sum + 0x0200; }
            hdr.md_2.mtu_exceeded = 1;
            more = 0;
        } else {
            local.outcome = COUNT_RECORDED;
            hdr.shim_2.length = hdr.shim_2.length + local.record_words;
            hdr.md_2.remaining = hdr.md_2.remaining - 1;
            local.sum = local.sum + (bit<32>)local.record_words + 0xfffe;
            record.apply(hdr.record, local.visit, local.node, local.bitmap, local.available, 0, local.sum);
        }
        if (hdr.int_option.isValid() && hdr.hop_by_hop.isValid()) {
            // The header stays a multiple of eight bytes.
            bit<16> pad = (local.padding_bytes - more) & 7;
            bit<16> grown = more + pad - local.padding_bytes;
            remove_padding(hdr);
            write_padding.apply(hdr, pad);
            hdr.int_option.length = hdr.int_option.length + more[7:0];
            local.header_bytes = local.header_bytes + grown;
            hdr.hop_by_hop.length = local.header_bytes[10:3] - 1;
            hdr.ipv6.payload_len = hdr.ipv6.payload_len + grown;
        } else {
            local.grown = more;
        }
    }
}

#define SEE_WORD(N) hdr.seen_words[N] = hdr.words[N];
#define RESTORE_WORD(N) hdr.words[N] = hdr.seen_words[N];

/// Keeps the packet for its report.
action see_sf(inout headers_t hdr) {
    hdr.seen_ipv4 = hdr.ipv4;
    hdr.seen_ipv6 = hdr.ipv6;
    hdr.seen_udp = hdr.udp;
    hdr.seen_tcp = hdr.tcp;
    hdr.seen_hop_by_hop = hdr.hop_by_hop;
    hdr.seen_int_option = hdr.int_option;
    hdr.seen_shim_2 = hdr.shim_2;
    hdr.seen_md_2 = hdr.md_2;
    EACH_SF_WORD(SEE_WORD)
    hdr.seen_stack = hdr.stack;
    hdr.seen_padding = hdr.padding;
    hdr.seen_option_0 = hdr.option_0;
    hdr.seen_option_1 = hdr.option_1;
    hdr.seen_option_2 = hdr.option_2;
    hdr.seen_option_3 = hdr.option_3;
}

/// Sink: keeps the packet for its report of the record and of this node's own record, removes INT, and restores the packet.
control SfSink(inout headers_t hdr, inout local_t local) {
    SfStrip() strip;

    apply {
        if (local.malformed_stack == 0) {
            see_sf(hdr);
            bit<16> snap = local.body_bytes < 8 ? local.body_bytes : 8;
            local.is_reported = 1;
            local.outcome = COUNT_REPORTED;
            local.report_bytes = local.ip_bytes - local.body_bytes + snap;
            local.report_bits = local.bitmap & local.available & REPORTABLE;
            if (local.settings.is_compact == 1 && local.is_urgent == 0) {
                local.is_compact = 1;
                local.report_bytes = 12 + (bit<16>)local.record_words * 4;
            }
        }
        strip.apply(hdr, local);
    }
}

#endif
