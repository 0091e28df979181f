//! The messages of gNMI 0.10 that the driver uses, and of them the fields that it uses. Others are skipped when they are read.
//!
//! Field numbers are those of `gnmi.proto` and `gnmi_ext.proto`; `tests/fields.rs` compares them with `tests/published/fields.txt`.

use std::collections::BTreeMap;

use prost::{Enumeration, Message, Oneof};

/// `gnmi.Notification`.
#[derive(Clone, PartialEq, Message)]
pub struct Notification {
    /// ns since 1970.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    /// Before all paths.
    #[prost(message, optional, tag = "2")]
    pub prefix: Option<Path>,
    /// Values.
    #[prost(message, repeated, tag = "4")]
    pub update: Vec<Update>,
    /// Paths without values.
    #[prost(message, repeated, tag = "5")]
    pub delete: Vec<Path>,
}

/// `gnmi.Update`.
#[derive(Clone, PartialEq, Message)]
pub struct Update {
    /// Where.
    #[prost(message, optional, tag = "1")]
    pub path: Option<Path>,
    /// What.
    #[prost(message, optional, tag = "3")]
    pub val: Option<TypedValue>,
}

/// `gnmi.TypedValue`.
#[derive(Clone, PartialEq, Message)]
pub struct TypedValue {
    /// The value.
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 10, 11, 12, 14")]
    pub value: Option<Value>,
}

/// A value; other kinds are read as none.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// Text.
    #[prost(string, tag = "1")]
    StringVal(String),
    /// A number.
    #[prost(int64, tag = "2")]
    IntVal(i64),
    /// A number.
    #[prost(uint64, tag = "3")]
    UintVal(u64),
    /// A truth value.
    #[prost(bool, tag = "4")]
    BoolVal(bool),
    /// JSON.
    #[prost(bytes, tag = "10")]
    JsonVal(Vec<u8>),
    /// JSON as in RFC 7951.
    #[prost(bytes, tag = "11")]
    JsonIetfVal(Vec<u8>),
    /// Text.
    #[prost(string, tag = "12")]
    AsciiVal(String),
    /// A number.
    #[prost(double, tag = "14")]
    DoubleVal(f64),
}

/// `gnmi.Path`.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Path {
    /// Which tree.
    #[prost(string, tag = "2")]
    pub origin: String,
    /// The steps.
    #[prost(message, repeated, tag = "3")]
    pub elem: Vec<PathElem>,
    /// Which device, behind a gateway.
    #[prost(string, tag = "4")]
    pub target: String,
}

/// `gnmi.PathElem`.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct PathElem {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The keys of an entry of a list.
    #[prost(btree_map = "string, string", tag = "2")]
    pub key: BTreeMap<String, String>,
}

/// `gnmi.Encoding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Encoding {
    /// JSON.
    Json = 0,
    /// By the type of a value.
    Proto = 2,
    /// JSON as in RFC 7951.
    JsonIetf = 4,
}

/// `gnmi.CapabilityRequest`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct CapabilityRequest {}

/// `gnmi.CapabilityResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct CapabilityResponse {
    /// The models of the device.
    #[prost(message, repeated, tag = "1")]
    pub supported_models: Vec<ModelData>,
    /// The encodings that it understands.
    #[prost(enumeration = "Encoding", repeated, tag = "2")]
    pub supported_encodings: Vec<i32>,
    /// The version of gNMI.
    #[prost(string, tag = "3")]
    pub gnmi_version: String,
}

/// `gnmi.ModelData`.
#[derive(Clone, PartialEq, Message)]
pub struct ModelData {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// `gnmi.GetRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct GetRequest {
    /// The paths.
    #[prost(message, repeated, tag = "2")]
    pub path: Vec<Path>,
    /// 0: configuration and state.
    #[prost(int32, tag = "3")]
    pub r#type: i32,
    /// Of the response.
    #[prost(enumeration = "Encoding", tag = "5")]
    pub encoding: i32,
}

/// `gnmi.GetResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct GetResponse {
    /// The values.
    #[prost(message, repeated, tag = "1")]
    pub notification: Vec<Notification>,
}

/// `gnmi.SetRequest`: one transaction.
#[derive(Clone, PartialEq, Message)]
pub struct SetRequest {
    /// Executed first.
    #[prost(message, repeated, tag = "2")]
    pub delete: Vec<Path>,
    /// Executed next.
    #[prost(message, repeated, tag = "3")]
    pub replace: Vec<Update>,
    /// Extensions.
    #[prost(message, repeated, tag = "5")]
    pub extension: Vec<Extension>,
}

/// `gnmi.SetResponse`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct SetResponse {
    /// ns since 1970.
    #[prost(int64, tag = "4")]
    pub timestamp: i64,
}

/// `gnmi.SubscribeRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct SubscribeRequest {
    /// To what.
    #[prost(message, optional, tag = "1")]
    pub subscribe: Option<SubscriptionList>,
}

/// `gnmi.SubscriptionList`.
#[derive(Clone, PartialEq, Message)]
pub struct SubscriptionList {
    /// The subscriptions.
    #[prost(message, repeated, tag = "2")]
    pub subscription: Vec<Subscription>,
    /// 0: a stream.
    #[prost(int32, tag = "5")]
    pub mode: i32,
    /// Of the values.
    #[prost(enumeration = "Encoding", tag = "8")]
    pub encoding: i32,
}

/// `gnmi.Subscription`.
#[derive(Clone, PartialEq, Message)]
pub struct Subscription {
    /// The path.
    #[prost(message, optional, tag = "1")]
    pub path: Option<Path>,
    /// When values are sent.
    #[prost(enumeration = "SubscriptionMode", tag = "2")]
    pub mode: i32,
    /// ns between two samples.
    #[prost(uint64, tag = "3")]
    pub sample_interval: u64,
}

/// `gnmi.SubscriptionMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SubscriptionMode {
    /// As the device decides.
    TargetDefined = 0,
    /// When they change.
    OnChange = 1,
    /// At intervals.
    Sample = 2,
}

/// `gnmi.SubscribeResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct SubscribeResponse {
    /// What it is.
    #[prost(oneof = "Response", tags = "1, 3")]
    pub response: Option<Response>,
}

/// The content of a [`SubscribeResponse`].
#[derive(Clone, PartialEq, Oneof)]
pub enum Response {
    /// Values.
    #[prost(message, tag = "1")]
    Update(Notification),
    /// All values have been sent once.
    #[prost(bool, tag = "3")]
    SyncResponse(bool),
}

/// `gnmi_ext.Extension`.
#[derive(Clone, PartialEq, Message)]
pub struct Extension {
    /// Which manager may write.
    #[prost(message, optional, tag = "2")]
    pub master_arbitration: Option<MasterArbitration>,
}

/// `gnmi_ext.MasterArbitration`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct MasterArbitration {
    /// The highest one may write.
    #[prost(message, optional, tag = "2")]
    pub election_id: Option<Uint128>,
}

/// `gnmi_ext.Uint128`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct Uint128 {
    /// The upper 64 bits.
    #[prost(uint64, tag = "1")]
    pub high: u64,
    /// The lower 64 bits.
    #[prost(uint64, tag = "2")]
    pub low: u64,
}
