//! The collector's side of the exchange.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{ALIVE_EVERY, Hello, Lines, Message, Read1, SILENCE, Welcome};
use crate::{control::Control, error::CliError};

/// Connections at the same time.
const MOST_CONNECTIONS: usize = 64;
/// How soon a stop is noticed.
const SLEEP: Duration = Duration::from_millis(100);

/// What answers hellos: the memory role.
pub(crate) trait Host: Send + Sync + 'static {
    /// Queue pairs for this translator, which reached us at `local`.
    ///
    /// # Errors
    /// One sentence, for the translator's operator.
    fn welcome(&self, hello: &Hello, local: IpAddr) -> Result<Welcome, String>;

    /// The connection on which this hello was answered with that welcome has ended.
    fn gone(&self, hello: &Hello, welcome: &Welcome);
}

/// The listening side at work.
#[derive(Debug)]
pub(crate) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A listening socket, before anything is answered.
#[derive(Debug)]
pub(crate) struct Listening(TcpListener);

impl Listening {
    /// Opens it.
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
            CliError::io(format!("cannot listen for translators on {address}"), error, remedy)
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.0.local_addr().ok()
    }

    /// Answers from now on.
    ///
    /// # Errors
    /// The system has no thread for us.
    pub(crate) fn start(self, host: Arc<dyn Host>, control: &Control) -> Result<Server, CliError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, spawner) = (Arc::clone(&stop), control.clone());
        let work = move || accept(&self.0, &host, &stopped, &spawner);
        Ok(Server { stop, thread: Some(control.spawn("exchange", work)?) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Relaxed: the flag carries nothing but itself.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, host: &Arc<dyn Host>, stop: &Arc<AtomicBool>, control: &Control) {
    let open = Arc::new(AtomicUsize::new(0));
    let threads: Mutex<Vec<JoinHandle<()>>> = Mutex::default();
    while !stop.load(Ordering::Relaxed) {
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(_) => {
                std::thread::sleep(SLEEP);
                continue;
            }
        };
        let mut threads = threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        if open.load(Ordering::Relaxed) >= MOST_CONNECTIONS {
            tracing::warn!("exchange: {MOST_CONNECTIONS} connections are open; one from {from} is closed");
            continue; // closed by being dropped
        }
        let taken = Taken::new(&open);
        let (host, stop) = (Arc::clone(host), Arc::clone(stop));
        let work = move || {
            let _taken = taken;
            if let Err(error) = serve(stream, host.as_ref(), &stop) {
                tracing::debug!("exchange: {error}");
            }
        };
        match control.spawn("exchange-link", work) {
            Ok(thread) => threads.push(thread),
            Err(error) => tracing::warn!("exchange: {error}"),
        }
    }
    let threads = threads.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    for thread in threads {
        let _ = thread.join();
    }
}

/// A connection's place among those that may be open, given back however it ends.
struct Taken(Arc<AtomicUsize>);

impl Taken {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One translator's link, until it ends.
fn serve(stream: TcpStream, host: &dyn Host, stop: &AtomicBool) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let local = stream.local_addr()?.ip().to_canonical();
    let mut lines = Lines::new(stream, SLEEP)?;
    let Some(hello) = hello(&mut lines, stop)? else { return Ok(()) };
    let welcome = match welcome(&mut lines, host, &hello, local)? {
        Ok(welcome) => welcome,
        Err(reason) => {
            tracing::warn!("a translator at {} is refused: {reason}", hello.address);
            return lines.send(&Message::Refused { reason });
        }
    };
    let said = lines.send(&Message::Welcome(welcome.clone()));
    let outcome = said.and_then(|()| stay(&mut lines, stop));
    host.gone(&hello, &welcome);
    outcome
}

/// What the host answers. It may take its time, for it looks at every list: meanwhile the translator hears that we are alive.
fn welcome(
    lines: &mut Lines,
    host: &dyn Host,
    hello: &Hello,
    local: IpAddr,
) -> io::Result<Result<Welcome, String>> {
    std::thread::scope(|scope| {
        let (told, answer) = sync_channel(1);
        let work = move || drop(told.send(host.welcome(hello, local)));
        std::thread::Builder::new().name("exchange-welcome".to_owned()).spawn_scoped(scope, work)?;
        loop {
            match answer.recv_timeout(ALIVE_EVERY) {
                Ok(answer) => return Ok(answer),
                // One that has gone is noticed when it is answered.
                Err(RecvTimeoutError::Timeout) => drop(lines.send(&Message::Alive)),
                // It panicked, and so do we when it is joined.
                Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::Other.into()),
            }
        }
    })
}

/// The first message, if it is one that can be answered.
fn hello(lines: &mut Lines, stop: &AtomicBool) -> io::Result<Option<Hello>> {
    let begun = Instant::now();
    loop {
        let reason = match lines.receive() {
            Read1::Message(message) => match *message {
                Message::Hello(hello) => match hello.check() {
                    Ok(()) => return Ok(Some(hello)),
                    Err(reason) => reason,
                },
                _ => "the first message must be a hello".to_owned(),
            },
            Read1::Nothing if begun.elapsed() < SILENCE && !stop.load(Ordering::Relaxed) => continue,
            Read1::Nothing | Read1::Closed => return Ok(None),
            Read1::Wrong(reason) => reason,
        };
        lines.send(&Message::Refused { reason })?;
        return Ok(None);
    }
}

/// Both are alive, until one is not.
fn stay(lines: &mut Lines, stop: &AtomicBool) -> io::Result<()> {
    let (mut heard, mut said) = (Instant::now(), Instant::now());
    while !stop.load(Ordering::Relaxed) && heard.elapsed() < SILENCE {
        match lines.receive() {
            Read1::Message(_) => heard = Instant::now(),
            Read1::Nothing => {}
            Read1::Closed | Read1::Wrong(_) => break,
        }
        if said.elapsed() >= ALIVE_EVERY {
            said = Instant::now();
            lines.send(&Message::Alive)?;
        }
    }
    Ok(())
}
