//! The messages of P4Runtime 1.4 that the driver uses, and of them the fields that it uses. Others are skipped when they are read.
//!
//! Field numbers are those of `p4/v1/p4runtime.proto`, `p4/config/v1/p4info.proto` and `google/rpc/status.proto`;
//! `tests/fields.rs` compares them with `tests/published/fields.txt`.

use prost::{Enumeration, Message, Oneof};

/// The message `google.protobuf.Any`: a message of any type, encoded.
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    /// `type.googleapis.com/` and the name of the message.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The encoded message itself.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// The message `google.rpc.Status`: the result of a call.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// A canonical status code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Description of the error for people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Details; of a `Write`, an [`Error`] for each update.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `p4.v1.Error`: the result of one update.
#[derive(Clone, PartialEq, Message)]
pub struct Error {
    /// A canonical code; 0 is success.
    #[prost(int32, tag = "1")]
    pub canonical_code: i32,
    /// Description of the error for people.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// An unsigned number of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct Uint128 {
    /// The upper 64 bits.
    #[prost(uint64, tag = "1")]
    pub high: u64,
    /// The lower 64 bits.
    #[prost(uint64, tag = "2")]
    pub low: u64,
}

/// A role of a client.
#[derive(Clone, PartialEq, Message)]
pub struct Role {
    /// Name of the role.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Requests to become the primary client, and reports the present one.
#[derive(Clone, PartialEq, Message)]
pub struct MasterArbitrationUpdate {
    /// Id of the device.
    #[prost(uint64, tag = "1")]
    pub device_id: u64,
    /// Role of the client; `None` for the default one.
    #[prost(message, optional, tag = "2")]
    pub role: Option<Role>,
    /// Election id of the client; in an answer, of the primary.
    #[prost(message, optional, tag = "3")]
    pub election_id: Option<Uint128>,
    /// Result in an answer: `OK` for the primary.
    #[prost(message, optional, tag = "4")]
    pub status: Option<Status>,
}

/// A message of a client on its stream.
#[derive(Clone, PartialEq, Message)]
pub struct StreamMessageRequest {
    /// Content of the message.
    #[prost(oneof = "StreamRequest", tags = "1, 2, 3")]
    pub update: Option<StreamRequest>,
}

/// The content of a [`StreamMessageRequest`].
#[derive(Clone, PartialEq, Oneof)]
pub enum StreamRequest {
    /// Requests to become primary.
    #[prost(message, tag = "1")]
    Arbitration(MasterArbitrationUpdate),
    /// A packet for the device.
    #[prost(message, tag = "2")]
    Packet(PacketOut),
    /// Acknowledges a list of digests.
    #[prost(message, tag = "3")]
    DigestAck(DigestListAck),
}

/// A packet that the device processes as if it had arrived at its CPU port.
#[derive(Clone, PartialEq, Message)]
pub struct PacketOut {
    /// Frame of the packet.
    #[prost(bytes = "vec", tag = "1")]
    pub payload: Vec<u8>,
}

/// A packet that the device sent to its CPU port.
#[derive(Clone, PartialEq, Message)]
pub struct PacketIn {
    /// Frame of the packet.
    #[prost(bytes = "vec", tag = "1")]
    pub payload: Vec<u8>,
}

/// A message of a device on the stream of a client. Other notifications are skipped.
#[derive(Clone, PartialEq, Message)]
pub struct StreamMessageResponse {
    /// Content of the message.
    #[prost(oneof = "StreamResponse", tags = "1, 2, 3")]
    pub update: Option<StreamResponse>,
}

/// The content of a [`StreamMessageResponse`].
#[derive(Clone, PartialEq, Oneof)]
pub enum StreamResponse {
    /// Reports the primary client.
    #[prost(message, tag = "1")]
    Arbitration(MasterArbitrationUpdate),
    /// A packet from the CPU port.
    #[prost(message, tag = "2")]
    Packet(PacketIn),
    /// Digests that need an acknowledgement.
    #[prost(message, tag = "3")]
    Digest(DigestList),
}

/// Digests that wait for their acknowledgement.
#[derive(Clone, PartialEq, Message)]
pub struct DigestList {
    /// Id of the digest in P4Info.
    #[prost(uint32, tag = "1")]
    pub digest_id: u32,
    /// Number of the list.
    #[prost(uint64, tag = "2")]
    pub list_id: u64,
}

/// The acknowledgement of a [`DigestList`].
#[derive(Clone, PartialEq, Message)]
pub struct DigestListAck {
    /// Id of the digest in P4Info.
    #[prost(uint32, tag = "1")]
    pub digest_id: u32,
    /// Number of the list.
    #[prost(uint64, tag = "2")]
    pub list_id: u64,
}

/// Writes changes of entities.
#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    /// Id of the device.
    #[prost(uint64, tag = "1")]
    pub device_id: u64,
    /// Election id of the primary.
    #[prost(message, optional, tag = "3")]
    pub election_id: Option<Uint128>,
    /// The changes. A device may execute those of one request in any order.
    #[prost(message, repeated, tag = "4")]
    pub updates: Vec<Update>,
    /// Behaviour after an error.
    #[prost(enumeration = "Atomicity", tag = "5")]
    pub atomicity: i32,
    /// The role of the client.
    #[prost(string, tag = "6")]
    pub role: String,
}

/// The behaviour for other updates of a request if one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Atomicity {
    /// They are executed. Every device supports this.
    ContinueOnError = 0,
    /// None of them is executed.
    RollbackOnError = 1,
    /// None is executed, and no packet sees a part of them.
    DataplaneAtomic = 2,
}

/// The empty result of a write.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct WriteResponse {}

/// A change of one entity.
#[derive(Clone, PartialEq, Message)]
pub struct Update {
    /// Type of the change.
    #[prost(enumeration = "UpdateType", tag = "1")]
    pub r#type: i32,
    /// Entity that is changed.
    #[prost(message, optional, tag = "2")]
    pub entity: Option<Entity>,
}

/// The type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum UpdateType {
    /// The value 0, which no change has.
    Unspecified = 0,
    /// A new entity is inserted.
    Insert = 1,
    /// An entity gets another value.
    Modify = 2,
    /// The entity is removed.
    Delete = 3,
}

/// Queries entities of the device.
#[derive(Clone, PartialEq, Message)]
pub struct ReadRequest {
    /// Id of the device.
    #[prost(uint64, tag = "1")]
    pub device_id: u64,
    /// Patterns of the entities; fields that are not set match everything.
    #[prost(message, repeated, tag = "2")]
    pub entities: Vec<Entity>,
    /// The role of the client.
    #[prost(string, tag = "3")]
    pub role: String,
}

/// A part of the queried entities.
#[derive(Clone, PartialEq, Message)]
pub struct ReadResponse {
    /// Entities that match the query.
    #[prost(message, repeated, tag = "1")]
    pub entities: Vec<Entity>,
}

/// An object that can be written and read.
#[derive(Clone, PartialEq, Message)]
pub struct Entity {
    /// Content of the entity.
    #[prost(oneof = "EntityKind", tags = "2, 7, 9")]
    pub entity: Option<EntityKind>,
}

/// The content of an [`Entity`].
#[derive(Clone, PartialEq, Oneof)]
pub enum EntityKind {
    /// An entry of a table.
    #[prost(message, tag = "2")]
    TableEntry(TableEntry),
    /// A counter, or all of an array.
    #[prost(message, tag = "7")]
    Counter(CounterEntry),
    /// A clone session or multicast group.
    #[prost(message, tag = "9")]
    PacketReplication(PacketReplicationEngineEntry),
}

/// An entry of a table.
#[derive(Clone, PartialEq, Message)]
pub struct TableEntry {
    /// Id of the table.
    #[prost(uint32, tag = "1")]
    pub table_id: u32,
    /// The key; fields that match everything are left out.
    #[prost(message, repeated, tag = "2")]
    pub r#match: Vec<FieldMatch>,
    /// The action on packets that match.
    #[prost(message, optional, tag = "3")]
    pub action: Option<TableAction>,
    /// The priority among overlapping entries, of which the greatest wins; 0 in tables with exact or prefix keys.
    #[prost(int32, tag = "4")]
    pub priority: i32,
    /// The entry's direct counter; if set in a request, the response includes it.
    #[prost(message, optional, tag = "7")]
    pub counter_data: Option<CounterData>,
    /// It is the default entry.
    #[prost(bool, tag = "8")]
    pub is_default_action: bool,
    /// Data of the client, which the device stores.
    #[prost(bytes = "vec", tag = "11")]
    pub metadata: Vec<u8>,
    /// It is part of the program and cannot be changed.
    #[prost(bool, tag = "13")]
    pub is_const: bool,
}

/// A field of a key with its value.
#[derive(Clone, PartialEq, Message)]
pub struct FieldMatch {
    /// Id of the field in P4Info.
    #[prost(uint32, tag = "1")]
    pub field_id: u32,
    /// Value of the field.
    #[prost(oneof = "FieldMatchType", tags = "2, 3, 4, 6, 7")]
    pub field_match_type: Option<FieldMatchType>,
}

/// The value of a [`FieldMatch`].
#[derive(Clone, PartialEq, Oneof)]
pub enum FieldMatchType {
    /// A single exact value.
    #[prost(message, tag = "2")]
    Exact(Exact),
    /// A value of some bits.
    #[prost(message, tag = "3")]
    Ternary(Ternary),
    /// A prefix with its length.
    #[prost(message, tag = "4")]
    Lpm(Lpm),
    /// A range of values.
    #[prost(message, tag = "6")]
    Range(Range),
    /// One value or all values.
    #[prost(message, tag = "7")]
    Optional(Exact),
}

/// The messages `FieldMatch.Exact` and `FieldMatch.Optional`, which have the same field.
#[derive(Clone, PartialEq, Message)]
pub struct Exact {
    /// Value to compare with.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
}

/// The message `FieldMatch.Ternary`: a value under a mask.
#[derive(Clone, PartialEq, Message)]
pub struct Ternary {
    /// Value to compare with.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
    /// Mask of the bits that count.
    #[prost(bytes = "vec", tag = "2")]
    pub mask: Vec<u8>,
}

/// The message `FieldMatch.LPM`: a prefix.
#[derive(Clone, PartialEq, Message)]
pub struct Lpm {
    /// Value to compare with.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
    /// Number of leading bits that count.
    #[prost(int32, tag = "2")]
    pub prefix_len: i32,
}

/// The message `FieldMatch.Range`: the values between two limits.
#[derive(Clone, PartialEq, Message)]
pub struct Range {
    /// Least value that matches.
    #[prost(bytes = "vec", tag = "1")]
    pub low: Vec<u8>,
    /// Greatest value that matches.
    #[prost(bytes = "vec", tag = "2")]
    pub high: Vec<u8>,
}

/// The action for packets that match. Action profiles are skipped: they are never the driver's.
#[derive(Clone, PartialEq, Message)]
pub struct TableAction {
    /// Type of the action.
    #[prost(oneof = "TableActionType", tags = "1")]
    pub r#type: Option<TableActionType>,
}

/// The content of a [`TableAction`].
#[derive(Clone, PartialEq, Oneof)]
pub enum TableActionType {
    /// An action with its parameters.
    #[prost(message, tag = "1")]
    Action(Action),
}

/// An action with its parameters.
#[derive(Clone, PartialEq, Message)]
pub struct Action {
    /// Id of the action in P4Info.
    #[prost(uint32, tag = "1")]
    pub action_id: u32,
    /// Parameters of the action.
    #[prost(message, repeated, tag = "4")]
    pub params: Vec<Param>,
}

/// The message `Action.Param`: an argument of an action.
#[derive(Clone, PartialEq, Message)]
pub struct Param {
    /// Id of the parameter in P4Info.
    #[prost(uint32, tag = "2")]
    pub param_id: u32,
    /// Value of the parameter.
    #[prost(bytes = "vec", tag = "3")]
    pub value: Vec<u8>,
}

/// A counter of an array.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct CounterEntry {
    /// Id of the array in P4Info.
    #[prost(uint32, tag = "1")]
    pub counter_id: u32,
    /// Index of the counter; in a request, `None` queries all.
    #[prost(message, optional, tag = "2")]
    pub index: Option<Index>,
    /// Counts of the counter.
    #[prost(message, optional, tag = "3")]
    pub data: Option<CounterData>,
}

/// An index of an array.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Index {
    /// The index, from 0.
    #[prost(int64, tag = "1")]
    pub index: i64,
}

/// The counts of a counter.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct CounterData {
    /// Number of bytes counted.
    #[prost(int64, tag = "1")]
    pub byte_count: i64,
    /// Number of packets counted.
    #[prost(int64, tag = "2")]
    pub packet_count: i64,
}

/// A multicast group or a clone session.
#[derive(Clone, PartialEq, Message)]
pub struct PacketReplicationEngineEntry {
    /// Type of the entry.
    #[prost(oneof = "ReplicationKind", tags = "1, 2")]
    pub r#type: Option<ReplicationKind>,
}

/// The content of a [`PacketReplicationEngineEntry`].
#[derive(Clone, PartialEq, Oneof)]
pub enum ReplicationKind {
    /// A multicast group with its copies.
    #[prost(message, tag = "1")]
    MulticastGroup(MulticastGroupEntry),
    /// A clone session with its copies.
    #[prost(message, tag = "2")]
    CloneSession(CloneSessionEntry),
}

/// The copies of packets of a multicast group.
#[derive(Clone, PartialEq, Message)]
pub struct MulticastGroupEntry {
    /// Number of the group; in a request, 0 queries all.
    #[prost(uint32, tag = "1")]
    pub multicast_group_id: u32,
    /// Copies of each packet.
    #[prost(message, repeated, tag = "2")]
    pub replicas: Vec<Replica>,
}

/// The copies of cloned packets.
#[derive(Clone, PartialEq, Message)]
pub struct CloneSessionEntry {
    /// Number of the session, as in the program.
    #[prost(uint32, tag = "1")]
    pub session_id: u32,
    /// Copies of each packet.
    #[prost(message, repeated, tag = "2")]
    pub replicas: Vec<Replica>,
    /// Class of service of the copies.
    #[prost(uint32, tag = "3")]
    pub class_of_service: u32,
    /// Longest copy, bytes; 0 for no limit.
    #[prost(int32, tag = "4")]
    pub packet_length_bytes: i32,
}

/// A copy of a packet.
#[derive(Clone, PartialEq, Message)]
pub struct Replica {
    /// Port that it goes to.
    #[prost(oneof = "PortKind", tags = "1, 3")]
    pub port_kind: Option<PortKind>,
    /// Number that distinguishes copies to one port.
    #[prost(uint32, tag = "2")]
    pub instance: u32,
}

/// The port of a [`Replica`].
#[derive(Clone, PartialEq, Oneof)]
pub enum PortKind {
    /// A number; the form of P4Runtime up to 1.3, which every device accepts.
    #[prost(uint32, tag = "1")]
    EgressPort(u32),
    /// The number as bytes.
    #[prost(bytes, tag = "3")]
    Port(Vec<u8>),
}

/// Loads a program into a device.
#[derive(Clone, PartialEq, Message)]
pub struct SetForwardingPipelineConfigRequest {
    /// Id of the device.
    #[prost(uint64, tag = "1")]
    pub device_id: u64,
    /// Election id of the primary.
    #[prost(message, optional, tag = "3")]
    pub election_id: Option<Uint128>,
    /// Action of the request.
    #[prost(enumeration = "ConfigAction", tag = "4")]
    pub action: i32,
    /// The program to load, with its P4Info.
    #[prost(message, optional, tag = "5")]
    pub config: Option<ForwardingPipelineConfig>,
    /// The role of the client.
    #[prost(string, tag = "6")]
    pub role: String,
}

/// The enumeration `SetForwardingPipelineConfigRequest.Action`, of which the driver uses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ConfigAction {
    /// The value 0, which no request has.
    Unspecified = 0,
    /// The program is checked, loaded and activated.
    VerifyAndCommit = 3,
}

/// The empty result of loading a program.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct SetForwardingPipelineConfigResponse {}

/// A program with its P4Info.
#[derive(Clone, PartialEq, Message)]
pub struct ForwardingPipelineConfig {
    /// A [`P4Info`], not decoded, so that fields that this crate does not know are passed on.
    #[prost(bytes = "vec", optional, tag = "1")]
    pub p4info: Option<Vec<u8>>,
    /// Program in the form of the device.
    #[prost(bytes = "vec", tag = "2")]
    pub p4_device_config: Vec<u8>,
    /// Identifies the configuration; chosen by the client that loaded it.
    #[prost(message, optional, tag = "3")]
    pub cookie: Option<Cookie>,
}

/// The message `ForwardingPipelineConfig.Cookie`: the identity of a configuration.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Cookie {
    /// Number that identifies the configuration.
    #[prost(uint64, tag = "1")]
    pub cookie: u64,
}

/// Queries the program of a device.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct GetForwardingPipelineConfigRequest {
    /// Id of the device.
    #[prost(uint64, tag = "1")]
    pub device_id: u64,
    /// Part of the program to return.
    #[prost(enumeration = "ResponseType", tag = "2")]
    pub response_type: i32,
}

/// The enumeration `GetForwardingPipelineConfigRequest.ResponseType`, of which the driver uses two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ResponseType {
    /// All parts of the program.
    All = 0,
    /// Only the cookie, which a client set to distinguish programs.
    CookieOnly = 1,
    /// P4Info without the device's own form.
    P4infoAndCookie = 2,
}

/// The program of a device.
#[derive(Clone, PartialEq, Message)]
pub struct GetForwardingPipelineConfigResponse {
    /// Program with the requested parts.
    #[prost(message, optional, tag = "1")]
    pub config: Option<ForwardingPipelineConfig>,
}

/// The objects of a program that its controller can use.
#[derive(Clone, PartialEq, Message)]
pub struct P4Info {
    /// Tables of the program.
    #[prost(message, repeated, tag = "2")]
    pub tables: Vec<P4Table>,
    /// Actions of the program.
    #[prost(message, repeated, tag = "3")]
    pub actions: Vec<P4Action>,
    /// Arrays of counters in the program.
    #[prost(message, repeated, tag = "5")]
    pub counters: Vec<P4Counter>,
    /// Counters of the entries of tables.
    #[prost(message, repeated, tag = "6")]
    pub direct_counters: Vec<P4DirectCounter>,
}

/// Id and name of an object.
#[derive(Clone, PartialEq, Message)]
pub struct Preamble {
    /// Id of the object.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Full name of the object.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Shortest name that is unique.
    #[prost(string, tag = "3")]
    pub alias: String,
}

/// The message `p4.config.v1.Table`: a table of a program.
#[derive(Clone, PartialEq, Message)]
pub struct P4Table {
    /// Id and name of the table.
    #[prost(message, optional, tag = "1")]
    pub preamble: Option<Preamble>,
    /// Fields of its key.
    #[prost(message, repeated, tag = "2")]
    pub match_fields: Vec<P4MatchField>,
    /// Actions of its entries.
    #[prost(message, repeated, tag = "3")]
    pub action_refs: Vec<P4ActionRef>,
    /// Capacity of the table, entries.
    #[prost(int64, tag = "8")]
    pub size: i64,
}

/// The message `p4.config.v1.MatchField`: a field of a table's key.
#[derive(Clone, PartialEq, Message)]
pub struct P4MatchField {
    /// Id of the field.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Name of the field.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Width of the field, bits.
    #[prost(int32, tag = "4")]
    pub bitwidth: i32,
    /// Kind of match; not set for one of the program's architecture.
    #[prost(enumeration = "MatchType", tag = "5")]
    pub match_type: i32,
}

/// The kind of match of a key's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum MatchType {
    /// A kind that P4Runtime does not define.
    Unspecified = 0,
    /// A single exact value.
    Exact = 2,
    /// A prefix with its length.
    Lpm = 3,
    /// A value of some bits.
    Ternary = 4,
    /// A range of values.
    Range = 5,
    /// One value or all values.
    Optional = 6,
}

/// The message `p4.config.v1.ActionRef`: an action that a table's entries may use.
#[derive(Clone, PartialEq, Message)]
pub struct P4ActionRef {
    /// Id of the action.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Entries that may use the action.
    #[prost(enumeration = "Scope", tag = "3")]
    pub scope: i32,
}

/// The enumeration `p4.config.v1.ActionRef.Scope`: the entries that may use an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Scope {
    /// Usable in all entries.
    TableAndDefault = 0,
    /// Usable in entries other than the default one.
    TableOnly = 1,
    /// Usable only in the default entry.
    DefaultOnly = 2,
}

/// The message `p4.config.v1.Action`: an action of a program.
#[derive(Clone, PartialEq, Message)]
pub struct P4Action {
    /// Id and name of the action.
    #[prost(message, optional, tag = "1")]
    pub preamble: Option<Preamble>,
    /// Parameters of the action.
    #[prost(message, repeated, tag = "2")]
    pub params: Vec<P4Param>,
}

/// The message `p4.config.v1.Action.Param`: a parameter of an action.
#[derive(Clone, PartialEq, Message)]
pub struct P4Param {
    /// Id of the parameter.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Name of the parameter.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Width of the parameter, bits.
    #[prost(int32, tag = "4")]
    pub bitwidth: i32,
}

/// The message `p4.config.v1.Counter`: an array of counters.
#[derive(Clone, PartialEq, Message)]
pub struct P4Counter {
    /// Id and name of the array.
    #[prost(message, optional, tag = "1")]
    pub preamble: Option<Preamble>,
    /// Number of counters in the array.
    #[prost(int64, tag = "3")]
    pub size: i64,
}

/// The message `p4.config.v1.DirectCounter`: the counters of a table's entries.
#[derive(Clone, PartialEq, Message)]
pub struct P4DirectCounter {
    /// Id and name of the counter.
    #[prost(message, optional, tag = "1")]
    pub preamble: Option<Preamble>,
    /// The table whose entries it counts.
    #[prost(uint32, tag = "3")]
    pub direct_table_id: u32,
}
