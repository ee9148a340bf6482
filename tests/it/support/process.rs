//! What Linux tells about a process from outside.

use std::{fs, path::PathBuf};

fn proc(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Names of its threads.
pub fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(proc(pid).join("task")).into_iter().flatten().flatten();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim_end().to_string()).collect()
}

/// Its resident memory.
pub fn rss_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(proc(pid).join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Its direct children.
pub fn children(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|child| parent(*child) == Some(pid)).collect()
}

/// Whether it is there and not just waiting to be reaped.
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.1.parse().ok()
}

/// State and parent: the two fields after the name, which may itself hold spaces and parentheses.
fn stat(pid: u32) -> Option<(String, String)> {
    let stat = fs::read_to_string(proc(pid).join("stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.into(), fields.next()?.into()))
}
