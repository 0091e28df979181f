// SPDX-License-Identifier: Apache-2.0 OR MIT
// Tracker: the sequences of essential reports (wire-formats 5.8). A number that is due is accepted when its report was executed, or can never
// be; one that was received before is a duplicate; after a gap the reporter gets a NACK, and later another one, until the gap is given up.
// A reporter that begins again is recognised by eight numbers in a row that are far behind, or by a silence.

#ifndef DTA_TRACKER_P4
#define DTA_TRACKER_P4

/// Reports that a reporter keeps: an older number is not a duplicate. And numbers in a row that mean that it began again.
const bit<16> TRACKED_WINDOW = 256;
const bit<8> RESTART_RUN = 8;
/// Microseconds without new numbers, and without a NACK that asked for them, after which numbers in a row are no duplicates either.
const bit<48> CALM = 250000;
/// One ACK for so many accepted reports.
const bit<8> ACK_EVERY = 64;

const bit<2> IS_DUE = 0;
const bit<2> IS_DUPLICATE = 1;
const bit<2> IS_GAP = 2;

/// When the reporter's last report arrived; 0: never.
register<bit<48>>(DTA_REPORTERS) seen_at;
/// Bit 16: there is one; the last number in order.
register<bit<17>>(DTA_REPORTERS) last_of;
/// NACKs for the gap after it, and when the last one was sent; 0: never.
register<bit<8>>(DTA_REPORTERS) nacks_of;
register<bit<48>>(DTA_REPORTERS) nacked_at;
/// A number that was due was refused since the last NACK for a gap: later ones are there because of that.
register<bit<1>>(DTA_REPORTERS) refused_of;
/// Numbers in a row that are behind: how many, the first, the next one, when the last one arrived, and whether nothing else explains them.
register<bit<8>>(DTA_REPORTERS) run_of;
register<bit<16>>(DTA_REPORTERS) run_first;
register<bit<16>>(DTA_REPORTERS) run_next;
register<bit<48>>(DTA_REPORTERS) run_at;
register<bit<1>>(DTA_REPORTERS) run_calm;
/// Accepted since the last ACK.
register<bit<8>>(DTA_REPORTERS) accepted_of;

/// `verdict`: due, a duplicate, or after a gap, for which a NACK may be due. Changes the state but for `last` of a number that is due.
control Classify(in bit<32> index, in bit<16> sequence, in bit<48> now, in bit<48> idle, in bit<48> interval, in bit<8> limit,
        out bit<2> verdict, out bit<1> nacks, out bit<16> lost, out bit<1> restarts) {
    apply {
        verdict = IS_DUE;
        nacks = 0;
        lost = 0;
        restarts = 0;
        bit<17> last;
        bit<48> seen;
        bit<8> sent;
        bit<48> at;
        last_of.read(last, index);
        seen_at.read(seen, index);
        nacks_of.read(sent, index);
        nacked_at.read(at, index);
        bit<16> ahead = sequence - last[15:0];
        bit<48> silence = now - seen;
        if (ahead == 1 || last[16:16] == 0) {
            seen_at.write(index, now);
        } else if (ahead == 0 && silence < idle) {
            seen_at.write(index, now);
            verdict = IS_DUPLICATE;
        } else if (ahead == 0 || ahead > 0x7fff) {
            bit<8> run;
            bit<16> first;
            bit<16> next;
            bit<48> run_seen;
            bit<1> was_calm;
            run_of.read(run, index);
            run_first.read(first, index);
            run_next.read(next, index);
            run_at.read(run_seen, index);
            run_calm.read(was_calm, index);
            bit<1> is_far = 0 - ahead >= TRACKED_WINDOW ? 1w1 : 1w0;
            bit<1> is_calm = ((at == 0 || now - at >= idle) && silence >= CALM) ? 1w1 : 1w0;
            bit<1> in_a_row = (next - sequence <= 1 && (is_far == 1 || is_calm == was_calm)) ? 1w1 : 1w0;
            if (run == 0 || now - run_seen >= idle || sequence - first >= TRACKED_WINDOW) {
                run = 0;
                first = sequence;
            }
            if (run == 0 || in_a_row == 0) { run = 1; } else if (run != 255) { run = run + 1; }
            run_calm.write(index, is_calm);
            run_at.write(index, now);
            run_next.write(index, sequence + 1);
            run_first.write(index, first);
            if ((run >= RESTART_RUN && (is_far == 1 || is_calm == 1)) || silence >= idle) {
                // The reporter still has the reports that were taken for duplicates.
                restarts = 1;
                last_of.write(index, 1w1 ++ (first - 1));
                seen_at.write(index, now);
                refused_of.write(index, 0);
                run = 0;
                if (first == sequence) {
                    nacks_of.write(index, 0);
                } else {
                    nacks_of.write(index, 1);
                    nacked_at.write(index, now);
                    verdict = IS_GAP;
                    nacks = 1;
                }
            } else {
                verdict = IS_DUPLICATE;
            }
            run_of.write(index, run);
        } else {
            seen_at.write(index, now);
            run_of.write(index, 0);
            // Each NACK waits four times as long as the one before.
            bit<8> waits = sent == 0 ? 8w0 : (sent > 4 ? 8w3 : sent - 1);
            bit<48> wait = interval << (waits << 1);
            verdict = IS_GAP;
            if (sent == 0 || now - at >= wait) {
                bit<1> refused;
                refused_of.read(refused, index);
                if (sent >= limit && refused == 0) {
                    last_of.write(index, 1w1 ++ (sequence - 1));
                    nacks_of.write(index, 0);
                    lost = ahead - 1;
                    verdict = IS_DUE;
                } else {
                    nacks_of.write(index, sent == 255 ? sent : sent + 1);
                    refused_of.write(index, 0);
                    nacked_at.write(index, now);
                    nacks = 1;
                }
            }
        }
    }
}

/// Accepts a number that is due. `acks`: an ACK is due.
control Accept(in bit<32> index, in bit<16> sequence, out bit<1> acks) {
    apply {
        bit<8> accepted;
        accepted_of.read(accepted, index);
        accepted = accepted + 1 == ACK_EVERY ? 8w0 : accepted + 1;
        accepted_of.write(index, accepted);
        last_of.write(index, 1w1 ++ sequence);
        nacks_of.write(index, 0);
        refused_of.write(index, 0);
        run_of.write(index, 0);
        acks = accepted == 0 ? 1w1 : 1w0;
    }
}

/// Does not accept a number that is due: the reporter will send it again. `nacks`: a NACK is due.
control Refuse(in bit<32> index, in bit<16> sequence, in bit<48> now, in bit<48> interval, out bit<1> nacks) {
    apply {
        bit<17> last;
        bit<48> at;
        last_of.read(last, index);
        nacked_at.read(at, index);
        if (last[16:16] == 0) { last_of.write(index, 1w1 ++ (sequence - 1)); }
        nacks_of.write(index, 1);
        refused_of.write(index, 1);
        nacks = (at == 0 || now - at >= interval) ? 1w1 : 1w0;
        if (nacks == 1) { nacked_at.write(index, now); }
    }
}

/// A message to the reporter: the copy of its report, sent back. The second message is a copy of the first.
control Reply(inout translator_headers_t all, inout translator_local_t own, in bit<1> is_first) {
    /// The next number of a message.
    register<bit<16>>(1) messages;

    apply {
        bit<16> number;
        messages.read(number, 0);
        messages.write(0, number + 1);
        if (is_first == 1) {
            bit<48> mac = all.report.ethernet.src;
            all.report.ethernet.src = all.report.ethernet.dst;
            all.report.ethernet.dst = mac;
            bit<32> ours = all.report.ipv4.dst;
            bit<32> its = all.report.ipv4.src;
            all.report.ipv4 = { 4, 5, 0, 0, 44, 0, 2, 0, 64, PROTO_UDP, 0, ours, its };
            all.report.udp = { PORT_DTA, PORT_DTA_CONTROL, 24, 0 };
        }
        bit<32> reporter = all.report.dta.reporter;
        all.report.dta = { 1, OP_CONTROL, 0, 0, 0, 0, number, reporter };
        all.reply.setValid();
        own.report.frame_bytes = 58;
        all.report.udp.len = 24;
        all.report.ipv4.total_len = 44;
        all.reply_number.setInvalid();
        bit<32> last_word = own.tracked.message.number;
        if (own.tracked.message.kind != 0) {
            all.reply = { own.tracked.message.kind, own.tracked.message.code, own.tracked.message.first, own.tracked.message.second, own.tracked.message.third };
        } else {
            all.reply = { own.tracked.next.kind, own.tracked.next.code, own.tracked.next.first, own.tracked.next.second, own.tracked.next.third };
            last_word = own.tracked.next.number;
        }
        if (all.reply.kind >= REPLY_SKETCH_NACK) {
            all.reply_number.setValid();
            all.reply_number.value = last_word;
            all.report.udp.len = 28;
            all.report.ipv4.total_len = 48;
            own.report.frame_bytes = 62;
        }
    }
}

#endif
