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
use view::Names;

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

    /// Returns the names of nodes and hosts that the running hopwise knows; none if the stores are on this machine.
    pub(crate) fn names(&self) -> Names {
        match (&self.directory, &self.snapshot) {
            (None, None) => self
                .client(None)
                .map_or_else(|_| Names::default(), |client| remote::names(&client)),
            _ => Names::default(),
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

/// Formats fields as `name=value` in their order; known codes, nodes and hosts get their names.
pub(crate) fn fields_text(fields: &Values, names: &Names) -> String {
    fields
        .0
        .iter()
        .filter(|(name, _)| name != REASON_NAME)
        .map(|(name, value)| field_text(fields, name, value, names))
        .collect::<Vec<_>>()
        .join(" ")
}

fn field_text(fields: &Values, name: &str, value: &Value, names: &Names) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(values) if matches!(name, "path" | "node" | "switch") => {
            let nodes = values
                .iter()
                .map(|value| node_id(value).map_or_else(|| value.to_string(), |id| names.node(id)));
            format!("[{}]", nodes.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    };
    let meaning = match (name, value.as_u64()) {
        ("proto", Some(number)) => protocol(number).map(str::to_owned),
        ("reason", Some(_)) => fields.get(REASON_NAME).and_then(Value::as_str).map(str::to_owned),
        ("node" | "switch", Some(_)) => node_id(value).map(|id| names.node(id)),
        ("src" | "dst" | "src6" | "dst6", None) => value.as_str().map(|address| names.host(address)),
        _ => None,
    };
    let meaning = meaning.filter(|meaning| *meaning != text);
    match meaning {
        Some(meaning) => format!("{name}={meaning}({text})"),
        None if name == "value" && fields.0.len() == 1 => text,
        None => format!("{name}={text}"),
    }
}

fn node_id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
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
    use view::NamesView;

    use super::*;

    #[test]
    fn fields_keep_their_order_and_codes_have_names() {
        let values: Values =
            serde_json::from_str("{\"src\": \"10.0.0.1\", \"proto\": 17, \"node\": 3, \"reason\": 128, \"reason_name\": \"link down\"}")
                .unwrap();
        assert_eq!(
            fields_text(&values, &Names::default()),
            "src=10.0.0.1 proto=udp(17) node=3 reason=link down(128)"
        );
        let names: NamesView = serde_json::from_value(serde_json::json!({
            "nodes": [{"node": 3, "name": "leaf3", "interfaces": []}], "hosts": [{"address": "10.0.0.1", "name": "h1"}]}))
        .unwrap();
        let names = Names::from(names);
        assert_eq!(
            fields_text(&values, &names),
            "src=h1(10.0.0.1) proto=udp(17) node=leaf3(3) reason=link down(128)"
        );
        let path: Values = serde_json::from_str("{\"path\": [3, 4, null], \"latency\": 3}").unwrap();
        assert_eq!(fields_text(&path, &names), "path=[leaf3,4,null] latency=3");
        assert_eq!(
            fields_text(&Values(vec![("value".into(), 7.into())]), &names),
            "7"
        );
        let text = serde_json::to_string(&values).unwrap();
        assert!(
            text.starts_with("{\"src\":\"10.0.0.1\",\"proto\":17,\"node\":3,"),
            "{text}"
        );
    }
}
