//! Incremental parser for Redis replies in RESP 2, the default protocol version.

use crate::sink::one_line;

/// Maximum length of a line (error, status or number), bytes.
const MAX_LINE: usize = 64 << 10;
/// Maximum size of a reply with everything in it, bytes. Replies to the sink's commands are short.
const MAX_REPLY: usize = 1 << 20;
/// Maximum number of values in a reply, including arrays: a stream entry has about 100.
const MAX_VALUES: usize = 1024;
/// Maximum nesting depth of arrays.
const MAX_DEPTH: usize = 8;

/// A reply to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A simple or bulk string, cut to bounded length.
    Text(String),
    /// A signed integer of 64 bits.
    Number(i64),
    /// An error with its message.
    Error(String),
    /// The null reply of RESP.
    Null,
    /// A list of replies.
    Array(Vec<Reply>),
}

/// Error: the bytes are not a valid reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed(
    /// The reason as a sentence.
    pub &'static str,
);

/// Parses replies from a byte stream. It buffers at most one reply and one received chunk.
#[derive(Default, Debug)]
pub struct Replies {
    bytes: Vec<u8>,
    /// Offset of the first unparsed byte.
    offset: usize,
    /// Number of bytes from `offset` that are known to contain no line end.
    searched: usize,
    arrays: Vec<OpenArray>,
    /// Bytes of this reply so far.
    len: usize,
    /// Values of this reply so far.
    values: usize,
    malformed: Option<Malformed>,
}

/// An array whose items are not complete.
#[derive(Debug)]
struct OpenArray {
    missing: usize,
    items: Vec<Reply>,
}

/// A part of a reply.
enum Part {
    /// Header of an array with this many items.
    Array(usize),
    Value(Reply),
}

impl Replies {
    /// Creates a parser for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that were received.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.malformed.is_none() {
            self.bytes.drain(..self.offset);
            self.offset = 0;
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Returns the next reply, or `None` if it is incomplete.
    ///
    /// # Errors
    /// The bytes are not valid RESP; the connection is unusable.
    pub fn next_reply(&mut self) -> Result<Option<Reply>, Malformed> {
        if let Some(malformed) = &self.malformed {
            return Err(malformed.clone());
        }
        let result = self.read();
        if let Err(malformed) = &result {
            self.malformed = Some(malformed.clone());
            self.bytes = Vec::new();
            self.offset = 0;
            self.arrays = Vec::new();
        }
        result
    }

    fn read(&mut self) -> Result<Option<Reply>, Malformed> {
        loop {
            let mut value = match self.part()? {
                None => return Ok(None),
                Some(Part::Array(0)) => Reply::Array(Vec::new()),
                Some(Part::Array(_)) if self.arrays.len() == MAX_DEPTH => {
                    return Err(Malformed("arrays in too many arrays"));
                }
                Some(Part::Array(len)) => {
                    self.arrays.push(OpenArray {
                        missing: len,
                        items: Vec::new(),
                    });
                    continue;
                }
                Some(Part::Value(reply)) => reply,
            };
            // The value may complete one or more enclosing arrays.
            loop {
                let Some(array) = self.arrays.last_mut() else {
                    self.len = 0;
                    self.values = 0;
                    return Ok(Some(value));
                };
                array.items.push(value);
                array.missing -= 1;
                if array.missing > 0 {
                    break;
                }
                value = Reply::Array(self.arrays.pop().map(|array| array.items).unwrap_or_default());
            }
        }
    }

    fn part(&mut self) -> Result<Option<Part>, Malformed> {
        let Some(end) = self.line_end()? else {
            return Ok(None);
        };
        let text = &self.bytes[self.offset..end];
        let Some((kind, rest)) = text.split_first() else {
            return Err(Malformed("an empty line"));
        };
        let mut after = end + 2;
        let part = match kind {
            b'+' => Part::Value(Reply::Text(one_line(rest))),
            b'-' => Part::Value(Reply::Error(one_line(rest))),
            b':' => Part::Value(Reply::Number(number(rest)?)),
            b'*' | b'$' if rest == b"-1" => Part::Value(Reply::Null),
            b'*' => Part::Array(length(rest)?),
            b'$' => {
                let len = length(rest)?;
                let Some(bulk) = self.bytes.get(after..after + len + 2) else {
                    return Ok(None);
                };
                let Some(bulk) = bulk.strip_suffix(b"\r\n") else {
                    return Err(Malformed("a string without an end"));
                };
                after += len + 2;
                Part::Value(Reply::Text(one_line(bulk)))
            }
            _ => return Err(Malformed("a reply of an unknown kind")),
        };
        self.len += after - self.offset;
        self.offset = after;
        self.searched = 0;
        if self.len > MAX_REPLY {
            return Err(Malformed("a reply that is too long"));
        }
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(Malformed("a reply with too many values"));
        }
        Ok(Some(part))
    }

    /// Returns the end of the line at `offset`, before its CR LF, or `None` if it is incomplete.
    fn line_end(&mut self) -> Result<Option<usize>, Malformed> {
        let line = &self.bytes[self.offset..];
        let from = self.searched.min(line.len());
        match line[from..].windows(2).position(|window| window == b"\r\n") {
            Some(position) => Ok(Some(self.offset + from + position)),
            None if line.len() > MAX_LINE => Err(Malformed("a line that is too long")),
            None => {
                // The last byte may be the CR of a line end.
                self.searched = line.len().saturating_sub(1);
                Ok(None)
            }
        }
    }
}

/// Parses the length of a string or an array.
fn length(text: &[u8]) -> Result<usize, Malformed> {
    match usize::try_from(number(text)?) {
        Ok(len) if len <= MAX_REPLY => Ok(len),
        _ => Err(Malformed("a length that is negative or too large")),
    }
}

fn number(text: &[u8]) -> Result<i64, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed("an invalid number"))?;
    text.parse().map_err(|_| Malformed("an invalid number"))
}
