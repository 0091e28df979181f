//! The part of JSON Schema that the OpenAPI document uses.

use serde_json::Value;

/// Panics where `value` does not match `schema`. `place` names the value in the message.
pub(crate) fn check(document: &Value, schema: &Value, value: &Value, place: &str) {
    if let Err(mismatch) = matches(document, schema, value, place) {
        panic!("{mismatch}");
    }
}

fn matches(document: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#'));
        return matches(
            document,
            target.ok_or_else(|| format!("no {reference}"))?,
            value,
            place,
        );
    }
    let choices = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(choices) = choices {
        let results = choices
            .iter()
            .map(|choice| matches(document, choice, value, place));
        let mismatches: Vec<String> = results.filter_map(Result::err).collect();
        if mismatches.len() == choices.len() {
            return Err(mismatches.join("; or "));
        }
    }
    let wrong = |expected: &dyn std::fmt::Debug| Err(format!("{place}: {value} is not {expected:?}"));
    if let Some(words) = schema["enum"].as_array().filter(|words| !words.contains(value)) {
        return wrong(words);
    }
    if !schema["const"].is_null() && schema["const"] != *value {
        return wrong(&schema["const"]);
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let is_number = types.contains(&"number") && value.is_number();
    if !is_number && !types.contains(&type_of(value)) {
        return wrong(&types);
    }
    match value {
        Value::Array(list) => list.iter().enumerate().try_for_each(|(index, item)| {
            matches(document, &schema["items"], item, &format!("{place}[{index}]"))
        }),
        Value::Object(fields) => match_fields(document, schema, fields, place),
        _ => Ok(()),
    }
}

fn match_fields(
    document: &Value,
    schema: &Value,
    fields: &serde_json::Map<String, Value>,
    place: &str,
) -> Result<(), String> {
    let mut required = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    if let Some(name) = required.find(|name| !fields.contains_key(*name)) {
        return Err(format!("{place}: `{name}` is missing"));
    }
    // Each alternative of a choice describes only a part of the fields, and so does the schema around the choice.
    let part = !schema["oneOf"].is_null() || schema["properties"]["kind"]["const"].is_string();
    for (name, field) in fields {
        let place = format!("{place}.{name}");
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(property), _) => matches(document, property, field, &place)?,
            (None, Value::Object(_)) => matches(document, &schema["additionalProperties"], field, &place)?,
            (None, _) if part || !schema["properties"].is_object() => {}
            (None, _) => return Err(format!("{place} is not in the document")),
        }
    }
    Ok(())
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
