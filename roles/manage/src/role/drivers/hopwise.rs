//! The driver of hopwise switches: reads and writes rules through the switch's HTTP API, with a long poll that returns as soon
//! as they change. Three tasks per switch execute commands, watch for changes, and poll counters.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, StatusCode,
    body::Bytes,
    client::conn::http1,
    header::{self, HeaderName},
};
use hyper_util::rt::TokioIo;
use manager::{
    device::{
        Answer, Capabilities, Change, Command, DeviceEvent, Election, Etag, NodeId, Request as Order,
        Restart, State,
    },
    driver::{Facts, Message, Neighbour, PortFacts, Reported},
};
use rustls::ClientConfig;
use serde_json::{Value, json};
use settings::values::rounded_text;
use tokio::{net::TcpStream, sync::mpsc, time};

use super::namespaces::Namespace;
use crate::settings::ManagerSettings;
use net::tls;
use runtime::lock::lock;
use terminal::text;
use view::{
    rules::{self, ChangeView},
    switch::{CapabilitiesView, CountersView, INSTRUCTIONS, RulesView},
};

/// Capacity of a driver's command queue. The core sends one command at a time, and again after a timeout.
const MAX_COMMANDS: usize = 4;
/// Maximum length of a switch's reason, characters.
const MAX_REASON: usize = 300;
/// Maximum length of a name from a switch, characters; LLDP names have at most 255.
const MAX_NAME: usize = 255;
/// Maximum size of a response, bytes; it fits full tables.
const MAX_RESPONSE: usize = 16 << 20;
const CONNECT: Duration = Duration::from_secs(1);
/// Time limit of a counter request, below the core's own limit so that the reason is known.
const REQUEST: Duration = Duration::from_millis(1800);
/// Time limit of a long poll, above a switch's longest wait.
const LONG_POLL: Duration = Duration::from_secs(30);
/// Interval between polls of the counters.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between reads of the rules.
const PAUSE: Duration = Duration::from_millis(250);
/// Delay between attempts to reach a switch.
const AGAIN: Duration = Duration::from_millis(500);

/// The API address of a hopwise process, and the credentials for it.
#[derive(Clone, Debug)]
pub(in crate::role) struct Address {
    /// The node ID that the process must have.
    pub(in crate::role) node: NodeId,
    /// Host and port of its API.
    pub(in crate::role) authority: String,
    /// The TLS configuration, or the error that prevents it; `None` without TLS.
    pub(in crate::role) tls: Option<Result<Arc<ClientConfig>, String>>,
    /// The network namespace of the address; `None` for the process's own.
    pub(in crate::role) namespace: Option<Namespace>,
    /// The token for the API.
    pub(in crate::role) token: Option<String>,
}

/// The driver of one hopwise switch. Dropping it ends its tasks.
#[derive(Debug)]
pub(in crate::role) struct Driver {
    commands: mpsc::Sender<Command>,
    known: SwitchState,
    tasks: [tokio::task::AbortHandle; 3],
}

impl Driver {
    /// Starts the driver's tasks on the current runtime. They pass messages to `send`.
    pub(super) fn start(address: Address, send: impl Fn(Message) + Clone + Send + Sync + 'static) -> Self {
        let (commands, queue) = mpsc::channel(MAX_COMMANDS);
        let known = SwitchState::default();
        let work = tokio::spawn(work(address.clone(), queue, known.clone(), send.clone()));
        let count = tokio::spawn(count(address.clone(), known.clone(), send.clone()));
        let watch = tokio::spawn(watch(address, known.clone(), send));
        let tasks = [work, watch, count].map(|task| task.abort_handle());
        Self {
            commands,
            known,
            tasks,
        }
    }

    /// Requests a renewal of the lease with the next poll of counters.
    pub(super) fn renew(&self) {
        lock(&self.known).renews = true;
    }

    /// Queues a command. Returns `false` if the queue is full.
    pub(super) fn send(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// The driver's knowledge of the switch, shared by its tasks.
type SwitchState = Arc<Mutex<LastSeen>>;

#[derive(Debug, Default)]
struct LastSeen {
    /// The version of the rules after the driver's own last request; another version means that somebody else changed them.
    etag: String,
    /// The election ID with which the driver claimed the switch.
    claimed: Election,
    /// The manager was active when it last called [`Driver::renew`].
    renews: bool,
}

/// The reason a request has no result.
enum Failure {
    /// No response to the request arrived.
    Unreachable(String),
    /// The switch refused the request, with this status and message.
    Refused(StatusCode, String),
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable(reason) => Self::Unreachable(reason),
            Failure::Refused(StatusCode::UNAUTHORIZED, _) => {
                Self::Unreachable("the switch does not accept the token; correct [manager] token".to_owned())
            }
            // The switch is not managed or still starting, or the token is read-only.
            Failure::Refused(
                StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::SERVICE_UNAVAILABLE,
                message,
            ) => Self::Unreachable(message),
            Failure::Refused(_, message) => Self::Refused(message),
        }
    }
}

/// Executes commands one after the other, each within its time limit.
async fn work(
    address: Address,
    mut queue: mpsc::Receiver<Command>,
    known: SwitchState,
    send: impl Fn(Message),
) {
    while let Some(command) = queue.recv().await {
        let limit = command.time_limit();
        let Command {
            node, id, request, ..
        } = command;
        let done = time::timeout(limit, execute(&address, request, &known)).await;
        let answer = done.unwrap_or_else(|_| {
            Answer::Late(format!(
                "{} does not answer within {}",
                address.authority,
                rounded_text(limit)
            ))
        });
        send(Message::Answer(node, id, answer));
    }
}

async fn execute(address: &Address, request: Order, known: &SwitchState) -> Answer {
    let done = match request {
        Order::Read => read(address, known).await.map(|view| {
            let other = Some(view.election).filter(|election| *election > lock(known).claimed);
            other.map_or_else(|| state(&view), Answer::NotPrimary)
        }),
        Order::Claim(election) => claim(address, election, known).await,
        Order::Apply {
            election,
            etag,
            changes,
        } => apply(address, election, &etag, &changes, known).await,
    };
    done.unwrap_or_else(Answer::from)
}

async fn claim(address: &Address, election: Election, known: &SwitchState) -> Result<Answer, Failure> {
    let body = json!(election);
    match send(address, Method::POST, "/claim", None, &body).await {
        Err(Failure::Refused(StatusCode::CONFLICT, _)) => {
            Ok(Answer::NotPrimary(read(address, known).await?.election))
        }
        done => {
            remember(&checked(address, done?)?, known);
            lock(known).claimed = election;
            Ok(Answer::Claimed)
        }
    }
}

/// Applies changes by a PATCH request, conditional on election (409) and ETag (412).
async fn apply(
    address: &Address,
    election: Election,
    etag: &Etag,
    changes: &[Change],
    known: &SwitchState,
) -> Result<Answer, Failure> {
    let changes: Vec<ChangeView> = changes.iter().map(ChangeView::from).collect();
    let body = json!({"election": election, "changes": changes});
    match send(address, Method::PATCH, "/rules", Some(&etag.0), &body).await {
        Err(Failure::Refused(StatusCode::CONFLICT, _)) => {
            Ok(Answer::NotPrimary(read(address, known).await?.election))
        }
        Err(Failure::Refused(StatusCode::PRECONDITION_FAILED, _)) => Ok(Answer::Stale),
        done => {
            remember(&checked(address, done?)?, known);
            Ok(Answer::Applied)
        }
    }
}

async fn read(address: &Address, known: &SwitchState) -> Result<RulesView, Failure> {
    let view = checked(
        address,
        send(address, Method::GET, "/rules", None, &Value::Null).await?,
    )?;
    remember(&view, known);
    Ok(view)
}

/// Returns the capabilities that hopwise switches do not report themselves.
pub(super) fn capabilities() -> Capabilities {
    Capabilities {
        bits: INSTRUCTIONS,
        joint_roles: false,
        restart: Restart::Waits,
        ..Capabilities::default()
    }
}

/// Converts the ports and capabilities that a switch reports.
fn facts(view: &RulesView) -> Facts {
    let ports = view.ports.iter().map(|port| PortFacts {
        port: u32::from(port.number),
        name: Some(text::bounded(&port.interface, MAX_NAME)),
        mtu: Some(u32::from(port.mtu)),
        hosts: port.edge,
        // With several neighbours announcing themselves, the link is unknown.
        neighbour: port
            .neighbour
            .as_ref()
            .filter(|neighbour| !neighbour.several)
            .map(|neighbour| Neighbour {
                system: text::bounded(&neighbour.system, MAX_NAME),
                port: text::bounded(&neighbour.port, MAX_NAME),
            }),
    });
    let CapabilitiesView {
        bits,
        watch_entries,
        filter_entries,
        sampling,
        dta,
    } = view.capabilities;
    let capabilities = Capabilities {
        bits,
        watch_entries,
        filter_entries,
        sampling,
        dta,
        ..capabilities()
    };
    Facts {
        capabilities,
        ports: ports.collect(),
    }
}

fn remember(view: &RulesView, known: &SwitchState) {
    lock(known).etag.clone_from(&view.etag);
}

fn state(view: &RulesView) -> Answer {
    match rules::rules(&view.rules) {
        Ok(rules) => Answer::State(State {
            etag: Etag(view.etag.clone()),
            rules,
            ..State::default()
        }),
        Err(error) => {
            let error = text::bounded(&error.to_string(), MAX_REASON);
            Answer::Refused(format!(
                "the switch has a rule of another version of hopwise: {error}"
            ))
        }
    }
}

/// Long-polls the rules, and reports changes by others, the loss of the switch, and new facts about it.
async fn watch(address: Address, known: SwitchState, send: impl Fn(Message)) {
    let mut last: Option<String> = None;
    let mut seen = 0;
    let mut facts: Option<Facts> = None;
    let mut was_there = true;
    loop {
        let begin = time::Instant::now();
        let path = last.as_ref().map_or_else(
            || "/rules".to_owned(),
            |etag| format!("/rules?wait={etag}&seen={seen}"),
        );
        let view = match time::timeout(LONG_POLL, watched(&address, &path)).await {
            Ok(view) => view,
            Err(_) => Err("does not answer in time".to_owned()),
        };
        match view {
            Ok(view) => {
                was_there = true;
                let is_new = last.as_ref() != Some(&view.etag);
                if is_new && last.is_some() && lock(&known).etag != view.etag {
                    send(Message::Event(address.node, DeviceEvent::Changed));
                }
                last = Some(view.etag.clone());
                seen = view.neighbour_changes;
                let now = self::facts(&view);
                if facts.as_ref() != Some(&now) {
                    facts = Some(now.clone());
                    send(Message::Facts(address.node, Box::new(now)));
                }
                // Limit the rate: the switch, or a device behind its ports, must not determine the manager's load.
                time::sleep_until(begin + PAUSE).await;
            }
            Err(reason) => {
                if was_there {
                    send(Message::Event(address.node, DeviceEvent::Lost(reason)));
                }
                was_there = false;
                last = None;
                time::sleep(AGAIN).await;
            }
        }
    }
}

/// Polls the counters of reported and measured packets, and renews the lease of an active manager. Without an answer it sends
/// nothing, because `watch` reports the loss of the switch.
async fn count(address: Address, known: SwitchState, send: impl Fn(Message)) {
    loop {
        time::sleep(COUNT_INTERVAL).await;
        let counted = time::timeout(REQUEST, counters(&address, &known)).await;
        let counted = counted.ok().and_then(Result::ok);
        let view = counted.and_then(|body| serde_json::from_slice::<CountersView>(&body).ok());
        if let Some(view) = view.filter(|view| view.node == address.node) {
            let sent = view.reports.map(|reports| reports.sent);
            send(Message::Reported(
                address.node,
                Reported {
                    packets: view.int.reported,
                    sent,
                },
            ));
            let matched = view
                .matched
                .iter()
                .filter_map(|one| Some(((&one.flows).try_into().ok()?, one.measured)));
            send(Message::Matched(address.node, matched.collect()));
            if let Some(lease) = view.lease {
                send(Message::Lease(address.node, lease.election, lease.silence));
            }
        }
    }
}

/// Renews the lease if requested, and returns the counters, which the response to a renewal also contains.
async fn counters(address: &Address, known: &SwitchState) -> Result<Bytes, Failure> {
    let (renews, claimed) = {
        let mut last = lock(known);
        (std::mem::take(&mut last.renews), last.claimed)
    };
    if renews && claimed != Election::default() {
        let renewed = send(address, Method::POST, "/renew", None, &json!(claimed)).await;
        // If another manager has claimed the switch, the next read shows it.
        if !matches!(renewed, Err(Failure::Refused(..))) {
            return renewed;
        }
    }
    send(address, Method::GET, "/int", None, &Value::Null).await
}

async fn watched(address: &Address, path: &str) -> Result<RulesView, String> {
    let view = send(address, Method::GET, path, None, &Value::Null)
        .await
        .and_then(|view| checked(address, view));
    view.map_err(|failure| match failure {
        Failure::Unreachable(reason) | Failure::Refused(_, reason) => reason,
    })
}

/// Parses a response, and checks that it is from the intended switch.
fn checked(address: &Address, body: Bytes) -> Result<RulesView, Failure> {
    let Address { node, authority, .. } = address;
    let reason = match serde_json::from_slice::<RulesView>(&body) {
        Ok(view) if view.node == *node => return Ok(view),
        Ok(view) => format!("is node {}, not {node}", view.node),
        Err(_) => "does not answer like a hopwise switch".to_owned(),
    };
    Err(Failure::Unreachable(format!(
        "{authority} {reason}; correct its address"
    )))
}

fn unreachable(authority: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::Unreachable(format!("{authority}: {error}"))
}

/// Opens a connection to the API.
async fn connect(address: &Address) -> Result<Box<dyn tls::Stream>, Failure> {
    let authority = &address.authority;
    let connecting = async {
        match &address.namespace {
            Some(namespace) => namespace.connect(authority).await,
            None => TcpStream::connect(authority).await,
        }
    };
    let stream = time::timeout(CONNECT, connecting).await;
    let stream = stream
        .map_err(|_| unreachable(authority, &"no answer"))?
        .map_err(|error| unreachable(authority, &error))?;
    let config = address.tls.clone().transpose().map_err(Failure::Unreachable)?;
    tls::secure(config, authority, stream)
        .await
        .map_err(Failure::Unreachable)
}

/// Returns the TLS configuration for connections to other hopwise processes.
///
/// # Errors
/// A file is unusable, or `ca` is missing.
pub(in crate::role) fn client(settings: &ManagerSettings) -> Result<Arc<ClientConfig>, String> {
    let client = settings.client().map_err(|problem| problem.message)?;
    client.ok_or_else(|| "add ca = \"ca.pem\" to [manager]".to_owned())
}

/// Reads from the API of another hopwise process, which need not be a switch. Returns the version and the content, or `None`
/// if the version is still the `known` one.
///
/// # Errors
/// The reason, as a message.
pub(in crate::role) async fn get(
    address: &Address,
    path: &str,
    known: Option<&str>,
) -> Result<Option<(String, Bytes)>, String> {
    let etag = known.map(|etag| (header::IF_NONE_MATCH, etag));
    match request(address, Method::GET, path, etag, &Value::Null).await {
        Ok(answer) => Ok(Some(answer)),
        Err(Failure::Refused(StatusCode::NOT_MODIFIED, _)) => Ok(None),
        Err(Failure::Refused(StatusCode::UNAUTHORIZED, _)) => {
            Err(format!("{} does not accept the token", address.authority))
        }
        Err(Failure::Unreachable(reason) | Failure::Refused(_, reason)) => Err(reason),
    }
}

/// Sends one request to the switch's API.
async fn send(
    address: &Address,
    method: Method,
    path: &str,
    etag: Option<&str>,
    body: &Value,
) -> Result<Bytes, Failure> {
    let etag = etag.map(|etag| (header::IF_MATCH, etag));
    let answer = request(address, method, &format!("/switch{path}"), etag, body).await;
    answer.map(|(_, content)| content)
}

/// Sends one request on a new connection. Returns the version (empty if absent) and the content.
async fn request(
    address: &Address,
    method: Method,
    path: &str,
    etag: Option<(HeaderName, &str)>,
    body: &Value,
) -> Result<(String, Bytes), Failure> {
    let Address { authority, token, .. } = address;
    let handshake = http1::handshake(TokioIo::new(connect(address).await?)).await;
    let (mut sender, connection) = handshake.map_err(|error| unreachable(authority, &error))?;
    let connection = Task(tokio::spawn(async move {
        // The request reports the connection's error.
        let _ = connection.await;
    }));
    let mut request = Request::builder().method(method).uri(format!("/api/v1{path}"));
    request = request
        .header(header::HOST, authority)
        .header(header::CONNECTION, "close");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    if let Some((header, etag)) = etag {
        request = request.header(header, format!("\"{etag}\""));
    }
    let content = if body.is_null() {
        Bytes::new()
    } else {
        Bytes::from(body.to_string())
    };
    request = request.header(header::CONTENT_TYPE, "application/json");
    let request = request
        .body(Full::new(content))
        .map_err(|error| unreachable(authority, &error))?;
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| Failure::Unreachable(tls::reason(&error, authority)))?;
    let status = response.status();
    let etag = response
        .headers()
        .get(header::ETAG)
        .and_then(|etag| etag.to_str().ok());
    let etag = etag
        .map(|etag| etag.trim_matches('"').to_owned())
        .unwrap_or_default();
    let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
    let body = body.map_err(|error| unreachable(authority, &error))?.to_bytes();
    drop(connection);
    if status.is_success() {
        return Ok((etag, body));
    }
    let message = serde_json::from_slice::<Value>(&body).ok();
    let message = message.and_then(|value| Some(value.get("error")?.as_str()?.to_owned()));
    let message = message.map(|message| text::bounded(&message, MAX_REASON));
    Err(Failure::Refused(
        status,
        message.unwrap_or_else(|| format!("{authority} answers {status}")),
    ))
}

/// A task that is aborted when its owner is dropped.
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
