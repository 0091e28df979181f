//! The HTTP client of exports: one connection, which is kept.

use std::{collections::BTreeSet, sync::Arc};

use export::{
    Outcome,
    record::Stream,
    sink::{self, Batch, HttpSink},
};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Body, Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;

use super::{answered::Answered, socket};
use crate::config::export::{Destination, Login};
use net::tls;

/// A system that takes requests.
#[derive(Debug)]
pub(super) struct Link {
    sink: Arc<dyn HttpSink>,
    client: Client,
    request: Arc<sink::Request>,
    answer: Option<Answer>,
}

impl Link {
    /// No connection is made yet.
    pub(super) fn new(sink: Box<dyn HttpSink>, destination: Destination, most: usize) -> Self {
        let client = Client {
            most: most.min(MAX_ANSWER),
            ..Client::new(destination)
        };
        Self {
            sink: sink.into(),
            client,
            request: Arc::default(),
            answer: None,
        }
    }

    /// What makes its requests.
    pub(super) fn sink(&self) -> Arc<dyn HttpSink> {
        Arc::clone(&self.sink)
    }

    /// Bytes of the request.
    pub(super) fn bytes(&self) -> usize {
        self.request.body.capacity()
    }

    /// `ahead`: the request, if it is made already.
    pub(super) fn begin(&mut self, batch: &Batch<'_>, ahead: Option<sink::Request>) -> bool {
        let request = ahead.or_else(|| self.sink.request(batch));
        let is_some = request.is_some();
        (self.request, self.answer) = (Arc::new(request.unwrap_or_default()), None);
        is_some
    }

    pub(super) async fn send(&mut self) -> Result<(), String> {
        self.answer = Some(self.client.send(&self.request).await?);
        Ok(())
    }

    pub(super) fn answered(&mut self, batch: &Batch<'_>) -> Answered {
        let Some(answer) = self.answer.take() else {
            return Answered::missing();
        };
        let outcome = self.sink.outcome(batch, &self.request, &answer.response());
        let outcome = answer.explain(outcome);
        // Without rows, each record is one.
        let rows = &self.request.rows;
        let left_out = match outcome {
            Outcome::Settled { .. } if !rows.is_empty() => batch
                .records
                .len()
                .saturating_sub(rows.iter().collect::<BTreeSet<_>>().len()),
            _ => 0,
        };
        Answered::Done { outcome, left_out }
    }

    pub(super) async fn execute(&mut self, request: sink::Request) -> Result<(), String> {
        let request = Arc::new(request);
        let answer = self.client.send(&request).await?;
        self.sink.executed(&request, &answer.response())
    }

    pub(super) async fn probe(&mut self, streams: &[Stream]) -> Result<(), String> {
        let answer = self.client.send(&Arc::new(self.sink.probe(streams))).await?;
        self.sink.probed(streams, &answer.response())
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    host: String,
    status: u16,
    retry_after: Option<u64>,
    body: Vec<u8>,
    is_cut: bool,
}

impl Answer {
    /// Names who answered, and the status, in the words of an outcome.
    pub(super) fn explain(&self, outcome: Outcome) -> Outcome {
        outcome.explained(&self.host, self.status)
    }

    /// As sinks read it.
    pub(crate) fn response(&self) -> sink::Response<'_> {
        sink::Response {
            status: self.status,
            retry_after: self.retry_after,
            body: &self.body,
            is_cut: self.is_cut,
        }
    }
}

/// The body of a request, which is not copied: the sink may need it to understand the answer.
struct Content(Arc<sink::Request>);

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        &self.0.body
    }
}

/// A client of one server.
#[derive(Debug)]
pub(crate) struct Client {
    destination: Destination,
    /// The header of that name.
    authorization: Option<String>,
    connection: Option<Connection>,
    /// Bytes of an answer that are read.
    most: usize,
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
    /// No connection is made yet.
    pub(crate) fn new(destination: Destination) -> Self {
        let authorization = destination.login.as_ref().and_then(Login::authorization);
        Self {
            destination,
            authorization,
            connection: None,
            most: MAX_ANSWER,
        }
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// There was no answer: one sentence.
    pub(crate) async fn send(&mut self, request: &Arc<sink::Request>) -> Result<Answer, String> {
        let sent = self.try_send(request).await;
        if sent.is_err() {
            self.connection = None;
        }
        sent
    }

    async fn try_send(&mut self, request: &Arc<sink::Request>) -> Result<Answer, String> {
        let Destination {
            authority, path, tls, ..
        } = &self.destination;
        let usual = if tls.is_some() { ":443" } else { ":80" };
        let host = authority.strip_suffix(usual).unwrap_or(authority);
        let mut builder = Request::builder()
            .method(request.method)
            .uri(format!("{path}{}", request.target))
            .header(header::HOST, host)
            .header(header::USER_AGENT, concat!("hopwise/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        if request.body.is_empty() && request.method != "GET" {
            // The client leaves it out, and some servers want it.
            builder = builder.header(header::CONTENT_LENGTH, 0);
        }
        if let Some(authorization) = &self.authorization {
            builder = builder.header(header::AUTHORIZATION, authorization);
        }
        if let Some(Login::Key(key)) = &self.destination.login {
            for (name, value) in key.sign(request, host, path, nic::time::now()) {
                builder = builder.header(name, value);
            }
        }
        let message = builder
            .body(Full::new(Bytes::from_owner(Content(Arc::clone(request)))))
            .map_err(|error| format!("{authority}: {error}"))?;
        let authority = authority.clone();
        let sender = self.sender().await?;
        let response = sender
            .send_request(message)
            .await
            .map_err(|error| tls::reason(&error, &authority))?;
        let answer = read(response, self.most)
            .await
            .map_err(|error| tls::reason(&error, &authority))?;
        Ok(Answer {
            host: authority,
            ..answer
        })
    }

    /// The connection, a new one if the server has closed the last.
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
                let stream = socket::connect(&self.destination).await?;
                let handshake = http1::handshake(TokioIo::new(stream)).await;
                let authority = &self.destination.authority;
                let (sender, connection) = handshake.map_err(|error| tls::reason(&error, authority))?;
                // Its error is that of the request.
                let task = tokio::spawn(async move { _ = connection.await }).abort_handle();
                Ok(&mut empty.insert(Connection { sender, task }).sender)
            }
        }
    }
}

/// Reads the body as far as words and errors by item need it, and no further: then the connection is not used again.
async fn read(response: Response<Incoming>, most: usize) -> Result<Answer, hyper::Error> {
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
            let room = most - body.len();
            is_cut = data.len() > room;
            body.extend_from_slice(&data[..data.len().min(room)]);
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

/// The longest answer that is read, bytes: errors for each of 10,000 items.
const MAX_ANSWER: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use super::*;
    use crate::config::export::{ExportKind, ExportSettings};

    #[test]
    fn a_request_says_how_long_it_is_also_if_it_is_empty() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
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
        let settings = ExportSettings {
            kind: Some(ExportKind::Otlp),
            url,
            ..ExportSettings::default()
        };
        let request = sink::Request {
            method: "POST",
            target: "/v1/logs".to_owned(),
            ..Default::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut client = Client::new(settings.destination().unwrap());
        let answer = runtime.block_on(client.send(&Arc::new(request))).unwrap();
        assert_eq!(answer.status, 204);
        let head = server.join().unwrap().to_lowercase();
        assert!(head.contains("content-length: 0\r\n"), "{head}");
    }
}
