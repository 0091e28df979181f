//! Listening sockets, one thread each. With one worker the thread does the work itself; with several it accounts for
//! sequence numbers, where all are still in order, and spreads the datagrams by their inner flow.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use collector::{Datagram, event::Nanos};
use nic::{
    source::{Packet, Stats},
    udp::{Burst, Options, Receiver},
};

use crate::{
    config::{sections::CollectorSettings, values::Listen},
    control::Control,
    error::CliError,
    fanout::Spreader,
    worker::{Core, TICK},
};

/// How long a receiver waits for a datagram before it looks around, ms.
const WAIT_MS: u32 = (TICK / 1_000_000) as u32;

/// How long a socket is emptied at the end, ns.
const DRAIN: Nanos = 500_000_000;

/// What a receiving thread does with its datagrams.
#[derive(Debug)]
pub(crate) enum Handler {
    /// The work itself, with a collector that several sockets may share.
    Inline(Arc<Mutex<Core>>),
    /// Spreads them over the workers.
    Spread(Box<Spreader>),
}

/// A bound socket that nobody reads yet.
#[derive(Debug)]
pub(crate) struct Socket {
    receiver: Receiver,
    gauge: Arc<InputGauge>,
    burst: Burst,
    listener: u16,
}

/// The figures of a socket.
#[derive(Debug)]
pub(crate) struct InputGauge {
    /// As it is shown.
    pub(crate) listen: String,
    /// Where it really listens.
    pub(crate) address: SocketAddr,
    /// Bytes of receive buffer in force.
    pub(crate) receive_buffer: u64,
    stats: Mutex<Stats>,
}

impl InputGauge {
    /// As of the last tick.
    pub(crate) fn stats(&self) -> Stats {
        *lock(&self.stats)
    }
}

/// Binds the sockets of the configuration, in order.
///
/// # Errors
/// The first that cannot be bound; the message says what to do.
pub(crate) fn bind(settings: &CollectorSettings) -> Result<Vec<Socket>, CliError> {
    let mut sockets = Vec::new();
    for listen in &settings.listen {
        match *listen {
            Listen::Udp(address) => sockets.push(socket(address, settings, sockets.len())?),
            Listen::UdpAny(port) => {
                let first = socket((Ipv4Addr::UNSPECIFIED, port).into(), settings, sockets.len())?;
                // Port 0 lets the kernel choose: the other family then takes the same one.
                let port = first.gauge.address.port();
                sockets.push(first);
                match socket((Ipv6Addr::UNSPECIFIED, port).into(), settings, sockets.len()) {
                    Ok(second) => sockets.push(second),
                    Err(error) if has_ipv6() => return Err(error),
                    Err(_) => tracing::info!("this machine has no IPv6; listening on IPv4 alone"),
                }
            }
        }
    }
    Ok(sockets)
}

fn has_ipv6() -> bool {
    std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

fn socket(address: SocketAddr, settings: &CollectorSettings, listener: usize) -> Result<Socket, CliError> {
    let asked = usize::try_from(settings.receive_buffer.0).unwrap_or(usize::MAX);
    let options = Options { recv_buffer: asked, ..Options::default() };
    let receiver = Receiver::bind(address, &options).map_err(|error| CliError::new(error.to_string()))?;
    if let Some(warning) = receiver.warning() {
        tracing::warn!("{warning}");
    }
    let gauge = InputGauge {
        listen: format!("udp://{}", receiver.local_addr()),
        address: receiver.local_addr(),
        receive_buffer: receiver.recv_buffer().given as u64,
        stats: Mutex::default(),
    };
    let datagram = usize::try_from(settings.datagram.0).unwrap_or(usize::MAX);
    let burst = Burst::new(settings.burst, datagram);
    // A configuration with 65,536 sockets is beyond what any kernel lets one process open by default.
    let listener = u16::try_from(listener).unwrap_or(u16::MAX);
    Ok(Socket { receiver, gauge: Arc::new(gauge), burst, listener })
}

impl Socket {
    /// Its figures.
    pub(crate) fn gauge(&self) -> Arc<InputGauge> {
        Arc::clone(&self.gauge)
    }

    /// Reads it on a thread of its own, until `stop` is set and what had arrived by then is handled.
    ///
    /// # Errors
    /// The system has no thread for us.
    pub(crate) fn read(
        self,
        handler: Handler,
        stop: Arc<AtomicBool>,
        control: &Control,
    ) -> Result<JoinHandle<()>, CliError> {
        control.spawn(&format!("udp-{}", self.listener), move || self.run(handler, &stop))
    }

    fn run(mut self, mut handler: Handler, stop: &AtomicBool) {
        let mut looked: Nanos = 0;
        let mut failing = false;
        let mut last_call: Option<Nanos> = None;
        loop {
            // Relaxed: the flag carries nothing but itself; one tick more or less does not matter.
            let stopping = stop.load(Ordering::Relaxed);
            let received = self.receiver.recv(&mut self.burst, if stopping { 0 } else { WAIT_MS });
            let now = nic::time::now();
            // What had arrived before the stop is still ours; what keeps coming is not.
            let deadline = stopping.then(|| *last_call.get_or_insert(now + DRAIN));
            match received {
                Ok(0) if stopping => break,
                Ok(_) => failing = false,
                Err(error) => {
                    if !failing {
                        tracing::error!(%error, "cannot receive; trying again");
                    }
                    failing = true;
                    if stopping {
                        break;
                    }
                    thread::park_timeout(std::time::Duration::from_millis(WAIT_MS.into()));
                }
            }
            handler.handle(&mut self.burst, self.listener, now);
            if deadline.is_some_and(|deadline| now > deadline) {
                break;
            }
            if now.abs_diff(looked) >= TICK {
                looked = now;
                *lock(&self.gauge.stats) = self.receiver.stats();
            }
        }
        *lock(&self.gauge.stats) = self.receiver.stats();
        handler.finish(nic::time::now());
    }
}

impl Handler {
    fn handle(&mut self, burst: &mut Burst, listener: u16, now: Nanos) {
        match self {
            Self::Inline(core) => {
                let mut core = lock(core);
                each_chunk(burst.iter(), listener, |chunk| core.take(chunk));
                core.turn(now);
            }
            Self::Spread(spreader) => spreader.spread(burst, listener, now),
        }
    }

    fn finish(&mut self, now: Nanos) {
        match self {
            // The core outlives its receivers: its owner finishes it when all have ended.
            Self::Inline(_) => {}
            Self::Spread(spreader) => spreader.finish(now),
        }
    }
}

/// Gives packets to `take` as the collector's datagrams, a few at a time, without allocating.
pub(crate) fn each_chunk<'p>(
    packets: impl Iterator<Item = Packet<'p>>,
    listener: u16,
    mut take: impl FnMut(&[Datagram<'_>]),
) {
    let mut chunk = [Datagram { payload: &[], source: [0; 16], sport: 0, listener, received: 0 }; CHUNK];
    let mut filled = 0;
    for packet in packets {
        let (source, sport) = (octets(packet.source.ip()), packet.source.port());
        chunk[filled] = Datagram { payload: packet.data, source, sport, listener, received: packet.received };
        filled += 1;
        if filled == CHUNK {
            take(&chunk);
            filled = 0;
        }
    }
    if filled > 0 {
        take(&chunk[..filled]);
    }
}

/// Datagrams given to the collector at once.
const CHUNK: usize = 64;

/// An address as 16 bytes, IPv4 mapped into IPv6.
pub(crate) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// A lock on a value that every critical section leaves valid: a panic in another thread does no harm to it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
