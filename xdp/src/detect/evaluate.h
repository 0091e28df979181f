/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Decides whether the collector needs a report. The comparisons are those of the collector (state/flow.rs,
 * state/update.rs), on the same state.
 *
 * A report is evaluated at most twice. `examine` changes nothing but latest values, and returns whether the collector would report
 * an event, or change the state it compares later reports with. If so, the datagram is passed to user space, and `commit` stores,
 * under the lock, the values that the collector will have reported when it has read the datagram.
 */
#ifndef HOPWISE_EVALUATE_H
#define HOPWISE_EVALUATE_H

#include "flows.h"
#include "node_metrics.h"
#include "lock.h"
#include "report.h"
#include "rules.h"

#define USER_EVERY (1u << 31)

/* Why a datagram is passed to user space; 0: it is not. */
enum to_user_flags {
    TO_USER_CHANGE = 1,
    TO_USER_SEQUENCE = 2, /* unexpected sequence number */
    TO_USER_RULE = 4,
    TO_USER_PENDING = 8,    /* rules in user space have changed, or FLOW_ALWAYS */
    TO_USER_UNDECIDED = 16, /* more than the tables can store */
    TO_USER_DROP = 32,
    TO_USER_REFUSED = 64, /* it has no readable report */
    TO_USER_STREAM = 128, /* stream_latest and stream_count are valid */
    TO_USER_SAME = 256,   /* the numbers before it were all stream_latest */
};

/* The evaluation of a datagram. */
struct eval_ctx {
    u32 generation;
    u32 watched;
    u32 user_metrics;
    u32 stamp_ns;
    u32 synchronised;
    u32 is_judged; /* latencies are checked; then a stamp of 0 beside another is invalid */
    u32 flow;      /* of the report examined last, if known */
    u32 is_node;   /* it updates values of nodes only */
    u32 is_new;    /* it created its flow */
    u32 serial;    /* the version of the next entry */
    struct thresholds thresholds;
};

static inline_always u32 is_whole(const struct report *r)
{
    return !(r->flags & (REPORT_DROP | REPORT_INTERMEDIATE)) &&
           (r->flags & (REPORT_QUEUE | REPORT_FLOW)) != REPORT_QUEUE &&
           (r->marks & (REPORT_NO_PATH | REPORT_REPORTER_HOP)) != REPORT_NO_PATH;
}

/* Whether hops of a whole report may be missing: E, M, or Q, which a node in the middle of the path may report. */
static inline_always u32 lacks_hops(const struct report *r)
{
    return r->flags & REPORT_QUEUE || r->marks & (REPORT_HOP_LIMIT | REPORT_MTU);
}

/* Whether they may be missing, also because the packet expired. */
static inline_always u32 is_incomplete(const struct report *r) { return lacks_hops(r) || r->marks & REPORT_EXPIRES; }

/* A node that is source and sink adds no record to the packet: its own is the whole path, not a postcard, unless it declares itself as
 * one.
 */
static inline_always u32 is_postcard(const struct report *r)
{
    return r->marks & REPORT_REPORTER_HOP && r->hop_count == 1 && !(r->marks & REPORT_MERGED) &&
           ((r->marks & (REPORT_MD | REPORT_HOP_LIMIT | REPORT_MTU)) != REPORT_MD ||
            (r->version == 20 && r->marks & REPORT_POSTCARD));
}

/* Whether it is about nodes alone: without a flow, or about a copy of a packet, which says nothing about the packet's flow. */
static inline_always u32 is_of_nodes(const struct report *r)
{
    return !(r->marks & REPORT_HAS_FLOW) || (r->marks & (REPORT_REPLICA | REPORT_UNDECIDED)) == REPORT_REPLICA;
}

/* Whether a whole report has hops of which none has a node id: they are no path, and the collector keeps the flow's. */
static noinline u32 is_nameless(const struct report *r)
{
    if (!is_whole(r) || !r->hop_count)
        return 0;
    for (int i = 0; i < MAX_HOPS; i++) {
        if (i >= (int)r->hop_count)
            break;
        if (r->hops[i].node != ABSENT)
            return 0;
    }
    return 1;
}

/* E and M as stored in a flow. */
static inline_always u32 signals(const struct report *r)
{
    return (r->marks & REPORT_HOP_LIMIT ? FLOW_HOP_LIMIT : 0) | (r->marks & REPORT_MTU ? FLOW_MTU : 0);
}

/* The time from the first node's ingress to the last node's egress; `total` is the sum of the hops', if all are known. */
static inline_always u64 flow_latency(const struct report *r, const struct eval_ctx *d, u64 total, u8 *basis)
{
    u64 later, most, measured = NO_VALUE, rounding = (u64)d->stamp_ns * r->hop_count;
    u32 backwards = 0, lacks_ingress = d->is_judged && !r->first_ingress && r->last_egress;

    /* A packet with E or M lacks the records of some nodes. */
    if (signals(r))
        total = NO_VALUE;
    *basis = total == NO_VALUE || r->hop_count == 1 ? BASIS_MEASURED : BASIS_HOP_SUM;
    if (!d->synchronised || signals(r))
        return total;
    if (r->first_ingress != NO_VALUE && r->last_egress != NO_VALUE && !lacks_ingress) {
        later = r->wide_ends ? r->last_egress - r->first_ingress : (u32)(r->last_egress - r->first_ingress);
        backwards = r->wide_ends ? r->last_egress < r->first_ingress : later >> 31;
        if (!backwards) {
            most = NO_VALUE / (d->stamp_ns | !d->stamp_ns);
            /* Otherwise the compiler emits a 128-bit multiplication, which BPF does not have. */
            asm volatile("" : "+r"(most));
            measured = later > most ? NO_VALUE : later * d->stamp_ns;
            /* Stamps are rounded at each hop. */
            if (total == NO_VALUE || measured + rounding < measured || measured + rounding >= total) {
                *basis = BASIS_MEASURED;
                return measured;
            }
        }
    }
    if (total == NO_VALUE && backwards)
        *basis = BASIS_UNSYNCHRONISED;
    return total;
}

/* The key of the queue that a hop's value belongs to: id << 24 | level. */
static inline_always u64 hop_queue_key(const struct hop *hop, u32 value)
{
    return queue_key(hop->node, value >> 24, egress_of(hop->link, hop->level_2));
}

/* The checks of a hop are global functions, which the verifier checks once, independent of their callers. */

/* Whether the queue and link values of a hop are within their thresholds. */
noinline int others_are_quiet(const struct hop *hop, const struct thresholds *t)
{
    if (!hop || !t)
        return 0;
    if (hop->utilization != NO_VALUE &&
        !metric_is_quiet(METRIC_LINK, metric_key(hop->node, egress_of(hop->link, hop->level_2)), hop->utilization,
                         t->of[LINK_UTILIZATION]))
        return 0;
    if (hop->queue != ABSENT &&
        !metric_is_quiet(METRIC_QUEUE, hop_queue_key(hop, hop->queue), hop->queue & 0xffffff, t->of[QUEUE_OCCUPANCY]))
        return 0;
    return hop->congestion == ABSENT || metric_is_quiet(METRIC_CONGESTION, hop_queue_key(hop, hop->congestion),
                                                        hop->congestion & 0xffffff, t->of[QUEUE_CONGESTION]);
}

/* Values whose latest one no flow stores. */
noinline int note_others(const struct hop *hop, u32 stored)
{
    if (!hop)
        return 0;
    if (hop->congestion != ABSENT)
        metric_note(METRIC_CONGESTION, hop_queue_key(hop, hop->congestion), hop->congestion & 0xffffff);
    if (stored)
        return 0;
    if (hop->queue != ABSENT)
        metric_note(METRIC_QUEUE, hop_queue_key(hop, hop->queue), hop->queue & 0xffffff);
    if (hop->utilization != NO_VALUE)
        metric_note(METRIC_LINK, metric_key(hop->node, egress_of(hop->link, hop->level_2)), hop->utilization);
    return 0;
}

/* A report that updates values of nodes only. */
static noinline int examine_nodes(const struct report *r, const struct thresholds *t)
{
    for (int i = 0; i < MAX_HOPS; i++) {
        if (i >= (int)r->hop_count)
            break;
        if (!others_are_quiet(&r->hops[i], t))
            return TO_USER_CHANGE;
    }
    for (int i = 0; i < MAX_HOPS; i++) {
        if (i >= (int)r->hop_count)
            break;
        note_others(&r->hops[i], 0);
    }
    return 0;
}

static inline_always u32 utilization_saturated(u64 utilization)
{
    return utilization == NO_VALUE ? ABSENT : utilization < ABSENT ? utilization : ABSENT - 1;
}

static inline_always void keep_latest(struct flow_hop *state, const struct hop *hop)
{
    state->link = hop->link;
    state->latest = hop->latency == NO_VALUE ? ABSENT : saturated(hop->latency);
    state->queue = hop->queue;
    state->utilization = utilization_saturated(hop->utilization);
}

/* Whether a hop differs from the flow's previous report, in a metric that a rule in user space uses. */
static inline_always u32 differs_for_user(const struct flow_hop *state, const struct hop *hop, u32 metrics)
{
    u32 differs = (state->latest != (hop->latency == NO_VALUE ? ABSENT : saturated(hop->latency))) << HOP_LATENCY;

    differs |= (state->queue != hop->queue) << QUEUE_OCCUPANCY;
    differs |= (state->utilization != utilization_saturated(hop->utilization)) << LINK_UTILIZATION;
    /* Not stored here. */
    differs |= (hop->congestion != ABSENT) << QUEUE_CONGESTION;
    return differs & metrics;
}

/* Brings a flow up to date with another generation of thresholds and rules. Under the lock. */
static inline_always void flow_refresh(struct flow *flow, const struct key *key, struct eval_ctx *d)
{
    thresholds_of(key, d->generation, 1, &d->thresholds);
    flow_use(flow, &d->thresholds);
    flow->rules = 0;
    /* Rules in user space have evaluated it under other rules only. */
    if (d->watched & WATCHED_USER)
        flow->flags |= FLOW_PENDING;
    flow->context = d->generation;
}

static inline_always u32 is_path(struct flow *flow, const struct report *r, u32 at)
{
    struct far_hops *far = far_at(at);

    if (!far || r->hop_count != flow->path_length)
        return 0;
    for (int i = 0; i < MAX_HOPS; i++) {
        if (i >= (int)r->hop_count)
            break;
        if (r->hops[i].node != hop_at(flow, far, i)->node)
            return 0;
    }
    return 1;
}

/* The sum of the hops' latencies; NO_VALUE if not all are reported. */
static noinline u64 total_of(const struct report *r, u32 *level_2)
{
    u32 complete = 1;
    u64 total = 0;

    *level_2 = 0;
    for (int i = 0; i < MAX_HOPS; i++) {
        if (i >= (int)r->hop_count)
            break;
        complete &= r->hops[i].latency != NO_VALUE;
        total += r->hops[i].latency;
        *level_2 |= (r->hops[i].level_2 & 1) << i;
    }
    return complete ? total : NO_VALUE;
}

/* A report with the known path of its flow. */
static noinline int examine_path(struct flow *flow, const struct report *r, struct eval_ctx *d)
{
    u32 differs = 0, level_2, metrics = d->user_metrics;
    struct far_hops *far = far_at(d->flow);
    u64 latency;
    u8 basis;

    if (!far)
        return TO_USER_CHANGE;
    /* A rule counts reports, or compares consecutive ones. */
    if (metrics & USER_EVERY)
        return TO_USER_RULE;
    for (int i = 0; i < MAX_HOPS; i++) {
        const struct hop *hop = &r->hops[i];
        struct flow_hop *state = hop_at(flow, far, i);

        if (i >= (int)r->hop_count)
            break;
        if (hop->latency != NO_VALUE &&
            is_hop_change(saturated(hop->latency), state->reported, d->thresholds.of[HOP_LATENCY]))
            return TO_USER_CHANGE;
        if (!others_are_quiet(hop, &d->thresholds))
            return TO_USER_CHANGE;
        differs |= differs_for_user(state, hop, metrics);
    }
    latency = flow_latency(r, d, total_of(r, &level_2), &basis);
    if (latency != NO_VALUE &&
        (flow->reported == NO_VALUE || distance(flow->reported, latency) > d->thresholds.of[FLOW_LATENCY]))
        return TO_USER_CHANGE;
    if ((flow->flags ^ signals(r)) & (FLOW_HOP_LIMIT | FLOW_MTU))
        return TO_USER_CHANGE;
    if (flow->flags & FLOW_INCOMPLETE && is_whole(r) && !is_incomplete(r))
        return TO_USER_CHANGE;
    differs |= (flow->latest != latency) << FLOW_LATENCY & metrics;
    if (differs)
        return TO_USER_RULE;
    if (d->watched & WATCHED_TABLE && rules_true(r, d->generation, latency, !!(flow->flags & FLOW_LOOP)) != flow->rules)
        return TO_USER_RULE;
    for (int i = 0; i < MAX_HOPS; i++) {
        if (i >= (int)r->hop_count)
            break;
        keep_latest(hop_at(flow, far, i), &r->hops[i]);
        note_others(&r->hops[i], 1);
    }
    flow->latest = latency;
    flow->basis = basis;
    flow->level_2 = level_2;
    return 0;
}

/* Why the collector needs a report: enum to_user_flags; 0: it does not. */
noinline int examine(const struct report *r, struct eval_ctx *d)
{
    struct flow *flow;
    struct key key;
    u32 version, part;
    int change;

    if (!r || !d)
        return TO_USER_CHANGE;
    d->flow = NO_FLOW;
    d->is_node = 0;
    if (r->marks & REPORT_UNDECIDED || r->hop_count > MAX_HOPS)
        return TO_USER_UNDECIDED;
    if (r->flags & REPORT_DROP || r->marks & REPORT_GAP)
        return TO_USER_DROP;
    key_of(r, &key);
    if (r->marks & (REPORT_POSTCARD | REPORT_IMPLAUSIBLE | REPORT_INT_REFUSED | REPORT_TUNNEL_UNREAD))
        return TO_USER_CHANGE;
    /* It shows the collector that other reports of the flow may lack hops: all are passed. */
    if (r->flags & REPORT_INTERMEDIATE)
        return TO_USER_CHANGE;
    if (!is_of_nodes(r) && is_nameless(r))
        return TO_USER_CHANGE;
    if (is_of_nodes(r)) {
        d->is_node = 1;
        thresholds_of(&key, d->generation, 0, &d->thresholds);
        return examine_nodes(r, &d->thresholds);
    }
    part = !is_whole(r) || !r->hop_count;
    flow = flow_find(&key, &d->flow);
    if (!flow) {
        if (is_whole(r))
            return TO_USER_CHANGE;
        d->is_node = 1;
        thresholds_of(&key, d->generation, 1, &d->thresholds);
        return examine_nodes(r, &d->thresholds);
    }
    version = *(volatile u32 *)&flow->version;
    if (!version)
        return TO_USER_CHANGE;
    if (flow->context != d->generation) {
        if (!lock_acquire())
            return TO_USER_CHANGE;
        flow_refresh(flow, &key, d);
        lock_release();
    }
    thresholds_in_use(flow, &key, &d->thresholds);
    if (flow->flags & (FLOW_PENDING | FLOW_ALWAYS))
        return TO_USER_PENDING;
    /* The collector assembles postcards, and must know whether reports with INT, or with all hops, still come. */
    if (!part && (is_postcard(r) || flow->flags & FLOW_POSTCARD))
        return TO_USER_CHANGE;
    /* The collector may have a path of postcards. */
    if (r->hop_count && !flow->path_length)
        return TO_USER_CHANGE;
    if (!part) {
        /* Of parts of the path, the collector counts how long only they have come. */
        change = is_path(flow, r, d->flow) ? examine_path(flow, r, d) : TO_USER_CHANGE;
    } else if (r->hop_count && is_path(flow, r, d->flow)) {
        change = examine_path(flow, r, d);
    } else {
        change = examine_nodes(r, &d->thresholds);
    }
    if (!change && *(volatile u32 *)&flow->version != version)
        return TO_USER_CHANGE;
    return change;
}

/* From here on: under the lock. */

noinline int commit_others(const struct hop *hop, const struct thresholds *t)
{
    u64 link, queue, congestion;
    u32 stored = 1;

    if (!hop || !t)
        return 0;
    link = metric_key(hop->node, egress_of(hop->link, hop->level_2));
    queue = hop_queue_key(hop, hop->queue);
    congestion = hop_queue_key(hop, hop->congestion);
    /* Values within their threshold leave nothing to store. */
    if (hop->utilization != NO_VALUE && !metric_is_quiet(METRIC_LINK, link, hop->utilization, t->of[LINK_UTILIZATION]))
        stored &= metric_commit(METRIC_LINK, link, hop->utilization);
    if (hop->queue != ABSENT && !metric_is_quiet(METRIC_QUEUE, queue, hop->queue & 0xffffff, t->of[QUEUE_OCCUPANCY]))
        stored &= metric_commit(METRIC_QUEUE, queue, hop->queue & 0xffffff);
    if (hop->congestion != ABSENT &&
        !metric_is_quiet(METRIC_CONGESTION, congestion, hop->congestion & 0xffffff, t->of[QUEUE_CONGESTION]))
        stored &= metric_commit(METRIC_CONGESTION, congestion, hop->congestion & 0xffffff);
    if (!stored) {
        struct counters *counters = my_counters();

        if (counters)
            counters->node_metrics_full++;
    }
    return 0;
}

static noinline int commit_nodes(const struct report *r, struct eval_ctx *d)
{
    for (int i = 0; i < MAX_HOPS; i++) {
        if (i >= (int)r->hop_count)
            break;
        commit_others(&r->hops[i], &d->thresholds);
    }
    return 0;
}

noinline int commit_hop(struct flow_hop *state, const struct hop *hop, u64 threshold)
{
    if (!state || !hop)
        return 0;
    keep_latest(state, hop);
    if (hop->latency != NO_VALUE && is_hop_change(state->latest, state->reported, threshold))
        state->reported = state->latest;
    return 0;
}

static inline_always void forget_hop(struct flow_hop *state, u32 node)
{
    state->node = node;
    state->link = state->reported = state->latest = state->queue = state->utilization = ABSENT;
}

/* Room for the old hops while a path is replaced; used under the lock. */
static struct flow_hop old_hops[FLOW_HOPS];

/* The index of a node's old hop, preferably the same index; FLOW_HOPS: none. */
static inline_always u32 old_index(u32 node, u32 at, u32 count)
{
    u32 from = FLOW_HOPS;

    if (at < count && old_hops[at & (FLOW_HOPS - 1)].node == node)
        return at;
    for (u32 i = 0; i < FLOW_HOPS; i++) {
        if (i >= count)
            break;
        if (old_hops[i].node == node) {
            from = i;
            break;
        }
    }
    return from;
}

/* Whether an earlier hop has the node of hop `at`. */
noinline u32 is_visited(const struct report *r, u32 at)
{
    u32 node;

    if (!r)
        return 0;
    node = r->hops[at & (MAX_HOPS - 1)].node;
    for (u32 i = 0; i < MAX_HOPS; i++) {
        if (i >= at)
            break;
        if (node != ABSENT && r->hops[i].node == node)
            return 1;
    }
    return 0;
}

/* Fills a hop of a new path with the known state of its node. */
noinline int move_hop(struct flow_hop *state, u32 node, u32 at, u32 old)
{
    u32 from = old_index(node, at, old);

    if (!state)
        return 0;
    if (from < FLOW_HOPS)
        *state = old_hops[from];
    else
        forget_hop(state, node);
    return 0;
}

/* Changes the path of a flow, and keeps the state of nodes that stay on it. */
static noinline int set_path(struct flow *flow, const struct report *r, struct eval_ctx *d)
{
    /* Values of postcards are not compared with those of INT. */
    u32 looped = 0, old = flow->path_length ? flow->states : 0;
    struct far_hops *far = far_at(d->flow);

    if (!far)
        return 0;
    __sync_lock_test_and_set(&flow->version, 0);
    for (int i = 0; i < FLOW_HOPS; i++)
        old_hops[i] = *hop_at(flow, far, i);
    for (int i = 0; i < FLOW_HOPS; i++) {
        if (i >= (int)r->hop_count)
            break;
        move_hop(hop_at(flow, far, i), r->hops[i].node, i, old);
        looped |= is_visited(r, i);
    }
    flow->path_length = flow->states = r->hop_count;
    flow->flags = (flow->flags & ~(FLOW_LOOP | FLOW_INCOMPLETE)) | (looped ? FLOW_LOOP : 0) |
                  (is_incomplete(r) ? FLOW_INCOMPLETE : 0);
    __sync_lock_test_and_set(&flow->version, d->serial);
    return 0;
}

/* Commits hops from `from` on, up to the first whose node differs from the path. Returns its index. */
static noinline u32 commit_hops(struct flow *flow, const struct report *r, struct eval_ctx *d, u32 from)
{
    struct far_hops *far = far_at(d->flow);

    if (!far)
        return MAX_HOPS;
    for (u32 i = 0; i < MAX_HOPS; i++) {
        if (i >= r->hop_count)
            break;
        if (i < from)
            continue;
        if (r->hops[i].node != hop_at(flow, far, i)->node)
            return i;
        commit_hop(hop_at(flow, far, i), &r->hops[i], d->thresholds.of[HOP_LATENCY]);
    }
    return MAX_HOPS;
}

/* Commits what a report says about its flow apart from hops. Inline, because calls may be eight deep. */
static inline_always int commit_flow(struct flow *flow, const struct report *r, struct eval_ctx *d)
{
    u32 level_2;
    u64 latency;
    u8 basis;

    latency = flow_latency(r, d, total_of(r, &level_2), &basis);
    if (latency != NO_VALUE &&
        (flow->reported == NO_VALUE || distance(flow->reported, latency) > d->thresholds.of[FLOW_LATENCY]))
        flow->reported = latency;
    flow->latest = latency;
    flow->basis = basis;
    flow->level_2 = level_2;
    flow->flags = (flow->flags & ~(FLOW_HOP_LIMIT | FLOW_MTU)) | signals(r);
    if (is_whole(r) && !is_incomplete(r))
        flow->flags &= ~FLOW_INCOMPLETE;
    if (d->watched & WATCHED_TABLE)
        flow->rules = rules_true(r, d->generation, latency, !!(flow->flags & FLOW_LOOP));
    return 0;
}

/* Commits a report whose hops are no path. The collector's path remains, so the next report is passed on and compared by it. */
static noinline int commit_nameless(struct flow *flow, const struct report *r, struct eval_ctx *d)
{
    u32 incomplete = flow->flags & FLOW_INCOMPLETE;

    if (lacks_hops(r))
        flow->flags = (flow->flags & ~(FLOW_HOP_LIMIT | FLOW_MTU)) | signals(r);
    else
        commit_flow(flow, r, d);
    flow->flags |= incomplete | FLOW_PENDING;
    return 0;
}

static noinline int commit_path(struct flow *flow, const struct report *r, struct eval_ctx *d)
{
    u32 from = 0;

    if (r->hop_count == flow->path_length)
        from = commit_hops(flow, r, d, 0);
    if (from < MAX_HOPS) {
        /* The hops before it match and have been committed. */
        set_path(flow, r, d);
        commit_hops(flow, r, d, from);
    }
    commit_nodes(r, d);
    return commit_flow(flow, r, d);
}

/* Whether the hops of an incomplete report are some nodes of the flow's path, in its order. */
static noinline u32 is_part_of_path(struct flow *flow, const struct report *r, u32 at)
{
    struct far_hops *far = far_at(at);
    u32 found = 0;

    if (!far)
        return 0;
    for (int i = 0; i < FLOW_HOPS; i++) {
        if (i >= (int)flow->path_length || found >= r->hop_count)
            break;
        found += r->hops[found & (MAX_HOPS - 1)].node == hop_at(flow, far, i)->node;
    }
    return flow->path_length && found >= r->hop_count;
}

/* Whether the hops of an incomplete report are the flow's path and the reporter behind it, which adds its own record to some reports
 * only.
 */
static noinline u32 is_path_and_reporter(struct flow *flow, const struct report *r, u32 at)
{
    struct far_hops *far = far_at(at);

    if (!far || flow->flags & FLOW_INCOMPLETE || !flow->path_length || r->hop_count != flow->path_length + 1u)
        return 0;
    for (int i = 0; i < MAX_HOPS - 1; i++) {
        if (i >= (int)flow->path_length)
            break;
        if (r->hops[i].node != hop_at(flow, far, i)->node)
            return 0;
    }
    return r->node_id != ABSENT && r->hops[flow->path_length & (MAX_HOPS - 1)].node == r->node_id;
}

/* Whether the hops of a report are those of the flow's path behind the first `skipped` ones. */
static noinline u32 is_run_of_path(struct flow *flow, const struct report *r, u32 at, u32 skipped)
{
    struct far_hops *far = far_at(at);

    if (!far)
        return 0;
    for (int i = 0; i < FLOW_HOPS; i++) {
        u32 hop = i - skipped;

        if (i >= (int)(skipped + r->hop_count))
            break;
        if (i >= (int)skipped && hop_at(flow, far, i)->node != r->hops[hop & (MAX_HOPS - 1)].node)
            return 0;
    }
    return 1;
}

/* Whether the hops of a report are the end of the flow's longer path: a node may have removed the records before them. The collector knows
 * whether it has, and forgets the path here if not. Or they are its start, and the packet expired.
 */
static inline_always u32 is_cut_path(struct flow *flow, const struct report *r, u32 at)
{
    if (!r->hop_count || r->hop_count >= flow->path_length)
        return 0;
    return (r->marks & REPORT_MD && is_run_of_path(flow, r, at, flow->path_length - r->hop_count)) ||
           (r->marks & REPORT_EXPIRES && is_run_of_path(flow, r, at, 0));
}

/* Commits the hops of such a report. */
static noinline int commit_part(struct flow *flow, const struct report *r, struct eval_ctx *d)
{
    struct far_hops *far = far_at(d->flow);
    u32 found = 0;

    if (!far)
        return 0;
    for (int i = 0; i < FLOW_HOPS; i++) {
        struct flow_hop *state = hop_at(flow, far, i);
        const struct hop *hop = &r->hops[found & (MAX_HOPS - 1)];

        if (i >= (int)flow->path_length || found >= r->hop_count)
            break;
        if (hop->node != state->node)
            continue;
        commit_hop(state, hop, d->thresholds.of[HOP_LATENCY]);
        found++;
    }
    commit_nodes(r, d);
    /* The collector counts how long only such reports have come. */
    flow->flags = (flow->flags & ~(FLOW_HOP_LIMIT | FLOW_MTU)) | signals(r) | FLOW_POSTCARD;
    /* The rules in user space wait for all hops. */
    if (d->watched & WATCHED_USER)
        flow->flags |= FLOW_PENDING;
    return 0;
}

static noinline int commit_postcard(struct flow *flow, const struct report *r, struct eval_ctx *d)
{
    const struct hop *hop = &r->hops[0];
    struct far_hops *far = far_at(d->flow);
    u32 states = flow->states;

    if (!far)
        return 0;
    flow->flags |= FLOW_POSTCARD;
    commit_nodes(r, d);
    for (int i = 0; i < FLOW_HOPS; i++) {
        if (i >= (int)states)
            break;
        if (hop_at(flow, far, i)->node == hop->node) {
            commit_hop(hop_at(flow, far, i), hop, d->thresholds.of[HOP_LATENCY]);
            return 0;
        }
    }
    __sync_lock_test_and_set(&flow->version, 0);
    if (!flow->path_length) {
        if (states < FLOW_HOPS) {
            struct flow_hop *state = hop_at(flow, far, states);

            forget_hop(state, hop->node);
            flow->states = states + 1;
            commit_hop(state, hop, d->thresholds.of[HOP_LATENCY]);
        } else {
            flow->flags |= FLOW_ALWAYS;
        }
    }
    __sync_lock_test_and_set(&flow->version, d->serial);
    return 0;
}

/* The flow of a report, created if it is new and the report has its path, or shows that others may lack hops. */
static inline_always u32 flow_enter(const struct report *r, const struct key *key, struct eval_ctx *d)
{
    struct counters *counters;
    u32 index;
    struct flow *flow = flow_find(key, &index);

    d->is_new = !flow;
    if (flow) {
        if (flow->context != d->generation)
            flow_refresh(flow, key, d);
        else
            thresholds_in_use(flow, key, &d->thresholds);
        flow->flags &= ~FLOW_PENDING;
        return index;
    }
    thresholds_of(key, d->generation, 1, &d->thresholds);
    if (!is_whole(r) && !(r->flags & REPORT_INTERMEDIATE))
        return NO_FLOW;
    index = flow_insert(key, &d->thresholds, d->generation, d->serial);
    counters = my_counters();
    if (index == NO_FLOW && counters)
        counters->flows_full++;
    return index;
}

/* User space has removed the flow's path, and values that it reported with it. */
static inline_always void flow_restart(struct flow *flow, u32 version)
{
    flow->path_length = flow->states = flow->basis = 0;
    flow->flags &= FLOW_ALWAYS;
    flow->reported = flow->latest = NO_VALUE;
    flow->rules = 0;
    flow->level_2 = 0;
    __sync_lock_test_and_set(&flow->version, version);
}

/* Stores the values of a report that is passed to user space. */
noinline int commit(const struct report *r, struct eval_ctx *d)
{
    struct flow *flow;
    struct key key;
    u32 index, part;

    if (!r || !d)
        return 0;
    d->serial++;
    d->serial |= !d->serial;
    key_of(r, &key);
    if (is_of_nodes(r)) {
        thresholds_of(&key, d->generation, 0, &d->thresholds);
        return commit_nodes(r, d);
    }
    index = d->flow = flow_enter(r, &key, d);
    flow = index == NO_FLOW ? 0 : flow_at(index);
    if (!flow)
        return commit_nodes(r, d);
    if (!*(volatile u32 *)&flow->version)
        flow_restart(flow, d->serial);
    if (r->marks & REPORT_UNDECIDED || r->hop_count > MAX_HOPS) {
        flow->flags |= FLOW_ALWAYS;
        return commit_nodes(r, d);
    }
    if (r->flags & REPORT_INTERMEDIATE)
        flow->flags |= FLOW_ALWAYS;
    part = !is_whole(r) || !r->hop_count;
    if (is_nameless(r))
        return commit_nameless(flow, r, d);
    if (!part && is_postcard(r))
        return commit_postcard(flow, r, d);
    if (!part)
        flow->flags &= ~FLOW_POSTCARD;
    if (r->hop_count && is_path(flow, r, d->flow))
        return commit_path(flow, r, d);
    if (!part && is_cut_path(flow, r, d->flow))
        return commit_part(flow, r, d);
    if (!part && lacks_hops(r) && (is_part_of_path(flow, r, d->flow) || is_path_and_reporter(flow, r, d->flow)))
        return commit_part(flow, r, d);
    if (!part)
        return commit_path(flow, r, d);
    return commit_nodes(r, d);
}

#endif
