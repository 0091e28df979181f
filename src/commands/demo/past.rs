//! `hopwise demo --past`: simulates past traffic at full speed and stores what a collector detects, for the demo to continue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{path::Path, sync::Arc, thread, time::Duration};

use collector::{Collector, Datagram};
use dataplane::fabric::{FabricSink, GroundTruth, Reporter};
use terminal::{CliError, Terminal, progress::Progress, units};

use super::{MINUTE, network::Network, streams::Streams};
use cli::store_writer::StoreWriter;
use collect_role::datagram::octets;
use config::Settings;

/// Interval between two ticks of the collector in simulated time, ns; the same as in a running collector.
const TICK: u64 = 20_000_000;
/// Number of lines about the progress, if standard error is not a terminal.
const LINES: u64 = 10;

/// Simulates the network for `past` and stores the collector's results. Returns false if Ctrl-C interrupted it.
pub(super) fn simulate(
    network: &mut Network,
    settings: &Settings,
    dir: &Path,
    past: Duration,
) -> Result<bool, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let minutes = units::counted(past.as_secs() / 60, "minute");
    terminal::print(&format!(
        "Simulating {minutes} of history at full speed; the pages start when it is complete.\n"
    ))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(|error| CliError::io("cannot listen for Ctrl-C", error, "try again"))?;
    let mut collector = PastCollector::open(settings, dir)?;
    let (end_sender, end_receiver) = tokio::sync::oneshot::channel::<()>();
    thread::scope(|scope| {
        let simulation = scope.spawn(|| {
            // Dropped at the end, also by a panic, which ends the wait for Ctrl-C below.
            let _end_sender = end_sender;
            collector.run(network, past, &stop);
        });
        runtime.block_on(async {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => stop.store(true, Ordering::Relaxed),
                _ = end_receiver => {}
            }
        });
        simulation
            .join()
            .map_err(|_| CliError::new("the simulation panicked"))
    })?;
    network.continue_from(collector.streams.in_flight_only());
    collector.store_writer.close();
    // Relaxed: no other data depends on the flag, and the thread has been joined.
    Ok(!stop.load(Ordering::Relaxed))
}

/// Collector that receives the reports of the simulated switches directly and writes to the store.
struct PastCollector {
    collector: Collector,
    store_writer: StoreWriter,
    streams: Streams,
    datagrams: u64,
}

impl PastCollector {
    fn open(settings: &Settings, dir: &Path) -> Result<Self, CliError> {
        let config = settings.collect().collector_config(1, 0).map_err(CliError::new)?;
        let store_writer = StoreWriter::open(dir, settings)?;
        Ok(Self {
            collector: Collector::new(config),
            store_writer,
            streams: Streams::default(),
            datagrams: 0,
        })
    }

    fn run(&mut self, network: &mut Network, past: Duration, stop: &AtomicBool) {
        let start = network.start();
        let past = past.as_nanos() as u64;
        let mut progress = Progress::new("simulating the past", "datagrams", Some(past));
        // A log or a pipe gets lines in place of the bar.
        let writes_lines = !Terminal::stderr().interactive;
        let mut next_line = past / LINES;
        let mut now = start;
        // Real time passes during the simulation. It continues up to the present, so that the history has no gap. A machine
        // that simulates slower than real time stops after twice the span.
        let end = start + 2 * past;
        while now < nic::time::now().min(end) && !stop.load(Ordering::Relaxed) {
            now += TICK;
            network.run_until(now, self);
            self.collector.tick(now, &mut self.store_writer);
            self.store_writer.learn_links(&self.collector, now);
            progress.at(now - start, self.datagrams);
            if writes_lines && now - start >= next_line {
                next_line += past / LINES;
                terminal::note(progress_line(
                    now - start,
                    nic::time::now().clamp(start, end) - start,
                ));
            }
        }
        self.collector.finish(now, &mut self.store_writer);
        progress.finish();
    }
}

/// Formats the progress, given the simulated time and the time from the start to the present, ns. Both grow.
fn progress_line(simulated: u64, span: u64) -> String {
    let minutes = span.max(simulated) / MINUTE;
    format!(
        "simulated {} of {minutes} minutes of the past",
        simulated / MINUTE
    )
}

impl FabricSink for PastCollector {
    fn report(&mut self, t: u64, from: &Reporter, payload: &[u8]) {
        let source = octets(from.address);
        let datagram = Datagram {
            payload,
            source,
            src_port: from.port,
            listener: 0,
            received: t,
        };
        self.collector.handle(&[datagram], &mut self.store_writer);
        self.datagrams += 1;
    }

    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        self.streams.ground_truth(truth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_the_minutes_up_to_the_present() {
        // 10 minutes were asked for, and 3 have passed since.
        assert_eq!(
            progress_line(12 * MINUTE, 13 * MINUTE + 1),
            "simulated 12 of 13 minutes of the past"
        );
        assert_eq!(
            progress_line(13 * MINUTE, 13 * MINUTE - 1),
            "simulated 13 of 13 minutes of the past",
            "the last tick may pass the present"
        );
    }
}
