//! Connections to other systems, such as databases and Kafka brokers: address, TLS and credentials.

use std::{fmt, future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use rustls::ClientConfig;
use settings::choice;
use tokio::{io::ReadBuf, net::TcpStream, task, time};

use crate::tls;

/// Timeout of the connection, and again of the TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);

/// Address of a server, and the TLS configuration and credentials for it.
#[derive(Clone, Debug)]
pub struct Destination {
    /// Address as `host:port`; for Kafka, several addresses separated by commas.
    pub authority: String,
    /// Path of the URL, which is prepended to the path of each request.
    pub path: String,
    /// TLS configuration; `None` for connections without TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// URL schemes without and with TLS, as in messages.
    pub schemes: (&'static str, &'static str),
    /// Credentials; `None` if the server needs none.
    pub login: Option<Login>,
    /// SASL mechanism for the credentials, with Kafka.
    pub mechanism: Mechanism,
    /// Whether credentials may be sent without encryption to any address, not just to this host.
    pub unencrypted: bool,
}

/// Credentials for a system.
#[derive(Clone)]
pub enum Login {
    /// HTTP authentication scheme, and the token.
    Token(&'static str, String),
    /// User, if there is one, and the password.
    Password(Option<String>, String),
}

impl fmt::Debug for Login {
    /// Formats the credentials without their secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(..) => f.write_str("Token"),
            Self::Password(user, _) => f.debug_tuple("Password").field(user).finish(),
        }
    }
}

impl Login {
    /// Returns the value of the HTTP `Authorization` header.
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
    /// Returns the value of the HTTP `Host` header, without the default port of the scheme.
    pub fn host(&self) -> &str {
        let usual = if self.tls.is_some() { ":443" } else { ":80" };
        self.authority.strip_suffix(usual).unwrap_or(&self.authority)
    }
}

choice! {
    /// SASL mechanism for user and password.
    pub enum Mechanism("\"plain\", \"scram-sha-256\" or \"scram-sha-512\"") {
        /// PLAIN: sends user and password as they are.
        Plain = "plain",
        /// SCRAM-SHA-256: proves that the client knows the password, without sending it.
        ScramSha256 = "scram-sha-256",
        /// SCRAM-SHA-512: like SCRAM-SHA-256, with SHA-512.
        ScramSha512 = "scram-sha-512",
    }
}

/// Connects to a server, with TLS if the destination has a TLS configuration.
///
/// # Errors
/// Returns one sentence that states the problem and the remedy.
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
    // Disables Nagle's algorithm: batches are whole requests, so delaying segments gains nothing.
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

/// Returns whether the server has closed an idle connection, or sent unsolicited data.
pub async fn is_left(stream: &mut dyn tls::Stream) -> bool {
    // Lets the runtime poll the socket, so that it learns of data or a close.
    task::yield_now().await;
    let mut bytes = [0];
    let mut stream = Pin::new(stream);
    let answer = future::poll_fn(|context| {
        let mut bytes = ReadBuf::new(&mut bytes);
        Poll::Ready(stream.as_mut().poll_read(context, &mut bytes))
    });
    answer.await.is_ready()
}
