/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The decoder alone, for tests: it stores its result in a map. Never attached to an interface. */
#include "parse_frame.h"
#include "parse_report.h"

/* Reports and refusals of one datagram that are stored. */
#define STORED 64

struct parsed {
    int result; /* REPORT, or a refusal */
    u32 pad;
    struct report report;
};

struct outcome {
    u32 frame;  /* enum frame_outcome */
    u32 reason; /* why the frame is not a telemetry datagram */
    u32 dst_port;
    u32 count; /* of results, stored or not */
    u8 source[16];
    struct peeked peeked;
    struct parsed parsed[STORED];
};

struct {
    MAP_UINT(type, MAP_PERCPU_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct scratch);
} scratch SEC(".maps");

struct {
    MAP_UINT(type, MAP_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct profile);
} profiles SEC(".maps");

struct {
    MAP_UINT(type, MAP_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct ports);
} ports SEC(".maps");

struct {
    MAP_UINT(type, MAP_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct outcome);
} outcomes SEC(".maps");

/* Upper bound: a report has at least four bytes. */
#define MAX_REPORTS (FRAME_BYTES / 4)

struct decode_ctx {
    struct scratch *s;
    struct profile *p;
    struct outcome *out;
};

static long decode_next(u32 i, struct decode_ctx *ctx)
{
    int result = next_report(ctx->s, ctx->p);
    u32 at = i & (STORED - 1);

    if (result == NO_REPORT)
        return 1;
    ctx->out->count = i + 1;
    if (i >= STORED)
        return 0;
    ctx->out->parsed[at].result = result;
    if (result == REPORT)
        ctx->out->parsed[at].report = ctx->s->report;
    return 0;
}

SEC("xdp.frags") int hopwise_decode(struct xdp_md *frame)
{
    u32 zero = 0;
    struct scratch *s = map_lookup(&scratch, &zero);
    struct profile *p = map_lookup(&profiles, &zero);
    struct ports *listening = map_lookup(&ports, &zero);
    struct outcome *out = map_lookup(&outcomes, &zero);
    struct decode_ctx ctx = { .s = s, .p = p, .out = out };

    if (!s || !p || !listening || !out)
        return XDP_ABORTED;
    out->count = 0;
    out->peeked.version = 0;
    out->frame = parse_frame(frame, s, listening);
    out->reason = s->reason;
    out->dst_port = s->dst_port;
    __builtin_memcpy(out->source, s->source, sizeof(out->source));
    if (out->frame != FRAME_TELEMETRY)
        return XDP_PASS;
    start_reports(s);
    bpf_loop(MAX_REPORTS, decode_next, &ctx, 0);
    out->peeked = s->peeked;
    if (!s->settled)
        out->peeked.version = 0;
    return XDP_DROP;
}

LICENSE;
