/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Whether bytes that begin like a report are one: wire's report/recognise.rs. */
#ifndef HOPWISE_PARSE_RECOGNISE_H
#define HOPWISE_PARSE_RECOGNISE_H

#include "parse.h"

/* The flow formats whose datagrams begin with bits of a report 0.5 without flags. */
static inline_always int flow_format(const struct scratch *s, u32 at, u32 end)
{
    const u8 *payload = bytes(s, at);
    u32 len = end - at, version = be16(payload), count = be16(payload + 2), first = be16(payload + 22);
    u32 address = be32(payload + 4);

    switch (version) {
    case 0:
        return count == 5 && (address == 1 || address == 2) ? REFUSE(SFLOW) : 0;
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
    case 0x9200: /* QinQ */
    case ETH_MPLS:
    case ETH_MPLS_MULTICAST:
    case ETH_ETHERNET:
    case 0x0806: /* ARP */
    case 0x8035: /* RARP */
    case 0x22f3: /* TRILL */
    case 0x8863: /* PPPoE */
    case 0x8864:
    case 0x8809: /* slow protocols */
    case 0x888e: /* EAPOL */
    case 0x88cc: /* LLDP */
    case 0x88e5: /* MACsec */
    case 0x88f7: /* PTP */
    case 0x8902: /* CFM */
    case 0x8906: /* FCoE */
    case 0x8915: /* RoCE */
    case 0x894f: /* NSH */
        return 1;
    default:
        return 0;
    }
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

/* The longest name of DNS has 255 bytes, each label at least two. */
#define MAX_LABELS 128

/* Whether this is a DNS message with one question: recognise.rs. */
int is_dns(struct scratch *s, u32 at, u32 end)
{
    u32 name = at + 12, class;

    if (!s || be16(bytes(s, at) + 4) != 1)
        return 0;
    for (int i = 0; i < MAX_LABELS && name < at + 12 + 255 && name < end; i++) {
        const u8 *label = bytes(s, name);

        if (label[0] >= 64)
            return 0;
        if (!label[0]) {
            class = be16(label + 3) & 0x7fff;
            return name + 5 <= end && (class == 1 || class == 3 || class == 4 || class == 254 || class == 255);
        }
        name += 1 + label[0];
    }
    return 0;
}

/* Whether a report without a flow is one: recognise.rs. Its packet is at `at` .. `end`. */
static inline_always u32 is_report(struct scratch *s, const struct profile *p, u32 first, u32 at, u32 end)
{
    u32 flagged = !!s->report.flags, measured = s->has_reporter, word = s->head.word, reserved, has_main;

    if (s->report.version != 20) {
        if (s->report.version == 5 && s->head.kind == 3)
            return 1;
        if (!flagged || is_dns(s, s->at, s->end))
            return 0;
        if (first == FIRST_ETHERNET && is_known(s, first, at, end))
            return 1;
        if (s->report.version == 5)
            reserved = word >> 6 & 0x7fff;
        else
            reserved = word >> (p->dialect == ONOS ? 6 : 9) & 0x3f;
        return !reserved && (measured || is_cut(s, first, at, end));
    }
    has_main = s->type == 1 && (flagged || s->md_length);
    if (!s->inner_type)
        return has_main;
    if (first == FIRST_NOTHING)
        return has_main || s->has_contents;
    if (first == FIRST_ETHERNET)
        return measured || (flagged && is_known(s, first, at, end));
    return (measured || flagged) && is_known(s, first, at, end);
}

#endif
