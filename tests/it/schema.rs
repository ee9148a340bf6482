//! The schemas themselves: valid, printed as they are, met by every example, and not met by mistakes.
//!
//! The lines that programs write are checked where they are read, in `support`.

use serde_json::{Value, json};

use crate::support::{FORMS, Form, Reading, Rig, complaint_about_schema, text};

const PROTOCOL: &str = include_str!("../../docs/protocol.md");
const README: &str = include_str!("../../README.md");

#[test]
fn schemas_are_schemas() {
    for form in FORMS {
        assert_eq!(complaint_about_schema(&form.schema()), None, "{form:?}");
        assert_eq!(form.schema()["$schema"], "https://json-schema.org/draft/2020-12/schema");
    }
    assert!(complaint_about_schema(&json!({"type": "strin"})).is_some());
}

#[test]
fn the_schema_command_prints_the_file() {
    for form in FORMS {
        let finished = Rig::new().without_config().env_without("HOME").args(["schema", form.name()]).run();
        finished.success();
        assert_eq!(finished.stdout_text(), form.text(), "{form:?}");
    }
}

#[test]
fn a_schema_without_a_name_is_refused() {
    let rigs = [Rig::new().args(["schema"]), Rig::new().args(["schema", "everything"])];
    for rig in rigs {
        rig.run().code(2).stdout("").stderr_contains("lucy: unknown argument");
    }
}

#[test]
fn a_result_is_the_same_in_an_event_and_in_a_file() {
    let result = |form: Form| form.schema()["$defs"]["result"].clone();
    assert_eq!(result(Form::Events), result(Form::Session));
}

/// The lines of the fenced blocks of `page` that are tagged with this form.
fn examples(page: &'static str, form: Form) -> Vec<&'static str> {
    let fence = format!("```json {}\n", form.name());
    page.split(&fence).skip(1).flat_map(|rest| rest.split("```").next().unwrap_or("").lines()).collect()
}

#[test]
fn every_example_is_valid() {
    for form in FORMS {
        for page in [PROTOCOL, README] {
            examples(page, form).into_iter().for_each(|line| form.check(line.as_bytes()));
        }
        assert!(!examples(PROTOCOL, form).is_empty(), "{form:?}");
    }
    let tags: Vec<_> =
        [PROTOCOL, README].iter().flat_map(|page| page.lines()).filter(|l| *l == "```json").collect();
    assert_eq!(tags, Vec::<&str>::new(), "an example without its form is not checked");
}

#[test]
fn every_kind_of_line_has_an_example() {
    for (form, tag) in [(Form::Events, "type"), (Form::Session, "record"), (Form::Input, "type")] {
        let shown: Vec<Value> =
            examples(PROTOCOL, form).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        for kind in form.schema()["oneOf"].as_array().unwrap() {
            let name = kind["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
            assert!(shown.iter().any(|line| line[tag] == name), "no example of {name}");
        }
    }
}

/// The schema lists the fields in the order in which they are written.
#[test]
fn fields_come_in_the_order_of_the_schema() {
    let golden = [include_str!("fixtures/events.jsonl"), include_str!("fixtures/records.jsonl")];
    for (form, tag, golden) in [(Form::Events, "type", golden[0]), (Form::Session, "record", golden[1])] {
        let schema = form.schema();
        for line in golden.lines().chain(examples(PROTOCOL, form)) {
            let value: Value = serde_json::from_str(line).unwrap();
            let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            let check = |value: &Value, def: &str| {
                let mut ordered = fields(&schema["$defs"][def]["properties"]);
                ordered.retain(|field| value.get(field).is_some());
                assert_eq!(fields(value), ordered, "{line}");
            };
            check(&value, value[tag].as_str().unwrap());
            if let Some(result) = value.get("result") {
                check(result, "result");
            }
            if let Some(role) = value["message"]["role"].as_str() {
                check(&value["message"], role);
            }
        }
    }
}

/// The texts that the page calls literal are those of the program.
#[test]
fn the_page_has_the_texts_of_the_program() {
    let sources = [
        include_str!("../../src/ui/input/records.rs"),
        include_str!("../../src/ui/input/mod.rs"),
        include_str!("../../src/tools/cmd.rs"),
        include_str!("../../src/shell/runner.rs"),
        include_str!("../../src/shell/output.rs"),
    ];
    let quoted = PROTOCOL.lines().filter_map(|line| line.strip_prefix("| `")?.split("` |").next());
    let texts: Vec<_> = quoted.filter(|text| text.contains(' ') && !text.contains([',', '('])).collect();
    let mut missing = texts.clone();
    missing.retain(|text| !sources.iter().any(|source| source.contains(&format!("\"{text}\""))));
    assert_eq!((missing, texts.len()), (vec!["unknown tool: NAME"], 11));
}

#[track_caller]
fn wrong(form: Form, lines: &[&str]) {
    for line in lines {
        assert!(form.complaint(Reading::AsWritten, line.as_bytes()).is_some(), "{line}");
    }
}

#[test]
fn wrong_lines_are_not_valid() {
    wrong(
        Form::Events,
        &[
            "",
            "[]",
            "{}",
            r#"{"type":"sesion","session_id":"1-2-3","resumed":false}"#,
            r#"{"type":"session","session_id":"../x","resumed":false}"#,
            r#"{"type":"session","session_id":"1-2-3"}"#,
            r#"{"type":"assistant_delta","text":""}"#,
            r#"{"type":"tool_call","id":"a","name":"cmd","arguments":{"command":"pwd"}}"#,
            r#"{"type":"tool_call","id":"a","name":"cmd","arguments":"[]"}"#,
            r#"{"type":"tool_result","id":"a","name":"cmd","result":{"command":"pwd"}}"#,
            r#"{"type":"turn_interrupted","reason":"user_cancelled","phase":"tool"}"#,
            r#"{"type":"turn_interrupted","reason":"limit","phase":"cmd"}"#,
            r#"{"type":"error"}"#,
            r#"{"type":"retry","attempt":0,"wait_ms":5,"message":"m"}"#,
            r#"{"type":"usage","input_tokens":-1,"output_tokens":1}"#,
            r#"{"type":"session_metadata","session_id":"1-2-3","created_at":1,"updated_at":1,"first_message":"tool: x","last_message":null}"#,
        ],
    );
    wrong(
        Form::Session,
        &[
            r#"{"record":"message","timestamp":1}"#,
            r#"{"record":"message","timestamp":"1","message":{"role":"user","content":"x"}}"#,
            r#"{"record":"message","timestamp":1,"message":{"role":"system","content":"x"}}"#,
            r#"{"record":"message","timestamp":1,"message":{"role":"user"}}"#,
            r#"{"record":"message","timestamp":1,"message":{"role":"assistant","content":""}}"#,
            r#"{"record":"message","timestamp":1,"message":{"role":"assistant","tool_calls":[]}}"#,
            r#"{"record":"message","timestamp":1,"message":{"role":"tool","content":"{}","name":"cmd","tool_call_id":"a"}}"#,
            r#"{"record":"interruption","timestamp":1,"reason":"user_cancelled","phase":"cmd"}"#,
            r#"{"record":"session","version":2,"session_id":"1-2-3","created_at":1,"cwd":"/","boot_system_prompt":"","llm":{"base_url":"u","model":"m","api_key_env":"K"}}"#,
        ],
    );
    wrong(
        Form::Input,
        &[
            r#"["message","hi"]"#,
            r#"{"text":"hi"}"#,
            r#"{"type":"message"}"#,
            r#"{"type":"message","text":null}"#,
            r#"{"type":"message","text":5}"#,
            r#"{"type":"messages","text":"x"}"#,
            r#"{"type":"cancel","text":5}"#,
        ],
    );
}

#[test]
fn readers_tolerate_more_than_is_written() {
    for (form, line) in [
        (Form::Events, r#"{"type":"turn_end","more":1}"#),
        (
            Form::Session,
            r#"{"record":"message","timestamp":1,"message":{"role":"user","content":"x","mood":"good"}}"#,
        ),
        (Form::Input, r#"{"type":"cancel","id":7}"#),
    ] {
        assert_eq!(form.complaint(Reading::AsWritten, line.as_bytes()), None);
        assert!(form.complaint(Reading::Strict, line.as_bytes()).is_some());
    }
}

/// What the schema of input accepts is accepted, and what it refuses is an error.
#[test]
fn the_input_schema_and_the_program_agree() {
    let lines = [
        r#"{"type":"message","text":""}"#,
        r#"{"text":"x","more":[],"type":"message"}"#,
        r#"{"type":"message","text":null}"#,
        r#"{"type":"message","text":["x"]}"#,
        r#"{"type":"cancel"}"#,
        r#"{"type":"cancel","text":"x"}"#,
        r#"{"type":"cancel","text":null}"#,
        r#"{"type":"cancel","text":5}"#,
        r#"{"type":"stop"}"#,
        r#"{"type":null}"#,
        r#"["cancel",null]"#,
    ];
    for line in lines {
        let finished = Rig::new().reply(text("ok")).stdin(format!("{line}\n").as_bytes()).run();
        let valid = Form::Input.complaint(Reading::AsWritten, line.as_bytes()).is_none();
        assert_eq!(finished.errors().is_empty(), valid, "{line}");
    }
}
