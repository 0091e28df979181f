//! The collector: turns report datagrams into events and rollups. It drives the stages decode, loss accounting, state and
//! joins, each of which owns its state.

mod aggregate;
mod burst;
mod loss;
mod report;
mod sf;
pub mod suppressed;
mod time;
mod views;

use std::sync::Arc;

use detect::Detection;
use wire::Decoder;

use crate::access::Access;
use crate::config::{Config, Units};
use crate::decode::{
    Datagram, DatagramContext, LatestPlan, MAX_HOPS, NodeUnits, Plans, Reading, StreamSeq, is_whole_path,
};
use crate::event::{Nanos, Output};
use crate::join::SfInt;
use crate::postcards::Postcards;
use crate::sequence::{Losses, StreamView};
use crate::sources::{SourceView, Sources};
use crate::state::State;
use crate::stats::{Stats, Tables};

use burst::{AHEAD, Burst};
use loss::LossAccounting;
use time::Sweep;

pub use aggregate::VERSION as AGGREGATE_VERSION;
pub use views::NetworkEntry;

/// Prefetch distance of payloads, in datagrams ahead of the one being decoded.
const NEAR: usize = 4;

/// The collector of one worker: reports in, events and rollups out. Single owner, no locks; see [`Collector::handle`] and
/// [`Collector::tick`].
///
/// ```
/// use testkit::workload::collector::{CASES, Input};
/// use collector::{Batch, Kind};
///
/// // A thousand flows over six hops each, all values constant, in bursts of 64 reports.
/// let mut collector = CASES[0].collector();
/// let (mut feed, mut batch) = (CASES[0].feed(), Batch::with_capacity(1 << 16));
/// let mut reports = 0;
/// while reports < 1000 {
///     reports += feed.burst(Input::Frames, &mut collector, &mut batch);
/// }
/// // The table has no spare room for them, so a flow may find its bucket full.
/// assert!(collector.flows().count() >= 990);
/// assert!(batch.events().all(|(event, _)| event.kind == Kind::New));
///
/// // The same reports again contain no change.
/// batch.clear();
/// feed.burst(Input::Frames, &mut collector, &mut batch);
/// assert_eq!(batch.events().len(), 0);
/// ```
#[derive(Debug)]
pub struct Collector {
    /// One decoder per profile, in the order of [`DistinctProfiles`](crate::DistinctProfiles).
    readers: Vec<(Decoder, Units)>,
    inner: Inner,
}

/// The collector without its readers, which are borrowed during decoding.
#[derive(Debug)]
struct Inner {
    state: State,
    postcards: Postcards,
    sf: SfInt,
    losses: LossAccounting,
    sources: Sources,
    access: Arc<Access>,
    /// True if `access` may refuse a sender.
    restricted: bool,
    sweep: Sweep,
    seed: u64,
    stats: Stats,
    readings: Vec<Reading>,
    plans: Plans,
    latest_plan: LatestPlan,
    node_units: NodeUnits,
}

impl Collector {
    /// Reserves the memory for the table sizes in `config`.
    ///
    /// # Panics
    /// If `config` has more than [`DistinctProfiles::MAX`] different profiles: no source is read with another one's.
    ///
    /// [`DistinctProfiles::MAX`]: crate::DistinctProfiles::MAX
    pub fn new(config: Config) -> Self {
        let seed = config.seed;
        let profiles = config.distinct_profiles().expect("at most 256 profiles");
        let node_units = NodeUnits::new(&profiles);
        let inner = Inner {
            state: State::new(&config, node_units.clone()),
            postcards: Postcards::new(config.postcards.clone()),
            sf: SfInt::new(config.sf, node_units.clone(), seed),
            losses: LossAccounting::new(&config),
            sources: Sources::new(config.max_sources, seed, profiles.sources()),
            restricted: !config.access.is_open(),
            access: Arc::clone(&config.access),
            sweep: Sweep::new(&config),
            seed,
            stats: Stats::default(),
            readings: Vec::with_capacity(MAX_HOPS),
            plans: Plans::new(),
            latest_plan: LatestPlan::new(),
            node_units,
        };
        Self {
            readers: profiles
                .iter()
                .map(|profile| (Decoder::new(profile.wire), Units::from(profile)))
                .collect(),
            inner,
        }
    }

    /// Handles a burst of datagrams. Their receive times advance the collector's time; results go to `out`.
    ///
    /// A burst is decoded before it is applied, so that the memory of one report is prefetched while others are decoded.
    pub fn handle(&mut self, burst: &[Datagram<'_>], out: &mut dyn Output) {
        let mut pending = Burst::new();
        self.inner.stats.datagrams += burst.len() as u64;
        let mut later = burst.get(NEAR..).unwrap_or_default().iter();
        let mut left = burst.iter();
        while let Some(datagram) = left.next() {
            if let Some(later) = later.next() {
                // The cache lines of a datagram that the decoder reads. Explicit offsets are faster than `step_by`.
                for line in [0, 64, 128, 192] {
                    later.payload.get(line).map(memory::prefetch);
                }
            }
            let mut received = datagram.received;
            if self.inner.leaves_second(received) {
                self.inner.flush(&mut pending, out);
                received = self.inner.advance(received, out);
            }
            let (envelope, reader) = self.inner.open(datagram, received, &mut self.readers);
            if self.inner.restricted && !self.inner.admits(&{ envelope }, datagram.payload, reader) {
                continue;
            }
            if let Some(brief) = reader.brief(datagram.payload)
                && is_whole_path(brief.flags)
                && !brief.records.is_empty()
                && self.inner.brief(&envelope, &brief, reader, &mut pending, out)
            {
                if pending.count == AHEAD {
                    self.inner.apply_half(&mut pending, out);
                }
            } else if !self
                .inner
                .brief_any(&{ envelope }, datagram.payload, reader, &mut pending, out)
            {
                // Apply the pending reports first, to keep the order of arrival.
                self.inner.flush(&mut pending, out);
                // Pass copies, so that the compiler keeps the originals in registers on the common path.
                self.inner.datagram(&{ envelope }, datagram.payload, reader, out);
                let handled = self.inner.handle_run(left.as_slice(), &mut self.readers, out);
                if handled > 0 {
                    left = left.as_slice().get(handled..).unwrap_or_default().iter();
                    later = left.as_slice().get(NEAR - 1..).unwrap_or_default().iter();
                }
            }
        }
        self.inner.flush(&mut pending, out);
    }

    /// Handles the later reports of datagrams whose first reports (and sequence numbers) another collector handles. `first` is
    /// the number of the first report here within its datagram.
    pub fn handle_later_reports(&mut self, burst: &[Datagram<'_>], first: u16, out: &mut dyn Output) {
        let Self { readers, inner } = self;
        for datagram in burst {
            let mut received = datagram.received;
            if inner.leaves_second(received) {
                received = inner.advance(received, out);
            }
            let (envelope, reader) = inner.open(datagram, received, readers);
            inner.later_reports(&{ envelope }, datagram.payload, reader, first, out);
        }
    }

    /// Accounts for the sequence number of a datagram of which only the beginning was received, such as the first fragment. The
    /// caller has counted it as refused. Its number counts if its stream exists and expects it, so that it is not lost as well.
    pub fn observe_refused(&mut self, datagram: &Datagram<'_>, out: &mut dyn Output) {
        let Self { readers, inner } = self;
        let (envelope, reader) = inner.open(datagram, datagram.received, readers);
        inner.sources.uncount(envelope.sender);
        let peeked = wire::peek_header(datagram.payload, reader.profile());
        let node = || {
            peeked
                .as_ref()
                .map(|peek| peek.node_id)
                .map_err(|refusal| *refusal)
        };
        if inner
            .access
            .check(envelope.listener, envelope.source, node)
            .is_ok()
            && let Ok(peek) = &peeked
        {
            let seq = StreamSeq::from(peek);
            inner
                .losses
                .observe_refused(&seq.stream(&envelope), seq.seq, envelope.received, out);
        }
    }

    /// Advances time and does a bounded part of the due work. Call it every 10 to 100 ms.
    pub fn tick(&mut self, now: Nanos, out: &mut dyn Output) {
        self.inner.tick(now, out);
    }

    /// Returns the current time in ns: the latest of datagrams and ticks, 0 before the first.
    pub fn time(&self) -> Nanos {
        self.inner.sweep.time()
    }

    /// Ends the input: reports everything still pending, and the latest state of each flow.
    pub fn finish(&mut self, now: Nanos, out: &mut dyn Output) {
        self.inner.finish(now, out);
    }

    /// Activates other thresholds and rules, from the next report on. Reported values are not reported again. Rules are
    /// evaluated anew, and the true ones are reported. History that both rule sets use is preserved.
    pub fn set_detection(&mut self, detection: Arc<Detection>) {
        self.inner.state.set_detection(detection);
    }

    /// Returns the active thresholds and rules.
    pub fn detection(&self) -> &Arc<Detection> {
        self.inner.state.detection.active()
    }

    /// Returns the collector's counters since its start.
    pub fn stats(&self) -> Stats {
        let counts = &self.inner.state.counts;
        let state = &self.inner.state;
        Stats {
            flow_reports: counts.flow_reports,
            node_reports: counts.node_reports,
            unadmitted: counts.unadmitted,
            expired: counts.expired,
            implausible_latencies: state.metrics.implausible,
            truncated_paths: state.flows.hops_table().refused,
            truncated_flows: state.flows.truncated(),
            postcards: state.postcards.stats,
            events: state.detection.counts,
            sf: self.inner.sf.stats(),
            ..self.inner.stats
        }
    }

    /// Returns the usage of each table, with evictions and refusals.
    pub fn tables(&self) -> Tables {
        let state = &self.inner.state;
        let [sf_flows, sf_sets] = self.inner.sf.tables();
        let [path_nodes, path_links, paths] = state.topology.tables();
        Tables {
            path_nodes,
            path_links,
            paths,
            sf_flows,
            sf_sets,
            flows: state.flows.table(),
            hops: state.flows.hops_table(),
            nodes: state.metrics.nodes.table(),
            queues: state.metrics.queues.table(),
            congestion: state.metrics.congestion.table(),
            links: state.metrics.links.table(),
            sketches: state.metrics.sketches.table(),
            sources: self.inner.sources.table(),
            streams: self.inner.losses.table(),
        }
    }

    /// Returns the bytes used by the tables of flows (with rule history), nodes, queues and links.
    pub fn bytes(&self) -> usize {
        self.inner.state.bytes()
    }

    /// Returns the totals per stream with sequence numbers; none if loss accounting is disabled.
    pub fn streams(&self) -> impl Iterator<Item = StreamView> {
        self.inner.losses.streams()
    }

    /// Returns the losses of streams that have since been evicted.
    pub fn evicted_losses(&self) -> Losses {
        self.inner.losses.evicted_losses()
    }

    /// Returns datagrams and refusals by source address.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = SourceView> {
        self.inner.sources.views()
    }
}

impl Inner {
    /// Returns the context of a datagram received at `received`, and the decoder for its source's profile.
    #[inline]
    pub(crate) fn open<'e>(
        &mut self,
        datagram: &'e Datagram<'_>,
        received: Nanos,
        readers: &'e mut [(Decoder, Units)],
    ) -> (DatagramContext<'e>, &'e mut Decoder) {
        let sender = self.sources.enter(&datagram.source, received);
        let at = usize::from(sender.profile) % readers.len();
        let (decoder, units) = &mut readers[at];
        let envelope = DatagramContext {
            source: &datagram.source,
            sender,
            listener: datagram.listener,
            received,
            units,
        };
        (envelope, decoder)
    }

    /// Checks whether a report's sender may report. Counts the datagram as refused if not.
    #[cold]
    #[inline(never)]
    pub(crate) fn admits(
        &mut self,
        envelope: &DatagramContext<'_>,
        payload: &[u8],
        reader: &Decoder,
    ) -> bool {
        let checked = self.access.check(envelope.listener, envelope.source, || {
            wire::peek(payload, reader.profile()).map(|peek| peek.node_id)
        });
        self.count_admission(envelope, checked)
    }

    /// Returns whether the check passed; if not, counts the datagram as refused.
    pub(crate) fn count_admission(
        &mut self,
        envelope: &DatagramContext<'_>,
        checked: Result<(), wire::Refusal>,
    ) -> bool {
        let Err(refusal) = checked else { return true };
        self.stats.refused[refusal.index()] += 1;
        self.stats.refused_datagrams[refusal.index()] += 1;
        self.sources.refuse(envelope.sender, refusal);
        false
    }
}
