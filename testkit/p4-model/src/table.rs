//! Match-action tables: their keys and entries, and the lookup of the entry that applies.

use std::collections::BTreeMap;

use crate::field::Field;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchKind {
    Exact,
    Lpm,
    Ternary,
    Range,
}

/// A table of the program. Actions are indexes into the program's actions.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) keys: Vec<KeyField>,
    pub(crate) actions: Vec<usize>,
    pub(crate) default: ActionCall,
    pub(crate) size: usize,
    pub(crate) next: Next,
    /// Entries that are part of the program.
    pub(crate) entries: Vec<Installed>,
}

/// A field of a table's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyField {
    pub(crate) field: Field,
    pub(crate) kind: MatchKind,
    /// Width in bits.
    pub(crate) width: u32,
}

/// An action of the program, with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct ActionCall {
    pub(crate) action: usize,
    pub(crate) parameters: Vec<u128>,
}

/// The pipeline node that follows a table; `None` ends the pipeline.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    ByAction(BTreeMap<usize, Option<usize>>),
    ByHit { hit: Option<usize>, miss: Option<usize> },
}

/// One field of an entry's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The value of an exact match.
    Exact(u128),
    /// A prefix: value and length in bits.
    Lpm(u128, u32),
    /// Value and mask of a ternary match.
    Ternary(u128, u128),
    /// A range from the first to the last value, inclusive.
    Range(u128, u128),
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key, with one part for each key field of the table.
    pub keys: Vec<Key>,
    /// Priority: of the matching entries, the one with the highest number applies. Exact and longest-prefix matches ignore it.
    pub priority: i32,
    /// The name of the action; its last part is enough.
    pub action: String,
    /// Parameters of the action, in its order.
    pub parameters: Vec<u128>,
}

/// An entry with its action resolved.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) keys: Vec<Key>,
    pub(crate) priority: i32,
    pub(crate) action: usize,
    pub(crate) parameters: Vec<u128>,
}

impl Installed {
    fn matches(&self, values: &[u128], table: &Table) -> bool {
        let mut fields = self.keys.iter().zip(values).zip(&table.keys);
        fields.all(|((key, value), field)| match *key {
            Key::Exact(expected) => *value == expected,
            Key::Lpm(prefix, len) => {
                let shift = field.width - len.min(field.width);
                value.checked_shr(shift) == prefix.checked_shr(shift)
            }
            Key::Ternary(expected, mask) => value & mask == expected & mask,
            Key::Range(first, last) => (first..=last).contains(value),
        })
    }

    /// Returns the rank by which one of several matching entries is chosen: total prefix length, then priority.
    fn rank(&self) -> (u32, i32) {
        let prefix_len = self
            .keys
            .iter()
            .map(|key| if let Key::Lpm(_, len) = key { *len } else { 0 })
            .sum();
        (prefix_len, self.priority)
    }
}

/// Returns the entry that applies: the matching one with the highest rank, and of equal ones the first that was added.
pub(crate) fn lookup<'a>(entries: &'a [Installed], values: &[u128], table: &Table) -> Option<&'a Installed> {
    let matching = entries.iter().filter(|entry| entry.matches(values, table));
    // `max_by_key` returns the last maximum, hence the reversal.
    matching.rev().max_by_key(|entry| entry.rank())
}

/// Returns whether a key has the match kind of the table's field.
pub(crate) fn fits(key: Key, kind: MatchKind) -> bool {
    matches!(
        (key, kind),
        (Key::Exact(_), MatchKind::Exact)
            | (Key::Lpm(..), MatchKind::Lpm)
            | (Key::Ternary(..), MatchKind::Ternary)
            | (Key::Range(..), MatchKind::Range)
    )
}
