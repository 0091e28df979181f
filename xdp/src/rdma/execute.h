/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Executes one packet for its queue pair, by the rules of rdma::responder (rdma/src/responder/work.rs). */
#ifndef HOPWISE_RDMA_EXECUTE_H
#define HOPWISE_RDMA_EXECUTE_H

#include "store.h"

/* Earlier stores become visible before the lock is released. */
static inline_always void unlock_queue_pair(struct queue_pair *qp)
{
    asm volatile("" ::: "memory");
    if (weak_order)
        __sync_lock_test_and_set(&qp->locked, 0);
    else
        *(volatile u32 *)&qp->locked = 0;
}

/* The response to send. */
enum response_kind { RESPONSE_NONE, RESPONSE_ACK, RESPONSE_ATOMIC };
struct response {
    u32 kind;
    u32 psn;
    u32 syndrome;
    u64 original;
};

#define SYNDROME_ACK 0x1f
#define SYNDROME_SEQUENCE 0x60
#define SYNDROME_INVALID 0x61
#define SYNDROME_ACCESS 0x62
#define SYNDROME_NOT_READY 0x20

enum nak { NAK_SEQUENCE, NAK_NOT_READY, NAK_ERROR };

static inline_always s32 psn_distance(u32 a, u32 b) { return (s32)((a - b) << 8) >> 8; }
static inline_always u32 psn_next(u32 psn) { return (psn + 1) & 0xffffff; }

static inline_always void abandon(struct queue_pair *qp, struct rdma_counters *c)
{
    if (qp->open) {
        qp->open = 0;
        c->abandoned++;
    }
}

static inline_always void complete(struct queue_pair *qp, struct rdma_counters *c)
{
    qp->messages = (qp->messages + 1) & 0xffffff;
    c->messages++;
}

/* An unknown opcode counts as a beginning. */
static inline_always u32 is_beginning(const struct request *r)
{
    return !(r->opcode_flags & KNOWN) || r->opcode_flags & BEGINS;
}

/* Finds the `len` bytes at `address` of a request: GOOD, or the reason for refusing it. */
static inline_always u32 find(u32 rkey, u64 address, u64 len, u32 access, u64 *at, u32 *index)
{
    struct region *region;
    u64 offset;

    *index = rkey & (MAX_REGIONS - 1);
    region = region_at(*index);
    if (!region || !rkey || region->rkey != rkey)
        return BAD_RKEY;
    if (!(region->flags & access))
        return ACCESS_DENIED;
    /* An address below the region's wraps to an offset larger than any length. */
    offset = address - region->address;
    if (offset > region->len || len > region->len - offset)
        return OUT_OF_RANGE;
    *at = region->start + offset;
    return GOOD;
}

static inline_always u32 send(struct xdp_md *frame, struct request *r, struct rdma_counters *c)
{
    u32 reason;

    if (r->len > r->qp->mtu)
        return BAD_LENGTH;
    reason = report_send(frame, r->qp->number, r->from, r->len);
    if (reason != GOOD)
        return reason;
    __sync_fetch_and_add(&r->qp->receives, -1);
    complete(r->qp, c);
    c->completions++;
    return GOOD;
}

/* Stores the payload of a packet, `done` bytes into a message that starts at `start`. For messages of several packets see
 * store_part in rdma/src/responder/regions.rs. 0: done. */
static inline_always u32 store_part(struct xdp_md *frame, const struct request *r, u64 start, u32 done, u32 flags)
{
    u32 ends = r->opcode_flags & ENDS, from = r->from, len = r->len;
    u32 withheld = flags & REGION_HEAD_LAST && !(start & 7) && (!ends || done);
    u64 at = start + done;

    if (withheld) {
        flags = 0;
        if (!done) {
            /* A first packet is as long as the path MTU. */
            if (len <= 8 || xdp_load(frame, from, &r->qp->open_head, 8) || store_head(start, 0))
                return 1;
            at += 8;
            from += 8;
            len -= 8;
        }
    }
    if (store(frame, at, from, len, flags))
        return 1;
    return withheld && ends && store_head(start, r->qp->open_head);
}

/* Executes the expected packet of a write or send. */
static inline_always u32 run(struct xdp_md *frame, struct request *r, struct rdma_counters *c)
{
    struct queue_pair *qp = r->qp;
    struct region *region;
    u32 index = 0, total = 0, done = 0, left, ends = r->opcode_flags & ENDS,
        reports_completion = r->opcode_flags & (HAS_IMMEDIATE | IS_SEND), reason;
    struct completion *record = 0;
    u64 start = 0;

    if (r->fault)
        return r->fault == FAULT_OPCODE ? BAD_OPCODE : BAD_LENGTH;
    if (is_beginning(r) == !!qp->open)
        return BAD_SEQUENCE;
    if (reports_completion && !*(volatile u32 *)&qp->receives)
        return NO_RECEIVE;
    if (r->opcode_flags & IS_SEND)
        return send(frame, r, c);
    if (r->opcode_flags & HAS_RETH) {
        total = r->total;
        if (total) {
            reason = find(r->rkey, r->address, total, REGION_WRITE, &start, &index);
            if (reason != GOOD)
                return reason;
        }
    } else {
        index = qp->open - 1;
        start = qp->open_start;
        total = qp->open_total;
        done = qp->open_done;
    }
    index &= MAX_REGIONS - 1;
    region = region_at(index);
    /* The region may have been deregistered since the message began, and another registered under its index. */
    if (!region || (total && (!region->rkey || (qp->open && region->rkey != qp->open_rkey))))
        return BAD_RKEY;
    left = total - done;
    if (ends ? r->len != left || r->len > qp->mtu : r->len != qp->mtu || r->len >= left)
        return BAD_LENGTH;
    if (ends && reports_completion) {
        record = ring_reserve(&completions, sizeof(*record), 0);
        if (!record)
            return NO_RECEIVE;
    }
    if (r->len) {
        if (store_part(frame, r, start, done, region->flags)) {
            if (record)
                ring_discard(record, 0);
            return OUT_OF_RANGE;
        }
        c->bytes += r->len;
    }
    if (!ends) {
        qp->open = index + 1;
        qp->open_rkey = region->rkey;
        qp->open_start = start;
        qp->open_total = total;
        qp->open_done = done + r->len;
        return GOOD;
    }
    qp->open = 0;
    complete(qp, c);
    if (record) {
        record->qpn = qp->number;
        record->immediate = r->immediate;
        record->offset = start - region->start;
        record->len = total;
        record->region = region->number;
        record->kind = total ? COMPLETION_WRITE : 0;
        ring_submit(record, 0);
        __sync_fetch_and_add(&qp->receives, -1);
        c->completions++;
    }
    return GOOD;
}

static inline_always u32 unreliable(struct xdp_md *frame, struct request *r, struct rdma_counters *c)
{
    struct queue_pair *qp = r->qp;
    s32 ahead = psn_distance(r->psn, qp->expected);
    u32 begins = is_beginning(r), reason;

    if (ahead > 0) {
        c->skipped += ahead;
    } else if (ahead < 0) {
        c->out_of_order++;
        c->out_of_order_by += -ahead;
    }
    if (ahead || begins)
        abandon(qp, c);
    qp->expected = psn_next(r->psn);
    if (!begins && !qp->open)
        return FIRST_MISSING;
    reason = run(frame, r, c);
    if (reason != GOOD)
        abandon(qp, c);
    return reason;
}

static inline_always void refuse(struct queue_pair *qp, struct rdma_counters *c, struct response *response,
                                 u32 syndrome, u32 nak)
{
    response->kind = RESPONSE_ACK;
    response->psn = qp->expected;
    response->syndrome = syndrome;
    c->naks[nak]++;
    qp->nak_sent = 1;
}

static inline_always void acknowledge(struct queue_pair *qp, struct rdma_counters *c, struct response *response)
{
    response->kind = RESPONSE_ACK;
    response->psn = (qp->expected - 1) & 0xffffff;
    response->syndrome = SYNDROME_ACK;
    c->acks++;
}

static inline_always u32 add(struct request *r, struct rdma_counters *c, struct response *response)
{
    struct saved_atomics *saved;
    u32 index, reason, next;
    u64 at;

    if (r->fault)
        return BAD_LENGTH;
    if (r->qp->open)
        return BAD_SEQUENCE;
    reason = find(r->rkey, r->address, 8, REGION_ATOMIC, &at, &index);
    if (reason != GOOD)
        return reason;
    saved = map_lookup(&results, &r->index);
    if (r->address & 7 || !saved || add_to(at, r->add, &response->original))
        return MISALIGNED;
    next = saved->next & (SAVED_ATOMICS - 1);
    saved->original[next] = response->original;
    saved->psn[next] = r->psn;
    saved->next = next + 1;
    complete(r->qp, c);
    c->adds++;
    return GOOD;
}

struct atomic_lookup {
    struct saved_atomics *saved;
    u32 psn;
    u32 found;
    u64 original;
};

static long atomic_lookup_next(u32 i, struct atomic_lookup *on)
{
    i &= SAVED_ATOMICS - 1;
    if (on->saved->psn[i] != on->psn)
        return 0;
    on->original = on->saved->original[i];
    on->found = 1;
    return 1;
}

/* A duplicate packet: nothing is executed again. */
static inline_always u32 repeated(struct request *r, struct rdma_counters *c, struct response *response)
{
    struct atomic_lookup lookup = { map_lookup(&results, &r->index), r->psn, 0, 0 };

    if (!(r->opcode_flags & IS_ATOMIC)) {
        acknowledge(r->qp, c, response);
        return DUPLICATE;
    }
    if (!lookup.saved)
        return RESULT_OVERWRITTEN;
    bpf_loop(SAVED_ATOMICS, atomic_lookup_next, &lookup, 0);
    if (!lookup.found)
        return RESULT_OVERWRITTEN;
    *response = (struct response){ RESPONSE_ATOMIC, r->psn, SYNDROME_ACK, lookup.original };
    return DUPLICATE;
}

static inline_always u32 reliable(struct xdp_md *frame, struct request *r, struct rdma_counters *c,
                                  struct response *response)
{
    struct queue_pair *qp = r->qp;
    s32 ahead = psn_distance(r->psn, qp->expected);
    u32 reason;

    if (ahead > 0) {
        if (!qp->nak_sent)
            refuse(qp, c, response, SYNDROME_SEQUENCE, NAK_SEQUENCE);
        return AHEAD;
    }
    if (ahead < 0)
        return repeated(r, c, response);
    reason = r->opcode_flags & IS_ATOMIC ? add(r, c, response) : run(frame, r, c);
    if (reason == GOOD) {
        qp->nak_sent = 0;
        qp->expected = psn_next(r->psn);
        if (r->opcode_flags & IS_ATOMIC) {
            response->kind = RESPONSE_ATOMIC;
            response->psn = r->psn;
            response->syndrome = SYNDROME_ACK;
        } else if (r->wants_ack) {
            acknowledge(qp, c, response);
        }
        return GOOD;
    }
    if (reason == NO_RECEIVE) {
        refuse(qp, c, response, SYNDROME_NOT_READY | (not_ready_timer & 31), NAK_NOT_READY);
        return reason;
    }
    refuse(qp, c, response,
           reason == BAD_RKEY || reason == ACCESS_DENIED || reason == OUT_OF_RANGE ? SYNDROME_ACCESS : SYNDROME_INVALID,
           NAK_ERROR);
    qp->error = 1;
    abandon(qp, c);
    return reason;
}

#endif
