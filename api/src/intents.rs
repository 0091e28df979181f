//! `/intents`, `/devices`, `/plan`, `/domain`: the manager's API. Handlers run a closure on its thread, with its `Core`.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::Value;

use super::{
    context::Context,
    params::{Body, Form, NoParams, Param, Params, Segment},
    refusal::Refusal,
    session::Requester,
};
use manage_role::role as manager_role;
use manage_role::role::{
    Core, Error, Handle, Now, PutIntent,
    view::{DeviceView, DevicesView, DomainView, IntentView, IntentsView, ManagerHistoryView, PlanView},
};

/// Query parameters of `/domain/history`.
pub(super) const HISTORY: &[Param] = &[
    Param::new("subject", "Only this intent or device.", Form::Text),
    Param::limit(100, 10_000),
];

/// Error message of a process without a manager.
pub(super) const NO_MANAGER: &str = "there is no manager in this process; add [manager] to its configuration";

/// Lists all intents and their states.
pub(crate) async fn list(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<IntentsView>, Refusal> {
    query_manager(&context, |core, now| Ok(core.intents(now))).await
}

/// Adds or replaces an intent; `If-Match` and `If-None-Match: *` make that conditional.
pub(crate) async fn put(
    State(context): State<Arc<Context>>,
    _: NoParams,
    Requester(by): Requester,
    headers: HeaderMap,
    Body(body): Body<Value>,
) -> Result<Json<IntentView>, Refusal> {
    let request = PutIntent {
        body,
        by,
        if_match: etag(&headers, header::IF_MATCH),
        is_new: etag(&headers, header::IF_NONE_MATCH).as_deref() == Some("*"),
    };
    change(&context, |core, now| core.put(request, now)).await
}

/// Plans the addition of an intent without applying it, with the expected number of reports.
pub(crate) async fn dry_run(
    State(context): State<Arc<Context>>,
    _: NoParams,
    Body(body): Body<Value>,
) -> Result<Json<PlanView>, Refusal> {
    let intent = body.clone();
    let Json(expecting) = query_manager(&context, move |core, now| core.expecting(&intent, now)).await?;
    let expected = manager_role::expect(&*context.monitor, expecting).await;
    query_manager(&context, move |core, now| core.dry_run(&body, &expected, now)).await
}

/// Returns one intent with its version.
pub(crate) async fn show(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
    _: NoParams,
) -> Result<Json<IntentView>, Refusal> {
    query_manager(&context, move |core, now| core.intent(&name, now)).await
}

/// Removes an intent from the manager.
pub(crate) async fn remove(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
    _: NoParams,
    Requester(by): Requester,
    headers: HeaderMap,
) -> Result<Json<IntentsView>, Refusal> {
    let if_match = etag(&headers, header::IF_MATCH);
    change(&context, move |core, now| {
        core.remove(&name, if_match.as_deref(), &by, now)
            .map(|()| core.intents(now))
    })
    .await
}

/// Lists the devices of the inventory.
pub(crate) async fn devices(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<DevicesView>, Refusal> {
    query_manager(&context, |core, now| Ok(core.devices(now))).await
}

/// Returns one device of the inventory.
pub(crate) async fn device(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
    _: NoParams,
) -> Result<Json<DeviceView>, Refusal> {
    query_manager(&context, move |core, now| core.device(&name, now)).await
}

/// Forgets a device that was removed from the inventory but still has INT entries.
pub(crate) async fn forget(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
    _: NoParams,
    Requester(by): Requester,
) -> Result<Json<DevicesView>, Refusal> {
    change(&context, move |core, now| {
        core.forget_leaving(&name, &by, now).map(|()| core.devices(now))
    })
    .await
}

/// Returns the pending plan: changes that wait for approval, or for the domain to settle.
pub(crate) async fn plan(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<PlanView>, Refusal> {
    query_manager(&context, |core, _| Ok(core.plan())).await
}

/// Approves the pending plan.
pub(crate) async fn apply(
    State(context): State<Arc<Context>>,
    _: NoParams,
    Requester(by): Requester,
) -> Result<Json<PlanView>, Refusal> {
    change(&context, move |core, now| Ok(core.apply(&by, now))).await
}

/// Returns the state of the manager and its domain.
pub(crate) async fn domain(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<DomainView>, Refusal> {
    query_manager(&context, |core, now| Ok(core.domain(now))).await
}

/// Returns the state that a standby manager copies; 304 if it already has this version.
pub(crate) async fn copy(
    State(context): State<Arc<Context>>,
    _: NoParams,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let known_etag = etag(&headers, header::IF_NONE_MATCH);
    let Json((etag, copy)) =
        query_manager(&context, move |core, _| Ok(core.copy(known_etag.as_deref()))).await?;
    let etag = [(header::ETAG, format!("\"{etag}\""))];
    Ok(match copy {
        Some(copy) => (etag, Json(copy)).into_response(),
        None => (StatusCode::NOT_MODIFIED, etag).into_response(),
    })
}

/// Removes all INT from the devices; the intents stay.
pub(crate) async fn stop(
    State(context): State<Arc<Context>>,
    _: NoParams,
    Requester(by): Requester,
) -> Result<Json<DomainView>, Refusal> {
    change(&context, move |core, now| core.stop(true, &by, now)).await
}

/// Installs the intents again after [`stop`].
pub(crate) async fn start(
    State(context): State<Arc<Context>>,
    _: NoParams,
    Requester(by): Requester,
) -> Result<Json<DomainView>, Refusal> {
    change(&context, move |core, now| core.stop(false, &by, now)).await
}

/// Returns the history of the manager, optionally of one intent or device.
pub(crate) async fn history(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<ManagerHistoryView>, Refusal> {
    let params = params.only(HISTORY)?;
    let subject = params.text("subject").map(str::to_owned);
    let limit = params.limit()?;
    query_manager(&context, move |core, _| core.history(subject.as_deref(), limit)).await
}

/// Returns the entity tag in a header, without quotes.
fn etag(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers
        .get(name)?
        .to_str()
        .ok()
        .map(|etag| etag.trim_matches('"').to_owned())
}

/// Runs a query on the manager's thread, under one of the permits for queries.
async fn query_manager<T: Send + 'static>(
    context: &Context,
    query: impl FnOnce(&mut Core, Now) -> Result<T, Error> + Send + 'static,
) -> Result<Json<T>, Refusal> {
    Ok(Json(manager(context)?.ask(query).await.ok_or_else(busy)??))
}

/// Runs a change on the manager's thread. Changes have their own permits, so that queries cannot block them.
async fn change<T: Send + 'static>(
    context: &Context,
    update: impl FnOnce(&mut Core, Now) -> Result<T, Error> + Send + 'static,
) -> Result<Json<T>, Refusal> {
    Ok(Json(manager(context)?.change(update).await.ok_or_else(busy)??))
}

fn manager(context: &Context) -> Result<&Handle, Refusal> {
    context
        .manager
        .as_ref()
        .ok_or_else(|| Refusal::not_found(NO_MANAGER))
}

fn busy() -> Refusal {
    Refusal::unavailable("the manager has too many requests at once, and nothing was done; try again")
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Wrong(message) => Self::bad_request(message),
            Error::Unknown(message) => Self::not_found(message),
            Error::Conflict(message) => Self::conflict(message),
            Error::NotSaved(message) => Self::unavailable(message),
            Error::Stale(message) => Self::precondition_failed(message),
        }
    }
}
