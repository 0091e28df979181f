//! The driver: executes what the manager asks for, and tells what happens.
//!
//! The device's election id is the manager's election: the term in its upper half, the epoch in its lower. A device executes only what
//! its primary client sends, so that a late request of an older claim is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use manager::device::{Answer, Change, Command, DeviceEvent, Election, Etag, NodeId, Request, Rules, State};
use manager::driver::{Counter, Facts, Message, Reported};
use manager::flows::FlowKey;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time;

use crate::client::{Calls, Client, Connector, Failure, Peer};
use crate::entry::{self, Entry};
use crate::map::Map;
use crate::message::{
    DigestListAck, Entity, Error, ForwardingPipelineConfig, MasterArbitrationUpdate, PacketOut,
    StreamMessageRequest, StreamRequest, StreamResponse, Uint128,
};
use crate::program::{Local, Program};
use crate::translate::{Meaning, changed};

/// What a driver needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the device is.
    pub peer: Peer,
    /// How it is reached, if not from this process's network.
    pub via: Option<Connector>,
    /// The map, and its name for people.
    pub map: (String, Arc<Map>),
    /// What the device's settings say.
    pub local: Local,
    /// The program that is loaded if the device has none: P4Info, and the form of the device.
    pub load: Option<Arc<(Vec<u8>, Vec<u8>)>>,
}

/// A driver.
#[derive(Debug)]
pub struct Driver {
    commands: mpsc::Sender<Command>,
    task: tokio::task::AbortHandle,
}

impl Driver {
    /// Starts the task of a driver on the current runtime. `tell` gets what it says.
    pub fn start(settings: Settings, tell: impl Fn(Message) + Send + Sync + 'static) -> Self {
        let (commands, queue) = mpsc::channel(MAX_COMMANDS);
        let work = Work {
            settings,
            session: None,
            connections: 0,
            remembered: Rules::new(),
            filters: BTreeMap::new(),
            facts: None,
            frames: FrameClock::default(),
            tell: Box::new(tell),
        };
        Self { commands, task: tokio::spawn(work.run(queue)).abort_handle() }
    }

    /// Hands over a command. `false`: it still has too many.
    pub fn send(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection.
struct Session {
    client: Client,
    /// Number of the connection.
    number: u64,
    claim: Election,
    /// `None`: the claim did not succeed.
    program: Option<Arc<Program>>,
    /// A program is being loaded.
    loading: Option<JoinHandle<Result<(), Failure>>>,
    /// It refused to return its counters; it is not asked for them again.
    without_counters: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(loading) = &self.loading {
            loading.abort();
        }
    }
}

struct Work {
    settings: Settings,
    session: Option<Session>,
    connections: u64,
    /// The rules that the device was last asked to have; see [`crate::translate`].
    remembered: Rules,
    /// What its filters by rule do, as last read.
    filters: BTreeMap<String, String>,
    facts: Option<Facts>,
    frames: FrameClock,
    tell: Box<dyn Fn(Message) + Send + Sync>,
}

/// Which timer frame comes next, and how many are due, in frames times ms of a period.
#[derive(Debug, Default)]
struct FrameClock {
    next: usize,
    due: u64,
}

/// What the task waits for.
enum Next {
    Frames,
    Command(Command),
    End,
    Stream(Result<Option<StreamResponse>, Failure>),
    Tick,
}

/// What was read.
struct Seen {
    program: Arc<Program>,
    meaning: Meaning,
    etag: Etag,
}

impl Work {
    async fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let mut frames = time::interval(Duration::from_millis(FRAMES_MS));
        frames.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            let sends_frames = self.sends_frames();
            let stream = async {
                match &mut self.session {
                    Some(session) => session.client.next().await.map(|message| message.update),
                    None => std::future::pending().await,
                }
            };
            let next = tokio::select! {
                command = queue.recv() => command.map_or(Next::End, Next::Command),
                message = stream => Next::Stream(message),
                _ = ticks.tick() => Next::Tick,
                _ = frames.tick(), if sends_frames => Next::Frames,
            };
            match next {
                Next::End => return,
                Next::Command(command) => self.command(command).await,
                Next::Stream(message) => self.message(message),
                Next::Tick => self.tick().await,
                Next::Frames => self.send_frames(),
            }
        }
    }

    fn node(&self) -> NodeId {
        self.settings.local.node
    }

    fn event(&self, event: DeviceEvent) {
        (self.tell)(Message::Event(self.node(), event));
    }

    fn lose(&mut self, reason: String) {
        if self.session.take().is_some_and(|session| session.program.is_some()) {
            self.event(DeviceEvent::Lost(reason));
        }
    }

    async fn command(&mut self, Command { node, id, request }: Command) {
        let done = time::timeout(REQUEST, self.execute(request)).await;
        let answer = done.unwrap_or_else(|_| {
            // What was under way is over: a stream in an unknown state is not used again.
            self.session = self.session.take().filter(|session| session.loading.is_some());
            Answer::Unreachable(format!("{} does not answer in time", self.settings.peer.address))
        });
        (self.tell)(Message::Answer(node, id, answer));
    }

    async fn execute(&mut self, request: Request) -> Answer {
        match request {
            Request::Claim(election) => self.claim(election).await,
            Request::Read => {
                self.read().await.map_or_else(|answer| answer, |seen| Answer::State(state(seen)))
            }
            Request::Apply { election, etag, changes } => {
                self.apply(election, &etag, &changes).await.unwrap_or_else(|answer| answer)
            }
        }
    }

    async fn claim(&mut self, election: Election) -> Answer {
        if let Some(loading) = self.session.as_mut().and_then(|session| session.loading.take()) {
            if !loading.is_finished() {
                self.session.iter_mut().for_each(|session| session.loading = None);
                return self.keep_loading(loading);
            }
            if let Ok(Err(failure)) = loading.await {
                self.session = None;
                return Answer::Unreachable(format!("it does not take the program: {}", text(&failure)));
            }
        }
        match self.claimed(election).await {
            Ok(answer) => answer,
            Err(failure) => {
                self.session = None;
                Answer::Unreachable(text(&failure))
            }
        }
    }

    fn keep_loading(&mut self, loading: JoinHandle<Result<(), Failure>>) -> Answer {
        if let Some(session) = &mut self.session {
            session.loading = Some(loading);
        }
        Answer::Unreachable("its program is being loaded".to_owned())
    }

    async fn claimed(&mut self, election: Election) -> Result<Answer, Failure> {
        let id = Uint128 { high: election.term, low: election.epoch };
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
                    without_counters: false,
                });
            }
        }
        let Some(session) = &mut self.session else { return Ok(Answer::Stale) };
        session.claim = election;
        let arbitration = arbitrate(&mut session.client, id).await?;
        if let Some(answer) = not_primary(&arbitration, id) {
            self.session = None;
            return Ok(answer);
        }
        let mut calls = session.client.calls();
        let info = match calls.program().await {
            Err(Failure::NoProgram) => return Ok(self.load(calls, id)),
            info => info?,
        };
        let (name, map) = &self.settings.map;
        match Program::new(map, &info, &self.settings.local) {
            Ok(program) => {
                let facts = Facts { capabilities: program.capabilities(), ports: Vec::new() };
                session.program = Some(Arc::new(program));
                if self.facts.as_ref() != Some(&facts) {
                    self.facts = Some(facts.clone());
                    (self.tell)(Message::Facts(self.settings.local.node, Box::new(facts)));
                }
                Ok(Answer::Claimed)
            }
            Err(problems) => {
                let text = format!("its program does not fit the map `{name}`: {}", problems.join("; "));
                self.session = None;
                Ok(Answer::Unreachable(text))
            }
        }
    }

    /// Starts to load the program into a device that has none.
    fn load(&mut self, mut calls: Calls, election: Uint128) -> Answer {
        let (Some(load), Some(session)) = (self.settings.load.clone(), &mut self.session) else {
            self.session = None;
            return Answer::Unreachable(
                "it has no program; load one, or add `load` to the device".to_owned(),
            );
        };
        let work = async move {
            let (p4info, config) = (*load).clone();
            let config = ForwardingPipelineConfig { p4info: Some(p4info), p4_device_config: config };
            let late = |_| Failure::Unreachable("no answer in time".to_owned());
            time::timeout(LOAD, calls.load(election, config)).await.map_err(late)?
        };
        session.loading = Some(tokio::spawn(work));
        Answer::Unreachable("its program is being loaded".to_owned())
    }

    /// The program of a device whose claim stands.
    fn ready(&mut self) -> Result<(Calls, Arc<Program>), Answer> {
        let ready = self.session.as_ref().and_then(|session| {
            session.program.as_ref().map(|program| (session.client.calls(), Arc::clone(program)))
        });
        ready.ok_or_else(|| Answer::Unreachable("it is not connected".to_owned()))
    }

    async fn read(&mut self) -> Result<Seen, Answer> {
        let (mut calls, program) = self.ready()?;
        let entities = read_entries(&mut calls, &program).await;
        let entities = entities.map_err(|failure| self.fail(failure))?;
        let entries: Vec<Entry> = entities.iter().filter_map(Entry::read).map(|(entry, _)| entry).collect();
        let digest = u64::from_be_bytes(entry::digest(entries.iter()));
        let (number, claim) =
            self.session.as_ref().map_or((0, Election::default()), |session| (session.number, session.claim));
        let etag = Etag(format!("{number}.{}-{digest:016x}", claim.epoch));
        let meaning = program.decode(entries, &self.remembered);
        let filters = program.rule_filters(&meaning.ours, &meaning.rules).into_iter();
        self.filters = filters.map(|(number, text)| (format!("filter {number}"), text)).collect();
        Ok(Seen { program, meaning, etag })
    }

    /// The answer to a call that failed.
    fn fail(&mut self, failure: Failure) -> Answer {
        match failure {
            Failure::Unreachable(reason) => {
                self.session = None;
                Answer::Unreachable(reason)
            }
            Failure::NoProgram => Answer::Stale,
            // Who is primary now is found by the next claim.
            Failure::NotPrimary => Answer::Stale,
            Failure::Refused(reason, _) => Answer::Refused(reason),
        }
    }

    async fn apply(&mut self, election: Election, etag: &Etag, changes: &[Change]) -> Result<Answer, Answer> {
        let Seen { program, meaning, etag: now } = self.read().await?;
        let claim = self.session.as_ref().map(|session| session.claim);
        if now != *etag || claim != Some(election) {
            return Err(Answer::Stale);
        }
        let rules = changed(&meaning.rules, changes);
        let batches = program.plan(&meaning, &rules).map_err(Answer::Refused)?;
        let (mut calls, _) = self.ready()?;
        // What is there is read back; this only names it.
        self.remembered = rules;
        let id = Uint128 { high: election.term, low: election.epoch };
        for batch in batches {
            let updates = batch.iter().map(|(kind, entry)| entry.update(*kind)).collect();
            match calls.write(id, updates).await {
                Ok(()) => {}
                Err(Failure::Refused(reason, errors)) => {
                    let entries: Vec<&Entry> = batch.iter().map(|(_, entry)| entry).collect();
                    return Err(Answer::Refused(refused(&program, &entries, &reason, &errors)));
                }
                Err(failure) => return Err(self.fail(failure)),
            }
        }
        Ok(Answer::Applied)
    }

    /// A message on the stream.
    fn message(&mut self, message: Result<Option<StreamResponse>, Failure>) {
        let message = match message {
            Ok(message) => message,
            Err(failure) => return self.lose(text(&failure)),
        };
        match message {
            Some(StreamResponse::Arbitration(arbitration)) => {
                let ours = self.session.as_ref().map(|session| session.claim).unwrap_or_default();
                let ours = Uint128 { high: ours.term, low: ours.epoch };
                if not_primary(&arbitration, ours).is_some() {
                    self.lose("another client became primary".to_owned());
                }
            }
            Some(StreamResponse::Digest(list)) => {
                let ack = DigestListAck { digest_id: list.digest_id, list_id: list.list_id };
                let ack = StreamMessageRequest { update: Some(StreamRequest::DigestAck(ack)) };
                if let Some(session) = &self.session {
                    // The device sends it again without it.
                    let _ = session.client.tell(ack);
                }
            }
            // The driver asks for no packets.
            Some(StreamResponse::Packet(_)) | None => {}
        }
    }

    /// Whether timer frames are to be sent.
    fn sends_frames(&self) -> bool {
        let program = self.session.as_ref().and_then(|session| session.program.as_ref());
        program.and_then(|program| program.role()).is_some_and(|role| !role.frames.is_empty())
    }

    /// Sends the timer frames that are due. Those for which the stream has no room are late, and not left out.
    fn send_frames(&mut self) {
        let Some(session) = &self.session else { return };
        let Some(role) = session.program.as_ref().and_then(|program| program.role()) else { return };
        let (frames, clock) = (role.frames.as_slice(), &mut self.frames);
        let period = u64::try_from(role.period.as_millis()).unwrap_or(u64::MAX).max(1);
        let all = period.saturating_mul(frames.len() as u64);
        // After a pause, each is due once.
        clock.due = clock.due.saturating_add(frames.len() as u64 * FRAMES_MS).min(all);
        while clock.due >= period {
            let Some(frame) = frames.get(clock.next).or(frames.first()) else { return };
            let packet = StreamRequest::Packet(PacketOut { payload: frame.clone() });
            if session.client.tell(StreamMessageRequest { update: Some(packet) }).is_err() {
                return;
            }
            clock.next = (clock.next + 1) % frames.len();
            clock.due -= period;
        }
    }

    /// Once a second: counts, and sees whether the device is there.
    async fn tick(&mut self) {
        let Ok((mut calls, program)) = self.ready() else { return };
        let with_counters = self.session.as_ref().is_some_and(|session| !session.without_counters);
        let counted = count(&mut calls, &program, with_counters);
        match time::timeout(REQUEST, counted).await {
            Ok(Ok(Counts { reports, matched, mut counters })) => {
                for counter in &mut counters {
                    let object = counter.object.as_ref();
                    counter.about = object.and_then(|object| self.filters.get(object).cloned());
                }
                let node = self.node();
                if let Some(matched) = matched {
                    (self.tell)(Message::Matched(node, matched));
                }
                if let Some(packets) = reports {
                    (self.tell)(Message::Reported(node, Reported { packets, sent: None }));
                }
                if !counters.is_empty() {
                    (self.tell)(Message::Counted(node, counters));
                }
            }
            Ok(Err(Failure::Unreachable(reason))) => self.lose(reason),
            Ok(Err(Failure::Refused(..))) if with_counters => {
                self.session.iter_mut().for_each(|session| session.without_counters = true);
            }
            Ok(Err(_)) => {}
            Err(_) => self.lose(format!("{} does not answer in time", self.settings.peer.address)),
        }
    }
}

/// Waits for the answer to a request for arbitration with this id.
async fn arbitrate(client: &mut Client, id: Uint128) -> Result<MasterArbitrationUpdate, Failure> {
    loop {
        match client.next().await?.update {
            // One of an older claim tells nothing about this one, unless somebody else is primary.
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

/// What the manager is told if another client is primary.
fn not_primary(arbitration: &MasterArbitrationUpdate, ours: Uint128) -> Option<Answer> {
    let primary = arbitration.election_id.unwrap_or_default();
    if is_ok(arbitration) && primary <= ours {
        return None;
    }
    // A manager's term is a time. Others that are primary are no managers, and leave its other devices alone.
    if primary > ours && Election::TERMS.contains(&primary.high) {
        return Some(Answer::NotPrimary(Election { term: primary.high, epoch: primary.low }));
    }
    let id = (u128::from(primary.high) << 64) | u128::from(primary.low);
    let reason = arbitration.status.as_ref().map_or("", |status| status.message.as_str());
    let text = format!("another controller is primary with election id {id}; stop it, or give `role`");
    Some(Answer::Unreachable(if reason.is_empty() { text } else { format!("{text} ({reason})") }))
}

/// All entries of the tables and sessions of the map.
async fn read_entries(calls: &mut Calls, program: &Program) -> Result<Vec<Entity>, Failure> {
    let mut wanted = Vec::new();
    for (table, facts) in &program.tables {
        wanted.extend(facts.entries.then(|| entry::all_of(*table, false)));
        wanted.extend(facts.default.then(|| entry::default_of(*table)));
    }
    let mut all = calls.read(wanted).await?;
    for session in program.sessions() {
        match calls.read(vec![entry::session(session)]).await {
            Ok(found) => all.extend(found),
            // There is none with this number.
            Err(Failure::Refused(..)) => {}
            Err(failure) => return Err(failure),
        }
    }
    if program.has_groups() {
        all.extend(calls.read(vec![entry::groups()]).await?);
    }
    Ok(all)
}

/// What the device counts, as far as the map says it.
#[derive(Default)]
struct Counts {
    /// Packets that it reported.
    reports: Option<u64>,
    /// Packets that match each entry of the watchlist and that it measures.
    matched: Option<Vec<(FlowKey, u64)>>,
    /// Its counters with a name.
    counters: Vec<Counter>,
}

/// What the device counts, by one request. It is asked in any case: so its loss is noticed.
async fn count(calls: &mut Calls, program: &Program, with_counters: bool) -> Result<Counts, Failure> {
    let (reporting, watching) = program.counting_tables();
    let tables: BTreeSet<u32> = reporting.union(&watching).copied().collect();
    let mut wanted: Vec<Entity> = tables.iter().map(|table| entry::all_of(*table, true)).collect();
    if with_counters {
        wanted.extend(program.counters.arrays().map(entry::counters));
    }
    if wanted.is_empty() {
        return calls.alive().await.map(|()| Counts::default());
    }
    let entities = calls.read(wanted).await?;
    let entries: Vec<(Entry, u64)> = entities.iter().filter_map(Entry::read).collect();
    let packets = entries.iter().filter(|(entry, _)| program.counts_reports(entry));
    let packets = packets.map(|(_, packets)| *packets).fold(0, u64::saturating_add);
    let mut matched: BTreeMap<FlowKey, u64> = BTreeMap::new();
    // An entry for flows of both versions of IP is one in each of two tables.
    for (key, packets) in entries.iter().filter_map(|(entry, packets)| program.measured(entry, *packets)) {
        let sum = matched.entry(key).or_default();
        *sum = sum.saturating_add(packets);
    }
    let counters = program.counters.named(entities.iter().filter_map(entry::counted));
    Ok(Counts {
        reports: (!reporting.is_empty()).then_some(packets),
        matched: (!watching.is_empty()).then(|| matched.into_iter().collect()),
        counters,
    })
}

/// Which update the device refused, and why.
fn refused(program: &Program, entries: &[&Entry], reason: &str, errors: &[Error]) -> String {
    let failed: Vec<(&&Entry, &Error)> =
        entries.iter().zip(errors).filter(|(_, error)| error.canonical_code != 0).collect();
    let Some((entry, error)) = failed.first() else {
        let first = entries.first().map(|entry| program.describe(entry)).unwrap_or_default();
        return format!("it refused {} entries, the first {first}: {reason}", entries.len());
    };
    let why = code_text(error);
    let more = if failed.len() > 1 { format!(", and {} more", failed.len() - 1) } else { String::new() };
    format!("it refused {}: {why}{more}", program.describe(entry))
}

fn code_text(error: &Error) -> String {
    let code = tonic::Code::from_i32(error.canonical_code);
    let short: String = error.message.chars().take(300).collect();
    let what = match code {
        tonic::Code::AlreadyExists => "it is there already; remove the entry of the other program",
        tonic::Code::NotFound => "it is not there any more; the manager reads the device again",
        tonic::Code::ResourceExhausted => "the table is full; use fewer intents, or wider prefixes",
        tonic::Code::Unimplemented => {
            "the device does not support it; correct the pipeline map, or use another `mode`"
        }
        tonic::Code::InvalidArgument => {
            "the device does not accept its values; correct the pipeline map, or `ports` and `report` of the device"
        }
        tonic::Code::PermissionDenied => "the role may not change it; set another `role`",
        _ => code.description(),
    };
    if short.is_empty() { what.to_owned() } else { format!("{what} ({short})") }
}

fn state(seen: Seen) -> State {
    let Seen { program, meaning, etag } = seen;
    let remains = meaning.remains.iter().filter_map(|key| meaning.ours.get(key));
    let remains = remains.map(|entry| format!("remains of a rule: {}", program.describe(entry)));
    let foreign = meaning.foreign.iter().map(|entry| program.describe(entry));
    let all: BTreeSet<String> = remains.chain(foreign).collect();
    let more = all.len().saturating_sub(MAX_FOREIGN);
    let mut foreign: Vec<String> = all.into_iter().take(MAX_FOREIGN).collect();
    foreign.extend((more > 0).then(|| format!("{more} more")));
    State { etag, rules: meaning.rules, foreign }
}

fn text(failure: &Failure) -> String {
    match failure {
        Failure::Unreachable(reason) | Failure::Refused(reason, _) => reason.clone(),
        Failure::NoProgram => "it has no program".to_owned(),
        Failure::NotPrimary => "another client is primary; stop it, or set `role`".to_owned(),
    }
}

/// Commands that wait for a driver; the core sends one at a time, and again after a timeout.
const MAX_COMMANDS: usize = 4;
/// Entries of others that are listed.
const MAX_FOREIGN: usize = 200;
/// Below the core's time limit, so that the reason is known.
const REQUEST: Duration = Duration::from_millis(1800);
/// Time limit of loading a program.
const LOAD: Duration = Duration::from_secs(60);
/// Between two looks at which timer frames are due, ms.
const FRAMES_MS: u64 = 10;
/// Between two counts.
const TICK: Duration = Duration::from_secs(1);
