//! Event detection in the data plane: selects the packets that an INT sink reports.
//!
//! Implements the algorithms of "Programmable Event Detection for In-Band Network Telemetry", section III.C (per-hop,
//! per-flow, moving average, noop, and an expression in conjunctive normal form), and the change detection of fabric-tna. A
//! [`Monitor`] is one algorithm with its registers; [`Monitor::decide`] is called per packet and returns whether to report
//! it, and why.
//!
//! # Registers
//! Registers are in an array whose size is a power of two, indexed by a hash as in a switch. Each register has a **tag**:
//!
//! | algorithm | key | index | tag |
//! | --- | --- | --- | --- |
//! | per-hop | node id | low bits of CRC-32C of the id (4 bytes) | the id itself |
//! | per-hop of a flow | flow, node id | low bits of CRC-32C of the 5-tuple and the id | that CRC |
//! | all others | flow | low bits of CRC-32C of the 5-tuple | that CRC |
//!
//! The 5-tuple is source and destination address (4 or 16 bytes each), source and destination port (2 each, 0 without
//! ports) and protocol (1), as in the flow ID of postcards. A register with another key's tag is a **collision**: the
//! packet is reported as the first of its key, the key replaces the old one, and the collision is counted. Collisions cost
//! extra reports and never suppress one. Only flows with equal 32-bit CRCs are confused. A sender can construct such flows,
//! but gains no more than by keeping its values constant.
//!
//! # Arithmetic
//! All numbers are integers of at most 64 bits. Values and sums saturate at [`MAX_VALUE`] (48 bits). Below, `v` is the
//! value of a packet and `T` the threshold; `last` (the last value reported) and `A` are in registers.
//!
//! - **per-hop**: report if `|v − last| > T` for any hop, and only then set `last ← v` for **every** hop, because the
//!   report shows all of them. Hops are compared first and stored afterwards, in forwarding order. There is one register
//!   per node, shared by all flows, as in the paper; or one per node and flow, so that flows in different queues of a node
//!   are not compared with each other. (The paper stores only the values that exceed the threshold. A value reported
//!   because of another hop is then never compared, so a later one could differ from it by `2·T` and be suppressed.)
//! - **per-flow**: `v` is the sum over the hops that have the value (or the flow's own latency). Report if
//!   `|v − last| > T`, and only then set `last ← v`.
//! - **moving average**: `v` as for per-flow; `A ← A + k·v − ⌊k·A / 256⌋` with weight `k` in 256ths and `A` with 8
//!   fractional bits (see [`crate::rule::history`]). Report if `|A − last| > 256·T`, and only then set `last ← A`. Every
//!   packet updates the average. (The paper can also be read as averaging with the last value *reported*. Then nothing
//!   would accumulate between events, a lasting change below `T / α` would never be reported, and the algorithm would equal
//!   per-flow with another threshold.)
//! - **change**: a digest of the path and of each hop's latency and queue, both in buckets `v >> bits`. Report if it
//!   differs from the digest last reported, or if that report was `keep_alive` or longer ago. The digest is the CRC-32C of
//!   the number of hops (4 bytes) and, per hop, node ID (4 bytes), `latency >> latency_bits` (8), `queue >> queue_bits`
//!   (8); absent values are all-ones.
//! - **rule**: a [`Program`]. Report every packet for which a rule is true, and the first packet for which no rule is true
//!   any more, so that the collector sees the end.
//! - **noop**: report every packet.
//!
//! The first packet of a key is always reported, and so is a packet with missing values: without the value at all, or, for
//! per-hop, with a hop that has the value but no node ID.
//!
//! # Guarantee
//! If per-hop or per-flow suppresses a packet, its values differ by at most `T` from the last ones reported for its keys.

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

/// Maximum number of registers of a monitor.
pub const MAX_REGISTERS: usize = 1 << 24;
const OCCUPIED: u64 = 1 << 32;

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
    /// The compared metric. [`Algorithm::Noop`], [`Algorithm::Change`] and [`Algorithm::Rule`] ignore it.
    pub metric: Metric,
    /// Threshold in the metric's unit (ns, device units, millionths), ignored by the same algorithms.
    pub threshold: u64,
}

/// The algorithm that selects packets to report; see the module documentation.
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
    /// Bucket size of hop latency is 2 to this power, ns; 64 or more ignores latency.
    pub latency_bits: u8,
    /// Bucket size of queue occupancy is 2 to this power, device units; 64 or more ignores queues.
    pub queue_bits: u8,
    /// Time after which a flow is reported again, ns; 0 reports every packet.
    pub keep_alive: u64,
}

/// The reason why a detector is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DetectorError {
    /// The metric has no value per hop.
    NotPerHop(Metric),
    /// The metric is the path, which has no numeric value.
    NotANumber,
    /// The moving average has weight 0.
    NoWeight,
    /// The number of registers is not a power of two, or exceeds [`MAX_REGISTERS`].
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

/// The outcome for a packet: suppressed, or reported and why. Higher values take precedence.
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
    /// Number of different decisions.
    pub const COUNT: usize = 6;

    /// Returns whether the packet is reported.
    #[inline]
    pub fn is_reported(self) -> bool {
        self != Self::Suppressed
    }
}

/// Counters of a monitor's decisions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Packets by [`Decision`]; the sum is the number of packets.
    pub decisions: [u64; Decision::COUNT],
    /// Registers taken over from another flow or node.
    pub collisions: u64,
}

impl Counts {
    /// Returns the number of packets with this decision.
    pub fn of(&self, decision: Decision) -> u64 {
        self.decisions[decision as usize]
    }
}

/// One register of three 64-bit words.
#[derive(Clone, Copy, Debug)]
struct Register {
    /// [`OCCUPIED`] and the tag; 0 if the register is empty.
    tag: u64,
    /// The last state reported: a value, an average, a digest, or the rules that were true (as bits).
    last_reported: u64,
    /// The moving average, or the time of the last report, ns.
    extra: u64,
}

/// A detector with its registers.
#[derive(Clone, Debug)]
pub struct Monitor {
    detector: Detector,
    registers: Box<[Register]>,
    /// History cells of the rules, [`Program::used`] per register.
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
    /// Creates a monitor with `registers` empty registers, a power of two. A register takes 24 bytes, plus 8 bytes for each
    /// history cell of a rule.
    ///
    /// # Errors
    /// [`DetectorError`] for an inconsistent detector or an invalid number of registers.
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

    /// Returns the counters of its decisions.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the monitor with another threshold. Registers keep the values reported under the previous one.
    #[must_use]
    pub fn with_threshold(mut self, threshold: u64) -> Self {
        self.detector.threshold = threshold;
        self
    }

    /// Empties all registers, so that the next packet of each key counts as its first.
    pub fn wipe(&mut self) {
        self.registers.fill(Register {
            tag: 0,
            last_reported: 0,
            extra: 0,
        });
        self.cells.fill(EMPTY);
    }

    /// Decides whether to report a packet of `flow` at `now` (ns, any clock), and updates the registers. Does not allocate.
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

    /// Decides about a packet with an implausible hop latency, which `observation` does not contain. If an algorithm cannot
    /// decide without it, a packet of a known flow or node is suppressed, and no register changes.
    pub fn decide_implausible(&mut self, observation: &Observation<'_>, flow: &FlowKey) -> Decision {
        // The flow latency was measured between the ends of the path by synchronized clocks, so it does not need hop
        // latencies.
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

    /// Returns the register at `index`, and claims it for `tag` if it holds another tag.
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

    /// As `per_hop`, for a packet with an implausible latency: a missing value is no reason to report a known node.
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

    /// Compares each hop with its register without changing any. Returns the highest decision, `None` if no hop has both a
    /// value and a node ID, and whether a hop has a value without a node ID.
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

    /// Stores the values of all hops of a reported packet, because the report shows them all.
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
            // If the clock was set back, the difference wraps around and the keep-alive time counts as passed.
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

/// Returns the index and tag of a node's register, per flow if `flow` is given.
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

/// Limits a value to what registers store.
#[inline]
fn saturate(value: u64) -> u64 {
    value.min(MAX_VALUE)
}

/// Returns the flow's own value, or the sum over the hops that have the value; `None` if there is none.
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

/// Returns the bucket of a value, which is the value without its low `bits`.
#[inline]
fn bucket(value: u64, bits: u8) -> u64 {
    match value {
        ABSENT => ABSENT,
        value => value.checked_shr(u32::from(bits)).unwrap_or(0),
    }
}

/// Returns the digest of the path and the buckets.
#[inline]
fn digest(observation: &Observation<'_>, change: Change) -> u32 {
    // Includes the number of hops, because a CRC does not distinguish leading zeros from nothing.
    let start = Crc::new().word(observation.hops.len() as u32);
    let hops = observation.hops.iter().fold(start, |crc, hop| {
        let latency = bucket(hop.hop_latency, change.latency_bits);
        let queue = bucket(hop.queue_occupancy, change.queue_bits);
        crc.word(hop.node).long(latency).long(queue)
    });
    hops.value()
}
