// SPDX-License-Identifier: Apache-2.0 OR MIT
// Filter: selects the packets whose path or record is reported, by the algorithms of the crate `detect`, in the units of this program. Its
// input is what the report has: the records of the stack, and this node's.
//
// The control plane installs: flows with their algorithm, threshold and number. A number has its own registers and counters; entries with
// the same number share them, so they should have the same algorithm and metric. A threshold may change at any time.
//
// A rule is in conjunctive normal form, as in `detect::table`: up to 16 comparisons, each an entry of one of the tables `filter_term_0` to
// `filter_term_15`, which has the clauses that it makes true, of 16; and for each rule an entry of `filter_rules` with the clauses that must all
// hold. All of these have the number of the filter as key.

#ifndef FILTER_P4
#define FILTER_P4

const bit<3> METRIC_FLOW_LATENCY = 1;
const bit<3> METRIC_HOP_LATENCY = 2;
const bit<3> METRIC_QUEUE_OCCUPANCY = 3;

/// A node or a value that is missing.
const bit<32> NO_NODE = 0xffffffff;
const bit<33> ABSENT = 0x100000000;
/// The longest plausible hop latency, nanoseconds.
const bit<33> MAX_LATENCY = 1000000000;

/// Decisions, by their number in the counter; the greater one of two applies. The sixth counts registers that another key had.
const bit<3> DECISION_SUPPRESSED = 0;
const bit<3> DECISION_ENDED = 1;
const bit<3> DECISION_KEEP_ALIVE = 2;
const bit<3> DECISION_FIRST = 3;
const bit<3> DECISION_MISSING_VALUE = 4;
const bit<3> DECISION_EVENT = 5;
const bit<3> DECISION_COLLISION = 6;

// Comparisons of rules: the codes of `detect::rule::term`.
const bit<3> SUBJECT_FLOW_LATENCY = 0;
const bit<3> SUBJECT_HOPS = 1;
const bit<3> SUBJECT_LOOP = 2;
const bit<3> SUBJECT_QUEUE_OCCUPANCY = 4;
const bit<4> AGGREGATE_MAX = 1;
const bit<4> AGGREGATE_MIN = 2;
const bit<4> AGGREGATE_AVG = 4;
const bit<4> AGGREGATE_COUNT = 5;
const bit<4> AGGREGATE_COUNT_WHERE = 6;
const bit<4> AGGREGATE_ANY = 7;
const bit<4> AGGREGATE_ALL = 8;
// What a comparison found, and as a set which results make it true.
const bit<3> IS_LESS = 4;
const bit<3> IS_EQUAL = 2;
const bit<3> IS_GREATER = 1;
/// Rules of all filters.
const int FILTER_RULES = 256;

control Filter(in headers_t hdr, inout local_t local) {
    action set_filter(bit<3> algorithm, bit<8> filter, bit<3> metric, bit<48> threshold) {
        local.filter.algorithm = algorithm;
        local.filter.number = filter;
        local.filter.metric = metric;
        local.filter.threshold = threshold;
    }

    /// Every packet.
    @name("filter_noop") @id(0x01000020)
    action filter_noop(@id(1) bit<8> filter) {
        set_filter(FILTER_NOOP, filter, 0, 0);
    }

    /// A value of a hop differs by more than `threshold` from the last one reported for its node.
    @name("filter_per_hop") @id(0x01000021)
    action filter_per_hop(@id(1) bit<8> filter, @id(2) bit<3> metric, @id(3) bit<48> threshold) {
        set_filter(FILTER_PER_HOP, filter, metric, threshold);
    }

    /// The same for its node and flow.
    @name("filter_per_hop_of_flow") @id(0x01000022)
    action filter_per_hop_of_flow(@id(1) bit<8> filter, @id(2) bit<3> metric, @id(3) bit<48> threshold) {
        set_filter(FILTER_PER_HOP_OF_FLOW, filter, metric, threshold);
    }

    /// The sum over the hops differs from the last one reported for the flow.
    @name("filter_per_flow") @id(0x01000023)
    action filter_per_flow(@id(1) bit<8> filter, @id(2) bit<3> metric, @id(3) bit<48> threshold) {
        set_filter(FILTER_PER_FLOW, filter, metric, threshold);
    }

    /// The moving average of that sum does. `alpha`: weight of a new value, 256ths, at least 1.
    @name("filter_moving_average") @id(0x01000024)
    action filter_moving_average(@id(1) bit<8> filter, @id(2) bit<3> metric, @id(3) bit<48> threshold, @id(4) bit<8> alpha) {
        set_filter(FILTER_MOVING_AVERAGE, filter, metric, threshold);
        local.filter.alpha = alpha;
    }

    /// The path, or a bucket of a hop's latency or queue, has changed: a bucket is 2 to the power of `latency_bits` nanoseconds, and likewise of
    /// the queue. A flow is reported again after `keep_alive` nanoseconds.
    @name("filter_change") @id(0x01000025)
    action filter_change(@id(1) bit<8> filter, @id(2) bit<8> latency_bits, @id(3) bit<8> queue_bits, @id(4) bit<64> keep_alive) {
        set_filter(FILTER_CHANGE, filter, 0, 0);
        local.filter.latency_bits = latency_bits;
        local.filter.queue_bits = queue_bits;
        local.filter.keep_alive = keep_alive;
    }

    /// A rule is true, or was true for the flow's packet before.
    @name("filter_rule") @id(0x01000026)
    action filter_rule(@id(1) bit<8> filter) {
        set_filter(FILTER_RULE, filter, METRIC_FLOW_LATENCY, 0);
    }

    @name("filter_v4") @id(0x02000020)
    table filter_v4 {
        key = {
            hdr.ipv4.src : ternary @name("ipv4_src");
            hdr.ipv4.dst : ternary @name("ipv4_dst");
            local.proto : ternary @name("ip_proto");
            local.src_port : range @name("l4_sport");
            local.dst_port : range @name("l4_dport");
        }
        actions = {
            filter_noop; filter_per_hop; filter_per_hop_of_flow; filter_per_flow; filter_moving_average; filter_change; filter_rule;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = FILTER_ENTRIES;
    }

    @name("filter_v6") @id(0x02000021)
    table filter_v6 {
        key = {
            hdr.ipv6.src : ternary @name("ipv6_src");
            hdr.ipv6.dst : ternary @name("ipv6_dst");
            local.proto : ternary @name("ip_proto");
            local.src_port : range @name("l4_sport");
            local.dst_port : range @name("l4_dport");
        }
        actions = {
            filter_noop; filter_per_hop; filter_per_hop_of_flow; filter_per_flow; filter_moving_average; filter_change; filter_rule;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = FILTER_ENTRIES;
    }

    apply {
        // A stack on which a record did not fit is not the whole path, and more records than the program reads are not compared.
        bit<1> is_whole = 1;
        if (local.flow_report == FLOW_PATH) {
            if (local.stack_words != 0) { is_whole = 0; }
            if (hdr.seen_md_2.isValid() && (hdr.seen_md_2.hops_exceeded == 1 || hdr.seen_md_2.mtu_exceeded == 1)) { is_whole = 0; }
            if (hdr.seen_md_10.isValid() && (hdr.seen_md_10.hops_exceeded == 1 || hdr.seen_md_10.mtu_exceeded == 1)) { is_whole = 0; }
        }
        if (is_whole == 1) {
            if (hdr.ipv4.isValid()) {
                filter_v4.apply();
            } else {
                filter_v6.apply();
            }
        }
    }
}

/// The values of a record: shifts the words before a value away.
#define READ(N) \
    if (hdr.seen_hop_##N.isValid()) { \
        is_##N = 1; \
        word = local.firsts.hop_##N; \
        if (local.bitmap[15:15] == 1) { node_##N = word[127:96]; word = word << 32; } \
        if (local.bitmap[14:14] == 1) { word = word << 32; } \
        if (local.bitmap[13:13] == 1) { \
            if (word[127:96] != 0xffffffff) { latency_##N = 1w0 ++ word[127:96]; } \
            word = word << 32; \
        } \
        if (local.bitmap[12:12] == 1 && word[127:96] != 0xffffffff) { queue_##N = 9w0 ++ word[119:96]; } \
    }

/// A latency that the collector would not use is not compared.
#define EXAMINE(N) \
    if (uses_latency == 1 && latency_##N != ABSENT && latency_##N > MAX_LATENCY) { \
        latency_##N = ABSENT; \
        is_implausible = 1; \
    } \
    value_##N = local.filter.metric == METRIC_QUEUE_OCCUPANCY ? queue_##N : latency_##N;

/// The register of a node, or of a node of the flow. The conditions repeat, so that the compiler does not copy one expression into the next.
#define KEY(N) \
    if (is_##N == 1) { x = seed ^ (node_##N[7:0] ++ node_##N[15:8] ++ node_##N[23:16] ++ node_##N[31:24]); } \
    if (is_##N == 1) { step(); } \
    if (is_##N == 1) { index_##N = base + (bit<32>)((~crc)[11:0]); tag_##N = 1w1 ++ (of_flow == 1 ? ~crc : node_##N); }

#define COMPARE(N) \
    if (is_##N == 1) { \
        tags.read(tag, index_##N); \
        if (tag == tag_##N) { is_known = 1; } \
        if (value_##N != ABSENT && node_##N == NO_NODE) { \
            is_anonymous = 1; \
        } else if (value_##N != ABSENT) { \
            has_value = 1; \
            reported.read(last, index_##N); \
            difference = (bit<64>)value_##N; \
            difference = last > difference ? last - difference : difference - last; \
            if (tag != tag_##N) { \
                if (decision < DECISION_FIRST) { decision = DECISION_FIRST; } \
            } else if (difference > (bit<64>)local.filter.threshold) { \
                decision = DECISION_EVENT; \
            } \
        } \
    }

#define STORE(N) \
    if (is_##N == 1 && value_##N != ABSENT && node_##N != NO_NODE) { \
        tags.read(tag, index_##N); \
        if (tag != tag_##N && tag != 0) { decisions.count(counts + (bit<32>)DECISION_COLLISION); } \
        tags.write(index_##N, tag_##N); \
        reported.write(index_##N, (bit<64>)value_##N); \
    }

#define ADD(N) \
    if (is_##N == 1) { \
        if (value_##N != ABSENT) { sum = sum + (bit<64>)value_##N; has_value = 1; } else { lacks_value = 1; } \
    }

#define BUCKET(N) \
    latency_##N = latency_##N == ABSENT ? latency_##N : latency_##N >> local.filter.latency_bits; \
    queue_##N = queue_##N == ABSENT ? queue_##N : queue_##N >> local.filter.queue_bits;

/// A node of the path is there again.
#define LOOP(N, OTHERS) \
    if (node_##N != NO_NODE && (OTHERS)) { looped = 1; }

#define COUNT_HOPS(N) \
    if (is_##N == 1) { hops = hops + 1; }

/// A hop in a comparison: how many there are with the value, and for how many it is less or greater, 4 bits each.
#define TERM_HOP(N) \
    if (is_##N == 1) { \
        seen = term_subject == SUBJECT_QUEUE_OCCUPANCY ? queue_##N : latency_##N; \
        if (seen != ABSENT && (term_node == NO_NODE || term_node == node_##N)) { \
            term_sum = term_sum + (bit<64>)seen; \
            tally = tally + ((bit<64>)seen < term_value ? 12w0x101 : ((bit<64>)seen > term_value ? 12w0x011 : 12w0x001)); \
        } \
    }

/// Whether a comparison is true: both sides are reduced to numbers, which are less, equal or greater.
#define TERM(TABLE) \
    if (TABLE.apply().hit) { \
        tally = 0; \
        term_sum = 0; \
        EACH(TERM_HOP) \
        is_term_known = tally[3:0] != 0 ? 1w1 : 1w0; \
        equal = tally[3:0] - tally[7:4] - tally[11:8]; \
        hits = (term_if[2:2] == 1 ? tally[11:8] : 4w0) + (term_if[1:1] == 1 ? equal : 4w0) + (term_if[0:0] == 1 ? tally[7:4] : 4w0); \
        left = 8w0 ++ term_sum; \
        right = 8w0 ++ term_value; \
        results = term_if; \
        if (term_subject == SUBJECT_FLOW_LATENCY) { \
            is_term_known = has_value; \
            left = 8w0 ++ sum; \
        } else if (term_subject == SUBJECT_HOPS) { \
            is_term_known = 1; \
            left = (bit<72>)hops; \
        } else if (term_subject == SUBJECT_LOOP) { \
            is_term_known = 1; \
            left = (bit<72>)looped; \
        } else if (term_aggregate == AGGREGATE_MAX) { \
            left = tally[7:4] != 0 ? 72w2 : (equal != 0 ? 72w1 : 72w0); \
            right = 1; \
        } else if (term_aggregate == AGGREGATE_MIN) { \
            left = tally[11:8] != 0 ? 72w0 : (equal != 0 ? 72w1 : 72w2); \
            right = 1; \
        } else if (term_aggregate == AGGREGATE_AVG) { \
            right = right * (bit<72>)tally[3:0]; \
        } else if (term_aggregate == AGGREGATE_COUNT) { \
            is_term_known = 1; \
            left = (bit<72>)tally[3:0]; \
        } else if (term_aggregate == AGGREGATE_COUNT_WHERE) { \
            left = (bit<72>)hits; \
            right = (bit<72>)term_hops; \
            results = term_hops_if; \
        } else if (term_aggregate == AGGREGATE_ANY) { \
            left = (bit<72>)hits; \
            right = 0; \
            results = IS_GREATER; \
        } else if (term_aggregate == AGGREGATE_ALL) { \
            left = (bit<72>)hits; \
            right = (bit<72>)tally[3:0]; \
            results = IS_EQUAL; \
        } \
        if (is_term_known == 1 && (results & (left < right ? IS_LESS : (left == right ? IS_EQUAL : IS_GREATER))) != 0) { \
            holding = holding | term_clauses; \
        } \
    }

#define TERM_TABLE \
        key = { local.filter.number : exact @name("filter"); } \
        actions = { filter_term; @defaultonly NoAction; } \
        const default_action = NoAction(); \
        size = FILTERS;

#define EACH(M) M(7) M(6) M(5) M(4) M(3) M(2) M(1) M(0) M(own)
#define BEFORE(M) M(7) M(6) M(5) M(4) M(3) M(2) M(1) M(0)

control Decide(inout headers_t hdr, inout local_t local) {
    /// The key that a register has; bit 32: it has one.
    @name("filter_tags")
    register<bit<33>>(FILTERS * FILTER_REGISTERS) tags;
    /// What was reported last: a value, an average or a digest; of a rule, whether it was true.
    @name("filter_reported")
    register<bit<64>>(FILTERS * FILTER_REGISTERS) reported;
    /// The average, or the time of the last report.
    @name("filter_extra")
    register<bit<64>>(FILTERS * FILTER_REGISTERS) extra;
    /// By filter, eight each: packets by decision, and collisions.
    @name("filter_decisions")
    counter(FILTERS * 8, CounterType.packets) decisions;

    bit<32> crc = 0;
    bit<32> x = 0;

    bit<3> term_subject = 0;
    bit<4> term_aggregate = 0;
    bit<32> term_node = NO_NODE;
    bit<3> term_if = 0;
    bit<64> term_value = 0;
    bit<3> term_hops_if = 0;
    bit<32> term_hops = 0;
    bit<16> term_clauses = 0;
    /// The clauses of the filter that hold.
    bit<16> holding = 0;
    bit<1> fires = 0;

    /// A comparison. `subject`, `aggregate`: their codes. `node`: only hops of this node; all-ones: every hop. `holds_if`: less (4), equal (2) and
    /// greater (1) than `value`, of those for which it is true. `hops_if`, `hops`: likewise, for how many hops, where those are counted. `clauses`:
    /// those that it makes true, a bit each.
    @name("filter_term") @id(0x01000027)
    action filter_term(@id(1) bit<3> subject, @id(2) bit<4> aggregate, @id(3) bit<32> node, @id(4) bit<3> holds_if, @id(5) bit<64> value,
            @id(6) bit<3> hops_if, @id(7) bit<32> hops, @id(8) bit<16> clauses) {
        term_subject = subject;
        term_aggregate = aggregate;
        term_node = node;
        term_if = holds_if;
        term_value = value;
        term_hops_if = hops_if;
        term_hops = hops;
        term_clauses = clauses;
    }

    @name("filter_term_0") @id(0x02000060)
    table filter_term_0 {
        TERM_TABLE
    }
    @name("filter_term_1") @id(0x02000061)
    table filter_term_1 {
        TERM_TABLE
    }
    @name("filter_term_2") @id(0x02000062)
    table filter_term_2 {
        TERM_TABLE
    }
    @name("filter_term_3") @id(0x02000063)
    table filter_term_3 {
        TERM_TABLE
    }
    @name("filter_term_4") @id(0x02000064)
    table filter_term_4 {
        TERM_TABLE
    }
    @name("filter_term_5") @id(0x02000065)
    table filter_term_5 {
        TERM_TABLE
    }
    @name("filter_term_6") @id(0x02000066)
    table filter_term_6 {
        TERM_TABLE
    }
    @name("filter_term_7") @id(0x02000067)
    table filter_term_7 {
        TERM_TABLE
    }
    @name("filter_term_8") @id(0x02000068)
    table filter_term_8 {
        TERM_TABLE
    }
    @name("filter_term_9") @id(0x02000069)
    table filter_term_9 {
        TERM_TABLE
    }
    @name("filter_term_10") @id(0x0200006a)
    table filter_term_10 {
        TERM_TABLE
    }
    @name("filter_term_11") @id(0x0200006b)
    table filter_term_11 {
        TERM_TABLE
    }
    @name("filter_term_12") @id(0x0200006c)
    table filter_term_12 {
        TERM_TABLE
    }
    @name("filter_term_13") @id(0x0200006d)
    table filter_term_13 {
        TERM_TABLE
    }
    @name("filter_term_14") @id(0x0200006e)
    table filter_term_14 {
        TERM_TABLE
    }
    @name("filter_term_15") @id(0x0200006f)
    table filter_term_15 {
        TERM_TABLE
    }

    /// All clauses of a rule hold.
    @name("filter_fires") @id(0x01000028)
    action filter_fires() {
        fires = 1;
    }

    @name("filter_rules") @id(0x02000070)
    table filter_rules {
        key = {
            local.filter.number : exact @name("filter");
            holding : ternary @name("clauses");
        }
        actions = { filter_fires; @defaultonly NoAction; }
        const default_action = NoAction();
        size = FILTER_RULES;
    }

    action step() {
        crc = CRC_32C_WORD(x);
    }

    apply {
        bit<1> is_7 = 0;
        bit<32> node_7 = NO_NODE;
        bit<33> latency_7 = ABSENT;
        bit<33> queue_7 = ABSENT;
        bit<33> value_7 = ABSENT;
        bit<32> index_7 = 0;
        bit<33> tag_7 = 0;
        bit<1> is_6 = 0;
        bit<32> node_6 = NO_NODE;
        bit<33> latency_6 = ABSENT;
        bit<33> queue_6 = ABSENT;
        bit<33> value_6 = ABSENT;
        bit<32> index_6 = 0;
        bit<33> tag_6 = 0;
        bit<1> is_5 = 0;
        bit<32> node_5 = NO_NODE;
        bit<33> latency_5 = ABSENT;
        bit<33> queue_5 = ABSENT;
        bit<33> value_5 = ABSENT;
        bit<32> index_5 = 0;
        bit<33> tag_5 = 0;
        bit<1> is_4 = 0;
        bit<32> node_4 = NO_NODE;
        bit<33> latency_4 = ABSENT;
        bit<33> queue_4 = ABSENT;
        bit<33> value_4 = ABSENT;
        bit<32> index_4 = 0;
        bit<33> tag_4 = 0;
        bit<1> is_3 = 0;
        bit<32> node_3 = NO_NODE;
        bit<33> latency_3 = ABSENT;
        bit<33> queue_3 = ABSENT;
        bit<33> value_3 = ABSENT;
        bit<32> index_3 = 0;
        bit<33> tag_3 = 0;
        bit<1> is_2 = 0;
        bit<32> node_2 = NO_NODE;
        bit<33> latency_2 = ABSENT;
        bit<33> queue_2 = ABSENT;
        bit<33> value_2 = ABSENT;
        bit<32> index_2 = 0;
        bit<33> tag_2 = 0;
        bit<1> is_1 = 0;
        bit<32> node_1 = NO_NODE;
        bit<33> latency_1 = ABSENT;
        bit<33> queue_1 = ABSENT;
        bit<33> value_1 = ABSENT;
        bit<32> index_1 = 0;
        bit<33> tag_1 = 0;
        bit<1> is_0 = 0;
        bit<32> node_0 = NO_NODE;
        bit<33> latency_0 = ABSENT;
        bit<33> queue_0 = ABSENT;
        bit<33> value_0 = ABSENT;
        bit<32> index_0 = 0;
        bit<33> tag_0 = 0;
        bit<1> is_own = 0;
        bit<32> node_own = NO_NODE;
        bit<33> latency_own = ABSENT;
        bit<33> queue_own = ABSENT;
        bit<33> value_own = ABSENT;
        bit<32> index_own = 0;
        bit<33> tag_own = 0;
        bit<128> word = 0;
        bit<33> tag = 0;
        bit<64> last = 0;
        bit<64> difference = 0;
        bit<64> sum = 0;
        bit<1> is_known = 0;
        bit<1> is_anonymous = 0;
        bit<1> is_implausible = 0;
        bit<1> has_value = 0;
        bit<1> lacks_value = 0;
        bit<33> seen = 0;
        bit<8> hops = 0;
        bit<1> looped = 0;
        bit<12> tally = 0;
        bit<4> equal = 0;
        bit<4> hits = 0;
        bit<64> term_sum = 0;
        bit<1> is_term_known = 0;
        bit<72> left = 0;
        bit<72> right = 0;
        bit<3> results = 0;
        bit<3> decision = DECISION_SUPPRESSED;
        bit<32> base = (bit<32>)local.filter.number * FILTER_REGISTERS;
        bit<32> counts = (bit<32>)local.filter.number * 8;
        bit<1> of_flow = local.filter.algorithm == FILTER_PER_HOP_OF_FLOW ? 1w1 : 1w0;
        bit<32> seed = of_flow == 1 ? ~local.flow_id : 32w0xffffffff;
        bit<1> uses_latency = local.filter.algorithm == FILTER_CHANGE || (local.filter.algorithm != FILTER_NOOP
            && local.filter.metric != METRIC_QUEUE_OCCUPANCY) ? 1w1 : 1w0;

        if (local.flow_report == FLOW_PATH) { BEFORE(READ) }
        if (local.flow_report != FLOW_PATH || local.report_bits != 0) {
            is_own = 1;
            node_own = local.node;
            bit<64> latency = local.visit.egress_ts - local.visit.ingress_ts;
            if (local.report_bits[13:13] == 1) {
                latency_own = 1w0 ++ latency[31:0];
            } else if (local.report_bits[11:10] == 3) {
                // From its times, which have more bits.
                latency_own = 1w0 ++ (latency[63:32] == 0 ? latency[31:0] : 0xffffffff);
            }
            if (local.report_bits[12:12] == 1) { queue_own = (bit<33>)local.visit.queue_occupancy; }
        }
        EACH(EXAMINE)

        if (local.filter.algorithm == FILTER_NOOP) {
            decision = DECISION_EVENT;
        } else if (local.filter.algorithm == FILTER_PER_HOP || local.filter.algorithm == FILTER_PER_HOP_OF_FLOW) {
            // All are compared before one is stored.
            EACH(KEY)
            EACH(COMPARE)
            if (is_implausible == 0 || is_known == 0) {
                // A packet with an implausible latency of a known node is not reported for what is missing.
                if (has_value == 0 || (is_anonymous == 1 && decision < DECISION_MISSING_VALUE)) { decision = DECISION_MISSING_VALUE; }
            }
            if (decision != DECISION_SUPPRESSED) { EACH(STORE) }
        } else {
            bit<32> index = base + (bit<32>)local.flow_id[11:0];
            bit<1> is_new = 0;
            bit<64> stored = 0;
            tags.read(tag, index);
            reported.read(last, index);
            extra.read(stored, index);
            if (tag == 1w1 ++ local.flow_id) { is_known = 1; }
            EACH(ADD)
            if (local.filter.metric == METRIC_FLOW_LATENCY && lacks_value == 1) { has_value = 0; }
            if (local.filter.algorithm == FILTER_CHANGE) {
                has_value = 1;
                EACH(BUCKET)
                hash(sum, HashAlgorithm.crc32, 64w0, { 7w0, is_7, node_7, 7w0, latency_7, 7w0, queue_7, 7w0, is_6, node_6, 7w0, latency_6, 7w0, queue_6, 7w0, is_5, node_5, 7w0, latency_5, 7w0, queue_5, 7w0, is_4, node_4, 7w0, latency_4, 7w0, queue_4, 7w0, is_3, node_3, 7w0, latency_3, 7w0, queue_3, 7w0, is_2, node_2, 7w0, latency_2, 7w0, queue_2, 7w0, is_1, node_1, 7w0, latency_1, 7w0, queue_1, 7w0, is_0, node_0, 7w0, latency_0, 7w0, queue_0, 7w0, is_own, node_own, 7w0, latency_own, 7w0, queue_own },
                    64w0x100000000);
            }
            if (local.filter.algorithm == FILTER_RULE) {
                EACH(COUNT_HOPS)
                LOOP(6, node_6 == node_7)
                LOOP(5, node_5 == node_7 || node_5 == node_6)
                LOOP(4, node_4 == node_7 || node_4 == node_6 || node_4 == node_5)
                LOOP(3, node_3 == node_7 || node_3 == node_6 || node_3 == node_5 || node_3 == node_4)
                LOOP(2, node_2 == node_7 || node_2 == node_6 || node_2 == node_5 || node_2 == node_4 || node_2 == node_3)
                LOOP(1, node_1 == node_7 || node_1 == node_6 || node_1 == node_5 || node_1 == node_4 || node_1 == node_3 || node_1 == node_2)
                LOOP(0, node_0 == node_7 || node_0 == node_6 || node_0 == node_5 || node_0 == node_4 || node_0 == node_3 || node_0 == node_2 || node_0 == node_1)
                LOOP(own, node_own == node_7 || node_own == node_6 || node_own == node_5 || node_own == node_4 || node_own == node_3 || node_own == node_2 || node_own == node_1 || node_own == node_0)
                TERM(filter_term_0)
                TERM(filter_term_1)
                TERM(filter_term_2)
                TERM(filter_term_3)
                TERM(filter_term_4)
                TERM(filter_term_5)
                TERM(filter_term_6)
                TERM(filter_term_7)
                TERM(filter_term_8)
                TERM(filter_term_9)
                TERM(filter_term_10)
                TERM(filter_term_11)
                TERM(filter_term_12)
                TERM(filter_term_13)
                TERM(filter_term_14)
                TERM(filter_term_15)
                filter_rules.apply();
                if (fires == 1) {
                    decision = DECISION_EVENT;
                } else if (is_known == 0) {
                    decision = DECISION_FIRST;
                } else if (last != 0) {
                    decision = DECISION_ENDED;
                }
                if (is_known == 0) {
                    if (tag != 0) { decisions.count(counts + (bit<32>)DECISION_COLLISION); }
                    tags.write(index, 1w1 ++ local.flow_id);
                }
                reported.write(index, (bit<64>)fires);
            } else if (is_implausible == 1) {
                decision = is_known == 1 ? DECISION_SUPPRESSED : DECISION_MISSING_VALUE;
            } else if (has_value == 0) {
                decision = DECISION_MISSING_VALUE;
            } else {
                bit<64> state = sum;
                bit<64> threshold = (bit<64>)local.filter.threshold;
                bit<64> next = stored;
                if (local.filter.algorithm == FILTER_MOVING_AVERAGE) {
                    threshold = threshold << 8;
                    state = sum << 8;
                    if (is_known == 1) { state = stored + sum * (bit<64>)local.filter.alpha - ((stored * (bit<64>)local.filter.alpha) >> 8); }
                    next = state;
                }
                difference = last > state ? last - state : state - last;
                if (is_known == 0) {
                    decision = DECISION_FIRST;
                    if (tag != 0) { decisions.count(counts + (bit<32>)DECISION_COLLISION); }
                    tags.write(index, 1w1 ++ local.flow_id);
                } else if (local.filter.algorithm == FILTER_CHANGE) {
                    if (last != state) {
                        decision = DECISION_EVENT;
                    } else if (local.visit.egress_ts - stored >= local.filter.keep_alive) {
                        decision = DECISION_KEEP_ALIVE;
                    }
                } else if (difference > threshold) {
                    decision = DECISION_EVENT;
                }
                if (decision != DECISION_SUPPRESSED) {
                    reported.write(index, state);
                    if (local.filter.algorithm == FILTER_CHANGE) { next = local.visit.egress_ts; }
                }
                extra.write(index, next);
            }
        }
        decisions.count(counts + (bit<32>)decision);
        if (decision == DECISION_SUPPRESSED) {
            local.flow_report = FLOW_NOTHING;
            local.outcome = COUNT_FILTERED;
        }
    }
}

#endif
