//! The program `dta_translator` and the translator in Rust do the same: random reports, stores and timers, byte for byte to the RoCEv2
//! frame with its ICRC.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

#[path = "../support/bmv2.rs"]
mod bmv2;
#[path = "../support/frames.rs"]
mod frames;
mod meters;
mod sketches;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use meters::Limits;
use p4_model::{Arrival, Entry, Key, Program, Switch};
use rdma::transport::{Blocked, Credit, RemoteAddr, Transport};
use testkit::rng::Rng;
use translator::{
    Cause, CollectorConfig, Config, Origin, Output, PinnedReporter, Reason, StoreEntry, Translator,
};
use wire::dta::hash::Family;
use wire::dta::layout::{Geometry, Ring, postcard_stride, slot_stride};
use wire::dta::{Operation, Report};
use wire::roce::{AtomicEth, Head, Nak, Path, Psn, Reth, Transport as Service, Writer};

const PROGRAM: &str = include_str!("../../../../p4/v1model/dta_translator.json");
const CPU: u16 = 60;
/// The port to the first collector.
const PORT: u16 = 100;
const COLLECTORS: u8 = 3;
const RKEY: u32 = 0x1f42;
/// Microseconds that an entry waits for its batch, and a hop for the others.
const TIMER: u64 = 40;
const PATH_TIMER: u64 = 301;
/// Places for paths of a store.
const PLACES: u32 = 8;
const OURS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// Who reports, and the port to it. Two IDs are its own, the third is another's; others are unknown.
const SENDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7)), 9);
const BACK: u16 = 2;
const IDS: [(u32, [u8; 4]); 3] = [
    (7, [10, 0, 0, 7]),
    (0x1234_5678, [10, 0, 0, 7]),
    (8, [10, 0, 0, 8]),
];
/// The first list of each ring.
const LISTS: [u32; 3] = [10, 100, 0x1234_5678];

fn seeds() -> u64 {
    std::env::var("HOPWISE_P4_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(60)
}

fn host(collector: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 200 + collector)
}

fn path(collector: u8) -> Path {
    let (source_mac, destination_mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 1, collector]);
    let path = Path::new(OURS.into(), host(collector).into(), 0xc001 + u16::from(collector));
    Path {
        source_mac,
        destination_mac,
        ..path
    }
}

/// The collector's number of a queue pair.
fn queue_pair(collector: u8, reliable: bool) -> u32 {
    0x100 + u32::from(collector) * 2 + u32::from(reliable)
}

fn address(collector: u8, region: u16) -> u64 {
    0x7f00_0000_0000 + u64::from(collector) * 0x1_0000_0000 + u64::from(region) * 0x100_0000
}

/// Writes the frames of operations at once.
struct Wire {
    queue_pairs: Vec<(Writer, Psn)>,
    frames: Vec<(u16, Vec<u8>)>,
}

impl Wire {
    fn new(psn: &[u32]) -> Self {
        let pairs = psn.iter().enumerate().map(|(index, psn)| {
            let (collector, reliable) = ((index / 2) as u8, index % 2 == 1);
            let service = if reliable { Service::Rc } else { Service::Uc };
            let writer = Writer::new(path(collector), service, queue_pair(collector, reliable)).unwrap();
            (writer, Psn::new(*psn))
        });
        Self {
            queue_pairs: pairs.collect(),
            frames: Vec::new(),
        }
    }

    fn send(
        &mut self,
        collector: u8,
        reliable: bool,
        write: impl FnOnce(&mut Writer, &mut [u8], Psn) -> usize,
    ) {
        let (writer, psn) = &mut self.queue_pairs[usize::from(collector) * 2 + usize::from(reliable)];
        let mut out = vec![0; 2048];
        let len = write(writer, &mut out, *psn);
        out.truncate(len);
        *psn = psn.next();
        self.frames.push((PORT + u16::from(collector), out));
    }
}

impl Transport for Wire {
    fn credit(&self, _collector: u8, _reliable: bool) -> Credit {
        Credit::UNLIMITED
    }

    fn write(
        &mut self,
        place: RemoteAddr,
        offset: u64,
        data: &[u8],
        immediate: Option<u32>,
        reliable: bool,
    ) -> Result<(), Blocked> {
        let reth = Reth {
            address: address(place.collector, place.region) + offset,
            rkey: RKEY,
            len: data.len() as u32,
        };
        self.send(place.collector, reliable, |writer, out, psn| {
            let head = Head {
                psn,
                ack_request: reliable,
                solicited: immediate.is_some(),
            };
            match immediate {
                Some(immediate) => writer
                    .write_only_immediate(out, head, reth, immediate, data)
                    .unwrap(),
                None => writer.write_only(out, head, reth, data).unwrap(),
            }
        });
        Ok(())
    }

    fn add(
        &mut self,
        place: RemoteAddr,
        offset: u64,
        delta: u64,
        immediate: Option<u32>,
    ) -> Result<(), Blocked> {
        let address = address(place.collector, place.region) + offset;
        self.send(place.collector, true, |writer, out, psn| {
            let head = Head {
                psn,
                ack_request: true,
                solicited: false,
            };
            writer
                .fetch_add(
                    out,
                    head,
                    AtomicEth {
                        address,
                        rkey: RKEY,
                        add: delta,
                        compare: 0,
                    },
                )
                .unwrap()
        });
        if immediate.is_some() {
            self.write(place, offset, &[], immediate, true)?;
        }
        Ok(())
    }
}

/// Messages to the reporter: collector and payload.
#[derive(Default)]
struct Messages(Vec<(u8, Vec<u8>)>);

impl Output for Messages {
    fn control(&mut self, to: SocketAddr, collector: u8, payload: &[u8]) {
        assert_eq!(to, SENDER);
        self.0.push((collector, payload.to_vec()));
    }
}

fn stores(collector: u8, batch: u32) -> Vec<StoreEntry> {
    let family = Family::V1;
    let ring = |first_list, entry_len, entries, batch| {
        let ring = Ring {
            entry_len,
            entries,
            batch,
            tagged: false,
        };
        Geometry::Append {
            lists: 3,
            first_list,
            ring,
        }
    };
    let geometries = [
        (
            1,
            Geometry::KeyWrite {
                slots: 1 << 10,
                data_len: 20,
                family,
            },
        ),
        (
            2,
            Geometry::KeyWrite {
                slots: 1 << 16,
                data_len: 64,
                family,
            },
        ),
        (
            3,
            Geometry::KeyWrite {
                slots: 1,
                data_len: 4,
                family,
            },
        ),
        (
            1,
            Geometry::KeyIncrement {
                slots: 1 << 12,
                family,
            },
        ),
        (0, ring(LISTS[0], 4, 64, 16)),
        (0, ring(LISTS[1], 16, 12, 4)),
        (0, ring(LISTS[2], 64, 5, 1)),
        (
            5,
            Geometry::Postcarding {
                slots: 1 << 8,
                hops: 5,
                family,
            },
        ),
        (
            6,
            Geometry::Postcarding {
                slots: 1 << 4,
                hops: 16,
                family,
            },
        ),
    ];
    let entry =
        |(region, (id, geometry)): (usize, (u16, Geometry))| StoreEntry::new(region as u16, id, geometry);
    let stores = geometries.into_iter().enumerate().map(entry);
    stores.chain(sketches::stores(collector, batch)).collect()
}

/// The model, and the commands that set up BMv2 in the same way.
struct Target {
    model: Switch,
    commands: String,
}

fn insert(target: &mut Target, table: &str, keys: &[u128], action: &str, parameters: Vec<u128>) {
    let words = |numbers: &[u128]| {
        numbers
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    writeln!(
        target.commands,
        "table_add {table} {action} {} => {}",
        words(keys),
        words(&parameters)
    )
    .unwrap();
    let switch = &mut target.model;
    let keys = keys.iter().map(|key| Key::Exact(*key)).collect();
    switch
        .insert(
            table,
            &Entry {
                keys,
                priority: 0,
                action: action.to_owned(),
                parameters,
            },
        )
        .unwrap();
}

/// Entries of a store. Returns what its timer frames name: opcode, place and ID.
fn install(p4: &mut Target, collector: u8, store: &StoreEntry, sketches: (u32, u64)) -> Vec<(u8, u32, u32)> {
    let (of, at) = (u128::from(collector), address(collector, store.region));
    let slots = |slots: u64, stride: u64, words: u16| {
        let stride = u128::from(stride.trailing_zeros());
        vec![
            at.into(),
            RKEY.into(),
            u128::from(slots - 1),
            stride,
            words.into(),
        ]
    };
    match store.geometry {
        Geometry::KeyWrite {
            slots: number,
            data_len,
            ..
        } => {
            let parameters = slots(number, slot_stride(data_len), data_len / 4);
            insert(p4, "store", &[of, 1, store.id.into()], "slots", parameters);
        }
        Geometry::KeyIncrement { slots: number, .. } => {
            insert(
                p4,
                "store",
                &[of, 3, store.id.into()],
                "slots",
                slots(number, 8, 0),
            );
        }
        Geometry::Append {
            lists,
            first_list,
            ring,
        } => {
            for list in 0..lists {
                let index = u32::from(collector) * 16 + u32::from(store.region) * 3 % 16 + list;
                let parameters = vec![
                    u128::from(at + ring.offset(list.into(), 0)),
                    RKEY.into(),
                    index.into(),
                    ring.batch.into(),
                    ring.entries.into(),
                    u128::from(ring.entry_len / 4),
                    TIMER.into(),
                ];
                insert(
                    p4,
                    "store",
                    &[of, 2, (first_list + list).into()],
                    "ring",
                    parameters,
                );
            }
            return (first_list..first_list + lists)
                .map(|list| (2, 0, list))
                .collect();
        }
        Geometry::Postcarding {
            slots: number, hops, ..
        } => {
            let id = u32::from(store.id);
            let first = (u32::from(collector) * 2 + id - 5) * PLACES;
            let mut parameters = slots(number, postcard_stride(hops), hops.into());
            parameters.extend([first.into(), u128::from(PLACES - 1), PATH_TIMER.into()]);
            insert(p4, "store", &[of, 4, id.into()], "paths", parameters);
            return (0..PLACES).map(|place| (4, place, id)).collect();
        }
        Geometry::Sketch { .. } => return sketches::install(p4, collector, store, sketches),
    }
    Vec::new()
}

/// The timer's frame for a list, or for a place of a store of paths.
fn timer(collector: u8, opcode: u8, place: u32, id: u32) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend_from_slice(&[0x88, 0xb5, collector, opcode << 4]);
    frame.extend_from_slice(&(place as u16).to_be_bytes());
    frame.extend_from_slice(&id.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn settings(p4: &mut Target) {
    insert(p4, "timer_port", &[CPU.into()], "accept_timer", vec![]);
    let tracking = [10_000_000, 1000, 3, 1];
    p4.model.set_default("tracking", "track_by", &tracking).unwrap();
    p4.model.set_session(512 + 1, BACK);
    writeln!(
        p4.commands,
        "table_set_default tracking track_by 10000000 1000 3 1\nmirroring_add 513 {BACK}"
    )
    .unwrap();
}

/// Who may use which ID.
fn reporters(p4: &mut Target, collector: u8) {
    for (index, (id, address)) in IDS.into_iter().enumerate() {
        let index = u128::from(collector) * 100 + index as u128;
        let keys = [collector.into(), id.into()];
        let parameters = vec![index, u32::from_be_bytes(address).into()];
        insert(p4, "reporter", &keys, "track", parameters);
    }
}

/// The ends of both queue pairs.
fn queue_pairs(p4: &mut Target, collector: u8) {
    for reliable in [false, true] {
        let index = u32::from(collector) * 2 + u32::from(reliable);
        let number = queue_pair(collector, reliable);
        let path = path(collector);
        let mac = |mac: [u8; 6]| mac.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
        let ends = [
            mac(path.source_mac),
            mac(path.destination_mac),
            OURS.to_bits().into(),
        ];
        let rest = [
            host(collector).to_bits().into(),
            path.source_port.into(),
            number.into(),
        ];
        insert(
            p4,
            "queue_pair",
            &[index.into()],
            "send_to",
            [ends, rest].concat(),
        );
        let ours = [host(collector).to_bits().into(), u128::from(number) + 0x5000];
        insert(p4, "answer", &ours, "resynchronise", vec![index.into()]);
    }
}

/// The groups of a collector: of one to five operations, and of one after which the packet passes again.
fn groups(p4: &mut Target, collector: u8, nodes: &mut u32) {
    for group in 1..=6 {
        let copies = if group == 6 {
            vec![1, 7]
        } else {
            (1..=group).collect()
        };
        let replicas: Vec<_> = copies
            .into_iter()
            .map(|copy| (PORT + u16::from(collector), copy))
            .collect();
        let group = u16::from(collector) * 8 + group;
        p4.model.set_group(group, &replicas);
        writeln!(p4.commands, "mc_mgrp_create {group}").unwrap();
        for (port, number) in &replicas {
            writeln!(
                p4.commands,
                "mc_node_create {number} {port}\nmc_node_associate {group} {nodes}"
            )
            .unwrap();
            *nodes += 1;
        }
    }
}

/// Both translators.
struct Pair {
    rust: Translator,
    wire: Wire,
    p4: Target,
    timers: Vec<Vec<u8>>,
    unreadable: u64,
    /// The next sequence of each ID to each collector.
    next: [[u16; IDS.len()]; COLLECTORS as usize],
    /// Columns of a sketch that are written together.
    batch: u32,
    columns: sketches::Reporters,
    /// Levels of congestion depend on when they are looked at: at each report and timer frame.
    is_metered: bool,
}

impl Pair {
    fn new(program: &Program, rng: &mut Rng, sketch_timer: u64, limits: &Limits) -> Self {
        let batch = 1 + rng.below(4) as u32;
        let memory = |collector| CollectorConfig {
            stores: stores(collector, batch),
            rate: limits.rates[usize::from(collector)],
        };
        let config = Config {
            collectors: (0..COLLECTORS).map(|collector| Some(memory(collector))).collect(),
            sketch_columns: batch,
            sketch_timer: sketch_timer * 1000,
            append_timer: TIMER * 1000,
            postcard_timer: PATH_TIMER * 1000,
            postcards: PLACES as usize,
            known: IDS
                .map(|(reporter, address)| PinnedReporter {
                    reporter,
                    address: address.into(),
                })
                .to_vec(),
            owned: 0,
            acks: true,
            acknowledge_repeated: false,
            // As large as the addresses and IDs need, so that a tick forgets all that are silent.
            reporters: 16,
            local: 0,
            hold: limits.hold * 1000,
            copies: limits.copies,
            reporter_rate: limits.reports,
            reporter_burst: limits.burst,
            ..Config::default()
        };
        let psn: Vec<u32> = (0..COLLECTORS * 2)
            .map(|_| rng.roll() as u32 & 0xff_ffff | 0xff_fff0)
            .collect();
        let mut p4 = Target {
            model: Switch::new(program.clone()),
            commands: String::new(),
        };
        let mut nodes = 0;
        let mut timers = Vec::new();
        settings(&mut p4);
        limits.install(&mut p4);
        for collector in 0..COLLECTORS {
            insert(
                &mut p4,
                "collector",
                &[host(collector).to_bits().into()],
                "translate",
                vec![collector.into()],
            );
            reporters(&mut p4, collector);
            for store in &stores(collector, batch) {
                let timer = |(opcode, place, id)| timer(collector, opcode, place, id);
                timers.extend(
                    install(&mut p4, collector, store, (batch, sketch_timer))
                        .into_iter()
                        .map(timer),
                );
            }
            queue_pairs(&mut p4, collector);
            groups(&mut p4, collector, &mut nodes);
        }
        let rust = Translator::new(config).unwrap();
        let next = std::array::from_fn(|_| std::array::from_fn(|_| rng.roll() as u16));
        let wire = Wire::new(&vec![0; psn.len()]);
        let columns = sketches::Reporters::default();
        let is_metered = limits.are_some();
        let mut pair = Self {
            rust,
            wire,
            p4,
            timers,
            unreadable: 0,
            next,
            batch,
            columns,
            is_metered,
        };
        for (index, psn) in psn.iter().enumerate() {
            pair.resynchronise(index, *psn);
        }
        pair
    }

    /// A collector's NAK: the next PSN of a queue pair.
    fn resynchronise(&mut self, index: usize, psn: u32) {
        let out = nak(index, psn);
        let mut wrong = out.clone();
        wrong[50] ^= 1;
        for frame in [&wrong, &out] {
            assert_eq!(
                self.p4.model.process(
                    frame,
                    &Arrival {
                        port: PORT,
                        ..Arrival::default()
                    }
                ),
                []
            );
        }
        self.wire.queue_pairs[index].1 = Psn::new(psn);
    }

    fn give(&mut self, us: u64, port: u16, frame: &[u8], sent: &mut Vec<(u16, Vec<u8>)>) {
        let arrival = Arrival {
            port,
            ingress_ts: us,
            egress_ts: us,
            ..Arrival::default()
        };
        sent.extend(
            self.p4
                .model
                .process(frame, &arrival)
                .into_iter()
                .map(|out| (out.port, out.frame)),
        );
    }

    /// Time passes: what waits is written, the oldest first, as timer frames in short intervals have it.
    fn wait(&mut self, until: u64) -> Result<(), String> {
        while let Some(us) = self
            .rust
            .deadline()
            .map(|deadline| deadline.div_ceil(1000))
            .filter(|us| *us < until)
        {
            let mut p4 = Vec::new();
            for timer in [self.timers.clone(), self.some_timers(us)].concat() {
                self.give(us, CPU, &timer, &mut p4);
            }
            self.tick(us);
            let rust = std::mem::take(&mut self.wire.frames);
            if rust != p4 {
                return Err(format!(
                    "frames of timers differ\n  rust {rust:02x?}\n  p4   {p4:02x?}"
                ));
            }
        }
        Ok(())
    }

    /// A tick, and one that looks at the levels after its writes, as the timer frames after the first one do.
    fn tick(&mut self, us: u64) {
        (0..2).for_each(|_| self.rust.tick(us * 1000, &mut self.wire));
    }

    /// A timer frame, or one of each collector.
    fn some_timers(&self, us: u64) -> Vec<Vec<u8>> {
        if !self.is_metered {
            return vec![self.timers[us as usize % self.timers.len()].clone()];
        }
        let of = |collector: u8| self.timers.iter().filter(move |frame| frame[14] == collector);
        let one = |collector| of(collector).nth(us as usize % of(collector).count()).cloned();
        (0..COLLECTORS).filter_map(one).collect()
    }

    /// A report at the time `us`, for both.
    fn send(&mut self, us: u64, collector: u8, payload: &[u8]) -> Result<(), String> {
        self.wait(us)?;
        let mut p4 = Vec::new();
        // All timer frames where a timer is over, else one of them, which changes nothing.
        let is_over = self.rust.deadline().is_some_and(|deadline| deadline <= us * 1000);
        let timers = if is_over { self.timers.clone() } else { Vec::new() };
        for timer in [timers, self.some_timers(us)].concat() {
            self.give(us, CPU, &timer, &mut p4);
        }
        self.give(us, 1, &frame(collector, payload), &mut p4);
        self.tick(us);
        let mut messages = Messages::default();
        let merged = self.rust.stats().sketches.merged;
        if has_form(payload) || Report::parse(payload).is_err() {
            let origin = Origin {
                sender: SENDER,
                collector,
            };
            self.rust
                .process(us * 1000, origin, payload, &mut self.wire, &mut messages);
        } else {
            self.unreadable += 1;
        }
        let rust = std::mem::take(&mut self.wire.frames);
        let (back, p4): (Vec<_>, Vec<_>) = p4.into_iter().partition(|(port, _)| *port == BACK);
        if rust != p4 {
            return Err(format!("frames differ\n  rust {rust:02x?}\n  p4   {p4:02x?}"));
        }
        let back: Vec<_> = back.iter().map(|(_, frame)| message(frame)).collect();
        if messages.0 != back {
            return Err(format!(
                "messages differ\n  rust {:02x?}\n  p4   {back:02x?}",
                messages.0
            ));
        }
        back.iter()
            .for_each(|(collector, payload)| self.obey(us, *collector, payload));
        self.columns.merged(self.rust.stats().sketches.merged > merged);
        self.counters()
    }

    /// A reporter goes on after the last number of a NACK for a gap, unless that is lost.
    fn obey(&mut self, us: u64, collector: u8, payload: &[u8]) {
        let index = IDS.iter().position(|(id, _)| payload[4..8] == id.to_be_bytes());
        // Where time passes, most are lost, so that gaps are given up.
        let is_heard = us.is_multiple_of(5) || us < 1_010_000 && !us.is_multiple_of(7);
        let sends_again = payload[8] == 2 && [1, 4].contains(&payload[9]);
        if let Some(index) = index.filter(|_| sends_again && is_heard) {
            let last = u16::from_be_bytes([payload[10], payload[11]]);
            self.next[usize::from(collector)][index] = last.wrapping_add(1);
        }
    }

    /// Numbers an essential report: mostly the next one, else one that was lost on its way, comes again or is of a reporter that began
    /// again.
    fn number(&mut self, rng: &mut Rng, collector: u8, payload: &mut [u8]) {
        if payload.len() < 8 || payload[1] & 0x40 == 0 {
            return;
        }
        if !has_form(payload) && Report::parse(payload).is_ok() {
            // What only the program cannot read has no number.
            payload[1] &= !0x40;
            return;
        }
        let known = IDS.iter().position(|(id, _)| payload[4..8] == id.to_be_bytes());
        // Who sends columns is part of the report.
        let index = if payload[0] == 0x15 {
            known.unwrap_or(3)
        } else {
            [0, 0, 0, 1, 2, 3][rng.below(6)]
        };
        let Some((id, _)) = IDS.get(index) else {
            payload[4..8].fill(0x55);
            return;
        };
        payload[4..8].copy_from_slice(&id.to_be_bytes());
        let next = &mut self.next[usize::from(collector)][index];
        match rng.below(90) {
            0 => *next = next.wrapping_add(1 + rng.below(4) as u16),
            1 => *next = next.wrapping_sub(1 + rng.below(12) as u16),
            2 => *next = next.wrapping_sub(300 + rng.below(20_000) as u16),
            3 => *next = rng.roll() as u16,
            _ => {}
        }
        payload[2..4].copy_from_slice(&next.to_be_bytes());
        *next = next.wrapping_add(u16::from(rng.below(20) != 0));
    }

    fn counters(&self) -> Result<(), String> {
        let stats = self.rust.stats();
        let reports = &stats.reports;
        let dropped = |reason: Reason| reports.dropped[reason as usize];
        let rust = [
            reports.done.iter().sum(),
            self.unreadable + reports.unreadable.iter().sum::<u64>() + dropped(Reason::NotAccepted),
            dropped(Reason::UnknownStore),
            dropped(Reason::UnknownList),
            dropped(Reason::TooMuchData),
            dropped(Reason::WrongEntry),
            dropped(Reason::WrongHop),
            dropped(Reason::Duplicate),
            dropped(Reason::Gap),
            dropped(Reason::Forged),
            dropped(Reason::ReportersFull),
            dropped(Reason::UnknownSketch),
            dropped(Reason::WrongShape),
            dropped(Reason::OneReporterTooMany),
            dropped(Reason::DuplicateColumn),
            dropped(Reason::ColumnGap),
            dropped(Reason::EpochOver),
            dropped(Reason::EpochAhead),
            dropped(Reason::Metered),
            dropped(Reason::CongestedLow),
            dropped(Reason::CongestedMedium),
            dropped(Reason::LocalFull),
        ];
        let p4 = self.p4.model.counter("reports").unwrap();
        if rust != p4 {
            return Err(format!("counters differ: rust {rust:?}, p4 {p4:?}"));
        }
        let controls = &stats.controls;
        let rust = [
            [stats.sequences.accepted, stats.sequences.restarts].to_vec(),
            [
                &[controls.acks][..],
                &controls.nacks,
                &[controls.sketch_nacks, controls.notices],
            ]
            .concat(),
            vec![stats.sequences.lost],
            vec![stats.sketches.complete, stats.sketches.partial],
        ];
        let [sequences, messages, sketches] =
            ["sequences", "messages", "sketches"].map(|name| self.p4.model.counter(name).unwrap().to_vec());
        let lost = self.p4.model.registers("lost").unwrap()[0] as u64;
        let p4 = [sequences, messages, vec![lost], sketches];
        if rust == p4 {
            Ok(())
        } else {
            Err(format!("sequences differ: rust {rust:?}, p4 {p4:?}"))
        }
    }
}

/// The collector and the payload of a message to the reporter.
fn message(frame: &[u8]) -> (u8, Vec<u8>) {
    let (head, payload) = frame.split_at(42);
    assert_eq!(wire::checksum::of(&head[14..34]), 0, "{head:02x?}");
    assert_eq!(
        (head[..6].to_vec(), &head[30..34]),
        (vec![2, 0, 0, 0, 0, 8], &[10, 0, 0, 7][..])
    );
    let len = payload.len() as u8;
    assert_eq!(
        (&head[16..18], &head[34..40]),
        (&[0, 28 + len][..], &[0x9c, 0x68, 0x9c, 0x6c, 0, 8 + len][..])
    );
    (head[29] - 200, payload.to_vec())
}

/// A collector's NAK of a queue pair: the next PSN.
fn nak(index: usize, psn: u32) -> Vec<u8> {
    let (collector, reliable) = ((index / 2) as u8, index % 2 == 1);
    let back = Path::new(host(collector).into(), OURS.into(), 0xc777);
    let mut writer = Writer::new(back, Service::Rc, queue_pair(collector, reliable) + 0x5000).unwrap();
    let mut out = vec![0; 128];
    let len = writer
        .nak(&mut out, Psn::new(psn), Nak::SequenceError, 7)
        .unwrap();
    out.truncate(len);
    out
}

/// A report of a primitive and of lengths that the program reads.
fn has_form(payload: &[u8]) -> bool {
    let Ok(report) = Report::parse(payload) else {
        return false;
    };
    let words = |len: usize| len.is_multiple_of(4) && (4..=64).contains(&len);
    match report.operation {
        Operation::KeyWrite { key, data, .. } => key.len() <= 16 && words(data.len()),
        Operation::KeyIncrement { key, .. } | Operation::Postcard { key, .. } => key.len() <= 16,
        Operation::Append {
            entry_len, entries, ..
        } => [4, 8, 16, 32, 64].contains(&entry_len) && entries.len() == usize::from(entry_len),
        Operation::SketchMerge { counters, .. } => words(counters.len()),
    }
}

fn frame(collector: u8, payload: &[u8]) -> Vec<u8> {
    frames::udp(([10, 0, 0, 7].into(), 0x9c69), (host(collector), 0x9c68), payload)
}

/// A report; some for stores that do not exist, some with too much data, some corrupted.
fn report(rng: &mut Rng) -> Vec<u8> {
    let immediate = if rng.below(5) == 0 { 0x80 } else { 0 };
    let flags = immediate | (rng.below(3) as u8) << 4 | u8::from(rng.below(3) == 0) << 6;
    let opcode = [1, 2, 2, 2, 3, 4, 4, 4][rng.below(8)];
    let mut out = vec![
        0x10 | opcode,
        flags,
        rng.roll() as u8,
        rng.roll() as u8,
        0,
        0,
        0,
        7,
    ];
    let key: Vec<u8> = (0..1 + rng.below(17)).map(|_| rng.roll() as u8).collect();
    let copies = 1 + rng.below(4) as u8;
    let store = [1, 1, 2, 3, 9][rng.below(5)];
    match opcode {
        1 => {
            let len = [4, 8, 20, 20, 64, 68, 5][rng.below(7)];
            out.extend_from_slice(&[copies, key.len() as u8, 0, len, 0, store, 0, 0]);
            out.extend_from_slice(&key);
            out.extend((0..len).map(|_| rng.roll() as u8));
        }
        2 => {
            let ring = rng.below(3);
            let list = LISTS[ring] + rng.below(10).min(3) as u32;
            let len = if rng.below(10) == 0 {
                [4, 8, 12, 16][rng.below(4)]
            } else {
                [4, 16, 64][ring]
            };
            out.extend_from_slice(&list.to_be_bytes());
            out.extend_from_slice(&[0, len, 1, 0]);
            out.extend((0..len).map(|_| rng.roll() as u8));
        }
        4 => {
            let store = [5, 5, 5, 5, 5, 6, 6, 9][rng.below(8)];
            let (hop, path_len) = (
                [1, 2, 2, 1, 3, 6][rng.below(6)],
                [0, 2, 2, 2, 3, 200][rng.below(6)],
            );
            // Few keys, so that paths are completed.
            let key: Vec<u8> = key.iter().map(|byte| byte & 3).take(2).collect();
            out.extend_from_slice(&[hop, path_len, key.len() as u8, 0, 0, store, 0, 0]);
            out.extend_from_slice(&(rng.roll() as u32).to_be_bytes());
            out.extend_from_slice(&key);
        }
        _ => {
            out.extend_from_slice(&[copies, key.len() as u8, 0, store, 0, 0, 0, 0]);
            out.extend_from_slice(&rng.roll().to_be_bytes());
            out.extend_from_slice(&key);
        }
    }
    if rng.below(20) == 0 {
        rng.corrupt(&mut out);
    }
    if out.len() > 9 && out[0] == 0x14 && out[9] == 1 {
        // A path of one hop evicts none from the program's places.
        out[9] = 0;
    }
    out
}

#[test]
fn operations_and_counters_are_the_same() {
    let program = Program::read(PROGRAM).unwrap();
    let (mut sent, mut done, mut counts, mut paths) = (0, [0; 5], [0; 22], [0; 5]);
    let (mut sequences, mut sketches) = ([0; 8], [0; 4]);
    for seed in 0..seeds() {
        let mut rng = Rng(seed);
        let mut pair = Pair::new(&program, &mut rng, sketches::TIMER, &Limits::of(seed));
        let mut us = 1_000_000;
        // Some with one collector, and enough reports for an ACK.
        let (steps, collectors) = if seed % 10 == 1 {
            (800, 1)
        } else {
            (200, usize::from(COLLECTORS))
        };
        for step in 0..steps {
            let collector = rng.below(collectors) as u8;
            let mut payload = if rng.below(if seed % 4 == 0 { 5 } else { 15 }) < 4 {
                pair.columns.report(&mut rng, collector, pair.batch)
            } else {
                report(&mut rng)
            };
            pair.number(&mut rng, collector, &mut payload);
            // After NACKs, after reporters are calm, and after they are forgotten.
            let pauses = [900, 5000, 17_000, 300_000, 11_000_000];
            us += if rng.below(15) == 0 && seed.is_multiple_of(3) {
                pauses[rng.below(5)]
            } else {
                3
            };
            if rng.below(40) == 0 {
                pair.resynchronise(rng.below(6), rng.roll() as u32 & 0xff_ffff);
            }
            pair.send(us, collector, &payload)
                .unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}\n  report {payload:02x?}"));
            sent += 1;
        }
        let stats = pair.rust.stats();
        let (reports, written) = (stats.reports, stats.postcards.paths);
        paths
            .iter_mut()
            .zip(&written)
            .for_each(|(all, written)| *all += written);
        done.iter_mut()
            .zip(&reports.done)
            .for_each(|(all, done)| *all += done);
        let now = [
            stats.sequences.accepted,
            stats.sequences.restarts,
            stats.sequences.lost,
            stats.controls.acks,
        ];
        let now = now.into_iter().chain(stats.controls.nacks);
        sequences
            .iter_mut()
            .zip(now)
            .for_each(|(all, count)| *all += count);
        let now = [
            stats.sketches.complete,
            stats.sketches.partial,
            stats.controls.sketch_nacks,
            stats.controls.notices,
        ];
        sketches
            .iter_mut()
            .zip(now)
            .for_each(|(all, count)| *all += count);
        let p4 = pair.p4.model.counter("reports").unwrap();
        counts.iter_mut().zip(p4).for_each(|(all, count)| *all += count);
    }
    assert!(
        sent >= 10_000 && done.iter().all(|done| *done > 300),
        "{sent} {done:?}: the test has become idle"
    );
    assert!(
        counts.iter().all(|count| *count > 30),
        "{counts:?}: the test has become idle"
    );
    let causes = [Cause::Full, Cause::Timer, Cause::Evicted].map(|cause| paths[cause as usize]);
    assert!(
        causes.iter().all(|paths| *paths > 30),
        "{causes:?}: the test has become idle"
    );
    assert!(
        sketches.iter().all(|count| *count > 30),
        "{sketches:?}: the test has become idle"
    );
    // Accepted, restarts, lost, ACKs, NACKs by code.
    assert!(
        sequences.iter().all(|count| *count > 1),
        "{sequences:?}: the test has become idle"
    );
}

#[test]
fn senders_that_are_not_installed_share_a_rate_and_get_no_notice() {
    let program = Program::read(PROGRAM).unwrap();
    let mut pair = Pair::new(&program, &mut Rng(3), sketches::TIMER, &Limits::of_reports(5));
    pair.p4.model.clear("sender").unwrap();
    let payload = [
        0x11, 0x20, 0, 0, 0, 0, 0, 7, 1, 1, 0, 4, 0, 1, 0, 0, 9, 1, 2, 3, 4,
    ];
    let counts = |model: &Switch| {
        let [reports, messages] = ["reports", "messages"].map(|name| model.counter(name).unwrap());
        [reports[0], reports[18], messages[6]]
    };
    for sender in 0..20 {
        let report = frames::udp(([10, 0, 1, sender].into(), 0x9c69), (host(0), 0x9c68), &payload);
        pair.give(1_000_000, 1, &report, &mut Vec::new());
    }
    assert_eq!(counts(&pair.p4.model), [5, 15, 0]);
    // Of a sender that is installed, the rate is its own.
    insert(
        &mut pair.p4,
        "sender",
        &[u32::from_be_bytes([10, 0, 1, 1]).into()],
        "count_sender",
        vec![3],
    );
    for _ in 0..20 {
        let report = frames::udp(([10, 0, 1, 1].into(), 0x9c69), (host(0), 0x9c68), &payload);
        pair.give(1_000_000, 1, &report, &mut Vec::new());
    }
    assert_eq!(counts(&pair.p4.model), [10, 30, 1]);
}

#[test]
fn the_model_and_bmv2_do_the_same() {
    let program = Program::read(PROGRAM).unwrap();
    let mut rng = Rng(7);
    let mut pair = Pair::new(&program, &mut rng, sketches::NO_TIMER, &Limits::of(1));
    let (mut input, mut expected) = (Vec::new(), BTreeMap::<u16, Vec<Vec<u8>>>::new());
    // The PSNs of the model are those after its setup.
    for index in 0..usize::from(COLLECTORS) * 2 {
        input.push(nak(index, rng.roll() as u32 & 0xff_ffff));
    }
    // Every NACK is due: BMv2 may process packets one after the other that wait for it.
    pair.p4
        .model
        .set_default("tracking", "track_by", &[10_000_000, 0, 3, 1])
        .unwrap();
    writeln!(
        pair.p4.commands,
        "table_set_default tracking track_by 10000000 0 3 1"
    )
    .unwrap();
    meters::install_timeless(&mut pair.p4);
    let mut next = [0xfff0_u16; COLLECTORS as usize];
    for number in 0..300 {
        let collector = rng.below(COLLECTORS.into()) as u8;
        let is_sketch = number % 10 == 9;
        let mut payload = if is_sketch {
            pair.columns.report(&mut rng, collector, pair.batch)
        } else {
            report(&mut rng)
        };
        pair.columns.merged(true);
        if payload.len() > 7 && payload[1] & 0x40 != 0 {
            // In order, as what follows a gap depends on time.
            let next = &mut next[usize::from(collector)];
            let is_numbered = has_form(&payload) && payload[4..8] == [0, 0, 0, 7];
            payload[1] &= if is_numbered { 0xff } else { !0x40 };
            payload[2..4].copy_from_slice(&next.to_be_bytes());
            *next = next.wrapping_add(u16::from(is_numbered));
        }
        input.push(frame(collector, &payload));
        if is_sketch {
            // Frames that are dropped, while the report passes again.
            input.extend((0..8).map(|_| vec![0; 60]));
        }
    }
    // In the order of time, by which the oldest path is found; ten milliseconds between two, as in the capture.
    for (number, frame) in input.iter().enumerate() {
        let arrival = Arrival {
            port: 1,
            ingress_ts: 1_000_000 + 10_000 * number as u64,
            ..Arrival::default()
        };
        for sent in pair.p4.model.process(frame, &arrival) {
            expected.entry(sent.port).or_default().push(sent.frame);
        }
    }
    let counts = expected
        .iter()
        .map(|(port, frames)| (*port, frames.len()))
        .collect();
    let test = "the_model_and_bmv2_do_the_same";
    let mut got = BTreeMap::new();
    // A busy machine may process the next packet before the pass after a pass.
    for _ in 0..3 {
        let Some(run) = bmv2::run(
            (test, "dta_translator.json"),
            1,
            &pair.p4.commands,
            &input,
            &counts,
        ) else {
            return;
        };
        got = run;
        if got == expected {
            return;
        }
    }
    for (port, expected) in expected {
        let got = &got[&port];
        if got.len() < expected.len() {
            // Later PSNs and batches are others then.
            bmv2::skipped(
                test,
                "simple_switch dropped packets, as it does when the machine is busy",
            );
            return;
        }
        assert_eq!(*got, expected, "port {port}");
    }
}
