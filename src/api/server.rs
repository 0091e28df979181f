//! The listening socket, its thread, and an orderly end.

use std::{
    collections::BTreeMap,
    future::{Future, IntoFuture},
    io,
    net::{SocketAddr, TcpListener},
    pin::Pin,
    sync::Arc,
    task::{self, Poll},
    thread::JoinHandle,
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    runtime,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{self, Instant, Sleep},
};

use super::{Context, service};
use crate::{control, monitor::Monitor, view::Name};
use terminal::CliError;

/// The API as a component.
#[derive(Debug)]
pub(crate) struct Api {
    context: Arc<Context>,
    listen: SocketAddr,
    address: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Api {
    /// An inert API.
    pub(crate) fn new(listen: SocketAddr, context: Context) -> Self {
        Self { context: Arc::new(context), listen, address: None, stop: None, thread: None }
    }

    /// Where it answers, once started.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Binds the address and serves it on a thread of its own.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) fn start(&mut self) -> Result<(), CliError> {
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
        let (stop, stopped) = oneshot::channel();
        let context = Arc::clone(&self.context);
        let control = context.control.clone();
        {
            // Before the address is known: a signal without a handler ends the program at once.
            let _within = runtime.enter();
            control::signals(&control);
        }
        let serving = move || {
            runtime.block_on(serve(listener, context, stopped));
            // A query that still runs is left behind: it only reads.
            runtime.shutdown_timeout(Duration::from_millis(100));
        };
        self.thread = Some(control.spawn("api", serving)?);
        self.stop = Some(stop);
        Ok(())
    }

    /// Ends the live streams, lets other answers finish for a moment, and stops.
    pub(crate) fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Fails when the thread is gone already, which is what we want.
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

async fn serve(listener: TcpListener, context: Arc<Context>, stopped: oneshot::Receiver<()>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => Limited { listener, permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)) },
        Err(error) => {
            context.control.failed(format!("the API cannot serve: {error}"));
            return;
        }
    };
    tokio::spawn(sample(Arc::clone(&context)));
    let (end, ended) = oneshot::channel::<()>();
    let ending = async {
        // An error means that the sender is gone, which is an end as well.
        let _ = ended.await;
    };
    let served = axum::serve(listener, service(Arc::clone(&context))).with_graceful_shutdown(ending);
    let served = tokio::spawn(served.into_future());
    let _ = stopped.await;
    context.hub.close();
    drop(end);
    let _ = time::timeout(LAST_ANSWERS, served).await;
}

/// Notes the counters once a second, so that rates can be computed.
async fn sample(context: Arc<Context>) {
    let mut every = time::interval(Duration::from_secs(1));
    // What was missed is not made up for: rates want seconds between samples.
    every.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let mut drops = Drops::default();
    for second in 1_u64.. {
        every.tick().await;
        context.monitor.sample();
        if second.is_multiple_of(DROPS_EVERY) {
            drops.report(&context.monitor);
        }
        // A deleted file takes space until the last connection to it is closed.
        if let Some(reader) = context.store.as_ref().filter(|_| second.is_multiple_of(60)) {
            reader.tidy();
        }
    }
}

/// The drop counts of the last log lines.
#[derive(Default)]
struct Drops {
    reported: BTreeMap<(Name, Name), u64>,
}

impl Drops {
    /// One line per stage and reason that grew since the last time: losses must be visible, and must not flood the log.
    fn report(&mut self, monitor: &Monitor) {
        for stage in monitor.stages(0) {
            for (reason, count) in stage.drops {
                let reported = self.reported.entry((stage.stage.clone(), reason.clone())).or_default();
                if count > *reported {
                    let new = count - *reported;
                    tracing::warn!(stage = &*stage.stage, reason = &*reason, new, total = count, "dropped");
                    *reported = count;
                }
            }
        }
    }
}

/// Seconds between two checks of the drop counters.
const DROPS_EVERY: u64 = 10;
/// Questions to the store, which wait for the disk, run on these: as many as `[api] max_queries` may be, and the pages' own.
const BLOCKING_THREADS: usize = 72;
/// Connections at once; more wait in the kernel.
const MAX_CONNECTIONS: usize = 512;
/// An idle connection is closed after this time; live streams send a comment four times as often.
const IDLE: Duration = Duration::from_secs(60);
/// Time limit of responses when the program ends.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// A listener that accepts a connection only when there is room for it.
struct Limited {
    listener: tokio::net::TcpListener,
    permits: Arc<Semaphore>,
}

/// A connection, with its permit. An idle connection is closed, so that idle clients cannot exclude others.
struct Connection {
    stream: TcpStream,
    idle: Duration,
    deadline: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TcpStream, idle: Duration, permit: OwnedSemaphorePermit) -> Self {
        Self { stream, idle, deadline: Box::pin(time::sleep(idle)), _permit: permit }
    }

    /// Passes on what came of reading or writing; when nothing did, for too long, that is an error.
    fn watch<T>(&mut self, cx: &mut task::Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.deadline.as_mut().reset(Instant::now() + self.idle);
            return outcome;
        }
        self.deadline.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                // The semaphore is never closed.
                std::future::pending::<()>().await;
                continue;
            };
            match self.listener.accept().await {
                Ok((stream, address)) => return (Connection::new(stream, IDLE, permit), address),
                // Out of descriptors, or the client went away: neither ends the service.
                Err(_) => time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.watch(cx, outcome)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_on_which_nothing_moves_is_closed() {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let permits = Arc::new(Semaphore::new(1));
            let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
            let mut connection = Connection::new(stream, Duration::from_millis(1), permit);
            let mut bytes = [0; 8];
            let read = std::future::poll_fn(|cx| {
                Pin::new(&mut connection).poll_read(cx, &mut ReadBuf::new(&mut bytes))
            });
            assert_eq!(read.await.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
            drop(connection);
            assert_eq!(permits.available_permits(), 1);
        });
    }
}
