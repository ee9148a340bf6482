//! Chat Completions from golden streams, cut at every byte, and the requests that follow from them.

mod calls;
mod requests;

use proptest::prelude::*;

use super::*;
use crate::{
    chat::{
        error::{ChatError, ChatErrorKind},
        intake::Intake,
        message::{ContentBlock, Message, Opaque, StopReason, ToolCall, ToolSpec, Usage},
        model::{ModelEvent, Reply, Request},
        retry::Failure,
        wire::{Decoder as _, Dialect, Progress},
    },
    config::Limits,
};

const CMD: ToolSpec =
    ToolSpec { name: "cmd", description: "Runs it.", parameters: r#"{"type":"object",  "b":1,"a":2}"# };
const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const TOOLS: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
const ONE: &str = r#"{\"command\":\"echo one\"}"#;
const TWO: &str = r#"{\"command\":\"echo two\"}"#;

fn run(chunks: &[&[u8]], limits: &Limits, reply: &mut Reply) -> Result<(), Failure> {
    let mut intake = Intake::new(limits);
    let mut decoder = Decoder::new(&[CMD], limits, 7);
    let mut shown = String::new();
    let mut show = |event: Option<ModelEvent>| {
        if let Some(ModelEvent::TextDelta(text)) = event {
            assert!(!text.is_empty());
            shown.push_str(&text);
        }
    };
    for chunk in chunks {
        let mut input = *chunk;
        while decoder.progress() != Progress::Done
            && let Some(frame) = intake.next(&mut input)?
        {
            show(decoder.push(frame, reply)?);
        }
    }
    while decoder.progress() != Progress::Done
        && let Some(frame) = intake.finish()?
    {
        show(decoder.push(frame, reply)?);
    }
    show(decoder.finish(reply)?);
    assert_eq!(shown, reply.text());
    Ok(())
}

/// Decodes `body` whole, in bytes, and cut at every byte; all must agree.
fn decode(body: &[u8]) -> (Reply, Result<(), Failure>) {
    let limits = Limits::default();
    let mut whole = Reply::default();
    let end = run(&[body], &limits, &mut whole);
    let singles: Vec<_> = body.chunks(1).collect();
    let cuts = (1..body.len()).map(|cut| vec![&body[..cut], &body[cut..]]);
    for chunks in std::iter::once(singles).chain(cuts) {
        let mut reply = Reply::default();
        assert_eq!(run(&chunks, &limits, &mut reply), end);
        assert_eq!(reply, whole);
    }
    (whole, end)
}

fn frames(payloads: &[&str]) -> String {
    payloads.iter().map(|payload| format!("data: {payload}\n\n")).collect()
}

fn content(value: &str) -> String {
    format!(r#"{{"id":"c1","choices":[{{"index":0,"delta":{{"content":{value}}},"finish_reason":null}}]}}"#)
}

/// A chunk with these entries of `tool_calls`.
fn calls(entries: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{entries}]}},"finish_reason":null}}]}}"#)
}

#[track_caller]
fn check_text(body: &str, expected: &str) {
    let (reply, end) = decode(body.as_bytes());
    assert_eq!((end, reply.text().as_str()), (Ok(()), expected));
    assert_eq!(reply.calls().count(), 0);
}

#[track_caller]
fn check_error(body: &str, kind: ChatErrorKind, message: &str, transient: bool) {
    let failure = decode(body.as_bytes()).1.unwrap_err();
    assert_eq!(failure, Failure { error: ChatError::new(kind, message), transient, wait: None });
}

#[test]
fn text_arrives_as_sent() {
    let hello = content(r#""hello""#);
    let role = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
    check_text(&frames(&[role, &hello, STOP, "[DONE]"]), "hello");
    check_text(&frames(&[role, &hello, STOP]), "hello");
    check_text(&frames(&[&hello, "[DONE]"]), "hello");
    check_text(&frames(&[": KEEPALIVE", "", &hello, STOP, "[DONE]"]), "hello");
    check_text(&frames(&["null", "\"ping\"", &hello, STOP]), "hello");
    check_text(frames(&[&hello, STOP, "[DONE]"]).trim_end(), "hello");
    check_text(&frames(&[&hello, STOP, "[DONE]"]).replace('\n', "\r\n"), "hello");
    check_text(&frames(&[&hello, STOP]).replace("data: ", "data:"), "hello");
    check_text(&frames(&[&hello, STOP]).replace("data: ", "event: message\nid: 1\ndata: "), "hello");
    let twelve = [content("\"20\""), content("\"12\""), content("\"12\"")];
    check_text(&frames(&[&twelve[0], &twelve[1], &twelve[2], STOP]), "201212");
    let last =
        r#"{"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}"#;
    check_text(&frames(&[&content("\"hel\""), last]), "hello");
    let fused = format!("{{\"id\":\"c1\",\"choidata: {}", content("\"lo\""));
    check_text(&frames(&[&content("\"hel\""), &fused, STOP]), "hello");
}

#[test]
fn nothing_is_required_of_a_chunk() {
    let hello = content(r#""hello""#);
    for odd in [
        r#"{"choices":[],"prompt_filter_results":[{}]}"#,
        r#"{"usage":{}}"#,
        r#"{"choices":null}"#,
        r#"{"id":"","choices":[{"index":0,"finish_reason":null,"content_filter_offsets":{}}]}"#,
        r#"{"choices":[{"delta":null}]}"#,
        r#"{"choices":[{"delta":{"role":null,"content":null,"tool_calls":null,"function_call":null,"refusal":null}}]}"#,
        r#"{"choices":[null]}"#,
        r#"{"choices":"x","usage":"y","error":null}"#,
        r#"{"choices":[{"finish_reason":""}]}"#,
        r#"{"choices":[{"delta":{"content":7,"tool_calls":[null,3]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"","function":{"name":"","arguments":""}}]}}]}"#,
        "{}",
    ] {
        check_text(&frames(&[odd, &hello, odd, STOP, odd, "[DONE]"]), "hello");
    }
}

#[test]
fn parts_refusals_and_broken_characters() {
    let thought = content(r#"[{"type":"thinking","thinking":[{"type":"text","text":"secret"}]}]"#);
    let parts = content(r#"[{"type":"reference","reference_ids":[1]},{"type":"text","text":"lo"}]"#);
    check_text(&frames(&[&thought, &content(r#"[{"type":"text","text":"hel"}]"#), &parts, STOP]), "hello");
    let torn = [content(r#""hi ""#), content(r#""\ud83d""#), content(r#""\ude42""#), content(r#"" there""#)];
    check_text(&frames(&[&torn[0], &torn[1], &torn[2], &torn[3], STOP]), "hi 🙂 there");
    check_text(&frames(&[&torn[0], &torn[1], &torn[3], STOP]), "hi \u{fffd} there");
    check_text(&frames(&[&torn[0], &torn[1], STOP]), "hi \u{fffd}");
    let mut body = frames(&[&content("\"a__b\""), STOP]).into_bytes();
    let at = body.iter().position(|b| *b == b'_').unwrap();
    body[at..at + 2].copy_from_slice(b"\xff\xfe");
    assert_eq!(decode(&body).0.text(), "a\u{fffd}\u{fffd}b");
    let refusal = r#"{"choices":[{"delta":{"refusal":"I will not."},"finish_reason":"content_filter"}]}"#;
    let (reply, end) = decode(frames(&[refusal]).as_bytes());
    assert_eq!((end, reply.text().as_str(), reply.stop), (Ok(()), "I will not.", Some(StopReason::Filtered)));
}

#[test]
fn a_whole_completion_is_read_too() {
    let whole = r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    check_text(whole, "hello");
    check_text(&format!("{whole}\ndata: [DONE]\n\n"), "hello");
    check_text(&frames(&[whole, "[DONE]"]), "hello");
    check_text(&frames(&[&content("\"hello\""), whole]), "hello");
    let usage = decode(whole.as_bytes()).0.usage;
    assert_eq!(usage, Some(Usage { input_tokens: 1, output_tokens: 2 }));
    let call = r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"x","function":{"name":"cmd","arguments":"{}"}}]}}]}"#;
    assert_eq!(decode(call.as_bytes()).0.calls().count(), 1);
}

#[test]
fn the_reason_is_kept_and_the_calls_with_it() {
    let call = calls(&format!(r#"{{"index":0,"id":"x","function":{{"name":"cmd","arguments":"{ONE}"}}}}"#));
    for (reason, stop) in [
        ("stop", StopReason::Finished),
        ("tool_calls", StopReason::Finished),
        ("whatever", StopReason::Finished),
        ("length", StopReason::Length),
        ("content_filter", StopReason::Filtered),
    ] {
        let (reply, end) = decode(frames(&[&call, &STOP.replace("stop", reason)]).as_bytes());
        assert_eq!((end, reply.stop, reply.calls().count()), (Ok(()), Some(stop), 1), "{reason}");
    }
    check_text(&frames(&[&content("\"hi\""), TOOLS]), "hi");
}

#[test]
fn an_incomplete_reply_is_an_error() {
    use ChatErrorKind::Stream;
    let hello = content(r#""hello""#);
    let call = calls(&format!(r#"{{"index":0,"id":"x","function":{{"name":"cmd","arguments":"{ONE}"}}}}"#));
    check_error(&frames(&[&hello]), Stream, "provider stream ended before [DONE]", false);
    check_error(&frames(&[&call]), Stream, "provider stream ended before [DONE]", false);
    check_error("", Stream, "provider stream ended before [DONE]", false);
    check_error("Not found", Stream, "provider stream ended before [DONE]", false);
    check_error("data: [DONE]\n\n", Stream, "provider stream contained no valid payload", false);
    let empty = "provider stream contained no assistant content or tool calls";
    check_error(&frames(&[STOP, "[DONE]"]), Stream, empty, false);
    check_error(&frames(&["{\"a\":", STOP]), Stream, "provider sent malformed SSE data", false);
    let (reply, _) = decode(frames(&[&hello, &call]).as_bytes());
    assert_eq!((reply.text().as_str(), reply.calls().count(), reply.stop), ("hello", 1, None));
}

#[test]
fn errors_in_the_stream_are_the_providers() {
    let check = |payload: &str, words: &str, transient| {
        let message = format!("provider stream error: {words}");
        check_error(&frames(&[payload, "[DONE]"]), ChatErrorKind::Provider, &message, transient);
        if !payload.starts_with("event") {
            check_error(payload, ChatErrorKind::Provider, &message, transient);
        }
    };
    check(r#"{"id":"c1","choices":[],"error":{"message":"too long","code":400}}"#, "too long", false);
    check(r#"{"error":{"message":"busy","code":502}}"#, "busy", true);
    check(r#"{"error":"text"}"#, "text", false);
    check(r#"{"error":{}}"#, "provider returned an error payload", false);
    check(r#"[{"error":{"message":"wrapped"}}]"#, "wrapped", false);
    check(r#"{"object":"error","message":"vllm","code":"server_error"}"#, "vllm", true);
    check(r#"{"type":"error","error":{"message":"x","code":"insufficient_quota"}}"#, "x", false);
    let gone = r#"{"choices":[{"delta":{},"finish_reason":"error"}],"error":{"message":"gone","code":502}}"#;
    check(gone, "gone", true);
    check(r#"{"choices":[{"finish_reason":"error","error":{"message":"inner"}}]}"#, "inner", false);
    check(
        r#"{"choices":[{"finish_reason":"stop","native_finish_reason":"network_error"}]}"#,
        "network_error",
        false,
    );
    let event = "event: error\ndata: {\"code\":\"InvalidParameter\",\"message\":\"foreign\"}\n\n";
    check_error(event, ChatErrorKind::Provider, "provider stream error: foreign", false);
    let plain = "event: error\ndata: upstream is gone\n\n";
    check_error(plain, ChatErrorKind::Provider, "provider stream error: upstream is gone", false);
    let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(17 * 1024));
    let mut reply = Reply::default();
    let failure = run(&[frames(&[&long]).as_bytes()], &Limits::default(), &mut reply).unwrap_err();
    let expected = "provider stream error: provider error text exceeded the response limit";
    assert_eq!(failure.error.message, expected);
}

#[test]
fn bounds_have_their_literals() {
    let mut limits = Limits::default();
    for limit in [&mut limits.text, &mut limits.arguments, &mut limits.call_name, &mut limits.reasoning] {
        limit.max = 30;
    }
    limits.calls.max = 1;
    let check = |payloads: &[&str], message: &str, setting: &str| {
        let mut reply = Reply::default();
        let error = run(&[frames(payloads).as_bytes()], &limits, &mut reply).unwrap_err().error;
        assert!(error.message.starts_with(message) && error.message.contains(setting), "{}", error.message);
    };
    let text = content(r#""0123456789abcdef""#);
    check(&[&text, &text], "provider assistant content exceeded the response limit", "text_kib");
    let long = "x".repeat(31);
    let call = |head: &str| calls(&format!(r#"{{{head}}}"#));
    let id = call(&format!(r#""id":"{long}""#));
    check(&[&id], "provider tool-call id exceeded the response limit", "call_name_kib");
    let name = call(&format!(r#""function":{{"name":"{long}"}}"#));
    check(&[&name], "provider tool-call name exceeded the response limit", "call_name_kib");
    let arguments = call(r#""index":0,"id":"a","function":{"name":"cmd","arguments":"0123456789abcdef"}"#);
    check(&[&arguments, &arguments], "provider tool arguments exceeded the response limit", "arguments_kib");
    let two = calls(r#"{"index":0,"id":"a"},{"index":1,"id":"b"}"#);
    check(&[&two], "provider response exceeded the tool-call limit", "calls");
    let thought = r#"{"choices":[{"delta":{"reasoning_details":[{"text":"0123456789abcdef0123"}]}}]}"#;
    check(&[thought], "provider reasoning details exceeded the response limit", "reasoning_kib");
}

fn payload() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "choices",
        "delta",
        "message",
        "content",
        "tool_calls",
        "index",
        "id",
        "function",
        "name",
        "arguments",
        "finish_reason",
        "usage",
        "error",
        "reasoning_details",
        "reasoning",
        "function_call",
        "extra_content",
    ]);
    let leaf = prop::sample::select(vec![
        "null",
        "0",
        "-1",
        "\"\"",
        "\"x\"",
        "\"{}\"",
        "\"\\ud83d\"",
        "true",
        "1e9",
    ]);
    let value = leaf.prop_map(str::to_owned).prop_recursive(6, 40, 4, move |inner| {
        let pair = (names.clone(), inner.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(pair, 0..4).prop_map(|pairs| format!("{{{}}}", pairs.join(","))),
        ]
    });
    value.prop_map(|value| format!("{{\"choices\":[{{\"delta\":{value},\"message\":{value}}}]}}"))
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _ = run(&[&bytes], &Limits::default(), &mut Reply::default());
    }

    #[test]
    fn no_chunks_panic_and_what_they_give_can_be_sent(payloads in prop::collection::vec(payload(), 1..5)) {
        let payloads: Vec<_> = payloads.iter().map(String::as_str).chain(["[DONE]"]).collect();
        let mut reply = Reply::default();
        let _ = run(&[frames(&payloads).as_bytes()], &Limits::default(), &mut reply);
        requests::encoded(&[Message::Assistant { blocks: reply.blocks }], Dialect::default());
    }
}
