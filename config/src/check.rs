//! Validation of the configuration beyond the types of single settings: value ranges, and consistency between sections. Each
//! problem is reported at the key's position in the file, with what to write instead. Sections that belong to a role are
//! checked by functions of the role's crate, which report through a callback with the key's path and the message.

use collect_role::settings::RxPath;
use collect_role::settings::XdpMode;
use collect_role::settings::ZeroCopy;
use collect_role::settings::receive_on;
use model::ProfileSettings;
use model::SourceSettings;
use std::ops::Range;

use aggregate_role::settings::AggregatorSettings;
use detect::{RuleError, RuleSet, ThresholdError};
use export::record::Stream;

use super::{build, console, sections::ApiSettings, settings::Settings};
use net::tls::Part;
use runtime::control::IntentDetection;
use settings::{
    listen::Listen,
    read::{Node, Reader, is_written, nearest, span_of},
    values::Size,
};

/// Names of the built-in profiles.
pub const BUILT_IN_PROFILES: [&str; 7] = [
    "default",
    "strict",
    "geant",
    "hostint",
    "intcollector-gen",
    "onos",
    "p4int",
];

/// Maximum number of prefixes, and of ranges of nodes, in all entries of `[[collector.allow]]`.
const MAX_ALLOWED: usize = 65_536;

/// Maximum number of `[[api.tokens]]`: each request is compared with all of them.
const MAX_TOKENS: usize = 1_000;

/// UDP ports that are never VXLAN in a reported packet: those of GTP-U, VXLAN-GPE and Geneve.
const OTHER_TUNNEL_PORTS: [u16; 4] = [0, 2152, 4790, 6081];

/// Maximum number of rules.
const MAX_RULES: usize = detect::rule::MAX_RULES;

/// Longest name of a rule, characters.
const MAX_RULE_NAME: usize = detect::rule::MAX_NAME;

/// Checks settings, which are individually valid, against each other, and reports every problem.
pub fn check(settings: &Settings, text: &str, root: &Node<'_>, reader: &mut Reader<'_>) {
    let mut checker = Checker { root, reader };
    checker.collector(settings);
    for (name, profile) in &settings.profiles {
        checker.profile(name, profile);
    }
    for (index, source) in settings.sources.iter().enumerate() {
        checker.source(index, source, settings);
    }
    checker.nodes(settings);
    checker.thresholds(settings);
    checker.rules(settings, text);
    checker.store(settings);
    let has_store = settings.store.enabled && settings.collects();
    collect_role::settings::flight_recorder::check(
        &settings.flight_recorder,
        has_store,
        &mut |path, message| {
            checker.refuse(path, message);
        },
    );
    checker.api(settings);
    if let Some(aggregator) = &settings.aggregator {
        checker.aggregator(aggregator, settings);
    }
    if let Some(reporter) = &settings.reporter {
        dta_role::reporter::settings::check(reporter, &mut |path, message| checker.refuse(path, message));
    }
    if let Some(translator) = &settings.translator {
        dta_role::translator::settings::check(translator, &mut |path, message| checker.refuse(path, message));
        let has_switch = settings.switch.is_some();
        dta_role::translator::settings::check_intercept(translator, has_switch, &mut |path, message| {
            checker.refuse(path, message);
        });
    }
    let root = checker.root;
    let reader = &mut *checker.reader;
    let intent_detection = manage_role::settings::check(
        settings.manager.as_ref(),
        &settings.inventory,
        &settings.intents,
        settings.collects(),
        root,
        reader,
    );
    // Problems that exist without intents are reported elsewhere.
    if intent_detection != IntentDetection::default()
        && settings
            .collect()
            .detection(&IntentDetection::default(), 0)
            .is_ok()
        && let Err(message) = settings.collect().detection(&intent_detection, 0)
    {
        reader.refuse(span_of(root, &["intents"]), message);
    }
    check_exports(settings, root, reader);
    check_console(settings, root, reader);
    check_outlet(settings, root, reader);
    if let Some(memory) = &settings.collector.memory {
        dta::settings::check(memory, &mut |path, message| checker.refuse(path, message));
    }
    if let Some(switch) = &settings.switch {
        switch_role::settings::check(switch, &mut |path, message| checker.refuse(path, message));
        for (index, error) in switch_role::settings::filter::rule_errors(&switch.filter) {
            let span = span_of(checker.root, &["switch", "filter", &index.to_string(), "rule"]);
            checker.reader.refuse(span_in(text, span, &error), error.message);
        }
    }
}

/// Checks that the memory of all exports is in range and large enough for their shares.
fn check_export_memory(settings: &Settings, root: &Node<'_>, reader: &mut Reader<'_>) {
    let memory = settings.export.memory;
    if !(16 << 20..=64 << 30).contains(&memory.0) {
        let message = "write \"16 MiB\" to \"64 GiB\"";
        return reader.refuse(span_of(root, &["export", "memory"]), message);
    }
    if let Err(needed) = export_role::settings::shares(memory, &settings.exports) {
        reader.refuse(
            span_of(root, &["export", "memory"]),
            export_role::settings::not_enough(needed),
        );
    }
}

/// Checks the exports; they read the store of this process.
fn check_exports(settings: &Settings, root: &Node<'_>, reader: &mut Reader<'_>) {
    check_export_memory(settings, root, reader);
    for (name, export) in &settings.exports {
        let path = ["exports", name.as_str()];
        if !export_role::settings::is_name(name) {
            let message = "its cursor is a file with this name; write letters, digits, - and _";
            reader.refuse(span_of(root, &path), message);
        }
        if !settings.store.enabled || !settings.collects() {
            let message = "there is no store to read from; set [store] enabled = true beside [collector]";
            reader.refuse(span_of(root, &path), message);
        }
        for (key, message) in export.problems() {
            reader.refuse(span_of(root, &["exports", name, key]), message);
        }
        let has_hops = export
            .streams()
            .is_ok_and(|streams| streams.contains(&Stream::Hops));
        if has_hops && settings.collector.xdp.mode == XdpMode::Kernel {
            let message = "with [collector.xdp] mode = \"kernel\" most reports are suppressed in the kernel, and their hops cannot be sent; leave \"hops\" out, or write mode = \"user\"";
            reader.refuse(span_of(root, &["exports", name, "streams"]), message);
        }
    }
}

/// Checks that a console is alone in its file: it has no inputs and serves only data in ClickHouse.
fn check_console(settings: &Settings, root: &Node<'_>, reader: &mut Reader<'_>) {
    let Some(console) = &settings.console else { return };
    if settings.collects() {
        let message = "a console has no inputs; use a file without [collector]";
        reader.refuse(span_of(root, &["collector"]), message);
    }
    let roles = [
        ("manager", settings.manager.is_some()),
        ("switch", settings.switch.is_some()),
        ("translator", settings.translator.is_some()),
        ("aggregator", settings.aggregator.is_some()),
        ("reporter", settings.reporter.is_some()),
    ];
    for (role, _) in roles.into_iter().filter(|(_, is_configured)| *is_configured) {
        let message = "a console serves only data in ClickHouse; use a separate file for this";
        reader.refuse(span_of(root, &[role]), message);
    }
    for (key, message) in console.problems() {
        // A command-line option may supply the address.
        if key == "url" && console.url.is_empty() {
            continue;
        }
        reader.refuse(span_of(root, &["console", key]), message);
    }
}

/// Checks that an outlet is alone in its file: it has no inputs and shares the exports' part of the API with no other role.
fn check_outlet(settings: &Settings, root: &Node<'_>, reader: &mut Reader<'_>) {
    let Some(outlet) = &settings.outlet else { return };
    let other_roles = [
        ("collector", settings.collects()),
        ("console", settings.console.is_some()),
        ("manager", settings.manager.is_some()),
        ("switch", settings.switch.is_some()),
        ("translator", settings.translator.is_some()),
        ("aggregator", settings.aggregator.is_some()),
        ("reporter", settings.reporter.is_some()),
    ];
    for (role, _) in other_roles
        .into_iter()
        .filter(|(_, is_configured)| *is_configured)
    {
        let message = "an outlet only forwards data from Kafka; use a separate file for this";
        reader.refuse(span_of(root, &[role]), message);
    }
    for (key, message) in outlet.problems() {
        let path: Vec<&str> = std::iter::once("outlet").chain(key.iter().copied()).collect();
        reader.refuse(span_of(root, &path), message);
    }
}

/// Returns the range of the file that a rule's error refers to: inside the quotes if the rule is written without escapes, or
/// else the whole `span`.
fn span_in(text: &str, span: Range<usize>, error: &RuleError) -> Range<usize> {
    let written = text.get(span.clone()).unwrap_or("");
    match written.find(&error.text) {
        Some(quotes) => {
            let start = span.start + quotes + error.position;
            start..start + error.length.max(1)
        }
        None => span,
    }
}

/// Reports problems at the positions of their keys in the file.
struct Checker<'a, 'i> {
    root: &'a Node<'a>,
    reader: &'a mut Reader<'i>,
}

impl Checker<'_, '_> {
    /// Reports a problem with the key at `path`.
    fn refuse(&mut self, path: &[&str], message: impl Into<String>) {
        self.reader.refuse(span_of(self.root, path), message);
    }

    /// Reports a value outside `min..=max`.
    fn within(&mut self, path: &[&str], value: u64, min: u64, max: u64) {
        if !(min..=max).contains(&value) {
            self.refuse(
                path,
                format!("{value} is out of range; write a number from {min} to {max}"),
            );
        }
    }

    /// Checks that a queue has 1 MiB to 16 GiB. A datagram or record of any size fits into the smallest one.
    fn queue(&mut self, path: &[&str], size: Size) {
        if !(1 << 20..=16 << 30).contains(&size.0) {
            self.refuse(path, "a queue has a size in bytes; write \"1 MiB\" to \"16 GiB\"");
        }
    }

    fn postcards(&mut self, settings: &Settings) {
        let collector = &settings.collector;
        let postcards = &collector.postcards;
        let kernel = collector.xdp.mode == XdpMode::Kernel;
        for (index, listen) in collector.listen.iter().enumerate().filter(|_| kernel) {
            let ports = listen.ports();
            if let (Some(interface), Some(port)) = (
                listen.interface(),
                ports.iter().find(|port| collector.aggregate_ports.contains(port)),
            ) {
                let message = format!(
                    "the kernel program does not decode aggregates; listen for them by \"udp://*:{port}\" and leave the port out here, \
                     as in \"xdp://{interface}\""
                );
                self.refuse(&["collector", "listen", &index.to_string()], message);
            }
        }
        for (name, value, min, max) in [
            ("max_pending", postcards.max_pending as u64, 0, 1 << 24),
            ("confirmations", postcards.confirmations.into(), 1, 100),
        ] {
            self.within(&["collector", "postcards", name], value, min, max);
        }
        let bounds = [
            ("timeout", postcards.timeout, 60),
            ("proximity", postcards.proximity, 2),
        ];
        for (name, value, max) in bounds {
            if value.is_zero() || value.as_secs() >= max {
                let message = format!("write a duration of more than 0 and less than {max}s");
                self.refuse(&["collector", "postcards", name], message);
            }
        }
    }

    fn collector(&mut self, settings: &Settings) {
        let collector = &settings.collector;
        if collector
            .name
            .as_ref()
            .is_some_and(|name| !console::is_name(name))
        {
            let message = "a name has 1 to 255 letters, digits, -, _ and .; write another";
            self.refuse(&["collector", "name"], message);
        }
        if collector.listen.is_empty() {
            self.refuse(
                &["collector", "listen"],
                "no listen address; write at least one address, such as \"udp://*:32766\"",
            );
        }
        for (index, listen) in collector.listen.iter().enumerate() {
            let before = &collector.listen[..index];
            let same =
                |other: &Listen| other.interface().is_some() && other.interface() == listen.interface();
            if before.contains(listen) {
                let message = format!("{listen} is listed twice; remove one");
                self.refuse(&["collector", "listen", &index.to_string()], message);
            } else if let Some(interface) = listen.interface().filter(|_| before.iter().any(same)) {
                let message = format!(
                    "the interface {interface} is listed twice; write all its ports in one entry, such as \"xdp://{interface}:32766,5000\""
                );
                self.refuse(&["collector", "listen", &index.to_string()], message);
            } else if collector.namespace.is_some() && listen.interface().is_some() {
                let message = "only udp:// can be in another namespace; remove `namespace`, or start the program in it (`ip netns exec`)";
                self.refuse(&["collector", "listen", &index.to_string()], message);
            }
        }
        self.report_ports(settings);
        self.allow(settings);
        self.xdp(settings);
        self.sf(settings);
        self.postcards(settings);
        let max_entries = u64::from(u32::MAX) / 2;
        for (name, value, min, max) in [
            ("workers", collector.workers, 1, 64),
            ("burst", collector.burst, 1, 1024),
            ("batch", collector.batch, 1024, 1 << 20),
            ("max_flows", collector.max_flows, 64, max_entries),
            ("max_queues", collector.max_queues, 16, max_entries),
            ("max_links", collector.max_links, 16, max_entries),
            ("max_nodes", collector.max_nodes, 16, max_entries),
            ("max_sources", collector.max_sources, 16, max_entries),
        ] {
            self.within(&["collector", name], value as u64, min, max);
        }
        self.queue(&["collector", "worker_queue"], collector.worker_queue);
        self.queue(&["collector", "result_queue"], collector.result_queue);
        if !(512..=65_535).contains(&collector.datagram.0) {
            self.refuse(
                &["collector", "datagram"],
                "a datagram has at most 65535 bytes; write \"512 B\" to \"65535 B\"",
            );
        }
        if collector.flow_timeout.as_secs() < 1 {
            self.refuse(
                &["collector", "flow_timeout"],
                "flows would expire at once; write at least \"1s\"",
            );
        }
    }

    fn allow(&mut self, settings: &Settings) {
        let collector = &settings.collector;
        let entries = &collector.allow;
        let (prefixes, ranges) = entries.iter().fold((0, 0), |(from, nodes), entry| {
            (from + entry.from.len(), nodes + entry.nodes.len())
        });
        if prefixes.max(ranges) > MAX_ALLOWED {
            self.refuse(
                &["collector", "allow"],
                format!("at most {MAX_ALLOWED} prefixes and {MAX_ALLOWED} ranges of nodes in all; write networks instead of single addresses"),
            );
        }
        for (index, entry) in entries.iter().enumerate() {
            let position = index.to_string();
            if entry.from.is_empty() {
                self.refuse(
                    &["collector", "allow", &position],
                    "an entry needs senders; add from = [\"10.0.0.0/8\"] or the like",
                );
            }
            for (at, listen) in entry.listen.iter().enumerate() {
                if !collector.listen.contains(listen) {
                    let message = format!(
                        "{listen} is not in [collector] listen; write it as it is there, or leave `listen` out"
                    );
                    self.refuse(
                        &["collector", "allow", &position, "listen", &at.to_string()],
                        message,
                    );
                }
            }
        }
        let kernel = collector.xdp.mode == XdpMode::Kernel;
        for listen in collector
            .listen
            .iter()
            .filter(|listen| kernel && listen.interface().is_some())
        {
            if collector.is_restricted(listen) {
                let message = format!(
                    "with [collector.xdp] mode = \"kernel\" the kernel program cannot restrict senders of {listen}; write mode = \"user\", or \
                     entries with a `listen` of udp:// only"
                );
                self.refuse(&["collector", "allow"], message);
            }
        }
    }

    fn sf(&mut self, settings: &Settings) {
        let sf = &settings.collector.sf;
        for (name, value, min, max) in [
            ("confirmations", sf.confirmations, 1, 16),
            ("max_flows", sf.max_flows, 64, 1 << 24),
            ("max_sets", sf.max_sets, 64, 1 << 24),
            ("max_nodes", sf.max_nodes, 2, 64),
        ] {
            self.within(&["collector", "sf", name], value as u64, min, max);
        }
        if sf.hop_limit.is_some_and(|limit| limit < 2) {
            self.refuse(
                &["collector", "sf", "hop_limit"],
                "write what sources put into the header, such as 16",
            );
        }
        if sf.timeout.is_zero() || sf.timeout.as_secs() > 60 {
            self.refuse(
                &["collector", "sf", "timeout"],
                "write \"1ms\" to \"60s\"; registers of switches are emptied after a second",
            );
        }
    }

    fn xdp(&mut self, settings: &Settings) {
        let xdp = &settings.collector.xdp;
        // The kernel requires powers of two for AF_XDP rings and BPF ring buffers.
        if !xdp.frames.is_power_of_two() || !(64..=1 << 16).contains(&xdp.frames) {
            self.refuse(
                &["collector", "xdp", "frames"],
                "write a power of two from 64 to 65536, such as 4096",
            );
        }
        if !xdp.ring.0.is_power_of_two() || !(64 << 10..=1 << 30).contains(&xdp.ring.0) {
            self.refuse(
                &["collector", "xdp", "ring"],
                "write a power of two from \"64 KiB\" to \"1 GiB\", such as \"16 MiB\"",
            );
        }
        if let Some(flows) = xdp.kernel_flows {
            self.within(&["collector", "xdp", "kernel_flows"], flows.into(), 64, 1 << 24);
        }
        if xdp.mode == XdpMode::Kernel && settings.collector.workers > 1 {
            self.refuse(
                &["collector", "xdp", "mode"],
                "in this mode the kernel detects changes on all cores, and one worker holds the state; write workers = 1",
            );
        }
        if xdp.mode == XdpMode::Kernel && settings.store.enabled && settings.store.reports {
            self.refuse(
                &["store", "reports"],
                "with [collector.xdp] mode = \"kernel\" most reports are suppressed in the kernel and cannot be stored; write reports = false, or mode = \"user\"",
            );
        }
        if xdp.zero_copy == ZeroCopy::Never && xdp.lowest == RxPath::ZeroCopy {
            self.refuse(
                &["collector", "xdp", "zero_copy"],
                "no receive path is left: write zero_copy = \"auto\", or a slower one as `lowest`",
            );
        }
    }

    /// Refuses listeners whose ports do not all fit into the profiles of their senders.
    fn report_ports(&mut self, settings: &Settings) {
        let ports: Vec<u16> = settings.collector.listen.iter().flat_map(Listen::ports).collect();
        let by_source = settings.sources.iter().map(|source| source.profile.as_str());
        let refused = std::iter::once("default")
            .chain(by_source)
            .find_map(|name| receive_on(&mut settings.collect().profile(name).wire, &ports).err());
        if let Some(message) = refused {
            self.refuse(&["collector", "listen"], message);
        }
    }

    fn profile(&mut self, name: &str, profile: &ProfileSettings) {
        for (key, unit) in [
            ("timestamp_unit", profile.timestamp_unit),
            ("latency_unit", profile.latency_unit),
        ] {
            if unit.is_zero() || unit.as_secs() > 1 {
                self.refuse(
                    &["profiles", name, key],
                    "a tick lasts from \"1ns\" to \"1s\"; write what the device documents",
                );
            }
        }
        if profile.telemetry_ports.len() > 8 {
            self.refuse(
                &["profiles", name, "telemetry_ports"],
                "at most 8 ports; remove some",
            );
        }
        if profile.vxlan_ports.len() > wire::Profile::MAX_VXLAN_PORTS {
            self.refuse(&["profiles", name, "vxlan_ports"], "at most 4 ports; remove some");
        }
        for port in &profile.vxlan_ports {
            if OTHER_TUNNEL_PORTS.contains(port) {
                self.refuse(
                    &["profiles", name, "vxlan_ports"],
                    format!("{port} is not a port of VXLAN: it is 0 or that of another tunnel; remove it"),
                );
            }
        }
        if profile.utilization_scale <= 0.0 {
            self.refuse(
                &["profiles", name, "utilization_scale"],
                "the factor must be greater than 0, for example 0.01 for percent",
            );
        }
        for (key, value) in [
            ("dscp", profile.dscp),
            ("dscp_mask", profile.dscp_mask),
            ("dscp_other", profile.dscp_other),
        ] {
            self.within(&["profiles", name, key], u64::from(value.unwrap_or(0)), 0, 63);
        }
    }

    fn source(&mut self, index: usize, source: &SourceSettings, settings: &Settings) {
        let position = index.to_string();
        let earlier = &settings.sources[..index];
        if let Some(prefix) = source
            .prefix
            .filter(|_| earlier.iter().any(|one| one.prefix == source.prefix))
        {
            let message = format!("{prefix} is listed twice; remove one of the two tables");
            self.refuse(&["sources", &position, "prefix"], message);
        }
        if !is_written(self.root, &["sources", &position, "prefix"]) {
            self.refuse(
                &["sources", &position],
                "a source needs an address; add prefix = \"10.0.0.0/8\" or the like",
            );
        }
        self.known_profile(&["sources", &position, "profile"], &source.profile, settings);
    }

    fn known_profile(&mut self, path: &[&str], profile: &str, settings: &Settings) {
        let mut known: Vec<&str> = settings.profiles.keys().map(String::as_str).collect();
        known.extend(BUILT_IN_PROFILES);
        if known.contains(&profile) {
            return;
        }
        let advice = match nearest(profile, &known) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("add [profiles.{profile}], or use one of: {}", known.join(", ")),
        };
        self.refuse(path, format!("there is no profile `{profile}`; {advice}"));
    }

    fn nodes(&mut self, settings: &Settings) {
        let kernel = settings.collector.xdp.mode == XdpMode::Kernel;
        for (id, node) in &settings.nodes {
            let id_text = id.to_string();
            if let Some(profile) = &node.0.profile {
                let path = ["nodes", &id_text, "profile"];
                self.known_profile(&path, profile, settings);
                if kernel {
                    self.refuse(
                        &path,
                        "with [collector.xdp] mode = \"kernel\" the units are those of the reporter; remove the profile, or write mode = \"user\"",
                    );
                }
            }
            if node
                .0
                .name
                .as_ref()
                .is_some_and(|name| name.is_empty() || name.len() > 64)
            {
                self.refuse(
                    &["nodes", &id.to_string()],
                    "a name has 1 to 64 characters; shorten it, or remove the line",
                );
            }
        }
    }

    fn thresholds(&mut self, settings: &Settings) {
        match settings.collect().compile_thresholds() {
            Ok(_) => {}
            Err(ThresholdError::MixedFamilies { index }) => {
                let message = "this matches nothing: one address is IPv4 and the other IPv6; correct one, or remove the table";
                self.refuse(&["thresholds", "override", &index.to_string()], message);
            }
            Err(error) => self.refuse(&["thresholds", "override"], error.to_string()),
        }
    }

    fn rules(&mut self, settings: &Settings, text: &str) {
        let mut compiled_rules = Vec::new();
        if settings.rules.len() > MAX_RULES {
            self.refuse(
                &["rules"],
                format!(
                    "{} rules are too many; keep at most {MAX_RULES}",
                    settings.rules.len()
                ),
            );
        }
        for (index, rule) in settings.rules.iter().enumerate() {
            let position = index.to_string();
            if rule.name.is_empty() {
                self.refuse(
                    &["rules", &position, "name"],
                    "a rule needs a name; add name = \"...\"",
                );
            } else if rule.name.chars().count() > MAX_RULE_NAME {
                let message = format!("a name has at most {MAX_RULE_NAME} characters; shorten it");
                self.refuse(&["rules", &position, "name"], message);
            } else if settings.rules[..index]
                .iter()
                .any(|other| other.name == rule.name)
            {
                let message = format!("there are two rules `{}`; rename one", rule.name);
                self.refuse(&["rules", &position, "name"], message);
            }
            if rule.when.is_empty() {
                self.refuse(
                    &["rules", &position, "when"],
                    "a rule needs a condition; add when = \"flow_latency > 5ms\" or the like",
                );
            } else if let Err(error) = RuleSet::compile(&[(position.clone(), rule.when.clone())]) {
                let span = span_of(self.root, &["rules", &position, "when"]);
                self.reader.refuse(span_in(text, span, &error), error.message);
            } else {
                compiled_rules.push((position.clone(), rule.when.clone()));
            }
        }
        // The total history of all rules is bounded.
        if compiled_rules.len() <= MAX_RULES
            && let Err(error) = RuleSet::compile(&compiled_rules)
        {
            self.refuse(&["rules", &error.rule, "when"], error.message);
        }
    }

    fn store(&mut self, settings: &Settings) {
        let store = &settings.store;
        self.queue(&["store", "queue"], store.queue);
        let commit = store.commit_every.as_millis();
        if !(10..=5_000).contains(&commit) {
            self.refuse(
                &["store", "commit_every"],
                "write a duration from \"10ms\" to \"5s\"",
            );
        }
        if store.max_age.is_some_and(|age| age.as_secs() < 3600) {
            self.refuse(
                &["store", "max_age"],
                "files are deleted as a whole, so an hour is the minimum; write \"1h\" or more, or remove the line",
            );
        }
        if store.max_bytes.is_some_and(|size| size.0 < 16 << 20) {
            self.refuse(
                &["store", "max_bytes"],
                "too small for one file; write \"16 MiB\" or more, or remove the line",
            );
        }
    }

    fn api(&mut self, settings: &Settings) {
        let api = &settings.api;
        if let Err(message) = settings.check_protection() {
            self.refuse(&["api", "listen"], message);
        }
        for (name, value, max) in [
            ("max_streams", api.max_streams, 10_000),
            ("stream_queue", api.stream_queue, 1 << 20),
            ("max_queries", api.max_queries, 64),
            ("query_rows", api.query_rows, 1_000_000),
        ] {
            self.within(&["api", name], value as u64, 1, max);
        }
        self.tokens(api);
        if let Err(problem) = api.server() {
            let key = match problem.file {
                Part::Certificate => "certificate",
                Part::Key => "key",
                Part::Authorities => "client_ca",
            };
            self.refuse(&["api", "tls", key], problem.message);
        }
        if api.query_timeout.is_zero() || api.query_timeout.as_secs() > 3600 {
            self.refuse(
                &["api", "query_timeout"],
                "write a duration from \"1ms\" to \"1h\"",
            );
        }
    }
}

impl Checker<'_, '_> {
    fn tokens(&mut self, api: &ApiSettings) {
        if api.tokens.len() > MAX_TOKENS {
            self.refuse(
                &["api", "tokens"],
                format!("at most {MAX_TOKENS} tokens; remove some"),
            );
        }
        for (index, entry) in api.tokens.iter().take(MAX_TOKENS).enumerate() {
            let position = index.to_string();
            let earlier = &api.tokens[..index];
            if !(1..=64).contains(&entry.name.chars().count()) || entry.name.chars().any(char::is_control) {
                self.refuse(
                    &["api", "tokens", &position, "name"],
                    "the token needs a name of 1 to 64 characters",
                );
            } else if earlier.iter().any(|other| other.name == entry.name) {
                let message = format!("there are two tokens of `{}`; rename one", entry.name);
                self.refuse(&["api", "tokens", &position, "name"], message);
            }
            match &entry.token {
                None => self.refuse(
                    &["api", "tokens", &position, "token"],
                    "add token = \"...\" (openssl rand -hex 24)",
                ),
                Some(token) => {
                    let others = earlier
                        .iter()
                        .map(|other| other.token.as_ref())
                        .chain([api.token.as_ref()]);
                    if others.flatten().any(|other| other == token) {
                        self.refuse(
                            &["api", "tokens", &position, "token"],
                            "this token is written twice; make another (openssl rand -hex 24)",
                        );
                    }
                }
            }
        }
    }

    fn aggregator(&mut self, aggregator: &AggregatorSettings, settings: &Settings) {
        let name = &aggregator.profile;
        if !BUILT_IN_PROFILES.contains(&name.as_str()) && !settings.profiles.contains_key(name) {
            let message = format!("there is no profile `{name}`; write [profiles.{name}], or another name");
            self.refuse(&["aggregator", "profile"], message);
        }
        let ports = aggregator.listen.ports();
        if let Err(message) = receive_on(&mut settings.collect().profile(name).wire, &ports) {
            self.refuse(&["aggregator", "listen"], message);
        }
        let profile = build::aggregator_profile(aggregator, settings);
        aggregate_role::settings::check(aggregator, profile, &mut |path, message| {
            self.refuse(path, message)
        });
    }
}
