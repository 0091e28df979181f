// SPDX-License-Identifier: Apache-2.0 OR MIT
// The record of this node: one item for each instruction bit (INT data plane specification 2.1, section 5.7.1). Items that the node
// does not have are all-ones. The sum of what was written updates the L4 checksum.

#ifndef RECORD_P4
#define RECORD_P4

/// Writes the items of `bitmap` into `record`. `short_ts`: timestamps have four bytes, as in INT 1.0.
control Record(inout record_t record, in visit_t visit, in bit<32> node, in bit<16> bitmap, in bit<16> available, in bit<1> short_ts,
               inout bit<32> sum) {
    apply {
        bit<32> value;
        if (bitmap[15:15] == 1) {
            record.node.setValid();
            record.node.value = node;
            sum = sum + (bit<32>)node[31:16] + (bit<32>)node[15:0];
        }
        if (bitmap[14:14] == 1) {
            record.interfaces.setValid();
            value = 0xffffffff;
            if (available[14:14] == 1) {
                value = visit.ingress_if ++ visit.egress_if;
                if (visit.ingress_if == 0) { value[31:16] = 0xffff; }
                if (visit.egress_if == 0) { value[15:0] = 0xffff; }
            }
            record.interfaces.value = value;
            sum = sum + (bit<32>)value[31:16] + (bit<32>)value[15:0];
        }
        if (bitmap[13:13] == 1) {
            record.latency.setValid();
            value = 0xffffffff;
            if (available[13:13] == 1) { value = (bit<32>)(visit.egress_ts - visit.ingress_ts); }
            record.latency.value = value;
            sum = sum + (bit<32>)value[31:16] + (bit<32>)value[15:0];
        }
        if (bitmap[12:12] == 1) {
            record.queue.setValid();
            value = 0xffffffff;
            if (available[12:12] == 1) { value = visit.queue_id ++ visit.queue_occupancy; }
            record.queue.value = value;
            sum = sum + (bit<32>)value[31:16] + (bit<32>)value[15:0];
        }
        bit<64> stamp;
        if (bitmap[11:11] == 1) {
            stamp = available[11:11] == 1 ? visit.ingress_ts : 0xffffffffffffffff;
            sum = sum + (bit<32>)stamp[31:16] + (bit<32>)stamp[15:0];
            if (short_ts == 1) {
                record.ingress_ts_10.setValid();
                record.ingress_ts_10.value = stamp[31:0];
            } else {
                record.ingress_ts.setValid();
                record.ingress_ts.value = stamp;
                sum = sum + (bit<32>)stamp[63:48] + (bit<32>)stamp[47:32];
            }
        }
        if (bitmap[10:10] == 1) {
            stamp = available[10:10] == 1 ? visit.egress_ts : 0xffffffffffffffff;
            sum = sum + (bit<32>)stamp[31:16] + (bit<32>)stamp[15:0];
            if (short_ts == 1) {
                record.egress_ts_10.setValid();
                record.egress_ts_10.value = stamp[31:0];
            } else {
                record.egress_ts.setValid();
                record.egress_ts.value = stamp;
                sum = sum + (bit<32>)stamp[63:48] + (bit<32>)stamp[47:32];
            }
        }
        // All-ones do not change a sum of ones' complements.
        if (bitmap[9:9] == 1) { record.l2_interfaces.setValid(); record.l2_interfaces.value = 0xffffffffffffffff; }
        if (bitmap[8:8] == 1) { record.utilization.setValid(); record.utilization.value = 0xffffffff; }
        if (bitmap[7:7] == 1) { record.buffer.setValid(); record.buffer.value = 0xffffffff; }
        if (bitmap[6:6] == 1) { record.rsvd_9.setValid(); record.rsvd_9.value = 0xffffffff; }
        if (bitmap[5:5] == 1) { record.rsvd_10.setValid(); record.rsvd_10.value = 0xffffffff; }
        if (bitmap[4:4] == 1) { record.rsvd_11.setValid(); record.rsvd_11.value = 0xffffffff; }
        if (bitmap[3:3] == 1) { record.rsvd_12.setValid(); record.rsvd_12.value = 0xffffffff; }
        if (bitmap[2:2] == 1) { record.rsvd_13.setValid(); record.rsvd_13.value = 0xffffffff; }
        if (bitmap[1:1] == 1) { record.rsvd_14.setValid(); record.rsvd_14.value = 0xffffffff; }
        if (bitmap[0:0] == 1) { record.complement.setValid(); record.complement.value = 0xffffffff; }
    }
}

#endif
