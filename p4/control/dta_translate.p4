// SPDX-License-Identifier: Apache-2.0 OR MIT
// Translate: what the copy of a report becomes: a WRITE or FETCH_ADD to the collector's memory. The number of the copy is that of its
// replica.

#ifndef DTA_TRANSLATE_P4
#define DTA_TRANSLATE_P4

#define KEY_INVALID(bytes, bits) hdr.key_ ## bytes.setInvalid();
#define PAD_WORD(n) if (local.written > n) { \
    if (!hdr.data[n].isValid()) { hdr.data[n].setValid(); hdr.data[n].value = 0; } \
} else { hdr.data[n].setInvalid(); }
#define WORD_INPUT(n) , hdr.data[n]

/// The next PSN of each queue pair.
register<bit<24>>(2 * DTA_COLLECTORS) psn_of;

control Translate(inout dta_headers_t hdr, inout dta_local_t local, in bit<1> reliable, in bit<8> copy) {
    bit<32> queue_pair_index = 0;
    bit<64> address = 0;

    @name("send_to") @id(0x01000043)
    action send_to(@id(1) bit<48> src_mac, @id(2) bit<48> dst_mac, @id(3) bit<32> src_ip, @id(4) bit<32> dst_ip, @id(5) bit<16> src_port,
            @id(6) bit<24> queue_pair) {
        hdr.ethernet = { dst_mac, src_mac, ETHERTYPE_IPV4 };
        hdr.ipv4.setValid();
        hdr.ipv4 = { 4, 5, 0, 2, 0, 0, 2, 0, 64, PROTO_UDP, 0, src_ip, dst_ip };
        hdr.udp.setValid();
        hdr.udp = { src_port, PORT_ROCE, 0, 0 };
        hdr.bth.setValid();
        hdr.bth = { 0, 0, 1, 0, 0, 0xffff, 0, queue_pair, 0, 0, 0 };
    }

    action no_path() { }

    /// Queue pairs by collector: unreliable and reliable.
    @name("queue_pair") @id(0x02000043)
    table queue_pair {
        key = { queue_pair_index : exact @name("queue_pair"); }
        actions = { send_to; @defaultonly no_path; }
        const default_action = no_path();
        size = 2 * DTA_COLLECTORS;
    }

    /// Which of the key's slots.
    bit<8> place = 0;

    action choose_address() {
        bit<32> crc = CRC_32C_ANY(local.crc_c, local.key);
        if (place == 1) { crc = CRC_32D_ANY(local.crc_d, local.key); }
        if (place == 2) { crc = CRC_32K_ANY(local.crc_k, local.key); }
        if (place == 3) { crc = CRC_32Q_ANY(local.crc_q, local.key); }
        address = local.address + ((bit<64>)(crc & local.mask) << local.stride);
    }

    action write(bit<8> opcode, bit<32> bytes) {
        hdr.bth.opcode = opcode;
        hdr.reth.setValid();
        hdr.reth = { address, local.rkey, bytes };
    }

    action notify() {
        hdr.bth.solicited = 1;
        hdr.immediate.setValid();
        hdr.immediate.value = local.immediate;
    }

    apply {
        bit<1> adds = hdr.key_increment.isValid() ? 1w1 : 1w0;
        bit<1> last = copy + 1 == local.copies ? 1w1 : 1w0;
        queue_pair_index = local.collector * 2 + (bit<32>)(adds | reliable);
        queue_pair.apply();
        bit<16> bytes = 16 + 16 + (bit<16>)local.written * 4;
        address = local.address;
        if (hdr.key_write.isValid() || hdr.key_increment.isValid()) {
            // The empty write after additions names the last counter.
            place = copy < local.copies ? copy : copy - 1;
            choose_address();
        }
        if (adds == 1 && copy < local.copies) {
            hdr.bth.opcode = RC_FETCH_ADD;
            hdr.bth.ack_request = 1;
            hdr.atomic.setValid();
            hdr.atomic = { address, local.rkey, local.delta, 0 };
            bytes = 16 + 28;
        } else if (adds == 1) {
            write(RC_WRITE_ONLY_IMMEDIATE, 0);
            hdr.bth.ack_request = 1;
            notify();
            bytes = 16 + 20;
        } else {
            if (local.has_checksum == 1) {
                hdr.checksum.setValid();
                bit<32> sum = local.checksum;
                hdr.checksum.value = sum[7:0] ++ sum[15:8] ++ sum[23:16] ++ sum[31:24];
                bytes = bytes + 4;
            }
            write(reliable == 1 ? RC_WRITE_ONLY : UC_WRITE_ONLY, (bit<32>)bytes - 32);
            hdr.bth.ack_request = reliable;
            if (local.notice == 1 && last == 1) {
                hdr.bth.opcode = reliable == 1 ? RC_WRITE_ONLY_IMMEDIATE : UC_WRITE_ONLY_IMMEDIATE;
                notify();
                bytes = bytes + 4;
            }
        }
        EACH_WORD(PAD_WORD)
        hdr.udp.len = 8 + bytes;
        hdr.ipv4.total_len = 28 + bytes;
        local.frame_bytes = 42 + (bit<32>)bytes;
        bit<24> psn;
        psn_of.read(psn, queue_pair_index);
        psn_of.write(queue_pair_index, psn + 1);
        hdr.bth.psn = psn;
        hdr.timer.setInvalid();
        hdr.dta.setInvalid();
        hdr.key_write.setInvalid();
        hdr.append.setInvalid();
        hdr.key_increment.setInvalid();
        hdr.postcard.setInvalid();
        EACH_KEY(KEY_INVALID)
        // What routers change counts as ones.
        bit<32> crc;
        hash(crc, HashAlgorithm.crc32, 32w0,
            { 64w0xffffffffffffffff, 16w0x45ff, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment, 8w0xff, hdr.ipv4.proto,
              16w0xffff, hdr.ipv4.src, hdr.ipv4.dst, hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.len, 16w0xffff, hdr.bth.opcode,
              hdr.bth.solicited, hdr.bth.migrated, hdr.bth.pad, hdr.bth.version, hdr.bth.partition, 8w0xff, hdr.bth.queue_pair,
              hdr.bth.ack_request, hdr.bth.rsvd, hdr.bth.psn, hdr.reth, hdr.atomic, hdr.immediate, hdr.checksum EACH_WORD(WORD_INPUT) },
            64w0x100000000);
        hdr.icrc.setValid();
        hdr.icrc.value = crc[7:0] ++ crc[15:8] ++ crc[23:16] ++ crc[31:24];
    }
}

#endif
