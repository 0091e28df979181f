//! The output of a reporter: reports that are ready to be sent, in memory that is allocated once.

/// Reports that are ready to be sent, each to a collector. Reports that do not fit are rejected, and counted by the reporter.
/// The caller sends the reports and clears the outbox.
#[derive(Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    used: usize,
    slots: Vec<Slot>,
}

/// A report in an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Number of the destination collector.
    pub collector: u8,
    /// The UDP payload, without headers.
    pub payload: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    collector: u8,
    start: u32,
    len: u16,
}

impl Outbox {
    /// Creates an outbox for at most `reports` reports of `bytes` bytes in total.
    pub fn new(bytes: usize, reports: usize) -> Self {
        let bytes = bytes.min(u32::MAX as usize);
        Self {
            bytes: vec![0; bytes],
            used: 0,
            slots: Vec::with_capacity(reports),
        }
    }

    /// Returns whether the outbox has no report.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the number of reports.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Removes all reports; the memory is reused.
    pub fn clear(&mut self) {
        self.used = 0;
        self.slots.clear();
    }

    /// Returns the reports in order.
    pub fn datagrams(&self) -> impl ExactSizeIterator<Item = Datagram<'_>> {
        self.slots.iter().map(|slot| {
            let start = slot.start as usize;
            let payload = &self.bytes[start..start + usize::from(slot.len)];
            Datagram {
                collector: slot.collector,
                payload,
            }
        })
    }

    /// Returns a buffer for a report of at most `len` bytes, or `None` if it does not fit.
    #[inline]
    pub(super) fn buffer(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.slots.len() == self.slots.capacity() {
            return None;
        }
        self.bytes.get_mut(self.used..self.used + len)
    }

    /// Adds the report of `len` bytes that was written to [`Outbox::buffer`].
    #[inline]
    pub(super) fn commit(&mut self, collector: u8, len: usize) {
        self.slots.push(Slot {
            collector,
            start: self.used as u32,
            len: len as u16,
        });
        self.used += len;
    }

    /// Adds a complete report. Returns false if it does not fit.
    #[inline]
    pub(super) fn push(&mut self, collector: u8, payload: &[u8]) -> bool {
        let Some(buffer) = self.buffer(payload.len()) else {
            return false;
        };
        buffer.copy_from_slice(payload);
        self.commit(collector, payload.len());
        true
    }
}

impl Default for Outbox {
    /// Returns an outbox for 1024 reports, 1 MiB in total.
    fn default() -> Self {
        Self::new(1 << 20, 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_that_do_not_fit_are_rejected() {
        let mut outbox = Outbox::new(10, 3);
        assert!(outbox.push(1, &[1; 4]) && outbox.push(2, &[2; 6]) && !outbox.push(3, &[3]));
        let pending: Vec<_> = outbox
            .datagrams()
            .map(|one| (one.collector, one.payload.to_vec()))
            .collect();
        assert_eq!(pending, [(1, vec![1; 4]), (2, vec![2; 6])]);
        outbox.clear();
        assert!(outbox.is_empty());
        assert_eq!(
            (0..4).filter(|i| outbox.push(*i, &[0])).count(),
            3,
            "three reports, however short"
        );
    }
}
