//! `/switch/rules`, `/switch/claim`, `/switch/renew`: a manager reads and changes the rules of a managed switch.
//!
//! Only the manager with the highest election may write (as in P4Runtime); a change names the version (`etag`) it is based on.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, header},
};
use manager::device::{Change, Election, Etag};
use serde::{Deserialize, Serialize};

use super::{
    context::Context,
    params::{Body, Form, NoParams, Param, Params},
    refusal::Refusal,
    session::Session,
    switch::{handle, no_answer},
};
use config::sections::Role;
use switch_role::role::{Proposal, Refused, Requester, RulesError};
use view::{
    rules::ChangeView,
    switch::{CountersView, RulesView},
};

/// Query parameters of `GET /switch/rules`.
pub(super) const RULES: &[Param] = &[
    Param::new(
        "wait",
        "Wait for another version than this `etag`, up to 20 s; the response has the then active version.",
        Form::Text,
    ),
    Param::integer(
        "seen",
        "With `wait`: wait for another number of `neighbour_changes`, too.",
        0,
        u64::MAX,
    ),
];

/// Changes of a switch's rules, with the election of their writer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "RuleChanges"))]
pub(super) struct ChangesBody {
    /// The election with which the writer claimed the switch.
    election: Election,
    /// The changes in order; all are executed, or none.
    changes: Vec<ChangeView>,
}

/// Returns the rules of the switch and their version; with `wait`, once the version has changed (long polling).
pub(crate) async fn rules(
    State(context): State<Arc<Context>>,
    Extension(session): Extension<Session>,
    params: Params,
) -> Result<Json<RulesView>, Refusal> {
    let params = params.only(RULES)?;
    let handle = handle(&context)?;
    let requester = match session.role {
        Role::Read => Requester::Reader,
        Role::Operate => Requester::Manager,
    };
    Ok(Json(
        handle
            .rules(params.text("wait"), params.number("seen")?, requester)
            .await?,
    ))
}

/// Makes the requester the only writer, if no manager has a higher election.
pub(crate) async fn claim(
    State(context): State<Arc<Context>>,
    _: NoParams,
    Body(election): Body<Election>,
) -> Result<Json<RulesView>, Refusal> {
    Ok(Json(handle(&context)?.propose(Proposal::Claim(election)).await?))
}

/// Renews the lease of the manager that claimed the switch with this election.
pub(crate) async fn renew(
    State(context): State<Arc<Context>>,
    _: NoParams,
    Body(election): Body<Election>,
) -> Result<Json<CountersView>, Refusal> {
    let renewed = handle(&context)?
        .ask(move |forwarder| forwarder.renew(election).map(|()| forwarder.counters_view()))
        .await;
    Ok(Json(renewed.ok_or_else(no_answer)?.map_err(RulesError::Refused)?))
}

/// Changes rules, all or none, if the switch still has the version in `If-Match`.
pub(crate) async fn change(
    State(context): State<Arc<Context>>,
    _: NoParams,
    headers: HeaderMap,
    body: Result<Body<ChangesBody>, Refusal>,
) -> Result<Json<RulesView>, Refusal> {
    let etag = headers
        .get(header::IF_MATCH)
        .and_then(|value| value.to_str().ok());
    let etag = etag.map(|etag| Etag(etag.trim_matches('"').to_owned()));
    let etag = etag.ok_or_else(|| {
        Refusal::bad_request(
            "a change needs the version that it was made from; send the `etag` as If-Match: \"ETAG\"",
        )
    })?;
    let Body(ChangesBody { election, changes }) = body?;
    let changes: Result<Vec<Change>, String> = changes.iter().map(Change::try_from).collect();
    let changes = changes.map_err(Refusal::bad_request)?;
    let proposal = Proposal::Apply {
        election,
        etag,
        changes,
    };
    Ok(Json(handle(&context)?.propose(proposal).await?))
}

impl From<RulesError> for Refusal {
    fn from(error: RulesError) -> Self {
        match error {
            RulesError::Silent => no_answer(),
            RulesError::NotSaved(message) => Self::unavailable(message),
            RulesError::Refused(Refused::NotManaged) => Self::not_found(
                "no manager configures this switch; add [switch.managed] to its configuration",
            ),
            RulesError::Refused(Refused::NotPrimary(election)) => Self::conflict(format!(
                "another manager claimed the switch with term {}, epoch {}; claim it with a higher election",
                election.term, election.epoch
            )),
            RulesError::Refused(Refused::Stale) => {
                Self::precondition_failed("the rules have changed since they were read; read them again")
            }
            RulesError::Refused(Refused::Wrong(message)) => Self::bad_request(message),
        }
    }
}
