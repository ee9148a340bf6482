//! The result of a command: what the log keeps, the model reads and every front shows.
//!
//! The field order is the key order of the published example (README, contract section 0) and must stay.
//! Knows nothing of how a command runs; `runner` fills it in.

use serde::{Deserialize, Serialize};

/// What stands for the command when the call had no usable one (contract section 10).
const NO_COMMAND: &str = "{}";

/// One finished, ended or refused command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOutput {
    pub command: String,
    /// Absent in spirit, `null` in JSON: ended by a signal, timed out, canceled, never started.
    pub exit_code: Option<i32>,
    pub timed_out: bool,
    pub stdout: String,
    pub stderr: String,
    /// The text is not all there was: past the limit, or still open when the grace was over.
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub canceled: bool,
    /// The signal that ended the shell, unless it was ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl CommandOutput {
    /// A command that was not run, and why.
    pub fn not_run(command: &str, error: impl Into<String>) -> Self {
        Self { command: command.to_owned(), error: Some(error.into()), ..Self::default() }
    }

    /// A call without a usable command.
    pub fn refused(error: impl Into<String>) -> Self {
        Self::not_run(NO_COMMAND, error)
    }

    /// A command whose turn was canceled before it began.
    pub fn canceled_before_execution(command: Option<&str>) -> Self {
        let command = command.unwrap_or(NO_COMMAND);
        Self { canceled: true, ..Self::not_run(command, "command canceled before execution") }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: CommandOutput, json: &str) {
        assert_eq!(serde_json::to_string(&output).unwrap(), json);
        assert_eq!(serde_json::from_str::<CommandOutput>(json).unwrap(), output);
    }

    #[test]
    fn keys_come_in_the_published_order_and_optional_ones_last() {
        check(
            CommandOutput {
                command: "pwd".into(),
                exit_code: Some(0),
                stdout: "/work\n".into(),
                ..CommandOutput::default()
            },
            r#"{"command":"pwd","exit_code":0,"timed_out":false,"stdout":"/work\n","stderr":"","stdout_truncated":false,"stderr_truncated":false}"#,
        );
        check(
            CommandOutput { signal: Some(9), ..CommandOutput::canceled_before_execution(Some("x")) },
            r#"{"command":"x","exit_code":null,"timed_out":false,"stdout":"","stderr":"","stdout_truncated":false,"stderr_truncated":false,"canceled":true,"signal":9,"error":"command canceled before execution"}"#,
        );
    }

    #[test]
    fn keys_of_older_sessions_are_read_in_any_order() {
        let json = r#"{"command":"x","exit_code":1,"stderr":"","stderr_truncated":false,"stdout":"","stdout_truncated":true,"timed_out":false}"#;
        let output: CommandOutput = serde_json::from_str(json).unwrap();
        assert_eq!((output.exit_code, output.stdout_truncated), (Some(1), true));
    }
}
