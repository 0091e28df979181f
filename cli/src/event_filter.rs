//! Options that filter events (`--kind`, `--node`, `--filter`, …): sent to a running hopwise as query parameters, and applied
//! to the events of a store.

use super::store_query::time;
use net::client::escape;
use terminal::CliError;
use view::{EventView, Names};

/// Kind of event that repeats an unchanged value at intervals; excluded unless requested.
pub(super) const UNCHANGED: &str = "latest";

/// A filter of events.
#[derive(clap::Args, Clone, Default, Debug)]
pub(crate) struct Filter {
    /// Only this kind: new, change, path_change, path_loop, rule_on, rule_off, drop, loss, expired, hop_limit, mtu,
    /// latest, packet_loss (default: all but `latest`, the periodic values without a change)
    #[arg(long)]
    pub(crate) kind: Option<String>,

    /// Only the node with this id or name
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,

    /// The id of `node`, set by [`Filter::resolve`]
    #[arg(skip)]
    pub(crate) node_id: Option<u32>,

    /// Only this metric: flow_path, flow_latency, hop_latency, queue_occupancy, queue_congestion, link_utilization
    #[arg(long)]
    pub(crate) metric: Option<String>,

    /// Only this flow, for example "10.0.0.1:5000>10.0.0.2:80/17"
    #[arg(long)]
    pub(crate) flow: Option<String>,

    /// Only events that match this filter, for example "kind == drop and src in 10.0.1.0/24 and not path ~ 101>*>103"
    #[arg(long, value_name = "CONDITION")]
    pub(crate) filter: Option<String>,

    /// Only events at or after this time: UTC such as 2026-11-26T03:10Z or 2026-11-26, an age (30s, 15m, 2h, 7d), or ns since 1970 (years 2000 to 2199)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time, conflicts_with = "follow")]
    pub(crate) from: Option<u64>,

    /// Only events at or before this time, likewise
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time, conflicts_with = "follow")]
    pub(crate) to: Option<u64>,
}

impl Filter {
    /// Formats the filter as URL query parameters. The text begins with `separator`, which is `?` or `&`.
    pub(super) fn query(&self, mut separator: char) -> String {
        let mut out = String::new();
        let node = self.node_id.map(|node| node.to_string());
        let [from, to] = [self.from, self.to].map(|time| time.map(|time| time.to_string()));
        let fields = [
            ("kind", &self.kind),
            ("node", &node),
            ("metric", &self.metric),
            ("flow", &self.flow),
            ("filter", &self.filter),
            ("from", &from),
            ("to", &to),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                out.push(separator);
                out.push_str(&format!("{name}={}", escape(value)));
                separator = '&';
            }
        }
        out
    }

    /// Returns whether an event passes. The server filters too, but an older one may not know all parameters.
    pub(super) fn passes(&self, event: &EventView) -> bool {
        let kind = match &self.kind {
            Some(kind) => *kind == *event.kind,
            None => *event.kind != *UNCHANGED || self.names_unchanged(),
        };
        kind && self
            .metric
            .as_deref()
            .is_none_or(|metric| event.metric.as_deref() == Some(metric))
            && self
                .flow
                .as_deref()
                .is_none_or(|flow| event.text.as_deref() == Some(flow))
            && self.node_id.is_none_or(|node| event.node == Some(node))
            && self.from.is_none_or(|from| event.ts >= from)
            && self.to.is_none_or(|to| event.ts <= to)
    }

    /// Returns whether `--filter` mentions the periodic values, which are excluded by default.
    pub(super) fn names_unchanged(&self) -> bool {
        self.filter
            .as_deref()
            .is_some_and(|text| text.contains(UNCHANGED))
    }

    /// Looks up the id of `--node`. An id needs no names.
    pub(super) fn resolve(&mut self, names: &Names) -> Result<(), CliError> {
        let Some(node) = &self.node else { return Ok(()) };
        let id = node.parse().ok().or_else(|| names.node_id(node));
        self.node_id = Some(id.ok_or_else(|| {
            CliError::new(format!(
                "no node has the name `{node}`; write a node id such as 102, or a name that `hopwise top` lists"
            ))
        })?);
        Ok(())
    }

    /// Returns whether names are needed to resolve `--node`.
    pub(super) fn has_node_name(&self) -> bool {
        self.node
            .as_deref()
            .is_some_and(|node| node.parse::<u32>().is_err())
    }

    pub(super) fn check(&self) -> Result<(), CliError> {
        let kinds = collector::Kind::ALL.iter().map(|kind| kind.name());
        known("kind of event", self.kind.as_deref(), kinds.collect())?;
        let metrics = detect::Metric::ALL.iter().map(|metric| metric.name());
        known("metric", self.metric.as_deref(), metrics.collect())?;
        self.condition(&AnyName).map(drop)
    }

    /// Parses `--filter`; `names` resolves the names of nodes and drop reasons.
    pub(super) fn condition(&self, names: &dyn filter::Names) -> Result<Option<filter::Filter>, CliError> {
        let Some(text) = &self.filter else { return Ok(None) };
        filter::Filter::parse(text, filter::View::Events, names)
            .map(Some)
            .map_err(|fault| {
                let before = text.get(..fault.position).unwrap_or_default().chars().count();
                let covered = text
                    .get(fault.position..fault.position + fault.length)
                    .unwrap_or_default();
                let marks = "^".repeat(covered.chars().count().max(1));
                CliError::new(format!("{}\n  {text}\n  {:before$}{marks}", fault.message, ""))
            })
    }
}

/// Accepts any name: names are known only to a running hopwise, or to a configuration.
struct AnyName;

impl filter::Names for AnyName {
    fn node(&self, _name: &str) -> Option<u32> {
        Some(0)
    }

    fn reason_codes(&self, _name: &str) -> Vec<u8> {
        vec![0]
    }
}

/// Rejects an unknown name and lists the known ones.
fn known(kind: &str, name: Option<&str>, names: Vec<&str>) -> Result<(), CliError> {
    match name {
        Some(name) if !names.contains(&name) => Err(CliError::new(format!(
            "`{name}` is not a {kind}; use one of {}",
            names.join(", ")
        ))),
        _ => Ok(()),
    }
}
