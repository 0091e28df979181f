// SPDX-License-Identifier: Apache-2.0 OR MIT
// Lists: when the entries of a list that wait are written, and where.

#ifndef TNA_DTA_LISTS_P4
#define TNA_DTA_LISTS_P4

/// Words that wait, and frames of the timer since the first of them.
struct waiting_t {
    bit<16> words;
    bit<16> ticks;
}

control Lists(inout operations_t hdr, inout egress_t local) {
    /// Entries since the last whole batch, also if they were written early.
    Register<bit<8>, bit<32>>(DTA_LISTS, 0) positions;
    RegisterAction<bit<8>, bit<32>, bit<8>>(positions) next_position = {
        void apply(inout bit<8> value, out bit<8> was) {
            was = value;
            if (value == hdr.list.batch_last) { value = 0; } else { value = value + 1; }
        }
    };

    Register<waiting_t, bit<32>>(DTA_LISTS, { 0, 0 }) waiting;
    RegisterAction<waiting_t, bit<32>, bit<16>>(waiting) wait = {
        void apply(inout waiting_t value, out bit<16> was) {
            was = value.words;
            if (value.words == 0) { value.ticks = 0; }
            value.words = value.words + (bit<16>)hdr.operation.words;
        }
    };
    RegisterAction<waiting_t, bit<32>, bit<16>>(waiting) finish = {
        void apply(inout waiting_t value, out bit<16> was) {
            was = value.words;
            value.words = 0;
            value.ticks = 0;
        }
    };
    RegisterAction<waiting_t, bit<32>, bit<16>>(waiting) tick = {
        void apply(inout waiting_t value, out bit<16> was) {
            was = 0;
            if (value.ticks >= hdr.list.ticks) {
                was = value.words;
                value.words = 0;
            } else {
                value.ticks = value.ticks + 1;
            }
        }
    };

    /// Of the first word that was not written, bytes from the list's begin.
    Register<bit<32>, bit<32>>(DTA_LISTS, 0) heads;
    RegisterAction<bit<32>, bit<32>, bit<32>>(heads) advance = {
        void apply(inout bit<32> value, out bit<32> was) {
            was = value;
            if (value == local.end) { value = 0; } else { value = value + local.bytes; }
        }
    };

    bit<8> position = 0;

    action read_position() { position = next_position.execute(hdr.list.index); }
    action compare_position() { position = position ^ hdr.list.batch_last; }
    action do_wait() { local.at = wait.execute(hdr.list.index); }
    action do_finish() { local.at = finish.execute(hdr.list.index); local.executes = 1; }
    action do_tick() { local.at = tick.execute(hdr.list.index); }
    action do_advance() { local.offset = advance.execute(hdr.list.index); }
    action find_end() { local.end = hdr.list.bytes - local.bytes; }

    Own() own;

    apply {
        local.mode = WORDS_OF_LIST;
        local.index = hdr.list.index;
        if (hdr.operation.is_timer == 1) {
            do_tick();
            if (local.at != 0) { local.executes = 1; }
        } else {
            read_position();
            compare_position();
            if (position == 0 || hdr.operation.notice == 1) { do_finish(); } else { do_wait(); }
        }
        own.apply(hdr, local);
        find_end();
        if (local.executes == 1) { do_advance(); }
    }
}

#endif
