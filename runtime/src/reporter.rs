//! UDP sockets of a DTA reporter: connected sockets send reports to the collectors, one socket receives control messages such
//! as NACKs.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use dataplane::dta::Outbox;
use nic::udp::{Burst, Options, Receiver, Sender};

/// Maximum control messages per receive call.
const MAX_MESSAGES_PER_RECV: usize = 64;
/// Receive buffer per datagram, bytes: longer than any control message, so that longer datagrams show as truncated.
const MESSAGE_BUFFER_BYTES: usize = 128;

/// Sockets of a reporter.
#[derive(Debug)]
pub struct Sockets {
    collectors: Vec<SocketAddr>,
    senders: Vec<Option<Sender>>,
    control: Receiver,
    burst: Burst,
    /// Counters of both directions.
    pub stats: Stats,
}

/// Counters of the sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reports that were sent.
    pub sent: u64,
    /// Reports that the kernel refused.
    pub lost: u64,
    /// Datagrams to the control port from unknown senders or longer than any control message.
    pub unknown_senders: u64,
}

impl Sockets {
    /// Listens on `control` and connects to the collectors. [`Sockets::check`] retries collectors that cannot be reached yet.
    ///
    /// # Errors
    /// The port is in use, or the address is not local; the message says what to do.
    pub fn open(collectors: &[SocketAddr], control: SocketAddr) -> Result<Self, nic::Error> {
        // No batching delay: retransmission requests are urgent.
        let options = Options {
            recv_buffer: 1 << 20,
            batch_wait: Duration::ZERO,
            ..Options::default()
        };
        let control = Receiver::bind(control, &options)?;
        let mut sockets = Self {
            collectors: collectors.to_vec(),
            senders: collectors.iter().map(|_| None).collect(),
            control,
            burst: Burst::new(MAX_MESSAGES_PER_RECV, MESSAGE_BUFFER_BYTES),
            stats: Stats::default(),
        };
        sockets.check();
        Ok(sockets)
    }

    /// Replaces the destinations; sockets to unchanged destinations are reused.
    pub fn set_collectors(&mut self, collectors: &[SocketAddr]) {
        let mut previous: Vec<_> = self.collectors.drain(..).zip(self.senders.drain(..)).collect();
        for to in collectors {
            let sender = previous
                .iter_mut()
                .find(|(collector, _)| collector == to)
                .and_then(|(_, sender)| sender.take());
            self.collectors.push(*to);
            self.senders.push(sender);
        }
        self.check();
    }

    /// Retries collectors without a route.
    pub fn check(&mut self) {
        let from = SocketAddr::new(self.control.local_addr().ip(), 0);
        for (sender, to) in self.senders.iter_mut().zip(&self.collectors) {
            if sender.is_none() {
                *sender = Sender::connect(from, *to).ok();
            }
        }
    }

    /// Returns the address on which control messages arrive.
    pub fn control_address(&self) -> SocketAddr {
        self.control.local_addr()
    }

    /// Returns the socket that receives control messages.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Sends the reports in the outbox, and clears it.
    pub fn send(&mut self, outbox: &mut Outbox) {
        if outbox.is_empty() {
            return;
        }
        let reports: Vec<_> = outbox.datagrams().collect();
        for run in reports.chunk_by(|a, b| a.collector == b.collector) {
            let to = usize::from(run[0].collector);
            let payloads: Vec<&[u8]> = run.iter().map(|report| report.payload).collect();
            self.send_run(to, &payloads);
        }
        outbox.clear();
    }

    fn send_run(&mut self, to: usize, payloads: &[&[u8]]) {
        let mut unsent = payloads;
        while let (Some(Some(sender)), false) = (self.senders.get_mut(to), unsent.is_empty()) {
            match sender.send_burst(unsent) {
                Ok(sent) => {
                    self.stats.sent += sent as u64;
                    unsent = &unsent[sent..];
                }
                Err(_) => {
                    // The kernel refused this report. Drop the socket; `check` reopens it.
                    self.stats.lost += 1;
                    unsent = &unsent[1..];
                    self.senders[to] = None;
                }
            }
        }
        self.stats.lost += unsent.len() as u64;
    }

    /// Receives control messages, waiting up to `timeout` ms for the first. `process` gets the collector's index and the
    /// payload. Returns the number of datagrams received.
    pub fn receive(&mut self, timeout: u32, mut process: impl FnMut(u8, &[u8])) -> usize {
        // A receive error must not stop sending; essential reports are retransmitted after their timeout.
        let count = self.control.recv(&mut self.burst, timeout).unwrap_or(0);
        for packet in self.burst.iter() {
            // Control messages come from the address and port to which reports are sent.
            match collector_index(&self.collectors, packet.source) {
                Some(collector) if !packet.truncated => process(collector, packet.data),
                _ => self.stats.unknown_senders += 1,
            }
        }
        count
    }
}

/// Returns the index of the collector with this address and port.
fn collector_index(collectors: &[SocketAddr], source: SocketAddr) -> Option<u8> {
    let index = collectors.iter().position(|collector| {
        collector.ip().to_canonical() == source.ip().to_canonical() && collector.port() == source.port()
    });
    index.and_then(|index| u8::try_from(index).ok())
}

/// Returns the initial sequence number of a reporter that starts at `now` (ns): it advances every 4 ms and wraps after 262 s,
/// so it may be ahead of or behind the translator's state. A translator detects a restart by eight consecutive reports that are
/// far behind.
pub fn first_sequence(now: u64) -> u16 {
    (now / 4_000_000) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_known_by_where_they_come_from() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let collectors = [at("10.0.0.9:40040"), at("10.0.0.9:40041"), at("10.0.0.8:40040")];
        let of = |text: &str| collector_index(&collectors, at(text));
        assert_eq!((of("10.0.0.9:40041"), of("10.0.0.8:40040")), (Some(1), Some(2)));
        assert_eq!(
            (of("10.0.0.8:40044"), of("10.0.0.7:40040")),
            (None, None),
            "any program may send from another port"
        );
        assert_eq!(of("[::ffff:10.0.0.8]:40040"), Some(2));
    }
}
