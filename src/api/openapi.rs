//! `/openapi.json`: the description of the API for programs.

use axum::http::{HeaderName, header};

/// The document.
pub(crate) const DOCUMENT: &str = include_str!("openapi.json");

/// Answers the document.
pub(crate) async fn document() -> ([(HeaderName, &'static str); 1], &'static str) {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::ROUTES;

    #[test]
    fn every_route_is_described_and_every_description_is_a_route() {
        let document: serde_json::Value = serde_json::from_str(DOCUMENT).unwrap();
        let described: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(move |method| (method.clone(), path.clone()))
            })
            .collect();
        let routed = ROUTES.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
        assert_eq!(described, routed);
    }
}
