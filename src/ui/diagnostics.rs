//! One line on stderr, without secrets. Nothing else in the house writes there.

use std::{env, sync::Mutex};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    stdio::stderr,
};

use crate::{config::Secret, session::MARKER};

/// Values that no diagnostic may hold: the active key, once known.
static PROTECTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps `secret` out of every later diagnostic and panic text.
pub fn protect(secret: &Secret) {
    if let Ok(mut protected) = PROTECTED.lock() {
        protected.push(secret.expose().to_owned());
    }
}

/// `lucy: <message>` as one line.
pub fn say(message: &str) {
    write_line(&format!("lucy: {message}"));
}

/// A second line, for what helps.
pub fn hint(message: &str) {
    write_line(&format!("hint: {message}"));
}

/// Something that stops nothing.
pub fn warn(message: &str) {
    say(&format!("warning: {message}"));
}

/// A plain note, from a command whose stdout is for data.
pub fn note(message: &str) {
    write_line(message);
}

fn write_line(line: &str) {
    let mut line = scrub(line);
    line.push('\n');
    // A stderr that nobody reads must not stop the program: after a moment the line is given up.
    let patience = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let mut bytes = line.as_bytes();
    while !bytes.is_empty() {
        let writable = poll(&mut [PollFd::from_borrowed_fd(stderr(), PollFlags::OUT)], Some(&patience));
        if !matches!(writable, Ok(1)) {
            return;
        }
        match rustix::io::write(stderr(), &bytes[..bytes.len().min(4096)]) {
            Ok(written) if written > 0 => bytes = &bytes[written..],
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

/// The text on one line, without the key and without the values of variables that look like
/// credentials (contract section 0).
fn scrub(line: &str) -> String {
    let mut secrets = PROTECTED.lock().map(|protected| protected.clone()).unwrap_or_default();
    secrets.extend(env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.to_str()?.to_ascii_uppercase(), value.into_string().ok()?);
        let named = ["KEY", "TOKEN", "SECRET", "PASSWORD"].iter().any(|end| name.ends_with(end));
        (named && value.len() >= 8).then_some(value)
    }));
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut line = line.to_owned();
    for secret in &secrets {
        line = line.replace(secret.as_str(), MARKER);
    }
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protected_key_and_line_ends_are_taken_out() {
        protect(&Secret::new("sk-invented-7f3a9"));
        assert_eq!(scrub("a\nb sk-invented-7f3a9\u{1b}[31m"), "a b [REDACTED] [31m");
    }
}
