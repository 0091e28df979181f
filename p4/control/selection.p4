// SPDX-License-Identifier: Apache-2.0 OR MIT
// Selection of postcards: all nodes choose the same packets, by a hash of what no router changes (RFC 5475, section 6.2): the length field
// of the IP header, its identification (0 over IPv6), and the first 32 bytes from the L4 header on, with zeros behind a shorter packet.

#ifndef SELECTION_P4
#define SELECTION_P4

control Selection(in headers_t hdr, inout local_t local) {
    apply {
        bit<16> len = hdr.ipv6.payload_len;
        bit<16> id = 0;
        if (hdr.ipv4.isValid()) {
            len = hdr.ipv4.total_len;
            id = hdr.ipv4.id;
        }
        bit<32> rest = 0;
        if (hdr.tcp.isValid()) {
            bit<96> body = local.body_0[127:32];
            hash(rest, HashAlgorithm.crc32, 32w0,
                { len, id, hdr.tcp.src_port, hdr.tcp.dst_port, hdr.tcp.seq, hdr.tcp.ack, hdr.tcp.data_offset, hdr.tcp.flags, hdr.tcp.window,
                  hdr.tcp.checksum, hdr.tcp.urgent, body },
                local.watch.sample);
        } else {
            hash(rest, HashAlgorithm.crc32, 32w0,
                { len, id, hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.len, hdr.udp.checksum, local.body_0, local.body_16 },
                local.watch.sample);
        }
        if (rest != 0) { local.watch.mode = WATCH_NOTHING; }
    }
}

#endif
