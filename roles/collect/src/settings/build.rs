//! Converts the collector's settings to the configurations of other crates: thresholds, rules, profiles, access, tables.

use std::{collections::BTreeMap, sync::Arc};

use collector::{Access, DistinctProfiles, Grant, Profile};
use detect::{
    Detection, Match, Metric, PortRange, Prefix, RuleError, RuleSet, ThresholdError, Thresholds,
    threshold::Override,
};
use wire::profile::TelemetryPorts;

use model::{OverrideSettings, ProfileSettings, TcpShim};
use runtime::{control::IntentDetection, host::seed};
use settings::listen::Listen;
use settings::values::{Clocks, as_nanoseconds};

use super::{AllowSettings, CollectSettings, CollectorSettings};
use crate::datagram::{AggregatePorts, HopProfiles, Profiles};

fn one_override(written: &OverrideSettings) -> (Match, Override) {
    let mut values = [None; Metric::COUNT];
    for (metric, amount) in [
        (Metric::FlowLatency, written.flow_latency.map(|amount| amount.0)),
        (Metric::HopLatency, written.hop_latency.map(|amount| amount.0)),
        (
            Metric::QueueOccupancy,
            written.queue_occupancy.map(|amount| amount.0),
        ),
        (
            Metric::QueueCongestion,
            written.queue_congestion.map(|amount| amount.0),
        ),
        (
            Metric::LinkUtilization,
            written.link_utilization.map(|amount| amount.0),
        ),
    ] {
        values[metric as usize] = amount;
    }
    let matches = Match {
        src: written.src,
        dst: written.dst,
        src_port: written.sport.unwrap_or(PortRange::ANY),
        dst_port: written.dport.unwrap_or(PortRange::ANY),
        proto: written.proto.map(|protocol| protocol.0),
    };
    (matches, values)
}

impl CollectSettings {
    /// Compiles the thresholds.
    ///
    /// # Errors
    /// An override matches nothing, or there are too many of them.
    pub fn compile_thresholds(&self) -> Result<Thresholds, ThresholdError> {
        self.compile_thresholds_with(&[])
    }

    fn compile_thresholds_with(&self, least: &[(Match, Override)]) -> Result<Thresholds, ThresholdError> {
        let defaults = &self.thresholds;
        let mut set = [0; Metric::COUNT];
        for (metric, amount) in [
            (Metric::FlowLatency, defaults.flow_latency.0),
            (Metric::HopLatency, defaults.hop_latency.0),
            (Metric::QueueOccupancy, defaults.queue_occupancy.0),
            (Metric::QueueCongestion, defaults.queue_congestion.0),
            (Metric::LinkUtilization, defaults.link_utilization.0),
        ] {
            set[metric as usize] = amount;
        }
        Thresholds::with_least(set, defaults.r#override.iter().map(one_override).collect(), least)
    }

    /// Compiles the rules.
    ///
    /// # Errors
    /// The first invalid rule.
    pub fn compile_rules(&self) -> Result<RuleSet, RuleError> {
        let rules: Vec<_> = self
            .rules
            .iter()
            .map(|rule| (rule.name.clone(), rule.when.clone()))
            .collect();
        RuleSet::compile(&rules)
    }

    /// Compiles the thresholds and rules that decide which events are emitted, from the settings and from intents (`asked`).
    /// The rules of intents follow the configured ones and are limited to the flows of their intents.
    ///
    /// # Errors
    /// A sentence. Checked settings without demands of intents never fail.
    pub fn detection(&self, asked: &IntentDetection, generation: u32) -> Result<Arc<Detection>, String> {
        let thresholds = self
            .compile_thresholds_with(&asked.thresholds)
            .map_err(|error| error.to_string())?;
        let written = self
            .rules
            .iter()
            .map(|rule| (rule.name.clone(), rule.when.clone()));
        let of_intents = asked
            .rules
            .iter()
            .map(|rule| (rule.name.clone(), rule.when.clone()));
        let all: Vec<_> = written.chain(of_intents).collect();
        let rules = RuleSet::compile(&all).map_err(|error| error.to_string())?;
        let first = self.rules.len();
        let flows: Vec<_> = asked
            .rules
            .iter()
            .enumerate()
            .map(|(at, rule)| (first + at, rule.flows.clone()))
            .collect();
        let rules = rules.limited_to(&flows).map_err(|error| error.to_string())?;
        Ok(Arc::new(Detection {
            thresholds,
            rules,
            generation,
        }))
    }

    /// Returns the configuration of each of `workers` collectors. With several workers the tables are divided among them, and
    /// the fan-out in front does the sequence accounting.
    ///
    /// # Errors
    /// A sentence: what other checks of the settings refuse, or more profiles than a collector can have.
    pub fn collector_config(&self, workers: usize, generation: u32) -> Result<collector::Config, String> {
        let written = &self.collector;
        let (default_profile, profiles) = self.resolve_profiles();
        let node_profiles = self.node_profiles();
        if DistinctProfiles::of(&default_profile, &profiles, &node_profiles).is_none() {
            return Err(format!(
                "[[sources]] and [nodes] use more than {} different profiles; give devices of one kind the same profile",
                DistinctProfiles::MAX,
            ));
        }
        Ok(collector::Config {
            max_flows: written.max_flows.div_ceil(workers),
            max_queues: written.max_queues,
            max_links: written.max_links,
            max_nodes: written.max_nodes,
            max_sources: written.max_sources,
            flow_timeout: as_nanoseconds(written.flow_timeout),
            push_interval: as_nanoseconds(written.push_interval),
            seed: seed(),
            profiles,
            default_profile,
            node_profiles,
            detection: self.detection(&IntentDetection::default(), generation)?,
            sequence: workers == 1,
            sf: collector::config::JoinConfig {
                max_flows: written.sf.max_flows.div_ceil(workers),
                max_sets: written.sf.max_sets.div_ceil(workers),
                max_nodes: written.sf.max_nodes,
                timeout: as_nanoseconds(written.sf.timeout),
                hop_limit: written.sf.hop_limit,
                confirmations: u8::try_from(written.sf.confirmations).unwrap_or(u8::MAX),
            },
            postcards: self.postcards(workers),
            ..collector::Config::default()
        })
    }

    fn postcards(&self, workers: usize) -> collector::config::PostcardConfig {
        let written = &self.collector.postcards;
        collector::config::PostcardConfig {
            timeout: as_nanoseconds(written.timeout),
            max_pending: written.max_pending.div_ceil(workers),
            proximity: as_nanoseconds(written.proximity),
            confirmations: written.confirmations.min(255) as u8,
            links: written.links.iter().map(|link| link.0).collect(),
            flow_ids: written.flow_ids.iter().map(|named| (named.0, named.1)).collect(),
        }
    }

    /// Returns the UDP ports of aggregates.
    pub fn aggregate_ports(&self) -> AggregatePorts {
        AggregatePorts(self.collector.aggregate_ports.as_slice().into())
    }

    /// Returns the allowed senders of each input. `inputs` gives the `[collector] listen` entry of each.
    pub fn access(&self, inputs: impl IntoIterator<Item = usize>) -> Access {
        let collector = &self.collector;
        let inputs = inputs.into_iter();
        Access::new(
            inputs.map(|entry| collector.grants(|listen| collector.listen.get(entry) == Some(listen))),
        )
    }

    /// Returns the allowed senders of each of `ports`, for datagrams without a known interface and address (as in a capture).
    /// A port without a listener admits the senders of all listeners.
    pub fn access_by_port(&self, ports: &[u16]) -> Access {
        let collector = &self.collector;
        Access::new(ports.iter().map(|port| {
            let is_known = collector
                .listen
                .iter()
                .any(|listen| listen.ports().contains(port));
            collector.grants(|listen| !is_known || listen.ports().contains(port))
        }))
    }

    /// Returns the default profile, and the profiles by source prefix.
    pub fn resolve_profiles(&self) -> (Profile, Vec<(Prefix, Profile)>) {
        let by_source = self
            .sources
            .iter()
            .filter_map(|source| Some((source.prefix?, self.listening_profile(&source.profile))));
        (self.listening_profile("default"), by_source.collect())
    }

    /// Returns the profile with this name, which also treats the collector's ports as telemetry ports.
    fn listening_profile(&self, name: &str) -> Profile {
        let ports: Vec<u16> = self.collector.listen.iter().flat_map(Listen::ports).collect();
        let mut profile = self.profile(name);
        // The check of the configuration refuses ports that do not fit.
        let _ = receive_on(&mut profile.wire, &ports);
        profile
    }

    /// Returns the profiles of nodes whose units differ from those of their reporters.
    pub fn node_profiles(&self) -> Vec<(u32, Profile)> {
        let named = self
            .nodes
            .iter()
            .filter_map(|(id, node)| Some((*id, node.0.profile.as_ref()?)));
        named.map(|(id, name)| (id, self.profile(name))).collect()
    }

    /// Returns the profile with this name, either from the file or built in.
    pub fn profile(&self, name: &str) -> Profile {
        match self.profiles.get(name) {
            Some(written) => written_profile(name, written),
            None => {
                let dialect = wire::Dialect::from_name(name).unwrap_or_default();
                let standard = Profile::new(name, wire::Profile::new(dialect));
                match dialect {
                    // ONOS runs BMv2 switches, which count microseconds and packets.
                    wire::Dialect::Onos => Profile {
                        timestamp_unit_ns: 1_000,
                        latency_unit_ns: 1_000,
                        queue_unit: "packets".to_owned(),
                        ..standard
                    },
                    _ => standard,
                }
            }
        }
    }

    /// Returns the profiles in the form that the fan-out needs, longest prefix first.
    pub fn wire_profiles(&self) -> Profiles {
        let (default, mut by_source) = self.resolve_profiles();
        by_source.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Profiles {
            default: default.wire,
            by_source: by_source
                .into_iter()
                .map(|(prefix, profile)| (prefix, profile.wire))
                .collect(),
        }
    }
    /// Returns the profiles as recorders of hops need them.
    pub fn hop_profiles(&self) -> HopProfiles {
        let (default, by_source) = self.resolve_profiles();
        HopProfiles::new(default, by_source, self.node_profiles())
    }

    /// Returns the units of queue occupancy, by the index of the profile in the collector ([`SeriesView::profile`]).
    ///
    /// [`SeriesView::profile`]: collector::SeriesView::profile
    pub fn queue_units(&self) -> Vec<String> {
        let (default, by_source) = self.resolve_profiles();
        DistinctProfiles::of(&default, &by_source, &self.node_profiles())
            .iter()
            .flat_map(DistinctProfiles::iter)
            .map(|profile| profile.queue_unit.clone())
            .collect()
    }

    /// Returns the configured names of nodes.
    pub fn node_names(&self) -> BTreeMap<u32, String> {
        let named = self
            .nodes
            .iter()
            .filter_map(|(node, entry)| Some((*node, entry.0.name.clone()?)));
        named.collect()
    }

    /// Returns the names of drop reasons for output. A code that two profiles name differently has no name, because events do
    /// not identify the profile.
    pub fn drop_reasons(&self) -> BTreeMap<u8, String> {
        let (default, by_source) = self.resolve_profiles();
        agreed_drop_reasons(std::iter::once(&default).chain(by_source.iter().map(|(_, profile)| profile)))
    }
}

/// Names of drop reasons by code. A code that two of the profiles name differently has none.
pub fn agreed_drop_reasons<'a>(profiles: impl Iterator<Item = &'a Profile>) -> BTreeMap<u8, String> {
    let mut names: BTreeMap<u8, Option<String>> = BTreeMap::new();
    for (code, name) in profiles.flat_map(|profile| &profile.drop_reasons) {
        let agreed = names.entry(*code).or_insert_with(|| Some(name.clone()));
        agreed.take_if(|agreed| agreed != name);
    }
    let agreed = names.into_iter().filter_map(|(code, name)| Some((code, name?)));
    agreed.collect()
}

impl CollectorSettings {
    /// Returns whether only some senders may report to `listen`.
    pub fn is_restricted(&self, listen: &Listen) -> bool {
        self.allow.iter().any(|entry| entry.is_for(listen))
    }

    /// Returns the grants for the listeners selected by `concerns`, or `None` if everyone may report.
    fn grants(&self, concerns: impl Fn(&Listen) -> bool) -> Option<Vec<Grant>> {
        let entries = self.allow.iter().filter(|entry| {
            self.listen
                .iter()
                .any(|listen| concerns(listen) && entry.is_for(listen))
        });
        let entries: Vec<&AllowSettings> = entries.collect();
        let grants = entries.iter().flat_map(|entry| {
            let nodes: Vec<(u32, u32)> = entry.nodes.iter().map(|range| (range.0, range.1)).collect();
            entry.from.iter().map(move |from| Grant {
                from: *from,
                nodes: nodes.clone(),
            })
        });
        (!entries.is_empty()).then(|| grants.collect())
    }
}

impl AllowSettings {
    fn is_for(&self, listen: &Listen) -> bool {
        self.listen.is_empty() || self.listen.contains(listen)
    }
}

/// Adds ports on which reports are received to those by which reports about reports are recognised.
///
/// # Errors
/// They do not fit with those of the profile; then as many as fit are added.
pub fn receive_on(profile: &mut wire::Profile, ports: &[u16]) -> Result<(), String> {
    for port in ports {
        let known = profile.telemetry_ports;
        if !known.contains(*port) {
            let more = [known.as_slice(), &[*port]].concat();
            profile.telemetry_ports = TelemetryPorts::new(&more).ok_or_else(|| {
                let most = TelemetryPorts::MAX;
                format!(
                    "at most {most} UDP ports of reports, with the profile's `telemetry_ports`: a report about a report is recognised by \
                     them; remove some"
                )
            })?;
        }
    }
    Ok(())
}

fn written_profile(name: &str, written: &ProfileSettings) -> Profile {
    let usual = wire::Profile::new(written.dialect);
    let wire = wire::Profile {
        dscp: written.dscp.unwrap_or(usual.dscp),
        dscp_mask: written.dscp_mask.unwrap_or(usual.dscp_mask),
        dscp_other: written.dscp_other.or(usual.dscp_other),
        int_udp_port: written.int_udp_port,
        probe_marker: written.probe_marker.map(|marker| marker.0),
        gre_protocol: written.gre_protocol,
        tcp_shim: match written.tcp_shim {
            TcpShim::AfterFixed => wire::profile::TcpShim::AfterFixed,
            TcpShim::AfterOptions => wire::profile::TcpShim::AfterOptions,
        },
        telemetry_ports: wire::profile::TelemetryPorts::new(&written.telemetry_ports).unwrap_or_default(),
        vxlan_ports: vxlan_ports(&written.vxlan_ports),
        drop_zero_unknown: written.drop_zero_unknown,
        ..usual
    };
    Profile {
        timestamp_unit_ns: unit_ns(written.timestamp_unit),
        latency_unit_ns: unit_ns(written.latency_unit),
        max_hop_latency: as_nanoseconds(written.max_hop_latency),
        queue_unit: written.queue_unit.clone(),
        utilization_scale: written.utilization_scale,
        clocks: match written.clocks {
            Clocks::Free => collector::config::Clocks::Free,
            Clocks::Synchronised => collector::config::Clocks::Synchronised,
        },
        drop_reasons: written.drop_reasons.clone(),
        ..Profile::new(name, wire)
    }
}

/// Returns as many ports as a profile holds; a configuration with more is refused before.
fn vxlan_ports(written: &[u16]) -> [u16; wire::Profile::MAX_VXLAN_PORTS] {
    let mut ports = [0; wire::Profile::MAX_VXLAN_PORTS];
    for (port, written) in ports.iter_mut().zip(written) {
        *port = *written;
    }
    ports
}

fn unit_ns(unit: std::time::Duration) -> u32 {
    u32::try_from(unit.as_nanos()).unwrap_or(u32::MAX)
}
