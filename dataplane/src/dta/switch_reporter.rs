//! A DTA reporter at a switch: converts packets and measurements of the switch to [`Context`].

use wire::{FlowKey, Hop, ipv4, ipv6, tcp};

use super::context::packet_id;
use super::{Context, Outbox, PacketFacts, Reporter, Trigger};
use crate::packet::{Headers, ParsedPacket, TCP};
use crate::visit::Visit;

/// A reporter with its outbox.
#[derive(Debug)]
pub struct SwitchReporter {
    /// The reporter with its tables and sketches.
    pub reporter: Reporter,
    /// Reports that are ready to be sent. The caller sends and clears them.
    pub outbox: Outbox,
    /// True if the switch also sends Telemetry Reports; otherwise DTA replaces them.
    pub also_reports: bool,
    /// Cached result of [`Reporter::needs_packets`].
    needs_packets: bool,
}

/// An event about a packet, with data that the packet itself does not have.
#[derive(Clone, Copy)]
pub(crate) struct Event<'a> {
    pub(crate) trigger: Trigger,
    /// The measurement of this node, if it is not on the stack.
    pub(crate) metadata: Option<&'a Hop>,
    pub(crate) reason: Option<u8>,
    pub(crate) congested: Option<bool>,
}

impl<'a> Event<'a> {
    pub(crate) fn new(trigger: Trigger, metadata: &'a Hop) -> Self {
        Self {
            trigger,
            metadata: Some(metadata),
            reason: None,
            congested: None,
        }
    }
}

impl SwitchReporter {
    /// Creates a switch reporter with an outbox of the default size.
    pub fn new(reporter: Reporter, also_reports: bool) -> Self {
        let needs_packets = reporter.needs_packets();
        Self {
            reporter,
            outbox: Outbox::default(),
            also_reports,
            needs_packets,
        }
    }

    /// Returns whether the reporter needs to see every packet.
    #[inline]
    pub(crate) fn needs_packets(&self) -> bool {
        self.needs_packets
    }

    /// Processes a passing packet.
    pub(crate) fn packet(&mut self, node: u32, frame: &[u8], parsed: &ParsedPacket, visit: &Visit) {
        let metadata = visit.hop(node, u16::MAX);
        let event = Event::new(Trigger::Packet, &metadata);
        let context = context(node, frame, parsed, visit, event);
        self.reporter.packet(&context, visit.egress_ts, &mut self.outbox);
    }

    /// Processes any other event about a packet. Returns true if DTA replaces the Telemetry Report.
    pub(crate) fn report(
        &mut self,
        node: u32,
        frame: &[u8],
        parsed: &ParsedPacket,
        visit: &Visit,
        event: Event<'_>,
    ) -> bool {
        let context = context(node, frame, parsed, visit, event);
        self.reporter.report(&context, visit.egress_ts, &mut self.outbox);
        !self.also_reports
    }

    /// Counts in the tables a dropped packet that causes no drop report.
    pub(crate) fn dropped(&mut self, node: u32, frame: &[u8], parsed: &ParsedPacket, visit: &Visit) {
        let metadata = visit.hop(node, u16::MAX);
        let context = context(node, frame, parsed, visit, Event::new(Trigger::Drop, &metadata));
        self.reporter
            .count_drop(&context, visit.egress_ts, &mut self.outbox);
    }

    /// Processes an event about a queue. Returns true if DTA replaces the Telemetry Report.
    pub(crate) fn queue(&mut self, node: u32, metadata: &Hop, congested: bool, now: u64) -> bool {
        let context = Context {
            metadata: Some(metadata),
            congested: Some(congested),
            ..Context::new(Trigger::Queue, node)
        };
        self.reporter.report(&context, now, &mut self.outbox);
        !self.also_reports
    }
}

fn context<'a>(
    node: u32,
    frame: &'a [u8],
    parsed: &'a ParsedPacket,
    visit: &Visit,
    event: Event<'a>,
) -> Context<'a> {
    let Event {
        trigger,
        metadata,
        reason,
        congested,
    } = event;
    let flow = parsed.flow.as_ref();
    let facts = flow
        .zip(parsed.headers)
        .map(|(flow, headers)| facts(frame, flow, &headers));
    // For other protocols and fragments, the length assumes an untagged frame.
    let other = PacketFacts {
        bytes: frame.len().saturating_sub(14) as u32,
        ..PacketFacts::default()
    };
    let facts = facts.unwrap_or(other);
    let packet = PacketFacts {
        from_edge: visit.from_edge,
        to_edge: visit.to_edge,
        ..facts
    };
    let stack = match (&parsed.carried, trigger) {
        (Some(carried), Trigger::Path | Trigger::Sample | Trigger::Drop) => carried.records(frame),
        _ => wire::int::Stack::EMPTY,
    };
    Context {
        flow,
        stack,
        metadata,
        reason,
        congested,
        packet,
        ..Context::new(trigger, node)
    }
}

/// Reads the fields of the headers, with or without INT.
fn facts(frame: &[u8], flow: &FlowKey, headers: &Headers) -> PacketFacts {
    let rest = frame.get(headers.ip..).unwrap_or_default();
    let (ident, hop_limit) = if headers.v6 {
        let label = rest
            .first_chunk::<4>()
            .map_or(0, |head| u32::from_be_bytes(*head) & 0xf_ffff);
        (
            label,
            ipv6::Packet::new_checked(rest).map_or(0, |header| header.hop_limit()),
        )
    } else {
        ipv4::Packet::new_checked(rest).map_or((0, 0), |header| (header.ident().into(), header.ttl()))
    };
    let sequence = match frame.get(headers.l4..) {
        Some(rest) if headers.proto == TCP => tcp::Packet::new_checked(rest).map_or(0, |header| header.seq()),
        _ => 0,
    };
    PacketFacts {
        id: packet_id(flow, ident, sequence),
        bytes: headers.ip_len(frame) as u32,
        hop_limit,
        ..PacketFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use detect::Match;
    use wire::dta::{Operation, Report};

    use super::*;
    use crate::dta::{Action, Config, Mapping, SendOptions, table};
    use crate::report::Outbox as Reports;
    use crate::switch::{self, Congestion, Switch};
    use crate::watchlist::{Mode, Watch, Watchlist};
    use testkit::workload::switch::template;

    const VISIT: Visit = Visit {
        ingress_if: 1,
        egress_if: 2,
        ingress_ts: 1_000,
        egress_ts: 1_500,
        queue_id: 3,
        queue_occupancy: 70,
        tx_utilization: 5,
        buffer_occupancy: 0,
        l2_interfaces: [0; 2],
        mtu: 1500,
        from_edge: false,
        to_edge: false,
        from_border: false,
    };

    fn append(on: Trigger, list: u32, entry: &str) -> Mapping {
        let entry = entry.split(' ').map(|field| field.parse().unwrap()).collect();
        let action = Action::Append {
            list,
            lists: 1,
            spread: Vec::new(),
            entry,
            entries: 1,
            hold: 0,
        };
        let (flows, when, options) = (Match::default(), Vec::new(), SendOptions::default());
        let name = String::new();
        Mapping {
            name,
            on,
            table: None,
            flows,
            when,
            every: 1,
            each_hop: false,
            options,
            action,
        }
    }

    fn switch_reporter(mappings: Vec<Mapping>, also: bool) -> SwitchReporter {
        let reporter = Reporter::new(Config {
            reporter: 3,
            mappings,
            ..Config::default()
        })
        .unwrap();
        SwitchReporter::new(reporter, also)
    }

    fn switch(node: u32, mode: Mode) -> Switch {
        let watchlist = Watchlist::from(Watch {
            mode,
            ..Watch::default()
        });
        let congestion = Some(Congestion {
            rise: 60,
            fall: 10,
            quota: 1,
        });
        Switch::new(
            node,
            switch::Config {
                congestion,
                ..switch::Config::default()
            },
            watchlist,
        )
        .unwrap()
    }

    /// (List, entry) of each report.
    fn reported(switch: &mut Switch) -> Vec<(u32, Vec<u8>)> {
        let switch_reporter = switch.dta_mut().unwrap();
        let read = |payload| match Report::parse(payload).unwrap().operation {
            Operation::Append { list, entries, .. } => (list, entries.to_vec()),
            other => panic!("{other:?}"),
        };
        let reported = switch_reporter
            .outbox
            .datagrams()
            .map(|one| read(one.payload))
            .collect();
        switch_reporter.outbox.clear();
        reported
    }

    /// A packet after source and transit, as it arrives at a sink.
    fn at_the_sink(mode: Mode, v6: bool) -> Vec<u8> {
        let mut frame = template(5, v6);
        let calm = Visit {
            queue_occupancy: 0,
            ..VISIT
        };
        switch(1, mode).forward(
            &mut frame,
            &Visit {
                from_edge: true,
                ..calm
            },
            &mut Reports::default(),
        );
        switch(2, mode).forward(&mut frame, &calm, &mut Reports::default());
        frame
    }

    #[test]
    fn a_sink_reports_the_path_by_dta_without_changing_the_packet() {
        let calm = Visit {
            queue_occupancy: 0,
            to_edge: true,
            ..VISIT
        };
        for (v6, mode) in [(false, Mode::Md21), (true, Mode::Md21), (false, Mode::Md10)] {
            for also in [false, true] {
                let path = append(Trigger::Path, 1, "node[4] path_len hop_latency");
                let (mut plain, mut sink) = (switch(3, mode), switch(3, mode));
                sink.set_dta(Some(switch_reporter(vec![path], also)));
                let (mut one, mut other) = (at_the_sink(mode, v6), at_the_sink(mode, v6));
                let (mut reports, mut same) = (Reports::default(), Reports::default());
                let done = plain.forward(&mut one, &calm, &mut reports);
                assert_eq!((done, one), (sink.forward(&mut other, &calm, &mut same), other));
                assert_eq!(plain.stats(), sink.stats());
                let datagrams = |out: &Reports| {
                    out.datagrams()
                        .map(|one| one.payload.to_vec())
                        .collect::<Vec<_>>()
                };
                assert_eq!(
                    datagrams(&same),
                    if also { datagrams(&reports) } else { Vec::new() }
                );
                let entry = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 3, 0, 0, 1, 0xf4];
                assert_eq!(reported(&mut sink), [(1, entry.to_vec())], "500 ns");
            }
        }
    }

    #[test]
    fn a_sample_of_sf_int_is_no_path() {
        let mut sink = switch(3, Mode::Sf);
        let both = vec![
            append(Trigger::Path, 1, "node"),
            append(Trigger::Sample, 2, "node[3]"),
        ];
        sink.set_dta(Some(switch_reporter(both, false)));
        let calm = Visit {
            queue_occupancy: 0,
            to_edge: true,
            ..VISIT
        };
        let (mut frame, mut reports) = (at_the_sink(Mode::Sf, false), Reports::default());
        sink.forward(&mut frame, &calm, &mut reports);
        let reported = reported(&mut sink);
        assert_eq!(
            (reported.len(), reported[0].0, &reported[0].1[4..]),
            (1, 2, &[0, 0, 0, 3, 0, 0, 0, 0][..])
        );
        assert!(reports.is_empty() && frame == template(5, false), "{frame:02x?}");
    }

    #[test]
    fn single_nodes_drops_and_queues_are_reported_too() {
        for mode in [Mode::Mx21, Mode::Postcard] {
            let mut node = switch(3, mode);
            let mappings = vec![
                append(Trigger::Hop, 1, "node:u8 queue_occupancy:u8 sport"),
                append(Trigger::Drop, 2, "node:u8 reason sport"),
                append(Trigger::Queue, 3, "node:u8 queue_id congested"),
                append(Trigger::CongestedPacket, 4, "node:u8 queue_occupancy:u8 proto"),
            ];
            node.set_dta(Some(switch_reporter(mappings, false)));
            let port = node
                .flow_of(&template(5, false))
                .and_then(|flow| flow.src_port())
                .unwrap();
            let with_port = |bytes: [u8; 2]| [bytes, port.to_be_bytes()].concat();
            let mut reports = Reports::default();
            let visit = Visit {
                from_edge: true,
                ..VISIT
            };
            node.forward(&mut template(5, false), &visit, &mut reports);
            assert_eq!(reported(&mut node), [(3, vec![3, 3, 1]), (1, with_port([3, 70]))]);
            node.forward(&mut template(5, false), &visit, &mut reports);
            assert_eq!(
                reported(&mut node),
                [(4, vec![3, 70, 17]), (1, with_port([3, 70]))]
            );
            node.forward(
                &mut template(5, false),
                &Visit {
                    queue_occupancy: 10,
                    ..visit
                },
                &mut reports,
            );
            assert_eq!(reported(&mut node), [(3, vec![3, 3, 0]), (1, with_port([3, 10]))]);
            assert!(node.dropped(&template(5, false), &visit, 7, &mut reports));
            assert_eq!(reported(&mut node), [(2, with_port([3, 7]))]);
            assert!(reports.is_empty());
            assert_eq!(
                (node.stats().queues_reported, node.stats().drops_reported),
                (2, 1)
            );
        }
    }

    #[test]
    fn every_packet_is_counted_once_at_the_place_that_is_meant() {
        let table = |name: &str, at| table::Config {
            name: name.to_owned(),
            key: vec!["flow".parse().unwrap()],
            flows: Match::default(),
            at,
            slots: 64,
            period: 0,
            having: Vec::new(),
        };
        let tables = vec![
            table("all", table::At::Anywhere),
            table("in", table::At::Source),
            table("out", table::At::Sink),
        ];
        let mappings = vec![append(Trigger::Packet, 1, "packet_bytes:u16 hop_limit")];
        let config = Config {
            reporter: 3,
            mappings,
            tables,
            ..Config::default()
        };
        let mut node = switch(3, Mode::Md21);
        node.set_dta(Some(SwitchReporter::new(Reporter::new(config).unwrap(), false)));
        for (from_edge, to_edge) in [(true, false), (false, true), (false, false), (true, true)] {
            let visit = Visit {
                from_edge,
                to_edge,
                queue_occupancy: 0,
                ..VISIT
            };
            node.forward(&mut template(5, false), &visit, &mut Reports::default());
        }
        let counted: Vec<_> = node
            .dta()
            .unwrap()
            .reporter
            .tables()
            .map(|(_, stats)| stats.counted)
            .collect();
        assert_eq!(counted, [4, 2, 2]);
        let frame = template(5, false);
        let entry = vec![frame[16], frame[17], frame[22]];
        assert_eq!(reported(&mut node), vec![(1, entry); 4]);
    }

    #[test]
    fn a_packets_number_is_the_same_at_every_node_and_another_for_the_next() {
        let mut numbers = Vec::new();
        for ident in [7_u8, 8] {
            let mut frame = template(5, false);
            frame[19] = ident;
            wire::ipv4::Packet::new_checked(&mut frame[14..])
                .unwrap()
                .fill_checksum();
            for (node, from_edge, to_edge) in [(1, true, false), (2, false, false), (3, false, true)] {
                let mut switch = switch(node, Mode::Md21);
                switch.set_dta(Some(switch_reporter(
                    vec![append(Trigger::Packet, 1, "packet_id")],
                    false,
                )));
                let visit = Visit {
                    from_edge,
                    to_edge,
                    queue_occupancy: 0,
                    ..VISIT
                };
                switch.forward(&mut frame, &visit, &mut Reports::default());
                numbers.extend(reported(&mut switch));
            }
        }
        assert_eq!((&numbers[0], &numbers[3]), (&numbers[2], &numbers[5]));
        assert_eq!((&numbers[1], &numbers[4]), (&numbers[0], &numbers[5]));
        assert_ne!(numbers[0], numbers[3]);
    }
}
