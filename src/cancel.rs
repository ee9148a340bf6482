//! Cancellation as a future: a channel that carries nothing and closes.
//!
//! One fresh pair per prompt. The handle stays with whoever may say stop (keys, signals, a cancel
//! record); the token travels with the work. Nothing polls a flag. Everybody may import this module.

use std::{cell::Cell, convert::Infallible, future::Future, rc::Rc};

use async_channel::{Receiver, Sender, bounded};
use futures_lite::future;

/// Why a turn was told to stop. Decides the `reason` in records and events (contract section 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// The person: Esc, SIGINT or a `{"type":"cancel"}` record.
    User,
    /// SIGTERM or SIGHUP.
    Terminated,
    /// Whoever read our events went away.
    OutputClosed,
}

/// The side that says stop. Dropping it stops the work, too.
#[derive(Debug)]
pub struct CancelHandle {
    open: Sender<Infallible>,
    reason: Rc<Cell<Option<CancelReason>>>,
}

/// The side that hears it. Cheap to clone; all clones hear the same word.
#[derive(Clone, Debug)]
pub struct CancelToken {
    closed: Receiver<Infallible>,
    reason: Rc<Cell<Option<CancelReason>>>,
}

/// A connected handle and token.
pub fn pair() -> (CancelHandle, CancelToken) {
    let (open, closed) = bounded(1);
    let reason = Rc::new(Cell::new(None));
    (CancelHandle { open, reason: reason.clone() }, CancelToken { closed, reason })
}

impl CancelHandle {
    /// Says stop. The first reason given stays.
    pub fn cancel(&self, reason: CancelReason) {
        if self.reason.get().is_none() {
            self.reason.set(Some(reason));
        }
        self.open.close();
    }

    /// Whether anybody still holds a token of this handle.
    pub fn is_heard(&self) -> bool {
        self.open.receiver_count() > 0
    }
}

impl CancelToken {
    /// The reason, once stop was said.
    pub fn reason(&self) -> Option<CancelReason> {
        self.closed.is_closed().then(|| self.reason.get().unwrap_or(CancelReason::User))
    }

    /// Resolves when stop is said, at once if it was.
    pub async fn cancelled(&self) -> CancelReason {
        let Err(_) = self.closed.recv().await;
        self.reason.get().unwrap_or(CancelReason::User)
    }

    /// Races `work` against the stop; the stop wins a tie. `work` is dropped when it loses, so it
    /// may only read or wait: what has to tidy up takes the token and returns a value instead.
    pub async fn or<T>(&self, work: impl Future<Output = T>) -> Result<T, CancelReason> {
        future::or(async { Err(self.cancelled().await) }, async { Ok(work.await) }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smol::block_on;

    #[test]
    fn cancel_wins_a_tie_and_the_first_reason_stays() {
        let (handle, token) = pair();
        handle.cancel(CancelReason::Terminated);
        handle.cancel(CancelReason::User);
        assert_eq!(block_on(token.or(async { 1 })), Err(CancelReason::Terminated));
        assert_eq!(token.reason(), Some(CancelReason::Terminated));
    }

    #[test]
    fn work_finishes_while_nobody_says_stop() {
        let (_handle, token) = pair();
        assert_eq!(block_on(token.or(async { 1 })), Ok(1));
        assert_eq!(token.reason(), None);
    }

    #[test]
    fn a_dropped_handle_stops_the_work() {
        let (handle, token) = pair();
        drop(handle);
        assert_eq!(block_on(token.or(future::pending::<()>())), Err(CancelReason::User));
    }
}
