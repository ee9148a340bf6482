//! A conversation that outlives the process.
//!
//! `run` takes inputs in order, `turn` runs one; what they say goes through `recorder`, which redacts it,
//! logs it and hands it to a front. `record` and `event` are the vocabulary, `history` what the model is
//! sent, `lucy_log` and `reader` the file format, `log` the file, `store` opens sessions, `catalog` lists
//! them. Knows no terminal, no stdin and no stdout. Read `event`, then `turn`.

mod catalog;
mod credentials;
mod event;
mod fault;
mod history;
mod key_rules;
mod log;
mod lucy_log;
mod reader;
mod record;
mod recorder;
mod redact;
mod run;
mod store;
#[cfg(test)]
mod tests;
mod turn;

pub use catalog::list;
pub use credentials::{secrets_for, without_key};
pub use event::{Event, Progress};
pub use key_rules::MARKER;
pub use record::{Cause, Record};
pub use recorder::Delivery;
pub use run::Input;
pub use store::{OpenError, OpenErrorKind, Opened, create, resume};

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix milliseconds; 0 on a clock before 1970.
fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
