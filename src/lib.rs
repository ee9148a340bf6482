//! Lucy: a small local agent harness.

mod cancel;
mod chat;
mod config;
mod context;
pub mod demo;
mod session;
mod shell;
mod tools;
pub mod ui;
