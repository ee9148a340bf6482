//! Everything a person or a script touches: arguments, exit codes, stdin, stdout, stderr.
//!
//! `args` says what is wanted, `run` below brings settings and session together, `jsonl` is the front of
//! a pipe, `commands` print and end. A front folds session events and owns no conversation state.

mod args;
mod commands;
mod diagnostics;
mod exit;
mod input;
mod jsonl;
mod out;
mod signals;

use std::{env, ffi::OsString, io::IsTerminal, panic, process::ExitCode};

use smol::LocalExecutor;

use crate::{
    config::{self, Home, Settings},
    session::{self, OpenError, OpenErrorKind, Opened},
    shell,
};
use args::{Action, Chat, Mode};
use exit::Exit;

/// Runs `lucy` with this process's arguments, streams and environment.
pub fn main() -> ExitCode {
    panic::set_hook(Box::new(report_panic));
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    panic::catch_unwind(|| run(&words)).unwrap_or(Exit::Bug).into()
}

/// A bug must not leave a process behind or a key on the screen.
fn report_panic(panic: &panic::PanicHookInfo<'_>) {
    shell::kill_all();
    let payload = panic.payload();
    let what =
        payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let place = panic.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
    diagnostics::say(&format!("internal error{place}: {}", what.unwrap_or("unknown reason")));
    diagnostics::hint("this is a bug in lucy; the session up to here is saved");
}

fn run(words: &[OsString]) -> Exit {
    let action = match args::parse(words) {
        Ok(action) => action,
        Err(message) => return refuse(message, Some("see lucy --help"), Exit::Usage),
    };
    match action {
        Action::Print(text) => commands::print(&text),
        Action::Chat(chat) => {
            with_mode(&chat, |executor| smol::block_on(executor.run(chat_jsonl(executor, &chat))))
        }
        Action::Demo(chat) => with_mode(&chat, |executor| {
            smol::block_on(executor.run(commands::demo::run(executor, chat.extended_events)))
        }),
        Action::DemoServe { port, script } => {
            let executor = LocalExecutor::new();
            smol::block_on(executor.run(commands::demo::serve(&executor, port, script.as_deref())))
        }
        Action::ListSessions => with_home(commands::sessions::list),
        Action::Context { json } => with_home(|home| commands::context::show(home, json)),
        Action::Schema(schema) => commands::schema::show(schema),
    }
}

/// Runs `work` in the mode that was asked for, or that the terminal test gives (contract section 3).
fn with_mode(chat: &Chat, work: impl FnOnce(&LocalExecutor<'_>) -> Exit) -> Exit {
    let on_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    match chat.mode {
        Some(Mode::Tui) if !on_terminal => {
            refuse("--tui requires a terminal on stdin and stdout", None, Exit::Usage)
        }
        Some(Mode::Tui) => no_screen(),
        None if on_terminal => no_screen(),
        Some(Mode::Jsonl) | None => work(&LocalExecutor::new()),
    }
}

fn no_screen() -> Exit {
    refuse("this version has no terminal chat yet", Some("use --jsonl, or a pipe"), Exit::Usage)
}

fn with_home(work: impl FnOnce(&Home) -> Exit) -> Exit {
    match Home::locate() {
        Ok(home) => work(&home),
        Err(error) => refuse(&error.to_string(), error.hint_text(), Exit::Usage),
    }
}

async fn chat_jsonl(executor: &LocalExecutor<'_>, chat: &Chat) -> Exit {
    match open(chat.session.as_deref()) {
        Ok(opened) => jsonl::run(executor, opened, chat.extended_events).await,
        Err(error) => refuse_open(&error),
    }
}

/// A new session from today's settings, or the one with this id.
fn open(id: Option<&str>) -> Result<Opened, OpenError> {
    let home = Home::locate()?;
    if let Some(id) = id {
        return session::resume(&home, id, diagnostics::protect);
    }
    config::bootstrap(&home)?;
    let (settings, warning): (Settings, _) = config::load(&home)?;
    let mut opened = session::create(&home, settings, None, diagnostics::protect)?;
    opened.session.warn(warning);
    Ok(opened)
}

fn refuse_open(error: &OpenError) -> Exit {
    let exit = match error.kind {
        OpenErrorKind::Config => Exit::Usage,
        OpenErrorKind::Credentials => Exit::Credentials,
        OpenErrorKind::Session => Exit::Session,
        OpenErrorKind::Storage => Exit::Failed,
    };
    refuse(&error.message, error.hint.as_deref(), exit)
}

/// Says why nothing was done, in one line and perhaps a hint.
fn refuse(message: &str, hint: Option<&str>, exit: Exit) -> Exit {
    diagnostics::say(message);
    if let Some(hint) = hint {
        diagnostics::hint(hint);
    }
    exit
}
