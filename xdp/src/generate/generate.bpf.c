/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A generator of frames for measurements: run over "live frames" (BPF_F_TEST_XDP_LIVE_FRAMES), each run of the program sends a
* frame by an interface. The frame is a template; up to four words of it are counters.
 */
#include "bpf.h"

/* All set before loading. The interface. */
const volatile u32 out = 0;
/* Nanoseconds from frame to frame; 0: as fast as possible. */
const volatile u32 gap = 0;

/* Word i, big-endian, is at byte at_i of the frame and has the value base_i + (n / each_i) % of_i, for frame n; with of_i = 0
 * it stays as it is. */
#define WORD(i)                                                                                                        \
    const volatile u32 at_##i = 0;                                                                                     \
    const volatile u32 base_##i = 0;                                                                                   \
    const volatile u32 each_##i = 1;                                                                                   \
    const volatile u32 of_##i = 0;
WORD(0)
WORD(1)
WORD(2)
WORD(3)

struct progress {
    u64 frames;
    /* When the first frame was sent. */
    u64 start;
};

struct {
    MAP_UINT(type, MAP_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct progress);
} generated SEC(".maps");

static long not_yet(u32 i, void *due)
{
    (void)i;
    return ktime_ns() >= *(u64 *)due;
}

static inline_always void count(struct xdp_md *frame, u64 n, u32 at, u32 base, u32 each, u32 of)
{
    u8 *word = (u8 *)(long)frame->data + (at & 0x7ff);
    if (!of || !each || word + 4 > (u8 *)(long)frame->data_end)
        return;
    u32 value = base + (u32)(n / each % of);
    word[0] = value >> 24;
    word[1] = value >> 16;
    word[2] = value >> 8;
    word[3] = value;
}

SEC("xdp") int hopwise_bench(struct xdp_md *frame)
{
    u32 key = 0;
    struct progress *progress = map_lookup(&generated, &key);
    if (!progress)
        return XDP_DROP;
    u64 n = progress->frames++;
    if (gap) {
        u64 due = progress->start + n * gap;
        /* A frame waits for some milliseconds at most, even if the clock jumps. */
        if (progress->start)
            bpf_loop(1 << 18, not_yet, &due, 0);
        else
            progress->start = ktime_ns();
    }
    count(frame, n, at_0, base_0, each_0, of_0);
    count(frame, n, at_1, base_1, each_1, of_1);
    count(frame, n, at_2, base_2, each_2, of_2);
    count(frame, n, at_3, base_3, each_3, of_3);
    return redirect(out, 0);
}

LICENSE;
