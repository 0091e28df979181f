//! The translator's side of the exchange: connects, says hello, stays, and comes again.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    ALIVE_EVERY, Hello, Lines, Message, Read1, SILENCE, VERSION, Welcome,
    handshake::{Patience, Refused, Why, prove, told},
    secret::SecretFile,
};
use crate::control::Control;
use terminal::CliError;

/// Waits between attempts: from this, doubled, up to the other.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How soon a stop is noticed.
const SLEEP: Duration = Duration::from_millis(50);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);

/// What a link's thread tells the translator.
#[derive(Debug)]
pub(crate) enum News {
    /// Connected: offer queue pairs. The address is ours, as the collector sees it. Answer by [`Link::hello`].
    Reached(u8, IpAddr),
    /// The collector answered.
    Welcomed(u8, Box<Welcome>),
    /// The connection has ended, for this reason, or could not be made.
    Lost(u8, String),
}

/// What the translator tells a link's thread.
enum Order {
    Hello(Box<Hello>),
    /// The connection is of no use any more: make a new one.
    Again(String),
}

/// One collector's link.
#[derive(Debug)]
pub(crate) struct Link {
    orders: Sender<Order>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    refusals: Arc<Refusals>,
}

/// How often a link came to nothing, by reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; Why::COUNT]);

impl Refusals {
    /// All of them.
    pub(crate) fn read(&self) -> [u64; Why::COUNT] {
        // Relaxed: counts that travel alone.
        std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }

    fn add(&self, why: Why) {
        self.0[why as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Link {
    /// Starts connecting to the exchange at `to`, and talks to it only if it knows the secret, where there is one.
    ///
    /// # Errors
    /// The system has no thread for us.
    pub(crate) fn start(
        number: u8,
        (to, secret): (SocketAddr, Option<Arc<SecretFile>>),
        news: Sender<News>,
        control: &Control,
    ) -> Result<Self, CliError> {
        let (orders, inbox) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let refusals = Arc::new(Refusals::default());
        let mut worker = Worker {
            number,
            to,
            secret,
            news,
            inbox,
            stop: Arc::clone(&stop),
            refusals: Arc::clone(&refusals),
            told: None,
        };
        let thread = control.spawn(&format!("exchange-{number}"), move || worker.work())?;
        Ok(Self { orders, stop, thread: Some(thread), refusals })
    }

    /// How often it came to nothing, by reason.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// What to say, after [`News::Reached`].
    pub(crate) fn hello(&self, hello: Hello) {
        // Fails when the thread has ended, and hopwise with it.
        let _ = self.orders.send(Order::Hello(Box::new(hello)));
    }

    /// Connects anew: the queue pairs do not work any more.
    pub(crate) fn again(&self, reason: &str) {
        let _ = self.orders.send(Order::Again(reason.to_owned()));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Relaxed: the flag carries nothing but itself.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    number: u8,
    to: SocketAddr,
    secret: Option<Arc<SecretFile>>,
    news: Sender<News>,
    inbox: Receiver<Order>,
    stop: Arc<AtomicBool>,
    refusals: Arc<Refusals>,
    /// The last reason that was told.
    told: Option<String>,
}

impl Worker {
    fn work(&mut self) {
        let mut wait = FIRST_WAIT;
        while !self.stopped() {
            let begun = Instant::now();
            let reason = match self.once() {
                Ok(reason) => reason,
                Err(error) => format!("{error}"),
            };
            if self.stopped() {
                return;
            }
            if self.told.as_ref() != Some(&reason) {
                tracing::warn!("collector {} ({}): {reason}; trying again", self.number, self.to);
                self.told = Some(reason.clone());
            }
            let _ = self.news.send(News::Lost(self.number, reason));
            // A link that was up for a while is tried at once.
            wait = if begun.elapsed() > SILENCE { FIRST_WAIT } else { (wait * 2).min(LONGEST_WAIT) };
            self.rest(wait);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn rest(&self, wait: Duration) {
        let end = Instant::now() + wait;
        while Instant::now() < end && !self.stopped() {
            std::thread::sleep(SLEEP.min(wait));
        }
    }

    /// One connection, from beginning to end; the reason of its end.
    fn once(&mut self) -> io::Result<String> {
        let stream = TcpStream::connect_timeout(&self.to, CONNECT)?;
        let local = stream.local_addr()?.ip().to_canonical();
        let mut lines = Lines::new(stream, SLEEP)?;
        if let Some(secret) = &self.secret {
            let secret = secret.current();
            let patience = Patience { until: Instant::now() + SILENCE, stopped: &|| self.stopped() };
            if let Err(refused) = prove(&mut lines, &secret, &patience) {
                return Ok(self.refused(refused));
            }
        }
        lines.take_long();
        // Orders for an earlier connection mean nothing any more.
        while self.inbox.try_recv().is_ok() {}
        let _ = self.news.send(News::Reached(self.number, local));
        let hello = loop {
            match self.inbox.recv_timeout(SLEEP) {
                Ok(Order::Hello(hello)) => break hello,
                Ok(Order::Again(reason)) => return Ok(reason),
                Err(_) if self.stopped() => return Ok("stopping".to_owned()),
                Err(_) => {}
            }
        };
        lines.send(&Message::Hello(*hello))?;
        self.talk(&mut lines)
    }

    /// Counts it; the reason.
    fn refused(&self, refused: Refused) -> String {
        if refused.why != Why::Stopped {
            self.refusals.add(refused.why);
        }
        refused.text
    }

    fn talk(&mut self, lines: &mut Lines) -> io::Result<String> {
        let (mut heard, mut said) = (Instant::now(), Instant::now());
        while !self.stopped() {
            match lines.receive() {
                Read1::Message(message) => {
                    heard = Instant::now();
                    match *message {
                        Message::Welcome(welcome) if welcome.version != VERSION => {
                            return Ok(format!("it speaks version {} of the exchange", welcome.version));
                        }
                        Message::Welcome(welcome) => {
                            self.told = None;
                            let _ = self.news.send(News::Welcomed(self.number, Box::new(welcome)));
                        }
                        Message::Refused { reason, cause } => {
                            return Ok(self.refused(told(&reason, cause.as_deref())));
                        }
                        Message::Hello(_) | Message::Alive => {}
                        // Without a secret nothing of the kind was asked for, with one it is past.
                        Message::Begin(_) | Message::Challenge { .. } | Message::Proof { .. } => {
                            return Ok(self.refused(Refused::new(
                                Why::Malformed,
                                "it speaks of secrets at the wrong time",
                            )));
                        }
                    }
                }
                Read1::Nothing => {}
                Read1::Closed => return Ok("the exchange was closed".to_owned()),
                Read1::Wrong(reason) => return Ok(self.refused(Refused::new(Why::Malformed, reason))),
                Read1::Forged => {
                    let text = "a message without its right tag: somebody is in between";
                    return Ok(self.refused(Refused::new(Why::Forged, text)));
                }
            }
            if heard.elapsed() >= SILENCE {
                return Ok(format!("silent for {} s", SILENCE.as_secs()));
            }
            if said.elapsed() >= ALIVE_EVERY {
                said = Instant::now();
                lines.send(&Message::Alive)?;
            }
            if let Ok(Order::Again(reason)) = self.inbox.try_recv() {
                return Ok(reason);
            }
        }
        Ok("stopping".to_owned())
    }
}
