//! The API as a component of the server: binds the socket, serves on its own thread, and stops in an orderly way. Its
//! background tasks sample counters every second, log drops and store problems, and learn links.

use std::{
    collections::BTreeMap,
    future::IntoFuture,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Weak},
    thread::JoinHandle,
    time::Duration,
};

use tokio::{runtime, sync::oneshot, task, time};

use super::{
    alerts,
    connections::{LimitedListener, Peer},
    context::Context,
    router::service,
};
use ::runtime::{control, save};
use collect_role::monitor::Monitor;
use terminal::CliError;
use view::Name;

/// Interval between two checks of the drop counters, seconds.
const DROP_CHECK_SECONDS: u64 = 10;
/// Interval between two reads of the links in use.
const LEARN_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of blocking threads, which wait for the disk: the maximum of `[api] max_queries`, and some for the pages.
const BLOCKING_THREADS: usize = 72;
/// Maximum number of connections; another one evicts the connection that has been idle longest.
const MAX_CONNECTIONS: usize = 512;
/// Maximum time for a request to arrive, and for a response to be received.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time for running responses when the program stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The API with its thread.
#[derive(Debug)]
pub struct Api {
    context: Arc<Context>,
    listen: SocketAddr,
    address: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Api {
    /// Creates an API that is not yet started.
    pub fn new(listen: SocketAddr, context: Context) -> Self {
        Self {
            context: Arc::new(context),
            listen,
            address: None,
            stop: None,
            thread: None,
        }
    }

    /// Returns the bound address; `None` before the start.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Binds the address and serves it on a new thread.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(&mut self) -> Result<(), CliError> {
        let listener = TcpListener::bind(self.listen).and_then(|listener| {
            listener.set_nonblocking(true)?;
            self.address = Some(listener.local_addr()?);
            Ok(listener)
        });
        let listener = listener.map_err(|error| self.cannot_listen(error))?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build();
        let runtime = runtime
            .map_err(|error| CliError::io("cannot start the API", error, "raise the limit on open files"))?;
        let (stop, stop_signal) = oneshot::channel();
        let context = Arc::clone(&self.context);
        let control = context.control.clone();
        {
            // Before the address is announced: until then, a signal would kill the process without cleanup.
            let _runtime_guard = runtime.enter();
            control::signals(&control);
        }
        let thread = control.spawn("api", move || {
            runtime.block_on(serve(listener, context, stop_signal));
            // A query that still runs is abandoned; it only reads.
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
        self.thread = Some(thread);
        self.stop = Some(stop);
        Ok(())
    }

    /// Ends live streams, gives other responses a moment to finish, and joins the thread.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Fails only if the thread has already ended.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn cannot_listen(&self, error: io::Error) -> CliError {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "stop the other program, or set another port in [api] listen (or --api)"
            }
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 need root or CAP_NET_BIND_SERVICE; use a higher one"
            }
            _ => "set an address of this machine in [api] listen (or --api)",
        };
        CliError::io(format!("cannot serve the API on {}", self.listen), error, remedy)
    }
}

/// Serves until `stop_signal` resolves; then ends the streams and gives open responses a limited time.
async fn serve(listener: TcpListener, context: Arc<Context>, stop_signal: oneshot::Receiver<()>) {
    if context.repeats_alerts {
        tokio::spawn(alerts::remind(Arc::downgrade(&context)));
    }
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => LimitedListener::new(
            listener,
            Arc::clone(&context.tls),
            MAX_CONNECTIONS,
            CONNECTION_TIMEOUT,
        ),
        Err(error) => {
            context.control.failed(format!("the API cannot serve: {error}"));
            return;
        }
    };
    tokio::spawn(sample_counters(Arc::clone(&context)));
    tokio::spawn(learn_links(Arc::downgrade(&context)));
    let (end, ended) = oneshot::channel::<()>();
    let ending = async {
        // `end` is dropped, never sent: the error is the signal to stop.
        let _ = ended.await;
    };
    let service = service(Arc::clone(&context)).into_make_service_with_connect_info::<Peer>();
    let server = axum::serve(listener, service).with_graceful_shutdown(ending);
    let server = tokio::spawn(server.into_future());
    let _ = stop_signal.await;
    context.hub.close();
    drop(end);
    let _ = time::timeout(SHUTDOWN_TIMEOUT, server).await;
    let known_links = Arc::clone(&context.known_links);
    // With a timeout: the blocking threads may be busy with abandoned queries.
    let _ = time::timeout(
        SHUTDOWN_TIMEOUT,
        tokio::task::spawn_blocking(move || known_links.save(true)),
    )
    .await;
}

/// Learns the links in use every few seconds, so that a failed link is recognized.
async fn learn_links(context: Weak<Context>) {
    loop {
        time::sleep(LEARN_INTERVAL).await;
        let Some(context) = context.upgrade() else { return };
        // A worker that does not answer is asked again next time.
        let Ok(links) = context.monitor.links().await else {
            continue;
        };
        let known_links = Arc::clone(&context.known_links);
        let update = tokio::task::spawn_blocking(move || {
            known_links.memory().learn(&links);
            known_links.save(false);
        });
        let _ = update.await;
    }
}

/// Samples the counters once a second, for rates, and checks for drops and store problems.
async fn sample_counters(context: Arc<Context>) {
    let mut ticks = time::interval(Duration::from_secs(1));
    // A late tick delays the following ones: rates need at least a second between samples.
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let mut drops = DropLog::default();
    let mut store = StoreLog::default();
    let mut restoring: Option<task::JoinHandle<()>> = None;
    for second in 1_u64.. {
        ticks.tick().await;
        context.monitor.sample();
        if let Some(stats) = context.monitor.pipeline().store() {
            store.report(&stats);
        }
        if second.is_multiple_of(DROP_CHECK_SECONDS) {
            drops.report(&context.monitor);
            // On a blocking thread, since it may wait for the disk.
            if restoring.as_ref().is_none_or(task::JoinHandle::is_finished) {
                restoring = Some(task::spawn_blocking(save::restore));
            }
        }
        if second.is_multiple_of(60) {
            context.history.iter().for_each(|history| history.tidy());
        }
    }
}

/// Drop counts as of the last log lines.
#[derive(Default)]
struct DropLog {
    reported: BTreeMap<(Name, Name), u64>,
    /// True once the line about truncated paths was logged.
    logged_truncation: bool,
}

impl DropLog {
    /// Logs one line per stage and reason whose drops have increased, so that losses are visible without flooding the log.
    fn report(&mut self, monitor: &Monitor) {
        let flows = monitor.total(|stats| stats.truncated_flows);
        if flows > 0 && !std::mem::replace(&mut self.logged_truncation, true) {
            tracing::warn!(
                flows,
                "paths are truncated: the table of hops is full; raise [collector] max_flows"
            );
        }
        for stage in monitor.stages(collector::Losses::default()) {
            for (reason, count) in stage.drops {
                let reported = self
                    .reported
                    .entry((stage.stage.clone(), reason.clone()))
                    .or_default();
                if count > *reported {
                    let new = count - *reported;
                    tracing::warn!(
                        stage = &*stage.stage,
                        reason = &*reason,
                        new,
                        total = count,
                        "dropped"
                    );
                    *reported = count;
                }
            }
        }
    }
}

/// Store state as of the last log lines.
#[derive(Default)]
struct StoreLog {
    state: Option<store::State>,
    /// Number of the latest logged problem of a file.
    last_problem: u64,
    /// True if there were more problems than the list holds.
    logged_more: bool,
}

impl StoreLog {
    /// Logs when the store begins to fail or its disk is full, when it works again, and each problem of a file.
    fn report(&mut self, stats: &store::Stats) {
        for problem in stats
            .problems
            .list()
            .iter()
            .filter(|problem| problem.number > self.last_problem)
        {
            tracing::error!(
                file = &*problem.file,
                kind = problem.kind.name(),
                records = problem.records,
                reason = &*problem.message,
                "a file of the store has a problem"
            );
        }
        self.last_problem = stats
            .problems
            .list()
            .last()
            .map_or(self.last_problem, |last| self.last_problem.max(last.number));
        let more = stats.problems.more();
        if more > 0 && !self.logged_more {
            tracing::error!(more, "more files of the store have problems than are listed");
        }
        self.logged_more = more > 0;
        let message = stats.message.as_deref();
        let previous = self.state.replace(stats.state).unwrap_or(store::State::Ok);
        match stats.state {
            state if state == previous => {}
            store::State::Ok => tracing::info!("the store works again"),
            store::State::Closed => {}
            store::State::Full => {
                tracing::error!(
                    reason = message,
                    "the store's disk is full: records are not stored"
                );
            }
            store::State::Degraded => {
                tracing::error!(
                    reason = message,
                    "the directory of the store cannot be used: no file can be opened there"
                );
            }
            _ => tracing::error!(reason = message, "the store fails: records are not stored"),
        }
    }
}
