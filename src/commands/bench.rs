//! The parts of this program that `hopwise bench` measures as they run in production.

mod workers;

use std::path::Path;

use bench::{Processed, Receive, Switch, Totals};
use collector::{Collector, Datagram};
use nic::{frames::PollFds, source::Packet};
use terminal::{CliError, progress::Progress};

use collect_role::capture::{self, Account};
use collect_role::datagram::{AggregatePorts, each_chunk};
use collect_role::replay::{Options, Replay, ReplayOutput, Speed};
use config::Settings;
use switch_role::role::Forwarder;

/// This program.
#[derive(Debug)]
pub(crate) struct Program;

impl bench::Program for Program {
    fn each_chunk(&self, packets: &[Packet<'_>], process: &mut dyn FnMut(&[Datagram<'_>])) {
        each_chunk(packets, 0, &AggregatePorts::default(), |_, chunk| process(chunk));
    }

    fn replay(&self, file: &Path, config: collector::Config) -> Result<u64, CliError> {
        let options = Options {
            speed: Speed::Max,
            ports: vec![32_766],
            aggregate_ports: AggregatePorts::default(),
        };
        let mut replay = Replay::new(config, Discarded, options);
        let mut progress = Progress::new("", "frames", None).silenced(true);
        capture::bursts(file, &mut Account::default(), &mut progress, |account, frames| {
            replay.add(frames, account);
        })?;
        Ok(replay.finish().collector.stats().reports)
    }

    fn process(&self, collectors: Vec<Collector>, receive: Receive<'_>) -> Result<Processed, CliError> {
        workers::process(collectors, receive)
    }

    fn open_switch(&self, config: &str) -> Result<Box<dyn Switch>, CliError> {
        let settings =
            Settings::parse(config, "the switch").map_err(|error| CliError::new(error.to_string()))?;
        let settings = settings.switch.ok_or_else(|| CliError::new("no switch"))?;
        Ok(Box::new(MeasuredSwitch(Forwarder::open(settings, None)?)))
    }
}

/// The output of a replay of which only the speed counts.
struct Discarded;

impl collector::Output for Discarded {}

impl ReplayOutput for Discarded {}

struct MeasuredSwitch(Forwarder);

impl Switch for MeasuredSwitch {
    fn poll(&mut self) -> bool {
        self.0.poll()
    }

    fn wait(&self, poll_fds: &mut PollFds) -> bool {
        self.0.sleep(None, poll_fds)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn totals(&mut self) -> Totals {
        let (stats, queued) = self.0.totals();
        let (received, sent, dropped) = (stats.received(), stats.sent(), stats.drops());
        let unaccounted = (received + stats.originated).abs_diff(sent + stats.consumed + dropped + queued);
        Totals {
            received,
            sent,
            dropped,
            unaccounted,
            ring_full: self.0.ring_full(),
        }
    }
}
