//! Match and action: a report for which the conditions hold appends an entry to a list, in addition to its own operation. The
//! paper's alternative (5.1, footnote) to collectors that filter during collection.

use wire::dta::{Operation, Report};

/// Maximum number of triggers.
pub const MAX_TRIGGERS: usize = 64;
/// Maximum number of comparisons of one trigger.
pub const MAX_CONDITIONS: usize = 8;
/// Maximum number of parts of an entry.
pub const MAX_PARTS: usize = 16;
/// Maximum number of bytes of an entry that a trigger makes.
pub const MAX_ENTRY: usize = 256;

/// The matched reports, and the entry that they append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// Reports of this primitive (wire-formats 5.3: 1 Key-Write, 2 Append, 3 Key-Increment, 4 Postcarding, 5 Sketch-Merge).
    pub opcode: u8,
    /// Reports for this collector; for all when `None`.
    pub collector: Option<u8>,
    /// Reports for this store, list or sketch; for all when `None`.
    pub target: Option<u32>,
    /// All of these hold. For an Append each entry is checked, for other primitives the report.
    pub conditions: Vec<Condition>,
    /// The list that gets an entry, in the same collector's memory.
    pub list: u32,
    /// The parts of the entry, in order; together as long as the list's entries.
    pub entry: Vec<Part>,
    /// Send an immediate value to the collector's CPU at once.
    pub immediate: bool,
    /// Shortest time between two entries of this trigger, ns; 0: no limit.
    pub interval: u64,
}

/// A comparison of a field with a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The compared field. If the report does not have it, the condition is false.
    pub field: Field,
    /// Bits of it that are compared.
    pub mask: u64,
    /// The relation that must hold.
    pub relation: Relation,
    /// The value that it is compared with.
    pub value: u64,
}

/// A number in a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// The ID of the reporter.
    Reporter,
    /// The priority, 0 to 2.
    Priority,
    /// 1 if the report is essential.
    Essential,
    /// 1 if the report requests an immediate notification.
    Immediate,
    /// Key-Increment: the amount added. Postcarding: the hop's value. Others have none.
    Value,
    /// Postcarding: number of the hop.
    Hop,
    /// Postcarding: the number of hops of the path, 0 if unknown.
    PathLen,
    /// Bytes of the key, as a number, most significant first: offset and length (1 to 8).
    Key(u8, u8),
    /// Bytes of the data, the entry, or a column's counters likewise.
    Data(u16, u8),
}

/// A relation between a field and a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The field is equal.
    Equal,
    /// The field is not equal.
    NotEqual,
    /// The field is less.
    Less,
    /// The field is less or equal.
    LessOrEqual,
    /// The field is greater.
    Greater,
    /// The field is greater or equal.
    GreaterOrEqual,
}

/// A piece of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A field and its length in bytes (1 to 8), most significant first; 0 if the report has none.
    Field(Field, u8),
    /// Offset and length of a part of the key; zeros after its end.
    Key(u8, u8),
    /// Offset and length of a part of the data; zeros after its end.
    Data(u16, u16),
    /// The time at which the report was processed, 8 bytes, ns, most significant first.
    Time,
    /// A constant and its length in bytes (1 to 8), most significant first.
    Constant(u64, u8),
}

/// Writes the low bytes of a number, most significant first.
fn write_number(place: &mut [u8], number: u64) {
    let bytes = number.to_be_bytes();
    let len = place.len().min(8);
    place[..len].copy_from_slice(&bytes[8 - len..]);
}

/// Copies as many bytes as are present.
fn copy(place: &mut [u8], from: &[u8], at: usize) {
    let from = from.get(at..).unwrap_or(&[]);
    let len = place.len().min(from.len());
    place[..len].copy_from_slice(&from[..len]);
}

impl Part {
    /// Returns the part's length in bytes.
    pub fn len(self) -> usize {
        match self {
            Self::Field(_, len) | Self::Key(_, len) | Self::Constant(_, len) => usize::from(len),
            Self::Data(_, len) => usize::from(len),
            Self::Time => 8,
        }
    }

    /// Returns whether the part is of length 0.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    fn is_valid(self) -> bool {
        match self {
            Self::Field(field, len) => (1..=8).contains(&len) && field.is_valid(),
            Self::Constant(_, len) => (1..=8).contains(&len),
            Self::Key(..) | Self::Data(..) => !self.is_empty(),
            Self::Time => true,
        }
    }
}

impl Field {
    fn is_valid(self) -> bool {
        match self {
            Self::Key(_, len) | Self::Data(_, len) => (1..=8).contains(&len),
            _ => true,
        }
    }
}

/// Input of a trigger: a report, and the part of it that counts as its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct TriggerInput<'a> {
    pub(super) report: &'a Report<'a>,
    pub(super) data: &'a [u8],
}

impl<'a> TriggerInput<'a> {
    /// Returns the inputs of a report: one, or for an Append one for each entry.
    pub(super) fn all(report: &'a Report<'a>) -> impl Iterator<Item = Self> {
        let (data, len) = match report.operation {
            Operation::KeyWrite { data, .. } => (data, data.len()),
            Operation::Append {
                entry_len, entries, ..
            } => (entries, usize::from(entry_len)),
            Operation::SketchMerge { counters, .. } => (counters, counters.len()),
            Operation::KeyIncrement { .. } | Operation::Postcard { .. } => (&[0][..], 1),
        };
        let has_data = !matches!(
            report.operation,
            Operation::KeyIncrement { .. } | Operation::Postcard { .. }
        );
        data.chunks_exact(len.max(1)).map(move |data| Self {
            report,
            data: if has_data { data } else { &[] },
        })
    }

    fn key(&self) -> &'a [u8] {
        self.report.operation.key().unwrap_or(&[])
    }

    fn field(&self, field: Field) -> Option<u64> {
        let base = &self.report.base;
        match (field, self.report.operation) {
            (Field::Reporter, _) => Some(base.reporter.into()),
            (Field::Priority, _) => Some(base.priority as u64),
            (Field::Essential, _) => Some(base.essential.into()),
            (Field::Immediate, _) => Some(base.immediate.into()),
            (Field::Value, Operation::KeyIncrement { delta, .. }) => Some(delta),
            (Field::Value, Operation::Postcard { value, .. }) => Some(value.into()),
            (Field::Hop, Operation::Postcard { hop, .. }) => Some(hop.into()),
            (Field::PathLen, Operation::Postcard { path_len, .. }) => Some(path_len.into()),
            (Field::Key(at, len), _) => number(self.key(), at.into(), len),
            (Field::Data(at, len), _) => number(self.data, at.into(), len),
            (Field::Value | Field::Hop | Field::PathLen, _) => None,
        }
    }
}

/// Reads bytes as a number, most significant first.
fn number(bytes: &[u8], at: usize, len: u8) -> Option<u64> {
    let bytes = bytes.get(at..at + usize::from(len))?;
    Some(
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)),
    )
}

impl Condition {
    fn holds(&self, input: &TriggerInput<'_>) -> bool {
        let Some(field) = input.field(self.field) else {
            return false;
        };
        let field = field & self.mask;
        let value = self.value;
        match self.relation {
            Relation::Equal => field == value,
            Relation::NotEqual => field != value,
            Relation::Less => field < value,
            Relation::LessOrEqual => field <= value,
            Relation::Greater => field > value,
            Relation::GreaterOrEqual => field >= value,
        }
    }
}

impl Trigger {
    /// Returns whether the trigger applies to this operation.
    #[inline]
    pub(super) fn is_for(&self, collector: u8, operation: &Operation<'_>) -> bool {
        let id = match *operation {
            Operation::KeyWrite { store, .. }
            | Operation::KeyIncrement { store, .. }
            | Operation::Postcard { store, .. } => store.into(),
            Operation::Append { list, .. } => list,
            Operation::SketchMerge { sketch, .. } => sketch.into(),
        };
        self.opcode == operation.opcode() as u8
            && self.collector.is_none_or(|of| of == collector)
            && self.target.is_none_or(|target| target == id)
    }

    /// Returns whether all conditions hold.
    pub(super) fn holds(&self, input: &TriggerInput<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds(input))
    }

    /// Builds the entry and returns its bytes.
    pub(super) fn build<'b>(
        &self,
        now: u64,
        input: &TriggerInput<'_>,
        out: &'b mut [u8; MAX_ENTRY],
    ) -> &'b [u8] {
        out.fill(0);
        let mut at = 0;
        for part in &self.entry {
            let Some(place) = out.get_mut(at..at + part.len()) else {
                break;
            };
            match *part {
                Part::Field(field, _) => write_number(place, input.field(field).unwrap_or(0)),
                Part::Key(from, _) => copy(place, input.key(), from.into()),
                Part::Data(from, _) => copy(place, input.data, from.into()),
                Part::Time => write_number(place, now),
                Part::Constant(number, _) => write_number(place, number),
            }
            at += part.len();
        }
        &out[..at]
    }

    /// Bytes of its entries.
    pub fn entry_len(&self) -> usize {
        self.entry.iter().map(|part| part.len()).sum()
    }

    /// Checks that it can be used.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub fn check(&self) -> Result<(), &'static str> {
        let good = [
            ("the opcode must be 1 to 5", (1..=5).contains(&self.opcode)),
            (
                "there may be at most 8 conditions",
                self.conditions.len() <= MAX_CONDITIONS,
            ),
            (
                "an entry has 1 to 16 parts",
                (1..=MAX_PARTS).contains(&self.entry.len()),
            ),
            ("an entry has at most 256 bytes", self.entry_len() <= MAX_ENTRY),
            (
                "a part has no bytes, or a number more than 8",
                self.entry.iter().all(|part| part.is_valid()),
            ),
            (
                "a field has 1 to 8 bytes",
                self.conditions.iter().all(|condition| condition.field.is_valid()),
            ),
        ];
        good.into_iter()
            .find(|(_, good)| !good)
            .map_or(Ok(()), |(what, _)| Err(what))
    }
}
