// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by scripts/p4-tna-tables: Form and words written; lengths of UDP, IPv4 and the write.
(FORM_DATA, 0) : set_lengths(40, 60, 0); (FORM_DATA, 1) : set_lengths(44, 64, 4); (FORM_DATA, 2) : set_lengths(48, 68, 8);
(FORM_DATA, 3) : set_lengths(52, 72, 12); (FORM_DATA, 4) : set_lengths(56, 76, 16); (FORM_DATA, 5) : set_lengths(60, 80, 20);
(FORM_DATA, 6) : set_lengths(64, 84, 24); (FORM_DATA, 7) : set_lengths(68, 88, 28); (FORM_DATA, 8) : set_lengths(72, 92, 32);
(FORM_DATA, 9) : set_lengths(76, 96, 36); (FORM_DATA, 10) : set_lengths(80, 100, 40); (FORM_DATA, 11) : set_lengths(84, 104, 44);
(FORM_DATA, 12) : set_lengths(88, 108, 48); (FORM_DATA, 13) : set_lengths(92, 112, 52); (FORM_DATA, 14) : set_lengths(96, 116, 56);
(FORM_DATA, 15) : set_lengths(100, 120, 60); (FORM_DATA, 16) : set_lengths(104, 124, 64); (FORM_DATA_NOTICE, 0) : set_lengths(44, 64, 0);
(FORM_DATA_NOTICE, 1) : set_lengths(48, 68, 4); (FORM_DATA_NOTICE, 2) : set_lengths(52, 72, 8); (FORM_DATA_NOTICE, 3) : set_lengths(56, 76, 12);
(FORM_DATA_NOTICE, 4) : set_lengths(60, 80, 16); (FORM_DATA_NOTICE, 5) : set_lengths(64, 84, 20); (FORM_DATA_NOTICE, 6) : set_lengths(68, 88, 24);
(FORM_DATA_NOTICE, 7) : set_lengths(72, 92, 28); (FORM_DATA_NOTICE, 8) : set_lengths(76, 96, 32); (FORM_DATA_NOTICE, 9) : set_lengths(80, 100, 36);
(FORM_DATA_NOTICE, 10) : set_lengths(84, 104, 40); (FORM_DATA_NOTICE, 11) : set_lengths(88, 108, 44); (FORM_DATA_NOTICE, 12) : set_lengths(92, 112, 48);
(FORM_DATA_NOTICE, 13) : set_lengths(96, 116, 52); (FORM_DATA_NOTICE, 14) : set_lengths(100, 120, 56); (FORM_DATA_NOTICE, 15) : set_lengths(104, 124, 60);
(FORM_DATA_NOTICE, 16) : set_lengths(108, 128, 64); (FORM_CHECKSUM, 0) : set_lengths(44, 64, 4); (FORM_CHECKSUM, 1) : set_lengths(48, 68, 8);
(FORM_CHECKSUM, 2) : set_lengths(52, 72, 12); (FORM_CHECKSUM, 3) : set_lengths(56, 76, 16); (FORM_CHECKSUM, 4) : set_lengths(60, 80, 20);
(FORM_CHECKSUM, 5) : set_lengths(64, 84, 24); (FORM_CHECKSUM, 6) : set_lengths(68, 88, 28); (FORM_CHECKSUM, 7) : set_lengths(72, 92, 32);
(FORM_CHECKSUM, 8) : set_lengths(76, 96, 36); (FORM_CHECKSUM, 9) : set_lengths(80, 100, 40); (FORM_CHECKSUM, 10) : set_lengths(84, 104, 44);
(FORM_CHECKSUM, 11) : set_lengths(88, 108, 48); (FORM_CHECKSUM, 12) : set_lengths(92, 112, 52); (FORM_CHECKSUM, 13) : set_lengths(96, 116, 56);
(FORM_CHECKSUM, 14) : set_lengths(100, 120, 60); (FORM_CHECKSUM, 15) : set_lengths(104, 124, 64); (FORM_CHECKSUM, 16) : set_lengths(108, 128, 68);
(FORM_CHECKSUM_NOTICE, 0) : set_lengths(48, 68, 4); (FORM_CHECKSUM_NOTICE, 1) : set_lengths(52, 72, 8); (FORM_CHECKSUM_NOTICE, 2) : set_lengths(56, 76, 12);
(FORM_CHECKSUM_NOTICE, 3) : set_lengths(60, 80, 16); (FORM_CHECKSUM_NOTICE, 4) : set_lengths(64, 84, 20); (FORM_CHECKSUM_NOTICE, 5) : set_lengths(68, 88, 24);
(FORM_CHECKSUM_NOTICE, 6) : set_lengths(72, 92, 28); (FORM_CHECKSUM_NOTICE, 7) : set_lengths(76, 96, 32); (FORM_CHECKSUM_NOTICE, 8) : set_lengths(80, 100, 36);
(FORM_CHECKSUM_NOTICE, 9) : set_lengths(84, 104, 40); (FORM_CHECKSUM_NOTICE, 10) : set_lengths(88, 108, 44); (FORM_CHECKSUM_NOTICE, 11) : set_lengths(92, 112, 48);
(FORM_CHECKSUM_NOTICE, 12) : set_lengths(96, 116, 52); (FORM_CHECKSUM_NOTICE, 13) : set_lengths(100, 120, 56); (FORM_CHECKSUM_NOTICE, 14) : set_lengths(104, 124, 60);
(FORM_CHECKSUM_NOTICE, 15) : set_lengths(108, 128, 64); (FORM_CHECKSUM_NOTICE, 16) : set_lengths(112, 132, 68); (FORM_ADDITION, 0) : set_lengths(52, 72, 0);
(FORM_AFTER_ADDITION, 0) : set_lengths(44, 64, 0);
