//! A gNMI client (OpenConfig, over gRPC) for one device: Capabilities, Get, Set and Subscribe. It reconnects automatically.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use prost::Message;
use tokio::time;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::message::{
    CapabilityRequest, CapabilityResponse, Encoding, GetRequest, GetResponse, Path, SetRequest, SetResponse,
    SubscribeRequest, SubscribeResponse, Subscription, SubscriptionList, SubscriptionMode,
};
use crate::tree::Tree;

/// Maximum length of a device's message, bytes.
const MAX_MESSAGE: usize = 16 << 20;
/// Time limit of a call until the first command sets one, ms.
const CALL: u64 = 1800;
const CONNECT: Duration = Duration::from_millis(700);
/// Interval of HTTP/2 pings, and the time to wait for the reply, which detect a dead peer.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Interval between two samples, ns.
const SAMPLE: u64 = 10_000_000_000;

/// A device's address, with the credentials and certificates to use.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// Address of the device as `host:port`.
    pub address: String,
    /// User name and password, sent as metadata with each call.
    pub user: Option<(String, String)>,
    /// CA certificates that may sign the device's certificate, PEM; `None` disables TLS.
    pub ca: Option<Vec<u8>>,
    /// Client certificate and key, PEM, for devices that require mutual TLS.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Expected name in the device's certificate; `None` for the host in `address`.
    pub name: Option<String>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Omits the password and the key.
        f.debug_struct("Peer")
            .field("address", &self.address)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There was no response, or authentication failed.
    Unreachable(String),
    /// Another client has a higher election, or this client lacks the permission.
    Denied(String),
    /// The path does not exist on the device.
    NotFound,
    /// The device refused the call.
    Refused(String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let text = match status.message() {
            "" => format!("{:?}", status.code()),
            message => message.chars().take(300).collect(),
        };
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Self::Unreachable(text),
            // The connection ended during the call. Only then does a server show that it requires a client certificate.
            Code::Unknown if std::error::Error::source(&status).is_some() => Self::Unreachable(format!(
                "{text}; correct `ca`, `certificate` and `key` if the device asks for them"
            )),
            Code::Unauthenticated => Self::Unreachable(format!("{text}; correct user and password")),
            Code::PermissionDenied => Self::Denied(text),
            Code::NotFound => Self::NotFound,
            _ => Self::Refused(text),
        }
    }
}

/// A gNMI client of one device.
#[derive(Clone, Debug)]
pub struct Client {
    grpc: Grpc<Channel>,
    user: Option<User>,
    /// Time limit of a call, ms, shared by clones.
    limit: Arc<AtomicU64>,
}

impl Client {
    /// Creates a client on the current Tokio runtime. It connects on first use.
    ///
    /// # Errors
    /// A sentence that describes the problem, like [`Client::check`].
    pub fn new(peer: &Peer) -> Result<Self, String> {
        let grpc = Grpc::new(endpoint(peer)?.connect_lazy()).max_decoding_message_size(MAX_MESSAGE);
        Ok(Self {
            grpc,
            user: user(peer)?,
            limit: Arc::new(AtomicU64::new(CALL)),
        })
    }

    /// Returns this client, sharing the time limit with `other`.
    pub fn with_limit_of(self, other: &Self) -> Self {
        Self {
            limit: Arc::clone(&other.limit),
            ..self
        }
    }

    /// Sets the time limit of calls.
    pub fn set_limit(&self, limit: Duration) {
        // Relaxed suffices, because no other memory access depends on this value.
        self.limit.store(
            u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.limit.load(Ordering::Relaxed))
    }

    /// Checks that the address, the certificates and the credentials are usable.
    ///
    /// # Errors
    /// A sentence that describes the problem and a fix.
    pub fn check(peer: &Peer) -> Result<(), String> {
        user(peer)?;
        endpoint(peer).map(drop)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some((name, password)) = &self.user {
            request.metadata_mut().insert("username", name.clone());
            request.metadata_mut().insert("password", password.clone());
        }
        request
    }

    /// Makes a unary call within the time limit.
    async fn call<M, R>(&mut self, method: &'static str, message: M) -> Result<R, Failure>
    where
        M: Message + Default + Send + Sync + 'static,
        R: Message + Default + Send + Sync + 'static,
    {
        let request = self.request(message);
        let limit = self.limit();
        let call = async {
            self.grpc
                .ready()
                .await
                .map_err(|error| Failure::Unreachable(error.to_string()))?;
            let path = PathAndQuery::from_static(method);
            let response = self
                .grpc
                .unary(request, path, ProstCodec::<M, R>::default())
                .await?;
            Ok(response.into_inner())
        };
        time::timeout(limit, call).await.unwrap_or_else(|_| Err(late()))
    }

    /// Queries the device's models and encodings.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn capabilities(&mut self) -> Result<CapabilityResponse, Failure> {
        self.call("/gnmi.gNMI/Capabilities", CapabilityRequest {}).await
    }

    /// Adds the values at the path of a list to `tree`. Adds nothing if the path does not exist.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn get(&mut self, path: &Path, tree: &mut Tree) -> Result<(), Failure> {
        match self.get_at(path, tree).await {
            // Some devices serve list entries and containers, but not a list as a whole. Its container includes it.
            Err(Failure::NotFound) if path.elem.len() > 1 => {
                let around = Path {
                    elem: path.elem[..path.elem.len() - 1].to_vec(),
                    ..path.clone()
                };
                match self.get_at(&around, tree).await {
                    Err(Failure::NotFound) => Ok(()),
                    done => done,
                }
            }
            Err(Failure::NotFound) => Ok(()),
            done => done,
        }
    }

    async fn get_at(&mut self, path: &Path, tree: &mut Tree) -> Result<(), Failure> {
        let request = GetRequest {
            path: vec![path.clone()],
            r#type: 0,
            encoding: Encoding::JsonIetf.into(),
        };
        let response = self.call::<_, GetResponse>("/gnmi.gNMI/Get", request).await?;
        response
            .notification
            .iter()
            .try_for_each(|notification| tree.add(notification))
            .map_err(Failure::Refused)
    }

    /// Executes a Set transaction.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn set(&mut self, request: SetRequest) -> Result<(), Failure> {
        self.call::<_, SetResponse>("/gnmi.gNMI/Set", request)
            .await
            .map(drop)
    }

    /// Subscribes to changes below `paths`. In mode `SAMPLE`, the device sends the values every 10 s.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn subscribe(
        &mut self,
        paths: &[Path],
        mode: SubscriptionMode,
    ) -> Result<Streaming<SubscribeResponse>, Failure> {
        let sample_interval = if mode == SubscriptionMode::Sample {
            SAMPLE
        } else {
            0
        };
        let subscription = paths.iter().map(|path| Subscription {
            path: Some(path.clone()),
            mode: mode.into(),
            sample_interval,
        });
        let list = SubscriptionList {
            subscription: subscription.collect(),
            mode: 0,
            encoding: Encoding::JsonIetf.into(),
        };
        let request = self.request(Once(Some(SubscribeRequest {
            subscribe: Some(list),
        })));
        let limit = self.limit();
        let call = async {
            self.grpc
                .ready()
                .await
                .map_err(|error| Failure::Unreachable(error.to_string()))?;
            let path = PathAndQuery::from_static("/gnmi.gNMI/Subscribe");
            let codec = ProstCodec::<SubscribeRequest, SubscribeResponse>::default();
            Ok(self.grpc.streaming(request, path, codec).await?.into_inner())
        };
        time::timeout(limit, call).await.unwrap_or_else(|_| Err(late()))
    }
}

fn late() -> Failure {
    Failure::Unreachable("it does not answer in time".to_owned())
}

fn endpoint(peer: &Peer) -> Result<Endpoint, String> {
    let scheme = if peer.ca.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{}", peer.address));
    let endpoint = endpoint
        .map_err(|_| {
            format!(
                "invalid address `{}`; write \"192.0.2.11:9339\" or the like",
                peer.address
            )
        })?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE);
    let Some(ca) = &peer.ca else { return Ok(endpoint) };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    if let Some(name) = &peer.name {
        tls = tls.domain_name(name);
    }
    if let Some((certificate, key)) = &peer.identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let keys = if peer.identity.is_some() {
        "`ca`, `certificate` or `key`"
    } else {
        "`ca`"
    };
    endpoint
        .tls_config(tls)
        .map_err(|error| format!("the certificates cannot be used: {error}; correct {keys}"))
}

type User = (AsciiMetadataValue, AsciiMetadataValue);

fn user(peer: &Peer) -> Result<Option<User>, String> {
    let Some((name, password)) = &peer.user else {
        return Ok(None);
    };
    Ok(Some((metadata_value(name)?, metadata_value(password)?)))
}

fn metadata_value(text: &str) -> Result<AsciiMetadataValue, String> {
    AsciiMetadataValue::try_from(text).map_err(|_| "user and password are ASCII; correct them".to_owned())
}

/// The single request of a subscription. Its stream then remains open, because ending it would end the subscription.
struct Once(Option<SubscribeRequest>);

impl Stream for Once {
    type Item = SubscribeRequest;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<SubscribeRequest>> {
        match self.0.take() {
            Some(request) => Poll::Ready(Some(request)),
            None => Poll::Pending,
        }
    }
}
