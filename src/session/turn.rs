//! One turn: a message in, rounds of reply and tools, one ending out. Only the loop is here.
//!
//! `dispatch` below runs the tools; `recorder` owns what is kept and shown. Cancelling drops the
//! stream, which only reads, and is heard by the tool, which has to tidy up.

use futures_lite::StreamExt;

use super::{
    event::Progress,
    fault,
    log::LogError,
    record::{Cause, Failure, Header, Interruption, Phase, Record, ToolResult},
    recorder::Recorder,
};
use crate::{
    cancel::{CancelReason, CancelToken},
    chat::{
        error::{ChatError, ChatErrorKind},
        message::{ContentBlock, StopReason, ToolCall},
        model::{Model, ModelEvent, Reply, Request},
    },
    config::Limits,
    tools::ToolSet,
};

/// What stays the same over the turns of a session.
pub struct Engine {
    pub model: Box<dyn Model>,
    pub tools: ToolSet,
    pub header: Header,
    pub limits: Limits,
}

/// How a turn ended, as far as the run has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Completed,
    Interrupted,
    Failed,
    /// A bound of `[limits]` stopped it.
    Limit,
}

/// Why the rounds stopped before the model was done.
enum Stop {
    Cancelled {
        reason: CancelReason,
        phase: Phase,
        partial: Reply,
    },
    Failed {
        error: ChatError,
        text: String,
    },
    /// A record could not be written; a result that was observed all the same.
    Storage {
        error: LogError,
        unsaved: Option<Box<ToolResult>>,
    },
}

impl From<LogError> for Stop {
    fn from(error: LogError) -> Self {
        Self::Storage { error, unsaved: None }
    }
}

/// Runs one turn to its ending. Never dropped half-way: it hears the token.
pub async fn run_turn(engine: &Engine, recorder: &mut Recorder, text: String, token: &CancelToken) -> Ending {
    if let Err(error) = recorder.fact(Record::User { text }).await {
        recorder.say(Progress::Error { message: error.to_string() }).await;
        return Ending::Failed;
    }
    let mut turn = Turn { engine, recorder, token, calls: 0 };
    match turn.rounds().await {
        Ok(()) => Ending::Completed,
        Err(stop) => turn.stopped(stop).await,
    }
}

struct Turn<'a> {
    engine: &'a Engine,
    recorder: &'a mut Recorder,
    token: &'a CancelToken,
    /// Calls of all replies so far.
    calls: usize,
}

impl Turn<'_> {
    async fn rounds(&mut self) -> Result<(), Stop> {
        for _ in 0..self.engine.limits.rounds.max {
            let reply = self.reply().await?;
            let calls: Vec<ToolCall> = reply.calls().cloned().collect();
            self.check_budget(&reply, calls.len())?;
            self.record_reply(reply).await?;
            if calls.is_empty() {
                self.recorder.sync()?;
                self.recorder.fact(Record::TurnEnd).await?;
                return Ok(());
            }
            self.dispatch(calls).await?;
        }
        let limit = self.engine.limits.rounds;
        let what = format!("tool loop exceeded maximum of {} provider rounds", limit.max);
        Err(Stop::Failed { error: ChatError::over(limit, &what), text: String::new() })
    }

    /// One whole reply of the provider, shown as it comes.
    async fn reply(&mut self) -> Result<Reply, Stop> {
        let mut reply = Reply::default();
        match self.stream(&mut reply).await {
            Ok(()) => {}
            Err(Interrupt::Cancelled(reason)) => {
                return Err(Stop::Cancelled { reason, phase: Phase::ProviderStream, partial: reply });
            }
            Err(Interrupt::Chat(error)) => return Err(Stop::Failed { error, text: reply.text() }),
            Err(Interrupt::Storage(error)) => return Err(error.into()),
        }
        let why = match reply.stop {
            Some(StopReason::Length) => "the output limit was reached",
            Some(StopReason::Filtered) => "filtered by the provider",
            Some(StopReason::Finished) | None => return Ok(reply),
        };
        let message = format!("provider response ended before completion: {why}");
        Err(Stop::Failed { error: ChatError::new(ChatErrorKind::Provider, message), text: reply.text() })
    }

    async fn stream(&mut self, reply: &mut Reply) -> Result<(), Interrupt> {
        let header = &self.engine.header;
        let messages = self.recorder.messages();
        let request = Request {
            model: &header.model,
            effort: header.effort.as_deref(),
            system: &header.boot_system_prompt,
            messages: &messages,
            tools: self.engine.tools.specs(),
        };
        let mut events = self.engine.model.stream(request, reply);
        while let Some(event) = self.token.or(events.next()).await.map_err(Interrupt::Cancelled)? {
            let progress = match event.map_err(Interrupt::Chat)? {
                // The provider is thinking now: the time to make the user message durable.
                ModelEvent::Opened => {
                    self.recorder.sync().map_err(Interrupt::Storage)?;
                    continue;
                }
                ModelEvent::TextDelta(text) => Progress::TextDelta(text),
                ModelEvent::Retry { attempt, wait, error } => {
                    Progress::Retry { attempt, wait, message: error.message }
                }
            };
            self.recorder.progress(progress, self.token).await.map_err(Interrupt::Cancelled)?;
        }
        Ok(())
    }

    /// An over-budget reply is neither stored nor announced, and none of its calls runs.
    fn check_budget(&mut self, reply: &Reply, calls: usize) -> Result<(), Stop> {
        self.calls += calls;
        let limit = self.engine.limits.calls;
        if !limit.exceeded_by(self.calls) {
            return Ok(());
        }
        let what = format!("tool call budget exceeded maximum of {} calls per input message", limit.max);
        Err(Stop::Failed { error: ChatError::over(limit, &what), text: reply.text() })
    }

    /// Records the reply with the arguments that may be kept: what a tool would refuse is kept as `{}`.
    async fn record_reply(&mut self, mut reply: Reply) -> Result<(), Stop> {
        for block in &mut reply.blocks {
            if let ContentBlock::ToolCall(call) = block
                && !self.engine.tools.accepts(call)
            {
                call.arguments = "{}".to_owned();
            }
        }
        let usage = reply.usage;
        self.recorder.fact(Record::Assistant(reply)).await?;
        if let Some(usage) = usage {
            self.recorder.say(Progress::Usage(usage)).await;
        }
        Ok(())
    }

    /// Runs the calls in order. Each gets exactly one result, cancelled or not.
    async fn dispatch(&mut self, calls: Vec<ToolCall>) -> Result<(), Stop> {
        let mut stopped = None;
        for call in calls {
            let output = match stopped {
                Some(_) => self.engine.tools.canceled(&call),
                None => match self.may_start().await? {
                    Ok(()) => self.engine.tools.run(&call, self.token).await,
                    Err(reason) => {
                        stopped = Some(reason);
                        self.engine.tools.canceled(&call)
                    }
                },
            };
            stopped = stopped.or(self.token.reason());
            let result = ToolResult { id: call.id, name: call.name, output };
            if let Err(error) = self.recorder.fact(Record::ToolResult(result.clone())).await {
                return Err(Stop::Storage { error, unsaved: Some(Box::new(result)) });
            }
            self.recorder.sync()?;
        }
        match stopped {
            Some(reason) => Err(Stop::Cancelled { reason, phase: Phase::Cmd, partial: Reply::default() }),
            None => Ok(()),
        }
    }

    /// Before a tool runs: its call is on disk and has been read by whoever must read it.
    async fn may_start(&mut self) -> Result<Result<(), CancelReason>, Stop> {
        self.recorder.sync()?;
        fault::before_tool();
        Ok(self.token.or(self.recorder.settled()).await.and_then(|settled| settled))
    }

    /// Records how the turn ended and says so.
    async fn stopped(&mut self, stop: Stop) -> Ending {
        let (ending, interruption) = match stop {
            Stop::Cancelled { reason, phase, partial } => {
                (Ending::Interrupted, cancelled(reason, phase, &partial))
            }
            Stop::Failed { error, text } => failed(error, text),
            Stop::Storage { error, unsaved } => (Ending::Failed, unstored(&error, unsaved)),
        };
        let message = interruption.cause.message().map(str::to_owned);
        if self.recorder.fact(Record::Interruption(interruption)).await.is_err() {
            // Nothing shows a fact that was not logged, so the person is told directly.
            let message = message.unwrap_or_else(|| "the interruption could not be recorded".to_owned());
            self.recorder.say(Progress::Error { message }).await;
            return Ending::Failed;
        }
        match self.recorder.sync() {
            Ok(()) => ending,
            Err(error) => {
                self.recorder.say(Progress::Warning(error.to_string())).await;
                Ending::Failed
            }
        }
    }
}

/// What can cut a stream short.
enum Interrupt {
    Cancelled(CancelReason),
    Chat(ChatError),
    Storage(LogError),
}

fn cancelled(reason: CancelReason, phase: Phase, partial: &Reply) -> Interruption {
    let named = partial.calls().filter(|call| !call.name.is_empty());
    let tool_calls = named
        .enumerate()
        .map(|(index, call)| {
            let id = if call.id.is_empty() { format!("call_{index}") } else { call.id.clone() };
            ToolCall { id, ..call.clone() }
        })
        .collect();
    Interruption {
        cause: Cause::Cancelled(reason),
        phase,
        assistant_text: partial.text(),
        tool_calls,
        tool_results: Vec::new(),
    }
}

fn failed(error: ChatError, text: String) -> (Ending, Interruption) {
    let message = error.message;
    let (ending, failure) = match error.kind {
        ChatErrorKind::Limit(_) => (Ending::Limit, Failure::Limit),
        _ => (Ending::Failed, Failure::Provider),
    };
    let interruption = Interruption {
        cause: Cause::Failed { failure, message },
        phase: Phase::ProviderStream,
        assistant_text: text,
        tool_calls: Vec::new(),
        tool_results: Vec::new(),
    };
    (ending, interruption)
}

fn unstored(error: &LogError, unsaved: Option<Box<ToolResult>>) -> Interruption {
    Interruption {
        cause: Cause::Failed { failure: Failure::Storage, message: error.to_string() },
        phase: if unsaved.is_some() { Phase::Cmd } else { Phase::ProviderStream },
        assistant_text: String::new(),
        tool_calls: Vec::new(),
        tool_results: unsaved.into_iter().map(|result| *result).collect(),
    }
}
