//! `[exports.NAME]`: records to other systems.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use export::{
    Settings as DeliverySettings,
    record::Stream,
    sink::{
        HttpSink, Request,
        alertmanager::{self, Alertmanager},
        clickhouse::ClickHouse,
        influxdb::{self, InfluxDb},
        opensearch::{self, OpenSearch},
        remote_write::{self, RemoteWrite},
        webhook::{self, Webhook},
    },
};
use rustls::ClientConfig;
use settings::{choice, read, section, values::Size};

use crate::tls;

section! {
    /// Sends what is stored to another system, at least once and accounted for. It is read from the store as soon as it is committed there;
    /// what waits for the other system waits in the store, so that `[store] max_age` and `max_bytes` bound how long.
    pub(crate) struct ExportSettings("[exports.NAME]") {
        /// The system that receives.
        pub(crate) kind: Option<ExportKind> = None,
        /// Its address: `http://HOST:PORT` or `https://HOST:PORT`.
        pub(crate) url: String = String::new(),
        /// Streams to send: `"events"`, `"rollups"`, `"flows"`, `"drops"`, `"losses"`. Of `flows`, the latest state of each is sent. Empty:
        /// all but `flows`; with `remote_write` the rollups, with `webhook` and `alertmanager` the events.
        pub(crate) streams: Vec<String> = Vec::new(),
        /// Begin with the oldest stored record, or with those that are stored from the first start on.
        pub(crate) start: ExportStart = ExportStart::Oldest,
        /// ClickHouse and InfluxDB 1: the database.
        pub(crate) database: String = "hopwise".to_owned(),
        /// What names begin with: of tables (ClickHouse; default nothing), measurements (InfluxDB; default `hopwise_`), data streams
        /// (OpenSearch) and metrics (remote write; both default `hopwise`).
        pub(crate) prefix: Option<String> = None,
        /// InfluxDB 2: the organisation. With it and `bucket`, version 2 of its API is used.
        pub(crate) organisation: Option<String> = None,
        /// InfluxDB 2: the bucket.
        pub(crate) bucket: Option<String> = None,
        /// InfluxDB 1: the retention policy; not set: the database's default.
        pub(crate) retention_policy: Option<String> = None,
        /// InfluxDB: fields that are tags in addition to those that always are. Each value of a tag is a series.
        pub(crate) tags: Vec<String> = Vec::new(),
        /// Remote write: also the rollups of flows. Each flow is a series of its own for each metric.
        pub(crate) flows: bool = false,
        /// Webhook: an object per line, else one array.
        pub(crate) lines: bool = false,
        /// Alertmanager: further labels of every alert.
        pub(crate) labels: BTreeMap<String, String> = BTreeMap::new(),
        /// OpenSearch: write data streams, else plain indices.
        pub(crate) data_streams: bool = true,
        /// ClickHouse: days after which the tables that `hopwise schema apply` makes drop rows; 0: never.
        pub(crate) keep_days: u32 = 30,
        /// User. Not set: none is sent.
        pub(crate) user: Option<String> = None,
        /// File with the password of the user, in its first line.
        pub(crate) password_file: Option<PathBuf> = None,
        /// File with a bearer token, in its first line, instead of user and password.
        pub(crate) token_file: Option<PathBuf> = None,
        /// PEM file with the authorities of an `https://` address; those of the system are not trusted.
        pub(crate) ca: Option<PathBuf> = None,
        /// PEM file with a certificate of this client, if the server asks for one.
        pub(crate) certificate: Option<PathBuf> = None,
        /// PEM file with its key.
        pub(crate) key: Option<PathBuf> = None,
        /// Send password or token without encryption, too, to an address that is not this host: whoever reads the network can use them.
        pub(crate) unencrypted: bool = false,
        /// Records in one request, at most.
        pub(crate) batch: usize = 10_000,
        /// Memory of one batch, at most; two batches of each stream are in memory.
        pub(crate) batch_size: Size = Size(8 << 20),
        /// How long to wait for a batch to fill.
        pub(crate) linger: Duration = Duration::from_secs(1),
        /// How long to wait for an answer.
        pub(crate) timeout: Duration = Duration::from_secs(30),
        /// Records that the system will never take are written to a file in the store's directory, up to this size in bytes; beyond it
        /// they are only counted.
        pub(crate) rejected: Size = Size(64 << 20),
    }
}

choice! {
    /// A system that receives.
    pub(crate) enum ExportKind("\"clickhouse\", \"influxdb\", \"opensearch\", \"remote_write\", \"webhook\" or \"alertmanager\"") {
        /// ClickHouse, by HTTP.
        ClickHouse = "clickhouse",
        /// InfluxDB, and what takes its line protocol.
        InfluxDb = "influxdb",
        /// OpenSearch and Elasticsearch.
        OpenSearch = "opensearch",
        /// Prometheus, and what takes its remote write.
        RemoteWrite = "remote_write",
        /// JSON to any URL.
        Webhook = "webhook",
        /// Alerts of rules.
        Alertmanager = "alertmanager",
    }
}

choice! {
    /// Where an export begins.
    pub(crate) enum ExportStart("\"oldest\" or \"newest\"") {
        /// With the oldest stored record.
        Oldest = "oldest",
        /// With what is stored from the first start on.
        Newest = "newest",
    }
}

/// A key and what is wrong with it.
pub(crate) type Wrong = (&'static str, String);

/// Where requests go, and with what.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    /// `host:port`.
    pub(crate) authority: String,
    /// What the path of the URL puts before the sink's.
    pub(crate) path: String,
    /// TLS to it.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The header `Authorization`.
    pub(crate) authorization: Option<String>,
}

impl ExportSettings {
    /// The streams, in the order of their codes.
    ///
    /// # Errors
    /// A name that is no stream, or one that the system does not take.
    pub(crate) fn streams(&self) -> Result<Vec<Stream>, Wrong> {
        let of = |name: &String| {
            Stream::ALL.into_iter().find(|stream| stream.name() == name).ok_or_else(|| {
                let names = Stream::ALL.map(Stream::name).join(", ");
                ("streams", format!("there is no stream {name:?}; write some of {names}"))
            })
        };
        let mut streams = self.streams.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        streams.sort();
        streams.dedup();
        let only = match self.kind {
            Some(ExportKind::RemoteWrite) => Some(Stream::Rollups),
            Some(ExportKind::Alertmanager) => Some(Stream::Events),
            _ => None,
        };
        match (streams.is_empty(), only, self.kind) {
            (true, Some(only), _) => Ok(vec![only]),
            (true, None, Some(ExportKind::Webhook)) => Ok(vec![Stream::Events]),
            (true, ..) => Ok(Stream::ALL.into_iter().filter(|stream| *stream != Stream::Flows).collect()),
            (false, Some(only), _) if streams != [only] => Err((
                "streams",
                format!("it takes {0} only; write streams = [\"{0}\"], or leave it out", only.name()),
            )),
            _ => Ok(streams),
        }
    }

    /// How records become requests.
    ///
    /// # Errors
    /// A key and what is wrong with it.
    pub(crate) fn sink(&self) -> Result<Box<dyn HttpSink>, Wrong> {
        let kind = self.kind.ok_or_else(|| {
            (
                "kind",
                format!(
                    "which system receives? Write kind = one of {}",
                    <ExportKind as settings::setting::Setting>::KIND
                ),
            )
        })?;
        match kind {
            ExportKind::ClickHouse => Ok(Box::new(self.clickhouse()?)),
            ExportKind::InfluxDb => Ok(Box::new(self.influxdb()?)),
            ExportKind::OpenSearch => Ok(Box::new(self.opensearch()?)),
            ExportKind::RemoteWrite => Ok(Box::new(self.remote_write()?)),
            ExportKind::Webhook => Ok(Box::new(self.webhook()?)),
            ExportKind::Alertmanager => Ok(Box::new(self.alertmanager()?)),
        }
    }

    fn clickhouse(&self) -> Result<ClickHouse, Wrong> {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        ClickHouse::new(&self.database, prefix, self.keep_days).map_err(|error| ("database", error))
    }

    fn influxdb(&self) -> Result<InfluxDb, Wrong> {
        let api = match (&self.organisation, &self.bucket) {
            (Some(organisation), Some(bucket)) => {
                influxdb::Api::V2 { org: organisation.clone(), bucket: bucket.clone() }
            }
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
        let options = influxdb::Options { api, prefix, tags: self.tags.clone(), ..defaults };
        InfluxDb::new(&options).map_err(|error| ("database", error))
    }

    fn remote_write(&self) -> Result<RemoteWrite, Wrong> {
        let prefix = self.prefix.clone().unwrap_or(remote_write::Options::default().prefix);
        let options = remote_write::Options { prefix, flows: self.flows };
        RemoteWrite::new(&options).map_err(|error| ("prefix", error))
    }

    fn webhook(&self) -> Result<Webhook, Wrong> {
        let format = if self.lines { webhook::Format::Lines } else { webhook::Format::Array };
        let options = webhook::Options { target: self.hook().to_owned(), format };
        Webhook::new(&options).map_err(|error| ("url", error))
    }

    /// The path of a webhook's URL, which is the whole of its target.
    fn hook(&self) -> &str {
        let rest = tls::authority(&self.url).1;
        rest.find('/').map_or("/", |slash| &rest[slash..])
    }

    fn alertmanager(&self) -> Result<Alertmanager, Wrong> {
        let labels = self.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let options = alertmanager::Options { labels, ..alertmanager::Options::default() };
        Alertmanager::new(&options).map_err(|error| ("labels", error))
    }

    fn opensearch(&self) -> Result<OpenSearch, Wrong> {
        let defaults = opensearch::Options::default();
        let prefix = self.prefix.clone().unwrap_or(defaults.prefix);
        let options = opensearch::Options { prefix, data_streams: self.data_streams };
        OpenSearch::new(&options).map_err(|error| ("prefix", error))
    }

    /// The requests that make what the system lacks, in order.
    ///
    /// # Errors
    /// A key and what is wrong with it.
    pub(crate) fn schema(&self) -> Result<Vec<Request>, Wrong> {
        let statement = |text: String| Request {
            method: "POST",
            target: "/".to_owned(),
            body: text.into_bytes(),
            ..Request::default()
        };
        self.sink()?;
        let streams = self.streams()?;
        match self.kind {
            Some(ExportKind::ClickHouse) => {
                Ok(self.clickhouse()?.schema(&streams).into_iter().map(statement).collect())
            }
            Some(ExportKind::OpenSearch) => {
                let sink = self.opensearch()?;
                Ok(streams.into_iter().map(|stream| sink.template(stream)).collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Where requests go. Files are read.
    ///
    /// # Errors
    /// A key and what is wrong with it.
    pub(crate) fn destination(&self) -> Result<Destination, Wrong> {
        if !self.url.starts_with("http://") && !self.url.starts_with("https://") {
            return Err(("url", "where is it? Write url = \"http://127.0.0.1:8123\" or the like".to_owned()));
        }
        let (is_secure, rest) = tls::authority(&self.url);
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || authority.contains('@') || !is_plain(rest) || rest.contains(['?', '#']) {
            return Err((
                "url",
                "write only scheme, host, port and path; user and password have keys of their own".to_owned(),
            ));
        }
        let path = if self.kind == Some(ExportKind::Webhook) { "" } else { path };
        let port = if is_secure { 443 } else { 80 };
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
        let identity = tls::Identity::of(self.certificate.as_deref(), self.key.as_deref());
        let identity = identity.map_err(|problem| ("certificate", problem.message))?;
        let tls = match (is_secure, &self.ca) {
            (false, _) => None,
            (true, None) => {
                return Err((
                    "ca",
                    "an https:// address needs the certificate of its authority; name its PEM file"
                        .to_owned(),
                ));
            }
            (true, Some(ca)) => {
                Some(tls::client(ca, identity.as_ref()).map_err(|problem| ("ca", problem.message))?)
            }
        };
        let authorization = self.authorization()?;
        if authorization.is_some() && tls.is_none() && !self.unencrypted && !tls::is_loopback(&authority) {
            return Err((
                "url",
                format!(
                    "{authority} would get the password or token without encryption; use https:// with `ca`, or set unencrypted = true"
                ),
            ));
        }
        Ok(Destination { authority, path: path.to_owned(), tls, authorization })
    }

    fn authorization(&self) -> Result<Option<String>, Wrong> {
        let first_line = |key: &'static str, file: &PathBuf| {
            let text = read::file(file).map_err(|error| {
                (key, format!("cannot read {}: {error}; correct the name", file.display()))
            })?;
            let line = text.lines().next().unwrap_or_default().to_owned();
            match line.is_empty() || line.chars().any(char::is_control) {
                true => Err((
                    key,
                    format!(
                        "the first line of {} is empty or binary; write the secret there",
                        file.display()
                    ),
                )),
                false => Ok(line),
            }
        };
        match (&self.user, &self.password_file, &self.token_file) {
            (None, None, None) => Ok(None),
            (None, None, Some(file)) => {
                // InfluxDB 2 has a scheme of its own.
                let scheme = if self.kind == Some(ExportKind::InfluxDb) { "Token" } else { "Bearer" };
                Ok(Some(format!("{scheme} {}", first_line("token_file", file)?)))
            }
            (Some(user), Some(file), None) => {
                let password = first_line("password_file", file)?;
                let text = format!("{user}:{password}");
                Ok(Some(format!(
                    "Basic {}",
                    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text)
                )))
            }
            _ => {
                Err(("user", "write `user` and `password_file`, or `token_file`, or none of them".to_owned()))
            }
        }
    }

    /// How to deliver.
    pub(crate) fn delivery(&self) -> DeliverySettings {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        DeliverySettings {
            records: self.batch,
            bytes: usize::try_from(self.batch_size.0).unwrap_or(usize::MAX),
            linger: ns(self.linger),
            timeout: ns(self.timeout),
            ..DeliverySettings::default()
        }
    }

    /// Everything that is wrong with it.
    pub(crate) fn problems(&self) -> Vec<Wrong> {
        let mut problems: Vec<Wrong> = [self.streams().err(), self.sink().err(), self.destination().err()]
            .into_iter()
            .flatten()
            .collect();
        if !(1..=200_000).contains(&self.batch) {
            problems.push(("batch", "write a number from 1 to 200000".to_owned()));
        }
        if !(64 << 10..=256 << 20).contains(&self.batch_size.0) {
            problems.push(("batch_size", "write \"64 KiB\" to \"256 MiB\"".to_owned()));
        }
        if self.linger > Duration::from_secs(3600) {
            problems.push(("linger", "write \"0s\" to \"1h\"".to_owned()));
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(600)).contains(&self.timeout) {
            problems.push(("timeout", "write \"100ms\" to \"10m\"".to_owned()));
        }
        problems
    }
}

/// Whether a name of an export can be part of a file's name.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}
