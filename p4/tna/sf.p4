// SPDX-License-Identifier: Apache-2.0 OR MIT
// SF-INT on Tofino: the program `int` with records that packets swap with the register of their flow, in place of stacks that grow. Packets
// that are urgent collect records as those of `int` do.

#define SF
#include "int.p4"
