//! Connections of exports that send by HTTP.

use std::{collections::BTreeSet, sync::Arc};

use export::{
    Outcome,
    record::Stream,
    sink::{self, Batch, HttpSink, Response},
};
use net::{
    destination::Destination,
    http::{Answer, Bytes, Client, Request},
};

use super::answered::Answered;

/// A system that takes requests.
#[derive(Debug)]
pub(super) struct HttpLink {
    sink: Arc<dyn HttpSink>,
    client: Client,
    request: Arc<sink::Request>,
    answer: Option<Answer>,
}

impl HttpLink {
    /// No connection is made yet.
    pub(super) fn new(sink: Box<dyn HttpSink>, destination: Destination, most: usize) -> Self {
        let client = Client::new(destination).limited(most);
        Self {
            sink: sink.into(),
            client,
            request: Arc::default(),
            answer: None,
        }
    }

    /// The sink, which encodes the requests.
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
        self.request = Arc::new(request.unwrap_or_default());
        self.answer = None;
        is_some
    }

    pub(super) async fn send(&mut self) -> Result<(), String> {
        self.answer = Some(self.client.send(message(&self.request)).await?);
        Ok(())
    }

    pub(super) fn answered(&mut self, batch: &Batch<'_>) -> Answered {
        let Some(answer) = self.answer.take() else {
            return Answered::missing();
        };
        let outcome = self
            .sink
            .outcome(batch, &self.request, &response(&answer))
            .explained(&answer.host, answer.status);
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
        let answer = self.client.send(message(&request)).await?;
        self.sink.executed(&request, &response(&answer))
    }

    pub(super) async fn probe(&mut self, streams: &[Stream]) -> Result<(), String> {
        let request = Arc::new(self.sink.probe(streams));
        let answer = self.client.send(message(&request)).await?;
        self.sink.probed(streams, &response(&answer))
    }
}

/// Converts a sink's request for the client. The body is shared: the sink may need it to understand the answer.
pub(super) fn message(request: &Arc<sink::Request>) -> Request {
    Request {
        method: request.method,
        target: request.target.clone(),
        headers: request.headers.clone(),
        body: Bytes::from_owner(Content(Arc::clone(request))),
    }
}

/// Converts the client's answer for a sink.
pub(super) fn response(answer: &Answer) -> Response<'_> {
    Response {
        status: answer.status,
        retry_after: answer.retry_after,
        body: &answer.body,
        is_cut: answer.is_cut,
    }
}

struct Content(Arc<sink::Request>);

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        &self.0.body
    }
}
