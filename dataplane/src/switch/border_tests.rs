//! Packets that come from outside the domain and carry INT, in every form: it is removed before anything reads it.

use super::tests::{frame, visit};
use super::*;
use crate::fabric::{Family, Transport};

const MODES: [Mode; 4] = [Mode::Md21, Mode::Md10, Mode::Mx21, Mode::Sf];

/// Returns the configurations of a domain: by DSCP, by port, and in IPv6 options, with each treatment of the checksum.
fn configs() -> Vec<Config> {
    let marks = [
        Mark::default(),
        Mark {
            port: Some(33_122),
            ..Mark::default()
        },
        Mark {
            hop_by_hop: true,
            ..Mark::default()
        },
    ];
    let treatments = [L4Checksum::Update, L4Checksum::Leave, L4Checksum::Zero];
    marks
        .into_iter()
        .flat_map(|mark| {
            treatments.map(|l4_checksum| Config {
                mark,
                l4_checksum,
                ..Config::default()
            })
        })
        .collect()
}

/// Returns a packet, with INT of a node that knows the domain, and without.
fn forged(config: &Config, mode: Mode, family: Family, transport: Transport) -> (Vec<u8>, Vec<u8>) {
    let config = Config {
        l4_checksum: L4Checksum::Update,
        ..config.clone()
    };
    let bitmap = 0x9000;
    let watch = Watch {
        mode,
        bitmap,
        ..Watch::default()
    };
    let mut host = Switch::new(66, config, watch.into()).unwrap();
    let original = frame(family, transport, 50);
    let mut marked = original.clone();
    host.forward(
        &mut marked,
        &Visit {
            from_edge: true,
            ..visit(1)
        },
        &mut Outbox::default(),
    );
    assert_ne!(marked, original);
    (marked, original)
}

#[test]
fn int_from_outside_is_removed_in_every_form() {
    let families = [Family::V4, Family::V6];
    for config in configs() {
        for (family, transport) in families
            .into_iter()
            .flat_map(|family| [Transport::Udp, Transport::Tcp].map(|l4| (family, l4)))
        {
            for mode in MODES {
                let (marked, original) = forged(&config, mode, family, transport);
                for (from_edge, to_edge) in [(true, false), (false, false), (true, true), (false, true)] {
                    let mut switch = Switch::new(1, config.clone(), Watchlist::default()).unwrap();
                    let visit = Visit {
                        from_edge,
                        to_edge,
                        from_border: !from_edge,
                        ..visit(2)
                    };
                    let (mut packet, mut outbox) = (marked.clone(), Outbox::default());
                    let step = switch.forward(&mut packet, &visit, &mut outbox);
                    assert_eq!(
                        (step.verdict, packet),
                        (Verdict::Forward, original.clone()),
                        "{mode:?} {config:?}"
                    );
                    let Stats {
                        plain, edge_stripped, ..
                    } = *switch.stats();
                    assert_eq!((plain, edge_stripped, outbox.datagrams().count()), (1, 1, 0));
                }
            }
        }
    }
}

/// The fast path is not the only one: a tag, and a host that is the source of its own packets.
#[test]
fn a_measured_packet_has_only_the_records_of_the_domain() {
    let config = Config::default();
    let (marked, original) = forged(&config, Mode::Md21, Family::V4, Transport::Udp);
    let source = |frame: &[u8]| {
        let mut switch = Switch::new(1, config.clone(), Watch::default().into()).unwrap();
        let mut frame = frame.to_vec();
        let visit = Visit {
            from_edge: true,
            ..visit(1)
        };
        let step = switch.forward(&mut frame, &visit, &mut Outbox::default());
        (frame, step)
    };
    assert_eq!(source(&marked), source(&original));
    let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    assert_eq!(source(&tagged(&marked)), source(&tagged(&original)));
}

#[test]
fn a_drop_of_a_packet_from_outside_is_not_reported_for_its_int() {
    let (marked, original) = forged(&Config::default(), Mode::Md21, Family::V4, Transport::Udp);
    let outside = Visit {
        from_border: true,
        egress_if: 0,
        ..visit(2)
    };
    let dropped = |watchlist: Watchlist, frame: &[u8], visit: &Visit| {
        let mut outbox = Outbox::default();
        let mut switch = Switch::new(1, Config::default(), watchlist).unwrap();
        let reported = switch.dropped(frame, visit, 71, &mut outbox);
        let reports: Vec<Vec<u8>> = outbox
            .datagrams()
            .map(|datagram| datagram.payload.to_vec())
            .collect();
        (reported, reports)
    };
    let inside = Visit {
        from_border: false,
        ..outside
    };
    assert!(dropped(Watchlist::default(), &marked, &inside).0);
    assert_eq!(dropped(Watchlist::default(), &marked, &outside), (false, vec![]));
    let watched = || Watchlist::from(Watch::default());
    assert_eq!(
        dropped(watched(), &marked, &outside),
        dropped(watched(), &original, &outside)
    );
}

/// A packet for this switch itself, such as a DTA report, of a host that adds INT to it.
#[test]
fn int_from_outside_ends_without_a_report_where_the_packet_ends() {
    let (marked, original) = forged(&Config::default(), Mode::Md21, Family::V4, Transport::Udp);
    let end = |visit: &Visit| {
        let mut switch = Switch::new(1, Config::default(), Watchlist::default()).unwrap();
        let (mut frame, mut outbox) = (marked.clone(), Outbox::default());
        assert_eq!(switch.end_int(&mut frame, visit, &mut outbox), Verdict::Forward);
        assert_eq!(frame, original);
        outbox.datagrams().count()
    };
    let to_here = Visit {
        to_edge: true,
        ..visit(2)
    };
    assert_eq!(
        (
            end(&to_here),
            end(&Visit {
                from_border: true,
                ..to_here
            })
        ),
        (1, 0)
    );
}

/// INT in INT is not taken apart: one header is removed for each packet at most.
#[test]
fn int_behind_int_is_dropped() {
    let config = Config::default();
    let (inner, _) = forged(&config, Mode::Md21, Family::V4, Transport::Udp);
    let node = Switch::new(66, config, Watchlist::default()).unwrap();
    let seen = ParsedPacket::parse(&inner, &node.node.profile).unwrap();
    let carried = seen.carried.unwrap();
    // The same INT once more before itself, with the mark as the DSCP to restore.
    let mut nested = inner.clone();
    let mut shell = inner[carried.shim..carried.end].to_vec();
    shell[3] = 0x17 << 2;
    carried
        .headers
        .splice(&mut nested, carried.shim..carried.shim, &shell);
    let outside = Visit {
        from_border: true,
        ..visit(2)
    };
    let mut switch = Switch::new(1, Config::default(), Watchlist::default()).unwrap();
    let step = switch.forward(&mut nested.clone(), &outside, &mut Outbox::default());
    assert_eq!(
        step,
        Step {
            verdict: Verdict::Discard,
            recorded: false,
            sf: None
        }
    );
    let Stats {
        plain,
        refused,
        edge_stripped,
        edge_refused,
        ..
    } = *switch.stats();
    assert_eq!((plain, refused, edge_stripped, edge_refused), (0, 1, 0, 1));
    assert!(!switch.dropped(&nested, &outside, 71, &mut Outbox::default()));
    assert_eq!(
        switch.end_int(&mut nested, &outside, &mut Outbox::default()),
        Verdict::Discard
    );
}
