//! The script format: one JSON case says what the loopback provider answers, byte for byte.
//!
//! Owns the types and the reading of a case. Knows no sockets: `send` writes a [`Reply`], `choose`
//! picks one, `predicate` decides guards. Fields of a case that are not ours (a test's client
//! settings, what it expects) are skipped; a misspelt field inside a reply or a guard is an error
//! with its position, because a silently ignored one would make a script lie.

use std::{fmt, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{
    audit::{AuditCode, Protocol},
    predicate::{Pattern, Predicate},
};

/// One script: a list of replies, with conditions in front of it.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Which provider protocol the requests are audited against.
    #[serde(default)]
    pub protocol: Protocol,
    /// Paths that exist; none given means all of them do.
    #[serde(default)]
    pub paths: Vec<Pattern>,
    /// Audit findings that are refused with status 400.
    #[serde(default)]
    pub strict: Vec<AuditCode>,
    /// Replies that go before the list while their condition holds; they do not advance it.
    #[serde(default)]
    pub guards: Vec<Guard>,
    /// The reply to the first request.
    pub http: Reply,
    /// The replies to the requests after it.
    #[serde(default)]
    pub then: Vec<Reply>,
    /// What happens when the list is used up.
    #[serde(default)]
    pub after: After,
}

/// A reply with the condition under which it goes out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// The condition.
    #[serde(rename = "if")]
    pub when: Predicate,
    /// The reply.
    pub http: Reply,
}

/// What follows the last reply of the list.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum After {
    /// Status 500.
    #[default]
    Fail,
    /// The last reply again.
    Repeat,
}

/// One HTTP reply. Status 0 sends no status line and no headers, only the body as it is.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Reason phrase; the usual one of the status when absent.
    pub reason: Option<String>,
    /// HTTP version in the status line.
    pub version: String,
    /// Header lines in this order. A name with a null value keeps the default for it away.
    pub headers: Fields,
    /// How the end of the body is marked.
    pub framing: Framing,
    /// The body, item by item.
    pub body_chunks: Vec<Chunk>,
    /// Trailer lines after a chunked body.
    pub trailers: Fields,
    /// Compression of the body.
    pub encode: Option<Encode>,
    /// Silence between two items of the body. Zero lets items share one write.
    pub gap_ms: u64,
    /// Whether `{{port}}`, `{{auth}}` and `{{httpdate+N}}` are filled in the body as well.
    pub template: bool,
    /// Close the connection after this reply.
    pub close: bool,
    /// Silence before the status line.
    pub pre_ms: u64,
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            status: 200,
            reason: None,
            version: "1.1".into(),
            headers: Fields::default(),
            framing: Framing::Chunked,
            body_chunks: Vec::new(),
            trailers: Fields::default(),
            encode: None,
            gap_ms: 3,
            template: false,
            close: false,
            pre_ms: 0,
        }
    }
}

impl Reply {
    /// A JSON body with a content length, as most error replies are.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self {
            status,
            headers: Fields::from([("Content-Type", "application/json")]),
            framing: Framing::Length,
            body_chunks: vec![Chunk::Text(body.to_string())],
            ..Self::default()
        }
    }
}

/// How a client learns where the body ends.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    /// `Transfer-Encoding: chunked`, one HTTP chunk per item.
    #[default]
    Chunked,
    /// `Content-Length`.
    Length,
    /// Neither; the body ends with the connection.
    Close,
    /// The items are everything, status line included.
    Raw,
}

/// Compression of a body.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encode {
    /// The coding.
    pub coding: Coding,
    /// When it is used.
    pub when: EncodeWhen,
}

/// The codings a script can use.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// gzip.
    Gzip,
}

/// When a body is compressed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EncodeWhen {
    /// If the request offers the coding.
    Accepted,
    /// Even if it does not.
    Always,
}

/// Names and values in the order of the script; a value may be text, a number, a list or null.
#[derive(Clone, Debug, Default)]
pub struct Fields(pub Vec<(String, Vec<String>)>);

impl<const N: usize> From<[(&str, &str); N]> for Fields {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(pairs.iter().map(|(name, value)| ((*name).into(), vec![(*value).into()])).collect())
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of header values")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, serde_json::Value>()? {
                    fields.push((name, lines_of(value)));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

fn lines_of(value: serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::Null => Vec::new(),
        serde_json::Value::String(line) => vec![line],
        serde_json::Value::Array(items) => items.into_iter().flat_map(lines_of).collect(),
        other => vec![other.to_string()],
    }
}

/// One item of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Text.
    Text(String),
    /// Bytes (`b64` in a script).
    Bytes(Vec<u8>),
    /// Silence.
    SleepMs(u64),
    /// An orderly end without any terminator.
    Close,
    /// A TCP reset.
    Rst,
    /// Silence until the client leaves, or this long; then the connection ends.
    HoldMs(u64),
    /// One item that holds `text` this many times over.
    Repeat {
        /// What is repeated.
        text: String,
        /// How often.
        n: u64,
    },
    /// Text that goes past the chunk framing.
    Verbatim(String),
}

/// The object form of a [`Chunk`]: exactly one of these.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ChunkObject {
    b64: Option<String>,
    sleep_ms: Option<u64>,
    close: Option<bool>,
    rst: Option<bool>,
    hold_ms: Option<u64>,
    repeat: Option<Repeat>,
    verbatim: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeat {
    text: String,
    n: u64,
}

impl ChunkObject {
    fn into_chunk(self) -> Result<Chunk, &'static str> {
        let b64 = self.b64.map(|text| decode_base64(&text).ok_or("b64 is not base64")).transpose()?;
        let given = [
            b64.map(Chunk::Bytes),
            self.sleep_ms.map(Chunk::SleepMs),
            self.close.filter(|on| *on).map(|_| Chunk::Close),
            self.rst.filter(|on| *on).map(|_| Chunk::Rst),
            self.hold_ms.map(Chunk::HoldMs),
            self.repeat.map(|Repeat { text, n }| Chunk::Repeat { text, n }),
            self.verbatim.map(Chunk::Verbatim),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(chunk), None) => Ok(chunk),
            _ => Err("a body chunk is text or an object with exactly one of its keys"),
        }
    }
}

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrObject;
        impl<'de> Visitor<'de> for TextOrObject {
            type Value = Chunk;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a body chunk: text or an object")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Chunk, E> {
                Ok(Chunk::Text(text.into()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Chunk, A::Error> {
                let object = ChunkObject::deserialize(MapAccessDeserializer::new(map))?;
                object.into_chunk().map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(TextOrObject)
    }
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Some(bytes)
}

impl Case {
    /// A Chat Completions script that gives these replies one after the other.
    pub fn of(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies = replies.into_iter();
        Self {
            protocol: Protocol::default(),
            paths: Vec::new(),
            strict: Vec::new(),
            guards: Vec::new(),
            http: replies.next().unwrap_or_else(Self::exhausted),
            then: replies.collect(),
            after: After::Fail,
        }
    }

    /// Reads a script.
    ///
    /// # Errors
    /// One line that says where the text is not a script, and why.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        serde_json::from_str(text).map_err(|error| ScriptError(format!("script: {error}")))
    }

    /// Reads a script from a file.
    ///
    /// # Errors
    /// One line with the path, the position and the reason.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let in_file = |error: &dyn fmt::Display| ScriptError(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| in_file(&error))?;
        serde_json::from_str(&text).map_err(|error| in_file(&error))
    }

    /// The reply at this place of the list, with its label in the request log.
    pub(super) fn reply(&self, index: usize) -> Option<(String, &Reply)> {
        match index.checked_sub(1) {
            None => Some(("http".into(), &self.http)),
            Some(later) => self.then.get(later).map(|reply| (format!("then[{later}]"), reply)),
        }
    }

    /// What a request gets that the list has no reply for.
    pub(super) fn exhausted() -> Reply {
        let error = serde_json::json!({"message": "demo: no response left", "type": "replay_exhausted"});
        Reply::json(500, &serde_json::json!({ "error": error }))
    }
}

/// Why a text is not a script: one line, with the position.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ScriptError(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(json: &str) -> Result<Vec<Chunk>, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn every_kind_of_chunk_is_read() {
        let json = r#"["a", {"b64":"AP+A"}, {"sleep_ms":5}, {"close":true}, {"rst":true},
            {"hold_ms":9}, {"repeat":{"text":"ab","n":3}}, {"verbatim":"0\r\n"}]"#;
        let expected = vec![
            Chunk::Text("a".into()),
            Chunk::Bytes(vec![0, 255, 128]),
            Chunk::SleepMs(5),
            Chunk::Close,
            Chunk::Rst,
            Chunk::HoldMs(9),
            Chunk::Repeat { text: "ab".into(), n: 3 },
            Chunk::Verbatim("0\r\n".into()),
        ];
        assert_eq!(chunks(json), Ok(expected));
    }

    #[test]
    fn a_chunk_is_exactly_one_thing() {
        for json in [r#"[{}]"#, r#"[{"close":false}]"#, r#"[{"sleep_ms":1,"rst":true}]"#, r#"[{"b64":"?"}]"#]
        {
            assert!(chunks(json).is_err(), "{json}");
        }
        assert!(chunks(r#"[{"slep_ms":1}]"#).unwrap_err().contains("unknown field `slep_ms`"));
    }

    #[test]
    fn base64_table() {
        for (text, bytes) in
            [("", Some("")), ("Zg==", Some("f")), ("Zm8=", Some("fo")), ("Zm9v", Some("foo"))]
        {
            assert_eq!(decode_base64(text), bytes.map(|b| b.as_bytes().to_vec()), "{text}");
        }
        for text in ["Z", "Zg=", "Zg===", "Z*==", "===="] {
            assert_eq!(decode_base64(text), None, "{text}");
        }
    }

    #[test]
    fn headers_keep_order_lists_and_nulls() {
        let reply: Reply =
            serde_json::from_str(r#"{"headers":{"z":"1","a":["x","y"],"content-type":null,"n":7}}"#).unwrap();
        let lines: Vec<_> =
            reply.headers.0.iter().map(|(name, values)| (name.as_str(), values.join("|"))).collect();
        let expected = [("z", "1"), ("a", "x|y"), ("content-type", ""), ("n", "7")];
        assert_eq!(lines, expected.map(|(name, value)| (name, value.to_string())));
    }

    #[test]
    fn what_is_not_ours_in_a_case_is_skipped() {
        let case = Case::parse(
            r#"{"id":"x","protocol":"anthropic","client":{"a":1},"input":["hi"],"expect":{"outcome":"error"},
               "http":{"status":529},"then":[{"framing":"close"}],"after":"repeat","paths":["^/v1/"]}"#,
        )
        .unwrap();
        assert_eq!((case.protocol, case.http.status, case.http.gap_ms), (Protocol::Messages, 529, 3));
        assert_eq!((case.then[0].framing, case.after), (Framing::Close, After::Repeat));
        assert_eq!(case.reply(1).unwrap().0, "then[0]");
    }

    #[test]
    fn errors_are_one_line_with_a_position() {
        for (json, reason) in [
            ("{", "EOF while parsing an object at line 1 column 1"),
            ("{\"protocol\":\"openai-chat\",\n\"http\":{\"staus\":1}}", "unknown field `staus`"),
            ("{\"protocol\":\"smtp\",\"http\":{}}", "unknown variant `smtp`"),
            ("{\"protocol\":\"openai-chat\",\"paths\":[\"(\"],\"http\":{}}", "not a pattern"),
            ("{\"protocol\":\"openai-chat\"}", "missing field `http`"),
        ] {
            let error = Case::parse(json).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(" line "), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
