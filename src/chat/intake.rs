//! What kind of body is this? Judged by its first bytes, never by its label (quirks 14, 15, 34).
//!
//! An event stream is framed as it comes. A JSON document, which some gateways send although a stream
//! was asked for, is gathered and handed on as one frame, and so is what follows it. A web page is an
//! error with its text. Knows no protocol; `sse` does the framing.

use serde::de::IgnoredAny;

use super::{
    complaint,
    error::{ChatError, ChatErrorKind},
    sse::{Frame, Frames},
};
use crate::config::Limits;

/// A page's own sentence is within its first bytes; the rest is not waited for.
const PAGE_BYTES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Unknown,
    Events,
    Json,
    /// Events behind a JSON document.
    Tail,
    Page,
}

/// One response body on its way to the decoder.
#[derive(Debug)]
pub struct Intake {
    shape: Shape,
    frames: Frames,
    limits: Limits,
    document: Vec<u8>,
    /// How much of the document was handed on.
    read: usize,
}

impl Intake {
    pub fn new(limits: &Limits) -> Self {
        Self {
            shape: Shape::Unknown,
            frames: Frames::new(limits),
            limits: limits.clone(),
            document: Vec::new(),
            read: 0,
        }
    }

    /// Takes bytes off the front of `input` until a frame is whole; `None` means it took them all.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Frame<'_>>, ChatError> {
        if self.shape == Shape::Unknown {
            self.shape = shape_of(input);
        }
        match self.shape {
            Shape::Unknown | Shape::Events => self.frames.next(input),
            Shape::Json | Shape::Tail | Shape::Page => {
                self.document.extend_from_slice(input);
                *input = &[];
                if self.shape == Shape::Page && self.document.len() >= PAGE_BYTES_MAX {
                    return Err(self.page());
                }
                if self.limits.stream.exceeded_by(self.document.len()) {
                    let what = "provider SSE stream exceeded the response limit";
                    return Err(ChatError::over(self.limits.stream, what));
                }
                Ok(None)
            }
        }
    }

    /// The body is over. Called until it gives `None`.
    pub fn finish(&mut self) -> Result<Option<Frame<'_>>, ChatError> {
        match self.shape {
            Shape::Unknown | Shape::Events => self.frames.finish(),
            Shape::Page => Err(self.page()),
            Shape::Json => {
                if self.read == 0 {
                    let text = String::from_utf8_lossy(&self.document).into_owned();
                    self.document = text.into_bytes();
                }
                self.finish_document()
            }
            Shape::Tail => self.finish_tail(),
        }
    }

    fn finish_document(&mut self) -> Result<Option<Frame<'_>>, ChatError> {
        let start = self.read;
        match value_bytes(&self.document[start..]) {
            Some(bytes) => {
                self.read += bytes;
                let data = std::str::from_utf8(&self.document[start..self.read]).unwrap_or_default();
                Ok(Some(Frame { event: "", data }))
            }
            None if start == 0 => {
                Err(ChatError::new(ChatErrorKind::Stream, "provider sent malformed SSE data"))
            }
            // Quirk 15: an event stream may be glued to the document.
            None => {
                self.shape = Shape::Tail;
                // Closes a last event that has no blank line behind it.
                self.document.extend_from_slice(b"\n\n");
                self.finish_tail()
            }
        }
    }

    fn finish_tail(&mut self) -> Result<Option<Frame<'_>>, ChatError> {
        let mut input = &self.document[self.read..];
        if input.is_empty() {
            return self.frames.finish();
        }
        let frame = self.frames.next(&mut input)?;
        self.read = self.document.len() - input.len();
        Ok(frame)
    }

    fn page(&self) -> ChatError {
        let text = complaint::plain_text(&String::from_utf8_lossy(&self.document));
        let about = "provider sent malformed SSE data: a web page (is llm.base_url right?)";
        let message = if text.is_empty() { about.to_owned() } else { format!("{about}: {text}") };
        ChatError::new(ChatErrorKind::Stream, message)
    }
}

/// How many bytes the JSON value at the beginning takes.
fn value_bytes(bytes: &[u8]) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

fn shape_of(bytes: &[u8]) -> Shape {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match bytes.iter().find(|b| !b.is_ascii_whitespace()) {
        None => Shape::Unknown,
        Some(b'{' | b'[') => Shape::Json,
        Some(b'<') => Shape::Page,
        Some(_) => Shape::Events,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(body: &[u8], step: usize) -> Result<Vec<String>, ChatError> {
        let mut intake = Intake::new(&Limits::default());
        let mut seen = Vec::new();
        for mut input in body.chunks(step) {
            while let Some(frame) = intake.next(&mut input)? {
                seen.push(frame.data.trim().to_owned());
            }
        }
        while let Some(frame) = intake.finish()? {
            seen.push(frame.data.trim().to_owned());
        }
        Ok(seen)
    }

    #[track_caller]
    fn check(body: &str, expected: &[&str]) {
        for step in [1, 3, 1000] {
            assert_eq!(collect(body.as_bytes(), step).unwrap(), expected, "{step} bytes a read");
        }
    }

    #[test]
    fn bodies_are_known_by_their_first_bytes() {
        check("data: {}\n\n", &["{}"]);
        check("\n\n: hi\ndata: {}\n\n", &["{}"]);
        check("  {\"a\":1}", &["{\"a\":1}"]);
        check("{\"a\":1}\ndata: [DONE]\n\n", &["{\"a\":1}", "[DONE]"]);
        check("{\"a\":1}data: {}\n\ndata: [DONE]", &["{\"a\":1}", "{}", "[DONE]"]);
        check("{\"a\":1}\n{\"b\":2}\n", &["{\"a\":1}", "{\"b\":2}"]);
        check("", &[]);
        check("Not found", &[]);
    }

    #[test]
    fn pages_and_broken_documents_are_errors() {
        let page = collect(b"<html><body>Sign in to the <b>network</b></body></html>", 7).unwrap_err();
        assert!(page.message.ends_with("Sign in to the network"), "{}", page.message);
        let cut = collect(b"{\"choices\":[{", 100).unwrap_err();
        assert_eq!(cut.message, "provider sent malformed SSE data");
    }
}
