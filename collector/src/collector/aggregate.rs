//! Processes the aggregates of an aggregator (wire-formats 4.3): postcards as if each had arrived alone; summaries are merged.
//!
//! **Agg** postcards are treated like single postcards: same state, same joins. They identify their flow by Flow ID; see
//! [`crate::postcards`] for when the ID is resolved to a known flow.
//!
//! **Cor** summaries are merged exactly (count, minimum, maximum, sum) into the series of the node or queue:
//!
//! - Rollups of seconds and minutes with a summary have no quantiles, because summaries have none.
//! - A summary names no queue, so its occupancies are stored under the node alone.
//! - The minimum or the maximum, whichever is further from the last reported value, is compared with the threshold and
//!   reported. The first event of a key reports the maximum. The latest value of a series is then the average.
//! - A summary of one node and one flow is also compared with the last reported latency of that hop of the flow.
//! - A summary whose maximum latency is implausible is not merged, and counts as one implausible latency. Summaries have no
//!   ingress timestamps, so a latency below the limit that lacks one goes undetected.

use detect::Metric;
use wire::FlowKey;
use wire::aggregate::{Aggregate, Header, PacketFields, Postcard as WirePostcard, Summary, SummaryMetric};

use super::{Collector, Inner};
use crate::config::Units;
use crate::decode::{
    ABSENT, Datagram, DatagramContext, EndTimestamps, EventContext, Head, NO_VALUE, Origin, ReadHops,
    Reading, between, is_plausible, join_interfaces, mark_implausible, present,
};
use crate::event::Output;
use crate::state::pending::Postcard;
use crate::state::series::{ALL_QUEUES, Cause, Key, Merged, MergedChange};
use crate::stats::Unjoinable;
use crate::stream::StreamId;

/// Version number in the stream key of an aggregator's sequence numbers.
pub const VERSION: u8 = 1;

/// Number of postcards that are looked up together.
const AHEAD: usize = 32;

/// A postcard of an aggregate, with its flow.
#[derive(Clone, Copy)]
struct ResolvedPostcard {
    postcard: WirePostcard,
    packet: PacketFields,
    key: FlowKey,
    hash: u64,
    slot: u32,
}

impl Collector {
    /// Handles a burst of datagrams with aggregates, as [`Collector::handle`] handles reports. Only the port distinguishes the
    /// two, not the bytes.
    pub fn handle_aggregates(&mut self, burst: &[Datagram<'_>], out: &mut dyn Output) {
        let inner = &mut self.inner;
        let readers = &mut self.readers;
        inner.stats.datagrams += burst.len() as u64;
        for datagram in burst {
            let mut received = datagram.received;
            if inner.leaves_second(received) {
                received = inner.advance(received, out);
            }
            let (envelope, _) = inner.open(datagram, received, readers);
            let checked = inner.access.check(envelope.listener, envelope.source, || {
                Header::parse(datagram.payload).map(|header| Some(header.aggregator))
            });
            if !inner.count_admission(&envelope, checked) {
                continue;
            }
            inner.aggregate(&{ envelope }, datagram.payload, out);
        }
    }

    /// Accounts for the sequence number of an aggregate of which only the beginning was received, as
    /// [`Collector::observe_refused`] does for reports.
    pub fn observe_refused_aggregate(&mut self, datagram: &Datagram<'_>, out: &mut dyn Output) {
        let Self { readers, inner } = self;
        let (envelope, _) = inner.open(datagram, datagram.received, readers);
        inner.sources.uncount(envelope.sender);
        let header = Header::parse_beginning(datagram.payload);
        let node = || header.map(|header| Some(header.aggregator));
        if inner
            .access
            .check(envelope.listener, envelope.source, node)
            .is_ok()
            && let Ok(header) = header
        {
            inner.losses.observe_refused(
                &aggregate_stream(&envelope, &header),
                header.sequence,
                envelope.received,
                out,
            );
        }
    }
}

/// Returns the stream of an aggregator's sequence numbers.
fn aggregate_stream(envelope: &DatagramContext<'_>, header: &Header) -> StreamId {
    StreamId {
        version: VERSION,
        hw_id: 0,
        listener: envelope.listener,
        node: Some(header.aggregator),
        source: *envelope.source,
    }
}

impl Inner {
    fn aggregate(&mut self, envelope: &DatagramContext<'_>, payload: &[u8], out: &mut dyn Output) {
        let aggregate = match Aggregate::parse(payload) {
            Ok(aggregate) => aggregate,
            Err(refusal) => {
                self.stats.refused[refusal.index()] += 1;
                self.stats.refused_datagrams[refusal.index()] += 1;
                self.sources.refuse(envelope.sender, refusal);
                // Its sequence number counts as received even if the rest is refused.
                if let Ok(header) = Header::parse(payload) {
                    self.count_aggregate(envelope, &header, out);
                }
                return;
            }
        };
        let header = aggregate.header();
        self.count_aggregate(envelope, header, out);
        self.stats.accepted += 1;
        self.stats.aggregates += 1;
        let origin = Origin {
            reporter: u64::from(header.aggregator),
            seq: header.sequence,
            stamp: 0,
            index: 0,
            hw_id: 0,
            version: VERSION,
            sender: envelope.sender.tag,
        };
        let about = EventContext {
            ts: envelope.received,
            origin,
            key: FlowKey::default(),
            has_flow: true,
            profile: envelope.sender.profile,
        };
        let mut head = Head {
            about,
            whole_path: true,
            ..Head::none()
        };
        if header.kind.is_correlated() {
            for summary in aggregate.summaries() {
                self.summary(envelope, header, &mut head, &summary, out);
                head.about.origin.index = head.about.origin.index.wrapping_add(1);
            }
        } else {
            self.unfold(envelope, &mut head, &aggregate, out);
        }
    }

    fn count_aggregate(&mut self, envelope: &DatagramContext<'_>, header: &Header, out: &mut dyn Output) {
        self.losses.observe(
            &aggregate_stream(envelope, header),
            header.sequence,
            envelope.received,
            out,
        );
    }

    /// Processes the postcards of an aggregate, several at a time, so that their memory accesses overlap.
    fn unfold(
        &mut self,
        envelope: &DatagramContext<'_>,
        head: &mut Head,
        aggregate: &Aggregate<'_>,
        out: &mut dyn Output,
    ) {
        let joins = envelope.units.synchronised || self.postcards.is_linked();
        let nothing = ResolvedPostcard {
            postcard: WirePostcard::EMPTY,
            packet: PacketFields::default(),
            key: FlowKey::default(),
            hash: 0,
            slot: 0,
        };
        let mut resolved = [nothing; AHEAD];
        let mut postcards = aggregate.postcards_with_packets();
        loop {
            let mut count = 0;
            for (one, (postcard, packet)) in resolved.iter_mut().zip(postcards.by_ref().take(AHEAD)) {
                (one.postcard, one.packet) = (postcard, packet.unwrap_or_default());
                one.key = self.state.flow_of_id(postcard.flow_id);
                one.hash = one.key.hash(self.seed);
                self.state.flows.prefetch_bucket(one.hash);
                count += 1;
            }
            let resolved = &mut resolved[..count];
            resolved
                .iter_mut()
                .for_each(|one| one.slot = self.state.flows.prefetch_entry(one.hash));
            resolved
                .iter()
                .for_each(|one| self.state.flows.prefetch_hops(one.slot));
            for one in &*resolved {
                self.unfold_one(envelope, head, one, joins, out);
                head.about.origin.index = head.about.origin.index.wrapping_add(1);
            }
            if count < AHEAD {
                break;
            }
        }
    }

    #[inline]
    fn unfold_one(
        &mut self,
        envelope: &DatagramContext<'_>,
        head: &mut Head,
        resolved: &ResolvedPostcard,
        joins: bool,
        out: &mut dyn Output,
    ) {
        self.stats.aggregate_postcards += 1;
        let postcard = &resolved.postcard;
        let packet = &resolved.packet;
        let units = self.node_units.of(postcard.node, *envelope.units);
        (head.about.key, head.hash) = (resolved.key, resolved.hash);
        head.about.has_flow = postcard.flow_id().is_some();
        let ingress = present(postcard.ingress_ts).map_or(NO_VALUE, u64::from);
        let egress = present(postcard.egress_ts).map_or(NO_VALUE, u64::from);
        let reading = Reading {
            node: postcard.node,
            link: join_interfaces(packet.ingress_if, packet.egress_if),
            latency: between(ingress, egress, false, units),
            queue: postcard
                .queue()
                .map_or(ABSENT, |(queue, length)| u32::from(queue) << 24 | length),
            ..Reading::NOTHING
        };
        if !head.about.has_flow || postcard.node().is_none() {
            self.apply_unnamed(head, &reading, out);
            return;
        }
        let slot = self.state.apply_postcard(head, resolved.slot, &reading, out);
        if !joins && packet.hop_limit.is_none() {
            self.state.postcards.stats.received += 1;
            self.state.postcards.refuse(Unjoinable::NoOrder);
            return;
        }
        let postcard = Postcard {
            reading,
            units,
            hop_limit: packet.hop_limit,
            signature: packet.digest.into(),
            shared: false,
            entered: packet.entered,
            left: packet.left,
            ingress,
            egress,
            wide: false,
            profile: head.about.profile,
            received: envelope.received,
            origin: head.about.origin,
            aggregated: true,
        };
        self.postcards.add_pending(slot, &postcard, &mut self.state, out);
    }

    /// Applies a postcard that names no flow or no node, as such a report is applied.
    #[cold]
    #[inline(never)]
    fn apply_unnamed(&mut self, head: &Head, reading: &Reading, out: &mut dyn Output) {
        let readings = std::slice::from_ref(reading);
        let hops = ReadHops::new(readings, EndTimestamps::NONE, Units::NONE);
        if head.about.has_flow {
            self.state.apply_incomplete(head, hops, out);
        } else {
            self.state.counts.node_reports += 1;
            self.state.apply_nodes(head, hops, out);
        }
    }

    fn summary(
        &mut self,
        envelope: &DatagramContext<'_>,
        header: &Header,
        head: &mut Head,
        summary: &Summary,
        out: &mut dyn Output,
    ) {
        self.stats.summaries += 1;
        let node = header.node_scope.unwrap_or(ABSENT);
        let merged = Merged {
            count: u64::from(summary.count),
            min: u64::from(summary.min),
            max: u64::from(summary.max),
            sum: summary.sum,
        };
        // One implausible latency makes the sum unusable, and it cannot be separated from the others.
        let units = self.node_units.of(node, *envelope.units);
        let longest = match summary.metric {
            SummaryMetric::HopLatency => mark_implausible(merged.max, NO_VALUE, NO_VALUE, units),
            _ => 0,
        };
        let mut slot = None;
        match header.flow_scope {
            Some(id) => {
                head.about.key = self.state.flow_of_id(id);
                head.hash = head.about.key.hash(self.seed);
                let latency = summary.metric == SummaryMetric::HopLatency && is_plausible(longest);
                let latency = latency.then_some(&merged);
                slot = self.state.apply_summary(head, node, latency, out);
            }
            None => {
                head.about.has_flow = false;
                self.state.counts.node_reports += 1;
            }
        }
        if !is_plausible(longest) {
            let readings = &[Reading {
                node,
                latency: longest,
                ..Reading::NOTHING
            }];
            self.state
                .apply_nodes(head, ReadHops::new(readings, EndTimestamps::NONE, units), out);
            return;
        }
        let (metric, part) = match summary.metric {
            SummaryMetric::HopLatency => (Metric::HopLatency, 0),
            SummaryMetric::QueueLength => (Metric::QueueOccupancy, ALL_QUEUES),
            SummaryMetric::Other(_) => return,
        };
        let set = slot.map_or(0, |slot| self.state.flows.parts(slot).flow.threshold_set);
        let about = &EventContext {
            has_flow: false,
            ..head.about
        };
        let mut emitter = self.state.detection.emitter(about, set, out);
        let (series, _) = self.state.metrics.series_mut(metric);
        let key = Key { node, part };
        // The latency of a flow's hop is reported with the flow.
        let emits = series.metric() != Metric::HopLatency || header.flow_scope.is_none();
        let threshold = emitter.threshold(series.metric());
        let cause = Cause {
            profile: head.about.profile,
            origin: head.about.identity(),
        };
        if let Some(MergedChange { value, previous }) = series.merge(key, cause, &merged, threshold)
            && emits
        {
            let mut event = emitter.change(series.metric(), value, previous);
            event.set_location(key.location(series.metric()));
            emitter.emit(event, &[]);
        }
    }
}
