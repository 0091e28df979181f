//! The live stream: sends events to all subscribed clients, each through its own bounded queue.
//!
//! A client that reads too slowly loses events, is notified of their number, and does not affect the others: an event is serialised
//! only if its text can be queued for a client whose filter it passes.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use collector::{
    Batch, Event,
    event::{FirstValues, Kind},
};
use tokio::sync::mpsc::{self, error::TrySendError};
use wire::FlowKey;

use crate::view::{EventView, ReasonNames, StreamsView};

/// A client's filter. Absent fields match everything.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) kind: Option<Kind>,
    pub(crate) node: Option<u32>,
    pub(crate) flow: Option<FlowKey>,
}

impl Filter {
    fn wants(&self, event: &Event) -> bool {
        self.kind.is_none_or(|kind| event.kind == kind)
            && (self.node.is_none() || event.node == self.node)
            && (self.flow.is_none() || event.flow == self.flow)
    }
}

/// Passes events to the clients of the live stream.
#[derive(Debug)]
pub(crate) struct Hub {
    clients: Mutex<Clients>,
    max_clients: usize,
    queue: usize,
    reasons: ReasonNames,
}

#[derive(Debug, Default)]
struct Clients {
    list: Vec<Client>,
    sent: u64,
    shed: u64,
}

#[derive(Debug)]
struct Client {
    filter: Filter,
    queue: mpsc::Sender<Arc<str>>,
    shed: Arc<AtomicU64>,
}

/// A client's end.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Events as JSON.
    pub(crate) events: mpsc::Receiver<Arc<str>>,
    shed: Arc<AtomicU64>,
}

impl Subscription {
    /// Events that found the queue full since the last call.
    pub(crate) fn take_shed(&self) -> u64 {
        // Relaxed: an independent counter.
        self.shed.swap(0, Ordering::Relaxed)
    }
}

impl Hub {
    /// A hub for `max_clients`, each with a queue of `queue` events; `reasons` are names of drop reasons.
    pub(crate) fn new(max_clients: usize, queue: usize, reasons: ReasonNames) -> Self {
        Self { clients: Mutex::default(), max_clients, queue: queue.max(1), reasons }
    }

    /// A new client, or `None` when there are too many.
    pub(crate) fn subscribe(&self, filter: Filter) -> Option<Subscription> {
        let mut clients = self.clients();
        clients.list.retain(|client| !client.queue.is_closed());
        if clients.list.len() >= self.max_clients {
            return None;
        }
        let (queue, events) = mpsc::channel(self.queue);
        let shed = Arc::new(AtomicU64::new(0));
        clients.list.push(Client { filter, queue, shed: Arc::clone(&shed) });
        Some(Subscription { events, shed })
    }

    /// Offers the events of a batch to all clients. `rules` are the active names when the batch was filled. Never blocks.
    pub(crate) fn publish(&self, batch: &Batch, rules: &[String]) {
        let mut clients = self.clients();
        if clients.list.is_empty() {
            return;
        }
        let Clients { list, sent, shed } = &mut *clients;
        for (event, path, first) in batch.events_with_first_values() {
            let mut text: Option<Arc<str>> = None;
            for client in list.iter().filter(|client| client.filter.wants(event)) {
                match client.queue.try_reserve() {
                    Ok(permit) => {
                        let text =
                            text.get_or_insert_with(|| as_json(event, (path, first), rules, &self.reasons));
                        permit.send(Arc::clone(text));
                        *sent += 1;
                    }
                    Err(TrySendError::Full(())) => {
                        // Relaxed: see `take_shed`.
                        client.shed.fetch_add(1, Ordering::Relaxed);
                        *shed += 1;
                    }
                    Err(TrySendError::Closed(())) => {}
                }
            }
        }
        list.retain(|client| !client.queue.is_closed());
    }

    /// Ends every client's stream, after what is already queued for it.
    pub(crate) fn close(&self) {
        self.clients().list.clear();
    }

    /// The counters.
    pub(crate) fn stats(&self) -> StreamsView {
        let clients = self.clients();
        let open = clients.list.iter().filter(|client| !client.queue.is_closed()).count();
        StreamsView { clients: open as u64, sent: clients.sent, shed: clients.shed }
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        // The list is valid after each statement, so a panic elsewhere leaves it valid.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn as_json(
    event: &Event,
    path: (&[u32], Option<FirstValues<'_>>),
    rules: &[String],
    reasons: &ReasonNames,
) -> Arc<str> {
    let rule = event.rule.and_then(|index| rules.get(usize::from(index)));
    let view = EventView::new(event, rule.map(String::as_str), path, reasons);
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
    fn a_client_gets_what_it_wants_with_the_rules_name() {
        let hub = Hub::new(2, 8, [(7, "tail drop".to_owned())].into());
        let mut all = hub.subscribe(Filter::default()).unwrap();
        let mut drops = hub.subscribe(Filter { kind: Some(Kind::Drop), node: Some(7), flow: None }).unwrap();
        hub.publish(
            &batch(&[event(Kind::RuleOn, 7), event(Kind::Drop, 8), event(Kind::Drop, 7)]),
            &["slow".into()],
        );
        let first = all.events.try_recv().unwrap();
        let expected = r#"{"ts":1,"id":"0000000000000002","kind":"rule_on","metric":null,"flow":null,"text":null,"node":7,"interface":null,"queue":null,"value":null,"previous":null,"threshold":null,"rule":"slow","reason":7,"reason_name":"tail drop","basis":"measured","path":[7,null]}"#;
        assert_eq!(&*first, expected);
        assert!(
            drops
                .events
                .try_recv()
                .unwrap()
                .contains(r#""kind":"drop","metric":null,"flow":null,"text":null,"node":7"#)
        );
        assert!(drops.events.try_recv().is_err());
        assert_eq!(hub.stats(), StreamsView { clients: 2, sent: 4, shed: 0 });
    }

    #[test]
    fn a_slow_client_is_shed_and_notified_while_the_others_get_everything() {
        let hub = Hub::new(2, 2, ReasonNames::new());
        let slow = hub.subscribe(Filter::default()).unwrap();
        hub.publish(&batch(&[event(Kind::New, 1); 5]), &[]);
        let mut quick = hub.subscribe(Filter::default()).unwrap();
        hub.publish(&batch(&[event(Kind::New, 1)]), &[]);
        assert_eq!((slow.take_shed(), slow.take_shed()), (4, 0));
        assert_eq!((quick.take_shed(), quick.events.try_recv().is_ok()), (0, true));
        assert_eq!(hub.stats(), StreamsView { clients: 2, sent: 3, shed: 4 });
    }

    #[test]
    fn a_connection_above_the_maximum_is_refused_until_one_closes() {
        let hub = Hub::new(1, 1, ReasonNames::new());
        let first = hub.subscribe(Filter::default());
        assert!(hub.subscribe(Filter::default()).is_none());
        drop(first);
        assert!(hub.subscribe(Filter::default()).is_some());
    }
}
