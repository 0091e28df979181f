// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by scripts/p4-tna-tables: Records of an aggregate, and whether it lacks this postcard; records, and lengths of UDP and IPv4.
(1, 1) : places_1(1, 52, 72); (2, 0) : places_1(2, 72, 92); (2, 1) : places_2(2, 72, 92);
(3, 0) : places_2(3, 92, 112); (3, 1) : places_3(3, 92, 112); (4, 0) : places_3(4, 112, 132);
(4, 1) : places_4(4, 112, 132); (5, 0) : places_4(5, 132, 152);
