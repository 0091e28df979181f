//! Synthetic traffic for benchmarks: frames of Telemetry Report 1.0 around INT 1.0, as INTCollector's generator sends them.
//!
//! A frame of 6 hops with 8 items is 304 bytes: Ethernet, IPv4, UDP (42), report header (16), inner Ethernet, IPv4, UDP
//! (42), INT shim (4), INT header (8), 6 × 32 bytes of metadata. Not part of the fast path.

pub mod aggregate;
mod sf;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use detect::{Detection, Thresholds};
use wire::int::header::Md10;
use wire::int::shim::Shim1;
use wire::report::v10;
use wire::{Dialect, Flags, Hop, Layout};

use crate::collector::Collector;
use crate::config::{Config, Profile};
use crate::decode::Datagram;
use crate::event::{Nanos, Output};
use crate::hash::Jitter;

pub use sf::{SF_CASES, SfCase};

/// Reports per burst.
pub const BURST: usize = 64;

/// Time between two reports: ten million per second.
const GAP: Nanos = 100;
/// Time between two ticks.
const TICK: Nanos = 10_000_000;
/// Thresholds by metric; only the traffic of [`Values::Change`] exceeds one.
const THRESHOLDS: [u64; 6] = [0, 100_000, 10_000, 1000, 1000, 100_000];

/// One case of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// Its name, as in `hopwise bench`.
    pub name: &'static str,
    /// Number of flows, in turn.
    pub flows: u32,
    /// Hops per report.
    pub hops: u8,
    /// Which items each hop carries.
    pub bitmap: u16,
    /// How the values change.
    pub values: Values,
}

/// How the values of a flow change from one report to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// Stay the same.
    Constant,
    /// Vary, by less than every threshold.
    Jitter,
    /// One hop latency per report changes by more than its threshold.
    Change,
}

/// The published cases.
pub const CASES: [Case; 6] = [
    Case { name: "fastpath-6x8-1k", flows: 1000, hops: 6, bitmap: 0xff00, values: Values::Constant },
    Case { name: "fastpath-6x8-100k", flows: 100_000, hops: 6, bitmap: 0xff00, values: Values::Constant },
    Case { name: "fastpath-6x8-1m", flows: 1_000_000, hops: 6, bitmap: 0xff00, values: Values::Constant },
    Case { name: "fastpath-1x1-1k", flows: 1000, hops: 1, bitmap: 0x8000, values: Values::Constant },
    Case { name: "fastpath-6x8-change", flows: 1000, hops: 6, bitmap: 0xff00, values: Values::Change },
    Case { name: "fastpath-6x8-1k-jitter", flows: 1000, hops: 6, bitmap: 0xff00, values: Values::Jitter },
];

impl Case {
    /// A collector for the case.
    pub fn collector(&self) -> Collector {
        let thresholds = Thresholds::new(THRESHOLDS, Vec::new()).unwrap_or_default();
        let mut profile = Profile::new("intcollector-gen", wire::Profile::new(Dialect::IntCollectorGen));
        profile.utilization_scale = 1e-6;
        Collector::new(Config {
            max_flows: self.flows as usize,
            push_interval: 0,
            flow_timeout: 3_600_000_000_000,
            default_profile: profile,
            detection: Arc::new(Detection { thresholds, ..Detection::default() }),
            ..Config::default()
        })
    }

    /// Its frames, generated once in memory.
    pub fn feed(&self) -> Feed {
        // Rounds through all flows, so that values can differ from one to the next.
        let rounds: u32 = match self.values {
            Values::Constant => 1,
            Values::Change => 2,
            Values::Jitter => 4,
        };
        let length = self.frame_len();
        let mut bytes = vec![0; length * (self.flows * rounds) as usize];
        let mut jitter = Jitter::new(1);
        // Flows occur in an order that no prefetcher predicts.
        let stride = coprime(self.flows);
        for (at, frame) in bytes.chunks_exact_mut(length).enumerate() {
            let at = at as u32;
            let flow = (u64::from(at) * u64::from(stride) % u64::from(self.flows)) as u32;
            self.write(frame, flow, at, at / self.flows, &mut jitter);
        }
        Feed { bytes, length, next: 0, now: 1_700_000_000_000_000_000, ticked: 0 }
    }

    fn layout(&self) -> Layout {
        let words = self.bitmap.count_ones() as u8;
        Layout::int_10(self.bitmap, words, Dialect::IntCollectorGen).unwrap_or(Layout::EMPTY)
    }

    fn frame_len(&self) -> usize {
        OUTER + v10::LEN + OUTER + SHIM + HEADER + usize::from(self.hops) * self.layout().len()
    }

    fn write(&self, frame: &mut [u8], flow: u32, seq: u32, round: u32, jitter: &mut Jitter) {
        let [a, b, c, d] = (0x0a00_0000 + flow / 4).to_be_bytes();
        let src_port = 1024 + (flow % 4) as u16;
        let outer = Packet {
            src: [192, 0, 2, 1],
            dst: [192, 0, 2, 100],
            src_port: 40_000,
            dst_port: 32_766,
            dscp: 0,
        };
        let inner = Packet { src: [a, b, c, d], dst: [10, 255, 0, 1], src_port, dst_port: 80, dscp: 0x17 };
        let (head, rest) = frame.split_at_mut(OUTER);
        outer.write(head, rest.len());
        let sink = self.node(self.hops - 1, flow);
        let header = v10::Repr {
            next: v10::NextProtocol::Ethernet,
            bits: 0,
            flags: Flags::FLOW,
            hw_id: 1,
            switch_id: sink,
            seq,
            ingress_ts: seq.wrapping_mul(100),
            metadata: Hop::default(),
            drop_reason: None,
        };
        let at = header.emit(Dialect::IntCollectorGen, rest);
        let (head, rest) = rest[at..].split_at_mut(OUTER);
        inner.write(head, rest.len());
        let words = self.layout().words();
        let length = (3 + u32::from(self.hops) * u32::from(words)) as u8;
        Shim1 { kind: 1, length, last: 0 }.emit(rest);
        Md10 { hop_ml: words, remaining: 8, bitmap: self.bitmap, ..Md10::default() }.emit(&mut rest[SHIM..]);
        let stack = &mut rest[SHIM + HEADER..];
        for hop in 0..self.hops {
            // The last hop comes first.
            let at = usize::from(self.hops - 1 - hop) * self.layout().len();
            self.layout().write(&self.hop(hop, flow, round, jitter), &mut stack[at..]);
        }
    }

    /// Four nodes per position on the path, and one sink: the network of one busy reporter.
    fn node(&self, hop: u8, flow: u32) -> u32 {
        let choice = if hop + 1 == self.hops { 0 } else { flow >> (2 * u32::from(hop)) & 3 };
        100 * (u32::from(hop) + 1) + choice
    }

    fn hop(&self, hop: u8, flow: u32, round: u32, jitter: &mut Jitter) -> Hop {
        let mut vary = |by: u32| if self.values == Values::Jitter { jitter.around(by) } else { by };
        let changed = self.values == Values::Change && flow % u32::from(self.hops) == u32::from(hop);
        let latency =
            1000 * (u32::from(hop) + 1) + vary(900) + if changed { 20_000 * (round & 1) } else { 0 };
        let ingress = u64::from(hop) * 50_000 + 7;
        Hop {
            node_id: Some(self.node(hop, flow)),
            ingress_if: Some(1),
            egress_if: Some((flow & 7) as u16 + 2),
            hop_latency: Some(latency),
            queue_id: Some((flow & 3) as u8),
            queue_occupancy: Some(vary(400)),
            ingress_ts: Some(ingress),
            egress_ts: Some(ingress + u64::from(latency)),
            l2_ingress_if: Some(1),
            l2_egress_if: Some(2),
            tx_utilization: Some(vary(40_000)),
            ..Hop::default()
        }
    }
}

/// Ethernet, IPv4 without options, UDP.
const OUTER: usize = 42;
const SHIM: usize = 4;
const HEADER: usize = 8;

struct Packet {
    src: [u8; 4],
    dst: [u8; 4],
    src_port: u16,
    dst_port: u16,
    dscp: u8,
}

impl Packet {
    /// Writes headers of a packet with `payload` more bytes.
    fn write(&self, head: &mut [u8], payload: usize) {
        let (total, length) = (28 + payload as u16, 8 + payload as u16);
        head[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        head[12..14].copy_from_slice(&[0x08, 0x00]);
        head[14..20].copy_from_slice(&[0x45, self.dscp << 2, (total >> 8) as u8, total as u8, 0, 0]);
        head[20..26].copy_from_slice(&[0x40, 0, 64, 17, 0, 0]);
        head[26..30].copy_from_slice(&self.src);
        head[30..34].copy_from_slice(&self.dst);
        let checksum = wire::checksum::of(&head[14..34]);
        head[24..26].copy_from_slice(&checksum.to_be_bytes());
        head[34..36].copy_from_slice(&self.src_port.to_be_bytes());
        head[36..38].copy_from_slice(&self.dst_port.to_be_bytes());
        head[38..40].copy_from_slice(&length.to_be_bytes());
    }
}

/// A number near `count` divided by the golden ratio that is coprime to `count`.
fn coprime(count: u32) -> u32 {
    let gcd = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let start = (u64::from(count) * 618 / 1000) as u32;
    (start.max(1)..).find(|candidate| gcd(*candidate, count) == 1).unwrap_or(1)
}

/// The input of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// Whole frames from the Ethernet header on: parsing them is part of the measurement.
    Frames,
    /// UDP payloads, as from sockets.
    Payloads,
}

/// Frames in memory, passed to a collector in bursts, repeatedly.
#[derive(Debug)]
pub struct Feed {
    bytes: Vec<u8>,
    length: usize,
    next: usize,
    now: Nanos,
    ticked: Nanos,
}

impl Feed {
    /// Bytes of one frame.
    pub fn frame_len(&self) -> usize {
        self.length
    }

    /// How many different frames there are.
    pub fn frames(&self) -> usize {
        self.bytes.len() / self.length
    }

    /// All frames, in their order.
    pub fn whole(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.bytes.chunks_exact(self.length)
    }

    /// The UDP payloads of all frames, in their order.
    pub fn payloads(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.length).map(|frame| &frame[OUTER..])
    }

    /// Delivers the next burst to a collector, with a tick when one is due. Returns how many reports it holds.
    pub fn burst(&mut self, input: Input, collector: &mut Collector, out: &mut impl Output) -> usize {
        let none = Datagram { payload: &[], source: [0; 16], src_port: 0, listener: 0, received: 0 };
        let mut burst = [none; BURST];
        let left = &self.bytes[self.next..];
        let mut count = 0;
        for (slot, frame) in burst.iter_mut().zip(left.chunks_exact(self.length)) {
            // As a loop over a ring of frames does.
            left.get(count * self.length + 4 * self.length).map(memory::prefetch);
            self.now += GAP;
            *slot = match input {
                Input::Payloads => Datagram {
                    payload: &frame[OUTER..],
                    source: Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets(),
                    src_port: 40_000,
                    listener: 0,
                    received: self.now,
                },
                Input::Frames => match wire::datagram(frame) {
                    Ok(wire::Datagram { src: IpAddr::V4(src), src_port, payload, .. }) => Datagram {
                        payload,
                        // As one number, so that a later wide load does not wait for narrow stores.
                        source: (0xffff_0000_0000 | u128::from(src.to_bits())).to_be_bytes(),
                        src_port,
                        listener: 0,
                        received: self.now,
                    },
                    Ok(wire::Datagram { src: IpAddr::V6(src), src_port, payload, .. }) => {
                        Datagram { payload, source: src.octets(), src_port, listener: 0, received: self.now }
                    }
                    Err(_) => continue,
                },
            };
            count += 1;
        }
        collector.handle(&burst[..count], out);
        self.next += count.max(1) * self.length;
        if self.next >= self.bytes.len() {
            self.next = 0;
        }
        if self.now - self.ticked >= TICK {
            self.ticked = self.now;
            collector.tick(self.now, out);
        }
        count
    }
}
