//! The cassettes of `tests/data`, played to the wires' pure code: split and cut at every byte, every value replaced.
//! Over a connection they are played by `tests/it/agent_cassettes.rs`.

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::super::model::{ModelError, ModelStop, Turn, TurnSink};
    use super::super::sse::SseReader;
    use super::super::{StreamedTurn, Wire, WireConfig, WireProtocol, anthropic, finished, openai};

    struct Quiet;

    impl TurnSink for Quiet {
        fn delta(&self, _text: &str) {}
    }

    /// The streams of `tests/data/cassettes`: name, body.
    #[expect(clippy::disallowed_methods, reason = "the test reads its data")]
    fn streams() -> Vec<(String, String)> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cassettes");
        let mut all: Vec<(String, String)> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "http"))
            .map(|path| {
                (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
            })
            .filter(|(name, _)| name.contains("-stream-"))
            .map(|(name, text)| (name, text.split_once("\n\n").unwrap().1.to_owned()))
            .collect();
        all.sort();
        assert!(all.len() > 12, "{all:?}");
        all
    }

    fn begun(name: &str) -> Box<dyn StreamedTurn> {
        if name.starts_with("anthropic") {
            Box::new(anthropic::Streamed::default())
        } else {
            Box::new(openai::Streamed::default())
        }
    }

    /// Reads a stream that comes in these pieces and then ends in good order.
    fn read(name: &str, pieces: &[&[u8]]) -> Result<Turn, ModelError> {
        let (mut reader, mut turn) = (SseReader::default(), begun(name));
        for piece in pieces {
            for data in reader.push(piece)? {
                turn.take(&data, &Quiet)?;
                if turn.ended() {
                    return finished(turn);
                }
            }
        }
        for data in reader.finish()? {
            turn.take(&data, &Quiet)?;
        }
        finished(turn)
    }

    #[test]
    fn wherever_a_stream_is_split_it_is_the_same() {
        for (name, body) in streams() {
            let whole = read(&name, &[body.as_bytes()]);
            for at in 0..=body.len() {
                let (first, second) = body.as_bytes().split_at(at);
                assert_eq!(read(&name, &[first, second]), whole, "{name} at {at}");
            }
            let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
            assert_eq!(read(&name, &bytes), whole, "{name}");
        }
    }

    #[test]
    fn wherever_a_stream_is_cut_there_is_no_half_turn() {
        for (name, body) in streams() {
            let whole = read(&name, &[body.as_bytes()]);
            for at in 0..body.len() {
                match (read(&name, &[body.get(..at).map_or(&body.as_bytes()[..at], str::as_bytes)]), &whole) {
                    // Asked for again, or the error that the stream would have told.
                    (Err(error), _) => assert!(error.kind.retryable(), "{name} at {at}: {error:?}"),
                    // Only the count of tokens or the mark of the end was missing.
                    (Ok(turn), Ok(whole)) => {
                        assert_eq!((&turn.assistant, &turn.stop), (&whole.assistant, &whole.stop), "{name} at {at}");
                    }
                    (Ok(turn), Err(_)) => panic!("{name} at {at}: a turn although the server failed: {turn:?}"),
                }
            }
        }
    }

    /// All documents that differ from this one in one value.
    fn changed(value: &Value, into: &mut Vec<Value>, rebuild: &dyn Fn(Value) -> Value) {
        let long = "x".repeat(100);
        for other in [
            Value::Null,
            (-1).into(),
            1e300.into(),
            u64::MAX.into(),
            long.into(),
            serde_json::json!([[]]),
            serde_json::json!({}),
        ] {
            into.push(rebuild(other));
        }
        match value {
            Value::Object(fields) => {
                for key in fields.keys() {
                    let with = |new: Value| {
                        let mut fields = fields.clone();
                        fields.insert(key.clone(), new);
                        rebuild(Value::Object(fields))
                    };
                    changed(&fields[key], into, &with);
                }
            }
            Value::Array(items) => {
                for index in 0..items.len() {
                    let with = |new: Value| {
                        let mut items = items.clone();
                        items[index] = new;
                        rebuild(Value::Array(items))
                    };
                    changed(&items[index], into, &with);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn a_server_may_say_anything_in_any_place() {
        let mut tried = 0;
        for (name, body) in streams() {
            let events: Vec<&str> = body.lines().filter_map(|line| line.trim().strip_prefix("data: ")).collect();
            for (index, event) in events.iter().enumerate() {
                let Ok(event) = serde_json::from_str::<Value>(event) else { continue };
                let mut variants = Vec::new();
                changed(&event, &mut variants, &|value| value);
                for variant in variants {
                    let mut turn = begun(&name);
                    let text = variant.to_string();
                    let all =
                        events.iter().enumerate().map(|(at, event)| if at == index { text.as_str() } else { event });
                    // Any outcome will do that is one: no panic, no endless growth.
                    let taken: Result<(), ModelError> = all.into_iter().try_for_each(|data| turn.take(data, &Quiet));
                    let _ = taken.map(|()| turn.end().is_ok());
                    tried += 1;
                }
            }
        }
        assert!(tried > 1_000, "{tried}");
        for value in [
            Value::Null,
            5.into(),
            serde_json::json!({"content": [5, {"type": "tool_use"}]}),
            serde_json::json!({"choices": [5]}),
        ] {
            let _ = (anthropic::read_whole(&value).is_ok(), openai::read_whole(&value).is_ok());
        }
    }

    #[test]
    fn a_refusal_is_one_in_every_spelling_and_the_limit_has_the_providers_name() {
        let turn = read(
            "openai-stream-x",
            &[b"data: {\"choices\":[{\"delta\":{\"refusal\":\"no\"},\"finish_reason\":\"stop\"}]}\n\n"],
        );
        assert_eq!(turn.map(|turn| turn.stop), Ok(ModelStop::Refusal));
        let field = |base: Option<&str>| {
            let mut config = WireConfig::new(WireProtocol::OpenAiChat, "m");
            config.base_url = base.map_or(config.base_url, str::to_owned);
            Wire::new(config).unwrap().answer_limit_field()
        };
        assert_eq!((field(None), field(Some("http://127.0.0.1:1/v1"))), ("max_completion_tokens", "max_tokens"));
    }
}
