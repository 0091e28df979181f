//! A driver and what it says, for tests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use manager::device::{Answer, Change, Command, DeviceEvent, Election, Etag, Request, State};
use manager::driver::Message;
use p4runtime::client::Peer;
use p4runtime::driver::{Driver, Settings};
use tokio::sync::mpsc;

use super::{local, shipped};

/// A term as managers have it, ns.
pub(crate) const TERM: u64 = 1_764_000_000_000_000;

/// A driver, and what it says.
pub(crate) struct Bench {
    driver: Driver,
    messages: mpsc::UnboundedReceiver<Message>,
    /// What was said besides answers.
    pub(crate) events: Vec<Message>,
    next: u64,
    pub(crate) election: Election,
}

pub(crate) fn settings(address: SocketAddr, map: &str) -> Settings {
    Settings {
        peer: Peer {
            address: address.to_string(),
            device_id: 1,
            role: String::new(),
            tls: None,
        },
        via: None,
        map: (map.to_owned(), Arc::new(shipped(map))),
        local: local(),
        load: None,
    }
}

impl Bench {
    pub(crate) fn new(settings: Settings) -> Self {
        let (send, messages) = mpsc::unbounded_channel();
        let driver = Driver::start(settings, move |message| drop(send.send(message)));
        Self {
            driver,
            messages,
            events: Vec::new(),
            next: 0,
            election: Election { term: TERM, epoch: 0 },
        }
    }

    pub(crate) async fn message(&mut self) -> Message {
        let message = tokio::time::timeout(Duration::from_secs(60), self.messages.recv()).await;
        message.expect("the driver says something").unwrap()
    }

    pub(crate) async fn ask(&mut self, request: Request) -> Answer {
        self.next += 1;
        assert!(self.driver.send(Command {
            node: 7,
            id: self.next,
            request,
            limit: 2_000_000_000
        }));
        loop {
            match self.message().await {
                Message::Answer(7, id, answer) if id == self.next => return answer,
                other => self.events.push(other),
            }
        }
    }

    pub(crate) async fn claim(&mut self) -> Answer {
        self.election.epoch += 1;
        self.ask(Request::Claim(self.election)).await
    }

    pub(crate) async fn read(&mut self) -> State {
        match self.ask(Request::Read).await {
            Answer::State(state) => state,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn apply(&mut self, etag: &Etag, changes: Vec<Change>) -> Answer {
        let election = self.election;
        self.ask(Request::Apply {
            election,
            etag: etag.clone(),
            changes,
        })
        .await
    }

    /// Waits for the loss of the device, and returns the reason.
    pub(crate) async fn lost(&mut self) -> String {
        loop {
            let event = match self.events.pop() {
                Some(event) => event,
                None => self.message().await,
            };
            if let Message::Event(7, DeviceEvent::Lost(reason)) = event {
                return reason;
            }
        }
    }
}
