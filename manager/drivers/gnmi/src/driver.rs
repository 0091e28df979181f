//! The driver: requests of the manager as calls of gNMI, and what the device reports by itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manager::device::{Answer, Change, Command, DeviceEvent, Election, Etag, NodeId, Request, Rules, State};
use manager::driver::{Facts, Message};
use settings::values::rounded_text;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time;

use crate::client::{Client, Failure, Peer};
use crate::facts::facts;
use crate::map::PathMap;
use crate::message::{
    Extension, MasterArbitration, Path, Response, SetRequest, SubscriptionMode, TypedValue, Uint128, Update,
    Value,
};
use crate::objects::Found;
use crate::tree::Tree;

/// A device.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its node id.
    pub node: NodeId,
    /// Where it is.
    pub peer: Peer,
    /// Its path map.
    pub map: Arc<PathMap>,
}

/// A driver.
#[derive(Debug)]
pub struct Driver {
    commands: mpsc::Sender<Command>,
    tasks: [tokio::task::AbortHandle; 2],
}

impl Driver {
    /// Starts the tasks of a driver on the current runtime. `tell` gets what it reports.
    ///
    /// # Errors
    /// The address or the certificates cannot be used; a sentence that says what to do.
    pub fn start(
        settings: Settings,
        tell: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let (commands, queue) = mpsc::channel(MAX_COMMANDS);
        // A connection per task: a stream that is not read does not delay calls.
        let calls = Client::new(&settings.peer)?;
        let stream = Client::new(&settings.peer)?.with_limit_of(&calls);
        let seen = Arc::new(Mutex::new(None));
        let map = Arc::clone(&settings.map);
        let (claimed, always) = (Election::default(), Rules::new());
        let session = Session {
            client: calls,
            map,
            claimed,
            always,
            seen: Arc::clone(&seen),
        };
        let work = tokio::spawn(work(session, queue, tell.clone()));
        let watch = tokio::spawn(watch(settings, stream, seen, tell));
        Ok(Self {
            commands,
            tasks: [work, watch].map(|task| task.abort_handle()),
        })
    }

    /// Hands over a command. `false`: it still has too many.
    pub fn send(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// The digest of the lists that the driver has seen last.
type Seen = Arc<Mutex<Option<String>>>;

/// What a driver knows of its device.
struct Session {
    client: Client,
    map: Arc<PathMap>,
    claimed: Election,
    /// Rules that the device always follows, as the manager wants them to be there.
    always: Rules,
    seen: Seen,
}

async fn work(mut session: Session, mut queue: mpsc::Receiver<Command>, tell: impl Fn(Message)) {
    while let Some(command) = queue.recv().await {
        let limit = command.time_limit();
        let Command {
            node, id, request, ..
        } = command;
        // A call has longer than the request, so that it is known which of the two was late.
        session.client.set_limit(limit + Duration::from_secs(1));
        let done = time::timeout(limit, session.execute(request)).await;
        let late = || {
            Answer::Late(format!(
                "the device does not answer within {}",
                rounded_text(limit)
            ))
        };
        tell(Message::Answer(node, id, done.unwrap_or_else(|_| late())));
    }
}

impl Session {
    async fn execute(&mut self, request: Request) -> Answer {
        let done = match request {
            Request::Claim(election) => self.claim(election).await,
            Request::Read => self.read().await.map(|(found, etag)| {
                let mut rules = found.rules();
                rules.extend(self.always.iter().cloned());
                let mut foreign = found.foreign;
                foreign.truncate(MAX_FOREIGN);
                Answer::State(State {
                    etag,
                    rules,
                    foreign,
                    ..State::default()
                })
            }),
            Request::Apply {
                election,
                etag,
                changes,
            } => self.apply(election, &etag, &changes).await,
        };
        done.unwrap_or_else(|failure| match failure {
            Failure::Unreachable(reason) => Answer::Unreachable(reason),
            // The device does not say which: the other manager shows at devices that do.
            Failure::Denied(reason) if self.map.arbitrates() => Answer::Unreachable(format!(
                "denied: another manager has a higher election, or the user may not write ({reason}); stop that manager, or correct the user's role"
            )),
            Failure::Denied(reason) | Failure::Refused(reason) => Answer::Refused(reason),
            Failure::NotFound => {
                Answer::Refused("the device does not know the path; correct the path map".to_owned())
            }
        })
    }

    /// An empty transaction that carries the election.
    fn transaction(&self, election: Election) -> SetRequest {
        let election_id = Some(Uint128 {
            high: election.term,
            low: election.epoch,
        });
        let arbitration = Extension {
            master_arbitration: Some(MasterArbitration { election_id }),
        };
        let extension = if self.map.arbitrates() {
            vec![arbitration]
        } else {
            Vec::new()
        };
        SetRequest {
            extension,
            ..SetRequest::default()
        }
    }

    async fn claim(&mut self, election: Election) -> Result<Answer, Failure> {
        self.claimed = election;
        if !self.map.arbitrates() {
            // Whether it is there.
            self.client.capabilities().await?;
            return Ok(Answer::Claimed);
        }
        self.client.set(self.transaction(election)).await?;
        // An extension that a device does not know is ignored: a lower election must be denied now.
        match self.client.set(self.transaction(Election::default())).await {
            Err(Failure::Denied(_)) => Ok(Answer::Claimed),
            Ok(()) => Ok(Answer::Unreachable(
                "the device ignores master arbitration, so that nothing keeps two managers apart; write arbitration = false into the path map if this manager is the only one".to_owned(),
            )),
            Err(failure) => Err(failure),
        }
    }

    /// What the lists of the device say, and their version.
    async fn read(&mut self) -> Result<(Found, Etag), Failure> {
        let tree = lists(&mut self.client, &self.map).await?;
        let found = self.map.found(&tree);
        let digest = digest(&found);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(digest.clone());
        let Election { term, epoch } = self.claimed;
        Ok((found, Etag(format!("{digest}-{term}.{epoch}"))))
    }

    async fn apply(
        &mut self,
        election: Election,
        etag: &Etag,
        changes: &[Change],
    ) -> Result<Answer, Failure> {
        let (found, current) = self.read().await?;
        if election != self.claimed || current != *etag {
            return Ok(Answer::Stale);
        }
        let mut request = self.transaction(election);
        let mut always = self.always.clone();
        for change in changes {
            match change {
                Change::Remove(rule) => {
                    let paths = found.rules.get(rule).into_iter().flatten();
                    request
                        .delete
                        .extend(paths.filter_map(|text| found.paths.get(text).cloned()));
                    always.remove(rule);
                }
                Change::Add(rule) => match self.map.entries(rule) {
                    Ok(entries) if entries.is_empty() => _ = always.insert(rule.clone()),
                    Ok(entries) => request.replace.extend(entries.into_iter().map(|entry| {
                        let json = serde_json::Value::Object(entry.leaves).to_string().into_bytes();
                        let val = Some(TypedValue {
                            value: Some(Value::JsonIetfVal(json)),
                        });
                        Update {
                            path: Some(entry.path),
                            val,
                        }
                    })),
                    Err(reason) => return Ok(Answer::Refused(reason)),
                },
            }
        }
        if !request.delete.is_empty() || !request.replace.is_empty() {
            self.client.set(request).await?;
        }
        self.always = always;
        // What it did is read by the manager; only changes by others are reported.
        self.read().await?;
        Ok(Answer::Applied)
    }
}

/// The lists of the map.
async fn lists(client: &mut Client, map: &PathMap) -> Result<Tree, Failure> {
    let mut tree = Tree::default();
    for path in list_paths(map) {
        client.get(&path, &mut tree).await?;
    }
    Ok(tree)
}

fn list_paths(map: &PathMap) -> Vec<Path> {
    let mut paths: Vec<Path> = Vec::new();
    for object in &map.objects {
        if !paths.contains(&object.path) {
            paths.push(object.path.clone());
        }
    }
    paths
}

/// A version of what was found.
fn digest(found: &Found) -> String {
    let mut digest = Sha256::new();
    for (rule, paths) in &found.rules {
        digest.update(format!("{rule:?}{paths:?}"));
    }
    digest.update(format!("{:?}", found.foreign));
    digest
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Reports what the device says about its ports, changes by others, and its loss.
async fn watch(settings: Settings, mut client: Client, seen: Seen, tell: impl Fn(Message)) {
    let Settings { node, map, .. } = settings;
    let (mut known, mut was_there): (Option<Facts>, bool) = (None, true);
    loop {
        let lost = follow(node, &map, &mut client, &seen, &mut known, &tell).await;
        // Before anything was known, the answers to requests say that it is not there.
        if was_there && known.is_some() {
            tell(Message::Event(node, DeviceEvent::Lost(lost)));
        }
        was_there = false;
        time::sleep(AGAIN).await;
        was_there |= client.capabilities().await.is_ok();
    }
}

/// Follows the device until it is lost. Returns why.
async fn follow(
    node: NodeId,
    map: &PathMap,
    client: &mut Client,
    seen: &Seen,
    known: &mut Option<Facts>,
    tell: &impl Fn(Message),
) -> String {
    let places: Vec<Path> = map.interfaces.iter().chain(&map.lldp).cloned().collect();
    let paths: Vec<Path> = places.iter().cloned().chain(list_paths(map)).collect();
    let mut stream = match client.subscribe(&paths, SubscriptionMode::OnChange).await {
        Ok(stream) => Some(stream),
        Err(Failure::Unreachable(reason)) => return reason,
        // Not every device tells changes of all of these, or streams at all: it is read at intervals.
        Err(_) => client.subscribe(&paths, SubscriptionMode::Sample).await.ok(),
    };
    loop {
        if let Err(failure) = report(node, map, client, seen, known, tell).await {
            return format!("{failure:?}");
        }
        let Some(open) = &mut stream else {
            time::sleep(INTERVAL).await;
            continue;
        };
        match time::timeout(LONGEST_REST, next(open)).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(Some(reason))) => return reason,
            Ok(Err(None)) => stream = None,
        }
    }
}

/// Waits for a notification, and takes those that have come with it. `Err(None)`: there are none, but intervals help.
async fn next(
    stream: &mut tonic::Streaming<crate::message::SubscribeResponse>,
) -> Result<(), Option<String>> {
    loop {
        match stream.message().await {
            Ok(Some(message)) if matches!(message.response, Some(Response::Update(_))) => break,
            Ok(Some(_)) => {}
            Ok(None) => return Err(None),
            Err(status) => match Failure::from(status) {
                Failure::Unreachable(reason) => return Err(Some(reason)),
                _ => return Err(None),
            },
        }
    }
    // A change of many leaves is one change.
    while let Ok(Ok(Some(_))) = time::timeout(CALM, stream.message()).await {}
    Ok(())
}

/// Reports facts that are new, and lists that the driver has not seen.
async fn report(
    node: NodeId,
    map: &PathMap,
    client: &mut Client,
    seen: &Seen,
    known: &mut Option<Facts>,
    tell: &impl Fn(Message),
) -> Result<(), Failure> {
    let mut tree = Tree::default();
    for path in map.interfaces.iter().chain(&map.lldp) {
        client.get(path, &mut tree).await?;
    }
    let facts = facts(map, &tree);
    if known.as_ref() != Some(&facts) {
        *known = Some(facts.clone());
        tell(Message::Facts(node, Box::new(facts)));
    }
    let before = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let now = digest(&map.found(&lists(client, map).await?));
    let mut last = seen.lock().unwrap_or_else(PoisonError::into_inner);
    // A request that was executed meanwhile has seen more.
    if *last == before && before.is_some_and(|before| before != now) {
        *last = Some(now);
        tell(Message::Event(node, DeviceEvent::Changed));
    }
    Ok(())
}

/// Commands that wait for a driver; the core sends one at a time, and again after a timeout.
const MAX_COMMANDS: usize = 4;
/// Lines of others that are shown.
const MAX_FOREIGN: usize = 1000;
/// Between two attempts to reach a device.
const AGAIN: Duration = Duration::from_millis(500);
/// Between two reads of a device that does not stream.
const INTERVAL: Duration = Duration::from_secs(5);
/// A device that streams is read again after this time.
const LONGEST_REST: Duration = Duration::from_secs(30);
/// Notifications that come so soon after each other are one change.
const CALM: Duration = Duration::from_millis(50);
