//! Generates frames inside the kernel with an XDP program (`BPF_PROG_TEST_RUN` with live frames), several times faster than a
//! socket can send.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::bpf::{LoadOptions, Object};
use crate::error::Error;
use crate::sys;

/// A counter in four bytes of the frame, so that frames differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// Offset of the word in the frame, below 2048; the word is big-endian.
    pub at: u32,
    /// Value of the word in the first frame.
    pub base: u32,
    /// Number of frames after which the value increases.
    pub each: u32,
    /// Number of different values, after which the counter starts again.
    pub of: u32,
}

/// Sends a frame repeatedly on an interface, with counters at some of its [`Word`]s.
///
/// The frame's UDP checksum should be 0, because it is not recomputed.
#[derive(Debug)]
pub struct LiveFrames {
    object: Object,
    interface: u32,
}

impl LiveFrames {
    /// Name of the program in the object.
    const PROGRAM: &str = "hopwise_bench";
    /// Frames in the first system call. Each further call has twice as many, up to [`PER_CALL`](Self::PER_CALL). A call cannot
    /// be interrupted, so a short run needs short calls.
    const FIRST_CALL: u32 = 1 << 14;
    /// Maximum number of frames per system call. Each call costs about 20 ms in addition to its frames.
    const PER_CALL: u32 = 1 << 20;

    /// Loads the generator's `object` (`xdp::BENCH`). Frames leave by `interface` of the caller's network namespace, in which
    /// [`send`](Self::send) must be called, too. At most four words; `per_second` limits the rate.
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

    /// Sends `frame` `total` times, or until `stop` is set, but at least in one call. Returns the number of frames sent,
    /// including those that the link dropped because it was full.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn send(&self, frame: &[u8], total: u64, stop: &AtomicBool) -> Result<u64, Error> {
        let mut sent = 0;
        let mut max_per_call = Self::FIRST_CALL;
        // Relaxed: only the flag itself matters; joining the thread orders everything else.
        while sent < total && (sent == 0 || !stop.load(Ordering::Relaxed)) {
            let count = u32::try_from(total - sent).unwrap_or(u32::MAX).min(max_per_call);
            max_per_call = (2 * max_per_call).min(Self::PER_CALL);
            self.object
                .run_live(Self::PROGRAM, frame, count, self.interface)?;
            sent += u64::from(count);
        }
        Ok(sent)
    }
}
