//! `hopwise check`: validates a configuration without starting anything and prints warnings and a summary. With `--connect`
//! it also probes the systems that receive exports (Kafka, ClickHouse, …).

pub(crate) mod intents;

use collect_role::settings::XdpMode;
use settings::listen::Listen;
use std::{
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use settings::setting::Setting;
use store::Store;

use ::export_role::role as export_role;
use collect_role::kernel;
use config::{Settings, build, console::ConsoleSettings, sections::TlsSettings};
use manage_role::settings::ManagerSettings;
use terminal::CliError;

const EXAMPLES: &str = "\
Examples:
  hopwise check -c hopwise.toml                  print all errors, with line and column; exit code 2
  hopwise check -c hopwise.toml --dump           print the effective configuration
  hopwise check -c hopwise.toml --connect        also connect to each system that receives exports; exit code 1 if one fails
  hopwise check --dump > hopwise.toml            write a configuration with all defaults";

/// Check a configuration without starting anything
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Configuration file (default: the built-in defaults are checked)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print the effective configuration, including defaults
    #[arg(long)]
    pub(crate) dump: bool,

    /// Connect to the systems of the sections exports, console and outlet: is each reachable, does it accept the credentials, does it have the tables?
    #[arg(long)]
    pub(crate) connect: bool,
}

/// Checks the configuration by building everything that it describes, without starting it.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let settings = Settings::load(args.config.as_deref())?;
    settings
        .collect()
        .collector_config(settings.collector.workers, 0)
        .map_err(CliError::new)?;
    if settings.store.enabled && settings.collects() {
        probe_store(&settings.store_directory())?;
    }
    if let Some(manager) = &settings.manager {
        check_state_folder(manager.state.as_deref())?;
    }
    let intents = intents::compile(&settings);
    let roles = intents::roles(&settings);
    let exposed_tokens = args
        .config
        .as_deref()
        .and_then(|file| warn_of_exposed_tokens(file, &settings));
    for warning in warnings(&settings)
        .iter()
        .chain(&exposed_tokens)
        .chain(&intents.problems)
        .chain(&roles.problems)
    {
        terminal::note(format_args!("warning: {warning}"));
    }
    let out = match args.dump {
        // Strings in TOML have the escape sequences of JSON.
        true => terminal::json::escaped(&settings.to_toml()).into_owned(),
        false => summary(&settings) + &explain_kernel_rules(&settings)? + &roles.text + &intents.text,
    };
    terminal::print(&out)?;
    if args.connect {
        connect(&settings)
    } else {
        Ok(ExitCode::SUCCESS)
    }
}

/// Probes the tables of a console, and returns the authority of the server.
fn probe_console(console: &ConsoleSettings) -> Result<String, String> {
    let destination = console
        .destination()
        .map_err(|error| format!("{}: {}", error.0, error.1))?;
    let tables = console
        .tables()
        .map_err(|error| format!("{}: {}", error.0, error.1))?;
    export_role::probe_console(destination, tables)
}

/// Probes each system that receives exports and prints a line for each. Exit code 1 if a probe fails.
fn connect(settings: &Settings) -> Result<ExitCode, CliError> {
    let exports = export_role::probe(&settings.exports)?;
    let mut out = terminal::stdout();
    for (name, result) in &exports {
        let line = match result {
            Ok(authority) => format!("export {name}: {authority} has what is needed"),
            Err(error) => format!("export {name}: {error}"),
        };
        writeln!(out, "{line}").map_err(CliError::output)?;
    }
    let console = settings.console.as_ref().map(probe_console);
    match &console {
        Some(Ok(authority)) => writeln!(out, "console: {authority} has what is needed"),
        Some(Err(error)) => writeln!(out, "console: {error}"),
        None => Ok(()),
    }
    .map_err(CliError::output)?;
    let outlet = settings
        .outlet
        .as_ref()
        .map(export_role::probe_outlet)
        .transpose()?;
    for (side, result) in ["from Kafka", "to ClickHouse"]
        .into_iter()
        .zip(outlet.iter().flatten())
    {
        match result {
            Ok(authority) => writeln!(out, "outlet {side}: {authority} has what is needed"),
            Err(error) => writeln!(out, "outlet {side}: {error}"),
        }
        .map_err(CliError::output)?;
    }
    let all_succeeded = exports
        .values()
        .chain(&console)
        .chain(outlet.iter().flatten())
        .all(Result::is_ok);
    Ok(if all_succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns warnings about valid settings that may not be intended.
fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    let ports = settings.switch.iter().flat_map(|switch| &switch.ports);
    for port in ports {
        if let Ok(None) = nic::device::facts(&port.interface) {
            warnings.push(format!(
                "there is no interface `{}` here now (`ip link` lists those there are); `hopwise run` needs it",
                port.interface
            ));
        }
    }
    for interface in settings.collector.listen.iter().filter_map(Listen::interface) {
        // Not an error: the interface may appear later. If its facts cannot be read for lack of permission, nothing is known.
        if let Ok(None) = nic::device::facts(interface) {
            warnings.push(format!(
                "there is no interface `{interface}` here now (`ip link` lists those there are); it is used when it appears"
            ));
        }
    }
    warnings.extend(settings.open_listeners());
    warnings.extend(unknown_edges(settings));
    warnings.extend(unlikely_rules(settings));
    if !settings.collects() && summary_of_roles(settings).is_empty() {
        warnings.push(
            "`hopwise run` would do nothing: there is no collector and no other role; add [switch], [manager] or another one, or remove [collector] enabled = false"
                .to_owned(),
        );
    }
    warnings.extend(
        settings
            .manager
            .as_ref()
            .and_then(ManagerSettings::idle_collectors),
    );
    let api = &settings.api;
    warnings.extend(api.tls.as_ref().and_then(TlsSettings::warning));
    if api.needs_token() && api.tls.is_none() && !api.listen.ip().is_loopback() {
        warnings.push(format!(
            "the API token is sent over the network in clear text; set [api] tls, or listen on 127.0.0.1 behind a TLS proxy (now {})",
            api.listen
        ));
    }
    warnings
}

/// Returns a warning if everybody on this machine can read the tokens in a file.
fn warn_of_exposed_tokens(file: &Path, settings: &Settings) -> Option<String> {
    let has_token = settings.api.needs_token()
        || settings
            .manager
            .as_ref()
            .is_some_and(|manager| manager.token.is_some() || manager.peer_token.is_some());
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    (has_token && mode & 0o004 != 0).then(|| {
        let file = file.display();
        format!(
            "the tokens in {file} are world-readable; chmod 640 {file}, and chgrp it to the group of hopwise"
        )
    })
}

/// Returns a warning for each rule with a latency that was probably meant in another unit.
fn unlikely_rules(settings: &Settings) -> impl Iterator<Item = String> {
    settings.rules.iter().flat_map(|rule| {
        detect::rule::unlikely_latencies(&rule.when).into_iter().map(move |comparison| {
            format!(
                "the rule `{}` has `{comparison}`, in nanoseconds; write a unit, such as us or ms, if another is meant",
                rule.name
            )
        })
    })
}

/// Returns whether a device has a name or a label that matches `pattern`.
fn has_device(inventory: &manager::inventory::Inventory, pattern: &str) -> bool {
    inventory.devices().any(|device| {
        let mut names = std::iter::once(&device.name).chain(&device.labels);
        names.any(|name| manager::intent::matches_pattern(pattern, name))
    })
}

/// Returns a warning for each edge device that an intent names but the inventory does not have.
fn unknown_edges(settings: &Settings) -> Vec<String> {
    let inventory = manager::inventory::from_settings(&settings.inventory);
    let mut unknown = Vec::new();
    for intent in settings.intents.iter().map(|intent| intent.show().to_written()) {
        let edges = intent
            .pointer("/at/edges")
            .and_then(|edges| edges.as_array())
            .cloned();
        for edge in edges.unwrap_or_default().iter().filter_map(|edge| edge.as_str()) {
            if !has_device(&inventory, edge) {
                let name = intent
                    .get("name")
                    .and_then(|name| name.as_str())
                    .unwrap_or_default();
                unknown.push(format!(
                    "no device of the inventory has the name or label `{edge}` of the intent `{name}`; correct `at.edges`"
                ));
            }
        }
    }
    unknown
}

/// Checks that the folder of the manager's state exists.
fn check_state_folder(state: Option<&Path>) -> Result<(), CliError> {
    let folder = state
        .and_then(Path::parent)
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => {
            let folder = folder.display();
            Err(CliError::new(format!(
                "there is no folder {folder} for [manager] state; create it"
            )))
        }
        None => Ok(()),
    }
}

/// Checks that a store can be opened in `dir`, without leaving files.
fn probe_store(dir: &Path) -> Result<(), CliError> {
    Store::probe(dir).map_err(|error| CliError::new(error.to_string()))
}

/// Lists the rules that the kernel program cannot evaluate. Empty without an XDP listener with `mode = "kernel"`.
fn explain_kernel_rules(settings: &Settings) -> Result<String, CliError> {
    let interfaces = settings
        .collector
        .listen
        .iter()
        .any(|listen| matches!(listen, Listen::Xdp { .. }));
    if settings.collector.xdp.mode != XdpMode::Kernel || !interfaces {
        return Ok(String::new());
    }
    let rules = settings
        .collect()
        .compile_rules()
        .map_err(|error| CliError::new(error.to_string()))?;
    Ok(kernel::explain_rules(&rules))
}

/// Formats one line that names the configured parts.
fn summary(settings: &Settings) -> String {
    let roles = summary_of_roles(settings);
    if !settings.collects() {
        return format!(
            "ok: {roles}no collector, API on {}://{}\n",
            settings.api.scheme(),
            settings.api.listen
        );
    }
    let listen: Vec<String> = settings
        .collector
        .listen
        .iter()
        .map(ToString::to_string)
        .collect();
    let store = match settings.store.enabled {
        true => format!("store in {}", settings.store_directory().display()),
        false => "no store".to_owned(),
    };
    let rules = settings.rules.len();
    let workers = settings.collector.workers;
    format!(
        "ok: {roles}reports on {}, {workers} worker(s), {rules} rule(s), {store}, API on {}://{}\n{}",
        listen.join(" "),
        settings.api.scheme(),
        settings.api.listen,
        unverified(settings)
    )
}

/// Names the listeners on which a report that was damaged on the way is read as it is.
fn unverified(settings: &Settings) -> String {
    let interfaces = settings.collector.listen.iter();
    let interfaces: Vec<String> = interfaces
        .filter(|listen| listen.interface().is_some())
        .map(ToString::to_string)
        .collect();
    if interfaces.is_empty() {
        return String::new();
    }
    let names = interfaces.join(" ");
    format!("UDP checksums on {names}: only the NIC verifies them, as AF_XDP delivers what it accepts\n")
}

/// Names the configured parts other than the collector.
fn summary_of_roles(settings: &Settings) -> String {
    let switch = settings.switch.as_ref().map(|switch| {
        let node = switch.node;
        let ports = switch.ports.len();
        let routes = switch.routes.len();
        let watched = switch.watch.len();
        let filters = switch.filter.len();
        let filters = if filters > 0 {
            format!("{filters} filter(s), ")
        } else {
            String::new()
        };
        format!("a switch, node {node}, {ports} port(s), {routes} route(s), {watched} watched, {filters}")
    });
    let switch = switch.unwrap_or_default();
    let aggregator = settings.aggregator.as_ref().map(|aggregator| {
        let to: Vec<String> = aggregator.forward.iter().map(ToString::to_string).collect();
        let from = &aggregator.listen;
        let kind = aggregator.kind.name();
        let r = aggregator.r;
        let memory = aggregator
            .config(build::aggregator_profile(aggregator, settings))
            .bytes()
            .div_ceil(1 << 20);
        format!(
            "aggregator {kind}({r}) from {from} to {}, {memory} MiB, ",
            to.join(" ")
        )
    });
    let manager = settings.manager.as_ref().map(|_| {
        let devices = manager::inventory::from_settings(&settings.inventory)
            .devices()
            .count();
        format!(
            "a manager of {devices} device(s) with {} intent(s), ",
            settings.intents.len()
        )
    });
    let console = settings.console.as_ref();
    let console = console.map(|console| format!("a console over {} of {}, ", console.database, console.url));
    let outlet = settings.outlet.as_ref();
    let outlet = outlet.map(|outlet| {
        let from = &outlet.kafka.url;
        let to = &outlet.clickhouse.url;
        format!(
            "an outlet from {from} to {} of {to}, ",
            outlet.clickhouse.database
        )
    });
    [
        switch,
        aggregator.unwrap_or_default(),
        summary_of_dta(settings),
        manager.unwrap_or_default(),
        console.unwrap_or_default(),
        outlet.unwrap_or_default(),
    ]
    .concat()
}

/// Names the configured parts of DTA.
fn summary_of_dta(settings: &Settings) -> String {
    let translator = settings.translator.as_ref().map(|dta| {
        let listens: Vec<String> = dta.listens().iter().map(ToString::to_string).collect();
        format!(
            "DTA reports on {} for {} collector(s), ",
            listens.join(" "),
            dta.collectors.len()
        )
    });
    let reporter = settings.reporter.as_ref().map(|reporter| {
        let id = reporter.id;
        let listen = &reporter.listen;
        let count = reporter.destinations().map_or(0, |(to, _)| to.len());
        format!("DTA reporter {id} on {listen} for {count} collector(s), ")
    });
    let memory = settings.collector.memory.as_ref().map(|memory| {
        let bytes: u64 = memory
            .stores
            .iter()
            .map(|store| dta_role::memory::geometry(store).body_len())
            .sum();
        let stores = memory.stores.len();
        let directory = memory.directory.display();
        format!(
            "{stores} store(s) of {} MiB in {directory}, RoCEv2 on {}, ",
            bytes.div_ceil(1 << 20),
            memory.listen
        )
    });
    translator.unwrap_or_default() + &reporter.unwrap_or_default() + &memory.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_a_warning() {
        let file = "[collector]\nlisten = [\"xdp://no-such-nic\", \"xdp://lo\"]\n[[collector.allow]]\nfrom = [\"10.0.0.0/8\"]\n";
        let settings = Settings::parse(file, "h.toml").unwrap();
        let expected = "there is no interface `no-such-nic` here now (`ip link` lists those there are); it is used when it appears";
        assert_eq!(warnings(&settings), [expected]);
    }

    #[test]
    fn a_collector_that_others_are_preferred_to_is_a_warning() {
        let found = |collectors: &str| {
            let file = format!(
                "collector.enabled = false\n[manager]\ncollectors = [{collectors}]\n[[inventory.devices]]\nname = \"a\"\nnode = 1\naddress = \"127.0.0.1:1\"\nports = 2\n"
            );
            warnings(&Settings::parse(&file, "h.toml").unwrap_or_else(|error| panic!("{error}")))
        };
        let placed = "{ address = \"192.0.2.1:1\", at = \"a\" }";
        let other = "{ address = \"192.0.2.2:1\" }";
        let expected = "192.0.2.2:1 has no `at` in [manager] collectors, and gets only devices that cannot reach the others; write `at` for all of them or for none";
        assert_eq!(found(&format!("{placed}, {other}")), [expected]);
        for fine in [format!("{other}, {other}"), placed.to_owned()] {
            assert_eq!(found(&fine), Vec::<String>::new());
        }
    }

    #[test]
    fn a_listener_that_is_open_to_everyone_is_a_warning() {
        let found = |file: &str| warnings(&Settings::parse(file, "h.toml").unwrap());
        let open = |listens: &str, key: &str| {
            format!(
                "everyone who reaches {listens} can send reports, which are not authenticated; name the senders in {key}"
            )
        };
        assert_eq!(
            found(""),
            [open("udp://*:32766 and udp://*:32767", "[[collector.allow]]")]
        );
        let one = "[[collector.allow]]\nfrom = [\"10.0.0.0/8\"]\nlisten = [\"udp://*:32766\"]\n";
        assert_eq!(found(one), [open("udp://*:32767", "[[collector.allow]]")]);
        assert_eq!(
            found("[[collector.allow]]\nfrom = [\"10.0.0.0/8\"]\n"),
            Vec::<String>::new()
        );
        assert_eq!(
            found("[collector]\nlisten = [\"udp://127.0.0.1:1\", \"udp://[::1]:1\"]\n"),
            Vec::<String>::new()
        );
        let roles = "[aggregator]\nforward = [\"192.0.2.1:32767\"]\n[translator]\n[[translator.collectors]]\nexchange = \"127.0.0.1:1\"\n";
        let expected = [
            open("udp://*:32766", "[aggregator] allow"),
            open("0.0.0.0:40040", "[translator] allow"),
        ];
        assert_eq!(found(roles), expected);
        let allow = "allow = [\"10.0.0.0/8\"]\n";
        let closed = roles.replace("[translator]\n", &format!("{allow}[translator]\n{allow}"));
        assert_eq!(found(&closed), Vec::<String>::new());
    }

    #[test]
    fn what_a_manager_does_is_summed_up_and_what_it_cannot_do_is_a_warning() {
        let file = "[collector]\nenabled = false\n[manager]\n[[inventory.devices]]\nname = \"leaf1\"\naddress = \"10.0.0.1:8080\"\nports = 2\n\
            [[intents]]\nname = \"a\"\nwatch = [\"flow_path\"]\nat = { edges = [\"leaf*\", \"leaf7\"] }\n";
        let settings = Settings::parse(file, "h.toml").unwrap();
        let expected =
            "no device of the inventory has the name or label `leaf7` of the intent `a`; correct `at.edges`";
        assert_eq!(warnings(&settings), [expected]);
        assert!(
            summary(&settings).starts_with("ok: a manager of 1 device(s) with 1 intent(s), no collector, ")
        );
        let nothing = Settings::parse("[collector]\nenabled = false\n", "h.toml").unwrap();
        assert!(warnings(&nothing)[0].starts_with("`hopwise run` would do nothing: "));
        let missing = check_state_folder(Some(Path::new("/no-such-folder/state.sqlite")))
            .unwrap_err()
            .to_string();
        assert_eq!(
            missing,
            "there is no folder /no-such-folder for [manager] state; create it"
        );
        assert!(check_state_folder(Some(Path::new("state.sqlite"))).is_ok());
        assert!(check_state_folder(None).is_ok());
    }
}
