//! The upstream of a translator that serves one section of a network: sends the sketches that it has merged to the translator
//! of the whole network, as a DTA reporter (`[translator.upstream]`).

use std::{os::fd::BorrowedFd, slice};

use dataplane::dta::{self, Outbox, Reporter, SendError, SendOptions, Spread};
use serde::{Deserialize, Serialize};
use translator::{Section, Translator, Unsent};
use wire::dta::{Control, Priority, control::Body};

use super::settings::UpstreamSettings;
use runtime::reporter::{Sockets, first_sequence};
use terminal::CliError;

/// Interval between attempts to reach the other translator, ns.
const CHECK_INTERVAL: u64 = 1_000_000_000;

/// A section with its reporter and sockets.
#[derive(Debug)]
pub(super) struct Upstream {
    section: Section,
    reporter: Reporter,
    id: u32,
    options: SendOptions,
    outbox: Outbox,
    sockets: Sockets,
    to: String,
    next_check: u64,
}

impl Upstream {
    /// Opens the sockets. `now` is the system time, ns.
    ///
    /// # Errors
    /// A port is in use, or the settings are unusable.
    pub(super) fn open(settings: &UpstreamSettings, now: u64) -> Result<Self, CliError> {
        let to = settings.to.ok_or_else(|| error("no address"))?;
        let sockets = Sockets::open(slice::from_ref(&to), settings.control).map_err(error)?;
        let longest = usize::from(settings.longest);
        let config = dta::Config {
            reporter: settings.reporter,
            spread: Spread::even(1),
            max_report_len: longest,
            max_essential_len: if settings.essential { longest } else { 0 },
            first_sequence: first_sequence(now),
            ..dta::Config::default()
        };
        let reporter = Reporter::new(config).map_err(error)?;
        let options = SendOptions {
            priority: Priority::Medium,
            essential: settings.essential,
            immediate: false,
        };
        Ok(Self {
            section: Section::new(settings.config()),
            reporter,
            id: settings.reporter,
            options,
            outbox: Outbox::default(),
            sockets,
            to: to.to_string(),
            next_check: 0,
        })
    }

    /// Processes control messages, and sends columns that are due.
    pub(super) fn poll(&mut self, now: u64, translator: &Translator) {
        if now >= self.next_check {
            self.next_check = now + CHECK_INTERVAL;
            self.sockets.check();
        }
        self.sockets
            .receive(0, |collector, payload| match Control::parse(payload) {
                Ok(Control {
                    reporter,
                    body:
                        Body::SketchNack {
                            sketch,
                            epoch,
                            column,
                        },
                    ..
                }) if reporter == self.id => {
                    self.section.nack(sketch, epoch, column);
                }
                _ => self.reporter.control(collector, payload, now, &mut self.outbox),
            });
        self.section.tick(now, translator, |operation| {
            self.reporter
                .send(operation, self.options, now, &mut self.outbox)
                .map_err(|error| match error {
                    SendError::Suppressed => Unsent::Suppressed,
                    SendError::NoRoom => Unsent::NoRoom,
                })
        });
        self.reporter.tick(now, &mut self.outbox);
        self.sockets.send(&mut self.outbox);
    }

    /// Returns the socket that receives control messages.
    pub(super) fn control(&self) -> BorrowedFd<'_> {
        self.sockets.control()
    }

    /// Returns the time of the next timer, ns, or `None` if none is pending.
    pub(super) fn deadline(&self) -> Option<u64> {
        [self.section.next(), self.reporter.next()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn view(&self) -> UpstreamView {
        let stats = self.section.stats();
        UpstreamView {
            to: self.to.clone(),
            reporter: self.id,
            epochs: stats.epochs,
            columns: stats.columns,
            retransmitted: stats.retransmitted,
            expired: stats.expired,
            suppressed: stats.suppressed,
            nacks: stats.nacks + stats.stale + stats.limited,
            sent: self.sockets.stats.sent,
            unsent: self.sockets.stats.lost,
        }
    }
}

fn error(error: impl std::fmt::Display) -> CliError {
    CliError::new(format!("[translator.upstream]: {error}"))
}

/// The sketches of a section, sent to another translator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "TranslatorUpstream"))]
pub struct UpstreamView {
    /// Address of the other translator.
    pub to: String,
    /// Reporter ID that the next translator sees.
    pub reporter: u32,
    /// Epochs of which every column was sent.
    pub epochs: u64,
    /// Columns sent for the first time.
    pub columns: u64,
    /// Columns sent again because of a NACK.
    pub retransmitted: u64,
    /// Columns not sent before their buffer was needed for another epoch.
    pub expired: u64,
    /// Columns not sent because of congestion, or because they are longer than a report.
    pub suppressed: u64,
    /// NACKs that requested columns again.
    pub nacks: u64,
    /// Datagrams sent to the next translator.
    pub sent: u64,
    /// Datagrams that the kernel refused.
    pub unsent: u64,
}
