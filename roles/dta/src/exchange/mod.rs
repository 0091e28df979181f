//! The exchange: a TCP connection on which a translator and a collector's memory set up RDMA queue pairs. Each side sends JSON
//! objects, one per line; `docs/reference/dta-exchange.md` documents the protocol.
//!
//! The translator sends `hello`, the collector answers `accept` or `refused`, and then both send `keepalive` every
//! `KEEPALIVE_INTERVAL`. A side that receives nothing for `PEER_TIMEOUT` closes; the translator reconnects with
//! exponential backoff. With a shared secret, both sides first prove that they know it (`handshake.rs`), and every later line
//! carries an authentication tag.

mod admission;
pub(crate) mod client;
#[cfg(test)]
mod fuzz;
pub(crate) mod handshake;
pub mod secret;
#[cfg(test)]
mod secret_tests;
pub(crate) mod server;
#[cfg(test)]
mod tests;

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{IpAddr, TcpStream},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use wire::dta::hash::Family;
use wire::dta::layout::{Columns, Geometry, MergeOp, Ring, SketchKind};

pub use admission::AdmissionView;
pub(crate) use admission::by_name;
use dta::fields::{hex, unhex};
use handshake::{RefusalCause, Refused, check_version};
use secret::{LEN, Nonce, Seals};

/// Protocol version. Other versions are refused.
pub(crate) const VERSION: u32 = 1;
/// Longest interval between two messages of one side.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// A side that sends nothing for this long counts as disconnected.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest line, bytes. It fits an `accept` with the sequence numbers of 65,536 lists.
const MAX_LINE: usize = 4 << 20;
/// Longest line from an unauthenticated peer, and from a translator at any time, bytes.
const MAX_SHORT_LINE: usize = 4 << 10;
/// Maximum length of `instance`, bytes.
const MAX_INSTANCE: usize = 64;

/// A message of the exchange. Unknown fields are ignored, so that minor extensions stay compatible.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Message {
    /// The translator's first message, if it has a secret.
    Begin(Begin),
    /// The collector's response to `begin`.
    Challenge {
        /// Random for this connection, in hexadecimal.
        nonce: String,
    },
    /// Proof of knowing the secret, first by the translator, then by the collector.
    Proof {
        /// The proof in hexadecimal ([`secret::Secret::proof`]).
        proof: String,
    },
    /// The translator's first message without a secret, or its message after the proofs.
    Hello(Hello),
    /// The collector's response to `hello`.
    Accept(Accept),
    /// The collector refuses the connection.
    Refused {
        /// The reason as one sentence.
        reason: String,
        /// Name of the cause ([`handshake::RefusalCause`]), if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
    Keepalive,
}

/// Starts the authentication: the translator demands a proof and offers its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// Version of the exchange's protocol: [`VERSION`].
    pub(crate) version: u32,
    /// Random for this connection, in hexadecimal.
    pub(crate) nonce: String,
}

/// The translator's identity and its ends of the queue pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Version of the exchange's protocol: [`VERSION`].
    pub(crate) version: u32,
    /// Random ID of the process, in hexadecimal. A connection with the same `instance` and `link` is the same link reconnecting.
    pub(crate) instance: String,
    /// Index of this link within the translator.
    pub(crate) link: u8,
    /// Source address of its RoCEv2 packets, and destination of responses.
    pub(crate) address: IpAddr,
    /// UDP port of its requests, to which responses go; standard RoCEv2 sends responses to port 4791 only.
    pub(crate) port: u16,
    /// Path MTU: longest payload of an RDMA packet, bytes.
    pub(crate) mtu: u16,
    /// The translator's unreliable queue pair.
    pub(crate) unreliable: End,
    /// The translator's reliable queue pair.
    pub(crate) reliable: End,
}

/// One end of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// The queue pair number (QPN).
    pub(crate) queue_pair: u32,
    /// The PSN of the first packet that it sends.
    pub(crate) psn: u32,
}

/// The collector's stores and its ends of the queue pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Accept {
    /// Version of the exchange's protocol: [`VERSION`].
    pub(crate) version: u32,
    /// Random ID of this memory, in hexadecimal, drawn at its start.
    pub(crate) instance: String,
    /// Destination address of RoCEv2 packets.
    pub(crate) address: IpAddr,
    /// Destination UDP port of RoCEv2 packets.
    pub(crate) port: u16,
    /// Path MTU, bytes: the smaller of both sides' limits.
    pub(crate) mtu: u16,
    /// The collector's unreliable queue pair. Without one, all operations use the reliable one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unreliable: Option<u32>,
    /// The collector's reliable queue pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reliable: Option<u32>,
    /// Maximum number of outstanding atomics (FETCH_AND_ADD).
    pub(crate) atomics: u32,
    /// The PSN that the responder expected next on this link's previous reliable queue pair, if still known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) executed: Option<u32>,
    /// The DTA stores in the collector's memory.
    pub(crate) stores: Vec<StoreOffer>,
}

/// A DTA store: a memory region and the layout of its contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoreOffer {
    /// The store's configured name.
    pub(crate) name: String,
    /// Index of the region within this connection.
    pub(crate) region: u16,
    /// The store ID or sketch ID; for lists, the first list ID.
    pub(crate) id: u32,
    /// The virtual address of the body, in hexadecimal, because JSON numbers are exact only up to 53 bits.
    pub(crate) address: String,
    /// Length of the body, bytes.
    pub(crate) length: u64,
    /// The R_Key of the region.
    pub(crate) key: u32,
    /// The layout of the store.
    #[serde(flatten)]
    pub(crate) shape: Shape,
}

/// The layout of a store: a [`Geometry`], and state that only the translator needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Shape {
    KeyWrite {
        slots: u64,
        data: u16,
        hash: String,
    },
    Append {
        lists: u32,
        entry: u16,
        entries: u64,
        batch: u16,
        tagged: bool,
        /// Entries of 4 bytes are little-endian in memory, as the published DTA artifact writes them.
        #[serde(default)]
        swapped: bool,
        /// Next sequence number by list; for untagged lists, the index of the next entry.
        next: Vec<u64>,
    },
    KeyIncrement {
        slots: u64,
        hash: String,
    },
    Sketch {
        sketch: String,
        depth: u8,
        columns: u32,
        width: u8,
        reporters: u32,
    },
    Postcarding {
        slots: u64,
        hops: u8,
        hash: String,
    },
}

impl Shape {
    /// Describes `geometry`. For `next` and `swapped` see [`Shape::Append`], for `reporters` [`Shape::Sketch`].
    pub(crate) fn from_geometry(geometry: &Geometry, next: Vec<u64>, swapped: bool, reporters: u32) -> Self {
        match *geometry {
            Geometry::KeyWrite {
                slots,
                data_len,
                family,
            } => Self::KeyWrite {
                slots,
                data: data_len,
                hash: family.name().to_owned(),
            },
            Geometry::Append { lists, ring, .. } => Self::Append {
                lists,
                entry: ring.entry_len,
                entries: ring.entries,
                batch: ring.batch,
                tagged: ring.tagged,
                swapped,
                next,
            },
            Geometry::KeyIncrement { slots, family } => Self::KeyIncrement {
                slots,
                hash: family.name().to_owned(),
            },
            Geometry::Sketch { kind, shape, .. } => Self::Sketch {
                sketch: kind.name().to_owned(),
                depth: shape.depth,
                columns: shape.columns,
                width: shape.width,
                reporters,
            },
            Geometry::Postcarding { slots, hops, family } => Self::Postcarding {
                slots,
                hops,
                hash: family.name().to_owned(),
            },
        }
    }
}

impl Hello {
    /// Checks the version and the instance.
    fn check(&self) -> Result<(), Refused> {
        check_version(self.version)?;
        // The instance is stored as long as the link's queue pairs, so its length is limited.
        let digits = 1..=MAX_INSTANCE;
        if !digits.contains(&self.instance.len())
            || !self.instance.bytes().all(|byte| byte.is_ascii_alphanumeric())
        {
            let text = format!("an instance has 1 to {MAX_INSTANCE} letters and digits");
            return Err(Refused::new(RefusalCause::Malformed, text));
        }
        Ok(())
    }
}

impl StoreOffer {
    /// Returns the geometry of the offer, or `None` if it is invalid or exceeds the offered length.
    pub(crate) fn geometry(&self) -> Option<Geometry> {
        let geometry = match &self.shape {
            Shape::KeyWrite { slots, data, hash } => Geometry::KeyWrite {
                slots: *slots,
                data_len: *data,
                family: Family::from_name(hash)?,
            },
            Shape::Append {
                lists,
                entry,
                entries,
                batch,
                tagged,
                ..
            } => Geometry::Append {
                lists: *lists,
                first_list: self.id,
                ring: Ring {
                    entry_len: *entry,
                    entries: *entries,
                    batch: *batch,
                    tagged: *tagged,
                },
            },
            Shape::KeyIncrement { slots, hash } => Geometry::KeyIncrement {
                slots: *slots,
                family: Family::from_name(hash)?,
            },
            Shape::Sketch {
                sketch,
                depth,
                columns,
                width,
                ..
            } => {
                let kind = SketchKind::from_name(sketch)?;
                let op: MergeOp = kind.op();
                Geometry::Sketch {
                    kind,
                    op,
                    shape: Columns {
                        depth: *depth,
                        columns: *columns,
                        width: *width,
                    },
                }
            }
            Shape::Postcarding { slots, hops, hash } => Geometry::Postcarding {
                slots: *slots,
                hops: *hops,
                family: Family::from_name(hash)?,
            },
        };
        geometry.check().ok()?;
        (geometry.body_len() <= self.length).then_some(geometry)
    }

    /// Returns the virtual address, or `None` if `address` is not a hexadecimal number.
    pub(crate) fn va(&self) -> Option<u64> {
        u64::from_str_radix(&self.address, 16).ok()
    }
}

/// A connection that carries one message per line.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    /// The received part of an incomplete line.
    partial: Vec<u8>,
    /// Longest accepted line, bytes.
    max_line: usize,
    /// Keys of the tags that precede every line after the proofs.
    seals: Option<Seals>,
}

/// The result of [`Connection::receive`].
#[derive(Debug, PartialEq)]
pub(crate) enum Received {
    Message(Box<Message>),
    /// No complete line arrived within the read timeout.
    Nothing,
    /// The peer closed the connection.
    Closed,
    /// The line is not a valid message; the reason, as one sentence.
    Malformed(String),
    /// The tag is missing or invalid, so the sender is not the authenticated peer.
    Forged,
}

impl Connection {
    /// Wraps `stream` with this read timeout. Accepts short lines only.
    pub(crate) fn new(stream: TcpStream, read_timeout: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(read_timeout))?;
        stream.set_write_timeout(Some(PEER_TIMEOUT))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self {
            stream,
            reader,
            partial: Vec::new(),
            max_line: MAX_SHORT_LINE,
            seals: None,
        })
    }

    /// Accepts the long lines that a collector sends.
    pub(crate) fn allow_long_lines(&mut self) {
        self.max_line = MAX_LINE;
    }

    /// Authenticates each further line, in both directions.
    pub(crate) fn seal(&mut self, seals: Seals) {
        self.seals = Some(seals);
    }

    /// Sends a message as one line, with a tag if the connection is sealed.
    pub(crate) fn send(&mut self, message: &Message) -> io::Result<()> {
        let mut line = write(message, self.seals.as_mut())?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// Receives a line with at most one read, so that a peer that sends single bytes cannot delay the caller's deadline.
    pub(crate) fn receive(&mut self) -> Received {
        let (is_whole_line, consumed) = match self.reader.fill_buf() {
            Ok([]) => return Received::Closed,
            Ok(bytes) => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let consumed = end.map_or(bytes.len(), |end| end + 1);
                self.partial.extend_from_slice(&bytes[..consumed]);
                (end.is_some(), consumed)
            }
            Err(error) => {
                use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
                let transient = matches!(error.kind(), WouldBlock | TimedOut | Interrupted);
                return if transient {
                    Received::Nothing
                } else {
                    Received::Closed
                };
            }
        };
        self.reader.consume(consumed);
        if self.partial.len() > self.max_line {
            let (limit, unit) = if self.max_line < 1 << 20 {
                (self.max_line >> 10, "KiB")
            } else {
                (self.max_line >> 20, "MiB")
            };
            return Received::Malformed(format!("a line is longer than {limit} {unit}"));
        }
        if !is_whole_line {
            return Received::Nothing;
        }
        let mut line = std::mem::take(&mut self.partial);
        line.pop();
        read(&line, self.seals.as_mut())
    }
}

/// Formats a message as a line without its newline. With seals, a tag in hexadecimal and a space precede it.
pub(crate) fn write(message: &Message, seals: Option<&mut Seals>) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(message)?;
    let Some(seals) = seals else { return Ok(json) };
    let mut line = hex(&seals.tag(&json)).into_bytes();
    line.push(b' ');
    line.extend_from_slice(&json);
    Ok(line)
}

/// Parses a line that [`write`] formats. Verifies the tag before it parses the message.
pub(crate) fn read(line: &[u8], seals: Option<&mut Seals>) -> Received {
    let json = match seals {
        None => line,
        Some(seals) => match sealed(line, seals) {
            Some(json) => json,
            None => return Received::Forged,
        },
    };
    match serde_json::from_slice(json) {
        Ok(message) => Received::Message(Box::new(message)),
        Err(error) => Received::Malformed(format!("not a message of version {VERSION}: {error}")),
    }
}

/// Verifies a line's tag and returns the message behind it.
fn sealed<'l>(line: &'l [u8], seals: &mut Seals) -> Option<&'l [u8]> {
    let (tag, rest) = line.split_at_checked(2 * LEN)?;
    let json = rest.strip_prefix(b" ")?;
    let tag = unhex(std::str::from_utf8(tag).ok()?)?;
    seals.is_next(&tag, json).then_some(json)
}

/// Parses a nonce from hexadecimal.
pub(crate) fn read_nonce(text: &str) -> Option<Nonce> {
    let digits = (text.len() == 2 * LEN).then_some(text)?;
    unhex(digits)?.try_into().ok()
}

/// Returns a random ID for this process, in hexadecimal.
pub(crate) fn instance() -> String {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(nic::time::now());
    hasher.write_u32(std::process::id());
    format!("{:016x}", hasher.finish())
}
