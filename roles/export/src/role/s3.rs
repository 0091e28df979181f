//! The link to S3: puts each Parquet file as an object, one request after the other, with signed requests.

use std::sync::Arc;

use export::sink::{Batch, Request, parquet, s3};
use tokio::task;

use super::{
    answered::Answered,
    http::{message, response},
};
use net::{
    destination::Destination,
    http::{Answer, Client},
};

/// The client of the object store, and the files of the current batch.
#[derive(Debug)]
pub(super) struct ObjectLink {
    client: Client,
    key: s3::Key,
    /// The `Host` header, which is part of the signature.
    host: String,
    /// Path prefix of all objects.
    path: String,
    files: Vec<parquet::File>,
    /// The requests that put the files.
    requests: Vec<Arc<Request>>,
    /// The answer to the last request, or to the first that failed.
    answer: Option<Answer>,
}

impl ObjectLink {
    /// Creates the link without connecting.
    pub(super) fn new(key: s3::Key, destination: Destination) -> Self {
        Self {
            key,
            host: destination.host().to_owned(),
            path: destination.path.clone(),
            client: Client::new(destination),
            files: Vec::new(),
            requests: Vec::new(),
            answer: None,
        }
    }

    pub(super) fn begin(&mut self, batch: &Batch<'_>) -> bool {
        self.files = parquet::files(batch);
        self.requests.clear();
        self.answer = None;
        !self.files.is_empty()
    }

    /// Puts the files. After a failure all are put again, replacing equal objects.
    pub(super) async fn send(&mut self) -> Result<(), String> {
        if !self.files.is_empty() {
            let files = std::mem::take(&mut self.files);
            // Hashing takes a while for several megabytes.
            let made = task::spawn_blocking(|| files.into_iter().map(s3::put).map(Arc::new).collect());
            self.requests = made.await.map_err(|error| error.to_string())?;
        }
        for request in self.requests.clone() {
            let answer = self.send_signed(&request).await?;
            let is_put = (200..=299).contains(&answer.status);
            self.answer = Some(answer);
            if !is_put {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn answered(&mut self) -> Answered {
        match self.answer.take() {
            Some(answer) => {
                Answered::done(s3::outcome(&response(&answer)).explained(&answer.host, answer.status))
            }
            None => Answered::missing(),
        }
    }

    /// Returns the memory of the current files, bytes.
    pub(super) fn bytes(&self) -> usize {
        let files: usize = self.files.iter().map(|file| file.content.capacity()).sum();
        files
            + self
                .requests
                .iter()
                .map(|request| request.body.capacity())
                .sum::<usize>()
    }

    /// Checks that objects can be put there.
    pub(super) async fn probe(&mut self) -> Result<(), String> {
        let answer = self.send_signed(&Arc::new(s3::probe())).await?;
        s3::probed(&response(&answer))
    }

    async fn send_signed(&mut self, request: &Arc<Request>) -> Result<Answer, String> {
        let signature = self.key.sign(request, &self.host, &self.path, nic::time::now());
        let mut message = message(request);
        message.headers.extend(signature);
        self.client.send(message).await
    }
}
