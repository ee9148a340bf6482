//! A conversation that outlives the process: turns, facts, their log, and what resumes from it.
mod event;
mod history;
mod key_rules;
mod record;
mod redact;
