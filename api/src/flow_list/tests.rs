use std::net::Ipv6Addr;

use testkit::records::odd_flows;
use testkit::rng::Rng;

use super::*;

/// A random flow of any kind, with numbers of any length.
fn random_flow(rng: &mut Rng) -> FlowKey {
    let short = |rng: &mut Rng| (rng.roll() >> (48 + rng.below(16))) as u16;
    let octets = |rng: &mut Rng| [0; 4].map(|_: u8| (rng.roll() >> (56 + rng.below(8))) as u8);
    let ports = (rng.below(4) > 0).then(|| (short(rng), short(rng)));
    let proto = short(rng) as u8;
    match rng.below(8) {
        0 => FlowKey::of_id(rng.roll() as u32),
        1 => {
            let address = |rng: &mut Rng| Ipv6Addr::from_segments([0; 8].map(|_: u16| short(rng)));
            FlowKey::v6(address(rng).octets(), address(rng).octets(), ports, proto)
        }
        _ => FlowKey::v4(octets(rng), octets(rng), ports, proto),
    }
}

#[test]
fn the_text_is_that_of_display() {
    let mut rng = Rng(1);
    let mut text = FlowText::default();
    let longest = FlowKey::v6([0xff; 16], [0xff; 16], Some((u16::MAX, u16::MAX)), u8::MAX);
    let random: Vec<FlowKey> = (0..20_000).map(|_| random_flow(&mut rng)).collect();
    for flow in odd_flows()
        .into_iter()
        .chain([longest, FlowKey::default()])
        .chain(random)
    {
        assert_eq!(str::from_utf8(text.of(&flow)), Ok(&*flow.to_string()));
    }
}

#[test]
fn a_text_is_found_where_str_finds_it() {
    let mut rng = Rng(2);
    for _ in 0..20_000 {
        let mut text = |length: usize| -> String {
            (0..rng.below(length))
                .map(|_| char::from(b'0' + rng.below(3) as u8))
                .collect()
        };
        let (text, wanted) = (text(12), text(5));
        if !wanted.is_empty() {
            assert_eq!(
                contains(text.as_bytes(), wanted.as_bytes()),
                text.contains(&wanted),
                "{text} {wanted}"
            );
        }
    }
}

#[test]
fn a_flow_that_was_copied_twice_is_listed_once_with_the_greater_value() {
    let flow = |number: u16| FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((number, 80)), 17);
    let copy = |number, reports| FlowSummary::new(flow(number), None, 5, reports);
    let copies = [copy(1, 10), copy(2, 7), copy(1, 4)];
    let query = FlowQuery {
        limit: 2,
        order: FlowOrder::Reports,
        filter: None,
        after: None,
    };
    let ranked = |number, reports| (FlowRank(reports, flow(number).id()), flow(number));
    let expected = FlowPage {
        flows: vec![ranked(1, 10), ranked(2, 7)],
        more: false,
        total: 3,
    };
    assert_eq!(FlowPage::select(copies.iter(), &query, |_| true), expected);
}

#[test]
fn flows_that_were_copied_twice_hide_no_page() {
    let flow = |number: u16| FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((number, 80)), 17);
    let copies = [(1, 10), (1, 9), (2, 8), (3, 7)]
        .map(|(number, reports)| FlowSummary::new(flow(number), None, 5, reports));
    let query = FlowQuery {
        limit: 1,
        order: FlowOrder::Reports,
        filter: None,
        after: None,
    };
    let expected = FlowPage {
        flows: vec![(FlowRank(10, flow(1).id()), flow(1))],
        more: true,
        total: 4,
    };
    assert_eq!(FlowPage::select(copies.iter(), &query, |_| true), expected);
}
