//! The demo's simulated switches as devices of the manager in this process. They start without INT; intents enable it, as in
//! a real network, and the manager's requests arrive over channels instead of the network.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{collections::BTreeMap, fmt::Write};

use dataplane::fabric::{Fabric, Kind};
use manager::device::{Answer, Etag, Request, State};
use manager::driver::Message;
use serde_json::{Value, json};

use super::is_switch;
use config::Settings;
use manage_role::role::{Local, ToDevice};
use net::client::Client;
use switch_role::role::{Managed, Proposal, Refused, matched};
use switch_role::settings::{ManagedSettings, SwitchSettings, filter, int_config, watchlist};
use terminal::CliError;

/// Interval between two reports of packet counts.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wait for the switches to follow the intents at the start.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Management side of all switches; applies the manager's requests to the simulated network.
#[derive(Debug)]
pub(super) struct Devices {
    commands: Receiver<ToDevice>,
    switches: BTreeMap<u32, Device>,
    /// Time of the latest count of measured packets.
    last_count: Instant,
}

/// Simulated switch as the manager sees it.
struct Device {
    managed: Managed,
    /// Settings of the switch without the manager's rules.
    settings: SwitchSettings,
    /// Receiver of the switch's unsolicited messages (packet counts), set by the manager.
    follower: Option<Box<dyn Fn(Message) + Send>>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("managed", &self.managed)
            .finish_non_exhaustive()
    }
}

impl Devices {
    /// Creates the devices, without rules. The second element is the channel on which the manager sends commands.
    pub(super) fn new(fabric: &mut Fabric) -> Result<(Self, Local), CliError> {
        let (sender, commands) = channel();
        let mut switches = BTreeMap::new();
        for node in switches_of(fabric) {
            let ports: Vec<u16> = fabric.ports(node).map(|(number, _)| number).collect();
            let mut text = format!("[switch]\nnode = {node}\n");
            for port in ports {
                let _ = writeln!(
                    text,
                    "[[switch.ports]]\nnumber = {port}\ninterface = \"port{port}\""
                );
            }
            let settings = Settings::parse(&text, "switch")
                .ok()
                .and_then(|settings| settings.switch);
            let settings = settings
                .ok_or_else(|| CliError::new("the demo's switches are invalid; a fault of this build"))?;
            let managed = Managed::open(&ManagedSettings { state: None }, 1)?;
            let device = Device {
                managed,
                settings,
                follower: None,
            };
            device.configure(fabric).map_err(CliError::new)?;
            switches.insert(node, device);
        }
        Ok((
            Self {
                commands,
                switches,
                last_count: Instant::now(),
            },
            sender,
        ))
    }

    /// Executes pending commands, and reports once a second how many packets each rule has measured.
    pub(super) fn poll(&mut self, fabric: &mut Fabric) {
        while let Ok(message) = self.commands.try_recv() {
            let (command, reply) = match message {
                ToDevice::Command(command, reply) => (command, reply),
                ToDevice::Follow(node, follower) => {
                    if let Some(device) = self.switches.get_mut(&node) {
                        device.follower = Some(follower);
                    }
                    continue;
                }
            };
            let answer = match self.switches.get_mut(&command.node) {
                Some(device) => device.execute(command.request, fabric),
                None => Answer::Unreachable("there is no such switch in the demo".to_owned()),
            };
            reply(answer);
        }
        if self.last_count.elapsed() < COUNT_INTERVAL {
            return;
        }
        self.last_count = Instant::now();
        for (node, device) in &self.switches {
            if let (Some(follower), Some(switch)) = (&device.follower, fabric.switch_mut(*node)) {
                let counts = matched(device.managed.rules(), switch);
                let measured = counts.iter().map(|(key, counts)| (*key, counts.measured));
                follower(Message::Matched(*node, measured.collect()));
            }
        }
    }
}

impl Device {
    /// Executes a manager's request. If the simulated switch refuses the new rules, the old ones are restored.
    fn execute(&mut self, request: Request, fabric: &mut Fabric) -> Answer {
        let (proposal, success) = match request {
            Request::Read => {
                let Etag(etag) = self.managed.etag();
                let rules = self.managed.rules().clone();
                return Answer::State(State {
                    etag: Etag(etag),
                    rules,
                    ..State::default()
                });
            }
            Request::Claim(election) => (Proposal::Claim(election), Answer::Claimed),
            Request::Apply {
                election,
                etag,
                changes,
            } => (
                Proposal::Apply {
                    election,
                    etag,
                    changes,
                },
                Answer::Applied,
            ),
        };
        let prepared = self.managed.prepare(proposal, &self.settings);
        match prepared.and_then(|prepared| self.managed.apply(prepared)) {
            Ok(previous) => match self.configure(fabric) {
                Ok(()) => success,
                Err(message) => {
                    self.managed.restore(previous);
                    // Cannot fail: the switch has followed these rules before.
                    let _ = self.configure(fabric);
                    Answer::Refused(message)
                }
            },
            Err(Refused::NotPrimary(election)) => Answer::NotPrimary(election),
            Err(Refused::Stale) => Answer::Stale,
            Err(Refused::Wrong(message)) => Answer::Refused(message),
            Err(Refused::NotManaged) => Answer::Unreachable("the switch is not managed".to_owned()),
        }
    }

    /// Configures the simulated switch according to the rules.
    fn configure(&self, fabric: &mut Fabric) -> Result<(), String> {
        let settings = self.managed.settings(&self.settings)?;
        for port in &settings.ports {
            let mut roles = dataplane::router::Port::new(port.number, [0; 6]);
            self.managed.fit(&mut roles);
            fabric.set_roles(settings.node, port.number, roles.is_source(), roles.is_sink());
        }
        let Some(switch) = fabric.switch_mut(settings.node) else {
            return Ok(());
        };
        let config = int_config(&settings);
        switch
            .set_encoding(config.mark.dscp, config.l4_checksum)
            .map_err(|error| error.to_string())?;
        switch.set_available(self.managed.bits());
        switch.set_filters(filter::filters(&settings.filter_set())?);
        switch
            .watch(watchlist(&settings.watch))
            .map_err(|error| error.to_string())
    }
}

pub(super) fn switches_of(fabric: &Fabric) -> Vec<u32> {
    let nodes = fabric.topology().nodes().iter();
    nodes
        .filter(|node| is_switch(&node.kind))
        .map(|node| node.id)
        .collect()
}

fn node_name(fabric: &Fabric, id: u32) -> String {
    let mut nodes = fabric.topology().nodes().iter();
    let node = nodes.find(|node| node.id == id);
    node.map_or_else(String::new, |node| node.name.clone())
}

/// Adds the manager and an inventory of the network to the settings.
pub(super) fn add_manager_settings(settings: &mut Settings, fabric: &Fabric) -> Result<(), CliError> {
    let switches = switches_of(fabric);
    let mut text = "[manager]\nclocks = \"synchronised\"\ncalm = \"100ms\"\ndrain = \"200ms\"\n".to_owned();
    for &node in &switches {
        let edges = fabric
            .ports(node)
            .filter(|(_, peer)| !switches.contains(peer))
            .map(|(number, _)| number);
        let edges: Vec<u16> = edges.collect();
        let ports = fabric.ports(node).count();
        let _ = writeln!(
            text,
            "[[inventory.devices]]\nname = \"{}\"\nnode = {node}\naddress = \"this process\"\nports = {ports}\nedge = {edges:?}",
            node_name(fabric, node)
        );
    }
    for &node in &switches {
        for (number, peer) in fabric
            .ports(node)
            .filter(|(_, peer)| *peer > node && switches.contains(peer))
        {
            let end = fabric.peer(node, number).map_or(0, |(_, end)| end);
            let a = node_name(fabric, node);
            let b = node_name(fabric, peer);
            let _ = writeln!(
                text,
                "[[inventory.links]]\nbetween = [\"{a}:{number}\", \"{b}:{end}\"]"
            );
        }
    }
    for node in fabric.topology().nodes() {
        let Kind::Host(address) = node.kind else { continue };
        let attachment = switches.iter().find_map(|&switch| {
            let (port, _) = fabric.ports(switch).find(|(_, peer)| *peer == node.id)?;
            Some(format!("at = \"{}:{port}\"", node_name(fabric, switch)))
        });
        let host = &node.name;
        let attachment = attachment.unwrap_or_default();
        let addresses = format!("[\"{}\", \"{}\"]", address.v4, address.v6);
        let _ = writeln!(
            text,
            "[[inventory.hosts]]\nname = \"{host}\"\naddresses = {addresses}\n{attachment}"
        );
    }
    let parsed = Settings::parse(&text, "demo").map_err(|error| CliError::new(error.to_string()))?;
    (settings.manager, settings.inventory) = (parsed.manager, parsed.inventory);
    Ok(())
}

/// Adds the demo's intents through the API. `execute_commands` executes the manager's commands, because the network's thread
/// does not run yet.
pub(super) fn add_intents(client: &Client, mut execute_commands: impl FnMut()) -> Result<(), CliError> {
    let client = client.clone().by("demo");
    let watch = [
        "flow_path",
        "flow_latency",
        "hop_latency",
        "queue_occupancy",
        "link_utilization",
    ];
    for proto in ["udp", "tcp"] {
        let intent = json!({"name": proto, "match": {"proto": proto}, "watch": watch, "mode": "md"});
        client.send("PUT", "/intents", &intent)?;
    }
    let start = Instant::now();
    while !are_installed(&client.get("/intents")?) && start.elapsed() < INSTALL_TIMEOUT {
        execute_commands();
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn are_installed(view: &Value) -> bool {
    let intents = view["intents"].as_array().map(Vec::as_slice).unwrap_or_default();
    intents.iter().all(|intent| intent["state"] != "pending")
}
