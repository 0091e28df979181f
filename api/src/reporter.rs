//! The DTA reporter's part of the API.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{context::Context, params::Params, refusal::Refusal};
use dta_role::reporter::{self, view::ReporterView};

/// `/reporter`: its counters now.
pub(crate) async fn view(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<ReporterView>, Refusal> {
    params.only(&[])?;
    let view = context.reporter.as_ref().map(reporter::view);
    view.map(Json).ok_or_else(|| {
        Refusal::not_found("this process runs no DTA reporter; add [reporter] to its configuration")
    })
}
