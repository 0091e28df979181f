/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Acknowledgements, written into the frame of the request. */
#ifndef HOPWISE_RDMA_RESPONSE_H
#define HOPWISE_RDMA_RESPONSE_H

#include "execute.h"

/* The part that differs between responses: what follows the queue pair number in the base header, and the checksum. */
struct ack_tail {
    u32 psn_be;
    u32 aeth_be;
    u32 rest[3]; /* the checksum; or the result of a fetch-and-add, and the checksum */
};

/* Swaps the hardware addresses in the frame: there is no stack to spare. */
static inline_always u32 swap_macs(struct xdp_md *frame)
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

/* 0: the frame is now the response. */
static noinline u32 write_response(struct xdp_md *frame, u32 index, u32 messages, const struct response *response)
{
    const u8 *tables = icrc_start_of_tables();
    struct response_templates *templates = map_lookup(&responses, &index);
    u32 atomic = response->kind == RESPONSE_ATOMIC, len, crc, tail = atomic ? sizeof(struct ack_tail) : 12;
    struct ack_tail ack_tail = {};

    if (!templates)
        return 1;
    len = templates->len[atomic];
    if (len < sizeof(struct ack_tail) + L3 || len > MAX_RESPONSE)
        return 1;
    ack_tail.psn_be = from_be32(response->psn);
    ack_tail.aeth_be = from_be32(response->syndrome << 24 | (messages & 0xffffff));
    crc = icrc_8(tables, templates->icrc[atomic], (u64)ack_tail.aeth_be << 32 | ack_tail.psn_be);
    if (atomic) {
        u64 original_be = from_be64(response->original);

        ack_tail.rest[0] = original_be;
        ack_tail.rest[1] = original_be >> 32;
        ack_tail.rest[2] = ~icrc_8(tables, crc, original_be);
    } else {
        ack_tail.rest[0] = ~crc;
    }
    if (adjust_tail(frame, (int)len - (int)xdp_length(frame)))
        return 1;
    if (templates->back) {
        if (swap_macs(frame) || xdp_store(frame, 12, templates->frame[atomic] + 12, len - 12))
            return 1;
    } else if (xdp_store(frame, 0, templates->frame[atomic], len)) {
        return 1;
    }
    return xdp_store(frame, len - tail, &ack_tail, tail) != 0;
}

static inline_always int leave(struct xdp_md *frame)
{
    u32 zero = 0;
    struct rdma_control *control = map_lookup(&rdma_control, &zero);

    return control && control->redirect ? redirect(frame->ingress_ifindex, 0) : XDP_TX;
}

static inline_always int send_response(struct xdp_md *frame, u32 index, u32 messages, const struct response *response,
                                       struct rdma_counters *c)
{
    if (write_response(frame, index, messages, response)) {
        c->responses_unsent++;
        return XDP_DROP;
    }
    return leave(frame);
}

#endif
