/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Parses a frame as a request if it has Ethernet without tags, IPv4 without options or IPv6 without extensions, and UDP to the
 * port of RoCEv2. All other frames are passed on.
 */
#ifndef HOPWISE_RDMA_PARSE_H
#define HOPWISE_RDMA_PARSE_H

#include "icrc.h"

#define ROCE_PORT 4791
#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define PROTOCOL_UDP 17
#define BTH_BYTES 12
#define ICRC_BYTES 4

enum opcode_table {
    BEGINS = 1,
    ENDS = 2,
    HAS_RETH = 4,
    HAS_IMMEDIATE = 8,
    IS_SEND = 16,
    IS_ATOMIC = 32,
    IS_RESPONSE = 64,
    KNOWN = 128, /* other opcodes are refused, each as a message of its own */
};

#define RELIABLE(op) (op)
#define UNRELIABLE(op) (0x20 | (op))
#define WRITES(kind)                                                                                                   \
    [kind(0x04)] = KNOWN | BEGINS | ENDS | IS_SEND, [kind(0x06)] = KNOWN | BEGINS | HAS_RETH, [kind(0x07)] = KNOWN,    \
    [kind(0x08)] = KNOWN | ENDS, [kind(0x09)] = KNOWN | ENDS | HAS_IMMEDIATE,                                          \
    [kind(0x0a)] = KNOWN | BEGINS | ENDS | HAS_RETH, [kind(0x0b)] = KNOWN | BEGINS | ENDS | HAS_RETH | HAS_IMMEDIATE

static const u8 opcode_table[256] = {
    WRITES(RELIABLE),
    WRITES(UNRELIABLE),
    [0x11] = KNOWN | IS_RESPONSE,
    [0x12] = KNOWN | IS_RESPONSE,
    [0x14] = KNOWN | BEGINS | ENDS | IS_ATOMIC,
    [0x81] = KNOWN | IS_RESPONSE,
};

struct request {
    struct queue_pair *qp;
    u32 index; /* of the pair */
    u32 number;
    u32 opcode;
    u32 opcode_flags;
    u32 psn;
    u32 wants_ack;
    u32 rkey;
    u64 address;
    u64 add;
    u32 total; /* bytes of the message */
    u32 immediate;
    u32 from;  /* offset of the payload in the frame */
    u32 len;   /* of the payload */
    u32 fault; /* the defect that one packet alone shows: enum fault */
};

enum fault { FAULT_NONE, FAULT_LENGTH, FAULT_OPCODE };

static inline_always u16 be16(const u8 *at) { return from_be16(*(const u16 *)at); }
static inline_always u32 be32(const u8 *at) { return from_be32(*(const u32 *)at); }
static inline_always u64 be64(const u8 *at) { return from_be64(*(const u64 *)at); }

/* The kind of a frame. */
enum frame_kind { NOT_ROCE, ROCE_V4, ROCE_V6 };

static inline_always u32 kind_of(const u8 *data, const u8 *end)
{
    /* Of IPv4: Ethernet, IP, UDP, base header. A frame of IPv6 is longer still. */
    if (data + L3 + 20 + 8 + BTH_BYTES > end)
        return NOT_ROCE;
    if (be16(data + 12) == ETHERTYPE_IPV4 && data[L3] == 0x45)
        /* A fragment has no port, or not all of its bytes. */
        return data[L3 + 9] == PROTOCOL_UDP && !(be16(data + L3 + 6) & 0x3fff) && be16(data + L3 + 22) == ROCE_PORT
                   ? ROCE_V4
                   : NOT_ROCE;
    if (be16(data + 12) != ETHERTYPE_IPV6 || data[L3] >> 4 != 6 || data[L3 + 6] != PROTOCOL_UDP ||
        data + L3 + 40 + 8 + BTH_BYTES > end)
        return NOT_ROCE;
    return be16(data + L3 + 42) == ROCE_PORT ? ROCE_V6 : NOT_ROCE;
}

/* Reads the extended headers at `at`, after the base header. 1: the frame has all of them. */
static inline_always u32 read_extensions(struct request *r, const u8 *at, const u8 *end)
{
    if (r->opcode_flags & IS_ATOMIC) {
        if (at + 28 > end)
            return 0;
        r->address = be64(at);
        r->rkey = be32(at + 8);
        r->add = be64(at + 12);
        return 1;
    }
    if (r->opcode_flags & HAS_RETH) {
        if (at + 16 > end)
            return 0;
        r->address = be64(at);
        r->rkey = be32(at + 8);
        r->total = be32(at + 12);
        at += 16;
    }
    if (r->opcode_flags & HAS_IMMEDIATE) {
        if (at + 4 > end)
            return 0;
        r->immediate = be32(at);
    }
    return 1;
}

static inline_always u32 extension_bytes(u32 opcode, u32 opcode_flags)
{
    if (opcode_flags & IS_ATOMIC)
        return 28;
    if (opcode == 0x11)
        return 4;
    if (opcode == 0x12)
        return 12;
    return (opcode_flags & HAS_RETH ? 16 : 0) + (opcode_flags & HAS_IMMEDIATE ? 4 : 0);
}

/* Why a frame could not be read; layout.rs has the same order. */
enum roce_refusal {
    REFUSED_IP_HEADER,
    REFUSED_UDP_LENGTH,
    REFUSED_LENGTH,
    REFUSED_TRUNCATED,
    REFUSED_ICRC,
    REFUSED_VERSION,
    REFUSED_PARTITION,
    ROCE_REFUSALS,
    READ = ROCE_REFUSALS,
    READ_TOO_LONG,
};
_Static_assert(ROCE_REFUSALS <= ROCE_REFUSALS_KEPT, "counters have room for each");

static inline_always u32 is_pmtu(u32 len)
{
    return len == 256 || len == 512 || len == 1024 || len == 2048 || len == 4096;
}

/* Whether the payload's length fits opcode and message length, as far as one packet shows. */
static inline_always u32 has_right_length(const struct request *r)
{
    u32 opcode_flags = r->opcode_flags & (BEGINS | ENDS | HAS_RETH);

    if (r->opcode_flags & (IS_ATOMIC | IS_SEND))
        return r->opcode_flags & IS_SEND || !r->len;
    if (opcode_flags == (BEGINS | ENDS | HAS_RETH))
        return r->len == r->total;
    if (opcode_flags == (BEGINS | HAS_RETH))
        return is_pmtu(r->len) && r->total > r->len;
    return opcode_flags == ENDS ? r->len > 0 : is_pmtu(r->len);
}

/* The defect of a request that has `r->len` bytes, padding included, after its headers. */
static inline_always u32 fault_of(struct request *r, u32 padding)
{
    if (!(r->opcode_flags & KNOWN))
        return FAULT_OPCODE;
    if (padding > r->len || r->len & 3)
        return FAULT_LENGTH;
    r->len -= padding;
    return has_right_length(r) ? FAULT_NONE : FAULT_LENGTH;
}

/* Reads an IPv6 (`v6`) or IPv4 frame for a known pair. Returns READ or the first refusal, in the order of wire::roce. */
static inline_always u32 read_request(struct xdp_md *frame, struct request *r, u32 v6)
{
    const u8 *data = (const u8 *)(long)frame->data, *end = (const u8 *)(long)frame->data_end;
    const u8 *ip = data + L3, *udp = ip + (v6 ? 40 : 20), *bth = udp + 8;
    u32 udp_at = L3 + (v6 ? 40 : 20), udp_len, space, bytes, padding, good;

    if (bth + BTH_BYTES > end)
        return REFUSED_TRUNCATED;
    space = be16(v6 ? ip + 4 : ip + 2);
    if (!v6 && space < 28)
        return REFUSED_IP_HEADER;
    space -= v6 ? 0 : 20;
    udp_len = be16(udp + 4);
    if (udp_len < 8 || udp_len > space)
        return REFUSED_UDP_LENGTH;
    if (udp_len < 8 + BTH_BYTES + ICRC_BYTES)
        return REFUSED_LENGTH;
    r->opcode = bth[0];
    r->opcode_flags = opcode_table[r->opcode & 255];
    padding = bth[1] >> 4 & 3;
    r->psn = be32(bth + 8) & 0xffffff;
    r->wants_ack = bth[8] >> 7;
    r->len = udp_len - 8 - BTH_BYTES - ICRC_BYTES;
    bytes = extension_bytes(r->opcode, r->opcode_flags);
    space = (bth[1] & 15) << 16 | be16(bth + 2);
    good = r->len <= MAX_REST && (r->len < bytes || read_extensions(r, bth + BTH_BYTES, end)) &&
           (v6 ? icrc_good_v6(frame, r->len) : icrc_good_v4(frame, r->len));
    if (!good) {
        if (xdp_length(frame) < udp_at + udp_len)
            return REFUSED_TRUNCATED;
        return r->len > MAX_REST ? READ_TOO_LONG : REFUSED_ICRC;
    }
    if (space >> 16)
        return REFUSED_VERSION;
    if ((space | 0x8000) != 0xffff)
        return REFUSED_PARTITION;
    if (r->len < bytes)
        return REFUSED_LENGTH;
    r->from = udp_at + 8 + BTH_BYTES + bytes;
    r->len -= bytes;
    r->fault = fault_of(r, padding);
    return READ;
}

#endif
