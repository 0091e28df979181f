/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the responder costs, on frames that are not all the same: requests whose checksums are right cannot be made by
 * counting a word up, so they lie ready in a map, and each run takes the next. hopwise_rdma_only puts it into the frame and does
 * nothing else: what that takes is to be subtracted. hopwise_rdma_send sends it by an interface. For measuring, never
 * attached.
 */
#include "rdma.h"

#define MOST_FRAME 2176
struct sample {
    u32 len;
    u32 pad;
    u8 bytes[MOST_FRAME];
};
RDMA_ARRAY(samples, MAP_ARRAY, 1, 0, struct sample);

/* Set before loading: how many there are, and the interface to send by. */
const volatile u32 sample_count = 1;
const volatile u32 out = 0;

static u32 sample_next;

/* 0: the frame is the next sample. */
static inline_always u32 put_sample(struct xdp_md *frame)
{
    u32 next = sample_next, len;
    struct sample *sample = map_lookup(&samples, &next);
    int change;

    sample_next = next + 1 < sample_count ? next + 1 : 0;
    if (!sample)
        return 1;
    len = sample->len;
    /* Or the compiler reads it again, and the verifier does not know that it is the same. */
    HIDE(len);
    if (len < 14 || len > MOST_FRAME)
        return 1;
    change = (int)len - (int)((long)frame->data_end - (long)frame->data);
    if (change && adjust_tail(frame, change))
        return 1;
    return xdp_store(frame, 0, sample->bytes, len) != 0;
}

SEC("xdp") int hopwise_rdma_cost(struct xdp_md *frame) { return put_sample(frame) ? XDP_ABORTED : rdma(frame); }

SEC("xdp") int hopwise_rdma_only(struct xdp_md *frame) { return put_sample(frame) ? XDP_ABORTED : XDP_DROP; }

SEC("xdp") int hopwise_rdma_send(struct xdp_md *frame) { return put_sample(frame) ? XDP_ABORTED : redirect(out, 0); }

LICENSE;
