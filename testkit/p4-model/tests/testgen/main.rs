//! p4testgen makes tests of the programs' paths; the model and BMv2 do what each test expects. Where `p4testgen` is not on PATH, the tests are
//! skipped; where BMv2 is not, only its part. `HOPWISE_P4TESTGEN_TESTS` is how many times as many tests it makes.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

#[path = "../support/bmv2.rs"]
mod bmv2;
mod case;
mod generate;

use std::io::Write as _;
use std::path::Path;

use p4_model::{Arrival, Program, Switch};

use bmv2::skipped;
use case::{Case, Tables};
use generate::{Made, generate};

/// Tests of each program that BMv2 executes, too.
const BY_BMV2: usize = 2;

fn model(program: &Program, case: &Case) -> Result<Vec<(u16, Vec<u8>)>, String> {
    let mut switch = Switch::new(program.clone());
    for (table, name, parameters) in &case.defaults {
        switch
            .set_default(table, name, parameters)
            .map_err(|error| error.to_string())?;
    }
    for (table, entry) in &case.entries {
        switch.insert(table, entry).map_err(|error| error.to_string())?;
    }
    if let Some((session, port)) = case.session {
        switch.set_session(session, port);
    }
    let sent = switch.process(
        &case.frame,
        &Arrival {
            port: case.port,
            ..Arrival::default()
        },
    );
    Ok(sent.into_iter().map(|one| (one.port, one.frame)).collect())
}

/// What is wrong with what BMv2 does; `None`: it is not there, or has dropped the packet.
fn bmv2(name: &str, case: &Case) -> Option<Result<(), String>> {
    let test = format!("p4testgen of {name} in BMv2");
    let (commands, counts) = (case.commands(), case.counts());
    let got = bmv2::run(
        (&test, &format!("{name}.json")),
        case.port,
        &commands,
        std::slice::from_ref(&case.frame),
        &counts,
    )?;
    let sent: Vec<(u16, Vec<u8>)> = got
        .into_iter()
        .flat_map(|(port, frames)| frames.into_iter().map(move |frame| (port, frame)))
        .collect();
    if sent.is_empty() {
        skipped(
            &test,
            "simple_switch sent nothing, as it does when the machine is busy",
        );
        return None;
    }
    Some(case.judge(&sent))
}

/// Runs p4testgen twice: for `tests` of any path, and for `sending` of paths that send a packet.
fn check(name: &str, tests: u32, sending: u32) {
    if !bmv2::is_found("p4testgen") {
        return skipped(&format!("p4testgen of {name}"), "p4testgen is not installed");
    }
    let times: u32 = std::env::var("HOPWISE_P4TESTGEN_TESTS")
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(1);
    // Those of the large programs take minutes.
    let sending = if times > 1 { sending.max(1) } else { sending };
    for (count, sending) in [(tests, false), (sending, true)]
        .into_iter()
        .filter(|(count, _)| *count > 0)
    {
        let folder = format!("hopwise-testgen-{}-{name}-{sending}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        execute(name, &generate(&folder, name, count * times, sending));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

fn execute(name: &str, made: &Made) {
    let json = Path::new("../../p4/v1model").join(format!("{name}.json"));
    let json = std::fs::read_to_string(json).unwrap();
    let (program, tables) = (Program::read(&json).unwrap(), Tables::of(&json));
    let (mut ran, mut sends, mut tried, mut by_bmv2, mut wrong) = (0, 0, 0, 0, Vec::new());
    for file in &made.tests {
        let text = std::fs::read_to_string(file).unwrap();
        let Some(case) = Case::read(&text, &tables) else {
            continue;
        };
        ran += 1;
        sends += usize::from(case.sends());
        let judged = model(&program, &case).and_then(|sent| case.judge(&sent));
        wrong.extend(judged.err().map(|what| format!("the model: {what}\n{text}")));
        if case.sends() && tried < BY_BMV2 {
            tried += 1;
            if let Some(judged) = bmv2(name, &case) {
                by_bmv2 += 1;
                wrong.extend(judged.err().map(|what| format!("BMv2: {what}\n{text}")));
            }
        }
    }
    let (tests, coverage) = (made.tests.len(), &made.coverage);
    let _ = writeln!(
        std::io::stderr(),
        "p4testgen of {name}: {tests} tests, {ran} executed, {sends} send, {by_bmv2} in BMv2; statements: {coverage}"
    );
    if tests == 0 {
        return skipped(
            &format!("p4testgen of {name}"),
            "p4testgen made no test in three minutes: the machine is busy",
        );
    }
    assert_eq!(ran, tests, "the reader does not know all of {name}");
    assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
}

#[test]
fn int_does_what_p4testgen_expects() {
    check("int", 10, 0);
}

#[test]
fn sf_does_what_p4testgen_expects() {
    check("sf", 5, 0);
}

#[test]
fn aggregator_does_what_p4testgen_expects() {
    check("aggregator", 20, 5);
}

#[test]
fn dta_translator_does_what_p4testgen_expects() {
    check("dta_translator", 12, 3);
}
