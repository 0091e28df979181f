/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The fast path: the next single-packet write of a queue pair, without an immediate, with the IPv4 or IPv6 header of an earlier one.
 *
 * The headers up to the second word of the base header are compared with those of a packet that the slow path accepted
 * (struct header_template): equal headers need no second check, and the checksum state after them is known. The fast path checks every
 * field that differs from packet to packet. It leaves any other packet, unchanged and uncounted, to the slow path, which alone
 * refuses packets.
 */
#ifndef HOPWISE_RDMA_FAST_PATH_H
#define HOPWISE_RDMA_FAST_PATH_H

#include "response.h"

/* The slow path decides. */
#define NO_VERDICT (-1)

/* The kernel's helper copies longer payloads, which then costs less. */
#define FAST_COPY 128

/* Words of the headers up to the base header's first eight bytes: of IPv6; of IPv4 they are four and a half. In both, the number of the queue
* pair comes last. */
#define HEAD_WORDS 7

/* The headers as the checksum covers them: see icrc_good_v4, icrc_good_v6. */
static inline_always void read_head(const u8 *ip, u64 head[HEAD_WORDS], const u32 v6)
{
    if (v6) {
        head[0] = word(ip) | 0xff000000ffffff0full;
        head[1] = word(ip + 8);
        head[2] = word(ip + 16);
        head[3] = word(ip + 24);
        head[4] = word(ip + 32);
        head[5] = word(ip + 40) | 0xffff000000000000ull;
        head[6] = word(ip + 48) | 0xff00000000ull;
    } else {
        head[0] = word(ip) | 0xff00;
        head[1] = word(ip + 8) | 0xffff00ff;
        head[2] = word(ip + 16);
        head[3] = word(ip + 24) | 0xffff0000;
        head[4] = half(ip + 32) | 0xff;
    }
}

/* The identification of an IPv4 packet, bytes 4 and 5 of the headers: 31 and 30 bytes follow up to the end of the cached state. */
#define IDENTIFICATION 0xffff00000000ull

/* The cached headers of a queue pair are indexed by packet length: packets of one kind have few lengths. */
static inline_always struct header_template *template_at(u32 index, u32 udp_len)
{
    u32 words = udp_len >> 2, at = index * TEMPLATES + ((words ^ words >> 3) & (TEMPLATES - 1));

    return map_lookup(&templates, &at);
}

/* 0: the headers are cached. An empty entry is all-ones, which never equals headers (the IP version would differ). */
static inline_always u64 differs(const struct header_template *known, const u64 head[HEAD_WORDS], const u32 v6)
{
    u64 crcs = known->crcs;
    u64 differs = (head[1] ^ known->head[1] ^ crcs) | (head[2] ^ known->head[2] ^ crcs) |
                  (head[3] ^ known->head[3] ^ crcs) | (head[4] ^ known->head[4] ^ crcs);

    if (v6)
        differs |= (head[5] ^ known->head[5] ^ crcs) | (head[6] ^ known->head[6] ^ crcs);
    return differs | ((head[0] ^ known->head[0] ^ crcs) & (v6 ? ~0ull : ~IDENTIFICATION));
}

/* Caches the headers of a valid single-packet write. */
static noinline u32 remember(struct xdp_md *frame, u32 index, u32 v6)
{
    const u8 *ip = (const u8 *)(long)frame->data + L3, *end = (const u8 *)(long)frame->data_end;
    const u8 *tables = icrc_start_of_tables();
    u64 head[HEAD_WORDS] = {};
    struct header_template *known;
    u32 crc, udp_len;

    if (v6) {
        if (ip + 56 > end)
            return 0;
        udp_len = be16(ip + 44);
        read_head(ip, head, 1);
    } else {
        if (ip + 36 > end)
            return 0;
        udp_len = be16(ip + 24);
        read_head(ip, head, 0);
    }
    known = template_at(index, udp_len);
    if (!known || !(v6 ? differs(known, head, 1) : differs(known, head, 0)))
        return 0;
    crc = icrc_16(tables, ICRC_START, head[0], head[1]);
    crc = icrc_16(tables, crc, head[2], head[3]);
    if (v6) {
        crc = icrc_16(tables, crc, head[4], head[5]);
        crc = icrc_8(tables, crc, head[6]);
    } else {
        crc = icrc_4(tables, crc, head[4]);
    }
    /* Word by word. An entry that another CPU reads or writes meanwhile matches no headers: see struct header_template. */
    u64 crcs = (u64)crc << 32 | crc;
    volatile struct header_template *to = known;
    to->crcs = crcs;
    to->head[0] = head[0] ^ crcs;
    to->head[1] = head[1] ^ crcs;
    to->head[2] = head[2] ^ crcs;
    to->head[3] = head[3] ^ crcs;
    to->head[4] = head[4] ^ crcs;
    if (v6) {
        to->head[5] = head[5] ^ crcs;
        to->head[6] = head[6] ^ crcs;
    }
    return 0;
}

/* Copies `len` bytes, at most FAST_COPY, in ascending order: words of eight bytes, then the rest. All bytes are readable. */
static inline_always void copy_short(u8 *to, const u8 *from, const u8 *end, u32 len)
{
#pragma clang loop unroll(disable)
    for (u32 i = 0; i < FAST_COPY / 8 && len >= 8; i++) {
        HIDE(from);
        HIDE(to);
        if (from + 8 > end)
            return;
        *(u64 *)to = word(from);
        from += 8;
        to += 8;
        len -= 8;
    }
    HIDE(from);
    HIDE(to);
    if (len & 4) {
        if (from + 4 > end)
            return;
        *(u32 *)to = half(from);
        from += 4;
        to += 4;
    }
    HIDE(from);
    HIDE(to);
    if (len & 2) {
        if (from + 2 > end)
            return;
        *(u16 *)to = *(const u16 *)from;
        from += 2;
        to += 2;
    }
    HIDE(from);
    HIDE(to);
    if (len & 1) {
        if (from + 1 > end)
            return;
        *to = *from;
    }
}

/* A packet on the fast path. */
struct fast_packet {
    struct queue_pair *qp;
    u32 number;
    u32 index; /* of the pair */
    u32 kind;  /* the required flags of the pair */
    u64 source[2];
    u32 bytes; /* payload and padding */
    u32 len;   /* payload */
    u32 crc;   /* up to the PSN */
    u32 psn;
    u32 wants_ack;
    u32 rkey;
    u64 address;
    u32 at_psn; /* offset of the PSN in the frame */
    struct region *region;
    u64 at; /* target offset in the memory */
    u8 *to;
};

/* PSN, remote address, rkey and length. */
#define FAST_HEAD (4 + 16)

/* Reads the headers. 1: they are cached, and the frame has them all. */
static inline_always u32 read_fast(struct fast_packet *f, const u8 *data, const u8 *end, const u32 v6)
{
    const u8 *ip = data + L3, *p = data + f->at_psn;
    u64 head[HEAD_WORDS];
    struct header_template *known;
    u32 udp_len, opcode;

    /* The slow path handles packets that write nothing. */
    if (p + FAST_HEAD + 4 + ICRC_BYTES > end)
        return 0;
    read_head(ip, head, v6);
    f->number = from_be32(v6 ? head[6] >> 32 : head[4]) & 0xffffff;
    f->index = f->number & (MAX_QUEUE_PAIRS - 1);
    f->qp = queue_pair_at(f->index);
    udp_len = from_be16(v6 ? head[5] >> 32 : head[3]);
    known = template_at(f->index, udp_len);
    if (!f->qp || !known || !f->number || differs(known, head, v6))
        return 0;
    opcode = v6 ? head[6] : head[3] >> 32;
    f->kind = (opcode & 0x20 ? 0 : QUEUE_PAIR_RELIABLE) | (v6 ? QUEUE_PAIR_V6 : 0);
    f->source[0] = v6 ? head[1] : head[1] >> 32;
    f->source[1] = v6 ? head[2] : 0;
    f->bytes = udp_len - 8 - BTH_BYTES - 16 - ICRC_BYTES;
    f->len = f->bytes - ((v6 ? head[6] >> 12 : head[3] >> 44) & 3);
    f->crc = known->crcs;
    if (!v6) {
        u32 other = (head[0] ^ known->head[0] ^ known->crcs) >> 32 & 0xffff;
        const u8 *tables = icrc_start_of_tables();

        if (other)
            f->crc ^= icrc_entry(tables, 31, (other & 0xff) << 2) ^ icrc_entry(tables, 30, (other >> 8) << 2);
    }
    f->psn = be32(p) & 0xffffff;
    f->wants_ack = p[0] >> 7;
    f->address = be64(p + 4);
    f->rkey = be32(p + 12);
    /* The first holds for every cached header, but the verifier does not know that. */
    return f->bytes <= MAX_PAYLOAD && f->len - 1 < MAX_PAYLOAD && be32(p + 16) == f->len;
}

/* Finds the target. Reads from it before the checksum is verified, to load its cache line early. */
static inline_always u32 find_target(struct fast_packet *f)
{
    u64 offset, touched;

    f->region = region_at(f->rkey & (MAX_REGIONS - 1));
    if (!f->region)
        return 0;
    offset = f->address - f->region->address;
    f->at = f->region->start + offset;
    f->to = chunk_of(f->at);
    if (!f->to || (f->at & (CHUNK - 1)) > CHUNK - MAX_PAYLOAD || offset > f->region->len)
        return 0;
    f->to += f->at & (CHUNK - 1);
    touched = *(volatile u64 *)f->to;
    HIDE(touched);
    return 1;
}

/* Under the pair's lock: whether pair and region are unchanged and this is the expected packet. */
static inline_always u32 is_still_fast(const struct fast_packet *f)
{
    const volatile struct queue_pair *qp = f->qp;
    const volatile struct region *region = f->region;
    u64 offset = f->address - region->address;

    if (qp->number != f->number || qp->flags != f->kind || qp->error | qp->open || qp->peer[0] != f->source[0] ||
        qp->peer[1] != f->source[1] || f->len > qp->mtu)
        return 0;
    if (f->kind & QUEUE_PAIR_RELIABLE && f->psn != qp->expected)
        return 0;
    return f->rkey && region->rkey == f->rkey && region->flags & REGION_WRITE && region->start + offset == f->at &&
           offset <= region->len && f->len <= region->len - offset;
}

static inline_always u32 put(struct xdp_md *frame, u32 from, const u8 *data, const u8 *end, u8 *to, u32 len)
{
    if (len > FAST_COPY)
        return xdp_load(frame, from, to, len) != 0;
    copy_short(to, data + from, end, len);
    return 0;
}

/* As store(). 0: done. */
static inline_always u32 store_fast(struct xdp_md *frame, const struct fast_packet *f, const u8 *data, const u8 *end)
{
    u32 from = f->at_psn + FAST_HEAD;
    u64 head = word(data + from);

    if (!(f->region->flags & REGION_HEAD_LAST) || f->at & 7 || f->len <= 4)
        return put(frame, from, data, end, f->to, f->len);
    if (f->len <= 8) {
        store_short(f->to, head, f->len);
        return 0;
    }
    store_word(f->to, 0);
    if (put(frame, from + 8, data, end, f->to + 8, f->len - 8))
        return 1;
    store_word(f->to, head);
    return 0;
}

static inline_always void count_fast(struct rdma_counters *c, const struct fast_packet *f, s32 ahead)
{
    c->packets++;
    c->executed++;
    c->messages++;
    c->bytes += f->len;
    if (ahead > 0) {
        c->skipped += ahead;
    } else if (ahead < 0) {
        c->out_of_order++;
        c->out_of_order_by += -ahead;
    }
}

static inline_always int fast_path(struct xdp_md *frame, const u8 *data, const u8 *end, const u32 v6)
{
    struct fast_packet f = { .at_psn = L3 + (v6 ? 56 : 36) };
    struct response response = { .kind = RESPONSE_ACK, .syndrome = SYNDROME_ACK };
    struct rdma_counters *c;
    u32 zero = 0, messages;
    s32 ahead;

    if (!read_fast(&f, data, end, v6) || !find_target(&f))
        return NO_VERDICT;
    if (!(f.bytes <= FAST_COPY ? icrc_rest(icrc_start_of_tables(), f.crc, data + f.at_psn, end, FAST_HEAD + f.bytes,
                                           (FAST_HEAD + FAST_COPY) / 16)
                               : icrc_good_from(frame, f.crc, v6, 16 + f.bytes)))
        return NO_VERDICT;
    c = map_lookup(&rdma_counted, &zero);
    if (!c || __sync_val_compare_and_swap(&f.qp->locked, 0, 1))
        return NO_VERDICT;
    if (!is_still_fast(&f) || store_fast(frame, &f, data, end)) {
        unlock_queue_pair(f.qp);
        return NO_VERDICT;
    }
    ahead = psn_distance(f.psn, f.qp->expected);
    f.qp->expected = psn_next(f.psn);
    messages = f.qp->messages = (f.qp->messages + 1) & 0xffffff;
    if (f.kind & QUEUE_PAIR_RELIABLE)
        f.qp->nak_sent = 0;
    unlock_queue_pair(f.qp);
    count_fast(c, &f, ahead);
    if (!(f.kind & QUEUE_PAIR_RELIABLE) || !f.wants_ack)
        return XDP_DROP;
    c->acks++;
    response.psn = f.psn;
    return send_response(frame, f.index, messages, &response, c);
}

#endif
