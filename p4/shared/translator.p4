// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the DTA translator on v1model needs beside dta.p4: for essential reports, sketches, and passes after the first one.

#ifndef TRANSLATOR_P4
#define TRANSLATOR_P4

const bit<16> PORT_DTA_CONTROL = 40044;
const bit<4> OP_SKETCH = 5;
const bit<4> OP_CONTROL = 15;
const bit<8> RC_WRITE_ONLY = 0x0a;
/// Reporters of essential reports, to all collectors.
const int DTA_REPORTERS = 1024;
/// Addresses of reporters, for their rates and notices.
#define DTA_SENDERS 1024

const bit<8> REPLY_ACK = 1;
const bit<8> REPLY_NACK = 2;
const bit<8> CODE_GAP = 1;
const bit<8> CODE_MALFORMED = 2;
const bit<8> CODE_UNKNOWN = 3;
const bit<8> CODE_OVERLOAD = 4;
const bit<8> REPLY_SKETCH_NACK = 3;
const bit<8> REPLY_CONGESTION = 4;
/// What the copy of a report keeps that is sent back, the copy of that copy, and a packet that passes again.
const bit<8> REPLY_FIELDS = 1;
const bit<8> SECOND_FIELDS = 2;
const bit<8> AGAIN_FIELDS = 3;

/// Sketches of all collectors; their counters of 4 bytes, and columns, of both epochs.
#define DTA_SKETCHES 16
#define DTA_SKETCH_WORDS 65536
#define DTA_SKETCH_COLUMNS 16384

const bit<8> SKETCH_SUM = 0;
const bit<8> SKETCH_MIN = 2;

// Instances of the counter of reports, after those of dta.p4.
const bit<32> DTA_DUPLICATE = 7;
const bit<32> DTA_GAP = 8;
const bit<32> DTA_FORGED = 9;
const bit<32> DTA_REPORTERS_FULL = 10;
const bit<32> DTA_UNKNOWN_SKETCH = 11;
const bit<32> DTA_WRONG_SHAPE = 12;
const bit<32> DTA_ONE_REPORTER_TOO_MANY = 13;
const bit<32> DTA_DUPLICATE_COLUMN = 14;
const bit<32> DTA_COLUMN_GAP = 15;
const bit<32> DTA_EPOCH_OVER = 16;
const bit<32> DTA_EPOCH_AHEAD = 17;
const bit<32> DTA_METERED = 18;
const bit<32> DTA_CONGESTED_LOW = 19;
const bit<32> DTA_CONGESTED_MEDIUM = 20;
const bit<32> DTA_CONGESTED_HIGH = 21;
const int DTA_ALL_COUNTS = 22;

// Instances of the counter of sequences, and of the counter of messages.
const bit<32> SEQUENCES_ACCEPTED = 0;
const bit<32> SEQUENCES_RESTARTS = 1;
const bit<32> MESSAGES_ACK = 0;
const bit<32> MESSAGES_SKETCH_NACK = 5;
const bit<32> MESSAGES_CONGESTION = 6;

header sketch_merge_t {
    bit<16> sketch;
    bit<16> epoch;
    bit<32> first;
    bit<8> depth;
    bit<8> width;
    bit<8> op;
    bit<8> columns;
}

/// A message to the reporter, after the base header: of an ACK, the last number; of a NACK, this and the number of the report; of one of a
/// sketch, nothing, sketch and epoch; of a notice, nothing and the time for which it holds.
header dta_reply_t {
    bit<8> kind;
    bit<8> code;
    bit<16> first;
    bit<16> second;
    bit<16> third;
}

struct translator_headers_t {
    dta_headers_t report;
    sketch_merge_t sketch;
    dta_reply_t reply;
    /// The expected column, or how many reports were dropped.
    word_t reply_number;
    /// Columns of a sketch that are written, or its trailer; the report that completed them is still there.
    word_t[DTA_WORDS] columns;
}

/// A message to the reporter, as its header has it. Kind 0: none.
struct first_message_t {
    @field_list(1) bit<8> kind;
    @field_list(1) bit<8> code;
    @field_list(1) bit<16> first;
    @field_list(1) bit<16> second;
    @field_list(1) bit<16> third;
    @field_list(1) bit<32> number;
}

/// The message after that, or the only one.
struct second_message_t {
    @field_list(1, 2) bit<8> kind;
    @field_list(1, 2) bit<8> code;
    @field_list(1, 2) bit<16> first;
    @field_list(1, 2) bit<16> second;
    @field_list(1, 2) bit<16> third;
    @field_list(1, 2) bit<32> number;
}

struct tracked_t {
    first_message_t message;
    second_message_t next;
    /// What is written is, or includes, an essential report: by the reliable queue pair.
    bit<1> reliable;
}

/// Of a packet that passes again, because it causes more operations than one. `port` and `at` are of every packet, of its first arrival.
struct again_t {
    @field_list(3) bit<1> passes;
    /// Its report was merged: what remains is written.
    @field_list(3) bit<1> pumps;
    /// The level of congestion at its arrival.
    @field_list(3) bit<2> level;
    @field_list(1, 3) bit<9> port;
    @field_list(3) bit<48> at;
}

/// A sketch, as the controller describes it.
struct sketch_t {
    bit<32> index;
    /// Where its counters and its columns begin.
    bit<32> first_word;
    bit<32> first_column;
    bit<32> columns;
    bit<8> depth;
    bit<8> width;
    bit<8> op;
    bit<1> saturates;
    bit<32> reporters;
    /// Columns that are written together.
    bit<32> batch;
    bit<48> timer;
}

struct translator_local_t {
    dta_local_t report;
    tracked_t tracked;
    again_t again;
    sketch_t sketch;
}

#endif
