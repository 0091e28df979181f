//! The collector: datagrams in, everything else out.

use std::sync::Arc;

use detect::{Detection, Metric};
use wire::report::Brief;
use wire::{Decoder, Stack};

use crate::config::{Config, Profile, Units};
use crate::event::{Kind, Loss, Nanos, Sink};
use crate::flows::{Flags, Flows};
use crate::index::NO_SLOT;
use crate::join::{Joiner, Pairs, Samples};
use crate::postcards::Held;
use crate::postcards::directory::Directory;
use crate::reading::{Plans, Reading, WIDEST_RECORD};
use crate::reports::Number;
use crate::sequence::{Sequencer, StreamView};
use crate::series::Series;
use crate::sketch::Sketches;
use crate::sources::{Source, SourceView, Sources};
use crate::state::{Head, Levels, MOST_HOPS, State, Waiting};
use crate::stats::{Stats, Tables};
use crate::stream;
use crate::sweep::Sweep;

/// A UDP payload as it was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The payload.
    pub payload: &'a [u8],
    /// Source address, IPv4 mapped into IPv6.
    pub source: [u8; 16],
    /// Source port.
    pub src_port: u16,
    /// Which of our listeners received it: a part of a numbered stream's identity.
    pub listener: u16,
    /// When.
    pub received: Nanos,
}

/// Reports in, events and roll-ups out. One owner, no lock; see [`Collector::handle`] and [`Collector::tick`].
#[derive(Debug)]
pub struct Collector {
    /// One per profile; the first is for sources of no prefix.
    readers: Vec<(Decoder, Units)>,
    core: Core,
}

/// All of a collector but its readers, which are busy while it works.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) state: State,
    pub(crate) sweep: Sweep,
    pub(crate) sources: Sources,
    pub(crate) sequencer: Option<Sequencer>,
    pub(crate) seed: u64,
    pub(crate) stats: Stats,
    pub(crate) readings: Vec<Reading>,
    pub(crate) joiner: Joiner,
    pub(crate) samples: Samples,
    pub(crate) pairs: Pairs,
    plans: Plans,
}

/// What all reports of one datagram share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope<'e> {
    pub(crate) source: &'e [u8; 16],
    pub(crate) sender: Source,
    pub(crate) listener: u16,
    pub(crate) received: Nanos,
    pub(crate) units: &'e Units,
}

/// Reports decoded ahead of those that are taken.
const AHEAD: usize = 16;

/// Reports decoded between asking for one's bucket and asking for its entry, and from there to asking for its hops: time
/// enough for the memory to answer.
const STEP: usize = 5;

/// Datagrams ahead of the one being decoded whose bytes are asked for.
pub(crate) const NEAR: usize = 4;

impl<'a> Waiting<'a> {
    #[inline(always)]
    fn write(&mut self, brief: &Brief<'a>, received: Nanos, seed: u64) {
        let about = &mut self.head.about;
        (about.key, about.ts) = (brief.flow, received);
        about.origin.reporter = u64::from(brief.node_id);
        (about.origin.number, about.origin.stamp) = (brief.seq, brief.ts);
        about.origin.hw_id = brief.hw_id;
        self.head.hash = brief.flow.hash(seed);
        self.head.flags = signals(brief.int_flags);
        self.records = brief.records;
    }
}

/// Reports that are decoded and wait to be taken.
struct Pending<'a> {
    reports: [Waiting<'a>; AHEAD],
    count: usize,
}

impl Pending<'_> {
    fn none() -> Self {
        // What all common reports have in common.
        let mut head = Head::none();
        (head.whole_path, head.about.has_flow) = (true, true);
        head.about.origin.version = version(wire::Version::V10);
        let report = Waiting { head, records: &[], plan: 0, slot: NO_SLOT };
        Self { reports: [report; AHEAD], count: 0 }
    }

    /// Asks for the memory of the reports that were decoded one step and two steps before number `at`.
    #[inline(always)]
    fn look_ahead(&mut self, at: usize, flows: &Flows) {
        if let Some(earlier) = at.checked_sub(STEP)
            && let Some(report) = self.reports[..self.count].get_mut(earlier)
        {
            report.slot = flows.prefetch_entry(report.head.hash);
        }
        if let Some(earlier) = at.checked_sub(2 * STEP)
            && let Some(report) = self.reports[..self.count].get(earlier)
        {
            flows.prefetch_hops(report.slot);
        }
    }
}

impl Collector {
    /// Reserves everything that `config` allows for.
    pub fn new(config: Config) -> Self {
        let seed = config.seed;
        let table = |metric, tells, capacity| Series::new(metric, tells, capacity, seed);
        let levels = Levels {
            nodes: table(Metric::HopLatency, false, config.max_nodes),
            queues: table(Metric::QueueOccupancy, true, config.max_queues),
            congestion: table(Metric::QueueCongestion, true, config.max_queues),
            links: table(Metric::LinkUtilization, true, config.max_links),
            sketches: Sketches::with_capacity(config.rollup.sketches),
        };
        let flows = Flows::with_capacity(config.max_flows);
        let reader = |profile: &Profile| (Decoder::new(profile.wire), Units::from(profile));
        // Two hundred and fifty-five prefixes are more kinds of device than anyone has.
        let listed = config.profiles.iter().take(255);
        let prefixes = listed.clone().enumerate().map(|(at, (prefix, _))| (*prefix, at as u8 + 1));
        let mut core = Core {
            sources: Sources::new(config.max_sources, seed, prefixes),
            sequencer: config.sequence.then(|| Sequencer::new(config.max_sources, seed)),
            sweep: Sweep::new(&config),
            state: State::new(flows, levels, Arc::clone(&config.detection), config.rollup.minutes),
            seed,
            stats: Stats::default(),
            readings: Vec::with_capacity(MOST_HOPS),
            joiner: Joiner::new(config.sf, seed),
            samples: Samples::new(),
            pairs: Pairs::new(),
            plans: Plans::new(),
        };
        let held = Held::new(config.postcards.clone(), config.max_flows, config.sequence);
        core.state.held = Some(Box::new(held));
        core.state.directory = Directory::for_flows(config.max_flows, seed, &config.postcards.flow_ids);
        let profiles = std::iter::once(&config.default_profile).chain(listed.map(|(_, profile)| profile));
        Self { readers: profiles.map(reader).collect(), core }
    }

    /// Takes a burst of datagrams. Their receive times move the collector's time; results go to `sink`.
    ///
    /// A burst is decoded first, then taken, so that the memory which the one needs is on its way while others are
    /// decoded.
    pub fn handle(&mut self, burst: &[Datagram<'_>], sink: &mut dyn Sink) {
        let mut pending = Pending::none();
        self.core.stats.datagrams += burst.len() as u64;
        let mut later = burst.get(NEAR..).unwrap_or_default().iter();
        let mut left = burst.iter();
        while let Some(datagram) = left.next() {
            if let Some(later) = later.next() {
                // Stepped over by hand: the lines of a datagram that is decoded.
                for line in [0, 64, 128, 192] {
                    later.payload.get(line).map(memory::prefetch);
                }
            }
            if self.core.turns(datagram.received) {
                self.core.flush(&mut pending, sink);
                self.core.advance(datagram.received, sink);
            }
            let (envelope, reader) = self.core.open(datagram, &mut self.readers);
            if let Some(brief) = reader.brief(datagram.payload)
                && is_whole_path(brief.flags)
                && !brief.records.is_empty()
                && self.core.brief(&envelope, (&brief, reader), &mut pending, sink)
            {
                if pending.count == AHEAD {
                    self.core.flush(&mut pending, sink);
                }
            } else {
                // In the order of arrival.
                self.core.flush(&mut pending, sink);
                // A copy, so that the common way keeps it in registers.
                self.core.datagram(&{ envelope }, datagram.payload, reader, sink);
                let taken = self.core.take_run(left.as_slice(), &mut self.readers, sink);
                if taken > 0 {
                    left = left.as_slice().get(taken..).unwrap_or_default().iter();
                    later = left.as_slice().get(NEAR - 1..).unwrap_or_default().iter();
                }
            }
        }
        self.core.flush(&mut pending, sink);
    }

    /// Moves time on, and does what is due, a bounded part of it: call it every 10 to 100 ms.
    pub fn tick(&mut self, now: Nanos, sink: &mut dyn Sink) {
        self.core.tick(now, sink);
    }

    /// The end of the input: tells everything that is still open, the latest state of each flow included.
    pub fn finish(&mut self, now: Nanos, sink: &mut dyn Sink) {
        self.core.finish(now, sink);
    }

    /// Puts other thresholds and rules in force, from the next report on. What was told before is not told again; rules
    /// are evaluated anew, and those that are true are told. What rules remember of flows is kept where the new ones
    /// remember it too.
    pub fn set_detection(&mut self, detection: Arc<Detection>) {
        self.core.state.set_detection(detection);
    }

    /// The thresholds and rules in force.
    pub fn detection(&self) -> &Arc<Detection> {
        &self.core.state.detection
    }

    /// What was counted.
    pub fn stats(&self) -> Stats {
        let counts = &self.core.state.counts;
        Stats {
            flow_reports: counts.flow_reports,
            node_reports: counts.node_reports,
            unadmitted: counts.unadmitted,
            expired: counts.expired,
            cut_paths: self.core.state.flows.cut_paths(),
            postcards: self.core.state.held.as_ref().map_or_else(Default::default, |held| held.counts),
            events: counts.events,
            sf: self.core.joiner.stats(),
            ..self.core.stats
        }
    }

    /// How full each table is, and what it turned away.
    pub fn tables(&self) -> Tables {
        let state = &self.core.state;
        let [sf_flows, sf_sets] = self.core.joiner.tables();
        Tables {
            sf_flows,
            sf_sets,
            flows: state.flows.table(),
            nodes: state.levels.nodes.table(),
            queues: state.levels.queues.table(),
            congestion: state.levels.congestion.table(),
            links: state.levels.links.table(),
            sketches: state.levels.sketches.table(),
            sources: self.core.sources.table(),
            streams: self.core.sequencer.as_ref().map(Sequencer::table).unwrap_or_default(),
        }
    }

    /// Bytes of memory in use by the tables of flows (with what rules remember of them), nodes, queues and links.
    pub fn bytes(&self) -> usize {
        let levels = &self.core.state.levels;
        let series = [&levels.nodes, &levels.queues, &levels.congestion, &levels.links];
        let state = &self.core.state;
        state.flows.bytes() + state.memories.bytes() + series.map(Series::bytes).iter().sum::<usize>()
    }

    /// Totals per numbered stream; none where the collector does not account for losses.
    pub fn streams(&self) -> impl Iterator<Item = StreamView> {
        self.core.sequencer.iter().flat_map(Sequencer::streams)
    }

    /// Datagrams lost in numbered streams that were given up since.
    pub fn lost_before(&self) -> u64 {
        self.core.sequencer.as_ref().map_or(0, Sequencer::lost_before)
    }

    /// What came from each address, and what of it was refused.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = SourceView> {
        self.core.sources.views()
    }

    pub(crate) fn parts(&mut self) -> (&mut Core, &mut [(Decoder, Units)]) {
        (&mut self.core, &mut self.readers)
    }

    pub(crate) fn state(&self) -> &State {
        &self.core.state
    }

    pub(crate) fn state_mut(&mut self) -> &mut State {
        &mut self.core.state
    }

    pub(crate) fn sequencer_mut(&mut self) -> Option<&mut Sequencer> {
        self.core.sequencer.as_mut()
    }

    pub(crate) fn seed(&self) -> u64 {
        self.core.seed
    }
}

impl Core {
    /// Who sent a datagram, and how it is read.
    #[inline]
    pub(crate) fn open<'e>(
        &mut self,
        datagram: &'e Datagram<'_>,
        readers: &'e mut [(Decoder, Units)],
    ) -> (Envelope<'e>, &'e mut Decoder) {
        let sender = self.sources.enter(&datagram.source, datagram.received);
        let at = usize::from(sender.profile) % readers.len();
        let (decoder, units) = &mut readers[at];
        let envelope = Envelope {
            source: &datagram.source,
            sender,
            listener: datagram.listener,
            received: datagram.received,
            units,
        };
        (envelope, decoder)
    }

    /// The common report: written down, to be taken with others. `false`, and nothing done, if its records cannot be read
    /// where they lie.
    #[inline(always)]
    fn brief<'a>(
        &mut self,
        envelope: &Envelope<'_>,
        (brief, reader): (&Brief<'a>, &Decoder),
        pending: &mut Pending<'a>,
        sink: &mut dyn Sink,
    ) -> bool {
        let mut at = pending.count % AHEAD;
        pending.reports[at].write(brief, envelope.received, self.seed);
        let shape = brief.shape | u64::from(envelope.sender.profile) << 56;
        let plan = match self.plans.find(shape) {
            Some(plan) => plan,
            None => {
                // A new plan may take the place of one that is still needed.
                self.flush(pending, sink);
                pending.reports[0] = pending.reports[at];
                at = 0;
                match self.plans.make(shape, &reader.layout(brief.shape), *envelope.units) {
                    Some(plan) => plan,
                    None => return false,
                }
            }
        };
        let stream = stream::pack(version(wire::Version::V10), brief.hw_id, envelope.listener, brief.node_id);
        if let Some(sequencer) = &mut self.sequencer
            && !sequencer.observe_latest(stream, brief.seq, envelope.received, sink)
        {
            sequencer.observe(&Number::from(brief).stream(envelope), brief.seq, envelope.received, sink);
        }
        let report = &mut pending.reports[at];
        report.plan = plan;
        report.head.about.profile = envelope.sender.profile;
        self.state.flows.prefetch_bucket(report.head.hash);
        pending.look_ahead(pending.count, &self.state.flows);
        pending.count += 1;
        true
    }

    /// Takes the reports that were decoded.
    #[inline(never)]
    fn flush(&mut self, pending: &mut Pending<'_>, sink: &mut dyn Sink) {
        let count = pending.count;
        self.stats.reports += count as u64;
        self.stats.accepted += count as u64;
        self.state.counts.flow_reports += count as u64;
        for at in count..count + 2 * STEP {
            pending.look_ahead(at, &self.state.flows);
        }
        for run in pending.reports[..count].chunk_by(|one, next| one.plan == next.plan) {
            if let Some(plan) = run.first().and_then(|report| self.plans.get(report.plan)) {
                self.state.take_stacks(run, plan, sink);
            }
        }
        pending.count = 0;
    }

    /// Tells a loss as news, beside the loss itself.
    pub(crate) fn account(&mut self, now: Nanos, last: bool, sink: &mut dyn Sink) {
        let Some(sequencer) = &mut self.sequencer else { return };
        let counts = &mut self.state.counts.events;
        if last {
            sequencer.finish_with(now, sink, |loss, sink| tell_loss(loss, counts, sink));
        } else {
            sequencer.account_with(now, sink, |loss, sink| tell_loss(loss, counts, sink));
        }
    }
}

fn tell_loss(loss: &Loss, counts: &mut [u64; Kind::ALL.len()], sink: &mut dyn Sink) {
    if let Some(event) = loss.event() {
        counts[Kind::Loss as usize] += 1;
        sink.event(&event, &[]);
    }
}

/// Are the hops of such a report those of a packet that went the whole way? A node on the way may report its queue (Q
/// without F) with the packet's stack so far.
#[inline(always)]
pub(crate) fn is_whole_path(flags: wire::Flags) -> bool {
    const QUEUE: u8 = wire::Flags::QUEUE.0;
    flags.0 & (wire::Flags::DROP.0 | wire::Flags::INTERMEDIATE.0) == 0
        && flags.0 & (QUEUE | wire::Flags::FLOW.0) != QUEUE
}

/// Can the hops be read where they lie?
#[inline(always)]
pub(crate) fn is_stacked(stack: &Stack<'_>) -> bool {
    (1..=WIDEST_RECORD).contains(&stack.layout.words()) && !stack.is_empty()
}

#[inline(always)]
pub(crate) fn signals(flags: wire::int::Flags) -> Flags {
    let has = |flag| flags.contains(flag);
    Flags::signals(has(wire::int::Flags::HOPS_EXCEEDED), has(wire::int::Flags::MTU_EXCEEDED))
}

#[inline]
pub(crate) fn version(version: wire::Version) -> u8 {
    match version {
        wire::Version::V05 => 5,
        wire::Version::V10 => 10,
        wire::Version::V20 => 20,
    }
}
