//! Random groups of Report 2.0, most of which end in a refusal.

use testkit::rng::Rng;
use wire::Profile;
use wire::report::{Decoder, Flags, Report};

/// Length of the group header, and of an individual report's header, bytes.
const GROUP: usize = 8;
const HEADER: usize = 4;

/// Random bytes behind the version of a Report 2.0.
fn random_group(random: &mut Rng) -> Vec<u8> {
    let mut payload: Vec<u8> = (0..GROUP + random.below(300))
        .map(|_| random.roll() as u8)
        .collect();
    payload[0] = 0x20 | payload[0] & 0x0f;
    payload
}

/// Returns the reports before the first refusal, and whether there is one.
fn reports_before_refusal<'a>(decoder: &mut Decoder, payload: &'a [u8]) -> (Vec<Report<'a>>, bool) {
    let mut reports = Vec::new();
    for report in decoder.reports(payload) {
        match report {
            Ok(report) => reports.push(report),
            Err(_) => return (reports, true),
        }
    }
    (reports, false)
}

/// A report before a refusal is complete: it is the same in a datagram that ends with it, so no bytes behind it made it up.
#[test]
fn reports_before_a_refusal_are_those_of_a_datagram_that_ends_with_them() {
    let mut random = Rng(1);
    let mut decoder = Decoder::new(Profile::default());
    let mut drops = 0;
    for _ in 0..30_000 {
        let payload = random_group(&mut random);
        let (reports, is_refused) = reports_before_refusal(&mut decoder, &payload);
        if !is_refused {
            continue;
        }
        let mut end = GROUP;
        for count in 1..=reports.len() {
            end += HEADER + usize::from(payload[end + 1]) * 4;
            let mut decoder = Decoder::new(Profile::default());
            let (alone, is_refused) = reports_before_refusal(&mut decoder, &payload[..end]);
            assert_eq!(
                (&alone[..], is_refused),
                (&reports[..count], false),
                "{payload:02x?}"
            );
        }
        let is_drop = |report: &&Report<'_>| report.flags.contains(Flags::DROP);
        drops += reports.iter().filter(is_drop).count();
    }
    assert!((1..100).contains(&drops), "{drops}");
}
