//! Writes capture files in the classic pcap format, version 2.4, with timestamps in nanoseconds.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::error::{Error, Fault};
use super::pcap::MAGIC_NANOSECONDS;
use super::{LinkType, MAX_PACKET};

/// Writes a pcap file with timestamps in nanoseconds, little-endian.
#[derive(Debug)]
pub struct Writer<W: Write = File> {
    output: BufWriter<W>,
    offset: u64,
}

impl Writer<File> {
    /// Creates the file, or truncates an existing one.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: impl AsRef<Path>, link: LinkType) -> Result<Self, Error> {
        Self::new(
            File::create(path).map_err(|error| Error::new(0, Fault::Open(error)))?,
            link,
        )
    }
}

impl<W: Write> Writer<W> {
    /// Writes a capture to any writer.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn new(output: W, link: LinkType) -> Result<Self, Error> {
        // Major and minor version, 16 bits each, in little-endian order.
        const VERSION_2_4: u32 = 4 << 16 | 2;
        let mut writer = Self {
            output: BufWriter::with_capacity(1 << 18, output),
            offset: 0,
        };
        // Magic, version, time zone and accuracy (always 0), snap length, link type.
        let header = [
            MAGIC_NANOSECONDS,
            VERSION_2_4,
            0,
            0,
            MAX_PACKET as u32,
            u32::from(link.code()),
        ];
        header
            .into_iter()
            .try_for_each(|word| writer.put(&word.to_le_bytes()))?;
        Ok(writer)
    }

    /// Adds a complete frame captured at `ts` (ns since the epoch).
    ///
    /// # Errors
    /// It cannot be written, is longer than [`MAX_PACKET`], or its time is after the year 2106.
    pub fn write(&mut self, ts: u64, frame: &[u8]) -> Result<(), Error> {
        self.write_cut(ts, frame, frame.len() as u32)
    }

    /// Adds the captured part of a frame of `length` bytes.
    ///
    /// # Errors
    /// The same as for [`Writer::write`].
    pub fn write_cut(&mut self, ts: u64, frame: &[u8], length: u32) -> Result<(), Error> {
        if frame.len() > MAX_PACKET {
            let fault = Fault::TooLong {
                what: "packet",
                length: frame.len() as u64,
                limit: MAX_PACKET as u64,
            };
            return Err(Error::new(self.offset, fault));
        }
        let Ok(seconds) = u32::try_from(ts / 1_000_000_000) else {
            let late = io::Error::other("pcap files cannot hold times after the year 2106");
            return Err(Error::new(self.offset, Fault::Write(late)));
        };
        let header = [seconds, (ts % 1_000_000_000) as u32, frame.len() as u32, length];
        header
            .into_iter()
            .try_for_each(|word| self.put(&word.to_le_bytes()))?;
        self.put(frame)
    }

    /// Flushes the buffer and returns the output. Dropping the writer flushes it too, but cannot report errors.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(self) -> Result<W, Error> {
        let offset = self.offset;
        self.output
            .into_inner()
            .map_err(|error| Error::new(offset, Fault::Write(error.into_error())))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.output
            .write_all(bytes)
            .map_err(|error| Error::new(self.offset, Fault::Write(error)))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}
