//! Flows: a page of those that match, and one by its id or its text.

use std::{cmp::Reverse, sync::Arc};

use axum::{Json, extract::State};
use collector::Collector;
use wire::FlowKey;

use super::{
    Context,
    page::{self, Prepared},
    params::{Form, Param, Params, Segment},
    refusal::Refusal,
};
use crate::{
    monitor::Busy,
    view::{self as shown, FlowDetail, FlowView, Flows, HopView},
    worker::visit_flows,
};

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

/// The position of a flow in the order: its value, then its id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank(u64, u64);

impl Rank {
    /// The form of `next` and `after`.
    fn text(self) -> String {
        format!("{:x}-{:016x}", self.0, self.1)
    }

    fn parse(text: &str) -> Option<Self> {
        let (value, id) = text.split_once('-')?;
        let hex = |text: &str, digits: usize| {
            let fits = (1..=digits).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
            fits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
        };
        Some(Self(hex(value, 16)?, hex(id, 16)?))
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
    Param::new(
        "after",
        "Only flows after this one: `next` of the previous page.",
        Form::Cursor {
            pattern: "^[0-9a-f]{1,16}-[0-9a-f]{1,16}$",
            check: |text| Rank::parse(text).is_some(),
        },
    ),
];

/// The requested page.
#[derive(Clone)]
struct FlowQuery {
    limit: usize,
    order: Order,
    filter: Option<Arc<str>>,
    after: Option<Rank>,
}

/// Flows that match a text, sorted; `total` is how many matched.
pub(crate) async fn flows(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(FLOWS)?;
    let order = match params.text("sort") {
        Some("latency") => Order::Latency,
        Some("reports") => Order::Reports,
        _ => Order::LastSeen,
    };
    let after = params.text("after").and_then(Rank::parse);
    let query =
        FlowQuery { limit: params.limit()?, order, filter: params.text("filter").map(Arc::from), after };
    let (mut ranked, total) = rank(&context, &query).await?;
    let more = ranked.len() > query.limit;
    ranked.truncate(query.limit);
    let (ranks, views, whole) = details(&context, &ranked).await?;
    page::make(&context, move || {
        let (flows, cut) = page::fill(views.into_iter(), query.limit);
        let last = ranks.get(flows.len().saturating_sub(1)).or(ranks.last());
        let next = last.filter(|_| more || cut || !whole).map(|rank| rank.text());
        Flows { flows, total, next }
    })
    .await
}

/// Flows with their ranks.
type Ranked = Vec<(Rank, FlowKey)>;

/// The first flows in the order, one more than requested if there are more; and how many match.
async fn rank(context: &Context, query: &FlowQuery) -> Result<(Ranked, u64), Busy> {
    let requested = query.clone();
    let step = move |collector: &Collector, first: u32| ranks_in(collector, first, &requested);
    let (mut best, mut total) = (Ranked::new(), 0);
    context
        .monitor
        .walk(step, |_, (found, count)| {
            total += count;
            best.extend(found);
            shorten(&mut best, query.limit + 1);
        })
        .await?;
    Ok((best, total))
}

fn shorten(ranked: &mut Ranked, limit: usize) {
    ranked.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
    ranked.truncate(limit);
}

/// The first flows of one slice, and how many of it match.
fn ranks_in(collector: &Collector, first: u32, query: &FlowQuery) -> ((Ranked, u64), Option<u32>) {
    let (mut found, mut matched) = (Ranked::new(), 0);
    let next = visit_flows(collector, first, |flow| {
        let key = flow.row.flow;
        if query.filter.as_ref().is_some_and(|text| !key.to_string().contains(&**text)) {
            return;
        }
        matched += 1;
        let rank = Rank(query.order.of(flow), key.id());
        if query.after.is_none_or(|after| rank < after) {
            found.push((rank, key));
        }
    });
    shorten(&mut found, query.limit + 1);
    ((found, matched), next)
}

/// The flows as they are now, with their ranks, and whether these are all; those that expired in the meantime are left out.
async fn details(context: &Context, ranked: &Ranked) -> Result<(Vec<Rank>, Vec<FlowView>, bool), Busy> {
    let (mut ranks, mut views, mut hops) = (Vec::new(), Vec::new(), 0);
    for chunk in ranked.chunks(FLOWS_AT_ONCE) {
        // These alone fill more than a page.
        if hops > MAX_HOPS {
            return Ok((ranks, views, false));
        }
        let keys: Vec<FlowKey> = chunk.iter().map(|(_, key)| *key).collect();
        let ask = move |collector: &Collector| {
            keys.iter().map(|key| collector.flow(key).map(|flow| flow_view(&flow))).collect::<Vec<_>>()
        };
        let mut workers = context.monitor.ask(ask).await?;
        for (index, (rank, _)) in chunk.iter().enumerate() {
            let view = workers.iter_mut().find_map(|views| views.get_mut(index).and_then(Option::take));
            let Some(view) = view else { continue };
            hops += view.path.len();
            ranks.push(*rank);
            views.push(view);
        }
    }
    Ok((ranks, views, true))
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
        path_length: flow.path_length,
        truncated: flow.truncated,
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
        let mut flow = None;
        let next = visit_flows(collector, first, |seen| {
            if seen.row.flow.id() == wanted {
                flow = Some((seen.row.flow, flow_detail(seen)));
            }
        });
        let next = next.filter(|_| flow.is_none());
        (flow, next)
    };
    context.monitor.walk(step, |_, flow| found = found.take().or(flow)).await?;
    found.ok_or_else(|| no_flow(id))
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
        for rank in [Rank(0, 0), Rank(u64::MAX, u64::MAX), Rank(17, 4)] {
            assert_eq!(Rank::parse(&rank.text()), Some(rank));
        }
        for text in ["", "-", "1", "1-", "-1", "+1-1", "1-+1", "00000000000000001-1", "1-1-1", "g-1"] {
            assert_eq!(Rank::parse(text), None, "{text}");
        }
    }
}
