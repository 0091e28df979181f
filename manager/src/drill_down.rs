//! Short-lived intents with more detail, installed by themselves where a rule became true, and removed by themselves.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use crate::flows::{FlowKey, Flows};
use crate::intent::{At, Intent, Scope, Tell, Until};

/// How many, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Drill-downs at a time.
    pub at_once: usize,
    /// Drill-downs that start within a minute.
    pub per_minute: usize,
    /// Longest duration, ns.
    pub longest: u64,
    /// Flows of one drill-down: of a queue, those with the most packets.
    pub flows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { at_once: 16, per_minute: 30, longest: 600_000_000_000, flows: 64 }
    }
}

/// A rule that became true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing {
    /// The flow of the report.
    pub flow: FlowKey,
    /// For [`Scope::Queue`]: the flows that pass the queue, those with the most packets first.
    pub queue: Vec<FlowKey>,
}

/// Why there is no drill-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The intent has none.
    NotAsked,
    /// The same one is active: its end was postponed.
    Prolonged,
    /// [`Limits::at_once`] are active.
    TooMany,
    /// [`Limits::per_minute`] have started.
    TooOften,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAsked => "the intent has no `then`",
            Self::Prolonged => "the same drill-down is active and was prolonged",
            Self::TooMany => "too many drill-downs are active; they end by themselves, or raise the limit",
            Self::TooOften => {
                "too many drill-downs started within a minute; make the rule rarer, or raise the limit"
            }
        })
    }
}

/// An active drill-down.
#[derive(Clone, Debug)]
struct Active {
    end: u64,
    cause: (String, Flows),
}

/// The active drill-downs.
#[derive(Clone, Debug, Default)]
pub struct DrillDown {
    limits: Limits,
    active: BTreeMap<String, Active>,
    starts: VecDeque<u64>,
    count: u64,
}

const MINUTE: u64 = 60_000_000_000;

impl DrillDown {
    /// No drill-down yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A rule of `intent` became true. Returns the intent to install.
    ///
    /// # Errors
    /// None is to be installed. Each such case is counted by the caller and shown.
    pub fn fire(&mut self, intent: &Intent, firing: &Firing, now: u64) -> Result<Intent, Denied> {
        let then = intent.tell.then.as_ref().ok_or(Denied::NotAsked)?;
        let length = then.length.min(self.limits.longest);
        let (flows, both_directions) = self.flows(then.scope, firing);
        let cause = (intent.name.clone(), flows.clone());
        let end = now.saturating_add(length);
        if let Some(active) = self.active.values_mut().find(|active| active.cause == cause) {
            active.end = end;
            return Err(Denied::Prolonged);
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
        self.count += 1;
        let base: String = intent.name.chars().take(40).collect();
        let name = format!("{base}.drill-{}", self.count);
        self.starts.push_back(now);
        self.active.insert(name.clone(), Active { end, cause });
        Ok(Intent {
            name,
            flows,
            both_directions,
            watch: then.watch.clone(),
            mode: intent.mode,
            sample: 1,
            at: At::default(),
            tell: Tell::default(),
            budget: None,
            until: Some(Until::At(end)),
            priority: intent.priority,
        })
    }

    /// The names of the drill-downs that have ended: remove these intents.
    pub fn expire(&mut self, now: u64) -> Vec<String> {
        let ended = self.active.iter().filter(|(_, active)| active.end <= now).map(|(name, _)| name.clone());
        let ended: Vec<String> = ended.collect();
        ended.iter().for_each(|name| drop(self.active.remove(name)));
        ended
    }

    /// When the next one ends, ns.
    pub fn next_timeout(&self) -> Option<u64> {
        self.active.values().map(|active| active.end).min()
    }

    fn flows(&self, scope: Scope, firing: &Firing) -> (Flows, bool) {
        let of = |key: &FlowKey, ports: bool| Flows {
            src: key.src.into_iter().collect(),
            dst: key.dst.into_iter().collect(),
            sport: if ports { vec![key.sport] } else { Vec::new() },
            dport: if ports { vec![key.dport] } else { Vec::new() },
            proto: key.proto.filter(|_| ports).into_iter().collect(),
            dscp: Vec::new(),
        };
        match scope {
            Scope::Flow => (of(&firing.flow, true), false),
            Scope::Path => (of(&firing.flow, false), true),
            Scope::Queue => {
                // An intent is a product of lists: the destinations of the flows through the queue.
                let mut dst: Vec<_> =
                    firing.queue.iter().take(self.limits.flows).filter_map(|key| key.dst).collect();
                dst.sort_unstable();
                dst.dedup();
                let whole = Flows { dst, ..Flows::default() };
                (if whole.dst.is_empty() { of(&firing.flow, false) } else { whole }, false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use detect::Metric;

    use super::*;
    use crate::intent::Then;

    const S: u64 = 1_000_000_000;

    fn intent(scope: Scope) -> Intent {
        let then = Then { watch: [Metric::QueueOccupancy].into(), scope, length: 30 * S };
        let tell = Tell { rule: Some("hops > 1".to_owned()), then: Some(then), ..Tell::default() };
        Intent { name: "slow".to_owned(), watch: [Metric::HopLatency].into(), tell, ..Intent::default() }
    }

    fn firing(host: u8) -> Firing {
        let address = |last| Some(std::net::IpAddr::from([10, 0, 0, last]).into());
        let flow = FlowKey {
            src: address(host),
            dst: address(99),
            dport: (80, 80),
            proto: Some(6),
            ..FlowKey::default()
        };
        Firing { flow, queue: vec![flow] }
    }

    #[test]
    fn a_rule_that_fires_installs_detail_for_a_while() {
        let mut drill_down = DrillDown::new(Limits::default());
        let made = drill_down.fire(&intent(Scope::Flow), &firing(1), S).unwrap();
        assert_eq!((made.name.as_str(), made.until), ("slow.drill-1", Some(Until::At(31 * S))));
        assert_eq!(made.entries().unwrap(), [firing(1).flow]);
        assert_eq!(made.check(S), Ok(()));
        // The same again prolongs it.
        assert_eq!(drill_down.fire(&intent(Scope::Flow), &firing(1), 11 * S), Err(Denied::Prolonged));
        assert_eq!(drill_down.expire(31 * S), Vec::<String>::new());
        assert_eq!(drill_down.next_timeout(), Some(41 * S));
        assert_eq!(drill_down.expire(41 * S), ["slow.drill-1"]);
    }

    #[test]
    fn scopes_widen_the_flows() {
        let mut drill_down = DrillDown::new(Limits::default());
        let path = drill_down.fire(&intent(Scope::Path), &firing(1), S).unwrap();
        assert_eq!((path.entries().unwrap().len(), path.flows.dport), (2, vec![]));
        let queue = drill_down.fire(&intent(Scope::Queue), &firing(1), S).unwrap();
        assert_eq!((queue.flows.src, queue.flows.dst.len()), (vec![], 1));
    }

    #[test]
    fn there_are_limits() {
        let limits = Limits { at_once: 2, per_minute: 3, ..Limits::default() };
        let mut drill_down = DrillDown::new(limits);
        let mut fire =
            |host, now| drill_down.fire(&intent(Scope::Flow), &firing(host), now).map(|made| made.name);
        assert_eq!([fire(1, 0), fire(2, 0)], [Ok("slow.drill-1".to_owned()), Ok("slow.drill-2".to_owned())]);
        assert_eq!(fire(3, 0), Err(Denied::TooMany));
        drill_down.expire(30 * S);
        let mut fire =
            |host, now| drill_down.fire(&intent(Scope::Flow), &firing(host), now).map(|made| made.name);
        assert_eq!(fire(3, 30 * S), Ok("slow.drill-3".to_owned()));
        assert_eq!(fire(4, 31 * S), Err(Denied::TooOften));
        assert_eq!(fire(4, 61 * S), Ok("slow.drill-4".to_owned()));
        let plain = Intent { tell: Tell::default(), ..intent(Scope::Flow) };
        assert_eq!(drill_down.fire(&plain, &firing(1), 61 * S), Err(Denied::NotAsked));
    }
}
