//! A program that runs: read its events, write to it, signal it, look at it from outside.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Form, finished::Finished, process, provider::Provider, rig::Rig};

/// For one event.
const EVENT_WAIT: Duration = Duration::from_secs(10);
/// For the end of the program.
const EXIT_WAIT: Duration = Duration::from_secs(20);
/// Between two looks at something that cannot be waited for.
const POLL: Duration = Duration::from_millis(5);

/// A started program. Killed when dropped.
pub struct Running {
    child: Child,
    stdin: Option<JoinHandle<ChildStdin>>,
    lines: Option<Receiver<Vec<u8>>>,
    /// Stdout, when nobody is to read it.
    unread: Option<ChildStdout>,
    stdout: Vec<u8>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    rest: Option<(Rig, Provider)>,
}

impl Running {
    pub(super) fn spawn(mut command: Command, stdin: Vec<u8>, rig: Rig, provider: Provider) -> Self {
        let mut child = command.spawn().expect("the program starts");
        // Our copy of a closed stdout has to go, or the program would never see it closed.
        drop(command);
        // In a thread of its own, since the program may stop reading while it writes.
        let stdin = child.stdin.take().map(|mut pipe| {
            thread::spawn(move || {
                // It may have ended already; the test will see that.
                let _ = pipe.write_all(&stdin);
                pipe
            })
        });
        let (lines, unread) = match child.stdout.take() {
            Some(stdout) if rig.is_stdout_read() => (Some(read_lines(stdout)), None),
            stdout => (None, stdout),
        };
        let mut errors = child.stderr.take().expect("a pipe");
        let stderr = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = errors.read_to_end(&mut bytes);
            bytes
        });
        let rest = Some((rig, provider));
        Self { child, stdin, lines, unread, stdout: Vec::new(), stderr: Some(stderr), rest }
    }

    /// Writes one line to stdin.
    pub fn write_line(&mut self, line: &str) {
        let mut pipe = self.stdin.take().expect("stdin is open").join().expect("what was asked before");
        pipe.write_all(format!("{line}\n").as_bytes()).expect("the program reads");
        self.stdin = Some(thread::spawn(move || pipe));
    }

    /// Writes much, in the background: the program may not take it at once.
    pub fn write_detached(&mut self, bytes: String) {
        let before = self.stdin.take().expect("stdin is open");
        self.stdin = Some(thread::spawn(move || {
            let mut pipe = before.join().expect("what was asked before");
            pipe.write_all(bytes.as_bytes()).expect("the program reads");
            pipe
        }));
    }

    /// Bytes that wait in a stdout that nobody reads.
    pub fn unread_bytes(&self) -> u64 {
        let pipe = self.unread.as_ref().expect("stdout is not read");
        rustix::io::ioctl_fionread(pipe).expect("a pipe")
    }

    /// What was there before the start.
    pub fn rig(&self) -> &Rig {
        &self.rest.as_ref().expect("it runs").0
    }

    /// Writes one message record.
    pub fn ask(&mut self, text: &str) {
        self.write_line(&json!({"type": "message", "text": text}).to_string());
    }

    /// Ends stdin, after all that was asked has been written.
    pub fn close_stdin(&mut self) {
        if let Some(writer) = self.stdin.take() {
            thread::spawn(move || drop(writer.join()));
        }
    }

    /// Stops reading stdout: the pipe closes when the program writes its next line.
    pub fn close_stdout(&mut self) {
        self.lines = None;
    }

    /// The next event on stdout.
    pub fn next_event(&mut self) -> Value {
        let lines = self.lines.as_ref().expect("stdout is read");
        match lines.recv_timeout(EVENT_WAIT) {
            Ok(line) => {
                self.stdout.extend_from_slice(&line);
                Form::Events.check(&line);
                serde_json::from_slice(&line).expect("JSON, as just checked")
            }
            Err(RecvTimeoutError::Timeout) => {
                panic!("no event within {EVENT_WAIT:?}, so far:\n{}", self.so_far())
            }
            Err(RecvTimeoutError::Disconnected) => panic!("stdout ended, so far:\n{}", self.so_far()),
        }
    }

    /// The first event from here that is wanted.
    pub fn wait_for(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + EVENT_WAIT;
        loop {
            let event = self.next_event();
            if wanted(&event) {
                return event;
            }
            assert!(Instant::now() < deadline, "no such event, so far:\n{}", self.so_far());
        }
    }

    /// The first event of this type.
    pub fn wait_for_type(&mut self, kind: &str) -> Value {
        self.wait_for(|event| event["type"] == kind)
    }

    /// Looks again and again until something holds.
    pub fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + EVENT_WAIT;
        while !holds(self) {
            assert!(Instant::now() < deadline, "{what} did not come about, so far:\n{}", self.so_far());
            thread::sleep(POLL);
        }
    }

    /// How many requests the provider has seen.
    pub fn requests_seen(&self) -> usize {
        let (_, provider) = self.rest.as_ref().expect("it runs");
        provider.log.exchanges().len()
    }

    /// Runs a second program in the same home, to its end, with no input.
    pub fn second(&self, args: &[&str]) -> Output {
        let (rig, _) = self.rest.as_ref().expect("it runs");
        let mut command = rig.command();
        command.args(args).stdin(Stdio::null());
        command.output().expect("the program starts")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the program is there");
    }

    /// Ends it the hard way.
    pub fn kill(&mut self) {
        self.child.kill().expect("the program is there");
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The names of its threads.
    pub fn threads(&self) -> Vec<String> {
        process::threads(self.pid())
    }

    /// Its resident memory.
    pub fn rss_kib(&self) -> u64 {
        process::rss_kib(self.pid())
    }

    /// Its direct children.
    pub fn children(&self) -> Vec<u32> {
        process::children(self.pid())
    }

    /// Waits for its end; an overrun kills it and fails the test.
    pub fn wait(mut self) -> Finished {
        let status = self.wait_for_exit();
        if let Some(lines) = self.lines.take() {
            // A child that still holds the pipe must not hold the test.
            while let Ok(line) = lines.recv_timeout(EVENT_WAIT) {
                self.stdout.extend_from_slice(&line);
            }
        }
        let stderr = self.stderr.take().expect("read once").join().expect("stderr is read");
        let (rig, provider) = self.rest.take().expect("it ran");
        Finished::new(status, std::mem::take(&mut self.stdout), stderr, rig, &provider.log)
    }

    fn wait_for_exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + EXIT_WAIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status;
            }
            if Instant::now() >= deadline {
                // Drop kills it.
                panic!("still running after {EXIT_WAIT:?}, so far:\n{}", self.so_far());
            }
            thread::sleep(POLL);
        }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines in a thread until the program ends or nobody wants them.
fn read_lines(stdout: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (lines, receiver) = channel();
    thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        loop {
            let mut line = Vec::new();
            match stdout.read_until(b'\n', &mut line) {
                Ok(read) if read > 0 => {}
                _ => return,
            }
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
