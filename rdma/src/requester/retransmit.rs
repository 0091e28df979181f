//! The requester's retransmit buffer: unacknowledged reliable operations in PSN order, in a ring of operations and a ring
//! of their data.
//!
//! Both rings have a fixed size. They hold operations, not frames, so that a new connection can send them again with other
//! PSNs, addresses and R_Keys. An operation's data is contiguous: if it does not fit before the ring's end, it starts at
//! the ring's beginning, and the gap is freed together with it.

use wire::roce::Psn;

/// The destination of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Destination {
    pub(super) region: u16,
    pub(super) offset: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OperationKind {
    /// Writes this many bytes of the data ring.
    Write(u32),
    /// Adds this value to a counter.
    Add(u64),
}

/// An operation in the retransmit buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// PSN of its first packet on the current connection.
    pub(super) psn: Psn,
    /// Packets on the current connection; 0 if the operation was given up.
    pub(super) packets: u32,
    pub(super) to: Destination,
    /// Immediate value that notifies the collector's program.
    pub(super) immediate: Option<u32>,
    pub(super) kind: OperationKind,
    /// At least one packet was sent, on this connection or an earlier one.
    pub(super) was_sent: bool,
    /// The collector refused it on an earlier connection.
    pub(super) was_refused: bool,
    /// The region's memory was lost or replaced.
    pub(super) outdated: bool,
    /// Start of its data in the data ring, in bytes since creation (not wrapped).
    start: u64,
    /// End of its data, from which the next operation's data is placed.
    end: u64,
}

impl Operation {
    pub(super) fn len(&self) -> u32 {
        match self.kind {
            OperationKind::Write(len) => len,
            OperationKind::Add(_) => 0,
        }
    }

    /// Returns the PSN after its last packet.
    pub(super) fn next_psn(&self) -> Psn {
        self.psn.plus(self.packets)
    }

    const NONE: Self = Self {
        psn: Psn::new(0),
        packets: 0,
        to: Destination { region: 0, offset: 0 },
        immediate: None,
        kind: OperationKind::Write(0),
        was_sent: false,
        was_refused: false,
        outdated: false,
        start: 0,
        end: 0,
    };
}

/// The two rings. Positions count operations since creation and do not wrap.
#[derive(Debug)]
pub(super) struct RetransmitBuffer {
    operations: Box<[Operation]>,
    first: u64,
    end: u64,
    bytes: Box<[u8]>,
    data_start: u64,
    data_end: u64,
}

impl RetransmitBuffer {
    /// Creates a buffer for this many operations and bytes, each rounded up to a power of two.
    pub(super) fn new(operations: usize, bytes: usize) -> Self {
        Self {
            operations: vec![Operation::NONE; operations.next_power_of_two()].into(),
            first: 0,
            end: 0,
            bytes: vec![0; bytes.next_power_of_two()].into(),
            data_start: 0,
            data_end: 0,
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

    /// Returns how many more operations fit.
    pub(super) fn free(&self) -> usize {
        self.operations.len() - (self.end - self.first) as usize
    }

    /// Returns how many bytes of data the next operation can have.
    pub(super) fn free_bytes(&self) -> usize {
        let capacity = self.bytes.len() as u64;
        let free = capacity - (self.data_end - self.data_start);
        let to_edge = capacity - self.data_end % capacity;
        // Data must be contiguous: either up to the end of the ring, or from its beginning.
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
    pub(super) fn operation_mut(&mut self, position: u64) -> &mut Operation {
        let mask = self.operations.len() - 1;
        &mut self.operations[position as usize & mask]
    }

    /// Returns the bytes that the operation at `position` writes.
    pub(super) fn data(&self, position: u64) -> &[u8] {
        let operation = self.at(position);
        let start = operation.start as usize & (self.bytes.len() - 1);
        &self.bytes[start..start + operation.len() as usize]
    }

    /// Appends a write of both `parts` in sequence; returns `false` if the buffer is full.
    pub(super) fn push_write(&mut self, to: Destination, parts: [&[u8]; 2], immediate: Option<u32>) -> bool {
        let len = parts[0].len() + parts[1].len();
        if self.free() == 0 || self.free_bytes() < len {
            return false;
        }
        let capacity = self.bytes.len();
        let mut start = self.data_end;
        let ring_offset = start as usize & (capacity - 1);
        if ring_offset + len > capacity {
            // Skips the rest of the ring, so that the data is contiguous.
            start += (capacity - ring_offset) as u64;
        }
        let ring_offset = start as usize & (capacity - 1);
        let (head, tail) = self.bytes[ring_offset..ring_offset + len].split_at_mut(parts[0].len());
        head.copy_from_slice(parts[0]);
        tail.copy_from_slice(parts[1]);
        self.data_end = start + len as u64;
        self.push(Operation {
            start,
            ..Self::operation(to, OperationKind::Write(len as u32), immediate)
        });
        true
    }

    /// Appends a fetch-and-add; returns `false` if the buffer is full.
    pub(super) fn push_add(&mut self, to: Destination, delta: u64) -> bool {
        if self.free() == 0 {
            return false;
        }
        let start = self.data_end;
        self.push(Operation {
            start,
            ..Self::operation(to, OperationKind::Add(delta), None)
        });
        true
    }

    fn operation(to: Destination, kind: OperationKind, immediate: Option<u32>) -> Operation {
        Operation {
            to,
            kind,
            immediate,
            ..Operation::NONE
        }
    }

    fn push(&mut self, operation: Operation) {
        let end = self.data_end;
        *self.operation_mut(self.end) = Operation { end, ..operation };
        self.end += 1;
    }

    /// Removes the oldest operation.
    pub(super) fn pop(&mut self) {
        if self.first < self.end {
            self.data_start = self.at(self.first).end;
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
