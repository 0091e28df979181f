//! Field numbers and values of enumerations equal those of the published descriptors.

#![allow(clippy::unwrap_used, clippy::needless_update, reason = "a test panics")]

use p4runtime::message::*;
use prost::Message;

/// `MESSAGE FIELD NUMBER`, one per line, as the descriptors of the PyPI package `p4runtime` list them.
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
        let name = stringify!($field).trim_start_matches("r#");
        let message = $message { $field: $value, ..$message::default() };
        assert_eq!(number(&message), published($full, name), "{} {name}", $full);
    )+};
}

macro_rules! variants {
    ($message:ident $full:literal $outer:ident: $($field:literal = $variant:expr),+ $(,)?) => {$(
        let message = $message { $outer: Some($variant), ..$message::default() };
        assert_eq!(number(&message), published($full, $field), "{} {}", $full, $field);
    )+};
}

fn bytes() -> Vec<u8> {
    vec![1]
}

fn text() -> String {
    "a".to_owned()
}

#[test]
fn of_requests() {
    fields!(Status "google.rpc.Status": code = 1, message = text(), details = vec![Any::default()]);
    fields!(Error "p4.v1.Error": canonical_code = 1, message = text());
    fields!(Uint128 "p4.v1.Uint128": high = 1, low = 1);
    fields!(Role "p4.v1.Role": name = text());
    fields!(MasterArbitrationUpdate "p4.v1.MasterArbitrationUpdate": device_id = 1, role = Some(Role::default()),
        election_id = Some(Uint128::default()), status = Some(Status::default()));
    variants!(StreamMessageRequest "p4.v1.StreamMessageRequest" update:
        "arbitration" = StreamRequest::Arbitration(MasterArbitrationUpdate::default()),
        "packet" = StreamRequest::Packet(PacketOut::default()),
        "digest_ack" = StreamRequest::DigestAck(DigestListAck::default()));
    variants!(StreamMessageResponse "p4.v1.StreamMessageResponse" update:
        "arbitration" = StreamResponse::Arbitration(MasterArbitrationUpdate::default()),
        "packet" = StreamResponse::Packet(PacketIn::default()),
        "digest" = StreamResponse::Digest(DigestList::default()));
    fields!(PacketOut "p4.v1.PacketOut": payload = bytes());
    fields!(PacketIn "p4.v1.PacketIn": payload = bytes());
    fields!(DigestList "p4.v1.DigestList": digest_id = 1, list_id = 1);
    fields!(DigestListAck "p4.v1.DigestListAck": digest_id = 1, list_id = 1);
    fields!(WriteRequest "p4.v1.WriteRequest": device_id = 1, election_id = Some(Uint128::default()),
        updates = vec![Update::default()], atomicity = 1, role = text());
    fields!(Update "p4.v1.Update": r#type = 1, entity = Some(Entity::default()));
    fields!(ReadRequest "p4.v1.ReadRequest": device_id = 1, entities = vec![Entity::default()], role = text());
    fields!(ReadResponse "p4.v1.ReadResponse": entities = vec![Entity::default()]);
    fields!(SetForwardingPipelineConfigRequest "p4.v1.SetForwardingPipelineConfigRequest": device_id = 1,
        election_id = Some(Uint128::default()), action = 1, config = Some(ForwardingPipelineConfig::default()),
        role = text());
    fields!(Cookie "p4.v1.ForwardingPipelineConfig.Cookie": cookie = 1);
    fields!(ForwardingPipelineConfig "p4.v1.ForwardingPipelineConfig": cookie = Some(Cookie::default()), p4info = Some(bytes()),
        p4_device_config = bytes());
    fields!(GetForwardingPipelineConfigRequest "p4.v1.GetForwardingPipelineConfigRequest": device_id = 1,
        response_type = 1);
    fields!(GetForwardingPipelineConfigResponse "p4.v1.GetForwardingPipelineConfigResponse":
        config = Some(ForwardingPipelineConfig::default()));
}

#[test]
fn of_entities() {
    variants!(Entity "p4.v1.Entity" entity:
        "table_entry" = EntityKind::TableEntry(TableEntry::default()),
        "counter_entry" = EntityKind::Counter(CounterEntry::default()),
        "packet_replication_engine_entry" =
            EntityKind::PacketReplication(PacketReplicationEngineEntry::default()));
    fields!(TableEntry "p4.v1.TableEntry": table_id = 1, r#match = vec![FieldMatch::default()],
        action = Some(TableAction::default()), priority = 1, counter_data = Some(CounterData::default()),
        is_default_action = true, metadata = bytes(), is_const = true);
    fields!(CounterEntry "p4.v1.CounterEntry": counter_id = 1, index = Some(Index::default()),
        data = Some(CounterData::default()));
    fields!(Index "p4.v1.Index": index = 1);
    fields!(FieldMatch "p4.v1.FieldMatch": field_id = 1);
    variants!(FieldMatch "p4.v1.FieldMatch" field_match_type:
        "exact" = FieldMatchType::Exact(Exact::default()),
        "ternary" = FieldMatchType::Ternary(Ternary::default()),
        "lpm" = FieldMatchType::Lpm(Lpm::default()),
        "range" = FieldMatchType::Range(Range::default()),
        "optional" = FieldMatchType::Optional(Exact::default()));
    fields!(Exact "p4.v1.FieldMatch.Exact": value = bytes());
    fields!(Exact "p4.v1.FieldMatch.Optional": value = bytes());
    fields!(Ternary "p4.v1.FieldMatch.Ternary": value = bytes(), mask = bytes());
    fields!(Lpm "p4.v1.FieldMatch.LPM": value = bytes(), prefix_len = 1);
    fields!(Range "p4.v1.FieldMatch.Range": low = bytes(), high = bytes());
    variants!(TableAction "p4.v1.TableAction" r#type: "action" = TableActionType::Action(Action::default()));
    fields!(Action "p4.v1.Action": action_id = 1, params = vec![Param::default()]);
    fields!(Param "p4.v1.Action.Param": param_id = 1, value = bytes());
    fields!(CounterData "p4.v1.CounterData": byte_count = 1, packet_count = 1);
    variants!(PacketReplicationEngineEntry "p4.v1.PacketReplicationEngineEntry" r#type:
        "multicast_group_entry" = ReplicationKind::MulticastGroup(MulticastGroupEntry::default()),
        "clone_session_entry" = ReplicationKind::CloneSession(CloneSessionEntry::default()));
    fields!(MulticastGroupEntry "p4.v1.MulticastGroupEntry": multicast_group_id = 1, replicas = vec![Replica::default()]);
    fields!(CloneSessionEntry "p4.v1.CloneSessionEntry": session_id = 1, replicas = vec![Replica::default()],
        class_of_service = 1, packet_length_bytes = 1);
    fields!(Replica "p4.v1.Replica": instance = 1);
    variants!(Replica "p4.v1.Replica" port_kind: "egress_port" = PortKind::EgressPort(1),
        "port" = PortKind::Port(bytes()));
}

#[test]
fn of_p4info() {
    let preamble = || Some(Preamble::default());
    fields!(P4Info "p4.config.v1.P4Info": tables = vec![P4Table::default()], actions = vec![P4Action::default()],
        counters = vec![P4Counter::default()], direct_counters = vec![P4DirectCounter::default()]);
    fields!(P4Counter "p4.config.v1.Counter": preamble = preamble(), size = 1);
    fields!(Preamble "p4.config.v1.Preamble": id = 1, name = text(), alias = text());
    fields!(P4Table "p4.config.v1.Table": preamble = preamble(), match_fields = vec![P4MatchField::default()],
        action_refs = vec![P4ActionRef::default()], size = 1);
    fields!(P4MatchField "p4.config.v1.MatchField": id = 1, name = text(), bitwidth = 1, match_type = 2);
    fields!(P4ActionRef "p4.config.v1.ActionRef": id = 1, scope = 1);
    fields!(P4Action "p4.config.v1.Action": preamble = preamble(), params = vec![P4Param::default()]);
    fields!(P4Param "p4.config.v1.Action.Param": id = 1, name = text(), bitwidth = 1);
    fields!(P4DirectCounter "p4.config.v1.DirectCounter": preamble = preamble(), direct_table_id = 1);
}

#[test]
fn of_enumerations() {
    let published = |name: &str, value: &str| published(name, value) as i32;
    for (value, number) in [
        ("CONTINUE_ON_ERROR", Atomicity::ContinueOnError),
        ("ROLLBACK_ON_ERROR", Atomicity::RollbackOnError),
        ("DATAPLANE_ATOMIC", Atomicity::DataplaneAtomic),
    ] {
        assert_eq!(published("p4.v1.WriteRequest.Atomicity", value), number as i32);
    }
    for (value, number) in [
        ("INSERT", UpdateType::Insert),
        ("MODIFY", UpdateType::Modify),
        ("DELETE", UpdateType::Delete),
    ] {
        assert_eq!(published("p4.v1.Update.Type", value), number as i32);
    }
    for (value, number) in [
        ("EXACT", MatchType::Exact),
        ("LPM", MatchType::Lpm),
        ("TERNARY", MatchType::Ternary),
        ("RANGE", MatchType::Range),
        ("OPTIONAL", MatchType::Optional),
    ] {
        assert_eq!(
            published("p4.config.v1.MatchField.MatchType", value),
            number as i32
        );
    }
    for (value, number) in [
        ("TABLE_ONLY", Scope::TableOnly),
        ("DEFAULT_ONLY", Scope::DefaultOnly),
    ] {
        assert_eq!(published("p4.config.v1.ActionRef.Scope", value), number as i32);
    }
    let action = "p4.v1.SetForwardingPipelineConfigRequest.Action";
    assert_eq!(
        published(action, "VERIFY_AND_COMMIT"),
        ConfigAction::VerifyAndCommit as i32
    );
    let response = "p4.v1.GetForwardingPipelineConfigRequest.ResponseType";
    assert_eq!(
        published(response, "COOKIE_ONLY"),
        ResponseType::CookieOnly as i32
    );
    assert_eq!(
        published(response, "P4INFO_AND_COOKIE"),
        ResponseType::P4infoAndCookie as i32
    );
}
