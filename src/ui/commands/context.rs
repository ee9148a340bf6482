//! `lucy context`: what a new session here would send first, and where it comes from.

use std::env;

use serde::Serialize;

use super::{
    super::{diagnostics, exit::Exit, refuse},
    print,
};
use crate::{
    config::{self, Home},
    context::{self, Places, Skipped, Source},
};

#[derive(Serialize)]
struct Report<'a> {
    system_prompt: &'a str,
    sources: &'a [Source],
    skipped: &'a [Skipped],
}

/// Prints the system message on stdout; the files it came from on stderr, or both as JSON on stdout.
pub fn show(home: &Home, json: bool) -> Exit {
    let settings = match config::load(home) {
        Ok((settings, warning)) => {
            warning.iter().for_each(|warning| diagnostics::warn(warning));
            settings
        }
        Err(error) => return refuse(&error.to_string(), error.hint_text(), Exit::Usage),
    };
    let cwd = match env::current_dir().and_then(|cwd| cwd.canonicalize()) {
        Ok(cwd) => cwd,
        Err(error) => return refuse("unable to resolve cwd", Some(&error.to_string()), Exit::Usage),
    };
    let places = Places { lucy_home: home.root(), home: home.user(), cwd: &cwd };
    let context = match context::build(&places, &settings.system_prompt) {
        Ok(context) => context,
        Err(error) => return refuse(&error.to_string(), Some(&error.hint()), Exit::Usage),
    };
    let system_prompt = crate::session::without_key(&settings.llm, &context.system_prompt);
    if json {
        let report =
            Report { system_prompt: &system_prompt, sources: &context.sources, skipped: &context.skipped };
        let mut text = serde_json::to_string_pretty(&report).expect("strings and numbers always encode");
        text.push('\n');
        return print(&text);
    }
    for Source { kind, path, bytes } in &context.sources {
        diagnostics::note(&format!("{:<12} {bytes:>7} bytes  {}", kind.name(), path.display()));
    }
    for Skipped { path, reason } in &context.skipped {
        diagnostics::note(&format!("{:<12} {}: {reason}", "skipped", path.display()));
    }
    print(&format!("{system_prompt}\n"))
}
