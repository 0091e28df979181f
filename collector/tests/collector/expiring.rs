//! Packets with INT whose hop limit is used up inside the path of others, as those of traceroute.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use collector::{FlowView, Kind};
use testkit::reports::{Bench, SECOND, Sent, config, flow, node};

/// The forms of a report of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    V10,
    V20,
    /// Two reports in one datagram.
    Group,
    /// Over Ethernet, with a report that the collector's fast paths do not read.
    Tagged,
    V6,
    /// In a tunnel, whose header has the hop limit.
    Tunnel,
}

const FORMS: [Form; 6] = [
    Form::V10,
    Form::V20,
    Form::Group,
    Form::Tagged,
    Form::V6,
    Form::Tunnel,
];

struct Network {
    bench: Bench,
    form: Form,
    seq: u32,
}

impl Network {
    fn new(form: Form) -> Self {
        Self {
            bench: Bench::new(config()),
            form,
            seq: 0,
        }
    }

    /// The report of a packet that has passed these nodes.
    fn packet(&mut self, ttl: u8, nodes: &[u32]) -> &mut Self {
        self.seq += 1;
        let is_tunnelled = self.form == Form::Tunnel;
        let sent = Sent {
            hops: nodes.iter().map(|id| node(*id)).collect(),
            v6: self.form == Form::V6,
            ttl: if is_tunnelled { 64 } else { ttl },
            bitmap: 0xa000,
            seq: self.seq,
            ..Sent::default()
        };
        let payload = match self.form {
            Form::V10 => sent.v10(),
            Form::Tagged | Form::Tunnel => {
                let mut bytes = sent.v10();
                // Ethernet follows.
                bytes[1] &= 0x1f;
                let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
                frame.extend([0x81, 0, 0, 5, 8, 0]);
                if is_tunnelled {
                    // IP in IP, without a length.
                    frame.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, ttl, 4, 0, 0]);
                    frame.extend([192, 0, 2, 1, 192, 0, 2, 2]);
                }
                bytes.splice(16..16, frame);
                bytes
            }
            Form::V20 | Form::V6 => Sent::v20(&[sent]),
            Form::Group => {
                let other = Sent {
                    flow: 2,
                    ..sent.clone()
                };
                Sent::v20(&[other, sent])
            }
        };
        self.bench.deliver(&payload);
        self
    }

    fn view(&self) -> FlowView<'_> {
        let is_v6 = self.form == Form::V6;
        self.bench.collector.flow(&flow(1, is_v6)).unwrap()
    }

    fn path(&self) -> Vec<u32> {
        self.view().path().collect()
    }

    /// Events of the path of the flow.
    fn kinds(&self) -> Vec<Kind> {
        let flow = self.view().row.flow;
        let events = self.bench.log.events.iter();
        let of_flow = events.filter(|event| event.flow == Some(flow));
        of_flow
            .map(|event| event.kind)
            .filter(|kind| matches!(kind, Kind::PathChange | Kind::PathLoop))
            .collect()
    }
}

#[test]
fn a_packet_that_expires_inside_the_path_is_no_shorter_path() {
    for form in FORMS {
        let mut network = Network::new(form);
        network.packet(60, &[1, 2, 3, 4]);
        for limit in 0..2 {
            network.packet(limit, &[1]).packet(limit, &[1, 2, 3]);
            network.packet(60, &[1, 2, 3, 4]).packet(limit, &[1, 2]);
        }
        // At the destination.
        network.packet(1, &[1, 2, 3, 4]);
        assert_eq!(
            (network.path(), network.kinds()),
            (vec![1, 2, 3, 4], vec![]),
            "{form:?}"
        );
        let view = network.view();
        assert_eq!((view.row.flow_latency, view.incomplete), (Some(4000), false));
        assert_eq!(view.row.reports, 10);
        // Other packets show a shorter path, and one that expires shows another.
        network.packet(2, &[1, 2]);
        assert_eq!(
            (network.path(), network.kinds()),
            (vec![1, 2], vec![Kind::PathChange])
        );
        network.packet(1, &[1, 5]);
        assert_eq!(network.path(), [1, 5], "{form:?}");
        network.packet(1, &[1, 5, 1, 5]);
        let looped = [Kind::PathChange, Kind::PathChange, Kind::PathLoop];
        assert_eq!(network.kinds(), looped, "{form:?}");
    }
}

#[test]
fn a_path_of_packets_that_expire_is_completed_without_a_change() {
    for form in FORMS {
        let mut network = Network::new(form);
        network.packet(1, &[1]).packet(1, &[1, 2]).packet(1, &[1]);
        assert_eq!(
            (network.path(), network.view().incomplete),
            (vec![1, 2], true),
            "{form:?}"
        );
        network.packet(60, &[1, 2, 3]);
        assert_eq!(
            (network.path(), network.view().incomplete),
            (vec![1, 2, 3], false),
            "{form:?}"
        );
        assert_eq!(network.kinds(), [], "{form:?}");
    }
}

#[test]
fn packets_that_expire_alone_show_a_shorter_path_in_the_end() {
    let mut network = Network::new(Form::V10);
    network.packet(60, &[1, 2, 3]);
    for _ in 0..60 {
        network.packet(1, &[1, 2]);
        assert_eq!(network.path(), [1, 2, 3]);
        network.bench.pass(SECOND / 5);
    }
    for _ in 0..4 {
        network.packet(1, &[1, 2]);
    }
    assert_eq!((network.path(), network.view().incomplete), (vec![1, 2], true));
}
