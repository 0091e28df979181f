/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* From a frame to its verdict. */
#ifndef HOPWISE_DETECT_H
#define HOPWISE_DETECT_H

#include "quick.h"
#include "parse_frame.h"
#include "parse_report.h"

/* What goes up: this, and the frame behind it. */
struct told {
    u64 ktime;
    u64 stream_count; /* of the datagram's stream, before it; see streams.h */
    u32 len;          /* of the frame */
    u32 flags;        /* enum told_flags */
    u32 stream_latest;
    u32 rx_queue;
    u32 ifindex;
    u16 listener;
    u16 payload; /* where the datagram lies in the frame, and how long it is */
    u16 payload_len;
    u16 pad[3];
    u32 stream; /* its place; ABSENT: none */
    u32 generation; /* thresholds and rules under which it was told */
    u64 last;
};
_Static_assert(sizeof(struct told) == 64, "layout.rs has its twin");

struct {
    MAP_UINT(type, MAP_RINGBUF);
    MAP_UINT(max_entries, 8 << 20);
} told SEC(".maps");

struct {
    MAP_UINT(type, MAP_PERCPU_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct scratch);
} scratch SEC(".maps");

/* Flows remembered of one datagram, to count their reports when it is known that it does not go up. */
#define REMEMBERED 32

/* A datagram that is decided. */
struct sheet {
    struct desk desk;
    struct number number;
    struct run run;
    u32 flags; /* why it goes up */
    u32 single; /* its one report is decoded still */
    u32 good;  /* reports read, and refused, so far */
    u32 bad;
    u32 first_bad;
    u32 flow_reports;
    u32 node_reports;
    u32 listener;
    u32 flows[REMEMBERED];
    u32 refused[REFUSALS + 5];
};

struct {
    MAP_UINT(type, MAP_PERCPU_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct sheet);
} sheets SEC(".maps");

/* No datagram of the longest frame has more reports, each of four bytes at least. */
#define MOST_REPORTS (FRAME_BYTES / 4)

/* Records in the longest stack. */
#define MOST_RECORDS 256

struct deciding {
    struct scratch *s;
    const struct profile *p;
    struct sheet *sheet;
};

static inline_always void count_flow(u32 index)
{
    struct flow *flow = flow_at(index);

    if (flow)
        flow->reports++;
}

static long examine_next(u32 i, struct deciding *on)
{
    struct sheet *sheet = on->sheet;
    int answer = next_report(on->s, on->p), news;

    (void)i;
    if (answer == NO_REPORT)
        return 1;
    if (answer != REPORT) {
        u32 reason = REASON(answer);

        if (!sheet->bad)
            sheet->first_bad = reason;
        sheet->bad++;
        sheet->refused[reason & 31]++;
        return 0;
    }
    news = examine(&on->s->report, &sheet->desk);
    sheet->single = !sheet->good && !sheet->bad && (on->s->state == DATAGRAM_END || on->s->rest >= on->s->end);
    if (news) {
        sheet->flags |= news;
        return 1;
    }
    sheet->flow_reports += !sheet->desk.is_node;
    sheet->node_reports += sheet->desk.is_node;
    if (sheet->good < REMEMBERED)
        sheet->flows[sheet->good & (REMEMBERED - 1)] = sheet->desk.flow;
    else
        count_flow(sheet->desk.flow);
    sheet->good++;
    return 0;
}

/* Hop `i` of a path that is too long to be held, as read_hop has those of others. */
noinline int hop_beyond(struct hop *hop, struct scratch *s, const struct profile *p, u32 i, u32 count)
{
    struct said said, own;
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
        read_own(&said, s);
    else
        read_said(&said, &s->int_layout, bytes(s, at));
    if (i < passed && i + 1 == count && s->report.marks & REPORT_MERGED) {
        read_own(&own, s);
        merge(&said, &own);
    }
    reading(hop, &said, p);
    return 0;
}

/* What the hops of such a path say of their nodes is written down all the same. */
static long commit_beyond(u32 i, struct deciding *on)
{
    struct scratch *s = on->s;
    u32 count = s->found.stack_count + (s->has_own && !(s->report.marks & REPORT_MERGED));
    struct hop hop;

    if (i >= count)
        return 1;
    hop_beyond(&hop, s, on->p, i, count);
    commit_others(&hop, &on->sheet->desk.thresholds);
    return 0;
}

static inline_always void commit_one(struct deciding *on)
{
    commit(&on->s->report, &on->sheet->desk);
    if (on->s->report.marks & REPORT_UNDECIDED && on->s->found.int_version)
        bpf_loop(MOST_RECORDS, commit_beyond, on, 0);
}

static long commit_next(u32 i, struct deciding *on)
{
    int answer = next_report(on->s, on->p);

    (void)i;
    if (answer == NO_REPORT)
        return 1;
    if (answer == REPORT)
        commit_one(on);
    return 0;
}

/* Counts what was swallowed. */
static noinline void settle(struct sheet *sheet, struct counters *counters)
{
    counters->datagrams++;
    counters->reports += sheet->good;
    counters->flow_reports += sheet->flow_reports;
    counters->node_reports += sheet->node_reports;
    if (sheet->good || !sheet->bad)
        counters->accepted++;
    else if (sheet->first_bad < REFUSALS)
        counters->refused_datagrams[sheet->first_bad]++;
    for (u32 i = 0; i < REFUSALS && sheet->bad; i++)
        counters->refused[i] += sheet->refused[i];
    for (u32 i = 0; i < REMEMBERED && i < sheet->good; i++)
        count_flow(sheet->flows[i]);
}

/* Wakes user space, if it sleeps. It says so before it looks into the ring for the last time, and sleeps for some
 * milliseconds at most: so little is missed if it falls asleep between these lines and the record.
 */
static inline_always u64 wake_flags(struct control *c)
{
    if (likely(!*(volatile u32 *)&c->sleeping))
        return RING_NO_WAKEUP;
    return __sync_lock_test_and_set(&c->sleeping, 0) ? RING_FORCE_WAKEUP : RING_NO_WAKEUP;
}

/* The thresholds and rules in force. */
static inline_always void desk_begin(struct desk *desk, const struct control *c)
{
    u64 word = *(const volatile raw64 *)&c->generation;
    struct detection *in_force;

    desk->generation = word;
    desk->watched = word >> 32;
    desk->user_metrics = 0;
    if (desk->watched & WATCHED_USER) {
        in_force = detection_of(desk->generation);
        desk->user_metrics = in_force ? in_force->user_metrics : 0;
    }
}

/* Sends a datagram up and writes down what it tells. */
noinline int tell(struct xdp_md *frame, struct scratch *s, const struct profile *p, struct sheet *sheet, struct control *c)
{
    struct deciding on = { .s = s, .p = p, .sheet = sheet };
    struct counters *counters = my_counters();
    struct told *head;
    u64 len;

    if (!s || !p || !sheet || !c || !counters)
        return XDP_DROP;
    head = (struct told *)s->told;
    if (!lock_take()) {
        counters->contended++;
        return XDP_DROP;
    }
    /* Those of now, so that records lie in the ring in the order of their generations. */
    desk_begin(&sheet->desk, c);
    sheet->run.is_known = 0;
    sheet->run.is_odd = 0;
    sheet->run.place = ABSENT;
    if (sheet->number.key && c->sequence)
        stream_tell(&sheet->number, &sheet->run);
    head->ktime = ktime_ns();
    head->generation = sheet->desk.generation;
    head->stream_count = sheet->run.before & (STREAM_SAME - 1);
    head->stream_latest = sheet->run.before >> 32;
    head->stream = sheet->run.place;
    head->flags = sheet->flags | (sheet->run.is_known ? TOLD_STREAM : 0) | (sheet->run.is_odd ? TOLD_SEQUENCE : 0) |
                  (sheet->run.is_known && sheet->run.before & STREAM_SAME ? TOLD_SAME : 0);
    head->len = s->len;
    head->rx_queue = frame->rx_queue_index;
    head->ifindex = frame->ingress_ifindex;
    head->listener = sheet->listener;
    head->payload = s->at;
    head->payload_len = s->end - s->at;
    len = s->len;
    if (len > FRAME_BYTES)
        len = FRAME_BYTES;
    if (ring_output(&told, s->told, sizeof(*head) + len, wake_flags(c))) {
        /* Nothing is written down: what was news stays news. */
        counters->ring_full++;
        if (sheet->run.is_known && !sheet->run.is_odd)
            stream_lost(&sheet->number);
    } else {
        counters->told++;
        if (sheet->single) {
            commit_one(&on);
        } else {
            start_reports(s);
            bpf_loop(MOST_REPORTS, commit_next, &on, 0);
        }
    }
    lock_give();
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

/* Makes ready for a datagram. */
static inline_always void sheet_begin(struct sheet *sheet, const struct profile *p, const struct control *c)
{
    if (sheet->bad)
        for (u32 i = 0; i < REFUSALS; i++)
            sheet->refused[i] = 0;
    sheet->flags = sheet->single = sheet->good = sheet->bad = sheet->flow_reports = sheet->node_reports = 0;
    desk_begin(&sheet->desk, c);
    sheet->desk.stamp_ns = p->stamp_ns;
    sheet->desk.synchronised = p->synchronised;
    sheet->number.key = 0;
}

static inline_always void number_of(struct number *number, const struct scratch *s, u32 listener)
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
    number->circle = peeked->version == 20 ? 0x3fffff : ABSENT;
}

static u32 version_serial;

/* Any frame. */
static inline_always int decide(struct xdp_md *frame, struct scratch *s, struct sheet *sheet, struct control *c)
{
    struct counters *counters = my_counters();
    const struct profile *p;
    struct deciding on;
    u32 port;
    int outcome;

    if (!s || !sheet || !c || !counters)
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
    port = port_number(c, s->dport);
    sheet->listener = c->listeners[port & (MAX_PORTS - 1)];
    sheet_begin(sheet, p, c);
    start_reports(s);
    on.s = s;
    on.p = p;
    on.sheet = sheet;
    bpf_loop(MOST_REPORTS, examine_next, &on, 0);
    number_of(&sheet->number, s, sheet->listener);
    if (!sheet->flags && sheet->number.key && c->sequence && !stream_swallow(&sheet->number))
        sheet->flags = TOLD_SEQUENCE;
    if (!sheet->flags) {
        settle(sheet, counters);
        return XDP_DROP;
    }
    if (sheet->flags & TOLD_UNDECIDED)
        counters->undecided++;
    sheet->desk.serial = __sync_fetch_and_add(&version_serial, MOST_REPORTS);
    return tell(frame, s, p, sheet, c);
}

static inline_always int detect(struct xdp_md *frame)
{
    u32 zero = 0;
    struct control *c = map_lookup(&control, &zero);
    struct scratch *s;
    struct sheet *sheet;

    if (!c)
        return XDP_PASS;
    if (likely(quick(frame, c) == XDP_DROP))
        return XDP_DROP;
    s = map_lookup(&scratch, &zero);
    sheet = map_lookup(&sheets, &zero);
    if (!s || !sheet)
        return XDP_PASS;
    return decide(frame, s, sheet, c);
}

#endif
