//! Binds a pipeline map to a device's P4Info: replaces names by ids, and reports everything that does not fit.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use detect::{Metric, Prefix};
use manager::device::{Capabilities, Encoding, FilterAlgorithm, MatchKinds, Mode, NodeId, Restart};
use manager::instruction::Bits;
use manager::rule_limits::RuleLimits;
use prost::Message;

use crate::counters::Counters;
use crate::entry::{Bytes, Field, PacketCopy};
use crate::map::{FamilyWord, Kind, Map, PriorityWord, ReplicaSettings, RowSettings, Value, Variable};
use crate::message::{MatchType, P4Action, P4Info, P4Table, Preamble, Scope};
use crate::notation::Notation;
use crate::roles::{self, Role, RoleKind};

/// Maximum number of problems that are listed.
const MAX_PROBLEMS: usize = 20;
/// Offset of the steps of a role's entries, which are written after all entries of the map.
const ROLE_STEPS: usize = 1 << 16;
/// Assumed capacity of a table whose P4Info does not state a size.
const UNKNOWN_SIZE: usize = 1024;

/// Settings that differ from device to device, to which the map's variables refer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalSettings {
    /// Node id of the device.
    pub node: NodeId,
    /// Interface by which the device sends its reports; `None` if not configured.
    pub report: Option<Report>,
    /// Behaviour after a restart, if it differs from the map's.
    pub restart: Option<Restart>,
    /// Routes for a program whose map installs them. If there are none, another controller installs them.
    pub routes: Vec<Route>,
    /// MTUs: each a port and the MTU in bytes.
    pub mtus: Vec<(u32, u16)>,
    /// Role outside the domain; `None` for a switch of the domain.
    pub role: Option<Role>,
}

/// An IP route of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination prefix of the route.
    pub to: Prefix,
    /// Port to the next hop.
    pub port: u32,
    /// MAC address of the port, as a 48-bit number.
    pub source_mac: u64,
    /// MAC address of the next hop, as a 48-bit number.
    pub mac: u64,
}

/// The interface by which a device sends its reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Port of the device.
    pub port: u32,
    /// Source IPv4 address of reports.
    pub source: Ipv4Addr,
    /// Source MAC address of reports.
    pub source_mac: u64,
    /// MAC address of the collector or of the next router.
    pub mac: u64,
}

/// A pipeline map bound to a device's program.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) map: Map,
    pub(crate) local: LocalSettings,
    pub(crate) rows: Vec<Row>,
    /// Tables that the map uses, by P4Runtime id.
    pub(crate) tables: BTreeMap<u32, TableFacts>,
    /// Names of all actions, by id.
    actions: BTreeMap<u32, String>,
    /// Counter arrays that the map names.
    pub(crate) counters: Counters,
}

/// Facts about a table that the map uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableFacts {
    pub(crate) name: String,
    /// Match fields by id, with name and notation.
    fields: BTreeMap<u32, (String, Notation)>,
    /// True if the map uses the table's default entry.
    pub(crate) default: bool,
    /// True if the map uses other entries.
    pub(crate) entries: bool,
    /// Capacity in entries, if the P4Info states it.
    pub(crate) size: Option<usize>,
}

/// A row of the map with the program's ids in place of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) family: Option<FamilyWord>,
    pub(crate) mode: Option<Mode>,
    /// For a filter row: the algorithm, and the metric if it compares one.
    pub(crate) filter: Option<(FilterAlgorithm, Option<Metric>)>,
    /// Priority of entries without flows. An earlier `forwarding` row wins over later ones.
    pub(crate) order: u32,
    /// Position in the order of additions. Entries of one step of a role share it, so that they are written together.
    pub(crate) step: usize,
    pub(crate) counts_reports: bool,
    pub(crate) counts_matches: bool,
    pub(crate) form: Form,
}

/// The kind of object that a row describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An entry of a table.
    Table {
        table: u32,
        default: bool,
        /// Rule for the entry's priority; `None` if the table's key needs none.
        priority: Option<PriorityWord>,
        fields: Vec<BoundValue>,
        action: u32,
        params: Vec<BoundValue>,
    },
    /// A clone session that sends to one port.
    Clone {
        session: u32,
        port: Value,
        truncate: i32,
    },
    /// A multicast group with its copies, sorted by port and instance.
    Group { group: u32, replicas: Vec<PacketCopy> },
}

/// The value of a match field or parameter, with its id and width in bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BoundValue {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) width: u32,
    pub(crate) kind: MatchType,
    pub(crate) value: Value,
}

impl Program {
    /// Binds `map` to the program that a device's P4Info describes.
    ///
    /// # Errors
    /// One sentence about each problem.
    pub fn new(map: &Map, info: &P4Info, local: &LocalSettings) -> Result<Self, Vec<String>> {
        let mut binding = Binding {
            info,
            local,
            problems: Vec::new(),
            tables: BTreeMap::new(),
        };
        let mut rows = Vec::new();
        for kind in Kind::ALL {
            let of_tables: Vec<RowSettings> = map.rows(kind).iter().flat_map(table_rows).collect();
            let bound = of_tables.iter().zip((1..=of_tables.len() as u32).rev());
            rows.extend(bound.filter_map(|(row, order)| {
                let order = if kind == Kind::Forwarding { order } else { 1 };
                binding.row(kind, row).map(|row| Row { order, ..row })
            }));
        }
        for (index, row) in rows.iter_mut().enumerate() {
            row.step = index;
        }
        rows.extend(binding.role_rows(map));
        let counters = binding.counters(map);
        if !binding.problems.is_empty() {
            let mut problems = binding.problems;
            let more = problems.len().saturating_sub(MAX_PROBLEMS);
            problems.truncate(MAX_PROBLEMS);
            problems.extend((more > 0).then(|| format!("{more} more things do not fit")));
            return Err(problems);
        }
        let preambles = info.actions.iter().filter_map(|action| action.preamble.as_ref());
        let actions = preambles
            .map(|preamble| (preamble.id, preamble.name.clone()))
            .collect();
        let tables = binding.tables;
        Ok(Self {
            map: map.clone(),
            local: local.clone(),
            rows,
            tables,
            actions,
            counters,
        })
    }

    /// Returns the capabilities of a device with this program.
    pub fn capabilities(&self) -> Capabilities {
        let can = capabilities(&self.map, &self.local);
        let clauses = self
            .rows(Kind::Clauses)
            .map(|(_, row)| self.width(row, Variable::Clauses))
            .min()
            .unwrap_or(0) as usize;
        Capabilities {
            matches: self.matches(),
            watch_entries: self.room(Kind::Watch),
            filter_entries: self.room(Kind::Filter),
            rules: RuleLimits { clauses, ..can.rules },
            ..can
        }
    }

    /// Returns the map of this program.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Returns the instruction bits that the program fills.
    pub(crate) fn bits(&self) -> Bits {
        self.map.bits
    }

    /// Returns the program's encoding of INT, if it puts INT into packets.
    pub(crate) fn encoding(&self) -> Option<Encoding> {
        self.map.encoding()
    }

    /// Returns the rows of a kind, each with its index.
    pub(crate) fn rows(&self, kind: Kind) -> impl Iterator<Item = (usize, &Row)> {
        self.rows
            .iter()
            .enumerate()
            .filter(move |(_, row)| row.kind == kind)
    }

    /// Returns the numbers of the map's clone sessions.
    pub(crate) fn sessions(&self) -> BTreeSet<u32> {
        let sessions = self.rows.iter().filter_map(|row| match row.form {
            Form::Clone { session, .. } => Some(session),
            Form::Table { .. } | Form::Group { .. } => None,
        });
        sessions.collect()
    }

    /// Returns whether the map has multicast groups.
    pub(crate) fn has_groups(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.form, Form::Group { .. }))
    }

    /// Returns the device's role outside the INT domain, if it has one.
    pub fn role(&self) -> Option<&Role> {
        self.local.role.as_ref()
    }

    /// Returns the tables whose direct counters count reports, and the tables whose direct counters count watched packets.
    pub(crate) fn counting_tables(&self) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let mut reporting = BTreeSet::new();
        let mut watching = BTreeSet::new();
        for row in &self.rows {
            let Form::Table { table, .. } = row.form else {
                continue;
            };
            if row.counts_reports {
                reporting.insert(table);
            }
            if row.counts_matches {
                watching.insert(table);
            }
        }
        (reporting, watching)
    }

    /// Returns the name of a table, or `table ID` for one that the map does not use.
    pub(crate) fn table_name(&self, table: u32) -> String {
        self.tables
            .get(&table)
            .map_or_else(|| format!("table {table}"), |facts| facts.name.clone())
    }

    /// Renders a match field with its name.
    pub(crate) fn field_text(&self, table: u32, id: u32, field: &Field) -> String {
        match self.tables.get(&table).and_then(|facts| facts.fields.get(&id)) {
            Some((name, notation)) => format!("{name} {}", notation.field(field)),
            None => format!("field {id} {field}"),
        }
    }

    /// Returns the name of an action, or `action ID` if it is unknown.
    pub(crate) fn action_name(&self, action: u32) -> String {
        self.actions
            .get(&action)
            .cloned()
            .unwrap_or_else(|| format!("action {action}"))
    }

    /// Returns the watchlist's match fields whose values are any of these variables.
    fn watch_fields(&self, variables: &[Variable]) -> Vec<&BoundValue> {
        self.rows(Kind::Watch)
            .filter_map(|(_, row)| match &row.form {
                Form::Table { fields, .. } => Some(fields.iter()),
                Form::Clone { .. } | Form::Group { .. } => None,
            })
            .flatten()
            .filter(|field| {
                variables
                    .iter()
                    .any(|variable| field.value == Value::Variable(*variable))
            })
            .collect()
    }

    /// Derives the kinds of supported keys from the match fields of the watchlist's tables.
    fn matches(&self) -> MatchKinds {
        let addresses = self.watch_fields(&[Variable::Src, Variable::Dst]);
        let ports = self.watch_fields(&[Variable::Sport, Variable::Dport]);
        let key = self.watch_fields(&[
            Variable::Src,
            Variable::Dst,
            Variable::Sport,
            Variable::Dport,
            Variable::Proto,
        ]);
        MatchKinds {
            ipv6: addresses.iter().any(|field| field.width == 128),
            prefixes: addresses
                .iter()
                .all(|field| matches!(field.kind, MatchType::Ternary | MatchType::Lpm)),
            wildcards: key.iter().all(|field| field.kind != MatchType::Exact),
            ranges: ports.iter().all(|field| field.kind == MatchType::Range),
            dscp: !self.watch_fields(&[Variable::Dscp]).is_empty(),
            protocol: !self.watch_fields(&[Variable::Proto]).is_empty(),
            needs_port: self.map.settings.needs_port,
        }
    }

    /// Returns the capacity of the smallest table for this kind, minus the entries that sessions need there.
    fn room(&self, kind: Kind) -> usize {
        let rooms = self.tables_of(kind).into_iter().map(|id| {
            let used = self
                .rows(Kind::Session)
                .filter(|(_, row)| matches!(row.form, Form::Table { table, .. } if table == id))
                .count();
            let size = self
                .tables
                .get(&id)
                .map_or(0, |facts| facts.size.unwrap_or(UNKNOWN_SIZE));
            size.saturating_sub(used)
        });
        rooms.min().unwrap_or(0)
    }

    /// Returns the tables that entries of this kind use.
    pub(crate) fn tables_of(&self, kind: Kind) -> BTreeSet<u32> {
        let tables = self.rows(kind).filter_map(|(_, row)| match row.form {
            Form::Table { table, .. } => Some(table),
            Form::Clone { .. } | Form::Group { .. } => None,
        });
        tables.collect()
    }
}

/// Returns a device's capabilities as far as its map defines them; for the kinds of keys it assumes what most programs support.
pub fn capabilities(map: &Map, local: &LocalSettings) -> Capabilities {
    let restart = local.restart.unwrap_or(match map.settings.restart {
        _ if map.role().is_some() => Restart::Waits,
        // Another controller's routes may be installed before the manager's rules.
        Restart::Waits if needs_routes(map) && local.routes.is_empty() => Restart::Forwards,
        restart => restart,
    });
    let proto = Value::Variable(Variable::Proto);
    Capabilities {
        modes: map.modes.clone(),
        bits: map.bits,
        matches: MatchKinds {
            ipv6: false,
            prefixes: true,
            wildcards: true,
            ranges: false,
            dscp: false,
            protocol: map
                .rows(Kind::Watch)
                .iter()
                .any(|row| row.r#match.values().any(|value| *value == proto)),
            needs_port: map.settings.needs_port,
        },
        watch_entries: UNKNOWN_SIZE,
        filter_entries: if map.has(Kind::Filter) { UNKNOWN_SIZE } else { 0 },
        filters: map
            .rows(Kind::Filter)
            .iter()
            .filter_map(filter_of)
            .map(|(algorithm, _)| algorithm)
            .collect(),
        rules: rules(map),
        sampling: map.samples(),
        dta: false,
        sink: map.has(Kind::Sink),
        joint_roles: !map.has(Kind::Source),
        l4_checksum: [map.l4_checksum()].into(),
        restart,
    }
}

/// Returns the limits of filters by rule, as far as the map defines them.
fn rules(map: &Map) -> RuleLimits {
    let settings = &map.settings;
    let filters = match settings.rule_filters.as_slice() {
        [first, last] => usize::from(last.saturating_sub(*first)) + 1,
        _ => 0,
    };
    RuleLimits {
        filters,
        comparisons: settings
            .term
            .iter()
            .map(|row| usize::from(row.tables.unwrap_or(1)))
            .sum(),
        clauses: usize::from(u8::MAX),
        history: false,
        metrics: settings
            .rule_metrics
            .iter()
            .filter_map(|name| Metric::from_name(name))
            .collect(),
    }
}

/// Converts an entry of a role into a row of a map.
fn role_settings(row: &roles::Row) -> RowSettings {
    match &row.form {
        roles::Form::Table {
            table,
            default,
            key,
            action,
            params,
        } => RowSettings {
            table: Some((*table).to_owned()),
            default: *default,
            r#match: values(key),
            action: (*action).to_owned(),
            params: values(params),
            ..RowSettings::default()
        },
        roles::Form::Clone { session, port } => RowSettings {
            clone_session: Some(*session),
            port: Some(Value::Number((*port).into())),
            ..RowSettings::default()
        },
        roles::Form::Group { group, replicas } => RowSettings {
            multicast_group: Some(*group),
            replicas: replicas
                .iter()
                .map(|(port, instance)| ReplicaSettings {
                    port: *port,
                    instance: *instance,
                })
                .collect(),
            ..RowSettings::default()
        },
    }
}

fn values(numbers: &roles::Numbers) -> BTreeMap<String, Value> {
    numbers
        .iter()
        .map(|(name, number)| ((*name).to_owned(), Value::Number(*number)))
        .collect()
}

/// Expands a row into one row per table if it has `tables`.
fn table_rows(row: &RowSettings) -> Vec<RowSettings> {
    let Some(tables) = row.tables else {
        return vec![row.clone()];
    };
    let name = row.table.as_deref().unwrap_or_default();
    (0..tables)
        .map(|number| RowSettings {
            table: Some(format!("{name}{number}")),
            ..row.clone()
        })
        .collect()
}

/// Returns the filter algorithm and the metric of a row, or `None` if it has none.
fn filter_of(row: &RowSettings) -> Option<(FilterAlgorithm, Option<Metric>)> {
    let algorithm = FilterAlgorithm::from_name(row.algorithm.as_deref()?)?;
    Some((algorithm, row.metric.as_deref().and_then(Metric::from_name)))
}

/// Returns whether the program forwards by the routes in the device's settings.
fn needs_routes(map: &Map) -> bool {
    let route = Value::Variable(Variable::Route);
    map.rows(Kind::Forwarding)
        .iter()
        .any(|row| row.r#match.values().any(|value| *value == route))
}

/// Converts P4Info from text or binary format into the binary format.
///
/// # Errors
/// A sentence with a fix if it is neither.
pub fn info(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let binary = match str::from_utf8(&bytes) {
        // Binary data can be valid UTF-8, too: it is text only if it does not decode and contains the usual names.
        Ok(text) if check_info(&bytes).is_err() && (text.contains("pkg_info") || text.contains("tables")) => {
            crate::binary::to_binary(text)?
        }
        _ => bytes,
    };
    check_info(&binary).map(|()| binary)
}

/// Checks that `bytes` are binary P4Info with at least one table.
///
/// # Errors
/// A sentence with a fix if they are not.
pub fn check_info(bytes: &[u8]) -> Result<(), String> {
    let info = P4Info::decode(bytes).ok().filter(|info| !info.tables.is_empty());
    info.map(|_| ()).ok_or_else(|| {
        "its P4Info has no table; write the binary form, as `p4c --p4runtime-files program.bin` does"
            .to_owned()
    })
}

/// Binds rows to a program, and collects the problems.
struct Binding<'a> {
    info: &'a P4Info,
    local: &'a LocalSettings,
    problems: Vec<String>,
    tables: BTreeMap<u32, TableFacts>,
}

fn is_named(preamble: Option<&Preamble>, name: &str) -> bool {
    preamble.is_some_and(|preamble| preamble.name == name || preamble.alias == name)
}

impl<'a> Binding<'a> {
    /// Records a problem once, and returns `None`.
    fn problem<T>(&mut self, text: String) -> Option<T> {
        if !self.problems.contains(&text) {
            self.problems.push(text);
        }
        None
    }

    /// Binds the map's counter arrays.
    fn counters(&mut self, map: &Map) -> Counters {
        let mut counters = Counters::default();
        for settings in &map.settings.counters {
            let array = &settings.array;
            let counter = self
                .info
                .counters
                .iter()
                .find(|counter| is_named(counter.preamble.as_ref(), array));
            let Some((id, size)) =
                counter.and_then(|counter| Some((counter.preamble.as_ref()?.id, counter.size)))
            else {
                self.problem::<()>(format!("the program has no array of counters `{array}`"));
                continue;
            };
            if let Err(problem) = counters.add(id, size, settings) {
                self.problem::<()>(problem);
            }
        }
        counters
    }

    /// Binds the entries of the device's role, and checks that they fit in the tables.
    fn role_rows(&mut self, map: &Map) -> Vec<Row> {
        let expected = map.role();
        let Some(role) = self.local.role.as_ref() else {
            return Vec::new();
        };
        if expected != Some(role.kind) {
            let map_role = expected.map_or("switch", RoleKind::name);
            let word = role.kind.name();
            self.problem::<()>(format!(
                "the map is that of a {map_role}, and the device has the role `{word}`"
            ));
        }
        let mut rows = Vec::new();
        let mut used: BTreeMap<u32, usize> = BTreeMap::new();
        for row in role.rows() {
            let Some(bound) = self.row(Kind::Forwarding, &role_settings(row)) else {
                continue;
            };
            if let Form::Table {
                table,
                default: false,
                ..
            } = bound.form
            {
                *used.entry(table).or_default() += 1;
            }
            rows.push(Row {
                step: ROLE_STEPS + usize::from(row.step),
                ..bound
            });
        }
        for (table, used) in used {
            let Some(TableFacts { name, size, .. }) = self.tables.get(&table) else {
                continue;
            };
            let size = size.unwrap_or(UNKNOWN_SIZE);
            if used > size {
                let text =
                    format!("table `{name}` has room for {size} entries, and the settings need {used}");
                self.problem::<()>(text);
            }
        }
        rows
    }

    /// Binds one row. Returns `None` if it does not fit.
    fn row(&mut self, kind: Kind, row: &RowSettings) -> Option<Row> {
        let form = match (&row.table, row.clone_session) {
            (Some(table), _) => self.table_row(table, row)?,
            (None, None) if row.multicast_group.is_some() => {
                let mut replicas: Vec<_> = row
                    .replicas
                    .iter()
                    .map(|copy| PacketCopy {
                        port: Bytes::from(u128::from(copy.port)),
                        instance: copy.instance,
                    })
                    .collect();
                replicas.sort_unstable();
                Form::Group {
                    group: row.multicast_group?,
                    replicas,
                }
            }
            (None, Some(session)) => {
                let port = row.port?;
                self.check_local(port);
                Form::Clone {
                    session,
                    port,
                    truncate: row.truncate.into(),
                }
            }
            (None, None) => return None,
        };
        Some(Row {
            kind,
            family: row.family,
            mode: row.mode.as_deref().and_then(Mode::from_name),
            filter: filter_of(row),
            order: 1,
            step: 0,
            counts_reports: row.counts_reports,
            counts_matches: row.counts_matches,
            form,
        })
    }

    /// Binds a row of a table: its fields, action and parameters.
    fn table_row(&mut self, name: &str, row: &RowSettings) -> Option<Form> {
        let info = self.info;
        let found = info
            .tables
            .iter()
            .find(|table| is_named(table.preamble.as_ref(), name));
        let Some(table) = found else {
            return self.problem(format!("the program has no table `{name}`"));
        };
        let id = table.preamble.as_ref()?.id;
        let fields = self.fields(name, table, row);
        let (action, params) = self.action(name, table, row)?;
        let has_priority = !row.default
            && table.match_fields.iter().any(|field| {
                matches!(
                    field.match_type(),
                    MatchType::Ternary | MatchType::Range | MatchType::Optional
                )
            });
        let priority = has_priority.then_some(row.priority);
        let counts = info
            .direct_counters
            .iter()
            .any(|counter| counter.direct_table_id == id);
        if (row.counts_matches || row.counts_reports) && !counts {
            self.problem::<()>(format!("the entries of table `{name}` have no counters"));
        }
        let names = table.match_fields.iter().map(|field| {
            let notation = Notation::new(&field.name, field.bitwidth);
            (field.id, (field.name.clone(), notation))
        });
        let facts = self.tables.entry(id).or_insert_with(|| TableFacts {
            name: name.to_owned(),
            fields: names.collect(),
            default: false,
            entries: false,
            size: usize::try_from(table.size).ok().filter(|size| *size > 0),
        });
        facts.default |= row.default;
        facts.entries |= !row.default;
        Some(Form::Table {
            table: id,
            default: row.default,
            priority,
            fields,
            action,
            params,
        })
    }

    /// Binds the fields of a row's key, and checks that required fields have values.
    fn fields(&mut self, name: &str, table: &P4Table, row: &RowSettings) -> Vec<BoundValue> {
        let mut fields = Vec::new();
        for (field, value) in &row.r#match {
            let Some(match_field) = table.match_fields.iter().find(|known| known.name == *field) else {
                let names: Vec<&str> = table
                    .match_fields
                    .iter()
                    .map(|known| known.name.as_str())
                    .collect();
                let known_names = if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                };
                self.problem::<()>(format!(
                    "the key of table `{name}` has no field `{field}`; it has {known_names}"
                ));
                continue;
            };
            let bound = BoundValue {
                id: match_field.id,
                name: field.clone(),
                width: u32::try_from(match_field.bitwidth).unwrap_or(0),
                kind: match_field.match_type(),
                value: *value,
            };
            let subject = format!("the field `{field}` of table `{name}`");
            self.check_value(&bound, &subject);
            self.check_kind(&bound, &subject);
            fields.push(bound);
        }
        for field in &table.match_fields {
            let needs_value =
                !row.default && matches!(field.match_type(), MatchType::Exact | MatchType::Unspecified);
            if !needs_value || row.r#match.contains_key(&field.name) {
                continue;
            }
            self.problem::<()>(format!(
                "the field `{}` of table `{name}` must have a value, and the map gives none",
                field.name
            ));
        }
        fields
    }

    /// Binds a row's action. Returns its id and parameters, or `None` if the table does not permit it.
    fn action(&mut self, name: &str, table: &P4Table, row: &RowSettings) -> Option<(u32, Vec<BoundValue>)> {
        let info = self.info;
        let found = info
            .actions
            .iter()
            .find(|action| is_named(action.preamble.as_ref(), &row.action));
        let Some(action) = found else {
            return self.problem(format!("the program has no action `{}`", row.action));
        };
        let id = action.preamble.as_ref()?.id;
        let unusable = if row.default {
            Scope::TableOnly
        } else {
            Scope::DefaultOnly
        };
        if !table
            .action_refs
            .iter()
            .any(|action| action.id == id && action.scope() != unusable)
        {
            let entry = if row.default {
                "the default entry"
            } else {
                "an entry"
            };
            return self.problem(format!(
                "{entry} of table `{name}` cannot have the action `{}`",
                row.action
            ));
        }
        Some((id, self.params(&row.action, action, row)))
    }

    fn params(&mut self, name: &str, action: &P4Action, row: &RowSettings) -> Vec<BoundValue> {
        let unknown: Vec<&String> = row
            .params
            .keys()
            .filter(|param| !action.params.iter().any(|known| known.name == **param))
            .collect();
        for param in unknown {
            let names: Vec<&str> = action.params.iter().map(|known| known.name.as_str()).collect();
            let known_names = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            self.problem::<()>(format!(
                "the action `{name}` has no parameter `{param}`; it has {known_names}"
            ));
        }
        let mut params = Vec::new();
        for param in &action.params {
            let Some(value) = row.params.get(&param.name) else {
                self.problem::<()>(format!(
                    "the parameter `{}` of action `{name}` must have a value, and the map gives none",
                    param.name
                ));
                continue;
            };
            let bound = BoundValue {
                id: param.id,
                name: param.name.clone(),
                width: u32::try_from(param.bitwidth).unwrap_or(0),
                kind: MatchType::Exact,
                value: *value,
            };
            self.check_value(
                &bound,
                &format!("the parameter `{}` of action `{name}`", param.name),
            );
            params.push(bound);
        }
        params
    }

    /// Checks that a value fits in the width of its field or parameter.
    fn check_value(&mut self, bound: &BoundValue, subject: &str) {
        self.check_local(bound.value);
        let width = bound.width;
        let fits = match bound.value {
            Value::Number(number) => width >= 128 || number >> width == 0,
            Value::Range(_, number) => width >= 64 || number >> width == 0,
            Value::Variable(Variable::Src | Variable::Dst | Variable::Route) => width == 32 || width == 128,
            Value::Variable(Variable::Collector) => width == 32 || width == 128,
            Value::Variable(Variable::ReportSource) => width == 32,
            Value::Variable(Variable::ReportMac | Variable::ReportSourceMac) => width == 48,
            Value::Variable(Variable::RouteMac | Variable::RouteSourceMac) => width == 48,
            Value::Variable(Variable::Mtu) => width == 16,
            Value::Variable(Variable::Sport | Variable::Dport | Variable::CollectorPort) => width == 16,
            Value::Variable(Variable::Proto) => width == 8,
            Value::Variable(Variable::Dscp) => (6..=8).contains(&width),
            Value::Variable(Variable::Bits) => width == 16,
            Value::Variable(Variable::TermNode | Variable::TermHops) => width == 32,
            Value::Variable(Variable::TermValue | Variable::Clauses) => width <= 64,
            Value::Variable(variable) if variable.nibble().is_some() => width == 4,
            // For these variables, only the actual value decides; encoding checks it.
            Value::Variable(_) => (1..=128).contains(&width),
        };
        if !fits {
            let value = match bound.value {
                Value::Number(number) => number.to_string(),
                Value::Range(first, last) => format!("{first}-{last}"),
                Value::Variable(variable) => variable.name().to_owned(),
            };
            self.problem::<()>(format!("{subject} has {width} bits, which do not fit `{value}`"));
        }
    }

    /// Checks that the match kind of a field can express its value.
    fn check_kind(&mut self, bound: &BoundValue, subject: &str) {
        let is_prefix = matches!(
            bound.value,
            Value::Variable(Variable::Src | Variable::Dst | Variable::Route)
        );
        match bound.kind {
            MatchType::Unspecified => {
                self.problem(format!("{subject} has a kind that P4Runtime does not define"))
            }
            MatchType::Range if is_prefix => {
                self.problem(format!("{subject} is a range, which no prefix is"))
            }
            _ => None::<()>,
        };
    }

    /// Checks that the device's settings contain the value, if they must.
    fn check_local(&mut self, value: Value) {
        let needed = matches!(
            value,
            Value::Variable(
                Variable::ReportPort
                    | Variable::ReportSource
                    | Variable::ReportSourceMac
                    | Variable::ReportMac
            )
        );
        if needed && self.local.report.is_none() {
            self.problem::<()>("the map needs to know how reports leave the device; add `report`".to_owned());
        }
    }
}
