//! The fast path against the general code.

use super::*;
use crate::packet::UDP;
use crate::sf;
use crate::watchlist::{Mode, Watch, Watchlist};
use testkit::workload::switch::{Task, Workload, template};

/// The results for a packet.
type Made = (Step, Vec<u8>, Vec<Vec<u8>>, Stats);

struct Path {
    switch: Switch,
    outbox: Outbox,
}

impl Path {
    fn new(fast_path: bool, port: Option<u16>, single: bool) -> Self {
        let mut config = Config {
            sf: sf::Config {
                single,
                ..sf::Config::default()
            },
            ..Config::default()
        };
        config.mark.port = port;
        let mut switch = Switch::new(9, config, Watchlist::default()).unwrap();
        switch.fast_path = fast_path;
        Self {
            switch,
            outbox: Outbox::default(),
        }
    }

    fn go(&mut self, frame: &[u8], visit: &Visit) -> Made {
        let mut frame = frame.to_vec();
        self.outbox.clear();
        let step = self.switch.forward(&mut frame, visit, &mut self.outbox);
        let reports = self
            .outbox
            .datagrams()
            .map(|datagram| datagram.payload.to_vec())
            .collect();
        (step, frame, reports, *self.switch.stats())
    }
}

/// UDP and TCP packets after a few nodes, with both marks, including urgent ones.
fn frames(visit: &Visit) -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for (_, task) in Task::ALL {
        for v6 in [false, true] {
            frames.extend(Workload::new(task, v6).unwrap().frames().iter().take(3).cloned());
        }
    }
    for (mode, port, v6) in [
        (Mode::Md21, Some(5000), false),
        (Mode::Md21, Some(5000), true),
        (Mode::Sf, Some(5000), false),
        (Mode::Sf, None, false),
        (Mode::Sf, None, true),
    ] {
        let watch = Watch {
            mode,
            ..Watch::default()
        };
        let mut config = Config::default();
        config.mark.port = port;
        config.sf.urgent.every = Some(2);
        let mut source = Switch::new(1, config, Watchlist::from(watch)).unwrap();
        for flow in [1, 1, 2] {
            let mut frame = template(flow, v6);
            source.forward(
                &mut frame,
                &Visit {
                    from_edge: true,
                    ..*visit
                },
                &mut Outbox::default(),
            );
            frames.push(frame);
        }
    }
    frames.push(template(7, false));
    // In TCP, the bytes at the offsets of UDP's length and checksum are the sequence number.
    for at in 0..frames.len() {
        let (proto, v6) = (frames[at][23], frames[at][14] >> 4 == 6);
        if proto == UDP && !v6 {
            let mut tcp = frames[at].clone();
            tcp[23] = 6;
            let place = 42..42;
            tcp.splice(place, [0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0x12, 0x34, 0, 0]);
            let len = (tcp.len() - 14) as u16;
            tcp[16..18].copy_from_slice(&len.to_be_bytes());
            wire::ipv4::Packet::new_checked(&mut tcp[14..])
                .unwrap()
                .fill_checksum();
            frames.push(tcp);
        }
    }
    frames
}

#[test]
fn the_fast_path_equals_the_general_code() {
    let mut state = 3_u64;
    let mut rng = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let visit = Visit {
        ingress_if: 1,
        ingress_ts: 0x17a3_b2c1_ffff_ff00,
        egress_ts: 0x17a3_b2c2_0000_05dc,
        queue_id: 1,
        queue_occupancy: 0xffff_ffff,
        tx_utilization: 0xffff_0000,
        mtu: 1500,
        ..Visit::default()
    };
    let frames = frames(&visit);
    let mut done = Stats::default();
    for (port, single) in [(None, false), (Some(5000), false), (None, true)] {
        let [mut fast, mut slow] = [true, false].map(|fast_path| Path::new(fast_path, port, single));
        for round in 0..400 {
            for frame in &frames {
                let mut frame = frame.clone();
                for _ in 0..round % 4 {
                    let at = rng() % frame.len().min(110);
                    frame[at] = [0, 0xff, rng() as u8, frame[at] ^ 1 << (rng() % 8)][rng() % 4];
                }
                if round % 4 > 0
                    && let Ok(mut header) = wire::ipv4::Packet::new_checked(&mut frame[14..])
                {
                    header.fill_checksum();
                }
                let mtu = [1500, 160 + rng() as u16 % 64][rng() % 2];
                let egress_ts = visit.egress_ts + rng() as u64 % (1 << 31);
                let visit = Visit {
                    mtu,
                    egress_ts,
                    to_edge: rng() % 3 == 0,
                    ..visit
                };
                assert_eq!(fast.go(&frame, &visit), slow.go(&frame, &visit), "{frame:02x?}");
            }
        }
        let stats = fast.switch.stats();
        done.recorded += stats.recorded;
        done.swapped += stats.swapped;
        done.reported += stats.reported;
        done.refused += stats.refused;
    }
    let least = [done.recorded, done.swapped, done.reported, done.refused]
        .into_iter()
        .min();
    assert!(least > Some(500), "{done:?}");
}
