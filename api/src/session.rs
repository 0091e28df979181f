//! Sessions: the role and name of a request's token, which requests a role may make, and `/session`.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use axum::{
    Extension, Json,
    extract::{FromRequestParts, State},
    http::{Method, request::Parts},
};
use serde::{Deserialize, Serialize};

use settings::values::Secret;

use super::{context::Context, params::NoParams, refusal::Refusal};
use config::sections::Role;

/// POST routes that only read, such as dry runs.
const READ_ONLY_POSTS: [&str; 3] = ["/api/v1/intents/plan", "/api/v1/query", "/api/v1/alerts/try"];

/// Role and name that the token of a request proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// Role of the token; `operate` if no token is needed.
    pub(super) role: Role,
    /// Name of the token, if it has one.
    pub(super) name: Option<String>,
    /// The token itself, if one was needed.
    pub(super) token: Option<Secret>,
}

/// Returns whether a request may change something.
pub(super) fn may_change(method: &Method, path: &str) -> bool {
    !(matches!(*method, Method::GET | Method::HEAD)
        || method == Method::POST && READ_ONLY_POSTS.contains(&path))
}

impl Session {
    /// Rejects a request that the role does not allow.
    ///
    /// # Errors
    /// The request may change something, and the role is `read` (403).
    pub(super) fn check_rights(&self, method: &Method, path: &str) -> Result<(), Refusal> {
        if self.role == Role::Operate || !may_change(method, path) {
            return Ok(());
        }
        Err(Refusal::forbidden(
            "this token may only read; use one with role = \"operate\" in [[api.tokens]] to change something",
        ))
    }
}

/// The requester's role, and the token's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SessionView {
    /// `read`: every request that only reads. `operate`: every request.
    role: RoleView,
    /// The name of the token; null if it has none, or none is needed.
    name: Option<String>,
    /// Whether the API needs a token.
    needs_token: bool,
    /// Whether this is a console, which answers from ClickHouse and has no live state.
    console: bool,
    /// In a console: addresses of the pages of collectors, by their names, as configured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    collectors: BTreeMap<String, String>,
}

/// Role of a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Role"))]
pub(crate) enum RoleView {
    /// Read everything, and change nothing.
    Read,
    /// Read and change everything.
    Operate,
}

/// Returns role and name of the requester, and facts about this server.
pub(crate) async fn view(
    State(context): State<Arc<Context>>,
    Extension(session): Extension<Session>,
    _: NoParams,
) -> Json<SessionView> {
    let role = match session.role {
        Role::Read => RoleView::Read,
        Role::Operate => RoleView::Operate,
    };
    let settings = context.active_config.get();
    let needs_token = settings.api.needs_token();
    let console = settings.console.is_some();
    let collectors = settings
        .console
        .as_ref()
        .map(|console| console.collectors.clone())
        .unwrap_or_default();
    Json(SessionView {
        role,
        name: session.name,
        needs_token,
        console,
        collectors,
    })
}

/// Requester in the record of changes: the token's name, or the unverified header `X-Requested-By`, or `api`.
pub(super) struct Requester(pub(super) String);

impl<S: Sync> FromRequestParts<S> for Requester {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let token_name = parts
            .extensions
            .get::<Session>()
            .and_then(|session| session.name.clone());
        if let Some(name) = token_name {
            return Ok(Self(name));
        }
        let claimed_name = parts
            .headers
            .get("x-requested-by")
            .and_then(|value| value.to_str().ok())
            .unwrap_or("api");
        let printable = claimed_name.chars().filter(|c| !c.is_control());
        Ok(Self(printable.take(64).collect()))
    }
}
