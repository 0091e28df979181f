/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "bpf.h"

struct {
    MAP_UINT(type, MAP_XSKMAP);
    MAP_UINT(max_entries, 64);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, u32);
} sockets SEC(".maps");

SEC("xdp") int hopwise_steer(struct xdp_md *frame)
{
    return redirect_map(&sockets, frame->rx_queue_index, XDP_PASS);
}

LICENSE;
