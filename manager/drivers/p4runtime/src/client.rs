//! A P4Runtime client (gRPC) connected to one device: the arbitration stream, and calls for programs and entries.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tonic::client::Grpc;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Streaming};
use tonic_prost::ProstCodec;

use crate::message::{
    ConfigAction, Cookie, Entity, Error, ForwardingPipelineConfig, GetForwardingPipelineConfigRequest,
    GetForwardingPipelineConfigResponse, MasterArbitrationUpdate, P4Info, ReadRequest, ReadResponse,
    ResponseType, Role, SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse, Status,
    StreamMessageRequest, StreamMessageResponse, StreamRequest, Uint128, Update, WriteRequest, WriteResponse,
};

/// Maximum number of entities in one answer.
pub const MAX_ENTITIES: usize = 1 << 16;
/// Maximum length of a device's message, bytes: a P4Info, or a part of its entries.
const MAX_MESSAGE: usize = 64 << 20;
/// Maximum number of queued messages to the device, enough for the timer frames of 0.2 s.
const MAX_QUEUE: usize = 1024;
const CONNECT: Duration = Duration::from_secs(1);
/// Interval of TCP keepalive probes; the kernel detects a dead peer after a few of them.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// A device's address, with its P4Runtime device id and certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the device as `host:port`.
    pub address: String,
    /// Id of the device in P4Runtime.
    pub device_id: u64,
    /// Role of the client in P4Runtime's arbitration; empty for the default role.
    pub role: String,
    /// TLS settings; `None` connects without TLS.
    pub tls: Option<Tls>,
}

/// The future of a connection attempt.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Connects to devices that this process's own network cannot reach, for example in another network namespace.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(String) -> Connecting + Send + Sync>);

impl Connector {
    /// Creates a connector from a function that connects to a `host:port`.
    pub fn new(connect: impl Fn(String) -> Connecting + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let address = uri.authority().map(ToString::to_string).unwrap_or_default();
        let connecting = (self.0)(address);
        Box::pin(async { connecting.await.map(TokioIo::new) })
    }
}

/// TLS settings of a connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// CA certificates that may sign the device's certificate, PEM.
    pub ca: Vec<u8>,
    /// Client certificate and key for mutual TLS, PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Expected name in the device's certificate; `None` for the host in the address.
    pub name: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Omits the key.
        f.debug_struct("Tls")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The reason why a call failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// There was no response, or authentication failed.
    Unreachable(String),
    /// The device has no program, so it cannot return the program or entries. With its message.
    NoProgram(String),
    /// Another client is the primary one.
    NotPrimary,
    /// The device refused the request: status code, message, and the result of each update if it reported them.
    Refused(Code, String, Vec<Error>),
}

impl Failure {
    fn new(status: &tonic::Status) -> Self {
        let text = match status.message() {
            "" => format!("{:?}", status.code()),
            message => message.chars().take(300).collect(),
        };
        // An error with a source is a failed connection, not an answer of the device.
        if std::error::Error::source(status).is_some() {
            return Self::Unreachable(causes(status));
        }
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unauthenticated => {
                Self::Unreachable(text)
            }
            Code::PermissionDenied => Self::NotPrimary,
            code => Self::Refused(code, text, errors(status.details())),
        }
    }

    /// Converts this failure of a query for the program or entries. For queries, FAILED_PRECONDITION means that the device has
    /// no program; for other requests it can have other reasons.
    fn into_query_failure(self) -> Self {
        match self {
            Self::Refused(Code::FailedPrecondition, words, _) => Self::NoProgram(words),
            failure => failure,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(reason) | Self::NoProgram(reason) => f.write_str(reason),
            Self::NotPrimary => f.write_str("another client is primary; stop it, or set `role`"),
            Self::Refused(code, reason, _) if reason == &format!("{code:?}") => f.write_str(reason),
            Self::Refused(code, reason, _) => write!(f, "{reason} ({code:?})"),
        }
    }
}

/// Decodes the results of the updates from the details of a gRPC status.
fn errors(details: &[u8]) -> Vec<Error> {
    let status = Status::decode(details).unwrap_or_default();
    status
        .details
        .iter()
        .filter(|any| any.type_url.ends_with("/p4.v1.Error"))
        .map(|any| Error::decode(any.value.as_slice()).unwrap_or_default())
        .collect()
}

/// A connection with the open arbitration stream.
#[derive(Debug)]
pub struct Client {
    calls: Calls,
    queue: mpsc::Sender<StreamMessageRequest>,
    /// Messages of the device on this stream.
    receive: Streaming<StreamMessageResponse>,
}

/// The unary calls of a connection, which work independently of the stream.
#[derive(Clone, Debug)]
pub struct Calls {
    grpc: Grpc<Channel>,
    device_id: u64,
    role: String,
}

/// The receiving end of a stream's queue.
struct Queue(mpsc::Receiver<StreamMessageRequest>);

impl Stream for Queue {
    type Item = StreamMessageRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

impl Client {
    /// Connects, through `via` if given, and opens the stream. The arbitration request is queued before, because some devices
    /// answer nothing until they receive it.
    ///
    /// # Errors
    /// [`Failure`] with a sentence that says why the device is unreachable.
    pub async fn connect(peer: &Peer, via: Option<&Connector>, election: Uint128) -> Result<Self, Failure> {
        let channel = channel(peer, via).await.map_err(Failure::Unreachable)?;
        let grpc = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE);
        let mut calls = Calls {
            grpc,
            device_id: peer.device_id,
            role: peer.role.clone(),
        };
        let (send, queue) = mpsc::channel(MAX_QUEUE);
        // The queue is empty, so it has room.
        let _ = send.try_send(calls.arbitration(election));
        calls.ready().await?;
        let path = PathAndQuery::from_static("/p4.v1.P4Runtime/StreamChannel");
        let opened = calls
            .grpc
            .streaming(Request::new(Queue(queue)), path, ProstCodec::default())
            .await;
        let receive = opened.map_err(|status| Failure::new(&status))?.into_inner();
        Ok(Self {
            calls,
            queue: send,
            receive,
        })
    }

    /// Requests to become the primary client with another election id.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] if the stream has ended.
    pub fn claim(&self, election: Uint128) -> Result<(), Failure> {
        self.send(self.calls.arbitration(election))
    }

    /// Sends a message on the stream.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] if the stream has ended, or its queue is full because the device accepts no messages.
    pub fn send(&self, message: StreamMessageRequest) -> Result<(), Failure> {
        self.queue
            .try_send(message)
            .map_err(|_| Failure::Unreachable("the stream has ended".to_owned()))
    }

    /// Waits for the next message on the stream. Cancel-safe: the future may be dropped while it waits.
    ///
    /// # Errors
    /// [`Failure`] if the stream has ended.
    pub async fn next(&mut self) -> Result<StreamMessageResponse, Failure> {
        match self.receive.message().await {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(Failure::Unreachable("it closed the stream".to_owned())),
            Err(status) => Err(Failure::new(&status)),
        }
    }

    /// Returns a handle for unary calls on this connection.
    pub fn calls(&self) -> Calls {
        self.calls.clone()
    }
}

async fn channel(peer: &Peer, via: Option<&Connector>) -> Result<Channel, String> {
    let scheme = if peer.tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{}", peer.address))
        .map_err(|error| format!("invalid address {}: {error}", peer.address))?;
    // No HTTP/2 pings: gRPC's C++ servers close connections of clients that ping more often than every 5 minutes.
    let mut endpoint = endpoint
        .connect_timeout(CONNECT)
        .tcp_keepalive(Some(KEEPALIVE))
        .tcp_nodelay(true);
    if let Some(tls) = &peer.tls {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
        if let Some((certificate, key)) = &tls.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &tls.name {
            config = config.domain_name(name);
        }
        endpoint = endpoint
            .tls_config(config)
            .map_err(|error| format!("its certificates: {}", causes(&error)))?;
    }
    let connected = match via {
        Some(via) => endpoint.connect_with_connector(via.clone()).await,
        None => endpoint.connect().await,
    };
    connected.map_err(|error| format!("{}: {}", peer.address, causes(&error)))
}

/// Renders the innermost cause of an error, which is the most specific.
fn causes(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

impl Calls {
    fn arbitration(&self, election: Uint128) -> StreamMessageRequest {
        let role = (!self.role.is_empty()).then(|| Role {
            name: self.role.clone(),
        });
        let arbitration = MasterArbitrationUpdate {
            device_id: self.device_id,
            role,
            election_id: Some(election),
            status: None,
        };
        StreamMessageRequest {
            update: Some(StreamRequest::Arbitration(arbitration)),
        }
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        self.grpc
            .ready()
            .await
            .map_err(|error| Failure::Unreachable(causes(&error)))
    }

    async fn call<Q, A>(&mut self, path: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.ready().await?;
        let path = PathAndQuery::from_static(path);
        let response = self
            .grpc
            .unary(Request::new(request), path, ProstCodec::default())
            .await;
        response
            .map(tonic::Response::into_inner)
            .map_err(|status| Failure::new(&status))
    }

    /// Queries the device's program, and the cookie of the client that loaded it.
    ///
    /// # Errors
    /// [`Failure::NoProgram`] if the device has none; other failures if it refuses.
    pub async fn program(&mut self) -> Result<(P4Info, Option<Cookie>), Failure> {
        let request = GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: ResponseType::P4infoAndCookie.into(),
        };
        let path = "/p4.v1.P4Runtime/GetForwardingPipelineConfig";
        let response: GetForwardingPipelineConfigResponse = self
            .call(path, request)
            .await
            .map_err(Failure::into_query_failure)?;
        let config = response.config.unwrap_or_default();
        // PI, and therefore BMv2, returns an empty configuration instead of an error.
        if config == ForwardingPipelineConfig::default() {
            return Err(Failure::NoProgram("it has no program".to_owned()));
        }
        let bytes = config
            .p4info
            .filter(|bytes| !bytes.is_empty())
            .ok_or_else(|| unreadable("it does not give the P4Info of its program".to_owned()))?;
        let info = P4Info::decode(bytes.as_slice())
            .map_err(|error| unreadable(format!("its P4Info cannot be read: {error}")))?;
        Ok((info, config.cookie))
    }

    /// Checks with a small request whether the device answers.
    ///
    /// # Errors
    /// [`Failure`] if it does not answer or has no program. A refusal is an answer.
    pub async fn alive(&mut self) -> Result<(), Failure> {
        let request = GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: ResponseType::CookieOnly.into(),
        };
        let path = "/p4.v1.P4Runtime/GetForwardingPipelineConfig";
        let response: Result<GetForwardingPipelineConfigResponse, _> = self.call(path, request).await;
        match response.map_err(Failure::into_query_failure) {
            Err(failure @ (Failure::Unreachable(_) | Failure::NoProgram(_))) => Err(failure),
            _ => Ok(()),
        }
    }

    /// Loads a program: verifies and commits it.
    ///
    /// # Errors
    /// [`Failure`] if the device refuses.
    pub async fn load(&mut self, election: Uint128, config: ForwardingPipelineConfig) -> Result<(), Failure> {
        let request = SetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            election_id: Some(election),
            action: ConfigAction::VerifyAndCommit.into(),
            config: Some(config),
            role: self.role.clone(),
        };
        let path = "/p4.v1.P4Runtime/SetForwardingPipelineConfig";
        self.call(path, request)
            .await
            .map(|_: SetForwardingPipelineConfigResponse| ())
    }

    /// Writes changes of entries, which the device may execute in part.
    ///
    /// # Errors
    /// [`Failure`] if the device refuses the request or some of its changes.
    pub async fn write(&mut self, election: Uint128, updates: Vec<Update>) -> Result<(), Failure> {
        let request = WriteRequest {
            device_id: self.device_id,
            election_id: Some(election),
            updates,
            atomicity: 0,
            role: self.role.clone(),
        };
        self.call("/p4.v1.P4Runtime/Write", request)
            .await
            .map(|_: WriteResponse| ())
    }

    /// Reads all entities that match any of the given ones.
    ///
    /// # Errors
    /// [`Failure`] if the device refuses, or returns more than [`MAX_ENTITIES`].
    pub async fn read(&mut self, entities: Vec<Entity>) -> Result<Vec<Entity>, Failure> {
        let request = ReadRequest {
            device_id: self.device_id,
            entities,
            role: self.role.clone(),
        };
        self.ready().await?;
        let path = PathAndQuery::from_static("/p4.v1.P4Runtime/Read");
        let codec: ProstCodec<ReadRequest, ReadResponse> = ProstCodec::default();
        let opened = self
            .grpc
            .server_streaming(Request::new(request), path, codec)
            .await;
        let mut stream = opened.map_err(query_failure)?.into_inner();
        let mut all = Vec::new();
        while let Some(part) = stream.message().await.map_err(query_failure)? {
            all.extend(part.entities);
            if all.len() > MAX_ENTITIES {
                let text = format!("it has more than {MAX_ENTITIES} entries in the tables of the map");
                return Err(Failure::Refused(Code::OutOfRange, text, Vec::new()));
            }
        }
        Ok(all)
    }
}

fn query_failure(status: tonic::Status) -> Failure {
    Failure::new(&status).into_query_failure()
}

fn unreadable(reason: String) -> Failure {
    Failure::Refused(Code::DataLoss, reason, Vec::new())
}
