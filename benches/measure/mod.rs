//! Runs one process to its end and says what it took.

use std::{
    io::{Read, Write},
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use nix::sys::resource::{UsageWho, getrusage};

/// What one run took.
pub struct Sample {
    pub wall_ms: f64,
    /// User and system time of the process and of what it waited for.
    pub cpu_ms: f64,
}

/// Runs `command` with `stdin`; its stdout is a pipe that is read and thrown away.
pub fn measure(mut command: Command, stdin: &str) -> Sample {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let (before, started) = (children_cpu_ms(), Instant::now());
    let mut child = command.spawn().expect("the program starts");
    let mut input = child.stdin.take().expect("a pipe");
    // A program that takes no input may be gone already.
    let _ = input.write_all(stdin.as_bytes());
    drop(input);
    let mut output = child.stdout.take().expect("a pipe");
    let drained = thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while output.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    child.wait().expect("its end");
    let wall_ms = started.elapsed().as_secs_f64() * 1000.0;
    drained.join().expect("the end of its output");
    Sample { wall_ms, cpu_ms: children_cpu_ms() - before }
}

fn children_cpu_ms() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("usage");
    let ms = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1000.0 + time.tv_usec() as f64 / 1000.0;
    ms(usage.user_time()) + ms(usage.system_time())
}

/// One program's figures.
pub struct Series {
    pub name: &'static str,
    figures: Vec<f64>,
}

impl Series {
    pub fn new(name: &'static str) -> Self {
        Self { name, figures: Vec::new() }
    }

    pub fn add(&mut self, figure: f64) {
        self.figures.push(figure);
        self.figures.sort_by(f64::total_cmp);
    }

    pub fn median(&self) -> f64 {
        self.figures[self.figures.len() / 2]
    }

    pub fn min(&self) -> f64 {
        self.figures[0]
    }

    pub fn max(&self) -> f64 {
        self.figures[self.figures.len() - 1]
    }
}
