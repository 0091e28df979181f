//! The collector's side of the exchange.

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
    admission::{Admission, AdmissionView, MAX_LINKS},
    handshake::{HandshakeLimit, RefusalCause, Refused, receive_hello},
    secret::SecretFile,
};
use runtime::control::{Control, StoppableThread};
use terminal::CliError;

/// Poll interval of the threads, which bounds the time to notice a stop.
const SLEEP: Duration = Duration::from_millis(100);

/// Responds to hellos: the memory role.
pub(crate) trait Host: Send + Sync + 'static {
    /// Creates queue pairs for this translator, which reached us at `local`. `connection` numbers the connections in the order in which
    /// they were made: hellos of one translator may be answered in another order.
    ///
    /// # Errors
    /// One sentence, for the translator's operator.
    fn accept(&self, hello: &Hello, connection: u64, local: IpAddr) -> Result<Accept, String>;

    /// The connection on which `hello` was answered by `accept` has ended.
    fn disconnected(&self, hello: &Hello, accept: &Accept);
}

/// Access to the exchange: the secret that translators must prove, and admission control.
#[derive(Debug, Default)]
pub(crate) struct AccessControl {
    secret: Option<Arc<SecretFile>>,
    admission: Admission,
}

impl AccessControl {
    /// Admits translators that prove this secret; without one, all.
    pub(crate) fn new(secret: Option<Arc<SecretFile>>) -> Arc<Self> {
        Arc::new(Self {
            secret,
            admission: Admission::default(),
        })
    }

    /// The secret, if there is one.
    pub(crate) fn secret(&self) -> Option<&Arc<SecretFile>> {
        self.secret.as_ref()
    }

    /// Returns the counters of connections.
    pub(crate) fn view(&self) -> AdmissionView {
        self.admission.view(self.secret.is_some())
    }
}

/// A listening socket; nothing is accepted before [`Listening::start`].
#[derive(Debug)]
pub(crate) struct Listening(TcpListener);

impl Listening {
    /// Binds the address.
    ///
    /// # Errors
    /// The address cannot be bound.
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

    /// Starts to accept connections.
    ///
    /// # Errors
    /// The system refuses a thread.
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

/// The shared state that the thread of a connection needs.
#[derive(Clone)]
struct ConnectionContext {
    host: Arc<dyn Host>,
    access: Arc<AccessControl>,
    stop: Arc<AtomicBool>,
}

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
        let own = context.clone();
        let spawned = control.spawn("exchange-link", move || {
            if let Err(error) = own.serve(stream, id, from) {
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

/// A connection after a valid hello.
struct Identified {
    connection: Connection,
    /// Our address as the translator sees it.
    local: IpAddr,
    hello: Hello,
}

/// A connection without a valid hello.
struct Rejected {
    /// For the response; `None` if the connection could not be set up.
    connection: Option<Box<Connection>>,
    refused: Refused,
}

impl ConnectionContext {
    /// Serves one translator's link, until it ends.
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
            None => return Ok(()),
            Some(Ok(admitted)) => admitted,
            Some(Err(log_permit)) => {
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

    /// Receives the hello of a translator that may connect.
    fn identify(&self, stream: TcpStream) -> Result<Identified, Rejected> {
        let until = Instant::now() + PEER_TIMEOUT;
        let (local, mut connection) = set_up(stream).map_err(|error| Rejected {
            connection: None,
            refused: error.into(),
        })?;
        let limit = HandshakeLimit {
            until,
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

/// Sends the refusal, unless the other side is gone.
fn send_refusal(mut connection: Box<Connection>, refused: Refused) -> io::Result<()> {
    match refused.cause {
        RefusalCause::Timeout | RefusalCause::Closed | RefusalCause::Stopped => Ok(()),
        _ => connection.send(&refused.message()),
    }
}

/// Logs a refusal, if the rate limit permits. The log never repeats what the other side wrote.
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

/// Makes a stream blocking, and returns the local address of the connection with it.
fn set_up(stream: TcpStream) -> io::Result<(IpAddr, Connection)> {
    stream.set_nonblocking(false)?;
    let local = stream.local_addr()?.ip().to_canonical();
    Ok((local, Connection::new(stream, SLEEP)?))
}

/// Asks the host for a response. It reads every list, which may take a while: meanwhile the translator receives keepalives.
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
                // A translator that disconnected is noticed when it is answered.
                Err(RecvTimeoutError::Timeout) => drop(connection.send(&Message::Keepalive)),
                // The host panicked; joining its thread panics here too.
                Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::Other.into()),
            }
        }
    })
}

/// Exchanges keepalives until one side stops.
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
