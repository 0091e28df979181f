//! Settings of exports: the tables `[exports.NAME]`, and their conversion to encoders and deliveries.

mod destination;
pub mod outlet;
mod sharing;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use export::{
    Settings as DeliverySettings,
    record::Stream,
    sink::{
        HttpSink, Request,
        alertmanager::{self, Alertmanager},
        clickhouse::ClickHouse,
        influxdb::{self, InfluxDb},
        kafka::{self, Kafka},
        opensearch::{self, OpenSearch},
        otlp::{self, Otlp},
        redis::{self, Redis},
        remote_write::{self, RemoteWrite},
        s3,
        syslog::{self, Syslog},
        webhook::{self, Webhook},
    },
    spool::{Limits, WhenFull},
};
use settings::{choice, section, values::Size};

pub use self::sharing::{Share, SharedExportSettings, Shares, not_enough, shares};
use net::destination::Mechanism;
use runtime::host;

section! {
    /// Sends stored records to another system, at least once, with every record accounted for. Records are read from the store as
    /// soon as they are committed. Records that the other system has not accepted yet stay in the store, so `[store] max_age` and
    /// `max_bytes` bound how long they wait.
    pub struct ExportSettings("[exports.NAME]") {
        /// The system that receives.
        pub kind: Option<ExportKind> = None,
        /// Address of the system. HTTP: `http://HOST:PORT` or `https://HOST:PORT`. Redis: `redis://HOST:PORT` or,
        /// with TLS, `rediss://HOST:PORT`, and optionally the number of a database (`/1`). Syslog and Kafka:
        /// `tcp://HOST:PORT` or `tls://HOST:PORT`; Kafka accepts several brokers: `tcp://ONE:9092,OTHER:9092`.
        /// Parquet: a directory, `file:///DIRECTORY`, or an S3 bucket and a prefix of the object names,
        /// `https://HOST/BUCKET/PREFIX`.
        pub url: String = String::new(),
        /// Streams to send: `"events"`, `"rollups"`, `"flows"`, `"drops"`, `"losses"`, `"alerts"`, `"hops"`. `flows` sends the
        /// latest state of each flow, `alerts` the events of rules in their own format, and `hops` the hops of selected reports.
        /// Empty: all but `alerts`, `hops` and `flows`; Redis and ClickHouse also get `flows`, `remote_write` gets only rollups,
        /// `webhook` and `syslog` only events, and `alertmanager` only alerts.
        pub streams: Vec<String> = Vec::new(),
        /// Start with the oldest stored record, or with the records stored after the first start.
        pub start: ExportStart = ExportStart::Oldest,
        /// ClickHouse and InfluxDB 1: the database.
        pub database: String = "hopwise".to_owned(),
        /// Prefix of the names of tables (ClickHouse; default: none), measurements (InfluxDB; default: `hopwise_`), data streams
        /// (OpenSearch), metrics (remote write), topics (Kafka) and keys (Redis; each collector needs its own), and the service
        /// name (OTLP); the default of these five is `hopwise`.
        pub prefix: Option<String> = None,
        /// InfluxDB 2: the organisation. With it and `bucket`, version 2 of its API is used.
        pub organisation: Option<String> = None,
        /// InfluxDB 2: the bucket.
        pub bucket: Option<String> = None,
        /// InfluxDB 1: the retention policy; not set: the database's default.
        pub retention_policy: Option<String> = None,
        /// InfluxDB: fields to write as tags, in addition to the standard tags. Each value of a tag creates a series.
        pub tags: Vec<String> = Vec::new(),
        /// Remote write and OTLP: also send the rollups of flows. Each flow creates one series per metric.
        pub flows: bool = false,
        /// Webhook: send one JSON object per line instead of one array.
        pub lines: bool = false,
        /// Alertmanager: further labels of every alert.
        pub labels: BTreeMap<String, String> = BTreeMap::new(),
        /// OpenSearch: write data streams instead of plain indices.
        pub data_streams: bool = true,
        /// ClickHouse: days after which rows are deleted from the tables that `hopwise schema apply` creates; 0: never.
        pub keep_days: u32 = 30,
        /// Redis: approximate number of entries kept in a stream; 0: all.
        pub max_len: u64 = 1_000_000,
        /// Redis: time after its last change at which a flow is removed; 0: never.
        pub expire: Duration = Duration::from_secs(3600),
        /// Kafka: format of a message's value.
        pub format: kafka::Format = kafka::Format::Protobuf,
        /// Kafka: compression of messages.
        pub compression: kafka::Compression = kafka::Compression::Lz4,
        /// Kafka: use the flow, or without one the node, as the key of a message, so that messages of one flow or node stay in
        /// order. Without keys, messages are spread evenly over the partitions.
        pub keys: bool = true,
        /// Kafka: number of partitions of the topics that `hopwise schema apply` creates; 0: the server's default.
        pub partitions: u32 = 0,
        /// Kafka: SASL mechanism for user and password.
        pub mechanism: Mechanism = Mechanism::ScramSha512,
        /// Syslog: the facility, 0 to 23; 16 is `local0`.
        pub facility: u8 = 16,
        /// Syslog: SD-ID of the structured data: a name, `@` and your IANA private enterprise number. 32473 is the number reserved
        /// for examples.
        pub sd_id: String = "hopwise@32473".to_owned(),
        /// Parquet in S3: the region of the bucket.
        pub region: String = "us-east-1".to_owned(),
        /// User name, or the ID of an S3 access key. Not set: none is sent.
        pub user: Option<String> = None,
        /// File with the user's password in its first line, or with the secret of the S3 access key. Redis accepts a password
        /// without a user.
        pub password_file: Option<PathBuf> = None,
        /// File with a bearer token in its first line, instead of user and password.
        pub token_file: Option<PathBuf> = None,
        /// PEM file with the certificate authorities to trust for TLS; those of the system are not trusted.
        pub ca: Option<PathBuf> = None,
        /// PEM file with a client certificate, if the server requires one.
        pub certificate: Option<PathBuf> = None,
        /// PEM file with the certificate's private key.
        pub key: Option<PathBuf> = None,
        /// Send password or token without encryption, too, to other hosts. Anyone who can read the network can then use them.
        pub unencrypted: bool = false,
        /// Maximum number of records in one request or file. Not set: 10000; with ClickHouse or Parquet 200000.
        pub batch: Option<usize> = None,
        /// Maximum memory of one batch. Each stream holds two batches and their requests in memory. Batches are smaller if
        /// `[export] memory` is too small for all. Not set: 8 MiB, with ClickHouse or Parquet 32 MiB; a quarter of that for
        /// rollups, and an eighth for flows, drops, losses and alerts.
        pub batch_size: Option<Size> = None,
        /// Time to wait for a batch to fill; with Parquet, the period of one file. Not set: 1 s, with Parquet 5 min.
        pub linger: Option<Duration> = None,
        /// Time to wait for a response.
        pub timeout: Duration = Duration::from_secs(30),
        /// Stream `hops`: which reports to send. `"sampled"`: those of one in `sample` datagrams. `"events"`: those that caused an
        /// event of their flow, such as a change.
        pub hop_reports: HopReports = HopReports::Sampled,
        /// Stream `hops`: one datagram in this many. The choice depends on the reporter and the sequence number, so all hops of a
        /// report are sent together, and two collectors choose the same reports.
        pub sample: u64 = 100,
        /// Stream `hops`: memory for pending hops. Hops are not stored: those beyond half of this memory are spooled to files.
        pub queue: Size = Size(64 << 20),
        /// Stream `hops`: maximum size of the spool files, in the store's directory.
        pub spool: Size = Size(1 << 30),
        /// Stream `hops`: which hops to drop when the spool is full. Dropped hops are counted.
        pub when_full: WhenFull = WhenFull::DropOldest,
        /// Maximum size of the file, in the store's directory, for records that the system permanently rejects; further ones are
        /// only counted.
        pub rejected: Size = Size(64 << 20),
    }
}

choice! {
    /// A system that receives.
    pub enum ExportKind("\"clickhouse\", \"influxdb\", \"opensearch\", \"remote_write\", \"webhook\", \"alertmanager\", \"redis\", \"syslog\", \"kafka\", \"otlp\" or \"parquet\"") {
        /// ClickHouse, through its HTTP interface.
        ClickHouse = "clickhouse",
        /// InfluxDB, and what takes its line protocol.
        InfluxDb = "influxdb",
        /// OpenSearch and Elasticsearch, with bulk requests.
        OpenSearch = "opensearch",
        /// Prometheus, and what takes its remote write.
        RemoteWrite = "remote_write",
        /// JSON to any URL.
        Webhook = "webhook",
        /// Alertmanager: only the alerts of rules.
        Alertmanager = "alertmanager",
        /// Streams and hashes of Redis or Valkey.
        Redis = "redis",
        /// Syslog over TCP or TLS.
        Syslog = "syslog",
        /// Topics of Apache Kafka.
        Kafka = "kafka",
        /// OpenTelemetry: OTLP over HTTP.
        Otlp = "otlp",
        /// Files of Apache Parquet in a directory or a bucket.
        Parquet = "parquet",
    }
}

choice! {
    /// Selects the reports whose hops are sent.
    pub enum HopReports("\"sampled\" or \"events\"") {
        /// One datagram in `sample`.
        Sampled = "sampled",
        /// Reports with an event.
        Events = "events",
    }
}

choice! {
    /// Where an export begins.
    pub enum ExportStart("\"oldest\" or \"newest\"") {
        /// With the oldest stored record.
        Oldest = "oldest",
        /// With what is stored from the first start on.
        Newest = "newest",
    }
}

/// A key, and the reason its value is invalid.
pub type Wrong = (&'static str, String);

/// The encoder of requests to a system.
#[derive(Debug)]
pub enum Sink {
    /// Requests of an HTTP API.
    Http(Box<dyn HttpSink>),
    /// Pipelines of Redis commands.
    Redis(Redis),
    /// Syslog messages (RFC 5424).
    Syslog(Syslog),
    /// Produce requests with keyed messages.
    Kafka(Kafka),
    /// Parquet files in a directory.
    Parquet,
    /// Parquet files as S3 objects, signed with this key.
    Objects(s3::Key),
}

/// A statement that creates a part of a system's schema.
#[derive(Debug)]
pub enum Statement {
    /// An HTTP request to send.
    Http(Request),
    /// A Kafka topic to create.
    Topic {
        /// The stream that the topic carries.
        stream: Stream,
        /// The number of partitions; 0 selects the server's default.
        partitions: u32,
        /// The equivalent command of Kafka's own tools.
        command: String,
    },
}

impl Statement {
    /// Formats the statement for display.
    pub fn text(&self) -> String {
        match self {
            Self::Topic { command, .. } => format!("{command}\n"),
            Self::Http(request) => {
                let text = String::from_utf8_lossy(&request.body);
                match request.target.as_str() {
                    "/" => format!("{text};\n\n"),
                    target => format!("{} {target}\n{text}\n\n", request.method),
                }
            }
        }
    }
}

impl ExportSettings {
    /// Returns the streams to send, in the order of their codes.
    ///
    /// # Errors
    /// An unknown stream, or one that the system does not accept.
    pub fn streams(&self) -> Result<Vec<Stream>, Wrong> {
        let mut streams = self
            .streams
            .iter()
            .map(|name| named_stream(name))
            .collect::<Result<Vec<_>, _>>()?;
        streams.sort();
        streams.dedup();
        let only = match self.kind {
            Some(ExportKind::RemoteWrite) => Some(Stream::Rollups),
            Some(ExportKind::Alertmanager) => Some(Stream::Alerts),
            _ => None,
        };
        match (streams.is_empty(), only, self.kind) {
            (true, Some(only), _) => Ok(vec![only]),
            (true, None, Some(ExportKind::Webhook | ExportKind::Syslog)) => Ok(vec![Stream::Events]),
            (true, ..) => Ok(Stream::ALL
                .into_iter()
                .filter(|stream| self.is_default(*stream))
                .collect()),
            (false, Some(only), _) if streams != [only] => Err((
                "streams",
                format!(
                    "it takes {0} only; write streams = [\"{0}\"], or leave it out",
                    only.name()
                ),
            )),
            _ => Ok(streams),
        }
    }

    /// Returns whether a stream is sent by default.
    fn is_default(&self, stream: Stream) -> bool {
        match stream {
            Stream::Events | Stream::Rollups | Stream::Drops | Stream::Losses => true,
            // A console reads flows from ClickHouse.
            Stream::Flows => matches!(self.kind, Some(ExportKind::Redis | ExportKind::ClickHouse)),
            // Alerts are also events, and hops are numerous.
            Stream::Alerts | Stream::Hops => false,
        }
    }

    /// Builds the encoder of this system's requests.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub fn sink(&self) -> Result<Sink, Wrong> {
        let kind = self.kind.ok_or_else(|| {
            (
                "kind",
                format!(
                    "the kind of system is missing; write kind = one of {}",
                    <ExportKind as settings::setting::Setting>::KIND
                ),
            )
        })?;
        match kind {
            ExportKind::ClickHouse => Ok(Sink::Http(Box::new(self.clickhouse()?))),
            ExportKind::InfluxDb => Ok(Sink::Http(Box::new(self.influxdb()?))),
            ExportKind::OpenSearch => Ok(Sink::Http(Box::new(self.opensearch()?))),
            ExportKind::RemoteWrite => Ok(Sink::Http(Box::new(self.remote_write()?))),
            ExportKind::Webhook => Ok(Sink::Http(Box::new(self.webhook()?))),
            ExportKind::Alertmanager => Ok(Sink::Http(Box::new(self.alertmanager()?))),
            ExportKind::Redis => Ok(Sink::Redis(self.redis()?)),
            ExportKind::Syslog => Ok(Sink::Syslog(self.syslog()?)),
            ExportKind::Kafka => Ok(Sink::Kafka(self.kafka()?)),
            ExportKind::Otlp => Ok(Sink::Http(Box::new(self.otlp()?))),
            ExportKind::Parquet if self.is_bucket() => Ok(Sink::Objects(self.access_key()?)),
            ExportKind::Parquet => Ok(Sink::Parquet),
        }
    }

    /// Builds the encoder of Kafka messages.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub(super) fn kafka(&self) -> Result<Kafka, Wrong> {
        let options = kafka::Options {
            prefix: self.prefix.clone().unwrap_or(kafka::Options::default().prefix),
            format: self.format,
            compression: self.compression,
            keys: self.keys,
        };
        Kafka::new(&options).map_err(|error| ("prefix", error))
    }

    fn redis(&self) -> Result<Redis, Wrong> {
        let defaults = redis::Options::default();
        let path = self.address().map_or("", |address| address.path);
        let path = path.trim_start_matches('/');
        let database = if path.is_empty() { Ok(0) } else { path.parse() };
        let options = redis::Options {
            prefix: self.prefix.clone().unwrap_or(defaults.prefix),
            database: database.map_err(|_| {
                (
                    "url",
                    format!("invalid database {path:?}; write its number, such as redis://127.0.0.1:6379/1"),
                )
            })?,
            max_len: self.max_len,
            expire: u64::try_from(self.expire.as_millis()).unwrap_or(u64::MAX),
        };
        Redis::new(&options).map_err(|error| ("prefix", error))
    }

    fn syslog(&self) -> Result<Syslog, Wrong> {
        let defaults = syslog::Options::default();
        let hostname = Some(host::name())
            .filter(|name| !name.is_empty())
            .unwrap_or(defaults.hostname);
        let options = syslog::Options {
            facility: self.facility,
            sd_id: self.sd_id.clone(),
            hostname,
            ..defaults
        };
        let key = if self.facility > 23 { "facility" } else { "sd_id" };
        Syslog::new(&options).map_err(|error| (key, error))
    }

    /// Builds the encoder for the ClickHouse tables.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub(super) fn clickhouse(&self) -> Result<ClickHouse, Wrong> {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        ClickHouse::new(&self.database, prefix, self.keep_days).map_err(|error| ("database", error))
    }

    fn influxdb(&self) -> Result<InfluxDb, Wrong> {
        let api = match (&self.organisation, &self.bucket) {
            (Some(organisation), Some(bucket)) => influxdb::Api::V2 {
                org: organisation.clone(),
                bucket: bucket.clone(),
            },
            (None, None) => influxdb::Api::V1 {
                database: self.database.clone(),
                retention_policy: self.retention_policy.clone(),
            },
            _ => {
                let message = "write both `organisation` and `bucket` (InfluxDB 2), or neither (InfluxDB 1)";
                return Err(("bucket", message.to_owned()));
            }
        };
        let defaults = influxdb::Options::default();
        let prefix = self.prefix.clone().unwrap_or(defaults.prefix.clone());
        let options = influxdb::Options {
            api,
            prefix,
            tags: self.tags.clone(),
            ..defaults
        };
        InfluxDb::new(&options).map_err(|error| ("database", error))
    }

    fn remote_write(&self) -> Result<RemoteWrite, Wrong> {
        let prefix = self
            .prefix
            .clone()
            .unwrap_or(remote_write::Options::default().prefix);
        let options = remote_write::Options {
            prefix,
            flows: self.flows,
        };
        RemoteWrite::new(&options).map_err(|error| ("prefix", error))
    }

    fn otlp(&self) -> Result<Otlp, Wrong> {
        let service = self.prefix.clone().unwrap_or(otlp::Options::default().service);
        Otlp::new(&otlp::Options {
            service,
            flows: self.flows,
        })
        .map_err(|error| ("prefix", error))
    }

    fn webhook(&self) -> Result<Webhook, Wrong> {
        let format = if self.lines {
            webhook::Format::Lines
        } else {
            webhook::Format::Array
        };
        let options = webhook::Options {
            target: self.hook().to_owned(),
            format,
        };
        Webhook::new(&options).map_err(|error| ("url", error))
    }

    /// Returns the path of a webhook's URL, which is its request target.
    fn hook(&self) -> &str {
        let path = self.address().map_or("", |address| address.path);
        if path.is_empty() { "/" } else { path }
    }

    fn alertmanager(&self) -> Result<Alertmanager, Wrong> {
        let labels = self
            .labels
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let options = alertmanager::Options {
            labels,
            ..alertmanager::Options::default()
        };
        Alertmanager::new(&options).map_err(|error| ("labels", error))
    }

    fn opensearch(&self) -> Result<OpenSearch, Wrong> {
        let defaults = opensearch::Options::default();
        let prefix = self.prefix.clone().unwrap_or(defaults.prefix);
        let options = opensearch::Options {
            prefix,
            data_streams: self.data_streams,
        };
        OpenSearch::new(&options).map_err(|error| ("prefix", error))
    }

    /// Returns the statements that create the system's schema, in order.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub fn schema(&self) -> Result<Vec<Statement>, Wrong> {
        self.sink()?;
        let streams = self.streams()?;
        match self.kind {
            Some(ExportKind::ClickHouse) => Ok(self
                .clickhouse()?
                .schema(&streams)
                .into_iter()
                .map(|text| {
                    Statement::Http(Request {
                        method: "POST",
                        target: "/".to_owned(),
                        body: text.into_bytes(),
                        ..Request::default()
                    })
                })
                .collect()),
            Some(ExportKind::OpenSearch) => {
                let sink = self.opensearch()?;
                Ok(streams
                    .into_iter()
                    .map(|stream| Statement::Http(sink.template(stream)))
                    .collect())
            }
            Some(ExportKind::Kafka) => {
                let sink = self.kafka()?;
                Ok(streams
                    .into_iter()
                    .map(|stream| Statement::Topic {
                        stream,
                        partitions: self.partitions,
                        command: sink.statement(stream, self.partitions),
                    })
                    .collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the limits of batches and the timers of the delivery.
    pub fn delivery(&self) -> DeliverySettings {
        // Every insert into ClickHouse creates a part of the table, to be merged later, so fewer and larger inserts cost less.
        let (records, bytes, linger) = match self.kind {
            Some(ExportKind::ClickHouse) => (200_000, 32 << 20, 1),
            Some(ExportKind::Parquet) => (200_000, 32 << 20, 300),
            _ => (10_000, 8 << 20, 1),
        };
        DeliverySettings {
            records: self.batch.unwrap_or(records),
            bytes: self
                .batch_size
                .map_or(bytes, |size| usize::try_from(size.0).unwrap_or(usize::MAX)),
            linger: nanoseconds(self.linger.unwrap_or(Duration::from_secs(linger))),
            timeout: nanoseconds(self.timeout),
            ..DeliverySettings::default()
        }
    }

    /// Returns the limits of the spool, and the memory for hops in front of it, bytes.
    pub fn hop_limits(&self) -> (Limits, usize) {
        let all = usize::try_from(self.queue.0).unwrap_or(usize::MAX);
        let inbox = all / 4;
        let memory = all - inbox;
        let segment = (memory / 4).min(Limits::default().segment);
        (
            Limits {
                memory,
                segment,
                disk: self.spool.0,
                when_full: self.when_full,
            },
            inbox,
        )
    }

    /// Returns all problems of the settings.
    pub fn problems(&self) -> Vec<Wrong> {
        let mut problems: Vec<Wrong> = [self.streams().err(), self.sink().err(), self.destination().err()]
            .into_iter()
            .flatten()
            .collect();
        if self.batch.is_some_and(|batch| !(1..=200_000).contains(&batch)) {
            problems.push(("batch", "write a number from 1 to 200000".to_owned()));
        }
        if self
            .batch_size
            .is_some_and(|size| !(64 << 10..=256 << 20).contains(&size.0))
        {
            problems.push(("batch_size", "write \"64 KiB\" to \"256 MiB\"".to_owned()));
        }
        if self
            .linger
            .is_some_and(|linger| linger > Duration::from_secs(3600))
        {
            problems.push(("linger", "write \"0s\" to \"1h\"".to_owned()));
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(600)).contains(&self.timeout) {
            problems.push(("timeout", "write \"100ms\" to \"10m\"".to_owned()));
        }
        if !(1..=1_000_000_000).contains(&self.sample) {
            problems.push(("sample", "write a number from 1 to 1000000000".to_owned()));
        }
        if !(4 << 20..=16 << 30).contains(&self.queue.0) {
            problems.push(("queue", "write \"4 MiB\" to \"16 GiB\"".to_owned()));
        }
        problems
    }
}

fn named_stream(name: &str) -> Result<Stream, Wrong> {
    Stream::ALL
        .into_iter()
        .find(|stream| stream.name() == name)
        .ok_or_else(|| {
            let names = Stream::ALL.map(Stream::name).join(", ");
            (
                "streams",
                format!("there is no stream {name:?}; write some of {names}"),
            )
        })
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns whether an export's name can be part of a file name.
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}
