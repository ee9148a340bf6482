//! Facts of a session, in no file format: what is logged, folded into history and shown.
//!
//! `lucy_log` writes and reads them. A new kind of fact is a new arm here, and the compiler points at
//! every codec and front.

use crate::{
    cancel::CancelReason,
    chat::{message::ToolCall, model::Reply},
    tools::ToolOutput,
};

/// What a session starts from and keeps for life (contract section 7): resuming never rereads
/// config or instruction files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub session_id: String,
    /// Unix milliseconds.
    pub created_at: u64,
    pub cwd: String,
    pub boot_system_prompt: String,
    pub base_url: String,
    pub model: String,
    pub api_key_env: String,
    pub effort: Option<String>,
}

/// Whether `id` can name a session: it becomes a file's name, so it holds no path.
pub fn is_session_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// One fact. It is appended to the log before anyone sees it and before its tool runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    User {
        text: String,
    },
    Assistant(Reply),
    ToolResult(ToolResult),
    Interruption(Interruption),
    /// A turn that ran to its end. The last assistant message says it all: logs keep no line for it.
    TurnEnd,
}

/// The one result of a declared call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    pub id: String,
    pub name: String,
    pub output: ToolOutput,
}

/// How a turn ended before its end, with what it had come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Interruption {
    pub cause: Cause,
    pub phase: Phase,
    /// Text shown so far that belongs to no assistant message.
    pub assistant_text: String,
    /// Calls the provider had begun to declare; never part of history.
    pub tool_calls: Vec<ToolCall>,
    /// Results whose own record could not be written.
    pub tool_results: Vec<ToolResult>,
}

/// Why a turn was interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Cancelled(CancelReason),
    /// `message` is the one line that the person was told.
    Failed {
        failure: Failure,
        message: String,
    },
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Provider,
    /// A bound of `[limits]` was reached.
    Limit,
    /// A record could not be written, and the interruption could.
    Storage,
}

/// What a turn was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    ProviderStream,
    Cmd,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::ProviderStream => "provider_stream",
            Self::Cmd => "cmd",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::ProviderStream, Self::Cmd].into_iter().find(|phase| phase.name() == name)
    }
}

impl Cause {
    /// The published `reason`, and ours for what was not published (contract section 0).
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Cancelled(CancelReason::User) => "user_cancelled",
            Self::Cancelled(CancelReason::Terminated) => "terminated",
            Self::Cancelled(CancelReason::OutputClosed) => "output_closed",
            Self::Failed { failure: Failure::Provider, .. } => "provider_error",
            Self::Failed { failure: Failure::Limit, .. } => "limit",
            Self::Failed { failure: Failure::Storage, .. } => "storage_error",
        }
    }

    /// What the person was told, where a reason alone does not say it.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Cancelled(_) => None,
            Self::Failed { message, .. } => Some(message),
        }
    }

    /// The cause a log line names; an unknown reason counts as the person's own.
    pub fn from_parts(reason: &str, message: Option<String>) -> Self {
        let failed = |failure| Self::Failed { failure, message: message.unwrap_or_default() };
        match reason {
            "provider_error" => failed(Failure::Provider),
            "limit" => failed(Failure::Limit),
            "storage_error" => failed(Failure::Storage),
            "terminated" => Self::Cancelled(CancelReason::Terminated),
            "output_closed" => Self::Cancelled(CancelReason::OutputClosed),
            _ => Self::Cancelled(CancelReason::User),
        }
    }
}
