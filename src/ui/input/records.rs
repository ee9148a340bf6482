//! Bytes to lines to records: pure, so that every cut and every byte can be tried.
//!
//! The rules and messages are contract section 4, with section 0's on BOM, UTF-8 and length.

use serde::Deserialize;

/// Cuts bytes at LF. A line over the bound is dropped to its end; it costs one error.
pub struct Splitter {
    line: Vec<u8>,
    /// Bytes not yet looked at.
    rest: Vec<u8>,
    at: usize,
    max: usize,
    too_long: bool,
    first: bool,
    ended: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Record(Vec<u8>),
    TooLong,
}

impl Splitter {
    pub fn new(max: usize) -> Self {
        Self { line: Vec::new(), rest: Vec::new(), at: 0, max, too_long: false, first: true, ended: false }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.rest.drain(..self.at);
        self.at = 0;
        self.rest.extend_from_slice(bytes);
    }

    /// No more bytes come: what is left is a line, too.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    pub fn next(&mut self) -> Option<Line> {
        let rest = &self.rest[self.at..];
        let (piece, found) = match memchr::memchr(b'\n', rest) {
            Some(end) => (&rest[..end], true),
            None => (rest, false),
        };
        if self.line.len() + piece.len() > self.max {
            self.too_long = true;
            self.line = Vec::new();
        }
        if !self.too_long {
            self.line.extend_from_slice(piece);
        }
        self.at += piece.len() + usize::from(found);
        if !found && !(self.ended && (self.too_long || !self.line.is_empty())) {
            return None;
        }
        if std::mem::take(&mut self.too_long) {
            self.first = false;
            return Some(Line::TooLong);
        }
        Some(Line::Record(self.take_line()))
    }

    /// The line without a trailing CR, and without the BOM on the first one.
    fn take_line(&mut self) -> Vec<u8> {
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if std::mem::take(&mut self.first) && line.starts_with("\u{feff}".as_bytes()) {
            line.drain(..3);
        }
        line
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    Message(String),
    Cancel,
    Malformed(String),
    Blank,
}

/// Reads one record; the messages are published (contract section 4).
pub fn parse(line: &[u8]) -> Parsed {
    #[derive(Deserialize)]
    struct Record {
        #[serde(rename = "type")]
        kind: String,
        text: Option<String>,
    }
    let malformed = |message: &str| Parsed::Malformed(message.to_owned());
    let line = line.trim_ascii();
    if line.is_empty() {
        return Parsed::Blank;
    }
    // serde would take an array for a struct.
    let record = line.starts_with(b"{").then(|| serde_json::from_slice::<Record>(line));
    let Some(Ok(record)) = record else {
        return malformed("input must be a JSONL message record");
    };
    match (record.kind.as_str(), record.text) {
        ("message", Some(text)) => Parsed::Message(text),
        ("message", None) => malformed("message record requires a text string"),
        ("cancel", _) => Parsed::Cancel,
        _ => malformed("input record type must be message"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(line: &str, expected: Parsed) {
        assert_eq!(parse(line.as_bytes()), expected, "{line}");
    }

    fn malformed(message: &str) -> Parsed {
        Parsed::Malformed(message.to_owned())
    }

    #[test]
    fn records() {
        check(r#"{"type":"message","text":"hi"}"#, Parsed::Message("hi".into()));
        check(r#" {"text":"","type":"message","more":[1]} "#, Parsed::Message(String::new()));
        check("{\"type\":\"message\",\"text\":\"\u{2028}\\u0000\"}", Parsed::Message("\u{2028}\0".into()));
        check(r#"{"type":"cancel"}"#, Parsed::Cancel);
        check(" \t", Parsed::Blank);
        for line in [
            "x",
            r#"["message","hi"]"#,
            r#"{"text":"hi"}"#,
            r#"{"type":"message","text":5}"#,
            r#"{"type":"message","type":"message","text":"x"}"#,
            r#"{"type":"message","text":"a","text":"b"}"#,
            r#"{"type":"message","text":"\ud800"}"#,
            "{\"type\":\"message\",\"text\":\"\0\"}",
            r#"{"type":"message","text":"a"} x"#,
        ] {
            check(line, malformed("input must be a JSONL message record"));
        }
        check(r#"{"type":"messages","text":"x"}"#, malformed("input record type must be message"));
        check(r#"{"type":"message","text":null}"#, malformed("message record requires a text string"));
        check(r#"{"type":"message"}"#, malformed("message record requires a text string"));
        assert_eq!(
            parse(b"{\"type\":\"message\",\"text\":\"\xff\"}"),
            malformed("input must be a JSONL message record")
        );
    }

    fn split(max: usize, pieces: &[&[u8]]) -> Vec<Line> {
        let mut splitter = Splitter::new(max);
        let mut lines = Vec::new();
        for piece in pieces {
            splitter.push(piece);
            lines.extend(std::iter::from_fn(|| splitter.next()));
        }
        splitter.finish();
        lines.extend(std::iter::from_fn(|| splitter.next()));
        lines
    }

    #[test]
    fn lines() {
        let record = |text: &str| Line::Record(text.into());
        assert_eq!(split(9, &[b"a\r\nb", b"c\n", b"d"]), [record("a"), record("bc"), record("d")]);
        assert_eq!(split(9, &["\u{feff}a\n\u{feff}b".as_bytes()]), [record("a"), record("\u{feff}b")]);
        assert_eq!(split(3, &[b"abcd\nabc\n", b"ab", b"cd"]), [Line::TooLong, record("abc"), Line::TooLong]);
        assert_eq!(split(3, &[b"\n"]), [record("")]);
        assert_eq!(split(3, &[]), []);
    }

    proptest! {
        /// Where reads end changes no line.
        #[test]
        fn cuts_change_nothing(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..60), cut in 0usize..60) {
            let cut = cut.min(bytes.len());
            prop_assert_eq!(split(8, &[&bytes[..cut], &bytes[cut..]]), split(8, &[&bytes[..]]));
            let _ = parse(&bytes);
        }
    }
}
