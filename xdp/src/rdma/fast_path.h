/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The usual packet: the next write in one packet of a pair, without an immediate, to an IPv4 or IPv6 header like that of one before.
 *
 * Its headers up to the base header's second word are compared with those of a packet that the slow path found to be good
 * (struct seen): what is the same needs no second look, and the checksum's state behind them is known. All that differs
 * from packet to packet is looked at here. Whatever is not as usual is left, untouched and uncounted, to the slow path, which is
 * the only one that refuses.
 */
#ifndef HOPWISE_RDMA_FAST_PATH_H
#define HOPWISE_RDMA_FAST_PATH_H

#include "answer.h"

/* No verdict: left to the slow path. */
#define NOT_QUICK (-1)

/* Longer payloads are copied by the kernel's helper, which then costs less. */
#define QUICK_COPY 128

/* Words of the headers up to the base header's first eight bytes: of IPv6; of IPv4 they are four and a half. In both the queue pair's
 * number comes last. */
#define HEAD_WORDS 7

/* As the checksum sees them. See icrc_good_v4, icrc_good_v6. */
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

/* The identification of an IPv4 packet: bytes 4 and 5, behind which 31 and 30 follow up to where the state is known. */
#define IDENTIFICATION 0xffff00000000ull

/* Which of a pair's heads, by the length of the packet: those of a kind have few. */
static inline_always struct seen *seen_at(u32 place, u32 udp_len)
{
    u32 words = udp_len >> 2, at = place * SEEN + ((words ^ words >> 3) & (SEEN - 1));

    return map_lookup(&seen, &at);
}

/* Not of a known head: all-ones, as no head's difference is (its version is the same). */
static inline_always u64 differs(const struct seen *known, const u64 head[HEAD_WORDS], const u32 v6)
{
    u64 crcs = known->crcs;
    u64 differs = (head[1] ^ known->head[1] ^ crcs) | (head[2] ^ known->head[2] ^ crcs) |
                  (head[3] ^ known->head[3] ^ crcs) | (head[4] ^ known->head[4] ^ crcs);

    if (v6)
        differs |= (head[5] ^ known->head[5] ^ crcs) | (head[6] ^ known->head[6] ^ crcs);
    return differs | ((head[0] ^ known->head[0] ^ crcs) & (v6 ? ~0ull : ~IDENTIFICATION));
}

/* Keeps the head of a good write in one packet. */
static noinline u32 remember(struct xdp_md *frame, u32 place, u32 v6)
{
    const u8 *ip = (const u8 *)(long)frame->data + L3, *end = (const u8 *)(long)frame->data_end;
    const u8 *tables = icrc_start_of_tables();
    u64 head[HEAD_WORDS] = {};
    struct seen *known;
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
    known = seen_at(place, udp_len);
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
    /* Each word by itself. One that is written while another CPU reads or writes is of no use, and no harm: see struct seen. */
    u64 crcs = (u64)crc << 32 | crc;
    volatile struct seen *to = known;
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

/* Copies `len` bytes, at most QUICK_COPY, in pieces of eight and what is left over, ascending. All of it is known to be there. */
static inline_always void copy_quickly(u8 *to, const u8 *from, const u8 *end, u32 len)
{
#pragma clang loop unroll(disable)
    for (u32 i = 0; i < QUICK_COPY / 8 && len >= 8; i++) {
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

/* What is known of a usual packet. */
struct usual {
    struct pair *pair;
    u32 number;
    u32 place; /* of the pair */
    u32 kind;  /* what the pair's flags must be */
    u64 source[2];
    u32 bytes; /* of payload and padding; and without that */
    u32 len;
    u32 crc; /* up to the packet's number */
    u32 psn;
    u32 wants_ack;
    u32 key;
    u64 address;
    u32 at_psn; /* where in the frame the packet's number stands */
    struct region *region;
    u64 at; /* where in the memory it goes */
    u8 *to;
};

/* Packet number, remote address, key and length. */
#define QUICK_HEAD (4 + 16)

/* Reads the headers. 1: they are known, and all is there but for the payload. */
static inline_always u32 read_usual(struct usual *u, const u8 *data, const u8 *end, const u32 v6)
{
    const u8 *ip = data + L3, *p = data + u->at_psn;
    u64 head[HEAD_WORDS];
    struct seen *known;
    u32 udp_len, opcode;

    /* A packet that writes nothing is not usual. */
    if (p + QUICK_HEAD + 4 + ICRC_BYTES > end)
        return 0;
    read_head(ip, head, v6);
    u->number = from_be32(v6 ? head[6] >> 32 : head[4]) & 0xffffff;
    u->place = u->number & (MOST_PAIRS - 1);
    u->pair = pair_at(u->place);
    udp_len = from_be16(v6 ? head[5] >> 32 : head[3]);
    known = seen_at(u->place, udp_len);
    if (!u->pair || !known || !u->number || differs(known, head, v6))
        return 0;
    opcode = v6 ? head[6] : head[3] >> 32;
    u->kind = (opcode & 0x20 ? 0 : PAIR_RELIABLE) | (v6 ? PAIR_V6 : 0);
    u->source[0] = v6 ? head[1] : head[1] >> 32;
    u->source[1] = v6 ? head[2] : 0;
    u->bytes = udp_len - 8 - BTH_BYTES - 16 - ICRC_BYTES;
    u->len = u->bytes - ((v6 ? head[6] >> 12 : head[3] >> 44) & 3);
    u->crc = known->crcs;
    if (!v6) {
        u32 other = (head[0] ^ known->head[0] ^ known->crcs) >> 32 & 0xffff;
        const u8 *tables = icrc_start_of_tables();

        if (other)
            u->crc ^= icrc_entry(tables, 31, (other & 0xff) << 2) ^ icrc_entry(tables, 30, (other >> 8) << 2);
    }
    u->psn = be32(p) & 0xffffff;
    u->wants_ack = p[0] >> 7;
    u->address = be64(p + 4);
    u->key = be32(p + 12);
    /* The first is so in every head that is kept; the verifier does not know. */
    return u->bytes <= MOST_PAYLOAD && u->len - 1 < MOST_PAYLOAD && be32(p + 16) == u->len;
}

/* Where it goes. The place is touched before the checksum is known to be right, because it is far away. */
static inline_always u32 find_target(struct usual *u)
{
    u64 offset, touched;

    u->region = region_at(u->key & (MOST_REGIONS - 1));
    if (!u->region)
        return 0;
    offset = u->address - u->region->address;
    u->at = u->region->start + offset;
    u->to = chunk_of(u->at);
    if (!u->to || (u->at & (CHUNK - 1)) > CHUNK - MOST_PAYLOAD || offset > u->region->len)
        return 0;
    u->to += u->at & (CHUNK - 1);
    touched = *(volatile u64 *)u->to;
    HIDE(touched);
    return 1;
}

/* Under the pair's lock: is everything still so, and is the packet the next one? */
static inline_always u32 is_usual(const struct usual *u)
{
    const volatile struct pair *pair = u->pair;
    const volatile struct region *region = u->region;
    u64 offset = u->address - region->address;

    if (pair->number != u->number || pair->flags != u->kind || pair->error | pair->open ||
        pair->peer[0] != u->source[0] || pair->peer[1] != u->source[1] || u->len > pair->mtu)
        return 0;
    if (u->kind & PAIR_RELIABLE && u->psn != pair->expected)
        return 0;
    return u->key && region->key == u->key && region->flags & REGION_WRITE && region->start + offset == u->at &&
           offset <= region->len && u->len <= region->len - offset;
}

static inline_always u32 put(struct xdp_md *frame, u32 from, const u8 *data, const u8 *end, u8 *to, u32 len)
{
    if (len > QUICK_COPY)
        return xdp_load(frame, from, to, len) != 0;
    copy_quickly(to, data + from, end, len);
    return 0;
}

/* As store() does. 0: done. */
static inline_always u32 store_usual(struct xdp_md *frame, const struct usual *u, const u8 *data, const u8 *end)
{
    u32 from = u->at_psn + QUICK_HEAD;
    u64 head = word(data + from);

    if (!(u->region->flags & REGION_HEAD_LAST) || u->at & 7 || u->len <= 4)
        return put(frame, from, data, end, u->to, u->len);
    if (u->len <= 8) {
        store_short(u->to, head, u->len);
        return 0;
    }
    store_word(u->to, 0);
    if (put(frame, from + 8, data, end, u->to + 8, u->len - 8))
        return 1;
    store_word(u->to, head);
    return 0;
}

static inline_always void count_usual(struct rdma_counters *c, const struct usual *u, s32 ahead)
{
    c->packets++;
    c->executed++;
    c->messages++;
    c->bytes += u->len;
    if (ahead > 0) {
        c->skipped += ahead;
    } else if (ahead < 0) {
        c->late++;
        c->stepped_back += -ahead;
    }
}

static inline_always int fast_path(struct xdp_md *frame, const u8 *data, const u8 *end, const u32 v6)
{
    struct usual u = { .at_psn = L3 + (v6 ? 56 : 36) };
    struct reply reply = { .kind = ANSWER_ACK, .syndrome = SYNDROME_ACK };
    struct rdma_counters *c;
    u32 zero = 0, messages;
    s32 ahead;

    if (!read_usual(&u, data, end, v6) || !find_target(&u))
        return NOT_QUICK;
    if (!(u.bytes <= QUICK_COPY ? icrc_rest(icrc_start_of_tables(), u.crc, data + u.at_psn, end, QUICK_HEAD + u.bytes,
                                            (QUICK_HEAD + QUICK_COPY) / 16)
                                : icrc_good_from(frame, u.crc, v6, 16 + u.bytes)))
        return NOT_QUICK;
    c = map_lookup(&rdma_counted, &zero);
    if (!c || __sync_val_compare_and_swap(&u.pair->held, 0, 1))
        return NOT_QUICK;
    if (!is_usual(&u) || store_usual(frame, &u, data, end)) {
        give_pair(u.pair);
        return NOT_QUICK;
    }
    ahead = psn_distance(u.psn, u.pair->expected);
    u.pair->expected = psn_next(u.psn);
    messages = u.pair->messages = (u.pair->messages + 1) & 0xffffff;
    if (u.kind & PAIR_RELIABLE)
        u.pair->nak_sent = 0;
    give_pair(u.pair);
    count_usual(c, &u, ahead);
    if (!(u.kind & PAIR_RELIABLE) || !u.wants_ack)
        return XDP_DROP;
    c->acks++;
    reply.psn = u.psn;
    return give_answer(frame, u.place, messages, &reply, c);
}

#endif
