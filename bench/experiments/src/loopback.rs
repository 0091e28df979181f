//! Sends UDP reports over loopback at a given rate to one receiving thread, and measures its rate and CPU time.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use collector::{Batch, Collector, Datagram};
use nic::udp::{Burst, Options, Receiver, Sender};

use crate::{
    figures::{each_chunk, failed},
    machine::on_core,
};
use terminal::CliError;

/// Maximum number of datagrams per call of the sender, and the interval between calls at low rates.
const PER_CALL: u64 = 64;
const STEP: Duration = Duration::from_micros(100);

#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Seconds from the first datagram sent to the last.
    pub(super) seconds: f64,
    /// CPU time of this process without the sender, ns.
    pub(super) cpu: f64,
}

impl Served {
    pub(super) fn sent_per_second(&self) -> f64 {
        self.sent as f64 / self.seconds
    }

    pub(super) fn received_per_second(&self) -> f64 {
        self.received as f64 / self.seconds
    }

    /// Returns the CPU time as per cent of a core.
    pub(super) fn percent(&self) -> f64 {
        self.cpu / self.seconds / 1e7
    }

    pub(super) fn lost_percent(&self) -> f64 {
        100.0 * (self.sent - self.received) as f64 / self.sent as f64
    }

    /// Returns the CPU time per received report, ns.
    pub(super) fn ns_per_report(&self) -> f64 {
        self.cpu / self.received.max(1) as f64
    }
}

/// A collector that receives reports; the caller stores or discards its output in `batch`.
pub(super) struct Server {
    pub(super) collector: Collector,
    pub(super) batch: Batch,
    ticked: u64,
}

impl Server {
    const BATCH: usize = 8_192;
    /// Interval of the collector's timers, ns.
    const TICK: u64 = 20_000_000;

    pub(super) fn new(collector: Collector) -> Self {
        Self {
            collector,
            batch: Batch::with_capacity(Self::BATCH),
            ticked: 0,
        }
    }

    /// Processes datagrams with `handle`, and runs the timers that are due. Returns whether the batch is half full.
    pub(super) fn serve(
        &mut self,
        datagrams: &[Datagram<'_>],
        handle: fn(&mut Collector, &[Datagram<'_>], &mut dyn collector::Output),
    ) -> bool {
        handle(&mut self.collector, datagrams, &mut self.batch);
        let now = datagrams.last().map_or(self.ticked, |last| last.received);
        if now.saturating_sub(self.ticked) >= Self::TICK {
            self.ticked = now;
            self.collector.tick(now, &mut self.batch);
        }
        self.batch.len() > Self::BATCH / 2
    }
}

/// Sends payloads at `rate` per second for `span`, and passes what arrives to `handle`; at the end, an empty slice.
pub(super) fn serve(
    payloads: &[Vec<u8>],
    rate: u64,
    span: Duration,
    handle: impl FnMut(&[Datagram<'_>]) + Send,
) -> Result<Served, CliError> {
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).cycle().take(4_096).collect();
    deliver(|sender| send(sender, &payloads, rate, span), handle)
}

/// Receives the datagrams that `send` sends. `send` returns their number and the duration in seconds.
pub(super) fn deliver(
    send: impl FnOnce(&mut Sender) -> Result<(u64, f64), nic::Error>,
    handle: impl FnMut(&[Datagram<'_>]) + Send,
) -> Result<Served, CliError> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut receiver = Receiver::bind(any, &Options::default()).map_err(failed)?;
    let mut sender = Sender::connect(any, receiver.local_addr()).map_err(failed)?;
    let done = AtomicBool::new(false);
    let all = all_threads();
    thread::scope(|scope| {
        let server = scope.spawn(|| receive(&mut receiver, &done, handle));
        let (sent, of_sender) = on_core(|| send(&mut sender));
        done.store(true, Ordering::Release);
        let joined = server.join().map_err(|_| failed("a thread panicked"))?;
        let (received, all_after) = joined.map_err(failed)?;
        let (sent, seconds) = sent.map_err(failed)?;
        Ok(Served {
            sent,
            received,
            seconds,
            cpu: all_after.saturating_sub(all).saturating_sub(of_sender) as f64,
        })
    })
}

/// Sends payloads, evenly spaced as far as the rate allows. Returns their number and the duration in seconds.
fn send(
    sender: &mut Sender,
    payloads: &[&[u8]],
    rate: u64,
    span: Duration,
) -> Result<(u64, f64), nic::Error> {
    let per_call = (rate / (1_000_000 / STEP.as_micros() as u64)).clamp(1, PER_CALL);
    let mut calls = payloads.chunks(per_call as usize).cycle();
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed() < span {
        sent += sender.send_burst(calls.next().unwrap_or_default())? as u64;
        let due = Duration::from_nanos((u128::from(sent) * 1_000_000_000 / u128::from(rate)) as u64);
        if let Some(rest) = due.checked_sub(begun.elapsed()).filter(|rest| *rest > STEP / 2) {
            thread::sleep(rest);
        }
    }
    Ok((sent, begun.elapsed().as_secs_f64()))
}

/// Receives until `done` is set and the socket is empty. Returns the number of datagrams and the CPU time of all threads (ns),
/// which must be read before this thread ends, because the sum does not include ended threads.
fn receive(
    receiver: &mut Receiver,
    done: &AtomicBool,
    mut handle: impl FnMut(&[Datagram<'_>]),
) -> Result<(u64, u64), nic::Error> {
    let mut burst = Burst::default();
    let mut received = 0;
    loop {
        let ending = done.load(Ordering::Acquire);
        let count = receiver.recv(&mut burst, if ending { 0 } else { 20 })?;
        if count == 0 && ending {
            handle(&[]);
            return Ok((received, all_threads()));
        }
        received += count as u64;
        each_chunk(&burst, &mut handle);
    }
}

/// Returns the CPU time of all running threads of this process, ns; 0 if the system does not report it.
fn all_threads() -> u64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let times = tasks.filter_map(|task| {
        let times = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        times.split(' ').next()?.parse::<u64>().ok()
    });
    times.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datagram_is_received_at_a_low_rate() {
        let payloads = vec![vec![1; 100], vec![2; 100]];
        let (mut bytes, mut ends) = (0, 0);
        let served = serve(&payloads, 10_000, Duration::from_millis(20), |datagrams| {
            bytes += datagrams.iter().map(|one| one.payload.len() as u64).sum::<u64>();
            ends += u64::from(datagrams.is_empty());
        })
        .unwrap();
        assert!(served.sent > 0 && served.sent == served.received, "{served:?}");
        assert!(bytes == 100 * served.received && ends >= 1);
    }
}
