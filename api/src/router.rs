//! The routes of the API with their handlers, and the middleware around them. Other paths are pages of the web UI.

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    middleware,
    response::{IntoResponse, Response},
    routing,
};

use crate::{
    alerts,
    context::{Context, MAX_BODY},
    dta, filters, flows, guard, intents, losses, names, notes, openapi, pages, past, paths, queues,
    refusal::Refusal,
    roles, rules, session, state, stored, stream, switch, traffic,
};

/// Declares the routes once, for the router and for the test that compares them with the OpenAPI document.
macro_rules! routes {
    ($($method:ident $path:literal => $handler:path),* $(,)?) => {
        /// Method and path of every route below the pages.
        #[cfg(test)]
        pub(crate) const ROUTES: &[(&str, &str)] = &[$((stringify!($method), $path)),*];

        fn router() -> Router<Arc<Context>> {
            Router::new()$(.route($path, routing::$method($handler)))*
        }
    };
}

routes! {
    get "/api/v1/status" => state::status,
    get "/api/v1/rates" => state::rates,
    get "/api/v1/nodes" => state::nodes,
    get "/api/v1/links" => state::links,
    get "/api/v1/flows" => flows::flows,
    get "/api/v1/flows/{id}" => flows::flow,
    get "/api/v1/flows/{id}/history" => stored::history,
    get "/api/v1/flows/{id}/latencies" => paths::latencies,
    get "/api/v1/paths" => state::paths,
    get "/api/v1/paths/changes" => paths::changes,
    get "/api/v1/paths/uses" => paths::uses,
    get "/api/v1/losses" => losses::losses,
    get "/api/v1/activity" => past::activity,
    get "/api/v1/names" => names::names,
    get "/api/v1/filter" => filters::help,
    get "/api/v1/events" => stored::events,
    get "/api/v1/events/stream" => stream::events,
    get "/api/v1/rollups" => stored::rollups,
    post "/api/v1/query" => stored::query,
    get "/api/v1/traffic" => traffic::traffic,
    get "/api/v1/queues" => queues::heat,
    get "/api/v1/queues/{node}" => queues::burst,
    get "/api/v1/recordings" => queues::recordings,
    get "/api/v1/alerts" => alerts::alerts,
    post "/api/v1/alerts/acknowledge" => alerts::acknowledge,
    get "/api/v1/alerts/silences" => alerts::silences,
    post "/api/v1/alerts/silences" => alerts::silence,
    delete "/api/v1/alerts/silences/{id}" => alerts::unsilence,
    post "/api/v1/alerts/try" => alerts::try_rule,
    post "/api/v1/alerts/rules" => alerts::enable,
    get "/api/v1/switch" => switch::view,
    put "/api/v1/switch/watch" => switch::watch,
    put "/api/v1/switch/filters" => switch::filters,
    patch "/api/v1/switch/ports/{number}" => switch::port,
    post "/api/v1/switch/registers/wipe" => switch::wipe,
    get "/api/v1/switch/int" => switch::counters,
    get "/api/v1/switch/rules" => rules::rules,
    patch "/api/v1/switch/rules" => rules::change,
    post "/api/v1/switch/claim" => rules::claim,
    post "/api/v1/switch/renew" => rules::renew,
    get "/api/v1/aggregator" => roles::aggregator,
    get "/api/v1/reporter" => roles::reporter,
    get "/api/v1/exports" => roles::exports,
    get "/api/v1/translator" => roles::translator,
    get "/api/v1/dta" => dta::view,
    get "/api/v1/dta/stores" => dta::stores,
    get "/api/v1/dta/stores/{name}" => dta::store,
    get "/api/v1/dta/stores/{name}/get" => dta::get,
    get "/api/v1/dta/stores/{name}/count" => dta::count,
    get "/api/v1/dta/stores/{name}/sketch" => dta::sketch,
    get "/api/v1/dta/lists" => dta::lists,
    get "/api/v1/dta/lists/{list}" => dta::tail,
    get "/api/v1/dta/snapshots" => dta::snapshots,
    post "/api/v1/dta/snapshots" => dta::snapshot,
    get "/api/v1/dta/calculate" => dta::calculator,
    get "/api/v1/intents" => intents::list,
    put "/api/v1/intents" => intents::put,
    post "/api/v1/intents/plan" => intents::dry_run,
    get "/api/v1/intents/{name}" => intents::show,
    delete "/api/v1/intents/{name}" => intents::remove,
    get "/api/v1/devices" => intents::devices,
    get "/api/v1/devices/{name}" => intents::device,
    delete "/api/v1/devices/{name}" => intents::forget,
    get "/api/v1/plan" => intents::plan,
    post "/api/v1/plan/apply" => intents::apply,
    get "/api/v1/domain" => intents::domain,
    post "/api/v1/domain/stop" => intents::stop,
    post "/api/v1/domain/start" => intents::start,
    get "/api/v1/domain/intents" => intents::copy,
    get "/api/v1/domain/history" => intents::history,
    get "/api/v1/domain/stream" => stream::domain,
    get "/api/v1/session" => session::view,
    get "/api/v1/config" => state::config,
    post "/api/v1/config/reload" => state::reload,
    get "/api/v1/openapi.json" => openapi::document,
    get "/metrics" => state::metrics,
    get "/healthz" => state::health,
}

/// Builds the service of the API and the pages. Layers run from the last one to the first: body limit, guard, notes.
pub(crate) fn service(context: Arc<Context>) -> Router {
    router()
        .fallback(fallback)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(notes::with_notes))
        .layer(middleware::from_fn_with_state(Arc::clone(&context), guard::guard))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(context)
}

async fn fallback(
    State(context): State<Arc<Context>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if uri.path().starts_with("/api") {
        let message = format!("there is no {}; /api/v1/openapi.json lists all paths", uri.path());
        return Refusal::not_found(message).into_response();
    }
    if !matches!(method, Method::GET | Method::HEAD) {
        return ([(header::ALLOW, "GET, HEAD")], wrong_method(uri).await).into_response();
    }
    let settings = context.active_config.get();
    if settings.has_pages() {
        pages::page(&uri, &headers)
    } else {
        (
            StatusCode::NOT_FOUND,
            "the pages are off; [ui] enabled and a [collector] or a [console] switch them on\n",
        )
            .into_response()
    }
}

async fn wrong_method(uri: Uri) -> Refusal {
    Refusal::method_not_allowed(format!(
        "{} does not support this method; /api/v1/openapi.json lists the methods",
        uri.path()
    ))
}
