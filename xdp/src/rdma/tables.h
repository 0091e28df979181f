/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the responder keeps: memory, regions, queue pairs, counters. rdma/layout.rs is the Rust twin of every struct here.
 *
 * Who writes what: the program writes memory, counters, and of a queue pair what changes with each packet, holding the pair's
 * lock. User space makes and removes regions and pairs. An entry is written whole while its key or number is 0, and is there
 * from the moment that becomes something else.
 */
#ifndef HOPWISE_RDMA_TABLES_H
#define HOPWISE_RDMA_TABLES_H

#include "bpf.h"

/* The memory is an array of these, and lies in one piece. The verifier knows an element's size, not the array's: so a copy
 * stays inside of one, or goes byte by byte. */
#define CHUNK_BITS 20
#define CHUNK (1u << CHUNK_BITS)

/* The longest payload of a packet: the largest path MTU that is offered here. A longer packet does not lie in one buffer. */
#define MOST_PAYLOAD 2048
/* The longest packet that is read at all, behind the base header: with addresses, an immediate and padding, and a little more, which is
 * refused for what is wrong with it. */
#define MOST_REST (MOST_PAYLOAD + 48)

#define MOST_PAIRS 4096
#define MOST_REGIONS 256
/* Results of atomic operations that are kept for each pair: as many as the requester may have under way. */
#define SAVED 128

/* Set where a store may overtake another (not on x86). */
const volatile u32 weak_order = 0;
/* As rdma::responder::Config has it. */
const volatile u32 not_ready_timer = 14;

enum region_flags {
    REGION_WRITE = 1,
    REGION_ATOMIC = 2,
    REGION_HEAD_LAST = 4, /* the first eight bytes of a message become visible last */
};

struct region {
    u32 key; /* 0: there is none */
    u32 flags;
    u64 address; /* as requests name its first byte */
    u64 len;
    u64 start;  /* where that is in the memory */
    u32 number; /* reported with completions */
    u32 pad[7];
};
_Static_assert(sizeof(struct region) == 64, "rdma/layout.rs has its twin");

enum pair_flags { PAIR_RELIABLE = 1, PAIR_V6 = 2 };

struct pair {
    u32 number; /* 0: there is none */
    u32 held;   /* the lock */
    u32 flags;
    u32 mtu;
    u32 receives; /* messages with an immediate, and sends, that may still come; user space adds to it */
    u32 expected; /* the next packet */
    u32 messages; /* completed; 24 bits of it */
    u32 error;
    u32 nak_sent;
    u32 open; /* a message of several packets is under way: this and the region's place */
    u32 open_total;
    u32 open_done;
    u64 open_start;
    u32 open_key; /* the region's: another one in the same place is another one */
    u32 pad;
    u64 peer[2];   /* its address as packets hold it; of IPv4 the first four bytes */
    u64 open_head; /* the first eight bytes, which are withheld until all of the message is there */
    u64 rest[5];
};
_Static_assert(sizeof(struct pair) == 128 && __builtin_offsetof(struct pair, peer) == 64,
               "rdma/layout.rs has its twin");

/* Acknowledgements of a pair, plain and of atomic operations, ready but for what differs: number, syndrome, messages, result.
 * All of that stands in the last bytes; the checksum of what stands before is known. */
#define ANSWER 96
struct answer {
    u8 frame[2][ANSWER];
    u32 len[2];
    u32 icrc[2]; /* of everything before the number */
    u32 back;    /* 1: to whatever hardware address asked; 0: to the one that is written in the frame */
    u32 pad[11];
};
_Static_assert(sizeof(struct answer) == 256, "rdma/layout.rs has its twin");

struct saved {
    u64 original[SAVED];
    u32 psn[SAVED]; /* all-ones: none */
    u32 next;
    u32 pad;
};
_Static_assert(sizeof(struct saved) == 1544, "rdma/layout.rs has its twin");

/* The headers of a write in one packet as they were found to be good, and the state of the checksum behind them, twice side by
 * side. Headers are kept as their difference to that: no word of one that is half written fits the rest, so that nobody needs
 * a lock. Whether a packet is one for its pair is not said: the pair may have been made anew. */
#define SEEN 8
struct seen {
    u64 crcs;
    u64 head[7];
};
_Static_assert(sizeof(struct seen) == 64, "one of a cache line");

/* Why a packet could not be read: enum roce_refusal. */
#define ROCE_REFUSALS_KEPT 8

/* Why a good packet was not executed: those of rdma::responder::Reason; rdma/layout.rs has the same order. */
enum reason {
    UNKNOWN_PAIR,
    WRONG_PEER,
    WRONG_TRANSPORT,
    PAIR_IN_ERROR,
    AHEAD,
    PART_OF_LOST,
    BAD_OPCODE,
    BAD_SEQUENCE,
    BAD_LENGTH,
    BAD_KEY,
    NO_RIGHT,
    OUT_OF_RANGE,
    MISALIGNED,
    NO_RECEIVE,
    FORGOTTEN,
    /* Of this program alone. */
    CONTENDED, /* another CPU was at the same pair all the time */
    TOO_LONG,  /* its payload is longer than any pair's path MTU, or it does not lie in one buffer */
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
    u64 naks[3]; /* of the sequence, of a receiver that is not ready, of errors */
    u64 skipped;
    u64 late;
    u64 stepped_back;
    u64 abandoned;
    u64 unanswered; /* executed, and the answer found no room */
    u64 passed;     /* to the port, and left to the stack: for no pair of ours, or not plain enough */
    u64 refused[ROCE_REFUSALS_KEPT];
    u64 dropped[REASONS];
};

/* A message that is reported to user space. */
enum completion_kind { COMPLETION_PLACE = 1, COMPLETION_SENT = 2 };
struct completion {
    u32 pair;
    u32 immediate;
    u64 offset; /* from the region's first byte */
    u32 len;
    u16 region;
    u16 kind; /* 0: an empty write */
};
_Static_assert(sizeof(struct completion) == 24, "rdma/layout.rs has its twin");

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
RDMA_ARRAY(regions, MAP_ARRAY, MOST_REGIONS, MAP_MMAPABLE, struct region);
RDMA_ARRAY(pairs, MAP_ARRAY, MOST_PAIRS, MAP_MMAPABLE, struct pair);
RDMA_ARRAY(answers, MAP_ARRAY, MOST_PAIRS, 0, struct answer);
RDMA_ARRAY(results, MAP_ARRAY, MOST_PAIRS, 0, struct saved);
RDMA_ARRAY(seen, MAP_ARRAY, MOST_PAIRS *SEEN, 0, struct seen);
RDMA_ARRAY(rdma_counted, MAP_PERCPU_ARRAY, 1, 0, struct rdma_counters);

struct {
    MAP_UINT(type, MAP_RINGBUF);
    MAP_UINT(max_entries, 1 << 20);
} completions SEC(".maps");

/* What is known only when the program is on an interface. */
struct rdma_control {
    /* Answers leave by redirection to the interface they came from, and not by XDP_TX: what that puts into a veth stays there
     * until the other end wakes for another reason, unless it has a program itself (veth_xdp_flush in drivers/net/veth.c). */
    u32 redirect;
    u32 pad;
};
RDMA_ARRAY(rdma_control, MAP_ARRAY, 1, MAP_MMAPABLE, struct rdma_control);

static inline_always struct region *region_at(u32 place) { return map_lookup(&regions, &place); }
static inline_always struct pair *pair_at(u32 place) { return map_lookup(&pairs, &place); }

#endif
