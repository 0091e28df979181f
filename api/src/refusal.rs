//! Error responses of the API: a status and `{"error": "one sentence with the reason and the remedy"}`.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};

use runtime::monitor::Busy;

/// Response to a rejected request: status and one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: StatusCode,
    message: String,
}

/// Reason for refusing a request.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Error"))]
pub(super) struct Body<'a> {
    /// One sentence with the reason and the fix.
    error: &'a str,
}

impl Refusal {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// Rejects an invalid request (400).
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Rejects a request without a valid token (401).
    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    /// Rejects a host name, origin or role that is not allowed (403).
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// Rejects a request for a resource that does not exist (404).
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// Rejects a flow id that several flows have, as a host can compute (400).
    pub(crate) fn shared_flow_id(id: &str) -> Self {
        Self::bad_request(format!(
            "several flows have the id {id}; write the flow as text, such as 10.0.0.1:5000>10.0.0.2:80/17"
        ))
    }

    /// Rejects a method that the path does not support (405).
    pub(crate) fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, message)
    }

    /// Rejects a request that conflicts with the current state (409).
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// Rejects a request whose precondition names another version of the resource (412).
    pub(crate) fn precondition_failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, message)
    }

    /// Rejects a request because the program is busy or stopping; a retry may succeed (503).
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

impl From<Busy> for Refusal {
    fn from(_: Busy) -> Self {
        Self::unavailable("the collector is too busy to respond; try again in a moment")
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(Body { error: &self.message })).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = axum::http::HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(axum::http::header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
