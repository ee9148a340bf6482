//! The system message of a new session, built once from what lies on disk.
//!
//! Owns the order and form of its sections (README "Context and skills", contract section 11) and says
//! where each came from. Deterministic and synchronous; knows nothing of config files, sessions or
//! providers. `instructions` and `skills` find the parts, `file` opens them, `frontmatter` reads a skill.

mod error;
mod file;
mod frontmatter;
mod instructions;
mod skills;
#[cfg(test)]
mod tests;

pub use error::ContextError;

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

/// The deepest project that is walked, in folders above the working directory.
const ANCESTORS_MAX: usize = 256;

/// Where to look.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// `~/.lucy`.
    pub lucy_home: &'a Path,
    pub home: Option<&'a Path>,
    /// Canonical, so that the paths of its ancestors are, too.
    pub cwd: &'a Path,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Context {
    pub system_prompt: String,
    pub sources: Vec<Source>,
    pub skipped: Vec<Skipped>,
}

/// A part of the system prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    pub kind: SourceKind,
    #[serde(serialize_with = "as_shown")]
    pub path: PathBuf,
    /// What it adds to the system prompt, without the blank line between sections.
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    Config,
    Instructions,
    Skill,
}

impl SourceKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Instructions => "instructions",
            Self::Skill => "skill",
        }
    }
}

/// A file that was found in a place for instructions or skills and not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    #[serde(serialize_with = "as_shown")]
    pub path: PathBuf,
    pub reason: String,
}

/// Builds the context of a session that starts in `places.cwd`.
pub fn build(places: &Places<'_>, system_prompt: &str) -> Result<Context, ContextError> {
    let folders = project_folders(places.cwd);
    let mut skipped = Vec::new();
    let instructions = instructions::find(places.lucy_home, &folders, &mut skipped)?;
    let skills = skills::find(places.home, &folders, &mut skipped)?;

    let mut prompt = Prompt::default();
    let config = Source::new(SourceKind::Config, places.lucy_home.join("config.toml"));
    prompt.section(system_prompt.trim_end(), config);
    for found in instructions {
        let section = format!("## Instructions from {}\n{}", found.path.display(), found.text.trim_end());
        prompt.section(&section, Source::new(SourceKind::Instructions, found.path));
    }
    if !skills.is_empty() {
        prompt.open("## Available skills");
    }
    for skill in skills {
        let path = skill.path.display();
        let entry = format!("\n- name: {}\n  description: {}\n  path: {path}", skill.name, skill.description);
        prompt.append(&entry, Source::new(SourceKind::Skill, skill.path));
    }
    Ok(Context { system_prompt: prompt.text, sources: prompt.sources, skipped })
}

/// The folders whose files apply, broad to specific: from the Git root to `cwd`, or `cwd` alone.
/// A root has a `.git` folder, or a file of that name (worktrees, submodules).
fn project_folders(cwd: &Path) -> Vec<&Path> {
    let mut folders: Vec<_> = cwd.ancestors().take(ANCESTORS_MAX).collect();
    let root = folders
        .iter()
        .position(|folder| folder.join(".git").metadata().is_ok_and(|git| git.is_dir() || git.is_file()));
    folders.truncate(root.unwrap_or(0) + 1);
    folders.reverse();
    folders
}

/// A path that is not UTF-8 is shown in JSON as it is in the prompt; serde would refuse it.
fn as_shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

impl Source {
    fn new(kind: SourceKind, path: PathBuf) -> Self {
        Self { kind, path, bytes: 0 }
    }
}

/// The text as it grows, and who wrote which part.
#[derive(Default)]
struct Prompt {
    text: String,
    sources: Vec<Source>,
}

impl Prompt {
    fn section(&mut self, text: &str, source: Source) {
        self.open("");
        self.append(text, source);
    }

    /// Begins a section; a blank line parts it from the one before.
    fn open(&mut self, heading: &str) {
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.text.push_str(heading);
    }

    fn append(&mut self, text: &str, source: Source) {
        self.text.push_str(text);
        self.sources.push(Source { bytes: text.len(), ..source });
    }
}
