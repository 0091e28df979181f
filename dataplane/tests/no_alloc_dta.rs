//! A DTA reporter does not allocate per packet, event, control message or tick. A counting allocator checks this for the test's
//! thread.

use testkit::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

use dataplane::dta::{
    Action, Config, Context, Field, Mapping, Outbox, PacketFacts, Reporter, SendOptions, Trigger, sketches,
    table,
};
use detect::Match;
use wire::dta::control::{Body, Cause};
use wire::dta::layout::{Columns, SketchKind};
use wire::dta::{Control, Priority};
use wire::{FlowKey, Hop};

fn fields(text: &str) -> Vec<Field> {
    text.split(' ')
        .map(|text| text.parse().expect("a field"))
        .collect()
}

fn config() -> Config {
    let mapping = |on: Trigger, action| Mapping {
        name: String::new(),
        on,
        table: on.is_of_a_table().then_some(0),
        flows: Match::default(),
        when: Vec::new(),
        every: 1,
        each_hop: false,
        options: SendOptions {
            priority: Priority::High,
            essential: on == Trigger::Drop,
            immediate: false,
        },
        action,
    };
    let (key, data) = (fields("flow"), fields("node[5]"));
    let entry = fields("flow node reason");
    let (lists, spread, hold) = (4, fields("flow"), 1_000_000);
    let mappings = vec![
        mapping(
            Trigger::Path,
            Action::KeyWrite {
                store: 1,
                copies: 2,
                key: key.clone(),
                data,
            },
        ),
        mapping(
            Trigger::Drop,
            Action::Append {
                list: 1,
                lists,
                spread,
                entry,
                entries: 16,
                hold,
            },
        ),
        mapping(
            Trigger::Evicted,
            Action::KeyIncrement {
                store: 2,
                copies: 2,
                key: fields("key"),
                delta: fields("packets")[0],
            },
        ),
        mapping(
            Trigger::Path,
            Action::Postcard {
                store: 3,
                key: key.clone(),
                value: fields("node")[0],
            },
        ),
    ];
    let flows = Match::default();
    let (name, at) = (String::new(), table::At::Anywhere);
    let table = table::Config {
        name: name.clone(),
        key: key.clone(),
        flows,
        at,
        slots: 64,
        period: 5_000_000,
        having: vec![],
    };
    let sketch = sketches::Config {
        name,
        id: 1,
        kind: SketchKind::CountMin,
        shape: Columns {
            depth: 4,
            columns: 64,
            width: 4,
        },
        key,
        item: None,
        counts: sketches::Counts::Bytes,
        flows,
        at,
        epoch: 5_000_000,
        per_report: 8,
        pace: 1000,
        options: SendOptions::default(),
    };
    Config {
        reporter: 7,
        mappings,
        tables: vec![table],
        sketches: vec![sketch],
        ..Config::default()
    }
}

#[test]
fn a_reporter_at_work_allocates_nothing() {
    let mut reporter = Reporter::new(config()).expect("good settings");
    let mut out = Outbox::default();
    let mut nack = [0; 32];
    let metadata = Hop {
        node_id: Some(7),
        ..Hop::default()
    };
    let before = allocations();
    let mut sent = 0;
    for i in 0..20_000_u64 {
        let now = i * 1000;
        let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((i as u16 % 500, 80)), 6);
        let packet = PacketFacts {
            bytes: 100,
            ..PacketFacts::default()
        };
        let context = Context {
            flow: Some(&flow),
            metadata: Some(&metadata),
            packet,
            ..Context::new(Trigger::Packet, 7)
        };
        reporter.packet(&context, now, &mut out);
        let trigger = if i % 3 == 0 { Trigger::Drop } else { Trigger::Path };
        reporter.report(
            &Context {
                trigger,
                reason: Some(1),
                ..context
            },
            now,
            &mut out,
        );
        if i % 500 == 0 {
            let body = Body::Nack {
                cause: Cause::Gap,
                last: (i / 500) as u16,
                trigger: 0,
            };
            let len = Control {
                sequence: 1,
                reporter: 7,
                body,
            }
            .emit(&mut nack)
            .unwrap_or_default();
            reporter.control(0, &nack[..len], now, &mut out);
        }
        reporter.tick(now, &mut out);
        sent += out.datagrams().len();
        out.clear();
    }
    assert_eq!(allocations() - before, 0);
    assert!(sent > 30_000, "{sent}");
    assert!(
        reporter
            .mappings()
            .all(|(_, stats)| stats.is_balanced() && stats.sent > 0)
    );
}
