// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by scripts/p4-tna-tables: Copies and replica; which of the key's places.
(1, 1) : at_1(); (1, 2) : at_1(); (2, 1) : at_1();
(2, 2) : at_2(); (2, 3) : at_2(); (3, 1) : at_1();
(3, 2) : at_2(); (3, 3) : at_3(); (3, 4) : at_3();
(4, 1) : at_1(); (4, 2) : at_2(); (4, 3) : at_3();
(4, 4) : at_4(); (4, 5) : at_4();
