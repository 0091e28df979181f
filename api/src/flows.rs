//! `/flows`: lists flows that match a filter, page by page, and shows one flow by id or text, hop by hop.
//!
//! A list is selected from a copy of all flow summaries (`FlowIndex`), then each selected flow is looked up in the workers
//! for its current state. A filter on values of nodes, which summaries do not have, is evaluated on that state, in chunks.

use std::{sync::Arc, time::Instant};

use axum::{Json, extract::State};
use collector::{Collector, FlowOrder, FlowRank, FlowRow, FlowSummary, event::Basis};
use detect::Metric;
use filter::{Facts, Filter, View};
use store::FlowFilter;
use wire::FlowKey;

use super::{
    context::Context,
    cursor::{self, format_cursor, parse_cursor},
    filters,
    flow_list::{FlowPage, FlowQuery},
    names,
    page::{self, Prepared},
    params::{Form, PAST_FROM, PAST_TO, Param, Params, Segment},
    past,
    refusal::Refusal,
};
use collect_role::flow_index::FlowIndex;
use history::FlowsQuery;
use runtime::monitor::Busy;
use view::{self as shown, FlowDetail, FlowView, Flows, HopView};

/// Query parameters of `/flows`.
pub(super) const FLOWS: &[Param] = &[
    Param::limit(100, 10_000),
    Param::new(
        "sort",
        "Sort by this, largest first; default: last_seen.",
        Form::OneOf(|| vec!["last_seen", "latency", "reports"]),
    ),
    Param::new(
        "filter",
        "Only flows that match this filter, such as `src in 10.0.1.0/24 and path ~ 101>*>103`; a word alone is searched in their text.",
        Form::Filter,
    ),
    Param::new(
        "after",
        "Only flows after this one: `next` of the previous page.",
        Form::Cursor {
            pattern: cursor::PATTERN,
            check: |text| parse_cursor(text).is_some(),
        },
    ),
    PAST_FROM,
    PAST_TO,
];

/// Query parameters of `/flows/{id}`.
pub(super) const FLOW: &[Param] = &[PAST_FROM, PAST_TO];
/// Maximum number of flows per request to the workers.
const WORKER_CHUNK: usize = 256;
/// Number of flows looked up per chunk for a filter on node values.
const LOOKUP_CHUNK: usize = 2_048;
/// Maximum number of flows looked up for one page; the page then ends early, with a cursor.
const MAX_LOOKUPS: usize = 16_384;
/// Number of hops that certainly fills a page of JSON, in which each takes at least two bytes.
const MAX_HOPS: usize = 2 << 20;

/// Lists the flows that match a filter, sorted. `total` is the number of matches.
pub(crate) async fn flows(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let arrival = Instant::now();
    let params = params.only(FLOWS)?;
    let order = match params.text("sort") {
        Some("latency") => FlowOrder::Latency,
        Some("reports") => FlowOrder::Reports,
        _ => FlowOrder::LastSeen,
    };
    let after = params.text("after").and_then(parse_cursor);
    let limit = params.limit()?;
    let condition = filters::parse_condition(&context, &params, View::Flows).await?;
    if let Some(span) = past::span(&context, &params)? {
        let filter = FlowFilter {
            span,
            order,
            text: None,
            id: None,
            after,
            limit,
        };
        return past::flows(&context, FlowsQuery { filter, condition }).await;
    }
    let query = FlowQuery { limit, order, after };
    let index = context.monitor.flow_index(arrival, false).await?;
    let as_of = index.as_of();
    let matching = match condition {
        Some(condition) if condition.asks_nodes() => {
            select_by_hops(&context, &index, query, &condition).await?
        }
        condition => select_by_summary(&context, index, query, condition).await?,
    };
    let page_context = Arc::clone(&context);
    page::make(&context, move || {
        names::look_up(
            &page_context,
            matching.rows.iter().map(|(_, copy)| &copy.row.flow),
        );
        let (flows, is_cut) = page::fill(matching.rows.iter().map(|(_, copy)| flow_view(copy)), limit);
        let last_shown = matching
            .rows
            .get(..flows.len())
            .and_then(<[_]>::last)
            .map(|(rank, _)| *rank);
        // After a full lookup, `last_rank` may be after the last row (flows expire); a cut page continues after its last row.
        let is_partial = is_cut || !matching.is_complete;
        let last_rank = if is_partial {
            last_shown
        } else {
            matching.last_rank
        };
        let next = last_rank
            .filter(|_| matching.has_more || is_partial)
            .map(format_cursor);
        Flows {
            flows,
            total: matching.total,
            at_least: matching.is_lower_bound.then_some(true),
            as_of,
            next,
            range: None,
        }
    })
    .await
}

/// Matching flows in their current state.
#[derive(Default)]
struct MatchingFlows {
    rows: Vec<(FlowRank, FlowCopy)>,
    /// True if all selected flows were looked up; false if the page was full before.
    is_complete: bool,
    /// Rank of the last flow that was looked up.
    last_rank: Option<FlowRank>,
    /// True if flows follow after `last_rank`.
    has_more: bool,
    total: u64,
    /// True if more than `total` flows may match.
    is_lower_bound: bool,
}

/// Selects flows by their summaries alone.
async fn select_by_summary(
    context: &Arc<Context>,
    index: Arc<FlowIndex>,
    query: FlowQuery,
    condition: Option<Arc<Filter>>,
) -> Result<MatchingFlows, Refusal> {
    let page = page::compute(context, move || {
        FlowPage::select(index.flows(), &query, |flow| {
            condition
                .as_ref()
                .is_none_or(|condition| condition.matches(&facts_of(flow)))
        })
    })
    .await?;
    let current = copy_current(context, &page).await?;
    Ok(MatchingFlows {
        rows: current.copies,
        is_complete: current.is_complete,
        last_rank: page.flows.last().map(|(rank, _)| *rank),
        has_more: page.more,
        total: page.total,
        is_lower_bound: false,
    })
}

/// Selects flows by values of nodes, which only the workers have: looks up, in chunks, the flows that summaries do not exclude.
async fn select_by_hops(
    context: &Arc<Context>,
    index: &Arc<FlowIndex>,
    mut query: FlowQuery,
    condition: &Arc<Filter>,
) -> Result<MatchingFlows, Refusal> {
    let limit = std::mem::replace(&mut query.limit, LOOKUP_CHUNK);
    let is_first_page = query.after.is_none();
    let mut result = MatchingFlows {
        is_lower_bound: true,
        ..MatchingFlows::default()
    };
    let mut looked_up = 0;
    loop {
        let chunk_index = Arc::clone(index);
        let chunk_query = query.clone();
        let chunk_condition = Arc::clone(condition);
        let page = page::compute(context, move || {
            FlowPage::select(chunk_index.flows(), &chunk_query, |flow| {
                !chunk_condition.excludes(&facts_of(flow))
            })
        })
        .await?;
        let current = copy_current(context, &page).await?;
        let last_copied = current.copies.last().map(|(rank, _)| *rank);
        let matches = current
            .copies
            .into_iter()
            .filter(|(_, copy)| condition.matches(&copy.facts()));
        result.rows.extend(matches.take(limit + 1 - result.rows.len()));
        looked_up += page.flows.len();
        result.is_complete = true;
        (result.has_more, result.last_rank) = if current.is_complete {
            (page.more, page.flows.last().map(|(rank, _)| *rank))
        } else {
            (true, last_copied)
        };
        if result.rows.len() > limit {
            result.rows.truncate(limit);
            (result.has_more, result.last_rank) = (true, result.rows.last().map(|(rank, _)| *rank));
        } else if result.has_more
            && result.rows.len() < limit
            && looked_up < MAX_LOOKUPS
            && result.last_rank.is_some()
        {
            query.after = result.last_rank;
            continue;
        }
        result.total = result.rows.len() as u64;
        result.is_lower_bound = result.has_more || !is_first_page;
        return Ok(result);
    }
}

/// Returns the facts that a summary has about a flow.
fn facts_of(flow: &FlowSummary) -> Facts<'_> {
    let mut values = [None; Metric::COUNT];
    values[Metric::FlowLatency as usize] = flow.flow_latency();
    Facts {
        flow: Some(&flow.flow),
        reports: Some(flow.reports),
        values,
        ..Facts::default()
    }
}

/// Current state of a flow, copied from a worker.
struct FlowCopy {
    row: FlowRow,
    path: Vec<u32>,
    path_basis: Basis,
    path_length: u16,
    incomplete: bool,
    truncated: bool,
    /// Maximum over all hops, by metric.
    values: [Option<u64>; Metric::COUNT],
}

impl FlowCopy {
    fn from_view(flow: &collector::FlowView<'_>) -> Self {
        Self {
            row: flow.row,
            path: flow.path().collect(),
            path_basis: flow.path_basis,
            path_length: flow.path_length,
            incomplete: flow.incomplete || flow.path_length == 0 && (flow.hop_limit || flow.mtu),
            truncated: flow.truncated,
            values: max_values(flow),
        }
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            flow: Some(&self.row.flow),
            path: &self.path,
            reports: Some(self.row.reports),
            values: self.values,
            ..Facts::default()
        }
    }
}

/// Returns the values of a flow by metric; for node metrics, the maximum over its hops.
fn max_values(flow: &collector::FlowView<'_>) -> [Option<u64>; Metric::COUNT] {
    let mut values = [None; Metric::COUNT];
    values[Metric::FlowLatency as usize] = flow.row.flow_latency;
    for hop in flow.hops() {
        for (metric, value) in [
            (Metric::HopLatency, hop.hop_latency),
            (Metric::QueueOccupancy, hop.queue_occupancy),
            (Metric::QueueCongestion, hop.queue_congestion),
            (Metric::LinkUtilization, hop.link_utilization),
        ] {
            values[metric as usize] = values[metric as usize].max(value);
        }
    }
    values
}

/// Current state of a page's flows, without expired ones.
struct CurrentFlows {
    copies: Vec<(FlowRank, FlowCopy)>,
    /// False if the copies filled a page before all flows were looked up.
    is_complete: bool,
}

async fn copy_current(context: &Context, page: &FlowPage) -> Result<CurrentFlows, Busy> {
    let mut current = CurrentFlows {
        copies: Vec::new(),
        is_complete: true,
    };
    let mut hops = 0;
    for chunk in page.flows.chunks(WORKER_CHUNK) {
        // The flows so far fill more than one page.
        if hops > MAX_HOPS {
            current.is_complete = false;
            break;
        }
        let keys: Vec<FlowKey> = chunk.iter().map(|(_, key)| *key).collect();
        let mut answers = context
            .monitor
            .ask(move |collector: &Collector| {
                keys.iter()
                    .map(|key| collector.flow(key).as_ref().map(FlowCopy::from_view))
                    .collect::<Vec<_>>()
            })
            .await?;
        for (index, (rank, _)) in chunk.iter().enumerate() {
            let copy = answers
                .iter_mut()
                .find_map(|flows| flows.get_mut(index).and_then(Option::take));
            let Some(copy) = copy else { continue };
            hops += copy.path.len();
            current.copies.push((*rank, copy));
        }
    }
    Ok(current)
}

fn flow_view(copy: &FlowCopy) -> FlowView {
    let row = &copy.row;
    FlowView {
        id: shown::id(row.flow.id()),
        flow: row.flow.into(),
        text: row.flow.to_string(),
        path: copy.path.iter().copied().map(shown::node).collect(),
        flow_latency: row.flow_latency,
        latencies: None,
        basis: row.basis.name().into(),
        path_basis: Some(copy.path_basis.name().into()),
        incomplete: copy.incomplete.then_some(true),
        path_length: copy.path_length,
        truncated: copy.truncated,
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
        implausible_latency: hop.implausible_latency,
        queue_occupancy: hop.queue_occupancy,
        queue_congestion: hop.queue_congestion,
        link_utilization: hop.link_utilization.map(shown::fraction),
        latest_queue_occupancy: hop.queue_latest.map(|latest| latest.value),
        latest_queue_age_s: hop.queue_latest.map(|latest| latest.age),
        latest_link_utilization: hop.link_latest.map(|latest| shown::fraction(latest.value)),
        latest_link_age_s: hop.link_latest.map(|latest| latest.age),
    });
    FlowDetail {
        flow: flow_view(&FlowCopy::from_view(flow)),
        hops: hops.collect(),
        intents: None,
        range: None,
    }
}

/// Returns one flow, by id or text, hop by hop.
pub(crate) async fn flow(
    State(context): State<Arc<Context>>,
    Segment(id): Segment,
    params: Params,
) -> Result<Json<FlowDetail>, Refusal> {
    let params = params.only(FLOW)?;
    if let Some(span) = past::span(&context, &params)? {
        return Ok(Json(past::flow(&context, &id, span).await?));
    }
    let Ok(key) = id.parse::<FlowKey>() else {
        return Ok(Json(flow_by_id(&context, &id).await?.1));
    };
    detail(&context, key).await?.map(Json).ok_or_else(|| no_flow(&id))
}

/// Returns the current state of a flow, hop by hop; `None` if no worker has it.
async fn detail(context: &Context, key: FlowKey) -> Result<Option<FlowDetail>, Busy> {
    let details = context
        .monitor
        .ask(move |collector| collector.flow(&key).map(|flow| flow_detail(&flow)))
        .await?;
    let mut detail = details.into_iter().flatten().next();
    if detail.is_some() {
        names::look_up(context, [&key]);
    }
    if let (Some(detail), Some(manager)) = (&mut detail, &context.manager) {
        detail.intents = manager.ask(move |core, _| core.served(&key)).await;
    }
    Ok(detail)
}

/// Finds a flow by its id.
pub(crate) async fn flow_by_id(context: &Context, id: &str) -> Result<(FlowKey, FlowDetail), Refusal> {
    let flow_id = u64::from_str_radix(id, 16).map_err(|_| {
        Refusal::bad_request(format!(
            "{id:?} is not a flow; use its 16-digit id, or its text such as 10.0.0.1:5000>10.0.0.2:80/17"
        ))
    })?;
    let arrival = Instant::now();
    // First the latest copy, which is cheap; a flow that it does not have may be in a new one.
    for current in [false, true] {
        let index = context.monitor.flow_index(arrival, current).await?;
        let is_latest = index.is_since(arrival);
        if let Some((key, is_shared)) = page::compute(context, move || index.find(flow_id)).await? {
            if is_shared {
                return Err(Refusal::shared_flow_id(id));
            }
            if let Some(detail) = detail(context, key).await? {
                return Ok((key, detail));
            }
        }
        if is_latest {
            break;
        }
    }
    Err(no_flow(id))
}

fn no_flow(id: &str) -> Refusal {
    Refusal::not_found(format!(
        "there is no flow {id} now; it may have expired, see /api/v1/events?flow=… for its history"
    ))
}
