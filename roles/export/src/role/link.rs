//! The link to one external system: prepares and sends batches of records, and interprets the answers.

use std::{sync::Arc, time::Duration};

use export::{
    Outcome,
    record::Stream,
    sink::{Batch, HttpSink, Request},
};

use super::{
    answered::{Answered, Failure},
    http::HttpLink,
    kafka::KafkaLink,
    parquet::ParquetLink,
    redis::RedisLink,
    s3::ObjectLink,
    syslog::SyslogLink,
};
use crate::settings::{Sink, Statement};
use net::destination::Destination;

/// The transport of one system. For each batch call `begin`, then `send` and `answered`, which may ask to send again.
#[derive(Debug)]
pub(super) enum ExportLink {
    Http(HttpLink),
    Redis(Box<RedisLink>),
    Syslog(SyslogLink),
    Kafka(Box<KafkaLink>),
    Parquet(ParquetLink),
    Objects(Box<ObjectLink>),
}

impl ExportLink {
    /// Creates the link without connecting. `most` limits the size of an answer, bytes.
    pub(super) fn new(sink: Sink, destination: Destination, timeout: Duration, most: usize) -> Self {
        match sink {
            Sink::Http(sink) => Self::Http(HttpLink::new(sink, destination, most)),
            Sink::Redis(sink) => Self::Redis(Box::new(RedisLink::new(sink, destination))),
            Sink::Syslog(sink) => Self::Syslog(SyslogLink::new(sink, destination)),
            Sink::Kafka(sink) => Self::Kafka(Box::new(KafkaLink::new(sink, destination, timeout))),
            Sink::Parquet => Self::Parquet(ParquetLink::new(destination.path.into())),
            Sink::Objects(key) => Self::Objects(Box::new(ObjectLink::new(key, destination))),
        }
    }

    /// Returns the encoder of requests that depend only on the records, or `None` if requests need more than those.
    pub(super) fn sink(&self) -> Option<Arc<dyn HttpSink>> {
        match self {
            Self::Http(link) => Some(link.sink()),
            _ => None,
        }
    }

    /// Prepares the request for a batch, or takes the one encoded `ahead`. Returns `false` if no record is for this system.
    pub(super) fn begin(&mut self, batch: &Batch<'_>, ahead: Option<Request>) -> bool {
        match self {
            Self::Http(link) => link.begin(batch, ahead),
            Self::Redis(link) => link.begin(batch),
            Self::Syslog(link) => link.begin(batch),
            Self::Kafka(link) => link.begin(batch),
            Self::Parquet(link) => link.begin(batch),
            Self::Objects(link) => link.begin(batch),
        }
    }

    /// Returns the size of the prepared request, bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Http(link) => link.bytes(),
            Self::Redis(link) => link.bytes(),
            Self::Syslog(link) => link.bytes(),
            Self::Kafka(link) => link.bytes(),
            Self::Parquet(link) => link.bytes(),
            Self::Objects(link) => link.bytes(),
        }
    }

    /// Sends the request and reads the answer. If the future is dropped before it completes, the connection is closed.
    pub(super) async fn send(&mut self) -> Result<(), Failure> {
        match self {
            Self::Http(link) => Ok(link.send().await?),
            Self::Redis(link) => link.send().await,
            Self::Syslog(link) => Ok(link.send().await?),
            Self::Kafka(link) => link.send().await,
            Self::Parquet(link) => Ok(link.send().await?),
            Self::Objects(link) => Ok(link.send().await?),
        }
    }

    /// Interprets the answer. `batch` must be the one passed to `begin`.
    pub(super) fn answered(&mut self, batch: &Batch<'_>) -> Answered {
        match self {
            Self::Http(link) => link.answered(batch),
            Self::Redis(link) => link.answered(batch),
            Self::Syslog(_) | Self::Parquet(_) => Answered::done(Outcome::DONE),
            Self::Kafka(link) => link.answered(),
            Self::Objects(link) => link.answered(),
        }
    }

    /// Checks that the system is reachable, accepts the credentials and has the tables or topics. Errors suggest a fix.
    pub(super) async fn probe(&mut self, streams: &[Stream]) -> Result<(), String> {
        match self {
            Self::Http(link) => link.probe(streams).await,
            Self::Redis(link) => link.probe().await,
            Self::Syslog(link) => link.probe().await,
            Self::Kafka(link) => link.probe(streams).await,
            Self::Parquet(link) => link.probe(),
            Self::Objects(link) => link.probe().await,
        }
    }

    /// Removes what an earlier process left unfinished.
    pub(super) fn clean(&self, stream: Stream, collector: &str) -> Result<(), String> {
        match self {
            Self::Parquet(link) => link.clean(stream, collector),
            _ => Ok(()),
        }
    }

    /// Creates a table or topic that the system lacks.
    pub(super) async fn execute(&mut self, statement: Statement) -> Result<(), String> {
        match (self, statement) {
            (Self::Http(link), Statement::Http(request)) => link.execute(request).await,
            (
                Self::Kafka(link),
                Statement::Topic {
                    stream, partitions, ..
                },
            ) => link.make(stream, partitions).await,
            _ => Err("this system needs nothing".to_owned()),
        }
    }
}
