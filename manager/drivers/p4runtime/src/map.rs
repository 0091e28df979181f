//! Pipeline maps: data that defines how the manager's rules become table entries of one P4 program.
//!
//! A map is a TOML file. For each [kind of rule](RuleKind), it lists templates of the entries that represent a rule: table,
//! match fields, action and parameters; or of a clone session or a multicast group. Values in a template are numbers, or names
//! of [`Variable`]s that the rule or the device gives; with them, a template becomes an `Entry` of the device. Users call a
//! template an entry of the map.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use settings::read::{ConfigError, Node, Reader, span_of};
use settings::setting::{Setting, tables};
use settings::{choice, section};

use detect::Metric;
use flate2::read::GzDecoder;
use manager::device::{Encoding, FilterAlgorithm, L4Checksum, Mode, Restart};
use manager::instruction::Bits;

use crate::counters::{self, CounterSettings};
use crate::roles::RoleKind;
use crate::variable::Scope;
pub use crate::variable::{Value, Variable};

/// Maximum number of templates of one kind of rule.
pub const MAX_TEMPLATES: usize = 512;
/// Maximum number of tables for the comparisons of filter rules.
const MAX_TERMS: u8 = 128;
/// Maximum number of fields of a key, and of parameters of an action.
pub const MAX_VALUES: usize = 32;

section! {
    /// A pipeline map. All names are those of the program's P4Info; the alias of a name is allowed, too.
    pub struct MapSettings("the pipeline map") {
        /// Description of the program.
        pub(crate) program: String = String::new(),
        /// Set for an `"aggregator"` or a `"translator"`, which is not a switch of the domain: its entries come from its settings and from
        /// `forwarding`.
        pub(crate) role: Option<RoleKind> = None,
        /// Modes in which it measures: `"md"`, `"mx"`, `"postcard"`, `"sf"`.
        pub(crate) modes: Vec<String> = Vec::new(),
        /// Numbers of the instruction bits that it fills.
        pub(crate) bits: Vec<u8> = Vec::new(),
        /// 4-byte words of a value, by number of its instruction bit; 1 if not given.
        pub(crate) words: BTreeMap<u8, u8> = BTreeMap::new(),
        /// DSCP with which it marks packets with INT. Not set: it has no INT in packets.
        pub(crate) dscp: Option<u8> = None,
        /// Treatment of the L4 checksum of packets with INT.
        pub(crate) l4_checksum: L4Checksum = L4Checksum::Leave,
        /// Behaviour of a restarted device that has the program and no entries.
        pub(crate) restart: Restart = Restart::Forwards,
        /// It inserts INT into packets without ports, which no sink removes: each entry of the watchlist must have a port.
        pub(crate) needs_port: bool = false,
        /// The device returns the `metadata` of entries, by which the driver recognises its own. `false`: every entry that looks like
        /// one of the driver's is its own.
        pub(crate) metadata: bool = true,
        /// Greatest priority of an entry that the device takes.
        pub(crate) max_priority: u32 = 0xff_ffff,
        /// Profile with which a collector in the manager's process reads the reports: `dialect`, `timestamp_unit`, `latency_unit`, `queue_unit`; those that differ.
        pub(crate) profile: BTreeMap<String, String> = BTreeMap::new(),
        /// Reports go to a collector.
        pub(crate) session: Vec<TemplateSettings> = Vec::new(),
        /// A port removes INT.
        pub(crate) sink: Vec<TemplateSettings> = Vec::new(),
        /// The node executes instructions.
        pub(crate) transit: Vec<TemplateSettings> = Vec::new(),
        /// Numbers of the filters by rule: the first and the last one.
        pub(crate) rule_filters: Vec<u8> = Vec::new(),
        /// Metrics that rules of filters may compare; `"flow_path"` for the number of hops and loops.
        pub(crate) rule_metrics: Vec<String> = Vec::new(),
        /// A comparison of a filter's rule.
        pub(crate) term: Vec<TemplateSettings> = Vec::new(),
        /// A filter's rule: the clauses that must all hold.
        pub(crate) clauses: Vec<TemplateSettings> = Vec::new(),
        /// A filter at a sink.
        pub(crate) filter: Vec<TemplateSettings> = Vec::new(),
        /// The device forwards; only of programs that forward nothing without these entries.
        pub(crate) forwarding: Vec<TemplateSettings> = Vec::new(),
        /// Packets that enter by a port are compared with the watchlist.
        pub(crate) source: Vec<TemplateSettings> = Vec::new(),
        /// An entry of the watchlist.
        pub(crate) watch: Vec<TemplateSettings> = Vec::new(),
        /// Counters of the program that are shown.
        pub(crate) counters: Vec<CounterSettings> = Vec::new(),
        /// Bounds of the entries above.
        pub(crate) bounds: Vec<BoundSettings> = Vec::new(),
    }
}

section! {
    /// A bound of all entries of a table: a field of the key is a number or a range, and at most a parameter of the same entry.
    pub struct BoundSettings("a bound of the map") {
        /// Name of the table.
        pub(crate) table: String = String::new(),
        /// The field of the key.
        pub(crate) field: String = String::new(),
        /// The parameter of the action.
        pub(crate) parameter: String = String::new(),
    }
}

section! {
    /// A template of an entry of a table, of a clone session, or of a multicast group.
    pub struct TemplateSettings("an entry of the map") {
        /// The table. Not set: the entry is a clone session.
        pub(crate) table: Option<String> = None,
        /// The fields of the key. A field that the rule leaves open is left out of the entry.
        pub(crate) r#match: BTreeMap<String, Value> = BTreeMap::new(),
        /// It is the default entry of the table.
        pub(crate) default: bool = false,
        /// Name of the action.
        pub(crate) action: String = String::new(),
        /// The parameters of the action.
        pub(crate) params: BTreeMap<String, Value> = BTreeMap::new(),
        /// Priority where the key has one. `"precedence"`: narrower keys win; `"first"`: it wins over all of these.
        pub(crate) priority: PriorityWord = PriorityWord::Precedence,
        /// Only rules about this version of IP, and those about both.
        pub(crate) family: Option<FamilyWord> = None,
        /// Only entries of the watchlist of this mode.
        pub(crate) mode: Option<String> = None,
        /// Only filters of this algorithm: `"noop"`, `"per_hop"`, `"per_flow"`, `"change"` or `"rule"`. Each entry of a filter has one.
        pub(crate) algorithm: Option<String> = None,
        /// Only filters of this metric; for `per_hop` and `per_flow`.
        pub(crate) metric: Option<String> = None,
        /// `table` is this many tables, whose names end in their number, from 0; of `term`: each holds one comparison of a rule.
        pub(crate) tables: Option<u8> = None,
        /// The direct counter of the entry counts reports.
        pub(crate) counts_reports: bool = false,
        /// The direct counter of the entry counts the packets that match it; of entries of the watchlist.
        pub(crate) counts_matches: bool = false,
        /// The number of the clone session.
        pub(crate) clone_session: Option<u32> = None,
        /// The port to which the clone session sends.
        pub(crate) port: Option<Value> = None,
        /// Longest packet of the clone session, bytes; 0: no limit.
        pub(crate) truncate: u16 = 0,
        /// The number of the multicast group; of `forwarding`.
        pub(crate) multicast_group: Option<u32> = None,
        /// The copies of the multicast group.
        pub(crate) replicas: Vec<ReplicaSettings> = Vec::new(),
    }
}

section! {
    /// A copy of a multicast group.
    pub struct ReplicaSettings("a copy of a multicast group") {
        /// The port to which it goes.
        pub(crate) port: u32 = 0,
        /// The instance, which tells copies apart in the program.
        pub(crate) instance: u32 = 0,
    }
}

choice! {
    /// Priority of an entry.
    pub enum PriorityWord("\"precedence\" or \"first\"") {
        /// Narrower keys win over wider ones.
        Precedence = "precedence",
        /// The entry wins over all others.
        First = "first",
    }
}

choice! {
    /// A version of IP.
    pub enum FamilyWord("\"ipv4\" or \"ipv6\"") {
        /// Version 4 of IP.
        Ipv4 = "ipv4",
        /// Version 6 of IP.
        Ipv6 = "ipv6",
    }
}

wire::named! {
    /// Kinds of the manager's rules. Entries are added in this order and removed in reverse order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum RuleKind, name {
        /// Reports go to a collector.
        Session => "session",
        /// A port removes INT.
        Sink => "sink",
        /// The node executes instructions.
        Transit => "transit",
        /// A comparison of a filter's rule.
        Term => "term",
        /// A filter's rule as clauses.
        Clauses => "clauses",
        /// A filter at a sink.
        Filter => "filter",
        /// The device forwards packets.
        Forwarding => "forwarding",
        /// Packets of a port are compared with the watchlist.
        Source => "source",
        /// An entry of the watchlist.
        Watch => "watch",
    }
}

impl RuleKind {
    /// Returns whether rules of this kind have the variables of `scope`.
    fn has(self, scope: Scope) -> bool {
        match scope {
            Scope::Any => true,
            Scope::Port => matches!(self, Self::Sink | Self::Source),
            Scope::Session => self == Self::Session,
            Scope::Forwarding => self == Self::Forwarding,
            Scope::Watch => self == Self::Watch,
            Scope::Filter => self == Self::Filter,
            Scope::Rule => matches!(self, Self::Term | Self::Clauses | Self::Filter),
            Scope::Term => self == Self::Term,
            Scope::Clauses => matches!(self, Self::Term | Self::Clauses),
            Scope::Flows => matches!(self, Self::Watch | Self::Filter),
        }
    }
}

/// A checked pipeline map, not yet bound to a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    pub(crate) settings: MapSettings,
    pub(crate) modes: BTreeSet<Mode>,
    pub(crate) bits: Bits,
}

impl Map {
    /// Returns the templates of a kind of rule.
    pub(crate) fn templates(&self, kind: RuleKind) -> &[TemplateSettings] {
        self.settings.templates(kind)
    }

    /// Returns whether the map has templates for a kind of rule.
    pub(crate) fn has(&self, kind: RuleKind) -> bool {
        !self.templates(kind).is_empty()
    }

    /// Returns the settings for a collector's `[profiles]` to decode the reports: dialect, and the units that differ.
    pub fn profile(&self) -> &BTreeMap<String, String> {
        &self.settings.profile
    }

    /// Returns the role of the map's devices, or `None` for switches of the domain.
    pub fn role(&self) -> Option<RoleKind> {
        self.settings.role
    }

    /// Returns the program's encoding of INT, or `None` if it puts no INT into packets.
    pub fn encoding(&self) -> Option<Encoding> {
        let l4_checksum = self.l4_checksum();
        self.settings.dscp.map(|dscp| Encoding { dscp, l4_checksum })
    }

    /// Returns whether the program can sample: every watchlist template has the sampling parameter.
    pub(crate) fn samples(&self) -> bool {
        let templates = self.templates(RuleKind::Watch);
        let sample = Value::Variable(Variable::Sample);
        !templates.is_empty()
            && templates
                .iter()
                .all(|template| template.params.values().any(|value| *value == sample))
    }

    /// Returns how the program treats the L4 checksum.
    pub(crate) fn l4_checksum(&self) -> L4Checksum {
        self.settings.l4_checksum
    }

    /// Returns the number of 4-byte words of a record with these bits.
    pub(crate) fn words(&self, bits: Bits) -> u64 {
        manager::instruction::numbers(bits)
            .map(|number| u64::from(self.settings.words.get(&number).copied().unwrap_or(1)))
            .sum()
    }
}

impl MapSettings {
    fn templates(&self, kind: RuleKind) -> &[TemplateSettings] {
        match kind {
            RuleKind::Session => &self.session,
            RuleKind::Sink => &self.sink,
            RuleKind::Transit => &self.transit,
            RuleKind::Term => &self.term,
            RuleKind::Clauses => &self.clauses,
            RuleKind::Filter => &self.filter,
            RuleKind::Forwarding => &self.forwarding,
            RuleKind::Source => &self.source,
            RuleKind::Watch => &self.watch,
        }
    }
}

/// Maps that are built into the program, as name and text.
pub const SHIPPED: [(&str, &str); 8] = [
    ("hopwise-int", include_str!("../maps/hopwise-int.toml")),
    ("hopwise-sf", include_str!("../maps/hopwise-sf.toml")),
    (
        "hopwise-dta-reporter",
        include_str!("../maps/hopwise-dta-reporter.toml"),
    ),
    (
        "hopwise-aggregator",
        include_str!("../maps/hopwise-aggregator.toml"),
    ),
    (
        "hopwise-dta-translator",
        include_str!("../maps/hopwise-dta-translator.toml"),
    ),
    ("onos-int", include_str!("../maps/onos-int.toml")),
    ("geant-int", include_str!("../maps/geant-int.toml")),
    ("fabric-tna", include_str!("../maps/fabric-tna.toml")),
];

/// Returns the text of a built-in map, or `None` if there is none with this name.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED
        .iter()
        .find(|(shipped, _)| *shipped == name)
        .map(|(_, text)| *text)
}

/// Returns the BMv2 program of a built-in map: P4Info as text, and the decompressed JSON. `None` if there is none.
pub fn program(name: &str) -> Option<(&'static str, Vec<u8>)> {
    // The build script compresses the JSON of these programs.
    macro_rules! compiled {
        ($name:literal) => {{
            let program: (&str, &[u8]) = (
                include_str!(concat!("../../../../p4/v1model/", $name, ".p4info.txtpb")),
                include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".json.gz")),
            );
            program
        }};
    }
    let (info, compressed) = match name {
        "hopwise-int" => compiled!("int"),
        "hopwise-sf" => compiled!("sf"),
        "hopwise-aggregator" => compiled!("aggregator"),
        "hopwise-dta-translator" => compiled!("dta_translator"),
        _ => return None,
    };
    let mut json = Vec::new();
    // A test checks that every program can be decompressed.
    GzDecoder::new(compressed).read_to_end(&mut json).ok()?;
    Some((info, json))
}

/// Parses and checks a map. `file` is its name in messages.
///
/// # Errors
/// [`ConfigError`], which lists every problem with its line and a fix.
pub fn read(text: &str, file: &str) -> Result<Map, ConfigError> {
    let mut reader = Reader::new(text);
    let mut map = None;
    if let Some(root) = reader.parse(tables::<MapSettings>)
        && let Some(settings) = MapSettings::read(&root, &mut reader)
    {
        map = Some(checked(settings, &root, &mut reader));
    }
    reader.finish(file)?;
    // There is always a map if there was no problem.
    Ok(map.unwrap_or_else(|| Map {
        settings: MapSettings::default(),
        modes: BTreeSet::new(),
        bits: 0,
    }))
}

/// Checks the settings as far as possible without a program, and reports problems to `reader`.
fn checked(settings: MapSettings, root: &Node<'_>, reader: &mut Reader<'_>) -> Map {
    let modes = check_modes(&settings, root, reader);
    let bits = check_bits(&settings, root, reader);
    if settings.dscp.is_some_and(|dscp| !(1..=63).contains(&dscp)) {
        reader.refuse(span_of(root, &["dscp"]), "write a number from 1 to 63");
    }
    if modes.iter().any(|mode| mode.embeds()) && settings.dscp.is_none() {
        reader.refuse(
            span_of(root, &["modes"]),
            "packets with INT are marked; add `dscp`, the mark of the program",
        );
    }
    if !(0x4_0000..=0x7fff_ffff).contains(&settings.max_priority) {
        reader.refuse(
            span_of(root, &["max_priority"]),
            "write a number from 262144 to 2147483647: each key needs a priority of its own",
        );
    }
    check_role(&settings, root, reader);
    for kind in RuleKind::ALL {
        let templates = settings.templates(kind);
        for (index, template) in templates.iter().enumerate() {
            check_template(kind, template, &[kind.name(), &index.to_string()], root, reader);
        }
        if templates.len() > MAX_TEMPLATES {
            reader.refuse(
                span_of(root, &[kind.name()]),
                format!("one rule is at most {MAX_TEMPLATES} entries"),
            );
        }
    }
    counters::check(&settings.counters, root, reader);
    check_rules(&settings, root, reader);
    check_bounds(&settings, root, reader);
    Map {
        settings,
        modes,
        bits,
    }
}

/// Checks the names of modes, and returns the modes.
fn check_modes(settings: &MapSettings, root: &Node<'_>, reader: &mut Reader<'_>) -> BTreeSet<Mode> {
    let mut modes = BTreeSet::new();
    for (index, name) in settings.modes.iter().enumerate() {
        match Mode::from_name(name) {
            Some(mode) => drop(modes.insert(mode)),
            None => reader.refuse(
                span_of(root, &["modes", &index.to_string()]),
                format!("there is no mode `{name}`; write \"md\", \"mx\", \"postcard\" or \"sf\""),
            ),
        }
    }
    modes
}

/// Checks the numbers of instruction bits, and returns the set of bits.
fn check_bits(settings: &MapSettings, root: &Node<'_>, reader: &mut Reader<'_>) -> Bits {
    let mut bits = 0;
    for (index, number) in settings.bits.iter().enumerate() {
        match number {
            0..=15 => bits |= manager::instruction::bit(*number),
            _ => {
                let span = span_of(root, &["bits", &index.to_string()]);
                reader.refuse(span, "an instruction bit has a number from 0 to 15");
            }
        }
    }
    bits
}

/// Checks that a map with a role has only what a role permits, and that `restart` agrees with `forwarding`.
fn check_role(settings: &MapSettings, root: &Node<'_>, reader: &mut Reader<'_>) {
    if settings.role.is_some() {
        let kind_of_intents = RuleKind::ALL
            .into_iter()
            .find(|kind| *kind != RuleKind::Forwarding && !settings.templates(*kind).is_empty());
        if let Some(kind) = kind_of_intents {
            reader.refuse(
                span_of(root, &[kind.name()]),
                "no intent concerns a device with a role: its map has `forwarding` and `counters`",
            );
        }
    } else if (settings.restart == Restart::Waits) == settings.forwarding.is_empty() {
        let message = "a program that waits has entries that let it forward, and only such a program: add both \
                       `restart = \"waits\"` and [[forwarding]], or neither";
        reader.refuse(span_of(root, &["restart"]), message);
    }
}

/// Checks the settings of filters by rule.
fn check_rules(settings: &MapSettings, root: &Node<'_>, reader: &mut Reader<'_>) {
    let by_rule = settings
        .filter
        .iter()
        .any(|template| template.algorithm.as_deref() == Some(FilterAlgorithm::Rule.name()));
    let numbers = span_of(root, &["rule_filters"]);
    match settings.rule_filters.as_slice() {
        [] if by_rule => {
            reader.refuse(
                span_of(root, &["filter"]),
                "filters by rule have numbers; add `rule_filters`, the first and the last",
            );
        }
        [] => {}
        [first, last] if first <= last => {
            if settings.term.len() != 1 || settings.clauses.len() != 1 {
                reader.refuse(
                    numbers,
                    "a rule is entries of one [[term]] and one [[clauses]]; add them",
                );
            }
        }
        _ => reader.refuse(numbers, "write two numbers, the first and the last: [7, 15]"),
    }
    for (index, name) in settings.rule_metrics.iter().enumerate() {
        if Metric::from_name(name).is_none() {
            let span = span_of(root, &["rule_metrics", &index.to_string()]);
            reader.refuse(span, "there is no such metric");
        }
    }
}

/// Checks that the entries respect the map's bounds, such as the maximum position in a mapping.
fn check_bounds(settings: &MapSettings, root: &Node<'_>, reader: &mut Reader<'_>) {
    for kind in RuleKind::ALL {
        for (index, template) in settings.templates(kind).iter().enumerate() {
            let bounds = settings
                .bounds
                .iter()
                .filter(|bound| template.table.as_ref() == Some(&bound.table));
            for BoundSettings { field, parameter, .. } in bounds {
                let last = match template.r#match.get(field) {
                    Some(Value::Number(number)) => Some(*number),
                    Some(Value::Range(_, last)) => Some((*last).into()),
                    Some(Value::Variable(_)) | None => None,
                };
                let most = match template.params.get(parameter) {
                    Some(Value::Number(number)) => *number,
                    _ => 0,
                };
                if last.is_none_or(|last| last > most) {
                    let span = span_of(root, &[kind.name(), &index.to_string()]);
                    reader.refuse(
                        span,
                        format!("`{field}` is at most `{parameter}`; write {field} = \"0-{most}\""),
                    );
                }
            }
        }
    }
}

/// Checks one template at `path`. `root` is the whole file, where `reader` locates problems.
fn check_template(
    kind: RuleKind,
    template: &TemplateSettings,
    path: &[&str],
    root: &Node<'_>,
    reader: &mut Reader<'_>,
) {
    let is_mode = template
        .mode
        .as_deref()
        .is_none_or(|mode| Mode::from_name(mode).is_some());
    let problems = [
        object_problem(kind, template),
        kind_problem(kind, template).or_else(|| filter_problem(kind, template)),
        (!is_mode).then_some("`mode` is \"md\", \"mx\", \"postcard\" or \"sf\""),
    ];
    for problem in problems.into_iter().flatten() {
        reader.refuse(span_of(root, path), problem);
    }
    if template.r#match.len().max(template.params.len()) > MAX_VALUES {
        reader.refuse(
            span_of(root, path),
            format!("an entry has at most {MAX_VALUES} fields and {MAX_VALUES} parameters"),
        );
    }
    for (section, values) in [("match", &template.r#match), ("params", &template.params)] {
        for (name, value) in values {
            if let Some(problem) = value_problem(kind, value, section == "params") {
                reader.refuse(span_of(root, &[path, &[section, name]].concat()), problem);
            }
        }
    }
    if let Some(Value::Variable(variable)) = template.port
        && variable != Variable::ReportPort
    {
        reader.refuse(
            span_of(root, &[path, &["port"]].concat()),
            "a clone session sends to \"report_port\" or to a number",
        );
    }
}

/// Returns the problem of a value that a rule of this kind cannot give to a field or, if `is_param`, to a parameter.
fn value_problem(kind: RuleKind, value: &Value, is_param: bool) -> Option<String> {
    match value {
        Value::Range(..) if is_param => Some("a parameter is one number".to_owned()),
        Value::Variable(variable) if !kind.has(variable.scope()) => {
            Some(format!("a rule of `{}` has no value `{variable}`", kind.name()))
        }
        Value::Variable(variable) if variable.is_key() && is_param => Some(format!(
            "`{variable}` describes packets; it can stand in `match` only"
        )),
        _ => None,
    }
}

/// Returns the problem of a template that is not exactly one of an entry, a clone session and a multicast group.
fn object_problem(kind: RuleKind, template: &TemplateSettings) -> Option<&'static str> {
    if template.multicast_group.is_some() || !template.replicas.is_empty() {
        return group_problem(kind, template);
    }
    let has_key = !template.r#match.is_empty();
    let has_action = !template.action.is_empty() || !template.params.is_empty();
    match (&template.table, template.clone_session) {
        (Some(_), None) if template.action.is_empty() => Some("an entry has an action; add `action`"),
        (Some(_), None) if template.port.is_some() || template.truncate > 0 => {
            Some("`port` and `truncate` belong to a clone session; remove them")
        }
        (Some(_), None) if template.default && has_key => {
            Some("the default entry has no key; remove `match`")
        }
        (None, Some(_)) if template.port.is_none() => Some("the port is missing; add `port`"),
        (None, Some(_)) if has_key || has_action => {
            Some("a clone session has neither key nor action; remove them")
        }
        (None, Some(0)) => Some("clone sessions have numbers from 1"),
        (Some(_), None) | (None, Some(_)) => None,
        (None, None) | (Some(_), Some(_)) => Some("an entry has either `table` or `clone_session`"),
    }
}

/// Returns the problem of a template with settings of a multicast group, if any.
fn group_problem(kind: RuleKind, template: &TemplateSettings) -> Option<&'static str> {
    let has_more = template.table.is_some()
        || template.clone_session.is_some()
        || template.port.is_some()
        || !template.params.is_empty();
    match template.multicast_group {
        None => Some("`replicas` are the copies of a multicast group; add `multicast_group`"),
        Some(_) if kind != RuleKind::Forwarding => {
            Some("multicast groups are entries of `forwarding`; move it there")
        }
        Some(_) if has_more || !template.r#match.is_empty() || !template.action.is_empty() => {
            Some("a multicast group has `replicas` and nothing else; remove the rest")
        }
        Some(0) => Some("multicast groups have numbers from 1"),
        Some(_) if template.replicas.is_empty() => {
            Some("the copies are missing; add replicas = [{ port = 1, instance = 1 }]")
        }
        Some(_) => None,
    }
}

/// Returns the problem of a template that has settings of another kind of rule, if any.
fn kind_problem(kind: RuleKind, template: &TemplateSettings) -> Option<&'static str> {
    if template.mode.is_some() && kind != RuleKind::Watch {
        return Some("only entries of the watchlist have a `mode`; remove it");
    }
    if template.family.is_some() && !matches!(kind, RuleKind::Watch | RuleKind::Filter | RuleKind::Forwarding)
    {
        return Some("only entries of the watchlist, of filters and of routes have a `family`; remove it");
    }
    if template.tables.is_some() != (kind == RuleKind::Term)
        || template.tables.is_some_and(|tables| tables > MAX_TERMS)
    {
        return Some("comparisons of rules, and only they, have `tables`: 1 to 128");
    }
    if template.counts_matches && (kind != RuleKind::Watch || template.table.is_none()) {
        return Some("only entries of the watchlist count what matches them; remove `counts_matches`");
    }
    None
}

/// Returns the problem of a template's filter algorithm and metric, if any.
fn filter_problem(kind: RuleKind, template: &TemplateSettings) -> Option<&'static str> {
    let algorithm = template.algorithm.as_deref().map(FilterAlgorithm::from_name);
    let compares = matches!(
        algorithm,
        Some(Some(FilterAlgorithm::PerHop | FilterAlgorithm::PerFlow))
    );
    match algorithm {
        _ if kind != RuleKind::Filter && (template.algorithm.is_some() || template.metric.is_some()) => {
            Some("only entries of filters have `algorithm` and `metric`; remove them")
        }
        None if kind != RuleKind::Filter => None,
        None | Some(None) => Some(
            "an entry of a filter has an `algorithm`: \"noop\", \"per_hop\", \"per_flow\", \"change\" or \"rule\"",
        ),
        _ if template.metric.is_some() != compares => {
            Some("\"per_hop\" and \"per_flow\" compare a `metric`, others none")
        }
        _ if template
            .metric
            .as_deref()
            .is_some_and(|name| Metric::from_name(name).is_none()) =>
        {
            Some("there is no such `metric`; write \"hop_latency\", \"flow_latency\" or \"queue_occupancy\"")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_maps_are_valid() {
        for (name, text) in SHIPPED {
            let map = read(text, name).unwrap_or_else(|error| panic!("{error}"));
            let measures = !map.modes.is_empty() && map.bits != 0;
            let has_templates =
                !map.templates(RuleKind::Session).is_empty() && !map.templates(RuleKind::Watch).is_empty();
            let is_switch = map.role().is_none();
            assert_eq!(
                (measures, has_templates, map.settings.program.is_empty()),
                (is_switch, is_switch, false),
                "{name}"
            );
        }
        assert_eq!(shipped("onos"), None);
    }

    #[test]
    fn programs_are_decompressed_whole() {
        let programs = [
            "hopwise-int",
            "hopwise-sf",
            "hopwise-aggregator",
            "hopwise-dta-translator",
        ];
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../p4/v1model");
        for name in programs {
            let (info, json) = program(name).unwrap();
            let stem = name.trim_start_matches("hopwise-").replace('-', "_");
            let file = std::fs::read(folder.join(format!("{stem}.json"))).unwrap();
            assert!(json == file && info.contains("pkg_info"), "{name}");
        }
        assert_eq!(program("hopwise-dta-reporter"), None);
    }

    #[test]
    fn the_reference_names_every_key_and_value() {
        let page = include_str!("../../../../docs/reference/pipeline-maps.md");
        let mut chapters = Vec::new();
        MapSettings::explain("", &mut chapters);
        TemplateSettings::explain("", &mut chapters);
        CounterSettings::explain("", &mut chapters);
        let keys: BTreeSet<&str> = chapters
            .iter()
            .flat_map(|chapter| &chapter.keys)
            .map(|key| key.name)
            .collect();
        assert!(keys.len() > 20, "{keys:?}");
        let is_missing = |word: &&str| !page.contains(&format!("`{word}`"));
        let words = Variable::ALL.iter().map(|variable| variable.name());
        assert_eq!(
            keys.into_iter()
                .chain(words)
                .filter(is_missing)
                .collect::<Vec<_>>(),
            Vec::<&str>::new()
        );
    }

    #[test]
    fn every_problem_is_told_with_its_line() {
        let text = r#"
modes = ["md", "xd"]
bits = [0, 16]
restart = "waits"
[[sink]]
table = "t"
action = "a"
match = { f = "prot", g = "src" }
params = { p = "dst" }
[[session]]
clone_session = 5
port = "port"
[[source]]
family = "ipv4"
"#;
        let error = read(text, "m.toml").unwrap_err().to_string();
        let expected = [
            "there is no mode `xd`",
            "packets with INT are marked",
            "a number from 0 to 15",
            "a program that waits",
            "there is no value `prot`; did you mean `port`?",
        ];
        for part in &expected[..4] {
            // A wrong value hides what follows from it.
            let text = text.replace("\"prot\"", "\"port\"");
            assert!(
                read(&text, "m.toml").unwrap_err().to_string().contains(part),
                "{part}"
            );
        }
        assert!(error.contains(expected[4]), "{error}");
        let error = read(&text.replace("\"prot\"", "\"port\""), "m.toml")
            .unwrap_err()
            .to_string();
        for part in [
            "m.toml:8:",
            "a rule of `sink` has no value `src`",
            "a rule of `sink` has no value `dst`",
            "sends to \"report_port\"",
            "an entry has either `table` or `clone_session`",
            "only entries of the watchlist, of filters and of routes have a `family`",
        ] {
            assert!(error.contains(part), "{part}\n{error}");
        }
    }

    #[test]
    fn counters_have_names_of_their_own() {
        let problem = |text: &str| {
            read(text, "m.toml")
                .err()
                .map_or(String::new(), |error| error.to_string())
        };
        let one = |names: &[&str]| problem(&format!("[[counters]]\narray = \"packets\"\nnames = {names:?}"));
        assert_eq!(one(&["plain", "", "", "edge_refused"]), "");
        for (names, expected) in [
            (
                &["Plain"][..],
                "m.toml:3:10: a counter has a name of at most 40 lower-case letters",
            ),
            (&["a", "a"], "m.toml:3:15: there is a counter `a` already"),
        ] {
            assert!(one(names).contains(expected), "{}", one(names));
        }
        let many: Vec<String> = (0..129).map(|number| format!("c{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(
            one(&many).contains("names at most 128 counters"),
            "{}",
            one(&many)
        );
        let array = |each: &str| format!("[[counters]]\narray = \"f\"\neach = \"{each}\"\nnames = [\"a\"]\n");
        // Objects of one kind have names of their own.
        let both = [array("filter"), array("mapping")].concat();
        assert_eq!(problem(&both), "");
        let twice = [array("filter"), array("filter")].concat();
        assert!(
            problem(&twice).contains("m.toml:8:10: there is a counter `a` already"),
            "{}",
            problem(&twice)
        );
        for each in ["", "Filter", "a b"] {
            let text = problem(&array(each));
            assert!(text.contains("m.toml:3:8: an object has a name"), "{text}");
        }
    }

    #[test]
    fn an_entry_of_a_filter_has_algorithm_and_metric() {
        let problem = |kind: &str, keys: &str| {
            let text = format!("[[{kind}]]\ntable = \"t\"\naction = \"a\"\n{keys}");
            read(&text, "m.toml")
                .err()
                .map_or(String::new(), |error| error.to_string())
        };
        for (kind, keys, expected) in [
            (
                "transit",
                "algorithm = \"noop\"",
                "only entries of filters have `algorithm` and `metric`",
            ),
            ("filter", "", "an entry of a filter has an `algorithm`"),
            (
                "filter",
                "algorithm = \"rules\"",
                "an entry of a filter has an `algorithm`",
            ),
            (
                "filter",
                "algorithm = \"rule\"",
                "filters by rule have numbers; add `rule_filters`",
            ),
            ("term", "", "comparisons of rules, and only they, have `tables`"),
            (
                "filter",
                "algorithm = \"change\"\nmetric = \"hop_latency\"",
                "compare a `metric`, others none",
            ),
            (
                "filter",
                "algorithm = \"per_hop\"",
                "compare a `metric`, others none",
            ),
            (
                "filter",
                "algorithm = \"per_hop\"\nmetric = \"latency\"",
                "there is no such `metric`",
            ),
        ] {
            assert!(
                problem(kind, keys).contains(expected),
                "{keys}: {}",
                problem(kind, keys)
            );
        }
        assert_eq!(
            problem("filter", "algorithm = \"per_flow\"\nmetric = \"flow_latency\""),
            ""
        );
    }
}
