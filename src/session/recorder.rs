//! The one way out of a session: redact, log, fold into history, hand to the front.
//!
//! A fact is in the log before anyone sees it. The bus is bounded and awaited, so a slow reader slows
//! the turn, and through it the provider's socket, instead of filling memory.

use std::rc::Rc;

use async_channel::{Receiver, Sender, bounded};

use super::{
    event::{Event, Progress},
    history::History,
    log::{Log, LogError},
    lucy_log,
    record::Record,
    redact::{Redactor, SafeEvent},
};
use crate::{
    cancel::{CancelReason, CancelToken},
    chat::message::Message,
};

/// Events that wait for a front before the turn does.
const BUS_EVENTS: usize = 256;

/// What travels to a front.
#[derive(Debug)]
pub enum Delivery {
    Event(SafeEvent),
    /// Everything before this was for the reader's eyes: answer once it is written.
    Settle(Sender<()>),
}

#[derive(Debug)]
pub struct Recorder {
    redactor: Redactor,
    log: Log,
    history: History,
    bus: Sender<Delivery>,
    /// Reused for each line.
    line: Vec<u8>,
}

impl Recorder {
    /// A recorder and the end of its bus that a front drains until it closes.
    pub fn new(redactor: Redactor, log: Log, history: History) -> (Self, Receiver<Delivery>) {
        let (bus, events) = bounded(BUS_EVENTS);
        (Self { redactor, log, history, bus, line: Vec::new() }, events)
    }

    /// Logs a fact and shows it. The log comes first, whatever the front does; an `Err` was not shown.
    pub async fn fact(&mut self, record: Record) -> Result<(), LogError> {
        for safe in self.clean(Event::Fact(record)) {
            if let Event::Fact(record) = safe.get() {
                self.line.clear();
                if lucy_log::encode(record, super::unix_ms(), &mut self.line) {
                    if self.redactor.finds_secret(&self.line) {
                        return Err(LogError::Rejected);
                    }
                    self.log.append(&self.line)?;
                }
                self.history.apply(record);
            }
            self.send(safe).await;
        }
        Ok(())
    }

    /// Shows what is not kept. Gives up when the turn is cancelled, or when nobody reads any more.
    pub async fn progress(&mut self, progress: Progress, token: &CancelToken) -> Result<(), CancelReason> {
        for safe in self.clean(Event::Progress(progress)) {
            match token.or(self.bus.send(Delivery::Event(safe))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(CancelReason::OutputClosed),
                Err(reason) => return Err(reason),
            }
        }
        Ok(())
    }

    /// Shows what belongs to no turn.
    pub async fn say(&mut self, progress: Progress) {
        for safe in self.clean(Event::Progress(progress)) {
            self.send(safe).await;
        }
    }

    /// Waits until the front has written all it was given. `Err` when it has gone: then nothing more
    /// may be started on behalf of a reader who is not there.
    pub async fn settled(&self) -> Result<(), CancelReason> {
        let (written, wait) = bounded(1);
        let gone = |_| CancelReason::OutputClosed;
        self.bus.send(Delivery::Settle(written)).await.map_err(gone)?;
        wait.recv().await.map_err(|_| CancelReason::OutputClosed)
    }

    /// Makes all facts so far survive a loss of power.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.log.sync()
    }

    /// Whether the front has gone.
    pub fn is_unread(&self) -> bool {
        self.bus.is_closed()
    }

    /// The conversation for the next request.
    pub fn messages(&mut self) -> Rc<Vec<Message>> {
        self.history.messages()
    }

    fn clean(&mut self, event: Event) -> Vec<SafeEvent> {
        let mut safe = Vec::with_capacity(1);
        self.redactor.clean(event, |event| safe.push(event));
        safe
    }

    /// A front that has gone misses the event; the log has it.
    async fn send(&self, safe: SafeEvent) {
        let _ = self.bus.send(Delivery::Event(safe)).await;
    }
}
