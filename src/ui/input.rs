//! Input records from stdin: read ahead in order while turns run, within a bound of bytes.
//!
//! Splitting and parsing are pure; only `Stdin` touches the descriptor. A cancel record acts when it is
//! read, everything else when its turn comes (contract sections 0 and 4).

use std::{cell::Cell, fs::File, io, rc::Rc};

use async_channel::{Receiver, Sender, bounded, unbounded};
use async_io::Async;
use serde::Deserialize;

use super::signals::Stopper;
use crate::{cancel::CancelReason, config::Limit, session::Input};

const READ_BYTES: usize = 64 * 1024;
/// What a record costs in the queue beside its bytes, so that empty ones are bounded, too.
const RECORD_OVERHEAD: usize = 64;

/// An input and its share of the read-ahead bound.
pub type Queued = (Input, Permit);

/// A queue for inputs. It holds any number of records, but its reader stops at `limit` bytes.
pub fn queue() -> (Sender<Queued>, Receiver<Queued>) {
    unbounded()
}

/// Reads stdin to its end. Returns early, without error, when nobody takes inputs any more.
pub async fn read(inputs: Sender<Queued>, stopper: Rc<Stopper>, limit: Limit) -> io::Result<()> {
    let stdin = Stdin::open()?;
    let budget = Budget::new(limit.max);
    let mut splitter = Splitter::new(limit.max);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = stdin.read(&mut buffer).await?;
        if count > 0 {
            splitter.push(&buffer[..count]);
        } else {
            splitter.finish();
        }
        while let Some(line) = splitter.next() {
            let (bytes, parsed) = match line {
                Line::Record(bytes) => (bytes.len(), parse(&bytes)),
                Line::TooLong => (0, Parsed::Malformed(too_long(limit))),
            };
            let input = match parsed {
                Parsed::Message(text) => Input::Message { text, token: stopper.new_turn() },
                Parsed::Malformed(message) => Input::Malformed { message },
                Parsed::Cancel => {
                    stopper.cancel_turn(CancelReason::User);
                    continue;
                }
                Parsed::Blank => continue,
            };
            let permit = budget.take(bytes + RECORD_OVERHEAD).await;
            if inputs.send((input, permit)).await.is_err() {
                return Ok(());
            }
        }
        if count == 0 {
            return Ok(());
        }
    }
}

fn too_long(limit: Limit) -> String {
    format!("input record exceeded {} MiB (setting: [limits] {})", limit.max / (1024 * 1024), limit.setting)
}

/// Standard input without a thread: waits until it is readable, then reads what is there.
struct Stdin {
    file: File,
    /// Absent for a regular file or /dev/null, which never make a reader wait.
    waiter: Option<Async<File>>,
}

impl Stdin {
    fn open() -> io::Result<Self> {
        let file = File::from(rustix::stdio::stdin().try_clone_to_owned()?);
        let waiter = Async::new_nonblocking(file.try_clone()?).ok();
        Ok(Self { file, waiter })
    }

    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(waiter) = &self.waiter {
                waiter.readable().await?;
            }
            match rustix::io::read(&self.file, &mut *buffer) {
                Ok(count) => return Ok(count),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Bytes that may wait in the queue.
struct Budget {
    max: usize,
    used: Cell<usize>,
    freed: (Sender<()>, Receiver<()>),
}

/// A record's share of the budget, given back when the record is taken.
pub struct Permit {
    budget: Rc<Budget>,
    bytes: usize,
}

impl Budget {
    fn new(max: usize) -> Rc<Self> {
        Rc::new(Self { max, used: Cell::new(0), freed: bounded(1) })
    }

    /// Waits for room. A record larger than all of it gets in once the queue is empty.
    async fn take(self: &Rc<Self>, bytes: usize) -> Permit {
        while self.used.get() > 0 && self.used.get() + bytes > self.max {
            // Both ends live in this budget, so the channel never closes.
            let _ = self.freed.1.recv().await;
        }
        self.used.set(self.used.get() + bytes);
        Permit { budget: self.clone(), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - self.bytes);
        // A full channel already holds a wake-up.
        let _ = self.budget.freed.0.try_send(());
    }
}

/// Cuts bytes at LF. A line over the bound is dropped to its end; it costs one error.
struct Splitter {
    line: Vec<u8>,
    /// Bytes not yet looked at.
    rest: Vec<u8>,
    at: usize,
    max: usize,
    too_long: bool,
    first: bool,
    ended: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Record(Vec<u8>),
    TooLong,
}

impl Splitter {
    fn new(max: usize) -> Self {
        Self { line: Vec::new(), rest: Vec::new(), at: 0, max, too_long: false, first: true, ended: false }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.rest.drain(..self.at);
        self.at = 0;
        self.rest.extend_from_slice(bytes);
    }

    /// No more bytes come: what is left is a line, too.
    fn finish(&mut self) {
        self.ended = true;
    }

    fn next(&mut self) -> Option<Line> {
        let rest = &self.rest[self.at..];
        let (piece, found) = match memchr::memchr(b'\n', rest) {
            Some(end) => (&rest[..end], true),
            None => (rest, false),
        };
        if self.line.len() + piece.len() > self.max {
            self.too_long = true;
            self.line = Vec::new();
        }
        if !self.too_long {
            self.line.extend_from_slice(piece);
        }
        self.at += piece.len() + usize::from(found);
        if !found && !(self.ended && (self.too_long || !self.line.is_empty())) {
            return None;
        }
        if std::mem::take(&mut self.too_long) {
            self.first = false;
            return Some(Line::TooLong);
        }
        Some(Line::Record(self.take_line()))
    }

    /// The line without a trailing CR, and without the BOM on the first one.
    fn take_line(&mut self) -> Vec<u8> {
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if std::mem::take(&mut self.first) && line.starts_with("\u{feff}".as_bytes()) {
            line.drain(..3);
        }
        line
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Message(String),
    Cancel,
    Malformed(String),
    Blank,
}

/// Reads one record; the messages are published (contract section 4).
fn parse(line: &[u8]) -> Parsed {
    #[derive(Deserialize)]
    struct Record {
        #[serde(rename = "type")]
        kind: String,
        text: Option<String>,
    }
    let malformed = |message: &str| Parsed::Malformed(message.to_owned());
    let line = line.trim_ascii();
    if line.is_empty() {
        return Parsed::Blank;
    }
    // serde would take an array for a struct.
    let record = line.starts_with(b"{").then(|| serde_json::from_slice::<Record>(line));
    let Some(Ok(record)) = record else {
        return malformed("input must be a JSONL message record");
    };
    match (record.kind.as_str(), record.text) {
        ("message", Some(text)) => Parsed::Message(text),
        ("message", None) => malformed("message record requires a text string"),
        ("cancel", _) => Parsed::Cancel,
        _ => malformed("input record type must be message"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(line: &str, expected: Parsed) {
        assert_eq!(parse(line.as_bytes()), expected, "{line}");
    }

    fn malformed(message: &str) -> Parsed {
        Parsed::Malformed(message.to_owned())
    }

    #[test]
    fn records() {
        check(r#"{"type":"message","text":"hi"}"#, Parsed::Message("hi".into()));
        check(r#" {"text":"","type":"message","more":[1]} "#, Parsed::Message(String::new()));
        check("{\"type\":\"message\",\"text\":\"\u{2028}\\u0000\"}", Parsed::Message("\u{2028}\0".into()));
        check(r#"{"type":"cancel"}"#, Parsed::Cancel);
        check(" \t", Parsed::Blank);
        for line in [
            "x",
            r#"["message","hi"]"#,
            r#"{"text":"hi"}"#,
            r#"{"type":"message","text":5}"#,
            r#"{"type":"message","type":"message","text":"x"}"#,
            r#"{"type":"message","text":"a","text":"b"}"#,
            r#"{"type":"message","text":"\ud800"}"#,
            "{\"type\":\"message\",\"text\":\"\0\"}",
            r#"{"type":"message","text":"a"} x"#,
        ] {
            check(line, malformed("input must be a JSONL message record"));
        }
        check(r#"{"type":"messages","text":"x"}"#, malformed("input record type must be message"));
        check(r#"{"type":"message","text":null}"#, malformed("message record requires a text string"));
        check(r#"{"type":"message"}"#, malformed("message record requires a text string"));
        assert_eq!(
            parse(b"{\"type\":\"message\",\"text\":\"\xff\"}"),
            malformed("input must be a JSONL message record")
        );
    }

    fn split(max: usize, pieces: &[&[u8]]) -> Vec<Line> {
        let mut splitter = Splitter::new(max);
        let mut lines = Vec::new();
        for piece in pieces {
            splitter.push(piece);
            lines.extend(std::iter::from_fn(|| splitter.next()));
        }
        splitter.finish();
        lines.extend(std::iter::from_fn(|| splitter.next()));
        lines
    }

    #[test]
    fn lines() {
        let record = |text: &str| Line::Record(text.into());
        assert_eq!(split(9, &[b"a\r\nb", b"c\n", b"d"]), [record("a"), record("bc"), record("d")]);
        assert_eq!(split(9, &["\u{feff}a\n\u{feff}b".as_bytes()]), [record("a"), record("\u{feff}b")]);
        assert_eq!(split(3, &[b"abcd\nabc\n", b"ab", b"cd"]), [Line::TooLong, record("abc"), Line::TooLong]);
        assert_eq!(split(3, &[b"\n"]), [record("")]);
        assert_eq!(split(3, &[]), []);
    }

    proptest! {
        /// Where reads end changes no line.
        #[test]
        fn cuts_change_nothing(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..60), cut in 0usize..60) {
            let cut = cut.min(bytes.len());
            prop_assert_eq!(split(8, &[&bytes[..cut], &bytes[cut..]]), split(8, &[&bytes[..]]));
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn the_budget_waits_for_room() {
        smol::block_on(async {
            let budget = Budget::new(10);
            let big = budget.take(50).await;
            assert!(futures_lite::future::poll_once(budget.take(1)).await.is_none());
            drop(big);
            let _small = budget.take(1).await;
        });
    }
}
