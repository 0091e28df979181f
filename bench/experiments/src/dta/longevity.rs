//! Experiment `dta-longevity`: the share of keys that a Key-Write store still answers, by their age (DTA, Fig. 12), for stores
//! of several sizes. Small stores at the same ratio of keys to slots stand for the paper's 100 M flows.

use dta::Plan;
use wire::dta::hash::Family;

use super::{percent, percent_axis};
use crate::figures::{
    keys::{Keys, Kind},
    slots::{Answers, Slots},
};
use crate::{
    page::{Comparison, Findings, Table, fixed, line_series, linear, mark_series, row},
    rows::{Observations, Results, Row, judgement, listed},
    settings::{Scale, Settings},
};
use terminal::{CliError, units};

const FLOWS: f64 = 100e6;
/// Bytes of a slot in the paper: five switch IDs and a checksum of 4 bytes each, without padding.
const PACKED: f64 = 24.0;
/// Bytes of a slot in hopwise: the next power of two, so that a slot never crosses a cache line.
const STRIDE: f64 = 32.0;
/// Store sizes, GB (10^9 bytes).
const SIZES: [f64; 6] = [1.5, 3.0, 6.0, 12.0, 30.0, 60.0];
const COPIES: [u8; 3] = [1, 2, 4];
/// Number of age classes into which the keys are divided.
const AGES: usize = 20;
/// Slots of the small store, and bytes of data in a slot.
const SLOTS: u64 = 1 << 20;
const DATA: u16 = 20;
/// Slots of a store of 4 GiB.
const LARGE: u64 = 1 << 27;

/// The answers of a store that has the load of a full-size store of `gb` GB.
struct Run {
    gb: f64,
    copies: u8,
    keys: u64,
    slots: u64,
    /// Answers of each age class, newest first.
    by_age: Vec<Answers>,
}

impl Run {
    fn average(&self) -> f64 {
        let mut all = Answers::default();
        self.by_age.iter().for_each(|answers| all += *answers);
        all.rate()
    }

    /// Computes the expected share of an age class: the difference of the sums over the newest keys up to both its ends.
    fn formula(&self, step: usize) -> f64 {
        let [before, after] = [step, step + 1].map(|step| {
            let later = self.keys * step as u64 / AGES as u64;
            later as f64 * Plan::new(later, self.slots, self.copies).answered()
        });
        (after - before) * AGES as f64 / self.keys as f64
    }
}

pub(crate) fn run(settings: &Settings) -> Result<Findings, CliError> {
    // The number of slots must be a power of two.
    let slots = settings.scale.scale(8).next_power_of_two() * SLOTS / 8;
    let store = Slots::new(slots, DATA, Family::V1)?;
    let mut runs = Vec::new();
    for gb in SIZES {
        for copies in COPIES {
            let load = FLOWS * PACKED / (gb * 1e9);
            runs.push(measure(&store, gb, copies, (load * slots as f64) as u64)?);
        }
    }
    drop(store);
    let large = match settings.scale {
        Scale::Full => large()?,
        Scale::Quick | Scale::Smallest => None,
    };
    Ok(findings(&runs, large.as_ref(), slots))
}

/// Writes keys one after the other, then queries all of them by age.
fn measure(store: &Slots, gb: f64, copies: u8, keys: u64) -> Result<Run, CliError> {
    let all = Keys {
        kind: Kind::RandomTuples,
        seed: 12,
    };
    store.clear()?;
    let mut data = [0xa5; DATA as usize];
    for number in 0..keys {
        data[..4].copy_from_slice(&(number as u32).to_be_bytes());
        store.write(all.key(number).as_ref(), &data, copies)?;
    }
    let by_age = (0..AGES)
        .map(|step| {
            // The newest keys were written last.
            let [newer, older] = [step, step + 1].map(|step| keys - keys * step as u64 / AGES as u64);
            store.query(
                copies,
                (older..newer).map(|number| (number as u32, all.key(number))),
            )
        })
        .collect::<Result<_, _>>()?;
    Ok(Run {
        gb,
        copies,
        keys,
        slots: store.slots(),
        by_age,
    })
}

/// Measures all flows of the paper in a store of 4 GiB. Returns `None` if not enough memory is available.
fn large() -> Result<Option<Run>, CliError> {
    if crate::figures::available() < 8 << 30 {
        eprintln!("hopwise: skipped the run with all {FLOWS} flows: it needs 8 GiB of free memory");
        return Ok(None);
    }
    let store = Slots::new(LARGE, DATA, Family::V1)?;
    measure(&store, LARGE as f64 * STRIDE / 1e9, 2, FLOWS as u64).map(Some)
}

/// Computes the share of answered keys at full scale: on average, and of the oldest key.
fn full(slots: f64, copies: u8) -> [f64; 2] {
    let plan = Plan::new(FLOWS as u64, slots as u64, copies);
    [plan.answered(), plan.answered_at(plan.keys)]
}

fn age_table(runs: &[Run], large: Option<&Run>) -> Table {
    let columns = "gb,n,keys,slots,relative_age,answered,formula,wrong_answers";
    let mut table = Table::new("age", "Keys answered by age", columns);
    let mut series = Vec::new();
    let mut formula = Vec::new();
    for run in runs.iter().chain(large) {
        let mut line = Vec::new();
        for (step, answers) in run.by_age.iter().enumerate() {
            let age = (step as f64 + 0.5) / AGES as f64;
            table.push(row![
                fixed(run.gb, 2),
                run.copies,
                run.keys,
                run.slots,
                fixed(age, 3),
                fixed(answers.rate(), 4),
                fixed(run.formula(step), 4),
                answers.wrong,
            ]);
            line.push((
                age * FLOWS / 1e6,
                100.0 * answers.rate(),
                100.0 * run.formula(step),
            ));
        }
        // The run with all flows is in the table, not in the plot.
        if run.copies == 2 && series.len() < SIZES.len() {
            let measured = line.iter().map(|(flows, rate, _)| (*flows, *rate));
            series.push(line_series(&format!("{} GB", run.gb), measured.collect()));
            formula.extend(line.iter().map(|(flows, _, formula)| (*flows, *formula)));
        }
    }
    formula.sort_by(|a, b| a.0.total_cmp(&b.0));
    series.push(mark_series("formula", formula));
    table.plot(
        "Keys answered by age, 100 M flows (Fig. 12)",
        "N = 2, slots of 24 bytes, at the load of the full size",
        [linear("flows reported since (M)"), percent_axis()],
        series,
    );
    table
}

fn full_table(runs: &[Run]) -> Table {
    let columns = "gb,n,load,formula_average,formula_oldest,small_average,small_oldest_20th,\
        our_slots,ours_average,ours_oldest";
    let about = "100 M flows by size of the store and N: average and oldest";
    let mut table = Table::new("size", about, columns);
    for gb in SIZES {
        for copies in COPIES {
            let slots = (gb * 1e9 / PACKED).floor();
            let small = runs.iter().find(|run| (run.gb, run.copies) == (gb, copies));
            let last = small
                .and_then(|run| run.by_age.last())
                .map_or(f64::NAN, Answers::rate);
            // Hopwise's stores have a power of two of slots: the largest that fits.
            let fit = 1_u64 << (gb * 1e9 / STRIDE).log2() as u32;
            table.push(row![
                fixed(gb, 1),
                copies,
                fixed(FLOWS / slots, 3),
                full(slots, copies).map(|share| fixed(share, 4)),
                fixed(small.map_or(f64::NAN, Run::average), 4),
                fixed(last, 4),
                fit,
                full(fit as f64, copies).map(|share| fixed(share, 4)),
            ]);
        }
    }
    table
}

/// Formats the share of answered keys by the formula: on average, and of the oldest.
fn average_and_oldest(slots: f64, copies: u8) -> String {
    full(slots, copies).map(percent).join(" / ")
}

fn findings(runs: &[Run], large: Option<&Run>, slots: u64) -> Findings {
    let slots_of_3_gb = 3e9 / PACKED;
    let slots_of_30_gb = 30e9 / PACKED;
    let mut comparisons = vec![
        Comparison::new(
            "3 GB, average / oldest, N = 2 (as the paper says)",
            "62 % / 17.9 %",
            format!("{} by the formula", average_and_oldest(slots_of_3_gb, 2)),
        ),
        Comparison::new(
            "the same, N = 4",
            "",
            format!(
                "{}; in 3 GiB {}",
                average_and_oldest(slots_of_3_gb, 4),
                average_and_oldest(3.0 * f64::from(1 << 30) / PACKED, 4)
            ),
        ),
        Comparison::new(
            "30 GB, average, N = 2",
            "99.9 %",
            format!("{} by the formula", percent(full(slots_of_30_gb, 2)[0])),
        ),
        Comparison::new("the same, N = 4", "", percent(full(slots_of_30_gb, 4)[0])),
        Comparison::new(
            "hopwise's slots, 4 GiB (2^27 slots of 32 bytes), N = 2, average / oldest",
            "",
            format!("{} by the formula", average_and_oldest(LARGE as f64, 2)),
        ),
    ];
    if let Some(large) = large {
        let oldest = large.by_age.last().map_or(f64::NAN, Answers::rate);
        comparisons.push(Comparison::new(
            "the same, measured with all 100 M flows: average / oldest twentieth",
            "",
            format!(
                "{} / {} (formula: {})",
                percent(large.average()),
                percent(oldest),
                percent(large.formula(AGES - 1))
            ),
        ));
    }
    let mut conditions = vec![
        format!(
            "{} slots, 20 bytes of data, random 5-tuples, one report each; no network: exact, the same on every machine",
            units::count(slots)
        ),
        "sizes are 10^9 bytes; the load is that of the full-size store with slots of 24 bytes, as in the paper"
            .into(),
    ];
    if let Some(large) = large {
        conditions.push(format!(
            "with all flows: {} keys into {} slots, {:.2} GB",
            units::count(large.keys),
            units::count(large.slots),
            large.gb
        ));
    }
    Findings {
        comparisons,
        ..Findings::new(
            "Reports of random flows are written one after the other into a key-write store; then each key is queried, by age. The store is scaled \
             down. It has the same ratio of keys to slots as 100 M flows in the stated number of GB, because the rate depends on this ratio. The \
             formula is also computed for the full size.",
            conditions,
            [age_table(runs, large), full_table(runs)],
        )
    }
}

/// Size of the store in the paper, GB.
const PAPER_GB: f64 = 3.0;
/// Share of answered keys in the paper, of all keys.
const PAPER_AVERAGE: f64 = 0.62;
/// Share of answered keys in the paper, of the oldest keys.
const PAPER_OLDEST: f64 = 0.179;

/// Computes the remarks from the rows.
pub(crate) fn observe(results: &Results) -> Observations {
    let ages = results.table("age");
    let mut remarks = Vec::new();
    if ages.iter().count() > 0 {
        let most = ages
            .iter()
            .map(|row| (row.number("answered") - row.number("formula")).abs())
            .fold(0.0, f64::max);
        remarks.push(format!(
            "Measurement and formula differ, over all sizes, N and ages, by at most {:.2} percentage points.",
            100.0 * most
        ));
    }
    let sizes = results.table("size");
    let gb = format!("{:.1}", PAPER_GB);
    remarks.extend(nearest(&sizes.with(&[("gb", &gb)])));
    remarks.push(judgement(
        "the size of a slot of hopwise (32 bytes for 20 bytes of data) and the number of slots are powers of two: an address needs no multiplication, and a \
         slot never crosses a cache line. Choose the size of the store accordingly: `our_slots` is the number of slots that fit.",
    ));
    Observations::remarks(remarks)
}

/// Says which N comes nearest to the figures that the paper states for N = 2.
fn nearest(sizes: &[Row<'_>]) -> Option<String> {
    let mut by_distance = sizes.to_vec();
    by_distance.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let texts = by_distance.iter().map(|row| {
        format!(
            "N = {} {} / {}",
            row.text("n"),
            percent(row.number("formula_average")),
            percent(row.number("formula_oldest"))
        )
    });
    listed(
        &format!(
            "{} GB, average / oldest by the formula, the nearest to the paper's {} / {} first: {{}}.",
            PAPER_GB,
            percent(PAPER_AVERAGE),
            percent(PAPER_OLDEST)
        ),
        texts,
    )
}

/// Returns the sum of the differences from the paper's figures.
fn distance(row: &Row<'_>) -> f64 {
    (row.number("formula_average") - PAPER_AVERAGE).abs()
        + (row.number("formula_oldest") - PAPER_OLDEST).abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_follow_the_formula() {
        let store = Slots::new(1 << 16, DATA, Family::V1).unwrap();
        for copies in COPIES {
            let run = measure(&store, 3.0, copies, 52_429).unwrap();
            for (step, answers) in run.by_age.iter().enumerate() {
                let (rate, p) = (answers.rate(), run.formula(step));
                let within = 5.0 * (2.0 * p * (1.0 - p) / answers.queried() as f64).sqrt() + 0.004;
                assert!(
                    (rate - p).abs() < within,
                    "N = {copies}, step {step}: {rate}, {p}"
                );
                assert_eq!(answers.wrong, 0);
            }
            assert!((run.average() - Plan::new(52_429, 65_536, copies).answered()).abs() < 0.01);
        }
    }

    #[test]
    fn the_papers_figures_are_those_of_four_copies() {
        // Between 3 GB and 3 GiB of slots of 24 bytes.
        let (low, high) = (full(3e9 / PACKED, 4), full(3.0 * f64::from(1 << 30) / PACKED, 4));
        assert!(
            low[0] < 0.62 && 0.62 < high[0] && low[1] < 0.179 && 0.179 < high[1],
            "{low:?} {high:?}"
        );
        assert!((full(30e9 / PACKED, 4)[0] - 0.999).abs() < 0.0005);
        // Not with two copies.
        let two = full(3e9 / PACKED, 2);
        assert!(two[0] > 0.69 && two[1] > 0.35, "{two:?}");
    }

    #[test]
    fn the_nearest_number_of_copies_is_that_of_the_rows() {
        let observed = observe(&Results::parse([
            ("age", "answered,formula\n0.50,0.51\n0.60,0.60\n"),
            (
                "size",
                "gb,n,formula_average,formula_oldest\n3.0,2,0.698,0.363\n3.0,4,0.602,0.153\n30.0,1,0.62,0.179\n",
            ),
        ]));
        assert_eq!(
            observed.remarks[..2],
            [
                "Measurement and formula differ, over all sizes, N and ages, by at most 1.00 percentage points.",
                "3 GB, average / oldest by the formula, the nearest to the paper's 62.0 % / 17.9 % first: N = 4 60.2 % / 15.3 %; N = 2 69.8 % / 36.3 %."
            ]
        );
    }
}
