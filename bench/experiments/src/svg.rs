//! Draws plots as SVG: lines, steps, points and grouped bars, with bands or whiskers for the spread, linear or logarithmic.
//!
//! A file is self-contained, without script, web font or CSS variables, so that any program can draw it. It has a background
//! and follows the viewer's colour scheme (`prefers-color-scheme`). The output is deterministic. Values that cannot be drawn
//! (not finite, or not positive on a logarithmic axis) leave a gap. If a series has more points than pixels, only the extremes
//! of each pixel column are drawn, so that the file stays small and keeps all peaks.

mod paint;

use std::fmt::Write as _;

use self::paint::SERIES;
use terminal::units;

/// Size of a plot in CSS pixels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
/// Margin at the right and left edge, in CSS pixels, without labels.
const MARGIN: f64 = 20.0;
/// Estimated width of a character in 12 px sans-serif, because the actual font is unknown before the file is drawn.
const CHARACTER: f64 = 6.7;
/// Approximate number of ticks on each axis.
const X_TICKS: usize = 7;
const Y_TICKS: usize = 6;
/// Number of distinct series styles; further series reuse them.
const STYLES: usize = 8;

/// The mapping from values to positions on an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Scale {
    /// Linear. The axis includes 0 if the values come near it.
    #[default]
    Linear,
    /// Logarithmic. Values must be positive.
    Log,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Axis {
    /// The quantity on the axis: `Threshold`.
    pub(crate) name: String,
    /// The unit, shown in brackets; empty if there is none.
    pub(crate) unit: String,
    pub(crate) scale: Scale,
    /// Ends of the axis; `None` if they follow from the values.
    pub(crate) range: Option<(f64, f64)>,
    /// Names of the values 0, 1, 2, …, for bars; empty for a numeric axis.
    pub(crate) categories: Vec<String>,
}

impl Axis {
    pub(crate) fn new(name: &str, unit: &str) -> Self {
        Self {
            name: name.into(),
            unit: unit.into(),
            ..Self::default()
        }
    }

    #[must_use]
    pub(crate) fn log(self) -> Self {
        Self {
            scale: Scale::Log,
            ..self
        }
    }

    fn title(&self) -> String {
        if self.unit.is_empty() {
            self.name.clone()
        } else {
            format!("{} ({})", self.name, self.unit)
        }
    }
}

/// One value, optionally with its spread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Minimum and maximum of the runs, or a confidence interval.
    pub(crate) spread: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Point {
    fn from(point: (f64, f64)) -> Self {
        Self {
            x: point.0,
            y: point.1,
            spread: None,
        }
    }
}

/// The way in which a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// Straight lines between points, with a mark on each point if there are few.
    Line,
    /// A step function, for queue lengths and states.
    Step,
    /// Only marks, without lines.
    Marks,
    /// Bars, grouped by x value.
    Bars,
}

/// One series of values.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) style: Style,
    /// The values, x ascending.
    pub(crate) points: Vec<Point>,
}

impl Series {
    /// Creates a series of points without spread.
    pub(crate) fn new(name: &str, style: Style, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self {
            name: name.into(),
            style,
            points: points.into_iter().map(Point::from).collect(),
        }
    }

    /// Returns the series as marks, for published figures or a formula.
    #[must_use]
    pub(crate) fn marks(self) -> Self {
        Self {
            style: Style::Marks,
            ..self
        }
    }

    /// Converts the series to another quantity, such as a rate in place of a time.
    #[must_use]
    pub(crate) fn map(mut self, convert: impl Fn(f64) -> f64) -> Self {
        for point in &mut self.points {
            point.y = convert(point.y);
            point.spread = point.spread.map(|(low, high)| {
                let [low, high] = [low, high].map(&convert);
                (low.min(high), low.max(high))
            });
        }
        self
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Plot {
    pub(crate) title: String,
    /// Conditions or source, in a smaller font; may be empty.
    pub(crate) note: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Series in the order of the legend; the last is drawn on top.
    pub(crate) series: Vec<Series>,
}

impl Plot {
    pub(crate) fn to_svg(&self) -> String {
        Drawing::new(self).finish()
    }
}

/// An axis with computed ends and ticks; maps values to pixels.
struct Mapped {
    scale: Scale,
    /// Ends, as logarithms if the axis is logarithmic.
    low: f64,
    high: f64,
    /// Pixels of the two ends.
    from: f64,
    to: f64,
    /// Value and label of each tick.
    ticks: Vec<(f64, String)>,
}

impl Mapped {
    fn new(axis: &Axis, values: &[f64], from_zero: bool, aim: usize) -> Self {
        let (low, high) = axis.range.unwrap_or_else(|| ends(values, axis.scale));
        let (low, high, ticks) = if !axis.categories.is_empty() {
            let names = axis.categories.iter().cloned();
            let ticks = (0_u32..).map(f64::from).zip(names).collect();
            (-0.5, axis.categories.len() as f64 - 0.5, ticks)
        } else if axis.scale == Scale::Log {
            let AxisTicks { low, high, ticks } = log_ticks(low, high, axis.range.is_some());
            (low.log10(), high.log10(), ticks)
        } else if axis.range.is_some() {
            (low, high, linear_ticks(low, high, nice_step(high - low, aim)))
        } else {
            let low = if from_zero { low.min(0.0) } else { low };
            // Round the ends outwards to ticks.
            let step = nice_step(high - low, aim);
            let low = (low / step).floor() * step;
            let high = (high / step).ceil() * step;
            (low, high, linear_ticks(low, high, step))
        };
        Self {
            scale: if axis.categories.is_empty() {
                axis.scale
            } else {
                Scale::Linear
            },
            low,
            high,
            from: 0.0,
            to: 1.0,
            ticks,
        }
    }

    /// Returns the pixel of a value, or `None` if it cannot be drawn; values far outside stop half an axis beyond the ends.
    fn at(&self, value: f64) -> Option<f64> {
        let value = if self.scale == Scale::Log {
            value.log10()
        } else {
            value
        };
        let share = (value - self.low) / (self.high - self.low);
        share
            .is_finite()
            .then(|| self.from + share.clamp(-0.5, 1.5) * (self.to - self.from))
    }
}

/// Returns the smallest and the largest value that can be drawn; on a linear axis they are never equal.
fn ends(values: &[f64], scale: Scale) -> (f64, f64) {
    let good = values
        .iter()
        .copied()
        .filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0));
    let (low, high) = good.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    match scale {
        _ if low > high => (if scale == Scale::Log { 0.1 } else { 0.0 }, 1.0),
        Scale::Log => (low, high),
        Scale::Linear if low == high => (low - low.abs().max(1.0) * 0.5, high + high.abs().max(1.0) * 0.5),
        // An axis that almost reaches 0 includes it.
        Scale::Linear if low > 0.0 && low < high * 0.4 => (0.0, high),
        Scale::Linear => (low, high),
    }
}

/// Returns a step of 1, 2 or 5 times a power of ten that gives about `aim` ticks over `span`.
fn nice_step(span: f64, aim: usize) -> f64 {
    let rough = (span / aim as f64).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let multiple = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|multiple| power * multiple >= rough * 0.999);
    power * multiple.unwrap_or(10.0)
}

fn linear_ticks(low: f64, high: f64, step: f64) -> Vec<(f64, String)> {
    let first = (low / step - 1e-6).ceil();
    let count = ((high / step + 1e-6).floor() - first).clamp(0.0, 100.0) as u32;
    let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    (0..=count)
        .map(|i| {
            let value = (first + f64::from(i)) * step;
            (value, label(value, decimals, high.abs().max(low.abs())))
        })
        .collect()
}

/// Formats a number for an axis whose largest value is `largest`: `0.25`, `1,500`, `2.5 M`.
fn label(value: f64, decimals: usize, largest: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, " G"), (1e6, " M"), (1e5, " k")];
    for (least, unit) in UNITS {
        if largest >= least {
            let divisor = if unit == " k" { 1e3 } else { least };
            return if value == 0.0 {
                "0".into()
            } else {
                format!("{}{unit}", trimmed(value / divisor))
            };
        }
    }
    separated(&format!("{:.decimals$}", if value == 0.0 { 0.0 } else { value }))
}

/// Adds thousands separators to the text of a number.
pub(crate) fn separated(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (whole, decimals) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    match whole.parse() {
        Ok(whole) => format!("{sign}{}{decimals}", units::count(whole)),
        Err(_) => text.to_owned(),
    }
}

/// Formats a number with up to three decimals, without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The ends of an axis, and its ticks with their labels.
struct AxisTicks {
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

/// Returns ends and ticks of a logarithmic axis: decades, and 2 and 5 times if few. Ends move to ticks unless `is_fixed`.
fn log_ticks(low: f64, high: f64, is_fixed: bool) -> AxisTicks {
    let low = low.max(1e-30);
    let high = high.clamp(1e-30, 1e30).max(low);
    let decades = (high / low).log10();
    let multiples: &[f64] = if decades <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = (decades / 8.0).ceil().max(1.0) as i32;
    let first = low.log10().floor() as i32 - 1;
    let last = high.log10().ceil() as i32 + 1;
    let all: Vec<f64> = (first..=last)
        .filter(|power| power.rem_euclid(every) == 0)
        .flat_map(|power| {
            multiples
                .iter()
                .map(move |multiple| multiple * 10_f64.powi(power))
        })
        .collect();
    let below = all
        .iter()
        .copied()
        .rfind(|tick| *tick <= low * 1.000_001)
        .unwrap_or(low);
    let above = all
        .iter()
        .copied()
        .find(|tick| *tick >= high * 0.999_999 && *tick > below)
        .unwrap_or(high);
    let (low, high) = if is_fixed {
        (low, high.max(low * 1.01))
    } else {
        (below, above)
    };
    let shown = all
        .into_iter()
        .filter(|tick| (low * 0.999_999..=high * 1.000_001).contains(tick));
    AxisTicks {
        low,
        high,
        ticks: shown.map(|tick| (tick, log_label(tick))).collect(),
    }
}

fn log_label(value: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    if !(1e-3..1e15).contains(&(value * 1.000_001)) {
        return format!("{value:.0e}");
    }
    let unit = UNITS.into_iter().find(|(least, _)| value * 1.000_001 >= *least);
    unit.map_or_else(
        || trimmed(value),
        |(least, unit)| format!("{}{unit}", trimmed(value / least)),
    )
}

/// Escapes text for XML, and replaces control characters, which XML does not allow even escaped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

struct Drawing<'a> {
    plot: &'a Plot,
    x: Mapped,
    y: Mapped,
    out: String,
}

/// A point in pixels: x, y, and the ends of the spread.
type Pixel = (f64, f64, Option<(f64, f64)>);

impl<'a> Drawing<'a> {
    fn new(plot: &'a Plot) -> Self {
        let points = plot.series.iter().flat_map(|series| &series.points);
        let xs: Vec<f64> = points.clone().map(|point| point.x).collect();
        let spreads = points
            .clone()
            .filter_map(|point| point.spread)
            .flat_map(|(low, high)| [low, high]);
        let ys: Vec<f64> = points.map(|point| point.y).chain(spreads).collect();
        let bars = plot.series.iter().any(|series| series.style == Style::Bars);
        let mut x = Mapped::new(&plot.x, &xs, false, X_TICKS);
        let mut y = Mapped::new(&plot.y, &ys, bars, Y_TICKS);
        let widest = y
            .ticks
            .iter()
            .map(|(_, label)| label.chars().count())
            .max()
            .unwrap_or(1);
        x.from = MARGIN + widest as f64 * CHARACTER + 8.0;
        x.to = WIDTH - MARGIN - 8.0;
        let note = if plot.note.is_empty() { 0.0 } else { 17.0 };
        let rows = legend_rows(plot).len() as f64;
        // From the top: title, note, rows of the legend, name of the y axis.
        y.to = 34.0 + note + rows * 19.0 + 30.0;
        y.from = HEIGHT - 50.0;
        Self {
            plot,
            x,
            y,
            out: String::with_capacity(16_384),
        }
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.out += &paint::painted(&text.to_string());
        self.out.push('\n');
    }

    fn text(&mut self, at: (f64, f64), class: &str, anchor: &str, text: &str) {
        let (x, y) = at;
        let text = escaped(text);
        self.put(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    fn finish(mut self) -> String {
        let title = escaped(&self.plot.title);
        self.put(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" font-family="{}" font-size="12">"#,
            paint::FONT
        ));
        self.put(format_args!("<title>{title}</title>"));
        self.put(format_args!("{}", paint::dark()));
        self.put(format_args!(
            r#"<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>"#
        ));
        self.text((MARGIN, 28.0), "title", "start", &self.plot.title);
        self.text((MARGIN, 45.0), "note", "start", &self.plot.note);
        self.axes();
        self.clip();
        for (index, series) in self.plot.series.iter().enumerate() {
            self.series(index, series);
        }
        self.put(format_args!("</g>"));
        self.legend();
        self.out.push_str("</svg>\n");
        self.out
    }

    fn axes(&mut self) {
        let left = self.x.from;
        let right = self.x.to;
        let bottom = self.y.from;
        let top = self.y.to;
        for (value, label) in self.y.ticks.clone() {
            let Some(y) = self.y.at(value) else { continue };
            self.put(format_args!(
                r#"<path class="grid" d="M{left:.1} {y:.1}H{right:.1}"/>"#
            ));
            self.text((left - 8.0, y + 4.0), "tick", "end", &label);
        }
        let categories = !self.plot.x.categories.is_empty();
        for (value, label) in self.x.ticks.clone() {
            let Some(x) = self.x.at(value) else { continue };
            if !categories {
                self.put(format_args!(
                    r#"<path class="grid" d="M{x:.1} {top:.1}V{bottom:.1}"/>"#
                ));
            }
            self.text(
                (x, bottom + 18.0),
                if categories { "name" } else { "tick" },
                "middle",
                &label,
            );
        }
        self.put(format_args!(
            r#"<path class="axis" d="M{left:.1} {bottom:.1}H{right:.1}"/>"#
        ));
        self.text(
            ((left + right) / 2.0, HEIGHT - 12.0),
            "name",
            "middle",
            &self.plot.x.title(),
        );
        self.text((MARGIN, top - 12.0), "name", "start", &self.plot.y.title());
    }

    /// Opens a group that is clipped to the frame.
    fn clip(&mut self) {
        let left = self.x.from - 5.0;
        let top = self.y.to - 5.0;
        let width = self.x.to - left + 5.0;
        let height = self.y.from - top + 1.0;
        self.put(format_args!(
            r#"<clipPath id="frame"><rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}"/></clipPath>"#
        ));
        self.put(format_args!(r#"<g clip-path="url(#frame)">"#));
    }

    fn series(&mut self, index: usize, series: &Series) {
        if series.style == Style::Bars {
            return self.bars(index, series);
        }
        // A value that cannot be drawn ends a run of pixels.
        let pixels = series.points.iter().map(|point| self.pixel(point));
        let mut runs: Vec<Vec<Pixel>> = vec![Vec::new()];
        for pixel in pixels {
            match (pixel, runs.last_mut()) {
                (Some(pixel), Some(run)) => run.push(pixel),
                (None, Some(run)) if !run.is_empty() => runs.push(Vec::new()),
                _ => {}
            }
        }
        runs.retain(|run| !run.is_empty());
        let few = series.points.len() <= 60;
        for run in runs {
            self.band(index, series.style, &run);
            let thin = thinned(&run);
            if series.style != Style::Marks {
                self.line(index, series.style, &thin);
            }
            if series.style == Style::Marks || (few && series.style == Style::Line) || run.len() == 1 {
                self.marks(index, &thin);
            }
        }
    }

    fn pixel(&self, point: &Point) -> Option<Pixel> {
        let x = self.x.at(point.x)?;
        let y = self.y.at(point.y)?;
        let spread = point
            .spread
            .and_then(|(low, high)| Some((self.y.at(low)?, self.y.at(high)?)));
        Some((x, y, spread))
    }

    fn line(&mut self, index: usize, style: Style, run: &[Pixel]) {
        let mut path = String::new();
        for (i, (x, y, _)) in run.iter().enumerate() {
            let _ = match (i, style) {
                (0, _) => write!(path, "M{x:.1} {y:.1}"),
                (_, Style::Step) => write!(path, "H{x:.1}V{y:.1}"),
                _ => write!(path, "L{x:.1} {y:.1}"),
            };
        }
        let dash = dash(index);
        self.put(format_args!(
            r#"<path class="line s{}"{dash} d="{path}"/>"#,
            index % STYLES
        ));
    }

    fn marks(&mut self, index: usize, run: &[Pixel]) {
        for (x, y, _) in run {
            self.put(format_args!(
                r#"<circle class="mark s{}" cx="{x:.1}" cy="{y:.1}" r="3"/>"#,
                index % STYLES
            ));
        }
    }

    /// Draws the spread of a run: a band, or whiskers around marks.
    fn band(&mut self, index: usize, style: Style, run: &[Pixel]) {
        let spreads: Vec<(f64, f64, f64)> = run
            .iter()
            .filter_map(|(x, _, spread)| spread.map(|(low, high)| (*x, low, high)))
            .collect();
        if style == Style::Marks {
            return spreads
                .iter()
                .for_each(|(x, low, high)| self.whisker(*x, *low, *high));
        }
        if spreads.len() < 2 {
            return;
        }
        let upper = spreads.iter().map(|(x, _, high)| (*x, *high));
        let lower = spreads.iter().rev().map(|(x, low, _)| (*x, *low));
        let mut path = String::new();
        for (i, (x, y)) in upper.chain(lower).enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
        }
        self.put(format_args!(
            r#"<path class="band s{}" d="{path}Z"/>"#,
            index % STYLES
        ));
    }

    fn whisker(&mut self, x: f64, low: f64, high: f64) {
        let left = x - 4.0;
        let right = x + 4.0;
        self.put(format_args!(
            r#"<path class="whisker" d="M{left:.1} {low:.1}H{right:.1}M{x:.1} {low:.1}V{high:.1}M{left:.1} {high:.1}H{right:.1}"/>"#
        ));
    }

    fn bars(&mut self, index: usize, series: &Series) {
        let groups = bar_series(&self.plot.series).max(1) as f64;
        let place = bar_series(&self.plot.series[..index]) as f64;
        // The bars of one x value take four fifths of the distance to the next.
        let group_width = self.bar_distance() * 0.8;
        let width = group_width / groups;
        let bottom = self.y.from;
        for point in &series.points {
            let Some((x, y, spread)) = self.pixel(point) else {
                continue;
            };
            let left = x - group_width / 2.0 + place * width;
            let zero = if self.y.scale == Scale::Log {
                bottom
            } else {
                self.y.at(0.0).unwrap_or(bottom).min(bottom)
            };
            let top = y.min(zero);
            let height = (zero - y).abs();
            let inner = (width - 2.0).max(1.0);
            self.put(format_args!(
                r#"<rect class="bar s{}" x="{left:.1}" y="{top:.1}" width="{inner:.1}" height="{height:.1}"/>"#,
                index % STYLES
            ));
            if let Some((low, high)) = spread {
                self.whisker(left + inner / 2.0, low, high);
            }
        }
    }

    /// Returns the smallest distance between bars of different x values, in pixels.
    fn bar_distance(&self) -> f64 {
        let bars = self
            .plot
            .series
            .iter()
            .filter(|series| series.style == Style::Bars);
        let mut places: Vec<f64> = bars
            .flat_map(|series| &series.points)
            .filter_map(|point| self.x.at(point.x))
            .collect();
        places.sort_by(f64::total_cmp);
        let gaps = places
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .filter(|gap| *gap > 0.5);
        gaps.fold(
            (self.x.to - self.x.from) / self.plot.x.categories.len().max(1) as f64,
            f64::min,
        )
    }

    fn legend(&mut self) {
        let mut y = if self.plot.note.is_empty() { 50.0 } else { 67.0 };
        for row in legend_rows(self.plot) {
            let mut x = MARGIN;
            for index in row {
                let series = &self.plot.series[index];
                let middle = y - 4.0;
                let end = x + 22.0;
                let style_index = index % STYLES;
                let dash = dash(index);
                match series.style {
                    Style::Bars => {
                        let top = y - 10.0;
                        self.put(format_args!(
                            r#"<rect class="bar s{style_index}" x="{x:.1}" y="{top:.1}" width="14" height="11"/>"#
                        ));
                    }
                    Style::Marks => self.marks(index, &[(x + 11.0, middle, None)]),
                    _ => self.put(format_args!(
                        r#"<path class="line s{style_index}"{dash} d="M{x:.1} {middle:.1}H{end:.1}"/>"#
                    )),
                }
                self.text((x + 28.0, y), "name", "start", &series.name);
                x += entry_width(series);
            }
            y += 19.0;
        }
    }
}

/// Counts the series that are drawn as bars.
fn bar_series(series: &[Series]) -> usize {
    series.iter().filter(|series| series.style == Style::Bars).count()
}

fn dash(index: usize) -> String {
    match SERIES[index % STYLES].dash {
        "" => String::new(),
        pattern => format!(r#" stroke-dasharray="{pattern}""#),
    }
}

fn entry_width(series: &Series) -> f64 {
    28.0 + series.name.chars().count() as f64 * CHARACTER + 18.0
}

/// Distributes the legend's entries over rows. A plot of one series has no legend.
fn legend_rows(plot: &Plot) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = Vec::new();
    if plot.series.len() < 2 {
        return rows;
    }
    let mut left = 0.0;
    for (index, series) in plot.series.iter().enumerate() {
        let width = entry_width(series);
        match rows.last_mut() {
            Some(row) if width <= left => row.push(index),
            _ => {
                rows.push(vec![index]);
                left = WIDTH - 2.0 * MARGIN;
            }
        }
        left -= width;
    }
    rows
}

/// If there are more points than pixels, keeps the first, smallest, largest and last of each pixel column.
fn thinned(run: &[Pixel]) -> Vec<Pixel> {
    if run.len() as f64 <= 2.0 * WIDTH {
        return run.to_vec();
    }
    let mut out = Vec::new();
    for column in run.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        let indices = 0..column.len();
        let smallest = indices
            .clone()
            .min_by(|a, b| column[*a].1.total_cmp(&column[*b].1))
            .unwrap_or(0);
        let largest = indices
            .max_by(|a, b| column[*a].1.total_cmp(&column[*b].1))
            .unwrap_or(0);
        let mut kept = [0, smallest, largest, column.len() - 1].to_vec();
        kept.sort_unstable();
        kept.dedup();
        out.extend(kept.into_iter().map(|index| column[index]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[(f64, String)]) -> Vec<&str> {
        ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    fn mapped(scale: Scale, values: &[f64]) -> Mapped {
        Mapped::new(
            &Axis {
                scale,
                ..Axis::new("", "")
            },
            values,
            false,
            6,
        )
    }

    #[test]
    fn linear_ticks_are_round_and_cover_the_values() {
        let cases: [(&[f64], &[&str]); 9] = [
            (&[0.0, 9.3], &["0", "2", "4", "6", "8", "10"]),
            (&[3.0, 97.0], &["0", "20", "40", "60", "80", "100"]),
            (&[0.0, 0.23], &["0.00", "0.05", "0.10", "0.15", "0.20", "0.25"]),
            (
                &[1001.0, 1006.0],
                &["1,001", "1,002", "1,003", "1,004", "1,005", "1,006"],
            ),
            (&[-4.0, 4.0], &["-4", "-2", "0", "2", "4"]),
            (
                &[0.0, 12_000.0],
                &["0", "2,000", "4,000", "6,000", "8,000", "10,000", "12,000"],
            ),
            (
                &[0.0, 230_000.0],
                &["0", "50 k", "100 k", "150 k", "200 k", "250 k"],
            ),
            (&[0.0, 2.4e6], &["0", "0.5 M", "1 M", "1.5 M", "2 M", "2.5 M"]),
            (&[], &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ];
        for (values, expected) in cases {
            assert_eq!(
                labels(&mapped(Scale::Linear, values).ticks),
                expected,
                "{values:?}"
            );
        }
        assert_eq!(
            labels(&mapped(Scale::Linear, &[7.0]).ticks),
            ["2", "4", "6", "8", "10", "12"]
        );
    }

    #[test]
    fn log_ticks_are_decades_and_parts_of_few_decades() {
        let cases: [(&[f64], &[&str]); 5] = [
            (&[1.0, 1e5], &["1", "10", "100", "1 k", "10 k", "100 k"]),
            (&[3.0, 150.0], &["2", "5", "10", "20", "50", "100", "200"]),
            (&[0.02, 0.4], &["0.02", "0.05", "0.1", "0.2", "0.5"]),
            (
                &[1e-6, 1e9],
                &["1e-6", "1e-4", "0.01", "1", "100", "10 k", "1 M", "100 M", "10 G"],
            ),
            (&[5.0], &["5", "10"]),
        ];
        for (values, expected) in cases {
            assert_eq!(labels(&mapped(Scale::Log, values).ticks), expected, "{values:?}");
        }
    }

    #[test]
    fn values_map_to_pixels() {
        let mut axis = mapped(Scale::Linear, &[0.0, 10.0]);
        (axis.from, axis.to) = (100.0, 200.0);
        assert_eq!(
            [0.0, 2.5, 10.0].map(|value| axis.at(value)),
            [Some(100.0), Some(125.0), Some(200.0)]
        );
        assert_eq!(axis.at(f64::NAN), None);
        let mut axis = mapped(Scale::Log, &[1.0, 10_000.0]);
        (axis.from, axis.to) = (0.0, 100.0);
        assert_eq!(axis.at(100.0), Some(50.0));
        assert_eq!([0.0, -1.0].map(|value| axis.at(value)), [None, None]);
    }

    /// Tags are closed in the order in which they were opened, and text holds no bare `<` or `&`.
    fn check_well_formed(svg: &str) {
        let mut open = Vec::new();
        for (text, tag) in svg
            .split('<')
            .skip(1)
            .map(|part| part.split_once('>').unwrap())
            .map(|(tag, text)| (text, tag))
        {
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "{tag}"),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split(' ').next().unwrap()),
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            for entity in text.split('&').skip(1) {
                let known = ["amp;", "lt;", "gt;", "quot;"]
                    .iter()
                    .any(|name| entity.starts_with(name));
                assert!(known, "{entity}");
            }
        }
        assert_eq!(open, Vec::<&str>::new());
        assert!(
            !svg.contains("NaN") && !svg.contains("inf"),
            "a value is not a number"
        );
    }

    fn count(svg: &str, what: &str) -> usize {
        svg.matches(what).count()
    }

    fn plot(series: Vec<Series>) -> Plot {
        Plot {
            title: "A < B & \"C\"".into(),
            x: Axis::new("Load", "%"),
            y: Axis::new("Rate", "1/s"),
            series,
            ..Plot::default()
        }
    }

    #[test]
    fn a_line_is_drawn_where_its_points_are() {
        let svg = plot(vec![Series::new("one", Style::Line, [(0.0, 0.0), (10.0, 10.0)])]).to_svg();
        check_well_formed(&svg);
        // Labels of two characters: the frame begins at 20 + 13.4 + 8; without legend and note it reaches from 64 to 390.
        assert!(svg.contains("d=\"M41.4 390.0L732.0 64.0\""), "{svg}");
        assert_eq!((count(&svg, "class=\"line"), count(&svg, "<circle")), (1, 2));
        assert!(
            svg.contains("A &lt; B &amp; &quot;C&quot;")
                && svg.contains("Load (%)")
                && svg.contains("Rate (1/s)")
        );
    }

    #[test]
    fn a_step_keeps_its_value_until_the_next() {
        let svg = plot(vec![Series::new(
            "one",
            Style::Step,
            [(0.0, 0.0), (5.0, 10.0), (10.0, 5.0)],
        )])
        .to_svg();
        assert!(svg.contains("d=\"M41.4 390.0H386.7V64.0H732.0V227.0\""), "{svg}");
    }

    #[test]
    fn undrawable_values_leave_a_gap() {
        let points = [
            (1.0, 1.0),
            (2.0, 2.0),
            (3.0, 0.0),
            (4.0, f64::NAN),
            (5.0, 5.0),
            (f64::INFINITY, 1.0),
            (7.0, 7.0),
        ];
        let mut plot = plot(vec![Series::new("one", Style::Line, points)]);
        plot.y = plot.y.log();
        let svg = plot.to_svg();
        check_well_formed(&svg);
        assert_eq!((count(&svg, "class=\"line"), count(&svg, "<circle")), (3, 4));
    }

    #[test]
    fn spreads_are_bands_of_lines_and_whiskers_of_bars() {
        let points = |shift: f64| -> Vec<Point> {
            (0..3)
                .map(f64::from)
                .map(|x| Point {
                    x,
                    y: x + shift,
                    spread: Some((x + shift - 0.5, x + shift + 0.5)),
                })
                .collect()
        };
        let series = |style| Series {
            name: "one".into(),
            style,
            points: points(1.0),
        };
        let svg = plot(vec![series(Style::Line), series(Style::Marks)]).to_svg();
        check_well_formed(&svg);
        assert_eq!(
            (count(&svg, "class=\"band"), count(&svg, "class=\"whisker\"")),
            (1, 3)
        );
        let mut plot = plot(vec![series(Style::Bars), series(Style::Bars)]);
        plot.x.categories = ["noop", "per-hop", "per-flow"].map(String::from).to_vec();
        let svg = plot.to_svg();
        check_well_formed(&svg);
        // Six bars and two entries of the legend.
        assert_eq!(
            (count(&svg, "<rect class=\"bar"), count(&svg, "class=\"whisker\"")),
            (8, 6)
        );
        assert!(svg.contains(">per-hop</text>"));
    }

    #[test]
    fn an_empty_plot_is_valid_svg() {
        for plot in [
            Plot::default(),
            plot(Vec::new()),
            plot(vec![Series::new("none", Style::Step, [])]),
        ] {
            check_well_formed(&plot.to_svg());
        }
    }

    #[test]
    fn a_long_series_is_thinned_but_keeps_its_peaks() {
        let wave = |i: u32| match i {
            77_777 => 100.0,
            140_000 => -50.0,
            _ => f64::from(i % 7),
        };
        let points = (0..200_000_u32).map(|i| (f64::from(i), wave(i)));
        let svg = plot(vec![Series::new("queue", Style::Step, points)]).to_svg();
        assert!(svg.len() < 100_000, "{} bytes", svg.len());
        // The peak of 100 reaches the top of the frame, the trough of -50 its bottom.
        let line = svg.lines().find(|line| line.contains("class=\"line")).unwrap();
        assert!(
            line.contains("V64.0") && line.contains("V390.0"),
            "a peak is gone"
        );
    }

    #[test]
    fn a_long_legend_has_rows_and_the_frame_makes_room() {
        let series = |i: u32| {
            Series::new(
                &format!("a rather long name {i}"),
                Style::Line,
                [(0.0, f64::from(i))],
            )
        };
        let plot = plot((0..9).map(series).collect());
        let rows = legend_rows(&plot);
        assert_eq!(rows.iter().map(Vec::len).sum::<usize>(), 9);
        assert!(
            rows.len() == 3 && rows.iter().all(|row| row.len() <= 4),
            "{rows:?}"
        );
        assert_eq!(Drawing::new(&plot).y.to, 34.0 + 3.0 * 19.0 + 30.0);
    }
}
