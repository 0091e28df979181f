//! Shared by the test and the benchmark of the kernel's decoder: the program, run on frames.
#![allow(dead_code, reason = "the benchmark uses a part")]

use std::io::Write;

use nic::bpf::{LoadOptions, Object};
use wire::{FlowKey, Profile};
use xdp::Units;

use crate::normal::{self, Frame, Outcome, Parsed};

/// Reports and refusals of one datagram that the program keeps.
pub(crate) const KEPT: usize = 64;

/// The decoder in the kernel.
pub(crate) struct Kernel {
    object: Object,
    value: Vec<u8>,
    set: Option<(Profile, Units)>,
}

impl Kernel {
    /// The decoder, or nothing (reported as skipped) where this process may not load one.
    pub(crate) fn new(test: &str) -> Option<Self> {
        /// EPERM.
        const FORBIDDEN: i32 = 1;
        match Object::load(xdp::DECODE, &LoadOptions::default()) {
            Ok(object) => {
                let (_, value) = object.map("outcomes").unwrap().sizes();
                Some(Self {
                    object,
                    value: vec![0; value],
                    set: None,
                })
            }
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

    /// Sets the profile of all sources.
    pub(crate) fn read_as(&mut self, profile: &Profile, units: &Units) {
        if self.set != Some((*profile, *units)) {
            let map = |name| self.object.map(name).unwrap();
            map("profiles")
                .update(&[0; 4], &xdp::profile(profile, units))
                .unwrap();
            map("ports")
                .update(&[0; 4], &xdp::ports(&profile.telemetry_ports))
                .unwrap();
            self.set = Some((*profile, *units));
        }
    }

    /// Result of the program for a frame of at least 14 bytes.
    pub(crate) fn decode(&mut self, frame: &[u8]) -> Outcome {
        self.object.test_run("hopwise_decode", frame, 1).unwrap();
        assert!(
            self.object
                .map("outcomes")
                .unwrap()
                .lookup(&[0; 4], &mut self.value)
                .unwrap()
        );
        outcome(&self.value)
    }

    /// Nanoseconds that the program needs for a frame.
    pub(crate) fn time(&self, frame: &[u8], repeat: u32) -> u32 {
        self.object
            .test_run("hopwise_decode", frame, repeat)
            .unwrap()
            .duration_ns
    }
}

/// Reads numbers one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn octets<const N: usize>(&mut self) -> [u8; N] {
        let (octets, rest) = self.0.split_first_chunk().unwrap();
        self.0 = rest;
        *octets
    }

    fn u8(&mut self) -> u8 {
        self.octets::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.octets())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.octets())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.octets())
    }
}

/// `struct outcome`.
fn outcome(value: &[u8]) -> Outcome {
    let mut fields = Fields(value);
    let (frame, reason, dst_port, count) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
    let source = fields.octets();
    let peeked = std::array::from_fn(|_| fields.u32());
    let parsed = (0..KEPT.min(count as usize))
        .map(|_| parsed(&mut fields))
        .collect();
    match frame {
        0 => Outcome {
            frame: Frame::Telemetry { dst_port, source },
            peeked,
            count,
            parsed,
        },
        1 => Outcome::not_read(Frame::Refused { reason, source }),
        _ => Outcome::not_read(Frame::Passed { reason }),
    }
}

/// `struct parsed`.
fn parsed(fields: &mut Fields<'_>) -> Parsed {
    let answer = i32::from_ne_bytes(fields.octets());
    fields.u32();
    let report = normal_report(fields);
    if answer < 0 {
        Parsed::Refused(u32::try_from(-1 - answer).unwrap())
    } else {
        Parsed::Report(Box::new(report))
    }
}

/// `struct report`.
fn normal_report(fields: &mut Fields<'_>) -> normal::Report {
    let ends = (fields.u64(), fields.u64(), fields.u32() != 0);
    let [version, node_id, seq, flags, marks, hop_count] = std::array::from_fn(|_| fields.u32());
    let [hw_id, reason] = fields.octets();
    let index = fields.u16();
    let (src, dst) = (fields.octets::<16>(), fields.octets::<16>());
    let (src_port, dst_port, proto, kind) = (fields.u16(), fields.u16(), fields.u8(), fields.u8());
    fields.octets::<10>();
    let mut hops: Vec<_> = (0..16).map(|_| hop(fields)).collect();
    hops.truncate(hop_count as usize);
    normal::comparable(normal::Report {
        version,
        node_id,
        hw_id,
        seq,
        index,
        flags,
        marks,
        reason: if marks & normal::HAS_REASON != 0 {
            reason
        } else {
            0
        },
        flow: (marks & normal::HAS_FLOW != 0).then(|| flow(src, dst, (src_port, dst_port), (proto, kind))),
        ends,
        hops,
    })
}

fn flow(src: [u8; 16], dst: [u8; 16], ports: (u16, u16), (proto, kind): (u8, u8)) -> FlowKey {
    let ports = (kind & 2 != 0).then_some(ports);
    if kind & 1 != 0 {
        return FlowKey::v6(src, dst, ports, proto);
    }
    let four = |octets: [u8; 16]| {
        assert_eq!(
            octets[..12],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
            "a mapped address"
        );
        [octets[12], octets[13], octets[14], octets[15]]
    };
    FlowKey::v4(four(src), four(dst), ports, proto)
}

/// `struct hop`.
fn hop(fields: &mut Fields<'_>) -> normal::Hop {
    let (latency, utilization) = (fields.u64(), fields.u64());
    let [node, link, queue, congestion, level_2, _] = std::array::from_fn(|_| fields.u32());
    normal::Hop {
        node,
        link,
        level_2: level_2 != 0,
        latency,
        queue,
        congestion,
        utilization,
    }
}

/// The frame of a datagram to the port of reports.
pub(crate) fn frame_of(payload: &[u8]) -> Vec<u8> {
    use wire::{ethernet, ipv4, udp};
    let mut frame = vec![0; 42];
    ethernet::Repr {
        ethertype: 0x0800,
        ..ethernet::Repr::default()
    }
    .emit(&mut frame);
    let len = u16::try_from(payload.len()).unwrap();
    let ip = ipv4::Repr {
        proto: 17,
        total_len: 28 + len,
        ttl: 64,
        src: [192, 0, 2, 1],
        dst: [192, 0, 2, 100],
        ..ipv4::Repr::default()
    };
    ip.emit(&mut frame[14..]);
    udp::Repr {
        src_port: 0x4000,
        dst_port: 32766,
        len: 8 + len,
        checksum: 0,
    }
    .emit(&mut frame[34..]);
    frame.extend_from_slice(payload);
    frame
}
