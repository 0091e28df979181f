/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* An acknowledgement, in the frame that asked for it. */
#ifndef HOPWISE_RDMA_ANSWER_H
#define HOPWISE_RDMA_ANSWER_H

#include "execute.h"

/* What differs from answer to answer: what stands behind the queue pair's number in the base header, and the checksum. */
struct ending {
    u32 psn_be;
    u32 aeth_be;
    u32 rest[3]; /* the checksum; or the result of an addition, and the checksum */
};

/* To the hardware address that asked, from the one that was asked. In place: there is no stack to spare. */
static inline_always u32 turn_round(struct xdp_md *frame)
{
    u16 *macs = (u16 *)(long)frame->data;

    if ((u8 *)macs + 12 > (const u8 *)(long)frame->data_end)
        return 1;
#pragma unroll
    for (u32 i = 0; i < 3; i++) {
        u16 from = macs[i + 3];

        macs[i + 3] = macs[i];
        macs[i] = from;
    }
    return 0;
}

/* 0: the frame is the answer now. */
static noinline u32 answer(struct xdp_md *frame, u32 place, u32 messages, const struct reply *reply)
{
    const u8 *tables = icrc_start_of_tables();
    struct answer *answer = map_lookup(&answers, &place);
    u32 atomic = reply->kind == ANSWER_ATOMIC, len, crc, tail = atomic ? sizeof(struct ending) : 12;
    struct ending ending = {};

    if (!answer)
        return 1;
    len = answer->len[atomic];
    if (len < sizeof(struct ending) + L3 || len > ANSWER)
        return 1;
    ending.psn_be = from_be32(reply->psn);
    ending.aeth_be = from_be32(reply->syndrome << 24 | (messages & 0xffffff));
    crc = icrc_8(tables, answer->icrc[atomic], (u64)ending.aeth_be << 32 | ending.psn_be);
    if (atomic) {
        u64 original_be = from_be64(reply->original);

        ending.rest[0] = original_be;
        ending.rest[1] = original_be >> 32;
        ending.rest[2] = ~icrc_8(tables, crc, original_be);
    } else {
        ending.rest[0] = ~crc;
    }
    if (adjust_tail(frame, (int)len - (int)xdp_length(frame)))
        return 1;
    if (answer->back) {
        if (turn_round(frame) || xdp_store(frame, 12, answer->frame[atomic] + 12, len - 12))
            return 1;
    } else if (xdp_store(frame, 0, answer->frame[atomic], len)) {
        return 1;
    }
    return xdp_store(frame, len - tail, &ending, tail) != 0;
}

static inline_always int leave(struct xdp_md *frame)
{
    u32 zero = 0;
    struct rdma_control *control = map_lookup(&rdma_control, &zero);

    return control && control->redirect ? redirect(frame->ingress_ifindex, 0) : XDP_TX;
}

static inline_always int give_answer(struct xdp_md *frame, u32 place, u32 messages, const struct reply *reply,
                                     struct rdma_counters *c)
{
    if (answer(frame, place, messages, reply)) {
        c->unanswered++;
        return XDP_DROP;
    }
    return leave(frame);
}

#endif
