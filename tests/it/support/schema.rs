//! The schemas of `lucy schema`, compiled once, and the lines of a run held against them.
//!
//! A reader has to tolerate fields that a schema does not name; the program must not write any. So what
//! it wrote is checked with every `additionalProperties: true` turned to false.

use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

/// A kind of line that has a schema.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    Events,
    Session,
    Input,
}

/// All of them, in the order of their numbers.
pub const FORMS: [Form; 3] = [Form::Events, Form::Session, Form::Input];

/// What a line may have beside the fields of its schema.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// Nothing: it is ours.
    Strict,
    /// As the schema says.
    AsWritten,
}

impl Form {
    /// What `lucy schema` calls it.
    pub fn name(self) -> &'static str {
        ["events", "session", "input"][self as usize]
    }

    /// The schema's file.
    pub fn text(self) -> &'static str {
        [
            include_str!("../../../src/ui/schema/events.json"),
            include_str!("../../../src/ui/schema/session.json"),
            include_str!("../../../src/ui/schema/input.json"),
        ][self as usize]
    }

    /// The schema.
    pub fn schema(self) -> Value {
        serde_json::from_str(self.text()).expect("JSON")
    }

    /// What is wrong with `line`, if anything.
    pub fn complaint(self, reading: Reading, line: &[u8]) -> Option<String> {
        let value: Value = match serde_json::from_slice(line) {
            Ok(value) => value,
            Err(error) => return Some(error.to_string()),
        };
        let index = COMPILED.forms[self as usize][reading as usize];
        COMPILED.schemas.validate(&value, index).err().map(|error| format!("{error:#}"))
    }

    /// Fails the test if the program should not have written `line`.
    #[track_caller]
    pub fn check(self, line: &[u8]) {
        if let Some(complaint) = self.complaint(Reading::Strict, line) {
            panic!("not in the form of {}: {}\n{complaint}", self.name(), String::from_utf8_lossy(line));
        }
    }

    /// Fails the test if one of the whole lines of `text` should not have been written; what a kill
    /// cut off at the end is no line. Lines that are `known` to come from elsewhere are left out.
    #[track_caller]
    pub fn check_lines(self, text: &[u8], known: &[String]) {
        let mut before: &[u8] = b"";
        for line in text.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n")) {
            // Streams repeat themselves, and one look is enough.
            if line != before && !known.iter().any(|known| known.as_bytes() == line) {
                self.check(line);
            }
            before = line;
        }
    }
}

/// What is wrong with a schema as a schema, if anything.
pub fn complaint_about_schema(schema: &Value) -> Option<String> {
    COMPILED.schemas.validate(schema, COMPILED.of_schemas).err().map(|error| format!("{error:#}"))
}

struct Compiled {
    schemas: Schemas,
    /// By form, then by reading.
    forms: [[SchemaIndex; 2]; 3],
    of_schemas: SchemaIndex,
}

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
    let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
    // Also looks into strings that hold JSON: arguments, results.
    compiler.enable_content_assertions();
    let mut compile = |name: &str, reading: &str, schema: Value| {
        let place = format!("http://lucy.invalid/{reading}/{name}.json");
        compiler.add_resource(&place, schema).expect("a schema");
        compiler.compile(&place, &mut schemas).unwrap_or_else(|error| panic!("{name}: {error:#}"))
    };
    let forms = FORMS.map(|form| {
        [
            compile(form.name(), "strict", strict(form.schema())),
            compile(form.name(), "as-written", form.schema()),
        ]
    });
    let of_schemas = compiler
        .compile("https://json-schema.org/draft/2020-12/schema", &mut schemas)
        .expect("it is built in");
    Compiled { schemas, forms, of_schemas }
});

fn strict(mut schema: Value) -> Value {
    match &mut schema {
        Value::Array(items) => items.iter_mut().for_each(|item| *item = strict(item.take())),
        Value::Object(members) => members.iter_mut().for_each(|(key, member)| {
            *member = if key == "additionalProperties" { Value::Bool(false) } else { strict(member.take()) };
        }),
        _ => {}
    }
    schema
}
