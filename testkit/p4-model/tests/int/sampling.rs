//! Both switches measure the same packets of a watchlist entry that samples.

use std::collections::BTreeMap;
use std::sync::Arc;

use dataplane::Watch;
use dataplane::switch::Config;
use dataplane::watchlist::Mode;
use detect::Match;
use p4_model::{Arrival, Program};
use testkit::rng::Rng;

use crate::bmv2;
use crate::packets::packet;
use crate::pair::{AVAILABLE, COLLECTOR, Pair, Tables};
use crate::setup::commands;

/// An entry for UDP and one for TCP.
fn watches(mode: Mode, samples: [u32; 2]) -> Vec<Watch> {
    let watch = |(proto, sample)| {
        let flows = Match {
            proto: Some(proto),
            ..Match::default()
        };
        Watch {
            mode,
            bitmap: 0xc000,
            sample,
            drops: false,
            ..Watch::new(flows)
        }
    };
    [17, 6].into_iter().zip(samples).map(watch).collect()
}

fn pair(program: &Arc<Program>, mode: Mode, samples: [u32; 2], edges: (bool, bool)) -> Pair {
    let config = Config {
        available: AVAILABLE,
        ..Config::default()
    };
    let (config, watches, filters) = (&config, &watches(mode, samples)[..], &[][..]);
    let (border, routes_half) = (edges.0, false);
    Pair::with(
        program,
        &Tables {
            node: 7,
            config,
            watches,
            filters,
            mtu: 1500,
            edges,
            border,
            routes_half,
        },
    )
}

/// Packets measured of those that matched, of both entries.
fn shares(pair: &Pair) -> Vec<(u64, u64)> {
    pair.rust
        .matched()
        .map(|(_, counted)| (counted.measured, counted.matched))
        .collect()
}

const MODES: [(Mode, (bool, bool)); 6] = [
    (Mode::Md21, (true, false)),
    (Mode::Md10, (true, false)),
    (Mode::Mx21, (true, true)),
    (Mode::Postcard, (true, false)),
    (Mode::Postcard, (false, false)),
    (Mode::Postcard, (false, true)),
];

#[test]
fn both_measure_the_same_share_also_after_it_changes() {
    let program = Arc::new(Program::read(crate::PROGRAM).unwrap());
    for (mode, edges) in MODES {
        let mut rng = Rng(5);
        let mut pair = pair(&program, mode, [3, 100], edges);
        let mut send = |pair: &mut Pair, packets: usize| {
            for packet_number in 0..packets {
                let frame = packet(&mut rng);
                let done = pair.send(&mut rng, &frame);
                done.unwrap_or_else(|error| {
                    panic!("{mode:?}, packet {packet_number}: {error}\n{frame:02x?}")
                });
            }
        };
        send(&mut pair, 400);
        let first = shares(&pair);
        // Finer and coarser: a sampler waits no longer than the new share allows.
        pair.watch(&watches(mode, [1000, 2]));
        send(&mut pair, 200);
        let then = shares(&pair);
        let is_about = |(measured, matched): (u64, u64), sample: u64| {
            measured > 0 && measured * sample > matched / 2 && measured * sample < matched * 2
        };
        let later = (then[1].0 - first[1].0, then[1].1 - first[1].1);
        assert!(
            is_about(first[0], 3) && is_about(later, 2),
            "{mode:?}: {first:?}, {then:?}"
        );
    }
}

/// The same, and BMv2. It may drop packets, and a source then counts others than the model.
#[test]
fn bmv2_measures_the_same_share() {
    let program = Arc::new(Program::read(crate::PROGRAM).unwrap());
    for mode in [Mode::Postcard, Mode::Mx21] {
        let mut rng = Rng(7);
        let mut pair = pair(&program, mode, [3, 4], (true, true));
        let input: Vec<Vec<u8>> = (0..200).map(|_| packet(&mut rng)).collect();
        let mut expected = BTreeMap::from([(2, Vec::new()), (COLLECTOR, Vec::new())]);
        for frame in &input {
            for sent in pair.p4.process(
                frame,
                &Arrival {
                    port: 1,
                    ..Arrival::default()
                },
            ) {
                expected.entry(sent.port).or_default().push(sent.frame);
            }
        }
        let counts = expected
            .iter()
            .map(|(port, frames)| (*port, frames.len()))
            .collect();
        let commands = commands(&pair.setup);
        let got = bmv2::run(
            ("bmv2_measures_the_same_share", "int.json"),
            1,
            &commands,
            &input,
            &counts,
        );
        let Some(got) = got else { return };
        // The packet of a report begins behind 20 bytes of headers and two items.
        let flows = |frames: &[Vec<u8>]| {
            let mut flows: Vec<Vec<u8>> = frames.iter().map(|frame| frame[42 + 20..].to_vec()).collect();
            flows.sort_unstable();
            flows
        };
        let (reports, wanted) = (flows(&got[&COLLECTOR]), flows(&expected[&COLLECTOR]));
        assert!(wanted.len() > 20, "{}", wanted.len());
        if got[&2].len() == expected[&2].len() {
            assert_eq!(reports, wanted, "{mode:?}");
        } else if mode == Mode::Postcard {
            assert!(reports.iter().all(|report| wanted.contains(report)), "{mode:?}");
        } else {
            // Which packet a source measures depends on those before.
            bmv2::skipped("bmv2_measures_the_same_share", "BMv2 has dropped packets");
        }
    }
}
