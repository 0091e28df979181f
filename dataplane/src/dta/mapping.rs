//! Mappings: each defines which DTA operation a trigger causes, and with which measurements.

use detect::Match;
use wire::dta::hash::{MAX_COPIES, MAX_KEY};
use wire::dta::{
    APPEND_HEADER_LEN, KEY_INCREMENT_HEADER_LEN, KEY_WRITE_HEADER_LEN, MAX_DATA, POSTCARD_HEADER_LEN,
};

use super::condition::Condition;
use super::context::Trigger;
use super::field::Field;
use super::{ConfigError, Part, SendOptions};

/// Maximum number of lists over which a mapping spreads entries.
pub const MAX_SPREAD: u16 = 256;

/// Maps the measurements of a switch to a DTA operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// Name of the mapping for users.
    pub name: String,
    /// The event that causes the report.
    pub on: Trigger,
    /// Index of the table, for triggers of records or windows.
    pub table: Option<usize>,
    /// The flows to which it applies. Triggers without a flow match only if this matches every flow.
    pub flows: Match,
    /// Conditions that must all be met.
    pub when: Vec<Condition>,
    /// Sampling: one of `every` matching reports is sent; 1 sends all. The postcards of a path count as one.
    pub every: u32,
    /// Reports each hop of a path separately instead of the path.
    pub each_hop: bool,
    /// Options of its reports.
    pub options: SendOptions,
    /// The operation that is sent.
    pub action: Action,
}

/// A DTA operation, with the fields that make up its contents.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Writes a value under a key (Key-Write).
    KeyWrite {
        /// The number of the store.
        store: u16,
        /// Number of copies, 1 to 4.
        copies: u8,
        /// The parts of the key.
        key: Vec<Field>,
        /// The parts of the value.
        data: Vec<Field>,
    },
    /// Adds an entry to the end of a list (Append).
    Append {
        /// The list, or the first of several.
        list: u32,
        /// Number of lists over which `spread` distributes entries; 1 for a single list.
        lists: u16,
        /// The fields that select the list.
        spread: Vec<Field>,
        /// The fields that make up an entry.
        entry: Vec<Field>,
        /// Number of entries per report, 1 to 255.
        entries: u8,
        /// Maximum time that an entry waits for others, ns.
        hold: u64,
    },
    /// Adds to the counters of a key (Key-Increment).
    KeyIncrement {
        /// The number of the store.
        store: u16,
        /// Number of counters, 1 to 4.
        copies: u8,
        /// The parts of the key.
        key: Vec<Field>,
        /// The number to add.
        delta: Field,
    },
    /// Reports one hop of a key's path (Postcarding); for a path, each of its hops.
    Postcard {
        /// The number of the store.
        store: u16,
        /// The parts of the key.
        key: Vec<Field>,
        /// The value of the hop.
        value: Field,
    },
}

impl Mapping {
    /// Returns all fields in the order in which they are written, each with the name of its setting.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static str, &Field)> {
        let none: &[Field] = &[];
        // The name of the setting goes with the data, whose name depends on the operation.
        let (key, spread, (data_name, data)) = match &self.action {
            Action::KeyWrite { key, data, .. } => (key.as_slice(), none, ("data", data.as_slice())),
            Action::Append { spread, entry, .. } => (none, spread.as_slice(), ("data", entry.as_slice())),
            Action::KeyIncrement { key, delta, .. } => {
                (key.as_slice(), none, ("delta", std::slice::from_ref(delta)))
            }
            Action::Postcard { key, value, .. } => {
                (key.as_slice(), none, ("value", std::slice::from_ref(value)))
            }
        };
        let when = self.when.iter().map(|condition| ("when", condition.field()));
        key.iter()
            .map(|field| ("key", field))
            .chain(spread.iter().map(|field| ("spread", field)))
            .chain(data.iter().map(move |field| (data_name, field)))
            .chain(when)
    }

    /// Returns the maximum length of one of its reports, bytes of UDP payload.
    pub(super) fn max_report_len(&self) -> usize {
        match &self.action {
            Action::KeyWrite { key, data, .. } => {
                KEY_WRITE_HEADER_LEN + max_key_len(key).min(MAX_KEY) + data_len(data).unwrap_or(0)
            }
            Action::Append { entry, entries, .. } => {
                APPEND_HEADER_LEN + data_len(entry).unwrap_or(0) * usize::from(*entries)
            }
            Action::KeyIncrement { key, .. } => KEY_INCREMENT_HEADER_LEN + max_key_len(key).min(MAX_KEY),
            Action::Postcard { key, .. } => POSTCARD_HEADER_LEN + max_key_len(key).min(MAX_KEY),
        }
    }

    /// Checks that the mapping can be executed. `index` is its index, `tables` the number of tables, `max_report_len` the
    /// maximum length of a report.
    pub(super) fn check(
        &self,
        index: usize,
        tables: usize,
        max_report_len: usize,
    ) -> Result<(), ConfigError> {
        let part = Part::Mapping(index);
        self.check_trigger(part, tables)?;
        self.check_sizes(part)?;
        if self.every == 0 {
            return part.refuse("every", "write at least 1; 1 reports all");
        }
        let most = max_report_len.min(usize::from(u16::MAX));
        let len = self.max_report_len();
        if len > most {
            let key = if matches!(self.action, Action::Append { .. }) {
                "entries"
            } else {
                "data"
            };
            return part.refuse(
                key,
                format!("a report would have up to {len} bytes; at most {most} are allowed"),
            );
        }
        Ok(())
    }

    fn check_trigger(&self, part: Part, tables: usize) -> Result<(), ConfigError> {
        match (self.on.is_of_a_table(), self.table) {
            (true, None) => return part.refuse("table", "the table is missing; add table = \"NAME\""),
            (false, Some(_)) => {
                return part.refuse(
                    "table",
                    "this trigger has no table; write on = \"evicted\", \"period\", \"passed\" or \"window\", or remove this",
                );
            }
            (true, Some(table)) if table >= tables => return part.refuse("table", "there is no such table"),
            _ => {}
        }
        if self.each_hop && self.on != Trigger::Path {
            return part.refuse(
                "each_hop",
                "only a path has several hops; write on = \"path\", or remove this",
            );
        }
        if self.on == Trigger::Passed && self.when.is_empty() {
            return part.refuse(
                "when",
                "a condition is missing; add when = [\"drops >= 10\"] or the like",
            );
        }
        let has_no_flow = matches!(self.on, Trigger::Evicted | Trigger::Period | Trigger::Window);
        if has_no_flow && self.flows != Match::default() {
            return part.refuse(
                "on",
                "records of a table have no flow; set the match at the table instead",
            );
        }
        for (key, field) in self.fields() {
            if field.needs_table() && !self.on.is_of_a_table() {
                let why =
                    format!("`{field}` is a field of table records; write on = \"evicted\" or the like");
                return part.refuse(key, why);
            }
            if field.needs_flow() && has_no_flow {
                let why = format!("`{field}`: records of a table have no flow; use `key`");
                return part.refuse(key, why);
            }
        }
        Ok(())
    }

    fn check_sizes(&self, part: Part) -> Result<(), ConfigError> {
        let (copies, key) = match &self.action {
            Action::KeyWrite { copies, key, .. } | Action::KeyIncrement { copies, key, .. } => {
                (*copies, Some(key))
            }
            Action::Postcard { key, .. } => (1, Some(key)),
            Action::Append { .. } => (1, None),
        };
        if !(1..=MAX_COPIES).contains(&usize::from(copies)) {
            return part.refuse("copies", format!("write 1 to {MAX_COPIES}"));
        }
        if let Some(key) = key {
            check_key(key, MAX_KEY).or_else(|why| part.refuse("key", why))?;
        }
        match &self.action {
            Action::KeyWrite { data, .. } => check_data(data).or_else(|why| part.refuse("data", why)),
            Action::Append {
                entry,
                lists,
                spread,
                entries,
                hold,
                list,
            } => {
                check_data(entry).or_else(|why| part.refuse("data", why))?;
                if *lists == 0 || *lists > MAX_SPREAD || list.checked_add(u32::from(*lists) - 1).is_none() {
                    return part.refuse("lists", format!("write 1 to {MAX_SPREAD}"));
                }
                match (*lists > 1, spread.is_empty()) {
                    (true, true) => part.refuse(
                        "spread",
                        "the fields that select a list are missing, such as [\"flow\"]",
                    ),
                    (false, false) => {
                        part.refuse("spread", "there is one list only; write lists = 4 or the like")
                    }
                    _ if *entries == 0 => part.refuse("entries", "write 1 to 255"),
                    _ if *entries > 1 && *hold == 0 => part.refuse(
                        "hold",
                        "say how long an entry may wait for others, such as \"1ms\"",
                    ),
                    (_, true) => Ok(()),
                    (_, false) => check_key(spread, MAX_KEY).or_else(|why| part.refuse("spread", why)),
                }
            }
            Action::KeyIncrement { delta: field, .. } if !field.is_number() => part.refuse(
                "delta",
                format!("`{field}` is not a number; write \"packets\" or the like"),
            ),
            Action::Postcard { value: field, .. } if !field.is_number() => part.refuse(
                "value",
                format!("`{field}` is not a number; write \"node\" or the like"),
            ),
            Action::KeyIncrement { .. } | Action::Postcard { .. } => Ok(()),
        }
    }
}

/// Returns the maximum length of a key of these fields, bytes.
fn max_key_len(key: &[Field]) -> usize {
    key.iter().map(Field::longest_in_key).sum()
}

/// Checks that the fields make a key of at most `most` bytes. Returns the error message.
pub(super) fn check_key(key: &[Field], most: usize) -> Result<(), String> {
    match max_key_len(key) {
        0 => Err("a key needs a field, such as [\"flow\"]".to_owned()),
        len if len > most => Err(format!("it can have up to {len} bytes; a key has at most {most}")),
        _ => Ok(()),
    }
}

fn check_data(data: &[Field]) -> Result<(), String> {
    if let Some(field) = data.iter().find(|field| field.data_len().is_none()) {
        return Err(format!(
            "`{field}` needs its number of bytes here, such as `{field}[13]`"
        ));
    }
    match data_len(data) {
        None | Some(0) => Err("there is nothing to report; write a field, such as [\"node[5]\"]".to_owned()),
        Some(len) if len > MAX_DATA => Err(format!("it has {len} bytes; data have at most {MAX_DATA}")),
        Some(_) => Ok(()),
    }
}

/// Returns the length of data made of these fields in bytes, or `None` if it is not fixed.
pub fn data_len(data: &[Field]) -> Option<usize> {
    data.iter().map(Field::data_len).sum()
}
