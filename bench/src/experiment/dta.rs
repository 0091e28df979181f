//! The measurements of "Direct Telemetry Access", repeated with hopwise's translator, responder and readers.

mod answers;
mod append;
mod cpu;
mod key_write;
mod longevity;
mod polling;
mod query;
mod reports;
mod speed;
mod timing;

pub(super) use self::{
    answers::run as answers, append::run as append, cpu::run as cpu, key_write::run as key_write,
    longevity::run as longevity, polling::run as polling, query::run as query, reports::run as reports,
};

/// `0.625` as `62.5 %`.
fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
