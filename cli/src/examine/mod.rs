//! Checks whether this machine meets the requirements of a configuration. [`nic::device`] reads the facts; this module judges
//! each, gives the reason and, if there is one, the command that fixes it.
//!
//! `hopwise doctor` prints all checks; `hopwise run` logs the failed ones when it starts.

mod interface;
mod machine;
mod memory;
mod rx_path;
#[cfg(test)]
mod tests;

use collect_role::settings::{CollectorSettings, XdpMode};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nic::bpf::{LoadOptions, Object};
use nic::device::{self, Facts, Machine};
use nic::receive::RxPath;

use collect_role::input::device::{memory as frames_memory, rx_paths};
use config::Settings;
use memory::Writer;
pub(crate) use rx_path::Expected;
use settings::listen::Listen;
use terminal::CliError;

/// Explanation of facts that are visible only in the initial network namespace.
const INITIAL_NAMESPACE_ONLY: &str =
    "The kernel shows it only in the network namespace that the machine started with.";

wire::named! {
    /// Verdict on a fact; the worst is last.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub(crate) enum Verdict, name {
        /// The fact meets the requirement.
        Ok => "ok",
        /// The kernel does not reveal the fact.
        Unknown => "unknown",
        /// It works, but slower than it could.
        Suboptimal => "suboptimal",
        /// The input does not work, or not by the requested receive path.
        Blocking => "blocking",
    }
}

/// Fact about the machine with its verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Check {
    /// Stable name of the check.
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    /// The fact in words.
    pub(crate) finding: String,
    /// Reason that the fact matters, in a sentence.
    pub(crate) reason: String,
    /// Shell command that fixes the problem, if there is one.
    pub(crate) fix: Option<String>,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>, reason: &str) -> Self {
        Self {
            name,
            verdict: Verdict::Ok,
            finding: finding.into(),
            reason: reason.to_owned(),
            fix: None,
        }
    }

    fn with_reason(self, reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            ..self
        }
    }

    fn with(self, verdict: Verdict) -> Self {
        Self { verdict, ..self }
    }

    fn fixed_by(self, command: impl Into<String>) -> Self {
        Self {
            fix: Some(command.into()),
            ..self
        }
    }

    fn with_finding(self, finding: impl Into<String>) -> Self {
        Self {
            finding: finding.into(),
            ..self
        }
    }

    fn unknown(name: &'static str, reason: &str) -> Self {
        Self::ok(name, "unknown", reason).with(Verdict::Unknown)
    }
}

/// Quotes a name so that a shell reads it as one word.
fn quoted(name: &str) -> String {
    let is_plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.@:%+".contains(c));
    if !name.is_empty() && is_plain {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', "'\\''"))
}

/// Input with the sockets and the interface that it opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Input {
    /// Address of the input as in the configuration.
    pub(crate) listen: String,
    /// Interface of an `xdp://` input.
    pub(crate) interface: Option<String>,
    /// Addresses of the UDP sockets that the input opens.
    sockets: Vec<SocketAddr>,
    /// True if only listed senders may report; `None` for loopback inputs, which are not checked.
    restricted: Option<bool>,
    /// True if the user requested the input; others are listed for information.
    pub(crate) requested: bool,
}

impl Input {
    /// Creates an input that reads an interface by AF_XDP.
    pub(crate) fn interface(name: &str, requested: bool) -> Self {
        Self {
            listen: format!("xdp://{name}"),
            interface: Some(name.to_owned()),
            sockets: Vec::new(),
            restricted: None,
            requested,
        }
    }

    fn new(listen: &Listen, collector: &CollectorSettings) -> Self {
        let sockets = match listen {
            Listen::Udp(address) => vec![*address],
            Listen::UdpAny(port) => on_every_address(&[*port]),
            // These sockets receive packets that the XDP program passes to the network stack, such as fragments.
            Listen::Xdp { ports, .. } => on_every_address(ports),
        };
        let interface = listen.interface().map(str::to_owned);
        let restricted = (!listen.is_loopback()).then(|| collector.is_restricted(listen));
        Self {
            listen: listen.to_string(),
            interface,
            sockets,
            restricted,
            requested: true,
        }
    }
}

fn on_every_address(ports: &[u16]) -> Vec<SocketAddr> {
    let wildcard4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let wildcard6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let families = if has_ipv6() {
        vec![wildcard4, wildcard6]
    } else {
        vec![wildcard4]
    };
    ports
        .iter()
        .flat_map(|port| {
            families
                .iter()
                .map(|wildcard| SocketAddr::from((*wildcard, *port)))
        })
        .collect()
}

fn has_ipv6() -> bool {
    UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// Requirements of a configuration on the machine.
#[derive(Clone, Debug)]
pub(crate) struct Requirements {
    pub(crate) inputs: Vec<Input>,
    /// Network namespace of the inputs' sockets, if not this process's.
    namespace: Option<String>,
    /// Receive buffer per socket, bytes.
    receive_buffer: u64,
    /// Options that determine the memory for the frames of an interface.
    memory: nic::xdp::Options,
    /// True if the configuration has `mode = "kernel"`: detection in the kernel.
    kernel_mode: bool,
    /// Fastest receive path that the configuration allows.
    best: RxPath,
    /// Slowest receive path that the configuration accepts.
    lowest: RxPath,
    /// Roles that write collector memory other than by a socket.
    writers: Vec<Writer>,
}

impl Requirements {
    /// Derives the requirements from a configuration.
    pub(crate) fn new(settings: &Settings) -> Self {
        let collector = &settings.collector;
        let (best, lowest) = rx_paths(&collector.xdp);
        Self {
            inputs: collector
                .listen
                .iter()
                .map(|listen| Input::new(listen, collector))
                .collect(),
            namespace: collector.namespace.clone(),
            receive_buffer: collector.receive_buffer.0,
            memory: frames_memory(&collector.xdp),
            kernel_mode: collector.xdp.mode == XdpMode::Kernel,
            best,
            lowest,
            writers: Writer::from_settings(settings),
        }
    }
}

/// Intrusive checks, each enabled on request.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Depth {
    /// Attach an XDP program and open AF_XDP sockets for a moment.
    pub(crate) try_rx_paths: bool,
    /// Open the inputs' own UDP sockets for a moment.
    pub(crate) try_ports: bool,
}

/// Input with the facts about its interface and all its checks.
#[derive(Clone, Debug)]
pub(crate) struct Examined {
    pub(crate) input: Input,
    /// Facts about the interface, if it exists.
    pub(crate) facts: Option<Facts>,
    /// Expected receive path; `None` if the interface does not exist.
    pub(crate) expected: Option<Expected>,
    pub(crate) checks: Vec<Check>,
}

/// Results for the machine and all inputs.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) checks: Vec<Check>,
    pub(crate) inputs: Vec<Examined>,
}

impl Report {
    /// Returns the worst verdict on the machine and on the requested inputs.
    pub(crate) fn verdict(&self) -> Verdict {
        let requested = self.inputs.iter().filter(|examined| examined.input.requested);
        let checks = self
            .checks
            .iter()
            .chain(requested.flat_map(|examined| &examined.checks));
        checks.map(|check| check.verdict).max().unwrap_or(Verdict::Ok)
    }
}

/// Examines the machine and all inputs.
///
/// # Errors
/// The kernel does not answer a request for facts.
pub(crate) fn examine(requirements: &Requirements, depth: Depth) -> Result<Report, CliError> {
    let machine = device::machine();
    let mut inputs = Vec::new();
    for input in &requirements.inputs {
        let facts = match &input.interface {
            Some(name) => device::facts(name).map_err(|error| CliError::new(error.to_string()))?,
            None => None,
        };
        inputs.push(examine_input(requirements, input, facts, &machine, depth));
    }
    let mut checks = machine::checks(requirements, &machine, &inputs);
    if depth.try_rx_paths && inputs.iter().any(|examined| examined.facts.is_some()) {
        checks.push(program("steering_program", xdp::STEER));
        checks.extend(
            requirements
                .kernel_mode
                .then(|| program("detection_program", xdp::DETECT)),
        );
    }
    for writer in &requirements.writers {
        let facts = writer.interface().map(device::facts).transpose();
        let facts = facts.map_err(|error| CliError::new(error.to_string()))?.flatten();
        let program = (depth.try_rx_paths && writer.interface().is_some())
            .then(|| program("responder_program", xdp::RDMA));
        let found = memory::MemoryFacts {
            facts,
            devices: device::rdma_devices(),
            library: nic::verbs::check_library(),
        };
        inputs.push(memory::examine(writer, &machine, found, program));
    }
    Ok(Report {
        machine,
        checks,
        inputs,
    })
}

fn examine_input(
    requirements: &Requirements,
    input: &Input,
    facts: Option<Facts>,
    machine: &Machine,
    depth: Depth,
) -> Examined {
    let mut checks = Vec::new();
    let expected = match (&input.interface, &facts) {
        (None, _) => Some(Expected::default()),
        (Some(name), None) => {
            checks.push(interface::missing(name));
            None
        }
        (Some(_), Some(facts)) => {
            let expected = match depth.try_rx_paths {
                true => rx_path::probe(facts, requirements.best),
                false => rx_path::predict(facts, machine, requirements.best),
            };
            checks.extend(interface::checks(facts, machine));
            checks.extend(rx_path::check_lowest(&expected, requirements.lowest));
            Some(expected)
        }
    };
    checks.extend(input.restricted.map(senders));
    checks.extend(match &requirements.namespace {
        None => sockets(&input.sockets, depth.try_ports),
        Some(name) => nic::netns::within(name, || sockets(&input.sockets, depth.try_ports))
            .unwrap_or_else(|error| vec![namespace_check(name, &error)]),
    });
    Examined {
        input: input.clone(),
        facts,
        expected,
        checks,
    }
}

/// Checks which senders may report to an input that other machines can reach.
fn senders(restricted: bool) -> Check {
    let why = "Reports are not authenticated: anyone who can reach the listener can report any flow, and any loss of any node. Name the senders in \
               [[collector.allow]], or listen on a loopback address.";
    match restricted {
        true => Check::ok("senders", "those of [[collector.allow]]", why),
        false => Check::ok("senders", "everyone", why).with(Verdict::Suboptimal),
    }
}

/// Checks that the kernel accepts the programs and maps of an object file. They are removed at once.
fn program(name: &'static str, object: &[u8]) -> Check {
    let why = "The kernel's verifier proves that a program terminates and accesses only its own memory; older verifiers accept fewer programs.";
    match Object::load(object, &LoadOptions::default()) {
        Ok(_) => Check::ok(name, "accepted by the kernel", why),
        // The verifier's error has many lines; the log contains all of them.
        Err(error) => {
            Check::ok(name, error.to_string().lines().next().unwrap_or_default(), why).with(Verdict::Blocking)
        }
    }
}

fn namespace_check(name: &str, error: &nic::Error) -> Check {
    let why = format!(
        "The configuration opens the sockets in the network namespace {name} ([collector] namespace); entering it requires root."
    );
    Check::ok("namespace", error.to_string(), &why)
        .with(Verdict::Blocking)
        .fixed_by("ip netns list")
}

/// Checks that the addresses belong to this machine and, with `try_ports`, that the UDP ports are free.
fn sockets(addresses: &[SocketAddr], try_ports: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    for address in addresses {
        if !address.ip().is_unspecified() && UdpSocket::bind((address.ip(), 0)).is_err() {
            let why =
                "Sockets can be opened only on addresses of this machine; 0.0.0.0 and [::] mean all of them.";
            let check = Check::ok("address", format!("{} is not of this machine", address.ip()), why);
            checks.push(check.with(Verdict::Blocking).fixed_by("ip -br address"));
        } else if try_ports {
            checks.push(port(*address));
        }
    }
    checks
}

fn port(address: SocketAddr) -> Check {
    let why = "Two programs cannot listen on one port; another hopwise may be running.";
    match UdpSocket::bind(address) {
        Ok(_) => Check::ok("port", format!("{address} is free"), why),
        Err(error) => Check::ok("port", format!("{address}: {error}"), why)
            .with(Verdict::Blocking)
            .fixed_by(format!("ss -ulpn 'sport = :{}'", address.port())),
    }
}

/// Returns the interfaces that could receive reports: hardware that is up.
pub(crate) fn candidates() -> Vec<Input> {
    let names = device::interfaces().unwrap_or_default();
    let facts = names.iter().filter_map(|name| device::facts(name).ok().flatten());
    let hardware = facts.filter(|facts| facts.up && facts.kind.is_none() && facts.name != "lo");
    hardware
        .map(|facts| Input::interface(&facts.name, false))
        .collect()
}

/// Logs the failed checks of a configuration when hopwise starts.
#[allow(clippy::cognitive_complexity, reason = "what the log's macros expand to")]
pub fn log_at_start(settings: &Settings) {
    let requirements = Requirements::new(settings);
    let report = match examine(&requirements, Depth::default()) {
        Ok(report) => report,
        Err(error) => return tracing::warn!(%error, "cannot examine this machine"),
    };
    // Both are logged elsewhere: the first by each socket, the second by the memory role.
    let logged = [machine::RECEIVE_BUFFER, memory::EXCHANGE_SECRET];
    let machine = report.checks.iter().filter(|check| !logged.contains(&check.name));
    let machine = machine.map(|check| ("machine", check));
    let inputs = report.inputs.iter();
    let inputs = inputs.flat_map(|found| {
        found
            .checks
            .iter()
            .map(|check| (found.input.listen.as_str(), check))
    });
    let inputs = inputs.filter(|(_, check)| !logged.contains(&check.name));
    for (
        of,
        Check {
            name,
            verdict,
            finding,
            reason,
            fix,
        },
    ) in machine.chain(inputs)
    {
        let fix = fix.as_deref().unwrap_or("see `hopwise doctor`");
        match verdict {
            Verdict::Ok | Verdict::Unknown => {}
            Verdict::Suboptimal => {
                tracing::info!(of, check = name, found = finding, reason, fix, "not optimal")
            }
            Verdict::Blocking => tracing::warn!(of, check = name, found = finding, reason, fix, "blocking"),
        }
    }
}
