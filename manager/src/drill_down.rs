//! Drill-downs: short-lived intents with more detail, installed automatically for flows whose rule became true.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use crate::compile::Refusal;
use crate::device::NodeId;
use crate::flows::{FlowMatch, Flows};
use crate::intent::{At, Intent, Reporting, Scope, Then};

const MINUTE: u64 = 60_000_000_000;

/// Limits of the number, rate and duration of drill-downs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Upper limit of active drill-downs.
    pub at_once: usize,
    /// Upper limit of drill-downs that start within a minute.
    pub per_minute: usize,
    /// Longest duration of a drill-down, ns.
    pub longest: u64,
    /// Upper limit of the flows of one drill-down. For a queue, the flows with the most packets are selected.
    pub flows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            at_once: 16,
            per_minute: 30,
            longest: 600_000_000_000,
            flows: 64,
        }
    }
}

/// A queue: node, egress interface, and the queue's number if the node reports it.
pub type Queue = (NodeId, u32, Option<u8>);

/// A rule that became true for a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firing {
    /// Flow of the report.
    pub flow: FlowMatch,
    /// Edge devices where the flows enter the network; empty if unknown.
    pub at: Vec<NodeId>,
    /// The queue, for [`Scope::Queue`]; `None` if unknown.
    pub queue: Option<Queue>,
    /// Flows through the queue, for [`Scope::Queue`], in descending order of packets.
    pub through: Vec<FlowMatch>,
}

/// The reason for not starting a drill-down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The intent has no `then`, the intent does not exist, or another manager is active.
    NotAsked,
    /// This drill-down is already active for the same reason; its end was postponed.
    Prolonged(String),
    /// [`Limits::at_once`] drill-downs are active.
    TooMany,
    /// [`Limits::per_minute`] drill-downs have started within a minute.
    TooOften,
    /// The intent compiler refuses the intent.
    Refused(Refusal),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("the intent has no `then`"),
            Self::Prolonged(name) => write!(f, "{name} is active for the same reason and was prolonged"),
            Self::TooMany => {
                f.write_str("too many drill-downs are active; they end by themselves, or raise the limit")
            }
            Self::TooOften => f.write_str(
                "too many drill-downs started within a minute; make the rule stricter, or raise the limit",
            ),
            Self::Refused(refusal) => write!(f, "{refusal}"),
        }
    }
}

/// The reason for a drill-down. Firing again for the same reason prolongs it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// A rule fired for these flows.
    Flows(Flows),
    /// A rule fired for a flow through this queue.
    Queue(Queue),
}

#[derive(Clone, Debug)]
struct Active {
    end: u64,
    parent: String,
    cause: Cause,
}

/// The active drill-downs, with their limits.
#[derive(Clone, Debug, Default)]
pub struct DrillDown {
    limits: Limits,
    active: BTreeMap<String, Active>,
    /// Start times within the last minute, ns, for [`Limits::per_minute`].
    starts: VecDeque<u64>,
    /// Number for the next name.
    count: u64,
}

impl DrillDown {
    /// Creates a tracker without active drill-downs.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Checks whether the fired rule of `intent` may start a drill-down. [`Firing::through`] may still be empty.
    ///
    /// # Errors
    /// The same [`Denied`] reasons as [`DrillDown::fire`].
    pub fn admit(&mut self, intent: &Intent, firing: &Firing, now: u64) -> Result<(), Denied> {
        let then = intent.reporting.then.as_ref().ok_or(Denied::NotAsked)?;
        let cause = cause(then.scope, firing);
        let same = self
            .active
            .iter_mut()
            .find(|(_, active)| active.parent == intent.name && active.cause == cause);
        if let Some((name, active)) = same {
            active.end = active.end.max(self.limits.end(then, now));
            return Err(Denied::Prolonged(name.clone()));
        }
        while self.starts.front().is_some_and(|start| *start + MINUTE <= now) {
            self.starts.pop_front();
        }
        if self.active.len() >= self.limits.at_once {
            return Err(Denied::TooMany);
        }
        if self.starts.len() >= self.limits.per_minute {
            return Err(Denied::TooOften);
        }
        Ok(())
    }

    /// Returns the intent to install for a fired rule of `intent`. `edges` are the names of the devices [`Firing::at`];
    /// `is_free` returns whether a name is not in use.
    ///
    /// # Errors
    /// [`Denied`] if no drill-down may start. The caller counts and shows each such case.
    pub fn fire(
        &mut self,
        intent: &Intent,
        firing: &Firing,
        edges: Vec<String>,
        is_free: impl Fn(&str) -> bool,
        now: u64,
    ) -> Result<Intent, Denied> {
        self.admit(intent, firing, now)?;
        let then = intent.reporting.then.as_ref().ok_or(Denied::NotAsked)?;
        let (flows, both_directions) = self.flows(then.scope, firing);
        let base: String = intent.name.chars().take(40).collect();
        let name = loop {
            self.count += 1;
            let name = format!("{base}.drill-{}", self.count);
            if is_free(&name) {
                break name;
            }
        };
        self.starts.push_back(now);
        let active = Active {
            end: self.limits.end(then, now),
            parent: intent.name.clone(),
            cause: cause(then.scope, firing),
        };
        self.active.insert(name.clone(), active);
        Ok(Intent {
            name,
            flows,
            both_directions,
            watch: then.watch.clone(),
            mode: intent.mode,
            sample: 1,
            at: At { edges, between: None },
            reporting: Reporting::default(),
            budget: crate::budget::Budget::default(),
            until: None,
            priority: intent.priority,
        })
    }

    /// Ends the drill-downs whose time is over and returns the names of the intents to remove.
    pub fn expire(&mut self, now: u64) -> Vec<String> {
        let ended = self
            .active
            .iter()
            .filter(|(_, active)| active.end <= now)
            .map(|(name, _)| name.clone());
        let ended: Vec<String> = ended.collect();
        ended.iter().for_each(|name| self.remove(name));
        ended
    }

    /// Ends a drill-down before its time is over.
    pub fn remove(&mut self, name: &str) {
        self.active.remove(name);
    }

    /// Returns the active drill-downs, each with its parent intent.
    pub fn active(&self) -> impl Iterator<Item = (&str, &str)> {
        self.active
            .iter()
            .map(|(name, active)| (name.as_str(), active.parent.as_str()))
    }

    /// Returns the end of a drill-down, ns, or `None` if it is not active.
    pub fn end(&self, name: &str) -> Option<u64> {
        self.active.get(name).map(|active| active.end)
    }

    /// Returns the time at which the next drill-down ends, ns.
    pub fn next_timeout(&self) -> Option<u64> {
        self.active.values().map(|active| active.end).min()
    }

    /// Returns the flows to measure, and whether in both directions.
    fn flows(&self, scope: Scope, firing: &Firing) -> (Flows, bool) {
        match scope {
            Scope::Flow => (only(&firing.flow, true), false),
            Scope::Path => (only(&firing.flow, false), true),
            Scope::Queue => {
                // An intent selects the product of its lists, so a set of flows is approximated by its destinations.
                let mut dst: Vec<_> = firing
                    .through
                    .iter()
                    .take(self.limits.flows)
                    .filter_map(|key| key.dst)
                    .collect();
                dst.sort_unstable();
                dst.dedup();
                if dst.is_empty() {
                    return (only(&firing.flow, false), false);
                }
                let whole = Flows {
                    dst,
                    ..Flows::default()
                };
                (whole, false)
            }
        }
    }
}

impl Limits {
    /// Returns the end, ns, of a drill-down that begins now.
    fn end(&self, then: &Then, now: u64) -> u64 {
        now.saturating_add(then.length.min(self.longest))
    }
}

fn cause(scope: Scope, firing: &Firing) -> Cause {
    match (scope, firing.queue) {
        (Scope::Queue, Some(queue)) => Cause::Queue(queue),
        (Scope::Queue | Scope::Path, _) => Cause::Flows(only(&firing.flow, false)),
        (Scope::Flow, _) => Cause::Flows(only(&firing.flow, true)),
    }
}

/// Returns flows for exactly this key; without ports and protocol if `ports` is false.
fn only(key: &FlowMatch, ports: bool) -> Flows {
    let addresses = Flows {
        src: key.src.into_iter().collect(),
        dst: key.dst.into_iter().collect(),
        ..Flows::default()
    };
    if !ports {
        return addresses;
    }
    Flows {
        sport: vec![key.sport],
        dport: vec![key.dport],
        proto: key.proto.into_iter().collect(),
        ..addresses
    }
}

#[cfg(test)]
mod tests {
    use detect::Metric;

    use super::*;

    const S: u64 = 1_000_000_000;

    fn intent(scope: Scope) -> Intent {
        let then = Then {
            watch: [Metric::QueueOccupancy].into(),
            scope,
            length: 30 * S,
        };
        let reporting = Reporting {
            rule: Some("hops > 1".to_owned()),
            then: Some(then),
            ..Reporting::default()
        };
        Intent {
            name: "slow".to_owned(),
            watch: [Metric::HopLatency].into(),
            reporting,
            ..Intent::default()
        }
    }

    fn firing(host: u8) -> Firing {
        let address = |last| Some(std::net::IpAddr::from([10, 0, 0, last]).into());
        let flow = FlowMatch {
            src: address(host),
            dst: address(99),
            dport: (80, 80),
            proto: Some(6),
            ..FlowMatch::default()
        };
        Firing {
            flow,
            through: vec![flow],
            ..Firing::default()
        }
    }

    fn fire(
        drill_down: &mut DrillDown,
        intent: &Intent,
        firing: &Firing,
        now: u64,
    ) -> Result<Intent, Denied> {
        drill_down.fire(intent, firing, Vec::new(), |name| name != "slow.drill-9", now)
    }

    #[test]
    fn a_rule_that_fires_installs_detail_for_a_while() {
        let mut drill_down = DrillDown::new(Limits::default());
        let made = fire(&mut drill_down, &intent(Scope::Flow), &firing(1), S).unwrap();
        assert_eq!(
            (made.name.as_str(), drill_down.end("slow.drill-1")),
            ("slow.drill-1", Some(31 * S))
        );
        assert_eq!(
            drill_down.active().collect::<Vec<_>>(),
            [("slow.drill-1", "slow")]
        );
        assert_eq!(made.entries().unwrap(), [firing(1).flow]);
        assert_eq!(made.check(S), Ok(()));
        // The same again prolongs it.
        let again = fire(&mut drill_down, &intent(Scope::Flow), &firing(1), 11 * S);
        assert_eq!(again, Err(Denied::Prolonged("slow.drill-1".to_owned())));
        assert_eq!(drill_down.expire(31 * S), Vec::<String>::new());
        assert_eq!(drill_down.next_timeout(), Some(41 * S));
        assert_eq!(drill_down.expire(41 * S), ["slow.drill-1"]);
    }

    #[test]
    fn scopes_widen_the_flows() {
        let mut drill_down = DrillDown::new(Limits::default());
        let path = fire(&mut drill_down, &intent(Scope::Path), &firing(1), S).unwrap();
        assert_eq!((path.entries().unwrap().len(), path.flows.dport), (2, vec![]));
        let full = Firing {
            queue: Some((7, 1, None)),
            ..firing(1)
        };
        let queue = fire(&mut drill_down, &intent(Scope::Queue), &full, S).unwrap();
        assert_eq!((queue.flows.src, queue.flows.dst.len()), (vec![], 1));
        // Another flow through the same queue is the same reason.
        let other = Firing {
            queue: Some((7, 1, None)),
            ..firing(2)
        };
        let again = fire(&mut drill_down, &intent(Scope::Queue), &other, S);
        assert_eq!(again, Err(Denied::Prolonged("slow.drill-2".to_owned())));
    }

    #[test]
    fn there_are_limits() {
        let limits = Limits {
            at_once: 2,
            per_minute: 3,
            ..Limits::default()
        };
        let mut drill_down = DrillDown {
            count: 7,
            ..DrillDown::new(limits)
        };
        let name = |drill_down: &mut DrillDown, host, now| {
            fire(drill_down, &intent(Scope::Flow), &firing(host), now).map(|made| made.name)
        };
        let named = |number| Ok(format!("slow.drill-{number}"));
        // An intent of somebody else has the second name.
        assert_eq!(
            [name(&mut drill_down, 1, 0), name(&mut drill_down, 2, 0)],
            [named(8), named(10)]
        );
        assert_eq!(name(&mut drill_down, 3, 0), Err(Denied::TooMany));
        drill_down.expire(30 * S);
        assert_eq!(name(&mut drill_down, 3, 30 * S), named(11));
        assert_eq!(name(&mut drill_down, 4, 31 * S), Err(Denied::TooOften));
        assert_eq!(name(&mut drill_down, 4, 61 * S), named(12));
        let plain = Intent {
            reporting: Reporting::default(),
            ..intent(Scope::Flow)
        };
        assert_eq!(
            fire(&mut drill_down, &plain, &firing(1), 61 * S),
            Err(Denied::NotAsked)
        );
    }
}
