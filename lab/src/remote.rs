//! A running lab, and API requests to its processes: the collector in this network namespace, each switch in the switch's namespace.

use serde_json::Value;

use super::configs::{SWITCH_API, TRANSLATOR_API};
use super::plan::{MANAGEMENT, namespace};
use super::state::{Directory, State};
use super::topology::Topology;
use crate::program::Program;
use terminal::CliError;

/// A running lab.
#[derive(Debug)]
pub(crate) struct Lab {
    /// Its directory.
    pub(crate) directory: Directory,
    /// The network.
    pub(crate) topology: Topology,
    /// Its saved state.
    pub(crate) state: State,
    program: &'static dyn Program,
}

impl Lab {
    /// Creates a lab from its parts.
    pub(crate) fn new(
        program: &'static dyn Program,
        directory: Directory,
        topology: Topology,
        state: State,
    ) -> Self {
        Self { directory, topology, state, program }
    }

    /// The named lab; without a name, the only lab.
    ///
    /// # Errors
    /// There is no such lab, or it is incomplete.
    pub(crate) fn open(named: Option<&str>, program: &'static dyn Program) -> Result<Self, CliError> {
        let directory = super::state::chosen(named)?;
        let Some(state) = directory.state() else {
            let name = directory.lab();
            return Err(CliError::new(format!(
                "the lab {name} is not whole; remove what is left with `hopwise lab down {name}`"
            )));
        };
        let topology = directory.topology(program)?;
        Ok(Self::new(program, directory, topology, state))
    }

    /// The namespace of a node.
    pub(crate) fn namespace(&self, name: &str) -> String {
        namespace(&self.topology.name, name)
    }

    /// The response of the collector to `GET /api/v1{path}`.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn collector(&self, path: &str) -> Result<Value, CliError> {
        self.program.get(&self.state.api, path)
    }

    /// The status of a switch.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn switch(&self, index: usize) -> Result<Value, CliError> {
        self.ask(&self.topology.switches[index].name, || self.program.get(SWITCH_API, "/switch"))
    }

    /// `POST /api/v1{path}`.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub(crate) fn post(&self, index: usize, path: &str) -> Result<Value, CliError> {
        self.ask(&self.topology.switches[index].name, || self.program.post(SWITCH_API, path))
    }

    /// Applies the conditions: writes the files of all switches and reloads them.
    ///
    /// # Errors
    /// A file cannot be written; a switch does not answer or refuses.
    pub(crate) fn apply(&self) -> Result<(), CliError> {
        let conditions = &self.state.conditions;
        let mut files = Vec::new();
        for (index, switch) in self.topology.switches.iter().enumerate() {
            let text = super::configs::switch(&self.topology, index, conditions);
            let name = format!("{}.toml", switch.name);
            self.program.check(&text, &name).map_err(CliError::new)?;
            files.push((name, text));
        }
        for (name, text) in files {
            self.directory.write(&name, text.as_bytes())?;
        }
        self.directory.save(&self.state)?;
        for index in 0..self.topology.switches.len() {
            self.post(index, "/config/reload")?;
        }
        Ok(())
    }

    /// The status of the aggregator.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn aggregator(&self) -> Result<Value, CliError> {
        self.ask(MANAGEMENT, || self.program.get(SWITCH_API, "/config"))
    }

    /// A response of the translator's API.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn translator(&self, path: &str) -> Result<Value, CliError> {
        self.ask(MANAGEMENT, || self.program.get(TRANSLATOR_API, path))
    }

    /// Sends an API request to the process in the namespace of a node.
    fn ask(
        &self,
        name: &str,
        question: impl FnOnce() -> Result<Value, CliError> + Send,
    ) -> Result<Value, CliError> {
        let response = nic::netns::within(&self.namespace(name), question);
        let failed = |error: String| CliError::new(format!("{name}: {error}"));
        response.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
    }
}
