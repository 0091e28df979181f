//! The collector's side of the exchange: accepts TCP connections, authenticates translators, lets the memory role create their
//! queue pairs, and keeps the connections alive, with one thread per connection.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    Accept, Connection, Hello, KEEPALIVE_INTERVAL, Message, PEER_TIMEOUT, Received,
    admission::{Admission, AdmissionOutcome, AdmissionView, MAX_LINKS},
    handshake::{HandshakeLimit, RefusalCause, Refused, receive_hello},
    secret::SecretFile,
};
use runtime::control::{Control, StoppableThread};
use terminal::CliError;

/// Poll interval of the threads, which bounds the delay of a stop.
const SLEEP: Duration = Duration::from_millis(100);

/// Answers hellos; implemented by the memory role.
pub(crate) trait Host: Send + Sync + 'static {
    /// Creates queue pairs for a translator that connected to our address `local`. `connection` numbers the connections in the
    /// order of their arrival, because hellos of one translator may be answered in another order.
    ///
    /// # Errors
    /// A sentence for the translator's operator.
    fn accept(&self, hello: &Hello, connection: u64, local: IpAddr) -> Result<Accept, String>;

    /// Notifies the host that a connection, on which `hello` was answered with `accept`, has ended.
    fn disconnected(&self, hello: &Hello, accept: &Accept);
}

/// Access control of the exchange: the secret that translators must prove, and admission control.
#[derive(Debug, Default)]
pub(crate) struct AccessControl {
    secret: Option<Arc<SecretFile>>,
    admission: Admission,
}

impl AccessControl {
    /// Admits translators that prove this secret, or all if there is none.
    pub(crate) fn new(secret: Option<Arc<SecretFile>>) -> Arc<Self> {
        Arc::new(Self {
            secret,
            admission: Admission::default(),
        })
    }

    /// Returns the secret, if there is one.
    pub(crate) fn secret(&self) -> Option<&Arc<SecretFile>> {
        self.secret.as_ref()
    }

    /// Returns the counters of connections.
    pub(crate) fn view(&self) -> AdmissionView {
        self.admission.view(self.secret.is_some())
    }
}

/// A bound socket that accepts nothing before [`Listening::start`].
#[derive(Debug)]
pub(crate) struct Listening(TcpListener);

impl Listening {
    /// Binds a TCP socket to the address.
    ///
    /// # Errors
    /// The address cannot be bound; the message suggests a fix.
    pub(crate) fn open(address: SocketAddr) -> Result<Self, CliError> {
        let listener = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map(Self).map_err(|error| {
            let remedy = "set another [collector.memory] exchange, or stop the program that holds it";
            CliError::io(
                format!("cannot listen for translators on {address}"),
                error,
                remedy,
            )
        })
    }

    /// Returns the address to which the socket is bound.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.0.local_addr().ok()
    }

    /// Starts the thread that accepts connections.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(
        self,
        host: Arc<dyn Host>,
        access: Arc<AccessControl>,
        control: &Control,
    ) -> Result<StoppableThread, CliError> {
        let spawner = control.clone();
        control.spawn_stoppable("exchange", move |stop| {
            let context = ConnectionContext { host, access, stop };
            accept_connections(&self.0, &context, &spawner);
        })
    }
}

/// State shared by the threads of all connections.
#[derive(Clone)]
struct ConnectionContext {
    host: Arc<dyn Host>,
    access: Arc<AccessControl>,
    stop: Arc<AtomicBool>,
}

/// Accepts connections until the stop, each with a separate thread, and then joins the threads.
fn accept_connections(listener: &TcpListener, context: &ConnectionContext, control: &Control) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !context.stop.load(Ordering::Relaxed) {
        let accepted = listener
            .accept()
            .and_then(|(stream, from)| Ok((stream.try_clone()?, stream, from)));
        let Ok((same, stream, from)) = accepted else {
            std::thread::sleep(SLEEP);
            continue;
        };
        threads.retain(|thread| !thread.is_finished());
        let from = from.ip().to_canonical();
        let id = context.access.admission.register(same, from);
        let thread_context = context.clone();
        let spawned = control.spawn("exchange-link", move || {
            if let Err(error) = thread_context.serve(stream, id, from) {
                tracing::debug!("exchange: {error}");
            }
        });
        match spawned {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                context.access.admission.refuse(id, RefusalCause::Full);
                tracing::warn!("exchange: {error}");
            }
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// A connection on which a valid hello arrived.
struct Identified {
    connection: Connection,
    /// Our address, as the translator reached it.
    local: IpAddr,
    hello: Hello,
}

/// A connection on which no valid hello arrived.
struct Rejected {
    /// The connection for the response, or `None` if it could not be set up.
    connection: Option<Box<Connection>>,
    refused: Refused,
}

impl ConnectionContext {
    /// Serves one connection of a translator, until it ends.
    fn serve(&self, stream: TcpStream, id: u64, from: IpAddr) -> io::Result<()> {
        let admission = &self.access.admission;
        let Identified {
            mut connection,
            local,
            hello,
        } = match self.identify(stream) {
            Ok(identified) => identified,
            Err(Rejected { connection, refused }) => {
                log_refusal(from, &refused, admission.refuse(id, refused.cause));
                return connection.map_or(Ok(()), |connection| send_refusal(connection, refused));
            }
        };
        let mut admitted = match admission.admit(id) {
            AdmissionOutcome::Evicted => return Ok(()),
            AdmissionOutcome::Admitted(admitted) => admitted,
            AdmissionOutcome::Full { log_permit } => {
                let text = format!("{MAX_LINKS} translators are connected, which is the limit");
                let refused = Refused::new(RefusalCause::Full, text);
                log_refusal(from, &refused, log_permit);
                return connection.send(&refused.message());
            }
        };
        let accept = match ask_host(&mut connection, &|| self.host.accept(&hello, id, local))? {
            Ok(accept) => accept,
            Err(reason) => {
                let refused = Refused::new(RefusalCause::Rejected, reason);
                log_refusal(from, &refused, admitted.refused(RefusalCause::Rejected));
                return connection.send(&refused.message());
            }
        };
        admitted.accepted();
        let sent = connection.send(&Message::Accept(accept.clone()));
        let outcome = sent.and_then(|()| keep_alive(&mut connection, &self.stop));
        self.host.disconnected(&hello, &accept);
        outcome
    }

    /// Authenticates the translator and receives its hello, within [`PEER_TIMEOUT`].
    fn identify(&self, stream: TcpStream) -> Result<Identified, Rejected> {
        let deadline = Instant::now() + PEER_TIMEOUT;
        let (local, mut connection) = set_up(stream).map_err(|error| Rejected {
            connection: None,
            refused: error.into(),
        })?;
        let limit = HandshakeLimit {
            deadline,
            stopped: &|| self.stop.load(Ordering::Relaxed),
        };
        let secret = self.access.secret.as_ref().map(|file| file.current());
        match receive_hello(&mut connection, secret.as_ref(), &limit) {
            Ok(hello) => Ok(Identified {
                connection,
                local,
                hello,
            }),
            Err(refused) => Err(Rejected {
                connection: Some(Box::new(connection)),
                refused,
            }),
        }
    }
}

/// Sends a refusal, unless the peer is gone.
fn send_refusal(mut connection: Box<Connection>, refused: Refused) -> io::Result<()> {
    match refused.cause {
        RefusalCause::Timeout | RefusalCause::Closed | RefusalCause::Stopped => Ok(()),
        _ => connection.send(&refused.message()),
    }
}

/// Logs a refusal, if the rate limit permits. Never logs text that the peer sent.
fn log_refusal(from: IpAddr, refused: &Refused, permit: Option<u64>) {
    let Some(unlogged) = permit else { return };
    let cause = refused.cause.name();
    let more = if unlogged > 0 {
        format!(" ({unlogged} more since the last such line)")
    } else {
        String::new()
    };
    if matches!(refused.cause, RefusalCause::Malformed | RefusalCause::Version) {
        tracing::warn!("exchange: connection from {from} refused: {cause}{more}");
    } else {
        tracing::warn!(
            "exchange: connection from {from} refused: {cause}: {}{more}",
            refused.text
        );
    }
}

/// Makes the stream blocking, and returns our address and the connection.
fn set_up(stream: TcpStream) -> io::Result<(IpAddr, Connection)> {
    stream.set_nonblocking(false)?;
    let local = stream.local_addr()?.ip().to_canonical();
    Ok((local, Connection::new(stream, SLEEP)?))
}

/// Asks the host for its answer. Reading every list takes a while, so the translator receives keepalives meanwhile.
fn ask_host(
    connection: &mut Connection,
    accept: &(dyn Fn() -> Result<Accept, String> + Sync),
) -> io::Result<Result<Accept, String>> {
    std::thread::scope(|scope| {
        let (sender, answer) = sync_channel(1);
        std::thread::Builder::new()
            .name("exchange-accept".to_owned())
            .spawn_scoped(scope, move || drop(sender.send(accept())))?;
        loop {
            match answer.recv_timeout(KEEPALIVE_INTERVAL) {
                Ok(answer) => return Ok(answer),
                // Ignore failures: a translator that has disconnected is noticed when the answer is sent.
                Err(RecvTimeoutError::Timeout) => drop(connection.send(&Message::Keepalive)),
                // The host's thread panicked; leaving the scope propagates the panic.
                Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::Other.into()),
            }
        }
    })
}

/// Exchanges keepalives until either side stops.
fn keep_alive(connection: &mut Connection, stop: &AtomicBool) -> io::Result<()> {
    let mut received = Instant::now();
    let mut sent = Instant::now();
    while !stop.load(Ordering::Relaxed) && received.elapsed() < PEER_TIMEOUT {
        match connection.receive() {
            Received::Message(_) => received = Instant::now(),
            Received::Nothing => {}
            Received::Forged => {
                tracing::warn!("exchange: message with an invalid tag; connection closed");
                break;
            }
            Received::Closed | Received::Malformed(_) => break,
        }
        if sent.elapsed() >= KEEPALIVE_INTERVAL {
            sent = Instant::now();
            connection.send(&Message::Keepalive)?;
        }
    }
    Ok(())
}
