//! Match-action triggers: a DTA report that fulfils a trigger's conditions appends an entry to a list, in addition to its
//! own operation. This moves the filtering from collectors into the translator (DTA paper, section 5.1, footnote).

use wire::dta::{Operation, Report};

/// Maximum number of triggers.
pub const MAX_TRIGGERS: usize = 64;
/// Maximum number of conditions of a trigger.
pub const MAX_CONDITIONS: usize = 8;
/// Maximum number of parts of a trigger's entry.
pub const MAX_PARTS: usize = 16;
/// Maximum length of a trigger's entry, bytes.
pub const MAX_ENTRY: usize = 256;

/// A trigger: which reports it matches, and which entry they append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// Primitive of the reports: 1 Key-Write, 2 Append, 3 Key-Increment, 4 Postcarding, 5 Sketch-Merge.
    pub opcode: u8,
    /// Collector of the reports; `None`: any.
    pub collector: Option<u8>,
    /// Store, list or sketch of the reports; `None`: any.
    pub target: Option<u32>,
    /// Conditions that must all hold. They are checked for each entry of an Append, and once for another report.
    pub conditions: Vec<Condition>,
    /// List that receives the entry, in the same collector's memory.
    pub list: u32,
    /// Parts of the entry in order. Their total length must equal the list's entry length.
    pub entry: Vec<Part>,
    /// Notify the collector's CPU at once by an immediate value.
    pub immediate: bool,
    /// Minimum time between two entries of the trigger, ns; 0: no limit.
    pub interval: u64,
}

/// A comparison of a field with a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The compared field. A report without this field fails the condition.
    pub field: Field,
    /// Bits of the field that are compared.
    pub mask: u64,
    /// Relation that must hold between the masked field and the value.
    pub relation: Relation,
    /// Constant to compare with.
    pub value: u64,
}

/// A numeric field of a report.
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
    /// The amount added (Key-Increment) or the hop's value (Postcarding). Other reports have none.
    Value,
    /// Number of the hop (Postcarding).
    Hop,
    /// Number of hops of the path, 0 if unknown (Postcarding).
    PathLen,
    /// Bytes of the key as a big-endian number: offset and length (1 to 8).
    Key(u8, u8),
    /// Bytes of the data, of the entry, or of a column's counters as a big-endian number: offset and length (1 to 8).
    Data(u16, u8),
}

/// The relation between a field and a constant.
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

/// A part of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A field and its length in bytes (1 to 8), big-endian; 0 if the report does not have it.
    Field(Field, u8),
    /// Offset and length of a part of the key, padded with zeros.
    Key(u8, u8),
    /// Offset and length of a part of the data, padded with zeros.
    Data(u16, u16),
    /// The processing time, 8 bytes, ns, big-endian.
    Time,
    /// A constant and its length in bytes (1 to 8), big-endian.
    Constant(u64, u8),
}

/// Writes the low bytes of a number in big-endian order.
fn write_number(target: &mut [u8], number: u64) {
    let bytes = number.to_be_bytes();
    let len = target.len().min(8);
    target[..len].copy_from_slice(&bytes[8 - len..]);
}

/// Copies the available bytes from an offset on.
fn copy_available(target: &mut [u8], source: &[u8], offset: usize) {
    let source = source.get(offset..).unwrap_or(&[]);
    let len = target.len().min(source.len());
    target[..len].copy_from_slice(&source[..len]);
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

    /// Returns whether the part has length 0.
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

/// Input of a trigger: a report, and its data or one of its entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct TriggerInput<'a> {
    pub(super) report: &'a Report<'a>,
    pub(super) data: &'a [u8],
}

impl<'a> TriggerInput<'a> {
    /// Returns the inputs of a report: one per entry of an Append, and one for any other report.
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
            (Field::Key(offset, len), _) => read_number(self.key(), offset.into(), len),
            (Field::Data(offset, len), _) => read_number(self.data, offset.into(), len),
            (Field::Value | Field::Hop | Field::PathLen, _) => None,
        }
    }
}

/// Reads `len` bytes as a big-endian number, or returns `None` if there are too few.
fn read_number(bytes: &[u8], offset: usize, len: u8) -> Option<u64> {
    let bytes = bytes.get(offset..offset + usize::from(len))?;
    Some(
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)),
    )
}

impl Condition {
    fn is_met_by(&self, input: &TriggerInput<'_>) -> bool {
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
    /// Returns whether the trigger matches this operation for this collector.
    #[inline]
    pub(super) fn applies_to(&self, collector: u8, operation: &Operation<'_>) -> bool {
        let id = match *operation {
            Operation::KeyWrite { store, .. }
            | Operation::KeyIncrement { store, .. }
            | Operation::Postcard { store, .. } => store.into(),
            Operation::Append { list, .. } => list,
            Operation::SketchMerge { sketch, .. } => sketch.into(),
        };
        self.opcode == operation.opcode() as u8
            && self.collector.is_none_or(|addressed| addressed == collector)
            && self.target.is_none_or(|target| target == id)
    }

    /// Returns whether all conditions hold.
    pub(super) fn is_met_by(&self, input: &TriggerInput<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.is_met_by(input))
    }

    /// Builds the entry in `out` and returns its bytes.
    pub(super) fn build_entry<'b>(
        &self,
        now: u64,
        input: &TriggerInput<'_>,
        out: &'b mut [u8; MAX_ENTRY],
    ) -> &'b [u8] {
        out.fill(0);
        let mut len = 0;
        for part in &self.entry {
            let Some(target) = out.get_mut(len..len + part.len()) else {
                break;
            };
            match *part {
                Part::Field(field, _) => write_number(target, input.field(field).unwrap_or(0)),
                Part::Key(offset, _) => copy_available(target, input.key(), offset.into()),
                Part::Data(offset, _) => copy_available(target, input.data, offset.into()),
                Part::Time => write_number(target, now),
                Part::Constant(number, _) => write_number(target, number),
            }
            len += part.len();
        }
        &out[..len]
    }

    /// Returns the length of its entries, bytes.
    pub fn entry_len(&self) -> usize {
        self.entry.iter().map(|part| part.len()).sum()
    }

    /// Validates the trigger.
    ///
    /// # Errors
    /// A message that describes the first problem.
    pub fn check(&self) -> Result<(), &'static str> {
        let checks = [
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
        checks
            .into_iter()
            .find(|(_, is_valid)| !is_valid)
            .map_or(Ok(()), |(message, _)| Err(message))
    }
}
