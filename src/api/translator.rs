//! The translator role's part of the API.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};

use super::{Context, params::Params, refusal::Refusal};
use crate::aggregator::{self, AggregatorView};
use crate::translator_role::view::DtaView;

/// `/translator`: what there is of a first stage, and of a DTA translator.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Translators {
    #[serde(flatten)]
    stage: Option<AggregatorView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dta: Option<DtaView>,
}

/// Both now.
pub(crate) async fn view(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<Translators>, Refusal> {
    params.only(&[])?;
    let stage = context.translator.as_ref().map(aggregator::view);
    let dta = context.dta.as_ref().map(crate::translator_role::view);
    if stage.is_none() && dta.is_none() {
        let missing = "there is no translator in this process; add [translator] or [translator.dta] to its configuration";
        return Err(Refusal::not_found(missing));
    }
    Ok(Json(Translators { stage, dta }))
}
