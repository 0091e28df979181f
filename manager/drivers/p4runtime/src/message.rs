//! The messages of P4Runtime 1.4 that the driver uses, and of them the fields that it uses. Others are skipped when they are read.
//!
//! Field numbers are those of `p4/v1/p4runtime.proto`, `p4/config/v1/p4info.proto` and `google/rpc/status.proto`;
//! `tests/fields.rs` compares them with `tests/published/fields.txt`.

use prost::{Enumeration, Message, Oneof};

/// Declares messages. A field has its number, and its kind as `prost` names it.
macro_rules! messages {
    ($($(#[$meta:meta])* struct $name:ident {
        $($(#[$about:meta])* $field:ident: $type:ty = $number:tt ($($kind:tt)+)),* $(,)?
    })+) => {$(
        $(#[$meta])*
        #[derive(Clone, PartialEq, Message)]
        pub struct $name {
            $($(#[$about])* #[prost($($kind)+, tag = $number)] pub $field: $type,)*
        }
    )+};
}

messages! {
    /// The message `google.protobuf.Any`: a message of any type, encoded.
    struct Any {
        /// `type.googleapis.com/` and the name of the message.
        type_url: String = 1 (string),
        /// The encoded message itself.
        value: Vec<u8> = 2 (bytes = "vec"),
    }

    /// The message `google.rpc.Status`: the result of a call.
    struct Status {
        /// A canonical status code.
        code: i32 = 1 (int32),
        /// Description of the error for people.
        message: String = 2 (string),
        /// Details; of a `Write`, an [`Error`] for each update.
        details: Vec<Any> = 3 (message, repeated),
    }

    /// `p4.v1.Error`: the result of one update.
    struct Error {
        /// A canonical code; 0 is success.
        canonical_code: i32 = 1 (int32),
        /// Description of the error for people.
        message: String = 2 (string),
    }

    /// An unsigned number of 128 bits.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    struct Uint128 {
        /// The upper 64 bits.
        high: u64 = 1 (uint64),
        /// The lower 64 bits.
        low: u64 = 2 (uint64),
    }

    /// A role of a client.
    struct Role {
        /// Name of the role.
        name: String = 3 (string),
    }

    /// Requests to become the primary client, and reports the present one.
    struct MasterArbitrationUpdate {
        /// Id of the device.
        device_id: u64 = 1 (uint64),
        /// Role of the client; `None` for the default one.
        role: Option<Role> = 2 (message, optional),
        /// Election id of the client; in an answer, of the primary.
        election_id: Option<Uint128> = 3 (message, optional),
        /// Result in an answer: `OK` for the primary.
        status: Option<Status> = 4 (message, optional),
    }
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

messages! {
    /// A packet that the device processes as if it had arrived at its CPU port.
    struct PacketOut {
        /// Frame of the packet.
        payload: Vec<u8> = 1 (bytes = "vec"),
    }

    /// A packet that the device sent to its CPU port.
    struct PacketIn {
        /// Frame of the packet.
        payload: Vec<u8> = 1 (bytes = "vec"),
    }
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

messages! {
    /// Digests that wait for their acknowledgement.
    struct DigestList {
        /// Id of the digest in P4Info.
        digest_id: u32 = 1 (uint32),
        /// Number of the list.
        list_id: u64 = 2 (uint64),
    }

    /// The acknowledgement of a [`DigestList`].
    struct DigestListAck {
        /// Id of the digest in P4Info.
        digest_id: u32 = 1 (uint32),
        /// Number of the list.
        list_id: u64 = 2 (uint64),
    }

    /// Writes changes of entities.
    struct WriteRequest {
        /// Id of the device.
        device_id: u64 = 1 (uint64),
        /// Election id of the primary.
        election_id: Option<Uint128> = 3 (message, optional),
        /// The changes. A device may execute those of one request in any order.
        updates: Vec<Update> = 4 (message, repeated),
        /// Behaviour after an error.
        atomicity: i32 = 5 (enumeration = "Atomicity"),
        /// The role of the client.
        role: String = 6 (string),
    }
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

messages! {
    /// A change of one entity.
    struct Update {
        /// Type of the change.
        r#type: i32 = 1 (enumeration = "UpdateType"),
        /// Entity that is changed.
        entity: Option<Entity> = 2 (message, optional),
    }
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

messages! {
    /// Queries entities of the device.
    struct ReadRequest {
        /// Id of the device.
        device_id: u64 = 1 (uint64),
        /// Patterns of the entities; fields that are not set match everything.
        entities: Vec<Entity> = 2 (message, repeated),
        /// The role of the client.
        role: String = 3 (string),
    }

    /// A part of the queried entities.
    struct ReadResponse {
        /// Entities that match the query.
        entities: Vec<Entity> = 1 (message, repeated),
    }
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

messages! {
    /// An entry of a table.
    struct TableEntry {
        /// Id of the table.
        table_id: u32 = 1 (uint32),
        /// The key; fields that match everything are left out.
        r#match: Vec<FieldMatch> = 2 (message, repeated),
        /// The action on packets that match.
        action: Option<TableAction> = 3 (message, optional),
        /// The priority among overlapping entries, of which the greatest wins; 0 in tables with exact or prefix keys.
        priority: i32 = 4 (int32),
        /// The entry's direct counter; if set in a request, the response includes it.
        counter_data: Option<CounterData> = 7 (message, optional),
        /// It is the default entry.
        is_default_action: bool = 8 (bool),
        /// Data of the client, which the device stores.
        metadata: Vec<u8> = 11 (bytes = "vec"),
        /// It is part of the program and cannot be changed.
        is_const: bool = 13 (bool),
    }
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

messages! {
    /// The messages `FieldMatch.Exact` and `FieldMatch.Optional`, which have the same field.
    struct Exact {
        /// Value to compare with.
        value: Vec<u8> = 1 (bytes = "vec"),
    }

    /// The message `FieldMatch.Ternary`: a value under a mask.
    struct Ternary {
        /// Value to compare with.
        value: Vec<u8> = 1 (bytes = "vec"),
        /// Mask of the bits that count.
        mask: Vec<u8> = 2 (bytes = "vec"),
    }

    /// The message `FieldMatch.LPM`: a prefix.
    struct Lpm {
        /// Value to compare with.
        value: Vec<u8> = 1 (bytes = "vec"),
        /// Number of leading bits that count.
        prefix_len: i32 = 2 (int32),
    }

    /// The message `FieldMatch.Range`: the values between two limits.
    struct Range {
        /// Least value that matches.
        low: Vec<u8> = 1 (bytes = "vec"),
        /// Greatest value that matches.
        high: Vec<u8> = 2 (bytes = "vec"),
    }
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

messages! {
    /// An action with its parameters.
    struct Action {
        /// Id of the action in P4Info.
        action_id: u32 = 1 (uint32),
        /// Parameters of the action.
        params: Vec<Param> = 4 (message, repeated),
    }

    /// The message `Action.Param`: an argument of an action.
    struct Param {
        /// Id of the parameter in P4Info.
        param_id: u32 = 2 (uint32),
        /// Value of the parameter.
        value: Vec<u8> = 3 (bytes = "vec"),
    }

    /// A counter of an array.
    #[derive(Copy)]
    struct CounterEntry {
        /// Id of the array in P4Info.
        counter_id: u32 = 1 (uint32),
        /// Index of the counter; in a request, `None` queries all.
        index: Option<Index> = 2 (message, optional),
        /// Counts of the counter.
        data: Option<CounterData> = 3 (message, optional),
    }

    /// An index of an array.
    #[derive(Copy)]
    struct Index {
        /// The index, from 0.
        index: i64 = 1 (int64),
    }

    /// The counts of a counter.
    #[derive(Copy)]
    struct CounterData {
        /// Number of bytes counted.
        byte_count: i64 = 1 (int64),
        /// Number of packets counted.
        packet_count: i64 = 2 (int64),
    }
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

messages! {
    /// The copies of packets of a multicast group.
    struct MulticastGroupEntry {
        /// Number of the group; in a request, 0 queries all.
        multicast_group_id: u32 = 1 (uint32),
        /// Copies of each packet.
        replicas: Vec<Replica> = 2 (message, repeated),
    }

    /// The copies of cloned packets.
    struct CloneSessionEntry {
        /// Number of the session, as in the program.
        session_id: u32 = 1 (uint32),
        /// Copies of each packet.
        replicas: Vec<Replica> = 2 (message, repeated),
        /// Class of service of the copies.
        class_of_service: u32 = 3 (uint32),
        /// Longest copy, bytes; 0 for no limit.
        packet_length_bytes: i32 = 4 (int32),
    }
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

messages! {
    /// Loads a program into a device.
    struct SetForwardingPipelineConfigRequest {
        /// Id of the device.
        device_id: u64 = 1 (uint64),
        /// Election id of the primary.
        election_id: Option<Uint128> = 3 (message, optional),
        /// Action of the request.
        action: i32 = 4 (enumeration = "ConfigAction"),
        /// The program to load, with its P4Info.
        config: Option<ForwardingPipelineConfig> = 5 (message, optional),
        /// The role of the client.
        role: String = 6 (string),
    }
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

messages! {
    /// A program with its P4Info.
    struct ForwardingPipelineConfig {
        /// A [`P4Info`], not decoded, so that fields that this crate does not know are passed on.
        p4info: Option<Vec<u8>> = 1 (bytes = "vec", optional),
        /// Program in the form of the device.
        p4_device_config: Vec<u8> = 2 (bytes = "vec"),
        /// Identifies the configuration; chosen by the client that loaded it.
        cookie: Option<Cookie> = 3 (message, optional),
    }

    /// The message `ForwardingPipelineConfig.Cookie`: the identity of a configuration.
    #[derive(Copy)]
    struct Cookie {
        /// Number that identifies the configuration.
        cookie: u64 = 1 (uint64),
    }

    /// Queries the program of a device.
    #[derive(Copy)]
    struct GetForwardingPipelineConfigRequest {
        /// Id of the device.
        device_id: u64 = 1 (uint64),
        /// Part of the program to return.
        response_type: i32 = 2 (enumeration = "ResponseType"),
    }
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

messages! {
    /// The program of a device.
    struct GetForwardingPipelineConfigResponse {
        /// Program with the requested parts.
        config: Option<ForwardingPipelineConfig> = 1 (message, optional),
    }

    /// The objects of a program that its controller can use.
    struct P4Info {
        /// Tables of the program.
        tables: Vec<P4Table> = 2 (message, repeated),
        /// Actions of the program.
        actions: Vec<P4Action> = 3 (message, repeated),
        /// Arrays of counters in the program.
        counters: Vec<P4Counter> = 5 (message, repeated),
        /// Counters of the entries of tables.
        direct_counters: Vec<P4DirectCounter> = 6 (message, repeated),
    }

    /// Id and name of an object.
    struct Preamble {
        /// Id of the object.
        id: u32 = 1 (uint32),
        /// Full name of the object.
        name: String = 2 (string),
        /// Shortest name that is unique.
        alias: String = 3 (string),
    }

    /// The message `p4.config.v1.Table`: a table of a program.
    struct P4Table {
        /// Id and name of the table.
        preamble: Option<Preamble> = 1 (message, optional),
        /// Fields of its key.
        match_fields: Vec<P4MatchField> = 2 (message, repeated),
        /// Actions of its entries.
        action_refs: Vec<P4ActionRef> = 3 (message, repeated),
        /// Capacity of the table, entries.
        size: i64 = 8 (int64),
    }

    /// The message `p4.config.v1.MatchField`: a field of a table's key.
    struct P4MatchField {
        /// Id of the field.
        id: u32 = 1 (uint32),
        /// Name of the field.
        name: String = 2 (string),
        /// Width of the field, bits.
        bitwidth: i32 = 4 (int32),
        /// Kind of match; not set for one of the program's architecture.
        match_type: i32 = 5 (enumeration = "MatchType"),
    }
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

messages! {
    /// The message `p4.config.v1.ActionRef`: an action that a table's entries may use.
    struct P4ActionRef {
        /// Id of the action.
        id: u32 = 1 (uint32),
        /// Entries that may use the action.
        scope: i32 = 3 (enumeration = "Scope"),
    }
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

messages! {
    /// The message `p4.config.v1.Action`: an action of a program.
    struct P4Action {
        /// Id and name of the action.
        preamble: Option<Preamble> = 1 (message, optional),
        /// Parameters of the action.
        params: Vec<P4Param> = 2 (message, repeated),
    }

    /// The message `p4.config.v1.Action.Param`: a parameter of an action.
    struct P4Param {
        /// Id of the parameter.
        id: u32 = 1 (uint32),
        /// Name of the parameter.
        name: String = 2 (string),
        /// Width of the parameter, bits.
        bitwidth: i32 = 4 (int32),
    }

    /// The message `p4.config.v1.Counter`: an array of counters.
    struct P4Counter {
        /// Id and name of the array.
        preamble: Option<Preamble> = 1 (message, optional),
        /// Number of counters in the array.
        size: i64 = 3 (int64),
    }

    /// The message `p4.config.v1.DirectCounter`: the counters of a table's entries.
    struct P4DirectCounter {
        /// Id and name of the counter.
        preamble: Option<Preamble> = 1 (message, optional),
        /// The table whose entries it counts.
        direct_table_id: u32 = 3 (uint32),
    }
}
