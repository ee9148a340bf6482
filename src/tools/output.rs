//! The result of a tool call, in the one form that the log, the model and every front get.
//!
//! A tool with another kind of result adds a variant here; matches on it name every front that has to
//! learn it. Redaction is the recorder's.

use serde::{Deserialize, Serialize};

use crate::shell::CommandOutput;

/// What came of a call. As JSON, it is the result object itself, without a tag (contract section 5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ToolOutput {
    Command(CommandOutput),
    /// Text of another form, out of a session that this program did not write.
    Text(String),
}

impl ToolOutput {
    /// The result of a call whose arguments cannot be run.
    pub fn refused(error: &str) -> Self {
        Self::Command(CommandOutput::refused(error))
    }

    /// The result of a call of a tool that does not exist.
    pub fn unknown_tool(name: &str) -> Self {
        Self::refused(&format!("unknown tool: {name}"))
    }

    /// The result of a call that a cancel kept from running.
    pub fn canceled_before_execution(command: Option<&str>) -> Self {
        Self::Command(CommandOutput::canceled_before_execution(command))
    }

    /// What the model reads: the result object as JSON text, other text as it is.
    pub fn to_content(&self) -> String {
        match self {
            Self::Command(output) => {
                serde_json::to_string(output).expect("plain strings and numbers are always JSON")
            }
            Self::Text(text) => text.clone(),
        }
    }

    /// The result that a saved message holds; text of another form is kept (contract section 12).
    pub fn from_content(content: &str) -> Self {
        serde_json::from_str(content).map_or_else(|_| Self::Text(content.to_owned()), Self::Command)
    }

    /// The same result with every text in it passed through `change`.
    pub fn map_text(self, change: impl Fn(String) -> String) -> Self {
        match self {
            Self::Command(output) => Self::Command(CommandOutput {
                command: change(output.command),
                stdout: change(output.stdout),
                stderr: change(output.stderr),
                error: output.error.map(change),
                ..output
            }),
            Self::Text(text) => Self::Text(change(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_comes_back_as_the_same_result() {
        let output = ToolOutput::refused("cmd command must be a string");
        let content = output.to_content();
        assert_eq!(
            content,
            r#"{"command":"{}","exit_code":null,"timed_out":false,"stdout":"","stderr":"","stdout_truncated":false,"stderr_truncated":false,"error":"cmd command must be a string"}"#
        );
        assert_eq!(ToolOutput::from_content(&content), output);
    }

    #[test]
    fn other_content_is_not_a_result() {
        for content in ["", "hi", "{}", "[1]", r#"{"command":"x"}"#] {
            assert_eq!(ToolOutput::from_content(content), ToolOutput::Text(content.to_owned()));
        }
    }
}
