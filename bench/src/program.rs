//! The parts of the program that are measured as they run in production. The program passes them in, so that this crate does
//! not depend on it.

use std::{fmt::Debug, path::Path};

use collector::{Collector, Datagram};
use nic::{frames::PollFds, source::Packet};
use terminal::CliError;

/// Parts of the program that the cases measure.
pub trait Program: Debug + Sync {
    /// Passes packets to `process` as the collector's datagrams, a few at a time, as an input does.
    fn each_chunk(&self, packets: &[Packet<'_>], process: &mut dyn FnMut(&[Datagram<'_>]));

    /// Replays a capture of reports at full speed, as `hopwise replay` does; the number of reports in it.
    ///
    /// # Errors
    /// The file cannot be read.
    fn replay(&self, file: &Path, config: collector::Config) -> Result<u64, CliError>;

    /// Processes the datagrams of one input with one worker for each of `collectors`. `receive` runs as the thread of the input: it
    /// passes its bursts to the function that it gets.
    ///
    /// # Errors
    /// A thread cannot be started, or panicked.
    fn process(&self, collectors: Vec<Collector>, receive: Receive<'_>) -> Result<Processed, CliError>;

    /// Opens a switch in the network namespace of this thread, from the text of a configuration file.
    ///
    /// # Errors
    /// The configuration is invalid, or an interface cannot be opened.
    fn open_switch(&self, config: &str) -> Result<Box<dyn Switch>, CliError>;
}

/// Receives bursts and passes them on.
pub type Receive<'r> = &'r mut (dyn FnMut(&mut dyn FnMut(&[Packet<'_>])) + Send);

/// Counters and CPU time of [`Program::process`].
#[derive(Clone, Default, Debug)]
pub struct Processed {
    /// Datagrams that the workers handled.
    pub handled: u64,
    /// Datagrams that were dropped before a worker.
    pub dropped: u64,
    /// CPU time of each worker's thread, ns; none where the thread of the input does the work.
    pub workers_ns: Vec<u64>,
}

/// A switch of the program.
pub trait Switch: Send {
    /// Receives, forwards and sends all pending frames. Returns false if there were none.
    fn poll(&mut self) -> bool;
    /// Sleeps until a frame arrives or a timer is due. Returns true without sleeping if the timer is due too soon to sleep.
    fn wait(&self, poll_fds: &mut PollFds) -> bool;
    /// True if the switch has no queued frame.
    fn is_empty(&self) -> bool;
    /// The counters so far.
    fn totals(&mut self) -> Totals;
}

/// Frame counters of a switch.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    /// Number of received frames.
    pub received: u64,
    /// Number of sent frames.
    pub sent: u64,
    /// Frames dropped, for any reason.
    pub dropped: u64,
    /// Received frames that no other counter accounts for.
    pub unaccounted: u64,
    /// Frames dropped because the ring of the receiving socket was full.
    pub ring_full: u64,
}
