//! Providers and readers that fail: every one is an error event, an exit code, and no hang.

use std::time::{Duration, Instant};

use lucy::demo::{Chunk, Completion, Framing, Reply};
use serde_json::{Value, json};

use crate::support::{Finished, Rig, call, http, text};

/// One turn that fails: exit code 1, one error that says this, no `turn_end`, clean stderr.
#[track_caller]
fn fails(rig: Rig, says: &[&str]) -> Finished {
    let finished = rig.ask("x").run();
    finished.code(1).stderr("");
    let errors = finished.errors();
    assert_eq!((errors.len(), finished.events_of_type("turn_end").len()), (1, 0), "{errors:?}");
    for part in says {
        assert!(errors[0].contains(part), "no {part:?} in {:?}", errors[0]);
    }
    assert!(!errors[0].contains('\n') && errors[0].len() < 4096, "one short line: {:?}", errors[0]);
    finished
}

fn provider_at(base_url: &str) -> Rig {
    Rig::new().config(&format!(
        "[llm]\nbase_url = \"{base_url}\"\nmodel = \"m\"\napi_key_env = \"LUCY_TEST_KEY\"\n"
    ))
}

#[test]
fn nobody_listens() {
    fails(provider_at("http://127.0.0.1:1/v1"), &["provider request failed"]);
}

#[test]
fn nobody_has_that_name() {
    let begin = Instant::now();
    fails(provider_at("http://provider.invalid/v1"), &["provider request failed"]);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn statuses_are_named_with_the_words_of_the_provider() {
    let body = |message: &str| json!({"error": {"message": message, "type": "x"}}).to_string();
    for status in [400, 401, 403, 404, 422] {
        let finished =
            fails(Rig::new().reply(http(status, &body("not today"))), &[&status.to_string(), "not today"]);
        assert_eq!(finished.requests().len(), 1, "{status} is not retried");
    }
}

#[test]
fn transient_statuses_are_retried_twice() {
    for status in [429, 500, 503] {
        let refusal = http(status, "{\"error\":{\"message\":\"busy\"}}");
        // Each try may be announced on stderr, so that is not looked at.
        let finished = Rig::new().replies(&refusal, 3).ask("x").run();
        finished.code(1);
        assert!(finished.errors()[0].contains(&status.to_string()), "{:?}", finished.errors());
        assert_eq!((finished.errors().len(), finished.requests().len()), (1, 3), "{status}");
        let finished = Rig::new().reply(refusal).reply(text("hi")).ask("x").run();
        finished.code(0);
        assert_eq!((finished.reply_text().as_str(), finished.requests().len()), ("hi", 2));
    }
}

#[test]
fn html_instead_of_a_stream() {
    let page = "<!doctype html><html><head><title>Login</title></head><body>Please\nsign in</body></html>";
    fails(Rig::new().reply(http(403, page)), &["403"]);
    fails(Rig::new().reply(http(200, page)), &[]);
}

#[test]
fn streams_that_are_cut() {
    let cut = |chunk: Option<Chunk>| {
        let stream = Completion::new().text("part");
        chunk.into_iter().fold(stream, Completion::chunk).unfinished()
    };
    for reply in [cut(None), cut(Some(Chunk::Close)), cut(Some(Chunk::Rst))] {
        let shape = format!("{:?}", reply.body_chunks.last());
        let finished = fails(Rig::new().reply(reply), &[]);
        assert_eq!(finished.reply_text(), "part", "{shape}");
        let kept = finished
            .session_log()
            .into_iter()
            .find(|record| record["record"] == "interruption")
            .expect(&shape);
        assert_eq!(
            (&kept["reason"], &kept["assistant_text"]),
            (&json!("provider_error"), &json!("part")),
            "{shape}"
        );
        assert_eq!(finished.requests().len(), 1, "no retry once text was shown");
    }
}

#[test]
fn a_call_that_is_cut_never_runs() {
    let half = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "cmd", "arguments": "{\"command\":\"touch ran\"}"}}]});
    for reply in [
        Completion::new().text("t").delta(&half).unfinished(),
        Completion::new().text("t").delta(&half).finish_with("length"),
    ] {
        let finished = fails(Rig::new().reply(reply), &[]);
        assert!(!finished.rig().work().join("ran").exists());
    }
}

#[test]
fn ends_that_are_accepted() {
    let calls = call("cmd", json!({"command": "true"}));
    let without_done = Reply { body_chunks: calls.body_chunks[..2].to_vec(), ..calls };
    let finished = Rig::new().reply(without_done).reply(text("done")).ask("x").run();
    finished.success();
    let stop = Completion::new().call("a", "cmd", "{\"command\":\"true\"}").finish_with("stop");
    let finished = Rig::new().reply(stop).reply(text("done")).ask("x").run();
    finished.success();
    assert_eq!(finished.events_of_type("tool_result").len(), 1, "the calls decide");
}

#[test]
fn errors_inside_a_stream() {
    let error = json!({"error": {"message": "overloaded today", "code": 502}});
    fails(Rig::new().reply(Completion::new().text("a").event(&error).unfinished()), &["overloaded today"]);
    fails(Rig::new().reply(Completion::new().text("a").finish_with("content_filter")), &[]);
    let nonsense = Completion::new().text("a").chunk(Chunk::Text("data: {nonsense\n\n".into())).unfinished();
    fails(Rig::new().reply(nonsense), &[]);
}

#[test]
fn limits_name_their_setting() {
    let long = text(&"x".repeat(3000));
    let finished = Rig::new().limits("sse_line_kib = 1").reply(long.clone()).ask("x").run();
    assert!(finished.errors()[0].contains("sse_line_kib"), "{:?}", finished.errors());
    assert_ne!(finished.exit_code(), Some(0));
    Rig::new().limits("sse_line_kib = 4").reply(long).ask("x").run().success();
    let endless = Completion::new().chunk(Chunk::Repeat { text: ": padding\n".into(), n: 200_000 }).finish();
    let finished = Rig::new().limits("stream_mib = 1").reply(endless).ask("x").run();
    assert!(finished.errors()[0].contains("stream_mib"), "{:?}", finished.errors());
}

#[test]
fn framings_of_all_kinds() {
    for (framing, version) in [(Framing::Length, "1.1"), (Framing::Close, "1.1"), (Framing::Close, "1.0")] {
        let reply = Reply { framing, version: version.into(), ..text("hi") };
        let finished = Rig::new().reply(reply).ask("x").run();
        finished.success();
        assert_eq!(finished.reply_text(), "hi");
    }
}

#[test]
fn a_script_with_guards_is_met() {
    let sse = |text: &str| {
        json!({"body_chunks": [
            format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]})),
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\r\n\r\n", "data: [DONE]\n\n",
        ]})
    };
    let script = json!({
        "protocol": "openai-chat", "strict": ["not_utf8", "unpaired", "args_json", "no_auth", "no_stream"],
        "guards": [{"if": {"has": "/stream_options"}, "http": {"status": 400, "framing": "length"}}],
        "paths": ["^/v1/chat/completions$"], "http": sse("met"),
    });
    let finished = Rig::new().script(&script).ask("x").run();
    finished.success();
    assert_eq!(finished.reply_text(), "met");
}

#[test]
fn a_closed_stdout_ends_the_program_and_starts_no_command() {
    let reply = call("cmd", json!({"command": "touch ran"}));
    let finished = Rig::new().stdout_closed().reply(reply).reply(text("done")).ask("x").run();
    finished.code(1);
    assert!(!finished.rig().work().join("ran").exists());
}

#[test]
fn a_reader_that_leaves_ends_the_turn() {
    let counted = (0..2000).fold(Completion::new().gap_ms(1), |reply, n| reply.text(&format!("{n} ")));
    let mut running = Rig::new().reply(counted.finish()).ask("x").start();
    running.wait_for_type("assistant_delta");
    running.close_stdout();
    assert_ne!(running.wait().exit_code(), Some(0));
}

#[test]
fn a_stream_of_many_tiny_deltas_arrives_whole() {
    let delta = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": "ab"}}]}));
    let reply = Completion::new().chunk(Chunk::Repeat { text: delta, n: 20_000 }).finish();
    let finished = Rig::new().reply(reply).ask("x").run();
    finished.success();
    assert_eq!(finished.reply_text(), "ab".repeat(20_000));
    assert!(finished.session_log().iter().all(|record| record["record"] != Value::Null));
}

#[test]
fn a_file_that_may_not_grow_is_an_error_and_the_session_goes_on() {
    let command = json!({"command": "head -c 30000 /dev/zero | tr '\\000' x"});
    let rig = Rig::new().reply(call("cmd", command)).reply(text("hi")).ask("x").ask("y");
    // 8 blocks of 512 or 1,024 bytes: room for the messages, not for the result.
    let finished = rig.file_blocks_max(8).run();
    finished.code(1);
    assert!(
        finished.errors()[0].starts_with("session storage error: File too large"),
        "{:?}",
        finished.errors()
    );
    assert_eq!(finished.reply_text(), "hi");
    let id = finished.session_id();
    let finished = finished.resume(&id).reply(text("ho")).ask("z").run();
    finished.success();
}
