//! A request as Chat Completions JSON. Borrows the history: no tree is built, no text copied twice.
//!
//! Always valid whatever the history holds: arguments are an object, content is null when there is
//! none, no empty messages, keys in a fixed order.

use std::borrow::Cow;

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, value::RawValue};

use super::{
    super::{Dialect, arguments},
    EXTRA_CONTENT, REASONING_DETAILS, REASONING_TEXTS,
};
use crate::chat::{
    message::{ContentBlock, Message, ToolCall, ToolSpec},
    model::Request,
};

/// Appends the JSON body of `request` to `out`.
pub fn encode(request: &Request<'_>, dialect: Dialect, out: &mut Vec<u8>) {
    let system = (!request.system.is_empty()).then_some(Entry::System(request.system));
    let history = request.messages.iter().filter_map(|message| match message {
        Message::Assistant { blocks } if is_empty(blocks) => None,
        message => Some(Entry::Message(message, dialect)),
    });
    let body = Body {
        messages: system.into_iter().chain(history).collect(),
        model: request.model,
        reasoning_effort: request.effort,
        stream: true,
        stream_options: dialect.usage.then_some(StreamOptions { include_usage: true }),
        tools: request.tools.iter().map(Tool::new).collect(),
    };
    // Writing to memory cannot fail, and every key is a string.
    let _ = serde_json::to_writer(out, &body);
}

#[derive(Serialize)]
struct Body<'a> {
    messages: Vec<Entry<'a>>,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<&'a RawValue>,
}

impl<'a> Tool<'a> {
    fn new(spec: &'a ToolSpec) -> Self {
        let parameters = serde_json::from_str(spec.parameters).ok();
        Self {
            r#type: "function",
            function: Function { name: spec.name, description: spec.description, parameters },
        }
    }
}

enum Entry<'a> {
    System(&'a str),
    Message(&'a Message, Dialect),
}

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let (role, content) = match self {
            Self::System(text) => ("system", *text),
            Self::Message(Message::User { text }, _) => ("user", text.as_str()),
            Self::Message(Message::ToolResult { content, .. }, _) => ("tool", content.as_str()),
            Self::Message(Message::Assistant { blocks }, dialect) => {
                assistant(&mut map, blocks, *dialect)?;
                return map.end();
            }
        };
        map.serialize_entry("role", role)?;
        map.serialize_entry("content", content)?;
        if let Self::Message(Message::ToolResult { id, name, .. }, _) = self {
            map.serialize_entry("name", &valid_name(name))?;
            map.serialize_entry("tool_call_id", id)?;
        }
        map.end()
    }
}

fn assistant<M: SerializeMap>(
    map: &mut M,
    blocks: &[ContentBlock],
    dialect: Dialect,
) -> Result<(), M::Error> {
    let text = text(blocks);
    let calls: Vec<_> = calls(blocks).collect();
    map.serialize_entry("role", "assistant")?;
    // Blank text beside calls says nothing, and some servers refuse it (quirk 97).
    if !text.is_empty() && (calls.is_empty() || !text.trim().is_empty()) {
        map.serialize_entry("content", &text)?;
    } else if dialect.empty_content {
        map.serialize_entry("content", "")?;
    } else {
        map.serialize_entry("content", &())?;
    }
    for name in [REASONING_DETAILS].iter().chain(&REASONING_TEXTS) {
        if let Some(value) = opaque(blocks, name) {
            map.serialize_entry(name, value)?;
        }
    }
    if !calls.is_empty() {
        map.serialize_entry("tool_calls", &calls)?;
    }
    Ok(())
}

/// Whether nothing would be left to send: a message of metadata alone is refused for ever (quirk 67).
fn is_empty(blocks: &[ContentBlock]) -> bool {
    blocks.iter().all(|block| match block {
        ContentBlock::Text(text) => text.is_empty(),
        ContentBlock::ToolCall(_) => false,
        ContentBlock::Opaque(_) => true,
    })
}

fn text(blocks: &[ContentBlock]) -> Cow<'_, str> {
    let mut texts = blocks.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let first = texts.next().unwrap_or("");
    texts.fold(Cow::Borrowed(first), |joined, text| joined + text)
}

fn opaque<'a>(blocks: &'a [ContentBlock], name: &str) -> Option<&'a Value> {
    blocks.iter().find_map(|block| match block {
        ContentBlock::Opaque(opaque) if opaque.field == name => Some(&opaque.value),
        _ => None,
    })
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: CallFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a Value>,
}

#[derive(Serialize)]
struct CallFunction<'a> {
    name: Cow<'a, str>,
    arguments: &'a str,
}

fn calls(blocks: &[ContentBlock]) -> impl Iterator<Item = Call<'_>> {
    let extras = opaque(blocks, EXTRA_CONTENT);
    blocks.iter().filter_map(move |block| match block {
        ContentBlock::ToolCall(call) => {
            let extra = extras.and_then(|extras| extras.get(&call.id));
            Some(Call { id: &call.id, r#type: "function", function: function(call), extra_content: extra })
        }
        _ => None,
    })
}

/// Broken arguments would make the server refuse every later request of the session (quirk 86).
fn function(call: &ToolCall) -> CallFunction<'_> {
    let sound = arguments::is_object(&call.arguments);
    CallFunction { name: valid_name(&call.name), arguments: if sound { &call.arguments } else { "{}" } }
}

/// A name that the model made up may hold what servers refuse in a request: letters, digits, `_` and
/// `-` pass everywhere, up to 64 of them.
fn valid_name(name: &str) -> Cow<'_, str> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match name {
        "" => Cow::Borrowed("unknown"),
        name if name.len() <= 64 && name.chars().all(valid) => Cow::Borrowed(name),
        name => name.chars().take(64).map(|c| if valid(c) { c } else { '_' }).collect(),
    }
}
