//! The conversation as the model gets it, folded from facts.
//!
//! [`History::apply`] is the only way it changes, live or resumed, so a resumed session sends byte for
//! byte what the live one would have sent. It is always valid: each declared call has exactly one
//! result before anything else follows (contract section 0, quirk 103).

use std::rc::Rc;

use super::record::{Interruption, Phase, Record, ToolResult};
use crate::chat::message::{ContentBlock, Message};

/// What the model reads where a call never got its result: a crash or a kill came between.
const INTERRUPTED: &str = r#"{"error":"interrupted"}"#;

#[derive(Clone, Debug, Default)]
pub struct History {
    /// Shared with the request in flight; changed in place once that is over.
    messages: Rc<Vec<Message>>,
    /// Calls of the last assistant message that still have no result: id and name, in order.
    open: Vec<(String, String)>,
}

impl History {
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::User { text } => {
                self.close_open_calls();
                self.push(Message::User { text: text.clone() });
            }
            Record::Assistant(reply) => {
                self.close_open_calls();
                self.open = reply.calls().map(|call| (call.id.clone(), call.name.clone())).collect();
                let blocks =
                    reply.blocks.iter().filter(|block| !is_blank(block)).cloned().collect::<Vec<_>>();
                // A message without text or calls is refused by providers for ever (quirk 67).
                if blocks.iter().any(|block| !matches!(block, ContentBlock::Opaque(_))) {
                    self.push(Message::Assistant { blocks });
                }
            }
            Record::ToolResult(result) => self.answer(result),
            Record::Interruption(Interruption { phase: Phase::Cmd, tool_results, .. }) => {
                tool_results.iter().for_each(|result| self.answer(result));
            }
            Record::Interruption(_) | Record::TurnEnd => {}
        }
    }

    /// The messages of the next request.
    pub fn messages(&mut self) -> Rc<Vec<Message>> {
        self.close_open_calls();
        self.messages.clone()
    }

    fn push(&mut self, message: Message) {
        Rc::make_mut(&mut self.messages).push(message);
    }

    /// Takes the first result for a declared call; a second one, or a stray, changes nothing.
    fn answer(&mut self, result: &ToolResult) {
        if let Some(at) = self.open.iter().position(|(id, _)| *id == result.id) {
            let (id, name) = self.open.remove(at);
            self.push(Message::ToolResult { id, name, content: result.output.to_content() });
        }
    }

    fn close_open_calls(&mut self) {
        for (id, name) in std::mem::take(&mut self.open) {
            self.push(Message::ToolResult { id, name, content: INTERRUPTED.to_owned() });
        }
    }
}

fn is_blank(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::Text(text) if text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cancel::CancelReason,
        chat::{message::ToolCall, model::Reply},
        session::record::Cause,
        tools::ToolOutput,
    };

    fn calls(ids: &[&str]) -> Record {
        let call = |id: &&str| {
            ContentBlock::ToolCall(ToolCall {
                id: id.to_string(),
                name: "cmd".into(),
                arguments: r#"{"command":"true"}"#.into(),
            })
        };
        Record::Assistant(Reply { blocks: ids.iter().map(call).collect(), ..Reply::default() })
    }

    fn result(id: &str) -> ToolResult {
        let output = ToolOutput::from_content(
            r#"{"command":"true","exit_code":0,"timed_out":false,"stdout":"","stderr":"","stdout_truncated":false,"stderr_truncated":false}"#,
        );
        ToolResult { id: id.into(), name: "cmd".into(), output }
    }

    fn user(text: &str) -> Record {
        Record::User { text: text.into() }
    }

    /// Folds records and spells the history: `u` user, `a` assistant, `r:id` a result, `i:id` an
    /// interrupted one.
    fn check(records: &[Record], expected: &str) {
        let mut history = History::default();
        records.iter().for_each(|record| history.apply(record));
        let spelled: Vec<String> = history
            .messages()
            .iter()
            .map(|message| match message {
                Message::User { .. } => "u".into(),
                Message::Assistant { .. } => "a".into(),
                Message::ToolResult { id, content, .. } if content == INTERRUPTED => format!("i:{id}"),
                Message::ToolResult { id, .. } => format!("r:{id}"),
            })
            .collect();
        assert_eq!(spelled.join(" "), expected);
    }

    #[test]
    fn every_call_has_one_result_before_anything_follows() {
        let answered = |id| Record::ToolResult(result(id));
        check(&[user("x"), calls(&["1", "2"]), answered("2"), answered("1"), user("y")], "u a r:2 r:1 u");
        check(&[user("x"), calls(&["1", "2"]), answered("1"), user("y")], "u a r:1 i:2 u");
        check(&[user("x"), calls(&["1"])], "u a i:1");
        check(&[user("x"), calls(&["1"]), calls(&["1"]), answered("1")], "u a i:1 a r:1");
        check(&[user("x"), calls(&["1"]), answered("1"), answered("1"), answered("9")], "u a r:1");
    }

    #[test]
    fn an_observation_closes_a_call_only_in_phase_cmd() {
        let interruption = |phase| {
            Record::Interruption(Interruption {
                cause: Cause::Cancelled(CancelReason::User),
                phase,
                assistant_text: String::new(),
                tool_calls: Vec::new(),
                tool_results: vec![result("1")],
            })
        };
        check(&[user("x"), calls(&["1"]), interruption(Phase::Cmd)], "u a r:1");
        check(&[user("x"), calls(&["1"]), interruption(Phase::ProviderStream)], "u a i:1");
    }

    #[test]
    fn an_empty_reply_is_not_sent_back() {
        let empty =
            Record::Assistant(Reply { blocks: vec![ContentBlock::Text(String::new())], ..Reply::default() });
        check(&[user("x"), empty, user("y")], "u u");
    }
}
