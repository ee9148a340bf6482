//! Talking to a provider: one request, one streamed reply.
//!
//! `message` and `model` are what the rest of the house sees, `transport::HttpModel` is the one real
//! provider. Below it nothing does I/O: `wire` turns a request into bytes and frames into a reply,
//! `intake` and `sse` turn bytes into frames, `complaint` reads what went wrong, `retry` is the
//! schedule. `transport` owns sockets and time. Nothing here knows sessions, tools or screens. Read
//! `model` first.

mod complaint;
pub mod error;
mod intake;
pub mod message;
pub mod model;
mod retry;
mod sse;
pub mod transport;
mod wire;
