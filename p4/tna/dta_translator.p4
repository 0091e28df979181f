// SPDX-License-Identifier: Apache-2.0 OR MIT
// The DTA translator on Tofino: reports in, RDMA operations out, over IPv4. Other packets are forwarded by their ingress port.
//
// Ingress finds the store and hashes the key; it has no state, so that reports may arrive in any pipe. All state is at egress, in the
// pipe of the collector's port: the entries of lists have one register for each of a write's 16 words. The packet's replicas, of a
// multicast group for each collector and number of copies, become operations. The group of N replicas to collector C is 8 C + N.

#include <core.p4>
#include <tna.p4>

#include "../shared/headers.p4"
#include "../shared/dta.p4"
#include "../shared/crc.p4"
#include "shared/dta.p4"
#include "control/dta_keys.p4"
#include "control/dta_words.p4"
#include "control/dta_lists.p4"
#include "control/dta_operation.p4"

#define KEY_STATE(bytes, bits) state parse_key_ ## bytes { \
    packet.extract(hdr.key_ ## bytes); \
    KEY_BYTES_ ## bytes(hdr.key_ ## bytes) \
    transition well_formed; \
}
#define KEY_CASE(bytes, bits) bytes: parse_key_ ## bytes;

parser DtaParser(packet_in packet, out reports_t hdr, out ingress_t local, out ingress_intrinsic_metadata_t meta) {
    Checksum() ipv4_checksum;

    state start {
        packet.extract(meta);
        packet.advance(PORT_METADATA_SIZE);
        local.kind = KIND_OTHER;
        local.wrong_checksum = false;
        local.is_for_us = 0;
        local.is_whole = 0;
        local.fits = 0;
        local.collector = 0;
        local.mask = 0;
        local.stride = 0;
        local.opcode = 0;
        local.key_bytes = 0;
        local.data_bytes = 0;
        local.copies = 0;
        local.id_high = 0;
        local.id_low = 0;
        NO_KEY
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_TIMER: parse_timer;
            default: accept;
        }
    }

    state parse_timer {
        packet.extract(hdr.timer);
        packet.extract(hdr.padding);
        local.kind = KIND_TIMER;
        local.id_high = hdr.timer.id[31:16];
        local.id_low = hdr.timer.id[15:0];
        transition select(hdr.timer.opcode) {
            OP_APPEND: timer_of_list;
            default: accept;
        }
    }

    state timer_of_list {
        local.opcode = OP_APPEND;
        local.copies = 1;
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        ipv4_checksum.add(hdr.ipv4);
        local.wrong_checksum = ipv4_checksum.verify();
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.proto) {
            (4, 5, 0 &&& 1, 0, PROTO_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            PORT_DTA: parse_dta;
            PORT_ROCE: parse_bth;
            default: accept;
        }
    }

    state parse_bth {
        packet.extract(hdr.bth);
        transition select(hdr.bth.opcode) {
            RC_ACKNOWLEDGE: parse_aeth;
            default: accept;
        }
    }

    state parse_aeth {
        packet.extract(hdr.aeth);
        transition select(hdr.aeth.syndrome) {
            NAK_SEQUENCE: refusal;
            default: accept;
        }
    }

    state refusal {
        local.kind = KIND_NAK;
        transition accept;
    }

    state parse_dta {
        packet.extract(hdr.dta);
        // Essential reports need the sequence tracker; priority 3 does not exist.
        transition select(hdr.dta.version, hdr.dta.opcode, hdr.dta.essential, hdr.dta.priority) {
            (_, _, _, 3): refuse;
            (1, OP_KEY_WRITE, 0, _): parse_key_write;
            (1, OP_APPEND, 0, _): parse_append;
            (1, OP_KEY_INCREMENT, 0, _): parse_key_increment;
            default: refuse;
        }
    }

    state parse_key_write {
        packet.extract(hdr.key_write);
        local.opcode = OP_KEY_WRITE;
        local.key_bytes = hdr.key_write.key_bytes;
        local.data_bytes = hdr.key_write.data_bytes;
        local.copies = hdr.key_write.copies;
        local.id_low = hdr.key_write.store;
        transition select(hdr.key_write.copies, hdr.key_write.data_bytes) {
            (1, 0 &&& 0xffc3): by_key;
            (2, 0 &&& 0xffc3): by_key;
            (3, 0 &&& 0xffc3): by_key;
            (4, 0 &&& 0xffc3): by_key;
            (1, 64): by_key;
            (2, 64): by_key;
            (3, 64): by_key;
            (4, 64): by_key;
            default: refuse;
        }
    }

    state parse_append {
        packet.extract(hdr.append);
        local.opcode = OP_APPEND;
        local.data_bytes = hdr.append.entry_bytes;
        local.copies = 1;
        local.id_high = hdr.append.list[31:16];
        local.id_low = hdr.append.list[15:0];
        transition select(hdr.append.count, hdr.append.entry_bytes) {
            (1, 4): well_formed;
            (1, 8): well_formed;
            (1, 16): well_formed;
            (1, 32): well_formed;
            (1, 64): well_formed;
            default: refuse;
        }
    }

    state parse_key_increment {
        packet.extract(hdr.key_increment);
        local.opcode = OP_KEY_INCREMENT;
        local.key_bytes = hdr.key_increment.key_bytes;
        local.copies = hdr.key_increment.copies;
        local.id_low = hdr.key_increment.store;
        transition select(hdr.key_increment.copies) {
            1: by_key;
            2: by_key;
            3: by_key;
            4: by_key;
            default: refuse;
        }
    }

    state well_formed {
        local.kind = KIND_REPORT;
        transition accept;
    }

    state by_key {
        transition select(local.key_bytes) {
            EACH_KEY(KEY_CASE)
            default: refuse;
        }
    }

    state refuse {
        local.kind = KIND_UNREADABLE;
        transition accept;
    }

    EACH_KEY(KEY_STATE)
}

#define KEY_INVALID(bytes, bits) hdr.key_ ## bytes.setInvalid();
#define KEY_EMIT(bytes, bits) packet.emit(hdr.key_ ## bytes);
#define WORD_EMIT(n) packet.emit(hdr.d ## n);

control DtaIngress(inout reports_t hdr, inout ingress_t local, in ingress_intrinsic_metadata_t meta,
        in ingress_intrinsic_metadata_from_parser_t from_parser, inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
        inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    Hashes() hashes;
    Places() places_in_store;
    @name("reports") Counter<bit<32>, bit<4>>(16, CounterType_t.PACKETS) reports;
    @name("resynchronised") Counter<bit<32>, bit<5>>(2 * DTA_COLLECTORS, CounterType_t.PACKETS) resynchronised;

    bit<4> outcome = 0xf;
    bit<2> addition = NO_ADDITION;

    action drop() {
        for_deparser.drop_ctl = 1;
    }

    @name("forward") @id(0x01000040)
    action forward(@id(1) bit<9> port) {
        for_tm.ucast_egress_port = port;
        for_tm.bypass_egress = 1;
    }

    /// Of packets that are no reports.
    @name("other") @id(0x02000040)
    table other {
        key = { meta.ingress_port : exact @name("ingress_port"); }
        actions = { forward; drop; }
        const default_action = drop();
        size = DTA_PORTS;
    }

    action begin(bit<8> collector) {
        local.collector = collector;
        local.is_for_us = 1;
        hdr.operation.setValid();
        hdr.operation.notice = 0;
    }

    action accept_timer() {
        begin(hdr.timer.collector);
        hdr.operation.is_timer = 1;
        hdr.operation.words = 0;
    }

    @name("timer_port") @id(0x02000041)
    table timer_port {
        key = { meta.ingress_port : exact @name("ingress_port"); }
        actions = { accept_timer; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DTA_PORTS;
    }

    @name("translate") @id(0x01000041)
    action translate(@id(1) bit<8> collector) {
        begin(collector);
        hdr.operation.is_timer = 0;
        hdr.places.setValid();
    }

    /// Collectors by their address: reports to others are forwarded.
    @name("collector") @id(0x02000042)
    table collector {
        key = { hdr.ipv4.dst : exact @name("ipv4_dst"); }
        actions = { translate; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DTA_COLLECTORS;
    }

    /// `group` is the multicast group of one replica to the queue pair's collector: the PSN is held in the pipe of its port.
    @name("resynchronise") @id(0x01000042)
    action resynchronise(@id(1) bit<8> index, @id(2) bit<16> group) {
        hdr.operation.setValid();
        hdr.operation.kind = OPERATION_RESYNCHRONISE;
        hdr.operation.queue_pair = index;
        hdr.psn.setValid();
        hdr.psn.zero = 0;
        hdr.psn.psn = hdr.bth.psn;
        for_tm.mcast_grp_a = group;
        resynchronised.count(index[4:0]);
    }

    /// Our queue pairs, by what collectors call them.
    @name("answer") @id(0x02000044)
    table answer {
        key = {
            hdr.ipv4.src : exact @name("ipv4_src");
            hdr.bth.queue_pair : exact @name("queue_pair");
        }
        actions = { resynchronise; @defaultonly drop; }
        const default_action = drop();
        size = 2 * DTA_COLLECTORS;
    }

    /// `stride` is the slot's length, as a power of two. A store does not cross a multiple of 4 GiB. `immediate` is the opcode, and 28 bits
    /// of the id.
    @name("slots") @id(0x01000044)
    action slots(@id(1) bit<64> address, @id(2) bit<32> rkey, @id(3) bit<32> slot_mask, @id(4) bit<8> stride, @id(5) bit<8> data_words,
            @id(9) bit<32> immediate) {
        hdr.operation.immediate = immediate;
        hdr.operation.address_high = address[63:32];
        hdr.operation.address_low = address[31:0];
        hdr.operation.rkey = rkey;
        hdr.operation.slot_words = data_words;
        local.mask = slot_mask;
        local.stride = stride;
    }

    /// `index` numbers the lists of all collectors. A batch has a power of two of entries, and at most 16 words; `batch_last` is one less
    /// than its entries. `list_bytes` is the length of the ring, and `ticks` is how many frames of the timer a batch waits.
    @name("ring") @id(0x01000045)
    action ring(@id(1) bit<64> address, @id(2) bit<32> rkey, @id(3) bit<32> index, @id(4) bit<8> batch_last, @id(5) bit<32> list_bytes,
            @id(6) bit<8> entry_words, @id(7) bit<16> ticks, @id(9) bit<32> immediate) {
        hdr.operation.immediate = immediate;
        hdr.operation.address_high = address[63:32];
        hdr.operation.address_low = address[31:0];
        hdr.operation.rkey = rkey;
        hdr.operation.slot_words = entry_words;
        hdr.list.setValid();
        hdr.list.rsvd = 0;
        hdr.list.index = index;
        hdr.list.batch_last = batch_last;
        hdr.list.bytes = list_bytes;
        hdr.list.ticks = ticks;
    }

    /// Stores and lists of each collector.
    @name("store") @id(0x02000045)
    table store {
        key = {
            local.collector : exact @name("collector");
            local.opcode : exact @name("opcode");
            local.id_high ++ local.id_low : exact @name("id");
        }
        actions = { slots; ring; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DTA_STORES;
    }

    action is_whole(bit<8> words) {
        local.is_whole = 1;
        hdr.operation.words = words;
    }

    /// The lengths of IPv4, UDP and the report agree.
    table lengths {
        key = { local.opcode : exact; local.key_bytes : exact; local.data_bytes : exact; hdr.udp.len : exact; hdr.ipv4.total_len : exact; }
        actions = { is_whole; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
#include "tables/report_lengths.p4"
        }
        size = 512;
    }

    action fits() { local.fits = 1; }

    /// The data are no more than the slot's, or just the entry's.
    table slot_words {
        key = { local.opcode : exact; hdr.operation.words : exact; hdr.operation.slot_words : exact; }
        actions = { fits; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
#include "tables/slot_words.p4"
        }
        size = 256;
    }

    action hand_over(bit<8> kind) {
        hdr.operation.kind = kind;
        hdr.ethernet.setInvalid();
        hdr.timer.setInvalid();
        hdr.padding.setInvalid();
        hdr.ipv4.setInvalid();
        hdr.udp.setInvalid();
        hdr.dta.setInvalid();
        hdr.key_write.setInvalid();
        hdr.append.setInvalid();
        hdr.key_increment.setInvalid();
        EACH_KEY(KEY_INVALID)
    }

    action hand_over_write() { hand_over(OPERATION_WRITE); }

    action hand_over_addition() {
        hdr.addition.setValid();
        hdr.addition.delta = hdr.key_increment.delta;
        hand_over(OPERATION_ADD);
        hdr.operation.words = 0;
        hdr.operation.slot_words = 0;
    }

    action hand_over_list() {
        hand_over(OPERATION_LIST);
        hdr.places.setInvalid();
    }

    table operation {
        key = { local.opcode : exact; local.kind : exact; }
        actions = { hand_over_write; hand_over_addition; hand_over_list; @defaultonly drop; }
        const default_action = drop();
        const entries = {
            (OP_KEY_WRITE, KIND_REPORT) : hand_over_write();
            (OP_KEY_INCREMENT, KIND_REPORT) : hand_over_addition();
            (OP_APPEND, KIND_REPORT) : hand_over_list();
            (OP_APPEND, KIND_TIMER) : hand_over_list();
        }
        size = 4;
    }

    action set_group(bit<16> id, bit<8> queue_pair) {
        for_tm.mcast_grp_a = id;
        hdr.operation.queue_pair = queue_pair;
    }

    table group {
        key = { local.collector : exact; local.copies : exact; addition : exact; }
        actions = { set_group; @defaultonly drop; }
        const default_action = drop();
        const entries = {
#include "tables/groups.p4"
        }
        size = 256;
    }

    action hand_over_copies() { hdr.operation.copies = local.copies; }

    action take_notice() {
        hdr.operation.notice = 1;
    }

    apply {
        if (local.kind == KIND_TIMER) {
            timer_port.apply();
        } else if (local.kind == KIND_REPORT || local.kind == KIND_UNREADABLE) {
            collector.apply();
            lengths.apply();
        }
        if (local.is_for_us == 1) {
            hashes.apply(local.key, local.key_bytes, hdr.places);
            if (hdr.dta.isValid() && hdr.dta.immediate == 1) { take_notice(); }
            if (hdr.key_increment.isValid()) {
                if (hdr.dta.immediate == 1) { addition = ADDITION_WITH_NOTICE; } else { addition = ADDITION; }
            }
            if (local.kind == KIND_UNREADABLE || (local.kind == KIND_REPORT && (local.is_whole == 0 || local.wrong_checksum))) {
                outcome = (bit<4>)DTA_UNREADABLE;
            } else if (!store.apply().hit) {
                if (local.opcode == OP_APPEND) { outcome = (bit<4>)DTA_UNKNOWN_LIST; } else { outcome = (bit<4>)DTA_UNKNOWN_STORE; }
            } else {
                slot_words.apply();
                if (local.fits == 1 || hdr.timer.isValid() || hdr.key_increment.isValid()) {
                    outcome = (bit<4>)DTA_DONE;
                } else if (hdr.append.isValid()) {
                    outcome = (bit<4>)DTA_WRONG_ENTRY;
                } else {
                    outcome = (bit<4>)DTA_TOO_MUCH_DATA;
                }
                places_in_store.apply(hdr.places, local);
            }
            if (!hdr.timer.isValid()) { reports.count(outcome); }
            if (outcome == (bit<4>)DTA_DONE) {
                operation.apply();
                hand_over_copies();
                group.apply();
            } else {
                drop();
            }
        } else if (local.kind == KIND_NAK) {
            answer.apply();
        } else if (local.kind == KIND_TIMER) {
            drop();
        } else {
            other.apply();
        }
    }
}

control DtaIngressDeparser(packet_out packet, inout reports_t hdr, in ingress_t local, in ingress_intrinsic_metadata_for_deparser_t meta) {
    apply {
        packet.emit(hdr.operation);
        packet.emit(hdr.places);
        packet.emit(hdr.addition);
        packet.emit(hdr.list);
        packet.emit(hdr.psn);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.timer);
        packet.emit(hdr.padding);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.dta);
        packet.emit(hdr.key_write);
        packet.emit(hdr.append);
        packet.emit(hdr.key_increment);
        EACH_KEY(KEY_EMIT)
        packet.emit(hdr.bth);
        packet.emit(hdr.aeth);
    }
}

parser DtaOperations(packet_in packet, out operations_t hdr, out egress_t local, out egress_intrinsic_metadata_t meta) {
    state start {
        packet.extract(meta);
        local = { 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        packet.extract(hdr.operation);
        transition select(hdr.operation.kind) {
            OPERATION_WRITE: parse_places;
            OPERATION_ADD: parse_addition;
            OPERATION_LIST: parse_list;
            OPERATION_RESYNCHRONISE: parse_psn;
            default: accept;
        }
    }

    state parse_psn {
        packet.extract(hdr.psn);
        transition accept;
    }

    state parse_places {
        packet.extract(hdr.places);
        transition words;
    }

    state parse_addition {
        packet.extract(hdr.places);
        packet.extract(hdr.addition);
        transition accept;
    }

    state parse_list {
        packet.extract(hdr.list);
        transition words;
    }

    state words {
        transition select(hdr.operation.words) {
            0: accept;
            default: parse_word_0;
        }
    }

    state parse_word_0 {
        packet.extract(hdr.d0);
        transition select(hdr.operation.words) {
            1: accept;
            default: parse_word_1;
        }
    }

    state parse_word_1 {
        packet.extract(hdr.d1);
        transition select(hdr.operation.words) {
            2: accept;
            default: parse_word_2;
        }
    }

    state parse_word_2 {
        packet.extract(hdr.d2);
        transition select(hdr.operation.words) {
            3: accept;
            default: parse_word_3;
        }
    }

    state parse_word_3 {
        packet.extract(hdr.d3);
        transition select(hdr.operation.words) {
            4: accept;
            default: parse_word_4;
        }
    }

    state parse_word_4 {
        packet.extract(hdr.d4);
        transition select(hdr.operation.words) {
            5: accept;
            default: parse_word_5;
        }
    }

    state parse_word_5 {
        packet.extract(hdr.d5);
        transition select(hdr.operation.words) {
            6: accept;
            default: parse_word_6;
        }
    }

    state parse_word_6 {
        packet.extract(hdr.d6);
        transition select(hdr.operation.words) {
            7: accept;
            default: parse_word_7;
        }
    }

    state parse_word_7 {
        packet.extract(hdr.d7);
        transition select(hdr.operation.words) {
            8: accept;
            default: parse_word_8;
        }
    }

    state parse_word_8 {
        packet.extract(hdr.d8);
        transition select(hdr.operation.words) {
            9: accept;
            default: parse_word_9;
        }
    }

    state parse_word_9 {
        packet.extract(hdr.d9);
        transition select(hdr.operation.words) {
            10: accept;
            default: parse_word_10;
        }
    }

    state parse_word_10 {
        packet.extract(hdr.d10);
        transition select(hdr.operation.words) {
            11: accept;
            default: parse_word_11;
        }
    }

    state parse_word_11 {
        packet.extract(hdr.d11);
        transition select(hdr.operation.words) {
            12: accept;
            default: parse_word_12;
        }
    }

    state parse_word_12 {
        packet.extract(hdr.d12);
        transition select(hdr.operation.words) {
            13: accept;
            default: parse_word_13;
        }
    }

    state parse_word_13 {
        packet.extract(hdr.d13);
        transition select(hdr.operation.words) {
            14: accept;
            default: parse_word_14;
        }
    }

    state parse_word_14 {
        packet.extract(hdr.d14);
        transition select(hdr.operation.words) {
            15: accept;
            default: parse_word_15;
        }
    }

    state parse_word_15 {
        packet.extract(hdr.d15);
        transition accept;
    }
}

control DtaEgress(inout operations_t hdr, inout egress_t local, in egress_intrinsic_metadata_t meta,
        in egress_intrinsic_metadata_from_parser_t from_parser, inout egress_intrinsic_metadata_for_deparser_t for_deparser,
        inout egress_intrinsic_metadata_for_output_port_t for_port) {
    Lists() lists;
    Own() own;
    Extend() extend;
    Spread() spread;
    Words() words;
    Operation() operation;

    apply {
        if (hdr.operation.kind == OPERATION_LIST) {
            lists.apply(hdr, local);
        } else {
            own.apply(hdr, local);
            local.executes = 1;
            local.mode = WORDS_OF_PACKET;
            local.written = hdr.operation.slot_words;
        }
        extend.apply(hdr, local.written);
        spread.apply(hdr);
        words.apply(hdr, local);
        operation.apply(hdr, local, meta.egress_rid, for_deparser.drop_ctl);
    }
}

control DtaDeparser(packet_out packet, inout operations_t hdr, in egress_t local, in egress_intrinsic_metadata_for_deparser_t meta) {
    Checksum() ipv4_checksum;

    apply {
        hdr.ipv4.checksum = ipv4_checksum.update({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len,
            hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.src, hdr.ipv4.dst });
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.bth);
        packet.emit(hdr.reth);
        packet.emit(hdr.atomic);
        packet.emit(hdr.immediate);
        packet.emit(hdr.checksum);
        EACH_WORD(WORD_EMIT)
        packet.emit(hdr.icrc);
    }
}

Pipeline(DtaParser(), DtaIngress(), DtaIngressDeparser(), DtaOperations(), DtaEgress(), DtaDeparser()) pipe;
Switch(pipe) main;
