//! Flows of a simulated fabric that change their mode while they run.

use collector::event::Basis;
use dataplane::fabric::{FlowSpec, Wire};
use dataplane::watchlist::Mode;
use dataplane::{Action, Fabric, FabricSink, Pattern, Reporter, Topology, Watch, report, switch};
use wire::report::v20::POSTCARD_DOMAIN;

use crate::*;

const MS: u64 = 1_000_000;

/// Flows from hosts of a leaf to others of it, and over a spine.
const FLOWS: usize = 16;

/// The reports of each flow, in the order of sending.
struct Recording(BTreeMap<FlowKey, Vec<Vec<u8>>>);

impl FabricSink for Recording {
    fn report(&mut self, _: u64, _: &Reporter, payload: &[u8]) {
        if let Some(flow) = flows(payload, &wire::Profile::default()).first() {
            self.0.entry(*flow).or_default().push(payload.to_vec());
        }
    }
}

/// The same flows, measured in one mode; some take another way if a link is missing.
fn record(mode: Mode, seed: u64, cut: bool) -> Recording {
    let wire = Wire {
        rate: 50_000_000,
        delay: 5_000,
        depth: 60_000,
    };
    let topology = Topology::leaf_spine(3, 2, 2, wire).unwrap();
    let version = if mode == Mode::Md10 {
        report::Version::V10
    } else {
        report::Version::V20
    };
    let format = report::Format {
        version,
        group: 1,
        ..report::Format::default()
    };
    let config = dataplane::Config {
        switch: switch::Config {
            format,
            ..switch::Config::default()
        },
        // Nodes, ports, hop latency and timestamps.
        watchlist: Watch {
            mode,
            bitmap: 0xec00,
            ..Watch::new(Match::default())
        }
        .into(),
        routed: true,
        ..dataplane::Config::default()
    };
    let mut fabric = Fabric::new(topology, config, seed).unwrap();
    for at in 0..FLOWS as u16 {
        let (from, to) = (
            10_001 + u32::from(at % 6),
            10_001 + u32::from((at % 6 + 1 + at % 5) % 6),
        );
        let pattern = if at % 4 == 0 {
            Pattern::poisson(400)
        } else {
            Pattern::constant(300)
        };
        let spec = FlowSpec {
            payload: 100 + at * 20,
            pattern,
            ..FlowSpec::new(from, to, 30_000 + at, 443)
        };
        fabric.add_flow(&spec).unwrap();
    }
    if cut {
        fabric
            .schedule(
                0,
                Action::CutLink {
                    a: 101,
                    b: 201 + (seed % 2) as u32,
                },
            )
            .unwrap();
    }
    let mut recording = Recording(BTreeMap::new());
    fabric.run_until(400 * MS, &mut recording);
    assert_eq!(recording.0.len(), FLOWS, "{mode:?}");
    recording
}

/// Flows that each change their mode at any time, and sometimes have a report of another mode.
struct Traffic {
    rng: Rng,
    recordings: Vec<Recording>,
    keys: Vec<FlowKey>,
    /// Of each flow: its mode, and the next report.
    flows: Vec<(usize, usize)>,
    /// The next number of each reporter.
    numbers: BTreeMap<[u8; 5], u32>,
}

impl Traffic {
    fn new(modes: &[Mode], seed: u64) -> Self {
        let mut rng = Rng(seed * 7919);
        let recordings: Vec<_> = modes
            .iter()
            .zip(0..)
            .map(|(mode, at)| record(*mode, seed, at > 1))
            .collect();
        let keys: Vec<_> = recordings[0].0.keys().copied().collect();
        let flows = keys.iter().map(|_| (rng.below(modes.len()), 0)).collect();
        Self {
            rng,
            recordings,
            keys,
            flows,
            numbers: BTreeMap::new(),
        }
    }

    fn datagram(&mut self) -> Vec<u8> {
        let Self {
            rng,
            recordings,
            flows,
            ..
        } = self;
        let flow = rng.below(flows.len());
        if rng.below(60) == 0 {
            flows[flow].0 = rng.below(recordings.len());
        }
        let (mode, next) = flows[flow];
        // Reports of two modes at a time.
        let mode = if rng.below(60) == 0 {
            rng.below(recordings.len())
        } else {
            mode
        };
        let reports = &recordings[mode].0[&self.keys[flow]];
        flows[flow].1 = if rng.below(40) == 0 {
            rng.below(reports.len())
        } else {
            next + 1
        };
        let mut payload = reports[next % reports.len()].clone();
        if payload[0] >> 4 == 2 && rng.below(30) == 0 {
            // Q without F, and not declared as a postcard: its only hop may still be the flow's path.
            payload[11] = 0x40;
            if payload[14..16] == POSTCARD_DOMAIN.to_be_bytes() {
                payload[14..16].fill(0);
            }
        }
        self.number(&mut payload);
        payload
    }

    /// Writes the next number of the reporter into a report 1.0 or 2.0.
    fn number(&mut self, payload: &mut [u8]) {
        let mut reporter = [payload[0] >> 4, 0, 0, 0, 0];
        reporter[1..].copy_from_slice(&payload[4..8]);
        let next = self.numbers.entry(reporter).or_default();
        *next += 1;
        if reporter[0] == 1 {
            payload[8..12].copy_from_slice(&next.to_be_bytes());
        } else {
            let word = u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]);
            payload[..4].copy_from_slice(&(word & !0x003f_ffff | *next).to_be_bytes());
        }
    }
}

#[test]
fn flows_that_change_their_mode_are_reported_as_by_a_collector_that_sees_all() {
    let test = "flows_that_change_their_mode_are_reported_as_by_a_collector_that_sees_all";
    let with_int = [Mode::Md21, Mode::Md10, Mode::Mx21, Mode::Postcard];
    let with_sf = [Mode::Md21, Mode::Sf, Mode::Md10, Mode::Postcard];
    for (seed, modes) in (1..=8).zip([with_int, with_int, with_int, with_sf].into_iter().cycle()) {
        let config = Config {
            flow_timeout: 3600 * 1000 * MS,
            ..start(20_000)
        };
        let Some(mut model) = Model::new(test, config, SIZES) else {
            return;
        };
        let mut traffic = Traffic::new(&modes, seed);
        const COUNT: u64 = 20_000;
        for at in 0..COUNT {
            if at == COUNT / 2 {
                model.set_detection(&detection(30_000, &["flow_latency > 200us", "hops > 3"], 2));
            }
            let payload = traffic.datagram();
            model.give(&payload, [192, 0, 2, 1], false);
            match traffic.rng.below(300) {
                0 => model.pass(4000 * MS),
                1..30 => model.pass(30 * MS),
                _ => {}
            }
        }
        model.finish();
        // All reports of a flow that has been measured with SF-INT are passed.
        let all_of_some = modes.contains(&Mode::Sf);
        assert!(
            all_of_some || model.spare == 0 && model.up < COUNT * 9 / 10,
            "{} of {COUNT} passed",
            model.up
        );
        let paths = |basis: Basis| {
            let changes = model
                .reported
                .events
                .iter()
                .filter(|event| event.kind == Kind::PathChange);
            changes.filter(|event| event.basis == basis).count()
        };
        let counts = (paths(Basis::Measured), paths(Basis::HopLimit));
        assert!(counts.0 > 2 && counts.1 > 2, "{counts:?}");
    }
}
