//! Status and counters of an input, for the API, metrics and logs. They continue when the input is reopened.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use nic::{receive::Counters, source::Stats};

use runtime::lock::lock;

/// The setup of an input, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// The input's name: `udp://10.0.0.1:32766`, `xdp://eth1`.
    pub listen: String,
    /// The bound address of a socket.
    pub address: Option<SocketAddr>,
    /// The receive path: the `kind` of its sources.
    pub kind: &'static str,
    /// Effective receive buffer, bytes; 0 without one.
    pub receive_buffer: u64,
    /// Facts about an interface.
    pub interface: Option<Interface>,
}

impl Setup {
    /// Describes the receive path, and why no faster one is in use, as part of a sentence.
    pub fn sentence(&self) -> String {
        let Some(interface) = &self.interface else {
            return self.kind.to_owned();
        };
        let mut text = self.kind.to_owned();
        // 0 queues: the network stack reads them.
        if interface.queues > 0 {
            let queues = terminal::units::counted(interface.queues.into(), "queue");
            text.push_str(&format!(" on {queues}"));
        }
        for (rx_path, reason) in &interface.tried {
            text.push_str(&format!("; not {rx_path}: {reason}"));
        }
        text
    }
}

/// The receive path of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name, such as `eth1`.
    pub name: String,
    /// Number of queues that are read.
    pub queues: u32,
    /// Receive paths tried before, and why they failed.
    pub tried: Vec<(&'static str, String)>,
}

/// The statistics of an input, shared by its readers and the display.
#[derive(Debug)]
pub struct InputGauge {
    watched: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    setup: Setup,
    /// The reason the input is closed, or `None` while it is open.
    down: Option<String>,
    /// Number of times it was reopened.
    reopened: u64,
    /// Totals of earlier openings.
    before: (Stats, Counters),
    /// Counters kept outside its sources, since it was opened.
    counters: Counters,
    meters: Vec<Arc<Meter>>,
}

/// A slot for one thread's counters.
#[derive(Debug, Default)]
pub(super) struct Meter {
    stats: Mutex<Stats>,
    failed: Mutex<Option<String>>,
}

impl Meter {
    /// Replaces the counters with newer ones.
    pub(super) fn note(&self, stats: Stats) {
        *lock(&self.stats) = stats;
    }

    /// Records the error that ended the thread.
    pub(super) fn fail(&self, reason: String) {
        *lock(&self.failed) = Some(reason);
    }
}

impl InputGauge {
    /// Creates the gauge. `watched`: the input's threads end when it fails, and its supervisor reopens it.
    pub(super) fn new(setup: &Setup, watched: bool) -> Self {
        let state = State {
            setup: setup.clone(),
            down: None,
            reopened: 0,
            before: Default::default(),
            counters: Counters::default(),
            meters: Vec::new(),
        };
        Self {
            watched,
            state: Mutex::new(state),
        }
    }

    /// Returns whether a supervisor reopens the input.
    pub(super) fn is_watched(&self) -> bool {
        self.watched
    }

    /// Adds a slot for another thread's statistics.
    pub(super) fn meter(&self) -> Arc<Meter> {
        let meter = Arc::new(Meter::default());
        lock(&self.state).meters.push(Arc::clone(&meter));
        meter
    }

    /// Returns the error that ended a thread, if any.
    pub(super) fn failure(&self) -> Option<String> {
        lock(&self.state)
            .meters
            .iter()
            .find_map(|meter| lock(&meter.failed).clone())
    }

    /// Records that the input's threads have ended, and the reason. Keeps their counters.
    pub(super) fn closed(&self, why: String) {
        let state = &mut *lock(&self.state);
        for meter in state.meters.drain(..) {
            state.before.0 += *lock(&meter.stats);
        }
        state.before.1 = sum(state.before.1, std::mem::take(&mut state.counters));
        state.down = Some(why);
    }

    /// Records why the input could not be reopened.
    pub(super) fn still_closed(&self, why: String) {
        lock(&self.state).down = Some(why);
    }

    /// Records that the input is open again, with this setup.
    pub(super) fn opened(&self, setup: Setup) {
        let state = &mut *lock(&self.state);
        state.setup = setup;
        state.down = None;
        state.reopened += 1;
    }

    /// Returns the input's statistics, as of the last tick.
    pub fn stats(&self) -> Stats {
        let state = lock(&self.state);
        let mut sum = state.before.0;
        for meter in &state.meters {
            sum += *lock(&meter.stats);
        }
        sum
    }

    /// Returns the counters kept outside its sources, as of the last second.
    pub fn counters(&self) -> Counters {
        let state = lock(&self.state);
        sum(state.before.1, state.counters)
    }

    /// Replaces the counters kept outside its sources since it was opened.
    pub(super) fn note(&self, counters: Counters) {
        lock(&self.state).counters = counters;
    }

    /// Returns the current setup, or the last one if the input is closed.
    pub fn setup(&self) -> Setup {
        lock(&self.state).setup.clone()
    }

    /// Returns the reason the input is closed, if it is, and the number of times it was reopened.
    pub fn failure_state(&self) -> (Option<String>, u64) {
        let state = lock(&self.state);
        (state.down.clone(), state.reopened)
    }
}

fn sum(first: Counters, other: Counters) -> Counters {
    Counters {
        redirected: first.redirected + other.redirected,
        passed_fragment: first.passed_fragment + other.passed_fragment,
        passed_too_long: first.passed_too_long + other.passed_too_long,
        passed_unusual: first.passed_unusual + other.passed_unusual,
        passed_no_socket: first.passed_no_socket + other.passed_no_socket,
        device_dropped: first.device_dropped + other.device_dropped,
    }
}
