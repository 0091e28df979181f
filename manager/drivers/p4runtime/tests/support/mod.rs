//! Interfaces of published programs, for tests: names and widths of the tables and actions that the shipped maps use.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and panics")]

pub(crate) mod bench;
pub(crate) mod bmv2;
pub(crate) mod server;

use std::collections::BTreeMap;

use p4runtime::map::{self, Map};
use p4runtime::message::*;
use p4runtime::program::{LocalSettings, Program, Report, Route};
use prost::Message as _;

pub(crate) const PROGRAMS: [(&str, &str); 6] = [
    ("onos-int", include_str!("../published/onos-int.txt")),
    ("geant-int", include_str!("../published/geant-int.txt")),
    ("fabric-tna", include_str!("../published/fabric-tna.txt")),
    (
        "hopwise-int",
        include_str!("../../../../../p4/v1model/int.p4info.txtpb"),
    ),
    (
        "hopwise-sf",
        include_str!("../../../../../p4/v1model/sf.p4info.txtpb"),
    ),
    (
        "hopwise-dta-reporter",
        include_str!("../../../../../p4/v1model/dta_reporter.p4info.txtpb"),
    ),
];

/// The P4Info of one of [`PROGRAMS`].
pub(crate) fn info(name: &str) -> P4Info {
    let (_, text) = PROGRAMS.iter().find(|(program, _)| *program == name).unwrap();
    match text.starts_with("# proto-file") {
        true => P4Info::decode(p4runtime::binary::to_binary(text).unwrap().as_slice()).unwrap(),
        false => parse(text),
    }
}

/// P4Info of a text with a line for each table, field, action and parameter.
pub(crate) fn parse(text: &str) -> P4Info {
    let mut info = P4Info::default();
    let preamble = |id: u32, name: &str| {
        Some(Preamble {
            id,
            name: name.to_owned(),
            alias: name.rsplit('.').next().unwrap().to_owned(),
        })
    };
    let mut ids: BTreeMap<String, u32> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("action ")) {
        let id = 0x0100_0001 + ids.len() as u32;
        ids.insert(line["action ".len()..].to_owned(), id);
    }
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<i32>().unwrap();
        match (words[0], line.starts_with(' ')) {
            ("table", _) => {
                let id = 0x0200_0001 + info.tables.len() as u32;
                let size = number(2).into();
                info.tables.push(P4Table {
                    preamble: preamble(id, words[1]),
                    size,
                    ..P4Table::default()
                });
                if words.get(3) == Some(&"counted") {
                    info.direct_counters.push(P4DirectCounter {
                        preamble: preamble(id ^ 7, words[1]),
                        direct_table_id: id,
                    });
                }
            }
            ("field", _) => {
                let fields = &mut info.tables.last_mut().unwrap().match_fields;
                let match_type = match words[3] {
                    "exact" => MatchType::Exact,
                    "ternary" => MatchType::Ternary,
                    "lpm" => MatchType::Lpm,
                    "range" => MatchType::Range,
                    "optional" => MatchType::Optional,
                    other => panic!("{other}"),
                };
                let id = 1 + fields.len() as u32;
                fields.push(P4MatchField {
                    id,
                    name: words[1].to_owned(),
                    bitwidth: number(2),
                    match_type: match_type.into(),
                });
            }
            ("action", true) => {
                let scope = if words.len() > 2 {
                    Scope::DefaultOnly
                } else {
                    Scope::TableAndDefault
                };
                let id = ids[words[1]];
                info.tables.last_mut().unwrap().action_refs.push(P4ActionRef {
                    id,
                    scope: scope.into(),
                });
            }
            ("action", false) => {
                let preamble = preamble(ids[words[1]], words[1]);
                info.actions.push(P4Action {
                    preamble,
                    params: Vec::new(),
                });
            }
            ("param", _) => {
                let params = &mut info.actions.last_mut().unwrap().params;
                let id = 1 + params.len() as u32;
                params.push(P4Param {
                    id,
                    name: words[1].to_owned(),
                    bitwidth: number(2),
                });
            }
            other => panic!("{other:?}"),
        }
    }
    info
}

pub(crate) fn local() -> LocalSettings {
    let report = Report {
        port: 4,
        source: [192, 0, 2, 1].into(),
        source_mac: 0x0200_0000_0001,
        mac: 0x0200_0000_0009,
    };
    let route = |to: &str, port| Route {
        to: to.parse().unwrap(),
        port,
        source_mac: 0x0200_0000_0011,
        mac: 0x0200_0000_0012,
    };
    LocalSettings {
        node: 7,
        report: Some(report),
        restart: None,
        routes: vec![
            route("10.0.1.0/24", 1),
            route("fd00:2::1", 2),
            route("0.0.0.0/0", 3),
        ],
        mtus: vec![(2, 2140)],
        role: None,
    }
}

pub(crate) fn shipped(name: &str) -> Map {
    map::read(map::shipped(name).unwrap(), name).unwrap()
}

pub(crate) fn program(name: &str) -> Program {
    Program::new(&shipped(name), &info(name), &local()).unwrap_or_else(|problems| panic!("{problems:#?}"))
}
