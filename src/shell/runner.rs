//! Starts `/bin/sh -lc COMMAND`, waits for one of its endings, and leaves nothing behind.
//!
//! A command ends by itself, by its timeout or by the cancel token; each way the group is killed, the
//! output so far is kept, and the time it takes is bounded. Runs on the caller's executor, which also
//! polls `async_process::driver()`; no thread, no polling. Knows nothing of tools or models.
//! The result is in `output`, the pipes' other end in `capture`.

use std::{
    convert::Infallible,
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use async_io::Timer;
use async_process::{Child, ChildStderr, ChildStdout, Command};
use futures_lite::future;
use rustix::process;

use super::{capture::Capture, group::Group, output::CommandOutput};
use crate::{
    cancel::CancelToken,
    config::{Limit, Secret},
};

/// How long a killed shell may take to be reaped.
const REAP: Duration = Duration::from_millis(100);
/// How long a group may tidy up between TERM and KILL.
const TERM_GRACE: Duration = Duration::from_millis(50);

/// Where and how commands run. Nothing carries over from one command to the next.
#[derive(Clone, Debug)]
pub struct Shell {
    pub cwd: PathBuf,
    /// The variable that holds the key; the only one that commands do not inherit.
    pub removed_env: String,
    pub timeout: Duration,
    /// How long output may take to end once the shell has (README: "bounded 100 ms grace").
    pub grace: Duration,
    /// Bytes kept of each output stream.
    pub capture: Limit,
    /// No output cut by us ends in a piece of these.
    pub secrets: Vec<Secret>,
}

enum Ending {
    Exited(io::Result<ExitStatus>),
    TimedOut,
    Canceled,
}

impl Shell {
    /// Runs `command` to one of its endings. To cancel, use the token: a dropped future kills the
    /// group, too, but has no result to log.
    pub async fn run(&self, command: &str, token: &CancelToken) -> CommandOutput {
        if token.reason().is_some() {
            return CommandOutput::canceled_before_execution(Some(command));
        }
        let Ok((mut job, stdout, stderr)) = Job::start(self, command) else {
            return CommandOutput::not_run(command, "unable to start command");
        };
        let (mut out, mut err) = (Capture::new(self.capture), Capture::new(self.capture));
        let (running, over) = async_channel::bounded::<Infallible>(1);
        let wait = async {
            let ending = job.wait(self.timeout, token).await;
            running.close();
            ending
        };
        let read = future::or(
            async {
                future::zip(out.fill(stdout), err.fill(stderr)).await;
            },
            async {
                let Err(_) = over.recv().await;
                Timer::after(self.grace).await;
            },
        );
        let (ending, ()) = future::zip(wait, read).await;
        let (stdout, stdout_truncated) = out.into_text(&self.secrets);
        let (stderr, stderr_truncated) = err.into_text(&self.secrets);
        let output = CommandOutput { stdout, stderr, stdout_truncated, stderr_truncated, ..ending.into() };
        CommandOutput { command: command.to_owned(), ..output }
    }
}

impl From<Ending> for CommandOutput {
    fn from(ending: Ending) -> Self {
        let error = |text: &str| Some(text.to_owned());
        match ending {
            Ending::Exited(Ok(status)) => {
                Self { exit_code: status.code(), signal: status.signal(), ..Self::default() }
            }
            // Somebody else reaped the shell: its end is known, its code is not.
            Ending::Exited(Err(_)) => {
                Self { error: error("unable to read command status"), ..Self::default() }
            }
            Ending::TimedOut => Self { timed_out: true, ..Self::default() },
            Ending::Canceled => Self { canceled: true, error: error("command canceled"), ..Self::default() },
        }
    }
}

/// A running shell. The group comes first: when a job is dropped, it dies before its leader is reaped
/// and the number can be given to somebody else.
struct Job {
    group: Group,
    child: Child,
}

impl Job {
    fn start(shell: &Shell, command: &str) -> io::Result<(Self, ChildStdout, ChildStderr)> {
        let group = Group::reserve().ok_or(io::ErrorKind::ResourceBusy)?;
        let mut child = prepared(shell, command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        group.started(child.id());
        match (child.stdout.take(), child.stderr.take()) {
            (Some(stdout), Some(stderr)) => Ok((Self { group, child }, stdout, stderr)),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Waits for the first ending and kills what is left of the group.
    async fn wait(&mut self, timeout: Duration, token: &CancelToken) -> Ending {
        let canceled = async {
            token.cancelled().await;
            Ending::Canceled
        };
        let exited = async { Ending::Exited(self.child.status().await) };
        let late = async {
            Timer::after(timeout).await;
            Ending::TimedOut
        };
        let ending = future::or(canceled, future::or(exited, late)).await;
        match ending {
            Ending::Exited(_) => self.group.kill(),
            Ending::TimedOut | Ending::Canceled => self.end().await,
        }
        ending
    }

    /// TERM, a moment to tidy up, KILL. The moment is over early only if nobody of the group is left.
    async fn end(&mut self) {
        self.group.terminate();
        let gone = async {
            let _ = self.child.status().await;
            if self.group.is_alive() {
                future::pending::<()>().await;
            }
        };
        future::or(gone, elapsed(TERM_GRACE)).await;
        self.group.kill();
        // A process stuck in the kernel dies late; the driver reaps it then.
        let reaped = async {
            let _ = self.child.status().await;
        };
        future::or(reaped, elapsed(REAP)).await;
    }
}

async fn elapsed(time: Duration) {
    Timer::after(time).await;
}

/// The shell's command line, directory, environment and session; stdio is set afterwards, since the
/// conversion to the asynchronous type would lose it.
fn prepared(shell: &Shell, command: &str) -> Command {
    let mut line = std::process::Command::new("/bin/sh");
    line.arg("-lc").arg(command).current_dir(&shell.cwd).env_remove(&shell.removed_env);
    in_new_session(&mut line);
    line.into()
}

/// Gives the child a session of its own: a group to kill, and no terminal to read keys from or to
/// write over our screen. On Linux it also dies with us, whatever ends us; its descendants may not.
/// "With us" is the thread that started it: only the main thread runs commands.
#[allow(unsafe_code)]
fn in_new_session(line: &mut std::process::Command) {
    #[cfg(target_os = "linux")]
    let parent = process::getpid();
    let enter = move || -> io::Result<()> {
        process::setsid()?;
        #[cfg(target_os = "linux")]
        {
            process::set_parent_process_death_signal(Some(process::Signal::KILL))?;
            // We may have died before the signal was set.
            if process::getppid() != Some(parent) {
                return Err(rustix::io::Errno::SRCH.into());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe work is allowed. `enter` makes three plain
    // system calls and compares two numbers; it allocates nothing, takes no lock, and an error is
    // built from its number alone.
    unsafe { line.pre_exec(enter) };
}
