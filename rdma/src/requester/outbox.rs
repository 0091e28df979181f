//! Frames that wait to be sent: one piece of memory of fixed size, filled from the front and emptied at once.

/// Frames of all collectors, in the order they were made.
#[derive(Debug)]
pub(super) struct Outbox {
    bytes: Box<[u8]>,
    used: usize,
    frames: Vec<Frame>,
    most: usize,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    start: u32,
    len: u16,
    collector: u8,
}

impl Outbox {
    pub(super) fn new(bytes: usize, frames: usize) -> Self {
        Self { bytes: vec![0; bytes].into(), used: 0, frames: Vec::with_capacity(frames), most: frames }
    }

    /// Frames for which there is room, if they are not too long.
    pub(super) fn free_frames(&self) -> usize {
        self.most - self.frames.len()
    }

    /// Bytes for which there is room.
    pub(super) fn free_bytes(&self) -> usize {
        self.bytes.len() - self.used
    }

    /// Credit for `frames` frames of so many bytes together.
    #[inline]
    pub(super) fn has_space(&self, frames: usize, bytes: usize) -> bool {
        self.free_frames() >= frames && self.free_bytes() >= bytes
    }

    /// Where the next frame goes. Only after [`has_space`](Self::has_space).
    #[inline]
    pub(super) fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.used..]
    }

    /// The next frame is there, of so many bytes; 0: it is not.
    #[inline]
    pub(super) fn push(&mut self, collector: u8, len: usize) {
        if len > 0 && self.frames.len() < self.most {
            self.frames.push(Frame { start: self.used as u32, len: len as u16, collector });
            self.used += len;
        }
    }

    /// The frames, and which collector each is for.
    pub(super) fn frames(&self) -> impl ExactSizeIterator<Item = (u8, &[u8])> + Clone {
        self.frames.iter().map(|frame| {
            let start = frame.start as usize;
            (frame.collector, &self.bytes[start..start + usize::from(frame.len)])
        })
    }

    /// They were sent.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.used = 0;
    }
}
