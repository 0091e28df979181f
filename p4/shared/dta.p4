// SPDX-License-Identifier: Apache-2.0 OR MIT
// Headers of the DTA translator: reports of version 1, and RoCEv2.

#ifndef DTA_P4
#define DTA_P4

const bit<16> PORT_DTA = 40040;
const bit<16> PORT_ROCE = 4791;
/// Local experiments (IEEE 802): the frames of a timer, from the control plane or a packet generator.
const bit<16> ETHERTYPE_TIMER = 0x88b5;

const int DTA_PORTS = 64;
const int DTA_COLLECTORS = 16;
const int DTA_STORES = 1024;
/// Lists of all collectors, and 4-byte words of data in a report or a batch.
#define DTA_LISTS 1024
#define DTA_WORDS 16
/// Incomplete paths of all collectors and stores.
#define DTA_PATHS 4096

const bit<4> OP_KEY_WRITE = 1;
const bit<4> OP_APPEND = 2;
const bit<4> OP_KEY_INCREMENT = 3;
const bit<4> OP_POSTCARD = 4;

const bit<8> RC_WRITE_ONLY_IMMEDIATE = 0x0b;
const bit<8> RC_ACKNOWLEDGE = 0x11;
const bit<8> RC_FETCH_ADD = 0x14;
const bit<8> UC_WRITE_ONLY = 0x2a;
const bit<8> UC_WRITE_ONLY_IMMEDIATE = 0x2b;
const bit<8> NAK_SEQUENCE = 0x60;

// Instances of the counter of reports.
const bit<32> DTA_DONE = 0;
const bit<32> DTA_UNREADABLE = 1;
const bit<32> DTA_UNKNOWN_STORE = 2;
const bit<32> DTA_UNKNOWN_LIST = 3;
const bit<32> DTA_TOO_MUCH_DATA = 4;
const bit<32> DTA_WRONG_ENTRY = 5;
const bit<32> DTA_WRONG_HOP = 6;
const int DTA_COUNTS = 7;

header dta_t {
    bit<4> version;
    bit<4> opcode;
    bit<1> immediate;
    bit<1> essential;
    bit<2> priority;
    bit<4> rsvd;
    bit<16> sequence;
    bit<32> reporter;
}

header key_write_t {
    bit<8> copies;
    bit<8> key_bytes;
    bit<16> data_bytes;
    bit<16> store;
    bit<16> rsvd;
}

header append_t {
    bit<32> list;
    bit<16> entry_bytes;
    bit<8> count;
    bit<8> rsvd;
}

header key_increment_t {
    bit<8> copies;
    bit<8> key_bytes;
    bit<16> store;
    bit<32> rsvd;
    bit<64> delta;
}

header postcard_report_t {
    bit<8> hop;
    bit<8> path_length;
    bit<8> key_bytes;
    bit<8> rsvd;
    bit<16> store;
    bit<16> rsvd2;
    bit<32> value;
}

/// A batch of a list, or a place of a store of paths, that is written if it has waited for the timer.
header batch_timer_t {
    bit<8> collector;
    bit<4> opcode;
    bit<4> rsvd;
    bit<16> place;
    bit<32> id;
}

#define EACH_KEY(do) do(1, 8) do(2, 16) do(3, 24) do(4, 32) do(5, 40) do(6, 48) do(7, 56) do(8, 64) do(9, 72) do(10, 80) do(11, 88) \
    do(12, 96) do(13, 104) do(14, 112) do(15, 120) do(16, 128)
#define EACH_WORD(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) do(12) do(13) do(14) do(15)

/// Keys of 1 to 16 bytes.
#define KEY_HEADER(bytes, bits) header key_ ## bytes ## _t { bit<bits> key; }
EACH_KEY(KEY_HEADER)

header bth_t {
    bit<8> opcode;
    bit<1> solicited;
    bit<1> migrated;
    bit<2> pad;
    bit<4> version;
    bit<16> partition;
    bit<8> congestion;
    bit<24> queue_pair;
    bit<1> ack_request;
    bit<7> rsvd;
    bit<24> psn;
}

header reth_t {
    bit<64> address;
    bit<32> rkey;
    bit<32> len;
}

header atomic_eth_t {
    bit<64> address;
    bit<32> rkey;
    bit<64> add;
    bit<64> compare;
}

header aeth_t {
    bit<8> syndrome;
    bit<24> msn;
}

#define KEY_FIELD(bytes, bits) key_ ## bytes ## _t key_ ## bytes;

struct dta_headers_t {
    ethernet_t ethernet;
    batch_timer_t timer;
    ipv4_t ipv4;
    udp_t udp;
    dta_t dta;
    key_write_t key_write;
    append_t append;
    key_increment_t key_increment;
    postcard_report_t postcard;
    EACH_KEY(KEY_FIELD)
    bth_t bth;
    reth_t reth;
    atomic_eth_t atomic;
    word_t immediate;
    aeth_t aeth;
    word_t checksum;
    word_t[DTA_WORDS] data;
    word_t icrc;
}

struct dta_local_t {
    // Of the parser.
    /// A report of a known form: what its lengths say is there.
    bit<1> is_report;
    bit<8> key_bytes;
    bit<8> words;
    bit<128> key;
    /// What the length of the key adds to each CRC.
    bit<32> crc_c;
    bit<32> crc_d;
    bit<32> crc_k;
    bit<32> crc_q;
    bit<32> crc_ieee;

    // For egress.
    bit<1> executes;
    bit<32> collector;
    bit<8> copies;
    bit<32> checksum;
    /// The checksum is written before the words.
    bit<1> has_checksum;
    bit<64> address;
    bit<32> rkey;
    bit<32> mask;
    /// Of a slot, as a power of two.
    bit<8> stride;
    /// 4-byte words that are written.
    bit<8> written;
    bit<32> immediate;
    bit<1> notice;
    bit<64> delta;
    bit<32> frame_bytes;
    bit<1> is_other;
}

#endif
