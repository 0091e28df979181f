//! Which packets a sink tells of: event detection in the data plane, before any collector.
//!
//! The algorithms are those of "Event Detection in the Data Plane" (section III.C there: per-hop, per-flow, moving average,
//! noop, and an expression in conjunctive normal form) and the change detection of fabric-tna. A [`Monitor`] is one of them
//! with its registers. It is asked of each packet ([`Monitor::decide`]) and answers whether to tell, and why.
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
//! protocol (1), as in the Flow ID of postcards. A register whose tag is another's is a **collision**: the newcomer is told
//! as if it were new, takes the register over, and is counted. So collisions cost reports and hide nothing. Only two flows
//! of one 32-bit CRC that share no packet's fate otherwise would be taken for one; a sender can make such flows, and gains
//! what any sender has who keeps his values steady.
//!
//! # Arithmetic
//! All numbers are integers of at most 64 bits. Values are held to [`LARGEST`] (48 bits), sums too. `v` is the value of a
//! packet, `T` the threshold; `told`, `A` are registers.
//!
//! - **per-hop**: for each hop, in forwarding order: tell if `|v − told| > T`; then, and only then, `told ← v`. All hops are
//!   looked at, as in an unrolled loop. One register for each node, whatever the flow, as in the paper; or one for each node
//!   and flow, so that flows through different queues of a node are not compared with each other.
//! - **per-flow**: `v` is the sum over the hops that gave the value (or the flow's own latency). Tell if `|v − told| > T`;
//!   then, and only then, `told ← v`.
//! - **moving average**: `v` as per-flow; `A ← A + k·v − ⌊k·A / 256⌋`, the weight `k` in 256ths, `A` with 8 bits behind the
//!   point (see [`crate::rule::memory`]). Tell if `|A − told| > 256·T`; then, and only then, `told ← A`. The average moves on
//!   with each packet. (The paper can also be read as an average between the value and the last one *told*. Then nothing
//!   would add up between events, a lasting change of less than `T / α` would never be told, and the algorithm would be
//!   per-flow with another threshold.)
//! - **change**: a digest of the path and of each hop's latency and queue in buckets. Tell if it is not that of the last
//!   packet told, or if that was `keep_alive` or longer ago. Buckets are powers of two: `v >> bits`. The digest is CRC-32C of
//!   the number of hops (4 bytes) and, for each, node id (4 bytes), `latency >> latency_bits` (8), `queue >> queue_bits` (8), what is absent all-ones.
//! - **rule**: a [`Program`]. Tell every packet of which a rule is true, and the first after those of which none is, so that
//!   the collector hears the end.
//! - **noop**: tell.
//!
//! What is new to its register is always told, and so is a packet that cannot be judged: one without the value, or, per hop,
//! with a hop that gives the value and not its node.
//!
//! # What is hidden
//! Of a packet that per-hop or per-flow does not tell, no value differs by more than `T` from the last one told of its key.

mod hash;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use wire::FlowKey;

use crate::metric::Metric;
use crate::observation::{ABSENT, NO_NODE, Observation};
use crate::rule::memory::{EMPTY, LARGEST, averaged};
use crate::table::Program;

pub use hash::{Crc, flow_crc};

/// Most registers of one monitor.
pub const MAX_REGISTERS: usize = 1 << 24;

/// What is looked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Detector {
    /// How.
    pub algorithm: Algorithm,
    /// Of what. [`Algorithm::Noop`], [`Algorithm::Change`] and [`Algorithm::Rule`] do not look at it.
    pub metric: Metric,
    /// In the metric's unit (ns, device units, millionths); as with the metric.
    pub threshold: u64,
}

/// How packets worth telling are found; see the module's text.
#[derive(Clone, PartialEq, Debug)]
pub enum Algorithm {
    /// Every packet.
    Noop,
    /// A hop's value differs from the last one told of its node.
    PerHop,
    /// A hop's value differs from the last one told of its node and flow.
    PerHopOfFlow,
    /// The sum over the hops differs from the last one told of the flow.
    PerFlow,
    /// The moving average of that sum differs from the last one told.
    MovingAverage {
        /// Weight of a new value, 256ths; at least 1.
        alpha: u8,
    },
    /// The path, or a bucket of a hop's latency or queue, is another.
    Change(Change),
    /// A rule is true.
    Rule(Arc<Program>),
}

/// Buckets and patience of [`Algorithm::Change`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// A bucket of hop latency is 2 to the power of this, ns; 64 or more: latency is not looked at.
    pub latency_bits: u8,
    /// A bucket of queue occupancy, device units; likewise.
    pub queue_bits: u8,
    /// A flow is told again after this long, ns; 0: with every packet.
    pub keep_alive: u64,
}

/// Why a detector was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DetectorError {
    /// The metric has no value per hop.
    NotPerHop(Metric),
    /// A path is no number.
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
            Self::NotANumber => f.write_str("flow_path is no number: use change to be told of other paths"),
            Self::NoWeight => f.write_str("a moving average needs alpha between 0.004 and 0.996"),
            Self::Registers(size) => {
                write!(f, "{size} registers are not possible: a power of two up to {MAX_REGISTERS} is")
            }
        }
    }
}

impl std::error::Error for DetectorError {}

impl Detector {
    /// Tells every packet.
    pub fn noop() -> Self {
        Self { algorithm: Algorithm::Noop, metric: Metric::FlowPath, threshold: 0 }
    }

    /// Does it look at the values of hops that make up the observation's flow latency? Others need not be added up.
    pub fn needs_flow_latency(&self) -> bool {
        match &self.algorithm {
            Algorithm::Noop | Algorithm::Change(_) | Algorithm::PerHop | Algorithm::PerHopOfFlow => false,
            Algorithm::PerFlow | Algorithm::MovingAverage { .. } => self.metric == Metric::FlowLatency,
            Algorithm::Rule(_) => true,
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

/// What is to be done with a packet's measurement, and why.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Decision {
    /// Not told.
    Hidden = 0,
    /// Told: a rule was true of the packet before, and no longer is.
    Ended = 1,
    /// Told: it was long enough ago.
    KeepAlive = 2,
    /// Told: its register was empty, or another's.
    First = 3,
    /// Told: it has not got the values that are looked at.
    Unjudged = 4,
    /// Told: the algorithm says so.
    Event = 5,
}

impl Decision {
    /// How many there are.
    pub const COUNT: usize = 6;

    /// Is the packet told of?
    #[inline]
    pub fn is_told(self) -> bool {
        self != Self::Hidden
    }
}

/// What a monitor has decided.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Packets by [`Decision`]; their sum is all packets.
    pub decisions: [u64; Decision::COUNT],
    /// Registers that were taken over from another flow or node.
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
    /// What was told: a value, an average, a digest, or the rules that were true.
    told: u64,
    /// The average, or when it was told.
    other: u64,
}

const OCCUPIED: u64 = 1 << 32;

/// A detector with its registers.
#[derive(Clone, Debug)]
pub struct Monitor {
    detector: Detector,
    registers: Box<[Register]>,
    /// Of a rule: [`Program::used`] for each register.
    cells: Box<[u64]>,
    mask: usize,
    counts: Counts,
}

/// What a key finds in its register.
enum Found<'r> {
    Known(&'r mut Register),
    New(&'r mut Register),
}

impl Monitor {
    /// A detector with `registers` registers (a power of two; 24 bytes each, those of a rule 8 more for each value that it
    /// remembers), all empty.
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
        let size = if detector.algorithm == Algorithm::Noop { 1 } else { registers };
        Ok(Self {
            detector,
            registers: vec![Register { tag: 0, told: 0, other: 0 }; size].into(),
            cells: vec![EMPTY; cells].into(),
            mask: size - 1,
            counts: Counts::default(),
        })
    }

    /// What it looks for.
    pub fn detector(&self) -> &Detector {
        &self.detector
    }

    /// What it has decided.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Empties all registers: what comes next is new.
    pub fn wipe(&mut self) {
        self.registers.fill(Register { tag: 0, told: 0, other: 0 });
        self.cells.fill(EMPTY);
    }

    /// Is a packet of `flow` told of, at `now` (ns of any clock)? Registers move on as the algorithm says. Allocates
    /// nothing.
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

    /// The register at `index`, taken over for `tag` if it is not its own.
    #[inline]
    fn find(&mut self, index: u32, tag: u32) -> Found<'_> {
        let register = &mut self.registers[index as usize & self.mask];
        let tag = OCCUPIED | u64::from(tag);
        if register.tag == tag {
            return Found::Known(register);
        }
        self.counts.collisions += u64::from(register.tag != 0);
        register.tag = tag;
        Found::New(register)
    }

    fn per_hop(&mut self, observation: &Observation<'_>, flow: Option<Crc>) -> Decision {
        let (metric, threshold) = (self.detector.metric, self.detector.threshold);
        let (mut decision, mut judged) = (Decision::Hidden, false);
        for hop in observation.hops {
            let Some(value) = hop.value(metric).map(held) else { continue };
            if hop.node == NO_NODE {
                decision = decision.max(Decision::Unjudged);
                continue;
            }
            judged = true;
            let (index, tag) = match flow {
                None => (Crc::new().word(hop.node).value(), hop.node),
                Some(crc) => {
                    let crc = crc.word(hop.node).value();
                    (crc, crc)
                }
            };
            decision = decision.max(match self.find(index, tag) {
                Found::New(register) => {
                    register.told = value;
                    Decision::First
                }
                Found::Known(register) if register.told.abs_diff(value) > threshold => {
                    register.told = value;
                    Decision::Event
                }
                Found::Known(_) => Decision::Hidden,
            });
        }
        if judged { decision } else { Decision::Unjudged }
    }

    fn per_flow(&mut self, observation: &Observation<'_>, flow: &FlowKey) -> Decision {
        let Some(value) = sum(self.detector.metric, observation) else { return Decision::Unjudged };
        let threshold = self.detector.threshold;
        let crc = flow_crc(flow).value();
        match self.find(crc, crc) {
            Found::New(register) => {
                register.told = value;
                Decision::First
            }
            Found::Known(register) if register.told.abs_diff(value) > threshold => {
                register.told = value;
                Decision::Event
            }
            Found::Known(_) => Decision::Hidden,
        }
    }

    fn moving_average(&mut self, observation: &Observation<'_>, flow: &FlowKey, alpha: u8) -> Decision {
        let Some(value) = sum(self.detector.metric, observation) else { return Decision::Unjudged };
        let threshold = self.detector.threshold.min(LARGEST) << 8;
        let crc = flow_crc(flow).value();
        match self.find(crc, crc) {
            Found::New(register) => {
                register.other = value << 8;
                register.told = register.other;
                Decision::First
            }
            Found::Known(register) => {
                register.other = averaged(register.other, value, alpha);
                if register.told.abs_diff(register.other) <= threshold {
                    return Decision::Hidden;
                }
                register.told = register.other;
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
            Found::New(register) => (register, Decision::First),
            Found::Known(register) if register.told != digest => (register, Decision::Event),
            // A clock that went back makes this long ago.
            Found::Known(register) if now.wrapping_sub(register.other) >= change.keep_alive => {
                (register, Decision::KeepAlive)
            }
            Found::Known(_) => return Decision::Hidden,
        };
        (register.told, register.other) = (digest, now);
        decision
    }

    fn rule(&mut self, observation: &Observation<'_>, flow: &FlowKey) -> Decision {
        let Algorithm::Rule(program) = &self.detector.algorithm else { return Decision::Unjudged };
        let used = program.used as usize;
        let crc = flow_crc(flow).value();
        let at = crc as usize & self.mask;
        let register = &mut self.registers[at];
        let cells = self.cells.get_mut(at * used..(at + 1) * used).unwrap_or_default();
        let tag = OCCUPIED | u64::from(crc);
        let is_new = register.tag != tag;
        if is_new {
            self.counts.collisions += u64::from(register.tag != 0);
            *register = Register { tag, told: 0, other: 0 };
            cells.fill(EMPTY);
        }
        let fired = program.evaluate(observation, cells);
        let before = std::mem::replace(&mut register.told, fired);
        match (fired != 0, is_new, before != 0) {
            (true, ..) => Decision::Event,
            (false, true, _) => Decision::First,
            (false, false, true) => Decision::Ended,
            (false, false, false) => Decision::Hidden,
        }
    }
}

/// A value as registers hold it.
#[inline]
fn held(value: u64) -> u64 {
    value.min(LARGEST)
}

/// The flow's own value, or the sum over the hops that gave it; `None` when none did.
#[inline]
fn sum(metric: Metric, observation: &Observation<'_>) -> Option<u64> {
    if metric == Metric::FlowLatency {
        return observation.flow_latency.map(held);
    }
    let values = observation.hops.iter().filter_map(|hop| hop.value(metric)).map(held);
    values.reduce(|sum, value| held(sum + value))
}

/// The path and the buckets, in 32 bits.
#[inline]
fn digest(observation: &Observation<'_>, change: Change) -> u32 {
    let bucket = |value: u64, bits: u8| match value {
        ABSENT => ABSENT,
        value => value.checked_shr(u32::from(bits)).unwrap_or(0),
    };
    // Their number too: a checksum does not tell leading zeros from nothing.
    let start = Crc::new().word(observation.hops.len() as u32);
    let hops = observation.hops.iter().fold(start, |crc, hop| {
        let latency = bucket(hop.hop_latency, change.latency_bits);
        let queue = bucket(hop.queue_occupancy, change.queue_bits);
        crc.word(hop.node).long(latency).long(queue)
    });
    hops.value()
}
