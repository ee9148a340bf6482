//! Provider replies for the rig, from the usual to the raw.

use lucy::demo::{Chunk, Completion, Fields, Framing, Reply};
use serde_json::Value;

/// One text delta and a proper end.
pub fn text(text: &str) -> Reply {
    deltas(&[text])
}

/// Text in several deltas and a proper end.
pub fn deltas(parts: &[&str]) -> Reply {
    parts.iter().fold(Completion::new().gap_ms(1), |reply, part| reply.text(part)).finish()
}

/// One tool call `call-1`.
pub fn call(name: &str, arguments: Value) -> Reply {
    calls(&[("call-1", name, arguments)])
}

/// Several tool calls: id, name, arguments.
pub fn calls(calls: &[(&str, &str, Value)]) -> Reply {
    let add = |reply: Completion, (id, name, arguments): &(&str, &str, Value)| {
        reply.call(id, name, &arguments.to_string())
    };
    calls.iter().fold(Completion::new(), add).finish()
}

/// A status with a body, JSON if it looks like it and HTML otherwise.
pub fn http(status: u16, body: &str) -> Reply {
    let kind = if body.starts_with('{') { "application/json" } else { "text/html" };
    Reply {
        status,
        headers: Fields::from([("Content-Type", kind)]),
        framing: Framing::Length,
        body_chunks: vec![Chunk::Text(body.into())],
        ..Reply::default()
    }
}
