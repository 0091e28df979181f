/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Stores to the memory that user space maps, and messages to user space. */
#ifndef HOPWISE_RDMA_STORE_H
#define HOPWISE_RDMA_STORE_H

#include "parse.h"

/* The chunk that holds a byte, or null. */
static inline_always u8 *chunk_of(u64 at)
{
    u32 index = at >> CHUNK_BITS;

    return at >> (32 + CHUNK_BITS) ? 0 : map_lookup(&memory, &index);
}

/* Stores one word, ordered after all earlier stores and before all later ones. */
static inline_always void store_word(u8 *to, u64 value)
{
    asm volatile("" ::: "memory");
    if (weak_order)
        __sync_lock_test_and_set((u64 *)to, value);
    else
        *(volatile u64 *)to = value;
    asm volatile("" ::: "memory");
}

/* The first `len` bytes of a word, 5 to 8, from `value`, as one store: see memory::Region::write_head_last. */
static inline_always void store_short(u8 *to, u64 value, u32 len)
{
    u64 others = len < 8 ? ~0ull << (8 * (len & 7)) : 0;

    *(volatile u64 *)to = (*(volatile u64 *)to & others) | (value & ~others);
}

/* Like store_short, from a frame to `at`, a multiple of eight. The ICRC's four bytes follow the data, so 8 can be read. 0: done. */
static noinline u32 store_word_of(struct xdp_md *frame, u64 at, u32 from, u32 len)
{
    u8 *chunk = chunk_of(at);
    u64 value = 0;

    if (!chunk || xdp_load(frame, from, &value, 8))
        return 1;
    store_short(chunk + (at & (CHUNK - 8)), value, len);
    return 0;
}

/* The word at `at`, a multiple of eight. 0: done. */
static noinline u32 store_head(u64 at, u64 head)
{
    u8 *chunk = chunk_of(at);

    if (!chunk)
        return 1;
    store_word(chunk + (at & (CHUNK - 8)), head);
    return 0;
}

struct copy_ctx {
    struct xdp_md *frame;
    u64 at;
    u32 from;
};

static long store_octet(u32 i, struct copy_ctx *copy)
{
    u8 *chunk = chunk_of(copy->at + i), octet;

    if (!chunk || xdp_load(copy->frame, copy->from + i, &octet, 1))
        return 1;
    chunk[(copy->at + i) & (CHUNK - 1)] = octet;
    return 0;
}

/* Across the end of a chunk: octet by octet. 0: done. */
static noinline u32 store_across(struct xdp_md *frame, u64 at, u32 from, u32 len, u32 head_last)
{
    struct copy_ctx copy = { frame, at, from };
    u8 *chunk = chunk_of(at);
    u64 head = 0;
    u32 offset = at & (CHUNK - 1) & ~7u;

    if (!chunk)
        return 1;
    if (!head_last) {
        bpf_loop(len, store_octet, &copy, 0);
        return 0;
    }
    if (len <= 8 || xdp_load(frame, from, &head, 8))
        return 1;
    store_word(chunk + offset, 0);
    copy.at += 8;
    copy.from += 8;
    bpf_loop(len - 8, store_octet, &copy, 0);
    store_word(chunk + offset, head);
    return 0;
}

/* Copies `len` bytes of the frame from `from` to `at` in the memory, ascending, or the first eight last: see
 * memory::Region::write_head_last. 0: done. */
static inline_always u32 store(struct xdp_md *frame, u64 at, u32 from, u32 len, u32 flags)
{
    u32 offset = at & (CHUNK - 1), head_last = flags & REGION_HEAD_LAST && !(at & 7) && len > 4;
    u8 *to = chunk_of(at);
    u64 head = 0;

    if (!to)
        return 1;
    if (head_last && len <= 8)
        return store_word_of(frame, at, from, len);
    if (offset > CHUNK - MAX_PAYLOAD)
        return store_across(frame, at, from, len, head_last);
    to += offset;
    if (!head_last) {
        if (len < 1 || len > MAX_PAYLOAD)
            return 1;
        return xdp_load(frame, from, to, len) != 0;
    }
    if (xdp_load(frame, from, &head, 8))
        return 1;
    len -= 8;
    if (len < 1 || len > MAX_PAYLOAD - 8)
        return 1;
    store_word(to, 0);
    if (xdp_load(frame, from + 8, to + 8, len))
        return 1;
    store_word(to, head);
    return 0;
}

/* Adds to the word at `at`, a multiple of eight. 0: done. */
static inline_always u32 add_to(u64 at, u64 delta, u64 *original)
{
    u8 *chunk = chunk_of(at);

    if (!chunk || at & 7)
        return 1;
    *original = __sync_fetch_and_add((u64 *)(chunk + (at & (CHUNK - 8))), delta);
    return 0;
}

/* The record that reports an RDMA SEND to user space. */
struct send_record {
    struct completion head;
    u8 payload[MAX_PAYLOAD];
};

RDMA_ARRAY(send_buffer, MAP_PERCPU_ARRAY, 1, 0, struct send_record);

static inline_always u32 report_send(struct xdp_md *frame, u32 qpn, u32 from, u32 len)
{
    u32 zero = 0;
    struct send_record *record = map_lookup(&send_buffer, &zero);

    if (!record || len > MAX_PAYLOAD)
        return BAD_LENGTH;
    record->head = (struct completion){ .qpn = qpn, .len = len, .kind = COMPLETION_SEND };
    if (len && xdp_load(frame, from, record->payload, len))
        return BAD_LENGTH;
    return ring_output(&completions, record, sizeof(record->head) + len, 0) ? NO_RECEIVE : GOOD;
}

#endif
