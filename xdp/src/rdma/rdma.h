/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* From a frame to its verdict: the RoCEv2 responder in the kernel. It executes remote writes and fetch-and-adds in memory that
 * user space has mapped, and acknowledges them, before the network stack sees the frame.
 *
 * It behaves as rdma::responder::Responder for the queue pairs that user space gave it. Frames for other queue pairs, and frames
 * with tags, IP options or extension headers, are passed to the stack, where that responder has its socket.
 */
#ifndef HOPWISE_RDMA_H
#define HOPWISE_RDMA_H

#include "fast_path.h"

static inline_always u32 is_from(const struct queue_pair *qp, const u8 *data, u32 v6)
{
    const u8 *ip = data + L3;

    if (v6 != !!(qp->flags & QUEUE_PAIR_V6))
        return 0;
    if (!v6)
        return half(ip + 12) == (u32)qp->peer[0];
    return !((word(ip + 8) ^ qp->peer[0]) | (word(ip + 16) ^ qp->peer[1]));
}

/* Attempts to take the lock of a pair, at most: some microseconds, in which its holder finishes. */
#define MAX_LOCK_ATTEMPTS 4096

struct lock_attempt {
    struct queue_pair *qp;
    u32 locked;
};

static long try_lock(u32 i, struct lock_attempt *on)
{
    (void)i;
    on->locked = __sync_val_compare_and_swap(&on->qp->locked, 0, 1) == 0;
    return on->locked;
}

static inline_always u32 lock_queue_pair(struct queue_pair *qp)
{
    struct lock_attempt attempt = { qp, 0 };

    if (likely(__sync_val_compare_and_swap(&qp->locked, 0, 1) == 0))
        return 1;
    bpf_loop(MAX_LOCK_ATTEMPTS, try_lock, &attempt, 0);
    return attempt.locked;
}

static inline_always u32 execute(struct xdp_md *frame, struct request *r, u32 from_peer, struct rdma_counters *c,
                                 struct response *response)
{
    if (!from_peer)
        return WRONG_PEER;
    if (r->qp->error)
        return QUEUE_PAIR_IN_ERROR;
    /* The upper bits name the transport: 0 reliable, 1 not. */
    if (r->opcode_flags & IS_RESPONSE || r->opcode >> 5 != !(r->qp->flags & QUEUE_PAIR_RELIABLE))
        return WRONG_TRANSPORT;
    return r->qp->flags & QUEUE_PAIR_RELIABLE ? reliable(frame, r, c, response) : unreliable(frame, r, c);
}

static inline_always int count(struct rdma_counters *c, u32 outcome)
{
    if (outcome == GOOD)
        c->executed++;
    else if (outcome == DUPLICATE)
        c->duplicates++;
    else if (outcome < REASONS)
        c->dropped[outcome]++;
    return XDP_DROP;
}

static inline_always int respond(struct xdp_md *frame, struct request *r, struct rdma_counters *c, u32 v6)
{
    const u8 *data = (const u8 *)(long)frame->data, *end = (const u8 *)(long)frame->data_end;
    struct response response = {};
    u32 outcome, messages, from_peer;

    outcome = read_request(frame, r, v6);
    if (outcome == READ_TOO_LONG)
        return count(c, TOO_LONG);
    if (outcome < ROCE_REFUSALS) {
        c->refused[outcome]++;
        return XDP_DROP;
    }
    if (data + L3 + (v6 ? 40 : 20) > end)
        return XDP_DROP;
    from_peer = is_from(r->qp, data, v6);
    if (!lock_queue_pair(r->qp))
        return count(c, CONTENDED);
    /* The pair may have been disconnected meanwhile; disconnecting waits for the lock afterwards. */
    outcome =
        *(volatile u32 *)&r->qp->number == r->number ? execute(frame, r, from_peer, c, &response) : UNKNOWN_QUEUE_PAIR;
    messages = r->qp->messages;
    c->atomic_acks += response.kind == RESPONSE_ATOMIC;
    unlock_queue_pair(r->qp);
    count(c, outcome);
    if (outcome == GOOD && (r->opcode & 31) == 0x0a && r->len)
        remember(frame, r->index, v6);
    if (response.kind == RESPONSE_NONE)
        return XDP_DROP;
    return send_response(frame, r->index, messages, &response, c);
}

/* The slow path, in a function of its own to keep it out of the fast path. */
noinline int rdma_slow_path(struct xdp_md *frame)
{
    const u8 *data = (const u8 *)(long)frame->data, *end = (const u8 *)(long)frame->data_end;
    u32 kind = kind_of(data, end), zero = 0;
    struct request r = {};
    struct rdma_counters *c;

    if (kind == NOT_ROCE)
        return XDP_PASS;
    c = map_lookup(&rdma_counted, &zero);
    if (!c)
        return XDP_PASS;
    if (kind == ROCE_V6) {
        if (data + L3 + 40 + 8 + BTH_BYTES > end)
            return XDP_PASS;
        r.number = be32(data + L3 + 40 + 8 + 4) & 0xffffff;
    } else {
        if (data + L3 + 20 + 8 + BTH_BYTES > end)
            return XDP_PASS;
        r.number = be32(data + L3 + 20 + 8 + 4) & 0xffffff;
    }
    r.index = r.number & (MAX_QUEUE_PAIRS - 1);
    r.qp = queue_pair_at(r.index);
    if (!r.qp || !r.number || r.qp->number != r.number) {
        c->passed++;
        return XDP_PASS;
    }
    c->packets++;
    return kind == ROCE_V6 ? respond(frame, &r, c, 1) : respond(frame, &r, c, 0);
}

static inline_always int rdma(struct xdp_md *frame)
{
    const u8 *data = (const u8 *)(long)frame->data, *end = (const u8 *)(long)frame->data_end;
    u32 type;
    int verdict = NO_VERDICT;

    if (data + L3 > end)
        return XDP_PASS;
    type = be16(data + 12);
    if (type == ETHERTYPE_IPV4)
        verdict = fast_path(frame, data, end, 0);
    else if (type == ETHERTYPE_IPV6)
        verdict = fast_path(frame, data, end, 1);
    return verdict == NO_VERDICT ? rdma_slow_path(frame) : verdict;
}

#endif
