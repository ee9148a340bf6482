//! Whole contexts, built in folders of their own.

use std::{
    fs,
    os::unix::fs::{chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use super::*;

/// A home with a project in it: `/home/.lucy`, `/home/p` (the Git root) and `/home/p/a/b` (the cwd).
struct Disk {
    _dir: tempfile::TempDir,
    home: PathBuf,
}

impl Disk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        for folder in [".lucy", "p/.git", "p/a/b"] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        Self { _dir: dir, home }
    }

    fn path(&self, path: &str) -> PathBuf {
        assert!(Path::new(path).is_relative(), "{path} would leave the test's folder");
        self.home.join(path)
    }

    fn file(self, path: &str, text: impl AsRef<[u8]>) -> Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn skill(self, root: &str, folder: &str, name: &str) -> Self {
        let text = format!("---\nname: {name}\ndescription: of {root}\n---\n");
        self.file(&format!("{root}/.agents/skills/{folder}/SKILL.md"), text)
    }

    fn link(self, path: &str, target: impl AsRef<Path>) -> Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
        self
    }

    fn try_build(&self, cwd: &str) -> Result<Context, ContextError> {
        let (lucy_home, cwd) = (self.path(".lucy"), self.path(cwd));
        build(&Places { lucy_home: &lucy_home, home: Some(&self.home), cwd: &cwd }, "Be useful.\n\n")
    }

    fn build(&self) -> Context {
        self.try_build("p/a/b").unwrap()
    }

    /// The prompt with the home folder as `~`.
    fn prompt(&self) -> String {
        self.build().system_prompt.replace(self.home.to_str().unwrap(), "~")
    }

    /// What was skipped, and why.
    fn skipped(&self) -> Vec<String> {
        let line = |skipped: &Skipped| format!("{}: {}", skipped.path.display(), skipped.reason);
        let lines = self.build().skipped.iter().map(line).collect::<Vec<_>>();
        lines.iter().map(|line| line.replace(self.home.to_str().unwrap(), "~")).collect()
    }

    fn failure(&self) -> (String, String) {
        let error = self.try_build("p/a/b").unwrap_err();
        (error.to_string(), error.hint().replace(self.home.to_str().unwrap(), "~"))
    }
}

#[test]
fn the_configured_prompt_stands_alone() {
    let disk = Disk::new();
    assert_eq!(disk.prompt(), "Be useful.");
    assert!(disk.skipped().is_empty());
}

#[test]
fn sections_come_in_the_published_order() {
    let disk = Disk::new()
        .file(".lucy/CLAUDE.md", "global\n")
        .file("p/AGENTS.md", "root \n\n")
        .file("p/CLAUDE.md", "never")
        .file("p/a/b/CLAUDE.md", "\nspecific")
        .file("AGENTS.md", "above the root")
        .skill("p", "one", "zeta")
        .skill("p/a", "two", "alpha");
    assert_eq!(
        disk.prompt(),
        "Be useful.\n\n\
         ## Instructions from ~/.lucy/CLAUDE.md\nglobal\n\n\
         ## Instructions from ~/p/AGENTS.md\nroot\n\n\
         ## Instructions from ~/p/a/b/CLAUDE.md\n\nspecific\n\n\
         ## Available skills\n\
         - name: alpha\n  description: of p/a\n  path: ~/p/a/.agents/skills/two/SKILL.md\n\
         - name: zeta\n  description: of p\n  path: ~/p/.agents/skills/one/SKILL.md"
    );
}

#[test]
fn sources_say_what_each_part_adds() {
    let disk = Disk::new().file("p/AGENTS.md", "root").skill("p", "one", "zeta");
    let context = disk.build();
    let kinds: Vec<_> = context.sources.iter().map(|source| source.kind).collect();
    assert_eq!(kinds, [SourceKind::Config, SourceKind::Instructions, SourceKind::Skill]);
    assert_eq!(context.sources[0].path, disk.path(".lucy/config.toml"));
    assert_eq!(context.sources[1].path, disk.path("p/AGENTS.md"));
    // Two blank lines and one heading belong to nobody.
    let added: usize = context.sources.iter().map(|source| source.bytes).sum();
    assert_eq!(added + 4 + "## Available skills".len(), context.system_prompt.len());
}

#[test]
fn an_empty_prompt_leaves_no_blank_lines() {
    let disk = Disk::new().file(".lucy/AGENTS.md", "global");
    let (lucy_home, cwd) = (disk.path(".lucy"), disk.path("p"));
    let context = build(&Places { lucy_home: &lucy_home, home: None, cwd: &cwd }, " \n").unwrap();
    assert!(context.system_prompt.starts_with("## Instructions from "));
}

#[test]
fn without_a_git_root_only_the_working_folder_counts() {
    let disk = Disk::new().file("q/AGENTS.md", "above").file("q/r/AGENTS.md", "here").skill("q", "one", "x");
    let context = disk.try_build("q/r").unwrap();
    assert!(context.system_prompt.contains("here") && !context.system_prompt.contains("above"));
    assert_eq!(context.sources.len(), 2);
}

#[test]
fn the_nearest_git_file_or_folder_is_the_root() {
    let disk =
        Disk::new().file("p/AGENTS.md", "above").file("p/a/.git", "gitdir: x").file("p/a/AGENTS.md", "here");
    assert_eq!(disk.prompt(), "Be useful.\n\n## Instructions from ~/p/a/AGENTS.md\nhere");
}

#[test]
fn an_empty_file_wins_and_a_folder_does_not() {
    let disk = Disk::new()
        .file("p/AGENTS.md", "")
        .file("p/CLAUDE.md", "never")
        .file("p/a/AGENTS.md/x", "")
        .file("p/a/CLAUDE.md", "tried");
    assert_eq!(
        disk.prompt(),
        "Be useful.\n\n## Instructions from ~/p/AGENTS.md\n\n\n## Instructions from ~/p/a/CLAUDE.md\ntried"
    );
    assert_eq!(disk.skipped(), ["~/p/a/AGENTS.md: not a regular file"]);
}

#[test]
fn fifos_devices_and_loops_are_skipped() {
    let disk = Disk::new()
        .link("p/AGENTS.md", "/dev/zero")
        .link("p/CLAUDE.md", "CLAUDE.md")
        .link("p/a/AGENTS.md", "nowhere")
        .link("p/a/.agents/skills", "skills")
        .file(".agents/skills/two/x", "");
    for fifo in ["p/a/CLAUDE.md", ".agents/skills/two/SKILL.md"] {
        assert!(Command::new("mkfifo").arg(disk.path(fifo)).status().unwrap().success());
    }
    assert_eq!(disk.prompt(), "Be useful.");
    assert_eq!(
        disk.skipped(),
        [
            "~/p/AGENTS.md: not a regular file",
            "~/p/CLAUDE.md: links to itself",
            "~/p/a/CLAUDE.md: not a regular file",
            "~/.agents/skills/two/SKILL.md: not a regular file",
            "~/p/a/.agents/skills: links to itself",
        ]
    );
}

#[test]
fn links_to_own_files_are_followed() {
    let disk = Disk::new()
        .file("dotfiles/rules.md", "linked")
        .link("p/AGENTS.md", "../dotfiles/rules.md")
        .skill("dotfiles", "one", "linked-skill")
        .link(".agents", "dotfiles/.agents");
    let prompt = disk.prompt();
    assert!(prompt.contains("## Instructions from ~/p/AGENTS.md\nlinked"), "{prompt}");
    assert!(prompt.contains("  path: ~/.agents/skills/one/SKILL.md"), "{prompt}");
}

#[test]
fn a_link_to_a_file_of_another_user_is_skipped_and_a_plain_one_is_read() {
    let disk = Disk::new()
        .file("other.md", "linked")
        .link("p/AGENTS.md", "../other.md")
        .file("p/a/AGENTS.md", "plain");
    // Only root can make such files.
    if chown(disk.path("other.md"), Some(4711), None).is_err() {
        return;
    }
    chown(disk.path("p/a/AGENTS.md"), Some(4711), None).unwrap();
    assert_eq!(disk.prompt(), "Be useful.\n\n## Instructions from ~/p/a/AGENTS.md\nplain");
    assert_eq!(disk.skipped(), ["~/p/AGENTS.md: links to a file of another user"]);
}

#[test]
fn instructions_that_are_not_text_stop_the_start() {
    let disk = Disk::new().file("p/AGENTS.md", b"\xff").file("p/CLAUDE.md", "fine");
    let failure = ("unable to read instruction context".into(), "~/p/AGENTS.md: not UTF-8 text".into());
    assert_eq!(disk.failure(), failure);
    let disk = Disk::new().file(".lucy/AGENTS.md", vec![b'a'; (16 << 20) + 1]);
    assert_eq!(disk.failure().1, "~/.lucy/AGENTS.md: larger than 16 MiB");
}

#[test]
fn what_cannot_be_looked_at_stops_the_start() {
    // A name that is too long fails for root, too.
    let long = "x".repeat(300);
    let (message, hint) = Disk::new().link("p/AGENTS.md", &long).failure();
    assert_eq!(message, "unable to inspect instruction context");
    assert!(hint.starts_with("~/p/AGENTS.md: "), "{hint}");
    for path in [".agents/skills/one/SKILL.md", ".agents/skills/one", ".agents/skills"] {
        let (message, hint) = Disk::new().link(path, &long).failure();
        assert_eq!(message, "unable to inspect skill context");
        assert!(hint.starts_with("~/.agents/skills"), "{hint}");
    }
}

#[test]
fn later_skills_override_earlier_ones_by_name() {
    let disk = Disk::new()
        .skill(".", "one", "same")
        .skill("p", "two", "same")
        .skill("p/a/b", "three", "same")
        .skill(".", "four", "other");
    let context = disk.build();
    let skills: Vec<_> = context.sources.iter().skip(1).map(|source| source.path.clone()).collect();
    assert_eq!(
        skills,
        [disk.path(".agents/skills/four/SKILL.md"), disk.path("p/a/b/.agents/skills/three/SKILL.md")]
    );
    assert_eq!(context.skipped.len(), 2);
    assert!(context.skipped[0].reason.starts_with("overridden by "));
}

#[test]
fn a_project_in_the_home_folder_overrides_nothing() {
    let disk = Disk::new().skill(".", "one", "same").file(".git/HEAD", "");
    let context = disk.try_build("").unwrap();
    assert_eq!((context.sources.len(), context.skipped.len()), (2, 0));
}

#[test]
fn what_is_not_a_skill_is_skipped() {
    let disk = Disk::new()
        .file(".agents/skills/README.md", "not a folder")
        .file(".agents/skills/empty/notes.md", "")
        .file(".agents/skills/a/SKILL.md", b"---\nname: \xff")
        .file(".agents/skills/b/SKILL.md", "---\nname: b\n---\n")
        .file(".agents/skills/c/SKILL.md/x", "")
        .file(".agents/skills/deep/er/SKILL.md", "---\nname: x\ndescription: y\n---\n")
        .file("p/.agents/skills", "not a folder");
    assert_eq!(disk.prompt(), "Be useful.");
    assert_eq!(
        disk.skipped(),
        [
            "~/.agents/skills/a/SKILL.md: not UTF-8 text",
            "~/.agents/skills/b/SKILL.md: frontmatter has no description",
            "~/.agents/skills/c/SKILL.md: not a regular file",
        ]
    );
}

#[test]
fn contexts_serialize_for_programs() {
    let json = serde_json::to_value(Disk::new().build()).unwrap();
    assert_eq!(json["sources"][0]["kind"], "config");
    assert_eq!(json["sources"][0]["bytes"], 10);
}

#[cfg(target_os = "linux")]
#[test]
fn paths_that_are_not_text_are_shown_as_far_as_they_are() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let disk = Disk::new();
    let cwd = disk.path("p").join(OsStr::from_bytes(b"\xff"));
    fs::create_dir(&cwd).unwrap();
    fs::write(cwd.join("AGENTS.md"), "here").unwrap();
    let lucy_home = disk.path(".lucy");
    let context = build(&Places { lucy_home: &lucy_home, home: None, cwd: &cwd }, "").unwrap();
    assert!(context.system_prompt.contains("/p/\u{fffd}/AGENTS.md\nhere"));
    let json = serde_json::to_string(&context).unwrap();
    assert!(json.contains("/p/\u{fffd}/AGENTS.md\""), "{json}");
}
