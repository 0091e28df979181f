// SPDX-License-Identifier: Apache-2.0 OR MIT
// The Flow ID of postcards: CRC-32C of the 5-tuple, which is source, destination, ports and protocol, 13 bytes for IPv4 and 37 for IPv6
// (wire-formats 4.1). v1model has no hash with this polynomial that P4Runtime could set: each step here takes a word, and adds
// (exclusive or) a constant for each of its bits. A target with such a hash unit uses that.

#ifndef FLOW_ID_P4
#define FLOW_ID_P4

/// The remainders of the single bits of a word, and of a byte.
#define CRC_32C_WORD(x) ((x & 0x1 != 0 ? 32w0xdd45aab8 : 0) ^ (x & 0x2 != 0 ? 32w0xbf672381 : 0) ^ (x & 0x4 != 0 ? 32w0x7b2231f3 : 0) \
    ^ (x & 0x8 != 0 ? 32w0xf64463e6 : 0) ^ (x & 0x10 != 0 ? 32w0xe964b13d : 0) ^ (x & 0x20 != 0 ? 32w0xd725148b : 0) \
    ^ (x & 0x40 != 0 ? 32w0xaba65fe7 : 0) ^ (x & 0x80 != 0 ? 32w0x52a0c93f : 0) ^ (x & 0x100 != 0 ? 32w0xa541927e : 0) \
    ^ (x & 0x200 != 0 ? 32w0x4f6f520d : 0) ^ (x & 0x400 != 0 ? 32w0x9edea41a : 0) ^ (x & 0x800 != 0 ? 32w0x38513ec5 : 0) \
    ^ (x & 0x1000 != 0 ? 32w0x70a27d8a : 0) ^ (x & 0x2000 != 0 ? 32w0xe144fb14 : 0) ^ (x & 0x4000 != 0 ? 32w0xc76580d9 : 0) \
    ^ (x & 0x8000 != 0 ? 32w0x8b277743 : 0) ^ (x & 0x10000 != 0 ? 32w0x13a29877 : 0) ^ (x & 0x20000 != 0 ? 32w0x274530ee : 0) \
    ^ (x & 0x40000 != 0 ? 32w0x4e8a61dc : 0) ^ (x & 0x80000 != 0 ? 32w0x9d14c3b8 : 0) ^ (x & 0x100000 != 0 ? 32w0x3fc5f181 : 0) \
    ^ (x & 0x200000 != 0 ? 32w0x7f8be302 : 0) ^ (x & 0x400000 != 0 ? 32w0xff17c604 : 0) ^ (x & 0x800000 != 0 ? 32w0xfbc3faf9 : 0) \
    ^ (x & 0x1000000 != 0 ? 32w0xf26b8303 : 0) ^ (x & 0x2000000 != 0 ? 32w0xe13b70f7 : 0) ^ (x & 0x4000000 != 0 ? 32w0xc79a971f : 0) \
    ^ (x & 0x8000000 != 0 ? 32w0x8ad958cf : 0) ^ (x & 0x10000000 != 0 ? 32w0x105ec76f : 0) ^ (x & 0x20000000 != 0 ? 32w0x20bd8ede : 0) \
    ^ (x & 0x40000000 != 0 ? 32w0x417b1dbc : 0) ^ (x & 0x80000000 != 0 ? 32w0x82f63b78 : 0))
#define CRC_32C_BYTE(x) ((x & 0x1 != 0 ? 32w0xf26b8303 : 0) ^ (x & 0x2 != 0 ? 32w0xe13b70f7 : 0) ^ (x & 0x4 != 0 ? 32w0xc79a971f : 0) \
    ^ (x & 0x8 != 0 ? 32w0x8ad958cf : 0) ^ (x & 0x10 != 0 ? 32w0x105ec76f : 0) ^ (x & 0x20 != 0 ? 32w0x20bd8ede : 0) \
    ^ (x & 0x40 != 0 ? 32w0x417b1dbc : 0) ^ (x & 0x80 != 0 ? 32w0x82f63b78 : 0))

control FlowId(in headers_t hdr, in local_t local, out bit<32> id) {
    bit<32> crc;
    bit<32> x = 0;

    action mix(bit<32> next) {
        x = crc ^ (next[7:0] ++ next[15:8] ++ next[23:16] ++ next[31:24]);
    }

    action step() {
        crc = CRC_32C_WORD(x);
    }

    // The conditions repeat, so that the compiler does not copy one step's expression into the next one's, once for each bit.
    apply {
        bool is_v6 = hdr.ipv6.isValid();
        crc = 0xffffffff;
        if (is_v6) { mix(hdr.ipv6.src[127:96]); }
        if (is_v6) { step(); }
        if (is_v6) { mix(hdr.ipv6.src[95:64]); }
        if (is_v6) { step(); }
        if (is_v6) { mix(hdr.ipv6.src[63:32]); }
        if (is_v6) { step(); }
        if (is_v6) { mix(hdr.ipv6.src[31:0]); } else { mix(hdr.ipv4.src); }
        step();
        if (is_v6) { mix(hdr.ipv6.dst[127:96]); }
        if (is_v6) { step(); }
        if (is_v6) { mix(hdr.ipv6.dst[95:64]); }
        if (is_v6) { step(); }
        if (is_v6) { mix(hdr.ipv6.dst[63:32]); }
        if (is_v6) { step(); }
        if (is_v6) { mix(hdr.ipv6.dst[31:0]); } else { mix(hdr.ipv4.dst); }
        step();
        if (is_v6) { mix(local.src_port ++ local.dst_port); } else { mix(local.src_port ++ local.dst_port); }
        step();
        if (is_v6) { x = crc ^ (bit<32>)local.proto; } else { x = crc ^ (bit<32>)local.proto; }
        id = ~((crc >> 8) ^ CRC_32C_BYTE(x));
    }
}

#endif
