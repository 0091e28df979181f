//! `hopwise p4`: lists the included P4 programs, checks a pipeline map against a program's P4Info, and shows the table
//! entries that the manager would write over P4Runtime.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use detect::{Metric, Prefix};
use manager::device::{Filter, FilterAlgorithm, Mode, Rule, Rules, Watch};
use manager::{flows::FlowMatch, instruction};
use p4runtime::{
    binary,
    entry::{Content, Entry, Field, Key},
    map::{self, Map},
    message::P4Info,
    notation::Notation,
    program::{LocalSettings, Program, Report},
    programs::{INCLUDED, Included},
    translate::Entries,
};
use terminal::{Align, CliError, Table};

use super::check::{self, intents::bind_program};
use config::Settings;

/// List the P4 programs of hopwise, check a program, show the entries of roles
///
/// A program is a name that `list` shows, or a file with P4Info as text, which P4 compilers write.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise p4 list                          the programs
  hopwise p4 list int > int.p4info.txtpb   the P4Info of one
  hopwise p4 check my.p4info.txtpb --map my-map.toml
  hopwise p4 entries int --node 7 --sink 2 --collector 192.0.2.9:32766 --report-port 3 --report-source 192.0.2.7
  hopwise p4 entries int --node 7 --source 1 --watch 10.1.0.0/16 --sample 10
  hopwise p4 entries --config hopwise.toml --device agg1     of a device of a configuration")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// List the programs, or print the P4Info of one
    List {
        /// Print its P4Info as text
        #[arg(value_name = "PROGRAM")]
        name: Option<String>,
    },
    /// Check whether a pipeline map fits a program
    Check {
        #[command(flatten)]
        subject: Subject,
    },
    /// Show the entries that the manager would write
    ///
    /// To a program with the roles that the options name, or to a device of a configuration with its intents and settings.
    Entries {
        /// A name, or a file with P4Info as text
        #[arg(value_name = "PROGRAM", required_unless_present = "config")]
        program: Option<String>,
        /// A built-in pipeline map, or a file; default: that of the program
        #[arg(long, value_name = "MAP", conflicts_with = "config")]
        map: Option<String>,
        /// A configuration with [manager]
        #[arg(
            short,
            long,
            value_name = "FILE",
            conflicts_with = "program",
            requires = "device"
        )]
        config: Option<PathBuf>,
        /// The device of its inventory
        #[arg(long, value_name = "NAME", requires = "config")]
        device: Option<String>,
        #[command(flatten)]
        options: Box<RuleOptions>,
    },
}

/// P4 program and pipeline map named on the command line.
#[derive(clap::Args, Debug)]
struct Subject {
    /// A name, or a file with P4Info as text
    #[arg(value_name = "PROGRAM")]
    program: String,

    /// A built-in pipeline map, or a file; default: that of the program
    #[arg(long, value_name = "MAP")]
    map: Option<String>,
}

/// Rules to translate into entries, named on the command line.
#[derive(clap::Args, Debug)]
struct RuleOptions {
    /// Node id of the switch
    #[arg(long, default_value_t = 1)]
    node: u32,

    /// Ports from hosts: entering packets are compared with the watchlist
    #[arg(long, value_name = "PORT")]
    source: Vec<u32>,

    /// Ports to hosts: INT is removed from leaving packets and reported
    #[arg(long, value_name = "PORT")]
    sink: Vec<u32>,

    /// Watch the flows to these destinations
    #[arg(long, value_name = "PREFIX")]
    watch: Vec<Prefix>,

    /// Filter of these flows at the sink: noop, change, per_hop or per_flow with metric and threshold, as in
    /// per_flow:hop_latency:100000, or a rule, as in "rule:max(queue_occupancy) > 50 or loop"
    #[arg(long, requires = "watch", value_name = "ALGORITHM[:METRIC:THRESHOLD|:RULE]")]
    filter: Option<String>,

    /// Measure one packet of this many
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,

    /// Mode of measurement: md, mx, postcard or sf
    #[arg(long, default_value = "md")]
    mode: String,

    /// Instruction bits, 0 to 15; default: all that the map has
    #[arg(long, value_delimiter = ',', value_name = "BITS")]
    bits: Vec<u8>,

    /// Address and UDP port of the collector
    #[arg(long, value_name = "ADDRESS:PORT")]
    collector: Option<SocketAddr>,

    /// Port to which reports go
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    report_port: u32,

    /// Source address of reports
    #[arg(long, value_name = "ADDRESS", default_value = "192.0.2.1")]
    report_source: Ipv4Addr,
}

/// Runs `hopwise p4`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let (text, code) = match args.command {
        Command::List { name: None } => (list(), ExitCode::SUCCESS),
        Command::List { name: Some(name) } => (included(&name)?.text.to_owned(), ExitCode::SUCCESS),
        Command::Check { subject } => check(&subject)?,
        Command::Entries {
            config: Some(config),
            device,
            ..
        } => {
            let settings = Settings::load(Some(&config))?;
            (
                device_entries(&settings, &device.unwrap_or_default())?,
                ExitCode::SUCCESS,
            )
        }
        Command::Entries {
            program,
            map,
            options,
            ..
        } => {
            let (info, map) = load(&Subject {
                program: program.unwrap_or_default(),
                map,
            })?;
            (entries(&info, &map, &options)?, ExitCode::SUCCESS)
        }
    };
    terminal::print(&text)?;
    Ok(code)
}

fn list() -> String {
    let columns = [
        "program",
        "architecture",
        "tables",
        "actions",
        "registers",
        "map",
        "does",
    ];
    let mut table = Table::new(columns.map(|name| match name {
        "tables" | "actions" | "registers" => (name, Align::Right),
        _ => (name, Align::Left),
    }));
    for program in INCLUDED {
        let (arch, size) = program.size();
        table.row([
            program.name.to_owned(),
            arch,
            size.tables.to_string(),
            size.actions.to_string(),
            size.registers.0.to_string(),
            program.map.unwrap_or("-").to_owned(),
            program.about.to_owned(),
        ]);
    }
    table.render()
}

fn included(name: &str) -> Result<&'static Included, CliError> {
    let names = INCLUDED.map(|program| program.name).join(", ");
    Included::named(name)
        .ok_or_else(|| CliError::new(format!("there is no program `{name}`; give one of {names}")))
}

fn read(path: &str) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|error| {
        CliError::io(
            format!("cannot read {path}"),
            error,
            "give a name that `hopwise p4 list` shows, or a file",
        )
    })
}

/// Loads the P4Info and the pipeline map of a subject.
fn load(subject: &Subject) -> Result<(P4Info, Map), CliError> {
    let included = Included::named(&subject.program);
    let text = match included {
        Some(program) => program.text.to_owned(),
        None => read(&subject.program)?,
    };
    let info =
        binary::info(&text).map_err(|reason| CliError::new(format!("{}: {reason}", subject.program)))?;
    let included_map = included.and_then(|program| program.map);
    let name = subject.map.as_deref().or(included_map).ok_or_else(|| {
        CliError::new(format!(
            "{} has no pipeline map of its own; give --map",
            subject.program
        ))
    })?;
    let map = match map::shipped(name) {
        Some(text) => text.to_owned(),
        None => read(name)?,
    };
    let map = map::read(&map, name).map_err(|error| CliError::new(error.to_string()))?;
    Ok((info, map))
}

fn local_settings(node: u32, port: u32, source: Ipv4Addr) -> LocalSettings {
    // An example: the real addresses of the device and its next hop are in the manager's settings.
    const MAC: u64 = 0x0200_0000_0000;
    let report = Report {
        port,
        source,
        source_mac: MAC | u64::from(node),
        mac: MAC,
    };
    LocalSettings {
        node,
        report: Some(report),
        ..LocalSettings::default()
    }
}

/// Checks whether the map fits the program. Returns the capabilities or the problems, as text, and the exit code.
fn check(subject: &Subject) -> Result<(String, ExitCode), CliError> {
    let (info, map) = load(subject)?;
    let mut out = String::new();
    match Program::new(&map, &info, &local_settings(1, 1, Ipv4Addr::LOCALHOST)) {
        Ok(program) => {
            let capabilities = program.capabilities();
            if let Some(role) = map.role() {
                let role_name = role.name();
                let _ = writeln!(out, "The map fits the program.");
                let _ = writeln!(
                    out,
                    "role: {role_name}; its entries are those of [manager.p4runtime.NAME.{role_name}]"
                );
                return Ok((out, ExitCode::SUCCESS));
            }
            let modes: Vec<&str> = capabilities.modes.iter().map(|mode| mode.name()).collect();
            let _ = writeln!(out, "The map fits the program.");
            let _ = writeln!(out, "modes: {}", modes.join(", "));
            let _ = writeln!(out, "instructions: {}", instruction::names(capabilities.bits));
            let _ = writeln!(out, "entries of the watchlist: {}", capabilities.watch_entries);
            let filters: Vec<&str> = capabilities.filters.iter().map(|filter| filter.name()).collect();
            let _ = match filters.is_empty() {
                true => writeln!(out, "filters: none"),
                false => writeln!(
                    out,
                    "filters: {}; entries: {}",
                    filters.join(", "),
                    capabilities.filter_entries
                ),
            };
            let _ = writeln!(
                out,
                "IPv6: {}",
                if capabilities.matches.ipv6 { "yes" } else { "no" }
            );
            Ok((out, ExitCode::SUCCESS))
        }
        Err(problems) => {
            problems.iter().for_each(|problem| {
                let _ = writeln!(out, "{problem}");
            });
            Ok((out, ExitCode::FAILURE))
        }
    }
}

/// Builds the rules in the order in which the manager adds them: whatever reports before whatever inserts INT.
fn rules(options: &RuleOptions, all: instruction::Bits) -> Result<Vec<Rule>, CliError> {
    let mode = Mode::ALL.into_iter().find(|mode| mode.name() == options.mode);
    let mode = mode.ok_or_else(|| {
        CliError::new(format!(
            "there is no mode `{}`; give md, mx, postcard or sf",
            options.mode
        ))
    })?;
    if let Some(bit) = options.bits.iter().find(|bit| **bit > 15) {
        return Err(CliError::new(format!(
            "there is no instruction bit {bit}; give 0 to 15"
        )));
    }
    let requested_bits = options
        .bits
        .iter()
        .fold(0, |bits, bit| bits | instruction::bit(*bit));
    let bits = if requested_bits == 0 { all } else { requested_bits };
    let mut rules: Vec<Rule> = options.collector.map(Rule::Session).into_iter().collect();
    rules.extend(options.sink.iter().map(|port| Rule::Sink(*port)));
    rules.extend(instruction::numbers(bits).map(Rule::Instruction));
    if let Some(text) = &options.filter {
        let filter = filter(text).ok_or_else(|| {
            CliError::new(format!(
                "there is no filter `{text}`; give noop, change, per_hop:METRIC:THRESHOLD, per_flow:METRIC:THRESHOLD or rule:RULE"
            ))
        })?;
        rules.extend(options.watch.iter().map(|dst| {
            let key = FlowMatch {
                dst: Some(*dst),
                ..FlowMatch::default()
            };
            Rule::Filter(Arc::new(Filter {
                key,
                ..filter.clone()
            }))
        }));
    }
    rules.extend(options.source.iter().map(|port| Rule::Source(*port)));
    for dst in &options.watch {
        let key = FlowMatch {
            dst: Some(*dst),
            ..FlowMatch::default()
        };
        let sample = options.sample;
        rules.push(Rule::Watch(Arc::new(Watch {
            key,
            mode,
            bits,
            hops: 16,
            sample,
            drops: true,
        })));
    }
    Ok(rules)
}

/// Parses the option `--filter` as a filter of all flows; `None` if it is invalid.
fn filter(text: &str) -> Option<Filter> {
    if let Some(rule) = text.strip_prefix("rule:") {
        return Some(Filter {
            key: FlowMatch::default(),
            algorithm: FilterAlgorithm::Rule,
            metric: Metric::FlowPath,
            threshold: 0,
            rule: Some(Arc::from(rule)),
        });
    }
    let mut parts = text.split(':');
    let algorithm =
        FilterAlgorithm::from_name(parts.next()?).filter(|algorithm| *algorithm != FilterAlgorithm::Rule)?;
    let needs_threshold = matches!(algorithm, FilterAlgorithm::PerHop | FilterAlgorithm::PerFlow);
    let (metric, threshold) = match needs_threshold {
        true => (Metric::from_name(parts.next()?)?, parts.next()?.parse().ok()?),
        false => (Metric::FlowPath, 0),
    };
    parts.next().is_none().then(|| Filter {
        key: FlowMatch::default(),
        algorithm,
        metric,
        threshold,
        rule: None,
    })
}

/// Lists the entries of a device of a configuration, in P4Info names.
fn device_entries(settings: &Settings, name: &str) -> Result<String, CliError> {
    let inventory = manager::inventory::from_settings(&settings.inventory);
    let known_device = inventory.devices().find(|device| device.name == name);
    let device = known_device
        .ok_or_else(|| CliError::new(format!("[inventory] has no device `{name}`; correct the name")))?;
    let p4_settings = settings
        .manager
        .as_ref()
        .and_then(|manager| manager.p4runtime.get(name));
    let p4_settings = p4_settings.ok_or_else(|| {
        CliError::new(format!(
            "`{name}` has no [manager.p4runtime.{name}]: it is not a P4 switch"
        ))
    })?;
    let unknown = format!(
        "`{}` is not the map of a hopwise program, so its entries are unknown until `{name}` answers",
        p4_settings.map
    );
    let program = bind_program(p4_settings, device)
        .map_err(|problem| CliError::new(problem.unwrap_or_else(|| unknown.clone())))?;
    let included = INCLUDED
        .iter()
        .find(|program| program.map == Some(&*p4_settings.map))
        .ok_or_else(|| CliError::new(unknown))?;
    let rules: Rules = match program.role() {
        Some(_) => [Rule::Forwarding].into(),
        None => check::intents::rules(settings, device.node).ok_or_else(|| {
            CliError::new(format!(
                "the rules of `{name}` are unknown until all devices of the domain answer"
            ))
        })?,
    };
    list_entries(&program, &included.info().map_err(CliError::new)?, &rules)
}

fn entries(info: &P4Info, map: &Map, options: &RuleOptions) -> Result<String, CliError> {
    if let Some(role) = map.role() {
        let role_name = role.name();
        return Err(CliError::new(format!(
            "the entries of an {role_name} are those of its settings; give --config FILE --device NAME, with [manager.p4runtime.NAME.{role_name}]"
        )));
    }
    let program = Program::new(
        map,
        info,
        &local_settings(options.node, options.report_port, options.report_source),
    )
    .map_err(|problems| CliError::new(format!("the map does not fit: {}", problems.join("; "))))?;
    let rules = rules(options, program.capabilities().bits)?;
    list_entries(&program, info, &rules)
}

/// Encodes rules as entries and lists them, one per line.
fn list_entries<'a>(
    program: &Program,
    info: &P4Info,
    rules: impl IntoIterator<Item = &'a Rule>,
) -> Result<String, CliError> {
    let names = Names::new(info);
    let mut entries = Vec::new();
    for entry in program
        .encode_all(rules, &Entries::new())
        .map_err(CliError::new)?
    {
        // Several rules may share an entry.
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    Ok(entries.iter().map(|entry| names.line(entry)).collect())
}

/// Names of a P4 program's tables and actions by P4Info id.
struct Names {
    tables: BTreeMap<u32, NamedObject>,
    actions: BTreeMap<u32, NamedObject>,
}

/// Table with the fields of its key, or action with its parameters.
#[derive(Clone, Default)]
struct NamedObject {
    name: String,
    fields: BTreeMap<u32, NamedField>,
}

/// Key field or action parameter with the notation of its values.
#[derive(Clone)]
struct NamedField {
    name: String,
    notation: Notation,
}

impl NamedField {
    fn new(name: &str, bits: i32) -> Self {
        Self {
            name: name.to_owned(),
            notation: Notation::new(name, bits),
        }
    }

    fn field(&self, field: &Field) -> String {
        format!("{} {}", self.name, self.notation.field(field))
    }
}

impl Names {
    fn new(info: &P4Info) -> Self {
        let tables = info.tables.iter().filter_map(|table| {
            let fields = table
                .match_fields
                .iter()
                .map(|field| (field.id, NamedField::new(&field.name, field.bitwidth)))
                .collect();
            let preamble = table.preamble.as_ref()?;
            let name = preamble.alias.clone();
            Some((preamble.id, NamedObject { name, fields }))
        });
        let actions = info.actions.iter().filter_map(|action| {
            let fields = action
                .params
                .iter()
                .map(|param| (param.id, NamedField::new(&param.name, param.bitwidth)))
                .collect();
            let preamble = action.preamble.as_ref()?;
            let name = preamble.alias.clone();
            Some((preamble.id, NamedObject { name, fields }))
        });
        Self {
            tables: tables.collect(),
            actions: actions.collect(),
        }
    }

    fn table_name(&self, id: &u32) -> &str {
        self.tables.get(id).map_or("?", |table| table.name.as_str())
    }

    /// Formats an entry as one line.
    fn line(&self, entry: &Entry) -> String {
        let mut line = match &entry.key {
            Key::Clone(session) => format!("clone session {session}"),
            Key::Group(group) => format!("multicast group {group}"),
            Key::Default(id) => format!("{}: default entry", self.table_name(id)),
            Key::Table {
                table: id,
                priority,
                fields,
            } => {
                let table = self.tables.get(id);
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(id, value)| match table.and_then(|table| table.fields.get(id)) {
                        Some(named) => named.field(value),
                        None => format!("? {value}"),
                    })
                    .collect();
                let key = if fields.is_empty() {
                    "every packet".to_owned()
                } else {
                    fields.join(", ")
                };
                let priority = if *priority == 0 {
                    String::new()
                } else {
                    format!(", priority {priority}")
                };
                format!("{}: {key}{priority}", self.table_name(id))
            }
        };
        match &entry.content {
            Content::Action(id, params) => {
                let NamedObject { name, fields } = self.actions.get(id).cloned().unwrap_or_default();
                let params: Vec<String> = params
                    .iter()
                    .map(|(id, value)| match fields.get(id) {
                        Some(named) => format!("{} {}", named.name, named.notation.value(value)),
                        None => format!("? {value}"),
                    })
                    .collect();
                let _ = writeln!(line, " -> {name}({})", params.join(", "));
            }
            Content::Copies { replicas, .. } if matches!(entry.key, Key::Group(_)) => {
                let copies: Vec<String> = replicas
                    .iter()
                    .map(|copy| format!("port {} instance {}", copy.port, copy.instance))
                    .collect();
                let _ = writeln!(line, " -> {}", copies.join(", "));
            }
            Content::Copies {
                replicas, truncate, ..
            } => {
                let ports: Vec<String> = replicas.iter().map(|copy| copy.port.to_string()).collect();
                let limit_text = if *truncate == 0 {
                    String::new()
                } else {
                    format!(", at most {truncate} bytes")
                };
                let _ = writeln!(line, " -> port {}{limit_text}", ports.join(", "));
            }
            Content::Other => line.push('\n'),
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use p4runtime::entry::Bytes;

    #[derive(clap::Parser, Debug)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// A map of three tables.
    const MAP: &str = r#"
program = "int"
modes = ["md"]
bits = [0, 2]
dscp = 23
l4_checksum = "update"

[[session]]
clone_session = 500
port = "report_port"

[[sink]]
table = "sink_port"
match = { egress_port = "port" }
action = "to_edge"

[[source]]
table = "source_port"
match = { ingress_port = "port" }
action = "from_edge"

[[watch]]
table = "watchlist_v4"
family = "ipv4"
match = { ipv4_dst = "dst", l4_dport = "dport" }
action = "watch_md_21"
params = { remaining_hops = "hops", instructions = "bits", words = "words", drops = 1, sample = "sample", sampler = "sampler" }
"#;

    #[test]
    fn a_filter_needs_flows() {
        let words = "p4 entries int --filter rule:nonsense(";
        let error = Line::try_parse_from(words.split(' ')).unwrap_err().to_string();
        assert!(error.contains("--watch"), "{error}");
    }

    #[test]
    fn addresses_are_written_as_such() {
        let bytes = |number: u128| Bytes::from(number);
        let mac = NamedField::new("src_mac", 48)
            .notation
            .value(&bytes(0x0200_0000_0001));
        let to = NamedField::new("ipv6_dst", 128);
        let v6 = to.field(&Field::Ternary(bytes(0xfd00 << 112), bytes(!0 << 64)));
        let odd =
            NamedField::new("ipv4_dst", 32).field(&Field::Ternary(bytes(0x0a00_0001), bytes(0xff00_00ff)));
        assert_eq!(
            (mac.as_str(), v6.as_str()),
            ("02:00:00:00:00:01", "ipv6_dst fd00::/64")
        );
        assert_eq!(odd, "ipv4_dst 10.0.0.1 & 255.0.0.255");
        assert_eq!(
            NamedField::new("threshold", 32).notation.value(&bytes(5000)),
            "5000"
        );
    }

    #[test]
    fn entries_are_those_of_the_map() {
        let map = map::read(MAP, "map.toml").unwrap();
        let words = "p4 entries int --sink 2 --source 1 --watch 10.1.0.0/16 --collector 192.0.2.9:32766";
        let Command::Entries { program, options, .. } = Line::parse_from(words.split(' ')).args.command
        else {
            panic!()
        };
        let info = Included::named(&program.unwrap()).unwrap().info().unwrap();
        let text = entries(&info, &map, &options).unwrap();
        let lines = "clone session 500 -> port 0
sink_port: egress_port 2 -> to_edge()
source_port: ingress_port 1 -> from_edge()
watchlist_v4: ipv4_dst 10.1.0.0/16, priority 18 -> watch_md_21(remaining_hops 16, instructions 40960, words 2, drops 1, sample 1, sampler 0)
";
        assert_eq!(text, lines);
        let words = "p4 entries int --watch 10.1.0.0/16 --filter per_hop:hop_latency:5000";
        let Command::Entries { options, .. } = Line::parse_from(words.split(' ')).args.command else {
            panic!()
        };
        let map = map::read(map::shipped("hopwise-int").unwrap(), "hopwise-int").unwrap();
        let text = entries(&info, &map, &options).unwrap();
        let line = "filter_v4: ipv4_dst 10.1.0.0/16, priority 18 -> filter_per_hop(filter 1, metric 2, threshold 5000)";
        assert!(text.lines().any(|entry| entry == line), "{text}");
        let words = [
            "p4",
            "entries",
            "int",
            "--watch",
            "10.1.0.0/16",
            "--filter",
            "rule:max(queue_occupancy) > 50 or loop",
        ];
        let Command::Entries { options, .. } = Line::parse_from(words).args.command else {
            panic!()
        };
        let text = entries(&info, &map, &options).unwrap();
        for line in [
            "filter_term_0: filter 7 -> filter_term(subject 2, aggregate 0, node 4294967295, holds_if 2, value 1, hops_if 4, hops 0, clauses 1)",
            "filter_term_1: filter 7 -> filter_term(subject 4, aggregate 1, node 4294967295, holds_if 1, value 50, hops_if 4, hops 0, clauses 1)",
            "filter_rules: filter 7, clauses 1 & 1, priority 1 -> filter_fires()",
            "filter_v4: ipv4_dst 10.1.0.0/16, priority 18 -> filter_rule(filter 7)",
        ] {
            assert!(text.lines().any(|entry| entry == line), "{line}\n{text}");
        }
        let words = "p4 entries int --watch 10.1.0.0/16 --watch 10.2.0.0/16 --sample 10 --mode mx";
        let Command::Entries { options, .. } = Line::parse_from(words.split(' ')).args.command else {
            panic!()
        };
        let text = entries(&info, &map, &options).unwrap();
        for line in ["sample 10, sampler 0)", "sample 10, sampler 1)"] {
            assert!(text.contains(line), "{text}");
        }
        for wrong in [
            "per_hop",
            "per_hop:hop_latency",
            "noop:hop_latency:1",
            "rule",
            "per_flow:latency:1",
        ] {
            assert_eq!(filter(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn entries_of_a_device_are_those_of_its_configuration() {
        let file = Settings::parse(check::intents::tests::OUTSIDE, "h.toml").unwrap();
        let text = device_entries(&file, "agg1").unwrap();
        let lines = "destination: destination 0 -> send(port 4, src_mac 02:00:00:00:00:01, dst_mac 02:00:00:00:01:00, src_ip 192.0.2.1, dst_ip 192.0.2.100, dst_port 32767)
clone session 501 -> port 1
aggregator: default entry -> aggregate(kind 3, r 3, timer 1000, aggregator 11, registers 15, destinations 1, by_node 0)
postcard_port: udp_dport 32766 -> accept_postcards()
";
        assert_eq!(text, lines);
        let text = device_entries(&file, "dta1").unwrap();
        for line in [
            "multicast group 2 -> port 3 instance 1, port 3 instance 2\n",
            "clone session 513 -> port 1\n",
            "reporter: collector 0, reporter 7 -> track(index 0, address 167772167)\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let switch = device_entries(&file, "s1").unwrap();
        assert!(
            switch.contains("route_v4: ipv4_dst 10.0.1.1/32 -> next_hop(port 1"),
            "{switch}"
        );
        assert!(switch.contains("watchlist_v4: "), "{switch}");
        assert!(
            device_entries(&file, "x")
                .unwrap_err()
                .to_string()
                .contains("has no device `x`")
        );
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        let subject = Subject {
            program: "aggregator".to_owned(),
            map: None,
        };
        let line = Line::parse_from(["p4", "entries", "aggregator"]);
        let Command::Entries { options, .. } = line.args.command else {
            panic!()
        };
        let refusals = [
            (
                included("x").err(),
                "there is no program `x`; give one of int, sf, aggregator, dta_reporter, dta_translator",
            ),
            (
                load(&subject)
                    .and_then(|(info, map)| entries(&info, &map, &options))
                    .err(),
                "the entries of an aggregator are those of its settings; give --config FILE --device NAME, with [manager.p4runtime.NAME.aggregator]",
            ),
        ];
        for (error, message) in refusals {
            assert_eq!(error.map(|error| error.to_string()), Some(message.to_owned()));
        }
    }
}
