//! Chat Completions chunks to a reply. Nothing is required of a chunk: what is missing, null or of an
//! unexpected type is skipped (quirks 49 to 52).
//!
//! The same code reads a whole completion, which carries `message` where a chunk carries `delta`.

use serde_json::{Value, json};

use super::{
    super::{
        Progress,
        calls::{Calls, Fragment},
        json,
    },
    EXTRA_CONTENT, plain,
    reasoning::Reasoning,
};
use crate::{
    chat::{
        complaint::{Complaint, only_element},
        error::{ChatError, ChatErrorKind},
        message::{ContentBlock, StopReason, ToolSpec, Usage},
        model::{ModelEvent, Reply},
        retry::{self, Failure},
        sse::Frame,
    },
    config::Limits,
};

/// One reply in progress.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    progress: Progress,
    stop: StopReason,
    calls: Calls,
    reasoning: Reasoning,
    text_bytes: usize,
    /// The first half of a torn surrogate pair, until its other half comes.
    held: Option<char>,
    /// Some string of this stream may hold marks of `json`.
    marked: bool,
    /// A chunk that could be read has come.
    began: bool,
}

impl Decoder {
    pub fn new(tools: &[ToolSpec], limits: &Limits, seed: u64) -> Self {
        Self {
            limits: limits.clone(),
            progress: Progress::Open,
            stop: StopReason::Finished,
            calls: Calls::new(tools, limits, seed),
            reasoning: Reasoning::default(),
            text_bytes: 0,
            held: None,
            marked: false,
            began: false,
        }
    }
}

impl super::super::Decoder for Decoder {
    fn push(&mut self, frame: Frame<'_>, reply: &mut Reply) -> Result<Option<ModelEvent>, Failure> {
        let data = frame.data.trim();
        // Quirk 2: keep-alives wrapped as data.
        if data.is_empty() || data.starts_with(':') {
            return Ok(None);
        }
        if data == "[DONE]" {
            self.progress = Progress::Done;
            return Ok(None);
        }
        // Only a stream that says `error`, or a torn surrogate pair, needs more than the text.
        if !self.marked
            && frame.event != "error"
            && let Some(text) = plain::text(data)
        {
            self.began = true;
            return self.text(text.into_owned(), reply);
        }
        let Some((mut chunk, marked)) = json::parse(data).or_else(|| plain_error(frame)) else {
            return Err(ChatError::new(ChatErrorKind::Stream, "provider sent malformed SSE data").into());
        };
        self.marked |= marked;
        if let Some(failure) = self.complaint(frame.event, only_element(&chunk)) {
            return Err(failure);
        }
        if !chunk.is_object() {
            return Ok(None);
        }
        self.began = true;
        reply.usage = usage(&chunk).or(reply.usage);
        let text = match chunk.get_mut("choices").and_then(|choices| choices.get_mut(0)) {
            Some(choice) => self.choice(choice, reply)?,
            None => String::new(),
        };
        self.text(text, reply)
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn finish(&mut self, reply: &mut Reply) -> Result<Option<ModelEvent>, Failure> {
        let lacks = |what: &str| Failure::from(ChatError::new(ChatErrorKind::Stream, what));
        if self.progress == Progress::Open {
            return Err(lacks("provider stream ended before [DONE]"));
        }
        if !self.began {
            return Err(lacks("provider stream contained no valid payload"));
        }
        let held = self.held.take().map(|_| char::REPLACEMENT_CHARACTER.to_string());
        let event = held.map(|text| append(text, reply));
        // A reply that was cut or withheld says so, even if nothing of it came.
        if self.stop == StopReason::Finished && self.text_bytes == 0 && self.calls.is_empty() {
            return Err(lacks("provider stream contained no assistant content or tool calls"));
        }
        let extras = self.calls.finish(reply, self.marked);
        let opaque = std::mem::take(&mut self.reasoning).into_opaque(extras, self.marked);
        reply.blocks.splice(0..0, opaque.into_iter().map(ContentBlock::Opaque));
        reply.stop = Some(self.stop);
        Ok(event)
    }
}

impl Decoder {
    /// An error inside the stream (quirks 29 to 31, 108). Its code is classified like a status.
    fn complaint(&self, event: &str, chunk: &Value) -> Option<Failure> {
        let named = |key: &str| chunk.get(key).and_then(Value::as_str) == Some("error");
        let error = chunk.get("error").filter(|error| !matches!(error, Value::Null | Value::Bool(false)));
        let error = error.filter(|error| error.as_str() != Some(""));
        let choice = chunk.get("choices").and_then(|choices| choices.get(0));
        let failed = choice.and_then(failed_reason);
        if error.is_none() && failed.is_none() && event != "error" && !named("type") && !named("object") {
            return None;
        }
        let nested = choice.filter(|_| error.is_none()).and_then(|choice| choice.get("error"));
        let complaint = Complaint::from_value(nested.unwrap_or(chunk));
        let words = complaint.message.or(failed.map(str::to_owned));
        let mut words = words.unwrap_or_else(|| "provider returned an error payload".to_owned());
        let raw = error.map_or(0, |error| error.get("message").unwrap_or(error).as_str().map_or(0, str::len));
        if self.limits.error_text.exceeded_by(raw) {
            words = "provider error text exceeded the response limit".to_owned();
        }
        let error = ChatError::new(ChatErrorKind::Provider, format!("provider stream error: {words}"));
        Some(Failure { error, transient: retry::codes_are_transient(&complaint.codes), wait: None })
    }

    /// Reads delta, reasons and calls independently of each other (quirk 62); gives the text.
    fn choice(&mut self, choice: &mut Value, reply: &mut Reply) -> Result<String, ChatError> {
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str).filter(|r| !r.is_empty()) {
            self.progress = self.progress.completed();
            self.stop = stop_reason(reason);
        }
        let mut text = String::new();
        if let Some(delta) = choice.get_mut("delta").filter(|delta| delta.is_object()) {
            text = self.delta(delta, reply)?;
        } else if let Some(message) = choice.get_mut("message").filter(|message| message.is_object()) {
            // Some servers end a stream with the whole message once more.
            if self.text_bytes == 0 && self.calls.is_empty() {
                text = self.delta(message, reply)?;
            }
            self.progress = self.progress.completed();
        }
        Ok(text)
    }

    fn delta(&mut self, delta: &mut Value, reply: &mut Reply) -> Result<String, ChatError> {
        self.reasoning.gather(delta, &self.limits)?;
        let mut text = delta.get_mut("content").map(content).unwrap_or_default();
        if let Some(refusal) = delta.get("refusal").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            text.push_str(refusal);
            self.stop = StopReason::Filtered;
        }
        if let Some(entries) = delta.get_mut("tool_calls").and_then(Value::as_array_mut) {
            for entry in entries.iter_mut().filter(|entry| entry.is_object()) {
                self.calls.add(fragment(entry), reply)?;
            }
        } else if let Some(call) = delta.get_mut("function_call").filter(|call| call.is_object()) {
            // Quirk 57: the legacy form has room for one call.
            self.calls.add(Fragment { index: Some(0), ..fragment(call) }, reply)?;
        }
        Ok(text)
    }

    fn text(&mut self, mut text: String, reply: &mut Reply) -> Result<Option<ModelEvent>, Failure> {
        if text.is_empty() {
            return Ok(None);
        }
        self.text_bytes += text.len();
        if self.limits.text.exceeded_by(self.text_bytes) {
            let what = "provider assistant content exceeded the response limit";
            return Err(ChatError::over(self.limits.text, what).into());
        }
        if self.marked {
            text.insert_str(0, self.held.take().map(String::from).as_deref().unwrap_or(""));
            self.held = json::hold_back(&mut text);
            text = json::settle(&text);
        }
        Ok((!text.is_empty()).then(|| append(text, reply)))
    }
}

/// An error event in plain words.
fn plain_error(frame: Frame<'_>) -> Option<(Value, bool)> {
    (frame.event == "error").then(|| (json!({ "error": frame.data }), false))
}

/// Text stands before all calls, and deltas are appended as they are (quirk 65).
fn append(text: String, reply: &mut Reply) -> ModelEvent {
    match reply.blocks.first_mut() {
        Some(ContentBlock::Text(whole)) => whole.push_str(&text),
        _ => reply.blocks.insert(0, ContentBlock::Text(text.clone())),
    }
    ModelEvent::TextDelta(text)
}

/// The text of a string or of typed parts; thoughts are no text (quirk 63).
fn content(content: &mut Value) -> String {
    match content {
        Value::String(text) => std::mem::take(text),
        Value::Array(parts) => parts
            .iter()
            .filter(|part| matches!(part["type"].as_str(), None | Some("text" | "output_text")))
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}

fn fragment(entry: &mut Value) -> Fragment {
    let index = match &entry["index"] {
        Value::String(text) => text.parse().ok(),
        index => index.as_i64(),
    };
    let id = match &entry["id"] {
        Value::Number(id) => id.to_string(),
        _ => take_text(entry, "id"),
    };
    let extra = entry.get_mut(EXTRA_CONTENT).map(Value::take).filter(|extra| !extra.is_null());
    let function = match entry.get("function") {
        Some(function) if function.is_object() => &mut entry["function"],
        _ => entry,
    };
    let name = take_text(function, "name");
    let arguments = match function.get_mut("arguments").map(Value::take) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        // Quirk 83: an object is the whole argument.
        Some(value) => value.to_string(),
    };
    Fragment { index, id, name, arguments, extra }
}

fn take_text(object: &mut Value, name: &str) -> String {
    match object.get_mut(name) {
        Some(Value::String(text)) => std::mem::take(text),
        _ => String::new(),
    }
}

fn usage(chunk: &Value) -> Option<Usage> {
    let usage = chunk.get("usage").filter(|usage| usage.is_object());
    let usage = usage.or_else(|| chunk.get("x_groq")?.get("usage"))?;
    let count = |names: [&str; 2]| names.iter().find_map(|name| usage.get(*name)?.as_u64());
    let input = count(["prompt_tokens", "input_tokens"]);
    let output = count(["completion_tokens", "output_tokens"]);
    (input.is_some() || output.is_some())
        .then(|| Usage { input_tokens: input.unwrap_or(0), output_tokens: output.unwrap_or(0) })
}

/// Unknown reasons end a reply like `stop`: its calls tell what the model wanted (quirks 55, 56).
fn stop_reason(reason: &str) -> StopReason {
    match reason.to_ascii_lowercase().as_str() {
        "length" | "max_tokens" | "model_length" | "max_output_tokens" => StopReason::Length,
        "content_filter" | "refusal" | "safety" | "recitation" | "prohibited_content" => StopReason::Filtered,
        _ => StopReason::Finished,
    }
}

/// The reason of a choice that failed, plainly or only under its native name (quirk 30).
fn failed_reason(choice: &Value) -> Option<&str> {
    let reason = |name: &str| choice.get(name).and_then(Value::as_str);
    reason("finish_reason")
        .filter(|reason| matches!(*reason, "error" | "insufficient_system_resource"))
        .or_else(|| {
            reason("native_finish_reason").filter(|reason| reason.to_ascii_lowercase().ends_with("error"))
        })
}
