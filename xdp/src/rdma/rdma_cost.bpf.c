/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Cost of the responder for different frames: a request with a valid checksum cannot be made by incrementing a word, so requests
 * are prepared in a map, and each run uses the next. hopwise_rdma_only copies it into the frame and does nothing else: its cost is
 * subtracted. hopwise_rdma_send sends it by an interface. For measurement, never attached.
 */
#include "rdma.h"

#define MAX_FRAME 2176
#define SAMPLES (16u << 20)

/* All in one array without gaps, so that the cost of fetching them is small. */
struct samples {
    u32 count;
    u32 stride;
    u32 len;
    u32 next;
    u8 bytes[SAMPLES];
};
RDMA_ARRAY(samples, MAP_ARRAY, 1, 0, struct samples);

/* Set before loading: the interface to send by. */
const volatile u32 out = 0;

/* 0: the frame is the next sample. */
static inline_always u32 put_sample(struct xdp_md *frame)
{
    u32 zero = 0, next, len, at;
    struct samples *samples_ = map_lookup(&samples, &zero);
    int change;

    if (!samples_)
        return 1;
    next = samples_->next;
    samples_->next = next + 1 < samples_->count ? next + 1 : 0;
    at = next * samples_->stride;
    len = samples_->len;
    /* Otherwise the compiler reads it again, and the verifier does not know that the value is the same. */
    HIDE(len);
    HIDE(at);
    if (len < 14 || len > MAX_FRAME || at > SAMPLES - MAX_FRAME)
        return 1;
    change = (int)len - (int)((long)frame->data_end - (long)frame->data);
    if (change && adjust_tail(frame, change))
        return 1;
    return xdp_store(frame, 0, samples_->bytes + at, len) != 0;
}

/* The unmodified responder, for one frame repeatedly. */
SEC("xdp") int hopwise_rdma(struct xdp_md *frame) { return rdma(frame); }

SEC("xdp") int hopwise_rdma_cost(struct xdp_md *frame) { return put_sample(frame) ? XDP_ABORTED : rdma(frame); }

SEC("xdp") int hopwise_rdma_only(struct xdp_md *frame) { return put_sample(frame) ? XDP_ABORTED : XDP_DROP; }

/* Writes three words to the sample's address and nothing else: the cost of memory alone. */
SEC("xdp") int hopwise_rdma_store(struct xdp_md *frame)
{
    const u8 *p, *end;
    u64 at;
    u8 *to;

    if (put_sample(frame))
        return XDP_ABORTED;
    p = (const u8 *)(long)frame->data + L3 + 20 + 8 + BTH_BYTES;
    end = (const u8 *)(long)frame->data_end;
    if (p + 8 > end)
        return XDP_ABORTED;
    /* A region's address has no low bits. */
    at = be64(p) & 0xffffffff;
    to = chunk_of(at);
    if (!to || (at & (CHUNK - 1)) > CHUNK - 24)
        return XDP_ABORTED;
    to += at & (CHUNK - 1);
    store_word(to, at);
    store_word(to + 8, at);
    store_word(to + 16, at);
    return XDP_DROP;
}

SEC("xdp") int hopwise_rdma_send(struct xdp_md *frame) { return put_sample(frame) ? XDP_ABORTED : redirect(out, 0); }

LICENSE;
