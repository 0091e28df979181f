/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sequence numbers of suppressed datagrams, such that user space learns every number in the order of arrival.
 *
 * A stream is tracked as a run: the numbers are consecutive, or all equal. Within a run only the count is stored. A number that
 * does not continue the run is unexpected: its datagram is passed to user space together with the run before it, and begins
 * another run. So the collector can reconstruct the complete sequence of numbers in the order of arrival.
 *
 * The state is one word, changed by one compare-and-exchange: two CPUs that receive the same stream cannot both count a number.
 */
#ifndef HOPWISE_STREAMS_H
#define HOPWISE_STREAMS_H

#include "tables.h"

struct sequence_number {
    u64 key;
    u64 source[2];
    u32 value;
    u32 mask; /* of the sequence space */
};

static inline_always u64 stream_key(u32 version, u32 hw_id, u32 listener, u32 node)
{
    return (u64)version << 56 | (u64)hw_id << 48 | (u64)listener << 32 | node;
}

static inline_always u32 stream_start(const struct sequence_number *n)
{
    return scale(mix(mix(mix(seed, n->key), n->source[0]), n->source[1]), stream_slots);
}

static inline_always u32 stream_is(const struct stream *stream, const struct sequence_number *n)
{
    return stream->used &&
           !((stream->key ^ n->key) | (stream->source[0] ^ n->source[0]) | (stream->source[1] ^ n->source[1]));
}

static inline_always struct stream *stream_at(u32 index) { return map_lookup(&streams, &index); }

noinline u32 stream_search(const struct sequence_number *n)
{
    u32 start;

    if (!n)
        return ABSENT;
    start = stream_start(n);
    for (int i = 0; i < STREAM_WINDOW; i++) {
        struct stream *stream = stream_at(start + i);

        if (stream && stream_is(stream, n))
            return start + i;
    }
    return ABSENT;
}

enum { STREAM_UNEXPECTED, STREAM_NEXT, STREAM_AGAIN };

static inline_always u32 stream_step(u64 word, const struct sequence_number *n)
{
    u32 latest = word >> 32;

    if (word & STREAM_SAME)
        return n->value == latest ? STREAM_AGAIN : STREAM_UNEXPECTED;
    return n->value == ((latest + 1) & n->mask) ? STREAM_NEXT : STREAM_UNEXPECTED;
}

static inline_always u64 stream_word(u32 latest, u64 same, u32 count)
{
    return (u64)latest << 32 | (same ? STREAM_SAME : 0) | (count & (STREAM_SAME - 1));
}

/* Counts a number that continues the run. 0: it is unexpected, or another CPU has changed the run meanwhile. */
static inline_always u32 stream_suppress(const struct sequence_number *n)
{
    u32 index = stream_start(n);
    struct stream *stream = stream_at(index);
    u64 word;

    if (unlikely(!stream || !stream_is(stream, n))) {
        index = stream_search(n);
        stream = index == ABSENT ? 0 : stream_at(index);
        if (!stream)
            return 0;
    }
    word = *(volatile u64 *)&stream->word;
    if (stream_step(word, n) == STREAM_UNEXPECTED)
        return 0;
    return __sync_val_compare_and_swap(&stream->word, word, stream_word(n->value, word & STREAM_SAME, word + 1)) ==
           word;
}

/* The stream of a number, created if there is room. Under the lock. */
static inline_always struct stream *stream_enter(const struct sequence_number *n, u32 *at, u32 *is_new)
{
    u32 start = stream_start(n), index = stream_search(n);

    *is_new = 0;
    *at = index;
    if (index != ABSENT)
        return stream_at(index);
    for (int i = 0; i < STREAM_WINDOW; i++) {
        struct stream *stream = stream_at(start + i);

        if (!stream || stream->used)
            continue;
        stream->key = n->key;
        stream->source[0] = n->source[0];
        stream->source[1] = n->source[1];
        stream->word = stream_word(n->value, 0, 0);
        __sync_lock_test_and_set(&stream->used, 1);
        *is_new = 1;
        *at = start + i;
        return stream;
    }
    return 0;
}

/* The result of stream_pass. */
struct run {
    u64 before; /* the stream's word */
    u32 index;  /* of the stream; ABSENT: none */
    u32 is_known;
    u32 is_unexpected;
};

/* Records the number of a datagram that is passed to user space, without counting it. Under the lock. */
noinline int stream_pass(const struct sequence_number *n, struct run *run)
{
    struct stream *stream;
    u32 is_new;

    if (!n || !run)
        return 0;
    run->is_known = 0;
    run->is_unexpected = 1;
    run->before = 0;
    stream = stream_enter(n, &run->index, &is_new);
    if (!stream) {
        struct counters *counters = my_counters();

        if (counters)
            counters->streams_full++;
        return 0;
    }
    if (is_new)
        return 1;
    run->is_known = 1;
    /* Another CPU may count numbers of the stream meanwhile, but only for a short time. */
    for (int i = 0; i < 16; i++) {
        u64 word = *(volatile u64 *)&stream->word, next;
        u32 step = stream_step(word, n);

        next = step == STREAM_UNEXPECTED ? stream_word(n->value, n->value == (u32)(word >> 32), word)
                                         : stream_word(n->value, word & STREAM_SAME, word);
        run->before = word;
        run->is_unexpected = step == STREAM_UNEXPECTED;
        if (__sync_val_compare_and_swap(&stream->word, word, next) == word)
            return 1;
    }
    return 0;
}

/* The datagram was received, but its record was lost: counts its number as suppressed. */
noinline int stream_lost(const struct sequence_number *n)
{
    struct stream *stream;
    u32 index;

    if (!n)
        return 0;
    index = stream_search(n);
    stream = index == ABSENT ? 0 : stream_at(index);
    if (stream)
        __sync_fetch_and_add(&stream->word, 1);
    return 0;
}

#endif
