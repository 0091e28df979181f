/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The invariant CRC: the CRC-32 of Ethernet, least significant bit first, sixteen bytes per step, with tables from build.rs:
 * table k holds the contribution of a byte before k other bytes.
 */
#ifndef HOPWISE_RDMA_ICRC_H
#define HOPWISE_RDMA_ICRC_H

#include "tables.h"
#include "icrc_tables.h"

/* After the eight bytes of ones that stand for InfiniBand's own header. */
#define ICRC_START 0xdebb20e3u

/* Hides the origin of a value. Otherwise the compiler computes the address of each table and stores all of them on the stack; or
 * computes trip counts from the difference of two pointers, which the verifier cannot follow. */
#define HIDE(value) asm volatile("" : "+r"(value))

static inline_always const u8 *icrc_start_of_tables(void)
{
    const u8 *tables = (const u8 *)icrc_tables;

    HIDE(tables);
    return tables;
}

/* The table entry of an octet, which is given times four: its offset. In assembly, because the compiler copies the address of the
 * tables for each, and computes all addresses before the first load; the table is an immediate of the load. */
static inline_always u32 icrc_entry(const u8 *tables, u32 table, u64 octet)
{
    asm volatile("%0 += %1" : "+r"(octet) : "r"(tables));
    return *(const u32 *)(octet + 1024 * table);
}

/* Adds the entry of an octet to `sum`; one at a time, or the compiler puts the parts of a long sum on the stack. */
static inline_always u32 icrc_and(u32 sum, const u8 *tables, u32 table, u64 octet)
{
    sum ^= icrc_entry(tables, table, octet & 0x3fc);
    HIDE(sum);
    return sum;
}

/* The last octets first: the first four depend on the checksum so far. */
static inline_always u32 icrc_half(const u8 *tables, u32 sum, u64 word, u32 first)
{
    sum = icrc_and(sum, tables, first - 7, word >> 54);
    sum = icrc_and(sum, tables, first - 6, word >> 46);
    sum = icrc_and(sum, tables, first - 5, word >> 38);
    sum = icrc_and(sum, tables, first - 4, word >> 30);
    sum = icrc_and(sum, tables, first - 3, word >> 22);
    sum = icrc_and(sum, tables, first - 2, word >> 14);
    sum = icrc_and(sum, tables, first - 1, word >> 6);
    return icrc_and(sum, tables, first, word << 2);
}

static inline_always u32 icrc_16(const u8 *tables, u32 crc, u64 a, u64 b)
{
    return icrc_half(tables, icrc_half(tables, 0, b, 7), a ^ crc, 15);
}

static inline_always u32 icrc_8(const u8 *tables, u32 crc, u64 word) { return icrc_half(tables, 0, word ^ crc, 7); }

static inline_always u32 icrc_4(const u8 *tables, u32 crc, u32 word)
{
    u32 sum;

    word ^= crc;
    sum = icrc_and(0, tables, 3, word << 2);
    sum = icrc_and(sum, tables, 2, word >> 6);
    sum = icrc_and(sum, tables, 1, word >> 14);
    return icrc_and(sum, tables, 0, word >> 22);
}

/* Words of the frame, in host order. */
static inline_always u64 word(const u8 *at) { return *(const u64 *)at; }
static inline_always u32 half(const u8 *at) { return *(const u32 *)at; }

/* The same for sixteen bytes in the frame. Octets that do not depend on the checksum so far are loaded one by one, which costs
 * less than extracting them from a word. */
static inline_always u32 icrc_16_at(const u8 *tables, u32 crc, const u8 *p)
{
    u32 sum = 0, first = half(p) ^ crc;

#pragma clang loop unroll(full)
    for (u32 i = 4; i < 16; i++) {
        sum ^= icrc_entry(tables, 15 - i, (u64)p[i] << 2);
        HIDE(sum);
    }
    sum = icrc_and(sum, tables, 12, first >> 22);
    sum = icrc_and(sum, tables, 13, first >> 14);
    sum = icrc_and(sum, tables, 14, first >> 6);
    return icrc_and(sum, tables, 15, first << 2);
}

/* Steps of sixteen bytes from the PSN on, of the longest packet. */
#define MAX_STEPS ((4 + MAX_REST) / 16 + 1)

/* Checks the rest of a packet: `len` bytes at `p`, at most `steps` steps. 1: the checksum after them is correct. The verifier
 * knows the offset of `p` in each iteration. */
static inline_always u32 icrc_rest(const u8 *tables, u32 crc, const u8 *p, const u8 *end, u32 len, const u32 steps)
{
#pragma clang loop unroll(disable)
    for (u32 i = 0; i < steps && len >= 16; i++) {
        HIDE(p);
        if (p + 16 > end)
            return 0;
        crc = icrc_16_at(tables, crc, p);
        p += 16;
        len -= 16;
    }
    HIDE(p);
    if (len & 8) {
        if (p + 8 > end)
            return 0;
        crc = icrc_8(tables, crc, word(p));
        p += 8;
    }
    HIDE(p);
    if (len & 4) {
        if (p + 4 > end)
            return 0;
        crc = icrc_4(tables, crc, half(p));
        p += 4;
    }
    HIDE(p);
#pragma clang loop unroll(disable)
    for (u32 i = 0; i < 3 && i < (len & 3); i++) {
        HIDE(p);
        if (p + 1 > end)
            return 0;
        crc = crc >> 8 ^ icrc_entry(tables, 0, ((crc ^ *p) & 0xff) << 2);
        p += 1;
    }
    HIDE(p);
    if (len >= 16 || p + 4 > end)
        return 0;
    return half(p) == ~crc;
}

/* Offset of the IP header in a frame without tags. */
#define L3 14

/* Global functions, which the verifier checks once, independent of their callers. `rest`: bytes between the base header and the
 * checksum; `crc`: of all bytes up to the PSN, the last word of the base header. */
noinline u32 icrc_good_from(struct xdp_md *frame, u32 crc, u32 v6, u32 rest)
{
    const u8 *p = (const u8 *)(long)frame->data + L3, *end = (const u8 *)(long)frame->data_end;

    p += v6 ? 56 : 36;
    return icrc_rest(icrc_start_of_tables(), crc, p, end, rest + 4, MAX_STEPS);
}

noinline u32 icrc_good_v4(struct xdp_md *frame, u32 rest)
{
    const u8 *p = (const u8 *)(long)frame->data + L3, *end = (const u8 *)(long)frame->data_end;
    const u8 *tables = icrc_start_of_tables();

    if (p + 36 > end)
        return 0;
    /* Masks type of service; TTL and checksum; UDP checksum; the bits of the base header that the network may set. */
    u32 crc = icrc_16(tables, ICRC_START, word(p) | 0xff00, word(p + 8) | 0xffff00ff);
    crc = icrc_16(tables, crc, word(p + 16), word(p + 24) | 0xffff0000);
    return icrc_good_from(frame, icrc_4(tables, crc, half(p + 32) | 0xff), 0, rest);
}

noinline u32 icrc_good_v6(struct xdp_md *frame, u32 rest)
{
    const u8 *p = (const u8 *)(long)frame->data + L3, *end = (const u8 *)(long)frame->data_end;
    const u8 *tables = icrc_start_of_tables();

    if (p + 56 > end)
        return 0;
    /* Masks traffic class, flow label; hop limit; UDP checksum; the bits of the base header that the network may set. */
    u32 crc = icrc_16(tables, ICRC_START, word(p) | 0xff000000ffffff0full, word(p + 8));
    crc = icrc_16(tables, crc, word(p + 16), word(p + 24));
    crc = icrc_16(tables, crc, word(p + 32), word(p + 40) | 0xffff000000000000ull);
    return icrc_good_from(frame, icrc_8(tables, crc, word(p + 48) | 0xff00000000ull), 1, rest);
}

#endif
