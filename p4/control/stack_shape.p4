// SPDX-License-Identifier: Apache-2.0 OR MIT
// Whether a stack is a whole number of records of its instructions (INT data plane specification 2.1, section 5.7).

#ifndef STACK_SHAPE_P4
#define STACK_SHAPE_P4

control StackShape(inout headers_t hdr, inout local_t local) {
    Items() items;
    Remainder() remainder;

    apply {
        items.apply(local.bitmap, local.item_words);
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
            remainder.apply(left, words);
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
