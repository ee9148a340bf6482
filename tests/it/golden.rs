//! Golden files: the events and the records of one run that has everything in it.
//!
//! After a deliberate change, `LUCY_GOLDEN=write cargo test --test it golden` writes them anew.

use std::{fs, path::PathBuf};

use lucy::demo::{Chunk, Completion};
use rustix::process::Signal;
use serde_json::json;

use crate::support::{Finished, Rig, http, normalised, text};

#[test]
fn events_and_records() {
    let reasoning = json!([{"type": "reasoning.text", "text": "hm", "signature": "c2ln"}]);
    let mut running = Rig::new()
        .args(["--extended-events"])
        .reply(
            Completion::new()
                .delta(&json!({"reasoning_details": reasoning}))
                .text("I will look. ")
                .call("call-1", "cmd", r#"{"command":"echo out; echo err >&2; exit 3"}"#)
                .call("call-2", "cmd", "{\"command\":")
                .call("call-3", "unheard_of", "{}")
                .event(&json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}))
                .finish(),
        )
        .reply(text("Done."))
        .reply(http(400, r#"{"error":{"message":"bad request"}}"#))
        .reply(Completion::new().text("half").chunk(Chunk::HoldMs(60_000)).unfinished())
        .ask("look")
        .stdin(b"not json\n")
        .ask("fail")
        .ask("stop me")
        .start();
    running.wait_for(|event| event["text"] == "half");
    running.signal(Signal::INT);
    let finished = running.wait();
    finished.code(130);
    check("events.jsonl", &finished, &finished.stdout_text());
    check("records.jsonl", &finished, &finished.session_text());
}

/// Compares with the golden file, once what differs from run to run is named alike.
fn check(name: &str, finished: &Finished, text: &str) {
    let work = finished.rig().work();
    let text = normalised(text)
        .replace(work.to_str().unwrap(), "CWD")
        .replace(&finished.rig().base_url(), "BASE_URL");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(name);
    if std::env::var("LUCY_GOLDEN").is_ok_and(|mode| mode == "write") {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{name}");
}
