// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by scripts/p4-tna-tables: Operation, words that wait, words of the packet; which are its own, how many are written, and their bytes.
(OPERATION_WRITE, 0, 0) : set_own(0x0000, 0, 0); (OPERATION_WRITE, 0, 1) : set_own(0x0001, 0, 0); (OPERATION_WRITE, 0, 2) : set_own(0x0003, 0, 0);
(OPERATION_WRITE, 0, 3) : set_own(0x0007, 0, 0); (OPERATION_WRITE, 0, 4) : set_own(0x000f, 0, 0); (OPERATION_WRITE, 0, 5) : set_own(0x001f, 0, 0);
(OPERATION_WRITE, 0, 6) : set_own(0x003f, 0, 0); (OPERATION_WRITE, 0, 7) : set_own(0x007f, 0, 0); (OPERATION_WRITE, 0, 8) : set_own(0x00ff, 0, 0);
(OPERATION_WRITE, 0, 9) : set_own(0x01ff, 0, 0); (OPERATION_WRITE, 0, 10) : set_own(0x03ff, 0, 0); (OPERATION_WRITE, 0, 11) : set_own(0x07ff, 0, 0);
(OPERATION_WRITE, 0, 12) : set_own(0x0fff, 0, 0); (OPERATION_WRITE, 0, 13) : set_own(0x1fff, 0, 0); (OPERATION_WRITE, 0, 14) : set_own(0x3fff, 0, 0);
(OPERATION_WRITE, 0, 15) : set_own(0x7fff, 0, 0); (OPERATION_WRITE, 0, 16) : set_own(0xffff, 0, 0); (OPERATION_LIST, 0, 1) : set_own(0x0001, 1, 4);
(OPERATION_LIST, 1, 1) : set_own(0x0002, 2, 8); (OPERATION_LIST, 2, 1) : set_own(0x0004, 3, 12); (OPERATION_LIST, 3, 1) : set_own(0x0008, 4, 16);
(OPERATION_LIST, 4, 1) : set_own(0x0010, 5, 20); (OPERATION_LIST, 5, 1) : set_own(0x0020, 6, 24); (OPERATION_LIST, 6, 1) : set_own(0x0040, 7, 28);
(OPERATION_LIST, 7, 1) : set_own(0x0080, 8, 32); (OPERATION_LIST, 8, 1) : set_own(0x0100, 9, 36); (OPERATION_LIST, 9, 1) : set_own(0x0200, 10, 40);
(OPERATION_LIST, 10, 1) : set_own(0x0400, 11, 44); (OPERATION_LIST, 11, 1) : set_own(0x0800, 12, 48); (OPERATION_LIST, 12, 1) : set_own(0x1000, 13, 52);
(OPERATION_LIST, 13, 1) : set_own(0x2000, 14, 56); (OPERATION_LIST, 14, 1) : set_own(0x4000, 15, 60); (OPERATION_LIST, 15, 1) : set_own(0x8000, 16, 64);
(OPERATION_LIST, 0, 2) : set_own(0x0003, 2, 8); (OPERATION_LIST, 2, 2) : set_own(0x000c, 4, 16); (OPERATION_LIST, 4, 2) : set_own(0x0030, 6, 24);
(OPERATION_LIST, 6, 2) : set_own(0x00c0, 8, 32); (OPERATION_LIST, 8, 2) : set_own(0x0300, 10, 40); (OPERATION_LIST, 10, 2) : set_own(0x0c00, 12, 48);
(OPERATION_LIST, 12, 2) : set_own(0x3000, 14, 56); (OPERATION_LIST, 14, 2) : set_own(0xc000, 16, 64); (OPERATION_LIST, 0, 4) : set_own(0x000f, 4, 16);
(OPERATION_LIST, 4, 4) : set_own(0x00f0, 8, 32); (OPERATION_LIST, 8, 4) : set_own(0x0f00, 12, 48); (OPERATION_LIST, 12, 4) : set_own(0xf000, 16, 64);
(OPERATION_LIST, 0, 8) : set_own(0x00ff, 8, 32); (OPERATION_LIST, 8, 8) : set_own(0xff00, 16, 64); (OPERATION_LIST, 0, 16) : set_own(0xffff, 16, 64);
(OPERATION_LIST, 1, 0) : set_own(0, 1, 4); (OPERATION_LIST, 2, 0) : set_own(0, 2, 8); (OPERATION_LIST, 3, 0) : set_own(0, 3, 12);
(OPERATION_LIST, 4, 0) : set_own(0, 4, 16); (OPERATION_LIST, 5, 0) : set_own(0, 5, 20); (OPERATION_LIST, 6, 0) : set_own(0, 6, 24);
(OPERATION_LIST, 7, 0) : set_own(0, 7, 28); (OPERATION_LIST, 8, 0) : set_own(0, 8, 32); (OPERATION_LIST, 9, 0) : set_own(0, 9, 36);
(OPERATION_LIST, 10, 0) : set_own(0, 10, 40); (OPERATION_LIST, 11, 0) : set_own(0, 11, 44); (OPERATION_LIST, 12, 0) : set_own(0, 12, 48);
(OPERATION_LIST, 13, 0) : set_own(0, 13, 52); (OPERATION_LIST, 14, 0) : set_own(0, 14, 56); (OPERATION_LIST, 15, 0) : set_own(0, 15, 60);
(OPERATION_LIST, 16, 0) : set_own(0, 16, 64);
