//! Converts settings to the configuration of the other crates: thresholds, rules, profiles, tables.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use collector::{Access, Grant, Profile, flight::FlightConfig};
use detect::{
    Detection, Match, Metric, PortRange, Prefix, RuleError, RuleSet, ThresholdError, Thresholds,
    threshold::Override,
};
use manager::inventory;
use wire::profile::TelemetryPorts;

use super::aggregator::{AggregateSpread, AggregatorSettings};
use super::sections::{
    AllowSettings, Clocks, CollectorSettings, OverrideSettings, Period, ProfileSettings, TcpShim, XdpMode,
};
use super::settings::Settings;
use super::values::Listen;
use crate::{
    datagram::{AggregatePorts, Profiles},
    triggers::{self, Cause},
};
use runtime::control::Asked;
use view::{Names, NamesView};

/// The thresholds.
///
/// # Errors
/// Overrides that match nothing, or too many of them.
pub(crate) fn thresholds(settings: &Settings) -> Result<Thresholds, ThresholdError> {
    thresholds_with(settings, &[])
}

fn thresholds_with(settings: &Settings, least: &[(Match, Override)]) -> Result<Thresholds, ThresholdError> {
    let defaults = &settings.thresholds;
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

/// The rules.
///
/// # Errors
/// The first invalid rule.
pub(crate) fn rules(settings: &Settings) -> Result<RuleSet, RuleError> {
    let rules: Vec<_> = settings
        .rules
        .iter()
        .map(|rule| (rule.name.clone(), rule.when.clone()))
        .collect();
    RuleSet::compile(&rules)
}

/// What decides which events are emitted: the settings, and what intents ask for.
///
/// # Errors
/// A sentence. It cannot happen with settings that were checked, if no intent asks for anything.
pub(crate) fn detection(
    settings: &Settings,
    asked: &Asked,
    generation: u32,
) -> Result<Arc<Detection>, String> {
    let thresholds = thresholds_with(settings, &asked.thresholds).map_err(|error| error.to_string())?;
    let written = settings
        .rules
        .iter()
        .map(|rule| (rule.name.clone(), rule.when.clone()));
    let of_intents = asked
        .rules
        .iter()
        .map(|rule| (rule.name.clone(), rule.when.clone()));
    let all: Vec<_> = written.chain(of_intents).collect();
    let rules = RuleSet::compile(&all).map_err(|error| error.to_string())?;
    let first = settings.rules.len();
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

/// The settings of the store.
pub(crate) fn store(settings: &Settings) -> store::Config {
    let written = &settings.store;
    store::Config {
        period: match written.period {
            Period::Hour => store::Period::Hour,
            Period::Day => store::Period::Day,
        },
        commit_every: written.commit_every,
        max_age: written.max_age,
        max_bytes: written.max_bytes.map(|size| size.0),
        reports_table: written.reports || flight_recorder(settings).is_some(),
        ..store::Config::new(settings.store_directory())
    }
}

/// The flight recorder of these settings, if there is one.
pub(crate) fn flight_recorder(settings: &Settings) -> Option<triggers::Config> {
    let written = &settings.flight_recorder;
    let is_possible = settings.store.enabled && settings.collects();
    let default = settings.collector.xdp.mode != XdpMode::Kernel;
    if !is_possible || !written.enabled.unwrap_or(default) {
        return None;
    }
    let nanos = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    Some(triggers::Config {
        windows: FlightConfig {
            before: nanos(written.before),
            after: nanos(written.after),
            per_minute: written.per_minute,
            reports: written.reports,
            ..FlightConfig::default()
        },
        causes: written.on.iter().copied().map(Cause::from).collect(),
        memory: usize::try_from(written.memory.0).unwrap_or(usize::MAX),
        has_all_reports: settings.store.reports,
    })
}

/// The settings of each of `workers` collectors. With several, the fan-out in front of them accounts for losses.
///
/// # Errors
/// A sentence; it cannot happen with settings that were checked.
pub(crate) fn collector(
    settings: &Settings,
    workers: usize,
    generation: u32,
) -> Result<collector::Config, String> {
    let written = &settings.collector;
    let nanos = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let (default_profile, profiles) = profiles(settings);
    Ok(collector::Config {
        max_flows: written.max_flows.div_ceil(workers),
        max_queues: written.max_queues,
        max_links: written.max_links,
        max_nodes: written.max_nodes,
        max_sources: written.max_sources,
        flow_timeout: nanos(written.flow_timeout),
        push_interval: nanos(written.push_interval),
        seed: seed(),
        profiles,
        default_profile,
        node_profiles: node_profiles(settings),
        detection: detection(settings, &Asked::default(), generation)?,
        sequence: workers == 1,
        sf: collector::config::JoinConfig {
            max_flows: written.sf.max_flows.div_ceil(workers),
            max_sets: written.sf.max_sets.div_ceil(workers),
            max_nodes: written.sf.max_nodes,
            timeout: nanos(written.sf.timeout),
            hop_limit: written.sf.hop_limit,
            confirmations: u8::try_from(written.sf.confirmations).unwrap_or(u8::MAX),
        },
        postcards: postcards(settings, workers),
        ..collector::Config::default()
    })
}

fn postcards(settings: &Settings, workers: usize) -> collector::config::PostcardConfig {
    let written = &settings.collector.postcards;
    let nanos = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    collector::config::PostcardConfig {
        timeout: nanos(written.timeout),
        max_pending: written.max_pending.div_ceil(workers),
        proximity: nanos(written.proximity),
        confirmations: written.confirmations.min(255) as u8,
        links: written.links.iter().map(|link| link.0).collect(),
        flow_ids: written.flow_ids.iter().map(|named| (named.0, named.1)).collect(),
    }
}

/// The ports of aggregates.
pub(crate) fn aggregate_ports(settings: &Settings) -> AggregatePorts {
    AggregatePorts(settings.collector.aggregate_ports.as_slice().into())
}

impl CollectorSettings {
    /// Whether only some senders may report to `listen`.
    pub(crate) fn is_restricted(&self, listen: &Listen) -> bool {
        self.allow.iter().any(|entry| entry.is_for(listen))
    }

    /// Who may report to the listeners for which `concerns` holds; `None`: everyone.
    fn grants(&self, concerns: impl Fn(&Listen) -> bool) -> Option<Vec<Grant>> {
        let concerned = |entry: &&AllowSettings| {
            self.listen
                .iter()
                .any(|listen| concerns(listen) && entry.is_for(listen))
        };
        let entries: Vec<&AllowSettings> = self.allow.iter().filter(concerned).collect();
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

/// Who may report to each input; `inputs`: the entry of `[collector] listen` that each belongs to.
pub(crate) fn access(settings: &Settings, inputs: impl IntoIterator<Item = usize>) -> Access {
    let collector = &settings.collector;
    let grants = |entry: usize| collector.grants(|listen| collector.listen.get(entry) == Some(listen));
    Access::new(inputs.into_iter().map(grants))
}

/// Who may report to each of `ports`, if the interface and the address are unknown. The senders of all listeners may report to a
/// port without a listener.
pub(crate) fn access_by_port(settings: &Settings, ports: &[u16]) -> Access {
    let collector = &settings.collector;
    let known = |port: &u16| {
        collector
            .listen
            .iter()
            .any(|listen| listen.ports().contains(port))
    };
    let grants = |port: &u16| collector.grants(|listen| !known(port) || listen.ports().contains(port));
    Access::new(ports.iter().map(grants))
}

/// The profile for sources that no prefix names, and those for the others.
pub(crate) fn profiles(settings: &Settings) -> (Profile, Vec<(Prefix, Profile)>) {
    let ports: Vec<u16> = settings.collector.listen.iter().flat_map(Listen::ports).collect();
    let listening = |name: &str| {
        let mut profile = profile(settings, name);
        receive_on(&mut profile.wire, &ports);
        profile
    };
    let listed = settings.sources.iter();
    let by_source = listed.filter_map(|source| Some((source.prefix?, listening(&source.profile))));
    (listening("default"), by_source.collect())
}

/// The profiles of nodes whose units differ from those of their reporters.
pub(crate) fn node_profiles(settings: &Settings) -> Vec<(u32, Profile)> {
    let named = settings
        .nodes
        .iter()
        .filter_map(|(id, node)| Some((*id, node.0.profile.as_ref()?)));
    named.map(|(id, name)| (id, profile(settings, name))).collect()
}

/// Adds ports on which reports are received to those by which reports about reports are recognised, up to the maximum.
pub(crate) fn receive_on(profile: &mut wire::Profile, ports: &[u16]) {
    for port in ports {
        let known = profile.telemetry_ports;
        if !known.contains(*port) {
            let more = [known.as_slice(), &[*port]].concat();
            profile.telemetry_ports = TelemetryPorts::new(&more).unwrap_or(known);
        }
    }
}

/// The profile of that name: written in the file, or built in.
pub(crate) fn profile(settings: &Settings, name: &str) -> Profile {
    match settings.profiles.get(name) {
        Some(written) => written_profile(name, written),
        None => {
            let dialect = wire::Dialect::from_name(name).unwrap_or_default();
            let standard = Profile::new(name, wire::Profile::new(dialect));
            match dialect {
                // Its switches are BMv2, which counts microseconds and packets.
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

fn written_profile(name: &str, written: &ProfileSettings) -> Profile {
    let dialect = wire::Dialect::from_name(written.dialect.word()).unwrap_or_default();
    let usual = wire::Profile::new(dialect);
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
        ..usual
    };
    let ticks = |unit: std::time::Duration| u32::try_from(unit.as_nanos()).unwrap_or(u32::MAX);
    Profile {
        timestamp_unit_ns: ticks(written.timestamp_unit),
        latency_unit_ns: ticks(written.latency_unit),
        max_hop_latency: u64::try_from(written.max_hop_latency.as_nanos()).unwrap_or(u64::MAX),
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

/// The profiles as the fan-out needs them.
pub(crate) fn wire_profiles(settings: &Settings) -> Profiles {
    let (default, mut by_source) = profiles(settings);
    by_source.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    Profiles {
        default: default.wire,
        by_source: by_source
            .into_iter()
            .map(|(prefix, profile)| (prefix, profile.wire))
            .collect(),
    }
}

/// The units of queue occupancy, by the profile's number in the collector ([`SeriesView::profile`]).
///
/// [`SeriesView::profile`]: collector::SeriesView::profile
pub(crate) fn queue_units(settings: &Settings) -> Vec<String> {
    let (default, by_source) = profiles(settings);
    let listed = by_source
        .into_iter()
        .take(255)
        .map(|(_, profile)| profile.queue_unit);
    let nodes = node_profiles(settings)
        .into_iter()
        .map(|(_, profile)| profile.queue_unit);
    std::iter::once(default.queue_unit)
        .chain(listed)
        .chain(nodes)
        .collect()
}

/// Configured names of nodes.
pub(crate) fn node_names(settings: &Settings) -> BTreeMap<u32, String> {
    let named = settings
        .nodes
        .iter()
        .filter_map(|(node, entry)| Some((*node, entry.0.name.clone()?)));
    named.collect()
}

/// The names that a file has, for commands.
pub(crate) fn names(settings: &Settings) -> Names {
    NamesView::of(
        node_names(settings),
        &inventory::from_settings(&settings.inventory),
    )
    .into()
}

/// Names of drop reasons for output. A code that two profiles name differently has none: events do not name the profile.
pub(crate) fn drop_reasons(settings: &Settings) -> BTreeMap<u8, String> {
    let (default, by_source) = profiles(settings);
    let mut names: BTreeMap<u8, String> = BTreeMap::new();
    let mut disputed = Vec::new();
    for profile in std::iter::once(&default).chain(by_source.iter().map(|(_, profile)| profile)) {
        for (code, name) in &profile.drop_reasons {
            if names.entry(*code).or_insert_with(|| name.clone()) != name {
                disputed.push(*code);
            }
        }
    }
    names.retain(|code, _| !disputed.contains(code));
    names
}

/// The settings of the aggregator.
pub(crate) fn aggregator(aggregator: &AggregatorSettings, settings: &Settings) -> ::aggregator::Config {
    let mut profile = profile(settings, &aggregator.profile).wire;
    receive_on(&mut profile, &aggregator.listen.ports());
    ::aggregator::Config {
        kind: wire::aggregate::Kind::from_name(aggregator.kind.word()).unwrap_or(wire::aggregate::Kind::Agg),
        r: aggregator.r,
        timer: u64::try_from(aggregator.timer.as_nanos()).unwrap_or(u64::MAX),
        registers: aggregator.registers,
        ways: aggregator.ways,
        aggregator: aggregator.aggregator,
        destinations: aggregator.forward.len(),
        spread: match aggregator.spread {
            AggregateSpread::Flow => ::aggregator::Spread::Flow,
            AggregateSpread::Node => ::aggregator::Spread::Node,
        },
        packet_fields: aggregator.packet_fields,
        interop: aggregator.interop,
        pmtu: aggregator.pmtu,
        over_ipv6: aggregator.forward.iter().any(SocketAddr::is_ipv6),
        profile,
    }
}

/// A number that senders cannot guess.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
