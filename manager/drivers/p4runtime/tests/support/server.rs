//! A P4Runtime server after the specification (1.4), for tests: arbitration, checks of every update, and variants that misbehave.
//!
//! It executes the updates of a batch from the last to the first, as the specification allows.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use p4runtime::message::*;
use prost::Message;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::Grpc;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Streaming};
use tonic_prost::ProstCodec;

type Answer<T> = Result<T, tonic::Status>;

/// How the server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// As specified.
    Honest,
    /// It accepts changes and does nothing.
    Idle,
    /// It returns entries with other actions than those that it was given.
    Forger,
    /// It never answers calls.
    Mute,
}

/// A switch.
pub(crate) struct Switch {
    pub(crate) device_id: u64,
    /// Its program.
    pub(crate) program: Option<Vec<u8>>,
    pub(crate) entries: Vec<TableEntry>,
    pub(crate) defaults: BTreeMap<u32, TableAction>,
    pub(crate) sessions: BTreeMap<u32, CloneSessionEntry>,
    pub(crate) groups: BTreeMap<u32, MulticastGroupEntry>,
    /// What its primary client sent by packet-out.
    pub(crate) packets: Vec<Vec<u8>>,
    /// Packets of arrays of counters; without an array, it refuses to read it.
    pub(crate) counters: BTreeMap<u32, Vec<i64>>,
    /// Read requests.
    pub(crate) reads: usize,
    pub(crate) conduct: Conduct,
    /// Calls that it refuses, by the last part of their path, and with what. `Session` is a read of a clone session.
    pub(crate) refusals: BTreeMap<&'static str, tonic::Status>,
    /// How long answers to calls take, by the last part of their path. `Counters` is a read of counters.
    pub(crate) delays: BTreeMap<&'static str, Duration>,
    /// The code and words of a full table.
    pub(crate) full: tonic::Status,
    /// A device without a program answers with an empty configuration, as PI does; else it refuses.
    pub(crate) answers_empty: bool,
    /// The cookie of its program.
    pub(crate) cookie: Option<Cookie>,
    /// How often a program was loaded.
    pub(crate) loads: usize,
    /// Whether it keeps the metadata of entries.
    pub(crate) keeps_metadata: bool,
    /// Numbers without leading zeros, as 1.4 demands; else padded to their width.
    pub(crate) padded: bool,
    /// Updates of each write.
    pub(crate) writes: Vec<usize>,
    clients: Vec<Client>,
    highest: Option<Uint128>,
    next_client: u64,
}

struct Client {
    number: u64,
    election: Option<Uint128>,
    send: mpsc::UnboundedSender<Answer<StreamMessageResponse>>,
}

/// A running server.
#[derive(Clone)]
pub(crate) struct Server {
    switch: Arc<Mutex<Switch>>,
}

impl Server {
    /// Starts a server on a free port of this machine.
    pub(crate) async fn start(info: Option<&P4Info>) -> (Self, SocketAddr) {
        Self::start_with(info, |server| server).await
    }

    /// The same, with settings of the transport.
    pub(crate) async fn start_with(
        info: Option<&P4Info>,
        set: impl FnOnce(tonic::transport::Server) -> tonic::transport::Server,
    ) -> (Self, SocketAddr) {
        let switch = Switch {
            device_id: 1,
            program: info.map(Message::encode_to_vec),
            entries: Vec::new(),
            defaults: BTreeMap::new(),
            sessions: BTreeMap::new(),
            groups: BTreeMap::new(),
            packets: Vec::new(),
            counters: BTreeMap::new(),
            reads: 0,
            conduct: Conduct::Honest,
            refusals: BTreeMap::new(),
            delays: BTreeMap::new(),
            full: tonic::Status::resource_exhausted("table is full"),
            answers_empty: false,
            cookie: None,
            loads: 0,
            keeps_metadata: true,
            padded: false,
            writes: Vec::new(),
            clients: Vec::new(),
            highest: None,
            next_client: 0,
        };
        let server = Self {
            switch: Arc::new(Mutex::new(switch)),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let transport = set(tonic::transport::Server::builder());
        let serving = transport.serve_with_incoming(server.clone(), TcpIncoming::from(listener));
        tokio::spawn(async move { serving.await.unwrap() });
        (server, address)
    }

    /// Its state.
    pub(crate) fn switch(&self) -> MutexGuard<'_, Switch> {
        self.switch.lock().unwrap()
    }
}

impl Switch {
    /// Loses everything, as a restarted device that was started with its program.
    pub(crate) fn restart(&mut self) {
        self.restart_stream();
        self.lose_entries();
        self.highest = None;
    }

    /// Breaks the streams of its clients, and keeps everything else.
    pub(crate) fn restart_stream(&mut self) {
        for client in &self.clients {
            let _ = client.send.send(Err(tonic::Status::unavailable("restart")));
        }
        self.clients.clear();
    }

    /// What the entries say, for comparisons.
    pub(crate) fn entities(&self) -> usize {
        self.entries.len() + self.defaults.len() + self.sessions.len() + self.groups.len()
    }

    fn info(&self) -> Answer<P4Info> {
        let none = || tonic::Status::failed_precondition("no forwarding pipeline config");
        let bytes = self.program.as_ref().ok_or_else(none)?;
        P4Info::decode(bytes.as_slice()).map_err(|error| tonic::Status::internal(error.to_string()))
    }

    fn check_device(&self, device_id: u64) -> Answer<()> {
        if device_id == self.device_id {
            Ok(())
        } else {
            Err(tonic::Status::not_found("no such device"))
        }
    }

    /// A client whose election id is the highest that was ever seen.
    fn primary(&self) -> Option<Uint128> {
        self.clients
            .iter()
            .filter_map(|client| client.election)
            .find(|id| Some(*id) == self.highest)
    }

    fn check_primary(&self, election: Option<Uint128>) -> Answer<()> {
        let is_primary = election.is_some() && election == self.primary();
        if is_primary {
            Ok(())
        } else {
            Err(tonic::Status::permission_denied("not primary"))
        }
    }

    fn arbitrate(&mut self, number: u64, update: MasterArbitrationUpdate) -> Answer<()> {
        self.check_device(update.device_id)?;
        let election = update.election_id;
        let twice = |client: &Client| client.number != number && client.election == election;
        if election.is_some() && self.clients.iter().any(twice) {
            return Err(tonic::Status::invalid_argument("election id is in use"));
        }
        if let Some(client) = self.clients.iter_mut().find(|client| client.number == number) {
            client.election = election;
        }
        self.highest = self.highest.max(election);
        self.announce();
        Ok(())
    }

    /// Tells every client who is primary.
    fn announce(&self) {
        let primary = self.primary();
        for client in &self.clients {
            let code = match primary {
                Some(id) if client.election == Some(id) => Code::Ok,
                Some(_) => Code::AlreadyExists,
                None => Code::NotFound,
            };
            let status = Status {
                code: code.into(),
                ..Status::default()
            };
            let update = MasterArbitrationUpdate {
                device_id: self.device_id,
                role: None,
                election_id: primary.or(self.highest),
                status: Some(status),
            };
            let update = Some(StreamResponse::Arbitration(update));
            let _ = client.send.send(Ok(StreamMessageResponse { update }));
        }
    }

    fn leave(&mut self, number: u64) {
        let before = self.primary();
        self.clients.retain(|client| client.number != number);
        if before != self.primary() {
            self.announce();
        }
    }

    fn write(&mut self, request: WriteRequest) -> Answer<WriteResponse> {
        self.check_device(request.device_id)?;
        self.check_primary(request.election_id)?;
        let info = self.info()?;
        self.writes.push(request.updates.len());
        if self.conduct == Conduct::Idle {
            return Ok(WriteResponse {});
        }
        let before = (
            self.entries.clone(),
            self.defaults.clone(),
            self.sessions.clone(),
            self.groups.clone(),
        );
        let mut results: Vec<Error> = request
            .updates
            .iter()
            .rev()
            .map(|update| result(self.update(&info, update)))
            .collect();
        results.reverse();
        if results.iter().all(|error| error.canonical_code == 0) {
            return Ok(WriteResponse {});
        }
        match request.atomicity() {
            Atomicity::ContinueOnError => {}
            _ => (self.entries, self.defaults, self.sessions, self.groups) = before,
        }
        let any = |error: &Error| Any {
            type_url: "type.googleapis.com/p4.v1.Error".to_owned(),
            value: error.encode_to_vec(),
        };
        let details = results.iter().map(any).collect();
        let status = Status {
            code: Code::Unknown.into(),
            message: "write failed".to_owned(),
            details,
        };
        Err(tonic::Status::with_details(
            Code::Unknown,
            "write failed",
            status.encode_to_vec().into(),
        ))
    }

    fn update(&mut self, info: &P4Info, update: &Update) -> Answer<()> {
        let entity = update.entity.as_ref().and_then(|entity| entity.entity.as_ref());
        match entity {
            Some(EntityKind::TableEntry(entry)) => self.update_table(info, update.r#type(), entry),
            Some(EntityKind::PacketReplication(entry)) => match &entry.r#type {
                Some(ReplicationKind::CloneSession(session)) => self.update_session(update.r#type(), session),
                Some(ReplicationKind::MulticastGroup(group)) => self.update_group(update.r#type(), group),
                None => Err(invalid("no replication entry")),
            },
            Some(EntityKind::Counter(_)) => Err(invalid("counters are not written here")),
            None => Err(invalid("no entity")),
        }
    }

    fn update_session(&mut self, kind: UpdateType, session: &CloneSessionEntry) -> Answer<()> {
        let id = session.session_id;
        if id == 0 || (kind != UpdateType::Delete && session.replicas.is_empty()) {
            return Err(invalid("a clone session has a number and replicas"));
        }
        match (kind, self.sessions.contains_key(&id)) {
            (UpdateType::Insert, true) => Err(tonic::Status::already_exists("clone session")),
            (UpdateType::Modify | UpdateType::Delete, false) => {
                Err(tonic::Status::not_found("clone session"))
            }
            (UpdateType::Delete, true) => {
                self.sessions.remove(&id);
                Ok(())
            }
            (UpdateType::Unspecified, _) => Err(invalid("no type")),
            _ => {
                self.sessions.insert(id, session.clone());
                Ok(())
            }
        }
    }

    /// Replicas are kept in another order than they were given in.
    fn update_group(&mut self, kind: UpdateType, group: &MulticastGroupEntry) -> Answer<()> {
        let id = group.multicast_group_id;
        let copies = group.replicas.iter().map(|one| format!("{one:?}"));
        if id == 0 || copies.collect::<std::collections::BTreeSet<_>>().len() != group.replicas.len() {
            return Err(invalid("a multicast group has a number, and each replica once"));
        }
        match (kind, self.groups.contains_key(&id)) {
            (UpdateType::Insert, true) => Err(tonic::Status::already_exists("multicast group")),
            (UpdateType::Modify | UpdateType::Delete, false) => {
                Err(tonic::Status::not_found("multicast group"))
            }
            (UpdateType::Unspecified, _) => Err(invalid("no type")),
            (UpdateType::Delete, true) => {
                self.groups.remove(&id);
                Ok(())
            }
            _ => {
                let mut group = group.clone();
                group.replicas.reverse();
                self.groups.insert(id, group);
                Ok(())
            }
        }
    }

    fn update_table(&mut self, info: &P4Info, kind: UpdateType, entry: &TableEntry) -> Answer<()> {
        let id = |preamble: &Option<Preamble>| preamble.as_ref().map(|preamble| preamble.id);
        let table = info
            .tables
            .iter()
            .find(|table| id(&table.preamble) == Some(entry.table_id));
        let table = table.ok_or_else(|| tonic::Status::not_found("no such table"))?;
        if entry.is_default_action {
            if kind != UpdateType::Modify || !entry.r#match.is_empty() || entry.priority != 0 {
                return Err(invalid("a default entry is modified, and has no key"));
            }
            match &entry.action {
                None => drop(self.defaults.remove(&entry.table_id)),
                Some(action) => {
                    check_action(info, table, action, Scope::TableOnly)?;
                    self.defaults.insert(entry.table_id, action.clone());
                }
            }
            return Ok(());
        }
        check_key(table, entry)?;
        let same = |other: &TableEntry| {
            let sorted = |fields: &[FieldMatch]| {
                let mut fields = fields.to_vec();
                fields.sort_by_key(|field| field.field_id);
                fields
            };
            other.table_id == entry.table_id
                && other.priority == entry.priority
                && sorted(&other.r#match) == sorted(&entry.r#match)
        };
        let found = self.entries.iter().position(same);
        if kind != UpdateType::Delete {
            let action = entry.action.as_ref().ok_or_else(|| invalid("no action"))?;
            check_action(info, table, action, Scope::DefaultOnly)?;
        }
        let mut kept = entry.clone();
        if !self.keeps_metadata {
            kept.metadata.clear();
        }
        match (kind, found) {
            (UpdateType::Insert, Some(_)) => Err(tonic::Status::already_exists("entry")),
            (UpdateType::Insert, None) => {
                let used = self
                    .entries
                    .iter()
                    .filter(|other| other.table_id == entry.table_id)
                    .count();
                if used as i64 >= table.size {
                    return Err(self.full.clone());
                }
                self.entries.push(kept);
                Ok(())
            }
            (UpdateType::Modify, Some(index)) => {
                self.entries[index] = kept;
                Ok(())
            }
            (UpdateType::Delete, Some(index)) => {
                self.entries.remove(index);
                Ok(())
            }
            (UpdateType::Modify | UpdateType::Delete, None) => Err(tonic::Status::not_found("entry")),
            (UpdateType::Unspecified, _) => Err(invalid("no type")),
        }
    }

    fn read(&mut self, request: &ReadRequest) -> Answer<ReadResponse> {
        self.check_device(request.device_id)?;
        self.info()?;
        self.reads += 1;
        let mut entities = Vec::new();
        for entity in &request.entities {
            match entity.entity.as_ref() {
                Some(EntityKind::TableEntry(wanted)) => entities.extend(self.read_table(wanted)),
                Some(EntityKind::Counter(CounterEntry {
                    counter_id,
                    index: None,
                    ..
                })) => {
                    let counters = self.counters.get(counter_id);
                    let counters = counters.ok_or_else(|| tonic::Status::unimplemented("counters"))?;
                    entities.extend(counters.iter().enumerate().map(|(place, packets)| {
                        let data = CounterData {
                            byte_count: 0,
                            packet_count: *packets,
                        };
                        let index = Some(Index { index: place as i64 });
                        EntityKind::Counter(CounterEntry {
                            counter_id: *counter_id,
                            index,
                            data: Some(data),
                        })
                    }));
                }
                Some(EntityKind::PacketReplication(PacketReplicationEngineEntry {
                    r#type: Some(ReplicationKind::CloneSession(wanted)),
                })) => {
                    self.refusals
                        .get("Session")
                        .map_or(Ok(()), |status| Err(status.clone()))?;
                    let session = self.sessions.get(&wanted.session_id);
                    let session = session.ok_or_else(|| tonic::Status::not_found("clone session"))?;
                    let kind = Some(ReplicationKind::CloneSession(session.clone()));
                    entities.push(EntityKind::PacketReplication(PacketReplicationEngineEntry {
                        r#type: kind,
                    }));
                }
                Some(EntityKind::PacketReplication(PacketReplicationEngineEntry {
                    r#type:
                        Some(ReplicationKind::MulticastGroup(MulticastGroupEntry {
                            multicast_group_id: 0,
                            ..
                        })),
                })) => entities.extend(self.groups.values().map(|group| {
                    let kind = Some(ReplicationKind::MulticastGroup(group.clone()));
                    EntityKind::PacketReplication(PacketReplicationEngineEntry { r#type: kind })
                })),
                _ => return Err(invalid("no entity")),
            }
        }
        let entities = entities
            .into_iter()
            .map(|entity| Entity { entity: Some(entity) })
            .collect();
        Ok(ReadResponse { entities })
    }

    fn read_table(&self, wanted: &TableEntry) -> Vec<EntityKind> {
        if wanted.is_default_action {
            let default = TableEntry {
                table_id: wanted.table_id,
                action: self.defaults.get(&wanted.table_id).cloned(),
                is_default_action: true,
                ..TableEntry::default()
            };
            return vec![EntityKind::TableEntry(default)];
        }
        let of_table = self
            .entries
            .iter()
            .filter(|entry| entry.table_id == wanted.table_id);
        let shown = of_table.map(|entry| {
            let mut entry = entry.clone();
            entry.counter_data = wanted
                .counter_data
                .map(|_| entry.counter_data.unwrap_or_default());
            let action = entry.action.as_mut().and_then(|action| action.r#type.as_mut());
            if let Some(TableActionType::Action(action)) = action {
                if self.conduct == Conduct::Forger {
                    action.action_id ^= 0x40;
                }
                if self.padded {
                    action
                        .params
                        .iter_mut()
                        .for_each(|param| param.value.insert(0, 0));
                }
            }
            EntityKind::TableEntry(entry)
        });
        shown.collect()
    }

    fn load(&mut self, request: SetForwardingPipelineConfigRequest) -> Answer<()> {
        self.check_device(request.device_id)?;
        self.check_primary(request.election_id)?;
        if request.action() != ConfigAction::VerifyAndCommit {
            return Err(tonic::Status::unimplemented("action"));
        }
        let config = request.config.ok_or_else(|| invalid("no config"))?;
        self.loads += 1;
        self.lose_entries();
        (self.program, self.cookie) = (config.p4info, config.cookie);
        self.info().map(|_| ())
    }

    /// Loses program and entries, and keeps its connections.
    pub(crate) fn lose_program(&mut self) {
        self.lose_entries();
        (self.program, self.cookie) = (None, None);
    }

    fn get(
        &self,
        request: &GetForwardingPipelineConfigRequest,
    ) -> Answer<GetForwardingPipelineConfigResponse> {
        self.check_device(request.device_id)?;
        if self.program.is_none() && self.answers_empty {
            let config = Some(ForwardingPipelineConfig::default());
            return Ok(GetForwardingPipelineConfigResponse { config });
        }
        self.info()?;
        let (p4info, cookie) = (self.program.clone(), self.cookie);
        let config = Some(ForwardingPipelineConfig {
            p4info,
            cookie,
            ..Default::default()
        });
        Ok(GetForwardingPipelineConfigResponse { config })
    }

    fn lose_entries(&mut self) {
        self.entries.clear();
        self.defaults.clear();
        self.sessions.clear();
        self.groups.clear();
    }
}

fn invalid(text: &str) -> tonic::Status {
    tonic::Status::invalid_argument(text)
}

fn result(done: Answer<()>) -> Error {
    match done {
        Ok(()) => Error::default(),
        Err(status) => Error {
            canonical_code: status.code().into(),
            message: status.message().to_owned(),
        },
    }
}

/// Checks that bytes are canonical and fit into the width.
fn check_bytes(bytes: &[u8], width: i32) -> Answer<()> {
    let is_canonical = !bytes.is_empty() && (bytes.len() == 1 || bytes[0] != 0);
    let bits = bytes.len() * 8 - bytes.first().map_or(0, |byte| byte.leading_zeros() as usize);
    if !is_canonical {
        return Err(invalid("not a canonical byte string"));
    }
    if bits > width as usize {
        Err(tonic::Status::out_of_range("too many bits"))
    } else {
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn check_key(table: &P4Table, entry: &TableEntry) -> Answer<()> {
    let mut seen = std::collections::BTreeSet::new();
    for field in &entry.r#match {
        let known = table.match_fields.iter().find(|one| one.id == field.field_id);
        let known = known.ok_or_else(|| invalid("no such field"))?;
        if !seen.insert(field.field_id) {
            return Err(invalid("a field occurs twice"));
        }
        check_field(known, field)?;
    }
    let is_exact = |field: &&P4MatchField| field.match_type() == MatchType::Exact;
    if table
        .match_fields
        .iter()
        .filter(is_exact)
        .any(|field| !seen.contains(&field.id))
    {
        return Err(invalid("an exact field is missing"));
    }
    let kinds = [MatchType::Ternary, MatchType::Range, MatchType::Optional];
    let has_priority = table
        .match_fields
        .iter()
        .any(|field| kinds.contains(&field.match_type()));
    if has_priority == (entry.priority > 0) && entry.priority >= 0 {
        Ok(())
    } else {
        Err(invalid("a priority is positive where the key has one, else 0"))
    }
}

fn check_field(known: &P4MatchField, field: &FieldMatch) -> Answer<()> {
    let width = known.bitwidth;
    let all = if width >= 128 { u128::MAX } else { (1 << width) - 1 };
    match (known.match_type(), field.field_match_type.as_ref()) {
        (MatchType::Exact, Some(FieldMatchType::Exact(one)))
        | (MatchType::Optional, Some(FieldMatchType::Optional(one))) => check_bytes(&one.value, width),
        (MatchType::Ternary, Some(FieldMatchType::Ternary(one))) => {
            check_bytes(&one.value, width)?;
            check_bytes(&one.mask, width)?;
            let (value, mask) = (number(&one.value), number(&one.mask));
            let fits = mask != 0 && value & !mask == 0;
            if fits {
                Ok(())
            } else {
                Err(invalid("bits outside of the mask, or a mask of 0"))
            }
        }
        (MatchType::Lpm, Some(FieldMatchType::Lpm(one))) => {
            check_bytes(&one.value, width)?;
            let open = all >> one.prefix_len.max(0) as u32;
            let fits = (1..=width).contains(&one.prefix_len) && number(&one.value) & open == 0;
            if fits {
                Ok(())
            } else {
                Err(invalid("bits outside of the prefix, or a prefix of 0"))
            }
        }
        (MatchType::Range, Some(FieldMatchType::Range(one))) => {
            check_bytes(&one.low, width)?;
            check_bytes(&one.high, width)?;
            let (low, high) = (number(&one.low), number(&one.high));
            let fits = low <= high && (low, high) != (0, all);
            if fits {
                Ok(())
            } else {
                Err(invalid("an empty or full range"))
            }
        }
        _ => Err(invalid("another kind of match")),
    }
}

fn check_action(info: &P4Info, table: &P4Table, action: &TableAction, unusable: Scope) -> Answer<()> {
    let Some(TableActionType::Action(action)) = &action.r#type else {
        return Err(invalid("no action"));
    };
    let may = table
        .action_refs
        .iter()
        .any(|one| one.id == action.action_id && one.scope() != unusable);
    if !may {
        return Err(invalid("the table does not have the action"));
    }
    let known = info
        .actions
        .iter()
        .find(|one| one.preamble.as_ref().is_some_and(|p| p.id == action.action_id));
    let known = known.ok_or_else(|| tonic::Status::not_found("no such action"))?;
    if action.params.len() != known.params.len() {
        return Err(invalid("another number of parameters"));
    }
    for param in &action.params {
        let of = known.params.iter().find(|one| one.id == param.param_id);
        check_bytes(
            &param.value,
            of.ok_or_else(|| invalid("no such parameter"))?.bitwidth,
        )?;
    }
    Ok(())
}

/// A queue as a stream.
struct Queue<T>(mpsc::UnboundedReceiver<Answer<T>>, Option<Leave>);

impl<T> Stream for Queue<T> {
    type Item = Answer<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

/// Ends the membership of a client with its stream.
struct Leave(Arc<Mutex<Switch>>, u64);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.lock().unwrap().leave(self.1);
    }
}

/// A handler of a call.
struct Call<F>(F);

impl<F, Q, A> Service<Request<Q>> for Call<F>
where
    F: FnMut(Request<Q>) -> BoxFuture<Response<A>, tonic::Status>,
{
    type Response = Response<A>;
    type Error = tonic::Status;
    type Future = BoxFuture<Response<A>, tonic::Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Answer<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        (self.0)(request)
    }
}

impl Server {
    /// A handler of a call with one answer.
    fn unary<Q: 'static, A: Send + 'static>(
        &self,
        name: &'static str,
        work: fn(&mut Switch, Q) -> Answer<A>,
    ) -> impl FnMut(Request<Q>) -> BoxFuture<Response<A>, tonic::Status> + use<Q, A> {
        let switch = Arc::clone(&self.switch);
        move |request| {
            let (done, delay) = {
                let mut switch = switch.lock().unwrap();
                let done = match (switch.conduct, switch.refusals.get(name)) {
                    (Conduct::Mute, _) => None,
                    (_, Some(status)) => Some(Err(status.clone())),
                    _ => Some(work(&mut switch, request.into_inner()).map(Response::new)),
                };
                (done, switch.delays.get(name).copied())
            };
            match (done, delay) {
                (Some(done), None) => boxed(ready(done)),
                (Some(done), Some(delay)) => Box::pin(async move {
                    tokio::time::sleep(delay).await;
                    done
                }),
                (None, _) => Box::pin(std::future::pending()),
            }
        }
    }

    fn stream(&self, request: Request<Streaming<StreamMessageRequest>>) -> Queue<StreamMessageResponse> {
        let (send, queue) = mpsc::unbounded_channel();
        let mut switch = self.switch();
        switch.next_client += 1;
        let number = switch.next_client;
        switch.clients.push(Client {
            number,
            election: None,
            send: send.clone(),
        });
        drop(switch);
        let server = self.clone();
        let mut messages = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(message)) = messages.message().await {
                let update = match message.update {
                    Some(StreamRequest::Arbitration(update)) => update,
                    Some(StreamRequest::Packet(packet)) => {
                        server.switch().packets.push(packet.payload);
                        continue;
                    }
                    _ => continue,
                };
                let done = server.switch().arbitrate(number, update);
                if let Err(status) = done {
                    let _ = send.send(Err(status));
                    break;
                }
            }
            server.switch().leave(number);
        });
        Queue(queue, Some(Leave(Arc::clone(&self.switch), number)))
    }
}

/// The handler of `Read`: one part.
struct Read<F>(F, Server);

impl<F> Service<Request<ReadRequest>> for Read<F>
where
    F: FnMut(Request<ReadRequest>) -> BoxFuture<Response<ReadResponse>, tonic::Status>,
{
    type Response = Response<Queue<ReadResponse>>;
    type Error = tonic::Status;
    type Future = BoxFuture<Self::Response, tonic::Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Answer<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReadRequest>) -> Self::Future {
        let counts = |entity: &Entity| matches!(&entity.entity, Some(EntityKind::TableEntry(entry)) if entry.counter_data.is_some());
        let is_counters = request.get_ref().entities.iter().any(counts);
        let delay = self
            .1
            .switch()
            .delays
            .get("Counters")
            .copied()
            .filter(|_| is_counters);
        let done = (self.0)(request);
        Box::pin(async move {
            tokio::time::sleep(delay.unwrap_or_default()).await;
            let (send, queue) = mpsc::unbounded_channel();
            // The queue is read after this.
            let _ = send.send(done.await.map(Response::into_inner));
            Ok(Response::new(Queue(queue, None)))
        })
    }
}

/// The handler of `StreamChannel`.
struct Channel(Server);

impl Service<Request<Streaming<StreamMessageRequest>>> for Channel {
    type Response = Response<Queue<StreamMessageResponse>>;
    type Error = tonic::Status;
    type Future = BoxFuture<Self::Response, tonic::Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Answer<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Streaming<StreamMessageRequest>>) -> Self::Future {
        boxed(ready(Ok(Response::new(self.0.stream(request)))))
    }
}

fn boxed<T: Send + 'static>(done: Ready<Answer<T>>) -> BoxFuture<T, tonic::Status> {
    Box::pin(done)
}

impl Service<http::Request<Body>> for Server {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let response = match path.strip_prefix("/p4.v1.P4Runtime/").unwrap_or_default() {
                "Write" => {
                    let call = Call(server.unary("Write", Switch::write));
                    Grpc::new(ProstCodec::default()).unary(call, request).await
                }
                "Read" => {
                    let read = server.unary("Read", |switch, request: ReadRequest| switch.read(&request));
                    Grpc::new(ProstCodec::default())
                        .server_streaming(Read(read, server), request)
                        .await
                }
                "GetForwardingPipelineConfig" => {
                    let get = |switch: &mut Switch, request| switch.get(&request);
                    let call = Call(server.unary("GetForwardingPipelineConfig", get));
                    Grpc::new(ProstCodec::default()).unary(call, request).await
                }
                "SetForwardingPipelineConfig" => {
                    let set = |switch: &mut Switch, request| {
                        switch
                            .load(request)
                            .map(|()| SetForwardingPipelineConfigResponse {})
                    };
                    let call = Call(server.unary("SetForwardingPipelineConfig", set));
                    Grpc::new(ProstCodec::default()).unary(call, request).await
                }
                "StreamChannel" => {
                    Grpc::new(ProstCodec::default())
                        .streaming(Channel(server), request)
                        .await
                }
                _ => tonic::Status::unimplemented("no such call").into_http(),
            };
            Ok(response)
        })
    }
}
