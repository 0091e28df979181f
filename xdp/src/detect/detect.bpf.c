/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Detection in the kernel: every telemetry datagram is decoded and decided here, and only those with change go up. */
#include "detect.h"

SEC("xdp.frags") int hopwise_detect(struct xdp_md *frame) { return detect(frame); }

LICENSE;
