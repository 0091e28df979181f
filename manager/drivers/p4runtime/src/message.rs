//! Protobuf messages of P4Runtime 1.4 with the fields that the driver uses; other fields are ignored when decoding.
//!
//! The field numbers are from `p4/v1/p4runtime.proto`, `p4/config/v1/p4info.proto` and `google/rpc/status.proto`. The test
//! `tests/fields.rs` compares them with `tests/published/fields.txt`.

use prost::{Enumeration, Message, Oneof};

/// Declares messages. Each field has its type, its number, and its kind in `prost`'s notation.
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
        /// The prefix `type.googleapis.com/` and the message's name.
        type_url: String = 1 (string),
        /// The encoded message itself.
        value: Vec<u8> = 2 (bytes = "vec"),
    }

    /// The message `google.rpc.Status`: the result of a call.
    struct Status {
        /// A gRPC status code.
        code: i32 = 1 (int32),
        /// Description of the error, for display.
        message: String = 2 (string),
        /// Details. For a failed `Write`: one [`Error`] per update.
        details: Vec<Any> = 3 (message, repeated),
    }

    /// The message `p4.v1.Error`: the result of one update.
    struct Error {
        /// A gRPC status code; 0 for success.
        canonical_code: i32 = 1 (int32),
        /// Description of the error, for display.
        message: String = 2 (string),
    }

    /// The message `p4.v1.Uint128`: an unsigned 128-bit number.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    struct Uint128 {
        /// The upper 64 bits.
        high: u64 = 1 (uint64),
        /// The lower 64 bits.
        low: u64 = 2 (uint64),
    }

    /// The message `p4.v1.Role`: a client's role in the arbitration.
    struct Role {
        /// Name of the role.
        name: String = 3 (string),
    }

    /// The message `p4.v1.MasterArbitrationUpdate`: requests to become the primary client; a response reports the current one.
    struct MasterArbitrationUpdate {
        /// Id of the device.
        device_id: u64 = 1 (uint64),
        /// Role of the client; `None` for the default role.
        role: Option<Role> = 2 (message, optional),
        /// Election id of the client; in a response, the primary's.
        election_id: Option<Uint128> = 3 (message, optional),
        /// Result, in a response; `OK` for the primary.
        status: Option<Status> = 4 (message, optional),
    }
}

/// The message `p4.v1.StreamMessageRequest`, from the client on its stream.
#[derive(Clone, PartialEq, Message)]
pub struct StreamMessageRequest {
    /// Content of the message.
    #[prost(oneof = "StreamRequest", tags = "1, 2, 3")]
    pub update: Option<StreamRequest>,
}

/// The content of a [`StreamMessageRequest`].
#[derive(Clone, PartialEq, Oneof)]
pub enum StreamRequest {
    /// Requests to become the primary client.
    #[prost(message, tag = "1")]
    Arbitration(MasterArbitrationUpdate),
    /// A packet to inject into the device.
    #[prost(message, tag = "2")]
    Packet(PacketOut),
    /// Acknowledges a list of digests.
    #[prost(message, tag = "3")]
    DigestAck(DigestListAck),
}

messages! {
    /// The message `p4.v1.PacketOut`: a packet that the device processes as if it had arrived at its CPU port.
    struct PacketOut {
        /// The complete Ethernet frame.
        payload: Vec<u8> = 1 (bytes = "vec"),
    }

    /// The message `p4.v1.PacketIn`: a packet that the device sent to its CPU port.
    struct PacketIn {
        /// The complete Ethernet frame.
        payload: Vec<u8> = 1 (bytes = "vec"),
    }
}

/// The message `p4.v1.StreamMessageResponse`, from the device on the client's stream. Other notifications decode as `None`.
#[derive(Clone, PartialEq, Message)]
pub struct StreamMessageResponse {
    /// Content of the message.
    #[prost(oneof = "StreamResponse", tags = "1, 2, 3")]
    pub update: Option<StreamResponse>,
}

/// The content of a [`StreamMessageResponse`].
#[derive(Clone, PartialEq, Oneof)]
pub enum StreamResponse {
    /// Reports the primary client of the role.
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
    /// The message `p4.v1.DigestList`: digests that the client must acknowledge.
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

    /// The message `p4.v1.WriteRequest`: changes of entities.
    struct WriteRequest {
        /// Id of the device.
        device_id: u64 = 1 (uint64),
        /// Election id of the primary.
        election_id: Option<Uint128> = 3 (message, optional),
        /// The changes. A device may execute the changes of one request in any order.
        updates: Vec<Update> = 4 (message, repeated),
        /// Behaviour if a change fails.
        atomicity: i32 = 5 (enumeration = "Atomicity"),
        /// The role of the client.
        role: String = 6 (string),
    }
}

/// The enumeration `p4.v1.WriteRequest.Atomicity`: what happens to the other updates if one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Atomicity {
    /// The others are executed. Every device supports this.
    ContinueOnError = 0,
    /// No update is executed.
    RollbackOnError = 1,
    /// No update is executed, and no packet is processed with only some of them.
    DataplaneAtomic = 2,
}

/// The message `p4.v1.WriteResponse`, which is empty.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct WriteResponse {}

messages! {
    /// The message `p4.v1.Update`: a change of one entity.
    struct Update {
        /// Type of the change.
        r#type: i32 = 1 (enumeration = "UpdateType"),
        /// Entity that is changed.
        entity: Option<Entity> = 2 (message, optional),
    }
}

/// The enumeration `p4.v1.Update.Type`: the type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum UpdateType {
    /// The value 0, which requests never use.
    Unspecified = 0,
    /// A new entity is inserted.
    Insert = 1,
    /// An existing entity gets another value.
    Modify = 2,
    /// An existing entity is deleted.
    Delete = 3,
}

messages! {
    /// The message `p4.v1.ReadRequest`: a query for entities.
    struct ReadRequest {
        /// Id of the device.
        device_id: u64 = 1 (uint64),
        /// Patterns for the entities; unset fields match everything.
        entities: Vec<Entity> = 2 (message, repeated),
        /// The role of the client.
        role: String = 3 (string),
    }

    /// The message `p4.v1.ReadResponse`: a part of the queried entities.
    struct ReadResponse {
        /// Entities that match the query.
        entities: Vec<Entity> = 1 (message, repeated),
    }
}

/// The message `p4.v1.Entity`: an object that can be written and read.
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
    /// A counter, or all counters of an array.
    #[prost(message, tag = "7")]
    Counter(CounterEntry),
    /// A clone session or multicast group.
    #[prost(message, tag = "9")]
    PacketReplication(PacketReplicationEngineEntry),
}

messages! {
    /// The message `p4.v1.TableEntry`: an entry of a table.
    struct TableEntry {
        /// Id of the table.
        table_id: u32 = 1 (uint32),
        /// The key; fields that match everything are omitted.
        r#match: Vec<FieldMatch> = 2 (message, repeated),
        /// The action for packets that match.
        action: Option<TableAction> = 3 (message, optional),
        /// Priority among overlapping entries, where the greatest wins; 0 in tables with only exact or LPM fields.
        priority: i32 = 4 (int32),
        /// The entry's direct counter; if set in a request, the response includes it.
        counter_data: Option<CounterData> = 7 (message, optional),
        /// True for the table's default entry.
        is_default_action: bool = 8 (bool),
        /// Opaque data of the client that the device stores.
        metadata: Vec<u8> = 11 (bytes = "vec"),
        /// True for a constant entry, which is part of the program.
        is_const: bool = 13 (bool),
    }
}

/// The message `p4.v1.FieldMatch`: a match field with its value.
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
    /// A value under a bit mask.
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

    /// The message `FieldMatch.Ternary`: a value under a bit mask.
    struct Ternary {
        /// Value to compare with.
        value: Vec<u8> = 1 (bytes = "vec"),
        /// Mask with ones for the bits to compare.
        mask: Vec<u8> = 2 (bytes = "vec"),
    }

    /// The message `FieldMatch.LPM`: a prefix.
    struct Lpm {
        /// Value to compare with.
        value: Vec<u8> = 1 (bytes = "vec"),
        /// Length of the prefix, bits.
        prefix_len: i32 = 2 (int32),
    }

    /// The message `FieldMatch.Range`: an inclusive range of values.
    struct Range {
        /// Lowest value that matches.
        low: Vec<u8> = 1 (bytes = "vec"),
        /// Highest value that matches.
        high: Vec<u8> = 2 (bytes = "vec"),
    }
}

/// The message `p4.v1.TableAction`. Action profiles decode as `None`, because the driver never writes them.
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
    /// The message `p4.v1.Action`: an action with its parameters.
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

    /// The message `p4.v1.CounterEntry`: a counter of an array.
    #[derive(Copy)]
    struct CounterEntry {
        /// Id of the array in P4Info.
        counter_id: u32 = 1 (uint32),
        /// Index of the counter; `None` in a request queries all.
        index: Option<Index> = 2 (message, optional),
        /// Counts of the counter.
        data: Option<CounterData> = 3 (message, optional),
    }

    /// The message `p4.v1.Index`: an index of an array.
    #[derive(Copy)]
    struct Index {
        /// The index, from 0.
        index: i64 = 1 (int64),
    }

    /// The message `p4.v1.CounterData`: bytes and packets counted.
    #[derive(Copy)]
    struct CounterData {
        /// Number of bytes counted.
        byte_count: i64 = 1 (int64),
        /// Number of packets counted.
        packet_count: i64 = 2 (int64),
    }
}

/// The message `p4.v1.PacketReplicationEngineEntry`: a multicast group or a clone session.
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
    /// The message `p4.v1.MulticastGroupEntry`: the copies of a group's packets.
    struct MulticastGroupEntry {
        /// Number of the group; 0 in a request queries all.
        multicast_group_id: u32 = 1 (uint32),
        /// Copies of each packet.
        replicas: Vec<Replica> = 2 (message, repeated),
    }

    /// The message `p4.v1.CloneSessionEntry`: the copies of cloned packets.
    struct CloneSessionEntry {
        /// Number of the session, which the program refers to.
        session_id: u32 = 1 (uint32),
        /// Copies of each packet.
        replicas: Vec<Replica> = 2 (message, repeated),
        /// Class of service of the copies.
        class_of_service: u32 = 3 (uint32),
        /// Maximum length of a copy, bytes; 0 for no limit.
        packet_length_bytes: i32 = 4 (int32),
    }
}

/// The message `p4.v1.Replica`: one copy of a packet.
#[derive(Clone, PartialEq, Message)]
pub struct Replica {
    /// Egress port of the copy.
    #[prost(oneof = "PortKind", tags = "1, 3")]
    pub port_kind: Option<PortKind>,
    /// Number that distinguishes several copies to the same port.
    #[prost(uint32, tag = "2")]
    pub instance: u32,
}

/// The port of a [`Replica`].
#[derive(Clone, PartialEq, Oneof)]
pub enum PortKind {
    /// Port as a number, the form up to P4Runtime 1.3, which every device accepts.
    #[prost(uint32, tag = "1")]
    EgressPort(u32),
    /// Port number as bytes, big-endian.
    #[prost(bytes, tag = "3")]
    Port(Vec<u8>),
}

messages! {
    /// The message `p4.v1.SetForwardingPipelineConfigRequest`: loads a program.
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

/// The enumeration `SetForwardingPipelineConfigRequest.Action`, limited to the value that the driver uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ConfigAction {
    /// The value 0, which requests never use.
    Unspecified = 0,
    /// The device checks, loads and activates the program.
    VerifyAndCommit = 3,
}

/// The message `p4.v1.SetForwardingPipelineConfigResponse`, which is empty.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct SetForwardingPipelineConfigResponse {}

messages! {
    /// The message `p4.v1.ForwardingPipelineConfig`: a program with its P4Info.
    struct ForwardingPipelineConfig {
        /// The encoded [`P4Info`]. It is not decoded, so that fields unknown to this crate are passed on.
        p4info: Option<Vec<u8>> = 1 (bytes = "vec", optional),
        /// Program in the device-specific format.
        p4_device_config: Vec<u8> = 2 (bytes = "vec"),
        /// Number that the loading client chose to identify the configuration.
        cookie: Option<Cookie> = 3 (message, optional),
    }

    /// The message `ForwardingPipelineConfig.Cookie`: the identity of a configuration.
    #[derive(Copy)]
    struct Cookie {
        /// Number that identifies the configuration.
        cookie: u64 = 1 (uint64),
    }

    /// The message `p4.v1.GetForwardingPipelineConfigRequest`: queries the device's program.
    #[derive(Copy)]
    struct GetForwardingPipelineConfigRequest {
        /// Id of the device.
        device_id: u64 = 1 (uint64),
        /// Part of the program to return.
        response_type: i32 = 2 (enumeration = "ResponseType"),
    }
}

/// The enumeration `GetForwardingPipelineConfigRequest.ResponseType`: the parts of the configuration to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ResponseType {
    /// All parts of the program.
    All = 0,
    /// Only the cookie, which identifies the program.
    CookieOnly = 1,
    /// P4Info and cookie, without the device-specific format.
    P4infoAndCookie = 2,
}

messages! {
    /// The message `p4.v1.GetForwardingPipelineConfigResponse`: the device's program.
    struct GetForwardingPipelineConfigResponse {
        /// Program, with the requested parts.
        config: Option<ForwardingPipelineConfig> = 1 (message, optional),
    }

    /// The message `p4.config.v1.P4Info`: the objects of a program that a controller can use.
    struct P4Info {
        /// Tables of the program.
        tables: Vec<P4Table> = 2 (message, repeated),
        /// Actions of the program.
        actions: Vec<P4Action> = 3 (message, repeated),
        /// Arrays of counters in the program.
        counters: Vec<P4Counter> = 5 (message, repeated),
        /// Direct counters, which count per table entry.
        direct_counters: Vec<P4DirectCounter> = 6 (message, repeated),
    }

    /// The message `p4.config.v1.Preamble`: id and names of an object.
    struct Preamble {
        /// Id of the object.
        id: u32 = 1 (uint32),
        /// Full name of the object.
        name: String = 2 (string),
        /// Shortest unique suffix of the name.
        alias: String = 3 (string),
    }

    /// The message `p4.config.v1.Table`: a table of a program.
    struct P4Table {
        /// Id and name of the table.
        preamble: Option<Preamble> = 1 (message, optional),
        /// Fields of its key.
        match_fields: Vec<P4MatchField> = 2 (message, repeated),
        /// Actions that its entries may use.
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
        /// Kind of match; unset for an architecture-specific kind.
        match_type: i32 = 5 (enumeration = "MatchType"),
    }
}

/// The enumeration `p4.config.v1.MatchField.MatchType`: how a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum MatchType {
    /// The value 0, for architecture-specific kinds.
    Unspecified = 0,
    /// A single exact value.
    Exact = 2,
    /// A prefix with its length.
    Lpm = 3,
    /// A value under a bit mask.
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
        /// The entries in which the action may be used.
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
