//! `/switch`: state, counters and temporary changes of the switch role. Closures run on the switch's thread.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde_json::Value;

use super::{
    context::Context,
    params::{Body, NoParams, Segment},
    refusal::Refusal,
};
use switch_role::{
    role as switch,
    role::{Handle, PortView, SwitchView},
};
use view::switch::CountersView;

/// Returns the state and the counters of the switch.
pub(crate) async fn view(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<SwitchView>, Refusal> {
    let view = handle(&context)?.ask(|forwarder| forwarder.view()).await;
    view.map(Json).ok_or_else(no_answer)
}

/// Returns the current INT counters; a short response, for frequent polling.
pub(crate) async fn counters(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<CountersView>, Refusal> {
    let view = handle(&context)?.ask(|forwarder| forwarder.counters_view()).await;
    view.map(Json).ok_or_else(no_answer)
}

/// Replaces the watched flows until the configuration is reloaded.
pub(crate) async fn watch(
    State(context): State<Arc<Context>>,
    _: NoParams,
    Body(body): Body<Value>,
) -> Result<Json<SwitchView>, Refusal> {
    change(&context, body, |forwarder, body| {
        let watch = switch::watch(forwarder.settings(), body)?;
        forwarder.watch(watch)
    })
    .await
}

/// Replaces the filters of the sink until the configuration is reloaded.
pub(crate) async fn filters(
    State(context): State<Arc<Context>>,
    _: NoParams,
    Body(body): Body<Value>,
) -> Result<Json<SwitchView>, Refusal> {
    change(&context, body, |forwarder, body| {
        let filters = switch::filters(forwarder.settings(), body)?;
        forwarder.set_filters(filters)
    })
    .await
}

/// Applies a body to the switch; rejected if a manager controls its watch list and filters.
async fn change(
    context: &Context,
    body: Value,
    apply: impl FnOnce(&mut switch::Forwarder, Value) -> Result<(), String> + Send + 'static,
) -> Result<Json<SwitchView>, Refusal> {
    let changed = handle(context)?
        .ask(move |forwarder| {
            if forwarder.is_managed() {
                let message =
                    "the watchlist and filters of this switch are managed; add an intent at the manager";
                return Err(message.to_owned());
            }
            apply(forwarder, body)?;
            Ok(forwarder.view())
        })
        .await;
    respond(changed)
}

/// Changes a port (rate, delay, loss, up or down) until the configuration is reloaded.
pub(crate) async fn port(
    State(context): State<Arc<Context>>,
    Segment(number): Segment,
    _: NoParams,
    Body(body): Body<Value>,
) -> Result<Json<PortView>, Refusal> {
    let handle = handle(&context)?;
    let number = number.parse::<u16>().ok();
    let existing_port = handle
        .ask(move |forwarder| number.filter(|&number| forwarder.port_settings(number).is_some()))
        .await;
    let Some(number) = existing_port.ok_or_else(no_answer)? else {
        return Err(Refusal::not_found(
            "there is no such port; /api/v1/switch lists the ports",
        ));
    };
    let changed = handle
        .ask(move |forwarder| {
            let port = switch::port(forwarder.settings(), number, body)?;
            forwarder.set_port(port)?;
            forwarder
                .view()
                .port(number)
                .ok_or_else(|| "the port was removed".to_owned())
        })
        .await;
    respond(changed)
}

/// Clears the SF-INT registers of all flows.
pub(crate) async fn wipe(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<SwitchView>, Refusal> {
    let wiped = handle(&context)?
        .ask(|forwarder| {
            forwarder.wipe_registers();
            forwarder.view()
        })
        .await;
    wiped.map(Json).ok_or_else(no_answer)
}

pub(super) fn handle(context: &Context) -> Result<&Handle, Refusal> {
    let missing = "there is no switch in this process; add [switch] to its configuration";
    context.switch.as_ref().ok_or_else(|| Refusal::not_found(missing))
}

fn respond<T>(result: Option<Result<T, String>>) -> Result<Json<T>, Refusal> {
    result
        .ok_or_else(no_answer)?
        .map(Json)
        .map_err(Refusal::bad_request)
}

pub(super) fn no_answer() -> Refusal {
    Refusal::unavailable("the switch does not answer; try again")
}
