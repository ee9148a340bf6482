//! Why a context could not be built: the contract's literal messages, and a hint that names the file.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Ends start-up; a session must not begin with half of its instructions (contract sections 2 and 11).
#[derive(Debug, Error)]
pub enum ContextError {
    /// A place for instructions could not be looked at.
    #[error("unable to inspect instruction context")]
    InspectInstructions(Cause),
    /// An instruction file could not be read as text.
    #[error("unable to read instruction context")]
    ReadInstructions(Cause),
    /// A skill or a folder of skills could not be looked at.
    #[error("unable to inspect skill context")]
    InspectSkills(Cause),
}

/// The file and what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub struct Cause {
    path: PathBuf,
    reason: String,
}

impl Cause {
    pub fn new(path: &Path, reason: impl ToString) -> Self {
        Self { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl ContextError {
    /// The second line of the diagnostic: which file, and why.
    pub fn hint(&self) -> String {
        let (Self::InspectInstructions(cause) | Self::ReadInstructions(cause) | Self::InspectSkills(cause)) =
            self;
        format!("{}: {}", cause.path.display(), cause.reason)
    }
}
