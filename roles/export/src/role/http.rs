//! The link to a system that receives records by HTTP.

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

/// The HTTP client of an export, and the request in progress.
#[derive(Debug)]
pub(super) struct HttpLink {
    sink: Arc<dyn HttpSink>,
    client: Client,
    request: Arc<sink::Request>,
    answer: Option<Answer>,
}

impl HttpLink {
    /// Creates the link without connecting. `most` limits the size of an answer, bytes.
    pub(super) fn new(sink: Box<dyn HttpSink>, destination: Destination, most: usize) -> Self {
        let client = Client::new(destination).limited(most);
        Self {
            sink: sink.into(),
            client,
            request: Arc::default(),
            answer: None,
        }
    }

    /// Returns the sink, which encodes the requests.
    pub(super) fn sink(&self) -> Arc<dyn HttpSink> {
        Arc::clone(&self.sink)
    }

    /// Returns the memory of the current request, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.request.body.capacity()
    }

    /// Prepares the request of a batch, or takes the one encoded `ahead`. Returns `false` if no record is for this system.
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
        // Without rows, each record counts as one row.
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

/// Converts a sink's request for the client. They share the body, which the sink may need to interpret the answer.
pub(super) fn message(request: &Arc<sink::Request>) -> Request {
    Request {
        method: request.method,
        target: request.target.clone(),
        headers: request.headers.clone(),
        body: Bytes::from_owner(Content(Arc::clone(request))),
    }
}

/// Converts the client's answer for the sink.
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
