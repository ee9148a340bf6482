//! Keeps the beginning of an output stream, drains the rest, and turns what it kept into text.
//!
//! Memory stays flat whatever a command writes. Redaction is not done here, but a cut can leave the
//! first half of a secret that no redactor would recognize: that half is dropped here. Knows nothing
//! of processes; `runner` owns the pipes.

use std::io::ErrorKind;

use futures_lite::{AsyncRead, AsyncReadExt, future};

use crate::config::{Limit, Secret};

/// A pipe holds 64 KiB on Linux; one read empties it.
const CHUNK_BYTES: usize = 64 * 1024;

/// The first `limit` bytes of a stream, and whether there was more.
#[derive(Debug)]
pub struct Capture {
    kept: Vec<u8>,
    limit: Limit,
    dropped_bytes: u64,
    ended: bool,
}

impl Capture {
    pub fn new(limit: Limit) -> Self {
        Self { kept: Vec::new(), limit, dropped_bytes: 0, ended: false }
    }

    /// Reads `source` to its end. May be dropped at any time: what was read so far is kept.
    pub async fn fill(&mut self, mut source: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match source.read(&mut chunk).await {
                Ok(0) => {
                    self.ended = true;
                    return;
                }
                Ok(read) => self.push(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
            // A writer as fast as `yes` keeps the pipe full: without this, no timer, no cancel and no
            // key would be heard on our one thread.
            future::yield_now().await;
        }
    }

    /// The text, and whether it is less than the stream held. It has at most `limit` bytes, and does
    /// not end in a piece of one of `secrets` that the cut has torn off.
    pub fn into_text(self, secrets: &[Secret]) -> (String, bool) {
        let mut truncated = !self.ended || self.dropped_bytes > 0;
        let whole = if truncated { without_torn_char(&self.kept) } else { &self.kept };
        let mut text = String::from_utf8_lossy(whole).into_owned();
        if self.limit.exceeded_by(text.len()) {
            // U+FFFD takes three bytes in the place of one.
            text.truncate(char_boundary_before(&text, self.limit.max));
            truncated = true;
        }
        if truncated {
            text = secrets.iter().fold(text, |text, secret| without_cut_secret(text, secret.expose()));
        }
        (text, truncated)
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.limit.max - self.kept.len();
        let (kept, dropped) = bytes.split_at(room.min(bytes.len()));
        self.kept.extend_from_slice(kept);
        self.dropped_bytes += dropped.len() as u64;
    }
}

/// `text`, which was cut at its end, without the longest tail that could be the beginning of `secret`.
/// A tail that belongs to a whole occurrence stays: the redactor needs all of it to see it.
pub fn without_cut_secret(mut text: String, secret: &str) -> String {
    if secret.is_empty() {
        return text;
    }
    let seen = text.match_indices(secret).last().map_or(0, |(at, _)| at + secret.len());
    let tail = &text[seen..];
    let torn = secret.char_indices().map(|(at, _)| at).rev().find(|&len| tail.ends_with(&secret[..len]));
    text.truncate(text.len() - torn.unwrap_or(0));
    text
}

/// `bytes` without an unfinished character at their end: the cut tore it, not the writer.
fn without_torn_char(bytes: &[u8]) -> &[u8] {
    let tail = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    let torn = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
    if torn { &bytes[..bytes.len() - tail.len()] } else { bytes }
}

fn char_boundary_before(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(bytes: &[u8], max: usize, secrets: &[&str]) -> (String, bool) {
        let mut capture = Capture::new(Limit { max, setting: "capture_kib" });
        smol::block_on(capture.fill(bytes));
        let secrets: Vec<_> = secrets.iter().map(|secret| Secret::new(*secret)).collect();
        capture.into_text(&secrets)
    }

    #[track_caller]
    fn check(bytes: &[u8], max: usize, text: &str, truncated: bool) {
        assert_eq!(captured(bytes, max, &["key-1234", "schlüssel"]), (text.to_owned(), truncated));
    }

    #[test]
    fn the_first_bytes_are_kept() {
        check(b"", 4, "", false);
        check(b"abcd", 4, "abcd", false);
        check(b"abcde", 4, "abcd", true);
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced_within_the_limit() {
        check(b"a\xffb", 8, "a\u{fffd}b", false);
        check(b"a\xc3", 8, "a\u{fffd}", false);
        check(b"\xff\xff\xff", 8, "\u{fffd}\u{fffd}", true);
        check("aüb".as_bytes(), 2, "a", true);
        check("a€".as_bytes(), 3, "a", true);
        check(b"a\xffb", 2, "a", true);
    }

    #[test]
    fn a_secret_torn_by_the_cut_leaves_no_piece() {
        check(b"x key-1234", 9, "x ", true);
        check(b"x key-1234", 3, "x ", true);
        check(b"x key-1234 ", 10, "x key-1234", true);
        check(b"x key-", 9, "x key-", false);
        check("x schlüssel".as_bytes(), 7, "x ", true);
        // The replaced byte makes the text longer, and the second cut tears the secret.
        check(b"\xff key-1234", 10, "\u{fffd} ", true);
    }

    #[test]
    fn a_stream_that_did_not_end_is_cut_too() {
        let mut capture = Capture::new(Limit { max: 64, setting: "capture_kib" });
        capture.push(b"so far key-");
        assert_eq!(capture.into_text(&[Secret::new("key-1234")]), ("so far ".to_owned(), true));
    }

    #[test]
    fn the_longest_torn_piece_goes_and_whole_secrets_stay() {
        let check = |text: &str, secret, expected: &str| {
            assert_eq!(without_cut_secret(text.to_owned(), secret), expected, "{text} {secret}");
        };
        check("xaa", "aab", "x");
        check("abcab", "abcab", "abcab");
        check("abcab abc", "abcab", "abcab ");
        check("text", "", "text");
        check("", "key", "");
        check("ü", "üb", "");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_give_bounded_text(bytes: Vec<u8>, max in 1usize..32, secret: String) {
            let (text, _) = captured(&bytes, max, &[&secret]);
            proptest::prop_assert!(text.len() <= max);
        }

        #[test]
        fn no_cut_shows_the_beginning_of_a_secret(before in "[a-c]{0,6}", secret in "[d-f]{2,8}", cut in 1usize..8) {
            let cut = cut.min(secret.len() - 1);
            let stream = format!("{before}{secret}");
            let (text, _) = captured(stream.as_bytes(), before.len() + cut, &[&secret]);
            proptest::prop_assert_eq!(text, before);
        }
    }
}
