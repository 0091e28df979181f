// SPDX-License-Identifier: Apache-2.0 OR MIT
// What ingress of the DTA translator hands to egress in front of a packet, and what the controls share.

#ifndef TNA_DTA_P4
#define TNA_DTA_P4

const bit<8> KIND_OTHER = 0;
const bit<8> KIND_TIMER = 1;
const bit<8> KIND_REPORT = 2;
const bit<8> KIND_UNREADABLE = 3;
const bit<8> KIND_NAK = 4;

const bit<2> NO_ADDITION = 0;
const bit<2> ADDITION = 1;
const bit<2> ADDITION_WITH_NOTICE = 2;

const bit<8> OPERATION_WRITE = 1;
const bit<8> OPERATION_LIST = 2;
const bit<8> OPERATION_ADD = 3;
const bit<8> OPERATION_RESYNCHRONISE = 4;

/// Bytes of a timer's frame of the least length after its header.
header timer_padding_t {
    bit<288> rest;
}

header operation_t {
    bit<8> kind;
    bit<8> queue_pair;
    bit<8> copies;
    bit<8> is_timer;
    bit<8> notice;
    /// 4-byte words in the packet, and in the slot or the list's entry.
    bit<8> words;
    bit<8> slot_words;
    bit<32> address_high;
    bit<32> address_low;
    bit<32> rkey;
    bit<32> immediate;
}

/// Where a key's copies are in the store, by four hashes, and the key's checksum.
header places_t {
    bit<32> place_1;
    bit<32> place_2;
    bit<32> place_3;
    bit<32> place_4;
    bit<32> checksum;
}

header addition_t {
    bit<64> delta;
}

/// The PSN that a collector expects.
header psn_t {
    bit<8> zero;
    bit<24> psn;
}

header list_t {
    bit<32> index;
    bit<8> batch_last;
    bit<8> rsvd;
    bit<16> ticks;
    bit<32> bytes;
}

struct reports_t {
    operation_t operation;
    places_t places;
    addition_t addition;
    list_t list;
    psn_t psn;
    ethernet_t ethernet;
    batch_timer_t timer;
    timer_padding_t padding;
    ipv4_t ipv4;
    udp_t udp;
    dta_t dta;
    key_write_t key_write;
    append_t append;
    key_increment_t key_increment;
    EACH_KEY(KEY_FIELD)
    bth_t bth;
    aeth_t aeth;
}

/// A key of up to 16 bytes, at the low end.
struct key_t {
    bit<8> k0;
    bit<8> k1;
    bit<8> k2;
    bit<8> k3;
    bit<8> k4;
    bit<8> k5;
    bit<8> k6;
    bit<8> k7;
    bit<8> k8;
    bit<8> k9;
    bit<8> k10;
    bit<8> k11;
    bit<8> k12;
    bit<8> k13;
    bit<8> k14;
    bit<8> k15;
}

#define NO_KEY local.key = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
#define KEY_LIST(key) { key.k0, key.k1, key.k2, key.k3, key.k4, key.k5, key.k6, key.k7, key.k8, key.k9, key.k10, key.k11, key.k12, key.k13, \
    key.k14, key.k15 }
#define KEY_BYTES_1(h) local.key.k15 = h.key[7:0];
#define KEY_BYTES_2(h) KEY_BYTES_1(h) local.key.k14 = h.key[15:8];
#define KEY_BYTES_3(h) KEY_BYTES_2(h) local.key.k13 = h.key[23:16];
#define KEY_BYTES_4(h) KEY_BYTES_3(h) local.key.k12 = h.key[31:24];
#define KEY_BYTES_5(h) KEY_BYTES_4(h) local.key.k11 = h.key[39:32];
#define KEY_BYTES_6(h) KEY_BYTES_5(h) local.key.k10 = h.key[47:40];
#define KEY_BYTES_7(h) KEY_BYTES_6(h) local.key.k9 = h.key[55:48];
#define KEY_BYTES_8(h) KEY_BYTES_7(h) local.key.k8 = h.key[63:56];
#define KEY_BYTES_9(h) KEY_BYTES_8(h) local.key.k7 = h.key[71:64];
#define KEY_BYTES_10(h) KEY_BYTES_9(h) local.key.k6 = h.key[79:72];
#define KEY_BYTES_11(h) KEY_BYTES_10(h) local.key.k5 = h.key[87:80];
#define KEY_BYTES_12(h) KEY_BYTES_11(h) local.key.k4 = h.key[95:88];
#define KEY_BYTES_13(h) KEY_BYTES_12(h) local.key.k3 = h.key[103:96];
#define KEY_BYTES_14(h) KEY_BYTES_13(h) local.key.k2 = h.key[111:104];
#define KEY_BYTES_15(h) KEY_BYTES_14(h) local.key.k1 = h.key[119:112];
#define KEY_BYTES_16(h) KEY_BYTES_15(h) local.key.k0 = h.key[127:120];

struct ingress_t {
    bit<8> kind;
    bool wrong_checksum;
    bit<1> is_for_us;
    /// Its lengths agree.
    bit<1> is_whole;
    /// Its words fit the slot.
    bit<1> fits;
    bit<4> opcode;
    bit<8> key_bytes;
    bit<8> copies;
    bit<16> data_bytes;
    bit<16> id_high;
    bit<16> id_low;
    bit<8> collector;
    key_t key;
    bit<32> mask;
    /// Of a slot, as a power of two.
    bit<8> stride;
}

#define WORD_FIELD(n) word_t d ## n;

struct operations_t {
    operation_t operation;
    places_t places;
    addition_t addition;
    list_t list;
    psn_t psn;
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    bth_t bth;
    reth_t reth;
    atomic_eth_t atomic;
    word_t immediate;
    word_t checksum;
    EACH_WORD(WORD_FIELD)
    word_t icrc;
}

/// What a register of a word does: see `Words`.
const bit<4> WORDS_OF_PACKET = 0;
const bit<4> WORDS_OF_LIST = 1;

/// What a RoCEv2 packet has: only data, or before them a checksum; with or without an immediate value.
const bit<4> FORM_DATA = 1;
const bit<4> FORM_DATA_NOTICE = 2;
const bit<4> FORM_CHECKSUM = 3;
const bit<4> FORM_CHECKSUM_NOTICE = 4;
const bit<4> FORM_ADDITION = 5;
const bit<4> FORM_AFTER_ADDITION = 6;

struct egress_t {
    /// A write or an addition follows.
    bit<1> executes;
    bit<4> mode;
    /// Index of the words' registers.
    bit<32> index;
    /// Words of this packet, by their position in the write.
    bit<16> own;
    /// Where this packet's words are in the write.
    bit<16> at;
    /// Words that are written.
    bit<8> written;
    bit<32> bytes;
    /// Of the last write before the list's end.
    bit<32> end;
    bit<32> offset;
}

#endif
