//! Faults that only a build with the feature `fault-injection` can have: a disk that fills up, a bug.

use serde_json::json;

use crate::support::{KEY, Rig, call, text};

/// Types of the events, without the session's own.
fn types(finished: &crate::support::Finished) -> Vec<String> {
    let lines = finished.stdout_text();
    let kind = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].as_str().unwrap().to_owned()
    };
    lines.lines().skip(1).map(kind).collect()
}

#[test]
fn a_message_that_cannot_be_kept_is_an_error_and_the_next_one_works() {
    // Append 1 is the header, 2 the first message.
    let finished = Rig::new().env("LUCY_FAULT_APPEND", "2-2").reply(text("hi")).ask("lost").ask("kept").run();
    finished.code(1);
    assert_eq!(types(&finished), ["error", "assistant_delta", "turn_end"]);
    assert_eq!(finished.errors(), ["session storage error: no storage space"]);
    let log = finished.session_log();
    assert_eq!(log.len(), 3, "{log:?}");
    assert_eq!(log[1]["message"]["content"], "kept");
}

#[test]
fn a_session_that_cannot_begin_leaves_no_file() {
    let finished = Rig::new().env("LUCY_FAULT_APPEND", "1-1").ask("x").run();
    finished.code(1).stdout("");
    finished.stderr_contains("unable to create session file");
    let sessions = finished.rig().home().join(".lucy/sessions");
    assert_eq!(std::fs::read_dir(sessions).unwrap().count(), 0);
}

#[test]
fn a_result_that_cannot_be_kept_is_kept_with_the_interruption() {
    let finished = Rig::new()
        .env("LUCY_FAULT_APPEND", "4-4")
        .reply(call("cmd", json!({"command": "echo seen"})))
        .reply(text("done"))
        .ask("x")
        .ask("y")
        .run();
    finished.code(1);
    assert_eq!(types(&finished), ["tool_call", "error", "assistant_delta", "turn_end"]);
    let log = finished.session_log();
    assert_eq!((&log[3]["record"], &log[3]["phase"]), (&json!("interruption"), &json!("cmd")));
    assert_eq!(log[3]["tool_results"][0]["result"]["stdout"], "seen\n");
    let second = &finished.requests()[1];
    assert_eq!(second["messages"][3]["role"], "tool");
    assert!(second["messages"][3]["content"].as_str().unwrap().contains("seen"), "{second}");
}

#[test]
fn a_disk_that_stays_full_loses_only_what_was_not_kept() {
    let rig = Rig::new().env("LUCY_FAULT_APPEND", "3-9").reply(text("hi"));
    let finished = rig.ask("x").run();
    finished.code(1);
    assert_eq!(types(&finished), ["assistant_delta", "error"]);
    let id = finished.session_id();
    let finished =
        finished.again().env("LUCY_FAULT_APPEND", "0-0").resume(&id).reply(text("ho")).ask("y").run();
    finished.success();
    assert_eq!(finished.requests()[0]["messages"].as_array().unwrap().len(), 3);
}

#[test]
fn a_bug_ends_with_its_own_code_and_without_the_key() {
    let finished = Rig::new()
        .env("LUCY_FAULT_PANIC", &format!("it holds {KEY} in its hands"))
        .reply(call("cmd", json!({"command": "echo never"})))
        .ask("x")
        .run();
    finished.code(134);
    finished.stderr_contains("internal error").stderr_contains("it holds [REDACTED] in its hands");
    assert!(finished.session_log().iter().any(|line| line["message"]["role"] == "assistant"));
}
