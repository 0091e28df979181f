//! Other systems: their addresses, the credentials for them, and connections to them.

use std::{fmt, future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use rustls::ClientConfig;
use settings::choice;
use tokio::{io::ReadBuf, net::TcpStream, task, time};

use crate::tls;

/// A server, and the credentials for it.
#[derive(Clone, Debug)]
pub struct Destination {
    /// `host:port`; of Kafka several, with commas between them.
    pub authority: String,
    /// The path of the URL, a prefix of the path of each request.
    pub path: String,
    /// TLS configuration, or `None` for connections without TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// The schemes of URLs without and with TLS, as messages write them.
    pub schemes: (&'static str, &'static str),
    /// Credentials, or `None` if the server needs none.
    pub login: Option<Login>,
    /// SASL mechanism by which Kafka gets the credentials.
    pub mechanism: Mechanism,
    /// The login may be sent without encryption to any address.
    pub unencrypted: bool,
}

/// Credentials for a system.
#[derive(Clone)]
pub enum Login {
    /// The scheme of HTTP, and a token.
    Token(&'static str, String),
    /// A password, and its user.
    Password(Option<String>, String),
}

impl fmt::Debug for Login {
    /// Secrets are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(..) => f.write_str("Token"),
            Self::Password(user, _) => f.debug_tuple("Password").field(user).finish(),
        }
    }
}

impl Login {
    /// Returns the value of the header `Authorization` of HTTP.
    pub fn authorization(&self) -> String {
        match self {
            Self::Token(scheme, token) => format!("{scheme} {token}"),
            Self::Password(user, password) => {
                let text = format!("{}:{password}", user.as_deref().unwrap_or_default());
                let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
                format!("Basic {text}")
            }
        }
    }
}

impl Destination {
    /// Returns the value of the header `Host` of HTTP: without the port if it is the usual one.
    pub fn host(&self) -> &str {
        let usual = if self.tls.is_some() { ":443" } else { ":80" };
        self.authority.strip_suffix(usual).unwrap_or(&self.authority)
    }
}

choice! {
    /// The SASL mechanism for user and password.
    pub enum Mechanism("\"plain\", \"scram-sha-256\" or \"scram-sha-512\"") {
        /// As they are: PLAIN.
        Plain = "plain",
        /// Only a proof that they are known: SCRAM-SHA-256.
        ScramSha256 = "scram-sha-256",
        /// The same with SHA-512: SCRAM-SHA-512.
        ScramSha512 = "scram-sha-512",
    }
}

/// Connects to a server, with TLS if the destination has it.
///
/// # Errors
/// One sentence that says what to do.
pub async fn connect(destination: &Destination) -> Result<Box<dyn tls::Stream>, String> {
    let Destination {
        authority,
        tls: config,
        schemes: (plain, secure),
        ..
    } = destination;
    let connected = time::timeout(CONNECT, TcpStream::connect(authority)).await;
    let stream = connected
        .map_err(|_| format!("{authority} does not answer; correct the url, or start the server"))?
        .map_err(|error| {
            format!("no connection to {authority}: {error}; correct the url, or start the server")
        })?;
    // Batches are whole requests: nothing is gained by waiting for more.
    let _ = stream.set_nodelay(true);
    let secured = time::timeout(CONNECT, tls::secure(config.clone(), authority, stream)).await;
    let secured = secured.unwrap_or_else(|_| {
        Err(format!(
            "{authority} does not answer to TLS; if it has none, write {plain} in place of {secure}"
        ))
    });
    secured.map_err(|words| {
        words.replace(
            "http:// in place of https://",
            &format!("{plain} in place of {secure}"),
        )
    })
}

/// Returns true if the server has closed an idle connection, or sent something that nobody asked for.
pub async fn is_left(stream: &mut dyn tls::Stream) -> bool {
    // Lets the runtime learn what the kernel knows.
    task::yield_now().await;
    let mut bytes = [0];
    let mut stream = Pin::new(stream);
    let answer = future::poll_fn(|context| {
        let mut bytes = ReadBuf::new(&mut bytes);
        Poll::Ready(stream.as_mut().poll_read(context, &mut bytes))
    });
    answer.await.is_ready()
}

const CONNECT: Duration = Duration::from_secs(5);
