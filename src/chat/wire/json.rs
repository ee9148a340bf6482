//! JSON as providers write it: lone surrogates, raw control characters, two frames run together.
//!
//! Well-formed text goes straight to the parser; only what it refuses is mended and read again. A lone
//! surrogate becomes a mark, so that a pair torn over two deltas can be joined when both are here.

use serde_json::Value;

/// Marks are the surrogates shifted to plane 16, which is for private use. They only mean something
/// in a stream that needed mending.
const MARK_BASE: u32 = 0x10_0000;

/// Parses a frame. The flag tells that the value may hold marks.
pub fn parse(text: &str) -> Option<(Value, bool)> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some((value, false));
    }
    if let Ok(value) = serde_json::from_str(&mend(text)) {
        return Some((value, true));
    }
    // Quirk 13: a cut frame with a whole one glued to it. Only the whole one counts.
    let at = memchr::memmem::rfind(text.as_bytes(), b"data:").filter(|at| *at > 0)?;
    let value: Value = serde_json::from_str(text[at + 5..].trim()).ok()?;
    (value.get("choices").is_some() || value.get("error").is_some()).then_some((value, false))
}

/// Escapes raw control characters inside strings and replaces lone surrogate escapes by marks.
pub fn mend(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut in_string = false;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '"' => in_string = !in_string,
            '\\' if in_string => taken = mend_escape(rest, &mut out),
            '\0'..='\u{1f}' if in_string => {
                out.push_str(&format!("\\u{:04x}", c as u32));
                rest = &rest[taken..];
                continue;
            }
            _ => {}
        }
        if c != '\\' || !in_string {
            out.push(c);
        }
        rest = &rest[taken..];
    }
    out
}

/// Copies the escape that `rest` begins with and returns its length.
fn mend_escape(rest: &str, out: &mut String) -> usize {
    let Some(first) = escaped_unit(rest) else {
        let length = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
        out.push_str(&rest[..length]);
        return length;
    };
    let paired = matches!(escaped_unit(&rest[6..]), Some(0xdc00..=0xdfff));
    match first {
        0xd800..=0xdbff if paired => {
            out.push_str(&rest[..12]);
            return 12;
        }
        0xd800..=0xdfff => out.extend(char::from_u32(MARK_BASE + first)),
        _ => out.push_str(&rest[..6]),
    }
    6
}

fn escaped_unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// The surrogate that `c` stands for.
fn marked(c: char) -> Option<u32> {
    (c as u32).checked_sub(MARK_BASE).filter(|unit| (0xd800..=0xdfff).contains(unit))
}

/// Joins neighbouring halves and gives U+FFFD for the lonely ones.
pub fn settle(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(first) = marked(c) else {
            out.push(c);
            continue;
        };
        let low = chars.peek().copied().and_then(marked).filter(|unit| *unit >= 0xdc00);
        match low {
            Some(low) if first < 0xdc00 => {
                chars.next();
                let scalar = 0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00);
                out.extend(char::from_u32(scalar));
            }
            _ => out.push(char::REPLACEMENT_CHARACTER),
        }
    }
    out
}

/// Takes a first half off the end of `text`: its other half may be on the way (quirk 18).
pub fn hold_back(text: &mut String) -> Option<char> {
    let last = text.chars().next_back()?;
    marked(last).filter(|unit| *unit < 0xdc00)?;
    text.pop()
}

/// [`settle`] for every string of `value`.
pub fn settle_value(value: &mut Value) {
    match value {
        Value::String(text) => *text = settle(text),
        Value::Array(items) => items.iter_mut().for_each(settle_value),
        Value::Object(object) => object.values_mut().for_each(settle_value),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn check(text: &str, expected: Option<Value>) {
        let parsed = parse(text).map(|(mut value, _)| {
            settle_value(&mut value);
            value
        });
        assert_eq!(parsed, expected);
    }

    #[test]
    fn refused_text_is_mended() {
        check(r#"{"a":"\ud83d\ude42"}"#, Some(json!({"a": "🙂"})));
        check(r#"{"a":"x\ud83d"}"#, Some(json!({"a": "x\u{fffd}"})));
        check(r#"{"a":"\ude42\ud83dy"}"#, Some(json!({"a": "\u{fffd}\u{fffd}y"})));
        check(r#"{"a":"\ud83d\n\\ud83d"}"#, Some(json!({"a": "\u{fffd}\n\\ud83d"})));
        check("{\"a\":\"x\ny\tz\"}", Some(json!({"a": "x\ny\tz"})));
        check(r#"{"a":"cdata: {"choices":[]}"#, Some(json!({"choices": []})));
        check(r#"{"a":"cdata: {"other":[]}"#, None);
        check(r#"data: {"error":1}"#, None);
        check("\"\\", None);
        check("\"\\u", None);
    }

    #[test]
    fn halves_join_over_deltas() {
        let mut first = parse(r#""hi \ud83d""#).unwrap().0.as_str().unwrap().to_owned();
        let held = hold_back(&mut first).unwrap();
        assert_eq!(first, "hi ");
        let second = parse(r#""\ude42""#).unwrap().0.as_str().unwrap().to_owned();
        assert_eq!(settle(&format!("{held}{second}")), "🙂");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r#"[\\u"d8cef0-9\n€{}:]{0,40}"#) {
            mend(&text);
            let _ = parse(&text);
        }
    }
}
