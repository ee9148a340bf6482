//! Addresses: the endpoint below a base URL, and where a redirect may lead. Pure.

use surf::Url;

use crate::chat::error::{ChatError, ChatErrorKind};

/// `base` with `path` behind it. A query stays, a path that is there already is not doubled, and no
/// `/v1` is guessed (quirks 44, 45).
pub fn endpoint(base: &str, path: &str) -> Result<Url, ChatError> {
    // The text is not repeated: a key may sit in its query (quirk 42).
    let invalid =
        |why: &str| ChatError::new(ChatErrorKind::Connect, format!("llm.base_url is not usable: {why}"));
    let mut url = Url::parse(base.trim()).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(invalid("it must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        // It would be stored in the session's header, and is not sent anyway.
        return Err(invalid("it must not hold a user name or password (keys: api_key_env, extra_headers)"));
    }
    let trimmed = url.path().trim_end_matches('/');
    let whole = if trimmed.ends_with(path) { trimmed.to_owned() } else { format!("{trimmed}{path}") };
    url.set_path(&whole);
    url.set_fragment(None);
    Ok(url)
}

/// Where a redirect leads: only 307 and 308 keep method and body, and only the same origin may see the
/// key (quirk 46). `Err` names the target's host.
pub fn redirect(from: &Url, status: u16, location: &str) -> Result<Url, String> {
    let Ok(target) = from.join(location.trim()) else { return Err("an invalid address".to_owned()) };
    if matches!(status, 307 | 308) && target.origin() == from.origin() {
        return Ok(target);
    }
    Err(target.origin().ascii_serialization())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(base: &str, expected: &str) {
        assert_eq!(endpoint(base, "/chat/completions").unwrap().as_str(), expected);
    }

    #[test]
    fn endpoints() {
        check("http://h/v1", "http://h/v1/chat/completions");
        check("http://h/v1/", "http://h/v1/chat/completions");
        check(" http://h/v1// ", "http://h/v1/chat/completions");
        check("https://h", "https://h/chat/completions");
        check("http://h:8080/v1/chat/completions", "http://h:8080/v1/chat/completions");
        check("http://h/v1/chat/completions/", "http://h/v1/chat/completions");
        check("http://[::1]:9/v1", "http://[::1]:9/v1/chat/completions");
        check("https://h/d/x?api-version=1", "https://h/d/x/chat/completions?api-version=1");
        check("https://h/v1#top", "https://h/v1/chat/completions");
        for base in ["", "h/v1", "ftp://h/", "http://", "localhost:8080/v1", "http://u@h/", "http://:pw@h/"] {
            assert!(endpoint(base, "/chat/completions").is_err(), "{base}");
        }
        let error = endpoint("nonsense sk-key", "/x").unwrap_err();
        assert!(!error.message.contains("sk-key"));
    }

    #[test]
    fn redirects() {
        let from = Url::parse("https://h/v1/x").unwrap();
        let check = |status, location, expected: Result<&str, &str>| {
            let found = redirect(&from, status, location).map(String::from);
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{status} {location}");
        };
        check(308, "/moved", Ok("https://h/moved"));
        check(307, "https://h:443/y?z=1", Ok("https://h/y?z=1"));
        check(301, "/moved", Err("https://h"));
        check(302, "https://login.example/a?token=1", Err("https://login.example"));
        check(308, "http://h/v1/x", Err("http://h"));
        check(308, "https://other/", Err("https://other"));
        check(308, "http://[", Err("an invalid address"));
    }
}
