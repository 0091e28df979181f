//! Translates rules into table entries of a P4 program, and entries back into rules.
//!
//! Several rules may share one entry (the instructions of a node), a rule may need several entries (a session), and a rule may
//! need none (the encoding of INT, which the program fixes). Entries do not preserve what a program cannot express of a rule.
//! The driver therefore remembers the requested rules: an entry is decoded as a remembered rule that matches it, or else as
//! the simplest rule that does. Memory alone never makes a rule present: it is present only if the device has all of its
//! entries.

mod span;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use detect::table::Row as Comparison;
use detect::{Metric, Prefix};
use manager::device::{Change, Encoding, Filter, FilterAlgorithm, Mode, OtherEntries, Rule, Rules, Watch};
use manager::flows::{ANY_PORT, FlowMatch, Ports};
use manager::instruction::{self, Bits};

use crate::entry::{Bytes, Content, Entry, Field, Key, MARK, PacketCopy};
use crate::map::{FamilyWord, PriorityWord, RuleKind, Value, Variable};
use crate::message::{MatchType, UpdateType};
use crate::program::{BoundValue, Form, Program, Report, Route, Template};
use span::{address, address_number, ones, port_span, prefix_span, span};

/// Remaining hop count of decoded entries that contain none.
const DEFAULT_HOPS: u8 = 8;
/// Maximum number of updates in one request.
const MAX_UPDATES: usize = 100;

/// Entries by their key.
pub type Entries = BTreeMap<Key, Entry>;

/// An inclusive range of numbers that a match field selects.
pub(crate) type Span = (u128, u128);

/// The rules that a device's entries represent, and the classification of these entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meaning {
    /// The rules that the driver installed.
    pub rules: Rules,
    /// Entries of the driver, including remnants of incomplete rules.
    pub ours: Entries,
    /// Keys of the driver's entries that belong to no complete rule.
    pub remains: BTreeSet<Key>,
    /// Entries of other controllers.
    pub foreign: Vec<Entry>,
}

/// Updates of one request, which a device may execute in any order.
pub type Batch = Vec<(UpdateType, Entry)>;

/// An update, and its order. One request contains only updates of equal order.
struct Step {
    order: StepOrder,
    update: UpdateType,
    entry: Entry,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StepOrder {
    /// 0: entries are deleted, 1: modified, 2: inserted.
    phase: u8,
    /// Rank of the rule's kind; negative for deletions, which run in reverse order.
    kind: i64,
    /// Index of the map's template; negative for deletions.
    template: i64,
}

/// The values of a rule, from which its entries are built.
pub(crate) enum RuleValues<'a> {
    Port(u32),
    Session(SocketAddr),
    Watch(&'a Watch),
    Filter(&'a Filter),
    /// A comparison of a filter's rule: the filter's number, the comparison, and a bitmask of the clauses that it satisfies.
    Term(u8, &'a Comparison, u64),
    /// The filter's number, and a bitmask of the required clauses.
    Clauses(u8, u64),
    Route(&'a Route),
    /// A port number, and its MTU in bytes.
    Mtu(u32, u16),
    Nothing,
}

impl<'a> RuleValues<'a> {
    /// Returns the flows of a watchlist or filter entry.
    fn flows(&self) -> Option<&'a FlowMatch> {
        match self {
            Self::Watch(watch) => Some(&watch.key),
            Self::Filter(filter) => Some(&filter.key),
            _ => None,
        }
    }
}

/// Returns the priority of a key: of two nested keys, the narrower has the greater one. It depends on the key alone. Because
/// the watchlist of a device is closed under intersection, other pairs of keys need no order.
fn precedence(key: &FlowMatch) -> u32 {
    let fields = u32::from(key.proto.is_some()) + u32::from(key.dscp.is_some());
    1 + prefix_bits(key.src) + prefix_bits(key.dst) + narrowness(key.sport) + narrowness(key.dport) + fields
}

fn prefix_bits(prefix: Option<Prefix>) -> u32 {
    prefix.map_or(0, |prefix| u32::from(prefix.len()) + 1)
}

fn narrowness((first, last): Ports) -> u32 {
    u32::from(u16::MAX) - (u32::from(last) - u32::from(first))
}

impl Program {
    /// Encodes a rule as table entries, with provisional sampler and filter numbers.
    ///
    /// # Errors
    /// A sentence with a fix if the program cannot express the rule.
    pub fn encode(&self, rule: &Rule) -> Result<Vec<Entry>, String> {
        match rule {
            Rule::Encoding(encoding) => self.check_encoding(*encoding).map(|()| Vec::new()),
            Rule::Session(collector) => {
                let is_ipv4_only = self
                    .templates(RuleKind::Session)
                    .any(|template| self.width(template, Variable::Collector) == 32);
                if collector.is_ipv6() && is_ipv4_only {
                    return Err(
                        "the program reports over IPv4 only; use a collector with an IPv4 address".to_owned(),
                    );
                }
                self.entries(RuleKind::Session, &RuleValues::Session(*collector))
            }
            Rule::DtaMap(_) => Err("the program does not report by DTA".to_owned()),
            Rule::Sink(port) => self.entries(RuleKind::Sink, &RuleValues::Port(*port)),
            Rule::Source(port) => self.entries(RuleKind::Source, &RuleValues::Port(*port)),
            Rule::Forwarding => self.forwarding(),
            Rule::Instruction(number) => {
                if self.bits() & instruction::bit(*number) == 0 {
                    return Err(format!(
                        "the program does not fill {}",
                        instruction::name(*number)
                    ));
                }
                self.entries(RuleKind::Transit, &RuleValues::Nothing)
            }
            Rule::Filter(filter) => {
                self.check_filter(filter)?;
                let mut entries = match &filter.rule {
                    Some(rule) => self.encode_rule(rule)?,
                    None => Vec::new(),
                };
                entries.extend(self.entries(RuleKind::Filter, &RuleValues::Filter(filter))?);
                Ok(entries)
            }
            Rule::Watch(watch) => {
                self.check_watch(watch)?;
                self.entries(RuleKind::Watch, &RuleValues::Watch(watch))
            }
        }
    }

    fn check_encoding(&self, requested: Encoding) -> Result<(), String> {
        match self.encoding() {
            Some(fixed) if fixed == requested => Ok(()),
            Some(fixed) => Err(format!(
                "the program marks INT by DSCP {} and fixes the L4 checksum; write dscp = {} and l4_checksum = \"{}\" in [manager]",
                fixed.dscp,
                fixed.dscp,
                fixed.l4_checksum.name()
            )),
            None => Err("the program has no INT in packets; use mode = \"postcard\"".to_owned()),
        }
    }

    fn check_watch(&self, watch: &Watch) -> Result<(), String> {
        let lacking = watch.bits & !self.bits();
        if !self.map.modes.contains(&watch.mode) {
            return Err(format!("the program has no mode \"{}\"", watch.mode.name()));
        }
        if lacking != 0 {
            return Err(format!(
                "the program has no instruction {}",
                instruction::names(lacking)
            ));
        }
        if watch.sample > 1 && !self.map.samples() {
            return Err("the program cannot sample packets; remove `sample` from the intent".to_owned());
        }
        let has_port = [watch.key.sport, watch.key.dport]
            .into_iter()
            .any(|(first, last)| (first, last) != ANY_PORT && first > 0);
        if self.map.settings.needs_port && !has_port {
            return Err(
                "the program inserts INT into packets without ports; add a port to the intent".to_owned(),
            );
        }
        Ok(())
    }

    fn check_filter(&self, filter: &Filter) -> Result<(), String> {
        if self.templates(RuleKind::Filter).next().is_none() {
            return Err("the program has no filter; remove `filter` from the intent".to_owned());
        }
        let mut templates = self.templates(RuleKind::Filter);
        if !templates.any(|template| is_filter_template(template, filter)) {
            let algorithm = filter.algorithm.name();
            let metric = filter.metric;
            return Err(format!(
                "the program has no filter {algorithm} of {metric}; use another metric or filter"
            ));
        }
        match filter.key.dscp {
            Some(_) => Err(
                "the filters of the program cannot match the DSCP; remove `dscp` from the intent".to_owned(),
            ),
            None => Ok(()),
        }
    }

    /// Builds the entries of all templates of a kind that apply to the values.
    fn entries(&self, kind: RuleKind, rule_values: &RuleValues<'_>) -> Result<Vec<Entry>, String> {
        let entries: Vec<Entry> = self
            .templates(kind)
            .filter(|template| applies(template, rule_values))
            .map(|template| self.entry(template, rule_values))
            .collect::<Result<_, _>>()?;
        // A node may execute instructions without an entry.
        if entries.is_empty() && kind != RuleKind::Transit {
            return Err(format!("the program has no `{}` for this", kind.name()));
        }
        Ok(entries)
    }

    /// Encodes [`Rule::Forwarding`]. Some templates produce an entry for each configured route, or for each port with an MTU.
    fn forwarding(&self) -> Result<Vec<Entry>, String> {
        let mut entries = Vec::new();
        for template in self.templates(RuleKind::Forwarding) {
            let rule_values: Vec<RuleValues<'_>> = if self.width(template, Variable::Route) > 0 {
                self.local.routes.iter().map(RuleValues::Route).collect()
            } else if self.width(template, Variable::MtuPort) > 0 {
                self.local
                    .mtus
                    .iter()
                    .map(|(port, mtu)| RuleValues::Mtu(*port, *mtu))
                    .collect()
            } else {
                vec![RuleValues::Nothing]
            };
            for values in rule_values.iter().filter(|values| applies(template, values)) {
                entries.push(self.entry(template, values)?);
            }
        }
        if entries.is_empty() {
            return Err("the program has no `forwarding` for this".to_owned());
        }
        Ok(entries)
    }

    /// Builds the entry of a template with these values.
    pub(crate) fn entry(&self, template: &Template, rule_values: &RuleValues<'_>) -> Result<Entry, String> {
        match &template.form {
            Form::Clone {
                session,
                port,
                truncate,
            } => {
                let port = self.number(*port, rule_values)?.unwrap_or(0);
                // Instance 0, because Stratum on a Tofino refuses others.
                let replicas = vec![PacketCopy {
                    port: Bytes::from(port),
                    instance: 0,
                }];
                let content = Content::Copies {
                    replicas,
                    class: 0,
                    truncate: *truncate,
                };
                Ok(Entry {
                    key: Key::Clone(*session),
                    content,
                    metadata: Vec::new(),
                })
            }
            Form::Group { group, replicas } => {
                let content = Content::Copies {
                    replicas: replicas.clone(),
                    class: 0,
                    truncate: 0,
                };
                Ok(Entry {
                    key: Key::Group(*group),
                    content,
                    metadata: Vec::new(),
                })
            }
            Form::Table {
                table,
                default,
                priority,
                fields,
                action,
                params,
            } => {
                let mut values = BTreeMap::new();
                for param in params {
                    let value = self.number(param.value, rule_values)?.unwrap_or(0);
                    check_width(param, value)?;
                    values.insert(param.id, Bytes::from(value));
                }
                let mut key = BTreeMap::new();
                for bound in fields {
                    key.extend(self.field(bound, rule_values)?.map(|field| (bound.id, field)));
                }
                let priority = match (priority, rule_values.flows()) {
                    (None, _) => 0,
                    (Some(PriorityWord::Precedence), Some(key)) => precedence(key),
                    (Some(PriorityWord::Precedence), None) => template.order,
                    (Some(PriorityWord::First), _) => self.map.settings.max_priority,
                };
                let priority = i32::try_from(priority).unwrap_or(i32::MAX);
                let key = if *default {
                    Key::Default(*table)
                } else {
                    Key::Table {
                        table: *table,
                        priority,
                        fields: key,
                    }
                };
                let marked = self.map.settings.metadata && !default;
                let metadata = if marked { MARK.to_vec() } else { Vec::new() };
                Ok(Entry {
                    key,
                    content: Content::Action(*action, values),
                    metadata,
                })
            }
        }
    }

    /// Returns the number for a value, or `None` for a match field that the rule leaves open.
    fn number(&self, value: Value, rule_values: &RuleValues<'_>) -> Result<Option<u128>, String> {
        let variable = match value {
            Value::Number(number) => return Ok(Some(number)),
            Value::Range(number, _) => return Ok(Some(number.into())),
            Value::Variable(variable) => variable,
        };
        match (variable, rule_values) {
            (Variable::Node, _) => Ok(Some(self.local.node.into())),
            (Variable::ReportPort, _) => Ok(Some(self.report()?.port.into())),
            (Variable::ReportSource, _) => Ok(Some(u32::from(self.report()?.source).into())),
            (Variable::ReportSourceMac, _) => Ok(Some(self.report()?.source_mac.into())),
            (Variable::ReportMac, _) => Ok(Some(self.report()?.mac.into())),
            (Variable::RoutePort, RuleValues::Route(route)) => Ok(Some(route.port.into())),
            (Variable::RouteSourceMac, RuleValues::Route(route)) => Ok(Some(route.source_mac.into())),
            (Variable::RouteMac, RuleValues::Route(route)) => Ok(Some(route.mac.into())),
            (Variable::MtuPort, RuleValues::Mtu(port, _)) => Ok(Some((*port).into())),
            (Variable::Mtu, RuleValues::Mtu(_, mtu)) => Ok(Some((*mtu).into())),
            (Variable::Port, RuleValues::Port(port)) => Ok(Some((*port).into())),
            (Variable::Collector, RuleValues::Session(to)) => Ok(Some(address_number(to.ip()))),
            (Variable::CollectorPort, RuleValues::Session(to)) => Ok(Some(to.port().into())),
            // Provisional; `number_rules` in `crate::rules` replaces it.
            (Variable::FilterNumber, RuleValues::Filter(_)) => Ok(Some(self.first_rule_filter().into())),
            (Variable::FilterNumber, RuleValues::Term(number, ..) | RuleValues::Clauses(number, _)) => {
                Ok(Some((*number).into()))
            }
            (Variable::Clauses, RuleValues::Term(_, _, clauses) | RuleValues::Clauses(_, clauses)) => {
                Ok(Some((*clauses).into()))
            }
            (variable, RuleValues::Term(_, comparison, _)) => Ok(variable.comparison_value(comparison)),
            (Variable::Threshold, RuleValues::Filter(filter)) => Ok(Some(filter.threshold.into())),
            (Variable::Proto, RuleValues::Filter(filter)) => Ok(filter.key.proto.map(u128::from)),
            (variable, RuleValues::Watch(watch)) => self.watched(variable, watch),
            (variable, _) => Err(format!("the rule has no `{variable}`")),
        }
    }

    fn report(&self) -> Result<Report, String> {
        self.local
            .report
            .ok_or_else(|| "it is not known how reports leave the device; add `report`".to_owned())
    }

    /// Returns the value of a variable of a watchlist entry.
    fn watched(&self, variable: Variable, watch: &Watch) -> Result<Option<u128>, String> {
        let bits = watch.bits;
        Ok(match variable {
            Variable::Proto => watch.key.proto.map(u128::from),
            Variable::Dscp => watch.key.dscp.map(u128::from),
            Variable::Hops => Some(watch.hops.into()),
            Variable::Sample => Some(watch.sample.into()),
            // Provisional; `encode_all` in `crate::sampler` replaces it.
            Variable::Sampler => Some(0),
            Variable::Words => Some(self.map.words(bits).into()),
            Variable::Count => Some(bits.count_ones().into()),
            Variable::Bits => Some(bits.into()),
            _ => match variable.nibble() {
                Some(nibble) => Some(u128::from(bits >> (4 * nibble) & 0xf)),
                None => return Err(format!("the rule has no `{variable}`")),
            },
        })
    }

    /// Encodes a match field. Returns `None` if every value matches, so that the field is omitted.
    fn field(&self, bound: &BoundValue, rule_values: &RuleValues<'_>) -> Result<Option<Field>, String> {
        let span = match (bound.value, rule_values.flows(), rule_values) {
            (Value::Range(first, last), ..) => Some((first.into(), last.into())),
            (Value::Variable(Variable::Src), Some(key), _) => prefix_span(key.src, bound)?,
            (Value::Variable(Variable::Dst), Some(key), _) => prefix_span(key.dst, bound)?,
            (Value::Variable(Variable::Route), _, RuleValues::Route(route)) => {
                prefix_span(Some(route.to), bound)?
            }
            (Value::Variable(Variable::Sport), Some(key), _) => port_span(key.sport),
            (Value::Variable(Variable::Dport), Some(key), _) => port_span(key.dport),
            (value, _, rule_values) => self.number(value, rule_values)?.map(|number| (number, number)),
        };
        if let (Value::Variable(Variable::Clauses), Some((clauses, _))) = (bound.value, span) {
            check_width(bound, clauses)?;
            return Ok((clauses != 0).then(|| Field::Ternary(clauses.into(), clauses.into())));
        }
        let Some((low, high)) = span else {
            return match bound.kind {
                MatchType::Exact => Err(format!(
                    "the key of the program needs one value for `{}`",
                    bound.name
                )),
                _ => Ok(None),
            };
        };
        check_width(bound, high)?;
        let all = ones(bound.width);
        let single = low == high;
        // The bounds of a prefix differ exactly in the low bits that do not count.
        let is_prefix = (low ^ high) & (low ^ high).wrapping_add(1) == 0 && low & (low ^ high) == 0;
        let mask = all & !(low ^ high);
        match bound.kind {
            MatchType::Exact if single => Ok(Some(Field::Exact(low.into()))),
            MatchType::Optional if single => Ok(Some(Field::Optional(low.into()))),
            MatchType::Range => Ok(Some(Field::Range(low.into(), high.into()))),
            MatchType::Ternary if is_prefix && mask == 0 => Ok(None),
            MatchType::Ternary if is_prefix => Ok(Some(Field::Ternary(low.into(), mask.into()))),
            MatchType::Lpm if is_prefix && mask == 0 => Ok(None),
            MatchType::Lpm if is_prefix => {
                let length = i32::try_from(mask.count_ones()).unwrap_or(0);
                Ok(Some(Field::Lpm(low.into(), length)))
            }
            _ => Err(format!(
                "the field `{}` of the program cannot match a range; list the values",
                bound.name
            )),
        }
    }

    /// Decodes a device's entries into rules. `remembered` are the requested rules.
    pub fn decode(&self, entries: Vec<Entry>, remembered: &Rules) -> Meaning {
        let mut meaning = Meaning::default();
        for entry in entries {
            match self.is_ours(&entry) {
                Some(true) => drop(meaning.ours.insert(entry.key.clone(), entry)),
                Some(false) => meaning.foreign.push(entry),
                None => {}
            }
        }
        let mut covered: BTreeSet<Key> = BTreeSet::new();
        for rule in remembered {
            self.add_rule(rule, &mut meaning, &mut covered);
        }
        let rest: Vec<Entry> = {
            let known: BTreeSet<Key> = self.covered_by(&meaning.rules, &meaning.ours);
            meaning
                .ours
                .values()
                .filter(|entry| !known.contains(&entry.key))
                .cloned()
                .collect()
        };
        // A rule with several entries is a candidate for each of them; try it once.
        let mut tried = BTreeSet::new();
        for entry in rest {
            for rule in self.candidates(&entry, &meaning.ours) {
                let is_occupied = meaning
                    .rules
                    .iter()
                    .any(|other| other != &rule && other.same_entry(&rule));
                if !is_occupied && tried.insert(rule.clone()) {
                    self.add_rule(&rule, &mut meaning, &mut covered);
                }
            }
        }
        meaning.remains = meaning
            .ours
            .keys()
            .filter(|key| !covered.contains(key))
            .cloned()
            .collect();
        meaning
    }

    /// Adds a rule and marks its entries as covered, if the device has all of them.
    fn add_rule(&self, rule: &Rule, meaning: &mut Meaning, covered: &mut BTreeSet<Key>) {
        let Ok(parts) = self.encode(rule) else { return };
        let parts = self.as_numbered(parts, &meaning.ours);
        let is_whole = parts.iter().all(|part| {
            meaning
                .ours
                .get(&part.key)
                .is_some_and(|installed| self.is_same(installed, part))
        });
        if is_whole && !self.has_extra_parts(&parts, &meaning.ours) {
            covered.extend(parts.into_iter().map(|part| part.key));
            meaning.rules.insert(rule.clone());
        }
    }

    /// Returns the keys of the entries of these rules.
    fn covered_by(&self, rules: &Rules, ours: &Entries) -> BTreeSet<Key> {
        let parts = rules.iter().filter_map(|rule| self.encode(rule).ok());
        let parts = parts.flat_map(|parts| self.as_numbered(parts, ours));
        parts.map(|part| part.key).collect()
    }

    /// Returns whether an entry is the driver's or another controller's; `None` for neither, such as a default entry.
    fn is_ours(&self, entry: &Entry) -> Option<bool> {
        let looks_like_ours = self
            .templates
            .iter()
            .any(|template| self.values(template, entry).is_some());
        match entry.key {
            Key::Default(_) => looks_like_ours.then_some(true),
            Key::Table { .. } if self.map.settings.metadata => Some(entry.metadata == MARK),
            Key::Table { .. } | Key::Clone(_) | Key::Group(_) => Some(looks_like_ours),
        }
    }

    /// Returns the simplest rules to which an entry may belong.
    fn candidates(&self, entry: &Entry, ours: &Entries) -> Vec<Rule> {
        let mut rules = Vec::new();
        for template in &self.templates {
            let Some(values) = self.values(template, entry) else {
                continue;
            };
            let port = low_value(&values, Variable::Port).and_then(|port| u32::try_from(port).ok());
            match template.kind {
                RuleKind::Session => {
                    let port =
                        low_value(&values, Variable::CollectorPort).and_then(|port| u16::try_from(port).ok());
                    let width = self.width(template, Variable::Collector);
                    let address =
                        low_value(&values, Variable::Collector).and_then(|number| address(number, width));
                    rules.extend(address.zip(port).map(|to| Rule::Session(to.into())));
                }
                RuleKind::Sink => rules.extend(port.map(Rule::Sink)),
                RuleKind::Source => rules.extend(port.map(Rule::Source)),
                RuleKind::Forwarding => rules.push(Rule::Forwarding),
                RuleKind::Transit => rules.extend(instruction::numbers(self.bits()).map(Rule::Instruction)),
                RuleKind::Filter => rules.extend(
                    self.filter(template, &values, ours)
                        .map(|filter| Rule::Filter(Arc::new(filter))),
                ),
                // Decoded together with their filters.
                RuleKind::Term | RuleKind::Clauses => {}
                RuleKind::Watch => rules.extend(
                    self.watch(template, &values)
                        .map(|watch| Rule::Watch(Arc::new(watch))),
                ),
            }
        }
        rules
    }

    /// Returns the width in bits of the template's field or parameter with this variable; 0 if it has none.
    pub(crate) fn width(&self, template: &Template, variable: Variable) -> u32 {
        let Form::Table { fields, params, .. } = &template.form else {
            return 0;
        };
        let bound = fields
            .iter()
            .chain(params)
            .find(|bound| bound.value == Value::Variable(variable));
        bound.map_or(0, |bound| bound.width)
    }

    /// Decodes the filter of an entry, if it is complete.
    pub(crate) fn filter(
        &self,
        template: &Template,
        values: &BTreeMap<Variable, Span>,
        ours: &Entries,
    ) -> Option<Filter> {
        let (algorithm, metric) = template.filter?;
        let threshold = values
            .get(&Variable::Threshold)
            .map_or(Some(0), |(low, _)| u64::try_from(*low).ok())?;
        let key = self.flows(template, values)?;
        let metric = metric.unwrap_or(Metric::FlowPath);
        let number = values.get(&Variable::FilterNumber).map(|(low, _)| *low);
        let rule = match algorithm {
            FilterAlgorithm::Rule => Some(self.rule_text(number?, ours)?.into()),
            _ => None,
        };
        Some(Filter {
            key,
            algorithm,
            metric,
            threshold,
            rule,
        })
    }

    /// Decodes the flows of an entry, or returns `None` if they cannot be expressed.
    fn flows(&self, template: &Template, values: &BTreeMap<Variable, Span>) -> Option<FlowMatch> {
        Some(FlowMatch {
            src: self.prefix(template, values, Variable::Src).ok()?,
            dst: self.prefix(template, values, Variable::Dst).ok()?,
            sport: ports(values, Variable::Sport)?,
            dport: ports(values, Variable::Dport)?,
            proto: byte(values, Variable::Proto),
            dscp: byte(values, Variable::Dscp),
        })
    }

    /// Decodes the prefix in a variable, or returns `None` if the entry matches any address.
    fn prefix(
        &self,
        template: &Template,
        values: &BTreeMap<Variable, Span>,
        variable: Variable,
    ) -> Result<Option<Prefix>, NotAPrefix> {
        let Some(span) = values.get(&variable) else {
            return Ok(None);
        };
        prefix_of(*span, self.width(template, variable))
            .map(Some)
            .ok_or(NotAPrefix)
    }

    /// Decodes a watchlist entry.
    fn watch(&self, template: &Template, values: &BTreeMap<Variable, Span>) -> Option<Watch> {
        Some(Watch {
            key: self.flows(template, values)?,
            mode: template
                .mode
                .or(self.map.modes.first().copied())
                .unwrap_or(Mode::Md),
            bits: read_bits(values).unwrap_or(self.bits()),
            hops: byte(values, Variable::Hops).unwrap_or(DEFAULT_HOPS),
            sample: values
                .get(&Variable::Sample)
                .map_or(Some(1), |(low, _)| u32::try_from(*low).ok())?,
            drops: true,
        })
    }

    /// Matches an entry with a template. Returns the values of the template's variables, or `None` if the entry is not from this template.
    pub(crate) fn values(&self, template: &Template, entry: &Entry) -> Option<BTreeMap<Variable, Span>> {
        let mut values = BTreeMap::new();
        match (&template.form, &entry.key, &entry.content) {
            (
                Form::Clone {
                    session,
                    port,
                    truncate,
                },
                Key::Clone(number),
                content,
            ) => {
                let Content::Copies {
                    replicas,
                    truncate: found,
                    ..
                } = content
                else {
                    return None;
                };
                let [copy] = replicas.as_slice() else {
                    return None;
                };
                let to = copy.port.number()?;
                let expected = self.number(*port, &RuleValues::Nothing).ok().flatten();
                (session == number && found == truncate && expected == Some(to)).then_some(())?;
            }
            // Groups have no metadata. Number and instances identify ours, so that other ports are a modification of it.
            (
                Form::Group { group, replicas },
                Key::Group(found),
                Content::Copies { replicas: copies, .. },
            ) => {
                let expected: BTreeSet<u32> = replicas.iter().map(|copy| copy.instance).collect();
                let instances: BTreeSet<u32> = copies.iter().map(|copy| copy.instance).collect();
                (group == found && expected == instances).then_some(())?;
            }
            (
                Form::Table {
                    table,
                    default: true,
                    action,
                    params,
                    ..
                },
                Key::Default(found),
                content,
            ) => {
                (table == found && read_params(*action, params, content, &mut values)).then_some(())?;
            }
            (
                Form::Table {
                    table,
                    default: false,
                    fields,
                    action,
                    params,
                    ..
                },
                Key::Table {
                    table: found,
                    fields: key,
                    ..
                },
                content,
            ) => {
                let is_known = key.keys().all(|id| fields.iter().any(|field| field.id == *id));
                let fits = table == found && is_known;
                (fits && read_params(*action, params, content, &mut values)).then_some(())?;
                for bound in fields {
                    match key.get(&bound.id) {
                        Some(field) => bind(&mut values, bound.value, span(field, bound)?).then_some(())?,
                        None => matches!(bound.value, Value::Variable(variable) if variable.is_key())
                            .then_some(())?,
                    }
                }
            }
            _ => return None,
        }
        Some(values)
    }

    /// Plans the requests for a change to `rules`: removals in reverse order of kinds, then modifications, then additions.
    ///
    /// # Errors
    /// A sentence if the program cannot express a rule, or if an entry of another controller has the same key.
    pub fn plan(&self, meaning: &Meaning, rules: &Rules) -> Result<Vec<Batch>, String> {
        let mut desired: BTreeMap<Key, (Entry, (RuleKind, usize))> = BTreeMap::new();
        for entry in self.encode_all(rules, &meaning.ours)? {
            let rank = self.rank(&entry);
            desired.insert(entry.key.clone(), (entry, rank));
        }
        let conflict = meaning
            .foreign
            .iter()
            .find(|entry| desired.contains_key(&entry.key) && !meaning.ours.contains_key(&entry.key));
        if let Some(entry) = conflict {
            return Err(format!(
                "{} was installed by another controller; remove it",
                self.describe(entry)
            ));
        }
        let mut steps: Vec<Step> = Vec::new();
        for (key, entry) in &meaning.ours {
            if !desired.contains_key(key) {
                let (kind, index) = self.rank(entry);
                steps.push(Step {
                    order: StepOrder {
                        phase: 0,
                        kind: -(kind as i64),
                        template: -(index as i64),
                    },
                    update: UpdateType::Delete,
                    entry: entry.clone(),
                });
            }
        }
        for (entry, (kind, index)) in desired.into_values() {
            let (phase, update) = match meaning.ours.get(&entry.key) {
                Some(old) if *old == entry => continue,
                Some(_) => (1, UpdateType::Modify),
                None => (2, UpdateType::Insert),
            };
            let order = StepOrder {
                phase,
                kind: kind as i64,
                template: index as i64,
            };
            steps.push(Step { order, update, entry });
        }
        steps.sort_by(|a, b| (a.order, &a.entry.key).cmp(&(b.order, &b.entry.key)));
        let mut batches: Vec<Batch> = Vec::new();
        let mut last = None;
        for Step { order, update, entry } in steps {
            match batches
                .last_mut()
                .filter(|batch| last == Some(order) && batch.len() < MAX_UPDATES)
            {
                Some(batch) => batch.push((update, entry)),
                None => batches.push(vec![(update, entry)]),
            }
            last = Some(order);
        }
        Ok(batches)
    }

    /// Returns a sentence for each table that is too small for the device's present entries and the batches.
    pub(crate) fn full(&self, meaning: &Meaning, batches: &[Batch]) -> BTreeMap<u32, String> {
        let mut full = BTreeMap::new();
        for (id, facts) in &self.tables {
            let Some(size) = facts.size else { continue };
            let ours = meaning.ours.keys().filter(|key| key.table() == Some(*id)).count();
            let theirs = meaning
                .foreign
                .iter()
                .filter(|entry| entry.key.table() == Some(*id))
                .count();
            let mut inserted = 0;
            let mut deleted = 0;
            for (update, entry) in batches.iter().flatten() {
                if entry.key.table() == Some(*id) {
                    inserted += usize::from(*update == UpdateType::Insert);
                    deleted += usize::from(*update == UpdateType::Delete);
                }
            }
            let needed = (ours + theirs + inserted).saturating_sub(deleted);
            if needed > size {
                let others = match theirs {
                    0 => String::new(),
                    1 => ", and one of them is of another controller".to_owned(),
                    theirs => format!(", and {theirs} of them are of other controllers"),
                };
                let text = format!(
                    "the table is full: {needed} entries do not fit into its {size}{others}; use fewer intents, or wider prefixes"
                );
                full.insert(*id, text);
            }
        }
        full
    }

    /// Counts the entries in the watchlist's and filters' tables that belong to no rule.
    pub(crate) fn others(&self, meaning: &Meaning) -> OtherEntries {
        let remains = meaning.remains.iter().filter_map(|key| meaning.ours.get(key));
        let others: Vec<&Entry> = meaning.foreign.iter().chain(remains).collect();
        OtherEntries {
            watch: self.most_in_table(RuleKind::Watch, &others),
            filter: self.most_in_table(RuleKind::Filter, &others),
        }
    }

    /// Returns the maximum count of these entries in any table of a kind.
    fn most_in_table(&self, kind: RuleKind, entries: &[&Entry]) -> usize {
        let counts = self.tables_of(kind).into_iter().map(|table| {
            entries
                .iter()
                .filter(|entry| entry.key.table() == Some(table))
                .count()
        });
        counts.max().unwrap_or(0)
    }

    /// Returns whether the direct counter of an entry counts reports.
    pub(crate) fn counts_reports(&self, entry: &Entry) -> bool {
        self.templates
            .iter()
            .any(|template| template.counts_reports && self.values(template, entry).is_some())
    }

    /// Returns the flows of a watchlist entry whose direct counter counts matching packets, and the number of measured packets
    /// among `packets`. `None` if the entry does not count.
    pub(crate) fn measured(&self, entry: &Entry, packets: u64) -> Option<(FlowMatch, u64)> {
        let templates = self.templates.iter().filter(|template| template.counts_matches);
        let watch = templates
            .filter_map(|template| self.watch(template, &self.values(template, entry)?))
            .next()?;
        Some((watch.key, packets / u64::from(watch.sample.max(1))))
    }

    /// Returns the position of an entry in the order of additions: its kind, and its template's step.
    fn rank(&self, entry: &Entry) -> (RuleKind, usize) {
        let found = self
            .templates
            .iter()
            .find(|template| self.values(template, entry).is_some());
        found.map_or((RuleKind::Watch, usize::MAX), |template| {
            (template.kind, template.step)
        })
    }

    /// Describes an entry for display.
    pub fn describe(&self, entry: &Entry) -> String {
        let what = match &entry.key {
            Key::Clone(session) => format!("clone session {session}"),
            Key::Group(group) => format!("multicast group {group}"),
            Key::Default(table) => format!("the default entry of {}", self.table_name(*table)),
            Key::Table { table, fields, .. } => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(id, field)| self.field_text(*table, *id, field))
                    .collect();
                let key = if fields.is_empty() {
                    "every packet".to_owned()
                } else {
                    fields.join(", ")
                };
                format!("the entry of {} for {key}", self.table_name(*table))
            }
        };
        match &entry.content {
            Content::Action(action, _) => format!("{what} ({})", self.action_name(*action)),
            Content::Copies { replicas, .. } => {
                let mut ports: Vec<String> = replicas.iter().map(|copy| copy.port.to_string()).collect();
                ports.dedup();
                format!("{what} (to port {})", ports.join(", "))
            }
            Content::Other => what,
        }
    }
}

/// Returns `rules` after applying `changes`.
pub fn changed(rules: &Rules, changes: &[Change]) -> Rules {
    let mut rules = rules.clone();
    for change in changes {
        match change {
            Change::Add(rule) => {
                rules.retain(|other| !other.same_entry(rule));
                rules.insert(rule.clone());
            }
            Change::Remove(rule) => drop(rules.remove(rule)),
        }
    }
    rules
}

/// Returns whether a template is for filters with this algorithm and metric.
fn is_filter_template(template: &Template, filter: &Filter) -> bool {
    template.filter.is_some_and(|(algorithm, metric)| {
        algorithm == filter.algorithm && metric.is_none_or(|metric| metric == filter.metric)
    })
}

fn ports(values: &BTreeMap<Variable, Span>, variable: Variable) -> Option<Ports> {
    match values.get(&variable) {
        None => Some(ANY_PORT),
        Some((low, high)) => Some((u16::try_from(*low).ok()?, u16::try_from(*high).ok()?)),
    }
}

/// The values of a variable form no prefix.
struct NotAPrefix;

/// Returns the prefix of `width` bits with this lowest and highest address.
fn prefix_of((low, high): Span, width: u32) -> Option<Prefix> {
    let length = width.checked_sub(128 - (low ^ high).leading_zeros())?;
    Prefix::new(address(low, width)?, u8::try_from(length).ok()?).ok()
}

/// Returns the value of an 8-bit variable.
fn byte(values: &BTreeMap<Variable, Span>, variable: Variable) -> Option<u8> {
    values.get(&variable).map(|(low, _)| *low as u8)
}

/// Returns the lower bound of a variable's values.
pub(crate) fn low_value(values: &BTreeMap<Variable, Span>, variable: Variable) -> Option<u128> {
    values.get(&variable).map(|(low, _)| *low)
}

/// Returns whether a template applies to these values: its IP version, mode, and filter algorithm.
fn applies(template: &Template, rule_values: &RuleValues<'_>) -> bool {
    let (prefix, mode) = match rule_values {
        RuleValues::Watch(watch) => (watch.key.src.or(watch.key.dst), Some(watch.mode)),
        RuleValues::Filter(filter) if !is_filter_template(template, filter) => return false,
        RuleValues::Filter(filter) => (filter.key.src.or(filter.key.dst), None),
        RuleValues::Route(route) => (Some(route.to), None),
        _ => return true,
    };
    let is_v6 = prefix.map(|prefix| prefix.is_v6());
    let family = match template.family {
        Some(FamilyWord::Ipv4) => is_v6 != Some(true),
        Some(FamilyWord::Ipv6) => is_v6 != Some(false),
        None => true,
    };
    family && template.mode.is_none_or(|of| Some(of) == mode)
}

fn check_width(bound: &BoundValue, value: u128) -> Result<(), String> {
    if value & !ones(bound.width) == 0 {
        return Ok(());
    }
    Err(format!(
        "{value} does not fit into the {} bits of `{}` in the program",
        bound.width, bound.name
    ))
}

/// Binds a variable to the range found in an entry. Returns false if the entry has another value than the template, or than an
/// earlier field of this variable.
fn bind(bound: &mut BTreeMap<Variable, Span>, value: Value, span: Span) -> bool {
    match value {
        Value::Number(number) => span == (number, number),
        Value::Range(first, last) => span == (first.into(), last.into()),
        Value::Variable(variable) => *bound.entry(variable).or_insert(span) == span,
    }
}

/// Reads the parameters of an action into `bound`. Returns false if the action or a value differs.
fn read_params(
    action: u32,
    params: &[BoundValue],
    content: &Content,
    bound: &mut BTreeMap<Variable, Span>,
) -> bool {
    let Content::Action(found, values) = content else {
        return false;
    };
    *found == action
        && values.len() == params.len()
        && params.iter().all(|param| {
            let number = values.get(&param.id).and_then(Bytes::number);
            number.is_some_and(|number| bind(bound, param.value, (number, number)))
        })
}

/// Returns the instruction bitmap from parameters that hold it, as a whole or in nibbles.
fn read_bits(values: &BTreeMap<Variable, Span>) -> Option<Bits> {
    if let Some((bits, _)) = values.get(&Variable::Bits) {
        return Bits::try_from(*bits).ok();
    }
    let nibbles = values
        .iter()
        .filter_map(|(variable, (value, _))| Some((variable.nibble()?, *value)));
    let nibbles: Vec<(u32, u128)> = nibbles.collect();
    let bits = nibbles.iter().fold(0, |bits, (nibble, value)| {
        bits | (*value as Bits & 0xf) << (4 * nibble)
    });
    (!nibbles.is_empty()).then_some(bits)
}
