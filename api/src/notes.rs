//! Middleware that adds notes (such as: a store file is damaged) to a response, in a header with a JSON array of strings.

use std::collections::BTreeSet;

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};

/// Name of the header with notes.
const HEADER: &str = "hopwise-notes";

/// Runs the request and puts the notes that handlers made into the header [`HEADER`].
pub(super) async fn with_notes(request: Request, next: Next) -> Response {
    let (mut response, notes) = history::notes::collect(next.run(request)).await;
    if !notes.is_empty()
        && let Ok(value) = HeaderValue::from_str(&json(&notes))
    {
        response
            .headers_mut()
            .insert(HeaderName::from_static(HEADER), value);
    }
    response
}

/// Formats notes as ASCII-only JSON, since a header value must be ASCII.
fn json(notes: &BTreeSet<String>) -> String {
    let mut out = String::new();
    for char in serde_json::json!(notes).to_string().chars() {
        if char.is_ascii() && char != '\u{7f}' {
            out.push(char);
        } else {
            char.encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_json_of_ascii_characters() {
        let notes = BTreeSet::from(["a \"b\"\n\u{7f}".to_owned(), "ü 😀".to_owned()]);
        let text = json(&notes);
        assert!(text.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{text}");
        assert_eq!(serde_json::from_str::<BTreeSet<String>>(&text).unwrap(), notes);
    }
}
