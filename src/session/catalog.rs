//! `--list-sessions`: safe metadata of every sound session file, newest first.

use std::{fs, io, os::unix::fs::OpenOptionsExt, path::Path};

use rustix::fs::OFlags;
use serde::Serialize;

use super::{
    reader::{self, Found, ReadError},
    record::{Header, Record, is_session_id},
};

/// Characters of a message that a summary keeps (published).
const SUMMARY_CHARS: usize = 120;

/// One line of the listing, in published field order.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "session_metadata")]
pub struct Metadata {
    pub session_id: String,
    /// Unix milliseconds.
    pub created_at: u64,
    /// Unix milliseconds.
    pub updated_at: u64,
    /// `user: ` and the first user text.
    pub first_message: Option<String>,
    /// `role: ` and the last text of the user or the assistant.
    pub last_message: Option<String>,
}

/// What a folder of sessions holds.
#[derive(Debug, Default)]
pub struct Listing {
    /// Newest `updated_at` first.
    pub sessions: Vec<Metadata>,
    /// Files left out: malformed, unreadable, or holding a key.
    pub left_out: usize,
}

/// Lists `dir`; a folder that is not there has no sessions. `secrets` says what must not be in a file
/// with this header.
pub fn list(dir: &Path, secrets: impl Fn(&Header) -> Vec<Vec<u8>>) -> io::Result<Listing> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
        Err(error) => return Err(error),
    };
    let mut listing = Listing::default();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".jsonl")) else { continue };
        // What `--session` would refuse is no session.
        if !is_session_id(id) || !entry.file_type()?.is_file() {
            continue;
        }
        match summarize(&entry.path(), id, &secrets) {
            Ok(metadata) => listing.sessions.push(metadata),
            // A run that was killed before its header was written has lost nothing.
            Err(ReadError::NoHeader) => {}
            Err(_) => listing.left_out += 1,
        }
    }
    listing.sessions.sort_by(|a, b| (b.updated_at, &b.session_id).cmp(&(a.updated_at, &a.session_id)));
    Ok(listing)
}

fn summarize(
    path: &Path,
    id: &str,
    secrets: impl Fn(&Header) -> Vec<Vec<u8>>,
) -> Result<Metadata, ReadError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let (mut first, mut last) = (None, None);
    let found = reader::read(file, id, secrets, |record| match record {
        Record::User { text } => {
            let summary = summary("user", &text);
            first.get_or_insert_with(|| summary.clone());
            last = Some(summary);
        }
        Record::Assistant(reply) => {
            let text = reply.text();
            if !text.is_empty() {
                last = Some(summary("assistant", &text));
            }
        }
        _ => {}
    })?;
    let Found { header, damaged, updated_at, .. } = found;
    if let Some(&line) = damaged.first() {
        return Err(ReadError::InvalidRecord(line));
    }
    Ok(Metadata {
        session_id: header.session_id,
        created_at: header.created_at,
        updated_at,
        first_message: first,
        last_message: last,
    })
}

/// `role: ` and the start of a text on one line, without control characters.
fn summary(role: &str, text: &str) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut summary = format!("{role}: ");
    summary.extend(chars.by_ref().take(SUMMARY_CHARS));
    if chars.next().is_some() {
        summary.push('…');
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_one_bounded_line() {
        assert_eq!(summary("user", "a\nb\u{1b}[c"), "user: a b [c");
        assert_eq!(summary("user", &"é".repeat(120)), format!("user: {}", "é".repeat(120)));
        assert_eq!(summary("user", &"é".repeat(121)), format!("user: {}…", "é".repeat(120)));
    }
}
