//! The model's `simple_switch`: runs a frame through parser, ingress, queue, egress and deparser.
//!
//! ```text
//! frame ──► parser ──► ingress ──► queue ──► egress ──► deparser ──► Sent
//!             ▲                                            │
//!             └────────────── recirculate ◄────────────────┘
//! ```
//!
//! The caller states times and queue depth in [`Arrival`]. An ingress clone has the headers as they arrived, an egress clone as
//! they are after egress; both enter the queue, and keep only the metadata of their field list.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::field::{Field, VALID};
use crate::load::Error;
use crate::packet::{Phv, bits};
use crate::program::{Node, ParserOp, Pipeline, Primitive, Program, Value};
use crate::table::{Entry, Installed, Next, fits, lookup};

/// The arrival of a packet: its port and times, and the depth of the queue that it passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Port on which the packet arrives.
    pub port: u16,
    /// Time of ingress, in microseconds since the start of the switch.
    pub ingress_ts: u64,
    /// Time of egress, in microseconds since the start of the switch.
    pub egress_ts: u64,
    /// Packets in the queue when the packet is dequeued; the model reports the same depth for the time of enqueueing.
    pub deq_qdepth: u32,
}

/// A packet that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Port on which the packet leaves.
    pub port: u16,
    /// The frame, from its first header on.
    pub frame: Vec<u8>,
}

/// A switch that executes a program.
#[derive(Clone, Debug)]
pub struct Switch {
    program: Arc<Program>,
    /// Entries of each table.
    entries: Vec<Vec<Installed>>,
    /// Default action of each table, with its parameters.
    defaults: Vec<(usize, Vec<u128>)>,
    registers: Vec<Vec<u128>>,
    counters: Vec<Vec<u64>>,
    /// Ports of the clone sessions.
    sessions: BTreeMap<u128, u16>,
    /// Replicas of the multicast groups: egress port and `egress_rid`.
    groups: BTreeMap<u128, Vec<(u16, u16)>>,
}

/// Tells whether `name` is the full name or its last part after a dot.
fn is_named(full: &str, name: &str) -> bool {
    full == name || full.rsplit('.').next() == Some(name)
}

/// A packet in a pipeline.
#[derive(Clone)]
struct Packet {
    phv: Phv,
    payload: Vec<u8>,
    /// Maximum length of the frame in bytes, from `truncate`.
    truncated: Option<usize>,
    /// Session and field list of the requested clone; a second request replaces the first.
    copy: Option<(u128, u128)>,
    /// The field list to keep if the packet is recirculated.
    again: Option<u128>,
}

/// A frame that enters the parser, with the metadata fields that it starts with.
type Arriving = (Vec<u8>, Vec<(Field, u128)>);
/// A packet in the queue, its egress port and its instance type.
type Queued = (Packet, u128, u128);

/// The egress port that means drop in `simple_switch`.
const DROP_PORT: u128 = 511;
// Values of `standard_metadata.instance_type` in `simple_switch`; 0 is a normal packet.
const INGRESS_CLONE: u128 = 1;
const EGRESS_CLONE: u128 = 2;
const REPLICATION: u128 = 5;
const RECIRCULATION: u128 = 4;
/// Maximum number of passes for one frame, recirculations included.
const MAX_PASSES: usize = 1000;
/// Bound on clones of clones in one pass. A DTA reporter retransmits up to 256 reports by cloning one after another.
const MAX_COPIES: usize = 1024;
/// Maximum number of parser states, pipeline nodes or primitives of an action in one run, in case a program loops.
const MAX_STEPS: usize = 100_000;

impl Switch {
    /// Creates a switch with only the entries that the program declares.
    pub fn new(program: impl Into<Arc<Program>>) -> Self {
        let program = program.into();
        Self {
            entries: program.tables.iter().map(|table| table.entries.clone()).collect(),
            defaults: program.tables.iter().map(|table| table.default.clone()).collect(),
            registers: program
                .registers
                .iter()
                .map(|(_, size, _)| vec![0; *size])
                .collect(),
            counters: program.counters.iter().map(|(_, size)| vec![0; *size]).collect(),
            sessions: BTreeMap::new(),
            groups: BTreeMap::new(),
            program,
        }
    }

    fn table(&self, name: &str) -> Result<usize, Error> {
        let mut tables = self.program.tables.iter();
        let found = tables.position(|table| is_named(&table.name, name));
        found.ok_or_else(|| Error(format!("there is no table `{name}`")))
    }

    /// Finds an action of a table by name, and checks the number of parameters.
    fn action(&self, table: usize, name: &str, parameters: &[u128]) -> Result<usize, Error> {
        let table = &self.program.tables[table];
        let mut ids = table.actions.iter();
        let id = ids.find(|id| is_named(&self.program.actions[**id].name, name));
        let id = *id.ok_or_else(|| Error(format!("table `{}` has no action `{name}`", table.name)))?;
        let wanted = self.program.actions[id].parameters.len();
        if wanted != parameters.len() {
            return Err(Error(format!(
                "action `{name}` has {wanted} parameters, not {}",
                parameters.len()
            )));
        }
        Ok(id)
    }

    /// Adds an entry to a table. The last part of the table's name is enough.
    ///
    /// # Errors
    /// There is no such table or action, the key does not fit, or the table is full.
    pub fn insert(&mut self, table: &str, entry: &Entry) -> Result<(), Error> {
        let id = self.table(table)?;
        let action = self.action(id, &entry.action, &entry.parameters)?;
        let table = &self.program.tables[id];
        let all_fit = entry.keys.len() == table.keys.len()
            && entry
                .keys
                .iter()
                .zip(&table.keys)
                .all(|(key, (_, _, kind, _))| fits(*key, *kind));
        if !all_fit {
            return Err(Error(format!("the key does not fit table `{}`", table.name)));
        }
        if self.entries[id].len() >= table.size {
            return Err(Error(format!("table `{}` is full", table.name)));
        }
        self.entries[id].push(Installed {
            keys: entry.keys.clone(),
            priority: entry.priority,
            action,
            parameters: entry.parameters.clone(),
        });
        Ok(())
    }

    /// Removes a table's entries, except those that the program declares.
    ///
    /// # Errors
    /// There is no such table.
    pub fn clear(&mut self, table: &str) -> Result<(), Error> {
        let id = self.table(table)?;
        self.entries[id].clone_from(&self.program.tables[id].entries);
        Ok(())
    }

    /// Sets the default action of a table.
    ///
    /// # Errors
    /// There is no such table or action.
    pub fn set_default(&mut self, table: &str, action: &str, parameters: &[u128]) -> Result<(), Error> {
        let id = self.table(table)?;
        self.defaults[id] = (self.action(id, action, parameters)?, parameters.to_vec());
        Ok(())
    }

    /// Directs the copies of a clone session to a port.
    pub fn set_session(&mut self, session: u32, port: u16) {
        self.sessions.insert(u128::from(session), port);
    }

    /// Sets the replicas of a multicast group: pairs of egress port and replication id (`egress_rid`).
    pub fn set_group(&mut self, group: u16, replicas: &[(u16, u16)]) {
        self.groups.insert(u128::from(group), replicas.to_vec());
    }

    /// Returns the packet counts of a counter array, or `None` if there is no such counter.
    pub fn counter(&self, name: &str) -> Option<&[u64]> {
        let mut counters = self.program.counters.iter();
        let found = counters.position(|(full, _)| is_named(full, name))?;
        Some(&self.counters[found])
    }

    fn register(&self, name: &str) -> Option<usize> {
        let mut registers = self.program.registers.iter();
        registers.position(|(full, ..)| is_named(full, name))
    }

    /// Returns the cells of a register array, or `None` if there is no such array.
    pub fn registers(&self, name: &str) -> Option<&[u128]> {
        Some(&self.registers[self.register(name)?])
    }

    /// Returns the cells of a register array for writing, as a control plane does.
    pub fn registers_mut(&mut self, name: &str) -> Option<&mut [u128]> {
        let found = self.register(name)?;
        Some(&mut self.registers[found])
    }

    /// Processes a frame. Returns what the switch sends: the packet first, then its copies, then packets of later passes.
    pub fn process(&mut self, frame: &[u8], arrival: &Arrival) -> Vec<Sent> {
        let standard = &self.program.standard;
        let first = vec![(standard.ingress_port, u128::from(arrival.port))];
        let mut arriving = VecDeque::from([(frame.to_vec(), first)]);
        let mut sent = Vec::new();
        for _ in 0..MAX_PASSES {
            let Some((frame, metadata)) = arriving.pop_front() else {
                break;
            };
            sent.extend(self.pass(&frame, &metadata, arrival, &mut arriving));
        }
        sent
    }

    /// Runs one pass of a frame from the parser to the deparser; adds recirculated frames to `again`.
    fn pass(
        &mut self,
        frame: &[u8],
        metadata: &[(Field, u128)],
        arrival: &Arrival,
        again: &mut VecDeque<Arriving>,
    ) -> Vec<Sent> {
        let program = Arc::clone(&self.program);
        let standard = &program.standard;
        let known = [metadata, &[(standard.packet_length, frame.len() as u128)]].concat();
        let mut packet = self.parse(frame, &known);
        packet
            .phv
            .set(standard.ingress_ts, u128::from(arrival.ingress_ts));
        self.verify_checksums(&mut packet);
        self.run(&program.ingress, &mut packet);
        let mut queue: Vec<Queued> = self.copied_at_ingress(&mut packet, frame).into_iter().collect();
        let port = packet.phv.get(standard.egress_spec);
        let group = packet.phv.get(standard.mcast_grp);
        if group != 0 {
            // In reverse order, because the queue is emptied from its end.
            for (port, number) in self.groups.get(&group).into_iter().flatten().rev() {
                let mut replica = packet.clone();
                replica.phv.set(standard.egress_rid, u128::from(*number));
                queue.push((replica, u128::from(*port), REPLICATION));
            }
        } else if port != DROP_PORT {
            queue.push((packet, port, 0));
        }
        let mut sent = Vec::new();
        while let Some((mut packet, port, instance)) = queue.pop() {
            packet.phv.set(standard.egress_port, port);
            packet.phv.set(standard.egress_spec, 0);
            packet.phv.set(standard.instance_type, instance);
            packet.phv.set(standard.egress_ts, u128::from(arrival.egress_ts));
            packet
                .phv
                .set(standard.deq_qdepth, u128::from(arrival.deq_qdepth));
            packet
                .phv
                .set(standard.enq_qdepth, u128::from(arrival.deq_qdepth));
            let waited = arrival.egress_ts.wrapping_sub(arrival.ingress_ts);
            packet.phv.set(standard.deq_timedelta, u128::from(waited));
            self.run(&program.egress, &mut packet);
            if let Some((session, fields)) = packet.copy.take()
                && let Some(port) = self
                    .sessions
                    .get(&session)
                    .filter(|_| sent.len() + queue.len() < MAX_COPIES)
            {
                queue.push((self.copied(&packet, fields), u128::from(*port), EGRESS_CLONE));
            }
            if packet.phv.get(standard.egress_spec) == DROP_PORT {
                continue;
            }
            if let Some(fields) = packet.again {
                let frame = self.deparse(&mut packet);
                let kept = self.kept(fields).map(|field| (field, packet.phv.get(field)));
                again.push_back((
                    frame,
                    kept.chain([(standard.instance_type, RECIRCULATION)]).collect(),
                ));
            } else {
                sent.push(Sent {
                    port: port as u16,
                    frame: self.deparse(&mut packet),
                });
            }
        }
        sent
    }

    /// Makes the ingress clone: the frame as it arrived, parsed again, with only the metadata of the field list.
    fn copied_at_ingress(&self, packet: &mut Packet, frame: &[u8]) -> Option<Queued> {
        let (session, fields) = packet.copy.take()?;
        let port = *self.sessions.get(&session)?;
        let port_of_arrival = self.program.standard.ingress_port;
        let mut copy = self.parse(frame, &[(port_of_arrival, packet.phv.get(port_of_arrival))]);
        copy.phv.reset_metadata(&self.program.headers);
        for field in self.kept(fields) {
            copy.phv.set(field, packet.phv.get(field));
        }
        Some((copy, u128::from(port), INGRESS_CLONE))
    }

    /// Makes an egress clone: the current headers, and only the metadata of the field list.
    fn copied(&self, packet: &Packet, fields: u128) -> Packet {
        let mut phv = packet.phv.clone();
        phv.reset_metadata(&self.program.headers);
        for field in self.kept(fields) {
            phv.set(field, packet.phv.get(field));
        }
        Packet {
            phv,
            payload: packet.payload.clone(),
            truncated: None,
            copy: None,
            again: None,
        }
    }

    /// Returns the metadata fields that a field list keeps.
    fn kept(&self, fields: u128) -> impl Iterator<Item = Field> + '_ {
        self.program
            .field_lists
            .get(&fields)
            .into_iter()
            .flatten()
            .copied()
    }

    /// Runs the parser. An error stops it and is stored in `parser_error`; the headers extracted so far stay valid.
    fn parse(&self, frame: &[u8], metadata: &[(Field, u128)]) -> Packet {
        let mut phv = Phv::new(&self.program.headers);
        metadata.iter().for_each(|(field, value)| phv.set(*field, *value));
        let mut at = 0;
        // Number of elements extracted so far, for each stack.
        let mut next = vec![0; self.program.stacks.len()];
        let mut state = self.program.first_state;
        let mut error = 0;
        for _ in 0..MAX_STEPS {
            let Some(now) = state.map(|state| &self.program.states[state]) else {
                break;
            };
            let failed = now
                .ops
                .iter()
                .find_map(|op| self.parser_op(op, &mut phv, frame, &mut at, &mut next).err());
            if let Some(failed) = failed {
                error = failed;
                break;
            }
            let mut key = 0;
            for (value, width) in &now.key {
                key = key << width | self.operand(value, &phv, &next);
            }
            let fitting = now.transitions.iter().find(|transition| match transition.value {
                Some((value, mask)) => key & mask == value & mask,
                None => true,
            });
            state = fitting.and_then(|transition| transition.next);
        }
        phv.set(self.program.standard.parser_error, error);
        Packet {
            phv,
            payload: frame[at..].to_vec(),
            truncated: None,
            copy: None,
            again: None,
        }
    }

    fn operand(&self, value: &Value, phv: &Phv, next: &[usize]) -> u128 {
        match value {
            Value::Expression(expression) => expression.value(phv, &[]),
            Value::LastOf(stack, field) => {
                let last = next[*stack]
                    .checked_sub(1)
                    .and_then(|last| self.program.stacks[*stack].get(last));
                last.map_or(0, |&header| {
                    phv.get(Field {
                        header,
                        field: *field,
                    })
                })
            }
        }
    }

    /// Executes one operation of a parser state at byte `at` of the frame. An error is the program's code for it.
    fn parser_op(
        &self,
        op: &ParserOp,
        phv: &mut Phv,
        frame: &[u8],
        at: &mut usize,
        next: &mut [usize],
    ) -> Result<(), u128> {
        let [short, out_of_bounds] = self.program.errors;
        let rest = &frame[*at..];
        match op {
            ParserOp::Extract(header) => *at += phv.extract(*header, rest, 0).ok_or(short)?,
            ParserOp::ExtractNext(stack) => {
                let header = self.program.stacks[*stack]
                    .get(next[*stack])
                    .ok_or(out_of_bounds)?;
                *at += phv.extract(*header, rest, 0).ok_or(short)?;
                next[*stack] += 1;
            }
            ParserOp::ExtractVariable(header, bits) => {
                let bytes = usize::try_from(bits.value(phv, &[]) / 8).unwrap_or(usize::MAX);
                if bytes > rest.len() {
                    return Err(short);
                }
                *at += phv.extract(*header, rest, bytes).ok_or(short)?;
            }
            ParserOp::Set(field, value) => {
                let value = self.operand(value, phv, next);
                phv.set(*field, value);
            }
            ParserOp::SetLookahead(field, from, width) => {
                if rest.len() * 8 < (from + width) as usize {
                    return Err(short);
                }
                phv.set(*field, bits(rest, *from as usize, *width));
            }
        }
        Ok(())
    }

    /// Sets `checksum_error` if a checksum whose condition holds does not match.
    fn verify_checksums(&self, packet: &mut Packet) {
        let wrong = self
            .program
            .checksums
            .iter()
            .filter(|checksum| checksum.verify)
            .any(|checksum| {
                let applies = checksum
                    .condition
                    .as_ref()
                    .is_none_or(|condition| condition.value(&packet.phv, &[]) != 0);
                let calculation = &self.program.calculations[checksum.calculation];
                applies && calculation.value(&self.program, &packet.phv) != packet.phv.get(checksum.target)
            });
        packet
            .phv
            .set(self.program.standard.checksum_error, u128::from(wrong));
    }

    /// Updates the checksums, then emits the valid headers and the payload, cut to the truncated length.
    fn deparse(&self, packet: &mut Packet) -> Vec<u8> {
        for checksum in self.program.checksums.iter().filter(|checksum| checksum.update) {
            if checksum
                .condition
                .as_ref()
                .is_none_or(|condition| condition.value(&packet.phv, &[]) != 0)
            {
                let value = self.program.calculations[checksum.calculation].value(&self.program, &packet.phv);
                packet.phv.set(checksum.target, value);
            }
        }
        let mut frame = Vec::new();
        self.program
            .deparser
            .iter()
            .for_each(|header| packet.phv.emit(*header, &mut frame));
        frame.extend_from_slice(&packet.payload);
        frame.truncate(packet.truncated.unwrap_or(usize::MAX));
        frame
    }

    fn run(&mut self, pipeline: &Pipeline, packet: &mut Packet) {
        let mut at = pipeline.first;
        for _ in 0..MAX_STEPS {
            let Some(node) = at.map(|at| &pipeline.nodes[at]) else {
                return;
            };
            at = match node {
                Node::If { condition, yes, no } => {
                    if condition.value(&packet.phv, &[]) != 0 {
                        *yes
                    } else {
                        *no
                    }
                }
                Node::Table(table) => self.apply(*table, packet),
            };
        }
    }

    /// Applies a table, and returns the next node.
    fn apply(&mut self, id: usize, packet: &mut Packet) -> Option<usize> {
        let table = &self.program.tables[id];
        let fields = table.keys.iter().map(|(_, field, _, _)| match field.field {
            VALID => u128::from(packet.phv.is_valid(field.header)),
            _ => packet.phv.get(*field),
        });
        let key: Vec<u128> = fields.collect();
        // A table without keys always misses, and applies its default action.
        let found = if key.is_empty() {
            None
        } else {
            lookup(&self.entries[id], &key, table)
        };
        let hits = found.is_some();
        let (action, parameters) = match found {
            Some(entry) => (entry.action, entry.parameters.clone()),
            None => self.defaults[id].clone(),
        };
        let next = match &table.next {
            Next::ByHit { hit, miss } => {
                if hits {
                    *hit
                } else {
                    *miss
                }
            }
            Next::ByAction(next) => next.get(&action).copied().flatten(),
        };
        self.execute(action, &parameters, packet);
        next
    }

    fn execute(&mut self, action: usize, parameters: &[u128], packet: &mut Packet) {
        let program = Arc::clone(&self.program);
        let mut line = 0;
        for _ in 0..MAX_STEPS {
            let Some(primitive) = program.actions[action].primitives.get(line) else {
                return;
            };
            line += 1;
            match primitive {
                Primitive::Jump(to) => line = *to,
                Primitive::JumpIfZero(condition, to) => {
                    if condition.value(&packet.phv, parameters) == 0 {
                        line = *to;
                    }
                }
                other => self.primitive(other, parameters, packet),
            }
        }
    }

    fn primitive(&mut self, primitive: &Primitive, parameters: &[u128], packet: &mut Packet) {
        let phv = &mut packet.phv;
        match primitive {
            Primitive::Assign(field, value) => {
                let value = value.value(phv, parameters);
                phv.set(*field, value);
            }
            Primitive::AssignVariable(to, from) => {
                let bytes = phv.variable(from.header).to_vec();
                phv.set_variable(to.header, bytes);
            }
            Primitive::AssignHeader(to, from) => phv.copy(*to, *from),
            Primitive::SetValid(header, valid) => phv.set_valid(*header, *valid),
            Primitive::RegisterRead(to, register, index) => {
                let index = usize::try_from(index.value(phv, parameters)).unwrap_or(usize::MAX);
                phv.set(*to, self.registers[*register].get(index).copied().unwrap_or(0));
            }
            Primitive::RegisterWrite(register, index, value) => {
                let index = usize::try_from(index.value(phv, parameters)).unwrap_or(usize::MAX);
                let value = value.value(phv, parameters);
                let width = self.program.registers[*register].2;
                if let Some(cell) = self.registers[*register].get_mut(index) {
                    *cell = value & crate::packet::mask(width);
                }
            }
            Primitive::Truncate(len) => {
                packet.truncated = Some(usize::try_from(len.value(phv, parameters)).unwrap_or(usize::MAX))
            }
            Primitive::Hash {
                target,
                base,
                calculation,
                size,
            } => {
                let hash = self.program.calculations[*calculation].value(&self.program, phv);
                let value =
                    base.value(phv, parameters) + hash.checked_rem(size.value(phv, parameters)).unwrap_or(0);
                phv.set(*target, value);
            }
            Primitive::Count(counter, index) => {
                let index = usize::try_from(index.value(phv, parameters)).unwrap_or(usize::MAX);
                if let Some(count) = self.counters[*counter].get_mut(index) {
                    *count += 1;
                }
            }
            Primitive::CloneIngress { session, fields } | Primitive::CloneEgress { session, fields } => {
                packet.copy = Some((session.value(phv, parameters), *fields as u128))
            }
            Primitive::Recirculate(fields) => packet.again = Some(*fields as u128),
            Primitive::MarkToDrop => {
                phv.set(self.program.standard.egress_spec, DROP_PORT);
                phv.set(self.program.standard.mcast_grp, 0);
            }
            // `execute` handles jumps.
            Primitive::Jump(_) | Primitive::JumpIfZero(..) => {}
        }
    }
}
