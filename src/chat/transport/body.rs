//! A response body as a reader. It owns its connection: dropping it closes the socket, reading it to
//! its end puts the connection back. gzip is never asked for, but read if it comes anyway (quirk 21).

use std::{
    io::{self, Write},
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use flate2::write::MultiGzDecoder;
use futures_lite::{AsyncBufRead, AsyncRead};
use hyper::body::{Body as _, Incoming};

use super::{
    connection::{Connection, Pool},
    fault::engine_reason,
};

/// Compressed bytes taken at once, so that a bomb unfolds in pieces that the stream limit can stop.
const GZIP_STEP_BYTES: usize = 2048;

pub struct Body {
    /// A lock only because http-types wants `Sync`; it is never contended.
    incoming: Mutex<Wire>,
    gzip: Option<MultiGzDecoder<Vec<u8>>>,
    compressed: Bytes,
    chunk: Bytes,
}

struct Wire {
    body: Incoming,
    connection: Option<Connection>,
    pool: Pool,
    origin: String,
}

impl Body {
    pub fn new(body: Incoming, connection: Connection, pool: Pool, origin: String) -> Self {
        let incoming = Mutex::new(Wire { body, connection: Some(connection), pool, origin });
        Self { incoming, gzip: None, compressed: Bytes::new(), chunk: Bytes::new() }
    }

    pub fn unzip(mut self) -> Self {
        self.gzip = Some(MultiGzDecoder::new(Vec::new()));
        self
    }

    /// The next bytes; none at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let wire = self.incoming.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(gzip) = &mut self.gzip else { return wire.poll_data(cx) };
        loop {
            if self.compressed.is_empty() {
                self.compressed = ready!(wire.poll_data(cx))?;
                if self.compressed.is_empty() {
                    return Poll::Ready(Ok(Bytes::new()));
                }
            }
            let step = self.compressed.split_to(GZIP_STEP_BYTES.min(self.compressed.len()));
            gzip.write_all(&step)?;
            gzip.flush()?;
            let plain = std::mem::take(gzip.get_mut());
            if !plain.is_empty() {
                return Poll::Ready(Ok(plain.into()));
            }
        }
    }
}

impl Wire {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        loop {
            if let Poll::Ready(data) = self.poll_frame(cx) {
                return Poll::Ready(data);
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            };
            if connection.has_ended() {
                return Poll::Pending;
            }
            connection.poll_engine(cx);
            // The engine may have put data where the body finds it, without a wake-up for us.
            if !connection.has_ended() {
                return self.poll_frame(cx);
            }
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        loop {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Ok(data)),
                    _ => continue,
                },
                Some(Err(error)) => {
                    self.connection = None;
                    return Poll::Ready(Err(io::Error::other(engine_reason(&error))));
                }
                None => {
                    if let Some(connection) = self.connection.take() {
                        self.pool.put(&self.origin, connection, cx);
                    }
                    return Poll::Ready(Ok(Bytes::new()));
                }
            }
        }
    }
}

impl AsyncBufRead for Body {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let me = self.get_mut();
        if me.chunk.is_empty() {
            me.chunk = ready!(me.poll_chunk(cx))?;
        }
        Poll::Ready(Ok(&me.chunk))
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        self.get_mut().chunk.advance(amount);
    }
}

impl AsyncRead for Body {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        let chunk = ready!(self.as_mut().poll_fill_buf(cx))?;
        let length = chunk.len().min(out.len());
        out[..length].copy_from_slice(&chunk[..length]);
        self.consume(length);
        Poll::Ready(Ok(length))
    }
}
