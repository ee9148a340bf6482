//! Server-sent events: bytes in, frames out, no JSON.
//!
//! Owns line ends (LF, CRLF, CR, also split over reads), joined data lines and the bounds that keep
//! memory small whatever a provider sends. Buffers are reused and a frame borrows them, so a stream in
//! its stride allocates nothing. `intake` decides whether a body is one of these at all.

use std::borrow::Cow;

use memchr::memchr2;

use super::error::ChatError;
use crate::config::Limits;

/// One dispatched event. `data` holds its data lines joined by LF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub event: &'a str,
    pub data: &'a str,
}

/// The frames of one response body.
#[derive(Debug)]
pub struct Frames {
    limits: Limits,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    event: String,
    data: String,
    data_lines: usize,
    stream_bytes: usize,
    /// The last byte was a CR, so an LF that follows belongs to it (quirk 3).
    after_cr: bool,
    /// `event` and `data` went out with the last frame.
    dispatched: bool,
    first_line: bool,
}

impl Frames {
    pub fn new(limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            line: Vec::new(),
            event: String::new(),
            data: String::new(),
            data_lines: 0,
            stream_bytes: 0,
            after_cr: false,
            dispatched: false,
            first_line: true,
        }
    }

    /// Takes bytes off the front of `input` until a frame is whole; `None` means it took them all.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Frame<'_>>, ChatError> {
        self.forget_dispatched();
        while let Some(&first) = input.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                *input = &input[1..];
                self.count(1)?;
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', input) else {
                self.count(input.len())?;
                self.keep(input)?;
                *input = &[];
                break;
            };
            let (head, tail) = input.split_at(end);
            self.after_cr = tail[0] == b'\r';
            *input = &tail[1..];
            self.count(end + 1)?;
            if self.line_ended(head)? {
                return Ok(Some(self.dispatch()));
            }
        }
        Ok(None)
    }

    /// The body is over: what was pending counts as a frame (quirk 5).
    pub fn finish(&mut self) -> Result<Option<Frame<'_>>, ChatError> {
        self.forget_dispatched();
        if !self.line.is_empty() {
            self.line_ended(&[])?;
        }
        Ok(if self.data_lines > 0 { Some(self.dispatch()) } else { None })
    }

    fn forget_dispatched(&mut self) {
        if std::mem::take(&mut self.dispatched) {
            self.event.clear();
            self.data.clear();
            self.data_lines = 0;
        }
    }

    fn dispatch(&mut self) -> Frame<'_> {
        self.dispatched = true;
        Frame { event: &self.event, data: &self.data }
    }

    fn count(&mut self, bytes: usize) -> Result<(), ChatError> {
        self.stream_bytes += bytes;
        if self.limits.stream.exceeded_by(self.stream_bytes) {
            return Err(ChatError::over(
                self.limits.stream,
                "provider SSE stream exceeded the response limit",
            ));
        }
        Ok(())
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), ChatError> {
        if self.limits.sse_line.exceeded_by(self.line.len() + part.len()) {
            return Err(ChatError::over(
                self.limits.sse_line,
                "provider SSE line exceeded the response limit",
            ));
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Reads the line that ends with `tail`; true if it was the blank one that closes a frame.
    fn line_ended(&mut self, tail: &[u8]) -> Result<bool, ChatError> {
        if self.line.is_empty() && !self.limits.sse_line.exceeded_by(tail.len()) {
            return self.read_line(tail);
        }
        self.keep(tail)?;
        let mut line = std::mem::take(&mut self.line);
        let closed = self.read_line(&line);
        line.clear();
        self.line = line;
        closed
    }

    fn read_line(&mut self, line: &[u8]) -> Result<bool, ChatError> {
        let line = match line.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) if self.first_line => rest,
            _ => line,
        };
        self.first_line = false;
        if line.is_empty() {
            let has_data = self.data_lines > 0;
            if !has_data {
                self.event.clear();
            }
            return Ok(has_data);
        }
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        // Whole lines are decoded, so a character split over reads is never torn (quirks 16, 17).
        match &line[..colon] {
            b"data" => self.add_data(&text(value))?,
            b"event" => {
                self.event.clear();
                self.event.push_str(&text(value));
            }
            _ => {}
        }
        Ok(false)
    }

    fn add_data(&mut self, value: &str) -> Result<(), ChatError> {
        self.data_lines += 1;
        if self.limits.sse_event_lines.exceeded_by(self.data_lines) {
            let what = "provider SSE data line count exceeded the response limit";
            return Err(ChatError::over(self.limits.sse_event_lines, what));
        }
        let joint = usize::from(self.data_lines > 1);
        if self.limits.sse_event.exceeded_by(self.data.len() + joint + value.len()) {
            let what = "provider SSE data event exceeded the response limit";
            return Err(ChatError::over(self.limits.sse_event, what));
        }
        if joint == 1 {
            self.data.push('\n');
        }
        self.data.push_str(value);
        Ok(())
    }
}

/// Bytes as text. What is valid is checked in one sweep, which the lossy reading alone does not do.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn collect(limits: &Limits, chunks: &[&[u8]]) -> Result<Vec<(String, String)>, ChatError> {
        let mut frames = Frames::new(limits);
        let mut seen = Vec::new();
        for chunk in chunks {
            let mut input = *chunk;
            while let Some(frame) = frames.next(&mut input)? {
                seen.push((frame.event.to_owned(), frame.data.to_owned()));
            }
            assert!(input.is_empty());
        }
        if let Some(frame) = frames.finish()? {
            seen.push((frame.event.to_owned(), frame.data.to_owned()));
        }
        Ok(seen)
    }

    #[track_caller]
    fn check(input: &[u8], expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(e, d)| (e.to_string(), d.to_string())).collect();
        for cut in 0..=input.len() {
            let (head, tail) = input.split_at(cut);
            assert_eq!(collect(&Limits::default(), &[head, tail]).unwrap(), expected, "cut at {cut}");
        }
        let single: Vec<_> = input.chunks(1).collect();
        assert_eq!(collect(&Limits::default(), &single).unwrap(), expected);
    }

    #[test]
    fn frames_survive_every_cut() {
        check(b"data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check(b"data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]);
        check(b"data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
        check(b"data:a\n\n", &[("", "a")]);
        check(b"data:  a\n\n", &[("", " a")]);
        check(b"data: a\ndata: b\n\n", &[("", "a\nb")]);
        check(b": hi\n:x\n\ndata: a\n\n: bye\n", &[("", "a")]);
        check(b"event: ping\ndata: {}\n\ndata: a\n\n", &[("ping", "{}"), ("", "a")]);
        check(b"event: lonely\n\ndata: a\n\n", &[("", "a")]);
        check(b"id: 7\nretry: 3000\nfoo\ndata: a\n\n", &[("", "a")]);
        check(b"data: [DONE]", &[("", "[DONE]")]);
        check(b"data: a\n", &[("", "a")]);
        check(b"data:\n\n", &[("", "")]);
        check(b"\xef\xbb\xbfdata: a\n\n", &[("", "a")]);
        check("data: 🙂é\n\n".as_bytes(), &[("", "🙂é")]);
        check(b"data: a\xff\xfeb\n\n", &[("", "a\u{fffd}\u{fffd}b")]);
        check(b"", &[]);
        check(b"\n\n\n", &[]);
    }

    fn tight() -> Limits {
        let mut limits = Limits::default();
        limits.sse_line.max = 10;
        limits.sse_event.max = 8;
        limits.sse_event_lines.max = 3;
        limits.stream.max = 40;
        limits
    }

    #[track_caller]
    fn check_over(input: &[u8], message: &str) {
        let single: Vec<_> = input.chunks(1).collect();
        for chunks in [vec![input], single] {
            let error = collect(&tight(), &chunks).unwrap_err();
            assert!(error.message.starts_with(message), "{}", error.message);
        }
    }

    #[test]
    fn bounds_end_the_stream_with_their_literal() {
        check_over(b"data: 34567", "provider SSE line exceeded the response limit");
        check_over(b"data: 34567\n\n", "provider SSE line exceeded the response limit");
        check_over(b"data: 1234\ndata: 1234\n\n", "provider SSE data event exceeded the response limit");
        check_over(b"data\ndata\ndata\ndata\n\n", "provider SSE data line count exceeded the response limit");
        check_over(&b":23456789\n".repeat(5), "provider SSE stream exceeded the response limit");
        assert!(collect(&tight(), &[b"data: 1234\n\n"]).is_ok());
    }

    #[test]
    fn an_endless_line_takes_no_memory() {
        let mut frames = Frames::new(&Limits::default());
        let mib = vec![b'x'; 1 << 20];
        assert!(frames.next(&mut mib.as_slice()).is_err());
        assert!(frames.line.capacity() <= Limits::default().sse_line.max);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, cut in 0usize..64) {
            let cut = cut.min(bytes.len());
            let whole = collect(&Limits::default(), &[&bytes]);
            let halves = collect(&Limits::default(), &[&bytes[..cut], &bytes[cut..]]);
            prop_assert_eq!(whole, halves);
        }
    }
}
