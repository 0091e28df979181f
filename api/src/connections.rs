//! Limits on connections to the API: their number, and the time of each phase. At the limit, a new connection evicts the one
//! that has been idle longest, so that idle, slow or stuck clients never exclude others.
//!
//! Phases: `Handshake` → `Waiting` for a request → `Responding` → `Sending` (then `Waiting` again) or `Streaming`.

use std::{
    collections::HashMap,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{self, Poll, Waker},
    time::Duration,
};

use axum::{extract::connect_info::Connected, serve::IncomingStream, serve::Listener};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{self, Instant, Sleep},
};

use super::transport::Transport;
use net::tls::{Endpoint, Failure};
use runtime::lock::lock;

/// Maximum time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Listener that always accepts; it closes an older connection if there are too many.
pub(super) struct LimitedListener {
    listener: tokio::net::TcpListener,
    open: Arc<OpenConnections>,
}

/// Open connections, at most `max`.
#[derive(Debug)]
struct OpenConnections {
    tls: Arc<Endpoint>,
    max: usize,
    /// Maximum time for a request to arrive, and for a response to be received.
    time_limit: Duration,
    slots: Mutex<Slots>,
}

#[derive(Default, Debug)]
struct Slots {
    next_id: u64,
    by_id: HashMap<u64, Arc<ConnectionHandle>>,
}

/// State of a connection, shared by the listener and the handlers.
#[derive(Debug)]
pub(super) struct ConnectionHandle(Mutex<ConnectionState>);

#[derive(Debug)]
struct ConnectionState {
    phase: Phase,
    phase_start: Instant,
    /// True once a newer connection has evicted this one.
    evicted: bool,
    waker: Option<Waker>,
}

/// Phase of a connection, which determines its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// TLS handshake in progress.
    Handshake,
    /// Waiting for a request, or for the rest of one.
    Waiting,
    /// A handler processes the request.
    Responding,
    /// The client receives a response of finite length.
    Sending,
    /// The client receives a live stream.
    Streaming,
}

impl ConnectionHandle {
    fn set(&self, phase: Phase) {
        let state = &mut *lock(&self.0);
        (state.phase, state.phase_start) = (phase, Instant::now());
        // The connection's deadline has changed.
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Marks the request as completely received: a handler runs now.
    pub(super) fn start_handler(&self) {
        self.set(Phase::Responding);
    }

    /// Marks the beginning of the response: a live stream, or a response of finite length.
    pub(super) fn start_response(&self, stream: bool) {
        self.set(if stream { Phase::Streaming } else { Phase::Sending });
    }

    /// Marks the response as completely passed to the kernel.
    fn sent(&self) {
        let state = &mut *lock(&self.0);
        if state.phase == Phase::Sending {
            (state.phase, state.phase_start) = (Phase::Waiting, Instant::now());
        }
    }

    fn evict(&self) {
        let state = &mut *lock(&self.0);
        state.evicted = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

impl OpenConnections {
    /// Adds a connection. At the limit, evicts the oldest handshake, else the connection that has waited longest for a
    /// request, else the slowest reader. `None` if all are being processed or are live streams.
    fn add(self: &Arc<Self>, stream: TcpStream) -> Option<Connection> {
        let Slots { next_id, by_id } = &mut *lock(&self.slots);
        if by_id.len() >= self.max {
            let id = oldest(by_id, Phase::Handshake)
                .or_else(|| oldest(by_id, Phase::Waiting))
                .or_else(|| oldest(by_id, Phase::Sending))?;
            if let Some(handle) = by_id.remove(&id) {
                handle.evict();
            }
        }
        let id = *next_id;
        *next_id += 1;
        let stream = Transport::new(stream, self.tls.config());
        let phase = if stream.is_pending() {
            Phase::Handshake
        } else {
            Phase::Waiting
        };
        let state = ConnectionState {
            phase,
            phase_start: Instant::now(),
            evicted: false,
            waker: None,
        };
        let handle = Arc::new(ConnectionHandle(Mutex::new(state)));
        by_id.insert(id, Arc::clone(&handle));
        let deadline = Box::pin(time::sleep(self.time_limit));
        Some(Connection {
            stream,
            handle,
            id,
            open: Arc::clone(self),
            deadline,
            last_progress: Instant::now(),
        })
    }

    fn is_full(&self) -> bool {
        lock(&self.slots).by_id.len() >= self.max
    }

    fn remove(&self, id: u64) {
        lock(&self.slots).by_id.remove(&id);
    }
}

/// Returns the id of the connection that has been in a phase for the longest time.
fn oldest(connections: &HashMap<u64, Arc<ConnectionHandle>>, phase: Phase) -> Option<u64> {
    let ages = connections.iter().filter_map(|(id, handle)| {
        let state = lock(&handle.0);
        (state.phase == phase).then_some((state.phase_start, *id))
    });
    ages.min().map(|(_, id)| id)
}

/// Accepted connection, registered among the open ones until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Transport,
    handle: Arc<ConnectionHandle>,
    id: u64,
    open: Arc<OpenConnections>,
    deadline: Pin<Box<Sleep>>,
    /// Time of the last successful read or write.
    last_progress: Instant,
}

impl Connection {
    /// Completes the TLS handshake, if there is one. A failure is counted once.
    fn poll_handshake(&mut self, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        if !self.stream.is_pending() {
            return Poll::Ready(Ok(()));
        }
        let (outcome, failure) = match self.stream.handshake(cx) {
            Poll::Pending => (self.enforce_deadline(cx, Poll::Pending), None),
            Poll::Ready(Ok(())) => (Poll::Ready(Ok(())), None),
            Poll::Ready(Err((failure, error))) => (Poll::Ready(Err(error)), Some(failure)),
        };
        match &outcome {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => {
                self.handle.set(Phase::Waiting);
                self.open.tls.count(None);
            }
            Poll::Ready(Err(error)) => {
                self.stream = Transport::Failed;
                self.open
                    .tls
                    .count(Some(failure.unwrap_or_else(|| Failure::from_error(error))));
            }
        }
        outcome
    }

    /// Passes on the outcome of a read or write, or an error if the connection was evicted or its phase has timed out. The
    /// deadline starts with the phase, so a client that trickles single bytes does not extend it.
    fn enforce_deadline<T>(
        &mut self,
        cx: &mut task::Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let (phase, phase_start) = {
            let state = &mut *lock(&self.handle.0);
            if state.evicted {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            state.waker = Some(cx.waker().clone());
            (state.phase, state.phase_start)
        };
        if outcome.is_ready() {
            self.last_progress = Instant::now();
            return outcome;
        }
        let time_limit = self.open.time_limit;
        let deadline = match phase {
            // No deadline here: requests have their own time limits.
            Phase::Responding => return Poll::Pending,
            Phase::Handshake => phase_start + time_limit.min(HANDSHAKE_TIMEOUT),
            Phase::Waiting | Phase::Sending => phase_start + time_limit,
            // Measured from the last write; the server sends a keep-alive comment four times as often.
            Phase::Streaming => self.last_progress.max(phase_start) + time_limit,
        };
        if self.deadline.deadline() != deadline {
            self.deadline.as_mut().reset(deadline);
        }
        self.deadline
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.remove(self.id);
    }
}

impl LimitedListener {
    /// Accepts at most `max` connections. A request must arrive, and a response be received, within `time_limit`.
    pub(super) fn new(
        listener: tokio::net::TcpListener,
        tls: Arc<Endpoint>,
        max: usize,
        time_limit: Duration,
    ) -> Self {
        Self {
            listener,
            open: Arc::new(OpenConnections {
                tls,
                max,
                time_limit,
                slots: Mutex::default(),
            }),
        }
    }
}

impl Listener for LimitedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    if self.open.is_full() {
                        // Let other tasks read requests that have arrived, so their connections no longer count as waiting.
                        tokio::task::yield_now().await;
                    }
                    if let Some(connection) = self.open.add(stream) {
                        return (connection, address);
                    }
                }
                // The process is out of file descriptors, or the client has disconnected; neither ends the service.
                Err(_) => time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Handle of a request's connection, as an extension for handlers.
#[derive(Clone, Debug)]
pub(super) struct Peer(pub(super) Arc<ConnectionHandle>);

impl Connected<IncomingStream<'_, LimitedListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> Self {
        Self(Arc::clone(&stream.io().handle))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        task::ready!(self.poll_handshake(cx))?;
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.enforce_deadline(cx, outcome)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        task::ready!(self.poll_handshake(cx))?;
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.enforce_deadline(cx, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        if self.stream.is_pending() {
            // Nothing can have been written before the handshake.
            return Poll::Ready(Ok(()));
        }
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        if outcome.is_ready() {
            // The kernel has accepted the whole response.
            self.handle.sent();
        }
        self.enforce_deadline(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.enforce_deadline(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        task::ready!(self.poll_handshake(cx))?;
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.enforce_deadline(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(test);
    }

    /// Starts a listener with room for `max`, and returns its address.
    async fn listening(max: usize, time_limit: Duration) -> (LimitedListener, SocketAddr) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (
            LimitedListener::new(listener, Arc::default(), max, time_limit),
            address,
        )
    }

    #[test]
    fn the_connection_that_has_waited_longest_makes_room() {
        run(async {
            let (mut limited, address) = listening(2, Duration::from_secs(60)).await;
            let mut clients = Vec::new();
            let mut servers = Vec::new();
            for _ in 0..2 {
                clients.push(std::net::TcpStream::connect(address).unwrap());
                servers.push(limited.accept().await.0);
            }
            // The first is being processed: the second is closed.
            servers[0].handle.start_handler();
            clients.push(std::net::TcpStream::connect(address).unwrap());
            servers.push(limited.accept().await.0);
            let mut buffer = [0; 1];
            let read = servers[1].read(&mut buffer).await;
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
            assert_eq!(lock(&limited.open.slots).by_id.len(), 2);
            // A slow reader is closed before a request that is being processed.
            servers[2].handle.start_response(false);
            clients.push(std::net::TcpStream::connect(address).unwrap());
            servers.push(limited.accept().await.0);
            let evicted: Vec<bool> = servers
                .iter()
                .map(|server| lock(&server.handle.0).evicted)
                .collect();
            assert_eq!(evicted, [false, true, true, false]);
            drop(servers);
            assert_eq!(lock(&limited.open.slots).by_id.len(), 0);
        });
    }

    #[test]
    fn a_handshake_that_takes_too_long_is_counted() {
        run(async {
            let file = |name: &str| {
                std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("../tests/tls")
                    .join(name)
            };
            let identity = net::tls::Identity {
                certificate: file("server.pem"),
                key: file("server.key"),
            };
            let (mut limited, address) = listening(1, Duration::from_millis(20)).await;
            let endpoint = Arc::clone(&limited.open.tls);
            endpoint.replace(Some(net::tls::server(&identity, None).unwrap()));
            let mut client = std::net::TcpStream::connect(address).unwrap();
            let (mut server, _) = limited.accept().await;
            // The beginning of a handshake does not extend the time limit.
            io::Write::write_all(&mut client, &[22, 3, 1]).unwrap();
            let error = server.read(&mut [0; 1]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(server.read(&mut [0; 1]).await.is_err());
            let failed = Failure::ALL.map(|failure| endpoint.failed(failure));
            assert_eq!((endpoint.completed(), failed), (0, [0, 1, 0, 0, 0, 0]));
            drop(client);
        });
    }

    #[test]
    fn a_phase_that_takes_too_long_ends_the_connection() {
        run(async {
            let time_limit = Duration::from_millis(20);
            let (mut limited, address) = listening(8, time_limit).await;
            let mut client = std::net::TcpStream::connect(address).unwrap();
            let (mut server, _) = limited.accept().await;
            // Single bytes do not extend the time limit.
            let (begun, mut buffer) = (lock(&server.handle.0).phase_start, [0; 1]);
            for _ in 0..3 {
                io::Write::write_all(&mut client, b"G").unwrap();
                assert_eq!(server.read(&mut buffer).await.unwrap(), 1);
            }
            let error = server.read(&mut buffer).await.unwrap_err();
            assert_eq!(
                (error.kind(), server.deadline.deadline()),
                (io::ErrorKind::TimedOut, begun + time_limit)
            );
            // A response that takes long does not end it.
            server.handle.start_handler();
            assert!(
                time::timeout(3 * time_limit, server.read(&mut buffer))
                    .await
                    .is_err()
            );
            drop(client);
        });
    }
}
