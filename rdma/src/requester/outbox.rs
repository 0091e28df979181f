//! The requester's send queue: frames in one buffer of fixed size, appended one by one and emptied all at once.

/// Frames for all collectors, in the order in which they were built.
#[derive(Debug)]
pub(super) struct Outbox {
    bytes: Box<[u8]>,
    used: usize,
    frames: Vec<Frame>,
    max_frames: usize,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    start: u32,
    len: u16,
    collector: u8,
}

impl Outbox {
    pub(super) fn new(bytes: usize, frames: usize) -> Self {
        Self {
            bytes: vec![0; bytes].into(),
            used: 0,
            frames: Vec::with_capacity(frames),
            max_frames: frames,
        }
    }

    pub(super) fn free_frames(&self) -> usize {
        self.max_frames - self.frames.len()
    }

    pub(super) fn free_bytes(&self) -> usize {
        self.bytes.len() - self.used
    }

    /// Returns whether there is space for `frames` frames of `bytes` bytes in total.
    #[inline]
    pub(super) fn has_space(&self, frames: usize, bytes: usize) -> bool {
        self.free_frames() >= frames && self.free_bytes() >= bytes
    }

    /// Returns the free part of the buffer, where the next frame is built. Check [`has_space`](Self::has_space) first.
    #[inline]
    pub(super) fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.used..]
    }

    /// Appends the frame of `len` bytes that was built in [`space`](Self::space). Does nothing if `len` is 0.
    #[inline]
    pub(super) fn push(&mut self, collector: u8, len: usize) {
        if len > 0 && self.frames.len() < self.max_frames {
            self.frames.push(Frame {
                start: self.used as u32,
                len: len as u16,
                collector,
            });
            self.used += len;
        }
    }

    /// Returns the frames, each with its collector.
    pub(super) fn frames(&self) -> impl ExactSizeIterator<Item = (u8, &[u8])> + Clone {
        self.frames.iter().map(|frame| {
            let start = frame.start as usize;
            (
                frame.collector,
                &self.bytes[start..start + usize::from(frame.len)],
            )
        })
    }

    /// Removes all frames after they were sent.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.used = 0;
    }
}
