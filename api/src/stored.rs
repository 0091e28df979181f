//! `/events`, `/rollups`, `/flows/{id}/history` and `/query` (SQL): stored records, with bounded concurrency.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
};
use collector::Kind;
use detect::Metric;
use filter::View;
use serde::{Deserialize, Deserializer};
use store::{EventFilter, EventRank, RollupFilter};
use wire::FlowKey;

use super::{
    context::Context,
    cursor::{self, event_cursor, parse_event_cursor},
    filters, flows,
    holds::SilenceEvidence,
    names,
    page::{self, Prepared},
    params::{EVENT_FILTER, FLOW, FROM, Form, KIND, METRIC, NODE, Param, Params, Segment, TO},
    query::{history_of, history_permit, respond, sql_permit},
    refusal::Refusal,
};
use history::sql::Request;
use history::{EventQuery, FlowQuery, FoundEvents};
use view::{
    EventView, Events, HistoryView, HopLatency, PathSince, PointView, RollupView, Rollups, node, path,
};

/// Query parameters of `/events`.
pub(super) const EVENTS: &[Param] = &[
    Param::limit(200, MAX_ROWS),
    Param::integer(
        "before",
        "Strictly before this time, nanoseconds since the Unix epoch. Pages by it lose events of one time: use `after`.",
        0,
        u64::MAX,
    ),
    Param::new(
        "after",
        "Only events after this one: `next` of the previous page. Copies of one event (equal `ts` and `id`) that did not fit on its page are left out.",
        Form::Cursor {
            pattern: cursor::PATTERN,
            check: |text| parse_event_cursor(text).is_some(),
        },
    ),
    FROM,
    TO,
    KIND,
    NODE,
    METRIC,
    FLOW,
    EVENT_FILTER,
];
/// Query parameters of `/rollups`.
pub(super) const ROLLUPS: &[Param] = &[
    METRIC,
    NODE,
    Param::integer("queue", "Only this queue.", 0, u8::MAX as u64),
    Param::integer("interface", "Only this egress interface.", 0, u32::MAX as u64),
    FLOW,
    Param::integer("interval", "Only this length, seconds: 1 or 60.", 1, 60),
    FROM,
    TO,
    Param::limit(2_000, MAX_ROWS),
];
/// Query parameters of `/flows/{id}/history`.
pub(super) const HISTORY: &[Param] = &[FROM, TO, Param::limit(1_000, MAX_ROWS)];
/// Maximum number of rows in a response.
const MAX_ROWS: u64 = 10_000;

/// Lists stored events, newest first and then by id. A selective filter may end a page early; `next` continues.
pub(crate) async fn events(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(EVENTS)?;
    let to = params.number("to")?.map(|to: u64| to.saturating_add(1));
    let condition = filters::parse_condition(&context, &params, View::Events).await?;
    let required = condition
        .as_deref()
        .map(filter::Filter::required)
        .unwrap_or_default();
    let required_kind = required.kind.as_deref();
    let required_kind = Kind::ALL
        .into_iter()
        .find(|kind| Some(kind.name()) == required_kind);
    let filter = EventFilter {
        from: params.number("from")?,
        before: params.number("before")?.into_iter().chain(to).min(),
        after: params.text("after").and_then(parse_event_cursor),
        kind: params.kind().or(required_kind),
        node: params.number("node")?.or(required.node),
        metric: params
            .metric()
            .or(required.metric.as_deref().and_then(Metric::from_name)),
        flow: params.flow().or(required.flow),
        limit: params.limit()?,
    };
    let reasons = context.active_config.get().collect().drop_reasons();
    let permit = history_permit(&context).await?;
    let query = EventQuery { filter, condition };
    let FoundEvents { rows, stopped } = history_of(&context)?.events(query, Arc::clone(&permit)).await?;
    names::look_up(&context, rows.iter().filter_map(|row| row.event.flow.as_ref()));
    respond(permit, move || {
        let views = rows.iter().map(|row| EventView::from_row(row, &reasons));
        let (events, is_cut) = page::fill(views, filter.limit);
        let last = events.len().checked_sub(1).and_then(|last| rows.get(last));
        let last = last.filter(|_| is_cut || events.len() == filter.limit);
        Events {
            next: last
                .map(|row| EventRank::of_event(&row.event))
                .or(stopped)
                .map(event_cursor),
            events,
        }
    })
    .await
}

/// Lists the latest matching rollups, in ascending order of time.
pub(crate) async fn rollups(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Prepared, Refusal> {
    let params = params.only(ROLLUPS)?;
    let filter = RollupFilter {
        from: params.number("from")?,
        to: params.number("to")?,
        metric: params.metric(),
        node: params.number("node")?,
        queue: params.number("queue")?,
        interface: params.number("interface")?,
        flow: params.flow(),
        interval: params.number("interval")?,
        limit: params.limit()?,
    };
    let permit = history_permit(&context).await?;
    let rows = history_of(&context)?.rollups(filter, Arc::clone(&permit)).await?;
    respond(permit, move || {
        // Fill from the end, so that the latest rows remain if the page is cut.
        let (mut rollups, truncated) = page::fill(rows.iter().rev().map(RollupView::from), filter.limit);
        rollups.reverse();
        Rollups {
            rollups,
            truncated: truncated || rows.len() == filter.limit,
        }
    })
    .await
}

/// Returns the latencies and paths of a flow over time, with its silences.
pub(crate) async fn history(
    State(context): State<Arc<Context>>,
    Segment(id): Segment,
    params: Params,
) -> Result<Prepared, Refusal> {
    let params = params.only(HISTORY)?;
    let from = params.number("from")?;
    let to = params.number("to")?;
    let limit = params.limit()?;
    let flow = resolve_flow(&context, &id).await?;
    let push_interval = context.active_config.get().collector.push_interval;
    let permit = history_permit(&context).await?;
    let query = FlowQuery {
        flow,
        from,
        to,
        limit,
    };
    let store = history_of(&context)?;
    let history = store.flow(query, Arc::clone(&permit)).await?;
    let last = history.series.last().map_or(0, |point| point.ts);
    let silences = SilenceEvidence::read(store, &permit, flow, &history, push_interval, last).await?;
    respond(permit, move || {
        let ends = silences.ends(&history.series, last).into_iter();
        let nexts = history.series.iter().skip(1).map(|point| point.ts);
        let times = history.series.iter().map(|point| point.ts).zip(ends.zip(nexts));
        let silence_ends = times
            .filter(|(_, (end, next))| end < next)
            .map(|(ts, (end, _))| (ts, end))
            .collect();
        // Fill from the end, so that the latest rows remain if the page is cut.
        let points = history.series.into_iter().rev().map(|point| PointView {
            ts: point.ts,
            flow_latency: point.flow_latency,
            basis: point.basis.name().into(),
            hops: point
                .hops
                .into_iter()
                .map(|(id, latency)| HopLatency {
                    node: node(id),
                    latency,
                })
                .collect(),
        });
        let (mut series, more) = page::fill(points, limit);
        let paths = history.paths.iter().rev().map(|(ts, nodes)| PathSince {
            ts: *ts,
            path: path(nodes),
        });
        let (mut paths, more_paths) = page::fill(paths, limit);
        series.reverse();
        paths.reverse();
        let series = with_silences(series.into_iter(), &silence_ends);
        HistoryView {
            series,
            paths,
            truncated: history.truncated || more || more_paths,
        }
    })
    .await
}

/// Resolves a flow by its text or, if it is in the flow table now, by its id.
pub(super) async fn resolve_flow(context: &Context, id: &str) -> Result<FlowKey, Refusal> {
    match id.parse::<FlowKey>() {
        Ok(flow) => Ok(flow),
        Err(_) if context.active_config.get().console.is_some() => Err(Refusal::bad_request(format!(
            "{id:?} is not a flow; a console knows flows by their texts, such as 10.0.0.1:5000>10.0.0.2:80/17"
        ))),
        Err(_) => Ok(flows::flow_by_id(context, id).await?.0),
    }
}

/// Inserts a point without values where the flow fell silent. `silence_ends` maps the time of a value to its end, if that is
/// before the next value.
fn with_silences(
    series: impl Iterator<Item = PointView>,
    silence_ends: &BTreeMap<u64, u64>,
) -> Vec<PointView> {
    let mut points = Vec::new();
    for point in series {
        let end = silence_ends.get(&point.ts).copied();
        let basis = point.basis.clone();
        points.push(point);
        points.extend(end.map(|ts| PointView {
            ts,
            flow_latency: None,
            basis,
            hops: Vec::new(),
        }));
    }
    points
}

/// The body of `/query`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SqlQuery"))]
#[serde(deny_unknown_fields)]
pub(crate) struct SqlQuery {
    /// A single SELECT statement.
    #[cfg_attr(test, schemars(extend("format" = "sql")))]
    sql: String,
    /// Only files with records at or after, nanoseconds since the Unix epoch.
    #[serde(default, deserialize_with = "whole_number")]
    #[cfg_attr(test, schemars(range(max = u64::MAX)))]
    from: Option<u64>,
    /// Only files with records at or before, nanoseconds since the Unix epoch.
    #[serde(default, deserialize_with = "whole_number")]
    #[cfg_attr(test, schemars(range(max = u64::MAX)))]
    to: Option<u64>,
    /// Maximum number of rows; at most `[api] query_rows`.
    #[serde(default, deserialize_with = "whole_number")]
    #[cfg_attr(test, schemars(range(max = u64::MAX)))]
    limit: Option<usize>,
}

/// Deserializes a whole number, which JSON may write with a zero fraction, such as 488.0.
pub(super) fn whole_number<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else {
        return Ok(None);
    };
    // Every float below 2^64 without a fraction converts to u64 exactly.
    let float = number
        .as_f64()
        .filter(|float| float.fract() == 0.0 && (0.0..u64::MAX as f64).contains(float));
    let value = number.as_u64().or(float.map(|float| float as u64));
    value
        .and_then(|value| T::try_from(value).ok())
        .map(Some)
        .ok_or_else(|| {
            serde::de::Error::custom(format_args!(
                "{number} is out of range; write a whole number from 0"
            ))
        })
}

/// Runs read-only SQL over the views of the store, bounded in time, rows and bytes. The query ends if the client disconnects.
pub(crate) async fn query(
    State(context): State<Arc<Context>>,
    query: Result<Json<SqlQuery>, JsonRejection>,
) -> Result<Prepared, Refusal> {
    let Json(query) = query.map_err(|error| {
        Refusal::bad_request(format!(
            "{}; send {{\"sql\": \"SELECT …\"}} as application/json",
            error.body_text()
        ))
    })?;
    let history = history_of(&context)?;
    let settings = context.active_config.get();
    let max_rows = settings.api.query_rows;
    let request = Request {
        sql: query.sql,
        from: query.from,
        to: query.to,
        max_rows: query.limit.unwrap_or(max_rows).min(max_rows),
        timeout: settings.api.query_timeout,
        notes: Vec::new(),
    };
    let _permit = sql_permit(&context).await?;
    Ok(Prepared(history.query(request).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_may_be_written_as_a_float() {
        let read = |from: &str| {
            let text = format!("{{\"sql\": \"SELECT 1\", \"from\": {from}}}");
            serde_json::from_str::<SqlQuery>(&text)
                .ok()
                .map(|query| query.from)
        };
        assert_eq!(
            ["488.0", "4076402218306774.0", "18446744073709551615", "null"].map(read),
            [
                Some(Some(488)),
                Some(Some(4_076_402_218_306_774)),
                Some(Some(u64::MAX)),
                Some(None)
            ]
        );
        assert_eq!(
            ["488.5", "-1", "1e30", "\"7\"", "18446744073709551616"].map(read),
            [None; 5]
        );
    }

    #[test]
    fn a_time_without_reports_is_a_point_without_values() {
        let point = |ts: u64, latency: Option<u64>| PointView {
            ts,
            flow_latency: latency,
            hops: latency
                .map(|latency| HopLatency {
                    node: Some(1),
                    latency,
                })
                .into_iter()
                .collect(),
            ..PointView::default()
        };
        let values = [0, 1, 15, 16, 40].map(|at| point(at, Some(5)));
        let with_holes = [
            (0, true),
            (1, true),
            (15, true),
            (16, true),
            (19, false),
            (40, true),
        ];
        let expected = with_holes.map(|(at, value)| point(at, value.then_some(5)));
        assert_eq!(
            with_silences(values.into_iter(), &BTreeMap::from([(16, 19)])),
            expected
        );
    }
}
