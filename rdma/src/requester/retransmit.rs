//! What must arrive is kept here until it is acknowledged: a ring of operations, and a ring of the bytes they write.
//!
//! Both are of fixed size. The operations are in the order of their packet sequence numbers; operations, not frames, are
//! kept, so that they can be sent again on another connection, to the same place under other names.

use wire::roce::Psn;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Writes so many kept bytes.
    Write(u32),
    /// Adds to a counter.
    Add(u64),
}

/// An operation that is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// The number of its first packet, on the connection that is up.
    pub(super) psn: Psn,
    /// Packets it takes there; 0 if it was given up and only its place is left.
    pub(super) packets: u32,
    /// Region of the collector.
    pub(super) region: u16,
    /// Where in the region's body.
    pub(super) offset: u64,
    /// Told to the collector's program, too.
    pub(super) immediate: Option<u32>,
    /// What it does.
    pub(super) kind: Kind,
    /// A packet of it left, on this connection or an earlier one.
    pub(super) sent: bool,
    /// The collector answered with an error, on an earlier connection.
    pub(super) refused: bool,
    /// Its region's memory is gone.
    pub(super) outdated: bool,
    /// Where its bytes begin; counts all bytes ever.
    start: u64,
    /// Where the bytes of the next operation may begin.
    end: u64,
}

impl Operation {
    /// Bytes it writes.
    pub(super) fn len(&self) -> u32 {
        match self.kind {
            Kind::Write(len) => len,
            Kind::Add(_) => 0,
        }
    }

    /// The number of the first packet after it.
    pub(super) fn after(&self) -> Psn {
        self.psn.plus(self.packets)
    }

    const NONE: Self = Self {
        psn: Psn::new(0),
        packets: 0,
        region: 0,
        offset: 0,
        immediate: None,
        kind: Kind::Write(0),
        sent: false,
        refused: false,
        outdated: false,
        start: 0,
        end: 0,
    };
}

/// The ring. Positions count all operations ever and do not wrap.
#[derive(Debug)]
pub(super) struct RetransmitBuffer {
    operations: Box<[Operation]>,
    first: u64,
    end: u64,
    bytes: Box<[u8]>,
    bytes_first: u64,
    bytes_end: u64,
}

impl RetransmitBuffer {
    /// A ring for so many operations and bytes, each rounded up to a power of two.
    pub(super) fn new(operations: usize, bytes: usize) -> Self {
        Self {
            operations: vec![Operation::NONE; operations.next_power_of_two()].into(),
            first: 0,
            end: 0,
            bytes: vec![0; bytes.next_power_of_two()].into(),
            bytes_first: 0,
            bytes_end: 0,
        }
    }

    /// Position of the oldest operation.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Position behind the newest operation.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Operations for which there is room.
    pub(super) fn free(&self) -> usize {
        self.operations.len() - (self.end - self.first) as usize
    }

    /// Bytes that one operation may bring now.
    pub(super) fn free_bytes(&self) -> usize {
        let capacity = self.bytes.len() as u64;
        let free = capacity - (self.bytes_end - self.bytes_first);
        let to_edge = capacity - self.bytes_end % capacity;
        // In one piece: what is left before the edge, or what is left behind it.
        if free <= to_edge { free as usize } else { to_edge.max(free - to_edge) as usize }
    }

    /// The operation at a position between [`first`](Self::first) and [`end`](Self::end).
    pub(super) fn at(&self, position: u64) -> &Operation {
        &self.operations[position as usize & (self.operations.len() - 1)]
    }

    /// The same, to be changed.
    pub(super) fn at_mut(&mut self, position: u64) -> &mut Operation {
        let mask = self.operations.len() - 1;
        &mut self.operations[position as usize & mask]
    }

    /// The bytes that the operation at `position` writes.
    pub(super) fn data(&self, position: u64) -> &[u8] {
        let operation = self.at(position);
        let start = operation.start as usize & (self.bytes.len() - 1);
        &self.bytes[start..start + operation.len() as usize]
    }

    /// Keeps a write of `parts`, one behind the other; `false` if there is no room.
    pub(super) fn push_write(
        &mut self,
        place: (u16, u64),
        parts: [&[u8]; 2],
        immediate: Option<u32>,
    ) -> bool {
        let len = parts[0].len() + parts[1].len();
        if self.free() == 0 || self.free_bytes() < len {
            return false;
        }
        let capacity = self.bytes.len();
        let mut start = self.bytes_end;
        let at = start as usize & (capacity - 1);
        if at + len > capacity {
            start += (capacity - at) as u64;
        }
        let at = start as usize & (capacity - 1);
        let (head, tail) = self.bytes[at..at + len].split_at_mut(parts[0].len());
        head.copy_from_slice(parts[0]);
        tail.copy_from_slice(parts[1]);
        self.bytes_end = start + len as u64;
        self.push(Operation { start, ..Self::operation(place, Kind::Write(len as u32), immediate) });
        true
    }

    /// Keeps an addition; `false` if there is no room.
    pub(super) fn push_add(&mut self, place: (u16, u64), delta: u64) -> bool {
        if self.free() == 0 {
            return false;
        }
        let start = self.bytes_end;
        self.push(Operation { start, ..Self::operation(place, Kind::Add(delta), None) });
        true
    }

    fn operation(place: (u16, u64), kind: Kind, immediate: Option<u32>) -> Operation {
        Operation { region: place.0, offset: place.1, kind, immediate, ..Operation::NONE }
    }

    fn push(&mut self, operation: Operation) {
        let end = self.bytes_end;
        *self.at_mut(self.end) = Operation { end, ..operation };
        self.end += 1;
    }

    /// Forgets the oldest operation.
    pub(super) fn pop(&mut self) {
        if self.first < self.end {
            self.bytes_first = self.at(self.first).end;
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(kept: &mut RetransmitBuffer, data: &[u8]) -> bool {
        kept.push_write((1, 64), [&data[..data.len() / 2], &data[data.len() / 2..]], None)
    }

    #[test]
    fn bytes_come_back_as_they_were_over_many_laps() {
        let mut kept = RetransmitBuffer::new(8, 64);
        let mut next = 0_u8;
        for round in 0..1000 {
            let len = round % 23;
            let data: Vec<u8> = (0..len).map(|i| next.wrapping_add(i as u8)).collect();
            next = next.wrapping_add(1);
            while !write(&mut kept, &data) {
                kept.pop();
            }
            assert_eq!(kept.data(kept.end() - 1), data);
        }
    }

    #[test]
    fn what_is_kept_is_not_written_over() {
        let mut kept = RetransmitBuffer::new(8, 64);
        assert!(write(&mut kept, &[1; 30]));
        assert!(write(&mut kept, &[2; 30]));
        assert_eq!(kept.free_bytes(), 4);
        assert!(!write(&mut kept, &[3; 5]));
        kept.pop();
        assert_eq!(kept.free_bytes(), 30);
        assert!(write(&mut kept, &[3; 30]));
        assert_eq!(kept.data(1), [2; 30]);
        assert_eq!(kept.data(2), [3; 30]);
        assert!(!write(&mut kept, &[4; 1]));
    }

    #[test]
    fn places_are_bounded() {
        let mut kept = RetransmitBuffer::new(4, 64);
        for delta in 0..4 {
            assert!(kept.push_add((0, 0), delta));
        }
        assert!(!kept.push_add((0, 0), 4));
        assert!(!write(&mut kept, &[]));
        kept.pop();
        assert!(write(&mut kept, &[]));
        assert_eq!(kept.free(), 0);
    }
}
