//! The gNMI driver task: executes the manager's requests as gNMI calls, and reports events of the device. Subscriptions detect
//! changes by others; devices without them are read at intervals.

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
use crate::objects::DeviceObjects;
use crate::tree::Tree;

/// Maximum number of queued commands. The manager sends one at a time, but sends again after a timeout.
const MAX_COMMANDS: usize = 4;
/// Maximum number of foreign objects that are shown.
const MAX_FOREIGN: usize = 1000;
/// Interval between attempts to reach a lost device.
const AGAIN: Duration = Duration::from_millis(500);
/// Interval between reads of a device that does not stream.
const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum interval between reads of a device that streams.
const LONGEST_REST: Duration = Duration::from_secs(30);
/// Notifications within this time after each other count as one change.
const CALM: Duration = Duration::from_millis(50);

/// Settings of one device: its address and its path map.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Node id of the device.
    pub node: NodeId,
    /// Address and credentials of the device.
    pub peer: Peer,
    /// Path map for the device's schema.
    pub map: Arc<PathMap>,
}

/// A running driver. Dropping it stops its tasks.
#[derive(Debug)]
pub struct Driver {
    commands: mpsc::Sender<Command>,
    tasks: [tokio::task::AbortHandle; 2],
}

impl Driver {
    /// Starts the tasks of a driver on the current Tokio runtime. `emit` receives its messages.
    ///
    /// # Errors
    /// A sentence with a fix if the address or the certificates cannot be used.
    pub fn start(
        settings: Settings,
        emit: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let (commands, queue) = mpsc::channel(MAX_COMMANDS);
        // One connection per task, so that an unread stream does not delay calls.
        let calls = Client::new(&settings.peer)?;
        let stream = Client::new(&settings.peer)?.with_limit_of(&calls);
        let seen = Arc::new(Mutex::new(None));
        let session = Session {
            client: calls,
            map: Arc::clone(&settings.map),
            claimed: Election::default(),
            always: Rules::new(),
            seen: Arc::clone(&seen),
        };
        let work = tokio::spawn(work(session, queue, emit.clone()));
        let watch = tokio::spawn(watch(settings, stream, seen, emit));
        Ok(Self {
            commands,
            tasks: [work, watch].map(|task| task.abort_handle()),
        })
    }

    /// Queues a command. Returns `false` if too many commands are queued already.
    pub fn send(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// The digest of the device's lists as the driver last read them.
type LastDigest = Arc<Mutex<Option<String>>>;

/// The connection for requests, and what the driver knows about the device.
struct Session {
    client: Client,
    map: Arc<PathMap>,
    /// Election of this manager's last claim.
    claimed: Election,
    /// Rules that the device always follows and that the manager has added. They have no objects on the device.
    always: Rules,
    seen: LastDigest,
}

/// Executes commands one at a time and emits the answers.
async fn work(mut session: Session, mut queue: mpsc::Receiver<Command>, emit: impl Fn(Message)) {
    while let Some(command) = queue.recv().await {
        let limit = command.time_limit();
        let Command {
            node, id, request, ..
        } = command;
        // Each call has a longer limit than the whole request, so that the request's limit is the one reported.
        session.client.set_limit(limit + Duration::from_secs(1));
        let done = time::timeout(limit, session.execute(request)).await;
        let answer = done.unwrap_or_else(|_| {
            Answer::Late(format!(
                "the device does not answer within {}",
                rounded_text(limit)
            ))
        });
        emit(Message::Answer(node, id, answer));
    }
}

impl Session {
    async fn execute(&mut self, request: Request) -> Answer {
        let done = match request {
            Request::Claim(election) => self.claim(election).await,
            Request::Read => self.read().await.map(|(objects, etag)| {
                let mut rules = objects.rules();
                rules.extend(self.always.iter().cloned());
                let mut foreign = objects.foreign;
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
            // The device does not say which of the two it is. Devices that do report the other manager.
            Failure::Denied(reason) if self.map.arbitrates() => Answer::Unreachable(format!(
                "denied: another manager has a higher election, or the user may not write ({reason}); stop that manager, or correct the user's role"
            )),
            Failure::Denied(reason) | Failure::Refused(reason) => Answer::Refused(reason),
            Failure::NotFound => {
                Answer::Refused("the device does not know the path; correct the path map".to_owned())
            }
        })
    }

    /// Returns a transaction without changes that carries the election.
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

    /// Claims the device by gNMI's master arbitration, and checks that the device enforces it.
    async fn claim(&mut self, election: Election) -> Result<Answer, Failure> {
        self.claimed = election;
        if !self.map.arbitrates() {
            // No fencing is possible; only check that the device answers.
            self.client.capabilities().await?;
            return Ok(Answer::Claimed);
        }
        self.client.set(self.transaction(election)).await?;
        // A device ignores extensions that it does not know. If it enforces arbitration, it must deny this lower election.
        match self.client.set(self.transaction(Election::default())).await {
            Err(Failure::Denied(_)) => Ok(Answer::Claimed),
            Ok(()) => Ok(Answer::Unreachable(
                "the device ignores master arbitration, so that nothing keeps two managers apart; write arbitration = false into the path map if this manager is the only one".to_owned(),
            )),
            Err(failure) => Err(failure),
        }
    }

    /// Reads the device's lists. Returns their objects and the ETag, which contains the claim, so that a new claim changes it.
    async fn read(&mut self) -> Result<(DeviceObjects, Etag), Failure> {
        let tree = lists(&mut self.client, &self.map).await?;
        let objects = self.map.device_objects(&tree);
        let digest = digest(&objects);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(digest.clone());
        let Election { term, epoch } = self.claimed;
        Ok((objects, Etag(format!("{digest}-{term}.{epoch}"))))
    }

    /// Applies changes in one Set transaction, if the ETag still matches.
    async fn apply(
        &mut self,
        election: Election,
        etag: &Etag,
        changes: &[Change],
    ) -> Result<Answer, Failure> {
        let (objects, current) = self.read().await?;
        if election != self.claimed || current != *etag {
            return Ok(Answer::Stale);
        }
        let mut request = self.transaction(election);
        let mut always = self.always.clone();
        for change in changes {
            match change {
                Change::Remove(rule) => {
                    let paths = objects.rules.get(rule).into_iter().flatten();
                    request
                        .delete
                        .extend(paths.filter_map(|text| objects.paths.get(text).cloned()));
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
        // Record the new digest, so that `watch` reports only changes by others.
        self.read().await?;
        Ok(Answer::Applied)
    }
}

/// Reads all lists of the path map.
async fn lists(client: &mut Client, map: &PathMap) -> Result<Tree, Failure> {
    let mut tree = Tree::default();
    for path in list_paths(map) {
        client.get(&path, &mut tree).await?;
    }
    Ok(tree)
}

/// Returns the paths of the lists, without duplicates.
fn list_paths(map: &PathMap) -> Vec<Path> {
    let mut paths: Vec<Path> = Vec::new();
    for object in &map.objects {
        if !paths.contains(&object.path) {
            paths.push(object.path.clone());
        }
    }
    paths
}

/// Returns a digest of the device's objects.
fn digest(objects: &DeviceObjects) -> String {
    let mut digest = Sha256::new();
    for (rule, paths) in &objects.rules {
        digest.update(format!("{rule:?}{paths:?}"));
    }
    digest.update(format!("{:?}", objects.foreign));
    digest
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Task: reports facts about ports, changes by others, and the loss of the device.
async fn watch(settings: Settings, mut client: Client, seen: LastDigest, emit: impl Fn(Message)) {
    let Settings { node, map, .. } = settings;
    let mut known: Option<Facts> = None;
    let mut was_reachable = true;
    loop {
        let lost = follow(node, &map, &mut client, &seen, &mut known, &emit).await;
        // Until something is known, the answers to requests already say that the device is unreachable.
        if was_reachable && known.is_some() {
            emit(Message::Event(node, DeviceEvent::Lost(lost)));
        }
        was_reachable = false;
        time::sleep(AGAIN).await;
        was_reachable |= client.capabilities().await.is_ok();
    }
}

/// Follows the device until it is lost, and returns the reason.
async fn follow(
    node: NodeId,
    map: &PathMap,
    client: &mut Client,
    seen: &LastDigest,
    known: &mut Option<Facts>,
    emit: &impl Fn(Message),
) -> String {
    let interfaces = map.interfaces.iter().chain(&map.lldp).cloned();
    let paths: Vec<Path> = interfaces.chain(list_paths(map)).collect();
    let mut stream = match client.subscribe(&paths, SubscriptionMode::OnChange).await {
        Ok(stream) => Some(stream),
        Err(Failure::Unreachable(reason)) => return reason,
        // Devices that cannot stream changes of all these paths are sampled, or else read at intervals.
        Err(_) => client.subscribe(&paths, SubscriptionMode::Sample).await.ok(),
    };
    loop {
        if let Err(failure) = report(node, map, client, seen, known, emit).await {
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

/// Waits for a notification and skips those that follow it at once. `Err(Some)` is the loss of the device; `Err(None)` means
/// that it does not stream, so that it must be read at intervals.
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
    // Updates of many leaves arrive together and count as one change.
    while let Ok(Ok(Some(_))) = time::timeout(CALM, stream.message()).await {}
    Ok(())
}

/// Reports facts and lists that changed since the last report or read.
async fn report(
    node: NodeId,
    map: &PathMap,
    client: &mut Client,
    seen: &LastDigest,
    known: &mut Option<Facts>,
    emit: &impl Fn(Message),
) -> Result<(), Failure> {
    let mut tree = Tree::default();
    for path in map.interfaces.iter().chain(&map.lldp) {
        client.get(path, &mut tree).await?;
    }
    let facts = facts(map, &tree);
    if known.as_ref() != Some(&facts) {
        *known = Some(facts.clone());
        emit(Message::Facts(node, Box::new(facts)));
    }
    let before = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let now = digest(&map.device_objects(&lists(client, map).await?));
    let mut last = seen.lock().unwrap_or_else(PoisonError::into_inner);
    // If a request ran in the meantime, it has read newer lists and no event is needed.
    if *last == before && before.is_some_and(|before| before != now) {
        *last = Some(now);
        emit(Message::Event(node, DeviceEvent::Changed));
    }
    Ok(())
}
