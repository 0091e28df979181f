//! `/exports`, `/aggregator`, `/reporter` and `/translator`: the counters of one role each; 404 if the role does not run.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{context::Context, params::NoParams, refusal::Refusal};
use ::export_role::role::view::ExportsView;
use aggregate_role::view::AggregatorView;
use dta_role::{reporter::view::ReporterView, translator::view::TranslatorView};

/// Returns the state of each stream of each export; empty without `[exports.NAME]`.
pub(crate) async fn exports(State(context): State<Arc<Context>>, _: NoParams) -> Json<ExportsView> {
    let view = context.exports.as_ref().map(::export_role::role::view::view);
    Json(view.unwrap_or_default())
}

/// Returns the counters of the aggregator.
pub(crate) async fn aggregator(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<AggregatorView>, Refusal> {
    let view = context.aggregator.as_ref().map(aggregate_role::role::view);
    respond(
        view,
        "this process runs no aggregator; add [aggregator] to its configuration",
    )
}

/// Returns the counters of the DTA reporter.
pub(crate) async fn reporter(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<ReporterView>, Refusal> {
    let view = context.reporter.as_ref().map(dta_role::reporter::view);
    respond(
        view,
        "this process runs no DTA reporter; add [reporter] to its configuration",
    )
}

/// Returns the counters of the DTA translator.
pub(crate) async fn translator(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<TranslatorView>, Refusal> {
    let view = context.translator.as_ref().map(dta_role::translator::view);
    respond(
        view,
        "this process runs no translator; add [translator] to its configuration",
    )
}

fn respond<V>(view: Option<V>, missing: &str) -> Result<Json<V>, Refusal> {
    view.map(Json).ok_or_else(|| Refusal::not_found(missing))
}
