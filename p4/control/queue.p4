// SPDX-License-Identifier: Apache-2.0 OR MIT
// Queue: reports a queue that becomes congested or recovers, and packets that pass it in between, up to a quota.
//
// The control plane installs: thresholds, for each port or as the default action. `rise` is more than `fall`.

#ifndef QUEUE_P4
#define QUEUE_P4

control Queue(inout headers_t hdr, inout local_t local, in bit<9> egress_port) {
    /// Of each port: bit 32: it is congested; the others: packets that may still be reported.
    @name("congested")
    register<bit<33>>(PORTS_SIZE) congested;

    bit<1> is_limited = 0;
    bit<24> rise = 0;
    bit<24> fall = 0;
    bit<32> quota = 0;

    @name("watch_queue") @id(0x01000007)
    action watch_queue(@id(1) bit<24> rises_at, @id(2) bit<24> falls_at, @id(3) bit<32> packets) {
        is_limited = 1;
        rise = rises_at;
        fall = falls_at;
        quota = packets;
    }

    @name("queue_limits") @id(0x02000006)
    table queue_limits {
        key = { egress_port : exact @name("egress_port"); }
        actions = { watch_queue; NoAction; }
        default_action = NoAction();
        size = PORTS_SIZE;
    }

    apply {
        queue_limits.apply();
        if (is_limited == 1) {
            bit<33> state;
            congested.read(state, (bit<32>)egress_port);
            if (state[32:32] == 0) {
                if (local.visit.queue_occupancy >= rise) {
                    local.queue_report = QUEUE_CHANGED;
#ifdef DTA_REPORTER
                    local.reporter.rises = 1;
#endif
                    congested.write((bit<32>)egress_port, 1w1 ++ quota);
                }
            } else if (local.visit.queue_occupancy <= fall) {
                local.queue_report = QUEUE_CHANGED;
                congested.write((bit<32>)egress_port, 0);
            } else if (state[31:0] != 0 && local.refused == 0 && local.malformed_stack == 0 && local.bad_l4 == 0
                    && (hdr.udp.isValid() || hdr.tcp.isValid())) {
                local.queue_report = QUEUE_CONGESTED;
                congested.write((bit<32>)egress_port, state - 1);
                hdr.arrived_ipv4 = hdr.ipv4;
                hdr.arrived_ipv6 = hdr.ipv6;
            }
        }
    }
}

#endif
