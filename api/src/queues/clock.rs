//! Places the device timestamps of reports on the collector's clock.
//!
//! A timestamp of 32 bits is a time modulo 2^32 ticks (wire-formats 2.4). It is extended to the value nearest to the one
//! expected: the timestamp before it, plus the time between the receipts of both reports. A clock that was set or began anew,
//! for example after a restart, is recognised by a step that differs from this time, and is placed by itself.
//!
//! A clock is placed so that the report with the least delay has no delay. Without a timestamp, the receive time counts.

use store::PassageRow;

/// Greatest difference between a step of a device's clock and the time between the receipts, ns: more than reports are late.
const MAX_STEP: i128 = 2_000_000_000;
const WRAP: i128 = 1 << 32;

/// Returns the time of each report by the collector's clock, ns. `rows` are in the order of receipt; `stamp_ns` has the length
/// of a tick of each one's timestamp.
pub(super) fn local_times(rows: &[PassageRow], stamp_ns: &[u32]) -> Vec<u64> {
    // Stored timestamps do not tell their width. A 64-bit clock may be below 2^32 shortly after its start; extended like 32
    // bits it stays the same unless it steps.
    let are_narrow = rows
        .iter()
        .filter(|row| row.by_device)
        .all(|row| row.passage.ts <= u64::from(u32::MAX));
    let mut clocks = Clocks::default();
    let stamps: Vec<Option<Stamp>> = rows
        .iter()
        .zip(stamp_ns)
        .map(|(row, tick)| {
            let tick = i128::from(*tick).max(1);
            let ns = i128::from(row.passage.ts) * tick;
            let wrap = are_narrow.then_some(WRAP * tick);
            row.by_device.then(|| clocks.add(ns, wrap, row.ts.into()))
        })
        .collect();
    let times = rows.iter().zip(stamps).map(|(row, stamp)| match stamp {
        Some(stamp) => u64::try_from(stamp.ns + clocks.offsets[stamp.clock]).unwrap_or(0),
        None => row.ts,
    });
    times.collect()
}

/// A time by a device's clock.
#[derive(Clone, Copy)]
struct Stamp {
    ns: i128,
    /// The index of the clock; a new one begins with each unexpected step.
    clock: usize,
}

/// The clocks of a device, one after another.
#[derive(Default)]
struct Clocks {
    /// Offset from the time of each clock to the collector's, ns: the least delay that was seen.
    offsets: Vec<i128>,
    /// The latest timestamp and its receive time.
    last: Option<(Stamp, i128)>,
}

impl Clocks {
    /// Adds the next timestamp, with its receive time; `wrap` is the period after which it begins anew.
    fn add(&mut self, ns: i128, wrap: Option<i128>, received: i128) -> Stamp {
        let stamp = self
            .last
            .and_then(|(last, at)| {
                let expected = last.ns + (received - at);
                let extended = wrap.map_or(ns, |wrap| nearest(ns, wrap, expected));
                let is_expected = (extended - expected).abs() <= MAX_STEP;
                is_expected.then_some(Stamp { ns: extended, ..last })
            })
            .unwrap_or(Stamp {
                ns,
                clock: self.offsets.len(),
            });
        match self.offsets.get_mut(stamp.clock) {
            Some(offset) => *offset = (*offset).min(received - stamp.ns),
            None => self.offsets.push(received - stamp.ns),
        }
        self.last = Some((stamp, received));
        stamp
    }
}

/// Returns the value nearest to `expected` that equals `ns` modulo `wrap`.
fn nearest(ns: i128, wrap: i128, expected: i128) -> i128 {
    let half = wrap / 2;
    expected - half + (ns - expected + half).rem_euclid(wrap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::burst::Passage;

    const SECOND: u64 = 1_000_000_000;

    fn row(received: u64, stamp: Option<u64>) -> PassageRow {
        PassageRow {
            ts: received,
            passage: Passage {
                ts: stamp.unwrap_or(received),
                flow: None,
                occupancy: None,
                latency: None,
                weight: 1,
            },
            queue: None,
            interface: None,
            source: String::new(),
            by_device: stamp.is_some(),
            path: Vec::new(),
        }
    }

    /// Places reports that left at these times after 100 s, each with a delay, by a clock with an offset, a tick and a width.
    fn placed(reports: &[(u64, u64)], tick: u32, clock: impl Fn(u64) -> u64, is_narrow: bool) -> Vec<u64> {
        let rows: Vec<PassageRow> = reports
            .iter()
            .map(|(left, delay)| {
                let stamp = clock(*left) / u64::from(tick);
                row(
                    100 * SECOND + left + delay,
                    Some(if is_narrow { stamp & 0xffff_ffff } else { stamp }),
                )
            })
            .collect();
        let times = local_times(&rows, &vec![tick; rows.len()]);
        times.into_iter().map(|time| time - 100 * SECOND).collect()
    }

    #[test]
    fn recordings_that_are_seconds_or_minutes_apart_stay_apart_whatever_the_width() {
        let at = [1_000, 1_300, 5_200, 5_400, 11_900, 700_000, 700_001].map(|ms| ms * SECOND / 1_000);
        let delays = [30, 5, 40, 5, 9, 700, 6].map(|us| us * 1_000);
        let reports: Vec<_> = at.into_iter().zip(delays).collect();
        let expected = at.map(|time| time + 5_000);
        for tick in [1, 8, 1_000] {
            for offset in [0, 4_294_967_000, 77_777_777_777_777_000] {
                for is_narrow in [false, true] {
                    let found = placed(&reports, tick, |left| left + offset, is_narrow);
                    for (found, expected) in found.iter().zip(expected) {
                        assert!(
                            found.abs_diff(expected) <= 2 * u64::from(tick),
                            "{tick} {offset} {is_narrow}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_clock_that_begins_anew_is_placed_by_itself() {
        let at = [1_000, 1_300, 5_200, 5_400].map(|ms| ms * SECOND / 1_000);
        let reports = at.map(|left| (left, 5_000));
        let restarted = |left| {
            if left < 5 * SECOND {
                left + 950 * SECOND
            } else {
                left - 5 * SECOND
            }
        };
        assert_eq!(placed(&reports, 1, restarted, false), at.map(|time| time + 5_000));
        let micros = placed(&reports, 1_000, restarted, true);
        assert_eq!(micros, at.map(|time| time + 5_000));
    }

    #[test]
    fn without_a_timestamp_the_receive_time_counts_and_no_number_is_too_large() {
        let rows = [
            row(10, None),
            row(20, Some(3)),
            row(30, None),
            row(40, Some(u64::MAX)),
        ];
        assert_eq!(local_times(&rows, &[1; 4]), [10, 20, 30, 40]);
        let rows = [
            row(u64::MAX, Some(u64::MAX)),
            row(0, Some(0)),
            row(0, Some(u64::MAX)),
        ];
        assert_eq!(local_times(&rows, &[u32::MAX; 3]), [u64::MAX, 0, 0]);
        assert_eq!(local_times(&[], &[]), [] as [u64; 0]);
    }
}
