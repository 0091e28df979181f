//! The DTA reporter role: reads reports of this machine's programs as text from a local socket, and sends them to translators
//! through one DTA reporter. One thread does everything, and publishes its counters.

mod listener;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod view;

use std::{
    net::SocketAddr,
    os::fd::AsFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dataplane::dta::{Config, Outbox, Reporter, Retransmission, SendError, SendOptions};
use dta::report_text::{LineError, MAX_LINE, ReportLine};
use nic::frames::{self, PollFds};

use ::settings::values::as_nanoseconds;
use ::view::{NamedCounts, reporter_collectors};
use listener::Listener;
use runtime::control::{Control, StoppableThread};
use runtime::lock::lock;
use runtime::reporter::{Sockets, first_sequence};
use settings::ReporterSettings;
use terminal::CliError;
use view::ReporterView;

/// Maximum number of program datagrams between two reads of the control socket. The outbox has room for all of them.
const BURST: usize = 256;
/// Maximum number of bursts read at the stop: more than a socket's default buffer holds.
const LAST_BURSTS: usize = 16;
/// Longest sleep, ns, which bounds the delay of a stop and the age of the published counters.
const SLEEP: u64 = 50_000_000;
/// Minimum interval between two ticks of the reporter, ns.
const TICK: u64 = 200_000;
/// Interval of publications, ns.
const PUBLISH: u64 = 50_000_000;
/// Interval between attempts to reach collectors without a route, ns.
const CHECK_INTERVAL: u64 = 1_000_000_000;
/// Longest essential report, bytes. A line of [`MAX_LINE`] bytes yields a shorter report.
const LONGEST: usize = 1400;

/// A reporter with its sockets open, before its thread starts.
#[derive(Debug)]
pub struct Ready {
    worker: Worker,
}

/// The handle of the running reporter role.
#[derive(Debug)]
pub struct Role {
    shared: Handle,
    thread: StoppableThread,
}

/// The published counters, for the API.
pub type Handle = Arc<Mutex<ReporterView>>;

/// Returns the last published counters.
pub fn view(handle: &Handle) -> ReporterView {
    lock(handle).clone()
}

impl Ready {
    /// Opens the sockets.
    ///
    /// # Errors
    /// A socket is in use, or the settings are invalid.
    pub fn open(settings: &ReporterSettings) -> Result<Self, CliError> {
        Worker::open(settings).map(|worker| Self { worker })
    }

    /// Starts the reporter's thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(self, control: &Control) -> Result<Role, CliError> {
        let mut worker = self.worker;
        let shared = Arc::new(Mutex::new(worker.view()));
        let published = Arc::clone(&shared);
        let thread = control.spawn_stoppable("reporter", move |stop| worker.work(&stop, &published))?;
        Ok(Role { shared, thread })
    }
}

impl Role {
    /// Returns the published counters, for the API.
    pub fn handle(&self) -> Handle {
        Arc::clone(&self.shared)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.thread.stop();
        let ReporterView { received, sent, .. } = view(&self.shared);
        tracing::info!(received, sent, "the DTA reporter stopped");
    }
}

/// State of the reporter's thread.
#[derive(Debug)]
struct Worker {
    listen: String,
    listener: Listener,
    collectors: Vec<SocketAddr>,
    sockets: Sockets,
    reporter: Reporter,
    id: u32,
    outbox: Outbox,
    next_tick: u64,
    next_check: u64,
    counts: Counts,
}

/// Counts of datagrams from programs, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    received: u64,
    refused: [u64; LineError::ALL.len()],
    suppressed: u64,
    queue_full: u64,
    /// Failed attempts to receive from the socket.
    failed: u64,
}

impl Worker {
    fn open(settings: &ReporterSettings) -> Result<Self, CliError> {
        let (collectors, spread) = settings.destinations().map_err(error)?;
        let sockets = Sockets::open(&collectors, settings.control).map_err(error)?;
        let config = Config {
            reporter: settings.id,
            spread,
            retransmission: Retransmission {
                probe: as_nanoseconds(settings.probe),
                ..Retransmission::default()
            },
            max_essential_len: LONGEST,
            first_sequence: first_sequence(nic::time::now()),
            ..Config::default()
        };
        let reporter = Reporter::new(config).map_err(error)?;
        let listener = Listener::open(&settings.listen)?;
        Ok(Self {
            listen: listener.address().unwrap_or_else(|| settings.listen.to_string()),
            listener,
            collectors,
            sockets,
            reporter,
            id: settings.id,
            outbox: Outbox::default(),
            next_tick: 0,
            next_check: 0,
            counts: Counts::default(),
        })
    }

    fn work(&mut self, stop: &AtomicBool, shared: &Mutex<ReporterView>) {
        let mut poll_fds = PollFds::default();
        let mut next = 0;
        while !stop.load(Ordering::Relaxed) {
            let descriptors = [self.listener.as_fd(), self.sockets.control()];
            let timeout = Duration::from_nanos(self.timeout());
            if frames::wait(descriptors.into_iter(), &mut poll_fds, timeout).is_err() {
                // A failed poll means that memory is short; avoid a tight loop.
                std::thread::sleep(Duration::from_millis(10));
            }
            let now = nic::time::monotonic();
            self.poll(now);
            if now >= next {
                next = now + PUBLISH;
                *lock(shared) = self.view();
            }
        }
        // Send what programs had sent before the stop, as far as the socket's buffer holds it.
        for _ in 0..LAST_BURSTS {
            let before = self.counts.received;
            self.poll(nic::time::monotonic());
            if self.counts.received == before {
                break;
            }
        }
        *lock(shared) = self.view();
    }

    /// Returns the time until the reporter's next timer, ns.
    fn timeout(&self) -> u64 {
        let next = self
            .reporter
            .next()
            .map_or(u64::MAX, |next| next.max(self.next_tick));
        next.saturating_sub(nic::time::monotonic()).min(SLEEP)
    }

    /// Processes a burst of reports and control messages, and runs timers.
    fn poll(&mut self, now: u64) {
        if now >= self.next_check {
            self.next_check = now + CHECK_INTERVAL;
            self.sockets.check();
        }
        let Self {
            sockets,
            reporter,
            outbox,
            ..
        } = self;
        sockets.receive(0, |collector, payload| {
            reporter.control(collector, payload, now, outbox)
        });
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            reporter.tick(now, outbox);
        }
        // Empty the outbox before the burst, so that retransmissions do not use up the space for new reports.
        sockets.send(outbox);
        self.receive_burst(now);
        self.sockets.send(&mut self.outbox);
    }

    fn receive_burst(&mut self, now: u64) {
        // One byte more than a line may have, so that longer lines are detected.
        let mut line = [0; MAX_LINE + 1];
        for _ in 0..BURST {
            match self.listener.recv(&mut line) {
                Ok(Some(len)) => self.process_line(&line[..len], now),
                Ok(None) => return,
                Err(_) => {
                    self.counts.failed += 1;
                    return;
                }
            }
        }
    }

    /// Sends the report of a line, or counts the reason for not sending it.
    fn process_line(&mut self, line: &[u8], now: u64) {
        self.counts.received += 1;
        let report = match ReportLine::parse(line) {
            Ok(report) => report,
            Err(reason) => {
                self.counts.refused[reason as usize] += 1;
                return;
            }
        };
        let ReportLine {
            priority,
            essential,
            immediate,
            ..
        } = report;
        let options = SendOptions {
            priority,
            essential,
            immediate,
        };
        match self
            .reporter
            .send(&report.operation(), options, now, &mut self.outbox)
        {
            Ok(()) => {}
            Err(SendError::Suppressed) => self.counts.suppressed += 1,
            Err(SendError::NoRoom) => self.counts.queue_full += 1,
        }
    }

    fn view(&self) -> ReporterView {
        let stats = self.reporter.stats();
        let sockets = self.sockets.stats;
        let counts = self.counts;
        let refused = LineError::ALL.map(|reason| (reason.name(), counts.refused[reason as usize]));
        ReporterView {
            id: self.id,
            listen: self.listen.clone(),
            control: self.sockets.control_address().to_string(),
            received: counts.received,
            refused: NamedCounts::nonzero(refused),
            suppressed: counts.suppressed,
            queue_full: counts.queue_full,
            receive_errors: counts.failed,
            reports: stats.reports,
            sent: sockets.sent,
            unsent: sockets.lost,
            controls: stats.controls,
            controls_refused: stats.bad_controls + stats.misdirected + sockets.unknown_senders,
            collectors: reporter_collectors(&self.collectors, &self.reporter, nic::time::monotonic()),
        }
    }
}

fn error(error: impl std::fmt::Display) -> CliError {
    CliError::new(format!("[reporter]: {error}"))
}
