//! Reading one HTTP/1.1 request from a raw connection.
//!
//! Content length and chunked bodies, `Expect: 100-continue`, keep-alive and absolute-form targets;
//! nothing else is needed on a loopback. Sizes are bounded here, so a wrong client cannot fill the
//! memory. Knows nothing of scripts beyond the protocol its audit follows.

use std::{collections::BTreeMap, io};

use memchr::memmem;
use serde_json::Value;
use smol::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::audit::{AuditCode, Audited, Protocol, audit, replace_lone_surrogates};

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
const READ_BYTES: usize = 64 * 1024;

/// A request as conditions and logs see it.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    /// Its place among the requests that count, from 1; 0 for the others.
    pub n: usize,
    pub method: String,
    pub target: String,
    pub path: String,
    pub query: String,
    /// Names in lower case; values of one name joined by `, `.
    pub headers: BTreeMap<String, String>,
    pub raw: Vec<u8>,
    pub text: String,
    pub body: Option<Value>,
    pub audit: Vec<AuditCode>,
}

impl Request {
    fn new(method: &str, target: &str, headers: BTreeMap<String, String>, raw: Vec<u8>) -> Self {
        let text = String::from_utf8_lossy(&raw).into_owned();
        let (path, query) = split_target(target);
        Self {
            method: method.into(),
            target: target.into(),
            path,
            query,
            headers,
            body: parse_body(&text),
            text,
            raw,
            ..Self::default()
        }
    }

    /// A bare POST, for tests of what looks at requests.
    #[cfg(test)]
    pub fn post(target: &str, raw: Vec<u8>) -> Self {
        let mut request = Self::new("POST", target, BTreeMap::new(), raw);
        request.audit(Protocol::ChatCompletions);
        request
    }

    /// Notes what a strict provider would find wrong.
    pub fn audit(&mut self, protocol: Protocol) {
        let audited =
            Audited { raw: &self.raw, text: &self.text, body: self.body.as_ref(), headers: &self.headers };
        self.audit = audit(protocol, &audited);
    }

    /// The value of a header in any case, empty when absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(&name.to_ascii_lowercase()).map_or("", String::as_str)
    }

    /// Whether the client will use this connection again.
    pub fn keeps_alive(&self) -> bool {
        !self.header("connection").eq_ignore_ascii_case("close")
    }
}

fn parse_body(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().or_else(|| serde_json::from_str(&replace_lone_surrogates(text)?).ok())
}

/// Path and query of a target in origin or absolute form.
fn split_target(target: &str) -> (String, String) {
    let absolute = target.strip_prefix("http://").or_else(|| target.strip_prefix("https://"));
    let local = absolute.map_or(target, |rest| rest.find('/').map_or("/", |slash| &rest[slash..]));
    let (path, query) = local.split_once('?').unwrap_or((local, ""));
    (path.into(), query.into())
}

/// A connection with the bytes that were read past the last request.
pub(super) struct Reader<'a> {
    pub stream: &'a mut TcpStream,
    pub buf: &'a mut Vec<u8>,
}

impl Reader<'_> {
    /// The next request, or nothing when the client has left.
    pub async fn request(&mut self) -> io::Result<Option<Request>> {
        let Some(head) = self.head().await? else { return Ok(None) };
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or("").split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(invalid("not a request line"));
        };
        let headers = parse_headers(lines);
        if headers.get("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let chunked = headers
            .get("transfer-encoding")
            .is_some_and(|value| value.to_ascii_lowercase().contains("chunked"));
        let raw = match headers.get("content-length") {
            _ if chunked => self.chunked_body().await?,
            Some(length) => self.exactly(length.parse().map_err(|_| invalid("bad content length"))?).await?,
            None => Vec::new(),
        };
        Ok(Some(Request::new(method, target, headers, raw)))
    }

    /// The bytes before the blank line, one character each, as header fields are defined.
    async fn head(&mut self) -> io::Result<Option<String>> {
        match self.up_to(b"\r\n\r\n", HEAD_BYTES_MAX).await {
            Ok(head) => Ok(Some(head.into_iter().map(char::from).collect())),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn chunked_body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.up_to(b"\r\n", HEAD_BYTES_MAX).await?;
            let size = String::from_utf8_lossy(&line);
            let digits = size.split(';').next().unwrap_or("").trim();
            let size = usize::from_str_radix(digits, 16).map_err(|_| invalid("bad chunk size"))?;
            if size == 0 {
                while !self.up_to(b"\r\n", HEAD_BYTES_MAX).await?.is_empty() {}
                return Ok(body);
            }
            if body.len() + size.min(BODY_BYTES_MAX) > BODY_BYTES_MAX {
                return Err(too_large());
            }
            body.extend(self.exactly(size).await?);
            self.exactly(2).await?;
        }
    }

    /// Takes the bytes before `end`, and drops `end`.
    async fn up_to(&mut self, end: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut searched = 0usize;
        loop {
            let from = searched.saturating_sub(end.len());
            if let Some(found) = memmem::find(&self.buf[from..], end) {
                let rest = self.buf.split_off(from + found + end.len());
                let mut taken = std::mem::replace(self.buf, rest);
                taken.truncate(from + found);
                return Ok(taken);
            }
            if self.buf.len() > bytes_max {
                return Err(too_large());
            }
            searched = self.buf.len();
            self.fill().await?;
        }
    }

    async fn exactly(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        if bytes > BODY_BYTES_MAX {
            return Err(too_large());
        }
        while self.buf.len() < bytes {
            self.fill().await?;
        }
        let rest = self.buf.split_off(bytes);
        Ok(std::mem::replace(self.buf, rest))
    }

    async fn fill(&mut self) -> io::Result<()> {
        let held = self.buf.len();
        self.buf.resize(held + READ_BYTES, 0);
        let read = self.stream.read(&mut self.buf[held..]).await;
        self.buf.truncate(held + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn parse_headers<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::<String, String>::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let joined = headers.entry(name.trim().to_ascii_lowercase()).or_default();
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        joined.push_str(value.trim());
    }
    headers
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "request too large")
}

#[cfg(test)]
mod tests {
    use super::*;
    use smol::net::TcpListener;

    /// What the reader makes of these bytes, sent over a socket and closed.
    fn read(bytes: &'static [u8]) -> io::Result<Option<Request>> {
        smol::block_on(async {
            let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
            let mut client = TcpStream::connect(listener.local_addr()?).await?;
            let (mut stream, _) = listener.accept().await?;
            client.write_all(bytes).await?;
            client.shutdown(std::net::Shutdown::Write)?;
            Reader { stream: &mut stream, buf: &mut Vec::new() }.request().await
        })
    }

    fn check(bytes: &'static [u8], path: &str, body: &str) {
        let request = read(bytes).expect("readable").expect("a request");
        assert_eq!((request.path.as_str(), request.text.as_str()), (path, body));
    }

    #[test]
    fn bodies_and_targets() {
        check(b"GET /v1/models HTTP/1.1\r\n\r\n", "/v1/models", "");
        check(b"POST /a?b=c HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", "/a", "hi");
        check(b"POST http://127.0.0.1:1/a/b?x HTTP/1.1\r\ncontent-length: 1\r\n\r\n.", "/a/b", ".");
        check(b"POST https://host HTTP/1.1\r\n\r\n", "/", "");
        let chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n3\r\n ho\r\n0\r\nT: 1\r\n\r\n";
        check(chunked, "/", "hi ho");
    }

    #[test]
    fn headers_of_one_name_are_joined() {
        let request =
            read(b"GET / HTTP/1.1\r\nAccept: a\r\naccept:b\r\nConnection: Close\r\n\r\n").unwrap().unwrap();
        assert_eq!(request.header("ACCEPT"), "a, b");
        assert!(!request.keeps_alive());
    }

    #[test]
    fn what_is_no_request_is_an_error_or_an_end() {
        assert!(read(b"").unwrap().is_none());
        assert!(read(b"GET / HTTP/1.1\r\n").unwrap().is_none());
        for bytes in [
            b"nonsense\r\n\r\n".as_slice(),
            b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: 67108865\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhi",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        ] {
            assert!(read(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
