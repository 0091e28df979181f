// SPDX-License-Identifier: Apache-2.0 OR MIT
// The DTA reporter on Tofino: the postcards of the program `postcards` as DTA reports, in place of Telemetry Reports. Each is a Key-Write of
// the packet's record under the key of its flow and this node.

#define DTA_REPORTER

#include "../shared/headers.p4"
#include "../shared/dta.p4"
#include "postcards.p4"
