//! Access control, as middleware around all handlers. It checks, in this order: the Host header (against DNS rebinding), the
//! Origin header, the token, the token's role, and whether a console serves the route; then it reads the body within limits
//! of size and time.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{self, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody, to_bytes},
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use http_body::{Frame, SizeHint};
use tokio::{sync::OwnedSemaphorePermit, time};

use super::{
    connections::{ConnectionHandle, Peer},
    context::{Context, MAX_BODY},
    refusal::Refusal,
    session::Session,
};
use config::Settings;
use config::sections::{ApiSettings, Role};
use settings::values::{Secret, rounded_text};
use terminal::text::unescaped;

/// Maximum time for the body of a request to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Routes that a console serves, below `/api/v1/`; also all routes of a single flow or queue.
const CONSOLE_ROUTES: &[&str] = &[
    "alerts",
    "alerts/try",
    "events",
    "rollups",
    "status",
    "flows",
    "links",
    "losses",
    "nodes",
    "paths",
    "paths/changes",
    "paths/uses",
    "queues",
    "traffic",
    "activity",
    "query",
    "names",
    "filter",
    "session",
    "config",
    "config/reload",
    "openapi.json",
];

const SECURITY_HEADERS: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Rejects requests that are not allowed, and adds security headers to every response.
pub(crate) async fn guard(State(context): State<Arc<Context>>, request: Request, next: Next) -> Response {
    let connection = request
        .extensions()
        .get::<ConnectInfo<Peer>>()
        .map(|info| Arc::clone(&info.0.0));
    let mut response = handle(&context, connection.as_deref(), request, next)
        .await
        .unwrap_or_else(IntoResponse::into_response);
    if let Some(connection) = &connection {
        connection.start_response(response.body().size_hint().exact().is_none());
    }
    for (name, value) in SECURITY_HEADERS {
        response
            .headers_mut()
            .insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

/// Authorizes a request, receives its body, and runs its handler.
async fn handle(
    context: &Context,
    connection: Option<&ConnectionHandle>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let session = authorize(&context.active_config.get(), &request)?;
    let mut request = read_body(request).await?;
    request.extensions_mut().insert(session);
    if let Some(connection) = connection {
        connection.start_handler();
    }
    Ok(charge_unsent(context, next.run(request).await))
}

/// Returns the session of a request that is allowed.
fn authorize(settings: &Settings, request: &Request) -> Result<Session, Refusal> {
    let path = request.uri().path();
    let session = authenticate(&settings.api, request.uri(), request.headers())?;
    session.check_rights(request.method(), path)?;
    if settings.console.is_some() && !is_served_by_console(path) {
        return Err(Refusal::not_found(format!(
            "{path} is not available in a console, which answers from ClickHouse and has no live state; ask a collector for it"
        )));
    }
    Ok(session)
}

/// Receives the whole body, so that handlers never wait for a client.
async fn read_body(request: Request) -> Result<Request, Refusal> {
    let (parts, body) = request.into_parts();
    let bytes = match time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => {
            let message = format!(
                "the body of the request is incomplete, or longer than {} KiB",
                MAX_BODY >> 10
            );
            return Err(Refusal::bad_request(message));
        }
        Err(_) => {
            let message = format!(
                "the body of the request did not arrive within {}",
                rounded_text(BODY_TIMEOUT)
            );
            return Err(Refusal::bad_request(message));
        }
    };
    Ok(Request::from_parts(parts, bytes.into()))
}

/// Counts a response of known size against the memory budget for slow clients; without budget, the response is 503.
fn charge_unsent(context: &Context, response: Response) -> Response {
    let Some(size) = response.body().size_hint().exact() else {
        return response;
    };
    let kib = u32::try_from(size >> 10).unwrap_or(u32::MAX);
    match Arc::clone(&context.unsent_budget).try_acquire_many_owned(kib) {
        Ok(permit) => response.map(|inner| {
            Body::new(CountedBody {
                inner,
                _permit: permit,
            })
        }),
        Err(_) => {
            let message = "too many responses to slow clients are in memory; try again";
            Refusal::unavailable(message).into_response()
        }
    }
}

/// Response body that holds its share of the memory budget until it is sent or dropped.
struct CountedBody {
    inner: Body,
    _permit: OwnedSemaphorePermit,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Checks host, origin and token, in this order. Returns the session of the request.
fn authenticate(settings: &ApiSettings, uri: &Uri, headers: &HeaderMap) -> Result<Session, Refusal> {
    // RFC 9112, section 3.2. With two Host headers, a proxy may have checked the other one.
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err(Refusal::bad_request(
            "the request has more than one Host header; send one",
        ));
    }
    let host = header_str(headers, &header::HOST).unwrap_or("");
    // Loopback needs no token by default. With DNS rebinding, a web site can point its name to 127.0.0.1 and use a visitor's
    // browser to read the API; but the browser then sends that name in `Host`.
    if settings.listen.ip().is_loopback() && !is_local(host, &settings.hosts) {
        let message =
            "this host name is not served; use 127.0.0.1 or localhost, or add the name to [api] hosts";
        return Err(Refusal::forbidden(message));
    }
    if let Some(origin) = header_str(headers, &header::ORIGIN)
        && origin.split_once("://").map(|(_, route)| route) != Some(host)
    {
        return Err(Refusal::forbidden(
            "requests from other web sites are refused; open the pages of hopwise itself",
        ));
    }
    if !settings.needs_token() || !needs_token(uri.path()) {
        return Ok(Session {
            role: Role::Operate,
            name: None,
            token: None,
        });
    }
    let bearer_token = bearer(headers).or_else(|| query_token(uri)).unwrap_or_default();
    session_of(settings, &bearer_token).ok_or_else(|| {
        Refusal::unauthorized("a token is needed; send Authorization: Bearer TOKEN with a token of [api]")
    })
}

/// Returns the session for a token, or `None`. All tokens are compared in constant time, so timing reveals nothing.
fn session_of(settings: &ApiSettings, bearer_token: &str) -> Option<Session> {
    let mut session = None;
    if settings
        .token
        .as_ref()
        .is_some_and(|token| constant_time_eq(bearer_token, &token.0))
    {
        session = Some((Role::Operate, None));
    }
    for entry in &settings.tokens {
        if entry
            .token
            .as_ref()
            .is_some_and(|token| constant_time_eq(bearer_token, &token.0))
        {
            session = Some((entry.role, Some(&entry.name)));
        }
    }
    session.map(|(role, name)| Session {
        role,
        name: name.cloned(),
        token: Some(Secret(bearer_token.to_owned())),
    })
}

/// Returns whether a token is still accepted; the configuration may have changed since a stream began.
pub fn is_token_valid(settings: &ApiSettings, token: Option<&Secret>) -> bool {
    !settings.needs_token() || token.is_some_and(|token| session_of(settings, &token.0).is_some())
}

/// Returns whether a console serves this path.
fn is_served_by_console(path: &str) -> bool {
    let Some(route) = path.strip_prefix("/api/v1/") else {
        return true;
    };
    CONSOLE_ROUTES.contains(&route) || route.starts_with("flows/") || route.starts_with("queues/")
}

/// Returns whether a path needs the token. Pages and the health check contain no data, so they do not.
fn needs_token(path: &str) -> bool {
    path.starts_with("/api") || path == "/metrics"
}

/// Returns whether a Host header names this machine, or a host that the configuration allows.
fn is_local(host: &str, allowed: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(route) => route.split_once(']').map_or("", |(address, _)| address),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    loopback
        || name.eq_ignore_ascii_case("localhost")
        || allowed.iter().any(|other| other.eq_ignore_ascii_case(name))
}

fn header_str<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let (scheme, token) = header_str(headers, &header::AUTHORIZATION)?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}

/// Returns the percent-decoded token in `?token=`, for EventSource, which cannot send headers.
fn query_token(uri: &Uri) -> Option<String> {
    let value = uri
        .query()?
        .split('&')
        .find_map(|pair| pair.strip_prefix("token="))?;
    unescaped(&value.replace('+', " "))
}

/// Compares two texts in a time that does not depend on where they differ.
fn constant_time_eq(bearer_token: &str, token: &str) -> bool {
    let difference =
        token
            .bytes()
            .enumerate()
            .fold(bearer_token.len() ^ token.len(), |difference, (i, byte)| {
                difference | usize::from(byte ^ bearer_token.as_bytes().get(i).copied().unwrap_or(0))
            });
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::sections::TokenSettings;

    const TOKEN: &str = "0123456789abcdef";

    fn settings(listen: &str, token: Option<&str>) -> ApiSettings {
        let token = token.map(|token| Secret(token.to_owned()));
        ApiSettings {
            listen: listen.parse().unwrap(),
            token,
            hosts: vec!["noc.example".to_owned()],
            ..ApiSettings::default()
        }
    }

    fn headers(list: &[(HeaderName, &str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn on_loopback_only_names_of_this_machine_are_served() {
        let settings = settings("127.0.0.1:8080", None);
        let admitted = |host: &str| {
            authenticate(
                &settings,
                &Uri::from_static("/api/v1/status"),
                &headers(&[(header::HOST, host)]),
            )
            .is_ok()
        };
        for host in [
            "127.0.0.1:8080",
            "localhost",
            "LOCALHOST:1",
            "[::1]:8080",
            "127.8.8.8",
            "noc.example:80",
        ] {
            assert!(admitted(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example:8080",
            "10.0.0.1",
            "localhost.evil",
            "[::1",
            "[",
        ] {
            assert!(!admitted(host), "{host}");
        }
    }

    #[test]
    fn another_origin_is_refused() {
        let settings = settings("127.0.0.1:8080", None);
        let admitted = |origin: &str| {
            let headers = headers(&[(header::HOST, "localhost:8080"), (header::ORIGIN, origin)]);
            authenticate(&settings, &Uri::from_static("/api/v1/query"), &headers).is_ok()
        };
        assert!(admitted("http://localhost:8080"));
        assert!(!admitted("http://localhost:3000") && !admitted("null") && !admitted("https://evil.example"));
    }

    #[test]
    fn with_a_token_only_its_bearer_gets_data() {
        let settings = settings("0.0.0.0:8080", Some(TOKEN));
        let bearer = |value: &str| headers(&[(header::HOST, "anything"), (header::AUTHORIZATION, value)]);
        let admitted = |path: &str, headers: &HeaderMap| {
            authenticate(&settings, &path.parse().unwrap(), headers).is_ok()
        };
        let good = format!("Bearer {TOKEN}");
        assert!(admitted("/api/v1/status", &bearer(&good)) && admitted("/metrics", &bearer(&good)));
        assert!(admitted(
            &format!("/api/v1/events/stream?kind=new&token={TOKEN}"),
            &headers(&[])
        ));
        assert!(admitted("/healthz", &headers(&[])) && admitted("/", &headers(&[])));
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdeX",
            "Bearer 0123456789abcdef0",
            "Basic 0123456789abcdef",
        ] {
            assert!(!admitted("/api/v1/status", &bearer(value)), "{value:?}");
        }
        assert!(
            !admitted("/metrics", &headers(&[])) && !admitted("/api/v1/status?token=0123", &headers(&[]))
        );
    }

    #[test]
    fn a_token_has_its_role_and_name() {
        let mut settings = settings("0.0.0.0:8080", Some(TOKEN));
        let entry = |token: &str, role, name: &str| TokenSettings {
            token: Some(Secret(token.to_owned())),
            role,
            name: name.to_owned(),
        };
        settings.tokens = vec![
            entry("anna-anna-anna-an", Role::Read, "anna"),
            entry("otto-otto-otto-ot", Role::Operate, "otto"),
        ];
        let held = |token: &str| session_of(&settings, token).map(|session| (session.role, session.name));
        assert_eq!(held(TOKEN), Some((Role::Operate, None)));
        assert_eq!(
            held("anna-anna-anna-an"),
            Some((Role::Read, Some("anna".to_owned())))
        );
        assert_eq!(
            held("otto-otto-otto-ot"),
            Some((Role::Operate, Some("otto".to_owned())))
        );
        assert_eq!((held(""), held("anna-anna-anna-ax")), (None, None));
        let still = |settings: &ApiSettings, token: Option<&str>| {
            is_token_valid(settings, token.map(|token| Secret(token.to_owned())).as_ref())
        };
        assert_eq!(
            [Some("anna-anna-anna-an"), None].map(|token| still(&settings, token)),
            [true, false]
        );
        settings.tokens.remove(0);
        assert_eq!(
            [TOKEN, "anna-anna-anna-an"].map(|token| still(&settings, Some(token))),
            [true, false]
        );
        settings.token = None;
        assert!(authenticate(&settings, &Uri::from_static("/api/v1/status"), &headers(&[])).is_err());
    }

    #[test]
    fn a_token_in_the_address_may_be_percent_encoded() {
        assert_eq!(
            query_token(&Uri::from_static("/?a=b&token=a%2Bb%3d")),
            Some("a+b=".to_owned())
        );
        assert_eq!(query_token(&Uri::from_static("/?token=a%2")), None);
        assert_eq!(query_token(&Uri::from_static("/?atoken=a")), None);
    }
}
