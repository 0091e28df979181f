// SPDX-License-Identifier: Apache-2.0 OR MIT
// Batch: holds the entries of a list until a batch of them is written at once.

#ifndef DTA_BATCH_P4
#define DTA_BATCH_P4

#define WRITE_WORD(n) if (n < local.words) { words.write(base + at + n, hdr.data[n].value); }
#define READ_WORD(n) if (n < local.written) { hdr.data[n].setValid(); words.read(hdr.data[n].value, base + n); }

control Batch(inout dta_headers_t hdr, inout dta_local_t local, inout bit<1> reliable, in bit<48> now,
        in bit<32> index, in bit<32> batch, in bit<32> entries, in bit<8> entry_words, in bit<48> timer) {
    register<bit<32>>(DTA_LISTS * DTA_WORDS) words;
    /// The position of the first entry that was not written, entries that wait there, and since when.
    register<bit<32>>(DTA_LISTS) heads;
    register<bit<8>>(DTA_LISTS) waiting;
    register<bit<48>>(DTA_LISTS) since;
    /// One of them is essential: the batch is written by the reliable queue pair.
    register<bit<1>>(DTA_LISTS) reliable_of_list;

    apply {
        bit<32> base = index * DTA_WORDS;
        bit<32> head;
        bit<8> filled;
        bit<48> begun;
        heads.read(head, index);
        waiting.read(filled, index);
        since.read(begun, index);
        bit<1> is_reliable;
        reliable_of_list.read(is_reliable, index);
        is_reliable = is_reliable | reliable;
        bit<1> sends = 0;
        if (hdr.timer.isValid()) {
            sends = (filled != 0 && now - begun >= timer) ? 1w1 : 1w0;
        } else {
            bit<32> at = (bit<32>)filled * (bit<32>)entry_words;
            EACH_WORD(WRITE_WORD)
            if (filled == 0) { since.write(index, now); }
            filled = filled + 1;
            // A batch that was written early is completed first. Its size is a power of two.
            sends = (local.notice == 1 || (head + (bit<32>)filled) & (batch - 1) == 0) ? 1w1 : 1w0;
        }
        if (sends == 1) {
            local.executes = 1;
            reliable = is_reliable;
            is_reliable = 0;
            local.written = filled * entry_words;
            local.address = local.address + ((bit<64>)head * (bit<64>)entry_words << 2);
            EACH_WORD(READ_WORD)
            head = head + (bit<32>)filled;
            heads.write(index, head == entries ? 0 : head);
            filled = 0;
        }
        waiting.write(index, filled);
        reliable_of_list.write(index, is_reliable);
    }
}

#endif
