//! Commands that print and end.

pub mod context;
pub mod demo;
pub mod schema;
pub mod sessions;

use std::io::{self, Write};

use super::{diagnostics, exit::Exit};

/// Writes text to stdout. A reader that has seen enough is no fault worth a word.
pub fn print(text: &str) -> Exit {
    print_with("unable to write output", |out| out.write_all(text.as_bytes()))
}

/// Lets `write` fill stdout through a buffer; `what` begins the message when that fails.
fn print_with(what: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Exit {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            if error.kind() != io::ErrorKind::BrokenPipe {
                diagnostics::say(&format!("{what}: {error}"));
            }
            Exit::Failed
        }
    }
}
