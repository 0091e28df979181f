//! Table entries of a P4Runtime device in comparable form, without leading zeros, and their conversion from and to messages.

use std::collections::BTreeMap;

use prost::Message;
use sha2::{Digest, Sha256};

use crate::message::{
    Action, CloneSessionEntry, CounterData, CounterEntry, Entity, EntityKind, Exact, FieldMatch,
    FieldMatchType, Lpm, MulticastGroupEntry, PacketReplicationEngineEntry, Param, PortKind, Range, Replica,
    ReplicationKind, TableAction, TableActionType, TableEntry, Ternary, Update, UpdateType,
};

/// The `metadata` value that marks this driver's entries.
pub const MARK: &[u8] = b"hopwise";

/// A value in the canonical form of P4Runtime 1.4: big-endian, at least one byte, no leading zeros.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    /// Creates a value from a message's bytes, canonical or not.
    pub fn new(bytes: &[u8]) -> Self {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let rest = &bytes[zeros.min(bytes.len())..];
        Self(if rest.is_empty() { vec![0] } else { rest.to_vec() })
    }

    /// Returns the value as a number, or `None` if it has more than 128 bits.
    pub fn number(&self) -> Option<u128> {
        (self.0.len() <= 16).then(|| {
            self.0
                .iter()
                .fold(0, |number, byte| number << 8 | u128::from(*byte))
        })
    }

    fn to_vec(&self) -> Vec<u8> {
        self.0.clone()
    }
}

impl From<u128> for Bytes {
    fn from(number: u128) -> Self {
        Self::new(&number.to_be_bytes())
    }
}

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.number().and_then(|number| u64::try_from(number).ok()) {
            Some(number) => write!(f, "{number}"),
            None => self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// A match field of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// A single exact value.
    Exact(Bytes),
    /// Value and bit mask.
    Ternary(Bytes, Bytes),
    /// Value and prefix length.
    Lpm(Bytes, i32),
    /// Lowest and highest value, both included.
    Range(Bytes, Bytes),
    /// One value. To match all values, the field is omitted.
    Optional(Bytes),
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(value) | Self::Optional(value) => write!(f, "{value}"),
            Self::Ternary(value, mask) => write!(f, "{value} & {mask}"),
            Self::Lpm(value, length) => write!(f, "{value}/{length}"),
            Self::Range(low, high) => write!(f, "{low}-{high}"),
        }
    }
}

/// The key that identifies an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An entry of a table.
    Table {
        /// Id of the table.
        table: u32,
        /// Priority; 0 if the table's key needs none.
        priority: i32,
        /// Match fields by id.
        fields: BTreeMap<u32, Field>,
    },
    /// The default entry of a table.
    Default(u32),
    /// A clone session with its number.
    Clone(u32),
    /// A multicast group with its number.
    Group(u32),
}

impl Key {
    /// Returns the table id of a regular entry; `None` for default entries, sessions and groups.
    pub(crate) fn table(&self) -> Option<u32> {
        match self {
            Self::Table { table, .. } => Some(*table),
            Self::Default(_) | Self::Clone(_) | Self::Group(_) => None,
        }
    }
}

/// A packet copy of a clone session or multicast group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketCopy {
    /// Egress port of the copy.
    pub port: Bytes,
    /// Number that distinguishes copies to the same port, the `instance` of a P4Runtime `Replica`.
    pub instance: u32,
}

/// The effect of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    /// An action id, and its parameters by id.
    Action(u32, BTreeMap<u32, Bytes>),
    /// The copies of a clone session or a multicast group.
    Copies {
        /// The copies, sorted by port and instance.
        replicas: Vec<PacketCopy>,
        /// Class of service; always 0 for a group.
        class: u32,
        /// Maximum length of a copy, bytes; 0 for no limit. Always 0 for a group.
        truncate: i32,
    },
    /// Content that the driver never writes, such as a member of an action profile.
    Other,
}

/// An entry of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// Key of the entry.
    pub key: Key,
    /// Effect of the entry.
    pub content: Content,
    /// Metadata that the entry's writer has set.
    pub metadata: Vec<u8>,
}

impl Entry {
    /// Reads an entry and the packet count of its direct counter from a message. Returns `None` for constant entries, which
    /// are part of the program, and for messages other than entries.
    pub fn read(entity: &Entity) -> Option<(Self, u64)> {
        match entity.entity.as_ref()? {
            EntityKind::TableEntry(entry) if entry.is_const => None,
            EntityKind::TableEntry(entry) => {
                let packets = entry.counter_data.map_or(0, |counter| counter.packet_count);
                Some((Self::from_table_entry(entry), u64::try_from(packets).unwrap_or(0)))
            }
            EntityKind::PacketReplication(entry) => {
                let entry = match entry.r#type.as_ref()? {
                    ReplicationKind::CloneSession(session) => Self::from_session(session),
                    ReplicationKind::MulticastGroup(group) => Self::from_group(group),
                };
                Some((entry, 0))
            }
            EntityKind::Counter(_) => None,
        }
    }

    fn from_table_entry(entry: &TableEntry) -> Self {
        let fields = entry.r#match.iter().filter_map(|field| {
            let value = match field.field_match_type.as_ref()? {
                FieldMatchType::Exact(field) => Field::Exact(Bytes::new(&field.value)),
                FieldMatchType::Ternary(field) => {
                    Field::Ternary(Bytes::new(&field.value), Bytes::new(&field.mask))
                }
                FieldMatchType::Lpm(field) => Field::Lpm(Bytes::new(&field.value), field.prefix_len),
                FieldMatchType::Range(field) => Field::Range(Bytes::new(&field.low), Bytes::new(&field.high)),
                FieldMatchType::Optional(field) => Field::Optional(Bytes::new(&field.value)),
            };
            Some((field.field_id, value))
        });
        let table = entry.table_id;
        let key = if entry.is_default_action {
            Key::Default(table)
        } else {
            Key::Table {
                table,
                priority: entry.priority,
                fields: fields.collect(),
            }
        };
        let content = match entry.action.as_ref().and_then(|action| action.r#type.as_ref()) {
            Some(TableActionType::Action(action)) => {
                let params = action
                    .params
                    .iter()
                    .map(|param| (param.param_id, Bytes::new(&param.value)));
                Content::Action(action.action_id, params.collect())
            }
            None => Content::Other,
        };
        Self {
            key,
            content,
            metadata: entry.metadata.clone(),
        }
    }

    fn from_group(group: &MulticastGroupEntry) -> Self {
        let content = Content::Copies {
            replicas: copies(&group.replicas),
            class: 0,
            truncate: 0,
        };
        Self {
            key: Key::Group(group.multicast_group_id),
            content,
            metadata: Vec::new(),
        }
    }

    fn from_session(session: &CloneSessionEntry) -> Self {
        let content = Content::Copies {
            replicas: copies(&session.replicas),
            class: session.class_of_service,
            truncate: session.packet_length_bytes,
        };
        Self {
            key: Key::Clone(session.session_id),
            content,
            metadata: Vec::new(),
        }
    }

    /// Builds the update message for a change. A table's default entry always exists, so it is modified; without an action, it
    /// reverts to the program's default.
    pub fn update(&self, kind: UpdateType) -> Update {
        let is_default = matches!(self.key, Key::Default(_));
        let bare = kind == UpdateType::Delete;
        let kind = if is_default { UpdateType::Modify } else { kind };
        Update {
            r#type: kind.into(),
            entity: Some(Entity {
                entity: Some(self.message(bare)),
            }),
        }
    }

    /// Builds the message of this entry. With `bare`, only the key is set, as for a deletion.
    fn message(&self, bare: bool) -> EntityKind {
        match (&self.key, &self.content) {
            (Key::Clone(session), content) => {
                let (replicas, class, truncate) = match content {
                    Content::Copies {
                        replicas,
                        class,
                        truncate,
                    } if !bare => (replicas.as_slice(), *class, *truncate),
                    _ => (&[][..], 0, 0),
                };
                replication(ReplicationKind::CloneSession(CloneSessionEntry {
                    session_id: *session,
                    replicas: replicas.iter().map(replica).collect(),
                    class_of_service: class,
                    packet_length_bytes: truncate,
                }))
            }
            (Key::Group(group), content) => {
                let replicas = match content {
                    Content::Copies { replicas, .. } if !bare => replicas.iter().map(replica).collect(),
                    _ => Vec::new(),
                };
                let group = MulticastGroupEntry {
                    multicast_group_id: *group,
                    replicas,
                };
                replication(ReplicationKind::MulticastGroup(group))
            }
            (Key::Default(table), content) => EntityKind::TableEntry(TableEntry {
                table_id: *table,
                action: if bare { None } else { action(content) },
                is_default_action: true,
                ..TableEntry::default()
            }),
            (
                Key::Table {
                    table,
                    priority,
                    fields,
                },
                content,
            ) => EntityKind::TableEntry(TableEntry {
                table_id: *table,
                r#match: fields
                    .iter()
                    .map(|(id, field)| field_message(*id, field))
                    .collect(),
                priority: *priority,
                action: if bare { None } else { action(content) },
                metadata: if bare { Vec::new() } else { self.metadata.clone() },
                ..TableEntry::default()
            }),
        }
    }
}

fn replication(kind: ReplicationKind) -> EntityKind {
    EntityKind::PacketReplication(PacketReplicationEngineEntry { r#type: Some(kind) })
}

fn replica(copy: &PacketCopy) -> Replica {
    let number = copy.port.number().and_then(|number| u32::try_from(number).ok());
    // Prefer the older port field, which every device accepts.
    let port = number.map_or_else(|| PortKind::Port(copy.port.to_vec()), PortKind::EgressPort);
    Replica {
        port_kind: Some(port),
        instance: copy.instance,
    }
}

/// Reads and sorts the copies of a message, because devices return them in any order.
fn copies(replicas: &[Replica]) -> Vec<PacketCopy> {
    let copies = replicas.iter().map(|replica| {
        let port = match &replica.port_kind {
            Some(PortKind::EgressPort(port)) => Bytes::from(u128::from(*port)),
            Some(PortKind::Port(bytes)) => Bytes::new(bytes),
            None => Bytes::from(0),
        };
        PacketCopy {
            port,
            instance: replica.instance,
        }
    });
    let mut copies: Vec<PacketCopy> = copies.collect();
    copies.sort_unstable();
    copies
}

/// Returns the query for all entries of a table, with or without their direct counters.
pub fn query_table(table: u32, counted: bool) -> Entity {
    let counter_data = counted.then(CounterData::default);
    entity(TableEntry {
        table_id: table,
        counter_data,
        ..TableEntry::default()
    })
}

/// Returns the query for a table's default entry.
pub fn query_default(table: u32) -> Entity {
    entity(TableEntry {
        table_id: table,
        is_default_action: true,
        ..TableEntry::default()
    })
}

/// Returns the query for all counters of an array.
pub fn query_counters(array: u32) -> Entity {
    let counter = CounterEntry {
        counter_id: array,
        ..CounterEntry::default()
    };
    Entity {
        entity: Some(EntityKind::Counter(counter)),
    }
}

/// A counter of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterReading {
    /// ID of the array.
    pub array: u32,
    /// Index in the array.
    pub index: usize,
    /// Number of packets.
    pub packets: u64,
}

/// Reads a counter, or returns `None` if the entity is not a counter.
pub fn counter_reading(entity: &Entity) -> Option<CounterReading> {
    let Some(EntityKind::Counter(counter)) = &entity.entity else {
        return None;
    };
    let index = usize::try_from(counter.index.unwrap_or_default().index).ok()?;
    let packets = counter.data.map_or(0, |data| data.packet_count);
    Some(CounterReading {
        array: counter.counter_id,
        index,
        packets: u64::try_from(packets).unwrap_or(0),
    })
}

/// Returns the query for a clone session.
pub fn query_session(number: u32) -> Entity {
    let session = CloneSessionEntry {
        session_id: number,
        ..CloneSessionEntry::default()
    };
    Entity {
        entity: Some(replication(ReplicationKind::CloneSession(session))),
    }
}

/// Returns the query for all multicast groups.
pub fn query_groups() -> Entity {
    Entity {
        entity: Some(replication(ReplicationKind::MulticastGroup(
            MulticastGroupEntry::default(),
        ))),
    }
}

fn entity(entry: TableEntry) -> Entity {
    Entity {
        entity: Some(EntityKind::TableEntry(entry)),
    }
}

fn field_message(field_id: u32, field: &Field) -> FieldMatch {
    let kind = match field {
        Field::Exact(value) => FieldMatchType::Exact(Exact {
            value: value.to_vec(),
        }),
        Field::Ternary(value, mask) => FieldMatchType::Ternary(Ternary {
            value: value.to_vec(),
            mask: mask.to_vec(),
        }),
        Field::Lpm(value, length) => FieldMatchType::Lpm(Lpm {
            value: value.to_vec(),
            prefix_len: *length,
        }),
        Field::Range(low, high) => FieldMatchType::Range(Range {
            low: low.to_vec(),
            high: high.to_vec(),
        }),
        Field::Optional(value) => FieldMatchType::Optional(Exact {
            value: value.to_vec(),
        }),
    };
    FieldMatch {
        field_id,
        field_match_type: Some(kind),
    }
}

fn action(content: &Content) -> Option<TableAction> {
    let Content::Action(action_id, params) = content else {
        return None;
    };
    let params = params
        .iter()
        .map(|(id, value)| Param {
            param_id: *id,
            value: value.to_vec(),
        })
        .collect();
    let action = Action {
        action_id: *action_id,
        params,
    };
    Some(TableAction {
        r#type: Some(TableActionType::Action(action)),
    })
}

/// Returns the first 8 bytes of a SHA-256 over the sorted entries. Each entry is hashed as its length-delimited P4Runtime
/// message, so that equal entries have the same digest in every version of hopwise.
pub fn digest<'a>(entries: impl Iterator<Item = &'a Entry>) -> [u8; 8] {
    let mut sorted: Vec<&Entry> = entries.collect();
    sorted.sort_unstable();
    let mut hash = Sha256::new();
    for entry in sorted {
        let message = Entity {
            entity: Some(entry.message(false)),
        };
        hash.update(message.encode_length_delimited_to_vec());
    }
    let full = hash.finalize();
    let mut short = [0; 8];
    short.copy_from_slice(&full[..8]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let fields = [
            (1, Field::Exact(Bytes::from(7))),
            (
                2,
                Field::Ternary(Bytes::from(0x0a00_0000), Bytes::from(0xff00_0000)),
            ),
            (3, Field::Lpm(Bytes::from(0x0a00_0000), 8)),
            (4, Field::Range(Bytes::from(0), Bytes::from(1023))),
            (5, Field::Optional(Bytes::from(1 << 100))),
        ];
        let params = [(1, Bytes::from(0)), (2, Bytes::from(256))].into();
        Entry {
            key: Key::Table {
                table: 33,
                priority: 5,
                fields: fields.into(),
            },
            content: Content::Action(16, params),
            metadata: MARK.to_vec(),
        }
    }

    #[test]
    fn entries_survive_the_way_through_a_message() {
        let copies = Content::Copies {
            replicas: vec![PacketCopy {
                port: Bytes::from(3),
                instance: 1,
            }],
            class: 2,
            truncate: 128,
        };
        let session = Entry {
            key: Key::Clone(500),
            content: copies,
            metadata: Vec::new(),
        };
        let default = Entry {
            key: Key::Default(9),
            content: Content::Action(4, [(1, Bytes::from(1))].into()),
            metadata: Vec::new(),
        };
        for entry in [entry(), session, default] {
            let update = entry.update(UpdateType::Insert);
            assert_eq!(Entry::read(&update.entity.unwrap()), Some((entry.clone(), 0)));
            let gone = entry.update(UpdateType::Delete);
            let (gone, _) = Entry::read(&gone.entity.unwrap()).unwrap();
            assert_eq!(gone.key, entry.key);
            assert_ne!(gone.content, entry.content);
        }
    }

    #[test]
    fn values_are_canonical() {
        assert_eq!(Bytes::new(&[0, 0, 1, 0]), Bytes::from(256));
        assert_eq!(Bytes::new(&[]), Bytes::from(0));
        assert_eq!(Bytes::from(0).to_vec(), [0]);
        assert_eq!(Bytes::new(&[1; 17]).number(), None);
        assert_eq!(Bytes::new(&[1; 17]).to_string(), "01".repeat(17));
    }

    #[test]
    fn a_digest_depends_on_every_value_and_not_on_the_order() {
        let mut other = entry();
        other.metadata.clear();
        let (a, b) = (entry(), other);
        assert_eq!(digest([&a, &b].into_iter()), digest([&b, &a].into_iter()));
        assert_ne!(digest([&a].into_iter()), digest([&b].into_iter()));
        assert_ne!(digest([&a].into_iter()), digest(std::iter::empty()));
    }
}
