//! Finds skills: folders below `.agents/skills` that hold a SKILL.md.
//!
//! Global first, then the project, broad to specific; a later skill takes the place of an earlier one
//! of the same name. A skill that cannot be understood is skipped, one that cannot be read stops the
//! start. Only the beginning of a file is read: the model reads the rest when it needs it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    Skipped,
    error::{Cause, ContextError},
    file::{self, Failure, Found},
    frontmatter,
};

/// A skill as the catalog names it.
pub struct Skill {
    pub name: String,
    pub description: String,
    pub path: PathBuf,
}

/// All skills, sorted by name.
pub fn find(
    home: Option<&Path>,
    folders: &[&Path],
    skipped: &mut Vec<Skipped>,
) -> Result<Vec<Skill>, ContextError> {
    let mut skills = BTreeMap::new();
    for root in home.iter().chain(folders) {
        for path in candidates(&root.join(".agents/skills"), skipped)? {
            match read(&path)? {
                Some(Ok(skill)) => add(&mut skills, skill, skipped),
                Some(Err(reason)) => skipped.push(Skipped { path, reason: reason.into() }),
                None => {}
            }
        }
    }
    Ok(skills.into_values().collect())
}

fn add(skills: &mut BTreeMap<String, Skill>, skill: Skill, skipped: &mut Vec<Skipped>) {
    let path = skill.path.clone();
    let before = skills.insert(skill.name.clone(), skill);
    // A project in the home folder has its skills twice, and both times the same.
    if let Some(before) = before.filter(|before| before.path != path) {
        skipped.push(Skipped { path: before.path, reason: format!("overridden by {}", path.display()) });
    }
}

/// Where the skills of one folder would be, in an order that does not depend on the disk.
fn candidates(folder: &Path, skipped: &mut Vec<Skipped>) -> Result<Vec<PathBuf>, ContextError> {
    let fail = |error: io::Error| ContextError::InspectSkills(Cause::new(folder, error));
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) if file::is_loop(&error) => {
            skipped.push(Skipped { path: folder.to_owned(), reason: file::LOOP.into() });
            return Ok(Vec::new());
        }
        Err(error) => return Err(fail(error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path().join("SKILL.md")));
    let mut paths = paths.collect::<io::Result<Vec<_>>>().map_err(fail)?;
    paths.sort();
    Ok(paths)
}

/// The skill at `path`: absent, skipped for a reason, or there.
fn read(path: &Path) -> Result<Option<Result<Skill, &'static str>>, ContextError> {
    let bytes = match file::read(path, frontmatter::BYTES_MAX) {
        Ok(Found::Absent) => return Ok(None),
        Ok(Found::Unfit(reason)) => return Ok(Some(Err(reason))),
        Ok(Found::Bytes(bytes)) => bytes,
        Err(Failure::Inspect(error) | Failure::Read(error)) => {
            return Err(ContextError::InspectSkills(Cause::new(path, error)));
        }
    };
    let skill = frontmatter::parse(&bytes).map(|front| Skill {
        name: front.name,
        description: front.description,
        path: path.to_owned(),
    });
    Ok(Some(skill))
}
