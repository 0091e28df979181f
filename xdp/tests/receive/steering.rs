//! Which frames the steering program redirects, by test runs, without interface and socket. A frame to be redirected is counted as
//! one without a socket, and passed.

use nic::bpf::{LoadOptions, Object};

use crate::frames::{PORT, ethernet, extension, fragment, ipv4, ipv6, udp};
use crate::skipped;

/// `XDP_PASS`.
const PASS: u32 = 2;

/// Why a frame is not passed like any other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    NotOurs,
    Fragment,
    TooLong,
    Unusual,
    /// It would be redirected if there were a socket.
    Redirected,
}

struct Steering(Object);

impl Steering {
    fn load(test: &str) -> Option<Self> {
        let options = LoadOptions {
            constants: vec![("longest", 1792)],
            ..LoadOptions::default()
        };
        match Object::load(xdp::STEER, &options) {
            Ok(object) => {
                let word = u32::from(PORT >> 6).to_ne_bytes();
                object
                    .map("ports")
                    .unwrap()
                    .update(&word, &(1_u64 << (PORT & 63)).to_ne_bytes())
                    .unwrap();
                Some(Self(object))
            }
            Err(error) => skipped(test, &error),
        }
    }

    fn counters(&self) -> [u64; 5] {
        let mut sums = [0; 5];
        let map = self.0.map("steered").unwrap();
        for (reason, sum) in (0_u32..).zip(&mut sums) {
            map.sum(&reason.to_ne_bytes(), std::slice::from_mut(sum)).unwrap();
        }
        sums
    }

    fn of(&self, frame: &[u8]) -> Reason {
        let before = self.counters();
        let run = self.0.test_run("hopwise_steer", frame, 1).unwrap();
        assert_eq!(
            (run.verdict, &run.frame[..]),
            (PASS, frame),
            "passed, and untouched"
        );
        let after = self.counters();
        let risen: Vec<usize> = (0..5).filter(|&at| after[at] != before[at]).collect();
        match risen[..] {
            [] => Reason::NotOurs,
            [1] => Reason::Fragment,
            [2] => Reason::TooLong,
            [3] => Reason::Unusual,
            [4] => Reason::Redirected,
            _ => panic!("{before:?} {after:?}"),
        }
    }
}

#[test]
fn datagrams_to_the_ports_are_redirected_in_any_encapsulation() {
    let Some(steering) = Steering::load("steering") else {
        return;
    };
    let (ours, other) = (udp(PORT, b"report"), udp(PORT ^ 1, b"report"));
    for tags in [
        &[][..],
        &[0x8100],
        &[0x88a8, 0x8100],
        &[0x9100, 0x8100, 0x8100],
        &[0x8100; 7],
    ] {
        let v4 = |options, fragment, protocol, body: &[u8]| {
            steering.of(&ethernet(tags, 0x0800, &ipv4(options, fragment, protocol, body)))
        };
        assert_eq!(v4(0, 0, 17, &ours), Reason::Redirected);
        assert_eq!(v4(0, 0x4000, 17, &ours), Reason::Redirected, "don't fragment");
        assert_eq!(v4(40, 0, 17, &ours), Reason::Redirected, "options");
        assert_eq!(v4(40, 0, 17, &other), Reason::NotOurs);
        assert_eq!(v4(0, 0, 6, &ours), Reason::NotOurs, "TCP");
        assert_eq!(v4(0, 0x2000, 17, &ours), Reason::Fragment, "the first");
        assert_eq!(v4(0, 0x2000, 17, &other), Reason::NotOurs);
        for offset in [0x2001, 0x1000, 0x3000] {
            assert_eq!(v4(0, offset, 17, &ours), Reason::NotOurs, "no port in it");
        }
        let v6 = |next, body: &[u8]| steering.of(&ethernet(tags, 0x86dd, &ipv6(next, body)));
        assert_eq!(v6(17, &ours), Reason::Redirected);
        assert_eq!(v6(17, &other), Reason::NotOurs);
        for next in [0, 43, 60, 135, 139, 140] {
            assert_eq!(v6(next, &extension(17, &ours)), Reason::Redirected, "{next}");
        }
        assert_eq!(v6(0, &extension(60, &extension(17, &ours))), Reason::Redirected);
        assert_eq!(v6(0, &extension(58, &ours)), Reason::NotOurs, "ICMPv6");
        // An authentication header counts its length in words of four.
        assert_eq!(
            v6(51, &[&[17, 1, 0, 0][..], &[0; 8], &ours].concat()),
            Reason::Redirected
        );
        assert_eq!(
            v6(44, &fragment(17, 0, false, &ours)),
            Reason::Redirected,
            "whole"
        );
        assert_eq!(
            v6(44, &fragment(17, 0, true, &ours)),
            Reason::Fragment,
            "the first"
        );
        for offset in [8, 0x8000] {
            assert_eq!(
                v6(44, &fragment(17, offset, false, &ours)),
                Reason::NotOurs,
                "no port in it"
            );
        }
    }
}

#[test]
fn long_or_unusual_frames_are_passed_and_counted() {
    let Some(steering) = Steering::load("steering") else {
        return;
    };
    let ours = udp(PORT, b"report");
    let long = |bytes: usize| steering.of(&crate::frames::plain(bytes));
    assert_eq!((long(1792), long(1793)), (Reason::Redirected, Reason::TooLong));
    assert_eq!(
        steering.of(&ethernet(&[0x8100; 8], 0x0800, &ipv4(0, 0, 17, &ours))),
        Reason::Unusual
    );
    assert_eq!(
        steering.of(&ethernet(&[], 0x8847, &[0, 0, 0x11, 0, 0x45])),
        Reason::Unusual,
        "MPLS"
    );
    let extensions = (0..8).fold(ours.clone(), |body, _| {
        extension(if body == ours { 17 } else { 60 }, &body)
    });
    assert_eq!(
        steering.of(&ethernet(&[], 0x86dd, &ipv6(60, &extensions))),
        Reason::Unusual
    );
    for (ethertype, packet) in [
        (0x0806, vec![0; 46]),
        (0x0800, vec![0; 46]),
        (0x86dd, vec![0; 46]),
        (0x88cc, vec![]),
    ] {
        assert_eq!(steering.of(&ethernet(&[], ethertype, &packet)), Reason::NotOurs);
    }
    // A wrong UDP length is refused and counted by the reader; the stack would drop it silently.
    let contradicting = [&[0x30, 0x39][..], &PORT.to_be_bytes(), &[0, 99, 0, 0]].concat();
    assert_eq!(
        steering.of(&ethernet(&[], 0x0800, &ipv4(0, 0, 17, &contradicting))),
        Reason::Redirected
    );
}

/// A small pseudorandom generator with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

#[test]
fn it_takes_what_wire_reads_also_of_damaged_frames() {
    let Some(steering) = Steering::load("steering") else {
        return;
    };
    let ours = udp(PORT, b"a report of some length");
    let templates = [
        ethernet(&[], 0x0800, &ipv4(0, 0, 17, &ours)),
        ethernet(&[0x8100, 0x8100], 0x0800, &ipv4(8, 0, 17, &ours)),
        ethernet(&[], 0x86dd, &ipv6(0, &extension(43, &extension(17, &ours)))),
        ethernet(&[0x88a8], 0x86dd, &ipv6(44, &fragment(17, 0, false, &ours))),
    ];
    let (mut random, mut taken) = (Random(7), 0);
    for round in 0..4000 {
        let mut frame = templates[round % templates.len()].clone();
        for _ in 0..=random.next(2) {
            let at = 12 + random.next(frame.len().min(70) - 12);
            frame[at] = [0, 4, 6, 17, 44, 51, 60, 0x81, 0xff, random.next(256) as u8][random.next(10)];
        }
        frame.truncate(14 + random.next(frame.len() * 2).min(frame.len() - 14));
        let (said, reason) = (wire::datagram(&frame), steering.of(&frame));
        match said {
            // After an MPLS label nothing is parsed: the kernel would not parse it either.
            Ok(datagram) if datagram.dst_port == PORT && reason != Reason::Unusual => {
                assert_eq!(reason, Reason::Redirected, "{frame:02x?}");
                taken += 1;
            }
            Ok(datagram) => assert!(
                datagram.dst_port != PORT || reason == Reason::Unusual,
                "{frame:02x?}"
            ),
            // Frames that it redirects nevertheless are refused and counted by the reader.
            Err(wire::Refusal::Fragment) => assert_ne!(reason, Reason::Redirected, "{frame:02x?}"),
            Err(_) => {}
        }
    }
    assert!(taken > 500, "{taken}");
}
