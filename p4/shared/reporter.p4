// SPDX-License-Identifier: Apache-2.0 OR MIT
// The DTA reporter: headers of its control messages and timer, what a mapping may name, and what its passes share. The reports are those
// of dta.p4.

#ifndef REPORTER_P4
#define REPORTER_P4

const bit<8> CONTROL_ACK = 1;
const bit<8> CONTROL_NACK = 2;
const bit<8> CONTROL_SKETCH_NACK = 3;
const bit<8> CONTROL_CONGESTION = 4;
const bit<8> NACK_MALFORMED = 2;
const bit<8> NACK_UNKNOWN = 3;
const bit<8> NACK_OVERLOAD = 4;

const int REPORTER_COLLECTORS = 16;
/// Mappings, and entries that select flows for them.
const int MAPPINGS = 64;
const int MAPPING_ENTRIES = 256;
const int REPORTER_LISTS = 1024;
/// Essential reports that are stored for each collector, and 4-byte words of data in a report.
#define WINDOW 256
#define REPORT_WORDS 8

/// Nanoseconds: what a retransmitted report takes from the allowance, and the allowance.
const bit<64> RETRANSMISSION = 3906;
const bit<64> ALLOWANCE = 512 * 3906;
/// How long the other retransmissions to a full translator wait: the least, and the most if it announced a time.
const bit<64> OVERLOAD_LEAST = 1000000;
const bit<64> OVERLOAD_MOST = 100000000;
/// Microseconds for which a notice of congestion holds at most.
const bit<32> HOLD_MOST = 1000000;
const bit<8> PROBES = 8;
const bit<64> NEVER = 0xffffffffffffffff;

// Events that cause reports.
const bit<3> ON_PATH = 1;
const bit<3> ON_HOP = 2;
const bit<3> ON_DROP = 3;
const bit<3> ON_QUEUE = 4;
const bit<3> ON_CONGESTED_PACKET = 5;

// Flows of an event: bit 1 is set if there is one.
const bit<2> NO_FLOW = 0;
const bit<2> FLOW_V4 = 2;
const bit<2> FLOW_V6 = 3;

// Keys.
const bit<8> KEY_CONSTANT = 1;
const bit<8> KEY_SWITCH = 2;
const bit<8> KEY_NODE = 3;
const bit<8> KEY_SRC = 4;
const bit<8> KEY_DST = 5;
const bit<8> KEY_FLOW = 6;

// Fields: the low byte of a parameter. The high byte is the number of a hop of the path, from 1, or 0: the hop that the report is about.
const bit<8> FIELD_CONSTANT = 1;
const bit<8> FIELD_SWITCH = 2;
const bit<8> FIELD_NODE = 3;
/// Both interfaces, two bytes each; and each of them.
const bit<8> FIELD_INTERFACES = 4;
const bit<8> FIELD_INGRESS_IF = 5;
const bit<8> FIELD_EGRESS_IF = 6;
const bit<8> FIELD_HOP_LATENCY = 7;
const bit<8> FIELD_QUEUE_ID = 8;
const bit<8> FIELD_QUEUE_OCCUPANCY = 9;
const bit<8> FIELD_SRC = 10;
const bit<8> FIELD_DST = 11;
/// Both ports, two bytes each.
const bit<8> FIELD_PORTS = 12;
const bit<8> FIELD_PROTO = 13;
const bit<8> FIELD_HOP = 14;
const bit<8> FIELD_PATH_LEN = 15;
const bit<8> FIELD_FLOW_LATENCY = 16;
const bit<8> FIELD_REASON = 17;
const bit<8> FIELD_CONGESTED = 18;
const bit<8> FIELD_PACKET_BYTES = 19;
const bit<8> FIELD_HOP_LIMIT = 20;
/// Times of this node, nanoseconds: as a number, and as the two words of eight bytes.
const bit<8> FIELD_INGRESS_TS = 21;
const bit<8> FIELD_EGRESS_TS = 22;
const bit<8> FIELD_INGRESS_TS_HIGH = 23;
const bit<8> FIELD_INGRESS_TS_LOW = 24;
const bit<8> FIELD_EGRESS_TS_HIGH = 25;
const bit<8> FIELD_EGRESS_TS_LOW = 26;

// What became of a mapping's report: instances of a counter, eight for each mapping, named as the counters of the reporter in Rust.
const bit<3> MADE_SENT = 0;
const bit<3> MADE_SUPPRESSED = 1;
const bit<3> MADE_ABSENT = 2;
const bit<3> MADE_SIZE = 3;
/// The path has more records than the program reads.
const bit<3> MADE_TOO_LONG = 4;
/// The entry that matched at this mapping's position is of an earlier mapping, or of none: the packet makes no further reports.
const bit<3> MADE_MISPLACED = 5;

// Instances of the counter of a collector, sixteen for each.
const bit<4> OF_OVERWRITTEN = 0;
const bit<4> OF_RETRANSMITTED = 1;
const bit<4> OF_PROBES = 2;
const bit<4> OF_NACKS = 3;
const bit<4> OF_EARLY = 4;
const bit<4> OF_LIMITED = 5;
const bit<4> OF_UNBELIEVED = 6;
const bit<4> OF_RENUMBERED = 7;
const bit<4> OF_REFUSED = 8;
const bit<4> OF_ACKS = 9;
const bit<4> OF_CONGESTIONS = 10;

// Instances of the counter of control messages.
const bit<32> CONTROL_PROCESSED = 0;
const bit<32> CONTROL_BAD = 1;
const bit<32> CONTROL_MISDIRECTED = 2;
const bit<32> CONTROL_UNKNOWN_SKETCH = 3;
const int CONTROLS = 4;

/// A message of a translator, as far as it is not of one kind only.
struct dta_message_t {
    bit<8> kind;
    bit<8> code;
    bit<16> last;
    /// Of a notice of congestion.
    bit<32> hold;
    bit<32> dropped;
}

/// The reporter sends what is due to this collector.
header reporter_timer_t {
    bit<8> collector;
    bit<24> rsvd;
}

/// A report, as a mapping makes it and as it is stored.
struct form_t {
    bit<4> opcode;
    bit<1> immediate;
    bit<2> priority;
    bit<8> key_bytes;
    bit<8> words;
    /// Of a postcard: the hop.
    bit<8> copies;
    bit<8> path_len;
    /// Store or list.
    bit<32> id;
    bit<128> key;
    bit<32> word_0;
    bit<32> word_1;
    bit<32> word_2;
    bit<32> word_3;
    bit<32> word_4;
    bit<32> word_5;
    bit<32> word_6;
    bit<32> word_7;
}

/// What the passes of one packet share.
struct reporter_t {
    /// The packet is a translator's message, or a timer frame.
    bit<1> is_control;
    bit<1> is_timer;
    @field_list(1) bit<8> collector;
    /// Mappings before this one are done.
    @field_list(1) bit<8> position;
    /// Of a mapping with a report for each hop: the next hop; and one of the hops before met the condition.
    @field_list(1) bit<8> hop;
    @field_list(1) bit<1> has_met;
    /// Stored reports are sent, before the next mapping; and then, if it is due, the last one again.
    @field_list(1) bit<1> pumps;
    @field_list(1) bit<1> ticks;
    /// There is another pass.
    bit<1> continues;
    /// The queue became congested.
    @field_list(1) bit<1> rises;
}

#endif
