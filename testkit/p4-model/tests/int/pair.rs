//! The program and the switch in Rust, with the same tables.

use dataplane::filter::Units;
use dataplane::report::{Outbox, Version};
use dataplane::switch::{Config, Congestion, L4Checksum, Stats, Switch, Verdict, Visit};
use dataplane::watchlist::Mode;
use dataplane::{Filter, Filters, Watch, Watchlist};
use std::sync::Arc;

use detect::detector::Change;
use detect::{Algorithm, Detector, Match, Metric, Prefix};
use p4_model::{Arrival, Entry, Key, Program};
use testkit::rng::Rng;

use crate::packets::{Routed, has_l4, routed};
use crate::rules::{self, entries};
use crate::setup::{Setup, installed, measured};

/// Items that the program has: node id, interfaces, latency, queue and timestamps.
pub(crate) const AVAILABLE: u16 = 0xfc00;
pub(crate) const COLLECTOR: u16 = 9;
const SESSION: u32 = 500;
/// Registers of each filter of the program.
const REGISTERS: usize = 4096;

/// Both switches, with the same tables.
pub(crate) struct Pair {
    pub(crate) rust: Switch,
    pub(crate) p4: p4_model::Switch,
    mtu: u16,
    edges: (bool, bool),
    border: bool,
    routes_half: bool,
    pub(crate) setup: Vec<Setup>,
}

pub(crate) fn watch(rng: &mut Rng) -> Watch {
    let any = (rng.roll() as u16 & 0xff80) | 0xa000;
    let mode = [Mode::Md10, Mode::Md21, Mode::Md21, Mode::Mx21, Mode::Postcard][rng.below(5)];
    let on_stack = matches!(mode, Mode::Md10 | Mode::Md21);
    // The program computes no latency from the timestamps of others.
    let bits = [
        0xfc00,
        if on_stack { 0x9000 } else { 0x9c00 },
        0xa000,
        0xff81,
        0x8000,
        0xfd01,
        any,
    ];
    Watch {
        mode,
        bitmap: bits[rng.below(bits.len())] & if on_stack { 0xffff } else { 0xfffe },
        hops: [0, 1, 8, 255][rng.below(4)],
        sample: [0, 1, 1, 1, 1, 1, 2, [3, 10, 1 << 31, u32::MAX][rng.below(4)]][rng.below(8)],
        drops: rng.below(2) == 0,
        ..Watch::new(Match {
            proto: [None, Some(17), Some(6)][rng.below(3)],
            ..Match::default()
        })
    }
}

/// Reports a flow when its path changes.
const PATHS_ONLY: Algorithm = Algorithm::Change(Change {
    latency_bits: 64,
    queue_bits: 64,
    keep_alive: u64::MAX,
});

/// A filter of the kinds that the program has.
pub(crate) fn filter(rng: &mut Rng) -> Filter {
    let algorithm = match rng.below(10) {
        7.. => Algorithm::Rule(Arc::new(rules::random(rng))),
        0 => Algorithm::Noop,
        1 => Algorithm::PerHop,
        2 => Algorithm::PerHopOfFlow,
        3 => Algorithm::PerFlow,
        4 => Algorithm::MovingAverage {
            alpha: [1, 64, 128, 255][rng.below(4)],
        },
        _ => Algorithm::Change(Change {
            latency_bits: [0, 10, 20, 22, 64][rng.below(5)],
            queue_bits: [0, 8, 18, 64][rng.below(4)],
            keep_alive: [0, 1_000_000, 1_000_000_000, u64::MAX][rng.below(4)],
        }),
    };
    let per_hop = matches!(algorithm, Algorithm::PerHop | Algorithm::PerHopOfFlow);
    let metrics = [Metric::HopLatency, Metric::QueueOccupancy, Metric::FlowLatency];
    let metric = metrics[rng.below(if per_hop { 2 } else { 3 })];
    let threshold = [0, 1000, 100_000, 2_000_000, 10_000_000][rng.below(5)];
    let flows = Match {
        proto: [None, Some(17), Some(6)][rng.below(3)],
        ..Match::default()
    };
    Filter {
        flows,
        detector: Detector {
            algorithm,
            metric,
            threshold,
        },
    }
}

/// A filter by rule.
pub(crate) fn by_rule(rng: &mut Rng) -> Filter {
    let algorithm = Algorithm::Rule(Arc::new(rules::random(rng)));
    Filter {
        detector: Detector {
            algorithm,
            metric: Metric::FlowPath,
            threshold: 0,
        },
        ..filter(rng)
    }
}

/// The key of a prefix; one of the other version of IP matches nothing.
fn address(prefix: Option<Prefix>, table: &str) -> Key {
    let Some(prefix) = prefix else {
        return Key::Ternary(0, 0);
    };
    let bits = if table.ends_with("v6") { 128 } else { 32 };
    let mask = if bits == 128 {
        u128::MAX
    } else {
        u128::from(u32::MAX)
    };
    let of_v4 = |address: std::net::Ipv4Addr| u128::from(u32::from(address));
    match (prefix.network(), bits) {
        (std::net::IpAddr::V4(address), 32) => {
            Key::Ternary(of_v4(address), mask << (32 - u32::from(prefix.len())) & mask)
        }
        (std::net::IpAddr::V6(address), 128) => Key::Ternary(
            u128::from(address),
            mask.checked_shl(128 - u32::from(prefix.len())).unwrap_or(0),
        ),
        _ => Key::Ternary(mask, mask),
    }
}

/// The entries of a filter, which comes before those of lower priority.
fn filtered(filter: &Filter, number: usize) -> Vec<Setup> {
    let Detector {
        algorithm,
        metric,
        threshold,
    } = &filter.detector;
    let (number_, metric, threshold) = (number as u128, *metric as u128, u128::from(*threshold));
    let compared = vec![number_, metric, threshold];
    let (action, parameters) = match algorithm {
        Algorithm::PerHop => ("filter_per_hop", compared),
        Algorithm::PerHopOfFlow => ("filter_per_hop_of_flow", compared),
        Algorithm::PerFlow => ("filter_per_flow", compared),
        Algorithm::MovingAverage { alpha } => (
            "filter_moving_average",
            [compared, vec![u128::from(*alpha)]].concat(),
        ),
        Algorithm::Change(Change {
            latency_bits,
            queue_bits,
            keep_alive,
        }) => {
            let bits = [*latency_bits, *queue_bits].map(u128::from);
            (
                "filter_change",
                vec![number_, bits[0], bits[1], u128::from(*keep_alive)],
            )
        }
        Algorithm::Rule(_) => ("filter_rule", vec![number_]),
        _ => ("filter_noop", vec![number_]),
    };
    let mut setup = match algorithm {
        Algorithm::Rule(program) => entries(&program.table, number_),
        _ => Vec::new(),
    };
    let (any, ports) = (Key::Ternary(0, 0), Key::Range(0, 0xffff));
    let proto = filter
        .flows
        .proto
        .map_or(any, |proto| Key::Ternary(u128::from(proto), 0xff));
    setup.extend(["filter_v4", "filter_v6"].map(|table| {
        let addresses = [filter.flows.src, filter.flows.dst].map(|prefix| address(prefix, table));
        let keys = vec![addresses[0], addresses[1], proto, ports, ports];
        let priority = 1000 - number as i32;
        let (action, parameters) = (action.to_owned(), parameters.clone());
        Setup::Entry(
            table,
            Entry {
                keys,
                priority,
                action,
                parameters,
            },
        )
    }));
    setup
}

/// Words of a record.
fn words(watch: &Watch) -> u128 {
    let wide = if watch.mode == Mode::Md10 {
        watch.bitmap & 0x0200
    } else {
        watch.bitmap & 0x0e00
    };
    u128::from(watch.bitmap.count_ones() + wide.count_ones())
}

/// The tables of a switch.
pub(crate) struct Tables<'a> {
    pub(crate) node: u32,
    pub(crate) config: &'a Config,
    pub(crate) watches: &'a [Watch],
    pub(crate) filters: &'a [Filter],
    pub(crate) mtu: u16,
    /// Packets come from a host, and go to one.
    pub(crate) edges: (bool, bool),
    /// Packets come from outside the domain, and are not measured for that.
    pub(crate) border: bool,
    /// There is a route only to addresses whose first bit is 0.
    pub(crate) routes_half: bool,
}

pub(crate) fn entry(table: &'static str, keys: Vec<Key>, action: &str, parameters: Vec<u128>) -> Setup {
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

/// The entries of a watch, which comes before those of lower priority.
fn watched(watch: &Watch, priority: i32) -> [Setup; 2] {
    let any = Key::Ternary(0, 0);
    let proto = watch
        .flows
        .proto
        .map_or(any, |proto| Key::Ternary(u128::from(proto), 0xff));
    let ports = Key::Range(0, 0xffff);
    let drops = u128::from(watch.drops);
    let instructions = u128::from(watch.bitmap);
    // Each watch has its own sampler.
    let (sample, sampler) = (u128::from(watch.sample), u128::from(1000 - priority as u32));
    let record = vec![
        u128::from(watch.hops),
        instructions,
        words(watch),
        drops,
        sample,
        sampler,
    ];
    let (action, parameters) = match watch.mode {
        Mode::Md10 => ("watch_md_10", record),
        Mode::Mx21 => ("watch_mx_21", vec![instructions, drops, sample, sampler]),
        Mode::Postcard => ("watch_postcard", vec![instructions, drops, sample]),
        _ => ("watch_md_21", record),
    };
    ["watchlist_v4", "watchlist_v6"].map(|table| {
        let keys = vec![any, any, proto, any, ports, ports];
        let (action, parameters) = (action.to_owned(), parameters.clone());
        Setup::Entry(
            table,
            Entry {
                keys,
                priority,
                action,
                parameters,
            },
        )
    })
}

/// What a controller installs, but for where reports go.
pub(crate) fn setup(tables: &Tables<'_>) -> Vec<Setup> {
    let Tables {
        node,
        config,
        mtu,
        edges,
        ..
    } = *tables;
    let leaves = u128::from(config.l4_checksum == L4Checksum::Leave);
    let (in_port, out_port) = (Key::Exact(1), Key::Exact(2));
    let mut setup = vec![
        Setup::Default(
            "node",
            "set_node",
            vec![u128::from(node), u128::from(config.available), leaves],
        ),
        Setup::Session(SESSION, COLLECTOR),
        entry("port_mtu", vec![out_port], "set_mtu", vec![u128::from(mtu)]),
    ];
    if edges.0 {
        setup.push(entry("source_port", vec![in_port], "from_edge", vec![]));
    }
    if tables.border {
        setup.push(entry("border_port", vec![in_port], "from_border", vec![]));
    }
    if edges.1 {
        setup.push(entry("sink_port", vec![out_port], "to_edge", vec![]));
    }
    if let Some(Congestion { rise, fall, quota }) = config.congestion {
        let limits = [rise, fall, quota].map(u128::from).to_vec();
        setup.push(entry("queue_limits", vec![out_port], "watch_queue", limits));
    }
    for (place, watch) in tables.watches.iter().enumerate() {
        setup.extend(watched(watch, 1000 - place as i32));
    }
    for (number, filter) in tables.filters.iter().enumerate() {
        setup.extend(filtered(filter, number));
    }
    let prefix = Key::Lpm(0, u32::from(tables.routes_half));
    for table in ["route_v4", "route_v6"] {
        setup.push(entry(
            table,
            vec![prefix],
            "next_hop",
            vec![2, 0x0200_0000_0101, 0x0200_0000_0202],
        ));
    }
    setup
}

impl Pair {
    pub(crate) fn new(rng: &mut Rng, program: &Arc<Program>, edges: (bool, bool), available: u16) -> Self {
        let mut watch = watch(rng);
        if available != AVAILABLE && watch.mode != Mode::Postcard {
            // BMv2 may drop packets that a source counts here.
            watch.sample = 1;
        }
        let node = 1 + rng.below(1000) as u32;
        let l4_checksum = if rng.below(3) == 0 {
            L4Checksum::Leave
        } else {
            L4Checksum::Update
        };
        let mut config = Config {
            available,
            l4_checksum,
            ..Config::default()
        };
        let needs_20 = matches!(watch.mode, Mode::Mx21 | Mode::Postcard);
        if !needs_20 && rng.below(3) == 0 {
            config.format.version = Version::V10;
        }
        if available == AVAILABLE && rng.below(2) == 0 {
            config.congestion = Some(Congestion {
                rise: 1 << 17,
                fall: 1 << 16,
                quota: rng.below(3) as u32,
            });
        }
        let mtu = [1500, 1500, 1500, 100, 60, 9000][rng.below(6)];
        let routes_half = rng.below(4) == 0;
        let border = edges.0 && rng.below(2) == 0;
        let edges = (edges.0 && !(border && rng.below(2) == 0), edges.1);
        let mut filters: Vec<Filter> = (0..rng.below(3)).map(|_| filter(rng)).collect();
        if available != AVAILABLE {
            // Without times, and with one entry for a key.
            filters.truncate(1);
            // A rule sees no values then.
            let is_rule = |filter: &Filter| matches!(filter.detector.algorithm, Algorithm::Rule(_));
            let others = filters.iter_mut().filter(|filter| !is_rule(filter));
            others.for_each(|filter| filter.detector.algorithm = PATHS_ONLY);
        }
        let (config, watches, filters) = (&config, &[watch], &filters);
        Self::with(
            program,
            &Tables {
                node,
                config,
                watches,
                filters,
                mtu,
                edges,
                border,
                routes_half,
            },
        )
    }

    /// Both switches with tables that measure and filter every packet. `filter` makes the filters.
    pub(crate) fn filtering(
        rng: &mut Rng,
        program: &Arc<Program>,
        edges: (bool, bool),
        filter: fn(&mut Rng) -> Filter,
    ) -> Self {
        let watch = watch(rng);
        let sample = if rng.below(8) == 0 { 2 } else { 1 };
        let watch = Watch {
            flows: Match::default(),
            hops: 8,
            sample,
            ..watch
        };
        let mut config = Config {
            available: AVAILABLE,
            ..Config::default()
        };
        if matches!(watch.mode, Mode::Md21 | Mode::Md10) && rng.below(3) == 0 {
            config.format.version = Version::V10;
        }
        let mut filters: Vec<Filter> = (0..1 + rng.below(2)).map(|_| filter(rng)).collect();
        if let Some(last) = filters.last_mut() {
            last.flows = Match::default();
        }
        let (node, border, routes_half) = (1 + rng.below(6) as u32, false, false);
        let (config, watches, filters) = (&config, &[watch], &filters);
        let tables = Tables {
            node,
            config,
            watches,
            filters,
            mtu: 1500,
            edges,
            border,
            routes_half,
        };
        Self::with(program, &tables)
    }

    /// Both switches with these tables.
    pub(crate) fn with(program: &Arc<Program>, tables: &Tables<'_>) -> Self {
        let Tables {
            node,
            config,
            mtu,
            edges,
            border,
            routes_half,
            watches,
            filters,
        } = *tables;
        let report = if config.format.version == Version::V10 {
            "report_to_10"
        } else {
            "report_to"
        };
        let mut setup = setup(tables);
        setup.push(Setup::Default(
            "report_session",
            report,
            vec![1, 2, 0x0a00_0001, 0x0a00_0002, 32766],
        ));
        let p4 = installed(program, &setup);
        let mut rust = Switch::new(node, config.clone(), Watchlist::new(watches.to_vec())).unwrap();
        rust.set_filters(Filters::new(filters.to_vec(), REGISTERS, Units::default()).unwrap());
        Self {
            rust,
            p4,
            mtu,
            edges,
            border,
            routes_half,
            setup,
        }
    }

    /// Replaces the watchlists.
    pub(crate) fn watch(&mut self, watches: &[Watch]) {
        let is_watch = |one: &Setup| matches!(one, Setup::Entry("watchlist_v4" | "watchlist_v6", _));
        self.setup.retain(|one| !is_watch(one));
        ["watchlist_v4", "watchlist_v6"]
            .iter()
            .for_each(|table| self.p4.clear(table).unwrap());
        for (place, watch) in watches.iter().enumerate() {
            for one in watched(watch, 1000 - place as i32) {
                let Setup::Entry(table, entry) = &one else {
                    continue;
                };
                self.p4.insert(table, entry).unwrap();
                self.setup.push(one);
            }
        }
        self.rust.watch(Watchlist::new(watches.to_vec())).unwrap();
    }

    /// Sends a packet through both. Returns it as it leaves, or why they differ.
    pub(crate) fn send(&mut self, rng: &mut Rng, frame: &[u8]) -> Result<Vec<u8>, String> {
        let ingress_ts = rng.roll() & 0xffff_ffff;
        let arrival = Arrival {
            port: 1,
            ingress_ts,
            egress_ts: ingress_ts + rng.roll() % 5000,
            deq_qdepth: rng.below(1 << 19) as u32,
        };
        self.pass(frame, arrival)
    }

    /// The same with this measurement.
    pub(crate) fn pass(&mut self, frame: &[u8], arrival: Arrival) -> Result<Vec<u8>, String> {
        let next = routed(frame, self.routes_half);
        let is_reported = self.rust.config().congestion.is_some() || matches!(next, Routed::Dropped(_));
        if is_reported && !has_l4(frame) {
            return Ok(Vec::new());
        }
        let visit = Visit {
            mtu: self.mtu,
            from_edge: self.edges.0,
            to_edge: self.edges.1,
            from_border: self.border,
            ..measured(&arrival)
        };
        let sent = self.p4.process(frame, &arrival);
        let mut outbox = Outbox::default();
        let routed = by_rust(&mut self.rust, (frame, next), visit, &mut outbox);
        let packet = sent
            .iter()
            .find(|sent| sent.port == 2)
            .map_or(&[][..], |sent| &sent.frame);
        if packet != routed {
            return Err(format!(
                "packets differ, counters {:?}, mtu {} edges {:?}\n  rust {routed:02x?}\n  p4   {packet:02x?}",
                self.p4.counter("packets"),
                self.mtu,
                self.edges
            ));
        }
        let reports: Vec<&[u8]> = outbox.datagrams().map(|datagram| datagram.payload).collect();
        let sent: Vec<&[u8]> = sent
            .iter()
            .filter(|sent| sent.port == COLLECTOR)
            .map(|sent| &sent.frame[42..])
            .collect();
        if reports != sent {
            return Err(format!(
                "reports differ\n  rust {reports:02x?}\n  p4   {sent:02x?}"
            ));
        }
        self.counters().map(|()| routed)
    }

    fn counters(&self) -> Result<(), String> {
        let Stats {
            plain,
            refused,
            recorded,
            hops_exceeded,
            mtu_exceeded,
            not_restorable,
            reported,
            malformed_stripped,
            queues_reported,
            congested_reported,
            drops_reported,
            edge_stripped,
            edge_refused,
            filtered,
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
            queues_reported,
            congested_reported,
            drops_reported,
            edge_stripped,
            edge_refused,
            filtered,
        ];
        let p4 = &self.p4.counter("packets").unwrap()[..rust.len()];
        if rust != p4 {
            return Err(format!("counters differ: rust {rust:?}, p4 {p4:?}"));
        }
        let decisions = self.p4.counter("filter_decisions").unwrap();
        for ((filter, counts), p4) in self.rust.filters().entries().zip(decisions.chunks(8)) {
            let rust = [&counts.decisions[..], &[counts.collisions]].concat();
            if rust != p4[..7] {
                return Err(format!(
                    "decisions of {filter:?} differ: rust {rust:?}, p4 {p4:?}"
                ));
            }
        }
        Ok(())
    }
}

/// What the switch in Rust sends of a packet after its routing; empty: nothing.
pub(crate) fn by_rust(
    rust: &mut Switch,
    (frame, next): (&[u8], Routed),
    visit: Visit,
    outbox: &mut Outbox,
) -> Vec<u8> {
    match next {
        Routed::To(mut packet) => {
            if rust.forward(&mut packet, &visit, outbox).verdict == Verdict::Discard {
                packet.clear();
            }
            packet
        }
        Routed::Dropped(reason) => {
            rust.dropped(
                frame,
                &Visit {
                    egress_if: 0,
                    ..visit
                },
                reason,
                outbox,
            );
            Vec::new()
        }
        Routed::Lost => Vec::new(),
    }
}
