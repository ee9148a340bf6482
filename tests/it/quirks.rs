//! Public reports of provider misbehaviour, as cases: each is served as written and judged by its own
//! `expect`. `fixtures/quirks` holds them; each names the report it was made from.
//!
//! A case passes when the reply, the commands that ran, the number of requests and the words of the
//! error are what it says. Limits and clocks are only moved where a case says why.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, atomic::AtomicUsize, atomic::Ordering},
    thread,
};

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};

use crate::support::{Finished, KEY, Rig};

/// Runs at once. They wait more than they work.
const THREADS: usize = 6;

fn fixtures() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/quirks");
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn case(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The settings that a case needs beside the published ones.
fn rig_for(case: &mut Value) -> Rig {
    let id = case["id"].as_str().unwrap_or_default().to_owned();
    let mut rig = Rig::new();
    match id.as_str() {
        // Lines over 64 KiB: the published limit has a test of its own below.
        "019-big-line-text" => rig = rig.limits("sse_line_kib = 1024"),
        // 70 s of silence, told in a fiftieth of the time.
        "027-slow-first-token" => {
            hurry(case);
            rig = rig.llm("timeout_secs = 4");
        }
        _ => {}
    }
    if let Some(ms) = case["client"]["idle_timeout_ms"].as_u64() {
        rig = rig.llm(&format!("timeout_secs = {}", ms.div_ceil(1000)));
    }
    for (name, value) in case["client"]["env"].as_object().into_iter().flatten() {
        rig = rig.env(name, value.as_str().unwrap());
    }
    let url = case["client"]["base_url"].as_str().map(|url| {
        let port = rig.base_url().rsplit(':').next().unwrap().trim_end_matches("/v1").to_owned();
        url.replace("{port}", &port)
    });
    match url {
        Some(url) => rig.config(&format!(
            "[llm]\nbase_url = \"{url}\"\nmodel = \"test-model\"\napi_key_env = \"LUCY_TEST_KEY\"\n"
        )),
        None => rig,
    }
}

/// Divides every long sleep of a case by fifty.
fn hurry(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match member.as_u64() {
                    Some(ms) if key == "sleep_ms" => *member = (ms / 50).into(),
                    _ => hurry(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hurry),
        _ => {}
    }
}

/// What a request must never be becomes a guard, whose use the log shows.
fn forbid(case: &mut Value) -> usize {
    let never = case["expect"]["log_never"].as_array().cloned().unwrap_or_default();
    let guards = never.iter().map(|predicate| json!({"if": predicate, "http": {"status": 599}}));
    let before = case["guards"].as_array().cloned().unwrap_or_default();
    let first = before.len();
    case["guards"] = before.into_iter().chain(guards).collect();
    first
}

fn run(path: &Path) -> Result<(), String> {
    let mut case = case(path);
    let mut rig = rig_for(&mut case);
    let forbidden_from = forbid(&mut case);
    let messages = case["input"].as_array().cloned().unwrap_or_else(|| vec!["Go on.".into()]);
    rig = rig.script(&case);
    for message in messages {
        rig = rig.ask(message.as_str().unwrap());
    }
    judge(&case["expect"], &rig.run(), forbidden_from)
}

/// One turn as its events tell it.
#[derive(Default)]
struct Turn {
    text: String,
    commands: Vec<Value>,
    calls: usize,
    ending: String,
    error: String,
}

fn turns(finished: &Finished) -> Vec<Turn> {
    let mut turns = vec![Turn::default()];
    for line in finished.stdout_text().lines().skip(1) {
        let event: Value = serde_json::from_str(line).unwrap();
        let turn = turns.last_mut().unwrap();
        match event["type"].as_str().unwrap() {
            "assistant_delta" => turn.text += event["text"].as_str().unwrap(),
            "tool_call" => turn.calls += 1,
            "tool_result" if event["result"]["error"].is_null() => {
                turn.commands.push(json!({"name": event["name"], "command": event["result"]["command"]}));
            }
            "tool_result" => {}
            ending => {
                turn.ending = ending.to_owned();
                turn.error = event["message"].as_str().unwrap_or_default().to_owned();
                turns.push(Turn::default());
            }
        }
    }
    turns.pop();
    turns
}

fn judge(expect: &Value, finished: &Finished, forbidden_from: usize) -> Result<(), String> {
    let turns = turns(finished);
    let first = turns.first().ok_or("no turn ended")?;
    let say = |what: &str, got: &dyn std::fmt::Debug| Err(format!("{what}: got {got:?}"));
    let any = |key: &str, exact: &str| -> Vec<Value> {
        expect[key].as_array().cloned().unwrap_or_else(|| vec![expect[exact].clone()])
    };
    if !any("outcome_any", "outcome").contains(&json!(first.ending)) {
        return say("outcome", &(&first.ending, &first.error));
    }
    let texts: Vec<Value> = any("assistant_text_any", "assistant_text");
    let mut texts: Vec<&Value> = texts.iter().chain([&expect["assistant_text"]]).collect();
    texts.dedup();
    let judged = first.ending == "turn_end" && !expect["assistant_text"].is_null();
    if judged && !texts.contains(&&json!(first.text)) {
        return say("text", &first.text);
    }
    let commands: Vec<Value> = turns.iter().flat_map(|turn| turn.commands.clone()).collect();
    let mut allowed = expect["tool_calls_any"].as_array().cloned().unwrap_or_default();
    allowed.push(expect["tool_calls"].clone());
    if !allowed.contains(&json!(commands)) {
        return say("commands", &commands);
    }
    let requests = finished.requests().len() as u64;
    let (min, max) = (&expect["requests"]["min"], &expect["requests"]["max"]);
    if min.as_u64().is_some_and(|min| requests < min) || max.as_u64().is_some_and(|max| requests > max) {
        return say("requests", &requests);
    }
    let words = expect["error_contains"].as_str().unwrap_or_default();
    if first.ending == "error" && !first.error.contains(words) {
        return say("error", &first.error);
    }
    let said = finished.stdout_text() + finished.stderr_text();
    for word in expect["must_not_contain"].as_array().into_iter().flatten() {
        let word = word.as_str().unwrap().replace("{{api_key}}", KEY);
        if said.contains(&word) {
            return say("leak", &word);
        }
    }
    if let Some(text) = expect["final_text"].as_str()
        && turns.last().is_none_or(|turn| turn.text != text)
    {
        return say("final text", &turns.last().map(|turn| &turn.text));
    }
    let silent = |turn: &Turn| turn.ending == "turn_end" && turn.text.is_empty() && turn.calls == 0;
    if expect["forbid_silent"] == true && turns.iter().any(silent) {
        return say("a silent turn", &first.ending);
    }
    let forbidden = |served: &str| {
        let guard =
            served.strip_prefix("guard[").and_then(|rest| rest.strip_suffix(']')?.parse::<usize>().ok());
        guard.is_some_and(|guard| guard >= forbidden_from)
    };
    if let Some(exchange) = finished.exchanges().iter().find(|exchange| forbidden(&exchange.served)) {
        return say("a forbidden request", &exchange.target);
    }
    // The largest of all programs that any test has run so far, so this one, too.
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| error.to_string())?;
    if expect["max_rss_mb"].as_i64().is_some_and(|max| usage.max_rss() > max * 1024) {
        return say("memory", &usage.max_rss());
    }
    Ok(())
}

#[test]
fn every_case_is_met() {
    let files = fixtures();
    assert_eq!(files.len(), 91);
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = run(path) {
                        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                        failures.lock().unwrap().push(format!("{name}: {why}"));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), files.len(), failures.join("\n"));
}

/// The published defaults, which those cases had to move.
#[test]
fn the_published_limits_hold_where_a_case_moved_them() {
    let named = |name: &str| fixtures().into_iter().find(|path| path.ends_with(name)).unwrap();
    let finished = Rig::new().script(&case(&named("019-big-line-text.json"))).ask("x").run();
    finished.code(5);
    assert!(finished.errors()[0].contains("[limits] sse_line_kib"), "{:?}", finished.errors());
    let mut slow = case(&named("027-slow-first-token.json"));
    hurry(&mut slow);
    let finished = Rig::new().llm("timeout_secs = 1").script(&slow).ask("x").run();
    finished.code(1);
    assert!(finished.errors()[0].contains("[llm] timeout_secs"), "{:?}", finished.errors());
}
