//! The machine of a measurement, the CPU time of a thread, and guards for temporary directories and child processes.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Child,
    thread,
};

use terminal::CliError;

/// Description of the machine and its current load.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The model of the processor.
    pub cpu: String,
    /// The number of cores.
    pub cores: usize,
    /// The version of Linux.
    pub kernel: String,
    /// The load average of the last minute, if the system reports it.
    pub load: Option<f64>,
}

impl Machine {
    /// Reads the description of this machine.
    pub fn read() -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let [cpu, kernel] = [model.map_or("", |(_, name)| name.trim()), kernel.trim()]
            .map(|text| if text.is_empty() { "unknown" } else { text }.to_owned());
        Self {
            cpu,
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel,
            load: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} cores, Linux {}", self.cpu, self.cores, self.kernel)
    }
}

/// Returns the CPU time of this thread in ns, from the scheduler's statistics.
fn core_time() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat")
        .ok()?
        .split(' ')
        .next()?
        .parse()
        .ok()
}

/// Runs `work`. Returns its result and the CPU time that this thread used in it (ns), or 0 if the system does not report it.
pub fn on_core<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = core_time();
    let result = work();
    let times = before.zip(core_time());
    (result, times.map_or(0, |(before, after)| after - before))
}

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory in the system's temporary directory, or in `TMPDIR`.
    pub fn new(case: &str) -> Result<Self, CliError> {
        let path = std::env::temp_dir().join(format!("hopwise-bench-{case}-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| {
            CliError::io(
                format!("cannot create {}", path.display()),
                error,
                "set TMPDIR to a writable directory",
            )
        })?;
        Ok(Self(path))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Failure is harmless, because the directory is among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A child process, killed when dropped.
#[derive(Debug)]
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
