//! `/openapi.json`: the OpenAPI 3.1 description of the API. `openapi.json` is committed; tests regenerate it from the types
//! and routes, together with the TypeScript types and the reference page, and compare.

#[cfg(test)]
mod generate;
#[cfg(test)]
mod typescript;

use axum::http::{HeaderName, header};

/// OpenAPI document as committed.
pub(crate) const DOCUMENT: &str = include_str!("openapi.json");

/// Returns the OpenAPI document of this version.
pub(crate) async fn document() -> ([(HeaderName, &'static str); 1], &'static str) {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::router::ROUTES;

    #[test]
    fn every_route_is_described_and_every_description_is_a_route() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let described: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                methods
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(move |method| (method.clone(), path.clone()))
            })
            .collect();
        let routed = ROUTES
            .iter()
            .map(|(method, path)| ((*method).to_owned(), (*path).to_owned()))
            .collect();
        assert_eq!(described, routed);
    }

    #[test]
    fn the_reference_document_is_what_the_types_say() {
        let document = generate::document();
        let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
        testkit::compare_page("api/src/openapi.json", &text);
        testkit::compare_page("ui/src/api/generated.ts", &typescript::render(&document));
    }

    #[test]
    fn the_reference_page_is_what_the_document_says() {
        testkit::compare_page("docs/reference/api.md", &reference(&generate::document()));
    }

    fn reference(document: &Value) -> String {
        let mut out = String::from(HEAD);
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                out.push_str(&format!(
                    "\n## `{} {path}`\n\n{}\n",
                    method.to_uppercase(),
                    text(&operation["summary"])
                ));
                if operation["security"].is_array() {
                    out.push_str("\nNeeds the role `operate`.\n");
                }
                for parameter in operation["parameters"].as_array().unwrap() {
                    let (name, about) = (text(&parameter["name"]), text(&parameter["description"]));
                    out.push_str(&format!(
                        "\n- `{name}` ({}): {about}",
                        type_text(&parameter["schema"])
                    ));
                }
                let body = &operation["requestBody"]["content"]["application/json"]["schema"];
                if body.is_object() {
                    out.push_str(&format!("\n- body: {}", type_text(body)));
                }
                for (form, content) in operation["responses"]["200"]["content"].as_object().unwrap() {
                    out.push_str(&format!(
                        "\n- response ({form}): {}\n",
                        type_text(&content["schema"])
                    ));
                }
            }
        }
        write_types(&mut out, document);
        out
    }

    fn write_types(out: &mut String, document: &Value) {
        out.push_str("\n# Types\n");
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            out.push_str(&format!("\n## {name}\n\n{}\n", text(&schema["description"])));
            write_fields(out, "", schema);
            for choice in schema["oneOf"].as_array().into_iter().flatten() {
                let about = text(&choice["description"]);
                out.push_str(&format!(
                    "\n- `kind` = {}: {about}",
                    choice["properties"]["kind"]["const"]
                ));
                write_fields(out, "  ", choice);
            }
            if !schema["properties"].is_object() {
                out.push_str(&format!("\n- {}.", type_text(schema)));
            }
            out.push('\n');
        }
    }

    fn write_fields(out: &mut String, indent: &str, schema: &Value) {
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if !schema["const"].is_null() {
                continue;
            }
            let about = schema["description"]
                .as_str()
                .map_or_else(String::new, |about| format!(" {about}"));
            out.push_str(&format!("\n{indent}- `{name}`: {}.{about}", type_text(schema)));
        }
    }

    fn text(value: &Value) -> &str {
        value.as_str().unwrap_or("")
    }

    /// Describes a schema in a short text.
    fn type_text(schema: &Value) -> String {
        if let Some(reference) = schema["$ref"].as_str() {
            return reference.rsplit('/').next().unwrap().to_owned();
        }
        if let Some(choices) = schema["anyOf"].as_array()
            && schema["type"].is_null()
        {
            return choices.iter().map(type_text).collect::<Vec<_>>().join(" or ");
        }
        if let Some(words) = schema["enum"].as_array() {
            return words
                .iter()
                .map(|word| word.as_str().unwrap_or("null"))
                .collect::<Vec<_>>()
                .join(", ");
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::Array(list) => list.iter().map(text).collect(),
            name => vec![text(name)],
        };
        match types[0] {
            "" => "anything".to_owned(),
            "array" => format!("list of {}", type_text(&schema["items"])),
            "object" => match schema["properties"].as_object() {
                Some(fields) => {
                    let fields = fields
                        .iter()
                        .map(|(name, schema)| format!("{name}: {}", type_text(schema)));
                    format!("{{{}}}", fields.collect::<Vec<_>>().join("; "))
                }
                None if schema["additionalProperties"].is_object() => {
                    format!("object of {} by name", type_text(&schema["additionalProperties"]))
                }
                None => "object".to_owned(),
            },
            _ => types.join(" or "),
        }
    }

    const HEAD: &str = "# HTTP API reference

<!-- Made from the source; do not edit. To accept a change: make docs -->

The contract is the OpenAPI document that the program serves, `GET /api/v1/openapi.json` (source:
[`api/src/openapi.json`](../../api/src/openapi.json)); tests compare routes, responses and document.

    curl -s http://127.0.0.1:8080/api/v1/status | jq .loss_budget
    curl -s 'http://127.0.0.1:8080/api/v1/flows?sort=latency&limit=5' | jq -r '.flows[] | \"\\(.flow_latency) \\(.text)\"'
    curl -N http://127.0.0.1:8080/api/v1/events/stream
    curl -s http://127.0.0.1:8080/api/v1/query -H 'content-type: application/json' \\
        -d '{\"sql\": \"SELECT kind, count(*) FROM events GROUP BY kind\"}'

Times are nanoseconds since the Unix epoch. 64-bit ids are hexadecimal texts.
An error is `{\"error\": \"one sentence with the reason and the fix\"}`, with status 400 (invalid request), 401 (token
required), 403 (the token may only read, or origin or host not allowed), 404 (not found), 405 (method not allowed) or 503 (temporarily unavailable).

A loopback address needs no token, unless `[api] token` sets one; any other address needs one. With a token, send `Authorization: Bearer TOKEN`, or `?token=TOKEN` if headers cannot be sent.
A token has a role: `read` for every request that only reads, `operate` for all.
Changes are recorded with the name of the token. Without one, the name is that of the header `X-Requested-By: NAME`, which is not verified; without both, `api`.

If records of an answer may be missing, because files of its time are damaged, cannot be opened, were deleted by retention, or were removed or replaced while hopwise ran, its header `hopwise-notes` says so: a JSON array of
sentences for people. The answer of `/api/v1/query` has them as `notes`.
";
}
