//! Protobuf messages of gNMI 0.10 with the fields that the driver uses; other fields are ignored when decoding.
//!
//! The field numbers are from `gnmi.proto` and `gnmi_ext.proto`. The test `tests/fields.rs` compares them with
//! `tests/published/fields.txt`.

use std::collections::BTreeMap;

use prost::{Enumeration, Message, Oneof};

/// The message `gnmi.Notification`: values at one point in time.
#[derive(Clone, PartialEq, Message)]
pub struct Notification {
    /// Time in ns since 1970.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    /// Prefix of all paths.
    #[prost(message, optional, tag = "2")]
    pub prefix: Option<Path>,
    /// Paths with their values.
    #[prost(message, repeated, tag = "4")]
    pub update: Vec<Update>,
    /// Paths whose values were deleted.
    #[prost(message, repeated, tag = "5")]
    pub delete: Vec<Path>,
}

/// The message `gnmi.Update`: a path with its value.
#[derive(Clone, PartialEq, Message)]
pub struct Update {
    /// Path of the value.
    #[prost(message, optional, tag = "1")]
    pub path: Option<Path>,
    /// Value at the path.
    #[prost(message, optional, tag = "3")]
    pub val: Option<TypedValue>,
}

/// The message `gnmi.TypedValue`: a value of any type.
#[derive(Clone, PartialEq, Message)]
pub struct TypedValue {
    /// Value of any type.
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 10, 11, 12, 14")]
    pub value: Option<Value>,
}

/// A value. Other variants of the protocol decode as no value.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// A string in UTF-8.
    #[prost(string, tag = "1")]
    StringVal(String),
    /// A signed 64-bit integer.
    #[prost(int64, tag = "2")]
    IntVal(i64),
    /// An unsigned 64-bit integer.
    #[prost(uint64, tag = "3")]
    UintVal(u64),
    /// A Boolean value, `true` or `false`.
    #[prost(bool, tag = "4")]
    BoolVal(bool),
    /// A subtree as JSON.
    #[prost(bytes, tag = "10")]
    JsonVal(Vec<u8>),
    /// A subtree as JSON according to RFC 7951.
    #[prost(bytes, tag = "11")]
    JsonIetfVal(Vec<u8>),
    /// A string in ASCII.
    #[prost(string, tag = "12")]
    AsciiVal(String),
    /// A double-precision floating-point number.
    #[prost(double, tag = "14")]
    DoubleVal(f64),
}

/// The message `gnmi.Path`: a path in a data tree.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Path {
    /// Name of the schema, such as `openconfig`; usually empty.
    #[prost(string, tag = "2")]
    pub origin: String,
    /// Steps of the path.
    #[prost(message, repeated, tag = "3")]
    pub elem: Vec<PathElem>,
    /// Name of the device behind a gateway.
    #[prost(string, tag = "4")]
    pub target: String,
}

/// The message `gnmi.PathElem`: a step of a path.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct PathElem {
    /// Name of the step.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Keys that select an entry of a list.
    #[prost(btree_map = "string, string", tag = "2")]
    pub key: BTreeMap<String, String>,
}

/// The enumeration `gnmi.Encoding`: the encodings of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Encoding {
    /// JSON with any conventions.
    Json = 0,
    /// Encoding by the type of each value.
    Proto = 2,
    /// JSON according to RFC 7951.
    JsonIetf = 4,
}

/// The message `gnmi.CapabilityRequest`, which has no fields.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct CapabilityRequest {}

/// The message `gnmi.CapabilityResponse`: models, encodings and version of a device.
#[derive(Clone, PartialEq, Message)]
pub struct CapabilityResponse {
    /// The models of the device.
    #[prost(message, repeated, tag = "1")]
    pub supported_models: Vec<ModelData>,
    /// The encodings that the device supports.
    #[prost(enumeration = "Encoding", repeated, tag = "2")]
    pub supported_encodings: Vec<i32>,
    /// The version of gNMI.
    #[prost(string, tag = "3")]
    pub gnmi_version: String,
}

/// The message `gnmi.ModelData`: a model that a device supports.
#[derive(Clone, PartialEq, Message)]
pub struct ModelData {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The message `gnmi.GetRequest`: a query for the values at some paths.
#[derive(Clone, PartialEq, Message)]
pub struct GetRequest {
    /// Paths that are queried.
    #[prost(message, repeated, tag = "2")]
    pub path: Vec<Path>,
    /// Type of the data; 0 requests both configuration and state.
    #[prost(int32, tag = "3")]
    pub r#type: i32,
    /// Encoding of the response.
    #[prost(enumeration = "Encoding", tag = "5")]
    pub encoding: i32,
}

/// The message `gnmi.GetResponse`: the values that were queried.
#[derive(Clone, PartialEq, Message)]
pub struct GetResponse {
    /// Values at the paths.
    #[prost(message, repeated, tag = "1")]
    pub notification: Vec<Notification>,
}

/// The message `gnmi.SetRequest`: one transaction.
#[derive(Clone, PartialEq, Message)]
pub struct SetRequest {
    /// Paths to delete; executed first.
    #[prost(message, repeated, tag = "2")]
    pub delete: Vec<Path>,
    /// Values to replace; executed after the deletions.
    #[prost(message, repeated, tag = "3")]
    pub replace: Vec<Update>,
    /// Extensions of the request.
    #[prost(message, repeated, tag = "5")]
    pub extension: Vec<Extension>,
}

/// The message `gnmi.SetResponse`: the result of a transaction.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct SetResponse {
    /// Time in ns since 1970.
    #[prost(int64, tag = "4")]
    pub timestamp: i64,
}

/// The message `gnmi.SubscribeRequest`: the start of a subscription.
#[derive(Clone, PartialEq, Message)]
pub struct SubscribeRequest {
    /// List of the subscriptions.
    #[prost(message, optional, tag = "1")]
    pub subscribe: Option<SubscriptionList>,
}

/// The message `gnmi.SubscriptionList`: paths with their mode and encoding.
#[derive(Clone, PartialEq, Message)]
pub struct SubscriptionList {
    /// Subscriptions, one for each path.
    #[prost(message, repeated, tag = "2")]
    pub subscription: Vec<Subscription>,
    /// Mode of the list; 0 is `STREAM`.
    #[prost(int32, tag = "5")]
    pub mode: i32,
    /// Encoding of the values.
    #[prost(enumeration = "Encoding", tag = "8")]
    pub encoding: i32,
}

/// The message `gnmi.Subscription`: a path with the mode of its updates.
#[derive(Clone, PartialEq, Message)]
pub struct Subscription {
    /// Path to subscribe to.
    #[prost(message, optional, tag = "1")]
    pub path: Option<Path>,
    /// Mode that decides when values are sent.
    #[prost(enumeration = "SubscriptionMode", tag = "2")]
    pub mode: i32,
    /// Interval between samples in mode `SAMPLE`, ns.
    #[prost(uint64, tag = "3")]
    pub sample_interval: u64,
}

/// The enumeration `gnmi.SubscriptionMode`: when values are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SubscriptionMode {
    /// The device decides when values are sent.
    TargetDefined = 0,
    /// Values are sent when they change.
    OnChange = 1,
    /// Values are sent at intervals.
    Sample = 2,
}

/// The message `gnmi.SubscribeResponse`: changed values, or the end of the first round.
#[derive(Clone, PartialEq, Message)]
pub struct SubscribeResponse {
    /// Content of the response.
    #[prost(oneof = "Response", tags = "1, 3")]
    pub response: Option<Response>,
}

/// The content of a [`SubscribeResponse`].
#[derive(Clone, PartialEq, Oneof)]
pub enum Response {
    /// Changed or sampled values.
    #[prost(message, tag = "1")]
    Update(Notification),
    /// All current values have been sent once.
    #[prost(bool, tag = "3")]
    SyncResponse(bool),
}

/// The message `gnmi_ext.Extension`: an extension of a request.
#[derive(Clone, PartialEq, Message)]
pub struct Extension {
    /// Election of the manager that may write.
    #[prost(message, optional, tag = "2")]
    pub master_arbitration: Option<MasterArbitration>,
}

/// The message `gnmi_ext.MasterArbitration`: the sender's election ID.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct MasterArbitration {
    /// Election id; the client with the highest one may write.
    #[prost(message, optional, tag = "2")]
    pub election_id: Option<Uint128>,
}

/// The message `gnmi_ext.Uint128`: a number of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct Uint128 {
    /// The upper 64 bits.
    #[prost(uint64, tag = "1")]
    pub high: u64,
    /// The lower 64 bits.
    #[prost(uint64, tag = "2")]
    pub low: u64,
}
