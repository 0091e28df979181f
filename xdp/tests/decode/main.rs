//! The kernel's decoder gives the same result as `wire` for every frame.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod normal;
mod support;

use dataplane::fabric::{Family, FlowSpec, Transport, Wire};
use dataplane::report::{Format, Version};
use dataplane::sf::{self, Form, Urgent};
use dataplane::switch::{self, Congestion, Mark};
use dataplane::watchlist::Mode;
use dataplane::{Config, Fabric, FabricSink, Pattern, Reporter, Topology, Watch};
use detect::Match;
use normal::{Frame, Outcome, Parsed};
use support::{KEPT, Kernel, frame_of};
use testkit::datagrams::{self, pick};
use testkit::rng::Rng;
use testkit::vectors::{self, Kind, Vector};
use wire::{Profile, Refusal};
use xdp::Units;

/// Random units of a profile's values.
fn units(rng: &mut Rng) -> Units {
    Units {
        stamp_ns: pick(rng, &[1, 1, 8, u32::MAX]),
        latency_ns: pick(rng, &[1, 1, 100, u32::MAX]),
        utilization: pick(rng, &[1, 10_000, 1_000_000]),
        synchronised: rng.below(2) == 0,
        max_latency: pick(rng, &[u64::MAX, 1_000_000_000, 2_000, 300]),
    }
}

/// A vector as frames: as it is, its bytes in a datagram, or inside reports of several versions.
fn frames(vector: &Vector) -> Vec<Vec<u8>> {
    match vector.kind {
        Kind::Frame => vec![vector.bytes.clone()],
        Kind::Payload => vec![frame_of(&vector.bytes)],
        Kind::Packet => reports_about(&vector.bytes)
            .iter()
            .map(|payload| frame_of(payload))
            .collect(),
        _ => Vec::new(),
    }
}

/// Reports about a packet, one of each version.
fn reports_about(packet: &[u8]) -> Vec<Vec<u8>> {
    let v05 = [0x00, 0x20, 0, 1, 0, 0, 0, 7, 0, 0, 3, 0xe8];
    let v10 = [0x14, 0, 0, 0x41, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 3, 0xe8];
    let padded = packet.len().next_multiple_of(4);
    let words = (padded / 4).min(255) as u8;
    let v20 = [0x20, 0x40, 0x0a, 0xbd, 0, 0, 0, 3, 0x03, words, 0, 0x20];
    let tail = vec![0; padded - packet.len()];
    [
        [&v05[..], packet].concat(),
        [&v10[..], packet].concat(),
        [&v20[..], packet, &tail].concat(),
    ]
    .to_vec()
}

/// The differences between kernel and Rust, or whether there is none only because the kernel leaves a report to user space.
fn difference(kernel: &mut Kernel, frame: &[u8], profile: &Profile, units: &Units) -> Result<bool, String> {
    kernel.read_as(profile, units);
    let expected = normal::outcome(frame, profile, units, KEPT);
    let mut got = kernel.decode(frame);
    if got.peeked[0] == 0 {
        got.peeked = [0; 4];
    }
    let is_left = got.take_left(&expected);
    if got == expected {
        Ok(is_left)
    } else {
        Err(format!(
            "{profile:?}\n{frame:02x?}\n  expected {expected:?}\n  got      {got:?}"
        ))
    }
}

/// Fails, and shows the first differences, if there are any.
struct Differences {
    kernel: Kernel,
    count: u32,
    /// Frames with a report that the kernel leaves to user space although it could have read it as `wire` does.
    left: Vec<String>,
    found: Vec<String>,
}

impl Differences {
    fn new(test: &str) -> Option<Self> {
        Some(Self {
            kernel: Kernel::new(test)?,
            count: 0,
            left: Vec::new(),
            found: Vec::new(),
        })
    }

    /// Compares the two results for a frame.
    fn compare(&mut self, what: &str, frame: &[u8], profile: &Profile, units: &Units) {
        const SHOWN: usize = 5;
        // A frame without an Ethernet header reaches no program.
        if frame.len() < 14 {
            return;
        }
        self.count += 1;
        if self.found.len() < SHOWN {
            match difference(&mut self.kernel, frame, profile, units) {
                Ok(false) => {}
                Ok(true) => self.left.push(what.to_owned()),
                Err(difference) => self.found.push(format!("{what}: {difference}")),
            }
        }
    }

    fn none(self) {
        println!("{} frames, of which {} are left", self.count, self.left.len());
        assert!(self.left.len() <= self.count as usize / 20);
        assert!(self.found.is_empty(), "{}", self.found.join("\n\n"));
    }
}

#[test]
fn every_vector_decodes_as_in_wire() {
    let Some(mut all) = Differences::new("every_vector_decodes_as_in_wire") else {
        return;
    };
    for vector in vectors::all() {
        for frame in frames(&vector) {
            all.compare(&vector.name, &frame, &vector.profile, &Units::default());
        }
    }
    all.none();
}

#[test]
fn truncated_vectors_decode_as_in_wire() {
    let Some(mut all) = Differences::new("truncated_vectors_decode_as_in_wire") else {
        return;
    };
    for vector in vectors::all() {
        for frame in frames(&vector) {
            for len in 14..frame.len() {
                all.compare(&vector.name, &frame[..len], &vector.profile, &Units::default());
            }
        }
        if vector.kind == Kind::Payload {
            for len in 0..vector.bytes.len() {
                all.compare(
                    &vector.name,
                    &frame_of(&vector.bytes[..len]),
                    &vector.profile,
                    &Units::default(),
                );
            }
        }
    }
    all.none();
}

#[test]
fn corrupted_vectors_decode_as_in_wire() {
    const ROUNDS: usize = 40;
    let Some(mut all) = Differences::new("corrupted_vectors_decode_as_in_wire") else {
        return;
    };
    let mut rng = Rng(0x5b01);
    for vector in vectors::all() {
        for _ in 0..ROUNDS {
            let mut corrupted = vector.clone();
            rng.corrupt(&mut corrupted.bytes);
            let profile = if rng.below(4) == 0 {
                datagrams::profile(&mut rng)
            } else {
                vector.profile
            };
            let units = units(&mut rng);
            for frame in frames(&corrupted) {
                all.compare(&vector.name, &frame, &profile, &units);
            }
        }
    }
    all.none();
}

/// Coverage of the random reports: counts by refusal, mark and item.
struct Reached {
    refusals: [u32; Refusal::IN_KERNEL],
    /// By mark, from the lowest bit up.
    marks: [u32; 9],
    hops: u32,
    /// Hops with a value, by item: node, link, level 2, latency, queue, congestion, utilization; and reports with both ends.
    items: [u32; 8],
}

impl Reached {
    fn new() -> Self {
        Self {
            refusals: [0; Refusal::IN_KERNEL],
            marks: [0; 9],
            hops: 0,
            items: [0; 8],
        }
    }

    fn note(&mut self, outcome: &Outcome) {
        for parsed in &outcome.parsed {
            match parsed {
                Parsed::Refused(reason) => self.refusals[*reason as usize] += 1,
                Parsed::Report(report) => self.note_report(report),
            }
        }
    }

    fn note_report(&mut self, report: &normal::Report) {
        for (bit, count) in self.marks.iter_mut().enumerate() {
            *count += report.marks >> bit & 1;
        }
        for hop in &report.hops {
            self.hops += 1;
            let present = [
                hop.node != u32::MAX,
                hop.link != u32::MAX,
                hop.level_2,
                hop.latency != u64::MAX,
                hop.queue != u32::MAX,
                hop.congestion != u32::MAX,
                hop.utilization != u64::MAX,
            ];
            self.items
                .iter_mut()
                .zip(present)
                .for_each(|(count, present)| *count += u32::from(present));
        }
        self.items[7] += u32::from(report.ends.0 != u64::MAX && report.ends.1 != u64::MAX);
    }

    /// Checks that every possible refusal, mark and item occurred often enough.
    fn is_everything(&self) {
        const ENOUGH: u32 = 20;
        println!(
            "refusals {:?}\nmarks {:?}\nhops {}, items {:?}",
            self.refusals, self.marks, self.hops, self.items
        );
        let of_frames = [
            Refusal::NotIp,
            Refusal::NotUdp,
            Refusal::Fragment,
            Refusal::BadIpHeader,
            Refusal::BadUdpLength,
        ];
        // User space reads the reports inside reports.
        let others = [&of_frames[..], &[Refusal::Nested]].concat();
        for refusal in Refusal::ALL[..Refusal::IN_KERNEL]
            .iter()
            .filter(|refusal| !others.contains(refusal))
        {
            assert!(
                self.refusals[refusal.index()] >= ENOUGH,
                "{refusal} was met too rarely"
            );
        }
        assert!(
            self.marks.iter().chain(&self.items).all(|count| *count >= ENOUGH),
            "met too rarely"
        );
    }
}

#[test]
fn random_reports_decode_as_in_wire() {
    const ROUNDS: usize = 300_000;
    let Some(mut all) = Differences::new("random_reports_decode_as_in_wire") else {
        return;
    };
    let mut rng = Rng(0x4ead);
    let mut reached = Reached::new();
    for _ in 0..ROUNDS / 20 {
        let (profile, units) = (datagrams::profile(&mut rng), units(&mut rng));
        for _ in 0..20 {
            let frame = frame_of(&datagrams::datagram(&mut rng));
            reached.note(&normal::outcome(&frame, &profile, &units, KEPT));
            all.compare("random report", &frame, &profile, &units);
        }
    }
    reached.is_everything();
    all.none();
}

#[test]
fn random_frames_decode_as_in_wire() {
    const ROUNDS: usize = 50_000;
    let Some(mut all) = Differences::new("random_frames_decode_as_in_wire") else {
        return;
    };
    let mut rng = Rng(0xf4a3);
    let profile = Profile {
        telemetry_ports: wire::TelemetryPorts::new(&[32766, 9000]).unwrap(),
        ..Profile::default()
    };
    for _ in 0..ROUNDS {
        let payload = datagrams::datagram(&mut rng);
        let frame = datagrams::frame(&mut rng, &payload);
        all.compare("random frame", &frame, &profile, &Units::default());
    }
    all.none();
}

/// Datagrams that the switches of one configuration sent.
struct Reports(Vec<Vec<u8>>);

impl FabricSink for Reports {
    fn report(&mut self, _t: u64, _from: &Reporter, payload: &[u8]) {
        const WANTED: usize = 60;
        if self.0.len() < WANTED {
            self.0.push(payload.to_vec());
        }
    }
}

/// Reports of three switches in a row, whose queues overflow occasionally.
fn switches_report(watch: Watch, format: Format, port: Option<u16>, sf: sf::Config) -> Vec<Vec<u8>> {
    let wire = Wire {
        rate: 10_000_000,
        delay: 1_000,
        depth: 3_000,
    };
    let topology = Topology::line(3, wire).unwrap();
    let switch = switch::Config {
        mark: Mark {
            port,
            ..Mark::default()
        },
        available: 0xff80,
        format,
        congestion: Some(Congestion {
            rise: 2_000,
            fall: 1_000,
            quota: 0,
        }),
        sf,
        ..switch::Config::default()
    };
    let config = Config {
        switch,
        watchlist: watch.into(),
        ..Config::default()
    };
    // Telemetry Report 1.0 cannot express every setting.
    let Ok(mut fabric) = Fabric::new(topology, config, 1) else {
        return Vec::new();
    };
    let kinds = [Family::V4, Family::V6].map(|family| [(family, Transport::Udp), (family, Transport::Tcp)]);
    for (at, (family, transport)) in kinds.into_iter().flatten().enumerate() {
        let (src_port, pattern) = (4000 + at as u16, Pattern::poisson(3_000));
        let spec = FlowSpec::new(10_001, 10_002, src_port, 80);
        fabric
            .add_flow(&FlowSpec {
                family,
                transport,
                pattern,
                ..spec
            })
            .unwrap();
    }
    let mut reports = Reports(Vec::new());
    fabric.run_until(30_000_000, &mut reports);
    reports.0
}

#[test]
fn reports_of_switches_decode_as_in_wire() {
    let Some(mut all) = Differences::new("reports_of_switches_decode_as_in_wire") else {
        return;
    };
    let mut rng = Rng(0xfab1);
    let modes = [Mode::Md21, Mode::Md10, Mode::Mx21, Mode::Postcard];
    for case in 0..64 {
        let has = |bit: usize| case >> bit & 1 != 0;
        let version = if has(2) { Version::V10 } else { Version::V20 };
        let format = Format {
            version,
            metadata_on_stack: has(3),
            ethernet: has(4),
            group: if has(5) && version == Version::V20 { 8 } else { 1 },
            drop_with_int: has(5),
            ..Format::default()
        };
        // A port marks INT 2.x only.
        let port = (has(5) && modes[case % 4] != Mode::Md10).then_some(33_122);
        let bitmap = if has(4) { 0xff80 } else { Watch::USUAL };
        let watch = Watch {
            mode: modes[case % 4],
            bitmap,
            ..Watch::new(Match::default())
        };
        for payload in switches_report(watch, format, port, sf::Config::default()) {
            let units = units(&mut rng);
            all.compare(
                &format!("case {case}"),
                &frame_of(&payload),
                &Profile::default(),
                &units,
            );
        }
    }
    assert!(all.count > 2_000, "only {} datagrams", all.count);
    all.none();
}

#[test]
fn sf_reports_of_switches_decode_as_in_wire() {
    let Some(mut all) = Differences::new("sf_reports_of_switches_decode_as_in_wire") else {
        return;
    };
    let mut rng = Rng(0x5f1a);
    for case in 0..48 {
        let has = |bit: usize| case >> bit & 1 != 0;
        let form = [Form::Full, Form::Compact, Form::Stack][case % 3];
        let version = if has(2) && form != Form::Compact {
            Version::V10
        } else {
            Version::V20
        };
        let group = if has(3) && version == Version::V20 { 8 } else { 1 };
        let format = Format {
            version,
            group,
            ethernet: has(0),
            drop_with_int: has(1),
            ..Format::default()
        };
        // Few registers, so that flows evict each other; some packets collect the whole path.
        let urgent = Urgent {
            every: has(4).then_some(3),
            queue: None,
        };
        let sf = sf::Config {
            registers: 2,
            single: has(1),
            form,
            urgent,
            ..sf::Config::default()
        };
        let bitmap = if has(0) { 0xff80 } else { Watch::USUAL };
        let watch = Watch {
            mode: Mode::Sf,
            bitmap,
            ..Watch::new(Match::default())
        };
        let payloads = switches_report(watch, format, has(3).then_some(33_122), sf);
        assert!(!payloads.is_empty(), "case {case}");
        for payload in payloads {
            let units = units(&mut rng);
            all.compare(
                &format!("case {case}"),
                &frame_of(&payload),
                &Profile::default(),
                &units,
            );
        }
    }
    assert!(all.count > 2_000, "only {} datagrams", all.count);
    all.none();
}

/// A datagram of `len` bytes with one report 2.0: TLVs without a packet, then one with a packet.
fn long_datagram(len: usize) -> Vec<u8> {
    let mut payload = vec![0x20, 0, 0, 7, 0, 0, 0, 3, 0x01, 0xff, 0, 0x20];
    let packet = [
        &[
            0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ][..],
        &[7; 20],
    ]
    .concat();
    while payload.len() + 1024 + packet.len() < len {
        payload.extend([0, 255, 0, 7]);
        payload.extend([0; 1020]);
    }
    while payload.len() + 4 + packet.len() < len {
        payload.extend([0, 0, 0, 7]);
    }
    payload.extend([0x20, 10, 0, 0]);
    payload.extend(packet);
    payload
}

#[test]
fn long_frames_are_read_or_passed() {
    let Some(mut all) = Differences::new("long_frames_are_read_or_passed") else {
        return;
    };
    for len in [1_200, 3_000, 4_096, 8_900, 16_200, 16_332] {
        let frame = frame_of(&long_datagram(len));
        all.compare(
            &format!("{len} bytes"),
            &frame,
            &Profile::default(),
            &Units::default(),
        );
        let got = all.kernel.decode(&frame);
        assert!(
            matches!(&got.parsed[..], [Parsed::Report(report)] if report.flow.is_some()),
            "{got:?}"
        );
    }
    let too_long = frame_of(&long_datagram(16_400));
    assert!(too_long.len() > 16_384);
    assert_eq!(
        all.kernel.decode(&too_long),
        Outcome::not_read(Frame::Passed {
            reason: normal::TOO_LONG
        })
    );
    all.none();
}

#[test]
fn a_group_of_the_most_reports_is_read_to_its_end() {
    let Some(mut all) = Differences::new("a_group_of_the_most_reports_is_read_to_its_end") else {
        return;
    };
    // Of four bytes each, of a type whose contents are not defined.
    let payload = [&[0x20, 0, 0, 7, 0, 0, 0, 3][..], &[0x30, 0, 0, 0].repeat(4_000)].concat();
    let frame = frame_of(&payload);
    all.compare("4000 reports", &frame, &Profile::default(), &Units::default());
    assert_eq!(all.kernel.decode(&frame).count, 4_000);
    all.none();
}
