//! `/events/stream` and `/domain/stream`: live events and manager changes as server-sent events. A client that is too slow
//! loses events, and is told how many by `event: shed`.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context as Task, Poll},
    time::Duration,
};

use axum::{
    Extension,
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use filter::View;
use futures_core::Stream;

use super::{
    context::Context,
    filters,
    guard::is_token_valid,
    params::{EVENT_FILTER, FLOW, KIND, NODE, NoParams, Param, Params},
    refusal::Refusal,
    session::Session,
};
use collect_role::live::{Filter, Subscription, Topic};

/// Query parameters of `/events/stream`.
pub(super) const EVENTS: &[Param] = &[KIND, NODE, FLOW, EVENT_FILTER];
/// Interval without events after which a comment is sent, so that both ends detect a broken connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams matching events, each as one `data:` line of JSON.
pub(crate) async fn events(
    State(context): State<Arc<Context>>,
    Extension(session): Extension<Session>,
    params: Params,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let params = params.only(EVENTS)?;
    let condition = filters::parse_condition(&context, &params, View::Events).await?;
    let filter = Filter {
        kind: params.kind(),
        node: params.number("node")?,
        flow: params.flow(),
        condition,
    };
    subscribe(&context, Topic::Events(filter), session)
}

/// Streams the changes at the manager.
pub(crate) async fn domain(
    State(context): State<Arc<Context>>,
    Extension(session): Extension<Session>,
    _: NoParams,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    if context.manager.is_none() {
        return Err(Refusal::not_found(super::intents::NO_MANAGER));
    }
    subscribe(&context, Topic::Manager, session)
}

fn subscribe(
    context: &Context,
    topic: Topic,
    session: Session,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>> + use<>>, Refusal> {
    let token = session.token;
    let subscription = context.hub.subscribe(topic, token.clone()).ok_or_else(|| {
        Refusal::unavailable("there are too many live streams, or their filters have more than 256 tests together; close one, or raise [api] max_streams")
    })?;
    // A reload since the guard's check has not closed this stream, so check again after subscribing.
    if !is_token_valid(&context.active_config.get().api, token.as_ref()) {
        return Err(Refusal::unauthorized(
            "this token is no longer valid; send another one of [api]",
        ));
    }
    Ok(Sse::new(EventStream { subscription }).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// Subscription of a client as a stream of server-sent events.
struct EventStream {
    subscription: Subscription,
}

impl Stream for EventStream {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Self::Item>> {
        let shed = self.subscription.drain_shed();
        if shed > 0 {
            return Poll::Ready(Some(Ok(Event::default()
                .event("shed")
                .data(format!("{{\"shed\":{shed}}}")))));
        }
        self.subscription
            .events
            .poll_recv(task)
            .map(|message| message.map(|message| Ok(sse_event(message.name).data(&*message.text))))
    }
}

fn sse_event(name: Option<&str>) -> Event {
    name.map_or_else(Event::default, |name| Event::default().event(name))
}
