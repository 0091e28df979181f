//! Every vector of `vectors/`, read, written, cut and corrupted.

use testkit::rng::Rng;
use testkit::vectors::{Kind, Vector};
use testkit::{meaning, rewrite, vectors};
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
    assert_eq!(wrong, 0, "vectors that mean something else");
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
            wrong.push(format!("{} at {at:?}, lengths {} {}", vector.name, again.len(), vector.bytes.len()));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(written > 100, "only {written} vectors were written");
}

type Results<'a> = Vec<Result<Report<'a>, Refusal>>;

/// The reports of a vector whose bytes are cut to `len`; for a frame what it holds of the datagram.
fn reports_of_cut(vector: &Vector, len: usize, check: &mut dyn FnMut(Results<'_>)) {
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
fn a_report_cut_anywhere_is_refused_or_says_less_never_something_else() {
    for vector in vectors::all() {
        if !matches!(vector.kind, Kind::Frame | Kind::Payload) {
            continue;
        }
        let shortest = match vector.profile.dialect {
            // Which version INTCollector's generator meant follows from the EtherType inside.
            Dialect::IntCollectorGen => 42,
            // If both readings look right, the checksum of the IPv4 header decides whether host-int put a word before it.
            Dialect::HostInt => 32,
            _ => 0,
        };
        reports_of_cut(&vector, vector.bytes.len(), &mut |whole| {
            for len in shortest..vector.bytes.len() {
                reports_of_cut(&vector, len, &mut |cut| {
                    for (i, report) in cut.iter().enumerate() {
                        // Behind a cut there is at most one refusal more.
                        let Ok(report) = report else { continue };
                        match &whole[i] {
                            Ok(whole) => says_less(report, whole, &format!("{} cut at {len}", vector.name)),
                            // A nested report that is cut away is no longer seen; the rest about it is good.
                            Err(Refusal::Nested) => {}
                            // What made the whole one bad may be cut away, and INT with it.
                            Err(_) => assert_eq!(report.int, None, "{} cut at {len}", vector.name),
                        }
                    }
                });
            }
        });
    }
}

/// `cut` is `whole` with something missing: INT whole or not at all, of the flow what was there.
fn says_less(cut: &Report<'_>, whole: &Report<'_>, what: &str) {
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
    {
        assert_eq!(addresses(cut_flow), addresses(whole_flow), "{what}");
        // Before INT the port is INT's own; and behind an inserted UDP header the protocol too.
        if cut.int == whole.int && cut_flow.ports().is_some() {
            assert_eq!(cut_flow, whole_flow, "{what}");
        }
    }
    assert!(cut.tunnel.is_none() || cut.tunnel == whole.tunnel, "{what}");
}

#[test]
fn a_packet_cut_anywhere_has_its_int_whole_or_not_at_all() {
    for vector in vectors::all() {
        let frame = match vector.kind {
            Kind::Packet => vector.bytes.clone(),
            Kind::Shim => meaning::around_shim(&vector.bytes),
            _ => continue,
        };
        let whole = wire::packet::contents(&frame, &vector.profile);
        for len in 0..frame.len() {
            let Ok(cut) = wire::packet::contents(&frame[..len], &vector.profile) else { continue };
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
fn an_aggregate_cut_anywhere_is_refused_whole() {
    let mut cut = 0;
    for vector in vectors::all() {
        // Cut off may be what made it bad.
        if vector.kind != Kind::Aggregate || vector.expect[0].starts_with("{\"error\"") {
            continue;
        }
        for len in 0..vector.bytes.len() {
            assert!(wire::Aggregate::parse(&vector.bytes[..len]).is_err(), "{} cut at {len}", vector.name);
            cut += 1;
        }
    }
    assert!(cut > 500, "{cut}");
}

#[test]
fn a_dta_report_or_control_message_cut_anywhere_is_refused() {
    let mut cut = 0;
    for vector in vectors::all() {
        let refused = vector.expect.iter().any(|line| line.starts_with("{\"error\""));
        if !matches!(vector.kind, Kind::Dta | Kind::DtaControl) || refused {
            continue;
        }
        for len in 0..vector.bytes.len() {
            let said = meaning::meaning(vector.kind, &vector.bytes[..len], &vector.profile);
            // Less one byte, the artifact's base header of three is one of two, and its first byte another's second.
            let shorter = vector.bytes[0] < 5 && len + 1 == vector.bytes.len();
            assert!(shorter || said[0].starts_with("{\"error\""), "{} cut at {len}: {said:?}", vector.name);
            cut += 1;
        }
    }
    assert!(cut > 400, "{cut}");
}

/// Everything that can be asked of bytes, asked.
fn read_all(bytes: &[u8], profile: &Profile) {
    let kinds =
        [Kind::Frame, Kind::Payload, Kind::Packet, Kind::Aggregate, Kind::Dta, Kind::DtaControl, Kind::Roce];
    for kind in kinds {
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
        // Most random bytes are no report at all: let the first nibble be one that is.
        if let Some(first) = bytes.first_mut() {
            *first = *first & 0x0f | ((round % 3) as u8) << 4;
        }
        read_all(&bytes, &Profile::new(Dialect::ALL[rng.below(5)]));
    }
}
