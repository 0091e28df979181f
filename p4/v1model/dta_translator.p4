// SPDX-License-Identifier: Apache-2.0 OR MIT
// The DTA translator on v1model: reports in, RDMA operations out, over IPv4. Other packets are forwarded by their ingress port.
//
// Ingress finds the store and holds the entries of lists; the packet's replicas, of a multicast group for each collector and number of
// copies, become operations at egress. The group of N replicas to collector C is 8 C + N. A packet that causes more operations than one after
// the other passes again: group 8 C + 6 has replica 1, the operation, and replica 7, which is recirculated as the packet that it was.

#include <core.p4>
#include <v1model.p4>

#include "../shared/headers.p4"
#include "../shared/crc.p4"
#include "../shared/dta.p4"
#include "../shared/translator.p4"
#include "../control/dta_batch.p4"
#include "../control/dta_paths.p4"
#include "../control/dta_sketch.p4"
#include "../control/dta_tracker.p4"
#include "../control/dta_meter.p4"
#include "../control/dta_translate.p4"

/// Messages to reporters are copies to the session of this number and of the port at which the report arrived.
const bit<32> REPLY_SESSION = 512;
const bit<32> INGRESS_CLONE = 1;
const bit<32> EGRESS_CLONE = 2;
/// The replica that passes again, and the group of it and of an operation.
const bit<16> AGAIN_REPLICA = 7;
const bit<8> AGAIN_GROUP = 6;

/// Bytes of UDP and of a report's base header.
const bit<16> BASE_BYTES = 16;

#define KEY_STATE(bytes, bits) state parse_key_ ## bytes { \
    packet.extract(all.report.key_ ## bytes); \
    own.report.key = (bit<128>)all.report.key_ ## bytes.key; \
    own.report.crc_c = CRC_32C_LENGTH_ ## bytes; \
    own.report.crc_d = CRC_32D_LENGTH_ ## bytes; \
    own.report.crc_k = CRC_32K_LENGTH_ ## bytes; \
    own.report.crc_q = CRC_32Q_LENGTH_ ## bytes; \
    own.report.crc_ieee = CRC_IEEE_LENGTH_ ## bytes; \
    transition by_words; \
}
#define KEY_CASE(bytes, bits) bytes: parse_key_ ## bytes;

parser DtaParser(packet_in packet, out translator_headers_t all, inout translator_local_t own, inout standard_metadata_t meta) {
    bit<8> left = 0;

    state start {
        packet.extract(all.report.ethernet);
        transition select(all.report.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_TIMER: parse_timer;
            default: accept;
        }
    }

    state parse_timer {
        packet.extract(all.report.timer);
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(all.report.ipv4);
        transition select(all.report.ipv4.version, all.report.ipv4.ihl, all.report.ipv4.flags & 1, all.report.ipv4.fragment, all.report.ipv4.proto, all.report.ipv4.total_len) {
            (4, 5, 0, 0, PROTO_UDP, 28 .. 0xffff): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(all.report.udp);
        bit<1> fits = all.report.udp.len <= all.report.ipv4.total_len - 20 ? 1w1 : 1w0;
        transition select(all.report.udp.dst_port, fits, all.report.udp.len) {
            (PORT_DTA, 1, BASE_BYTES .. 0xffff): parse_dta;
            (PORT_ROCE, 1, 28 .. 0xffff): parse_answer;
            default: accept;
        }
    }

    state parse_answer {
        packet.extract(all.report.bth);
        packet.extract(all.report.aeth);
        packet.extract(all.report.icrc);
        transition accept;
    }

    state parse_dta {
        packet.extract(all.report.dta);
        transition select(all.report.dta.version, all.report.dta.opcode) {
            (1, OP_KEY_WRITE): parse_key_write;
            (1, OP_APPEND): parse_append;
            (1, OP_KEY_INCREMENT): parse_key_increment;
            (1, OP_POSTCARD): parse_postcard;
            (1, OP_SKETCH): parse_sketch;
            default: accept;
        }
    }

    state parse_key_write {
        packet.extract(all.report.key_write);
        own.report.key_bytes = all.report.key_write.key_bytes;
        left = (bit<8>)(all.report.key_write.data_bytes >> 2);
        own.report.is_report = all.report.udp.len == BASE_BYTES + 8 + (bit<16>)all.report.key_write.key_bytes + all.report.key_write.data_bytes ? 1w1 : 1w0;
        transition select(own.report.is_report, all.report.key_write.copies, all.report.key_write.data_bytes) {
            (1, 1 .. 4, 0): refuse;
            (1, 1 .. 4, 0 &&& 0xffc3): by_key;
            (1, 1 .. 4, 64): by_key;
            default: refuse;
        }
    }

    state parse_append {
        packet.extract(all.report.append);
        left = (bit<8>)(all.report.append.entry_bytes >> 2);
        own.report.is_report = all.report.udp.len == BASE_BYTES + 8 + all.report.append.entry_bytes ? 1w1 : 1w0;
        transition select(own.report.is_report, all.report.append.count, all.report.append.entry_bytes) {
            (1, 1, 4): by_words;
            (1, 1, 8): by_words;
            (1, 1, 16): by_words;
            (1, 1, 32): by_words;
            (1, 1, 64): by_words;
            default: refuse;
        }
    }

    state parse_key_increment {
        packet.extract(all.report.key_increment);
        own.report.key_bytes = all.report.key_increment.key_bytes;
        own.report.is_report = all.report.udp.len == BASE_BYTES + 16 + (bit<16>)all.report.key_increment.key_bytes ? 1w1 : 1w0;
        transition select(own.report.is_report, all.report.key_increment.copies) {
            (1, 1 .. 4): by_key;
            default: refuse;
        }
    }

    state parse_postcard {
        packet.extract(all.report.postcard);
        own.report.key_bytes = all.report.postcard.key_bytes;
        own.report.is_report = all.report.udp.len == BASE_BYTES + 12 + (bit<16>)all.report.postcard.key_bytes ? 1w1 : 1w0;
        bit<1> is_on_path = (all.report.postcard.path_length == 0 || all.report.postcard.hop <= all.report.postcard.path_length) ? 1w1 : 1w0;
        transition select(own.report.is_report, is_on_path, all.report.postcard.hop, all.report.postcard.value) {
            (_, _, 0, _): refuse;
            (_, _, _, 0xffffffff): refuse;
            (1, 1, _, _): by_key;
            default: refuse;
        }
    }

    state parse_sketch {
        packet.extract(all.sketch);
        bit<16> words = (bit<16>)all.sketch.depth * (bit<16>)all.sketch.columns * (bit<16>)(all.sketch.width >> 2);
        left = (bit<8>)words;
        own.report.is_report = all.report.udp.len == BASE_BYTES + 12 + (words << 2) ? 1w1 : 1w0;
        transition select(own.report.is_report, all.sketch.width, all.sketch.op, all.sketch.depth, words) {
            (1, 4, 0 .. 2, 1 .. 16, 1 .. 16): by_words;
            (1, 8, 0 .. 3, 1 .. 16, 2 .. 16): by_words;
            default: refuse;
        }
    }

    state by_key {
        transition select(own.report.key_bytes) {
            EACH_KEY(KEY_CASE)
            default: refuse;
        }
    }

    EACH_KEY(KEY_STATE)

    state by_words {
        own.report.words = left;
        transition next_word;
    }

    state next_word {
        transition select(left) {
            0: accept;
            default: parse_word;
        }
    }

    state parse_word {
        packet.extract(all.report.data.next);
        left = left - 1;
        transition next_word;
    }

    state refuse {
        own.report.is_report = 0;
        transition accept;
    }
}

control DtaVerify(inout translator_headers_t all, inout translator_local_t own) {
    apply {
        verify_checksum(all.report.ipv4.isValid() && all.report.ipv4.ihl == 5,
            { all.report.ipv4.version, all.report.ipv4.ihl, all.report.ipv4.dscp, all.report.ipv4.ecn, all.report.ipv4.total_len, all.report.ipv4.id, all.report.ipv4.flags, all.report.ipv4.fragment,
              all.report.ipv4.ttl, all.report.ipv4.proto, all.report.ipv4.src, all.report.ipv4.dst },
            all.report.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control DtaIngress(inout translator_headers_t all, inout translator_local_t own, inout standard_metadata_t meta) {
    Batch() batch;
    Paths() paths;
    Sketch() merge;
    Classify() classify;
    Accept() accept_number;
    Refuse() refuse_number;
    Rate() rate;
    Level() load;
    Spend() spend;
    Notices() notices;
    /// Numbers that were given up.
    @name("lost") register<bit<64>>(1) lost_numbers;
    @name("sequences") counter(2, CounterType.packets) sequences;
    /// ACKs; NACKs for a gap, of malformed and of unknown reports, for overload, and for columns; notices of congestion.
    @name("messages") counter(7, CounterType.packets) messages;
    @name("reports") counter(DTA_ALL_COUNTS, CounterType.packets) reports;
    @name("resynchronised") counter(2 * DTA_COLLECTORS, CounterType.packets) resynchronised;

    bit<32> id = 0;
    bit<4> opcode = 0;
    bit<32> list_index = 0;
    bit<32> batch_entries = 1;
    bit<32> list_entries = 0;
    bit<8> list_words = 0;
    bit<48> list_timer = 0;
    bit<32> first_place = 0;
    bit<32> place_mask = 0;
    bit<8> path_hops = 0;
    bit<1> is_for_us = 0;
    bit<32> tracker = 0;
    bit<32> reporter_ip = 0;
    bit<48> idle_us = 10000000;
    bit<48> interval_us = 1000;
    bit<8> nack_limit = 3;
    bit<1> sends_acks = 0;
    bit<32> sender_index = DTA_SENDERS;
    bit<64> report_cost = 0;
    bit<64> report_burst = 0;
    bit<48> hold_us = 500;
    bit<8> copies_0 = 4;
    bit<8> copies_1 = 2;
    bit<8> copies_2 = 1;

    action drop() {
        mark_to_drop(meta);
    }

    @name("forward") @id(0x01000040)
    action forward(@id(1) bit<9> port) {
        meta.egress_spec = port;
    }

    /// Of packets that are no reports.
    @name("other") @id(0x02000040)
    table other {
        key = { meta.ingress_port : exact @name("ingress_port"); }
        actions = { forward; drop; }
        const default_action = drop();
        size = DTA_PORTS;
    }

    action accept_timer() {
        own.report.collector = (bit<32>)all.report.timer.collector;
        is_for_us = 1;
    }

    @name("timer_port") @id(0x02000041)
    table timer_port {
        key = { own.again.port : exact @name("ingress_port"); }
        actions = { accept_timer; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DTA_PORTS;
    }

    @name("translate") @id(0x01000041)
    action translate(@id(1) bit<8> collector) {
        own.report.collector = (bit<32>)collector;
        is_for_us = 1;
    }

    /// Collectors by their address: reports to others are forwarded.
    @name("collector") @id(0x02000042)
    table collector {
        key = { all.report.ipv4.dst : exact @name("ipv4_dst"); }
        actions = { translate; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DTA_COLLECTORS;
    }

    @name("resynchronise") @id(0x01000042)
    action resynchronise(@id(1) bit<32> index) {
        psn_of.write(index, all.report.bth.psn);
        resynchronised.count(index);
    }

    /// Our queue pairs, by what collectors call them.
    @name("answer") @id(0x02000044)
    table answer {
        key = {
            all.report.ipv4.src : exact @name("ipv4_src");
            all.report.bth.queue_pair : exact @name("queue_pair");
        }
        actions = { resynchronise; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 2 * DTA_COLLECTORS;
    }

    /// `stride` is the slot's length, as a power of two.
    @name("slots") @id(0x01000044)
    action slots(@id(1) bit<64> address, @id(2) bit<32> rkey, @id(3) bit<32> slot_mask, @id(4) bit<8> stride, @id(5) bit<8> data_words) {
        own.report.address = address;
        own.report.rkey = rkey;
        own.report.mask = slot_mask;
        own.report.stride = stride;
        own.report.written = data_words;
    }

    /// `index` numbers the lists of all collectors. A batch has a power of two of entries, and at most 16 words.
    @name("ring") @id(0x01000045)
    action ring(@id(1) bit<64> address, @id(2) bit<32> rkey, @id(3) bit<32> index, @id(4) bit<32> batch_size, @id(5) bit<32> entries,
            @id(6) bit<8> entry_words, @id(7) bit<48> timer) {
        own.report.address = address;
        own.report.rkey = rkey;
        list_index = index;
        batch_entries = batch_size;
        list_entries = entries;
        list_words = entry_words;
        list_timer = timer;
    }

    /// Of paths with at most 16 hops. `first` and a power of two of places, of which `places` is the mask, are this store's.
    @name("paths") @id(0x01000046)
    action path_slots(@id(1) bit<64> address, @id(2) bit<32> rkey, @id(3) bit<32> slot_mask, @id(4) bit<8> stride, @id(5) bit<8> hops,
            @id(6) bit<32> first, @id(7) bit<32> places, @id(8) bit<48> timer) {
        slots(address, rkey, slot_mask, stride, 0);
        path_hops = hops;
        first_place = first;
        place_mask = places;
        list_timer = timer;
    }

    /// `index` numbers the sketches of all collectors. Those of 4-byte counters and of columns begin at `word` and `column`; there are as many of
    /// both epochs. `batch` columns have at most 16 words. `saturates`: sums stop at the maximum.
    @name("sketch") @id(0x01000049)
    action sketch(@id(1) bit<64> address, @id(2) bit<32> rkey, @id(3) bit<32> index, @id(4) bit<32> word, @id(5) bit<32> column,
            @id(6) bit<32> columns, @id(7) bit<8> depth, @id(8) bit<8> width, @id(9) bit<8> op, @id(10) bit<1> saturates, @id(11) bit<32> reporters,
            @id(12) bit<32> batch_size, @id(13) bit<48> timer) {
        own.report.address = address;
        own.report.rkey = rkey;
        own.sketch = { index, word, column, columns, depth, width, op, saturates, reporters, batch_size, timer };
    }

    /// Stores, lists and sketches of each collector.
    @name("store") @id(0x02000045)
    table store {
        key = {
            own.report.collector : exact @name("collector");
            opcode : exact @name("opcode");
            id : exact @name("id");
        }
        actions = { slots; ring; path_slots; sketch; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DTA_STORES;
    }

    /// The only address that may use the ID of a reporter, and `index`: its sequence to this collector.
    @name("track") @id(0x01000047)
    action track(@id(1) bit<32> index, @id(2) bit<32> address) {
        tracker = index;
        reporter_ip = address;
    }

    @name("reporter") @id(0x02000046)
    table reporter {
        key = {
            own.report.collector : exact @name("collector");
            all.report.dta.reporter : exact @name("reporter");
        }
        actions = { track; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DTA_REPORTERS;
    }

    /// Microseconds: after which a reporter's numbers are not compared with earlier ones, and between two NACKs at least; NACKs after which a
    /// gap is given up; whether ACKs are sent.
    @name("track_by") @id(0x01000048)
    action track_by(@id(1) bit<48> idle, @id(2) bit<48> interval, @id(3) bit<8> nacks, @id(4) bit<1> acks) {
        idle_us = idle;
        interval_us = interval;
        nack_limit = nacks;
        sends_acks = acks;
    }

    @name("tracking") @id(0x02000047)
    table tracking {
        key = { }
        actions = { track_by; @defaultonly NoAction; }
        default_action = NoAction();
    }

    /// A sender of reports whose rate and congestion notices are its own.
    @name("count_sender") @id(0x0100004b)
    action count_sender(@id(1) bit<32> index) {
        sender_index = index;
    }

    @name("sender") @id(0x02000049)
    table sender {
        key = { all.report.ipv4.src : exact @name("ipv4_src"); }
        actions = { count_sender; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DTA_SENDERS;
    }

    /// Of a sender: what a report costs, ns with 16 bits of fraction (0: no limit), and as much as it may send at once; microseconds for which a
    /// notice holds; copies of a Key-Write at most, by the level of congestion.
    @name("limit_by") @id(0x0100004c)
    action limit_by(@id(1) bit<64> cost, @id(2) bit<64> burst, @id(3) bit<48> hold, @id(4) bit<8> copies, @id(5) bit<8> copies_at_1, @id(6) bit<8> copies_at_2) {
        report_cost = cost;
        report_burst = burst;
        hold_us = hold;
        copies_0 = copies;
        copies_1 = copies_at_1;
        copies_2 = copies_at_2;
    }

    @name("limits") @id(0x0200004a)
    table limits {
        key = { }
        actions = { limit_by; @defaultonly NoAction; }
        default_action = NoAction();
    }

    action reply(bit<8> kind, bit<8> code, bit<16> number, bit<16> trigger) {
        own.tracked.message = { kind, code, number, trigger, 0, 0 };
    }

    action notify(bit<2> level, bit<32> dropped) {
        own.tracked.next = { REPLY_CONGESTION, 6w0 ++ level, 0, hold_us[31:16], hold_us[15:0], dropped };
    }

    action set_checksum() {
        own.report.checksum = CRC_IEEE_ANY(own.report.crc_ieee, own.report.key);
    }

    apply {
        if (own.again.passes == 0) {
            own.again.port = meta.ingress_port;
            own.again.at = meta.ingress_global_timestamp;
        }
        bit<48> now = own.again.at;
        // Priority 3 does not exist.
        if (meta.parser_error != error.NoError || meta.checksum_error == 1 || all.report.dta.priority == 3) {
            own.report.is_report = 0;
        }
        if (all.report.timer.isValid()) {
            timer_port.apply();
        } else if (all.report.udp.isValid() && all.report.udp.dst_port == PORT_DTA) {
            collector.apply();
        }
        if (is_for_us == 1) {
            opcode = all.report.dta.opcode;
            if (all.report.timer.isValid()) {
                opcode = all.report.timer.opcode;
                id = all.report.timer.id;
            } else if (all.report.append.isValid()) {
                id = all.report.append.list;
            } else if (all.report.postcard.isValid()) {
                id = (bit<32>)all.report.postcard.store;
            } else if (all.sketch.isValid()) {
                id = (bit<32>)all.sketch.sketch;
            } else if (all.report.key_write.isValid()) {
                id = (bit<32>)all.report.key_write.store;
                own.report.copies = all.report.key_write.copies;
            } else {
                id = (bit<32>)all.report.key_increment.store;
                own.report.copies = all.report.key_increment.copies;
                own.report.delta = all.report.key_increment.delta;
            }
            own.report.notice = (all.report.dta.isValid() && all.report.dta.immediate == 1) ? 1w1 : 1w0;
            own.tracked.reliable = (all.report.dta.isValid() && all.report.dta.essential == 1) ? 1w1 : 1w0;
            own.report.immediate = opcode ++ id[27:0];
            bit<32> outcome = DTA_DONE;
            bit<1> executes = 1;
            bit<1> evicts = 0;
            bit<1> goes_on = 0;
            // An essential report whose base header can be read has a number, whatever follows it.
            bit<1> is_essential = 0;
            if (all.report.dta.isValid() && all.report.dta.essential == 1 && all.report.dta.version == 1 && all.report.dta.opcode != 0 && all.report.dta.opcode <= OP_SKETCH
                    && all.report.dta.priority != 3 && meta.checksum_error == 0) {
                is_essential = 1;
            }
            if (own.report.is_report == 0 && !all.report.timer.isValid()) {
                outcome = DTA_UNREADABLE;
                executes = 0;
            }
            bit<1> is_due = 1;
            bit<2> level = 0;
            bit<64> message_cost = 0;
            bit<64> byte_cost = 0;
            bit<1> is_congested = 0;
            limits.apply();
            tracking.apply();
            // What was merged in an earlier pass was judged then.
            if (own.again.pumps == 1) { is_essential = 0; }
            if (own.again.pumps == 0 && executes == 1 && !all.report.timer.isValid()) {
                sender.apply();
                if (own.again.passes == 0) { rate.apply(sender_index, now, idle_us, report_cost, report_burst, is_congested); }
                if (is_congested == 1) {
                    outcome = DTA_METERED;
                    executes = 0;
                    level = 2;
                }
            }
            if (own.again.pumps == 0 && (is_essential == 1 || (executes == 1 && all.sketch.isValid()))) {
                bit<16> sequence = all.report.dta.sequence;
                bit<1> is_tracked = reporter.apply().hit ? 1w1 : 1w0;
                if (is_tracked == 0 || reporter_ip != all.report.ipv4.src) {
                    is_essential = 0;
                    if (executes == 1) { outcome = is_tracked == 0 ? DTA_REPORTERS_FULL : DTA_FORGED; }
                    executes = 0;
                } else if (is_essential == 0) {
                    // Columns need a known reporter, not a number.
                } else if (outcome == DTA_METERED) {
                    bit<17> last;
                    last_of.read(last, tracker);
                    if (last[16:16] == 1 && sequence - last[15:0] != 1) { is_due = 0; }
                } else if (executes == 0) {
                    // After a gap there is nothing to do: the reporter will send it again.
                    bit<17> last;
                    last_of.read(last, tracker);
                    if (last[16:16] == 1 && sequence - last[15:0] != 1) { is_due = 0; } else { seen_at.write(tracker, now); }
                } else {
                    bit<2> verdict;
                    bit<1> nacks;
                    bit<16> lost;
                    bit<1> restarts;
                    classify.apply(tracker, sequence, now, idle_us, interval_us, nack_limit, verdict, nacks, lost, restarts);
                    if (restarts == 1) { sequences.count(SEQUENCES_RESTARTS); }
                    bit<64> all_lost;
                    lost_numbers.read(all_lost, 0);
                    lost_numbers.write(0, all_lost + (bit<64>)lost);
                    if (verdict != IS_DUE) {
                        is_due = 0;
                        executes = 0;
                        outcome = verdict == IS_GAP ? DTA_GAP : DTA_DUPLICATE;
                    }
                    if (nacks == 1) {
                        bit<17> last;
                        last_of.read(last, tracker);
                        reply(REPLY_NACK, CODE_GAP, last[15:0], sequence);
                    }
                }
            }
            if (executes == 1) {
                load.apply(own.report.collector, now, ~own.again.passes, level, message_cost, byte_cost);
                if (own.again.passes == 1) { level = own.again.level; }
                own.again.level = level;
                if (own.again.passes == 0 && all.report.dta.isValid()) {
                    bit<1> is_important = (all.report.dta.essential == 1 || all.report.dta.priority == 2) ? 1w1 : 1w0;
                    if (is_important == 1) {
                        // There is no local memory in which it could wait.
                        if (level == 3) { outcome = DTA_CONGESTED_HIGH; }
                    } else if (all.report.dta.priority == 1) {
                        if (level >= 2) { outcome = DTA_CONGESTED_MEDIUM; }
                    } else if (level != 0) {
                        outcome = DTA_CONGESTED_LOW;
                    }
                    if (outcome != DTA_DONE) {
                        is_congested = 1;
                        executes = 0;
                    }
                }
            }
            if (executes == 1) {
                if (!store.apply().hit) {
                    outcome = DTA_UNKNOWN_STORE;
                    if (opcode == OP_APPEND) { outcome = DTA_UNKNOWN_LIST; }
                    if (opcode == OP_SKETCH) { outcome = DTA_UNKNOWN_SKETCH; }
                } else if (opcode == OP_APPEND) {
                    if (all.report.append.isValid() && own.report.words != list_words) {
                        outcome = DTA_WRONG_ENTRY;
                    } else {
                        own.report.copies = 1;
                        batch.apply(all.report, own.report, own.tracked.reliable, now, list_index, batch_entries, list_entries, list_words, list_timer);
                    }
                } else if (opcode == OP_POSTCARD) {
                    if (all.report.postcard.isValid() && all.report.postcard.hop > path_hops) {
                        outcome = DTA_WRONG_HOP;
                    } else {
                        own.report.copies = 1;
                        own.report.has_checksum = 1;
                        paths.apply(all.report, own.report, own.tracked.reliable, now, first_place, place_mask, path_hops, list_timer);
                    }
                } else if (opcode == OP_SKETCH) {
                    merge.apply(all, own, now, tracker, interval_us, outcome, evicts, goes_on);
                } else if (all.report.key_write.isValid() && own.report.words > own.report.written) {
                    outcome = DTA_TOO_MUCH_DATA;
                } else {
                    set_checksum();
                    bit<8> most = copies_0;
                    if (level == 1) { most = copies_1; }
                    if (level == 2) { most = copies_2; }
                    if (all.report.key_write.isValid() && own.report.copies > most) { own.report.copies = most; }
                    own.report.has_checksum = all.report.key_write.isValid() ? 1w1 : 1w0;
                    own.report.executes = 1;
                }
            }
            // A timer frame is no report; one for a list that does not exist is counted.
            if (own.again.pumps == 0 && evicts == 0 && (!all.report.timer.isValid() || outcome != DTA_DONE)) { reports.count(outcome); }
            if (is_essential == 1 && is_due == 1 && is_congested == 1) {
                bit<1> nacks;
                refuse_number.apply(tracker, all.report.dta.sequence, now, interval_us, nacks);
                if (nacks == 1) {
                    bit<17> last;
                    last_of.read(last, tracker);
                    reply(REPLY_NACK, CODE_OVERLOAD, last[15:0], all.report.dta.sequence);
                }
            } else if (is_essential == 1 && is_due == 1 && evicts == 0) {
                // A report that can never be executed is accepted, too: sending it again would not help.
                bit<1> acks;
                accept_number.apply(tracker, all.report.dta.sequence, acks);
                sequences.count(SEQUENCES_ACCEPTED);
                if (outcome == DTA_DONE || outcome >= DTA_ONE_REPORTER_TOO_MANY) {
                    // Columns that were not merged are asked for by another message.
                    if (acks == 1 && sends_acks == 1) { reply(REPLY_ACK, 0, all.report.dta.sequence, 0); }
                } else {
                    bit<48> at;
                    nacked_at.read(at, tracker);
                    if (at == 0 || now - at >= interval_us) {
                        nacked_at.write(tracker, now);
                        bit<1> is_unknown = (outcome == DTA_UNKNOWN_STORE || outcome == DTA_UNKNOWN_LIST || outcome == DTA_UNKNOWN_SKETCH) ? 1w1 : 1w0;
                        reply(REPLY_NACK, is_unknown == 1 ? CODE_UNKNOWN : CODE_MALFORMED, all.report.dta.sequence, all.report.dta.sequence);
                    }
                }
            }
            if (sender_index < DTA_SENDERS && (is_congested == 1 || (outcome == DTA_DONE && level == 0 && evicts == 0))) {
                bit<1> is_notice_due;
                bit<32> dropped;
                notices.apply(sender_index, now, hold_us, level, outcome == DTA_METERED ? 1w1 : 1w0, is_congested, is_notice_due, dropped);
                if (is_notice_due == 1) {
                    notify(level, dropped);
                    messages.count(MESSAGES_CONGESTION);
                }
            }
            if (own.tracked.message.kind != 0) { messages.count(own.tracked.message.kind == REPLY_ACK ? MESSAGES_ACK : (bit<32>)own.tracked.message.code); }
            if (own.tracked.next.kind == REPLY_SKETCH_NACK) { messages.count(MESSAGES_SKETCH_NACK); }
            if (outcome == DTA_METERED && own.tracked.message.kind != 0 && own.tracked.next.kind != 0) {
                // The notice goes first.
                bit<16> last = own.tracked.message.first;
                own.tracked.message = { REPLY_CONGESTION, own.tracked.next.code, 0, own.tracked.next.second, own.tracked.next.third, own.tracked.next.number };
                own.tracked.next = { REPLY_NACK, CODE_OVERLOAD, last, all.report.dta.sequence, 0, 0 };
            }
            if (own.tracked.message.kind != 0 || own.tracked.next.kind != 0) {
                clone_preserving_field_list(CloneType.I2E, REPLY_SESSION + (bit<32>)own.again.port, REPLY_FIELDS);
            }
            if (own.report.executes == 1) {
                bit<64> bytes = (bit<64>)own.report.written << 2;
                if (own.report.has_checksum == 1) { bytes = bytes + 4; }
                if (all.report.key_increment.isValid()) { bytes = 8; }
                spend.apply(own.report.collector, message_cost, byte_cost, (bit<64>)own.report.copies, bytes);
                // An addition with a notice is followed by an empty write.
                bit<8> replicas = own.report.copies;
                if (all.report.key_increment.isValid() && own.report.notice == 1) { replicas = replicas + 1; }
                if (goes_on == 1) {
                    replicas = AGAIN_GROUP;
                    own.again.passes = 1;
                    own.again.pumps = ~evicts;
                }
                meta.mcast_grp = (bit<16>)(own.report.collector << 3) + (bit<16>)replicas;
            } else {
                drop();
            }
        } else if (all.report.aeth.isValid()) {
            if (meta.parser_error == error.NoError && all.report.bth.opcode == RC_ACKNOWLEDGE && all.report.aeth.syndrome == NAK_SEQUENCE) {
                bit<32> crc;
                hash(crc, HashAlgorithm.crc32, 32w0,
                    { 64w0xffffffffffffffff, all.report.ipv4.version, all.report.ipv4.ihl, 8w0xff, all.report.ipv4.total_len, all.report.ipv4.id, all.report.ipv4.flags,
                      all.report.ipv4.fragment, 8w0xff, all.report.ipv4.proto, 16w0xffff, all.report.ipv4.src, all.report.ipv4.dst, all.report.udp.src_port, all.report.udp.dst_port,
                      all.report.udp.len, 16w0xffff, all.report.bth.opcode, all.report.bth.solicited, all.report.bth.migrated, all.report.bth.pad, all.report.bth.version,
                      all.report.bth.partition, 8w0xff, all.report.bth.queue_pair, all.report.bth.ack_request, all.report.bth.rsvd, all.report.bth.psn, all.report.aeth },
                    64w0x100000000);
                if (all.report.icrc.value == crc[7:0] ++ crc[15:8] ++ crc[23:16] ++ crc[31:24]) { answer.apply(); }
            }
            drop();
        } else if (!all.report.timer.isValid()) {
            other.apply();
        } else {
            drop();
        }
    }
}

#define NO_COLUMN(n) all.columns[n].setInvalid();
#define COLUMN_DATA(n) if (all.columns[n].isValid()) { all.report.data[n] = all.columns[n]; all.columns[n].setInvalid(); }

control DtaEgress(inout translator_headers_t all, inout translator_local_t own, inout standard_metadata_t meta) {
    Translate() translate;
    Reply() reply;

    apply {
        if (meta.instance_type == INGRESS_CLONE || meta.instance_type == EGRESS_CLONE) {
            reply.apply(all, own, meta.instance_type == INGRESS_CLONE ? 1w1 : 1w0);
            truncate(own.report.frame_bytes);
            if (own.tracked.message.kind != 0 && own.tracked.next.kind != 0) {
                clone_preserving_field_list(CloneType.E2E, REPLY_SESSION + (bit<32>)own.again.port, SECOND_FIELDS);
            }
        } else if (meta.egress_rid == AGAIN_REPLICA) {
            own.report.executes = 0;
            EACH_WORD(NO_COLUMN)
            recirculate_preserving_field_list(AGAIN_FIELDS);
        } else if (own.report.executes == 1) {
            EACH_WORD(COLUMN_DATA)
            all.sketch.setInvalid();
            translate.apply(all.report, own.report, own.tracked.reliable, (bit<8>)meta.egress_rid - 1);
            truncate(own.report.frame_bytes);
        }
    }
}

control DtaChecksum(inout translator_headers_t all, inout translator_local_t own) {
    apply {
        update_checksum(own.report.executes == 1 || own.tracked.message.kind != 0 || own.tracked.next.kind != 0,
            { all.report.ipv4.version, all.report.ipv4.ihl, all.report.ipv4.dscp, all.report.ipv4.ecn, all.report.ipv4.total_len, all.report.ipv4.id, all.report.ipv4.flags, all.report.ipv4.fragment,
              all.report.ipv4.ttl, all.report.ipv4.proto, all.report.ipv4.src, all.report.ipv4.dst },
            all.report.ipv4.checksum, HashAlgorithm.csum16);
    }
}

#define KEY_EMIT(bytes, bits) packet.emit(all.report.key_ ## bytes);

control DtaDeparser(packet_out packet, in translator_headers_t all) {
    apply {
        packet.emit(all.report.ethernet);
        packet.emit(all.report.timer);
        packet.emit(all.report.ipv4);
        packet.emit(all.report.udp);
        packet.emit(all.report.dta);
        packet.emit(all.reply);
        packet.emit(all.reply_number);
        packet.emit(all.sketch);
        packet.emit(all.report.key_write);
        packet.emit(all.report.append);
        packet.emit(all.report.key_increment);
        packet.emit(all.report.postcard);
        EACH_KEY(KEY_EMIT)
        packet.emit(all.report.bth);
        packet.emit(all.report.reth);
        packet.emit(all.report.atomic);
        packet.emit(all.report.immediate);
        packet.emit(all.report.aeth);
        packet.emit(all.report.checksum);
        packet.emit(all.report.data);
        packet.emit(all.report.icrc);
    }
}

V1Switch(DtaParser(), DtaVerify(), DtaIngress(), DtaEgress(), DtaChecksum(), DtaDeparser()) main;
