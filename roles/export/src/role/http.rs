//! Exports by HTTP.

use std::{collections::BTreeSet, sync::Arc};

use export::{
    Outcome,
    record::Stream,
    sink::{self, Batch, HttpSink},
};
use net::{
    destination::Destination,
    http::{Answer, Client},
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
