//! A turn: the events of an answer, tool rounds, budgets, and every way to stop it.

use lucy::demo::{Chunk, Completion, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Finished, Rig, Running, call, calls, deltas, is_alive, text};

/// Text, then silence until the client leaves.
fn stalled() -> Reply {
    Completion::new().text("one moment").chunk(Chunk::HoldMs(60_000)).unfinished()
}

fn slow_command() -> Reply {
    call("cmd", json!({"command": "echo begun; sleep 60"}))
}

#[test]
fn the_published_example_byte_for_byte() {
    let finished = Rig::new()
        .reply(
            Completion::new()
                .text("I will inspect it. ")
                .call("call-1", "cmd", "{\"command\":\"echo work\"}")
                .finish(),
        )
        .reply(text("The project is ..."))
        .ask("Inspect the project and summarize it.")
        .run();
    finished.success().stdout(concat!(
        r#"{"type":"session","session_id":"SESSION","resumed":false}"#,
        "\n",
        r#"{"type":"assistant_delta","text":"I will inspect it. "}"#,
        "\n",
        r#"{"type":"tool_call","id":"call-1","name":"cmd","arguments":"{\"command\":\"echo work\"}"}"#,
        "\n",
        r#"{"type":"tool_result","id":"call-1","name":"cmd","result":{"command":"echo work","exit_code":0,"timed_out":false,"stdout":"work\n","stderr":"","stdout_truncated":false,"stderr_truncated":false}}"#,
        "\n",
        r#"{"type":"assistant_delta","text":"The project is ..."}"#,
        "\n",
        r#"{"type":"turn_end"}"#,
        "\n",
    ));
}

#[test]
fn text_alone() {
    let finished = Rig::new().reply(deltas(&["a", "", "b"])).ask("x").run();
    finished.success().events(json!([
        {"type": "session", "session_id": "SESSION", "resumed": false},
        {"type": "assistant_delta", "text": "ab"},
        {"type": "turn_end"},
    ]));
    assert!(finished.events_of_type("assistant_delta").iter().all(|delta| delta["text"] != ""));
}

#[test]
fn the_request_is_the_published_one() {
    let finished = Rig::new().reply(text("hi")).ask("hello").run();
    finished.success();
    let exchange = &finished.exchanges()[0];
    assert_eq!((exchange.method.as_str(), exchange.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(exchange.headers["authorization"], "Bearer test-key-3f9a");
    assert_eq!(exchange.headers["content-type"], "application/json");
    assert_eq!(exchange.audit, []);
    let body = exchange.json();
    assert_eq!((&body["model"], &body["stream"]), (&json!("test-model"), &json!(true)));
    assert_eq!(body["messages"][0]["role"], "system");
    assert_eq!(body["messages"][1], json!({"role": "user", "content": "hello"}));
    let tool = &body["tools"][0]["function"];
    assert_eq!((&tool["name"], body["tools"].as_array().unwrap().len()), (&json!("cmd"), 1));
    assert_eq!(tool["parameters"]["required"], json!(["command"]));
    for absent in ["stream_options", "temperature", "max_tokens", "parallel_tool_calls", "reasoning_effort"] {
        assert!(body.get(absent).is_none(), "{absent} is sent");
    }
}

#[test]
fn all_calls_are_announced_before_the_first_runs() {
    let command = |text: &str| json!({"command": format!("printf {text}")});
    let finished = Rig::new()
        .reply(calls(&[("a", "cmd", command("one")), ("b", "cmd", command("two"))]))
        .reply(text("done"))
        .ask("x")
        .run();
    finished.success();
    let kinds: Vec<_> =
        lines(&finished).iter().map(|event| (kind(event), event["id"].as_str().map(String::from))).collect();
    let expected = [
        ("session", None),
        ("tool_call", Some("a")),
        ("tool_call", Some("b")),
        ("tool_result", Some("a")),
        ("tool_result", Some("b")),
        ("assistant_delta", None),
        ("turn_end", None),
    ];
    assert_eq!(kinds, expected.map(|(kind, id)| (kind.to_string(), id.map(String::from))));
    let messages = finished.requests()[1]["messages"].clone();
    assert_eq!((&messages[3]["role"], &messages[3]["tool_call_id"]), (&json!("tool"), &json!("a")));
    assert_eq!(finished.exchanges()[1].audit, []);
}

fn lines(finished: &Finished) -> Vec<Value> {
    finished.stdout_text().lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
}

fn kind(event: &Value) -> String {
    event["type"].as_str().unwrap_or("").to_string()
}

#[test]
fn calls_that_cannot_run_get_a_result_and_the_model_goes_on() {
    let table = [
        ("cmd", "[]", "cmd arguments must be a JSON object"),
        ("cmd", "{\"command\":1}", "cmd command must be a string"),
        ("cmd", "{\"command\":\"pwd\",\"x\":1}", "cmd arguments must contain only command"),
        ("cmd", "not json", "cmd arguments must be a JSON object"),
        ("teleport", "{}", ""),
    ];
    for (name, arguments, message) in table {
        let reply = Completion::new().call("call-1", name, arguments).finish();
        let finished = Rig::new().reply(reply).reply(text("done")).ask("x").run();
        finished.success();
        let result = &finished.events_of_type("tool_result")[0]["result"];
        assert!(
            result["error"].as_str().is_some_and(|error| error.contains(message)),
            "{arguments}: {result}"
        );
        assert_eq!(finished.exchanges()[1].audit, [], "{arguments}");
    }
}

#[test]
fn what_a_command_says_and_how_it_ends() {
    let table = [
        ("exit 3", json!(3), "", ""),
        ("printf out; printf err >&2", json!(0), "out", "err"),
        ("kill -9 $$", Value::Null, "", ""),
        ("cat; echo end", json!(0), "end\n", ""),
        ("printf '\\377'", json!(0), "\u{fffd}", ""),
    ];
    for (command, exit_code, stdout, stderr) in table {
        let result = result_of(Rig::new(), command);
        let got = (&result["exit_code"], result["stdout"].as_str(), result["stderr"].as_str());
        assert_eq!(got, (&exit_code, Some(stdout), Some(stderr)), "{command}");
    }
}

fn result_of(rig: Rig, command: &str) -> Value {
    let finished = rig.reply(call("cmd", json!({"command": command}))).reply(text("done")).ask("x").run();
    finished.success();
    finished.events_of_type("tool_result")[0]["result"].clone()
}

#[test]
fn long_output_is_cut_and_long_commands_are_stopped() {
    let result = result_of(Rig::new(), "head -c 70000 /dev/zero | tr '\\0' x");
    assert_eq!(
        (result["stdout"].as_str().unwrap().len(), &result["stdout_truncated"]),
        (65_536, &json!(true))
    );
    let result = result_of(Rig::new().limits("command_timeout_secs = 1"), "echo begun; sleep 60");
    assert_eq!(
        (&result["timed_out"], &result["exit_code"], &result["stdout"]),
        (&json!(true), &Value::Null, &json!("begun\n"))
    );
}

#[test]
fn the_round_budget_ends_the_turn_with_code_5() {
    let round = call("cmd", json!({"command": "true"}));
    let finished = Rig::new().limits("rounds = 2").replies(&round, 3).ask("x").run();
    finished.code(5);
    assert_eq!(finished.requests().len(), 2);
    assert!(
        finished.errors()[0].starts_with("tool loop exceeded maximum of 2 provider rounds"),
        "{:?}",
        finished.errors()
    );
    assert!(finished.events_of_type("turn_end").is_empty());
}

#[test]
fn thirty_two_rounds_are_the_default() {
    let round = call("cmd", json!({"command": "true"}));
    let finished = Rig::new().replies(&round, 33).ask("x").run();
    finished.code(5);
    assert_eq!((finished.requests().len(), finished.events_of_type("tool_result").len()), (32, 32));
}

#[test]
fn the_call_budget_refuses_the_whole_reply() {
    let two = calls(&[("a", "cmd", json!({"command": "true"})), ("b", "cmd", json!({"command": "true"}))]);
    let finished = Rig::new().limits("calls = 3").replies(&two, 2).ask("x").run();
    finished.code(5);
    assert!(
        finished.errors()[0].starts_with("tool call budget exceeded maximum of 3 calls per input message")
    );
    assert_eq!((finished.requests().len(), finished.events_of_type("tool_call").len()), (2, 2));
}

#[test]
fn budgets_start_anew_with_each_message() {
    let round = call("cmd", json!({"command": "true"}));
    let rig = Rig::new().limits("rounds = 1").limits("calls = 1").replies(&round, 2);
    let finished = rig.ask("x").ask("y").run();
    finished.code(5);
    // Each message got its round; without a fresh count the second would have had none.
    assert_eq!(finished.events_of_type("tool_result").len(), 2);
}

/// A phase of a turn, a reply that leads into it, and how to see that it is reached.
type Phase = (&'static str, Reply, fn(&mut Running));

fn phases() -> [Phase; 2] {
    let streaming = |running: &mut Running| drop(running.wait_for_type("assistant_delta"));
    let running_command = |running: &mut Running| {
        running.wait_for_type("tool_call");
        running.until("a command", |running| !running.children().is_empty());
    };
    [("provider_stream", stalled(), streaming), ("cmd", slow_command(), running_command)]
}

#[test]
fn a_cancel_record_interrupts_and_the_next_message_goes_on() {
    for (phase, reply, wait) in phases() {
        let mut running = Rig::new().reply(reply).reply(text("still here")).ask("x").start();
        wait(&mut running);
        running.write_line(r#"{"type":"cancel"}"#);
        let interrupted = running.wait_for_type("turn_interrupted");
        assert_eq!(
            interrupted,
            json!({"type": "turn_interrupted", "reason": "user_cancelled", "phase": phase})
        );
        running.ask("are you there?");
        running.wait_for_type("turn_end");
        running.close_stdin();
        let finished = running.wait();
        finished.code(0);
        assert_eq!(finished.exchanges()[1].audit, [], "the next request is valid after {phase}");
        let kept = finished.session_log().into_iter().find(|record| record["record"] == "interruption");
        assert_eq!(kept.expect("an interruption record")["phase"], phase);
    }
}

#[test]
fn signals_interrupt_the_turn_and_set_the_exit_code() {
    let signals = [
        (Signal::INT, 130, "user_cancelled"),
        (Signal::TERM, 143, "terminated"),
        (Signal::HUP, 129, "terminated"),
    ];
    for (signal, code, reason) in signals {
        for (phase, reply, wait) in phases() {
            let mut running = Rig::new().reply(reply).ask("x").start();
            wait(&mut running);
            let children = running.children();
            running.signal(signal);
            let interrupted = running.wait_for_type("turn_interrupted");
            assert_eq!(interrupted, json!({"type": "turn_interrupted", "reason": reason, "phase": phase}));
            let finished = running.wait();
            finished.code(code);
            assert!(finished.events_of_type("turn_end").is_empty());
            assert!(children.iter().all(|child| !is_alive(*child)), "commands die with the turn");
        }
    }
}

#[test]
fn a_cancelled_command_has_a_result_and_the_others_too() {
    let sleep = json!({"command": "echo begun; sleep 60"});
    let mut running =
        Rig::new().reply(calls(&[("a", "cmd", sleep.clone()), ("b", "cmd", sleep)])).ask("x").start();
    running.until("a command", |running| !running.children().is_empty());
    running.write_line(r#"{"type":"cancel"}"#);
    running.wait_for_type("turn_interrupted");
    running.close_stdin();
    let finished = running.wait();
    let results = finished.events_of_type("tool_result");
    let summary: Vec<_> = results
        .iter()
        .map(|event| (&event["id"], &event["result"]["canceled"], &event["result"]["error"]))
        .collect();
    let (canceled, before) = (json!("command canceled"), json!("command canceled before execution"));
    assert_eq!(summary, [(&json!("a"), &json!(true), &canceled), (&json!("b"), &json!(true), &before)]);
}

#[test]
fn an_idle_program_ends_with_a_signal_or_with_its_input() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut running = Rig::new().start();
        running.wait_for_type("session");
        running.signal(signal);
        running.wait().code(code);
    }
    Rig::new()
        .run()
        .success()
        .events(json!([{"type": "session", "session_id": "SESSION", "resumed": false}]));
}

#[test]
fn a_cancel_while_nothing_runs_does_nothing() {
    let finished = Rig::new().reply(text("hi")).stdin(b"{\"type\":\"cancel\"}\n").ask("x").run();
    finished.success();
    assert_eq!(finished.reply_text(), "hi");
}

#[test]
fn one_thread_talks_to_the_model() {
    let mut running = Rig::new().reply(stalled()).ask("x").start();
    running.wait_for_type("assistant_delta");
    let threads = running.threads();
    assert!(threads.len() <= 2, "{threads:?}");
    assert!(running.rss_kib() < 100 * 1024);
    running.kill();
}

#[test]
fn a_silent_provider_can_be_left() {
    let mut running =
        Rig::new().reply(Completion::new().chunk(Chunk::HoldMs(60_000)).unfinished()).ask("x").start();
    running.until("a request", |running| running.requests_seen() == 1);
    running.write_line(r#"{"type":"cancel"}"#);
    assert_eq!(running.wait_for_type("turn_interrupted")["phase"], "provider_stream");
    running.close_stdin();
    running.wait().code(0);
}

#[test]
fn instructions_of_the_directory_reach_the_system_message() {
    let finished = Rig::new().file("AGENTS.md", "Prefer short answers.\n").reply(text("hi")).ask("x").run();
    finished.success();
    let system =
        finished.requests()[0]["messages"][0]["content"].as_str().expect("a system message").to_string();
    assert!(system.starts_with("You are under test.\n\n## Instructions from "), "{system}");
    assert!(system.contains("AGENTS.md\nPrefer short answers."), "{system}");
}
