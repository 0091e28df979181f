/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "rdma.h"

SEC("xdp.frags") int hopwise_rdma(struct xdp_md *frame) { return rdma(frame); }

LICENSE;
