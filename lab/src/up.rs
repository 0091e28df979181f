//! Creates a lab: executes the plan, writes the configurations, starts the processes, and waits until all of them answer and,
//! in a managed lab, the manager has configured the switches. On failure it removes what it has created.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io::ErrorKind, os::unix::process::CommandExt};

use super::down::{self, ip};
use super::plan::{MANAGEMENT, Step, namespace, steps};
use super::remote::{COLLECTOR_FILE, Lab};
use super::state::{self, Directory, State, TOPOLOGY_FILE};
use super::{bmv2, configs, load, managed};
use super::{conditions::Conditions, topology::Topology};
use terminal::{CliError, programs};

/// Default address of the collector's API and web page; falls back to a free port.
pub(crate) const DEFAULT_API: ([u8; 4], u16) = ([127, 0, 0, 1], 8080);
/// Maximum wait for all processes to answer. One that has ended is noticed at once; one that still runs on a busy machine may
/// need longer than a minute.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between two polls of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of log lines that are shown when a process fails.
const LOG_LINES: usize = 12;

/// Result of creating a lab.
#[derive(Debug)]
pub(crate) struct CreatedLab {
    pub(crate) lab: Lab,
    /// True if the web page is built into the program `hopwise`.
    pub(crate) has_web_page: bool,
    /// Address that the API was to have, and which another program uses.
    pub(crate) address_in_use: Option<SocketAddr>,
}

/// Address of the collector's API, read from its log.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ApiAddress {
    url: String,
    /// True if the program contains the web page.
    has_web_page: bool,
}

impl ApiAddress {
    /// Parses a line of the log; `None` if it does not announce the API.
    fn read(line: &str) -> Option<Self> {
        let (fields, address) = line.split_once("url=http://")?;
        let address = address.split_whitespace().next().unwrap_or_default();
        Some(Self {
            url: format!("http://{}", address.trim_end_matches('/')),
            has_web_page: fields.contains("ui=true"),
        })
    }
}

/// Finds the program `hopwise`, which all processes of a lab except BMv2 run.
fn hopwise() -> Result<PathBuf, CliError> {
    programs::find("hopwise").ok_or_else(|| {
        CliError::new(
            "a lab needs the program hopwise, which is neither beside this one nor in PATH; install the package hopwise, \
             or build it with `make build`",
        )
    })
}

/// Creates the lab of a topology file and waits until all processes answer. On failure, removes everything that it created.
///
/// # Errors
/// The file is invalid, a lab of this name exists, or the lab cannot be created.
pub(crate) fn up(file: &Path, api: Option<SocketAddr>) -> Result<CreatedLab, CliError> {
    let topology = load::load(file)?;
    hopwise()?;
    check_requirements()?;
    if topology.has_bmv2() {
        bmv2::program(&topology)?;
    }
    let directory = Directory::for_lab(&topology.name);
    if !state::namespaces(&topology.name).is_empty() {
        return Err(state::already_exists(&topology.name));
    }
    let _lock = directory.create()?;
    create(&topology, &directory, file, api).map_err(|error| match down::remove(&directory) {
        Ok(_) => CliError::new(format!("{error}\nNothing was left behind.")),
        Err(removal_error) => CliError::new(format!("{error}\nAnd it cannot be removed: {removal_error}")),
    })
}

/// Checks this process's capabilities and that `ip` can be executed.
fn check_requirements() -> Result<(), CliError> {
    let capabilities = nic::capabilities::current().map_err(|error| CliError::new(error.to_string()))?;
    let needed = [
        nic::capabilities::Cap::NET_ADMIN,
        nic::capabilities::Cap::SYS_ADMIN,
        nic::capabilities::Cap::NET_RAW,
    ];
    if let Some(missing) = needed.into_iter().find(|cap| !capabilities.effective.has(*cap)) {
        return Err(CliError::new(format!(
            "a lab consists of network namespaces, which need root ({} is missing); use sudo",
            missing.name()
        )));
    }
    ip(&["-V"])
}

/// Creates the network and starts the processes. The caller removes the lab if this fails.
fn create(
    topology: &Topology,
    directory: &Directory,
    file: &Path,
    api: Option<SocketAddr>,
) -> Result<CreatedLab, CliError> {
    let requested = api.or_else(|| configs::configured_api(topology));
    let requested = requested.unwrap_or(DEFAULT_API.into());
    let listen = free_address(requested);
    let settings = configs::collector(topology, listen, directory.path(), &Conditions::default());
    let text = fs::read(file)
        .map_err(|error| CliError::io(format!("cannot read {}", file.display()), error, "try again"))?;
    directory.write(TOPOLOGY_FILE, &text)?;
    directory.write(COLLECTOR_FILE, settings.as_bytes())?;
    for (index, switch) in topology
        .switches
        .iter()
        .enumerate()
        .filter(|(index, _)| !topology.is_bmv2(*index))
    {
        directory.write(
            &format!("{}.toml", switch.name),
            configs::switch(topology, index, &Conditions::default()).as_bytes(),
        )?;
    }
    if let Some(text) = configs::aggregator(topology) {
        directory.write("aggregator.toml", text.as_bytes())?;
    }
    if let Some(text) = configs::translator(topology) {
        directory.write("translator.toml", text.as_bytes())?;
    }
    for step in steps(topology) {
        execute(&step)?;
    }
    let mut children = vec![StartedProcess::new(directory, "collector", None)?];
    for index in 0..topology.switches.len() {
        children.push(StartedProcess::switch(directory, topology, index)?);
    }
    if topology.file.aggregator.is_some() {
        let namespace = namespace(&topology.name, MANAGEMENT);
        children.push(StartedProcess::new(directory, "aggregator", Some(&namespace))?);
    }
    if topology.file.translator.is_some() {
        let namespace = namespace(&topology.name, MANAGEMENT);
        children.push(StartedProcess::new(directory, "translator", Some(&namespace))?);
    }
    let ApiAddress {
        url: api,
        has_web_page,
    } = children[0].address()?;
    let state = State {
        api,
        listen,
        file: file.display().to_string(),
        conditions: Conditions::default(),
    };
    let lab = Lab::new(directory.clone(), topology.clone(), state.clone());
    wait(&lab, &mut children)?;
    if managed::is_managed(&topology.file) {
        lab.wait_for_manager()?;
    }
    directory.save(&state)?;
    Ok(CreatedLab {
        lab,
        has_web_page,
        address_in_use: (listen != requested).then_some(requested),
    })
}

/// Waits until all processes answer. They are in the order collector, switches, aggregator, translator.
fn wait(lab: &Lab, children: &mut [StartedProcess]) -> Result<(), CliError> {
    let start = Instant::now();
    for (index, child) in children.iter_mut().enumerate() {
        loop {
            let answer = match index {
                0 => lab.collector("/status"),
                _ if index <= lab.topology.switches.len() => lab.switch(index - 1),
                _ if child.name == "translator" => lab.translator("/config"),
                _ => lab.aggregator(),
            };
            let Err(error) = answer else { break };
            child.is_running()?;
            if start.elapsed() > TIMEOUT {
                return Err(CliError::new(format!(
                    "{} does not answer: {error}\n{}",
                    child.name,
                    child.log()
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

/// Returns the address, with port 0 (chosen by the kernel) if the port is in use.
fn free_address(requested: SocketAddr) -> SocketAddr {
    match TcpListener::bind(requested) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => SocketAddr::new(requested.ip(), 0),
        // The collector reports any other error.
        _ => requested,
    }
}

/// Runs a function inside a namespace.
fn within(name: &str, work: &(dyn Fn() -> Result<(), CliError> + Sync)) -> Result<(), CliError> {
    nic::netns::within(name, work).map_err(|error| CliError::new(error.to_string()))?
}

/// Executes one step of the plan with `ip`, or by system calls inside the namespace.
fn execute(step: &Step) -> Result<(), CliError> {
    match step {
        Step::Namespace(name) => ip(&["netns", "add", name]),
        Step::Ip(namespace, arguments) => {
            let namespace = namespace.iter().flat_map(|name| ["-n", name]);
            ip(&namespace
                .chain(arguments.iter().map(String::as_str))
                .collect::<Vec<_>>())
        }
        Step::Setting(name, file, value) => within(name, &|| {
            let path = Path::new("/proc/sys/net").join(file);
            match fs::write(&path, value) {
                // A kernel without IPv6 has no IPv6 settings.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                written => written.map_err(|error| {
                    CliError::io(format!("cannot write {}", path.display()), error, "use sudo")
                }),
            }
        }),
        Step::Offload(name, interface, offload) => within(name, &|| {
            match nic::device::set_offload(interface, offload, false) {
                // No errno: the kernel does not know this offload.
                Err(error) if error.errno().is_none() => Ok(()),
                set => set.map_err(|error| CliError::new(error.to_string())),
            }
        }),
    }
}

fn start_error(name: &str, error: std::io::Error) -> CliError {
    CliError::io(
        format!("cannot start {name}"),
        error,
        "check that the program's file still exists",
    )
}

/// Process of the lab that this one has started.
pub(crate) struct StartedProcess {
    name: String,
    child: Child,
    log: std::path::PathBuf,
}

impl StartedProcess {
    /// Starts `hopwise run -c NAME.toml` in a namespace, or in the current one if `None`. Output goes to NAME.log.
    pub(crate) fn new(directory: &Directory, name: &str, namespace: Option<&str>) -> Result<Self, CliError> {
        let file = directory
            .file(&format!("{name}.toml"))
            .to_string_lossy()
            .into_owned();
        Self::run(
            &hopwise()?,
            &["run".to_owned(), "-c".to_owned(), file],
            directory,
            name,
            namespace,
        )
    }

    /// Starts a switch in its namespace: `hopwise` or BMv2.
    pub(crate) fn switch(directory: &Directory, topology: &Topology, index: usize) -> Result<Self, CliError> {
        let name = &topology.switches[index].name;
        let namespace = namespace(&topology.name, name);
        if !topology.is_bmv2(index) {
            return Self::new(directory, name, Some(&namespace));
        }
        let program = bmv2::program(topology)?;
        Self::run(
            &program,
            &bmv2::arguments(topology, index),
            directory,
            name,
            Some(&namespace),
        )
    }

    /// Starts a program with its output appended to NAME.log.
    fn run(
        program: &Path,
        arguments: &[String],
        directory: &Directory,
        name: &str,
        namespace: Option<&str>,
    ) -> Result<Self, CliError> {
        let log = directory.file(&format!("{name}.log"));
        let output = fs::File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|error| start_error(name, error))?;
        let errors = output.try_clone().map_err(|error| start_error(name, error))?;
        let mut command = Command::new(program);
        command.args(arguments);
        // A separate process group: Ctrl-C in the terminal does not signal it.
        command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .current_dir("/")
            .process_group(0);
        let child = match namespace {
            None => command.spawn(),
            Some(namespace) => nic::netns::within(namespace, || command.spawn())
                .map_err(|error| CliError::new(error.to_string()))?,
        };
        Ok(Self {
            name: name.to_owned(),
            child: child.map_err(|error| start_error(name, error))?,
            log,
        })
    }

    /// Checks that the process still runs.
    ///
    /// # Errors
    /// The process has exited; the message has the last lines of its log.
    pub(crate) fn is_running(&mut self) -> Result<(), CliError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(CliError::new(format!("{} has ended:\n{}", self.name, self.log()))),
        }
    }

    /// Returns the last lines of the log, indented.
    fn log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..]
            .iter()
            .map(|line| format!("  {line}\n"))
            .collect()
    }

    /// Waits until the log announces the API, and returns its address.
    fn address(&mut self) -> Result<ApiAddress, CliError> {
        let start = Instant::now();
        loop {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            // Ignore an incomplete last line.
            let complete_lines = text
                .rsplit_once('\n')
                .map_or("", |(complete_lines, _)| complete_lines);
            if let Some(address) = complete_lines.lines().find_map(ApiAddress::read) {
                return Ok(address);
            }
            self.is_running()?;
            if start.elapsed() > TIMEOUT {
                return Err(CliError::new(format!(
                    "{} does not start:\n{}",
                    self.name,
                    self.log()
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_api_and_whether_there_is_a_web_page_are_read_from_the_log() {
        let line = "2026-11-29T09:00:00Z INFO the API is ready ui=true url=http://127.0.0.1:8080/";
        let mut expected = ApiAddress {
            url: "http://127.0.0.1:8080".to_owned(),
            has_web_page: true,
        };
        assert_eq!(ApiAddress::read(line).as_ref(), Some(&expected));
        expected.has_web_page = false;
        assert_eq!(ApiAddress::read(&line.replace("true", "false")), Some(expected));
        assert_eq!(
            ApiAddress::read("INFO receiving reports address=udp://127.0.0.1:1"),
            None
        );
    }
}
