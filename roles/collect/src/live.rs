//! Live streams of the API: telemetry events and manager changes for subscribed clients, each behind a bounded queue.
//!
//! A client that reads too slowly loses events, is told how many, and does not affect the others. An event is serialised once,
//! and only if at least one client with a matching filter has room in its queue.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use collector::{
    Batch, Event,
    event::{FirstValues, Kind},
};
use detect::Match;
use filter::Facts;
use settings::values::Secret;
use store::facts;
use tokio::sync::mpsc::{self, error::TrySendError};
use wire::FlowKey;

use runtime::{
    lock::lock,
    monitor::{MAX_COUNTED_FLOWS, RuleOn, StreamMessage},
};
use view::{EventView, ReasonNames, StreamsView};

/// Maximum number of filter tests of all clients together: each event runs them on its way to the store.
const MAX_TESTS: usize = 256;

/// A client's filter. Absent fields match everything.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Filter {
    /// Only events of this kind.
    pub kind: Option<Kind>,
    /// Only events of this node.
    pub node: Option<u32>,
    /// Only events of this flow.
    pub flow: Option<FlowKey>,
    /// Only events for which this filter holds.
    pub condition: Option<Arc<filter::Filter>>,
}

impl Filter {
    fn wants(&self, event: &Event, facts: &Facts<'_>) -> bool {
        self.kind.is_none_or(|kind| event.kind == kind)
            && (self.node.is_none() || event.node == self.node)
            && (self.flow.is_none() || event.flow == self.flow)
            && self
                .condition
                .as_ref()
                .is_none_or(|condition| condition.matches(facts))
    }
}

/// The subject of a client's subscription.
#[derive(Clone, PartialEq, Debug)]
pub enum Topic {
    /// Telemetry events that pass this filter.
    Events(Filter),
    /// Changes at the manager.
    Manager,
}

impl Topic {
    fn tests(&self) -> usize {
        match self {
            Self::Events(filter) => filter.condition.as_ref().map_or(0, |condition| condition.tests()),
            Self::Manager => 0,
        }
    }

    fn wants(&self, event: &Event, facts: &Facts<'_>) -> bool {
        matches!(self, Self::Events(filter) if filter.wants(event, facts))
    }
}

/// The manager's subscription: rules that become true, and counts of events.
#[derive(Debug, Default)]
struct Follower {
    rules: BTreeSet<String>,
    queue: Option<mpsc::Sender<RuleOn>>,
    missed: u64,
    /// Groups of flows whose events are counted, such as the flows of an intent.
    counted: Vec<Counted>,
}

/// A named group of flows, with the number of its events so far.
#[derive(Debug)]
struct Counted {
    name: String,
    flows: Vec<Match>,
    events: u64,
}

impl Follower {
    /// Counts the events of the followed flows, and queues the rules that became true.
    fn publish(&mut self, batch: &Batch, rules: &[String]) {
        if !self.counted.is_empty() {
            for flow in batch.events().filter_map(|(event, _)| event.flow) {
                for counted in &mut self.counted {
                    counted.events += u64::from(counted.flows.iter().any(|flows| flows.matches(&flow)));
                }
            }
        }
        let Some(queue) = self.queue.as_ref().filter(|_| !self.rules.is_empty()) else {
            return;
        };
        for (event, _) in batch.events().filter(|(event, _)| event.kind == Kind::RuleOn) {
            let rule = event.rule.and_then(|index| rules.get(usize::from(index)));
            let Some((rule, flow)) = rule.filter(|rule| self.rules.contains(*rule)).zip(event.flow) else {
                continue;
            };
            self.missed += u64::from(
                queue
                    .try_send(RuleOn {
                        rule: rule.clone(),
                        flow,
                    })
                    .is_err(),
            );
        }
    }
}

/// Distributes events to the clients of the live streams.
#[derive(Debug)]
pub struct Hub {
    clients: Mutex<Clients>,
    follower: Mutex<Follower>,
    max_clients: usize,
    queue: usize,
    reasons: ReasonNames,
}

#[derive(Debug, Default)]
struct Clients {
    list: Vec<Client>,
    sent: u64,
    shed: u64,
    /// Number of manager subscriptions since the start.
    manager: u64,
}

#[derive(Debug)]
struct Client {
    topic: Topic,
    /// The API token with which the client subscribed.
    token: Option<Secret>,
    queue: mpsc::Sender<StreamMessage>,
    shed: Arc<AtomicU64>,
}

/// The outcome of offering a message to a client.
enum Offered {
    Sent,
    Shed,
    Closed,
}

impl Client {
    /// Queues a message. If the queue is full, counts it as missed instead; the client is told the number.
    fn offer(&self, message: impl FnOnce() -> StreamMessage) -> Offered {
        match self.queue.try_reserve() {
            Ok(permit) => {
                permit.send(message());
                Offered::Sent
            }
            Err(TrySendError::Full(())) => {
                // Relaxed: see `drain_shed`.
                self.shed.fetch_add(1, Ordering::Relaxed);
                Offered::Shed
            }
            Err(TrySendError::Closed(())) => Offered::Closed,
        }
    }
}

/// The client's end of a stream.
#[derive(Debug)]
pub struct Subscription {
    /// Receives the messages of the topic.
    pub events: mpsc::Receiver<StreamMessage>,
    shed: Arc<AtomicU64>,
}

impl Subscription {
    /// Returns the number of events that found the queue full since the last call.
    pub fn drain_shed(&self) -> u64 {
        // Relaxed: an independent counter.
        self.shed.swap(0, Ordering::Relaxed)
    }
}

impl Hub {
    /// Creates a hub for at most `max_clients` clients, each with a queue of `queue` messages. `reasons` names drop reasons.
    pub fn new(max_clients: usize, queue: usize, reasons: ReasonNames) -> Self {
        Self {
            clients: Mutex::default(),
            follower: Mutex::default(),
            max_clients,
            queue: queue.max(1),
            reasons,
        }
    }

    /// Subscribes a client with its token. Returns `None` if there are too many clients or too many tests in their filters.
    pub fn subscribe(&self, topic: Topic, token: Option<Secret>) -> Option<Subscription> {
        let mut clients = self.clients();
        clients.list.retain(|client| !client.queue.is_closed());
        let tests = topic.tests()
            + clients
                .list
                .iter()
                .map(|client| client.topic.tests())
                .sum::<usize>();
        if clients.list.len() >= self.max_clients || topic.tests() > 0 && tests > MAX_TESTS {
            return None;
        }
        let (queue, events) = mpsc::channel(self.queue);
        let shed = Arc::new(AtomicU64::new(0));
        clients.manager += u64::from(topic == Topic::Manager);
        clients.list.push(Client {
            topic,
            token,
            queue,
            shed: Arc::clone(&shed),
        });
        Some(Subscription { events, shed })
    }

    /// Offers the events of a batch to all clients. `rules` are the rule names with which the batch was filled. Never blocks.
    pub fn publish(&self, batch: &Batch, rules: &[String]) {
        lock(&self.follower).publish(batch, rules);
        let mut clients = self.clients();
        if clients.list.is_empty() {
            return;
        }
        let Clients { list, sent, shed, .. } = &mut *clients;
        for (event, path, first) in batch.events_with_first_values() {
            let mut text: Option<Arc<str>> = None;
            let rule = event
                .rule
                .and_then(|index| rules.get(usize::from(index)))
                .map(String::as_str);
            let flow_text = OnceCell::new();
            let facts = Facts {
                flow_text: Some(&flow_text),
                ..facts::from_event(event, rule, path, first)
            };
            for client in list.iter().filter(|client| client.topic.wants(event, &facts)) {
                match client.offer(|| StreamMessage {
                    name: None,
                    text: Arc::clone(
                        text.get_or_insert_with(|| as_json(event, path, first, rules, &self.reasons)),
                    ),
                }) {
                    Offered::Sent => *sent += 1,
                    Offered::Shed => *shed += 1,
                    Offered::Closed => {}
                }
            }
        }
        list.retain(|client| !client.queue.is_closed());
    }

    /// Starts to queue the followed rules ([`Hub::set_followed`]) that become true. A second follower replaces the first.
    pub fn follow_rules(&self, queue: usize) -> mpsc::Receiver<RuleOn> {
        let (sender, receiver) = mpsc::channel(queue);
        lock(&self.follower).queue = Some(sender);
        receiver
    }

    /// Sets the names of the rules to follow.
    pub fn set_followed(&self, rules: BTreeSet<String>) {
        lock(&self.follower).rules = rules;
    }

    /// Sets the groups of flows whose events are counted, and returns the totals by name. A group counts from its first
    /// mention on, as long as its flows stay the same. Groups that exceed the limit on flows are not counted.
    pub fn counted_events<'a>(
        &self,
        wanted: impl Iterator<Item = (&'a str, &'a [Match])>,
    ) -> BTreeMap<String, u64> {
        let follower = &mut *lock(&self.follower);
        let mut old = std::mem::take(&mut follower.counted);
        let mut room = MAX_COUNTED_FLOWS;
        for (name, flows) in wanted {
            let Some(left) = room.checked_sub(flows.len()) else {
                continue;
            };
            room = left;
            let known = old.iter_mut().find(|one| one.name == name && one.flows == flows);
            follower.counted.push(match known {
                Some(known) => Counted {
                    flows: std::mem::take(&mut known.flows),
                    name: name.to_owned(),
                    ..*known
                },
                None => Counted {
                    name: name.to_owned(),
                    flows: flows.to_vec(),
                    events: 0,
                },
            });
        }
        follower
            .counted
            .iter()
            .map(|one| (one.name.clone(), one.events))
            .collect()
    }

    /// Returns the number of followed rules that became true and found the queue full since the last call.
    pub fn drain_missed_rules(&self) -> u64 {
        std::mem::take(&mut lock(&self.follower).missed)
    }

    /// Returns the number of manager subscriptions so far, or `None` if none is open.
    pub fn manager_clients(&self) -> Option<u64> {
        let clients = self.clients();
        let has_one = clients
            .list
            .iter()
            .any(|client| client.topic == Topic::Manager && !client.queue.is_closed());
        has_one.then_some(clients.manager)
    }

    /// Offers a change at the manager to its subscribers. Never blocks.
    pub fn publish_change(&self, message: &StreamMessage) {
        let mut clients = self.clients();
        let Clients { list, sent, shed, .. } = &mut *clients;
        for client in list.iter().filter(|client| client.topic == Topic::Manager) {
            match client.offer(|| message.clone()) {
                Offered::Sent => *sent += 1,
                Offered::Shed => *shed += 1,
                Offered::Closed => {}
            }
        }
        list.retain(|client| !client.queue.is_closed());
    }

    /// Ends the streams of clients whose token is no longer valid, after the messages already queued for them.
    pub fn retain(&self, admits: impl Fn(Option<&Secret>) -> bool) {
        self.clients().list.retain(|client| admits(client.token.as_ref()));
    }

    /// Ends all streams, after the messages already queued.
    pub fn close(&self) {
        self.clients().list.clear();
        lock(&self.follower).queue = None;
    }

    /// Returns the counters of all streams.
    pub fn stats(&self) -> StreamsView {
        let clients = self.clients();
        let open = clients
            .list
            .iter()
            .filter(|client| !client.queue.is_closed())
            .count();
        StreamsView {
            clients: open as u64,
            sent: clients.sent,
            shed: clients.shed,
        }
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        // The list is valid after each statement, so a poisoned lock is harmless.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn as_json(
    event: &Event,
    nodes: &[u32],
    first: Option<FirstValues<'_>>,
    rules: &[String],
    reasons: &ReasonNames,
) -> Arc<str> {
    let rule = event.rule.and_then(|index| rules.get(usize::from(index)));
    let view = EventView::new(event, rule.map(String::as_str), nodes, first, reasons);
    // A plain struct of numbers and texts always has a JSON form.
    serde_json::to_string(&view).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use collector::{Output, event::Basis};

    use super::*;

    fn event(kind: Kind, node: u32) -> Event {
        Event {
            ts: 1,
            id: 2,
            kind,
            metric: None,
            flow: None,
            node: Some(node),
            interface: None,
            queue: None,
            value: None,
            previous: None,
            threshold: None,
            rule: Some(0),
            reason: Some(7),
            basis: Basis::Measured,
        }
    }

    fn batch(events: &[Event]) -> Batch {
        let mut batch = Batch::with_capacity(16);
        events.iter().for_each(|event| batch.event(event, &[7, u32::MAX]));
        batch
    }

    #[test]
    fn events_of_flows_are_counted_by_name_within_bounds() {
        let hub = Hub::new(0, 1, ReasonNames::default());
        let to = |port: &str| Match {
            dst_port: port.parse().unwrap(),
            ..Match::default()
        };
        let flow = |port| FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1, port)), 17);
        let of = |port| Event {
            flow: Some(flow(port)),
            ..event(Kind::RuleOn, 7)
        };
        let (web, all, many) = ([to("80")], [Match::default()], vec![Match::default(); 1024]);
        let counted = |names: &[(&str, &[Match])]| {
            let counts = hub.counted_events(names.iter().copied());
            names
                .iter()
                .map(|(name, _)| counts.get(*name).copied())
                .collect::<Vec<_>>()
        };
        assert_eq!(counted(&[("web", &web)]), [Some(0)]);
        hub.publish(&batch(&[of(80), of(81), event(Kind::RuleOn, 7)]), &[]);
        assert_eq!(
            counted(&[("web", &web), ("all", &all), ("many", &many)]),
            [Some(1), Some(0), None]
        );
        hub.publish(&batch(&[of(80), of(81)]), &[]);
        assert_eq!(counted(&[("web", &web), ("all", &all)]), [Some(2), Some(2)]);
        // Other flows count anew.
        assert_eq!(counted(&[("web", &all)]), [Some(0)]);
    }

    #[test]
    fn filters_of_all_clients_have_a_bounded_number_of_tests() {
        let hub = Hub::new(9, 8, ReasonNames::default());
        let of = |text: &str| {
            let filter = filter::Filter::parse(text, filter::View::Events, &filter::no_names).unwrap();
            Topic::Events(Filter {
                condition: Some(Arc::new(filter)),
                ..Filter::default()
            })
        };
        let many = vec!["flow ~ x"; MAX_TESTS / 2].join(" or ");
        let mut drops = hub
            .subscribe(of("kind == drop and node in (7, 8)"), None)
            .unwrap();
        let first = hub.subscribe(of(&many), None);
        assert!(first.is_some() && hub.subscribe(of(&many), None).is_none());
        assert!(
            hub.subscribe(Topic::Events(Filter::default()), None).is_some(),
            "without a filter"
        );
        hub.publish(
            &batch(&[event(Kind::Drop, 7), event(Kind::Drop, 9), event(Kind::RuleOn, 8)]),
            &[],
        );
        assert!(drops.events.try_recv().unwrap().text.contains("\"node\":7"));
        assert!(drops.events.try_recv().is_err());
        drop(first);
        assert!(
            hub.subscribe(of(&many), None).is_some(),
            "when another one has gone"
        );
    }

    #[test]
    fn followed_rules_that_become_true_are_queued_and_others_are_not() {
        let hub = Hub::new(0, 1, ReasonNames::default());
        let mut queue = hub.follow_rules(1);
        let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1, 2)), 17);
        let of = |kind, rule| Event {
            flow: Some(flow),
            rule: Some(rule),
            ..event(kind, 7)
        };
        let rules = ["a".to_owned(), "b".to_owned()];
        hub.publish(&batch(&[of(Kind::RuleOn, 1)]), &rules);
        hub.set_followed(["b".to_owned()].into());
        // The second one finds the queue full; one of another name, or that became false, is nothing.
        let kinds = [
            (Kind::RuleOn, 0),
            (Kind::RuleOff, 1),
            (Kind::RuleOn, 1),
            (Kind::RuleOn, 1),
        ];
        hub.publish(&batch(&kinds.map(|(kind, rule)| of(kind, rule))), &rules);
        assert_eq!(
            queue.try_recv(),
            Ok(RuleOn {
                rule: "b".to_owned(),
                flow
            })
        );
        assert_eq!((hub.drain_missed_rules(), hub.drain_missed_rules()), (1, 0));
        assert!(queue.try_recv().is_err());
    }

    #[test]
    fn a_client_gets_what_it_wants_with_the_rules_name() {
        let hub = Hub::new(2, 8, [(7, "tail drop".to_owned())].into());
        let mut all = hub.subscribe(Topic::Events(Filter::default()), None).unwrap();
        let mut drops = hub
            .subscribe(
                Topic::Events(Filter {
                    kind: Some(Kind::Drop),
                    node: Some(7),
                    ..Filter::default()
                }),
                None,
            )
            .unwrap();
        hub.publish(
            &batch(&[event(Kind::RuleOn, 7), event(Kind::Drop, 8), event(Kind::Drop, 7)]),
            &["slow".into()],
        );
        let first = all.events.try_recv().unwrap();
        let expected = r#"{"ts":1,"id":"0000000000000002","kind":"rule_on","metric":null,"flow":null,"text":null,"node":7,"interface":null,"queue":null,"value":null,"previous":null,"threshold":null,"rule":"slow","reason":7,"reason_name":"tail drop","basis":"measured","path":[7,null]}"#;
        assert_eq!((first.name, &*first.text), (None, expected));
        assert!(
            drops
                .events
                .try_recv()
                .unwrap()
                .text
                .contains(r#""kind":"drop","metric":null,"flow":null,"text":null,"node":7"#)
        );
        assert!(drops.events.try_recv().is_err());
        assert_eq!(
            hub.stats(),
            StreamsView {
                clients: 2,
                sent: 4,
                shed: 0
            }
        );
    }

    #[test]
    fn a_slow_client_is_shed_and_notified_while_the_others_get_everything() {
        let hub = Hub::new(2, 2, ReasonNames::new());
        let slow = hub.subscribe(Topic::Events(Filter::default()), None).unwrap();
        hub.publish(&batch(&[event(Kind::New, 1); 5]), &[]);
        let mut quick = hub.subscribe(Topic::Events(Filter::default()), None).unwrap();
        hub.publish(&batch(&[event(Kind::New, 1)]), &[]);
        assert_eq!((slow.drain_shed(), slow.drain_shed()), (4, 0));
        assert_eq!((quick.drain_shed(), quick.events.try_recv().is_ok()), (0, true));
        assert_eq!(
            hub.stats(),
            StreamsView {
                clients: 2,
                sent: 3,
                shed: 4
            }
        );
    }

    #[test]
    fn a_connection_above_the_maximum_is_refused_until_one_closes() {
        let hub = Hub::new(1, 1, ReasonNames::new());
        let first = hub.subscribe(Topic::Events(Filter::default()), None);
        assert!(hub.subscribe(Topic::Events(Filter::default()), None).is_none());
        drop(first);
        assert!(hub.subscribe(Topic::Events(Filter::default()), None).is_some());
    }

    #[test]
    fn clients_of_the_manager_get_its_changes_and_no_telemetry() {
        let hub = Hub::new(2, 1, ReasonNames::new());
        assert_eq!(hub.manager_clients(), None);
        let mut telemetry = hub.subscribe(Topic::Events(Filter::default()), None).unwrap();
        let mut manager = hub.subscribe(Topic::Manager, None).unwrap();
        assert_eq!(hub.manager_clients(), Some(1));
        hub.publish(&batch(&[event(Kind::New, 1)]), &[]);
        let change = StreamMessage {
            name: Some("device"),
            text: "{}".into(),
        };
        hub.publish_change(&change);
        hub.publish_change(&change);
        assert_eq!(telemetry.events.try_recv().unwrap().name, None);
        assert!(telemetry.events.try_recv().is_err());
        assert_eq!((manager.events.try_recv(), manager.drain_shed()), (Ok(change), 1));
        assert_eq!(
            hub.stats(),
            StreamsView {
                clients: 2,
                sent: 2,
                shed: 1
            }
        );
        drop(manager);
        assert_eq!(hub.manager_clients(), None);
    }
}
