/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The fast path: recognises common reports without a change, in one pass over the packet, without a copy.
 *
 * The common report is wire's `Brief`: Report 1.0 without reporter metadata, about a UDP packet over Ethernet and IPv4, with up
 * to 16 records of INT 1.0 that have the node ID and any other items. All other reports, and those with a change, are decoded and examined
 * by the slow path.
 * The fast path changes nothing but latest values, so it can give up at any point.
 */
#ifndef HOPWISE_FAST_PATH_H
#define HOPWISE_FAST_PATH_H

#include "evaluate.h"
#include "streams.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "flow keys are put together for little-endian machines"
#endif

enum { OTHERWISE = -1 };

/* Offsets in the frame: Ethernet, IPv4 and UDP of the report, its header, and the packet's. */
enum {
    OUTER_TYPE = 12,
    OUTER_IP = 14,
    OUTER_TOTAL = 16,
    OUTER_FRAGMENT = 20,
    OUTER_PROTO = 23,
    OUTER_SRC = 26,
    OUTER_DPORT = 36,
    OUTER_LEN = 38,
    PAYLOAD = 42,
    WORD = PAYLOAD,
    SWITCH_ID = PAYLOAD + 4,
    NUMBER = PAYLOAD + 8,
    INNER_TYPE = PAYLOAD + 28,
    INNER_IP = PAYLOAD + 30,
    INNER_TOS = PAYLOAD + 31,
    INNER_TOTAL = PAYLOAD + 32,
    INNER_FRAGMENT = PAYLOAD + 36,
    INNER_PROTO = PAYLOAD + 39,
    INNER_SRC = PAYLOAD + 42,
    INNER_DST = PAYLOAD + 46,
    INNER_SPORT = PAYLOAD + 50,
    INNER_DPORT = PAYLOAD + 52,
    INNER_SHIM = PAYLOAD + 58,
    INNER_SHIM_LEN = PAYLOAD + 60,
    INNER_INT = PAYLOAD + 62,
    HOP_ML = PAYLOAD + 64,
    BITMAP = PAYLOAD + 66,
    STACK = PAYLOAD + 70,
};

/* The longest frame on the fast path. */
#define QUICK_BYTES 1023

#define AT16(offset) (*(const raw16 *)(data + (offset)))
#define AT32(offset) (*(const raw32 *)(data + (offset)))

/* Whether records of this bitmap and length have the node, link, latency, queue and ingress stamp first, and the utilization last. */
static inline_always u32 is_all_items(u32 bitmap, u32 words, u32 dialect)
{
    if (bitmap == 0xff00)
        return words == 9 || words == 10 || (words == 8 && dialect == INTCOLLECTOR_GEN);
    return bitmap == 0xfd00 && (words == 7 || words == 9);
}

/* The plan for records of a bitmap and length; 0: the slow path reads them. */
static inline_always const struct plan *plan_of(u32 bitmap, u32 words)
{
    u32 zero = 0;
    const struct plans *all = map_lookup(&plans, &zero);
    const struct plan *plan;

    if (!all || bitmap & 0xff)
        return 0;
    plan = &all->of[((bitmap >> 8) << 5 | words) & (PLANS - 1)];
    return plan->reciprocal ? plan : 0;
}

/* Number of records in this many words of stack, for records with all items. */
static inline_always u32 records_in(u32 stack, u32 words)
{
    switch (words) {
    case 7:
        return stack * 9363 >> 16;
    case 8:
        return stack >> 3;
    case 9:
        return stack * 7282 >> 16;
    default:
        return stack * 6554 >> 16;
    }
}

static inline_always u32 dscp_marks(const struct profile *p, u32 dscp)
{
    return (p->dscp_mask && (dscp & p->dscp_mask) == p->dscp) || p->dscp_other == dscp;
}

/* Whether this port marks neither INT nor a tunnel nor possibly telemetry. */
static inline_always u32 is_plain_port(const struct profile *p, u32 port)
{
    const raw64 *ports = (const raw64 *)p->ports, *vxlan_ports = (const raw64 *)p->vxlan_ports;

    return port != p->int_udp_port && port != VXLAN_PORT && port != GPE_PORT && port != GENEVE_PORT &&
           port != LINUX_VXLAN_PORT && port != GTP_PORT &&
           !(lane_of(ports[0], port) | lane_of(ports[1], port) | lane_of(vxlan_ports[0], port));
}

/* Version 1, four words, Ethernet follows, no metadata: the upper 17 bits of the first word. INTCollector's generator writes a
 * length below four, and meaningless metadata bits.
 */
static inline_always u32 is_plain_word(const struct profile *p, u32 word)
{
    return word >> 15 == 0x14000000 >> 15 ||
           (p->dialect == INTCOLLECTOR_GEN && word >> 28 == 1 && (word >> 24 & 0xf) < 4 && !(word >> 21 & 7));
}

/* The number of hops of a common report of a flow's whole path; 0: it is not one. `plan`: where the items of a record lie; 0: it has
 * all of them.
 */
static inline_always u32 common_hops(const u8 *data, const struct profile *p, u32 payload_len, const struct plan **plan)
{
    u32 word = from_be32(AT32(WORD)), words = data[HOP_ML] & 0x1f, stack = data[INNER_SHIM_LEN], hops, marks;
    u32 bitmap = from_be16(AT16(BITMAP));

    /* F, Q, D from the lowest bit on; ONOS has them before the reserved bits. A replica (C of INT 1.0) is not common. */
    marks = word >> (p->dialect == ONOS ? 12 : 6);
    if (!is_plain_word(p, word) || AT16(INNER_TYPE) != from_be16(ETH_IPV4) || data[INNER_IP] != 0x45 ||
        data[INNER_PROTO] != IPPROTO_UDP || AT16(INNER_FRAGMENT) & from_be16(0x1fff) || data[INNER_SHIM] != 1 ||
        (data[INNER_INT] & 0xf2) != 0x10 || p->has_probe_marker || !dscp_marks(p, data[INNER_TOS] >> 2) ||
        !is_plain_port(p, from_be16(AT16(INNER_DPORT))) || marks & 4 || (marks & 3) == 2 || AT32(SWITCH_ID) == ABSENT ||
        stack < 3)
        return 0;
    stack -= 3;
    *plan = 0;
    if (likely(is_all_items(bitmap, words, p->dialect))) {
        hops = records_in(stack, words);
    } else {
        *plan = plan_of(bitmap, words);
        if (!*plan)
            return 0;
        hops = stack * (*plan)->reciprocal >> 16;
    }
    if (hops * words != stack || hops > MAX_HOPS || from_be16(AT16(INNER_TOTAL)) < 40 + stack * 4 ||
        payload_len < STACK - PAYLOAD + stack * 4)
        return 0;
    return hops;
}

static inline_always void common_key(const u8 *data, struct key *key)
{
    /* Addresses in network order, after the prefix of mapped IPv4. */
    key->words[0] = key->words[2] = 0;
    key->words[1] = (u64)AT32(INNER_SRC) << 32 | 0xffff0000;
    key->words[3] = (u64)AT32(INNER_DST) << 32 | 0xffff0000;
    key->words[4] = (u64)from_be16(AT16(INNER_SPORT)) | (u64)from_be16(AT16(INNER_DPORT)) << 16 |
                    (u64)IPPROTO_UDP << 32 | (u64)FLOW_PORTS << 40;
}

/* The items of a record; all-ones: it does not have it. */
struct items {
    u32 node;
    u32 link;
    u32 latency;
    u32 queue;
    u32 ingress; /* of 64 bits: the upper half */
    u32 used;
};

/* Reads a record with all items, of `len` bytes, at `offset`. 0: the frame ends before. */
static inline_always u32 read_all(struct items *items, const u8 *data, const u8 *end, u64 offset, u32 len)
{
    u64 last_offset = offset + len - 4;
    const u8 *record, *last;

    /* Shows the verifier that the offsets stay in bounds. */
    asm volatile("%0 &= 0x7ff" : "+r"(offset));
    asm volatile("%0 &= 0x7ff" : "+r"(last_offset));
    record = data + offset;
    last = data + last_offset;
    if (record + 20 > end || last + 4 > end)
        return 0;
    items->node = from_be32(*(const raw32 *)record);
    items->link = from_be32(*(const raw32 *)(record + 4));
    items->latency = from_be32(*(const raw32 *)(record + 8));
    items->queue = from_be32(*(const raw32 *)(record + 12));
    items->ingress = *(const raw32 *)(record + 16);
    items->used = from_be32(*(const raw32 *)last);
    return 1;
}

/* Reads an item of a record. Without a branch for an absent one, so that the verifier has one path to check. */
#define READ_PLANNED(value, item)                                                                                      \
    do {                                                                                                               \
        u64 place = offset + plan->at[item];                                                                           \
        const u8 *word;                                                                                                \
                                                                                                                       \
        asm volatile("%0 &= 0x7ff" : "+r"(place));                                                                     \
        word = data + place;                                                                                           \
        if (word + 4 > end)                                                                                            \
            return 0;                                                                                                  \
        value = from_be32(*(const raw32 *)word) | -(plan->absent >> (item)&1);                                         \
    } while (0)

/* As read_all, for the records of a plan. */
static inline_always u32 read_planned(struct items *items, const u8 *data, const u8 *end, u64 offset,
                                      const struct plan *plan)
{
    const u8 *record;

    READ_PLANNED(items->link, PLAN_LINK);
    READ_PLANNED(items->latency, PLAN_LATENCY);
    READ_PLANNED(items->queue, PLAN_QUEUE);
    READ_PLANNED(items->ingress, PLAN_INGRESS);
    READ_PLANNED(items->used, PLAN_USED);
    asm volatile("%0 &= 0x7ff" : "+r"(offset));
    record = data + offset;
    if (record + 4 > end)
        return 0;
    items->node = from_be32(*(const raw32 *)record);
    return 1;
}

/* The part of common_hop that queue and link values need. */
static inline_always u32 others_of_hop_are_quiet(const struct items *items, const struct flow *flow, u64 utilization)
{
    if (items->used != ABSENT && !metric_is_quiet(METRIC_LINK, metric_key(items->node, egress_of(items->link, 0)),
                                                  utilization, flow->link_threshold))
        return 0;
    return items->queue == ABSENT ||
           metric_is_quiet(METRIC_QUEUE, queue_key(items->node, items->queue >> 24, egress_of(items->link, 0)),
                           items->queue & 0xffffff, flow->queue_threshold);
}

/* Whether one hop has no significant change. If so, stores its values and adds its latency to the sum. `absent`: the items that
 * its record does not have.
 */
static inline_always u32 common_hop(const struct items *items, u32 absent, struct flow *flow, struct flow_hop *state,
                                    u64 deadband, const struct profile *p, u64 *total)
{
    u64 ns = (u64)items->latency * p->latency_ns, utilization = (u64)items->used * p->utilization_unit;
    u32 latest = ABSENT;

    /* The slow path derives a missing latency from stamps, and finds it implausible without an ingress stamp. It also reads the
     * level-2 interfaces, if those of level 1 have no egress.
     */
    if (items->node != state->node || !items->ingress ||
        ((items->link & 0xffff) == 0xffff && !(absent & 1 << PLAN_LINK)))
        return 0;
    if (!(absent & 1 << PLAN_LATENCY)) {
        if (items->latency == ABSENT || ns > p->max_latency)
            return 0;
        latest = saturated(ns);
        if ((u64)latest + deadband - state->reported > 2 * deadband)
            return 0;
        *total += ns;
    }
    if (!others_of_hop_are_quiet(items, flow, utilization))
        return 0;
    state->link = items->link;
    state->latest = latest;
    state->queue = items->queue;
    state->utilization = items->used == ABSENT ? ABSENT : utilization_saturated(utilization);
    return 1;
}

/* Arguments and result of planned_hop. */
struct planned {
    u64 offset; /* of the record in the frame */
    u64 deadband;
    u64 total;
    u32 index; /* of the flow */
};

/* As common_hop, for a record of a plan. A global function: the verifier checks it once, and not for each hop with each outcome of
 * the hops before.
 */
noinline int planned_hop(struct xdp_md *frame, struct planned *planned, struct flow_hop *state, const struct plan *plan,
                         const struct profile *p)
{
    const u8 *data = (const u8 *)(long)frame->data, *end = (const u8 *)(long)frame->data_end;
    struct items items;
    struct flow *flow;

    if (!planned || !state || !plan || !p)
        return 0;
    flow = flow_at(planned->index);
    return flow && read_planned(&items, data, end, planned->offset, plan) &&
           common_hop(&items, plan->absent, flow, state, planned->deadband, p, &planned->total);
}

/* The index of a telemetry port; MAX_PORTS: it is not one. */
static inline_always u32 port_number(const struct control *c, u32 port)
{
    if (likely(port == c->ports.port[0]))
        return c->ports.count ? 0 : MAX_PORTS;
    for (u32 i = 1; i < MAX_PORTS; i++)
        if (i < c->ports.count && c->ports.port[i] == port)
            return i;
    return MAX_PORTS;
}

/* XDP_DROP: a common report without a change, counted. OTHERWISE: the slow path decides. */
static noinline int fast_path(struct xdp_md *frame, const struct control *c)
{
    const u8 *data = (const u8 *)(long)frame->data, *end = (const u8 *)(long)frame->data_end;
    u32 zero = 0, payload_len, total_len, hops, len, port, version, index, exceeded, has_latency;
    struct profile *p = map_lookup(&profiles, &zero);
    struct counters *counters;
    /* One after the other, because all frames of nested calls have 512 bytes together. */
    union {
        struct key key;
        struct planned planned;
        struct sequence_number number;
    } local;
    struct flow_hop *state;
    struct far_hops *far;
    const struct plan *plan;
    struct flow *flow;
    u64 offset, total;

    if (data + STACK > end || !p || c->prefixes || c->watched || p->synchronised)
        return OTHERWISE;
    payload_len = from_be16(AT16(OUTER_LEN)) - 8;
    total_len = from_be16(AT16(OUTER_TOTAL));
    port = port_number(c, from_be16(AT16(OUTER_DPORT)));
    if (AT16(OUTER_TYPE) != from_be16(ETH_IPV4) || data[OUTER_IP] != 0x45 || data[OUTER_PROTO] != IPPROTO_UDP ||
        AT16(OUTER_FRAGMENT) & from_be16(0x3fff) || payload_len > QUICK_BYTES || payload_len + 28 > total_len ||
        data + PAYLOAD + payload_len > end || port == MAX_PORTS)
        return OTHERWISE;
    /* Prefetches the flow while the headers are checked. */
    common_key(data, &local.key);
    flow = flow_find(&local.key, &index);
    if (!flow)
        return OTHERWISE;
    *(volatile u64 *)&flow->latest;
    *(volatile u32 *)&flow->hops[1].node;
    *(volatile u32 *)&flow->hops[4].node;
    hops = common_hops(data, p, payload_len, &plan);
    if (!hops)
        return OTHERWISE;
    version = *(volatile u32 *)&flow->version;
    /* E is the lowest bit of one byte, M the highest of the next. With one of them the path may be incomplete. */
    exceeded = (data[INNER_INT] & 1u) | (data[INNER_INT + 1] >> 7 & 1u) << 1;
    if (!version || flow->context != c->generation || flow->path_length != hops ||
        (flow->flags & (FLOW_HOP_LIMIT | FLOW_MTU | FLOW_POSTCARD | FLOW_PENDING | FLOW_ALWAYS |
                        (exceeded ? 0 : FLOW_INCOMPLETE))) != exceeded)
        return OTHERWISE;
    local.planned.deadband = flow->hop_threshold < MAX_THRESHOLD ? flow->hop_threshold : MAX_THRESHOLD;
    local.planned.index = index;
    local.planned.total = 0;
    state = flow->hops;
    len = (data[HOP_ML] & 0x1f) * 4;
    offset = STACK + (hops - 1) * len;
    for (u32 i = 0; i < MAX_HOPS; i++) {
        struct items items;

        if (i >= hops)
            break;
        if (i == NEAR_HOPS) {
            far = far_at(index);
            if (!far)
                return OTHERWISE;
            state = far->hops;
        }
        if (plan) {
            local.planned.offset = offset;
            if (!planned_hop(frame, &local.planned, state, plan, p))
                return OTHERWISE;
        } else if (!read_all(&items, data, end, offset, len) ||
                   !common_hop(&items, 0, flow, state, local.planned.deadband, p, &local.planned.total)) {
            return OTHERWISE;
        }
        state++;
        offset -= len;
    }
    /* Without the latency of every hop, that of the flow is unknown. With E or M, hops may be missing. */
    total = local.planned.total;
    has_latency = !exceeded && !(plan && plan->absent & 1 << PLAN_LATENCY);
    if (has_latency && (flow->reported == NO_VALUE || distance(flow->reported, total) > flow->latency_threshold))
        return OTHERWISE;
    if (*(volatile u32 *)&flow->version != version)
        return OTHERWISE;
    if (c->sequence) {
        local.number.key = stream_key(10, from_be32(AT32(WORD)) & 0x3f, c->listeners[port & (MAX_PORTS - 1)],
                                      from_be32(AT32(SWITCH_ID)));
        local.number.source[0] = local.number.source[1] = 0;
        local.number.value = from_be32(AT32(NUMBER));
        local.number.mask = ABSENT;
        if (!stream_suppress(&local.number))
            return OTHERWISE;
    }
    flow->latest = has_latency ? total : NO_VALUE;
    flow->level_2 = 0;
    flow->basis = hops == 1 || !has_latency ? BASIS_MEASURED : BASIS_HOP_SUM;
    flow->reports++;
    counters = my_counters();
    if (counters)
        counters->fast_path++;
    return XDP_DROP;
}

#endif
