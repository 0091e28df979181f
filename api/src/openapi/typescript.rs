//! Generates the TypeScript types of the web UI from the OpenAPI schemas. `make docs` runs it.

use serde_json::Value;

const HEADER: &str = "// Generated from the types of the API by `make docs`; do not edit.\n";

/// Renders the content of `ui/src/api/generated.ts`.
pub(super) fn render(document: &Value) -> String {
    let mut out = String::from(HEADER);
    for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
        out.push('\n');
        if let Some(description) = schema["description"].as_str() {
            out.push_str(&comment("", description));
        }
        out.push_str(&format!("export type {name} = {};\n", type_of(schema, "")));
    }
    out
}

fn comment(indent: &str, text: &str) -> String {
    format!(
        "{indent}/** {} */\n",
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    )
}

/// Returns the TypeScript type of a schema.
fn type_of(schema: &Value, indent: &str) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap().to_owned();
        // A struct with a flattened field becomes a reference with further fields beside it.
        return if schema["properties"].is_object() {
            format!("{name} & {}", object_type(schema, indent))
        } else {
            name
        };
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[key].as_array() {
            let choice = choices
                .iter()
                .map(|choice| type_of(choice, indent))
                .collect::<Vec<_>>()
                .join(" | ");
            return if schema["properties"].is_object() {
                format!("({choice}) & {}", object_type(schema, indent))
            } else {
                choice
            };
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        return values
            .iter()
            .map(Value::to_string)
            .collect::<Vec<_>>()
            .join(" | ");
    }
    if !schema["const"].is_null() {
        return schema["const"].to_string();
    }
    match &schema["type"] {
        Value::Array(types) => {
            let types = types
                .iter()
                .map(|kind| type_of_kind(kind.as_str().unwrap(), schema, indent));
            types.collect::<Vec<_>>().join(" | ")
        }
        Value::String(kind) => type_of_kind(kind, schema, indent),
        _ => "unknown".to_owned(),
    }
}

fn type_of_kind(kind: &str, schema: &Value, indent: &str) -> String {
    match kind {
        "integer" | "number" => "number".to_owned(),
        "array" => format!("Array<{}>", type_of(&schema["items"], indent)),
        "object" if schema["properties"].is_object() => object_type(schema, indent),
        "object" if schema["additionalProperties"].is_object() => {
            format!(
                "Record<string, {}>",
                type_of(&schema["additionalProperties"], indent)
            )
        }
        "object" => "Record<string, unknown>".to_owned(),
        other => other.to_owned(),
    }
}

/// Writes an object type in braces. Fields that are not required get `?`; descriptions become comments.
fn object_type(schema: &Value, indent: &str) -> String {
    let field_indent = format!("{indent}  ");
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut out = String::from("{\n");
    for (name, field) in schema["properties"].as_object().unwrap() {
        if let Some(description) = field["description"].as_str() {
            out.push_str(&comment(&field_indent, description));
        }
        let optional_mark = if required.contains(&name.as_str()) {
            ""
        } else {
            "?"
        };
        out.push_str(&format!(
            "{field_indent}{name}{optional_mark}: {};\n",
            type_of(field, &field_indent)
        ));
    }
    out + indent + "}"
}
