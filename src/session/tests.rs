//! Whole turns against a scripted model: what is said, what is kept, and in which order.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
};

use async_channel::Receiver;
use futures_lite::{future, stream};

use super::{
    event::{Event, Progress},
    history::History,
    log::Log,
    lucy_log, reader,
    record::{Header, Record},
    recorder::{Delivery, Recorder},
    redact::Redactor,
    turn::{Ending, Engine, run_turn},
};
use crate::{
    cancel::{self, CancelHandle, CancelReason, CancelToken},
    chat::{
        error::{ChatError, ChatErrorKind},
        message::{ContentBlock, Message, Opaque, StopReason, ToolCall, Usage},
        model::{Model, ModelEvent, ModelStream, Reply, Request},
    },
    config::{Limits, Secret},
    shell::test_shell,
    tools::ToolSet,
};

const ID: &str = "1-2-3";
const KEY: &str = "sk-invented-7f3a9";

/// One answer of the scripted model.
enum Script {
    Reply(Reply),
    Fails {
        shown: &'static str,
        error: ChatError,
    },
    /// Shows a part of its reply and then says nothing more.
    Stalls(Reply),
}

struct Scripted(RefCell<VecDeque<Script>>);

impl Model for Scripted {
    fn stream<'a>(&'a self, _: Request<'a>, reply: &'a mut Reply) -> ModelStream<'a> {
        let delta = |reply: &Reply| {
            let text = reply.text();
            (!text.is_empty()).then_some(Ok(ModelEvent::TextDelta(text)))
        };
        let opened = [Ok(ModelEvent::Opened)];
        match self.0.borrow_mut().pop_front().expect("one more answer") {
            Script::Reply(whole) => {
                *reply = whole;
                Box::pin(stream::iter(opened.into_iter().chain(delta(reply))))
            }
            Script::Fails { shown, error } => {
                *reply = text(shown);
                let events = opened.into_iter().chain(delta(reply)).chain([Err(error)]);
                Box::pin(stream::iter(events.collect::<Vec<_>>()))
            }
            Script::Stalls(part) => {
                *reply = part;
                let events = opened.into_iter().chain(delta(reply)).collect::<Vec<_>>();
                Box::pin(stream::StreamExt::chain(stream::iter(events), stream::pending()))
            }
        }
    }
}

fn text(text: &str) -> Reply {
    Reply { blocks: vec![ContentBlock::Text(text.into())], stop: Some(StopReason::Finished), usage: None }
}

fn calls(commands: &[&str]) -> Reply {
    let call = |(index, command): (usize, &&str)| {
        let arguments = serde_json::json!({ "command": command }).to_string();
        ContentBlock::ToolCall(ToolCall { id: format!("call-{index}"), name: "cmd".into(), arguments })
    };
    Reply { blocks: commands.iter().enumerate().map(call).collect(), ..text("") }
}

/// A session in a folder of its own.
struct Bench {
    dir: tempfile::TempDir,
    engine: Engine,
    recorder: Recorder,
    events: Option<Receiver<Delivery>>,
    handle: CancelHandle,
    token: CancelToken,
}

impl Bench {
    fn new(script: impl IntoIterator<Item = Script>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let header = Header {
            session_id: ID.into(),
            created_at: 1,
            cwd: dir.path().to_str().unwrap().into(),
            boot_system_prompt: "be brief".into(),
            base_url: "http://127.0.0.1:9/v1".into(),
            model: "test-model".into(),
            api_key_env: "LUCY_TEST_KEY".into(),
            effort: None,
        };
        let mut log = Log::create(&dir.path().join("sessions"), ID).unwrap();
        let mut line = Vec::new();
        lucy_log::encode_header(&header, &mut line);
        log.append(&line).unwrap();
        let redactor = Redactor::new(vec![Secret::new(KEY)]);
        let (recorder, events) = Recorder::new(redactor, log, History::default());
        let engine = Engine {
            model: Box::new(Scripted(RefCell::new(script.into_iter().collect()))),
            tools: ToolSet::new(test_shell::shell_in(dir.path())),
            header,
            limits: Limits::default(),
        };
        let (handle, token) = cancel::pair();
        Self { dir, engine, recorder, events: Some(events), handle, token }
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("sessions").join(format!("{ID}.jsonl"))
    }

    /// Runs one turn to its ending while a front reads along; `on_event` sees each spelled event.
    fn turn(&mut self, on_event: impl Fn(&str, &CancelHandle, &Path)) -> (Ending, Vec<String>) {
        let events = self.events.clone().unwrap();
        let path = self.log_path();
        let turn = async {
            let ending = run_turn(&self.engine, &mut self.recorder, "go".into(), &self.token).await;
            // The front is told that this was all by the event no session says twice.
            self.recorder.say(Progress::Opened { session_id: ID.into(), resumed: false }).await;
            ending
        };
        let front = async {
            let mut seen = Vec::new();
            loop {
                match events.recv().await.unwrap() {
                    Delivery::Settle(written) => written.try_send(()).unwrap(),
                    Delivery::Event(safe) => {
                        let spelled = spell(safe.get());
                        if spelled == "opened" {
                            return seen;
                        }
                        on_event(&spelled, &self.handle, &path);
                        seen.push(spelled);
                    }
                }
            }
        };
        test_shell::bounded(future::zip(turn, front))
    }

    /// The history as the file has it.
    fn resumed(&self) -> Vec<Message> {
        let mut history = History::default();
        let file = fs::File::open(self.log_path()).unwrap();
        reader::read(file, ID, |_| vec![KEY.into()], |record| history.apply(&record)).unwrap();
        history.messages().to_vec()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap()
    }
}

/// An event in a word or two.
fn spell(event: &Event) -> String {
    match event {
        Event::Fact(Record::User { text }) => format!("user {text}"),
        Event::Fact(Record::Assistant(reply)) => format!("reply {}", reply.calls().count()),
        Event::Fact(Record::ToolResult(result)) => format!("result {}", result.output.to_content()),
        Event::Fact(Record::Interruption(end)) => {
            format!("{} {} {:?}", end.cause.reason(), end.phase.name(), end.assistant_text)
        }
        Event::Fact(Record::TurnEnd) => "end".into(),
        Event::Progress(Progress::TextDelta(text)) => format!("delta {text}"),
        Event::Progress(Progress::Opened { .. }) => "opened".into(),
        Event::Progress(Progress::Usage(_)) => "usage".into(),
        Event::Progress(Progress::Error { message }) => format!("error {message}"),
        Event::Progress(other) => format!("{other:?}"),
    }
}

fn starts(seen: &[String], expected: &[&str]) {
    let fits = seen.len() == expected.len() && seen.iter().zip(expected).all(|(s, e)| s.starts_with(e));
    assert!(fits, "{seen:#?} against {expected:#?}");
}

#[test]
fn a_turn_with_a_tool_is_said_in_order_and_resumes_as_it_was() {
    let mut with_extras = calls(&["echo one", "exit 3"]);
    let details = serde_json::json!([{ "type": "reasoning.text", "text": "hm", "signature": "s" }]);
    with_extras
        .blocks
        .push(ContentBlock::Opaque(Opaque { field: "reasoning_details".into(), value: details }));
    let echoed = Opaque { field: "reasoning_content".into(), value: "hm".into() };
    with_extras.blocks.push(ContentBlock::Opaque(echoed));
    with_extras.usage = Some(Usage { input_tokens: 5, output_tokens: 2 });
    let mut bench = Bench::new([Script::Reply(with_extras), Script::Reply(text("done"))]);
    let (ending, seen) = bench.turn(|_, _, _| ());
    assert_eq!(ending, Ending::Completed);
    starts(
        &seen,
        &[
            "user go",
            "reply 2",
            "usage",
            "result {\"command\":\"echo one\"",
            "result {\"command\":\"exit 3\"",
            "delta done",
            "reply 0",
            "end",
        ],
    );
    assert_eq!(bench.resumed(), *bench.recorder.messages());
}

#[test]
fn facts_are_in_the_file_before_they_are_seen() {
    let mut bench = Bench::new([Script::Reply(calls(&["true"])), Script::Reply(text("done"))]);
    bench.turn(|spelled, _, path| {
        let kept = fs::read_to_string(path).unwrap();
        let needle = match spelled.split(' ').next().unwrap() {
            "user" => r#""role":"user""#,
            "reply" => r#""role":"assistant""#,
            "result" => r#""role":"tool""#,
            _ => return,
        };
        assert!(kept.contains(needle), "{spelled} before it was kept");
    });
}

#[test]
fn a_cancel_ends_each_phase_in_its_own_way() {
    for (reason, name) in [
        (CancelReason::User, "user_cancelled"),
        (CancelReason::Terminated, "terminated"),
        (CancelReason::OutputClosed, "output_closed"),
    ] {
        let mut part = calls(&["never run"]);
        part.blocks.insert(0, ContentBlock::Text("half".into()));
        let mut streaming = Bench::new([Script::Stalls(part)]);
        let (ending, seen) = streaming.turn(|spelled, handle, _| {
            if spelled.starts_with("delta") {
                handle.cancel(reason);
            }
        });
        assert_eq!(ending, Ending::Interrupted);
        starts(&seen, &["user go", "delta half", &format!("{name} provider_stream \"half\"")]);
        assert!(streaming.log().contains("never run"), "the begun call is in the record");
        assert_eq!(streaming.resumed(), *streaming.recorder.messages());

        let mut running = Bench::new([Script::Reply(calls(&["echo so far; sleep 300", "echo never"]))]);
        let (ending, seen) = running.turn(|spelled, handle, _| {
            if spelled.starts_with("reply") {
                handle.cancel(reason);
            }
        });
        assert_eq!(ending, Ending::Interrupted);
        let canceled = |seen: &str| seen.starts_with("result") && seen.contains("\"canceled\":true");
        assert!(seen[2..4].iter().all(|seen| canceled(seen)), "{seen:#?}");
        starts(&seen[4..], &[&format!("{name} cmd \"\"")]);
        assert_eq!(running.resumed(), *running.recorder.messages());
    }
}

#[test]
fn nobody_reading_means_no_tool() {
    let mut bench = Bench::new([Script::Reply(calls(&["touch ran"]))]);
    bench.events = None;
    let ending = test_shell::bounded(run_turn(&bench.engine, &mut bench.recorder, "go".into(), &bench.token));
    assert_eq!(ending, Ending::Interrupted);
    assert!(!bench.dir.path().join("ran").exists());
    assert!(bench.log().contains(r#""reason":"output_closed","phase":"cmd""#), "{}", bench.log());
}

#[test]
fn a_failed_request_keeps_what_was_shown_to_the_person_alone() {
    let error = ChatError::new(ChatErrorKind::Stream, "unable to read provider stream");
    let mut bench = Bench::new([Script::Fails { shown: "half", error }]);
    let (ending, seen) = bench.turn(|_, _, _| ());
    assert_eq!(ending, Ending::Failed);
    starts(&seen, &["user go", "delta half", "provider_error provider_stream \"half\""]);
    assert!(bench.log().contains(r#""message":"unable to read provider stream""#));
    assert_eq!(*bench.recorder.messages(), [Message::User { text: "go".into() }]);
}

#[test]
fn replies_cut_short_by_the_provider_are_failures() {
    for stop in [StopReason::Length, StopReason::Filtered] {
        let mut cut = calls(&["touch ran"]);
        cut.stop = Some(stop);
        let mut bench = Bench::new([Script::Reply(cut)]);
        let (ending, seen) = bench.turn(|_, _, _| ());
        assert_eq!(ending, Ending::Failed);
        starts(&seen, &["user go", "provider_error"]);
        assert!(!bench.dir.path().join("ran").exists());
    }
}

#[test]
fn the_budget_of_rounds_names_its_setting() {
    let round = || Script::Reply(calls(&["true"]));
    let mut bench = Bench::new([round(), round()]);
    bench.engine.limits.rounds.max = 2;
    let (ending, seen) = bench.turn(|_, _, _| ());
    assert_eq!(ending, Ending::Limit);
    starts(&seen[seen.len() - 1..], &["limit provider_stream"]);
    assert!(
        bench.log().contains("tool loop exceeded maximum of 2 provider rounds (setting: [limits] rounds)")
    );
}

#[test]
fn a_reply_over_the_budget_of_calls_is_not_kept() {
    let mut bench =
        Bench::new([Script::Reply(calls(&["true", "true"])), Script::Reply(calls(&["touch ran"]))]);
    bench.engine.limits.calls.max = 2;
    let (ending, seen) = bench.turn(|_, _, _| ());
    assert_eq!(ending, Ending::Limit);
    starts(&seen, &["user go", "reply 2", "result", "result", "limit"]);
    assert!(!bench.dir.path().join("ran").exists());
}

#[test]
fn arguments_no_tool_takes_are_kept_as_an_empty_object() {
    let mut odd = calls(&["true"]);
    let ContentBlock::ToolCall(call) = &mut odd.blocks[0] else { panic!() };
    call.arguments = r#"{"command":"#.into();
    let mut bench = Bench::new([Script::Reply(odd), Script::Reply(text("sorry"))]);
    let (_, seen) = bench.turn(|_, _, _| ());
    assert!(seen[2].contains("cmd arguments must be a JSON object"), "{seen:#?}");
    assert!(bench.log().contains(r#""arguments":"{}""#));
}

#[test]
fn the_key_stays_out_of_the_file_and_of_what_is_said() {
    let echo = format!("echo {KEY}");
    let mut bench = Bench::new([Script::Reply(calls(&[&echo])), Script::Reply(text(KEY))]);
    let (_, seen) = bench.turn(|_, _, _| ());
    assert!(!seen.concat().contains(KEY) && seen.concat().contains("[REDACTED]"), "{seen:#?}");
    assert!(!bench.log().contains(KEY));
}

#[test]
fn a_file_that_goes_away_is_an_error_at_once() {
    let mut bench = Bench::new([Script::Reply(calls(&["true"]))]);
    let (ending, seen) = bench.turn(|spelled, _, path| {
        if spelled.starts_with("reply") {
            fs::remove_file(path).unwrap();
        }
    });
    assert_eq!(ending, Ending::Failed);
    starts(&seen, &["user go", "reply 1", "error session storage error: the file was removed"]);
}
