/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The state of the responder: memory, regions, queue pairs, counters. rdma/layout.rs mirrors every struct here in Rust.
 *
 * The program writes memory and counters, and, under the pair's lock, the fields of a queue pair that change with each packet.
 * User space creates and removes regions and pairs. It writes an entry while its rkey or number is 0; the entry is valid as soon
 * as that is set.
 */
#ifndef HOPWISE_RDMA_TABLES_H
#define HOPWISE_RDMA_TABLES_H

#include "bpf.h"

/* The memory is a contiguous array of chunks. The verifier knows the size of an element, not of the array: so a copy stays
 * inside one chunk, or goes byte by byte. */
#define CHUNK_BITS 20
#define CHUNK (1u << CHUNK_BITS)

/* The longest payload of a packet: the largest path MTU supported here. A longer packet does not fit into one buffer. */
#define MAX_PAYLOAD 2048
/* Maximum number of bytes read after the base header: the longest payload, its extended headers and padding, and a few more, so
 * that a slightly longer packet is refused for the right reason. */
#define MAX_REST (MAX_PAYLOAD + 48)

#define MAX_QUEUE_PAIRS 4096
#define MAX_REGIONS 256
/* Stored results of atomic operations per pair: as many as a requester may have outstanding. */
#define SAVED_ATOMICS 128

/* Set where a store may overtake another (not on x86). */
const volatile u32 weak_order = 0;
/* See rdma::responder::Config. */
const volatile u32 not_ready_timer = 14;

enum region_flags {
    REGION_WRITE = 1,
    REGION_ATOMIC = 2,
    REGION_HEAD_LAST = 4, /* the first eight bytes of a message become visible last */
};

struct region {
    u32 rkey; /* 0: there is none */
    u32 flags;
    u64 address; /* remote address of its first byte */
    u64 len;
    u64 start;  /* offset of that byte in the memory */
    u32 number; /* reported with completions */
    u32 pad[7];
};
_Static_assert(sizeof(struct region) == 64, "rdma/layout.rs mirrors this struct");

enum queue_pair_flags { QUEUE_PAIR_RELIABLE = 1, QUEUE_PAIR_V6 = 2 };

struct queue_pair {
    u32 number; /* 0: there is none */
    u32 locked;
    u32 flags;
    u32 mtu;
    u32 receives; /* receive credits, for messages with an immediate and sends; user space adds to it */
    u32 expected; /* the expected PSN */
    u32 messages; /* completed, modulo 2^24 */
    u32 error;
    u32 nak_sent;
    u32 open; /* a message of several packets is incomplete: the region's index, plus 1 */
    u32 open_total;
    u32 open_done;
    u64 open_start;
    u32 open_rkey; /* the rkey of that region */
    u32 pad;
    u64 peer[2];   /* its address in network order; for IPv4 the first four bytes */
    u64 open_head; /* the first eight bytes, withheld until the message is complete */
    u64 rest[5];
};
_Static_assert(sizeof(struct queue_pair) == 128 && __builtin_offsetof(struct queue_pair, peer) == 64,
               "rdma/layout.rs mirrors this struct");

/* Templates of a pair's acknowledgements, plain and atomic. The fields that differ (PSN, syndrome, MSN, result) are in the last
 * bytes; the checksum of all bytes before them is stored. */
#define MAX_RESPONSE 96
struct response_templates {
    u8 frame[2][MAX_RESPONSE];
    u32 len[2];
    u32 icrc[2]; /* of everything before the PSN */
    u32 back;    /* 1: send to the hardware address of the request; 0: to the one in the template */
    u32 pad[11];
};
_Static_assert(sizeof(struct response_templates) == 256, "rdma/layout.rs mirrors this struct");

struct saved_atomics {
    u64 original[SAVED_ATOMICS];
    u32 psn[SAVED_ATOMICS]; /* all-ones: none */
    u32 next;
    u32 pad;
};
_Static_assert(sizeof(struct saved_atomics) == 1544, "rdma/layout.rs mirrors this struct");

/* Cached headers of a valid single-packet write, and the checksum state after them, twice side by side. The headers are XORed
 * with that state: no word of a half-written entry matches the others, so that no lock is needed. A match does not imply that
 * the packet is valid for its pair: the pair may have been replaced. */
#define TEMPLATES 8
struct header_template {
    u64 crcs;
    u64 head[7];
};
_Static_assert(sizeof(struct header_template) == 64, "one of a cache line");

/* Why a packet could not be read: enum roce_refusal. */
#define ROCE_REFUSALS_KEPT 8

/* Why a well-formed packet was not executed: rdma::responder::Reason; rdma/layout.rs has the same order. */
enum reason {
    UNKNOWN_QUEUE_PAIR,
    WRONG_PEER,
    WRONG_TRANSPORT,
    QUEUE_PAIR_IN_ERROR,
    AHEAD,
    FIRST_MISSING,
    BAD_OPCODE,
    BAD_SEQUENCE,
    BAD_LENGTH,
    BAD_RKEY,
    ACCESS_DENIED,
    OUT_OF_RANGE,
    MISALIGNED,
    NO_RECEIVE,
    RESULT_OVERWRITTEN,
    /* Only in this program. */
    CONTENDED, /* another CPU held the pair's lock for too long */
    TOO_LONG,  /* the payload is longer than any path MTU, or does not fit into one buffer */
    REASONS,
    GOOD = REASONS,
    DUPLICATE,
};

/* Per CPU. */
struct rdma_counters {
    u64 packets;
    u64 executed;
    u64 duplicates;
    u64 messages;
    u64 bytes;
    u64 adds;
    u64 completions;
    u64 acks;
    u64 atomic_acks;
    u64 naks[3]; /* PSN sequence error, receiver not ready, other errors */
    u64 skipped;
    u64 out_of_order;
    u64 out_of_order_by;
    u64 abandoned;
    u64 responses_unsent; /* executed, but there was no room for the response */
    u64 passed;           /* frames to the port that were left to the stack: unknown pair or unsupported headers */
    u64 refused[ROCE_REFUSALS_KEPT];
    u64 dropped[REASONS];
};

/* A message that is reported to user space. */
enum completion_kind { COMPLETION_WRITE = 1, COMPLETION_SEND = 2 };
struct completion {
    u32 qpn;
    u32 immediate;
    u64 offset; /* from the region's first byte */
    u32 len;
    u16 region;
    u16 kind; /* 0: an empty write */
};
_Static_assert(sizeof(struct completion) == 24, "rdma/layout.rs mirrors this struct");

#define RDMA_ARRAY(name, kind, entries, map_flags_, value_type)                                                        \
    struct {                                                                                                           \
        MAP_UINT(type, kind);                                                                                          \
        MAP_UINT(max_entries, entries);                                                                                \
        MAP_UINT(map_flags, map_flags_);                                                                               \
        MAP_TYPE(key, u32);                                                                                            \
        MAP_TYPE(value, value_type);                                                                                   \
    } name SEC(".maps")

struct chunk {
    u8 bytes[CHUNK];
};

RDMA_ARRAY(memory, MAP_ARRAY, 1, MAP_MMAPABLE, struct chunk);
RDMA_ARRAY(regions, MAP_ARRAY, MAX_REGIONS, MAP_MMAPABLE, struct region);
RDMA_ARRAY(queue_pairs, MAP_ARRAY, MAX_QUEUE_PAIRS, MAP_MMAPABLE, struct queue_pair);
RDMA_ARRAY(responses, MAP_ARRAY, MAX_QUEUE_PAIRS, 0, struct response_templates);
RDMA_ARRAY(results, MAP_ARRAY, MAX_QUEUE_PAIRS, 0, struct saved_atomics);
RDMA_ARRAY(templates, MAP_ARRAY, MAX_QUEUE_PAIRS *TEMPLATES, 0, struct header_template);
RDMA_ARRAY(rdma_counted, MAP_PERCPU_ARRAY, 1, 0, struct rdma_counters);

struct {
    MAP_UINT(type, MAP_RINGBUF);
    MAP_UINT(max_entries, 1 << 20);
} completions SEC(".maps");

/* Settings known only once the program is attached to an interface. */
struct rdma_control {
    /* Send responses by redirection to the ingress interface instead of XDP_TX: a veth without a program at its other end does not
     * wake that end after XDP_TX (veth_xdp_flush in drivers/net/veth.c). */
    u32 redirect;
    u32 pad;
};
RDMA_ARRAY(rdma_control, MAP_ARRAY, 1, MAP_MMAPABLE, struct rdma_control);

static inline_always struct region *region_at(u32 index) { return map_lookup(&regions, &index); }
static inline_always struct queue_pair *queue_pair_at(u32 index) { return map_lookup(&queue_pairs, &index); }

#endif
