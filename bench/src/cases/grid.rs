//! Case `fastpath-grid`: the fast path for reports of many shapes, compared with a line through the smallest and the largest one.
//!
//! The cost of a report should grow with the values in it, and no shape should be much dearer than that: each one takes at most
//! [`ALLOWANCE_NS`] plus [`SLOPE`] times the line through 1 hop of 1 item and 16 hops of 8 items.

use testkit::workload::collector::{CASES, Case};

use super::fastpath::{pass, warm_up};
use super::harness::{Conditions, Failure, Outcome, Plan, measure, median};
use terminal::CliError;

const HOPS: [u8; 7] = [1, 2, 4, 6, 8, 12, 16];
const ITEMS: [u32; 7] = [1, 2, 3, 4, 5, 6, 8];
/// Time that any shape may take in addition to the line, ns.
const ALLOWANCE_NS: f64 = 25.0;
/// Time that any shape may take as a multiple of the line.
const SLOPE: f64 = 1.3;
/// A run of one shape takes this share of a run of other cases, because there are 49 shapes.
const SHARE: u32 = 10;

/// One shape of reports.
#[derive(Clone, Debug)]
struct Shape {
    hops: u8,
    items: u32,
    /// Time per report in each run, ns.
    times: Vec<f64>,
}

impl Shape {
    fn all() -> Vec<Self> {
        HOPS.iter()
            .flat_map(|hops| ITEMS.iter().map(|items| Self::new(*hops, *items)))
            .collect()
    }

    fn new(hops: u8, items: u32) -> Self {
        Self {
            hops,
            items,
            times: Vec::new(),
        }
    }

    /// Returns the number of values in a report.
    fn values(&self) -> f64 {
        f64::from(self.hops) * f64::from(self.items)
    }

    fn median(&self) -> f64 {
        median(self.times.clone())
    }

    fn name(&self) -> String {
        format!("{}×{}", self.hops, self.items)
    }

    fn case(&self, plan: &Plan) -> Case {
        Case {
            flows: plan.flows(1000),
            hops: self.hops,
            // The first items of the bitmap.
            bitmap: !(u16::MAX >> self.items),
            ..CASES[0]
        }
    }
}

/// The line through the shapes with the fewest and the most values.
#[derive(Clone, Copy, Debug)]
struct Line {
    values: f64,
    ns: f64,
    ns_per_value: f64,
}

impl Line {
    /// Returns the line through the first and the last of `shapes`, which are in ascending order.
    fn through(shapes: &[Shape]) -> Option<Self> {
        let first = shapes.first()?;
        let last = shapes.last()?;
        Some(Self {
            values: first.values(),
            ns: first.median(),
            ns_per_value: (last.median() - first.median()) / (last.values() - first.values()),
        })
    }

    /// Returns the time of a shape as a multiple of what it may take.
    fn ratio(&self, shape: &Shape) -> f64 {
        let fit = self.ns + self.ns_per_value * (shape.values() - self.values);
        shape.median() / (ALLOWANCE_NS + SLOPE * fit)
    }
}

/// Measures every shape in each run, so that a change of the machine's speed affects all. The result is the time of the shape that
/// is furthest above the line.
pub(super) fn run(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let once = Plan {
        runs: 1,
        each: plan.each / SHARE,
    };
    let mut shapes = Shape::all();
    for _ in 0..plan.runs {
        for shape in &mut shapes {
            let case = shape.case(plan);
            let mut collector = case.collector();
            let mut feed = case.feed();
            let mut batch = warm_up(&mut feed, &mut collector);
            let measured = measure(&once, || Ok(pass(&mut feed, &mut collector, &mut batch)))?;
            let stats = collector.stats();
            if stats.reports != stats.flow_reports + stats.unadmitted_total()
                || stats.datagrams != stats.accepted
            {
                return Err(CliError::new("the collector's counters do not balance").into());
            }
            shape.times.extend(measured.ns_per_op);
        }
    }
    let line = Line::through(&shapes).ok_or_else(|| CliError::new("no shapes"))?;
    let worst = shapes
        .iter()
        .max_by(|a, b| line.ratio(a).total_cmp(&line.ratio(b)));
    let worst = worst.ok_or_else(|| CliError::new("no shapes"))?;
    let above = shapes.iter().filter(|shape| line.ratio(shape) > 1.0).count();
    let medians = shapes
        .iter()
        .map(|shape| format!("{} {:.1}", shape.name(), shape.median()));
    let included =
        "frame parsing, decoding, per-flow and per-hop state, thresholds, loss accounting, rollups; no I/O";
    let conditions = Conditions::of(
        "one report of the shape (hops × items) that is furthest above the line",
        included,
    )
    .text("format", CASES[0].format.describe())
    .text("order", CASES[0].order.describe())
    .text("cache", "warm: each shape has 1,000 flows of its own")
    .text(
        "line",
        format!("{ALLOWANCE_NS} ns + {SLOPE} × the line by values through 1×1 and 16×8"),
    )
    .number("cells", shapes.len())
    .number("cells_above", above)
    .text("worst_cell", worst.name())
    .ratio("worst_ratio", line.ratio(worst))
    .ratio("ns_per_value", line.ns_per_value)
    .text("cells_ns", medians.collect::<Vec<_>>().join(", "));
    Ok(Outcome::new(name, worst.times.clone(), conditions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_compared_with_the_line_through_the_smallest_and_the_largest() {
        let mut shapes = [Shape::new(1, 1), Shape::new(16, 1), Shape::new(16, 8)];
        for (shape, ns) in shapes.iter_mut().zip([40.0, 95.0, 167.0]) {
            shape.times = vec![500.0, ns, 1.0];
        }
        let line = Line::through(&shapes).unwrap();
        assert_eq!(line.ns_per_value, 1.0);
        // 16 values are at 55 ns on the line, so 16×1 may take 25 + 1.3 × 55 = 96.5 ns.
        assert_eq!(line.ratio(&shapes[1]), 95.0 / 96.5);
        assert_eq!(line.ratio(&shapes[0]), 40.0 / (25.0 + 1.3 * 40.0));
    }

    #[test]
    fn the_first_and_the_last_shape_are_the_smallest_and_the_largest() {
        let shapes = Shape::all();
        assert_eq!(shapes.len(), 49);
        assert_eq!(
            (shapes[0].name(), shapes[48].name()),
            ("1×1".into(), "16×8".into())
        );
        let plan = Plan {
            runs: 1,
            each: std::time::Duration::ZERO,
        };
        let bitmaps: Vec<u16> = shapes[..7].iter().map(|shape| shape.case(&plan).bitmap).collect();
        assert_eq!(bitmaps, [0x8000, 0xc000, 0xe000, 0xf000, 0xf800, 0xfc00, 0xff00]);
    }
}
