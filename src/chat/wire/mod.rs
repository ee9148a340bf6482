//! The protocols: a request to bytes, frames to a reply. No sockets, no clock.
//!
//! Each protocol is one file with an encoder and a decoder, and one arm of [`Protocol`]. What they
//! share stands beside them: `calls` assembles tool calls, `arguments` puts their JSON in order,
//! `json` reads what a strict parser refuses. Read `chat_completions` next.

mod arguments;
mod calls;
mod chat_completions;
mod json;

use super::{
    message::ToolSpec,
    model::{ModelEvent, Reply, Request},
    retry::Failure,
    sse::Frame,
};
use crate::config::Limits;

/// How to talk to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    ChatCompletions,
}

/// What an endpoint was found, or told, to need. Remembered for the life of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// Ask for token usage.
    pub usage: bool,
    /// An assistant message without text carries `""` instead of null (quirk 97).
    pub empty_content: bool,
}

/// How far a reply has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More has to come.
    Open,
    /// Complete; a word on usage may still follow.
    Settling,
    /// Nothing follows.
    Done,
}

impl Progress {
    /// The reply is complete, if it was not so already.
    fn completed(self) -> Self {
        if self == Self::Done { Self::Done } else { Self::Settling }
    }
}

/// Builds one reply from its frames.
pub trait Decoder {
    /// Takes one frame in; text it brings is in the reply and in the event.
    fn push(&mut self, frame: Frame<'_>, reply: &mut Reply) -> Result<Option<ModelEvent>, Failure>;

    fn progress(&self) -> Progress;

    /// The stream is over: closes the reply, or says what it lacks. May bring a last bit of text.
    fn finish(&mut self, reply: &mut Reply) -> Result<Option<ModelEvent>, Failure>;
}

impl Protocol {
    /// The path that belongs behind a base URL.
    pub fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/chat/completions",
        }
    }

    /// Appends the body of `request` to `out`.
    pub fn encode(self, request: &Request<'_>, dialect: Dialect, out: &mut Vec<u8>) {
        match self {
            Self::ChatCompletions => chat_completions::encode(request, dialect, out),
        }
    }

    /// A decoder for one reply. `seed` varies the ids made up for calls that come without one.
    pub fn decoder(self, tools: &[ToolSpec], limits: &Limits, seed: u64) -> Box<dyn Decoder> {
        match self {
            Self::ChatCompletions => Box::new(chat_completions::Decoder::new(tools, limits, seed)),
        }
    }
}
