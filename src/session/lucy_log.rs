//! Lucy's session file: one JSON object per line, in the published form (contract section 7).
//!
//! Encoder and decoder of [`Record`] side by side. What was not published travels in optional fields;
//! lines with a tag nobody knows are skipped and counted. `store` opens files, `catalog` lists them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::{Cause, Header, Interruption, Phase, Record, ToolResult};
use crate::{
    chat::{
        message::{ContentBlock, Opaque, ToolCall, Usage},
        model::Reply,
    },
    tools::ToolOutput,
};

/// The published field of OpenRouter-style reasoning; other opaque fields go into `opaque`.
const REASONING_DETAILS: &str = "reasoning_details";

#[derive(Serialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum Line<'a> {
    Session {
        version: u32,
        session_id: &'a str,
        created_at: u64,
        cwd: &'a str,
        boot_system_prompt: &'a str,
        llm: LlmLine<'a>,
    },
    Message {
        timestamp: u64,
        message: MessageLine<'a>,
    },
    Interruption {
        timestamp: u64,
        #[serde(flatten)]
        interruption: InterruptionLine<'a>,
    },
}

#[derive(Deserialize)]
struct HeaderLine<'a> {
    version: u32,
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    created_at: u64,
    cwd: String,
    boot_system_prompt: String,
    #[serde(borrow)]
    llm: LlmLine<'a>,
}

#[derive(Serialize, Deserialize)]
struct LlmLine<'a> {
    #[serde(borrow)]
    base_url: Cow<'a, str>,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    api_key_env: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    effort: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Stamped<T> {
    timestamp: u64,
    message: T,
}

#[derive(Serialize, Deserialize)]
struct MessageLine<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    content: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<Cow<'a, Value>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Cow<'a, [ToolCall]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opaque: Option<Cow<'a, [Opaque]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize, Deserialize)]
struct InterruptionLine<'a> {
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    phase: Cow<'a, str>,
    #[serde(borrow, default)]
    assistant_text: Cow<'a, str>,
    #[serde(default)]
    tool_calls: Cow<'a, [ToolCall]>,
    #[serde(default)]
    tool_results: Vec<ResultLine>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
struct ResultLine {
    id: String,
    name: String,
    result: ToolOutput,
}

/// The first line of a file.
pub fn encode_header(header: &Header, out: &mut Vec<u8>) {
    write(
        &Line::Session {
            version: 1,
            session_id: &header.session_id,
            created_at: header.created_at,
            cwd: &header.cwd,
            boot_system_prompt: &header.boot_system_prompt,
            llm: LlmLine {
                base_url: header.base_url.as_str().into(),
                model: header.model.as_str().into(),
                api_key_env: header.api_key_env.as_str().into(),
                effort: header.effort.as_deref().map(Cow::from),
            },
        },
        out,
    );
}

/// The line of a fact, without LF. False for the facts that need none.
pub fn encode(record: &Record, timestamp: u64, out: &mut Vec<u8>) -> bool {
    let message = |role: &'static str, content| MessageLine {
        role: role.into(),
        content,
        reasoning_details: None,
        name: None,
        tool_call_id: None,
        tool_calls: None,
        opaque: None,
        usage: None,
    };
    let line = match record {
        Record::User { text } => {
            Line::Message { timestamp, message: message("user", Some(text.as_str().into())) }
        }
        Record::ToolResult(result) => Line::Message {
            timestamp,
            message: MessageLine {
                name: Some(result.name.as_str().into()),
                tool_call_id: Some(result.id.as_str().into()),
                ..message("tool", Some(result.output.to_content().into()))
            },
        },
        Record::Assistant(reply) => {
            let text = reply.text();
            let content = (!text.is_empty()).then(|| text.into());
            Line::Message { timestamp, message: assistant(reply, message("assistant", content)) }
        }
        Record::Interruption(interruption) => {
            Line::Interruption { timestamp, interruption: interruption_line(interruption) }
        }
        Record::TurnEnd => return false,
    };
    write(&line, out);
    true
}

fn assistant<'a>(reply: &'a Reply, line: MessageLine<'a>) -> MessageLine<'a> {
    let calls: Vec<ToolCall> = reply.calls().cloned().collect();
    let mut details = None;
    let mut opaque = Vec::new();
    for block in &reply.blocks {
        match block {
            ContentBlock::Opaque(found) if found.field == REASONING_DETAILS && details.is_none() => {
                details = Some(Cow::Borrowed(&found.value));
            }
            ContentBlock::Opaque(found) => opaque.push(found.clone()),
            ContentBlock::Text(_) | ContentBlock::ToolCall(_) => {}
        }
    }
    MessageLine {
        reasoning_details: details,
        tool_calls: (!calls.is_empty()).then_some(Cow::Owned(calls)),
        opaque: (!opaque.is_empty()).then_some(Cow::Owned(opaque)),
        usage: reply.usage,
        ..line
    }
}

fn interruption_line(interruption: &Interruption) -> InterruptionLine<'_> {
    let result = |result: &ToolResult| ResultLine {
        id: result.id.clone(),
        name: result.name.clone(),
        result: result.output.clone(),
    };
    InterruptionLine {
        reason: interruption.cause.reason().into(),
        phase: interruption.phase.name().into(),
        assistant_text: interruption.assistant_text.as_str().into(),
        tool_calls: interruption.tool_calls.as_slice().into(),
        tool_results: interruption.tool_results.iter().map(result).collect(),
        message: interruption.cause.message().map(Cow::from),
    }
}

fn write(line: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, line).expect("strings and numbers always encode");
}

/// What a line of a session file holds.
#[derive(Debug, PartialEq)]
pub enum Decoded {
    Header(Header),
    Record {
        timestamp: u64,
        record: Record,
    },
    /// A record of a kind that this program does not know.
    Unknown,
}

/// Reads one line. `None` when it is damaged.
pub fn decode(line: &str) -> Option<Decoded> {
    #[derive(Deserialize)]
    struct Tag<'a> {
        #[serde(borrow)]
        record: Cow<'a, str>,
    }
    let tag: Tag<'_> = serde_json::from_str(line).ok()?;
    match tag.record.as_ref() {
        "session" => decode_header(line),
        "message" => {
            let line: Stamped<MessageLine<'_>> = serde_json::from_str(line).ok()?;
            Some(Decoded::Record { timestamp: line.timestamp, record: decode_message(line.message)? })
        }
        "interruption" => decode_interruption(line),
        _ => Some(Decoded::Unknown),
    }
}

fn decode_header(line: &str) -> Option<Decoded> {
    let line: HeaderLine<'_> = serde_json::from_str(line).ok()?;
    if line.version != 1 {
        return Some(Decoded::Unknown);
    }
    Some(Decoded::Header(Header {
        session_id: line.session_id.into_owned(),
        created_at: line.created_at,
        cwd: line.cwd,
        boot_system_prompt: line.boot_system_prompt,
        base_url: line.llm.base_url.into_owned(),
        model: line.llm.model.into_owned(),
        api_key_env: line.llm.api_key_env.into_owned(),
        effort: line.llm.effort.map(Cow::into_owned),
    }))
}

fn decode_message(line: MessageLine<'_>) -> Option<Record> {
    match line.role.as_ref() {
        "user" => Some(Record::User { text: line.content?.into_owned() }),
        "assistant" => Some(Record::Assistant(decode_reply(line))),
        "tool" => Some(Record::ToolResult(ToolResult {
            id: line.tool_call_id?.into_owned(),
            name: line.name.unwrap_or_default().into_owned(),
            output: ToolOutput::from_content(&line.content?),
        })),
        _ => None,
    }
}

fn decode_reply(line: MessageLine<'_>) -> Reply {
    let details = line
        .reasoning_details
        .map(|value| Opaque { field: REASONING_DETAILS.to_owned(), value: value.into_owned() });
    let text = line.content.filter(|text| !text.is_empty()).map(|text| ContentBlock::Text(text.into_owned()));
    let opaque = details.into_iter().chain(line.opaque.map(Cow::into_owned).unwrap_or_default());
    let calls = line.tool_calls.map(Cow::into_owned).unwrap_or_default();
    Reply {
        blocks: text
            .into_iter()
            .chain(calls.into_iter().map(ContentBlock::ToolCall))
            .chain(opaque.map(ContentBlock::Opaque))
            .collect(),
        stop: None,
        usage: line.usage,
    }
}

fn decode_interruption(line: &str) -> Option<Decoded> {
    // Not `flatten`: it would buffer every field to find the ones that are left over.
    #[derive(Deserialize)]
    struct Time {
        timestamp: u64,
    }
    let time: Time = serde_json::from_str(line).ok()?;
    let line: InterruptionLine<'_> = serde_json::from_str(line).ok()?;
    let result = |line: ResultLine| ToolResult { id: line.id, name: line.name, output: line.result };
    let record = Record::Interruption(Interruption {
        cause: Cause::from_parts(&line.reason, line.message.map(Cow::into_owned)),
        phase: Phase::from_name(&line.phase).unwrap_or(Phase::ProviderStream),
        assistant_text: line.assistant_text.into_owned(),
        tool_calls: line.tool_calls.into_owned(),
        tool_results: line.tool_results.into_iter().map(result).collect(),
    });
    Some(Decoded::Record { timestamp: time.timestamp, record })
}
