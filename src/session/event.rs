//! The only thing a session says. Facts are logged; progress is not. Every front folds the same events.

use std::time::Duration;

use super::record::Record;
use crate::chat::message::Usage;

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Fact(Record),
    Progress(Progress),
}

/// What is worth showing and not worth keeping.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// The session is open; the first event of every run.
    Opened { session_id: String, resumed: bool },
    /// Text of the model, as it comes. Never empty.
    TextDelta(String),
    /// A transient failure; the request is sent again after `wait`.
    Retry { attempt: u32, wait: Duration, message: String },
    /// Tokens of the reply that was just recorded.
    Usage(Usage),
    /// Something the person should know that stops nothing.
    Warning(String),
    /// An input that could not be used, or a turn that could not even be recorded.
    Error { message: String },
}
