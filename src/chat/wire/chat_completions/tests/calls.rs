//! Tool calls, whatever their numbers, ids and names look like.

use serde_json::Value;

use super::*;

#[track_caller]
fn check_calls(entries: &[&str], expected: &[&str]) {
    let chunks: Vec<_> = entries.iter().map(|entries| calls(entries)).collect();
    let mut payloads: Vec<_> = chunks.iter().map(String::as_str).collect();
    payloads.extend([TOOLS, "[DONE]"]);
    let (reply, end) = decode(frames(&payloads).as_bytes());
    assert_eq!(end, Ok(()));
    let commands: Vec<_> = reply
        .calls()
        .map(|call| {
            assert_eq!(call.name, "cmd");
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            arguments["command"].as_str().unwrap_or("").to_owned()
        })
        .collect();
    assert_eq!(commands, expected);
    let mut ids: Vec<_> = reply.calls().map(|call| call.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), expected.len(), "ids are not unique: {ids:?}");
    assert!(ids.iter().all(|id| !id.is_empty()));
}

#[test]
fn calls_are_assembled_however_they_are_numbered() {
    let entry = |head: &str, arguments: &str| {
        format!(r#"{{{head},"function":{{"name":"cmd","arguments":"{arguments}"}}}}"#)
    };
    let more = |head: &str, arguments: &str| format!(r#"{{{head}"function":{{"arguments":"{arguments}"}}}}"#);
    let (a, b) = (r#"{\"command\":"#, r#"\"echo one\"}"#);
    let one = entry(r#""index":0,"id":"call_1""#, ONE);
    check_calls(&[&one], &["echo one"]);
    // 69: index 0 for all.
    let same = entry(r#""index":0,"id":"call_2""#, TWO);
    check_calls(&[&one, &same], &["echo one", "echo two"]);
    check_calls(&[&format!("{one},{same}")], &["echo one", "echo two"]);
    let empty_id = |arguments: &str| more(r#""index":0,"id":"","#, arguments);
    let begin = |id: &str| entry(&format!(r#""index":0,"id":"{id}""#), "");
    check_calls(&[&begin("x"), &empty_id(ONE), &begin("y"), &empty_id(TWO)], &["echo one", "echo two"]);
    // 68: no index.
    check_calls(&[&entry(r#""id":"call_1""#, ""), &more("", a), &more("", b)], &["echo one"]);
    let whole = |command: &str| format!(r#"{{"function":{{"name":"cmd","arguments":"{command}"}}}}"#);
    check_calls(&[&whole(ONE), &whole(TWO)], &["echo one", "echo two"]);
    check_calls(&[&entry(r#""id":"x""#, ONE), &entry(r#""id":"y""#, TWO)], &["echo one", "echo two"]);
    // 70: indices 7 and 1, run in index order.
    check_calls(
        &[&entry(r#""index":7,"id":"x""#, TWO), &entry(r#""index":1,"id":"y""#, ONE)],
        &["echo one", "echo two"],
    );
    // 71: no ids, or late ones.
    check_calls(
        &[&entry(r#""index":0"#, ONE), &entry(r#""index":1,"id":null"#, TWO)],
        &["echo one", "echo two"],
    );
    check_calls(&[&entry(r#""index":0"#, ONE), &entry(r#""index":0"#, TWO)], &["echo one", "echo two"]);
    check_calls(&[&entry(r#""index":0"#, a), &more(r#""index":0,"id":"late","#, b)], &["echo one"]);
    // 72 to 74: repeated ids and names, empty names.
    check_calls(&[&entry(r#""index":0,"id":"x""#, a), &entry(r#""index":0,"id":"x""#, b)], &["echo one"]);
    check_calls(
        &[&entry(r#""index":0,"id":"x""#, ""), &entry(r#""index":0"#, a), &entry(r#""index":0"#, b)],
        &["echo one"],
    );
    let nameless = r#"{"index":0,"function":{"name":"","arguments":"\"echo one\"}"}}"#;
    check_calls(
        &[&entry(r#""index":0,"id":"x""#, a), r#"{"index":0,"function":{"name":null}}"#, nameless],
        &["echo one"],
    );
    // 75 to 77: drift, interleaving, several fragments in a chunk.
    check_calls(&[&entry(r#""index":0,"id":"x""#, a), &more(r#""index":1,"#, b)], &["echo one"]);
    let (x, y) = (entry(r#""index":0,"id":"x""#, a), entry(r#""index":1,"id":"y""#, a));
    let y2 = more(r#""index":1,"#, r#"\"echo two\"}"#);
    check_calls(&[&x, &y, &format!("{},{y2}", more(r#""index":0,"#, b))], &["echo one", "echo two"]);
    check_calls(&[&format!("{x},{}", more(r#""index":0,"#, b))], &["echo one"]);
    // 78: one id for two calls.
    check_calls(&[&one, &entry(r#""index":1,"id":"call_1""#, TWO)], &["echo one", "echo two"]);
    // 79, 81, 83: decorated names, no arguments, arguments as an object.
    for name in ["functions.cmd", "cmd<|channel|>commentary", "default_api:cmd"] {
        check_calls(&[&one.replace("\"cmd\"", &format!("\"{name}\""))], &["echo one"]);
    }
    check_calls(&[&entry(r#""index":0,"id":"x""#, "")], &[""]);
    check_calls(
        &[r#"{"index":0,"id":"x","function":{"name":"cmd","arguments":{"command":"echo one"}}}"#],
        &["echo one"],
    );
    // 18, 85, 87: what is put in order at the end.
    check_calls(
        &[&entry(r#""index":0,"id":"x""#, r#"{\"command\":\"echo a\\ud99cb\"}"#)],
        &["echo a\u{fffd}b"],
    );
    check_calls(
        &[&entry(r#""index":0,"id":"x""#, r#"{\"command\":\"echo one\"}\n\nI will now look."#)],
        &["echo one"],
    );
    check_calls(&[&entry(r#""index":0,"id":"x""#, r#"{\"command\":\"a\nb\"}"#)], &["a\nb"]);
}

#[test]
fn a_made_up_id_has_nine_letters_and_an_unknown_name_stays() {
    let chunk = calls(r#"{"function":{"name":"functions.rm","arguments":"{}{}"}}"#);
    let (reply, _) = decode(frames(&[&chunk, TOOLS]).as_bytes());
    let call = reply.calls().next().unwrap();
    assert!(call.id.len() == 9 && call.id.bytes().all(|b| b.is_ascii_alphanumeric()), "{}", call.id);
    assert_eq!((call.name.as_str(), call.arguments.as_str()), ("functions.rm", "{}{}"));
}

#[test]
fn the_legacy_form_is_one_call() {
    let legacy =
        |inner: &str| format!(r#"{{"choices":[{{"delta":{{"content":null,"function_call":{inner}}}}}]}}"#);
    let begin = legacy(r#"{"name":"cmd","arguments":""}"#);
    let rest = legacy(&format!(r#"{{"arguments":"{ONE}"}}"#));
    let stop = TOOLS.replace("tool_calls", "function_call");
    let (reply, end) = decode(frames(&[&begin, &rest, &stop, "[DONE]"]).as_bytes());
    assert_eq!(end, Ok(()));
    assert_eq!(reply.calls().next().unwrap().arguments, r#"{"command":"echo one"}"#);
}
