//! As much of JSON Schema as our OpenAPI document uses.

use serde_json::Value;

/// Panics where `value` does not match `schema`. `place` is the path of `value` in the messages.
pub(crate) fn check(document: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#'));
        return check(document, target.unwrap_or_else(|| panic!("no {reference}")), value, place);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fits = |choice: &&Value| choice["type"] != "null";
        return match (value.is_null(), choices.iter().find(fits)) {
            (false, Some(choice)) => check(document, choice, value, place),
            _ => {
                assert!(choices.iter().any(|choice| choice["type"] == "null"), "{place}: null is not allowed")
            }
        };
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    assert!(
        types.contains(&type_of(value)) || types.contains(&"number") && value.is_number(),
        "{place}: {value} is not {types:?}"
    );
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{place}: {value} is none of {words:?}");
    }
    match value {
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, item)| {
                check(document, &schema["items"], item, &format!("{place}[{index}]"))
            });
        }
        Value::Object(fields) => {
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                assert!(fields.contains_key(name), "{place}: `{name}` is missing");
            }
            for (name, field) in fields {
                let place = format!("{place}.{name}");
                match (schema["properties"].get(name), &schema["additionalProperties"]) {
                    (Some(property), _) => check(document, property, field, &place),
                    (None, Value::Bool(false)) => panic!("{place} is not in the document"),
                    (None, additional) => check(document, additional, field, &place),
                }
            }
        }
        _ => {}
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
