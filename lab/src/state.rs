//! State of a lab between commands. The directory `/run/hopwise/lab-NAME` has the saved state, a copy of the topology file,
//! and the configurations and logs of the processes; its lock (`flock`) serializes commands.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{collections::BTreeSet, io::ErrorKind, net::SocketAddr};

use serde::{Deserialize, Serialize};

use crate::{conditions::Conditions, load, topology::Topology};
use terminal::CliError;

/// Parent of all labs' directories.
const LABS: &str = "/run/hopwise";
/// Directory in which `ip netns` mounts named namespaces.
const NAMESPACES: &str = "/run/netns";
/// Name of the copy of the topology file in a lab's directory.
pub(crate) const TOPOLOGY_FILE: &str = "topology.toml";
const STATE_FILE: &str = "state.json";

/// State that `hopwise lab up` saves for later commands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    /// URL of the collector's API, such as `http://127.0.0.1:8080`.
    pub(crate) api: String,
    /// Address in the collector's configuration; its port may be 0, for a free port.
    pub(crate) listen: SocketAddr,
    /// Path of the topology file, as given on the command line.
    pub(crate) file: String,
    /// Faults and measurement mode.
    #[serde(default)]
    pub(crate) conditions: Conditions,
}

/// Directory of a lab, which may not exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Directory {
    name: String,
    path: PathBuf,
}

impl Directory {
    /// Returns the directory of the lab with this name, which need not exist.
    pub(crate) fn for_lab(lab: &str) -> Self {
        Self {
            name: lab.to_owned(),
            path: Path::new(LABS).join(format!("lab-{lab}")),
        }
    }

    pub(crate) fn lab(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn io_error(&self, work: &str, error: std::io::Error) -> CliError {
        CliError::io(
            format!("cannot {work} {}", self.path.display()),
            error,
            "the lab needs root: use sudo",
        )
    }

    /// Creates the directory and locks it, so that no other process removes it. Returns the lock.
    ///
    /// # Errors
    /// The directory exists, or it cannot be created.
    pub(crate) fn create(&self) -> Result<File, CliError> {
        fs::create_dir_all(LABS).map_err(|error| self.io_error("make", error))?;
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(already_exists(&self.name)),
            result => result.map_err(|error| self.io_error("make", error))?,
        }
        self.lock()?
            .ok_or_else(|| self.io_error("make", ErrorKind::NotFound.into()))
    }

    /// Waits up to 30 s for the lock; `None` if the directory does not exist.
    ///
    /// # Errors
    /// Another process holds the lock for too long.
    pub(crate) fn lock(&self) -> Result<Option<File>, CliError> {
        const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
        const RETRY_INTERVAL: Duration = Duration::from_millis(50);
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            result => result.map_err(|error| self.io_error("lock", error))?,
        };
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) => return Err(self.io_error("lock", error)),
                Err(TryLockError::WouldBlock) if start.elapsed() > LOCK_TIMEOUT => {
                    let message = format!(
                        "another hopwise process uses the lab {}; wait for it, or end it",
                        self.name
                    );
                    return Err(CliError::new(message));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(RETRY_INTERVAL),
            }
        }
    }

    /// Writes a file in the directory atomically: a reader sees the old or the new content.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, name: &str, text: &[u8]) -> Result<(), CliError> {
        let path = self.file(name);
        let temp_file = self.file(&format!("{name}.new"));
        let result = fs::write(&temp_file, text).and_then(|()| fs::rename(&temp_file, &path));
        result.map_err(|error| {
            CliError::io(
                format!("cannot write {}", path.display()),
                error,
                "check the directory's owner and mode",
            )
        })
    }

    /// Saves the state of the lab.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn save(&self, state: &State) -> Result<(), CliError> {
        self.write(
            STATE_FILE,
            serde_json::to_string_pretty(state).unwrap_or_default().as_bytes(),
        )
    }

    /// Reads the saved state; `None` if the lab does not exist or is incomplete.
    pub(crate) fn state(&self) -> Option<State> {
        serde_json::from_slice(&fs::read(self.file(STATE_FILE)).ok()?).ok()
    }

    /// Loads the network from the lab's copy of the topology file.
    pub(crate) fn topology(&self) -> Result<Topology, CliError> {
        load::load(&self.file(TOPOLOGY_FILE))
    }
}

/// Builds the error for a lab name that is in use.
pub(crate) fn already_exists(lab: &str) -> CliError {
    CliError::new(format!(
        "there is a lab {lab} already, or a part of one; remove it with `hopwise lab down {lab}`"
    ))
}

/// Returns the existing namespaces of a lab, sorted.
pub(crate) fn namespaces(lab: &str) -> Vec<String> {
    let prefix = super::plan::prefix(lab);
    let mut namespaces: Vec<String> = names_in(NAMESPACES)
        .into_iter()
        .filter(|name| name.starts_with(&prefix))
        .collect();
    namespaces.sort();
    namespaces
}

/// Returns the names of all labs that have a directory or a namespace, sorted.
pub(crate) fn labs() -> Vec<String> {
    let directories = names_in(LABS)
        .into_iter()
        .filter_map(|name| Some(name.strip_prefix("lab-")?.to_owned()));
    let namespaces = names_in(NAMESPACES)
        .into_iter()
        .filter_map(|name| Some(name.strip_prefix("hw-")?.split_once('-')?.0.to_owned()));
    directories
        .chain(namespaces)
        .collect::<BTreeSet<String>>()
        .into_iter()
        .collect()
}

/// Finds the named lab or, without a name, the only lab.
///
/// # Errors
/// There is no lab, or more than one.
pub(crate) fn select(name: Option<&str>) -> Result<Directory, CliError> {
    let labs = labs();
    match (name, labs.as_slice()) {
        (Some(name), _) if labs.iter().any(|lab| lab == name) => Ok(Directory::for_lab(name)),
        (Some(name), []) => Err(CliError::new(format!(
            "there is no lab {name}, and no other; make one with `hopwise lab up FILE`"
        ))),
        (Some(name), _) => Err(CliError::new(format!(
            "there is no lab {name}; there is {}",
            labs.join(", ")
        ))),
        (None, [only]) => Ok(Directory::for_lab(only)),
        (None, []) => Err(CliError::new(
            "there is no lab; make one with `hopwise lab up FILE`",
        )),
        (None, _) => Err(CliError::new(format!(
            "there are several labs, {}; name one",
            labs.join(", ")
        ))),
    }
}

fn names_in(directory: &str) -> Vec<String> {
    // A missing directory gives no names.
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}
