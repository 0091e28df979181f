//! Answers from the store: events, rollups, a flow's history, and SQL. They wait for the disk, so they run outside the async
//! runtime, a bounded number at a time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
};
use serde::{Deserialize, Serialize};
use store::{EventFilter, EventRow, QueryError, QueryErrorKind, QueryOptions, Reader, RollupFilter, Value};
use tokio::{sync::Semaphore, task};
use wire::FlowKey;

use super::{
    Context, answers,
    params::{FLOW, FROM, KIND, METRIC, NODE, Param, Params, Segment, TO},
    refusal::Refusal,
};
use crate::config::build;
use crate::view::{
    EventView, Events, HistoryView, HopLatency, PathSince, PointView, RollupView, Rollups, basis, node, path,
};

/// The parameters of `/events`.
pub(super) const EVENTS: &[Param] = &[
    Param::limit(200, MAX_ROWS),
    Param::integer("before", "Strictly before: `ts` of the last event on the previous page.", 0, u64::MAX),
    FROM,
    KIND,
    NODE,
    METRIC,
    FLOW,
];

/// Stored events, newest first. `before` is the `ts` of the last one on the page before.
pub(crate) async fn events(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<Events>, Refusal> {
    let params = params.only(EVENTS)?;
    let filter = EventFilter {
        from: params.number("from")?,
        before: params.number("before")?,
        kind: params.kind(),
        node: params.number("node")?,
        metric: params.metric(),
        flow: params.flow(),
        limit: params.limit()?,
    };
    let rows = with_reader(&context, &context.reads, move |reader| reader.events(&filter)).await?;
    let reasons = build::drop_reasons(&context.active_config.settings());
    let view = |row: &EventRow| EventView::new(&row.event, row.rule.as_deref(), &row.path, &reasons);
    let events = rows.iter().map(view).collect();
    Ok(Json(Events { events }))
}

/// The parameters of `/rollups`.
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

/// Rollups in ascending order of time: the latest that match.
pub(crate) async fn rollups(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<Rollups>, Refusal> {
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
    let rows = with_reader(&context, &context.reads, move |reader| reader.rollups(&filter)).await?;
    Ok(Json(Rollups { rollups: rows.iter().map(RollupView::from).collect() }))
}

/// The parameters of `/flows/{id}/history`.
pub(super) const HISTORY: &[Param] = &[FROM, TO, Param::limit(1_000, MAX_ROWS)];

/// A flow's latencies and paths over time.
pub(crate) async fn history(
    State(context): State<Arc<Context>>,
    Segment(id): Segment,
    params: Params,
) -> Result<Json<HistoryView>, Refusal> {
    let params = params.only(HISTORY)?;
    let (from, to, limit) = (params.number("from")?, params.number("to")?, params.limit()?);
    let flow = match id.parse::<FlowKey>() {
        Ok(flow) => flow,
        Err(_) => answers::flow_by_id(&context, &id).await?.0,
    };
    let history =
        with_reader(&context, &context.reads, move |reader| reader.history(&flow, from, to, limit)).await?;
    let series = history.series.into_iter().map(|point| PointView {
        ts: point.ts,
        flow_latency: point.flow_latency,
        basis: basis(point.basis).into(),
        hops: point.hops.into_iter().map(|(id, latency)| HopLatency { node: node(id), latency }).collect(),
    });
    let paths = history.paths.iter().map(|(ts, nodes)| PathSince { ts: *ts, path: path(nodes) });
    Ok(Json(HistoryView { series: series.collect(), paths: paths.collect(), truncated: history.truncated }))
}

/// The body of `/query`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SqlQuery"))]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// A single SELECT statement.
    sql: String,
    /// Only files with records at or after, nanoseconds since the Unix epoch.
    #[serde(default)]
    from: Option<u64>,
    /// Only files with records at or before, nanoseconds since the Unix epoch.
    #[serde(default)]
    to: Option<u64>,
    /// Maximum number of rows; at most `[api] query_rows`.
    #[serde(default)]
    limit: Option<usize>,
}

/// The answer of `/query`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Rows"))]
pub(crate) struct Answer {
    /// Names of the columns.
    columns: Vec<String>,
    /// Rows; a cell is a string, a number or null.
    rows: Vec<Vec<serde_json::Value>>,
    /// True when there are more rows than the limit.
    truncated: bool,
    /// Remarks on the answer.
    notes: Vec<String>,
    /// Duration of the query, milliseconds.
    elapsed_ms: f64,
}

/// SQL over the views of the store. Only reading; bounded in time and rows.
pub(crate) async fn query(
    State(context): State<Arc<Context>>,
    question: Result<Json<Question>, JsonRejection>,
) -> Result<Json<Answer>, Refusal> {
    let Json(question) = question.map_err(|error| {
        Refusal::bad(format!("{}; send {{\"sql\": \"SELECT …\"}} as application/json", error.body_text()))
    })?;
    let settings = context.active_config.settings();
    let most = settings.api.query_rows;
    let options = QueryOptions {
        from: question.from,
        to: question.to,
        max_rows: question.limit.unwrap_or(most).min(most),
        timeout: settings.api.query_timeout,
        ..QueryOptions::default()
    };
    let started = Instant::now();
    let table =
        with_reader(&context, &context.queries, move |reader| reader.query(&question.sql, &options)).await?;
    let rows = table.rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect();
    let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
    Ok(Json(Answer {
        columns: table.columns,
        rows,
        truncated: table.truncated,
        notes: table.notes,
        elapsed_ms,
    }))
}

fn cell(value: Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Int(number) => number.into(),
        // Infinity and NaN have no JSON form; they become null.
        Value::Real(number) => number.into(),
        Value::Text(text) => text.into(),
        Value::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
    }
}

/// Queries the store on a thread that may block. A semaphore bounds the number of queries.
async fn with_reader<T: Send + 'static>(
    context: &Context,
    places: &Arc<Semaphore>,
    question: impl FnOnce(&Reader) -> Result<T, QueryError> + Send + 'static,
) -> Result<T, Refusal> {
    let Some(reader) = context.store.clone() else {
        let message = "the store is off; set [store] enabled = true, or use /api/v1/events/stream";
        return Err(Refusal::not_found(message));
    };
    let permit = tokio::time::timeout(PATIENCE, Arc::clone(places).acquire_owned()).await;
    let Ok(Ok(permit)) = permit else {
        let message = "too many queries run already; wait for one to end, or raise [api] max_queries";
        return Err(Refusal::unavailable(message));
    };
    let asked = task::spawn_blocking(move || {
        // Held until the query ends, even if the client disconnects.
        let _permit = permit;
        question(&reader)
    });
    match asked.await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.kind == QueryErrorKind::Storage => Err(Refusal::unavailable(error.message)),
        Ok(Err(error)) => Err(Refusal::bad(error.message)),
        Err(_) => Err(Refusal::unavailable(
            "the query was not answered; this is a fault in hopwise, please report it",
        )),
    }
}

/// Maximum number of rows in an answer.
const MAX_ROWS: u64 = 10_000;
/// How long a query waits for a permit.
const PATIENCE: Duration = Duration::from_secs(2);
