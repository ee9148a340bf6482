//! Keys that could not be redacted without breaking the output are refused at start (contract section 8).

/// Stands where a key stood.
pub const MARKER: &str = "[REDACTED]";

/// Names inside our JSON objects. They are never rewritten, and no key may be part of one.
pub const SCHEMA_NAMES: &[&str] = &[
    "additionalProperties",
    "api_key_env",
    "arguments",
    "assistant_text",
    "base_url",
    "boot_system_prompt",
    "canceled",
    "cmd",
    "command",
    "content",
    "created_at",
    "cwd",
    "description",
    "error",
    "exit_code",
    "first_message",
    "function",
    "id",
    "last_message",
    "llm",
    "message",
    "messages",
    "model",
    "name",
    "parameters",
    "phase",
    "reason",
    "record",
    "reasoning_details",
    "required",
    "resumed",
    "result",
    "role",
    "session_id",
    "stderr",
    "stderr_truncated",
    "stdout",
    "stdout_truncated",
    "stream",
    "system_prompt",
    "text",
    "timed_out",
    "timestamp",
    "tool_call_id",
    "tool_calls",
    "tool_results",
    "tools",
    "type",
    "updated_at",
    "version",
    // Ours, beside the published ones.
    "attempt",
    "effort",
    "field",
    "input_tokens",
    "opaque",
    "output_tokens",
    "reasoning_content",
    "signal",
    "usage",
    "value",
    "wait_ms",
];

/// Fixed values of our records and events.
const FIXED_VALUES: &[&str] = &[
    "0",
    "1",
    "assistant",
    "assistant_delta",
    "cmd",
    "error",
    "false",
    "function",
    "interruption",
    "limit",
    "message",
    "null",
    "object",
    "output_closed",
    "provider",
    "provider_error",
    "provider_stream",
    "retry",
    "session",
    "session_metadata",
    "storage_error",
    "string",
    "system",
    "terminated",
    "tool",
    "tool_call",
    "tool_result",
    "true",
    "turn_end",
    "turn_interrupted",
    "usage",
    "user",
    "user_cancelled",
    "warning",
];

/// Why a key is refused: a published message and a hint, neither with the key in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRefused {
    pub message: &'static str,
    pub hint: &'static str,
}

/// Whether `key` can be told apart from our own output. `tool_texts` are the tools' descriptions,
/// which stand in every request.
pub fn check_key<'a>(key: &str, tool_texts: impl IntoIterator<Item = &'a str>) -> Result<(), KeyRefused> {
    const CONFLICT: &str = "API key conflicts with a required structured output literal";
    let refuse = |message, hint| Err(KeyRefused { message, hint });
    if key.chars().any(|c| c.is_control() || "\"\\{}[]:,".contains(c)) {
        return refuse(CONFLICT, "the key holds JSON syntax or control characters; was it copied whole?");
    }
    if key.bytes().all(|b| b.is_ascii_digit()) {
        return refuse(CONFLICT, "the key holds only digits");
    }
    let mut literals = SCHEMA_NAMES.iter().chain(FIXED_VALUES).copied().chain(tool_texts);
    if literals.any(|literal| literal.contains(key)) {
        return refuse(CONFLICT, "the key is a word of the program's own output");
    }
    if MARKER.contains(key) {
        return refuse("API key cannot be safely redacted", "the key is part of the redaction marker");
    }
    if !key.is_ascii() {
        return refuse(
            "API key cannot be safely redacted",
            "an HTTP header cannot carry the key's characters",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_and_accepted_keys() {
        let check =
            |key: &str, fine: bool| assert_eq!(check_key(key, ["Runs one command"]).is_ok(), fine, "{key}");
        for refused in
            ["a:b", "a\"b", "a\nb", "a\u{7f}b", "12345", "essage", "turn_end", "Runs", "EDACT", "ключ"]
        {
            check(refused, false);
        }
        for fine in ["sk-invented-7f3a9", "n0", "my-turn_end", "token with space", "Z"] {
            check(fine, true);
        }
    }
}
