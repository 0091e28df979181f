//! A packet's path through switches, byte by byte: the changes by each switch, the reports, and that it leaves unchanged.

use detect::Match;
use wire::report::{Decoder, v20};
use wire::{Hop, Items};

use super::*;
use crate::fabric::{Address, Family, FlowSpec, Transport};
use crate::flow;
use crate::report::{Format, Version};
use crate::watchlist::Watch;

/// The measurement of a switch; all values follow from the node's number.
pub(crate) fn visit(node: u32) -> Visit {
    Visit {
        ingress_if: node as u16 * 10,
        egress_if: node as u16 * 10 + 1,
        ingress_ts: 0x17a3_b2c1_0000_0000 + u64::from(node) * 100_000,
        egress_ts: 0x17a3_b2c1_0000_0000 + u64::from(node) * 100_700,
        queue_id: node as u8 * 10 + 1,
        queue_occupancy: node * 1000,
        tx_utilization: node * 100,
        mtu: 1500,
        ..Visit::default()
    }
}

/// The measurement at the source.
fn entering(node: u32) -> Visit {
    Visit {
        from_edge: true,
        ..visit(node)
    }
}

/// The measurement at the sink.
fn leaving(node: u32) -> Visit {
    Visit {
        to_edge: true,
        ..visit(node)
    }
}

fn watch(mode: Mode, bitmap: u16) -> Watch {
    Watch {
        mode,
        bitmap,
        ..Watch::default()
    }
}

/// The expected hop for that visit, with the items of `bits`, and 32- or 64-bit timestamps.
fn expected(node: u32, bits: u16, wide_ts: bool) -> Hop {
    const ITEMS: [(u16, Items); 8] = [
        (0x8000, Items::NODE_ID),
        (0x4000, Items::INTERFACES),
        (0x2000, Items::HOP_LATENCY),
        (0x1000, Items::QUEUE),
        (0x0800, Items::INGRESS_TS),
        (0x0400, Items::EGRESS_TS),
        (0x0200, Items::L2_INTERFACES),
        (0x0100, Items::TX_UTILIZATION),
    ];
    let mut hop = visit(node).hop(node, bits);
    for (bit, items) in ITEMS {
        if bits & bit != 0 {
            hop.carried.insert(items);
        }
    }
    hop.wide_ts = wide_ts;
    if !wide_ts {
        hop.ingress_ts = hop.ingress_ts.map(|ts| ts & 0xffff_ffff);
        hop.egress_ts = hop.egress_ts.map(|ts| ts & 0xffff_ffff);
    }
    hop
}

pub(crate) fn frame(family: Family, transport: Transport, payload: u16) -> Vec<u8> {
    let address = |n: u8| Address {
        mac: [2, 0, 0, 0, 0, n],
        v4: [10, 0, 0, n].into(),
        v6: [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)].into(),
    };
    let spec = FlowSpec {
        family,
        transport,
        payload,
        dscp: 10,
        ..FlowSpec::new(1, 2, 40_000, 9_000)
    };
    flow::template(&spec, &address(1), &address(2)).0
}

/// Returns whether the IPv4 header checksum and the L4 checksum are correct. Computed independently of the switch's code.
fn checksums_hold(frame: &[u8]) -> bool {
    let sum = |parts: &[&[u8]]| {
        let words = parts.iter().flat_map(|part| part.chunks(2));
        let total: u64 = words
            .map(|w| u64::from(w[0]) << 8 | u64::from(w.get(1).copied().unwrap_or(0)))
            .sum();
        (total % 0xffff) as u16 // a right checksum makes the sum a multiple of 0xffff
    };
    let ip = &frame[14..];
    let (header, proto, addresses) = match ip[0] >> 4 {
        4 => (20, ip[9], &ip[12..20]),
        _ => (40, ip[6], &ip[8..40]),
    };
    let length = match ip[0] >> 4 {
        4 => usize::from(u16::from_be_bytes([ip[2], ip[3]])) - 20,
        _ => usize::from(u16::from_be_bytes([ip[4], ip[5]])),
    };
    let l4 = &ip[header..header + length];
    let udp_fits = proto != 17 || usize::from(u16::from_be_bytes([l4[4], l4[5]])) == length;
    let pseudo = [0, proto, (length >> 8) as u8, length as u8];
    let whole = ip.len() == header + length;
    whole && udp_fits && (header == 40 || sum(&[&ip[..20]]) == 0) && sum(&[addresses, &pseudo, l4]) == 0
}

/// The one's complement sum over which an IPv4 packet's L4 checksum is computed, 1 to 0xffff.
fn l4_sum(frame: &[u8]) -> u16 {
    let (addresses, l4) = (&frame[26..34], &frame[34..]);
    let words = addresses.chunks(2).chain(l4.chunks(2));
    let sum: u64 = words
        .map(|w| u64::from(w[0]) << 8 | u64::from(w.get(1).copied().unwrap_or(0)))
        .sum();
    let sum = sum + u64::from(frame[23]) + l4.len() as u64;
    ((sum - 1) % 0xffff + 1) as u16
}

fn switches(count: u32, config: &Config, watch: Watch) -> Vec<Switch> {
    (1..=count)
        .map(|node| Switch::new(node, config.clone(), watch.into()).unwrap())
        .collect()
}

/// Sends a frame through all switches, source first, sink last. Returns the frame after each, and the datagrams.
fn travel(switches: &mut [Switch], frame: &[u8]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut frame, mut frames, mut outbox) = (frame.to_vec(), Vec::new(), Outbox::default());
    let last = switches.len() - 1;
    for (at, switch) in switches.iter_mut().enumerate() {
        let visit = Visit {
            from_edge: at == 0,
            to_edge: at == last,
            ..visit(at as u32 + 1)
        };
        assert_eq!(
            switch.forward(&mut frame, &visit, &mut outbox).verdict,
            Verdict::Forward
        );
        frames.push(frame.clone());
    }
    (
        frames,
        outbox
            .datagrams()
            .map(|datagram| datagram.payload.to_vec())
            .collect(),
    )
}

fn profile(config: &Config) -> Profile {
    let int_udp_port = config.mark.port.unwrap_or(0);
    Profile {
        dscp: config.mark.dscp,
        int_udp_port,
        ..Profile::default()
    }
}

/// The only report in a datagram: its hops, in forwarding order, and its flow as text.
pub(crate) fn decoded(payload: &[u8], profile: Profile) -> (Vec<Hop>, String) {
    let mut decoder = Decoder::new(profile);
    let mut reports = decoder.reports(payload);
    let report = reports.next().unwrap().unwrap();
    assert!(reports.next().is_none());
    (
        report.hops().collect(),
        report.flow.map_or(String::new(), |flow| flow.to_string()),
    )
}

fn every_packet() -> impl Iterator<Item = (Family, Transport, u16)> {
    let families = [Family::V4, Family::V6].into_iter();
    let both =
        families.flat_map(|family| [Transport::Udp, Transport::Tcp].map(|transport| (family, transport)));
    both.flat_map(|(family, transport)| [0, 1, 4, 77, 600].map(|payload| (family, transport, payload)))
}

fn flow_text(family: Family, transport: Transport) -> String {
    let proto = transport.number();
    match family {
        Family::V4 => format!("10.0.0.1:40000>10.0.0.2:9000/{proto}"),
        Family::V6 => format!("[2001:db8::1]:40000>[2001:db8::2]:9000/{proto}"),
    }
}

#[test]
fn a_packet_leaves_unchanged_and_its_path_is_reported() {
    let marks = [
        Mark::default(),
        Mark {
            port: Some(33_122),
            ..Mark::default()
        },
    ];
    let formats = [
        Format::default(),
        Format {
            metadata_on_stack: true,
            ..Format::default()
        },
        Format {
            ethernet: true,
            snap: 64,
            ..Format::default()
        },
        Format {
            version: Version::V10,
            metadata_on_stack: true,
            ..Format::default()
        },
    ];
    let watches = [
        (Mode::Md21, 0xfd00),
        (Mode::Md10, 0xfd00),
        (Mode::Md21, 0xff81),
        (Mode::Md21, 0x8000),
    ];
    let mut cases = 0;
    for (mark, format, (mode, bitmap)) in marks
        .into_iter()
        .flat_map(|m| formats.map(|f| (m, f)))
        .flat_map(|(m, f)| watches.map(|w| (m, f, w)))
    {
        let config = Config {
            mark,
            format,
            ..Config::default()
        };
        let watch = watch(mode, bitmap);
        let mut path = switches(3, &config, watch);
        for (family, transport, payload) in every_packet() {
            let original = frame(family, transport, payload);
            assert!(checksums_hold(&original));
            let (frames, datagrams) = travel(&mut path, &original);
            assert!(
                frames.iter().all(|frame| checksums_hold(frame)),
                "{mark:?} {mode:?} {family:?} {transport:?}"
            );
            assert_eq!(
                frames[2], original,
                "{mark:?} {mode:?} {family:?} {transport:?} {payload}"
            );
            assert!(frames[0].len() > original.len() && frames[1].len() > frames[0].len());
            assert_eq!(datagrams.len(), 1);
            let (hops, flow) = decoded(&datagrams[0], profile(&config));
            let nodes: Vec<_> = hops.iter().map(|hop| hop.node_id).collect();
            if bitmap == 0x8000 && !format.metadata_on_stack {
                assert_eq!(
                    nodes,
                    [Some(1), Some(2)],
                    "no item of the sink fits into the header"
                );
            } else {
                assert_eq!(nodes, [Some(1), Some(2), Some(3)]);
            }
            assert_eq!(flow, flow_text(family, transport));
            cases += 1;
        }
        assert!(path.iter().all(|switch| {
            let Stats {
                recorded,
                reported,
                plain,
                refused,
                ..
            } = *switch.stats();
            (recorded + reported, plain, refused) == (20, 0, 0)
        }));
    }
    assert_eq!(cases, 2 * 4 * 4 * 20);
}

#[test]
fn every_item_arrives_as_it_was_measured() {
    for (mode, wide) in [(Mode::Md21, true), (Mode::Md10, false)] {
        let config = Config {
            format: Format {
                metadata_on_stack: true,
                ..Format::default()
            },
            ..Config::default()
        };
        let watch = watch(mode, Watch::USUAL);
        let (_, datagrams) = travel(
            &mut switches(3, &config, watch),
            &frame(Family::V4, Transport::Udp, 10),
        );
        let (hops, _) = decoded(&datagrams[0], profile(&config));
        let wanted: Vec<Hop> = (1..=3).map(|node| expected(node, Watch::USUAL, wide)).collect();
        assert_eq!(hops, wanted);
    }
}

#[test]
fn metadata_that_a_switch_cannot_provide_is_all_ones() {
    let mut path = switches(2, &Config::default(), watch(Mode::Md21, 0xffff));
    path[0].set_available(0x9000);
    let (_, datagrams) = travel(&mut path, &frame(Family::V6, Transport::Tcp, 10));
    let (hops, _) = decoded(&datagrams[0], Profile::default());
    let first = Hop {
        carried: hops[0].carried,
        wide_ts: true,
        ..expected(1, 0x9000, true)
    };
    assert_eq!(
        hops[0],
        Hop {
            checksum_complement: Some(u32::MAX),
            ..first
        }
    );
    assert!(
        hops[0].carried.contains(Items(0x1ff)),
        "asked for and carried, though unavailable"
    );
}

#[test]
fn a_used_up_hop_count_sets_e_and_adds_nothing() {
    for mode in [Mode::Md21, Mode::Md10] {
        let watch = Watch {
            mode,
            hops: 2,
            ..Watch::default()
        };
        let mut path = switches(5, &Config::default(), watch);
        let original = frame(Family::V4, Transport::Udp, 100);
        let (frames, datagrams) = travel(&mut path, &original);
        let int = |frame: &[u8]| {
            let int = wire::packet::contents(frame, &Profile::default())
                .unwrap()
                .int
                .unwrap();
            let exceeded = int.flags.contains(wire::int::Flags::HOPS_EXCEEDED);
            (int.remaining, int.stack.len(), exceeded)
        };
        let seen: Vec<_> = frames[..4].iter().map(|frame| int(frame)).collect();
        assert_eq!(seen, [(1, 1, false), (0, 2, false), (0, 2, true), (0, 2, true)]);
        assert!(frames.iter().all(|frame| checksums_hold(frame)));
        assert_eq!(frames[4], original);
        let (hops, _) = decoded(&datagrams[0], Profile::default());
        assert_eq!(
            hops.iter().map(|hop| hop.node_id).collect::<Vec<_>>(),
            [Some(1), Some(2), Some(5)]
        );
        assert_eq!(path[2].stats().hops_exceeded, 1);
    }
}

#[test]
fn a_packet_that_would_exceed_the_mtu_gets_m_and_no_record() {
    for mode in [Mode::Md21, Mode::Md10] {
        let watch = watch(mode, 0x9000);
        let mut path = switches(4, &Config::default(), watch);
        let original = frame(Family::V4, Transport::Udp, 100);
        let mut frame = original.clone();
        let mut outbox = Outbox::default();
        // 128 bytes of IP, 12 or 16 of shim and header, 8 per record: only one record fits.
        let fixed = if mode == Mode::Md21 { 16 } else { 12 };
        let mut seen = Vec::new();
        for (at, mtu) in [(1, 1500), (2, 128 + fixed + 15), (3, 1500), (4, 1500)] {
            let visit = Visit {
                from_edge: at == 1,
                to_edge: at == 4,
                mtu,
                ..visit(at)
            };
            let step = path[at as usize - 1].forward(&mut frame, &visit, &mut outbox);
            assert!(checksums_hold(&frame));
            let contents = wire::packet::contents(&frame, &Profile::default()).unwrap();
            let exceeded = contents
                .int
                .map(|int| int.flags.contains(wire::int::Flags::MTU_EXCEEDED));
            seen.push((step.recorded, contents.int.map(|int| int.stack.len()), exceeded));
        }
        let wanted = [
            (true, Some(1), Some(false)),
            (false, Some(1), Some(true)),
            (true, Some(2), Some(true)),
            (true, None, None),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(frame, original);
    }
}

#[test]
fn a_packet_without_room_for_int_itself_passes_untouched() {
    let mut path = switches(1, &Config::default(), Watch::default());
    let original = frame(Family::V4, Transport::Udp, 100);
    let mut outbox = Outbox::default();
    for (mtu, room) in [(143, false), (144, true)] {
        let mut frame = original.clone();
        path[0].forward(
            &mut frame,
            &Visit {
                from_edge: true,
                mtu,
                ..visit(1)
            },
            &mut outbox,
        );
        assert_eq!(frame != original, room, "128 + 16 bytes in {mtu}");
    }
    assert_eq!(
        path[0].stats().mtu_exceeded,
        2,
        "once for INT, once for the record"
    );
}

#[test]
fn a_stack_never_outgrows_its_length_field() {
    let watch = Watch {
        bitmap: 0xff81,
        hops: 255,
        ..Watch::default()
    };
    let mut path = switches(25, &Config::default(), watch);
    let original = frame(Family::V6, Transport::Udp, 20);
    let mut frame = original.clone();
    let mut outbox = Outbox::default();
    for at in 1..=25u32 {
        let visit = Visit {
            from_edge: at == 1,
            to_edge: at == 25,
            mtu: 9000,
            ..visit(1)
        };
        path[at as usize - 1].forward(&mut frame, &visit, &mut outbox);
        assert!(checksums_hold(&frame));
    }
    assert_eq!(frame, original);
    let (hops, _) = decoded(outbox.datagrams().next().unwrap().payload, Profile::default());
    assert_eq!(
        hops.len(),
        20,
        "3 + 19 * 13 words are 250 of 255, and the sink in the header"
    );
}

#[test]
fn one_switch_can_be_source_and_sink() {
    for metadata_on_stack in [false, true] {
        let config = Config {
            format: Format {
                metadata_on_stack,
                ..Format::default()
            },
            ..Config::default()
        };
        let original = frame(Family::V4, Transport::Tcp, 9);
        let (frames, datagrams) = travel(&mut switches(1, &config, Watch::default()), &original);
        assert_eq!(frames[0], original);
        let (hops, flow) = decoded(&datagrams[0], Profile::default());
        assert_eq!(
            (hops.len(), hops[0].node_id, hops[0].hop_latency),
            (1, Some(1), Some(700))
        );
        assert_eq!(flow, flow_text(Family::V4, Transport::Tcp));
    }
}

#[test]
fn in_mx_every_node_reports_and_nothing_is_pushed() {
    let marks = [
        Mark::default(),
        Mark {
            port: Some(33_122),
            ..Mark::default()
        },
    ];
    for (mark, (family, transport, payload)) in marks
        .into_iter()
        .flat_map(|m| every_packet().map(move |p| (m, p)))
    {
        let config = Config {
            mark,
            ..Config::default()
        };
        let watch = watch(Mode::Mx21, 0xfc80);
        let original = frame(family, transport, payload);
        let (frames, datagrams) = travel(&mut switches(3, &config, watch), &original);
        assert!(frames.iter().all(|frame| checksums_hold(frame)));
        assert_eq!(
            (frames[0].clone(), frames[2].clone()),
            (frames[1].clone(), original)
        );
        for (at, datagram) in datagrams.iter().enumerate() {
            let (hops, flow) = decoded(datagram, profile(&config));
            // The node id is in the group header, and buffers are not available: bit 8 is not requested.
            let metadata = expected(at as u32 + 1, 0x7c00, true);
            let node_id = Some(at as u32 + 1);
            assert_eq!(
                hops.iter()
                    .map(|hop| Hop {
                        carried: metadata.carried,
                        node_id,
                        ..*hop
                    })
                    .collect::<Vec<_>>(),
                [metadata]
            );
            assert_eq!(flow, flow_text(family, transport));
        }
        assert_eq!(datagrams.len(), 3);
    }
}

#[test]
fn postcards_leave_the_packet_alone_and_name_flow_packet_and_edges() {
    let watch = watch(Mode::Postcard, 0x1c00);
    let original = frame(Family::V4, Transport::Udp, 50);
    let (frames, datagrams) = travel(&mut switches(3, &Config::default(), watch), &original);
    assert!(frames.iter().all(|frame| *frame == original));
    for (at, datagram) in datagrams.iter().enumerate() {
        let flow = wire::FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((40_000, 9_000)), 17);
        let node = at as u32 + 1;
        let id = flow.flow_id().to_be_bytes();
        let mut main = v20::Repr::postcard(visit(node).hop(node, 0x1c00), &id)
            .main
            .unwrap();
        main.ds_status = [v20::POSTCARD_ENTERED, 0, v20::POSTCARD_LEFT][at];
        // IPv4, UDP and eight bytes of payload.
        let wanted_report = v20::Repr::new(wire::Flags::FLOW, main, v20::Inner::Ipv4(&original[14..50]));
        let mut wanted = vec![0; 44 + 36];
        v20::Group {
            hw_id: 0,
            seq: 0,
            node_id: node,
        }
        .emit(&mut wanted);
        wanted_report.emit(&mut wanted[8..]);
        assert_eq!(datagram, &wanted, "wire-formats 4.1 to the byte");
        let mut decoder = Decoder::new(Profile::default());
        let report = decoder.reports(datagram).next().unwrap().unwrap();
        assert_eq!((report.flow, report.flow_id), (Some(flow), Some(flow.flow_id())));
        assert_eq!(report.edges(), (at == 0, at == 2));
    }
}

#[test]
fn entries_of_the_watchlist_count_packets_where_they_are_measured() {
    let to = |port: &str, mode| Watch {
        mode,
        ..Watch::new(Match {
            dst_port: port.parse().unwrap(),
            ..Match::default()
        })
    };
    let original = frame(Family::V4, Transport::Udp, 50);
    let counts = |switch: &Switch| {
        switch
            .matched()
            .map(|(_, counted)| counted.matched)
            .collect::<Vec<_>>()
    };
    for (mode, expected) in [(Mode::Md21, [[0, 2], [0, 0]]), (Mode::Postcard, [[0, 2], [0, 2]])] {
        let mut path = switches(2, &Config::default(), to("80", Mode::Postcard));
        for switch in &mut path {
            switch
                .watch(Watchlist::new(vec![to("80", Mode::Postcard), to("9000", mode)]))
                .unwrap();
        }
        travel(&mut path, &original);
        travel(&mut path, &original);
        assert_eq!([counts(&path[0]), counts(&path[1])], expected, "{mode:?}");
        // A new list has other places, and the same entries; another mode is another entry.
        path[0]
            .watch(Watchlist::new(vec![to("9000", mode), to("1", mode)]))
            .unwrap();
        assert_eq!(counts(&path[0]), [2, 0]);
        path[0].watch(to("9000", Mode::Mx21).into()).unwrap();
        assert_eq!(counts(&path[0]), [0]);
    }
}

#[test]
fn a_source_measures_one_packet_of_n_and_postcards_of_a_packet_come_from_every_node_or_none() {
    const PAYLOAD: u16 = 50;
    for mode in [Mode::Md21, Mode::Mx21, Mode::Sf, Mode::Postcard] {
        let watch = Watch {
            mode,
            sample: 4,
            ..Watch::default()
        };
        let mut path = switches(3, &Config::default(), watch);
        let nodes_of = |number: u8| {
            let mut frame = frame(Family::V4, Transport::Udp, PAYLOAD);
            let at = frame.len() - usize::from(PAYLOAD);
            frame[at] = number;
            let (frames, datagrams) = travel(&mut path, &frame);
            assert_eq!(frames.last(), Some(&frame), "{mode:?}");
            let reporter = |payload: &Vec<u8>| {
                Decoder::new(Profile::default())
                    .reports(payload)
                    .next()
                    .unwrap()
                    .unwrap()
                    .node_id
            };
            datagrams.iter().filter_map(reporter).collect::<Vec<_>>()
        };
        let reporters: Vec<Vec<u32>> = (0..200).map(nodes_of).filter(|nodes| !nodes.is_empty()).collect();
        assert!(
            (35..65).contains(&reporters.len()),
            "{mode:?}: {} of 200",
            reporters.len()
        );
        let complete: &[u32] = if matches!(mode, Mode::Mx21 | Mode::Postcard) {
            &[1, 2, 3]
        } else {
            &[3]
        };
        assert!(
            reporters.iter().all(|nodes| nodes == complete),
            "{mode:?}: {reporters:?}"
        );
        let (_, counted) = path[0].matched().next().unwrap();
        assert_eq!(
            (counted.matched, counted.measured),
            (200, reporters.len() as u64),
            "{mode:?}"
        );
    }
}

#[test]
fn a_drop_is_reported_with_ports_queue_and_reason() {
    for (version, drop_with_int) in [(Version::V20, false), (Version::V20, true), (Version::V10, false)] {
        let config = Config {
            format: Format {
                version,
                drop_with_int,
                ..Format::default()
            },
            ..Config::default()
        };
        let mut path = switches(2, &config, Watch::default());
        let mut frame = frame(Family::V4, Transport::Udp, 50);
        let mut outbox = Outbox::default();
        path[0].forward(&mut frame, &entering(1), &mut outbox);
        assert!(path[1].dropped(
            &frame,
            &Visit {
                egress_if: 0,
                ..visit(2)
            },
            71,
            &mut outbox
        ));
        let mut decoder = Decoder::new(Profile::default());
        let payload = outbox.datagrams().next().unwrap().payload;
        let report = decoder.reports(payload).next().unwrap().unwrap();
        assert!(report.flags.contains(wire::Flags::DROP));
        assert_eq!(report.flags.contains(wire::Flags::FLOW), drop_with_int);
        assert_eq!((report.node_id, report.drop_reason), (Some(2), Some(71)));
        assert_eq!(
            report.flow.unwrap().to_string(),
            flow_text(Family::V4, Transport::Udp)
        );
        let metadata = report.metadata_hop();
        assert_eq!(
            (metadata.ingress_if, metadata.egress_if, metadata.queue_id),
            (Some(20), None, Some(21))
        );
        let nodes: Vec<_> = report.hops().map(|hop| hop.node_id).collect();
        assert_eq!(
            nodes,
            if drop_with_int {
                vec![Some(1), Some(2)]
            } else {
                vec![Some(2)]
            }
        );
        assert_eq!(path[1].stats().drops_reported, 1);
    }
}

#[test]
fn drops_of_unwatched_packets_are_not_reported() {
    let only = Match {
        proto: Some(6),
        ..Match::default()
    };
    let silent = Watch {
        drops: false,
        ..Watch::default()
    };
    for watch in [Watch::new(only), silent] {
        let mut path = switches(1, &Config::default(), watch);
        let mut outbox = Outbox::default();
        assert!(!path[0].dropped(&frame(Family::V4, Transport::Udp, 50), &visit(1), 71, &mut outbox));
        assert!(outbox.is_empty());
    }
}

/// A transit node has no watchlist, and reports the loss of a packet that the source watches.
#[test]
fn a_node_without_a_watchlist_reports_drops_of_packets_with_int() {
    let mut path = switches(2, &Config::default(), Watch::default());
    let (mut outbox, original) = (Outbox::default(), frame(Family::V4, Transport::Udp, 50));
    let mut marked = original.clone();
    path[0].forward(&mut marked, &entering(1), &mut outbox);
    for (watchlist, with_int, without) in [
        (Watchlist::default(), true, false),
        (
            Watch {
                drops: false,
                ..Watch::default()
            }
            .into(),
            false,
            false,
        ),
        (Watch::default().into(), true, true),
    ] {
        path[1].watch(watchlist).unwrap();
        let mut reported = |frame: &[u8]| path[1].dropped(frame, &visit(2), 71, &mut outbox);
        assert_eq!((reported(&marked), reported(&original)), (with_int, without));
    }
}

#[test]
fn a_queue_is_reported_when_it_fills_and_when_it_has_emptied() {
    for version in [Version::V20, Version::V10] {
        let config = Config {
            congestion: Some(Congestion {
                rise: 500,
                fall: 200,
                quota: 0,
            }),
            format: Format {
                version,
                ..Format::default()
            },
            ..Config::default()
        };
        let unwatched = Watch::new(Match {
            proto: Some(1),
            ..Match::default()
        });
        let mut path = switches(1, &config, unwatched);
        let mut outbox = Outbox::default();
        for queue_occupancy in [100, 499, 500, 900, 201, 600, 200, 100, 499, 501] {
            let mut frame = frame(Family::V6, Transport::Udp, 50);
            path[0].forward(
                &mut frame,
                &Visit {
                    queue_occupancy,
                    ..visit(1)
                },
                &mut outbox,
            );
        }
        let mut decoder = Decoder::new(Profile::default());
        let mut seen = Vec::new();
        for datagram in outbox.datagrams() {
            let report = decoder.reports(datagram.payload).next().unwrap().unwrap();
            assert_eq!(report.flags, wire::Flags::QUEUE);
            let metadata = report.metadata_hop();
            seen.push((
                datagram.seq,
                report.seq,
                metadata.queue_id,
                metadata.queue_occupancy,
            ));
        }
        let wanted = [(0, 500), (1, 200), (2, 501)].map(|(seq, depth)| (seq, seq, Some(11), Some(depth)));
        assert_eq!(seen, wanted);
    }
}

/// The queues of ports whose numbers differ only in their high byte.
#[test]
fn each_port_has_its_own_congestion() {
    let congestion = Some(Congestion {
        rise: 500,
        fall: 200,
        quota: 1,
    });
    let mut switch = Switch::new(
        1,
        Config {
            congestion,
            ..Config::default()
        },
        Watchlist::default(),
    )
    .unwrap();
    let mut outbox = Outbox::default();
    for (egress_if, queue_occupancy) in [(1, 600), (257, 100), (1, 600), (257, 600), (1, 100), (257, 600)] {
        let visit = Visit {
            egress_if,
            queue_id: 1,
            queue_occupancy,
            ..visit(1)
        };
        switch.forward(&mut frame(Family::V4, Transport::Udp, 50), &visit, &mut outbox);
    }
    let Stats {
        queues_reported,
        congested_reported,
        ..
    } = *switch.stats();
    assert_eq!((queues_reported, congested_reported), (3, 2));
}

#[test]
fn groups_fill_and_are_flushed_and_sequences_count_datagrams() {
    let format = Format {
        group: 3,
        subsystems: 2,
        first_sequence: 0x3f_fffe,
        ..Format::default()
    };
    let config = Config {
        format,
        ..Config::default()
    };
    let watch = watch(Mode::Postcard, 0x3c00);
    let mut path = switches(1, &config, watch);
    let mut outbox = Outbox::default();
    for egress_if in [2, 3, 2, 4, 3, 2, 2, 3, 2] {
        let mut frame = frame(Family::V4, Transport::Udp, 50);
        path[0].forward(
            &mut frame,
            &Visit {
                egress_if,
                ..visit(1)
            },
            &mut outbox,
        );
    }
    let list = |outbox: &Outbox| -> Vec<(u8, u32, u16)> {
        outbox
            .datagrams()
            .map(|datagram| (datagram.hw_id, datagram.seq, datagram.reports))
            .collect()
    };
    let last = 0x3f_ffff;
    assert_eq!(list(&outbox), [(0, last - 1, 3), (1, last - 1, 3), (0, last, 3)]);
    assert!(!path[0].has_pending_reports());
    outbox.clear();
    let mut frame = frame(Family::V4, Transport::Udp, 50);
    path[0].forward(
        &mut frame,
        &Visit {
            egress_if: 2,
            ..visit(1)
        },
        &mut outbox,
    );
    assert!(path[0].has_pending_reports() && list(&outbox).is_empty());
    path[0].flush(&mut outbox);
    assert_eq!(list(&outbox), [(0, 0, 1)], "22 bits wrap");
    let mut decoder = Decoder::new(Profile::default());
    let payload = outbox.datagrams().next().unwrap().payload;
    assert_eq!(
        decoder
            .reports(payload)
            .map(|report| report.unwrap().index)
            .collect::<Vec<_>>(),
        [0]
    );
}

#[test]
fn odd_packets_pass_untouched() {
    let vlan = {
        let mut frame = frame(Family::V4, Transport::Udp, 50);
        frame.splice(12..12, [0x81, 0, 0, 5]);
        frame
    };
    let no_checksum = {
        let mut frame = frame(Family::V4, Transport::Udp, 50);
        frame[40..42].fill(0);
        frame
    };
    let padded = {
        let mut frame = frame(Family::V4, Transport::Udp, 1);
        frame.resize(60, 0xaa);
        frame
    };
    let broken = {
        let mut frame = frame(Family::V6, Transport::Tcp, 50);
        frame[70] ^= 0x55;
        frame
    };
    let marked = {
        let mut frame = frame(Family::V4, Transport::Udp, 50);
        (frame[15], frame[24]) = (0x17 << 2, frame[24].wrapping_sub(0x17 * 4 - 40)); // DSCP and header checksum
        frame
    };
    for (name, original) in [
        ("vlan", vlan),
        ("no checksum", no_checksum),
        ("padded", padded),
        ("broken", broken),
    ] {
        let mut path = switches(3, &Config::default(), Watch::default());
        let (frames, datagrams) = travel(&mut path, &original);
        assert_eq!((&frames[2], datagrams.len()), (&original, 1), "{name}");
        assert!(frames[1].len() > original.len() && (name != "no checksum" || frames[1][40..42] == [0, 0]));
    }
    // A packet from outside with the mark: the following bytes are not INT, so no switch changes it.
    let mut path = switches(2, &Config::default(), Watch::default());
    let (frames, datagrams) = travel(&mut path, &marked);
    assert_eq!((&frames[1], datagrams.len()), (&marked, 0));
    assert_eq!((path[0].stats().refused, path[1].stats().refused), (1, 1));
    // A malformed IP header is not repaired.
    let mut broken = frame(Family::V4, Transport::Udp, 5);
    broken[22] ^= 1;
    let (frames, datagrams) = travel(&mut switches(2, &Config::default(), Watch::default()), &broken);
    assert_eq!((&frames[1], datagrams.len()), (&broken, 0));
    // Neither IP nor long enough for anything.
    for bytes in [
        &[][..],
        &[0; 14],
        &[0xff; 60],
        &frame(Family::V4, Transport::Udp, 5)[..30],
    ] {
        let mut path = switches(2, &Config::default(), Watch::default());
        let (frames, _) = travel(&mut path, bytes);
        assert_eq!(frames[1], bytes);
    }
}

/// A UDP checksum of 0 means "none", and 0 and 0xffff are the same sum: the only case in which adding and subtracting could give
/// another result. Two counting payload bytes produce every checksum at every hop.
#[test]
fn no_checksum_is_lost_between_zero_and_all_ones() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut original = frame(Family::V4, transport, 2);
        let (at, field) = (
            original.len() - 2,
            if transport == Transport::Udp { 40 } else { 50 },
        );
        let mut path = switches(3, &Config::default(), Watch::default());
        let mut zeros = 0;
        for value in 0..=u16::MAX {
            original[at..].copy_from_slice(&value.to_be_bytes());
            original[field..field + 2].fill(0);
            let checksum = !l4_sum(&original);
            let checksum = if transport == Transport::Udp && checksum == 0 {
                0xffff
            } else {
                checksum
            };
            original[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
            let (frames, _) = travel(&mut path, &original);
            assert_eq!(frames[2], original);
            for frame in &frames {
                let now = u16::from_be_bytes([frame[field], frame[field + 1]]);
                zeros += u32::from(now == 0);
                assert!(checksums_hold(frame) && (now != 0 || transport == Transport::Tcp));
            }
        }
        assert_eq!(zeros > 0, transport == Transport::Tcp);
    }
}

#[test]
fn a_probe_ends_at_the_sink() {
    let mut path = switches(3, &Config::default(), Watch::default());
    let mut frame = frame(Family::V4, Transport::Udp, 50);
    let mut outbox = Outbox::default();
    path[0].forward(&mut frame, &entering(1), &mut outbox);
    frame[14 + 20 + 8 + 4] |= 0x08; // D of the metadata header
    path[1].forward(&mut frame, &visit(2), &mut outbox);
    let step = path[2].forward(&mut frame, &leaving(3), &mut outbox);
    assert_eq!(
        step,
        Step {
            verdict: Verdict::Discard,
            recorded: true,
            sf: None
        }
    );
    assert_eq!(outbox.datagrams().count(), 1);
}

#[test]
fn contradictions_are_refused_with_a_reason() {
    let watch = |mode| watch(mode, Watch::USUAL);
    let said = |config: Config, watch: Watch| Switch::new(1, config, watch.into()).unwrap_err();
    let v10 = Config {
        format: Format {
            version: Version::V10,
            ..Format::default()
        },
        ..Config::default()
    };
    let none = Config::default;
    assert_eq!(said(v10.clone(), watch(Mode::Mx21)), ConfigError::NeedsReport20);
    assert_eq!(
        said(
            none(),
            Watch {
                bitmap: 0,
                ..watch(Mode::Md21)
            }
        ),
        ConfigError::EmptyBitmap
    );
    let mark = |dscp, port| Config {
        mark: Mark {
            dscp,
            port,
            hop_by_hop: false,
        },
        ..none()
    };
    assert_eq!(said(mark(64, None), watch(Mode::Md21)), ConfigError::BadDscp(64));
    assert_eq!(said(mark(1, Some(0)), watch(Mode::Md21)), ConfigError::BadPort);
    let format = Format {
        group: 2,
        ..v10.format
    };
    assert_eq!(
        said(Config { format, ..none() }, watch(Mode::Md21)),
        ConfigError::BadFormat
    );
    let congestion = Some(Congestion {
        rise: 5,
        fall: 5,
        quota: 0,
    });
    assert_eq!(
        said(Config { congestion, ..none() }, watch(Mode::Md21)),
        ConfigError::BadCongestion
    );
    let mut switch = Switch::new(1, v10, watch(Mode::Md10).into()).unwrap();
    assert_eq!(
        switch.watch(watch(Mode::Postcard).into()),
        Err(ConfigError::NeedsReport20)
    );
}

/// Arbitrary input: no panic, and frames that the switch does not process stay unchanged.
#[test]
fn damaged_packets_do_no_harm() {
    let marks = [
        Mark::default(),
        Mark {
            port: Some(33_122),
            ..Mark::default()
        },
    ];
    let mut random = crate::fabric::Random::new(5);
    let mut untouched = 0;
    for (mark, mode) in marks
        .into_iter()
        .flat_map(|mark| [Mode::Md21, Mode::Md10, Mode::Mx21].map(|mode| (mark, mode)))
    {
        let config = Config {
            mark,
            ..Config::default()
        };
        let mut path = switches(2, &config, watch(mode, Watch::USUAL));
        for (family, transport, payload) in every_packet() {
            let mut whole = frame(family, transport, payload);
            let mut outbox = Outbox::default();
            path[0].forward(&mut whole, &entering(1), &mut outbox);
            for _ in 0..500 {
                let mut damaged = whole.clone();
                for _ in 0..=random.below(3) {
                    let at = random.below(damaged.len().min(100) as u64) as usize;
                    damaged[at] = random.bits() as u8;
                }
                if random.chance(300_000) {
                    damaged.truncate(random.below(damaged.len() as u64 + 1) as usize);
                }
                let before = damaged.clone();
                let visit = Visit {
                    from_edge: random.chance(500_000),
                    to_edge: random.chance(500_000),
                    ..visit(2)
                };
                path[1].dropped(&damaged, &visit, 71, &mut outbox);
                let step = path[1].forward(&mut damaged, &visit, &mut outbox);
                untouched += usize::from(damaged == before && !step.recorded);
                outbox.clear();
            }
        }
    }
    assert!(
        (5_000..60_000).contains(&untouched),
        "{untouched} of 60,000: some refused, some fine"
    );
}

#[test]
fn the_mark_changes_while_it_runs() {
    let mut switch = switches(1, &Config::default(), Watch::default()).remove(0);
    let (from_host, mut outbox) = (entering(1), Outbox::default());
    let original = frame(Family::V4, Transport::Udp, 100);
    let mut packet = original.clone();
    for (dscp, l4_checksum) in [
        (0x17, L4Checksum::Update),
        (9, L4Checksum::Zero),
        (0x17, L4Checksum::Leave),
    ] {
        switch.set_encoding(dscp, l4_checksum).unwrap();
        packet.clone_from(&original);
        switch.forward(&mut packet, &from_host, &mut outbox);
        assert_eq!(
            (packet[15] >> 2, switch.config().l4_checksum),
            (dscp, l4_checksum)
        );
        assert_eq!(packet[40..42] == [0, 0], l4_checksum == L4Checksum::Zero);
        // It recognises its own mark, and no other.
        switch.forward(&mut packet, &leaving(1), &mut outbox);
        assert_eq!(packet.len(), original.len());
    }
    assert!(switch.set_encoding(64, L4Checksum::Update).is_err());
    assert_eq!(switch.config().mark.dscp, 0x17);
}
