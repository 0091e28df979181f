//! Experiment `dta-answers`: the share of keys that a query finds in a Key-Write store, by load and copies N (DTA, Fig. 11),
//! with hopwise's four hashes and with the single hash of the DTA artifact.
//!
//! Later keys overwrite slots of earlier ones, so the share falls with the load. Keys are seeded, and results are exact.

use dta::Plan;
use wire::dta::hash::{Family, slot};

use super::{percent, percent_axis};
use crate::figures::{
    keys::{Keys, Kind, mix},
    slots::{Answers, Slots},
};
use crate::{
    page::{Comparison, Findings, Table, fixed, line_series, log, mark_series, row},
    rows::{Observations, Results, Row, Rows, judgement, listed},
    settings::{Scale, Settings},
};
use terminal::{CliError, units};

/// Loads of the store, in keys per slot.
const LOADS: [f64; 13] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0];
const COPIES: [u8; 4] = [1, 2, 3, 4];
const FAMILIES: [Family; 2] = [Family::V1, Family::Artifact];
/// Slots of the store for the share of answered keys.
const SLOTS: u64 = 1 << 16;
/// Slots of the store that is queried for keys that were never written.
const LARGE: u64 = 1 << 22;
/// Counters and flows of the Key-Increment store.
const COUNTERS: u64 = 16_384;
const FLOWS: u64 = 4_096;

/// The answers for one family of hashes, kind of keys, number of copies and load.
struct Point {
    family: Family,
    kind: Kind,
    copies: u8,
    load: f64,
    answers: Answers,
    /// Expected share if the slots of a key are independent.
    formula: f64,
    /// Expected share if all copies of two keys collide together; `None` for three copies.
    grouped_formula: Option<f64>,
}

pub(crate) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let seeds = settings.seeds();
    let trials = settings.value("runs");
    let slots = match settings.scale {
        Scale::Full => SLOTS,
        Scale::Quick => SLOTS / 16,
        Scale::Smallest => SLOTS / 256,
    };
    let store = [
        Slots::new(slots, 4, FAMILIES[0])?,
        Slots::new(slots, 4, FAMILIES[1])?,
    ];
    let mut points = Vec::new();
    for store in &store {
        for kind in Kind::ALL {
            for copies in COPIES {
                for load in LOADS {
                    points.push(measure(store, kind, copies, load, seeds.clone())?);
                }
            }
        }
    }
    let unwritten = query_unwritten_keys(settings)?;
    let counter_errors = counter_errors(settings.scale.scale(20));
    Ok(findings(&points, &unwritten, &counter_errors, trials))
}

/// Fills the store and queries every key, once per seed.
fn measure(
    store: &Slots,
    kind: Kind,
    copies: u8,
    load: f64,
    seeds: std::ops::Range<u64>,
) -> Result<Point, CliError> {
    let slots = store.slots();
    let count = (load * slots as f64).round() as u64;
    let mut answers = Answers::default();
    for seed in seeds {
        let keys = Keys { kind, seed };
        store.clear()?;
        for number in 0..count {
            store.write(keys.key(number).as_ref(), &(number as u32).to_be_bytes(), copies)?;
        }
        answers += store.query(copies, (0..count).map(|number| (number as u32, keys.key(number))))?;
    }
    // With M slots, the n slots of a key form one of M/n groups: a key that overwrites one slot of a group overwrites all.
    let grouped_formula = (copies != 3).then(|| Plan::new(count, slots / u64::from(copies), 1).answered());
    let formula = Plan::new(count, slots, copies).answered();
    Ok(Point {
        family: store.family(),
        kind,
        copies,
        load,
        answers,
        formula,
        grouped_formula,
    })
}

/// Answers for keys that were never written.
struct UnwrittenKeys {
    family: Family,
    kind: Kind,
    queried: u64,
    wrong: u64,
    /// Number of wrong answers expected with a checksum of 32 independent bits.
    expected: f64,
}

fn query_unwritten_keys(settings: &Settings) -> Result<Vec<UnwrittenKeys>, CliError> {
    let mut found = Vec::new();
    for family in FAMILIES {
        let store = Slots::new(
            // The number of slots must be a power of two.
            settings.scale.scale(16).next_power_of_two() * LARGE / 16,
            4,
            family,
        )?;
        for kind in [Kind::RandomTuples, Kind::RandomWords] {
            store.clear()?;
            let keys = Keys { kind, seed: 9 };
            let count = store.slots();
            for number in 0..count {
                store.write(keys.key(number).as_ref(), &(number as u32).to_be_bytes(), 2)?;
            }
            // The key generator is a bijection of the number, so none of these keys was written.
            let others = (count..count + settings.scale.scale(2_000_000))
                .map(|number| (number as u32, keys.key(number)));
            let answers = store.query(2, others)?;
            let expected = answers.queried() as f64 * Plan::new(count, count, 2).false_answer();
            found.push(UnwrittenKeys {
                family,
                kind,
                queried: answers.queried(),
                wrong: answers.correct + answers.wrong,
                expected,
            });
        }
    }
    Ok(found)
}

/// The error of Key-Increment's estimates.
#[derive(Debug)]
struct CounterError {
    family: Family,
    copies: u8,
    /// Mean error, packets.
    error: f64,
}

/// Computes the mean error of Key-Increment's estimates for random 5-tuples.
fn counter_errors(trials: u64) -> Vec<CounterError> {
    let mut found = Vec::new();
    for family in FAMILIES {
        for copies in [1, 2, 4] {
            let mut error = 0.0;
            for seed in 1..=trials {
                let keys = Keys {
                    kind: Kind::RandomTuples,
                    seed,
                };
                // A few flows carry most packets, as in real networks: 2^k packets with probability 2^-(k+1), k up to 15.
                let flows = (0..FLOWS).map(|number| {
                    let packets = 1_u64 << (mix(number ^ seed << 32).leading_zeros().min(15));
                    let hashes = family.hashes(keys.key(number).as_ref());
                    let slots = hashes.slots.map(|hash| slot(hash, COUNTERS) as usize);
                    (packets, slots)
                });
                let mut counters = vec![0_u64; COUNTERS as usize];
                for (packets, slots) in flows.clone() {
                    for slot in &slots[..usize::from(copies)] {
                        counters[*slot] += packets;
                    }
                }
                let errors = flows.map(|(packets, slots)| {
                    let estimate = slots[..usize::from(copies)]
                        .iter()
                        .map(|slot| counters[*slot])
                        .min();
                    (estimate.unwrap_or(0) - packets) as f64
                });
                error += errors.sum::<f64>() / FLOWS as f64;
            }
            found.push(CounterError {
                family,
                copies,
                error: error / trials as f64,
            });
        }
    }
    found
}

fn find(points: &[Point], family: Family, kind: Kind, copies: u8, load: f64) -> Option<&Point> {
    points
        .iter()
        .find(|point| (point.family, point.kind, point.copies, point.load) == (family, kind, copies, load))
}

fn rate(points: &[Point], family: Family, kind: Kind, copies: u8, load: f64) -> f64 {
    find(points, family, kind, copies, load).map_or(f64::NAN, |point| point.answers.rate())
}

/// Returns the number of copies with the highest share of answers at a load.
fn best_copies(points: &[Point], family: Family, kind: Kind, load: f64) -> u8 {
    let rates = COPIES.map(|copies| (copies, rate(points, family, kind, copies, load)));
    let best = rates.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    best.map_or(1, |(copies, _)| copies)
}

fn load_line(
    points: &[Point],
    family: Family,
    figure: fn(&Point) -> Option<f64>,
    copies: u8,
) -> Vec<(f64, f64)> {
    let kind = Kind::RandomTuples;
    LOADS
        .into_iter()
        .filter_map(|load| Some((load, 100.0 * figure(find(points, family, kind, copies, load)?)?)))
        .collect()
}

fn plot_load(
    table: &mut Table,
    points: &[Point],
    title: &str,
    family: Family,
    formula: fn(&Point) -> Option<f64>,
) {
    let rates = COPIES.map(|n| {
        let line = load_line(points, family, |point| Some(point.answers.rate()), n);
        line_series(&format!("N = {n}"), line)
    });
    let formulas = COPIES.map(|n| {
        let marks = load_line(points, family, formula, n);
        mark_series(&format!("N = {n}, formula"), marks)
    });
    let axes = [log("keys per slot"), percent_axis()];
    table.plot(title, "random 5-tuples", axes, [rates, formulas].concat());
}

fn load_table(points: &[Point]) -> Table {
    let kind = Kind::RandomTuples;
    let columns = "load,n1,n2,n3,n4,formula_n1,formula_n2,formula_n3,formula_n4,best_n,\
        artifact_n1,artifact_n2,artifact_n3,artifact_n4";
    let about = "Keys answered by load and copies, random 5-tuples";
    let mut table = Table::new("load", about, columns);
    for load in LOADS {
        let [rates, of_artifact] = FAMILIES.map(|family| COPIES.map(|n| rate(points, family, kind, n, load)));
        let formulas =
            COPIES.map(|n| find(points, Family::V1, kind, n, load).map_or(f64::NAN, |point| point.formula));
        table.push(row![
            fixed(load, 2),
            rates.map(|share| fixed(share, 4)),
            formulas.map(|share| fixed(share, 4)),
            best_copies(points, Family::V1, kind, load),
            of_artifact.map(|share| fixed(share, 4)),
        ]);
    }
    plot_load(&mut table, points, "Four hashes (Fig. 11)", Family::V1, |point| {
        Some(point.formula)
    });
    let title = "The artifact's hash: more copies protect less";
    plot_load(&mut table, points, title, Family::Artifact, |point| {
        point.grouped_formula
    });
    table
}

fn keys_table(points: &[Point]) -> Table {
    let columns = "hashes,keys,load,n1,n2,n3,n4,wrong_answers";
    let mut table = Table::new("keys", "Keys answered by structure of the keys", columns);
    for family in FAMILIES {
        for kind in Kind::ALL {
            for load in [0.5, 1.0] {
                let found = COPIES.map(|n| find(points, family, kind, n, load));
                let wrong: u64 = found.iter().flatten().map(|point| point.answers.wrong).sum();
                let rates = COPIES.map(|n| fixed(rate(points, family, kind, n, load), 4));
                table.push(row![family.name(), kind.name(), fixed(load, 1), rates, wrong]);
            }
        }
    }
    table
}

fn other_tables(unwritten: &[UnwrittenKeys], counter_errors: &[CounterError]) -> [Table; 2] {
    let about = "Answers for keys that were never written, N = 2, as many keys as slots";
    let columns = "hashes,keys,queried,answered,expected_of_a_32_bit_checksum";
    let mut absent = Table::new("absent", about, columns);
    for keys in unwritten {
        let expected = fixed(keys.expected, 4);
        absent.push(row![
            keys.family.name(),
            keys.kind.name(),
            keys.queried,
            keys.wrong,
            expected
        ]);
    }
    let about = "Key-Increment: mean error of a flow's count, 4,096 flows in 16,384 counters";
    let mut errors = Table::new("counters", about, "hashes,n,mean_error");
    for counter in counter_errors {
        errors.push(row![
            counter.family.name(),
            counter.copies,
            fixed(counter.error, 2)
        ]);
    }
    [absent, errors]
}

/// Returns the shares for one, two and four copies as text.
fn three_rates(points: &[Point], family: Family, kind: Kind, load: f64) -> String {
    [1, 2, 4]
        .map(|copies| percent(rate(points, family, kind, copies, load)))
        .join(", ")
}

fn findings(
    points: &[Point],
    unwritten: &[UnwrittenKeys],
    counter_errors: &[CounterError],
    trials: u64,
) -> Findings {
    let intervals = [4, 3, 2, 1].map(|copies| {
        let mut loads = LOADS
            .into_iter()
            .filter(|load| best_copies(points, Family::V1, Kind::RandomTuples, *load) == copies);
        match (loads.next(), loads.next_back()) {
            (Some(first), Some(last)) => format!("{first} to {last}"),
            (Some(only), None) => format!("{only} to {only}"),
            _ => "never".into(),
        }
    });
    let [wrong, wrong_artifact] = [Family::V1, Family::Artifact].map(|family| {
        let tuples = unwritten
            .iter()
            .find(|keys| keys.family == family && keys.kind == Kind::RandomTuples);
        tuples.map_or_else(String::new, |keys| {
            format!("{} of {}", keys.wrong, units::count(keys.queried))
        })
    });
    let [errors, errors_artifact] = [Family::V1, Family::Artifact].map(|family| {
        let errors = counter_errors.iter().filter(|counter| counter.family == family);
        errors
            .map(|counter| format!("{:.1}", counter.error))
            .collect::<Vec<_>>()
            .join(", ")
    });
    let conditions = [
        format!(
            "{} slots of 8 bytes, {trials} times each with different keys; no network: exact, the same on every machine",
            units::count(SLOTS)
        ),
        "5-tuples have 13 bytes; sequential 5-tuples are those of one /24 network and one server, with addresses and ports counting up".into(),
    ];
    let [absent, errors_table] = other_tables(unwritten, counter_errors);
    let tables = [load_table(points), keys_table(points), absent, errors_table];
    Findings {
        comparisons: vec![
            Comparison::new(
                "N = 2 and N = 1 at a moderate load",
                "\u{201c}great queryability improvements\u{201d}",
                format!(
                    "load 0.5: {} and {}",
                    percent(rate(points, Family::V1, Kind::RandomTuples, 2, 0.5)),
                    percent(rate(points, Family::V1, Kind::RandomTuples, 1, 0.5))
                ),
            ),
            Comparison::new(
                "loads at which N = 4, 3, 2, 1 is best",
                "intervals by colour (no figures in the text)",
                intervals.join("; "),
            ),
            Comparison::new(
                "load 0.5, N = 1, 2, 4, random 5-tuples",
                "",
                format!(
                    "{}; with the artifact's hash {}",
                    three_rates(points, Family::V1, Kind::RandomTuples, 0.5),
                    three_rates(points, Family::Artifact, Kind::RandomTuples, 0.5)
                ),
            ),
            Comparison::new(
                "load 0.5, N = 1, 2, 4, sequential words",
                "",
                format!(
                    "{}; with the artifact's hash {}",
                    three_rates(points, Family::V1, Kind::SequentialWords, 0.5),
                    three_rates(points, Family::Artifact, Kind::SequentialWords, 0.5)
                ),
            ),
            Comparison::new(
                "load 1.0, N = 1, 2, 4, sequential words (in brackets: random words)",
                "",
                format!(
                    "{} ({})",
                    three_rates(points, Family::V1, Kind::SequentialWords, 1.0),
                    three_rates(points, Family::V1, Kind::RandomWords, 1.0)
                ),
            ),
            Comparison::new(
                "answers for keys never written, random 5-tuples",
                "\u{201c}incredibly rare\u{201d}",
                format!("{wrong}; with the artifact's hash {wrong_artifact}"),
            ),
            Comparison::new(
                "Key-Increment's mean error, N = 1, 2, 4",
                "",
                format!("{errors}; with the artifact's hash {errors_artifact}"),
            ),
        ],
        ..Findings::new(METHOD, conditions, tables)
    }
}

const METHOD: &str = "The experiment fills a key-write store as the translator does (slots and checksum by `wire::dta::hash`, bytes by \
                      `wire::dta::layout`). The reader of `hopwise get` then queries every key with the policy `majority`. An answer is right if it is the \
                      key's own value. The results are compared with the exact formula for independent slots: with M slots, inclusion and exclusion over (1 \
                      - j/M)^(N L) gives the probability that all N copies of a key are overwritten by L later keys; the formula averages it over all ages. \
                      The experiment is repeated with the artifact's hashes, which a store can also use: one CRC for all purposes, with the copy's number \
                      appended for the slots.";

/// Computes the remarks from the rows.
pub(crate) fn observe(results: &Results) -> Observations {
    let load = results.table("load");
    let keys = results.table("keys");
    let mut remarks = Vec::new();
    if load.iter().count() > 0 {
        remarks.push(format!(
            "hopwise and the formula differ, with random 5-tuples, over all loads and N, by at most {:.2} percentage points.",
            100.0 * load.iter().map(deviation).fold(0.0, f64::max)
        ));
    }
    for hashes in keys.values("hashes") {
        let rows = keys.with(&[("hashes", hashes)]);
        remarks.extend(listed(
            &format!("Sequential keys, N = 1, hashes {hashes}: {{}}."),
            rows.iter()
                .filter(|row| row.text("keys").starts_with("sequential"))
                .map(|row| {
                    format!(
                        "{} {} at load {}",
                        row.text("keys"),
                        percent(row.number("n1")),
                        row.text("load")
                    )
                }),
        ));
    }
    for (one, two, hashes) in [
        ("n1", "n2", "the four hashes"),
        ("artifact_n1", "artifact_n2", "the artifact's hash"),
    ] {
        remarks.extend(load_gain(&load, one, two, hashes));
    }
    remarks.extend(
        [
            "on structured keys, linear hashes do not behave like random functions, so their rates are better or worse than the formula. To size a store, use \
             keys like your own.",
            "the artifact's CRC is affine, so slot n of every key is slot 0 with the same bits inverted. Two keys that collide in one copy collide in all, and \
             N copies only make the store N times smaller: its answers follow the formula of M / N groups (the marks in the second plot). It takes the \
             checksum from the same CRC as the slot, so two keys in one slot have fewer bits in which their checksums can differ. Keys of four bytes are not \
             affected (a CRC-32 of 32 bits is a bijection).",
        ]
        .map(judgement),
    );
    Observations::remarks(remarks)
}

/// Returns the largest difference of a row from the formula.
fn deviation(row: Row<'_>) -> f64 {
    ["n1", "n2", "n3", "n4"]
        .map(|n| (row.number(n) - row.number(&format!("formula_{n}"))).abs())
        .into_iter()
        .fold(0.0, f64::max)
}

/// Says at how many loads a second copy raises the share of answered keys.
fn load_gain(load: &Rows, one: &str, two: &str, hashes: &str) -> Option<String> {
    let all = load.iter().count();
    let gains = load
        .iter()
        .filter(|row| row.number(two) > row.number(one))
        .count();
    (all > 0).then(|| {
        let loads = units::counted(all as u64, "load");
        format!("With {hashes}, N = 2 answers more keys than N = 1 at {gains} of {loads}.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five standard errors of a rate, plus a margin for small stores: one lost slot may affect two keys.
    fn error(point: &Point) -> f64 {
        let p = point.formula;
        5.0 * (2.0 * p * (1.0 - p) / point.answers.queried() as f64).sqrt() + 0.002
    }

    #[test]
    fn random_keys_follow_the_formula() {
        let store = Slots::new(SLOTS, 4, Family::V1).unwrap();
        for kind in [Kind::RandomTuples, Kind::RandomWords] {
            for copies in COPIES {
                for load in [0.1, 0.5, 1.0, 2.0] {
                    let point = measure(&store, kind, copies, load, 1..3).unwrap();
                    let (rate, within) = (point.answers.rate(), error(&point));
                    let what = format!(
                        "{} N = {copies}, load {load}: {rate}, {}",
                        kind.name(),
                        point.formula
                    );
                    assert!((rate - point.formula).abs() < within, "{what}");
                    assert_eq!(point.answers.wrong, 0, "{what}");
                }
            }
        }
    }

    #[test]
    fn the_artifacts_copies_are_lost_together() {
        let store = Slots::new(SLOTS, 4, Family::Artifact).unwrap();
        for copies in [1, 2, 4] {
            for load in [0.1, 0.5, 1.0] {
                let point = measure(&store, Kind::RandomTuples, copies, load, 1..3).unwrap();
                let (rate, grouped) = (point.answers.rate(), point.grouped_formula.unwrap());
                assert!(
                    (rate - grouped).abs() < error(&point),
                    "N = {copies}, load {load}: {rate}, {grouped}"
                );
            }
        }
        // The figures of wire-formats 5.2: sequential keys hide the effect.
        let sequential = |copies| {
            measure(&store, Kind::SequentialWords, copies, 0.5, 1..2)
                .unwrap()
                .answers
                .rate()
        };
        assert_eq!(
            [1, 2, 4].map(|copies| (100.0 * sequential(copies)).round()),
            [100.0, 100.0, 50.0]
        );
    }

    #[test]
    fn more_copies_help_counters_with_four_hashes_only() {
        let found = counter_errors(2);
        let of = |family, copies| {
            let mut errors = found.iter();
            let counter = errors.find(|counter| (counter.family, counter.copies) == (family, copies));
            counter.unwrap().error
        };
        assert!(
            of(Family::V1, 4) < of(Family::V1, 2) && of(Family::V1, 2) < of(Family::V1, 1) / 10.0,
            "{found:?}"
        );
        assert!(of(Family::Artifact, 4) > of(Family::Artifact, 2), "{found:?}");
        assert!(of(Family::Artifact, 2) > of(Family::Artifact, 1), "{found:?}");
    }

    #[test]
    fn answers_of_sequential_keys_and_gains_are_those_of_the_rows() {
        let observed = observe(&Results::parse([
            (
                "load",
                "load,n1,n2,formula_n1,formula_n2,artifact_n1,artifact_n2\n0.5,0.80,0.70,0.80,0.75,0.5,0.6\n",
            ),
            (
                "keys",
                "hashes,keys,load,n1\nartifact,sequential 5-tuples,0.5,0.5234\nartifact,random words,0.5,1.0\nv1,sequential words,1.0,0.5\n",
            ),
        ]));
        assert_eq!(
            observed.remarks[..5],
            [
                "hopwise and the formula differ, with random 5-tuples, over all loads and N, by at most 5.00 percentage points.",
                "Sequential keys, N = 1, hashes artifact: sequential 5-tuples 52.3 % at load 0.5.",
                "Sequential keys, N = 1, hashes v1: sequential words 50.0 % at load 1.0.",
                "With the four hashes, N = 2 answers more keys than N = 1 at 0 of 1 load.",
                "With the artifact's hash, N = 2 answers more keys than N = 1 at 1 of 1 load."
            ]
        );
    }
}
