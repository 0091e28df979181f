/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* IOAM in IPv6 options: wire::ioam. */
#ifndef HOPWISE_PARSE_IOAM_H
#define HOPWISE_PARSE_IOAM_H

#include "parse.h"

enum ioam_kind { IOAM_NONE, IOAM_TRACE, IOAM_EXPORT };
enum ioam_type { IOAM_PREALLOCATED = 0, IOAM_INCREMENTAL = 1, IOAM_DIRECT_EXPORT = 4 };
enum ioam_option { IOAM_MUTABLE = 0x31, IOAM_IMMUTABLE = 0x11 };

/* Bit `k` of a Trace-Type, counted from the most significant of 24. */
#define TRACE_BIT(k) (0x00800000u >> (k))
#define TRACE_WIDE (TRACE_BIT(8) | TRACE_BIT(9) | TRACE_BIT(10))
#define TRACE_OPAQUE TRACE_BIT(22)
#define TRACE_RESERVED TRACE_BIT(23)
/* O, in the byte of the node length: a node on the path found no space. */
#define TRACE_OVERFLOW 4
/* An option has 255 bytes at most, and a node four at least. */
#define MAX_TRACE_NODES 64

/* Words of one node's data under a Trace-Type, opaque snapshot left out. */
static inline_always u32 node_words(u32 trace_type)
{
    u32 counted = trace_type & ~(TRACE_OPAQUE | TRACE_RESERVED);

    return ones(counted) + ones(counted & TRACE_WIDE);
}

/* A trace, from its Namespace-ID on. */
static inline_always int ioam_trace(struct scratch *s, u32 at, u32 len, u32 incremental)
{
    const u8 *head = bytes(s, at);
    u32 trace_type, fixed, free, end = at + len, count = 0;

    if (len < 8)
        return REFUSE(BAD_IOAM);
    trace_type = be24(head + 4);
    fixed = (head[2] >> 3) * 4;
    /* In a pre-allocated trace the free space comes first; in an incremental one there is none. */
    free = incremental ? 0 : (head[3] & 0x7f) * 4;
    at += 8 + free;
    /* An opaque snapshot is data of a node, too, but not part of the length. */
    if (at > end || (!fixed && !(trace_type & TRACE_OPAQUE)) || fixed != node_words(trace_type) * 4 ||
        trace_type & TRACE_RESERVED)
        return REFUSE(BAD_IOAM);
    for (int i = 0; i < MAX_TRACE_NODES && at < end; i++) {
        u32 node = fixed;

        if (trace_type & TRACE_OPAQUE) {
            if (at + fixed >= end)
                return REFUSE(BAD_IOAM);
            node += 4 + bytes(s, at + fixed)[0] * 4;
        }
        if (at + node > end)
            return REFUSE(BAD_IOAM);
        s->found.trace[i & (MAX_HOPS - 1)] = at;
        at += node;
        count++;
    }
    s->found.ioam = IOAM_TRACE;
    s->found.ioam_count++;
    s->found.trace_type = trace_type;
    s->found.trace_undecided = head[2] & TRACE_OVERFLOW || !(trace_type & (TRACE_BIT(0) | TRACE_BIT(8)));
    s->found.trace_count = count;
    s->found.is_traced |= count > 0;
    s->is_traced_by_hop |= s->by_hop & (count > 0) & !!(trace_type & (TRACE_BIT(0) | TRACE_BIT(8)));
    return 0;
}

/* The data of an IPv6 option of one of the types in `enum ioam_option`. */
int ioam(struct scratch *s, u32 at, u32 len)
{
    const u8 *head;

    if (!s || len < 2)
        return REFUSE(BAD_IOAM);
    head = bytes(s, at);
    switch (head[1]) {
    case IOAM_PREALLOCATED:
    case IOAM_INCREMENTAL:
        return ioam_trace(s, at + 2, len - 2, head[1] == IOAM_INCREMENTAL);
    case IOAM_DIRECT_EXPORT:
        if (len < 2 + 8 + ones(head[5]) * 4)
            return REFUSE(BAD_IOAM);
        s->found.ioam = IOAM_EXPORT;
        s->found.ioam_count++;
        s->found.trace_count = 0;
        return 0;
    default:
        return 0;
    }
}

#endif
