//! Alerts for Alertmanager.

use collector::event::Kind;
use export::Outcome;
use export::record::Record;
use export::sink::HttpSink as _;
use export::sink::alertmanager::{Alertmanager, Options};

use crate::support::*;

fn sink(labels: &[(&str, &str)]) -> Result<Alertmanager, String> {
    let labels = labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Alertmanager::new(&Options {
        labels,
        ..Options::default()
    })
}

#[test]
fn rules_are_alerts() {
    let sink = sink(&[("severity", "page \"me\"")]).unwrap();
    let Record::Alert(mut queue) = alert(9, Kind::RuleOn) else {
        unreachable!()
    };
    (queue.node, queue.interface, queue.queue) = (Some(7), Some(2), Some(0));
    (queue.flow, queue.rule) = (None, "rule 4".into());
    (queue.metric, queue.value, queue.threshold) = (None, None, None);
    let Record::Alert(mut resolved) = alert(3, Kind::RuleOff) else {
        unreachable!()
    };
    resolved.since = Some(T + 2);
    let records = [
        change(1),
        alert(2, Kind::RuleOn),
        Record::Alert(resolved),
        Record::Alert(queue),
    ];
    let request = batch("leaf \"1\"", &records, |batch| sink.request(batch)).unwrap();
    assert_eq!(
        shown(&request),
        concat!(
            "POST /api/v2/alerts\ncontent-type: application/json\nrows [1, 2, 3]\n\n[",
            r#"{"labels":{"alertname":"deep \"queue\" \\ a=b, c] \u0001é","src":"10.0.0.1","dst":"10.0.0.2","sport":"1234","#,
            r#""dport":"80","proto":"6","severity":"page \"me\""},"annotations":{"collector":"leaf \"1\"","id":"0000000000000002","#,
            r#""node":"7","queue":"0","metric":"queue_occupancy","value":"80","threshold":"50"},"#,
            r#""startsAt":"2026-11-26T01:00:00.000000002Z","endsAt":"2026-11-26T01:05:00.000000002Z"},"#,
            r#"{"labels":{"alertname":"deep \"queue\" \\ a=b, c] \u0001é","src":"10.0.0.1","dst":"10.0.0.2","sport":"1234","#,
            r#""dport":"80","proto":"6","severity":"page \"me\""},"annotations":{"collector":"leaf \"1\"","id":"0000000000000003","#,
            r#""node":"8","queue":"0","metric":"queue_occupancy","value":"20","threshold":"50"},"#,
            r#""startsAt":"2026-11-26T01:00:00.000000002Z","endsAt":"2026-11-26T01:00:00.000000003Z"},"#,
            r#"{"labels":{"alertname":"rule 4","node":"7","interface":"2","queue":"0","severity":"page \"me\""},"#,
            r#""annotations":{"collector":"leaf \"1\"","id":"0000000000000009"},"#,
            r#""startsAt":"2026-11-26T01:00:00.000000009Z","endsAt":"2026-11-26T01:05:00.000000009Z"}]"#
        )
    );
    assert!(serde_json::from_slice::<serde_json::Value>(&request.body).is_ok());
    assert_eq!(
        batch("c", &[change(1), new_flow(2)], |batch| sink.request(batch)),
        None
    );
    assert_eq!(
        batch("c", &[rule(1, Kind::RuleOn)], |batch| sink.request(batch)),
        None
    );
    assert_eq!(batch("c", &[rollup(1)], |batch| sink.request(batch)), None);
}

#[test]
fn options_are_checked() {
    let no_name =
        |name: &str| format!("invalid label name {name:?}; use letters, digits and `_`, no digit first");
    for name in ["", "1a", "a-b", "a b"] {
        assert_eq!(sink(&[(name, "x")]).unwrap_err(), no_name(name));
    }
    assert_eq!(
        sink(&[("node", "x")]).unwrap_err(),
        "the label `node` exists already; choose another name"
    );
    assert_eq!(
        sink(&[("a", "x"), ("a", "y")]).unwrap_err(),
        "the label `a` exists already; choose another name"
    );
    assert_eq!(
        sink(&[("a", "")]).unwrap_err(),
        "the label `a` has no value; write one, or leave it out"
    );
    assert_eq!(
        Alertmanager::new(&Options {
            lasts: 0,
            ..Options::default()
        })
        .unwrap_err(),
        "`lasts` is 0; write a duration, such as 5m"
    );
}

#[test]
fn answers_are_understood_by_their_status() {
    let sink = sink(&[]).unwrap();
    let outcomes = [(200, ""), (400, "bad")].map(|(status, body)| {
        batch("c1", &[alert(1, Kind::RuleOn)], |batch| {
            sink.outcome(batch, &sink.request(batch).unwrap(), &answer(status, body))
        })
    });
    let reason = "bad".to_owned();
    assert_eq!(outcomes, [Outcome::DONE, Outcome::Refused { reason }]);
    assert_eq!(shown(&sink.probe(&[])), "GET /api/v2/status\nrows []\n\n");
    for (status, reason) in [
        (200, ""),
        (
            404,
            "the server is not an Alertmanager (HTTP 404: w); correct the url",
        ),
        (500, "the server does not accept alerts: HTTP 500: w"),
        (
            401,
            "the server refuses the credentials (HTTP 401: w); correct user, password or token",
        ),
    ] {
        assert_eq!(probed(&sink, status, "w"), reason);
    }
}
