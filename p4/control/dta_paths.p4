// SPDX-License-Identifier: Apache-2.0 OR MIT
// Paths: holds the values of a key's hops until all are there, and writes them at once. A key has one of four places; if others have
// them, the oldest path is written as it is.

#ifndef DTA_PATHS_P4
#define DTA_PATHS_P4

const bit<32> NO_HOP = 0xffffffff;

#define READ_PLACE(n) seen_of.read(seen, set + n); keys.read(key, set + n); key_bytes_of.read(key_bytes, set + n); \
    since_of.read(since, set + n); \
    if (seen != 0 && key == local.key && key_bytes == local.key_bytes && found == 0) { found = 1; at = set + n; } \
    if (seen == 0 && free == 0) { free = 1; free_at = set + n; } \
    if (since < oldest) { oldest = since; oldest_at = set + n; }
#define READ_HOP(n) if (n < hops) { \
    hdr.data[n].setValid(); \
    values.read(hdr.data[n].value, (at << 4) + n); \
    if (old_seen[n:n] == 0) { hdr.data[n].value = NO_HOP; } \
}
#define SET_HOP(n) if (hop == n && n < hops) { hdr.data[n].setValid(); hdr.data[n].value = hdr.postcard.value; }

control Paths(inout dta_headers_t hdr, inout dta_local_t local, inout bit<1> reliable, in bit<48> now,
        in bit<32> first, in bit<32> place_mask, in bit<8> hops, in bit<48> timer) {
    register<bit<128>>(DTA_PATHS) keys;
    register<bit<8>>(DTA_PATHS) key_bytes_of;
    register<bit<8>>(DTA_PATHS) path_bytes_of;
    /// A bit for each hop that was received; 0: a free place.
    register<bit<16>>(DTA_PATHS) seen_of;
    register<bit<48>>(DTA_PATHS) since_of;
    register<bit<1>>(DTA_PATHS) notice_of;
    /// A postcard of it is essential.
    register<bit<1>>(DTA_PATHS) reliable_of;
    register<bit<32>>(DTA_PATHS) slot_of;
    register<bit<32>>(DTA_PATHS) checksum_of;
    register<bit<32>>(DTA_PATHS * DTA_WORDS) values;

    bit<32> at = 0;
    bit<32> slot = 0;
    bit<16> old_seen = 0;
    bit<16> new_seen = 0;
    bit<1> sends = 0;
    bit<8> hop = 0;

    action hash_key() {
        slot = CRC_32C_ANY(local.crc_c, local.key);
        local.checksum = CRC_IEEE_ANY(local.crc_ieee, local.key);
    }

    action choose_set(out bit<32> set) {
        bit<32> crc = CRC_32D_ANY(local.crc_d, local.key);
        set = first + (crc & place_mask & 0xfffffffc);
    }

    apply {
        bit<1> found = 0;
        bit<1> evicts = 0;
        bit<1> direct = 0;
        bit<8> length = hdr.postcard.path_length;
        if (hdr.timer.isValid()) {
            at = first + ((bit<32>)hdr.timer.place & place_mask);
            bit<48> begun;
            seen_of.read(old_seen, at);
            since_of.read(begun, at);
            sends = (old_seen != 0 && now - begun >= timer) ? 1w1 : 1w0;
        } else {
            hop = hdr.postcard.hop - 1;
            hash_key();
            bit<32> set;
            choose_set(set);
            bit<1> free = 0;
            bit<32> free_at = 0;
            bit<48> oldest = 0xffffffffffff;
            bit<32> oldest_at = set;
            bit<16> seen;
            bit<128> key;
            bit<8> key_bytes;
            bit<48> since;
            READ_PLACE(0) READ_PLACE(1) READ_PLACE(2) READ_PLACE(3)
            if (found == 0) {
                at = free == 1 ? free_at : oldest_at;
                evicts = ~free;
            }
            seen_of.read(old_seen, at);
            bit<8> path_bytes;
            path_bytes_of.read(path_bytes, at);
            if (length == 0 && found == 1) { length = path_bytes; }
            bit<8> needed = (length == 0 || length > hops) ? hops : length;
            bit<16> all = (16w1 << needed) - 1;
            // Shifted by 16, nothing is left.
            if (needed == 16) { all = 0xffff; }
            new_seen = (found == 1 ? old_seen : 16w0) | (16w1 << hop);
            sends = (new_seen & all) == all ? 1w1 : 1w0;
            if (sends == 1 && found == 0) {
                // A path of one hop needs no place.
                direct = 1;
                evicts = 0;
                old_seen = 0;
            }
        }
        bit<1> notice;
        notice_of.read(notice, at);
        bit<1> is_reliable;
        reliable_of.read(is_reliable, at);
        bit<32> write_slot;
        bit<32> write_checksum;
        slot_of.read(write_slot, at);
        checksum_of.read(write_checksum, at);
        if (sends == 1 || evicts == 1) {
            EACH_WORD(READ_HOP)
            if (sends == 1 && !hdr.timer.isValid()) { EACH_WORD(SET_HOP) }
            local.executes = 1;
        }
        if (hdr.timer.isValid()) {
            local.notice = notice;
            reliable = is_reliable;
            if (sends == 1) { seen_of.write(at, 0); }
        } else if (direct == 1) {
            write_slot = slot;
            write_checksum = local.checksum;
        } else {
            bit<1> own = local.notice;
            bit<1> own_reliable = reliable;
            if (found == 1) {
                own = own | notice;
                own_reliable = own_reliable | is_reliable;
            }
            local.notice = evicts == 1 ? notice : own;
            reliable = evicts == 1 ? is_reliable : own_reliable;
            reliable_of.write(at, own_reliable);
            values.write((at << 4) + (bit<32>)hop, hdr.postcard.value);
            path_bytes_of.write(at, length);
            notice_of.write(at, own);
            seen_of.write(at, sends == 1 ? 16w0 : new_seen);
            if (found == 0) {
                keys.write(at, local.key);
                key_bytes_of.write(at, local.key_bytes);
                since_of.write(at, now);
                slot_of.write(at, slot);
                checksum_of.write(at, local.checksum);
            }
        }
        local.checksum = write_checksum;
        local.written = hops;
        local.address = local.address + ((bit<64>)(write_slot & local.mask) << local.stride);
    }
}

#endif
