//! Promises about resources: memory with a reader that does not read, threads, bytes, what is left behind.

use std::{
    cell::Cell,
    process::Stdio,
    time::{Duration, Instant},
};

use lucy::demo::{Chunk, Completion, Reply};
use rustix::process::Signal;
use serde_json::json;

use crate::support::{Rig, call, text};

/// What a slow reader may cost beside what an idle program needs.
const GROWTH_KIB_MAX: u64 = 20 * 1024;

/// A reply of `n` one-token deltas.
fn tokens(n: u64) -> Reply {
    let event = json!({"choices": [{"index": 0, "delta": {"content": "x"}}]});
    Completion::new().gap_ms(0).chunk(Chunk::Repeat { text: format!("data: {event}\n\n"), n }).finish()
}

#[test]
fn two_threads_at_rest() {
    let mut running = Rig::new().reply(text("hi")).start();
    running.wait_for_type("session");
    let at_rest = |running: &crate::support::Running| {
        let mut threads = running.threads();
        threads.sort();
        threads == ["async-io", "lucy"]
    };
    running.until("two threads before a turn", at_rest);
    running.ask("x");
    running.wait_for_type("turn_end");
    running.until("two threads after a turn", at_rest);
    running.close_stdin();
    running.wait().success();
}

#[test]
fn a_reader_that_does_not_read_costs_no_memory_and_cannot_hold_the_end_up() {
    let rig = Rig::new().reply(tokens(100_000)).limits("stream_mib = 64").stdout_unread();
    let mut running = rig.start();
    running.until("an idle program", |running| running.threads().len() == 2);
    let idle = running.rss_kib();
    running.ask("x");
    let (before, looks) = (Cell::new(0), Cell::new(0));
    running.until("a pipe that takes no more", |running| {
        let unread = running.unread_bytes();
        looks.set(if unread == before.replace(unread) { looks.get() + 1 } else { 0 });
        unread > 16_384 && looks.get() > 20
    });
    assert!(running.rss_kib() < idle + GROWTH_KIB_MAX, "{} KiB over {idle}", running.rss_kib() - idle);
    let asked = Instant::now();
    running.signal(Signal::INT);
    let finished = running.wait();
    // The promise is 200 ms; a loaded machine gets some more before this test calls it a hang.
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    finished.code(130);
    let log = finished.session_log();
    let last = log.last().unwrap();
    assert_eq!((&last["record"], &last["reason"]), (&json!("interruption"), &json!("user_cancelled")));
}

#[test]
fn a_hundred_thousand_deltas_need_the_stream_limit_raised() {
    let finished = Rig::new().reply(tokens(100_000)).limits("stream_mib = 1").ask("x").run();
    finished.code(5);
    assert!(finished.errors()[0].contains("[limits] stream_mib"), "{:?}", finished.errors());
}

#[test]
fn stdout_grows_by_one_line_per_delta() {
    let bytes = |n| {
        let finished = Rig::new().reply(tokens(n)).ask("x").run();
        finished.success();
        finished.stdout_text().replace(&finished.session_id(), "").len()
    };
    let line = "{\"type\":\"assistant_delta\",\"text\":\"x\"}\n".len();
    assert_eq!(bytes(2_000) - bytes(1_000), 1_000 * line);
}

#[test]
fn records_read_ahead_are_bounded_and_a_cancel_among_them_is_heard() {
    let stall = Completion::new().text("wait").chunk(Chunk::HoldMs(60_000)).unfinished();
    let mut running = Rig::new().limits("input_mib = 1").reply(stall).reply(text("next")).start();
    running.wait_for_type("session");
    running.until("an idle program", |running| running.threads().len() == 2);
    let idle = running.rss_kib();
    running.ask("first");
    running.wait_for_type("assistant_delta");
    running.write_line(r#"{"type":"cancel"}"#);
    running.wait_for_type("turn_interrupted");
    let record = format!("{}\n", json!({"type": "unknown", "text": "y".repeat(100_000)}));
    running.write_detached(record.repeat(200));
    let mut errors = 0;
    while errors < 200 {
        running.wait_for_type("error");
        errors += 1;
    }
    assert!(running.rss_kib() < idle + GROWTH_KIB_MAX);
    running.ask("second");
    running.wait_for_type("turn_end");
    running.close_stdin();
    running.wait().code(1);
}

#[test]
fn the_demo_needs_nothing_and_leaves_nothing() {
    let rig = Rig::new().without_config().env_without("LUCY_TEST_KEY").args(["demo", "--jsonl"]);
    let temporary = rig.work().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let finished = rig.env("TMPDIR", temporary.to_str().unwrap()).ask("list files").run();
    finished.code(0).stderr("this is a scripted demo, not a model\n");
    let result = &finished.events_of_type("tool_result")[0]["result"];
    assert_eq!((&result["command"], &result["exit_code"]), (&json!("ls -la"), &json!(0)));
    assert!(finished.reply_text().contains("exit code is 0"), "{}", finished.reply_text());
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(finished.rig().home()).unwrap().count(), 0);
}

#[test]
fn a_second_signal_ends_at_once_and_takes_the_command_along() {
    let command =
        call("cmd", json!({"command": "trap '' TERM INT HUP; echo $$ >pid; while :; do sleep 0.05; done"}));
    let mut running = Rig::new().reply(command).ask("x").start();
    running.wait_for_type("tool_call");
    let file = running.rig().work().join("pid");
    running
        .until("a running command", |_| std::fs::read_to_string(&file).is_ok_and(|pid| pid.ends_with('\n')));
    let pid = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    running.signal(Signal::TERM);
    running.signal(Signal::TERM);
    running.wait().code(143);
    let gone_by = Instant::now() + Duration::from_secs(10);
    while crate::support::is_alive(pid) {
        assert!(Instant::now() < gone_by, "the command lives on");
    }
}

#[test]
fn stdin_may_be_a_file_or_nothing() {
    let rig = Rig::new().file("records.jsonl", "{\"type\":\"message\",\"text\":\"x\"}\n");
    let file = std::fs::File::open(rig.work().join("records.jsonl")).unwrap();
    let finished = rig.reply(text("hi")).stdin_from(Stdio::from(file)).run();
    finished.success();
    assert_eq!(finished.reply_text(), "hi");
    let finished = finished.again().stdin_from(Stdio::null()).run();
    finished.success();
    assert_eq!(finished.stdout_text().lines().count(), 1);
}
