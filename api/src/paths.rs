//! `/paths/changes`, `/paths/uses` and `/flows/{id}/latencies`: path changes, shares of each path, and hop latencies over time.

use std::sync::Arc;

use axum::extract::State;
use store::{FlowSelector, PathChange};
use wire::FlowKey;

use super::{
    context::Context,
    holds::{INTERVALS, SilenceEvidence, nanos},
    hops::{self, TimeGrid},
    names,
    page::{self, Prepared},
    params::{FLOW, Form, PAST_FROM, PAST_TO, Param, Params, Segment},
    past,
    query::{history_of, history_permit, respond},
    refusal::Refusal,
    stored,
};
use history::{FlowQuery, PathQuery};
use view::{ChangeGroupView, DirectionView, PathChangeView, PathChanges, PathUses, UsedPath};

/// Query parameters of `/paths/changes` and `/paths/uses`.
pub(super) const FLOW_SELECTION: &[Param] = &[FLOW, SRC, DST, PAST_FROM, PAST_TO, Param::limit(100, 1_000)];

/// Query parameters of `/flows/{id}/latencies`.
pub(super) const LATENCIES: &[Param] = &[
    PAST_FROM,
    PAST_TO,
    Param::columns("Maximum number of columns.", 1, 60, 200),
];

const SRC: Param = Param::new("src", "Only flows from this address.", Form::Text);
const DST: Param = Param::new("dst", "Only flows to this address.", Form::Text);

const NOT_MEASURED: &str = "the opposite direction is not measured: there were no reports of it with a latency in this time. Its packets need \
                            INT, too, or they pass nodes that report no latency";
const SECOND: u64 = 1_000_000_000;
/// Maximum number of values of a flow that are read for one response.
const MAX_POINTS: usize = 20_000;

/// Builds the selector of flows from the parameters.
fn selected_flows(params: &Params) -> FlowSelector {
    FlowSelector {
        flow: params.flow(),
        src: address(params, SRC.name),
        dst: address(params, DST.name),
    }
}

/// Returns an address in the form of the store. A text that is not an address matches no flow.
fn address(params: &Params, name: &str) -> Option<String> {
    let text = params.text(name)?;
    let address = text.parse::<std::net::IpAddr>();
    Some(address.map_or_else(|_| text.to_owned(), |address| address.to_string()))
}

/// Returns path changes, one by one and grouped by (path before, path after).
pub(crate) async fn changes(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Prepared, Refusal> {
    let params = params.only(FLOW_SELECTION)?;
    let span = past::span_or_default(&params)?;
    let limit = params.limit()?;
    let permit = history_permit(&context).await?;
    let query = PathQuery {
        span,
        flows: selected_flows(&params),
        limit,
    };
    let path_changes = history_of(&context)?
        .path_changes(query, Arc::clone(&permit))
        .await?;
    names::look_up(&context, path_changes.changes.iter().map(|change| &change.flow));
    respond(permit, move || {
        let (changes, _) = page::fill(path_changes.changes.iter().map(change_view), limit);
        let (groups, _) = page::fill(path_changes.groups.iter().map(ChangeGroupView::from), limit);
        PathChanges {
            changes,
            groups,
            group_total: path_changes.group_total,
            total: path_changes.total,
            range: past::range(span, path_changes.truncated),
        }
    })
    .await
}

fn change_view(change: &PathChange) -> PathChangeView {
    let PathChange {
        ts,
        flow,
        before,
        after,
    } = change;
    PathChangeView {
        ts: *ts,
        id: view::id(flow.id()),
        flow: (*flow).into(),
        text: flow.to_string(),
        before: view::path(before),
        after: view::path(after),
    }
}

/// Returns the paths that flows used, in both directions.
pub(crate) async fn uses(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(FLOW_SELECTION)?;
    let span = past::counted_span(&context, &params)?;
    let query = PathQuery {
        span,
        flows: selected_flows(&params),
        limit: params.limit()?,
    };
    let permit = history_permit(&context).await?;
    let history = history_of(&context)?;
    let reverse_selector = reverse_selector(&query.flows);
    let forward = history.path_uses(query.clone(), Arc::clone(&permit)).await?;
    let reverse_uses = match reverse_selector.clone() {
        Some(selector) => {
            let mut reverse_query = query.clone();
            reverse_query.flows = selector;
            Some(history.path_uses(reverse_query, Arc::clone(&permit)).await?)
        }
        None => None,
    };
    respond(permit, move || {
        let truncated = forward.truncated || reverse_uses.as_ref().is_some_and(|uses| uses.truncated);
        PathUses {
            forward: direction_view(
                &query.flows,
                &forward,
                "there were no reports of this direction with a latency in this time",
            ),
            reverse: reverse_selector
                .zip(reverse_uses)
                .map(|(selector, uses)| direction_view(&selector, &uses, NOT_MEASURED)),
            range: past::range(span, truncated),
        }
    })
    .await
}

/// Returns the selector of the reverse direction; `None` if all flows are selected, or if only a flow's id is known.
fn reverse_selector(selector: &FlowSelector) -> Option<FlowSelector> {
    match (selector.flow, &selector.src, &selector.dst) {
        (Some(flow), ..) => Some(FlowSelector {
            flow: Some(reverse_flow(flow)?),
            src: selector.dst.clone(),
            dst: selector.src.clone(),
        }),
        (None, None, None) => None,
        (None, src, dst) => Some(FlowSelector {
            flow: None,
            src: dst.clone(),
            dst: src.clone(),
        }),
    }
}

/// Returns the flow of the reverse direction; `None` if only the flow's id is known.
fn reverse_flow(flow: FlowKey) -> Option<FlowKey> {
    let ports = flow.ports().map(|(src, dst)| (dst, src));
    flow.known_id()
        .is_none()
        .then(|| FlowKey::new(flow.dst(), flow.src(), ports, flow.proto()))
}

/// Builds the view of one direction. `if_unmeasured` explains an empty one.
fn direction_view(selector: &FlowSelector, uses: &store::PathUses, if_unmeasured: &str) -> DirectionView {
    let total = uses
        .uses
        .iter()
        .map(|used| used.time)
        .fold(0, u64::saturating_add);
    DirectionView {
        flow: selector.flow.map(|flow| flow.to_string()),
        src: selector.src.clone(),
        dst: selector.dst.clone(),
        paths: uses.uses.iter().map(|used| UsedPath::new(used, total)).collect(),
        flows: uses.flows,
        spread: uses.spread,
        truncated: uses.truncated,
        unknown: uses.uses.is_empty().then(|| if_unmeasured.to_owned()),
    }
}

/// Returns the latency distribution of a flow's hops over time.
pub(crate) async fn latencies(
    State(context): State<Arc<Context>>,
    Segment(id): Segment,
    params: Params,
) -> Result<Prepared, Refusal> {
    let params = params.only(LATENCIES)?;
    let span = past::span_or_default(&params)?;
    let columns = params.required_number("columns")?;
    let flow = stored::resolve_flow(&context, &id).await?;
    let push_interval = context.active_config.get().collector.push_interval;
    let permit = history_permit(&context).await?;
    let grid = TimeGrid {
        from: span.from(),
        to: span.to().min(nic::time::now().max(span.from())),
        step: span
            .length()
            .div_ceil(columns)
            .div_ceil(SECOND)
            .max(1)
            .saturating_mul(SECOND),
    };
    // Start earlier by the longest time between two stored values, to find the first one.
    let lookback = nanos(push_interval.saturating_mul(INTERVALS)).max(SECOND);
    let query = FlowQuery {
        flow,
        from: Some(span.from().saturating_sub(lookback)),
        to: Some(span.to().saturating_sub(1)),
        limit: MAX_POINTS,
    };
    let history = history_of(&context)?;
    let mut series = history.flow(query, Arc::clone(&permit)).await?;
    // Without a storing interval, values hold for longer than `lookback`.
    let before = series.before.take();
    series.series.splice(0..0, before);
    let silences = SilenceEvidence::read(history, &permit, flow, &series, push_interval, grid.to).await?;
    respond(permit, move || hops::latencies(&series, &silences, grid)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reverse_direction_has_addresses_and_ports_exchanged() {
        let of = |text: &str| FlowSelector {
            flow: Some(text.parse().unwrap()),
            ..FlowSelector::default()
        };
        let found = reverse_selector(&of("10.0.0.1:5000>10.0.0.2:80/17")).unwrap();
        assert_eq!(found, of("10.0.0.2:80>10.0.0.1:5000/17"));
        assert_eq!(reverse_selector(&found), Some(of("10.0.0.1:5000>10.0.0.2:80/17")));
        assert_eq!(reverse_selector(&of("flow-id:0x0000f10a")), None);
        let pair = FlowSelector {
            src: Some("10.0.0.1".to_owned()),
            ..FlowSelector::default()
        };
        let back = FlowSelector {
            dst: Some("10.0.0.1".to_owned()),
            ..FlowSelector::default()
        };
        assert_eq!(reverse_selector(&pair), Some(back));
        assert_eq!(reverse_selector(&FlowSelector::default()), None);
    }
}
