//! The model and BMv2 do the same. Where `simple_switch` and `simple_switch_CLI` are not on PATH, the test is skipped.

use std::sync::Arc;

use p4_model::Program;
use testkit::rng::Rng;

use crate::bmv2;
use crate::packets::packet;
use crate::pair::{COLLECTOR, Pair};
use crate::setup::commands;

/// Items that do not depend on time: node id and interfaces.
const TIMELESS: u16 = 0xc000;
const PACKETS: usize = 200;

/// Clears sequence numbers, which count lost reports as well, and the ingress timestamp, which 1.0 and drops always have.
fn mask(report: &mut [u8]) {
    const DROP: u8 = 0x80;
    if report[0] >> 4 == 1 {
        return report[8..16].fill(0);
    }
    report[1..4].fill(0);
    if report[11] & DROP != 0 {
        report[24..32].fill(0);
    }
}

#[test]
fn the_model_and_bmv2_do_the_same() {
    let program = Arc::new(Program::read(crate::PROGRAM).unwrap());
    let mut rng = Rng(99);
    let mut input: Vec<Vec<u8>> = (0..PACKETS).map(|_| packet(&mut rng)).collect();
    for edges in [(true, false), (false, false), (true, true), (false, true)] {
        let mut pair = Pair::new(&mut rng, &program, edges, TIMELESS);
        let mut expected = [Vec::new(), Vec::new()];
        for frame in &input {
            for sent in pair.p4.process(
                frame,
                &p4_model::Arrival {
                    port: 1,
                    ..Default::default()
                },
            ) {
                expected[usize::from(sent.port == COLLECTOR)].push(sent.frame);
            }
        }
        let counts = [(2, expected[0].len()), (COLLECTOR, expected[1].len())].into();
        let commands = commands(&pair.setup);
        let got = bmv2::run(
            ("the_model_and_bmv2_do_the_same", "int.json"),
            1,
            &commands,
            &input,
            &counts,
        );
        let Some(mut got) = got else { return };
        let mut got = [2, COLLECTOR].map(|port| got.remove(&port).unwrap_or_default());
        expected[1]
            .iter_mut()
            .chain(&mut got[1])
            .for_each(|report| mask(&mut report[42..]));
        for (port, (expected, got)) in expected.iter().zip(&got).enumerate() {
            // BMv2 drops packets when the machine is busy, and a report of a drop can overtake one of a flow.
            let mut left = expected.clone();
            for frame in got {
                let found = left.iter().position(|wanted| wanted == frame);
                let Some(at) = found else {
                    panic!("edges {edges:?}, output {port}\n  bmv2  {frame:02x?}")
                };
                left.remove(at);
            }
            let (sent, wanted) = (got.len(), expected.len());
            assert!(
                sent * 2 >= wanted,
                "edges {edges:?}, output {port}: only {sent} of {wanted}"
            );
        }
        // What the source and the transit sent is what the next one receives; some of it is corrupted.
        let [packets, _] = got;
        if !packets.is_empty() {
            input = packets;
        }
        for frame in input.iter_mut().step_by(7) {
            rng.corrupt(frame);
        }
        input.retain(|frame| frame.len() >= 14);
    }
}
