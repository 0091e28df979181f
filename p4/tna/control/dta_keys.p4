// SPDX-License-Identifier: Apache-2.0 OR MIT
// Keys: the CRCs of a key, which are its places in a store and its checksum. A CRC of a key at the low end of a field of 16 bytes is the
// exclusive sum of that field's CRC with a zero seed, and of a number for the key's length.

#ifndef TNA_DTA_KEYS_P4
#define TNA_DTA_KEYS_P4

#define KEY_LENGTH(bytes, bits) bytes : add_length(CRC_32C_LENGTH_ ## bytes, CRC_32D_LENGTH_ ## bytes, CRC_32K_LENGTH_ ## bytes, \
    CRC_32Q_LENGTH_ ## bytes, CRC_IEEE_LENGTH_ ## bytes);
#define SHIFT_PLACES(n) action shift_ ## n() { \
    places.place_1 = places.place_1 << n; \
    places.place_2 = places.place_2 << n; \
    places.place_3 = places.place_3 << n; \
    places.place_4 = places.place_4 << n; \
}

control Hashes(in key_t digits, in bit<8> key_bytes, inout places_t places) {
    CRCPolynomial<bit<32>>(32w0x1edc6f41, true, false, false, 32w0, 32w0) polynomial_c;
    CRCPolynomial<bit<32>>(32w0xa833982b, true, false, false, 32w0, 32w0) polynomial_d;
    CRCPolynomial<bit<32>>(32w0x741b8cd7, true, false, false, 32w0, 32w0) polynomial_k;
    CRCPolynomial<bit<32>>(32w0x814141ab, true, false, false, 32w0, 32w0) polynomial_q;
    CRCPolynomial<bit<32>>(32w0x04c11db7, true, false, false, 32w0, 32w0) polynomial_ieee;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_c) hash_c;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_d) hash_d;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_k) hash_k;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_q) hash_q;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_ieee) hash_ieee;

    // An action takes 32 bits of hashes.
    action hash_1() { places.place_1 = hash_c.get(KEY_LIST(digits)); }
    action hash_2() { places.place_2 = hash_d.get(KEY_LIST(digits)); }
    action hash_3() { places.place_3 = hash_k.get(KEY_LIST(digits)); }
    action hash_4() { places.place_4 = hash_q.get(KEY_LIST(digits)); }
    action sum() { places.checksum = hash_ieee.get(KEY_LIST(digits)); }

    action add_length(bit<32> c, bit<32> d, bit<32> k, bit<32> q, bit<32> ieee) {
        places.place_1 = places.place_1 ^ c;
        places.place_2 = places.place_2 ^ d;
        places.place_3 = places.place_3 ^ k;
        places.place_4 = places.place_4 ^ q;
        places.checksum = places.checksum ^ ieee;
    }

    table key_length {
        key = { key_bytes : exact; }
        actions = { add_length; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = { EACH_KEY(KEY_LENGTH) }
        size = 16;
    }

    apply {
        hash_1();
        hash_2();
        hash_3();
        hash_4();
        sum();
        key_length.apply();
    }
}

control Places(inout places_t places, inout ingress_t local) {
    SHIFT_PLACES(2) SHIFT_PLACES(3) SHIFT_PLACES(4) SHIFT_PLACES(5) SHIFT_PLACES(6) SHIFT_PLACES(7) SHIFT_PLACES(8)

    table shift {
        key = { local.stride : exact; }
        actions = { shift_2; shift_3; shift_4; shift_5; shift_6; shift_7; shift_8; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            2 : shift_2();
            3 : shift_3();
            4 : shift_4();
            5 : shift_5();
            6 : shift_6();
            7 : shift_7();
            8 : shift_8();
        }
        size = 7;
    }

    action mask() {
        places.place_1 = places.place_1 & local.mask;
        places.place_2 = places.place_2 & local.mask;
        places.place_3 = places.place_3 & local.mask;
        places.place_4 = places.place_4 & local.mask;
    }

    apply {
        mask();
        shift.apply();
    }
}

#endif
