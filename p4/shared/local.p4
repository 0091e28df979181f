// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the controls of one packet share. The main program of a target fills `visit`; no control knows the target.

#ifndef LOCAL_P4
#define LOCAL_P4

/// Fields that the copy of a packet keeps, from which its report is made.
const bit<8> REPORT_FIELDS = 1;
/// The same of a packet that ingress drops: also what the parser has found. A target parses the copy again, and clears the metadata then.
const bit<8> DROP_FIELDS = 2;

/// The measurement of a packet at this switch.
struct visit_t {
    /// 0: unknown.
    @field_list(1, 2) bit<16> ingress_if;
    @field_list(1) bit<16> egress_if;
    /// Nanoseconds.
    @field_list(1, 2) bit<64> ingress_ts;
    @field_list(1) bit<64> egress_ts;
    @field_list(1) bit<8> queue_id;
    @field_list(1) bit<24> queue_occupancy;
    /// It arrived from outside the domain.
    @field_list(1) bit<1> from_edge;
    /// It leaves the domain.
    @field_list(1) bit<1> to_edge;
    /// Its ingress port is at the border of the domain: INT that it carries is not the domain's.
    bit<1> from_outside;
    /// MTU of the egress link, bytes.
    bit<16> mtu;
}

/// How a flow is measured.
const bit<3> WATCH_NOTHING = 0;
const bit<3> WATCH_MD_21 = 1;
const bit<3> WATCH_MD_10 = 2;
const bit<3> WATCH_MX_21 = 3;
const bit<3> WATCH_POSTCARD = 4;
const bit<3> WATCH_SF = 5;

/// Entries of the watchlist that measure a share of their packets: as many as there are numbers of samplers.
const int SAMPLERS = 1024;

/// An entry of the watchlist.
struct watch_t {
    bit<3> mode;
    bit<8> hops;
    bit<16> bitmap;
    /// Words of the items of `bitmap`.
    bit<5> words;
    /// Report dropped packets of the flow.
    bit<1> drops;
    /// One packet of this many is measured; 0 and 1: all. At a source, counted by a sampler.
    bit<32> sample;
    bit<10> sampler;
    /// No entry matches.
    bit<1> is_missing;
}

/// Reports about a flow.
const bit<2> FLOW_NOTHING = 0;
/// A sink's, with the packet's path.
const bit<2> FLOW_PATH = 1;
/// A node's, of a packet of INT-MX.
const bit<2> FLOW_RECORD = 2;
/// A node's, of a packet without INT.
const bit<2> FLOW_POSTCARD = 3;

#endif
