//! The DTA translator's part of the API.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{context::Context, params::Params, refusal::Refusal};
use dta_role::translator::{self, view::TranslatorView};

/// `/translator`: its counters now.
pub(crate) async fn view(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<TranslatorView>, Refusal> {
    params.only(&[])?;
    let view = context.translator.as_ref().map(translator::view);
    view.map(Json).ok_or_else(|| {
        Refusal::not_found("this process runs no translator; add [translator] to its configuration")
    })
}
