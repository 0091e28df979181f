/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The table of flows, and the thresholds of each flow. */
#ifndef HOPWISE_FLOWS_H
#define HOPWISE_FLOWS_H

#include "report.h"
#include "tables.h"

#define NO_FLOW ABSENT

/* A flow's key as words. */
struct key {
    u64 words[5];
};

static inline_always void key_of(const struct report *r, struct key *key)
{
    const raw64 *words = (const raw64 *)&r->flow;
    const struct flow_key *flow = &r->flow;

    key->words[0] = words[0];
    key->words[1] = words[1];
    key->words[2] = words[2];
    key->words[3] = words[3];
    key->words[4] = (u64)flow->src_port | (u64)flow->dst_port << 16 | (u64)flow->proto << 32 | (u64)flow->kind << 40;
}

static inline_always struct tags *tags_at(u32 bucket) { return map_lookup(&flow_tags, &bucket); }

/* Searches both buckets of a flow: its index, or NO_FLOW. */
noinline u32 flow_search(const struct key *key)
{
    u64 hash, tag;

    if (!key)
        return NO_FLOW;
    hash = flow_hash(key->words);
    tag = flow_tag(hash);
    for (int second = 0; second < 2; second++) {
        u32 bucket = second ? flow_other_bucket(hash) : flow_bucket(hash);
        struct tags *tags = tags_at(bucket);

        if (!tags)
            return NO_FLOW;
        for (int way = 0; way < WAYS; way++) {
            struct flow *flow;

            if ((tags->words[way / 4] >> (way % 4 * 16) & 0xffff) != tag)
                continue;
            flow = flow_at(bucket * WAYS + way);
            if (flow && flow_is(flow, key->words))
                return bucket * WAYS + way;
        }
    }
    return NO_FLOW;
}

/* The first of four tags that is `tag`, as a bit of its lane; 0: none. */
static inline_always u64 lane_of(u64 word, u64 tag)
{
    u64 other = word ^ tag * 0x0001000100010001ull;
    u64 zero = (other - 0x0001000100010001ull) & ~other & 0x8000800080008000ull;

    return (zero & -zero) >> 15;
}

/* From the bit of a lane to its number. */
static inline_always u32 lane_number(u64 lane) { return lane * 0x0000000100020003ull >> 48 & 3; }

/* As flow_search, but checks the first bucket inline. */
static inline_always struct flow *flow_find(const struct key *key, u32 *at)
{
    u64 hash = flow_hash(key->words), tag = flow_tag(hash), lane;
    u32 bucket = flow_bucket(hash), index;
    struct tags *tags = tags_at(bucket);
    struct flow *flow;

    if (!tags)
        return 0;
    index = bucket * WAYS;
    /* Prefetches its page, and likely its first line, while the tags are checked. */
    flow = flow_at(index + flow_way(hash));
    if (flow)
        *(volatile u64 *)&flow->key[3];
    lane = lane_of(tags->words[0], tag);
    if (!lane) {
        lane = lane_of(tags->words[1], tag);
        index += 4;
    }
    index += lane_number(lane);
    flow = flow_at(index);
    *at = index;
    if (likely(lane && flow && flow_is(flow, key->words)))
        return flow;
    *at = index = flow_search(key);
    return index == NO_FLOW ? 0 : flow_at(index);
}

static inline_always struct detection *detection_of(u32 generation)
{
    u32 half = generation & 1;

    return map_lookup(&detection, &half);
}

struct override_ctx {
    const struct detection *detection;
    struct key key;
    struct thresholds *thresholds;
};

static inline_always u32 is_mapped(const u64 *address) { return !address[0] && (u32)address[1] == from_be32(0xffff); }

static inline_always u32 is_in(const u64 *address, const u64 *network, const u64 *mask, u32 v6)
{
    if (((address[0] ^ network[0]) & mask[0]) | ((address[1] ^ network[1]) & mask[1]))
        return 0;
    return !(v6 && is_mapped(address));
}

/* A flow without ports is in the range of all ports only. */
static inline_always u32 is_in_range(u32 port, u32 has_ports, const u16 *range)
{
    if (!has_ports)
        return range[0] == 0 && range[1] == 0xffff;
    return range[0] <= port && port <= range[1];
}

static long override_next(u32 i, struct override_ctx *ctx)
{
    const struct override *o;
    u64 tail = ctx->key.words[4];
    u32 ports = tail >> 40 & FLOW_PORTS;

    if (i >= ctx->detection->overrides_used || i >= MAX_OVERRIDES)
        return 1;
    o = &ctx->detection->overrides[i];
    if ((o->proto <= 255 && o->proto != (tail >> 32 & 0xff)) ||
        !is_in(ctx->key.words, o->src, o->src_mask, o->src_v6) ||
        !is_in(ctx->key.words + 2, o->dst, o->dst_mask, o->dst_v6) || !is_in_range(tail & 0xffff, ports, o->src_port) ||
        !is_in_range(tail >> 16 & 0xffff, ports, o->dst_port))
        return 0;
    for (int metric = 0; metric < METRICS; metric++)
        if (o->given >> metric & 1)
            ctx->thresholds->of[metric] = o->values[metric];
    return 0;
}

/* The thresholds of a flow, or the defaults. */
noinline int thresholds_of(const struct key *key, u32 generation, u32 has_flow, struct thresholds *out)
{
    struct detection *detection = detection_of(generation);
    struct override_ctx ctx;

    if (!detection || !out || !key)
        return 0;
    *out = detection->defaults;
    if (!has_flow || !detection->overrides_used)
        return 1;
    ctx.detection = detection;
    ctx.key = *key;
    ctx.thresholds = out;
    bpf_loop(MAX_OVERRIDES, override_next, &ctx, 0);
    return 1;
}

static inline_always u64 threshold_stored(u64 threshold) { return threshold < ABSENT ? threshold : ABSENT; }

/* The thresholds of a flow that is up to date. */
static inline_always void thresholds_in_use(const struct flow *flow, const struct key *key, struct thresholds *t)
{
    u32 widest = flow->latency_threshold == ABSENT || flow->hop_threshold == ABSENT ||
                 flow->queue_threshold == ABSENT || flow->congestion_threshold == ABSENT ||
                 flow->link_threshold == ABSENT;

    if (unlikely(widest)) {
        thresholds_of(key, flow->context, 1, t);
        return;
    }
    t->of[FLOW_PATH] = 0;
    t->of[FLOW_LATENCY] = flow->latency_threshold;
    t->of[HOP_LATENCY] = flow->hop_threshold;
    t->of[QUEUE_OCCUPANCY] = flow->queue_threshold;
    t->of[QUEUE_CONGESTION] = flow->congestion_threshold;
    t->of[LINK_UTILIZATION] = flow->link_threshold;
}

static inline_always void flow_use(struct flow *flow, const struct thresholds *thresholds)
{
    flow->latency_threshold = threshold_stored(thresholds->of[FLOW_LATENCY]);
    flow->hop_threshold = threshold_stored(thresholds->of[HOP_LATENCY]);
    flow->queue_threshold = threshold_stored(thresholds->of[QUEUE_OCCUPANCY]);
    flow->congestion_threshold = threshold_stored(thresholds->of[QUEUE_CONGESTION]);
    flow->link_threshold = threshold_stored(thresholds->of[LINK_UTILIZATION]);
}

/* Entries in use. Counted, not branched, as in build_layout. */
static inline_always u32 tags_used(const struct tags *tags)
{
    u32 used = 0;

    for (int way = 0; way < WAYS; way++) {
        u64 tag = tags->words[way / 4] >> (way % 4 * 16) & 0xffff;

        tag += 0xffff;
        asm volatile("" : "+r"(tag));
        used += tag >> 16;
    }
    return used;
}

/* The bucket for a new flow: its first one, unless that is almost full and the other one has more room. Then a flow rarely has
 * two full buckets while five eighths of all entries are in use.
 */
static inline_always u32 flow_bucket_for(u64 hash)
{
    u32 first = flow_bucket(hash), other = flow_other_bucket(hash);
    struct tags *tags = tags_at(first), *others = tags_at(other);
    u32 used;

    if (!tags || !others)
        return first;
    used = tags_used(tags);
    return used < WAYS - 2 || used <= tags_used(others) ? first : other;
}

/* Inserts a new flow; NO_FLOW: both its buckets are full. Under the lock. */
noinline u32 flow_insert(const struct key *key, const struct thresholds *thresholds, u32 generation, u32 version)
{
    struct tags *tags;
    struct flow *flow;
    u32 bucket, index;
    u64 hash;

    if (!key || !thresholds)
        return NO_FLOW;
    hash = flow_hash(key->words);
    bucket = flow_bucket_for(hash);
    tags = tags_at(bucket);
    if (!tags)
        return NO_FLOW;
    index = flow_way(hash);
    if (tags->words[index / 4] >> (index % 4 * 16) & 0xffff)
        for (index = 0; index < WAYS; index++)
            if (!(tags->words[index / 4] >> (index % 4 * 16) & 0xffff))
                break;
    flow = index < WAYS ? flow_at(bucket * WAYS + index) : 0;
    if (!flow)
        return NO_FLOW;
    /* A CPU that still reads the former flow of this entry notices the change of version. */
    __sync_lock_test_and_set(&flow->version, 0);
    for (int i = 0; i < 5; i++)
        flow->key[i] = key->words[i];
    flow->context = generation;
    flow->path_length = flow->states = flow->flags = flow->basis = 0;
    flow->reports = 0;
    flow->reported = flow->latest = NO_VALUE;
    flow->rules = 0;
    flow->level_2 = 0;
    flow_use(flow, thresholds);
    __sync_lock_test_and_set(&flow->version, version);
    ((volatile u16 *)tags)[index & (WAYS - 1)] = flow_tag(hash);
    return bucket * WAYS + index;
}

#endif
