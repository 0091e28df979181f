// SPDX-License-Identifier: Apache-2.0 OR MIT
// Session: addresses and sequence of reports, as in `control/report.p4`. Its register is in the pipe of the collector's port.

#ifndef TNA_REPORT_SESSION_P4
#define TNA_REPORT_SESSION_P4

control Session(inout leaving_t hdr, in bit<32> node_id, inout bit<3> drops) {
    Register<bit<32>, bit<1>>(1, 0) sequence;
    RegisterAction<bit<32>, bit<1>, bit<32>>(sequence) next_sequence = {
        void apply(inout bit<32> value, out bit<32> was) { was = value; value = value + 1; }
    };
    bit<32> seq = 0;

    action drop() { drops = 1; }

    @name("report_to") @id(0x01000004)
    action report_to(@id(1) bit<48> src_mac, @id(2) bit<48> dst_mac, @id(3) bit<32> src_ip, @id(4) bit<32> dst_ip, @id(5) bit<16> dst_port) {
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
        hdr.report_udp.src_port = 0;
        hdr.report_udp.dst_port = dst_port;
        // None, as IPv4 allows.
        hdr.report_udp.checksum = 0;
    }

    @name("report_session") @id(0x02000005)
    table report_session {
        key = { }
        actions = { report_to; drop; }
        default_action = drop();
        size = 1;
    }

    action do_next_sequence() { seq = next_sequence.execute(0); }
    action write_group() {
        hdr.group.setValid();
        hdr.group.version = REPORT_VERSION;
        hdr.group.hw_id = 0;
        hdr.group.node = node_id;
        hdr.group.seq = seq[21:0];
    }

    apply {
        report_session.apply();
        do_next_sequence();
        write_group();
    }
}

#endif
