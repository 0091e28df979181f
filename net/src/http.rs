//! HTTP client for one server, with one persistent connection.

use http_body_util::{BodyExt, Full};
pub use hyper::body::Bytes;
use hyper::{
    Response,
    body::{Body, Incoming},
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;

use crate::destination::{self, Destination, Login};
use crate::tls;

/// Maximum length of a response, bytes: enough for an error for each of 10,000 items.
const MAX_ANSWER: usize = 16 << 20;

/// A request to the server of a [`Client`].
#[derive(Clone, Default, Debug)]
pub struct Request {
    /// HTTP method, such as `POST`.
    pub method: &'static str,
    /// Path and query, beginning with `/`. The path of the destination is prepended.
    pub target: String,
    /// Headers other than those for the connection, the credentials and the length.
    pub headers: Vec<(&'static str, String)>,
    /// Request body, which is not copied.
    pub body: Bytes,
}

/// An HTTP response, with its body up to a limit.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Host and port of the server.
    pub host: String,
    /// Status code of the response.
    pub status: u16,
    /// Pause that the `Retry-After` header requests, ns; `None` without a number of seconds.
    pub retry_after: Option<u64>,
    /// The body, or its beginning if it exceeds the limit.
    pub body: Vec<u8>,
    /// Whether the body exceeded the limit.
    pub is_cut: bool,
}

/// A client for one server.
#[derive(Debug)]
pub struct Client {
    destination: Destination,
    /// Value of the `Authorization` header.
    authorization: Option<String>,
    connection: Option<Connection>,
    /// Maximum number of response bytes to read.
    max_bytes: usize,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Client {
    /// Creates a client, which connects on the first request.
    pub fn new(destination: Destination) -> Self {
        let authorization = destination.login.as_ref().map(Login::authorization);
        Self {
            destination,
            authorization,
            connection: None,
            max_bytes: MAX_ANSWER,
        }
    }

    /// Limits the bytes that are read of a response to `most`.
    #[must_use]
    pub fn limited(self, max_bytes: usize) -> Self {
        Self {
            max_bytes: max_bytes.min(MAX_ANSWER),
            ..self
        }
    }

    /// Sends a request and reads the response.
    ///
    /// # Errors
    /// Returns one sentence if there was no response.
    pub async fn send(&mut self, request: Request) -> Result<Answer, String> {
        let sent = self.try_send(request).await;
        if sent.is_err() {
            self.connection = None;
        }
        sent
    }

    async fn try_send(&mut self, request: Request) -> Result<Answer, String> {
        let Destination { authority, path, .. } = &self.destination;
        let mut builder = hyper::Request::builder()
            .method(request.method)
            .uri(format!("{path}{}", request.target))
            .header(header::HOST, self.destination.host())
            .header(header::USER_AGENT, concat!("hopwise/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        if request.body.is_empty() && request.method != "GET" {
            // hyper omits the header for an empty body, but some servers require it.
            builder = builder.header(header::CONTENT_LENGTH, 0);
        }
        if let Some(authorization) = &self.authorization {
            builder = builder.header(header::AUTHORIZATION, authorization);
        }
        let message = builder
            .body(Full::new(request.body))
            .map_err(|error| format!("{authority}: {error}"))?;
        let authority = authority.clone();
        let sender = self.sender().await?;
        let response = sender
            .send_request(message)
            .await
            .map_err(|error| tls::reason(&error, &authority))?;
        let answer = read(response, self.max_bytes)
            .await
            .map_err(|error| tls::reason(&error, &authority))?;
        Ok(Answer {
            host: authority,
            ..answer
        })
    }

    /// Returns the connection, or a new one if the server has closed it.
    async fn sender(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, String> {
        let usable = match &mut self.connection {
            Some(connection) => !connection.sender.is_closed() && connection.sender.ready().await.is_ok(),
            None => false,
        };
        if !usable {
            self.connection = None;
        }
        match &mut self.connection {
            Some(connection) => Ok(&mut connection.sender),
            empty => {
                let stream = destination::connect(&self.destination).await?;
                let handshake = http1::handshake(TokioIo::new(stream)).await;
                let authority = &self.destination.authority;
                let (sender, connection) = handshake.map_err(|error| tls::reason(&error, authority))?;
                // An error of the connection is also reported by the request.
                let task = tokio::spawn(async move { _ = connection.await }).abort_handle();
                Ok(&mut empty.insert(Connection { sender, task }).sender)
            }
        }
    }
}

/// Reads at most `most` bytes of the body. If there are more, the rest stays unread and the connection is not reused.
async fn read(response: Response<Incoming>, max_bytes: usize) -> Result<Answer, hyper::Error> {
    let status = response.status().as_u16();
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    let retry_after = retry_after.map(|seconds| seconds.saturating_mul(1_000_000_000));
    let mut incoming = response.into_body();
    let mut body = Vec::new();
    let mut is_cut = false;
    while !incoming.is_end_stream() {
        let Some(frame) = incoming.frame().await else {
            break;
        };
        if let Ok(data) = frame?.into_data() {
            let remaining = max_bytes - body.len();
            is_cut = data.len() > remaining;
            body.extend_from_slice(&data[..data.len().min(remaining)]);
            if is_cut {
                break;
            }
        }
    }
    Ok(Answer {
        host: String::new(),
        status,
        retry_after,
        body,
        is_cut,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use super::*;
    use crate::destination::Mechanism;

    #[test]
    fn a_request_says_how_long_it_is_also_if_it_is_empty() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0].into());
            }
            stream.write_all(b"HTTP/1.1 204 X\r\n\r\n").unwrap();
            head
        });
        let destination = Destination {
            authority,
            path: String::new(),
            tls: None,
            schemes: ("http://", "https://"),
            login: None,
            mechanism: Mechanism::Plain,
            unencrypted: false,
        };
        let request = Request {
            method: "POST",
            target: "/v1/logs".to_owned(),
            ..Request::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut client = Client::new(destination);
        let answer = runtime.block_on(client.send(request)).unwrap();
        assert_eq!(answer.status, 204);
        let head = server.join().unwrap().to_lowercase();
        assert!(head.contains("content-length: 0\r\n"), "{head}");
    }
}
