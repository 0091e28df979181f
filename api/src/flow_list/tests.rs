use super::*;

#[test]
fn a_flow_that_was_copied_twice_is_listed_once_with_the_greater_value() {
    let flow = |number: u16| FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((number, 80)), 17);
    let copy = |number, reports| FlowSummary::new(flow(number), None, 5, reports);
    let copies = [copy(1, 10), copy(2, 7), copy(1, 4)];
    let query = FlowQuery {
        limit: 2,
        order: FlowOrder::Reports,
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
        after: None,
    };
    let expected = FlowPage {
        flows: vec![(FlowRank(10, flow(1).id()), flow(1))],
        more: true,
        total: 4,
    };
    assert_eq!(FlowPage::select(copies.iter(), &query, |_| true), expected);
}
