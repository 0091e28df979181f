//! A bounded FIFO of reports in local memory, for essential and high-priority reports while the collector is congested or
//! absent. The DTA paper (section 3.2) describes it as rerouting critical reports to the switch's local CPU.
//!
//! Records are contiguous in a ring of bytes: a header of 9 bytes, then the report's payload. A record that does not fit
//! before the end starts at offset 0, and a wrap mark takes its place.

/// Header of a record, bytes: payload length (4), reporter ID (4), layout (1).
const HEAD: usize = 9;
/// Length value that marks a wrap to offset 0.
const WRAP: [u8; 4] = [0xff; 4];

/// A bounded queue of reports: see the module documentation.
#[derive(Debug)]
pub(super) struct LocalQueue {
    bytes: Vec<u8>,
    /// Offset of the oldest record, and the offset after the newest.
    head: usize,
    tail: usize,
    records: u64,
    used: u64,
}

/// A report in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record<'a> {
    pub(super) reporter: u32,
    pub(super) artifact: bool,
    pub(super) payload: &'a [u8],
}

impl LocalQueue {
    pub(super) fn new(len: usize) -> Self {
        Self {
            bytes: vec![0; len],
            head: 0,
            tail: 0,
            records: 0,
            used: 0,
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Returns the number of queued reports and their payload bytes.
    pub(super) fn usage(&self) -> (u64, u64) {
        (self.records, self.used)
    }

    /// Returns whether at least half of it is in use.
    pub(super) fn is_half_full(&self) -> bool {
        2 * (self.used + self.records * HEAD as u64) >= self.bytes.len() as u64
    }

    /// Appends a report; returns `false` if the queue is full.
    pub(super) fn push(&mut self, record: Record<'_>) -> bool {
        let len = HEAD + record.payload.len();
        let Some(at) = self.reserve(len) else { return false };
        let place = &mut self.bytes[at..at + len];
        // The record's header: payload length, reporter, and whether the payload is in the artifact's layout.
        place[..4].copy_from_slice(&(record.payload.len() as u32).to_le_bytes());
        place[4..8].copy_from_slice(&record.reporter.to_le_bytes());
        place[8] = u8::from(record.artifact);
        place[HEAD..].copy_from_slice(record.payload);
        self.tail = at + len;
        self.records += 1;
        self.used += record.payload.len() as u64;
        true
    }

    /// Returns the offset of `len` contiguous free bytes after the newest record, or `None` if there is no space.
    fn reserve(&mut self, len: usize) -> Option<usize> {
        if self.records == 0 {
            self.head = 0;
            self.tail = 0;
        }
        let wrapped = self.tail < self.head || (self.tail == self.head && self.records > 0);
        let end = if wrapped { self.head } else { self.bytes.len() };
        if end - self.tail >= len {
            return Some(self.tail);
        }
        if wrapped || self.head < len {
            return None;
        }
        if let Some(mark) = self.bytes.get_mut(self.tail..self.tail + 4) {
            mark.copy_from_slice(&WRAP);
        }
        Some(0)
    }

    /// Returns the offset of the oldest record, after skipping a wrap mark.
    fn first(&self) -> usize {
        match self.bytes.get(self.head..self.head + 4) {
            Some(mark) if *mark != WRAP => self.head,
            _ => 0,
        }
    }

    /// Returns the oldest report without removing it, or `None` if the queue is empty.
    pub(super) fn peek(&self) -> Option<Record<'_>> {
        if self.records == 0 {
            return None;
        }
        let record = self.bytes.get(self.first()..)?;
        let (len, record) = record.split_first_chunk::<4>()?;
        let (reporter, record) = record.split_first_chunk::<4>()?;
        let (layout, record) = record.split_first()?;
        let payload = record.get(..u32::from_le_bytes(*len) as usize)?;
        Some(Record {
            reporter: u32::from_le_bytes(*reporter),
            artifact: *layout != 0,
            payload,
        })
    }

    /// Removes the oldest report.
    pub(super) fn pop(&mut self) {
        let Some(len) = self.peek().map(|record| record.payload.len()) else {
            return;
        };
        self.head = self.first() + HEAD + len;
        self.records -= 1;
        self.used -= len as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn it_is_a_queue_of_any_sizes() {
        for capacity in [0, 8, 9, 100, 137, 1000] {
            let mut local = LocalQueue::new(capacity);
            let mut model: VecDeque<Vec<u8>> = VecDeque::new();
            let mut seed = capacity as u64 + 1;
            let (mut pushed, mut full) = (0, 0);
            for step in 0..20_000u32 {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                if seed >> 62 < 2 {
                    let payload = vec![step as u8; (seed >> 33) as usize % 60];
                    let record = Record {
                        reporter: step,
                        artifact: step % 3 == 0,
                        payload: &payload,
                    };
                    if local.push(record) {
                        pushed += 1;
                        model.push_back([&step.to_le_bytes()[..], &payload].concat());
                    } else {
                        full += 1;
                        // An empty ring refuses only a record larger than the ring.
                        assert!(!model.is_empty() || payload.len() + HEAD > capacity);
                    }
                } else {
                    let front = model.pop_front();
                    let got = local.peek().map(|record| {
                        assert_eq!(record.artifact, record.reporter % 3 == 0);
                        [&record.reporter.to_le_bytes()[..], record.payload].concat()
                    });
                    assert_eq!(got, front);
                    local.pop();
                }
                let bytes = model.iter().map(|record| record.len() as u64 - 4).sum();
                assert_eq!(local.usage(), (model.len() as u64, bytes));
            }
            assert!(full > 0 && (pushed > 0 || capacity < HEAD), "{capacity}");
        }
    }
}
