//! A gNMI server after the specification (0.10), for tests: lists of entries, transactions, master arbitration, subscriptions, and
//! variants that misbehave.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future, Ready, pending, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use futures_core::Stream;
use gnmi::message::*;
use gnmi::path;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::Grpc;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

type Answer<T> = Result<tonic::Response<T>, Status>;

/// How the server behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// As specified.
    #[default]
    Honest,
    /// It ignores master arbitration.
    Lax,
    /// It accepts changes and does nothing.
    Idle,
    /// It never answers a request to read.
    Mute,
    /// It refuses changes.
    Full,
    /// It does not stream.
    Dumb,
}

/// A device.
#[derive(Default)]
pub(crate) struct Device {
    /// Entries of lists: the path of the list, the key, the leaves.
    pub(crate) entries: BTreeMap<(String, String), Json>,
    /// What is at other paths.
    pub(crate) state: BTreeMap<String, Json>,
    pub(crate) conduct: Conduct,
    /// Names and passwords of calls.
    pub(crate) users: Vec<String>,
    highest: Uint128,
    streams: Vec<mpsc::UnboundedSender<Result<SubscribeResponse, Status>>>,
}

/// A running server.
#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<Device>>);

impl Server {
    /// Starts a server on a free port of this machine.
    pub(crate) async fn start() -> (Self, SocketAddr) {
        Self::start_with(|server| server).await
    }

    /// The same with a changed transport.
    pub(crate) async fn start_with(
        change: impl FnOnce(tonic::transport::Server) -> tonic::transport::Server,
    ) -> (Self, SocketAddr) {
        let server = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let serving = change(tonic::transport::Server::builder())
            .serve_with_incoming(server.clone(), TcpIncoming::from(listener));
        tokio::spawn(serving);
        (server, address)
    }

    /// Its state.
    pub(crate) fn device(&self) -> MutexGuard<'_, Device> {
        self.0.lock().expect("no test panicked before")
    }

    fn get(&self, request: &GetRequest) -> Answer<GetResponse> {
        let device = self.device();
        let mut update = Vec::new();
        for path in &request.path {
            let text = path::text(path);
            let own = device.entries.iter().filter(|((list, _), _)| *list == text);
            let list: Vec<&Json> = own.map(|(_, entry)| entry).collect();
            let json = match device.state.get(&text) {
                Some(json) => json.clone(),
                None if list.is_empty() => return Err(Status::not_found(text)),
                None => json!(list),
            };
            let value = Value::JsonIetfVal(json.to_string().into_bytes());
            update.push(Update {
                path: Some(path.clone()),
                val: Some(TypedValue { value: Some(value) }),
            });
        }
        let notification = vec![Notification {
            update,
            ..Notification::default()
        }];
        Ok(tonic::Response::new(GetResponse { notification }))
    }

    fn set(&self, request: &SetRequest) -> Answer<SetResponse> {
        let mut device = self.device();
        let election = request
            .extension
            .iter()
            .find_map(|one| one.master_arbitration?.election_id);
        if let Some(election) = election.filter(|_| device.conduct != Conduct::Lax) {
            if election < device.highest {
                return Err(Status::permission_denied("a higher election id is known"));
            }
            device.highest = election;
        }
        let is_change = !request.delete.is_empty() || !request.replace.is_empty();
        match device.conduct {
            Conduct::Full if is_change => return Err(Status::resource_exhausted("the table is full")),
            Conduct::Idle => return Ok(tonic::Response::new(SetResponse::default())),
            _ => {}
        }
        for path in &request.delete {
            device.entries.remove(&place(path));
        }
        for update in &request.replace {
            let Some(Value::JsonIetfVal(bytes)) = update.val.as_ref().and_then(|val| val.value.as_ref())
            else {
                return Err(Status::invalid_argument("JSON_IETF is wanted"));
            };
            let json =
                serde_json::from_slice(bytes).map_err(|error| Status::invalid_argument(error.to_string()))?;
            let path = update
                .path
                .as_ref()
                .ok_or_else(|| Status::invalid_argument("no path"))?;
            device.entries.insert(place(path), json);
        }
        device.notify();
        Ok(tonic::Response::new(SetResponse::default()))
    }

    fn subscribe(&self) -> Answer<Queue> {
        let mut device = self.device();
        if device.conduct == Conduct::Dumb {
            return Err(Status::unimplemented("no subscriptions"));
        }
        let (send, receive) = mpsc::unbounded_channel();
        let _ = send.send(Ok(SubscribeResponse {
            response: Some(Response::SyncResponse(true)),
        }));
        device.streams.push(send);
        Ok(tonic::Response::new(Queue(receive)))
    }
}

impl Device {
    /// Tells all subscribers that something changed.
    pub(crate) fn notify(&mut self) {
        let response = SubscribeResponse {
            response: Some(Response::Update(Notification::default())),
        };
        self.streams
            .retain(|stream| stream.send(Ok(response.clone())).is_ok());
    }
}

/// The list and the key of the path of an entry.
fn place(path: &Path) -> (String, String) {
    let mut list = path.clone();
    let key = list
        .elem
        .last_mut()
        .map(|last| std::mem::take(&mut last.key))
        .unwrap_or_default();
    (path::text(&list), key.into_values().collect::<Vec<_>>().join(","))
}

/// The responses of a subscription.
pub(crate) struct Queue(mpsc::UnboundedReceiver<Result<SubscribeResponse, Status>>);

impl Stream for Queue {
    type Item = Result<SubscribeResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

/// A function as a service.
struct Call<F>(F);

impl<M, R, F: FnMut(Request<M>) -> Answer<R>> Service<Request<M>> for Call<F> {
    type Response = tonic::Response<R>;
    type Error = Status;
    type Future = Ready<Answer<R>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<M>) -> Self::Future {
        ready((self.0)(request))
    }
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
        Box::pin(async move { Ok(server.respond(request).await) })
    }
}

impl Server {
    fn respond(
        self,
        request: http::Request<Body>,
    ) -> Pin<Box<dyn Future<Output = http::Response<Body>> + Send>> {
        let name = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let user = format!(
            "{} {}",
            name("username").unwrap_or("-"),
            name("password").unwrap_or("-")
        );
        let conduct = {
            let mut device = self.device();
            device.users.push(user);
            device.conduct
        };
        match request.uri().path() {
            "/gnmi.gNMI/Get" if conduct == Conduct::Mute => Box::pin(pending()),
            "/gnmi.gNMI/Get" => Box::pin(async move {
                let call = Call(move |request: Request<GetRequest>| self.get(request.get_ref()));
                Grpc::new(ProstCodec::<GetResponse, GetRequest>::default())
                    .unary(call, request)
                    .await
            }),
            "/gnmi.gNMI/Set" => Box::pin(async move {
                let call = Call(move |request: Request<SetRequest>| self.set(request.get_ref()));
                Grpc::new(ProstCodec::<SetResponse, SetRequest>::default())
                    .unary(call, request)
                    .await
            }),
            "/gnmi.gNMI/Subscribe" => Box::pin(async move {
                let call = Call(move |_: Request<Streaming<SubscribeRequest>>| self.subscribe());
                Grpc::new(ProstCodec::<SubscribeResponse, SubscribeRequest>::default())
                    .streaming(call, request)
                    .await
            }),
            _ => Box::pin(async move {
                let call = Call(|_: Request<CapabilityRequest>| {
                    Ok(tonic::Response::new(CapabilityResponse::default()))
                });
                Grpc::new(ProstCodec::<CapabilityResponse, CapabilityRequest>::default())
                    .unary(call, request)
                    .await
            }),
        }
    }
}
