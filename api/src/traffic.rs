//! `/traffic`: a measure (reports, events, latencies, occupancies) over time from the store, in groups by node, host, prefix, …

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use filter::View;
use store::{Dimension, Measure, Part, Prefixes, Source, Sums, Traffic, TrafficQuery};

use super::{
    context::Context,
    filters, names,
    page::{self, Prepared},
    params::{Form, Param, Params},
    past,
    query::{history_of, history_permit, respond},
    refusal::Refusal,
};
use view::{TrafficRow, TrafficView};

/// Query parameters of `/traffic`.
pub(super) const TRAFFIC: &[Param] = &[
    Param::new(
        "by",
        "Dimensions to group by, up to three, separated by commas; default: node. `port` is the lower of both ports, which is usually the service's; `label` is one of the inventory, of a device on the path.",
        Form::Names(|| Dimension::ALL.map(Dimension::name).to_vec(), 3),
    ),
    Param::new(
        "measure",
        "Measure to sum; default: reports.",
        Form::OneOf(|| Measure::ALL.map(Measure::name).to_vec()),
    ),
    Param::new(
        "from",
        "Start of the time; default: 15 minutes before its end.",
        Form::Time,
    ),
    Param::new("to", "End of the time; default: now.", Form::Time),
    Param::new(
        "filter",
        "Filter, such as `src in 10.0.1.0/24`: a filter of flows for `reports` and `flow_latency`, otherwise of events.",
        Form::Filter,
    ),
    Param::new(
        "top",
        "Maximum number of separate groups.",
        Form::Integer {
            min: 1,
            max: MAX_GROUPS,
            default: Some(8),
        },
    ),
    Param::columns(
        "Maximum number of columns. With many flows there are fewer.",
        1,
        180,
        1_000,
    ),
    Param::new(
        "prefix4",
        "Length of prefixes of IPv4.",
        Form::Integer {
            min: 0,
            max: 32,
            default: Some(24),
        },
    ),
    Param::new(
        "prefix6",
        "Length of prefixes of IPv6.",
        Form::Integer {
            min: 0,
            max: 128,
            default: Some(64),
        },
    ),
];
/// Maximum number of groups in a response.
const MAX_GROUPS: u64 = 100;
/// Default length of a span, ns: 15 minutes.
const DEFAULT_SPAN: u64 = 900_000_000_000;
/// Latest time that the store can represent, ns: SQLite integers are signed.
const MAX_TIME: u64 = i64::MAX as u64;

/// Returns the measure over time for the largest groups, and for all others together.
pub(crate) async fn traffic(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Prepared, Refusal> {
    let params = params.only(TRAFFIC)?;
    let query = Arc::new(query(&context, &params).await?);
    if query.measure != Measure::Events {
        past::note_samples(&context);
    }
    let permit = history_permit(&context).await?;
    let answer = history_of(&context)?
        .traffic(Arc::clone(&query), Arc::clone(&permit))
        .await?;
    respond(permit, move || view(&query, &answer)).await
}

/// Parses the parameters. Filters apply to flows or to events, depending on what the measure counts.
async fn query(context: &Arc<Context>, params: &Params) -> Result<TrafficQuery, Refusal> {
    let measure = params.text("measure");
    let measure = Measure::ALL
        .into_iter()
        .find(|candidate| Some(candidate.name()) == measure);
    let measure = measure.unwrap_or(Measure::Reports);
    let mut dimensions: Vec<Dimension> = Vec::new();
    for dimension in params
        .text("by")
        .unwrap_or("node")
        .split(',')
        .filter_map(Dimension::from_name)
    {
        if !dimensions.contains(&dimension) {
            dimensions.push(dimension);
        }
    }
    let view = if measure.source() == Source::Flows {
        View::Flows
    } else {
        View::Events
    };
    let condition = filters::parse_condition(context, params, view).await?;
    let labels = match dimensions.contains(&Dimension::Label) {
        true => names::labels(context).await,
        false => BTreeMap::new(),
    };
    let now = nic::time::now();
    let to = params.number("to")?.unwrap_or(now).min(MAX_TIME);
    let from = params
        .number("from")?
        .unwrap_or_else(|| to.saturating_sub(DEFAULT_SPAN))
        .min(to);
    let prefixes = Prefixes {
        v4: params.required_number("prefix4")?,
        v6: params.required_number("prefix6")?,
    };
    Ok(TrafficQuery {
        span: (from, to),
        now,
        columns: params.required_number("columns")?,
        measure,
        by: dimensions,
        prefixes,
        top: params.required_number("top")?,
        condition,
        labels: Arc::new(labels),
    })
}

fn view(query: &TrafficQuery, answer: &Traffic) -> TrafficView {
    let measure = query.measure;
    let rows = answer.groups.iter();
    let rows = rows.map(|group| row_view(query, &group.parts, &group.sums));
    let (groups, is_cut) = page::fill(rows, query.top);
    TrafficView {
        by: query.by.iter().map(|dimension| dimension.name().into()).collect(),
        measure: measure.name().into(),
        unit: measure.unit().into(),
        counts: measure.is_count(),
        from: answer.columns.from(),
        to: answer.columns.to(),
        column: answer.columns.column(),
        known_to: query.known_to().min(answer.columns.to()),
        groups,
        others: summary_row(measure, &answer.others),
        other_groups: answer.other_groups,
        total: summary_row(measure, &answer.total),
        overlapping: query.overlaps(),
        counted_from: answer.counted_from,
        truncated: answer.truncated || is_cut,
        lacks: query.lacks().into_iter().map(Into::into).collect(),
    }
}

fn row_view(query: &TrafficQuery, parts: &[Part], values: &[Option<Sums>]) -> TrafficRow {
    let mut key = Vec::new();
    let mut filters = Vec::new();
    for (dimension, part) in query.by.iter().zip(parts) {
        key.push((*part != Part::Unknown).then(|| part.to_string()));
        filters.push(dimension.filter(part, &query.labels));
    }
    TrafficRow {
        key,
        filters,
        ..summary_row(query.measure, values)
    }
}

fn summary_row(measure: Measure, values: &[Option<Sums>]) -> TrafficRow {
    let total = Sums::total(values);
    let has_values = !measure.is_count() && total.valued > 0;
    let by_column = values.iter().map(|sums| match sums {
        Some(sums) if measure.is_count() => Some(sums.count),
        Some(sums) => sums.sum.checked_div(sums.valued),
        None => None,
    });
    TrafficRow {
        count: total.count,
        mean: total.sum.checked_div(total.valued).filter(|_| has_values),
        max: has_values.then_some(total.max),
        values: by_column.collect(),
        ..TrafficRow::default()
    }
}
