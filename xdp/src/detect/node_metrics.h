/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Values of nodes: the values last reported of each queue and link. */
#ifndef HOPWISE_NODE_METRICS_H
#define HOPWISE_NODE_METRICS_H

#include "tables.h"

/* The way of a key in its bucket; METRIC_WAYS: none. */
static inline_always u32 metric_way_of(const struct metric_bucket *bucket, u64 key)
{
    for (u32 way = 0; way < METRIC_WAYS; way++)
        if (bucket->slots[way].key == key && bucket->slots[way].reported)
            return way;
    return METRIC_WAYS;
}

/* Searches both buckets of a key: its slot, as bucket and way in one number, or ABSENT. */
static inline_always u32 metric_find(u32 metric, u64 key)
{
    u64 hash = metric_hash(key);

    for (int second = 0; second < 2; second++) {
        u32 index = second ? metric_other_bucket(metric, hash) : metric_slot(metric, hash) / METRIC_WAYS, way;
        struct metric_bucket *bucket = metric_bucket_at(metric, index);

        if (!bucket)
            return ABSENT;
        way = metric_way_of(bucket, key);
        if (way < METRIC_WAYS)
            return index * METRIC_WAYS + way;
    }
    return ABSENT;
}

/* Slots of a bucket in use, and a free one: `first`, if that is free. */
static inline_always u32 metric_used(const struct metric_bucket *bucket, u32 first, u32 *free)
{
    u32 used = 0;

    *free = METRIC_WAYS;
    for (u32 i = METRIC_WAYS; i > 0; i--) {
        u32 way = (first + i) & (METRIC_WAYS - 1);

        if (bucket->slots[way].reported)
            used++;
        else
            *free = way;
    }
    if (!bucket->slots[first & (METRIC_WAYS - 1)].reported)
        *free = first;
    return used;
}

/* A free slot for a new key, preferably its first one, unless the other bucket has more room; ABSENT: there is none. */
static inline_always u32 metric_room(u32 metric, u64 key)
{
    u64 hash = metric_hash(key);
    u32 slot = metric_slot(metric, hash), way = slot & (METRIC_WAYS - 1);
    u32 first = slot / METRIC_WAYS, other = metric_other_bucket(metric, hash);
    struct metric_bucket *bucket = metric_bucket_at(metric, first), *others = metric_bucket_at(metric, other);
    u32 free, free_other, used;

    if (!bucket || !others)
        return ABSENT;
    used = metric_used(bucket, way, &free);
    if (used < METRIC_WAYS - 1 || used <= metric_used(others, way, &free_other))
        return free < METRIC_WAYS ? first * METRIC_WAYS + free : ABSENT;
    return free_other < METRIC_WAYS ? other * METRIC_WAYS + free_other : ABSENT;
}

static inline_always struct metric_slot *metric_slot_at(u32 metric, u32 at)
{
    struct metric_bucket *bucket = metric_bucket_at(metric, at / METRIC_WAYS);

    return bucket ? &bucket->slots[at & (METRIC_WAYS - 1)] : 0;
}

/* The value reported of a key, plus 1; 0: the key is new. */
noinline u64 metric_search(u32 metric, u64 key)
{
    u32 at = metric_find(metric, key);
    struct metric_slot *slot = at == ABSENT ? 0 : metric_slot_at(metric, at);

    return slot ? slot->reported : 0;
}

/* Whether a value is within its threshold. The first slot nearly always has the key. */
static inline_always u32 metric_is_quiet(u32 metric, u64 key, u64 value, u64 threshold)
{
    u64 hash = metric_hash(key), reported;
    u32 first = metric_slot(metric, hash);
    struct metric_slot *slot = metric_slot_at(metric, first);

    if (!slot)
        return 0;
    reported = slot->reported;
    if (unlikely(slot->key != key || !reported)) {
        reported = metric_search(metric, key);
        if (!reported)
            return 0;
    }
    return is_near(value, reported, threshold);
}

/* Stores the value reported. Under the lock. 0: there was no room. */
noinline int metric_commit(u32 metric, u64 key, u64 value)
{
    u32 at = metric_find(metric, key), is_new = at == ABSENT;
    struct metric_slot *slot;

    if (is_new)
        at = metric_room(metric, key);
    slot = at == ABSENT ? 0 : metric_slot_at(metric, at);
    if (!slot)
        return 0;
    if (!is_new) {
        slot->reported = value + 1;
        return 1;
    }
    slot->key = key;
    slot->latest = value;
    slot->reports = 0;
    /* An exchange: no other CPU sees the slot in use with another key. */
    __sync_lock_test_and_set(&slot->reported, value + 1);
    return 1;
}

/* Stores the latest value of a key, for reports without a flow. */
noinline int metric_note(u32 metric, u64 key, u64 value)
{
    u32 at = metric_find(metric, key);
    struct metric_slot *slot = at == ABSENT ? 0 : metric_slot_at(metric, at);

    if (!slot)
        return 0;
    slot->latest = value;
    slot->reports++;
    return 1;
}

#endif
