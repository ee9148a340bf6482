//! README and docs do what they say: every block of shell is run, every block of settings is read.
//!
//! The shell blocks of a document run one after the other, as somebody would who reads from top to
//! bottom, with `lucy` and `jq` on the PATH and the demo's sentences behind the configured provider.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use lucy::demo::Answers;

use crate::support::{Provider, Rig};

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The fenced blocks that open with this line.
fn blocks(document: &str, fence: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        if line.starts_with("```") {
            inside = !inside && line == format!("```{fence}");
            if inside {
                found.push(String::new());
            }
        } else if inside {
            let block = found.last_mut().unwrap();
            block.push_str(line);
            block.push('\n');
        }
    }
    found
}

/// What a block is in a test, which cannot build the program anew or run all tests from inside one.
fn adapted(block: &str) -> String {
    let lines = block.lines().filter(|line| !line.starts_with("scripts/"));
    lines.map(|line| line.replace("cargo run --release -- ", "lucy ") + "\n").collect()
}

/// Runs the shell blocks of a document in a fresh place; gives what the last one printed.
fn run_blocks(name: &str) -> String {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let _provider = Provider::start(&listener, Answers::Assistant);
    let root = tempfile::tempdir().unwrap();
    let (bin, home) = (root.path().join("bin"), root.path().join("home"));
    fs::create_dir_all(home.join(".lucy")).unwrap();
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_lucy"), bin.join("lucy")).unwrap();
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs"), root.path().join("docs")).unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = home.join(".lucy/config.toml");
    let text = format!(
        "[llm]\nbase_url = \"http://127.0.0.1:{port}/v1\"\nmodel = \"demo\"\napi_key_env = \"OPENROUTER_API_KEY\"\n"
    );
    fs::write(&config, text).unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();

    let script: String =
        blocks(&document(name), "sh").iter().map(|block| adapted(block) + "echo ==\n").collect();
    let output = Command::new("timeout")
        .args(["60", "bash", "-eu", "-c", &script])
        .current_dir(root.path())
        .env_clear()
        .env("HOME", &home)
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {:?}\n{out}\n{err}", output.status);
    out.trim_end().trim_end_matches("==").rsplit("==\n").next().unwrap_or_default().to_owned()
}

fn has_jq() -> bool {
    Command::new("jq").arg("--version").output().is_ok()
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that was skipped has to say so")]
fn the_readme_runs_from_top_to_bottom() {
    if !has_jq() {
        println!("skipped: jq is not installed");
        return;
    }
    let last = run_blocks("README.md");
    assert!(last.contains(r#""resumed":true"#), "{last}");
}

#[test]
fn the_page_on_the_demo_runs_and_prints_what_it_shows() {
    let printed = run_blocks("docs/demo.md");
    let shown = blocks(&document("docs/demo.md"), "json");
    assert_eq!(printed, *shown.last().unwrap());
    assert_eq!(shown[0], document("docs/scripts/answer.json"));
}

#[test]
fn the_settings_that_are_shown_are_settings() {
    let shown = blocks(&document("README.md"), "toml");
    assert_eq!(shown.len(), 5);
    for block in shown {
        Rig::new()
            .config(&block)
            .env("LUCY_TEST_KEY", "")
            .args(["context", "--json"])
            .run()
            .code(0)
            .stderr("");
        let variable = block.lines().find_map(|line| line.strip_prefix("api_key_env = \"")).unwrap();
        let variable = variable.trim_end_matches('"');
        // With everything but the key in place, the key is what is missing.
        Rig::new()
            .config(&block)
            .env_without(variable)
            .run()
            .code(3)
            .stderr_contains("missing provider API key");
    }
}

#[test]
fn links_lead_somewhere() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    for name in ["README.md", "ARCHITECTURE.md", "docs/protocol.md", "docs/demo.md"] {
        let text = document(name);
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split([')', '#']).next().unwrap();
            let path = root.join(name).parent().unwrap().join(target);
            assert!(target.starts_with("http") || target.is_empty() || path.exists(), "{name}: {target}");
        }
    }
}
