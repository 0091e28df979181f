//! SF-INT in a switch (Xiong et al., APNet 2024; wire-formats section 3). A packet has a constant size and carries the record
//! of one node; each node swaps the arriving record with the one in its register, by nine rules.
//!
//! - [`RULES`] is Table 1 of the paper as a match table: it maps arrival state and register state to three actions. It depends
//!   on nothing else, so a P4 program can contain the same sixteen entries.
//! - [`Registers`] stores one record per flow, at the index given by the low bits of the flow's CRC-32C, with the whole CRC as
//!   a tag. A register with another flow, with other instructions, or with a record that is too old counts as empty, and the
//!   rule overwrites it. [`Config::single`] selects the form of the paper: one register for all flows.
//! - A source also numbers packets per flow: a set is identified by flow and packet ID, and with a common counter the IDs of a
//!   rare flow could soon repeat. A flow that finds another flow's counter in its place continues from the source's own
//!   counter, so that two flows that share a counter do not reuse each other's IDs.

use wire::int::Sf;
use wire::int::sf::State;
use wire::{FlowKey, checksum};

/// Maximum length of a record, bytes: all items except the checksum complement, three of them with two words.
pub const MAX_RECORD: usize = 18 * 4;
/// Maximum number of registers.
pub const MAX_REGISTERS: usize = 1 << 20;

/// The SF-INT configuration of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of registers: a power of two, up to 2^20.
    pub registers: usize,
    /// Whether all flows share one register and one counter, as in the paper.
    pub single: bool,
    /// Maximum age of a record in a register, ns. Older records are not sent.
    pub aging: u64,
    /// Contents of the sink's report.
    pub form: Form,
    /// Conditions under which a source marks packets as urgent.
    pub urgent: Urgent,
}

impl Default for Config {
    /// Returns 1024 registers, an age of one second, whole reports, and no urgent packets.
    fn default() -> Self {
        Self {
            registers: 1024,
            single: false,
            aging: 1_000_000_000,
            form: Form::Full,
            urgent: Urgent::default(),
        }
    }
}

settings::choice! {
    /// Contents of a sink's report of an SF packet (wire-formats 3.7), besides the sink's own record.
    pub enum Form("\"full\", \"compact\" or \"stack\"") {
        /// The packet up to its ports, including INT.
        Full = "full",
        /// INT header and record only: the report has no flow, so a collector cannot tell several flows apart.
        Compact = "compact",
        /// The packet as in `Full`, with the sink's record on its stack before the carried record.
        Stack = "stack",
    }
}

/// Conditions under which a source sets U. The packet then collects all records, like one of plain INT-MD, and grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Urgent {
    /// Interval between urgent packets of a flow, in packets, from 1; `None` disables this condition.
    pub every: Option<u32>,
    /// Minimum occupancy of the source's queue, in queue units, for a packet to be urgent; `None` disables this condition.
    pub queue: Option<u32>,
}

/// The record that leaves with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The record that arrived.
    Arrival,
    /// The record from the register.
    Register,
    /// The record of this node.
    Local,
}

/// One rule of Table 1, with its actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Number of the rule in Table 1.
    pub number: u8,
    /// The record that leaves, and the state that it gets.
    pub forward: (Forward, State),
    /// State in which the arriving record is stored; `None` leaves the register empty.
    pub stored_after: Option<State>,
}

/// Table 1, indexed by arrival state (1 to 3) and register state (0 is empty). Packets with arrival state 0 are refused
/// earlier.
pub const RULES: [[Rule; 4]; 4] = {
    use Forward::{Arrival, Local, Register};
    use State::{High, Low, Medium};
    const fn rule(number: u8, forward: (Forward, State), stored_after: Option<State>) -> Rule {
        Rule {
            number,
            forward,
            stored_after,
        }
    }
    // A register never contains a record in state medium, because no rule stores one.
    const NONE: Rule = rule(0, (Arrival, Low), None);
    [
        [NONE; 4],
        [
            rule(9, (Arrival, Low), None),
            rule(8, (Register, Low), Some(Low)),
            NONE,
            rule(7, (Register, High), Some(Low)),
        ],
        [
            rule(3, (Local, Medium), Some(High)),
            rule(2, (Local, Medium), Some(High)),
            NONE,
            rule(1, (Register, High), Some(Low)),
        ],
        [
            rule(6, (Arrival, High), None),
            rule(5, (Register, Low), Some(Low)),
            NONE,
            rule(4, (Register, High), Some(High)),
        ],
    ]
};

/// A record and its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// State of the record.
    pub state: State,
    /// Packet ID of the record's packet.
    pub packet_id: u16,
    /// Instruction bitmap for which the record was written.
    pub bitmap: u16,
    /// Time at which the record entered the register, ns of the switch's clock.
    pub since: u64,
    /// The bytes of the record.
    pub record: &'a [u8],
}

/// The register of a flow. It fits one cache line, except for the longest records.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Register {
    since: u64,
    tag: u32,
    packet_id: u16,
    bitmap: u16,
    /// State of the record; 0 means that the register is empty.
    state: u8,
    len: u8,
    record: [u8; MAX_RECORD],
}

impl Register {
    const EMPTY: Self = Self {
        since: 0,
        tag: 0,
        packet_id: 0,
        bitmap: 0,
        state: 0,
        len: 0,
        record: [0; MAX_RECORD],
    };
}

/// Packet counter of a flow at a source.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    is_used: bool,
    tag: u32,
    next: u16,
    /// Number of packets until the next urgent one.
    until_urgent: u32,
}

/// Packet ID and urgency that a source assigns to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketNumber {
    pub(crate) packet_id: u16,
    pub(crate) urgent: bool,
}

/// An SF-INT packet that arrives at a node.
pub(crate) struct Arrival<'a> {
    pub(crate) tag: u32,
    pub(crate) sf: Sf,
    pub(crate) bitmap: u16,
    /// The carried record, at most [`MAX_RECORD`] bytes; overwritten by the record that leaves.
    pub(crate) record: &'a mut [u8],
    pub(crate) now: u64,
}

/// Result of processing an SF-INT packet at a node.
pub(crate) struct SwapResult {
    pub(crate) rule: Rule,
    /// New contents of the SF-INT header.
    pub(crate) sf: Sf,
    /// Word sums of the two records.
    pub(crate) sums: RecordSums,
}

/// Word sums (see [`checksum::update_by_sum`]) of the records of a swap; 0 if both are the same record.
#[derive(Clone, Copy, Default)]
pub(crate) struct RecordSums {
    /// Sum of the record that arrived.
    pub(crate) arrived: u64,
    /// Sum of the record that leaves.
    pub(crate) departed: u64,
}

/// The registers and packet counters of a switch.
#[derive(Debug)]
pub struct Registers {
    config: Config,
    registers: Vec<Register>,
    counters: Vec<Counter>,
    /// Counter of all packets of the source.
    sent: u16,
}

/// Returns the tag of a flow, the CRC-32C of its 5-tuple. The low bits select its register.
#[inline]
pub fn tag(flow: &FlowKey) -> u32 {
    flow.flow_id()
}

impl Registers {
    /// Creates registers that hold no value.
    pub fn new(config: Config) -> Self {
        let count = if config.single { 1 } else { config.registers };
        Self {
            config,
            registers: vec![Register::EMPTY; count],
            counters: vec![Counter::default(); count],
            sent: 0,
        }
    }

    /// Clears all registers. The counters continue.
    pub fn wipe(&mut self) {
        self.registers.iter_mut().for_each(|register| register.state = 0);
    }

    /// Returns the configuration of the registers.
    pub fn config(&self) -> &Config {
        &self.config
    }

    #[inline]
    fn index(&self, tag: u32) -> usize {
        tag as usize & (self.registers.len() - 1)
    }

    /// Returns the tag to compare: with `single`, all flows have the same tag.
    #[inline]
    fn tag(&self, tag: u32) -> u32 {
        if self.config.single { 0 } else { tag }
    }

    /// Returns the record in the register of a flow, whatever its age; `None` if the register is empty or contains another
    /// flow.
    pub fn get(&self, flow: &FlowKey) -> Option<Entry<'_>> {
        let tag = self.tag(tag(flow));
        let register = &self.registers[self.index(tag)];
        let state = State::from_bits(register.state).filter(|_| register.tag == tag)?;
        let Register {
            packet_id,
            bitmap,
            since,
            ..
        } = *register;
        Some(Entry {
            state,
            packet_id,
            bitmap,
            since,
            record: &register.record[..usize::from(register.len)],
        })
    }

    /// Writes a record into the register of a flow, which other flows may share. Returns `false` if the record is too long.
    pub fn put(&mut self, flow: &FlowKey, entry: &Entry<'_>) -> bool {
        if entry.record.len() > MAX_RECORD {
            return false;
        }
        let tag = self.tag(tag(flow));
        let index = self.index(tag);
        let register = &mut self.registers[index];
        let Entry {
            packet_id,
            bitmap,
            since,
            ..
        } = *entry;
        register.record[..entry.record.len()].copy_from_slice(entry.record);
        *register = Register {
            since,
            tag,
            packet_id,
            bitmap,
            state: entry.state as u8,
            len: entry.record.len() as u8,
            ..*register
        };
        true
    }

    /// Assigns the packet ID of a packet of this flow, and decides whether it is urgent.
    #[inline]
    pub(crate) fn assign_packet_id(&mut self, tag: u32, queue: u32) -> PacketNumber {
        let tag = self.tag(tag);
        let index = self.index(tag);
        let Config { urgent, .. } = self.config;
        self.sent = self.sent.wrapping_add(1);
        let counter = &mut self.counters[index];
        if counter.tag != tag || !counter.is_used {
            let until_urgent = urgent.every.map_or(0, |every| every.max(1));
            *counter = Counter {
                is_used: true,
                tag,
                next: self.sent,
                until_urgent,
            };
        }
        let packet_id = counter.next;
        counter.next = counter.next.wrapping_add(1);
        counter.until_urgent = counter.until_urgent.wrapping_sub(1);
        let is_due = urgent.every.is_some() && counter.until_urgent == 0;
        if is_due {
            counter.until_urgent = urgent.every.map_or(0, |every| every.max(1));
        }
        PacketNumber {
            packet_id,
            urgent: is_due || urgent.queue.is_some_and(|limit| queue >= limit),
        }
    }

    /// Applies the rule for a packet that is not urgent. The record in `arrival` becomes the one that leaves. For rules 2 and
    /// 3, which send the local record, `write` writes it and returns its word sum.
    #[inline(always)]
    pub(crate) fn swap(&mut self, arrival: Arrival<'_>, write: impl FnOnce(&mut [u8]) -> u64) -> SwapResult {
        let Arrival {
            sf,
            bitmap,
            record,
            now,
            ..
        } = arrival;
        let tag = self.tag(arrival.tag);
        let index = self.index(tag);
        let aging = self.config.aging;
        let register = &mut self.registers[index];
        // If the clock was set back, the age counts as 0.
        let is_fresh = now.saturating_sub(register.since) <= aging;
        let is_same_flow = register.tag == tag && register.bitmap == bitmap && is_fresh;
        let stored_state = if is_same_flow {
            usize::from(register.state & 3)
        } else {
            0
        };
        let rule = RULES[usize::from(sf.state as u8)][stored_state];
        let (forward, state) = rule.forward;
        let packet_id = if forward == Forward::Register {
            register.packet_id
        } else {
            sf.packet_id
        };
        let departing_sf = Sf {
            urgent: false,
            state,
            packet_id,
        };
        let len = record.len().min(MAX_RECORD);
        let record = &mut record[..len];
        let slot = &mut register.record[..len];
        let Some(stored_after) = rule.stored_after else {
            // The register was empty, too old, or of another flow: this rule leaves it empty.
            register.state = 0;
            return SwapResult {
                rule,
                sf: departing_sf,
                sums: RecordSums::default(),
            };
        };
        let sums = if forward == Forward::Local {
            slot.copy_from_slice(record);
            RecordSums {
                arrived: checksum::words(slot),
                departed: write(record),
            }
        } else {
            swap_records(slot, record)
        };
        register.tag = tag;
        register.bitmap = bitmap;
        register.packet_id = sf.packet_id;
        register.state = stored_after as u8;
        register.len = len as u8;
        register.since = now;
        SwapResult {
            rule,
            sf: departing_sf,
            sums,
        }
    }
}

/// Swaps the record in a register with the one of a packet.
#[inline(always)]
fn swap_records(register: &mut [u8], packet: &mut [u8]) -> RecordSums {
    let mut sums = RecordSums::default();
    let words = register.as_chunks_mut::<4>().0.iter_mut();
    for (register_word, packet_word) in words.zip(packet.as_chunks_mut::<4>().0) {
        std::mem::swap(register_word, packet_word);
        let arrived = u32::from_be_bytes(*register_word);
        let departed = u32::from_be_bytes(*packet_word);
        sums.arrived = sums.arrived.wrapping_add(u64::from(arrived));
        sums.departed = sums.departed.wrapping_add(u64::from(departed));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 1, line by line, as the paper has it.
    #[test]
    fn the_rules_are_those_of_table_1() {
        const TABLE: [&str; 9] = [
            "1 M(A) H(S) H(S) L(A)",
            "2 M(A) L(S) M(C) H(A)",
            "3 M(A) E() M(C) H(A)",
            "4 H(A) H(S) H(S) H(A)",
            "5 H(A) L(S) L(S) L(A)",
            "6 H(A) E() H(A) E()",
            "7 L(A) H(S) H(S) L(A)",
            "8 L(A) L(S) L(S) L(A)",
            "9 L(A) E() L(A) E()",
        ];
        let letter = |state: State| state.name()[..1].to_uppercase();
        let mut lines = Vec::new();
        for (arrival, row) in RULES.iter().enumerate() {
            for (stored_state, rule) in row.iter().enumerate().filter(|(_, rule)| rule.number != 0) {
                let arrival = letter(State::from_bits(arrival as u8).unwrap());
                let stored_state = State::from_bits(stored_state as u8)
                    .map_or("E()".to_owned(), |s| format!("{}(S)", letter(s)));
                let contents = match rule.forward.0 {
                    Forward::Arrival => 'A',
                    Forward::Register => 'S',
                    Forward::Local => 'C',
                };
                let forward = format!("{}({contents})", letter(rule.forward.1));
                let stored_after = rule
                    .stored_after
                    .map_or("E()".to_owned(), |s| format!("{}(A)", letter(s)));
                lines.push(format!(
                    "{} {arrival}(A) {stored_state} {forward} {stored_after}",
                    rule.number
                ));
            }
        }
        lines.sort();
        assert_eq!(lines, TABLE);
    }

    fn flow(src_port: u16) -> FlowKey {
        FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((src_port, 80)), 17)
    }

    #[test]
    fn numbers_are_each_flows_own_and_come_round_to_the_sources() {
        let mut registers = Registers::new(Config {
            registers: 1,
            ..Config::default()
        });
        let [a, b] = [tag(&flow(1)), tag(&flow(2))];
        let mut number = |tag| registers.assign_packet_id(tag, 0).packet_id;
        assert_eq!([number(a), number(a), number(a)], [1, 2, 3]);
        // Both flows use one counter now: no number is used again.
        assert_eq!([number(b), number(a), number(b), number(b)], [4, 5, 6, 7]);
        let mut two = Registers::new(Config {
            registers: 1024,
            ..Config::default()
        });
        assert_eq!(
            [
                two.assign_packet_id(a, 0).packet_id,
                two.assign_packet_id(b, 0).packet_id
            ],
            [1, 2]
        );
        assert_eq!(
            [
                two.assign_packet_id(a, 0).packet_id,
                two.assign_packet_id(b, 0).packet_id
            ],
            [2, 3]
        );
    }

    #[test]
    fn urgent_packets_occur_at_the_configured_rate() {
        let urgent = Urgent {
            every: Some(3),
            queue: Some(100),
        };
        let mut registers = Registers::new(Config {
            urgent,
            ..Config::default()
        });
        let a = tag(&flow(1));
        let got: Vec<bool> = (0..7).map(|_| registers.assign_packet_id(a, 99).urgent).collect();
        assert_eq!(got, [false, false, true, false, false, true, false]);
        assert!(registers.assign_packet_id(a, 100).urgent);
    }
}
