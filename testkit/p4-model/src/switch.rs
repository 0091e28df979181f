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
use crate::program::{Lookahead, Node, ParserErrors, ParserOp, Pipeline, Primitive, Program, Value};
use crate::table::{ActionCall, Entry, Installed, KeyField, Next, fits, lookup};

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
    /// Default action of each table.
    defaults: Vec<ActionCall>,
    registers: Vec<Vec<u128>>,
    counters: Vec<Vec<u64>>,
    /// Ports of the clone sessions.
    sessions: BTreeMap<u128, u16>,
    /// Replicas of the multicast groups: egress port and `egress_rid`.
    groups: BTreeMap<u128, Vec<(u16, u16)>>,
}

/// Returns whether `name` is the full name or its last part after a dot.
fn is_named(full: &str, name: &str) -> bool {
    full == name || full.rsplit('.').next() == Some(name)
}

/// A packet in a pipeline.
#[derive(Clone)]
struct Packet {
    phv: Phv,
    payload: Vec<u8>,
    /// Maximum length of the frame in bytes, from `truncate`.
    max_len: Option<usize>,
    /// The requested clone; a second request replaces the first.
    clone_request: Option<CloneRequest>,
    /// The field list to keep if the packet is recirculated.
    recirculated_fields: Option<u128>,
}

/// A request to clone the packet to a session, with the metadata of a field list.
#[derive(Clone, Copy)]
struct CloneRequest {
    session: u128,
    fields: u128,
}

/// A frame that enters the parser, with the metadata fields that it starts with.
struct ParserInput {
    frame: Vec<u8>,
    metadata: Vec<(Field, u128)>,
}

/// A packet in the queue.
struct QueuedPacket {
    packet: Packet,
    egress_port: u128,
    instance_type: u128,
}

/// The egress port that means drop in `simple_switch`.
const DROP_PORT: u128 = 511;
// Values of `standard_metadata.instance_type` in `simple_switch`.
const NORMAL: u128 = 0;
const INGRESS_CLONE: u128 = 1;
const EGRESS_CLONE: u128 = 2;
const REPLICATION: u128 = 5;
const RECIRCULATION: u128 = 4;
/// Maximum number of passes for one frame, recirculations included.
const MAX_PASSES: usize = 1000;
/// Bound on clones of clones in one pass. A DTA reporter retransmits up to 256 reports by cloning one after another.
const MAX_CLONES: usize = 1024;
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
                .map(|array| vec![0; array.size])
                .collect(),
            counters: program.counters.iter().map(|array| vec![0; array.size]).collect(),
            sessions: BTreeMap::new(),
            groups: BTreeMap::new(),
            program,
        }
    }

    fn table(&self, name: &str) -> Result<usize, Error> {
        let mut tables = self.program.tables.iter();
        let index = tables.position(|table| is_named(&table.name, name));
        index.ok_or_else(|| Error(format!("there is no table `{name}`")))
    }

    /// Finds an action of a table by name, and checks the number of parameters.
    fn action(&self, table: usize, name: &str, parameters: &[u128]) -> Result<usize, Error> {
        let table = &self.program.tables[table];
        let mut ids = table.actions.iter();
        let id = ids.find(|id| is_named(&self.program.actions[**id].name, name));
        let id = *id.ok_or_else(|| Error(format!("table `{}` has no action `{name}`", table.name)))?;
        let expected = self.program.actions[id].parameters.len();
        if expected != parameters.len() {
            return Err(Error(format!(
                "action `{name}` has {expected} parameters, not {}",
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
                .all(|(key, field)| fits(*key, field.kind));
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
        self.defaults[id] = ActionCall {
            action: self.action(id, action, parameters)?,
            parameters: parameters.to_vec(),
        };
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
        let index = counters.position(|array| is_named(&array.name, name))?;
        Some(&self.counters[index])
    }

    fn register_index(&self, name: &str) -> Option<usize> {
        let mut registers = self.program.registers.iter();
        registers.position(|array| is_named(&array.name, name))
    }

    /// Returns the cells of a register array, or `None` if there is no such array.
    pub fn registers(&self, name: &str) -> Option<&[u128]> {
        Some(&self.registers[self.register_index(name)?])
    }

    /// Returns the cells of a register array for writing, as a control plane does.
    pub fn registers_mut(&mut self, name: &str) -> Option<&mut [u128]> {
        let index = self.register_index(name)?;
        Some(&mut self.registers[index])
    }

    /// Processes a frame. Returns what the switch sends: the packet first, then its copies, then packets of later passes.
    pub fn process(&mut self, frame: &[u8], arrival: &Arrival) -> Vec<Sent> {
        let standard = &self.program.standard;
        let mut inputs = VecDeque::from([ParserInput {
            frame: frame.to_vec(),
            metadata: vec![(standard.ingress_port, u128::from(arrival.port))],
        }]);
        let mut sent = Vec::new();
        for _ in 0..MAX_PASSES {
            let Some(input) = inputs.pop_front() else {
                break;
            };
            sent.extend(self.pass(&input, arrival, &mut inputs));
        }
        sent
    }

    /// Runs one pass of a frame from the parser to the deparser; adds recirculated frames to `inputs`.
    fn pass(
        &mut self,
        input: &ParserInput,
        arrival: &Arrival,
        inputs: &mut VecDeque<ParserInput>,
    ) -> Vec<Sent> {
        let program = Arc::clone(&self.program);
        let standard = &program.standard;
        let frame = &input.frame;
        let mut metadata = input.metadata.clone();
        metadata.push((standard.packet_length, frame.len() as u128));
        let mut packet = self.parse(frame, &metadata);
        packet
            .phv
            .set(standard.ingress_ts, u128::from(arrival.ingress_ts));
        self.verify_checksums(&mut packet);
        self.run(&program.ingress, &mut packet);
        let mut queue: Vec<QueuedPacket> = self.ingress_clone(&mut packet, frame).into_iter().collect();
        let egress_port = packet.phv.get(standard.egress_spec);
        let group = packet.phv.get(standard.mcast_grp);
        if group != 0 {
            // In reverse order, because the queue is emptied from its end.
            for (port, replication_id) in self.groups.get(&group).into_iter().flatten().rev() {
                let mut replica = packet.clone();
                replica.phv.set(standard.egress_rid, u128::from(*replication_id));
                queue.push(QueuedPacket {
                    packet: replica,
                    egress_port: u128::from(*port),
                    instance_type: REPLICATION,
                });
            }
        } else if egress_port != DROP_PORT {
            queue.push(QueuedPacket {
                packet,
                egress_port,
                instance_type: NORMAL,
            });
        }
        let mut sent = Vec::new();
        while let Some(QueuedPacket {
            mut packet,
            egress_port,
            instance_type,
        }) = queue.pop()
        {
            packet.phv.set(standard.egress_port, egress_port);
            packet.phv.set(standard.egress_spec, 0);
            packet.phv.set(standard.instance_type, instance_type);
            packet.phv.set(standard.egress_ts, u128::from(arrival.egress_ts));
            packet
                .phv
                .set(standard.deq_qdepth, u128::from(arrival.deq_qdepth));
            packet
                .phv
                .set(standard.enq_qdepth, u128::from(arrival.deq_qdepth));
            let queue_time = arrival.egress_ts.wrapping_sub(arrival.ingress_ts);
            packet.phv.set(standard.deq_timedelta, u128::from(queue_time));
            self.run(&program.egress, &mut packet);
            if let Some(CloneRequest { session, fields }) = packet.clone_request.take()
                && let Some(port) = self
                    .sessions
                    .get(&session)
                    .filter(|_| sent.len() + queue.len() < MAX_CLONES)
            {
                queue.push(QueuedPacket {
                    packet: self.egress_clone(&packet, fields),
                    egress_port: u128::from(*port),
                    instance_type: EGRESS_CLONE,
                });
            }
            if packet.phv.get(standard.egress_spec) == DROP_PORT {
                continue;
            }
            if let Some(fields) = packet.recirculated_fields {
                let frame = self.deparse(&mut packet);
                let kept_fields = self
                    .kept_fields(fields)
                    .map(|field| (field, packet.phv.get(field)));
                let instance_type = (standard.instance_type, RECIRCULATION);
                inputs.push_back(ParserInput {
                    frame,
                    metadata: kept_fields.chain([instance_type]).collect(),
                });
            } else {
                sent.push(Sent {
                    port: egress_port as u16,
                    frame: self.deparse(&mut packet),
                });
            }
        }
        sent
    }

    /// Makes the ingress clone: the frame as it arrived, parsed again, with only the metadata of the field list.
    fn ingress_clone(&self, packet: &mut Packet, frame: &[u8]) -> Option<QueuedPacket> {
        let CloneRequest { session, fields } = packet.clone_request.take()?;
        let port = *self.sessions.get(&session)?;
        let ingress_port = self.program.standard.ingress_port;
        let mut clone = self.parse(frame, &[(ingress_port, packet.phv.get(ingress_port))]);
        clone.phv.reset_metadata(&self.program.headers);
        for field in self.kept_fields(fields) {
            clone.phv.set(field, packet.phv.get(field));
        }
        Some(QueuedPacket {
            packet: clone,
            egress_port: u128::from(port),
            instance_type: INGRESS_CLONE,
        })
    }

    /// Makes an egress clone: the current headers, and only the metadata of the field list.
    fn egress_clone(&self, packet: &Packet, fields: u128) -> Packet {
        let mut phv = packet.phv.clone();
        phv.reset_metadata(&self.program.headers);
        for field in self.kept_fields(fields) {
            phv.set(field, packet.phv.get(field));
        }
        Packet {
            phv,
            payload: packet.payload.clone(),
            max_len: None,
            clone_request: None,
            recirculated_fields: None,
        }
    }

    /// Returns the metadata fields that a field list keeps.
    fn kept_fields(&self, fields: u128) -> impl Iterator<Item = Field> + '_ {
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
        let mut offset = 0;
        // Number of elements extracted so far, for each stack.
        let mut extracted = vec![0; self.program.stacks.len()];
        let mut state = self.program.first_state;
        let mut error = 0;
        for _ in 0..MAX_STEPS {
            let Some(current) = state.map(|state| &self.program.states[state]) else {
                break;
            };
            let failure = current.ops.iter().find_map(|op| {
                self.parser_op(op, &mut phv, frame, &mut offset, &mut extracted)
                    .err()
            });
            if let Some(code) = failure {
                error = code;
                break;
            }
            let mut key = 0;
            for (value, width) in &current.key {
                key = key << width | self.operand(value, &phv, &extracted);
            }
            let matching = current
                .transitions
                .iter()
                .find(|transition| match transition.value {
                    Some((value, mask)) => key & mask == value & mask,
                    None => true,
                });
            state = matching.and_then(|transition| transition.next);
        }
        phv.set(self.program.standard.parser_error, error);
        Packet {
            phv,
            payload: frame[offset..].to_vec(),
            max_len: None,
            clone_request: None,
            recirculated_fields: None,
        }
    }

    fn operand(&self, value: &Value, phv: &Phv, extracted: &[usize]) -> u128 {
        match value {
            Value::Expression(expression) => expression.value(phv, &[]),
            Value::LastOf(stack, field) => {
                let last = extracted[*stack]
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

    /// Executes one operation of a parser state at byte `offset` of the frame. An error is the program's code for it.
    fn parser_op(
        &self,
        op: &ParserOp,
        phv: &mut Phv,
        frame: &[u8],
        offset: &mut usize,
        extracted: &mut [usize],
    ) -> Result<(), u128> {
        let ParserErrors {
            packet_too_short,
            stack_out_of_bounds,
        } = self.program.errors;
        let rest = &frame[*offset..];
        match op {
            ParserOp::Extract(header) => *offset += phv.extract(*header, rest, 0).ok_or(packet_too_short)?,
            ParserOp::ExtractNext(stack) => {
                let header = self.program.stacks[*stack]
                    .get(extracted[*stack])
                    .ok_or(stack_out_of_bounds)?;
                *offset += phv.extract(*header, rest, 0).ok_or(packet_too_short)?;
                extracted[*stack] += 1;
            }
            ParserOp::ExtractVariable(header, bits) => {
                let bytes = usize::try_from(bits.value(phv, &[]) / 8).unwrap_or(usize::MAX);
                if bytes > rest.len() {
                    return Err(packet_too_short);
                }
                *offset += phv.extract(*header, rest, bytes).ok_or(packet_too_short)?;
            }
            ParserOp::Set(field, value) => {
                let value = self.operand(value, phv, extracted);
                phv.set(*field, value);
            }
            ParserOp::SetLookahead(field, Lookahead { offset, width }) => {
                if rest.len() * 8 < offset + *width as usize {
                    return Err(packet_too_short);
                }
                phv.set(*field, bits(rest, *offset, *width));
            }
        }
        Ok(())
    }

    /// Sets `checksum_error` if a checksum whose condition holds does not match.
    fn verify_checksums(&self, packet: &mut Packet) {
        let is_wrong = self
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
            .set(self.program.standard.checksum_error, u128::from(is_wrong));
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
        frame.truncate(packet.max_len.unwrap_or(usize::MAX));
        frame
    }

    fn run(&mut self, pipeline: &Pipeline, packet: &mut Packet) {
        let mut next = pipeline.first;
        for _ in 0..MAX_STEPS {
            let Some(node) = next.map(|index| &pipeline.nodes[index]) else {
                return;
            };
            next = match node {
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
        let fields = table.keys.iter().map(|KeyField { field, .. }| match field.field {
            VALID => u128::from(packet.phv.is_valid(field.header)),
            _ => packet.phv.get(*field),
        });
        let key: Vec<u128> = fields.collect();
        // A table without keys always misses, and applies its default action.
        let entry = if key.is_empty() {
            None
        } else {
            lookup(&self.entries[id], &key, table)
        };
        let is_hit = entry.is_some();
        let ActionCall { action, parameters } = match entry {
            Some(entry) => ActionCall {
                action: entry.action,
                parameters: entry.parameters.clone(),
            },
            None => self.defaults[id].clone(),
        };
        let next = match &table.next {
            Next::ByHit { hit, miss } => {
                if is_hit {
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
        let mut next = 0;
        for _ in 0..MAX_STEPS {
            let Some(primitive) = program.actions[action].primitives.get(next) else {
                return;
            };
            next += 1;
            match primitive {
                Primitive::Jump(to) => next = *to,
                Primitive::JumpIfZero(condition, to) => {
                    if condition.value(&packet.phv, parameters) == 0 {
                        next = *to;
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
                let width = self.program.registers[*register].width;
                if let Some(cell) = self.registers[*register].get_mut(index) {
                    *cell = value & crate::packet::mask(width);
                }
            }
            Primitive::Truncate(len) => {
                packet.max_len = Some(usize::try_from(len.value(phv, parameters)).unwrap_or(usize::MAX))
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
                packet.clone_request = Some(CloneRequest {
                    session: session.value(phv, parameters),
                    fields: *fields as u128,
                })
            }
            Primitive::Recirculate(fields) => packet.recirculated_fields = Some(*fields as u128),
            Primitive::MarkToDrop => {
                phv.set(self.program.standard.egress_spec, DROP_PORT);
                phv.set(self.program.standard.mcast_grp, 0);
            }
            // `execute` handles jumps.
            Primitive::Jump(_) | Primitive::JumpIfZero(..) => {}
        }
    }
}
