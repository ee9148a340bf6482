//! Input records from stdin: read ahead in order while turns run, within a bound of bytes.
//!
//! `records` splits and parses; here is the descriptor and the queue. A cancel record acts when it is
//! read, everything else when its turn comes (contract sections 0 and 4).

mod records;

use std::{cell::Cell, fs::File, io, rc::Rc};

use async_channel::{Receiver, Sender, bounded, unbounded};
use async_io::Async;

use self::records::{Line, Parsed, Splitter, parse};
use super::signals::Stopper;
use crate::{cancel::CancelReason, config::Limit, session::Input};

const READ_BYTES: usize = 64 * 1024;
/// What a record costs in the queue beside its bytes, so that empty ones are bounded, too.
const RECORD_OVERHEAD: usize = 64;

/// An input and its share of the read-ahead bound.
pub type Queued = (Input, Permit);

/// A queue for inputs. It holds any number of records, but its reader stops at `limit` bytes.
pub fn queue() -> (Sender<Queued>, Receiver<Queued>) {
    unbounded()
}

/// Reads stdin to its end. Returns early, without error, when nobody takes inputs any more.
pub async fn read(inputs: Sender<Queued>, stopper: Rc<Stopper>, limit: Limit) -> io::Result<()> {
    let stdin = Stdin::open()?;
    let budget = Budget::new(limit.max);
    let mut splitter = Splitter::new(limit.max);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = stdin.read(&mut buffer).await?;
        if count > 0 {
            splitter.push(&buffer[..count]);
        } else {
            splitter.finish();
        }
        while let Some(line) = splitter.next() {
            let (bytes, parsed) = match line {
                Line::Record(bytes) => (bytes.len(), parse(&bytes)),
                Line::TooLong => (0, Parsed::Malformed(too_long(limit))),
            };
            let input = match parsed {
                Parsed::Message(text) => Input::Message { text, token: stopper.new_turn() },
                Parsed::Malformed(message) => Input::Malformed { message },
                Parsed::Cancel => {
                    stopper.cancel_turn(CancelReason::User);
                    continue;
                }
                Parsed::Blank => continue,
            };
            let permit = budget.take(bytes + RECORD_OVERHEAD).await;
            if inputs.send((input, permit)).await.is_err() {
                return Ok(());
            }
        }
        if count == 0 {
            return Ok(());
        }
    }
}

fn too_long(limit: Limit) -> String {
    format!("input record exceeded {} MiB (setting: [limits] {})", limit.max / (1024 * 1024), limit.setting)
}

/// Standard input without a thread: waits until it is readable, then reads what is there.
struct Stdin {
    file: File,
    /// Absent for a regular file or /dev/null, which never make a reader wait.
    waiter: Option<Async<File>>,
}

impl Stdin {
    fn open() -> io::Result<Self> {
        let file = File::from(rustix::stdio::stdin().try_clone_to_owned()?);
        let waiter = Async::new_nonblocking(file.try_clone()?).ok();
        Ok(Self { file, waiter })
    }

    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(waiter) = &self.waiter {
                waiter.readable().await?;
            }
            match rustix::io::read(&self.file, &mut *buffer) {
                Ok(count) => return Ok(count),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Bytes that may wait in the queue.
struct Budget {
    max: usize,
    used: Cell<usize>,
    freed: (Sender<()>, Receiver<()>),
}

/// A record's share of the budget, given back when the record is taken.
pub struct Permit {
    budget: Rc<Budget>,
    bytes: usize,
}

impl Budget {
    fn new(max: usize) -> Rc<Self> {
        Rc::new(Self { max, used: Cell::new(0), freed: bounded(1) })
    }

    /// Waits for room. A record larger than all of it gets in once the queue is empty.
    async fn take(self: &Rc<Self>, bytes: usize) -> Permit {
        while self.used.get() > 0 && self.used.get() + bytes > self.max {
            // Both ends live in this budget, so the channel never closes.
            let _ = self.freed.1.recv().await;
        }
        self.used.set(self.used.get() + bytes);
        Permit { budget: self.clone(), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - self.bytes);
        // A full channel already holds a wake-up.
        let _ = self.budget.freed.0.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_waits_for_room() {
        smol::block_on(async {
            let budget = Budget::new(10);
            let big = budget.take(50).await;
            assert!(futures_lite::future::poll_once(budget.take(1)).await.is_none());
            drop(big);
            let _small = budget.take(1).await;
        });
    }
}
