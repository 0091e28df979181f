//! What sinks send, and how they understand the answers. A sink turns records into the body of a request and the answer into an
//! [`Outcome`]; who sends it is elsewhere.

pub mod alertmanager;
pub mod clickhouse;
pub mod influxdb;
pub mod kafka;
pub mod opensearch;
pub mod otlp;
pub mod parquet;
pub mod redis;
pub mod remote_write;
pub mod s3;
pub mod syslog;
pub mod webhook;

use crate::backoff::Nanos;
use crate::outcome::Outcome;
use crate::record::{Record, Stream};

/// Records of one stream that are sent together.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Their stream.
    pub stream: Stream,
    /// The records, in order.
    pub records: &'a [&'a Record],
    /// Name of this collector.
    pub collector: &'a str,
}

/// An HTTP request without the address of the server.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Request {
    /// `POST`, `PUT`, `GET`.
    pub method: &'static str,
    /// Path and query, with the `/` at its beginning.
    pub target: String,
    /// Headers except those of the connection, of credentials and of the length.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// For each row of the body, the index of its record, where answers name rows and a record can have none or several.
    pub rows: Vec<usize>,
}

/// An answer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response<'a> {
    /// The status.
    pub status: u16,
    /// `Retry-After`.
    pub retry_after: Option<Nanos>,
    /// The body; only its beginning if it is too long.
    pub body: &'a [u8],
    /// The body was too long.
    pub is_cut: bool,
}

/// A server that takes records by HTTP.
pub trait HttpSink: std::fmt::Debug + Send + Sync {
    /// The request that sends these records. `None`: nothing of them is for this sink, and they are settled.
    fn request(&self, batch: &Batch<'_>) -> Option<Request>;

    /// At most so many different days of records are in a batch.
    fn days(&self) -> Option<usize> {
        None
    }

    /// Whether it needs to know which part of a rollup of a flow, or of another one, a record is:
    /// [`RollupPart::nth`](crate::record::RollupPart::nth).
    fn counts_parts(&self, per_flow: bool) -> bool {
        let _ = per_flow;
        false
    }

    /// What became of them.
    fn outcome(&self, batch: &Batch<'_>, request: &Request, response: &Response<'_>) -> Outcome {
        let _ = (batch, request);
        Outcome::of_status(response.status, words(response.body), response.retry_after)
    }

    /// What became of a statement of the schema.
    ///
    /// # Errors
    /// The server's words.
    fn executed(&self, request: &Request, response: &Response<'_>) -> Result<(), String> {
        let _ = request;
        match response.status {
            200..=299 => Ok(()),
            _ => Err(format!("the server refuses: {}", said(response))),
        }
    }

    /// A request that shows whether the server is there, takes the credentials and has what is needed; nothing is stored by it.
    fn probe(&self, streams: &[Stream]) -> Request;

    /// What is wrong, by the answer to the probe: one sentence that says what to do.
    ///
    /// # Errors
    /// The sentence.
    fn probed(&self, streams: &[Stream], response: &Response<'_>) -> Result<(), String> {
        let _ = streams;
        match response.status {
            200..=299 => Ok(()),
            401 | 403 => Err(unauthorised(response, "")),
            404 => Err(format!(
                "the server has nothing there ({}); correct the url",
                said(response)
            )),
            _ => Err(format!("the server does not take records: {}", said(response))),
        }
    }
}

/// What to do about refused credentials, and `also`.
fn unauthorised(response: &Response<'_>, also: &str) -> String {
    format!(
        "the server refuses the credentials ({}); correct user, password or token{also}",
        said(response)
    )
}

/// Status and words of an answer.
pub fn said(response: &Response<'_>) -> String {
    let words = words(response.body);
    match words.is_empty() {
        true => format!("HTTP {}", response.status),
        false => format!("HTTP {}: {words}", response.status),
    }
}

/// The words in the body of an answer, on one line and not too long.
pub fn words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * MAX_WORDS)]);
    let line: Vec<&str> = text.split_whitespace().collect();
    line.join(" ")
        .chars()
        .filter(|char| !char.is_control())
        .take(MAX_WORDS)
        .collect()
}

/// A value in a query: everything but unreserved characters is escaped (RFC 3986, section 2).
pub fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len() + 16);
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte))
            }
            other => {
                escaped.push('%');
                for digit in [other >> 4, other & 15] {
                    escaped.push(
                        char::from_digit(digit.into(), 16)
                            .unwrap_or('0')
                            .to_ascii_uppercase(),
                    );
                }
            }
        }
    }
    escaped
}

/// The longest words of a server that are kept, characters.
const MAX_WORDS: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_server_are_one_short_line() {
        assert_eq!(words(b" a\n\tb\x07c \xff"), "a bc \u{fffd}");
        assert_eq!(words(&[b'x'; 10_000]).len(), MAX_WORDS);
    }
}
