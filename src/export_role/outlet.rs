//! The outlet role: for each partition of each topic a task that reads it, and inserts what is new into a table.

mod partition;
mod source;

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use export::{record::Stream, sink::clickhouse::ClickHouse};
use tokio::{sync::watch, task::JoinSet, time};

use self::{partition::Start, source::Topic};
use super::{Gauge, Gauges, PROBE, answered::Failure, in_time, link::Link};
use crate::{
    config::{
        Settings,
        export::{Destination, Sink},
        outlet::OutletSettings,
    },
    lock::lock,
};
use terminal::CliError;

/// All partitions that are passed on here.
pub(super) struct Outlet {
    settings: OutletSettings,
    topics: Vec<Topic>,
    tables: Arc<ClickHouse>,
    destination: Destination,
    directory: PathBuf,
    gauges: Gauges,
    /// Of its directory.
    _lock: File,
}

/// The topics of the settings.
fn topics(settings: &OutletSettings) -> Result<Vec<Topic>, String> {
    let wrong =
        |(key, message): crate::config::outlet::Wrong| format!("[outlet] {}: {message}", key.join("."));
    let (names, brokers) = (settings.topics().map_err(wrong)?, Arc::new(settings.source().map_err(wrong)?));
    let topic = |stream: Stream| {
        let (name, brokers) = (names.topic(stream).into(), Arc::clone(&brokers));
        Topic { name, stream, brokers, timeout: settings.timeout }
    };
    Ok(settings.streams().map_err(wrong)?.into_iter().map(topic).collect())
}

impl Outlet {
    /// Nothing runs yet.
    ///
    /// # Errors
    /// A setting or the directory cannot be used; the message says what to do.
    pub(super) fn open(all: &Settings, settings: &OutletSettings, gauges: Gauges) -> Result<Self, CliError> {
        let wrong = |(key, message): crate::config::outlet::Wrong| {
            CliError::new(format!("[outlet] {}: {message}", key.join(".")))
        };
        let directory = settings.state.clone().unwrap_or_else(|| all.store_directory().join("outlet"));
        Ok(Self {
            topics: topics(settings).map_err(CliError::new)?,
            tables: Arc::new(settings.tables().map_err(wrong)?),
            destination: settings.destination().map_err(wrong)?,
            _lock: locked(&directory)?,
            directory,
            gauges,
            settings: settings.clone(),
        })
    }

    /// Passes on what comes until it is stopped.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut tasks = JoinSet::new();
        let mut known = BTreeSet::new();
        // What is said of a topic while it cannot be found.
        let lost: Vec<Arc<Gauge>> = self.topics.iter().map(|topic| self.gauge(topic.stream, None)).collect();
        loop {
            let mut found = Vec::new();
            for (topic, gauge) in self.topics.iter().zip(&lost) {
                let asked = tokio::select! {
                    asked = time::timeout(topic.timeout, topic.leaders()) => asked,
                    _ = stopped.wait_for(|stopped| *stopped) => break,
                };
                let asked = asked.unwrap_or_else(|_| Err("Kafka does not answer in time".to_owned().into()));
                match asked {
                    Ok(leaders) => {
                        gauge.fails(None);
                        let partitions = 0..i32::try_from(leaders.len()).unwrap_or(i32::MAX);
                        found.extend(partitions.map(|partition| (topic, partition)));
                    }
                    Err(failure) => gauge.fails(Some(failure.words())),
                }
            }
            found.retain(|(topic, partition)| {
                self.settings.share.has(topic.stream, *partition) && known.insert((topic.stream, *partition))
            });
            for (topic, partition) in found {
                self.start(topic, partition, known.len(), (&mut tasks, &stopped));
            }
            let fails = lost.iter().any(|gauge| lock(&gauge.state).last_error.is_some());
            let rest = if fails { SEARCH } else { REFRESH };
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => break,
                () = time::sleep(rest) => {}
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    fn start(
        &self,
        topic: &Topic,
        partition: i32,
        partitions: usize,
        (tasks, stopped): (&mut JoinSet<()>, &watch::Receiver<bool>),
    ) {
        let gauge = self.gauge(topic.stream, Some(partition));
        let limit = self.settings.rejected.0;
        let files = partition::files(&self.directory, topic.stream.name(), partition, limit);
        let start = Start {
            topic: topic.clone(),
            partition,
            gauge,
            tables: Arc::clone(&self.tables),
            destination: self.destination.clone(),
            settings: self.settings.delivery(partitions),
            start: self.settings.start,
            timeout: self.settings.timeout,
        };
        tasks.spawn(partition::run(start, files, stopped.clone()));
    }

    fn gauge(&self, stream: Stream, partition: Option<i32>) -> Arc<Gauge> {
        let gauge = Arc::new(Gauge {
            export: "outlet".to_owned(),
            kind: "clickhouse",
            authority: self.destination.authority.clone(),
            stream,
            partition: partition.map(i32::unsigned_abs),
            is_topic: partition.is_none(),
            share: super::Share::default(),
            state: Mutex::default(),
        });
        lock(&self.gauges).push(Arc::clone(&gauge));
        gauge
    }
}

/// The lock of a directory, which this process has alone.
fn locked(directory: &Path) -> Result<File, CliError> {
    let shown = directory.display();
    let remedy = "name a directory that this user can write to as [outlet] state";
    let wrong = |error| CliError::io(format!("cannot use {shown}"), error, remedy);
    fs::create_dir_all(directory).map_err(wrong)?;
    let open = File::options().create(true).truncate(false).write(true).open(directory.join("outlet.lock"));
    let file = open.map_err(wrong)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(CliError::new(format!(
            "another outlet uses {shown}; give each its own [outlet] state, and a `share` of the partitions"
        ))),
        Err(TryLockError::Error(error)) => Err(wrong(error)),
    }
}

/// Asks both sides: is each there, does it take the credentials, has it what is needed? What is wrong with each, or where it is.
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
    let wrong =
        |(key, message): crate::config::outlet::Wrong| format!("[outlet] {}: {message}", key.join("."));
    let destination = settings.destination().map_err(wrong)?;
    let (authority, tables) = (destination.authority.clone(), settings.tables().map_err(wrong)?);
    let mut link = Link::new(Sink::Http(Box::new(tables)), destination, PROBE, super::MOST_SAID);
    in_time(link.probe(&settings.streams().map_err(wrong)?)).await?;
    Ok(authority)
}

/// Time between two looks for new partitions, and for topics that are not there yet.
const REFRESH: Duration = Duration::from_secs(60);
const SEARCH: Duration = Duration::from_secs(5);
