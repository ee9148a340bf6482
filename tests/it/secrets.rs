//! The provider key: it reaches the provider, and nothing and nobody else.

use lucy::demo::Completion;
use serde_json::json;

use crate::support::{KEY, Rig, call, deltas, http, text};

#[test]
fn a_key_in_a_reply_is_redacted_wherever_the_deltas_are_cut() {
    for cut in 0..=KEY.len() {
        let (head, tail) = KEY.split_at(cut);
        let finished = Rig::new().reply(deltas(&["<", head, tail, ">"])).ask("x").run();
        finished.success().never_says(KEY);
        assert_eq!(finished.reply_text(), "<[REDACTED]>", "cut at {cut}");
    }
}

#[test]
fn a_key_letter_by_letter() {
    let letters: Vec<_> = KEY.chars().map(String::from).collect();
    let letters: Vec<_> = letters.iter().map(String::as_str).collect();
    let finished = Rig::new().reply(deltas(&letters)).ask("x").run();
    finished.success().never_says(KEY);
    assert_eq!(finished.reply_text(), "[REDACTED]");
}

#[test]
fn a_beginning_of_the_key_is_only_held_back() {
    let finished = Rig::new().reply(deltas(&["test-", "ke", "ttle test-key-3f9"])).ask("x").run();
    finished.success();
    assert_eq!(finished.reply_text(), "test-kettle test-key-3f9");
}

#[test]
fn a_held_beginning_comes_out_before_a_call() {
    let reply = Completion::new().text("test-k").call("call-1", "cmd", "{\"command\":\"true\"}").finish();
    let finished = Rig::new().reply(reply).reply(text("done")).ask("x").run();
    finished.success();
    let kinds: Vec<_> = finished
        .stdout_text()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(
        kinds,
        ["session", "assistant_delta", "tool_call", "tool_result", "assistant_delta", "turn_end"]
    );
}

#[test]
fn a_key_in_the_output_of_a_command() {
    let halves = "a=test-key; printf \"<$a-3f9a>\"; printf \"$a-3f9a\" >&2";
    let finished =
        Rig::new().reply(call("cmd", json!({"command": halves}))).reply(text("done")).ask("x").run();
    finished.success().never_says(KEY);
    let result = &finished.events_of_type("tool_result")[0]["result"];
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("<[REDACTED]>"), &json!("[REDACTED]")));
    assert!(!String::from_utf8_lossy(&finished.exchanges()[1].body).contains(KEY));
}

#[test]
fn a_key_in_arguments_is_redacted_but_runs_as_it_was_meant() {
    let command = format!("printf %s {KEY} | wc -c");
    let finished =
        Rig::new().reply(call("cmd", json!({"command": command}))).reply(text("done")).ask("x").run();
    finished.success().never_says(KEY);
    let result = &finished.events_of_type("tool_result")[0]["result"];
    assert_eq!(result["stdout"].as_str().unwrap().trim(), KEY.len().to_string());
}

#[test]
fn an_escaped_key_in_arguments() {
    let escaped = r#"{"command":"echo \u0074est-key-3f9a"}"#;
    let reply = Completion::new().call("call-1", "cmd", escaped).finish();
    let finished = Rig::new().reply(reply).reply(text("done")).ask("x").run();
    finished.success().never_says(KEY).never_says("\\u0074est-key-3f9a");
}

#[test]
fn a_key_that_the_user_types() {
    let finished = Rig::new().reply(text("ok")).ask(&format!("my key is {KEY}")).run();
    finished.success().never_says(KEY);
    assert!(!String::from_utf8_lossy(&finished.exchanges()[0].body).contains(KEY));
}

#[test]
fn a_key_in_a_refusal() {
    let body = json!({"error": {"message": format!("Incorrect API key provided: {KEY}.")}}).to_string();
    let finished = Rig::new().reply(http(401, &body)).ask("x").run();
    finished.code(1).never_says(KEY);
    assert!(finished.errors()[0].contains("401"), "{:?}", finished.errors());
}

#[test]
fn commands_do_not_inherit_the_key_but_everything_else() {
    let command = "echo \"${LUCY_TEST_KEY-none} $OTHER_TOKEN\"";
    let rig = Rig::new().env("OTHER_TOKEN", "inherited-1");
    let finished = rig.reply(call("cmd", json!({"command": command}))).reply(text("done")).ask("x").run();
    finished.success();
    assert_eq!(finished.events_of_type("tool_result")[0]["result"]["stdout"], "none inherited-1\n");
}

#[test]
fn a_key_of_another_name_is_the_one_that_is_removed() {
    let toml = "[llm]\nbase_url = \"{base_url}\"\nmodel = \"test-model\"\napi_key_env = \"MY_OWN\"\n";
    let rig = Rig::new().config(toml).env("MY_OWN", "own-key-77aa");
    let command = json!({"command": "echo ${MY_OWN-none}"});
    let finished = rig.reply(call("cmd", command)).reply(text("done")).ask("x").run();
    finished.success();
    assert_eq!(finished.exchanges()[0].headers["authorization"], "Bearer own-key-77aa");
    assert_eq!(finished.events_of_type("tool_result")[0]["result"]["stdout"], "none\n");
}

#[test]
fn keys_that_cannot_be_redacted_are_refused() {
    for key in ["1234567890", "assistant", "a\"b", "a:b", "tool_call", "sion_id", "a,b"] {
        let finished = Rig::new().env("LUCY_TEST_KEY", key).run();
        finished.code(3).stdout("");
        assert!(finished.session_files().is_empty(), "{key}");
    }
}

#[test]
fn a_session_that_holds_the_key_is_refused() {
    let id = "1770000000000-1234-0";
    let header = format!(
        "{{\"record\":\"session\",\"version\":1,\"session_id\":\"{id}\",\"created_at\":1,\"cwd\":\"{{cwd}}\",\
         \"boot_system_prompt\":\"{KEY}\",\"llm\":{{\"base_url\":\"{{base_url}}\",\"model\":\"m\",\
         \"api_key_env\":\"LUCY_TEST_KEY\"}}}}\n"
    );
    let finished = Rig::new().session_file(id, &header).resume(id).ask("x").run();
    finished.stdout("");
    assert_eq!(finished.requests().len(), 0);
    assert_ne!(finished.exit_code(), Some(0));
    let listed = finished.again().args(["--list-sessions"]).run();
    listed.code(0).stdout("");
}
