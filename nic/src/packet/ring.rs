//! The TPACKET_V3 ring: blocks of frames whose ownership alternates between the kernel and this process.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use wire::frame;

use super::{Options, filter};
use crate::error::Error;
use crate::source::{Packet, PacketBatch, Source, Stats};
use crate::sys::{self, Mapping, half, word};
use crate::time::nanoseconds;
use crate::udp;

/// Bytes of a block. A frame must fit, and unsegmented ones (see [`Gso`]) have up to 64 KiB.
const BLOCK: usize = 1 << 20;
/// Time after which the kernel hands over a block that is not full, ms.
const BLOCK_TIMEOUT_MS: u32 = 4;
// Offsets in `struct tpacket_block_desc`: the number of frames, and the offset of the first.
const BLOCK_PACKETS: usize = 12;
const BLOCK_FIRST: usize = 16;
/// Status of a frame whose UDP checksum need not be verified: the sender left it to a NIC that the frame did not pass, or the NIC or the
/// kernel found it right.
const CHECKED: u32 = libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_CSUM_VALID;
/// Bytes of `struct virtio_net_hdr`, before the frame.
const VIRTIO_HEADER: usize = 10;

/// A ring of frames from one interface.
#[derive(Debug)]
pub struct Ring {
    socket: OwnedFd,
    /// Sockets that occupy the ports and receive nothing (see `hold`).
    _holders: Vec<OwnedFd>,
    memory: Mapping,
    blocks: usize,
    /// Index of the block that is read next.
    block: usize,
    ports: Vec<u16>,
    interface: String,
    stats: Stats,
}

impl Ring {
    /// Opens a ring on `interface`, of the caller's network namespace.
    ///
    /// # Errors
    /// There is no such interface, CAP_NET_RAW is missing, a port is in use, or the kernel has no memory for the ring.
    pub fn open(interface: &str, options: &Options) -> Result<Self, Error> {
        let index = sys::interface_index(interface).map_err(Error::failed("if_nametoindex", interface))?;
        let holders = if options.hold_ports {
            hold(interface, &options.ports)?
        } else {
            Vec::new()
        };
        // Not bound yet: the filter must be in place before the first frame.
        let socket = sys::packet_socket(interface)?;
        let version = libc::tpacket_versions::TPACKET_V3 as i32;
        for (option, value, call) in [
            (libc::PACKET_VERSION, version, "setsockopt PACKET_VERSION"),
            (libc::PACKET_VNET_HDR, 1, "setsockopt PACKET_VNET_HDR"),
        ] {
            sys::set(&socket, libc::SOL_PACKET, option, &value).map_err(Error::failed(call, interface))?;
        }
        // Not supported by older kernels; the filter rejects outgoing frames in any case.
        let _ = sys::set(&socket, libc::SOL_PACKET, sys::PACKET_IGNORE_OUTGOING, &1);
        sys::attach_filter(&socket, &filter::telemetry(&options.ports))
            .map_err(Error::failed("setsockopt SO_ATTACH_FILTER", interface))?;
        let blocks = (options.ring / BLOCK).max(2);
        let shape = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            // Frames are packed without slots; the kernel only checks this size against the block.
            tp_frame_size: 2048,
            tp_frame_nr: (blocks * BLOCK / 2048) as u32,
            tp_retire_blk_tov: BLOCK_TIMEOUT_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        sys::set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &shape)
            .map_err(Error::failed("setsockopt PACKET_RX_RING", interface))?;
        let memory = Mapping::shared(&socket, 0, blocks * BLOCK).map_err(Error::failed("mmap", interface))?;
        sys::bind_to_interface(&socket, index).map_err(Error::failed("bind AF_PACKET", interface))?;
        defragment(&socket);
        Ok(Self {
            socket,
            _holders: holders,
            memory,
            blocks,
            block: 0,
            ports: options.ports.clone(),
            interface: interface.to_owned(),
            stats: Stats::default(),
        })
    }

    /// Returns the status word of the current block, which says whether the kernel or this process owns it.
    fn status(&self) -> &AtomicU32 {
        /// Offset of `block_status`, after the version and the offset.
        const OFFSET: usize = 8;
        // SAFETY: inside the mapping (`block` is below `blocks`), aligned, alive as long as `self`; both sides access it as a
        // whole word.
        unsafe {
            AtomicU32::from_ptr(
                self.memory
                    .start()
                    .as_ptr()
                    .add(self.block * BLOCK + OFFSET)
                    .cast(),
            )
        }
    }

    /// Returns whether the current block is owned by user space.
    fn ready(&self) -> bool {
        // Acquire: pairs with the kernel's write barrier before it hands the block over (prb_flush_block in
        // net/packet/af_packet.c), so that the frames are there when the status says so.
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Passes the frames of the current block to `take`, and returns the block to the kernel. Returns the number of datagrams.
    fn deliver_block(&mut self, take: &mut dyn FnMut(&[Packet<'_>])) -> usize {
        let Self {
            memory,
            block,
            ports,
            stats,
            ..
        } = self;
        let start = *block * BLOCK;
        // SAFETY: inside the mapping, and the kernel writes nothing there before `status` is stored below; the slice does not
        // live until then.
        let block = unsafe { std::slice::from_raw_parts(memory.start().as_ptr().add(start), BLOCK) };
        let count = word(block, BLOCK_PACKETS);
        let mut at = word(block, BLOCK_FIRST) as usize;
        let mut batch = PacketBatch::new();
        let mut handed = 0;
        for _ in 0..count {
            let Some(frame) = block.get(at..).and_then(Frame::new) else {
                break;
            };
            at += frame.step;
            frame.datagrams(ports, stats, |packet, stats| {
                handed += batch.push(packet, stats, take)
            });
        }
        handed += batch.deliver(stats, take);
        stats.bursts += u64::from(count > 0);
        // Release: our reads of the frames happen before the kernel, which reads the status before it fills the block again
        // (prb_dispatch_next_block), writes there.
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % self.blocks;
        handed
    }

    /// Counts the frames that the kernel dropped because the ring was full.
    fn note_drops(&mut self) {
        let nothing = libc::tpacket_stats_v3 {
            tp_packets: 0,
            tp_drops: 0,
            tp_freeze_q_cnt: 0,
        };
        // Reading resets the kernel's counters.
        let counted = sys::get(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, nothing);
        self.stats.ring_full += counted.map_or(0, |counted| u64::from(counted.tp_drops));
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Source for Ring {
    fn receive(&mut self, timeout_ms: u32, take: &mut dyn FnMut(&[Packet<'_>])) -> Result<usize, Error> {
        if !self.ready() {
            let mut poll_fds = [sys::readable(self.socket.as_fd())];
            sys::poll(&mut poll_fds, timeout_ms).map_err(Error::failed("poll", &self.interface))?;
            if poll_fds[0].revents & (libc::POLLERR | libc::POLLHUP) != 0
                && let Some(error) = sys::pending_error(&self.socket)
            {
                return Err(Error::new("receive", &self.interface, error));
            }
        }
        Ok(if self.ready() { self.deliver_block(take) } else { 0 })
    }

    /// Returns whether no block is ready. The kernel hands over a block that is not full after 4 ms, so frames may still be
    /// waiting.
    fn is_drained(&self) -> bool {
        !self.ready()
    }

    fn stats(&mut self) -> Stats {
        self.note_drops();
        self.stats
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            self.ports.first().copied().unwrap_or(0),
        )
    }

    fn kind(&self) -> &'static str {
        "packet"
    }
}

/// A frame in the ring, after its header.
struct Frame<'a> {
    data: &'a [u8],
    /// Offset of the next frame from this one, bytes.
    step: usize,
    received: u64,
    truncated: bool,
    /// Whether the UDP checksum is not complete yet, as within one machine, or is known to be right.
    is_checked: bool,
    /// Payload bytes per datagram of an unsegmented frame (GSO); the last datagram may be shorter.
    segment: Option<usize>,
}

impl<'a> Frame<'a> {
    /// Parses a frame, which begins with `struct tpacket3_hdr`. The kernel wrote it; offsets outside are refused nevertheless.
    fn new(bytes: &'a [u8]) -> Option<Self> {
        use std::mem::offset_of;
        type Header = libc::tpacket3_hdr;
        bytes.get(..size_of::<Header>())?;
        let captured = word(bytes, offset_of!(Header, tp_snaplen)) as usize;
        let mac = usize::from(half(bytes, offset_of!(Header, tp_mac)));
        let data = bytes.get(mac..mac.checked_add(captured)?)?;
        let seconds = i64::from(word(bytes, offset_of!(Header, tp_sec)));
        let nanos = i64::from(word(bytes, offset_of!(Header, tp_nsec)));
        Some(Self {
            data,
            step: word(bytes, offset_of!(Header, tp_next_offset)) as usize,
            received: nanoseconds(seconds, nanos),
            truncated: word(bytes, offset_of!(Header, tp_len)) as usize > captured,
            is_checked: word(bytes, offset_of!(Header, tp_status)) & CHECKED != 0,
            segment: segment(bytes.get(mac.checked_sub(VIRTIO_HEADER)?..mac)?),
        })
    }

    /// Passes the frame's datagrams to our ports to `take`, and counts malformed ones.
    fn datagrams(&self, ports: &[u16], stats: &mut Stats, mut take: impl FnMut(Packet<'a>, &mut Stats)) {
        let datagram = match frame::datagram(self.data) {
            Ok(datagram) if ports.contains(&datagram.dst_port) => datagram,
            // The filter is coarse: it accepts some datagrams to other ports.
            Ok(_) => return,
            Err(refusal) => {
                let dst_port = frame::PartialHeaders::of_frame(self.data).dst_port;
                let ours = dst_port.is_some_and(|dst_port| ports.contains(&dst_port));
                stats.refused[refusal.index()] += u64::from(ours);
                return;
            }
        };
        let is_checked = self.is_checked || self.truncated || self.segment.is_some();
        if !is_checked && !frame::checksum_holds(self.data, &datagram) {
            stats.bad_checksum += 1;
            return;
        }
        let source = SocketAddr::new(datagram.src, datagram.src_port);
        let payload = datagram.payload;
        let segment = self.segment.unwrap_or(payload.len()).max(1);
        let last = payload.len().saturating_sub(1) / segment * segment;
        for start in (0..=last).step_by(segment) {
            let data = &payload[start..payload.len().min(start + segment)];
            take(
                Packet {
                    data,
                    source,
                    port: datagram.dst_port,
                    received: self.received,
                    truncated: self.truncated && start == last,
                },
                stats,
            );
        }
    }
}

/// Reads the segment length from `struct virtio_net_hdr`. Within one machine, several datagrams travel as one (UDP segmentation
/// offload), and nothing splits them before the ring.
fn segment(header: &[u8]) -> Option<usize> {
    // Offsets of the fields `gso_type` and `gso_size`.
    const KIND: usize = 1;
    const SIZE: usize = 4;
    /// `VIRTIO_NET_HDR_GSO_UDP_L4`; the highest bit of the type is an ECN flag, which is masked.
    const UDP: u8 = 5;
    (header.get(KIND)? & 0x7f == UDP)
        .then(|| usize::from(half(header, SIZE)))
        .filter(|&size| size > 0)
}

/// Makes the kernel reassemble fragments, by a fanout group of one socket. If it does not, they are counted as refused.
fn defragment(socket: &OwnedFd) {
    let flags =
        libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_DEFRAG | libc::PACKET_FANOUT_FLAG_UNIQUEID;
    let received_only = flags | sys::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    // Without the flag, outgoing fragments are reassembled too, and then rejected by the filter.
    let _ = join_fanout(socket, received_only).or_else(|_| join_fanout(socket, flags));
}

fn join_fanout(socket: &OwnedFd, flags: u32) -> std::io::Result<()> {
    sys::set(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_FANOUT,
        &(flags << 16).cast_signed(),
    )
}

/// Opens UDP sockets on these ports of the interface, for both families, that receive nothing. Other interfaces are not
/// affected.
fn hold(interface: &str, ports: &[u16]) -> Result<Vec<OwnedFd>, Error> {
    let mut sockets = Vec::new();
    for &port in ports {
        let socket = udp::any_address(port, Some(interface))?;
        sys::attach_filter(&socket, &filter::NOTHING)
            .map_err(Error::failed("setsockopt SO_ATTACH_FILTER", port))?;
        sockets.push(socket);
    }
    Ok(sockets)
}
