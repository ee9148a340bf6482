//! The session task: takes inputs in order, one turn at a time, until they end or the run is told to.

use async_channel::Receiver;

use super::{
    event::Progress,
    recorder::Recorder,
    turn::{Ending, Engine, run_turn},
};
use crate::{cancel::CancelToken, config::Limit};

/// What a front hands in.
#[derive(Debug)]
pub enum Input {
    /// A message; its turn hears `token`.
    Message { text: String, token: CancelToken },
    /// Something that was no message; the error takes its place in the order of events.
    Malformed { message: String },
}

/// How a run went, for its exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// An `error` event was emitted.
    pub failed: bool,
    /// A bound stopped the last turn.
    pub limit: bool,
}

/// An open session.
pub struct Session {
    pub(super) engine: Engine,
    pub(super) recorder: Recorder,
    pub(super) resumed: bool,
    /// Said once the session is open.
    pub(super) warnings: Vec<String>,
}

impl Session {
    /// Runs until the inputs end, the reader goes, or `shutdown` is said; a turn in progress is
    /// interrupted by its own token. `T` rides along with an input and is dropped when its turn begins.
    pub async fn run<T>(mut self, inputs: Receiver<(Input, T)>, shutdown: CancelToken) -> Summary {
        let mut summary = Summary::default();
        let opened =
            Progress::Opened { session_id: self.engine.header.session_id.clone(), resumed: self.resumed };
        self.recorder.say(opened).await;
        for warning in std::mem::take(&mut self.warnings) {
            self.recorder.say(Progress::Warning(warning)).await;
        }
        while let Ok(Ok((input, _))) = shutdown.or(inputs.recv()).await {
            match input {
                Input::Message { text, token } => {
                    let ending = run_turn(&self.engine, &mut self.recorder, text, &token).await;
                    summary.failed |= matches!(ending, Ending::Failed | Ending::Limit);
                    summary.limit = ending == Ending::Limit;
                }
                Input::Malformed { message } => {
                    summary.failed = true;
                    self.recorder.say(Progress::Error { message }).await;
                }
            }
            if self.recorder.is_unread() {
                break;
            }
        }
        summary
    }

    /// Adds a line for the person, said once the session is open.
    pub fn warn(&mut self, warning: impl IntoIterator<Item = String>) {
        self.warnings.extend(warning);
    }

    /// The bound on one input, and on what is read ahead, in bytes.
    pub fn input_bytes_max(&self) -> Limit {
        self.engine.limits.input
    }
}
