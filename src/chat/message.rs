//! The neutral conversation: messages, content blocks, tool calls.
//!
//! Knows no protocol and no session file. `wire` turns it into requests; `session` turns records into it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One entry of the history sent to the model. The system prompt travels beside it.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    User {
        text: String,
    },
    Assistant {
        blocks: Vec<ContentBlock>,
    },
    /// The one result of the call `id`; `content` is what the model reads.
    ToolResult {
        id: String,
        name: String,
        content: String,
    },
}

/// A part of an assistant message, in the order the provider gave.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentBlock {
    Text(String),
    ToolCall(ToolCall),
    Opaque(Opaque),
}

/// A request of the model to run a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON text, as the provider sent it; a valid object once it is in the history.
    pub arguments: String,
}

/// Provider metadata that goes back unchanged with its message and is never shown: reasoning details,
/// signatures, encrypted items. `field` is the name it came under, and the only one it goes back under.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opaque {
    pub field: String,
    pub value: Value,
}

/// A tool as declared to the model.
#[derive(Clone, Copy, Debug)]
pub struct ToolSpec {
    pub name: &'static str,
    pub description: &'static str,
    /// The JSON Schema of the arguments, as JSON text.
    pub parameters: &'static str,
}

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// Why the provider ended a reply that counts as complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model was done, or asked for tools: its calls tell which.
    Finished,
    /// The output limit was reached; calls of this reply must not run.
    Length,
    /// The provider withheld the rest; calls of this reply must not run.
    Filtered,
}
