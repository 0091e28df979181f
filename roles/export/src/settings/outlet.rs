//! Settings of an outlet, which moves records from Kafka into ClickHouse: the table `[outlet]`.

use std::{path::PathBuf, str::FromStr, time::Duration};

use export::{
    Settings as DeliverySettings,
    outlet::{COPIES_PER_PAGE, MAX_OVERSHOOT},
    record::Stream,
    sink::{
        clickhouse::ClickHouse,
        kafka::{Kafka, log, protocol},
    },
};
use settings::{
    read::{Node, Reader},
    section,
    setting::{Setting, Shown},
    values::{Size, from_text},
};

use super::{ExportKind, ExportSettings, ExportStart, nanoseconds};
use net::destination::{Destination, Mechanism};

section! {
    /// An outlet reads the Kafka topics that collectors export to, and inserts the records into the ClickHouse tables that a
    /// console reads. It has no inputs and no store: a file with `[outlet]` runs no collector. See [the
    /// how-to](../how-to/outlet.md).
    pub struct OutletSettings("[outlet]") {
        /// Where the topics are.
        pub kafka: OutletKafkaSettings = OutletKafkaSettings::default(),
        /// Where the tables are.
        pub clickhouse: OutletClickHouseSettings = OutletClickHouseSettings::default(),
        /// Streams to pass on: `"events"`, `"rollups"`, `"flows"`, `"drops"`, `"losses"`, `"alerts"`, `"hops"`. Each is a topic and
        /// a table. Empty: `events`, `rollups`, `drops` and `losses`, as in an export to Kafka without `streams`.
        pub streams: Vec<String> = Vec::new(),
        /// This outlet's share of the partitions: `"2/3"` is the second of three outlets, each with a different share. The numbers
        /// of a partition and its stream determine the share that it belongs to.
        pub share: Share = Share { part: 1, of: 1 },
        /// Directory of the cursors, one file per partition, and of messages that cannot be inserted. It belongs to one outlet. Not
        /// set: the folder `outlet` in `$STATE_DIRECTORY` (systemd), else in `hopwise-data`.
        pub state: Option<PathBuf> = None,
        /// Start with the oldest message of a partition, or with messages that arrive after the first start; partitions and topics
        /// created later are read from their beginning.
        pub start: ExportStart = ExportStart::Oldest,
        /// Maximum number of records in one insert.
        pub batch: usize = 200_000,
        /// Maximum memory for records: two batches with their requests per partition, and a quarter for responses from Kafka. The
        /// process itself needs some MiB more ([sizing](../how-to/outlet.md#sizing)).
        pub memory: Size = Size(256 << 20),
        /// Time to wait for a batch to fill. Each partition is inserted separately, and ClickHouse works best with few large
        /// inserts.
        pub linger: Duration = Duration::from_secs(5),
        /// Time to wait for a response.
        pub timeout: Duration = Duration::from_secs(30),
        /// Maximum size of the file, one per partition, for messages that cannot be read and records that ClickHouse permanently
        /// rejects; further ones are only counted.
        pub rejected: Size = Size(64 << 20),
    }
}

section! {
    /// The brokers and the credentials, with the same keys as an export to Kafka.
    pub struct OutletKafkaSettings("[outlet.kafka]") {
        /// One or more brokers: `tcp://ONE:9092,OTHER:9092`, or with TLS `tls://ONE:9093`.
        pub url: String = String::new(),
        /// Prefix of the topic names, as in the exports.
        pub prefix: String = "hopwise".to_owned(),
        /// User name. Not set: none is sent.
        pub user: Option<String> = None,
        /// File with the user's password in its first line.
        pub password_file: Option<PathBuf> = None,
        /// SASL mechanism for user and password.
        pub mechanism: Mechanism = Mechanism::ScramSha512,
        /// PEM file with the certificate authorities to trust for TLS; those of the system are not trusted.
        pub ca: Option<PathBuf> = None,
        /// PEM file with a client certificate, if the broker requires one.
        pub certificate: Option<PathBuf> = None,
        /// PEM file with the certificate's private key.
        pub key: Option<PathBuf> = None,
        /// Send the password without encryption, too, to other hosts. Anyone who can read the network can then use it.
        pub unencrypted: bool = false,
    }
}

section! {
    /// The server and the credentials, with the same keys as an export to ClickHouse.
    pub struct OutletClickHouseSettings("[outlet.clickhouse]") {
        /// Address of the server: `http://HOST:PORT` or `https://HOST:PORT`.
        pub url: String = String::new(),
        /// Database of the tables.
        pub database: String = "hopwise".to_owned(),
        /// Prefix of the table names.
        pub prefix: String = String::new(),
        /// Days after which rows are deleted from the tables that `hopwise schema apply` creates; 0: never.
        pub keep_days: u32 = 30,
        /// User name. Not set: none is sent.
        pub user: Option<String> = None,
        /// File with the user's password in its first line.
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
    }
}

/// One of several equal parts, such as `2/3`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The index of this part, from 1 to `of`.
    part: u32,
    of: u32,
}

/// Memory for decoding the longest answer of Kafka, bytes.
const MAX_ANSWER_MEMORY: usize = protocol::MAX_ANSWER + log::UNPACKING;
/// Maximum size of a batch, bytes. It is below the size of a batch that is sent again. With very many partitions, batches wait
/// for memory.
const MAX_BATCH: usize = 40 << 20;
const MIN_BATCH: usize = 64 << 10;

/// Maximum number of outlets that share the partitions.
const MAX_SHARES: u32 = 1_000;

impl FromStr for Share {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (part, of) = text.split_once('/').ok_or(())?;
        // `parse` would accept a sign.
        if part.starts_with('+') || of.starts_with('+') {
            return Err(());
        }
        let share = Self {
            part: part.parse().map_err(drop)?,
            of: of.parse().map_err(drop)?,
        };
        match (1..=share.of).contains(&share.part) && share.of <= MAX_SHARES {
            true => Ok(share),
            false => Err(()),
        }
    }
}

impl Setting for Share {
    const KIND: &'static str = "a part of several, such as \"1/1\" or \"2/3\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| text.parse().ok())
    }

    fn show(&self) -> Shown {
        Shown::Plain(format!("{}/{}", self.part, self.of).into())
    }
}

impl Share {
    /// Returns whether a partition belongs to this share. Adding the stream's number spreads topics over the outlets.
    pub fn has(self, stream: Stream, partition: i32) -> bool {
        let number = u64::from(partition.unsigned_abs()) + stream as u64;
        number % u64::from(self.of) == u64::from(self.part - 1)
    }
}

/// A key below `[outlet]`, and the reason its value is invalid.
pub type Wrong = (&'static [&'static str], String);

impl OutletSettings {
    /// Returns the Kafka settings in the form of an export.
    fn kafka(&self) -> ExportSettings {
        let kafka = &self.kafka;
        ExportSettings {
            kind: Some(ExportKind::Kafka),
            url: kafka.url.clone(),
            prefix: Some(kafka.prefix.clone()),
            user: kafka.user.clone(),
            password_file: kafka.password_file.clone(),
            mechanism: kafka.mechanism,
            ca: kafka.ca.clone(),
            certificate: kafka.certificate.clone(),
            key: kafka.key.clone(),
            unencrypted: kafka.unencrypted,
            streams: self.streams.clone(),
            ..ExportSettings::default()
        }
    }

    /// Returns the ClickHouse settings in the form of an export, from which `hopwise schema` creates the tables.
    pub fn clickhouse(&self) -> ExportSettings {
        let clickhouse = &self.clickhouse;
        ExportSettings {
            kind: Some(ExportKind::ClickHouse),
            url: clickhouse.url.clone(),
            database: clickhouse.database.clone(),
            prefix: Some(clickhouse.prefix.clone()),
            keep_days: clickhouse.keep_days,
            user: clickhouse.user.clone(),
            password_file: clickhouse.password_file.clone(),
            token_file: clickhouse.token_file.clone(),
            ca: clickhouse.ca.clone(),
            certificate: clickhouse.certificate.clone(),
            key: clickhouse.key.clone(),
            unencrypted: clickhouse.unencrypted,
            streams: self.streams.clone(),
            timeout: self.timeout,
            ..ExportSettings::default()
        }
    }

    /// Returns the streams to move.
    ///
    /// # Errors
    /// An unknown stream.
    pub fn streams(&self) -> Result<Vec<Stream>, Wrong> {
        self.clickhouse()
            .streams()
            .map_err(|(_, message)| (&["streams"][..], message))
    }

    /// Returns the Kafka brokers.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub fn source(&self) -> Result<Destination, Wrong> {
        if self.kafka.url.is_empty() {
            let message = "the address of Kafka is missing; write url = \"tcp://127.0.0.1:9092\" or the like into [outlet.kafka]";
            return Err((below_kafka("url"), message.to_owned()));
        }
        self.kafka()
            .destination()
            .map_err(|(key, message)| (below_kafka(key), message))
    }

    /// Returns the encoder that names the topics.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub fn topics(&self) -> Result<Kafka, Wrong> {
        self.kafka()
            .kafka()
            .map_err(|(key, message)| (below_kafka(key), message))
    }

    /// Returns the ClickHouse server.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub fn destination(&self) -> Result<Destination, Wrong> {
        if self.clickhouse.url.is_empty() {
            let message = "the address of ClickHouse is missing; write url = \"http://127.0.0.1:8123\" or the like into [outlet.clickhouse]";
            return Err((below_clickhouse("url"), message.to_owned()));
        }
        self.clickhouse()
            .destination()
            .map_err(|(key, message)| (below_clickhouse(key), message))
    }

    /// Returns the encoder for the tables.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub fn tables(&self) -> Result<ClickHouse, Wrong> {
        self.clickhouse()
            .clickhouse()
            .map_err(|(key, message)| (below_clickhouse(key), message))
    }

    /// Returns the memory for answers of Kafka, and the memory for batches and requests, bytes.
    pub fn spaces(&self) -> (usize, usize) {
        let memory = usize::try_from(self.memory.0).unwrap_or(usize::MAX);
        let answers = (memory / 4).max(MAX_ANSWER_MEMORY);
        (answers, memory.saturating_sub(answers))
    }

    /// Returns the limits of batches and the timers of the delivery, given the number of partitions.
    pub fn delivery(&self, partitions: usize) -> DeliverySettings {
        // Each partition has two batches.
        let batch = self.spaces().1 / 2 / COPIES_PER_PAGE / partitions.max(1);
        DeliverySettings {
            records: self.batch,
            bytes: batch.saturating_sub(MAX_OVERSHOOT).clamp(MIN_BATCH, MAX_BATCH),
            linger: nanoseconds(self.linger),
            timeout: nanoseconds(self.timeout),
            ..DeliverySettings::default()
        }
    }

    /// Returns all problems of the settings.
    pub fn problems(&self) -> Vec<Wrong> {
        let mut problems: Vec<Wrong> = [
            self.streams().err(),
            self.source().err(),
            self.topics().err(),
            self.destination().err(),
            self.tables().err(),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !(1..=200_000).contains(&self.batch) {
            problems.push((&["batch"], "write a number from 1 to 200000".to_owned()));
        }
        if !(64 << 20..=64 << 30).contains(&self.memory.0) {
            problems.push((&["memory"], "write \"64 MiB\" to \"64 GiB\"".to_owned()));
        }
        if self.linger > Duration::from_secs(3600) {
            problems.push((&["linger"], "write \"0s\" to \"1h\"".to_owned()));
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(600)).contains(&self.timeout) {
            problems.push((&["timeout"], "write \"100ms\" to \"10m\"".to_owned()));
        }
        problems
    }
}

fn below_kafka(key: &'static str) -> &'static [&'static str] {
    match key {
        "prefix" => &["kafka", "prefix"],
        "user" => &["kafka", "user"],
        "password_file" => &["kafka", "password_file"],
        "ca" => &["kafka", "ca"],
        "certificate" => &["kafka", "certificate"],
        _ => &["kafka", "url"],
    }
}

fn below_clickhouse(key: &'static str) -> &'static [&'static str] {
    match key {
        "database" => &["clickhouse", "database"],
        "user" => &["clickhouse", "user"],
        "password_file" => &["clickhouse", "password_file"],
        "token_file" => &["clickhouse", "token_file"],
        "ca" => &["clickhouse", "ca"],
        "certificate" => &["clickhouse", "certificate"],
        _ => &["clickhouse", "url"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part_of_several_and_each_partition_is_in_one() {
        for wrong in ["", "1", "0/1", "2/1", "1/0", "+1/2", "1/1001", "1/2/3", "-1/2"] {
            assert_eq!(wrong.parse::<Share>(), Err(()), "{wrong}");
        }
        let shares: Vec<Share> = ["1/3", "2/3", "3/3"].map(|text| text.parse().unwrap()).to_vec();
        for stream in Stream::ALL {
            for partition in 0..20 {
                let count = shares.iter().filter(|share| share.has(stream, partition)).count();
                assert_eq!(count, 1, "{stream:?} {partition}");
            }
        }
        let first = |stream| shares.iter().position(|share| share.has(stream, 0));
        assert_ne!(
            first(Stream::Events),
            first(Stream::Rollups),
            "topics of one partition are spread, too"
        );
    }

    #[test]
    fn partitions_share_the_memory() {
        let settings = |mib: u64| OutletSettings {
            memory: Size(mib << 20),
            ..OutletSettings::default()
        };
        assert_eq!(settings(256).spaces(), (64 << 20, 192 << 20));
        assert_eq!(
            settings(64).spaces(),
            (33 << 20, 31 << 20),
            "the longest answer finds space"
        );
        assert_eq!(settings(256).delivery(1).bytes, 40 << 20);
        assert_eq!(settings(256).delivery(100_000).bytes, 64 << 10);
        for partitions in [5, 24, 100] {
            let batch = settings(256).delivery(partitions).bytes;
            let all = partitions * 2 * COPIES_PER_PAGE * (batch + MAX_OVERSHOOT);
            assert!(all <= 192 << 20 && all > 180 << 20, "{partitions}: {all}");
        }
    }
}
