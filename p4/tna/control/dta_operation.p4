// SPDX-License-Identifier: Apache-2.0 OR MIT
// Operation: what the copy of a report becomes: a WRITE or FETCH_ADD to the collector's memory. The number of the copy is that of its
// replica.

#ifndef TNA_DTA_OPERATION_P4
#define TNA_DTA_OPERATION_P4

control Operation(inout operations_t hdr, inout egress_t local, in bit<16> replica, inout bit<3> drops) {
    /// The next PSN of each queue pair.
    Register<bit<32>, bit<8>>(2 * DTA_COLLECTORS, 0) psn_of;
    RegisterAction<bit<32>, bit<8>, bit<32>>(psn_of) next_psn = {
        void apply(inout bit<32> value, out bit<32> was) { was = value; value = value + 1; }
    };
    RegisterAction<bit<32>, bit<8>, bit<32>>(psn_of) set_psn = {
        void apply(inout bit<32> value) { value = (bit<32>)hdr.psn.psn; }
    };

    bit<32> psn = 0;
    bit<4> code = 0;

    action drop() { drops = 1; }

    @name("send_to") @id(0x01000043)
    action send_to(@id(1) bit<48> src_mac, @id(2) bit<48> dst_mac, @id(3) bit<32> src_ip, @id(4) bit<32> dst_ip, @id(5) bit<16> src_port,
            @id(6) bit<24> queue_pair) {
        hdr.ethernet.setValid();
        hdr.ethernet = { dst_mac, src_mac, ETHERTYPE_IPV4 };
        hdr.ipv4.setValid();
        hdr.ipv4 = { 4, 5, 0, 2, 0, 0, 2, 0, 64, PROTO_UDP, 0, src_ip, dst_ip };
        hdr.udp.setValid();
        hdr.udp = { src_port, PORT_ROCE, 0, 0 };
        hdr.bth.setValid();
        hdr.bth = { 0, 0, 1, 0, 0, 0xffff, 0, queue_pair, 0, 0, 0 };
    }

    /// Queue pairs by collector: unreliable and reliable.
    @name("queue_pair") @id(0x02000043)
    table queue_pair {
        key = { hdr.operation.queue_pair : exact @name("queue_pair"); }
        actions = { send_to; @defaultonly drop; }
        const default_action = drop();
        size = 2 * DTA_COLLECTORS;
    }

    action do_next_psn() { psn = next_psn.execute(hdr.operation.queue_pair); }
    action do_set_psn() { set_psn.execute(hdr.operation.queue_pair); }

    action at_1() { local.offset = hdr.places.place_1; }
    action at_2() { local.offset = hdr.places.place_2; }
    action at_3() { local.offset = hdr.places.place_3; }
    action at_4() { local.offset = hdr.places.place_4; }

    /// Which of the key's slots.
    table slot {
        key = { hdr.operation.copies : exact; replica : exact; }
        actions = { at_1; at_2; at_3; at_4; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
#include "../tables/slots.p4"
        }
        size = 16;
    }

    action write(bit<8> opcode, bit<4> is) {
        code = is;
        hdr.bth.opcode = opcode;
        hdr.reth.setValid();
    }

    action write_with_notice(bit<8> opcode, bit<4> is) {
        write(opcode, is);
        hdr.bth.solicited = 1;
        hdr.immediate.setValid();
    }

    action write_after_addition() {
        write_with_notice(RC_WRITE_ONLY_IMMEDIATE, FORM_AFTER_ADDITION);
        hdr.bth.ack_request = 1;
    }

    action add() {
        code = FORM_ADDITION;
        hdr.bth.opcode = RC_FETCH_ADD;
        hdr.bth.ack_request = 1;
        hdr.atomic.setValid();
    }

    table form {
        key = { hdr.operation.kind : exact; hdr.operation.copies : exact; replica : exact; hdr.operation.notice : exact; }
        actions = { write; write_with_notice; write_after_addition; add; @defaultonly drop; }
        const default_action = drop();
        const entries = {
#include "../tables/forms.p4"
        }
        size = 64;
    }

    action set_lengths(bit<16> udp, bit<16> ip, bit<32> bytes) {
        hdr.udp.len = udp;
        hdr.ipv4.total_len = ip;
        hdr.reth.len = bytes;
    }

    table lengths {
        key = { code : exact; local.written : exact; }
        actions = { set_lengths; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
#include "../tables/lengths.p4"
        }
        size = 128;
    }

    action has_checksum() {
        hdr.checksum.setValid();
        hdr.checksum.value[31:24] = hdr.places.checksum[7:0];
        hdr.checksum.value[23:16] = hdr.places.checksum[15:8];
        hdr.checksum.value[15:8] = hdr.places.checksum[23:16];
        hdr.checksum.value[7:0] = hdr.places.checksum[31:24];
    }

    action find_address() { hdr.operation.address_low = hdr.operation.address_low + local.offset; }

    action fill() {
        hdr.bth.psn = psn[23:0];
        hdr.reth.rkey = hdr.operation.rkey;
        hdr.reth.address[63:32] = hdr.operation.address_high;
        hdr.reth.address[31:0] = hdr.operation.address_low;
        hdr.atomic.address[63:32] = hdr.operation.address_high;
        hdr.atomic.address[31:0] = hdr.operation.address_low;
        hdr.atomic.rkey = hdr.operation.rkey;
        hdr.atomic.add = hdr.addition.delta;
        hdr.atomic.compare = 0;
        hdr.immediate.value = hdr.operation.immediate;
        // Not computed: see the README.
        hdr.icrc.setValid();
        hdr.icrc.value = 0;
    }

    apply {
        if (hdr.operation.kind == OPERATION_RESYNCHRONISE) {
            do_set_psn();
            drop();
        } else if (local.executes == 0) {
            drop();
        } else {
            do_next_psn();
            queue_pair.apply();
            if (hdr.operation.kind == OPERATION_WRITE || hdr.operation.kind == OPERATION_ADD) { slot.apply(); }
            form.apply();
            lengths.apply();
            if (hdr.operation.kind == OPERATION_WRITE) { has_checksum(); }
            find_address();
            fill();
        }
        hdr.operation.setInvalid();
        hdr.places.setInvalid();
        hdr.addition.setInvalid();
        hdr.list.setInvalid();
        hdr.psn.setInvalid();
    }
}

#endif
