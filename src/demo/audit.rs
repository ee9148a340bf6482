//! What a strict provider would refuse in a request, as codes.
//!
//! One function per protocol over the parsed body. Used by `strict` and by the `audit` predicate;
//! the request log keeps the findings of every request. Knows nothing of replies or sockets.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

/// The provider protocols a script can speak.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub enum Protocol {
    /// OpenAI Chat Completions.
    #[default]
    #[serde(rename = "openai-chat")]
    ChatCompletions,
    /// OpenAI Responses.
    #[serde(rename = "openai-responses")]
    Responses,
    /// Anthropic Messages.
    #[serde(rename = "anthropic")]
    Messages,
}

/// One finding.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AuditCode {
    /// The body is not UTF-8.
    NotUtf8,
    /// The body is not a JSON object.
    NotJson,
    /// An escaped surrogate stands alone.
    Surrogate,
    /// A tool call without its result directly after it, or the other way round.
    Unpaired,
    /// A call id twice where it has to be unique.
    DupId,
    /// Arguments of a call that are not a JSON object.
    ArgsJson,
    /// A text block without text.
    EmptyText,
    /// An assistant message with neither text nor calls.
    EmptyAssistant,
    /// `stream` is not true.
    NoStream,
    /// No credentials.
    NoAuth,
}

impl AuditCode {
    /// The name in scripts and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotUtf8 => "not_utf8",
            Self::NotJson => "not_json",
            Self::Surrogate => "surrogate",
            Self::Unpaired => "unpaired",
            Self::DupId => "dup_id",
            Self::ArgsJson => "args_json",
            Self::EmptyText => "empty_text",
            Self::EmptyAssistant => "empty_assistant",
            Self::NoStream => "no_stream",
            Self::NoAuth => "no_auth",
        }
    }

    /// The sentence a provider would refuse it with.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::NotUtf8 => "request body is not valid UTF-8",
            Self::NotJson => "request body is not valid JSON",
            Self::Surrogate => "request body is not valid JSON: lone surrogate",
            Self::Unpaired => "each tool call must be answered by exactly one tool result, directly after it",
            Self::DupId => "tool call ids must be unique within a message",
            Self::ArgsJson => "tool call arguments in the history must be a JSON object",
            Self::EmptyText => "text content blocks must be non-empty",
            Self::EmptyAssistant => "assistant message must contain either content or tool_calls",
            Self::NoStream => "this deployment only streams",
            Self::NoAuth => "missing credentials",
        }
    }
}

/// A body as the audit sees it.
pub(super) struct Audited<'a> {
    pub raw: &'a [u8],
    pub text: &'a str,
    pub body: Option<&'a Value>,
    pub headers: &'a BTreeMap<String, String>,
}

/// All findings, each once, in the order they were made.
pub(super) fn audit(protocol: Protocol, request: &Audited<'_>) -> Vec<AuditCode> {
    let mut found = Findings::default();
    found.if_true(std::str::from_utf8(request.raw).is_err(), AuditCode::NotUtf8);
    let Some(body) = request.body.filter(|body| body.is_object()) else {
        found.add(AuditCode::NotJson);
        return found.0;
    };
    found.if_true(has_lone_surrogate(request.text), AuditCode::Surrogate);
    found.if_true(body["stream"] != true, AuditCode::NoStream);
    let credentials = ["authorization", "x-api-key", "api-key"];
    let given = |name: &&str| request.headers.get(*name).is_some_and(|value| !value.is_empty());
    found.if_true(!credentials.iter().any(given), AuditCode::NoAuth);
    match protocol {
        Protocol::ChatCompletions => chat_completions(list(&body["messages"]), &mut found),
        Protocol::Responses => responses(list(&body["input"]), &mut found),
        Protocol::Messages => messages(list(&body["messages"]), &mut found),
    }
    found.0
}

#[derive(Default)]
struct Findings(Vec<AuditCode>);

impl Findings {
    fn add(&mut self, code: AuditCode) {
        if !self.0.contains(&code) {
            self.0.push(code);
        }
    }

    fn if_true(&mut self, wrong: bool, code: AuditCode) {
        if wrong {
            self.add(code);
        }
    }
}

fn chat_completions(messages: &[Value], found: &mut Findings) {
    let mut rest = messages;
    while let [message, after @ ..] = rest {
        rest = after;
        if message["role"] == "tool" {
            found.add(AuditCode::Unpaired);
        }
        if message["role"] != "assistant" {
            continue;
        }
        let calls = list(&message["tool_calls"]);
        let silent = calls.is_empty()
            && is_blank(&message["content"])
            && !is_object_with_members(&message["function_call"]);
        found.if_true(silent, AuditCode::EmptyAssistant);
        found.if_true(
            calls.iter().any(|call| !holds_object(&call["function"]["arguments"])),
            AuditCode::ArgsJson,
        );
        let ids: Vec<String> =
            calls.iter().map(|call| call["id"].as_str().unwrap_or("").to_string()).collect();
        found.if_true(has_twins(&ids), AuditCode::DupId);
        let answers = after.iter().take_while(|message| message["role"] == "tool").count();
        let answered = after[..answers].iter().map(|message| id(&message["tool_call_id"])).collect();
        found.if_true(!same_set(&answered, &ids) || ids.iter().any(String::is_empty), AuditCode::Unpaired);
        rest = &after[answers..];
    }
}

fn responses(items: &[Value], found: &mut Findings) {
    let of_type = |kind: &str| items.iter().filter(|item| item["type"] == kind).collect::<Vec<_>>();
    let calls = of_type("function_call");
    let ids = |items: &[&Value]| items.iter().map(|item| id(&item["call_id"])).collect::<Vec<_>>();
    let declared = ids(&calls);
    found.if_true(!same_set(&declared, &ids(&of_type("function_call_output"))), AuditCode::Unpaired);
    found.if_true(has_twins(&declared), AuditCode::DupId);
    found.if_true(calls.iter().any(|call| !holds_object(&call["arguments"])), AuditCode::ArgsJson);
}

fn messages(messages: &[Value], found: &mut Findings) {
    let mut seen = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        let content = &message["content"];
        let blocks =
            |kind: &str| list(content).iter().filter(|block| block["type"] == kind).collect::<Vec<_>>();
        let blank = |block: &&Value| block["text"].as_str().unwrap_or("").trim().is_empty();
        let empty = *content == "" || content.as_array().is_some_and(Vec::is_empty);
        found.if_true(empty || blocks("text").iter().any(blank), AuditCode::EmptyText);
        let uses = blocks("tool_use");
        found.if_true(uses.iter().any(|block| !block["input"].is_object()), AuditCode::ArgsJson);
        let declared: Vec<String> = uses.iter().map(|block| id(&block["id"])).collect();
        let reused = declared.iter().any(|id| seen.contains(id));
        found.if_true(has_twins(&declared) || reused, AuditCode::DupId);
        seen.extend(declared.iter().cloned());
        let results = blocks("tool_result").iter().map(|block| id(&block["tool_use_id"])).collect();
        found.if_true(!same_set(&results, &open), AuditCode::Unpaired);
        open = declared;
    }
    found.if_true(!open.is_empty(), AuditCode::Unpaired);
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn id(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn is_blank(content: &Value) -> bool {
    content.is_null() || *content == "" || content.as_array().is_some_and(Vec::is_empty)
}

fn is_object_with_members(value: &Value) -> bool {
    value.as_object().is_some_and(|members| !members.is_empty())
}

fn holds_object(arguments: &Value) -> bool {
    let text = arguments.as_str().unwrap_or("");
    serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object())
}

fn has_twins(ids: &[String]) -> bool {
    ids.iter().collect::<BTreeSet<_>>().len() != ids.len()
}

fn same_set(a: &Vec<String>, b: &Vec<String>) -> bool {
    let sorted = |ids: &Vec<String>| {
        let mut ids = ids.clone();
        ids.sort();
        ids
    };
    sorted(a) == sorted(b)
}

fn has_lone_surrogate(text: &str) -> bool {
    replace_lone_surrogates(text).is_some()
}

/// The text with every lone surrogate escape replaced by `\ufffd`, or nothing when there is none.
/// JSON itself allows them and some clients send them, but no `str` can hold them.
pub(super) fn replace_lone_surrogates(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut repaired: Option<Vec<u8>> = None;
    let mut at = 0;
    while at < bytes.len() {
        match (unit(&bytes[at..]), unit(bytes.get(at + 6..).unwrap_or(&[]))) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => at += 12,
            (Some(0xD800..=0xDFFF), _) => {
                repaired.get_or_insert_with(|| bytes.to_vec())[at..at + 6].copy_from_slice(b"\\ufffd");
                at += 6;
            }
            // An escaped backslash must not start an escape with what follows it.
            _ if bytes[at] == b'\\' => at += 2,
            _ => at += 1,
        }
    }
    repaired.and_then(|bytes| String::from_utf8(bytes).ok())
}

/// The code unit of a `\uXXXX` escape at the start of `bytes`.
fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit: u16, digit| Some(unit << 4 | (*digit as char).to_digit(16)? as u16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::request::Request;
    use serde_json::json;

    fn codes(protocol: Protocol, body: Vec<u8>) -> String {
        let mut request = Request::post("/v1", body);
        request.headers.insert("authorization".into(), "Bearer k".into());
        request.audit(protocol);
        request.audit.iter().map(|code| code.name()).collect::<Vec<_>>().join(" ")
    }

    fn check(protocol: Protocol, key: &str, items: Value, expected: &str) {
        let body = json!({"stream": true, key: items});
        assert_eq!(codes(protocol, body.to_string().into_bytes()), expected, "{body}");
    }

    fn chat(messages: Value, expected: &str) {
        check(Protocol::ChatCompletions, "messages", messages, expected);
    }

    #[test]
    fn bodies() {
        let table: [(&[u8], &str); 8] = [
            (b"{\"stream\":true}", ""),
            (b"{}", "no_stream"),
            (b"[]", "not_json"),
            (b"nope", "not_json"),
            (b"{\"stream\":true,\"a\":\"\xff\"}", "not_utf8"),
            (br#"{"stream":true,"a":"\ud83d\ude00 \\ud83d"}"#, ""),
            (br#"{"stream":true,"a":"\ud83d x"}"#, "surrogate"),
            (br#"{"stream":true,"a":"\uDE00"}"#, "surrogate"),
        ];
        for (body, expected) in table {
            assert_eq!(codes(Protocol::ChatCompletions, body.to_vec()), expected);
        }
        let mut anonymous = Request::post("/v1", b"{\"stream\":true}".to_vec());
        anonymous.audit(Protocol::ChatCompletions);
        assert_eq!(anonymous.audit, [AuditCode::NoAuth]);
    }

    fn call(id: &str, arguments: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "cmd", "arguments": arguments}})
    }

    #[test]
    fn chat_completions_history() {
        let assistant = |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
        let tool = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
        chat(json!([{"role": "user", "content": "hi"}]), "");
        chat(json!([assistant(json!([call("a", "{}")])), tool("a")]), "");
        chat(json!([assistant(json!([call("a", "{}"), call("b", "{}")])), tool("b"), tool("a")]), "");
        chat(json!([assistant(json!([call("a", "{}")]))]), "unpaired");
        chat(json!([tool("a")]), "unpaired");
        chat(json!([assistant(json!([call("a", "[]")])), tool("a")]), "args_json");
        chat(json!([assistant(json!([call("", "{}")])), tool("")]), "unpaired");
        chat(json!([assistant(json!([call("a", "{}"), call("a", "{}")])), tool("a"), tool("a")]), "dup_id");
        chat(json!([{"role": "assistant", "content": ""}]), "empty_assistant");
        chat(json!([{"role": "assistant", "content": "", "function_call": {"name": "cmd"}}]), "");
    }

    #[test]
    fn responses_items() {
        let item = |kind: &str, id: &str| json!({"type": kind, "call_id": id, "arguments": "{}"});
        let items = |items: Value, expected| check(Protocol::Responses, "input", items, expected);
        items(json!("hi"), "");
        items(json!([item("function_call", "a"), item("function_call_output", "a")]), "");
        items(json!([item("function_call", "a")]), "unpaired");
        items(
            json!([{"type": "function_call", "call_id": "a", "arguments": "{"}, item("function_call_output", "a")]),
            "args_json",
        );
        let twice = json!([
            item("function_call", "a"),
            item("function_call", "a"),
            item("function_call_output", "a"),
            item("function_call_output", "a")
        ]);
        items(twice, "dup_id");
    }

    #[test]
    fn messages_blocks() {
        let uses = |id: &str, input: Value| json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "input": input}]});
        let result =
            |id: &str| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id}]});
        let history = |items: Value, expected| check(Protocol::Messages, "messages", items, expected);
        history(json!([uses("a", json!({})), result("a")]), "");
        history(json!([uses("a", json!("{}")), result("a")]), "args_json");
        history(json!([uses("a", json!({}))]), "unpaired");
        history(json!([result("a")]), "unpaired");
        history(json!([uses("a", json!({})), result("a"), uses("a", json!({})), result("a")]), "dup_id");
        history(json!([{"role": "user", "content": ""}]), "empty_text");
        history(json!([{"role": "user", "content": [{"type": "text", "text": " "}]}]), "empty_text");
    }
}
