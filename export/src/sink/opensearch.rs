//! Sink for OpenSearch and Elasticsearch: the bulk API.
//!
//! * <https://docs.opensearch.org/latest/api-reference/document-apis/bulk/>
//! * <https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-bulk>
//!
//! A record is a document in the data stream, or index, of its stream (`hopwise-events`): the JSON object of `--json` with
//! `@timestamp`. Documents are created with the record's ID as `_id`, so a repeat is refused with 409, which counts as success.
//! This holds within one backing index of a data stream; after a rollover, a repeat is a second document with the same `id`.
//! The parts of a rollup are separate documents, to be summed.
//!
//! HTTP status 200 does not mean success: the response has a status per document.

use serde::Deserialize;

use super::{Batch, HttpSink, Request, Response, one_line, response_summary, unauthorised};
use crate::json;
use crate::outcome::Outcome;
use crate::record::{COMMON, FieldKind, SCHEMA, Stream};
use crate::text::{hex, rfc3339};

const LONG_MAPPING: &str = "{\"type\":\"long\",\"ignore_malformed\":true}";
const IP_MAPPING: &str = "{\"type\":\"ip\",\"ignore_malformed\":true,\"fields\":{\"text\":{\"type\":\"keyword\",\"ignore_above\":64}}}";

/// The options of the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The prefix of the names of data streams and indices.
    pub prefix: String,
    /// True to write to data streams, false for plain indices.
    pub data_streams: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "hopwise".to_owned(),
            data_streams: true,
        }
    }
}

/// The sink for OpenSearch and Elasticsearch.
#[derive(Debug)]
pub struct OpenSearch {
    prefix: String,
    data_streams: bool,
}

impl OpenSearch {
    /// Returns a sink with these options.
    ///
    /// # Errors
    /// The options are invalid; the message says what to do.
    pub fn new(options: &Options) -> Result<Self, String> {
        let prefix = &options.prefix;
        let is_allowed = prefix
            .chars()
            .all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || "-_.".contains(char));
        if prefix.is_empty() || prefix.len() > 200 || !is_allowed {
            return Err(format!(
                "`prefix` is {prefix:?}; use 1 to 200 small letters, digits, `-`, `_` and `.` for it"
            ));
        }
        if prefix.starts_with(['-', '_', '.']) {
            return Err(format!(
                "`prefix` is {prefix:?}; let it begin with a letter or a digit"
            ));
        }
        Ok(Self {
            prefix: prefix.clone(),
            data_streams: options.data_streams,
        })
    }

    /// Returns the name of the data stream or of the index.
    fn index(&self, stream: Stream) -> String {
        format!("{}-{}", self.prefix, stream.name())
    }

    /// Returns the request that creates or replaces the index template of a stream. It fixes the type of each field; without
    /// it, the server guesses types and creates no data stream.
    pub fn template(&self, stream: Stream) -> Request {
        let name = self.index(stream);
        let mut body = format!("{{\"index_patterns\":[\"{name}\",\"{name}-*\"],\"priority\":200,");
        if self.data_streams {
            body.push_str("\"data_stream\":{},");
        }
        body.push_str(&format!("\"_meta\":{{\"schema\":{SCHEMA}}},\"template\":{{\"mappings\":{{\"dynamic\":false,\"properties\":{{"));
        body.push_str("\"@timestamp\":{\"type\":\"date_nanos\"}");
        for field in COMMON.iter().chain(stream.fields()) {
            // `ignore_malformed` keeps a document whose value has another form, without indexing that field.
            let mapping = match field.kind {
                FieldKind::Number | FieldKind::Time | FieldKind::Numbers => LONG_MAPPING,
                FieldKind::Id | FieldKind::Text => "{\"type\":\"keyword\"}",
                FieldKind::Address => IP_MAPPING,
                FieldKind::Flow => {
                    "{\"properties\":{\"src\":IP,\"dst\":IP,\"sport\":LONG,\"dport\":LONG,\"proto\":LONG}}"
                }
            };
            let mapping = mapping.replace("IP", IP_MAPPING).replace("LONG", LONG_MAPPING);
            body.push_str(&format!(",\"{}\":{mapping}", field.name));
        }
        body.push_str("}}}}");
        let target = format!("/_index_template/{name}");
        let headers = vec![("content-type", "application/json".to_owned())];
        Request {
            method: "PUT",
            target,
            headers,
            body: body.into_bytes(),
            rows: Vec::new(),
        }
    }
}

/// The bulk response, as far as `filter_path` selects it.
#[derive(Deserialize)]
struct Answer {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    create: Created,
}

#[derive(Deserialize)]
struct Created {
    status: u16,
    #[serde(default)]
    error: serde_json::Value,
}

/// The response to the probe.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Templates {
    index_templates: Vec<Template>,
}

#[derive(Deserialize)]
struct Template {
    name: String,
}

impl Created {
    /// Returns the status, the type and the reason of an error.
    fn reason(&self) -> String {
        if let Some(text) = self.error.as_str() {
            return one_line(text.as_bytes());
        }
        let kind = self.error_part("type");
        let reason = self.error_part("reason");
        one_line(format!("HTTP {} {kind}: {reason}", self.status).as_bytes())
    }

    fn error_part(&self, name: &str) -> &str {
        let part = self.error.get(name).and_then(serde_json::Value::as_str);
        part.unwrap_or_default()
    }
}

impl HttpSink for OpenSearch {
    fn request(&self, batch: &Batch<'_>) -> Option<Request> {
        if batch.records.is_empty() {
            return None;
        }
        let mut body = Vec::with_capacity(512 * batch.records.len());
        for record in batch.records {
            body.extend_from_slice(b"{\"create\":{\"_id\":\"");
            hex(record.row_id(batch.collector), &mut body);
            body.extend_from_slice(b"\"}}\n{\"@timestamp\":\"");
            rfc3339(record.ts(), &mut body);
            body.push(b'"');
            let start = body.len();
            json::write(record, batch.collector, &mut body);
            body[start] = b',';
            body.push(b'\n');
        }
        let target = format!(
            "/{}/_bulk?filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason",
            self.index(batch.stream)
        );
        let headers = vec![("content-type", "application/x-ndjson".to_owned())];
        let rows = (0..batch.records.len()).collect();
        Some(Request {
            method: "POST",
            target,
            headers,
            body,
            rows,
        })
    }

    fn outcome(&self, batch: &Batch<'_>, _: &Request, response: &Response<'_>) -> Outcome {
        if response.status != 200 {
            return Outcome::from_status(response.status, one_line(response.body), response.retry_after);
        }
        if response.is_cut {
            // Halving the batch shortens the response; documents that are already stored are recognised.
            return Outcome::Refused {
                reason: "the answer is too long to be read".to_owned(),
            };
        }
        let reason = match serde_json::from_slice::<Answer>(response.body) {
            Ok(answer) if answer.items.len() == batch.records.len() => return settled(&answer, response),
            Ok(answer) => {
                let answered = answer.items.len();
                let sent = batch.records.len();
                format!("the server answered for {answered} documents of {sent}")
            }
            Err(error) => format!(
                "no answer of a bulk request: {error}: {}",
                response_summary(response)
            ),
        };
        Outcome::Failed {
            reason,
            retry_after: response.retry_after,
        }
    }

    /// Returns a request for the index templates: users who may write documents may usually read these.
    fn probe(&self, _: &[Stream]) -> Request {
        let target = format!(
            "/_index_template/{}-*?filter_path=index_templates.name",
            self.prefix
        );
        Request {
            method: "GET",
            target,
            ..Request::default()
        }
    }

    fn probed(&self, streams: &[Stream], response: &Response<'_>) -> Result<(), String> {
        match response.status {
            200 | 404 => {
                let templates: Templates = serde_json::from_slice(response.body).unwrap_or_default();
                let names: Vec<&str> = templates
                    .index_templates
                    .iter()
                    .map(|template| template.name.as_str())
                    .collect();
                let missing = streams
                    .iter()
                    .map(|stream| self.index(*stream))
                    .find(|name| !names.contains(&name.as_str()));
                match missing {
                    Some(name) => Err(format!(
                        "the server has no index template `{name}`; make it with `hopwise schema apply`"
                    )),
                    None => Ok(()),
                }
            }
            401 | 403 => Err(unauthorised(response, ", and let them read templates")),
            _ => Err(format!(
                "the server does not accept documents: {}",
                response_summary(response)
            )),
        }
    }
}

fn settled(answer: &Answer, response: &Response<'_>) -> Outcome {
    let mut rejected = Vec::new();
    let mut retry = Vec::new();
    let mut denied = 0;
    for (index, Item { create }) in answer.items.iter().enumerate() {
        match create.status {
            200..=299 | 409 => {}
            // A write block on the index, often because the disk is full, is also reported as 403.
            401 | 403 | 404 | 408 | 429 | 500.. => {
                denied += usize::from(matches!(create.status, 401 | 403));
                retry.push(index);
            }
            _ => rejected.push((index, create.reason())),
        }
    }
    let all = retry.len() == answer.items.len();
    match retry.first() {
        Some(first) if all && denied == retry.len() => Outcome::Unauthorised {
            reason: answer.items[*first].create.reason(),
        },
        Some(first) if all => Outcome::Failed {
            reason: answer.items[*first].create.reason(),
            retry_after: response.retry_after,
        },
        first => {
            let reason = first.map_or_else(String::new, |first| answer.items[*first].create.reason());
            Outcome::Settled {
                rejected,
                retry,
                reason,
                retry_after: response.retry_after,
            }
        }
    }
}
