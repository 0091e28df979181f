/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Reports 0.5, 1.0 and 2.0, one after the other: wire::report. */
#ifndef HOPWISE_PARSE_REPORT_H
#define HOPWISE_PARSE_REPORT_H

#include "parse_hops.h"
#include "parse_recognise.h"
#include "parse_walk.h"

enum { REPORT_05_LEN = 12, REPORT_10_LEN = 16, GROUP_LEN = 8, REPORT_20_LEN = 4, MAIN_LEN = 8 };
/* Report Length that means "to the end of the datagram". */
#define TO_THE_END 0xff
/* RepMdBits that are metadata: bit 0 and the reserved bits 9 to 14 are not. */
#define REAL_ITEMS 0x7f81
#define POSTCARD_DOMAIN 0x5043
/* Of a compact report of SF-INT: its inner contents are INT header and record. */
#define SF_DOMAIN 0x5346

/* Progress in a datagram. */
enum datagram_state {
    DATAGRAM_START,
    DATAGRAM_IN_GROUP,
    DATAGRAM_CONTRADICTED, /* a report was not whole by its own length, and bytes follow it */
    DATAGRAM_END
};

/* Results of next_report other than refusals. */
enum { NO_REPORT = 0, REPORT = 1 };

/* INTCollector's generator writes version nibble 1 into its reports 0.5 too, and a length below 4 into its reports 1.0.
 * Both continue with Ethernet, after 16 bytes in 1.0 and, with kind 0, after 12 in 0.5: the EtherType decides.
 */
static inline_always u32 generator_version(const struct scratch *s, u32 at, u32 end)
{
    const u8 *payload = bytes(s, at);
    u32 kind = payload[0] & 0x0f, header = kind == 0 ? 12 : kind == 1 ? 24 : 28, type, as_05 = 0, as_10 = 0, ip_10;

    if (kind < 3 && at + header + 14 <= end) {
        type = be16(payload + header + 12);
        as_05 = type == ETH_IPV4 || type == ETH_IPV6 || type == ETH_VLAN;
    }
    if (at + 30 <= end) {
        type = be16(payload + 28);
        as_10 = type == ETH_IPV4 || type == ETH_IPV6 || type == ETH_VLAN;
    }
    ip_10 = at + 31 <= end && (payload[30] >> 4 == 4 || payload[30] >> 4 == 6);
    /* A report 0.5 has its IP length where a report 1.0 has its EtherType; it may look like one. */
    if (as_05)
        return as_10 && ip_10 ? 10 : 5;
    /* Cut before the EtherType: the generator's reports 1.0 have length 1. */
    return as_10 || kind == 1 || kind == 3 ? 10 : 5;
}

/* The version by the first octets. */
static inline_always int report_version(const struct scratch *s, const struct profile *p, u32 at, u32 end)
{
    u32 first;

    if (at >= end)
        return REFUSE(TRUNCATED);
    first = bytes(s, at)[0];
    switch (first >> 4) {
    case 0:
        return 5;
    case 1:
        return p->dialect == INTCOLLECTOR_GEN && (first & 0x0f) < 4 ? (int)generator_version(s, at, end) : 10;
    case 2:
        return 20;
    default:
        return REFUSE(UNKNOWN_VERSION);
    }
}

static inline_always u32 is_ipv4(const struct scratch *s, u32 at, u32 end)
{
    u32 first = bytes(s, at)[0];

    return at < end && first >> 4 == 4 && (first & 0x0f) >= 5;
}

/* host-int's kind 4 may have the reporter's id before IPv4, without a flag: returns its length, 0 or 4, by the bytes. */
static inline_always u32 sink_word(const struct scratch *s, u32 at, u32 end)
{
    /* After an id that looks like IPv4 comes IPv4; if an identification field looks like IPv4, the header has a valid checksum. */
    return is_ipv4(s, at, end) && (!is_ipv4(s, at + 4, end) || checksum_holds(s, at, end)) ? 0 : 4;
}

static inline_always int head_05(struct scratch *s, const struct profile *p, u32 at, u32 end)
{
    struct head *h = &s->head;
    u32 extra;

    if (at + REPORT_05_LEN > end)
        return REFUSE(TRUNCATED);
    h->word = be32(bytes(s, at));
    if (!(h->word >> 21)) {
        int refused = flow_format(s, at, end);

        if (refused)
            return refused;
    }
    h->kind = h->word >> 24 & 0x0f;
    h->extra = at + REPORT_05_LEN;
    h->first = h->kind >= 3 ? FIRST_IPV4 : FIRST_ETHERNET;
    if (h->kind == 0)
        extra = 0;
    else if (h->kind == 1)
        extra = 12;
    else if (h->kind == 2)
        extra = 16;
    else if (h->kind == 3 && p->dialect == HOSTINT)
        extra = 24;
    else if (h->kind == 4 && p->dialect == HOSTINT)
        extra = sink_word(s, h->extra, end);
    else
        return REFUSE(BAD_NEXT_PROTOCOL);
    h->inner = h->extra + extra;
    return h->inner > end ? REFUSE(TRUNCATED) : 5;
}

static inline_always int head_10(struct scratch *s, const struct profile *p, u32 at, u32 end)
{
    struct head *h = &s->head;
    u32 len, next;

    if (at + REPORT_10_LEN > end)
        return REFUSE(TRUNCATED);
    h->word = be32(bytes(s, at));
    h->metadata = h->word >> 15 & 0x3f;
    len = (h->word >> 24 & 0x0f) * 4;
    if (len < REPORT_10_LEN && p->dialect == INTCOLLECTOR_GEN) {
        h->metadata = 0;
        len = REPORT_10_LEN;
    }
    next = h->word >> 21 & 7;
    if (len != REPORT_10_LEN + ones(h->metadata) * 4)
        return REFUSE(BAD_LENGTH);
    if (next > 2)
        return REFUSE(BAD_NEXT_PROTOCOL);
    if (at + len > end)
        return REFUSE(TRUNCATED);
    h->extra = at + REPORT_10_LEN;
    h->inner = at + len;
    h->first = next == 0 ? FIRST_ETHERNET : next == 1 ? FIRST_IPV4 : FIRST_IPV6;
    return 10;
}

/* The header of the report, or of the group, at `at`. Returns its version. */
int report_head(struct scratch *s, const struct profile *p, u32 at, u32 end)
{
    int version;

    if (!s || !p)
        return REFUSE(TRUNCATED);
    version = report_version(s, p, at, end);
    switch (version) {
    case 5:
        return head_05(s, p, at, end);
    case 10:
        return head_10(s, p, at, end);
    case 20:
        if (at + GROUP_LEN > end)
            return REFUSE(TRUNCATED);
        if (at + GROUP_LEN == end)
            return REFUSE(EMPTY_GROUP);
        s->head.word = be32(bytes(s, at));
        return 20;
    default:
        return version;
    }
}

/* D, Q and F of reports 0.5 and 1.0. */
static inline_always u32 dqf(u32 bits) { return (bits >> 2 & 1) | (bits & 2) | (bits & 1) << 2; }

static inline_always void clear_report(struct scratch *s)
{
    struct report *r = &s->report;

    r->version = s->peeked.version;
    r->node_id = s->peeked.node_id;
    r->hw_id = s->peeked.hw_id;
    r->seq = s->peeked.seq;
    r->flags = 0;
    r->marks = 0;
    r->reason = 0;
    r->index = s->index;
    s->has_reporter = 0;
    s->has_ts = 0;
    s->ds_id = s->domain_len = s->is_skipped = 0;
    s->found.int_version = 0;
    s->found.sf = SF_NONE;
    s->found.ioam = IOAM_NONE;
    s->found.ioam_count = s->found.is_traced = s->is_traced_by_hop = 0;
    s->is_partial = 0;
}

/* The flow that the walk has found, as its key. */
static inline_always void write_flow(struct scratch *s)
{
    struct flow_key *key = &s->report.flow;
    const struct walk *w = &s->walk;
    const u8 *ip = bytes(s, w->flow_ip);

    if (!w->has_flow) {
        for (u32 i = 0; i < 4; i++)
            ((raw64 *)key)[i] = 0;
        key->src_port = key->dst_port = 0;
        key->proto = key->kind = 0;
        return;
    }
    s->report.marks |= REPORT_HAS_FLOW;
    if (w->flow_v6) {
        for (u32 i = 0; i < 4; i++)
            ((raw64 *)key)[i] = *(const raw64 *)(ip + 8 + 8 * i);
    } else {
        *(raw64 *)key->src = *(raw64 *)key->dst = 0;
        *(raw32 *)(key->src + 8) = *(raw32 *)(key->dst + 8) = from_be32(0xffff);
        *(raw32 *)(key->src + 12) = *(const raw32 *)(ip + 12);
        *(raw32 *)(key->dst + 12) = *(const raw32 *)(ip + 16);
    }
    key->src_port = w->src_port;
    key->dst_port = w->dst_port;
    key->proto = w->flow_proto;
    key->kind = (w->flow_v6 ? FLOW_V6 : 0) | (w->flow_ports ? FLOW_PORTS : 0);
}

/* Whether it declares itself as the postcard of its reporter: wire::Report::is_postcard. */
static inline_always u32 is_declared(const struct scratch *s) { return s->ds_id == POSTCARD_DOMAIN && s->has_reporter; }

/* Whether the reporter is also the top record of the stack, or the newest node of a trace. The two are then one hop. */
static inline_always u32 is_merged(const struct scratch *s)
{
    u32 node = s->report.node_id, top = ABSENT;
    struct node_metadata metadata;

    if (!s->has_reporter || node == ABSENT || is_declared(s))
        return 0;
    if (s->found.int_version) {
        if (s->found.stack_count)
            top = item32(&s->int_layout, bytes(s, s->found.stack), NODE);
    } else if (s->found.ioam == IOAM_TRACE && s->found.trace_count && !is_local(s)) {
        read_trace(&metadata, s->found.trace_type, bytes(s, s->found.trace[0]));
        top = metadata.node;
    }
    return top == node;
}

/* A compact report of SF-INT: the inner contents are INT header and record, of a packet that is not reported. */
int compact(struct scratch *s, const struct profile *p)
{
    u32 at, end;

    if (!s || !p)
        return REFUSE(INT_TRUNCATED);
    at = s->walk.at;
    end = s->walk.end;
    if (at >= end)
        return REFUSE(BAD_INT_LENGTH);
    if (bytes(s, at)[0] >> 4 != 2)
        return REFUSE(BAD_INT_VERSION);
    return read_2(s, p, at, end, TYPE_SF_COMPACT);
}

/* Whether it is about packets that a Host-INT sink misses. */
static inline_always u32 is_gap(const struct scratch *s) { return s->report.version == 5 && s->head.kind == 3; }

/* Whether the report is not about a drop or a queue and contains nothing that a node has measured. */
static inline_always u32 is_empty(const struct scratch *s)
{
    return !s->has_reporter && !s->domain_len && !is_gap(s) && !(s->report.flags & ~REPORT_FLOW) &&
           !s->walk.destination && !s->found.int_version && s->found.ioam == IOAM_NONE;
}

/* Whether there is INT after TCP or UDP that no mark announces. Call it when the walk has found nothing else. */
noinline int has_unmarked_int(struct scratch *s, const struct profile *p)
{
    struct walk *w;
    u32 first, found;

    if (!s || !p)
        return 0;
    w = &s->walk;
    if (!w->unmarked || !w->seek)
        return 0;
    first = bytes(s, w->unmarked)[0];
    w->shim = w->unmarked;
    /* A next-protocol type of 0 belongs to the DSCP, others to the port. */
    w->mark = first >> 4 && first & 0x0c ? MARK_PORT : MARK_DSCP;
    found = l4_shim(s, p) >= 0 && s->found.int_version && s->found.stack_count;
    s->found.int_version = 0;
    s->found.sf = SF_NONE;
    return found;
}

/* Whether the report is worth reading although INT or IOAM of the packet was left out: the other of the two can be read, the reporter
 * states a loss or congestion, or it adds a measurement.
 */
static inline_always u32 stands_alone(const struct scratch *s)
{
    return s->found.int_version || s->found.ioam != IOAM_NONE || s->has_reporter || s->domain_len || is_gap(s) ||
           s->report.flags & (REPORT_DROP | REPORT_QUEUE);
}

/* Whether the packet may be a report, and the report one about INT (ruling j). */
static inline_always u32 may_be_nested(const struct scratch *s, const struct profile *p)
{
    const struct walk *w = &s->walk;

    return !(s->report.flags & (REPORT_DROP | REPORT_QUEUE)) && w->has_flow && w->flow_ports &&
           w->flow_proto == IPPROTO_UDP && is_report_port(p, w->dst_port);
}

/* A report that user space reads: it also counts the number of the datagram. Its flow is known, and its later reports are passed, too. */
noinline int undecided(struct scratch *s)
{
    struct report *r;
    u32 index, is_partial;

    if (!s)
        return REPORT;
    r = &s->report;
    index = r->index;
    is_partial = s->is_partial;
    clear_report(s);
    s->is_partial = is_partial;
    write_flow(s);
    r->index = index;
    r->marks = REPORT_UNDECIDED | (s->walk.has_flow ? REPORT_HAS_FLOW : 0);
    r->hop_count = 0;
    r->first_ingress = r->last_egress = NO_VALUE;
    r->wide_ends = 0;
    return REPORT;
}

/* Whether both INT and a trace in a hop-by-hop header name nodes: wire's Refusal::IntBesideTrace. */
static inline_always u32 is_beside_trace(const struct scratch *s)
{
    u32 has_stack = s->found.int_flags & REPORT_MD || s->found.sf != SF_NONE;

    return s->found.int_version && has_stack && s->found.stack_count && s->is_traced_by_hop && !is_declared(s);
}

/* Whether it contains one record of a set, or a path reported by number, or a trace beside something else. */
static inline_always u32 needs_user_space(const struct scratch *s, int refused)
{
    const struct found *f = &s->found;

    if (is_declared(s))
        return 0;
    if (f->int_version)
        return f->sf != SF_NONE ||
               (f->is_traced && !is_local(s) && (f->int_flags & REPORT_MD ? !f->stack_count : !s->has_reporter));
    return f->ioam_count > 1 || (refused && f->ioam != IOAM_NONE);
}

/* Parses the packet at s->walk.at, beginning with a header of the kind `first`, and completes the report. */
static inline_always int finish_report(struct scratch *s, const struct profile *p, u32 first)
{
    struct report *r = &s->report;
    u32 reason, at = s->walk.at, end = s->walk.end, seek = s->walk.seek, is_beside = 0;
    int result = 0, refused = 0;

    s->walk.left_out = s->walk.is_ambiguous = 0;
#pragma clang loop unroll(disable)
    for (int attempt = 0; attempt < 2; attempt++) {
        s->walk.tunnels = 0;
        s->walk.is_unread = 0;
        s->walk.hop_limit = ABSENT;
        s->walk.has_flow = 0;
        s->walk.unmarked = s->walk.destination = s->walk.ioam_left_out = s->ioam_cut = 0;
        s->walk.option_refused = 0;
        s->walk.int_option = 0;
        result = first == FIRST_COMPACT ? compact(s, p) : walk_packet(s, p, first);
        /* INT that the length of an IP header cuts off was not truncated. User space distinguishes the two. */
        if (s->walk.end < end && (result == REFUSE(INT_TRUNCATED) || s->walk.option_refused == REFUSE(INT_TRUNCATED)))
            s->walk.is_ambiguous = 1;
        if (result >= 0 && s->walk.option_refused) {
            /* A host may have written the option. It does not hide the INT behind it. */
            refused = s->walk.option_refused;
            if (!s->found.int_version)
                result = refused;
        }
        if (result >= 0 && is_beside_trace(s)) {
            s->found.int_version = 0;
            s->found.sf = SF_NONE;
            is_beside = 1;
        }
        if (result >= 0 && is_empty(s) && has_unmarked_int(s, p))
            result = REFUSE(INT_NOT_MARKED);
        if (result >= 0 && s->found.sf == SF_WITH_REPORTER && s->has_reporter && !is_declared(s))
            result = REFUSE(BAD_SF_STACK);
        if (result >= 0 || !seek || first == FIRST_COMPACT || result == REFUSE(INT_NOT_MARKED))
            break;
        /* A host may use the marks of INT. It hides neither IOAM nor what the reporter states (ruling g). */
        refused = result;
        s->walk.at = at;
        s->walk.end = end;
        s->walk.seek = seek = 0;
        s->walk.left_out = 1;
        s->found.int_version = 0;
        s->found.sf = SF_NONE;
        s->found.ioam = IOAM_NONE;
        s->found.ioam_count = s->found.is_traced = s->is_traced_by_hop = 0;
    }
    if (s->walk.is_ambiguous)
        return undecided(s);
    if (result < 0)
        return result;
    if (!refused && (s->walk.ioam_left_out || s->ioam_cut))
        refused = s->walk.ioam_left_out ? REFUSE(BAD_IOAM) : REFUSE(INT_TRUNCATED);
    /* User space, which reads such a report, knows the cause. */
    if (is_beside)
        refused = REFUSE(BAD_IOAM);
    if (refused && !stands_alone(s))
        return refused;
    if (refused) {
        r->marks |= REPORT_INT_REFUSED;
        if (!s->found.int_version && (is_beside || !s->found.is_traced))
            r->marks |= REPORT_NO_PATH;
    }
    if (is_doubtful(s, first) && !is_report(s, p, first, at, end))
        return REFUSE(NOT_A_REPORT);
    /* User space reads the report inside, if it is one. */
    if (may_be_nested(s, p))
        return undecided(s);
    if (s->walk.is_unread)
        r->marks |= REPORT_TUNNEL_UNREAD;
    if (r->node_id != ABSENT)
        r->marks |= REPORT_HAS_NODE;
    if (s->has_reporter) {
        r->marks |= REPORT_REPORTER_HOP;
        reason = item32(&s->reporter_layout, bytes(s, s->reporter), DROP);
        if (reason != ABSENT) {
            r->marks |= REPORT_HAS_REASON;
            r->reason = reason >> 16;
        }
    }
    if (r->version == 5 || s->ds_id == POSTCARD_DOMAIN)
        r->marks |= REPORT_POSTCARD;
    if (is_gap(s))
        r->marks |= REPORT_GAP;
    if (s->found.int_version)
        r->marks |= s->found.int_flags;
    if (s->walk.hop_limit <= 1)
        r->marks |= REPORT_EXPIRES;
    write_flow(s);
    if (needs_user_space(s, refused)) {
        r->marks = (r->marks & ~REPORT_REPORTER_HOP) | REPORT_UNDECIDED;
        r->hop_count = 0;
        r->first_ingress = r->last_egress = NO_VALUE;
        r->wide_ends = 0;
        return REPORT;
    }
    if (is_merged(s))
        r->marks |= REPORT_MERGED;
    read_hops(s, p);
    return REPORT;
}

/* The one report of a datagram of version 0.5, whose header has been read. Returns the first header of the packet inside, which
* is at s->walk.at .. s->walk.end; so do the next two functions.
 */
static inline_always int read_report_05(struct scratch *s)
{
    const struct head *h = &s->head;

    clear_report(s);
    s->report.flags = dqf(h->word >> 21);
    s->has_ts = 1;
    s->ts = be32(bytes(s, s->at) + 8);
    if (h->kind == 1 || h->kind == 2) {
        layout_report_05(&s->reporter_layout, h->kind);
        s->reporter = h->extra;
        s->has_reporter = 1;
    }
    s->walk.at = h->inner;
    s->walk.end = s->end;
    s->walk.seek = 1;
    return h->first;
}

/* The one report of a datagram of version 1.0, likewise. Searches for embedded INT regardless of F (wire-formats, ruling b). */
static inline_always int read_report_10(struct scratch *s, const struct profile *p)
{
    const struct head *h = &s->head;

    clear_report(s);
    s->report.flags = dqf(h->word >> (p->dialect == ONOS ? 12 : 6));
    s->has_ts = 1;
    s->ts = be32(bytes(s, s->at) + 12);
    if (h->metadata) {
        layout_report_10(&s->reporter_layout, h->metadata);
        s->reporter = h->extra;
        s->has_reporter = 1;
    }
    s->walk.at = h->inner;
    s->walk.end = s->end;
    s->walk.seek = 1;
    return h->first;
}

/* The first packet among the TLVs in s->walk.at .. s->walk.end, as far as they have been read. */
struct tlvs {
    struct scratch *s;
    u32 at;
    u32 end;
    u32 packet;
    u32 len;
    u32 first;
};

static long next_tlv(u32 i, struct tlvs *t)
{
    const u8 *head = bytes(t->s, t->at);
    u32 kind = head[0] >> 4, len = head[1] * 4;

    (void)i;
    if (t->at + 4 > t->end || t->at + 4 + len > t->end)
        return 1;
    if (kind >= 1 && kind <= 3 && t->first == FIRST_NOTHING) {
        t->first = kind == 1 ? FIRST_ETHERNET : kind == 2 ? FIRST_IPV4 : FIRST_IPV6;
        t->packet = t->at + 4;
        t->len = len;
    }
    t->at += 4 + len;
    return 0;
}

/* Of two packet TLVs the first is the flow (ruling i). */
int first_tlv(struct scratch *s)
{
    struct tlvs t = { .s = s, .first = FIRST_NOTHING };

    if (!s)
        return FIRST_NOTHING;
    t.at = s->walk.at;
    t.end = s->walk.end;
    bpf_loop(FRAME_BYTES / 4, next_tlv, &t, 0);
    s->is_partial = t.at != t.end;
    if (t.first == FIRST_NOTHING)
        return FIRST_NOTHING;
    s->walk.at = t.packet;
    s->walk.end = t.packet + t.len;
    return t.first;
}

/* Rule 4: the main contents of a report of type 1, at `at` .. s->walk.end. */
static inline_always int main_contents(struct scratch *s, u32 at, u32 md)
{
    const u8 *main = bytes(s, at);
    u32 bits, baseline, end = s->walk.end;

    if (at + MAIN_LEN + md > end)
        return REFUSE(BAD_METADATA_LENGTH);
    bits = be16(main);
    s->ds_id = be16(main + 2);
    baseline = words(bits, WIDE_BITS) * 4;
    if (baseline > md || (!s->ds_id && baseline != md))
        return REFUSE(BAD_METADATA_LENGTH);
    s->domain_len = md - baseline;
    if (bits & REAL_ITEMS) {
        layout_report_20(&s->reporter_layout, bits);
        s->reporter = at + MAIN_LEN;
        s->has_reporter = 1;
    }
    s->walk.at = at + MAIN_LEN + md;
    return 0;
}

/* One individual report of a group, from exactly its bytes: `at` .. s->walk.end. */
static inline_always int read_report_20(struct scratch *s, u32 at)
{
    const u8 *header = bytes(s, at);
    u32 type = header[0] >> 4, inner = header[0] & 0x0f, bits = header[3] >> 4, first;
    int result;

    if (type > 1)
        return REFUSE(UNDEFINED_REPORT_TYPE);
    if (inner > 5)
        return REFUSE(UNDEFINED_INNER_TYPE);
    clear_report(s);
    s->report.flags = dqf(bits >> 1) | (bits & 1) << 3;
    s->walk.at = at + REPORT_20_LEN;
    if (type == 1) {
        result = main_contents(s, at + REPORT_20_LEN, header[2] * 4);
        if (result < 0)
            return result;
    }
    s->type = type;
    s->md_length = header[2];
    s->inner_type = inner;
    s->reserved = header[3] & 0x0f;
    s->has_contents = s->walk.at != s->walk.end;
    if (inner == 0 && s->has_contents)
        return REFUSE(LEFTOVER_WORDS);
    if (inner >= 3 && !s->has_contents)
        return REFUSE(BAD_REPORT_LENGTH);
    switch (inner) {
    case 1:
        first = first_tlv(s);
        s->has_contents &= !s->is_partial;
        break;
    case 2:
        first = s->ds_id == SF_DOMAIN && s->report.flags & REPORT_FLOW ? FIRST_COMPACT : FIRST_NOTHING;
        break;
    case 3:
        first = FIRST_ETHERNET;
        break;
    case 4:
        first = FIRST_IPV4;
        break;
    case 5:
        first = FIRST_IPV6;
        break;
    default:
        first = FIRST_NOTHING;
    }
    /* Only a report of a tracked flow may carry INT or IOAM. */
    s->walk.seek = s->report.flags & REPORT_FLOW;
    return first;
}

/* Splits one individual report from the rest of the datagram. */
static inline_always int read_in_group(struct scratch *s)
{
    u32 at = s->rest, len;
    int first;

    s->state = DATAGRAM_END;
    if (at + REPORT_20_LEN > s->end)
        return REFUSE(TRUNCATED);
    len = bytes(s, at)[1];
    /* A report of type 1 has main contents. */
    if (bytes(s, at)[0] >> 4 == 1 && len * 4 < MAIN_LEN)
        return REFUSE(BAD_REPORT_LENGTH);
    if (len == TO_THE_END) {
        if (s->end - at - REPORT_20_LEN < TO_THE_END * 4)
            return REFUSE(BAD_LENGTH);
        s->rest = s->end;
    } else {
        s->rest = at + REPORT_20_LEN + len * 4;
        if (s->rest > s->end)
            return REFUSE(TRUNCATED);
    }
    s->state = DATAGRAM_IN_GROUP;
    s->walk.end = s->rest;
    first = read_report_20(s, at);
    s->index++;
    return first;
}

/* Stores the datagram's sequence number as soon as its header has been read. */
static inline_always void peek(struct scratch *s, u32 version)
{
    const struct head *h = &s->head;
    struct peeked *peeked = &s->peeked;
    const u8 *payload = bytes(s, s->at);

    peeked->version = version;
    peeked->hw_id = h->word & 0x3f;
    if (version == 20) {
        peeked->hw_id = h->word >> 22 & 0x3f;
        peeked->seq = h->word & 0x3fffff;
        peeked->node_id = be32(payload + 4);
    } else if (version == 10) {
        peeked->seq = be32(payload + 8);
        peeked->node_id = be32(payload + 4);
    } else {
        peeked->seq = be32(payload + 4);
        peeked->node_id = ABSENT;
        if (h->inner - h->extra >= 4)
            peeked->node_id = be32(bytes(s, h->extra + (h->kind == 3 ? 4 : 0)));
    }
}

/* Stores the number of a datagram whose header is refused. It may not be a report at all: wire's peek_header. */
static inline_always void peek_refused(struct scratch *s, const struct profile *p, int refused)
{
    const u8 *payload = bytes(s, s->at);
    int version = report_version(s, p, s->at, s->end);
    u32 len = s->end - s->at, at = version == 10 ? 8 : version == 20 ? 0 : 4;
    u32 is_number = REASON(refused) == TRUNCATED || REASON(refused) == BAD_NEXT_PROTOCOL || version != 5;

    if (version < 0 || !is_number || len < (version == 10 ? 12 : 8))
        return;
    s->peeked.version = version;
    s->peeked.hw_id = be32(payload) >> (version == 20 ? 22 : 0) & 0x3f;
    s->peeked.seq = be32(payload + at) & (version == 20 ? 0x3fffff : ABSENT);
    s->peeked.node_id = version == 5 ? ABSENT : be32(payload + 4);
}

/* Begins with the datagram in s->at .. s->end. */
static inline_always void start_reports(struct scratch *s)
{
    s->state = DATAGRAM_START;
    s->index = s->settled = 0;
    s->is_whole = WHOLE_UNKNOWN;
    s->peeked.version = 0;
}

/* Whether the bytes are not known to be a report at all: wire::Refusal::is_of_framing. */
static inline_always u32 is_of_framing(u32 reason)
{
    switch (reason) {
    case TRUNCATED:
    case UNKNOWN_VERSION:
    case EMPTY_GROUP:
    case BAD_LENGTH:
    case BAD_NEXT_PROTOCOL:
    case BAD_METADATA_LENGTH:
    case LEFTOVER_WORDS:
    case BAD_REPORT_LENGTH:
    case NOT_A_REPORT:
    case SFLOW:
    case NETFLOW_V5:
    case NETFLOW_V9:
    case IPFIX:
        return 1;
    default:
        return 0;
    }
}

/* What a result means for the rest of the datagram, and for its sequence number. */
static inline_always int conclude(struct scratch *s, int result)
{
    u32 reason = REASON(result);

    if (result < 0 && (reason == UNDEFINED_REPORT_TYPE || reason == UNDEFINED_INNER_TYPE))
        return result;
    if (reason == NOT_A_REPORT && s->is_skipped)
        return result;
    if (result < 0 && is_of_framing(reason)) {
        /* Bytes behind a report whose lengths contradict each other may be its own. */
        s->state = DATAGRAM_END;
        s->settled |= reason == BAD_METADATA_LENGTH;
        return result;
    }
    s->settled = 1;
    if (s->is_partial && s->state == DATAGRAM_IN_GROUP && s->rest < s->end)
        s->state = DATAGRAM_CONTRADICTED;
    return result;
}

/* Whether the lengths of a report 2.0 are 0, as in the p4-int family: p4int.rs. User space decides. */
static inline_always u32 is_length_zero(const struct scratch *s, const struct profile *p)
{
    const u8 *payload = bytes(s, s->at);
    u32 version = payload[0] >> 4, inner = payload[8] & 0x0f;

    return (p->dialect == STRICT || p->dialect == P4INT) && s->at + 34 <= s->end && payload[8] >> 4 == 1 &&
           (inner == 3 || inner == 4) && (version == 2 || (version == 1 && inner == 4)) && !payload[9] &&
           !payload[10] && !be64(payload + 12);
}

/* The next report of the datagram, into s->report: REPORT, or NO_REPORT at its end, or a refusal; after one that leaves no
 * length the next result is NO_REPORT.
 */
int next_report(struct scratch *s, const struct profile *p)
{
    int version, first;

    if (!s || !p)
        return NO_REPORT;
    if (s->state == DATAGRAM_IN_GROUP) {
        if (s->rest >= s->end)
            return NO_REPORT;
        first = read_in_group(s);
    } else if (s->state == DATAGRAM_START) {
        s->state = DATAGRAM_END;
        version = report_head(s, p, s->at, s->end);
        if (version == REFUSE(BAD_LENGTH) && is_length_zero(s, p)) {
            s->head.word = be32(bytes(s, s->at));
            version = 20;
        }
        if (version < 0) {
            peek_refused(s, p, version);
            return version;
        }
        peek(s, version);
        if (version == 20 && is_length_zero(s, p)) {
            s->state = DATAGRAM_END;
            s->report.index = s->is_partial = 0;
            s->walk.has_flow = 0;
            return undecided(s);
        }
        s->rest = s->at + GROUP_LEN;
        first = version == 5 ? read_report_05(s) : version == 10 ? read_report_10(s, p) : read_in_group(s);
    } else if (s->state == DATAGRAM_CONTRADICTED) {
        s->state = DATAGRAM_END;
        return REFUSE(BAD_REPORT_LENGTH);
    } else {
        return NO_REPORT;
    }
    return conclude(s, first < 0 ? first : finish_report(s, p, first));
}

#endif
