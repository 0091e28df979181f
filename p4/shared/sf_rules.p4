// SPDX-License-Identifier: Apache-2.0 OR MIT
// What programs with SF-INT have in common on all targets (wire-formats section 3): states, rules and counters.

#ifndef SF_RULES_P4
#define SF_RULES_P4

const bit<4> SHIM_2_SF = 4;

// States of a record; a register that is empty has 0.
const bit<2> STATE_EMPTY = 0;
const bit<2> STATE_LOW = 1;
const bit<2> STATE_MEDIUM = 2;
const bit<2> STATE_HIGH = 3;

// Which record leaves with a packet.
const bit<2> FORWARD_ARRIVAL = 0;
const bit<2> FORWARD_REGISTER = 1;
const bit<2> FORWARD_LOCAL = 2;

/// Registers and counters of flows: a power of two.
const int SF_REGISTERS = 1024;
const bit<32> SF_INDEX = 1023;
// Further instances of the counter of packets.
const bit<32> COUNT_SWAPPED = 14;
const bit<32> COUNT_URGENT = 15;
const bit<32> COUNT_PLAIN_NODES = 16;
const int SF_COUNTS = 24;
/// Applied rules by their number in the paper's Table 1; 0: the hop count was used up.
const int SF_RULES = 10;

/// The paper's Table 1. A register never has a record of state medium.
#define SF_RULE_ENTRIES \
    (STATE_MEDIUM, STATE_HIGH): sf_rule(1, FORWARD_REGISTER, STATE_HIGH, STATE_LOW); \
    (STATE_MEDIUM, STATE_LOW): sf_rule(2, FORWARD_LOCAL, STATE_MEDIUM, STATE_HIGH); \
    (STATE_MEDIUM, STATE_EMPTY): sf_rule(3, FORWARD_LOCAL, STATE_MEDIUM, STATE_HIGH); \
    (STATE_HIGH, STATE_HIGH): sf_rule(4, FORWARD_REGISTER, STATE_HIGH, STATE_HIGH); \
    (STATE_HIGH, STATE_LOW): sf_rule(5, FORWARD_REGISTER, STATE_LOW, STATE_LOW); \
    (STATE_HIGH, STATE_EMPTY): sf_rule(6, FORWARD_ARRIVAL, STATE_HIGH, STATE_EMPTY); \
    (STATE_LOW, STATE_HIGH): sf_rule(7, FORWARD_REGISTER, STATE_HIGH, STATE_LOW); \
    (STATE_LOW, STATE_LOW): sf_rule(8, FORWARD_REGISTER, STATE_LOW, STATE_LOW); \
    (STATE_LOW, STATE_EMPTY): sf_rule(9, FORWARD_ARRIVAL, STATE_LOW, STATE_EMPTY);

#endif
