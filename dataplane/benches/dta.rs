//! Benchmark of a DTA reporter: time from the measurements to the bytes of a report, on one core, in process.

use std::hint::black_box;
use std::time::Instant;

use dataplane::dta::{
    Action, Config, Context, Field, Mapping, Outbox, PacketFacts, Reporter, SendOptions, Trigger, sketches,
    table,
};
use detect::Match;
use wire::dta::layout::{Columns, SketchKind};
use wire::int::{Layout, Stack};
use wire::{FlowKey, Hop};

const FLOWS: usize = 1024;

fn fields(text: &str) -> Vec<Field> {
    text.split(' ').filter_map(|text| text.parse().ok()).collect()
}

fn mapping(on: Trigger, essential: bool, action: Action) -> Mapping {
    Mapping {
        name: String::new(),
        on,
        table: on.is_of_a_table().then_some(0),
        flows: Match::default(),
        when: Vec::new(),
        every: 1,
        each_hop: false,
        options: SendOptions {
            essential,
            ..SendOptions::default()
        },
        action,
    }
}

fn cases() -> Vec<(&'static str, Trigger, Config)> {
    let flow = || fields("flow");
    let key_write = || Action::KeyWrite {
        store: 1,
        copies: 2,
        key: flow(),
        data: fields("node[5]"),
    };
    let append = |entries| Action::Append {
        list: 1,
        lists: 1,
        spread: Vec::new(),
        entry: fields("flow node reason"),
        entries,
        hold: 1_000_000,
    };
    let table = table::Config {
        name: String::new(),
        key: flow(),
        flows: Match::default(),
        at: table::At::Anywhere,
        slots: 65_536,
        period: 0,
        having: Vec::new(),
    };
    let sketch = sketches::Config {
        name: String::new(),
        id: 1,
        kind: SketchKind::CountMin,
        shape: Columns {
            depth: 4,
            columns: 65_536,
            width: 4,
        },
        key: flow(),
        item: None,
        counts: sketches::Counts::Packets,
        flows: Match::default(),
        at: table::At::Anywhere,
        epoch: 1 << 62,
        per_report: 64,
        pace: 1000,
        options: SendOptions::default(),
    };
    let with = |mapping| Config {
        mappings: vec![mapping],
        ..Config::default()
    };
    vec![
        (
            "path, key-write of 5 nodes",
            Trigger::Path,
            with(mapping(Trigger::Path, false, key_write())),
        ),
        (
            "the same, essential",
            Trigger::Path,
            with(mapping(Trigger::Path, true, key_write())),
        ),
        (
            "drop, append 18 B",
            Trigger::Drop,
            with(mapping(Trigger::Drop, false, append(1))),
        ),
        (
            "drop, append 18 B, 16 together",
            Trigger::Drop,
            with(mapping(Trigger::Drop, false, append(16))),
        ),
        (
            "packet, table",
            Trigger::Packet,
            Config {
                tables: vec![table],
                ..Config::default()
            },
        ),
        (
            "packet, count-min of 4 rows",
            Trigger::Packet,
            Config {
                sketches: vec![sketch],
                ..Config::default()
            },
        ),
    ]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const ROUNDS: usize = 400;
    let bytes: Vec<u8> = [14_u32, 13, 12, 11]
        .iter()
        .flat_map(|node| node.to_be_bytes())
        .collect();
    let stack = Stack {
        bytes: &bytes,
        layout: Layout::int_2(0x8000, 1, false).unwrap_or(Layout::EMPTY),
        count: 4,
    };
    let metadata = Hop {
        node_id: Some(15),
        ..Hop::default()
    };
    let flows: Vec<FlowKey> = (0..FLOWS)
        .map(|i| {
            FlowKey::v4(
                [10, 0, (i >> 8) as u8, i as u8],
                [10, 0, 0, 2],
                Some((i as u16, 80)),
                6,
            )
        })
        .collect();
    for (name, trigger, config) in cases() {
        let (mut reporter, mut out) = (Reporter::new(config)?, Outbox::default());
        let mut costs: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let begin = Instant::now();
                for flow in &flows {
                    let packet = PacketFacts {
                        bytes: 100,
                        ..PacketFacts::default()
                    };
                    let context = Context {
                        flow: Some(flow),
                        stack,
                        metadata: Some(&metadata),
                        reason: Some(1),
                        packet,
                        ..Context::new(trigger, 15)
                    };
                    if trigger == Trigger::Packet {
                        reporter.packet(black_box(&context), 1, &mut out);
                    } else {
                        reporter.report(black_box(&context), 1, &mut out);
                    }
                }
                black_box(out.len());
                out.clear();
                begin.elapsed().as_secs_f64() * 1e9 / FLOWS as f64
            })
            .collect();
        costs.sort_by(f64::total_cmp);
        println!(
            "{name:<32} min {:>6.1} ns  median {:>6.1} ns",
            costs[0],
            costs[ROUNDS / 2]
        );
    }
    Ok(())
}
