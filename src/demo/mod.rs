//! The scripted loopback provider.
//!
//! One server, three users: the first run without a key (`Answers::Assistant`, a small built-in
//! brain), the documentation's examples, and our own tests, which script every byte of a reply in
//! one JSON format (`script`). It listens on 127.0.0.1 only, lives on the caller's executor and
//! writes raw sockets, so that broken framing reaches the client unrepaired. It knows nothing of the
//! rest of the house. Read `script` for the format, then `server`.

mod assistant;
mod audit;
mod completion;
mod predicate;
mod request;
mod script;
mod send;
mod server;
mod template;

pub use audit::{AuditCode, Protocol};
pub use completion::Completion;
pub use predicate::{Check, Kind, Pattern, Predicate, Range, SomeOf};
pub use script::{
    After, Case, Chunk, Coding, Encode, EncodeWhen, Fields, Framing, Guard, Reply, ScriptError,
};
pub use server::{Answers, Exchange, RequestLog, Server};

/// What whoever starts the demo has to show: nobody should take its replies for a model's.
pub const NOTICE: &str = "this is a scripted demo, not a model";
