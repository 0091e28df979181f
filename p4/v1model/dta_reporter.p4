// SPDX-License-Identifier: Apache-2.0 OR MIT
// The DTA reporter on v1model: the switch of the program `int`, which sends DTA reports in place of Telemetry Reports.

#define DTA_REPORTER

#include "int.p4"
