//! The retransmit buffer: reliable operations until they are acknowledged, in a ring of operations and a ring of their data.
//!
//! Both rings have a fixed size. Operations are in the order of their PSNs. The buffer holds operations, not frames, so that
//! another connection can send them again with other PSNs, addresses and R_Keys.

use wire::roce::Psn;

/// The destination of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Destination {
    pub(super) region: u16,
    pub(super) offset: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Writes bytes of the data ring.
    Write(u32),
    /// Adds to a counter.
    Add(u64),
}

/// An operation in the retransmit buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// PSN of its first packet on the current connection.
    pub(super) psn: Psn,
    /// Number of its packets there; 0 if it was given up.
    pub(super) packets: u32,
    pub(super) to: Destination,
    /// Immediate value for the collector's program.
    pub(super) immediate: Option<u32>,
    pub(super) kind: Kind,
    /// Whether at least one packet of the message was sent, on this connection or an earlier one.
    pub(super) sent: bool,
    /// The collector answered with an error, on an earlier connection.
    pub(super) refused: bool,
    /// The memory of its region was lost or replaced.
    pub(super) outdated: bool,
    /// Start of its data, counting all bytes since the beginning.
    start: u64,
    /// First possible start of the next operation's data.
    end: u64,
}

impl Operation {
    pub(super) fn len(&self) -> u32 {
        match self.kind {
            Kind::Write(len) => len,
            Kind::Add(_) => 0,
        }
    }

    /// Returns the PSN after its last packet.
    pub(super) fn after(&self) -> Psn {
        self.psn.plus(self.packets)
    }

    const NONE: Self = Self {
        psn: Psn::new(0),
        packets: 0,
        to: Destination { region: 0, offset: 0 },
        immediate: None,
        kind: Kind::Write(0),
        sent: false,
        refused: false,
        outdated: false,
        start: 0,
        end: 0,
    };
}

/// The buffer as two rings. Positions count all operations since the beginning and do not wrap.
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
    /// Creates a buffer for this many operations and bytes, each rounded up to a power of two.
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

    /// Returns the position of the oldest operation.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the position after the newest operation.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of operations that fit.
    pub(super) fn free(&self) -> usize {
        self.operations.len() - (self.end - self.first) as usize
    }

    /// Returns the maximum data of the next operation, bytes.
    pub(super) fn free_bytes(&self) -> usize {
        let capacity = self.bytes.len() as u64;
        let free = capacity - (self.bytes_end - self.bytes_first);
        let to_edge = capacity - self.bytes_end % capacity;
        // Contiguous bytes: those up to the end of the ring, or those at its start.
        if free <= to_edge {
            free as usize
        } else {
            to_edge.max(free - to_edge) as usize
        }
    }

    /// Returns the operation at a position between [`first`](Self::first) and [`end`](Self::end).
    pub(super) fn at(&self, position: u64) -> &Operation {
        &self.operations[position as usize & (self.operations.len() - 1)]
    }

    /// Returns the same operation as [`at`](Self::at), mutable.
    pub(super) fn at_mut(&mut self, position: u64) -> &mut Operation {
        let mask = self.operations.len() - 1;
        &mut self.operations[position as usize & mask]
    }

    /// Returns the bytes that the operation at `position` writes.
    pub(super) fn data(&self, position: u64) -> &[u8] {
        let operation = self.at(position);
        let start = operation.start as usize & (self.bytes.len() - 1);
        &self.bytes[start..start + operation.len() as usize]
    }

    /// Appends a write of `parts`, one after the other; returns `false` if the buffer is full.
    pub(super) fn push_write(&mut self, to: Destination, parts: [&[u8]; 2], immediate: Option<u32>) -> bool {
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
        self.push(Operation {
            start,
            ..Self::operation(to, Kind::Write(len as u32), immediate)
        });
        true
    }

    /// Appends an addition; returns `false` if the buffer is full.
    pub(super) fn push_add(&mut self, to: Destination, delta: u64) -> bool {
        if self.free() == 0 {
            return false;
        }
        let start = self.bytes_end;
        self.push(Operation {
            start,
            ..Self::operation(to, Kind::Add(delta), None)
        });
        true
    }

    fn operation(to: Destination, kind: Kind, immediate: Option<u32>) -> Operation {
        Operation {
            to,
            kind,
            immediate,
            ..Operation::NONE
        }
    }

    fn push(&mut self, operation: Operation) {
        let end = self.bytes_end;
        *self.at_mut(self.end) = Operation { end, ..operation };
        self.end += 1;
    }

    /// Removes the oldest operation.
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

    fn write(buffer: &mut RetransmitBuffer, data: &[u8]) -> bool {
        buffer.push_write(
            Destination {
                region: 1,
                offset: 64,
            },
            [&data[..data.len() / 2], &data[data.len() / 2..]],
            None,
        )
    }

    #[test]
    fn data_is_intact_over_many_laps() {
        let mut buffer = RetransmitBuffer::new(8, 64);
        let mut next = 0_u8;
        for round in 0..1000 {
            let len = round % 23;
            let data: Vec<u8> = (0..len).map(|i| next.wrapping_add(i as u8)).collect();
            next = next.wrapping_add(1);
            while !write(&mut buffer, &data) {
                buffer.pop();
            }
            assert_eq!(buffer.data(buffer.end() - 1), data);
        }
    }

    #[test]
    fn unacknowledged_data_is_not_overwritten() {
        let mut buffer = RetransmitBuffer::new(8, 64);
        assert!(write(&mut buffer, &[1; 30]));
        assert!(write(&mut buffer, &[2; 30]));
        assert_eq!(buffer.free_bytes(), 4);
        assert!(!write(&mut buffer, &[3; 5]));
        buffer.pop();
        assert_eq!(buffer.free_bytes(), 30);
        assert!(write(&mut buffer, &[3; 30]));
        assert_eq!(buffer.data(1), [2; 30]);
        assert_eq!(buffer.data(2), [3; 30]);
        assert!(!write(&mut buffer, &[4; 1]));
    }

    #[test]
    fn operations_are_bounded() {
        let mut buffer = RetransmitBuffer::new(4, 64);
        for delta in 0..4 {
            assert!(buffer.push_add(Destination { region: 0, offset: 0 }, delta));
        }
        assert!(!buffer.push_add(Destination { region: 0, offset: 0 }, 4));
        assert!(!write(&mut buffer, &[]));
        buffer.pop();
        assert!(write(&mut buffer, &[]));
        assert_eq!(buffer.free(), 0);
    }
}
