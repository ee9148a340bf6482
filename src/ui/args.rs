//! The command line: one definition, and the published messages for what does not fit it.
//!
//! Words count from left to right and the first problem wins (contract section 1), so a line that does
//! not parse is looked at again word by word.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use clap::{Arg, ArgAction, ArgMatches, Command, builder::EnumValueParser, error::ErrorKind, value_parser};

use super::{commands::schema::Schema, exit::Exit};

/// What the person asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Chat(Chat),
    ListSessions,
    /// Print what a new session would send.
    Context {
        json: bool,
    },
    /// Chat with the scripted provider.
    Demo(Chat),
    /// Serve the scripted provider to other programs.
    DemoServe {
        port: u16,
        script: Option<PathBuf>,
    },
    /// Print the form of a kind of line.
    Schema(Schema),
    /// Text for stdout.
    Print(String),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chat {
    pub mode: Option<Mode>,
    pub session: Option<String>,
    pub extended_events: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Jsonl,
    Tui,
}

/// Reads the words after the program's name. `Err` is the message for stderr.
pub fn parse(words: &[OsString]) -> Result<Action, &'static str> {
    match attempt(words) {
        Ok(matches) if Flags::of(&matches).conflict(&Flags::default()).is_none() => Ok(action(&matches)),
        Err(error) if words.len() == 1 => printed(&error).map_or_else(|| Err(message(words, &error)), Ok),
        _ => first_problem(words),
    }
}

fn attempt(words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    definition()
        .try_get_matches_from([OsStr::new("lucy")].into_iter().chain(words.iter().map(OsString::as_os_str)))
}

/// Finds the first word that makes the line wrong.
fn first_problem(words: &[OsString]) -> Result<Action, &'static str> {
    let mut before = Flags::default();
    for end in 1..=words.len() {
        let words_so_far = &words[..end];
        match attempt(words_so_far) {
            Ok(matches) => {
                let flags = Flags::of(&matches);
                if let Some(problem) = flags.conflict(&before) {
                    return Err(problem);
                }
                before = flags;
            }
            Err(error) => match printed(&error) {
                Some(text) => return Ok(text),
                None if end < words.len() && needs_next(words_so_far) => {}
                None => return Err(message(words_so_far, &error)),
            },
        }
    }
    Err("unknown argument")
}

/// Whether the last word is whole only with the one after it.
fn needs_next(words: &[OsString]) -> bool {
    wants_value(words).is_some() || words.last().is_some_and(|word| word == "schema")
}

const PORT_COMPLAINT: &str = "--port requires a number up to 65535";

/// What is said when the last of `words` asks for a value and none, or no good one, follows.
fn wants_value(words: &[OsString]) -> Option<&'static str> {
    match words.last()?.to_str()? {
        "--session" => Some("--session requires an id"),
        "--port" => Some(PORT_COMPLAINT),
        "--script" => Some("--script requires a file"),
        _ => None,
    }
}

/// The text of `--help` or `--version`, which clap reports as an error.
fn printed(error: &clap::Error) -> Option<Action> {
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
        .then(|| Action::Print(error.to_string()))
}

fn message(words: &[OsString], error: &clap::Error) -> &'static str {
    if error.kind() == ErrorKind::UnknownArgument {
        return "unknown argument";
    }
    let before_last = &words[..words.len().saturating_sub(1)];
    let last = words.last().and_then(|word| word.to_str()).unwrap_or_default();
    match wants_value(words).or(wants_value(before_last)) {
        Some(complaint) => complaint,
        None if last.starts_with("--port=") => PORT_COMPLAINT,
        None => "unknown argument",
    }
}

/// How often each exclusive flag was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags {
    jsonl: usize,
    tui: usize,
    session: usize,
    list: usize,
}

impl Flags {
    fn of(matches: &ArgMatches) -> Self {
        let matches = matches.subcommand().map_or(matches, |(_, inner)| inner);
        let count = |name| matches.try_get_many::<String>(name).ok().flatten().map_or(0, Iterator::count);
        Self {
            jsonl: count("jsonl"),
            tui: count("tui"),
            session: count("session"),
            list: count("list-sessions"),
        }
    }

    /// The published complaint about what was added since `before`.
    fn conflict(&self, before: &Self) -> Option<&'static str> {
        let chosen_twice = |added: bool, count: usize| added && count > 1;
        if chosen_twice(self.session > before.session, self.session + self.list) {
            Some("--session cannot be combined or repeated")
        } else if chosen_twice(self.list > before.list, self.session + self.list) {
            Some("--list-sessions cannot be combined or repeated")
        } else if chosen_twice(self.jsonl > before.jsonl, self.jsonl + self.tui) {
            Some("--jsonl cannot be combined or repeated")
        } else if chosen_twice(self.tui > before.tui, self.jsonl + self.tui) {
            Some("--tui cannot be combined or repeated")
        } else if self.tui > 0 && self.list > 0 {
            Some("--tui cannot be combined with --list-sessions")
        } else {
            None
        }
    }
}

fn action(matches: &ArgMatches) -> Action {
    match matches.subcommand() {
        Some(("context", inner)) => Action::Context { json: inner.get_flag("json") },
        Some(("schema", inner)) => {
            Action::Schema(*inner.get_one("name").expect("clap refuses a line without it"))
        }
        Some((_, inner)) => match inner.subcommand() {
            Some((_, serve)) => Action::DemoServe {
                port: serve.get_one("port").copied().unwrap_or_default(),
                script: serve.get_one("script").cloned(),
            },
            None => Action::Demo(chat(inner)),
        },
        None if matches.contains_id("list-sessions") => Action::ListSessions,
        None => Action::Chat(chat(matches)),
    }
}

fn chat(matches: &ArgMatches) -> Chat {
    let mode = if matches.contains_id("jsonl") {
        Some(Mode::Jsonl)
    } else if matches.contains_id("tui") {
        Some(Mode::Tui)
    } else {
        None
    };
    Chat {
        mode,
        session: matches.try_get_one::<String>("session").ok().flatten().cloned(),
        extended_events: matches.get_flag("extended-events"),
    }
}

fn definition() -> Command {
    Command::new("lucy")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A small local agent: a chat over one model and one shell tool.")
        .override_usage("lucy [--jsonl|--tui] [--session <ID>] [--list-sessions]\n       lucy context [--json]\n       lucy demo [--jsonl]\n       lucy demo serve [--port <N>] [--script <FILE>]\n       lucy schema events|session|input")
        .after_help(format!(
            "With a terminal on stdin and stdout Lucy chats on the screen, otherwise it speaks JSONL.\n\
             Settings: ~/.lucy/config.toml (LUCY_HOME moves the folder).\n\n{}",
            Exit::TABLE
        ))
        .disable_help_subcommand(true)
        .args(chat_args())
        .arg(
            Arg::new("session")
                .long("session")
                .value_name("ID")
                .allow_hyphen_values(true)
                .action(ArgAction::Append)
                .help("Resume the session with this id"),
        )
        .arg(flag("list-sessions", "List sessions as JSONL, newest first"))
        .subcommand(
            Command::new("context")
                .about("Print the system message that a new session here would send, and where it comes from")
                .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON")),
        )
        .subcommand(
            Command::new("demo")
                .about("Try Lucy on a scripted provider inside the program: no key, no network, nothing kept")
                .args(chat_args())
                .subcommand(
                    Command::new("serve")
                        .about("Serve the scripted provider on 127.0.0.1 to other programs; prints its base URL")
                        .arg(
                            Arg::new("port")
                                .long("port")
                                .value_name("N")
                                .value_parser(value_parser!(u16))
                                .help("The port [default: a free one]"),
                        )
                        .arg(
                            Arg::new("script")
                                .long("script")
                                .value_name("FILE")
                                .value_parser(value_parser!(PathBuf))
                                .help("Answer from this script instead of the built-in sentences"),
                        ),
                ),
        )
        .subcommand(
            Command::new("schema")
                .about("Print the JSON Schema of a line of stdout, of a session file, or of stdin")
                .arg(Arg::new("name").required(true).value_parser(EnumValueParser::<Schema>::new())),
        )
}

fn chat_args() -> [Arg; 3] {
    [
        flag("jsonl", "Read message records from stdin, write events to stdout"),
        flag("tui", "Chat on the terminal"),
        Arg::new("extended-events")
            .long("extended-events")
            .action(ArgAction::SetTrue)
            .help("Add warning, retry and usage events to stdout"),
    ]
}

/// A flag that counts, so that a second one can be refused in our words.
fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).num_args(0).default_missing_value("").action(ArgAction::Append).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(line: &str) -> Result<Action, &'static str> {
        parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn check_error(line: &str, expected: &str) {
        assert_eq!(of(line), Err(expected), "{line}");
    }

    fn check_chat(line: &str, mode: Option<Mode>, session: Option<&str>) {
        let chat = Chat { mode, session: session.map(str::to_owned), extended_events: false };
        assert_eq!(of(line), Ok(Action::Chat(chat)), "{line}");
    }

    #[test]
    fn what_fits() {
        check_chat("", None, None);
        check_chat("--jsonl", Some(Mode::Jsonl), None);
        check_chat("--tui --", Some(Mode::Tui), None);
        check_chat("--session 1-2-3", None, Some("1-2-3"));
        check_chat("--session=1-2-3 --jsonl", Some(Mode::Jsonl), Some("1-2-3"));
        check_chat("--session --jsonl", None, Some("--jsonl"));
        assert_eq!(of("--list-sessions --jsonl"), Ok(Action::ListSessions));
        assert_eq!(of("context --json"), Ok(Action::Context { json: true }));
        assert_eq!(of("schema input"), Ok(Action::Schema(Schema::Input)));
        let demo = Chat { mode: Some(Mode::Jsonl), session: None, extended_events: true };
        assert_eq!(of("demo --jsonl --extended-events"), Ok(Action::Demo(demo)));
        let serve =
            |port, script: Option<&str>| Ok(Action::DemoServe { port, script: script.map(PathBuf::from) });
        assert_eq!(of("demo serve"), serve(0, None));
        assert_eq!(of("demo serve --script a.json --port=8080"), serve(8080, Some("a.json")));
    }

    #[test]
    fn the_first_problem_wins() {
        check_error("--bogus", "unknown argument");
        check_error("word", "unknown argument");
        check_error("-- word", "unknown argument");
        check_error("demo word", "unknown argument");
        check_error("demo --session x", "unknown argument");
        for line in
            ["schema", "schema nothing", "schema events events", "schema events --jsonl", "schema --bogus"]
        {
            check_error(line, "unknown argument");
        }
        check_error("--session", "--session requires an id");
        check_error("demo serve --port", PORT_COMPLAINT);
        check_error("demo serve --port 70000", PORT_COMPLAINT);
        check_error("demo serve --port=x", PORT_COMPLAINT);
        check_error("demo serve --script", "--script requires a file");
        check_error("demo serve --port 1 --bogus", "unknown argument");
        check_error("--jsonl --session", "--session requires an id");
        check_error("--session a --session b", "--session cannot be combined or repeated");
        check_error("--list-sessions --session a", "--session cannot be combined or repeated");
        check_error("--list-sessions --list-sessions", "--list-sessions cannot be combined or repeated");
        check_error("--session a --list-sessions", "--list-sessions cannot be combined or repeated");
        check_error("--jsonl --jsonl", "--jsonl cannot be combined or repeated");
        check_error("--tui --jsonl", "--jsonl cannot be combined or repeated");
        check_error("--tui --tui", "--tui cannot be combined or repeated");
        check_error("--jsonl --tui", "--tui cannot be combined or repeated");
        check_error("--list-sessions --tui", "--tui cannot be combined with --list-sessions");
        check_error("--session a --session b --bogus", "--session cannot be combined or repeated");
        check_error("--bogus --session", "unknown argument");
        check_error("--jsonl=x", "unknown argument");
    }

    #[test]
    fn help_and_version_are_text() {
        for line in ["--help", "-h", "--jsonl --help", "--help --bogus", "schema --help", "--version", "-V"] {
            assert!(matches!(of(line), Ok(Action::Print(_))), "{line}");
        }
        assert_eq!(of("--version"), Ok(Action::Print(format!("lucy {}\n", env!("CARGO_PKG_VERSION")))));
        let Ok(Action::Print(help)) = of("--help") else { panic!() };
        assert!(help.contains(Exit::TABLE));
    }

    proptest! {
        #[test]
        fn no_words_panic(words in proptest::collection::vec("(--session|--jsonl|--tui|--list-sessions|--help|--|-x|demo|context|schema|events|[a-z=-]{0,6})", 0..6)) {
            let _ = parse(&words.into_iter().map(OsString::from).collect::<Vec<_>>());
        }
    }
}
