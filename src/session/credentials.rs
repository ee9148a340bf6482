//! Finds the key of a session and says what must be redacted for it.
//!
//! The key comes from the one variable that the settings or the session's header name. Whether it can
//! be told apart from our own output is `key_rules`' to say.

use std::env;

use super::{record::Header, redact::Redactor};
use crate::config::{Llm, Secret};

/// What in a header's name says that its value is a credential.
const SECRET_WORDS: [&str; 6] = ["key", "token", "secret", "password", "auth", "cookie"];
/// Shorter header values are words that text may well hold.
const SECRET_BYTES_MIN: usize = 8;

/// The key in variable `name`. Unset, empty and not UTF-8 are all no key.
pub fn key_from_env(name: &str) -> Option<Secret> {
    // A name with `=` or NUL cannot be a variable's.
    let value = if name.contains(['=', '\0']) { None } else { env::var(name).ok() };
    value.filter(|value| !value.is_empty()).map(Secret::new)
}

/// The redactor for the key, and for extra headers whose names say that they are credentials.
pub fn redactor(key: &Secret, llm: &Llm) -> Redactor {
    let is_secret = |name: &str| SECRET_WORDS.iter().any(|word| name.to_ascii_lowercase().contains(word));
    let headers = llm.extra_headers.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value);
    let long = headers.filter(|value| value.expose().len() >= SECRET_BYTES_MIN);
    Redactor::new([key].into_iter().chain(long).cloned().collect())
}

/// `text` as a session of `llm` would send it: without the key, if there is one.
pub fn without_key(llm: &Llm, text: &str) -> String {
    match key_from_env(&llm.api_key_env) {
        Some(key) => redactor(&key, llm).text(text).into_owned(),
        None => text.to_owned(),
    }
}

/// What must not be in a session file with this header, as bytes: for listing.
pub fn secrets_for(header: &Header, configured_env: Option<&str>) -> Vec<Vec<u8>> {
    let names = [Some(header.api_key_env.as_str()), configured_env];
    names.into_iter().flatten().filter_map(key_from_env).map(|key| key.expose().as_bytes().to_vec()).collect()
}
