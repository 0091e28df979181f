// SPDX-License-Identifier: Apache-2.0 OR MIT
// Record: one item for each instruction bit that this program knows (INT data plane specification 2.1, section 5.7.1), and what changes
// with it.

#ifndef TNA_INT_RECORD_P4
#define TNA_INT_RECORD_P4

control Record(inout leaving_t hdr, inout leaving_local_t local, in egress_intrinsic_metadata_t meta,
        in egress_intrinsic_metadata_from_parser_t from_parser) {
    action grow() {
        local.covered = local.covered + hdr.change.grown;
        hdr.shim.length = hdr.shim.length + hdr.change.words;
        hdr.md.remaining = hdr.md.remaining |-| 1;
    }
    action grow_v4() {
        grow();
        hdr.ipv4.total_len = hdr.ipv4.total_len + hdr.change.grown;
    }
    action grow_v6() {
        grow();
        hdr.ipv6.payload_len = hdr.ipv6.payload_len + hdr.change.grown;
    }
    action grow_udp() { hdr.udp.len = hdr.udp.len + hdr.change.grown; }
    action add_node() {
        hdr.node.setValid();
        hdr.node.value = local.node;
    }
    action add_interfaces() {
        hdr.interfaces.setValid();
        hdr.interfaces.ingress = hdr.change.ingress_if;
        hdr.interfaces.egress = (bit<16>)meta.egress_port;
    }
    action add_latency() {
        hdr.latency.setValid();
        hdr.latency.value = from_parser.global_tstamp[31:0] - hdr.change.ingress_ts[31:0];
    }
    action add_queue() {
        hdr.queue.setValid();
        hdr.queue.id = (bit<8>)meta.egress_qid;
        hdr.queue.occupancy = (bit<24>)meta.deq_qdepth;
    }
    action add_ingress_ts() {
        hdr.ingress_zero.setValid();
        hdr.ingress_zero.value = 0;
        hdr.ingress_ts.setValid();
        hdr.ingress_ts.value = hdr.change.ingress_ts;
    }
    action add_egress_ts() {
        hdr.egress_zero.setValid();
        hdr.egress_zero.value = 0;
        hdr.egress_ts.setValid();
        hdr.egress_ts.value = from_parser.global_tstamp;
    }

    apply {
        if (IS_IPV6) { grow_v6(); } else { grow_v4(); }
        if (hdr.udp.isValid()) { grow_udp(); }
        if (hdr.md.bitmap & 0x8000 != 0) { add_node(); }
        if (hdr.md.bitmap & 0x4000 != 0) { add_interfaces(); }
        if (hdr.md.bitmap & 0x2000 != 0) { add_latency(); }
        if (hdr.md.bitmap & 0x1000 != 0) { add_queue(); }
        if (hdr.md.bitmap & 0x0800 != 0) { add_ingress_ts(); }
        if (hdr.md.bitmap & 0x0400 != 0) { add_egress_ts(); }
    }
}

#endif
