//! Reads capture files: detects pcap or pcapng, and returns frames one by one or in bursts.

use std::fs::File;
use std::io::Read;
use std::mem;
use std::path::Path;
use std::slice;

use super::buffer::Buffer;
use super::error::{Error, Fault};
use super::pcap::Pcap;
use super::pcapng::{InterfaceId, Pcapng};
use super::{BURST, Frame, PacketRef};

/// Reads the frames of a capture, one by one or in bursts.
#[derive(Debug)]
pub struct Reader<R = File> {
    buffer: Buffer<R>,
    format: Format,
    total: Option<u64>,
    /// The packets of the last burst.
    burst: Vec<PacketRef>,
    end: End,
}

/// Frames that a [`Reader`] lends together.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    memory: &'a [u8],
    packets: slice::Iter<'a, PacketRef>,
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        self.packets.next().map(|packet| lend(self.memory, packet))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.packets.size_hint()
    }
}

impl ExactSizeIterator for Frames<'_> {}

/// Tells whether the rest of the file can be parsed.
#[derive(Debug)]
enum End {
    NotYet,
    /// An error was found, to be returned after the packets before it.
    Found(Error),
    /// The error was already returned.
    Returned,
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl Format {
    #[inline]
    fn next<R: Read>(&mut self, buffer: &mut Buffer<R>) -> Result<Option<PacketRef>, Error> {
        match self {
            Self::Pcap(pcap) => pcap.next(buffer),
            Self::Pcapng(pcapng) => pcapng.next(buffer),
        }
    }
}

impl Reader<File> {
    /// Opens a pcap or pcapng file, gzipped or not; the format is recognised by the first bytes.
    ///
    /// # Errors
    /// The file cannot be opened or read, or is not a capture.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::from_file(File::open(path).map_err(|error| Error::new(0, Fault::Open(error)))?)
    }

    /// Reads an open file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a capture.
    pub fn from_file(file: File) -> Result<Self, Error> {
        // Pipes have no length. Neither do directories, whose first read fails.
        let total = file
            .metadata()
            .ok()
            .filter(std::fs::Metadata::is_file)
            .map(|metadata| metadata.len());
        let mut reader = Self::new(file)?;
        reader.total = total;
        Ok(reader)
    }
}

impl<R: Read> Reader<R> {
    /// Reads a capture from any reader.
    ///
    /// # Errors
    /// The input cannot be read, or is not a capture.
    pub fn new(input: R) -> Result<Self, Error> {
        let mut buffer = Buffer::new(input)?;
        buffer.require(4)?;
        let format = if let Some(pcap) = Pcap::open(&mut buffer)? {
            Format::Pcap(pcap)
        } else if let Some(pcapng) = Pcapng::open(buffer.bytes()) {
            Format::Pcapng(pcapng)
        } else {
            let mut begins = [0; 4];
            begins.copy_from_slice(&buffer.bytes()[..4]);
            return Err(Error::new(0, Fault::NotACapture(begins)));
        };
        Ok(Self {
            buffer,
            format,
            total: None,
            burst: Vec::with_capacity(BURST),
            end: End::NotYet,
        })
    }

    /// Returns the next frame, or `None` at the end of the file and after an error.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    #[inline]
    pub fn next(&mut self) -> Option<Result<Frame<'_>, Error>> {
        let packet = self.packet()?;
        Some(packet.map(|packet| lend(self.buffer.memory(), &packet)))
    }

    /// Returns the next frames: up to [`BURST`] that are already in the buffer, or else one. An error is returned after the
    /// frames before it; then there are no more.
    pub fn burst(&mut self) -> Option<Result<Frames<'_>, Error>> {
        let first = match self.packet()? {
            Ok(first) => first,
            Err(error) => return Some(Err(error)),
        };
        self.burst.clear();
        self.burst.push(first);
        self.fill_burst();
        Some(Ok(Frames {
            memory: self.buffer.memory(),
            packets: self.burst.iter(),
        }))
    }

    /// Adds the packets that can be parsed without reading the file.
    fn fill_burst(&mut self) {
        self.buffer.hold();
        let mut error = None;
        while self.burst.len() < BURST {
            match self.format.next(&mut self.buffer) {
                Ok(Some(packet)) => self.burst.push(packet),
                Ok(None) => break,
                Err(read_error) => {
                    error = Some(read_error);
                    break;
                }
            }
        }
        // If the buffer was too short, the error may be a consequence: the next call reads more.
        if !self.buffer.release()
            && let Some(error) = error
        {
            self.end = End::Found(error);
        }
    }

    #[inline]
    fn packet(&mut self) -> Option<Result<PacketRef, Error>> {
        if !matches!(self.end, End::NotYet) {
            return match mem::replace(&mut self.end, End::Returned) {
                End::Found(error) => Some(Err(error)),
                End::NotYet | End::Returned => None,
            };
        }
        let packet = self.format.next(&mut self.buffer);
        if packet.is_err() {
            self.end = End::Returned;
        }
        packet.transpose()
    }

    /// Returns the number of interfaces described so far in the section that is read; 1 in pcap.
    pub fn interfaces(&self) -> usize {
        match &self.format {
            Format::Pcap(_) => 1,
            Format::Pcapng(pcapng) => pcapng.interfaces(),
        }
    }

    /// Returns what identifies the interface with this [`Frame::interface`]: `None` in pcap, and before it is described.
    pub fn interface_id(&self, number: u16) -> Option<&InterfaceId> {
        match &self.format {
            Format::Pcap(_) => None,
            Format::Pcapng(pcapng) => pcapng.interface_id(number),
        }
    }

    /// Returns the number of bytes read from the file so far, for progress display; slightly ahead of the frames.
    pub fn bytes_read(&self) -> u64 {
        self.buffer.bytes_read()
    }

    /// Returns the length of the file, if it has one.
    pub fn total_bytes(&self) -> Option<u64> {
        self.total
    }
}

#[inline]
fn lend<'a>(memory: &'a [u8], packet: &PacketRef) -> Frame<'a> {
    let data = &memory[packet.start..packet.start + packet.len];
    let truncated = packet.length as usize > packet.len;
    Frame {
        ts: packet.ts,
        data,
        link: packet.link,
        length: packet.length,
        truncated,
        interface: packet.interface,
    }
}
