/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Shared by the parts of the decoder: the scratch area, reading of its bytes, refusals, profiles.
 *
 * The decoder gives the same results as `wire::datagram` and `wire::report::Reports`, with the values of the collector's
 * `Reading`; it follows them function by function, under the same names.
 *
 * To satisfy the verifier, a frame is copied into a per-CPU map value and read at masked offsets, so that no access can leave it;
 * the parser itself compares offsets with the end, as in Rust. The verifier checks global functions one by one, for any state of
 * the scratch area; they pass values in that area and return a number. Needs Linux 5.18 (bpf_xdp_load_bytes; bpf_loop is of
 * 5.17).
 */
#ifndef HOPWISE_PARSE_H
#define HOPWISE_PARSE_H

#include "report.h"

/* Refusals, in the order of wire::Refusal. */
enum refusal {
    TRUNCATED,
    NOT_IP,
    NOT_UDP,
    FRAGMENT,
    BAD_IP_HEADER,
    BAD_UDP_LENGTH,
    UNKNOWN_VERSION,
    EMPTY_GROUP,
    BAD_LENGTH,
    BAD_NEXT_PROTOCOL,
    BAD_METADATA_LENGTH,
    UNDEFINED_REPORT_TYPE,
    UNDEFINED_INNER_TYPE,
    LEFTOVER_WORDS,
    INT_TRUNCATED,
    BAD_SHIM,
    BAD_NEXT_PROTOCOL_TYPE,
    BAD_INT_VERSION,
    BAD_INT_LENGTH,
    BAD_HOP_ML,
    BAD_INSTRUCTION_COUNT,
    TOO_MANY_HOPS,
    PARTIAL_HOP,
    BAD_GRE,
    BAD_GENEVE,
    BAD_IOAM,
    NESTED,
    BAD_OPTION,
    SF_MISMATCH,
    BAD_SF_HEADER,
    BAD_SF_STACK,
    INT_NOT_MARKED,
    BAD_REPORT_LENGTH,
    NOT_A_REPORT,
    SFLOW,
    NETFLOW_V5,
    NETFLOW_V9,
    IPFIX,
    REFUSALS
};

/* Functions return 0 or more, or a refusal as a negative number. */
#define REFUSE(reason) (-1 - (int)(reason))
#define REASON(result) ((u32)(-1 - (result)))

enum dialect { STRICT, GEANT, HOSTINT, INTCOLLECTOR_GEN, ONOS, P4INT };

#define MAX_PORTS 8
#define MAX_VXLAN_PORTS 4
#define NO_DSCP 0xff

struct domain {
    u16 id;
    u8 source_only_words;
    u8 known;
};

/* How to read the bytes of one source, and the units of its numbers: wire::Profile and the collector's units. */
struct profile {
    u64 probe_marker; /* as a number */
    u32 has_probe_marker;
    u32 stamp_ns;         /* ns per unit of timestamps, at least 1 */
    u32 latency_ns;       /* likewise, of hop latency */
    u32 utilization_unit; /* millionths of the link per unit */
    u16 int_udp_port;
    u16 gre_protocol;
    u16 ports[MAX_PORTS]; /* of reports: a packet to one of them is a report about a report */
    struct domain domains[2];
    u8 port_count;
    u8 dialect;
    u8 dscp;
    u8 dscp_mask;
    u8 dscp_other; /* NO_DSCP: none */
    u8 tcp_after_options;
    u8 synchronised;      /* stamps of different nodes may be compared */
    u8 drop_zero_unknown; /* egress interface 0 and queue 0 of a drop report 0.5 */
    u8 pad[4];
    u64 max_latency;                  /* the longest plausible hop latency, ns; NO_VALUE: latencies are not judged */
    u16 vxlan_ports[MAX_VXLAN_PORTS]; /* further ports of VXLAN; 0: none */
};
_Static_assert(sizeof(struct profile) == 80 && __builtin_offsetof(struct profile, vxlan_ports) == 72 &&
                   __builtin_offsetof(struct profile, int_udp_port) == 24 &&
                   __builtin_offsetof(struct profile, domains) == 44 &&
                   __builtin_offsetof(struct profile, synchronised) == 58 &&
                   __builtin_offsetof(struct profile, max_latency) == 64,
               "profile.rs mirrors this struct");

/* Ports of telemetry datagrams. */
struct ports {
    u32 count;
    u16 port[MAX_PORTS];
};
_Static_assert(sizeof(struct ports) == 20 && __builtin_offsetof(struct ports, port) == 4,
               "profile.rs mirrors this struct");

/* The longest frame supported, and the bytes that may be read after any offset in it without a check. */
#define FRAME_BYTES 16384
#define FRAME_SLACK 256
/* Bytes of a frame that are copied before it is known to be telemetry. */
#define FRAME_HEAD 128
/* A frame up to this length is copied at once: two copies cost more than they save. */
#define FRAME_SHORT 512

/* Items of a record; the first eleven are the bit numbers of wire::Items. */
enum item { NODE, PORTS, LATENCY, QUEUE, INGRESS, EGRESS, L2, TX, BUFFER, CONGESTION, CHECKSUM, DROP };
#define ITEM(item) (1u << (item))
/* Offset of an item that a record does not have. */
#define NOWHERE 0xff

/* The offsets of a record's items: wire::int::Layout. Cached until a record of another kind is read. */
struct layout {
    u64 key;
    u32 carried; /* ITEM bits, DROP included */
    u8 words;
    u8 wide_ts;
    u8 wide_l2;
    u8 pad;
    u8 at[16];
};

enum first_header { FIRST_ETHERNET, FIRST_IPV4, FIRST_IPV6, FIRST_NOTHING, FIRST_COMPACT };

/* The header of a report: its first word, and the offsets after it. */
struct head {
    u32 word;
    u32 kind;  /* report 0.5 */
    u32 extra; /* where the reporter's own words begin */
    u32 inner; /* and where they end, and the packet begins */
    u32 first; /* enum first_header */
    u32 metadata;
};

/* The sequence number of a datagram, known as soon as its header is read: wire::Peek. */
struct peeked {
    u32 version; /* 0: the header itself was refused */
    u32 node_id; /* ABSENT also when not available */
    u32 hw_id;
    u32 seq;
};

/* The walk through the packet inside a report: wire's Walk. Offsets are from the frame's start. */
struct walk {
    u32 at;
    u32 end;       /* of the bytes that are the packet's own */
    u32 ip;        /* the latest IP header */
    u32 hop_limit; /* of the outermost IP header; ABSENT: there is none */
    u32 ethertype;
    u32 seek; /* INT and IOAM are still searched for */
    u32 left_out; /* INT was refused and is not read again: IOAM is, and its shim after UDP announces the original port or protocol */
    u32 int_option;     /* the IPv6 header with the option that contains INT; 0: none has one */
    u32 is_ambiguous;   /* two marks announce INT, or a mark and an option: user space decides which of them is INT */
    int option_refused; /* why an option of IPv6 that should hold INT was left out; 0: none was */
    u32 ioam_left_out;  /* an IOAM option that contradicts itself was left out */
    u32 unmarked;       /* offset of bytes after TCP or UDP that no mark announces as INT; 0: none */
    u32 destination;    /* INT for the destination was skipped */
    u32 tunnels;
    u32 is_unread; /* no IP packet has been read in the tunnel */
    u8 v6;
    u8 dscp;
    u8 proto;
    u8 has_flow;
    u16 src_port; /* of the flow found */
    u16 dst_port;
    u32 flow_ip;
    u8 flow_v6;
    u8 flow_ports;
    u8 flow_proto;
    u8 mark; /* enum mark */
    u32 shim;
    /* Results of parsing a shim. */
    u32 after;
    u32 original_port;  /* ABSENT: not reported */
    u32 original_proto; /* likewise */
};

enum whole { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

enum mark { MARK_NONE, MARK_PORT, MARK_DSCP, MARK_PROBE };

/* SF-INT: user space assembles the contents of a report. */
enum sf_found {
    SF_NONE,
    SF_URGENT,        /* a stack like any other */
    SF_RECORD,        /* one record */
    SF_WITH_REPORTER, /* two, of which the first is the reporter's own */
};

/* INT and IOAM found. */
struct found {
    u32 int_version; /* 0: none; 5, 10, 20 */
    u32 int_flags;   /* REPORT_MD, REPORT_HOP_LIMIT, REPORT_MTU */
    u32 stack;       /* its records, the most recent hop first */
    u32 stack_count;
    u32 sf;              /* enum sf_found */
    u32 ioam;            /* 0: none; enum ioam_kind */
    u32 ioam_count;      /* IOAM options; user space decides on more than one */
    u32 ioam_ip;         /* the IPv6 header that has them */
    u32 trace_type;      /* of a trace */
    u32 trace_undecided; /* a trace that lacks nodes, or their ids: user space decides */
    u32 trace_count;
    u32 is_traced;       /* one of the options is a trace with nodes */
    u16 trace[MAX_HOPS]; /* its nodes, newest first */
};

struct scratch {
    u32 len;       /* of the frame */
    u32 loaded;    /* bytes copied so far */
    u32 reason;    /* why a frame was refused or passed: a refusal, or enum pass_reason */
    u32 dst_port;  /* UDP destination port, once known, else ABSENT */
    u8 source[16]; /* sender, IPv4 mapped into IPv6 */
    u32 at;        /* the datagram's payload */
    u32 end;
    u32 rest; /* of a group: where the next report begins */
    u32 state;
    u32 index;
    u32 reporter; /* the reporter's own record */
    u32 has_reporter;
    u32 latency_from_stamps;
    u32 ts; /* ingress stamp of the header */
    u32 has_ts;
    u32 ds_id;
    u32 domain_len; /* bytes of domain-specific metadata */
    u32 first_wide; /* the first hop's stamps have 64 bits */
    u32 settled;    /* the first report of a defined type is one: the sequence number counts */
    u32 type;       /* of a report 2.0, and of its inner contents */
    u32 inner_type;
    u32 md_length;
    u32 has_contents; /* the inner contents are not empty */
    u32 reserved;     /* the bits behind the flags of a report 2.0 */
    u32 is_partial;   /* a TLV extends beyond the report */
    u32 is_whole;     /* enum whole: whether the lengths of the group's reports agree */
    u32 is_skipped;   /* refused, but its length is certain */
    struct peeked peeked;
    struct head head;
    struct walk walk;
    struct found found;
    struct layout int_layout;
    struct layout reporter_layout;
    struct report report;
    u8 record[64]; /* space for the record header before the frame */
    u8 frame[FRAME_BYTES + FRAME_SLACK];
    u32 ioam_cut;         /* the packet was truncated inside an options header with IOAM */
    u32 is_traced_by_hop; /* a trace with nodes that write an id is in a hop-by-hop header */
    u32 by_hop;           /* the options that are read are in a hop-by-hop header */
};

/* Numbers that may alias memory of any type. */
typedef u16 __attribute__((may_alias)) raw16;
typedef u32 __attribute__((may_alias)) raw32;
typedef u64 __attribute__((may_alias)) raw64;

/* The bytes at `at`, of which FRAME_SLACK may be read. The mask is in assembly, so that the compiler cannot optimise
* it away: the verifier needs it.
 */
static inline_always const u8 *bytes(const struct scratch *s, u32 at)
{
    u64 offset = at;

    asm volatile("%0 &= %1" : "+r"(offset) : "i"(FRAME_BYTES - 1));
    return s->frame + offset;
}

static inline_always u32 be16(const u8 *at) { return from_be16(*(const raw16 *)at); }
static inline_always u32 be32(const u8 *at) { return from_be32(*(const raw32 *)at); }
static inline_always u64 be64(const u8 *at) { return from_be64(*(const raw64 *)at); }
static inline_always u32 be24(const u8 *at) { return (u32)at[0] << 16 | (u32)at[1] << 8 | at[2]; }

static inline_always u32 ones(u32 value)
{
    value = value - (value >> 1 & 0x55555555);
    value = (value & 0x33333333) + (value >> 2 & 0x33333333);
    value = (value + (value >> 4)) & 0x0f0f0f0f;
    return value * 0x01010101 >> 24;
}

enum ethertype {
    ETH_IPV4 = 0x0800,
    ETH_IPV6 = 0x86dd,
    ETH_VLAN = 0x8100,
    ETH_QINQ = 0x88a8,
    ETH_QINQ_OLD = 0x9100,
    ETH_QINQ_OTHER = 0x9200,
    ETH_MPLS = 0x8847,
    ETH_MPLS_MULTICAST = 0x8848,
    ETH_ETHERNET = 0x6558,
    ETH_PPPOE_SESSION = 0x8864,
};

enum protocol { IPPROTO_IPIP = 4, IPPROTO_TCP = 6, IPPROTO_UDP = 17, IPPROTO_IPV6 = 41, IPPROTO_GRE = 47 };

enum tunnel_port { VXLAN_PORT = 4789, GPE_PORT = 4790, GENEVE_PORT = 6081, LINUX_VXLAN_PORT = 8472, GTP_PORT = 2152 };

/* Protocol types of GRE: ERSPAN I and II, and III. */
enum erspan { ERSPAN = 0x88be, ERSPAN_3 = 0x22eb };

/* Maximum number of consecutive tags, labels or extension headers that are skipped. */
#define MAX_TAGS 8

/* The factor of an IPv6 extension header's length field: its length is 8 plus that many bytes; 0xff: not an extension header. */
static inline_always u32 extension_units(u32 next)
{
    switch (next) {
    case 0:
    case 43:
    case 60:
    case 135:
    case 139:
    case 140:
        return 8;
    case 51:
        return 4;
    case 44:
        return 0;
    default:
        return 0xff;
    }
}

static inline_always u32 is_vlan(u32 ethertype)
{
    return ethertype == ETH_VLAN || ethertype == ETH_QINQ || ethertype == ETH_QINQ_OLD || ethertype == ETH_QINQ_OTHER;
}

static inline_always u32 is_mpls(u32 ethertype) { return ethertype == ETH_MPLS || ethertype == ETH_MPLS_MULTICAST; }

#endif
