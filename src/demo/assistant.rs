//! The built-in brain of the demo: a few sentences it understands, so that the whole way of a turn
//! can be seen without a provider. It reads a Chat Completions request and answers with a script.
//!
//! It is no model and says so; what it does is listed in its own help.

use serde_json::{Value, json};

use super::{
    completion::Completion,
    script::{Chunk, Reply},
};

/// Between two deltas, so that streaming can be seen.
const GAP_MS: u64 = 8;
/// The highest number it counts to; the whole answer is built before it is sent.
const COUNT_MAX: u64 = 100_000;
/// Longer than anybody watches a stalled demo.
const STALL_MS: u64 = 24 * 60 * 60 * 1000;

const HELP: &str = "I am a scripted demo, not a model. I understand:\n\n\
    - `list files` runs ls in your directory\n\
    - `run COMMAND`, or a line in backticks, runs that command\n\
    - `read FILE` shows a file\n\
    - `count to N` streams numbers\n\
    - `markdown` shows a formatted sample\n\
    - `stall` says nothing until you cancel\n";

const MARKDOWN: &str = "# A sample\n\nSome *emphasis*, some **strong words** and `inline code`.\n\n\
    1. A first item\n2. A second one\n   - with a nested point\n\n\
    > A quotation, which is a little longer so that it has to wrap on a narrow screen.\n\n\
    ```rust\nfn main() {\n    println!(\"hello\");\n}\n```\n\n\
    | name | size |\n|---|---:|\n| one | 1 |\n| two | 22 |\n\n\
    中文、日本語、한국어: wide. 🙂 👩‍👩‍👧 🇺🇳: wider still. And [a link](https://example.com/).\n";

/// What a message asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    ListFiles,
    Run(String),
    Read(String),
    CountTo(u64),
    Markdown,
    Stall,
    Help,
}

/// The reply to a request body.
pub(super) fn answer(body: Option<&Value>) -> Reply {
    let Some((body, messages)) = body.and_then(|body| Some((body, body["messages"].as_array()?))) else {
        let error =
            json!({"message": "the demo reads Chat Completions requests", "type": "invalid_request_error"});
        return Reply::json(400, &json!({ "error": error }));
    };
    let last = messages.last().unwrap_or(&Value::Null);
    let text = text_of(&last["content"]);
    if last["role"] == "tool" {
        return say(&comment_on(&text));
    }
    match wish_of(&text) {
        Wish::ListFiles => call(body, messages.len(), "I will look at your directory. ", "ls -la"),
        Wish::Run(command) => call(body, messages.len(), "", &command),
        Wish::Read(file) => call(body, messages.len(), "", &format!("cat -- {}", quoted(&file))),
        Wish::CountTo(n) => count_to(n),
        Wish::Markdown => say(MARKDOWN),
        Wish::Stall => Completion::new().chunk(Chunk::HoldMs(STALL_MS)).unfinished(),
        Wish::Help => say(HELP),
    }
}

fn wish_of(text: &str) -> Wish {
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    let after = |verb: &str| {
        lower.starts_with(verb).then(|| text[verb.len()..].trim()).filter(|rest| !rest.is_empty())
    };
    if lower.starts_with("list files") {
        return Wish::ListFiles;
    }
    if let Some(command) = in_backticks(text) {
        return Wish::Run(command.into());
    }
    if let Some(command) = after("run ") {
        return Wish::Run(command.into());
    }
    if let Some(file) = after("read ") {
        return Wish::Read(file.trim_matches('`').into());
    }
    if let Some(n) = after("count to ").and_then(|n| n.trim_end_matches('.').parse().ok()) {
        return Wish::CountTo(n);
    }
    match lower.as_str() {
        "markdown" => Wish::Markdown,
        "stall" => Wish::Stall,
        _ => Wish::Help,
    }
}

/// The first line that is nothing but a command in backticks.
fn in_backticks(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let command = line.trim().strip_prefix('`')?.strip_suffix('`')?.trim();
        (!command.is_empty() && !command.contains('`')).then_some(command)
    })
}

/// One word of the shell, whatever the name holds.
fn quoted(file: &str) -> String {
    format!("'{}'", file.replace('\'', r"'\''"))
}

/// Content is text, or a list of parts with text in them.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

fn comment_on(result: &str) -> String {
    let result: Value = serde_json::from_str(result).unwrap_or_else(|_| json!({ "stdout": result }));
    let lines = |stream: &str| result[stream].as_str().map_or(0, |text| text.lines().count());
    let (printed, complaints) = (lines("stdout"), lines("stderr"));
    let mut comment = match printed {
        0 => "The command printed nothing".to_string(),
        1 => "The command printed one line".to_string(),
        n => format!("The command printed {n} lines"),
    };
    if complaints > 0 {
        comment += &format!(", and {complaints} on stderr");
    }
    match (&result["exit_code"], result["error"].as_str()) {
        (_, Some(error)) => comment += &format!(". It did not go well: {error}."),
        (Value::Number(code), None) => comment += &format!(". Its exit code is {code}."),
        _ if result["timed_out"] == true => comment += ". It took too long and was stopped.",
        _ => comment += ".",
    }
    comment
}

/// Text in deltas of a word each.
fn say(text: &str) -> Reply {
    let words = text.split_inclusive(' ');
    words.fold(Completion::new().gap_ms(GAP_MS), Completion::text).finish()
}

fn call(body: &Value, messages: usize, first: &str, command: &str) -> Reply {
    let Some(tool) = command_tool(body) else {
        return say("I would run a command now, but this request offers no tool for it.");
    };
    let answer = first.split_inclusive(' ').fold(Completion::new().gap_ms(GAP_MS), Completion::text);
    // The number of messages grows with every call, so ids do not repeat within a session.
    let id = format!("call_demo_{messages}");
    answer.call(&id, tool, &json!({ "command": command }).to_string()).finish()
}

/// The offered tool that takes a command: `cmd`, or whatever else has a `command` parameter.
fn command_tool(body: &Value) -> Option<&str> {
    let functions = body["tools"].as_array()?.iter().map(|tool| &tool["function"]);
    let able = functions.filter(|function| !function["parameters"]["properties"]["command"].is_null());
    let mut names = able.filter_map(|function| function["name"].as_str());
    let first = names.next()?;
    std::iter::once(first).chain(names).find(|name| *name == "cmd").or(Some(first))
}

fn count_to(n: u64) -> Reply {
    let numbers = 1..=n.min(COUNT_MAX);
    numbers.fold(Completion::new(), |answer, number| answer.text(&format!("{number} "))).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes() {
        let run = |command: &str| Wish::Run(command.into());
        for (text, wish) in [
            ("list files", Wish::ListFiles),
            (" List files, please", Wish::ListFiles),
            ("run ls | wc -l", run("ls | wc -l")),
            ("Run Echo", run("Echo")),
            ("try this:\n`date -u`\nthanks", run("date -u")),
            ("`a` and `b`", Wish::Help),
            ("``", Wish::Help),
            ("run ", Wish::Help),
            ("read notes.txt", Wish::Read("notes.txt".into())),
            ("count to 12.", Wish::CountTo(12)),
            ("count to the moon", Wish::Help),
            ("markdown", Wish::Markdown),
            ("stall", Wish::Stall),
            ("İ run x", Wish::Help),
            ("", Wish::Help),
        ] {
            assert_eq!(wish_of(text), wish, "{text:?}");
        }
    }

    #[test]
    fn file_names_stay_one_word() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's; rm -rf $HOME"), r"'it'\''s; rm -rf $HOME'");
    }

    #[test]
    fn comments() {
        for (result, comment) in [
            (
                r#"{"stdout":"a\nb\n","stderr":"","exit_code":0}"#,
                "The command printed 2 lines. Its exit code is 0.",
            ),
            (
                r#"{"stdout":"","stderr":"x","exit_code":2}"#,
                "The command printed nothing, and 1 on stderr. Its exit code is 2.",
            ),
            (
                r#"{"stdout":"a","error":"command canceled","exit_code":null}"#,
                "The command printed one line. It did not go well: command canceled.",
            ),
            (r#"{"timed_out":true}"#, "The command printed nothing. It took too long and was stopped."),
            ("plain\ntext", "The command printed 2 lines."),
        ] {
            assert_eq!(comment_on(result), comment);
        }
    }

    fn body(text: &str, tools: &[&str]) -> Value {
        let parameters = json!({"properties": {"command": {"type": "string"}}});
        let tools: Vec<_> =
            tools.iter().map(|name| json!({"function": {"name": name, "parameters": parameters}})).collect();
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}], "tools": tools})
    }

    fn stream_of(reply: &Reply) -> String {
        let text = |chunk: &Chunk| match chunk {
            Chunk::Text(text) => text.clone(),
            other => format!("{other:?}"),
        };
        reply.body_chunks.iter().map(text).collect()
    }

    #[test]
    fn calls_name_the_offered_tool_and_escape_their_command() {
        let reply = answer(Some(&body("run echo \"ä\\\"", &["shell", "cmd"])));
        let stream = stream_of(&reply);
        assert!(stream.contains(r#""name":"cmd""#), "{stream}");
        assert!(stream.contains(r#""arguments":"{\"command\":\"echo \\\"ä\\\\\\\"\"}""#), "{stream}");
        assert!(stream.contains(r#""finish_reason":"tool_calls""#), "{stream}");
        assert!(stream_of(&answer(Some(&body("list files", &["shell"])))).contains(r#""name":"shell""#));
        assert!(stream_of(&answer(Some(&body("list files", &[])))).contains(r#""content":"tool ""#));
    }

    #[test]
    fn counting_has_no_gaps_and_an_end() {
        let reply = answer(Some(&body("count to 3", &[])));
        assert_eq!((reply.gap_ms, reply.body_chunks.len()), (0, 5));
        assert_eq!(count_to(u64::MAX).body_chunks.len() as u64, COUNT_MAX + 2);
        assert_eq!(answer(Some(&json!([]))).status, 400);
        assert_eq!(answer(None).status, 400);
    }
}
