//! RoCEv2 WRITE frames for benchmarks of the responder, and plain loops that store the same bytes, for comparison.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;

use memory::Region;
use wire::roce::{Head, ICRC_LEN, MAX_FRAME, Opcode, Path, Psn, Reth, Segment, Segments, Transport, Writer};

use wire::EmitError;

use ::rdma::responder::{
    AccessFlags, Config, Order, Output, QueuePairConfig, Registered, Registration, Responder, Stats,
};

/// Bytes of the region's header page, which no frame writes.
const START: u64 = 4096;
/// Prefetch distance of the plain loops, in operations.
const AHEAD: usize = 16;
const MTU: u16 = 4096;

/// One case of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// Name of the case, as in `hopwise bench`.
    pub name: &'static str,
    /// Length of a write, in bytes.
    pub len: usize,
    /// Distance from one slot to the next, in bytes.
    pub stride: u64,
    /// Slots are written in random instead of sequential order.
    pub random: bool,
    /// Order in which the bytes of a write are stored.
    pub order: Order,
}

/// The published cases: a Key-Write slot with a path of five nodes, and Append batches of 16 entries of 18 and of 4 bytes with
/// their tags.
pub const CASES: [Case; 3] = [
    Case {
        name: "rdma-key-write",
        len: 24,
        stride: 32,
        random: true,
        order: Order::HeadLast,
    },
    Case {
        name: "rdma-append",
        len: 304,
        stride: 304,
        random: false,
        order: Order::Ascending,
    },
    Case {
        name: "rdma-append-80",
        len: 80,
        stride: 80,
        random: false,
        order: Order::Ascending,
    },
];

/// Counts responses and discards them.
#[derive(Clone, Copy, Default, Debug)]
struct Discard(u64);

impl Output for Discard {
    fn respond(&mut self, _: &Path, _: &[u8]) {
        self.0 += 1;
    }
}

/// A responder with one region and one unreliable queue pair, and the requester's writer.
#[derive(Debug)]
pub struct Feed {
    case: Case,
    memory: Arc<Region>,
    responder: Responder,
    writer: Writer,
    at: Registered,
    psn: Psn,
    random: u64,
    number: u64,
    data: Vec<u8>,
    /// Offset of each write in the region.
    offsets: Vec<u64>,
    /// Address and range in `frames` of each packet's payload.
    payloads: Vec<(u64, Range<usize>)>,
    frames: Vec<u8>,
    /// Range of each frame in `frames`.
    whole: Vec<Range<usize>>,
    out: Discard,
}

impl Case {
    /// Creates a feed of its frames for a region, or returns `None` if the region is too small.
    pub fn feed(self, memory: Arc<Region>) -> Option<Feed> {
        let mut responder = Responder::new(Config::default()).ok()?;
        let what = Registration {
            memory: Arc::clone(&memory),
            start: START,
            len: memory
                .len()
                .checked_sub(START)
                .filter(|len| *len >= self.stride.max(self.len as u64))?,
            access: AccessFlags::WRITE,
            order: self.order,
            region: 0,
        };
        let at = responder.register(&what).ok()?;
        let near = Ipv4Addr::new(198, 51, 100, 1).into();
        let far = Ipv4Addr::new(198, 51, 100, 2).into();
        let queue_pair = QueuePairConfig {
            transport: Transport::Uc,
            path: Path::new(far, near, 0xc001),
            peer: 0x11,
            psn: Psn::new(0),
            mtu: MTU.into(),
            receives: 0,
        };
        let number = responder.connect(&queue_pair).ok()?;
        let writer = Writer::new(Path::new(near, far, 0xc001), Transport::Uc, number).ok()?;
        Some(Feed {
            case: self,
            memory,
            responder,
            writer,
            at,
            psn: Psn::new(0),
            random: 1,
            number: 0,
            data: (0..self.len).map(|i| i as u8 | 1).collect(),
            offsets: Vec::new(),
            payloads: Vec::new(),
            frames: Vec::new(),
            whole: Vec::new(),
            out: Discard::default(),
        })
    }
}

impl Feed {
    /// Chooses the next slots, and builds the frames that write to them.
    ///
    /// # Errors
    /// [`EmitError`] if a write does not fit into a frame.
    pub fn fill(&mut self, operations: usize) -> Result<(), EmitError> {
        let all = (self.at.len - self.data.len() as u64) / self.case.stride + 1;
        self.offsets.clear();
        self.payloads.clear();
        self.frames.clear();
        self.whole.clear();
        for _ in 0..operations {
            let slot = if self.case.random {
                self.random() % all
            } else {
                self.number % all
            };
            self.number += 1;
            let offset = slot * self.case.stride;
            self.offsets.push(START + offset);
            for segment in Segments::new(self.data.len(), MTU) {
                self.frame(offset, segment)?;
            }
        }
        Ok(())
    }

    fn frame(&mut self, offset: u64, segment: Segment) -> Result<(), EmitError> {
        let begin = self.frames.len();
        self.frames.resize(begin + MAX_FRAME, 0);
        let out = &mut self.frames[begin..];
        let head = Head::new(self.psn);
        let reth = Reth {
            address: self.at.address + offset,
            rkey: self.at.rkey,
            len: self.data.len() as u32,
        };
        let payload = &self.data[segment.at..segment.at + segment.len];
        let len = match segment.opcode {
            Opcode::WriteFirst => self.writer.write_first(out, head, reth, payload),
            Opcode::WriteMiddle => self.writer.write_middle(out, head, payload),
            Opcode::WriteLast => self.writer.write_last(out, head, payload),
            _ => self.writer.write_only(out, head, reth, payload),
        }?;
        self.psn = self.psn.next();
        // The payload is followed by up to three bytes of padding and the ICRC.
        let end = begin + len - ICRC_LEN - (segment.len.wrapping_neg() & 3);
        self.payloads
            .push((START + offset + segment.at as u64, end - segment.len..end));
        self.frames.truncate(begin + len);
        self.whole.push(begin..begin + len);
        Ok(())
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Passes the frames to the responder, at most `burst` at once, as a socket or ring does. Returns the number of writes.
    pub fn respond(&mut self, burst: usize) -> u64 {
        for frames in self.whole.chunks(burst.max(1)) {
            self.responder.process(
                frames.iter().map(|frame| &self.frames[frame.clone()]),
                &mut self.out,
            );
        }
        self.offsets.len() as u64
    }

    /// Stores the same bytes from one cached buffer in a plain loop with prefetch; [`copy`](Self::copy) reads the frames.
    pub fn store(&self) -> u64 {
        for (index, at) in self.offsets.iter().enumerate() {
            if let Some(next) = self.offsets.get(index + AHEAD) {
                self.memory.prefetch_write(*next);
            }
            // Inside the region: the responder's frames have the same addresses.
            let _ = self.memory.write(*at, std::hint::black_box(&self.data));
        }
        self.offsets.len() as u64
    }

    /// Copies the payloads of the frames to their addresses in a plain loop with prefetch.
    pub fn copy(&self) -> u64 {
        for (index, (at, payload)) in self.payloads.iter().enumerate() {
            if let Some((next, _)) = self.payloads.get(index + AHEAD) {
                self.memory.prefetch_write(*next);
            }
            // Inside the region: the responder's frames have the same addresses.
            let _ = self.memory.write(*at, &self.frames[payload.clone()]);
        }
        self.offsets.len() as u64
    }

    /// Returns the counters of the responder.
    pub fn stats(&self) -> &Stats {
        self.responder.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_is_executed_at_its_place() {
        for case in CASES.into_iter().chain([Case {
            name: "long",
            len: 9000,
            stride: 9000,
            ..CASES[1]
        }]) {
            let memory = Arc::new(Region::anonymous(1 << 20, false).unwrap());
            let mut feed = case.feed(Arc::clone(&memory)).unwrap();
            feed.fill(100).unwrap();
            assert_eq!(feed.respond(64), 100);
            let stats = *feed.stats();
            assert!(
                stats.is_balanced() && stats.executed == stats.packets && stats.messages == 100,
                "{stats:?}"
            );
            assert_eq!((stats.bytes, feed.out.0), (100 * case.len as u64, 0));
            let mut found = vec![0; case.len];
            for offset in &feed.offsets {
                memory.read(*offset, &mut found).unwrap();
                assert_eq!(found, feed.data, "{}", case.name);
            }
            memory.zero(0..memory.len()).unwrap();
            assert_eq!(feed.copy(), 100);
            for offset in &feed.offsets {
                memory.read(*offset, &mut found).unwrap();
                assert_eq!(found, feed.data, "{}, copied", case.name);
            }
        }
    }
}
