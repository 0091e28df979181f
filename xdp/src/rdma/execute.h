/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Executes one packet for its queue pair, by the rules of rdma::responder (rdma/src/responder/work.rs). */
#ifndef HOPWISE_RDMA_EXECUTE_H
#define HOPWISE_RDMA_EXECUTE_H

#include "store.h"

/* Earlier stores become visible before the lock is released. */
static inline_always void unlock_pair(struct pair *pair)
{
    asm volatile("" ::: "memory");
    if (weak_order)
        __sync_lock_test_and_set(&pair->locked, 0);
    else
        *(volatile u32 *)&pair->locked = 0;
}

/* The answer to send. */
enum answer_kind { ANSWER_NONE, ANSWER_ACK, ANSWER_ATOMIC };
struct reply {
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

static inline_always void abandon(struct pair *pair, struct rdma_counters *c)
{
    if (pair->open) {
        pair->open = 0;
        c->abandoned++;
    }
}

static inline_always void complete(struct pair *pair, struct rdma_counters *c)
{
    pair->messages = (pair->messages + 1) & 0xffffff;
    c->messages++;
}

/* An unknown opcode counts as a beginning. */
static inline_always u32 is_beginning(const struct request *r) { return !(r->marks & KNOWN) || r->marks & BEGINS; }

/* Finds the `len` bytes at `address` of a request: GOOD, or the reason for refusing it. */
static inline_always u32 find(u32 rkey, u64 address, u64 len, u32 access, u64 *at, u32 *index)
{
    struct region *region;
    u64 offset;

    *index = rkey & (MAX_REGIONS - 1);
    region = region_at(*index);
    if (!region || !rkey || region->rkey != rkey)
        return BAD_KEY;
    if (!(region->flags & access))
        return NO_RIGHT;
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

    if (r->len > r->pair->mtu)
        return BAD_LENGTH;
    reason = report_send(frame, r->pair->number, r->from, r->len);
    if (reason != GOOD)
        return reason;
    __sync_fetch_and_add(&r->pair->receives, -1);
    complete(r->pair, c);
    c->completions++;
    return GOOD;
}

/* Stores the payload of a packet, `done` bytes into a message that starts at `start`. For messages of several packets see
 * store_part in rdma/src/responder/regions.rs. 0: done. */
static inline_always u32 store_part(struct xdp_md *frame, const struct request *r, u64 start, u32 done, u32 flags)
{
    u32 ends = r->marks & ENDS, from = r->from, len = r->len;
    u32 withheld = flags & REGION_HEAD_LAST && !(start & 7) && (!ends || done);
    u64 at = start + done;

    if (withheld) {
        flags = 0;
        if (!done) {
            /* A first packet is as long as the path MTU. */
            if (len <= 8 || xdp_load(frame, from, &r->pair->open_head, 8) || store_head(start, 0))
                return 1;
            at += 8;
            from += 8;
            len -= 8;
        }
    }
    if (store(frame, at, from, len, flags))
        return 1;
    return withheld && ends && store_head(start, r->pair->open_head);
}

/* Executes the expected packet of a write or send. */
static inline_always u32 run(struct xdp_md *frame, struct request *r, struct rdma_counters *c)
{
    struct pair *pair = r->pair;
    struct region *region;
    u32 index = 0, total = 0, done = 0, left, ends = r->marks & ENDS,
        reports_completion = r->marks & (HAS_IMMEDIATE | IS_SEND), reason;
    struct completion *record = 0;
    u64 start = 0;

    if (r->fault)
        return r->fault == FAULT_OPCODE ? BAD_OPCODE : BAD_LENGTH;
    if (is_beginning(r) == !!pair->open)
        return BAD_SEQUENCE;
    if (reports_completion && !*(volatile u32 *)&pair->receives)
        return NO_RECEIVE;
    if (r->marks & IS_SEND)
        return send(frame, r, c);
    if (r->marks & HAS_RETH) {
        total = r->total;
        if (total) {
            reason = find(r->rkey, r->address, total, REGION_WRITE, &start, &index);
            if (reason != GOOD)
                return reason;
        }
    } else {
        index = pair->open - 1;
        start = pair->open_start;
        total = pair->open_total;
        done = pair->open_done;
    }
    index &= MAX_REGIONS - 1;
    region = region_at(index);
    /* The region may have been deregistered since the message began, and another registered under its index. */
    if (!region || (total && (!region->rkey || (pair->open && region->rkey != pair->open_rkey))))
        return BAD_KEY;
    left = total - done;
    if (ends ? r->len != left || r->len > pair->mtu : r->len != pair->mtu || r->len >= left)
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
        pair->open = index + 1;
        pair->open_rkey = region->rkey;
        pair->open_start = start;
        pair->open_total = total;
        pair->open_done = done + r->len;
        return GOOD;
    }
    pair->open = 0;
    complete(pair, c);
    if (record) {
        record->pair = pair->number;
        record->immediate = r->immediate;
        record->offset = start - region->start;
        record->len = total;
        record->region = region->number;
        record->kind = total ? COMPLETION_WRITE : 0;
        ring_submit(record, 0);
        __sync_fetch_and_add(&pair->receives, -1);
        c->completions++;
    }
    return GOOD;
}

static inline_always u32 unreliable(struct xdp_md *frame, struct request *r, struct rdma_counters *c)
{
    struct pair *pair = r->pair;
    s32 ahead = psn_distance(r->psn, pair->expected);
    u32 begins = is_beginning(r), reason;

    if (ahead > 0) {
        c->skipped += ahead;
    } else if (ahead < 0) {
        c->late++;
        c->stepped_back += -ahead;
    }
    if (ahead || begins)
        abandon(pair, c);
    pair->expected = psn_next(r->psn);
    if (!begins && !pair->open)
        return PART_OF_LOST;
    reason = run(frame, r, c);
    if (reason != GOOD)
        abandon(pair, c);
    return reason;
}

static inline_always void refuse(struct pair *pair, struct rdma_counters *c, struct reply *reply, u32 syndrome, u32 nak)
{
    reply->kind = ANSWER_ACK;
    reply->psn = pair->expected;
    reply->syndrome = syndrome;
    c->naks[nak]++;
    pair->nak_sent = 1;
}

static inline_always void acknowledge(struct pair *pair, struct rdma_counters *c, struct reply *reply)
{
    reply->kind = ANSWER_ACK;
    reply->psn = (pair->expected - 1) & 0xffffff;
    reply->syndrome = SYNDROME_ACK;
    c->acks++;
}

static inline_always u32 add(struct request *r, struct rdma_counters *c, struct reply *reply)
{
    struct saved *saved;
    u32 index, reason, next;
    u64 at;

    if (r->fault)
        return BAD_LENGTH;
    if (r->pair->open)
        return BAD_SEQUENCE;
    reason = find(r->rkey, r->address, 8, REGION_ATOMIC, &at, &index);
    if (reason != GOOD)
        return reason;
    saved = map_lookup(&results, &r->index);
    if (r->address & 7 || !saved || add_to(at, r->add, &reply->original))
        return MISALIGNED;
    next = saved->next & (SAVED - 1);
    saved->original[next] = reply->original;
    saved->psn[next] = r->psn;
    saved->next = next + 1;
    complete(r->pair, c);
    c->adds++;
    return GOOD;
}

struct recall {
    struct saved *saved;
    u32 psn;
    u32 found;
    u64 original;
};

static long recall_next(u32 i, struct recall *on)
{
    i &= SAVED - 1;
    if (on->saved->psn[i] != on->psn)
        return 0;
    on->original = on->saved->original[i];
    on->found = 1;
    return 1;
}

/* A duplicate packet: nothing is executed again. */
static inline_always u32 repeated(struct request *r, struct rdma_counters *c, struct reply *reply)
{
    struct recall recall = { map_lookup(&results, &r->index), r->psn, 0, 0 };

    if (!(r->marks & IS_ATOMIC)) {
        acknowledge(r->pair, c, reply);
        return DUPLICATE;
    }
    if (!recall.saved)
        return FORGOTTEN;
    bpf_loop(SAVED, recall_next, &recall, 0);
    if (!recall.found)
        return FORGOTTEN;
    *reply = (struct reply){ ANSWER_ATOMIC, r->psn, SYNDROME_ACK, recall.original };
    return DUPLICATE;
}

static inline_always u32 reliable(struct xdp_md *frame, struct request *r, struct rdma_counters *c, struct reply *reply)
{
    struct pair *pair = r->pair;
    s32 ahead = psn_distance(r->psn, pair->expected);
    u32 reason;

    if (ahead > 0) {
        if (!pair->nak_sent)
            refuse(pair, c, reply, SYNDROME_SEQUENCE, NAK_SEQUENCE);
        return AHEAD;
    }
    if (ahead < 0)
        return repeated(r, c, reply);
    reason = r->marks & IS_ATOMIC ? add(r, c, reply) : run(frame, r, c);
    if (reason == GOOD) {
        pair->nak_sent = 0;
        pair->expected = psn_next(r->psn);
        if (r->marks & IS_ATOMIC) {
            reply->kind = ANSWER_ATOMIC;
            reply->psn = r->psn;
            reply->syndrome = SYNDROME_ACK;
        } else if (r->wants_ack) {
            acknowledge(pair, c, reply);
        }
        return GOOD;
    }
    if (reason == NO_RECEIVE) {
        refuse(pair, c, reply, SYNDROME_NOT_READY | (not_ready_timer & 31), NAK_NOT_READY);
        return reason;
    }
    refuse(pair, c, reply,
           reason == BAD_KEY || reason == NO_RIGHT || reason == OUT_OF_RANGE ? SYNDROME_ACCESS : SYNDROME_INVALID,
           NAK_ERROR);
    pair->error = 1;
    abandon(pair, c);
    return reason;
}

#endif
