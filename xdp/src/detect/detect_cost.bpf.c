/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The cost of detection. BPF_PROG_TEST_RUN passes a program the same frame repeatedly; so this one changes it into another
* report each time (flow, number, nodes, values), as `hopwise bench fastpath` does, and then evaluates it by the same code as
* hopwise_detect. hopwise_cost_only makes the changes only: its time is subtracted. Never attached.
 */
#include "detect.h"

/* Number of flows, and the stride between consecutive ones, which defeats prefetching. */
const volatile u32 cost_flows = 1000;
const volatile u32 cost_stride = 617;
const volatile u32 cost_hops = 6;
const volatile u32 cost_words = 8;
/* 1: the second item of a record is the ports. The first one is the node ID; hop latency and queue follow. */
const volatile u32 cost_ports = 1;
/* Values vary by less than this (a power of two, or 0), below every threshold. */
const volatile u32 cost_jitter = 512;
/* One in this many reports (a power of two; 0: none) changes by more than its threshold. */
const volatile u32 cost_change = 0;

/* Bytes between Ethernet and the report's IPv4 header: 4 for a VLAN tag. */
const volatile u32 cost_tag = 0;

static u32 cost_next;
static u32 cost_flow;

static inline_always void put32(u8 *at, u32 value) { *(raw32 *)at = from_be32(value); }

static inline_always u32 cost_node(u32 hop, u32 flow)
{
    return 100 * (hop + 1) + (hop + 1 == cost_hops ? 0 : flow >> (2 * hop & 31) & 3);
}

/* Makes the next report of the frame. 0: the frame is too short. */
static inline_always u32 cost_rewrite(struct xdp_md *frame)
{
    u8 *data = (u8 *)(long)frame->data, *end = (u8 *)(long)frame->data_end;
    u32 flow = cost_flow + cost_stride, n = cost_next++, noise = n * 2654435761u, changed;
    u64 offset = STACK + cost_tag;

    flow = flow >= cost_flows ? flow - cost_flows : flow;
    cost_flow = flow;
    changed = cost_change && !(n & (cost_change - 1)) ? 20000 * (n / cost_flows & 1) + 20000 : 0;
    if (data + STACK + 4 > end || cost_tag > 4)
        return 0;
    put32(data + cost_tag + NUMBER, n);
    put32(data + cost_tag + INNER_SRC, 0x0a000000 + flow / 4);
    *(raw16 *)(data + cost_tag + INNER_SPORT) = from_be16(1024 + flow % 4);
    /* The last hop comes first. */
    for (u32 i = 0; i < MAX_HOPS; i++) {
        u32 hop = cost_hops - 1 - i;
        u8 *record;

        if (i >= cost_hops)
            break;
        asm volatile("%0 &= 0x7ff" : "+r"(offset));
        record = data + offset;
        if (record + 12 > end)
            return 0;
        noise = noise * 1664525 + 1013904223;
        put32(record, cost_node(hop, flow));
        if (cost_ports) {
            if (record + 16 > end)
                return 0;
            put32(record + 4, 1 << 16 | ((flow & 7) + 2));
            record += 4;
        }
        put32(record + 4, 1000 * (hop + 1) + (noise >> 8 & (cost_jitter - !!cost_jitter)) + (hop ? 0 : changed));
        put32(record + 8, (flow & 3) << 24 | (400 + (noise >> 20 & (cost_jitter - !!cost_jitter) & 255)));
        offset += cost_words * 4;
    }
    return 1;
}

SEC("xdp.frags") int hopwise_cost(struct xdp_md *frame)
{
    if (!cost_rewrite(frame))
        return XDP_ABORTED;
    return detect(frame);
}

SEC("xdp.frags") int hopwise_cost_only(struct xdp_md *frame) { return cost_rewrite(frame) ? XDP_DROP : XDP_ABORTED; }

/* The same reports for a program of another project. The kernel calls only programs of the same kind from one another: with frames in
 * several buffers, or without.
 */
struct {
    MAP_UINT(type, MAP_PROG_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, u32);
} cost_peer SEC(".maps"), cost_peer_frags SEC(".maps");

SEC("xdp") int hopwise_cost_peer(struct xdp_md *frame)
{
    if (cost_rewrite(frame))
        tail_call(frame, &cost_peer, 0);
    return XDP_ABORTED;
}

SEC("xdp.frags") int hopwise_cost_peer_f(struct xdp_md *frame)
{
    if (cost_rewrite(frame))
        tail_call(frame, &cost_peer_frags, 0);
    return XDP_ABORTED;
}

LICENSE;
