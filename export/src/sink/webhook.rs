//! Sink for webhooks: posts records as a JSON array or as NDJSON to any URL. The objects have the format of `--json`.
//!
//! A repeat has the same IDs, by which the receiver can deduplicate.

use super::{Batch, HttpSink, Request, Response, response_summary, unauthorised};
use crate::json;
use crate::record::Stream;

/// The options of the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The path and the query of the URL.
    pub target: String,
    /// The format of the body.
    pub format: Format,
}

/// Format of a request body.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Format {
    /// A JSON array: `application/json`.
    #[default]
    Array,
    /// An object per line: `application/x-ndjson`.
    Lines,
}

/// The sink for webhooks.
#[derive(Debug)]
pub struct Webhook {
    target: String,
    format: Format,
}

impl Webhook {
    /// Creates a sink with these options.
    ///
    /// # Errors
    /// The options are invalid; the message says what to do.
    pub fn new(options: &Options) -> Result<Self, String> {
        let target = &options.target;
        let is_target =
            target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if !is_target {
            return Err(format!(
                "invalid URL path {target:?}; it must begin with `/`, with a space written as %20, and so on"
            ));
        }
        Ok(Self {
            target: target.clone(),
            format: options.format,
        })
    }
}

impl HttpSink for Webhook {
    fn request(&self, batch: &Batch<'_>) -> Option<Request> {
        if batch.records.is_empty() {
            return None;
        }
        let is_array = self.format == Format::Array;
        let mut body = Vec::with_capacity(512 * batch.records.len());
        for (index, record) in batch.records.iter().enumerate() {
            if is_array {
                body.push(if index == 0 { b'[' } else { b',' });
            }
            json::write(record, batch.collector, &mut body);
            if !is_array {
                body.push(b'\n');
            }
        }
        if is_array {
            body.push(b']');
        }
        let kind = if is_array {
            "application/json"
        } else {
            "application/x-ndjson"
        };
        Some(Request {
            method: "POST",
            target: self.target.clone(),
            headers: vec![("content-type", kind.to_owned())],
            body,
            rows: (0..batch.records.len()).collect(),
        })
    }

    /// Returns a GET request; many servers that accept POST refuse it, which is fine.
    fn probe(&self, _: &[Stream]) -> Request {
        Request {
            method: "GET",
            target: self.target.clone(),
            ..Request::default()
        }
    }

    fn probed(&self, _: &[Stream], response: &Response<'_>) -> Result<(), String> {
        match response.status {
            // These statuses show that the endpoint exists but wants another request.
            200..=299 | 400 | 405 | 406 | 411 | 415 | 422 | 501 => Ok(()),
            300..=399 => Err(format!(
                "the server redirects ({}); write the final url",
                response_summary(response)
            )),
            401 | 403 => Err(unauthorised(response, "")),
            404 | 410 => Err(format!(
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
