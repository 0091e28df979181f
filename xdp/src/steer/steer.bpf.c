/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Redirects frames with UDP datagrams to telemetry ports to the AF_XDP socket of their queue, and passes all others to the
* stack, unchanged.
 *
 * Redirected are unfragmented datagrams over IPv4 (with options) and IPv6 (with extension headers), after as many VLAN tags as
 * wire::frame reads. A datagram whose lengths contradict each other is redirected too: the reader refuses it with a reason and
 * counts it, where the stack would drop it silently. Fragments go to the stack, which reassembles them for a UDP socket.
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

/* Counts of frames to our ports, by reason. A reason is a key, not an index into a value: a process without
 * CAP_PERFMON may not compute an address inside a value.
 */
struct {
    MAP_UINT(type, MAP_PERCPU_ARRAY);
    MAP_UINT(max_entries, REASONS);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, u64);
} steered SEC(".maps");

/* Classification of a frame: a reason, or one of these. */
#define NOT_OURS REASONS
#define UNDECIDED (REASONS + 1)

/* Maximum number of tags or extension headers skipped; MAX_TAGS of wire::frame. */
#define MAX_TAGS 8

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_QINQ 0x88a8
#define ETHERTYPE_QINQ_OLD 0x9100
#define ETHERTYPE_QINQ_OTHER 0x9200
#define ETHERTYPE_MPLS 0x8847
#define ETHERTYPE_MPLS_MULTICAST 0x8848
#define PROTOCOL_UDP 17
#define EXTENSION_FRAGMENT 44
#define EXTENSION_AUTHENTICATION 51

static inline_always u16 be16(const u8 *at) { return (u16)(at[0] << 8 | at[1]); }

/* Classifies a datagram by its port; `fragment`: it is fragmented. */
static inline_always u32 by_port(u16 port, u32 fragment)
{
    u32 word = port >> 6;
    u64 *set = map_lookup(&ports, &word);
    if (!set || !(*set >> (port & 63) & 1))
        return NOT_OURS;
    return fragment ? PASSED_FRAGMENT : TAKEN;
}

/* The common frames: no tag, no option, no extension. All offsets are constant, so the headers are read in place. */
static inline_always u32 plain(const u8 *data, const u8 *end)
{
    if (data + 38 > end)
        return UNDECIDED;
    u16 ethertype = be16(data + 12);
    if (ethertype == ETHERTYPE_IPV4) {
        if (data[14] != 0x45)
            return UNDECIDED;
        if (data[23] != PROTOCOL_UDP)
            return NOT_OURS;
        return be16(data + 20) & 0x3fff ? UNDECIDED : by_port(be16(data + 36), 0);
    }
    if (ethertype == ETHERTYPE_IPV6) {
        if (data[20] == PROTOCOL_UDP && data[14] >> 4 == 6 && data + 58 <= end)
            return by_port(be16(data + 56), 0);
        return UNDECIDED;
    }
    return UNDECIDED;
}

/* All others. Their headers are copied one by one: without CAP_PERFMON, a program may not compute an address inside
* the frame from the frame's contents.
 */
struct walk {
    struct xdp_md *frame;
    u32 at;
};

static inline_always u32 udp(struct walk *walk, u32 fragment)
{
    u8 ports_of[4];
    if (xdp_load(walk->frame, walk->at, ports_of, sizeof(ports_of)))
        return NOT_OURS;
    return by_port(be16(ports_of + 2), fragment);
}

static inline_always u32 ipv4(struct walk *walk)
{
    u8 header[20];
    if (xdp_load(walk->frame, walk->at, header, sizeof(header)))
        return NOT_OURS;
    u32 length = (header[0] & 15) * 4;
    if (header[0] >> 4 != 4 || length < 20 || header[9] != PROTOCOL_UDP)
        return NOT_OURS;
    u16 fragment = be16(header + 6) & 0x3fff;
    /* Only the first fragment has ports. */
    if (fragment & 0x1fff)
        return NOT_OURS;
    walk->at += length;
    return udp(walk, fragment != 0);
}

static inline_always u32 ipv6(struct walk *walk)
{
    u8 header[8], extension[8];
    if (xdp_load(walk->frame, walk->at, header, sizeof(header)) || header[0] >> 4 != 6)
        return NOT_OURS;
    u8 next = header[6];
    u32 fragment = 0;
    walk->at += 40;
    for (u32 i = 0; i < MAX_TAGS; i++) {
        if (next == PROTOCOL_UDP)
            return udp(walk, fragment);
        if (xdp_load(walk->frame, walk->at, extension, sizeof(extension)))
            return NOT_OURS;
        walk->at += 8;
        switch (next) {
        case 0:
        case 43:
        case 60:
        case 135:
        case 139:
        case 140:
            walk->at += (u32)extension[1] * 8;
            break;
        case EXTENSION_AUTHENTICATION:
            walk->at += (u32)extension[1] * 4;
            break;
        case EXTENSION_FRAGMENT:
            /* Offset, then reserved bits, then "more follow". A whole datagram may have this header too. */
            if (be16(extension + 2) & 0xfff8)
                return NOT_OURS;
            fragment |= extension[3] & 1;
            break;
        default:
            return NOT_OURS;
        }
        next = extension[0];
    }
    return PASSED_UNUSUAL;
}

static noinline u32 unusual(struct xdp_md *frame)
{
    struct walk walk = { frame, 14 };
    u8 ethertype[2];
    for (u32 i = 0; i < MAX_TAGS; i++) {
        if (xdp_load(frame, walk.at - 2, ethertype, sizeof(ethertype)))
            return NOT_OURS;
        switch (be16(ethertype)) {
        case ETHERTYPE_IPV4:
            return ipv4(&walk);
        case ETHERTYPE_IPV6:
            return ipv6(&walk);
        case ETHERTYPE_VLAN:
        case ETHERTYPE_QINQ:
        case ETHERTYPE_QINQ_OLD:
        case ETHERTYPE_QINQ_OTHER:
            walk.at += 4;
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

/* Marks a stamp in front of a frame; MARK of nic/src/xdp/source.rs. */
#define MARK 0x686f707769736521ULL

struct stamp {
    u64 at;
    u64 mark;
};

/* Writes the time in front of the frame, if its driver has space for metadata. Invalidates pointers into the frame. */
static inline_always void stamp(struct xdp_md *frame)
{
    if (adjust_meta(frame, -(int)sizeof(struct stamp)))
        return;
    struct stamp *stamp = (struct stamp *)(long)frame->data_meta;
    if ((u8 *)(stamp + 1) > (u8 *)(long)frame->data)
        return;
    stamp->at = ktime_ns();
    stamp->mark = MARK;
}

/* The frame may be in several buffers. */
SEC("xdp.frags") int hopwise_steer(struct xdp_md *frame)
{
    u32 reason = plain((const u8 *)(long)frame->data, (const u8 *)(long)frame->data_end);
    if (reason == UNDECIDED)
        reason = unusual(frame);
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
        if (reason == TAKEN)
            stamp(frame);
    }
    u64 *counter = map_lookup(&steered, &reason);
    if (counter)
        ++*counter;
    return verdict;
}

LICENSE;
