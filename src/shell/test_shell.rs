//! What tests of this room and of `tools` share: a shell in a given place, an executor with the
//! process driver, and an end to every wait.

use std::{future::Future, path::Path, time::Duration};

use async_io::Timer;
use futures_lite::future;

use super::Shell;
use crate::config::Limits;

/// A shell with the published bounds.
pub fn shell_in(cwd: &Path) -> Shell {
    let limits = Limits::default();
    Shell {
        cwd: cwd.to_owned(),
        removed_env: "CARGO_PKG_NAME".into(),
        timeout: limits.command_timeout,
        grace: limits.capture_grace,
        capture: limits.capture,
        secrets: Vec::new(),
    }
}

/// Runs `work` beside the process driver, which comes first: without one, the first spawn starts a
/// thread; panics when it takes a minute.
pub fn bounded<T>(work: impl Future<Output = T>) -> T {
    let driver = async { match async_process::driver().await {} };
    let late = async {
        Timer::after(Duration::from_secs(60)).await;
        panic!("the command did not end");
    };
    smol::block_on(future::or(driver, future::or(work, late)))
}
