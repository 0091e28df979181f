/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sends frames with UDP datagrams to telemetry ports to the AF_XDP socket of their queue, and passes everything else to the
 * stack, untouched.
 *
 * Taken are whole datagrams over IPv4 (with options) and IPv6 (with extension headers), behind VLAN tags: as many of them as
 * wire::frame reads. A datagram whose lengths contradict each other is taken too: whoever reads it says what is wrong and
 * counts it, where the stack would drop it unseen. Fragments go to the stack, which puts them together for a UDP socket.
 */
#include "bpf.h"

/* Set before loading: the longest frame that fits into a frame of the sockets' memory. */
const volatile u32 longest = 1792;

enum reason { TAKEN, PASSED_FRAGMENT, PASSED_TOO_LONG, PASSED_UNUSUAL, PASSED_NO_SOCKET, REASONS };

/* The socket of each receive queue. */
struct {
    MAP_UINT(type, MAP_XSKMAP);
    MAP_UINT(max_entries, 64);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, u32);
} sockets SEC(".maps");

/* A bit for each UDP port, 64 in a word: set for telemetry. */
struct {
    MAP_UINT(type, MAP_ARRAY);
    MAP_UINT(max_entries, 1024);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, u64);
} ports SEC(".maps");

/* What became of frames to our ports, by reason. */
struct counters {
    u64 by_reason[REASONS];
};

struct {
    MAP_UINT(type, MAP_PERCPU_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct counters);
} steered SEC(".maps");

/* What a frame is to us: a reason, or this. */
#define NOT_OURS REASONS

/* Tags or extension headers stepped over; MAX_TAGS of wire::frame. */
#define MAX_TAGS 8

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_QINQ 0x88a8
#define ETHERTYPE_QINQ_OLD 0x9100
#define ETHERTYPE_MPLS 0x8847
#define ETHERTYPE_MPLS_MULTICAST 0x8848
#define PROTOCOL_UDP 17
#define EXTENSION_FRAGMENT 44
#define EXTENSION_AUTHENTICATION 51

struct cursor {
    const u8 *at;
    const u8 *end;
};

static inline_always u16 be16(const u8 *at) { return (u16)(at[0] << 8 | at[1]); }

/* `fragment`: the datagram is not whole. */
static inline_always u32 udp(struct cursor *cursor, u32 fragment)
{
    if (cursor->at + 4 > cursor->end)
        return NOT_OURS;
    u16 port = be16(cursor->at + 2);
    u32 word = port >> 6;
    u64 *set = map_lookup(&ports, &word);
    if (!set || !(*set >> (port & 63) & 1))
        return NOT_OURS;
    return fragment ? PASSED_FRAGMENT : TAKEN;
}

static inline_always u32 ipv4(struct cursor *cursor)
{
    const u8 *header = cursor->at;
    if (header + 20 > cursor->end)
        return NOT_OURS;
    u32 length = (header[0] & 15) * 4;
    if (header[0] >> 4 != 4 || length < 20 || header[9] != PROTOCOL_UDP)
        return NOT_OURS;
    u16 fragment = be16(header + 6) & 0x3fff;
    /* Only the first fragment has ports. */
    if (fragment & 0x1fff)
        return NOT_OURS;
    cursor->at += length;
    return udp(cursor, fragment != 0);
}

static inline_always u32 ipv6(struct cursor *cursor)
{
    const u8 *header = cursor->at;
    if (header + 40 > cursor->end || header[0] >> 4 != 6)
        return NOT_OURS;
    u8 next = header[6];
    u32 fragment = 0;
    cursor->at += 40;
    for (u32 i = 0; i < MAX_TAGS; i++) {
        if (next == PROTOCOL_UDP)
            return udp(cursor, fragment);
        const u8 *extension = cursor->at;
        if (extension + 8 > cursor->end)
            return NOT_OURS;
        u32 length = 8;
        switch (next) {
        case 0:
        case 43:
        case 60:
        case 135:
        case 139:
        case 140:
            length += (u32)extension[1] * 8;
            break;
        case EXTENSION_AUTHENTICATION:
            length += (u32)extension[1] * 4;
            break;
        case EXTENSION_FRAGMENT:
            /* Offset, then reserved bits, then "more follow". A whole datagram may have this header too. */
            if (be16(extension + 2) & 0xfff8)
                return NOT_OURS;
            fragment |= be16(extension + 2) & 1;
            break;
        default:
            return NOT_OURS;
        }
        next = extension[0];
        cursor->at += length;
    }
    return PASSED_UNUSUAL;
}

static inline_always u32 classify(struct cursor *cursor)
{
    if (cursor->at + 14 > cursor->end)
        return NOT_OURS;
    u16 ethertype = be16(cursor->at + 12);
    cursor->at += 14;
    for (u32 i = 0; i < MAX_TAGS; i++) {
        switch (ethertype) {
        case ETHERTYPE_IPV4:
            return ipv4(cursor);
        case ETHERTYPE_IPV6:
            return ipv6(cursor);
        case ETHERTYPE_VLAN:
        case ETHERTYPE_QINQ:
        case ETHERTYPE_QINQ_OLD:
            if (cursor->at + 4 > cursor->end)
                return NOT_OURS;
            ethertype = be16(cursor->at + 2);
            cursor->at += 4;
            break;
        case ETHERTYPE_MPLS:
        case ETHERTYPE_MPLS_MULTICAST:
            return PASSED_UNUSUAL;
        default:
            return NOT_OURS;
        }
    }
    return PASSED_UNUSUAL;
}

/* The frame may lie in several buffers: the headers are in the first. */
SEC("xdp.frags") int hopwise_steer(struct xdp_md *frame)
{
    struct cursor cursor = {(const u8 *)(long)frame->data, (const u8 *)(long)frame->data_end};
    u32 reason = classify(&cursor);
    if (reason == NOT_OURS)
        return XDP_PASS;
    int verdict = XDP_PASS;
    if (reason == TAKEN) {
        if (xdp_length(frame) > longest)
            reason = PASSED_TOO_LONG;
        else
            verdict = redirect_map(&sockets, frame->rx_queue_index, XDP_PASS);
        if (reason == TAKEN && verdict == XDP_PASS)
            reason = PASSED_NO_SOCKET;
    }
    u32 key = 0;
    struct counters *counters = map_lookup(&steered, &key);
    if (counters && reason < REASONS)
        counters->by_reason[reason]++;
    return verdict;
}

LICENSE;
