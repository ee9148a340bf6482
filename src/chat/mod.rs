//! Talking to a provider: one request, one streamed reply.
//!
//! `message` and `model` are what the rest of the house sees. `wire` turns them into bytes and back
//! without I/O, `sse` frames bytes, `transport` owns sockets and time, `retry` the schedule. Nothing
//! here knows sessions, tools or screens. Read `model` first.

pub mod error;
pub mod message;
pub mod model;
