/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Values of nodes: what was reported of each queue and link. */
#ifndef HOPWISE_LEVELS_H
#define HOPWISE_LEVELS_H

#include "tables.h"

/* Which of a bucket's slots holds a key; LEVEL_WAYS: none. */
static inline_always u32 level_way_of(const struct level_bucket *bucket, u64 key)
{
    for (u32 way = 0; way < LEVEL_WAYS; way++)
        if (bucket->slots[way].key == key && bucket->slots[way].reported)
            return way;
    return LEVEL_WAYS;
}

/* The slot of a key, wherever it is: bucket and way in one number, or ABSENT. */
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

/* A place for a new key, at best where it is looked for first, unless the other bucket is emptier; ABSENT: there is none. */
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

/* What was reported of a key, and 1; 0: it is new. */
noinline u64 level_search(u32 level, u64 key)
{
    u32 at = level_find(level, key);
    struct level_slot *slot = at == ABSENT ? 0 : level_slot_at(level, at);

    return slot ? slot->reported : 0;
}

/* Is a value nothing new? Nearly always its key is where it is looked for first. */
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

/* Stores a value that was reported. Under the lock. 0: there was no room. */
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
    /* An exchange, so that nobody sees the slot in use with another key. */
    __sync_lock_test_and_set(&slot->reported, value + 1);
    return 1;
}

/* Notes the latest value of a key, which no flow keeps. */
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
