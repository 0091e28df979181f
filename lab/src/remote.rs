//! A running lab and the HTTP requests to its processes. The collector's API is in this network namespace; each switch's API
//! is in the switch's namespace, which a thread enters for the request.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::managed::{self, ExpectedIntent};
use super::plan::{MANAGEMENT, SWITCH_API, namespace};
use super::state::{Directory, State};
use super::{bmv2, configs::TRANSLATOR_API, topology::Topology};
use config::Settings;
use net::client::Client;
use terminal::CliError;

/// Name of the collector's configuration file in a lab's directory.
pub(crate) const COLLECTOR_FILE: &str = "collector.toml";
/// Maximum time until the switches have the rules of the intents; includes the drain time, in which the last packets with INT
/// leave.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between two polls of an API.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of entries of a switch's history that are searched.
const HISTORY_ENTRIES: usize = 50;

/// A lab that runs: its directory, network and saved state.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) directory: Directory,
    pub(crate) topology: Topology,
    pub(crate) state: State,
}

impl Lab {
    /// Creates the handle from its parts.
    pub(crate) fn new(directory: Directory, topology: Topology, state: State) -> Self {
        Self {
            directory,
            topology,
            state,
        }
    }

    /// Opens the named lab or, without a name, the only lab.
    ///
    /// # Errors
    /// There is no such lab, or it is incomplete.
    pub(crate) fn open(name: Option<&str>) -> Result<Self, CliError> {
        let directory = super::state::select(name)?;
        let Some(state) = directory.state() else {
            let name = directory.lab();
            return Err(CliError::new(format!(
                "the lab {name} is incomplete; remove the rest with `hopwise lab down {name}`"
            )));
        };
        let topology = directory.topology()?;
        Ok(Self::new(directory, topology, state))
    }

    /// Returns the name of a node's namespace.
    pub(crate) fn namespace(&self, name: &str) -> String {
        namespace(&self.topology.name, name)
    }

    /// Requests `GET /api/v1{path}` from the collector.
    ///
    /// # Errors
    /// The collector does not answer.
    pub(crate) fn collector(&self, path: &str) -> Result<Value, CliError> {
        get(&self.state.api, path)
    }

    /// Requests the status of a switch. BMv2 has no HTTP API, so a TCP connection to its P4Runtime server is the check.
    ///
    /// # Errors
    /// The switch does not answer.
    pub(crate) fn switch(&self, index: usize) -> Result<Value, CliError> {
        if self.topology.is_bmv2(index) {
            // P4Runtime gives its state to its controller, the manager, only.
            return self.request_in_namespace(&self.topology.switches[index].name, || {
                TcpStream::connect(bmv2::P4RUNTIME)
                    .map(|_| json!({ "kind": "bmv2" }))
                    .map_err(|error| CliError::new(format!("{}: {error}", bmv2::P4RUNTIME)))
            });
        }
        self.request_in_namespace(&self.topology.switches[index].name, || get(SWITCH_API, "/switch"))
    }

    /// Requests the rules of a managed switch.
    ///
    /// # Errors
    /// The switch does not answer.
    pub(crate) fn rules(&self, index: usize) -> Result<Value, CliError> {
        self.request_in_namespace(&self.topology.switches[index].name, || {
            get(SWITCH_API, "/switch/rules")
        })
    }

    /// Describes each intent, and each switch that is not in sync, as the manager reports; empty without a manager.
    pub(crate) fn managed(&self) -> Vec<String> {
        if !managed::is_managed(&self.topology.file) {
            return Vec::new();
        }
        let [intents, devices] = ["intents", "devices"].map(|list| {
            let view = self.collector(&format!("/{list}")).unwrap_or_default();
            view[list].as_array().cloned().unwrap_or_default()
        });
        let unsynced = devices
            .iter()
            .filter(|device| device["state"] != "in_sync")
            .map(describe_state);
        let intents = intents
            .iter()
            .map(|intent| format!("intent {}: {}", text(intent, "name"), text(intent, "state")));
        intents.chain(unsynced).collect()
    }

    /// Requests `POST /api/v1{path}` from a switch, with an empty object.
    ///
    /// # Errors
    /// The switch does not answer, or rejects the request.
    pub(crate) fn post(&self, index: usize, path: &str) -> Result<Value, CliError> {
        self.request_in_namespace(&self.topology.switches[index].name, || post(SWITCH_API, path))
    }

    /// Applies the conditions: writes the configuration of all switches and of a manager, reloads them, and waits for the
    /// manager. All configurations are checked before the first is written.
    ///
    /// # Errors
    /// A file cannot be written, or a process does not answer or rejects its configuration.
    pub(crate) fn apply(&self) -> Result<(), CliError> {
        let conditions = &self.state.conditions;
        let mut files = Vec::new();
        let configurable = (0..self.topology.switches.len()).filter(|index| !self.topology.is_bmv2(*index));
        for index in configurable.clone() {
            let switch = &self.topology.switches[index];
            let text = super::configs::switch(&self.topology, index, conditions);
            let name = format!("{}.toml", switch.name);
            check(&text, &name)?;
            files.push((name, text));
        }
        let managed = managed::is_managed(&self.topology.file);
        if managed {
            let listen = self.state.listen;
            let path = self.directory.path();
            let text = super::configs::collector(&self.topology, listen, path, conditions);
            check(&text, COLLECTOR_FILE)?;
            files.push((COLLECTOR_FILE.to_owned(), text));
        }
        for (name, text) in files {
            self.directory.write(&name, text.as_bytes())?;
        }
        self.directory.save(&self.state)?;
        for index in configurable {
            self.post(index, "/config/reload")?;
        }
        if managed {
            post(&self.state.api, "/config/reload")?;
            self.wait_for_manager()?;
        }
        Ok(())
    }

    /// Waits until the switches have the rules of the intents.
    ///
    /// # Errors
    /// An intent is refused, or a switch does not follow in time; the message gives the reason.
    pub(crate) fn wait_for_manager(&self) -> Result<(), CliError> {
        let start = Instant::now();
        let expected = managed::expected_intents(&self.topology.file, self.state.conditions.mode.as_deref());
        loop {
            let [intents, devices] = ["intents", "devices"].map(|list| {
                let view = self.collector(&format!("/{list}"))?;
                Ok::<_, CliError>(view[list].as_array().cloned().unwrap_or_default())
            });
            let Some(reason) = unreached_goal(&expected, &intents?, &devices?)? else {
                return Ok(());
            };
            if start.elapsed() > TIMEOUT {
                return Err(CliError::new(format!("the manager has not finished: {reason}")));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the manager has found a switch in sync after `since`, ns since 1970. Earlier findings concern the process
    /// that was killed.
    ///
    /// # Errors
    /// The manager has not found it in sync within the timeout.
    pub(crate) fn wait_until_in_sync(&self, switch: &str, since: u64) -> Result<(), CliError> {
        let start = Instant::now();
        loop {
            let history = self.collector(&format!(
                "/domain/history?subject={switch}&limit={HISTORY_ENTRIES}"
            ))?;
            if was_in_sync_since(history["history"].as_array().map_or(&[], Vec::as_slice), since) {
                return Ok(());
            }
            if start.elapsed() > TIMEOUT {
                return Err(CliError::new(format!(
                    "the manager has not configured {switch}; `hopwise device show {switch}` shows why"
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Requests the aggregator's configuration, to see that it answers.
    ///
    /// # Errors
    /// The aggregator does not answer.
    pub(crate) fn aggregator(&self) -> Result<Value, CliError> {
        self.request_in_namespace(MANAGEMENT, || get(SWITCH_API, "/config"))
    }

    /// Requests `GET /api/v1{path}` from the translator.
    ///
    /// # Errors
    /// The translator does not answer.
    pub(crate) fn translator(&self, path: &str) -> Result<Value, CliError> {
        self.request_in_namespace(MANAGEMENT, || get(TRANSLATOR_API, path))
    }

    /// Runs an API request inside the namespace of a node, and prefixes errors with the node's name.
    fn request_in_namespace(
        &self,
        name: &str,
        request: impl FnOnce() -> Result<Value, CliError> + Send,
    ) -> Result<Value, CliError> {
        let response = nic::netns::within(&self.namespace(name), request);
        let response = response.map_err(|error| CliError::new(format!("{name}: {error}")))?;
        response.map_err(|error| CliError::new(format!("{name}: {error}")))
    }
}

/// Requests `GET /api/v1{path}` from the API at `url`.
fn get(url: &str, path: &str) -> Result<Value, CliError> {
    Ok(Client::new(url, None)?.get(path)?)
}

/// Requests `POST /api/v1{path}` from the API at `url`, with an empty object.
fn post(url: &str, path: &str) -> Result<Value, CliError> {
    Ok(Client::new(url, None)?.send("POST", path, &json!({}))?)
}

/// Checks that a configuration is valid; `file` is its name in messages.
fn check(config: &str, file: &str) -> Result<(), CliError> {
    match Settings::parse(config, file) {
        Ok(_) => Ok(()),
        Err(error) => Err(CliError::new(error.to_string())),
    }
}

/// Describes the state of an intent or device in one sentence.
fn describe_state(view: &Value) -> String {
    format!("{}: {}", text(view, "name"), text(view, "text"))
}

fn text<'v>(view: &'v Value, key: &str) -> &'v str {
    view[key].as_str().unwrap_or_default()
}

/// Describes the first goal that the manager has not reached yet; `None` if it has reached all. `expected` lists the intents
/// in the lab's file.
///
/// # Errors
/// The manager refuses an intent.
fn unreached_goal(
    expected: &[ExpectedIntent],
    intents: &[Value],
    devices: &[Value],
) -> Result<Option<String>, CliError> {
    let from_file: Vec<&Value> = intents
        .iter()
        .filter(|intent| intent["origin"] == "file")
        .collect();
    let has_read_all = expected.iter().all(|expected| {
        let intent = from_file
            .iter()
            .find(|intent| intent["name"].as_str() == expected.name.as_deref());
        intent.is_some_and(|intent| {
            expected.mode.is_none() || intent["intent"]["mode"].as_str() == expected.mode.as_deref()
        })
    });
    if from_file.len() != expected.len() || !has_read_all {
        return Ok(Some("it has not read its intents yet".to_owned()));
    }
    if let Some(refused) = intents.iter().find(|intent| intent["state"] == "refused") {
        return Err(CliError::new(format!(
            "the manager refuses the intent {}",
            describe_state(refused)
        )));
    }
    let device = devices.iter().find(|device| device["state"] != "in_sync");
    let intent = intents.iter().find(|intent| intent["state"] == "pending");
    Ok(device.or(intent).map(describe_state))
}

fn was_in_sync_since(history: &[Value], since: u64) -> bool {
    let mut in_sync = history.iter().filter(|entry| entry["action"] == "in_sync");
    in_sync.any(|entry| entry["time"].as_u64().is_some_and(|time| time >= since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_filled_when_the_manager_found_it_so_after_it_was_killed() {
        let entry = |time: u64, action: &str| json!({"time": time, "action": action, "subject": "s1"});
        let in_sync = |history: &[Value]| was_in_sync_since(history, 100);
        assert!(!in_sync(&[]));
        assert!(!in_sync(&[entry(99, "in_sync")]));
        assert!(!in_sync(&[entry(120, "unreachable"), entry(99, "in_sync")]));
        assert!(in_sync(&[
            entry(140, "in_sync"),
            entry(120, "unreachable"),
            entry(99, "in_sync")
        ]));
    }

    #[test]
    fn a_refused_intent_ends_the_wait_and_a_pending_one_or_a_device_does_not() {
        let view = |name: &str, state: &str| json!({"name": name, "state": state, "text": "why"});
        let text = |intents: &[Value], devices: &[Value]| {
            unreached_goal(&[], intents, devices).map_err(|error| error.to_string())
        };
        let in_sync = [view("s1", "in_sync")];
        assert_eq!(
            text(&[view("a", "complete"), view("b", "stopped")], &in_sync),
            Ok(None)
        );
        assert_eq!(
            text(&[view("a", "pending")], &in_sync),
            Ok(Some("a: why".to_owned()))
        );
        assert_eq!(text(&[], &[view("s1", "drift")]), Ok(Some("s1: why".to_owned())));
        let refused = text(&[view("a", "refused")], &[view("s1", "drift")]);
        assert_eq!(refused, Err("the manager refuses the intent a: why".to_owned()));
        // Intents of the file are there before anything else counts.
        let not_read = Ok(Some("it has not read its intents yet".to_owned()));
        let expected = [ExpectedIntent {
            name: Some("a".to_owned()),
            mode: Some("sf".to_owned()),
        }];
        let text = |mode: &str| {
            let intent =
                json!({"name": "a", "origin": "file", "state": "complete", "intent": {"mode": mode}});
            unreached_goal(&expected, &[intent], &in_sync).map_err(|error| error.to_string())
        };
        assert_eq!([text("md"), text("sf")], [not_read.clone(), Ok(None)]);
        let old = [json!({"name": "a", "origin": "file", "state": "complete"})];
        assert_eq!(
            unreached_goal(&[], &old, &in_sync).map_err(|error| error.to_string()),
            not_read
        );
    }
}
