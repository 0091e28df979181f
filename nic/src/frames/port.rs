//! A port for whole frames: receives from a TPACKET_V2 ring, sends in batches with `sendmmsg`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;
use crate::sys::{self, Mapping, half, word};
use crate::time::nanoseconds;

/// Maximum number of frames per `sendmmsg` call.
const BATCH: usize = 64;
/// Bytes of a block of the ring.
const BLOCK: usize = 1 << 20;
/// Maximum frame length: the largest IP packet with the headers and tags before it.
const LONGEST: usize = (1 << 16) + 64;
/// Bytes of `struct virtio_net_hdr`.
const VIRTIO_HEADER: usize = 10;
/// Maximum bytes before a frame in a slot: headers, address, alignment, a tag.
const OVERHEAD: usize = 128;
/// Bytes of a VLAN tag.
const TAG: usize = 4;

/// Settings of a [`Port`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Number of frames that can wait to be received.
    pub frames: usize,
    /// Expected frame length, bytes. Longer frames (such as unsegmented ones, see [`Unfinished`]) need another copy.
    pub frame_len: usize,
    /// Lets sent frames bypass the interface's queueing discipline and its packet taps.
    pub bypass: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            frames: 1024,
            frame_len: 1518,
            bypass: false,
        }
    }
}

/// Offloaded work on a frame that is still to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unfinished {
    /// Missing checksum: (offset from which it covers the rest, offset of its field from there). The field contains the sum of
    /// the pseudo header.
    pub checksum: Option<(usize, usize)>,
    /// Payload length per segment, for TCP or UDP that must be segmented.
    pub segment: Option<usize>,
}

/// A frame that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedFrame<'a> {
    /// The frame from its Ethernet header on.
    pub data: &'a [u8],
    /// Time at which the kernel received it, ns since the epoch.
    pub received: u64,
    /// Work to be done before it is a regular frame on the wire.
    pub unfinished: Unfinished,
    /// True if the frame cannot be used: it was too long and `data` is its beginning, or it uses an obsolete kind of
    /// segmentation.
    pub unusable: bool,
}

/// Counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Number of frames delivered.
    pub received: u64,
    /// Frames dropped because the ring was full, that is, not read fast enough.
    pub ring_full: u64,
    /// Number of frames that the kernel accepted.
    pub sent: u64,
    /// Frames that the kernel refused.
    pub failed: u64,
}

/// A port on an interface.
#[derive(Debug)]
pub struct Port {
    socket: OwnedFd,
    interface: String,
    index: u32,
    memory: Mapping,
    /// Bytes of a slot; the block size is a multiple of it.
    slot: usize,
    slots: usize,
    at: usize,
    /// Memory for frames that are copied out of the ring.
    scratch: Vec<u8>,
    stats: Stats,
}

impl Port {
    /// Opens a port on `interface`, of the caller's network namespace.
    ///
    /// # Errors
    /// There is no such interface, CAP_NET_RAW is missing, or the kernel has no memory for the ring.
    pub fn open(interface: &str, options: &Options) -> Result<Self, Error> {
        let index = sys::interface_index(interface).map_err(Error::failed("open interface", interface))?;
        let socket = sys::packet_socket(interface)?;
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        for (option, value, call) in [
            (libc::PACKET_VERSION, version, "setsockopt PACKET_VERSION"),
            (libc::PACKET_VNET_HDR, 1, "setsockopt PACKET_VNET_HDR"),
            // The kernel queues frames that do not fit into a slot on the socket, whole.
            (libc::PACKET_COPY_THRESH, 1, "setsockopt PACKET_COPY_THRESH"),
            (
                libc::PACKET_QDISC_BYPASS,
                options.bypass.into(),
                "setsockopt PACKET_QDISC_BYPASS",
            ),
        ] {
            sys::set(&socket, libc::SOL_PACKET, option, &value).map_err(Error::failed(call, interface))?;
        }
        // Missing in older kernels; outgoing frames are then recognised by their packet type.
        let _ = sys::set(&socket, libc::SOL_PACKET, sys::PACKET_IGNORE_OUTGOING, &1);
        buffers(&socket);
        let slot = (options.frame_len + OVERHEAD)
            .next_power_of_two()
            .clamp(2048, BLOCK / 2);
        let blocks = (options.frames * slot).div_ceil(BLOCK).max(1);
        let slots = blocks * (BLOCK / slot);
        let shape = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: slots as u32,
        };
        sys::set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &shape)
            .map_err(Error::failed("setsockopt PACKET_RX_RING", interface))?;
        let memory = Mapping::shared(&socket, 0, blocks * BLOCK).map_err(Error::failed("mmap", interface))?;
        sys::bind_to_interface(&socket, index).map_err(Error::failed("bind AF_PACKET", interface))?;
        let all = libc::packet_mreq {
            mr_ifindex: index.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        sys::set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all)
            .map_err(Error::failed("setsockopt PACKET_ADD_MEMBERSHIP", interface))?;
        Ok(Self {
            socket,
            interface: interface.to_owned(),
            index,
            memory,
            slot,
            slots,
            at: 0,
            scratch: Vec::new(),
            stats: Stats::default(),
        })
    }

    /// Returns the name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns the interface's index when it was opened.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns whether a frame can be received.
    pub fn is_ready(&self) -> bool {
        // Acquire: pairs with the kernel's barrier before it sets the status (__packet_set_status in net/packet/af_packet.c),
        // so that the frame is there when the status says so.
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Passes at most `max` received frames to `take`, and returns their number. Does not wait.
    pub fn receive(&mut self, max: usize, take: &mut dyn FnMut(ReceivedFrame<'_>)) -> usize {
        let mut received = 0;
        while received < max && self.is_ready() {
            received += usize::from(self.deliver(take));
            // Release: our reads of the slot are done before the kernel, which reads the status first, writes there again.
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.at = (self.at + 1) % self.slots;
        }
        self.stats.received += received as u64;
        received
    }

    /// Sends frames, 64 per system call. Returns how many the kernel refused.
    pub fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        let mut processed = 0;
        let mut failed = 0;
        while processed < frames.len() {
            match send_batch(&self.socket, &frames[processed..]) {
                Ok(sent) => processed += sent.max(1),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The error is about the first frame: too long, interface down, or no buffer. The others may succeed.
                Err(_) => {
                    processed += 1;
                    failed += 1;
                }
            }
        }
        self.stats.sent += (frames.len() - failed) as u64;
        self.stats.failed += failed as u64;
        failed
    }

    /// Returns the port's counters, read from the kernel now.
    pub fn stats(&mut self) -> Stats {
        let nothing = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        // Reading sets the kernel's counters to 0.
        let counted = sys::get(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, nothing);
        self.stats.ring_full += counted.map_or(0, |counted| u64::from(counted.tp_drops));
        self.stats
    }

    /// Returns an error of the interface since the last call, if any: it is down, or was removed.
    pub fn failure(&self) -> Option<Error> {
        sys::pending_error(&self.socket).map(|source| Error::new("receive", &self.interface, source))
    }

    /// Returns whether the interface was removed, or replaced by another of the same name.
    pub fn is_gone(&self) -> bool {
        sys::interface_index(&self.interface).ok() != Some(self.index)
    }

    /// Returns the status word of the current slot, which says whether the kernel or this process owns it.
    fn status(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping (`at` is below `slots`), aligned, alive as long as `self`; both sides access it as a whole
        // word.
        unsafe { AtomicU32::from_ptr(self.memory.start().as_ptr().add(self.at * self.slot).cast()) }
    }

    /// Lends the frame of the current slot, which this process owns. Returns false if it is not a received frame.
    fn deliver(&mut self, take: &mut dyn FnMut(ReceivedFrame<'_>)) -> bool {
        let Self {
            memory,
            slot,
            at,
            scratch,
            socket,
            ..
        } = self;
        // SAFETY: inside the mapping; the kernel writes nothing there before our caller stores the status, and the slice does
        // not live until then.
        let bytes = unsafe { std::slice::from_raw_parts(memory.start().as_ptr().add(*at * *slot), *slot) };
        let Some(slot) = Slot::new(bytes) else {
            take(ReceivedFrame {
                data: &[],
                received: 0,
                unfinished: Unfinished::default(),
                unusable: true,
            });
            return true;
        };
        if slot.outgoing {
            return false;
        }
        let Slot {
            mut data,
            mut virtio,
            received,
            mut cut,
            ..
        } = slot;
        let mut copied = false;
        if slot.copied {
            scratch.resize(VIRTIO_HEADER + LONGEST, 0);
            match receive_whole(socket, scratch) {
                Some(len) if len >= VIRTIO_HEADER => {
                    scratch.truncate(len);
                    cut = false;
                    copied = true;
                }
                _ => cut = true,
            }
        }
        let mut header = [0; VIRTIO_HEADER];
        if copied {
            header.copy_from_slice(&scratch[..VIRTIO_HEADER]);
            scratch.drain(..VIRTIO_HEADER);
            virtio = &header;
        }
        let (mut unfinished, known) = read_virtio(virtio);
        if let Some(tag) = slot.tag {
            if !copied {
                scratch.clear();
                scratch.extend_from_slice(data);
            }
            put_tag(scratch, tag);
            copied = true;
            unfinished.checksum = unfinished.checksum.map(|(start, offset)| (start + TAG, offset));
        }
        if copied {
            data = scratch;
        }
        take(ReceivedFrame {
            data,
            received,
            unfinished,
            unusable: cut || !known,
        });
        true
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A slot that was read.
struct Slot<'a> {
    data: &'a [u8],
    virtio: &'a [u8],
    received: u64,
    cut: bool,
    /// True if the whole frame is queued on the socket.
    copied: bool,
    outgoing: bool,
    tag: Option<[u8; TAG]>,
}

impl<'a> Slot<'a> {
    /// Parses a slot, which begins with `struct tpacket2_hdr`. The kernel wrote it; offsets outside are refused nevertheless.
    fn new(bytes: &'a [u8]) -> Option<Self> {
        use std::mem::offset_of;
        type Header = libc::tpacket2_hdr;
        /// `struct sockaddr_ll` follows the header, aligned to 16.
        const PACKET_TYPE: usize =
            size_of::<Header>().next_multiple_of(16) + offset_of!(libc::sockaddr_ll, sll_pkttype);
        bytes.get(..PACKET_TYPE + 1)?;
        let status = word(bytes, offset_of!(Header, tp_status));
        let captured = word(bytes, offset_of!(Header, tp_snaplen)) as usize;
        let mac = usize::from(half(bytes, offset_of!(Header, tp_mac)));
        let seconds = i64::from(word(bytes, offset_of!(Header, tp_sec)));
        let nanos = i64::from(word(bytes, offset_of!(Header, tp_nsec)));
        let tpid = match half(bytes, offset_of!(Header, tp_vlan_tpid)) {
            tpid if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 => tpid,
            _ => 0x8100,
        };
        let control = half(bytes, offset_of!(Header, tp_vlan_tci)).to_be_bytes();
        let [a, b] = tpid.to_be_bytes();
        Some(Self {
            data: bytes.get(mac..mac.checked_add(captured)?)?,
            virtio: bytes.get(mac.checked_sub(VIRTIO_HEADER)?..mac)?,
            received: nanoseconds(seconds, nanos),
            cut: word(bytes, offset_of!(Header, tp_len)) as usize > captured,
            copied: status & libc::TP_STATUS_COPY != 0,
            outgoing: bytes[PACKET_TYPE] == libc::PACKET_OUTGOING,
            tag: (status & libc::TP_STATUS_VLAN_VALID != 0).then_some([a, b, control[0], control[1]]),
        })
    }
}

/// Reads `struct virtio_net_hdr`. Returns (unfinished work, true if its kind is supported).
fn read_virtio(header: &[u8]) -> (Unfinished, bool) {
    // Flag `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is not computed yet.
    const NEEDS_CHECKSUM: u8 = 1;
    // Segmentation types; the highest bit means ECN.
    const NONE: u8 = 0;
    const TCP_4: u8 = 1;
    const TCP_6: u8 = 4;
    const UDP: u8 = 5;
    const KIND: u8 = 0x7f;
    let &[flags, kind, _, _, s0, s1, c0, c1, o0, o1] = header else {
        return (Unfinished::default(), false);
    };
    let [size, start, offset] =
        [[s0, s1], [c0, c1], [o0, o1]].map(|bytes| usize::from(u16::from_ne_bytes(bytes)));
    let segment = match kind & KIND {
        NONE => None,
        TCP_4 | TCP_6 | UDP => Some(size),
        _ => return (Unfinished::default(), false),
    };
    let checksum = (flags & NEEDS_CHECKSUM != 0).then_some((start, offset));
    (Unfinished { checksum, segment }, true)
}

/// Inserts a VLAN tag after the MAC addresses.
fn put_tag(frame: &mut Vec<u8>, tag: [u8; TAG]) {
    // Length of the two MAC addresses.
    const ADDRESSES: usize = 12;
    let at = ADDRESSES.min(frame.len());
    frame.splice(at..at, tag);
}

/// Enlarges the socket buffers as far as permitted, for sending and for frames that do not fit into slots.
fn buffers(socket: &OwnedFd) {
    // Size of each buffer, bytes.
    const WANTED: i32 = 4 << 20;
    for (forced, limited) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        if sys::set(socket, libc::SOL_SOCKET, forced, &WANTED).is_err() {
            // If this fails too, the default still works.
            let _ = sys::set(socket, libc::SOL_SOCKET, limited, &WANTED);
        }
    }
}

/// Reads the first frame queued on the socket, after its virtio header. Returns `None` if there is none, or it is too long.
fn receive_whole(socket: &OwnedFd, into: &mut [u8]) -> Option<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let len = into.len();
    // SAFETY: the kernel writes at most `len` bytes to `into`, which is ours alone.
    let received = unsafe { libc::recv(socket.as_raw_fd(), into.as_mut_ptr().cast(), len, flags) };
    usize::try_from(received).ok().filter(|received| *received <= len)
}

/// Sends at most [`BATCH`] frames. Returns how many the kernel accepted, or the error of the first frame.
fn send_batch(socket: &OwnedFd, frames: &[Vec<u8>]) -> io::Result<usize> {
    /// The virtio header of a frame that leaves no work to the NIC.
    const FINISHED: [u8; VIRTIO_HEADER] = [0; VIRTIO_HEADER];
    // SAFETY: integers and pointers, for which zero (null) is a value.
    let mut vectors: [[libc::iovec; 2]; BATCH] = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    for ((frame, vector), header) in frames.iter().zip(&mut vectors).zip(&mut headers) {
        *vector = [sys::vector_of(&FINISHED), sys::vector_of(frame)];
        header.msg_hdr.msg_iov = vector.as_mut_ptr();
        header.msg_hdr.msg_iovlen = 2;
    }
    let count = frames.len().min(BATCH) as libc::c_uint;
    // SAFETY: `count` headers, each with two vectors that span bytes; the kernel reads them, and all live through the call.
    sys::check(unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            libc::MSG_DONTWAIT,
        )
    })
}
