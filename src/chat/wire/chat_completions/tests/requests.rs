//! What is sent: the request itself, and replies on their way back.

use serde_json::{Value, json};

use super::*;

pub fn encoded(messages: &[Message], dialect: Dialect) -> Value {
    let request = Request { model: "m", effort: None, system: "be brief", messages, tools: &[CMD] };
    let mut out = Vec::new();
    encode(&request, dialect, &mut out);
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn a_request_has_its_keys_in_order_and_no_more() {
    let messages = [Message::User { text: "hi \"you\"".to_owned() }];
    let mut request =
        Request { model: "m", effort: Some(" high"), system: "s", messages: &messages, tools: &[CMD] };
    let text = |request: &Request<'_>, usage| {
        let mut out = Vec::new();
        encode(request, Dialect { usage, empty_content: false }, &mut out);
        String::from_utf8(out).unwrap()
    };
    let messages =
        r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi \"you\""}],"model":"m""#;
    let tools = r#","tools":[{"type":"function","function":{"name":"cmd","description":"Runs it.","parameters":{"type":"object",  "b":1,"a":2}}}]}"#;
    let options = r#","reasoning_effort":" high","stream":true,"stream_options":{"include_usage":true}"#;
    assert_eq!(text(&request, true), format!("{messages}{options}{tools}"));
    (request.effort, request.tools) = (None, &[]);
    assert_eq!(text(&request, false), format!(r#"{messages},"stream":true}}"#));
}

#[test]
fn a_request_is_valid_whatever_the_history_holds() {
    let call = |arguments: &str| {
        let (id, name) = ("x".to_owned(), "cmd".to_owned());
        ContentBlock::ToolCall(ToolCall { id, name, arguments: arguments.to_owned() })
    };
    let text = |text: &str| ContentBlock::Text(text.to_owned());
    let opaque = ContentBlock::Opaque(Opaque { field: "reasoning".to_owned(), value: json!("hm") });
    let foreign = ContentBlock::Opaque(Opaque { field: "signature".to_owned(), value: json!("s") });
    let check = |blocks: Vec<ContentBlock>, empty_content, expected: Option<Value>| {
        let dialect = Dialect { usage: false, empty_content };
        let body = encoded(&[Message::Assistant { blocks }], dialect);
        assert_eq!(body["messages"].get(1), expected.as_ref());
    };
    let calls = |arguments: &str| json!([{"id": "x", "type": "function", "function": {"name": "cmd", "arguments": arguments}}]);
    check(vec![text("a"), text("b")], false, Some(json!({"role": "assistant", "content": "ab"})));
    check(
        vec![call("{")],
        false,
        Some(json!({"role": "assistant", "content": null, "tool_calls": calls("{}")})),
    );
    check(
        vec![call("{}")],
        true,
        Some(json!({"role": "assistant", "content": "", "tool_calls": calls("{}")})),
    );
    let blank = vec![text(" \n"), call(r#"{"a":"\ud83d"}"#), foreign.clone()];
    check(blank, false, Some(json!({"role": "assistant", "content": null, "tool_calls": calls("{}")})));
    check(vec![opaque.clone(), text("")], false, None);
    check(
        vec![opaque, text("a")],
        false,
        Some(json!({"role": "assistant", "content": "a", "reasoning": "hm"})),
    );
    check(vec![foreign, text("a")], false, Some(json!({"role": "assistant", "content": "a"})));
    let result = Message::ToolResult { id: "x".to_owned(), name: "cmd".to_owned(), content: String::new() };
    let expected = json!({"role": "tool", "content": "", "name": "cmd", "tool_call_id": "x"});
    assert_eq!(encoded(&[result], Dialect::default())["messages"][1], expected);
}

#[test]
fn reasoning_goes_back_under_the_name_it_came_with() {
    let thought = r#"{"choices":[{"delta":{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","index":0}]}}]}"#;
    let second = r#"{"choices":[{"delta":{"content":"","reasoning":" so","reasoning_details":[{"data":"e\ud83d"}]}}]}"#;
    let signed = calls(
        r#"{"id":"x","function":{"name":"cmd","arguments":"{}"},"extra_content":{"google":{"s":"sig"}}}"#,
    );
    let (reply, end) = decode(frames(&[thought, second, &content("\"hi\""), &signed, TOOLS]).as_bytes());
    assert_eq!((end, reply.text().as_str()), (Ok(()), "hi"));
    let body = encoded(&[Message::Assistant { blocks: reply.blocks }], Dialect::default());
    assert_eq!(
        body["messages"][1],
        json!({
            "role": "assistant",
            "content": "hi",
            "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}, {"data": "e\u{fffd}"}],
            "reasoning": "hm so",
            "tool_calls": [{
                "id": "x",
                "type": "function",
                "function": {"name": "cmd", "arguments": "{}"},
                "extra_content": {"google": {"s": "sig"}},
            }],
        })
    );
}

#[test]
fn made_up_tool_names_are_sent_in_a_valid_form() {
    let check = |name: &str, expected: &str| {
        let call = ToolCall { id: "x".to_owned(), name: name.to_owned(), arguments: "{}".to_owned() };
        let result =
            Message::ToolResult { id: "x".to_owned(), name: name.to_owned(), content: "no".to_owned() };
        let blocks = vec![ContentBlock::ToolCall(call)];
        let body = encoded(&[Message::Assistant { blocks }, result], Dialect::default());
        assert_eq!(body["messages"][1]["tool_calls"][0]["function"]["name"], expected);
        assert_eq!(body["messages"][2]["name"], expected);
    };
    check("cmd", "cmd");
    check("functions.rm é", "functions_rm__");
    check("", "unknown");
}
