//! Errors of capture files, with the offset in the file and advice for the user.

use std::fmt;
use std::io;

/// An error in a capture file, and its position.
#[derive(Debug)]
pub struct Error {
    /// Offset in the file, after decompression if it is gzipped.
    pub offset: u64,
    /// The error at that position.
    pub fault: Fault,
}

/// An error in a capture file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The file could not be opened or created.
    Open(io::Error),
    /// The file could not be read.
    Read(io::Error),
    /// The file could not be written.
    Write(io::Error),
    /// The file is not a capture; the value has its first bytes.
    NotACapture([u8; 4]),
    /// The file ends inside a packet or header.
    Cut,
    /// A length field exceeds the limit.
    TooLong {
        /// The field that contains the length.
        what: &'static str,
        /// Length that the field contains, bytes.
        length: u64,
        /// The limit that it exceeds, bytes.
        limit: u64,
    },
    /// The file is inconsistent, or violates the format.
    Malformed(&'static str),
}

impl Error {
    pub(super) fn new(offset: u64, fault: Fault) -> Self {
        Self { offset, fault }
    }

    /// Converts a failed read, and distinguishes errors of decompression from errors of the disk.
    pub(super) fn read(offset: u64, error: io::Error) -> Self {
        let fault = match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Cut,
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                Fault::Malformed("the gzipped data is corrupt")
            }
            _ => Fault::Read(error),
        };
        Self { offset, fault }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.offset;
        match &self.fault {
            Fault::Open(error) if error.kind() == io::ErrorKind::NotFound => {
                f.write_str("there is no such file: check the path")
            }
            Fault::Open(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                f.write_str("permission is missing: check the file's owner and mode")
            }
            // Opening a directory succeeds on Linux; its first read does not.
            Fault::Open(error) | Fault::Read(error) if error.kind() == io::ErrorKind::IsADirectory => {
                f.write_str("is a directory: name the captures in it")
            }
            Fault::Open(error) => write!(f, "cannot be opened: {error}"),
            Fault::Read(error) => write!(f, "cannot be read at byte {offset}: {error}"),
            Fault::Write(error) => write!(f, "cannot be written at byte {offset}: {error}"),
            Fault::NotACapture([a, b, c, d]) => write!(
                f,
                "not a capture (it begins with {a:02x} {b:02x} {c:02x} {d:02x}): give a pcap or pcapng file, gzipped or not"
            ),
            Fault::Cut if offset == 0 => f.write_str("the file is too short for a capture"),
            Fault::Cut => {
                write!(
                    f,
                    "the file ends in the middle of a packet that begins at byte {offset}: it was cut"
                )
            }
            Fault::TooLong { what, length, limit } => {
                write!(
                    f,
                    "at byte {offset}: a {what} has an implausible length of {length} bytes (at most {limit}): the file is damaged"
                )
            }
            Fault::Malformed(what) => write!(f, "at byte {offset}: {what}: the file is damaged"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Open(error) | Fault::Read(error) | Fault::Write(error) => Some(error),
            _ => None,
        }
    }
}
