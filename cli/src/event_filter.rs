//! Options that filter events (`--kind`, `--node`, `--filter`, …): sent to a running hopwise as query parameters, and applied
//! to the events of a store.

use super::store_query::time;
use net::client::escape;
use terminal::CliError;
use view::EventView;

/// Kind of event that repeats an unchanged value at intervals; excluded unless requested.
pub(super) const UNCHANGED: &str = "latest";

/// A filter of events.
#[derive(clap::Args, Clone, Default, Debug)]
pub(crate) struct Filter {
    /// Only this kind: new, change, path_change, path_loop, rule_on, rule_off, drop, loss, expired, hop_limit, mtu,
    /// latest, packet_loss (default: all but `latest`, the periodic values without a change)
    #[arg(long)]
    pub(crate) kind: Option<String>,

    /// Only the node with this id
    #[arg(long, value_name = "ID", value_parser = node_id)]
    pub(crate) node: Option<u32>,

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
        let node = self.node.map(|node| node.to_string());
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
            && self.node.is_none_or(|node| event.node == Some(node))
            && self.from.is_none_or(|from| event.ts >= from)
            && self.to.is_none_or(|to| event.ts <= to)
    }

    /// Returns whether `--filter` mentions the periodic values, which are excluded by default.
    pub(super) fn names_unchanged(&self) -> bool {
        self.filter
            .as_deref()
            .is_some_and(|text| text.contains(UNCHANGED))
    }

    pub(super) fn check(&self) -> Result<(), CliError> {
        let kinds = collector::Kind::ALL.iter().map(|kind| kind.name());
        known("kind of event", self.kind.as_deref(), kinds.collect())?;
        let metrics = detect::Metric::ALL.iter().map(|metric| metric.name());
        known("metric", self.metric.as_deref(), metrics.collect())?;
        // Node names are known only to a running hopwise; here any name is accepted.
        self.condition(&|_| Some(0)).map(drop)
    }

    /// Parses `--filter`; `names` resolves the names of nodes.
    pub(super) fn condition(
        &self,
        names: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Option<filter::Filter>, CliError> {
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

fn node_id(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "write a node id, a whole number such as 102".to_owned())
}
