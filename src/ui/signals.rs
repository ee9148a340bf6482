//! SIGINT, SIGTERM and SIGHUP: the first ends the turn and the run in order, a second ends everything.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io, process,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_signal::{Signal, Signals};
use futures_lite::StreamExt;
use signal_hook::flag;

use super::exit::Exit;
use crate::{
    cancel::{self, CancelHandle, CancelReason, CancelToken},
    shell,
};

const WATCHED: [Signal; 3] = [Signal::Int, Signal::Term, Signal::Hup];

/// The turns that can be told to stop, oldest first, and the run itself.
pub struct Stopper {
    turns: RefCell<VecDeque<CancelHandle>>,
    run: CancelHandle,
    exit: Cell<Option<Exit>>,
}

impl Stopper {
    /// A stopper and the token that hears the end of the run.
    pub fn new() -> (Rc<Self>, CancelToken) {
        let (run, shutdown) = cancel::pair();
        (Rc::new(Self { turns: RefCell::default(), run, exit: Cell::new(None) }), shutdown)
    }

    /// The token for the turn of a message that was just read.
    pub fn new_turn(&self) -> CancelToken {
        let (handle, token) = cancel::pair();
        let mut turns = self.turns.borrow_mut();
        turns.retain(CancelHandle::is_heard);
        turns.push_back(handle);
        token
    }

    /// Stops the turn that runs, or the next one to run. Does nothing when there is none.
    pub fn cancel_turn(&self, reason: CancelReason) {
        let mut turns = self.turns.borrow_mut();
        turns.retain(CancelHandle::is_heard);
        if let Some(turn) = turns.front() {
            turn.cancel(reason);
        }
    }

    /// Stops the turn that runs and takes no other.
    pub fn end_run(&self, reason: CancelReason) {
        self.cancel_turn(reason);
        self.run.cancel(reason);
    }

    /// The exit code of the signal that ended the run.
    pub fn exit(&self) -> Option<Exit> {
        self.exit.get()
    }
}

/// Watches for signals until the run is over.
///
/// Signals are handled on the executor. Should its thread be blocked, the signal library itself ends
/// the process on the second one: a handler raises `unheard` and `watch` lowers it again, so it
/// stays up only while nobody listens.
pub fn watch(stopper: Rc<Stopper>) -> io::Result<impl Future<Output = ()>> {
    let unheard = Arc::new(AtomicBool::new(false));
    for signal in WATCHED {
        let code = i32::from(Exit::on_signal(signal).code());
        flag::register_conditional_shutdown(signal as i32, code, unheard.clone())?;
        flag::register(signal as i32, unheard.clone())?;
    }
    // With a handler of ours, a file that outgrows `ulimit -f` is a write that fails, not a death.
    flag::register(rustix::process::Signal::XFSZ.as_raw(), Arc::default())?;
    let mut signals = Signals::new(WATCHED)?;
    Ok(async move {
        while let Some(Ok(signal)) = signals.next().await {
            unheard.store(false, Ordering::SeqCst);
            let exit = Exit::on_signal(signal);
            if stopper.exit.get().is_some() {
                shell::kill_all();
                process::exit(i32::from(exit.code()));
            }
            stopper.exit.set(Some(exit));
            let by_person = signal == Signal::Int;
            stopper.end_run(if by_person { CancelReason::User } else { CancelReason::Terminated });
        }
    })
}
