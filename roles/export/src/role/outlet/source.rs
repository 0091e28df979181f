//! Reads one partition of a Kafka topic from its leader (Fetch, ListOffsets).

use std::{future::Future, sync::Arc, time::Duration};

use export::{
    Page,
    outlet::{Item, PageRequest, Reading, Step},
    record::Stream,
    sink::kafka::{
        self,
        log::UNPACKING,
        protocol::{
            Api, MAX_ANSWER,
            fetch::{self, Fetched},
        },
    },
};
use settings::values::rounded_text;
use tokio::{
    task,
    time::{self, Instant},
};

use super::{
    super::{answered::Failure, kafka::Connection},
    space::{Reservation, Space},
};
use net::destination::{self, Destination};

/// Requests that a broker must support for reading.
const READ_APIS: [Api; 3] = [Api::Metadata, Api::Fetch, Api::ListOffsets];
/// Longest time that a broker may wait for messages, ms.
const MAX_WAIT_MS: i32 = 500;
/// Initial and largest limit on the size of a fetch, bytes. The limit shrinks after an answer that was too slow for the link.
const MAX_FETCH_BYTES: usize = 4 << 20;
/// Smallest limit on the size of a fetch, bytes.
const MIN_FETCH_BYTES: usize = 64 << 10;

/// A topic, and the brokers from which to read it.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    pub(super) stream: Stream,
    pub(super) brokers: Arc<Destination>,
    /// Time limit of one request.
    pub(super) timeout: Duration,
    /// Memory for fetched answers and for decoding them, shared by all topics.
    pub(super) space: Space,
}

/// Applies the time limit to one request. A page has no limit, because its number of requests depends on the partition.
async fn in_time<T>(limit: Duration, call: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    time::timeout(limit, call)
        .await
        .unwrap_or_else(|_| Err("Kafka does not answer in time".to_owned()))
}

impl Topic {
    /// Returns the addresses of the partition leaders, by partition; empty for a partition without a leader.
    pub(super) async fn leaders(&self) -> Result<Vec<String>, Failure> {
        let mut connection = Connection::any(&self.brokers, self.timeout * 3 / 4, &READ_APIS).await?;
        let topology = connection.topology(&self.name, "describe and read").await?;
        Ok(topology
            .leaders
            .iter()
            .map(|leader| topology.brokers.get(leader).cloned().unwrap_or_default())
            .collect())
    }
}

/// The reader of one partition.
#[derive(Debug)]
pub(super) struct Source {
    topic: Topic,
    partition: i32,
    /// The connection to the leader. After a failure the leader is looked up again.
    connection: Option<Connection>,
    /// Current limit on the size of a fetch, bytes.
    fetch_bytes_limit: usize,
}

/// The answer to a fetch.
struct Answer {
    body: Vec<u8>,
    /// The version of its format.
    version: i16,
    /// The memory reserved for it until it is decoded.
    space: Reservation,
}

/// A page of messages, and the end of the partition.
#[derive(Debug)]
pub(super) struct ReadPage {
    pub(super) page: Page<Arc<Item>>,
    /// The partition was recreated.
    pub(super) restarted: bool,
    /// The offset after the last message, as far as known.
    pub(super) end: Option<u64>,
}

impl Source {
    /// Creates the reader without connecting.
    pub(super) fn new(topic: Topic, partition: i32) -> Self {
        Self {
            topic,
            partition,
            connection: None,
            fetch_bytes_limit: MAX_FETCH_BYTES,
        }
    }

    /// Reads a page. One without a fixed end stops at the deadline, or when no more messages arrive.
    pub(super) async fn read(&mut self, request: PageRequest) -> Result<ReadPage, String> {
        let (mut reading, mut step) = Reading::new(self.topic.stream, request);
        let deadline = Instant::now() + self.topic.timeout;
        let outcome = loop {
            step = match step {
                Step::Fetch(offset) => {
                    let is_late = Instant::now() >= deadline;
                    match is_late.then(|| reading.end_early()).flatten() {
                        Some(page) => page,
                        None => match self.fetch(offset, reading.space_left()).await {
                            Ok(answer) => {
                                let step;
                                (reading, step) = decode(reading, answer).await?;
                                step
                            }
                            Err(words) => reading.end_early().ok_or(words)?,
                        },
                    }
                }
                Step::Offsets => {
                    let first = self.edge(false).await?;
                    let end = self.edge(true).await?;
                    reading.offsets(first, end)
                }
                Step::Page { page, restarted } => {
                    break Ok(ReadPage {
                        page,
                        restarted,
                        end: reading.end(),
                    });
                }
                Step::Failed(words) => break Err(words),
            };
        };
        if outcome.is_err() {
            self.connection = None;
        }
        outcome
    }

    /// Returns the first offset, or with `latest` the offset after the last message.
    pub(super) async fn edge(&mut self, latest: bool) -> Result<u64, String> {
        let mut leader = self.leader().await?;
        let correlation = leader.number();
        let frame = fetch::list_offsets(correlation, &self.topic.name, self.partition, latest);
        let body = in_time(self.topic.timeout, leader.call(correlation, &frame)).await?;
        let offset = fetch::read_list_offsets(&body).map_err(|wrong| leader.malformed(&wrong))?;
        let offset =
            offset.map_err(|error| format!("partition {}: {}", self.partition, kafka::name(error)))?;
        self.connection = Some(leader);
        Ok(u64::try_from(offset).unwrap_or(0))
    }

    /// Checks that this user may read the partition.
    pub(super) async fn is_readable(&mut self) -> Result<(), String> {
        let first = self.edge(false).await?;
        let Answer { body, version, .. } = self.fetch(first, MIN_FETCH_BYTES).await?;
        let fetched = fetch::read_fetch(&body, version);
        let fetched = fetched.map_err(|wrong| format!("Kafka does not answer as expected: {}", wrong.0))?;
        match fetched.error {
            0 => Ok(()),
            kafka::TOPIC_AUTHORIZATION_FAILED => Err(format!(
                "{}: allow this user to read topic {}",
                kafka::name(kafka::TOPIC_AUTHORIZATION_FAILED),
                self.topic.name
            )),
            error => Err(format!("topic {}: {}", self.topic.name, kafka::name(error))),
        }
    }

    /// Fetches about `bytes` bytes of records from an offset on.
    async fn fetch(&mut self, offset: u64, bytes: usize) -> Result<Answer, String> {
        let limit = self.topic.timeout;
        let mut leader = self.leader().await?;
        let version = leader.version(Api::Fetch).unwrap_or(0);
        let correlation = leader.number();
        let request = fetch::FetchRequest {
            topic: &self.topic.name,
            partition: self.partition,
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
            wait_ms: i32::try_from((limit / 2).as_millis()).map_or(MAX_WAIT_MS, |wait| wait.min(MAX_WAIT_MS)),
            bytes: i32::try_from(bytes.clamp(MIN_FETCH_BYTES, self.fetch_bytes_limit)).unwrap_or(i32::MAX),
        };
        let frame = fetch::fetch(correlation, version, &request);
        let len = in_time(limit, leader.ask(&frame)).await?;
        // While there is no memory, the answer waits at the broker and in the socket buffers.
        let space = self.topic.space.get(len.min(MAX_ANSWER) + UNPACKING).await?;
        let Ok(answer) = time::timeout(limit, leader.answer(correlation, len)).await else {
            self.fetch_bytes_limit = (self.fetch_bytes_limit / 4).max(MIN_FETCH_BYTES);
            let words = format!(
                "{len} bytes from Kafka did not arrive within {}",
                rounded_text(limit)
            );
            return Err(words);
        };
        let (body, is_cut) = answer?;
        self.fetch_bytes_limit = (self.fetch_bytes_limit * 2).min(MAX_FETCH_BYTES);
        if !is_cut {
            self.connection = Some(leader);
        }
        Ok(Answer { body, version, space })
    }

    /// Takes the connection to the leader, or opens one. The caller puts it back once the answer is complete, so that a broken
    /// exchange is not reused.
    async fn leader(&mut self) -> Result<Connection, String> {
        if let Some(mut leader) = self.connection.take()
            && !destination::is_left(leader.stream()).await
        {
            return Ok(leader);
        }
        let limit = self.topic.timeout;
        let leaders = async { self.topic.leaders().await.map_err(Failure::words) };
        let leaders = in_time(limit, leaders).await?;
        let index = usize::try_from(self.partition).unwrap_or(usize::MAX);
        match leaders.get(index).filter(|address| !address.is_empty()) {
            Some(address) => {
                let opened = async {
                    Connection::open(&self.topic.brokers, address, &READ_APIS)
                        .await
                        .map_err(Failure::words)
                };
                in_time(limit, opened).await
            }
            None => Err(format!("partition {} has no leader now", self.partition)),
        }
    }
}

/// Decodes an answer on a blocking thread, because it may hold thousands of messages.
async fn decode(mut reading: Reading, answer: Answer) -> Result<(Reading, Step), String> {
    let decoded = task::spawn_blocking(move || {
        let Answer { body, version, space } = answer;
        let step = fetch::read_fetch(&body, version).map(|fetched: Fetched<'_>| reading.fetched(&fetched));
        drop((body, space));
        (reading, step)
    });
    let (reading, step) = decoded.await.map_err(|_| "reading failed")?;
    let step = step.map_err(|wrong| format!("Kafka does not answer as expected: {}", wrong.0))?;
    Ok((reading, step))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        thread,
    };

    use super::*;
    use crate::settings::{ExportKind, ExportSettings};
    use export::Position;

    /// What the only broker says to a request: one message, after a while, to one for records.
    fn answer(request: &[u8], port: u16) -> Vec<u8> {
        let text = |text: &str| [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat();
        let numbers = |numbers: &[i16]| {
            numbers
                .iter()
                .flat_map(|one| one.to_be_bytes())
                .collect::<Vec<u8>>()
        };
        match request[1] {
            18 => numbers(&[0, 0, 3, 1, 4, 4, 2, 1, 1, 3, 4, 4]),
            3 => {
                let broker = [numbers(&[0, 0, 0, 1, 0, 0]), text("127.0.0.1"), numbers(&[0])].concat();
                let topic = [numbers(&[-1, -1, 0, 0, 0, 1, 0]), text("t"), vec![0]].concat();
                let partition = numbers(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                [broker, port.to_be_bytes().to_vec(), topic, partition].concat()
            }
            _ => {
                thread::sleep(DELAY);
                let mut batch = request[request.len() - 12..request.len() - 4].to_vec();
                batch.extend([0, 0, 0, 49, 0, 0, 0, 0, 1]);
                batch.resize(61, 0);
                let head = [numbers(&[0, 0, 0, 1]), text("t"), numbers(&[0, 1, 0, 0, 0])].concat();
                let rest = numbers(&[0, 0, 0, 1000, 0, 0, 0, 1000, 0, 0, 0, 61]);
                [head, rest, batch].concat()
            }
        }
    }

    fn serve(mut stream: TcpStream, port: u16) -> std::io::Result<()> {
        loop {
            let mut len = [0; 4];
            stream.read_exact(&mut len)?;
            let mut request = vec![0; u32::from_be_bytes(len) as usize];
            stream.read_exact(&mut request)?;
            let body = [&request[4..8], &answer(&request, port)].concat();
            stream.write_all(&(body.len() as u32).to_be_bytes())?;
            stream.write_all(&body)?;
        }
    }

    const DELAY: Duration = Duration::from_millis(250);

    #[test]
    fn a_slow_broker_delays_a_page_and_does_not_prevent_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || serve(stream?, port));
            }
        });
        let (kind, url) = (Some(ExportKind::Kafka), format!("tcp://127.0.0.1:{port}"));
        let brokers = ExportSettings {
            kind,
            url,
            ..ExportSettings::default()
        }
        .destination()
        .unwrap();
        let topic = |timeout| Topic {
            name: "t".into(),
            stream: Stream::Losses,
            brokers: Arc::new(brokers.clone()),
            timeout,
            space: Space::new(1 << 20),
        };
        let at = |row| Position { file: 7, row };
        let read = |timeout, until| {
            let wanted = PageRequest {
                from: at(0),
                until,
                records: 900,
                bytes: 1 << 20,
                random: 0,
            };
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let mut source = Source::new(topic(timeout), 0);
            runtime.block_on(async { time::timeout(DELAY * 200, source.read(wanted)).await.unwrap() })
        };
        // Each answer comes in time, and all of them do not.
        let page = read(DELAY * 24, None).unwrap().page;
        let count = page.records.len() as u64;
        assert!(
            (1..100).contains(&count) && !page.is_last && page.end == at(count),
            "{page:?}"
        );
        let page = read(DELAY * 24, Some(at(12))).unwrap().page;
        assert_eq!((page.records.len(), page.end), (12, at(12)));
        let error = read(DELAY / 2, None).unwrap_err();
        assert!(error.ends_with("does not answer in time"), "{error}");
    }
}
