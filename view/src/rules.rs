//! JSON form of INT rules (encoding, sessions, sinks, instructions, watchlist, filters): used by the API of a switch, by the
//! file in which the switch stores them, and by the manager's driver for hopwise switches.

use std::net::SocketAddr;
use std::sync::Arc;

use detect::{Metric, Prefix};
use dta::CollectorMap;
use manager::device::{
    Change, DtaMap, Encoding, Filter, FilterAlgorithm, L4Checksum, Mode, Rule, Rules, Watch,
};
use manager::flows::{ANY_PORT, FlowMatch, Ports};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A rule that a manager sets on a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Rule"))]
pub enum RuleView {
    /// The INT encoding of all packets.
    Encoding {
        /// DSCP that marks packets with INT, 1 to 63.
        dscp: u8,
        /// `update`, `leave` or `zero`.
        l4_checksum: String,
    },
    /// Reports go to this collector.
    Session {
        /// Address and UDP port of the collector.
        collector: SocketAddr,
    },
    /// Reports by DTA go to the collectors of this map.
    DtaMap {
        /// The map, as `hopwise map` writes it.
        map: Value,
    },
    /// INT is removed from packets that leave by this port, and they are reported.
    Sink {
        /// Number of the port.
        port: u32,
    },
    /// The node executes an instruction when it forwards a packet with INT.
    Instruction {
        /// Bit of the instruction, 0 (the most significant) to 15.
        bit: u8,
    },
    /// Only significant changes of these flows are reported.
    Filter {
        /// Flows that the filter applies to.
        flows: FlowsView,
        /// `noop`, `per_hop`, `per_flow`, `change` or `rule`.
        algorithm: String,
        /// The metric that is compared.
        metric: String,
        /// A greater difference is reported, in the metric's unit.
        threshold: u64,
        /// The condition, if the algorithm is `rule`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
    },
    /// The switch may forward packets.
    Forwarding {},
    /// Packets that enter by this port are compared with the watchlist.
    Source {
        /// Number of the port.
        port: u32,
    },
    /// An entry of the watchlist.
    Watch {
        /// Flows that the entry matches.
        flows: FlowsView,
        /// `md`, `mx`, `postcard` or `sf`.
        mode: String,
        /// Instruction bitmap of the INT header.
        bits: u16,
        /// Remaining hop count at the source.
        hops: u8,
        /// One packet of this many is measured.
        sample: u32,
        /// Dropped packets are reported.
        drops: bool,
    },
}

/// Flows: a packet must match every key that is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "RuleFlows"))]
pub struct FlowsView {
    /// Source network, in CIDR notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    src: Option<String>,
    /// Destination network, in CIDR notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dst: Option<String>,
    /// First and last source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sport: Option<(u16, u16)>,
    /// First and last destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dport: Option<(u16, u16)>,
    /// Protocol number of the IP header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proto: Option<u8>,
    /// DSCP of the IP header, 0 to 63.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dscp: Option<u8>,
}

/// The packets that have matched an entry of a watchlist where the switch measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "SwitchMatched"))]
pub struct MatchedView {
    /// The flows of the entry.
    pub flows: FlowsView,
    /// Packets since the entry was added.
    pub packets: u64,
    /// Those that were measured; fewer with `sample`.
    pub measured: u64,
}

/// A change of a switch's rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "RuleChange"))]
pub enum ChangeView {
    /// The rule is added.
    Add(RuleView),
    /// The rule is removed.
    Remove(RuleView),
}

impl From<&FlowMatch> for FlowsView {
    fn from(key: &FlowMatch) -> Self {
        Self {
            src: key.src.map(|prefix| prefix.to_string()),
            dst: key.dst.map(|prefix| prefix.to_string()),
            sport: Some(key.sport).filter(|ports| *ports != ANY_PORT),
            dport: Some(key.dport).filter(|ports| *ports != ANY_PORT),
            proto: key.proto,
            dscp: key.dscp,
        }
    }
}

impl TryFrom<&FlowsView> for FlowMatch {
    type Error = String;

    fn try_from(view: &FlowsView) -> Result<Self, String> {
        if view.dscp.is_some_and(|dscp| dscp > 63) {
            return Err("a DSCP is a number from 0 to 63".to_owned());
        }
        Ok(Self {
            src: prefix(&view.src)?,
            dst: prefix(&view.dst)?,
            sport: ports(view.sport)?,
            dport: ports(view.dport)?,
            proto: view.proto,
            dscp: view.dscp,
        })
    }
}

fn prefix(text: &Option<String>) -> Result<Option<Prefix>, String> {
    let prefix = text.as_ref().map(|text| text.parse::<Prefix>());
    prefix.transpose().map_err(|error| error.to_string())
}

fn ports(ports: Option<Ports>) -> Result<Ports, String> {
    match ports {
        Some((first, last)) if first > last => Err(format!("the range of ports {first}-{last} is empty")),
        ports => Ok(ports.unwrap_or(ANY_PORT)),
    }
}

fn unknown(kind: &str, name: &str) -> String {
    format!("there is no {kind} `{name}`")
}

impl From<&Rule> for RuleView {
    fn from(rule: &Rule) -> Self {
        match rule {
            Rule::Encoding(encoding) => Self::Encoding {
                dscp: encoding.dscp,
                l4_checksum: encoding.l4_checksum.name().to_owned(),
            },
            Rule::Session(collector) => Self::Session {
                collector: *collector,
            },
            // The text of a map is always valid JSON.
            Rule::DtaMap(map) => Self::DtaMap {
                map: serde_json::from_str(&map.text).unwrap_or_default(),
            },
            Rule::Sink(port) => Self::Sink { port: *port },
            Rule::Instruction(bit) => Self::Instruction { bit: *bit },
            Rule::Filter(filter) => Self::Filter {
                flows: (&filter.key).into(),
                algorithm: filter.algorithm.name().to_owned(),
                metric: filter.metric.name().to_owned(),
                threshold: filter.threshold,
                rule: filter.rule.as_deref().map(str::to_owned),
            },
            Rule::Forwarding => Self::Forwarding {},
            Rule::Source(port) => Self::Source { port: *port },
            Rule::Watch(watch) => Self::Watch {
                flows: (&watch.key).into(),
                mode: watch.mode.name().to_owned(),
                bits: watch.bits,
                hops: watch.hops,
                sample: watch.sample,
                drops: watch.drops,
            },
        }
    }
}

impl TryFrom<&RuleView> for Rule {
    type Error = String;

    fn try_from(view: &RuleView) -> Result<Self, String> {
        Ok(match view {
            RuleView::Encoding {
                dscp,
                l4_checksum: word,
            } => {
                let l4_checksum = L4Checksum::from_name(word);
                let l4_checksum = l4_checksum.ok_or_else(|| unknown("l4_checksum", word))?;
                Self::Encoding(Encoding {
                    dscp: *dscp,
                    l4_checksum,
                })
            }
            RuleView::Session { collector } => Self::Session(*collector),
            RuleView::DtaMap { map } => {
                let map = CollectorMap::deserialize(map).map_err(|error| format!("dta_map: {error}"))?;
                Self::DtaMap(Arc::new(
                    dta_map(&map).map_err(|error| format!("dta_map: {error}"))?,
                ))
            }
            RuleView::Sink { port } => Self::Sink(*port),
            RuleView::Instruction { bit: 16.. } => {
                return Err("an instruction bit is a number from 0 to 15".to_owned());
            }
            RuleView::Instruction { bit } => Self::Instruction(*bit),
            RuleView::Filter {
                flows,
                algorithm,
                metric,
                threshold,
                rule,
            } => {
                let of = FilterAlgorithm::from_name(algorithm);
                let algorithm = of.ok_or_else(|| unknown("algorithm", algorithm))?;
                if (algorithm == FilterAlgorithm::Rule) != rule.is_some() {
                    return Err("a filter has a `rule` if that is its algorithm".to_owned());
                }
                Self::Filter(Arc::new(Filter {
                    key: flows.try_into()?,
                    algorithm,
                    metric: Metric::from_name(metric).ok_or_else(|| unknown("metric", metric))?,
                    threshold: *threshold,
                    rule: rule.as_deref().map(Arc::from),
                }))
            }
            RuleView::Forwarding {} => Self::Forwarding,
            RuleView::Source { port } => Self::Source(*port),
            RuleView::Watch {
                flows,
                mode,
                bits,
                hops,
                sample,
                drops,
            } => Self::Watch(Arc::new(Watch {
                key: flows.try_into()?,
                mode: Mode::from_name(mode).ok_or_else(|| unknown("mode", mode))?,
                bits: *bits,
                hops: *hops,
                sample: *sample,
                drops: *drops,
            })),
        })
    }
}

impl From<&Change> for ChangeView {
    fn from(change: &Change) -> Self {
        match change {
            Change::Add(rule) => Self::Add(rule.into()),
            Change::Remove(rule) => Self::Remove(rule.into()),
        }
    }
}

impl TryFrom<&ChangeView> for Change {
    type Error = String;

    fn try_from(view: &ChangeView) -> Result<Self, String> {
        Ok(match view {
            ChangeView::Add(rule) => Self::Add(rule.try_into()?),
            ChangeView::Remove(rule) => Self::Remove(rule.try_into()?),
        })
    }
}

/// Converts a map of DTA collectors to the rule's form.
///
/// # Errors
/// The map is inconsistent, or lacks the address for reports.
pub fn dta_map(map: &CollectorMap) -> Result<DtaMap, String> {
    map.spread()?;
    map.reports()?;
    let collectors = map.collectors.iter().map(|one| one.name.clone()).collect();
    Ok(DtaMap {
        collectors,
        text: map.to_text().trim_end().to_owned(),
    })
}

/// Converts the rule's form back to a map of DTA collectors.
///
/// # Errors
/// The text is not a valid map; the error is a message.
pub fn collector_map(map: &DtaMap) -> Result<CollectorMap, String> {
    serde_json::from_str(&map.text).map_err(|error| error.to_string())
}

/// Converts rules to views, in canonical order.
pub fn views(rules: &Rules) -> Vec<RuleView> {
    rules.iter().map(RuleView::from).collect()
}

/// Converts a list of views to rules.
///
/// # Errors
/// A view is not a valid rule; the error is a message about the first one.
pub fn rules(views: &[RuleView]) -> Result<Rules, String> {
    views.iter().map(Rule::try_from).collect()
}

#[cfg(any(test, feature = "for_tests"))]
pub mod for_tests;

#[cfg(test)]
mod tests {
    use super::{for_tests::every_rule, *};

    #[test]
    fn rules_survive_json() {
        let all = every_rule();
        let text = serde_json::to_string(&views(&all)).unwrap();
        let read: Vec<RuleView> = serde_json::from_str(&text).unwrap();
        assert_eq!(rules(&read), Ok(all));
        assert!(text.contains(r#"{"kind":"forwarding"}"#), "{text}");
        assert!(
            text.contains(r#"{"kind":"watch","flows":{},"mode":"mx","bits":63232"#),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        let refused = |text: &str| {
            let view: RuleView = serde_json::from_str(text).unwrap();
            Rule::try_from(&view).unwrap_err()
        };
        assert_eq!(
            refused(r#"{"kind":"instruction","bit":16}"#),
            "an instruction bit is a number from 0 to 15"
        );
        assert_eq!(
            refused(r#"{"kind":"encoding","dscp":1,"l4_checksum":"x"}"#),
            "there is no l4_checksum `x`"
        );
        let watch = |flows: &str| {
            format!(
                r#"{{"kind":"watch","flows":{flows},"mode":"md","bits":1,"hops":1,"sample":1,"drops":true}}"#
            )
        };
        assert_eq!(
            refused(&watch(r#"{"dport":[9,8]}"#)),
            "the range of ports 9-8 is empty"
        );
        assert_eq!(
            refused(&watch(r#"{"dscp":64}"#)),
            "a DSCP is a number from 0 to 63"
        );
        assert!(refused(&watch(r#"{"src":"10.0.0.0/99"}"#)).contains("10.0.0.0/99"));
        assert!(serde_json::from_str::<RuleView>(&watch(r#"{"port":1}"#)).is_err());
        assert!(serde_json::from_str::<RuleView>(r#"{"kind":"teleport"}"#).is_err());
    }
}
