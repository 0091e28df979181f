// SPDX-License-Identifier: Apache-2.0 OR MIT
// Report by DTA: makes DTA reports of an event of a packet, by mappings: of its path, of this node's record of it, of its drop, of its queue.
//
// Each pass of a copy of the packet looks up the next mapping of the event, and makes one report of it: of one hop, if the mapping has a
// report for each. Essential reports go to the collector's ring first, and are sent from there, as are those that a translator asks for.
//
// The control plane installs: mappings with their options and fields, collectors, and which keys and lists are theirs; translators. All
// reports leave by the port of one clone session.

#ifndef DTA_REPORT_P4
#define DTA_REPORT_P4

/// Why a report cannot be made: a part that is not known, or an IPv6 address where four bytes are.
const bit<2> VALUE_ABSENT = 1;
const bit<2> VALUE_SIZE = 2;

#define COUNT_HOP(N) if (is_drop == 1 ? hdr.hop_##N.isValid() : hdr.seen_hop_##N.isValid()) { before = before + 1; }
/// The latencies of the records before this node's.
#define ADD_LATENCY(N) if (N < before) { \
    word = local.firsts.hop_##N; \
    if (local.bitmap[15:15] == 1) { word = word << 32; } \
    if (local.bitmap[14:14] == 1) { word = word << 32; } \
    if (word[127:96] == 0xffffffff) { lacks_latency = 1; } \
    latency = latency + (bit<64>)word[127:96]; \
}
#define CHOOSE_HOP(N) if (hop + N == before) { word = local.firsts.hop_##N; }
#define MAKE_WORD(n) if (field_##n != 0) { \
    fetch(field_##n); \
    form.word_##n = value[31:0]; \
    if (value > 0xffffffff) { form.word_##n = 0xfffffffe; } \
    if (is_known == 0) { form.word_##n = 0xffffffff; } \
    if (data_fails == 0) { data_fails = fails; } \
    form.words = n + 1; \
}
#define WRITE_WORD(n) if (n < data_words) { hdr.data[n].setValid(); hdr.data[n].value = form.word_##n; } else { hdr.data[n].setInvalid(); }

/// Writes a report's headers behind those of IP and UDP.
control WriteReport(inout headers_t hdr, in form_t form, in bit<1> essential, in bit<16> sequence, in bit<32> reporter, out bit<32> frame_bytes) {
    apply {
        bit<8> data_words = form.words;
        bit<16> bytes = 8;
        hdr.dta.setValid();
        hdr.dta = { 1, form.opcode, form.immediate, essential, form.priority, 0, sequence, reporter };
        hdr.key_write.setInvalid();
        hdr.append.setInvalid();
        hdr.key_increment.setInvalid();
        hdr.postcard.setInvalid();
        hdr.key_4.setInvalid();
        hdr.key_13.setInvalid();
        hdr.key_16.setInvalid();
        if (form.opcode == OP_KEY_WRITE) {
            hdr.key_write.setValid();
            hdr.key_write = { form.copies, form.key_bytes, (bit<16>)form.words << 2, form.id[15:0], 0 };
            bytes = 8 + 8;
        } else if (form.opcode == OP_APPEND) {
            hdr.append.setValid();
            hdr.append = { form.id, (bit<16>)form.words << 2, 1, 0 };
            bytes = 8 + 8;
        } else if (form.opcode == OP_KEY_INCREMENT) {
            hdr.key_increment.setValid();
            hdr.key_increment = { form.copies, form.key_bytes, form.id[15:0], 0, form.word_0 ++ form.word_1 };
            bytes = 8 + 16;
            data_words = 0;
        } else {
            hdr.postcard.setValid();
            hdr.postcard = { form.copies, form.path_len, form.key_bytes, 0, form.id[15:0], 0, form.word_0 };
            bytes = 8 + 12;
            data_words = 0;
        }
        if (form.key_bytes == 4) { hdr.key_4.setValid(); hdr.key_4.key = form.key[31:0]; }
        if (form.key_bytes == 13) { hdr.key_13.setValid(); hdr.key_13.key = form.key[103:0]; }
        if (form.key_bytes == 16) { hdr.key_16.setValid(); hdr.key_16.key = form.key; }
        EACH_REPORT_WORD(WRITE_WORD)
        bytes = bytes + (bit<16>)form.key_bytes + ((bit<16>)data_words << 2);
        hdr.report_udp.len = 8 + bytes;
        hdr.report_ipv4.total_len = 28 + bytes;
        frame_bytes = 42 + (bit<32>)bytes;
    }
}

control Report(inout headers_t hdr, inout local_t local, in bit<48> us, out bit<32> frame_bytes) {
    Congestion() congestion;
    Destination() destination;
    WriteReport() write_report;
    /// Of each mapping, the reports since the last one of its sample.
    register<bit<32>>(MAPPINGS) seen_of;
    @name("mappings") counter(MAPPINGS * 8, CounterType.packets) mappings;
    @name("controls") counter(CONTROLS, CounterType.packets) controls;

    form_t form;
    dta_message_t message = { 0, 0, 0, 0, 0 };
    bit<3> trigger = 0;
    bit<2> family = NO_FLOW;
    bit<32> v4_src = 0;
    bit<32> v4_dst = 0;
    bit<8> mapping_number = 0;
    bit<8> key_kind = 0;
    bit<16> lists = 1;
    bit<16> number_field = 0;
    bit<32> every = 1;
    bit<1> is_essential = 0;
    bit<1> each_hop = 0;
    bit<16> condition = 0;
    bit<64> least = 0;
    bit<64> most = 0;
    bit<1> negated = 0;
    bit<64> constant = 0;
    bit<16> field_0 = 0;
    bit<16> field_1 = 0;
    bit<16> field_2 = 0;
    bit<16> field_3 = 0;
    bit<16> field_4 = 0;
    bit<16> field_5 = 0;
    bit<16> field_6 = 0;
    bit<16> field_7 = 0;
    bit<32> crc = 0;
    bit<8> crc_byte = 0;
    // What fields are made of: records before this node's, and the packet as it was then.
    bit<8> before = 0;
    bit<64> flow_latency = NEVER;
    bit<8> hop_number = 0;
    bit<32> packet_bytes = 0;
    bit<8> hop_limit = 0;
    bit<64> value = 0;
    bit<1> is_known = 0;
    bit<2> fails = 0;
    bit<1> has_collector = 0;
    bit<16> first_sequence = 0;
    bit<64> patience = 500000;
    bit<64> probe = 20000000;

    /// A value under a key. `key`: KEY_SRC and the like.
    @name("key_write") @id(0x01000050)
    action key_write(@id(1) bit<8> number, @id(2) bit<16> store, @id(3) bit<8> copies, @id(4) bit<8> of_key) {
        mapping_number = number;
        form.opcode = OP_KEY_WRITE;
        form.id = (bit<32>)store;
        form.copies = copies;
        key_kind = of_key;
    }

    /// An entry of a list: of the first one, or of one that the hash of `key` selects of several.
    @name("append") @id(0x01000051)
    action append(@id(1) bit<8> number, @id(2) bit<32> first_list, @id(3) bit<16> number_of_lists, @id(4) bit<8> of_key) {
        mapping_number = number;
        form.opcode = OP_APPEND;
        form.id = first_list;
        lists = number_of_lists;
        key_kind = of_key;
    }

    @name("key_increment") @id(0x01000052)
    action key_increment(@id(1) bit<8> number, @id(2) bit<16> store, @id(3) bit<8> copies, @id(4) bit<8> of_key, @id(5) bit<16> delta) {
        key_write(number, store, copies, of_key);
        form.opcode = OP_KEY_INCREMENT;
        number_field = delta;
    }

    /// A hop of the path of a key. Of a path: each hop.
    @name("postcard") @id(0x01000053)
    action postcard(@id(1) bit<8> number, @id(2) bit<16> store, @id(3) bit<8> of_key, @id(4) bit<16> of_value) {
        key_write(number, store, 0, of_key);
        form.opcode = OP_POSTCARD;
        number_field = of_value;
    }

    /// Mappings, in the order of their numbers: entries of mapping N have positions 0 to N, and a higher priority than those of later ones.
    /// An entry at a position behind its number would make the same reports again and again: it ends the mappings of its packet.
    @name("mapping") @id(0x02000050)
    table mapping {
        key = {
            trigger : exact @name("event");
            local.reporter.position : range @name("position");
            family : ternary @name("flow_kind");
            v4_src : ternary @name("ipv4_src");
            v4_dst : ternary @name("ipv4_dst");
            local.proto : ternary @name("ip_proto");
            local.src_port : range @name("l4_sport");
            local.dst_port : range @name("l4_dport");
        }
        actions = { key_write; append; key_increment; postcard; @defaultonly NoAction; }
        const default_action = NoAction();
        size = MAPPING_ENTRIES;
    }

    /// `sample`: one in so many, at least 1. Reports of each hop: of paths only. A report is made if `field` is known and at least `from` and
    /// at most `to`, or with `negate` not so; field 0: always. `value` is that of FIELD_CONSTANT and KEY_CONSTANT.
    @name("send_options") @id(0x01000054)
    action send_options(@id(1) bit<2> priority, @id(2) bit<1> essential, @id(3) bit<1> immediate, @id(4) bit<32> sample, @id(5) bit<1> hops,
            @id(6) bit<16> field, @id(7) bit<64> from, @id(8) bit<64> to, @id(9) bit<1> negate, @id(10) bit<64> of_constant) {
        form.priority = priority;
        form.immediate = immediate;
        is_essential = essential;
        every = sample;
        each_hop = hops;
        condition = field;
        least = from;
        most = to;
        negated = negate;
        constant = of_constant;
    }

    @name("options") @id(0x02000051)
    table options {
        key = { mapping_number : exact @name("mapping"); }
        actions = { send_options; @defaultonly NoAction; }
        const default_action = NoAction();
        size = MAPPINGS;
    }

    /// Words of data; 0: no more.
    @name("data_fields") @id(0x01000055)
    action data_fields(@id(1) bit<16> word_0, @id(2) bit<16> word_1, @id(3) bit<16> word_2, @id(4) bit<16> word_3, @id(5) bit<16> word_4,
            @id(6) bit<16> word_5, @id(7) bit<16> word_6, @id(8) bit<16> word_7) {
        field_0 = word_0;
        field_1 = word_1;
        field_2 = word_2;
        field_3 = word_3;
        field_4 = word_4;
        field_5 = word_5;
        field_6 = word_6;
        field_7 = word_7;
    }

    @name("data") @id(0x02000052)
    table data {
        key = { mapping_number : exact @name("mapping"); }
        actions = { data_fields; @defaultonly NoAction; }
        const default_action = NoAction();
        size = MAPPINGS;
    }

    @name("to_collector") @id(0x01000056)
    action to_collector(@id(1) bit<8> which) {
        local.reporter.collector = which;
    }

    /// Collectors by the high byte of the CRC-32K of a key, and by list. Without an entry it is the first one.
    @name("key_collector") @id(0x02000053)
    table key_collector {
        key = { crc_byte : exact @name("crc"); }
        actions = { to_collector; }
        default_action = to_collector(0);
        size = 256;
    }

    @name("list_collector") @id(0x02000054)
    table list_collector {
        key = { form.id : exact @name("list"); }
        actions = { to_collector; }
        default_action = to_collector(0);
        size = REPORTER_LISTS;
    }

    /// `first`: the sequence of the first essential report. It should increase with the time of the start.
    @name("report_to") @id(0x01000004)
    action report_to(@id(1) bit<48> src_mac, @id(2) bit<48> dst_mac, @id(3) bit<32> src_ip, @id(4) bit<32> dst_ip, @id(5) bit<16> src_port,
            @id(6) bit<16> dst_port, @id(7) bit<16> first) {
        has_collector = 1;
        first_sequence = first;
        hdr.report_ethernet.setValid();
        hdr.report_ethernet = { dst_mac, src_mac, ETHERTYPE_IPV4 };
        hdr.report_ipv4.setValid();
        hdr.report_ipv4 = { 4, 5, 0, 0, 0, 0, 2, 0, 64, PROTO_UDP, 0, src_ip, dst_ip };
        hdr.report_udp.setValid();
        // No checksum, as IPv4 allows.
        hdr.report_udp = { src_port, dst_port, 0, 0 };
    }

    @name("collector") @id(0x02000055)
    table collector {
        key = { local.reporter.collector : exact @name("collector"); }
        actions = { report_to; @defaultonly NoAction; }
        const default_action = NoAction();
        size = REPORTER_COLLECTORS;
    }

    /// Nanoseconds within which further NACKs for the same gap are ignored, and after which the last essential report is sent again if no
    /// other follows it: eight times, each after twice the time; 0: never.
    @name("repeat") @id(0x01000057)
    action repeat(@id(1) bit<64> ignores, @id(2) bit<64> probes) {
        patience = ignores;
        probe = probes;
    }

    @name("retransmission") @id(0x02000056)
    table retransmission {
        key = { }
        actions = { repeat; @defaultonly NoAction; }
        default_action = NoAction();
    }

    /// The value of a field: a number; whether it is known; and why it makes a report impossible.
    action fetch(bit<16> field) {
        bit<8> hop = field[15:8];
        bit<8> item = field[7:0];
        bit<1> is_subject = hop == 0 ? 1w1 : 1w0;
        bit<8> hops = before + 1;
        if (is_subject == 1) { hop = local.reporter.hop == 0 ? hops : local.reporter.hop; }
        bit<128> word = 0;
        bit<32> node = 0xffffffff;
        bit<32> interfaces = 0xffffffff;
        bit<32> latency = 0xffffffff;
        bit<32> queue = 0xffffffff;
        bit<1> is_own = hop == hops ? 1w1 : 1w0;
        if (is_own == 1) {
            node = local.node;
            bit<16> bits = (trigger == ON_PATH || trigger == ON_HOP) ? local.report_bits : 0xffff;
            if (bits[14:14] == 1) {
                interfaces = local.visit.ingress_if ++ local.visit.egress_if;
                if (local.visit.ingress_if == 0) { interfaces[31:16] = 0xffff; }
                if (local.visit.egress_if == 0) { interfaces[15:0] = 0xffff; }
            }
            // A dropped packet has neither passed a queue nor left.
            if (trigger != ON_DROP) {
                if (bits[13:13] == 1) { latency = (bit<32>)(local.visit.egress_ts - local.visit.ingress_ts); }
                if (bits[12:12] == 1) { queue = local.visit.queue_id ++ local.visit.queue_occupancy; }
            }
        } else if (hop < hops) {
            CHOOSE_HOP(0) CHOOSE_HOP(1) CHOOSE_HOP(2) CHOOSE_HOP(3) CHOOSE_HOP(4) CHOOSE_HOP(5) CHOOSE_HOP(6) CHOOSE_HOP(7)
            if (local.bitmap[15:15] == 1) { node = word[127:96]; word = word << 32; }
            if (local.bitmap[14:14] == 1) { interfaces = word[127:96]; word = word << 32; }
            if (local.bitmap[13:13] == 1) { latency = word[127:96]; word = word << 32; }
            if (local.bitmap[12:12] == 1) { queue = word[127:96]; }
        }
        value = 0;
        is_known = 1;
        fails = 0;
        bit<1> knows_ts = (is_own == 1 && trigger != ON_DROP) ? 1w1 : 1w0;
        if (is_subject == 0 && hop > hops) {
            // A list has zeros for hops that the path does not have.
        } else if (item == FIELD_CONSTANT) {
            value = constant;
        } else if (item == FIELD_SWITCH) {
            value = (bit<64>)local.node;
        } else if (item == FIELD_NODE) {
            value = (bit<64>)node;
            if (node == 0xffffffff) {
                if (is_subject == 1) { value = (bit<64>)local.node; } else { is_known = 0; }
            }
        } else if (item == FIELD_INTERFACES) {
            value = (bit<64>)interfaces;
        } else if (item == FIELD_INGRESS_IF) {
            value = (bit<64>)interfaces[31:16];
            if (interfaces[31:16] == 0xffff) { is_known = 0; }
        } else if (item == FIELD_EGRESS_IF) {
            value = (bit<64>)interfaces[15:0];
            if (interfaces[15:0] == 0xffff) { is_known = 0; }
        } else if (item == FIELD_HOP_LATENCY) {
            value = (bit<64>)latency;
            // This node's own may have any value.
            if (latency == 0xffffffff) { is_known = 0; }
        } else if (item == FIELD_QUEUE_ID) {
            value = (bit<64>)queue[31:24];
            if (queue == 0xffffffff) { is_known = 0; }
        } else if (item == FIELD_QUEUE_OCCUPANCY) {
            value = (bit<64>)queue[23:0];
            if (queue == 0xffffffff) { is_known = 0; }
        } else if (item == FIELD_SRC || item == FIELD_DST) {
            value = (bit<64>)(item == FIELD_SRC ? hdr.ipv4.src : hdr.ipv4.dst);
            if (family == NO_FLOW) { fails = VALUE_ABSENT; }
            if (family == FLOW_V6) { fails = VALUE_SIZE; }
        } else if (item == FIELD_PORTS) {
            value = (bit<64>)(local.src_port ++ local.dst_port);
            if (family == NO_FLOW) { is_known = 0; }
        } else if (item == FIELD_PROTO) {
            value = (bit<64>)local.proto;
            if (family == NO_FLOW) { is_known = 0; }
        } else if (item == FIELD_HOP) {
            value = (bit<64>)hop_number;
            if (hop_number == 0) { is_known = 0; }
        } else if (item == FIELD_PATH_LEN) {
            value = (bit<64>)hops;
        } else if (item == FIELD_FLOW_LATENCY) {
            value = flow_latency;
            if (flow_latency == NEVER) { is_known = 0; }
        } else if (item == FIELD_REASON) {
            value = (bit<64>)local.drop_reason;
            if (trigger != ON_DROP) { is_known = 0; }
        } else if (item == FIELD_CONGESTED) {
            value = (trigger == ON_QUEUE && local.reporter.rises == 0) ? 64w0 : 64w1;
            if (trigger != ON_QUEUE && trigger != ON_CONGESTED_PACKET) { is_known = 0; }
        } else if (item == FIELD_PACKET_BYTES) {
            value = (bit<64>)packet_bytes;
            if (packet_bytes == 0) { is_known = 0; }
        } else if (item == FIELD_HOP_LIMIT) {
            value = (bit<64>)hop_limit;
            if (hop_limit == 0) { is_known = 0; }
        } else if (item == FIELD_INGRESS_TS || item == FIELD_INGRESS_TS_HIGH || item == FIELD_INGRESS_TS_LOW) {
            value = local.visit.ingress_ts;
            if (is_own == 0 || ((trigger == ON_PATH || trigger == ON_HOP) && local.report_bits[11:11] == 0)) { is_known = 0; }
        } else if (item == FIELD_EGRESS_TS || item == FIELD_EGRESS_TS_HIGH || item == FIELD_EGRESS_TS_LOW) {
            value = local.visit.egress_ts;
            if (knows_ts == 0 || ((trigger == ON_PATH || trigger == ON_HOP) && local.report_bits[10:10] == 0)) { is_known = 0; }
        } else {
            is_known = 0;
        }
        if (item == FIELD_INGRESS_TS_HIGH || item == FIELD_EGRESS_TS_HIGH) { value = value >> 32; }
        if (item == FIELD_INGRESS_TS_LOW || item == FIELD_EGRESS_TS_LOW) { value = value & 0xffffffff; }
    }

    action hash_key() {
        crc_byte = (CRC_32K_ANY(crc, form.key))[31:24];
    }

    action hash_list() {
        crc = CRC_IEEE_ANY(crc, form.key);
    }

    apply {
        bit<64> now = (bit<64>)us * 1000;
        bit<1> is_drop = local.drop_reason != 0 ? 1w1 : 1w0;
        bit<1> stores = 0;
        bit<1> sends = 0;
        bit<1> is_made = 0;
        bit<16> sequence = 0;
        bit<1> maps = 0;
        frame_bytes = 0;
        local.reporter.continues = 0;
        form = { 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        retransmission.apply();
        if (local.reporter.is_control == 1) {
            // The first 24 bytes of the payload; zeros behind a shorter one.
            bit<128> head = local.body_0;
            message = { head[63:56], head[55:48], head[47:32], head[31:0], local.body_16[63:32] };
            bit<1> is_short = (message.kind == CONTROL_ACK || message.kind == CONTROL_NACK) ? 1w1 : 1w0;
            bit<1> is_long = (message.kind == CONTROL_SKETCH_NACK || message.kind == CONTROL_CONGESTION) ? 1w1 : 1w0;
            if (head[127:120] != 0x1f || head[117:116] == 3 || (hdr.udp.len != 24 && hdr.udp.len != 28) || local.body_bytes + 8 < hdr.udp.len
                    || (hdr.udp.len == 24 && is_short == 0) || (hdr.udp.len == 28 && is_long == 0)
                    || (message.kind == CONTROL_CONGESTION && message.code > 3)) {
                controls.count(CONTROL_BAD);
                local.reporter.is_control = 0;
            } else if (head[95:64] != local.node) {
                controls.count(CONTROL_MISDIRECTED);
                local.reporter.is_control = 0;
            } else {
                controls.count(CONTROL_PROCESSED);
                if (message.kind == CONTROL_SKETCH_NACK) {
                    controls.count(CONTROL_UNKNOWN_SKETCH);
                    local.reporter.is_control = 0;
                }
            }
        } else if (local.reporter.is_timer == 1) {
            local.reporter.ticks = 1;
        } else if (local.reporter.pumps == 0 && local.reporter.ticks == 0) {
            maps = 1;
        }
        if (maps == 1) {
            if (is_drop == 1) { trigger = ON_DROP; }
            else if (local.queue_report == QUEUE_CHANGED) { trigger = ON_QUEUE; }
            else if (local.queue_report == QUEUE_CONGESTED) { trigger = ON_CONGESTED_PACKET; }
            else if (local.flow_report == FLOW_PATH) { trigger = ON_PATH; }
            else if (local.flow_report != FLOW_NOTHING) { trigger = ON_HOP; }
            if (trigger != ON_QUEUE) {
                family = hdr.ipv4.isValid() ? FLOW_V4 : FLOW_V6;
                if (hdr.ipv4.isValid()) { v4_src = hdr.ipv4.src; v4_dst = hdr.ipv4.dst; }
            }
            if (trigger != 0 && local.reporter.position < MAPPINGS && mapping.apply().hit) {
                if (mapping_number >= local.reporter.position && mapping_number < MAPPINGS) {
                    local.reporter.continues = 1;
                } else {
                    // Each pass is of a later mapping, or of a later hop of the same one: so the passes end, whatever the entries say.
                    mappings.count(((bit<32>)local.reporter.position << 3) + (bit<32>)MADE_MISPLACED);
                }
            }
        }
        if (local.reporter.continues == 1) {
            options.apply();
            data.apply();
            // The packet as it was then.
            if (trigger == ON_CONGESTED_PACKET) {
                packet_bytes = family == FLOW_V4 ? (bit<32>)hdr.arrived_ipv4.total_len : (bit<32>)hdr.arrived_ipv6.payload_len + 40;
                hop_limit = family == FLOW_V4 ? hdr.arrived_ipv4.ttl : hdr.arrived_ipv6.hop_limit;
            } else if (trigger == ON_DROP) {
                packet_bytes = family == FLOW_V4 ? (bit<32>)hdr.ipv4.total_len : (bit<32>)hdr.ipv6.payload_len + 40;
                hop_limit = family == FLOW_V4 ? hdr.ipv4.ttl : hdr.ipv6.hop_limit;
            } else if (trigger != ON_QUEUE) {
                packet_bytes = family == FLOW_V4 ? (bit<32>)hdr.seen_ipv4.total_len : (bit<32>)hdr.seen_ipv6.payload_len + 40;
                hop_limit = family == FLOW_V4 ? hdr.seen_ipv4.ttl : hdr.seen_ipv6.hop_limit;
            }
            if (trigger == ON_PATH || trigger == ON_DROP) {
                COUNT_HOP(0) COUNT_HOP(1) COUNT_HOP(2) COUNT_HOP(3) COUNT_HOP(4) COUNT_HOP(5) COUNT_HOP(6) COUNT_HOP(7)
            }
            bit<8> hops = before + 1;
            bit<1> is_postcard = form.opcode == OP_POSTCARD ? 1w1 : 1w0;
            bit<1> is_each = (trigger == ON_PATH && (each_hop == 1 || is_postcard == 1)) ? 1w1 : 1w0;
            if (is_each == 1 && local.reporter.hop == 0) { local.reporter.hop = 1; }
            if (trigger == ON_PATH) {
                hop_number = is_each == 1 ? local.reporter.hop : hops;
            } else if (hop_limit != 0) {
                hop_number = (hop_limit <= 64 ? 8w64 : (hop_limit <= 128 ? 8w128 : 8w255)) - hop_limit;
            }
            bit<64> latency = 0;
            bit<1> lacks_latency = 0;
            bit<128> word;
            ADD_LATENCY(0) ADD_LATENCY(1) ADD_LATENCY(2) ADD_LATENCY(3) ADD_LATENCY(4) ADD_LATENCY(5) ADD_LATENCY(6) ADD_LATENCY(7)
            if ((trigger == ON_PATH || trigger == ON_HOP) && local.report_bits[13:13] == 0 && local.report_bits[11:10] != 3) { lacks_latency = 1; }
            if ((before != 0 && local.bitmap[13:13] == 0) || is_drop == 1) { lacks_latency = 1; }
            latency = latency + (bit<64>)(local.visit.egress_ts - local.visit.ingress_ts)[31:0];
            flow_latency = lacks_latency == 1 ? NEVER : latency;
            bit<1> is_met = 1;
            if (condition != 0) {
                fetch(condition);
                is_met = (is_known == 1 && fails == 0 && ((value >= least && value <= most) != (negated == 1))) ? 1w1 : 1w0;
            }
            bit<32> seen;
            seen_of.read(seen, (bit<32>)mapping_number);
            bit<1> is_chosen = (is_met == 1 && seen == 0) ? 1w1 : 1w0;
            bit<1> is_counted = is_met;
            bit<32> outcome = (bit<32>)mapping_number << 3;
            if (local.stack_words >= (bit<16>)local.record_words && local.record_words != 0 && (trigger == ON_PATH || trigger == ON_DROP)) {
                mappings.count(outcome + (bit<32>)MADE_TOO_LONG);
                is_chosen = 0;
                is_counted = 0;
                local.reporter.hop = hops;
            }
            if (is_each == 1) {
                // A path is reported completely or not at all: its postcards count as one.
                if (is_postcard == 1) {
                    local.reporter.has_met = local.reporter.has_met | is_counted;
                    is_counted = local.reporter.hop == hops ? local.reporter.has_met : 1w0;
                }
            }
            if (is_counted == 1) { seen_of.write((bit<32>)mapping_number, seen + 1 >= every ? 0 : seen + 1); }
            if (is_chosen == 1) {
                bit<2> key_fails = 0;
                bit<2> data_fails = 0;
                if (key_kind == KEY_CONSTANT) {
                    form.key = (bit<128>)constant[31:0];
                } else if (key_kind == KEY_SWITCH) {
                    form.key = (bit<128>)local.node;
                } else if (key_kind == KEY_NODE) {
                    fetch((bit<16>)FIELD_NODE);
                    form.key = (bit<128>)value[31:0];
                } else if (key_kind != 0 && family == NO_FLOW) {
                    key_fails = VALUE_ABSENT;
                } else if (key_kind == KEY_FLOW) {
                    form.key = (bit<128>)(hdr.ipv4.src ++ hdr.ipv4.dst ++ local.src_port ++ local.dst_port ++ local.proto);
                    if (family == FLOW_V6) { key_fails = VALUE_SIZE; }
                } else if (family == FLOW_V4) {
                    form.key = (bit<128>)(key_kind == KEY_SRC ? hdr.ipv4.src : hdr.ipv4.dst);
                } else {
                    form.key = key_kind == KEY_SRC ? hdr.ipv6.src : hdr.ipv6.dst;
                }
                form.key_bytes = 4;
                crc = CRC_32K_LENGTH_4;
                if (key_kind == KEY_FLOW) {
                    form.key_bytes = 13;
                    crc = CRC_32K_LENGTH_13;
                } else if (family == FLOW_V6 && (key_kind == KEY_SRC || key_kind == KEY_DST)) {
                    form.key_bytes = 16;
                    crc = CRC_32K_LENGTH_16;
                }
                MAKE_WORD(0) MAKE_WORD(1) MAKE_WORD(2) MAKE_WORD(3) MAKE_WORD(4) MAKE_WORD(5) MAKE_WORD(6) MAKE_WORD(7)
                bit<1> is_append = form.opcode == OP_APPEND ? 1w1 : 1w0;
                if (form.opcode == OP_KEY_INCREMENT || is_postcard == 1) {
                    fetch(number_field);
                    data_fails = is_known == 0 ? VALUE_ABSENT : fails;
                    form.word_0 = value[63:32];
                    form.word_1 = value[31:0];
                    form.words = 2;
                }
                if (is_postcard == 1) {
                    if (data_fails == 0 && form.word_0 != 0) { data_fails = VALUE_SIZE; }
                    form.word_0 = form.word_1;
                    if (data_fails == 0 && (form.word_0 == 0xffffffff || hop_number == 0)) { data_fails = VALUE_ABSENT; }
                    form.copies = hop_number;
                    form.path_len = trigger == ON_PATH ? hops : 8w0;
                    form.words = 1;
                }
                if (is_append == 1) {
                    if (lists > 1) {
                        crc = CRC_IEEE_LENGTH_4;
                        if (form.key_bytes == 13) { crc = CRC_IEEE_LENGTH_13; }
                        if (form.key_bytes == 16) { crc = CRC_IEEE_LENGTH_16; }
                        hash_list();
                        form.id = form.id + ((bit<64>)crc * (bit<64>)lists)[63:32];
                    } else {
                        key_fails = 0;
                    }
                    form.key_bytes = 0;
                    form.key = 0;
                    list_collector.apply();
                } else {
                    hash_key();
                    key_collector.apply();
                }
                bit<1> suppresses;
                congestion.apply(local.reporter.collector, now, form.priority, suppresses);
                bit<2> failed = key_fails;
                // Entries of lists are suppressed before their contents are examined.
                if (failed == 0 && (is_append == 0 || suppresses == 0)) { failed = data_fails; }
                if (failed == VALUE_ABSENT) {
                    mappings.count(outcome + (bit<32>)MADE_ABSENT);
                } else if (failed == VALUE_SIZE) {
                    mappings.count(outcome + (bit<32>)MADE_SIZE);
                } else if (suppresses == 1) {
                    mappings.count(outcome + (bit<32>)MADE_SUPPRESSED);
                } else {
                    mappings.count(outcome + (bit<32>)MADE_SENT);
                    stores = is_essential;
                    is_made = ~is_essential;
                }
            }
            if (is_each == 1 && local.reporter.hop < hops) {
                local.reporter.position = mapping_number;
                local.reporter.hop = local.reporter.hop + 1;
            } else {
                local.reporter.position = mapping_number + 1;
                local.reporter.hop = 0;
                local.reporter.has_met = 0;
            }
        }
        collector.apply();
        if (stores == 1 || local.reporter.is_control == 1 || local.reporter.pumps == 1 || local.reporter.ticks == 1) {
            destination.apply(local, form, message, now, stores, first_sequence, patience, probe, sends, sequence);
        }
        if (local.reporter.pumps == 1 || local.reporter.ticks == 1) { local.reporter.continues = 1; }
        // After stored reports, the mappings go on.
        if (maps == 0 && (local.queue_report != QUEUE_NOTHING || local.flow_report != FLOW_NOTHING || is_drop == 1)) { local.reporter.continues = 1; }
        if ((is_made == 1 || sends == 1) && has_collector == 1) {
            write_report.apply(hdr, form, sends, sequence, local.node, frame_bytes);
        }
        if (local.reporter.continues == 0) {
            local.reporter.position = 0;
            local.reporter.hop = 0;
        }
    }
}

#endif
