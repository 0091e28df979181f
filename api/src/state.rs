//! The live state: `/status`, `/rates`, `/nodes`, `/links`, `/paths`, `/config`, `/metrics` and `/healthz`. With `from` or
//! `to`, lists are answered by `past` instead.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderName, header},
};
use collector::SeriesView;
use serde::{Deserialize, Serialize};

use super::{
    context::Context,
    page::{self, Prepared},
    params::{NoParams, PAST_FROM, PAST_TO, Param, Params},
    past,
    refusal::Refusal,
};
use crate::metrics::{self, Format};
use ::export_role::role as export_role;
use collect_role::topology::Node;
use config::Settings;
use view::{Links, NodeView, Nodes, Paths, QueueView, RateHistory, Spread};

/// Query parameters of `/nodes`.
pub(super) const NODES: &[Param] = &[
    Param::limit(4_096, MAX_ROWS),
    Param::integer(
        "after",
        "Only nodes after this one: `next` of the previous page.",
        0,
        u32::MAX as u64,
    ),
    PAST_FROM,
    PAST_TO,
];
/// Query parameters of `/links`.
pub(super) const LINKS: &[Param] = &[Param::limit(4_096, MAX_ROWS), Param::offset(), PAST_FROM, PAST_TO];
/// Query parameters of `/paths`.
pub(super) const PATHS: &[Param] = &[Param::limit(1_000, MAX_ROWS), Param::offset(), PAST_FROM, PAST_TO];
/// Maximum number of rows of a page.
const MAX_ROWS: u64 = 10_000;

/// Returns the status of the program: rates, loss budget, inputs, tables, store.
pub(crate) async fn status(State(context): State<Arc<Context>>, _: NoParams) -> Result<Prepared, Refusal> {
    let monitor = Arc::clone(&context.monitor);
    let settings = context.active_config.get();
    let exports = context.exports.clone();
    page::make(&context, move || {
        let mut status = monitor.status(&settings.sources, settings.console.is_some());
        status
            .loss_budget
            .extend(exports.map(|exports| export_role::view::view(&exports).stage));
        status
    })
    .await
}

/// Returns the rates of the last minutes, second by second.
pub(crate) async fn rates(State(context): State<Arc<Context>>, _: NoParams) -> Json<RateHistory> {
    Json(RateHistory {
        rates: context.monitor.rate_history(),
    })
}

/// Lists nodes that reported a latency or a queue or are on a path, by id.
pub(crate) async fn nodes(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(NODES)?;
    let limit = params.limit()?;
    let after = params.number::<u32>("after")?;
    if let Some(span) = past::span(&context, &params)? {
        return past::nodes(&context, span, limit, after).await;
    }
    let topology = context.monitor.topology().await?;
    let settings = context.active_config.get();
    let drops = context.monitor.pipeline().drops_by_node();
    page::make(&context, move || {
        let units = settings.collect().queue_units();
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let nodes = topology.nodes().range((first, Bound::Unbounded));
        let views = nodes.map(|(id, node)| node_view(*id, node, &units, &settings, &drops));
        let (nodes, more) = page::fill(views, limit);
        let next = nodes.last().map(|node| node.node).filter(|_| more);
        Nodes {
            nodes,
            next,
            range: None,
        }
    })
    .await
}

fn node_view(
    id: u32,
    node: &Node,
    units: &[String],
    settings: &Settings,
    drops: &BTreeMap<u32, u64>,
) -> NodeView {
    let queues = node.queues.iter().map(|series| {
        let unit = units.get(usize::from(series.profile)).map_or("", String::as_str);
        queue_view(series, unit)
    });
    NodeView {
        node: id,
        name: settings.nodes.get(&id).and_then(|node| node.0.name.clone()),
        reports: node.reports,
        last_seen: node.last_seen,
        hop_latency: node.hop_latency.as_ref().map_or_else(Spread::default, spread),
        queues: queues.collect(),
        drops: drops.get(&id).copied().unwrap_or(0),
        implausible_latencies: node.hop_latency.map_or(0, |series| series.implausible),
    }
}

fn spread(series: &SeriesView) -> Spread {
    let last = &series.last;
    let has_values = last.count > 0;
    Spread {
        latest: (series.values > 0).then_some(series.latest),
        min: has_values.then_some(last.min),
        max: has_values.then_some(last.max),
        p50: last.p50,
        p99: last.p99,
    }
}

fn queue_view(series: &SeriesView, unit: &str) -> QueueView {
    let max = if series.last.count > 0 {
        series.last.max.max(series.latest)
    } else {
        series.latest
    };
    QueueView {
        queue: series.queue,
        interface: series.interface,
        occupancy: Some(series.latest),
        max: Some(max),
        unit: unit.to_owned(),
    }
}

/// Lists the links observed on paths, sorted by their ends.
pub(crate) async fn links(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(LINKS)?;
    let limit = params.limit()?;
    let offset = params.required_number("offset")?;
    if let Some(span) = past::span(&context, &params)? {
        return past::links(&context, span, limit, offset).await;
    }
    let topology = context.monitor.topology().await?;
    page::make(&context, move || {
        let (links, more) = page::fill(topology.links().skip(offset), limit);
        Links {
            next: more.then_some(offset + links.len()),
            links,
            range: None,
        }
    })
    .await
}

/// Lists the paths of flows, the most used first.
pub(crate) async fn paths(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(PATHS)?;
    let limit = params.limit()?;
    let offset = params.required_number("offset")?;
    if let Some(span) = past::span(&context, &params)? {
        return past::paths(&context, span, limit, offset).await;
    }
    let topology = context.monitor.topology().await?;
    page::make(&context, move || {
        let (paths, more) = page::fill(topology.paths().skip(offset), limit);
        Paths {
            next: more.then_some(offset + paths.len()),
            paths,
            range: None,
        }
    })
    .await
}

/// Returns the active configuration, without secrets.
pub(crate) async fn config(State(context): State<Arc<Context>>, _: NoParams) -> Json<serde_json::Value> {
    Json(context.active_config.get().to_json())
}

/// The response of `/config/reload`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Reload {
    /// Always true: a configuration that is refused is an error response.
    reloaded: bool,
    /// Changed settings that take effect only after a restart.
    restart_required: Vec<String>,
}

/// Reloads the configuration file; an invalid file changes nothing.
pub(crate) async fn reload(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<Reload>, Refusal> {
    match context.control.reload().await {
        Ok(Ok(restart_required)) => Ok(Json(Reload {
            reloaded: true,
            restart_required,
        })),
        Ok(Err(error)) => Err(Refusal::bad_request(error)),
        Err(_) => Err(Refusal::unavailable("hopwise is stopping; start it again")),
    }
}

/// Writes the metrics for Prometheus from published values, without waiting for workers.
pub(crate) async fn metrics(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
    _: NoParams,
) -> ([(HeaderName, &'static str); 1], String) {
    let accept: Vec<&str> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .collect();
    let format = Format::accepted(&accept.join(","));
    let switch = match &context.switch {
        Some(switch) => switch.last_view().await,
        None => None,
    };
    let aggregator = context.aggregator.as_ref().map(aggregate_role::role::view);
    let exports = context.exports.as_ref().map(::export_role::role::view::view);
    let reporter = context.reporter.as_ref().map(dta_role::reporter::view);
    let translator = context.translator.as_ref().map(dta_role::translator::view);
    let memory = context.memory.as_ref().map(|memory| memory.view());
    // A manager that is too busy to answer is left out.
    let devices = match &context.manager {
        Some(manager) => manager
            .ask(|core, _| core.device_counters())
            .await
            .unwrap_or_default(),
        None => Vec::new(),
    };
    // On a blocking thread, since there may be many names; without a thread, no names.
    let names = tokio::task::spawn_blocking(super::names::loader(&context))
        .await
        .unwrap_or_default();
    let sources = metrics::Sources {
        switch: switch.as_ref(),
        aggregator: aggregator.as_ref(),
        exports: exports.as_ref(),
        reporter: reporter.as_ref(),
        translator: translator.as_ref(),
        memory: memory.as_ref(),
        devices: &devices,
        names: &names,
        dns: context.dns.as_ref().map(|dns| dns.counts()),
        tls: &context.tls,
    };
    let text = metrics::render(&context.monitor, sources, format);
    ([(header::CONTENT_TYPE, format.content_type())], text)
}

/// Health check: 200, or 503 with the reason if the store fails.
pub(crate) async fn health(State(context): State<Arc<Context>>) -> Result<&'static str, Refusal> {
    match context.monitor.pipeline().store() {
        Some(stats) if stats.state != store::State::Ok => {
            let message = stats.message.unwrap_or_else(|| "see /api/v1/status".to_owned());
            Err(Refusal::unavailable(format!(
                "the store is {}: {message}",
                stats.state.name()
            )))
        }
        _ => Ok("ok\n"),
    }
}
