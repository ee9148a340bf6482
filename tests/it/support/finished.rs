//! A program that has ended: what it wrote, what it left, what the provider saw.
//!
//! Checks return the same value, so that they chain. Session ids become `SESSION` and times 0 before
//! anything is compared; adjacent text deltas count as one, since redaction may cut them anew.
//! Every line it wrote is held against its schema.

use std::{fs, os::unix::process::ExitStatusExt, path::PathBuf, process::ExitStatus};

use lucy::demo::{Exchange, RequestLog};
use regex_lite::Regex;
use serde_json::Value;

use super::{Form, rig::Rig};

/// The end of a run.
pub struct Finished {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: String,
    rig: Rig,
    exchanges: Vec<Exchange>,
}

impl Finished {
    pub(super) fn new(
        status: ExitStatus,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        rig: Rig,
        log: &RequestLog,
    ) -> Self {
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let finished = Self { status, stdout, stderr, rig, exchanges: log.exchanges() };
        finished.check_forms();
        finished
    }

    fn check_forms(&self) {
        if self.rig.writes_events() {
            Form::Events.check_lines(&self.stdout, &[]);
        }
        for file in self.session_files() {
            Form::Session.check_lines(&fs::read(file).expect("a session file"), &self.rig.handmade);
        }
    }

    /// Exit code 0 and nothing on stderr.
    #[track_caller]
    pub fn success(&self) -> &Self {
        assert_eq!(self.stderr, "", "stderr, with stdout:\n{}", self.stdout_text());
        self.code(0)
    }

    /// This exit code.
    #[track_caller]
    pub fn code(&self, code: i32) -> &Self {
        let (out, err) = (self.stdout_text(), &self.stderr);
        let signal = self.status.signal();
        assert_eq!(self.status.code(), Some(code), "signal {signal:?}, stdout:\n{out}\nstderr:\n{err}");
        self
    }

    /// The exit code; nothing when a signal ended it.
    pub fn exit_code(&self) -> Option<i32> {
        self.status.code()
    }

    /// All of stderr.
    pub fn stderr_text(&self) -> &str {
        &self.stderr
    }

    /// Exactly this on stdout.
    #[track_caller]
    pub fn stdout(&self, expected: &str) -> &Self {
        assert_eq!(normalised(&self.stdout_text()), expected, "stderr:\n{}", self.stderr);
        self
    }

    /// Exactly these events, in any order of their keys.
    #[track_caller]
    pub fn events(&self, expected: Value) -> &Self {
        let events = merged(events_of(&normalised(&self.stdout_text())));
        let pretty = |value: &Value| serde_json::to_string_pretty(value).expect("JSON");
        assert_eq!(pretty(&Value::Array(events)), pretty(&expected), "stderr:\n{}", self.stderr);
        self
    }

    /// Exactly this on stderr.
    #[track_caller]
    pub fn stderr(&self, expected: &str) -> &Self {
        assert_eq!(self.stderr, expected);
        self
    }

    /// Among other things this on stderr.
    #[track_caller]
    pub fn stderr_contains(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "no {part:?} in stderr:\n{}", self.stderr);
        self
    }

    /// Nowhere in what is public or stored.
    #[track_caller]
    pub fn never_says(&self, secret: &str) -> &Self {
        let log = self.session_text();
        for (place, text) in [("stdout", &self.stdout_text()), ("stderr", &self.stderr), ("session", &log)] {
            assert!(!text.contains(secret), "{secret:?} in {place}:\n{text}");
        }
        self
    }

    /// Stdout as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// All events of this type, as they came.
    pub fn events_of_type(&self, kind: &str) -> Vec<Value> {
        let events = events_of(&self.stdout_text());
        events.into_iter().filter(|event| event["type"] == kind).collect()
    }

    /// The text of all deltas.
    pub fn reply_text(&self) -> String {
        let deltas = self.events_of_type("assistant_delta");
        deltas.iter().filter_map(|delta| delta["text"].as_str()).collect()
    }

    /// The messages of all errors.
    pub fn errors(&self) -> Vec<String> {
        let errors = self.events_of_type("error");
        errors.iter().map(|error| error["message"].as_str().unwrap_or("").to_string()).collect()
    }

    /// The bodies of the requests that the provider saw.
    pub fn requests(&self) -> Vec<Value> {
        self.exchanges.iter().map(Exchange::json).collect()
    }

    /// All that the provider saw of the requests.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// The id of the session that ran.
    pub fn session_id(&self) -> String {
        let events = self.events_of_type("session");
        events[0]["session_id"].as_str().expect("an id").to_string()
    }

    /// The records of the newest session file.
    pub fn session_log(&self) -> Vec<Value> {
        events_of(&self.session_text())
    }

    /// The newest session file as it is.
    pub fn session_text(&self) -> String {
        let newest = self.session_files().into_iter().max_by_key(|path| {
            fs::metadata(path).and_then(|meta| meta.modified()).expect("a time of change")
        });
        newest.map(|path| fs::read_to_string(path).expect("a session file")).unwrap_or_default()
    }

    /// All session files.
    pub fn session_files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.rig.home().join(".lucy/sessions")).into_iter().flatten().flatten();
        files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect()
    }

    /// The rig it ran in.
    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// The same home and provider, for another run.
    pub fn again(self) -> Rig {
        self.rig.again()
    }

    /// The same home and provider, for another run of this session.
    pub fn resume(self, id: &str) -> Rig {
        self.again().resume(id)
    }
}

fn events_of(text: &str) -> Vec<Value> {
    let event = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(event).collect()
}

/// The text with what differs from run to run named alike.
pub fn normalised(text: &str) -> String {
    let id = Regex::new(r"\b\d{13}-\d+-\d+\b").expect("a pattern");
    let time = Regex::new(r#""(created_at|updated_at|timestamp)":\d+"#).expect("a pattern");
    time.replace_all(&id.replace_all(text, "SESSION"), "\"$1\":0").into_owned()
}

fn merged(events: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for event in events {
        let text = event["text"].as_str().filter(|_| event["type"] == "assistant_delta");
        let before = merged.last_mut().filter(|last| last["type"] == "assistant_delta");
        match (text, before) {
            (Some(text), Some(before)) => {
                before["text"] = Value::from(format!("{}{text}", before["text"].as_str().unwrap_or("")));
            }
            _ => merged.push(event),
        }
    }
    merged
}
