//! Carries reports from a switch's outbox to the collector: records the ground truth of each report, and applies the channel's
//! faults.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use super::channel::{Channel, ChannelAccounting, ChannelTotals};
use super::ground_truth::{
    Arrival, DatagramOutcome, DatagramTruth, DropReason, GroundTruth, HopTruth, ReportKind, ReportTruth,
    SfTruth,
};
use super::random::Random;
use super::transfer::PacketTruth;
use super::{Event, EventKind, Fabric, FabricSink, Reporter, Topology};
use crate::report::Carrying;

/// The reports in flight between the switches and the collector.
#[derive(Debug)]
pub(super) struct Reporting {
    channel: Channel,
    random: Random,
    accounting: ChannelAccounting,
    reporters: Vec<Reporter>,
    /// Ground truth of reports in open groups, by (node index, subsystem), oldest first.
    waiting: BTreeMap<(usize, u8), VecDeque<ReportTruth>>,
    /// Whether a flush of the node's groups is scheduled, by node index.
    flush_due: Vec<bool>,
    in_flight: Vec<InFlight>,
    idle: Vec<u32>,
}

/// A datagram in flight to the collector.
#[derive(Debug)]
struct InFlight {
    payload: Vec<u8>,
    node: usize,
    hw_id: u8,
    seq: u32,
    order: u64,
    copies: u8,
}

impl Reporting {
    pub(super) fn new(topology: &Topology, channel: Channel, random: Random) -> Self {
        Self {
            channel,
            random,
            accounting: ChannelAccounting::default(),
            reporters: topology.nodes.iter().map(|node| Reporter::new(node.id)).collect(),
            waiting: BTreeMap::new(),
            flush_due: vec![false; topology.nodes.len()],
            in_flight: Vec::new(),
            idle: Vec::new(),
        }
    }

    pub(super) fn totals(&self) -> Vec<ChannelTotals> {
        self.accounting.totals()
    }

    /// Delivers a copy of a datagram to the sink.
    pub(super) fn arrive(
        &mut self,
        datagram: u32,
        duplicate: bool,
        at: u64,
        sink: &mut (impl FabricSink + ?Sized),
    ) {
        let one = &mut self.in_flight[datagram as usize];
        let from = self.reporters[one.node];
        let arrival = Arrival {
            at,
            node: from.node,
            hw_id: one.hw_id,
            seq: one.seq,
            duplicate,
            overtaken: false,
        };
        let arrival = self.accounting.arrived(one.order, arrival);
        sink.ground_truth(&GroundTruth::Arrival(arrival));
        sink.report(at, &from, &one.payload);
        one.copies -= 1;
        if one.copies == 0 {
            self.idle.push(datagram);
        }
    }

    fn store(&mut self, payload: &[u8], mut datagram: InFlight) -> u32 {
        if let Some(slot) = self.idle.pop() {
            let old = &mut self.in_flight[slot as usize];
            datagram.payload = std::mem::take(&mut old.payload);
            datagram.payload.clear();
            datagram.payload.extend_from_slice(payload);
            *old = datagram;
            return slot;
        }
        datagram.payload.extend_from_slice(payload);
        self.in_flight.push(datagram);
        self.in_flight.len() as u32 - 1
    }
}

impl Fabric {
    /// Sends the reports that switch `node` made about packet `slot` and put into the outbox, and records their ground truth.
    pub(super) fn send_reports(
        &mut self,
        slot: u32,
        node: usize,
        reason: Option<DropReason>,
        sink: &mut (impl FabricSink + ?Sized),
    ) {
        if self.outbox.is_empty() {
            return;
        }
        for index in 0..self.outbox.made().len() {
            let written = self.outbox.made()[index];
            let PacketTruth { number, flow, hops } = self.packet_truth(slot);
            let sf = written
                .record
                .zip(hops.last())
                .map(|(carrying, reporter)| SfTruth {
                    sf: carrying.sf,
                    carried: self.records.get(self.flow_of(slot), carrying),
                    reporter: *reporter,
                });
            let hops = match &sf {
                Some(sf) => reported_by_sf(sf, written.kind),
                None => reported(hops, written.kind, written.with_stack),
            };
            let reason = reason.filter(|_| written.kind == ReportKind::Drop);
            let truth = ReportTruth {
                kind: written.kind,
                packet: number,
                flow,
                hops,
                reason,
                sf,
            };
            self.reporting
                .waiting
                .entry((node, written.hw_id))
                .or_default()
                .push_back(truth);
        }
        self.send(node, sink);
        let has_open_group = self.stations[node]
            .switch
            .as_deref()
            .is_some_and(|switch| switch.has_pending_reports());
        if has_open_group && !self.reporting.flush_due[node] {
            self.reporting.flush_due[node] = true;
            self.push_event(
                self.now.saturating_add(self.config.group_delay),
                EventKind::Flush { node: node as u32 },
            );
        }
    }

    /// Sends a node's open groups.
    pub(super) fn flush(&mut self, node: usize, sink: &mut (impl FabricSink + ?Sized)) {
        self.reporting.flush_due[node] = false;
        if let Some(switch) = self.stations[node].switch.as_deref_mut() {
            switch.flush(&mut self.outbox);
        }
        self.send(node, sink);
    }

    /// Passes the outbox's datagrams to the channel, and empties the outbox.
    fn send(&mut self, node: usize, sink: &mut (impl FabricSink + ?Sized)) {
        let outbox = std::mem::take(&mut self.outbox);
        let reporting = &mut self.reporting;
        let id = reporting.reporters[node].node;
        for datagram in outbox.datagrams() {
            let hw_id = datagram.hw_id;
            let seq = datagram.seq;
            let waiting = reporting.waiting.entry((node, hw_id)).or_default();
            let reports = waiting
                .drain(..usize::from(datagram.reports).min(waiting.len()))
                .collect();
            let outcome = reporting.channel.outcome(&mut reporting.random);
            let order = reporting.accounting.sent(id, hw_id, outcome);
            sink.ground_truth(&GroundTruth::Datagram(&DatagramTruth {
                sent: self.now,
                node: id,
                hw_id,
                seq,
                outcome,
                reports,
            }));
            let usual = reporting.channel.delay;
            let late = usual.saturating_add(reporting.channel.extra);
            let delays = match outcome {
                DatagramOutcome::Lost => [None, None],
                DatagramOutcome::Delivered => [Some(usual), None],
                DatagramOutcome::Delayed => [Some(late), None],
                DatagramOutcome::Duplicated => [Some(usual), Some(late)],
            };
            let copies = delays.iter().flatten().count() as u8;
            if copies == 0 {
                continue;
            }
            let one = InFlight {
                payload: Vec::new(),
                node,
                hw_id,
                seq,
                order,
                copies,
            };
            let slot = reporting.store(datagram.payload, one);
            for (copy, delay) in delays.into_iter().flatten().enumerate() {
                self.order += 1;
                self.events.push(Reverse(Event {
                    at: self.now.saturating_add(delay),
                    order: self.order,
                    what: EventKind::Report {
                        datagram: slot,
                        duplicate: copy == 1,
                    },
                }));
            }
        }
        self.outbox = outbox;
        self.outbox.clear();
    }
}

/// SF-INT records that nodes have made, to look up the contents of later reports that carry them.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Packet number and measurement of each record.
    entries: BTreeMap<RecordKey, (u64, HopTruth)>,
    order: VecDeque<RecordKey>,
}

/// (Flow, number that the source gave to the packet, node).
type RecordKey = (u32, u16, u32);

impl Records {
    /// Maximum number of records; the oldest are removed first.
    const MAX_ENTRIES: usize = 1 << 18;

    pub(super) fn insert(&mut self, key: RecordKey, packet: u64, hop: HopTruth) {
        if self.entries.insert(key, (packet, hop)).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > Self::MAX_ENTRIES
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }

    /// Returns the packet number and the measurement of the record that a packet of `flow` carries.
    fn get(&self, flow: u32, carrying: Carrying) -> Option<(u64, HopTruth)> {
        self.entries
            .get(&(flow, carrying.sf.packet_id, carrying.node))
            .copied()
    }
}

/// Returns the records of one packet in an SF-INT report: the carried one, and the reporter's if it belongs to the same packet.
fn reported_by_sf(sf: &SfTruth, kind: ReportKind) -> Vec<HopTruth> {
    if kind == ReportKind::Drop && !sf.sf.is_of_one_packet() {
        return vec![sf.reporter];
    }
    let mut hops: Vec<HopTruth> = sf.carried.iter().map(|(_, hop)| *hop).collect();
    if sf.sf.is_of_one_packet() && hops.last().is_none_or(|hop| hop.node != sf.reporter.node) {
        hops.push(sf.reporter);
    }
    hops
}

/// Returns the hops of a packet that a report has.
fn reported(hops: &[HopTruth], kind: ReportKind, with_stack: bool) -> Vec<HopTruth> {
    let Some((reporter, before)) = hops.split_last() else {
        return Vec::new();
    };
    let mut reported: Vec<HopTruth> = match kind {
        ReportKind::Flow | ReportKind::Drop if with_stack => {
            before.iter().filter(|hop| hop.recorded).copied().collect()
        }
        _ => Vec::new(),
    };
    reported.push(*reporter);
    reported
}
