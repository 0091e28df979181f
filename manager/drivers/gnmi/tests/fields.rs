//! Field numbers and values of enumerations equal those of the published `gnmi.proto` and `gnmi_ext.proto`.

#![allow(clippy::unwrap_used, clippy::needless_update, reason = "a test panics")]

use gnmi::message::*;
use prost::Message;

/// `MESSAGE FIELD NUMBER`, one per line, made from the published files (gNMI 0.10.0).
const PUBLISHED: &str = include_str!("published/fields.txt");

fn published(message: &str, field: &str) -> u64 {
    let mut lines = PUBLISHED.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = lines.find(|words| words[0] == message && words[1] == field);
    found.unwrap_or_else(|| panic!("{message} has no {field}"))[2]
        .parse()
        .unwrap()
}

/// The number of the first field of a message in which only that one is set.
fn number(message: &impl Message) -> u64 {
    let bytes = message.encode_to_vec();
    prost::encoding::decode_varint(&mut bytes.as_slice()).unwrap() >> 3
}

macro_rules! fields {
    ($message:ident $full:literal: $($field:ident = $value:expr),+ $(,)?) => {$(
        let name = stringify!($field).trim_start_matches("r#").replace("gnmi_version", "gNMI_version");
        let message = $message { $field: $value, ..$message::default() };
        assert_eq!(number(&message), published($full, &name), "{} {name}", $full);
    )+};
}

fn text() -> String {
    "a".to_owned()
}

#[test]
fn of_messages() {
    fields!(Notification "gnmi.Notification": timestamp = 1, prefix = Some(Path::default()),
        update = vec![Update::default()], delete = vec![Path::default()]);
    fields!(Update "gnmi.Update": path = Some(Path::default()), val = Some(TypedValue::default()));
    for (field, value) in [
        ("string_val", Value::StringVal(text())),
        ("int_val", Value::IntVal(1)),
        ("uint_val", Value::UintVal(1)),
        ("bool_val", Value::BoolVal(true)),
        ("json_val", Value::JsonVal(vec![1])),
        ("json_ietf_val", Value::JsonIetfVal(vec![1])),
        ("ascii_val", Value::AsciiVal(text())),
        ("double_val", Value::DoubleVal(1.0)),
    ] {
        let message = TypedValue { value: Some(value) };
        assert_eq!(number(&message), published("gnmi.TypedValue", field), "{field}");
    }
    fields!(Path "gnmi.Path": origin = text(), elem = vec![PathElem::default()], target = text());
    fields!(PathElem "gnmi.PathElem": name = text(), key = [(text(), text())].into());
    fields!(CapabilityResponse "gnmi.CapabilityResponse": supported_models = vec![ModelData::default()],
        supported_encodings = vec![1], gnmi_version = text());
    fields!(ModelData "gnmi.ModelData": name = text());
    fields!(GetRequest "gnmi.GetRequest": path = vec![Path::default()], r#type = 1, encoding = 1);
    fields!(GetResponse "gnmi.GetResponse": notification = vec![Notification::default()]);
    fields!(SetRequest "gnmi.SetRequest": delete = vec![Path::default()], replace = vec![Update::default()],
        extension = vec![Extension::default()]);
    fields!(SetResponse "gnmi.SetResponse": timestamp = 1);
    fields!(SubscribeRequest "gnmi.SubscribeRequest": subscribe = Some(SubscriptionList::default()));
    fields!(SubscriptionList "gnmi.SubscriptionList": subscription = vec![Subscription::default()], mode = 1,
        encoding = 1);
    fields!(Subscription "gnmi.Subscription": path = Some(Path::default()), mode = 1, sample_interval = 1);
    for (field, response) in [
        ("update", Response::Update(Notification::default())),
        ("sync_response", Response::SyncResponse(true)),
    ] {
        let message = SubscribeResponse {
            response: Some(response),
        };
        assert_eq!(
            number(&message),
            published("gnmi.SubscribeResponse", field),
            "{field}"
        );
    }
}

#[test]
fn of_extensions_and_enumerations() {
    fields!(Extension "gnmi_ext.Extension": master_arbitration = Some(MasterArbitration::default()));
    fields!(MasterArbitration "gnmi_ext.MasterArbitration": election_id = Some(Uint128::default()));
    fields!(Uint128 "gnmi_ext.Uint128": high = 1, low = 1);
    for (name, value) in [
        ("JSON", Encoding::Json),
        ("PROTO", Encoding::Proto),
        ("JSON_IETF", Encoding::JsonIetf),
    ] {
        assert_eq!(published("gnmi.Encoding", name), value as u64);
    }
    for (name, value) in [
        ("TARGET_DEFINED", SubscriptionMode::TargetDefined),
        ("ON_CHANGE", SubscriptionMode::OnChange),
        ("SAMPLE", SubscriptionMode::Sample),
    ] {
        assert_eq!(published("gnmi.SubscriptionMode", name), value as u64);
    }
    assert_eq!(published("gnmi.SubscriptionList.Mode", "STREAM"), 0);
    assert_eq!(published("gnmi.GetRequest.DataType", "ALL"), 0);
}
