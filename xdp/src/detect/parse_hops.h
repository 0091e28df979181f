/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* From records to hops in the collector's units: wire::Layout::hop, wire::Report::{reporter_metadata, hop}, collector's Reading.
 *
 * The collector reads a stack of a flow's whole path in place (`Stacked`), and everything else hop by hop
 * (`Reading::of`). The two interpret level-2 halves and queue congestion differently; so do the two functions here.
 */
#ifndef HOPWISE_PARSE_HOPS_H
#define HOPWISE_PARSE_HOPS_H

#include "parse_ioam.h"
#include "parse_layout.h"

/* The widest record that the collector reads in place, in words. */
#define WIDEST_RECORD 13

/* The metadata of one node: wire::Hop. All-ones: not reported. */
struct node_metadata {
    u64 ingress_ts;
    u64 egress_ts;
    u32 carried;
    u32 wide_ts;
    u32 node;
    u32 ports;
    u32 latency;
    u32 latency_in_ns; /* whatever the device's unit */
    u32 queue_id;
    u32 occupancy;
    u32 congestion; /* with its queue's id, which may be another one */
    u32 l2_egress;
    u32 tx;
};

static inline_always u64 scaled(u32 raw, u32 unit) { return raw == ABSENT ? NO_VALUE : (u64)raw * unit; }

/* Latencies from here on are always implausible: IMPLAUSIBLE in the collector's clock.rs. */
#define LATENCY_END 0xffffffffff000000ull

/* The time from one stamp of a node to another, ns; LATENCY_END if it is negative or too long. */
static inline_always u64 between(u64 ingress, u64 egress, u32 wide, u32 stamp_ns)
{
    u64 later;
    u32 modulo;

    if (ingress == NO_VALUE || egress == NO_VALUE)
        return NO_VALUE;
    if (!wide) {
        modulo = (u32)egress - (u32)ingress;
        return modulo >> 31 ? LATENCY_END : (u64)modulo * stamp_ns;
    }
    if (egress < ingress)
        return LATENCY_END;
    later = egress - ingress;
    /* Saturating: the products of the halves show whether the whole product exceeds 64 bits. */
    if (later >> 32 && (later >> 32) * stamp_ns + ((later & ABSENT) * stamp_ns >> 32) > ABSENT)
        return LATENCY_END;
    later *= stamp_ns;
    return later < LATENCY_END ? later : LATENCY_END;
}

/* Judges the latency of a hop with these stamps: collector's clock.rs. */
static inline_always void judge(struct hop *hop, u64 ingress, u64 egress, const struct profile *p)
{
    u64 latency = hop->latency;
    u32 is_judged = p->max_latency != NO_VALUE, lacks_ingress = !ingress && egress && egress != NO_VALUE;

    hop->implausible =
        latency != NO_VALUE && (latency >= LATENCY_END || (is_judged && (latency > p->max_latency || lacks_ingress)));
    if (hop->implausible)
        hop->latency = NO_VALUE;
}

/* Hops of a stack of the flow's whole path. */
static inline_always void stacked_hop(struct hop *hop, const struct layout *l, const u8 *record,
                                      const struct profile *p)
{
    u32 logical = l->wide_l2 ? (u32)item64(l, record, L2) : item32(l, record, L2);

    hop->node = item32(l, record, NODE);
    hop->link = item32(l, record, PORTS);
    hop->level_2 = 0;
    if ((hop->link & 0xffff) == 0xffff && logical != ABSENT) {
        /* Level-2 interfaces of 16 bits, two in one word, are read like level 1. */
        hop->link = logical;
        hop->level_2 = l->wide_l2;
    }
    hop->latency = scaled(item32(l, record, LATENCY), p->latency_ns);
    if (hop->latency == NO_VALUE && l->carried & ITEM(INGRESS) && l->carried & ITEM(EGRESS))
        hop->latency = between(stamp(l, record, INGRESS), stamp(l, record, EGRESS), l->wide_ts, p->stamp_ns);
    judge(hop, stamp(l, record, INGRESS), stamp(l, record, EGRESS), p);
    hop->queue = item32(l, record, QUEUE);
    hop->congestion = item32(l, record, CONGESTION);
    hop->utilization = scaled(item32(l, record, TX), p->utilization_unit);
}

static inline_always u32 low24(u32 pair) { return pair == ABSENT ? ABSENT : pair & 0xffffff; }

/* All items of a record. */
static inline_always void read_metadata(struct node_metadata *metadata, const struct layout *l, const u8 *record)
{
    u32 queue = item32(l, record, QUEUE), congestion = item32(l, record, CONGESTION), drop = item32(l, record, DROP);
    u32 halves, pair = queue != ABSENT ? queue : congestion != ABSENT ? congestion : drop;

    metadata->carried = l->carried;
    metadata->wide_ts = l->wide_ts;
    metadata->node = item32(l, record, NODE);
    metadata->ports = item32(l, record, PORTS);
    metadata->latency = item32(l, record, LATENCY);
    metadata->latency_in_ns = 0;
    metadata->queue_id = pair != ABSENT ? pair >> 24 : ABSENT;
    metadata->occupancy = low24(queue);
    metadata->congestion = congestion;
    metadata->ingress_ts = stamp(l, record, INGRESS);
    metadata->egress_ts = stamp(l, record, EGRESS);
    if (l->wide_l2) {
        metadata->l2_egress = (u32)item64(l, record, L2);
    } else {
        halves = item32(l, record, L2) & 0xffff;
        metadata->l2_egress = halves == 0xffff ? ABSENT : halves;
    }
    metadata->tx = item32(l, record, TX);
}

/* The reporter's own metadata. */
static inline_always void read_reporter(struct node_metadata *metadata, const struct scratch *s,
                                        const struct profile *p)
{
    read_metadata(metadata, &s->reporter_layout, bytes(s, s->reporter));
    /* Dropped before its egress was chosen. */
    if (p->drop_zero_unknown && s->report.version == 5 && s->head.kind == 1 && !(metadata->ports & 0xffff) &&
        !metadata->queue_id) {
        metadata->ports |= 0xffff;
        metadata->queue_id = ABSENT;
    }
    metadata->carried |= ITEM(NODE);
    metadata->node = s->report.node_id;
    if (s->has_ts) {
        metadata->carried |= ITEM(INGRESS);
        metadata->ingress_ts = s->ts == ABSENT ? NO_VALUE : s->ts;
    }
}

/* All-ones if one of `items` is carried, else 0: without a branch, so that the verifier has one path to check. */
static inline_always u64 if_carried(u32 carried, u32 items)
{
    u64 mask = carried & items;

    mask = -mask >> 63;
    /* Otherwise the compiler makes a branch of it. */
    asm volatile("" : "+r"(mask));
    return -mask;
}

#define MERGE(item, items) (hop->item ^= (hop->item ^ header->item) & if_carried(has, items))

/* Merges the stamps of two records of one hop: those that the header carries win. If one of the two then has 32 bits and the other 64,
 * both are taken modulo 2^32.
 */
static inline_always void merge_stamps(struct node_metadata *hop, const struct node_metadata *header)
{
    u32 has = header->carried, ingress = hop->wide_ts, egress = ingress;

    ingress ^= (ingress ^ header->wide_ts) & if_carried(has, ITEM(INGRESS));
    egress ^= (egress ^ header->wide_ts) & if_carried(has, ITEM(EGRESS));
    MERGE(ingress_ts, ITEM(INGRESS));
    MERGE(egress_ts, ITEM(EGRESS));
    if (hop->ingress_ts == NO_VALUE)
        ingress = egress;
    else if (hop->egress_ts == NO_VALUE)
        egress = ingress;
    hop->wide_ts = ingress & egress;
    if (hop->wide_ts)
        return;
    if (hop->ingress_ts != NO_VALUE)
        hop->ingress_ts &= ABSENT;
    if (hop->egress_ts != NO_VALUE)
        hop->egress_ts &= ABSENT;
}

/* Merges two records of one hop: items that the header carries win, the others stay. */
static noinline void merge(struct node_metadata *hop, const struct node_metadata *header)
{
    u32 has = header->carried, ids = ITEM(QUEUE);

    /* A drop reason has a queue's id beside it. An occupancy keeps its own. */
    if (hop->queue_id == ABSENT || hop->occupancy == ABSENT)
        ids |= ITEM(DROP);
    hop->carried |= has;
    MERGE(ports, ITEM(PORTS));
    MERGE(latency, ITEM(LATENCY));
    MERGE(latency_in_ns, ITEM(LATENCY));
    MERGE(queue_id, ids);
    MERGE(occupancy, ITEM(QUEUE));
    merge_stamps(hop, header);
    MERGE(l2_egress, ITEM(L2));
    MERGE(tx, ITEM(TX));
}

static inline_always u32 pair(u32 id, u32 value)
{
    /* A queue depth of IOAM may have more bits. */
    return id == ABSENT || value >> 24 ? ABSENT : id << 24 | value;
}

/* Reading::of. */
static inline_always void reading(struct hop *hop, const struct node_metadata *metadata, const struct profile *p)
{
    hop->node = metadata->node;
    hop->level_2 = (metadata->ports & 0xffff) == 0xffff && metadata->l2_egress != ABSENT;
    hop->link = hop->level_2 ? metadata->l2_egress : metadata->ports;
    if (metadata->latency != ABSENT)
        hop->latency = scaled(metadata->latency, metadata->latency_in_ns ? 1 : p->latency_ns);
    else
        hop->latency = between(metadata->ingress_ts, metadata->egress_ts, metadata->wide_ts, p->stamp_ns);
    judge(hop, metadata->ingress_ts, metadata->egress_ts, p);
    hop->queue = pair(metadata->queue_id, metadata->occupancy);
    hop->congestion = metadata->congestion;
    hop->utilization = scaled(metadata->tx, p->utilization_unit);
}

/* An item of 4 bytes of a trace's node. */
static inline_always u32 node_word(u32 trace_type, const u8 *node, u32 k)
{
    u64 at = node_words(trace_type & ~(2 * TRACE_BIT(k) - 1)) * 4;

    return trace_type & TRACE_BIT(k) ? be32(node + (at & MAX_OFFSET)) : ABSENT;
}

static inline_always u64 node_long(u32 trace_type, const u8 *node, u32 k)
{
    u64 at = node_words(trace_type & ~(2 * TRACE_BIT(k) - 1)) * 4;

    return trace_type & TRACE_BIT(k) ? be64(node + (at & MAX_OFFSET)) : NO_VALUE;
}

/* Reads those data of a trace's node that are items of a hop. */
static inline_always void read_trace(struct node_metadata *metadata, u32 trace_type, const u8 *node)
{
    u32 id = node_word(trace_type, node, 0), delay = node_word(trace_type, node, 4);
    u64 wide = node_long(trace_type, node, 8);

    metadata->carried = trace_type & TRACE_BIT(1) ? ITEM(PORTS) : 0;
    metadata->wide_ts = 0;
    metadata->ingress_ts = metadata->egress_ts = NO_VALUE;
    /* A node whose id is not configured still writes its hop limit before it. */
    if ((id & 0xffffff) != 0xffffff) {
        metadata->node = id & 0xffffff;
    } else {
        /* The hop limit is before it. An id that needs more than 32 bits is not available. */
        metadata->node = wide >> 32 & 0xffffff ? ABSENT : (u32)wide;
    }
    metadata->ports = node_word(trace_type, node, 1);
    metadata->latency = delay >> 31 ? ABSENT : delay;
    metadata->latency_in_ns = 1;
    metadata->l2_egress = (u32)node_long(trace_type, node, 9);
    /* A queue depth without a queue id; the reporter's metadata may have the id. */
    metadata->occupancy = node_word(trace_type, node, 6);
    metadata->queue_id = metadata->congestion = metadata->tx = ABSENT;
}

/* Whether it is about an event at one node: IOAM in its packet names no hops. */
static inline_always u32 is_local(const struct scratch *s)
{
    return s->report.flags & (REPORT_DROP | REPORT_QUEUE) && !(s->report.flags & REPORT_FLOW);
}

/* Hop `i`, the first node being 0: from the stack, or a trace, or the reporter itself, or from two of these. */
int read_hop(struct scratch *s, const struct profile *p, u32 i, u32 passed)
{
    struct node_metadata metadata, reporter;
    struct report *r;
    u32 from_top = passed - 1 - i, last;

    if (!s || !p || i >= MAX_HOPS)
        return 0;
    r = &s->report;
    if (i == passed)
        read_reporter(&metadata, s, p);
    else if (s->found.int_version)
        read_metadata(&metadata, &s->int_layout, bytes(s, s->found.stack + from_top * s->int_layout.words * 4));
    else
        read_trace(&metadata, s->found.trace_type, bytes(s, s->found.trace[from_top & (MAX_HOPS - 1)]));
    last = i + 1 == r->hop_count;
    if (i < passed && last && r->marks & REPORT_MERGED) {
        read_reporter(&reporter, s, p);
        merge(&metadata, &reporter);
    }
    /* Derived from stamps, and so in their unit; it is derived again, and checked. */
    if (last && r->version == 5 && s->has_reporter && s->head.kind == 2)
        metadata.latency = ABSENT;
    reading(&r->hops[i], &metadata, p);
    r->marks |= r->hops[i].implausible ? REPORT_IMPLAUSIBLE : 0;
    if (i == 0) {
        r->first_ingress = metadata.ingress_ts;
        s->first_wide = metadata.wide_ts;
    }
    r->last_egress = metadata.egress_ts;
    return metadata.wide_ts;
}

/* Whether the stack alone reports the path, in records that the collector reads in place. */
static inline_always u32 is_stacked(const struct scratch *s)
{
    u32 flags = s->report.flags;
    u32 whole_path =
        !(flags & (REPORT_DROP | REPORT_INTERMEDIATE)) && (flags & (REPORT_QUEUE | REPORT_FLOW)) != REPORT_QUEUE;

    return s->found.int_version && !s->has_reporter && s->walk.has_flow && whole_path && s->found.stack_count &&
           s->int_layout.words >= 1 && s->int_layout.words <= WIDEST_RECORD;
}

int stacked_hops(struct scratch *s, const struct profile *p)
{
    u32 record, at;

    if (!s || !p)
        return 0;
    record = s->int_layout.words * 4;
    at = s->found.stack + s->found.stack_count * record;
    s->report.first_ingress = stamp(&s->int_layout, bytes(s, at - record), INGRESS);
    s->report.last_egress = stamp(&s->int_layout, bytes(s, s->found.stack), EGRESS);
    s->report.wide_ends = s->int_layout.wide_ts;
    for (u32 i = 0; i < MAX_HOPS && i < s->found.stack_count; i++) {
        at -= record;
        stacked_hop(&s->report.hops[i], &s->int_layout, bytes(s, at), p);
        s->report.marks |= s->report.hops[i].implausible ? REPORT_IMPLAUSIBLE : 0;
    }
    return 0;
}

/* The hops of the report that has been read, and its ends. */
static inline_always void read_hops(struct scratch *s, const struct profile *p)
{
    struct report *r = &s->report;
    u32 is_trace = !s->found.int_version && s->found.ioam == IOAM_TRACE && !is_local(s), last_wide = 0;
    u32 passed = s->found.int_version ? s->found.stack_count : is_trace ? s->found.trace_count : 0;

    /* A postcard that declares itself is about its reporter alone. */
    if (r->version == 20 && r->marks & REPORT_POSTCARD && s->has_reporter)
        passed = is_trace = 0;

    r->hop_count = passed + (s->has_reporter && !(r->marks & REPORT_MERGED));
    r->first_ingress = r->last_egress = NO_VALUE;
    r->wide_ends = 0;
    if (r->hop_count > MAX_HOPS || (is_trace && s->found.trace_undecided)) {
        r->hop_count = 0;
        r->marks |= REPORT_UNDECIDED;
        return;
    }
    if (is_stacked(s)) {
        stacked_hops(s, p);
        return;
    }
    s->first_wide = 0;
    for (u32 i = 0; i < MAX_HOPS && i < r->hop_count; i++)
        last_wide = read_hop(s, p, i, passed);
    if (s->first_wide != last_wide) {
        /* A stamp of 32 bits and one of 64: both modulo 2^32. */
        r->first_ingress = r->first_ingress == NO_VALUE ? NO_VALUE : r->first_ingress & ABSENT;
        r->last_egress = r->last_egress == NO_VALUE ? NO_VALUE : r->last_egress & ABSENT;
    }
    r->wide_ends = s->first_wide && last_wide;
}

#endif
