//! The thread that reads one source of an input: receives bursts of datagrams, hands them to the worker or the fan-out, and
//! publishes a watermark, the receive time up to which everything has been processed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use collector::event::Nanos;
use nic::source::Packet;

use super::{Handler, RxSource, gauge::Meter};
use crate::{datagram::each_chunk, watermarks::Watermark, worker::TICK};
use runtime::lock::lock;

/// Longest wait for a datagram, ms. Between waits the thread runs timers and checks for a stop.
const WAIT_MS: u32 = (TICK / 1_000_000) as u32;

/// A receive that returned fewer datagrams than this has caught up with the input.
const CAUGHT_UP_BELOW: usize = 16;

/// Longest time between the kernel's timestamp on a datagram and its delivery, ns. The kernel delivers a queue's frames in
/// groups, and the blocks of a packet socket after 4 ms. The watermark lags by this much.
const MAX_DELIVERY_DELAY: Nanos = 5_000_000;

/// Time limit for draining an input at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Reads one source of an input.
pub(super) struct Reader {
    pub(super) source: RxSource,
    pub(super) handler: Handler,
    pub(super) watermark: Watermark,
    pub(super) listener: u16,
    pub(super) meter: Arc<Meter>,
    /// Ends after an error, because a supervisor reopens the input; otherwise retries.
    pub(super) ends_on_error: bool,
    /// The receive time up to which the latest receive delivered everything: the last datagram of its batch or, with several
    /// batches, the earliest of these times. `None` if it delivered nothing.
    pub(super) latest: Option<Nanos>,
    /// The system's clock; another one in tests.
    pub(super) clock: fn() -> Nanos,
}

/// The part of a source that is processed.
struct Processed {
    /// The receive time up to which everything is processed; `None` if it has not changed.
    until: Option<Nanos>,
    /// Whether the source had nothing more to deliver.
    is_drained: bool,
}

impl Reader {
    /// Reads until `stop` is set and all datagrams received until then are processed.
    pub(super) fn run(mut self, stop: &AtomicBool) {
        let mut last_check: Nanos = 0;
        let mut has_failed = false;
        let mut drain_deadline: Option<Instant> = None;
        let mut wait_ms = WAIT_MS;
        let mut until = (self.clock)();
        loop {
            // Relaxed: the flag orders no other memory.
            let is_stopping = stop.load(Ordering::Relaxed);
            let before = (self.clock)();
            let received = self.receive(if is_stopping { 0 } else { wait_ms });
            let now = (self.clock)();
            // After an error the state of the input is unknown, and the watermark must still advance.
            let processed = match &received {
                Ok(_) => self.processed_until(before),
                Err(_) => Processed {
                    until: Some(now),
                    is_drained: true,
                },
            };
            // The clock may have been set back while this thread waited.
            until = processed.until.unwrap_or(until).min(now);
            self.watermark.set(until, processed.is_drained);
            let caught_up = received.as_ref().is_ok_and(|count| *count < CAUGHT_UP_BELOW);
            // Process datagrams received before the stop, but not an endless stream.
            if is_stopping {
                drain_deadline.get_or_insert_with(|| Instant::now() + DRAIN_TIMEOUT);
            }
            match received {
                Ok(0) if is_stopping => break,
                Ok(_) => has_failed = false,
                Err(error) if self.ends_on_error => {
                    self.meter.fail(error.to_string());
                    break;
                }
                Err(error) => {
                    if !has_failed {
                        tracing::error!(%error, "cannot receive; retrying");
                    }
                    has_failed = true;
                    if is_stopping {
                        break;
                    }
                    thread::park_timeout(Duration::from_millis(WAIT_MS.into()));
                }
            }
            wait_ms = self.handler.poll(until, now, caught_up);
            if drain_deadline.is_some_and(|deadline| Instant::now() > deadline) {
                break;
            }
            if now.abs_diff(last_check) >= TICK {
                last_check = now;
                self.update_meter();
            }
        }
        self.finish();
        self.update_meter();
        // Pass copied datagrams to the workers.
        self.handler.poll(until, (self.clock)(), false);
    }

    fn receive(&mut self, timeout_ms: u32) -> Result<usize, nic::Error> {
        self.latest = None;
        match (&mut self.source, &self.handler) {
            (RxSource::Source(source), _) => source.receive(timeout_ms, &mut |packets| {
                if let (Some(first), Some(last)) = (packets.first(), packets.last()) {
                    // The source's next socket may deliver datagrams that arrived earlier.
                    let earliest = self.latest.unwrap_or(Nanos::MAX);
                    self.watermark
                        .advance(first.received.min(earliest), last.received);
                    self.latest = Some(last.received.min(earliest));
                }
                self.handler.process(packets, self.listener);
            }),
            (RxSource::Kernel(kernel), Handler::Inline(worker)) => kernel.receive(timeout_ms, worker),
            // Unreachable: the configuration allows kernel detection with one worker only.
            (RxSource::Kernel(_), Handler::Spread(_)) => Ok(0),
        }
    }

    /// Returns what is processed after a receive that began at `before`.
    fn processed_until(&self, before: Nanos) -> Processed {
        match &self.source {
            RxSource::Source(source) => {
                let delivered = before.saturating_sub(MAX_DELIVERY_DELAY);
                let is_drained = source.is_drained();
                let until = match is_drained {
                    true => Some(delivered),
                    false => self.latest.map(|latest| latest.min(delivered)),
                };
                Processed { until, is_drained }
            }
            RxSource::Kernel(kernel) => {
                let until = kernel.processed_until(before);
                Processed {
                    until: Some(until),
                    is_drained: until == before,
                }
            }
        }
    }

    /// Applies the final state of a kernel program to the collector.
    fn finish(&mut self) {
        if let (RxSource::Kernel(kernel), Handler::Inline(worker)) = (&mut self.source, &self.handler)
            && let Err(error) = kernel.finish(worker)
        {
            tracing::error!(%error, "cannot read the last counters of the kernel program");
        }
    }

    fn update_meter(&mut self) {
        self.meter.note(match &mut self.source {
            RxSource::Source(source) => source.stats(),
            RxSource::Kernel(kernel) => kernel.stats(),
        });
    }
}

impl Handler {
    fn process(&mut self, packets: &[Packet<'_>], listener: u16) {
        match self {
            Self::Inline(worker) => {
                let mut worker = lock(worker);
                let ports = worker.aggregate_ports();
                each_chunk(packets, listener, &ports, |contents, chunk| {
                    worker.process(contents, chunk)
                });
            }
            Self::Spread(spreader) => spreader.distribute(packets),
        }
    }

    /// Runs due work; what arrived before `until` has been processed. Returns the maximum time to wait for datagrams, ms.
    fn poll(&mut self, until: Nanos, now: Nanos, caught_up: bool) -> u32 {
        match self {
            // The worker outlives this thread: its owner finishes it when all receivers have ended.
            Self::Inline(worker) => super::poll(worker, caught_up),
            Self::Spread(spreader) => {
                spreader.poll(until, now);
                WAIT_MS
            }
        }
    }
}

#[cfg(test)]
mod tests;
