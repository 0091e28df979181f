/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Whether bytes that begin like a report are one: wire's report/recognise.rs. */
#ifndef HOPWISE_PARSE_RECOGNISE_H
#define HOPWISE_PARSE_RECOGNISE_H

#include "parse.h"

/* Whether a datagram that begins with the version of sFlow is one: the type of the agent's address, and samples that fit in. */
static inline_always u32 is_sflow(const u8 *payload, u32 len)
{
    u32 address = be32(payload + 4), header = address == 1 ? 28 : 40, samples, first;

    if ((address != 1 && address != 2) || len < header)
        return 0;
    samples = be32(payload + header - 4);
    first = be32(payload + header + 4);
    if (!samples)
        return len == header;
    return len - header >= 8 && samples <= (len - header) / 8 && first <= len - header - 8;
}

/* The flow formats whose datagrams begin with bits of a report 0.5 without flags. */
static inline_always int flow_format(const struct scratch *s, u32 at, u32 end)
{
    const u8 *payload = bytes(s, at);
    u32 len = end - at, version = be16(payload), count = be16(payload + 2), first = be16(payload + 22);

    switch (version) {
    case 0:
        return count == 5 && is_sflow(payload, len) ? REFUSE(SFLOW) : 0;
    case 5:
        return count && len == 24 + 48 * count ? REFUSE(NETFLOW_V5) : 0;
    case 9:
        return count && len >= 24 && count <= (len - 20) / 4 && first >= 4 && first <= len - 20 ? REFUSE(NETFLOW_V9)
                                                                                                : 0;
    case 10:
        return count == len ? REFUSE(IPFIX) : 0;
    default:
        return 0;
    }
}

/* EtherTypes in use in networks that have telemetry. */
static inline_always u32 is_ethertype(u32 ethertype)
{
    switch (ethertype) {
    case ETH_IPV4:
    case ETH_IPV6:
    case ETH_VLAN:
    case ETH_QINQ:
    case ETH_QINQ_OLD:
    case ETH_QINQ_OTHER:
    case ETH_MPLS:
    case ETH_MPLS_MULTICAST:
    case ETH_ETHERNET:
    case 0x0806: /* ARP */
    case 0x8035: /* RARP */
    case 0x22ea: /* SRP */
    case 0x22f0: /* AVTP */
    case 0x22f3: /* TRILL */
    case 0x8863: /* PPPoE */
    case 0x8864:
    case 0x8809: /* slow protocols */
    case 0x888e: /* EAPOL */
    case 0x8892: /* PROFINET */
    case 0x88a4: /* EtherCAT */
    case 0x88b5: /* local experiments */
    case 0x88b6:
    case 0x88b7: /* experiments of a vendor */
    case 0x88b8: /* GOOSE, management and sampled values of IEC 61850 */
    case 0x88b9:
    case 0x88ba:
    case 0x88ca: /* TIPC */
    case 0x88cc: /* LLDP */
    case 0x88e5: /* MACsec */
    case 0x88e7: /* PBB */
    case 0x88f5: /* MVRP */
    case 0x88f6: /* MMRP */
    case 0x88f7: /* PTP */
    case 0x88fb: /* PRP */
    case 0x8902: /* CFM */
    case 0x8906: /* FCoE */
    case 0x8914: /* FIP */
    case 0x8915: /* RoCE */
    case 0x892f: /* HSR */
    case 0x894f: /* NSH */
    case 0x9000: /* loopback */
        return 1;
    default:
        return 0;
    }
}

/* Whether a frame has a length of IEEE 802.3 instead of an EtherType, and SNAP, a BPDU, IS-IS, NetBIOS or IPX behind
 * it.
 */
static inline_always u32 is_llc(const u8 *packet, u32 len)
{
    u32 access_points = be16(packet + 14);

    return len >= 16 && be16(packet + 12) <= 1500 &&
           (access_points == 0xaaaa || access_points == 0x4242 || access_points == 0xfefe || access_points == 0xf0f0 ||
            access_points == 0xe0e0);
}

/* Whether the packet begins with a header that can be recognised, although no IP header of it could be read. */
static inline_always u32 is_known(const struct scratch *s, u32 first, u32 at, u32 end)
{
    const u8 *packet = bytes(s, at);

    if (first == FIRST_ETHERNET)
        return at + 14 <= end && is_ethertype(be16(packet + 12));
    return at < end && packet[0] >> 4 == (first == FIRST_IPV4 ? 4 : 6);
}

/* Whether the packet ends inside its first header. */
static inline_always u32 is_cut(const struct scratch *s, u32 first, u32 at, u32 end)
{
    if (first == FIRST_ETHERNET)
        return at + 14 > end;
    return at + (first == FIRST_IPV4 ? 20 : 40) > end && (at == end || is_known(s, first, at, end));
}

/* Whether the packet may be one. A packet may have been dropped because of its addresses, or its IP version. */
static inline_always u32 is_packet(const struct scratch *s, u32 first, u32 at, u32 end)
{
    const u8 *source = bytes(s, at) + 6;

    if (first != FIRST_ETHERNET)
        return is_known(s, first, at, end) || (s->has_reporter && s->report.flags & REPORT_DROP);
    if (s->report.flags & REPORT_DROP)
        return at + 14 <= end;
    return at + 12 <= end && !(source[0] & 1) && (be16(source) || be32(source + 2));
}

/* The longest name of DNS has 255 bytes, each label at least two. */
#define MAX_LABELS 128

/* The name of the root, type, class, lifetime and a length of 0. */
#define SHORTEST_RECORD 11

/* Whether the bytes of a DNS message at `at` from `behind` on, which follow its question, can hold the records that its header counts. */
static inline_always u32 holds_records(const struct scratch *s, u32 at, u32 behind, u32 end)
{
    const u8 *header = bytes(s, at);
    u32 count = be16(header + 6) + be16(header + 8) + be16(header + 10);

    return count * SHORTEST_RECORD <= end - behind;
}

/* Whether this is a DNS message with one question: recognise.rs. */
int is_dns(struct scratch *s, u32 at, u32 end)
{
    u32 name = at + 12, class;

    if (!s || at + 6 > end || be16(bytes(s, at) + 4) != 1)
        return 0;
    /* A question for the root is one only with EDNS. */
    if (name < end && !bytes(s, name)[0])
        return at + 20 <= end && !be32(bytes(s, at) + 6) && be16(bytes(s, at) + 10) == 1 &&
               be24(bytes(s, at) + 17) == 41 && holds_records(s, at, at + 17, end);
    for (int i = 0; i < MAX_LABELS && name < at + 12 + 255 && name < end; i++) {
        const u8 *label = bytes(s, name);

        if (label[0] >= 64)
            return 0;
        if (!label[0]) {
            class = be16(label + 3) & 0x7fff;
            return name + 5 <= end && (class == 1 || class == 3 || class == 4 || class == 254 || class == 255) &&
                   holds_records(s, at, name + 5, end);
        }
        name += 1 + label[0];
    }
    return 0;
}

/* With reserved bits of 0 a message of RADIUS has at most 63 bytes, and each attribute at least two. */
#define MAX_ATTRIBUTES 22
/* Longer padding is none. */
#define MAX_PADDING 64

/* Whether this is a message of RADIUS, as far as it has the reserved bits of a report 0.5: recognise.rs. */
int is_radius(struct scratch *s, u32 at, u32 end)
{
    u32 attribute = at + 20, len;

    if (!s || at + 20 > end)
        return 0;
    len = be16(bytes(s, at) + 2);
    if (len < 20 || len > end - at || end - at - len > MAX_PADDING)
        return 0;
    len += at;
    for (int i = 0; i < MAX_PADDING && len + i < end; i++)
        if (bytes(s, len + i)[0])
            return 0;
    for (int i = 0; i < MAX_ATTRIBUTES && attribute < len; i++) {
        u32 length = bytes(s, attribute)[1];

        if (attribute + 2 > len || length < 2)
            return 0;
        attribute += length;
    }
    return attribute == len;
}

/* Whether this is a message of NTP version 2: recognise.rs. */
static inline_always u32 is_ntp(const struct scratch *s, u32 at, u32 end)
{
    u32 len = end - at, mode = bytes(s, at)[0] & 7;

    return (len == 48 || len == 60 || len == 68 || len == 72) && (mode == 4 || mode == 5) && bytes(s, at)[1] <= 16 &&
           bytes(s, at)[3] >= 0xe0 && bytes(s, at)[40] >= 0x80;
}

/* Whether what was read in the packet does not suffice: neither INT, nor a flow announced by an EtherType. */
static inline_always u32 is_doubtful(const struct scratch *s, u32 first)
{
    return !s->found.int_version && (!s->walk.has_flow || first != FIRST_ETHERNET);
}

/* Whether a report 0.5 or 1.0 that is doubtful is one: recognise.rs. Its packet is at `at` .. `end`. */
static inline_always u32 is_single(struct scratch *s, const struct profile *p, u32 first, u32 at, u32 end)
{
    u32 word = s->head.word, is_05 = s->report.version == 5, reserved, has_node;

    reserved = is_05 ? word >> 6 & 0x7fff : word >> (p->dialect == ONOS ? 6 : 9) & 0x3f;
    if (!s->report.flags || reserved)
        return 0;
    if (first == FIRST_ETHERNET && is_known(s, first, at, end))
        return 1;
    /* The padding of a drop header is reserved, too. */
    if (is_05 && s->head.kind == 1 && be16(bytes(s, s->head.extra) + 10))
        return 0;
    if (is_dns(s, s->at, s->end) || (is_05 ? is_radius(s, s->at, s->end) : is_ntp(s, s->at, s->end)))
        return 0;
    if (s->walk.has_flow || (first == FIRST_ETHERNET && is_llc(bytes(s, at), end - at)))
        return 1;
    has_node = !is_05 || s->head.inner > s->head.extra;
    return has_node && (is_cut(s, first, at, end) || is_packet(s, first, at, end));
}

/* Whether an individual report 2.0 that is doubtful is one. */
static inline_always u32 is_grouped(struct scratch *s, u32 first, u32 at, u32 end)
{
    u32 flagged = !!s->report.flags, measured = s->has_reporter, announced, has_main;

    has_main = s->type == 1 && (flagged || s->md_length);
    announced = measured || (flagged && !s->reserved);
    if (!s->inner_type)
        return has_main;
    if (first == FIRST_NOTHING)
        return !s->reserved && (has_main || (s->has_contents && flagged));
    if (first == FIRST_ETHERNET)
        return measured || (announced && (is_known(s, first, at, end) || is_llc(bytes(s, at), end - at)));
    if (s->walk.has_flow)
        return measured || !s->reserved;
    return announced && is_known(s, first, at, end);
}

/* Walks over the lengths of the reports in a group. */
struct lengths {
    struct scratch *s;
    u32 at;
};

static long next_length(u32 i, struct lengths *l)
{
    const u8 *header = bytes(l->s, l->at);
    u32 end = l->s->end, len = header[1] * 4;

    (void)i;
    if (l->at == end)
        return 1;
    if (l->at + 4 > end || (header[0] >> 4 == 1 && len < 8)) {
        l->at = ABSENT;
        return 1;
    }
    if (len == 0xff * 4)
        l->at = end - l->at - 4 < len ? ABSENT : end;
    else
        l->at += 4 + len;
    return l->at > end;
}

/* Whether reports follow one another up to the end of the datagram, by their lengths. */
int lengths_agree(struct scratch *s)
{
    struct lengths l = { .s = s };

    if (!s)
        return 0;
    if (s->is_whole == WHOLE_UNKNOWN) {
        l.at = s->rest;
        bpf_loop(FRAME_BYTES / 4, next_length, &l, 0);
        s->is_whole = l.at == s->end ? WHOLE_YES : WHOLE_NO;
    }
    return s->is_whole == WHOLE_YES;
}

/* Whether a report without a flow is one. If not, but its length is certain, it is skipped: what a host has sent does not hide the
 * reports behind it.
 */
noinline int is_report(struct scratch *s, const struct profile *p, u32 first, u32 at, u32 end)
{
    if (!s || !p)
        return 0;
    if (s->report.version != 20)
        return is_single(s, p, first, at, end);
    if (is_grouped(s, first, at, end))
        return 1;
    if (first == FIRST_NOTHING || s->is_partial || !lengths_agree(s))
        return 0;
    s->is_skipped = 1;
    return s->report.flags && !s->reserved && (first == FIRST_ETHERNET ? at + 14 <= end : s->has_reporter);
}

#endif
