/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* INT: shims, headers, stacks. wire::int::{shim, header}, wire::packet. */
#ifndef HOPWISE_PARSE_INT_H
#define HOPWISE_PARSE_INT_H

#include "parse_layout.h"

enum { INT_LEN_1 = 8, INT_LEN_2 = 12, SHIM_LEN = 4, TAIL_LEN = 4 };

/* The kind of INT by the first shim byte and the version of the header after it. */
enum detected {
    FOUND_05 = 5,
    FOUND_10 = 10,
    FOUND_MD = 20, /* from here on in the order of enum type_2 */
    FOUND_MX = 21,
    FOUND_SF = 22,
    FOUND_PRIVATE = 30,
    FOR_DESTINATION_1 = 40,
    FOR_DESTINATION_2,
};

/* Ruling (a): version nibble 0, but the counts are those of INT 1.0. The header may be cut. HopML counts words, or items: see
 * words_10.
 */
static inline_always u32 is_10_under_version_0(const u8 *header, u32 available)
{
    u32 bitmap = be16(header + 4);

    return available >= INT_LEN_1 && (header[1] & 0x1f) != ones(bitmap) &&
           ((header[2] & 0x1f) == words(bitmap, L2_BIT) || (header[2] & 0x1f) == ones(bitmap));
}

/* The table of wire-formats section 1.2 for the shim at `at`; `sf`: SF-INT may be here. */
static inline_always int detect_shim(const struct scratch *s, u32 at, u32 hostint, u32 sf)
{
    const u8 *shim = bytes(s, at);
    u32 end = s->walk.end, first, type, version, is_int;

    if (at >= end)
        return REFUSE(INT_TRUNCATED);
    first = shim[0];
    type = first >> 4;
    if (first == 0x02)
        return FOR_DESTINATION_1;
    if (type == 2)
        return FOR_DESTINATION_2;
    is_int = first == 0x01 || type == 1 || type == 3 || (type == 4 && sf);
    if (at + SHIM_LEN >= end)
        /* Bytes that cannot be a shim are not a truncated shim either. */
        return is_int || (first == 0x03 && hostint) ? REFUSE(INT_TRUNCATED) : REFUSE(BAD_SHIM);
    version = shim[SHIM_LEN] >> 4;
    if (first == 0x01 && version == 1)
        return FOUND_10;
    if (first == 0x01 && version == 0)
        return is_10_under_version_0(shim + SHIM_LEN, end - at - SHIM_LEN) ? FOUND_10 : FOUND_05;
    if (first == 0x03 && version == 0 && hostint)
        return FOUND_PRIVATE;
    if (type == 1 && version == 2)
        return FOUND_MD;
    if (type == 3 && version == 2)
        return FOUND_MX;
    if (type == 4 && version == 2 && sf)
        return FOUND_SF;
    return is_int ? REFUSE(BAD_INT_VERSION) : REFUSE(BAD_SHIM);
}

static inline_always void found_int(struct scratch *s, u32 version, u32 flags, u32 stack, u32 count)
{
    s->found.int_version = version;
    s->found.int_flags = flags;
    s->found.stack = stack;
    s->found.stack_count = count;
    s->found.sf = SF_NONE;
}

static inline_always u32 source_only_words(const struct profile *p, u32 domain)
{
    for (int i = 0; i < 2; i++)
        if (p->domains[i].known && p->domains[i].id == domain)
            return p->domains[i].source_only_words;
    return 0;
}

/* The type of INT 2.x that a carrier announces. A compact report has one record, any other report may have two. */
enum type_2 { TYPE_MD, TYPE_MX, TYPE_SF, TYPE_SF_COMPACT };

enum { SF_FLAG = 0x0100, SF_URGENT_BIT = 0x0080, SF_STATE = 0x0060, NODE_BIT = 0x8000 };

/* Header and record of SF-INT, which must be complete: wire-formats section 3.2. */
static inline_always int read_sf(struct scratch *s, u32 at, u32 end, u32 type)
{
    const u8 *header = bytes(s, at);
    u32 first = be16(header), hop_ml = header[2] & 0x1f, bitmap = be16(header + 4), data = end - at - INT_LEN_2;
    u32 urgent = first & SF_URGENT_BIT, record = hop_ml * 4, count, flags;
    int result;

    if (type < TYPE_SF || !(first & SF_FLAG))
        return REFUSE(SF_MISMATCH);
    if (!(first & SF_STATE) || (bitmap & (NODE_BIT | LAST_BIT)) != NODE_BIT || be32(header + 8))
        return REFUSE(BAD_SF_HEADER);
    result = layout_2(&s->int_layout, bitmap, hop_ml, 0);
    if (result < 0)
        return result;
    count = record ? data / record : 0;
    if (count * record != data)
        return urgent ? REFUSE(PARTIAL_HOP) : REFUSE(BAD_SF_STACK);
    /* The remaining hop count has 8 bits. */
    if (urgent && count > 255)
        return REFUSE(TOO_MANY_HOPS);
    if (!urgent && (count < 1 || count > (type == TYPE_SF_COMPACT ? 1 : 2)))
        return REFUSE(BAD_SF_STACK);
    flags = (header[0] & 4 ? REPORT_HOP_LIMIT : 0) | (header[0] & 2 ? REPORT_MTU : 0);
    found_int(s, 20, flags, at + INT_LEN_2, count);
    s->found.sf = urgent ? SF_URGENT : count == 2 ? SF_WITH_REPORTER : SF_RECORD;
    return 0;
}

/* Header and stack of INT 2.x from exactly the bytes that the length field covers; `type` is of enum type_2. */
int read_2(struct scratch *s, const struct profile *p, u32 at, u32 end, u32 type)
{
    const u8 *header;
    u32 hop_ml, bitmap, ds_id, ds_instruction, domain, data, known, count, record, left, flags;
    int result;

    if (!s || !p)
        return REFUSE(INT_TRUNCATED);
    if (end < at + INT_LEN_2)
        return REFUSE(BAD_INT_LENGTH);
    if (end > s->walk.end)
        return REFUSE(INT_TRUNCATED);
    header = bytes(s, at);
    if (type >= TYPE_SF || (type == TYPE_MD && be16(header) & SF_FLAG))
        return read_sf(s, at, end, type);
    hop_ml = header[2] & 0x1f;
    bitmap = be16(header + 4);
    ds_id = be16(header + 6);
    ds_instruction = be16(header + 8);
    domain = ds_id && ds_instruction;
    data = end - at - INT_LEN_2;
    if (type == TYPE_MX) {
        if (!ds_instruction && data)
            return REFUSE(BAD_INT_LENGTH);
        found_int(s, 20, 0, at + INT_LEN_2, 0);
        return 0;
    }
    if (!hop_ml && data)
        return REFUSE(BAD_HOP_ML);
    result = layout_2(&s->int_layout, bitmap, hop_ml, domain);
    if (result < 0)
        return result;
    known = domain ? source_only_words(p, ds_id) * 4 : 0;
    if (known > data)
        return REFUSE(BAD_INT_LENGTH);
    record = hop_ml * 4;
    count = record ? (data - known) / record : 0;
    left = data - count * record;
    /* Words after the last record are the source's own, if the domain allows any; a known domain has a limit. */
    if (left != known && (known || !domain))
        return REFUSE(PARTIAL_HOP);
    flags = REPORT_MD | (header[0] & 4 ? REPORT_HOP_LIMIT : 0) | (header[0] & 2 ? REPORT_MTU : 0);
    found_int(s, 20, flags, at + INT_LEN_2, count);
    return 0;
}

/* The flags in the first byte of INT 0.5 and 1.0. */
static inline_always u32 flags_1(u32 first)
{
    return REPORT_MD | (first & 1 ? REPORT_HOP_LIMIT : 0) | (first & 2 ? REPORT_REPLICA : 0);
}

/* INT 1.0, likewise. */
int read_10(struct scratch *s, const struct profile *p, u32 at, u32 end)
{
    const u8 *header;
    u32 hop_ml, bitmap, data, record, count, flags;
    int result;

    if (!s || !p)
        return REFUSE(INT_TRUNCATED);
    if (end > s->walk.end)
        return REFUSE(INT_TRUNCATED);
    if (end < at + INT_LEN_1)
        return REFUSE(BAD_INT_LENGTH);
    header = bytes(s, at);
    hop_ml = header[2] & 0x1f;
    bitmap = be16(header + 4);
    data = end - at - INT_LEN_1;
    if (!hop_ml && data)
        return REFUSE(BAD_HOP_ML);
    hop_ml = words_10(bitmap, hop_ml, data / 4, p->dialect);
    result = layout_10(&s->int_layout, bitmap, hop_ml, p->dialect);
    if (result < 0)
        return result;
    record = hop_ml * 4;
    count = record ? data / record : 0;
    if (count * record != data)
        return REFUSE(PARTIAL_HOP);
    flags = flags_1(header[0]) | (header[1] & 0x80 ? REPORT_MTU : 0);
    found_int(s, 10, flags, at + INT_LEN_1, count);
    return 0;
}

/* Words that may follow the stack of INT 0.5, and whether they must. */
enum tail {
    TAIL_NONE,    /* the carrier is VXLAN-GPE or Geneve */
    TAIL_WHOLE,   /* the 4-byte tail header */
    TAIL_PRIVATE, /* host-int: sequence number and tail; a sink may have removed either or both */
};

/* INT 0.5. `end` is where the length field ends, tail included. Returns how many bytes follow the stack. */
int read_05(struct scratch *s, u32 at, u32 end, u32 tail)
{
    const u8 *header;
    u32 bitmap, instructions, total, stack, rest, fits;

    if (!s)
        return REFUSE(INT_TRUNCATED);
    if (end < at + INT_LEN_1)
        return REFUSE(BAD_INT_LENGTH);
    header = bytes(s, at);
    bitmap = be16(header + 4);
    instructions = header[1] & 0x1f;
    total = header[3];
    if (instructions != ones(bitmap) || (!instructions && total))
        return REFUSE(BAD_INSTRUCTION_COUNT);
    if (total > header[2])
        return REFUSE(TOO_MANY_HOPS);
    stack = instructions * 4 * total;
    if (stack > end - at - INT_LEN_1)
        return REFUSE(BAD_INT_LENGTH);
    rest = end - at - INT_LEN_1 - stack;
    fits = tail == TAIL_NONE ? rest == 0 : tail == TAIL_WHOLE ? rest == 4 : rest <= 8;
    if (!fits)
        return REFUSE(BAD_INT_LENGTH);
    layout_05(&s->int_layout, bitmap);
    found_int(s, 5, flags_1(header[0]), at + INT_LEN_1, total);
    return rest;
}

/* INT 0.5 after L4, with its tail, which has the original port and protocol. */
static inline_always int int_05(struct scratch *s, u32 at, u32 end, u32 tail, u32 private)
{
    u32 available = s->walk.end, upto = end, after, rest;
    const u8 *behind;
    int result;

    if (tail == TAIL_PRIVATE) {
        /* In reports host-int has removed the tail, though the length may still count it. */
        upto = end < available ? end : available;
    } else if (end > available) {
        return REFUSE(INT_TRUNCATED);
    }
    result = read_05(s, at, upto, tail);
    if (result < 0)
        return result == REFUSE(BAD_INT_LENGTH) && end > available ? REFUSE(INT_TRUNCATED) : result;
    rest = result;
    after = upto - rest;
    if (private && rest >= 4)
        after += 4;
    if (tail == TAIL_WHOLE) {
        behind = bytes(s, after);
        s->walk.original_port = be16(behind + 1) ? be16(behind + 1) : ABSENT;
        s->walk.original_proto = behind[0] ? behind[0] : ABSENT;
        after += 4;
    }
    /* In a report of host-int the bytes after the stack belong to the packet again. */
    s->walk.after = after;
    return 0;
}

/* The shim of 2.x after L4: the original field must fit the mark (ruling m). */
static inline_always int shim_2(struct scratch *s, u32 at, u32 mark)
{
    const u8 *shim = bytes(s, at);
    u32 npt;

    if (at + SHIM_LEN > s->walk.end)
        return REFUSE(INT_TRUNCATED);
    npt = shim[0] >> 2 & 3;
    if (mark == MARK_PORT) {
        if (npt == 1)
            s->walk.original_port = be16(shim + 2);
        else if (npt == 2)
            s->walk.original_proto = shim[3];
        else
            return REFUSE(BAD_NEXT_PROTOCOL_TYPE);
    } else if (npt != 0) {
        return REFUSE(BAD_NEXT_PROTOCOL_TYPE);
    }
    s->walk.after = at + SHIM_LEN + shim[1] * 4;
    return 0;
}

/* The shim of 0.5 and 1.0 after L4, and INT after it. */
static inline_always int shim_1(struct scratch *s, const struct profile *p, u32 at, u32 detected)
{
    const u8 *shim = bytes(s, at);
    const u8 *header = shim + SHIM_LEN;
    u32 private = detected == FOUND_PRIVATE, length = shim[2], end;

    if (at + SHIM_LEN > s->walk.end)
        return REFUSE(INT_TRUNCATED);
    /* INTCollector's generator omits the length of INT 0.5; the counts of the header imply it. */
    if (!length && detected == FOUND_05 && p->dialect == INTCOLLECTOR_GEN && at + SHIM_LEN + INT_LEN_1 <= s->walk.end)
        length = (SHIM_LEN + INT_LEN_1 + TAIL_LEN) / 4 + (header[1] & 0x1f) * header[3];
    if (length < 3)
        return REFUSE(BAD_INT_LENGTH);
    end = at + length * 4;
    s->walk.after = end;
    if (detected == FOUND_10)
        return read_10(s, p, at + SHIM_LEN, end);
    return int_05(s, at + SHIM_LEN, end, private || p->dialect == HOSTINT ? TAIL_PRIVATE : TAIL_WHOLE, private);
}

/* Ordinary traffic may begin with the type of a shim. The reserved bits and the length then show that there is none, so that the
 * version behind it is not one of INT.
 */
static inline_always u32 looks_like_shim(const u8 *shim)
{
    u32 dscp = !(shim[3] & 3);

    if (shim[0] == 1)
        return !shim[1] && shim[2] >= 3 && dscp;
    return !(shim[0] & 3) && shim[1] >= 3 && (shim[0] & 0x0c || (!shim[2] && dscp));
}

/* The shim after L4 at s->walk.shim, and INT after it. Stores in s->walk the end of INT and the original field. */
int l4_shim(struct scratch *s, const struct profile *p)
{
    u32 at, mark, hostint;
    const u8 *shim;
    int found, result;

    if (!s || !p)
        return REFUSE(INT_TRUNCATED);
    at = s->walk.shim;
    mark = s->walk.mark;
    hostint = p->dialect == HOSTINT;
    s->walk.original_port = s->walk.original_proto = ABSENT;
    found = detect_shim(s, at, hostint, 1);
    if (found == REFUSE(BAD_INT_VERSION) && !looks_like_shim(bytes(s, at)))
        return REFUSE(BAD_SHIM);
    if (found < 0)
        return found;
    s->walk.destination |= found == FOR_DESTINATION_1 || found == FOR_DESTINATION_2;
    if (found >= FOUND_MD && found <= FOUND_SF) {
        result = shim_2(s, at, mark);
        if (result >= 0)
            result = read_2(s, p, at + SHIM_LEN, s->walk.after, found - FOUND_MD);
    } else if (found == FOR_DESTINATION_2) {
        return shim_2(s, at, mark);
    } else if (found == FOR_DESTINATION_1) {
        shim = bytes(s, at);
        if (at + SHIM_LEN > s->walk.end)
            return REFUSE(INT_TRUNCATED);
        s->walk.after = at + (shim[2] ? shim[2] : 1) * 4;
        return 0;
    } else if (found != FOUND_PRIVATE && mark == MARK_PORT && !hostint) {
        return REFUSE(BAD_SHIM);
    } else {
        result = shim_1(s, p, at, found);
    }
    if (result >= 0)
        s->walk.seek = 0;
    return result;
}

/* INT 1.0 or 0.5 without an L4 tail: after VXLAN-GPE or in Geneve. */
static inline_always int without_shim(struct scratch *s, const struct profile *p, u32 at, u32 end, u32 version)
{
    int result;

    if (end < at + INT_LEN_1)
        return REFUSE(BAD_INT_LENGTH);
    if (version == 10)
        return read_10(s, p, at, end);
    if (end > s->walk.end)
        return REFUSE(INT_TRUNCATED);
    result = read_05(s, at, end, TAIL_NONE);
    return result < 0 ? result : 0;
}

/* The shim after GRE at `at`. Stores the end of INT and the protocol after it; 1: the packet ends before the shim. */
int gre_shim(struct scratch *s, const struct profile *p, u32 at)
{
    const u8 *shim;
    int found, result;

    if (!s || !p)
        return REFUSE(INT_TRUNCATED);
    if (at >= s->walk.end)
        return 1;
    found = detect_shim(s, at, 0, 0);
    if (found < 0)
        return found;
    if (at + SHIM_LEN > s->walk.end)
        return REFUSE(INT_TRUNCATED);
    shim = bytes(s, at);
    s->walk.after = at + SHIM_LEN + shim[1] * 4;
    s->walk.ethertype = be16(shim + 2);
    s->walk.destination |= found == FOR_DESTINATION_2;
    if (!s->walk.seek || found == FOR_DESTINATION_2)
        return 0;
    if (found != FOUND_MD && found != FOUND_MX)
        return REFUSE(BAD_INT_VERSION);
    result = read_2(s, p, at + SHIM_LEN, s->walk.after, found == FOUND_MX);
    if (result >= 0)
        s->walk.seek = 0;
    return result;
}

/* Next protocols of VXLAN-GPE that are INT. */
enum gpe_next { GPE_INT_05 = 0x05, GPE_INT_10 = 0x08, GPE_INT_20 = 0x80, GPE_INT_21 = 0x82 };

static inline_always u32 is_gpe_int(u32 next)
{
    return next == GPE_INT_05 || next == GPE_INT_10 || next == GPE_INT_20 || next == GPE_INT_21;
}

/* The shim after VXLAN-GPE, whose next protocol was `code`. Stores where INT ends, and returns the next protocol; 256: the packet
 * ends before the shim.
 */
int gpe_shim(struct scratch *s, const struct profile *p, u32 at, u32 code)
{
    const u8 *shim;
    u32 version, next;
    int found, result;

    if (!s || !p)
        return REFUSE(INT_TRUNCATED);
    if (at >= s->walk.end)
        return 256;
    found = detect_shim(s, at, 0, 0);
    if (found < 0)
        return found;
    if (at + SHIM_LEN > s->walk.end)
        return REFUSE(INT_TRUNCATED);
    shim = bytes(s, at);
    next = shim[3];
    version = code == GPE_INT_05 ? 5 : code == GPE_INT_10 ? 10 : 20;
    if (version == 20)
        s->walk.after = at + SHIM_LEN + shim[1] * 4;
    else
        s->walk.after = at + (shim[2] ? shim[2] : 1) * 4;
    s->walk.destination |= found == FOR_DESTINATION_1 || found == FOR_DESTINATION_2;
    /* A second INT header is skipped, like one that is not searched for. */
    if (!s->walk.seek || found == FOR_DESTINATION_1 || found == FOR_DESTINATION_2)
        return next;
    if ((found == FOUND_MX ? FOUND_MD : found) != (int)version)
        return REFUSE(BAD_INT_VERSION);
    if (version == 20)
        result = read_2(s, p, at + SHIM_LEN, s->walk.after, found == FOUND_MX);
    else
        result = without_shim(s, p, at + SHIM_LEN, s->walk.after, version);
    if (result < 0)
        return result;
    s->walk.seek = 0;
    return next;
}

/* An INT option of an IPv6 hop-by-hop header, to `end`, which lies inside the header; its data may be cut.
 * Inlined into its only caller: as a function of its own it was the ninth frame of a call chain, and the kernel allows eight.
 */
static inline_always int int_option(struct scratch *s, const struct profile *p, u32 at, u32 end)
{
    const u8 *shim;
    u32 type;
    int result;

    if (end > s->walk.end)
        return REFUSE(INT_TRUNCATED);
    at += 2;
    shim = bytes(s, at);
    if (end < at + SHIM_LEN || end != at + SHIM_LEN + shim[1] * 4)
        return REFUSE(BAD_OPTION);
    if (shim[0] >> 4 == 2) {
        s->walk.destination = 1;
        return 0;
    }
    switch (shim[0] >> 4) {
    case 1:
        type = TYPE_MD;
        break;
    case 3:
        type = TYPE_MX;
        break;
    case 4:
        type = TYPE_SF;
        break;
    default:
        return REFUSE(BAD_SHIM);
    }
    if (shim[0] & 0x0c)
        return REFUSE(BAD_NEXT_PROTOCOL_TYPE);
    if (end < at + SHIM_LEN + INT_LEN_2)
        return REFUSE(BAD_INT_LENGTH);
    if (shim[SHIM_LEN] >> 4 != 2)
        return REFUSE(BAD_INT_VERSION);
    result = read_2(s, p, at + SHIM_LEN, end, type);
    if (result >= 0)
        s->walk.seek = 0;
    return result;
}

enum geneve_class { CLASS_INT_1 = 0x00ab, CLASS_INT_2 = 0x0103 };

/* One Geneve option, from its header, which is whole, to `end`. */
int geneve_option(struct scratch *s, const struct profile *p, u32 at, u32 end)
{
    const u8 *option, *header;
    u32 class, kind, version, available;
    int result;

    if (!s || !p)
        return REFUSE(INT_TRUNCATED);
    option = bytes(s, at);
    class = be16(option);
    kind = option[2];
    if (class != CLASS_INT_1 && class != CLASS_INT_2)
        return 0;
    if (kind == 2) {
        s->walk.destination = 1;
        return 0;
    }
    at += 4;
    if (end < at + INT_LEN_1)
        return REFUSE(BAD_INT_LENGTH);
    if (at >= s->walk.end)
        return REFUSE(INT_TRUNCATED);
    header = option + 4;
    available = s->walk.end - at;
    version = header[0] >> 4;
    if ((kind == 1 || kind == 3) && version == 2)
        result = read_2(s, p, at, end, kind == 3);
    else if (kind == 1 && version < 2 && class == CLASS_INT_1)
        result = without_shim(s, p, at, end, version == 1 || is_10_under_version_0(header, available) ? 10 : 5);
    else
        return kind == 1 || kind == 3 ? REFUSE(BAD_INT_VERSION) : REFUSE(BAD_SHIM);
    if (result >= 0)
        s->walk.seek = 0;
    return result;
}

#endif
