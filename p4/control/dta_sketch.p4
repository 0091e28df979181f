// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sketch: merges the columns of several reporters, and writes them, some at a time. A sketch has two buffers, for even and odd epochs. The
// counters of the first reporter are copied, those of the others merged, so a buffer is never cleared. A pass makes one write at most; the
// packet passes again while another one is due.

#ifndef DTA_SKETCH_P4
#define DTA_SKETCH_P4

/// Largest distance of a new epoch ahead of the newest one.
const bit<16> SKETCH_AHEAD = 8;

const bit<3> EPOCH_IDLE = 0;
const bit<3> EPOCH_OPEN = 1;
/// The rest is being written: all columns are there, or not.
const bit<3> EPOCH_FULL = 2;
const bit<3> EPOCH_PARTIAL = 3;
const bit<3> EPOCH_CLOSED = 4;

// Instances of the counter of sketches.
const bit<32> SKETCHES_COMPLETE = 0;
const bit<32> SKETCHES_PARTIAL = 1;

#define MERGE_WORD(n) if (n < words) { \
    word = all.report.data[n].value; \
    if (n < known) { \
        bit<32> there; \
        counters.read(there, base + n); \
        if (own.sketch.op == SKETCH_SUM) { \
            word = word + there; \
            if (own.sketch.saturates == 1 && word < there) { word = 0xffffffff; } \
        } else if (own.sketch.op == SKETCH_MIN) { \
            if (there < word) { word = there; } \
        } else if (there > word) { \
            word = there; \
        } \
    } \
    counters.write(base + n, word); \
}
/// A counter of 8 bytes, the low half first.
#define MERGE_TWO(n) if (n < words) { \
    bit<64> number = all.report.data[n].value ++ all.report.data[n + 1].value; \
    if (n < known) { \
        bit<32> low; \
        bit<32> high; \
        counters.read(low, base + n); \
        counters.read(high, base + n + 1); \
        bit<64> there = high ++ low; \
        if (own.sketch.op == SKETCH_SUM) { \
            number = number + there; \
            if (own.sketch.saturates == 1 && number < there) { number = 0xffffffffffffffff; } \
        } else if (own.sketch.op == SKETCH_MIN) { \
            if (there < number) { number = there; } \
        } else if (there > number) { \
            number = there; \
        } \
    } \
    counters.write(base + n, number[31:0]); \
    counters.write(base + n + 1, number[63:32]); \
}
#define EACH_TWO(do) do(0) do(2) do(4) do(6) do(8) do(10) do(12) do(14)
/// One more reporter has delivered this column; those that all delivered are a prefix.
#define COUNT_COLUMN(n) if (n < all.sketch.columns) { \
    bit<48> delivered; \
    delivered_of.read(delivered, column + n); \
    bit<16> by = delivered[47:16] == generation ? delivered[15:0] + 1 : 16w1; \
    delivered_of.write(column + n, generation ++ by); \
    if (complete == all.sketch.first + n && (bit<32>)by == own.sketch.reporters) { complete = complete + 1; } \
}
/// Columns that nobody delivered are empty.
#define WRITE_COUNTER(n) if (n < own.report.written) { \
    if (n < known) { counters.read(word, base + n); } else { word = own.sketch.op == SKETCH_MIN ? 32w0xffffffff : 32w0; } \
    all.columns[n].setValid(); \
    all.columns[n].value = SWAPPED(word); \
}
#define SWAPPED(word) (word[7:0] ++ word[15:8] ++ word[23:16] ++ word[31:24])

/// Merges a report, closes an epoch whose timer is over, or goes on with what is due. `evicts`: an earlier epoch is written first, and the report
/// is as if it had not arrived yet. `goes_on`: the packet has to pass again.
control Sketch(inout translator_headers_t all, inout translator_local_t own, in bit<48> now, in bit<32> reporter, in bit<48> interval,
        out bit<32> outcome, out bit<1> evicts, out bit<1> goes_on) {
    /// Bit 16: there is one; the newest epoch of a sketch, and when columns of it were merged last.
    register<bit<17>>(DTA_SKETCHES) newest_of;
    register<bit<48>>(DTA_SKETCHES) merged_at;
    register<bit<16>>(DTA_SKETCHES * 2) epoch_of;
    register<bit<3>>(DTA_SKETCHES * 2) state_of;
    register<bit<48>>(DTA_SKETCHES * 2) opened_at;
    /// Each use of a buffer has another number, which members and columns have, too: what has an older one is not of this epoch.
    register<bit<32>>(DTA_SKETCHES * 2) generation_of;
    /// Reporters that delivered columns, and those that delivered all.
    register<bit<16>>(DTA_SKETCHES * 2) members_of;
    register<bit<16>>(DTA_SKETCHES * 2) whole_of;
    /// Columns before these were delivered by all reporters, by one at least, and written.
    register<bit<32>>(DTA_SKETCHES * 2) complete_of;
    register<bit<32>>(DTA_SKETCHES * 2) touched_of;
    register<bit<32>>(DTA_SKETCHES * 2) written_of;
    /// The trailer of the previous epoch in this buffer has been invalidated; the collector is notified.
    register<bit<1>>(DTA_SKETCHES * 2) reopened_of;
    register<bit<1>>(DTA_SKETCHES * 2) notice_of;
    register<bit<32>>(DTA_SKETCH_WORDS) counters;
    register<bit<48>>(DTA_SKETCH_COLUMNS) delivered_of;
    /// Of a reporter and a buffer: the buffer's use that it is a member of, its next column, and when it got a NACK; 0: never.
    register<bit<32>>(DTA_SKETCHES * 2 * DTA_REPORTERS) member_of;
    register<bit<16>>(DTA_SKETCHES * 2 * DTA_REPORTERS) column_of;
    register<bit<48>>(DTA_SKETCHES * 2 * DTA_REPORTERS) column_nacked_at;
    /// The last epoch of which it had nothing when it got a NACK.
    register<bit<17>>(DTA_SKETCHES * 2 * DTA_REPORTERS) nonmember_of;
    register<bit<48>>(DTA_SKETCHES * 2 * DTA_REPORTERS) nonmember_nacked_at;
    @name("sketches") counter(2, CounterType.packets) sketches;

    bit<32> buffer = 0;
    bit<3> state = EPOCH_IDLE;
    bit<32> complete = 0;
    bit<32> written = 0;
    bit<1> reopened = 0;
    bit<1> closing = 0;
    bit<32> until = 0;
    bit<1> is_due = 0;

    /// The next write: columns, the trailer before the first ones, or after the last.
    action find_due() {
        closing = (state == EPOCH_FULL || state == EPOCH_PARTIAL) ? 1w1 : 1w0;
        until = written + own.sketch.batch;
        if (until > complete) { until = complete; }
        is_due = (closing == 1 || (written < complete && until - written == own.sketch.batch)) ? 1w1 : 1w0;
    }

    apply {
        outcome = DTA_DONE;
        evicts = 0;
        goes_on = 0;
        bit<1> writes = own.again.pumps;
        bit<1> parity = all.report.timer.isValid() ? all.report.timer.place[0:0] : all.sketch.epoch[0:0];
        buffer = (own.sketch.index << 1) + (bit<32>)parity;
        bit<32> column_words = (bit<32>)own.sketch.depth * (bit<32>)(own.sketch.width >> 2);
        bit<32> word = 0;
        bit<16> epoch;
        bit<32> touched;
        bit<32> generation;
        bit<16> whole;
        bit<1> notice;
        state_of.read(state, buffer);
        epoch_of.read(epoch, buffer);
        complete_of.read(complete, buffer);
        touched_of.read(touched, buffer);
        written_of.read(written, buffer);
        generation_of.read(generation, buffer);
        whole_of.read(whole, buffer);
        reopened_of.read(reopened, buffer);
        notice_of.read(notice, buffer);
        bit<32> words_of_buffer = own.sketch.columns * column_words;
        bit<32> first_word = own.sketch.first_word;
        bit<32> first_column = own.sketch.first_column;
        if (parity == 1) {
            first_word = first_word + words_of_buffer;
            first_column = first_column + own.sketch.columns;
        }
        if (writes == 0 && all.report.timer.isValid()) {
            bit<48> opened;
            opened_at.read(opened, buffer);
            if (state == EPOCH_OPEN && now - opened >= own.sketch.timer) {
                state = EPOCH_PARTIAL;
                complete = own.sketch.columns;
            }
            writes = 1;
        } else if (writes == 0) {
            bit<33> end = (bit<33>)all.sketch.first + (bit<33>)all.sketch.columns;
            bit<17> newest;
            bit<48> merged;
            newest_of.read(newest, own.sketch.index);
            merged_at.read(merged, own.sketch.index);
            bit<1> opens = 0;
            bit<1> is_late = 0;
            bit<1> is_silent = now - merged >= own.sketch.timer ? 1w1 : 1w0;
            if (all.sketch.depth != own.sketch.depth || all.sketch.width != own.sketch.width || all.sketch.op != own.sketch.op
                    || end > (bit<33>)own.sketch.columns) {
                outcome = DTA_WRONG_SHAPE;
            } else if (state != EPOCH_IDLE && epoch == all.sketch.epoch) {
                if (state != EPOCH_OPEN) { outcome = DTA_EPOCH_OVER; }
            } else {
                opens = 1;
                bit<16> distance = newest[16:16] == 1 ? all.sketch.epoch - newest[15:0] : 16w1;
                bit<16> beyond = all.sketch.epoch - epoch;
                bit<1> is_ahead = (distance != 0 && distance <= 0x7fff) ? 1w1 : 1w0;
                // The epoch before the newest may arrive late, if its buffer has nothing older than it.
                is_late = (distance == 0xffff && (state == EPOCH_IDLE || (beyond != 0 && beyond <= 0x7fff))) ? 1w1 : 1w0;
                if (is_ahead == 1 && distance > SKETCH_AHEAD && is_silent == 0) {
                    outcome = DTA_EPOCH_AHEAD;
                } else if (is_ahead == 0 && is_late == 0 && is_silent == 0 && newest != 1w1 ++ all.sketch.epoch) {
                    outcome = DTA_EPOCH_OVER;
                }
            }
            bit<32> member = buffer * DTA_REPORTERS + reporter;
            bit<32> of;
            bit<16> next;
            bit<16> members;
            member_of.read(of, member);
            column_of.read(next, member);
            members_of.read(members, buffer);
            bit<1> is_member = (opens == 0 && of == generation) ? 1w1 : 1w0;
            bit<48> nacked;
            if (outcome == DTA_DONE && is_member == 1) {
                if (all.sketch.first < (bit<32>)next) {
                    outcome = DTA_DUPLICATE_COLUMN;
                } else if (all.sketch.first != (bit<32>)next) {
                    outcome = DTA_COLUMN_GAP;
                    column_nacked_at.read(nacked, member);
                    if (nacked == 0 || now - nacked >= interval) {
                        column_nacked_at.write(member, now);
                        own.tracked.next = { REPLY_SKETCH_NACK, CODE_GAP, 0, all.sketch.sketch, all.sketch.epoch, (bit<32>)next };
                    }
                }
            } else if (outcome == DTA_DONE && opens == 0 && (bit<32>)members >= own.sketch.reporters) {
                outcome = DTA_ONE_REPORTER_TOO_MANY;
            } else if (outcome == DTA_DONE && all.sketch.first != 0) {
                // Only a first column makes a member, and opens an epoch.
                outcome = DTA_COLUMN_GAP;
                bit<17> nonmember;
                nonmember_of.read(nonmember, member);
                nonmember_nacked_at.read(nacked, member);
                if (nonmember != 1w1 ++ all.sketch.epoch || now - nacked >= interval) {
                    nonmember_of.write(member, 1w1 ++ all.sketch.epoch);
                    nonmember_nacked_at.write(member, now);
                    own.tracked.next = { REPLY_SKETCH_NACK, CODE_GAP, 0, all.sketch.sketch, all.sketch.epoch, 0 };
                }
            }
            if (outcome == DTA_DONE && opens == 1 && state != EPOCH_IDLE && state != EPOCH_CLOSED) {
                evicts = 1;
                writes = 1;
                if (state == EPOCH_OPEN) {
                    state = EPOCH_PARTIAL;
                    complete = own.sketch.columns;
                }
            } else if (outcome == DTA_DONE) {
                writes = 1;
                if (opens == 1) {
                    epoch = all.sketch.epoch;
                    state = EPOCH_OPEN;
                    generation = generation + 1;
                    members = 0;
                    whole = 0;
                    complete = 0;
                    touched = 0;
                    written = 0;
                    reopened = 0;
                    notice = 0;
                    opened_at.write(buffer, now);
                    epoch_of.write(buffer, epoch);
                    generation_of.write(buffer, generation);
                    if (is_late == 0 || is_silent == 1) { newest_of.write(own.sketch.index, 1w1 ++ epoch); }
                }
                if (is_member == 0) {
                    members_of.write(buffer, members + 1);
                    member_of.write(member, generation);
                }
                column_of.write(member, end[15:0]);
                column_nacked_at.write(member, 0);
                merged_at.write(own.sketch.index, now);
                notice = notice | all.report.dta.immediate;
                bit<32> words = (bit<32>)own.report.words;
                bit<32> known = touched > all.sketch.first ? (touched - all.sketch.first) * column_words : 0;
                bit<32> base = first_word + all.sketch.first * column_words;
                if (own.sketch.width == 4) { EACH_WORD(MERGE_WORD) } else { EACH_TWO(MERGE_TWO) }
                bit<32> column = first_column + all.sketch.first;
                EACH_WORD(COUNT_COLUMN)
                if (touched < end[31:0]) { touched = end[31:0]; }
                if (end[31:0] == own.sketch.columns) { whole = whole + 1; }
                if (complete == own.sketch.columns) { state = EPOCH_FULL; }
            }
        }
        if (writes == 1) {
            own.tracked.reliable = 1;
            own.report.notice = 0;
            find_due();
            bit<1> has_columns = written < complete ? 1w1 : 1w0;
            if (is_due == 1) {
                own.report.executes = 1;
                own.report.copies = 1;
                bit<32> offset = written;
                if (has_columns == 1 && reopened == 1) {
                    own.report.written = (bit<8>)((until - written) * column_words);
                    bit<32> known = touched > written ? (touched - written) * column_words : 0;
                    bit<32> base = first_word + written * column_words;
                    EACH_WORD(WRITE_COUNTER)
                    written = until;
                } else {
                    // A concurrent reader must not match the old trailer with new columns.
                    reopened = 1;
                    offset = own.sketch.columns;
                    bit<32> columns = has_columns == 1 ? 0 : own.sketch.columns;
                    bit<16> reporters = has_columns == 1 ? 0 : whole;
                    own.report.written = 4;
                    all.columns[0].setValid();
                    all.columns[1].setValid();
                    all.columns[2].setValid();
                    all.columns[3].setValid();
                    all.columns[0].value = epoch[7:0] ++ epoch[15:8] ++ own.report.immediate[7:0] ++ own.report.immediate[15:8];
                    all.columns[1].value = SWAPPED(columns);
                    all.columns[2].value = reporters[7:0] ++ reporters[15:8] ++ 16w0;
                    all.columns[3].value = 0;
                    if (has_columns == 0) {
                        own.report.notice = notice;
                        sketches.count(state == EPOCH_FULL ? SKETCHES_COMPLETE : SKETCHES_PARTIAL);
                        state = EPOCH_CLOSED;
                    }
                }
                // The trailer is 16 bytes.
                if (parity == 1) { own.report.address = own.report.address + ((bit<64>)words_of_buffer << 2) + 16; }
                own.report.address = own.report.address + ((bit<64>)(offset * column_words) << 2);
                find_due();
                goes_on = is_due | evicts;
            }
            state_of.write(buffer, state);
            complete_of.write(buffer, complete);
            touched_of.write(buffer, touched);
            written_of.write(buffer, written);
            whole_of.write(buffer, whole);
            reopened_of.write(buffer, reopened);
            notice_of.write(buffer, notice);
        }
    }
}

#endif
