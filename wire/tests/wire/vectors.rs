//! Every vector of `vectors/`: decoded, encoded again, truncated and corrupted.

use testkit::rng::Rng;
use testkit::vectors::{Kind, Vector};
use testkit::{meaning, rewrite, vectors};
use wire::packet::{Encapsulation, contents};
use wire::report::v20::GROUP_LEN;
use wire::report::{PacketDigest, peek_group};
use wire::{Decoder, Dialect, FlowKey, Profile, Refusal, Report};

#[test]
fn every_vector_decodes_as_documented() {
    let mut wrong = 0;
    for vector in vectors::all() {
        let got = meaning::of(&vector);
        if got != vector.expect {
            wrong += 1;
            println!(
                "{}\n  expected {}\n  got      {}",
                vector.name,
                vector.expect.join("\n           "),
                got.join("\n           ")
            );
        }
    }
    assert_eq!(wrong, 0, "vectors with another meaning than documented");
}

#[test]
fn peek_gives_the_flow_of_the_first_report() {
    let mut compared = 0;
    for vector in vectors::all() {
        if vector.kind != Kind::Payload {
            continue;
        }
        let mut decoder = Decoder::new(vector.profile);
        let first = decoder.reports(&vector.bytes).next();
        // Where other INT is left out, peek gives the ports that its shim announces.
        let causes = [None, Some(Refusal::BadIoam), Some(Refusal::BadGeneve)];
        let Some(Ok(report)) =
            first.filter(|first| first.is_ok_and(|first| causes.contains(&first.int_refused)))
        else {
            continue;
        };
        let peek = wire::peek(&vector.bytes, &vector.profile).unwrap();
        assert_eq!(peek.flow, report.flow, "{}", vector.name);
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn the_reports_of_a_divided_datagram_are_read_as_in_the_whole() {
    let sound = vectors::bytes("tr20_emb");
    let mut compared = 0;
    let mut refused = 0;
    for vector in vectors::all() {
        let is_group = vector.bytes.len() > GROUP_LEN && vector.bytes[0] >> 4 == 2;
        if vector.kind != Kind::Payload || !is_group {
            continue;
        }
        let (header, reports) = vector.bytes.split_at(GROUP_LEN);
        let whole = [header, &sound[GROUP_LEN..], reports, &sound[GROUP_LEN..]].concat();
        let Some(parts) = peek_group(&whole, &vector.profile) else {
            continue;
        };
        let parts: Vec<_> = parts.map(|part| [header, part.bytes].concat()).collect();
        let mut decoder = Decoder::new(vector.profile);
        let mut found = decoder.reports(&whole).map(|read| read.map(unnumbered));
        for part in &parts {
            let mut decoder = Decoder::new(vector.profile);
            for read in decoder.reports(part) {
                refused += usize::from(read.is_err());
                assert_eq!(Some(read.map(unnumbered)), found.next(), "{}", vector.name);
            }
        }
        assert_eq!(found.next(), None, "{}", vector.name);
        compared += 1;
    }
    assert!(compared > 100 && refused > 10, "{compared} {refused}");
}

/// Whatever carries INT, the payload behind it tells packets apart.
#[test]
fn the_payload_of_a_packet_with_int_is_part_of_its_digest() {
    let mut found = [0; 6];
    for vector in vectors::all() {
        let Ok(known) = contents(&vector.bytes, &vector.profile) else {
            continue;
        };
        let (Kind::Packet, None, Some(place), Some(_)) =
            (vector.kind, known.tunnel, known.location, known.flow)
        else {
            continue;
        };
        let payload = match place.encapsulation {
            Encapsulation::Udp | Encapsulation::Tcp => place.end,
            // UDP follows the hop-by-hop header, and perhaps another one.
            Encapsulation::HopByHop => {
                let behind = place.l4 + 8 + usize::from(vector.bytes[place.l4 + 1]) * 8;
                if vector.bytes[place.l4] != 17 {
                    continue;
                }
                behind + 8
            }
            _ => continue,
        };
        if vector.bytes.len() < payload + 8 {
            continue;
        }
        let digest = |changed: usize, bits: u8| {
            let mut packet = vector.bytes.clone();
            packet[changed] ^= bits;
            packet.resize(packet.len().next_multiple_of(4), 0);
            let words = (packet.len() / 4) as u8;
            let report = [&[0x20, 0x40, 0, 5, 0, 0, 0, 3, 3, words, 0, 0x20], &packet[..]].concat();
            let mut decoder = Decoder::new(vector.profile);
            let report = decoder.reports(&report).next().and_then(Result::ok)?;
            report.int.map(|_| PacketDigest::of(&report).digest)
        };
        let Some(whole) = digest(payload, 0) else {
            continue;
        };
        for at in payload..payload + 8 {
            assert_ne!(digest(at, 0x55), Some(whole), "{} {at}", vector.name);
        }
        found[place.encapsulation as usize] += 1;
    }
    assert_eq!(
        found.map(|count| count > 0),
        [true, true, false, false, false, true],
        "{found:?}"
    );
}

/// The report, as if it were the first of its datagram.
fn unnumbered(report: Report<'_>) -> Report<'_> {
    Report { index: 0, ..report }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = vectors::all().into_iter().map(|vector| vector.name).collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn vectors_round_trip_byte_for_byte() {
    let mut written = 0;
    let mut wrong = Vec::new();
    for vector in vectors::all() {
        let refused = vector.expect.iter().any(|line| line.starts_with("{\"error\""));
        if refused || !vector.write {
            continue;
        }
        written += 1;
        let again = rewrite::rewrite(vector.kind, &vector.bytes, &vector.profile);
        if again != vector.bytes {
            let at = again.iter().zip(&vector.bytes).position(|(a, b)| a != b);
            wrong.push(format!(
                "{} at {at:?}, lengths {} {}",
                vector.name,
                again.len(),
                vector.bytes.len()
            ));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(written > 100, "only {written} vectors were written");
}

type Results<'a> = Vec<Result<Report<'a>, Refusal>>;

/// The reports of a vector truncated to `len` bytes; for a frame, those of the truncated datagram.
fn truncated_reports(vector: &Vector, len: usize, check: &mut dyn FnMut(Results<'_>)) {
    let bytes = &vector.bytes[..len];
    let payload = match vector.kind {
        Kind::Frame => match wire::datagram(bytes) {
            Ok(datagram) => datagram.payload,
            Err(refusal) => return check(vec![Err(refusal)]),
        },
        _ => bytes,
    };
    check(Decoder::new(vector.profile).reports(payload).collect());
}

#[test]
fn a_truncated_report_is_refused_or_yields_a_subset() {
    for vector in vectors::all() {
        if !matches!(vector.kind, Kind::Frame | Kind::Payload) {
            continue;
        }
        let shortest = match vector.profile.dialect {
            // The EtherType inside determines the version that INTCollector's generator uses.
            Dialect::IntCollectorGen => 42,
            // If both layouts are plausible, the checksum of the IPv4 header decides whether Host-INT inserted a word before it.
            Dialect::HostInt => 32,
            _ => 0,
        };
        truncated_reports(&vector, vector.bytes.len(), &mut |whole| {
            for len in shortest..vector.bytes.len() {
                truncated_reports(&vector, len, &mut |cut| {
                    for (i, report) in cut.iter().enumerate() {
                        // A truncated report adds at most one refusal.
                        let Ok(report) = report else { continue };
                        match &whole[i] {
                            Ok(whole) => {
                                assert_subset(report, whole, &format!("{} cut at {len}", vector.name))
                            }
                            // A nested report was truncated away; the rest is valid.
                            Err(Refusal::Nested) => {}
                            // A compact SF-INT report, which has no length byte, has fewer records then.
                            Err(Refusal::TooManyHops) if vector.name == "sfint_rep_c_many" => {}
                            // The malformed part may be truncated away, and INT with it.
                            Err(_) => assert_eq!(report.int, None, "{} cut at {len}", vector.name),
                        }
                    }
                });
            }
        });
    }
}

/// `cut` has no value that differs from `whole`: INT is complete or absent, the flow has the fields that are present.
fn assert_subset(cut: &Report<'_>, whole: &Report<'_>, what: &str) {
    let header = |r: &Report<'_>| {
        (
            r.version,
            r.node_id,
            r.hw_id,
            r.seq,
            r.index,
            r.flags,
            r.report_type,
            r.ts,
            r.drop_reason,
            r.flow_id,
        )
    };
    assert_eq!(header(cut), header(whole), "{what}");
    assert_eq!(cut.metadata_hop(), whole.metadata_hop(), "{what}");
    if cut.int.is_some() || whole.int.is_none() && cut.ioam == whole.ioam {
        assert_eq!(meaning::hops(cut), meaning::hops(whole), "{what}");
    } else {
        assert!(cut.hop_count() <= 1, "{what}");
    }
    let addresses = |flow: FlowKey| (flow.src(), flow.dst());
    if let (Some(cut_flow), Some(whole_flow)) = (cut.flow, whole.flow)
        && cut.tunnel == whole.tunnel
        // Cut in a tunnel, the flow is that of the packet around it.
        && cut.tunnel_refused == whole.tunnel_refused
        && !is_between_tunnels(cut_flow, cut, whole)
    {
        assert_eq!(addresses(cut_flow), addresses(whole_flow), "{what}");
        // Without the shim the port is that of INT; after an inserted UDP header, so is the protocol.
        if cut.int == whole.int && cut_flow.ports().is_some() {
            assert_eq!(cut_flow, whole_flow, "{what}");
        }
    }
    assert!(cut.tunnel.is_none() || cut.tunnel == whole.tunnel, "{what}");
}

/// Cut between the IP header of a tunnel in another one and its contents, the flow is that of the packet with that header.
fn is_between_tunnels(flow: FlowKey, cut: &Report<'_>, whole: &Report<'_>) -> bool {
    let pair = [&flow.src_octets()[12..], &flow.dst_octets()[12..]].concat();
    let mut places = whole.inner.windows(pair.len());
    cut.tunnel.is_some() && places.any(|place| place == pair)
}

#[test]
fn a_truncated_packet_has_complete_int_or_none() {
    for vector in vectors::all() {
        let frame = match vector.kind {
            Kind::Packet => vector.bytes.clone(),
            Kind::Shim => meaning::around_shim(&vector.bytes),
            _ => continue,
        };
        let whole = wire::packet::contents(&frame, &vector.profile);
        for len in 0..frame.len() {
            let Ok(cut) = wire::packet::contents(&frame[..len], &vector.profile) else {
                continue;
            };
            if let (Ok(whole), Some(int)) = (&whole, cut.int) {
                assert_eq!(
                    (Some(int), cut.location),
                    (whole.int, whole.location),
                    "{} cut at {len}",
                    vector.name
                );
            }
        }
    }
}

#[test]
fn a_truncated_aggregate_is_refused() {
    let mut cut = 0;
    for vector in vectors::all() {
        // Truncation may remove the malformed part.
        if vector.kind != Kind::Aggregate || vector.expect[0].starts_with("{\"error\"") {
            continue;
        }
        for len in 0..vector.bytes.len() {
            assert!(
                wire::Aggregate::parse(&vector.bytes[..len]).is_err(),
                "{} cut at {len}",
                vector.name
            );
            cut += 1;
        }
    }
    assert!(cut > 500, "{cut}");
}

#[test]
fn a_truncated_dta_report_or_control_message_is_refused() {
    let mut cut = 0;
    for vector in vectors::all() {
        let refused = vector.expect.iter().any(|line| line.starts_with("{\"error\""));
        if !matches!(vector.kind, Kind::Dta | Kind::DtaControl) || refused {
            continue;
        }
        for len in 0..vector.bytes.len() {
            let meaning = meaning::meaning(vector.kind, &vector.bytes[..len], &vector.profile);
            // Without its last byte, the artifact's layout is read with a base header of two bytes instead of three.
            let shorter = vector.bytes[0] < 5 && len + 1 == vector.bytes.len();
            assert!(
                shorter || meaning[0].starts_with("{\"error\""),
                "{} cut at {len}: {meaning:?}",
                vector.name
            );
            cut += 1;
        }
    }
    assert!(cut > 400, "{cut}");
}

/// Runs every decoder on these bytes.
fn read_all(bytes: &[u8], profile: &Profile) {
    let kinds = [
        Kind::Frame,
        Kind::Payload,
        Kind::Packet,
        Kind::Aggregate,
        Kind::Dta,
        Kind::DtaControl,
        Kind::Roce,
    ];
    for kind in kinds.into_iter().chain([Kind::Lldp]) {
        std::hint::black_box(meaning::meaning(kind, bytes, profile));
    }
    let _ = wire::peek(bytes, profile);
}

#[test]
fn corrupted_bytes_are_read_without_a_panic() {
    let mut rng = Rng(0x5eed);
    for vector in vectors::all() {
        for _ in 0..100 {
            let mut bytes = vector.bytes.clone();
            rng.corrupt(&mut bytes);
            read_all(&bytes, &vector.profile);
        }
    }
}

#[test]
fn random_bytes_are_read_without_a_panic() {
    let mut rng = Rng(0xace);
    for round in 0..20_000_u32 {
        let mut bytes: Vec<u8> = (0..rng.below(120)).map(|_| rng.roll() as u8).collect();
        // Most random bytes are no report: set the first nibble to a known version.
        if let Some(first) = bytes.first_mut() {
            *first = *first & 0x0f | ((round % 3) as u8) << 4;
        }
        read_all(&bytes, &Profile::new(Dialect::ALL[rng.below(5)]));
    }
}
