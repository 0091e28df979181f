//! The destinations of exports. A sink encodes records into the body of a request and classifies the response as an
//! [`Outcome`]; the export role does the I/O.

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

/// Maximum length of a response text, characters.
const MAX_RESPONSE_TEXT: usize = 300;

/// Records of one stream that are sent together.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The stream of the records.
    pub stream: Stream,
    /// The records, in order.
    pub records: &'a [&'a Record],
    /// The name of this collector.
    pub collector: &'a str,
}

/// An HTTP request without the address of the server.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Request {
    /// The method: `POST`, `PUT` or `GET`.
    pub method: &'static str,
    /// Path and query, beginning with `/`.
    pub target: String,
    /// Headers, without those for connection, credentials and length.
    pub headers: Vec<(&'static str, String)>,
    /// The body of the request.
    pub body: Vec<u8>,
    /// Index of the record of each row in the body, for sinks whose responses refer to rows.
    pub rows: Vec<usize>,
}

/// An answer to a [`Request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response<'a> {
    /// The status code of HTTP.
    pub status: u16,
    /// Pause from the header `Retry-After`, ns.
    pub retry_after: Option<Nanos>,
    /// The body, or its beginning if it is too long.
    pub body: &'a [u8],
    /// The body was too long.
    pub is_cut: bool,
}

/// A server that accepts records by HTTP.
pub trait HttpSink: std::fmt::Debug + Send + Sync {
    /// Returns the request that sends these records, or `None` if the sink accepts none of them; they then count as delivered.
    fn request(&self, batch: &Batch<'_>) -> Option<Request>;

    /// Returns the maximum number of different UTC days in a batch, or `None` for no limit.
    fn days(&self) -> Option<usize> {
        None
    }

    /// Returns the interval at which firing alerts are sent again, ns, or `None` if they are sent once.
    fn repeat_interval(&self) -> Option<Nanos> {
        None
    }

    /// Returns true if the sink needs to number the parts of rollups ([`RollupPart::nth`](crate::record::RollupPart::nth)), of
    /// rollups `per_flow` or of others.
    fn counts_parts(&self, per_flow: bool) -> bool {
        let _ = per_flow;
        false
    }

    /// Classifies the response to a request.
    fn outcome(&self, batch: &Batch<'_>, request: &Request, response: &Response<'_>) -> Outcome {
        let _ = (batch, request);
        Outcome::from_status(response.status, one_line(response.body), response.retry_after)
    }

    /// Checks the response to a schema statement.
    ///
    /// # Errors
    /// The server refused it; the error is the server's.
    fn executed(&self, request: &Request, response: &Response<'_>) -> Result<(), String> {
        let _ = request;
        match response.status {
            200..=299 => Ok(()),
            _ => Err(format!("the server refuses: {}", response_summary(response))),
        }
    }

    /// Returns a request that checks server, credentials and schema without storing anything.
    fn probe(&self, streams: &[Stream]) -> Request;

    /// Checks the response to the probe.
    ///
    /// # Errors
    /// One sentence with the problem and the remedy.
    fn probed(&self, streams: &[Stream], response: &Response<'_>) -> Result<(), String> {
        let _ = streams;
        match response.status {
            200..=299 => Ok(()),
            401 | 403 => Err(unauthorised(response, "")),
            404 => Err(format!(
                "the server has nothing there ({}); correct the url",
                response_summary(response)
            )),
            _ => Err(format!(
                "the server does not accept records: {}",
                response_summary(response)
            )),
        }
    }
}

/// Returns a message about refused credentials; `further_remedy` is appended.
fn unauthorised(response: &Response<'_>, further_remedy: &str) -> String {
    format!(
        "the server refuses the credentials ({}); correct user, password or token{further_remedy}",
        response_summary(response)
    )
}

/// Returns the status and the text of a response.
pub fn response_summary(response: &Response<'_>) -> String {
    let text = one_line(response.body);
    if text.is_empty() {
        format!("HTTP {}", response.status)
    } else {
        format!("HTTP {}: {text}", response.status)
    }
}

/// Returns the text of a response body on one line of bounded length.
pub fn one_line(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * MAX_RESPONSE_TEXT)]);
    let line: Vec<&str> = text.split_whitespace().collect();
    line.join(" ")
        .chars()
        .filter(|char| !char.is_control())
        .take(MAX_RESPONSE_TEXT)
        .collect()
}

/// Percent-encodes a query value: everything but unreserved characters (RFC 3986, section 2).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_server_are_one_short_line() {
        assert_eq!(one_line(b" a\n\tb\x07c \xff"), "a bc \u{fffd}");
        assert_eq!(one_line(&[b'x'; 10_000]).len(), MAX_RESPONSE_TEXT);
    }
}
