//! The chunk that nearly all of a stream is made of: one delta of text and nothing else.
//!
//! Read without a tree. Whatever else a chunk holds, or holds in another form, makes this reading fail,
//! and the tolerant one in `decode` takes over: this is a shortcut, never a judgement.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: [Choice<'a>; 1],
    #[serde(default, rename = "usage")]
    _usage: Option<Absent>,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(default, rename = "object")]
    _object: Option<Object>,
    #[serde(default, rename = "created")]
    _created: IgnoredAny,
    #[serde(default, rename = "model")]
    _model: IgnoredAny,
    #[serde(default, rename = "provider")]
    _provider: IgnoredAny,
    #[serde(default, rename = "system_fingerprint")]
    _system_fingerprint: IgnoredAny,
    #[serde(default, rename = "service_tier")]
    _service_tier: IgnoredAny,
    #[serde(default, rename = "obfuscation")]
    _obfuscation: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
    #[serde(default, rename = "index")]
    _index: IgnoredAny,
    #[serde(default, rename = "finish_reason")]
    _finish_reason: Option<Absent>,
    #[serde(default, rename = "native_finish_reason")]
    _native_finish_reason: Option<Absent>,
    #[serde(default, rename = "logprobs")]
    _logprobs: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Cow<'a, str>,
    #[serde(default, rename = "role")]
    _role: IgnoredAny,
}

/// What a chunk may call itself; anything else could be an error.
#[derive(Deserialize)]
enum Object {
    #[serde(rename = "chat.completion.chunk")]
    Chunk,
}

/// A value that nothing deserializes to, so that only null gets past an `Option` of it.
#[derive(Deserialize)]
enum Absent {}

/// The text of a chunk that holds only text.
pub fn text(data: &str) -> Option<Cow<'_, str>> {
    let chunk: Chunk<'_> = serde_json::from_str(data).ok()?;
    let [choice] = chunk.choices;
    Some(choice.delta.content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_chunks_are_taken() {
        let check =
            |data: &str, expected: Option<&str>| assert_eq!(text(data).as_deref(), expected, "{data}");
        check(r#"{"choices":[{"delta":{"content":"a"}}]}"#, Some("a"));
        check(
            r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":null,"usage":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"\n"},"logprobs":null,"finish_reason":null}]}"#,
            Some("\n"),
        );
        for other in [
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}"#,
            r#"{"choices":[{"delta":{"content":"a","reasoning":"b"}}]}"#,
            r#"{"choices":[{"delta":{"content":null}}]}"#,
            r#"{"choices":[{"delta":{"content":["a"]}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":1}}"#,
            r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}"#,
            r#"{"choices":[{"delta":{"content":"a"}}],"error":{"message":"no"}}"#,
            r#"{"object":"error","choices":[{"delta":{"content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"content":"\ud83d"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"}}]} x"#,
        ] {
            check(other, None);
        }
    }
}
