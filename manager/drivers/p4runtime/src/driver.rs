//! The P4Runtime driver task: executes the manager's requests, and reports events and counters of the device.
//!
//! The device's election id is the manager's election: the term in the upper 64 bits, the epoch in the lower. A device
//! executes only requests of its primary client, so that a delayed request of an older claim is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use manager::device::{Answer, Change, Command, DeviceEvent, Election, Etag, NodeId, Request, Rules, State};
use manager::driver::{Counter, Facts, Message, Reported};
use manager::flows::FlowMatch;
use prost::Message as _;
use settings::values::rounded_text;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time;
use tonic::Code;

use crate::client::{Calls, Client, Connector, Failure, Peer};
use crate::entry::{self, Entry};
use crate::map::Map;
use crate::message::{
    Cookie, DigestListAck, Entity, ForwardingPipelineConfig, MasterArbitrationUpdate, P4Info, PacketOut,
    StreamMessageRequest, StreamRequest, StreamResponse, Uint128,
};
use crate::program::{LocalSettings, Program};
use crate::refused::RefusedRequest;
use crate::translate::{Meaning, changed};

/// Maximum number of queued commands. The manager sends one at a time, but sends again after a timeout.
const MAX_COMMANDS: usize = 4;
/// Maximum number of foreign entries that are listed.
const MAX_FOREIGN: usize = 200;
/// Time limit of reading counters until the first command sets one.
const FIRST_LIMIT: Duration = Duration::from_millis(1800);
/// Pause after reading counters, as a multiple of the time that it took.
const REST: u32 = 4;
const LOADING: &str = "its program is being loaded";
/// Time limit for loading a program.
const LOAD: Duration = Duration::from_secs(60);
/// Interval of checks for due timer frames, ms.
const FRAMES_MS: u64 = 10;
/// Interval of reading counters.
const TICK: Duration = Duration::from_secs(1);

/// Settings of one device.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the device.
    pub peer: Peer,
    /// Connector to the device, if this process's own network does not reach it.
    pub via: Option<Connector>,
    /// Name of the map, for messages, and the map.
    pub map: (String, Arc<Map>),
    /// Settings that differ from device to device.
    pub local: LocalSettings,
    /// The program to load if the device has none.
    pub load: Option<Arc<Load>>,
}

/// A P4 program that can be loaded into a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    p4info: Vec<u8>,
    config: Vec<u8>,
}

impl Load {
    /// Creates a program from binary P4Info and the device-specific configuration.
    pub fn new(p4info: Vec<u8>, config: Vec<u8>) -> Self {
        Self { p4info, config }
    }

    /// Returns whether a device with this P4Info has this program, as far as the P4Info shows it.
    fn matches(&self, info: &P4Info) -> bool {
        P4Info::decode(self.p4info.as_slice()).as_ref() == Ok(info)
    }

    /// Returns a cookie that identifies the program: 8 bytes of a digest of P4Info and configuration.
    fn cookie(&self) -> Cookie {
        let digest = Sha256::new()
            .chain_update(&self.p4info)
            .chain_update(&self.config)
            .finalize();
        Cookie {
            cookie: digest
                .iter()
                .take(8)
                .fold(0, |cookie, byte| cookie << 8 | u64::from(*byte)),
        }
    }

    fn config(&self) -> ForwardingPipelineConfig {
        ForwardingPipelineConfig {
            p4info: Some(self.p4info.clone()),
            p4_device_config: self.config.clone(),
            cookie: Some(self.cookie()),
        }
    }
}

/// A running driver. Dropping it stops its task.
#[derive(Debug)]
pub struct Driver {
    commands: mpsc::Sender<Command>,
    task: tokio::task::AbortHandle,
}

impl Driver {
    /// Starts the task of a driver on the current Tokio runtime. `emit` receives its messages.
    pub fn start(settings: Settings, emit: impl Fn(Message) + Send + Sync + 'static) -> Self {
        let (commands, queue) = mpsc::channel(MAX_COMMANDS);
        let work = Work {
            settings,
            session: None,
            connections: 0,
            remembered: Rules::new(),
            filters: BTreeMap::new(),
            facts: None,
            frames: FrameClock::new(),
            time_limit: FIRST_LIMIT,
            last_count: time::Instant::now(),
            next_count: time::Instant::now(),
            reported_cookie: None,
            emit: Box::new(emit),
        };
        Self {
            commands,
            task: tokio::spawn(work.run(queue)).abort_handle(),
        }
    }

    /// Queues a command. Returns `false` if too many commands are queued already.
    pub fn send(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection to the device, with its claim.
struct Session {
    client: Client,
    /// Number of the connection, part of the ETag.
    number: u64,
    claim: Election,
    /// The device's program; `None` until a claim has succeeded.
    program: Option<Arc<Program>>,
    /// State of loading a program, if that was started since the last claim.
    loading: Option<Loading>,
    /// True if the device refused to return its counters; then it is not asked again.
    refuses_counters: bool,
    /// The task that reads the device's counters.
    counting: Option<JoinHandle<CountOutcome>>,
}

/// The outcome of reading the device's counters.
enum CountOutcome {
    Read {
        counts: Counts,
        /// The device refused to return its counters, and other counts were read without them.
        refuses_counters: bool,
    },
    Failed(Failure),
    /// The device did not answer in time.
    TimedOut,
}

/// The progress of loading a program into a device.
enum Loading {
    Running(JoinHandle<Result<(), Failure>>),
    Done(Result<(), Failure>),
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(Loading::Running(loading)) = &self.loading {
            loading.abort();
        }
        if let Some(counting) = &self.counting {
            counting.abort();
        }
    }
}

impl Session {
    /// Waits for the next message of the device, or until the program is loaded or the counters are read. Cancel-safe: the
    /// future may be dropped while it waits.
    async fn next(&mut self) -> Next {
        let Self {
            client,
            loading,
            counting,
            ..
        } = self;
        let loaded = async {
            match loading {
                Some(Loading::Running(loading)) => loading.await,
                Some(Loading::Done(_)) | None => std::future::pending().await,
            }
        };
        let counted = async {
            match counting {
                Some(counting) => counting.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            message = client.next() => Next::Stream(message.map(|message| message.update)),
            outcome = counted => Next::Counted(outcome.unwrap_or(CountOutcome::TimedOut)),
            loaded = loaded => {
                Next::Loaded(loaded.unwrap_or_else(|error| Err(Failure::Unreachable(error.to_string()))))
            }
        }
    }
}

/// State of the driver's task.
struct Work {
    settings: Settings,
    session: Option<Session>,
    connections: u64,
    /// The last requested rules, which help to decode entries; see [`crate::translate`].
    remembered: Rules,
    /// Descriptions of its filters by rule, as last read, by object name such as `filter 3`.
    filters: BTreeMap<String, String>,
    facts: Option<Facts>,
    frames: FrameClock,
    /// Time limit of the last command, also used to read counters.
    time_limit: Duration,
    /// Time of the last request for counters.
    last_count: time::Instant,
    /// Time before which counters are not read again. A slow device gets a pause.
    next_count: time::Instant,
    /// Cookie of the device's program, if it was reported because it differs from the cookie of the program to load.
    reported_cookie: Option<Cookie>,
    emit: Box<dyn Fn(Message) + Send + Sync>,
}

/// Schedule of the timer frames. `next` is the index of the next frame; `due` is the number of due frames multiplied by the
/// period in ms, so that it stays an integer.
#[derive(Debug)]
struct FrameClock {
    interval: time::Interval,
    next: usize,
    due: u64,
}

impl FrameClock {
    fn new() -> Self {
        let mut interval = time::interval(Duration::from_millis(FRAMES_MS));
        interval.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        Self {
            interval,
            next: 0,
            due: 0,
        }
    }
}

/// An event other than a command.
enum Next {
    Frames,
    Stream(Result<Option<StreamResponse>, Failure>),
    Loaded(Result<(), Failure>),
    Counted(CountOutcome),
}

/// The state that was read from the device.
struct ReadState {
    program: Arc<Program>,
    meaning: Meaning,
    etag: Etag,
}

impl Work {
    async fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = queue.recv() => match command {
                    Some(command) => self.command(command).await,
                    None => return,
                },
                next = self.next() => self.handle(next),
                _ = ticks.tick() => self.tick(),
            }
        }
    }

    /// Waits for an event of the session, or until timer frames are due. Cancel-safe: the future may be dropped.
    async fn next(&mut self) -> Next {
        let sends_frames = self.sends_frames();
        let session = async {
            match &mut self.session {
                Some(session) => session.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            next = session => next,
            _ = self.frames.interval.tick(), if sends_frames => Next::Frames,
        }
    }

    fn handle(&mut self, next: Next) {
        match next {
            Next::Stream(message) => self.message(message),
            Next::Loaded(result) => self.loaded(result),
            Next::Counted(outcome) => self.publish_counts(outcome),
            Next::Frames => self.send_frames(),
        }
    }

    /// Runs a call, which may take long. In the meantime it sends timer frames and handles the device's messages.
    ///
    /// # Errors
    /// [`Failure`] if the call fails or the session ends before its result.
    async fn call<T>(&mut self, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let mut call = std::pin::pin!(call);
        loop {
            let next = tokio::select! {
                result = &mut call => return result,
                next = self.next() => next,
            };
            match next {
                // Do not treat slow counters as a loss here: the device is busy with the call, which has its own limit.
                Next::Counted(CountOutcome::TimedOut) => self.stop_counting(),
                next => self.handle(next),
            }
            if self.session.is_none() {
                return Err(Failure::Unreachable("the stream has ended".to_owned()));
            }
        }
    }

    fn node(&self) -> NodeId {
        self.settings.local.node
    }

    fn event(&self, event: DeviceEvent) {
        (self.emit)(Message::Event(self.node(), event));
    }

    fn lose(&mut self, reason: String) {
        let session = self.session.take();
        if session.is_some_and(|session| session.program.is_some() || session.loading.is_some()) {
            self.event(DeviceEvent::Lost(reason));
        }
    }

    async fn command(&mut self, command: Command) {
        let limit = command.time_limit();
        let Command {
            node, id, request, ..
        } = command;
        self.time_limit = limit;
        let outcome = time::timeout(limit, self.execute(request)).await;
        let answer = outcome.unwrap_or_else(|_| {
            // A stream in an unknown state is not reused, unless a program is being loaded.
            self.session = self.session.take().filter(|session| session.loading.is_some());
            Answer::Late(self.timeout_reason(limit))
        });
        (self.emit)(Message::Answer(node, id, answer));
    }

    fn timeout_reason(&self, limit: Duration) -> String {
        format!(
            "{} does not answer within {}",
            self.settings.peer.address,
            rounded_text(limit)
        )
    }

    async fn execute(&mut self, request: Request) -> Answer {
        match request {
            Request::Claim(election) => self.claim(election).await,
            Request::Read => self
                .read()
                .await
                .map_or_else(|answer| answer, |read| Answer::State(state(read))),
            Request::Apply {
                election,
                etag,
                changes,
            } => self
                .apply(election, &etag, &changes)
                .await
                .unwrap_or_else(|answer| answer),
        }
    }

    /// Claims the device. If it has no program, starts to load one; a later claim succeeds when it is loaded.
    async fn claim(&mut self, election: Election) -> Answer {
        let loading = self.session.as_mut().and_then(|session| session.loading.take());
        match (loading, &mut self.session) {
            (Some(running @ Loading::Running(_)), Some(session)) => {
                session.loading = Some(running);
                return Answer::Unreachable(LOADING.to_owned());
            }
            (Some(Loading::Done(Err(failure))), _) => {
                self.session = None;
                return Answer::Unreachable(format!("it does not accept the program: {failure}"));
            }
            _ => {}
        }
        match self.claimed(election).await {
            Ok(answer) => answer,
            Err(failure) => {
                self.session = None;
                match failure {
                    // The device answers, so an immediate retry would not help.
                    Failure::Refused(..) => Answer::Refused(failure.to_string()),
                    failure => Answer::Unreachable(failure.to_string()),
                }
            }
        }
    }

    /// Handles the end of loading the program.
    fn loaded(&mut self, result: Result<(), Failure>) {
        if let Some(session) = &mut self.session {
            session.loading = Some(Loading::Done(result));
            self.event(DeviceEvent::Loaded);
        }
    }

    /// Becomes the primary client, and compares the device's program with the map.
    async fn claimed(&mut self, election: Election) -> Result<Answer, Failure> {
        let id = Uint128 {
            high: election.term,
            low: election.epoch,
        };
        match &mut self.session {
            Some(session) => {
                session.program = None;
                session.client.claim(id)?;
            }
            None => {
                let client = Client::connect(&self.settings.peer, self.settings.via.as_ref(), id).await?;
                self.connections += 1;
                let number = self.connections;
                self.session = Some(Session {
                    client,
                    number,
                    claim: election,
                    program: None,
                    loading: None,
                    refuses_counters: false,
                    counting: None,
                });
            }
        }
        let Some(session) = &mut self.session else {
            return Ok(Answer::Stale);
        };
        session.claim = election;
        let arbitration = arbitrate(&mut session.client, id).await?;
        if let Some(answer) = not_primary(&arbitration, id) {
            self.session = None;
            return Ok(answer);
        }
        let mut calls = session.client.calls();
        let (info, cookie) = match calls.program().await {
            Err(Failure::NoProgram(_)) => return Ok(self.load(calls, id)),
            info => info?,
        };
        let (name, map) = &self.settings.map;
        match Program::new(map, &info, &self.settings.local) {
            Ok(_)
                if self
                    .settings
                    .load
                    .as_deref()
                    .is_some_and(|load| !load.matches(&info)) =>
            {
                self.session = None;
                Ok(Answer::Unreachable(
                    "its program is not that of `load`, and a program that a device has is not replaced: restart the device without it, or correct `load`".to_owned(),
                ))
            }
            Ok(program) => {
                let facts = Facts {
                    capabilities: program.capabilities(),
                    ports: Vec::new(),
                };
                session.program = Some(Arc::new(program));
                if self.facts.as_ref() != Some(&facts) {
                    self.facts = Some(facts.clone());
                    (self.emit)(Message::Facts(self.settings.local.node, Box::new(facts)));
                }
                self.compare(cookie);
                Ok(Answer::Claimed)
            }
            Err(problems) => {
                let text = format!(
                    "its program does not fit the map `{name}`: {}",
                    problems.join("; ")
                );
                self.session = None;
                Ok(Answer::Unreachable(text))
            }
        }
    }

    /// Notes once that the device's program has the P4Info of the program to load, but another cookie.
    fn compare(&mut self, cookie: Option<Cookie>) {
        let ours = self.settings.load.as_deref().map(Load::cookie);
        let other = cookie.filter(|cookie| ours.is_some_and(|ours| ours != *cookie));
        if other.is_some() && other != self.reported_cookie {
            let text = "its program has the P4Info of `load`, and was loaded from another version of it, or by another controller: restart the device to load this one";
            (self.emit)(Message::Note(self.node(), text.to_owned()));
        }
        self.reported_cookie = other;
    }

    /// Starts to load the program into a device without one.
    fn load(&mut self, mut calls: Calls, election: Uint128) -> Answer {
        self.event(DeviceEvent::Emptied);
        let (Some(load), Some(session)) = (self.settings.load.clone(), &mut self.session) else {
            self.session = None;
            return Answer::Unreachable(
                "it has no program; load one, or add `load` to the device".to_owned(),
            );
        };
        let work = async move {
            let config = load.config();
            time::timeout(LOAD, calls.load(election, config))
                .await
                .map_err(|_| Failure::Unreachable("no answer in time".to_owned()))?
        };
        session.loading = Some(Loading::Running(tokio::spawn(work)));
        Answer::Unreachable(LOADING.to_owned())
    }

    /// Returns the calls and the program if the claim is valid.
    fn ready(&mut self) -> Result<(Calls, Arc<Program>), Answer> {
        let ready = self.session.as_ref().and_then(|session| {
            session
                .program
                .as_ref()
                .map(|program| (session.client.calls(), Arc::clone(program)))
        });
        ready.ok_or_else(|| Answer::Unreachable("it is not connected".to_owned()))
    }

    /// Reads all entries of the map's tables and decodes them into rules. The ETag contains connection, claim and a digest.
    async fn read(&mut self) -> Result<ReadState, Answer> {
        let (mut calls, program) = self.ready()?;
        let entities = self.call(read_entries(&mut calls, &program)).await;
        let entities = entities.map_err(|failure| self.fail(failure))?;
        let entries: Vec<Entry> = entities
            .iter()
            .filter_map(Entry::read)
            .map(|(entry, _)| entry)
            .collect();
        let digest = u64::from_be_bytes(entry::digest(entries.iter()));
        let (number, claim) = self.session.as_ref().map_or((0, Election::default()), |session| {
            (session.number, session.claim)
        });
        let etag = Etag(format!("{number}.{}-{digest:016x}", claim.epoch));
        let meaning = program.decode(entries, &self.remembered);
        let filters = program.rule_filters(&meaning.ours, &meaning.rules).into_iter();
        self.filters = filters
            .map(|(number, text)| (format!("filter {number}"), text))
            .collect();
        Ok(ReadState {
            program,
            meaning,
            etag,
        })
    }

    /// Converts a failed call into an answer.
    fn fail(&mut self, failure: Failure) -> Answer {
        match failure {
            Failure::Unreachable(reason) => {
                self.session = None;
                Answer::Unreachable(reason)
            }
            Failure::NoProgram(words) => Answer::Refused(format!("it has lost its program ({words})")),
            // The next claim learns who is primary now.
            Failure::NotPrimary => Answer::Stale,
            Failure::Refused(..) => Answer::Refused(failure.to_string()),
        }
    }

    /// Applies changes if the ETag still matches, in batches whose order is safe.
    async fn apply(&mut self, election: Election, etag: &Etag, changes: &[Change]) -> Result<Answer, Answer> {
        let ReadState {
            program,
            meaning,
            etag: now,
        } = self.read().await?;
        let claim = self.session.as_ref().map(|session| session.claim);
        if now != *etag || claim != Some(election) {
            return Err(Answer::Stale);
        }
        let rules = changed(&meaning.rules, changes);
        let batches = program.plan(&meaning, &rules).map_err(Answer::Refused)?;
        let (mut calls, _) = self.ready()?;
        let full = program.full(&meaning, &batches);
        // Rules are always decoded from the device; the remembered ones only resolve ambiguities.
        self.remembered = rules;
        let id = Uint128 {
            high: election.term,
            low: election.epoch,
        };
        for batch in batches {
            let updates = batch.iter().map(|(kind, entry)| entry.update(*kind)).collect();
            match self.call(calls.write(id, updates)).await {
                Ok(()) => {}
                Err(Failure::Refused(_, reason, errors)) => {
                    let request = RefusedRequest {
                        program: &program,
                        full: &full,
                        batch: &batch,
                    };
                    return Err(Answer::Refused(request.text(&reason, &errors)));
                }
                Err(failure) => return Err(self.fail(failure)),
            }
        }
        Ok(Answer::Applied)
    }

    /// Handles a message on the stream.
    fn message(&mut self, message: Result<Option<StreamResponse>, Failure>) {
        let message = match message {
            Ok(message) => message,
            Err(failure) => return self.lose(failure.to_string()),
        };
        match message {
            Some(StreamResponse::Arbitration(arbitration)) => {
                let ours = self
                    .session
                    .as_ref()
                    .map(|session| session.claim)
                    .unwrap_or_default();
                let ours = Uint128 {
                    high: ours.term,
                    low: ours.epoch,
                };
                if not_primary(&arbitration, ours).is_some() {
                    self.lose("another client became primary".to_owned());
                }
            }
            Some(StreamResponse::Digest(list)) => {
                let ack = DigestListAck {
                    digest_id: list.digest_id,
                    list_id: list.list_id,
                };
                let ack = StreamMessageRequest {
                    update: Some(StreamRequest::DigestAck(ack)),
                };
                if let Some(session) = &self.session {
                    // If the acknowledgement is lost, the device sends the digest again.
                    let _ = session.client.send(ack);
                }
            }
            // The driver subscribes to no packets.
            Some(StreamResponse::Packet(_)) | None => {}
        }
    }

    /// Returns whether the program needs timer frames.
    fn sends_frames(&self) -> bool {
        let program = self.session.as_ref().and_then(|session| session.program.as_ref());
        program
            .and_then(|program| program.role())
            .is_some_and(|role| !role.frames.is_empty())
    }

    /// Sends the due timer frames. Frames for which the queue has no room remain due.
    fn send_frames(&mut self) {
        let Some(session) = &self.session else { return };
        let Some(role) = session.program.as_ref().and_then(|program| program.role()) else {
            return;
        };
        let frames = role.frames.as_slice();
        let clock = &mut self.frames;
        let period = u64::try_from(role.period.as_millis()).unwrap_or(u64::MAX).max(1);
        let all = period.saturating_mul(frames.len() as u64);
        // After a pause, each frame is sent at most once.
        clock.due = clock.due.saturating_add(frames.len() as u64 * FRAMES_MS).min(all);
        while clock.due >= period {
            let Some(frame) = frames.get(clock.next).or(frames.first()) else {
                return;
            };
            let packet = StreamRequest::Packet(PacketOut {
                payload: frame.clone(),
            });
            if session
                .client
                .send(StreamMessageRequest { update: Some(packet) })
                .is_err()
            {
                return;
            }
            clock.next = (clock.next + 1) % frames.len();
            clock.due -= period;
        }
    }

    /// Starts to read the device's counters, once a second. This also shows whether the device answers.
    fn tick(&mut self) {
        let Ok((mut calls, program)) = self.ready() else {
            return;
        };
        let limit = self.time_limit;
        let Some(session) = &mut self.session else { return };
        let start = time::Instant::now();
        if session.counting.is_some() || start < self.next_count {
            return;
        }
        self.last_count = start;
        let with_counters = !session.refuses_counters;
        let counted = async move {
            let (result, refuses_counters) = match count(&mut calls, &program, with_counters).await {
                // The device may refuse only its counters. Then they are not read again.
                Err(Failure::Refused(..)) if with_counters => {
                    (count(&mut calls, &program, false).await, true)
                }
                result => (result, false),
            };
            match result {
                Ok(counts) => CountOutcome::Read {
                    counts,
                    refuses_counters,
                },
                Err(failure) => CountOutcome::Failed(failure),
            }
        };
        session.counting = Some(tokio::spawn(async move {
            let outcome = time::timeout(limit, counted).await;
            outcome.unwrap_or(CountOutcome::TimedOut)
        }));
    }

    fn stop_counting(&mut self) {
        self.session
            .iter_mut()
            .for_each(|session| session.counting = None);
        let start = self.last_count;
        self.next_count = start + start.elapsed() * REST;
    }

    /// Handles the device's counts, or the failure to read them.
    fn publish_counts(&mut self, outcome: CountOutcome) {
        self.stop_counting();
        match outcome {
            CountOutcome::Read {
                counts,
                refuses_counters,
            } => {
                let Counts {
                    reports,
                    matched,
                    mut counters,
                } = counts;
                if let Some(session) = &mut self.session {
                    session.refuses_counters |= refuses_counters;
                }
                for counter in &mut counters {
                    let object = counter.object.as_ref();
                    counter.about = object.and_then(|object| self.filters.get(object).cloned());
                }
                let node = self.node();
                if let Some(matched) = matched {
                    (self.emit)(Message::Matched(node, matched));
                }
                if let Some(packets) = reports {
                    (self.emit)(Message::Reported(node, Reported { packets, sent: None }));
                }
                if !counters.is_empty() {
                    (self.emit)(Message::Counted(node, counters));
                }
            }
            CountOutcome::Failed(Failure::Unreachable(reason)) => self.lose(reason),
            // Let the manager read the device, which shows the problem.
            CountOutcome::Failed(_) => self.event(DeviceEvent::Changed),
            CountOutcome::TimedOut => self.lose(self.timeout_reason(self.time_limit)),
        }
    }
}

/// Waits for the answer to the arbitration request with this id.
async fn arbitrate(client: &mut Client, id: Uint128) -> Result<MasterArbitrationUpdate, Failure> {
    loop {
        match client.next().await?.update {
            // Skip the answer to an older claim, unless it says that another client is primary.
            Some(StreamResponse::Arbitration(answer))
                if answer.election_id.is_none_or(|primary| primary >= id) || !is_ok(&answer) =>
            {
                return Ok(answer);
            }
            _ => {}
        }
    }
}

fn is_ok(arbitration: &MasterArbitrationUpdate) -> bool {
    arbitration.status.as_ref().is_none_or(|status| status.code == 0)
}

/// Returns the answer for the manager if another client is primary, or `None` if we are.
fn not_primary(arbitration: &MasterArbitrationUpdate, ours: Uint128) -> Option<Answer> {
    let primary = arbitration.election_id.unwrap_or_default();
    if is_ok(arbitration) && primary <= ours {
        return None;
    }
    // A manager's term is a time. A primary client with another id is not a manager, and concerns only this device.
    if primary > ours && Election::TERMS.contains(&primary.high) {
        return Some(Answer::NotPrimary(Election {
            term: primary.high,
            epoch: primary.low,
        }));
    }
    let id = (u128::from(primary.high) << 64) | u128::from(primary.low);
    let reason = arbitration
        .status
        .as_ref()
        .map_or("", |status| status.message.as_str());
    let text = format!("another controller is primary with election id {id}; stop it, or give `role`");
    Some(Answer::Unreachable(if reason.is_empty() {
        text
    } else {
        format!("{text} ({reason})")
    }))
}

/// Reads all entries of the map's tables, clone sessions and multicast groups.
async fn read_entries(calls: &mut Calls, program: &Program) -> Result<Vec<Entity>, Failure> {
    let mut queries = Vec::new();
    for (table, facts) in &program.tables {
        queries.extend(facts.entries.then(|| entry::query_table(*table, false)));
        queries.extend(facts.default.then(|| entry::query_default(*table)));
    }
    let mut all = calls.read(queries).await?;
    for session in program.sessions() {
        match calls.read(vec![entry::query_session(session)]).await {
            Ok(found) => all.extend(found),
            // NOT_FOUND is the only code that means a missing session.
            Err(Failure::Refused(Code::NotFound, ..)) => {}
            Err(failure) => return Err(failure),
        }
    }
    if program.has_groups() {
        all.extend(calls.read(vec![entry::query_groups()]).await?);
    }
    Ok(all)
}

/// The device's counts. A field is `None` if the map has no tables to count.
#[derive(Default)]
struct Counts {
    /// Packets that the device reported.
    reports: Option<u64>,
    /// Measured packets of each watchlist entry.
    matched: Option<Vec<(FlowMatch, u64)>>,
    /// Counters that the map names.
    counters: Vec<Counter>,
}

/// Reads all counters with one request. If there are none to read, a small request checks whether the device answers.
async fn count(calls: &mut Calls, program: &Program, with_counters: bool) -> Result<Counts, Failure> {
    let (reporting, watching) = program.counting_tables();
    let tables: BTreeSet<u32> = reporting.union(&watching).copied().collect();
    let mut queries: Vec<Entity> = tables
        .iter()
        .map(|table| entry::query_table(*table, true))
        .collect();
    if with_counters {
        queries.extend(program.counters.arrays().map(entry::query_counters));
    }
    if queries.is_empty() {
        return calls.alive().await.map(|()| Counts::default());
    }
    let entities = calls.read(queries).await?;
    let entries: Vec<(Entry, u64)> = entities.iter().filter_map(Entry::read).collect();
    let packets = entries.iter().filter(|(entry, _)| program.counts_reports(entry));
    let packets = packets.map(|(_, packets)| *packets).fold(0, u64::saturating_add);
    let mut matched: BTreeMap<FlowMatch, u64> = BTreeMap::new();
    // A key for both IP versions has an entry in each of two tables; add them.
    for (key, packets) in entries
        .iter()
        .filter_map(|(entry, packets)| program.measured(entry, *packets))
    {
        let sum = matched.entry(key).or_default();
        *sum = sum.saturating_add(packets);
    }
    let counters = program
        .counters
        .name_counters(entities.iter().filter_map(entry::counter_reading));
    Ok(Counts {
        reports: (!reporting.is_empty()).then_some(packets),
        matched: (!watching.is_empty()).then(|| matched.into_iter().collect()),
        counters,
    })
}

fn state(read: ReadState) -> State {
    let ReadState {
        program,
        meaning,
        etag,
    } = read;
    let others = program.others(&meaning);
    let remains = meaning.remains.iter().filter_map(|key| meaning.ours.get(key));
    let remains = remains.map(|entry| format!("remains of a rule: {}", program.describe(entry)));
    let foreign = meaning.foreign.iter().map(|entry| program.describe(entry));
    let all: BTreeSet<String> = remains.chain(foreign).collect();
    let more = all.len().saturating_sub(MAX_FOREIGN);
    let mut foreign: Vec<String> = all.into_iter().take(MAX_FOREIGN).collect();
    foreign.extend((more > 0).then(|| format!("{more} more")));
    State {
        etag,
        rules: meaning.rules,
        foreign,
        others,
    }
}
