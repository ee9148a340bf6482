//! What is there before the program starts: its home, its configuration, its provider, its input.
//!
//! The environment is cleared but for PATH, HOME and LANG. `~/.lucy` and the XDG places lie below the
//! temporary HOME because nothing points elsewhere.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use lucy::demo::{Answers, Case, Reply};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{finished::Finished, provider::Provider, running::Running};

/// The provider key of all tests.
pub const KEY: &str = "test-key-3f9a";

/// A program about to be started.
pub struct Rig {
    root: TempDir,
    listener: TcpListener,
    replies: Vec<Reply>,
    script: Option<Case>,
    config: Option<String>,
    config_absent: bool,
    llm: Vec<String>,
    limits: Vec<String>,
    env: BTreeMap<String, Option<String>>,
    args: Vec<String>,
    stdin: Vec<u8>,
    stdin_from: Option<Stdio>,
    file_blocks_max: Option<u32>,
    stdout: Stdout,
    /// Lines of session files that no program wrote.
    pub(super) handmade: Vec<String>,
}

/// Who reads the program's stdout.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stdout {
    Read,
    /// A pipe that stays open and fills up.
    Unread,
    Closed,
}

impl Rig {
    /// A fresh home with a working configuration and a provider that has no reply yet.
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        for dir in ["home", "work"] {
            fs::create_dir(root.path().join(dir)).expect("a directory");
        }
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("LUCY_TEST_KEY", KEY)];
        Self {
            root,
            listener: TcpListener::bind(("127.0.0.1", 0)).expect("a free port"),
            replies: Vec::new(),
            script: None,
            config: None,
            config_absent: false,
            llm: Vec::new(),
            limits: Vec::new(),
            env: env.map(|(name, value)| (name.into(), Some(value.into()))).into(),
            args: Vec::new(),
            stdin: Vec::new(),
            stdin_from: None,
            file_blocks_max: None,
            stdout: Stdout::Read,
            handmade: Vec::new(),
        }
    }

    /// The next reply of the provider.
    pub fn reply(mut self, reply: Reply) -> Self {
        self.replies.push(reply);
        self
    }

    /// The same reply `n` times.
    pub fn replies(mut self, reply: &Reply, n: usize) -> Self {
        self.replies.extend(std::iter::repeat_n(reply, n).cloned());
        self
    }

    /// A whole script instead of replies.
    pub fn script(mut self, case: &Value) -> Self {
        self.script = Some(Case::parse(&case.to_string()).expect("a script"));
        self
    }

    /// A line of `[limits]`.
    pub fn limits(mut self, line: &str) -> Self {
        self.limits.push(line.into());
        self
    }

    /// A line of `[llm]`.
    pub fn llm(mut self, line: &str) -> Self {
        self.llm.push(line.into());
        self
    }

    /// The whole config.toml; `{base_url}` stands for the provider's.
    pub fn config(mut self, toml: &str) -> Self {
        self.config = Some(toml.replace("{base_url}", &self.base_url()));
        self
    }

    /// A home that Lucy has never seen.
    pub fn without_config(mut self) -> Self {
        self.config_absent = true;
        self
    }

    /// An environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.into(), Some(value.into()));
        self
    }

    /// One variable less.
    pub fn env_without(mut self, name: &str) -> Self {
        self.env.insert(name.into(), None);
        self
    }

    /// Command line arguments.
    pub fn args<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.args.extend(args.map(str::to_string));
        self
    }

    /// One message record on stdin.
    pub fn ask(self, text: &str) -> Self {
        let record = json!({"type": "message", "text": text});
        self.stdin(format!("{record}\n").as_bytes())
    }

    /// Any bytes on stdin.
    pub fn stdin(mut self, bytes: &[u8]) -> Self {
        self.stdin.extend_from_slice(bytes);
        self
    }

    /// Stdout is a pipe that nobody reads any more.
    pub fn stdout_closed(mut self) -> Self {
        self.stdout = Stdout::Closed;
        self
    }

    /// Stdout is a pipe that stays open and that nobody reads.
    pub fn stdout_unread(mut self) -> Self {
        self.stdout = Stdout::Unread;
        self
    }

    /// No file may grow past this (`ulimit -f`).
    pub fn file_blocks_max(mut self, blocks: u32) -> Self {
        self.file_blocks_max = Some(blocks);
        self
    }

    /// Stdin is this instead of a pipe.
    pub fn stdin_from(mut self, stdin: Stdio) -> Self {
        self.stdin_from = Some(stdin);
        self
    }

    /// A file below the working directory.
    pub fn file(self, path: &str, content: &str) -> Self {
        let path = self.work().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, content).expect("a file");
        self
    }

    /// A session file that an earlier run might have left; `{base_url}` stands for the provider's
    /// and `{cwd}` for the working directory.
    pub fn session_file(mut self, id: &str, lines: &str) -> Self {
        let dir = self.home().join(".lucy/sessions");
        private_dir(dir.parent().expect("a parent"));
        private_dir(&dir);
        let lines =
            lines.replace("{base_url}", &self.base_url()).replace("{cwd}", &self.work().to_string_lossy());
        private_file(&dir.join(format!("{id}.jsonl")), &lines);
        self.handmade.extend(lines.lines().map(str::to_string));
        self
    }

    /// Starts with this session instead of a new one.
    pub fn resume(self, id: &str) -> Self {
        self.args(["--session", id])
    }

    /// Whether stdout is for events: not with what prints text.
    pub(super) fn writes_events(&self) -> bool {
        let texts = ["--help", "-h", "--version", "-V", "context", "schema"];
        !self.args.iter().any(|arg| texts.contains(&arg.as_str()))
    }

    pub(super) fn is_stdout_read(&self) -> bool {
        self.stdout != Stdout::Unread
    }

    /// The temporary HOME.
    pub fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The working directory of the program.
    pub fn work(&self) -> PathBuf {
        // Canonical, because the temporary directory may be reached by a link.
        self.root.path().join("work").canonicalize().expect("the working directory")
    }

    /// The provider's base URL.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port())
    }

    /// The provider's port.
    pub fn port(&self) -> u16 {
        self.listener.local_addr().expect("an address").port()
    }

    /// The same home and provider for another run, with nothing asked and answered yet.
    pub fn again(mut self) -> Self {
        self.replies.clear();
        self.script = None;
        self.args.clear();
        self.stdin.clear();
        self.stdin_from = None;
        self.file_blocks_max = None;
        self.stdout = Stdout::Read;
        self
    }

    /// Runs to the end of its input.
    pub fn run(self) -> Finished {
        let mut running = self.start();
        running.close_stdin();
        running.wait()
    }

    /// Starts and keeps stdin open after what was asked so far.
    pub fn start(mut self) -> Running {
        if !self.config_absent {
            self.write_config();
        }
        let case = self.script.take().unwrap_or_else(|| Case::of(self.replies.drain(..)));
        let provider = Provider::start(&self.listener, Answers::from(case));
        let stdin = std::mem::take(&mut self.stdin);
        let command = self.piped();
        Running::spawn(command, stdin, self, provider)
    }

    /// The program with these arguments, home and environment, and with no pipes of its own yet.
    pub fn command(&self) -> Command {
        let program = env!("CARGO_BIN_EXE_lucy");
        let mut command = match self.file_blocks_max {
            None => Command::new(program),
            Some(blocks) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", &format!("ulimit -f {blocks} && exec \"$0\" \"$@\""), program]);
                shell
            }
        };
        let env = self.env.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        command.args(&self.args).current_dir(self.work()).env_clear().env("HOME", self.home()).envs(env);
        if self.env.get("HOME").is_some_and(Option::is_none) {
            command.env_remove("HOME");
        }
        command
    }

    fn piped(&mut self) -> Command {
        let mut command = self.command();
        command
            .stdin(self.stdin_from.take().unwrap_or_else(Stdio::piped))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if self.stdout == Stdout::Closed {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            command.stdout(writer);
        }
        command
    }

    fn write_config(&self) {
        let toml = self.config.clone().unwrap_or_else(|| self.usual_config());
        let dir = self.home().join(".lucy");
        private_dir(&dir);
        private_file(&dir.join("config.toml"), &toml);
    }

    fn usual_config(&self) -> String {
        let base_url = self.base_url();
        let (llm, limits) = (self.llm.join("\n"), self.limits.join("\n"));
        format!(
            "system_prompt = \"You are under test.\"\n\n[llm]\nbase_url = \"{base_url}\"\n\
             model = \"test-model\"\napi_key_env = \"LUCY_TEST_KEY\"\n{llm}\n\n[limits]\n{limits}\n"
        )
    }
}

fn private_dir(path: &Path) {
    fs::create_dir_all(path).expect("a directory");
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("its mode");
}

fn private_file(path: &Path, content: &str) {
    fs::write(path, content).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("its mode");
}
