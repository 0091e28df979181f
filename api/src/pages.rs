//! Serves the web UI embedded in the program; if `ui/dist` was missing at build time, a page explains how to build it.
//!
//! Text files are embedded plain and as gzip; `Accept-Encoding` selects one (RFC 9110, section 12.5.3).

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

/// Content Security Policy: only our own scripts, styles and API, nothing inline, and no embedding in frames.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const NO_UI_PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>hopwise</title>
<h1>hopwise is running</h1>
<p>The pages are not in this build. To get them, build once more with Node.js installed:</p>
<pre>make ui &amp;&amp; cargo build --release</pre>
<p>The API is at <a href=\"/api/v1/status\">/api/v1/status</a>, described by
<a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a>; figures for Prometheus are at <a href=\"/metrics\">/metrics</a>.</p>
</html>
";

/// Embedded file of the web UI.
struct Asset {
    /// Path of the file below `ui/dist`.
    path: &'static str,
    /// Hash of the content, used as `ETag`.
    hash: &'static str,
    plain: &'static [u8],
    /// Content as gzip; `None` if that would not be smaller.
    gzip: Option<&'static [u8]>,
}

// Defines `PAGES: &[Asset]`, sorted by path; written by the build script.
include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// Returns a file of the web UI, or `index.html` for `/`. Views are selected behind `#`, so the server needs no other paths.
pub(crate) fn page(uri: &Uri, request: &HeaderMap) -> Response {
    let path = uri.path().strip_prefix('/').unwrap_or(uri.path());
    let path = if path.is_empty() { "index.html" } else { path };
    match find(path) {
        Some(asset) => asset.respond(request),
        None if PAGES.is_empty() && path == "index.html" => {
            (StatusCode::OK, headers("index.html"), NO_UI_PAGE).into_response()
        }
        None => (StatusCode::NOT_FOUND, "there is no such page; start at /\n").into_response(),
    }
}

/// Returns whether this build contains the web UI.
pub fn are_built_in() -> bool {
    !PAGES.is_empty()
}

fn find(path: &str) -> Option<&'static Asset> {
    PAGES
        .binary_search_by(|asset| asset.path.cmp(path))
        .ok()
        .map(|index| &PAGES[index])
}

impl Asset {
    /// Responds with the content in an encoding that the client accepts, or 304 if the client has it.
    fn respond(&'static self, request: &HeaderMap) -> Response {
        let mut headers = headers(self.path);
        let mut body = self.plain;
        let mut tag = format!("\"{}\"", self.hash);
        if let Some(gzip) = self.gzip {
            headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
            if accepts_gzip(request) {
                headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                body = gzip;
                tag = format!("\"{}-gzip\"", self.hash);
            }
        }
        let unchanged = list(request, &header::IF_NONE_MATCH)
            .any(|etag| etag == "*" || etag.strip_prefix("W/").unwrap_or(etag) == tag);
        // Hexadecimal digits in quotes are always a valid header value.
        headers.extend(HeaderValue::from_str(&tag).ok().map(|tag| (header::ETAG, tag)));
        if unchanged {
            headers.remove(header::CONTENT_ENCODING);
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        (headers, body).into_response()
    }
}

/// Returns whether `Accept-Encoding` allows gzip: `q=0` excludes it, and `*` stands for encodings that are not named.
fn accepts_gzip(request: &HeaderMap) -> bool {
    quality(request, "gzip")
        .or_else(|| quality(request, "*"))
        .is_some_and(|q| q > 0.0)
}

/// Returns the weight of a coding that `Accept-Encoding` names; `None` if it does not.
fn quality(request: &HeaderMap, encoding: &str) -> Option<f32> {
    list(request, &header::ACCEPT_ENCODING).find_map(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = parameters
            .trim()
            .strip_prefix("q=")
            .and_then(|q| q.trim().parse::<f32>().ok());
        name.trim()
            .eq_ignore_ascii_case(encoding)
            .then(|| weight.unwrap_or(1.0))
    })
}

/// Returns the elements of a header with a comma-separated list.
fn list<'h>(headers: &'h HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

fn headers(path: &str) -> HeaderMap {
    // Vite puts a content hash into the names below assets/, so these files never change.
    let caching = if path.starts_with("assets/") {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type(path))),
        (header::CACHE_CONTROL, HeaderValue::from_static(caching)),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(CONTENT_SECURITY_POLICY),
        ),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect()
    }

    fn asset(gzip: Option<&'static [u8]>) -> &'static Asset {
        Box::leak(Box::new(Asset {
            path: "assets/a.js",
            hash: "0a",
            plain: b"plain",
            gzip,
        }))
    }

    fn header_of(response: &Response, name: header::HeaderName) -> Option<&str> {
        response.headers().get(name).map(|value| value.to_str().unwrap())
    }

    fn length(response: &Response) -> u64 {
        use axum::body::HttpBody;
        response.body().size_hint().exact().unwrap()
    }

    #[test]
    fn the_list_of_pages_is_sorted_for_the_search() {
        assert!(PAGES.is_sorted_by(|a, b| a.path < b.path));
    }

    #[test]
    fn a_path_that_is_no_page_is_not_found() {
        for path in [
            "/unknown",
            "/metrics/",
            "//",
            "//api/v1/status",
            "/api/v1/",
            "/index",
            "/assets/",
            "*",
        ] {
            assert_eq!(
                page(&Uri::from_static(path), &HeaderMap::new()).status(),
                StatusCode::NOT_FOUND,
                "{path}"
            );
        }
    }

    #[test]
    fn the_first_page_is_html_that_may_run_only_our_scripts() {
        let response = page(&Uri::from_static("/"), &HeaderMap::new());
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "text/html; charset=utf-8"
        );
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-cache");
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"));
    }

    #[test]
    fn gzip_is_sent_only_where_it_is_accepted_and_stored() {
        let both = asset(Some(b"gz"));
        for accepted in ["gzip", "br, GZIP;q=0.5", "*", "deflate, *;q=0.1"] {
            let response = both.respond(&request(&[(header::ACCEPT_ENCODING, accepted)]));
            assert_eq!(
                header_of(&response, header::CONTENT_ENCODING),
                Some("gzip"),
                "{accepted}"
            );
            assert_eq!(header_of(&response, header::ETAG), Some("\"0a-gzip\""));
            assert_eq!(header_of(&response, header::VARY), Some("accept-encoding"));
            assert_eq!(length(&response), 2);
        }
        for refused in ["", "br", "gzip;q=0", "gzip; q=0.0, *", "identity"] {
            let response = both.respond(&request(&[(header::ACCEPT_ENCODING, refused)]));
            assert_eq!(header_of(&response, header::CONTENT_ENCODING), None, "{refused}");
            assert_eq!(header_of(&response, header::ETAG), Some("\"0a\""));
            assert_eq!(length(&response), 5);
        }
        let plain = asset(None).respond(&request(&[(header::ACCEPT_ENCODING, "gzip")]));
        assert_eq!(
            (header_of(&plain, header::CONTENT_ENCODING), length(&plain)),
            (None, 5)
        );
    }

    #[test]
    fn a_client_that_has_the_content_gets_no_body() {
        let with = |etag| {
            let gzip = (header::ACCEPT_ENCODING, "gzip");
            asset(Some(b"gz")).respond(&request(&[gzip, (header::IF_NONE_MATCH, etag)]))
        };
        for etag in ["\"0a-gzip\"", "W/\"0a-gzip\"", "\"x\", \"0a-gzip\"", "*"] {
            let response = with(etag);
            assert_eq!(
                (response.status(), length(&response)),
                (StatusCode::NOT_MODIFIED, 0),
                "{etag}"
            );
            assert_eq!(header_of(&response, header::ETAG), Some("\"0a-gzip\""));
        }
        // The tag of the plain content names other bytes.
        assert_eq!(with("\"0a\"").status(), StatusCode::OK);
    }

    #[test]
    fn the_scripts_and_styles_of_the_build_are_compressed() {
        let text = |asset: &&Asset| [".js", ".css"].iter().any(|end| asset.path.ends_with(end));
        for asset in PAGES.iter().filter(text).filter(|asset| asset.plain.len() > 1024) {
            let gzip = asset
                .gzip
                .unwrap_or_else(|| panic!("{} has no gzip form", asset.path));
            assert!(
                gzip.starts_with(&[0x1f, 0x8b]) && gzip.len() < asset.plain.len(),
                "{}",
                asset.path
            );
        }
    }
}
