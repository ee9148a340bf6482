//! The process groups of running commands, and how they die.
//!
//! Each group stands in a static table from before its shell starts until it was killed, so that the
//! panic hook and a second signal can kill every one of them without any other state. The table is
//! atomics alone: [`kill_all`] takes no lock and allocates nothing. Knows nothing of pipes or results.

use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// Commands run one after the other; the room is for sessions side by side, and for parallel tests.
const SLOTS: usize = 64;
const FREE: i32 = 0;
const RESERVED: i32 = -1;

static LIVE: Table = Table::new();

/// Kills every live group at once. Safe to call in a signal handler and in the panic hook.
pub fn kill_all() {
    LIVE.kill_all();
}

/// One group and its place in the table. Dropping it kills the group.
#[derive(Debug)]
pub struct Group {
    slot: &'static AtomicI32,
}

impl Group {
    /// Takes a place for a group that is about to start; `None` when the table is full.
    pub fn reserve() -> Option<Self> {
        LIVE.reserve()
    }

    /// The group runs, led by process `leader`.
    pub fn started(&self, leader: u32) {
        self.slot.store(leader as i32, Ordering::SeqCst);
    }

    /// Whether a process of it is left.
    pub fn is_alive(&self) -> bool {
        self.leader().is_some_and(|leader| test_kill_process_group(leader).is_ok())
    }

    /// Asks the group to end.
    pub fn terminate(&self) {
        if let Some(leader) = self.leader() {
            let _ = kill_process_group(leader, Signal::TERM);
        }
    }

    /// Ends the group, also one that is stopped or has lost its leader. Only once: afterwards the
    /// number may belong to somebody else.
    pub fn kill(&self) {
        kill_slot(self.slot);
        self.slot.store(RESERVED, Ordering::SeqCst);
    }

    fn leader(&self) -> Option<Pid> {
        leader_in(self.slot)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        self.slot.store(FREE, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct Table {
    slots: [AtomicI32; SLOTS],
}

impl Table {
    const fn new() -> Self {
        Self { slots: [const { AtomicI32::new(FREE) }; SLOTS] }
    }

    fn reserve(&'static self) -> Option<Group> {
        let taken = |slot: &&AtomicI32| {
            slot.compare_exchange(FREE, RESERVED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        self.slots.iter().find(taken).map(|slot| Group { slot })
    }

    fn kill_all(&self) {
        self.slots.iter().for_each(kill_slot);
    }
}

fn kill_slot(slot: &AtomicI32) {
    if let Some(leader) = leader_in(slot) {
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

/// Never 1 or less: those would address init's group, our own, or every process there is.
fn leader_in(slot: &AtomicI32) -> Option<Pid> {
    Some(slot.load(Ordering::SeqCst)).filter(|&leader| leader > 1).and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt, process::Command};

    use super::*;

    /// A group of its own that would outlive every test.
    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("300").process_group(0).spawn().unwrap()
    }

    #[test]
    fn kill_all_ends_every_group_and_the_table_stays_usable() {
        static TABLE: Table = Table::new();
        let mut children = [sleeper(), sleeper()];
        let groups = children.each_ref().map(|child| {
            let group = TABLE.reserve().unwrap();
            group.started(child.id());
            group
        });
        TABLE.kill_all();
        for child in &mut children {
            assert!(!child.wait().unwrap().success());
        }
        drop(groups);
        assert!(TABLE.slots.iter().all(|slot| slot.load(Ordering::SeqCst) == FREE));
    }

    #[test]
    fn a_dropped_group_is_killed() {
        static TABLE: Table = Table::new();
        let mut child = sleeper();
        let group = TABLE.reserve().unwrap();
        group.started(child.id());
        assert!(group.is_alive());
        drop(group);
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn a_full_table_has_no_place_until_one_is_freed() {
        static TABLE: Table = Table::new();
        let mut groups: Vec<_> = (0..SLOTS).map(|_| TABLE.reserve().unwrap()).collect();
        assert!(TABLE.reserve().is_none());
        groups.pop();
        assert!(TABLE.reserve().is_some());
    }

    #[test]
    fn a_place_without_a_process_signals_nobody() {
        static TABLE: Table = Table::new();
        let group = TABLE.reserve().unwrap();
        group.terminate();
        group.kill();
        assert!(!group.is_alive());
        for leader in [0, 1, u32::MAX] {
            group.started(leader);
            assert_eq!(group.leader(), None);
        }
    }
}
