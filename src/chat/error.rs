//! What can go wrong between a request and its reply.

use crate::config::Limit;

/// Machine-readable class of a [`ChatError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatErrorKind {
    /// No connection: refused, unknown name, TLS, proxy.
    Connect,
    /// A timer ran out: connecting, first byte, silence, no data.
    Timeout,
    /// An HTTP status other than 2xx.
    Status(u16),
    /// The body broke off, or was not what the protocol allows.
    Stream,
    /// The provider reported an error inside a 200 answer.
    Provider,
    /// A bound of `[limits]` stopped the reply; the setting's name.
    Limit(&'static str),
}

/// A failed request. The message is one line, unredacted: only the recorder's output may be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ChatError {
    pub kind: ChatErrorKind,
    pub message: String,
}

impl ChatError {
    pub fn new(kind: ChatErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// `what` exceeded `limit`: the literal message of contract section 9, then the setting to raise.
    pub fn over(limit: Limit, what: &str) -> Self {
        Self::new(
            ChatErrorKind::Limit(limit.setting),
            format!("{what} (setting: [limits] {})", limit.setting),
        )
    }
}
