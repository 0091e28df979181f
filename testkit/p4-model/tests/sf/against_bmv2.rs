//! The model and BMv2 do the same. Where `simple_switch` and `simple_switch_CLI` are not on PATH, the test is skipped.

use std::sync::Arc;

use dataplane::Watch;
use dataplane::sf::Form;
use dataplane::switch::Config;
use dataplane::watchlist::Mode;
use detect::Match;
use p4_model::Program;
use testkit::rng::Rng;

use crate::bmv2;
use crate::flows::{distort, flow};
use crate::pair::{COLLECTOR, Pair, Tables};
use crate::setup::{Setup, commands};

/// Items that do not depend on time: node id and interfaces.
const TIMELESS: u16 = 0xc000;
const PACKETS: usize = 150;

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn the_model_and_bmv2_do_the_same() {
    let program = Arc::new(Program::read(crate::PROGRAM).unwrap());
    let mut rng = Rng(7);
    let flows: Vec<Vec<u8>> = (0..8).map(|_| flow(&mut rng)).collect();
    let mut input: Vec<Vec<u8>> = (0..PACKETS)
        .map(|_| flows[rng.below(flows.len())].clone())
        .collect();
    let roles = [
        (true, false),
        (false, false),
        (false, false),
        (true, true),
        (false, true),
    ];
    let (mut rules, forms) = ([0; 10], [Form::Full, Form::Compact]);
    for (number, edges) in roles.into_iter().enumerate() {
        let mut config = Config {
            available: TIMELESS,
            ..Config::default()
        };
        config.sf.urgent.every = Some(5);
        config.sf.form = forms[number % 2];
        let watches = [Watch {
            mode: Mode::Sf,
            bitmap: 0xc000,
            ..Watch::new(Match::default())
        }];
        let (node, config, watches) = (1 + number as u32, &config, &watches);
        let mut pair = Pair::with(
            &program,
            &Tables {
                node,
                config,
                watches,
                edges,
                border: false,
            },
        );
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
        let applied = pair.p4.counter("sf_rules").unwrap();
        rules
            .iter_mut()
            .zip(applied)
            .for_each(|(sum, count)| *sum += count);
        let counts = [(2, expected[0].len()), (COLLECTOR, expected[1].len())].into();
        // Packets come later than simulated ones: no register is too old.
        for one in &mut pair.setup {
            if let Setup::Default("sf_settings", _, parameters) = one {
                parameters[0] = 1 << 60;
            }
        }
        let commands = commands(&pair.setup);
        let got = bmv2::run(
            ("the_model_and_bmv2_do_the_same", "sf.json"),
            1,
            &commands,
            &input,
            &counts,
        );
        let Some(mut got) = got else { return };
        let mut got = [2, COLLECTOR].map(|port| got.remove(&port).unwrap_or_default());
        // Sequence numbers count lost reports as well.
        expected[1]
            .iter_mut()
            .chain(&mut got[1])
            .for_each(|report| report[43..46].fill(0));
        for (port, (expected, got)) in expected.iter().zip(&got).enumerate() {
            // A packet that BMv2 drops when the machine is busy changes the registers for those behind it: then there is nothing to compare.
            if port == 0 && got.len() < expected.len() {
                let lost = format!(
                    "BMv2 has dropped {} packets at {edges:?}",
                    expected.len() - got.len()
                );
                return bmv2::skipped("the_model_and_bmv2_do_the_same", &lost);
            }
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
        // What the source and the transit sent is what the next one receives; some of it is distorted.
        let [packets, _] = got;
        if !packets.is_empty() {
            input = packets;
        }
        for frame in input.iter_mut().step_by(9) {
            distort(&mut rng, frame);
        }
        input.retain(|frame| frame.len() >= 14);
    }
    assert!(
        rules[1..5].iter().all(|count| *count > 0),
        "rules {rules:?}: the test has become idle"
    );
}
