//! Frames made in the kernel: several times faster than any socket sends.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::bpf::{LoadOptions, Object};
use crate::error::Error;
use crate::sys;

/// Four bytes of the frame that contain a counter: it differs from frame to frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// Offset of its four bytes in the frame, big-endian; below 2048.
    pub at: u32,
    /// Value of the word in the first frame.
    pub base: u32,
    /// Number of frames after which the value increases.
    pub each: u32,
    /// Number of values, after which the value starts again.
    pub of: u32,
}

/// Sends a frame repeatedly on an interface; some of its [`Word`]s are counters.
///
/// A UDP checksum in it should be 0, because it is not recomputed.
#[derive(Debug)]
pub struct LiveFrames {
    object: Object,
    interface: u32,
}

impl LiveFrames {
    /// The program in the object.
    const PROGRAM: &str = "hopwise_bench";
    /// Frames in the first system call; each further call has twice as many, up to [`PER_CALL`](Self::PER_CALL). A call cannot
    /// be interrupted, so a short run needs short calls.
    const FIRST_CALL: u32 = 1 << 14;
    /// Maximum frames in a system call. Each call costs some 20 ms in addition to its frames.
    const PER_CALL: u32 = 1 << 20;

    /// `object` is the generator's (`xdp::BENCH`). Frames leave by `interface` of the caller's network namespace;
    /// [`send`](Self::send) must be called in the same one. At most four words; `per_second` limits the rate.
    ///
    /// # Errors
    /// CAP_BPF or CAP_NET_ADMIN is missing, or there is no such interface.
    pub fn open(
        object: &[u8],
        interface: &str,
        words: &[Word],
        per_second: Option<u32>,
    ) -> Result<Self, Error> {
        let index = sys::interface_index(interface).map_err(Error::failed("open interface", interface))?;
        let names: Vec<[String; 4]> = (0..words.len())
            .map(|word| ["at", "base", "each", "of"].map(|name| format!("{name}_{word}")))
            .collect();
        let mut constants = vec![("out", index)];
        if let Some(per_second) = per_second {
            constants.push(("gap", 1_000_000_000 / per_second.max(1)));
        }
        for (names, word) in names.iter().zip(words) {
            let values = [word.at, word.base, word.each, word.of];
            constants.extend(names.iter().map(String::as_str).zip(values));
        }
        let object = Object::load(
            object,
            &LoadOptions {
                constants,
                ..LoadOptions::default()
            },
        )?;
        Ok(Self {
            object,
            interface: index,
        })
    }

    /// Sends `frame` `total` times, or until `stop` becomes true, and at least in one call. Returns how many were sent, including
    /// those that the link dropped because it was full.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn send(&self, frame: &[u8], total: u64, stop: &AtomicBool) -> Result<u64, Error> {
        let mut sent = 0;
        let mut most = Self::FIRST_CALL;
        // Relaxed: only the flag itself matters; joining the thread orders everything else.
        while sent < total && (sent == 0 || !stop.load(Ordering::Relaxed)) {
            let count = u32::try_from(total - sent).unwrap_or(u32::MAX).min(most);
            most = (2 * most).min(Self::PER_CALL);
            self.object
                .run_live(Self::PROGRAM, frame, count, self.interface)?;
            sent += u64::from(count);
        }
        Ok(sent)
    }
}
