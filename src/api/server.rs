//! The listening socket, its thread, and an orderly end.

use std::{
    future::IntoFuture,
    io,
    net::{SocketAddr, TcpListener},
    pin::Pin,
    sync::Arc,
    task::{self, Poll},
    thread::{self, JoinHandle},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    runtime,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time,
};

use super::{Context, service};
use crate::{control, error::CliError};

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
        let thread = thread::Builder::new().name("api".to_owned()).spawn(move || {
            runtime.block_on(serve(listener, context, stopped));
            // A query that still runs is left behind: it only reads.
            runtime.shutdown_timeout(Duration::from_millis(100));
        });
        self.thread =
            Some(thread.map_err(|error| {
                CliError::io("cannot start a thread", error, "raise the limit on threads")
            })?);
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
    tokio::spawn(control::signals(context.control.clone()));
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

/// Notes the counters once a second, so that rates can be told.
async fn sample(context: Arc<Context>) {
    let mut every = time::interval(Duration::from_secs(1));
    for second in 1_u64.. {
        every.tick().await;
        context.monitor.sample();
        // A deleted file takes space until the last connection to it is closed.
        if let Some(reader) = context.store.as_ref().filter(|_| second.is_multiple_of(60)) {
            reader.tidy();
        }
    }
}

/// Questions to the store, which wait for the disk, run on these: as many as `[api] max_queries` may be, and the pages' own.
const BLOCKING_THREADS: usize = 72;
/// Connections at once; more wait in the kernel.
const MAX_CONNECTIONS: usize = 512;
/// How long answers may take when the program ends.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// A listener that accepts a connection only when there is room for it.
struct Limited {
    listener: tokio::net::TcpListener,
    permits: Arc<Semaphore>,
}

/// A connection, with its place.
struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let Ok(place) = Arc::clone(&self.permits).acquire_owned().await else {
                // The semaphore is never closed; were it, nobody could be accepted any more.
                std::future::pending::<()>().await;
                continue;
            };
            match self.listener.accept().await {
                Ok((stream, address)) => return (Connection { stream, _place: place }, address),
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
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
