//! Every ending a command can have, against a real `/bin/sh`.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use async_io::Timer;
use futures_lite::future;
use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};

use super::{
    CommandOutput, Shell,
    test_shell::{bounded, shell_in},
};
use crate::{
    cancel::{self, CancelReason},
    config::{Limit, Secret},
};

/// Long enough for a loaded machine, far below the 300 s that the sleepers below would take.
const SOON: Duration = Duration::from_secs(20);

fn run_in(shell: &Shell, command: &str) -> CommandOutput {
    let (_handle, token) = cancel::pair();
    let started = Instant::now();
    let output = bounded(shell.run(command, &token));
    assert!(started.elapsed() < SOON, "{command}: {:?}", started.elapsed());
    assert_eq!(output.command, command);
    output
}

fn run(command: &str) -> CommandOutput {
    run_in(&shell_in(Path::new("/")), command)
}

/// Runs `commands` side by side until their timeout, which leaves a loaded machine time to start them.
fn run_until_timeout(commands: &[&str]) -> Vec<CommandOutput> {
    let shell = Shell { timeout: Duration::from_secs(2), ..shell_in(Path::new("/")) };
    let (_handle, token) = cancel::pair();
    let executor = smol::LocalExecutor::new();
    let started = Instant::now();
    let tasks: Vec<_> = commands.iter().map(|command| executor.spawn(shell.run(command, &token))).collect();
    let outputs = bounded(executor.run(async {
        let mut outputs = Vec::new();
        for task in tasks {
            outputs.push(task.await);
        }
        outputs
    }));
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    outputs
}

/// Waits for the line in file `f` by which a command says that it runs.
async fn written(dir: &Path) {
    while !std::fs::read(dir.join("f")).is_ok_and(|line| line.ends_with(b"\n")) {
        Timer::after(Duration::from_millis(2)).await;
    }
}

/// That line, as if the command had ended with it.
fn written_output(dir: &Path) -> CommandOutput {
    let stdout = std::fs::read_to_string(dir.join("f")).unwrap();
    CommandOutput { stdout, ..CommandOutput::default() }
}

/// Asserts that no process of the group whose number `output` begins with runs any more.
#[track_caller]
fn check_group_gone(output: &CommandOutput) {
    let leader: i32 = output.stdout.lines().next().unwrap().parse().unwrap();
    let leader = Pid::from_raw(leader).unwrap();
    bounded(async {
        // A killed orphan is a zombie until init has reaped it.
        while test_kill_process_group(leader).is_ok() && !only_zombies(leader) {
            Timer::after(Duration::from_millis(2)).await;
        }
    });
}

/// Whether every process of the group is dead, as far as /proc can tell.
fn only_zombies(leader: Pid) -> bool {
    let group = leader.as_raw_nonzero().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let stats =
        processes.flatten().filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let running = |stat: &String| {
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        !matches!(fields.next(), Some("Z" | "X")) && fields.nth(1) == Some(&group)
    };
    !stats.into_iter().any(|stat| running(&stat))
}

#[test]
fn ordinary_endings() {
    for (command, exit_code, signal, stdout) in [
        ("echo hi", Some(0), None, "hi\n"),
        ("pwd; exit 7", Some(7), None, "/\n"),
        ("exit 255", Some(255), None, ""),
        ("no-such-program-anywhere", Some(127), None, ""),
        ("cat; echo read", Some(0), None, "read\n"),
        ("echo a; kill -KILL $$", None, Some(9), "a\n"),
        ("kill -TERM $$", None, Some(15), ""),
        ("printf 'a\\377b'", Some(0), None, "a\u{fffd}b"),
        ("yes | head -n 2", Some(0), None, "y\ny\n"),
        ("", Some(0), None, ""),
    ] {
        let output = run(command);
        assert_eq!((output.exit_code, output.signal), (exit_code, signal), "{command}");
        assert_eq!(output.stdout, stdout, "{command}");
        assert!(!output.timed_out && !output.canceled && output.error.is_none(), "{command}");
        assert!(!output.stdout_truncated && !output.stderr_truncated, "{command}");
    }
    assert!(run("echo problem >&2").stderr.ends_with("problem\n"));
}

#[test]
fn commands_that_cannot_start() {
    let gone = tempfile::tempdir().unwrap().path().to_owned();
    let root = Path::new("/");
    for (cwd, command) in
        [(gone.as_path(), "echo hi".to_owned()), (root, "echo \0".to_owned()), (root, "#".repeat(4 << 20))]
    {
        let output = run_in(&shell_in(cwd), &command);
        assert_eq!(output, CommandOutput::not_run(&command, "unable to start command"));
    }
}

#[test]
fn background_processes_die_with_the_shell() {
    for (command, said) in [
        ("echo $$; sleep 300 & echo started", "started"),
        ("echo $$; nohup sh -c 'sleep 300' & echo ok", "ok"),
        ("echo $$; (trap '' TERM HUP; sleep 300) & echo ok", "ok"),
        ("echo $$; sleep 300 & kill -STOP $!; echo ok", "ok"),
    ] {
        let output = run(command);
        assert_eq!(output.exit_code, Some(0), "{command}");
        assert!(output.stdout.contains(said), "{command}");
        check_group_gone(&output);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_an_escaped_process_holds_open_is_kept_and_marked() {
    let dir = tempfile::tempdir().unwrap();
    let command = "mkfifo f; setsid sh -c 'echo $$ >f; exec sleep 300' & read pid <f; echo $pid";
    let output = run_in(&shell_in(dir.path()), command);
    let escaped = Pid::from_raw(output.stdout.trim().parse().unwrap()).unwrap();
    kill_process(escaped, Signal::KILL).expect("it was still there");
    assert_eq!(output.exit_code, Some(0));
    assert!(output.stdout_truncated && output.stderr_truncated);
}

#[test]
fn a_timeout_ends_everything_and_keeps_the_output() {
    let outputs = run_until_timeout(&[
        "echo $$; sleep 300",
        "echo $$; kill -STOP $$",
        "echo $$; trap '' TERM; sleep 300 & sleep 300",
        "echo $$; trap '' TERM; sh -c 'kill -STOP $$' & wait; sleep 300",
        "echo $$; while :; do :; done",
        "echo $$; yes",
    ]);
    for output in outputs {
        assert!(output.timed_out && !output.canceled, "{output:?}");
        assert_eq!((output.exit_code, output.signal, &output.error), (None, None, &None));
        check_group_gone(&output);
    }
}

#[test]
fn a_timeout_lets_the_group_tidy_up() {
    // The shell is gone at the first TERM, its child takes a moment longer.
    for output in run_until_timeout(&[
        "echo $$; trap 'echo tidy; exit 0' TERM; sleep 300 & wait",
        "echo $$; sh -c 'trap \"sleep 0.01; echo tidy; exit\" TERM; sleep 300 & wait'; true",
    ]) {
        assert!(output.timed_out && output.stdout.ends_with("tidy\n"), "{output:?}");
        check_group_gone(&output);
    }
}

#[test]
fn a_cancel_ends_everything_and_keeps_the_output() {
    for command in ["echo $$ | tee f; sleep 300", "echo $$ | tee f; trap '' TERM; sleep 300 & sleep 300"] {
        let dir = tempfile::tempdir().unwrap();
        let shell = shell_in(dir.path());
        let (handle, token) = cancel::pair();
        let cancel = async {
            written(dir.path()).await;
            handle.cancel(CancelReason::User);
        };
        let (output, ()) = bounded(future::zip(shell.run(command, &token), cancel));
        assert!(output.canceled && !output.timed_out, "{command}");
        assert_eq!(output.error.as_deref(), Some("command canceled"));
        assert_eq!((output.exit_code, output.signal), (None, None));
        check_group_gone(&output);
    }
}

#[test]
fn a_cancelled_token_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, token) = cancel::pair();
    handle.cancel(CancelReason::User);
    let output = bounded(shell_in(dir.path()).run("touch f", &token));
    assert_eq!(output, CommandOutput::canceled_before_execution(Some("touch f")));
    assert!(!dir.path().join("f").exists());
}

#[test]
fn a_dropped_run_kills_the_group() {
    let dir = tempfile::tempdir().unwrap();
    let shell = shell_in(dir.path());
    let (_handle, token) = cancel::pair();
    let run = async {
        shell.run("trap '' TERM; echo $$ >f; sleep 300 & sleep 300", &token).await;
    };
    bounded(future::or(written(dir.path()), run));
    check_group_gone(&written_output(dir.path()));
}

#[cfg(target_os = "linux")]
#[test]
fn the_shell_dies_with_the_thread_that_started_it() {
    let dir = tempfile::tempdir().unwrap();
    let shell = shell_in(dir.path());
    let started = dir.path().to_owned();
    let thread = std::thread::spawn(move || {
        let (handle, token) = cancel::pair();
        let mut run = Box::pin(async move {
            shell.run("echo $$ >f; exec sleep 300", &token).await;
        });
        bounded(future::or(written(&started), run.as_mut()));
        // As after a SIGKILL: nobody tidies up.
        std::mem::forget((run, handle));
    });
    thread.join().unwrap();
    check_group_gone(&written_output(dir.path()));
}

#[test]
fn output_past_the_limit_is_drained_and_a_torn_secret_dropped() {
    let secret = "sk-0123456789";
    // The secret begins 4 bytes before the limit, on both streams.
    let command = "printf '%65532s' ''; printf 'sk-0123456789%36864s' ''; echo done >&2";
    let shell = Shell { secrets: vec![Secret::new(secret)], ..shell_in(Path::new("/")) };
    let output = run_in(&shell, command);
    assert_eq!(output.exit_code, Some(0));
    assert_eq!((output.stdout.len(), output.stdout_truncated), (65_532, true));
    assert!(output.stderr.ends_with("done\n") && !output.stderr_truncated);
}

#[test]
fn a_flood_on_both_streams_is_drained() {
    let shell = Shell { capture: Limit { max: 10, setting: "capture_kib" }, ..shell_in(Path::new("/")) };
    let output = run_in(&shell, "exec 2>&1; yes | head -c 20000000 | tee /dev/stderr");
    assert_eq!((output.exit_code, output.stdout.as_str()), (Some(0), "y\ny\ny\ny\ny\n"));
    assert!(output.stdout_truncated);
    let output = run_in(&shell, "yes e | head -c 9000000 >&2 & yes | head -c 9000000; wait");
    assert_eq!((output.stdout.len(), output.stderr.len()), (10, 10));
    assert!(output.stdout_truncated && output.stderr_truncated);
}

#[test]
fn one_variable_is_removed_and_the_others_are_inherited() {
    // Cargo sets both for a test.
    let output = run("echo ${CARGO_PKG_NAME-removed} $CARGO_PKG_VERSION");
    assert_eq!(output.stdout, concat!("removed ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_command_has_a_session_of_its_own_and_no_terminal() {
    assert_eq!(run("(read x </dev/tty) 2>/dev/null || echo none").stdout, "none\n");
    #[cfg(target_os = "linux")]
    assert_eq!(run("test $(cut -d' ' -f6 /proc/$$/stat) = $$ && echo own").stdout, "own\n");
}
