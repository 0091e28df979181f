//! The export role: for each `[exports.NAME]` a thread with one task per stream, which reads new records from the store,
//! batches and sends them, and saves a cursor (at-least-once delivery). An outlet does the same from Kafka into ClickHouse.

mod answered;
mod drive;
mod files;
mod http;
mod kafka;
mod link;
mod outlet;
mod parquet;
mod parts;
mod reader;
mod records;
mod redis;
mod s3;
mod since;
mod spool;
mod syslog;
pub mod view;
mod worker;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use ::settings::values::Size;
use export::{
    Delivery, Keyed, Ledger, Notice,
    record::{Alert, Stream},
    sink::clickhouse::ClickHouse,
};
use tokio::{
    runtime::{self, Runtime},
    sync::watch,
};

use self::{
    link::ExportLink,
    outlet::Outlet,
    worker::{Exporter, Origin},
};
use crate::settings::{
    ExportKind, ExportSettings, HopReports, Share, Shares, Sink, Statement, Wrong, not_enough,
    outlet::OutletSettings, shares,
};
use ::runtime::hop_queue::{HopQueue, HopTap};
use ::runtime::{control::Control, lock::lock};
use net::destination::Destination;
use terminal::CliError;

/// Maximum number of an outlet's threads that decode, encode and write files. Each has a separate allocator arena.
const OUTLET_THREADS: usize = 8;
/// Maximum size of an answer to a probe or a statement, bytes.
const MAX_SAID: usize = 1 << 20;
/// Time limit of a probe.
const PROBE: Duration = Duration::from_secs(10);
/// Longest wait at the stop for the batch in flight.
const GRACE: Duration = Duration::from_secs(10);

/// The silences of alerts, from the process's configuration.
pub trait Silences: Debug + Send + Sync {
    /// Returns whether a silence covered the beginning of this alert. The end of an alert follows its beginning: it may have
    /// another node, queue or value, but what was reported as firing is also reported as resolved.
    fn is_silenced(&self, began: &Alert) -> bool;
}

/// The exports of a process, and the settings that they share.
#[derive(Clone, Debug)]
pub struct Exports<'a> {
    /// The exports by name.
    pub exports: &'a BTreeMap<String, ExportSettings>,
    /// The outlet from Kafka into ClickHouse, if one is configured.
    pub outlet: Option<&'a OutletSettings>,
    /// Limit on the memory of all exports together.
    pub memory: Size,
    /// Directory of the store.
    pub store: PathBuf,
    /// Name of the collector in records.
    pub collector: String,
}

/// The queues of hops between the collector's workers and the exports that want hops, by export name.
#[derive(Clone, Default, Debug)]
pub struct Hops(BTreeMap<String, HopTap>);

impl Hops {
    /// Opens the queues, with the hops that were pending at the last stop.
    ///
    /// # Errors
    /// A cursor or a directory is unusable; the message suggests a fix.
    pub fn open(settings: &Exports<'_>) -> Result<Self, CliError> {
        let mut taps = BTreeMap::new();
        for (name, export) in settings.exports {
            if export
                .streams()
                .is_ok_and(|streams| streams.contains(&Stream::Hops))
            {
                let queue = spool::open(&settings.store, name, export).map_err(CliError::new)?;
                let with_events = export.hop_reports == HopReports::Events;
                taps.insert(
                    name.clone(),
                    HopTap {
                        sample: export.sample,
                        with_events,
                        queue,
                    },
                );
            }
        }
        Ok(Self(taps))
    }

    /// Returns the sending ends; each worker clones them.
    pub fn taps(&self) -> Vec<HopTap> {
        self.0.values().cloned().collect()
    }
}

/// The threads of all exports. Dropping it stops them.
#[derive(Debug)]
pub struct Role {
    handle: Handle,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// A handle to the running exports, for the API.
#[derive(Clone, Debug)]
pub struct Handle {
    statuses: Statuses,
    /// Limit on the memory of all exports together, bytes.
    memory: u64,
}

/// The statuses of all streams. An outlet adds partitions while it runs.
type Statuses = Arc<Mutex<Vec<Arc<ExportStatus>>>>;

/// The status of one export's stream, for the API and metrics.
#[derive(Debug)]
pub struct ExportStatus {
    /// The export: NAME of `[exports.NAME]`.
    export: String,
    /// Kind of the receiving system.
    kind: &'static str,
    authority: String,
    stream: Stream,
    /// The partition of the topic, if this is an outlet.
    partition: Option<u32>,
    /// True for the status of a whole topic of an outlet, which is shown only while the topic cannot be found.
    is_topic: bool,
    /// The memory limits of this stream.
    share: Share,
    state: Mutex<State>,
}

impl ExportStatus {
    /// Publishes the counters of a delivery, and logs its notices.
    fn publish<R: Keyed>(&self, delivery: &mut Delivery<R>) -> Ledger {
        let export = self.export.as_str();
        let stream = self.stream.name();
        let partition = self.partition;
        for notice in delivery.notices() {
            match notice {
                Notice::Recovered { .. } => tracing::info!(export, stream, partition, "{notice}"),
                _ => tracing::warn!(export, stream, partition, "{notice}"),
            }
        }
        let ledger = delivery.ledger();
        let mut state = lock(&self.state);
        state.ledger = ledger;
        let success = delivery.last_success();
        if state.success != success {
            state.success = success;
            state.last_success = success.map(clock_time);
        }
        if state.last_error.as_deref() != delivery.last_error() {
            state.last_error = delivery.last_error().map(str::to_owned);
        }
        ledger
    }

    /// Sets the current error, or clears it with `None`. A new error is logged once.
    fn fails(&self, words: Option<String>) {
        let mut state = lock(&self.state);
        if state.last_error != words {
            if let Some(error) = &words {
                tracing::warn!(export = self.export, stream = self.stream.name(), error);
            }
            state.last_error = words;
        }
    }
}

/// The variable part of a status.
#[derive(Clone, Default, Debug)]
struct State {
    ledger: Ledger,
    /// Number of committed records after the cursor.
    waiting: u64,
    /// Time at which they were counted.
    counted: u64,
    /// Time of the oldest of these records.
    oldest: Option<u64>,
    last_success: Option<u64>,
    /// The same on the monotonic clock, ns.
    success: Option<u64>,
    last_error: Option<String>,
    /// Number of times that the store's count of records was reset; losses at a reset have no number.
    restarted: u64,
    /// Records that do not apply to this system, such as events other than alerts.
    left_out: u64,
    /// Alerts among these that were silenced.
    silenced: u64,
    /// Hops dropped because the queue was full.
    shed: u64,
    /// Memory of batches, requests and hops, bytes.
    memory: usize,
    /// The stage of the loss budget, with all numbers of the same moment.
    budget: Budget,
}

/// An export as a stage of the loss budget. The input is counted by the store, the outcomes by the delivery.
#[derive(Clone, Copy, Default, Debug)]
struct Budget {
    into: u64,
    out: u64,
    rejected: u64,
    unwritten: u64,
    expired: u64,
    shed: u64,
    queued: u64,
}

/// Converts a monotonic time, ns, to system time, ns since the Unix epoch.
fn clock_time(at: u64) -> u64 {
    let age = nic::time::monotonic().saturating_sub(at);
    nic::time::now().saturating_sub(age)
}

fn budget(into: u64, ledger: &Ledger, shed: u64, unread: u64) -> Budget {
    Budget {
        into,
        out: ledger.delivered + ledger.left_out,
        rejected: ledger.rejected.saturating_sub(ledger.unwritten),
        unwritten: ledger.unwritten,
        expired: ledger.expired,
        shed,
        queued: ledger.held + unread,
    }
}

impl Role {
    /// Starts the threads of all exports.
    ///
    /// # Errors
    /// A setting or a cursor is unusable; the message suggests a fix.
    pub fn start(
        settings: &Exports<'_>,
        hops: &Hops,
        silences: &Option<Arc<dyn Silences>>,
        control: &Control,
    ) -> Result<Self, CliError> {
        let (stop, stopped) = watch::channel(false);
        let memory = settings.outlet.map_or(settings.memory, |outlet| outlet.memory).0;
        let handle = Handle {
            statuses: Arc::default(),
            memory,
        };
        let mut role = Self {
            handle,
            stop,
            threads: Vec::new(),
        };
        let mut statuses = Vec::new();
        let shares = divided(settings, settings.exports)?;
        for (name, export) in settings.exports {
            let hops = hops.0.get(name).map(|tap| Arc::clone(&tap.queue));
            let exporters = exporters(name, export, settings, Reading::New(hops), &shares, silences)?;
            statuses.extend(exporters.iter().map(Exporter::status));
            let stopped = stopped.clone();
            let runtime = runtime()?;
            let thread = control.spawn(&format!("export-{name}"), move || {
                runtime.block_on(worker::run_all(exporters, stopped));
            })?;
            role.threads.push(thread);
        }
        lock(&role.handle.statuses).extend(statuses);
        if let Some(outlet) = settings.outlet {
            let outlet = Outlet::open(&settings.store, outlet, Arc::clone(&role.handle.statuses))?;
            let runtime = built(runtimes().max_blocking_threads(OUTLET_THREADS))?;
            let thread = control.spawn("outlet", move || runtime.block_on(outlet.run(stopped)))?;
            role.threads.push(thread);
        }
        Ok(role)
    }

    /// Returns a handle to the running exports.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // Fails only if all threads have ended.
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Sends the stored records of a time range again, and returns the outcome.
///
/// # Errors
/// A setting or the store is unusable.
pub fn replay(
    name: &str,
    export: &ExportSettings,
    settings: &Exports<'_>,
    silences: Arc<dyn Silences>,
    range: (u64, Option<u64>),
) -> Result<Vec<view::ExportView>, CliError> {
    let shares = divided(settings, &BTreeMap::from([(name.to_owned(), export.clone())]))?;
    let exporters = exporters(
        name,
        export,
        settings,
        Reading::Range {
            from: range.0,
            to: range.1,
        },
        &shares,
        &Some(silences),
    )?;
    let statuses: Vec<Arc<ExportStatus>> = exporters.iter().map(Exporter::status).collect();
    let runtime = runtime()?;
    let (_stop, stopped) = watch::channel(false);
    runtime.block_on(worker::run_all(exporters, stopped));
    Ok(view::view(&Handle {
        statuses: Arc::new(Mutex::new(statuses)),
        memory: settings.memory.0,
    })
    .exports)
}

/// Returns whether this export notifies people of alerts, so that silences apply. Other systems receive all alerts.
pub fn notifies_people(export: &ExportSettings) -> bool {
    let notifies = matches!(
        export.kind,
        Some(ExportKind::Webhook | ExportKind::Alertmanager | ExportKind::Syslog)
    );
    notifies
        && export
            .streams()
            .is_ok_and(|streams| streams.contains(&Stream::Alerts))
}

/// The records that an exporter reads.
#[derive(Debug)]
enum Reading {
    /// New records. For the stream `hops`, they arrive in this queue.
    New(Option<Arc<HopQueue>>),
    /// Stored records of a time range, ns since the Unix epoch.
    Range { from: u64, to: Option<u64> },
}

/// Divides the memory limit among these exports.
fn divided(settings: &Exports<'_>, exports: &BTreeMap<String, ExportSettings>) -> Result<Shares, CliError> {
    shares(settings.memory, exports)
        .map_err(|needed| CliError::new(format!("[export] memory: {}", not_enough(needed))))
}

/// Creates an exporter for each stream of an export, with its share of the memory.
fn exporters(
    name: &str,
    export: &ExportSettings,
    settings: &Exports<'_>,
    reading: Reading,
    shares: &Shares,
    silences: &Option<Arc<dyn Silences>>,
) -> Result<Vec<Exporter>, CliError> {
    let destination = export.destination().map_err(|wrong| invalid(name, wrong))?;
    let streams = export.streams().map_err(|wrong| invalid(name, wrong))?;
    let mut exporters = Vec::new();
    for stream in streams {
        // Hops are not stored, so past ones cannot be sent again.
        if stream.stored().is_none() && !matches!(reading, Reading::New(_)) {
            continue;
        }
        let status = ExportStatus {
            export: name.to_owned(),
            kind: export.kind.map_or("", |kind| kind.name()),
            authority: destination.authority.clone(),
            stream,
            partition: None,
            is_topic: false,
            share: shares
                .get(&(name.to_owned(), stream))
                .copied()
                .unwrap_or_default(),
            state: Mutex::default(),
        };
        let sink = export.sink().map_err(|wrong| invalid(name, wrong))?;
        let link = ExportLink::new(sink, destination.clone(), export.timeout, status.share.batch);
        let silences = silences
            .clone()
            .filter(|_| stream == Stream::Alerts && notifies_people(export));
        let origin = Origin {
            directory: &settings.store,
            collector: settings.collector.clone(),
            silences,
        };
        if matches!(reading, Reading::New(_)) {
            link.clean(stream, &origin.collector)
                .map_err(|words| invalid(name, ("url", words)))?;
        }
        exporters.push(Exporter::new(link, export, origin, status, &reading).map_err(CliError::new)?);
    }
    if exporters.is_empty() {
        return Err(CliError::new(format!(
            "[exports.{name}] sends only hops, which are not stored; only what is stored can be sent again"
        )));
    }
    Ok(exporters)
}

fn invalid(name: &str, wrong: Wrong) -> CliError {
    CliError::new(format!("[exports.{name}] {}: {}", wrong.0, wrong.1))
}

/// Creates an asynchronous runtime on the current thread.
fn runtime() -> Result<Runtime, CliError> {
    built(&mut runtimes())
}

fn runtimes() -> runtime::Builder {
    let mut runtimes = runtime::Builder::new_current_thread();
    runtimes.enable_all().thread_name("export-read");
    runtimes
}

fn built(runtimes: &mut runtime::Builder) -> Result<Runtime, CliError> {
    runtimes
        .build()
        .map_err(|error| CliError::io("cannot connect", error, "raise the limit on open files"))
}

/// Checks that each system is reachable and has the required tables or topics. Returns its address or the problem, by export.
///
/// # Errors
/// The runtime cannot be created.
pub fn probe(
    exports: &BTreeMap<String, ExportSettings>,
) -> Result<BTreeMap<String, Result<String, String>>, CliError> {
    let runtime = runtime()?;
    let mut probed = BTreeMap::new();
    for (name, export) in exports {
        probed.insert(name.clone(), runtime.block_on(probe_one(export)));
    }
    Ok(probed)
}

/// Checks the ClickHouse server of a console, and returns its address.
///
/// # Errors
/// The problem, as one sentence.
pub fn probe_console(destination: Destination, tables: ClickHouse) -> Result<String, String> {
    let authority = destination.authority.clone();
    let mut link = ExportLink::new(Sink::Http(Box::new(tables)), destination, PROBE, MAX_SAID);
    let runtime = runtime().map_err(|error| error.to_string())?;
    // The tables that a console reads.
    let read = [
        Stream::Events,
        Stream::Rollups,
        Stream::Flows,
        Stream::Drops,
        Stream::Losses,
    ];
    runtime.block_on(in_time(link.probe(&read)))?;
    Ok(authority)
}

/// Checks the Kafka brokers and the ClickHouse server of an outlet, in this order.
///
/// # Errors
/// The runtime cannot be created.
pub fn probe_outlet(settings: &OutletSettings) -> Result<[Result<String, String>; 2], CliError> {
    Ok(runtime()?.block_on(outlet::probe(settings)))
}

async fn probe_one(export: &ExportSettings) -> Result<String, String> {
    let sink = export.sink().map_err(with_key)?;
    let streams = export.streams().map_err(with_key)?;
    let destination = export.destination().map_err(with_key)?;
    let authority = destination.authority.clone();
    let mut link = ExportLink::new(sink, destination, export.timeout, MAX_SAID);
    in_time(link.probe(&streams)).await?;
    Ok(authority)
}

/// Executes the statements of a schema, in order.
///
/// # Errors
/// A statement was rejected.
pub fn execute(export: &ExportSettings, statements: Vec<Statement>) -> Result<(), CliError> {
    let sink = export.sink().map_err(with_key).map_err(CliError::new)?;
    let destination = export.destination().map_err(with_key).map_err(CliError::new)?;
    let mut link = ExportLink::new(sink, destination, export.timeout, MAX_SAID);
    let runtime = runtime()?;
    for statement in statements {
        runtime
            .block_on(in_time(link.execute(statement)))
            .map_err(CliError::new)?;
    }
    Ok(())
}

fn with_key(wrong: Wrong) -> String {
    format!("{}: {}", wrong.0, wrong.1)
}

async fn in_time(asked: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let answered = tokio::time::timeout(PROBE, asked).await;
    answered.unwrap_or_else(|_| Err("the server does not answer in time".to_owned()))
}
