//! The JSONL front: message records in, normalized events out, one line each (contract section 5).
//!
//! Wires stdin, signals, the session and stdout together for one run. Each event is written as it
//! comes; lines that wait together are written together.

use std::io;

use async_channel::{Receiver, Sender};
use serde::Serialize;
use smol::LocalExecutor;

use super::{
    diagnostics,
    exit::Exit,
    input,
    out::Out,
    signals::{self, Stopper},
};
use crate::{
    cancel::CancelReason,
    session::{Cause, Delivery, Event, Opened, Progress, Record},
    tools::ToolOutput,
};

/// Lines gathered before they are written, as long as more are waiting.
const BATCH_BYTES: usize = 16 * 1024;

/// Runs an opened session over stdin and stdout until its inputs end or a signal comes.
pub async fn run(executor: &LocalExecutor<'_>, opened: Opened, extended_events: bool) -> Exit {
    let Opened { session, events } = opened;
    let (stopper, shutdown) = Stopper::new();
    let started =
        signals::watch(stopper.clone()).and_then(|watch| Ok((watch, Out::stdout(shutdown.clone())?)));
    let (watch, out) = match started {
        Ok(started) => started,
        Err(error) => {
            diagnostics::say(&format!("unable to start: {error}"));
            return Exit::Failed;
        }
    };
    let _signals = executor.spawn(watch);
    // Reaps commands on this executor; without it the process crate starts a thread.
    let _children = executor.spawn(async_process::driver());
    let (inputs, queue) = input::queue();
    let reader = executor.spawn(input::read(inputs, stopper.clone(), session.input_bytes_max()));
    let run = executor.spawn(session.run(queue, shutdown));
    let written = Front { out, extended_events, lines: Vec::new(), settled: Vec::new(), abandoned: false }
        .drain(events)
        .await;
    if let Err(error) = &written {
        diagnostics::say(&format!("unable to write session event: {error}"));
        stopper.end_run(CancelReason::OutputClosed);
    }
    let summary = run.await;
    let read = reader.cancel().await;
    if let Some(exit) = stopper.exit() {
        return exit;
    }
    if let Some(Err(error)) = read {
        diagnostics::say(&format!("unable to read stdin: {error}"));
        return Exit::Failed;
    }
    match summary {
        _ if written.is_err() => Exit::Failed,
        summary if summary.limit => Exit::Limit,
        summary if summary.failed => Exit::Failed,
        _ => Exit::Ok,
    }
}

struct Front {
    out: Out,
    extended_events: bool,
    /// Encoded, not yet written.
    lines: Vec<u8>,
    /// Told once the lines are written.
    settled: Vec<Sender<()>>,
    /// The reader missed its last chance; events are taken and dropped until they end.
    abandoned: bool,
}

impl Front {
    async fn drain(mut self, events: Receiver<Delivery>) -> io::Result<()> {
        while let Ok(delivery) = events.recv().await {
            self.take(delivery);
            while self.lines.len() < BATCH_BYTES
                && let Ok(delivery) = events.try_recv()
            {
                self.take(delivery);
            }
            match self.out.write_all(&self.lines).await {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => self.abandoned = true,
                written => written?,
            }
            self.lines.clear();
            for settled in self.settled.drain(..) {
                // The turn may have been cancelled meanwhile.
                let _ = settled.try_send(());
            }
        }
        Ok(())
    }

    fn take(&mut self, delivery: Delivery) {
        match delivery {
            _ if self.abandoned => {}
            Delivery::Event(safe) => self.event(safe.get()),
            Delivery::Settle(settled) => self.settled.push(settled),
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Fact(record) => self.record(record),
            Event::Progress(progress) => self.progress(progress),
        }
    }

    fn record(&mut self, record: &Record) {
        match record {
            Record::User { .. } => {}
            Record::Assistant(reply) => {
                for call in reply.calls() {
                    self.line(&Line::ToolCall { id: &call.id, name: &call.name, arguments: &call.arguments });
                }
            }
            Record::ToolResult(result) => {
                self.line(&Line::ToolResult { id: &result.id, name: &result.name, result: &result.output });
            }
            Record::Interruption(interruption) => match &interruption.cause {
                Cause::Cancelled(_) => {
                    for call in &interruption.tool_calls {
                        self.line(&Line::ToolCall {
                            id: &call.id,
                            name: &call.name,
                            arguments: &call.arguments,
                        });
                    }
                    let reason = interruption.cause.reason();
                    self.line(&Line::TurnInterrupted { reason, phase: interruption.phase.name() });
                }
                Cause::Failed { message, .. } => self.line(&Line::Error { message }),
            },
            Record::TurnEnd => self.line(&Line::TurnEnd),
        }
    }

    fn progress(&mut self, progress: &Progress) {
        match progress {
            Progress::Opened { session_id, resumed } => {
                self.line(&Line::Session { session_id, resumed: *resumed });
            }
            // A reader that did not keep up gets the facts first in the time that is left.
            Progress::TextDelta(_) if self.out.is_pressed() => {}
            Progress::TextDelta(text) => self.line(&Line::AssistantDelta { text }),
            Progress::Retry { attempt, wait, message } => {
                let wait_ms = wait.as_millis() as u64;
                diagnostics::say(&format!("{message}; trying again in {:.1} s", wait.as_secs_f64()));
                self.extended_line(&Line::Retry { attempt: *attempt, wait_ms, message });
            }
            Progress::Usage(usage) => {
                let (input_tokens, output_tokens) = (usage.input_tokens, usage.output_tokens);
                self.extended_line(&Line::Usage { input_tokens, output_tokens });
            }
            Progress::Warning(message) => {
                diagnostics::warn(message);
                self.extended_line(&Line::Warning { message });
            }
            Progress::Error { message } => self.line(&Line::Error { message }),
        }
    }

    fn extended_line(&mut self, line: &Line<'_>) {
        if self.extended_events {
            self.line(line);
        }
    }

    fn line(&mut self, line: &Line<'_>) {
        serde_json::to_writer(&mut self.lines, line).expect("strings and numbers always encode");
        self.lines.push(b'\n');
    }
}

/// The events, in their published field order.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Session { session_id: &'a str, resumed: bool },
    AssistantDelta { text: &'a str },
    ToolCall { id: &'a str, name: &'a str, arguments: &'a str },
    ToolResult { id: &'a str, name: &'a str, result: &'a ToolOutput },
    TurnEnd,
    TurnInterrupted { reason: &'a str, phase: &'a str },
    Error { message: &'a str },
    Warning { message: &'a str },
    Retry { attempt: u32, wait_ms: u64, message: &'a str },
    Usage { input_tokens: u64, output_tokens: u64 },
}
