//! Answers about the current state: status, nodes, links, flows, paths, configuration, metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderName, header},
};
use collector::SeriesView;
use serde::{Deserialize, Serialize};

use super::{
    Context,
    page::{self, Prepared},
    params::{Param, Params},
    refusal::Refusal,
};
use crate::{
    config::{Settings, build},
    metrics::{self, Format},
    monitor::merged,
    topology::Topology,
    view::{Links, NodeView, Nodes, Paths, QueueView, RateHistory, Spread},
};

/// Everything on the first screen.
pub(crate) async fn status(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    params.only(&[])?;
    let (monitor, settings) = (Arc::clone(&context.monitor), context.active_config.settings());
    page::make(&context, move || monitor.status(&settings)).await
}

/// Rates, second by second.
pub(crate) async fn rates(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<RateHistory>, Refusal> {
    params.only(&[])?;
    Ok(Json(RateHistory { rates: context.monitor.rate_history() }))
}

/// The parameters of `/nodes`.
pub(super) const NODES: &[Param] = &[
    Param::limit(4_096, MAX_ROWS),
    Param::integer("after", "Only nodes after this one: `next` of the previous page.", 0, u32::MAX as u64),
];

/// Nodes that reported a latency or are on a path, with their queues, by id.
pub(crate) async fn nodes(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(NODES)?;
    let (limit, after) = (params.limit()?, params.number::<u32>("after")?);
    let topology = context.monitor.topology().await?;
    let settings = context.active_config.settings();
    let known =
        context.monitor.ask(|collector| collector.nodes().map(|series| series.node).collect::<Vec<_>>());
    let mut ids: BTreeSet<u32> = known.await?.into_iter().flatten().collect();
    let mut on_paths: Vec<u32> = topology.nodes().keys().filter(|id| !ids.contains(id)).copied().collect();
    on_paths.sort_unstable();
    let room = settings.collector.max_nodes.saturating_sub(ids.len());
    ids.extend(on_paths.into_iter().take(room));
    let mut ids: Vec<u32> = ids.into_iter().take(settings.collector.max_nodes).collect();
    ids.retain(|id| after.is_none_or(|after| *id > after));
    let more = ids.len() > limit;
    ids.truncate(limit);
    let ids = Arc::new(ids);
    let wanted = Arc::clone(&ids);
    let series = context.monitor.ask(move |collector| -> NodeSeries {
        let listed = |series: &SeriesView| wanted.binary_search(&series.node).is_ok();
        (collector.nodes().filter(listed).collect(), collector.queues().filter(listed).collect())
    });
    let (series, drops) = (series.await?, context.monitor.pipeline().drops_by_node());
    page::make(&context, move || {
        let views = node_views(&ids, &topology, &series, (&settings, &drops));
        let (nodes, cut) = page::fill(views.into_values(), limit);
        let next = nodes.last().map(|node| node.node).filter(|_| more || cut);
        Nodes { nodes, next }
    })
    .await
}

/// Latencies and queues of nodes, in one worker.
type NodeSeries = (Vec<SeriesView>, Vec<SeriesView>);

fn node_views(
    ids: &[u32],
    topology: &Topology,
    series: &[NodeSeries],
    (settings, drops): (&Settings, &BTreeMap<u32, u64>),
) -> BTreeMap<u32, NodeView> {
    let (units, now) = (build::queue_units(settings), nic::time::now());
    // A series has whole seconds only: this is at most one second too early, and never too late.
    let seen = |series: &SeriesView| now.saturating_sub((u64::from(series.idle) + 1) * 1_000_000_000);
    let mut nodes: BTreeMap<u32, NodeView> =
        ids.iter().map(|id| (*id, new_node(*id, settings, drops))).collect();
    for node in nodes.values_mut() {
        if let Some(seen) = topology.nodes().get(&node.node) {
            (node.reports, node.last_seen) = (seen.reports, seen.last_seen);
        }
    }
    for latency in merged(series.iter().map(|(latencies, _)| latencies)).values() {
        let Some(node) = nodes.get_mut(&latency.node) else { continue };
        node.reports = node.reports.max(latency.values);
        node.last_seen = node.last_seen.max(seen(latency));
        node.hop_latency = spread(latency);
    }
    for queue in merged(series.iter().map(|(_, queues)| queues)).values() {
        let Some(node) = nodes.get_mut(&queue.node) else { continue };
        node.last_seen = node.last_seen.max(seen(queue));
        let unit = units.get(usize::from(queue.profile)).map_or("", String::as_str);
        node.queues.push(queue_view(queue, unit));
    }
    nodes
}

fn new_node(id: u32, settings: &Settings, drops: &BTreeMap<u32, u64>) -> NodeView {
    NodeView {
        node: id,
        name: settings.nodes.get(&id).and_then(|node| node.0.name.clone()),
        reports: 0,
        last_seen: 0,
        hop_latency: Spread::default(),
        queues: Vec::new(),
        drops: drops.get(&id).copied().unwrap_or(0),
    }
}

fn spread(series: &SeriesView) -> Spread {
    let last = &series.last;
    let known = last.count > 0;
    Spread {
        latest: Some(series.latest),
        min: known.then_some(last.min),
        max: known.then_some(last.max),
        p50: last.p50,
        p99: last.p99,
    }
}

fn queue_view(series: &SeriesView, unit: &str) -> QueueView {
    let max = if series.last.count > 0 { series.last.max.max(series.latest) } else { series.latest };
    QueueView {
        // The entry for all queues of the node has no number.
        queue: u8::try_from(series.part).ok(),
        occupancy: Some(series.latest),
        max: Some(max),
        unit: unit.to_owned(),
    }
}

/// The parameters of `/links`.
pub(super) const LINKS: &[Param] = &[Param::limit(4_096, MAX_ROWS), Param::offset()];

/// Links as learnt from paths, by their ends.
pub(crate) async fn links(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(LINKS)?;
    let (limit, offset) = (params.limit()?, params.number("offset")?.unwrap_or(0));
    let topology = context.monitor.topology().await?;
    page::make(&context, move || {
        let (links, more) = page::fill(topology.links().skip(offset), limit);
        Links { next: more.then_some(offset + links.len()), links }
    })
    .await
}

/// The parameters of `/paths`.
pub(super) const PATHS: &[Param] = &[Param::limit(1_000, MAX_ROWS), Param::offset()];

/// Paths, the most used first.
pub(crate) async fn paths(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(PATHS)?;
    let (limit, offset) = (params.limit()?, params.number("offset")?.unwrap_or(0));
    let topology = context.monitor.topology().await?;
    page::make(&context, move || {
        let (paths, more) = page::fill(topology.paths().skip(offset), limit);
        Paths { next: more.then_some(offset + paths.len()), paths }
    })
    .await
}

/// The active configuration, secrets hidden.
pub(crate) async fn config(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<serde_json::Value>, Refusal> {
    params.only(&[])?;
    Ok(Json(context.active_config.settings().to_json()))
}

/// The answer of `/config/reload`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Reload {
    /// True.
    reloaded: bool,
    /// Changed settings that take effect only after a restart.
    restart_required: Vec<String>,
}

/// Reads the configuration file again.
pub(crate) async fn reload(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<Reload>, Refusal> {
    params.only(&[])?;
    match context.control.reload().await {
        Ok(Ok(restart_required)) => Ok(Json(Reload { reloaded: true, restart_required })),
        Ok(Err(error)) => Err(Refusal::bad(error)),
        Err(_) => Err(Refusal::unavailable("hopwise is stopping; start it again")),
    }
}

/// Metrics for Prometheus, from what others published: nobody is waited for.
pub(crate) async fn metrics(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
    params: Params,
) -> Result<([(HeaderName, &'static str); 1], String), Refusal> {
    params.only(&[])?;
    let accept: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).collect();
    let format = Format::accepted(&accept.join(","));
    let switch = match &context.switch {
        Some(switch) => switch.last_view().await,
        None => None,
    };
    let aggregator = context.aggregator.as_ref().map(crate::aggregator::view);
    let translator = context.translator.as_ref().map(crate::translator_role::view);
    let memory = context.memory.as_ref().map(|memory| memory.view());
    let dta = (translator.as_ref(), memory.as_ref());
    let text = metrics::text(&context.monitor, switch.as_ref(), aggregator.as_ref(), dta, format);
    Ok(([(header::CONTENT_TYPE, format.content_type())], text))
}

/// Health check: 503 with the reason when the store fails.
pub(crate) async fn health(State(context): State<Arc<Context>>) -> Result<&'static str, Refusal> {
    match context.monitor.pipeline().store() {
        Some(stats) if stats.state != store::State::Ok => {
            let message = stats.message.unwrap_or_else(|| "see /api/v1/status".to_owned());
            Err(Refusal::unavailable(format!("the store is {}: {message}", stats.state.name())))
        }
        _ => Ok("ok\n"),
    }
}

/// Maximum number of rows of a page.
const MAX_ROWS: u64 = 10_000;
