//! The commands that query collector memory: `get`, `count`, `sketch`, `tail`, `stores`, `calculate` and `map`. This file has
//! their common options, which select a running hopwise (or several, by a collector map), mapped regions, or a snapshot.

pub mod calculate;
pub mod count;
pub mod get;
pub mod map;
pub mod sketch;
pub mod stores;
pub mod tail;

use std::{path::PathBuf, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::remote::{self, fetch};
use dta::collector_map::{Collector, CollectorMap};
use dta::source::{DtaSource, SourceStore, Values};
use net::client::{Client, escape};
use runtime::collector_map;
use terminal::{CliError, text::json_line};

/// Name of the field in which the server adds the configured name of a drop reason.
pub(crate) const REASON_NAME: &str = "reason_name";

/// Options that select the memory to query: regions, a snapshot, or a running hopwise.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Source {
    /// Read the regions in this directory instead of querying a running hopwise ([collector.memory] directory)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["snapshot", "map"])]
    pub(crate) directory: Option<PathBuf>,

    /// Query this snapshot instead
    #[arg(long, value_name = "FILE", conflicts_with = "map")]
    pub(crate) snapshot: Option<PathBuf>,

    /// Query the collector that this map selects (see `hopwise map`), or all of them when no key selects one
    #[arg(long, value_name = "FILE")]
    pub(crate) map: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) api: remote::Api,
}

impl Source {
    /// Opens the stores on this machine, or returns `None` if a running hopwise is to be queried.
    pub(crate) fn source(&self) -> Result<Option<DtaSource>, CliError> {
        match (&self.directory, &self.snapshot) {
            (Some(directory), _) => DtaSource::open(directory).map(Some).map_err(CliError::new),
            (None, Some(file)) => {
                let store = SourceStore::open(file).map_err(CliError::new)?;
                Ok(Some(DtaSource::new(vec![Arc::new(store)])))
            }
            (None, None) => Ok(None),
        }
    }

    /// Reads the collector map named by `--map`, if any.
    pub(crate) fn map(&self) -> Result<Option<CollectorMap>, CliError> {
        self.map.as_deref().map(collector_map::load).transpose()
    }

    /// Creates a client of a map's collector, or of `--api` if `collector` is `None`.
    pub(crate) fn client(&self, collector: Option<&Collector>) -> Result<Client, CliError> {
        match collector {
            Some(collector) => remote::Api {
                url: collector.api.clone(),
                ..self.api.clone()
            }
            .client(),
            None => self.api.client(),
        }
    }

    /// Creates a client for each collector of the map, with its name; without a map, one for `--api`.
    pub(crate) fn clients(&self) -> Result<Vec<(Client, Option<String>)>, CliError> {
        let Some(map) = self.map()? else {
            return Ok(vec![(self.client(None)?, None)]);
        };
        map.collectors
            .iter()
            .map(|collector| Ok((self.client(Some(collector))?, Some(collector.name.clone()))))
            .collect()
    }

    /// Queries `collectors` in order until `is_final` accepts an answer, and otherwise returns the first; `name` records the
    /// collector's name in it. Without collectors, queries `--api`.
    pub(crate) fn query_collectors<T: DeserializeOwned>(
        &self,
        collectors: &[&Collector],
        path: &str,
        is_final: impl Fn(&T) -> bool,
        name: impl Fn(&mut T, &str),
    ) -> Result<T, CliError> {
        if collectors.is_empty() {
            return fetch(&self.client(None)?, path);
        }
        let mut first: Option<T> = None;
        for collector in collectors {
            let mut answer: T = fetch(&self.client(Some(collector))?, path)?;
            name(&mut answer, &collector.name);
            if is_final(&answer) {
                return Ok(answer);
            }
            first = first.or(Some(answer));
        }
        first.ok_or_else(|| CliError::new("the map has no collectors; create another with `hopwise map new`"))
    }
}

/// Formats the present values as a URL query, `?name=value&…`; empty if there are none.
pub(crate) fn url_query(pairs: &[(&str, Option<String>)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            let sign = if text.is_empty() { '?' } else { '&' };
            text.push_str(&format!("{sign}{name}={}", escape(value)));
        }
    }
    text
}

/// Prints an answer as JSON or as text.
pub(crate) fn print<T: Serialize>(
    answer: &T,
    json: bool,
    text: impl FnOnce(&T) -> String,
) -> Result<(), CliError> {
    let text = match json {
        true => json_line(answer)?,
        false => text(answer),
    };
    terminal::print(&text)
}

/// Formats fields as `name=value` in their order; known codes get their names.
pub(crate) fn fields_text(fields: &Values) -> String {
    fields
        .0
        .iter()
        .filter(|(name, _)| name != REASON_NAME)
        .map(|(name, value)| field_text(fields, name, value))
        .collect::<Vec<_>>()
        .join(" ")
}

fn field_text(fields: &Values, name: &str, value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let meaning = match (name, value.as_u64()) {
        ("proto", Some(number)) => protocol(number),
        ("reason", Some(_)) => fields.get(REASON_NAME).and_then(Value::as_str),
        _ => None,
    };
    match meaning {
        Some(meaning) => format!("{name}={meaning}({text})"),
        None if name == "value" && fields.0.len() == 1 => text,
        None => format!("{name}={text}"),
    }
}

/// Returns the name of a common IP protocol number.
fn protocol(number: u64) -> Option<&'static str> {
    let names = [
        (1, "icmp"),
        (6, "tcp"),
        (17, "udp"),
        (47, "gre"),
        (50, "esp"),
        (58, "icmpv6"),
        (132, "sctp"),
    ];
    names
        .into_iter()
        .find(|(name, _)| *name == number)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_codes_have_names() {
        let values: Values =
            serde_json::from_str("{\"src\": \"10.0.0.1\", \"proto\": 17, \"node\": 3, \"reason\": 128, \"reason_name\": \"link down\"}")
                .unwrap();
        assert_eq!(
            fields_text(&values),
            "src=10.0.0.1 proto=udp(17) node=3 reason=link down(128)"
        );
        assert_eq!(fields_text(&Values(vec![("value".into(), 7.into())])), "7");
        let text = serde_json::to_string(&values).unwrap();
        assert!(
            text.starts_with("{\"src\":\"10.0.0.1\",\"proto\":17,\"node\":3,"),
            "{text}"
        );
    }
}
