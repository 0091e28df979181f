//! A read buffer of fixed size over a capture file, which it decompresses if it is gzipped.

use std::io::{self, Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;

use super::error::{Error, Fault};

/// Size of the window: large enough that system calls cost little, small enough to stay in the cache.
const SIZE: usize = 1 << 20;

/// Maximum number of bytes that [`Buffer::need`] can provide.
pub(super) const MAX_READ: usize = SIZE / 2;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A window over the (decompressed) bytes of a file.
#[derive(Debug)]
pub(super) struct Buffer<R> {
    input: Input<R>,
    memory: Box<[u8]>,
    /// `memory[start..end]` was read but not consumed.
    start: usize,
    end: usize,
    /// Offset of `start` in the decompressed file.
    offset: u64,
    pin: Pin,
}

/// States whether the bytes must stay in place, because offsets that [`Buffer::consume`] returned are still in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pin {
    No,
    Yes,
    /// Yes, and more bytes were needed than the buffer has.
    Exceeded,
}

impl<R: Read> Buffer<R> {
    /// Opens `input`, and recognises gzip by its magic number.
    pub(super) fn new(input: R) -> Result<Self, Error> {
        let input = Input::Plain(Counted {
            inner: input,
            bytes: 0,
        });
        let mut buffer = Self {
            input,
            memory: vec![0; SIZE].into(),
            start: 0,
            end: 0,
            offset: 0,
            pin: Pin::No,
        };
        if buffer.need(GZIP_MAGIC.len())? && buffer.bytes().starts_with(&GZIP_MAGIC) {
            let head = Cursor::new(buffer.bytes().to_vec());
            buffer.input = match buffer.input {
                Input::Plain(rest) => Input::Gzip(Box::new(MultiGzDecoder::new(head.chain(rest)))),
                packed @ Input::Gzip(_) => packed,
            };
            buffer.start = 0;
            buffer.end = 0;
        }
        Ok(buffer)
    }

    /// Returns the bytes that were read and not consumed.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Returns the offset of [`Buffer::bytes`] in the decompressed file.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of bytes read from the file so far, before decompression.
    pub(super) fn bytes_read(&self) -> u64 {
        match &self.input {
            Input::Plain(file) => file.bytes,
            Input::Gzip(file) => file.get_ref().get_ref().1.bytes,
        }
    }

    /// Keeps the bytes in place: nothing is read from the file until [`Buffer::release`].
    #[inline]
    pub(super) fn hold(&mut self) {
        self.pin = Pin::Yes;
    }

    /// Ends [`Buffer::hold`]. Returns true if more bytes were needed since.
    #[inline]
    pub(super) fn release(&mut self) -> bool {
        std::mem::replace(&mut self.pin, Pin::No) == Pin::Exceeded
    }

    /// Returns whether the file may be read now. If not, records that more bytes were needed.
    pub(super) fn may_read(&mut self) -> bool {
        if self.pin != Pin::No {
            self.pin = Pin::Exceeded;
        }
        self.pin == Pin::No
    }

    /// Reads until at least `len` bytes (at most [`MAX_READ`]) are available. Returns false if the file ends earlier, or if the
    /// bytes are pinned and the buffer does not have them. May move the bytes, which invalidates offsets that [`Buffer::consume`] returned.
    #[inline]
    pub(super) fn need(&mut self, len: usize) -> Result<bool, Error> {
        if self.end - self.start >= len {
            Ok(true)
        } else {
            self.fill(len).map_err(|error| Error::read(self.offset, error))
        }
    }

    /// Does the same as [`Buffer::need`], with an error if the file ends earlier.
    #[inline]
    pub(super) fn require(&mut self, len: usize) -> Result<(), Error> {
        if self.need(len)? {
            Ok(())
        } else {
            Err(Error::new(self.offset, Fault::Cut))
        }
    }

    /// Does the same as [`Buffer::require`], but returns false if the file ends exactly here.
    #[inline]
    pub(super) fn require_unless_at_end(&mut self, len: usize) -> Result<bool, Error> {
        if self.need(len)? {
            Ok(true)
        } else if self.bytes().is_empty() {
            Ok(false)
        } else {
            Err(Error::new(self.offset, Fault::Cut))
        }
    }

    /// Consumes `len` available bytes. Returns their offset in the memory, valid until the next [`Buffer::need`].
    #[inline]
    pub(super) fn consume(&mut self, len: usize) -> usize {
        debug_assert!(len <= self.end - self.start);
        let at = self.start;
        self.start += len;
        self.offset += len as u64;
        at
    }

    /// Returns the memory that these offsets refer to.
    #[inline]
    pub(super) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Returns the bytes at an offset that [`Buffer::consume`] returned.
    #[inline]
    pub(super) fn consumed(&self, at: usize, len: usize) -> &[u8] {
        &self.memory[at..at + len]
    }

    /// Skips `len` bytes, which may be more than the window holds. Returns false if the file ends earlier.
    pub(super) fn skip(&mut self, mut len: u64) -> Result<bool, Error> {
        while len > 0 {
            if !self.need(1)? {
                return Ok(false);
            }
            let here = usize::try_from(len).map_or(self.bytes().len(), |len| len.min(self.bytes().len()));
            self.consume(here);
            len -= here as u64;
        }
        Ok(true)
    }

    #[cold]
    fn fill(&mut self, len: usize) -> io::Result<bool> {
        debug_assert!(len <= MAX_READ);
        if !self.may_read() {
            return Ok(false);
        }
        self.memory.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < len {
            match self.input.read(&mut self.memory[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

#[derive(Debug)]
enum Input<R> {
    Plain(Counted<R>),
    Gzip(Box<MultiGzDecoder<Rewound<R>>>),
}

/// The bytes read to recognise gzip, followed by the rest of the file.
type Rewound<R> = Chain<Cursor<Vec<u8>>, Counted<R>>;

impl<R: Read> Read for Input<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(into),
            Self::Gzip(file) => file.read(into),
        }
    }
}

/// Counts the bytes read from a file.
#[derive(Debug)]
struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.bytes += read as u64;
        Ok(read)
    }
}
