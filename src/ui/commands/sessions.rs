//! `--list-sessions`: metadata of the sound session files as JSONL.

use super::{
    super::{diagnostics, exit::Exit, refuse},
    print_with,
};
use crate::{
    config::{self, Home},
    session,
};

/// Lists the sessions of `home`. The current settings are only asked for the key's variable; a
/// config.toml that cannot be read stops nothing.
pub fn list(home: &Home) -> Exit {
    if let Err(error) = config::bootstrap(home) {
        return refuse(&error.to_string(), error.hint_text(), Exit::Usage);
    }
    let configured = config::load(home).ok().map(|(settings, _)| settings.llm.api_key_env);
    let listing =
        session::list(&home.sessions(), |header| session::secrets_for(header, configured.as_deref()));
    let listing = match listing {
        Ok(listing) => listing,
        Err(error) => {
            return refuse("unable to list sessions", Some(&error.to_string()), Exit::Failed);
        }
    };
    if listing.left_out > 0 {
        diagnostics::warn(&format!("session files left out: {}", listing.left_out));
    }
    print_with("unable to write session metadata", |out| {
        for metadata in &listing.sessions {
            serde_json::to_writer(&mut *out, metadata)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    })
}
