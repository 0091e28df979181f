//! Flows: a page of those that match, and one by its id or its text.

use std::{sync::Arc, time::Instant};

use axum::{Json, extract::State};
use collector::{Collector, FlowOrder, FlowPage, FlowQuery, FlowRank, FlowRow, event::Basis};
use wire::FlowKey;

use super::{
    Context, names,
    page::{self, Prepared},
    params::{Form, Param, Params, Segment},
    refusal::Refusal,
};
use crate::{
    monitor::Busy,
    view::{self as shown, FlowDetail, FlowView, Flows, HopView},
};

/// The form of `next` and `after`.
fn cursor(FlowRank(value, id): FlowRank) -> String {
    format!("{value:x}-{id:016x}")
}

fn parse_cursor(text: &str) -> Option<FlowRank> {
    let (value, id) = text.split_once('-')?;
    let hex = |text: &str, digits: usize| {
        let fits = (1..=digits).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        fits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
    };
    Some(FlowRank(hex(value, 16)?, hex(id, 16)?))
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
    Param::new(
        "after",
        "Only flows after this one: `next` of the previous page.",
        Form::Cursor {
            pattern: "^[0-9a-f]{1,16}-[0-9a-f]{1,16}$",
            check: |text| parse_cursor(text).is_some(),
        },
    ),
];

/// Flows that match a text, sorted; `total` is how many matched.
pub(crate) async fn flows(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let arrival = Instant::now();
    let params = params.only(FLOWS)?;
    let order = match params.text("sort") {
        Some("latency") => FlowOrder::Latency,
        Some("reports") => FlowOrder::Reports,
        _ => FlowOrder::LastSeen,
    };
    let after = params.text("after").and_then(parse_cursor);
    let (limit, filter) = (params.limit()?, params.text("filter").map(str::to_owned));
    let query = FlowQuery { limit, order, filter, after };
    let index = context.monitor.flow_index(arrival, false).await?;
    let as_of = index.as_of();
    let page = page::compute(&context, move || FlowPage::select(index.flows(), &query)).await?;
    let (present, whole) = present(&context, &page).await?;
    let asked = Arc::clone(&context);
    page::make(&context, move || {
        names::look_up(&asked, present.iter().map(|(_, copy)| &copy.row.flow));
        let FlowPage { flows: ranked, more, total } = page;
        let (flows, cut) = page::fill(present.iter().map(|(_, copy)| flow_view(copy)), limit);
        let shown = present.get(..flows.len()).and_then(<[_]>::last).map(|(rank, _)| *rank);
        // Flows after the last one that is shown have expired, unless the page was cut.
        let last = if cut || !whole { shown } else { ranked.last().map(|(rank, _)| *rank) };
        let next = last.filter(|_| more || cut || !whole).map(cursor);
        Flows { flows, total, as_of, next }
    })
    .await
}

/// The present state of a flow, as a worker copies it.
struct FlowCopy {
    row: FlowRow,
    path: Vec<u32>,
    path_basis: Basis,
    path_length: u16,
    incomplete: bool,
    truncated: bool,
}

impl FlowCopy {
    fn of(flow: &collector::FlowView<'_>) -> Self {
        Self {
            row: flow.row,
            path: flow.path().collect(),
            path_basis: flow.path_basis,
            path_length: flow.path_length,
            incomplete: flow.hop_limit || flow.mtu,
            truncated: flow.truncated,
        }
    }
}

/// The flows of a page as they are now, with their ranks, and whether these are all; those that expired in the meantime are left
/// out.
async fn present(context: &Context, page: &FlowPage) -> Result<(Vec<(FlowRank, FlowCopy)>, bool), Busy> {
    let (mut present, mut hops) = (Vec::new(), 0);
    for chunk in page.flows.chunks(FLOWS_AT_ONCE) {
        // These alone fill more than a page.
        if hops > MAX_HOPS {
            return Ok((present, false));
        }
        let keys: Vec<FlowKey> = chunk.iter().map(|(_, key)| *key).collect();
        let ask = move |collector: &Collector| {
            keys.iter().map(|key| collector.flow(key).as_ref().map(FlowCopy::of)).collect::<Vec<_>>()
        };
        let mut workers = context.monitor.ask(ask).await?;
        for (index, (rank, _)) in chunk.iter().enumerate() {
            let copy = workers.iter_mut().find_map(|copies| copies.get_mut(index).and_then(Option::take));
            let Some(copy) = copy else { continue };
            hops += copy.path.len();
            present.push((*rank, copy));
        }
    }
    Ok((present, true))
}

fn flow_view(copy: &FlowCopy) -> FlowView {
    let row = &copy.row;
    FlowView {
        id: shown::id(row.flow.id()),
        flow: row.flow.into(),
        text: row.flow.to_string(),
        path: copy.path.iter().copied().map(shown::node).collect(),
        flow_latency: row.flow_latency,
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
    FlowDetail { flow: flow_view(&FlowCopy::of(flow)), hops: hops.collect(), intents: None }
}

/// One flow, by its id or by its text, hop by hop.
pub(crate) async fn flow(
    State(context): State<Arc<Context>>,
    Segment(id): Segment,
    params: Params,
) -> Result<Json<FlowDetail>, Refusal> {
    params.only(&[])?;
    let Ok(key) = id.parse::<FlowKey>() else { return Ok(Json(flow_by_id(&context, &id).await?.1)) };
    detail(&context, key).await?.map(Json).ok_or_else(|| no_flow(&id))
}

/// The flow as it is now, hop by hop.
async fn detail(context: &Context, key: FlowKey) -> Result<Option<FlowDetail>, Busy> {
    let found =
        context.monitor.ask(move |collector| collector.flow(&key).map(|flow| flow_detail(&flow))).await?;
    let mut found = found.into_iter().flatten().next();
    if found.is_some() {
        names::look_up(context, [&key]);
    }
    if let (Some(detail), Some(manager)) = (&mut found, &context.manager) {
        detail.intents = manager.ask(move |core, _| core.served(&key)).await;
    }
    Ok(found)
}

/// The flow with this id.
pub(crate) async fn flow_by_id(context: &Context, id: &str) -> Result<(FlowKey, FlowDetail), Refusal> {
    let wanted = u64::from_str_radix(id, 16).map_err(|_| {
        Refusal::bad(format!(
            "{id:?} is not a flow; use its 16-digit id, or its text such as 10.0.0.1:5000>10.0.0.2:80/17"
        ))
    })?;
    let arrival = Instant::now();
    // A flow that an earlier copy of the flows lacks may be in a new one.
    for current in [false, true] {
        let index = context.monitor.flow_index(arrival, current).await?;
        let complete = index.is_since(arrival);
        if let Some(key) = page::compute(context, move || index.find(wanted)).await?
            && let Some(detail) = detail(context, key).await?
        {
            return Ok((key, detail));
        }
        if complete {
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

/// Flows per query to the workers.
const FLOWS_AT_ONCE: usize = 256;
/// Number of hops that certainly fills a page: each takes at least two bytes of JSON.
const MAX_HOPS: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_what_it_writes() {
        for rank in [FlowRank(0, 0), FlowRank(u64::MAX, u64::MAX), FlowRank(17, 4)] {
            assert_eq!(parse_cursor(&cursor(rank)), Some(rank));
        }
        for text in ["", "-", "1", "1-", "-1", "+1-1", "1-+1", "00000000000000001-1", "1-1-1", "g-1"] {
            assert_eq!(parse_cursor(text), None, "{text}");
        }
    }
}
