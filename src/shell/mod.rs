//! Runs one shell command at a time, within bounds, and says what came of it.
//!
//! `runner` starts the shell and decides how it ends, `capture` keeps its output, `group` makes sure
//! that nothing of it stays behind, `output` is the result everybody reads. Knows nothing of models,
//! tools or screens. Read `runner` first.

mod capture;
mod group;
mod output;
mod runner;

pub use group::kill_all;
pub use output::CommandOutput;
pub use runner::Shell;

#[cfg(test)]
pub mod test_shell;
#[cfg(test)]
mod tests;
