/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Rules as a table: detect::Table::evaluate, line by line. */
#ifndef HOPWISE_RULES_H
#define HOPWISE_RULES_H

#include "report.h"
#include "flows.h"

enum subject { OF_FLOW_LATENCY, OF_HOPS, OF_LOOP, OF_HOP_LATENCY, OF_OCCUPANCY, OF_CONGESTION, OF_UTILIZATION };
enum aggregate { A_FLOW, A_MAX, A_MIN, A_SUM, A_AVG, A_COUNT, A_COUNT_WHERE, A_ANY, A_ALL };

/* Aggregates of the hops for one row. */
struct hop_aggregate {
    u32 count;
    u32 hits;
    u64 greatest;
    u64 least;
    u64 sum;
    u64 sum_high;
    u64 wanted;
    u64 wanted_high;
};

struct rule_ctx {
    const struct rule_table *table;
    const struct report *report;
    u64 flow_latency;
    u64 looped;
    u64 holding;
};

static inline_always u32 holds(u32 comparison, u64 a, u64 b)
{
    switch (comparison) {
    case 0:
        return a < b;
    case 1:
        return a <= b;
    case 2:
        return a > b;
    case 3:
        return a >= b;
    case 4:
        return a == b;
    default:
        return a != b;
    }
}

/* Compares numbers in two halves: the lower ones decide if the upper ones are equal. */
static inline_always u32 holds_wide(u32 comparison, u64 a_high, u64 a, u64 b_high, u64 b)
{
    return a_high == b_high ? holds(comparison, a, b) : holds(comparison, a_high, b_high);
}

static inline_always u64 queue_value(u32 queue) { return queue == ABSENT ? NO_VALUE : queue & 0x00ffffff; }

static inline_always u64 value_of(const struct hop *hop, u32 subject)
{
    switch (subject) {
    case OF_HOP_LATENCY:
        return hop->latency;
    case OF_OCCUPANCY:
        return queue_value(hop->queue);
    case OF_CONGESTION:
        return queue_value(hop->congestion);
    default:
        return hop->utilization;
    }
}

static inline_always u32 decide_row(const struct row *row, const struct hop_aggregate *all)
{
    if (row->aggregate == A_COUNT)
        return holds(row->comparison, all->count, row->value);
    /* A value that no hop reports is unknown. */
    if (!all->count)
        return 0;
    switch (row->aggregate) {
    case A_MAX:
        return holds(row->comparison, all->greatest, row->value);
    case A_MIN:
        return holds(row->comparison, all->least, row->value);
    case A_SUM:
        return holds_wide(row->comparison, all->sum_high, all->sum, 0, row->value);
    case A_AVG:
        return holds_wide(row->comparison, all->sum_high, all->sum, all->wanted_high, all->wanted);
    case A_COUNT_WHERE:
        return holds(row->hops_comparison, all->hits, row->hops);
    case A_ANY:
        return all->hits > 0;
    case A_ALL:
        return all->hits == all->count;
    default:
        return 0;
    }
}

/* Adds one hop to a row's aggregates. A global function, which the verifier checks once, for any row and hop. */
noinline int gather(const struct row *row, const struct hop *hop, struct hop_aggregate *all)
{
    u64 value;

    if (!row || !hop || !all)
        return 0;
    value = value_of(hop, row->subject);
    if (value == NO_VALUE || (row->node != ABSENT && row->node != hop->node))
        return 0;
    all->count++;
    all->hits += holds(row->comparison, value, row->value);
    all->greatest = value > all->greatest ? value : all->greatest;
    all->least = value < all->least ? value : all->least;
    all->sum += value;
    all->sum_high += all->sum < value;
    all->wanted += row->value;
    all->wanted_high += all->wanted < row->value;
    return 0;
}

/* A row about hops. */
static inline_always u32 is_true_of_hops(const struct row *row, const struct report *r)
{
    struct hop_aggregate all = { .least = NO_VALUE };

    for (int i = 0; i < MAX_HOPS; i++) {
        if (i >= (int)r->hop_count)
            break;
        gather(row, &r->hops[i], &all);
    }
    return decide_row(row, &all);
}

static long row_next(u32 i, struct rule_ctx *ctx)
{
    const struct row *row;
    u32 truth;

    if (i >= ctx->table->rows_used || i >= ROWS)
        return 1;
    row = &ctx->table->rows[i];
    switch (row->subject) {
    case OF_FLOW_LATENCY:
        truth = ctx->flow_latency != NO_VALUE && holds(row->comparison, ctx->flow_latency, row->value);
        break;
    case OF_HOPS:
        truth = holds(row->comparison, ctx->report->hop_count, row->value);
        break;
    case OF_LOOP:
        truth = holds(row->comparison, ctx->looped, row->value);
        break;
    default:
        truth = is_true_of_hops(row, ctx->report);
    }
    if (truth)
        ctx->holding |= 1ull << (row->clause & 63);
    return 0;
}

/* The rules that are true of a report, as bits. */
noinline u64 rules_true(const struct report *r, u32 generation, u64 flow_latency, u32 looped)
{
    struct detection *active = detection_of(generation);
    struct rule_ctx ctx = { .report = r, .flow_latency = flow_latency, .looped = looped };
    u64 fired = 0;

    if (!active || !r)
        return 0;
    ctx.table = &active->rules;
    bpf_loop(ROWS, row_next, &ctx, 0);
    for (int rule = 0; rule < RULES; rule++)
        if (active->rules.rules >> rule & 1 && !(active->rules.clauses[rule] & ~ctx.holding))
            fired |= 1ull << rule;
    return fired;
}

#endif
