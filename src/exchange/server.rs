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
    ALIVE_EVERY, Hello, Lines, Message, Read1, SILENCE, Welcome,
    hall::{Hall, HallView, MOST_LINKS},
    handshake::{Patience, Refused, Why, admit},
    secret::SecretFile,
};
use crate::control::Control;
use terminal::CliError;

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

/// The door: who must prove what, and what became of those that came.
#[derive(Debug, Default)]
pub(crate) struct Door {
    secret: Option<Arc<SecretFile>>,
    hall: Hall,
}

impl Door {
    /// A door that opens to who knows this secret, or to all.
    pub(crate) fn new(secret: Option<Arc<SecretFile>>) -> Arc<Self> {
        Arc::new(Self { secret, hall: Hall::default() })
    }

    /// The secret, if there is one.
    pub(crate) fn secret(&self) -> Option<&Arc<SecretFile>> {
        self.secret.as_ref()
    }

    /// What became of connections.
    pub(crate) fn view(&self) -> HallView {
        self.hall.view(self.secret.is_some())
    }
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
    pub(crate) fn start(
        self,
        host: Arc<dyn Host>,
        door: Arc<Door>,
        control: &Control,
    ) -> Result<Server, CliError> {
        let stop = Arc::new(AtomicBool::new(false));
        let serving = Serving { host, door, stop: Arc::clone(&stop) };
        let spawner = control.clone();
        let work = move || accept(&self.0, &serving, &spawner);
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

/// What a connection's thread needs.
#[derive(Clone)]
struct Serving {
    host: Arc<dyn Host>,
    door: Arc<Door>,
    stop: Arc<AtomicBool>,
}

fn accept(listener: &TcpListener, serving: &Serving, control: &Control) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !serving.stop.load(Ordering::Relaxed) {
        let accepted = listener.accept().and_then(|(stream, from)| Ok((stream.try_clone()?, stream, from)));
        let Ok((same, stream, from)) = accepted else {
            std::thread::sleep(SLEEP);
            continue;
        };
        threads.retain(|thread| !thread.is_finished());
        let from = from.ip().to_canonical();
        let number = serving.door.hall.enter(same, from);
        let own = serving.clone();
        let work = move || {
            if let Err(error) = own.serve(stream, number, from) {
                tracing::debug!("exchange: {error}");
            }
        };
        match control.spawn("exchange-link", work) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                serving.door.hall.refuse(number, Why::Full);
                tracing::warn!("exchange: {error}");
            }
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// A connection, our address as the translator sees it, and what it said.
type Heard = (Lines, IpAddr, Hello);
/// A connection that it can be told by, if there is one, and why it is refused.
type Unheard = (Option<Box<Lines>>, Refused);

impl Serving {
    /// One translator's link, until it ends.
    fn serve(&self, stream: TcpStream, number: u64, from: IpAddr) -> io::Result<()> {
        let (door, stop) = (&self.door, &*self.stop);
        let (mut lines, local, hello) = match self.hear(stream) {
            Ok(heard) => heard,
            Err((lines, refused)) => {
                tell(from, &refused, door.hall.refuse(number, refused.why));
                return lines.map_or(Ok(()), |lines| answer(lines, refused));
            }
        };
        let mut inside = match door.hall.admit(number) {
            None => return Ok(()),
            Some(Ok(inside)) => inside,
            Some(Err(may_tell)) => {
                let text = format!("{MOST_LINKS} translators are connected, and more cannot be");
                let refused = Refused::new(Why::Full, text);
                tell(from, &refused, may_tell);
                return lines.send(&refused.message());
            }
        };
        let welcome = match welcome(&mut lines, self.host.as_ref(), &hello, local)? {
            Ok(welcome) => welcome,
            Err(reason) => {
                let refused = Refused::new(Why::Unwelcome, reason);
                tell(from, &refused, inside.refused(Why::Unwelcome));
                return lines.send(&refused.message());
            }
        };
        inside.welcomed();
        let said = lines.send(&Message::Welcome(welcome.clone()));
        let outcome = said.and_then(|()| stay(&mut lines, stop));
        self.host.gone(&hello, &welcome);
        outcome
    }

    /// The hello of who may say one.
    fn hear(&self, stream: TcpStream) -> Result<Heard, Unheard> {
        let until = Instant::now() + SILENCE;
        let lines = || {
            stream.set_nonblocking(false)?;
            let local = stream.local_addr()?.ip().to_canonical();
            Ok((local, Lines::new(stream, SLEEP)?))
        };
        let (local, mut lines) = lines().map_err(|error: io::Error| (None, error.into()))?;
        let patience = Patience { until, stopped: &|| self.stop.load(Ordering::Relaxed) };
        let secret = self.door.secret.as_ref().map(|file| file.current());
        match admit(&mut lines, secret.as_ref(), &patience) {
            Ok(hello) => Ok((lines, local, hello)),
            Err(refused) => Err((Some(Box::new(lines)), refused)),
        }
    }
}

/// Tells the other side why, if it is there to hear.
fn answer(mut lines: Box<Lines>, refused: Refused) -> io::Result<()> {
    match refused.why {
        Why::Silent | Why::Closed | Why::Stopped => Ok(()),
        _ => lines.send(&refused.message()),
    }
}

/// Tells the log, if it may. What the other side wrote is not repeated there.
fn tell(from: IpAddr, refused: &Refused, may: Option<u64>) {
    let Some(untold) = may else { return };
    let why = refused.why.name();
    let more = if untold > 0 { format!(" ({untold} more since the last such line)") } else { String::new() };
    if matches!(refused.why, Why::Malformed | Why::Version) {
        tracing::warn!("exchange: one at {from} is refused: {why}{more}");
    } else {
        tracing::warn!("exchange: one at {from} is refused: {why}: {}{more}", refused.text);
    }
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

/// Both are alive, until one is not.
fn stay(lines: &mut Lines, stop: &AtomicBool) -> io::Result<()> {
    let (mut heard, mut said) = (Instant::now(), Instant::now());
    while !stop.load(Ordering::Relaxed) && heard.elapsed() < SILENCE {
        match lines.receive() {
            Read1::Message(_) => heard = Instant::now(),
            Read1::Nothing => {}
            Read1::Forged => {
                tracing::warn!("exchange: a message without its right tag; the connection is closed");
                break;
            }
            Read1::Closed | Read1::Wrong(_) => break,
        }
        if said.elapsed() >= ALIVE_EVERY {
            said = Instant::now();
            lines.send(&Message::Alive)?;
        }
    }
    Ok(())
}
