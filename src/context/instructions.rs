//! Finds instruction files: AGENTS.md, or CLAUDE.md where there is none.
//!
//! The global one first, then each project folder, broad to specific. A file that is there and cannot
//! be used as text stops the start: the person wrote it to be heard.

use std::path::{Path, PathBuf};

use super::{
    Skipped,
    error::{Cause, ContextError},
    file::{self, Failure, Found},
};

/// In order of preference within one folder.
const NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// Instructions are not cut (README: "full instruction text"), but more than this is not instructions.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// One instruction file.
pub struct Instructions {
    pub path: PathBuf,
    pub text: String,
}

/// The instruction files of the global folder and of `folders`, in this order.
pub fn find(
    lucy_home: &Path,
    folders: &[&Path],
    skipped: &mut Vec<Skipped>,
) -> Result<Vec<Instructions>, ContextError> {
    let mut found = Vec::new();
    for folder in std::iter::once(&lucy_home).chain(folders) {
        found.extend(find_in(folder, skipped)?);
    }
    Ok(found)
}

/// The first usable file of `folder`. An empty one is usable.
fn find_in(folder: &Path, skipped: &mut Vec<Skipped>) -> Result<Option<Instructions>, ContextError> {
    for path in NAMES.map(|name| folder.join(name)) {
        match file::read(&path, BYTES_MAX + 1) {
            Ok(Found::Absent) => {}
            Ok(Found::Unfit(reason)) => skipped.push(Skipped { path, reason: reason.into() }),
            Ok(Found::Bytes(bytes)) => {
                return text(&path, bytes).map(|text| Some(Instructions { path, text }));
            }
            Err(Failure::Inspect(error)) => {
                return Err(ContextError::InspectInstructions(Cause::new(&path, error)));
            }
            Err(Failure::Read(error)) => {
                return Err(ContextError::ReadInstructions(Cause::new(&path, error)));
            }
        }
    }
    Ok(None)
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<String, ContextError> {
    let fail = |reason: &str| ContextError::ReadInstructions(Cause::new(path, reason));
    if bytes.len() as u64 > BYTES_MAX {
        return Err(fail("larger than 16 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| fail("not UTF-8 text"))
}
