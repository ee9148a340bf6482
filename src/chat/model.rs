//! What the session sees of a provider: a request goes in, a pull stream of events comes out.

use std::{pin::Pin, time::Duration};

use futures_lite::Stream;

use super::{
    error::ChatError,
    message::{ContentBlock, Message, StopReason, ToolCall, ToolSpec, Usage},
};

/// One request, borrowed from the session.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub model: &'a str,
    /// Sent verbatim when present.
    pub effort: Option<&'a str>,
    pub system: &'a str,
    pub messages: &'a [Message],
    pub tools: &'a [ToolSpec],
}

/// A reply as far as it has come. It belongs to the caller, so a dropped stream leaves the partial
/// text and calls behind instead of taking them along.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    pub blocks: Vec<ContentBlock>,
    /// Present once the reply is complete.
    pub stop: Option<StopReason>,
    pub usage: Option<Usage>,
}

impl Reply {
    /// All text of the reply, joined.
    pub fn text(&self) -> String {
        self.blocks
            .iter()
            .filter_map(|b| if let ContentBlock::Text(t) = b { Some(t.as_str()) } else { None })
            .collect()
    }

    /// The calls, in the order they are to run.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.blocks.iter().filter_map(|b| if let ContentBlock::ToolCall(c) = b { Some(c) } else { None })
    }
}

/// What happens while a reply comes in. The content itself gathers in the [`Reply`].
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// The provider accepted the request and answers: headers are here, content may take its time.
    Opened,
    /// Text to show, never empty, already appended to the reply.
    TextDelta(String),
    /// A transient failure; the request is sent again after `wait`. The reply starts over.
    Retry { attempt: u32, wait: Duration, error: ChatError },
}

/// The events of one reply: ends after the last one, or with an `Err` that is final.
pub type ModelStream<'a> = Pin<Box<dyn Stream<Item = Result<ModelEvent, ChatError>> + 'a>>;

/// A provider. Dropping the stream cancels the request and closes its socket.
pub trait Model {
    fn stream<'a>(&'a self, request: Request<'a>, reply: &'a mut Reply) -> ModelStream<'a>;
}
