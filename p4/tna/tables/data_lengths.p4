// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by scripts/p4-tna-tables: Items of a record; bytes of data in its Key-Write, and lengths of UDP and IPv4.
0x0000 : set_lengths(0, 32, 52); 0x0400 : set_lengths(8, 40, 60); 0x0800 : set_lengths(8, 40, 60);
0x0c00 : set_lengths(16, 48, 68); 0x1000 : set_lengths(4, 36, 56); 0x1400 : set_lengths(12, 44, 64);
0x1800 : set_lengths(12, 44, 64); 0x1c00 : set_lengths(20, 52, 72); 0x2000 : set_lengths(4, 36, 56);
0x2400 : set_lengths(12, 44, 64); 0x2800 : set_lengths(12, 44, 64); 0x2c00 : set_lengths(20, 52, 72);
0x3000 : set_lengths(8, 40, 60); 0x3400 : set_lengths(16, 48, 68); 0x3800 : set_lengths(16, 48, 68);
0x3c00 : set_lengths(24, 56, 76); 0x4000 : set_lengths(4, 36, 56); 0x4400 : set_lengths(12, 44, 64);
0x4800 : set_lengths(12, 44, 64); 0x4c00 : set_lengths(20, 52, 72); 0x5000 : set_lengths(8, 40, 60);
0x5400 : set_lengths(16, 48, 68); 0x5800 : set_lengths(16, 48, 68); 0x5c00 : set_lengths(24, 56, 76);
0x6000 : set_lengths(8, 40, 60); 0x6400 : set_lengths(16, 48, 68); 0x6800 : set_lengths(16, 48, 68);
0x6c00 : set_lengths(24, 56, 76); 0x7000 : set_lengths(12, 44, 64); 0x7400 : set_lengths(20, 52, 72);
0x7800 : set_lengths(20, 52, 72); 0x7c00 : set_lengths(28, 60, 80);
