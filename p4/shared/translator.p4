// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the DTA translator needs for essential reports, beside the headers of dta.p4.

#ifndef TRANSLATOR_P4
#define TRANSLATOR_P4

const bit<16> PORT_DTA_CONTROL = 40044;
const bit<4> OP_SKETCH = 5;
const bit<4> OP_CONTROL = 15;
const bit<8> RC_WRITE_ONLY = 0x0a;
/// Reporters of essential reports, to all collectors.
const int DTA_REPORTERS = 1024;

const bit<8> REPLY_ACK = 1;
const bit<8> REPLY_NACK = 2;
const bit<8> CODE_GAP = 1;
const bit<8> CODE_MALFORMED = 2;
const bit<8> CODE_UNKNOWN = 3;
/// What the copy of a report keeps that is sent back.
const bit<8> REPLY_FIELDS = 1;

// Instances of the counter of reports, after those of dta.p4.
const bit<32> DTA_DUPLICATE = 7;
const bit<32> DTA_GAP = 8;
const bit<32> DTA_FORGED = 9;
const bit<32> DTA_REPORTERS_FULL = 10;
const int DTA_ALL_COUNTS = 11;

// Instances of the counter of sequences, and of the counter of messages.
const bit<32> SEQUENCES_ACCEPTED = 0;
const bit<32> SEQUENCES_RESTARTS = 1;
const bit<32> MESSAGES_ACK = 0;

/// ACK or NACK, after the base header.
header dta_reply_t {
    bit<8> kind;
    bit<8> code;
    bit<16> last;
    bit<16> trigger;
    bit<16> rsvd;
}

struct translator_headers_t {
    dta_headers_t report;
    dta_reply_t reply;
}

struct tracked_t {
    /// The message to the reporter; 0: none.
    @field_list(1) bit<8> reply;
    @field_list(1) bit<8> code;
    @field_list(1) bit<16> last;
    /// What is written is, or includes, an essential report: by the reliable queue pair.
    bit<1> reliable;
}

struct translator_local_t {
    dta_local_t report;
    tracked_t tracked;
}

#endif
