//! The switch role's part of the API.

use std::sync::Arc;

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
};
use serde_json::Value;

use super::{
    context::Context,
    params::{Params, Segment},
    refusal::Refusal,
};
use switch_role::{
    role as switch,
    role::{Handle, PortView, SwitchView},
};
use view::switch::CountersView;

/// The switch now.
pub(crate) async fn view(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<SwitchView>, Refusal> {
    params.only(&[])?;
    let view = handle(&context)?.ask(|forwarder| forwarder.view()).await;
    view.map(Json).ok_or_else(silent)
}

/// The INT counters now: short, for whoever asks often.
pub(crate) async fn counters(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<CountersView>, Refusal> {
    params.only(&[])?;
    let view = handle(&context)?.ask(|forwarder| forwarder.counters_view()).await;
    view.map(Json).ok_or_else(silent)
}

/// Replaces the watched flows until the configuration is reloaded.
pub(crate) async fn watch(
    State(context): State<Arc<Context>>,
    params: Params,
    body: Result<Json<Value>, JsonRejection>,
) -> Result<Json<SwitchView>, Refusal> {
    params.only(&[])?;
    let body = json(body)?;
    let change = move |forwarder: &mut switch::Forwarder| {
        own(forwarder)?;
        let watch = switch::watch(forwarder.settings(), body)?;
        forwarder.watch(watch)?;
        Ok(forwarder.view())
    };
    done(handle(&context)?.ask(change).await)
}

/// Replaces the filters of the sink until the configuration is reloaded.
pub(crate) async fn filters(
    State(context): State<Arc<Context>>,
    params: Params,
    body: Result<Json<Value>, JsonRejection>,
) -> Result<Json<SwitchView>, Refusal> {
    params.only(&[])?;
    let body = json(body)?;
    let change = move |forwarder: &mut switch::Forwarder| {
        own(forwarder)?;
        let filters = switch::filters(forwarder.settings(), body)?;
        forwarder.set_filters(filters)?;
        Ok(forwarder.view())
    };
    done(handle(&context)?.ask(change).await)
}

/// Changes a port (rates, delays, losses, up or down) until the configuration is reloaded.
pub(crate) async fn port(
    State(context): State<Arc<Context>>,
    Segment(number): Segment,
    params: Params,
    body: Result<Json<Value>, JsonRejection>,
) -> Result<Json<PortView>, Refusal> {
    params.only(&[])?;
    let body = json(body)?;
    let handle = handle(&context)?;
    let number = number.parse::<u16>().ok();
    let known = move |forwarder: &mut switch::Forwarder| {
        number.filter(|&number| forwarder.port_settings(number).is_some())
    };
    let Some(number) = handle.ask(known).await.ok_or_else(silent)? else {
        return Err(Refusal::not_found(
            "there is no such port; /api/v1/switch lists the ports",
        ));
    };
    let change = move |forwarder: &mut switch::Forwarder| {
        let port = switch::port(forwarder.settings(), number, body)?;
        forwarder.set_port(port)?;
        forwarder
            .view()
            .port(number)
            .ok_or_else(|| "the port was removed".to_owned())
    };
    done(handle.ask(change).await)
}

/// Clears the SF-INT registers of all flows.
pub(crate) async fn wipe(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<SwitchView>, Refusal> {
    params.only(&[])?;
    let change = |forwarder: &mut switch::Forwarder| {
        forwarder.wipe_registers();
        forwarder.view()
    };
    handle(&context)?.ask(change).await.map(Json).ok_or_else(silent)
}

/// Refuses a change of what a manager decides.
fn own(forwarder: &switch::Forwarder) -> Result<(), String> {
    let message = "the watchlist and filters of this switch are managed; add an intent at the manager";
    if forwarder.is_managed() {
        Err(message.to_owned())
    } else {
        Ok(())
    }
}

pub(super) fn handle(context: &Context) -> Result<&Handle, Refusal> {
    let missing = "there is no switch in this process; add [switch] to its configuration";
    context.switch.as_ref().ok_or_else(|| Refusal::not_found(missing))
}

pub(super) fn json(body: Result<Json<Value>, JsonRejection>) -> Result<Value, Refusal> {
    body.map(|Json(value)| value).map_err(|error| {
        Refusal::bad(format!(
            "the body is not JSON: {}; send it with content-type: application/json",
            error.body_text()
        ))
    })
}

fn done<T>(result: Option<Result<T, String>>) -> Result<Json<T>, Refusal> {
    result.ok_or_else(silent)?.map(Json).map_err(Refusal::bad)
}

pub(super) fn silent() -> Refusal {
    Refusal::unavailable("the switch does not answer; try again")
}
