/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The tables of detection, and how entries are found. layout.rs mirrors the structs here in Rust, profile.rs the plans.
 *
 * Tables are arrays that user space maps into its memory. The program hashes keys itself: finding an entry takes a multiplication
 * and a load, without a call; iterating and deleting need no system call in user space.
 *
 * Concurrent access by several CPUs and user space:
 *  - Creating an entry and changing reported values require the lock (lock.h). So records are in the ring in the order of those
 *    changes, and the reported values stored here are those of the collector, which reads the ring.
 *  - Latest values and counts are written without the lock. Decisions do not depend on them.
 *  - User space deletes an entry by one atomic store: 0 to a flow's tag, to a slot's `reported`, to a stream's `used`. Reusing the
 *    entry requires the lock. A reader of a flow without the lock compares `version`, which changes with key and path, before and
 *    after, and evaluates the flow again under the lock if it differs.
 */
#ifndef HOPWISE_TABLES_H
#define HOPWISE_TABLES_H

#include "parse.h"

#define FLOW_HOPS MAX_HOPS
/* Hops stored in a flow's entry; the others are in far_hops. */
#define NEAR_HOPS 6

/* Sizes of the tables, in buckets; set before loading, together with the maps' numbers of entries. */
const volatile u32 flow_buckets = 128;
const volatile u32 queue_buckets = 64;
const volatile u32 link_buckets = 64;
const volatile u32 stream_slots = 64;
/* Hash seed, which prevents senders from targeting one bucket. */
const volatile u32 seed = 0x6a09e667;

/* The state of a flow's hop; all-ones: not reported. Latencies saturate below all-ones, as in the collector. */
struct flow_hop {
    u32 node;
    u32 link;
    u32 reported; /* hop latency as last reported, and latest, ns */
    u32 latest;
    u32 queue;       /* id << 24 | occupancy */
    u32 utilization; /* millionths of the link */
};

/* Items of a record that the fast path reads. The node is always the first. */
enum plan_item { PLAN_LINK, PLAN_LATENCY, PLAN_QUEUE, PLAN_INGRESS, PLAN_USED, PLAN_ITEMS };

/* Where the items of a record of INT 1.0 lie, by the first byte of its bitmap and its length in words, if the second byte is 0:
 * user space makes it from wire::Layout.
 */
struct plan {
    u32 reciprocal; /* n * reciprocal >> 16 is n divided by the words of a record; 0: the slow path reads such records */
    u8 at[PLAN_ITEMS]; /* offsets in bytes; of an item that the record does not have, that of the node */
    u8 absent;         /* bit i: the record does not have item i */
    u8 pad[2];
};
_Static_assert(sizeof(struct plan) == 12, "profile.rs mirrors this struct");
/* One for each first byte and each number of words up to 31. */
#define PLANS (256 << 5)
struct plans {
    struct plan of[PLANS];
};

enum flow_flags {
    FLOW_HOP_LIMIT = 1, /* E and M of the latest report */
    FLOW_MTU = 2,
    FLOW_LOOP = 4, /* the path visits a node twice */
    FLOW_POSTCARD =
        8, /* a postcard, or a part of the path, came after the latest report with all of it: the next one is passed on */
    FLOW_PENDING = 16,   /* the next report is passed on: rules in user space have changed */
    FLOW_ALWAYS = 32,    /* its state does not fit into an entry: each report is passed on */
    FLOW_INCOMPLETE = 64 /* its path is from a report that may lack hops */
};

/* The basis of a latency: collector::Basis. */
enum basis { BASIS_MEASURED, BASIS_HOP_SUM, BASIS_CORRECTED, BASIS_UNSYNCHRONISED };

enum metric { FLOW_PATH, FLOW_LATENCY, HOP_LATENCY, QUEUE_OCCUPANCY, QUEUE_CONGESTION, LINK_UTILIZATION, METRICS };

/* Thresholds saturate below 2^62: a value plus twice a threshold does not overflow. */
struct thresholds {
    u64 of[METRICS]; /* by enum metric */
};

/* The widest threshold of hop latency that the fast path compares: half the range of a hop's value, so that a value never
 * reported is outside it.
 */
#define MAX_THRESHOLD (1ull << 31)

/* The state of a path of common length fits into four cache lines of one page: a flow that is not cached costs little more than one
 * access to memory. Further hops are in far_hops, at the same index.
 */
struct flow {
    u64 key[5];  /* struct flow_key, and two bytes of 0 */
    u32 version; /* 0: user space has removed the path; under the lock: it is being changed */
    u32 context; /* the generation for which the thresholds and rules below are valid */
    u8 path_length;
    u8 states; /* hops stored: those of the path, or of nodes that sent postcards */
    u8 flags;
    u8 basis;
    u32 reports;  /* suppressed; wraps */
    u64 reported; /* flow latency, ns */
    u64 latest;
    u32 level_2;           /* bit i: the link of hop i is of level 2 */
    u32 latency_threshold; /* all-ones: this or more */
    u32 hop_threshold;
    u32 queue_threshold;
    u32 link_threshold;
    u32 congestion_threshold;
    u64 rules; /* bit i: rule i is true */
    u64 pad;
    struct flow_hop hops[NEAR_HOPS];
};
_Static_assert(sizeof(struct flow) == 256 && __builtin_offsetof(struct flow, hops) == 112,
               "layout.rs mirrors this struct");

struct far_hops {
    struct flow_hop hops[FLOW_HOPS - NEAR_HOPS];
    u64 pad[2];
};
_Static_assert(sizeof(struct far_hops) == 256, "layout.rs mirrors this struct");

/* Eight entries, found by 16 bits of their hash; 0: free. */
#define WAYS 8
struct tags {
    u64 words[2];
};

/* A value of a node and its queue or link. */
struct metric_slot {
    u64 key;      /* node << 32 | part */
    u64 reported; /* plus 1; 0: the slot is free */
    u64 latest;   /* of reports without a flow, and their number */
    u32 reports;
    u32 pad;
};

#define METRIC_WAYS 4
struct metric_bucket {
    struct metric_slot slots[METRIC_WAYS];
};
_Static_assert(sizeof(struct metric_bucket) == 128, "layout.rs mirrors this struct");

enum node_metric { METRIC_QUEUE, METRIC_CONGESTION, METRIC_LINK };

/* A source of sequence numbers. */
struct stream {
    u64 key;       /* version << 56 | hw_id << 48 | listener << 32 | node; NODELESS */
    u64 source[2]; /* of a stream without node id; else 0 */
    u64 word;      /* latest << 32 | same << 31 | count */
    u32 used;
    u32 pad;
    u64 rest[3];
};
_Static_assert(sizeof(struct stream) == 64, "layout.rs mirrors this struct");
#define NODELESS (1ull << 63)
#define STREAM_SAME (1u << 31)
/* Slots that are searched for a stream, from the one its hash selects. */
#define STREAM_WINDOW 8

/* Settings that user space changes at any time. */
struct control {
    u32 generation; /* detection[generation & 1] is active */
    u32 watched;    /* WATCHED_* */
    u32 sleeping;   /* user space sleeps; cleared when woken */
    u32 sequence;   /* sequence numbers are tracked */
    u32 prefixes;   /* of sources with a profile of their own */
    struct ports ports;
    u16 listeners[MAX_PORTS]; /* number of the listener for each port */
};
enum { WATCHED_TABLE = 1, WATCHED_USER = 2 };
_Static_assert(sizeof(struct control) == 56, "layout.rs mirrors this struct");

/* Which flows an override is for: an address matches where its bits under the mask are those of the network. */
struct override {
    u64 src[2], src_mask[2];
    u64 dst[2], dst_mask[2];
    u16 src_port[2], dst_port[2]; /* first and last */
    u16 proto;                    /* more than 255: any */
    u8 src_v6, dst_v6;            /* never an IPv4 address */
    u32 given;                    /* bit m: metric m is overridden */
    u64 values[METRICS];
};
_Static_assert(sizeof(struct override) == 128, "layout.rs mirrors this struct");

#define MAX_OVERRIDES 1024
#define RULES 64
#define ROWS 128

/* Rules in fixed-size arrays: detect::Table. */
struct row {
    u64 value;
    u32 node;
    u32 hops;
    u8 subject;
    u8 aggregate;
    u8 comparison;
    u8 hops_comparison;
    u32 clause;
};
struct rule_table {
    u64 rules;
    u32 metrics;
    u32 rows_used;
    u64 clauses[RULES];
    struct row rows[ROWS];
};
_Static_assert(sizeof(struct rule_table) == 16 + 8 * RULES + 24 * ROWS, "detect::Table mirrors this struct");

struct detection {
    struct thresholds defaults;
    u32 overrides_used;
    /* Bit m: a rule that runs in user space uses metric m. USER_EVERY: one needs every report of its flow. */
    u32 user_metrics;
    struct rule_table rules;
    struct override overrides[MAX_OVERRIDES]; /* from general to specific */
};

/* Per CPU, 64 bits each: enum Counter of layout.rs. */
struct counters {
    u64 fast_path; /* common reports without change: a datagram, accepted, one report about a flow */
    u64 datagrams;
    u64 accepted;
    u64 reports;
    u64 flow_reports;
    u64 node_reports;
    u64 to_user;
    u64 ring_full;
    u64 contended;
    u64 undecided;
    u64 flows_full;
    u64 node_metrics_full;
    u64 streams_full;
    u64 refused[REFUSALS];
    u64 refused_datagrams[REFUSALS];
    u64 refused_frames[REFUSALS];
    u64 passed[REFUSALS + 3]; /* by refusal, or enum pass_reason */
};

#define TABLE(name, kind, entries, map_flags_, value_type)                                                             \
    struct {                                                                                                           \
        MAP_UINT(type, kind);                                                                                          \
        MAP_UINT(max_entries, entries);                                                                                \
        MAP_UINT(map_flags, map_flags_);                                                                               \
        MAP_TYPE(key, u32);                                                                                            \
        MAP_TYPE(value, value_type);                                                                                   \
    } name SEC(".maps")

TABLE(control, MAP_ARRAY, 1, MAP_MMAPABLE, struct control);
TABLE(flows, MAP_ARRAY, 1024, MAP_MMAPABLE, struct flow);
TABLE(far_hops, MAP_ARRAY, 1024, MAP_MMAPABLE, struct far_hops);
TABLE(flow_tags, MAP_ARRAY, 128, MAP_MMAPABLE, struct tags);
TABLE(queues, MAP_ARRAY, 64, MAP_MMAPABLE, struct metric_bucket);
TABLE(congestions, MAP_ARRAY, 64, MAP_MMAPABLE, struct metric_bucket);
TABLE(links, MAP_ARRAY, 64, MAP_MMAPABLE, struct metric_bucket);
TABLE(streams, MAP_ARRAY, 64, MAP_MMAPABLE, struct stream);
TABLE(detection, MAP_ARRAY, 2, 0, struct detection);
TABLE(profiles, MAP_ARRAY, 256, 0, struct profile);
TABLE(plans, MAP_ARRAY, 1, 0, struct plans);
TABLE(counters, MAP_PERCPU_ARRAY, 1, 0, struct counters);

/* Profiles by source prefix. The key begins with the family, so that an IPv4 address matches IPv4 prefixes only. */
struct prefix {
    u32 bits;
    u8 family; /* 4 or 6 */
    u8 address[16];
    u8 pad[3];
};
struct {
    MAP_UINT(type, MAP_LPM_TRIE);
    MAP_UINT(max_entries, 65536);
    MAP_UINT(map_flags, MAP_NO_PREALLOC);
    MAP_TYPE(key, struct prefix);
    MAP_TYPE(value, u32);
} prefixes SEC(".maps");

/* Multiplications that spread bits; the constants are those of MurmurHash3 and SplitMix64. */
static inline_always u64 mix(u64 a, u64 b)
{
    a = (a ^ b) * 0xff51afd7ed558ccdull;
    return a ^ a >> 32;
}

/* Scales `hash` to an index below `size`, without a division. */
static inline_always u32 scale(u32 hash, u32 size) { return (u64)hash * size >> 32; }

static inline_always u64 flow_hash(const u64 *key)
{
    u64 hash = mix(seed * 0x9e3779b97f4a7c15ull, key[1]);

    hash = mix(hash, key[3]);
    hash = mix(hash, key[4]);
    /* These words are 0 in the key of an IPv4 flow. */
    if (key[0] | key[2])
        hash = mix(mix(hash, key[0]), key[2]);
    return hash;
}

static inline_always u64 flow_tag(u64 hash)
{
    u64 tag = hash & 0xffff;

    return tag ? tag : 1;
}
static inline_always u32 flow_bucket(u64 hash) { return scale(hash >> 32, flow_buckets); }
/* Its second bucket. */
static inline_always u32 flow_other_bucket(u64 hash) { return scale(hash, flow_buckets); }

/* Its preferred way in the bucket. */
static inline_always u32 flow_way(u64 hash) { return hash >> 16 & (WAYS - 1); }

static inline_always struct flow *flow_at(u32 index) { return map_lookup(&flows, &index); }

static inline_always struct far_hops *far_at(u32 index) { return map_lookup(&far_hops, &index); }

/* Hop `i` of a flow. */
static inline_always struct flow_hop *hop_at(struct flow *flow, struct far_hops *far, u32 i)
{
    return i < NEAR_HOPS ? &flow->hops[i] : &far->hops[i - NEAR_HOPS];
}

static inline_always u32 flow_is(const struct flow *flow, const u64 *key)
{
    return !((flow->key[0] ^ key[0]) | (flow->key[1] ^ key[1]) | (flow->key[2] ^ key[2]) | (flow->key[3] ^ key[3]) |
             (flow->key[4] ^ key[4]));
}

static inline_always u64 metric_hash(u64 key) { return (key ^ (u64)seed << 20) * 0xff51afd7ed558ccdull; }
static inline_always u32 metric_buckets(u32 metric) { return metric == METRIC_LINK ? link_buckets : queue_buckets; }
/* The first slot of a key, among all slots: one multiplication gives bucket and way. */
static inline_always u32 metric_slot(u32 metric, u64 hash)
{
    return scale(hash >> 32, metric_buckets(metric) * METRIC_WAYS);
}
/* The second bucket of a key. */
static inline_always u32 metric_other_bucket(u32 metric, u64 hash)
{
    hash ^= hash >> 29;
    return scale(hash * 0xc4ceb9fe1a85ec53ull >> 32, metric_buckets(metric));
}

static inline_always struct metric_bucket *metric_bucket_at(u32 metric, u32 index)
{
    switch (metric) {
    case METRIC_QUEUE:
        return map_lookup(&queues, &index);
    case METRIC_CONGESTION:
        return map_lookup(&congestions, &index);
    default:
        return map_lookup(&links, &index);
    }
}

static inline_always u64 metric_key(u32 node, u32 part) { return (u64)node << 32 | part; }

/* The egress interface of a link, all-ones when it was not reported. */
static inline_always u32 egress_of(u32 link, u32 level_2)
{
    u32 egress = link & 0xffff;

    if (level_2)
        return link;
    return egress == 0xffff ? ABSENT : egress;
}

enum {
    QUEUE_BITS = 9,
    MAX_QUEUE_PORT = (1 << (32 - QUEUE_BITS)) - 2,
};

/* The key of a queue, as Key::of_queue in the collector's series.rs: with the egress interface, if there is one that fits. */
static inline_always u64 queue_key(u32 node, u32 queue, u32 egress)
{
    u32 port = egress <= MAX_QUEUE_PORT ? egress + 1 : 0;

    return metric_key(node, queue | port << QUEUE_BITS);
}

/* Whether `value` is within `threshold` of the value reported. `reported` is that value plus 1. */
static inline_always u32 is_near(u64 value, u64 reported, u64 threshold)
{
    return value + 1 - reported + threshold <= 2 * threshold;
}

/* A latency as stored in a hop: SATURATED in the collector's node_metrics.rs. */
static inline_always u32 saturated(u64 latency) { return latency < 0xfeffffff ? latency : 0xfeffffff; }

static inline_always u64 distance(u64 a, u64 b) { return a > b ? a - b : b - a; }

/* Whether a latency differs from the one reported by more than its threshold. */
static inline_always u32 is_hop_change(u32 latest, u32 reported, u64 threshold)
{
    u64 deadband = threshold < MAX_THRESHOLD ? threshold : MAX_THRESHOLD;

    /* All-ones: not reported. The test below could match it for latencies of seconds. */
    if (reported == ABSENT)
        return 1;
    if ((u64)latest + deadband - reported <= 2 * deadband)
        return 0;
    return distance(reported, latest) > threshold;
}

static inline_always struct counters *my_counters(void)
{
    u32 zero = 0;

    return map_lookup(&counters, &zero);
}

#endif
