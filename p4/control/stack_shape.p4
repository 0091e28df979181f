// SPDX-License-Identifier: Apache-2.0 OR MIT
// Whether a stack is a whole number of records of its instructions (INT data plane specification 2.1, section 5.7).

#ifndef STACK_SHAPE_P4
#define STACK_SHAPE_P4

control StackShape(inout headers_t hdr, inout local_t local) {
    /// Words of a record with every item of the bitmap once.
    action count_items() {
        bit<16> b = local.bitmap;
        local.item_words = (bit<8>)b[15:15] + (bit<8>)b[14:14] + (bit<8>)b[13:13] + (bit<8>)b[12:12] + (bit<8>)b[11:11] + (bit<8>)b[10:10]
            + (bit<8>)b[9:9] + (bit<8>)b[9:9] + (bit<8>)b[8:8] + (bit<8>)b[7:7] + (bit<8>)b[6:6] + (bit<8>)b[5:5] + (bit<8>)b[4:4]
            + (bit<8>)b[3:3] + (bit<8>)b[2:2] + (bit<8>)b[1:1] + (bit<8>)b[0:0];
    }

    apply {
        count_items();
        bit<16> left;
        if (hdr.md_2.isValid()) {
            // Timestamps have eight bytes.
            local.item_words = local.item_words + (bit<8>)local.bitmap[11:11] + (bit<8>)local.bitmap[10:10];
            left = (bit<16>)hdr.shim_2.length - (bit<16>)HEADER_WORDS_2;
        } else {
            left = (bit<16>)hdr.shim_10.length - (bit<16>)HEADER_WORDS_10;
        }
        // In a domain that is not the default one, the words of the source follow the last record.
        bit<1> is_domain = 0;
        if (hdr.md_2.isValid() && hdr.md_2.ds_id != 0 && hdr.md_2.ds_instruction != 0) { is_domain = 1; }
        bit<16> words = (bit<16>)local.record_words;
        if (local.is_mx == 1) {
            // Only words of the source, if the domain has such.
            if (hdr.md_2.ds_instruction == 0 && left != 0) {
                local.carries_int = 0;
                local.refused = 1;
            }
        } else if (local.record_words != local.item_words || (words == 0 && left != 0)) {
            local.carries_int = 0;
            local.refused = 1;
        } else if (words != 0 && is_domain == 0) {
            // The remainder of a division, which P4 does not have: at most 252 words by records of 1 to 31.
            if (left >= words << 7) { left = left - (words << 7); }
            if (left >= words << 6) { left = left - (words << 6); }
            if (left >= words << 5) { left = left - (words << 5); }
            if (left >= words << 4) { left = left - (words << 4); }
            if (left >= words << 3) { left = left - (words << 3); }
            if (left >= words << 2) { left = left - (words << 2); }
            if (left >= words << 1) { left = left - (words << 1); }
            if (left >= words) { left = left - words; }
            if (left != 0) {
                if (hdr.md_2.isValid()) {
                    local.malformed_stack = 1;
                } else {
                    local.carries_int = 0;
                    local.refused = 1;
                }
            }
        }
    }
}

#endif
