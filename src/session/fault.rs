//! Places where a test can make things go wrong, in builds with the feature `fault-injection` alone.
//!
//! In every other build these functions are empty, and no environment variable is looked at.

use std::io;

/// Before a line is appended to a session file. `LUCY_FAULT_APPEND=N-M` makes the N-th to the M-th append
/// of the process fail as on a full disk, counted from 1.
#[cfg(feature = "fault-injection")]
pub fn before_append() -> io::Result<()> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = 1 + COUNT.fetch_add(1, Ordering::Relaxed);
    let Ok(range) = std::env::var("LUCY_FAULT_APPEND") else { return Ok(()) };
    let (first, last) = range.split_once('-').expect("LUCY_FAULT_APPEND is N-M");
    let failing = first.parse().expect("a number")..=last.parse().expect("a number");
    if failing.contains(&count) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
}

/// Before a tool runs. `LUCY_FAULT_PANIC` makes this a bug whose message holds the variable's value.
#[cfg(feature = "fault-injection")]
pub fn before_tool() {
    if let Ok(message) = std::env::var("LUCY_FAULT_PANIC") {
        panic!("injected fault: {message}");
    }
}

#[cfg(not(feature = "fault-injection"))]
pub fn before_append() -> io::Result<()> {
    Ok(())
}

#[cfg(not(feature = "fault-injection"))]
pub fn before_tool() {}
