// SPDX-License-Identifier: Apache-2.0 OR MIT
// Words: the 16 words of a write. Each has one register, for the entries of lists.

#ifndef TNA_DTA_WORDS_P4
#define TNA_DTA_WORDS_P4

#define WORD_REGISTER(n) Register<bit<32>, bit<32>>(DTA_LISTS) register_ ## n; \
    RegisterAction<bit<32>, bit<32>, bit<32>>(register_ ## n) keep_ ## n = { \
        void apply(inout bit<32> value) { value = hdr.d ## n.value; } \
    }; \
    RegisterAction<bit<32>, bit<32>, bit<32>>(register_ ## n) read_ ## n = { \
        void apply(inout bit<32> value, out bit<32> is) { is = value; } \
    }; \
    action do_keep_ ## n() { keep_ ## n.execute(local.index); } \
    action do_read_ ## n() { hdr.d ## n.value = read_ ## n.execute(local.index); } \
    action zero_ ## n() { hdr.d ## n.value = 0; } \
    table word_ ## n { \
        key = { local.mode : exact; local.own[n:n] : exact @name("own"); } \
        actions = { do_keep_ ## n; do_read_ ## n; zero_ ## n; @defaultonly NoAction; } \
        const default_action = NoAction(); \
        const entries = { \
            (WORDS_OF_PACKET, 0) : zero_ ## n(); \
            (WORDS_OF_LIST, 1) : do_keep_ ## n(); \
            (WORDS_OF_LIST, 0) : do_read_ ## n(); \
        } \
        size = 3; \
    }
#define WORD_APPLY(n) word_ ## n.apply();

control Words(inout operations_t hdr, in egress_t local) {
    EACH_WORD(WORD_REGISTER)

    apply {
        EACH_WORD(WORD_APPLY)
    }
}

/// Which words of the write are this packet's.
control Own(in operations_t hdr, inout egress_t local) {
    action set_own(bit<16> own, bit<8> written, bit<32> bytes) {
        local.own = own;
        local.written = written;
        local.bytes = bytes;
    }

    table own_words {
        key = { hdr.operation.kind : exact; local.at : exact; hdr.operation.words : exact; }
        actions = { set_own; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
#include "../tables/own_words.p4"
        }
        size = 128;
    }

    apply {
        own_words.apply();
    }
}

#define WORDS_1 hdr.d0.setValid();
#define WORDS_2 WORDS_1 hdr.d1.setValid();
#define WORDS_3 WORDS_2 hdr.d2.setValid();
#define WORDS_4 WORDS_3 hdr.d3.setValid();
#define WORDS_5 WORDS_4 hdr.d4.setValid();
#define WORDS_6 WORDS_5 hdr.d5.setValid();
#define WORDS_7 WORDS_6 hdr.d6.setValid();
#define WORDS_8 WORDS_7 hdr.d7.setValid();
#define WORDS_9 WORDS_8 hdr.d8.setValid();
#define WORDS_10 WORDS_9 hdr.d9.setValid();
#define WORDS_11 WORDS_10 hdr.d10.setValid();
#define WORDS_12 WORDS_11 hdr.d11.setValid();
#define WORDS_13 WORDS_12 hdr.d12.setValid();
#define WORDS_14 WORDS_13 hdr.d13.setValid();
#define WORDS_15 WORDS_14 hdr.d14.setValid();
#define WORDS_16 WORDS_15 hdr.d15.setValid();

/// Has as many words as are written: no less than the packet has.
control Extend(inout operations_t hdr, in bit<8> written) {
    action words_1() { WORDS_1 }
    action words_2() { WORDS_2 }
    action words_3() { WORDS_3 }
    action words_4() { WORDS_4 }
    action words_5() { WORDS_5 }
    action words_6() { WORDS_6 }
    action words_7() { WORDS_7 }
    action words_8() { WORDS_8 }
    action words_9() { WORDS_9 }
    action words_10() { WORDS_10 }
    action words_11() { WORDS_11 }
    action words_12() { WORDS_12 }
    action words_13() { WORDS_13 }
    action words_14() { WORDS_14 }
    action words_15() { WORDS_15 }
    action words_16() { WORDS_16 }

    table extend {
        key = { written : exact; }
        actions = { words_1; words_2; words_3; words_4; words_5; words_6; words_7; words_8;
            words_9; words_10; words_11; words_12; words_13; words_14; words_15; words_16; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            1 : words_1(); 2 : words_2(); 3 : words_3(); 4 : words_4(); 5 : words_5(); 6 : words_6(); 7 : words_7(); 8 : words_8();
            9 : words_9(); 10 : words_10(); 11 : words_11(); 12 : words_12(); 13 : words_13(); 14 : words_14(); 15 : words_15(); 16 : words_16();
        }
        size = 16;
    }

    apply {
        extend.apply();
    }
}

/// Copies the words to each place where they may be.
control Spread(inout operations_t hdr) {
    action spread_1() {
        hdr.d1.value = hdr.d0.value;
        hdr.d2.value = hdr.d0.value;
        hdr.d3.value = hdr.d0.value;
        hdr.d4.value = hdr.d0.value;
        hdr.d5.value = hdr.d0.value;
        hdr.d6.value = hdr.d0.value;
        hdr.d7.value = hdr.d0.value;
        hdr.d8.value = hdr.d0.value;
        hdr.d9.value = hdr.d0.value;
        hdr.d10.value = hdr.d0.value;
        hdr.d11.value = hdr.d0.value;
        hdr.d12.value = hdr.d0.value;
        hdr.d13.value = hdr.d0.value;
        hdr.d14.value = hdr.d0.value;
        hdr.d15.value = hdr.d0.value;
    }

    action spread_2() {
        hdr.d2.value = hdr.d0.value;
        hdr.d3.value = hdr.d1.value;
        hdr.d4.value = hdr.d0.value;
        hdr.d5.value = hdr.d1.value;
        hdr.d6.value = hdr.d0.value;
        hdr.d7.value = hdr.d1.value;
        hdr.d8.value = hdr.d0.value;
        hdr.d9.value = hdr.d1.value;
        hdr.d10.value = hdr.d0.value;
        hdr.d11.value = hdr.d1.value;
        hdr.d12.value = hdr.d0.value;
        hdr.d13.value = hdr.d1.value;
        hdr.d14.value = hdr.d0.value;
        hdr.d15.value = hdr.d1.value;
    }

    action spread_4() {
        hdr.d4.value = hdr.d0.value;
        hdr.d5.value = hdr.d1.value;
        hdr.d6.value = hdr.d2.value;
        hdr.d7.value = hdr.d3.value;
        hdr.d8.value = hdr.d0.value;
        hdr.d9.value = hdr.d1.value;
        hdr.d10.value = hdr.d2.value;
        hdr.d11.value = hdr.d3.value;
        hdr.d12.value = hdr.d0.value;
        hdr.d13.value = hdr.d1.value;
        hdr.d14.value = hdr.d2.value;
        hdr.d15.value = hdr.d3.value;
    }

    action spread_8() {
        hdr.d8.value = hdr.d0.value;
        hdr.d9.value = hdr.d1.value;
        hdr.d10.value = hdr.d2.value;
        hdr.d11.value = hdr.d3.value;
        hdr.d12.value = hdr.d4.value;
        hdr.d13.value = hdr.d5.value;
        hdr.d14.value = hdr.d6.value;
        hdr.d15.value = hdr.d7.value;
    }

    table spread {
        key = { hdr.operation.kind : exact; hdr.operation.words : exact; }
        actions = { spread_1; spread_2; spread_4; spread_8; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (OPERATION_LIST, 1) : spread_1();
            (OPERATION_LIST, 2) : spread_2();
            (OPERATION_LIST, 4) : spread_4();
            (OPERATION_LIST, 8) : spread_8();
        }
        size = 4;
    }

    apply {
        spread.apply();
    }
}

#endif
