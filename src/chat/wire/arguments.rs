//! The argument text of a tool call: put in order when the reply is complete, checked before it is sent.
//!
//! What can be read as one JSON object becomes exactly that text (quirks 81, 85, 87). Anything else is
//! left alone, and the tool layer answers it with an error; it is never repaired by guessing.

use serde_json::Value;

use super::json;

/// The text to keep for arguments that came as `text`.
pub fn normalise(text: String) -> String {
    if text.trim().is_empty() || text.trim() == "null" {
        return "{}".to_owned();
    }
    if let Some(object) = leading_object(&text) {
        return if object.len() == text.len() { text } else { object.to_owned() };
    }
    let mended = json::settle(&json::mend(&text));
    if let Some(object) = leading_object(&mended) {
        return object.to_owned();
    }
    // An object written as a JSON string of its own.
    if let Ok(Value::String(inner)) = serde_json::from_str::<Value>(&text)
        && is_object(&inner)
    {
        return inner.trim().to_owned();
    }
    text
}

/// The object that `text` begins with, unless another one follows: then work would get lost.
fn leading_object(text: &str) -> Option<&str> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let Some(Ok(Value::Object(_))) = values.next() else { return None };
    let (object, rest) = text.split_at(values.byte_offset());
    (!rest.contains('{')).then(|| object.trim())
}

/// Whether `text` is one JSON object without lone surrogates.
pub fn is_object(text: &str) -> bool {
    let escaped_surrogate = || {
        let bytes = text.as_bytes();
        memchr::memmem::find(bytes, b"\\ud").or_else(|| memchr::memmem::find(bytes, b"\\uD")).is_some()
    };
    if !text.trim_start().starts_with('{') {
        false
    } else if escaped_surrogate() {
        serde_json::from_str::<Value>(text).is_ok()
    } else {
        serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(normalise(text.to_owned()), expected);
    }

    #[test]
    fn one_object_or_the_raw_text() {
        check(r#"{"command":"echo one"}"#, r#"{"command":"echo one"}"#);
        check("", "{}");
        check(" \n", "{}");
        check("null", "{}");
        check("{\"a\":1}\n\nI will now look.", "{\"a\":1}");
        check(r#"{"a":1}}"#, r#"{"a":1}"#);
        check(r#"{"a":1}]"#, r#"{"a":1}"#);
        check(r#"{"a":1}{"a":2}"#, r#"{"a":1}{"a":2}"#);
        check(r#"{"command": echo one}"#, r#"{"command": echo one}"#);
        check(r#"{"command":"rm -rf /tmp/scra"#, r#"{"command":"rm -rf /tmp/scra"#);
        check("{\"command\":\"echo one\necho two\"}", r#"{"command":"echo one\u000aecho two"}"#);
        check(r#"{"command":"echo a\ud99cb"}"#, "{\"command\":\"echo a\u{fffd}b\"}");
        check(r#"{"command":"\ud83d\ude42"}"#, r#"{"command":"\ud83d\ude42"}"#);
        check(r#""{\"command\":\"x\"}""#, r#"{"command":"x"}"#);
        check("[1]", "[1]");
    }

    #[test]
    fn only_sound_objects_are_sent() {
        for text in ["{}", " {\"a\":[1]} ", r#"{"a":"\ud83d\ude42"}"#] {
            assert!(is_object(text), "{text}");
        }
        for text in ["", "[]", "1", "{", "{}{}", "{\"a\":\"x\ny\"}", r#"{"a":"\ud83d"}"#, r#"{"a":"\uDE42"}"#]
        {
            assert!(!is_object(text), "{text}");
        }
    }
}
