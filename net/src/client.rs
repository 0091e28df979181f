//! Blocking HTTP client for the program's own API: one connection per request, with or without TLS, and server-sent events.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::net::{self, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::{
    Response,
    body::{Buf, Bytes, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde_json::Value;
use tokio::{net::TcpStream, runtime::Runtime, time};

use crate::tls;
use runtime::{host, lock::lock};
use terminal::CliError;

/// Time for which requests to an overloaded server are repeated.
const BUSY: Duration = Duration::from_secs(5);
/// Timeout of a connection attempt to one address.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// Time within which a response, and each part of its body, must arrive.
const RESPONSE_WITHIN: Duration = Duration::from_secs(60);
/// Maximum length of a JSON response, bytes.
const RESPONSE_LIMIT: u64 = 256 << 20;
/// Idle time after which a stream counts as broken: the server sends at least a comment every 15 s.
const SILENCE: Duration = Duration::from_secs(60);
/// Maximum length of an event, bytes.
const EVENT_LIMIT: usize = 1 << 20;

/// Client of a running hopwise: its address, and the credentials and name to present.
#[derive(Clone, Debug)]
pub struct Client {
    authority: String,
    /// TLS configuration; `None` for plain HTTP.
    tls: Option<Arc<ClientConfig>>,
    /// Value of the `Authorization` header.
    authorization: Option<String>,
    /// Path prefix of all requests.
    base: String,
    /// Name to record in the history with changes; `None` for the user's name.
    requester: Option<String>,
    /// Notes that the server attached to responses.
    notes: Arc<Mutex<Notes>>,
}

/// Notes from responses, without duplicates.
#[derive(Default, Debug)]
struct Notes {
    /// All notes that this client has received.
    known: BTreeSet<String>,
    /// Notes that the caller has not taken yet.
    new: Vec<String>,
}

/// An HTTP/1.1 request, without the headers of the client.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    method: &'a str,
    path: &'a str,
    accept: &'a str,
    body: Option<&'a str>,
    condition: Option<&'a Condition>,
}

/// Precondition of a request, sent as `If-None-Match` or `If-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The resource does not exist yet.
    IsNew,
    /// The resource has this version.
    Has(String),
}

/// The reason why a request failed.
#[derive(Debug)]
pub enum Error {
    /// The address is not a URL that the client can use.
    Address(String),
    /// There was no connection, or no response.
    Unreachable {
        /// Host and port of the server.
        authority: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// TLS with this address is not possible, or the server's certificate is invalid.
    Tls(String),
    /// The server refused the request.
    Refused {
        /// HTTP status code of the response.
        status: u16,
        /// Error message from the server.
        message: String,
    },
    /// The response does not conform to the hopwise API.
    Protocol(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(text) => {
                write!(
                    f,
                    "`{text}` is not the URL of an API; write it like http://127.0.0.1:8080 or https://10.0.0.1:8080"
                )
            }
            Self::Tls(message) => f.write_str(message),
            Self::Unreachable { authority, source } => write!(
                f,
                "cannot reach hopwise at {authority}: {source}; start it with `hopwise run` or `hopwise demo`, \
                 or set another address with --api"
            ),
            Self::Refused { status: 401, .. } => {
                write!(
                    f,
                    "the API requires a token; set it with --token or HOPWISE_TOKEN"
                )
            }
            // These statuses report a fault in the request, which the message explains.
            Self::Refused {
                status: 400 | 404 | 409 | 412,
                message,
            } if !message.is_empty() => f.write_str(message),
            Self::Refused { status, message } => write!(f, "the API refused ({status}): {message}"),
            Self::Protocol(what) => write!(f, "{what}; check that hopwise listens at this address"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        Self::new(error.to_string())
    }
}

impl Client {
    /// Creates a client for `url` (`http://host:port`, or `host:port`), without TLS.
    pub fn new(url: &str, token: Option<String>) -> Result<Self, Error> {
        Self::with_tls(url, token, None)
    }

    /// Creates a client for `url`. If it begins with `https://`, the client uses TLS with the trusted authorities in `tls`.
    pub fn with_tls(url: &str, token: Option<String>, tls: Option<Arc<ClientConfig>>) -> Result<Self, Error> {
        let (is_secure, rest) = tls::authority(url);
        let bad_address = Error::Address(url.to_string());
        let Some((host, port)) = rest.rsplit_once(':') else {
            return Err(bad_address);
        };
        let wrong_host = host.is_empty() || host.contains(['/', ' ', '@']);
        if wrong_host || port.parse::<u16>().is_err() {
            return Err(bad_address);
        }
        if is_secure && tls.is_none() {
            return Err(Error::Tls(format!(
                "{url} has TLS; name the PEM file with the authority of its certificate by --ca or HOPWISE_CA"
            )));
        }
        if is_secure && tls::server_name(rest).is_none() {
            return Err(bad_address);
        }
        Ok(Self {
            authority: rest.to_string(),
            tls: tls.filter(|_| is_secure),
            authorization: token.map(|token| format!("Bearer {token}")),
            base: "/api/v1".to_owned(),
            requester: None,
            notes: Arc::default(),
        })
    }

    /// Returns this client for the API of another program, whose paths are below `base`. `authorization` is the value of the
    /// header.
    pub fn for_other(self, base: String, authorization: Option<String>) -> Self {
        Self {
            base,
            authorization,
            ..self
        }
    }

    /// Returns this client with `requester` as its name in the history, in place of the user's name.
    pub fn by(self, requester: &str) -> Self {
        Self {
            requester: Some(requester.to_owned()),
            ..self
        }
    }

    /// Returns the URL of the server: `http://host:port`, or the same with `https`.
    pub fn url(&self) -> String {
        format!(
            "{}://{}",
            if self.tls.is_some() { "https" } else { "http" },
            self.authority
        )
    }

    /// Returns the notes received since the last call, such as about damaged files. Each note is returned only once.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.notes).new)
    }

    /// Returns the JSON response to `GET {path}`, relative to the path of the API.
    pub fn get(&self, path: &str) -> Result<Value, Error> {
        value(&self.get_text(path)?)
    }

    /// Returns the response to `GET {path}` as bytes, in the server's order: a [`Value`] sorts its keys.
    pub fn get_text(&self, path: &str) -> Result<Vec<u8>, Error> {
        let request = Request {
            method: "GET",
            path,
            accept: "application/json",
            body: None,
            condition: None,
        };
        let start = Instant::now();
        loop {
            match self.body(request) {
                // The server is overloaded, so the request is repeated.
                Err(Error::Refused { status: 503, .. }) if start.elapsed() < BUSY => thread::sleep(BUSY / 50),
                answer => return answer,
            }
        }
    }

    /// Returns the JSON response to `METHOD /api/v1{path}` with `body`; null if the response is empty.
    pub fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, Error> {
        self.send_if(None, method, path, body)
    }

    /// Does the same as [`Client::send`], and waits at most `within` for the response, and for each part of its body.
    pub fn send_within(
        &self,
        within: Duration,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let body = body.to_string();
        let request = Request {
            method,
            path,
            accept: "application/json",
            body: Some(&body),
            condition: None,
        };
        value(&self.body_within(request, within)?)
    }

    /// Does the same as [`Client::send`], with a precondition.
    pub fn send_if(
        &self,
        condition: Option<&Condition>,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let body = body.to_string();
        value(&self.body(Request {
            method,
            path,
            accept: "application/json",
            body: Some(&body),
            condition,
        })?)
    }

    fn body(&self, request: Request<'_>) -> Result<Vec<u8>, Error> {
        self.body_within(request, RESPONSE_WITHIN)
    }

    fn body_within(&self, request: Request<'_>, within: Duration) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        self.request(request, within)?
            .take(RESPONSE_LIMIT + 1)
            .read_to_end(&mut body)
            .map_err(|source| self.unreachable(source))?;
        if body.len() as u64 > RESPONSE_LIMIT {
            return Err(Error::Protocol("the response is longer than 256 MiB"));
        }
        Ok(body)
    }

    /// Opens the stream of server-sent events at `/api/v1{path}`.
    pub fn stream(&self, path: &str) -> Result<Stream, Error> {
        let request = Request {
            method: "GET",
            path,
            accept: "text/event-stream",
            body: None,
            condition: None,
        };
        Ok(Stream {
            body: self.request(request, SILENCE)?,
        })
    }

    /// Sends a request. The response, and then each part of its body, must arrive within `within`.
    fn request(&self, request: Request<'_>, within: Duration) -> Result<Body, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| self.unreachable(source))?;
        let message = self.message(request)?;
        let answer = runtime.block_on(async { time::timeout(within, self.exchange(message)).await });
        let response = answer.map_err(|_| self.unreachable(io::ErrorKind::TimedOut.into()))??;
        let status = response.status();
        if let Some(notes) = response.headers().get("hopwise-notes") {
            lock(&self.notes).add(serde_json::from_slice(notes.as_bytes()).unwrap_or_default());
        }
        let mut body = Body {
            incoming: response.into_body(),
            part: Bytes::new(),
            within,
            runtime,
        };
        if status.is_success() {
            return Ok(body);
        }
        let mut text = Vec::new();
        // An error response whose message cannot be read is still an error.
        let _ = body.by_ref().take(64 * 1024).read_to_end(&mut text);
        Err(Error::Refused {
            status: status.as_u16(),
            message: sentence(&text),
        })
    }

    fn message(&self, request: Request<'_>) -> Result<hyper::Request<Full<Bytes>>, Error> {
        let target = format!("{}{}", self.base, request.path);
        let mut message = hyper::Request::builder()
            .method(request.method)
            .uri(&target)
            .header(header::HOST, &self.authority)
            .header(header::ACCEPT, request.accept)
            .header(header::CONNECTION, "close");
        if let Some(authorization) = &self.authorization {
            message = message.header(header::AUTHORIZATION, authorization);
        }
        if request.method != "GET" {
            message = message.header("x-requested-by", self.requester.clone().unwrap_or_else(requester));
        }
        message = match request.condition {
            None => message,
            Some(Condition::IsNew) => message.header(header::IF_NONE_MATCH, "*"),
            Some(Condition::Has(etag)) => message.header(header::IF_MATCH, format!("\"{etag}\"")),
        };
        if request.body.is_some() {
            message = message.header(header::CONTENT_TYPE, "application/json");
        }
        let body = Bytes::from(request.body.unwrap_or_default().to_owned());
        message
            .body(Full::new(body))
            .map_err(|_| Error::Address(format!("{}{target}", self.url())))
    }

    async fn exchange(&self, message: hyper::Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        let stream = self.connect().map_err(|source| self.unreachable(source))?;
        let stream = tls::secure(self.tls.clone(), &self.authority, stream).await;
        let stream = TokioIo::new(stream.map_err(Error::Tls)?);
        let (mut sender, connection) = http1::handshake(stream)
            .await
            .map_err(|error| self.failed(error))?;
        // An error of the connection is also reported by the request.
        tokio::spawn(async move { _ = connection.await });
        let response = sender.send_request(message).await;
        response.map_err(|error| self.failed(error))
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.authority.to_socket_addrs()? {
            match net::TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
                Ok(connection) => {
                    connection.set_nonblocking(true)?;
                    return TcpStream::from_std(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Converts an HTTP error: the server sent no response, or something other than HTTP.
    fn failed(&self, error: hyper::Error) -> Error {
        if error.is_parse() {
            return Error::Protocol("the response is not HTTP");
        }
        let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<io::Error>());
        match cause.and_then(|cause| tls::explain(cause, &self.authority)) {
            Some(message) => Error::Tls(message),
            None => self.unreachable(io_error(error)),
        }
    }

    fn unreachable(&self, source: io::Error) -> Error {
        if let Some(message) = tls::explain(&source, &self.authority) {
            return Error::Tls(message);
        }
        Error::Unreachable {
            authority: self.authority.clone(),
            source,
        }
    }
}

/// Returns the underlying system error, if there is one, because it is more specific.
fn io_error(error: hyper::Error) -> io::Error {
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<io::Error>());
    match cause {
        Some(cause) => io::Error::new(cause.kind(), cause.to_string()),
        None => io::Error::other(error),
    }
}

impl Notes {
    fn add(&mut self, notes: Vec<String>) {
        for note in notes {
            if self.known.insert(note.clone()) {
                self.new.push(note);
            }
        }
    }
}

/// Parses a body as JSON; an empty body is null.
fn value(body: &[u8]) -> Result<Value, Error> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body).map_err(|_| Error::Protocol("the response is not JSON"))
}

/// Returns the requester's name for the history, `user@host`. It is not authenticated.
fn requester() -> String {
    let named = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let owner =
        || std::fs::metadata("/proc/self").map_or(0, |process| std::os::unix::fs::MetadataExt::uid(&process));
    let user = named.unwrap_or_else(|| format!("uid-{}", owner()));
    let text = format!("{user}@{}", host::name());
    text.chars().filter(|c| c.is_ascii_graphic()).take(64).collect()
}

/// Percent-encodes `text` for a query string.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The body of a response. The thread that reads the body also drives the connection.
#[derive(Debug)]
struct Body {
    incoming: Incoming,
    /// Bytes that were received but not read yet.
    part: Bytes,
    /// Maximum time to wait for each part.
    within: Duration,
    runtime: Runtime,
}

impl BufRead for Body {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.part.is_empty() {
            let frame = self.incoming.frame();
            let frame = self
                .runtime
                .block_on(async { time::timeout(self.within, frame).await });
            match frame? {
                Some(frame) => self.part = frame.map_err(io_error)?.into_data().unwrap_or_default(),
                None => break,
            }
        }
        Ok(&self.part)
    }

    fn consume(&mut self, length: usize) {
        self.part.advance(length);
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(buffer)?;
        self.consume(length);
        Ok(length)
    }
}

/// Returns the message in `{"error": "…"}`, or else the text, unless that is a web page. Keeps line breaks: a line may point into
/// the line above.
fn sentence(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    if text.trim_start().starts_with('<') {
        return "another program answered, with a web page; set the address of hopwise with --api".to_owned();
    }
    let json = serde_json::from_slice::<Value>(body).ok();
    let error = json.as_ref().and_then(|json| json.get("error")?.as_str());
    error
        .unwrap_or_else(|| text.trim())
        .chars()
        .filter(|c| !c.is_control() || *c == '\n')
        .collect()
}

/// A server-sent event as defined in the HTML standard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Event type; `message` if the server named none.
    pub event: String,
    /// Data of the event.
    pub data: String,
}

/// A stream of server-sent events, whose iterator blocks for the next event.
#[derive(Debug)]
pub struct Stream {
    body: Body,
}

impl Iterator for Stream {
    type Item = io::Result<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut message = Message {
            event: "message".into(),
            data: String::new(),
        };
        loop {
            let text = match self.line() {
                Ok(text) => text?,
                Err(error) => return Some(Err(error)),
            };
            let (field, value) = text.split_once(':').unwrap_or((&text, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if text.is_empty() && message.data.is_empty() => message.event = "message".into(),
                "" if text.is_empty() => return Some(Ok(message)),
                "event" => message.event = value.to_string(),
                "data" if message.data.len() + value.len() >= EVENT_LIMIT => return Some(Err(too_long())),
                "data" => {
                    if !message.data.is_empty() {
                        message.data.push('\n');
                    }
                    message.data.push_str(value);
                }
                // Comments only keep the connection alive; this client does not use ids and retry times.
                _ => {}
            }
        }
    }
}

impl Stream {
    /// Returns the next line without its end; `None` at the end of the stream.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        let limit = EVENT_LIMIT as u64 + 1;
        self.body.by_ref().take(limit).read_until(b'\n', &mut bytes)?;
        if bytes.pop_if(|last| *last == b'\n').is_some() {
            return Ok(Some(
                String::from_utf8_lossy(&bytes).trim_end_matches('\r').to_string(),
            ));
        }
        if bytes.len() > EVENT_LIMIT {
            return Err(too_long());
        }
        Ok(None)
    }
}

fn too_long() -> io::Error {
    let why = format!("an event is longer than {EVENT_LIMIT} bytes: check that the URL is that of a hopwise");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that answers one request with these bytes and returns the request.
    fn serve(answer: &'static str) -> (Client, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::new(
            &format!("http://{}/", listener.local_addr().unwrap()),
            Some("t0".into()),
        )
        .unwrap();
        let server = thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut request = String::new();
            let mut reader = BufReader::new(connection.try_clone().unwrap());
            while !request.ends_with("\r\n\r\n") {
                reader.read_line(&mut request).unwrap();
            }
            connection.write_all(answer.as_bytes()).unwrap();
            request
        });
        (client, server)
    }

    #[test]
    fn a_body_comes_by_length_in_chunks_or_until_the_end() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4;x=y\r\n\":1}\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\n{\"a\":1}",
        ] {
            let (client, server) = serve(answer);
            assert_eq!(
                client.get("/status?x=1").unwrap(),
                serde_json::json!({"a": 1}),
                "{answer}"
            );
            let authority = &client.authority;
            assert_eq!(
                server.join().unwrap(),
                format!(
                    "GET /api/v1/status?x=1 HTTP/1.1\r\nhost: {authority}\r\naccept: application/json\r\n\
                     connection: close\r\nauthorization: Bearer t0\r\n\r\n"
                )
            );
        }
    }

    #[test]
    fn a_wait_may_be_shorter_than_usual() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::new(&listener.local_addr().unwrap().to_string(), None).unwrap();
        let start = Instant::now();
        let error = client.send_within(Duration::from_millis(200), "POST", "/query", &Value::Null);
        assert!(
            matches!(&error, Err(Error::Unreachable { source, .. }) if source.kind() == io::ErrorKind::TimedOut),
            "{error:?}"
        );
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn notes_about_answers_are_taken_once() {
        let answer = "HTTP/1.1 200 OK\r\nHopwise-Notes: [\"a\",\"\\u00fc\"]\r\nContent-Length: 2\r\n\r\n{}";
        let (client, _) = serve(answer);
        client.get("/x").unwrap();
        assert_eq!(client.take_notes(), ["a", "ü"]);
        assert_eq!(client.take_notes(), [] as [String; 0]);
        lock(&client.notes).add(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(client.take_notes(), ["b"]);
    }

    #[test]
    fn a_refusal_keeps_its_sentence() {
        let (client, _) = serve("HTTP/1.1 400 Bad Request\r\nContent-Length: 15\r\n\r\n{\"error\":\"why\"}");
        assert_eq!(client.get("/x").unwrap_err().to_string(), "why");
        let (client, _) = serve("HTTP/1.1 401 Unauthorized\r\n\r\n");
        let text = "the API requires a token; set it with --token or HOPWISE_TOKEN";
        assert_eq!(client.get("/x").unwrap_err().to_string(), text);
        let (client, _) = serve("HTTP/1.1 403 Forbidden\r\nContent-Length: 15\r\n\r\n{\"error\":\"why\"}");
        assert_eq!(
            client.get("/x").unwrap_err().to_string(),
            "the API refused (403): why"
        );
        let page = "HTTP/1.1 404 Not Found\r\nContent-Length: 22\r\n\r\n<!DOCTYPE HTML>\n<html>";
        let (client, _) = serve(page);
        assert_eq!(
            client.get("/x").unwrap_err().to_string(),
            "another program answered, with a web page; set the address of hopwise with --api"
        );
    }

    #[test]
    fn a_truncated_reply_is_an_error() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nContent-",
            "SSH-2.0\n\n",
        ] {
            let (client, _) = serve(answer);
            assert!(client.get("/x").is_err(), "{answer}");
        }
    }

    #[test]
    fn events_are_distinguished() {
        let (client, _) = serve(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             8\r\ndata: a\n\r\n1\r\n\n\r\n22\r\n: ping\n\nevent: shed\ndata: 1\ndata:2\r\n3\r\n\n\n\n\r\n0\r\n\r\n",
        );
        let messages: Vec<_> = client
            .stream("/events/stream")
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let message = |event: &str, data: &str| Message {
            event: event.into(),
            data: data.into(),
        };
        assert_eq!(messages, [message("message", "a"), message("shed", "1\n2")]);
    }

    /// Of many lines, or of a single one.
    #[test]
    fn events_longer_than_a_mebibyte_are_an_error() {
        let line = format!("data:{}\n", "a".repeat(100_000));
        let single = format!("data:{}\n", "a".repeat(1 << 20));
        for (lines, accepted) in [(line.repeat(10), true), (line.repeat(11), false), (single, false)] {
            let event = format!("{lines}\n");
            let length = event.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{event}");
            let (client, _) = serve(answer.leak());
            let first = client.stream("/events/stream").unwrap().next().unwrap();
            assert_eq!(first.is_ok(), accepted, "{length} bytes");
        }
    }

    #[test]
    fn addresses_are_checked_before_use() {
        assert!(matches!(Client::new("https://x:1", None), Err(Error::Tls(_))));
        for wrong in [
            "https://x",
            "http://x",
            "x:99999",
            "http://:80",
            "http://u@h:1",
            "",
        ] {
            assert!(
                matches!(Client::new(wrong, None), Err(Error::Address(_))),
                "{wrong}"
            );
        }
        assert_eq!(
            Client::new("[::1]:8080", None).unwrap().url(),
            "http://[::1]:8080"
        );
    }

    #[test]
    fn escaping_leaves_only_unreserved_characters() {
        assert_eq!(escape("10.0.0.1:5>b/17 é"), "10.0.0.1%3A5%3Eb%2F17%20%C3%A9");
    }
}
