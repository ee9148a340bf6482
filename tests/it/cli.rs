//! The command line: what is accepted, what is refused, and with which words and exit code.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Finished, KEY, Rig, text};

fn run<const N: usize>(args: [&str; N]) -> Finished {
    Rig::new().args(args).run()
}

/// A mistake in the arguments: exit code 2, one line that begins like this, nothing on stdout.
#[track_caller]
fn refused<const N: usize>(args: [&str; N], message: &str) {
    let finished = run(args);
    finished.code(2).stdout("").stderr_contains(&format!("lucy: {message}"));
    assert!(finished.session_files().is_empty(), "nothing is written before the arguments are right");
}

#[test]
fn arguments_that_are_refused() {
    refused(["--nope"], "unknown argument");
    refused(["word"], "unknown argument");
    refused(["--session"], "--session requires an id");
    refused(["--session", "a", "--session", "b"], "--session cannot be combined or repeated");
    refused(["--list-sessions", "--session", "b"], "--session cannot be combined or repeated");
    refused(["--list-sessions", "--list-sessions"], "--list-sessions cannot be combined or repeated");
    refused(["--session", "a", "--list-sessions"], "--list-sessions cannot be combined or repeated");
    refused(["--jsonl", "--jsonl"], "--jsonl cannot be combined or repeated");
    refused(["--tui", "--jsonl"], "--jsonl cannot be combined or repeated");
    refused(["--jsonl", "--tui"], "--tui cannot be combined or repeated");
    refused(["--list-sessions", "--tui"], "--tui cannot be combined with --list-sessions");
    refused(["--tui"], "--tui requires a terminal on stdin and stdout");
}

#[test]
fn an_unknown_argument_is_never_echoed() {
    let finished = run(["--token=tok-9f2b7c"]);
    finished.code(2).never_says("tok-9f2b7c");
}

#[test]
fn help_and_version_go_to_stdout() {
    for flag in ["--help", "-h"] {
        let finished = run([flag]);
        finished.code(0).stderr("");
        let help = finished.stdout_text();
        for word in ["--jsonl", "--tui", "--session", "--list-sessions"] {
            assert!(help.contains(word), "no {word} in:\n{help}");
        }
    }
    for flag in ["--version", "-V"] {
        let finished = run([flag]);
        finished.code(0).stderr("");
        assert!(finished.stdout_text().contains(env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn jsonl_may_be_named_or_left_to_the_missing_terminal() {
    for rig in [Rig::new(), Rig::new().args(["--jsonl"])] {
        rig.reply(text("hi")).ask("x").run().success();
    }
}

#[test]
fn a_session_may_be_given_in_one_word_and_must_exist() {
    for args in [vec!["--session", "gone"], vec!["--session=gone"]] {
        let rig = args.iter().fold(Rig::new(), |rig, arg| rig.args([*arg]));
        rig.run().code(4).stdout("").stderr_contains("lucy: session not found");
    }
}

#[test]
fn start_up_that_fails() {
    Rig::new()
        .env_without("LUCY_TEST_KEY")
        .run()
        .code(3)
        .stdout("")
        .stderr_contains("lucy: missing provider API key");
    Rig::new().env("LUCY_TEST_KEY", "").run().code(3).stderr_contains("lucy: missing provider API key");
    let config = |toml: &str| Rig::new().config(toml).run();
    config("[llm]\nbase_url = \"{base_url}\"\napi_key_env = \"LUCY_TEST_KEY\"\nmodel = \"\"\n")
        .code(2)
        .stdout("")
        .stderr_contains("lucy: missing llm.model; set a model in config.toml");
    config("[llm\n").code(2).stderr_contains("lucy: unable to parse config.toml: invalid TOML");
    config("[llm]\nbase_url = \"\"\nmodel = \"m\"\n")
        .code(2)
        .stderr_contains("lucy: llm.base_url must not be empty");
    config("[llm]\nbase_url = \"{base_url}\"\nmodel = \"m\"\napi_key_env = \" \"\n")
        .code(2)
        .stderr_contains("lucy: llm.api_key_env must not be empty");
    Rig::new().llm("effort = \"  \"").run().code(2).stderr_contains("lucy: llm.effort must not be empty");
    Rig::new().limits("rounds = 0").run().code(2).stderr_contains("rounds");
}

#[test]
fn a_failed_start_leaves_no_session_and_names_no_variable() {
    let finished = Rig::new().env_without("LUCY_TEST_KEY").run();
    finished.never_says("LUCY_TEST_KEY");
    assert!(finished.session_files().is_empty());
}

#[test]
fn a_missing_key_is_reported_before_a_missing_model() {
    let toml = "[llm]\nbase_url = \"{base_url}\"\napi_key_env = \"LUCY_TEST_KEY\"\nmodel = \"\"\n";
    Rig::new()
        .config(toml)
        .env_without("LUCY_TEST_KEY")
        .run()
        .code(3)
        .stderr_contains("missing provider API key");
}

#[test]
fn lucy_home_moves_every_path_and_needs_no_home() {
    let rig = Rig::new().without_config().env_without("HOME").args(["--list-sessions"]);
    let moved = rig.work().join("moved");
    let finished = rig.env("LUCY_HOME", moved.to_str().unwrap()).run();
    finished.success().stdout("");
    assert!(moved.join("config.toml").exists());
    assert!(!finished.rig().home().join(".lucy").exists());
}

#[test]
fn the_pages_have_the_exit_codes_of_the_help() {
    let help = run(["--help"]).stdout_text();
    let table = help.split("Exit codes:").nth(1).expect("a table");
    let codes: Vec<&str> = table.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(codes, ["0", "1", "2", "3", "4", "5", "129", "130", "134", "143"]);
    for page in [include_str!("../../README.md"), include_str!("../../docs/protocol.md")] {
        let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
        let listed: Vec<&str> = rows.flat_map(|cell| cell.split(", ")).collect();
        let missing: Vec<_> = codes.iter().filter(|code| !listed.contains(code)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[test]
fn fifty_starts_at_once_find_one_whole_config() {
    let rig = Rig::new().without_config().args(["--list-sessions"]);
    let starts: Vec<_> = (0..50).map(|_| rig.command().spawn().expect("it starts")).collect();
    for mut start in starts {
        assert!(start.wait().expect("it ends").success());
    }
    let files: Vec<_> =
        std::fs::read_dir(rig.home().join(".lucy")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(files, ["config.toml"]);
}

#[test]
fn unknown_keys_are_one_warning_with_file_and_lines() {
    let finished = Rig::new().llm("temperature = 1").llm("top_p = 1").reply(text("hi")).ask("x").run();
    finished.code(0);
    let stderr = finished.stderr_text();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.contains(
            ".lucy/config.toml: unknown keys ignored: llm.temperature (line 7), llm.top_p (line 8)"
        ),
        "{stderr}"
    );
}

#[test]
fn the_context_command_prints_what_is_sent() {
    let rig = Rig::new()
        .file("AGENTS.md", "Be brief.\n")
        .file(".agents/skills/b/SKILL.md", "---\nname: bake\ndescription: Bakes bread\n---\nsecret recipe")
        .file(".agents/skills/a/SKILL.md", "no frontmatter");
    let context = rig.args(["context"]).run();
    context.code(0).stderr_contains("AGENTS.md").stderr_contains("skipped");
    let json = context.again().args(["context", "--json"]).run();
    json.code(0).stderr("");
    let sent = json.again().reply(text("hi")).ask("x").run();
    let prompt = sent.requests()[0]["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(prompt.contains("Be brief.") && prompt.contains("- name: bake"), "{prompt}");
    assert!(!prompt.contains("recipe"));
    let rerun = sent.again().args(["context"]).run();
    assert_eq!(rerun.stdout_text(), format!("{prompt}\n"));
    let rerun = rerun.again().args(["context", "--json"]).run();
    let report: serde_json::Value = serde_json::from_str(&rerun.stdout_text()).unwrap();
    assert_eq!(report["system_prompt"], prompt);
    let kinds: Vec<_> = report["sources"].as_array().unwrap().iter().map(|s| s["kind"].clone()).collect();
    assert_eq!(kinds, ["config", "instructions", "skill"]);
}

#[test]
fn a_first_run_writes_the_published_config() {
    let finished = Rig::new().without_config().args(["--list-sessions"]).run();
    finished.success().stdout("");
    let path = finished.rig().home().join(".lucy/config.toml");
    let config = std::fs::read_to_string(&path).expect("a config file");
    assert!(config.starts_with("system_prompt = \"You can access computer resources."), "{config}");
    assert!(config.contains("base_url = \"https://openrouter.ai/api/v1\"\nmodel = \"\"\n"), "{config}");
    assert!(config.ends_with("# effort = \"medium\"\n"), "{config}");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
}

#[test]
fn the_effort_is_sent_verbatim() {
    let finished = Rig::new().llm("effort = \" high\"").reply(text("hi")).ask("x").run();
    finished.success().never_says(KEY);
    assert_eq!(finished.requests()[0]["reasoning_effort"], " high");
}
