//! Keeps the key out of everything that is shown or stored.
//!
//! Only a [`Redactor`] can make a [`SafeEvent`], and the log and the fronts take nothing else: what was
//! not redacted does not compile. Text that comes in deltas is redacted as one stream, so a key split
//! over many of them is held back until it is whole (contract section 8).

use std::borrow::Cow;

use memchr::memmem;
use serde_json::Value;

use super::{
    event::{Event, Progress},
    key_rules::{MARKER, SCHEMA_NAMES},
    record::{Cause, Interruption, Record, ToolResult},
};
use crate::{
    chat::{
        message::{ContentBlock, ToolCall},
        model::Reply,
    },
    config::Secret,
    tools::ToolOutput,
};

/// What malformed arguments become in history and output (published).
const EMPTY_ARGUMENTS: &str = "{}";

/// An event that holds no key.
#[derive(Clone, Debug, PartialEq)]
pub struct SafeEvent(Event);

impl SafeEvent {
    pub fn get(&self) -> &Event {
        &self.0
    }
}

#[derive(Debug)]
pub struct Redactor {
    /// Longest first, none empty.
    secrets: Vec<Secret>,
    /// The end of the text stream that could be the start of a secret.
    held: String,
}

impl Redactor {
    pub fn new(mut secrets: Vec<Secret>) -> Self {
        secrets.retain(|secret| !secret.expose().is_empty());
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        Self { secrets, held: String::new() }
    }

    pub fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    /// Whether `bytes` hold a secret as it is.
    pub fn finds_secret(&self, bytes: &[u8]) -> bool {
        self.secrets.iter().any(|secret| memmem::find(bytes, secret.expose().as_bytes()).is_some())
    }

    /// `text` without secrets, in itself and in its JSON form.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for secret in &self.secrets {
            if clean.contains(secret.expose()) {
                clean = Cow::Owned(clean.replace(secret.expose(), MARKER));
            }
        }
        if self.secrets.iter().any(|secret| appears_in_escapes(&clean, secret.expose())) {
            return Cow::Borrowed(MARKER);
        }
        clean
    }

    /// The next piece of streamed text, as far as it is surely no secret.
    fn push(&mut self, delta: String) -> String {
        let text = if self.held.is_empty() { delta } else { std::mem::take(&mut self.held) + &delta };
        // Whole secrets go first, so that what is held back is never the end of one already found.
        let mut text = self.text(&text).into_owned();
        let keep =
            self.secrets.iter().map(|secret| suffix_that_starts(&text, secret.expose())).max().unwrap_or(0);
        self.held = text.split_off(text.len() - keep);
        text
    }

    /// Redacts one event into the events that may be seen: held text comes before an event of
    /// another kind.
    pub fn clean(&mut self, event: Event, mut emit: impl FnMut(SafeEvent)) {
        if let Event::Progress(Progress::TextDelta(delta)) = event {
            let text = self.push(delta);
            if !text.is_empty() {
                emit(SafeEvent(Event::Progress(Progress::TextDelta(text))));
            }
            return;
        }
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            emit(SafeEvent(Event::Progress(Progress::TextDelta(held))));
        }
        emit(SafeEvent(match event {
            Event::Fact(record) => Event::Fact(self.record(record)),
            Event::Progress(progress) => Event::Progress(self.progress(progress)),
        }));
    }

    fn owned(&self, text: String) -> String {
        match self.text(&text) {
            Cow::Borrowed(same) if same.len() == text.len() => text,
            other => other.into_owned(),
        }
    }

    fn progress(&self, progress: Progress) -> Progress {
        match progress {
            Progress::Retry { attempt, wait, message } => {
                Progress::Retry { attempt, wait, message: self.owned(message) }
            }
            Progress::Warning(text) => Progress::Warning(self.owned(text)),
            Progress::Error { message } => Progress::Error { message: self.owned(message) },
            Progress::TextDelta(text) => Progress::TextDelta(self.owned(text)),
            // The id was checked when the session file was made, the rest are numbers.
            opened @ (Progress::Opened { .. } | Progress::Usage(_)) => opened,
        }
    }

    fn record(&self, record: Record) -> Record {
        match record {
            Record::User { text } => Record::User { text: self.owned(text) },
            Record::Assistant(reply) => Record::Assistant(self.reply(reply)),
            Record::ToolResult(result) => Record::ToolResult(self.tool_result(result)),
            Record::Interruption(interruption) => Record::Interruption(self.interruption(interruption)),
            Record::TurnEnd => Record::TurnEnd,
        }
    }

    fn reply(&self, reply: Reply) -> Reply {
        let block = |block| match block {
            ContentBlock::Text(text) => ContentBlock::Text(self.owned(text)),
            ContentBlock::ToolCall(call) => ContentBlock::ToolCall(self.call(call)),
            ContentBlock::Opaque(mut opaque) => {
                opaque.value = self.value(opaque.value);
                ContentBlock::Opaque(opaque)
            }
        };
        Reply { blocks: reply.blocks.into_iter().map(block).collect(), ..reply }
    }

    fn call(&self, call: ToolCall) -> ToolCall {
        ToolCall {
            id: self.owned(call.id),
            name: self.owned(call.name),
            arguments: self.arguments(&call.arguments),
        }
    }

    /// Argument JSON decoded, redacted and encoded again; anything but an object becomes `{}`.
    fn arguments(&self, arguments: &str) -> String {
        match serde_json::from_str(arguments) {
            Ok(value @ Value::Object(_)) => {
                if self.finds_in_value(&value) {
                    self.value(value).to_string()
                } else {
                    // Untouched arguments keep the provider's own bytes where those are safe as they are.
                    self.owned(arguments.to_owned())
                }
            }
            _ => EMPTY_ARGUMENTS.to_owned(),
        }
    }

    fn finds_in_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.finds_secret(text.as_bytes()),
            Value::Array(items) => items.iter().any(|item| self.finds_in_value(item)),
            Value::Object(members) => members
                .iter()
                .any(|(key, item)| self.finds_secret(key.as_bytes()) || self.finds_in_value(item)),
            number => self.finds_secret(number.to_string().as_bytes()),
        }
    }

    /// Every string of a JSON value, and every key that is not a schema name.
    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.owned(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => members
                .into_iter()
                .map(|(key, item)| {
                    let key = if SCHEMA_NAMES.contains(&key.as_str()) { key } else { self.owned(key) };
                    (key, self.value(item))
                })
                .collect(),
            other if self.finds_secret(other.to_string().as_bytes()) => MARKER.into(),
            other => other,
        }
    }

    fn tool_result(&self, result: ToolResult) -> ToolResult {
        ToolResult {
            id: self.owned(result.id),
            name: self.owned(result.name),
            output: self.output(result.output),
        }
    }

    fn output(&self, output: ToolOutput) -> ToolOutput {
        output.map_text(|text| self.owned(text))
    }

    fn interruption(&self, interruption: Interruption) -> Interruption {
        Interruption {
            cause: match interruption.cause {
                Cause::Failed { failure, message } => Cause::Failed { failure, message: self.owned(message) },
                cancelled @ Cause::Cancelled(_) => cancelled,
            },
            phase: interruption.phase,
            assistant_text: self.owned(interruption.assistant_text),
            tool_calls: interruption.tool_calls.into_iter().map(|call| self.call(call)).collect(),
            tool_results: interruption.tool_results.into_iter().map(|r| self.tool_result(r)).collect(),
        }
    }
}

/// Bytes at the end of `text` that are the start of `secret`, but not all of it.
fn suffix_that_starts(text: &str, secret: &str) -> usize {
    let longest = (secret.len() - 1).min(text.len());
    (1..=longest)
        .rev()
        .find(|&n| secret.is_char_boundary(n) && text.as_bytes().ends_with(&secret.as_bytes()[..n]))
        .unwrap_or(0)
}

/// Whether escaping `text` for JSON makes `secret` appear: LF before `0` spells a key `n0`.
fn appears_in_escapes(text: &str, secret: &str) -> bool {
    // A key holds neither backslash nor quote, so a match begins inside an escape, after its backslash.
    let could_begin = secret.as_bytes().first().is_some_and(|b| b"ntrbfu0123456789abcdef".contains(b));
    could_begin
        && text.bytes().any(|b| b < 0x20 || b == b'"' || b == b'\\')
        && serde_json::to_string(text).is_ok_and(|json| json.contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "sk-invented-7f3a9";

    fn redactor(key: &str) -> Redactor {
        Redactor::new(vec![Secret::new(key)])
    }

    fn stream(key: &str, deltas: &[&str]) -> Vec<String> {
        let mut redactor = redactor(key);
        let mut seen = Vec::new();
        let events = deltas.iter().map(|d| Event::Progress(Progress::TextDelta(d.to_string())));
        for event in events.chain([Event::Fact(Record::TurnEnd)]) {
            redactor.clean(event, |safe| {
                if let Event::Progress(Progress::TextDelta(text)) = safe.get() {
                    seen.push(text.clone());
                }
            });
        }
        seen
    }

    #[test]
    fn text_that_holds_no_key_passes_at_once() {
        assert_eq!(stream(KEY, &["a", "b"]), ["a", "b"]);
    }

    #[test]
    fn a_key_over_many_deltas_is_held_back_and_replaced() {
        assert_eq!(stream(KEY, &["key: sk-inv", "ented-7f", "3a9 end"]), ["key: ", "[REDACTED] end"]);
    }

    #[test]
    fn a_false_start_is_given_back() {
        assert_eq!(stream(KEY, &["sk-inv", "isible"]), ["sk-invisible"]);
        assert_eq!(stream(KEY, &["ends with sk-"]), ["ends with ", "sk-"]);
    }

    #[test]
    fn escapes_that_spell_the_key_hide_the_text() {
        assert_eq!(redactor("n0").text("a\n0"), MARKER);
        assert_eq!(redactor("n0").text("a\n1"), "a\n1");
        assert_eq!(redactor("u001b").text("\u{1b}"), MARKER);
    }

    #[test]
    fn arguments_are_redacted_in_their_decoded_form() {
        let r = redactor(KEY);
        let check = |given: &str, expected: &str| assert_eq!(r.arguments(given), expected);
        check(r#"{"command":"echo \u0073k-invented-7f3a9"}"#, r#"{"command":"echo [REDACTED]"}"#);
        check(r#"{"sk-invented-7f3a9":1}"#, r#"{"[REDACTED]":1}"#);
        check(r#"{ "command": "pwd" }"#, r#"{ "command": "pwd" }"#);
        check("not json", "{}");
        check("[1]", "{}");
    }

    proptest! {
        /// However a text is cut, the pieces join to the redacted whole and show no key.
        #[test]
        fn cuts_change_nothing(parts in proptest::collection::vec("(sk-|invented-|7f3a9|sk-invented-7f3a9|[a-z]{0,3})", 0..12)) {
            let pieces: Vec<&str> = parts.iter().map(String::as_str).collect();
            let joined = stream(KEY, &pieces).concat();
            prop_assert_eq!(&joined, &parts.concat().replace(KEY, MARKER));
            prop_assert!(!joined.contains(KEY));
        }
    }
}
