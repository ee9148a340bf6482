//! Writing one scripted reply to a raw connection.
//!
//! Items are written one by one while the script has gaps between them, and gathered into large
//! writes when it has none, so that 200,000 tiny items cost a few hundred system calls. Nothing is
//! repaired: what a script breaks, the client gets broken.

use std::{future::Future, io, io::Write, net::Shutdown, time::Duration};

use flate2::{Compression, write::GzEncoder};
use futures_lite::future;
use smol::{
    Timer,
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    request::Request,
    script::{Chunk, EncodeWhen, Framing, Reply},
    template::Filler,
};

/// How much is gathered before a write.
const WRITE_BYTES: usize = 64 * 1024;
/// How long a closing client may take to answer our end of the connection.
const FIN_WAIT: Duration = Duration::from_secs(2);
/// A reset shortly after data would take the data with it.
const RST_DELAY: Duration = Duration::from_millis(50);

/// How a reply ended.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub bytes: u64,
    pub keep_alive: bool,
    pub note: Option<String>,
}

/// Writes `reply` and says how that went. A client that leaves is a result, not an error.
pub(super) async fn send(stream: &mut TcpStream, reply: &Reply, request: &Request, port: u16) -> Sent {
    pause(reply.pre_ms).await;
    let mut writer = Writer {
        stream,
        filler: Filler { port, request },
        reply,
        buf: Vec::new(),
        sent: 0,
        chunked: reply.framing == Framing::Chunked && reply.status != 0,
        gzip: gzip_for(reply, request),
    };
    let end = writer.write_reply().await;
    let bytes = writer.sent;
    match end {
        Ok(End::KeepAlive) => Sent { bytes, keep_alive: true, note: None },
        Ok(End::Closed(note)) => Sent { bytes, keep_alive: false, note: note.map(str::to_string) },
        Err(error) => Sent { bytes, keep_alive: false, note: Some(format!("client gone: {error}")) },
    }
}

enum End {
    KeepAlive,
    Closed(Option<&'static str>),
}

struct Writer<'a> {
    stream: &'a mut TcpStream,
    filler: Filler<'a>,
    reply: &'a Reply,
    buf: Vec<u8>,
    sent: u64,
    chunked: bool,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl Writer<'_> {
    async fn write_reply(&mut self) -> io::Result<End> {
        let reply = self.reply;
        let whole = match reply.framing {
            Framing::Length if self.gzip.is_some() => Some(self.compressed_whole()?),
            _ => None,
        };
        if reply.status != 0 && reply.framing != Framing::Raw {
            self.write_head(whole.as_ref().map(|body| body.len() as u64));
        }
        match whole {
            Some(body) => self.put(&body).await?,
            None => {
                if let Some(end) = self.write_items().await? {
                    return Ok(end);
                }
            }
        }
        self.write_end().await?;
        if matches!(reply.framing, Framing::Close | Framing::Raw) || reply.status == 0 || reply.close {
            self.fin().await;
            return Ok(End::Closed(None));
        }
        Ok(End::KeepAlive)
    }

    fn write_head(&mut self, whole_bytes: Option<u64>) {
        let reply = self.reply;
        let reason = reply.reason.as_deref().unwrap_or_else(|| reason_of(reply.status));
        let mut head = format!("HTTP/{} {} {reason}\r\n", reply.version, reply.status);
        if !reply.headers.0.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            let kind = if reply.status == 200 { "text/event-stream" } else { "application/json" };
            head += &format!("Content-Type: {kind}\r\n");
        }
        for (name, values) in &reply.headers.0 {
            for value in values {
                head += &format!("{name}: {}\r\n", self.filler.fill(value));
            }
        }
        if self.gzip.is_some() || whole_bytes.is_some_and(|_| reply.encode.is_some()) {
            head += "Content-Encoding: gzip\r\n";
        }
        match reply.framing {
            Framing::Chunked => head += &self.chunked_lines(),
            Framing::Length => {
                let bytes = whole_bytes.unwrap_or_else(|| self.body_bytes());
                head += &format!("Content-Length: {bytes}\r\n");
            }
            Framing::Close if reply.version != "1.0" => head += "Connection: close\r\n",
            Framing::Close | Framing::Raw => {}
        }
        head += "\r\n";
        // Header bytes are Latin-1; what does not fit there becomes a question mark.
        self.buf.extend(head.chars().map(|c| u8::try_from(c).unwrap_or(b'?')));
    }

    fn chunked_lines(&self) -> String {
        let names: Vec<_> = self.reply.trailers.0.iter().map(|(name, _)| name.as_str()).collect();
        match names.is_empty() {
            true => "Transfer-Encoding: chunked\r\n".into(),
            false => format!("Transfer-Encoding: chunked\r\nTrailer: {}\r\n", names.join(", ")),
        }
    }

    fn body_bytes(&self) -> u64 {
        let bytes = |chunk: &Chunk| match chunk {
            Chunk::Text(text) => self.text(text).len() as u64,
            Chunk::Bytes(bytes) => bytes.len() as u64,
            Chunk::Repeat { text, n } => self.text(text).len() as u64 * n,
            _ => 0,
        };
        self.reply.body_chunks.iter().map(bytes).sum()
    }

    fn compressed_whole(&mut self) -> io::Result<Vec<u8>> {
        let mut gzip = self.gzip.take().expect("asked for only with compression");
        for chunk in &self.reply.body_chunks {
            match chunk {
                Chunk::Text(text) => gzip.write_all(self.text(text).as_bytes())?,
                Chunk::Bytes(bytes) => gzip.write_all(bytes)?,
                Chunk::Repeat { text, n } => {
                    let text = self.text(text);
                    (0..*n).try_for_each(|_| gzip.write_all(text.as_bytes()))?;
                }
                _ => {}
            }
        }
        gzip.finish()
    }

    /// Writes the body. An end that the script asked for comes back.
    async fn write_items(&mut self) -> io::Result<Option<End>> {
        let gap_ms = self.reply.gap_ms;
        let mut first = true;
        for chunk in &self.reply.body_chunks {
            match chunk {
                Chunk::Text(_) | Chunk::Bytes(_) | Chunk::Repeat { .. } => {
                    if gap_ms > 0 {
                        self.flush().await?;
                        pause(if first { 0 } else { gap_ms }).await;
                    }
                    first = false;
                    self.write_item(chunk).await?;
                }
                Chunk::Verbatim(text) => self.put(text.as_bytes()).await?,
                other => {
                    self.flush().await?;
                    if let Some(end) = self.disturb(other).await {
                        return Ok(Some(end));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn write_item(&mut self, chunk: &Chunk) -> io::Result<()> {
        match chunk {
            Chunk::Text(text) => self.item(self.text(text).as_bytes(), 1).await,
            Chunk::Bytes(bytes) => self.item(bytes, 1).await,
            Chunk::Repeat { text, n } => self.item(self.text(text).as_bytes(), *n).await,
            _ => Ok(()),
        }
    }

    async fn disturb(&mut self, chunk: &Chunk) -> Option<End> {
        match chunk {
            Chunk::SleepMs(ms) => pause(*ms).await,
            Chunk::Close => {
                self.fin().await;
                return Some(End::Closed(None));
            }
            Chunk::Rst => {
                Timer::after(RST_DELAY).await;
                // With no time to linger, dropping the socket resets the connection.
                let set = rustix::net::sockopt::set_socket_linger(&*self.stream, Some(Duration::ZERO));
                return Some(End::Closed(set.err().map(|_| "no reset possible")));
            }
            Chunk::HoldMs(ms) => return Some(End::Closed(Some(self.hold(*ms).await))),
            _ => {}
        }
        None
    }

    async fn hold(&mut self, ms: u64) -> &'static str {
        let left = async {
            self.drain().await;
            "client left"
        };
        let over = async {
            pause(ms.max(50)).await;
            "held to the end"
        };
        future::or(left, over).await
    }

    /// One item of the body: `bytes`, `n` times, compressed and framed as the reply says.
    async fn item(&mut self, bytes: &[u8], n: u64) -> io::Result<()> {
        if let Some(gzip) = &mut self.gzip {
            for _ in 0..n {
                gzip.write_all(bytes)?;
            }
            gzip.flush()?;
            let packed = std::mem::take(gzip.get_mut());
            return self.framed(&packed, 1).await;
        }
        self.framed(bytes, n).await
    }

    async fn framed(&mut self, bytes: &[u8], n: u64) -> io::Result<()> {
        let size = bytes.len() as u64 * n;
        if !self.chunked {
            return self.put_times(bytes, n).await;
        }
        if size == 0 {
            return Ok(());
        }
        self.put(format!("{size:x}\r\n").as_bytes()).await?;
        self.put_times(bytes, n).await?;
        self.put(b"\r\n").await
    }

    /// Small texts are first gathered into one block, so that a million of them are a few copies.
    async fn put_times(&mut self, bytes: &[u8], n: u64) -> io::Result<()> {
        if n == 1 || bytes.is_empty() {
            return self.put(bytes).await;
        }
        let per_block = (WRITE_BYTES / bytes.len()).max(1) as u64;
        let block = bytes.repeat(per_block.min(n) as usize);
        for _ in 0..n / per_block {
            self.put(&block).await?;
        }
        self.put(&block[..(n % per_block) as usize * bytes.len()]).await
    }

    async fn write_end(&mut self) -> io::Result<()> {
        if let Some(gzip) = self.gzip.take() {
            let tail = gzip.finish()?;
            self.framed(&tail, 1).await?;
        }
        if self.chunked {
            let lines = self.reply.trailers.0.iter();
            let trailers: String =
                lines.map(|(name, values)| format!("{name}: {}\r\n", values.join(", "))).collect();
            self.put(format!("0\r\n{trailers}\r\n").as_bytes()).await?;
        }
        self.flush().await
    }

    fn text(&self, text: &str) -> String {
        if self.reply.template { self.filler.fill(text) } else { text.into() }
    }

    async fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buf.extend_from_slice(bytes);
        if self.buf.len() >= WRITE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.buf.is_empty() {
            self.stream.write_all(&self.buf).await?;
            self.sent += self.buf.len() as u64;
            self.buf.clear();
        }
        Ok(())
    }

    /// Ends our side, then waits for the client's end, so that it reads what is under way.
    async fn fin(&mut self) {
        if self.stream.shutdown(Shutdown::Write).is_ok() {
            future::or(self.drain(), async {
                Timer::after(FIN_WAIT).await;
            })
            .await;
        }
    }

    /// Reads and forgets until the client has left.
    fn drain(&mut self) -> impl Future<Output = ()> {
        let stream = &mut *self.stream;
        async move {
            let mut waste = [0; 4096];
            while stream.read(&mut waste).await.is_ok_and(|read| read > 0) {}
        }
    }
}

async fn pause(ms: u64) {
    if ms > 0 {
        Timer::after(Duration::from_millis(ms)).await;
    }
}

fn gzip_for(reply: &Reply, request: &Request) -> Option<GzEncoder<Vec<u8>>> {
    let accepted = request.header("accept-encoding");
    let offered = accepted.contains("gzip") || accepted.contains('*');
    let wanted = reply.encode.as_ref().is_some_and(|encode| encode.when == EncodeWhen::Always || offered);
    wanted.then(|| GzEncoder::new(Vec::new(), Compression::default()))
}

fn reason_of(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Payload Too Large",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        520 => "Unknown",
        529 => "Overloaded",
        _ => "Status",
    }
}
