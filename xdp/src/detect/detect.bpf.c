/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Detection in the kernel: every telemetry datagram is decoded and evaluated here; only those with a change are passed to user space. */
#include "detect.h"

SEC("xdp.frags") int hopwise_detect(struct xdp_md *frame) { return detect(frame); }

LICENSE;
