//! The exports' part of the API.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{context::Context, params::Params, refusal::Refusal};
use ::export_role::role::view::{self, ExportsView};

/// `/exports`: each stream of each export now; none without `[exports.NAME]`.
pub(crate) async fn view(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<ExportsView>, Refusal> {
    params.only(&[])?;
    Ok(Json(context.exports.as_ref().map(view::view).unwrap_or_default()))
}
