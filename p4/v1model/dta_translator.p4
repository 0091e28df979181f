// SPDX-License-Identifier: Apache-2.0 OR MIT
// The DTA translator on v1model: reports in, RDMA operations out, over IPv4. Other packets are forwarded by their ingress port.
//
// Ingress finds the store and holds the entries of lists; the packet's replicas, of a multicast group for each collector and number of
// copies, become operations at egress. The group of N replicas to collector C is 8 C + N.

#include <core.p4>
#include <v1model.p4>

#include "../shared/headers.p4"
#include "../shared/crc.p4"
#include "../shared/dta.p4"
#include "../control/dta_batch.p4"
#include "../control/dta_paths.p4"
#include "../control/dta_translate.p4"

/// Bytes of UDP and of a report's base header.
const bit<16> BASE_BYTES = 16;

#define KEY_STATE(bytes, bits) state parse_key_ ## bytes { \
    packet.extract(hdr.key_ ## bytes); \
    local.key = (bit<128>)hdr.key_ ## bytes.key; \
    local.crc_c = CRC_32C_LENGTH_ ## bytes; \
    local.crc_d = CRC_32D_LENGTH_ ## bytes; \
    local.crc_k = CRC_32K_LENGTH_ ## bytes; \
    local.crc_q = CRC_32Q_LENGTH_ ## bytes; \
    local.crc_ieee = CRC_IEEE_LENGTH_ ## bytes; \
    transition by_words; \
}
#define KEY_CASE(bytes, bits) bytes: parse_key_ ## bytes;

parser DtaParser(packet_in packet, out dta_headers_t hdr, inout dta_local_t local, inout standard_metadata_t meta) {
    bit<8> left = 0;

    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_TIMER: parse_timer;
            default: accept;
        }
    }

    state parse_timer {
        packet.extract(hdr.timer);
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.flags & 1, hdr.ipv4.fragment, hdr.ipv4.proto, hdr.ipv4.total_len) {
            (4, 5, 0, 0, PROTO_UDP, 28 .. 0xffff): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        bit<1> fits = hdr.udp.len <= hdr.ipv4.total_len - 20 ? 1w1 : 1w0;
        transition select(hdr.udp.dst_port, fits, hdr.udp.len) {
            (PORT_DTA, 1, BASE_BYTES .. 0xffff): parse_dta;
            (PORT_ROCE, 1, 28 .. 0xffff): parse_answer;
            default: accept;
        }
    }

    state parse_answer {
        packet.extract(hdr.bth);
        packet.extract(hdr.aeth);
        packet.extract(hdr.icrc);
        transition accept;
    }

    state parse_dta {
        packet.extract(hdr.dta);
        // Essential reports need the sequence tracker.
        transition select(hdr.dta.version, hdr.dta.opcode, hdr.dta.essential) {
            (1, OP_KEY_WRITE, 0): parse_key_write;
            (1, OP_APPEND, 0): parse_append;
            (1, OP_KEY_INCREMENT, 0): parse_key_increment;
            (1, OP_POSTCARD, 0): parse_postcard;
            default: accept;
        }
    }

    state parse_key_write {
        packet.extract(hdr.key_write);
        local.key_bytes = hdr.key_write.key_bytes;
        left = (bit<8>)(hdr.key_write.data_bytes >> 2);
        local.is_report = hdr.udp.len == BASE_BYTES + 8 + (bit<16>)hdr.key_write.key_bytes + hdr.key_write.data_bytes ? 1w1 : 1w0;
        transition select(local.is_report, hdr.key_write.copies, hdr.key_write.data_bytes) {
            (1, 1 .. 4, 0): refuse;
            (1, 1 .. 4, 0 &&& 0xffc3): by_key;
            (1, 1 .. 4, 64): by_key;
            default: refuse;
        }
    }

    state parse_append {
        packet.extract(hdr.append);
        left = (bit<8>)(hdr.append.entry_bytes >> 2);
        local.is_report = hdr.udp.len == BASE_BYTES + 8 + hdr.append.entry_bytes ? 1w1 : 1w0;
        transition select(local.is_report, hdr.append.count, hdr.append.entry_bytes) {
            (1, 1, 4): by_words;
            (1, 1, 8): by_words;
            (1, 1, 16): by_words;
            (1, 1, 32): by_words;
            (1, 1, 64): by_words;
            default: refuse;
        }
    }

    state parse_key_increment {
        packet.extract(hdr.key_increment);
        local.key_bytes = hdr.key_increment.key_bytes;
        local.is_report = hdr.udp.len == BASE_BYTES + 16 + (bit<16>)hdr.key_increment.key_bytes ? 1w1 : 1w0;
        transition select(local.is_report, hdr.key_increment.copies) {
            (1, 1 .. 4): by_key;
            default: refuse;
        }
    }

    state parse_postcard {
        packet.extract(hdr.postcard);
        local.key_bytes = hdr.postcard.key_bytes;
        local.is_report = hdr.udp.len == BASE_BYTES + 12 + (bit<16>)hdr.postcard.key_bytes ? 1w1 : 1w0;
        bit<1> is_on_path = (hdr.postcard.path_length == 0 || hdr.postcard.hop <= hdr.postcard.path_length) ? 1w1 : 1w0;
        transition select(local.is_report, is_on_path, hdr.postcard.hop, hdr.postcard.value) {
            (_, _, 0, _): refuse;
            (_, _, _, 0xffffffff): refuse;
            (1, 1, _, _): by_key;
            default: refuse;
        }
    }

    state by_key {
        transition select(local.key_bytes) {
            EACH_KEY(KEY_CASE)
            default: refuse;
        }
    }

    EACH_KEY(KEY_STATE)

    state by_words {
        local.words = left;
        transition next_word;
    }

    state next_word {
        transition select(left) {
            0: accept;
            default: parse_word;
        }
    }

    state parse_word {
        packet.extract(hdr.data.next);
        left = left - 1;
        transition next_word;
    }

    state refuse {
        local.is_report = 0;
        transition accept;
    }
}

control DtaVerify(inout dta_headers_t hdr, inout dta_local_t local) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment,
              hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control DtaIngress(inout dta_headers_t hdr, inout dta_local_t local, inout standard_metadata_t meta) {
    Batch() batch;
    Paths() paths;
    @name("reports") counter(DTA_COUNTS, CounterType.packets) reports;
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
        local.collector = (bit<32>)hdr.timer.collector;
        is_for_us = 1;
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
        local.collector = (bit<32>)collector;
        is_for_us = 1;
    }

    /// Collectors by their address: reports to others are forwarded.
    @name("collector") @id(0x02000042)
    table collector {
        key = { hdr.ipv4.dst : exact @name("ipv4_dst"); }
        actions = { translate; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DTA_COLLECTORS;
    }

    @name("resynchronise") @id(0x01000042)
    action resynchronise(@id(1) bit<32> index) {
        psn_of.write(index, hdr.bth.psn);
        resynchronised.count(index);
    }

    /// Our queue pairs, by what collectors call them.
    @name("answer") @id(0x02000044)
    table answer {
        key = {
            hdr.ipv4.src : exact @name("ipv4_src");
            hdr.bth.queue_pair : exact @name("queue_pair");
        }
        actions = { resynchronise; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 2 * DTA_COLLECTORS;
    }

    /// `stride` is the slot's length, as a power of two.
    @name("slots") @id(0x01000044)
    action slots(@id(1) bit<64> address, @id(2) bit<32> rkey, @id(3) bit<32> slot_mask, @id(4) bit<8> stride, @id(5) bit<8> data_words) {
        local.address = address;
        local.rkey = rkey;
        local.mask = slot_mask;
        local.stride = stride;
        local.written = data_words;
    }

    /// `index` numbers the lists of all collectors. A batch has a power of two of entries, and at most 16 words.
    @name("ring") @id(0x01000045)
    action ring(@id(1) bit<64> address, @id(2) bit<32> rkey, @id(3) bit<32> index, @id(4) bit<32> batch_size, @id(5) bit<32> entries,
            @id(6) bit<8> entry_words, @id(7) bit<48> timer) {
        local.address = address;
        local.rkey = rkey;
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

    /// Stores and lists of each collector.
    @name("store") @id(0x02000045)
    table store {
        key = {
            local.collector : exact @name("collector");
            opcode : exact @name("opcode");
            id : exact @name("id");
        }
        actions = { slots; ring; path_slots; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DTA_STORES;
    }

    action set_checksum() {
        local.checksum = CRC_IEEE_ANY(local.crc_ieee, local.key);
    }

    apply {
        // Priority 3 does not exist.
        if (meta.parser_error != error.NoError || meta.checksum_error == 1 || hdr.dta.priority == 3) {
            local.is_report = 0;
        }
        if (hdr.timer.isValid()) {
            timer_port.apply();
        } else if (hdr.udp.isValid() && hdr.udp.dst_port == PORT_DTA) {
            collector.apply();
        }
        if (is_for_us == 1) {
            opcode = hdr.dta.opcode;
            if (hdr.timer.isValid()) {
                opcode = hdr.timer.opcode;
                id = hdr.timer.id;
            } else if (hdr.append.isValid()) {
                id = hdr.append.list;
            } else if (hdr.postcard.isValid()) {
                id = (bit<32>)hdr.postcard.store;
            } else if (hdr.key_write.isValid()) {
                id = (bit<32>)hdr.key_write.store;
                local.copies = hdr.key_write.copies;
            } else {
                id = (bit<32>)hdr.key_increment.store;
                local.copies = hdr.key_increment.copies;
                local.delta = hdr.key_increment.delta;
            }
            local.notice = (hdr.dta.isValid() && hdr.dta.immediate == 1) ? 1w1 : 1w0;
            local.immediate = opcode ++ id[27:0];
            if (local.is_report == 0 && !hdr.timer.isValid()) {
                reports.count(DTA_UNREADABLE);
            } else if (!store.apply().hit) {
                reports.count(opcode == OP_APPEND ? DTA_UNKNOWN_LIST : DTA_UNKNOWN_STORE);
            } else if (opcode == OP_APPEND) {
                if (hdr.append.isValid() && local.words != list_words) {
                    reports.count(DTA_WRONG_ENTRY);
                } else {
                    local.copies = 1;
                    batch.apply(hdr, local, meta.ingress_global_timestamp, list_index, batch_entries, list_entries, list_words, list_timer);
                    if (hdr.append.isValid()) { reports.count(DTA_DONE); }
                }
            } else if (opcode == OP_POSTCARD) {
                if (hdr.postcard.isValid() && hdr.postcard.hop > path_hops) {
                    reports.count(DTA_WRONG_HOP);
                } else {
                    local.copies = 1;
                    local.has_checksum = 1;
                    paths.apply(hdr, local, meta.ingress_global_timestamp, first_place, place_mask, path_hops, list_timer);
                    if (hdr.postcard.isValid()) { reports.count(DTA_DONE); }
                }
            } else if (hdr.key_write.isValid() && local.words > local.written) {
                reports.count(DTA_TOO_MUCH_DATA);
            } else {
                set_checksum();
                local.has_checksum = hdr.key_write.isValid() ? 1w1 : 1w0;
                local.executes = 1;
                reports.count(DTA_DONE);
            }
            if (local.executes == 1) {
                // An addition with a notice is followed by an empty write.
                bit<8> replicas = local.copies;
                if (hdr.key_increment.isValid() && local.notice == 1) { replicas = replicas + 1; }
                meta.mcast_grp = (bit<16>)(local.collector << 3) + (bit<16>)replicas;
            } else {
                drop();
            }
        } else if (hdr.aeth.isValid()) {
            if (meta.parser_error == error.NoError && hdr.bth.opcode == RC_ACKNOWLEDGE && hdr.aeth.syndrome == NAK_SEQUENCE) {
                bit<32> crc;
                hash(crc, HashAlgorithm.crc32, 32w0,
                    { 64w0xffffffffffffffff, hdr.ipv4.version, hdr.ipv4.ihl, 8w0xff, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags,
                      hdr.ipv4.fragment, 8w0xff, hdr.ipv4.proto, 16w0xffff, hdr.ipv4.src, hdr.ipv4.dst, hdr.udp.src_port, hdr.udp.dst_port,
                      hdr.udp.len, 16w0xffff, hdr.bth.opcode, hdr.bth.solicited, hdr.bth.migrated, hdr.bth.pad, hdr.bth.version,
                      hdr.bth.partition, 8w0xff, hdr.bth.queue_pair, hdr.bth.ack_request, hdr.bth.rsvd, hdr.bth.psn, hdr.aeth },
                    64w0x100000000);
                if (hdr.icrc.value == crc[7:0] ++ crc[15:8] ++ crc[23:16] ++ crc[31:24]) { answer.apply(); }
            }
            drop();
        } else if (!hdr.timer.isValid()) {
            other.apply();
        } else {
            drop();
        }
    }
}

control DtaEgress(inout dta_headers_t hdr, inout dta_local_t local, inout standard_metadata_t meta) {
    Translate() translate;

    apply {
        if (local.executes == 1) {
            translate.apply(hdr, local, (bit<8>)meta.egress_rid - 1);
            truncate(local.frame_bytes);
        }
    }
}

control DtaChecksum(inout dta_headers_t hdr, inout dta_local_t local) {
    apply {
        update_checksum(local.executes == 1,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment,
              hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

#define KEY_EMIT(bytes, bits) packet.emit(hdr.key_ ## bytes);

control DtaDeparser(packet_out packet, in dta_headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.timer);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.dta);
        packet.emit(hdr.key_write);
        packet.emit(hdr.append);
        packet.emit(hdr.key_increment);
        packet.emit(hdr.postcard);
        EACH_KEY(KEY_EMIT)
        packet.emit(hdr.bth);
        packet.emit(hdr.reth);
        packet.emit(hdr.atomic);
        packet.emit(hdr.immediate);
        packet.emit(hdr.aeth);
        packet.emit(hdr.checksum);
        packet.emit(hdr.data);
        packet.emit(hdr.icrc);
    }
}

V1Switch(DtaParser(), DtaVerify(), DtaIngress(), DtaEgress(), DtaChecksum(), DtaDeparser()) main;
