//! `lucy schema`: the JSON Schemas of what is read, shown and stored, as they stand in `ui/schema`.
//!
//! `docs/protocol.md` says the rest; tests hold every line of the program against these files.

use clap::{ValueEnum, builder::PossibleValue};

use super::{super::exit::Exit, print};

/// A form of line that has a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// A line of stdout.
    Events,
    /// A line of a session file.
    Session,
    /// A line of stdin.
    Input,
}

impl ValueEnum for Schema {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Events, Self::Session, Self::Input]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Events => "events",
            Self::Session => "session",
            Self::Input => "input",
        }))
    }
}

/// Prints a schema as its file has it.
pub fn show(schema: Schema) -> Exit {
    print(match schema {
        Schema::Events => include_str!("../schema/events.json"),
        Schema::Session => include_str!("../schema/session.json"),
        Schema::Input => include_str!("../schema/input.json"),
    })
}
