// SPDX-License-Identifier: Apache-2.0 OR MIT
// Items of records and reports, in the parts in which a Tofino writes them.

#ifndef TNA_ITEMS_P4
#define TNA_ITEMS_P4

header interfaces_t {
    bit<16> ingress;
    bit<16> egress;
}

header queue_t {
    bit<8> id;
    bit<24> occupancy;
}

/// The upper half of a time's first word, and the rest.
header half_t {
    bit<16> value;
}

header nanoseconds_t {
    bit<48> value;
}

#endif
