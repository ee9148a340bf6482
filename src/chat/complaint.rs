//! What a provider says went wrong, in whatever shape it says it (quirks 29 to 35, 41, 108).
//!
//! Reads the message and the codes out of JSON, HTML or plain text, in one short line. Whether trying
//! again may help is for `retry` to judge from the codes.

use serde_json::Value;

/// Longest text of a provider that is passed on (contract section 0).
const TEXT_BYTES_MAX: usize = 2048;

/// An error as reported by the other side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaint {
    /// One line, at most 2 KiB; absent if the provider gave no words.
    pub message: Option<String>,
    /// Every code, type and status name that came along, as text.
    pub codes: Vec<String>,
}

impl Complaint {
    /// Reads the body of an HTTP error.
    pub fn from_body(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let trimmed = text.trim_start_matches('\u{feff}').trim();
        match serde_json::from_str::<Value>(trimmed) {
            Ok(value) if value.is_object() || value.is_array() => Self::from_value(&value),
            _ => Self { message: some(plain_text(trimmed)), codes: Vec::new() },
        }
    }

    /// Reads an error object, or one that contains it.
    pub fn from_value(value: &Value) -> Self {
        let value = only_element(value);
        let inner = match value.get("error") {
            Some(error) if !error.is_null() => only_element(error),
            _ => value,
        };
        let message = words(inner).or_else(|| words(value)).map(|text| one_line(&text)).and_then(some);
        let codes = [inner, value]
            .into_iter()
            .flat_map(|v| ["code", "type", "status"].into_iter().filter_map(|name| v.get(name)))
            .filter_map(scalar)
            .collect();
        Self { message, codes }
    }
}

/// Gemini wraps its error in an array of one (quirk 33).
pub fn only_element(value: &Value) -> &Value {
    match value.as_array().map(Vec::as_slice) {
        Some([only]) => only,
        _ => value,
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The words of an error value: message, then detail, then the value itself (quirk 32).
fn words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => some(text.trim().to_owned()),
        Value::Array(items) => {
            let all: Vec<_> = items.iter().filter_map(words).collect();
            some(all.join("; "))
        }
        Value::Object(object) => ["message", "msg", "detail", "error", "error_description", "title"]
            .into_iter()
            .filter_map(|name| object.get(name))
            .find_map(words),
        _ => None,
    }
}

/// The text of a page without its tags, scripts and styles.
pub fn plain_text(page: &str) -> String {
    if !page.trim_start().starts_with('<') {
        return one_line(page);
    }
    let lower = page.to_ascii_lowercase();
    let mut text = String::new();
    let mut at = 0;
    while let Some(open) = page[at..].find('<') {
        text.push_str(&page[at..at + open]);
        text.push(' ');
        at += open;
        let tag = lower[at + 1..].split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or("");
        let close = match tag {
            "script" => lower[at..].find("</script"),
            "style" => lower[at..].find("</style"),
            _ => Some(0),
        };
        // A tag without end swallows the rest, as a browser would have it.
        let end = close.and_then(|close| page[at + close..].find('>').map(|end| at + close + end + 1));
        at = end.unwrap_or(page.len());
    }
    text.push_str(&page[at..]);
    let text = text.replace("&nbsp;", " ").replace("&lt;", "<").replace("&gt;", ">");
    let text = text.replace("&quot;", "\"").replace("&#39;", "'").replace("&amp;", "&");
    let mut line = one_line(&text);
    cut(&mut line, 300);
    line
}

/// One line: control characters become spaces, spaces collapse, and the length is bounded.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    let printable = |c: char| !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c);
    for word in text.split(|c: char| c.is_whitespace() || !printable(c)).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > TEXT_BYTES_MAX {
            break;
        }
    }
    cut(&mut line, TEXT_BYTES_MAX);
    line
}

/// Shortens `line` to `bytes`, on a character boundary and with an ellipsis.
fn cut(line: &mut String, bytes: usize) {
    if line.len() > bytes {
        let most = bytes - '…'.len_utf8();
        let end = (0..=most).rev().find(|at| line.is_char_boundary(*at));
        line.truncate(end.unwrap_or(0));
        line.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, message: &str, codes: &[&str]) {
        let complaint = Complaint::from_body(body.as_bytes());
        assert_eq!(complaint.message.as_deref().unwrap_or(""), message);
        assert_eq!(complaint.codes, codes);
    }

    #[test]
    fn every_shape_gives_its_words() {
        check(r#"{"error":{"message":"no","code":402}}"#, "no", &["402"]);
        check(r#"{"error":{"message":"no","type":"t","code":"c"}}"#, "no", &["c", "t"]);
        check(r#"{"error":"plain"}"#, "plain", &[]);
        check(r#"{"message":"top","code":7}"#, "top", &["7", "7"]);
        check(r#"{"detail":"gone"}"#, "gone", &[]);
        check(r#"{"detail":[{"loc":["body"],"msg":"a"},{"msg":"b"}]}"#, "a; b", &[]);
        check(r#"{"message":{"detail":[{"type":"x","msg":"a"}]}}"#, "a", &[]);
        check(r#"[{"error":{"code":400,"message":"m","status":"INVALID"}}]"#, "m", &["400", "INVALID"]);
        check(r#"{"error":null,"message":"m"}"#, "m", &[]);
        check(r#"{"error":{}}"#, "", &[]);
        check("", "", &[]);
        check("upstream\r\nconnect\x1b[31m error", "upstream connect [31m error", &[]);
        check("\"just text\"", "\"just text\"", &[]);
        check(
            "<!DOCTYPE html><head><title>520</title><style>b{}</style></head><h1>Web &amp; <b>server</b></h1>",
            "520 Web & server",
            &[],
        );
        check("<script>x", "", &[]);
        check("<a", "", &[]);
    }

    #[test]
    fn long_texts_are_cut_on_a_character() {
        let message = Complaint::from_body("é".repeat(5000).as_bytes()).message.unwrap();
        assert!(message.len() <= TEXT_BYTES_MAX && message.ends_with('…'));
    }
}
