// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the program `sf` has on Tofino in place of `int`'s, or besides.

#ifndef TNA_SF_P4
#define TNA_SF_P4

/// Types of the shim, with the bits that follow: INT that this program knows, and that of `int`.
#define SHIM_OURS 0x40
#define SHIM_OTHER 0x10
#define SHIM_TYPE SHIM_2_SF

typedef bit<5> count_t;
/// Of a packet that comes a second time.
const count_t NOT_COUNTED = 23;
#define PACKET_COUNTS SF_COUNTS

#define WATCH watch_sf
#define WATCH_ACTION @name("watch_sf") @id(0x01000017) action watch_sf

#define RSVD_OF_SOURCE (1w1 ++ 1w0 ++ STATE_MEDIUM ++ 8w0)
/// Every record has a node, and SF-INT belongs to no domain.
#define IS_OURS hdr.md.rsvd[11:11] == 1 && hdr.md.rsvd[9:8] != 0 && hdr.md.bitmap[15:15] == 1 && hdr.md.ds_instruction == 0 && hdr.md.ds_flags == 0

/// Egress swaps the record, or replaces it by that of this node.
const bit<8> SWAP_RECORD = 5;

/// For each word of a record: the items that a Tofino knows have eight.
#define EACH_WORD(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define WORD_HEADER(N) word_t w ## N;
#define WORD_EMIT(N) packet.emit(hdr.w ## N);
#define WORD_FIELDS , hdr.w0.value, hdr.w1.value, hdr.w2.value, hdr.w3.value, hdr.w4.value, hdr.w5.value, hdr.w6.value, hdr.w7.value

/// A state for a word, of which the record has LAST at least.
#define WORD_STATE(N, LAST, NEXT) state parse_word_ ## N { \
        packet.extract(hdr.w ## N); \
        rest.subtract({ hdr.w ## N }); \
        transition select(hdr.md.hop_ml) { \
            LAST: have_words; \
            default: NEXT; \
        } \
    }

// Fields of metadata, and their first values.
#define SF_ARRIVING bit<32> tag; bit<32> sent;
#define SF_ARRIVING_NOTHING , 0, 0
#define SF_LEAVING bit<32> oldest; bit<32> bitmap; bit<32> same; bit<32> stored; bit<2> forward;
#define SF_LEAVING_NOTHING , 0, 0, 0, 0, 0

#endif
