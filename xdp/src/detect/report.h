/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A report in normal form: what the decoder passes to detection, for every report format. Numbers are in host order and
 * in the collector's units; all-ones mean: not in the report. The Rust counterpart of a hop is the collector's
 * `Reading`.
 */
#ifndef HOPWISE_REPORT_H
#define HOPWISE_REPORT_H

#include "bpf.h"

#define MAX_HOPS 16
#define ABSENT 0xffffffffu
#define NO_VALUE 0xffffffffffffffffull

/* A flow's 5-tuple, as wire::FlowKey lies in memory: addresses in network order, IPv4 mapped into IPv6; ports in host
 * order.
 */
struct flow_key {
    u8 src[16];
    u8 dst[16];
    u16 src_port;
    u16 dst_port;
    u8 proto;
    u8 kind; /* FLOW_V6, FLOW_PORTS */
};
enum { FLOW_V6 = 1, FLOW_PORTS = 2 };

struct hop {
    u64 latency;     /* ns; absent if implausible */
    u64 utilization; /* millionths of the link */
    u32 node;
    u32 link;        /* level 1: ingress << 16 | egress; else the egress of level 2 */
    u32 queue;       /* id << 24 | occupancy */
    u32 congestion;  /* likewise */
    u32 level_2;     /* link is of level 2 */
    u32 implausible; /* a latency is reported that cannot be true */
};

enum report_flags {
    REPORT_DROP = 1,
    REPORT_QUEUE = 2,
    REPORT_FLOW = 4,
    REPORT_INTERMEDIATE = 8,
};

enum report_marks {
    REPORT_HAS_FLOW = 1,
    REPORT_HAS_NODE = 2,
    REPORT_HAS_REASON = 4,        /* a drop reason */
    REPORT_REPORTER_HOP = 8,      /* the reporter's own metadata is a hop */
    REPORT_MERGED = 16,           /* and that hop is the same as the top of the stack */
    REPORT_POSTCARD = 32,         /* declares itself as the postcard of one node */
    REPORT_HOP_LIMIT = 64,        /* E */
    REPORT_MTU = 128,             /* M */
    REPORT_UNDECIDED = 256,       /* more than this form can hold: user space decides */
    REPORT_IMPLAUSIBLE = 512,     /* a hop has an implausible latency: user space counts it */
    REPORT_MD = 1024,             /* the packet carries INT with a stack, which may be empty */
    REPORT_INT_REFUSED = 2048,    /* INT or IOAM was left out: user space counts it */
    REPORT_GAP = 4096,            /* packets that a Host-INT sink misses */
    REPORT_NO_PATH = 8192,        /* and nothing that remains names the nodes that the packet has passed */
    REPORT_EXPIRES = 16384,       /* the packet's hop limit is used up: others may go further */
    REPORT_REPLICA = 32768,       /* C of INT 0.5 and 1.0: the packet is a copy that takes another way than its flow */
    REPORT_TUNNEL_UNREAD = 65536, /* a tunnel whose contents cannot be read: user space counts the reason */
};

struct report {
    u64 first_ingress; /* stamps of the path's ends, device units */
    u64 last_egress;
    u32 wide_ends; /* both have 64 bits */
    u32 version;   /* 5, 10, 20 */
    u32 node_id;
    u32 seq;
    u32 flags; /* enum report_flags */
    u32 marks; /* enum report_marks */
    u32 hop_count;
    u8 hw_id;
    u8 reason;
    u16 index; /* position in the datagram */
    struct flow_key flow;
    u16 pad[3];
    struct hop hops[MAX_HOPS]; /* forwarding order */
};

#endif
