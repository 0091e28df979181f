/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* From a frame to its telemetry datagram: wire::frame. */
#ifndef HOPWISE_PARSE_FRAME_H
#define HOPWISE_PARSE_FRAME_H

#include "parse.h"

/* Classification of a frame. */
enum frame_outcome {
    FRAME_TELEMETRY, /* a datagram to one of the ports: its payload is at s->at .. s->end */
    FRAME_REFUSED,   /* likewise, but refused: s->reason is a refusal */
    FRAME_PASSED,    /* passed to the stack: s->reason is a refusal or one of pass_reason */
};

/* Why a frame is passed to the stack, in addition to refusals. */
enum pass_reason {
    PASS_OTHER_PORT = REFUSALS, /* UDP to a port that is not ours */
    PASS_TOO_LONG,              /* to one of our ports, but longer than the buffer; the socket gets it */
    PASS_UNREADABLE,            /* its bytes cannot be loaded */
    PASS_REASONS
};

/* More of the frame is needed than is loaded. */
#define MORE 1

/* Returns unless the first `upto` bytes of the frame are loaded: TRUNCATED if the frame is shorter, else MORE. */
#define NEED(s, upto)                                                                                                  \
    do {                                                                                                               \
        if ((upto) > (s)->loaded)                                                                                      \
            return (upto) > (s)->len ? REFUSE(TRUNCATED) : MORE;                                                       \
    } while (0)

/* `left` is the length of the payload by the IP header. */
static inline_always int frame_udp(struct scratch *s, u32 at, u32 left)
{
    const u8 *udp = bytes(s, at);
    u32 len, available;

    NEED(s, at + 8);
    len = be16(udp + 4);
    if (len < 8 || len > left)
        return REFUSE(BAD_UDP_LENGTH);
    s->at = at + 8;
    available = s->len - s->at;
    s->end = s->at + (len - 8 < available ? len - 8 : available);
    return 0;
}

/* Stores the port as soon as it is loaded, as wire::frame::Envelope does: a refused frame is attributed to its port. */
static inline_always int note_port(struct scratch *s, u32 at)
{
    if (at + 4 > s->len)
        return 0;
    if (at + 4 > s->loaded)
        return MORE;
    s->dst_port = be16(bytes(s, at) + 2);
    return 0;
}

/* From an IPv4 header on. */
int frame_ipv4(struct scratch *s, u32 at)
{
    const u8 *ip;
    u32 len, total, fragment, whole;

    if (!s)
        return REFUSE(TRUNCATED);
    ip = bytes(s, at);
    NEED(s, at + 20);
    len = (ip[0] & 0x0f) * 4;
    total = be16(ip + 2);
    if (ip[0] >> 4 != 4 || len < 20 || total < len)
        return REFUSE(BAD_IP_HEADER);
    *(raw64 *)s->source = 0;
    *(raw32 *)(s->source + 8) = from_be32(0xffff);
    *(raw32 *)(s->source + 12) = *(const raw32 *)(ip + 12);
    whole = at + len <= s->len;
    fragment = be16(ip + 6) & 0x3fff;
    if (ip[9] == IPPROTO_UDP && !(fragment & 0x1fff) && whole && note_port(s, at + len))
        return MORE;
    if (fragment)
        return REFUSE(FRAGMENT);
    if (ip[9] != IPPROTO_UDP)
        return REFUSE(NOT_UDP);
    if (!whole)
        return REFUSE(TRUNCATED);
    return frame_udp(s, at + len, total - len);
}

/* From an IPv6 header on. */
int frame_ipv6(struct scratch *s, u32 at)
{
    const u8 *ip;
    u32 total, next, start = at, is_mapped;

    if (!s)
        return REFUSE(TRUNCATED);
    ip = bytes(s, at);
    NEED(s, at + 40);
    if (ip[0] >> 4 != 6)
        return REFUSE(BAD_IP_HEADER);
    total = 40 + be16(ip + 4);
    /* An IPv4-mapped source is on no wire: its sender would pass for an IPv4 node. */
    is_mapped = !*(const raw64 *)(ip + 8) && *(const raw32 *)(ip + 16) == from_be32(0xffff);
    if (!is_mapped) {
        *(raw64 *)s->source = *(const raw64 *)(ip + 8);
        *(raw64 *)(s->source + 8) = *(const raw64 *)(ip + 16);
    }
    next = ip[6];
    at += 40;
    for (int i = 0; i < MAX_TAGS; i++) {
        const u8 *head = bytes(s, at);
        u32 units;

        if (next == IPPROTO_UDP) {
            if (note_port(s, at))
                return MORE;
            if (is_mapped || at - start > total)
                return REFUSE(BAD_IP_HEADER);
            return frame_udp(s, at, total - (at - start));
        }
        units = extension_units(next);
        if (units == 0xff)
            return REFUSE(NOT_UDP);
        NEED(s, at + 8);
        if (next == 44 && be16(head + 2) & 0xfff9) {
            if (head[0] == IPPROTO_UDP && !(be16(head + 2) & 0xfff8) && note_port(s, at + 8))
                return MORE;
            return REFUSE(FRAGMENT);
        }
        next = head[0];
        at += 8 + head[1] * units;
    }
    return REFUSE(NOT_UDP);
}

/* From the frame's start, as far as it is loaded. */
static inline_always int frame_headers(struct scratch *s)
{
    u32 at = 14, ethertype;

    NEED(s, 14);
    ethertype = be16(bytes(s, 12));
    for (int i = 0; i < MAX_TAGS; i++) {
        const u8 *head = bytes(s, at);

        if (ethertype == ETH_IPV4)
            return frame_ipv4(s, at);
        if (ethertype == ETH_IPV6)
            return frame_ipv6(s, at);
        if (is_vlan(ethertype)) {
            NEED(s, at + 4);
            ethertype = be16(head + 2);
            at += 4;
        } else if (is_mpls(ethertype)) {
            NEED(s, at + 4);
            at += 4;
            if (!(head[2] & 1))
                continue;
            NEED(s, at + 1);
            switch (head[4] >> 4) {
            case 4:
                return frame_ipv4(s, at);
            case 6:
                return frame_ipv6(s, at);
            default:
                return REFUSE(NOT_IP);
            }
        } else {
            return REFUSE(NOT_IP);
        }
    }
    return REFUSE(NOT_IP);
}

/* Copies the frame's first `len` bytes. */
static inline_always int load_frame(struct xdp_md *frame, struct scratch *s, u32 len)
{
    u64 count = len;

    if (count - 1 >= FRAME_BYTES)
        return -1;
    s->loaded = count;
    return xdp_load(frame, 0, s->frame, count);
}

static inline_always u32 is_port(const struct ports *ports, u32 port)
{
    u32 found = 0;

    for (int i = 0; i < MAX_PORTS; i++)
        found |= i < (int)ports->count && ports->port[i] == port;
    return found;
}

/* Finds the telemetry datagram in a frame, and loads it. */
int parse_frame(struct xdp_md *frame, struct scratch *s, const struct ports *ports)
{
    u64 len = xdp_length(frame);
    int result;
    u32 ours;

    if (!s || !ports)
        return FRAME_PASSED;
    s->dst_port = ABSENT;
    s->reason = PASS_UNREADABLE;
    *(raw64 *)s->source = 0;
    *(raw64 *)(s->source + 8) = 0;
    s->len = len > FRAME_BYTES ? FRAME_BYTES : len;
    if (load_frame(frame, s, s->len <= FRAME_SHORT ? s->len : FRAME_HEAD))
        return FRAME_PASSED;
    result = frame_headers(s);
    if (result == MORE) {
        if (load_frame(frame, s, s->len))
            return FRAME_PASSED;
        result = frame_headers(s);
    }
    ours = is_port(ports, s->dst_port);
    if (ours && len > FRAME_BYTES) {
        s->reason = PASS_TOO_LONG;
        return FRAME_PASSED;
    }
    if (result < 0) {
        s->reason = REASON(result);
        return ours && s->reason != FRAGMENT ? FRAME_REFUSED : FRAME_PASSED;
    }
    if (!ours) {
        s->reason = PASS_OTHER_PORT;
        return FRAME_PASSED;
    }
    if (s->end > s->loaded && load_frame(frame, s, s->end))
        return FRAME_PASSED;
    return FRAME_TELEMETRY;
}

#endif
