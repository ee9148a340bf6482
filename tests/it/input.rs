//! The input of a pipe: which records are messages, which are mistakes, and that no byte ends it.

use serde_json::json;

use crate::support::{Finished, Rig, text};

const MALFORMED: &str = "input must be a JSONL message record";

/// Runs with these bytes as input and with `replies` answers that say `ok`.
fn run(replies: usize, stdin: &[u8]) -> Finished {
    Rig::new().replies(&text("ok"), replies).stdin(stdin).run()
}

/// The text of the user's message in each request.
fn asked(finished: &Finished) -> Vec<String> {
    let last = |request: &serde_json::Value| {
        request["messages"].as_array()?.last()?["content"].as_str().map(String::from)
    };
    finished.requests().iter().filter_map(last).collect()
}

/// One bad record, then a good one: an error with this message, then the turn.
#[track_caller]
fn refused(record: &[u8], message: &str) {
    let shown = String::from_utf8_lossy(&record[..record.len().min(80)]).into_owned();
    let finished = run(1, &[record, b"\n{\"type\":\"message\",\"text\":\"x\"}\n"].concat());
    finished.code(1).stderr("");
    assert_eq!(finished.errors(), [message], "{shown}");
    assert_eq!(
        (asked(&finished), finished.events_of_type("turn_end").len()),
        (vec!["x".to_string()], 1),
        "{shown}"
    );
}

#[test]
fn malformed_records() {
    for record in [
        "hello",
        "{",
        "[]",
        "[\"message\",\"hi\"]",
        "null",
        "1",
        "\"message\"",
        "{}",
        "{\"text\":\"x\"}",
        "{\"type\":1,\"text\":\"x\"}",
        "{\"type\":null}",
        "{\"type\":\"message\",\"text\":1}",
        "{\"type\":\"message\",\"text\":[\"x\"]}",
        "{\"type\":\"message\",\"type\":\"message\",\"text\":\"x\"}",
        "{\"type\":\"message\",\"text\":\"x\",\"text\":\"y\"}",
        "{\"type\":\"message\",\"text\":\"x\"} trailing",
    ] {
        refused(record.as_bytes(), MALFORMED);
    }
    refused(b"{\"type\":\"system\",\"text\":\"x\"}", "input record type must be message");
    refused(b"{\"type\":\"message\"}", "message record requires a text string");
    refused(b"{\"type\":\"message\",\"text\":null}", "message record requires a text string");
}

#[test]
fn bytes_that_are_no_text() {
    refused(b"{\"type\":\"message\",\"text\":\"\xff\"}", MALFORMED);
    refused(b"\xfe\xff\x00", MALFORMED);
    refused(b"{\"type\":\"message\",\"text\":\"a\0b\"}", MALFORMED);
    refused(br#"{"type":"message","text":"\ud83d"}"#, MALFORMED);
    refused(b"\0\0\0", MALFORMED);
}

#[test]
fn ends_of_lines() {
    let record = |text: &str| json!({"type": "message", "text": text}).to_string();
    for (stdin, texts) in [
        (format!("{}\r\n{}\r\n", record("a"), record("b")), vec!["a", "b"]),
        (format!("\n\r\n  \t\n{}\n\n", record("a")), vec!["a"]),
        (record("no newline at the end"), vec!["no newline at the end"]),
        (format!("\u{feff}{}\n", record("a")), vec!["a"]),
        (String::new(), vec![]),
    ] {
        let finished = run(texts.len(), stdin.as_bytes());
        finished.success();
        assert_eq!(asked(&finished), texts, "{stdin:?}");
    }
}

#[test]
fn a_lone_cr_does_not_end_a_record() {
    let two = "{\"type\":\"message\",\"text\":\"a\"}\r{\"type\":\"message\",\"text\":\"b\"}\n";
    let finished = run(0, two.as_bytes());
    finished.code(1);
    assert_eq!(finished.errors(), [MALFORMED]);
}

#[test]
fn text_arrives_as_it_was_written() {
    for written in [
        "",
        " ",
        "line\u{2028}and\u{2029}paragraph",
        "tab\tnewline\n\"\\",
        "\u{1F600} e\u{301}",
        "\u{0}\u{7f}",
    ] {
        let finished = Rig::new().reply(text("ok")).ask(written).run();
        finished.success();
        assert_eq!(asked(&finished), [written]);
    }
    // Separators that JSON allows unescaped must not split a line.
    let raw = "{\"type\":\"message\",\"text\":\"a\u{2028}b\u{85}c\"}\n";
    assert_eq!(asked(&run(1, raw.as_bytes())), ["a\u{2028}b\u{85}c"]);
}

#[test]
fn unknown_fields_are_ignored() {
    let finished = run(1, b"{\"id\":7,\"type\":\"message\",\"more\":{\"type\":\"x\"},\"text\":\"a\"}\n");
    finished.success();
    assert_eq!(asked(&finished), ["a"]);
}

#[test]
fn a_record_of_20_mib_is_one_error() {
    let mut record = b"{\"type\":\"message\",\"text\":\"".to_vec();
    record.resize(20 * 1024 * 1024, b'x');
    record.extend(b"\"}");
    let finished = run(1, &[&record[..], b"\n{\"type\":\"message\",\"text\":\"x\"}\n"].concat());
    finished.code(1).stderr("");
    assert_eq!((finished.errors().len(), asked(&finished)), (1, vec!["x".to_string()]));
}

#[test]
fn a_record_of_a_mebibyte_is_a_message() {
    let long = "y".repeat(1024 * 1024);
    let finished = Rig::new().reply(text("ok")).ask(&long).run();
    finished.success();
    assert!(asked(&finished)[0] == long);
}

#[test]
fn ten_thousand_malformed_records_are_ten_thousand_errors() {
    let finished =
        run(1, &[b"nonsense\n".repeat(10_000), b"{\"type\":\"message\",\"text\":\"x\"}\n".to_vec()].concat());
    finished.code(1);
    assert_eq!((finished.errors().len(), finished.reply_text().as_str()), (10_000, "ok"));
}

#[test]
fn messages_wait_their_turn_in_order() {
    let finished =
        Rig::new().reply(text("1")).reply(text("2")).reply(text("3")).ask("a").ask("b").ask("c").run();
    finished.success().events(json!([
        {"type": "session", "session_id": "SESSION", "resumed": false},
        {"type": "assistant_delta", "text": "1"}, {"type": "turn_end"},
        {"type": "assistant_delta", "text": "2"}, {"type": "turn_end"},
        {"type": "assistant_delta", "text": "3"}, {"type": "turn_end"},
    ]));
    let history = &finished.requests()[2]["messages"];
    let roles: Vec<_> =
        history.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant", "user"]);
}

#[test]
fn the_session_is_announced_before_anything_is_read() {
    let mut running = Rig::new().reply(text("ok")).start();
    assert_eq!(running.next_event()["type"], "session");
    running.ask("x");
    running.wait_for_type("turn_end");
    running.close_stdin();
    running.wait().success();
}
