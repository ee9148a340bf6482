//! Standard output: written on the executor's thread, never blocking it.
//!
//! O_NONBLOCK belongs to the open file, which other processes share, so it is never set. A pipe that
//! polls writable takes 4,096 bytes without blocking; more is never written at once.

use std::{fs::File, io, os::fd::AsFd, time::Duration};

use async_io::{Async, Timer};
use futures_lite::future;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cancel::CancelToken;

/// PIPE_BUF on Linux, and more than macOS promises to take when it polls writable.
const WRITE_BYTES_MAX: usize = 4096;
/// How long a reader may take for the last lines once the program was told to end.
const LAST_LINES: Duration = Duration::from_millis(100);

pub struct Out {
    file: File,
    /// Made when a write first has to wait. A regular file never does, and could not be registered.
    waiter: Option<Async<File>>,
    shutdown: CancelToken,
    /// Runs from the first wait after the shutdown was said.
    deadline: Option<Timer>,
}

impl Out {
    /// Standard output. After `shutdown` is said, writes that wait get 100 ms in all.
    pub fn stdout(shutdown: CancelToken) -> io::Result<Self> {
        let file = File::from(rustix::stdio::stdout().try_clone_to_owned()?);
        Ok(Self { file, waiter: None, shutdown, deadline: None })
    }

    /// Whether the program is ending and the reader does not keep up.
    pub fn is_pressed(&self) -> bool {
        self.deadline.is_some()
    }

    /// Writes all of `bytes`. `TimedOut` when the reader missed its last chance; then the last line
    /// may be cut.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if !self.is_writable()? {
                self.wait().await?;
                continue;
            }
            match rustix::io::write(&self.file, &bytes[..bytes.len().min(WRITE_BYTES_MAX)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(rustix::io::Errno::INTR) => {}
                // Somebody else made the file non-blocking: wait as for a full one.
                Err(rustix::io::Errno::AGAIN) => self.wait().await?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// True also when a write would fail: the write then says how.
    fn is_writable(&self) -> io::Result<bool> {
        let mut fds = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::OUT)];
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn wait(&mut self) -> io::Result<()> {
        if self.waiter.is_none() {
            self.waiter = Some(Async::new_nonblocking(self.file.try_clone()?)?);
        }
        let Some(waiter) = &self.waiter else { return Ok(()) };
        if self.deadline.is_none() {
            match self.shutdown.or(waiter.writable()).await {
                Ok(writable) => return writable,
                Err(_) => self.deadline = Some(Timer::after(LAST_LINES)),
            }
        }
        let Some(deadline) = &mut self.deadline else { return Ok(()) };
        let too_late = async {
            deadline.await;
            Err(io::ErrorKind::TimedOut.into())
        };
        future::or(waiter.writable(), too_late).await
    }
}
