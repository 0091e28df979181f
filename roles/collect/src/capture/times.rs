//! Decides which times of frames are plausible, from the times of the frames around them. One frame with a wrong time, or with none,
//! must neither let time pass nor set it back, wherever in a file it is.

use collector::event::{Nanos, SECOND, SET_BACK};

/// A frame further ahead than this may have a wrong time, ns. No timer, such as the loss timer, expires within this time.
const AHEAD: Nanos = 10 * SECOND;
/// Where frames are seldom, one may be ahead by this many times the time between the two frames before it.
const GAPS: Nanos = 4;

/// The times of consecutive frames, as far as they are plausible.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sequence {
    /// The latest time since the clock was set back, ns; 0 before the first.
    pub(crate) latest: Nanos,
    /// The time by which the latest frame was ahead of those before it, ns.
    gap: Nanos,
}

impl Sequence {
    /// Begins with the time of the first frame.
    pub(crate) fn new(first: Nanos) -> Self {
        Self {
            latest: first,
            gap: 0,
        }
    }

    /// Returns true if a time is so far behind that it is wrong, unless the clock was set back.
    #[inline]
    pub(crate) fn is_behind(&self, time: Nanos) -> bool {
        time.saturating_add(SET_BACK) < self.latest
    }

    /// Returns true if a time is so far ahead that it may be wrong.
    #[inline]
    pub(crate) fn is_ahead(&self, time: Nanos) -> bool {
        time.saturating_sub(self.latest) > AHEAD && self.is_beyond_gaps(time)
    }

    #[cold]
    fn is_beyond_gaps(&self, time: Nanos) -> bool {
        time - self.latest > self.gap.saturating_mul(GAPS)
    }

    /// Returns true if a time is neither behind nor ahead.
    pub(crate) fn is_near(&self, time: Nanos) -> bool {
        !self.is_behind(time) && !self.is_ahead(time)
    }

    /// Follows a clock to any time, also back.
    pub(crate) fn follow(&mut self, time: Nanos) {
        self.gap = time.saturating_sub(self.latest);
        self.latest = time;
    }

    /// Advances to a time, unless it is behind.
    #[inline]
    pub(crate) fn advance(&mut self, time: Nanos) {
        if time > self.latest {
            self.gap = time - self.latest;
            self.latest = time;
        }
    }
}

/// Returns the time at which frames begin, given the first times of one clock; at most the first three count. It is the first one, unless
/// the other two are near each other and far from it: then that one is wrong. `None` without a time.
pub(crate) fn first_time(times: &[Nanos]) -> Option<Nanos> {
    let first = *times.first()?;
    Some(match *times {
        [_, second, third, ..]
            if !Sequence::new(first).is_near(second)
                && !Sequence::new(first).is_near(third)
                && Sequence::new(second).is_near(third) =>
        {
            second
        }
        _ => first,
    })
}

/// Returns the time at which a frame of a file is due, and no other than the order of frames depends on it. `sequence` has the times of
/// the frames before it in its file, `time` is its own time, if it has one, and `after` and `third` are the next two times in the file.
///
/// A frame without a time is due with the one before it. So is one whose time is far away, unless the next one confirms it. A frame is
/// never due later than the next one, so that a time that is a little ahead does not stall the file.
pub(crate) fn due(
    sequence: &Sequence,
    time: Option<Nanos>,
    after: Option<Nanos>,
    third: Option<Nanos>,
) -> Nanos {
    let before = sequence.latest;
    let Some(time) = time else { return before };
    if sequence.is_behind(time) {
        let is_set_back =
            after.is_some_and(|after| sequence.is_behind(after) && !Sequence::new(time).is_behind(after));
        return if is_set_back { time } else { before };
    }
    let from_here = Sequence::new(time);
    match after {
        Some(after) if !from_here.is_behind(after) => time.min(after),
        // The next one continues from those before: this one is ahead alone.
        Some(after) if !sequence.is_behind(after) => after,
        // The next one is earlier than both; the third shows which of the two times is wrong.
        Some(_) if third.is_some_and(|third| !from_here.is_behind(third)) => time,
        _ if sequence.is_ahead(time) => before,
        _ => time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Nanos = 1_700_000_000 * SECOND;
    const HOUR: Nanos = 3_600 * SECOND;

    #[test]
    fn the_first_time_is_wrong_if_the_next_two_agree_on_another() {
        for wrong in [T - HOUR, T + HOUR] {
            assert_eq!(first_time(&[wrong, T, T + SECOND]), Some(T));
            assert_eq!(first_time(&[T, wrong, T + SECOND]), Some(T));
            assert_eq!(first_time(&[T, T + SECOND, wrong]), Some(T));
        }
        // Few frames arrive.
        assert_eq!(first_time(&[T, T + HOUR, T + 2 * HOUR]), Some(T));
        assert_eq!(first_time(&[T]), Some(T));
        assert_eq!(first_time(&[]), None);
    }

    #[test]
    fn one_wrong_time_changes_the_order_of_no_other_frame() {
        let sequence = Sequence::new(T);
        let next = [Some(T + 1), Some(T + 2)];
        for time in [None, Some(T - HOUR), Some(T + HOUR)] {
            assert!(
                (T..=T + 1).contains(&due(&sequence, time, next[0], next[1])),
                "{time:?}"
            );
            // It is the last one of its file, or the next has a wrong time in the other direction.
            assert_eq!(due(&sequence, time, None, None), T, "{time:?}");
        }
        for wrong in [T - HOUR, T + HOUR] {
            assert_eq!(due(&sequence, Some(T + 1), Some(wrong), next[1]), T + 1);
            assert_eq!(due(&sequence, Some(T + 1), Some(wrong), None), T + 1);
        }
    }

    #[test]
    fn two_times_in_a_row_are_a_step_of_the_clock_or_follow_a_pause() {
        let sequence = Sequence::new(T);
        for step in [T - HOUR, T + HOUR] {
            assert_eq!(due(&sequence, Some(step), Some(step + 1), None), step);
        }
        // Two that are further and further behind are both wrong.
        assert_eq!(due(&sequence, Some(T - HOUR), Some(T - 2 * HOUR), Some(T)), T);
        // After a pause, a single wrong time.
        assert_eq!(
            due(&sequence, Some(T + HOUR), Some(T - HOUR), Some(T + HOUR + 1)),
            T + HOUR
        );
    }

    #[test]
    fn where_frames_are_seldom_none_is_far_ahead() {
        let mut sequence = Sequence::new(T);
        assert!(sequence.is_ahead(T + 60 * SECOND));
        sequence.advance(T + 60 * SECOND);
        assert!(!sequence.is_ahead(T + 120 * SECOND) && sequence.is_ahead(T + HOUR));
    }
}
