//! The aggregator's part of the API.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{context::Context, params::Params, refusal::Refusal};
use aggregate_role::{role, view::AggregatorView};

/// `/aggregator`: its counters now.
pub(crate) async fn view(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<AggregatorView>, Refusal> {
    params.only(&[])?;
    let view = context.aggregator.as_ref().map(role::view);
    view.map(Json).ok_or_else(|| {
        Refusal::not_found("this process runs no aggregator; add [aggregator] to its configuration")
    })
}
