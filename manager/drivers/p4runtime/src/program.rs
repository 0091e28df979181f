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
use crate::map::{
    FamilyWord, Map, PriorityWord, ReplicaSettings, RuleKind, TemplateSettings, Value, Variable,
};
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
    pub(crate) templates: Vec<Template>,
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

/// A template of entries, of the map or of a role, with the program's ids in place of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) kind: RuleKind,
    pub(crate) family: Option<FamilyWord>,
    pub(crate) mode: Option<Mode>,
    /// For a filter template: the algorithm, and the metric if it compares one.
    pub(crate) filter: Option<(FilterAlgorithm, Option<Metric>)>,
    /// Priority of entries without flows. An earlier `forwarding` template wins over later ones.
    pub(crate) order: u32,
    /// Position in the order of additions. Entries of one step of a role share it, so that they are written together.
    pub(crate) step: usize,
    pub(crate) counts_reports: bool,
    pub(crate) counts_matches: bool,
    pub(crate) form: Form,
}

/// The kind of object that a template describes.
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
        let mut templates = Vec::new();
        for kind in RuleKind::ALL {
            let of_tables: Vec<TemplateSettings> =
                map.templates(kind).iter().flat_map(templates_of_tables).collect();
            let bound = of_tables.iter().zip((1..=of_tables.len() as u32).rev());
            templates.extend(bound.filter_map(|(template, order)| {
                let order = if kind == RuleKind::Forwarding { order } else { 1 };
                binding
                    .template(kind, template)
                    .map(|template| Template { order, ..template })
            }));
        }
        for (index, template) in templates.iter_mut().enumerate() {
            template.step = index;
        }
        templates.extend(binding.role_templates(map));
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
            templates,
            tables,
            actions,
            counters,
        })
    }

    /// Returns the capabilities of a device with this program.
    pub fn capabilities(&self) -> Capabilities {
        let can = capabilities(&self.map, &self.local);
        let clauses = self
            .templates(RuleKind::Clauses)
            .map(|template| self.width(template, Variable::Clauses))
            .min()
            .unwrap_or(0) as usize;
        Capabilities {
            matches: self.matches(),
            watch_entries: self.room(RuleKind::Watch),
            filter_entries: self.room(RuleKind::Filter),
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

    /// Returns the templates of a kind.
    pub(crate) fn templates(&self, kind: RuleKind) -> impl Iterator<Item = &Template> {
        self.templates
            .iter()
            .filter(move |template| template.kind == kind)
    }

    /// Returns the numbers of the map's clone sessions.
    pub(crate) fn sessions(&self) -> BTreeSet<u32> {
        let sessions = self.templates.iter().filter_map(|template| match template.form {
            Form::Clone { session, .. } => Some(session),
            Form::Table { .. } | Form::Group { .. } => None,
        });
        sessions.collect()
    }

    /// Returns whether the map has multicast groups.
    pub(crate) fn has_groups(&self) -> bool {
        self.templates
            .iter()
            .any(|template| matches!(template.form, Form::Group { .. }))
    }

    /// Returns the device's role outside the INT domain, if it has one.
    pub fn role(&self) -> Option<&Role> {
        self.local.role.as_ref()
    }

    /// Returns the tables whose direct counters count reports, and the tables whose direct counters count watched packets.
    pub(crate) fn counting_tables(&self) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let mut reporting = BTreeSet::new();
        let mut watching = BTreeSet::new();
        for template in &self.templates {
            let Form::Table { table, .. } = template.form else {
                continue;
            };
            if template.counts_reports {
                reporting.insert(table);
            }
            if template.counts_matches {
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
        self.templates(RuleKind::Watch)
            .filter_map(|template| match &template.form {
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
    fn room(&self, kind: RuleKind) -> usize {
        let rooms = self.tables_of(kind).into_iter().map(|id| {
            let used = self
                .templates(RuleKind::Session)
                .filter(|template| matches!(template.form, Form::Table { table, .. } if table == id))
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
    pub(crate) fn tables_of(&self, kind: RuleKind) -> BTreeSet<u32> {
        let tables = self.templates(kind).filter_map(|template| match template.form {
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
                .templates(RuleKind::Watch)
                .iter()
                .any(|template| template.r#match.values().any(|value| *value == proto)),
            needs_port: map.settings.needs_port,
        },
        watch_entries: UNKNOWN_SIZE,
        filter_entries: if map.has(RuleKind::Filter) {
            UNKNOWN_SIZE
        } else {
            0
        },
        filters: map
            .templates(RuleKind::Filter)
            .iter()
            .filter_map(filter_of)
            .map(|(algorithm, _)| algorithm)
            .collect(),
        rules: rules(map),
        sampling: map.samples(),
        dta: false,
        sink: map.has(RuleKind::Sink),
        joint_roles: !map.has(RuleKind::Source),
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
            .map(|template| usize::from(template.tables.unwrap_or(1)))
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

/// Converts an entry of a role into a template, as a map would have it.
fn role_settings(entry: &roles::RoleEntry) -> TemplateSettings {
    match &entry.form {
        roles::Form::Table {
            table,
            default,
            key,
            action,
            params,
        } => TemplateSettings {
            table: Some((*table).to_owned()),
            default: *default,
            r#match: values(key),
            action: (*action).to_owned(),
            params: values(params),
            ..TemplateSettings::default()
        },
        roles::Form::Clone { session, port } => TemplateSettings {
            clone_session: Some(*session),
            port: Some(Value::Number((*port).into())),
            ..TemplateSettings::default()
        },
        roles::Form::Group { group, replicas } => TemplateSettings {
            multicast_group: Some(*group),
            replicas: replicas
                .iter()
                .map(|(port, instance)| ReplicaSettings {
                    port: *port,
                    instance: *instance,
                })
                .collect(),
            ..TemplateSettings::default()
        },
    }
}

fn values(numbers: &roles::Numbers) -> BTreeMap<String, Value> {
    numbers
        .iter()
        .map(|(name, number)| ((*name).to_owned(), Value::Number(*number)))
        .collect()
}

/// Expands a template into one template per table if it has `tables`.
fn templates_of_tables(template: &TemplateSettings) -> Vec<TemplateSettings> {
    let Some(tables) = template.tables else {
        return vec![template.clone()];
    };
    let name = template.table.as_deref().unwrap_or_default();
    (0..tables)
        .map(|number| TemplateSettings {
            table: Some(format!("{name}{number}")),
            ..template.clone()
        })
        .collect()
}

/// Returns the filter algorithm and the metric of a template, or `None` if it has none.
fn filter_of(template: &TemplateSettings) -> Option<(FilterAlgorithm, Option<Metric>)> {
    let algorithm = FilterAlgorithm::from_name(template.algorithm.as_deref()?)?;
    Some((algorithm, template.metric.as_deref().and_then(Metric::from_name)))
}

/// Returns whether the program forwards by the routes in the device's settings.
fn needs_routes(map: &Map) -> bool {
    let route = Value::Variable(Variable::Route);
    map.templates(RuleKind::Forwarding)
        .iter()
        .any(|template| template.r#match.values().any(|value| *value == route))
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

/// Binds templates to a program, and collects the problems.
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
    fn role_templates(&mut self, map: &Map) -> Vec<Template> {
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
        let mut templates = Vec::new();
        let mut used: BTreeMap<u32, usize> = BTreeMap::new();
        for entry in role.entries() {
            let Some(bound) = self.template(RuleKind::Forwarding, &role_settings(entry)) else {
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
            templates.push(Template {
                step: ROLE_STEPS + usize::from(entry.step),
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
        templates
    }

    /// Binds one template. Returns `None` if it does not fit.
    fn template(&mut self, kind: RuleKind, template: &TemplateSettings) -> Option<Template> {
        let form = match (&template.table, template.clone_session) {
            (Some(table), _) => self.table_template(table, template)?,
            (None, None) if template.multicast_group.is_some() => {
                let mut replicas: Vec<_> = template
                    .replicas
                    .iter()
                    .map(|copy| PacketCopy {
                        port: Bytes::from(u128::from(copy.port)),
                        instance: copy.instance,
                    })
                    .collect();
                replicas.sort_unstable();
                Form::Group {
                    group: template.multicast_group?,
                    replicas,
                }
            }
            (None, Some(session)) => {
                let port = template.port?;
                self.check_local(port);
                Form::Clone {
                    session,
                    port,
                    truncate: template.truncate.into(),
                }
            }
            (None, None) => return None,
        };
        Some(Template {
            kind,
            family: template.family,
            mode: template.mode.as_deref().and_then(Mode::from_name),
            filter: filter_of(template),
            order: 1,
            step: 0,
            counts_reports: template.counts_reports,
            counts_matches: template.counts_matches,
            form,
        })
    }

    /// Binds a template of a table: its fields, action and parameters.
    fn table_template(&mut self, name: &str, template: &TemplateSettings) -> Option<Form> {
        let info = self.info;
        let found = info
            .tables
            .iter()
            .find(|table| is_named(table.preamble.as_ref(), name));
        let Some(table) = found else {
            return self.problem(format!("the program has no table `{name}`"));
        };
        let id = table.preamble.as_ref()?.id;
        let fields = self.fields(name, table, template);
        let (action, params) = self.action(name, table, template)?;
        let has_priority = !template.default
            && table.match_fields.iter().any(|field| {
                matches!(
                    field.match_type(),
                    MatchType::Ternary | MatchType::Range | MatchType::Optional
                )
            });
        let priority = has_priority.then_some(template.priority);
        let counts = info
            .direct_counters
            .iter()
            .any(|counter| counter.direct_table_id == id);
        if (template.counts_matches || template.counts_reports) && !counts {
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
        facts.default |= template.default;
        facts.entries |= !template.default;
        Some(Form::Table {
            table: id,
            default: template.default,
            priority,
            fields,
            action,
            params,
        })
    }

    /// Binds the fields of a template's key, and checks that required fields have values.
    fn fields(&mut self, name: &str, table: &P4Table, template: &TemplateSettings) -> Vec<BoundValue> {
        let mut fields = Vec::new();
        for (field, value) in &template.r#match {
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
                !template.default && matches!(field.match_type(), MatchType::Exact | MatchType::Unspecified);
            if !needs_value || template.r#match.contains_key(&field.name) {
                continue;
            }
            self.problem::<()>(format!(
                "the field `{}` of table `{name}` must have a value, and the map gives none",
                field.name
            ));
        }
        fields
    }

    /// Binds a template's action. Returns its id and parameters, or `None` if the table does not permit it.
    fn action(
        &mut self,
        name: &str,
        table: &P4Table,
        template: &TemplateSettings,
    ) -> Option<(u32, Vec<BoundValue>)> {
        let info = self.info;
        let found = info
            .actions
            .iter()
            .find(|action| is_named(action.preamble.as_ref(), &template.action));
        let Some(action) = found else {
            return self.problem(format!("the program has no action `{}`", template.action));
        };
        let id = action.preamble.as_ref()?.id;
        let unusable = if template.default {
            Scope::TableOnly
        } else {
            Scope::DefaultOnly
        };
        if !table
            .action_refs
            .iter()
            .any(|action| action.id == id && action.scope() != unusable)
        {
            let entry = if template.default {
                "the default entry"
            } else {
                "an entry"
            };
            return self.problem(format!(
                "{entry} of table `{name}` cannot have the action `{}`",
                template.action
            ));
        }
        Some((id, self.params(&template.action, action, template)))
    }

    fn params(&mut self, name: &str, action: &P4Action, template: &TemplateSettings) -> Vec<BoundValue> {
        let unknown: Vec<&String> = template
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
            let Some(value) = template.params.get(&param.name) else {
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
