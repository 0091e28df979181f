//! The translator role's part of the API.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{Context, params::Params, refusal::Refusal};
use crate::first_stage::{self, TranslatorView};

/// The first stage now.
pub(crate) async fn view(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<TranslatorView>, Refusal> {
    params.only(&[])?;
    let missing = "there is no first stage in this process; add [translator] to its configuration";
    let handle = context.translator.as_ref().ok_or_else(|| Refusal::not_found(missing))?;
    Ok(Json(first_stage::view(handle)))
}
