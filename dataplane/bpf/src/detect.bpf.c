/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "report.h"

struct {
    MAP_UINT(type, MAP_PERCPU_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, u64);
} counters SEC(".maps");

SEC("xdp") int hopwise_detect(struct xdp_md *frame)
{
    u32 zero = 0;
    u64 *counter = map_lookup(&counters, &zero);

    if (counter)
        *counter += frame->data_end - frame->data;
    return XDP_PASS;
}

LICENSE;
