//! Checks an answer against CARL's subset of JSON Schema: `type`, `properties`, `required`, `items`, `enum`.
//!
//! A keyword outside the subset is refused when the run is planned: an unchecked demand would look kept.

use serde_json::{Map, Value};

use crate::error::{Result, SkillRuntimeError};

/// Levels of a schema and of an answer.
const MAX_DEPTH: usize = 32;
/// Faults that are listed.
const MAX_FAULTS: usize = 20;
const CHECKED: [&str; 5] = ["type", "properties", "required", "items", "enum"];
/// Words that demand nothing.
const NOTES: [&str; 7] = ["title", "description", "$schema", "$id", "default", "examples", "$comment"];
const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// A schema whose every keyword is understood.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputSchema(Value);

impl OutputSchema {
    /// Takes a schema.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) naming what isn't understood.
    pub fn new(schema: Value) -> Result<Self> {
        check_schema(&schema, "$", 0)?;
        Ok(Self(schema))
    }

    /// The schema.
    #[must_use]
    pub fn as_value(&self) -> &Value {
        &self.0
    }

    /// Reads an answer: takes a Markdown fence off, parses, compares. Gives the value, and the faults (CARL's words).
    #[must_use]
    pub fn read(&self, answer: &str) -> (Option<Value>, Vec<String>) {
        match serde_json::from_str::<Value>(without_fence(answer)) {
            Ok(value) => {
                let mut faults = Vec::new();
                compare(&self.0, &value, "$", &mut faults, 0);
                (Some(value), faults)
            }
            Err(error) => (None, vec![format!("Final response is not valid JSON: {error}")]),
        }
    }
}

fn without_fence(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    inner.strip_prefix("json").unwrap_or(inner).trim()
}

fn check_schema(schema: &Value, path: &str, depth: usize) -> Result<()> {
    let bad = |what: String| Err(SkillRuntimeError::invalid(format!("output_schema at {path}: {what}")));
    let Value::Object(map) = schema else { return bad("must be an object".to_owned()) };
    if depth > MAX_DEPTH {
        return bad(format!("is nested deeper than {MAX_DEPTH} levels"));
    }
    if let Some(key) = map.keys().find(|key| !CHECKED.contains(&key.as_str()) && !NOTES.contains(&key.as_str())) {
        return bad(format!("'{}' is not understood; use {}", key.escape_debug(), CHECKED.join(", ")));
    }
    let names = |value: &Value| match value {
        Value::String(name) => TYPES.contains(&name.as_str()),
        Value::Array(names) => names.iter().all(|name| name.as_str().is_some_and(|name| TYPES.contains(&name))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    };
    if map.get("type").is_some_and(|value| !names(value)) {
        return bad(format!("'type' must be one of {}", TYPES.join(", ")));
    }
    let strings = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    if map.get("required").is_some_and(|value| !strings(value)) {
        return bad("'required' must be a list of names".to_owned());
    }
    if map.get("enum").is_some_and(|value| !value.is_array()) {
        return bad("'enum' must be a list".to_owned());
    }
    match map.get("properties") {
        None => {}
        Some(Value::Object(properties)) => {
            properties.iter().try_for_each(|(key, inner)| check_schema(inner, &format!("{path}.{key}"), depth + 1))?;
        }
        Some(_) => return bad("'properties' must be an object".to_owned()),
    }
    map.get("items").map_or(Ok(()), |items| check_schema(items, &format!("{path}[]"), depth + 1))
}

fn compare(schema: &Value, value: &Value, path: &str, faults: &mut Vec<String>, depth: usize) {
    if faults.len() >= MAX_FAULTS || depth > MAX_DEPTH {
        return;
    }
    let empty = Map::new();
    let schema = schema.as_object().unwrap_or(&empty);
    let expected: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !expected.is_empty() && !expected.iter().any(|name| is_type(name, value)) {
        faults.push(format!("{path}: expected type {}, got {}", expected.join(" or "), type_name(value)));
        return;
    }
    if let Some(Value::Array(allowed)) = schema.get("enum")
        && !allowed.contains(value)
    {
        faults.push(format!("{path}: value is not one of {}", Value::Array(allowed.clone())));
    }
    if let Value::Object(map) = value {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        faults.extend(
            required.filter(|key| !map.contains_key(*key)).map(|key| format!("{path}: missing required key '{key}'")),
        );
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        for (key, inner) in properties {
            if let Some(value) = map.get(key) {
                compare(inner, value, &format!("{path}.{key}"), faults, depth + 1);
            }
        }
    }
    if let (Value::Array(items), Some(inner)) = (value, schema.get("items")) {
        for (index, item) in items.iter().enumerate() {
            compare(inner, item, &format!("{path}[{index}]"), faults, depth + 1);
        }
    }
    faults.truncate(MAX_FAULTS);
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => other == type_name(value),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_compared_in_carls_words() {
        let schema = OutputSchema::new(json!({
            "type": "object", "required": ["a", "b"],
            "properties": {"a": {"type": "integer"}, "c": {"type": "array", "items": {"enum": ["x", "y"]}}}
        }))
        .unwrap();
        let read = |text: &str| schema.read(text);
        assert_eq!(read(r#"{"a": 1, "b": null, "c": ["x"]}"#), (Some(json!({"a": 1, "b": null, "c": ["x"]})), vec![]));
        assert_eq!(read("```json\n{\"a\": 1.0, \"b\": 2}\n```").1, Vec::<String>::new());
        assert_eq!(
            read(r#"{"a": "1", "c": ["x", "z"]}"#).1,
            [
                "$: missing required key 'b'",
                "$.a: expected type integer, got string",
                "$.c[1]: value is not one of [\"x\",\"y\"]"
            ]
        );
        assert_eq!(read("[]").1, ["$: expected type object, got array"]);
        assert!(read("hello").1[0].starts_with("Final response is not valid JSON: "));
    }

    #[test]
    fn schemas_that_would_not_be_checked_are_refused() {
        for schema in [
            json!(5),
            json!({"type": "text"}),
            json!({"oneOf": []}),
            json!({"properties": {"a": {"pattern": "x"}}}),
            json!({"required": "a"}),
            json!({"enum": 1}),
            json!({"items": []}),
        ] {
            assert!(OutputSchema::new(schema.clone()).is_err(), "{schema}");
        }
        OutputSchema::new(json!({"type": ["string", "null"], "description": "d"})).unwrap();
    }
}
