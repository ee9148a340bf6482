//! `cmd`: runs one shell command.
//!
//! Owns what the model is told about it and how its arguments are read (contract sections 9 and 10).
//! How a command runs and ends is `shell`'s.

use std::fmt;

use async_trait::async_trait;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use super::{Tool, ToolOutput};
use crate::{cancel::CancelToken, chat::message::ToolSpec, shell::Shell};

pub const SPEC: ToolSpec = ToolSpec {
    name: "cmd",
    description: "Runs a finite, non-interactive shell command from the session's starting directory.",
    parameters: r#"{"type":"object","properties":{"command":{"type":"string"}},"required":["command"],"additionalProperties":false}"#,
};

/// The tool, with the shell it runs in.
pub struct Cmd {
    shell: Shell,
}

impl Cmd {
    pub fn new(shell: Shell) -> Self {
        Self { shell }
    }
}

#[async_trait(?Send)]
impl Tool for Cmd {
    fn spec(&self) -> ToolSpec {
        SPEC
    }

    fn accepts(&self, arguments: &str) -> bool {
        command_in(arguments).is_ok()
    }

    async fn run(&self, arguments: &str, token: &CancelToken) -> ToolOutput {
        match command_in(arguments) {
            Ok(command) => ToolOutput::Command(self.shell.run(&command, token).await),
            Err(error) => ToolOutput::refused(error),
        }
    }

    fn canceled(&self, arguments: &str) -> ToolOutput {
        let command = command_in(arguments).ok();
        ToolOutput::canceled_before_execution(command.as_deref())
    }
}

/// The command that `arguments` hold, or the literal message that says what they hold instead.
fn command_in(arguments: &str) -> Result<String, &'static str> {
    let Ok(Members(members)) = serde_json::from_str(arguments) else {
        return Err("cmd arguments must be a JSON object");
    };
    match <[_; 1]>::try_from(members) {
        Ok([(name, value)]) if name == "command" => match value {
            Value::String(command) => Ok(command),
            _ => Err("cmd command must be a string"),
        },
        _ => Err("cmd arguments must contain only command"),
    }
}

/// The members of an object as written: a name that comes twice is there twice, which a map would hide.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_string_named_command_is_accepted() {
        for (arguments, command) in [
            (r#"{"command":"pwd"}"#, "pwd"),
            (" { \"command\" :\n\"\" } ", ""),
            (r#"{"comm\u0061nd":"\u00fc\n\u0000"}"#, "ü\n\0"),
        ] {
            assert_eq!(command_in(arguments).as_deref(), Ok(command), "{arguments}");
        }
    }

    #[test]
    fn everything_else_is_refused_by_its_message() {
        let object = "cmd arguments must be a JSON object";
        let only = "cmd arguments must contain only command";
        let string = "cmd command must be a string";
        for (arguments, error) in [
            ("", object),
            ("pwd", object),
            ("null", object),
            (r#""pwd""#, object),
            (r#"["pwd"]"#, object),
            (r#"{"command":"pwd""#, object),
            (r#"{"command":"pwd"} x"#, object),
            (r#"{"command":"\ud800"}"#, object),
            (r#"{"command":"a\u0000b"#, object),
            ("{}", only),
            (r#"{"cmd":"pwd"}"#, only),
            (r#"{"command":"pwd","cwd":"/"}"#, only),
            (r#"{"command":"pwd","command":"pwd"}"#, only),
            (r#"{"command":"pwd","comm\u0061nd":"ls"}"#, only),
            (r#"{"command":null}"#, string),
            (r#"{"command":["pwd"]}"#, string),
        ] {
            assert_eq!(command_in(arguments), Err(error), "{arguments}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_arguments_panic(arguments: String) {
            let _ = command_in(&arguments);
        }

        #[test]
        fn every_command_survives_its_encoding(command: String) {
            let arguments = serde_json::json!({ "command": command }).to_string();
            proptest::prop_assert_eq!(command_in(&arguments), Ok(command));
        }
    }
}
