//! A UDP socket that receives bursts of datagrams, and counts the lost ones.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use wire::Refusal;

use super::arrivals::DatagramCounter;
use super::burst::Burst;
use super::drops::{Arrived, DropAccount, Drops};
use super::{MAX_BATCH_WAIT, Options, RecvBuffer, socket};
use crate::error::Error;
use crate::pace::Pace;
use crate::source::Stats;
use crate::{sys, time};

/// A bound UDP socket for receiving.
#[derive(Debug)]
pub struct Receiver {
    socket: OwnedFd,
    address: SocketAddr,
    pub(super) buffer: RecvBuffer,
    pace: Pace,
    drops: DropAccount,
    /// Counter of arrivals, if datagrams are merged.
    arrivals: Option<DatagramCounter>,
    stats: Stats,
    /// Number of buffers received; a buffer has several datagrams if the kernel merged them.
    buffers: u64,
}

impl Receiver {
    /// Listens on `address`, IPv4 or IPv6. `[::]` receives only IPv6, so that both can be listened on; with port 0 the kernel
    /// chooses. A datagram without a UDP checksum is received in both families.
    ///
    /// # Errors
    /// The port is in use, the address is not ours, or a permission is missing; the error says what to do.
    pub fn bind(address: SocketAddr, options: &Options) -> Result<Self, Error> {
        Self::bind_socket(socket::open(address)?, address, options)
    }

    /// Listens on `port` of every address, IPv4 and IPv6 with one socket (IPv4 senders have IPv4 addresses); with `device`,
    /// only for datagrams that arrive on it. A datagram inside a VLAN arrives on the VLAN's own device.
    ///
    /// # Errors
    /// The same as for [`Receiver::bind`]; or there is no such device.
    pub fn bind_any(port: u16, device: Option<&str>, options: &Options) -> Result<Self, Error> {
        let (socket, address) = socket::open_any(port, device)?;
        Self::bind_socket(socket, address, options)
    }

    fn bind_socket(socket: OwnedFd, address: SocketAddr, options: &Options) -> Result<Self, Error> {
        for (option, value, call) in [
            (libc::SO_TIMESTAMPNS, 1, "setsockopt SO_TIMESTAMPNS"),
            (libc::SO_RXQ_OVFL, 1, "setsockopt SO_RXQ_OVFL"),
            (
                libc::SO_REUSEPORT,
                options.reuse_port.into(),
                "setsockopt SO_REUSEPORT",
            ),
        ] {
            sys::set(&socket, libc::SOL_SOCKET, option, &value).map_err(Error::failed(call, address))?;
        }
        if address.is_ipv6() {
            // Otherwise the kernel drops IPv6 datagrams without a checksum. Many switches and RoCEv2 devices send none (RFC
            // 6936).
            sys::set(&socket, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, &1)
                .map_err(Error::failed("setsockopt UDP_NO_CHECK6_RX", address))?;
            // Only a datagram in an IPv6 packet has a hop limit: see `Burst::forged`.
            sys::set(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, &1)
                .map_err(Error::failed("setsockopt IPV6_RECVHOPLIMIT", address))?;
        }
        let arrivals = options.merge.then(|| merge(&socket)).flatten();
        let buffer = set_buffer(&socket, options.recv_buffer)
            .map_err(Error::failed("setsockopt SO_RCVBUF", address))?;
        socket::bind(&socket, address)?;
        Ok(Self {
            address: socket::local_address(&socket)?,
            socket,
            buffer,
            pace: Pace::new(options.batch_wait.min(MAX_BATCH_WAIT)),
            drops: DropAccount::default(),
            arrivals,
            stats: Stats::default(),
            buffers: 0,
        })
    }

    /// Creates a burst for this receiver: `slots` datagrams of at most `slot_size` bytes, or at most 32 merged buffers if it
    /// merges datagrams.
    pub fn burst(&self, slots: usize, slot_size: usize) -> Burst {
        if self.merges() {
            Burst::merged(slots, slot_size)
        } else {
            Burst::new(slots, slot_size)
        }
    }

    /// Returns whether datagrams are received merged: [`Options::merge`].
    pub fn merges(&self) -> bool {
        self.arrivals.is_some()
    }

    pub(super) fn owned(&self) -> &OwnedFd {
        &self.socket
    }

    /// Returns the address listened on, with the port that the kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the effective receive buffer.
    pub fn recv_buffer(&self) -> RecvBuffer {
        self.buffer
    }

    /// Returns a warning for the operator if the kernel granted a smaller receive buffer than requested.
    pub fn warning(&self) -> Option<String> {
        let RecvBuffer { requested, granted } = self.buffer;
        (granted < requested).then(|| {
            format!(
                "{}: the kernel gave a receive buffer of {granted} bytes instead of {requested}, so datagrams are lost sooner \
                 when they come faster than they are read: run `sysctl -w net.core.rmem_max={requested}` or grant CAP_NET_ADMIN",
                self.address
            )
        })
    }

    /// Fills `burst` with received datagrams, in order. Waits at most `timeout_ms` for the first one. Returns their number, 0
    /// after the timeout or a signal.
    ///
    /// # Errors
    /// The system refused. The burst is then empty, and the call may be repeated.
    pub fn recv(&mut self, burst: &mut Burst, timeout_ms: u32) -> Result<usize, Error> {
        burst.clear();
        if let Some(wait) = self.pace.wait_first() {
            time::sleep(wait);
        }
        let mut filled = self.fetch(burst)?;
        let is_to_wait = filled == 0 && timeout_ms > 0;
        if is_to_wait
            && self
                .wait(timeout_ms)
                .map_err(Error::failed("poll", self.address))?
        {
            filled = self.fetch(burst)?;
        }
        self.pace.note(burst.filled(), burst.slots(), time::monotonic());
        self.account(burst);
        Ok(filled)
    }

    /// Returns the datagrams that the kernel dropped since the socket was opened. Queries the kernel, which otherwise reports
    /// drops only with the next datagram. The kernel's counter has 32 bits, so call this at least once per 2,000,000,000 drops.
    ///
    /// Without [`Receiver::merges`], datagrams with a wrong checksum count as `buffer_full`, because the kernel has one counter
    /// for both. With it, `buffer_full` may be too small while datagrams wait in the socket, because the kernel counts buffers.
    pub fn drops(&mut self) -> Drops {
        if let Some(dropped) = self.dropped_buffers() {
            self.drops.note(dropped);
        }
        self.compare_arrivals();
        self.drops.known()
    }

    /// Reads the kernel's drop counter.
    fn dropped_buffers(&self) -> Option<u32> {
        /// Index of the drops in the array of `SO_MEMINFO` (`SK_MEMINFO_DROPS` of linux/sock_diag.h).
        const DROPS: usize = 8;
        // Kernels that have this option (since Linux 4.12) fill in all nine values.
        let values = sys::get(
            &self.socket,
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            [0_u32; DROPS + 1],
        );
        values.ok().map(|values| values[DROPS])
    }

    /// Waits for a datagram. Returns false after `timeout_ms` or on a signal.
    fn wait(&self, timeout_ms: u32) -> io::Result<bool> {
        sys::poll(&mut [sys::readable(self.socket.as_fd())], timeout_ms).map(|ready| ready > 0)
    }

    /// Compares arrivals with received datagrams: the difference waits in the socket or was dropped because the buffer was
    /// full.
    fn compare_arrivals(&mut self) {
        let Some(arrivals) = self.arrivals.as_ref().filter(|_| self.drops.is_open()) else {
            return;
        };
        if let Ok(arrived) = arrivals.read() {
            let empty = !self.wait(0).unwrap_or(true) && self.dropped_buffers() == Some(self.drops.reading());
            let received = Arrived {
                datagrams: self.stats.datagrams + self.stats.refused.iter().sum::<u64>(),
                buffers: self.buffers,
            };
            self.drops.compare(arrived, received, empty);
        }
    }

    /// Disables timestamps and drop counters per datagram, and limits a blocking call to `longest`, which must be less than a
    /// second.
    pub(crate) fn make_plain(&self, longest: Duration) -> Result<(), Error> {
        for (option, call) in [
            (libc::SO_TIMESTAMPNS, "setsockopt SO_TIMESTAMPNS"),
            (libc::SO_RXQ_OVFL, "setsockopt SO_RXQ_OVFL"),
        ] {
            sys::set(&self.socket, libc::SOL_SOCKET, option, &0)
                .map_err(Error::failed(call, self.address))?;
        }
        let timeout = libc::timeval {
            tv_sec: 0,
            tv_usec: libc::suseconds_t::from(longest.subsec_micros()),
        };
        sys::set(&self.socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)
            .map_err(Error::failed("setsockopt SO_RCVTIMEO", self.address))
    }

    /// Returns the counters, with the kernel's drops read now.
    pub fn stats(&mut self) -> Stats {
        let Drops {
            buffer_full,
            bad_checksum,
        } = self.drops();
        Stats {
            kernel_drops: buffer_full,
            bad_checksum,
            ..self.stats
        }
    }

    /// Returns the drops known from received datagrams, without querying the kernel.
    #[cfg(test)]
    pub(super) fn drops_reported(&mut self) -> u64 {
        self.drops.known().buffer_full
    }

    fn fetch(&mut self, burst: &mut Burst) -> Result<usize, Error> {
        let (headers, slots) = burst.room();
        let fd = self.socket.as_raw_fd();
        let slots = slots as libc::c_uint;
        // SAFETY: `headers` points to `slots` headers whose pointers lead to the burst's own memory, of the lengths that the
        // headers give; we hold the burst alone until the call returns.
        let filled = unsafe { libc::recvmmsg(fd, headers, slots, libc::MSG_DONTWAIT, std::ptr::null_mut()) };
        if filled < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(Error::new("recvmmsg", self.address, error)),
            };
        }
        burst.set_filled(filled as usize);
        self.buffers += filled as u64;
        burst.locate(time::now());
        Ok(burst.len())
    }

    fn account(&mut self, burst: &Burst) {
        self.stats.refused[Refusal::BadIpHeader.index()] += burst.forged();
        if burst.is_empty() {
            return;
        }
        if let Some(counter) = burst.drop_counter() {
            self.drops.note(counter);
        }
        let (bytes, truncated) = burst.totals();
        self.stats.datagrams += burst.len() as u64;
        self.stats.bursts += 1;
        self.stats.bytes += bytes;
        self.stats.truncated += truncated;
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Enables merging of datagrams, if a filter can count them.
fn merge(socket: &OwnedFd) -> Option<DatagramCounter> {
    let arrivals = DatagramCounter::attach(socket).ok()?;
    sys::set(socket, libc::SOL_UDP, libc::UDP_GRO, &1).ok()?;
    Some(arrivals)
}

/// Requests the receive buffer, beyond the system's limit if permitted.
fn set_buffer(socket: &OwnedFd, requested: usize) -> io::Result<RecvBuffer> {
    // The kernel stores twice this number, as an i32.
    let value = i32::try_from(requested).unwrap_or(i32::MAX).min(i32::MAX / 2);
    if sys::set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &value).is_err() {
        sys::set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &value)?;
    }
    let doubled = sys::get(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 0_u32)?;
    Ok(RecvBuffer {
        requested,
        granted: doubled as usize / 2,
    })
}
