//! Chat Completions streams as scripted replies, for those who do not want to write SSE by hand.
//!
//! The built-in assistant and the tests build their replies here. All JSON is made by serde_json.

use serde_json::{Value, json};

use super::script::{Chunk, Reply};

/// A streamed answer under construction: deltas in order, then [`Completion::finish`].
#[derive(Clone, Debug, Default)]
pub struct Completion {
    chunks: Vec<Chunk>,
    calls: usize,
    gap_ms: u64,
}

impl Completion {
    /// An empty answer without gaps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Silence between two deltas.
    pub fn gap_ms(mut self, gap_ms: u64) -> Self {
        self.gap_ms = gap_ms;
        self
    }

    /// One text delta.
    pub fn text(self, text: &str) -> Self {
        self.delta(&json!({"content": text}))
    }

    /// One whole tool call, with `arguments` as the text it is on the wire.
    pub fn call(mut self, id: &str, name: &str, arguments: &str) -> Self {
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"index": self.calls, "id": id, "type": "function", "function": function});
        self.calls += 1;
        self.delta(&json!({"tool_calls": [call]}))
    }

    /// Any delta.
    pub fn delta(self, delta: &Value) -> Self {
        self.event(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
    }

    /// Any event, as its JSON.
    pub fn event(self, event: &Value) -> Self {
        self.chunk(Chunk::Text(format!("data: {event}\n\n")))
    }

    /// Any item of a body.
    pub fn chunk(mut self, chunk: Chunk) -> Self {
        self.chunks.push(chunk);
        self
    }

    /// The reply, ended as the protocol wants it: calls or text decide the finish reason.
    pub fn finish(self) -> Reply {
        let reason = if self.calls > 0 { "tool_calls" } else { "stop" };
        self.finish_with(reason)
    }

    /// The reply, ended for this reason.
    pub fn finish_with(self, reason: &str) -> Reply {
        self.event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
            .chunk(Chunk::Text("data: [DONE]\n\n".into()))
            .unfinished()
    }

    /// The reply as it is, without an end of the stream's own.
    pub fn unfinished(self) -> Reply {
        Reply { body_chunks: self.chunks, gap_ms: self.gap_ms, ..Reply::default() }
    }
}
