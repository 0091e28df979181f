/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Where the items of a record lie, by version, dialect and instruction bitmap: wire::int::layout. */
#ifndef HOPWISE_PARSE_LAYOUT_H
#define HOPWISE_PARSE_LAYOUT_H

#include "parse.h"

/* Bits 4 to 6 of a bitmap are 8 bytes wide in INT 2.x; stamps are 4 and 5, level-2 interfaces (0.5: congestion) 6. */
enum bitmap { WIDE_BITS = 0x0e00, TIME_BITS = 0x0c00, L2_BIT = 0x0200, LAST_BIT = 0x0001 };

/* Sizes and items of the instruction bits by version or dialect. */
enum rules {
    WIDE_TIME = 1,
    WIDE_L2 = 2,
    CONGESTED = 4, /* bit 6 is queue congestion */
    BUFFERED = 8,  /* bit 8 is buffer occupancy */
    DROPPED = 16,  /* bit 15 is the drop reason; bit 0 is never looked up: the node is in the report's header */
};
enum {
    INT_2 = WIDE_TIME | WIDE_L2 | BUFFERED,
    INT_10 = WIDE_L2,
    INT_10_GEANT = WIDE_TIME,
    INT_10_GEN = 0,
    INT_05 = CONGESTED,
    REPORT_2 = INT_2 | DROPPED,
};

/* The header that a layout belongs to: the upper half of its cache key. */
enum layout_kind {
    LAYOUT_05 = 1,
    LAYOUT_10,
    LAYOUT_2,
    LAYOUT_REPORT_10,
    LAYOUT_REPORT_20,
    LAYOUT_DROP_05,
    LAYOUT_LOCAL_05
};

static inline_always u64 layout_key(u32 kind, u32 dialect, u32 hop_ml, u32 bitmap)
{
    return (u64)kind << 32 | dialect << 24 | hop_ml << 16 | bitmap;
}

/* Words of a record whose `wide` bits take two. */
static inline_always u32 words(u32 bitmap, u32 wide) { return ones(bitmap) + ones(bitmap & wide); }

static inline_always void clear_layout(struct layout *layout, u64 key)
{
    layout->key = key;
    *(raw32 *)&layout->words = 0;
    *(raw64 *)layout->at = NO_VALUE;
    *(raw64 *)(layout->at + 8) = NO_VALUE;
}

/* The items that a layout has, from their offsets. */
static inline_always void note_carried(struct layout *layout)
{
    u32 carried = 0;

    for (u32 item = NODE; item <= DROP; item++)
        carried |= (~layout->at[item] >> 7 & 1) << item;
    layout->carried = carried;
}

/* The layout of a bitmap under `rules`. Without branches: the verifier would follow each bit both ways. */
int build_layout(struct layout *layout, u64 key, u32 bitmap, u32 rules)
{
    u32 wide = (rules & WIDE_TIME ? TIME_BITS : 0) | (rules & WIDE_L2 ? L2_BIT : 0), offset = 0;

    if (!layout)
        return 0;
    clear_layout(layout, key);
    layout->wide_ts = !!(rules & WIDE_TIME);
    layout->wide_l2 = !!(rules & WIDE_L2);
    for (u32 k = 0; k < 16; k++) {
        u32 set = bitmap >> (15 - k) & 1, twice = wide >> (15 - k) & 1;
        /* NOWHERE without the bit. */
        u32 at = offset | (set - 1);

        if (k <= BUFFER)
            layout->at[k] = at;
        if (k == 15 && rules & DROPPED)
            layout->at[DROP] = at;
        offset += (set << twice) * 4;
    }
    layout->words = offset / 4;
    if (rules & CONGESTED) {
        layout->at[CONGESTION] = layout->at[L2];
        layout->at[L2] = NOWHERE;
    }
    if (!(rules & BUFFERED))
        layout->at[BUFFER] = NOWHERE;
    note_carried(layout);
    return 0;
}

/* Words of a record of INT 1.0: HopML, unless it counts items and the stack fits the words: wire::Layout::words_10. */
static inline_always u32 words_10(u32 bitmap, u32 hop_ml, u32 stack, u32 dialect)
{
    u32 wide = words(bitmap, L2_BIT), items = ones(bitmap), as_said;

    if (hop_ml == wide || hop_ml != items || !items)
        return hop_ml;
    as_said = stack % items == 0 && (dialect == INTCOLLECTOR_GEN || words(bitmap, TIME_BITS) == items);
    return (dialect == ONOS || !as_said) && stack % wide == 0 ? wide : hop_ml;
}

/* The layout of INT 1.0 records. The dialect decides where two readings agree on the length; otherwise the length does. */
static inline_always int layout_10(struct layout *layout, u32 bitmap, u32 hop_ml, u32 dialect)
{
    u64 key = layout_key(LAYOUT_10, dialect, hop_ml, bitmap);
    u32 strict = words(bitmap, L2_BIT) == hop_ml, geant = words(bitmap, TIME_BITS) == hop_ml;
    u32 rules;

    if (layout->key == key)
        return 0;
    if (dialect == INTCOLLECTOR_GEN && words(bitmap, 0) == hop_ml)
        rules = INT_10_GEN;
    else if (geant && (dialect == GEANT || !strict))
        rules = INT_10_GEANT;
    else if (strict)
        rules = INT_10;
    else
        return REFUSE(BAD_HOP_ML);
    return build_layout(layout, key, bitmap, rules);
}

/* The layout of INT 2.x records; `domain` says that domain-specific words may follow the baseline. */
static inline_always int layout_2(struct layout *layout, u32 bitmap, u32 hop_ml, u32 domain)
{
    u64 key = layout_key(LAYOUT_2, domain, hop_ml, bitmap);
    u32 base = words(bitmap, WIDE_BITS);

    if (layout->key == key)
        return 0;
    if (domain ? hop_ml < base : hop_ml != base)
        return REFUSE(BAD_HOP_ML);
    build_layout(layout, key, bitmap, INT_2);
    layout->words = hop_ml;
    return 0;
}

static inline_always void layout_05(struct layout *layout, u32 bitmap)
{
    u64 key = layout_key(LAYOUT_05, 0, 0, bitmap);

    if (layout->key != key)
        build_layout(layout, key, bitmap, INT_05);
}

/* The layout of Report 2.0's main contents. */
static inline_always void layout_report_20(struct layout *layout, u32 bits)
{
    u64 key = layout_key(LAYOUT_REPORT_20, 0, 0, bits);

    if (layout->key != key)
        build_layout(layout, key, bits, REPORT_2);
}

/* The layout of Report 1.0's optional words, six bits, most significant first. */
static inline_always void layout_report_10(struct layout *layout, u32 bits)
{
    u64 key = layout_key(LAYOUT_REPORT_10, 0, 0, bits);
    u32 offset = 0;

    if (layout->key == key)
        return;
    clear_layout(layout, key);
    for (u32 k = 0; k < 6; k++) {
        /* PORTS, LATENCY, QUEUE, EGRESS, DROP, TX: a nibble each. */
        u32 item = 0x7b5321 >> (4 * k) & 15;

        if (!(bits & 0x20 >> k))
            continue;
        layout->at[item] = offset;
        offset += 4;
    }
    layout->words = offset / 4;
    note_carried(layout);
}

/* The layouts of Report 0.5's drop header and switch-local header. */
static inline_always void layout_report_05(struct layout *layout, u32 kind)
{
    u64 key = layout_key(kind == 1 ? LAYOUT_DROP_05 : LAYOUT_LOCAL_05, 0, 0, 0);

    if (layout->key == key)
        return;
    clear_layout(layout, key);
    layout->at[NODE] = 0;
    layout->at[PORTS] = 4;
    if (kind == 1) {
        layout->at[DROP] = 8;
        layout->words = 3;
    } else {
        layout->at[QUEUE] = 8;
        layout->at[EGRESS] = 12;
        layout->words = 4;
    }
    note_carried(layout);
}

/* Offsets are words of a record of at most 31; masked again for the verifier. */
#define MAX_OFFSET 0x7c
/* All-ones for NOWHERE, 0 for an offset: without a branch, so that the verifier has one path to check. */
#define IF_NOWHERE(at) (-((at) >> 7))

/* An item of 4 bytes in the record at `record`; all-ones when absent or unavailable. */
static inline_always u32 item32(const struct layout *layout, const u8 *record, u32 item)
{
    u64 at = layout->at[item];

    return be32(record + (at & MAX_OFFSET)) | (u32)IF_NOWHERE(at);
}

/* An item of 8 bytes, likewise. */
static inline_always u64 item64(const struct layout *layout, const u8 *record, u32 item)
{
    u64 at = layout->at[item];

    return be64(record + (at & MAX_OFFSET)) | IF_NOWHERE(at);
}

/* A timestamp; NO_VALUE when absent or unavailable, for both widths. */
static inline_always u64 stamp(const struct layout *layout, const u8 *record, u32 item)
{
    u32 narrow;

    if (layout->wide_ts)
        return item64(layout, record, item);
    narrow = item32(layout, record, item);
    return narrow == ABSENT ? NO_VALUE : narrow;
}

#endif
