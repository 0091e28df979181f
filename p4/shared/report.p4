// SPDX-License-Identifier: Apache-2.0 OR MIT
// Telemetry Report 1.0 and 2.0: values and lengths.

#ifndef REPORT_FORMAT_P4
#define REPORT_FORMAT_P4

const bit<4> REPORT_VERSION_10 = 1;
const bit<4> REPORT_VERSION = 2;
const bit<4> REP_TYPE_INT = 1;
const bit<4> IN_TYPE_IPV4 = 4;
const bit<4> IN_TYPE_IPV6 = 5;
/// Instruction bits with a field in the main contents: 1 to 8.
const bit<16> REPORTABLE = 0x7f80;
/// Those of version 1.0, of which the ingress timestamp has a field of its own.
const bit<16> REPORTABLE_10 = 0x7501;
const bit<16> ITEMS_OF_DROP = 0x4801;
const bit<16> ITEMS_OF_QUEUE = 0x5800;
/// The domain of postcards, its Flow ID, and its status: the packet entered or left the domain here.
const bit<16> POSTCARD_DOMAIN = 0x5043;
const bit<16> POSTCARD_FLOW_ID = 0x8000;
/// Bytes of group header, report header and main contents.
const bit<16> REPORT_BYTES = 20;
const bit<16> REPORT_BYTES_10 = 16;
const bit<16> UDP_BYTES = 8;
const bit<16> IPV4_BYTES = 20;
const bit<16> ETHERNET_BYTES = 14;

#endif
