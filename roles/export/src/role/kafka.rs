//! The Kafka producer: sends the records of a batch to the brokers that lead their partitions, in parallel, and idempotently
//! where the server provides a producer ID.

mod connection;

use std::{collections::BTreeMap, future, task::Poll, time::Duration};

use export::sink::{
    Batch,
    kafka::{
        self, Exchange, Kafka, Producer, Verdict,
        protocol::{self, Api, Produced, ProducerId, Topology},
    },
};
use export::{Outcome, record::Stream};
use tokio::time::{self, Instant};

pub(super) use self::connection::Connection;
use super::answered::{Answered, Failure};
use net::destination::{self, Destination};

/// Age after which the topology is refreshed, because partitions may have been added.
const TOPOLOGY_AGE: Duration = Duration::from_secs(300);
/// Requests that a broker must support for writing.
const WRITING: [Api; 2] = [Api::Metadata, Api::Produce];
/// Time limit of a probe of one broker.
const ASK: Duration = Duration::from_secs(5);
/// Kafka's error code TOPIC_ALREADY_EXISTS.
const EXISTS: i16 = 36;

/// The state of the producer: connections, cluster topology, sequence numbers, and the batch being sent.
#[derive(Debug)]
pub(super) struct KafkaLink {
    sink: Kafka,
    destination: Destination,
    timeout: Duration,
    stream: Stream,
    topology: Option<(Topology, Instant)>,
    /// Connections to partition leaders, by broker. One that was abandoned between a request and its answer is closed.
    leaders: BTreeMap<i32, Connection>,
    /// A connection to some broker, for requests about the topology.
    guide: Option<Connection>,
    producer: Producer,
    /// The server gives this user no producer ID, so duplicates are not detected.
    is_unnumbered: bool,
    exchange: Option<Exchange>,
}

/// Producer ID and sequence number of the next chunk, by partition; `None` without a producer ID.
type Numbers = BTreeMap<i32, Option<(ProducerId, i32)>>;

/// The connection and the results of its chunks, or the reason they are unknown.
type Answer = Result<(Connection, Vec<Produced>), String>;

/// The answer of a leader to the request for some of its partitions.
struct LeaderAnswer {
    leader: i32,
    partitions: Vec<i32>,
    answer: Answer,
}

impl KafkaLink {
    /// Creates the link without connecting.
    pub(super) fn new(sink: Kafka, destination: Destination, timeout: Duration) -> Self {
        Self {
            sink,
            destination,
            timeout,
            stream: Stream::Events,
            topology: None,
            leaders: BTreeMap::new(),
            guide: None,
            producer: Producer::default(),
            is_unnumbered: false,
            exchange: None,
        }
    }

    pub(super) fn begin(&mut self, batch: &Batch<'_>) -> bool {
        self.stream = batch.stream;
        self.exchange = self.sink.begin(batch);
        self.exchange.is_some()
    }

    /// Returns the size of the messages before compression, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.exchange.as_ref().map_or(0, Exchange::bytes)
    }

    /// Sends the batch. Each leader's answer counts separately, so a silent leader fails only its own partitions.
    pub(super) async fn send(&mut self) -> Result<(), Failure> {
        let Some(mut exchange) = self.exchange.take() else {
            return Ok(());
        };
        // Stay below the time limit of the whole request, which would discard all answers.
        let deadline = Instant::now() + self.timeout * 3 / 4;
        let topology = in_time(deadline, self.topology()).await?;
        exchange.spread(topology.leaders.len());
        let mut is_sent = false;
        loop {
            let partitions = exchange.partitions();
            if partitions.is_empty() || is_sent && Instant::now() >= deadline {
                break;
            }
            let numbers = match in_time(deadline, self.numbers(&exchange, &partitions)).await {
                Ok(numbers) => numbers,
                Err(failure) if !is_sent => return Err(failure),
                Err(failure) => {
                    let words = failure.words();
                    partitions
                        .iter()
                        .for_each(|partition| exchange.failed(*partition, &words));
                    break;
                }
            };
            is_sent = true;
            self.round(&topology, &mut exchange, &numbers, deadline).await;
        }
        self.exchange = Some(exchange);
        Ok(())
    }

    pub(super) fn answered(&mut self) -> Answered {
        let outcome = self.exchange.take().map(|mut exchange| exchange.outcome());
        outcome.map_or_else(Answered::missing, |outcome| match outcome {
            Outcome::Failed { .. } | Outcome::Unauthorised { .. } => {
                self.topology = None;
                Answered::done(outcome)
            }
            outcome => Answered::done(outcome),
        })
    }

    pub(super) async fn probe(&mut self, streams: &[Stream]) -> Result<(), String> {
        let missing = self.ask_each().await;
        if self.guide.is_none() {
            return missing;
        }
        for stream in streams {
            (self.stream, self.topology) = (*stream, None);
            self.topology().await.map_err(Failure::words)?;
        }
        missing
    }

    /// Probes all brokers of the URL in parallel, and keeps a connection to one that answers. The error lists the problems of
    /// the others, and which brokers answer.
    async fn ask_each(&mut self) -> Result<(), String> {
        let destination = &self.destination;
        let connections = destination.authority.split(',').map(|authority| async move {
            let guide = time::timeout(ASK, Connection::open(destination, authority, &WRITING)).await;
            let guide = guide.unwrap_or_else(|_| {
                Err(format!("{authority} does not answer in time; start it, or correct the url").into())
            });
            (authority, guide)
        });
        let mut answering = Vec::new();
        let mut wrong = Vec::new();
        for (authority, guide) in all(connections).await {
            match guide {
                Ok(guide) => {
                    answering.push(authority);
                    self.guide = Some(guide);
                }
                Err(failure) => wrong.push(failure.words()),
            }
        }
        answering.sort_unstable();
        match (wrong.is_empty(), answering.is_empty()) {
            (true, _) => Ok(()),
            (false, true) => Err(wrong.join(". ")),
            (false, false) => Err(format!("{}. Answers: {}", wrong.join(". "), answering.join(", "))),
        }
    }

    /// Creates the topic of a stream, unless it exists already.
    pub(super) async fn make(&mut self, stream: Stream, partitions: u32) -> Result<(), String> {
        let mut guide = self.guide().await.map_err(Failure::words)?;
        if guide.version(Api::CreateTopics).is_none() {
            return Err("this needs Kafka 2.4 or later; create the topics with Kafka's own tools".to_owned());
        }
        let topic = self.sink.topic(stream);
        let correlation = guide.number();
        let settings = self.sink.settings(stream);
        let frame = protocol::create_topic(correlation, ms(self.timeout), &topic, partitions, settings);
        let body = guide.call(correlation, &frame).await?;
        let answer = protocol::read_create_topic(&body).map_err(|wrong| guide.malformed(&wrong))?;
        self.guide = Some(guide);
        match answer {
            (0 | EXISTS, _) => Ok(()),
            (error, words) => Err(format!("topic {topic}: {} {words}", kafka::name(error))),
        }
    }

    /// Returns the leaders of the topic's partitions, from the cache if it is recent.
    async fn topology(&mut self) -> Result<Topology, Failure> {
        if let Some((topology, at)) = &self.topology
            && at.elapsed() < TOPOLOGY_AGE
        {
            return Ok(topology.clone());
        }
        let topic = self.sink.topic(self.stream);
        let mut guide = self.guide().await?;
        let topology = guide.topology(&topic, "describe and write").await?;
        self.guide = Some(guide);
        self.topology = Some((topology.clone(), Instant::now()));
        Ok(topology)
    }

    /// Returns a connection to any broker.
    async fn guide(&mut self) -> Result<Connection, Failure> {
        if let Some(mut guide) = self.guide.take()
            && !destination::is_left(guide.stream()).await
        {
            return Ok(guide);
        }
        Connection::any(&self.destination, self.timeout * 3 / 4, &WRITING).await
    }

    /// Returns the sequence numbers of the next chunks.
    async fn numbers(&mut self, exchange: &Exchange, partitions: &[i32]) -> Result<Numbers, Failure> {
        // If a sequence number is unknown, start over with a new producer ID.
        for _ in 0..2 {
            if self.producer.id().is_none() && !self.is_unnumbered {
                self.identify().await?;
            }
            let Some(id) = self.producer.id() else {
                return Ok(partitions.iter().map(|partition| (*partition, None)).collect());
            };
            let numbers: Option<Numbers> = partitions
                .iter()
                .map(|partition| {
                    let fingerprint = exchange.fingerprint(*partition);
                    let sequence = self.producer.sequence(*partition, fingerprint)?;
                    Some((*partition, Some((id, sequence))))
                })
                .collect();
            if let Some(numbers) = numbers {
                return Ok(numbers);
            }
            self.producer.forget();
        }
        Err("the server gave no number to this producer".to_owned().into())
    }

    /// Requests a producer ID (InitProducerId).
    async fn identify(&mut self) -> Result<(), Failure> {
        let mut guide = self.guide().await?;
        let Some(version) = guide.version(Api::InitProducerId) else {
            self.is_unnumbered = true;
            self.guide = Some(guide);
            return Ok(());
        };
        let correlation = guide.number();
        let body = guide
            .call(correlation, &protocol::init_producer_id(correlation, version))
            .await?;
        let id = protocol::read_producer_id(&body).map_err(|wrong| guide.malformed(&wrong))?;
        self.guide = Some(guide);
        match id {
            Ok(id) => self.producer.begin(id),
            // Before Kafka 2.8, an idempotent producer needs more than write access.
            Err(kafka::CLUSTER_AUTHORIZATION_FAILED) => self.is_unnumbered = true,
            Err(error) => return Err(format!("no number for this producer: {}", kafka::name(error)).into()),
        }
        Ok(())
    }

    /// Sends the next chunk of each partition to its leader, to all leaders in parallel, and records the answers.
    async fn round(
        &mut self,
        topology: &Topology,
        exchange: &mut Exchange,
        numbers: &Numbers,
        deadline: Instant,
    ) {
        let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for partition in numbers.keys() {
            let leader = usize::try_from(*partition)
                .ok()
                .and_then(|at| topology.leaders.get(at));
            by_leader
                .entry(leader.copied().unwrap_or(-1))
                .or_default()
                .push(*partition);
        }
        let topic = self.sink.topic(self.stream);
        let round = Round {
            destination: &self.destination,
            topology,
            exchange,
            numbers,
            topic: &topic,
            deadline,
        };
        let leaders = &mut self.leaders;
        let round = &round;
        let requests = by_leader.into_iter().map(|(leader, partitions)| {
            let connection = leaders.remove(&leader);
            async move { round.request(leader, partitions, connection).await }
        });
        for answer in all(requests).await {
            self.settle(exchange, answer);
        }
    }

    /// Records a leader's answer for each of its partitions.
    fn settle(&mut self, exchange: &mut Exchange, answer: LeaderAnswer) {
        let LeaderAnswer {
            leader,
            partitions: mut unanswered,
            answer,
        } = answer;
        let words = match answer {
            Ok((connection, answer)) => {
                let topic = self.sink.topic(self.stream);
                for produced in answer {
                    let Some(index) = unanswered
                        .iter()
                        .position(|partition| *partition == produced.partition)
                    else {
                        continue;
                    };
                    unanswered.swap_remove(index);
                    let count = exchange.count(produced.partition);
                    let verdict = exchange.produced(&topic, &produced);
                    if matches!(verdict, Verdict::Moved | Verdict::Forgotten) {
                        self.topology = None;
                    }
                    self.producer.answered(produced.partition, count, verdict);
                }
                self.leaders.insert(leader, connection);
                "the answer leaves it out".to_owned()
            }
            Err(words) => {
                self.topology = None;
                words
            }
        };
        unanswered
            .iter()
            .for_each(|partition| exchange.failed(*partition, &words));
    }
}

/// One chunk per partition, sent in parallel.
struct Round<'a> {
    destination: &'a Destination,
    topology: &'a Topology,
    exchange: &'a Exchange,
    numbers: &'a Numbers,
    topic: &'a str,
    deadline: Instant,
}

impl Round<'_> {
    /// Sends chunks to a leader and reads its answer.
    async fn request(
        &self,
        leader: i32,
        partitions: Vec<i32>,
        connection: Option<Connection>,
    ) -> LeaderAnswer {
        let answer = match self.topology.brokers.get(&leader) {
            None => Err(format!(
                "partition {} has no leader now",
                partitions.first().unwrap_or(&0)
            )),
            Some(address) => {
                let answer =
                    time::timeout_at(self.deadline, self.call(address, &partitions, connection)).await;
                answer.unwrap_or_else(|_| Err(format!("{address} does not answer in time")))
            }
        };
        LeaderAnswer {
            leader,
            partitions,
            answer,
        }
    }

    /// Sends one Produce request for these partitions, over the kept connection if it is still open.
    async fn call(&self, address: &str, partitions: &[i32], mut kept: Option<Connection>) -> Answer {
        if let Some(connection) = &mut kept
            && destination::is_left(connection.stream()).await
        {
            kept = None;
        }
        let mut connection = match kept {
            Some(connection) => connection,
            None => Connection::open(self.destination, address, &WRITING)
                .await
                .map_err(Failure::words)?,
        };
        let version = connection
            .version(Api::Produce)
            .ok_or("it has no version of Produce that is known here")?;
        let correlation = connection.number();
        // Give the broker less time, so that it reports a timeout before the connection's own expires.
        let rest = self.deadline.saturating_duration_since(Instant::now()) * 2 / 3;
        let frame = protocol::produce(
            correlation,
            version,
            ms(rest),
            self.topic,
            partitions,
            |partition, out| {
                let number = self.numbers.get(&partition).copied().flatten();
                self.exchange.write(partition, number, out);
            },
        );
        let body = connection.call(correlation, &frame).await?;
        let answer = protocol::read_produce(&body, version);
        let answer = answer.map_err(|wrong| connection.malformed(&wrong))?;
        Ok((connection, answer))
    }
}

fn ms(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

async fn in_time<T>(deadline: Instant, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    time::timeout_at(deadline, work)
        .await
        .unwrap_or_else(|_| Err("Kafka does not answer in time".to_owned().into()))
}

/// Runs futures concurrently until all have finished.
async fn all<T>(work: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = work.map(Box::pin).collect();
    let mut ended = Vec::with_capacity(running.len());
    future::poll_fn(|context| {
        running.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(value) => {
                ended.push(value);
                false
            }
            Poll::Pending => true,
        });
        if running.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{ExportKind, ExportSettings};

    #[test]
    fn a_url_names_a_host_in_each_part() {
        let words = "it has an address without a host; write each as HOST:PORT, with one comma between two";
        for (url, wrong) in [
            ("tcp://a:9092,b", None),
            ("tcp://a:9092,", Some(words)),
            ("tcp://a,,b", Some(words)),
            ("tcp://,a", Some(words)),
            ("tcp://:9092", Some(words)),
        ] {
            let (kind, url) = (Some(ExportKind::Kafka), url.to_owned());
            let settings = ExportSettings {
                kind,
                url,
                ..ExportSettings::default()
            };
            let wrong = wrong.map(|words| ("url", words.to_owned()));
            assert_eq!(settings.destination().err(), wrong, "{}", settings.url);
        }
    }

    #[test]
    fn the_first_does_not_keep_the_others_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let notify = &tokio::sync::Notify::new();
        let work = [true, false].into_iter().map(|waits| async move {
            match waits {
                true => notify.notified().await,
                false => notify.notify_one(),
            }
        });
        let ended = runtime.block_on(async { time::timeout(Duration::from_secs(60), all(work)).await });
        assert_eq!(ended.map(|ended| ended.len()), Ok(2));
    }
}
