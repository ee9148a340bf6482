//! Sessions: what is stored and in which form, resuming, listing, damage and locks.

use std::os::unix::fs::PermissionsExt;

use lucy::demo::{Chunk, Completion};
use serde_json::{Value, json};

use crate::support::{Finished, Rig, call, http, text};

const ID: &str = "1770000000000-1234-0";
const HEADER: &str = concat!(
    r#"{"record":"session","version":1,"session_id":"1770000000000-1234-0","created_at":1770000000000,"#,
    r#""cwd":"{cwd}","boot_system_prompt":"An older prompt.","#,
    r#""llm":{"base_url":"{base_url}","model":"older-model","api_key_env":"LUCY_TEST_KEY"}}"#,
    "\n"
);

fn message(message: Value) -> String {
    format!("{}\n", json!({"record": "message", "timestamp": 1_770_000_000_001_u64, "message": message}))
}

/// A rig with the session `ID` in its home: a header, then these lines.
fn with_session(lines: &str) -> Rig {
    Rig::new().session_file(ID, &format!("{HEADER}{lines}"))
}

fn keys(value: &Value, text: &str) -> Vec<String> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
    keys.sort_by_key(|key| text.find(&format!("\"{key}\":")).expect("a key"));
    keys
}

#[test]
fn records_have_the_published_form() {
    let finished =
        Rig::new().reply(call("cmd", json!({"command": "echo hi"}))).reply(text("done")).ask("x").run();
    finished.success();
    let text = finished.session_text();
    let records = finished.session_log();
    let header_keys = keys(&records[0], text.lines().next().unwrap());
    assert_eq!(
        header_keys[..6],
        ["record", "version", "session_id", "created_at", "cwd", "boot_system_prompt"]
    );
    assert_eq!(
        (&records[0]["version"], &records[0]["session_id"]),
        (&json!(1), &json!(finished.session_id()))
    );
    assert_eq!(records[0]["cwd"], json!(finished.rig().work()));
    let llm = &records[0]["llm"];
    assert_eq!(llm["base_url"], json!(finished.rig().base_url()));
    assert_eq!((&llm["model"], &llm["api_key_env"]), (&json!("test-model"), &json!("LUCY_TEST_KEY")));
    assert!(llm.get("effort").is_none());
    let roles: Vec<_> = records[1..].iter().map(|record| &record["message"]["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    let assistant = &records[2]["message"];
    assert!(assistant.get("content").is_none(), "an answer without text has no content: {assistant}");
    assert_eq!(
        assistant["tool_calls"][0],
        json!({"id": "call-1", "name": "cmd", "arguments": "{\"command\":\"echo hi\"}"})
    );
    let tool = &records[3]["message"];
    assert_eq!((&tool["name"], &tool["tool_call_id"]), (&json!("cmd"), &json!("call-1")));
    let result: Value = serde_json::from_str(tool["content"].as_str().unwrap()).unwrap();
    assert_eq!(result["stdout"], "hi\n");
}

#[test]
fn files_are_private() {
    let finished = Rig::new().reply(text("hi")).ask("x").run();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = &finished.session_files()[0];
    assert_eq!((mode(file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert_eq!(file.file_stem().unwrap().to_str().unwrap(), finished.session_id());
}

#[test]
fn a_resumed_session_sends_the_same_bytes() {
    let first = Rig::new()
        .reply(call("cmd", json!({"command": "printf 'a\\nb'; exit 4"})))
        .reply(Completion::new().text("d\u{f6}ne").finish())
        .reply(text("live"))
        .ask("one")
        .ask("two")
        .run();
    first.success();
    let live = first.exchanges()[2].body.clone();
    let session = first.session_text();
    let before_two: String = session.lines().take(5).map(|line| format!("{line}\n")).collect();
    std::fs::write(&first.session_files()[0], before_two).unwrap();
    let id = first.session_id();
    let resumed = first.resume(&id).reply(text("resumed")).ask("two").run();
    resumed.success();
    assert_eq!(String::from_utf8_lossy(&resumed.exchanges()[0].body), String::from_utf8_lossy(&live));
    assert_eq!(
        resumed.events_of_type("session")[0],
        json!({"type": "session", "session_id": id, "resumed": true})
    );
}

#[test]
fn a_resumed_session_keeps_its_settings_even_with_a_broken_config() {
    let finished = with_session("").config("not toml [").resume(ID).reply(text("hi")).ask("x").run();
    finished.code(0);
    let body = &finished.requests()[0];
    assert_eq!(
        (&body["model"], &body["messages"][0]["content"]),
        (&json!("older-model"), &json!("An older prompt."))
    );
}

#[test]
fn ids_that_are_no_ids() {
    for id in ["../x", "a/b", "", "a b"] {
        Rig::new()
            .resume(id)
            .run()
            .stdout("")
            .stderr_contains("lucy: session id contains invalid characters");
    }
}

#[test]
fn calls_without_a_result_get_one() {
    let call = json!({"role": "assistant", "tool_calls": [{"id": "a", "name": "cmd", "arguments": "{\"command\":\"x\"}"}]});
    let lines = message(json!({"role": "user", "content": "old"})) + &message(call);
    let finished = with_session(&lines).resume(ID).reply(text("hi")).ask("x").run();
    finished.code(0);
    assert_eq!(finished.exchanges()[0].audit, []);
}

#[test]
fn a_torn_tail_is_moved_aside_and_the_session_goes_on() {
    let whole = message(json!({"role": "user", "content": "old"}));
    let finished =
        with_session(&format!("{whole}{{\"record\":\"mess")).resume(ID).reply(text("hi")).ask("x").run();
    finished.code(0);
    assert_eq!(finished.session_log().len(), 4, "header, old, new, answer");
    let aside = std::fs::read_dir(finished.rig().home().join(".lucy/recovery")).expect("a recovery folder");
    let torn = std::fs::read_to_string(aside.flatten().next().expect("a file").path()).unwrap();
    assert_eq!(torn.trim_end(), "{\"record\":\"mess");
}

#[test]
fn a_last_record_without_its_newline_does_not_glue() {
    let whole = message(json!({"role": "user", "content": "old"}));
    let finished = with_session(whole.trim_end()).resume(ID).reply(text("hi")).ask("x").run();
    finished.code(0);
    assert_eq!(finished.session_log().len(), 4);
}

#[test]
fn damage_in_the_middle_is_counted_and_left_alone() {
    let lines = format!("{{broken}}\n{}", message(json!({"role": "user", "content": "old"})));
    let finished = with_session(&lines).resume(ID).reply(text("hi")).ask("x").run();
    finished.code(0);
    assert_eq!(finished.requests()[0]["messages"][1]["content"], "old");
    assert!(finished.session_text().contains("{broken}\n"));
}

#[test]
fn unknown_fields_and_records_are_tolerated() {
    let lines = format!(
        "{{\"record\":\"from_the_future\",\"timestamp\":1}}\n{}",
        message(json!({"role": "user", "content": "old", "mood": "good"}))
    );
    let finished = with_session(&lines).resume(ID).reply(text("hi")).ask("x").run();
    finished.code(0);
    assert_eq!(finished.requests()[0]["messages"][1]["content"], "old");
}

fn list(rig: Rig) -> Finished {
    rig.args(["--list-sessions"]).run()
}

#[test]
fn listing() {
    list(Rig::new()).success().stdout("");
    let lines = message(json!({"role": "user", "content": "first"}))
        + &message(json!({"role": "assistant", "content": "last"}));
    list(with_session(&lines)).success().stdout(
        "{\"type\":\"session_metadata\",\"session_id\":\"SESSION\",\"created_at\":0,\"updated_at\":0,\
         \"first_message\":\"user: first\",\"last_message\":\"assistant: last\"}\n",
    );
    let empty = list(with_session(""));
    let metadata = &empty.events_of_type("session_metadata")[0];
    assert_eq!((&metadata["first_message"], &metadata["last_message"]), (&Value::Null, &Value::Null));
    assert_eq!(metadata["updated_at"], metadata["created_at"]);
}

#[test]
fn listing_cuts_long_previews_and_leaves_damaged_files_out() {
    let lines = message(json!({"role": "user", "content": "z".repeat(121)}));
    let rig = with_session(&lines).session_file("1770000000001-1-0", "nonsense\n");
    let finished = list(rig);
    finished.code(0);
    let listed = finished.events_of_type("session_metadata");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["first_message"], json!(format!("user: {}\u{2026}", "z".repeat(120))));
    finished.stderr_contains("lucy: ");
}

#[test]
fn listing_names_nothing_that_cannot_be_resumed() {
    let named = |id: &str| HEADER.replace(ID, id);
    let rig = with_session("").session_file("a b", &named("a b")).session_file("n\u{f6}", &named("n\u{f6}"));
    let finished = list(rig);
    finished.success();
    assert_eq!(finished.events_of_type("session_metadata").len(), 1);
}

#[test]
fn listing_is_newest_first() {
    let session = |id: &str, at: u64| {
        let header =
            HEADER.replace(ID, id).replace("\"created_at\":1770000000000", &format!("\"created_at\":{at}"));
        (id.to_string(), header)
    };
    let rows =
        [session("1770000000002-1-0", 5), session("1770000000003-1-0", 9), session("1770000000004-1-0", 7)];
    let rig = rows.iter().fold(Rig::new(), |rig, (id, lines)| rig.session_file(id, lines));
    let finished = list(rig);
    let times: Vec<_> =
        finished.events_of_type("session_metadata").iter().map(|row| row["updated_at"].clone()).collect();
    assert_eq!(times, [json!(9), json!(7), json!(5)]);
}

#[test]
fn a_session_has_one_writer() {
    let stalled = Completion::new().text("a").chunk(Chunk::HoldMs(60_000)).unfinished();
    let mut running = Rig::new().reply(stalled).ask("x").start();
    let id = running.wait_for_type("session")["session_id"].as_str().unwrap().to_string();
    running.wait_for_type("assistant_delta");
    let second = running.second(&["--session", &id]);
    assert_eq!(second.status.code(), Some(4));
    let complaint = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(complaint.starts_with("lucy: session is in use by process "), "{complaint}");
    running.kill();
}

#[test]
fn after_a_kill_the_session_goes_on() {
    let mut running = Rig::new().reply(call("cmd", json!({"command": "sleep 60"}))).ask("x").start();
    running.until("a command", |running| !running.children().is_empty());
    running.kill();
    let killed = running.wait();
    let id = killed.session_id();
    let finished = killed.resume(&id).reply(text("hi")).ask("y").run();
    finished.code(0);
    assert_eq!(finished.exchanges()[0].audit, []);
    assert_eq!(finished.reply_text(), "hi");
}

#[test]
fn a_failed_turn_leaves_a_history_that_can_go_on() {
    let finished = Rig::new().reply(http(400, "{}")).reply(text("hi")).ask("x").ask("y").run();
    finished.code(1);
    let kept = finished.session_log().into_iter().find(|record| record["record"] == "interruption").unwrap();
    assert_eq!((&kept["reason"], &kept["phase"]), (&json!("provider_error"), &json!("provider_stream")));
    assert_eq!(finished.exchanges()[1].audit, []);
}
