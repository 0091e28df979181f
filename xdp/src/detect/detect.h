/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* From a frame to its verdict. */
#ifndef HOPWISE_DETECT_H
#define HOPWISE_DETECT_H

#include "fast_path.h"
#include "parse_frame.h"
#include "parse_report.h"

/* A record in the ring: this header, then the frame. */
struct datagram_record {
    u64 ktime;
    u64 stream_count; /* of the datagram's stream, before it; see streams.h */
    u32 len;          /* of the frame */
    u32 flags;        /* enum to_user_flags */
    u32 stream_latest;
    u32 rx_queue;
    u32 ifindex;
    u16 listener;
    u16 payload; /* offset of the datagram in the frame */
    u16 payload_len;
    u16 pad[3];
    u32 stream;     /* index; ABSENT: none */
    u32 generation; /* of the thresholds and rules applied */
    u64 last;
};
_Static_assert(sizeof(struct datagram_record) == 64, "layout.rs mirrors this struct");

struct {
    MAP_UINT(type, MAP_RINGBUF);
    MAP_UINT(max_entries, 8 << 20);
} to_user SEC(".maps");

struct {
    MAP_UINT(type, MAP_PERCPU_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct scratch);
} scratch SEC(".maps");

/* Flows of one datagram whose reports are counted once the datagram is known to be suppressed. */
#define REMEMBERED 32

/* The evaluation of a datagram, and its counts. */
struct datagram_ctx {
    struct eval_ctx eval;
    struct sequence_number number;
    struct run run;
    u32 flags;  /* why it is passed to user space */
    u32 single; /* it has one report, which is still decoded */
    u32 good;   /* reports read so far; bad: refused */
    u32 bad;
    u32 first_bad;
    u32 flow_reports;
    u32 node_reports;
    u32 listener;
    u32 flows[REMEMBERED];
    u32 refused[64];
};
_Static_assert(REFUSALS <= 64, "refused has a power of two, for the mask");

struct {
    MAP_UINT(type, MAP_PERCPU_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct datagram_ctx);
} contexts SEC(".maps");

/* No datagram of the longest frame has more reports, each of four bytes at least. */
#define MAX_REPORTS (FRAME_BYTES / 4)

/* Records in the longest stack. */
#define MAX_RECORDS 256

struct verdict_ctx {
    struct scratch *s;
    const struct profile *p;
    struct datagram_ctx *dg;
};

static inline_always void count_flow(u32 index)
{
    struct flow *flow = flow_at(index);

    if (flow)
        flow->reports++;
}

static long examine_next(u32 i, struct verdict_ctx *ctx)
{
    struct datagram_ctx *dg = ctx->dg;
    int result = next_report(ctx->s, ctx->p), change;

    (void)i;
    if (result == NO_REPORT)
        return 1;
    if (result != REPORT) {
        u32 reason = REASON(result);

        if (!dg->bad)
            dg->first_bad = reason;
        dg->bad++;
        dg->refused[reason & 63]++;
        return 0;
    }
    change = examine(&ctx->s->report, &dg->eval);
    dg->single = !dg->good && !dg->bad && (ctx->s->state == DATAGRAM_END || ctx->s->rest >= ctx->s->end);
    if (change) {
        dg->flags |= change;
        return 1;
    }
    dg->flow_reports += !dg->eval.is_node;
    dg->node_reports += dg->eval.is_node;
    if (dg->good < REMEMBERED)
        dg->flows[dg->good & (REMEMBERED - 1)] = dg->eval.flow;
    else
        count_flow(dg->eval.flow);
    dg->good++;
    return 0;
}

/* Hop `i` of a path that is too long to store, in the form that read_hop returns. */
noinline int hop_beyond(struct hop *hop, struct scratch *s, const struct profile *p, u32 i, u32 count)
{
    struct node_metadata metadata, reporter;
    u32 passed, at;

    if (!hop || !s || !p)
        return 0;
    passed = s->found.stack_count;
    at = s->found.stack + (passed - 1 - i) * s->int_layout.words * 4;
    if (is_stacked(s)) {
        stacked_hop(hop, &s->int_layout, bytes(s, at), p);
        return 0;
    }
    if (i == passed)
        read_reporter(&metadata, s, p);
    else
        read_metadata(&metadata, &s->int_layout, bytes(s, at));
    if (i < passed && i + 1 == count && s->report.marks & REPORT_MERGED) {
        read_reporter(&reporter, s, p);
        merge(&metadata, &reporter);
    }
    reading(hop, &metadata, p);
    return 0;
}

/* Stores the node values of the hops of such a path. */
static long commit_beyond(u32 i, struct verdict_ctx *ctx)
{
    struct scratch *s = ctx->s;
    u32 count = s->found.stack_count + (s->has_reporter && !(s->report.marks & REPORT_MERGED));
    struct hop hop;

    if (i >= count)
        return 1;
    hop_beyond(&hop, s, ctx->p, i, count);
    commit_others(&hop, &ctx->dg->eval.thresholds);
    return 0;
}

static inline_always void commit_one(struct verdict_ctx *ctx)
{
    commit(&ctx->s->report, &ctx->dg->eval);
    if (ctx->s->report.marks & REPORT_UNDECIDED && ctx->s->found.int_version)
        bpf_loop(MAX_RECORDS, commit_beyond, ctx, 0);
}

static long commit_next(u32 i, struct verdict_ctx *ctx)
{
    int result = next_report(ctx->s, ctx->p);

    (void)i;
    if (result == NO_REPORT)
        return 1;
    if (result == REPORT)
        commit_one(ctx);
    return 0;
}

/* Counts a suppressed datagram. */
static noinline void settle(struct datagram_ctx *dg, struct counters *counters)
{
    counters->datagrams++;
    counters->reports += dg->good;
    counters->flow_reports += dg->flow_reports;
    counters->node_reports += dg->node_reports;
    if (dg->good || !dg->bad)
        counters->accepted++;
    else if (dg->first_bad < REFUSALS)
        counters->refused_datagrams[dg->first_bad]++;
    for (u32 i = 0; i < REFUSALS && dg->bad; i++)
        counters->refused[i] += dg->refused[i];
    for (u32 i = 0; i < REMEMBERED && i < dg->good; i++)
        count_flow(dg->flows[i]);
}

/* Wakes user space if it sleeps. User space sets `sleeping` before its last look at the ring, and sleeps for some milliseconds at
 * most, which bounds the delay if it falls asleep between this check and the record.
 */
static inline_always u64 wake_flags(struct control *c)
{
    if (likely(!*(volatile u32 *)&c->sleeping))
        return RING_NO_WAKEUP;
    return __sync_lock_test_and_set(&c->sleeping, 0) ? RING_FORCE_WAKEUP : RING_NO_WAKEUP;
}

/* Reads the active thresholds and rules. */
static inline_always void eval_begin(struct eval_ctx *eval, const struct control *c)
{
    u64 word = *(const volatile raw64 *)&c->generation;
    struct detection *active;

    eval->generation = word;
    eval->watched = word >> 32;
    eval->user_metrics = 0;
    if (eval->watched & WATCHED_USER) {
        active = detection_of(eval->generation);
        eval->user_metrics = active ? active->user_metrics : 0;
    }
}

/* Passes a datagram to user space and stores the values reported. */
noinline int pass_to_user(struct xdp_md *frame, struct scratch *s, const struct profile *p, struct datagram_ctx *dg,
                          struct control *c)
{
    struct verdict_ctx ctx = { .s = s, .p = p, .dg = dg };
    struct counters *counters = my_counters();
    struct datagram_record *head;
    u64 len;

    if (!s || !p || !dg || !c || !counters)
        return XDP_DROP;
    head = (struct datagram_record *)s->record;
    if (!lock_acquire()) {
        counters->contended++;
        return XDP_DROP;
    }
    /* Read again under the lock, so that records are in the ring in the order of their generations. */
    eval_begin(&dg->eval, c);
    dg->run.is_known = 0;
    dg->run.is_unexpected = 0;
    dg->run.index = ABSENT;
    if (dg->number.key && c->sequence)
        stream_pass(&dg->number, &dg->run);
    head->ktime = ktime_ns();
    head->generation = dg->eval.generation;
    head->stream_count = dg->run.before & (STREAM_SAME - 1);
    head->stream_latest = dg->run.before >> 32;
    head->stream = dg->run.index;
    head->flags = dg->flags | (dg->run.is_known ? TO_USER_STREAM : 0) | (dg->run.is_unexpected ? TO_USER_SEQUENCE : 0) |
                  (dg->run.is_known && dg->run.before & STREAM_SAME ? TO_USER_SAME : 0);
    head->len = s->len;
    head->rx_queue = frame->rx_queue_index;
    head->ifindex = frame->ingress_ifindex;
    head->listener = dg->listener;
    head->payload = s->at;
    head->payload_len = s->end - s->at;
    len = s->len;
    if (len > FRAME_BYTES)
        len = FRAME_BYTES;
    if (ring_output(&to_user, s->record, sizeof(*head) + len, wake_flags(c))) {
        /* Nothing is stored: the change is still pending. */
        counters->ring_full++;
        if (dg->run.is_known && !dg->run.is_unexpected)
            stream_lost(&dg->number);
    } else {
        counters->to_user++;
        if (dg->single) {
            commit_one(&ctx);
        } else {
            start_reports(s);
            bpf_loop(MAX_REPORTS, commit_next, &ctx, 0);
        }
    }
    lock_release();
    return XDP_DROP;
}

/* The profile of a sender. */
static inline_always const struct profile *profile_of(const struct scratch *s, const struct control *c)
{
    const raw64 *source = (const raw64 *)s->source;
    u32 index = 0, *found;
    struct prefix prefix = { .bits = 8 + 128 };

    if (c->prefixes) {
        prefix.family = is_mapped((const u64 *)source) ? 4 : 6;
        __builtin_memcpy(prefix.address, s->source, 16);
        found = map_lookup(&prefixes, &prefix);
        if (found)
            index = *found;
    }
    return map_lookup(&profiles, &index);
}

/* Resets the context for a datagram. */
static inline_always void datagram_begin(struct datagram_ctx *dg, const struct profile *p, const struct control *c)
{
    if (dg->bad)
        for (u32 i = 0; i < REFUSALS; i++)
            dg->refused[i] = 0;
    dg->flags = dg->single = dg->good = dg->bad = dg->flow_reports = dg->node_reports = 0;
    eval_begin(&dg->eval, c);
    dg->eval.stamp_ns = p->stamp_ns;
    dg->eval.synchronised = p->synchronised;
    dg->eval.is_judged = p->max_latency != NO_VALUE;
    dg->number.key = 0;
}

static inline_always void number_of(struct sequence_number *number, const struct scratch *s, u32 listener)
{
    const struct peeked *peeked = &s->peeked;
    u32 nodeless = peeked->version == 5 || peeked->node_id == ABSENT;

    if (!peeked->version)
        return;
    number->key = stream_key(peeked->version, peeked->hw_id, listener, nodeless ? 0 : peeked->node_id) |
                  (nodeless ? NODELESS : 0);
    number->source[0] = nodeless ? ((const raw64 *)s->source)[0] : 0;
    number->source[1] = nodeless ? ((const raw64 *)s->source)[1] : 0;
    number->value = peeked->seq;
    number->mask = peeked->version == 20 ? 0x3fffff : ABSENT;
}

static u32 version_serial;

/* The slow path, for any frame. */
static inline_always int decide(struct xdp_md *frame, struct scratch *s, struct datagram_ctx *dg, struct control *c)
{
    struct counters *counters = my_counters();
    const struct profile *p;
    struct verdict_ctx ctx;
    u32 port;
    int outcome;

    if (!s || !dg || !c || !counters)
        return XDP_PASS;
    outcome = parse_frame(frame, s, &c->ports);
    if (outcome == FRAME_PASSED) {
        counters->passed[s->reason < REFUSALS + 3 ? s->reason : 0]++;
        return XDP_PASS;
    }
    if (outcome == FRAME_REFUSED) {
        counters->refused_frames[s->reason < REFUSALS ? s->reason : 0]++;
        return XDP_DROP;
    }
    p = profile_of(s, c);
    if (!p)
        return XDP_PASS;
    port = port_number(c, s->dst_port);
    dg->listener = c->listeners[port & (MAX_PORTS - 1)];
    datagram_begin(dg, p, c);
    start_reports(s);
    ctx.s = s;
    ctx.p = p;
    ctx.dg = dg;
    bpf_loop(MAX_REPORTS, examine_next, &ctx, 0);
    number_of(&dg->number, s, dg->listener);
    /* Refused: it may not be a report. User space decides whether its number counts. */
    if (!s->settled && dg->number.key) {
        if (c->sequence && stream_search(&dg->number) != ABSENT)
            dg->flags |= TO_USER_SEQUENCE;
        else
            dg->number.key = 0;
    }
    if (!dg->flags && dg->number.key && c->sequence && !stream_suppress(&dg->number))
        dg->flags = TO_USER_SEQUENCE;
    if (!dg->flags) {
        settle(dg, counters);
        return XDP_DROP;
    }
    if (dg->flags & TO_USER_UNDECIDED)
        counters->undecided++;
    dg->eval.serial = __sync_fetch_and_add(&version_serial, MAX_REPORTS);
    return pass_to_user(frame, s, p, dg, c);
}

static inline_always int detect(struct xdp_md *frame)
{
    u32 zero = 0;
    struct control *c = map_lookup(&control, &zero);
    struct scratch *s;
    struct datagram_ctx *dg;

    if (!c)
        return XDP_PASS;
    if (likely(fast_path(frame, c) == XDP_DROP))
        return XDP_DROP;
    s = map_lookup(&scratch, &zero);
    dg = map_lookup(&contexts, &zero);
    if (!s || !dg)
        return XDP_PASS;
    return decide(frame, s, dg, c);
}

#endif
