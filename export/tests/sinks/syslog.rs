//! Syslog messages.

use collector::event::Kind;
use export::record::Record;
use export::sink::syslog::{Options, Syslog};

use crate::support::*;

/// The messages, each after its length, which is checked.
fn messages(options: &Options, records: &[Record]) -> Vec<String> {
    let mut bytes = Vec::new();
    batch("le]af \"1\"\n", records, |batch| {
        Syslog::new(options).unwrap().write(batch, &mut bytes)
    });
    let mut rest = &bytes[..];
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ').unwrap();
        let len: usize = std::str::from_utf8(&rest[..space]).unwrap().parse().unwrap();
        let (message, after) = rest[space + 1..].split_at(len);
        messages.push(String::from_utf8(message.to_vec()).unwrap());
        rest = after;
    }
    messages
}

#[test]
fn records_are_messages() {
    let options = Options {
        hostname: "leaf1".to_owned(),
        ..Options::default()
    };
    let collector = r#"collector="le\]af \"1\" " schema="1""#;
    assert_eq!(
        messages(
            &options,
            &[
                rule(1, Kind::RuleOn),
                rule(2, Kind::RuleOff),
                new_flow(3),
                change(4)
            ]
        ),
        [
            format!(
                r#"<132>1 2026-11-26T01:00:00.000000Z leaf1 hopwise - rule_on [hopwise@32473 id="0000000000000001" ts="1795654800000000001" {collector} kind="rule_on" flow="10.0.0.1:1234>10.0.0.2:80/6" rule="deep \"queue\" \\ a=b, c\]  é" basis="measured"] rule_on deep "queue" \ a=b, c]  é 10.0.0.1:1234>10.0.0.2:80/6"#
            ),
            format!(
                r#"<133>1 2026-11-26T01:00:00.000000Z leaf1 hopwise - rule_off [hopwise@32473 id="0000000000000002" ts="1795654800000000002" {collector} kind="rule_off" flow="10.0.0.1:1234>10.0.0.2:80/6" rule="deep \"queue\" \\ a=b, c\]  é" basis="measured"] rule_off deep "queue" \ a=b, c]  é 10.0.0.1:1234>10.0.0.2:80/6"#
            ),
            format!(
                r#"<134>1 2026-11-26T01:00:00.000000Z leaf1 hopwise - new [hopwise@32473 id="0000000000000003" ts="1795654800000000003" {collector} kind="new" metric="flow_path" flow="[fd00::1\]:5>[fd00::2\]:6/17" basis="hop_sum" path="1,-,300" flow_latency="42" latency_basis="hop_sum" hop_latencies="-,7"] new [fd00::1]:5>[fd00::2]:6/17"#
            ),
            format!(
                r#"<134>1 2026-11-26T01:00:00.000000Z leaf1 hopwise - change [hopwise@32473 id="0000000000000004" ts="1795654800000000004" {collector} kind="change" metric="queue_occupancy" flow="10.0.0.1:1234>10.0.0.2:80/6" node="7" interface="2" queue="0" value="130" previous="2" threshold="128" basis="measured"] change 10.0.0.1:1234>10.0.0.2:80/6 node 7"#
            ),
        ]
    );
    let kernel = Options {
        facility: 0,
        ..Options::default()
    };
    assert_eq!(
        messages(&kernel, &[loss()]),
        [format!(
            r#"<4>1 2026-11-26T01:00:00.000000Z - hopwise - losses [hopwise@32473 id="{:016x}" ts="{T}" {collector} source="192.0.2.1" hw_id="3" lost="4" reordered="0" duplicated="1"] losses"#,
            loss().id()
        )]
    );
}

fn refused(change: fn(&mut Options)) -> String {
    let mut options = Options::default();
    change(&mut options);
    Syslog::new(&options).unwrap_err()
}

#[test]
fn options_are_checked() {
    assert_eq!(
        refused(|options| options.facility = 24),
        "`facility` is 24; use 0 to 23 (16 to 23 are local0 to local7)"
    );
    assert_eq!(
        refused(|options| options.hostname = "a b".to_owned()),
        "`hostname` is \"a b\"; use 1 to 255 printable ASCII characters without spaces"
    );
    assert_eq!(
        refused(|options| options.app_name = String::new()),
        "`app_name` is \"\"; use 1 to 48 printable ASCII characters without spaces"
    );
    for id in ["hopwise", "hopwise@", "@1", "a]@1", "a@x"] {
        let options = Options {
            sd_id: id.to_owned(),
            ..Options::default()
        };
        assert_eq!(
            Syslog::new(&options).unwrap_err(),
            format!(
                "`sd_id` is {id:?}; write a name, `@` and the number of your enterprise, such as hopwise@32473"
            )
        );
    }
}
