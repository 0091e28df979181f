//! `/activity`, and the past of `/flows`, `/nodes`, `/links` and `/paths`: the network in a time span, from the store or, in
//! a console, ClickHouse.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::extract::State;
use collector::FlowOrder;
use detect::Metric;
use store::{FlowFilter, FlowSpan, NodeSpans, PathSpans, SeriesKey, Span, SpanSum, reports_known_to};
use wire::FlowKey;

use super::{
    context::Context,
    cursor, names,
    page::{self, Prepared},
    params::{PAST_FROM, PAST_TO, Param, Params},
    query::{history_of, history_permit, respond},
    refusal::Refusal,
};
use config::Settings;
use history::{FlowQuery, FlowsQuery, LinkEnds, Permit, RateQuery};
use view::{
    self as shown, Activity, ActivityPoint, FlowDetail, FlowView, Flows, HopView, Latencies, LinkView, Links,
    NodeView, Nodes, PathView, Paths, QueueView, RangeView, Spread,
};

/// Query parameters of `/activity`.
pub(super) const ACTIVITY: &[Param] = &[
    PAST_FROM,
    PAST_TO,
    Param::columns("Maximum number of parts.", 1, 180, 1_000),
];
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
/// Default length of a span, ns.
const DEFAULT_SPAN: u64 = 15 * MINUTE;
/// Maximum length of a span in which single events are counted, ns.
const MAX_COUNTED_SPAN: u64 = 30 * MINUTE;
/// Maximum number of points of a flow's history that are read for the values of its hops.
const MAX_POINTS: usize = 200;

/// Note on answers about the past while the kernel detects changes: it passes only a part of the reports to user space.
const NOTE_SAMPLES: &str = "With mode = \"kernel\", counts and means of reports in the past are based on samples: reports with a significant change, plus one per flow and second.";

/// Returns the requested time span; `None` for the live state. A console has none and uses the last 15 minutes. Adds a note if
/// the answer counts samples.
pub(super) fn span(context: &Context, params: &Params) -> Result<Option<Span>, Refusal> {
    let (from, to): (Option<u64>, Option<u64>) = (params.number("from")?, params.number("to")?);
    if from.is_none() && to.is_none() && context.active_config.get().console.is_none() {
        return Ok(None);
    }
    counted_span(context, params).map(Some)
}

/// Returns the requested time span, by default the last 15 minutes, for an answer that counts reports. Adds a note if these are
/// samples.
pub(super) fn counted_span(context: &Context, params: &Params) -> Result<Span, Refusal> {
    note_samples(context);
    span_or_default(params)
}

/// Adds [`NOTE_SAMPLES`] to the answer if it applies now. How an earlier time was received is not stored.
pub(super) fn note_samples(context: &Context) {
    if context.monitor.detects_in_kernel() {
        history::notes::add(vec![NOTE_SAMPLES.to_owned()]);
    }
}

/// Returns the requested time span, by default the last 15 minutes.
pub(super) fn span_or_default(params: &Params) -> Result<Span, Refusal> {
    let to: u64 = params.number("to")?.unwrap_or_else(nic::time::now);
    let from: Option<u64> = params.number("from")?;
    Ok(Span::new(
        from.unwrap_or_else(|| to.saturating_sub(DEFAULT_SPAN)),
        to,
    ))
}

pub(super) fn range(span: Span, truncated: bool) -> Option<RangeView> {
    Some(RangeView {
        from: span.from(),
        to: span.to(),
        truncated,
    })
}

/// Returns reports, events and losses over time, in at most `columns` intervals.
pub(crate) async fn activity(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Prepared, Refusal> {
    let params = params.only(ACTIVITY)?;
    let span = counted_span(&context, &params)?;
    let columns = params.required_number("columns")?;
    let column = column_width(span.length(), columns);
    let permit = history_permit(&context).await?;
    let now = nic::time::now();
    let reports_to = reports_known_to(now).min(span.to());
    let query = RateQuery {
        span,
        column,
        known_to: reports_to,
    };
    let rates = history_of(&context)?.rates(query, Arc::clone(&permit)).await?;
    respond(permit, move || {
        let kinds = rates
            .kinds
            .iter()
            .map(|(kind, count)| (kind.name(), *count))
            .collect();
        let points = rates.points.iter().map(|point| ActivityPoint {
            ts: point.ts,
            reports: point.reports,
            events: point.events,
            lost: point.lost,
        });
        let events_to = now.min(span.to());
        Activity {
            from: span.from(),
            to: span.to(),
            column,
            reports_to,
            events_to,
            points: points.collect(),
            kinds,
        }
    })
    .await
}

/// Returns the length of an interval, ns: a divisor of a minute, or a number of minutes.
fn column_width(length: u64, columns: u64) -> u64 {
    let min_width = length.div_ceil(columns);
    let sub_minute_widths = [1, 2, 5, 10, 15, 30].map(|seconds| seconds * SECOND);
    // The store has counts per minute; finer intervals count single events and are allowed only for short spans.
    let sub_minute_width = sub_minute_widths
        .into_iter()
        .find(|part| *part >= min_width && length <= MAX_COUNTED_SPAN);
    sub_minute_width.unwrap_or_else(|| min_width.div_ceil(MINUTE).max(1).saturating_mul(MINUTE))
}

/// Lists the matching flows of a span, sorted.
pub(super) async fn flows(context: &Arc<Context>, query: FlowsQuery) -> Result<Prepared, Refusal> {
    let span = query.filter.span;
    let limit = query.filter.limit;
    let permit = history_permit(context).await?;
    let spans = history_of(context)?.flows(query, Arc::clone(&permit)).await?;
    names::look_up(context, spans.flows.iter().map(|(_, flow)| &flow.flow));
    respond(permit, move || {
        let (flows, is_cut) = page::fill(spans.flows.iter().map(|(_, flow)| flow_view(flow)), limit);
        let last = spans
            .flows
            .get(..flows.len())
            .and_then(<[_]>::last)
            .map(|(rank, _)| *rank);
        let next = last.filter(|_| is_cut || spans.more).map(cursor::format_cursor);
        let range = range(span, spans.truncated);
        Flows {
            flows,
            total: spans.total,
            at_least: None,
            as_of: span.to(),
            next,
            range,
        }
    })
    .await
}

fn flow_view(span: &FlowSpan) -> FlowView {
    let FlowSpan {
        flow,
        sum,
        path,
        basis,
    } = span;
    // Without values there are only counts.
    let latencies = sum.has_values().then(|| Latencies {
        min: sum.min,
        max: sum.max,
        mean: sum.mean().unwrap_or(sum.max),
    });
    FlowView {
        id: shown::id(flow.id()),
        flow: (*flow).into(),
        text: flow.to_string(),
        path: shown::path(path),
        flow_latency: latencies.map(|latencies| latencies.max),
        latencies,
        basis: basis.name().into(),
        path_length: u16::try_from(path.len()).unwrap_or(u16::MAX),
        reports: sum.count,
        first_seen: sum.first,
        last_seen: sum.last,
        ..FlowView::default()
    }
}

/// Returns one flow in a span, hop by hop. `name` is its id or text.
pub(super) async fn flow(context: &Arc<Context>, name: &str, span: Span) -> Result<FlowDetail, Refusal> {
    let key = name.parse::<FlowKey>().ok();
    let id = key.map(|key| key.id()).or_else(|| cursor::parse_id(name));
    let id = id.ok_or_else(|| {
        Refusal::bad_request(format!(
            "{name:?} is not a flow; write a text such as 10.0.0.1:5000>10.0.0.2:80/17, or an id of 16 hexadecimal digits"
        ))
    })?;
    let text = key.map(|key| key.to_string());
    let filter = FlowFilter {
        span,
        order: FlowOrder::LastSeen,
        text,
        id: Some(id),
        after: None,
        limit: 2,
    };
    let permit = history_permit(context).await?;
    let history = history_of(context)?;
    let query = FlowsQuery {
        filter,
        condition: None,
    };
    let spans = history.flows(query, Arc::clone(&permit)).await?;
    let mut flows = spans.flows.into_iter().map(|(_, flow_span)| flow_span);
    let found = flows.find(|flow_span| key.is_none_or(|key| key == flow_span.flow));
    if key.is_none() && flows.next().is_some() {
        return Err(Refusal::shared_flow_id(name));
    }
    let Some(flow_span) = found else {
        return Err(Refusal::not_found(format!(
            "there were no reports of flow {name} with a latency in this time; choose another flow or time"
        )));
    };
    names::look_up(context, [&flow_span.flow]);
    let query = FlowQuery {
        flow: flow_span.flow,
        from: Some(span.from()),
        to: Some(span.to().saturating_sub(1)),
        limit: MAX_POINTS,
    };
    let past = history.flow(query, permit).await?;
    let last = past.series.last().or(past.before.as_ref());
    let last = last.map_or(&[][..], |point| &point.hops[..]);
    let hops = flow_span.path.iter().map(|node| HopView {
        node: shown::node(*node),
        hop_latency: last
            .iter()
            .find(|(id, _)| id == node)
            .map(|(_, latency)| *latency),
        ..HopView::default()
    });
    let hops = hops.collect();
    Ok(FlowDetail {
        flow: flow_view(&flow_span),
        hops,
        intents: None,
        range: range(span, spans.truncated),
    })
}

/// Lists the nodes of a span with their queues, by id.
pub(super) async fn nodes(
    context: &Arc<Context>,
    span: Span,
    limit: usize,
    after: Option<u32>,
) -> Result<Prepared, Refusal> {
    let settings = context.active_config.get();
    let permit = history_permit(context).await?;
    let spans = history_of(context)?.nodes(span, Arc::clone(&permit)).await?;
    respond(permit, move || {
        let views = node_views(&spans, &settings);
        let nodes_after = views
            .into_values()
            .filter(|node| after.is_none_or(|after| node.node > after));
        let (nodes, more) = page::fill(nodes_after, limit);
        let next = nodes.last().map(|node| node.node).filter(|_| more);
        Nodes {
            nodes,
            next,
            range: range(span, spans.truncated),
        }
    })
    .await
}

fn node_views(spans: &NodeSpans, settings: &Settings) -> BTreeMap<u32, NodeView> {
    let units: BTreeMap<u32, String> = settings
        .collect()
        .node_profiles()
        .into_iter()
        .map(|(node, profile)| (node, profile.queue_unit))
        .collect();
    let default_unit = settings.collect().resolve_profiles().0.queue_unit;
    let mut views: BTreeMap<u32, NodeView> = BTreeMap::new();
    for (key, sum) in &spans.series {
        let view = views.entry(key.node).or_insert_with(|| empty(settings, key.node));
        view.last_seen = view.last_seen.max(sum.last);
        if key.metric == Metric::HopLatency as u8 {
            view.reports = sum.count;
            view.hop_latency = Spread {
                min: Some(sum.min),
                max: Some(sum.max),
                ..Spread::default()
            };
        } else if key.metric == Metric::QueueOccupancy as u8 {
            let unit = units.get(&key.node).unwrap_or(&default_unit).clone();
            view.queues.push(QueueView {
                queue: key.queue,
                interface: key.interface,
                occupancy: sum.mean(),
                max: Some(sum.max),
                unit,
            });
        }
    }
    for (id, drops) in &spans.drops {
        views.entry(*id).or_insert_with(|| empty(settings, *id)).drops = *drops;
    }
    views
}

fn empty(settings: &Settings, id: u32) -> NodeView {
    NodeView {
        node: id,
        name: settings.nodes.get(&id).and_then(|node| node.0.name.clone()),
        ..NodeView::default()
    }
}

/// Lists the links of a span: the pairs of neighbours on the paths that flows took, sorted by their ends.
pub(super) async fn links(
    context: &Arc<Context>,
    span: Span,
    limit: usize,
    offset: usize,
) -> Result<Prepared, Refusal> {
    let permit = history_permit(context).await?;
    let history = history_of(context)?;
    let (ends, has_more) = link_ends(context, span, &permit).await?;
    let paths = history.paths(span, Arc::clone(&permit)).await?;
    let spans = history.nodes(span, Arc::clone(&permit)).await?;
    respond(permit, move || {
        let mut links = link_views(&paths);
        for link_end in ends {
            if let Some(link) = links.get_mut(&(link_end.from, link_end.to)) {
                (link.egress_if, link.ingress_if) = (link_end.egress_if, link_end.ingress_if);
            }
        }
        for link in links.values_mut() {
            let interface = link.egress_if;
            let key = SeriesKey {
                metric: Metric::LinkUtilization as u8,
                node: link.from,
                interface,
                queue: None,
            };
            let sum = interface.and_then(|_| spans.series.get(&key));
            link.utilization = sum.map(|sum: &SpanSum| shown::fraction(sum.max));
        }
        let (links, more) = page::fill(links.into_values().skip(offset), limit);
        let range = range(span, paths.truncated || spans.truncated || has_more);
        Links {
            next: more.then_some(offset + links.len()),
            links,
            range,
        }
    })
    .await
}

/// Returns the interfaces at the ends of links; the second element is true if there are more than are considered. Stored
/// paths have no interfaces, so these come from the live topology and, in a console, from exported hops.
pub(super) async fn link_ends(
    context: &Context,
    span: Span,
    permit: &Permit,
) -> Result<(Vec<LinkEnds>, bool), Refusal> {
    let (mut ends, has_more) = history_of(context)?.ends(span, Arc::clone(permit)).await?;
    let topology = context.monitor.topology().await?;
    ends.extend(topology.links().map(|link| LinkEnds {
        from: link.from,
        to: link.to,
        egress_if: link.egress_if,
        ingress_if: link.ingress_if,
    }));
    Ok((ends, has_more))
}

/// Returns the links of these paths by (from, to), with their flows. Hops of unknown node ids (`u32::MAX`) are omitted.
pub(super) fn link_views(spans: &PathSpans) -> BTreeMap<(u32, u32), LinkView> {
    let mut links: BTreeMap<(u32, u32), LinkView> = BTreeMap::new();
    for path in &spans.paths {
        for (from, to) in links_of(&path.path) {
            let link = links.entry((from, to)).or_insert_with(|| LinkView {
                from,
                to,
                ..LinkView::default()
            });
            link.flows += path.flows;
            link.last_seen = link.last_seen.max(path.last);
        }
    }
    // A flow that took several paths over a link counts once.
    for moved in &spans.moved {
        let mut known = BTreeSet::new();
        for path in moved.paths.iter().filter_map(|index| spans.paths.get(*index)) {
            for ends in links_of(&path.path) {
                if !known.insert(ends)
                    && let Some(link) = links.get_mut(&ends)
                {
                    link.flows = link.flows.saturating_sub(moved.flows);
                }
            }
        }
    }
    links
}

/// Returns the links of a path. One with a loop may contain a link twice; it is returned once.
fn links_of(path: &[u32]) -> BTreeSet<(u32, u32)> {
    path.windows(2)
        .filter_map(|ends| Some((*ends.first()?, *ends.get(1)?)))
        .filter(|(from, to)| *from != u32::MAX && *to != u32::MAX)
        .collect()
}

/// Lists the paths of a span, the most used first.
pub(super) async fn paths(
    context: &Arc<Context>,
    span: Span,
    limit: usize,
    offset: usize,
) -> Result<Prepared, Refusal> {
    let permit = history_permit(context).await?;
    let PathSpans { paths, truncated, .. } = history_of(context)?.paths(span, Arc::clone(&permit)).await?;
    respond(permit, move || {
        let views = paths.iter().skip(offset).map(|path| PathView {
            path: shown::path(&path.path),
            flows: path.flows,
            reports: path.reports,
        });
        let (paths, more) = page::fill(views, limit);
        Paths {
            next: more.then_some(offset + paths.len()),
            paths,
            range: range(span, truncated),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use store::{MovedFlows, PathSpan};

    use super::*;

    fn path(path: &[u32], flows: u64, last: u64) -> PathSpan {
        PathSpan {
            path: path.to_vec(),
            flows,
            reports: 0,
            last,
        }
    }

    /// Returns the links as (from, to, flows, last seen).
    fn links(spans: &PathSpans) -> Vec<(u32, u32, u64, u64)> {
        link_views(spans)
            .values()
            .map(|link| (link.from, link.to, link.flows, link.last_seen))
            .collect()
    }

    #[test]
    fn a_link_of_a_loop_has_each_flow_once() {
        let spans = PathSpans {
            paths: vec![path(&[1, 2, 3, 1, 2, u32::MAX], 4, 10), path(&[1, 2], 3, 20)],
            ..PathSpans::default()
        };
        assert_eq!(links(&spans), [(1, 2, 7, 20), (2, 3, 4, 10), (3, 1, 4, 10)]);
    }

    #[test]
    fn a_flow_that_took_three_paths_over_a_link_counts_there_once() {
        let spans = PathSpans {
            paths: vec![
                path(&[1, 2, 5], 6, 10),
                path(&[1, 2, 6], 4, 20),
                path(&[1, 2], 3, 30),
            ],
            moved: vec![
                MovedFlows {
                    paths: vec![0, 1],
                    flows: 2,
                },
                MovedFlows {
                    paths: vec![0, 1, 2],
                    flows: 1,
                },
            ],
            truncated: false,
        };
        assert_eq!(links(&spans), [(1, 2, 9, 30), (2, 5, 6, 10), (2, 6, 4, 20)]);
    }

    #[test]
    fn a_part_is_a_divisor_of_a_minute_or_whole_minutes() {
        let seconds = |length: u64, columns| column_width(length * SECOND, columns) / SECOND;
        assert_eq!(
            [60, 180, 900, 1800].map(|length| seconds(length, 180)),
            [1, 1, 5, 10]
        );
        assert_eq!(
            [1860, 3600, 86_400, 7 * 86_400].map(|length| seconds(length, 180)),
            [60, 60, 480, 3360]
        );
        assert_eq!([seconds(0, 1), seconds(900, 1)], [1, 900]);
    }
}
