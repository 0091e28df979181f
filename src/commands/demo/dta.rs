//! Direct Telemetry Access (DTA) in the demo. Every simulated switch has the reporter and the sockets of a real one. Reports
//! pass over loopback through a translator, which writes them to collector memory by RoCEv2; all of it runs in this process.
//!
//! This module has the switches' side, and the loss budget from the switches to the memory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use std::{collections::BTreeMap, path::Path};

use dataplane::fabric::Fabric;
use serde_json::Value;
use wire::FlowKey;

use super::{ALL_ACCOUNTED, dropped, table};
use cli::remote::fetch;
use config::Settings;
use net::client::{Client, escape};
use runtime::reporter::Sockets;
use switch_role::{role::Dta, settings::dta::DtaSettings};
use terminal::{CliError, units};
use view::{NamedCounts, Stage};

/// Settings of reporters, translator and memory, in TOML.
const SETTINGS: &str = include_str!("dta.toml");
/// Attempts to find a port that is free at the addresses of all switches.
const MAX_PORT_ATTEMPTS: u32 = 20;
/// Maximum wait for the translator to connect to the memory.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the settings of translator and memory, and the settings of the switches' reporters.
pub(super) fn settings() -> Result<(Settings, DtaSettings), CliError> {
    let mut settings =
        Settings::parse(SETTINGS, "dta.toml").map_err(|error| CliError::new(error.to_string()))?;
    let switch = settings.switch.take().and_then(|switch| switch.dta);
    let switch =
        switch.ok_or_else(|| CliError::new("dta.toml has no [switch.dta]; a fault of this build"))?;
    Ok((settings, switch))
}

/// Fills in values known only at run time: the directory of the memory, and the port for control messages to the switches.
pub(super) fn set_runtime_values(settings: &mut Settings, directory: &Path, control_port: u16) {
    if let Some(memory) = &mut settings.collector.memory {
        memory.directory = directory.to_path_buf();
    }
    if let Some(dta) = settings.translator.as_mut() {
        dta.control_port = control_port;
    }
}

/// Sockets for the translator's control messages, one per switch. Each has its own loopback address; all have the same port,
/// because a translator has one control port for all reporters.
#[derive(Debug)]
pub(super) struct ControlSockets {
    by_node: Vec<(u32, Sockets)>,
    pub(super) port: u16,
}

impl ControlSockets {
    /// Opens the sockets at a port chosen by the kernel.
    pub(super) fn open(nodes: &[u32]) -> Result<Self, CliError> {
        let mut attempts = 1..MAX_PORT_ATTEMPTS;
        loop {
            match Self::try_open(nodes) {
                // The port is free at the first address but in use at another; try a new port.
                Err(_) if attempts.next().is_some() => {}
                Err(error) => return Err(CliError::new(format!("the demo's switches: {error}"))),
                Ok(sockets) => return Ok(sockets),
            }
        }
    }

    fn try_open(nodes: &[u32]) -> Result<Self, nic::Error> {
        let mut sockets = Self {
            by_node: Vec::new(),
            port: 0,
        };
        for &node in nodes {
            // 127.0.HIGH.LOW from the node id.
            let loopback = IpAddr::V4(Ipv4Addr::new(127, 0, (node >> 8) as u8, node as u8));
            let control = Sockets::open(&[], SocketAddr::new(loopback, sockets.port))?;
            sockets.port = control.control_address().port();
            sockets.by_node.push((node, control));
        }
        Ok(sockets)
    }
}

/// DTA reporters of all switches.
#[derive(Debug, Default)]
pub(super) struct Reporters(Vec<(u32, Dta)>);

impl Reporters {
    /// Attaches a reporter to every switch; it reports to the translator at `to`.
    pub(super) fn attach(
        sockets: ControlSockets,
        settings: &DtaSettings,
        to: SocketAddr,
        fabric: &mut Fabric,
    ) -> Result<Self, CliError> {
        let settings = DtaSettings {
            collectors: vec![to],
            ..settings.clone()
        };
        let now = fabric.now();
        let mut reporters = Vec::new();
        for (node, sockets) in sockets.by_node {
            if let Some(switch) = fabric.switch_mut(node) {
                reporters.push((node, Dta::attach(&settings, node, now, sockets, switch)?));
            }
        }
        Ok(Self(reporters))
    }

    /// Sends pending reports and processes control messages.
    pub(super) fn poll(&mut self, fabric: &mut Fabric) {
        let now = fabric.now();
        for (node, dta) in &mut self.0 {
            if let Some(switch) = fabric.switch_mut(*node) {
                dta.poll(now, switch);
            }
        }
    }

    /// Sums the counters of all reporters.
    pub(super) fn account(&self, fabric: &Fabric) -> DtaTotals {
        let mut reported = DtaTotals::default();
        for (node, dta) in &self.0 {
            let Some(view) = fabric.switch(*node).map(|switch| dta.view(fabric.now(), switch)) else {
                continue;
            };
            reported.reports += view.reports;
            reported.datagrams += view.sent;
            reported.unsent += view.unsent;
            for link in &view.collectors {
                reported.retransmitted += link.retransmitted;
                reported.queued += u64::from(link.retransmit_buffered) + link.overwritten;
            }
            for mapping in &view.mappings {
                reported.operations += mapping.operations;
                reported.sent += mapping.sent;
                reported.pending += mapping.pending;
                for (reason, count) in [
                    ("suppressed", mapping.suppressed),
                    ("missing_value", mapping.missing_value),
                    ("wrong_size", mapping.wrong_size),
                    ("queue_full", mapping.queue_full),
                ] {
                    *reported.unsent_operations.entry(reason).or_default() += count;
                }
            }
            reported.columns += view.sketches.iter().map(|sketch| sketch.columns).sum::<u64>();
        }
        reported.flows = fabric
            .flows()
            .filter(|flow| flow.delivered > 0)
            .map(|flow| flow.flow)
            .collect();
        reported
    }
}

/// Totals of the switches' DTA reports.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct DtaTotals {
    /// Operations of mappings; for Append lists, entries.
    pub(super) operations: u64,
    /// Operations out of `operations` that were sent in reports.
    pub(super) sent: u64,
    /// Append entries out of `operations` that wait until a report is full.
    pub(super) pending: u64,
    /// Operations out of `operations` that were not sent, by reason.
    pub(super) unsent_operations: BTreeMap<&'static str, u64>,
    /// Columns of sketches that were reported.
    pub(super) columns: u64,
    /// Distinct reports, without retransmissions.
    pub(super) reports: u64,
    /// Retransmissions of reports to the translator.
    pub(super) retransmitted: u64,
    /// Reports that wait in the retransmit buffer, or were overwritten there.
    pub(super) queued: u64,
    /// Datagrams that the kernel accepted.
    pub(super) datagrams: u64,
    /// Datagrams that the kernel refused.
    pub(super) unsent: u64,
    /// Flows with delivered packets.
    pub(super) flows: Vec<FlowKey>,
}

/// Counters of the translator and the memory, as the API returned them.
#[derive(Debug)]
pub(super) struct DtaCounters {
    translator: Value,
    memory: Value,
}

/// Waits until the translator is connected to the memory.
pub(super) fn wait_until_connected(client: &Client) -> Result<(), CliError> {
    let start = Instant::now();
    while DtaCounters::query(client)?.translator["collectors"][0]["state"] != "up" {
        if start.elapsed() > CONNECT_TIMEOUT {
            // Reports that the switches send meanwhile are counted as dropped, so the demo can go on.
            terminal::note(format_args!(
                "the translator has not found the memory yet; see {}/api/v1/translator",
                client.url()
            ));
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

impl DtaCounters {
    /// Requests the counters of the translator and the memory from the API.
    pub(super) fn query(client: &Client) -> Result<Self, CliError> {
        Ok(Self {
            translator: fetch(client, "/translator")?,
            memory: fetch(client, "/dta")?,
        })
    }

    /// Builds the loss budget's stages, from the switches to the memory.
    fn stages(&self, reported: &DtaTotals) -> Vec<Stage> {
        let translator = &self.translator;
        let collector = &translator["collectors"][0];
        let not_sent = reported
            .unsent_operations
            .iter()
            .map(|(reason, count)| (*reason, *count))
            .collect();
        let network = [
            ("unsent", reported.unsent),
            ("socket_buffer_full", number("kernel_drops", collector)),
        ];
        let received = number("reports", translator);
        let completed = counts(&translator["completed"]).values().sum();
        let refused = counts(&translator["dropped"])
            .into_iter()
            .chain(counts(&translator["unreadable"]));
        let packets = [
            ("unsent", number("unsent", collector)),
            ("socket_buffer_full", number("kernel_drops", &self.memory)),
            ("duplicates", number("duplicates", &self.memory)),
        ];
        let dropped = counts(&self.memory["dropped"])
            .into_iter()
            .chain(counts(&self.memory["refused"]));
        vec![
            Stage {
                stage: "switches".into(),
                unit: "operations".into(),
                into: reported.operations,
                out: reported.sent,
                queued: reported.pending,
                drops: not_sent,
                evidence: None,
            },
            Stage {
                stage: "network".into(),
                unit: "datagrams".into(),
                into: reported.datagrams + reported.unsent,
                out: received,
                queued: 0,
                drops: network.into(),
                evidence: None,
            },
            Stage {
                stage: "translator".into(),
                unit: "reports".into(),
                into: received,
                out: completed,
                queued: number("queued", translator),
                drops: refused.collect(),
                evidence: None,
            },
            Stage {
                stage: "memory".into(),
                unit: "RoCEv2 packets".into(),
                into: number("frames", collector),
                out: number("executed", &self.memory),
                queued: 0,
                drops: NamedCounts::from(packets).into_iter().chain(dropped).collect(),
                evidence: None,
            },
        ]
    }

    /// Returns whether everything has been reported and every report is completed or counted as dropped.
    pub(super) fn is_settled(&self, reported: &DtaTotals) -> bool {
        let translator = &self.translator;
        let stages = self.stages(reported);
        reported.reports + reported.retransmitted == reported.datagrams + reported.unsent + reported.queued
            && stages
                .iter()
                .all(|stage| stage.into == stage.out + stage.queued + dropped(stage))
            && stages.iter().all(|stage| stage.queued == 0)
            && number("buffered", &translator["entries"]) == 0
            && number("buffered", &translator["postcards"]) == 0
            && number("unacknowledged", &translator["collectors"][0]) == 0
    }

    /// Formats the loss budget, one line per stage, and the verdict. `found` is the number of flows whose path is in memory.
    pub(super) fn budget(&self, reported: &DtaTotals, found: usize) -> String {
        let retransmissions = match reported.retransmitted {
            0 => String::new(),
            count => format!(
                "; {} of them were retransmissions, which the translator counts as duplicates",
                units::count(count)
            ),
        };
        let stages = table("DROPPED", &self.stages(reported));
        let verdict = if self.is_settled(reported) {
            ALL_ACCOUNTED
        } else {
            "the difference is unexplained."
        };
        format!(
            "\nBy DTA the switches reported {} and {} in {}{retransmissions}.\n\n{stages}\nThe memory has the last path of {found} of {}, and of the DTA reports {verdict}\n",
            units::counted(reported.operations, "operation"),
            units::counted(reported.columns, "column") + " of sketches",
            units::counted(reported.datagrams, "datagram"),
            units::counted(reported.flows.len() as u64, "flow"),
        )
    }
}

/// Returns this count of a view, or 0 if the view does not have it.
fn number(count: &str, view: &Value) -> u64 {
    view[count].as_u64().unwrap_or(0)
}

/// Counts the flows whose path is in memory.
pub(super) fn count_stored_paths(client: &Client, reported: &DtaTotals) -> Result<usize, CliError> {
    let mut stored = 0;
    for flow in &reported.flows {
        let answer = client.get(&format!(
            "/dta/stores/paths/get?key={}",
            escape(&flow.to_string())
        ))?;
        stored += usize::from(answer["answer"] == "found");
    }
    Ok(stored)
}

fn counts(object: &Value) -> NamedCounts {
    let fields = object.as_object().into_iter().flatten();
    fields
        .map(|(name, count)| (name.clone(), count.as_u64().unwrap_or(0)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counters(executed: u64) -> DtaCounters {
        let collector = json!({"kernel_drops": 1, "frames": 30, "unsent": 2, "unacknowledged": 0});
        let dta = json!({
            "reports": 12, "completed": {"key_write": 8, "append": 1}, "dropped": {"duplicate": 2}, "unreadable": {"short": 1},
            "queued": 0, "entries": {"buffered": 0}, "postcards": {"buffered": 0}, "collectors": [collector],
        });
        let memory = json!({
            "kernel_drops": 3, "duplicates": 1, "dropped": {"sequence": 4}, "refused": {}, "executed": executed,
        });
        DtaCounters {
            translator: dta,
            memory,
        }
    }

    fn reported() -> DtaTotals {
        DtaTotals {
            operations: 15,
            sent: 14,
            unsent_operations: [("missing_value", 1), ("wrong_size", 0)].into(),
            columns: 64,
            reports: 12,
            retransmitted: 2,
            datagrams: 13,
            unsent: 1,
            flows: vec![FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1, 2)), 17)],
            ..DtaTotals::default()
        }
    }

    #[test]
    fn the_loss_budget_covers_switches_to_memory() {
        assert_eq!(
            counters(20).budget(&reported(), 1),
            "
By DTA the switches reported 15 operations and 64 columns of sketches in 13 datagrams; 2 of them were retransmissions, which the translator counts as duplicates.

STAGE       IN  OUT  DROPPED
switches    15   14        1  operations: missing_value 1
network     14   12        2  datagrams: socket_buffer_full 1, unsent 1
translator  12    9        3  reports: duplicate 2, short 1
memory      30   20       10  RoCEv2 packets: duplicates 1, sequence 4, socket_buffer_full 3, unsent 2

The memory has the last path of 1 of 1 flow, and of the DTA reports every one is accounted for.
"
        );
        for (counters, reported) in [
            (counters(19), reported()),
            (
                counters(20),
                DtaTotals {
                    operations: 16,
                    ..reported()
                },
            ),
            (
                counters(20),
                DtaTotals {
                    datagrams: 14,
                    ..reported()
                },
            ),
            (
                counters(20),
                DtaTotals {
                    retransmitted: 3,
                    ..reported()
                },
            ),
            (
                counters(20),
                DtaTotals {
                    operations: 16,
                    pending: 1,
                    ..reported()
                },
            ),
        ] {
            let budget = counters.budget(&reported, 1);
            assert!(
                budget.ends_with("of the DTA reports the difference is unexplained.\n"),
                "{budget}"
            );
        }
    }

    #[test]
    fn control_sockets_share_a_port_and_have_an_address_each() {
        let sockets = ControlSockets::open(&[101, 102, 201]).unwrap();
        let all: Vec<_> = sockets
            .by_node
            .iter()
            .map(|(_, sockets)| sockets.control_address().to_string())
            .collect();
        let port = sockets.port;
        assert_eq!(
            all,
            ["101", "102", "201"].map(|last| format!("127.0.0.{last}:{port}"))
        );
    }
}
