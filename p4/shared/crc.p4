// SPDX-License-Identifier: Apache-2.0 OR MIT
// CRCs of 32 bits, reflected, begun with all-ones and complemented at the end, of keys at the low end of a field. Written by
// scripts/p4-crc: a target's own hash units have other polynomials, or are set by other means than tables. A CRC is the
// exclusive sum of a number for each bit of the key that is set, and of one for the key's length.

#ifndef CRC_P4
#define CRC_P4

#define CRC_TERM(key, bit, number) (key[bit:bit] == 1 ? 32w ## number : 32w0)

#define CRC_32C_FROM_0(key) \
    ((((CRC_TERM(key, 0, 0xf26b8303) ^ CRC_TERM(key, 1, 0xe13b70f7) ^ CRC_TERM(key, 2, 0xc79a971f) ^ CRC_TERM(key, 3, 0x8ad958cf)) ^ \
    (CRC_TERM(key, 4, 0x105ec76f) ^ CRC_TERM(key, 5, 0x20bd8ede) ^ CRC_TERM(key, 6, 0x417b1dbc) ^ CRC_TERM(key, 7, 0x82f63b78))) ^ \
    ((CRC_TERM(key, 8, 0x13a29877) ^ CRC_TERM(key, 9, 0x274530ee) ^ CRC_TERM(key, 10, 0x4e8a61dc) ^ CRC_TERM(key, 11, 0x9d14c3b8)) ^ \
    (CRC_TERM(key, 12, 0x3fc5f181) ^ CRC_TERM(key, 13, 0x7f8be302) ^ CRC_TERM(key, 14, 0xff17c604) ^ CRC_TERM(key, 15, 0xfbc3faf9)))) ^ \
    (((CRC_TERM(key, 16, 0xa541927e) ^ CRC_TERM(key, 17, 0x4f6f520d) ^ CRC_TERM(key, 18, 0x9edea41a) ^ CRC_TERM(key, 19, 0x38513ec5)) ^ \
    (CRC_TERM(key, 20, 0x70a27d8a) ^ CRC_TERM(key, 21, 0xe144fb14) ^ CRC_TERM(key, 22, 0xc76580d9) ^ CRC_TERM(key, 23, 0x8b277743))) ^ \
    ((CRC_TERM(key, 24, 0xdd45aab8) ^ CRC_TERM(key, 25, 0xbf672381) ^ CRC_TERM(key, 26, 0x7b2231f3) ^ CRC_TERM(key, 27, 0xf64463e6)) ^ \
    (CRC_TERM(key, 28, 0xe964b13d) ^ CRC_TERM(key, 29, 0xd725148b) ^ CRC_TERM(key, 30, 0xaba65fe7) ^ CRC_TERM(key, 31, 0x52a0c93f)))))
#define CRC_32C_FROM_32(key) \
    ((((CRC_TERM(key, 32, 0x38116fac) ^ CRC_TERM(key, 33, 0x7022df58) ^ CRC_TERM(key, 34, 0xe045beb0) ^ CRC_TERM(key, 35, 0xc5670b91)) ^ \
    (CRC_TERM(key, 36, 0x8f2261d3) ^ CRC_TERM(key, 37, 0x1ba8b557) ^ CRC_TERM(key, 38, 0x37516aae) ^ CRC_TERM(key, 39, 0x6ea2d55c))) ^ \
    ((CRC_TERM(key, 40, 0xef306b19) ^ CRC_TERM(key, 41, 0xdb8ca0c3) ^ CRC_TERM(key, 42, 0xb2f53777) ^ CRC_TERM(key, 43, 0x6006181f)) ^ \
    (CRC_TERM(key, 44, 0xc00c303e) ^ CRC_TERM(key, 45, 0x85f4168d) ^ CRC_TERM(key, 46, 0x0e045beb) ^ CRC_TERM(key, 47, 0x1c08b7d6)))) ^ \
    (((CRC_TERM(key, 48, 0x68032cc8) ^ CRC_TERM(key, 49, 0xd0065990) ^ CRC_TERM(key, 50, 0xa5e0c5d1) ^ CRC_TERM(key, 51, 0x4e2dfd53)) ^ \
    (CRC_TERM(key, 52, 0x9c5bfaa6) ^ CRC_TERM(key, 53, 0x3d5b83bd) ^ CRC_TERM(key, 54, 0x7ab7077a) ^ CRC_TERM(key, 55, 0xf56e0ef4))) ^ \
    ((CRC_TERM(key, 56, 0x493c7d27) ^ CRC_TERM(key, 57, 0x9278fa4e) ^ CRC_TERM(key, 58, 0x211d826d) ^ CRC_TERM(key, 59, 0x423b04da)) ^ \
    (CRC_TERM(key, 60, 0x847609b4) ^ CRC_TERM(key, 61, 0x0d006599) ^ CRC_TERM(key, 62, 0x1a00cb32) ^ CRC_TERM(key, 63, 0x34019664)))))
#define CRC_32C_FROM_64(key) \
    (((((CRC_TERM(key, 64, 0xf43ed648) ^ CRC_TERM(key, 65, 0xed91da61) ^ CRC_TERM(key, 66, 0xdecfc233) ^ CRC_TERM(key, 67, 0xb873f297)) ^ \
    (CRC_TERM(key, 68, 0x750b93df) ^ CRC_TERM(key, 69, 0xea1727be) ^ CRC_TERM(key, 70, 0xd1c2398d) ^ CRC_TERM(key, 71, 0xa66805eb))) ^ \
    ((CRC_TERM(key, 72, 0xcb567ba5) ^ CRC_TERM(key, 73, 0x934081bb) ^ CRC_TERM(key, 74, 0x236d7587) ^ CRC_TERM(key, 75, 0x46daeb0e)) ^ \
    (CRC_TERM(key, 76, 0x8db5d61c) ^ CRC_TERM(key, 77, 0x1e87dac9) ^ CRC_TERM(key, 78, 0x3d0fb592) ^ CRC_TERM(key, 79, 0x7a1f6b24)))) ^ \
    (((CRC_TERM(key, 80, 0x9771f7c1) ^ CRC_TERM(key, 81, 0x2b0f9973) ^ CRC_TERM(key, 82, 0x561f32e6) ^ CRC_TERM(key, 83, 0xac3e65cc)) ^ \
    (CRC_TERM(key, 84, 0x5d90bd69) ^ CRC_TERM(key, 85, 0xbb217ad2) ^ CRC_TERM(key, 86, 0x73ae8355) ^ CRC_TERM(key, 87, 0xe75d06aa))) ^ \
    ((CRC_TERM(key, 88, 0x3171d430) ^ CRC_TERM(key, 89, 0x62e3a860) ^ CRC_TERM(key, 90, 0xc5c750c0) ^ CRC_TERM(key, 91, 0x8e62d771)) ^ \
    (CRC_TERM(key, 92, 0x1929d813) ^ CRC_TERM(key, 93, 0x3253b026) ^ CRC_TERM(key, 94, 0x64a7604c) ^ CRC_TERM(key, 95, 0xc94ec098))))) ^ \
    ((((CRC_TERM(key, 96, 0x30d23865) ^ CRC_TERM(key, 97, 0x61a470ca) ^ CRC_TERM(key, 98, 0xc348e194) ^ CRC_TERM(key, 99, 0x837db5d9)) ^ \
    (CRC_TERM(key, 100, 0x03171d43) ^ CRC_TERM(key, 101, 0x062e3a86) ^ CRC_TERM(key, 102, 0x0c5c750c) ^ CRC_TERM(key, 103, 0x18b8ea18))) ^ \
    ((CRC_TERM(key, 104, 0x54075546) ^ CRC_TERM(key, 105, 0xa80eaa8c) ^ CRC_TERM(key, 106, 0x55f123e9) ^ CRC_TERM(key, 107, 0xabe247d2)) ^ \
    (CRC_TERM(key, 108, 0x5228f955) ^ CRC_TERM(key, 109, 0xa451f2aa) ^ CRC_TERM(key, 110, 0x4d4f93a5) ^ CRC_TERM(key, 111, 0x9a9f274a)))) ^ \
    (((CRC_TERM(key, 112, 0x678efd01) ^ CRC_TERM(key, 113, 0xcf1dfa02) ^ CRC_TERM(key, 114, 0x9bd782f5) ^ CRC_TERM(key, 115, 0x3243731b)) ^ \
    (CRC_TERM(key, 116, 0x6486e636) ^ CRC_TERM(key, 117, 0xc90dcc6c) ^ CRC_TERM(key, 118, 0x97f7ee29) ^ CRC_TERM(key, 119, 0x2a03aaa3))) ^ \
    ((CRC_TERM(key, 120, 0xf20c0dfe) ^ CRC_TERM(key, 121, 0xe1f46d0d) ^ CRC_TERM(key, 122, 0xc604aceb) ^ CRC_TERM(key, 123, 0x89e52f27)) ^ \
    (CRC_TERM(key, 124, 0x162628bf) ^ CRC_TERM(key, 125, 0x2c4c517e) ^ CRC_TERM(key, 126, 0x5898a2fc) ^ CRC_TERM(key, 127, 0xb13145f8))))))
// For lengths of 1 to 16 bytes.
#define CRC_32C_LENGTH_1 32w0x527d5351
#define CRC_32C_LENGTH_2 32w0xf16177d2
#define CRC_32C_LENGTH_3 32w0x6064a37a
#define CRC_32C_LENGTH_4 32w0x48674bc7
#define CRC_32C_LENGTH_5 32w0x45727635
#define CRC_32C_LENGTH_6 32w0x572a7c8a
#define CRC_32C_LENGTH_7 32w0xbb3e6a6d
#define CRC_32C_LENGTH_8 32w0x8c28b28a
#define CRC_32C_LENGTH_9 32w0xbbe568a3
#define CRC_32C_LENGTH_10 32w0xe3ddf06b
#define CRC_32C_LENGTH_11 32w0xaad1b6f8
#define CRC_32C_LENGTH_12 32w0x2b60b55d
#define CRC_32C_LENGTH_13 32w0xbc5ba5e4
#define CRC_32C_LENGTH_14 32w0x766b37f1
#define CRC_32C_LENGTH_15 32w0x530ed410
#define CRC_32C_LENGTH_16 32w0x42709aea
#define CRC_32C_4(key) (CRC_32C_LENGTH_4 ^ CRC_32C_FROM_0(key))
#define CRC_32C_8(key) (CRC_32C_LENGTH_8 ^ CRC_32C_FROM_0(key) ^ CRC_32C_FROM_32(key))
#define CRC_32C_ANY(number, key) (number ^ CRC_32C_FROM_0(key) ^ CRC_32C_FROM_32(key) ^ CRC_32C_FROM_64(key))

#define CRC_32D_FROM_0(key) \
    ((((CRC_TERM(key, 0, 0x2bddd04f) ^ CRC_TERM(key, 1, 0x57bba09e) ^ CRC_TERM(key, 2, 0xaf77413c) ^ CRC_TERM(key, 3, 0xf6dd1a53)) ^ \
    (CRC_TERM(key, 4, 0x4589ac8d) ^ CRC_TERM(key, 5, 0x8b13591a) ^ CRC_TERM(key, 6, 0xbe152a1f) ^ CRC_TERM(key, 7, 0xd419cc15))) ^ \
    ((CRC_TERM(key, 8, 0x9bf2dc71) ^ CRC_TERM(key, 9, 0x9fd620c9) ^ CRC_TERM(key, 10, 0x979fd9b9) ^ CRC_TERM(key, 11, 0x870c2b59)) ^ \
    (CRC_TERM(key, 12, 0xa62bce99) ^ CRC_TERM(key, 13, 0xe4640519) ^ CRC_TERM(key, 14, 0x60fb9219) ^ CRC_TERM(key, 15, 0xc1f72432)))) ^ \
    (((CRC_TERM(key, 16, 0x5bc9fd1b) ^ CRC_TERM(key, 17, 0xb793fa36) ^ CRC_TERM(key, 18, 0xc7146c47) ^ CRC_TERM(key, 19, 0x261b40a5)) ^ \
    (CRC_TERM(key, 20, 0x4c36814a) ^ CRC_TERM(key, 21, 0x986d0294) ^ CRC_TERM(key, 22, 0x98e99d03) ^ CRC_TERM(key, 23, 0x99e0a22d))) ^ \
    ((CRC_TERM(key, 24, 0xcf690ff2) ^ CRC_TERM(key, 25, 0x36e187cf) ^ CRC_TERM(key, 26, 0x6dc30f9e) ^ CRC_TERM(key, 27, 0xdb861f3c)) ^ \
    (CRC_TERM(key, 28, 0x1f3fa653) ^ CRC_TERM(key, 29, 0x3e7f4ca6) ^ CRC_TERM(key, 30, 0x7cfe994c) ^ CRC_TERM(key, 31, 0xf9fd3298)))))
#define CRC_32D_FROM_32(key) \
    ((((CRC_TERM(key, 32, 0xf3e2da0c) ^ CRC_TERM(key, 33, 0x4ff62c33) ^ CRC_TERM(key, 34, 0x9fec5866) ^ CRC_TERM(key, 35, 0x97eb28e7)) ^ \
    (CRC_TERM(key, 36, 0x87e5c9e5) ^ CRC_TERM(key, 37, 0xa7f80be1) ^ CRC_TERM(key, 38, 0xe7c38fe9) ^ CRC_TERM(key, 39, 0x67b487f9))) ^ \
    ((CRC_TERM(key, 40, 0x5959b9b5) ^ CRC_TERM(key, 41, 0xb2b3736a) ^ CRC_TERM(key, 42, 0xcd557eff) ^ CRC_TERM(key, 43, 0x329965d5)) ^ \
    (CRC_TERM(key, 44, 0x6532cbaa) ^ CRC_TERM(key, 45, 0xca659754) ^ CRC_TERM(key, 46, 0x3cf8b683) ^ CRC_TERM(key, 47, 0x79f16d06)))) ^ \
    (((CRC_TERM(key, 48, 0x9e70f148) ^ CRC_TERM(key, 49, 0x94d27abb) ^ CRC_TERM(key, 50, 0x81976d5d) ^ CRC_TERM(key, 51, 0xab1d4291)) ^ \
    (CRC_TERM(key, 52, 0xfe091d09) ^ CRC_TERM(key, 53, 0x5421a239) ^ CRC_TERM(key, 54, 0xa8434472) ^ CRC_TERM(key, 55, 0xf8b510cf))) ^ \
    ((CRC_TERM(key, 56, 0x485640bd) ^ CRC_TERM(key, 57, 0x90ac817a) ^ CRC_TERM(key, 58, 0x896a9adf) ^ CRC_TERM(key, 59, 0xbae6ad95)) ^ \
    (CRC_TERM(key, 60, 0xddfec301) ^ CRC_TERM(key, 61, 0x13ce1e29) ^ CRC_TERM(key, 62, 0x279c3c52) ^ CRC_TERM(key, 63, 0x4f3878a4)))))
#define CRC_32D_FROM_64(key) \
    (((((CRC_TERM(key, 64, 0x68bce4e2) ^ CRC_TERM(key, 65, 0xd179c9c4) ^ CRC_TERM(key, 66, 0x0ac00ba3) ^ CRC_TERM(key, 67, 0x15801746)) ^ \
    (CRC_TERM(key, 68, 0x2b002e8c) ^ CRC_TERM(key, 69, 0x56005d18) ^ CRC_TERM(key, 70, 0xac00ba30) ^ CRC_TERM(key, 71, 0xf032ec4b))) ^ \
    ((CRC_TERM(key, 72, 0xb6cca36a) ^ CRC_TERM(key, 73, 0xc5aadeff) ^ CRC_TERM(key, 74, 0x236625d5) ^ CRC_TERM(key, 75, 0x46cc4baa)) ^ \
    (CRC_TERM(key, 76, 0x8d989754) ^ CRC_TERM(key, 77, 0xb302b683) ^ CRC_TERM(key, 78, 0xce36f52d) ^ CRC_TERM(key, 79, 0x345e7271)))) ^ \
    (((CRC_TERM(key, 80, 0x94d6056b) ^ CRC_TERM(key, 81, 0x819f92fd) ^ CRC_TERM(key, 82, 0xab0cbdd1) ^ CRC_TERM(key, 83, 0xfe2ae389)) ^ \
    (CRC_TERM(key, 84, 0x54665f39) ^ CRC_TERM(key, 85, 0xa8ccbe72) ^ CRC_TERM(key, 86, 0xf9aae4cf) ^ CRC_TERM(key, 87, 0x5b6651b5))) ^ \
    ((CRC_TERM(key, 88, 0xbf29cf82) ^ CRC_TERM(key, 89, 0xd660072f) ^ CRC_TERM(key, 90, 0x04f39675) ^ CRC_TERM(key, 91, 0x09e72cea)) ^ \
    (CRC_TERM(key, 92, 0x13ce59d4) ^ CRC_TERM(key, 93, 0x279cb3a8) ^ CRC_TERM(key, 94, 0x4f396750) ^ CRC_TERM(key, 95, 0x9e72cea0))))) ^ \
    ((((CRC_TERM(key, 96, 0x831d4544) ^ CRC_TERM(key, 97, 0xae0912a3) ^ CRC_TERM(key, 98, 0xf421bd6d) ^ CRC_TERM(key, 99, 0x4070e2f1)) ^ \
    (CRC_TERM(key, 100, 0x80e1c5e2) ^ CRC_TERM(key, 101, 0xa9f013ef) ^ CRC_TERM(key, 102, 0xfbd3bff5) ^ CRC_TERM(key, 103, 0x5f94e7c1))) ^ \
    ((CRC_TERM(key, 104, 0x11e17666) ^ CRC_TERM(key, 105, 0x23c2eccc) ^ CRC_TERM(key, 106, 0x4785d998) ^ CRC_TERM(key, 107, 0x8f0bb330)) ^ \
    (CRC_TERM(key, 108, 0xb624fe4b) ^ CRC_TERM(key, 109, 0xc47a64bd) ^ CRC_TERM(key, 110, 0x20c75151) ^ CRC_TERM(key, 111, 0x418ea2a2)))) ^ \
    (((CRC_TERM(key, 112, 0xcddb73d1) ^ CRC_TERM(key, 113, 0x33857f89) ^ CRC_TERM(key, 114, 0x670aff12) ^ CRC_TERM(key, 115, 0xce15fe24)) ^ \
    (CRC_TERM(key, 116, 0x34186463) ^ CRC_TERM(key, 117, 0x6830c8c6) ^ CRC_TERM(key, 118, 0xd061918c) ^ CRC_TERM(key, 119, 0x08f0bb33))) ^ \
    ((CRC_TERM(key, 120, 0x049541bb) ^ CRC_TERM(key, 121, 0x092a8376) ^ CRC_TERM(key, 122, 0x125506ec) ^ CRC_TERM(key, 123, 0x24aa0dd8)) ^ \
    (CRC_TERM(key, 124, 0x49541bb0) ^ CRC_TERM(key, 125, 0x92a83760) ^ CRC_TERM(key, 126, 0x8d63f6eb) ^ CRC_TERM(key, 127, 0xb2f475fd))))))
// For lengths of 1 to 16 bytes.
#define CRC_32D_LENGTH_1 32w0x7e5a3823
#define CRC_32D_LENGTH_2 32w0x89514bd0
#define CRC_32D_LENGTH_3 32w0x515623ef
#define CRC_32D_LENGTH_4 32w0xbad8faae
#define CRC_32D_LENGTH_5 32w0x2ffb8e27
#define CRC_32D_LENGTH_6 32w0x2677ab5a
#define CRC_32D_LENGTH_7 32w0x248673d7
#define CRC_32D_LENGTH_8 32w0x82eac53a
#define CRC_32D_LENGTH_9 32w0x11249dbc
#define CRC_32D_LENGTH_10 32w0x3d627e53
#define CRC_32D_LENGTH_11 32w0xf99dac1e
#define CRC_32D_LENGTH_12 32w0x353bf2f3
#define CRC_32D_LENGTH_13 32w0xa69f609d
#define CRC_32D_LENGTH_14 32w0x9d1b4cfb
#define CRC_32D_LENGTH_15 32w0x50ea5a70
#define CRC_32D_LENGTH_16 32w0x0e850df1
#define CRC_32D_4(key) (CRC_32D_LENGTH_4 ^ CRC_32D_FROM_0(key))
#define CRC_32D_8(key) (CRC_32D_LENGTH_8 ^ CRC_32D_FROM_0(key) ^ CRC_32D_FROM_32(key))
#define CRC_32D_ANY(number, key) (number ^ CRC_32D_FROM_0(key) ^ CRC_32D_FROM_32(key) ^ CRC_32D_FROM_64(key))

#define CRC_32K_FROM_0(key) \
    ((((CRC_TERM(key, 0, 0x9695c4ca) ^ CRC_TERM(key, 1, 0xfb4839c9) ^ CRC_TERM(key, 2, 0x20f3c3cf) ^ CRC_TERM(key, 3, 0x41e7879e)) ^ \
    (CRC_TERM(key, 4, 0x83cf0f3c) ^ CRC_TERM(key, 5, 0xd1fdae25) ^ CRC_TERM(key, 6, 0x7598ec17) ^ CRC_TERM(key, 7, 0xeb31d82e))) ^ \
    ((CRC_TERM(key, 8, 0x24901faa) ^ CRC_TERM(key, 9, 0x49203f54) ^ CRC_TERM(key, 10, 0x92407ea8) ^ CRC_TERM(key, 11, 0xf2e34d0d)) ^ \
    (CRC_TERM(key, 12, 0x33a52a47) ^ CRC_TERM(key, 13, 0x674a548e) ^ CRC_TERM(key, 14, 0xce94a91c) ^ CRC_TERM(key, 15, 0x4b4ae265)))) ^ \
    (((CRC_TERM(key, 16, 0x80475843) ^ CRC_TERM(key, 17, 0xd6ed00db) ^ CRC_TERM(key, 18, 0x7bb9b1eb) ^ CRC_TERM(key, 19, 0xf77363d6)) ^ \
    (CRC_TERM(key, 20, 0x388577f1) ^ CRC_TERM(key, 21, 0x710aefe2) ^ CRC_TERM(key, 22, 0xe215dfc4) ^ CRC_TERM(key, 23, 0x12480fd5))) ^ \
    ((CRC_TERM(key, 24, 0x18c5564c) ^ CRC_TERM(key, 25, 0x318aac98) ^ CRC_TERM(key, 26, 0x63155930) ^ CRC_TERM(key, 27, 0xc62ab260)) ^ \
    (CRC_TERM(key, 28, 0x5a36d49d) ^ CRC_TERM(key, 29, 0xb46da93a) ^ CRC_TERM(key, 30, 0xbeb8e229) ^ CRC_TERM(key, 31, 0xab12740f)))))
#define CRC_32K_FROM_32(key) \
    ((((CRC_TERM(key, 32, 0x14946d10) ^ CRC_TERM(key, 33, 0x2928da20) ^ CRC_TERM(key, 34, 0x5251b440) ^ CRC_TERM(key, 35, 0xa4a36880)) ^ \
    (CRC_TERM(key, 36, 0x9f25615d) ^ CRC_TERM(key, 37, 0xe82972e7) ^ CRC_TERM(key, 38, 0x06315593) ^ CRC_TERM(key, 39, 0x0c62ab26))) ^ \
    ((CRC_TERM(key, 40, 0x83db9b51) ^ CRC_TERM(key, 41, 0xd1d486ff) ^ CRC_TERM(key, 42, 0x75cabda3) ^ CRC_TERM(key, 43, 0xeb957b46)) ^ \
    (CRC_TERM(key, 44, 0x014946d1) ^ CRC_TERM(key, 45, 0x02928da2) ^ CRC_TERM(key, 46, 0x05251b44) ^ CRC_TERM(key, 47, 0x0a4a3688)))) ^ \
    (((CRC_TERM(key, 48, 0x6041fc7a) ^ CRC_TERM(key, 49, 0xc083f8f4) ^ CRC_TERM(key, 50, 0x576441b5) ^ CRC_TERM(key, 51, 0xaec8836a)) ^ \
    (CRC_TERM(key, 52, 0x8bf2b689) ^ CRC_TERM(key, 53, 0xc186dd4f) ^ CRC_TERM(key, 54, 0x556e0ac3) ^ CRC_TERM(key, 55, 0xaadc1586))) ^ \
    ((CRC_TERM(key, 56, 0x9d65b2a5) ^ CRC_TERM(key, 57, 0xeca8d517) ^ CRC_TERM(key, 58, 0x0f321a73) ^ CRC_TERM(key, 59, 0x1e6434e6)) ^ \
    (CRC_TERM(key, 60, 0x3cc869cc) ^ CRC_TERM(key, 61, 0x7990d398) ^ CRC_TERM(key, 62, 0xf321a730) ^ CRC_TERM(key, 63, 0x3020fe3d)))))
#define CRC_32K_FROM_64(key) \
    (((((CRC_TERM(key, 64, 0x8c3714bc) ^ CRC_TERM(key, 65, 0xce0d9925) ^ CRC_TERM(key, 66, 0x4a788217) ^ CRC_TERM(key, 67, 0x94f1042e)) ^ \
    (CRC_TERM(key, 68, 0xff81b801) ^ CRC_TERM(key, 69, 0x2960c05f) ^ CRC_TERM(key, 70, 0x52c180be) ^ CRC_TERM(key, 71, 0xa583017c))) ^ \
    ((CRC_TERM(key, 72, 0xd89b0a72) ^ CRC_TERM(key, 73, 0x6755a4b9) ^ CRC_TERM(key, 74, 0xceab4972) ^ CRC_TERM(key, 75, 0x4b3522b9)) ^ \
    (CRC_TERM(key, 76, 0x966a4572) ^ CRC_TERM(key, 77, 0xfab73ab9) ^ CRC_TERM(key, 78, 0x230dc52f) ^ CRC_TERM(key, 79, 0x461b8a5e)))) ^ \
    (((CRC_TERM(key, 80, 0xdc3aefcd) ^ CRC_TERM(key, 81, 0x6e166fc7) ^ CRC_TERM(key, 82, 0xdc2cdf8e) ^ CRC_TERM(key, 83, 0x6e3a0f41)) ^ \
    (CRC_TERM(key, 84, 0xdc741e82) ^ CRC_TERM(key, 85, 0x6e8b8d59) ^ CRC_TERM(key, 86, 0xdd171ab2) ^ CRC_TERM(key, 87, 0x6c4d8539))) ^ \
    ((CRC_TERM(key, 88, 0x69f48e4d) ^ CRC_TERM(key, 89, 0xd3e91c9a) ^ CRC_TERM(key, 90, 0x71b18969) ^ CRC_TERM(key, 91, 0xe36312d2)) ^ \
    (CRC_TERM(key, 92, 0x10a595f9) ^ CRC_TERM(key, 93, 0x214b2bf2) ^ CRC_TERM(key, 94, 0x429657e4) ^ CRC_TERM(key, 95, 0x852cafc8))))) ^ \
    ((((CRC_TERM(key, 96, 0x82709802) ^ CRC_TERM(key, 97, 0xd2828059) ^ CRC_TERM(key, 98, 0x7366b0ef) ^ CRC_TERM(key, 99, 0xe6cd61de)) ^ \
    (CRC_TERM(key, 100, 0x1bf973e1) ^ CRC_TERM(key, 101, 0x37f2e7c2) ^ CRC_TERM(key, 102, 0x6fe5cf84) ^ CRC_TERM(key, 103, 0xdfcb9f08))) ^ \
    ((CRC_TERM(key, 104, 0xfbca4951) ^ CRC_TERM(key, 105, 0x21f722ff) ^ CRC_TERM(key, 106, 0x43ee45fe) ^ CRC_TERM(key, 107, 0x87dc8bfc)) ^ \
    (CRC_TERM(key, 108, 0xd9daa7a5) ^ CRC_TERM(key, 109, 0x65d6ff17) ^ CRC_TERM(key, 110, 0xcbadfe2e) ^ CRC_TERM(key, 111, 0x41384c01)))) ^ \
    (((CRC_TERM(key, 112, 0x6039eda8) ^ CRC_TERM(key, 113, 0xc073db50) ^ CRC_TERM(key, 114, 0x568406fd) ^ CRC_TERM(key, 115, 0xad080dfa)) ^ \
    (CRC_TERM(key, 116, 0x8c73aba9) ^ CRC_TERM(key, 117, 0xce84e70f) ^ CRC_TERM(key, 118, 0x4b6a7e43) ^ CRC_TERM(key, 119, 0x96d4fc86))) ^ \
    ((CRC_TERM(key, 120, 0x7b4bc878) ^ CRC_TERM(key, 121, 0xf69790f0) ^ CRC_TERM(key, 122, 0x3b4c91bd) ^ CRC_TERM(key, 123, 0x7699237a)) ^ \
    (CRC_TERM(key, 124, 0xed3246f4) ^ CRC_TERM(key, 125, 0x0c073db5) ^ CRC_TERM(key, 126, 0x180e7b6a) ^ CRC_TERM(key, 127, 0x301cf6d4))))))
// For lengths of 1 to 16 bytes.
#define CRC_32K_LENGTH_1 32w0x3f522c72
#define CRC_32K_LENGTH_2 32w0xe38f0a99
#define CRC_32K_LENGTH_3 32w0x803d373e
#define CRC_32K_LENGTH_4 32w0xf7bccdc4
#define CRC_32K_LENGTH_5 32w0x81ff6749
#define CRC_32K_LENGTH_6 32w0x9d397c56
#define CRC_32K_LENGTH_7 32w0x12230c23
#define CRC_32K_LENGTH_8 32w0x83605c58
#define CRC_32K_LENGTH_9 32w0x8861289b
#define CRC_32K_LENGTH_10 32w0x7b1ee0d5
#define CRC_32K_LENGTH_11 32w0x94290e92
#define CRC_32K_LENGTH_12 32w0xac70eba7
#define CRC_32K_LENGTH_13 32w0x481c145e
#define CRC_32K_LENGTH_14 32w0x5311aed5
#define CRC_32K_LENGTH_15 32w0x940101dc
#define CRC_32K_LENGTH_16 32w0x43b45227
#define CRC_32K_4(key) (CRC_32K_LENGTH_4 ^ CRC_32K_FROM_0(key))
#define CRC_32K_8(key) (CRC_32K_LENGTH_8 ^ CRC_32K_FROM_0(key) ^ CRC_32K_FROM_32(key))
#define CRC_32K_ANY(number, key) (number ^ CRC_32K_FROM_0(key) ^ CRC_32K_FROM_32(key) ^ CRC_32K_FROM_64(key))

#define CRC_32Q_FROM_0(key) \
    ((((CRC_TERM(key, 0, 0x999a0002) ^ CRC_TERM(key, 1, 0x98310507) ^ CRC_TERM(key, 2, 0x9b670f0d) ^ CRC_TERM(key, 3, 0x9dcb1b19)) ^ \
    (CRC_TERM(key, 4, 0x90933331) ^ CRC_TERM(key, 5, 0x8a236361) ^ CRC_TERM(key, 6, 0xbf43c3c1) ^ CRC_TERM(key, 7, 0xd5828281))) ^ \
    ((CRC_TERM(key, 8, 0x98a89f07) ^ CRC_TERM(key, 9, 0x9a543b0d) ^ CRC_TERM(key, 10, 0x9fad7319) ^ CRC_TERM(key, 11, 0x945fe331)) ^ \
    (CRC_TERM(key, 12, 0x83bac361) ^ CRC_TERM(key, 13, 0xac7083c1) ^ CRC_TERM(key, 14, 0xf3e40281) ^ CRC_TERM(key, 15, 0x4ccd0001)))) ^ \
    (((CRC_TERM(key, 16, 0x9a54a297) ^ CRC_TERM(key, 17, 0x9fac402d) ^ CRC_TERM(key, 18, 0x945d8559) ^ CRC_TERM(key, 19, 0x83be0fb1)) ^ \
    (CRC_TERM(key, 20, 0xac791a61) ^ CRC_TERM(key, 21, 0xf3f731c1) ^ CRC_TERM(key, 22, 0x4ceb6681) ^ CRC_TERM(key, 23, 0x99d6cd02))) ^ \
    ((CRC_TERM(key, 24, 0xdf47ef1a) ^ CRC_TERM(key, 25, 0x158adb37) ^ CRC_TERM(key, 26, 0x2b15b66e) ^ CRC_TERM(key, 27, 0x562b6cdc)) ^ \
    (CRC_TERM(key, 28, 0xac56d9b8) ^ CRC_TERM(key, 29, 0xf3a8b673) ^ CRC_TERM(key, 30, 0x4c5469e5) ^ CRC_TERM(key, 31, 0x98a8d3ca)))))
#define CRC_32Q_FROM_32(key) \
    ((((CRC_TERM(key, 32, 0x95b66ac0) ^ CRC_TERM(key, 33, 0x8069d083) ^ CRC_TERM(key, 34, 0xabd6a405) ^ CRC_TERM(key, 35, 0xfca84d09)) ^ \
    (CRC_TERM(key, 36, 0x52559f11) ^ CRC_TERM(key, 37, 0xa4ab3e22) ^ CRC_TERM(key, 38, 0xe2537947) ^ CRC_TERM(key, 39, 0x6fa3f78d))) ^ \
    ((CRC_TERM(key, 40, 0x6a54f72a) ^ CRC_TERM(key, 41, 0xd4a9ee54) ^ CRC_TERM(key, 42, 0x0256d9ab) ^ CRC_TERM(key, 43, 0x04adb356)) ^ \
    (CRC_TERM(key, 44, 0x095b66ac) ^ CRC_TERM(key, 45, 0x12b6cd58) ^ CRC_TERM(key, 46, 0x256d9ab0) ^ CRC_TERM(key, 47, 0x4adb3560)))) ^ \
    (((CRC_TERM(key, 48, 0x8fb32988) ^ CRC_TERM(key, 49, 0xb4635613) ^ CRC_TERM(key, 50, 0xc3c3a925) ^ CRC_TERM(key, 51, 0x2c825749)) ^ \
    (CRC_TERM(key, 52, 0x5904ae92) ^ CRC_TERM(key, 53, 0xb2095d24) ^ CRC_TERM(key, 54, 0xcf17bf4b) ^ CRC_TERM(key, 55, 0x352a7b95))) ^ \
    ((CRC_TERM(key, 56, 0x48c62ab1) ^ CRC_TERM(key, 57, 0x918c5562) ^ CRC_TERM(key, 58, 0x881dafc7) ^ CRC_TERM(key, 59, 0xbb3e5a8d)) ^ \
    (CRC_TERM(key, 60, 0xdd79b019) ^ CRC_TERM(key, 61, 0x11f66531) ^ CRC_TERM(key, 62, 0x23ecca62) ^ CRC_TERM(key, 63, 0x47d994c4)))))
#define CRC_32Q_FROM_64(key) \
    (((((CRC_TERM(key, 64, 0x56e014f9) ^ CRC_TERM(key, 65, 0xadc029f2) ^ CRC_TERM(key, 66, 0xf08556e7) ^ CRC_TERM(key, 67, 0x4a0fa8cd)) ^ \
    (CRC_TERM(key, 68, 0x941f519a) ^ CRC_TERM(key, 69, 0x833ba637) ^ CRC_TERM(key, 70, 0xad72496d) ^ CRC_TERM(key, 71, 0xf1e197d9))) ^ \
    ((CRC_TERM(key, 72, 0x7476ea1f) ^ CRC_TERM(key, 73, 0xe8edd43e) ^ CRC_TERM(key, 74, 0x7adead7f) ^ CRC_TERM(key, 75, 0xf5bd5afe)) ^ \
    (CRC_TERM(key, 76, 0x407fb0ff) ^ CRC_TERM(key, 77, 0x80ff61fe) ^ CRC_TERM(key, 78, 0xaafbc6ff) ^ CRC_TERM(key, 79, 0xfef288fd)))) ^ \
    (((CRC_TERM(key, 80, 0x97e054ca) ^ CRC_TERM(key, 81, 0x84c5ac97) ^ CRC_TERM(key, 82, 0xa28e5c2d) ^ CRC_TERM(key, 83, 0xee19bd59)) ^ \
    (CRC_TERM(key, 84, 0x77367fb1) ^ CRC_TERM(key, 85, 0xee6cff62) ^ CRC_TERM(key, 86, 0x77dcfbc7) ^ CRC_TERM(key, 87, 0xefb9f78e))) ^ \
    ((CRC_TERM(key, 88, 0x6facbf0a) ^ CRC_TERM(key, 89, 0xdf597e14) ^ CRC_TERM(key, 90, 0x15b7f92b) ^ CRC_TERM(key, 91, 0x2b6ff256)) ^ \
    (CRC_TERM(key, 92, 0x56dfe4ac) ^ CRC_TERM(key, 93, 0xadbfc958) ^ CRC_TERM(key, 94, 0xf07a97b3) ^ CRC_TERM(key, 95, 0x4bf02a65))))) ^ \
    ((((CRC_TERM(key, 96, 0x0595b2a1) ^ CRC_TERM(key, 97, 0x0b2b6542) ^ CRC_TERM(key, 98, 0x1656ca84) ^ CRC_TERM(key, 99, 0x2cad9508)) ^ \
    (CRC_TERM(key, 100, 0x595b2a10) ^ CRC_TERM(key, 101, 0xb2b65420) ^ CRC_TERM(key, 102, 0xce69ad43) ^ CRC_TERM(key, 103, 0x37d65f85))) ^ \
    ((CRC_TERM(key, 104, 0xc63e7450) ^ CRC_TERM(key, 105, 0x2779eda3) ^ CRC_TERM(key, 106, 0x4ef3db46) ^ CRC_TERM(key, 107, 0x9de7b68c)) ^ \
    (CRC_TERM(key, 108, 0x90ca681b) ^ CRC_TERM(key, 109, 0x8a91d535) ^ CRC_TERM(key, 110, 0xbe26af69) ^ CRC_TERM(key, 111, 0xd7485bd1)))) ^ \
    (((CRC_TERM(key, 112, 0x2f16ce84) ^ CRC_TERM(key, 113, 0x5e2d9d08) ^ CRC_TERM(key, 114, 0xbc5b3a10) ^ CRC_TERM(key, 115, 0xd3b37123)) ^ \
    (CRC_TERM(key, 116, 0x0c63e745) ^ CRC_TERM(key, 117, 0x18c7ce8a) ^ CRC_TERM(key, 118, 0x318f9d14) ^ CRC_TERM(key, 119, 0x631f3a28))) ^ \
    ((CRC_TERM(key, 120, 0x4eca9b42) ^ CRC_TERM(key, 121, 0x9d953684) ^ CRC_TERM(key, 122, 0x902f680b) ^ CRC_TERM(key, 123, 0x8b5bd515)) ^ \
    (CRC_TERM(key, 124, 0xbdb2af29) ^ CRC_TERM(key, 125, 0xd0605b51) ^ CRC_TERM(key, 126, 0x0bc5b3a1) ^ CRC_TERM(key, 127, 0x178b6742))))))
// For lengths of 1 to 16 bytes.
#define CRC_32Q_LENGTH_1 32w0x88760001
#define CRC_32Q_LENGTH_2 32w0x11647603
#define CRC_32Q_LENGTH_3 32w0x89cc6172
#define CRC_32Q_LENGTH_4 32w0xb53d5af6
#define CRC_32Q_LENGTH_5 32w0xfbe42641
#define CRC_32Q_LENGTH_6 32w0xae5427e4
#define CRC_32Q_LENGTH_7 32w0xf35d790a
#define CRC_32Q_LENGTH_8 32w0x8d7f4366
#define CRC_32Q_LENGTH_9 32w0xbecdd5e8
#define CRC_32Q_LENGTH_10 32w0xf5e1f4ec
#define CRC_32Q_LENGTH_11 32w0x6ecdd7c0
#define CRC_32Q_LENGTH_12 32w0xe2d98c96
#define CRC_32Q_LENGTH_13 32w0xced36237
#define CRC_32Q_LENGTH_14 32w0x08c4893b
#define CRC_32Q_LENGTH_15 32w0x0eae8ac4
#define CRC_32Q_LENGTH_16 32w0x79dee0c6
#define CRC_32Q_4(key) (CRC_32Q_LENGTH_4 ^ CRC_32Q_FROM_0(key))
#define CRC_32Q_8(key) (CRC_32Q_LENGTH_8 ^ CRC_32Q_FROM_0(key) ^ CRC_32Q_FROM_32(key))
#define CRC_32Q_ANY(number, key) (number ^ CRC_32Q_FROM_0(key) ^ CRC_32Q_FROM_32(key) ^ CRC_32Q_FROM_64(key))

#define CRC_IEEE_FROM_0(key) \
    ((((CRC_TERM(key, 0, 0x77073096) ^ CRC_TERM(key, 1, 0xee0e612c) ^ CRC_TERM(key, 2, 0x076dc419) ^ CRC_TERM(key, 3, 0x0edb8832)) ^ \
    (CRC_TERM(key, 4, 0x1db71064) ^ CRC_TERM(key, 5, 0x3b6e20c8) ^ CRC_TERM(key, 6, 0x76dc4190) ^ CRC_TERM(key, 7, 0xedb88320))) ^ \
    ((CRC_TERM(key, 8, 0x191b3141) ^ CRC_TERM(key, 9, 0x32366282) ^ CRC_TERM(key, 10, 0x646cc504) ^ CRC_TERM(key, 11, 0xc8d98a08)) ^ \
    (CRC_TERM(key, 12, 0x4ac21251) ^ CRC_TERM(key, 13, 0x958424a2) ^ CRC_TERM(key, 14, 0xf0794f05) ^ CRC_TERM(key, 15, 0x3b83984b)))) ^ \
    (((CRC_TERM(key, 16, 0x01c26a37) ^ CRC_TERM(key, 17, 0x0384d46e) ^ CRC_TERM(key, 18, 0x0709a8dc) ^ CRC_TERM(key, 19, 0x0e1351b8)) ^ \
    (CRC_TERM(key, 20, 0x1c26a370) ^ CRC_TERM(key, 21, 0x384d46e0) ^ CRC_TERM(key, 22, 0x709a8dc0) ^ CRC_TERM(key, 23, 0xe1351b80))) ^ \
    ((CRC_TERM(key, 24, 0xb8bc6765) ^ CRC_TERM(key, 25, 0xaa09c88b) ^ CRC_TERM(key, 26, 0x8f629757) ^ CRC_TERM(key, 27, 0xc5b428ef)) ^ \
    (CRC_TERM(key, 28, 0x5019579f) ^ CRC_TERM(key, 29, 0xa032af3e) ^ CRC_TERM(key, 30, 0x9b14583d) ^ CRC_TERM(key, 31, 0xed59b63b)))))
#define CRC_IEEE_FROM_32(key) \
    ((((CRC_TERM(key, 32, 0x3d6029b0) ^ CRC_TERM(key, 33, 0x7ac05360) ^ CRC_TERM(key, 34, 0xf580a6c0) ^ CRC_TERM(key, 35, 0x30704bc1)) ^ \
    (CRC_TERM(key, 36, 0x60e09782) ^ CRC_TERM(key, 37, 0xc1c12f04) ^ CRC_TERM(key, 38, 0x58f35849) ^ CRC_TERM(key, 39, 0xb1e6b092))) ^ \
    ((CRC_TERM(key, 40, 0xcb5cd3a5) ^ CRC_TERM(key, 41, 0x4dc8a10b) ^ CRC_TERM(key, 42, 0x9b914216) ^ CRC_TERM(key, 43, 0xec53826d)) ^ \
    (CRC_TERM(key, 44, 0x03d6029b) ^ CRC_TERM(key, 45, 0x07ac0536) ^ CRC_TERM(key, 46, 0x0f580a6c) ^ CRC_TERM(key, 47, 0x1eb014d8)))) ^ \
    (((CRC_TERM(key, 48, 0xa6770bb4) ^ CRC_TERM(key, 49, 0x979f1129) ^ CRC_TERM(key, 50, 0xf44f2413) ^ CRC_TERM(key, 51, 0x33ef4e67)) ^ \
    (CRC_TERM(key, 52, 0x67de9cce) ^ CRC_TERM(key, 53, 0xcfbd399c) ^ CRC_TERM(key, 54, 0x440b7579) ^ CRC_TERM(key, 55, 0x8816eaf2))) ^ \
    ((CRC_TERM(key, 56, 0xccaa009e) ^ CRC_TERM(key, 57, 0x4225077d) ^ CRC_TERM(key, 58, 0x844a0efa) ^ CRC_TERM(key, 59, 0xd3e51bb5)) ^ \
    (CRC_TERM(key, 60, 0x7cbb312b) ^ CRC_TERM(key, 61, 0xf9766256) ^ CRC_TERM(key, 62, 0x299dc2ed) ^ CRC_TERM(key, 63, 0x533b85da)))))
#define CRC_IEEE_FROM_64(key) \
    (((((CRC_TERM(key, 64, 0x177b1443) ^ CRC_TERM(key, 65, 0x2ef62886) ^ CRC_TERM(key, 66, 0x5dec510c) ^ CRC_TERM(key, 67, 0xbbd8a218)) ^ \
    (CRC_TERM(key, 68, 0xacc04271) ^ CRC_TERM(key, 69, 0x82f182a3) ^ CRC_TERM(key, 70, 0xde920307) ^ CRC_TERM(key, 71, 0x6655004f))) ^ \
    ((CRC_TERM(key, 72, 0xefc26b3e) ^ CRC_TERM(key, 73, 0x04f5d03d) ^ CRC_TERM(key, 74, 0x09eba07a) ^ CRC_TERM(key, 75, 0x13d740f4)) ^ \
    (CRC_TERM(key, 76, 0x27ae81e8) ^ CRC_TERM(key, 77, 0x4f5d03d0) ^ CRC_TERM(key, 78, 0x9eba07a0) ^ CRC_TERM(key, 79, 0xe6050901)))) ^ \
    (((CRC_TERM(key, 80, 0xc18edfc0) ^ CRC_TERM(key, 81, 0x586cb9c1) ^ CRC_TERM(key, 82, 0xb0d97382) ^ CRC_TERM(key, 83, 0xbac3e145)) ^ \
    (CRC_TERM(key, 84, 0xaef6c4cb) ^ CRC_TERM(key, 85, 0x869c8fd7) ^ CRC_TERM(key, 86, 0xd64819ef) ^ CRC_TERM(key, 87, 0x77e1359f))) ^ \
    ((CRC_TERM(key, 88, 0x9ba54c6f) ^ CRC_TERM(key, 89, 0xec3b9e9f) ^ CRC_TERM(key, 90, 0x03063b7f) ^ CRC_TERM(key, 91, 0x060c76fe)) ^ \
    (CRC_TERM(key, 92, 0x0c18edfc) ^ CRC_TERM(key, 93, 0x1831dbf8) ^ CRC_TERM(key, 94, 0x3063b7f0) ^ CRC_TERM(key, 95, 0x60c76fe0))))) ^ \
    ((((CRC_TERM(key, 96, 0xdd96d985) ^ CRC_TERM(key, 97, 0x605cb54b) ^ CRC_TERM(key, 98, 0xc0b96a96) ^ CRC_TERM(key, 99, 0x5a03d36d)) ^ \
    (CRC_TERM(key, 100, 0xb407a6da) ^ CRC_TERM(key, 101, 0xb37e4bf5) ^ CRC_TERM(key, 102, 0xbd8d91ab) ^ CRC_TERM(key, 103, 0xa06a2517))) ^ \
    ((CRC_TERM(key, 104, 0x9d0fe176) ^ CRC_TERM(key, 105, 0xe16ec4ad) ^ CRC_TERM(key, 106, 0x19ac8f1b) ^ CRC_TERM(key, 107, 0x33591e36)) ^ \
    (CRC_TERM(key, 108, 0x66b23c6c) ^ CRC_TERM(key, 109, 0xcd6478d8) ^ CRC_TERM(key, 110, 0x41b9f7f1) ^ CRC_TERM(key, 111, 0x8373efe2)))) ^ \
    (((CRC_TERM(key, 112, 0xb9fbdbe8) ^ CRC_TERM(key, 113, 0xa886b191) ^ CRC_TERM(key, 114, 0x8a7c6563) ^ CRC_TERM(key, 115, 0xcf89cc87)) ^ \
    (CRC_TERM(key, 116, 0x44629f4f) ^ CRC_TERM(key, 117, 0x88c53e9e) ^ CRC_TERM(key, 118, 0xcafb7b7d) ^ CRC_TERM(key, 119, 0x4e87f0bb))) ^ \
    ((CRC_TERM(key, 120, 0xae689191) ^ CRC_TERM(key, 121, 0x87a02563) ^ CRC_TERM(key, 122, 0xd4314c87) ^ CRC_TERM(key, 123, 0x73139f4f)) ^ \
    (CRC_TERM(key, 124, 0xe6273e9e) ^ CRC_TERM(key, 125, 0x173f7b7d) ^ CRC_TERM(key, 126, 0x2e7ef6fa) ^ CRC_TERM(key, 127, 0x5cfdedf4))))))
// For lengths of 1 to 16 bytes.
#define CRC_IEEE_LENGTH_1 32w0xd202ef8d
#define CRC_IEEE_LENGTH_2 32w0x41d912ff
#define CRC_IEEE_LENGTH_3 32w0xff41d912
#define CRC_IEEE_LENGTH_4 32w0x2144df1c
#define CRC_IEEE_LENGTH_5 32w0xc622f71d
#define CRC_IEEE_LENGTH_6 32w0xb1c2a1a3
#define CRC_IEEE_LENGTH_7 32w0x9d6cdf7e
#define CRC_IEEE_LENGTH_8 32w0x6522df69
#define CRC_IEEE_LENGTH_9 32w0xe60914ae
#define CRC_IEEE_LENGTH_10 32w0xe38a6876
#define CRC_IEEE_LENGTH_11 32w0x6b87b1ec
#define CRC_IEEE_LENGTH_12 32w0x7bd5c66f
#define CRC_IEEE_LENGTH_13 32w0x0f744682
#define CRC_IEEE_LENGTH_14 32w0xd1bb79c7
#define CRC_IEEE_LENGTH_15 32w0xd7d303e7
#define CRC_IEEE_LENGTH_16 32w0xecbb4b55
#define CRC_IEEE_4(key) (CRC_IEEE_LENGTH_4 ^ CRC_IEEE_FROM_0(key))
#define CRC_IEEE_8(key) (CRC_IEEE_LENGTH_8 ^ CRC_IEEE_FROM_0(key) ^ CRC_IEEE_FROM_32(key))
#define CRC_IEEE_ANY(number, key) (number ^ CRC_IEEE_FROM_0(key) ^ CRC_IEEE_FROM_32(key) ^ CRC_IEEE_FROM_64(key))

#endif
