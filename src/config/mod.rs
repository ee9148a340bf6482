//! What a person may set, and where it is kept.
//!
//! Owns config.toml, the bounds, and the paths under Lucy's home. Knows no provider, no session
//! and no screen; everything here is plain values.

mod limits;
mod secret;

pub use limits::{Limit, Limits};
pub use secret::Secret;

use std::time::Duration;

/// How to reach and ask the model: `[llm]` of config.toml.
#[derive(Clone, Debug)]
pub struct Llm {
    /// As written, trimmed; the protocol's path is appended when a URL is built.
    pub base_url: String,
    pub model: String,
    /// The environment variable that holds the key, and is kept from child processes.
    pub api_key_env: String,
    /// Sent verbatim.
    pub effort: Option<String>,
    /// Longest wait for the first byte, and for silence between bytes.
    pub timeout: Duration,
    /// Longest time without a data event, comments or not.
    pub data_timeout: Duration,
    /// How often a transient failure is tried again.
    pub max_retries: u32,
    /// Sent with each request; names checked, values never printed.
    pub extra_headers: Vec<(String, Secret)>,
    /// Ask for token usage with `stream_options`.
    pub usage: bool,
}
