//! Tunnels in reported packets: every vector behind every link header, and cut at every length.

use std::net::IpAddr;

use testkit::vectors::{self, Vector};
use wire::{Decoder, FlowKey, Refusal, Report};

/// Length of a Report 1.0 without metadata.
const HEADER: usize = 16;
const TAGS: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];

fn tunnels() -> impl Iterator<Item = Vector> {
    vectors::all()
        .into_iter()
        .filter(|vector| vector.name.starts_with("t_"))
}

/// The flow, the tunnel and the reason of the one report in a datagram.
type Found = (Option<FlowKey>, Option<FlowKey>, Option<Refusal>);

fn found(vector: &Vector, payload: &[u8]) -> Result<Found, Refusal> {
    let mut decoder = Decoder::new(vector.profile);
    let mut reports = decoder.reports(payload);
    let report: Report<'_> = reports.next().expect("a report")?;
    Ok((report.flow, report.tunnel, report.tunnel_refused))
}

/// The report about the same packet behind other bytes than its Ethernet header.
fn behind(vector: &Vector, link: &[u8]) -> Vec<u8> {
    let (header, packet) = vector.bytes.split_at(HEADER);
    [header, link, &packet[12..]].concat()
}

#[test]
fn tags_in_front_change_nothing() {
    let mut compared = 0;
    for vector in tunnels().filter(|vector| !vector.name.contains("tags")) {
        let expected = found(&vector, &vector.bytes);
        for count in 1..=4 {
            for first in 0..TAGS.len() {
                let tags = (0..count).flat_map(|i| {
                    let [high, low] = TAGS[(first + i) % TAGS.len()].to_be_bytes();
                    [high, low, 0x20, i as u8 + 1]
                });
                let link: Vec<u8> = [2; 12].into_iter().chain(tags).collect();
                assert_eq!(
                    found(&vector, &behind(&vector, &link)),
                    expected,
                    "{} behind {count} tags",
                    vector.name
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn a_tunnel_is_followed_in_other_tunnels() {
    let outer_ip = |proto: u8| {
        let mut ip = [0; 20];
        (ip[0], ip[8], ip[9]) = (0x45, 64, proto);
        ip[12..].copy_from_slice(&[198, 51, 100, 1, 198, 51, 100, 2]);
        ip
    };
    let ethernet = [[2; 12].as_slice(), &[8, 0]].concat();
    let gre = [&ethernet[..], &outer_ip(47), &[0, 0, 0x65, 0x58], &[2; 12]].concat();
    let udp = [0x9c, 0x40, 0x12, 0xb5, 0, 0, 0, 0];
    let vxlan = [
        &ethernet[..],
        &outer_ip(17),
        &udp,
        &[8, 0, 0, 0, 0, 0, 7, 0],
        &[2; 12],
    ]
    .concat();
    let mut compared = 0;
    for vector in tunnels() {
        let (flow, tunnel, refused) = found(&vector, &vector.bytes).expect("a report");
        let is_deep = ["t_four_tunnels", "t_five_tunnels", "t_gtpu_in_vxlan_with_pppoe"];
        if flow.is_none() || is_deep.contains(&vector.name.as_str()) {
            continue;
        }
        for link in [&gre, &vxlan] {
            let (inner, outermost, reason) = found(&vector, &behind(&vector, link)).expect("a report");
            assert_eq!((inner, reason), (flow, refused), "{}", vector.name);
            let source = outermost.map(|flow| flow.src());
            assert_eq!(
                source,
                Some(IpAddr::from([198, 51, 100, 1])),
                "{} {tunnel:?}",
                vector.name
            );
            compared += 1;
        }
    }
    assert!(compared > 80, "{compared}");
}

/// Whatever is cut off, the flow is that of an IP header that the whole packet has.
#[test]
fn a_cut_tunnel_invents_no_flow() {
    for vector in tunnels() {
        let packet = &vector.bytes[HEADER..];
        let has = |octets: &[u8]| packet.windows(octets.len()).any(|window| window == octets);
        for len in 0..vector.bytes.len() {
            let Ok((Some(flow), _, _)) = found(&vector, &vector.bytes[..len]) else {
                continue;
            };
            let skipped = if flow.is_v6() { 0 } else { 12 };
            let pair = [&flow.src_octets()[skipped..], &flow.dst_octets()[skipped..]].concat();
            assert!(has(&pair), "{} cut at {len}: {flow}", vector.name);
        }
    }
}

#[test]
fn every_reason_has_a_vector() {
    let reasons: Vec<Refusal> = tunnels()
        .filter_map(|vector| found(&vector, &vector.bytes).ok()?.2)
        .collect();
    for expected in [
        Refusal::ErspanVersion,
        Refusal::GtpExtension,
        Refusal::EomplsUnclear,
        Refusal::BadPppoe,
        Refusal::TunnelDepth,
        Refusal::TunnelTruncated,
        Refusal::TunnelNotIp,
    ] {
        assert!(reasons.contains(&expected), "{expected}");
    }
}
