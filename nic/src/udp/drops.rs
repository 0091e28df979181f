//! Separates the two reasons why the kernel drops a datagram at a socket (buffer full, wrong checksum), although the
//! kernel has one counter for both.

/// Datagrams that the kernel dropped at a socket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Drops {
    /// The receive buffer was full.
    pub buffer_full: u64,
    /// The UDP checksum was wrong.
    pub bad_checksum: u64,
}

/// Numbers of datagrams and of buffers that passed some point since the socket was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Arrived {
    pub(super) datagrams: u64,
    /// Number of socket buffers that held the datagrams.
    pub(super) buffers: u64,
}

/// The drops of a socket.
///
/// A buffer with a correct checksum that arrived was received, waits in the socket, or was dropped because the receive buffer
/// was full. So at least the drops beyond `arrived - received` had a wrong checksum, and exactly those if no buffer waits.
/// Neither reported number ever decreases: drops already reported as `buffer_full` stay there, at most as many as were waiting.
#[derive(Default, Debug)]
pub(super) struct DropAccount {
    /// The kernel's 32-bit counter, extended to 64 bits.
    total: u64,
    last: u32,
    /// Drops in `total` that provably had a wrong checksum.
    wrong_checksum: u64,
    /// Datagrams in the buffers dropped for lack of memory, beyond one per buffer.
    merged: u64,
    /// Value of `total` when the number of datagrams in the drops was last determined.
    compared: u64,
    reported: Drops,
}

impl DropAccount {
    /// Applies a reading of the kernel's 32-bit counter, which is read from two sources, one of them delayed.
    pub(super) fn note(&mut self, now: u32) {
        let step = now.wrapping_sub(self.last);
        // A step of more than half the range is an older reading that arrived late.
        if step <= u32::MAX / 2 {
            self.total += u64::from(step);
            self.last = now;
        }
    }

    /// Returns the latest reading of the kernel's counter.
    pub(super) fn reading(&self) -> u32 {
        self.last
    }

    /// Returns whether there are drops that [`DropAccount::compare`] has not fully classified.
    pub(super) fn is_open(&self) -> bool {
        self.compared != self.total
    }

    /// Classifies the drops. `arrived` was read after the latest reading of drops. `empty`: nothing waits in the socket, and
    /// nothing was dropped since.
    pub(super) fn compare(&mut self, arrived: Arrived, received: Arrived, empty: bool) {
        let unread = arrived.buffers.saturating_sub(received.buffers);
        let wrong_checksum = self.total.saturating_sub(unread).max(self.wrong_checksum);
        // Another CPU may be about to queue a buffer that it has already counted. It then looks dropped once, in a reading that
        // finds more wrong checksums. So only a reading that finds no more determines how many datagrams the dropped buffers
        // had.
        let settled = wrong_checksum == self.wrong_checksum && unread == self.total - wrong_checksum;
        self.wrong_checksum = wrong_checksum;
        if empty && settled {
            let datagrams = arrived.datagrams.saturating_sub(received.datagrams);
            self.merged = datagrams.saturating_sub(unread).max(self.merged);
            self.compared = self.total;
        }
        self.known();
    }

    /// Returns the datagrams dropped, counting at least one per buffer.
    pub(super) fn known(&mut self) -> Drops {
        let all = self.total + self.merged;
        let full = (all - self.wrong_checksum).max(self.reported.buffer_full);
        self.reported = Drops {
            buffer_full: full,
            bad_checksum: all - full,
        };
        self.reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drop_counter_wraps_and_ignores_late_readings() {
        let mut drops = DropAccount::default();
        let totals = [5, 3, 5, 9, u32::MAX / 2 + 9, u32::MAX, 1, u32::MAX, 2].map(|now| {
            drops.note(now);
            drops.total
        });
        let wrapped = 1 << 32;
        let half = u64::from(u32::MAX / 2) + 9;
        assert_eq!(
            totals,
            [
                5,
                5,
                5,
                9,
                half,
                wrapped - 1,
                wrapped + 1,
                wrapped + 1,
                wrapped + 2
            ]
        );
    }

    /// Arrived, received and dropped buffers and whether none waits, at successive readings, and the drops reported then.
    fn readings<const N: usize>(steps: [(u32, u64, u64, bool); N]) -> [(u64, u64); N] {
        let mut drops = DropAccount::default();
        steps.map(|(dropped, arrived, received, empty)| {
            let one_each = |buffers| Arrived {
                datagrams: buffers,
                buffers,
            };
            drops.note(dropped);
            drops.compare(one_each(arrived), one_each(received), empty);
            let Drops {
                buffer_full,
                bad_checksum,
            } = drops.known();
            assert_eq!(buffer_full + bad_checksum, u64::from(dropped));
            (buffer_full, bad_checksum)
        })
    }

    #[test]
    fn wrong_checksums_are_what_arrivals_do_not_explain() {
        // Nothing waits, so all is known at once.
        assert_eq!(readings([(7, 10, 10, true), (7, 10, 10, true)]), [(0, 7); 2]);
        assert_eq!(readings([(7, 17, 10, true)]), [(7, 0)]);
        assert_eq!(readings([(9, 17, 10, true), (9, 17, 10, true)]), [(7, 2); 2]);
        // While five wait, five of the drops may have been for lack of memory, and remain counted so.
        assert_eq!(
            readings([(9, 15, 10, false), (9, 15, 15, true)]),
            [(5, 4), (5, 4)]
        );
        // A flood of wrong checksums while datagrams wait: misjudged drops do not accumulate.
        let flood = readings([
            (1_000, 15, 10, false),
            (2_000, 25, 20, false),
            (3_000, 35, 30, false),
        ]);
        assert_eq!(flood, [(5, 995), (5, 1_995), (5, 2_995)]);
    }

    #[test]
    fn a_counted_buffer_that_is_not_queued_yet_is_no_dropped_one() {
        let mut drops = DropAccount::default();
        let received = Arrived {
            datagrams: 100,
            buffers: 10,
        };
        // One of 64 datagrams is counted but neither waits nor was dropped; two others had wrong checksums.
        drops.note(2);
        drops.compare(
            Arrived {
                datagrams: 164,
                buffers: 11,
            },
            received,
            true,
        );
        assert_eq!(
            drops.known(),
            Drops {
                buffer_full: 1,
                bad_checksum: 1
            }
        );
        let received = Arrived {
            datagrams: 164,
            buffers: 11,
        };
        drops.compare(received, received, true);
        drops.compare(received, received, true);
        assert_eq!(
            drops.known(),
            Drops {
                buffer_full: 1,
                bad_checksum: 1
            }
        );
        assert!(!drops.is_open());
    }
}
