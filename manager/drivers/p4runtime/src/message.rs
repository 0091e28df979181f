//! The messages of P4Runtime 1.4 that the driver uses, and of them the fields that it uses. Others are skipped when they are read.
//!
//! Field numbers are those of `p4/v1/p4runtime.proto`, `p4/config/v1/p4info.proto` and `google/rpc/status.proto`;
//! `tests/fields.rs` compares them with `tests/published/fields.txt`.

use prost::{Enumeration, Message, Oneof};

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    /// `type.googleapis.com/` and the name of the message.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The message.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// A canonical code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Of a `Write`: an [`Error`] for each update.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `p4.v1.Error`: the result of one update.
#[derive(Clone, PartialEq, Message)]
pub struct Error {
    /// A canonical code; 0 is success.
    #[prost(int32, tag = "1")]
    pub canonical_code: i32,
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// 128 bits.
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
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Asks to become the primary client, and tells who is.
#[derive(Clone, PartialEq, Message)]
pub struct MasterArbitrationUpdate {
    /// The device.
    #[prost(uint64, tag = "1")]
    pub device_id: u64,
    /// The role; none: the default one.
    #[prost(message, optional, tag = "2")]
    pub role: Option<Role>,
    /// Of the client; in an answer, of the primary.
    #[prost(message, optional, tag = "3")]
    pub election_id: Option<Uint128>,
    /// In an answer: `OK` for the primary.
    #[prost(message, optional, tag = "4")]
    pub status: Option<Status>,
}

/// What a client sends on its stream.
#[derive(Clone, PartialEq, Message)]
pub struct StreamMessageRequest {
    /// What.
    #[prost(oneof = "StreamRequest", tags = "1, 2, 3")]
    pub update: Option<StreamRequest>,
}

/// See [`StreamMessageRequest`].
#[derive(Clone, PartialEq, Oneof)]
pub enum StreamRequest {
    /// Asks to become primary.
    #[prost(message, tag = "1")]
    Arbitration(MasterArbitrationUpdate),
    /// A packet for the device.
    #[prost(message, tag = "2")]
    Packet(PacketOut),
    /// A digest was taken.
    #[prost(message, tag = "3")]
    DigestAck(DigestListAck),
}

/// A packet that the device processes as if it had arrived at its CPU port.
#[derive(Clone, PartialEq, Message)]
pub struct PacketOut {
    /// The frame.
    #[prost(bytes = "vec", tag = "1")]
    pub payload: Vec<u8>,
}

/// A packet that the device sent to its CPU port.
#[derive(Clone, PartialEq, Message)]
pub struct PacketIn {
    /// The frame.
    #[prost(bytes = "vec", tag = "1")]
    pub payload: Vec<u8>,
}

/// What a device sends on the stream of a client. Other notifications are skipped.
#[derive(Clone, PartialEq, Message)]
pub struct StreamMessageResponse {
    /// What.
    #[prost(oneof = "StreamResponse", tags = "1, 2, 3")]
    pub update: Option<StreamResponse>,
}

/// See [`StreamMessageResponse`].
#[derive(Clone, PartialEq, Oneof)]
pub enum StreamResponse {
    /// Who is primary.
    #[prost(message, tag = "1")]
    Arbitration(MasterArbitrationUpdate),
    /// A packet.
    #[prost(message, tag = "2")]
    Packet(PacketIn),
    /// Digests.
    #[prost(message, tag = "3")]
    Digest(DigestList),
}

/// Digests that wait for their acknowledgement.
#[derive(Clone, PartialEq, Message)]
pub struct DigestList {
    /// The digest of P4Info.
    #[prost(uint32, tag = "1")]
    pub digest_id: u32,
    /// The list.
    #[prost(uint64, tag = "2")]
    pub list_id: u64,
}

/// The acknowledgement of a [`DigestList`].
#[derive(Clone, PartialEq, Message)]
pub struct DigestListAck {
    /// The digest of P4Info.
    #[prost(uint32, tag = "1")]
    pub digest_id: u32,
    /// The list.
    #[prost(uint64, tag = "2")]
    pub list_id: u64,
}

/// Changes.
#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    /// The device.
    #[prost(uint64, tag = "1")]
    pub device_id: u64,
    /// That of the primary.
    #[prost(message, optional, tag = "3")]
    pub election_id: Option<Uint128>,
    /// The changes. A device may execute those of one request in any order.
    #[prost(message, repeated, tag = "4")]
    pub updates: Vec<Update>,
    /// What happens after an error.
    #[prost(enumeration = "Atomicity", tag = "5")]
    pub atomicity: i32,
    /// The role of the client.
    #[prost(string, tag = "6")]
    pub role: String,
}

/// What happens to other updates of a request if one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Atomicity {
    /// They are executed. Every device supports this.
    ContinueOnError = 0,
    /// None is executed.
    RollbackOnError = 1,
    /// None is executed, and no packet sees a part of them.
    DataplaneAtomic = 2,
}

/// Nothing.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct WriteResponse {}

/// One change.
#[derive(Clone, PartialEq, Message)]
pub struct Update {
    /// What happens to the entity.
    #[prost(enumeration = "UpdateType", tag = "1")]
    pub r#type: i32,
    /// The entity.
    #[prost(message, optional, tag = "2")]
    pub entity: Option<Entity>,
}

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum UpdateType {
    /// Invalid.
    Unspecified = 0,
    /// A new entity.
    Insert = 1,
    /// Another value of an entity.
    Modify = 2,
    /// The entity is removed.
    Delete = 3,
}

/// Asks for entities.
#[derive(Clone, PartialEq, Message)]
pub struct ReadRequest {
    /// The device.
    #[prost(uint64, tag = "1")]
    pub device_id: u64,
    /// Which; fields that are not set match everything.
    #[prost(message, repeated, tag = "2")]
    pub entities: Vec<Entity>,
    /// The role of the client.
    #[prost(string, tag = "3")]
    pub role: String,
}

/// Entities.
#[derive(Clone, PartialEq, Message)]
pub struct ReadResponse {
    /// The entities.
    #[prost(message, repeated, tag = "1")]
    pub entities: Vec<Entity>,
}

/// A thing that can be written and read.
#[derive(Clone, PartialEq, Message)]
pub struct Entity {
    /// What.
    #[prost(oneof = "EntityKind", tags = "2, 7, 9")]
    pub entity: Option<EntityKind>,
}

/// See [`Entity`].
#[derive(Clone, PartialEq, Oneof)]
pub enum EntityKind {
    /// An entry of a table.
    #[prost(message, tag = "2")]
    TableEntry(TableEntry),
    /// A counter, or all of an array.
    #[prost(message, tag = "7")]
    Counter(CounterEntry),
    /// A clone session.
    #[prost(message, tag = "9")]
    PacketReplication(PacketReplicationEngineEntry),
}

/// An entry of a table.
#[derive(Clone, PartialEq, Message)]
pub struct TableEntry {
    /// The table.
    #[prost(uint32, tag = "1")]
    pub table_id: u32,
    /// The key; fields that match everything are left out.
    #[prost(message, repeated, tag = "2")]
    pub r#match: Vec<FieldMatch>,
    /// What happens to packets that match.
    #[prost(message, optional, tag = "3")]
    pub action: Option<TableAction>,
    /// Of overlapping entries the greater number wins; 0 in tables with exact or prefix keys.
    #[prost(int32, tag = "4")]
    pub priority: i32,
    /// Its direct counter; set in a request, it asks for it.
    #[prost(message, optional, tag = "7")]
    pub counter_data: Option<CounterData>,
    /// It is the default entry.
    #[prost(bool, tag = "8")]
    pub is_default_action: bool,
    /// Whatever the client wants to remember.
    #[prost(bytes = "vec", tag = "11")]
    pub metadata: Vec<u8>,
    /// It is part of the program and cannot be changed.
    #[prost(bool, tag = "13")]
    pub is_const: bool,
}

/// A field of a key.
#[derive(Clone, PartialEq, Message)]
pub struct FieldMatch {
    /// The field of P4Info.
    #[prost(uint32, tag = "1")]
    pub field_id: u32,
    /// Its value.
    #[prost(oneof = "FieldMatchType", tags = "2, 3, 4, 6, 7")]
    pub field_match_type: Option<FieldMatchType>,
}

/// See [`FieldMatch`].
#[derive(Clone, PartialEq, Oneof)]
pub enum FieldMatchType {
    /// One value.
    #[prost(message, tag = "2")]
    Exact(Exact),
    /// Some bits.
    #[prost(message, tag = "3")]
    Ternary(Ternary),
    /// A prefix.
    #[prost(message, tag = "4")]
    Lpm(Lpm),
    /// A range.
    #[prost(message, tag = "6")]
    Range(Range),
    /// One value or all.
    #[prost(message, tag = "7")]
    Optional(Exact),
}

/// `FieldMatch.Exact`, and `FieldMatch.Optional`, which has the same field.
#[derive(Clone, PartialEq, Message)]
pub struct Exact {
    /// The value.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
}

/// `FieldMatch.Ternary`.
#[derive(Clone, PartialEq, Message)]
pub struct Ternary {
    /// The value.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
    /// The bits that count.
    #[prost(bytes = "vec", tag = "2")]
    pub mask: Vec<u8>,
}

/// `FieldMatch.LPM`.
#[derive(Clone, PartialEq, Message)]
pub struct Lpm {
    /// The value.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
    /// The number of bits that count.
    #[prost(int32, tag = "2")]
    pub prefix_len: i32,
}

/// `FieldMatch.Range`.
#[derive(Clone, PartialEq, Message)]
pub struct Range {
    /// The least value.
    #[prost(bytes = "vec", tag = "1")]
    pub low: Vec<u8>,
    /// The greatest value.
    #[prost(bytes = "vec", tag = "2")]
    pub high: Vec<u8>,
}

/// What happens to packets that match. Action profiles are skipped: they are never the driver's.
#[derive(Clone, PartialEq, Message)]
pub struct TableAction {
    /// What.
    #[prost(oneof = "TableActionType", tags = "1")]
    pub r#type: Option<TableActionType>,
}

/// See [`TableAction`].
#[derive(Clone, PartialEq, Oneof)]
pub enum TableActionType {
    /// An action with its parameters.
    #[prost(message, tag = "1")]
    Action(Action),
}

/// An action with its parameters.
#[derive(Clone, PartialEq, Message)]
pub struct Action {
    /// The action of P4Info.
    #[prost(uint32, tag = "1")]
    pub action_id: u32,
    /// The parameters.
    #[prost(message, repeated, tag = "4")]
    pub params: Vec<Param>,
}

/// `Action.Param`.
#[derive(Clone, PartialEq, Message)]
pub struct Param {
    /// The parameter of P4Info.
    #[prost(uint32, tag = "2")]
    pub param_id: u32,
    /// Its value.
    #[prost(bytes = "vec", tag = "3")]
    pub value: Vec<u8>,
}

/// A counter of an array.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct CounterEntry {
    /// The array of P4Info.
    #[prost(uint32, tag = "1")]
    pub counter_id: u32,
    /// Which one; in a request, none asks for all.
    #[prost(message, optional, tag = "2")]
    pub index: Option<Index>,
    /// What it counts.
    #[prost(message, optional, tag = "3")]
    pub data: Option<CounterData>,
}

/// A place in an array.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Index {
    /// From 0.
    #[prost(int64, tag = "1")]
    pub index: i64,
}

/// What a counter counts.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct CounterData {
    /// Bytes.
    #[prost(int64, tag = "1")]
    pub byte_count: i64,
    /// Packets.
    #[prost(int64, tag = "2")]
    pub packet_count: i64,
}

/// A multicast group or a clone session.
#[derive(Clone, PartialEq, Message)]
pub struct PacketReplicationEngineEntry {
    /// What.
    #[prost(oneof = "ReplicationKind", tags = "1, 2")]
    pub r#type: Option<ReplicationKind>,
}

/// See [`PacketReplicationEngineEntry`].
#[derive(Clone, PartialEq, Oneof)]
pub enum ReplicationKind {
    /// A multicast group.
    #[prost(message, tag = "1")]
    MulticastGroup(MulticastGroupEntry),
    /// A clone session.
    #[prost(message, tag = "2")]
    CloneSession(CloneSessionEntry),
}

/// Where the packets of a multicast group go.
#[derive(Clone, PartialEq, Message)]
pub struct MulticastGroupEntry {
    /// Its number; in a request, 0 asks for all.
    #[prost(uint32, tag = "1")]
    pub multicast_group_id: u32,
    /// The copies.
    #[prost(message, repeated, tag = "2")]
    pub replicas: Vec<Replica>,
}

/// Where cloned packets go.
#[derive(Clone, PartialEq, Message)]
pub struct CloneSessionEntry {
    /// Its number, as in the program.
    #[prost(uint32, tag = "1")]
    pub session_id: u32,
    /// The copies.
    #[prost(message, repeated, tag = "2")]
    pub replicas: Vec<Replica>,
    /// Class of service.
    #[prost(uint32, tag = "3")]
    pub class_of_service: u32,
    /// Longest copy; 0: no limit.
    #[prost(int32, tag = "4")]
    pub packet_length_bytes: i32,
}

/// A copy of a packet.
#[derive(Clone, PartialEq, Message)]
pub struct Replica {
    /// Where it goes.
    #[prost(oneof = "PortKind", tags = "1, 3")]
    pub port_kind: Option<PortKind>,
    /// Tells copies to one port apart.
    #[prost(uint32, tag = "2")]
    pub instance: u32,
}

/// See [`Replica`].
#[derive(Clone, PartialEq, Oneof)]
pub enum PortKind {
    /// A number; the form of P4Runtime up to 1.3, which every device takes.
    #[prost(uint32, tag = "1")]
    EgressPort(u32),
    /// Bytes.
    #[prost(bytes, tag = "3")]
    Port(Vec<u8>),
}

/// Loads a program.
#[derive(Clone, PartialEq, Message)]
pub struct SetForwardingPipelineConfigRequest {
    /// The device.
    #[prost(uint64, tag = "1")]
    pub device_id: u64,
    /// That of the primary.
    #[prost(message, optional, tag = "3")]
    pub election_id: Option<Uint128>,
    /// What is done.
    #[prost(enumeration = "ConfigAction", tag = "4")]
    pub action: i32,
    /// The program.
    #[prost(message, optional, tag = "5")]
    pub config: Option<ForwardingPipelineConfig>,
    /// The role of the client.
    #[prost(string, tag = "6")]
    pub role: String,
}

/// `SetForwardingPipelineConfigRequest.Action`, of which the driver uses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ConfigAction {
    /// Invalid.
    Unspecified = 0,
    /// The program is checked, loaded, and put in force.
    VerifyAndCommit = 3,
}

/// Nothing.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct SetForwardingPipelineConfigResponse {}

/// A program.
#[derive(Clone, PartialEq, Message)]
pub struct ForwardingPipelineConfig {
    /// A [`P4Info`], not decoded: what this crate does not know of it is passed on.
    #[prost(bytes = "vec", optional, tag = "1")]
    pub p4info: Option<Vec<u8>>,
    /// In the form of the device.
    #[prost(bytes = "vec", tag = "2")]
    pub p4_device_config: Vec<u8>,
    /// Identifies the configuration; chosen by the client that loaded it.
    #[prost(message, optional, tag = "3")]
    pub cookie: Option<Cookie>,
}

/// `ForwardingPipelineConfig.Cookie`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Cookie {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub cookie: u64,
}

/// Asks for the program.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct GetForwardingPipelineConfigRequest {
    /// The device.
    #[prost(uint64, tag = "1")]
    pub device_id: u64,
    /// What of it.
    #[prost(enumeration = "ResponseType", tag = "2")]
    pub response_type: i32,
}

/// `GetForwardingPipelineConfigRequest.ResponseType`, of which the driver uses two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ResponseType {
    /// Everything.
    All = 0,
    /// Only what a client set to tell programs apart.
    CookieOnly = 1,
    /// P4Info without the device's own form.
    P4infoAndCookie = 2,
}

/// The program.
#[derive(Clone, PartialEq, Message)]
pub struct GetForwardingPipelineConfigResponse {
    /// The program.
    #[prost(message, optional, tag = "1")]
    pub config: Option<ForwardingPipelineConfig>,
}

/// What a program offers to its controller.
#[derive(Clone, PartialEq, Message)]
pub struct P4Info {
    /// Tables.
    #[prost(message, repeated, tag = "2")]
    pub tables: Vec<P4Table>,
    /// Actions.
    #[prost(message, repeated, tag = "3")]
    pub actions: Vec<P4Action>,
    /// Arrays of counters.
    #[prost(message, repeated, tag = "5")]
    pub counters: Vec<P4Counter>,
    /// Counters of tables' entries.
    #[prost(message, repeated, tag = "6")]
    pub direct_counters: Vec<P4DirectCounter>,
}

/// Number and name of an object.
#[derive(Clone, PartialEq, Message)]
pub struct Preamble {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Its full name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its shortest name that is unique.
    #[prost(string, tag = "3")]
    pub alias: String,
}

/// `p4.config.v1.Table`.
#[derive(Clone, PartialEq, Message)]
pub struct P4Table {
    /// Number and name.
    #[prost(message, optional, tag = "1")]
    pub preamble: Option<Preamble>,
    /// The fields of its key.
    #[prost(message, repeated, tag = "2")]
    pub match_fields: Vec<P4MatchField>,
    /// Its actions.
    #[prost(message, repeated, tag = "3")]
    pub action_refs: Vec<P4ActionRef>,
    /// Entries.
    #[prost(int64, tag = "8")]
    pub size: i64,
}

/// `p4.config.v1.MatchField`.
#[derive(Clone, PartialEq, Message)]
pub struct P4MatchField {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its width in bits.
    #[prost(int32, tag = "4")]
    pub bitwidth: i32,
    /// Its kind; not set: one of the program's architecture.
    #[prost(enumeration = "MatchType", tag = "5")]
    pub match_type: i32,
}

/// Kind of a field of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum MatchType {
    /// Another.
    Unspecified = 0,
    /// One value.
    Exact = 2,
    /// A prefix.
    Lpm = 3,
    /// Some bits.
    Ternary = 4,
    /// A range.
    Range = 5,
    /// One value or all.
    Optional = 6,
}

/// `p4.config.v1.ActionRef`.
#[derive(Clone, PartialEq, Message)]
pub struct P4ActionRef {
    /// The action.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Where it may be used.
    #[prost(enumeration = "Scope", tag = "3")]
    pub scope: i32,
}

/// `p4.config.v1.ActionRef.Scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Scope {
    /// Everywhere.
    TableAndDefault = 0,
    /// In entries.
    TableOnly = 1,
    /// In the default entry.
    DefaultOnly = 2,
}

/// `p4.config.v1.Action`.
#[derive(Clone, PartialEq, Message)]
pub struct P4Action {
    /// Number and name.
    #[prost(message, optional, tag = "1")]
    pub preamble: Option<Preamble>,
    /// Its parameters.
    #[prost(message, repeated, tag = "2")]
    pub params: Vec<P4Param>,
}

/// `p4.config.v1.Action.Param`.
#[derive(Clone, PartialEq, Message)]
pub struct P4Param {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its width in bits.
    #[prost(int32, tag = "4")]
    pub bitwidth: i32,
}

/// `p4.config.v1.Counter`.
#[derive(Clone, PartialEq, Message)]
pub struct P4Counter {
    /// Number and name.
    #[prost(message, optional, tag = "1")]
    pub preamble: Option<Preamble>,
    /// Counters.
    #[prost(int64, tag = "3")]
    pub size: i64,
}

/// `p4.config.v1.DirectCounter`.
#[derive(Clone, PartialEq, Message)]
pub struct P4DirectCounter {
    /// Number and name.
    #[prost(message, optional, tag = "1")]
    pub preamble: Option<Preamble>,
    /// The table whose entries it counts.
    #[prost(uint32, tag = "3")]
    pub direct_table_id: u32,
}
