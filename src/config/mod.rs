//! What a person may set, and where it is kept.
//!
//! Owns config.toml, the bounds, and the paths under Lucy's home. Knows no provider, no session
//! and no screen; everything here is plain values.

mod file;
mod home;
mod limits;
mod secret;

pub use file::{bootstrap, load};
pub use home::{Home, owned_by_us, private_dir};
pub use limits::{Limit, Limits};
pub use secret::Secret;

use std::{fmt, io, path::Path, time::Duration};

/// All of config.toml, with defaults where it is silent.
#[derive(Clone, Debug)]
pub struct Settings {
    pub system_prompt: String,
    pub llm: Llm,
    pub limits: Limits,
}

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

impl Llm {
    /// What must hold before a key is looked for (contract section 2).
    pub fn check_endpoint(&self) -> Result<(), ConfigError> {
        if self.base_url.is_empty() {
            return Err(ConfigError::new("llm.base_url must not be empty"));
        }
        let scheme = self.base_url.split_once("://").map_or("", |(scheme, _)| scheme);
        if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(ConfigError::new("llm.base_url must start with http:// or https://"));
        }
        if self.api_key_env.is_empty() {
            return Err(ConfigError::new("llm.api_key_env must not be empty"));
        }
        Ok(())
    }

    /// What must hold after the key was accepted: the published order of complaints.
    pub fn check_model(&self) -> Result<(), ConfigError> {
        if self.model.is_empty() {
            return Err(ConfigError::new("missing llm.model; set a model in config.toml"));
        }
        if self.effort.as_ref().is_some_and(|effort| effort.trim().is_empty()) {
            return Err(ConfigError::new("llm.effort must not be empty"));
        }
        Ok(())
    }
}

/// Settings that cannot be used: one line, and where it helps a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    message: String,
    hint: Option<String>,
}

impl ConfigError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    fn cause(self, path: &Path, error: &io::Error) -> Self {
        self.hint(format!("{}: {error}", path.display()))
    }

    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}
