//! Tests of the whole program: what the contract promises to people and scripts, by feature.
//!
//! `support` is the rig; each other module is one part of the contract.

mod bars;
mod cli;
mod demo;
mod documents;
mod faults;
mod golden;
#[cfg(feature = "fault-injection")]
mod injected;
mod input;
mod network;
mod quirks;
mod schema;
mod secrets;
mod sessions;
mod support;
mod tidy;
mod turn;
