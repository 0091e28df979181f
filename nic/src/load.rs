//! Load generation for measurements, and a baseline: the rate of a receiver that discards every datagram.
//!
//! Nothing here is part of the collector.

mod live;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::time;
use crate::udp::{Burst, Options, Receiver, SEGMENTS_PER_CALL, Sender};

pub use live::{LiveFrames, Word};

/// Settings of the load.
#[derive(Clone, Copy, Default, Debug)]
pub struct Load {
    /// Passes many datagrams to the kernel as one (UDP segmentation offload), which is several times faster. Then only payloads
    /// as long as the first one are sent.
    pub segmented: bool,
    /// Datagrams per second; `None` to send as fast as possible.
    pub per_second: Option<u64>,
    /// Total number of datagrams, or `None` to send until stopped. The last call may exceed it.
    pub total: Option<u64>,
}

impl Load {
    /// Sends `payloads` repeatedly from one socket, until the total is reached or `stop` is set. Makes at least one call even
    /// if `stop` is already set, because the thread may start late. Returns the number of datagrams sent.
    ///
    /// # Errors
    /// The first datagrams of a call could not be sent.
    pub fn send(&self, sender: &mut Sender, payloads: &[Vec<u8>], stop: &AtomicBool) -> Result<u64, Error> {
        let Some(segment) = payloads.first().map(Vec::len).filter(|&len| len > 0) else {
            return Ok(0);
        };
        let joined: Vec<u8> = payloads
            .iter()
            .filter(|payload| payload.len() == segment)
            .flatten()
            .copied()
            .collect();
        let per_call = (65_507 / segment).clamp(1, SEGMENTS_PER_CALL);
        let joined: Vec<&[u8]> = joined.chunks(segment * per_call).collect();
        let apart: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let apart: Vec<&[&[u8]]> = apart.chunks(64).collect();
        let started = time::monotonic();
        let mut sent = 0;
        for round in 0.. {
            // Relaxed: only the flag itself matters; joining the thread orders everything else.
            if round > 0 && stop.load(Ordering::Relaxed) || self.total.is_some_and(|total| sent >= total) {
                break;
            }
            sent += if self.segmented {
                sender.send_segments(joined[round % joined.len()], segment as u16)? as u64
            } else {
                sender.send_burst(apart[round % apart.len()])? as u64
            };
            if let Some(per_second) = self.per_second {
                let due = u128::from(sent) * 1_000_000_000 / u128::from(per_second.max(1));
                let ahead = due.saturating_sub(u128::from(time::monotonic() - started));
                time::sleep(Duration::from_nanos(ahead.min(100_000_000) as u64));
            }
        }
        Ok(sent)
    }
}

/// A receiver with a plain `recvmmsg` loop that discards the data.
#[derive(Debug)]
pub struct Discard {
    receiver: Receiver,
    burst: Burst,
}

/// The counters of a [`Discard`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Discarded {
    /// Number of datagrams discarded.
    pub datagrams: u64,
    /// System calls that returned datagrams.
    pub calls: u64,
    /// Time from the first datagram to the last, ns.
    pub elapsed_ns: u64,
    /// Datagrams that the kernel dropped.
    pub kernel_drops: u64,
}

impl Discarded {
    /// Returns the datagrams per second, from the first to the last.
    pub fn per_second(&self) -> f64 {
        self.datagrams as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

impl Discard {
    /// Listens on `address` with the same receive buffer as the receiver that it is compared with, but without timestamps and
    /// drop counters per datagram, which cost time.
    ///
    /// # Errors
    /// The same as for [`Receiver::bind`].
    pub fn bind(address: SocketAddr, options: &Options) -> Result<Self, Error> {
        let receiver = Receiver::bind(address, options)?;
        receiver.make_plain(Duration::from_millis(50))?;
        Ok(Self {
            receiver,
            burst: Burst::default(),
        })
    }

    /// Returns the address listened on, with the port that the kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.receiver.local_addr()
    }

    /// Receives datagrams until `stop` is set *and* none are left. When none are left it sleeps for `wait` or, if that is zero,
    /// blocks for the next datagram (and checks `stop` every 50 ms). Which is faster depends on the machine, so measure both.
    ///
    /// # Errors
    /// The system refused.
    pub fn run(&mut self, wait: Duration, stop: &AtomicBool) -> Result<Discarded, Error> {
        let mut result = Discarded::default();
        let mut first = 0;
        let mut last = 0;
        loop {
            // Read before the call: datagrams sent before the flag was set are already in the socket.
            let stopping = stop.load(Ordering::Acquire);
            let received = self.take(wait.is_zero() && !stopping)?;
            if received > 0 {
                last = time::monotonic();
                first = if result.calls == 0 { last } else { first };
                result.datagrams += received;
                result.calls += 1;
            } else if stopping {
                break;
            }
            // After a full burst, more datagrams are probably waiting.
            if !wait.is_zero() && !stopping && received < self.burst.slots() as u64 {
                time::sleep(wait);
            }
        }
        result.elapsed_ns = last - first;
        result.kernel_drops = self.receiver.drops().buffer_full;
        Ok(result)
    }

    fn take(&mut self, block: bool) -> Result<u64, Error> {
        use std::os::fd::AsFd;
        self.burst.clear();
        let fd = self.receiver.as_fd().as_raw_fd();
        let (headers, slots) = self.burst.room();
        let flags = if block {
            libc::MSG_WAITFORONE
        } else {
            libc::MSG_DONTWAIT
        };
        // SAFETY: `headers` points to `slots` headers whose pointers lead to the burst's own memory; we hold it alone.
        let received =
            unsafe { libc::recvmmsg(fd, headers, slots as libc::c_uint, flags, std::ptr::null_mut()) };
        if let Ok(received) = usize::try_from(received) {
            self.burst.set_filled(received);
            return Ok(received as u64);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
            _ => Err(Error::new("recvmmsg", self.local_addr(), error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Pair;

    /// Reports of one length that differ in content.
    fn payloads() -> Vec<Vec<u8>> {
        (0..200u8).map(|n| vec![n; 220]).collect()
    }

    /// Sends `load` to the address that `receive` listens on, concurrently. Returns the number sent and `receive`'s result.
    fn against<T: Send>(
        sender: &mut Sender,
        load: Load,
        receive: impl FnOnce(&AtomicBool) -> T + Send,
    ) -> (u64, T) {
        let (stop, never) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(&stop));
            let sent = load.send(sender, &payloads(), &never).unwrap();
            // Release: pairs with the acquire in the receiver, so that every sent datagram is in the socket by then.
            stop.store(true, Ordering::Release);
            (sent, receiving.join().unwrap())
        })
    }

    fn receive_all(receiver: &mut Receiver, stop: &AtomicBool) -> u64 {
        let mut burst = Burst::default();
        let mut received = 0;
        loop {
            let stopping = stop.load(Ordering::Acquire);
            match receiver.recv(&mut burst, u32::from(!stopping)).unwrap() {
                0 if stopping => return received,
                filled => received += filled as u64,
            }
        }
    }

    #[test]
    fn every_datagram_is_received_or_counted_as_dropped() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        for segmented in [false, true] {
            let load = Load {
                segmented,
                per_second: None,
                total: Some(50_000),
            };
            let options = Options {
                recv_buffer: 50_000,
                ..Options::default()
            };
            let mut receiver = Receiver::bind(any, &options).unwrap();
            let mut sender = Sender::connect(any, receiver.local_addr()).unwrap();
            let (sent, received) = against(&mut sender, load, |stop| receive_all(&mut receiver, stop));
            assert_eq!(received + receiver.drops().buffer_full, sent);
            assert!((50_000..50_064).contains(&sent), "{sent}");
            for wait in [Duration::ZERO, Duration::from_micros(100)] {
                let mut discard = Discard::bind(any, &options).unwrap();
                let mut sender = Sender::connect(any, discard.local_addr()).unwrap();
                let (sent, found) = against(&mut sender, load, |stop| discard.run(wait, stop).unwrap());
                assert_eq!(found.datagrams + found.kernel_drops, sent);
                assert!(
                    found.calls <= found.datagrams && found.per_second() > 0.0,
                    "{found:?}"
                );
            }
        }
    }

    #[test]
    fn a_paced_load_keeps_its_pace() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let receiver = Receiver::bind(any, &Options::default()).unwrap();
        let mut sender = Sender::connect(any, receiver.local_addr()).unwrap();
        let load = Load {
            segmented: false,
            per_second: Some(20_000),
            total: Some(1_000),
        };
        let started = time::monotonic();
        assert_eq!(
            load.send(&mut sender, &payloads(), &AtomicBool::new(false))
                .unwrap(),
            1_000
        );
        // 1,000 at 20,000 per second are 50 ms; a loaded machine may take longer.
        assert!(time::monotonic() - started >= 50_000_000);
        assert_eq!(load.send(&mut sender, &[], &AtomicBool::new(false)).unwrap(), 0);
        assert_eq!(
            load.send(&mut sender, &payloads(), &AtomicBool::new(true))
                .unwrap(),
            64,
            "once at least"
        );
    }

    #[test]
    fn every_loss_between_namespaces_is_counted() {
        let pair = match Pair::create() {
            Ok(pair) => pair,
            Err(error) => return crate::netns::tests::skipped(&error),
        };
        for (near, far) in Pair::NEAR.into_iter().zip(Pair::FAR) {
            let options = Options {
                recv_buffer: 200_000,
                ..Options::default()
            };
            let mut receiver = pair
                .far
                .run(|| Receiver::bind((far, 0).into(), &options))
                .unwrap()
                .unwrap();
            let to = receiver.local_addr();
            let mut sender = pair
                .near
                .run(|| Sender::connect((near, 0).into(), to))
                .unwrap()
                .unwrap();
            let load = Load {
                segmented: false,
                per_second: None,
                total: Some(50_000),
            };
            let before = pair.link_drops().unwrap();
            let (sent, received) = against(&mut sender, load, |stop| receive_all(&mut receiver, stop));
            let on_the_link = pair.link_drops().unwrap() - before;
            assert_eq!(received + receiver.drops().buffer_full + on_the_link, sent);
            assert!(received > 0);
        }
    }
}
