//! Reads captures of every supported format.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::Frame;
use super::buffer::Buffer;
use super::error::{Error, Fault};
use super::pcap::Pcap;
use super::pcapng::Pcapng;

/// Reads the frames of a capture, one after the other.
#[derive(Debug)]
pub struct Reader<R = File> {
    buffer: Buffer<R>,
    format: Format,
    total: Option<u64>,
    /// An error was returned: the rest of the file cannot be parsed.
    broken: bool,
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl Reader<File> {
    /// Opens a pcap or pcapng file, gzipped or not; the first bytes give the format.
    ///
    /// # Errors
    /// It cannot be opened or read, or is not a capture.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::new(0, Fault::Open(error)))?;
        // A pipe has no length, nor has a directory, which cannot be read.
        let total = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
        let mut reader = Self::new(file)?;
        reader.total = total;
        Ok(reader)
    }
}

impl<R: Read> Reader<R> {
    /// Reads a capture from any reader.
    ///
    /// # Errors
    /// It cannot be read, or is not a capture.
    pub fn new(input: R) -> Result<Self, Error> {
        let failed = |error| Error::read(0, error);
        let mut buffer = Buffer::new(input).map_err(failed)?;
        if !buffer.need(4).map_err(failed)? {
            return Err(Error::new(0, Fault::Cut));
        }
        let format = if let Some(pcap) = Pcap::open(&mut buffer)? {
            Format::Pcap(pcap)
        } else if let Some(pcapng) = Pcapng::open(buffer.bytes()) {
            Format::Pcapng(pcapng)
        } else {
            let mut begins = [0; 4];
            begins.copy_from_slice(&buffer.bytes()[..4]);
            return Err(Error::new(0, Fault::NotACapture(begins)));
        };
        Ok(Self { buffer, format, total: None, broken: false })
    }

    /// The next frame. After an error there is none.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    #[inline]
    pub fn next(&mut self) -> Option<Result<Frame<'_>, Error>> {
        if self.broken {
            return None;
        }
        let found = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.buffer),
            Format::Pcapng(pcapng) => pcapng.next(&mut self.buffer),
        };
        match found {
            Ok(None) => None,
            Ok(Some(found)) => {
                let data = self.buffer.consumed(found.start, found.len);
                let truncated = found.length as usize > found.len;
                Some(Ok(Frame { ts: found.ts, data, link: found.link, length: found.length, truncated }))
            }
            Err(error) => {
                self.broken = true;
                Some(Err(error))
            }
        }
    }

    /// Bytes read from the file so far, for progress display: slightly ahead of the frames.
    pub fn bytes_read(&self) -> u64 {
        self.buffer.bytes_read()
    }

    /// Length of the file, if it has one.
    pub fn total_bytes(&self) -> Option<u64> {
        self.total
    }
}
