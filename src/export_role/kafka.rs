//! Messages to Kafka: a connection to each broker that leads a partition.

use std::{
    collections::BTreeMap,
    io::{Error, ErrorKind},
    time::Duration,
};

use export::sink::{
    Batch,
    kafka::{
        self, Exchange, Kafka, NO_TOPIC, Producer, Verdict,
        protocol::{self, Api, Malformed, ProducerId, Topology, Versions},
        scram::{self, Hash},
    },
};
use export::{Outcome, record::Stream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::Instant,
};

use super::{
    answered::{Answered, Failure},
    socket,
};
use crate::{
    config::export::{Destination, Login, Mechanism},
    tls,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    sink: Kafka,
    destination: Destination,
    timeout: Duration,
    stream: Stream,
    topology: Option<(Topology, Instant)>,
    /// To the leaders of partitions. One that was left between a request and its answer is closed.
    leaders: BTreeMap<i32, Connection>,
    /// To the broker that was asked for the topology.
    guide: Option<Connection>,
    producer: Producer,
    /// The server gives this user no number: repeats are not recognised.
    is_unnumbered: bool,
    exchange: Option<Exchange>,
}

/// Where the partitions are is asked again after this: there may be more of them.
const TOPOLOGY_AGE: Duration = Duration::from_secs(300);

/// Kafka's error for a topic that is there already.
const EXISTS: i16 = 36;

/// A request whose answer is to come.
struct Sent {
    leader: i32,
    connection: Connection,
    version: i16,
    correlation: i32,
    partitions: Vec<i32>,
}

impl Link {
    /// No connection is made yet.
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

    pub(super) async fn send(&mut self) -> Result<(), Failure> {
        let Some(mut exchange) = self.exchange.take() else { return Ok(()) };
        let topology = self.topology().await?;
        exchange.spread(topology.leaders.len());
        loop {
            let partitions = exchange.partitions();
            if partitions.is_empty() {
                break;
            }
            let numbers = self.numbers(&exchange, &partitions).await?;
            let sent = self.write(&topology, &mut exchange, &numbers).await;
            for request in sent {
                self.read(request, &mut exchange).await;
            }
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
        for stream in streams {
            (self.stream, self.topology) = (*stream, None);
            self.topology().await.map_err(Failure::words)?;
        }
        Ok(())
    }

    /// Makes the topic of a stream; one that is there stays as it is.
    pub(super) async fn make(&mut self, stream: Stream, partitions: u32) -> Result<(), String> {
        let mut guide = self.guide().await.map_err(Failure::words)?;
        if guide.versions.of(Api::CreateTopics).is_none() {
            return Err("this needs Kafka 2.4 or later; make the topics by its own tools".to_owned());
        }
        let (topic, correlation) = (self.sink.topic(stream), guide.number());
        let settings = Kafka::settings(stream);
        let frame = protocol::create_topic(correlation, self.timeout_ms(), &topic, partitions, settings);
        let body = guide.call(correlation, &frame).await?;
        let answer = protocol::read_create_topic(&body).map_err(|wrong| guide.malformed(&wrong))?;
        self.guide = Some(guide);
        match answer {
            (0 | EXISTS, _) => Ok(()),
            (error, words) => Err(format!("topic {topic}: {} {words}", kafka::name(error))),
        }
    }

    fn timeout_ms(&self) -> i32 {
        i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX)
    }

    /// Where the partitions of the topic are.
    async fn topology(&mut self) -> Result<Topology, Failure> {
        if let Some((topology, at)) = &self.topology
            && at.elapsed() < TOPOLOGY_AGE
        {
            return Ok(topology.clone());
        }
        let topic = self.sink.topic(self.stream);
        let mut guide = self.guide().await?;
        let correlation = guide.number();
        let body = guide.call(correlation, &protocol::metadata(correlation, &topic)).await?;
        let topology = protocol::read_metadata(&body, &topic).map_err(|wrong| guide.malformed(&wrong))?;
        self.guide = Some(guide);
        let name = kafka::name(topology.error);
        match topology.error {
            0 if topology.leaders.is_empty() => Err(format!("topic {topic} has no partitions now").into()),
            0 => {
                self.topology = Some((topology.clone(), Instant::now()));
                Ok(topology)
            }
            NO_TOPIC => Err(format!("Kafka has no topic {topic}; `hopwise schema apply` makes it").into()),
            29 => {
                Err(Failure::Denied(format!("{name}: allow this user to describe and write topic {topic}")))
            }
            _ => Err(format!("topic {topic}: {name}").into()),
        }
    }

    /// A connection to any broker.
    async fn guide(&mut self) -> Result<Connection, Failure> {
        if let Some(mut guide) = self.guide.take()
            && !socket::is_left(&mut *guide.stream).await
        {
            return Ok(guide);
        }
        let mut last = Failure::Passing("there is no broker in the url".to_owned());
        for authority in self.destination.authority.clone().split(',') {
            match Connection::open(&self.destination, authority).await {
                Ok(guide) => return Ok(guide),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// The sequence numbers of the next chunks.
    async fn numbers(
        &mut self,
        exchange: &Exchange,
        partitions: &[i32],
    ) -> Result<BTreeMap<i32, Option<(ProducerId, i32)>>, Failure> {
        // With a new number, each partition has a sequence number.
        for _ in 0..2 {
            if self.producer.id().is_none() && !self.is_unnumbered {
                self.identify().await?;
            }
            let Some(id) = self.producer.id() else {
                return Ok(partitions.iter().map(|partition| (*partition, None)).collect());
            };
            let number = |partition: &i32| {
                let sequence = self.producer.sequence(*partition, exchange.fingerprint(*partition))?;
                Some((*partition, Some((id, sequence))))
            };
            if let Some(numbers) = partitions.iter().map(number).collect::<Option<_>>() {
                return Ok(numbers);
            }
            self.producer.forget();
        }
        Err("the server gave no number to this producer".to_owned().into())
    }

    /// Asks for a number for this producer.
    async fn identify(&mut self) -> Result<(), Failure> {
        let mut guide = self.guide().await?;
        let Some(version) = guide.versions.of(Api::InitProducerId) else {
            self.is_unnumbered = true;
            self.guide = Some(guide);
            return Ok(());
        };
        let correlation = guide.number();
        let body = guide.call(correlation, &protocol::init_producer_id(correlation, version)).await?;
        let id = protocol::read_producer_id(&body).map_err(|wrong| guide.malformed(&wrong))?;
        self.guide = Some(guide);
        match id {
            Ok(id) => self.producer.begin(id),
            // Before Kafka 2.8 a user needs more than leave to write.
            Err(31) => self.is_unnumbered = true,
            Err(error) => return Err(format!("no number for this producer: {}", kafka::name(error)).into()),
        }
        Ok(())
    }

    /// Sends the next chunk of each partition to its leader.
    async fn write(
        &mut self,
        topology: &Topology,
        exchange: &mut Exchange,
        numbers: &BTreeMap<i32, Option<(ProducerId, i32)>>,
    ) -> Vec<Sent> {
        let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for partition in numbers.keys() {
            let leader = usize::try_from(*partition).ok().and_then(|at| topology.leaders.get(at));
            by_leader.entry(leader.copied().unwrap_or(-1)).or_default().push(*partition);
        }
        let mut sent = Vec::new();
        for (leader, partitions) in by_leader {
            match self.write_to(topology, exchange, (leader, &partitions), numbers).await {
                Ok(request) => sent.push(request),
                Err(failure) => {
                    let words = failure.words();
                    self.topology = None;
                    partitions.iter().for_each(|partition| exchange.failed(*partition, &words));
                }
            }
        }
        sent
    }

    async fn write_to(
        &mut self,
        topology: &Topology,
        exchange: &Exchange,
        (leader, partitions): (i32, &[i32]),
        numbers: &BTreeMap<i32, Option<(ProducerId, i32)>>,
    ) -> Result<Sent, Failure> {
        let address = topology
            .brokers
            .get(&leader)
            .ok_or_else(|| format!("partition {} has no leader now", partitions.first().unwrap_or(&0)))?;
        let mut kept = self.leaders.remove(&leader);
        if let Some(connection) = &mut kept
            && socket::is_left(&mut *connection.stream).await
        {
            kept = None;
        }
        let mut connection = match kept {
            Some(connection) => connection,
            None => Connection::open(&self.destination, address).await?,
        };
        let version = connection
            .versions
            .of(Api::Produce)
            .ok_or("it has no version of Produce that is known here".to_owned())?;
        let correlation = connection.number();
        let topic = self.sink.topic(self.stream);
        let frame = protocol::produce(
            (correlation, version),
            self.timeout_ms(),
            &topic,
            partitions,
            |partition, out| {
                exchange.write(partition, numbers.get(&partition).copied().flatten(), out);
            },
        );
        connection.write(&frame).await?;
        Ok(Sent { leader, connection, version, correlation, partitions: partitions.to_vec() })
    }

    /// Reads what became of a request.
    async fn read(&mut self, request: Sent, exchange: &mut Exchange) {
        let Sent { leader, mut connection, version, correlation, partitions } = request;
        let topic = self.sink.topic(self.stream);
        let body = connection.read(correlation).await;
        let answer = body.and_then(|body| {
            protocol::read_produce(&body, version).map_err(|wrong| connection.malformed(&wrong))
        });
        let mut open = partitions;
        let words = match answer {
            Ok(answer) => {
                for produced in answer {
                    let Some(at) = open.iter().position(|partition| *partition == produced.partition) else {
                        continue;
                    };
                    open.swap_remove(at);
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
        open.iter().for_each(|partition| exchange.failed(*partition, &words));
    }
}

/// A connection that takes requests.
struct Connection {
    stream: Box<dyn tls::Stream>,
    versions: Versions,
    correlation: i32,
    authority: String,
    /// What to do when the server ends it without a word.
    advice: String,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to a broker, and logs in.
    async fn open(destination: &Destination, authority: &str) -> Result<Self, Failure> {
        let destination = Destination { authority: authority.to_owned(), ..destination.clone() };
        let stream = socket::connect(&destination).await?;
        let Destination { tls, schemes: (_, secure), login, mechanism, .. } = &destination;
        let advice = match (tls, login) {
            (None, None) => {
                format!("; if it wants TLS, write {secure}, if it wants a login, `user` and `password_file`")
            }
            (None, Some(_)) => format!("; if it wants TLS, write {secure}"),
            (Some(_), None) => "; if it wants a login, write `user` and `password_file`".to_owned(),
            (Some(_), Some(_)) => String::new(),
        };
        let versions = Versions::default();
        let mut connection =
            Self { stream, versions, correlation: 0, authority: authority.to_owned(), advice };
        let correlation = connection.number();
        let body = connection.call(correlation, &protocol::api_versions(correlation)).await?;
        let versions = protocol::read_api_versions(&body);
        connection.versions = versions.map_err(|wrong| connection.malformed(&wrong))?;
        for api in [Api::Metadata, Api::Produce] {
            if connection.versions.of(api).is_none() {
                let words = format!(
                    "{authority} has no version of {api:?} that is known here; use Kafka 1.0 or later"
                );
                return Err(words.into());
            }
        }
        if let Some(Login::Password(user, password)) = login {
            connection.log_in(*mechanism, user.as_deref().unwrap_or_default(), password).await?;
        }
        Ok(connection)
    }

    async fn log_in(&mut self, mechanism: Mechanism, user: &str, password: &str) -> Result<(), Failure> {
        let correlation = self.number();
        let name = mechanism.name();
        let body = self.call(correlation, &protocol::sasl_handshake(correlation, name)).await?;
        let taken = protocol::read_sasl_handshake(&body).map_err(|wrong| self.malformed(&wrong))?;
        if let Err(mechanisms) = taken {
            let words = format!(
                "{} does not take a password by {name}, but by {}; write one of these as `mechanism`",
                self.authority,
                mechanisms.join(", ")
            );
            return Err(Failure::Denied(words));
        }
        let hash = match mechanism {
            Mechanism::Plain => {
                let message = format!("\0{user}\0{password}");
                return self.authenticate(message.as_bytes()).await.map(drop);
            }
            Mechanism::ScramSha256 => Hash::Sha256,
            Mechanism::ScramSha512 => Hash::Sha512,
        };
        let mut nonce = [0; 24];
        getrandom::fill(&mut nonce).map_err(|error| format!("no random numbers: {error}"))?;
        let nonce = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, nonce);
        let mut login = scram::Login::new(hash, user, password, &nonce);
        let wrong = |words: &str| Failure::Denied(format!("the login failed: {words}"));
        let answer = self.authenticate(&login.first()).await?;
        let last = login.last(&answer).map_err(wrong)?;
        let answer = self.authenticate(&last).await?;
        login.verify(&answer).map_err(wrong)
    }

    /// One step of a login.
    async fn authenticate(&mut self, message: &[u8]) -> Result<Vec<u8>, Failure> {
        let correlation = self.number();
        let body = self.call(correlation, &protocol::sasl_authenticate(correlation, message)).await?;
        let answer = protocol::read_sasl_authenticate(&body).map_err(|wrong| self.malformed(&wrong))?;
        answer.map_err(|words| {
            Failure::Denied(format!(
                "{} refuses the credentials ({words}); correct user and password",
                self.authority
            ))
        })
    }

    /// The number of the next request.
    fn number(&mut self) -> i32 {
        self.correlation = self.correlation.wrapping_add(1) & i32::MAX;
        self.correlation
    }

    async fn call(&mut self, correlation: i32, frame: &[u8]) -> Result<Vec<u8>, String> {
        self.write(frame).await?;
        self.read(correlation).await
    }

    async fn write(&mut self, frame: &[u8]) -> Result<(), String> {
        let result = match self.stream.write_all(frame).await {
            Ok(()) => self.stream.flush().await,
            Err(error) => Err(error),
        };
        result.map_err(|error| self.reason(&error))
    }

    /// The body of the answer.
    async fn read(&mut self, correlation: i32) -> Result<Vec<u8>, String> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).await.map_err(|error| self.reason(&error))?;
        let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(usize::MAX);
        if !(4..=protocol::MAX_ANSWER).contains(&len) {
            return Err(self.malformed(&Malformed("its length")));
        }
        let mut frame = vec![0; len];
        self.stream.read_exact(&mut frame).await.map_err(|error| self.reason(&error))?;
        match protocol::answer(&frame) {
            Ok((number, body)) if number == correlation => Ok(body.to_vec()),
            Ok(_) => Err(self.malformed(&Malformed("its number"))),
            Err(wrong) => Err(self.malformed(&wrong)),
        }
    }

    fn malformed(&self, wrong: &Malformed) -> String {
        format!("{} does not answer as Kafka does: {}{}", self.authority, wrong.0, self.advice)
    }

    fn reason(&self, error: &Error) -> String {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                format!("{} ended the connection{}", self.authority, self.advice)
            }
            _ => tls::reason(error, &self.authority),
        }
    }
}
