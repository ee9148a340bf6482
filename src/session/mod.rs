//! A conversation that outlives the process: turns, facts, their log, and what resumes from it.
mod catalog;
mod event;
mod history;
mod key_rules;
mod log;
mod lucy_log;
mod reader;
mod record;
mod redact;

fn unix_ms() -> u64 {
    0
}
