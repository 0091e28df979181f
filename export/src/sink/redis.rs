//! Sink for Redis (or Valkey): the latest path of each flow as a hash, other records as streams, sent in pipelines.
//!
//! * <https://redis.io/docs/latest/develop/reference/protocol-spec/>
//! * <https://redis.io/docs/latest/commands/xadd/>, `hset`, `pexpire`
//!
//! A record of `flows` is `HSET hopwise:flow:FLOW …`, which expires ([`Options::expire`]) unless it is written again, so a
//! client reads the path of a 5-tuple with one command. Any other record is an entry in `hopwise:events` and so on, with the
//! record's fields; stream lengths are limited approximately ([`Options::max_len`]).
//!
//! An entry's ID is the record's time in ms and `(ts mod 1,000,000) × 2^44 + (id mod 2^44)`, so a repeat has the same ID. Redis
//! refuses an ID that is not larger than the last one in the stream. An [`Exchange`] then asks whether the entry exists. If so,
//! it is a repeat; if not, entries with a later time arrived first, and the record is appended with a new ID. A repeat of such
//! a late record, or of a trimmed one, becomes a second entry with the same field `id`. A stream must have only one writer
//! ([`Options::prefix`]), with one exchange at a time.
//!
//! Commands are those of Redis 5 and later over RESP 2, without HELLO.

use std::io::Write as _;

use super::Batch;
use crate::outcome::Outcome;
use crate::record::{COMMON, Field, Record, Stream, Value};
use crate::text::{self, address, address_of, decimal, hex};

mod resp;

pub use resp::{Malformed, Replies, Reply};

/// Low bits of an entry's sequence number, which are those of the record's ID.
const ID_BITS: u32 = 44;
/// Redis's error for an XADD with an ID that is not larger than the last one.
const ID_NOT_LARGER: &str = "equal or smaller than the target stream top item";

/// The options of the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The prefix of keys, before a `:`. Each collector needs a prefix of its own.
    pub prefix: String,
    /// Number of the database; 0 for a cluster.
    pub database: u32,
    /// Approximate maximum number of entries in a stream; 0 for no limit.
    pub max_len: u64,
    /// Time without a change after which a flow is removed, ms; 0 for never.
    pub expire: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "hopwise".to_owned(),
            database: 0,
            max_len: 1_000_000,
            expire: 3_600_000,
        }
    }
}

/// User and password. Without a user, the default user applies.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The ACL user for AUTH.
    pub user: Option<&'a str>,
    /// The password of the user.
    pub password: &'a str,
}

impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Commands that are sent together.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Pipeline {
    /// The commands, encoded as RESP.
    pub bytes: Vec<u8>,
    /// The number of replies to expect.
    pub replies: usize,
}

impl Pipeline {
    fn command(&mut self, parts: &[&str]) {
        array(parts.len(), &mut self.bytes);
        for part in parts {
            bulk(part.as_bytes(), &mut self.bytes);
        }
        self.replies += 1;
    }
}

/// The commands for a batch, and the results so far. Most batches need only one pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    pipeline: Pipeline,
    step: Step,
    /// Record index of each expected reply.
    rows: Vec<usize>,
    rejected: Vec<(usize, String)>,
    retry: Vec<usize>,
    /// Reason of the last transient failure.
    reason: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Write all records of the batch.
    Write,
    /// Ask whether the refused entries exist, and for the last ID.
    Lookup,
    /// Append the missing entries after the last one.
    Append,
}

impl Exchange {
    /// Returns the pipeline to send now.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    fn set_step(&mut self, step: Step, rows: Vec<usize>, pipeline: Pipeline) {
        self.step = step;
        self.rows = rows;
        self.pipeline = pipeline;
    }

    /// Returns true if a reply is an error, and records what it means for the record in `row`.
    fn record_error(&mut self, row: usize, reply: &Reply) -> bool {
        let Reply::Error(error) = reply else { return false };
        let is_permanent =
            code(error) == "WRONGTYPE" || (code(error) == "ERR" && !error.contains("unknown command"));
        if is_permanent && !error.contains(ID_NOT_LARGER) {
            if self.rejected.last().is_none_or(|(last, _)| *last != row) {
                self.rejected.push((row, error.clone()));
            }
        } else {
            if self.retry.last() != Some(&row) {
                self.retry.push(row);
            }
            self.reason.clone_from(error);
        }
        true
    }
}

/// The sink for Redis.
#[derive(Debug)]
pub struct Redis {
    prefix: String,
    database: u32,
    max_len: String,
    expire: String,
}

impl Redis {
    /// Creates a sink with these options.
    ///
    /// # Errors
    /// The options are invalid; the message says what to do.
    pub fn new(options: &Options) -> Result<Self, String> {
        let prefix = &options.prefix;
        if prefix.is_empty() || prefix.len() > 200 || !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "`prefix` is {prefix:?}; use 1 to 200 printable ASCII characters without spaces"
            ));
        }
        let max_len = number_or_empty(options.max_len);
        let expire = number_or_empty(options.expire);
        Ok(Self {
            prefix: prefix.clone(),
            database: options.database,
            max_len,
            expire,
        })
    }

    /// Returns the first commands of a connection: AUTH, SELECT and PING, as needed. [`greeted`] reads the replies.
    ///
    /// [`greeted`]: Self::greeted
    pub fn greeting(&self, credentials: Option<&Credentials<'_>>) -> Pipeline {
        let mut pipeline = Pipeline::default();
        match credentials {
            Some(Credentials {
                user: Some(user),
                password,
            }) => pipeline.command(&["AUTH", user, password]),
            Some(Credentials { user: None, password }) => pipeline.command(&["AUTH", password]),
            None => {}
        }
        if self.database > 0 {
            pipeline.command(&["SELECT", &self.database.to_string()]);
        }
        pipeline.command(&["PING"]);
        pipeline
    }

    /// Checks the replies to the greeting.
    ///
    /// # Errors
    /// The server does not accept commands; the message says what to do.
    pub fn greeted(&self, replies: &[Reply]) -> Result<(), String> {
        let Some(error) = replies.iter().find_map(|reply| {
            if let Reply::Error(reason) = reply {
                Some(reason)
            } else {
                None
            }
        }) else {
            return match replies.last() {
                Some(Reply::Text(text)) if text == "PONG" => Ok(()),
                _ => Err("the server does not answer as Redis does; correct address and port".to_owned()),
            };
        };
        Err(match code(error) {
            "NOAUTH" => format!(
                "the server requires credentials ({error}); write a password, and a user if there is one"
            ),
            "WRONGPASS" => format!("the server refuses the credentials ({error}); correct user and password"),
            "NOPERM" => {
                format!(
                    "the user may not do that ({error}); allow PING, SELECT, XADD, XRANGE, XREVRANGE, HSET and PEXPIRE"
                )
            }
            _ if error.contains("without any password") => {
                format!(
                    "the server has no password for this user ({error}); leave the password out, or write a user"
                )
            }
            _ if error.contains("DB index") => {
                format!(
                    "the server has no database {} ({error}); choose another one",
                    self.database
                )
            }
            _ => format!("the server does not accept commands: {error}"),
        })
    }

    /// Returns the server's error if it refused the credentials.
    pub fn denied(replies: &[Reply]) -> Option<&str> {
        replies.iter().find_map(|reply| match reply {
            // Before authentication, Redis answers long commands with a protocol error that says "unauthenticated".
            Reply::Error(error)
                if matches!(code(error), "NOAUTH" | "WRONGPASS" | "NOPERM")
                    || error.contains("unauthenticated")
                    || error.contains("without any password") =>
            {
                Some(error.as_str())
            }
            _ => None,
        })
    }

    /// Returns the commands that store these records, or `None` if there are none.
    pub fn begin(&self, batch: &Batch<'_>) -> Option<Exchange> {
        if batch.records.is_empty() {
            return None;
        }
        let mut order: Vec<usize> = (0..batch.records.len()).collect();
        order.sort_by_key(|index| entry_id(batch.records[*index]));
        let mut bytes = Vec::with_capacity(512 * order.len());
        let mut rows = Vec::with_capacity(order.len());
        let mut scratch = Vec::new();
        for index in order {
            let record = batch.records[index];
            rows.push(index);
            match record {
                Record::Flow(_) => {
                    self.write_hash(record, batch.collector, &mut scratch, &mut bytes);
                    if !self.expire.is_empty() {
                        rows.push(index);
                    }
                }
                _ => self.write_entry(
                    record,
                    entry_id(record),
                    batch.collector,
                    &mut scratch,
                    &mut bytes,
                ),
            }
        }
        let pipeline = Pipeline {
            bytes,
            replies: rows.len(),
        };
        let rejected = Vec::new();
        let retry = Vec::new();
        let reason = String::new();
        Some(Exchange {
            pipeline,
            step: Step::Write,
            rows,
            rejected,
            retry,
            reason,
        })
    }

    /// Writes `XADD PREFIX:STREAM [MAXLEN ~ N] ID field value …`.
    fn write_entry(
        &self,
        record: &Record,
        id: EntryId,
        collector: &str,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) {
        let options = if self.max_len.is_empty() { 0 } else { 3 };
        array(3 + options + 2 * fields(record), out);
        bulk(b"XADD", out);
        self.write_key(record.stream(), scratch, out);
        if options > 0 {
            [b"MAXLEN", &b"~"[..], self.max_len.as_bytes()]
                .iter()
                .for_each(|part| bulk(part, out));
        }
        write_id(id, scratch, out);
        write_fields(record, collector, scratch, out);
    }

    /// Writes `HSET PREFIX:flow:FLOW field value …` and `PEXPIRE`.
    fn write_hash(&self, record: &Record, collector: &str, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        // Clears fields that have no value any more.
        let absent = absent(record);
        array(2 + 2 * (fields(record) + absent.len()), out);
        bulk(b"HSET", out);
        self.write_flow_key(record, scratch, out);
        write_fields(record, collector, scratch, out);
        for field in absent {
            bulk(field.name.as_bytes(), out);
            bulk(b"", out);
        }
        if !self.expire.is_empty() {
            array(3, out);
            bulk(b"PEXPIRE", out);
            self.write_flow_key(record, scratch, out);
            bulk(self.expire.as_bytes(), out);
        }
    }

    fn write_flow_key(&self, record: &Record, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        scratch.clear();
        _ = write!(scratch, "{}:flow:", self.prefix);
        if let Some(flow) = record.flow() {
            text::flow(flow, scratch);
        }
        bulk(scratch, out);
    }

    fn write_key(&self, stream: Stream, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        scratch.clear();
        _ = write!(scratch, "{}:{}", self.prefix, stream.name());
        bulk(scratch, out);
    }

    /// Processes the replies to the exchange's pipeline. Returns the outcome, or `None` if another pipeline must be sent.
    pub fn answered(&self, batch: &Batch<'_>, exchange: &mut Exchange, replies: &[Reply]) -> Option<Outcome> {
        let expected = exchange.pipeline.replies;
        if replies.len() != expected {
            let reason = format!("the server answered {} of {expected} commands", replies.len());
            return Some(Outcome::failed(reason));
        }
        if let Some(error) = Self::denied(replies) {
            return Some(Outcome::Unauthorised {
                reason: error.to_owned(),
            });
        }
        match exchange.step {
            Step::Write => self.process_writes(batch, exchange, replies),
            Step::Lookup => self.process_lookups(batch, exchange, replies),
            Step::Append => {
                for (row, reply) in std::mem::take(&mut exchange.rows).into_iter().zip(replies) {
                    exchange.record_error(row, reply);
                }
                Some(settled(batch, exchange))
            }
        }
    }

    fn process_writes(
        &self,
        batch: &Batch<'_>,
        exchange: &mut Exchange,
        replies: &[Reply],
    ) -> Option<Outcome> {
        let mut refused = Vec::new();
        for (row, reply) in std::mem::take(&mut exchange.rows).into_iter().zip(replies) {
            match reply {
                Reply::Error(error) if error.contains(ID_NOT_LARGER) => refused.push(row),
                reply => _ = exchange.record_error(row, reply),
            }
        }
        let Some(first) = refused.first().and_then(|row| batch.records.get(*row)) else {
            return Some(settled(batch, exchange));
        };
        let mut bytes = Vec::new();
        let mut scratch = Vec::new();
        for record in refused.iter().filter_map(|row| batch.records.get(*row)) {
            array(4, &mut bytes);
            bulk(b"XRANGE", &mut bytes);
            self.write_key(record.stream(), &mut scratch, &mut bytes);
            write_id(entry_id(record), &mut scratch, &mut bytes);
            bulk(&scratch, &mut bytes);
        }
        array(6, &mut bytes);
        bulk(b"XREVRANGE", &mut bytes);
        self.write_key(first.stream(), &mut scratch, &mut bytes);
        [&b"+"[..], b"-", b"COUNT", b"1"]
            .iter()
            .for_each(|part| bulk(part, &mut bytes));
        let replies = refused.len() + 1;
        exchange.set_step(Step::Lookup, refused, Pipeline { bytes, replies });
        None
    }

    fn process_lookups(
        &self,
        batch: &Batch<'_>,
        exchange: &mut Exchange,
        replies: &[Reply],
    ) -> Option<Outcome> {
        let (last, replies) = replies.split_last()?;
        let mut missing = Vec::new();
        for (row, reply) in std::mem::take(&mut exchange.rows).into_iter().zip(replies) {
            match reply {
                Reply::Array(entries) if entries.is_empty() => missing.push(row),
                Reply::Array(_) => {}
                reply => {
                    if !exchange.record_error(row, reply) {
                        exchange.retry.push(row);
                    }
                }
            }
        }
        let Some(mut id) = last_id(last) else {
            exchange.retry.extend(missing);
            "the server does not say which entry is the last one".clone_into(&mut exchange.reason);
            return Some(settled(batch, exchange));
        };
        if missing.is_empty() {
            return Some(settled(batch, exchange));
        }
        let mut bytes = Vec::new();
        let mut scratch = Vec::new();
        for record in missing.iter().filter_map(|row| batch.records.get(*row)) {
            id = id.next();
            self.write_entry(record, id, batch.collector, &mut scratch, &mut bytes);
        }
        let replies = missing.len();
        exchange.set_step(Step::Append, missing, Pipeline { bytes, replies });
        None
    }
}

fn settled(batch: &Batch<'_>, exchange: &mut Exchange) -> Outcome {
    let rejected = std::mem::take(&mut exchange.rejected);
    let mut retry = std::mem::take(&mut exchange.retry);
    retry.retain(|row| rejected.iter().all(|(other, _)| other != row));
    if retry.len() == batch.records.len() {
        return Outcome::failed(std::mem::take(&mut exchange.reason));
    }
    let reason = if retry.is_empty() {
        String::new()
    } else {
        std::mem::take(&mut exchange.reason)
    };
    Outcome::Settled {
        rejected,
        retry,
        reason,
        retry_after: None,
    }
}

/// Returns the ID of the only entry in a reply.
fn last_id(reply: &Reply) -> Option<EntryId> {
    let Reply::Array(entries) = reply else { return None };
    let Reply::Array(parts) = entries.first()? else {
        return None;
    };
    let Reply::Text(id) = parts.first()? else {
        return None;
    };
    let (ms, sequence) = id.split_once('-')?;
    Some(EntryId {
        ms: ms.parse().ok()?,
        sequence: sequence.parse().ok()?,
    })
}

fn write_id(id: EntryId, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
    scratch.clear();
    let EntryId { ms, sequence } = id;
    _ = write!(scratch, "{ms}-{sequence}");
    bulk(scratch, out);
}

/// Formats a number, or returns an empty text for 0.
fn number_or_empty(value: u64) -> String {
    if value == 0 {
        String::new()
    } else {
        value.to_string()
    }
}

/// Returns the error code, the first word of an error.
fn code(error: &str) -> &str {
    error.split(' ').next().unwrap_or_default()
}

/// ID of a stream entry, `ms-sequence`. Its time allows queries by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EntryId {
    ms: u64,
    sequence: u64,
}

impl EntryId {
    fn next(self) -> Self {
        match self.sequence.checked_add(1) {
            Some(sequence) => Self { sequence, ..self },
            None => Self {
                ms: self.ms.saturating_add(1),
                sequence: 0,
            },
        }
    }
}

fn entry_id(record: &Record) -> EntryId {
    let ts = record.ts();
    let id = record.id();
    EntryId {
        ms: ts / 1_000_000,
        // `max(1)` avoids the invalid ID 0-0.
        sequence: (ts % 1_000_000) << ID_BITS | (id & ((1 << ID_BITS) - 1)).max(1),
    }
}

fn absent(record: &Record) -> Vec<&'static Field> {
    let mut absent = Vec::new();
    record.visit(|field, value| {
        if matches!(value, Value::Absent | Value::Numbers([])) {
            absent.push(field);
        }
    });
    absent
}

/// Returns the number of fields to write, including the common ones.
fn fields(record: &Record) -> usize {
    let mut count = COMMON.len();
    record.visit(|_, value| count += usize::from(!matches!(value, Value::Absent | Value::Numbers([]))));
    count
}

/// Writes the names and values of all present fields.
fn write_fields(record: &Record, collector: &str, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
    record.visit_all(collector, |field, value| write_field(field, value, scratch, out));
}

fn write_field(field: &Field, value: Value<'_>, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
    scratch.clear();
    match value {
        Value::Absent | Value::Numbers([]) => return,
        Value::Id(id) => hex(id, scratch),
        Value::Number(number) => decimal(number, scratch),
        Value::Text(text) => scratch.extend_from_slice(text.as_bytes()),
        Value::Address(octets) => address(address_of(octets), scratch),
        Value::Flow(flow) => text::flow(flow, scratch),
        Value::Numbers(numbers) => {
            for (index, number) in numbers.iter().enumerate() {
                if index > 0 {
                    scratch.push(b',');
                }
                match number {
                    &u32::MAX => scratch.push(b'-'),
                    number => decimal(u64::from(*number), scratch),
                }
            }
        }
    }
    bulk(field.name.as_bytes(), out);
    bulk(scratch, out);
}

/// Writes the header of a command: the number of its parts.
fn array(len: usize, out: &mut Vec<u8>) {
    head(b'*', len, out);
}

fn head(mark: u8, len: usize, out: &mut Vec<u8>) {
    out.push(mark);
    decimal(len as u64, out);
    out.extend_from_slice(b"\r\n");
}

/// Writes a part of a command as a bulk string.
fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    head(b'$', bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}
