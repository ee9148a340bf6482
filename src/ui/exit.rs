//! How a process ends: one table, in `--help`, the README and a test.

use std::process::ExitCode;

use async_signal::Signal;

/// The exit codes of `lucy` (contract section 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok,
    /// A turn or the run failed: an `error` event was emitted, or stdout was closed.
    Failed,
    /// Usage or configuration.
    Usage,
    /// No key, or one that cannot be used.
    Credentials,
    /// A session was not found, is in use, or cannot be read.
    Session,
    /// A limit stopped the last turn.
    Limit,
    Hangup,
    Interrupted,
    /// A bug in the program: it panicked.
    Bug,
    Terminated,
}

impl Exit {
    /// The table as `--help` prints it.
    pub const TABLE: &str = "\
Exit codes:
  0    ok
  1    a turn or the run failed
  2    usage or configuration
  3    credentials
  4    session not found or in use
  5    a limit stopped the last turn
  129  SIGHUP
  130  SIGINT
  134  a bug
  143  SIGTERM";

    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Credentials => 3,
            Self::Session => 4,
            Self::Limit => 5,
            Self::Hangup => 129,
            Self::Interrupted => 130,
            Self::Bug => 134,
            Self::Terminated => 143,
        }
    }

    /// The end that a signal asks for.
    pub fn on_signal(signal: Signal) -> Self {
        match signal {
            Signal::Hup => Self::Hangup,
            Signal::Int => Self::Interrupted,
            _ => Self::Terminated,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
