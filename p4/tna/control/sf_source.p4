// SPDX-License-Identifier: Apache-2.0 OR MIT
// What ingress adds for SF-INT: the tag of a flow, CRC-32C of its 5-tuple, which selects registers; and at a source, the packet's number.

#ifndef TNA_SF_SOURCE_P4
#define TNA_SF_SOURCE_P4

struct sf_counter_t {
    bit<32> tag;
    bit<32> last;
}

control FlowTag(in arriving_t hdr, inout arriving_local_t local) {
    CRCPolynomial<bit<32>>(32w0x1edc6f41, true, false, false, 32w0xffffffff, 32w0xffffffff) polynomial;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) hash;

    action find_tag() { local.tag = hash.get({ hdr.ipv4.src, hdr.ipv4.dst, local.src_port, local.dst_port, hdr.ipv4.proto }); }

    apply {
        find_tag();
    }
}

/// Counts the packets of this source.
control Count(inout arriving_local_t local) {
    Register<bit<32>, bit<1>>(1, 0) sf_sent;
    RegisterAction<bit<32>, bit<1>, bit<32>>(sf_sent) next_sent = {
        void apply(inout bit<32> value, out bit<32> is) { value = value + 1; is = value; }
    };

    action do_count() { local.sent = next_sent.execute(0); }

    apply {
        do_count();
    }
}

/// Numbers the packets of each flow. A flow that finds another flow's counter continues from the source's own.
control Number(inout arriving_t hdr, in arriving_local_t local) {
    Register<sf_counter_t, bit<10>>(SF_REGISTERS) sf_counter;
    RegisterAction<sf_counter_t, bit<10>, bit<32>>(sf_counter) next_number = {
        void apply(inout sf_counter_t value, out bit<32> number) {
            if (value.tag == local.tag) { value.last = value.last + 1; } else { value.last = local.sent; }
            value.tag = local.tag;
            number = value.last;
        }
    };
    bit<32> number = 0;

    action do_number() { number = next_number.execute(local.tag[9:0]); }
    action write_number() { hdr.md.ds_id = number[15:0]; }

    apply {
        do_number();
        write_number();
    }
}

#endif
