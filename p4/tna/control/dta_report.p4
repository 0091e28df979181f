// SPDX-License-Identifier: Apache-2.0 OR MIT
// Report by DTA: makes a Key-Write of the copy of a packet, which has this node's record in front of it, and nothing else of the packet. The
// key is the Flow ID and the node's id; the hash of the key selects the collector, as in the program for v1model.

#ifndef TNA_DTA_REPORT_P4
#define TNA_DTA_REPORT_P4

control Report(inout leaving_t hdr, inout leaving_local_t local, inout bit<3> drops) {
    CRCPolynomial<bit<32>>(32w0x741b8cd7, true, false, false, 32w0xffffffff, 32w0xffffffff) polynomial;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) hash;
    bit<32> crc = 0;
    bit<8> collector_number = 0;

    action drop() { drops = 1; }

    action hash_key() { crc = hash.get({ hdr.last.value, local.node }); }

    @name("to_collector") @id(0x01000056)
    action to_collector(@id(1) bit<8> which) { collector_number = which; }

    /// Collectors by the high byte of the CRC-32K of a key.
    @name("key_collector") @id(0x02000053)
    table key_collector {
        key = { crc[31:24] : exact @name("crc"); }
        actions = { to_collector; }
        default_action = to_collector(0);
        size = 256;
    }

    /// The mapping: store, copies, and how the translator handles it.
    @name("key_write") @id(0x01000050)
    action key_write(@id(1) bit<16> store, @id(2) bit<8> copies, @id(3) bit<1> notice, @id(4) bit<2> priority) {
        hdr.dta.setValid();
        hdr.dta.version = 1;
        hdr.dta.opcode = OP_KEY_WRITE;
        hdr.dta.immediate = notice;
        hdr.dta.essential = 0;
        hdr.dta.priority = priority;
        hdr.dta.rsvd = 0;
        hdr.dta.sequence = 0;
        hdr.dta.reporter = local.node;
        hdr.key_write.setValid();
        hdr.key_write.copies = copies;
        hdr.key_write.key_bytes = 8;
        hdr.key_write.store = store;
        hdr.key_write.rsvd = 0;
        hdr.key.setValid();
        hdr.key.key[63:32] = hdr.last.value;
        hdr.key.key[31:0] = local.node;
    }

    @name("mapping") @id(0x02000050)
    table mapping {
        key = { }
        actions = { key_write; drop; }
        default_action = drop();
        size = 1;
    }

    @name("report_to") @id(0x01000004)
    action report_to(@id(1) bit<48> src_mac, @id(2) bit<48> dst_mac, @id(3) bit<32> src_ip, @id(4) bit<32> dst_ip, @id(5) bit<16> src_port,
            @id(6) bit<16> dst_port) {
        hdr.report_ethernet.setValid();
        hdr.report_ethernet.dst = dst_mac;
        hdr.report_ethernet.src = src_mac;
        hdr.report_ethernet.ethertype = ETHERTYPE_IPV4;
        hdr.report_ipv4.setValid();
        hdr.report_ipv4.version = 4;
        hdr.report_ipv4.ihl = 5;
        hdr.report_ipv4.dscp = 0;
        hdr.report_ipv4.ecn = 0;
        hdr.report_ipv4.id = 0;
        hdr.report_ipv4.flags = 2;
        hdr.report_ipv4.fragment = 0;
        hdr.report_ipv4.ttl = 64;
        hdr.report_ipv4.proto = PROTO_UDP;
        hdr.report_ipv4.src = src_ip;
        hdr.report_ipv4.dst = dst_ip;
        hdr.report_udp.setValid();
        hdr.report_udp.src_port = src_port;
        hdr.report_udp.dst_port = dst_port;
        // None, as IPv4 allows.
        hdr.report_udp.checksum = 0;
    }

    @name("collector") @id(0x02000055)
    table collector {
        key = { collector_number : exact @name("collector"); }
        actions = { report_to; @defaultonly drop; }
        const default_action = drop();
        size = 256;
    }

    action set_lengths(bit<16> data, bit<16> udp, bit<16> ip) {
        hdr.key_write.data_bytes = data;
        hdr.report_udp.len = udp;
        hdr.report_ipv4.total_len = ip;
    }

    /// Of the data, by items.
    table lengths {
        key = { hdr.measured.bits : exact; }
        actions = { set_lengths; @defaultonly drop; }
        const default_action = drop();
        const entries = {
#include "../tables/data_lengths.p4"
        }
        size = 32;
    }

    action remove_interfaces() { hdr.interfaces.setInvalid(); }
    action remove_queue() { hdr.queue.setInvalid(); }
    action remove_ingress_ts() { hdr.ingress_ts.setInvalid(); }
    action remove_egress_ts() { hdr.egress_ts.setInvalid(); }
    action add_latency() {
        hdr.latency.setValid();
        hdr.latency.value = hdr.egress_ts.value[31:0] - hdr.ingress_ts.value[31:0];
    }
    action add_ingress_zero() {
        hdr.ingress_zero.setValid();
        hdr.ingress_zero.value = 0;
    }
    action add_egress_zero() {
        hdr.egress_zero.setValid();
        hdr.egress_zero.value = 0;
    }
    action remove_last() { hdr.last.setInvalid(); }

    apply {
        hash_key();
        key_collector.apply();
        collector.apply();
        mapping.apply();
        lengths.apply();
        if (hdr.measured.bits & 0x2000 != 0) { add_latency(); }
        if (hdr.measured.bits & 0x4000 == 0) { remove_interfaces(); }
        if (hdr.measured.bits & 0x1000 == 0) { remove_queue(); }
        if (hdr.measured.bits & 0x0800 == 0) { remove_ingress_ts(); } else { add_ingress_zero(); }
        if (hdr.measured.bits & 0x0400 == 0) { remove_egress_ts(); } else { add_egress_zero(); }
        remove_last();
    }
}

#endif
