//! A small leaf–spine network with a script to watch: about ten thousand reports per second, a microburst every twenty
//! seconds, and every minute a link that fails, is routed around, and is mended.

use detect::Match;

use crate::fabric::{
    Action, Channel, Config, DropReason, Fabric, FabricError, Family, FlowId, FlowSpec, Pattern, Topology,
    Transport, Wire,
};
use crate::switch::{self, Congestion};
use crate::watchlist::{Watch, Watchlist};

/// One line of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When it happens, ns since the start.
    pub at: u64,
    /// What happens, for people.
    pub text: String,
}

/// What the numbers in the demo's reports mean: queue occupancy.
pub const QUEUE_UNIT: &str = "bytes";
/// What one unit of the utilisation in the demo's reports is, as a fraction of 1.
pub const UTILIZATION_SCALE: f64 = 0.0001;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The script repeats every minute.
const ACT: u64 = 60 * SECOND;
/// How many minutes are scripted: a day. After that only the traffic goes on.
const ACTS: u64 = 24 * 60;
/// Seconds into each minute at which a microburst begins.
const BURSTS: [u64; 3] = [5, 25, 45];
/// Seconds into each minute at which the link fails and is mended.
const CUT: u64 = 30;
const MEND: u64 = 38;
/// The hosts that send the microburst, and the one that gets it.
const BURST_FROM: [u32; 4] = [10_001, 10_003, 10_004, 10_006];
const BURST_TO: u32 = 10_008;
/// Packets each of them sends.
const BURST_PACKETS: u32 = 60;
/// The link that fails.
const LINK: (u32, u32) = (101, 201);

/// Names of the drop reason codes in the demo's reports.
pub fn drop_reasons() -> impl Iterator<Item = (u8, &'static str)> {
    let told = |reason: &DropReason| *reason != DropReason::LostOnLink;
    DropReason::ALL.into_iter().filter(told).map(|reason| (reason.code(), reason.name()))
}

/// The demo, beginning at time 0: the fabric and its script, a day of it.
///
/// # Errors
/// None in practice: everything it names exists.
pub fn scenario(seed: u64) -> Result<(Fabric, Vec<Line>), FabricError> {
    scenario_at(seed, 0)
}

/// The demo, beginning at `start`, ns since the epoch that the switches' clocks are to show.
///
/// # Errors
/// None in practice: everything it names exists.
pub fn scenario_at(seed: u64, start: u64) -> Result<(Fabric, Vec<Line>), FabricError> {
    let mut fabric = Fabric::new(topology(), config(start), seed)?;
    for spec in background(start) {
        fabric.add_flow(&spec)?;
    }
    let mut bursts = Vec::new();
    for (at, from) in BURST_FROM.into_iter().enumerate() {
        let spec = FlowSpec {
            pattern: Pattern::Idle,
            payload: 1_000,
            ..FlowSpec::new(from, BURST_TO, 7_000 + at as u16, 9_000)
        };
        bursts.push(fabric.add_flow(&spec)?);
    }
    let script = script(&mut fabric, &bursts, start)?;
    Ok((fabric, script))
}

/// Four leaves with two hosts each, two spines, 100 Mb/s and 128 KiB everywhere: slow enough for packets to queue.
fn topology() -> Topology {
    let wire = Wire { rate: 100_000_000, delay: 5_000, depth: 131_072 };
    Topology::leaf_spine(4, 2, 2, wire).unwrap_or_else(|error| unreachable!("a constant shape: {error}"))
}

fn config(start: u64) -> Config {
    let switch = switch::Config {
        congestion: Some(Congestion { rise: 65_536, fall: 16_384 }),
        ..switch::Config::default()
    };
    Config {
        start,
        convergence: 200 * MS,
        switch,
        watchlist: Watchlist::from(Watch::new(Match::default())),
        channel: Channel { loss: 200, duplication: 50, reordering: 100, ..Channel::default() },
        ..Config::default()
    }
}

/// 56 flows, one from each host to each other, of several kinds and about 180 packets/s each.
fn background(start: u64) -> impl Iterator<Item = FlowSpec> {
    let hosts = 10_001..=10_008u32;
    let pairs = hosts.clone().flat_map(move |from| hosts.clone().map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to).enumerate().map(move |(at, (from, to))| {
        let at = at as u16;
        FlowSpec {
            family: if at % 7 == 3 { Family::V6 } else { Family::V4 },
            transport: if at % 3 == 1 { Transport::Tcp } else { Transport::Udp },
            payload: 200 + at % 9 * 100,
            pattern: match at % 4 {
                0 => Pattern::constant(180),
                1 => Pattern::OnOff { gap: MS, on: 40 * MS, off: 180 * MS, random: true },
                _ => Pattern::poisson(180),
            },
            start: start + u64::from(at) * 30 * MS,
            ..FlowSpec::new(from, to, 20_000 + at, if at % 3 == 1 { 443 } else { 5_000 })
        }
    })
}

fn script(fabric: &mut Fabric, bursts: &[FlowId], start: u64) -> Result<Vec<Line>, FabricError> {
    let mut lines = Vec::new();
    let (a, b) = LINK;
    for act in 0..ACTS {
        for second in BURSTS {
            let at = act * ACT + second * SECOND;
            for &flow in bursts {
                fabric.schedule(start + at, Action::Burst { flow, packets: BURST_PACKETS, gap: 0 })?;
            }
            let text =
                format!("microburst: {} hosts send {BURST_PACKETS} packets each to h8 at once", bursts.len());
            lines.push(Line { at, text });
        }
        let (cut, mend) = (act * ACT + CUT * SECOND, act * ACT + MEND * SECOND);
        fabric.schedule(start + cut, Action::CutLink { a, b })?;
        fabric.schedule(start + mend, Action::MendLink { a, b })?;
        lines.push(Line { at: cut, text: format!("link {a}-{b} fails; new routes in 200 ms") });
        lines.push(Line { at: mend, text: format!("link {a}-{b} is mended") });
    }
    lines.sort_by_key(|line| line.at);
    Ok(lines)
}
