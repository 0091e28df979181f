//! Capture files: reads pcap and pcapng in both byte orders, also gzipped, and writes pcap.
//!
//! A [`Reader`] lends frames one by one, or several together, from a buffer of fixed size: nothing is allocated per frame, and
//! a hostile file can neither make it grow nor loop endlessly. A file that ends inside a packet gives an error with the offset,
//! after all packets before it. A [`Writer`] writes pcap with nanosecond timestamps.
//!
//! ```
//! use nic::capture::{LinkType, Reader, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), LinkType::Ethernet)?;
//! writer.write(1_700_000_000_000_000_000, &[0xff; 60])?;
//! let file = writer.finish()?;
//!
//! let mut reader = Reader::new(file.as_slice())?;
//! let frame = reader.next().ok_or("one frame")??;
//! assert_eq!((frame.ts, frame.link, frame.data), (1_700_000_000_000_000_000, LinkType::Ethernet, &[0xff; 60][..]));
//! assert!(reader.next().is_none());
//!
//! assert!(Reader::new(&b"neither pcap nor pcapng"[..]).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod buffer;
mod error;
pub mod fuzz;
mod link;
mod pcap;
mod pcapng;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use error::{Error, Fault};
pub use link::{Layer, LinkType};
pub use pcapng::InterfaceId;
pub use reader::{Frames, Reader};
pub use writer::Writer;

/// Maximum length of a packet, bytes: the snapshot length with which capture programs store whole packets.
pub const MAX_PACKET: usize = 262_144;
/// Maximum number of frames that [`Reader::burst`] lends together.
pub const BURST: usize = 64;

/// A captured frame, borrowed from the reader until the next is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Capture time, ns since the epoch; 0 for a simple packet block, which has no timestamp.
    pub ts: u64,
    /// The captured bytes of the frame.
    pub data: &'a [u8],
    /// The type of the header at the start of `data`.
    pub link: LinkType,
    /// Length of the frame on the wire, bytes.
    pub length: u32,
    /// True if only a part of the frame was captured.
    pub truncated: bool,
    /// Number of the interface in a pcapng file; 0 in pcap. Sections number their interfaces anew: one with the name of an earlier
    /// one is the same, and so is one without a name and with the same number. See [`Reader::interface_id`].
    pub interface: u16,
}

impl<'a> Frame<'a> {
    /// Returns the frame from its Ethernet or network header on.
    pub fn layer(&self) -> Layer<'a> {
        self.link.layer(self.data)
    }
}

/// Byte order of a file or section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// Returns the number at `at`, which the caller has checked to be inside.
    #[inline]
    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let mut four = [0; 4];
        four.copy_from_slice(&bytes[at..at + 4]);
        match self {
            Self::Little => u32::from_le_bytes(four),
            Self::Big => u32::from_be_bytes(four),
        }
    }

    /// Returns the number at `at`, which the caller has checked to be inside.
    #[inline]
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let two = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(two),
            Self::Big => u16::from_be_bytes(two),
        }
    }
}

/// Position and metadata of a packet in the buffer, from which a [`Frame`] is made.
#[derive(Clone, Copy, Debug)]
struct PacketRef {
    ts: u64,
    /// Offset of its bytes in the buffer's memory, and their number.
    start: usize,
    len: usize,
    link: LinkType,
    length: u32,
    interface: u16,
}
