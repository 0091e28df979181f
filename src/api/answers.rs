//! Answers about the current state: status, nodes, links, flows, paths, configuration, metrics.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::{HeaderName, header},
};
use collector::{Collector, SeriesView};
use serde::{Deserialize, Serialize};
use wire::FlowKey;

use super::{
    Context,
    params::{Form, Param, Params, Segment},
    refusal::Refusal,
};
use crate::{
    config::{Settings, build},
    metrics,
    monitor::merged,
    view::{
        self as shown, FlowDetail, FlowView, Flows, HopView, Links, NodeView, Nodes, Paths, QueueView,
        RateHistory, Spread, StatusView,
    },
};

/// Everything on the first screen.
pub(crate) async fn status(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<StatusView>, Refusal> {
    params.only(&[])?;
    Ok(Json(context.monitor.status(&context.active_config.settings()).await?))
}

/// Rates, second by second.
pub(crate) async fn rates(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<RateHistory>, Refusal> {
    params.only(&[])?;
    Ok(Json(RateHistory { rates: context.monitor.rate_history() }))
}

/// Latencies and queues of nodes, in one worker.
type NodeSeries = (Vec<SeriesView>, Vec<SeriesView>);

/// Every node that reported a latency or is on a path, with its queues.
pub(crate) async fn nodes(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<Nodes>, Refusal> {
    params.only(&[])?;
    let settings = context.active_config.settings();
    let topology = context.monitor.topology().await?;
    let series = context.monitor.ask(|collector| -> NodeSeries {
        (collector.nodes().take(MAX_KEYS).collect(), collector.queues().take(MAX_KEYS).collect())
    });
    let drops = context.monitor.pipeline().drops_by_node();
    let (units, now) = (build::queue_units(&settings), nic::time::now());
    // A series has whole seconds only: this is at most one second too early, and never too late.
    let seen = |series: &SeriesView| now.saturating_sub((u64::from(series.idle) + 1) * 1_000_000_000);
    let mut nodes: BTreeMap<u32, NodeView> = BTreeMap::new();
    for (id, seen) in topology.nodes() {
        let node = nodes.entry(*id).or_insert_with(|| new_node(*id, &settings, &drops));
        node.reports = seen.reports;
        node.last_seen = seen.last_seen;
    }
    let series = series.await?;
    for latency in merged(series.iter().map(|(latencies, _)| latencies)).values() {
        let node = nodes.entry(latency.node).or_insert_with(|| new_node(latency.node, &settings, &drops));
        node.reports = node.reports.max(latency.values);
        node.last_seen = node.last_seen.max(seen(latency));
        node.hop_latency = spread(latency);
    }
    for queue in merged(series.iter().map(|(_, queues)| queues)).values() {
        let node = nodes.entry(queue.node).or_insert_with(|| new_node(queue.node, &settings, &drops));
        node.last_seen = node.last_seen.max(seen(queue));
        let unit = units.get(usize::from(queue.profile)).map_or("", String::as_str);
        node.queues.push(queue_view(queue, unit));
    }
    Ok(Json(Nodes { nodes: nodes.into_values().collect() }))
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

/// Links as learnt from paths.
pub(crate) async fn links(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<Links>, Refusal> {
    params.only(&[])?;
    Ok(Json(Links { links: context.monitor.topology().await?.links() }))
}

/// The parameters of `/paths`.
pub(super) const PATHS: &[Param] = &[Param::limit(1_000, MAX_KEYS as u64)];

/// Paths, the most used first.
pub(crate) async fn paths(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<Paths>, Refusal> {
    let limit = params.only(PATHS)?.limit()?;
    let mut paths = context.monitor.topology().await?.paths();
    paths.truncate(limit);
    Ok(Json(Paths { paths }))
}

/// How flows are sorted, greatest first.
#[derive(Clone, Copy)]
enum Order {
    LastSeen,
    Latency,
    Reports,
}

impl Order {
    fn of(self, flow: &collector::FlowView<'_>) -> u64 {
        match self {
            Self::LastSeen => flow.row.last_seen,
            Self::Latency => flow.row.flow_latency.unwrap_or(0),
            Self::Reports => flow.row.reports,
        }
    }
}

/// The parameters of `/flows`.
pub(super) const FLOWS: &[Param] = &[
    Param::limit(100, 10_000),
    Param::new(
        "sort",
        "Largest first by this; default last_seen.",
        Form::OneOf(|| vec!["last_seen", "latency", "reports"]),
    ),
    Param::new("filter", "Only flows whose text contains this.", Form::Text),
];

/// Flows that match a text, sorted; `total` is how many matched.
pub(crate) async fn flows(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<Flows>, Refusal> {
    let params = params.only(FLOWS)?;
    let limit = params.limit()?;
    let order = match params.text("sort").unwrap_or("last_seen") {
        "last_seen" => Order::LastSeen,
        "latency" => Order::Latency,
        "reports" => Order::Reports,
        other => {
            return Err(Refusal::bad(format!("cannot sort by {other:?}; use last_seen, latency or reports")));
        }
    };
    let filter: Option<Arc<str>> = params.text("filter").map(Arc::from);
    let step = move |collector: &Collector, first: u32| {
        best_flows(collector, first, limit, order, filter.as_deref())
    };
    let (mut best, mut total) = (Vec::new(), 0);
    context
        .monitor
        .walk(step, |(found, count): Found| {
            total += count;
            best.extend(found);
            best.sort_by_key(|(key, _)| Reverse(*key));
            best.truncate(limit);
        })
        .await?;
    Ok(Json(Flows { flows: best.into_iter().map(|(_, flow)| flow).collect(), total }))
}

/// Flows with their sort key, and the number of matches.
type Found = (Vec<(u64, FlowView)>, u64);

/// The flows of one part of the table for the answer, and the number of matches.
fn best_flows(
    collector: &Collector,
    first: u32,
    limit: usize,
    order: Order,
    filter: Option<&str>,
) -> (Found, Option<u32>) {
    let end = first.saturating_add(FLOWS_AT_ONCE);
    let mut keys: Vec<(u64, FlowKey)> = collector
        .flows_in(first..end)
        .filter(|flow| filter.is_none_or(|text| flow.row.flow.to_string().contains(text)))
        .map(|flow| (order.of(&flow), flow.row.flow))
        .collect();
    let matched = keys.len() as u64;
    keys.sort_unstable_by_key(|(key, _)| Reverse(*key));
    keys.truncate(limit);
    let shown = |(key, flow): (u64, FlowKey)| collector.flow(&flow).map(|flow| (key, flow_view(&flow)));
    let found = keys.into_iter().filter_map(shown).collect();
    ((found, matched), (end < collector.flow_slots()).then_some(end))
}

fn flow_view(flow: &collector::FlowView<'_>) -> FlowView {
    let row = &flow.row;
    FlowView {
        id: shown::id(row.flow.id()),
        flow: row.flow.into(),
        text: row.flow.to_string(),
        path: flow.path().map(shown::node).collect(),
        flow_latency: row.flow_latency,
        basis: shown::basis(row.basis).into(),
        path_basis: Some(shown::basis(flow.path_basis).into()),
        incomplete: (flow.hop_limit || flow.mtu).then_some(true),
        reports: row.reports,
        first_seen: row.first_seen,
        last_seen: row.last_seen,
    }
}

fn flow_detail(flow: &collector::FlowView<'_>) -> FlowDetail {
    let hops = flow.hops().map(|hop| HopView {
        node: hop.node,
        ingress_if: hop.ingress_if.map(u32::from),
        egress_if: hop.egress_if,
        queue: hop.queue,
        hop_latency: hop.hop_latency,
        queue_occupancy: hop.queue_occupancy,
        link_utilization: hop.link_utilization.map(shown::fraction),
    });
    FlowDetail { flow: flow_view(flow), hops: hops.collect() }
}

/// One flow, by its id or by its text, hop by hop.
pub(crate) async fn flow(
    State(context): State<Arc<Context>>,
    Segment(id): Segment,
    params: Params,
) -> Result<Json<FlowDetail>, Refusal> {
    params.only(&[])?;
    let Ok(key) = id.parse::<FlowKey>() else { return Ok(Json(flow_by_id(&context, &id).await?.1)) };
    let found =
        context.monitor.ask(move |collector| collector.flow(&key).map(|flow| flow_detail(&flow))).await?;
    found.into_iter().flatten().next().map(Json).ok_or_else(|| no_flow(&id))
}

/// The flow with this id.
pub(crate) async fn flow_by_id(context: &Context, id: &str) -> Result<(FlowKey, FlowDetail), Refusal> {
    let wanted = u64::from_str_radix(id, 16).map_err(|_| {
        Refusal::bad(format!(
            "{id:?} is not a flow; use its 16-digit id, or its text such as 10.0.0.1:5000>10.0.0.2:80/17"
        ))
    })?;
    let mut found = None;
    let step = move |collector: &Collector, first: u32| {
        let end = first.saturating_add(FLOWS_AT_ONCE);
        let flow = collector.flows_in(first..end).find(|flow| flow.row.flow.id() == wanted);
        let further = (flow.is_none() && end < collector.flow_slots()).then_some(end);
        (flow.map(|flow| (flow.row.flow, flow_detail(&flow))), further)
    };
    context.monitor.walk(step, |flow| found = found.take().or(flow)).await?;
    found.ok_or_else(|| no_flow(id))
}

fn no_flow(id: &str) -> Refusal {
    Refusal::not_found(format!(
        "there is no flow {id} now; it may have expired, see /api/v1/events?flow=… for its history"
    ))
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

/// Metrics for Prometheus.
pub(crate) async fn metrics(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<([(HeaderName, &'static str); 1], String), Refusal> {
    params.only(&[])?;
    let switch = match &context.switch {
        Some(switch) => switch.ask(|forwarder| forwarder.view()).await,
        None => None,
    };
    let aggregator = context.aggregator.as_ref().map(crate::aggregator::view);
    let translator = context.translator.as_ref().map(crate::translator_role::view);
    let memory = context.memory.as_ref().map(|memory| memory.view());
    let dta = (translator.as_ref(), memory.as_ref());
    let text = metrics::text(&context.monitor, switch.as_ref(), aggregator.as_ref(), dta).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
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

/// Maximum number of nodes, queues and paths in an answer.
const MAX_KEYS: usize = 65_536;
/// Flows per step when each may be formatted as text: takes well below a tick.
const FLOWS_AT_ONCE: u32 = 4_096;
