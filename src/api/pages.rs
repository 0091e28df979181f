//! The pages: built into the program when `ui/dist` was there at build time, else one page that says how to get them.

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

// `PAGES: &[(&str, &[u8])]`: path below `ui/dist` and content, sorted by path.
include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// A file of the pages; for any other path without a dot the first page, which finds out what to show by itself.
pub(crate) fn page(uri: &Uri) -> Response {
    let path = uri.path().trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    match find(path) {
        Some(content) => file(path, content),
        None if PAGES.is_empty() => (StatusCode::OK, headers("index.html"), WITHOUT_PAGES).into_response(),
        None if path.contains('.') => {
            (StatusCode::NOT_FOUND, "there is no such file; start at /\n").into_response()
        }
        None => match find("index.html") {
            Some(content) => file("index.html", content),
            None => StatusCode::NOT_FOUND.into_response(),
        },
    }
}

/// Are the pages in this build?
pub(crate) fn are_built_in() -> bool {
    !PAGES.is_empty()
}

fn find(path: &str) -> Option<&'static [u8]> {
    PAGES.binary_search_by(|(name, _)| (*name).cmp(path)).ok().map(|index| PAGES[index].1)
}

fn file(path: &str, content: &'static [u8]) -> Response {
    (headers(path), content).into_response()
}

fn headers(path: &str) -> HeaderMap {
    // Vite puts a hash of the content into the names below assets/: they never change.
    let caching =
        if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type(path))),
        (header::CACHE_CONTROL, HeaderValue::from_static(caching)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY)),
    ]
    .into_iter()
    .collect()
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Only our own scripts, styles and API; no frame around us; nothing inline.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const WITHOUT_PAGES: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>hopwise</title>
<h1>hopwise is running</h1>
<p>The pages are not in this build. To get them, build once more with Node.js installed:</p>
<pre>make ui &amp;&amp; cargo build --release</pre>
<p>The API is at <a href=\"/api/v1/status\">/api/v1/status</a>, described by
<a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a>; figures for Prometheus are at <a href=\"/metrics\">/metrics</a>.</p>
</html>
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_pages_is_sorted_for_the_search() {
        assert!(PAGES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn the_first_page_is_html_that_may_run_only_our_scripts() {
        let response = page(&Uri::from_static("/"));
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-cache");
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"));
    }
}
