//! A partition of a topic: where it is, and what stands in it.

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

/// A topic, and how to reach its brokers.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    pub(super) stream: Stream,
    pub(super) brokers: Arc<Destination>,
    /// Time limit of one request.
    pub(super) timeout: Duration,
    /// For answers with records, of all topics, and what it takes to understand them.
    pub(super) space: Space,
}

/// Requests that a broker must support.
const READING: [Api; 3] = [Api::Metadata, Api::Fetch, Api::ListOffsets];

/// Time that a broker may wait for a message, ms.
const WAIT: i32 = 500;

/// Bytes of records that are asked for at once: fewer after an answer that did not come in time, since the link is slow.
const MOST: usize = 4 << 20;
const LEAST: usize = 64 << 10;

/// An answer that has not come when its time has expired will not come. The time is that of one request: how many a page needs, depends on
/// what is in the partition.
async fn in_time<T>(limit: Duration, call: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    time::timeout(limit, call)
        .await
        .unwrap_or_else(|_| Err("Kafka does not answer in time".to_owned()))
}

impl Topic {
    /// The brokers that lead its partitions, in the order of these.
    pub(super) async fn leaders(&self) -> Result<Vec<String>, Failure> {
        let mut guide = Connection::any(&self.brokers, self.timeout * 3 / 4, &READING).await?;
        let topology = guide.topology(&self.name, "describe and read").await?;
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
    /// To its leader. After any failure it is looked for anew.
    connection: Option<Connection>,
    /// Bytes to ask for, at most.
    most: usize,
}

/// An answer to a request for records.
struct Answer {
    body: Vec<u8>,
    /// The version of its format.
    version: i16,
    /// The memory for it, until it is decoded.
    space: Reservation,
}

/// A page, and where the partition ends.
#[derive(Debug)]
pub(super) struct ReadPage {
    pub(super) page: Page<Arc<Item>>,
    /// The partition begins anew.
    pub(super) restarted: bool,
    /// After its last message, as it is known now.
    pub(super) end: Option<u64>,
}

impl Source {
    /// No connection is made yet.
    pub(super) fn new(topic: Topic, partition: i32) -> Self {
        Self {
            topic,
            partition,
            connection: None,
            most: MOST,
        }
    }

    /// Reads a page. One whose end is not fixed ends when its time has expired, or when nothing more comes.
    pub(super) async fn read(&mut self, wanted: PageRequest) -> Result<ReadPage, String> {
        let (mut reading, mut step) = Reading::new(self.topic.stream, wanted);
        let deadline = Instant::now() + self.topic.timeout;
        let found = loop {
            step = match step {
                Step::Fetch(offset) => {
                    let is_late = Instant::now() >= deadline;
                    match is_late.then(|| reading.end_early()).flatten() {
                        Some(page) => page,
                        None => match self.fetch(offset, reading.space_left()).await {
                            Ok(answer) => {
                                let step;
                                (reading, step) = understand(reading, answer).await?;
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
        let body = in_time(self.topic.timeout, leader.call(correlation, &frame)).await?;
        let offset = fetch::read_list_offsets(&body).map_err(|wrong| leader.malformed(&wrong))?;
        let offset =
            offset.map_err(|error| format!("partition {}: {}", self.partition, kafka::name(error)))?;
        self.connection = Some(leader);
        Ok(u64::try_from(offset).unwrap_or(0))
    }

    /// Whether this user may read it: an error, or nothing.
    pub(super) async fn is_readable(&mut self) -> Result<(), String> {
        let first = self.edge(false).await?;
        let Answer { body, version, .. } = self.fetch(first, LEAST).await?;
        let fetched = fetch::read_fetch(&body, version);
        let fetched = fetched.map_err(|wrong| format!("Kafka does not answer as expected: {}", wrong.0))?;
        match fetched.error {
            0 => Ok(()),
            29 => Err(format!(
                "{}: allow this user to read topic {}",
                kafka::name(29),
                self.topic.name
            )),
            error => Err(format!("topic {}: {}", self.topic.name, kafka::name(error))),
        }
    }

    /// Asks for records from this offset on, about so many bytes.
    async fn fetch(&mut self, offset: u64, bytes: usize) -> Result<Answer, String> {
        let limit = self.topic.timeout;
        let mut leader = self.leader().await?;
        let version = leader.version(Api::Fetch).unwrap_or(0);
        let correlation = leader.number();
        let wanted = fetch::FetchRequest {
            topic: &self.topic.name,
            partition: self.partition,
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
            wait_ms: i32::try_from((limit / 2).as_millis()).map_or(WAIT, |half| half.min(WAIT)),
            bytes: i32::try_from(bytes.clamp(LEAST, self.most)).unwrap_or(i32::MAX),
        };
        let frame = fetch::fetch(correlation, version, &wanted);
        let len = in_time(limit, leader.ask(&frame)).await?;
        // Until there is space, the answer waits at the broker and in the sockets.
        let space = self.topic.space.get(len.min(MAX_ANSWER) + UNPACKING).await?;
        let Ok(answer) = time::timeout(limit, leader.answer(correlation, len)).await else {
            self.most = (self.most / 4).max(LEAST);
            let words = format!(
                "{len} bytes from Kafka did not arrive within {}",
                rounded_text(limit)
            );
            return Err(words);
        };
        let (body, is_cut) = answer?;
        self.most = (self.most * 2).min(MOST);
        if !is_cut {
            self.connection = Some(leader);
        }
        Ok(Answer { body, version, space })
    }

    /// A connection to the leader. Who takes it puts it back when it has been answered.
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
                    Connection::open(&self.topic.brokers, address, &READING)
                        .await
                        .map_err(Failure::words)
                };
                in_time(limit, opened).await
            }
            None => Err(format!("partition {} has no leader now", self.partition)),
        }
    }
}

/// Decodes an answer on a thread of its own, since it can have thousands of messages.
async fn understand(mut reading: Reading, answer: Answer) -> Result<(Reading, Step), String> {
    let understood = task::spawn_blocking(move || {
        let Answer { body, version, space } = answer;
        let step = fetch::read_fetch(&body, version).map(|fetched: Fetched<'_>| reading.fetched(&fetched));
        drop((body, space));
        (reading, step)
    });
    let (reading, step) = understood.await.map_err(|_| "reading failed")?;
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
        let page = read(DELAY * 8, None).unwrap().page;
        let count = page.records.len() as u64;
        assert!(
            (1..100).contains(&count) && !page.is_last && page.end == at(count),
            "{page:?}"
        );
        let page = read(DELAY * 8, Some(at(12))).unwrap().page;
        assert_eq!((page.records.len(), page.end), (12, at(12)));
        let error = read(DELAY / 2, None).unwrap_err();
        assert!(error.ends_with("does not answer in time"), "{error}");
    }
}
