//! Selects the packets that a sink reports: event detection in the data plane, before any collector.
//!
//! The algorithms are those of "Programmable Event Detection for In-Band Network Telemetry" (section III.C there: per-hop, per-flow, moving average,
//! noop, and an expression in conjunctive normal form) and the change detection of fabric-tna. A [`Monitor`] is one of them
//! with its registers. [`Monitor::decide`] is called for each packet and returns whether to report it, and why.
//!
//! # Registers
//! Arrays of a fixed size, a power of two, indexed by a hash. Each register has a **tag**:
//!
//! | algorithm | key | index | tag |
//! | --- | --- | --- | --- |
//! | per-hop | node id | low bits of CRC-32C of the id (4 bytes) | the id itself |
//! | per-hop of a flow | flow, node id | low bits of CRC-32C of the 5-tuple and the id | that CRC |
//! | all others | flow | low bits of CRC-32C of the 5-tuple | that CRC |
//!
//! The 5-tuple is source, destination (4 or 16 bytes each), source port, destination port (2 each, 0 without ports),
//! protocol (1), as in the Flow ID of postcards. A register that holds another key's tag is a **collision**: the packet is
//! reported as the first of its key, its key replaces the old one, and the collision is counted. Collisions therefore cost
//! extra reports and never suppress one. Only flows with the same 32-bit CRC are confused. A sender can construct such
//! flows, but gains no more than by keeping its values constant.
//!
//! # Arithmetic
//! All numbers are integers of at most 64 bits. Values and sums saturate at [`MAX_VALUE`] (48 bits). `v` is the value of a
//! packet, `T` the threshold; `last` (the last value reported) and `A` are registers.
//!
//! - **per-hop**: report if `|v − last| > T` for any hop, and only then `last ← v` for **every** hop: the report shows all of them.
//!   Hops are compared first and stored afterwards, in forwarding order. One register for each node, shared by all flows, as in the
//!   paper; or one for each node and flow, so that flows through different queues of a node are not compared with each other. (The
//!   paper stores only the values that exceed the threshold. A value that was reported because of another hop then stays uncompared,
//!   and a later one could differ from it by `2·T` and be suppressed.)
//! - **per-flow**: `v` is the sum over the hops that gave the value (or the flow's own latency). Report if `|v − last| > T`,
//!   and only then `last ← v`.
//! - **moving average**: `v` as per-flow; `A ← A + k·v − ⌊k·A / 256⌋`, the weight `k` in 256ths, `A` with 8 fractional
//!   bits (see [`crate::rule::history`]). Report if `|A − last| > 256·T`, and only then `last ← A`. Every packet updates
//!   the average. (The paper can also be read as an average between the value and the last one *reported*. Then nothing
//!   would accumulate between events, a lasting change of less than `T / α` would never be reported, and the algorithm
//!   would be per-flow with another threshold.)
//! - **change**: a digest of the path and of each hop's latency and queue in buckets. Report if it differs from that of the last
//!   packet reported, or if that was `keep_alive` or longer ago. Buckets are powers of two: `v >> bits`. The digest is CRC-32C of
//!   the number of hops (4 bytes) and, for each, node id (4 bytes), `latency >> latency_bits` (8), `queue >> queue_bits` (8); absent values are all-ones.
//! - **rule**: a [`Program`]. Report every packet for which a rule is true, and the first packet after it for which no rule is
//!   true, so that the collector sees the end.
//! - **noop**: report every packet.
//!
//! The first packet of a key is always reported, and so is a packet with missing values: one without the value, or, per hop,
//! with a hop that has the value but no node id.
//!
//! # What is suppressed
//! No value of a packet that per-hop or per-flow suppresses differs by more than `T` from the last one reported for its key.

mod hash;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use wire::FlowKey;

use crate::metric::Metric;
use crate::observation::{ABSENT, NO_NODE, Observation};
use crate::rule::history::{EMPTY, MAX_VALUE, averaged};
use crate::table::Program;

pub use hash::{Crc, flow_crc};

/// Maximum number of registers of one monitor.
pub const MAX_REGISTERS: usize = 1 << 24;

/// A detector: algorithm, metric and threshold.
///
/// ```
/// use detect::{Algorithm, Detector, HopValues, Metric, Monitor, Observation};
/// use wire::FlowKey;
///
/// // Report a hop whose latency differs by more than 10 us from the last one reported for its node.
/// let detector = Detector { algorithm: Algorithm::PerHop, metric: Metric::HopLatency, threshold: 10_000 };
/// let mut monitor = Monitor::new(detector, 1024)?;
/// let flow: FlowKey = "10.0.0.1:1234>10.0.0.2:80/6".parse()?;
/// let mut is_reported = |hop_latency| {
///     let hops = [HopValues { node: 101, hop_latency, ..HopValues::NOTHING }];
///     let observation = Observation { hops: &hops, ..Observation::default() };
///     monitor.decide(&observation, &flow, 0).is_reported()
/// };
/// assert!(is_reported(50_000)); // the first packet of a key
/// assert!(!is_reported(60_000));
/// assert!(is_reported(60_001));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Detector {
    /// The algorithm that selects packets.
    pub algorithm: Algorithm,
    /// The metric. [`Algorithm::Noop`], [`Algorithm::Change`] and [`Algorithm::Rule`] ignore it.
    pub metric: Metric,
    /// In the metric's unit (ns, device units, millionths). The same algorithms ignore it.
    pub threshold: u64,
}

/// Selection of the packets to report; see the module documentation.
#[derive(Clone, PartialEq, Debug)]
pub enum Algorithm {
    /// Every packet is reported.
    Noop,
    /// A hop's value differs from the last one reported for its node.
    PerHop,
    /// A hop's value differs from the last one reported for its node and flow.
    PerHopOfFlow,
    /// The sum over the hops differs from the last one reported for the flow.
    PerFlow,
    /// The moving average of that sum differs from the last one reported.
    MovingAverage {
        /// Weight of a new value, 256ths; at least 1.
        alpha: u8,
    },
    /// The path, or a bucket of a hop's latency or queue, has changed.
    Change(Change),
    /// A rule is true.
    Rule(Arc<Program>),
}

/// Bucket sizes and keep-alive time of [`Algorithm::Change`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// A bucket of hop latency is 2 to the power of this, ns; 64 or more ignores latency.
    pub latency_bits: u8,
    /// A bucket of queue occupancy, device units; likewise.
    pub queue_bits: u8,
    /// A flow is reported again after this time, ns; 0 reports every packet.
    pub keep_alive: u64,
}

/// The reason for which a detector is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DetectorError {
    /// The metric has no value per hop.
    NotPerHop(Metric),
    /// A path is not a number.
    NotANumber,
    /// An average needs a weight above 0.
    NoWeight,
    /// Not a power of two, or more than [`MAX_REGISTERS`].
    Registers(usize),
}

impl fmt::Display for DetectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPerHop(metric) => write!(f, "{metric} belongs to the flow: use per-flow, not per-hop"),
            Self::NotANumber => f.write_str("flow_path is not a number: use change to detect path changes"),
            Self::NoWeight => f.write_str("a moving average needs alpha between 0.004 and 0.996"),
            Self::Registers(size) => {
                write!(
                    f,
                    "the number of registers must be a power of two up to {MAX_REGISTERS}, not {size}"
                )
            }
        }
    }
}

impl std::error::Error for DetectorError {}

impl Detector {
    /// Creates a detector that reports every packet.
    pub fn noop() -> Self {
        Self {
            algorithm: Algorithm::Noop,
            metric: Metric::FlowPath,
            threshold: 0,
        }
    }

    fn check(&self) -> Result<(), DetectorError> {
        let per_hop = !matches!(self.metric, Metric::FlowPath | Metric::FlowLatency);
        match &self.algorithm {
            Algorithm::Noop | Algorithm::Change(_) | Algorithm::Rule(_) => Ok(()),
            _ if self.metric == Metric::FlowPath => Err(DetectorError::NotANumber),
            Algorithm::PerHop | Algorithm::PerHopOfFlow if !per_hop => {
                Err(DetectorError::NotPerHop(self.metric))
            }
            Algorithm::MovingAverage { alpha: 0 } => Err(DetectorError::NoWeight),
            _ => Ok(()),
        }
    }
}

/// Whether to report a packet's measurement, and why.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Decision {
    /// The packet is not reported.
    Suppressed = 0,
    /// Reported: a rule was true for the previous packet and no longer is.
    Ended = 1,
    /// Reported: the keep-alive time has passed.
    KeepAlive = 2,
    /// Reported: its register was empty or held another key.
    First = 3,
    /// Reported: values that the algorithm needs are missing.
    MissingValue = 4,
    /// Reported: the algorithm detected an event.
    Event = 5,
}

impl Decision {
    /// Number of decisions.
    pub const COUNT: usize = 6;

    /// Returns whether the packet is reported.
    #[inline]
    pub fn is_reported(self) -> bool {
        self != Self::Suppressed
    }
}

/// The decisions of a monitor.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Packets by [`Decision`]; their sum is all packets.
    pub decisions: [u64; Decision::COUNT],
    /// Registers that another flow or node had before.
    pub collisions: u64,
}

impl Counts {
    /// Packets of a decision.
    pub fn of(&self, decision: Decision) -> u64 {
        self.decisions[decision as usize]
    }
}

/// One register, of three words.
#[derive(Clone, Copy, Debug)]
struct Register {
    /// [`OCCUPIED`] and the tag; 0 when it is empty.
    tag: u64,
    /// The last state reported: a value, an average, a digest, or the rules that were true.
    last_reported: u64,
    /// The average, or the time of the last report.
    extra: u64,
}

const OCCUPIED: u64 = 1 << 32;

/// A detector with its registers.
#[derive(Clone, Debug)]
pub struct Monitor {
    detector: Detector,
    registers: Box<[Register]>,
    /// [`Program::used`] of a rule for each register.
    cells: Box<[u64]>,
    mask: usize,
    counts: Counts,
}

/// The result of a register lookup.
enum Lookup<'r> {
    Known(&'r mut Register),
    New(&'r mut Register),
}

impl Monitor {
    /// Returns a detector with `registers` registers (a power of two; 24 bytes each, those of a rule 8 more for each value that it
    /// stores), all empty.
    ///
    /// # Errors
    /// A detector that contradicts itself; a number of registers that is not possible.
    pub fn new(detector: Detector, registers: usize) -> Result<Self, DetectorError> {
        detector.check()?;
        if !registers.is_power_of_two() || registers > MAX_REGISTERS {
            return Err(DetectorError::Registers(registers));
        }
        let cells = match &detector.algorithm {
            Algorithm::Rule(program) => program.used as usize * registers,
            _ => 0,
        };
        let size = if detector.algorithm == Algorithm::Noop {
            1
        } else {
            registers
        };
        Ok(Self {
            detector,
            registers: vec![
                Register {
                    tag: 0,
                    last_reported: 0,
                    extra: 0
                };
                size
            ]
            .into(),
            cells: vec![EMPTY; cells].into(),
            mask: size - 1,
            counts: Counts::default(),
        })
    }

    /// Returns the detector of the monitor.
    pub fn detector(&self) -> &Detector {
        &self.detector
    }

    /// Returns the counts of its decisions.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the monitor with another threshold. Its registers keep the values that were last reported under the previous one.
    #[must_use]
    pub fn with_threshold(mut self, threshold: u64) -> Self {
        self.detector.threshold = threshold;
        self
    }

    /// Empties all registers: the next packet of each key is its first.
    pub fn wipe(&mut self) {
        self.registers.fill(Register {
            tag: 0,
            last_reported: 0,
            extra: 0,
        });
        self.cells.fill(EMPTY);
    }

    /// Decides whether to report a packet of `flow` at `now` (ns of any clock), and updates the registers. Does not
    /// allocate.
    #[inline]
    pub fn decide(&mut self, observation: &Observation<'_>, flow: &FlowKey, now: u64) -> Decision {
        let decision = match self.detector.algorithm {
            Algorithm::Noop => Decision::Event,
            Algorithm::PerHop => self.per_hop(observation, None),
            Algorithm::PerHopOfFlow => self.per_hop(observation, Some(flow_crc(flow))),
            Algorithm::PerFlow => self.per_flow(observation, flow),
            Algorithm::MovingAverage { alpha } => self.moving_average(observation, flow, alpha),
            Algorithm::Change(change) => self.change(observation, flow, now, change),
            Algorithm::Rule(_) => self.rule(observation, flow),
        };
        self.counts.decisions[decision as usize] += 1;
        decision
    }

    /// The same for a packet with an implausible hop latency, which `observation` does not contain. Where an algorithm cannot decide
    /// without it, a packet of a known flow or node is not reported, and no register changes.
    pub fn decide_implausible(&mut self, observation: &Observation<'_>, flow: &FlowKey) -> Decision {
        // Between the ends of the path, by clocks that agree.
        let measured = self.detector.metric == Metric::FlowLatency && observation.flow_latency.is_some();
        let decision = match self.detector.algorithm {
            Algorithm::Noop => Decision::Event,
            Algorithm::PerHop | Algorithm::PerHopOfFlow => {
                let of_flow = matches!(self.detector.algorithm, Algorithm::PerHopOfFlow);
                self.per_hop_implausible(observation, of_flow.then(|| flow_crc(flow)))
            }
            Algorithm::PerFlow if measured => self.per_flow(observation, flow),
            Algorithm::MovingAverage { alpha } if measured => self.moving_average(observation, flow, alpha),
            Algorithm::PerFlow | Algorithm::MovingAverage { .. } | Algorithm::Change(_) => {
                let crc = flow_crc(flow).value();
                if self.holds(crc, crc) {
                    Decision::Suppressed
                } else {
                    Decision::MissingValue
                }
            }
            Algorithm::Rule(_) => self.rule(observation, flow),
        };
        self.counts.decisions[decision as usize] += 1;
        decision
    }

    /// Returns whether the register at `index` has this tag.
    fn holds(&self, index: u32, tag: u32) -> bool {
        self.registers[index as usize & self.mask].tag == OCCUPIED | u64::from(tag)
    }

    /// Returns the register at `index`. If it holds another tag, `tag` replaces it.
    #[inline]
    fn find(&mut self, index: u32, tag: u32) -> Lookup<'_> {
        let register = &mut self.registers[index as usize & self.mask];
        let tag = OCCUPIED | u64::from(tag);
        if register.tag == tag {
            return Lookup::Known(register);
        }
        self.counts.collisions += u64::from(register.tag != 0);
        register.tag = tag;
        Lookup::New(register)
    }

    fn per_hop(&mut self, observation: &Observation<'_>, flow: Option<Crc>) -> Decision {
        let (compared, anonymous) = self.compare_hops(observation, flow);
        let missing = if anonymous {
            Decision::MissingValue
        } else {
            Decision::Suppressed
        };
        let decision = compared.map_or(Decision::MissingValue, |decision| decision.max(missing));
        if decision.is_reported() {
            self.store_hops(observation, flow);
        }
        decision
    }

    /// The same for a packet with an implausible latency: missing values are no reason to report a node that is known.
    fn per_hop_implausible(&mut self, observation: &Observation<'_>, flow: Option<Crc>) -> Decision {
        let mut keys = observation.hops.iter().map(|hop| hop_key(flow, hop.node));
        if !keys.any(|(index, tag)| self.holds(index, tag)) {
            return self.per_hop(observation, flow);
        }
        let decision = self
            .compare_hops(observation, flow)
            .0
            .unwrap_or(Decision::Suppressed);
        if decision.is_reported() {
            self.store_hops(observation, flow);
        }
        decision
    }

    /// Compares each hop with its register, and changes none. `None` if no hop has a value and a node id; also whether one has a value
    /// without an id.
    fn compare_hops(&self, observation: &Observation<'_>, flow: Option<Crc>) -> (Option<Decision>, bool) {
        let metric = self.detector.metric;
        let threshold = self.detector.threshold;
        let mut compared = None;
        let mut anonymous = false;
        for hop in observation.hops {
            let Some(value) = hop.value(metric).map(saturate) else {
                continue;
            };
            if hop.node == NO_NODE {
                anonymous = true;
                continue;
            }
            let (index, tag) = hop_key(flow, hop.node);
            let register = &self.registers[index as usize & self.mask];
            let decision = if register.tag != OCCUPIED | u64::from(tag) {
                Decision::First
            } else if register.last_reported.abs_diff(value) > threshold {
                Decision::Event
            } else {
                Decision::Suppressed
            };
            compared = compared.max(Some(decision));
        }
        (compared, anonymous)
    }

    /// Stores the values of all hops of a packet that is reported: its report shows them all.
    fn store_hops(&mut self, observation: &Observation<'_>, flow: Option<Crc>) {
        let metric = self.detector.metric;
        for hop in observation.hops.iter().filter(|hop| hop.node != NO_NODE) {
            let Some(value) = hop.value(metric).map(saturate) else {
                continue;
            };
            let (index, tag) = hop_key(flow, hop.node);
            match self.find(index, tag) {
                Lookup::Known(register) | Lookup::New(register) => register.last_reported = value,
            }
        }
    }

    fn per_flow(&mut self, observation: &Observation<'_>, flow: &FlowKey) -> Decision {
        let Some(value) = sum(self.detector.metric, observation) else {
            return Decision::MissingValue;
        };
        let threshold = self.detector.threshold;
        let crc = flow_crc(flow).value();
        match self.find(crc, crc) {
            Lookup::New(register) => {
                register.last_reported = value;
                Decision::First
            }
            Lookup::Known(register) if register.last_reported.abs_diff(value) > threshold => {
                register.last_reported = value;
                Decision::Event
            }
            Lookup::Known(_) => Decision::Suppressed,
        }
    }

    fn moving_average(&mut self, observation: &Observation<'_>, flow: &FlowKey, alpha: u8) -> Decision {
        let Some(value) = sum(self.detector.metric, observation) else {
            return Decision::MissingValue;
        };
        let threshold = self.detector.threshold.min(MAX_VALUE) << 8;
        let crc = flow_crc(flow).value();
        match self.find(crc, crc) {
            Lookup::New(register) => {
                register.extra = value << 8;
                register.last_reported = register.extra;
                Decision::First
            }
            Lookup::Known(register) => {
                register.extra = averaged(register.extra, value, alpha);
                if register.last_reported.abs_diff(register.extra) <= threshold {
                    return Decision::Suppressed;
                }
                register.last_reported = register.extra;
                Decision::Event
            }
        }
    }

    fn change(
        &mut self,
        observation: &Observation<'_>,
        flow: &FlowKey,
        now: u64,
        change: Change,
    ) -> Decision {
        let digest = u64::from(digest(observation, change));
        let crc = flow_crc(flow).value();
        let (register, decision) = match self.find(crc, crc) {
            Lookup::New(register) => (register, Decision::First),
            Lookup::Known(register) if register.last_reported != digest => (register, Decision::Event),
            // If the clock was set back, the difference wraps, and the keep-alive time has passed.
            Lookup::Known(register) if now.wrapping_sub(register.extra) >= change.keep_alive => {
                (register, Decision::KeepAlive)
            }
            Lookup::Known(_) => return Decision::Suppressed,
        };
        (register.last_reported, register.extra) = (digest, now);
        decision
    }

    fn rule(&mut self, observation: &Observation<'_>, flow: &FlowKey) -> Decision {
        let Algorithm::Rule(program) = &self.detector.algorithm else {
            return Decision::MissingValue;
        };
        let used = program.used as usize;
        let crc = flow_crc(flow).value();
        let at = crc as usize & self.mask;
        let register = &mut self.registers[at];
        let cells = self.cells.get_mut(at * used..(at + 1) * used).unwrap_or_default();
        let tag = OCCUPIED | u64::from(crc);
        let is_new = register.tag != tag;
        if is_new {
            self.counts.collisions += u64::from(register.tag != 0);
            *register = Register {
                tag,
                last_reported: 0,
                extra: 0,
            };
            cells.fill(EMPTY);
        }
        let fired = program.evaluate(observation, cells);
        let before = std::mem::replace(&mut register.last_reported, fired);
        match (fired != 0, is_new, before != 0) {
            (true, ..) => Decision::Event,
            (false, true, _) => Decision::First,
            (false, false, true) => Decision::Ended,
            (false, false, false) => Decision::Suppressed,
        }
    }
}

/// Index and tag of the register of a node, or of a node of the flow with this CRC.
#[inline]
fn hop_key(flow: Option<Crc>, node: u32) -> (u32, u32) {
    match flow {
        None => (Crc::new().word(node).value(), node),
        Some(crc) => {
            let crc = crc.word(node).value();
            (crc, crc)
        }
    }
}

/// Returns a value as registers store it.
#[inline]
fn saturate(value: u64) -> u64 {
    value.min(MAX_VALUE)
}

/// Returns the flow's own value, or the sum over the hops that gave it; `None` when none did.
#[inline]
fn sum(metric: Metric, observation: &Observation<'_>) -> Option<u64> {
    if metric == Metric::FlowLatency {
        return observation.flow_latency.map(saturate);
    }
    let values = observation
        .hops
        .iter()
        .filter_map(|hop| hop.value(metric))
        .map(saturate);
    values.reduce(|sum, value| saturate(sum + value))
}

/// Returns a value without its low `bits`.
#[inline]
fn bucket(value: u64, bits: u8) -> u64 {
    match value {
        ABSENT => ABSENT,
        value => value.checked_shr(u32::from(bits)).unwrap_or(0),
    }
}

/// Returns the path and the buckets, in 32 bits.
#[inline]
fn digest(observation: &Observation<'_>, change: Change) -> u32 {
    // Their number too: a checksum does not distinguish leading zeros from nothing.
    let start = Crc::new().word(observation.hops.len() as u32);
    let hops = observation.hops.iter().fold(start, |crc, hop| {
        let latency = bucket(hop.hop_latency, change.latency_bits);
        let queue = bucket(hop.queue_occupancy, change.queue_bits);
        crc.word(hop.node).long(latency).long(queue)
    });
    hops.value()
}
