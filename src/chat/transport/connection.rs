//! An HTTP/1.1 connection that nobody spawns, and the few idle ones kept for the next request.
//!
//! hyper's engine is polled by whoever waits for the answer, so dropping the waiter closes the socket.

use std::{
    collections::HashMap,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_lite::{AsyncRead, AsyncWrite};
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};

use super::{
    connect::{Duplex, Link, PlainProxy},
    fault::{Fault, FaultKind, engine_reason},
};

const READ_BYTES: usize = 16 * 1024;
const IDLE_MAX: Duration = Duration::from_secs(60);
const IDLE_PER_HOST_MAX: usize = 4;

/// Gives futures-io streams to hyper, through a buffer of its own since hyper's may be uninitialised.
pub struct Io {
    stream: Box<dyn Duplex>,
    buffer: Box<[u8]>,
}

impl hyper::rt::Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        let length = out.remaining().min(me.buffer.len());
        let read = ready!(Pin::new(&mut me.stream).poll_read(cx, &mut me.buffer[..length]))?;
        out.put_slice(&me.buffer[..read]);
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

/// An open connection.
pub struct Connection {
    pub sender: SendRequest<Full<Bytes>>,
    engine: http1::Connection<Io, Full<Bytes>>,
    /// The engine has ended and must not be polled again.
    ended: bool,
    pub plain_proxy: Option<PlainProxy>,
    idle_since: Instant,
}

impl Connection {
    pub async fn over(link: Link) -> Result<Self, Fault> {
        let io = Io { stream: link.stream, buffer: vec![0; READ_BYTES].into() };
        let (sender, engine) = http1::Builder::new()
            .max_buf_size(4 * READ_BYTES)
            .handshake(io)
            .await
            .map_err(|error| Fault::new(FaultKind::Broken, engine_reason(&error)))?;
        Ok(Self { sender, engine, ended: false, plain_proxy: link.plain_proxy, idle_since: Instant::now() })
    }

    /// Lets the engine work. Its own errors are dropped: body and answer report them.
    pub fn poll_engine(&mut self, cx: &mut Context<'_>) {
        if !self.ended {
            self.ended = Pin::new(&mut self.engine).poll(cx).is_ready();
        }
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    fn is_reusable(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_engine(cx);
        !self.ended && self.sender.is_ready()
    }
}

/// Idle connections by origin.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<HashMap<String, Vec<Connection>>>>);

impl Pool {
    /// The youngest one that still lives, as far as can be seen from here.
    pub fn take(&self, origin: &str) -> Option<Connection> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = all.get_mut(origin)?;
        while let Some(mut connection) = idle.pop() {
            if connection.idle_since.elapsed() < IDLE_MAX && connection.is_reusable(&mut cx) {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose answer was read to its end.
    pub fn put(&self, origin: &str, mut connection: Connection, cx: &mut Context<'_>) {
        if !connection.is_reusable(cx) {
            return;
        }
        connection.idle_since = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = all.entry(origin.to_owned()).or_default();
        if idle.len() < IDLE_PER_HOST_MAX {
            idle.push(connection);
        }
    }
}
