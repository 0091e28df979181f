/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Parses the headers of the packet inside a report: wire::walk with the aim `Report`.
 *
 * wire::walk recurses; here each step returns the next one. A truncated packet yields the fields that it contains; only
 * truncated or inconsistent INT is refused.
 */
#ifndef HOPWISE_PARSE_WALK_H
#define HOPWISE_PARSE_WALK_H

#include "parse_int.h"
#include "parse_ioam.h"
#include "parse_recognise.h"

enum step {
    STEP_DONE,
    STEP_ETHERNET,
    STEP_ETHERTYPE,
    STEP_IPV4,
    STEP_IPV6,
    STEP_TRANSPORT,
    STEP_UDP,
    STEP_TCP,
    STEP_GRE,
    STEP_VXLAN,
    STEP_GPE,
    STEP_GENEVE,
    STEP_GTP,
};

#define MAX_TUNNELS 4
/* Steps of the longest walk: per tunnel Ethernet (twice if an EtherType announces it), IP, transport (again
 * after an inserted header), L4 and tunnel header; and the first step.
 */
#define MAX_STEPS 64

/* The flow is that of the innermost IP header so far. */
static inline_always void set_flow(struct walk *w, u32 has_ports, u32 src_port, u32 dst_port, u32 proto)
{
    w->has_flow = 1;
    w->is_unread = 0;
    w->flow_ip = w->ip;
    w->flow_v6 = w->v6;
    w->flow_ports = has_ports;
    w->flow_proto = proto;
    w->src_port = has_ports ? src_port : 0;
    w->dst_port = has_ports ? dst_port : 0;
}

/* A tunnel begins. The packet that carries it is the flow, unless an IP packet can be read inside. */
static inline_always void enter(struct walk *w, u32 has_ports, u32 src_port, u32 dst_port, u32 proto)
{
    w->tunnels++;
    set_flow(w, has_ports, src_port, dst_port, proto);
    w->is_unread = 1;
}

/* Continues in a tunnel, up to MAX_TUNNELS. */
static inline_always int inside(struct walk *w, u32 at, u32 ethertype)
{
    w->at = at;
    w->ethertype = ethertype;
    if (w->tunnels > MAX_TUNNELS)
        return STEP_DONE;
    /* The tunnel that carries the frame has been counted. */
    return ethertype == ETH_ETHERNET ? STEP_ETHERNET : STEP_ETHERTYPE;
}

/* Stores the hop limit of the outermost IP header. */
static inline_always void note_hop_limit(struct walk *w, u32 limit)
{
    if (w->hop_limit == ABSENT)
        w->hop_limit = limit;
}

/* Whether an IPv4 header's checksum is right. */
static inline_always u32 checksum_holds(const struct scratch *s, u32 at, u32 end)
{
    const u8 *ip = bytes(s, at);
    u32 len = (ip[0] & 0x0f) * 4, sum = 0;

    if (at + len > end)
        return 0;
    for (u32 i = 0; i < 60 && i < len; i += 2)
        sum += be16(ip + i);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return sum == 0xffff;
}

/* Whether the bytes behind MPLS labels are Ethernet, of a pseudowire without a control word, whose first octet reads as a version of IP:
 * wire's is_pseudowire.
 */
int is_pseudowire(struct scratch *s)
{
    u32 at, end, tag, type, version, inner, total;
    const u8 *frame;

    if (!s)
        return 0;
    at = s->walk.at;
    end = s->walk.end;
    frame = bytes(s, at);
    type = be16(frame + 12);
    tag = type == ETH_VLAN || type == ETH_QINQ || type == ETH_QINQ_OLD || type == ETH_QINQ_OTHER ? 4 : 0;
    if (at + 14 > end || at + 15 + tag > end)
        return 0;
    type = be16(frame + 12 + tag);
    version = frame[14 + tag] >> 4;
    if (!(type == ETH_IPV4 && version == 4) && !(type == ETH_IPV6 && version == 6))
        return 0;
    if (frame[0] >> 4 == 4)
        return !checksum_holds(s, at, end);
    /* Padding makes whole words. */
    total = 40 + be16(frame + 4);
    if (frame[0] >> 4 == 6 && at + total <= end && at + total + 4 > end)
        return 0;
    inner = at + 14 + tag;
    return version == 6 || inner + 20 > end || checksum_holds(s, inner, end);
}

/* Another tunnel without an IP header of its own. */
static inline_always int enter_link(struct walk *w, int step)
{
    w->tunnels++;
    w->is_unread = 1;
    return w->tunnels > MAX_TUNNELS ? STEP_DONE : step;
}

/* The IP packet at s->walk.at, of the version in its first bits. */
static inline_always int any_ip(const struct scratch *s)
{
    u32 version = bytes(s, s->walk.at)[0] >> 4;

    if (s->walk.at >= s->walk.end)
        return STEP_DONE;
    return version == 4 ? STEP_IPV4 : version == 6 ? STEP_IPV6 : STEP_DONE;
}

enum { FRAME_NO, FRAME_YES, FRAME_CUT };

/* Whether the bytes read as an Ethernet frame: the EtherType is known, and IP has its version. */
static inline_always u32 reads_as_frame(const struct scratch *s, u32 at)
{
    const u8 *frame = bytes(s, at);
    u32 type = be16(frame + 12), version = frame[14] >> 4, has_version = at + 14 < s->walk.end;

    if (at + 14 > s->walk.end)
        return FRAME_CUT;
    if (type == ETH_IPV4)
        return !has_version || version == 4;
    if (type == ETH_IPV6)
        return !has_version || version == 6;
    return is_ethertype(type);
}

/* Whether the frame of a pseudowire carries a whole IPv4 header with a correct checksum. */
static inline_always u32 has_proven_ipv4(const struct scratch *s)
{
    u32 at = s->walk.at, tag = is_vlan(be16(bytes(s, at) + 12)) ? 4 : 0;
    const u8 *frame = bytes(s, at);

    at += 14 + tag;
    return be16(frame + 12 + tag) == ETH_IPV4 && at < s->walk.end && frame[14 + tag] >> 4 == 4 &&
           (frame[14 + tag] & 0x0f) >= 5 && checksum_holds(s, at, s->walk.end);
}

/* The packet behind the bottom label: wire's behind_labels. */
noinline int labelled(struct scratch *s, u32 label)
{
    struct walk *w;
    const u8 *head;
    u32 version, plain, behind;

    if (!s)
        return STEP_DONE;
    w = &s->walk;
    head = bytes(s, w->at);
    version = head[0] >> 4;
    w->is_unread = 1;
    if (w->at >= w->end)
        return STEP_DONE;
    if (label == 0 || label == 2) {
        if (version != (label ? 6 : 4))
            return STEP_DONE;
        w->is_unread = w->tunnels > 0;
        return label ? STEP_IPV6 : STEP_IPV4;
    }
    if (version == 4 || version == 6) {
        if (is_pseudowire(s))
            return has_proven_ipv4(s) ? enter_link(w, STEP_ETHERNET) : STEP_DONE;
        w->is_unread = w->tunnels > 0;
        return version == 4 ? STEP_IPV4 : STEP_IPV6;
    }
    plain = reads_as_frame(s, w->at);
    if (version) {
        /* It may be the control channel of a pseudowire. */
        if (plain != FRAME_YES || (head[0] == 0x10 && !head[1]))
            return STEP_DONE;
        return enter_link(w, STEP_ETHERNET);
    }
    behind = reads_as_frame(s, w->at + 4);
    if (plain == FRAME_CUT || behind == FRAME_CUT || plain == behind)
        return STEP_DONE;
    w->at += behind == FRAME_YES ? 4 : 0;
    return enter_link(w, STEP_ETHERNET);
}

/* The data of a PPPoE session. */
static inline_always int pppoe(struct scratch *s)
{
    struct walk *w = &s->walk;
    const u8 *head = bytes(s, w->at);
    u32 body = w->at + 6, protocol = head[6], size = 1;

    if (enter_link(w, STEP_ETHERTYPE) == STEP_DONE || body > w->end || head[0] != 0x11 || head[1])
        return STEP_DONE;
    if (body + be16(head + 4) < w->end)
        w->end = body + be16(head + 4);
    if (!(protocol & 1)) {
        protocol = be16(head + 6);
        size = 2;
    }
    if (body + size > w->end)
        return STEP_DONE;
    w->at = body + size;
    return protocol == 0x21 ? STEP_IPV4 : protocol == 0x57 ? STEP_IPV6 : STEP_DONE;
}

/* Ethernet, or the header that an EtherType announces. */
int walk_link(struct scratch *s, u32 step)
{
    struct walk *w;

    if (!s)
        return STEP_DONE;
    w = &s->walk;
    if (step == STEP_ETHERNET) {
        if (w->at + 14 > w->end)
            return STEP_DONE;
        w->ethertype = be16(bytes(s, w->at) + 12);
        w->at += 14;
    }
    for (int i = 0; i < MAX_TAGS; i++) {
        const u8 *head = bytes(s, w->at);

        switch (w->ethertype) {
        case ETH_IPV4:
            return STEP_IPV4;
        case ETH_IPV6:
            return STEP_IPV6;
        case ETH_ETHERNET:
            /* Counted as a tunnel, which bounds the nesting of Ethernet in Ethernet. */
            w->tunnels++;
            w->is_unread = 1;
            return w->tunnels > MAX_TUNNELS ? STEP_DONE : STEP_ETHERNET;
        case ETH_VLAN:
        case ETH_QINQ:
        case ETH_QINQ_OLD:
        case ETH_QINQ_OTHER:
            if (w->at + 4 > w->end)
                return STEP_DONE;
            w->ethertype = be16(head + 2);
            w->at += 4;
            break;
        case ETH_MPLS:
        case ETH_MPLS_MULTICAST:
            if (w->at + 4 > w->end)
                return STEP_DONE;
            w->at += 4;
            if (!(head[2] & 1))
                break;
            if (i + 1 < MAX_TAGS)
                return labelled(s, be24(head) >> 4);
            break;
        case ETH_PPPOE_SESSION:
            return pppoe(s);
        default:
            return STEP_DONE;
        }
    }
    w->is_unread = 1;
    return STEP_DONE;
}

/* Limits the packet to the length in its header; the rest is padding. */
static inline_always void trim(struct walk *w, u32 header, u32 total)
{
    /* Segmentation offload leaves 0 in the length field; a reported packet may have the internal form of the switch chip. */
    if (total >= header && w->at + total < w->end)
        w->end = w->at + total;
}

int walk_ipv4(struct scratch *s)
{
    struct walk *w;
    const u8 *ip;
    u32 len;

    if (!s)
        return STEP_DONE;
    w = &s->walk;
    ip = bytes(s, w->at);
    len = (ip[0] & 0x0f) * 4;
    if (w->at + 20 > w->end || ip[0] >> 4 != 4 || len < 20)
        return STEP_DONE;
    trim(w, len, be16(ip + 2));
    note_hop_limit(w, ip[8]);
    w->ip = w->at;
    w->v6 = 0;
    w->dscp = ip[1] >> 2;
    w->proto = ip[9];
    w->at += len;
    if (be16(ip + 6) & 0x1fff) {
        set_flow(w, 0, 0, 0, ip[9]);
        return STEP_DONE;
    }
    return STEP_TRANSPORT;
}

/* State of an iteration over the options of a hop-by-hop or destination header. */
struct options {
    struct scratch *s;
    const struct profile *p;
    u32 at;
    u32 end;
    int result;
};

/* Type of the IPv6 option that contains INT. */
#define INT_OPTION 0x3e

/* One option of a hop-by-hop header that may be truncated: parses INT, skips others. */
static long next_int_option(u32 i, struct options *o)
{
    u32 kind, next, wanted, end = o->s->walk.end;
    const u8 *option;

    (void)i;
    if (o->at >= o->end || o->at >= end)
        return 1;
    option = bytes(o->s, o->at);
    kind = option[0];
    if (!kind) {
        o->at++;
        return 0;
    }
    wanted = kind == INT_OPTION && o->s->walk.seek;
    /* A second option for INT: a host may have written one of the two. */
    o->s->walk.is_ambiguous |= kind == INT_OPTION && !wanted;
    if (o->at + 1 >= o->end || o->at + 1 >= end) {
        if (wanted)
            o->result = o->at + 1 < o->end ? REFUSE(INT_TRUNCATED) : REFUSE(BAD_OPTION);
        return 1;
    }
    next = o->at + 2 + option[1];
    if (wanted) {
        o->result = next > o->end ? REFUSE(BAD_OPTION) : int_option(o->s, o->p, o->at, next);
        if (o->result < 0)
            return 1;
    }
    o->at = next;
    return 0;
}

/* One option: parses IOAM, skips others. */
static long next_option(u32 i, struct options *o)
{
    const u8 *option;
    u32 kind, len;

    (void)i;
    if (o->at >= o->end)
        return 1;
    option = bytes(o->s, o->at);
    kind = option[0];
    if (!kind) {
        o->at++;
        return 0;
    }
    len = option[1];
    if (o->at + 2 > o->end || o->at + 2 + len > o->end)
        return 1;
    /* Of IPv6 in IPv6 only the outermost header with IOAM is read. */
    if ((kind == IOAM_MUTABLE || kind == IOAM_IMMUTABLE) &&
        (!o->s->found.ioam_count || o->s->found.ioam_ip == o->s->walk.ip)) {
        /* A host may have written it: it hides neither INT nor another option. */
        if (ioam(o->s, o->at + 2, len) < 0)
            o->s->walk.ioam_left_out = 1;
        o->s->found.ioam_ip = o->s->walk.ip;
    }
    o->at += 2 + len;
    return 0;
}

/* One option of a header in which the packet was truncated: notes IOAM. The rest of the header may hold another trace. */
static long next_cut_option(u32 i, struct options *o)
{
    u32 kind;

    (void)i;
    if (o->at >= o->end)
        return 1;
    kind = bytes(o->s, o->at)[0];
    if ((kind == IOAM_MUTABLE || kind == IOAM_IMMUTABLE) &&
        (!o->s->found.ioam_count || o->s->found.ioam_ip == o->s->walk.ip)) {
        o->s->ioam_cut = 1;
        return 1;
    }
    if (kind && o->at + 2 > o->end)
        return 1;
    o->at += kind ? 2 + bytes(o->s, o->at)[1] : 1;
    return 0;
}

/* Bytes of the longest extension header, which bounds the number of its options. */
#define MAX_OPTIONS (8 + 255 * 8)

static inline_always int int_options(struct scratch *s, const struct profile *p, u32 at, u32 end)
{
    struct options o = { .s = s, .p = p, .at = at, .end = end, .result = 0 };

    bpf_loop(MAX_OPTIONS, next_int_option, &o, 0);
    return o.result;
}

static inline_always void options(struct scratch *s, u32 at, u32 end)
{
    struct options o = { .s = s, .at = at, .end = end, .result = 0 };

    if (end <= s->walk.end) {
        bpf_loop(MAX_OPTIONS, next_option, &o, 0);
    } else {
        o.end = s->walk.end;
        bpf_loop(MAX_OPTIONS, next_cut_option, &o, 0);
    }
}

int walk_ipv6(struct scratch *s, const struct profile *p)
{
    struct walk *w;
    const u8 *ip;
    u32 next, payload;

    if (!s || !p)
        return STEP_DONE;
    w = &s->walk;
    ip = bytes(s, w->at);
    if (w->at + 40 > w->end || ip[0] >> 4 != 6)
        return STEP_DONE;
    payload = be16(ip + 4);
    if (payload)
        trim(w, 40, 40 + payload);
    note_hop_limit(w, ip[7]);
    w->ip = w->at;
    w->v6 = 1;
    w->dscp = (be16(ip) >> 6) & 0x3f;
    next = ip[6];
    w->at += 40;
    for (int i = 0; i < MAX_TAGS; i++) {
        const u8 *head = bytes(s, w->at);
        u32 units = extension_units(next), len;

        if (units == 0xff) {
            w->proto = next;
            return STEP_TRANSPORT;
        }
        if (w->at + 8 > w->end)
            break;
        len = 8 + head[1] * units;
        if (next == 44 && be16(head + 2) & 0xfff8) {
            next = head[0];
            break;
        }
        if ((next == 0 || next == 60) && (w->seek || w->left_out)) {
            /* Anywhere but directly behind the IPv6 header, a host wrote it: as in destination options. */
            u32 by_hop = !next && !i;
            int result = !by_hop || !w->seek || w->option_refused ? 0 : int_options(s, p, w->at + 2, w->at + len);

            if (result < 0) {
                /* INT may also be behind UDP or TCP. */
                w->option_refused = result;
                w->seek = 1;
                s->found.int_version = 0;
                s->found.sf = SF_NONE;
            } else if (by_hop && !w->seek && !w->left_out && s->found.int_version) {
                w->int_option = w->ip;
            }
            s->by_hop = by_hop;
            options(s, w->at + 2, w->at + len);
        }
        w->at += len;
        next = head[0];
    }
    /* Truncated in an extension header, the packet has no flow: its protocol is unknown. */
    if (extension_units(next) == 0xff)
        set_flow(w, 0, 0, 0, next);
    return STEP_DONE;
}

static inline_always u32 is_tunnel_port(u32 dst_port)
{
    return dst_port == VXLAN_PORT || dst_port == GPE_PORT || dst_port == GENEVE_PORT || dst_port == LINUX_VXLAN_PORT;
}

/* Whether the bytes after UDP to the port of a tunnel cannot be the header of that tunnel. */
static inline_always u32 is_not_tunnel(const u8 *body, u32 available, u32 dst_port)
{
    if (!available)
        return 0;
    switch (dst_port) {
    /* A VNI is mandatory; VXLAN-GPE may name a protocol instead. */
    case VXLAN_PORT:
        return !(body[0] & 0x08);
    case GPE_PORT:
        return !(body[0] & 0x0c);
    case GENEVE_PORT:
        return body[0] >> 6 != 0;
    /* The port is not that of VXLAN alone: all reserved bits must be 0. */
    case LINUX_VXLAN_PORT:
        return body[0] != 0x08 || (available > 1 && body[1]) || (available > 2 && body[2]) ||
               (available > 3 && body[3]) || (available > 7 && body[7]);
    default:
        return 0;
    }
}

static inline_always u32 is_vxlan_port(const struct profile *p, u32 dst_port)
{
    u32 found = 0;

    for (int i = 0; i < MAX_VXLAN_PORTS; i++)
        found |= dst_port && p->vxlan_ports[i] == dst_port;
    return found;
}

/* Whether the bytes after UDP are user data of GTP-U. */
static inline_always u32 is_gtp_data(const u8 *body, u32 available)
{
    return available >= 2 && body[0] >> 4 == 3 && body[1] == 0xff;
}

/* Whether they are GTP-U, or VXLAN at a port of the profile. */
static inline_always u32 is_other_tunnel(const struct profile *p, const u8 *body, u32 available, u32 dst_port)
{
    if (is_vxlan_port(p, dst_port))
        return available && body[0] & 0x08;
    return dst_port == GTP_PORT && is_gtp_data(body, available);
}

/* Whether the bytes after UDP can be the tunnel header that the port announces. */
static inline_always u32 is_tunnel(const struct scratch *s, u32 at, u32 dst_port)
{
    const u8 *body = bytes(s, at);
    u32 available = s->walk.end - at, protocol = be16(body + 2), inner = 8 + (body[0] & 0x3f) * 4, version;

    /* A header that begins as no shim of INT does is certain. */
    if (dst_port != VXLAN_PORT && is_tunnel_port(dst_port) && available && body[0] < 16 &&
        (body[0] < 1 || body[0] > 3) && !is_not_tunnel(body, available, dst_port))
        return 1;
    if (dst_port == VXLAN_PORT || dst_port == GPE_PORT)
        return body[0] >> 3 & 1;
    if (dst_port != GENEVE_PORT || available < 4 || body[0] >> 6)
        return 0;
    /* The reserved bits are 0, and IP has its version: a shim of eight words without a DSCP has the EtherType of IPv4. */
    if (body[1] & 0x3f || (available > 7 && body[7]))
        return 0;
    version = bytes(s, at + inner)[0] >> 4;
    return protocol == ETH_ETHERNET || (protocol == ETH_IPV4 && (available <= inner || version == 4)) ||
           (protocol == ETH_IPV6 && (available <= inner || version == 6));
}

/* Whether a shim begins at `body`. A packet that ends there was truncated before INT. The verifier examines it once, not at each call. */
noinline int marked(struct scratch *s, const struct profile *p, u32 body, u32 is_udp, u32 dst_port)
{
    struct walk *w;
    const u8 *shim;
    u32 marks, by_port;

    if (!s || !p)
        return MARK_NONE;
    w = &s->walk;
    shim = bytes(s, body);
    by_port = is_udp && dst_port == p->int_udp_port && dst_port;
    if ((!w->seek && w->int_option != w->ip) || w->end <= body)
        return MARK_NONE;
    marks = (p->dscp_mask && (w->dscp & p->dscp_mask) == p->dscp) || p->dscp_other == w->dscp;
    if (!w->seek) {
        /* INT in an option, which a host can write, and perhaps behind L4. */
        w->is_ambiguous |= by_port || p->has_probe_marker || marks;
        return MARK_NONE;
    }
    w->shim = body;
    if (by_port) {
        /* The next-protocol type says which mark the shim belongs to; a shim before 2.0 has none. */
        w->is_ambiguous |= (marks && !(shim[0] >> 4 ? shim[0] & 0x0c : p->dialect == HOSTINT)) || p->has_probe_marker;
        return MARK_PORT;
    }
    if (p->has_probe_marker && body + 8 <= w->end && be64(shim) == p->probe_marker) {
        w->shim = body + 8;
        return MARK_PROBE;
    }
    /* A tunnel may copy the inner DSCP to its outer header; a tunnel header follows then, not a shim. */
    if (marks && !(is_udp && (is_tunnel(s, body, dst_port) || is_other_tunnel(p, shim, w->end - body, dst_port))))
        return MARK_DSCP;
    return MARK_NONE;
}

static inline_always u32 is_report_port(const struct profile *p, u32 dst_port)
{
    u32 found = 0;

    for (int i = 0; i < MAX_PORTS; i++)
        found |= i < p->port_count && p->ports[i] == dst_port;
    return found;
}

/* Whether the shim of INT that is left out is read: wire's left_out_shim. */
static inline_always u32 left_out_shim(struct scratch *s, u32 body)
{
    struct walk *w = &s->walk;
    int found = detect_shim(s, body, 0, 1);

    w->original_port = w->original_proto = ABSENT;
    if (!(found >= FOUND_MD && found <= FOUND_SF) && found != FOR_DESTINATION_2)
        return 0;
    if (shim_2(s, body, MARK_PORT) < 0)
        return 0;
    w->left_out = found == FOR_DESTINATION_2;
    return 1;
}

int walk_udp(struct scratch *s, const struct profile *p)
{
    struct walk *w;
    const u8 *udp;
    u32 at, body, has_ports, src_port, dst_port, port, available, proto = IPPROTO_UDP;
    int result;

    if (!s || !p)
        return STEP_DONE;
    w = &s->walk;
    at = w->at;
    udp = bytes(s, at);
    body = at + 8;
    has_ports = at + 4 <= w->end;
    src_port = be16(udp);
    dst_port = be16(udp + 2);
    if (body > w->end) {
        set_flow(w, has_ports, src_port, dst_port, IPPROTO_UDP);
        return STEP_DONE;
    }
    w->mark = marked(s, p, body, 1, dst_port);
    w->unmarked = body < w->end && w->mark == MARK_NONE ? body : 0;
    if (w->mark != MARK_NONE) {
        result = l4_shim(s, p);
        if (result < 0)
            return result;
    } else if (w->left_out && dst_port == p->int_udp_port && dst_port && body < w->end && left_out_shim(s, body)) {
        w->mark = MARK_PORT;
    }
    if (w->mark != MARK_NONE) {
        body = w->after;
        /* NPT 2 contains a protocol and no port; the protocol can be UDP. */
        if (w->mark == MARK_PORT && w->original_proto != ABSENT) {
            /* The UDP header was inserted; the original L4 header follows INT. */
            w->seek = w->left_out = 0;
            w->at = body;
            w->proto = w->original_proto;
            return STEP_TRANSPORT;
        }
        if (w->original_port != ABSENT)
            dst_port = w->original_port;
        if (w->original_proto != ABSENT)
            proto = w->original_proto;
    }
    w->at = body;
    port = is_vxlan_port(p, dst_port) ? VXLAN_PORT : dst_port;
    available = w->end > body ? w->end - body : 0;
    if (is_tunnel_port(port) && !is_not_tunnel(bytes(s, body), available, port)) {
        w->unmarked = 0;
        enter(w, 1, src_port, dst_port, proto);
        return port == GPE_PORT ? STEP_GPE : port == GENEVE_PORT ? STEP_GENEVE : STEP_VXLAN;
    }
    if (port == GTP_PORT && is_gtp_data(bytes(s, body), available)) {
        w->unmarked = 0;
        enter(w, 1, src_port, dst_port, proto);
        return STEP_GTP;
    }
    set_flow(w, 1, src_port, dst_port, proto);
    return STEP_DONE;
}

int walk_tcp(struct scratch *s, const struct profile *p)
{
    struct walk *w;
    const u8 *tcp;
    u32 at, body, has_ports, src_port, dst_port, words;
    int result;

    if (!s || !p)
        return STEP_DONE;
    w = &s->walk;
    at = w->at;
    tcp = bytes(s, at);
    has_ports = at + 4 <= w->end;
    src_port = be16(tcp);
    dst_port = be16(tcp + 2);
    set_flow(w, has_ports, src_port, dst_port, IPPROTO_TCP);
    if (at + 20 > w->end)
        return STEP_DONE;
    words = tcp[12] >> 4;
    body = at + (p->tcp_after_options && words > 5 ? words * 4 : 20);
    w->mark = marked(s, p, body, 0, dst_port);
    w->unmarked = body < w->end && w->mark == MARK_NONE ? body : 0;
    if (w->mark == MARK_NONE)
        return STEP_DONE;
    result = l4_shim(s, p);
    if (result < 0)
        return result;
    if (w->original_port != ABSENT)
        dst_port = w->original_port;
    set_flow(w, 1, src_port, dst_port, w->original_proto != ABSENT ? w->original_proto : IPPROTO_TCP);
    return STEP_DONE;
}

/* ERSPAN behind GRE. */
static inline_always int erspan(struct scratch *s, u32 at, u32 protocol, u32 has_sequence)
{
    struct walk *w = &s->walk;
    const u8 *head = bytes(s, at);
    u32 word = be32(head + 8);

    w->at = at;
    if (protocol == ERSPAN && !has_sequence)
        return STEP_ETHERNET;
    if (at >= w->end || !has_sequence || head[0] >> 4 != (protocol == ERSPAN ? 1 : 2))
        return STEP_DONE;
    if (protocol == ERSPAN) {
        w->at += 8;
        return STEP_ETHERNET;
    }
    if (at + 12 > w->end)
        return STEP_DONE;
    w->at += word & 1 ? 20 : 12;
    word = word >> 10 & 0x1f;
    return word == 0 ? STEP_ETHERNET : word == 2 ? any_ip(s) : STEP_DONE;
}

/* The extension headers of GTP-U that are read. */
#define MAX_GTP_EXTENSIONS 8

/* User data of GTP-U. */
int walk_gtp(struct scratch *s)
{
    struct walk *w;
    const u8 *head;
    u32 here, last, next, len;

    if (!s)
        return STEP_DONE;
    w = &s->walk;
    head = bytes(s, w->at);
    if (w->at + 8 > w->end)
        return STEP_DONE;
    here = w->at + 8;
    last = here + be16(head + 2);
    if (head[0] & 7) {
        here += 4;
        if (here > last || here > w->end)
            return STEP_DONE;
        next = head[0] & 4 ? head[11] : 0;
        for (int i = 0; i < MAX_GTP_EXTENSIONS && next; i++) {
            if (here >= last || here >= w->end)
                return STEP_DONE;
            len = bytes(s, here)[0] * 4;
            here += len;
            if (!len || here > last || here > w->end)
                return STEP_DONE;
            next = bytes(s, here - 1)[0];
        }
        if (next)
            return STEP_DONE;
    }
    w->at = here;
    return any_ip(s);
}

/* GRE, with INT if its protocol type says so. */
int walk_gre(struct scratch *s, const struct profile *p)
{
    struct walk *w;
    const u8 *gre;
    u32 at, protocol, is_int, body;
    int result;

    if (!s || !p)
        return STEP_DONE;
    w = &s->walk;
    at = w->at;
    gre = bytes(s, at);
    enter(w, 0, 0, 0, IPPROTO_GRE);
    if (at + 4 > w->end)
        return STEP_DONE;
    protocol = be16(gre + 2);
    is_int = protocol == p->gre_protocol;
    if (gre[1] & 7 || gre[0] & 0x40)
        return is_int && w->seek ? REFUSE(BAD_GRE) : STEP_DONE;
    /* Checksum, key and sequence number are present if their bits are set. */
    body = at + 4 + ones(gre[0] & 0xb0) * 4;
    if (!is_int && (protocol == ERSPAN || protocol == ERSPAN_3) && w->tunnels <= MAX_TUNNELS)
        return erspan(s, body, protocol, gre[0] & 0x10);
    if (!is_int)
        return inside(w, body, protocol);
    w->is_ambiguous |= w->int_option == w->ip;
    result = gre_shim(s, p, body);
    if (result < 0)
        /* Malformed INT is ignored when the walk does not search for INT. */
        return w->seek ? result : STEP_DONE;
    return result ? STEP_DONE : inside(w, w->after, w->ethertype);
}

/* The header after IP. */
static inline_always int walk_transport(struct scratch *s)
{
    struct walk *w = &s->walk;
    const u8 *l4;
    u32 has_ports;

    switch (w->proto) {
    case IPPROTO_UDP:
        return STEP_UDP;
    case IPPROTO_TCP:
        return STEP_TCP;
    case IPPROTO_GRE:
        return STEP_GRE;
    case IPPROTO_IPIP:
        enter(w, 0, 0, 0, IPPROTO_IPIP);
        return inside(w, w->at, ETH_IPV4);
    case IPPROTO_IPV6:
        enter(w, 0, 0, 0, IPPROTO_IPV6);
        return inside(w, w->at, ETH_IPV6);
    default:
        /* SCTP, DCCP and UDP-Lite have their ports at the same offsets as UDP. */
        has_ports = (w->proto == 33 || w->proto == 132 || w->proto == 136) && w->at + 4 <= w->end;
        l4 = bytes(s, w->at);
        set_flow(w, has_ports, be16(l4), be16(l4 + 2), w->proto);
        return STEP_DONE;
    }
}

/* VXLAN-GPE, with INT if its next protocol says so. */
int walk_gpe(struct scratch *s, const struct profile *p)
{
    struct walk *w;
    const u8 *gpe;
    u32 next;

    if (!s || !p)
        return STEP_DONE;
    w = &s->walk;
    gpe = bytes(s, w->at);
    if (w->at + 8 > w->end)
        return STEP_DONE;
    /* Without the P bit this is plain VXLAN. */
    next = gpe[0] & 0x04 ? gpe[3] : 3;
    w->is_ambiguous |= is_gpe_int(next) && w->int_option == w->ip;
    w->at += 8;
    for (int i = 0; i < MAX_TAGS && is_gpe_int(next); i++) {
        int result = gpe_shim(s, p, w->at, next);

        if (result < 0)
            return w->seek ? result : STEP_DONE;
        if (result > 255)
            return STEP_DONE;
        w->at = w->after;
        next = result;
    }
    switch (next) {
    case 1:
        return inside(w, w->at, ETH_IPV4);
    case 2:
        return inside(w, w->at, ETH_IPV6);
    case 3:
        return inside(w, w->at, ETH_ETHERNET);
    default:
        return STEP_DONE;
    }
}

/* The options of a Geneve header have at most 252 bytes, each at least four. */
#define MAX_GENEVE_OPTIONS 63

/* Geneve, with INT if an option contains it. */
int walk_geneve(struct scratch *s, const struct profile *p)
{
    struct walk *w;
    const u8 *geneve;
    u32 at, end;

    if (!s || !p)
        return STEP_DONE;
    w = &s->walk;
    geneve = bytes(s, w->at);
    if (w->at + 8 > w->end)
        return STEP_DONE;
    at = w->at + 8;
    end = at + (geneve[0] & 0x3f) * 4;
    w->is_ambiguous |= at < end && w->int_option == w->ip;
    for (int i = 0; i < MAX_GENEVE_OPTIONS && at < end && w->seek && at + 4 <= w->end; i++) {
        u32 next = at + 4 + (bytes(s, at)[3] & 0x1f) * 4;
        int result;

        if (next > end)
            return REFUSE(BAD_GENEVE);
        result = geneve_option(s, p, at, next);
        if (result < 0)
            return result;
        at = next;
    }
    return inside(w, end, be16(geneve + 2));
}

/* Parses the packet at s->walk.at, beginning with a header of the kind `first`. */
static inline_always int walk_packet(struct scratch *s, const struct profile *p, u32 first)
{
    int step = first == FIRST_ETHERNET ? STEP_ETHERNET
               : first == FIRST_IPV4   ? STEP_IPV4
               : first == FIRST_IPV6   ? STEP_IPV6
                                       : STEP_DONE;

    for (int i = 0; i < MAX_STEPS && step > STEP_DONE; i++) {
        switch (step) {
        case STEP_ETHERNET:
        case STEP_ETHERTYPE:
            step = walk_link(s, step);
            break;
        case STEP_IPV4:
            step = walk_ipv4(s);
            break;
        case STEP_IPV6:
            step = walk_ipv6(s, p);
            break;
        case STEP_TRANSPORT:
            step = walk_transport(s);
            break;
        case STEP_UDP:
            step = walk_udp(s, p);
            break;
        case STEP_TCP:
            step = walk_tcp(s, p);
            break;
        case STEP_GRE:
            step = walk_gre(s, p);
            break;
        case STEP_VXLAN:
            step = inside(&s->walk, s->walk.at + 8, ETH_ETHERNET);
            break;
        case STEP_GPE:
            step = walk_gpe(s, p);
            break;
        case STEP_GTP:
            step = walk_gtp(s);
            break;
        default:
            step = walk_geneve(s, p);
            break;
        }
    }
    return step;
}

#endif
