// SPDX-License-Identifier: Apache-2.0 OR MIT
// Lengths of records and of stacks of records.

#ifndef ITEMS_P4
#define ITEMS_P4

/// Words of a record with every item of the bitmap once.
control Items(in bit<16> b, out bit<8> words) {
    apply {
        words = (bit<8>)b[15:15] + (bit<8>)b[14:14] + (bit<8>)b[13:13] + (bit<8>)b[12:12] + (bit<8>)b[11:11] + (bit<8>)b[10:10]
            + (bit<8>)b[9:9] + (bit<8>)b[9:9] + (bit<8>)b[8:8] + (bit<8>)b[7:7] + (bit<8>)b[6:6] + (bit<8>)b[5:5] + (bit<8>)b[4:4]
            + (bit<8>)b[3:3] + (bit<8>)b[2:2] + (bit<8>)b[1:1] + (bit<8>)b[0:0];
    }
}

/// Takes whole records away: the remainder of a division, which P4 does not have. At most 252 words by records of 1 to 31.
control Remainder(inout bit<16> left, in bit<16> words) {
    apply {
        if (left >= words << 7) { left = left - (words << 7); }
        if (left >= words << 6) { left = left - (words << 6); }
        if (left >= words << 5) { left = left - (words << 5); }
        if (left >= words << 4) { left = left - (words << 4); }
        if (left >= words << 3) { left = left - (words << 3); }
        if (left >= words << 2) { left = left - (words << 2); }
        if (left >= words << 1) { left = left - (words << 1); }
        if (left >= words) { left = left - words; }
    }
}

#endif
