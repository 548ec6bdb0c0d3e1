//! The tools of the loop: what is offered, and what a model's arguments mean.
//!
//! Arguments are foreign text. Invariant: what is malformed, incomplete or unknown becomes a message for the model that
//! says what and where, never a call with something missing, and never `{}` in its place.

use std::time::Duration;

use serde_json::{Value, json};

use super::model::ToolSpec;
use crate::skill::SkillManifest;

/// Characters of malformed arguments that the model is shown again.
const SHOWN_ARGUMENTS: usize = 800;
/// Bytes of arguments that are read at all: a written file, mostly.
const MAX_ARGUMENT_BYTES: usize = 4 << 20;
/// Bytes of a page unless the model asks for fewer; also the most it may ask for.
pub(super) const PAGE_BYTES: u64 = 16 << 10;

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Runs a script of the skill.
    RunScript,
    /// Reads a file of the workspace.
    ReadFile,
    /// Writes a result or a scratch file.
    WriteFile,
    /// Lists the skill's files, or a folder of the workspace.
    ListResources,
    /// Reads a file of the skill.
    ReadResource,
}

impl Tool {
    /// All of them, in the order they are offered.
    pub const ALL: [Self; 5] =
        [Self::RunScript, Self::ReadFile, Self::WriteFile, Self::ListResources, Self::ReadResource];

    /// The name (CARL's).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RunScript => "run_script",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::ListResources => "list_resources",
            Self::ReadResource => "read_resource",
        }
    }

    /// The tool of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Whether it changes nothing, so that several may run at the same time.
    #[must_use]
    pub fn only_reads(self) -> bool {
        match self {
            Self::RunScript | Self::WriteFile => false,
            Self::ReadFile | Self::ListResources | Self::ReadResource => true,
        }
    }

    /// The tools that a manifest leaves: all, unless its `allowed-tools` names tools. Names of other clients count for
    /// what they do there: `Read`, `Glob`, `Grep`, `LS` for reading, `Write` and `Edit` for writing, `Bash` for running
    /// scripts. A pattern such as `Bash(git:*)` doesn't narrow further: only the skill's own scripts are ever run.
    #[must_use]
    pub fn offered(manifest: &SkillManifest) -> Vec<Self> {
        if !manifest.restricts_tools() {
            return Self::ALL.to_vec();
        }
        let names = manifest.get_allowed_tool_names();
        let allows = |tool: Self| {
            names.iter().any(|name| {
                tool.name() == name
                    || match name.as_str() {
                        "Bash" => tool == Self::RunScript,
                        "Write" | "Edit" => tool == Self::WriteFile,
                        "Read" => tool.only_reads(),
                        "Glob" | "Grep" | "LS" => matches!(tool, Self::ListResources | Self::ReadResource),
                        _ => false,
                    }
            })
        };
        Self::ALL.into_iter().filter(|tool| allows(*tool)).collect()
    }

    /// The tool as a model sees it.
    #[must_use]
    pub fn spec(self) -> ToolSpec {
        let text = |what: &str| json!({"type": "string", "description": what});
        let number = |what: &str| json!({"type": "integer", "minimum": 0, "description": what});
        let (description, properties, required): (&str, Value, &[&str]) = match self {
            Self::RunScript => (
                "Run a script of the skill in the sandbox. Its current folder is the skill's root. Returns its output.",
                json!({
                    "script_path": text("Path of the script from the skill's root, such as scripts/report.py"),
                    "args": {"type": "array", "items": {"type": "string"}, "description": "Arguments, one item each. No shell reads them."},
                    "stdin": text("Text for the script's standard input"),
                    "timeout_seconds": {"type": "number", "description": "Less time than the default"},
                }),
                &["script_path"],
            ),
            Self::ReadFile => (
                "Read a text file, page by page. Paths begin with /workspace/ (in, out, tmp, skill); others count from the skill's root.",
                json!({
                    "path": text("The file"),
                    "offset": number("Byte to begin at, from an earlier page"),
                    "limit": number("Bytes of the page, at most 16384"),
                }),
                &["path"],
            ),
            Self::WriteFile => (
                "Write a file into /workspace/out (results) or /workspace/tmp (scratch), replacing what is there.",
                json!({
                    "filename": text("A path inside /workspace/out, such as report.md or charts/a.svg; or a whole path in /workspace/out or /workspace/tmp"),
                    "content": text("The whole content"),
                }),
                &["filename", "content"],
            ),
            Self::ListResources => (
                "List the skill's files; with a path, a folder of the workspace such as /workspace/in.",
                json!({"path": text("The folder")}),
                &[],
            ),
            Self::ReadResource => (
                "Read a file of the skill, page by page.",
                json!({
                    "resource_path": text("Path from the skill's root, such as references/api.md"),
                    "offset": number("Byte to begin at, from an earlier page"),
                }),
                &["resource_path"],
            ),
        };
        let parameters =
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        ToolSpec { name: self.name(), description: description.to_owned(), parameters }
    }
}

/// A call that was understood.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ToolCall {
    RunScript { script_path: String, args: Vec<String>, stdin: Option<String>, timeout: Option<Duration> },
    ReadFile { path: String, offset: u64, limit: u64 },
    WriteFile { filename: String, content: String },
    ListResources { path: Option<String> },
    ReadResource { path: String, offset: u64 },
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RunScriptArguments {
    script_path: String,
    #[serde(default)]
    args: Vec<Value>,
    stdin: Option<String>,
    timeout_seconds: Option<f64>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadFileArguments {
    path: String,
    #[serde(default)]
    offset: u64,
    limit: Option<u64>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteFileArguments {
    // Some take the name from the neighbour tools.
    #[serde(alias = "path")]
    filename: String,
    content: String,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ListResourcesArguments {
    path: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadResourceArguments {
    #[serde(alias = "path")]
    resource_path: String,
    #[serde(default)]
    offset: u64,
}

/// What a model's arguments mean.
///
/// # Errors
/// The text for the model: what is wrong and where, and the beginning of what it wrote.
pub(super) fn decode(tool: Tool, arguments: &str) -> Result<ToolCall, String> {
    if arguments.len() > MAX_ARGUMENT_BYTES {
        return Err(format!(
            "[Error: the arguments have {} bytes, at most {MAX_ARGUMENT_BYTES} are read; write large files in parts]",
            arguments.len()
        ));
    }
    // Some servers send nothing at all for a call without arguments.
    let text = if arguments.trim().is_empty() { "{}" } else { arguments };
    let decoded = match tool {
        Tool::RunScript => read(text).and_then(|args: RunScriptArguments| {
            let timeout = args.timeout_seconds.map(seconds).transpose()?;
            let words =
                args.args.iter().enumerate().map(|(index, value)| word(index, value)).collect::<Result<_, _>>()?;
            Ok(ToolCall::RunScript { script_path: args.script_path, args: words, stdin: args.stdin, timeout })
        }),
        Tool::ReadFile => read(text).map(|args: ReadFileArguments| ToolCall::ReadFile {
            path: args.path,
            offset: args.offset,
            limit: args.limit.unwrap_or(PAGE_BYTES).clamp(1, PAGE_BYTES),
        }),
        Tool::WriteFile => read(text)
            .map(|args: WriteFileArguments| ToolCall::WriteFile { filename: args.filename, content: args.content }),
        Tool::ListResources => {
            read(text).map(|args: ListResourcesArguments| ToolCall::ListResources { path: args.path })
        }
        Tool::ReadResource => read(text).map(|args: ReadResourceArguments| ToolCall::ReadResource {
            path: args.resource_path,
            offset: args.offset,
        }),
    };
    decoded.map_err(|why| {
        let shown: String = arguments.chars().take(SHOWN_ARGUMENTS).collect();
        let dots = if shown.len() < arguments.len() { "…" } else { "" };
        format!(
            "[Error: the arguments of {} are not valid: {why}. Nothing was run. You wrote: {shown}{dots}]",
            tool.name()
        )
    })
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    // An array would fill the fields in order; only an object is meant.
    if !text.trim_start().starts_with('{') {
        return Err("they must be a JSON object".to_owned());
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// An argument of a script. Numbers and truth values are written as they are; anything deeper is a mistake.
fn word(index: usize, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(format!("args[{index}] must be a string")),
    }
}

fn seconds(value: f64) -> Result<Duration, String> {
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("timeout_seconds must be a number above zero".to_owned()),
    }
}

/// The same arguments in one form, so that two spellings of a call are seen as one.
pub(super) fn canonical(arguments: &str) -> String {
    fn sorted(value: Value) -> Value {
        match value {
            Value::Object(map) => {
                let mut entries: Vec<(String, Value)> =
                    map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                Value::Object(entries.into_iter().collect())
            }
            Value::Array(items) => items.into_iter().map(sorted).collect(),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
        }
    }
    match serde_json::from_str::<Value>(arguments) {
        Ok(value) => sorted(value).to_string(),
        Err(_) => arguments.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skill::ManifestMode;

    #[test]
    fn good_arguments_are_understood() {
        assert_eq!(
            decode(Tool::RunScript, r#"{"script_path": "a.py", "args": ["x", 5, true], "timeout_seconds": 1.5}"#),
            Ok(ToolCall::RunScript {
                script_path: "a.py".into(),
                args: vec!["x".into(), "5".into(), "true".into()],
                stdin: None,
                timeout: Some(Duration::from_millis(1500)),
            })
        );
        assert_eq!(decode(Tool::ListResources, ""), Ok(ToolCall::ListResources { path: None }));
        assert_eq!(
            decode(Tool::ReadFile, r#"{"path": "x", "limit": 99999999}"#),
            Ok(ToolCall::ReadFile { path: "x".into(), offset: 0, limit: PAGE_BYTES })
        );
        assert_eq!(
            decode(Tool::WriteFile, r#"{"path": "a/b.txt", "content": ""}"#),
            Ok(ToolCall::WriteFile { filename: "a/b.txt".into(), content: String::new() })
        );
    }

    #[test]
    fn bad_arguments_say_what_and_where() {
        for (tool, arguments, what) in [
            (Tool::RunScript, "", "missing field `script_path`"),
            (Tool::RunScript, "{", "EOF while parsing an object at line 1 column 1"),
            (Tool::RunScript, r#"["a.py"]"#, "must be a JSON object"),
            (Tool::RunScript, "null", "must be a JSON object"),
            (
                Tool::RunScript,
                r#"{"script_path": 5}"#,
                "invalid type: integer `5`, expected a string at line 1 column 17",
            ),
            (Tool::RunScript, r#"{"script_path": "a", "args": [["x"]]}"#, "args[0] must be a string"),
            (Tool::RunScript, r#"{"script_path": "a", "args": "x"}"#, "expected a sequence"),
            (Tool::RunScript, r#"{"script_path": "a", "timeout_seconds": -1}"#, "above zero"),
            (Tool::RunScript, r#"{"script_path": "a", "timeout_seconds": 1e400}"#, "out of range"),
            (Tool::ReadFile, r#"{"path": "a", "offset": -1}"#, "invalid value: integer `-1`"),
            (Tool::ReadFile, r#"{"path": "a", "more": 1}"#, "unknown field `more`"),
            (Tool::WriteFile, r#"{"filename": "a"}"#, "missing field `content`"),
        ] {
            let error = decode(tool, arguments).unwrap_err();
            assert!(error.contains(what) && error.contains("Nothing was run"), "{arguments}: {error}");
        }
        let long = decode(Tool::ReadFile, &"ü".repeat(5_000)).unwrap_err();
        assert!(long.chars().count() < 1_000, "{long}");
        assert!(decode(Tool::ReadFile, &"x".repeat(MAX_ARGUMENT_BYTES + 1)).unwrap_err().contains("at most"));
    }

    #[test]
    fn two_spellings_are_one_call() {
        assert_eq!(
            canonical(r#"{"b": [{"d": 1, "c": 2}], "a": "x"}"#),
            canonical(r#"{ "a":"x","b":[{"c":2,"d":1}] }"#)
        );
        assert_eq!(canonical("{oops"), "{oops");
    }

    #[test]
    fn a_manifest_narrows_and_never_widens() {
        let offered = |tools: &str| {
            let text = format!("---\nname: x\ndescription: d\nallowed-tools: {tools}\n---\nb");
            let manifest = SkillManifest::parse(text.as_bytes(), "x", ManifestMode::Lenient).unwrap().0;
            Tool::offered(&manifest).into_iter().map(Tool::name).collect::<Vec<_>>()
        };
        let all = ["run_script", "read_file", "write_file", "list_resources", "read_resource"];
        assert_eq!(offered(""), all);
        assert_eq!(offered("WebFetch(domain:a.com)"), all);
        assert_eq!(offered("Read"), ["read_file", "list_resources", "read_resource"]);
        assert_eq!(offered("Bash(git:*), Write"), ["run_script", "write_file"]);
        assert_eq!(offered("read_file run_script"), ["run_script", "read_file"]);
        assert_eq!(offered("mcp__x__y"), Vec::<&str>::new());
    }

    #[test]
    fn specs_and_decoding_agree() {
        for tool in Tool::ALL {
            let spec = tool.spec();
            let properties = spec.parameters["properties"].as_object().unwrap();
            let mut full = serde_json::Map::new();
            for (key, schema) in properties {
                let value = match schema["type"].as_str().unwrap() {
                    "string" => json!("x"),
                    "array" => json!(["x"]),
                    _ => json!(1),
                };
                full.insert(key.clone(), value);
            }
            decode(tool, &Value::Object(full.clone()).to_string()).unwrap();
            for required in spec.parameters["required"].as_array().unwrap() {
                let mut less = full.clone();
                less.remove(required.as_str().unwrap());
                decode(tool, &Value::Object(less).to_string()).unwrap_err();
            }
        }
    }
}
