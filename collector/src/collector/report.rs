//! The slow path: datagrams other than the common report, read by the full decoder, report by report.

use wire::int::Mode;
use wire::report::{Gap, PacketDigest};
use wire::{Annotations, Decoder, Items, Report};

use super::Inner;
use crate::config::Units;
use crate::decode::{
    ABSENT, DatagramContext, EndTimestamps, EventContext, Head, MAX_HOPS, NO_VALUE, Origin, ReadHops,
    Reading, Signals, StackReport, StreamSeq, is_stacked, is_whole_path, narrow, version,
};
use crate::event::{Basis, Drop, Event, Kind, Output};
use crate::hash::fold_octets;
use crate::index::NO_SLOT;
use crate::state::pending::Postcard;

/// Leading bytes of a dropped packet that its event id covers. Packets other than IP have no [`PacketDigest`].
const IDENTIFYING: usize = 128;

impl Inner {
    /// Processes a datagram of any format, without the fast paths.
    #[inline(never)]
    pub(super) fn datagram(
        &mut self,
        envelope: &DatagramContext<'_>,
        payload: &[u8],
        reader: &mut Decoder,
        out: &mut dyn Output,
    ) {
        let mut counts_number = false;
        let mut first_refusal = None;
        let mut report = Report::EMPTY;
        let mut good = 0_u64;
        let mut reports = reader.reports(payload);
        while let Some(read) = reports.read(&mut report) {
            match read {
                Ok(()) => {
                    if good == 0 {
                        self.count_sequence(envelope, &StreamSeq::from(&report), out);
                    }
                    good += 1;
                    self.report(envelope, &report, out);
                }
                Err(refusal) => {
                    self.refuse_report(envelope, refusal);
                    first_refusal = first_refusal.or(Some(refusal));
                    counts_number |= refusal.counts_number();
                }
            }
        }
        self.stats.reports += good;
        match first_refusal {
            Some(refusal) if good == 0 => {
                self.stats.refused_datagrams[refusal.index()] += 1;
                if let Ok(peek) = wire::peek_header(payload, reader.profile()) {
                    let seq = StreamSeq::from(&peek);
                    if counts_number {
                        self.count_sequence(envelope, &seq, out);
                    } else {
                        self.losses
                            .observe_refused(&seq.stream(envelope), seq.seq, envelope.received, out);
                    }
                }
            }
            _ => self.stats.accepted += 1,
        }
    }

    /// Processes the later reports of a datagram that another collector counts, together with its sequence number. `first` is
    /// the number of the first one.
    pub(super) fn later_reports(
        &mut self,
        envelope: &DatagramContext<'_>,
        payload: &[u8],
        reader: &mut Decoder,
        first: u16,
        out: &mut dyn Output,
    ) {
        self.sources.uncount(envelope.sender);
        // Checks the header only, so that these reports pass if the first ones did. If not, the other collector counts the
        // refusal.
        let checked = self.access.check(envelope.listener, envelope.source, || {
            wire::peek_header(payload, reader.profile()).map(|peek| peek.node_id)
        });
        if checked.is_err() {
            return;
        }
        let mut report = Report::EMPTY;
        let mut reports = reader.reports(payload).numbered_from(first);
        while let Some(read) = reports.read(&mut report) {
            match read {
                Ok(()) => {
                    self.stats.reports += 1;
                    self.report(envelope, &report, out);
                }
                Err(refusal) => self.refuse_report(envelope, refusal),
            }
        }
    }

    fn refuse_report(&mut self, envelope: &DatagramContext<'_>, refusal: wire::Refusal) {
        self.stats.refused[refusal.index()] += 1;
        self.sources.refuse(envelope.sender, refusal);
    }

    #[inline(always)]
    fn count_sequence(&mut self, envelope: &DatagramContext<'_>, seq: &StreamSeq, out: &mut dyn Output) {
        self.losses
            .observe(&seq.stream(envelope), seq.seq, envelope.received, out);
    }

    fn head(&self, envelope: &DatagramContext<'_>, report: &Report<'_>) -> Head {
        let key = report.flow.unwrap_or_default();
        // Without the packet's path, the reporter's own record is a postcard of one node.
        let is_left_out = report.is_path_left_out() && !report.has_metadata();
        let whole_path = is_whole_path(report.flags) && !is_left_out;
        let origin = Origin {
            reporter: match report.node_id {
                Some(node) => u64::from(node),
                None => fold_octets(envelope.source, 0),
            },
            seq: report.seq,
            stamp: report.ts.unwrap_or(0),
            index: report.index,
            hw_id: report.hw_id,
            version: version(report.version),
            sender: envelope.sender.tag,
        };
        Head {
            about: EventContext {
                ts: envelope.received,
                origin,
                key,
                has_flow: report.flow.is_some(),
                profile: envelope.sender.profile,
            },
            hash: key.hash(self.seed),
            whole_path,
            signals: match report.int {
                Some(int) if !report.is_traced() => int.flags.into(),
                // A trace without space for a node is treated like an exceeded hop count.
                _ if report.annotations.contains(Annotations::INCOMPLETE) && report.is_traced() => {
                    Signals::HOP_LIMIT
                }
                _ => Signals::default(),
            }
            .or_incomplete(!whole_path || report.flags.contains(wire::Flags::QUEUE)),
            basis: Basis::Measured,
            remaining: remaining(report),
            is_intermediate: report.flags.contains(wire::Flags::INTERMEDIATE)
                && !report.flags.contains(wire::Flags::DROP)
                && report.hop_count() > 0
                && remaining(report) != Head::UNKNOWN,
            // A set of SF-INT has records of several packets.
            expires: !report.is_single_record() && report.hop_limit.is_some_and(Head::is_last_hop),
        }
    }

    /// Processes a report in any layout.
    fn report(&mut self, envelope: &DatagramContext<'_>, report: &Report<'_>, out: &mut dyn Output) {
        let mut head = self.head(envelope, report);
        if let Some(refusal) = report.int_refused {
            self.stats.int_refused[refusal.index()] += 1;
        }
        if let Some(refusal) = report.tunnel_refused {
            self.stats.tunnel_refused[refusal.index()] += 1;
        }
        if let (None, Some(id)) = (report.flow, report.flow_id) {
            head.about.key = self.state.flow_of_id(id);
            (head.about.has_flow, head.hash) = (true, head.about.key.hash(self.seed));
        }
        if let Some(gap) = &report.gap {
            self.emit_packet_loss(&head, gap, report.node_id, out);
        } else if report.flags.contains(wire::Flags::DROP) {
            self.emit_drop(&head, report, out);
        }
        if report.is_single_record() && self.sf.apply(envelope, &head, report, &mut self.state, out) {
            return;
        }
        let is_replica = report.annotations.contains(Annotations::REPLICA);
        if let Some(int) = &report.int
            && report.metadata.is_none()
            && !is_replica
            && report.flow.is_some()
            && head.whole_path
            && is_stacked(&int.stack)
            && self.node_units.is_empty()
            && int.stack.layout.carried().contains(Items::NODE_ID)
        {
            self.state.counts.flow_reports += 1;
            let report = StackReport {
                head,
                records: int.stack.bytes,
                plan: 0,
                slot: NO_SLOT,
            };
            let plan = self.latest_plan.get(&int.stack.layout, *envelope.units);
            self.state.apply_stacks(&[report], plan, out);
            return;
        }
        let (mut readings, ends, units) = self.read(report, *envelope.units);
        let hops = ReadHops::new(&readings, ends, units);
        // A sink that is also the source adds no record to the packet: the sink's own record is the whole path.
        let is_path = report.int.is_some_and(|int| int.mode == Mode::Md) && !head.signals.exceeded();
        let postcard = report.has_metadata()
            && readings.len() == 1
            && (!is_path || report.is_postcard())
            && !report.annotations.contains(Annotations::MERGED);
        let incomplete = report.annotations.contains(Annotations::INCOMPLETE) && report.is_traced();
        let nameless = readings.iter().all(|reading| reading.node == ABSENT);
        if !head.about.has_flow || is_replica {
            // A replica takes another way than its flow.
            self.state.counts.node_reports += 1;
            self.state.apply_nodes(&head, hops, out);
        } else if !head.whole_path || readings.is_empty() {
            self.state.apply_partial(&head, hops, out);
        } else if incomplete || nameless {
            self.state.apply_incomplete(&head, hops, out);
        } else if let (true, [reading]) = (postcard, &readings[..]) {
            self.postcard(envelope, &head, report, reading, ends, out);
        } else {
            self.state.counts.flow_reports += 1;
            self.state.apply(&head, NO_SLOT, hops, out);
        }
        readings.clear();
        self.readings = readings;
    }

    /// Processes the postcard of one node, which is then joined with the others of its packet.
    fn postcard(
        &mut self,
        envelope: &DatagramContext<'_>,
        head: &Head,
        report: &Report<'_>,
        reading: &Reading,
        ends: EndTimestamps,
        out: &mut dyn Output,
    ) {
        let slot = self.state.apply_postcard(head, NO_SLOT, reading, out);
        let PacketDigest { hop_limit, digest } = PacketDigest::of(report);
        let (entered, left) = report.edges();
        let postcard = Postcard {
            reading: *reading,
            units: self.node_units.of(reading.node, *envelope.units),
            hop_limit,
            signature: digest.into(),
            shared: false,
            entered,
            left,
            ingress: ends.ingress,
            egress: ends.egress,
            wide: ends.wide,
            profile: head.about.profile,
            received: envelope.received,
            origin: head.about.origin,
            aggregated: false,
        };
        self.postcards.add_pending(slot, &postcard, &mut self.state, out);
    }

    /// Decodes the hops of a report into reused memory. Returns (readings, timestamps at both ends, units).
    fn read(&mut self, report: &Report<'_>, units: Units) -> (Vec<Reading>, EndTimestamps, Units) {
        let mut readings = std::mem::take(&mut self.readings);
        let mut ends = EndTimestamps::NONE;
        let mut widths = (false, false);
        let mut first = units;
        let mut last = units;
        for (at, mut hop) in report.hops().take(MAX_HOPS).enumerate() {
            if report.has_derived_latency() && at + 1 == report.hop_count() {
                // The decoder derived this latency from timestamps, in their unit; derive it again with checks.
                hop.hop_latency = None;
            }
            if at == 0 {
                (ends.ingress, widths.0) = (hop.ingress_ts.unwrap_or(NO_VALUE), hop.wide_ts);
            }
            (ends.egress, widths.1) = (hop.egress_ts.unwrap_or(NO_VALUE), hop.wide_ts);
            let own = self.node_units.of(hop.node_id.unwrap_or(ABSENT), units);
            if at == 0 {
                first = own;
            }
            last = own;
            readings.push(Reading::of(&hop, own));
        }
        if widths.0 != widths.1 {
            // One timestamp has 32 bits and the other 64: compare both modulo 2^32.
            ends.ingress = narrow(ends.ingress);
            ends.egress = narrow(ends.egress);
        }
        ends.wide = widths.0 && widths.1;
        if !first.same_as(&last) {
            // The timestamps have different units, or their clocks cannot be compared.
            return (
                readings,
                EndTimestamps::NONE,
                Units {
                    synchronised: false,
                    ..first
                },
            );
        }
        (readings, ends, first)
    }

    /// Reports packets that a sink found missing. They were lost somewhere between source and sink: no node is known to have
    /// dropped them, even if the report has the D flag.
    #[cold]
    #[inline(never)]
    fn emit_packet_loss(&mut self, head: &Head, gap: &Gap, sink: Option<u32>, out: &mut dyn Output) {
        let mut event = Event::blank(head.about.ts, Kind::PacketLoss);
        event.flow = head.about.flow();
        event.node = sink;
        event.value = Some(gap.count.into());
        let ends = [gap.source, sink.unwrap_or(ABSENT)];
        self.state
            .detection
            .emitter(&head.about, 0, out)
            .emit(event, &ends);
    }

    #[cold]
    #[inline(never)]
    fn emit_drop(&mut self, head: &Head, report: &Report<'_>, out: &mut dyn Output) {
        self.stats.drop_reports += 1;
        // Not from the top record of the packet's INT, even if that names the reporter: a host may have forged it.
        let own = report.metadata_hop();
        let mut about = head.about;
        // Sequence numbers repeat after a restart or a wrap, and a clock may be stalled, so only the packet distinguishes two
        // drops.
        let packet = &report.inner[..report.inner.len().min(IDENTIFYING)];
        about.origin.stamp ^= wire::crc::crc_32c(packet);
        if report.ts.is_none() {
            about.origin.stamp ^= own.ingress_ts.map_or(0, |ns| ns as u32);
        }
        let mut emitter = self.state.detection.emitter(&about, 0, out);
        let mut event = Event::blank(head.about.ts, Kind::Drop);
        event.flow = head.about.flow();
        event.node = report.node_id;
        event.interface = own.egress_interface();
        event.queue = own.drop_queue_id.or(own.queue_id);
        event.reason = report.drop_reason;
        let id = emitter.emit(event, &[]);
        out.drop_report(&Drop {
            ts: head.about.ts,
            id,
            flow: event.flow,
            tunnel: report.tunnel,
            node: event.node,
            ingress_if: own.ingress_if.map(u32::from).or(own.l2_ingress_if),
            egress_if: event.interface,
            queue: event.queue,
            reason: event.reason,
        });
    }
}

/// Returns the value of [`Head::remaining`] for a report. The reporter's own record is a hop, but not a record of the packet.
fn remaining(report: &Report<'_>) -> i16 {
    let Some(int) = report
        .int
        .filter(|_| !report.is_traced() && !report.is_postcard())
    else {
        return Head::UNKNOWN;
    };
    if int.mode != Mode::Md || int.sf.is_some() || int.version == wire::int::Version::V05 {
        return Head::UNKNOWN;
    }
    let own = report.hop_count().saturating_sub(int.stack.len());
    i16::from(int.remaining) - own as i16
}
