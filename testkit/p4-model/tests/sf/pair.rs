//! The program and the switch in Rust, with the same tables and registers.

use std::sync::Arc;

use dataplane::report::Outbox;
use dataplane::sf::{Config as SfConfig, Entry as Record, Form, Urgent};
use dataplane::switch::{Config, L4Checksum, Stats, Switch, Verdict, Visit};
use dataplane::watchlist::Mode;
use dataplane::{Watch, Watchlist};
use detect::Match;
use p4_model::{Arrival, Entry, Key, Program};
use testkit::rng::Rng;
use wire::FlowKey;
use wire::int::sf::State;

use crate::packets::{Routed, routed};
use crate::setup::{Setup, installed, measured};

/// Items that the program has: node id, interfaces, latency, queue and timestamps.
pub(crate) const AVAILABLE: u16 = 0xfc00;
pub(crate) const COLLECTOR: u16 = 9;
const SESSION: u32 = 500;

/// The tables of a switch.
pub(crate) struct Tables<'a> {
    pub(crate) node: u32,
    pub(crate) config: &'a Config,
    pub(crate) watches: &'a [Watch],
    /// Packets come from a host, and go to one.
    pub(crate) edges: (bool, bool),
    /// Packets come from outside the domain, and are not measured for that.
    pub(crate) border: bool,
}

/// Both switches, with the same tables.
pub(crate) struct Pair {
    pub(crate) rust: Switch,
    pub(crate) p4: p4_model::Switch,
    mtu: u16,
    edges: (bool, bool),
    border: bool,
    pub(crate) setup: Vec<Setup>,
}

fn watch(rng: &mut Rng) -> Watch {
    let bits = [
        0xac00,
        0x8000,
        0xfc00,
        0xa000,
        0xfffe,
        rng.roll() as u16 & 0xfffe | 0x8000,
    ];
    Watch {
        mode: Mode::Sf,
        bitmap: bits[rng.below(bits.len())],
        hops: [1, 2, 8, 255][rng.below(12).min(3)],
        sample: [1, 1, 0, 2, 3, 10][rng.below(6)],
        ..Watch::new(Match {
            proto: [None, None, Some(17), Some(6)][rng.below(4)],
            ..Match::default()
        })
    }
}

/// The numbers of items and of their words.
fn words(bitmap: u16) -> u128 {
    u128::from(bitmap.count_ones() + (bitmap & 0x0e00).count_ones())
}

fn entry(table: &'static str, keys: Vec<Key>, action: &str, parameters: Vec<u128>) -> Setup {
    Setup::Entry(
        table,
        Entry {
            keys,
            priority: 0,
            action: action.to_owned(),
            parameters,
        },
    )
}

fn setup(tables: &Tables<'_>) -> Vec<Setup> {
    let Tables {
        node,
        config,
        watches,
        edges,
        border,
    } = *tables;
    let leaves = u128::from(config.l4_checksum == L4Checksum::Leave);
    let SfConfig {
        aging, form, urgent, ..
    } = config.sf;
    let compact = u128::from(form == Form::Compact);
    let [every, queue] = [urgent.every, urgent.queue].map(|limit| u128::from(limit.unwrap_or(0)));
    let mut setup = vec![
        Setup::Default(
            "node",
            "set_node",
            vec![u128::from(node), u128::from(config.available), leaves],
        ),
        Setup::Default(
            "sf_settings",
            "set_sf",
            vec![u128::from(aging), compact, every, queue],
        ),
        Setup::Default(
            "report_session",
            "report_to",
            vec![1, 2, 0x0a00_0001, 0x0a00_0002, 32766],
        ),
        Setup::Session(SESSION, COLLECTOR),
    ];
    let (in_port, out_port) = (Key::Exact(1), Key::Exact(2));
    if edges.0 {
        setup.push(entry("source_port", vec![in_port], "from_edge", vec![]));
    }
    if border {
        setup.push(entry("border_port", vec![in_port], "from_border", vec![]));
    }
    if edges.1 {
        setup.push(entry("sink_port", vec![out_port], "to_edge", vec![]));
    }
    let (any, ports) = (Key::Ternary(0, 0), Key::Range(0, 0xffff));
    for (sampler, watch) in watches.iter().enumerate() {
        let proto = watch
            .flows
            .proto
            .map_or(any, |proto| Key::Ternary(u128::from(proto), 0xff));
        let (sample, sampler) = (u128::from(watch.sample), sampler as u128);
        let record = [
            u128::from(watch.hops),
            u128::from(watch.bitmap),
            words(watch.bitmap),
        ];
        let measured = [&record[..], &[sample, sampler]].concat();
        for table in ["watchlist_v4", "watchlist_v6"] {
            setup.push(entry(
                table,
                vec![any, any, proto, any, ports, ports],
                "watch_sf",
                measured.clone(),
            ));
        }
    }
    for table in ["route_v4", "route_v6"] {
        let to = vec![2, 0x0200_0000_0101, 0x0200_0000_0202];
        setup.push(entry(table, vec![Key::Lpm(0, 0)], "next_hop", to));
    }
    setup
}

impl Pair {
    pub(crate) fn new(rng: &mut Rng, program: &Arc<Program>, edges: (bool, bool)) -> Self {
        let watches = [watch(rng)];
        let every = [None, None, None, Some(3), Some(1)][rng.below(5)];
        let queue = [None, None, Some(150)][rng.below(3)];
        let sf = SfConfig {
            registers: 1024,
            aging: [1_000_000_000, 1_000_000][rng.below(3).min(1)],
            form: [Form::Full, Form::Compact][rng.below(2)],
            urgent: Urgent { every, queue },
            ..SfConfig::default()
        };
        let l4_checksum = if rng.below(3) == 0 {
            L4Checksum::Leave
        } else {
            L4Checksum::Update
        };
        let config = Config {
            available: AVAILABLE,
            l4_checksum,
            sf,
            ..Config::default()
        };
        let border = edges.0 && rng.below(2) == 0;
        let edges = (edges.0 && !(border && rng.below(2) == 0), edges.1);
        let tables = Tables {
            node: 1 + rng.below(1000) as u32,
            config: &config,
            watches: &watches,
            edges,
            border,
        };
        let mut pair = Self::with(program, &tables);
        pair.set_mtu([130, 100, 1500, 9000][rng.below(10).min(3)]);
        pair
    }

    /// Both switches with these tables.
    pub(crate) fn with(program: &Arc<Program>, tables: &Tables<'_>) -> Self {
        let Tables {
            node,
            config,
            edges,
            border,
            watches,
        } = *tables;
        let setup = setup(tables);
        let p4 = installed(program, &setup);
        let rust = Switch::new(node, config.clone(), Watchlist::new(watches.to_vec())).unwrap();
        Self {
            rust,
            p4,
            mtu: 1500,
            edges,
            border,
            setup,
        }
    }

    /// The MTU of the egress link.
    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
        self.p4
            .set_default("port_mtu", "set_mtu", &[u128::from(mtu)])
            .unwrap();
        let set = |one: &Setup| matches!(one, Setup::Default("port_mtu", ..));
        self.setup.retain(|one| !set(one));
        self.setup
            .push(Setup::Default("port_mtu", "set_mtu", vec![u128::from(mtu)]));
    }

    /// Puts a record into the register of a flow.
    pub(crate) fn put(&mut self, flow: &FlowKey, record: &Record<'_>) {
        assert!(
            self.rust.registers_mut().put(flow, record),
            "the record is too long"
        );
        let tag = flow.flow_id();
        let place = tag as usize & 1023;
        let mut set = |name: &str, value: u128| self.p4.registers_mut(name).unwrap()[place] = value;
        set("sf_tag", tag.into());
        set("sf_state", record.state as u128);
        set("sf_packet_id", record.packet_id.into());
        set("sf_bitmap", record.bitmap.into());
        set("sf_since", record.since.into());
        for (number, word) in record.record.as_chunks::<4>().0.iter().enumerate() {
            set(&format!("sf_word_{number}"), u32::from_be_bytes(*word).into());
        }
    }

    /// Empties all registers.
    pub(crate) fn wipe(&mut self) {
        self.rust.wipe_registers();
        self.p4.registers_mut("sf_state").unwrap().fill(0);
    }

    /// Sends a packet through both. Returns it as it leaves, or why they differ.
    pub(crate) fn pass(&mut self, frame: &[u8], arrival: Arrival) -> Result<Vec<u8>, String> {
        let visit = Visit {
            mtu: self.mtu,
            from_edge: self.edges.0,
            to_edge: self.edges.1,
            from_border: self.border,
            ..measured(&arrival)
        };
        let mut outbox = Outbox::default();
        let (flow, mut packet) = match routed(frame, false) {
            Routed::To(packet) => (self.rust.flow_of(&packet), packet),
            Routed::Dropped(_) | Routed::Lost => (None, Vec::new()),
        };
        if !packet.is_empty()
            && self.rust.forward(&mut packet, &visit, &mut outbox).verdict == Verdict::Discard
        {
            packet.clear();
        }
        let sent = self.p4.process(frame, &arrival);
        let got = sent
            .iter()
            .find(|sent| sent.port == 2)
            .map_or(&[][..], |sent| &sent.frame);
        if got != packet {
            let (counts, setting) = (self.p4.counter("packets"), (self.mtu, self.edges, self.border));
            let counts = format!(
                "counters {counts:?}, rust {:?}, mtu and edges {setting:?}",
                self.rust.stats()
            );
            return Err(format!(
                "packets differ, {counts}\n  rust {packet:02x?}\n  p4   {got:02x?}"
            ));
        }
        let reports: Vec<&[u8]> = outbox.datagrams().map(|datagram| datagram.payload).collect();
        let sent = sent
            .iter()
            .filter(|sent| sent.port == COLLECTOR)
            .map(|sent| &sent.frame[42..]);
        let sent: Vec<&[u8]> = sent.collect();
        if reports != sent {
            return Err(format!(
                "reports differ\n  rust {reports:02x?}\n  p4   {sent:02x?}"
            ));
        }
        self.counters()?;
        flow.map_or(Ok(()), |flow| self.register(&flow))?;
        Ok(packet)
    }

    /// The register of a flow is the same in both.
    fn register(&self, flow: &FlowKey) -> Result<(), String> {
        let tag = flow.flow_id();
        let cell = |name: &str| self.p4.registers(name).unwrap()[tag as usize & 1023];
        let state = State::from_bits(cell("sf_state") as u8).filter(|_| cell("sf_tag") == u128::from(tag));
        let rust = self.rust.registers().get(flow);
        let len = rust.map_or(0, |record| record.record.len());
        let words = (0..len / 4).map(|number| cell(&format!("sf_word_{number}")) as u32);
        let record: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
        let p4 = state.map(|state| Record {
            state,
            packet_id: cell("sf_packet_id") as u16,
            bitmap: cell("sf_bitmap") as u16,
            since: cell("sf_since") as u64,
            record: &record,
        });
        if rust == p4 {
            Ok(())
        } else {
            Err(format!("registers differ\n  rust {rust:?}\n  p4   {p4:?}"))
        }
    }

    fn counters(&self) -> Result<(), String> {
        let Stats {
            plain,
            refused,
            recorded,
            hops_exceeded,
            mtu_exceeded,
            not_restorable,
            ..
        } = *self.rust.stats();
        let Stats {
            reported,
            malformed_stripped,
            edge_stripped,
            edge_refused,
            ..
        } = *self.rust.stats();
        let Stats {
            swapped,
            urgent,
            plain_nodes,
            sf_rules,
            ..
        } = *self.rust.stats();
        let rust = [
            plain,
            refused,
            recorded,
            hops_exceeded,
            mtu_exceeded,
            not_restorable,
            reported,
            malformed_stripped,
            0,
            0,
            0,
            edge_stripped,
            edge_refused,
            0,
            swapped,
            urgent,
            plain_nodes,
        ];
        let p4 = &self.p4.counter("packets").unwrap()[..rust.len()];
        if rust != p4 {
            return Err(format!("counters differ: rust {rust:?}, p4 {p4:?}"));
        }
        let p4 = self.p4.counter("sf_rules").unwrap();
        if sf_rules != p4 {
            return Err(format!("rules differ: rust {sf_rules:?}, p4 {p4:?}"));
        }
        Ok(())
    }
}
