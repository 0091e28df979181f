/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Values of nodes: the values last reported of each queue and link. */
#ifndef HOPWISE_LEVELS_H
#define HOPWISE_LEVELS_H

#include "tables.h"

/* The way of a key in its bucket; LEVEL_WAYS: none. */
static inline_always u32 level_way_of(const struct level_bucket *bucket, u64 key)
{
    for (u32 way = 0; way < LEVEL_WAYS; way++)
        if (bucket->slots[way].key == key && bucket->slots[way].reported)
            return way;
    return LEVEL_WAYS;
}

/* Searches both buckets of a key: its slot, as bucket and way in one number, or ABSENT. */
static inline_always u32 level_find(u32 level, u64 key)
{
    u64 hash = level_hash(key);

    for (int second = 0; second < 2; second++) {
        u32 index = second ? level_other_bucket(level, hash) : level_slot(level, hash) / LEVEL_WAYS, way;
        struct level_bucket *bucket = level_bucket_at(level, index);

        if (!bucket)
            return ABSENT;
        way = level_way_of(bucket, key);
        if (way < LEVEL_WAYS)
            return index * LEVEL_WAYS + way;
    }
    return ABSENT;
}

/* Slots of a bucket in use, and a free one: `first`, if that is free. */
static inline_always u32 level_used(const struct level_bucket *bucket, u32 first, u32 *free)
{
    u32 used = 0;

    *free = LEVEL_WAYS;
    for (u32 i = LEVEL_WAYS; i > 0; i--) {
        u32 way = (first + i) & (LEVEL_WAYS - 1);

        if (bucket->slots[way].reported)
            used++;
        else
            *free = way;
    }
    if (!bucket->slots[first & (LEVEL_WAYS - 1)].reported)
        *free = first;
    return used;
}

/* A free slot for a new key, preferably its first one, unless the other bucket has more room; ABSENT: there is none. */
static inline_always u32 level_room(u32 level, u64 key)
{
    u64 hash = level_hash(key);
    u32 slot = level_slot(level, hash), way = slot & (LEVEL_WAYS - 1);
    u32 first = slot / LEVEL_WAYS, other = level_other_bucket(level, hash);
    struct level_bucket *bucket = level_bucket_at(level, first), *others = level_bucket_at(level, other);
    u32 free, free_other, used;

    if (!bucket || !others)
        return ABSENT;
    used = level_used(bucket, way, &free);
    if (used < LEVEL_WAYS - 1 || used <= level_used(others, way, &free_other))
        return free < LEVEL_WAYS ? first * LEVEL_WAYS + free : ABSENT;
    return free_other < LEVEL_WAYS ? other * LEVEL_WAYS + free_other : ABSENT;
}

static inline_always struct level_slot *level_slot_at(u32 level, u32 at)
{
    struct level_bucket *bucket = level_bucket_at(level, at / LEVEL_WAYS);

    return bucket ? &bucket->slots[at & (LEVEL_WAYS - 1)] : 0;
}

/* The value reported of a key, plus 1; 0: the key is new. */
noinline u64 level_search(u32 level, u64 key)
{
    u32 at = level_find(level, key);
    struct level_slot *slot = at == ABSENT ? 0 : level_slot_at(level, at);

    return slot ? slot->reported : 0;
}

/* Is a value within its threshold? The first slot nearly always has the key. */
static inline_always u32 level_is_quiet(u32 level, u64 key, u64 value, u64 threshold)
{
    u64 hash = level_hash(key), reported;
    u32 first = level_slot(level, hash);
    struct level_slot *slot = level_slot_at(level, first);

    if (!slot)
        return 0;
    reported = slot->reported;
    if (unlikely(slot->key != key || !reported)) {
        reported = level_search(level, key);
        if (!reported)
            return 0;
    }
    return is_near(value, reported, threshold);
}

/* Stores the value reported. Under the lock. 0: there was no room. */
noinline int level_commit(u32 level, u64 key, u64 value)
{
    u32 at = level_find(level, key), is_new = at == ABSENT;
    struct level_slot *slot;

    if (is_new)
        at = level_room(level, key);
    slot = at == ABSENT ? 0 : level_slot_at(level, at);
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
noinline int level_note(u32 level, u64 key, u64 value)
{
    u32 at = level_find(level, key);
    struct level_slot *slot = at == ABSENT ? 0 : level_slot_at(level, at);

    if (!slot)
        return 0;
    slot->latest = value;
    slot->reports++;
    return 1;
}

#endif
