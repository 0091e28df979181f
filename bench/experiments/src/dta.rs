//! Experiments `dta-…`: repeat the measurements of "Direct Telemetry Access" (DTA) with hopwise's translator, software RoCEv2
//! responder and readers. Each module is named after its experiment and says which figure or table of the paper it repeats.

use super::{page::linear, settings::Parameter};
use crate::svg::Axis;

mod answers;
mod append;
mod breakdown;
mod cpu;
mod key_write;
mod longevity;
mod polling;
mod polling_parts;
mod query;
mod report_rate;
mod reports;
mod speed;

pub(super) use self::{
    answers::observe as observe_answers, append::observe as observe_append,
    breakdown::observe as observe_breakdown, cpu::observe as observe_cpu,
    key_write::observe as observe_key_write, longevity::observe as observe_longevity,
    polling::observe as observe_polling, query::observe as observe_query,
    report_rate::observe as observe_report_rate, reports::observe as observe_reports,
};
pub(super) use self::{
    answers::run as answers, append::run as append, breakdown::PARAMETERS as BREAKDOWN,
    breakdown::run as breakdown, cpu::run as cpu, key_write::run as key_write, longevity::run as longevity,
    polling::run as polling, query::run as query, report_rate::PARAMETERS as REPORT_RATE,
    report_rate::run as report_rate, reports::run as reports,
};

/// Parameters of the measured experiments.
pub(super) const TIMED: &[Parameter] = &[Parameter::runs(), Parameter::span(&[200])];
/// Parameters of the experiment `dta-answers`.
pub(super) const ANSWERS: &[Parameter] = &[
    Parameter::seed(),
    Parameter::scaled("runs", [&[10], &[2], &[1]], 1..=1_000)
        .help("times that the store is filled, each with its own keys"),
];

/// Returns the axis for shares of answered keys, 0 to 100 %.
fn percent_axis() -> Axis {
    Axis {
        range: Some((0.0, 100.0)),
        ..linear("keys answered (%)")
    }
}

/// Formats a share: `0.625` as `62.5 %`.
fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
