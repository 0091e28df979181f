//! Every vector of `vectors/switch/` that is about a switch: input packets, tables and registers, and expected packets and reports.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use std::fmt::Write as _;

use crate::reader::{Line, Vector};
use dataplane::filter::{Filter, Units};
use dataplane::report::{Outbox, Version};
use dataplane::sf::{self, Entry, Form};
use dataplane::switch::{Config, Congestion, L4Checksum, Stats, Switch, Verdict, Visit};
use dataplane::watchlist::Mode;
use dataplane::{Filters, Role, Roles, Watch, Watchlist};
use detect::Match;
use wire::FlowKey;
use wire::int::sf::State;

#[test]
fn every_switch_vector_holds() {
    let vectors = crate::reader::of_kind("switch");
    assert!(vectors.len() > 20, "only {} vectors", vectors.len());
    let mut wrong = String::new();
    for vector in &vectors {
        let differences = Run::new(vector).differences(vector);
        if !differences.is_empty() {
            writeln!(wrong, "{}\n{differences}", vector.name).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

const FLOW: [&str; 5] = ["src", "dst", "sport", "dport", "proto"];

/// A switch that a vector is about.
struct Run {
    switch: Switch,
    visit: Visit,
    outbox: Outbox,
    /// Output that is not compared yet.
    out: Option<Vec<u8>>,
    reports: Vec<Vec<u8>>,
    wrong: String,
}

impl Run {
    fn new(vector: &Vector) -> Self {
        let (mut config, mut watches, mut node) = (Config::default(), Vec::new(), None);
        let (mut filters, mut roles) = (Vec::new(), Vec::new());
        for line in &vector.lines {
            match line.key.as_str() {
                "config" => set(&mut config, line),
                "watch" => watches.push(watch(line)),
                "filter" => filters.push(filter(line)),
                "role" => roles.push(role(line)),
                "node" => node = line.words.first().map(|id| id.parse().unwrap()),
                _ => {}
            }
        }
        let node = node.unwrap_or_else(|| panic!("{}: no node", vector.name));
        let mut switch = Switch::new(node, config, Watchlist::new(watches)).unwrap();
        switch.set_filters(Filters::new(filters, REGISTERS, Units::default()).unwrap());
        switch.set_roles(Roles::new(roles));
        let visit = Visit {
            buffer_occupancy: u32::MAX,
            mtu: 1500,
            ..Visit::default()
        };
        let outbox = Outbox::default();
        Self {
            switch,
            visit,
            outbox,
            out: None,
            reports: Vec::new(),
            wrong: String::new(),
        }
    }

    fn differences(mut self, vector: &Vector) -> String {
        for line in &vector.lines {
            match line.key.as_str() {
                "node" | "config" | "watch" | "filter" | "role" => {}
                "register" => {
                    line.only(&[&FLOW[..], &["state", "packet_id", "bitmap", "since", "record"]].concat());
                    let record = line.octets("record").unwrap();
                    let entry = Entry {
                        state: State::from_name(&line.need::<String>("state")).unwrap(),
                        packet_id: line.need("packet_id"),
                        bitmap: line.hex16("bitmap").unwrap(),
                        since: line.need("since"),
                        record: &record,
                    };
                    assert!(
                        self.switch.registers_mut().put(&flow(line), &entry),
                        "the record is too long"
                    );
                }
                "visit" => self.see(line),
                "in" => self.forward(&line.bytes),
                "out" => match self.out.take() {
                    Some(got) => self.compare("out", &line.bytes, &got),
                    None => self.wrong.push_str("  out: nothing went in\n"),
                },
                "report" if self.reports.is_empty() => self.wrong.push_str("  a report is missing\n"),
                "report" => {
                    let got = self.reports.remove(0);
                    self.compare("report", &line.bytes, &got);
                }
                "wipe" => self.switch.wipe_registers(),
                "holds" => self.holds(line),
                "count" => self.count(line),
                other => panic!("{}: unknown key {other}", vector.name),
            }
        }
        self.nothing_left();
        self.wrong
    }

    fn nothing_left(&mut self) {
        if self.out.is_some() {
            self.wrong.push_str("  a packet came out that is not listed\n");
        }
        if !self.reports.is_empty() {
            writeln!(self.wrong, "  reports too many: {:02x?}", self.reports).unwrap();
        }
    }

    fn see(&mut self, line: &Line) {
        line.only(&[
            "ingress_if",
            "egress_if",
            "ingress_ts",
            "egress_ts",
            "queue_id",
            "queue",
            "tx",
            "buffer",
            "l2_ingress_if",
            "l2_egress_if",
            "mtu",
            "edge",
        ]);
        let visit = &mut self.visit;
        visit.ingress_if = line.get("ingress_if").unwrap_or(visit.ingress_if);
        visit.egress_if = line.get("egress_if").unwrap_or(visit.egress_if);
        visit.ingress_ts = line.get("ingress_ts").unwrap_or(visit.ingress_ts);
        visit.egress_ts = line.get("egress_ts").unwrap_or(visit.egress_ts);
        visit.queue_id = line.get("queue_id").unwrap_or(visit.queue_id);
        visit.queue_occupancy = line.get("queue").unwrap_or(visit.queue_occupancy);
        visit.tx_utilization = line.get("tx").unwrap_or(visit.tx_utilization);
        visit.buffer_occupancy = line.get("buffer").unwrap_or(visit.buffer_occupancy);
        let [l2_ingress, l2_egress] = visit.l2_interfaces;
        visit.l2_interfaces = [
            line.get("l2_ingress_if").unwrap_or(l2_ingress),
            line.get("l2_egress_if").unwrap_or(l2_egress),
        ];
        visit.mtu = line.get("mtu").unwrap_or(visit.mtu);
        if let Some(edge) = line.get::<String>("edge") {
            (visit.from_edge, visit.to_edge) = match edge.as_str() {
                "none" => (false, false),
                "in" => (true, false),
                "out" => (false, true),
                "both" => (true, true),
                "border" => (false, false),
                other => panic!("unknown edge {other}"),
            };
            visit.from_border = edge == "border";
        }
    }

    fn forward(&mut self, bytes: &[u8]) {
        self.nothing_left();
        self.outbox.clear();
        let mut frame = bytes.to_vec();
        let step = self.switch.forward(&mut frame, &self.visit, &mut self.outbox);
        if step.verdict == Verdict::Discard {
            frame.clear();
        }
        self.out = Some(frame);
        self.reports = self
            .outbox
            .datagrams()
            .map(|datagram| datagram.payload.to_vec())
            .collect();
    }

    fn compare(&mut self, what: &str, expected: &[u8], got: &[u8]) {
        if expected != got {
            let at = expected.iter().zip(got).position(|(a, b)| a != b);
            writeln!(
                self.wrong,
                "  {what} at {at:?}, lengths {} {}",
                expected.len(),
                got.len()
            )
            .unwrap();
            writeln!(
                self.wrong,
                "    expected {}\n    got      {}",
                text(expected),
                text(got)
            )
            .unwrap();
        }
    }

    fn holds(&mut self, line: &Line) {
        line.only(&[&FLOW[..], &["state", "packet_id", "record", "empty"]].concat());
        let got = self.switch.registers().get(&flow(line));
        let got = got.map_or("empty".to_owned(), |entry| {
            format!(
                "{} {} {}",
                entry.state.name(),
                entry.packet_id,
                text(entry.record)
            )
        });
        let expected = match line.has("empty") {
            true => "empty".to_owned(),
            false => {
                let (state, id): (String, u16) = (line.need("state"), line.need("packet_id"));
                format!("{state} {id} {}", line.need::<String>("record"))
            }
        };
        if got != expected {
            writeln!(
                self.wrong,
                "  register expected {expected}\n           got      {got}"
            )
            .unwrap();
        }
    }

    fn count(&mut self, line: &Line) {
        for (name, value) in &line.fields {
            let got = counter(self.switch.stats(), name);
            if got != value.parse::<u64>().unwrap() {
                writeln!(self.wrong, "  {name} is {got}, not {value}").unwrap();
            }
        }
    }
}

/// A counter by its name.
fn counter(stats: &Stats, name: &str) -> u64 {
    match name {
        "plain" => stats.plain,
        "refused" => stats.refused,
        "recorded" => stats.recorded,
        "swapped" => stats.swapped,
        "hops_exceeded" => stats.hops_exceeded,
        "mtu_exceeded" => stats.mtu_exceeded,
        "not_restorable" => stats.not_restorable,
        "reported" => stats.reported,
        "filtered" => stats.filtered,
        "queues_reported" => stats.queues_reported,
        "congested_reported" => stats.congested_reported,
        "plain_nodes" => stats.plain_nodes,
        "malformed_stripped" => stats.malformed_stripped,
        "edge_stripped" => stats.edge_stripped,
        "edge_refused" => stats.edge_refused,
        "urgent" => stats.urgent,
        "checksums_examined" => stats.checksums_examined,
        "checksums_wrong" => stats.checksums_wrong,
        _ => match name
            .strip_prefix("rule_")
            .and_then(|rule| rule.parse::<usize>().ok())
        {
            Some(rule @ 1..=9) => stats.sf_rules[rule],
            _ => panic!("unknown counter {name}"),
        },
    }
}

fn set(config: &mut Config, line: &Line) {
    match line.words.first().map(String::as_str) {
        Some("mark") => {
            line.only(&["mark", "dscp", "port", "hop_by_hop"]);
            config.mark.hop_by_hop = line.get("hop_by_hop").unwrap_or(false);
            config.mark.dscp = line.get("dscp").unwrap_or(config.mark.dscp);
            config.mark.port = line.get("port");
        }
        Some("l4_checksum") => {
            line.only(&["l4_checksum", "treatment"]);
            config.l4_checksum = match line.need::<String>("treatment").as_str() {
                "update" => L4Checksum::Update,
                "leave" => L4Checksum::Leave,
                "zero" => L4Checksum::Zero,
                other => panic!("unknown treatment {other}"),
            };
        }
        Some("items") => {
            line.only(&["items", "available"]);
            config.available = line.hex16("available").unwrap();
        }
        Some("report") => {
            line.only(&["report", "version", "snap"]);
            config.format.snap = line.get("snap").unwrap_or(config.format.snap);
            config.format.version = match line.get::<String>("version").as_deref() {
                Some("1.0") => Version::V10,
                _ => Version::V20,
            };
        }
        Some("queue") => {
            line.only(&["queue", "rise", "fall", "quota"]);
            let (rise, fall, quota) = (line.need("rise"), line.need("fall"), line.need("quota"));
            config.congestion = Some(Congestion { rise, fall, quota });
        }
        Some("sf") => {
            line.only(&[
                "sf",
                "registers",
                "single",
                "aging",
                "form",
                "urgent_every",
                "urgent_queue",
            ]);
            let sf = &mut config.sf;
            sf.registers = line.get("registers").unwrap_or(sf.registers);
            sf.single = line.get("single").unwrap_or(sf.single);
            sf.aging = line.get("aging").unwrap_or(sf.aging);
            sf.urgent = sf::Urgent {
                every: line.get("urgent_every"),
                queue: line.get("urgent_queue"),
            };
            sf.form = match line.get::<String>("form").as_deref() {
                Some("compact") => Form::Compact,
                Some("stack") => Form::Stack,
                None | Some("full") => Form::Full,
                Some(other) => panic!("unknown form {other}"),
            };
        }
        other => panic!("unknown config {other:?}"),
    }
}

/// Registers of each filter of a vector.
const REGISTERS: usize = 1024;

fn flows(line: &Line) -> Match {
    Match {
        proto: line.get("proto"),
        src: line.get::<String>("src").map(|prefix| prefix.parse().unwrap()),
        dst: line.get::<String>("dst").map(|prefix| prefix.parse().unwrap()),
        ..Match::default()
    }
}

fn filter(line: &Line) -> Filter {
    line.only(&[
        "src",
        "dst",
        "proto",
        "algorithm",
        "metric",
        "threshold",
        "alpha",
        "latency_bits",
        "queue_bits",
        "keep_alive",
        "rule",
    ]);
    Filter {
        flows: flows(line),
        detector: line.detector(),
    }
}

fn role(line: &Line) -> (Match, Role) {
    line.only(&["src", "dst", "proto", "role"]);
    let role = match line.need::<String>("role").as_str() {
        "source" => Role::Source,
        "transit" => Role::Transit,
        "sink" => Role::Sink,
        "both" => Role::SourceAndSink,
        "off" => Role::Off,
        other => panic!("unknown role {other}"),
    };
    (flows(line), role)
}

fn watch(line: &Line) -> Watch {
    line.only(&["src", "dst", "proto", "mode", "bitmap", "hops"]);
    let flows = flows(line);
    let mode = match line.need::<String>("mode").as_str() {
        "md21" => Mode::Md21,
        "md10" => Mode::Md10,
        "mx21" => Mode::Mx21,
        "postcard" => Mode::Postcard,
        "sf" => Mode::Sf,
        other => panic!("unknown mode {other}"),
    };
    Watch {
        mode,
        bitmap: line.hex16("bitmap").unwrap(),
        hops: line.need("hops"),
        ..Watch::new(flows)
    }
}

fn flow(line: &Line) -> FlowKey {
    let ports = line.get("sport").zip(line.get("dport"));
    FlowKey::new(line.need("src"), line.need("dst"), ports, line.need("proto"))
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
