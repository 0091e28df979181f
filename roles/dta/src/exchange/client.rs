//! The translator's side of the exchange: connects to a collector, authenticates, sends `hello`, exchanges keepalives, and
//! reconnects with exponential backoff. Its thread reports to the translator by [`LinkEvent`]s.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant},
};

use super::{
    Accept, Connection, Hello, KEEPALIVE_INTERVAL, Message, PEER_TIMEOUT, Received, VERSION,
    handshake::{HandshakeLimit, RefusalCause, Refused, prove, refusal_of},
    secret::SecretFile,
};
use runtime::control::{Control, StoppableThread};
use terminal::CliError;

/// Exponential backoff between attempts.
const MIN_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Poll interval, which bounds the delay of a stop.
const SLEEP: Duration = Duration::from_millis(50);
/// Timeout of TCP connects.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Events that a link's thread sends to the translator. The first field is the collector's index.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// The TCP connection is established; the address is its local one. The translator answers with [`Commands::hello`].
    Reached(u8, IpAddr, Commands),
    /// The collector sent `accept`.
    Accepted(u8, Box<Accept>),
    /// The connection ended or failed, for the given reason.
    Lost(u8, String),
}

/// Sends commands to one connection of a link. They do not affect the next connection, so a translator that processes events
/// late cannot disturb it.
#[derive(Debug)]
pub(crate) struct Commands(Sender<Command>);

impl Commands {
    /// Sends the hello; valid once, after [`LinkEvent::Reached`].
    pub(crate) fn hello(&self, hello: Hello) {
        // Fails only when the connection has ended.
        let _ = self.0.send(Command::Hello(Box::new(hello)));
    }

    /// Closes the connection and makes a new one, because the queue pairs are broken.
    pub(crate) fn reconnect(&self, reason: &str) {
        let _ = self.0.send(Command::Reconnect(reason.to_owned()));
    }
}

/// Commands from the translator to a link's thread.
#[derive(Debug)]
enum Command {
    Hello(Box<Hello>),
    /// Closes the connection and makes a new one, for the given reason.
    Reconnect(String),
}

/// The collector that a link connects to, and its credentials.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Index of the collector at the translator.
    pub(crate) collector: u8,
    /// TCP address of its exchange.
    pub(crate) exchange: SocketAddr,
    /// The secret to prove, and to demand proof of.
    pub(crate) secret: Option<Arc<SecretFile>>,
}

/// The link to one collector.
#[derive(Debug)]
pub(crate) struct ExchangeLink {
    /// The thread ends when the link is dropped.
    _thread: StoppableThread,
    refusals: Arc<Refusals>,
}

/// Counts of refused connection attempts, by either side, by cause.
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; RefusalCause::COUNT]);

impl Refusals {
    /// Returns the counters of all causes.
    pub(crate) fn read(&self) -> [u64; RefusalCause::COUNT] {
        // Relaxed: independent counters.
        std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed))
    }

    fn add(&self, cause: RefusalCause) {
        self.0[cause as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl ExchangeLink {
    /// Starts a thread that connects to the exchange of `target`.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(
        target: Target,
        events: Sender<LinkEvent>,
        control: &Control,
    ) -> Result<Self, CliError> {
        let refusals = Arc::new(Refusals::default());
        let name = format!("exchange-{}", target.collector);
        let counted = Arc::clone(&refusals);
        let thread = control.spawn_stoppable(&name, move |stop| {
            let mut worker = Worker {
                target,
                events,
                stop,
                refusals: counted,
                last_logged: None,
            };
            worker.work();
        })?;
        Ok(Self {
            _thread: thread,
            refusals,
        })
    }

    /// Returns the counts of refused attempts.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

struct Worker {
    target: Target,
    events: Sender<LinkEvent>,
    stop: Arc<AtomicBool>,
    refusals: Arc<Refusals>,
    /// The last reason that was logged.
    last_logged: Option<String>,
}

impl Worker {
    /// Connects again and again until the stop, with exponential backoff.
    fn work(&mut self) {
        let mut wait = MIN_BACKOFF;
        while !self.stopped() {
            let start = Instant::now();
            let reason = match self.connect_once() {
                Ok(reason) => reason,
                Err(error) => format!("{error}"),
            };
            if self.stopped() {
                return;
            }
            if self.last_logged.as_ref() != Some(&reason) {
                tracing::warn!(
                    "collector {} ({}): {reason}; retrying",
                    self.target.collector,
                    self.target.exchange
                );
                self.last_logged = Some(reason.clone());
            }
            let _ = self.events.send(LinkEvent::Lost(self.target.collector, reason));
            // Reset the backoff after a connection that lasted.
            wait = if start.elapsed() > PEER_TIMEOUT {
                MIN_BACKOFF
            } else {
                (wait * 2).min(MAX_BACKOFF)
            };
            self.sleep(wait);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn sleep(&self, wait: Duration) {
        let end = Instant::now() + wait;
        while Instant::now() < end && !self.stopped() {
            std::thread::sleep(SLEEP.min(wait));
        }
    }

    /// Runs one connection to its end, and returns the reason for the end.
    fn connect_once(&mut self) -> io::Result<String> {
        let stream = TcpStream::connect_timeout(&self.target.exchange, CONNECT_TIMEOUT)?;
        let local = stream.local_addr()?.ip().to_canonical();
        let mut connection = Connection::new(stream, SLEEP)?;
        if let Some(secret) = &self.target.secret {
            let secret = secret.current();
            let limit = HandshakeLimit {
                deadline: Instant::now() + PEER_TIMEOUT,
                stopped: &|| self.stopped(),
            };
            if let Err(refused) = prove(&mut connection, &secret, &limit) {
                return Ok(self.refused(refused));
            }
        }
        connection.allow_long_lines();
        let (sender, commands) = channel();
        let _ = self
            .events
            .send(LinkEvent::Reached(self.target.collector, local, Commands(sender)));
        let hello = loop {
            match commands.recv_timeout(SLEEP) {
                Ok(Command::Hello(hello)) => break hello,
                Ok(Command::Reconnect(reason)) => return Ok(reason),
                Err(RecvTimeoutError::Timeout) if !self.stopped() => {}
                Err(_) => return Ok("stopping".to_owned()),
            }
        };
        connection.send(&Message::Hello(*hello))?;
        self.run_link(&mut connection, &commands)
    }

    /// Counts a refusal, and returns its text.
    fn refused(&self, refused: Refused) -> String {
        if refused.cause != RefusalCause::Stopped {
            self.refusals.add(refused.cause);
        }
        refused.text
    }

    /// Serves an authenticated connection until it ends or the role stops. Returns the reason why it ended.
    fn run_link(&mut self, connection: &mut Connection, commands: &Receiver<Command>) -> io::Result<String> {
        let mut received = Instant::now();
        let mut sent = Instant::now();
        while !self.stopped() {
            match connection.receive() {
                Received::Message(message) => {
                    received = Instant::now();
                    match *message {
                        Message::Accept(accept) if accept.version != VERSION => {
                            return Ok(format!("it uses version {} of the exchange", accept.version));
                        }
                        Message::Accept(accept) => {
                            self.last_logged = None;
                            let _ = self
                                .events
                                .send(LinkEvent::Accepted(self.target.collector, Box::new(accept)));
                        }
                        Message::Refused { reason, cause } => {
                            return Ok(self.refused(refusal_of(&reason, cause.as_deref())));
                        }
                        Message::Hello(_) | Message::Keepalive => {}
                        // Authentication is over or was never requested.
                        Message::Begin(_) | Message::Challenge { .. } | Message::Proof { .. } => {
                            return Ok(self.refused(Refused::new(
                                RefusalCause::Malformed,
                                "unexpected authentication message",
                            )));
                        }
                    }
                }
                Received::Nothing => {}
                Received::Closed => return Ok("the exchange was closed".to_owned()),
                Received::Malformed(reason) => {
                    return Ok(self.refused(Refused::new(RefusalCause::Malformed, reason)));
                }
                Received::Forged => {
                    let text = "message with an invalid tag: possible man in the middle";
                    return Ok(self.refused(Refused::new(RefusalCause::Forged, text)));
                }
            }
            if received.elapsed() >= PEER_TIMEOUT {
                return Ok(format!("no message for {} s", PEER_TIMEOUT.as_secs()));
            }
            if sent.elapsed() >= KEEPALIVE_INTERVAL {
                sent = Instant::now();
                connection.send(&Message::Keepalive)?;
            }
            if let Ok(Command::Reconnect(reason)) = commands.try_recv() {
                return Ok(reason);
            }
        }
        Ok("stopping".to_owned())
    }
}
