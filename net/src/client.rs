//! A client for the program's own API: HTTP/1.1 over one TCP connection per request, bodies by length, chunked or until
//! the connection closes, and server-sent events. With or without TLS.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;

use crate::tls;
use runtime::{host, lock::lock};
use terminal::CliError;

/// Address of a running hopwise, and what it asks of clients.
#[derive(Clone, Debug)]
pub struct Client {
    authority: String,
    /// TLS configuration, or `None` for plain HTTP.
    tls: Option<Arc<ClientConfig>>,
    /// Value of the header `Authorization`.
    authorization: Option<String>,
    /// Path below which everything is.
    base: String,
    /// Who changes something, for the history.
    requester: Option<String>,
    /// Notes of the server about its answers.
    notes: Arc<Mutex<Notes>>,
}

/// Notes about answers, each once.
#[derive(Default, Debug)]
struct Notes {
    /// All notes of this client so far.
    known: BTreeSet<String>,
    /// Those that were not taken yet.
    new: Vec<String>,
}

/// An HTTP/1.1 request, without the headers of the connection.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    method: &'a str,
    path: &'a str,
    accept: &'a str,
    body: Option<&'a str>,
    condition: Option<&'a Condition>,
}

/// Under which condition a request is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is none yet.
    IsNew,
    /// It has this version.
    Has(String),
}

/// The reason for which a request failed.
#[derive(Debug)]
pub enum Error {
    /// The client cannot use this address.
    Address(String),
    /// No connection, or no response.
    Unreachable {
        /// Address of the server.
        authority: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// TLS to this address is not possible, or the certificate is wrong.
    Tls(String),
    /// The server refused the request.
    Refused {
        /// HTTP status code of the response.
        status: u16,
        /// Error message of the server.
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
            // What is wrong is in the request: the message says what.
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
    /// A client of `url` (`http://host:port`, or just `host:port`), without TLS.
    pub fn new(url: &str, token: Option<String>) -> Result<Self, Error> {
        Self::with_tls(url, token, None)
    }

    /// A client of `url`; with TLS if it begins with `https://`, for which `tls` has the authorities.
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

    /// This client for another program's API: everything is below `base`, and `authorization` is the value of that header.
    pub fn for_other(self, base: String, authorization: Option<String>) -> Self {
        Self {
            base,
            authorization,
            ..self
        }
    }

    /// This client with another name in the history than that of the user.
    pub fn by(self, requester: &str) -> Self {
        Self {
            requester: Some(requester.to_owned()),
            ..self
        }
    }

    /// `http://host:port`, or with `https`.
    pub fn url(&self) -> String {
        format!(
            "{}://{}",
            if self.tls.is_some() { "https" } else { "http" },
            self.authority
        )
    }

    /// Removes and returns the notes about answers so far, such as about damaged files; each is returned once.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.notes).new)
    }

    /// The JSON response to `GET {path}`, below the path of the API.
    pub fn get(&self, path: &str) -> Result<Value, Error> {
        value(&self.get_text(path)?)
    }

    /// The same as bytes: the keys of a [`Value`] are sorted.
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
                // The server is overloaded: retry.
                Err(Error::Refused { status: 503, .. }) if start.elapsed() < BUSY => thread::sleep(BUSY / 50),
                answer => return answer,
            }
        }
    }

    /// The JSON response to `METHOD /api/v1{path}` with `body`; null when it is empty.
    pub fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, Error> {
        self.send_if(None, method, path, body)
    }

    /// As [`Client::send`], under a condition.
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
        let mut body = Vec::new();
        self.request(request, Some(RESPONSE_WITHIN))?
            .take(RESPONSE_LIMIT + 1)
            .read_to_end(&mut body)
            .map_err(|source| self.unreachable(source))?;
        if body.len() as u64 > RESPONSE_LIMIT {
            return Err(Error::Protocol("the response is longer than 256 MiB"));
        }
        Ok(body)
    }

    /// The stream of server-sent events at `/api/v1{path}`.
    pub fn stream(&self, path: &str) -> Result<Stream, Error> {
        let request = Request {
            method: "GET",
            path,
            accept: "text/event-stream",
            body: None,
            condition: None,
        };
        Ok(Stream {
            body: self.request(request, Some(SILENCE))?,
        })
    }

    fn request(&self, request: Request<'_>, timeout: Option<Duration>) -> Result<Body, Error> {
        let Request {
            method,
            path,
            accept,
            body,
            condition,
        } = request;
        let mut connection = self.connect().map_err(|source| self.unreachable(source))?;
        let mut head = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: {}\r\nAccept: {accept}\r\nConnection: close\r\n",
            self.base, self.authority
        );
        if let Some(authorization) = &self.authorization {
            head.push_str(&format!("Authorization: {authorization}\r\n"));
        }
        if method != "GET" {
            let by = self.requester.clone().unwrap_or_else(requester);
            head.push_str(&format!("X-Requested-By: {by}\r\n"));
        }
        match condition {
            None => {}
            Some(Condition::IsNew) => head.push_str("If-None-Match: *\r\n"),
            Some(Condition::Has(etag)) => head.push_str(&format!("If-Match: \"{etag}\"\r\n")),
        }
        if let Some(body) = body {
            head.push_str(&format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                body.len()
            ));
        }
        head.push_str("\r\n");
        head.push_str(body.unwrap_or(""));
        let sent = connection
            .tcp()
            .set_read_timeout(timeout)
            .and_then(|()| connection.write_all(head.as_bytes()))
            .map(|()| BufReader::new(connection));
        let mut reader = sent.map_err(|source| self.unreachable(source))?;
        let Head {
            status,
            length,
            notes,
        } = read_head(&mut reader).map_err(|source| self.unreachable(source))?;
        lock(&self.notes).add(notes);
        let mut body = Body { reader, length };
        match status {
            0 => Err(Error::Protocol("the response is not HTTP")),
            200..=299 => Ok(body),
            _ => {
                let mut text = Vec::new();
                // An error response without a message is still an error.
                let _ = body.by_ref().take(64 * 1024).read_to_end(&mut text);
                Err(Error::Refused {
                    status,
                    message: sentence(&text),
                })
            }
        }
    }

    fn connect(&self) -> io::Result<Wire> {
        let stream = self.connect_tcp()?;
        let Some(config) = &self.tls else {
            return Ok(Wire::Plain(stream));
        };
        stream.set_read_timeout(Some(RESPONSE_WITHIN))?;
        let name = tls::server_name(&self.authority).ok_or(io::ErrorKind::InvalidInput)?;
        let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Wire::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    fn connect_tcp(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
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

impl Notes {
    fn add(&mut self, notes: Vec<String>) {
        for note in notes {
            if self.known.insert(note.clone()) {
                self.new.push(note);
            }
        }
    }
}

/// A body as JSON; null when it is empty.
fn value(body: &[u8]) -> Result<Value, Error> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body).map_err(|_| Error::Protocol("the response is not JSON"))
}

/// Who asks, for the history: a name, not a proof.
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

/// Time for which requests to a busy server are retried.
const BUSY: Duration = Duration::from_secs(5);

const CONNECT_WITHIN: Duration = Duration::from_secs(3);
const RESPONSE_WITHIN: Duration = Duration::from_secs(60);
/// Longest JSON response, bytes.
const RESPONSE_LIMIT: u64 = 256 << 20;
/// A stream without data for this time is broken: the server sends at least a comment every 15 s.
const SILENCE: Duration = Duration::from_secs(60);
/// Limit of the response head; hopwise sends less.
const HEAD_LIMIT: u64 = 64 * 1024;

/// `text` for use inside a query string.
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

/// A connection, with or without TLS.
#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// The part of the body that is still to come.
#[derive(Debug)]
enum Length {
    /// Until the connection closes.
    Close,
    /// This number of bytes.
    Known(u64),
    /// Remaining bytes of this chunk, then further chunks; `None` before the first and after each.
    Chunk(Option<u64>),
}

/// An HTTP body, without its transfer encoding.
#[derive(Debug)]
struct Body {
    reader: BufReader<Wire>,
    length: Length,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = match &mut self.length {
            Length::Close => return self.reader.read(buffer),
            Length::Known(left) => left,
            Length::Chunk(chunk) => {
                if chunk.is_none() {
                    *chunk = Some(chunk_size(&mut self.reader)?);
                }
                chunk.get_or_insert(0)
            }
        };
        let wanted = buffer.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        // At the end of the body the connection is not read: it may stay open, or end without a closure alert of TLS.
        if wanted == 0 {
            return Ok(0);
        }
        let got = self.reader.read(&mut buffer[..wanted])?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *left -= got as u64;
        if *left == 0
            && let Length::Chunk(chunk) = &mut self.length
        {
            if !line(&mut self.reader)?.is_empty() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a chunk is longer than it says",
                ));
            }
            *chunk = None;
        }
        Ok(got)
    }
}

fn chunk_size(reader: &mut impl BufRead) -> io::Result<u64> {
    let text = line(reader)?;
    let digits = text.split(';').next().unwrap_or("").trim();
    u64::from_str_radix(digits, 16).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "bad chunk size"))
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader.by_ref().take(HEAD_LIMIT).read_until(b'\n', &mut bytes)?;
    if bytes.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(String::from_utf8_lossy(&bytes)
        .trim_end_matches(['\r', '\n'])
        .to_string())
}

/// The part of a response before its body.
#[derive(Debug)]
struct Head {
    /// HTTP status; 0 when this is not HTTP.
    status: u16,
    length: Length,
    /// Notes about the answer.
    notes: Vec<String>,
}

fn read_head(reader: &mut impl BufRead) -> io::Result<Head> {
    let first = line(reader)?;
    let status = first
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1)?.parse().ok())
        .unwrap_or(0);
    let mut head = Head {
        status,
        length: Length::Close,
        notes: Vec::new(),
    };
    let mut size = first.len() as u64;
    loop {
        let header = line(reader)?;
        size += header.len() as u64;
        if size > HEAD_LIMIT {
            head.status = 0;
            return Ok(head);
        }
        if header.is_empty() {
            return Ok(head);
        }
        let Some((name, value)) = header.split_once(':') else {
            continue;
        };
        let value = value.trim();
        if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            head.length = Length::Chunk(None);
        } else if name.eq_ignore_ascii_case("content-length") && matches!(head.length, Length::Close) {
            head.length = value.parse().map_or(Length::Close, Length::Known);
        } else if name.eq_ignore_ascii_case("hopwise-notes") {
            head.notes = serde_json::from_str(value).unwrap_or_default();
        }
    }
}

/// The message in `{"error": "…"}`, else the text. Lines stay: one may show a place in another.
fn sentence(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let json = serde_json::from_slice::<Value>(body).ok();
    let error = json.as_ref().and_then(|json| json.get("error")?.as_str());
    error
        .unwrap_or_else(|| text.trim())
        .chars()
        .filter(|c| !c.is_control() || *c == '\n')
        .collect()
}

/// A server-sent event, as the HTML standard defines it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Name of the event; `message` when the server gave none.
    pub event: String,
    /// Text of the event.
    pub data: String,
}

/// A stream of server-sent events.
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
                // Comments keep the connection alive; ids and retry times are of no use here.
                _ => {}
            }
        }
    }
}

impl Stream {
    /// The next line without its end; `None` when the stream is over.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        let mut byte = [0_u8; 1];
        // Byte by byte, but out of the connection's buffer: an event must not wait for the next one to fill a buffer.
        loop {
            if self.body.read(&mut byte)? == 0 {
                return Ok(None);
            }
            if byte[0] == b'\n' {
                break;
            }
            if bytes.len() == EVENT_LIMIT {
                return Err(too_long());
            }
            bytes.push(byte[0]);
        }
        Ok(Some(
            String::from_utf8_lossy(&bytes).trim_end_matches('\r').to_string(),
        ))
    }
}

/// Longest event of a stream, bytes.
const EVENT_LIMIT: usize = 1 << 20;

fn too_long() -> io::Error {
    let why = format!("an event is longer than {EVENT_LIMIT} bytes: check that the URL is that of a hopwise");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
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
                    "GET /api/v1/status?x=1 HTTP/1.1\r\nHost: {authority}\r\nAccept: application/json\r\n\
                     Connection: close\r\nAuthorization: Bearer t0\r\n\r\n"
                )
            );
        }
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
