-- In-band network telemetry in Wireshark and tshark: telemetry reports 0.5, 1.0 and 2.0, INT 0.5, 1.0 and 2.x in
-- packets, SF-INT, IOAM, postcard aggregates, Direct Telemetry Access.
--
-- Install: put this file into Wireshark's folder of personal Lua plugins (Help > About > Folders), or start with
-- `-X lua_script:hopwise.lua`. Works with Wireshark 3.6 and newer. How to use it: docs/how-to/wireshark.md.
--
-- This dissector refuses what hopwise refuses, by the same name (`hopwise.refused`, docs/reference/refusals.md).
--
-- Layout of this file: numbers and settings; fields; reading (parses a packet without Wireshark: bytes in, a table out,
-- an error thrown as a table); showing (the tables into the tree); dissectors.

local P = Proto("hopwise", "In-band network telemetry (hopwise)")

---------------------------------------------------------------------------------------------------------------------
-- Numbers. Lua 5.1 to 5.4 agree on this arithmetic only.

local floor = math.floor
local POW = { [0] = 1 }
for i = 1, 40 do POW[i] = POW[i - 1] * 2 end

-- `width` bits of `v` above the lowest `shift`.
local function bits(v, shift, width) return floor(v / POW[shift]) % POW[width] end
-- Bit `k` of a 16-bit bitmap, counted from the most significant as the specifications do.
local function bit_of(bitmap, k) return bits(bitmap, 15 - k, 1) == 1 end
local function popcount(v)
  local n = 0
  while v > 0 do
    n = n + v % 2
    v = floor(v / 2)
  end
  return n
end

-- Readers of the bytes of `s` below `fin`; offsets from 0; nil when the bytes are not all there.
local function u8(w, at)
  if at + 1 > w.fin then return nil end
  return (w.s:byte(at + 1))
end
local function u16(w, at)
  if at + 2 > w.fin then return nil end
  local a, b = w.s:byte(at + 1, at + 2)
  return a * 256 + b
end
local function u24(w, at)
  if at + 3 > w.fin then return nil end
  local a, b, c = w.s:byte(at + 1, at + 3)
  return (a * 256 + b) * 256 + c
end
local function u32(w, at)
  if at + 4 > w.fin then return nil end
  local a, b, c, d = w.s:byte(at + 1, at + 4)
  return ((a * 256 + b) * 256 + c) * 256 + d
end
local function all_ones(w, at, len) return w.s:sub(at + 1, at + len) == ("\255"):rep(len) end

local ONES = 4294967295

-- Throws a refusal: its name in hopwise's counters, and its offset.
local function refuse(name, at) error({ refused = name, at = at }, 0) end

-- Calls a function; returns nil, or the refusal that it threw. Other errors propagate.
local function guarded(f, ...)
  local ok, problem = pcall(f, ...)
  if ok then return nil end
  if type(problem) == "table" and problem.refused then return problem end
  error(problem, 0)
end

local REFUSALS = {
  truncated = "ends inside a header",
  unknown_version = "no report, aggregate or DTA has this version",
  empty_group = "a group header with no report behind it",
  bad_length = "the length field contradicts the bytes or the metadata bits",
  bad_next_protocol = "the next-protocol code is not defined",
  bad_metadata_length = "the metadata length contradicts the metadata bits or the report length",
  undefined_report_type = "a report type whose contents are not defined; skipped",
  undefined_inner_type = "an inner type that is not defined; skipped",
  leftover_words = "inner type none, but words follow the metadata",
  int_truncated = "truncated inside the INT shim, header or stack",
  bad_shim = "the first bytes after the INT marker are not an INT shim",
  bad_next_protocol_type = "the shim's NPT contradicts the marker by which INT was found",
  bad_int_version = "an INT header of a version that its carrier does not allow",
  bad_int_length = "the INT length contradicts the header",
  bad_hop_ml = "the words per hop contradict the instruction bitmap",
  bad_instruction_count = "the instruction count contradicts the instruction bitmap",
  int_not_marked = "INT that no configured mark announces: neither DSCP nor port nor probe marker",
  bad_report_length = "the report's length contradicts its types, metadata or contents; nothing behind it can be read",
  not_a_report = "neither a packet that can be recognised nor a measurement: another protocol",
  sflow = "this is sFlow version 5",
  netflow_v5 = "this is NetFlow version 5",
  netflow_v9 = "this is NetFlow version 9",
  ipfix = "this is IPFIX",
  too_many_hops = "more hops than the header's own maximum",
  partial_hop = "the stack is not a whole number of hops",
  bad_gre = "a GRE header with fields that cannot be skipped",
  bad_geneve = "a Geneve option exceeds the end of the options",
  bad_ioam = "an IOAM option contradicts itself",
  int_beside_trace = "INT with records beside an IOAM trace with nodes: a host may have written one of the two",
  bad_option = "the IPv6 option that holds INT contradicts the shim in it, exceeds its header, or is beside other INT",
  sf_mismatch = "the SF flag of the INT header contradicts the shim's type",
  bad_sf_header = "SF-INT without a state, without node IDs, or with fields in use that it does not have",
  bad_sf_stack = "SF-INT that is not urgent, with other than one record: a node without SF-INT pushed its record",
  nested = "a report about a report",
  bad_ip_header = "the IP header contradicts the bytes, or ends the packet inside INT",
  bad_udp_length = "the UDP length contradicts the bytes",
  bad_aggregate_kind = "an aggregate of a kind that is not defined",
  empty_aggregate = "an aggregate without a record",
  bad_record_length = "records too short for their kind, or count and length contradict the bytes",
  bad_scope = "the aggregate's node or flow is missing, or not that of its records",
  bad_summary = "a summary whose numbers are impossible",
  bad_dta_opcode = "the DTA opcode is not defined",
  bad_dta_priority = "an undefined DTA priority",
  bad_dta_length = "the datagram's length contradicts its DTA headers",
  bad_copies = "copies are 1 to 4",
  bad_key_length = "a key has 1 to 64 bytes",
  bad_data_length = "data have 1 to 1024 bytes",
  bad_entries = "no entries, or entries without a byte",
  bad_hop = "a hop of 0, or beyond the path's end",
  bad_hop_value = "the value that means \"no value\"",
  bad_sketch = "no columns, rows not 1 to 16, or counters not of 4 or 8 bytes (samples: of 8)",
  bad_merge_op = "undefined merge operation",
  bad_control = "a control message with an undefined type, length or level",
}

---------------------------------------------------------------------------------------------------------------------
-- Settings

local DIALECTS = { "strict", "geant", "hostint", "intcollector-gen", "onos", "p4int" }
local dialect_choices = {}
for i, name in ipairs(DIALECTS) do dialect_choices[i] = { i, name, i } end

P.prefs.report_ports = Pref.range("Report ports", "32766", "UDP ports of telemetry reports", 65535)
P.prefs.aggregate_ports = Pref.range("Aggregate ports", "32767", "UDP ports of postcard aggregates", 65535)
P.prefs.int_ports = Pref.range("INT ports", "33122", "UDP destination ports that mark INT in a packet", 65535)
P.prefs.dta_ports = Pref.range("DTA ports", "40040,40044",
  "UDP ports of Direct Telemetry Access: reports, and control messages", 65535)
P.prefs.roce_ports = Pref.range("Other RoCEv2 ports", "",
  "UDP ports of RoCEv2 besides 4791. hopwise computes the ICRC for port 4791 on these, too", 65535)
P.prefs.dialect = Pref.enum("Dialect", 1, "How bytes are read where devices differ", dialect_choices, false)
P.prefs.dscp = Pref.string("INT DSCP", "",
  "DSCP that marks INT, hexadecimal, with an optional mask: 17/3f. Empty: default of the dialect; 0/0: none")
P.prefs.probe_marker = Pref.string("Probe marker", "",
  "The 8 bytes after the L4 header that announce INT, as 16 hexadecimal digits; empty: none")
P.prefs.gre_protocol = Pref.string("GRE protocol type", "88b6", "GRE protocol type of INT, hexadecimal")
P.prefs.tcp_after_options = Pref.bool("Shim after TCP options", false,
  "INT in TCP lies after the options instead of after the 20 fixed bytes")
P.prefs.vxlan_ports = Pref.range("Other VXLAN ports", "", "UDP ports of VXLAN besides 4789 and 8472", 65535)
P.prefs.drop_zero_unknown = Pref.bool("Drops at interface 0 and queue 0 have none", false,
  "In a drop report 0.5, egress interface 0 with queue 0 means that neither is known (fabric-tna)")
P.prefs.domains = Pref.string("Domains", "",
  "Words at the end of the stack that only the source wrote, by domain: hexadecimal id:words, e.g. 5453:2,abcd:1")
P.prefs.find = Pref.bool("Look for INT in all packets", true,
  "Look behind the DSCP mark, the probe marker, in tunnels and in IPv6 options. Off: only behind the INT ports")
P.prefs.inner = Pref.bool("Dissect the packets inside reports", true,
  "Pass the packet inside a report, without its INT, to Wireshark's own dissectors")
P.prefs.time_unit = Pref.string("Unit of time", "ns", "Unit of the devices' times; only shown beside the numbers")

local C = {} -- the settings, as the walk uses them

-- The numbers of a range such as "1,5-7", as a set. Long ranges are kept as bounds.
local function in_ranges(text)
  local ranges = {}
  for from, to in tostring(text):gmatch("(%d+)%-?(%d*)") do
    from = tonumber(from)
    ranges[#ranges + 1] = { from, tonumber(to) or from }
  end
  return function(port)
    for _, range in ipairs(ranges) do
      if port >= range[1] and port <= range[2] then return true end
    end
    return false
  end
end

local function read_settings()
  local prefs = P.prefs
  C.dialect = DIALECTS[prefs.dialect] or "strict"
  C.is_report_port = in_ranges(prefs.report_ports)
  C.is_int_port = in_ranges(prefs.int_ports)
  C.gre_protocol = tonumber(prefs.gre_protocol, 16) or 0x88b6
  C.after_options = prefs.tcp_after_options
  C.is_vxlan_port = in_ranges(prefs.vxlan_ports)
  C.drop_zero_unknown = prefs.drop_zero_unknown
  C.unit = prefs.time_unit ~= "" and (" " .. prefs.time_unit) or ""
  C.find, C.inner = prefs.find, prefs.inner
  C.dscp, C.dscp_mask, C.dscp_other = 0x17, 0x3f, nil
  if C.dialect == "hostint" then C.dscp, C.dscp_mask = 0x01, 0x01 end
  if C.dialect == "geant" then C.dscp, C.dscp_other = 0x20, 0x17 end
  if C.dialect == "intcollector-gen" then C.dscp, C.dscp_other = 0, 0x17 end
  local value, mask = prefs.dscp:match("^%s*(%x+)/?(%x*)%s*$")
  if value then
    C.dscp, C.dscp_mask, C.dscp_other = tonumber(value, 16), tonumber(mask, 16) or 0x3f, nil
  end
  C.probe = nil
  if prefs.probe_marker:match("^%x+$") and #prefs.probe_marker == 16 then
    C.probe = prefs.probe_marker:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end)
  end
  C.domains = {}
  for id, words in prefs.domains:gmatch("(%x+):(%d+)") do C.domains[tonumber(id, 16)] = tonumber(words) end
end

-- a AND b of six bits.
local function and6(a, b)
  local r = 0
  for i = 0, 5 do
    if bits(a, i, 1) == 1 and bits(b, i, 1) == 1 then r = r + POW[i] end
  end
  return r
end
local function is_int_dscp(dscp)
  return (C.dscp_mask ~= 0 and and6(dscp, C.dscp_mask) == C.dscp) or C.dscp_other == dscp
end

---------------------------------------------------------------------------------------------------------------------
-- Fields

local F = {}
local field_list = {}
local function field(key, kind, abbrev, name, ...)
  F[key] = ProtoField[kind]("hopwise." .. abbrev, name, ...)
  field_list[#field_list + 1] = F[key]
end
local YES = { "yes", "no" }
local function flag(key, abbrev, name, width, mask) field(key, "bool", abbrev, name, width, YES, mask) end

field("refused", "string", "refused", "Refused")
field("annotation", "string", "annotation", "Annotation")
field("unavailable", "string", "unavailable", "Unavailable")
field("path", "string", "path", "Path (forwarding order)")
field("path_hops", "uint32", "path.hops", "Hops", base.DEC)

for _, which in ipairs({ "flow", "tunnel" }) do
  local name = which == "flow" and "Flow" or "Tunnel"
  field(which, "none", which, name)
  field(which .. "_src", "ipv4", which .. ".src", "Source")
  field(which .. "_dst", "ipv4", which .. ".dst", "Destination")
  field(which .. "_src6", "ipv6", which .. ".src_v6", "Source")
  field(which .. "_dst6", "ipv6", which .. ".dst_v6", "Destination")
  field(which .. "_sport", "uint16", which .. ".sport", "Source port", base.DEC)
  field(which .. "_dport", "uint16", which .. ".dport", "Destination port", base.DEC)
  field(which .. "_proto", "uint8", which .. ".proto", "Protocol", base.DEC)
end

-- Fields of a hop, three times: on the INT stack, in the metadata of a report, in an IOAM trace.
local HOP_ITEMS = {
  { "node_id", "uint32", "Node ID" },
  { "ingress_if", "uint16", "Ingress interface" },
  { "egress_if", "uint16", "Egress interface" },
  { "latency", "uint32", "Hop latency" },
  { "queue_id", "uint8", "Queue ID" },
  { "queue_occupancy", "uint24", "Queue occupancy" },
  { "queue_congestion", "uint24", "Queue congestion" },
  { "congestion_queue_id", "uint8", "Queue ID of the congestion status" },
  { "drop_queue_id", "uint8", "Queue ID beside the drop reason" },
  { "ingress_ts", "uint64", "Ingress timestamp" },
  { "egress_ts", "uint64", "Egress timestamp" },
  { "l2_ingress_if", "uint32", "Level-2 ingress interface" },
  { "l2_egress_if", "uint32", "Level-2 egress interface" },
  { "tx_utilization", "uint32", "Egress TX utilization" },
  { "buffer_id", "uint8", "Buffer ID" },
  { "buffer_occupancy", "uint24", "Buffer occupancy" },
}
local function hop_fields(key, abbrev, name)
  field(key, "none", abbrev, name)
  for _, item in ipairs(HOP_ITEMS) do
    local kind = item[2]
    if key == "ioam_hop" and kind == "uint24" then kind = "uint32" end
    field(key .. "." .. item[1], kind, abbrev .. "." .. item[1], item[3], base.DEC)
  end
  field(key .. ".checksum_complement", "uint32", abbrev .. ".checksum_complement", "Checksum complement", base.HEX)
  field(key .. ".domain", "bytes", abbrev .. ".domain", "Domain-specific words")
  field(key .. ".reserved", "bytes", abbrev .. ".reserved", "Word of an undefined bit")
end
hop_fields("hop", "int.hop", "Hop")
hop_fields("metadata", "report.hop", "The reporter's metadata")
hop_fields("ioam_hop", "ioam.hop", "IOAM node")

local REPORT_TYPES = { [0] = "inner only", "INT", "IOAM" }
local INNER_TYPES = { [0] = "none", "TLV", "domain-specific", "Ethernet", "IPv4", "IPv6" }
field("report", "none", "report", "Report")
field("r_version", "string", "report.version", "Version")
field("r_hw_id", "uint8", "report.hw_id", "Subsystem (hw_id)", base.DEC)
field("r_seq", "uint32", "report.seq", "Sequence number", base.DEC)
field("r_node", "uint32", "report.node_id", "Node ID of the reporter", base.DEC)
field("r_type", "uint8", "report.type", "Report type", base.DEC, REPORT_TYPES, 0xf0)
field("r_inner_type", "uint8", "report.inner_type", "Inner type", base.DEC, INNER_TYPES, 0x0f)
field("r_length", "uint8", "report.length", "Report length (words)", base.DEC)
field("r_md_length", "uint8", "report.md_length", "Metadata length (words)", base.DEC)
field("r_nproto", "uint8", "report.next_protocol", "Next protocol", base.DEC)
field("r_header_words", "uint8", "report.header_length", "Header length (words)", base.DEC, nil, 0x0f)
field("r_bits", "uint16", "report.md_bits", "Metadata bits", base.HEX)
field("r_drop", "bool", "report.flags.drop", "D: a watched packet was dropped", base.NONE, YES)
field("r_queue", "bool", "report.flags.queue", "Q: congestion on a watched queue", base.NONE, YES)
field("r_flow", "bool", "report.flags.flow", "F: a tracked flow", base.NONE, YES)
field("r_intermediate", "bool", "report.flags.intermediate", "I: from a transit node", base.NONE, YES)
field("r_ts", "uint32", "report.ingress_ts", "Ingress timestamp", base.DEC)
field("r_drop_reason", "uint8", "report.drop_reason", "Drop reason (device code)", base.DEC)
field("r_ds_id", "uint16", "report.ds_id", "Domain Specific ID", base.HEX)
field("r_ds_bits", "uint16", "report.ds_bits", "Domain-specific metadata bits", base.HEX)
field("r_ds_status", "uint16", "report.ds_status", "Domain-specific metadata status", base.HEX)
field("r_domain", "bytes", "report.domain", "Domain-specific metadata")
field("r_flow_id", "uint32", "report.flow_id", "Flow ID of the postcard", base.HEX)
field("r_int_refused", "string", "report.int_refused", "INT left out")
field("r_tunnel_refused", "string", "report.tunnel_refused", "Tunnel whose contents cannot be read")
field("r_inner", "bytes", "report.inner", "Inner contents")
field("r_packet_length", "uint32", "report.packet_length", "IP length of the truncated packet", base.DEC)
field("tlv", "none", "report.tlv", "TLV")
field("tlv_type", "uint8", "report.tlv.type", "Type", base.DEC,
  { [0] = "domain extension", "Ethernet", "IPv4", "IPv6" }, 0xf0)
field("tlv_length", "uint8", "report.tlv.length", "Length (words)", base.DEC)
field("tlv_template", "uint16", "report.tlv.template", "Data template", base.HEX)
field("tlv_value", "bytes", "report.tlv.value", "Value")
field("gap", "none", "report.gap", "Missing packets")
field("gap_source", "uint32", "report.gap.source", "Source node", base.DEC)
field("gap_sink", "uint32", "report.gap.sink", "Sink node", base.DEC)
field("gap_ts", "uint32", "report.gap.ts", "Time", base.DEC)
field("gap_seq", "uint32", "report.gap.seq", "First missing sequence number", base.DEC)
field("gap_count", "uint32", "report.gap.count", "Number of missing packets", base.DEC)

local SHIM_TYPES = { "INT-MD", "destination", "INT-MX", "SF-INT" }
local NPT = { [0] = "DSCP or marker", "UDP payload follows", "another header follows" }
field("int", "none", "int", "INT")
field("i_version", "string", "int.version", "Version")
field("i_mode", "string", "int.mode", "Mode")
field("i_encapsulation", "string", "int.encapsulation", "Encapsulation")
field("i_recognised", "string", "int.recognised", "Recognised by")
field("i_length", "uint32", "int.length", "Bytes that INT adds", base.DEC)
field("o_start", "uint32", "int.offset.start", "Offset of the first INT byte", base.DEC)
field("o_header", "uint32", "int.offset.header", "Offset of the INT header", base.DEC)
field("o_stack", "uint32", "int.offset.stack", "Offset of the first record", base.DEC)
field("o_end", "uint32", "int.offset.end", "Offset of the first byte after INT", base.DEC)
field("shim", "none", "int.shim", "INT shim")
field("s_type", "uint8", "int.shim.type", "Type", base.DEC, SHIM_TYPES, 0xf0)
field("s_type1", "uint8", "int.shim.type_1", "Type", base.DEC, { "hop-by-hop", "destination", "host-int" })
field("s_npt", "uint8", "int.shim.npt", "Next protocol type", base.DEC, NPT, 0x0c)
field("s_length", "uint8", "int.shim.length", "Length (words)", base.DEC)
field("s_next", "uint16", "int.shim.next", "Next protocol", base.HEX)
field("s_dscp", "uint8", "int.shim.dscp", "Original DSCP", base.HEX, nil, 0xfc)
field("s_port", "uint16", "int.shim.port", "Original destination port", base.DEC)
field("s_proto", "uint8", "int.shim.proto", "Original IP protocol", base.DEC)
field("probe", "bytes", "int.probe_marker", "Probe marker")
field("option", "none", "int.option", "Option that holds INT")
field("header", "none", "int.header", "INT header")
field("h_discard", "bool", "int.flags.discard", "Discard at the sink (D, before 2.0: C)", base.NONE, YES)
field("h_exceeded", "bool", "int.flags.hops_exceeded", "E: remaining hop count exhausted at a hop", base.NONE, YES)
field("h_mtu", "bool", "int.flags.mtu_exceeded", "M: a hop could add nothing because of the MTU", base.NONE, YES)
field("h_ver", "uint8", "int.header.version", "Version", base.DEC, nil, 0xf0)
field("h_rep", "uint8", "int.replication", "Replication request", base.DEC, nil, 0x0c)
field("h_hop_ml", "uint8", "int.hop_ml", "Words per hop (Hop ML)", base.DEC, nil, 0x1f)
field("h_remaining", "uint8", "int.remaining", "Remaining hop count", base.DEC)
field("h_ins_cnt", "uint8", "int.instruction_count", "Instruction count", base.DEC, nil, 0x1f)
field("h_max", "uint8", "int.max_hops", "Max hop count", base.DEC)
field("h_total", "uint8", "int.total_hops", "Total hop count", base.DEC)
field("h_bitmap", "uint16", "int.bitmap", "Instruction bitmap", base.HEX)
field("h_reserved", "uint16", "int.reserved", "Reserved (GEANT: sequence number)", base.DEC)
field("h_ds_id", "uint16", "int.ds_id", "Domain Specific ID", base.HEX)
field("h_ds_instruction", "uint16", "int.ds_instruction", "DS Instruction", base.HEX)
field("h_ds_flags", "uint16", "int.ds_flags", "DS Flags", base.HEX)
flag("sf", "int.sf", "SF: one record travels with the packet", 8, 0x01)
flag("sf_urgent", "int.sf.urgent", "U: urgent, the stack grows", 8, 0x80)
field("sf_state", "uint8", "int.sf.state", "State", base.DEC, { [0] = "invalid", "Low", "Medium", "High" }, 0x60)
field("sf_packet_id", "uint16", "int.sf.packet_id", "Packet ID of the record carried", base.DEC)
field("i_source_only", "bytes", "int.source_only", "Source-only words")
field("i_seq", "uint32", "int.seq", "Sequence number (host-int)", base.DEC)
field("tail", "none", "int.tail", "INT 0.5 tail")
field("t_proto", "uint8", "int.tail.proto", "Original IP protocol", base.DEC)
field("t_port", "uint16", "int.tail.port", "Original destination port", base.DEC)
field("t_dscp", "uint8", "int.tail.dscp", "Original DSCP", base.HEX)
field("original", "none", "int.original", "Before INT was inserted")
field("p_port", "uint16", "int.original.port", "Destination port", base.DEC)
field("p_proto", "uint8", "int.original.proto", "IP protocol", base.DEC)
field("p_dscp", "uint8", "int.original.dscp", "DSCP", base.DEC)
field("p_tunnel", "bool", "int.original.tunnel_inserted", "The tunnel was inserted", base.NONE, YES)

field("ioam", "none", "ioam", "IOAM")
field("ioam_namespace", "uint16", "ioam.namespace", "Namespace", base.DEC)
field("ioam_type", "uint24", "ioam.trace_type", "Trace type", base.HEX)
field("ioam_nodes", "uint32", "ioam.nodes", "Nodes", base.DEC)
field("ioam_flow_id", "uint32", "ioam.flow_id", "Flow ID", base.DEC)
field("ioam_seq", "uint32", "ioam.seq", "Sequence number", base.DEC)

local KINDS = {
  "Agg(R): of any nodes and flows", "Agg_N(R): of one node", "Agg_{N,F}(R): of one node and flow", nil,
  "Cor(R): of any nodes and flows", "Cor_N(R): of one node", "Cor_{N,F}(R): of one node and flow",
}
field("a_version", "uint8", "aggregate.version", "Version", base.DEC, nil, 0xf0)
field("a_kind", "uint8", "aggregate.kind", "Kind", base.DEC, KINDS, 0x0f)
flag("a_timer", "aggregate.by_timer", "Sent by the timer, before R was reached", 8, 0x80)
flag("a_packet", "aggregate.packet_fields", "Postcards have fields of the packet", 8, 0x40)
field("a_count", "uint16", "aggregate.count", "Records", base.DEC)
field("a_length", "uint16", "aggregate.record_length", "Record length (bytes)", base.DEC)
field("a_id", "uint32", "aggregate.aggregator", "Aggregator ID", base.DEC)
field("a_seq", "uint32", "aggregate.seq", "Sequence number", base.DEC)
field("a_node", "uint32", "aggregate.node_scope", "Node scope", base.DEC)
field("a_flow", "uint32", "aggregate.flow_scope", "Flow scope", base.HEX)
field("postcard", "none", "aggregate.postcard", "Postcard")
field("c_node", "uint32", "aggregate.postcard.node_id", "Node ID", base.DEC)
field("c_flow", "uint32", "aggregate.postcard.flow_id", "Flow ID", base.HEX)
field("c_in", "uint32", "aggregate.postcard.ingress_ts", "Ingress timestamp", base.DEC)
field("c_out", "uint32", "aggregate.postcard.egress_ts", "Egress timestamp", base.DEC)
field("c_latency", "uint32", "aggregate.postcard.latency", "Hop latency", base.DEC)
field("c_queue", "uint8", "aggregate.postcard.queue_id", "Queue ID", base.DEC)
field("c_length", "uint24", "aggregate.postcard.queue_occupancy", "Queue occupancy", base.DEC)
field("c_in_if", "uint16", "aggregate.postcard.ingress_if", "Ingress interface", base.DEC)
field("c_out_if", "uint16", "aggregate.postcard.egress_if", "Egress interface", base.DEC)
field("c_ttl", "uint8", "aggregate.postcard.hop_limit", "Hop limit", base.DEC)
flag("c_has_ttl", "aggregate.postcard.has_hop_limit", "The hop limit is known", 8, 0x80)
flag("c_entered", "aggregate.postcard.entered", "The packet entered the domain here", 8, 0x40)
flag("c_left", "aggregate.postcard.left", "The packet left the domain here", 8, 0x20)
field("c_digest", "uint32", "aggregate.postcard.digest", "Packet digest", base.HEX)
field("summary", "none", "aggregate.summary", "Summary")
field("m_metric", "uint8", "aggregate.summary.metric", "Metric", base.DEC, { "hop latency", "queue occupancy" })
field("m_min", "uint32", "aggregate.summary.min", "Smallest", base.DEC)
field("m_max", "uint32", "aggregate.summary.max", "Largest", base.DEC)
field("m_sum", "uint64", "aggregate.summary.sum", "Sum", base.DEC)
field("m_count", "uint32", "aggregate.summary.count", "Count", base.DEC)
field("m_avg", "uint64", "aggregate.summary.avg", "Average (rounded down)", base.DEC)

local OPCODES = { "Key-Write", "Append", "Key-Increment", "Postcarding", "Sketch-Merge", [15] = "control" }
field("d_version", "uint8", "dta.version", "Version", base.DEC, nil, 0xf0)
field("d_opcode", "uint8", "dta.opcode", "Opcode", base.DEC, OPCODES, 0x0f)
flag("d_immediate", "dta.immediate", "I: notify the collector's CPU", 8, 0x80)
flag("d_essential", "dta.essential", "R: essential, the sequence is tracked", 8, 0x40)
field("d_priority", "uint8", "dta.priority", "Priority", base.DEC, { [0] = "low", "medium", "high" }, 0x30)
field("d_seq", "uint16", "dta.seq", "Sequence number", base.DEC)
field("d_reporter", "uint32", "dta.reporter", "Reporter ID", base.DEC)
field("d_copies", "uint8", "dta.redundancy", "Redundancy N", base.DEC)
field("d_key_length", "uint8", "dta.key_length", "Key length (bytes)", base.DEC)
field("d_data_length", "uint16", "dta.data_length", "Data length (bytes)", base.DEC)
field("d_store", "uint16", "dta.store", "Store ID", base.DEC)
field("d_key", "bytes", "dta.key", "Key")
field("d_data", "bytes", "dta.data", "Data")
field("d_list", "uint32", "dta.list", "List ID", base.DEC)
field("d_count", "uint8", "dta.count", "Entries", base.DEC)
field("d_delta", "uint64", "dta.delta", "Delta", base.DEC)
field("d_hop", "uint8", "dta.hop", "Hop", base.DEC)
field("d_path_length", "uint8", "dta.path_length", "Path length (0: not known)", base.DEC)
field("d_value", "uint32", "dta.value", "Value", base.DEC)
field("d_sketch", "uint16", "dta.sketch", "Sketch ID", base.DEC)
field("d_epoch", "uint16", "dta.epoch", "Epoch", base.DEC)
field("d_column", "uint32", "dta.column", "First column", base.DEC)
field("d_depth", "uint8", "dta.depth", "Depth (rows)", base.DEC)
field("d_width", "uint8", "dta.counter_bytes", "Counter bytes", base.DEC)
field("d_op", "uint8", "dta.merge", "Merge operation", base.DEC, { [0] = "sum", "max", "min", "sample" })
field("d_columns", "uint8", "dta.columns", "Columns", base.DEC)
field("d_counter", "uint64", "dta.counter", "Counter", base.DEC)
field("d_control", "uint8", "dta.control", "Control message", base.DEC,
  { "ACK", "NACK", "SKETCH-NACK", "CONGESTION" })
field("d_code", "uint8", "dta.code", "Code", base.DEC)
field("d_last", "uint16", "dta.last", "Last sequence number in order", base.DEC)
field("d_trigger", "uint16", "dta.trigger", "Triggering sequence number", base.DEC)
field("d_expected", "uint32", "dta.expected_column", "Expected column", base.DEC)
field("d_level", "uint8", "dta.level", "Congestion level", base.DEC)
field("d_hold", "uint32", "dta.hold", "Holds for", base.DEC)
field("d_dropped", "uint32", "dta.dropped", "Reports dropped since the last notice", base.DEC)
P.fields = field_list

local X = {
  refused = ProtoExpert.new("hopwise.expert.refused", "Refused", expert.group.MALFORMED, expert.severity.ERROR),
  anomaly = ProtoExpert.new("hopwise.expert.anomaly", "Anomaly", expert.group.PROTOCOL, expert.severity.NOTE),
  drop = ProtoExpert.new("hopwise.expert.drop", "A packet was dropped", expert.group.SEQUENCE, expert.severity.WARN),
  flags = ProtoExpert.new("hopwise.expert.flags", "INT is not complete", expert.group.PROTOCOL, expert.severity.NOTE),
}
P.experts = { X.refused, X.anomaly, X.drop, X.flags }

---------------------------------------------------------------------------------------------------------------------
-- Records: which item lies where

local INT_2 = { node = true, wide_time = true, wide_l2 = true, buffer = true, last = "checksum" }
local INT_10 = { node = true, wide_l2 = true, last = "checksum" }
local INT_10_GEANT = { node = true, wide_time = true, last = "checksum" }
local INT_10_GEN = { node = true, last = "checksum" }
local INT_05 = { node = true, congestion = true }
local REPORT_2 = { wide_time = true, wide_l2 = true, buffer = true, last = "drop" }
local BIT_ITEMS = { [0] = "node", "ports", "latency", "queue", "ingress", "egress", "l2", "tx", "buffer" }

-- A layout: list of { item, at, size }, and the bytes of a record.
local function build(bitmap, rules)
  local layout = { bytes = 0 }
  for k = 0, 15 do
    if bit_of(bitmap, k) then
      local item, size = BIT_ITEMS[k], 4
      if k == 0 and not rules.node then item = nil end
      if k == 6 and rules.congestion then item = "congestion" end
      if k == 8 and not rules.buffer then item = nil end
      if k == 15 then item = rules.last end
      if (k == 4 or k == 5) and rules.wide_time or k == 6 and rules.wide_l2 then size = 8 end
      layout[#layout + 1] = { item or "reserved", layout.bytes, size }
      layout.bytes = layout.bytes + size
    end
  end
  return layout
end

local function words_2(bitmap)
  return popcount(bitmap) + popcount(bits(bitmap, 9, 3))
end

-- INT 2.x; domain-specific words come before the checksum complement.
local function layout_2(bitmap, hop_ml, domain, at)
  local base_words = words_2(bitmap)
  if hop_ml < base_words or (not domain and hop_ml ~= base_words) then refuse("bad_hop_ml", at) end
  local layout = build(bitmap, INT_2)
  local extra = (hop_ml - base_words) * 4
  if extra > 0 then
    local last = layout[#layout]
    if last and last[1] == "checksum" then
      table.insert(layout, #layout, { "domain", last[2], extra })
      last[2] = last[2] + extra
    else
      layout[#layout + 1] = { "domain", layout.bytes, extra }
    end
    layout.bytes = layout.bytes + extra
  end
  return layout
end

-- INT 1.0: the dialect decides where two of them agree on the length; otherwise the length does.
local function layout_10(bitmap, hop_ml, at)
  local strict = { INT_10, popcount(bitmap) + popcount(bits(bitmap, 9, 1)) }
  local geant = { INT_10_GEANT, popcount(bitmap) + popcount(bits(bitmap, 10, 2)) }
  local gen = { INT_10_GEN, popcount(bitmap) }
  local readings = { strict, geant }
  if C.dialect == "geant" then readings = { geant, strict } end
  if C.dialect == "intcollector-gen" then readings = { gen, strict, geant } end
  for _, reading in ipairs(readings) do
    if reading[2] == hop_ml then return build(bitmap, reading[1]) end
  end
  refuse("bad_hop_ml", at)
end

-- Words of a record of INT 1.0. HopML says so, unless it counts the items and the stack has the words: then the length of the
-- stack decides.
local function words_of_10(bitmap, hop_ml, stack)
  local items = popcount(bitmap)
  local wide = items + popcount(bits(bitmap, 9, 1))
  if hop_ml == wide or hop_ml ~= items or items == 0 then return hop_ml end
  local geant = items + popcount(bits(bitmap, 10, 2))
  local by_header = stack % items == 0 and (C.dialect == "intcollector-gen" or geant == items)
  if (C.dialect == "onos" or not by_header) and stack % wide == 0 then return wide end
  return hop_ml
end

-- Optional metadata of Report 1.0: six bits.
local function layout_report_10(six)
  local order = { "ports", "latency", "queue", "egress", "drop", "tx" }
  local layout = { bytes = 0 }
  for k = 1, 6 do
    if bits(six, 6 - k, 1) == 1 then
      layout[#layout + 1] = { order[k], layout.bytes, 4 }
      layout.bytes = layout.bytes + 4
    end
  end
  return layout
end

local DROP_05 = { { "node", 0, 4 }, { "ports", 4, 4 }, { "drop", 8, 4 }, bytes = 12 }
local LOCAL_05 = { { "node", 0, 4 }, { "ports", 4, 4 }, { "queue", 8, 4 }, { "egress", 12, 4 }, bytes = 16 }

local function find_item(layout, name)
  for _, item in ipairs(layout) do
    if item[1] == name then return item end
  end
end

-- Node id of the record at `at`; nil when it has none or it is not available.
local function node_of(w, layout, at)
  local item = find_item(layout, "node")
  local id = item and u32(w, at + item[2])
  if id == ONES then return nil end
  return id
end

---------------------------------------------------------------------------------------------------------------------
-- The walk through a packet. `w`: s (the bytes), fin (their end), aim ("frame" or "report"), seek (INT is not found yet),
-- tunnels, trail (skipped headers to show), and the results: flow, tunnel, int, place, ioam, destination.

local function new_walk(s, fin, aim, seek)
  return { s = s, fin = fin, aim = aim, seek = seek, tunnels = 0, trail = {} }
end
local function trail(w, kind, at, len) w.trail[#w.trail + 1] = { kind = kind, at = at, len = len } end

local W = {} -- the steps, which call each other

local function ports_at(w, at)
  local sport, dport = u16(w, at), u16(w, at + 2)
  if sport and dport then return sport, dport end
end

local function flow_of(ip, at, sport, dport, proto)
  return { ip = ip.at, v6 = ip.v6, at = at, sport = sport, dport = dport, proto = proto }
end

-- Start of a tunnel, carried by the packet `outer`. The outermost one is the tunnel as soon as an IP packet is read inside.
local function enter(w, outer)
  w.tunnels = w.tunnels + 1
  w.tunnel = w.tunnel or w.outer
  w.outer = outer
  w.flow = nil
  w.unread = nil
end

-- The contents of a tunnel cannot be read, for this reason.
function W.unread(w, reason) w.unread = reason end

-- The flow at the end of the walk is that of the innermost IP packet that was read; in a data packet only that of a packet
-- without a tunnel, or inside one.
local function finish_flow(w)
  if not w.flow and w.aim == "report" then
    w.flow = w.outer
    w.tunnel_refused = w.unread or w.tunnels > 0 and "tunnel_truncated" or nil
  else
    w.tunnel = w.tunnel or w.outer
  end
end

local ETH, IP4, IP6 = 0x6558, 0x0800, 0x86dd
local TAGS = { [0x8100] = true, [0x88a8] = true, [0x9100] = true, [0x9200] = true }

function W.inside(w, at, ethertype)
  if w.tunnels > 4 then return W.unread(w, "tunnel_depth") end
  -- The tunnel that carries the frame has been counted.
  if ethertype == ETH and w.aim ~= "frame" then return W.ethernet(w, at) end
  return W.ethertype(w, at, ethertype)
end

-- Another tunnel without an IP header of its own; whether it may be entered.
function W.enter_link(w)
  w.tunnels = w.tunnels + 1
  return w.tunnels <= 4
end

function W.ethernet(w, at)
  local ethertype = u16(w, at + 12)
  if ethertype then return W.ethertype(w, at + 14, ethertype) end
end

local function checksum_holds(w, at)
  local len = u8(w, at) % 16 * 4
  if at + len > w.fin then return false end
  local sum = 0
  for here = at, at + len - 2, 2 do sum = sum + u16(w, here) end
  while sum > 0xffff do sum = sum % 0x10000 + floor(sum / 0x10000) end
  return sum == 0xffff
end

-- Whether the bytes behind MPLS labels are Ethernet, of a pseudowire without a control word, whose first octet reads as a version of IP. IPv4
-- with a correct checksum and IPv6 with the length of the packet are none.
local function is_pseudowire(w, at)
  local inner = at + (TAGS[u16(w, at + 12) or 0] and 18 or 14)
  local ethertype, version = u16(w, inner - 2), bits(u8(w, inner) or 0, 4, 4)
  if not (ethertype == IP4 and version == 4 or ethertype == IP6 and version == 6) then return false end
  local first = bits(u8(w, at), 4, 4)
  if first == 4 then return not checksum_holds(w, at) end
  local padding = w.fin - at - 40 - u16(w, at + 4)
  if first == 6 and padding >= 0 and padding < 4 then return false end
  return version == 6 or inner + 20 > w.fin or checksum_holds(w, inner)
end

-- Whether the bytes read as an Ethernet frame, by its EtherType and the version of IP; nil: they end before.
function W.reads_as_frame(w, at)
  local ethertype = u16(w, at + 12)
  if not ethertype then return nil end
  local first = u8(w, at + 14)
  local version = first and bits(first, 4, 4)
  if ethertype == IP4 then return not version or version == 4 end
  if ethertype == IP6 then return not version or version == 6 end
  return W.ETHERTYPES[ethertype] or false
end

-- The packet behind the bottom label of an MPLS stack: "ip" with its EtherType, "frame" with its offset, or nil with a reason.
function W.behind_labels(w, at, label)
  local first = u8(w, at)
  if not first then return nil, "tunnel_truncated" end
  local version = bits(first, 4, 4)
  local ip = version == 4 and IP4 or version == 6 and IP6
  if label == 0 or label == 2 then
    if ip == (label == 0 and IP4 or IP6) then return "ip", ip end
    return nil, "tunnel_not_ip"
  end
  if ip then
    if not is_pseudowire(w, at) then return "ip", ip end
    local inner = at + (TAGS[u16(w, at + 12)] and 18 or 14)
    local is_proven = u16(w, inner - 2) == IP4 and (u8(w, inner) or 0) % 16 >= 5 and checksum_holds(w, inner)
    if is_proven then return "frame", 0 end
    return nil, "eompls_unclear"
  end
  local plain = W.reads_as_frame(w, at)
  if version ~= 0 then
    if plain == nil then return nil, "tunnel_truncated" end
    -- A word that begins with 0x1000 also announces the control channel of a pseudowire.
    if plain and not (first == 0x10 and u8(w, at + 1) == 0) then return "frame", 0 end
    return nil, "eompls_unclear"
  end
  local behind = W.reads_as_frame(w, at + 4)
  if plain == nil or behind == nil then return nil, "tunnel_truncated" end
  if plain == behind then return nil, "eompls_unclear" end
  return "frame", behind and 4 or 0
end

function W.labelled(w, at, label)
  local kind, what = W.behind_labels(w, at, label)
  if kind == "ip" then return what == IP4 and W.ipv4(w, at) or what == IP6 and W.ipv6(w, at) or nil end
  if not kind then return W.unread(w, what) end
  if not W.enter_link(w) then return W.unread(w, "tunnel_depth") end
  return W.ethernet(w, at + what)
end

function W.any_ip(w, at)
  local first = u8(w, at)
  if not first then return W.unread(w, "tunnel_truncated") end
  local version = bits(first, 4, 4)
  if version == 4 then return W.ipv4(w, at) end
  if version == 6 then return W.ipv6(w, at) end
  return W.unread(w, "tunnel_not_ip")
end

-- The data of a PPPoE session.
function W.pppoe(w, at)
  if not W.enter_link(w) then return W.unread(w, "tunnel_depth") end
  if at + 6 > w.fin then return W.unread(w, "tunnel_truncated") end
  if u16(w, at) ~= 0x1100 then return W.unread(w, "bad_pppoe") end
  local len, body = u16(w, at + 4), at + 6
  w.fin = math.min(w.fin, body + len)
  local protocol, size = u8(w, body), 1
  if protocol and protocol % 2 == 0 then protocol, size = u16(w, body), 2 end
  if not protocol then return W.unread(w, len < 2 and "bad_pppoe" or "tunnel_truncated") end
  local ethertype = protocol == 0x21 and IP4 or protocol == 0x57 and IP6
  if not ethertype then return W.unread(w, "tunnel_not_ip") end
  return W.ethertype(w, body + size, ethertype)
end

-- ERSPAN, behind GRE with this protocol type.
function W.erspan(w, at, protocol, has_sequence)
  if protocol == 0x88be and not has_sequence then return W.ethernet(w, at) end
  local first = u8(w, at)
  if not first then return W.unread(w, "tunnel_truncated") end
  local version = bits(first, 4, 4)
  if protocol == 0x88be and version == 1 then return W.ethernet(w, at + 8) end
  if protocol == 0x88be or version ~= 2 or not has_sequence then return W.unread(w, "erspan_version") end
  if at + 12 > w.fin then return W.unread(w, "tunnel_truncated") end
  local word = u32(w, at + 8)
  local body, kind = at + 12 + word % 2 * 8, bits(word, 10, 5)
  if kind == 0 then return W.ethernet(w, body) end
  if kind == 2 then return W.any_ip(w, body) end
  return W.unread(w, "tunnel_not_ip")
end

-- The length of a GTP-U header with its extension headers; nil and a reason: it cannot be read.
function W.gtp_header(w, at)
  if at + 8 > w.fin then return nil, "tunnel_truncated" end
  local flags, len, here = u8(w, at), u16(w, at + 2), at + 12
  if flags % 8 == 0 then return at + 8 end
  if here > at + 8 + len then return nil, "gtp_ext" end
  local following = u8(w, here - 1)
  if not following then return nil, "tunnel_truncated" end
  if bits(flags, 2, 1) == 0 then return here end
  for _ = 1, 8 do
    if following == 0 then return here end
    if here >= at + 8 + len then return nil, "gtp_ext" end
    local words = u8(w, here)
    if not words then return nil, "tunnel_truncated" end
    here = here + words * 4
    if words == 0 or here > at + 8 + len then return nil, "gtp_ext" end
    following = u8(w, here - 1)
    if not following then return nil, "tunnel_truncated" end
  end
  if following == 0 then return here end
  return nil, "gtp_ext"
end

-- Whether the bytes after UDP are user data of GTP-U.
function W.is_gtp_data(w, at) return bits(u8(w, at) or 0, 4, 4) == 3 and u8(w, at + 1) == 0xff end

function W.gtp(w, at)
  local body, reason = W.gtp_header(w, at)
  if not body then return W.unread(w, reason) end
  return W.any_ip(w, body)
end

function W.ethertype(w, at, ethertype)
  local follows_all = w.aim ~= "frame"
  for count = 1, 8 do
    if ethertype == IP4 then
      return W.ipv4(w, at)
    elseif ethertype == IP6 then
      return W.ipv6(w, at)
    elseif ethertype == ETH then
      if not W.enter_link(w) then return W.unread(w, "tunnel_depth") end
      return W.ethernet(w, at)
    elseif ethertype == 0x8864 and follows_all then
      return W.pppoe(w, at)
    elseif TAGS[ethertype] then
      ethertype = u16(w, at + 2)
      if not ethertype then return end
      at = at + 4
    elseif ethertype == 0x8847 or ethertype == 0x8848 then
      local label = u32(w, at)
      if not label then return end
      at = at + 4
      if bits(label, 8, 1) == 1 then
        if follows_all and count == 8 then return W.unread(w, "tunnel_depth") end
        if follows_all then return W.labelled(w, at, floor(label / 4096)) end
        if is_pseudowire(w, at) then return end
        local version = bits(u8(w, at) or 0, 4, 4)
        ethertype = version == 4 and IP4 or version == 6 and IP6
        if not ethertype then return end
      end
    else
      if w.tunnels > 0 then W.unread(w, "tunnel_not_ip") end
      return
    end
  end
  W.unread(w, "tunnel_depth")
end

local function bad_ip(w, at)
  if w.aim == "frame" then refuse("bad_ip_header", at) end
  if w.tunnels > 0 then W.unread(w, "tunnel_not_ip") end
end

-- Limits the bytes to the packet: the rest is padding.
local function trim(w, at, header, total)
  if total < header then
    if w.aim == "frame" and total ~= 0 then refuse("bad_ip_header", at) end
    return
  end
  if at + total < w.fin then w.fin, w.is_shorter = at + total, true end
end

-- The refusal thrown by a function, or nil. INT that the length of an IP header cuts off was not truncated.
local function cause(w, problem)
  if problem and problem.refused == "int_truncated" and w.is_shorter then
    problem.refused, problem.is_of_int = "bad_ip_header", true
  end
  return problem
end

function W.ipv4(w, at)
  if at + 20 > w.fin then return end
  local first = u8(w, at)
  local header = first % 16 * 4
  if bits(first, 4, 4) ~= 4 or header < 20 then return bad_ip(w, at) end
  trim(w, at, header, u16(w, at + 2))
  local proto = u8(w, at + 9)
  local ip = { at = at, v6 = false, dscp = bits(u8(w, at + 1), 2, 6) }
  if u16(w, at + 6) % 0x2000 ~= 0 then
    w.flow = flow_of(ip, at, nil, nil, proto)
    return
  end
  return W.transport(w, at + header, ip, proto)
end

local EXTENSION_UNITS = { [0] = 8, [43] = 8, [60] = 8, [135] = 8, [139] = 8, [140] = 8, [44] = 0, [51] = 4 }

function W.ipv6(w, at)
  if at + 40 > w.fin then return end
  local word = u32(w, at)
  if bits(word, 28, 4) ~= 6 then return bad_ip(w, at) end
  local payload = u16(w, at + 4)
  if payload ~= 0 then trim(w, at, 40, 40 + payload) end
  local ip = { at = at, v6 = true, dscp = bits(word, 22, 6) }
  local next_header = u8(w, at + 6)
  local here = at + 40
  for _ = 1, 8 do
    local units = EXTENSION_UNITS[next_header]
    if not units then return W.transport(w, here, ip, next_header) end
    if here + 8 > w.fin then break end
    local len = 8 + u8(w, here + 1) * units
    if next_header == 44 and floor(u16(w, here + 2) / 8) ~= 0 then
      next_header = u8(w, here)
      break
    end
    if (next_header == 0 or next_header == 60) and (w.seek or w.left_out) then
      -- Anywhere but directly behind the IPv6 header (RFC 8200, 4.1) a host wrote it, as destination options.
      local is_by_hop = next_header == 0 and here == at + 40
      if is_by_hop and w.seek and not w.option_refused then
        local problem = cause(w, guarded(function() W.int_options(w, here, len, ip) end))
        if problem and w.aim == "frame" then error(problem, 0) end
        -- INT may also be behind UDP or TCP.
        if problem then
          w.seek, w.int, w.option_refused = true, nil, problem
        elseif w.aim == "report" and not w.seek then
          w.int_option = { ip = ip.at, at = here }
        end
      end
      W.ioam_options(w, here + 2, here + len, ip, is_by_hop)
    end
    here, next_header = here + len, u8(w, here)
  end
  -- Cut in an extension header, the packet does not tell its protocol.
  if not EXTENSION_UNITS[next_header] then w.flow = flow_of(ip, at, nil, nil, next_header) end
end

-- Looks for INT among the options of the hop-by-hop header at `at`, of `len` bytes. It may be cut.
function W.int_options(w, at, len, ip)
  local option, fin = at + 2, at + len
  while option < fin do
    local kind = u8(w, option)
    if not kind then return end
    local wanted = kind == 0x3e and w.seek
    -- A host may have written either of two.
    if kind == 0x3e and not wanted and w.aim ~= "frame" and floor((u8(w, option + 2) or 0) / 16) ~= 2 then
      w.place = nil
      refuse("bad_option", option)
    end
    local following
    if kind == 0 then
      following = option + 1
    else
      local size = option + 1 < fin and u8(w, option + 1)
      if size then
        following = option + 2 + size
      elseif wanted then
        refuse(option + 1 < fin and "int_truncated" or "bad_option", option)
      else
        return
      end
    end
    if wanted then
      trail(w, "option", option, 2)
      if following > fin then refuse("bad_option", option) end
      W.int_option(w, option, following, ip, at)
    end
    option = following
  end
end

-- Adds an IOAM option. Of traces with nodes, one in a hop-by-hop header gives the path: nodes on the path do not process destination
-- options. Otherwise the one with the most nodes gives it, the first of equals.
function W.add_ioam(w, found, is_by_hop)
  local has_nodes, best = #found.nodes > 0, w.ioam
  found.by_hop = is_by_hop and has_nodes
  if best then
    if found.by_hop == best.by_hop then
      w.several_traces = w.several_traces or has_nodes and #best.nodes > 0
      if W.ioam_rank(found) <= W.ioam_rank(best) then return end
    elseif best.by_hop then
      return
    else
      w.several_traces = false
    end
  end
  w.ioam = found
end

-- Looks for IOAM among the options from `at` to `fin`.
function W.ioam_options(w, at, fin, ip, is_by_hop)
  local is_cut = fin > w.fin
  fin = math.min(fin, w.fin)
  while at < fin do
    local kind = u8(w, at)
    if kind == 0 then
      at = at + 1
    else
      local size = at + 1 < fin and u8(w, at + 1)
      local wanted = (kind == 0x31 or kind == 0x11) and (not w.ioam_ip or w.ioam_ip == ip.at)
      if is_cut and wanted then
        -- The rest of the header may hold another trace.
        w.ioam_cut = { refused = "int_truncated", at = at }
        return
      end
      if not size or at + 2 + size > fin then return end
      if wanted then
        local found
        local problem = guarded(function() found = W.ioam_option(w, at + 2, size) end)
        -- In a report, one that contradicts itself is left out: it hides neither INT nor another option.
        if problem and w.aim ~= "report" then error(problem, 0) end
        w.ioam_refused = w.ioam_refused or problem
        if found then
          w.ioam_ip = ip.at
          w.is_traced_by_hop = w.is_traced_by_hop or is_by_hop and W.ioam_rank(found) > 1000
          W.add_ioam(w, found, is_by_hop)
        end
      end
      at = at + 2 + size
    end
  end
end

function W.transport(w, at, ip, proto)
  if proto == 17 then
    return W.udp(w, at, ip)
  elseif proto == 6 then
    return W.tcp(w, at, ip)
  elseif proto == 47 then
    return W.gre(w, at, ip)
  elseif proto == 4 or proto == 41 then
    enter(w, flow_of(ip, at, nil, nil, proto))
    return W.inside(w, at, proto == 4 and IP4 or IP6)
  end
  local sport, dport
  if proto == 33 or proto == 132 or proto == 136 then sport, dport = ports_at(w, at) end
  w.flow = flow_of(ip, at, sport, dport, proto)
end

-- Whether the bytes after UDP to the port of a tunnel cannot be the header of that tunnel.
local function is_not_tunnel(w, dport, at)
  local first = u8(w, at)
  if not first then return false end
  if dport == 4789 or w.aim ~= "frame" and C.is_vxlan_port(dport) then return bits(first, 3, 1) == 0 end
  if dport == 4790 then return bits(first, 2, 2) == 0 end
  if dport == 8472 then
    -- The port is not that of VXLAN alone: all reserved bits must be 0.
    for _, i in ipairs({ 1, 2, 3, 7 }) do
      if (u8(w, at + i) or 0) ~= 0 then return true end
    end
    return first ~= 8
  end
  return dport == 6081 and first >= 64
end

-- Whether the bytes after UDP look like the tunnel header that belongs to the port.
local function is_tunnel(w, dport, at)
  local first = u8(w, at)
  -- In a report, a header that begins as no shim of INT does is certain.
  local is_port = dport == 4790 or dport == 6081 or dport == 8472
  local is_no_shim = first and (first == 0 or (first > 3 and first < 16))
  if w.aim ~= "frame" then
    if is_port and is_no_shim and not is_not_tunnel(w, dport, at) then return true end
    if C.is_vxlan_port(dport) then return first and bits(first, 3, 1) == 1 end
    if dport == 2152 then return W.is_gtp_data(w, at) end
  end
  if dport == 4789 or dport == 4790 then return first and bits(first, 3, 1) == 1 end
  if dport == 6081 then
    local protocol = u16(w, at + 2)
    if not protocol or first >= 64 then return false end
    -- The reserved bits are 0, and IP has its version: a shim of eight words without a DSCP has the EtherType of IPv4.
    if u8(w, at + 1) % 64 ~= 0 or (u8(w, at + 7) or 0) ~= 0 then return false end
    local inner = u8(w, at + 8 + first % 64 * 4)
    local version = inner and floor(inner / 16)
    return protocol == ETH or (protocol == IP4 and (not version or version == 4)) or
      (protocol == IP6 and (not version or version == 6))
  end
end

-- Whether a shim with this first byte belongs to the mark of the port, so that it is not one of the DSCP (ruling m).
local function is_shim_of_port(first)
  if first < 16 then return C.dialect == "hostint" end
  return bits(first, 2, 2) ~= 0
end

-- Whether there is a shim at `body`. A packet that ends there was truncated before INT.
local function find_int(w, l4, body, dport)
  if w.fin <= body then return nil end
  local function found(by, shim)
    return { encapsulation = l4.encapsulation, found_by = by, ip = l4.ip, l4 = l4.at, start = body, shim = shim }
  end
  local is_udp = l4.encapsulation == "udp"
  if C.probe and w.s:sub(body + 1, math.min(body + 8, w.fin)) == C.probe then
    trail(w, "probe", body, 8)
    return found("probe", body + 8)
  end
  local by_port = is_udp and C.is_int_port(dport)
  if by_port and is_shim_of_port(u8(w, body)) then return found("port", body) end
  if is_int_dscp(l4.ip.dscp) and not (is_udp and is_tunnel(w, dport, body)) then return found("dscp", body) end
  if by_port then return found("port", body) end
end

-- The INT that may be at `body` without a mark.
local function unmarked(w, l4, body)
  if not w.seek or w.fin <= body then return nil end
  local first = u8(w, body)
  -- A next-protocol type of 0 belongs to the DSCP, others to the port.
  local by_port = bits(first, 2, 2) ~= 0 and first >= 16
  return { encapsulation = l4.encapsulation, found_by = by_port and "port" or "dscp", ip = l4.ip, l4 = l4.at,
    start = body, shim = body }
end

local function check_udp_length(w, at, ip)
  local claimed = u16(w, at + 4)
  local header = ip.v6 and 40 or 0
  local total = (ip.v6 and u16(w, ip.at + 4) or u16(w, ip.at + 2)) + header
  if not (claimed >= 8 and at + claimed <= ip.at + total) and total ~= header then refuse("bad_udp_length", at) end
end

function W.udp(w, at, ip)
  local sport, dport = ports_at(w, at)
  local body = at + 8
  if not sport or w.fin < body then
    w.flow = flow_of(ip, at, sport, dport, 17)
    return
  end
  if w.aim == "frame" then check_udp_length(w, at, ip) end
  w.flow = flow_of(ip, at, sport, dport, 17)
  local proto = 17
  local found = W.wanted_int(w, { ip = ip, at = at, encapsulation = "udp" }, body, dport)
  if w.left_out and C.is_int_port(dport) then found = W.left_out_shim(w, body) end
  if found then
    local fin, original = found.fin, found.original
    if not fin then fin, original = W.l4_shim(w, found) end
    local behind = original.proto
    if behind == 17 and original.port then behind = nil end
    if found.found_by == "port" and behind then
      w.seek, w.left_out = false, false
      return W.transport(w, fin, ip, behind)
    end
    dport, body = original.port or dport, fin
    proto = original.proto or proto
  end
  local flow = flow_of(ip, at, sport, dport, proto)
  if is_not_tunnel(w, dport, body) then
    w.flow = flow
  elseif dport == 4789 or (dport == 8472 and w.aim ~= "frame") then
    enter(w, flow)
    return W.inside(w, body + 8, ETH)
  elseif dport == 4790 then
    return W.gpe(w, body, ip, flow)
  elseif dport == 6081 then
    return W.geneve(w, body, ip, flow)
  elseif w.aim ~= "frame" and C.is_vxlan_port(dport) then
    enter(w, flow)
    return W.inside(w, body + 8, ETH)
  elseif w.aim ~= "frame" and dport == 2152 and W.is_gtp_data(w, body) then
    enter(w, flow)
    return W.gtp(w, body)
  end
  w.flow = flow
  if not found then w.unmarked = unmarked(w, { ip = ip, at = at, encapsulation = "udp" }, body) end
  if w.aim == "report" and proto == 17 and C.is_report_port(dport) then w.nested = { at = at, from = body, fin = w.fin } end
end

-- The marked INT at `body`, if it is wanted. In a packet whose IPv6 option has INT, too, which a host can write into any packet, it is
-- read, and wins if it has records.
function W.wanted_int(w, l4, body, dport)
  local option = w.int_option
  if w.seek then return find_int(w, l4, body, dport) end
  local found = option and option.ip == l4.ip.at and find_int(w, l4, body, dport)
  if not found then return nil end
  local kept = { int = w.int, place = w.place, destination = w.destination, trail = #w.trail }
  w.int = nil
  local problem = guarded(function() found.fin, found.original = W.l4_shim(w, found) end)
  if not problem and w.int and w.int.count > 0 then
    w.option_refused, w.int_option = { refused = "bad_option", at = option.at }, nil
    return found
  end
  w.int, w.place, w.destination = kept.int, kept.place, kept.destination
  for i = #w.trail, kept.trail + 1, -1 do w.trail[i] = nil end
  return nil
end

-- INT in the header of a tunnel wins likewise over an option of its IPv6 header, if it has records. `read` reads it.
function W.tunnel_int(w, ip, read)
  local option = w.int_option
  if w.seek or not option or option.ip ~= ip.at then return end
  local kept = { int = w.int, place = w.place, destination = w.destination, trail = #w.trail }
  w.int, w.seek = nil, true
  local problem = guarded(read)
  w.seek = false
  if not problem and w.int and w.int.count > 0 then
    w.option_refused, w.int_option = { refused = "bad_option", at = option.at }, nil
    return
  end
  w.int, w.place, w.destination = kept.int, kept.place, kept.destination
  for i = #w.trail, kept.trail + 1, -1 do w.trail[i] = nil end
end

function W.tcp(w, at, ip)
  local sport, dport = ports_at(w, at)
  w.flow = flow_of(ip, at, sport, dport, 6)
  if not sport or w.fin < at + 20 then return end
  local body = at + 20
  if C.after_options then body = at + math.max(bits(u8(w, at + 12), 4, 4), 5) * 4 end
  local l4 = { ip = ip, at = at, encapsulation = "tcp" }
  local found = W.wanted_int(w, l4, body, dport)
  if not found then
    w.unmarked = unmarked(w, l4, body)
    return
  end
  local original = found.original
  if not found.fin then original = select(2, W.l4_shim(w, found)) end
  w.flow = flow_of(ip, at, sport, original.port or dport, original.proto or 6)
end

-- Ruling (a): version nibble 0, but the counts are those of INT 1.0. HopML counts words, or items: see words_of_10.
local function is_10_under_version_0(w, at)
  if at + 8 > w.fin then return false end
  local bitmap = u16(w, at + 4)
  local items, hop_ml = popcount(bitmap), u8(w, at + 2) % 32
  return u8(w, at + 1) % 32 ~= items and (hop_ml == items + popcount(bits(bitmap, 9, 1)) or hop_ml == items)
end

-- The version by first shim byte and version nibble: "2" with a mode, "1.0", "0.5", "private", "destination".
local function detect_by(first, version, zero_is_10, sf)
  local type_2 = floor(first / 16)
  if first == 0x01 and (version == 1 or version == 0 and zero_is_10) then return "1.0" end
  if first == 0x01 and version == 0 then return "0.5" end
  if first == 0x03 and version == 0 and C.dialect == "hostint" then return "private" end
  if first == 0x02 or type_2 == 2 then return "destination" end
  if type_2 == 1 or type_2 == 3 or (type_2 == 4 and sf) then
    if version == 2 then return "2", type_2 == 3 and "mx" or "md", type_2 end
    return nil, "bad_int_version"
  end
  return nil, first == 0x01 and "bad_int_version" or "bad_shim"
end

-- `sf`: SF-INT may be here.
local function detect(w, at, sf)
  local first = u8(w, at)
  if not first then refuse("int_truncated", at) end
  if first == 0x02 or floor(first / 16) == 2 then return "destination" end
  local version = u8(w, at + 4)
  if not version then
    local as_2 = detect_by(first, 2, false, sf)
    local as_0, problem = detect_by(first, 0, false, sf)
    if not as_2 and not as_0 then refuse(problem, at) end
    refuse("int_truncated", at)
  end
  version = bits(version, 4, 4)
  local zero_is_10 = first == 0x01 and version == 0 and is_10_under_version_0(w, at + 4)
  local found, mode, type_2 = detect_by(first, version, zero_is_10, sf)
  if not found then refuse(mode, at) end
  return found, mode, type_2
end

local function shim_whole(w, at)
  if at + 4 > w.fin then refuse("int_truncated", at) end
end

-- Ruling (m): NPT must fit the way INT was found.
local function fit(w, found, at)
  local npt = bits(u8(w, at), 2, 2)
  if npt == 1 and found.found_by == "port" then return { port = u16(w, at + 2) } end
  if npt == 2 and found.found_by == "port" then return { proto = u8(w, at + 3) } end
  if npt == 0 and found.found_by ~= "port" then return { dscp = bits(u8(w, at + 3), 2, 6) } end
  refuse("bad_next_protocol_type", at)
end

local function set_place(w, found, header, stack, fin, original)
  w.seek = false
  w.place = {
    encapsulation = found.encapsulation, found_by = found.found_by, ip = found.ip.at, v6 = found.ip.v6, l4 = found.l4,
    start = found.start, header = header, stack = stack, fin = fin, original = original,
  }
end

-- Maximum number of records of non-urgent SF-INT: in a report the sink's own may be on the stack. 0: plain INT.
function W.sf_records(w, kind)
  if kind ~= 4 then return 0 end
  return w.aim == "report" and 2 or 1
end

-- Header and record of SF-INT; parameters as in read_2.
function W.read_sf(w, header, fin, sf_records)
  local is_sf = u8(w, header) % 2 == 1
  if sf_records == 0 or not is_sf then refuse("sf_mismatch", header) end
  local second, data = u8(w, header + 1), header + 12
  local hop_ml, bitmap = u8(w, header + 2) % 32, u16(w, header + 4)
  local sf = { urgent = second >= 128, state = bits(second, 5, 2), packet_id = u16(w, header + 6) }
  if sf.state == 0 or not bit_of(bitmap, 0) or bit_of(bitmap, 15) or u32(w, header + 8) ~= 0 then
    refuse("bad_sf_header", header)
  end
  -- Medium: the record is the packet's own, so that all in one report is of one packet.
  sf.one_packet = sf.urgent or sf.state == 2
  local layout = layout_2(bitmap, hop_ml, false, header)
  local count = floor((fin - data) / layout.bytes)
  if count * layout.bytes ~= fin - data then refuse(sf.urgent and "partial_hop" or "bad_sf_stack", header) end
  -- The remaining hop count has 8 bits.
  if sf.urgent and count > 255 then refuse("too_many_hops", header) end
  if not sf.urgent and (count < 1 or count > sf_records) then refuse("bad_sf_stack", header) end
  w.int = { version = "2.x", mode = "md", header = header, stack = data, count = count, bitmap = bitmap,
    layout = layout, sf = sf }
end

-- Header and stack of INT 2.x, `header` to `fin`.
function W.read_2(w, header, fin, mode, sf_records)
  trail(w, mode == "mx" and "mx2" or "md2", header, 12)
  if fin < header + 12 then refuse("bad_int_length", header) end
  if fin > w.fin then refuse("int_truncated", header) end
  if sf_records ~= 0 or (u8(w, header) % 2 == 1 and mode == "md") then
    return W.read_sf(w, header, fin, sf_records)
  end
  local data = header + 12
  local hop_ml, bitmap = u8(w, header + 2) % 32, u16(w, header + 4)
  local ds_id, ds_instruction = u16(w, header + 6), u16(w, header + 8)
  local int = { version = "2.x", mode = mode, header = header, stack = data, count = 0, bitmap = bitmap }
  if mode == "mx" then
    if ds_instruction == 0 and fin > data then refuse("bad_int_length", header) end
    int.source_only = { data, fin }
    int.layout = { bytes = 0 }
    w.int = int
    return
  end
  local domain = ds_id ~= 0 and ds_instruction ~= 0
  if hop_ml == 0 and fin > data then refuse("bad_hop_ml", header) end
  local layout = layout_2(bitmap, hop_ml, domain, header)
  local known = domain and (C.domains[ds_id] or 0) * 4 or 0
  local shared = fin - data - known
  if shared < 0 then refuse("bad_int_length", header) end
  local count = layout.bytes > 0 and floor(shared / layout.bytes) or 0
  local rest = fin - data - count * layout.bytes
  if rest ~= known and (known > 0 or not domain) then refuse("partial_hop", header) end
  int.layout, int.count = layout, count
  int.source_only = { fin - rest, fin }
  w.int = int
end

function W.read_10(w, header, fin)
  trail(w, "md10", header, 8)
  if fin > w.fin then refuse("int_truncated", header) end
  if fin < header + 8 then refuse("bad_int_length", header) end
  local hop_ml, bitmap = u8(w, header + 2) % 32, u16(w, header + 4)
  local data = header + 8
  if hop_ml == 0 and fin > data then refuse("bad_hop_ml", header) end
  local layout = layout_10(bitmap, words_of_10(bitmap, hop_ml, floor((fin - data) / 4)), header)
  local count = layout.bytes > 0 and floor((fin - data) / layout.bytes) or 0
  if count * layout.bytes ~= fin - data then refuse("partial_hop", header) end
  w.int = { version = "1.0", mode = "md", header = header, stack = data, count = count, bitmap = bitmap,
    layout = layout, replica = u8(w, header) % 4 >= 2 }
end

-- INT 0.5, `header` to `fin`; `tail`: "none", "whole", "private". Returns the bytes left after the stack.
function W.read_05(w, header, fin, tail)
  trail(w, "md05", header, 8)
  if fin < header + 8 then refuse("bad_int_length", header) end
  local bitmap, instructions = u16(w, header + 4), u8(w, header + 1) % 32
  local max_hops, total = u8(w, header + 2), u8(w, header + 3)
  if instructions ~= popcount(bitmap) or instructions == 0 and total > 0 then
    refuse("bad_instruction_count", header)
  end
  if total > max_hops then refuse("too_many_hops", header) end
  local rest = fin - (header + 8) - instructions * 4 * total
  local fits = tail == "none" and rest == 0 or tail == "whole" and rest == 4 or
    tail == "private" and rest >= 0 and rest <= 8
  if not fits then refuse("bad_int_length", header) end
  w.int = { version = "0.5", mode = "md", header = header, stack = header + 8, count = total, bitmap = bitmap,
    layout = build(bitmap, INT_05), replica = u8(w, header) % 4 >= 2 }
  return rest
end

-- INT 0.5 after L4, with its tail. Returns where INT ends and the original values.
function W.int_05(w, header, fin, tail, private)
  local there = fin
  if tail == "private" and w.aim == "report" then
    there = math.max(math.min(fin, w.fin), header)
  elseif fin > w.fin then
    trail(w, "md05", header, 8)
    refuse("int_truncated", header)
  end
  local rest
  local problem = guarded(function() rest = W.read_05(w, header, there, tail) end)
  if problem then
    if problem.refused == "bad_int_length" and fin > w.fin then refuse("int_truncated", header) end
    error(problem, 0)
  end
  local stack_end = there - rest
  if private and rest >= 4 then
    w.int.seq_at = stack_end
    stack_end, rest = stack_end + 4, rest - 4
  elseif private then
    rest = 0
  end
  -- Inside a report of host-int the bytes after the stack are the packet's own again.
  if rest < 4 or (w.aim == "report" and tail == "private") then return stack_end, {} end
  trail(w, "tail", stack_end, 4)
  local port, proto = u16(w, stack_end + 1), u8(w, stack_end)
  return stack_end + 4, {
    port = port ~= 0 and port or nil, proto = proto ~= 0 and proto or nil, dscp = u8(w, stack_end + 3),
  }
end

-- Ordinary traffic may begin with the type of a shim; the reserved bits and the length then show that there is none.
local function looks_like_shim(w, at)
  local first, second, third = u8(w, at), u8(w, at + 1), u8(w, at + 2)
  local dscp = u8(w, at + 3) % 4 == 0
  if first == 1 then return second == 0 and third >= 3 and dscp end
  return first % 4 == 0 and second >= 3 and (bits(first, 2, 2) ~= 0 or (third == 0 and dscp))
end

-- The shim of INT that is left out, behind UDP to its port: it announces the port or the protocol that the packet had.
function W.left_out_shim(w, body)
  local found = { found_by = "port", start = body, shim = body }
  local problem = guarded(function()
    local version = detect(w, body, true)
    local is_destination = version == "destination" and u8(w, body) ~= 2
    if version ~= "2" and not is_destination then refuse("bad_shim", body) end
    shim_whole(w, body)
    found.original, found.fin = fit(w, found, body), body + 4 + u8(w, body + 1) * 4
    w.left_out = is_destination
  end)
  return not problem and found or nil
end

-- The shim after L4, and INT after it. Returns where INT ends and the original values.
function W.l4_shim(w, found)
  local shim = found.shim
  w.suspect = found
  local hostint = C.dialect == "hostint"
  local version, mode, kind
  local problem = guarded(function() version, mode, kind = detect(w, shim, true) end)
  if problem then
    if problem.refused == "bad_int_version" and not looks_like_shim(w, shim) then refuse("bad_shim", shim) end
    error(problem, 0)
  end
  if version == "2" then
    shim_whole(w, shim)
    trail(w, "shim2", shim, 4)
    local original = fit(w, found, shim)
    local header = shim + 4
    local fin = header + u8(w, shim + 1) * 4
    W.read_2(w, header, fin, mode, W.sf_records(w, kind))
    set_place(w, found, header, header + 12, fin, original)
    return fin, original
  elseif version == "destination" then
    w.destination = true
    shim_whole(w, shim)
    if u8(w, shim) ~= 2 then
      trail(w, "shim2", shim, 4)
      return shim + 4 + u8(w, shim + 1) * 4, fit(w, found, shim)
    end
    trail(w, "shim1", shim, 4)
    return shim + math.max(u8(w, shim + 2), 1) * 4, {}
  end
  if found.found_by == "port" and not hostint and version ~= "private" then refuse("bad_shim", shim) end
  shim_whole(w, shim)
  trail(w, "shim1", shim, 4)
  local length = u8(w, shim + 2)
  if length == 0 and version == "0.5" and C.dialect == "intcollector-gen" and shim + 12 <= w.fin then
    -- The generator omits the length, which follows from the counts of the header.
    length = 4 + u8(w, shim + 5) % 32 * u8(w, shim + 7)
  end
  if length < 3 then refuse("bad_int_length", shim) end
  local header, fin, original = shim + 4, shim + length * 4, {}
  if version == "1.0" then
    W.read_10(w, header, fin)
    original = { dscp = bits(u8(w, shim + 3), 2, 6) }
  else
    local private = version == "private"
    fin, original = W.int_05(w, header, fin, (private or hostint) and "private" or "whole", private)
  end
  set_place(w, found, header, header + 8, fin, original)
  return fin, original
end

-- GRE, with INT if its protocol type says so.
function W.gre(w, at, ip)
  enter(w, flow_of(ip, at, nil, nil, 47))
  if at + 4 > w.fin then return end
  local flags, version, protocol = u8(w, at), u8(w, at + 1) % 8, u16(w, at + 2)
  local is_int = protocol == C.gre_protocol
  if version ~= 0 or bits(flags, 6, 1) == 1 then
    if is_int and w.seek then refuse("bad_gre", at) end
    return W.unread(w, "bad_gre")
  end
  local body = at + 4 + (bits(flags, 7, 1) + bits(flags, 5, 1) + bits(flags, 4, 1)) * 4
  local is_erspan = (protocol == 0x88be or protocol == 0x22eb) and w.aim ~= "frame" and w.tunnels <= 4
  if not is_int and is_erspan then return W.erspan(w, body, protocol, bits(flags, 4, 1) == 1) end
  if not is_int then return W.inside(w, body, protocol) end
  W.tunnel_int(w, ip, function() W.gre_shim(w, ip, at, body) end)
  local seek, fin, ethertype = w.seek, nil, nil
  local problem = guarded(function() fin, ethertype = W.gre_shim(w, ip, at, body) end)
  if problem and seek then error(problem, 0) end
  if problem then return W.unread(w, problem.refused) end
  if fin then return W.inside(w, fin, ethertype) end
end

function W.gre_shim(w, ip, gre, shim)
  if w.fin <= shim then return nil end
  local version, mode = detect(w, shim)
  shim_whole(w, shim)
  local ethertype, header = u16(w, shim + 2), shim + 4
  local fin = header + u8(w, shim + 1) * 4
  if not w.seek then return fin, ethertype end
  trail(w, "shim_gre", shim, 4)
  if version == "2" then
    W.read_2(w, header, fin, mode, 0)
  elseif version == "destination" and u8(w, shim) ~= 2 then
    w.destination = true
    return fin, ethertype
  else
    refuse("bad_int_version", shim)
  end
  set_place(w, { encapsulation = "gre", found_by = "tunnel", ip = ip, l4 = gre, start = shim },
    header, header + 12, fin,
    { tunnel_inserted = bits(u8(w, shim), 3, 1) == 1 })
  return fin, ethertype
end

local GPE_INT = { [0x05] = "0.5", [0x08] = "1.0", [0x80] = "2", [0x82] = "2" }

-- All INT behind a VXLAN-GPE header. Returns its end and the protocol behind it.
function W.gpe_shims(w, ip, at, next_protocol)
  for _ = 1, 8 do
    local version = GPE_INT[next_protocol]
    if not version then break end
    at, next_protocol = W.gpe_shim(w, ip, at, version)
    if not at then return nil end
  end
  return at, next_protocol
end

-- VXLAN-GPE, with INT if its next protocol says so.
function W.gpe(w, at, ip, outer)
  enter(w, outer)
  if at + 8 > w.fin then return end
  local next_protocol = bits(u8(w, at), 2, 1) == 1 and u8(w, at + 3) or 3
  at = at + 8
  W.tunnel_int(w, ip, function() W.gpe_shims(w, ip, at, next_protocol) end)
  local seek, problem = w.seek, nil
  problem = guarded(function() at, next_protocol = W.gpe_shims(w, ip, at, next_protocol) end)
  if problem and seek then error(problem, 0) end
  if problem then return W.unread(w, problem.refused) end
  if not at then return end
  local ethertype = next_protocol == 1 and IP4 or next_protocol == 2 and IP6 or next_protocol == 3 and ETH
  if ethertype then return W.inside(w, at, ethertype) end
  return W.unread(w, "tunnel_not_ip")
end

-- INT 1.0 or 0.5 without an L4 tail.
function W.without_tail(w, header, fin, version)
  if fin < header + 8 then refuse("bad_int_length", header) end
  if version == "1.0" then return W.read_10(w, header, fin) end
  if fin > w.fin then refuse("int_truncated", header) end
  W.read_05(w, header, fin, "none")
end

function W.gpe_shim(w, ip, shim, version)
  if w.fin <= shim then return nil end
  local header = shim + 4
  local found, mode = detect(w, shim)
  shim_whole(w, shim)
  local inserted = version == "2" and bits(u8(w, shim + 2), 7, 1) == 1
  local following = u8(w, shim + 3)
  local fin = version == "2" and header + u8(w, shim + 1) * 4 or shim + math.max(u8(w, shim + 2), 1) * 4
  if not w.seek then return fin, following end
  trail(w, version == "2" and "shim_gpe" or "shim1", shim, 4)
  if found == "destination" then
    w.destination = true
    return fin, following
  elseif found == "private" then
    refuse("bad_shim", shim)
  elseif found ~= version then
    refuse("bad_int_version", shim)
  end
  local stack = header + 8
  if version == "2" then
    W.read_2(w, header, fin, mode, 0)
    stack = header + 12
  else
    W.without_tail(w, header, fin, version)
  end
  set_place(w, { encapsulation = "gpe", found_by = "tunnel", ip = ip, l4 = shim - 16, start = shim },
    header, stack, fin,
    { tunnel_inserted = inserted })
  return fin, following
end

-- Geneve, with INT if an option holds it.
function W.geneve(w, at, ip, outer)
  enter(w, outer)
  if at + 8 > w.fin then return end
  local protocol = u16(w, at + 2)
  local fin = at + 8 + u8(w, at) % 64 * 4
  W.tunnel_int(w, ip, function() W.geneve_options(w, ip, at, fin) end)
  W.geneve_options(w, ip, at, fin)
  return W.inside(w, fin, protocol)
end

function W.geneve_options(w, ip, at, fin)
  local option = at + 8
  while option < fin and w.seek do
    if option + 4 > w.fin then break end
    local following = option + 4 + u8(w, option + 3) % 32 * 4
    if following > fin then refuse("bad_geneve", option) end
    W.geneve_option(w, ip, at - 8, option, following)
    option = following
  end
end

function W.geneve_option(w, ip, l4, option, fin)
  local class, kind, header = u16(w, option), u8(w, option + 2), option + 4
  if class ~= 0x0103 and class ~= 0x00ab then return end
  trail(w, "geneve", option, 4)
  if kind == 2 then
    w.destination = true
    return
  end
  if fin < header + 8 then refuse("bad_int_length", option) end
  local first = u8(w, header)
  if not first then refuse("int_truncated", option) end
  local version, stack = bits(first, 4, 4), header + 8
  if kind ~= 1 and kind ~= 3 then
    refuse("bad_shim", option)
  elseif version == 2 then
    W.read_2(w, header, fin, kind == 3 and "mx" or "md", 0)
    stack = header + 12
  elseif kind == 1 and version <= 1 and class == 0x00ab then
    local is_10 = version == 1 or is_10_under_version_0(w, header)
    W.without_tail(w, header, fin, is_10 and "1.0" or "0.5")
  else
    refuse("bad_int_version", option)
  end
  set_place(w, { encapsulation = "geneve", found_by = "tunnel", ip = ip, l4 = l4, start = option },
    header, stack, fin, {})
end

-- The IPv6 option that holds INT, from its type on to `fin`, in the hop-by-hop header at `header_at`.
function W.int_option(w, option, fin, ip, header_at)
  local shim = option + 2
  if fin > w.fin then refuse("int_truncated", option) end
  if shim + 4 > fin then refuse("bad_option", option) end
  trail(w, "shim2", shim, 4)
  local header = shim + 4
  if fin ~= header + u8(w, shim + 1) * 4 then refuse("bad_option", option) end
  local kind = floor(u8(w, shim) / 16)
  if kind == 2 then
    w.destination = true
    return
  end
  if kind ~= 1 and kind ~= 3 and kind ~= 4 then refuse("bad_shim", shim) end
  if bits(u8(w, shim), 2, 2) ~= 0 then refuse("bad_next_protocol_type", shim) end
  if fin < header + 12 then refuse("bad_int_length", shim) end
  if bits(u8(w, header), 4, 4) ~= 2 then refuse("bad_int_version", header) end
  W.read_2(w, header, fin, kind == 3 and "mx" or "md", W.sf_records(w, kind))
  set_place(w, { encapsulation = "hop_by_hop", found_by = "option", ip = ip, l4 = header_at, start = option }, header,
    header + 12, fin, {})
end

-- IOAM -----------------------------------------------------------------------------------------------------------

local function ioam_bit(trace_type, k) return bits(trace_type, 23 - k, 1) == 1 end
local function ioam_words(trace_type)
  local words = 0
  for k = 0, 21 do
    if ioam_bit(trace_type, k) then words = words + ((k >= 8 and k <= 10) and 2 or 1) end
  end
  return words
end

-- The data of an IOAM option of `size` bytes; nil for IOAM types that are not read.
function W.ioam_option(w, at, size)
  if size < 2 then refuse("bad_ioam", at) end
  local kind = u8(w, at + 1)
  if kind ~= 0 and kind ~= 1 and kind ~= 4 then return nil end
  local option, fin = at + 2, at + size
  if option + 8 > fin then refuse("bad_ioam", at) end
  local ioam = { at = option, fin = fin, namespace = u16(w, option), trace_type = u24(w, option + 4) }
  if kind == 4 then return W.direct_export(w, ioam, fin) end
  local node_len = bits(u8(w, option + 2), 3, 5)
  ioam.overflow = bits(u8(w, option + 2), 2, 1) == 1
  local free = kind == 0 and u8(w, option + 3) % 128 * 4 or 0
  local here = option + 8 + free
  -- An opaque snapshot is data of a node, too, but not part of the length.
  local has_data = node_len ~= 0 or ioam_bit(ioam.trace_type, 22)
  if here > fin or node_len ~= ioam_words(ioam.trace_type) or not has_data or ioam_bit(ioam.trace_type, 23) then
    refuse("bad_ioam", at)
  end
  ioam.nodes = {}
  while here < fin do
    local len = node_len * 4
    if ioam_bit(ioam.trace_type, 22) then
      if here + len + 4 > fin then refuse("bad_ioam", at) end
      len = len + 4 + u8(w, here + len) * 4
    end
    if here + len > fin then refuse("bad_ioam", at) end
    ioam.nodes[#ioam.nodes + 1] = { at = here, len = len }
    here = here + len
  end
  return ioam
end

function W.direct_export(w, ioam, fin)
  local extensions = u8(w, ioam.at + 3)
  if ioam.at + 8 + popcount(extensions) * 4 > fin then refuse("bad_ioam", ioam.at) end
  local here = ioam.at + 8
  if bits(extensions, 7, 1) == 1 then
    ioam.flow_at, here = here, here + 4
  end
  if bits(extensions, 6, 1) == 1 then ioam.seq_at = here end
  ioam.nodes = {}
  ioam.is_export = true
  return ioam
end

-- The id of a node of a trace, if it is available and needs no more than 32 bits.
local function ioam_node_id(w, ioam, node)
  -- A node whose id is not configured still writes its hop limit before it.
  if ioam_bit(ioam.trace_type, 0) and not all_ones(w, node.at + 1, 3) then
    return u24(w, node.at + 1), node.at + 1, 3
  end
  if ioam_bit(ioam.trace_type, 8) then
    local at = node.at + ioam_words(ioam.trace_type - ioam.trace_type % POW[16]) * 4
    if u24(w, at + 1) == 0 and not all_ones(w, at + 4, 4) then return u32(w, at + 4), at + 4, 4 end
  end
  return nil
end

-- Whether the nodes of a trace write an id.
local function has_node_ids(ioam)
  return ioam_bit(ioam.trace_type, 0) or ioam_bit(ioam.trace_type, 8)
end

-- The more nodes with an id, the more an option contributes to the path.
function W.ioam_rank(ioam)
  local named = #ioam.nodes > 0 and not ioam.is_export and has_node_ids(ioam)
  return #ioam.nodes + (named and 1000 or 0)
end

---------------------------------------------------------------------------------------------------------------------
-- Reports: from the payload of a datagram to a list of tables

local function version_of(w, at)
  local first = u8(w, at)
  if not first then return nil, "truncated" end
  local version, kind = bits(first, 4, 4), first % 16
  if version == 1 and C.dialect == "intcollector-gen" and kind < 4 then
    -- The generator writes 1 into its reports 0.5 too; both continue with Ethernet, so the EtherType decides.
    local function is_type(offset)
      local ethertype = u16(w, at + offset + 12)
      return ethertype == IP4 or ethertype == IP6 or ethertype == 0x8100
    end
    local header = ({ [0] = 12, 24, 28 })[kind]
    local as_05, as_10 = header and is_type(header), is_type(16)
    local ip = bits(u8(w, at + 30) or 0, 4, 4)
    if as_05 and as_10 then return (ip == 4 or ip == 6) and "1.0" or "0.5" end
    if as_05 then return "0.5" end
    if as_10 then return "1.0" end
    return (kind == 1 or kind == 3) and "1.0" or "0.5"
  end
  if version == 0 then return "0.5" end
  if version == 1 then return "1.0" end
  if version == 2 then return "2.0" end
  return nil, "unknown_version"
end

-- The header of Report 1.0: word, metadata bits, bytes, next protocol; or nothing and a refusal.
local function head_10(w, at)
  local word = u32(w, at)
  if not word or at + 16 > w.fin then return nil, "truncated" end
  local metadata, len, following = bits(word, 15, 6), bits(word, 24, 4) * 4, bits(word, 21, 3)
  if len < 16 and C.dialect == "intcollector-gen" then metadata, len = 0, 16 end
  if len ~= 16 + popcount(metadata) * 4 then return nil, "bad_length" end
  if following > 2 then return nil, "bad_next_protocol" end
  if at + len > w.fin then return nil, "truncated" end
  return { word = word, metadata = metadata, len = len, following = following }
end

-- Kind 4 of host-int may have the reporter's id before IPv4; only the bytes show it. Returns 0 or 4.
local function sink_word(w, at)
  local function is_ipv4(here)
    local first = u8(w, here)
    return first and bits(first, 4, 4) == 4 and first % 16 >= 5
  end
  if is_ipv4(at) and (not is_ipv4(at + 4) or checksum_holds(w, at)) then return 0 end
  return 4
end

-- Whether a datagram that begins with the version of sFlow is one: the type of the agent's address, and samples that fit in.
local function is_sflow(w, at)
  local header = ({ 28, 40 })[u32(w, at + 4)]
  local samples = header and u32(w, at + header - 4)
  if not samples then return false end
  local rest = w.fin - at - header
  if samples == 0 then return rest == 0 end
  local first = u32(w, at + header + 4)
  return first ~= nil and samples * 8 <= rest and first <= rest - 8
end

-- The flow formats whose datagrams begin with bits of a report 0.5 without flags.
local function flow_format(w, at)
  local version, count, len = u16(w, at), u16(w, at + 2), w.fin - at
  if version == 0 and count == 5 and is_sflow(w, at) then return "sflow" end
  if version == 5 and count > 0 and len == 24 + 48 * count then return "netflow_v5" end
  if version == 9 and count > 0 and len >= 24 and count <= floor((len - 20) / 4) then
    local first = u16(w, at + 22)
    if first >= 4 and first <= len - 20 then return "netflow_v9" end
  end
  if version == 10 and count == len then return "ipfix" end
end

local function head_05(w, at)
  local word = u32(w, at)
  if not word or at + 12 > w.fin then return nil, "truncated" end
  local format = word < POW[21] and flow_format(w, at)
  if format then return nil, format end
  local kind = bits(word, 24, 4)
  local extra = ({ [0] = 0, 12, 16 })[kind]
  if kind == 3 and C.dialect == "hostint" then extra = 24 end
  if kind == 4 and C.dialect == "hostint" then extra = sink_word(w, at + 12) end
  if not extra then return nil, "bad_next_protocol" end
  if at + 12 + extra > w.fin then return nil, "truncated" end
  return { word = word, kind = kind, extra = extra }
end

-- Whether the report is worth reading although INT or IOAM of the packet was left out: the other of the two can be read, the reporter
-- states a loss or congestion, or it adds a measurement.
function W.stands_alone(report, w)
  local flags, domain = report.flags, report.domain
  local words = domain and domain[2] > domain[1]
  return flags.drop or flags.queue or report.metadata or report.gap or words or w.int or w.ioam
end

-- Whether the report is not about a drop or a queue and contains nothing that a node has measured.
local function is_empty(report, w)
  return not (W.stands_alone(report, w) or report.flags.intermediate or w.destination)
end

-- INT behind TCP or UDP that no mark announces, in a report that has nothing else: refused.
local function refuse_unmarked(report, w)
  if report.problem or not w.unmarked or not w.seek or not is_empty(report, w) then return end
  local probe = setmetatable({ trail = {} }, { __index = w })
  local problem = guarded(function() W.l4_shim(probe, w.unmarked) end)
  if not problem and probe.int and probe.int.count > 0 then
    report.problem = { refused = "int_not_marked", at = w.unmarked.start }
  end
end

-- Of two records of an SF packet the first is the reporter's, unless the report has its record elsewhere.
local function split_own(report)
  local int = report.walk and report.walk.int
  if not int or not int.sf or int.sf.urgent or int.count < 2 or report.problem then return end
  if report.ds_id == 0x5043 and report.metadata then return end
  if report.metadata then
    report.problem = { refused = "bad_sf_stack", at = int.header }
    return
  end
  report.metadata = { at = int.stack, layout = int.layout }
  int.stack, int.count = int.stack + int.layout.bytes, 1
end

local is_report

-- Refuses a report about a report, unless it is about a drop or a queue. If its reporter adds something, it stays without INT and IOAM.
local function refuse_nested(report)
  local walk = report.walk
  local nested = walk.nested
  if report.problem or not nested or report.flags.drop or report.flags.queue then return end
  if not is_report(walk.s:sub(nested.from + 1, nested.fin)) then return end
  walk.int, walk.ioam, walk.destination = nil, nil, nil
  if W.stands_alone(report, walk) then
    report.int_refused = "nested"
  else
    report.problem = { refused = "nested", at = nested.at }
  end
end

-- Reads the packet inside a report. `first`: "ethernet", "ipv4", "ipv6". What was found stays, refused or not.
local function read_inside(report, s, from, fin, first, seek)
  local w = new_walk(s, fin, "report", seek)
  w.left_out = report.left_out ~= nil
  report.walk, report.packet = w, { from = from, fin = fin, first = first }
  local problem = cause(w, guarded(function()
    if first == "ethernet" then return W.ethernet(w, from) end
    return W.ethertype(w, from, first == "ipv4" and IP4 or IP6)
  end))
  finish_flow(w)
  -- A host may have written the option. It does not hide the INT behind it.
  report.problem = report.problem or problem or not w.int and w.option_refused or nil
  local is_postcard = report.ds_id == 0x5043 and report.metadata and not find_item(report.metadata.layout, "node")
  if not report.problem and w.is_traced_by_hop and w.int and w.int.count > 0 and not is_postcard then
    -- The network wrote one of the two paths, and a host may have written the other.
    w.beside_trace, w.int = { refused = "int_beside_trace", at = w.int.header }, nil
  end
  refuse_unmarked(report, w)
  split_own(report)
  problem = report.problem
  -- A host may use the marks of INT. It hides neither IOAM nor what the reporter states.
  if problem and seek and problem.refused ~= "int_not_marked" and not report.left_out then
    report.problem, report.left_out = nil, problem
    read_inside(report, s, from, fin, first, false)
    if report.problem == problem then report.walk = w end
    return
  end
  local left_out = w.beside_trace or report.left_out or w.option_refused or w.ioam_refused or w.ioam_cut
  if left_out and not problem then
    if not W.stands_alone(report, w) then
      report.problem = left_out
      return
    end
    report.int_refused = left_out.refused
  end
  refuse_nested(report)
end

local function drop_reason(w, layout, at)
  local item = find_item(layout, "drop")
  if not item then return nil end
  if all_ones(w, at + item[2], 4) then return { at = at + item[2] + 1 } end
  return { at = at + item[2] + 1, value = u8(w, at + item[2] + 1) }
end

-- Recognition. A block of its own, because a chunk of Lua has at most 200 local variables.
local refuse_other, refuse_other_20
do
  -- EtherTypes in use in networks that have telemetry.
  local ETHERTYPES = {}
  W.ETHERTYPES = ETHERTYPES
  for _, ethertype in ipairs({ 0x0800, 0x86dd, 0x8100, 0x88a8, 0x9100, 0x9200, 0x8847, 0x8848, 0x6558, 0x0806, 0x8035,
    0x22ea, 0x22f0, 0x22f3, 0x8863, 0x8864, 0x8809, 0x888e, 0x8892, 0x88a4, 0x88b5, 0x88b6, 0x88b7, 0x88b8, 0x88b9, 0x88ba,
    0x88ca, 0x88cc, 0x88e5, 0x88e7, 0x88f5, 0x88f6, 0x88f7, 0x88fb, 0x8902, 0x8906, 0x8914, 0x8915, 0x892f, 0x894f, 0x9000 }) do
    ETHERTYPES[ethertype] = true
  end

  local ACCESS_POINTS = { [0xaaaa] = true, [0x4242] = true, [0xfefe] = true, [0xf0f0] = true, [0xe0e0] = true }

  -- Whether a frame has a length of IEEE 802.3 instead of an EtherType, and SNAP, a BPDU, IS-IS, NetBIOS or IPX behind it.
  local function is_llc(w, packet)
    if packet.first ~= "ethernet" or packet.from + 16 > packet.fin then return false end
    return u16(w, packet.from + 12) <= 1500 and ACCESS_POINTS[u16(w, packet.from + 14)] or false
  end

  -- Whether the packet begins with a header that can be recognised, although no IP header of it could be read.
  local function is_known(w, packet)
    if not packet then return false end
    if packet.first == "ethernet" then
      return packet.from + 14 <= packet.fin and ETHERTYPES[u16(w, packet.from + 12)] or false
    end
    return packet.from < packet.fin and bits(u8(w, packet.from), 4, 4) == (packet.first == "ipv4" and 4 or 6)
  end

  -- Whether the packet ends inside its first header.
  local function is_cut(w, packet)
    local len = packet.fin - packet.from
    local is_header = packet.first == "ethernet" or len == 0 or is_known(w, packet)
    return len < ({ ethernet = 14, ipv4 = 20, ipv6 = 40 })[packet.first] and is_header
  end

  -- Whether the packet may be one. A packet may have been dropped because of its addresses.
  local function is_packet(w, packet, dropped, measured)
    if packet.first ~= "ethernet" then return is_known(w, packet) or (dropped and measured) end
    if dropped then return packet.from + 14 <= packet.fin end
    if packet.from + 12 > packet.fin then return false end
    return u8(w, packet.from + 6) % 2 == 0 and not (u16(w, packet.from + 6) == 0 and u32(w, packet.from + 8) == 0)
  end

  -- Whether the bytes of a DNS message from `behind` on, which follow its question, can hold the records that its header counts.
  local function holds_records(w, at, behind)
    return (u16(w, at + 6) + u16(w, at + 8) + u16(w, at + 10)) * 11 <= w.fin - behind
  end

  -- Whether this is a DNS message with one question; one for the root only with EDNS.
  local function is_dns(w, at)
    if u16(w, at + 4) ~= 1 then return false end
    if u8(w, at + 12) == 0 then
      return u32(w, at + 6) == 0 and u16(w, at + 10) == 1 and u24(w, at + 17) == 41 and holds_records(w, at, at + 17)
    end
    local name = at + 12
    while name < at + 12 + 255 do
      local label = u8(w, name)
      if not label or label >= 64 then return false end
      if label == 0 then
        local class = u16(w, name + 3)
        class = class and class % 0x8000
        local is_class = class == 1 or class == 3 or class == 4 or class == 254 or class == 255
        return is_class and holds_records(w, at, name + 5)
      end
      name = name + 1 + label
    end
    return false
  end

  -- Whether this is a message of RADIUS: its attributes end where its length says, and only zeros are behind it, at most 64.
  local function is_radius(w, at)
    local len = u16(w, at + 2)
    if not len or len < 20 or at + len > w.fin or w.fin - at - len > 64 then return false end
    if not w.s:find("^%z*$", at + len + 1) then return false end
    local attribute, fin = at + 20, at + len
    while attribute < fin do
      local size = attribute + 2 <= fin and u8(w, attribute + 1)
      if not size or size < 2 then return false end
      attribute = attribute + size
    end
    return attribute == fin
  end

  -- Whether this is a message of NTP version 2: its length, a precision below a second, and a transmit time after 1968.
  local function is_ntp(w, at)
    local len = w.fin - at
    if not (len == 48 or len == 60 or len == 68 or len == 72) then return false end
    local mode = u8(w, at) % 8
    return (mode == 4 or mode == 5) and u8(w, at + 1) <= 16 and u8(w, at + 3) >= 0xe0 and u8(w, at + 40) >= 0x80
  end

  local function flagged(report)
    local flags = report.flags
    return flags.drop or flags.queue or flags.flow or flags.intermediate
  end

  -- Whether what was read in the packet does not suffice: neither INT, nor a flow announced by an EtherType.
  local function is_doubtful(report)
    local walk, packet = report.walk, report.packet
    local problem = report.problem and report.problem.refused
    if (problem and problem ~= "nested") or (walk and walk.int) then return false end
    return not (walk and walk.flow) or packet.first ~= "ethernet"
  end

  -- Refuses a doubtful report 0.5 or 1.0 in which nothing shows that it is one.
  function refuse_other(report, w, reserved, padding)
    if not is_doubtful(report) then return end
    local packet, is_05 = report.packet, report.version == "0.5"
    local is_one = packet.first == "ethernet" and is_known(w, packet)
    local other = is_dns(w, report.at)
    if is_05 then other = other or is_radius(w, report.at) else other = other or is_ntp(w, report.at) end
    if not is_one and padding == 0 and not other then
      local has_node = not is_05 or report.head.extra > 0
      is_one = report.walk.flow or is_llc(w, packet) or
        (has_node and (is_cut(w, packet) or is_packet(w, packet, report.flags.drop, report.metadata)))
    end
    if not (flagged(report) and reserved == 0 and is_one) then
      report.problem = { refused = "not_a_report", at = report.at }
    end
  end

  -- The end of an individual report 2.0, or nothing if its length contradicts its type, or the bytes.
  local function fin_20(w, at)
    local length = u8(w, at + 1)
    if not length or at + 4 > w.fin or (floor(u8(w, at) / 16) == 1 and length < 2) then return nil end
    if length == 255 then return w.fin - at - 4 >= 1020 and w.fin or nil end
    local fin = at + 4 + length * 4
    return fin <= w.fin and fin or nil
  end

  -- Whether reports follow one another up to the end of the datagram, by their lengths.
  local function is_whole(w, at)
    while at and at < w.fin do at = fin_20(w, at) end
    return at == w.fin
  end

  -- The same for an individual report 2.0. One whose length is certain is skipped: what a host has sent does not hide the reports
  -- behind it.
  function refuse_other_20(report, w)
    if not is_doubtful(report) then return end
    local walk, packet = report.walk, report.packet
    local has_main = report.type == 1 and (flagged(report) or u8(w, report.at + 2) ~= 0)
    local clear = u8(w, report.at + 3) % 16 == 0
    local has_contents = report.inner[2] > report.inner[1] and not report.partial and flagged(report)
    local announced = report.metadata or (flagged(report) and clear)
    local is_one
    if report.inner_type == 0 then
      is_one = has_main
    elseif not packet then
      is_one = clear and (has_main or has_contents)
    elseif packet.first == "ethernet" then
      is_one = report.metadata or (announced and (is_known(w, packet) or is_llc(w, packet)))
    else
      is_one = walk.flow and (report.metadata or clear) or announced and is_known(w, packet)
    end
    if is_one then return end
    if packet and not report.partial and is_whole(w, report.fin) then
      local is_packet = report.metadata
      if packet.first == "ethernet" then is_packet = packet.from + 14 <= packet.fin end
      if flagged(report) and clear and is_packet then return end
      report.is_skipped = true
    end
    report.problem = { refused = "not_a_report", at = report.at }
  end
end

-- Annotations that depend on the whole report, and its path.
local function finish(report, w)
  if report.drop and report.drop.value and not report.flags.drop then report.odd_drop = true end
  local path = {}
  -- A postcard that declares itself is about its reporter alone.
  local is_postcard = report.ds_id == 0x5043 and report.metadata and not find_item(report.metadata.layout, "node")
  local walk = not is_postcard and report.walk
  local newest
  -- Nor is one about an event at one node about the nodes of IOAM, which any host can write.
  local flags = report.flags or {}
  local is_local = (flags.drop or flags.queue) and not flags.flow
  local ioam = walk and walk.ioam and not walk.ioam.is_export and not is_local and walk.ioam
  local int = walk and walk.int
  local is_empty_int = int and int.count == 0 and not int.sf and not (int.mode == "mx" and report.metadata)
  if is_empty_int and ioam and #ioam.nodes > 0 then
    int = nil -- The trace gives the path.
  end
  if walk and walk.beside_trace then ioam = nil end
  if int then
    for i = int.count - 1, 0, -1 do
      path[#path + 1] = node_of(walk, int.layout, int.stack + i * int.layout.bytes) or false
    end
    newest = path[#path]
  elseif ioam and has_node_ids(ioam) then
    for i = #ioam.nodes, 1, -1 do path[#path + 1] = ioam_node_id(walk, ioam, ioam.nodes[i]) or false end
    newest = path[#path]
  end
  -- With SF-INT the reporter's own record is of the carrying packet; the carried record may be of another packet.
  local sf = walk and walk.int and walk.int.sf
  if report.metadata and not (sf and not sf.one_packet) then
    local id = report.node_id
    if find_item(report.metadata.layout, "node") then id = node_of(w, report.metadata.layout, report.metadata.at) end
    report.merged = report.node_id and newest == report.node_id
    if not report.merged then path[#path + 1] = id or false end
  end
  report.path = path
end

local function read_10(w, s, at)
  local head, problem = head_10(w, at)
  local report = { version = "1.0", at = at, fin = w.fin, ts_at = at + 12 }
  if not head then
    report.problem = { refused = problem, at = at }
    return report
  end
  local dqf = C.dialect == "onos" and bits(head.word, 12, 3) or bits(head.word, 6, 3)
  report.head = head
  report.flags = { drop = dqf >= 4, queue = bits(dqf, 1, 1) == 1, flow = dqf % 2 == 1 }
  report.node_id = u32(w, at + 4)
  if report.node_id == ONES then report.node_id = nil end
  if head.metadata ~= 0 then
    local layout = layout_report_10(head.metadata)
    report.metadata = { at = at + 16, layout = layout }
    report.drop = drop_reason(w, layout, at + 16)
  end
  read_inside(report, s, at + head.len, w.fin, ({ [0] = "ethernet", "ipv4", "ipv6" })[head.following], true)
  refuse_other(report, w, C.dialect == "onos" and bits(head.word, 6, 6) or bits(head.word, 9, 6), 0)
  finish(report, w)
  return report
end

local function read_05(w, s, at)
  local head, problem = head_05(w, at)
  local report = { version = "0.5", at = at, fin = w.fin, ts_at = at + 8 }
  if not head then
    report.problem = { refused = problem, at = at }
    return report
  end
  local dqf = bits(head.word, 21, 3)
  report.head = head
  report.flags = { drop = dqf >= 4, queue = bits(dqf, 1, 1) == 1, flow = dqf % 2 == 1 }
  local extra = at + 12
  local node_at = head.kind == 3 and extra + 4 or head.extra >= 4 and extra
  report.node_at = node_at
  report.node_id = node_at and u32(w, node_at)
  if report.node_id == ONES then report.node_id = nil end
  if head.kind == 1 then
    local lacks_egress = C.drop_zero_unknown and u16(w, extra + 6) == 0 and u8(w, extra + 8) == 0
    report.metadata = { at = extra, layout = DROP_05, lacks_egress = lacks_egress }
    report.drop = drop_reason(w, DROP_05, extra)
  elseif head.kind == 2 then
    report.metadata = { at = extra, layout = LOCAL_05, from_stamps = true }
  elseif head.kind == 3 then
    report.gap = extra
  end
  read_inside(report, s, extra + head.extra, w.fin, head.kind >= 3 and "ipv4" or "ethernet", true)
  -- The padding of a drop header is reserved, too.
  refuse_other(report, w, bits(head.word, 6, 15), head.kind == 1 and u16(w, extra + 10) or 0)
  finish(report, w)
  return report
end

local function read_tlvs(report, w, s, at, fin)
  report.tlvs = {}
  while at < fin do
    local words = at + 4 <= fin and u8(w, at + 1)
    if not words or at + 4 + words * 4 > fin then
      report.partial = at
      return
    end
    local tlv = { at = at, kind = bits(u8(w, at), 4, 4), fin = at + 4 + words * 4 }
    report.tlvs[#report.tlvs + 1] = tlv
    local first = ({ "ethernet", "ipv4", "ipv6" })[tlv.kind]
    if first and not report.walk then read_inside(report, s, at + 4, tlv.fin, first, report.flags.flow) end
    at = tlv.fin
  end
end

-- The compact form of SF-INT: header and record without a shim.
local function read_compact(report, s, at, fin)
  local w = new_walk(s, fin, "report", true)
  report.walk = w
  report.problem = report.problem or guarded(function()
    if at >= fin then refuse("bad_int_length", at) end
    if bits(u8(w, at), 4, 4) ~= 2 then refuse("bad_int_version", at) end
    W.read_2(w, at, fin, "md", 1)
    w.place = { encapsulation = "report", found_by = "report", start = at, header = at, stack = at + 12, fin = fin,
      original = {} }
  end)
end

-- One individual report of a group, of exactly its bytes.
local function read_20(w, s, at, fin, group)
  local types, md_length, byte3 = u8(w, at), u8(w, at + 2), u8(w, at + 3)
  local report = { version = "2.0", at = at, fin = fin, node_id = group.node_id, in_group = true }
  report.type, report.inner_type = floor(types / 16), types % 16
  report.flags = {
    drop = bits(byte3, 7, 1) == 1, queue = bits(byte3, 6, 1) == 1, flow = bits(byte3, 5, 1) == 1,
    intermediate = bits(byte3, 4, 1) == 1,
  }
  local inner = at + 4
  local function refuse_report(name)
    report.problem = { refused = name, at = at }
    return report
  end
  if report.type > 1 then return refuse_report("undefined_report_type") end
  if report.inner_type > 5 then return refuse_report("undefined_inner_type") end
  if report.type == 1 then
    local metadata = at + 12
    inner = metadata + md_length * 4
    if inner > fin then return refuse_report("bad_metadata_length") end
    local md_bits, ds_id, ds_bits = u16(w, at + 4), u16(w, at + 6), u16(w, at + 8)
    local domain = metadata + words_2(md_bits) * 4
    report.main = at + 4
    report.domain = { domain, inner }
    if domain > inner or (ds_id == 0 and inner > domain) then return refuse_report("bad_metadata_length") end
    report.ds_id = ds_id
    if ds_id == 0x5043 and ds_bits >= 0x8000 and inner >= domain + 4 and not all_ones(w, domain, 4) then
      report.flow_id_at = domain
    end
    -- Bit 0 and bits 9 to 14 are no metadata.
    if bits(md_bits, 7, 8) ~= 0 or md_bits % 2 == 1 then
      local layout = build(md_bits, REPORT_2)
      report.metadata = { at = metadata, layout = layout }
      report.drop = drop_reason(w, layout, metadata)
    end
  end
  report.inner = { inner, fin }
  if report.inner_type == 0 and inner < fin then return refuse_report("leftover_words") end
  if report.inner_type >= 3 and inner == fin then return refuse_report("bad_report_length") end
  if report.inner_type == 1 then
    read_tlvs(report, w, s, inner, fin)
  elseif report.inner_type == 2 and report.ds_id == 0x5346 and report.flags.flow then
    read_compact(report, s, inner, fin)
  elseif report.inner_type >= 3 then
    read_inside(report, s, inner, fin, ({ [3] = "ethernet", [4] = "ipv4", [5] = "ipv6" })[report.inner_type],
      report.flags.flow)
  end
  refuse_other_20(report, w)
  finish(report, w)
  return report
end

-- Report 2.0 of the p4-int family: its lengths are 0, and it is one report to the end of the datagram. Nil: it is not.
local function read_length_zero(w, s)
  if C.dialect ~= "strict" and C.dialect ~= "p4int" or w.fin < 34 then return nil end
  local version, types = floor(u8(w, 0) / 16), u8(w, 8)
  local inner_type = types % 16
  if floor(types / 16) ~= 1 or (inner_type ~= 3 and inner_type ~= 4) then return nil end
  if version ~= 2 and not (version == 1 and inner_type == 4) then return nil end
  if u16(w, 9) ~= 0 or u32(w, 12) ~= 0 or u32(w, 16) ~= 0 then return nil end
  local at, tags = 34, 0
  while TAGS[u16(w, at - 2)] and tags < 2 do
    at, tags = at + 4, tags + 1
    if not u16(w, at - 2) then return nil end
  end
  local ethertype, first = u16(w, at - 2), u8(w, at)
  if not first then return nil end
  local v6, header, proto
  if ethertype == IP4 and floor(first / 16) == 4 and first % 16 >= 5 then
    if not u16(w, at + 6) or u16(w, at + 6) % 0x2000 ~= 0 then return nil end
    v6, header, proto = false, first % 16 * 4, u8(w, at + 9)
  elseif ethertype == IP6 and floor(first / 16) == 6 then
    v6, header, proto = true, 40, u8(w, at + 6)
  else
    return nil
  end
  local l4 = at + header
  local shim = proto == 17 and l4 + 8 or proto == 6 and l4 + 20
  if not shim or shim + 16 > w.fin then return nil end
  local kind, npt = floor(u8(w, shim) / 16), bits(u8(w, shim), 2, 2)
  local head = shim + 4
  local fin = head + u8(w, shim + 1) * 4
  if (kind ~= 1 and kind ~= 3) or npt == 3 or floor(u8(w, head) / 16) ~= 2 or fin < head + 12 or fin > w.fin then return nil end
  local byte3 = u8(w, 11)
  local report = { version = "2.0", at = 8, fin = w.fin, node_id = u32(w, 4), in_group = true, type = 1,
    inner_type = inner_type, main = 12, domain = { 20, 20 }, ds_id = 0, inner = { 20, w.fin } }
  if report.node_id == ONES then report.node_id = nil end
  report.flags = {
    drop = bits(byte3, 7, 1) == 1, queue = bits(byte3, 6, 1) == 1, flow = bits(byte3, 5, 1) == 1,
    intermediate = bits(byte3, 4, 1) == 1,
  }
  local walk = new_walk(s, w.fin, "report", false)
  local sport, dport = ports_at(w, l4)
  if npt == 1 then dport = u16(w, shim + 2) end
  if npt == 2 then
    proto = u8(w, shim + 3)
    sport, dport = nil, nil
    if proto == 6 or proto == 17 then sport, dport = ports_at(w, fin) end
  end
  walk.flow = flow_of({ at = at, v6 = v6 }, at, sport, dport, proto)
  trail(walk, "shim2", shim, 4)
  local hop_ml, bitmap = u8(w, head + 2) % 32, u16(w, head + 4)
  local problem = guarded(function()
    if hop_ml > 0 then
      if hop_ml ~= words_2(bitmap) then refuse("bad_report_length", 8) end
      W.read_2(walk, head, fin, "md", 0)
      if walk.int.source_only[2] > walk.int.source_only[1] then refuse("bad_report_length", 8) end
    else
      if kind ~= 3 then refuse("bad_report_length", 8) end
      W.read_2(walk, head, head + 12, "mx", 0)
      if fin > head + 12 then
        local layout = layout_2(bitmap, words_2(bitmap), false, head)
        if fin - head - 12 ~= layout.bytes then refuse("bad_report_length", 8) end
        report.metadata = { at = head + 12, layout = layout }
      end
    end
  end)
  if problem then return nil end
  walk.place = { encapsulation = proto == 6 and "tcp" or "udp", found_by = "dscp", ip = at, v6 = v6, l4 = l4, start = shim,
    header = head, stack = head + 12, fin = fin, original = {} }
  report.walk, report.packet = walk, { from = 20, fin = w.fin, first = "ethernet" }
  finish(report, w)
  return report
end

-- Refusals after which nothing behind a report can be read.
local FRAMING = { bad_metadata_length = true, leftover_words = true, bad_report_length = true, not_a_report = true }

-- A datagram: version, group (2.0), reports in order. `problem` of the datagram itself is a last, empty report.
local function read_datagram(s)
  local w = new_walk(s, #s, "report", false)
  local version, problem = version_of(w, 0)
  if not version then return { reports = { { at = 0, fin = w.fin, problem = { refused = problem, at = 0 } } } } end
  if version == "1.0" then
    local report = read_10(w, s, 0)
    local other = report.problem and report.problem.refused == "bad_length" and read_length_zero(w, s)
    if other then
      local group = { node_id = other.node_id }
      return { version = "2.0", group = group, reports = { other } }
    end
    return { version = version, reports = { report } }
  end
  if version == "0.5" then return { version = version, reports = { read_05(w, s, 0) } } end
  local datagram = { version = version, reports = {} }
  local function refused(name, at)
    datagram.reports[#datagram.reports + 1] =
      { version = version, at = at, fin = w.fin, problem = { refused = name, at = at } }
    return datagram
  end
  if w.fin < 8 then return refused("truncated", 0) end
  local group = { node_id = u32(w, 4) }
  if group.node_id == ONES then group.node_id = nil end
  datagram.group = group
  if w.fin == 8 then return refused("empty_group", 8) end
  local at = 8
  while at < w.fin do
    if at + 4 > w.fin then return refused("truncated", at) end
    local length = u8(w, at + 1)
    local fin = at + 4 + length * 4
    if floor(u8(w, at) / 16) == 1 and length < 2 then
      local other = at == 8 and read_length_zero(w, s)
      if not other then return refused("bad_report_length", at) end
      datagram.reports[1] = other
      return datagram
    end
    if length == 255 then
      if w.fin - at - 4 < 1020 then return refused("bad_length", at) end
      fin = w.fin
    elseif fin > w.fin then
      return refused("truncated", at)
    end
    local report = read_20(w, s, at, fin, group)
    datagram.reports[#datagram.reports + 1] = report
    at = fin
    if report.problem and FRAMING[report.problem.refused] and not report.is_skipped then break end
    if report.partial and at < w.fin then return refused("bad_report_length", at) end
  end
  return datagram
end

-- Refusals of bytes that are not known to be a report at all.
local OF_FRAMING = { truncated = true, unknown_version = true, empty_group = true, bad_length = true, bad_next_protocol = true,
  leftover_words = true, bad_report_length = true, not_a_report = true, sflow = true, netflow_v5 = true, netflow_v9 = true,
  ipfix = true }

-- Whether a report 2.0 that was cut has a readable flow.
local function is_cut_report(s)
  if #s < 12 then return false end
  local report
  guarded(function() report = read_20(new_walk(s, #s, "report", false), s, 8, #s, {}) end)
  return report ~= nil and report.walk ~= nil and report.walk.flow ~= nil
end

-- Whether a UDP payload inside a report, which may be cut, is one of reports, by its first report of a defined type.
is_report = function(s)
  local is_port = C.is_report_port
  -- A report inside it does not count: its packets are read as any others.
  C.is_report_port = function() return false end
  local datagram = read_datagram(s)
  local is_one = false
  for _, report in ipairs(datagram.reports) do
    local refused = report.problem and report.problem.refused
    if refused ~= "undefined_report_type" and refused ~= "undefined_inner_type" and not report.is_skipped then
      local is_cut = refused == "truncated" and report.at == 8 and datagram.version == "2.0"
      is_one = not OF_FRAMING[refused or ""] or (is_cut and is_cut_report(s))
      break
    end
  end
  C.is_report_port = is_port
  return is_one
end

---------------------------------------------------------------------------------------------------------------------
-- Showing. Offsets of the walk are offsets of the tvb.

-- Bytes [from, to) of the tvb, as far as they are present; the range may be empty.
local function range(tvb, from, to)
  local len = tvb:len()
  if from > len then from = len end
  if to > len then to = len end
  return tvb(from, math.max(to - from, 0))
end

-- Adds field `key` from the bytes at `at`; with `value` that one.
local function add(tree, key, tvb, at, len, value)
  if at + len > tvb:len() then return nil end
  if value ~= nil then return tree:add(F[key], tvb(at, len), value) end
  return tree:add(F[key], tvb(at, len))
end
local function generated(item)
  if item then item:set_generated() end
  return item
end

local function refusal(tree, tvb, problem)
  local at = math.min(problem.at or 0, tvb:len())
  generated(tree:add(F.refused, range(tvb, at, at + 4), problem.refused))
  tree:add_proto_expert_info(X.refused,
    "Refused (" .. problem.refused .. "): " .. (REFUSALS[problem.refused] or "contradicts itself"))
end

local function anomaly(tree, tvb, name, text)
  generated(tree:add(F.annotation, range(tvb, 0, 0), name))
  tree:add_proto_expert_info(X.anomaly, text)
end

local PROTOCOLS = { [1] = "ICMP", [6] = "TCP", [17] = "UDP", [47] = "GRE", [58] = "ICMPv6", [132] = "SCTP" }

local function address(tvb, flow, from)
  if flow.v6 then return "[" .. tostring(tvb(flow.ip + (from and 8 or 24), 16):ipv6()) .. "]" end
  return tostring(tvb(flow.ip + (from and 12 or 16), 4):ipv4())
end

local function flow_text(tvb, flow)
  local function port(p) return p and (":" .. p) or "" end
  return address(tvb, flow, true) .. port(flow.sport) .. " → " .. address(tvb, flow, false) .. port(flow.dport) ..
    " " .. (PROTOCOLS[flow.proto] or ("protocol " .. flow.proto))
end

local function show_flow(tree, tvb, which, flow)
  local size = flow.v6 and 40 or 20
  local sub = generated(tree:add(F[which], tvb(flow.ip, size)))
  sub:set_text((which == "flow" and "Flow: " or "Tunnel: ") .. flow_text(tvb, flow))
  if flow.v6 then
    generated(add(sub, which .. "_src6", tvb, flow.ip + 8, 16))
    generated(add(sub, which .. "_dst6", tvb, flow.ip + 24, 16))
  else
    generated(add(sub, which .. "_src", tvb, flow.ip + 12, 4))
    generated(add(sub, which .. "_dst", tvb, flow.ip + 16, 4))
  end
  if flow.sport then generated(add(sub, which .. "_sport", tvb, flow.at, 2, flow.sport)) end
  if flow.dport then generated(add(sub, which .. "_dport", tvb, flow.at + 2, 2, flow.dport)) end
  generated(sub:add(F[which .. "_proto"], tvb(flow.ip + (flow.v6 and 6 or 9), 1), flow.proto))
end

-- Items of a record ---------------------------------------------------------------------------------------------

local SHOW = {}

-- The item's value from its bytes, or that it is not available (all-ones of the item's full size).
local function value(h, name, at, len, whole)
  if whole then
    local item = generated(h.tree:add(F.unavailable, h.tvb(at, len), name))
    item:set_text(name .. ": unavailable")
    return nil
  end
  return add(h.tree, h.key .. "." .. name, h.tvb, at, len)
end
local function say(h, text) h.text[#h.text + 1] = text end
local function stamp(h, name, at, len)
  local item = value(h, name, at, len, all_ones(h.w, at, len))
  if item then item:append_text(C.unit) end
end
local function pair24(h, id, amount, at)
  local whole = all_ones(h.w, at, 4)
  value(h, id, at, 1, whole)
  value(h, amount, at + 1, 3, whole)
  if not whole then say(h, (id:gsub("_id", ""):gsub("_", " ")) .. " " .. u8(h.w, at) .. "/" .. u24(h.w, at + 1)) end
end

function SHOW.node(h, at) value(h, "node_id", at, 4, all_ones(h.w, at, 4)) end
function SHOW.ports(h, at)
  value(h, "ingress_if", at, 2, all_ones(h.w, at, 2))
  value(h, "egress_if", at + 2, 2, all_ones(h.w, at + 2, 2) or h.lacks_egress)
  say(h, "interfaces " .. u16(h.w, at) .. " → " .. (h.lacks_egress and "?" or u16(h.w, at + 2)))
end
function SHOW.latency(h, at)
  stamp(h, "latency", at, 4)
  if not all_ones(h.w, at, 4) then say(h, "latency " .. u32(h.w, at) .. C.unit) end
end
function SHOW.queue(h, at) pair24(h, "queue_id", "queue_occupancy", at) end
-- Whether the occupancy of a queue names the queue.
function W.has_queue(h)
  local item = find_item(h.layout, "queue")
  return item and not all_ones(h.w, h.at + item[2], 4)
end
function SHOW.congestion(h, at) pair24(h, W.has_queue(h) and "congestion_queue_id" or "queue_id", "queue_congestion", at) end
function SHOW.buffer(h, at) pair24(h, "buffer_id", "buffer_occupancy", at) end
function SHOW.ingress(h, at, size) stamp(h, "ingress_ts", at, size) end
function SHOW.egress(h, at, size) stamp(h, "egress_ts", at, size) end
function SHOW.l2(h, at, size)
  local half = floor(size / 2)
  value(h, "l2_ingress_if", at, half, all_ones(h.w, at, half))
  value(h, "l2_egress_if", at + half, half, all_ones(h.w, at + half, half))
end
function SHOW.tx(h, at)
  value(h, "tx_utilization", at, 4, all_ones(h.w, at, 4))
end
function SHOW.checksum(h, at) add(h.tree, h.key .. ".checksum_complement", h.tvb, at, 4) end
function SHOW.domain(h, at, size) add(h.tree, h.key .. ".domain", h.tvb, at, size) end
function SHOW.reserved(h, at, size) add(h.tree, h.key .. ".reserved", h.tvb, at, size) end
-- Queue id and drop reason; the reason is shown with the report.
function SHOW.drop(h, at)
  local whole = all_ones(h.w, at, 4) or h.lacks_egress
  if not find_item(h.layout, "queue") then
    value(h, "queue_id", at, 1, whole)
  elseif not whole then
    value(h, W.has_queue(h) and "drop_queue_id" or "queue_id", at, 1, false)
  end
end

-- Adds the items of the record at `at` to `tree`; returns its summary line.
local function show_record(tree, key, tvb, w, layout, at, lacks_egress)
  local h = { tree = tree, key = key, tvb = tvb, w = w, layout = layout, at = at, lacks_egress = lacks_egress, text = {} }
  for _, item in ipairs(layout) do SHOW[item[1]](h, at + item[2], item[3]) end
  return table.concat(h.text, ", ")
end

local function path_text(path)
  local ids = {}
  for i, id in ipairs(path) do ids[i] = id and tostring(id) or "?" end
  return table.concat(ids, ",")
end

-- INT ------------------------------------------------------------------------------------------------------------

local TRAIL = {}

function TRAIL.probe(tree, tvb, at) add(tree, "probe", tvb, at, 8) end
function TRAIL.geneve(tree, tvb, at)
  local sub = tree:add(F.option, tvb(at, 4))
  sub:set_text("Geneve option that holds INT")
end
function TRAIL.option(tree, tvb, at)
  local sub = tree:add(F.option, tvb(at, 2))
  sub:set_text("IPv6 option 0x3e that holds INT")
end
function TRAIL.shim2(tree, tvb, at)
  local sub = tree:add(F.shim, tvb(at, 4))
  add(sub, "s_type", tvb, at, 1)
  add(sub, "s_npt", tvb, at, 1)
  add(sub, "s_length", tvb, at + 1, 1)
  local npt = bits(tvb(at, 1):uint(), 2, 2)
  if npt == 0 then add(sub, "s_dscp", tvb, at + 3, 1) end
  if npt == 1 then add(sub, "s_port", tvb, at + 2, 2) end
  if npt == 2 then add(sub, "s_proto", tvb, at + 3, 1) end
end
function TRAIL.shim_gre(tree, tvb, at)
  local sub = tree:add(F.shim, tvb(at, 4))
  add(sub, "s_type", tvb, at, 1)
  add(sub, "s_length", tvb, at + 1, 1)
  add(sub, "s_next", tvb, at + 2, 2)
end
function TRAIL.shim_gpe(tree, tvb, at)
  local sub = tree:add(F.shim, tvb(at, 4))
  add(sub, "s_type", tvb, at, 1)
  add(sub, "s_length", tvb, at + 1, 1)
  add(sub, "s_next", tvb, at + 3, 1)
end
function TRAIL.shim1(tree, tvb, at)
  local sub = tree:add(F.shim, tvb(at, 4))
  add(sub, "s_type1", tvb, at, 1)
  add(sub, "s_length", tvb, at + 2, 1)
  sub:append_text(" (length counts the shim)")
  add(sub, "s_dscp", tvb, at + 3, 1)
end

local BITMAP_NAMES = {
  [0] = "node ID", "interfaces", "hop latency", "queue", "ingress ts", "egress ts", "level-2 interfaces",
  "TX utilization", "buffer", [15] = "checksum complement",
}
local function show_bitmap(sub, tvb, at)
  local item = add(sub, "h_bitmap", tvb, at, 2)
  local names = {}
  local bitmap = tvb(at, 2):uint()
  for k = 0, 15 do
    if bit_of(bitmap, k) then names[#names + 1] = BITMAP_NAMES[k] or ("bit " .. k) end
  end
  item:append_text(" (" .. table.concat(names, ", ") .. ")")
end

local function show_flags(sub, tvb, at, discard, exceeded, mtu)
  add(sub, "h_discard", tvb, at, 1, discard)
  if exceeded ~= nil then add(sub, "h_exceeded", tvb, at, 1, exceeded) end
  if mtu ~= nil then add(sub, "h_mtu", tvb, at, 2, mtu) end
  if exceeded then sub:add_proto_expert_info(X.flags, "The hop count was exhausted: the path is longer") end
  if mtu then sub:add_proto_expert_info(X.flags, "A hop could add nothing because of the MTU") end
end

function TRAIL.md2(tree, tvb, at)
  local sub = tree:add(F.header, tvb(at, 12))
  local first = tvb(at, 1):uint()
  add(sub, "h_ver", tvb, at, 1)
  show_flags(sub, tvb, at, bits(first, 3, 1) == 1, bits(first, 2, 1) == 1, bits(first, 1, 1) == 1)
  local is_sf = first % 2 == 1
  if is_sf then
    add(sub, "sf", tvb, at, 1)
    add(sub, "sf_urgent", tvb, at + 1, 1)
    add(sub, "sf_state", tvb, at + 1, 1)
  end
  add(sub, "h_hop_ml", tvb, at + 2, 1)
  add(sub, "h_remaining", tvb, at + 3, 1)
  show_bitmap(sub, tvb, at + 4)
  add(sub, is_sf and "sf_packet_id" or "h_ds_id", tvb, at + 6, 2)
  add(sub, "h_ds_instruction", tvb, at + 8, 2)
  add(sub, "h_ds_flags", tvb, at + 10, 2)
end
function TRAIL.mx2(tree, tvb, at)
  local sub = tree:add(F.header, tvb(at, 12))
  add(sub, "h_ver", tvb, at, 1)
  show_flags(sub, tvb, at, bits(tvb(at, 1):uint(), 3, 1) == 1)
  show_bitmap(sub, tvb, at + 4)
  add(sub, "h_ds_id", tvb, at + 6, 2)
  add(sub, "h_ds_instruction", tvb, at + 8, 2)
  add(sub, "h_ds_flags", tvb, at + 10, 2)
end
function TRAIL.md10(tree, tvb, at)
  local sub = tree:add(F.header, tvb(at, 8))
  local first, second = tvb(at, 1):uint(), tvb(at + 1, 1):uint()
  add(sub, "h_ver", tvb, at, 1)
  add(sub, "h_rep", tvb, at, 1)
  show_flags(sub, tvb, at, bits(first, 1, 1) == 1, first % 2 == 1, second >= 128)
  add(sub, "h_hop_ml", tvb, at + 2, 1)
  add(sub, "h_remaining", tvb, at + 3, 1)
  show_bitmap(sub, tvb, at + 4)
  add(sub, "h_reserved", tvb, at + 6, 2)
end
function TRAIL.md05(tree, tvb, at)
  local sub = tree:add(F.header, tvb(at, 8))
  local first = tvb(at, 1):uint()
  add(sub, "h_ver", tvb, at, 1)
  add(sub, "h_rep", tvb, at, 1)
  show_flags(sub, tvb, at, bits(first, 1, 1) == 1, first % 2 == 1)
  add(sub, "h_ins_cnt", tvb, at + 1, 1)
  add(sub, "h_max", tvb, at + 2, 1)
  add(sub, "h_total", tvb, at + 3, 1)
  show_bitmap(sub, tvb, at + 4)
end
function TRAIL.tail(tree, tvb, at)
  local sub = tree:add(F.tail, tvb(at, 4))
  add(sub, "t_proto", tvb, at, 1)
  add(sub, "t_port", tvb, at + 1, 2)
  add(sub, "t_dscp", tvb, at + 3, 1)
end

local function show_stack(tree, tvb, w)
  local int = w.int
  for i = 0, int.count - 1 do
    local at = int.stack + i * int.layout.bytes
    local sub = tree:add(F.hop, tvb(at, int.layout.bytes))
    local text = show_record(sub, "hop", tvb, w, int.layout, at)
    local id = node_of(w, int.layout, at)
    local newest = i == 0 and int.count > 1 and " (newest)" or ""
    sub:set_text("Hop " .. (int.count - i) .. newest .. ": node " .. (id or "?") .. (text ~= "" and ", " or "") .. text)
  end
  if int.source_only and int.source_only[2] > int.source_only[1] then
    add(tree, "i_source_only", tvb, int.source_only[1], int.source_only[2] - int.source_only[1])
  end
  if int.seq_at then add(tree, "i_seq", tvb, int.seq_at, 4) end
end

local function show_place(tree, tvb, w, zero)
  local place = w.place
  generated(tree:add(F.i_encapsulation, tvb(place.start, 0), place.encapsulation))
  generated(tree:add(F.i_recognised, tvb(place.start, 0), place.found_by))
  generated(tree:add(F.i_length, tvb(place.start, place.fin - place.start), place.fin - place.start))
  local offsets = { { "o_start", place.start }, { "o_header", place.header }, { "o_stack", place.stack },
    { "o_end", place.fin } }
  for _, each in ipairs(offsets) do generated(tree:add(F[each[1]], tvb(place.start, 0), each[2] - zero)) end
  local original = place.original
  if original.port or original.proto or original.dscp or original.tunnel_inserted then
    local sub = generated(tree:add(F.original, tvb(place.start, 0)))
    if original.port then generated(sub:add(F.p_port, tvb(place.start, 0), original.port)) end
    if original.proto then generated(sub:add(F.p_proto, tvb(place.start, 0), original.proto)) end
    if original.dscp then generated(sub:add(F.p_dscp, tvb(place.start, 0), original.dscp)) end
    if original.tunnel_inserted then generated(sub:add(F.p_tunnel, tvb(place.start, 0), true)) end
  end
end

-- The INT results of the walk, complete or up to a refusal. `zero`: offset of the packet.
local function show_int(tree, tvb, w, zero, problem)
  if #w.trail == 0 and not w.int then return nil end
  local from = w.place and w.place.start or w.trail[1] and w.trail[1].at or w.int.header
  local to = w.place and w.place.fin or w.fin
  local sub = tree:add(F.int, range(tvb, from, to))
  if w.int and not problem then
    local kind = w.int.sf and (w.int.sf.urgent and "SF-INT, urgent" or "SF-INT") or "INT " .. w.int.version
    sub:set_text(kind .. (w.int.mode == "mx" and " MX" or " MD") .. ", " .. w.int.count ..
      (w.int.count == 1 and " record" or " records"))
    generated(sub:add(F.i_version, range(tvb, from, from), w.int.version))
    generated(sub:add(F.i_mode, range(tvb, from, from), w.int.mode))
  else
    sub:set_text(problem and "INT, refused" or "INT for the destination, skipped")
  end
  if w.place and not problem then show_place(sub, tvb, w, zero) end
  local tail
  for _, step in ipairs(w.trail) do
    if step.kind == "tail" then
      tail = step
    elseif step.at + step.len <= math.min(tvb:len(), w.fin) then
      TRAIL[step.kind](sub, tvb, step.at)
    end
  end
  if w.int and not problem then show_stack(sub, tvb, w) end
  if tail and not problem then TRAIL.tail(sub, tvb, tail.at) end
  if w.destination then anomaly(sub, tvb, "destination", "INT for the destination is skipped") end
  if w.int and w.int.replica and not problem then
    anomaly(sub, tvb, "replica", "A node copied the packet: this is not the path of the flow")
  end
  return sub
end

-- IOAM -----------------------------------------------------------------------------------------------------------

local function show_ioam_node(tree, tvb, w, ioam, node, number)
  local sub = tree:add(F.ioam_hop, tvb(node.at, node.len))
  local h = { tree = sub, key = "ioam_hop", tvb = tvb, w = w, text = {} }
  local id, id_at, id_len = ioam_node_id(w, ioam, node)
  if id then
    sub:add(F["ioam_hop.node_id"], tvb(id_at, id_len), id)
  elseif ioam_bit(ioam.trace_type, 0) or ioam_bit(ioam.trace_type, 8) then
    value(h, "node_id", node.at, 4, true)
  end
  local at = node.at
  for k = 0, 11 do
    if ioam_bit(ioam.trace_type, k) then
      local len = (k >= 8 and k <= 10) and 8 or 4
      if k == 1 then SHOW.ports(h, at) end
      if k == 4 then
        local none = u8(w, at) >= 128
        local item = value(h, "latency", at, 4, none)
        if item then item:append_text(" ns") end
      end
      if k == 6 or k == 11 then
        local what = k == 6 and "queue" or "buffer"
        value(h, what .. "_id", at, 0, true)
        value(h, what .. "_occupancy", at, 4, all_ones(w, at, 4))
      end
      if k == 7 then
        if all_ones(w, at, 4) then value(h, "checksum_complement", at, 4, true) else SHOW.checksum(h, at) end
      end
      if k == 9 then SHOW.l2(h, at, 8) end
      at = at + len
    end
  end
  sub:set_text("IOAM node " .. number .. ": node " .. (id or "?") .. (h.text[1] and ", " or "") ..
    table.concat(h.text, ", "))
end

local function show_ioam(tree, tvb, w)
  local ioam = w.ioam
  local sub = tree:add(F.ioam, tvb(ioam.at, ioam.fin - ioam.at))
  sub:set_text(ioam.is_export and "IOAM direct export" or "IOAM trace, " .. #ioam.nodes .. " nodes")
  add(sub, "ioam_namespace", tvb, ioam.at, 2)
  add(sub, "ioam_type", tvb, ioam.at + 4, 3)
  if not ioam.is_export then generated(sub:add(F.ioam_nodes, tvb(ioam.at, 0), #ioam.nodes)) end
  if ioam.overflow then anomaly(sub, tvb, "incomplete", "the overflow flag: data of nodes on the path are missing") end
  if w.several_traces then anomaly(sub, tvb, "several_traces", "a host may have written the trace that gives the path") end
  if ioam.flow_at then add(sub, "ioam_flow_id", tvb, ioam.flow_at, 4) end
  if ioam.seq_at then add(sub, "ioam_seq", tvb, ioam.seq_at, 4) end
  for i, node in ipairs(ioam.nodes) do show_ioam_node(sub, tvb, w, ioam, node, #ioam.nodes - i + 1) end
end

-- Reports --------------------------------------------------------------------------------------------------------

local function show_header_flags(tree, tvb, at, len, flags)
  add(tree, "r_drop", tvb, at, len, flags.drop)
  add(tree, "r_queue", tvb, at, len, flags.queue)
  add(tree, "r_flow", tvb, at, len, flags.flow)
  if flags.intermediate ~= nil then add(tree, "r_intermediate", tvb, at, len, flags.intermediate) end
end

-- Node, subsystem and sequence number: of the datagram in 2.0, of the report before.
local function show_identity(tree, tvb, version, node_at)
  local last = version == "2.0" and 0 or 3
  tree:add(F.r_version, tvb(0, 1), version)
  if version == "2.0" then
    local word = tvb(0, 4):uint()
    tree:add(F.r_hw_id, tvb(0, 2), bits(word, 22, 6))
    tree:add(F.r_seq, tvb(1, 3), bits(word, 0, 22))
  else
    tree:add(F.r_hw_id, tvb(last, 1), tvb(last, 1):uint() % 64)
    local seq = version == "1.0" and 8 or 4
    add(tree, "r_seq", tvb, seq, 4)
  end
  if node_at then
    if tvb(node_at, 4):uint() == ONES then
      generated(tree:add(F.unavailable, tvb(node_at, 4), "node_id")):set_text("Node ID: unavailable")
    else
      add(tree, "r_node", tvb, node_at, 4)
    end
  end
end

local function show_gap(tree, tvb, at)
  local sub = tree:add(F.gap, tvb(at, 24))
  add(sub, "gap_source", tvb, at, 4)
  add(sub, "gap_sink", tvb, at + 4, 4)
  add(sub, "gap_ts", tvb, at + 12, 4)
  add(sub, "gap_seq", tvb, at + 16, 4)
  add(sub, "gap_count", tvb, at + 20, 4)
end

-- The metadata of the reporter, with what the header says of it beside the record.
local function show_metadata(tree, tvb, w, report)
  local metadata = report.metadata
  local sub = tree:add(F.metadata, tvb(metadata.at, metadata.layout.bytes))
  local h = { tree = sub, key = "metadata", tvb = tvb, w = w, text = {} }
  if not find_item(metadata.layout, "node") then
    local at = 4
    local item = value(h, "node_id", at, 4, report.node_id == nil)
    generated(item)
  end
  if report.ts_at then
    local item = value(h, "ingress_ts", report.ts_at, 4, all_ones(w, report.ts_at, 4))
    if item then generated(item:append_text(C.unit)) end
  end
  local text = show_record(sub, "metadata", tvb, w, metadata.layout, metadata.at, metadata.lacks_egress)
  if metadata.from_stamps then
    if all_ones(w, report.ts_at, 4) or all_ones(w, metadata.at + 12, 4) then
      value(h, "latency", metadata.at + 12, 0, true)
    else
      local latency = (u32(w, metadata.at + 12) - u32(w, report.ts_at)) % 4294967296
      local item = sub:add(F["metadata.latency"], tvb(metadata.at + 12, 4), latency)
      generated(item:append_text(C.unit))
      text = text .. ", latency " .. latency .. C.unit
    end
  end
  sub:set_text("The reporter's metadata: node " .. (report.node_id or "?") .. (text ~= "" and ", " or "") .. text)
end

local function show_drop(tree, tvb, report)
  local drop = report.drop
  if not drop then return end
  if drop.value then
    add(tree, "r_drop_reason", tvb, drop.at, 1)
  else
    generated(tree:add(F.unavailable, tvb(drop.at, 1), "drop_reason")):set_text("Drop reason: unavailable")
  end
end

local function show_tlvs(tree, tvb, report)
  for _, tlv in ipairs(report.tlvs) do
    local sub = tree:add(F.tlv, tvb(tlv.at, tlv.fin - tlv.at))
    add(sub, "tlv_type", tvb, tlv.at, 1)
    add(sub, "tlv_length", tvb, tlv.at + 1, 1)
    add(sub, "tlv_template", tvb, tlv.at + 2, 2)
    if tlv.fin > tlv.at + 4 then add(sub, "tlv_value", tvb, tlv.at + 4, tlv.fin - tlv.at - 4) end
  end
end

local hand_on

-- Header of an individual report of 2.0.
local function show_head_20(tree, tvb, report)
  local at = report.at
  add(tree, "r_type", tvb, at, 1)
  add(tree, "r_inner_type", tvb, at, 1)
  add(tree, "r_length", tvb, at + 1, 1)
  add(tree, "r_md_length", tvb, at + 2, 1)
  show_header_flags(tree, tvb, at + 3, 1, report.flags)
  if not report.main then return end
  add(tree, "r_bits", tvb, at + 4, 2)
  add(tree, "r_ds_id", tvb, at + 6, 2)
  add(tree, "r_ds_bits", tvb, at + 8, 2)
  add(tree, "r_ds_status", tvb, at + 10, 2)
  local domain = report.domain
  if domain[2] > domain[1] and not report.problem then
    add(tree, "r_domain", tvb, domain[1], domain[2] - domain[1])
  end
  if report.flow_id_at then add(tree, "r_flow_id", tvb, report.flow_id_at, 4) end
end

local function show_head_10(tree, tvb, report)
  if not report.head then return end
  add(tree, "r_header_words", tvb, 0, 1)
  tree:add(F.r_nproto, tvb(1, 1), report.head.following)
  tree:add(F.r_bits, tvb(1, 2), report.head.metadata)
  show_header_flags(tree, tvb, 2, 2, report.flags)
  local item = add(tree, "r_ts", tvb, report.ts_at, 4)
  if item then item:append_text(C.unit) end
end

local function show_head_05(tree, tvb, report)
  if not report.head then return end
  tree:add(F.r_nproto, tvb(0, 1), report.head.kind)
  show_header_flags(tree, tvb, 1, 1, report.flags)
  local item = add(tree, "r_ts", tvb, report.ts_at, 4)
  if item then item:append_text(C.unit) end
  if report.gap then show_gap(tree, tvb, report.gap) end
end

-- One report into `tree`; returns a line about it.
local function show_report(tree, tvb, pinfo, report, number)
  local w = new_walk(tvb:raw(), tvb:len(), "report", false)
  local sub = tree:add(F.report, range(tvb, report.at, report.fin))
  if report.version == "2.0" and report.type then show_head_20(sub, tvb, report) end
  if report.version == "1.0" then show_head_10(sub, tvb, report) end
  if report.version == "0.5" then show_head_05(sub, tvb, report) end
  local walk, problem = report.walk, report.problem
  show_drop(sub, tvb, report)
  if report.metadata then show_metadata(sub, tvb, w, report) end
  if report.tlvs then show_tlvs(sub, tvb, report) end
  local line = ""
  if walk then
    if walk.flow then
      show_flow(sub, tvb, "flow", walk.flow)
      line = flow_text(tvb, walk.flow)
    end
    if walk.tunnel then show_flow(sub, tvb, "tunnel", walk.tunnel) end
    show_int(sub, tvb, walk, report.packet and report.packet.from or report.at, problem)
    if walk.ioam and not problem then show_ioam(sub, tvb, walk) end
  end
  if problem then
    refusal(sub, tvb, problem)
    sub:set_text("Report " .. number .. ": refused, " .. problem.refused)
    return "refused: " .. problem.refused
  end
  generated(sub:add(F.path, range(tvb, report.at, report.at), path_text(report.path)))
  generated(sub:add(F.path_hops, range(tvb, report.at, report.at), #report.path))
  if report.int_refused then generated(sub:add(F.r_int_refused, range(tvb, report.at, report.at), report.int_refused)) end
  local tunnel_refused = walk and walk.tunnel_refused
  if tunnel_refused then generated(sub:add(F.r_tunnel_refused, range(tvb, report.at, report.at), tunnel_refused)) end
  if report.partial then anomaly(sub, tvb, "partial", "A TLV exceeds the report and is left out") end
  if report.odd_drop then anomaly(sub, tvb, "unflagged_drop_reason", "A drop reason without the drop flag") end
  if report.merged then anomaly(sub, tvb, "merged", "Header and top record are one hop: the header's items count") end
  if report.flags.drop then
    local reason = report.drop and report.drop.value
    sub:add_proto_expert_info(X.drop, "A watched packet was dropped" .. (reason and ", reason " .. reason or ""))
  end
  if #report.path > 0 then
    line = line .. (line ~= "" and ", " or "") .. "path " .. path_text(report.path):gsub(",", " → ")
  end
  sub:set_text("Report " .. number .. (line ~= "" and ": " or "") .. line)
  local names = {}
  for _, name in ipairs({ "drop", "queue", "flow" }) do
    if report.flags[name] then names[#names + 1] = name end
  end
  if report.packet and report.packet.fin > report.packet.from then
    hand_on(report, tvb, pinfo, sub)
  elseif report.inner and report.inner[2] > report.inner[1] and not report.tlvs and not walk then
    add(sub, "r_inner", tvb, report.inner[1], report.inner[2] - report.inner[1])
  end
  return table.concat(names, "+") .. (#names > 0 and line ~= "" and ", " or "") .. line
end

---------------------------------------------------------------------------------------------------------------------
-- The packet inside a report, given to Wireshark's own dissectors

local FIRST = { ethernet = "eth_withoutfcs", ipv4 = "ip", ipv6 = "ipv6" }
local depth = 0

local function be16(v) return string.char(floor(v / 256) % 256, v % 256) end
local function put(s, at, new) return s:sub(1, at) .. new .. s:sub(at + #new + 1) end

-- The packet from `from` on as it was before INT was inserted, if INT lies behind its own TCP or UDP header and not in a
-- tunnel.
local function without_int(w, from)
  local place = w.place
  if not place or w.tunnels > 0 or (place.encapsulation ~= "udp" and place.encapsulation ~= "tcp") then return nil end
  if place.fin > w.fin then return nil end
  local original, s, removed_from = place.original, w.s, place.start
  if place.found_by == "port" and original.proto and not original.port then removed_from = place.l4 end
  local removed = place.fin - removed_from
  s = s:sub(1, removed_from) .. s:sub(place.fin + 1, w.fin)
  local length_at = place.v6 and place.ip + 4 or place.ip + 2
  local length = u16(w, length_at)
  if length > removed then s = put(s, length_at, be16(length - removed)) end
  if original.proto then s = put(s, place.ip + (place.v6 and 6 or 9), string.char(original.proto)) end
  if removed_from > place.l4 then
    if original.port then s = put(s, place.l4 + 2, be16(original.port)) end
    local udp = place.encapsulation == "udp" and u16(w, place.l4 + 4)
    if udp and udp >= 8 + removed then s = put(s, place.l4 + 4, be16(udp - removed)) end
  end
  if original.dscp and original.dscp < 64 and not place.v6 then
    s = put(s, place.ip + 1, string.char(original.dscp * 4 + u8(w, place.ip + 1) % 4))
  end
  return s:sub(from + 1)
end

-- Packets in reports are truncated, which a dissector cannot state: Wireshark would show each of them as malformed. So
-- IP and UDP get the lengths that are present. Returns the bytes, and the original IP length if it changed.
local function fit_lengths(s, ip)
  local w = { s = s, fin = #s }
  local v6 = bits(u8(w, ip), 4, 4) == 6
  local there = #s - ip
  local total = v6 and 40 + u16(w, ip + 4) or u16(w, ip + 2)
  if total <= there then return s, nil end
  s = put(s, v6 and ip + 4 or ip + 2, be16(v6 and there - 40 or there))
  local l4 = ip + (v6 and 40 or u8(w, ip) % 16 * 4)
  local udp = u8(w, v6 and ip + 6 or ip + 9) == 17 and u16(w, l4 + 4)
  if udp and l4 + udp > #s then s = put(s, l4 + 4, be16(#s - l4)) end
  return s, total
end

-- The packet for Wireshark's dissectors: without INT, with its stated length; nil if it is truncated too early.
local function presentable(report)
  local walk, packet = report.walk, report.packet
  local bytes = without_int(walk, packet.from) or walk.s:sub(packet.from + 1, packet.fin)
  local outer = walk.tunnel or walk.flow
  if outer then return fit_lengths(bytes, outer.ip - packet.from) end
  if packet.first ~= "ethernet" then return nil end
  local ethertype = u16({ s = bytes, fin = #bytes }, 12)
  if not ethertype or ethertype == IP4 or ethertype == IP6 then return nil end
  return bytes, nil
end

hand_on = function(report, tvb, pinfo, tree)
  if not C.inner or depth > 0 then return end
  local packet = report.packet
  local bytes, length = presentable(report)
  if not bytes then
    add(tree, "r_inner", tvb, packet.from, packet.fin - packet.from)
    return
  end
  if length then generated(tree:add(F.r_packet_length, tvb(packet.from, packet.fin - packet.from), length)) end
  local ok, dissector = pcall(Dissector.get, FIRST[packet.first])
  if not ok or not dissector then return end
  -- The columns and addresses stay those of the report.
  local kept = { src = pinfo.src, dst = pinfo.dst, src_port = pinfo.src_port, dst_port = pinfo.dst_port }
  depth = depth + 1
  pcall(function()
    -- The original bytes if nothing was changed: Wireshark then shows the bytes of each field.
    local same = #bytes == packet.fin - packet.from and not length
    local inner = same and tvb(packet.from, #bytes):tvb() or ByteArray.new(bytes, true):tvb("Packet in the report")
    dissector:call(inner, pinfo, tree)
  end)
  depth = depth - 1
  for key, old in pairs(kept) do
    pcall(function() pinfo[key] = old end)
  end
end

---------------------------------------------------------------------------------------------------------------------
-- Dissectors

local handled -- the frame whose datagram was ours: it is not searched for INT

local function report_dissector(tvb, pinfo, tree)
  if depth > 0 then return 0 end
  handled = pinfo.number
  local datagram = read_datagram(tvb:raw())
  pinfo.cols.protocol = "INT report"
  local root = tree:add(P, tvb())
  local title = "Telemetry report"
  if datagram.version then
    local first = datagram.reports[1]
    local node_at
    if datagram.version == "2.0" then node_at = 4 end
    if datagram.version == "1.0" then node_at = 4 end
    if datagram.version == "0.5" then node_at = first.node_at end
    local enough = ({ ["2.0"] = 8, ["1.0"] = 16, ["0.5"] = 12 })[datagram.version]
    title = title .. " " .. datagram.version
    if tvb:len() >= enough then
      show_identity(root, tvb, datagram.version, node_at)
      local seq = datagram.version == "2.0" and tvb(1, 3):uint() % 0x400000 or
        datagram.version == "1.0" and tvb(8, 4):uint() or tvb(4, 4):uint()
      title = title .. (node_at and ", node " .. tvb(node_at, 4):uint() or "") .. ", seq " .. seq
    end
  end
  local lines = {}
  for i, report in ipairs(datagram.reports) do lines[i] = show_report(root, tvb, pinfo, report, i) end
  if #lines > 1 then title = title .. ", " .. #lines .. " reports" end
  root:set_text(title)
  pinfo.cols.protocol = "INT report"
  pinfo.cols.info = title .. (lines[1] and lines[1] ~= "" and ": " .. lines[1] or "")
  return tvb:len()
end
P.dissector = report_dissector

-- Aggregates -----------------------------------------------------------------------------------------------------

local A = Proto("hopwise_aggregate", "Postcard aggregate (hopwise)")

-- The packet fields of a postcard: wire-formats 4.2.
local function show_packet_fields(sub, tvb, w, at)
  local function item(key, offset, len, name, is_there)
    if is_there then
      add(sub, key, tvb, at + offset, len)
    else
      generated(sub:add(F.unavailable, tvb(at + offset, len), name)):set_text(name .. ": unavailable")
    end
  end
  item("c_in_if", 20, 2, "ingress_if", not all_ones(w, at + 20, 2))
  item("c_out_if", 22, 2, "egress_if", not all_ones(w, at + 22, 2))
  item("c_ttl", 24, 1, "hop_limit", u8(w, at + 25) >= 128)
  add(sub, "c_has_ttl", tvb, at + 25, 1)
  add(sub, "c_entered", tvb, at + 25, 1)
  add(sub, "c_left", tvb, at + 25, 1)
  item("c_digest", 28, 4, "digest", u32(w, at + 28) ~= 0)
end

local function show_postcard(tree, tvb, w, at, long)
  local sub = tree:add(F.postcard, tvb(at, long and 32 or 20))
  local function item(key, offset, len, name)
    if all_ones(w, at + offset, len) then
      generated(sub:add(F.unavailable, tvb(at + offset, len), name)):set_text(name .. ": unavailable")
    else
      return add(sub, key, tvb, at + offset, len)
    end
  end
  item("c_node", 0, 4, "node_id")
  item("c_flow", 4, 4, "flow_id")
  local ingress, egress = item("c_in", 8, 4, "ingress_ts"), item("c_out", 12, 4, "egress_ts")
  if ingress then ingress:append_text(C.unit) end
  if egress then egress:append_text(C.unit) end
  local text = "Postcard of node " .. u32(w, at)
  if ingress and egress then
    local latency = (u32(w, at + 12) - u32(w, at + 8)) % 4294967296
    generated(sub:add(F.c_latency, tvb(at + 8, 8), latency)):append_text(C.unit)
    text = text .. ", latency " .. latency .. C.unit
  end
  if all_ones(w, at + 16, 4) then
    generated(sub:add(F.unavailable, tvb(at + 16, 4), "queue_occupancy")):set_text("queue_occupancy: unavailable")
  else
    add(sub, "c_queue", tvb, at + 16, 1)
    add(sub, "c_length", tvb, at + 17, 3)
    text = text .. ", queue " .. u8(w, at + 16) .. "/" .. u24(w, at + 17)
  end
  if long then show_packet_fields(sub, tvb, w, at) end
  sub:set_text(text)
end

local METRICS = { "Hop latency", "Queue occupancy" }
local function show_summary(tree, tvb, w, at)
  local sub = tree:add(F.summary, tvb(at, 24))
  add(sub, "m_metric", tvb, at, 1)
  add(sub, "m_min", tvb, at + 4, 4)
  add(sub, "m_max", tvb, at + 8, 4)
  add(sub, "m_sum", tvb, at + 12, 8)
  add(sub, "m_count", tvb, at + 20, 4)
  local count = u32(w, at + 20)
  generated(sub:add(F.m_avg, tvb(at + 12, 12), tvb(at + 12, 8):uint64() / UInt64.new(count)))
  sub:set_text((METRICS[u8(w, at)] or "Metric " .. u8(w, at)) .. ": " .. u32(w, at + 4) .. " to " .. u32(w, at + 8) ..
    ", count " .. count)
end

-- The product of two 32-bit numbers in two halves, exact in any Lua.
local function product(a, b)
  local low, high = a % 65536 * b, floor(a / 65536) * b
  local sum = high % 65536 * 65536 + low
  return floor(high / 65536) + floor(sum / 4294967296), sum % 4294967296
end
local function at_most(high_a, low_a, high_b, low_b)
  return high_a < high_b or (high_a == high_b and low_a <= low_b)
end

-- Whether values can have this count, minimum, maximum and sum.
local function holds_together(w, at)
  local min, max, count = u32(w, at + 4), u32(w, at + 8), u32(w, at + 20)
  local sum_high, sum_low = u32(w, at + 12), u32(w, at + 16)
  local min_high, min_low = product(min, count)
  local max_high, max_low = product(max, count)
  return count > 0 and min <= max and at_most(min_high, min_low, sum_high, sum_low) and
    at_most(sum_high, sum_low, max_high, max_low)
end

-- Whether the postcards of this aggregate have fields of the packet.
local function has_packet_fields(w)
  return u8(w, 0) % 16 < 4 and floor(u8(w, 1) / 64) % 2 == 1
end

-- Wire-formats 4.3: everything is checked before values are used.
local function check_aggregate(w)
  if w.fin < 24 then refuse("truncated", 0) end
  local kind = u8(w, 0) % 16
  if floor(u8(w, 0) / 16) ~= 1 then refuse("unknown_version", 0) end
  if not KINDS[kind] then refuse("bad_aggregate_kind", 0) end
  local count, len, node, flow = u16(w, 2), u16(w, 4), u32(w, 16), u32(w, 20)
  if count == 0 then refuse("empty_aggregate", 2) end
  local least = kind > 4 and 24 or has_packet_fields(w) and 32 or 20
  if len < least or 24 + count * len ~= w.fin then refuse("bad_record_length", 2) end
  local of_node, of_flow = kind % 4 >= 2, kind % 4 == 3
  if of_node == (node == ONES) then refuse("bad_scope", 16) end
  if of_flow == (flow == ONES) then refuse("bad_scope", 20) end
  for i = 0, count - 1 do
    local at = 24 + i * len
    if kind > 4 then
      if not holds_together(w, at) then refuse("bad_summary", at) end
    elseif of_node and u32(w, at) ~= node or of_flow and u32(w, at + 4) ~= flow then
      refuse("bad_scope", at)
    end
  end
end

function A.dissector(tvb, pinfo, tree)
  if depth > 0 then return 0 end
  handled = pinfo.number
  pinfo.cols.protocol = "INT aggregate"
  local w = new_walk(tvb:raw(), tvb:len(), "report", false)
  local root = tree:add(P, tvb(), "Postcard aggregate")
  local problem = guarded(check_aggregate, w)
  if w.fin >= 24 then
    add(root, "a_version", tvb, 0, 1)
    add(root, "a_kind", tvb, 0, 1)
    add(root, "a_timer", tvb, 1, 1)
    add(root, "a_packet", tvb, 1, 1)
    add(root, "a_count", tvb, 2, 2)
    add(root, "a_length", tvb, 4, 2)
    add(root, "a_id", tvb, 8, 4)
    add(root, "a_seq", tvb, 12, 4)
    if not all_ones(w, 16, 4) then add(root, "a_node", tvb, 16, 4) end
    if not all_ones(w, 20, 4) then add(root, "a_flow", tvb, 20, 4) end
  end
  if problem then
    refusal(root, tvb, problem)
    pinfo.cols.info = "Postcard aggregate, refused: " .. problem.refused
    return tvb:len()
  end
  local kind, count, len = u8(w, 0) % 16, u16(w, 2), u16(w, 4)
  for i = 0, count - 1 do
    local show = kind < 4 and show_postcard or show_summary
    show(root, tvb, w, 24 + i * len, has_packet_fields(w))
  end
  local title = "Postcard aggregate " .. KINDS[kind]:gsub(":.*", "") .. ", aggregator " .. u32(w, 8) .. ", seq " ..
    u32(w, 12) .. ", " .. count .. " records"
  root:set_text(title)
  pinfo.cols.info = title
  return tvb:len()
end

-- Direct Telemetry Access ----------------------------------------------------------------------------------------

local D = Proto("hopwise_dta", "Direct Telemetry Access (hopwise)")

local function show_key(tree, tvb, at, len)
  local item = add(tree, "d_key", tvb, at, len)
  if len == 13 or len == 37 then
    local v6 = len == 37
    local size = v6 and 16 or 4
    local function text(offset)
      local part = tvb(at + offset, size)
      return tostring(v6 and part:ipv6() or part:ipv4())
    end
    item:append_text(" (" .. text(0) .. " " .. tvb(at + 2 * size, 2):uint() .. " → " .. text(size) .. " " ..
      tvb(at + 2 * size + 2, 2):uint() .. ", protocol " .. tvb(at + len - 1, 1):uint() .. ")")
  end
end

-- Shows fields given as { key, offset, length } from `at` on.
local function show_all(tree, tvb, at, fields)
  for _, each in ipairs(fields) do add(tree, each[1], tvb, at + each[2], each[3]) end
end

local function exactly(w, len)
  if w.fin ~= len then refuse("bad_dta_length", 8) end
end
local function at_least(w, len)
  if w.fin < len then refuse("truncated", 8) end
end
local function ensure(good, name, at)
  if not good then refuse(name, at) end
end
local function copies_and_key(copies, key)
  ensure(copies >= 1 and copies <= 4, "bad_copies", 8)
  ensure(key >= 1 and key <= 64, "bad_key_length", 9)
end

local DTA = {}
DTA[1] = function(w, tree, tvb)
  at_least(w, 16)
  local copies, key, data = u8(w, 8), u8(w, 9), u16(w, 10)
  show_all(tree, tvb, 8, {
    { "d_copies", 0, 1 }, { "d_key_length", 1, 1 }, { "d_data_length", 2, 2 }, { "d_store", 4, 2 },
  })
  exactly(w, 16 + key + data)
  copies_and_key(copies, key)
  ensure(data >= 1 and data <= 1024, "bad_data_length", 10)
  show_key(tree, tvb, 16, key)
  add(tree, "d_data", tvb, 16 + key, data)
  return "store " .. u16(w, 12) .. ", " .. data .. " bytes"
end
DTA[2] = function(w, tree, tvb)
  at_least(w, 16)
  local len, count = u16(w, 12), u8(w, 14)
  show_all(tree, tvb, 8, { { "d_list", 0, 4 }, { "d_data_length", 4, 2 }, { "d_count", 6, 1 } })
  ensure(count >= 1 and len >= 1, "bad_entries", 12)
  exactly(w, 16 + count * len)
  for i = 0, count - 1 do add(tree, "d_data", tvb, 16 + i * len, len) end
  return "list " .. u32(w, 8) .. ", " .. count .. " entries"
end
DTA[3] = function(w, tree, tvb)
  at_least(w, 24)
  local copies, key = u8(w, 8), u8(w, 9)
  show_all(tree, tvb, 8, { { "d_copies", 0, 1 }, { "d_key_length", 1, 1 }, { "d_store", 2, 2 }, { "d_delta", 8, 8 } })
  exactly(w, 24 + key)
  copies_and_key(copies, key)
  show_key(tree, tvb, 24, key)
  return "store " .. u16(w, 10)
end
DTA[4] = function(w, tree, tvb)
  at_least(w, 20)
  local hop, path, key = u8(w, 8), u8(w, 9), u8(w, 10)
  show_all(tree, tvb, 8, {
    { "d_hop", 0, 1 }, { "d_path_length", 1, 1 }, { "d_key_length", 2, 1 }, { "d_store", 4, 2 }, { "d_value", 8, 4 },
  })
  exactly(w, 20 + key)
  ensure(key >= 1 and key <= 64, "bad_key_length", 10)
  ensure(hop >= 1 and (path == 0 or hop <= path), "bad_hop", 8)
  ensure(not all_ones(w, 16, 4), "bad_hop_value", 16)
  show_key(tree, tvb, 20, key)
  return "hop " .. hop .. ", value " .. u32(w, 16)
end
DTA[5] = function(w, tree, tvb)
  at_least(w, 20)
  local depth_, width, op, columns = u8(w, 16), u8(w, 17), u8(w, 18), u8(w, 19)
  show_all(tree, tvb, 8, {
    { "d_sketch", 0, 2 }, { "d_epoch", 2, 2 }, { "d_column", 4, 4 }, { "d_depth", 8, 1 }, { "d_width", 9, 1 },
    { "d_op", 10, 1 }, { "d_columns", 11, 1 },
  })
  ensure(op <= 3, "bad_merge_op", 18)
  ensure(depth_ >= 1 and depth_ <= 16 and columns >= 1, "bad_sketch", 16)
  ensure(width == 8 or width == 4 and op ~= 3, "bad_sketch", 17)
  exactly(w, 20 + columns * depth_ * width)
  for i = 0, columns * depth_ - 1 do
    local item = add(tree, "d_counter", tvb, 20 + i * width, width)
    item:append_text(" (column " .. (u32(w, 12) + floor(i / depth_)) .. ", row " .. i % depth_ .. ")")
  end
  return "sketch " .. u16(w, 8) .. ", epoch " .. u16(w, 10) .. ", columns from " .. u32(w, 12)
end
DTA[15] = function(w, tree, tvb)
  at_least(w, 9)
  local kind = u8(w, 8)
  add(tree, "d_control", tvb, 8, 1)
  local size = ({ 8, 8, 12, 12 })[kind]
  ensure(size, "bad_control", 8)
  at_least(w, 8 + size)
  exactly(w, 8 + size)
  if kind == 1 then
    show_all(tree, tvb, 8, { { "d_code", 1, 1 }, { "d_last", 2, 2 } })
    return "ACK up to " .. u16(w, 10)
  elseif kind == 2 then
    show_all(tree, tvb, 8, { { "d_code", 1, 1 }, { "d_last", 2, 2 }, { "d_trigger", 4, 2 } })
    return "NACK, last in order " .. u16(w, 10)
  elseif kind == 3 then
    show_all(tree, tvb, 8, { { "d_code", 1, 1 }, { "d_sketch", 4, 2 }, { "d_epoch", 6, 2 }, { "d_expected", 8, 4 } })
    return "SKETCH-NACK, expects column " .. u32(w, 16)
  end
  show_all(tree, tvb, 8, { { "d_level", 1, 1 }, { "d_hold", 4, 4 }, { "d_dropped", 8, 4 } })
  ensure(u8(w, 9) <= 3, "bad_control", 9)
  return "CONGESTION level " .. u8(w, 9) .. " for " .. u32(w, 12) .. " us"
end

-- The layouts of the published artifact: what follows a base header of two bytes, or of three with a sequence number. Which of them
-- it is follows from opcode and length.
local ARTIFACT = {}
ARTIFACT[1] = function(w, tree, tvb, at)
  show_all(tree, tvb, at, { { "d_copies", 0, 1 }, { "d_key", 1, 4 }, { "d_data", 5, 4 } })
  ensure(u8(w, at) >= 1 and u8(w, at) <= 4, "bad_copies", at)
end
ARTIFACT[2] = function(_, tree, tvb, at)
  show_all(tree, tvb, at, { { "d_list", 0, 4 }, { "d_data", 4, 4 } })
end
ARTIFACT[3] = function(w, tree, tvb, at)
  show_all(tree, tvb, at, { { "d_copies", 0, 1 }, { "d_key", 1, 4 }, { "d_delta", 5, 8 } })
  ensure(u8(w, at) >= 1 and u8(w, at) <= 4, "bad_copies", at)
end
ARTIFACT[4] = function(w, tree, tvb, at)
  show_all(tree, tvb, at, { { "d_key", 0, 4 }, { "d_hop", 4, 1 }, { "d_value", 5, 4 } })
  ensure(u8(w, at + 4) >= 1 and u8(w, at + 4) <= 5, "bad_hop", at + 4)
  ensure(not all_ones(w, at + 5, 4), "bad_hop_value", at + 5)
end
local ARTIFACT_LENGTH = { 9, 8, 13, 9 }

local function artifact(w, root, tvb)
  local opcode = u8(w, 0)
  show_all(root, tvb, 0, { { "d_version", 0, 1 }, { "d_opcode", 0, 1 } })
  local base_length = w.fin - ARTIFACT_LENGTH[opcode]
  ensure(base_length == 2 or base_length == 3, "bad_dta_length", 0)
  if base_length == 3 then show_all(root, tvb, 0, { { "d_seq", 1, 1 }, { "d_essential", 2, 1 } }) end
  add(root, "d_immediate", tvb, base_length - 1, 1)
  ARTIFACT[opcode](w, root, tvb, base_length)
  return "the artifact's layout" .. (base_length == 3 and ", seq " .. u8(w, 1) or "")
end

-- Version 1, its base header first.
local function version_1(w, root, tvb)
  at_least(w, 8)
  add(root, "d_version", tvb, 0, 1)
  ensure(floor(u8(w, 0) / 16) == 1, "unknown_version", 0)
  local opcode = u8(w, 0) % 16
  show_all(root, tvb, 0, {
    { "d_opcode", 0, 1 }, { "d_immediate", 1, 1 }, { "d_essential", 1, 1 }, { "d_priority", 1, 1 }, { "d_seq", 2, 2 },
    { "d_reporter", 4, 4 },
  })
  ensure(DTA[opcode], "bad_dta_opcode", 0)
  ensure(bits(u8(w, 1), 4, 2) ~= 3, "bad_dta_priority", 1)
  return "reporter " .. u32(w, 4) .. ", seq " .. u16(w, 2) .. ", " .. DTA[opcode](w, root, tvb)
end

function D.dissector(tvb, pinfo, tree)
  if depth > 0 then return 0 end
  handled = pinfo.number
  pinfo.cols.protocol = "DTA"
  local w = new_walk(tvb:raw(), tvb:len(), "report", false)
  local root = tree:add(P, tvb(), "Direct Telemetry Access")
  local first = w.fin > 0 and u8(w, 0) or 0
  local opcode, line = first % 16, nil
  local problem = guarded(function()
    if w.fin == 2 then
      -- The artifact's only control message.
      opcode = 15
      ensure(u8(w, 1) >= 128, "bad_control", 1)
      add(root, "d_last", tvb, 0, 1)
      line = "the artifact's NACK, last in order " .. u8(w, 0)
    elseif w.fin > 0 and ARTIFACT[first] then
      line = artifact(w, root, tvb)
    else
      line = version_1(w, root, tvb)
    end
  end)
  local title = "DTA " .. (OPCODES[opcode] or "")
  if problem then
    refusal(root, tvb, problem)
    line = "refused: " .. problem.refused
  end
  root:set_text(title .. ", " .. line)
  pinfo.cols.info = title .. ", " .. line
  return tvb:len()
end

-- INT in packets -------------------------------------------------------------------------------------------------

local encap_type = Field.new("frame.encap_type")

-- Where the walk begins in a frame of this capture type (Wireshark's numbers): step and offset.
local function link()
  local info = encap_type()
  local kind = info and info.value
  if kind == 1 then return "ethernet", 0 end
  if kind == 7 or kind == 129 or kind == 130 then return "ip", 0 end
  if kind == 25 then return "ethertype", 14, 16 end -- Linux cooked
  if kind == 210 then return "ethertype", 0, 20 end -- Linux cooked, version 2
end

local QUIET = { bad_ip_header = true, bad_udp_length = true } -- shown by Wireshark itself

local function show_packet(tree, tvb, w, problem)
  if problem and QUIET[problem.refused] and not problem.is_of_int then return nil end
  if not problem and not w.int and not w.ioam and not w.destination then return nil end
  local root = tree:add(P, tvb())
  local title = "In-band network telemetry"
  if w.flow and not problem then show_flow(root, tvb, "flow", w.flow) end
  if w.tunnel then show_flow(root, tvb, "tunnel", w.tunnel) end
  show_int(root, tvb, w, 0, problem)
  if w.ioam and not problem then show_ioam(root, tvb, w) end
  if problem then
    refusal(root, tvb, problem)
    root:set_text(title .. ", refused: " .. problem.refused)
    return "INT refused: " .. problem.refused
  end
  local report = { walk = w }
  finish(report, w)
  generated(root:add(F.path, tvb(0, 0), path_text(report.path)))
  generated(root:add(F.path_hops, tvb(0, 0), #report.path))
  local line = (w.int and "INT " .. w.int.version or w.ioam and "IOAM" or "INT for the destination")
  if w.int and w.int.sf then line = "SF-INT" end
  if #report.path > 0 then line = line .. ", path " .. path_text(report.path):gsub(",", " → ") end
  root:set_text(title .. ": " .. line)
  return line
end

-- UDP to an INT port: the search below shows INT; here the payload goes to the dissector of its destination.
local I = Proto("hopwise_int", "INT over UDP (hopwise)")

function I.dissector(tvb, pinfo, tree)
  local w = new_walk(tvb:raw(), tvb:len(), "report", true)
  local fin, original
  local found = { encapsulation = "udp", found_by = "port", ip = { at = 0, v6 = false }, l4 = 0, start = 0, shim = 0 }
  local problem = guarded(function() fin, original = W.l4_shim(w, found) end)
  if depth == 0 and (not C.find or not link()) then
    local root = tree:add(P, range(tvb, 0, fin or tvb:len()))
    show_int(root, tvb, w, 0, problem)
    if problem then refusal(root, tvb, problem) end
  end
  if problem or fin >= tvb:len() then return tvb:len() end
  pinfo.cols.protocol = "INT"
  local rest = tvb(fin):tvb()
  depth = depth + 1
  pcall(function()
    if original.port and not C.is_int_port(original.port) then
      DissectorTable.get("udp.port"):try(original.port, rest, pinfo, tree)
    elseif original.proto then
      DissectorTable.get("ip.proto"):try(original.proto, rest, pinfo, tree)
    end
  end)
  depth = depth - 1
  return tvb:len()
end

-- The search: a post-dissector, since a DSCP, a marker behind TCP or an IPv6 option has no table to register with.
local S = Proto("hopwise_find", "INT in packets (hopwise)")

function S.dissector(tvb, pinfo, tree)
  if not C.find or handled == pinfo.number then
    handled = nil
    return
  end
  local step, at, from = link()
  if not step then return end
  local w = new_walk(tvb:raw(), tvb:len(), "frame", true)
  local problem = cause(w, guarded(function()
    if step == "ethernet" then return W.ethernet(w, 0) end
    if step == "ip" then return W.ethertype(w, 0, bits(u8(w, 0) or 0, 4, 4) == 6 and IP6 or IP4) end
    local ethertype = u16(w, at)
    if ethertype then return W.ethertype(w, from, ethertype) end
  end))
  finish_flow(w)
  local line = show_packet(tree, tvb, w, problem)
  if line then pinfo.cols.info:append(" [" .. line .. "]") end
end
register_postdissector(S)

-- Ports ----------------------------------------------------------------------------------------------------------

local registered = {}
local udp_ports = DissectorTable.get("udp.port")

local function register(proto, ports)
  if registered[proto.name] == ports then return end
  if registered[proto.name] and registered[proto.name] ~= "" then udp_ports:remove(registered[proto.name], proto) end
  if ports ~= "" then udp_ports:add(ports, proto) end
  registered[proto.name] = ports
end

-- RoCEv2 on other ports is Wireshark's own: it shows the ICRC, and does not compare it with the packet.
local roce = udp_ports:get_dissector(4791)
local roce_ports = ""
local function register_roce(ports)
  if not roce or roce_ports == ports then return end
  if roce_ports ~= "" then udp_ports:remove(roce_ports, roce) end
  if ports ~= "" then udp_ports:add(ports, roce) end
  roce_ports = ports
end

local function apply()
  read_settings()
  register(P, P.prefs.report_ports)
  register(A, P.prefs.aggregate_ports)
  register(I, P.prefs.int_ports)
  register(D, P.prefs.dta_ports)
  register_roce(P.prefs.roce_ports)
end

function P.prefs_changed() apply() end
function P.init()
  handled = nil
  depth = 0
end
apply()
