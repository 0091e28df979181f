// SPDX-License-Identifier: Apache-2.0 OR MIT
// Destination: what a reporter keeps of a collector (wire-formats 5.8): the sequence of essential reports, a ring of the latest ones, from
// which they are sent and sent again, and the level of congestion. One pass sends one report.

#ifndef DTA_DESTINATION_P4
#define DTA_DESTINATION_P4

#define STORE_WORD(n) ring_words.write(((bit<32>)slot << 3) + n, form.word_##n);
#define LOAD_WORD(n) ring_words.read(form.word_##n, ((bit<32>)slot << 3) + n);
#define EACH_REPORT_WORD(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7)

/// The level of congestion that a translator announced, and until when it holds.
register<bit<2>>(REPORTER_COLLECTORS) level_of;
register<bit<64>>(REPORTER_COLLECTORS) level_until;

/// Whether congestion suppresses reports of this priority; translators' notices set it.
control Congestion(in bit<8> collector, in bit<64> now, in bit<2> priority, out bit<1> suppresses) {
    apply {
        bit<2> level;
        bit<64> until;
        level_of.read(level, (bit<32>)collector);
        level_until.read(until, (bit<32>)collector);
        suppresses = (level != 0 && now < until && (priority == 0 || (priority == 1 && level >= 2))) ? 1w1 : 1w0;
    }
}

/// `stores`: the report in `form` is a new essential one. Afterwards `sends`: that in `form` is to be sent, with this sequence.
control Destination(inout local_t local, inout form_t form, in dta_message_t message, in bit<64> now, in bit<1> stores, in bit<16> first_sequence,
        in bit<64> patience, in bit<64> probe, out bit<1> sends, out bit<16> sequence) {
    /// The next essential report, counted from the first, and what the numbers on the wire are more than that.
    register<bit<16>>(REPORTER_COLLECTORS) next_of;
    register<bit<16>>(REPORTER_COLLECTORS) shift_of;
    /// All essential reports, and those in the ring.
    register<bit<64>>(REPORTER_COLLECTORS) essential_of;
    register<bit<16>>(REPORTER_COLLECTORS) buffered_of;
    /// Bit 16: there is one; the first report to send or send again. Those before `fresh` were sent once.
    register<bit<17>>(REPORTER_COLLECTORS) unsent_of;
    register<bit<16>>(REPORTER_COLLECTORS) fresh_of;
    /// The last NACK that was heeded: when, and for which number (bit 16: there was one).
    register<bit<64>>(REPORTER_COLLECTORS) heeded_at;
    register<bit<17>>(REPORTER_COLLECTORS) heeded_of;
    /// When the allowance for retransmissions is whole again.
    register<bit<64>>(REPORTER_COLLECTORS) spent_until;
    /// The translator has named a number of ours.
    register<bit<1>>(REPORTER_COLLECTORS) confirmed_of;
    register<bit<64>>(REPORTER_COLLECTORS) unavailable_before;
    register<bit<64>>(REPORTER_COLLECTORS) unavailable;
    register<bit<64>>(REPORTER_COLLECTORS) translator_drops;
    /// When the last report is sent again, and how often still.
    register<bit<64>>(REPORTER_COLLECTORS) probe_at;
    register<bit<8>>(REPORTER_COLLECTORS) probe_left;
    /// Until then only one report is sent again, because the translator was full.
    register<bit<64>>(REPORTER_COLLECTORS) waits_until;
    /// Opcode, flags, lengths and copies; store or list; key; data.
    register<bit<39>>(REPORTER_COLLECTORS * WINDOW) ring_heads;
    register<bit<32>>(REPORTER_COLLECTORS * WINDOW) ring_ids;
    register<bit<128>>(REPORTER_COLLECTORS * WINDOW) ring_keys;
    register<bit<32>>(REPORTER_COLLECTORS * WINDOW * REPORT_WORDS) ring_words;
    @name("collectors") counter(REPORTER_COLLECTORS * 16, CounterType.packets) collectors;

    bit<32> c = (bit<32>)local.reporter.collector;
    bit<32> counts = c << 4;
    bit<16> next = 0;
    bit<16> shift = 0;
    bit<64> essential = 0;
    bit<16> buffered = 0;
    bit<17> unsent = 0;
    bit<16> fresh = 0;
    bit<64> waits = 0;
    bit<32> slot = 0;
    bit<1> is_overload = 0;

    action choose_slot(bit<16> index) {
        slot = (c << 8) + (bit<32>)index[7:0];
    }

    action load() {
        bit<39> head;
        ring_heads.read(head, slot);
        form.opcode = head[38:35];
        form.immediate = head[34:34];
        form.priority = head[33:32];
        form.key_bytes = head[31:24];
        form.words = head[23:16];
        form.copies = head[15:8];
        form.path_len = head[7:0];
        ring_ids.read(form.id, slot);
        ring_keys.read(form.key, slot);
        EACH_REPORT_WORD(LOAD_WORD)
        sends = 1;
    }

    action store() {
        ring_heads.write(slot, form.opcode ++ form.immediate ++ form.priority ++ form.key_bytes ++ form.words ++ form.copies ++ form.path_len);
        ring_ids.write(slot, form.id);
        ring_keys.write(slot, form.key);
        EACH_REPORT_WORD(STORE_WORD)
    }

    action begin_probes(bit<8> times) {
        probe_at.write(c, now + probe);
        probe_left.write(c, times);
    }

    apply {
        sends = 0;
        sequence = 0;
        next_of.read(next, c);
        shift_of.read(shift, c);
        shift = shift + first_sequence;
        essential_of.read(essential, c);
        buffered_of.read(buffered, c);
        unsent_of.read(unsent, c);
        fresh_of.read(fresh, c);
        waits_until.read(waits, c);
        bit<1> confirmed;
        confirmed_of.read(confirmed, c);
        if (stores == 1) {
            choose_slot(next);
            store();
            // The slot's report before it is lost if it was not sent.
            if (unsent == 1w1 ++ (next - WINDOW)) {
                if (fresh == unsent[15:0]) {
                    collectors.count(counts + (bit<32>)OF_OVERWRITTEN);
                    fresh = fresh + 1;
                }
                unsent = unsent[15:0] + 1 == next ? 17w0 : 1w1 ++ (unsent[15:0] + 1);
            }
            if (buffered < WINDOW) { buffered = buffered + 1; }
            if (unsent[16:16] == 0) { unsent = 1w1 ++ next; }
            next = next + 1;
            essential = essential + 1;
            begin_probes(probe != 0 ? PROBES : 0);
            local.reporter.pumps = 1;
        } else if (local.reporter.is_control == 1) {
            bit<16> last = message.last;
            bit<16> missing = next + shift - last - 1;
            if (message.kind == CONTROL_ACK) {
                collectors.count(counts + (bit<32>)OF_ACKS);
                if ((bit<64>)missing >= essential) {
                    collectors.count(counts + (bit<32>)OF_UNBELIEVED);
                } else {
                    confirmed = 1;
                    if (missing == 0) {
                        probe_at.write(c, NEVER);
                        probe_left.write(c, 0);
                    }
                }
            } else if (message.kind == CONTROL_CONGESTION) {
                collectors.count(counts + (bit<32>)OF_CONGESTIONS);
                bit<64> drops;
                translator_drops.read(drops, c);
                translator_drops.write(c, drops + (bit<64>)message.dropped);
                level_of.write(c, message.code[1:0]);
                if (message.code == 0) { waits = 0; }
                bit<32> hold = message.hold > HOLD_MOST ? HOLD_MOST : message.hold;
                level_until.write(c, now + (bit<64>)hold * 1000);
            } else if (message.code == NACK_MALFORMED || message.code == NACK_UNKNOWN) {
                collectors.count(counts + (bit<32>)OF_REFUSED);
            } else {
                bit<17> heeded;
                bit<64> at;
                bit<64> spent;
                heeded_of.read(heeded, c);
                heeded_at.read(at, c);
                spent_until.read(spent, c);
                bit<64> passed = now > at ? now - at : 0;
                bit<1> is_sent = (bit<64>)missing <= essential ? 1w1 : 1w0;
                is_overload = message.code == NACK_OVERLOAD ? 1w1 : 1w0;
                bit<16> repeated = missing < buffered ? missing : buffered;
                if (is_overload == 1) { repeated = 1; }
                // Later than possible: the clock was set back.
                bit<64> begun = spent > now + ALLOWANCE ? now : spent;
                bit<64> after = (begun > now ? begun : now) + (bit<64>)repeated * RETRANSMISSION;
                if ((heeded == 1w1 ++ last && passed < patience) || missing == 0 || missing >= 0x8000) {
                    collectors.count(counts + (bit<32>)OF_EARLY);
                    is_overload = 0;
                } else if (is_sent == 0 && confirmed == 1) {
                    collectors.count(counts + (bit<32>)OF_UNBELIEVED);
                    is_overload = 0;
                } else if (after > now + ALLOWANCE) {
                    spent_until.write(c, begun);
                    collectors.count(counts + (bit<32>)OF_LIMITED);
                    is_overload = 0;
                } else {
                    spent_until.write(c, after);
                    collectors.count(counts + (bit<32>)OF_NACKS);
                    heeded_at.write(c, now);
                    heeded_of.write(c, 1w1 ++ last);
                    confirmed = 1;
                    if (is_sent == 0) {
                        // The translator goes on with the numbers of an earlier reporter: those stored follow its last one.
                        collectors.count(counts + (bit<32>)OF_RENUMBERED);
                        shift = last + 1 - (next - buffered);
                        missing = essential > 0xffff ? 16w0xffff : essential[15:0];
                    }
                    bit<64> from;
                    unavailable_before.read(from, c);
                    bit<64> wanted = essential > (bit<64>)missing ? essential - (bit<64>)missing : 0;
                    if (wanted > from) { from = wanted; }
                    bit<64> to = essential - (bit<64>)buffered;
                    if (to > from) {
                        bit<64> lost;
                        unavailable.read(lost, c);
                        unavailable.write(c, lost + (to - from));
                        from = to;
                    }
                    bit<64> before;
                    unavailable_before.read(before, c);
                    if (to > before) { unavailable_before.write(c, to); }
                    if (buffered != 0) { unsent = 1w1 ++ (next - (missing < buffered ? missing : buffered)); }
                    if (probe != 0) { begin_probes(PROBES); }
                    waits = 0;
                    local.reporter.pumps = 1;
                }
            }
        }
        if (local.reporter.pumps == 1 || local.reporter.ticks == 1) {
            bit<16> chosen = unsent[15:0];
            if (unsent[16:16] == 1 && now >= waits) {
                choose_slot(chosen);
                load();
                if (chosen == fresh) {
                    fresh = fresh + 1;
                } else {
                    collectors.count(counts + (bit<32>)OF_RETRANSMITTED);
                }
                unsent = chosen + 1 == next ? 17w0 : 1w1 ++ (chosen + 1);
            } else if (local.reporter.ticks == 1 && unsent[16:16] == 0 && buffered != 0) {
                bit<64> due;
                bit<8> left;
                probe_at.read(due, c);
                probe_left.read(left, c);
                if (left != 0 && now >= due) {
                    chosen = next - 1;
                    choose_slot(chosen);
                    load();
                    collectors.count(counts + (bit<32>)OF_PROBES);
                    probe_at.write(c, now + (probe << (PROBES - left + 1)));
                    probe_left.write(c, left - 1);
                }
                local.reporter.ticks = 0;
            } else {
                local.reporter.ticks = 0;
            }
            if (sends == 1) { sequence = chosen + shift; }
            if (is_overload == 1) {
                bit<2> level;
                bit<64> until;
                level_of.read(level, c);
                level_until.read(until, c);
                waits = level == 3 ? until : 0;
                if (waits < now + OVERLOAD_LEAST) { waits = now + OVERLOAD_LEAST; }
                if (waits > now + OVERLOAD_MOST) { waits = now + OVERLOAD_MOST; }
            }
            local.reporter.pumps = (unsent[16:16] == 1 && now >= waits) ? 1w1 : 1w0;
        }
        next_of.write(c, next);
        shift_of.write(c, shift - first_sequence);
        essential_of.write(c, essential);
        buffered_of.write(c, buffered);
        unsent_of.write(c, unsent);
        fresh_of.write(c, fresh);
        waits_until.write(c, waits);
        confirmed_of.write(c, confirmed);
    }
}

#endif
