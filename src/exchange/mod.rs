//! How a translator and a collector's memory find each other: a TCP connection on which each side sends JSON objects, one per
//! line. Documented for others in `docs/reference/dta-exchange.md`.
//!
//! The translator says `hello`, the collector answers `welcome` (or `refused`), then both say `alive` every
//! [`ALIVE_EVERY`]. A side that hears nothing for [`SILENCE`] closes; the translator comes again, waiting longer each time.
//!
//! Where a secret is shared, each first proves to the other that it knows it ([`handshake`]), and every message after that carries a tag.

pub(crate) mod client;
#[cfg(test)]
mod fuzz;
mod hall;
pub(crate) mod handshake;
pub(crate) mod secret;
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

use dta::fields::{hex, unhex};
pub(crate) use hall::{HallView, by_name};
use handshake::{Refused, Why, check_version};
use secret::{LEN, Nonce, Seals};

/// The version of these messages. Another one is refused.
pub(crate) const VERSION: u32 = 1;
/// Each side speaks at least so often.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// A side that says nothing for so long is gone.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);
/// Longest line, bytes: 65,536 lists with their numbers, and room to spare.
const LONGEST: usize = 4 << 20;
/// Longest line of somebody who has proved nothing, and of a translator at any time, bytes.
const LONGEST_SMALL: usize = 4 << 10;

/// A message. Unknown fields are ignored, so that a later minor change does not part old and new.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Message {
    /// The translator's first where there is a secret.
    Begin(Begin),
    /// The collector's answer to that.
    Challenge {
        /// In hexadecimal, drawn for this connection.
        nonce: String,
    },
    /// I know the secret: the translator's, then the collector's.
    Proof {
        /// In hexadecimal ([`secret::Secret::proof`]).
        proof: String,
    },
    /// The translator's first otherwise.
    Hello(Hello),
    /// The collector's answer.
    Welcome(Welcome),
    /// The collector's answer when it will not.
    Refused {
        /// One sentence.
        reason: String,
        /// Its name ([`handshake::Why`]), where it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
    /// I am still here.
    Alive,
}

/// A translator that wants proofs, and will give its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// In hexadecimal, drawn for this connection.
    pub(crate) nonce: String,
}

/// Longest `instance`.
const LONGEST_INSTANCE: usize = 64;

/// What a translator says of itself, and what it offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// Who it is, in hexadecimal: drawn at its start. One that comes again with the same `instance` and `link` is the same link.
    pub(crate) instance: String,
    /// Which of its links this is.
    pub(crate) link: u8,
    /// From where its RoCEv2 comes, and where answers go to.
    pub(crate) address: IpAddr,
    /// The UDP port of both; RoCEv2 otherwise answers to port 4791 only.
    pub(crate) port: u16,
    /// Longest payload of a packet, bytes.
    pub(crate) mtu: u16,
    /// Its unreliable queue pair.
    pub(crate) unreliable: End,
    /// Its reliable queue pair.
    pub(crate) reliable: End,
}

/// One end of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// Its number.
    pub(crate) queue_pair: u32,
    /// The number of the first packet that it sends.
    pub(crate) psn: u32,
}

/// What a collector has, and its ends of the queue pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// Which memory this is, in hexadecimal: drawn at its start.
    pub(crate) instance: String,
    /// Where RoCEv2 is to be sent.
    pub(crate) address: IpAddr,
    /// The UDP port there.
    pub(crate) port: u16,
    /// Longest payload of a packet, bytes: the smaller of both wishes.
    pub(crate) mtu: u16,
    /// Its unreliable queue pair; none: everything goes by the reliable one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unreliable: Option<u32>,
    /// Its reliable queue pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reliable: Option<u32>,
    /// Additions that may wait for their answers at a time.
    pub(crate) atomics: u32,
    /// The number of the packet that it expected next on this link's last reliable queue pair, if it still knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) executed: Option<u32>,
    /// What lies in its memory.
    pub(crate) stores: Vec<StoreOffer>,
}

/// A store: a region of memory, and what it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoreOffer {
    /// Its name, for people.
    pub(crate) name: String,
    /// The number of the region on this connection.
    pub(crate) region: u16,
    /// The store ID or sketch ID; of lists, the first list ID.
    pub(crate) id: u32,
    /// The virtual address of the body, in hexadecimal: JSON's numbers have 53 bits.
    pub(crate) address: String,
    /// Bytes of the body.
    pub(crate) length: u64,
    /// The key (R_Key) that opens it.
    pub(crate) key: u32,
    /// Its structure.
    #[serde(flatten)]
    pub(crate) shape: Shape,
}

/// The structure of a store, as [`Geometry`] says it, and what only the translator needs.
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
        /// Entries of 4 bytes are little-endian in memory, as the artifact's.
        #[serde(default)]
        swapped: bool,
        /// The number of the next batch of each list (bare lists: the place of the next entry).
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
    /// The shape that tells of `geometry`. `next` and `swapped` as in [`Shape::Append`], `reporters` as in [`Shape::Sketch`].
    pub(crate) fn of(geometry: &Geometry, next: Vec<u64>, swapped: bool, reporters: u32) -> Self {
        match *geometry {
            Geometry::KeyWrite { slots, data_len, family } => {
                Self::KeyWrite { slots, data: data_len, hash: family.name().to_owned() }
            }
            Geometry::Append { lists, ring, .. } => Self::Append {
                lists,
                entry: ring.entry_len,
                entries: ring.entries,
                batch: ring.batch,
                tagged: ring.tagged,
                swapped,
                next,
            },
            Geometry::KeyIncrement { slots, family } => {
                Self::KeyIncrement { slots, hash: family.name().to_owned() }
            }
            Geometry::Sketch { kind, shape, .. } => Self::Sketch {
                sketch: kind.name().to_owned(),
                depth: shape.depth,
                columns: shape.columns,
                width: shape.width,
                reporters,
            },
            Geometry::Postcarding { slots, hops, family } => {
                Self::Postcarding { slots, hops, hash: family.name().to_owned() }
            }
        }
    }
}

impl Hello {
    /// Is it one that we understand?
    fn check(&self) -> Result<(), Refused> {
        check_version(self.version)?;
        // It is kept for as long as the link's queue pairs are.
        let digits = 1..=LONGEST_INSTANCE;
        if !digits.contains(&self.instance.len())
            || !self.instance.bytes().all(|byte| byte.is_ascii_alphanumeric())
        {
            let text = format!("an instance has 1 to {LONGEST_INSTANCE} letters and digits");
            return Err(Refused::new(Why::Malformed, text));
        }
        Ok(())
    }
}

impl StoreOffer {
    /// The geometry that the other side told, if it is one.
    pub(crate) fn geometry(&self) -> Option<Geometry> {
        let geometry = match &self.shape {
            Shape::KeyWrite { slots, data, hash } => {
                Geometry::KeyWrite { slots: *slots, data_len: *data, family: Family::from_name(hash)? }
            }
            Shape::Append { lists, entry, entries, batch, tagged, .. } => Geometry::Append {
                lists: *lists,
                first_list: self.id,
                ring: Ring { entry_len: *entry, entries: *entries, batch: *batch, tagged: *tagged },
            },
            Shape::KeyIncrement { slots, hash } => {
                Geometry::KeyIncrement { slots: *slots, family: Family::from_name(hash)? }
            }
            Shape::Sketch { sketch, depth, columns, width, .. } => {
                let kind = SketchKind::from_name(sketch)?;
                let op: MergeOp = kind.op();
                Geometry::Sketch {
                    kind,
                    op,
                    shape: Columns { depth: *depth, columns: *columns, width: *width },
                }
            }
            Shape::Postcarding { slots, hops, hash } => {
                Geometry::Postcarding { slots: *slots, hops: *hops, family: Family::from_name(hash)? }
            }
        };
        geometry.check().ok()?;
        (geometry.body_len() <= self.length).then_some(geometry)
    }

    /// The virtual address.
    pub(crate) fn va(&self) -> Option<u64> {
        u64::from_str_radix(&self.address, 16).ok()
    }
}

/// A connection that speaks in lines.
#[derive(Debug)]
pub(crate) struct Lines {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    /// A line that has come in part.
    begun: Vec<u8>,
    /// Longest line that is taken, bytes.
    longest: usize,
    /// After the proofs: every line begins with a tag.
    seals: Option<Seals>,
}

/// What reading a line gave.
#[derive(Debug, PartialEq)]
pub(crate) enum Read1 {
    Message(Box<Message>),
    /// Nothing whole came in time.
    Nothing,
    /// The other side closed.
    Closed,
    /// It said what we do not understand: one sentence.
    Wrong(String),
    /// It lacks the tag that it must have: whoever sent this is not who proved something.
    Forged,
}

impl Lines {
    /// Speaks on `stream`; waits for a line at most `patience` at a time, and takes short lines only.
    pub(crate) fn new(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(SILENCE))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, reader, begun: Vec::new(), longest: LONGEST_SMALL, seals: None })
    }

    /// From now on takes a collector's long lines, too.
    pub(crate) fn take_long(&mut self) {
        self.longest = LONGEST;
    }

    /// From now on every line has a tag, both ways.
    pub(crate) fn seal(&mut self, seals: Seals) {
        self.seals = Some(seals);
    }

    /// Says something.
    pub(crate) fn send(&mut self, message: &Message) -> io::Result<()> {
        let mut line = write(message, self.seals.as_mut())?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// Listens, for as long as the patience is; hears at most once, so that who sends an octet now and then cannot keep us from
    /// looking at the clock.
    pub(crate) fn receive(&mut self) -> Read1 {
        let (whole, taken) = match self.reader.fill_buf() {
            Ok([]) => return Read1::Closed,
            Ok(bytes) => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let taken = end.map_or(bytes.len(), |end| end + 1);
                self.begun.extend_from_slice(&bytes[..taken]);
                (end.is_some(), taken)
            }
            Err(error) => {
                use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
                let passes = matches!(error.kind(), WouldBlock | TimedOut | Interrupted);
                return if passes { Read1::Nothing } else { Read1::Closed };
            }
        };
        self.reader.consume(taken);
        if self.begun.len() > self.longest {
            let (most, unit) = if self.longest < 1 << 20 {
                (self.longest >> 10, "KiB")
            } else {
                (self.longest >> 20, "MiB")
            };
            return Read1::Wrong(format!("a line is longer than {most} {unit}"));
        }
        if !whole {
            return Read1::Nothing;
        }
        let mut line = std::mem::take(&mut self.begun);
        line.pop();
        read(&line, self.seals.as_mut())
    }
}

/// A message as a line without its end: behind its tag, in hexadecimal, and a space where there are seals.
pub(crate) fn write(message: &Message, seals: Option<&mut Seals>) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(message)?;
    let Some(seals) = seals else { return Ok(json) };
    let mut line = hex(&seals.tag(&json)).into_bytes();
    line.push(b' ');
    line.extend_from_slice(&json);
    Ok(line)
}

/// Reads such a line. Nothing of what is said is looked at before its tag is found right.
pub(crate) fn read(line: &[u8], seals: Option<&mut Seals>) -> Read1 {
    let json = match seals {
        None => line,
        Some(seals) => match sealed(line, seals) {
            Some(json) => json,
            None => return Read1::Forged,
        },
    };
    match serde_json::from_slice(json) {
        Ok(message) => Read1::Message(Box::new(message)),
        Err(error) => Read1::Wrong(format!("this is no message of version {VERSION}: {error}")),
    }
}

fn sealed<'l>(line: &'l [u8], seals: &mut Seals) -> Option<&'l [u8]> {
    let (tag, rest) = line.split_at_checked(2 * LEN)?;
    let json = rest.strip_prefix(b" ")?;
    let tag = unhex(std::str::from_utf8(tag).ok()?)?;
    seals.is_next(&tag, json).then_some(json)
}

/// A nonce in hexadecimal.
pub(crate) fn read_nonce(text: &str) -> Option<Nonce> {
    let digits = (text.len() == 2 * LEN).then_some(text)?;
    unhex(digits)?.try_into().ok()
}

/// A number drawn at the start of a process, in hexadecimal.
pub(crate) fn instance() -> String {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(nic::time::now());
    hasher.write_u32(std::process::id());
    format!("{:016x}", hasher.finish())
}
