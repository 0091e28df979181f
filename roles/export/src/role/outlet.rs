//! The outlet role: one task per partition of each Kafka topic reads it, and inserts new records into a ClickHouse table.

mod partition;
mod running;
mod source;
mod space;

use std::{
    fs::{self, File, TryLockError},
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use export::{
    outlet::{COPIES_PER_PAGE, MAX_OVERSHOOT},
    record::Stream,
    sink::clickhouse::ClickHouse,
};
use tokio::{
    sync::watch,
    time::{self, Instant},
};

use self::{partition::Start, running::Running, source::Topic, space::Space};
use super::{ExportStatus, PROBE, Statuses, answered::Failure, files, in_time, link::ExportLink};
use crate::settings::{
    ExportStart, Sink,
    outlet::{OutletSettings, Wrong},
};
use net::destination::Destination;
use runtime::{lock::lock, save};
use terminal::CliError;

/// Interval between searches for new partitions; [`SEARCH`] applies while topics are missing.
const REFRESH: Duration = Duration::from_secs(60);
const SEARCH: Duration = Duration::from_secs(5);

/// The topics of an outlet, and everything that its partitions share.
pub(super) struct Outlet {
    settings: OutletSettings,
    topics: Vec<Topic>,
    tables: Arc<ClickHouse>,
    destination: Destination,
    directory: PathBuf,
    statuses: Statuses,
    /// Memory for batches and requests, shared by all partitions.
    space: Space,
    /// Held lock on `directory`, so that no other outlet uses it.
    _lock: File,
}

/// Builds the topics of the settings.
fn topics(settings: &OutletSettings) -> Result<Vec<Topic>, String> {
    let names = settings.topics().map_err(invalid)?;
    let brokers = Arc::new(settings.source().map_err(invalid)?);
    let space = Space::new(settings.spaces().0);
    let streams = settings.streams().map_err(invalid)?;
    Ok(streams
        .into_iter()
        .map(|stream| Topic {
            name: names.topic(stream).into(),
            stream,
            brokers: Arc::clone(&brokers),
            timeout: settings.timeout,
            space: space.clone(),
        })
        .collect())
}

fn invalid(wrong: Wrong) -> String {
    format!("[outlet] {}: {}", wrong.0.join("."), wrong.1)
}

impl Outlet {
    /// Opens the outlet, without starting tasks. `store` is the directory of the store.
    ///
    /// # Errors
    /// A setting or the directory is unusable; the message suggests a fix.
    pub(super) fn open(
        store: &Path,
        settings: &OutletSettings,
        statuses: Statuses,
    ) -> Result<Self, CliError> {
        let tables = settings.tables().map_err(invalid).map_err(CliError::new)?;
        let destination = settings.destination().map_err(invalid).map_err(CliError::new)?;
        let directory = settings.state.clone().unwrap_or_else(|| store.join("outlet"));
        Ok(Self {
            topics: topics(settings).map_err(CliError::new)?,
            tables: Arc::new(tables),
            destination,
            _lock: locked(&directory)?,
            directory,
            statuses,
            space: Space::new(settings.spaces().1),
            settings: settings.clone(),
        })
    }

    /// Runs the outlet until it is stopped.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut running = Running::default();
        // Statuses that report a topic's error while it cannot be found.
        let lost: Vec<Arc<ExportStatus>> = self
            .topics
            .iter()
            .map(|topic| self.status(topic.stream, None, 0))
            .collect();
        loop {
            let mut found = Vec::new();
            for (topic, status) in self.topics.iter().zip(&lost) {
                let asked = tokio::select! {
                    asked = time::timeout(topic.timeout, topic.leaders()) => asked,
                    _ = stopped.wait_for(|stopped| *stopped) => break,
                };
                let asked = asked.unwrap_or_else(|_| Err("Kafka does not answer in time".to_owned().into()));
                match self.partitions(topic, asked) {
                    Ok(partitions) => {
                        status.fails(None);
                        found.extend(
                            partitions
                                .into_iter()
                                .map(|(partition, latest)| (topic, partition, latest)),
                        );
                    }
                    Err(words) => status.fails(Some(words)),
                }
            }
            found.retain(|(topic, partition, _)| {
                self.settings.share.has(topic.stream, *partition) && !running.has((topic.stream, *partition))
            });
            // Reserve memory for a missing topic, which will have at least one partition once it is created.
            let missing = self
                .topics
                .iter()
                .filter(|topic| {
                    !running.has_any(topic.stream)
                        && found.iter().all(|(other, ..)| other.stream != topic.stream)
                })
                .count();
            let partitions = running.len() + found.len() + missing;
            for (topic, partition, latest) in found {
                let key = (topic.stream, partition);
                let settings = self.settings.delivery(partitions);
                let status = running
                    .status(key)
                    .unwrap_or_else(|| self.status(topic.stream, Some(partition), settings.bytes));
                let start = Start {
                    topic: topic.clone(),
                    partition,
                    status: Arc::clone(&status),
                    tables: Arc::clone(&self.tables),
                    destination: self.destination.clone(),
                    settings,
                    latest,
                    timeout: self.settings.timeout,
                    space: self.space.clone(),
                };
                let files = self.files(topic.stream, partition);
                running.start(key, status, partition::run(start, files, stopped.clone()));
            }
            let fails = lost.iter().any(|status| lock(&status.state).last_error.is_some());
            let rest = if fails { SEARCH } else { REFRESH };
            if running.rest(Instant::now() + rest, SEARCH, &mut stopped).await {
                break;
            }
        }
        running.end().await;
    }

    /// Returns the partitions of a topic, each with whether reading starts after its last message if it has no cursor.
    fn partitions(
        &self,
        topic: &Topic,
        asked: Result<Vec<String>, Failure>,
    ) -> Result<Vec<(i32, bool)>, String> {
        let (count, missing) = match asked {
            Ok(leaders) => (i32::try_from(leaders.len()).unwrap_or(i32::MAX), None),
            // The topic does not exist yet.
            Err(Failure::Absent(words)) => (0, Some(words)),
            Err(failure) => return Err(failure.words()),
        };
        let at_first = match self.settings.start {
            ExportStart::Oldest => 0,
            ExportStart::Newest => self.at_first(topic.stream, count)?,
        };
        match missing {
            Some(words) => Err(words),
            None => Ok((0..count)
                .map(|partition| (partition, partition < at_first))
                .collect()),
        }
    }

    /// Returns a topic's number of partitions at the first start. Later ones are read from the beginning despite `start`.
    fn at_first(&self, stream: Stream, count: i32) -> Result<i32, String> {
        let path = self
            .directory
            .join(format!("outlet.{}.partitions", stream.name()));
        let shown = path.display();
        match fs::read_to_string(&path) {
            Ok(text) => text.trim_end().parse().map_err(|_| {
                format!("{shown} has no number; write how many partitions the topic had at the first start")
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let has_begun = (0..count).any(|partition| self.files(stream, partition).has_begun());
                let count = if has_begun { 0 } else { count };
                let saved = save::replace(&path, files::MODE, format!("{count}\n").as_bytes());
                saved.map(|()| count).map_err(|error| format!("{shown}: {error}"))
            }
            Err(error) => Err(format!("cannot read {shown}: {error}")),
        }
    }

    fn files(&self, stream: Stream, partition: i32) -> files::Files {
        partition::files(
            &self.directory,
            stream.name(),
            partition,
            self.settings.rejected.0,
        )
    }

    fn status(&self, stream: Stream, partition: Option<i32>, batch: usize) -> Arc<ExportStatus> {
        let memory = if batch > 0 {
            2 * COPIES_PER_PAGE * (batch + MAX_OVERSHOOT)
        } else {
            0
        };
        let status = Arc::new(ExportStatus {
            export: "outlet".to_owned(),
            kind: "clickhouse",
            authority: self.destination.authority.clone(),
            stream,
            partition: partition.map(i32::unsigned_abs),
            is_topic: partition.is_none(),
            share: super::Share { batch, memory },
            state: Mutex::default(),
        });
        lock(&self.statuses).push(Arc::clone(&status));
        status
    }
}

/// Locks a directory for this process.
fn locked(directory: &Path) -> Result<File, CliError> {
    let shown = directory.display();
    let locked = fs::create_dir_all(directory)
        .and_then(|()| {
            File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(directory.join("outlet.lock"))
        })
        .map_err(TryLockError::Error)
        .and_then(|file| file.try_lock().map(|()| file));
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => CliError::new(format!(
            "another outlet uses {shown}; give each its own [outlet] state, and a `share` of the partitions"
        )),
        TryLockError::Error(error) => CliError::io(
            format!("cannot use {shown}"),
            error,
            "name a directory that this user can write to as [outlet] state",
        ),
    })
}

/// Checks Kafka and ClickHouse. Returns the address of each, or the problem.
pub(super) async fn probe(settings: &OutletSettings) -> [Result<String, String>; 2] {
    [probe_source(settings).await, probe_tables(settings).await]
}

async fn probe_source(settings: &OutletSettings) -> Result<String, String> {
    let topics = topics(settings)?;
    let mut authority = String::new();
    for topic in topics {
        authority.clone_from(&topic.brokers.authority);
        let asked = async {
            topic.leaders().await.map_err(Failure::words)?;
            source::Source::new(topic.clone(), 0).is_readable().await
        };
        in_time(asked).await?;
    }
    Ok(authority)
}

async fn probe_tables(settings: &OutletSettings) -> Result<String, String> {
    let destination = settings.destination().map_err(invalid)?;
    let authority = destination.authority.clone();
    let tables = settings.tables().map_err(invalid)?;
    let mut link = ExportLink::new(Sink::Http(Box::new(tables)), destination, PROBE, super::MAX_SAID);
    in_time(link.probe(&settings.streams().map_err(invalid)?)).await?;
    Ok(authority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::records::Dir;

    #[test]
    fn only_partitions_of_the_first_start_begin_with_what_is_new() {
        let dir = Dir::new("outlet-newest");
        let open = |start| {
            let mut settings = OutletSettings {
                start,
                ..OutletSettings::default()
            };
            settings.kafka.url = "tcp://127.0.0.1:9092".to_owned();
            settings.clickhouse.url = "http://127.0.0.1:8123".to_owned();
            settings.state = Some(dir.path().to_owned());
            Outlet::open(dir.path(), &settings, Arc::default()).unwrap()
        };
        let asked = |outlet: &Outlet, topic: usize, answer: Result<usize, Failure>| {
            let leaders = answer.map(|count| vec!["127.0.0.1:9092".to_owned(); count]);
            let partitions = outlet.partitions(&outlet.topics[topic], leaders);
            partitions.map(|all| all.into_iter().map(|(_, latest)| latest).collect::<Vec<_>>())
        };
        let outlet = open(ExportStart::Newest);
        assert_eq!(
            asked(&outlet, 0, Err("away".to_owned().into())),
            Err("away".to_owned())
        );
        assert_eq!(asked(&outlet, 0, Ok(2)), Ok(vec![true; 2]));
        let none = || Err(Failure::Absent("no topic".to_owned()));
        assert_eq!(asked(&outlet, 1, none()), Err("no topic".to_owned()));
        // Of another process, too.
        drop(outlet);
        let outlet = open(ExportStart::Newest);
        assert_eq!(asked(&outlet, 0, Ok(3)), Ok(vec![true, true, false]));
        assert_eq!(asked(&outlet, 1, Ok(2)), Ok(vec![false; 2]));
        // Cursors of before this was remembered.
        outlet
            .files(outlet.topics[2].stream, 1)
            .save(&export::Cursor::default())
            .unwrap();
        assert_eq!(asked(&outlet, 2, Ok(2)), Ok(vec![false; 2]));
        drop(outlet);
        assert_eq!(asked(&open(ExportStart::Oldest), 3, Ok(2)), Ok(vec![false; 2]));
    }
}
