// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sizes of tables and registers, in one place. A controller reads them from P4Info.

#ifndef SIZES_P4
#define SIZES_P4

const int WATCHLIST_SIZE = 1024;
const int ROUTES_SIZE = 1024;
const int PORTS_SIZE = 512;
const int SUBSYSTEMS = 64;
const int FILTER_ENTRIES = 256;
/// Filters with registers of their own, and registers of each: a power of two.
const int FILTERS = 16;
const int FILTER_REGISTERS = 4096;

// Instances of the counter of packets, by what happened to them; named as the counters of the switch in Rust.
const bit<32> COUNT_PLAIN = 0;
const bit<32> COUNT_REFUSED = 1;
const bit<32> COUNT_RECORDED = 2;
const bit<32> COUNT_HOPS_EXCEEDED = 3;
const bit<32> COUNT_MTU_EXCEEDED = 4;
const bit<32> COUNT_NOT_RESTORABLE = 5;
const bit<32> COUNT_REPORTED = 6;
const bit<32> COUNT_MALFORMED_STRIPPED = 7;
const bit<32> COUNT_QUEUES_REPORTED = 8;
const bit<32> COUNT_CONGESTED_REPORTED = 9;
const bit<32> COUNT_DROPS_REPORTED = 10;
const bit<32> COUNT_EDGE_STRIPPED = 11;
const bit<32> COUNT_EDGE_REFUSED = 12;
const bit<32> COUNT_FILTERED = 13;
const int COUNTS = 16;

#endif
