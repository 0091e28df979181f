//! The kernel's responder and the one in user space, given the same frames.

use std::io::Write as _;
use std::sync::Arc;

use memory::Region;
use rdma::responder::{
    AccessFlags, Completion, Config, Order, Output, QueuePairConfig, QueuePairState, Registered,
    Registration, Responder,
};
use wire::roce::{Packet, Path, Psn, Transport};
use xdp::rdma::{Options, Rdma};

use crate::frames::{HERE, address};

/// Bytes of memory: two of the kernel's chunks.
const MEMORY: u64 = 2 << 20;

/// The output of a responder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Recorded {
    Answer(Vec<u8>),
    Complete(Completion),
    Sent(u32, Vec<u8>),
}

#[derive(Default)]
struct Recorder(Vec<Recorded>);

impl Output for Recorder {
    fn respond(&mut self, _: &Path, frame: &[u8]) {
        self.0.push(Recorded::Answer(frame.to_vec()));
    }
    fn complete(&mut self, completion: &Completion) {
        self.0.push(Recorded::Complete(*completion));
    }
    fn sent(&mut self, pair: u32, message: &[u8]) {
        self.0.push(Recorded::Sent(pair, message.to_vec()));
    }
}

/// A requester's end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) number: u32,
    pub(crate) config: QueuePairConfig,
    pub(crate) v6: bool,
    pub(crate) from: u8,
}

/// See the module documentation.
pub(crate) struct Both {
    pub(crate) kernel: Rdma,
    pub(crate) responder: Responder,
    ours: Region,
    theirs: Arc<Region>,
    pub(crate) regions: Vec<Registered>,
    pub(crate) pairs: Vec<Pair>,
}

/// `XDP_DROP`, `XDP_PASS`, `XDP_TX`.
const DROP: u32 = 1;
const PASS: u32 = 2;
const SENT_BACK: u32 = 3;

/// The kernel's responder, or nothing (reported as skipped) where this process may not load it.
pub(crate) fn load(test: &str, options: &Options) -> Option<Rdma> {
    /// EPERM.
    const FORBIDDEN: i32 = 1;
    match Rdma::load(options) {
        Ok(kernel) => Some(kernel),
        Err(error) if error.errno() == Some(FORBIDDEN) => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED {test}: loading BPF programs needs CAP_BPF and CAP_NET_ADMIN"
            );
            None
        }
        Err(error) => panic!("{error}"),
    }
}

impl Both {
    /// Two responders with the same four regions and no queue pair.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let kernel = load(
            test,
            &Options {
                memory: MEMORY,
                ..Options::default()
            },
        )?;
        let config = Config {
            queue_pairs: 4096,
            regions: 256,
            seed: 7,
            ..Config::default()
        };
        let mut both = Self {
            ours: kernel.map(0, MEMORY).unwrap(),
            kernel,
            responder: Responder::new(config).unwrap(),
            theirs: Arc::new(Region::anonymous(MEMORY, false).unwrap()),
            regions: Vec::new(),
            pairs: Vec::new(),
        };
        let none = AccessFlags {
            write: false,
            atomic: true,
        };
        both.register(4096, 64 << 10, AccessFlags::ALL, Order::HeadLast);
        // Across the boundary of the kernel's two chunks, once at an odd address and once not.
        both.register((1 << 20) - 5001, 10_000, AccessFlags::WRITE, Order::Ascending);
        both.register((1 << 20) - 8 * 1003, 16_000, AccessFlags::ALL, Order::HeadLast);
        both.register(MEMORY - 4096, 4096, none, Order::Ascending);
        Some(both)
    }

    pub(crate) fn register(&mut self, start: u64, len: u64, access: AccessFlags, order: Order) {
        let region = self.regions.len() as u16 + 100;
        let memory = Arc::clone(&self.theirs);
        let named = self
            .responder
            .register(&Registration {
                memory,
                start,
                len,
                access,
                order,
                region,
            })
            .unwrap();
        self.kernel
            .register(&named, start, access, order, region)
            .unwrap();
        self.regions.push(named);
    }

    /// Makes a queue pair at both.
    pub(crate) fn connect(&mut self, transport: Transport, v6: bool, mtu: u32) {
        let from = 10 + self.pairs.len() as u8;
        let mut path = Path::new(address(v6, HERE), address(v6, from), 0xc001);
        (path.source_mac, path.destination_mac) = ([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
        let psn = Psn::new(0xff_fff0 + u32::from(from));
        let receives = if transport == Transport::Rc { 1 } else { 6 };
        let config = QueuePairConfig {
            transport,
            path,
            peer: 0x77_0000 + u32::from(from),
            psn,
            mtu,
            receives,
        };
        let number = self.responder.connect(&config).unwrap();
        self.kernel.connect(number, &config).unwrap();
        self.pairs.push(Pair {
            number,
            config,
            v6,
            from,
        });
    }

    /// Reconnects a queue pair if it is in the error state, as its requester would.
    pub(crate) fn reset_pair(&mut self, index: usize) {
        let pair = self.pairs[index];
        let state = self.responder.state(pair.number);
        assert_eq!(self.kernel.state(pair.number), state);
        if state == Some(QueuePairState::Error) {
            assert!(self.responder.disconnect(pair.number) && self.kernel.disconnect(pair.number));
            let number = self.responder.connect(&pair.config).unwrap();
            self.kernel.connect(number, &pair.config).unwrap();
            self.pairs[index].number = number;
        }
    }

    pub(crate) fn replenish(&mut self, index: usize) {
        let number = self.pairs[index].number;
        self.responder.replenish(number, 3);
        self.kernel.replenish(number, 3);
        assert_eq!(self.kernel.receives(number), self.responder.receives(number));
    }

    /// Passes a frame to both and compares memory and state; returns their output.
    pub(crate) fn process(&mut self, what: &str, frame: &[u8]) -> Vec<Recorded> {
        let run = self.kernel.object().test_run(Rdma::PROGRAM, frame, 1).unwrap();
        let known = |number| self.pairs.iter().any(|pair| pair.number == number);
        if run.verdict == PASS {
            assert_eq!(run.frame, frame, "{what}: left as it was");
            let parsed = Packet::parse(frame);
            let tagged = frame[12] == 0x81 || frame[12] == 0x88;
            assert!(
                parsed.is_err() || tagged || parsed.is_ok_and(|packet| !known(packet.bth.queue_pair)),
                "{what}"
            );
            return Vec::new();
        }
        let (mut kernel, mut user) = (Recorder::default(), Recorder::default());
        self.kernel.completed(usize::MAX, &mut kernel);
        if run.verdict == SENT_BACK {
            kernel.0.push(Recorded::Answer(run.frame));
        } else {
            assert_eq!(run.verdict, DROP, "{what}");
        }
        self.responder.process([frame], &mut user);
        assert_eq!(kernel.0, user.0, "{what} {frame:02x?}");
        let counted = self.kernel.counted().unwrap();
        assert_eq!(counted.stats, *self.responder.stats(), "{what} {frame:02x?}");
        assert!(
            counted.is_balanced() && counted.responses_unsent == 0,
            "{counted:?}"
        );
        user.0
    }

    /// Compares all memory, and all queue pairs.
    pub(crate) fn compare(&self, what: &str) {
        let read = |region: &Region| {
            let mut bytes = vec![0; MEMORY as usize];
            region.read(0, &mut bytes).unwrap();
            bytes
        };
        let (ours, theirs) = (read(&self.ours), read(&self.theirs));
        if let Some(at) = ours.iter().zip(&theirs).position(|(a, b)| a != b) {
            panic!(
                "{what}: memory differs first at {at:#x}: {} and {}",
                ours[at], theirs[at]
            );
        }
        for pair in &self.pairs {
            assert_eq!(
                self.kernel.expected(pair.number),
                self.responder.expected(pair.number),
                "{what}"
            );
            assert_eq!(
                self.kernel.receives(pair.number),
                self.responder.receives(pair.number),
                "{what}"
            );
        }
    }
}
