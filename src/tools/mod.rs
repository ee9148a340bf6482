//! What the model may ask for, and what it gets back.
//!
//! A tool is one file that implements [`Tool`] and one entry in [`ToolSet::new`]. Every call gets
//! exactly one [`ToolOutput`], whatever is wrong with it: tools never fail the turn. Knows nothing of
//! sessions, providers or screens. Read `cmd` next, then `output`.

mod cmd;
mod output;

pub use output::ToolOutput;

use async_trait::async_trait;

use crate::{
    cancel::CancelToken,
    chat::message::{ToolCall, ToolSpec},
    shell::Shell,
};

/// Something the model can call by name.
#[async_trait(?Send)]
trait Tool {
    fn spec(&self) -> ToolSpec;

    /// Whether `arguments` can be run, and may be kept in the history as they are.
    fn accepts(&self, arguments: &str) -> bool;

    /// Runs to an end of its own. Hears the token and returns what it has: it must not be dropped.
    async fn run(&self, arguments: &str, token: &CancelToken) -> ToolOutput;

    /// The result of a call that a cancel kept from running.
    fn canceled(&self, arguments: &str) -> ToolOutput;
}

/// The tools of a session.
pub struct ToolSet {
    tools: Vec<Box<dyn Tool>>,
    specs: Vec<ToolSpec>,
}

impl ToolSet {
    pub fn new(shell: Shell) -> Self {
        let tools: Vec<Box<dyn Tool>> = vec![Box::new(cmd::Cmd::new(shell))];
        let specs = tools.iter().map(|tool| tool.spec()).collect();
        Self { tools, specs }
    }

    /// What the model is told, in a stable order.
    pub fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// The sentences that stand in every request; no key may be part of one.
    pub fn descriptions() -> impl Iterator<Item = &'static str> {
        [cmd::SPEC.description].into_iter()
    }

    /// A known tool with well-formed arguments. Arguments of other calls are kept as `{}` (contract
    /// section 8).
    pub fn accepts(&self, call: &ToolCall) -> bool {
        self.find(call).is_some_and(|tool| tool.accepts(&call.arguments))
    }

    /// The one result of `call`. A call that cannot run says why, and the model goes on.
    pub async fn run(&self, call: &ToolCall, token: &CancelToken) -> ToolOutput {
        match self.find(call) {
            _ if token.reason().is_some() => self.canceled(call),
            Some(tool) => tool.run(&call.arguments, token).await,
            None => ToolOutput::unknown_tool(&call.name),
        }
    }

    /// The one result of `call` when the turn was canceled before its time came.
    pub fn canceled(&self, call: &ToolCall) -> ToolOutput {
        match self.find(call) {
            Some(tool) => tool.canceled(&call.arguments),
            None => ToolOutput::canceled_before_execution(None),
        }
    }

    fn find(&self, call: &ToolCall) -> Option<&dyn Tool> {
        self.tools.iter().map(|tool| &**tool).find(|tool| tool.spec().name == call.name)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        cancel::{self, CancelReason},
        shell::{
            CommandOutput,
            test_shell::{bounded, shell_in},
        },
    };

    fn tools() -> ToolSet {
        ToolSet::new(shell_in(Path::new("/")))
    }

    fn call(name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: "call-1".into(), name: name.into(), arguments: arguments.into() }
    }

    fn run(call: &ToolCall) -> CommandOutput {
        let (_handle, token) = cancel::pair();
        match bounded(tools().run(call, &token)) {
            ToolOutput::Command(output) => output,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_runs() {
        let call = call("cmd", r#"{"command":"echo hi; exit 3"}"#);
        assert!(tools().accepts(&call));
        let output = run(&call);
        assert_eq!(output.command, "echo hi; exit 3");
        assert_eq!((output.exit_code, output.stdout.as_str()), (Some(3), "hi\n"));
    }

    #[test]
    fn calls_that_cannot_run_say_why() {
        for (name, arguments, error) in [
            ("cmdcmd", r#"{"command":"echo"}"#, "unknown tool: cmdcmd"),
            ("", "", "unknown tool: "),
            ("cmd", "", "cmd arguments must be a JSON object"),
            ("cmd", r#"{"command":1}"#, "cmd command must be a string"),
        ] {
            let call = call(name, arguments);
            assert!(!tools().accepts(&call), "{name} {arguments}");
            assert_eq!(run(&call), CommandOutput::refused(error));
        }
    }

    #[test]
    fn a_cancel_before_execution_has_a_result_of_its_own() {
        let (handle, token) = cancel::pair();
        handle.cancel(CancelReason::User);
        let echo = r#"{"command":"echo"}"#;
        for (name, arguments, command) in
            [("cmd", echo, Some("echo")), ("cmd", "[]", None), ("cmdcmd", echo, None)]
        {
            let canceled = ToolOutput::canceled_before_execution(command);
            let call = call(name, arguments);
            assert_eq!(tools().canceled(&call), canceled);
            assert_eq!(bounded(tools().run(&call, &token)), canceled);
        }
    }

    #[test]
    fn the_model_is_told_one_tool() {
        let tools = tools();
        let [spec] = tools.specs() else { panic!("one tool") };
        assert_eq!(spec.name, "cmd");
        assert_eq!(
            spec.parameters,
            r#"{"type":"object","properties":{"command":{"type":"string"}},"required":["command"],"additionalProperties":false}"#
        );
        assert!(serde_json::from_str::<serde_json::Value>(spec.parameters).is_ok());
    }
}
