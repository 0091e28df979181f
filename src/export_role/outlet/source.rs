//! A partition of a topic: where it is, and what stands in it.

use std::{sync::Arc, time::Duration};

use export::{
    Page,
    outlet::{Item, Reading, Step, Wanted},
    record::Stream,
    sink::kafka::{
        self,
        protocol::{
            Api,
            fetch::{self, Fetched},
        },
    },
};
use tokio::task;

use super::super::{answered::Failure, kafka::Connection, socket};
use crate::config::export::Destination;

/// A topic, and how to reach its brokers.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    pub(super) stream: Stream,
    pub(super) brokers: Arc<Destination>,
    pub(super) timeout: Duration,
}

/// What a broker must know.
const READING: [Api; 3] = [Api::Metadata, Api::Fetch, Api::ListOffsets];

/// How long a broker may wait for a message, ms.
const WAIT: i32 = 500;

impl Topic {
    /// The brokers that lead its partitions, in the order of these.
    pub(super) async fn leaders(&self) -> Result<Vec<String>, Failure> {
        let mut guide = Connection::any(&self.brokers, self.timeout * 3 / 4, &READING).await?;
        let topology = guide.topology(&self.name, "describe and read").await?;
        let address = |leader: &i32| topology.brokers.get(leader).cloned().unwrap_or_default();
        Ok(topology.leaders.iter().map(address).collect())
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Source {
    topic: Topic,
    partition: i32,
    /// To its leader. After any failure it is looked for anew.
    connection: Option<Connection>,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) page: Page<Arc<Item>>,
    /// The partition begins anew.
    pub(super) restarted: bool,
    /// After its last message, as it is known now.
    pub(super) end: Option<u64>,
}

impl Source {
    /// No connection is made yet.
    pub(super) fn new(topic: Topic, partition: i32) -> Self {
        Self { topic, partition, connection: None }
    }

    /// Reads a page.
    pub(super) async fn read(&mut self, wanted: Wanted) -> Result<Found, String> {
        let (mut reading, mut step) = Reading::new(self.topic.stream, wanted);
        let found = loop {
            step = match step {
                Step::Fetch(offset) => {
                    let (body, version) = self.fetch(offset).await?;
                    let fetched = move || {
                        let step = fetch::read_fetch(&body, version)
                            .map(|fetched: Fetched<'_>| reading.fetched(&fetched));
                        (reading, step)
                    };
                    let step;
                    // It takes a while to understand thousands of messages.
                    (reading, step) = task::spawn_blocking(fetched).await.map_err(|_| "reading failed")?;
                    step.map_err(|wrong| format!("Kafka does not answer as expected: {}", wrong.0))?
                }
                Step::Offsets => {
                    let (first, end) = (self.edge(false).await?, self.edge(true).await?);
                    reading.offsets(first, end)
                }
                Step::Page { page, restarted } => break Ok(Found { page, restarted, end: reading.end() }),
                Step::Failed(words) => break Err(words),
            };
        };
        if found.is_err() {
            self.connection = None;
        }
        found
    }

    /// The first offset, or that after the last.
    pub(super) async fn edge(&mut self, latest: bool) -> Result<u64, String> {
        let mut leader = self.leader().await?;
        let correlation = leader.number();
        let frame = fetch::list_offsets(correlation, &self.topic.name, self.partition, latest);
        let body = leader.call(correlation, &frame).await?;
        let offset = fetch::read_list_offsets(&body).map_err(|wrong| leader.malformed(&wrong))?;
        let offset =
            offset.map_err(|error| format!("partition {}: {}", self.partition, kafka::name(error)))?;
        self.connection = Some(leader);
        Ok(u64::try_from(offset).unwrap_or(0))
    }

    /// Whether this user may read it: an error, or nothing.
    pub(super) async fn is_readable(&mut self) -> Result<(), String> {
        let first = self.edge(false).await?;
        let (body, version) = self.fetch(first).await?;
        let fetched = fetch::read_fetch(&body, version);
        let fetched = fetched.map_err(|wrong| format!("Kafka does not answer as expected: {}", wrong.0))?;
        match fetched.error {
            0 => Ok(()),
            29 => Err(format!("{}: allow this user to read topic {}", kafka::name(29), self.topic.name)),
            error => Err(format!("topic {}: {}", self.topic.name, kafka::name(error))),
        }
    }

    /// An answer to a request for records, and the version of its form.
    async fn fetch(&mut self, offset: u64) -> Result<(Vec<u8>, i16), String> {
        let mut leader = self.leader().await?;
        let version = leader.version(Api::Fetch).unwrap_or(0);
        let correlation = leader.number();
        let wanted = fetch::Wanted {
            topic: &self.topic.name,
            partition: self.partition,
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
            wait_ms: WAIT,
        };
        let frame = fetch::fetch((correlation, version), &wanted);
        let (body, is_cut) = leader.call_cut(correlation, &frame).await?;
        if !is_cut {
            self.connection = Some(leader);
        }
        Ok((body, version))
    }

    /// A connection to the leader. Who takes it puts it back when it has been answered.
    async fn leader(&mut self) -> Result<Connection, String> {
        if let Some(mut leader) = self.connection.take()
            && !socket::is_left(leader.stream()).await
        {
            return Ok(leader);
        }
        let leaders = self.topic.leaders().await.map_err(Failure::words)?;
        let at = usize::try_from(self.partition).unwrap_or(usize::MAX);
        match leaders.get(at).filter(|address| !address.is_empty()) {
            Some(address) => {
                Connection::open(&self.topic.brokers, address, &READING).await.map_err(Failure::words)
            }
            None => Err(format!("partition {} has no leader now", self.partition)),
        }
    }
}
