//! Finds a tool call in plain text: some models, and some servers, know no other way.
//!
//! Only a JSON object that names an offered tool counts, standing alone, in a fence, or in `<tool_call>` tags. Text that
//! merely mentions a tool is an answer.

use serde_json::Value;

use super::model::RawToolCall;

/// Calls taken from one text.
const MAX_RECOVERED: usize = 8;

/// The calls in a text, in order. Empty: it is text.
pub(super) fn recover(text: &str, known: &[&str]) -> Vec<RawToolCall> {
    let mut calls = Vec::new();
    for candidate in candidates(text) {
        let stream = serde_json::Deserializer::from_str(candidate).into_iter::<Value>();
        // What follows an object that was read may be prose.
        for value in stream.map_while(Result::ok) {
            if let Some((name, arguments)) = as_call(&value, known)
                && calls.len() < MAX_RECOVERED
            {
                calls.push(RawToolCall { id: format!("text_{}", calls.len()), name, arguments });
            }
        }
        if !calls.is_empty() {
            break;
        }
    }
    calls
}

/// Places where a call may begin: each is tried with all that follows it.
fn candidates(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let trimmed = text.trim();
    if trimmed.starts_with('{') {
        found.push(trimmed);
    }
    for (start, mark) in text.match_indices("<tool_call>").chain(text.match_indices("```")) {
        let after = text.get(start + mark.len()..).unwrap_or("");
        // The word after a fence names a language.
        let after = after.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '_').trim_start();
        if after.starts_with('{') {
            found.push(after);
        }
    }
    found
}

/// `{"name": …, "arguments": {…}}`, with the other words that models use for the two.
fn as_call(value: &Value, known: &[&str]) -> Option<(String, String)> {
    let inner = value.get("function").filter(|inner| inner.is_object()).unwrap_or(value);
    let name = ["name", "tool", "function", "action"].iter().find_map(|key| inner.get(*key)?.as_str())?;
    if !known.contains(&name) {
        return None;
    }
    let arguments = ["arguments", "parameters", "args", "input"].iter().find_map(|key| inner.get(*key));
    let arguments = match arguments {
        // Some write the arguments as text, as the protocol has them.
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "{}".to_owned(),
    };
    Some((name.to_owned(), arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, String)> {
        recover(text, &["run_script", "read_file"]).into_iter().map(|call| (call.name, call.arguments)).collect()
    }

    #[test]
    fn calls_in_text_are_found() {
        let expected = [("run_script".to_owned(), r#"{"script_path":"a.py"}"#.to_owned())];
        for text in [
            r#"{"name": "run_script", "arguments": {"script_path": "a.py"}}"#,
            "I will run it.\n```json\n{\"name\":\"run_script\",\"parameters\":{\"script_path\":\"a.py\"}}\n```\nDone.",
            "<tool_call>\n{\"name\":\"run_script\",\"arguments\":{\"script_path\":\"a.py\"}}\n</tool_call>",
            r#"{"type":"function","function":{"name":"run_script","arguments":"{\"script_path\":\"a.py\"}"}}"#,
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
        let two = "{\"name\":\"run_script\",\"arguments\":{}}\n{\"name\":\"read_file\",\"arguments\":{}}";
        assert_eq!(found(two).len(), 2);
    }

    #[test]
    fn text_stays_text() {
        for text in [
            "",
            "Call run_script with a.py.",
            r#"{"answer": 5}"#,
            r#"{"name": "rm", "arguments": {}}"#,
            "The result is {\"name\": \"run_script\"} as you see.",
            "```python\nprint({})\n```",
            "{\"name\": \"run_script\", ",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }
}
