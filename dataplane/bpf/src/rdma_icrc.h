/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The invariant checksum: CRC-32 of Ethernet, least significant bit first, sixteen bytes a step by tables (build.rs makes
 * them): table k holds what a byte does that k others follow.
 */
#ifndef HOPWISE_RDMA_ICRC_H
#define HOPWISE_RDMA_ICRC_H

#include "rdma_tables.h"
#include "icrc_tables.h"

/* After the eight bytes of ones that stand for InfiniBand's own header. */
#define ICRC_START 0xdebb20e3u

#define OCTET(word, n) ((u32)((word) >> (8 * (n))) & 0xff)

static inline_always u32 icrc_half(u64 word, u32 first)
{
    return icrc_tables[first][OCTET(word, 0)] ^ icrc_tables[first - 1][OCTET(word, 1)] ^
           icrc_tables[first - 2][OCTET(word, 2)] ^ icrc_tables[first - 3][OCTET(word, 3)] ^
           icrc_tables[first - 4][OCTET(word, 4)] ^ icrc_tables[first - 5][OCTET(word, 5)] ^
           icrc_tables[first - 6][OCTET(word, 6)] ^ icrc_tables[first - 7][OCTET(word, 7)];
}

static inline_always u32 icrc_16(u32 crc, u64 a, u64 b) { return icrc_half(a ^ crc, 15) ^ icrc_half(b, 7); }

static inline_always u32 icrc_8(u32 crc, u64 word) { return icrc_half(word ^ crc, 7); }

static inline_always u32 icrc_4(u32 crc, u32 word)
{
    word ^= crc;
    return icrc_tables[3][OCTET(word, 0)] ^ icrc_tables[2][OCTET(word, 1)] ^ icrc_tables[1][OCTET(word, 2)] ^
           icrc_tables[0][OCTET(word, 3)];
}

/* Words as they lie in the frame. */
static inline_always u64 word(const u8 *at) { return *(const u64 *)at; }
static inline_always u32 half(const u8 *at) { return *(const u32 *)at; }

/* Steps of sixteen bytes behind the base header of the longest packet: of addresses, immediate, payload. */
#define MOST_STEPS ((16 + 4 + MOST_PAYLOAD) / 16 + 1)

/* Hides where a value came from, or the compiler counts turns in advance from the distance of two pointers, and the
 * verifier does not understand how. */
#define HIDE(value) asm volatile("" : "+r"(value))

/* Of the rest of a packet, which begins at `p` and has `len` bytes: 1 if the checksum behind it is right. `p` is at a place the
 * verifier knows, at every turn. */
static inline_always u32 icrc_rest(u32 crc, const u8 *p, const u8 *end, u32 len)
{
#pragma clang loop unroll(disable)
    for (u32 i = 0; i < MOST_STEPS && len >= 16; i++) {
        HIDE(p);
        if (p + 16 > end)
            return 0;
        crc = icrc_16(crc, word(p), word(p + 8));
        p += 16;
        len -= 16;
    }
    HIDE(p);
    if (len & 8) {
        if (p + 8 > end)
            return 0;
        crc = icrc_8(crc, word(p));
        p += 8;
    }
    HIDE(p);
    if (len & 4) {
        if (p + 4 > end)
            return 0;
        crc = icrc_4(crc, half(p));
        p += 4;
    }
    HIDE(p);
#pragma clang loop unroll(disable)
    for (u32 i = 0; i < 3 && i < (len & 3); i++) {
        HIDE(p);
        if (p + 1 > end)
            return 0;
        crc = crc >> 8 ^ icrc_tables[0][(crc ^ *p) & 0xff];
        p += 1;
    }
    HIDE(p);
    if (len >= 16 || p + 4 > end)
        return 0;
    return half(p) == ~crc;
}

/* Where the headers begin, in a frame without tags. */
#define L3 14

/* Functions of their own, that the verifier looks at once, whatever they are called with. `rest`: bytes between the base header and
 * the checksum. */
noinline u32 icrc_good_v4(struct xdp_md *frame, u32 rest)
{
    const u8 *p = (const u8 *)(long)frame->data + L3, *end = (const u8 *)(long)frame->data_end;

    if (p + 40 > end)
        return 0;
    /* Type of service; hop limit and checksum; UDP checksum; what the network may set in the base header. */
    u32 crc = icrc_16(ICRC_START, word(p) | 0xff00, word(p + 8) | 0xffff00ff);
    crc = icrc_16(crc, word(p + 16), word(p + 24) | 0xffff0000);
    crc = icrc_8(crc, word(p + 32) | 0xff);
    return icrc_rest(crc, p + 40, end, rest);
}

noinline u32 icrc_good_v6(struct xdp_md *frame, u32 rest)
{
    const u8 *p = (const u8 *)(long)frame->data + L3, *end = (const u8 *)(long)frame->data_end;

    if (p + 60 > end)
        return 0;
    /* Traffic class, flow label; hop limit; UDP checksum; what the network may set in the base header. */
    u32 crc = icrc_16(ICRC_START, word(p) | 0xff000000ffffff0full, word(p + 8));
    crc = icrc_16(crc, word(p + 16), word(p + 24));
    crc = icrc_16(crc, word(p + 32), word(p + 40) | 0xffff000000000000ull);
    crc = icrc_8(crc, word(p + 48) | 0xff00000000ull);
    crc = icrc_4(crc, half(p + 56));
    return icrc_rest(crc, p + 60, end, rest);
}

#endif
