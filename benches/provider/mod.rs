//! A provider that costs next to nothing: whole replies from memory, one thread per connection.
//!
//! The path says what it answers: `/deltas/N` with N one-token deltas, `/rounds/N` with a call of `true`
//! until N results are in the request.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

use memchr::memmem;
use serde_json::json;

pub struct Provider {
    port: u16,
    last_request: Arc<Mutex<Option<Instant>>>,
}

impl Provider {
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let last_request = Arc::new(Mutex::new(None));
        let seen = last_request.clone();
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let seen = seen.clone();
                thread::spawn(move || serve(socket, &seen));
            }
        });
        Self { port, last_request }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// When the last request was there as a whole.
    pub fn last_request(&self) -> Instant {
        self.last_request.lock().expect("no panic").expect("a request")
    }
}

/// Answers requests until the client leaves.
fn serve(mut socket: TcpStream, seen: &Mutex<Option<Instant>>) {
    socket.set_nodelay(true).expect("a socket");
    while let Some(request) = read_request(&mut socket) {
        *seen.lock().expect("no panic") = Some(Instant::now());
        let last = memmem::find(&request, b"Connection: close").is_some();
        if socket.write_all(&answer(&request)).is_err() || last {
            return;
        }
    }
}

fn read_request(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut request, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let count = socket.read(&mut buffer).ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&buffer[..count]);
        let Some(head) = memmem::find(&request, b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))?
            .trim()
            .parse::<usize>()
            .ok()?;
        if request.len() >= head + 4 + length {
            return Some(request);
        }
    }
}

fn answer(request: &[u8]) -> Vec<u8> {
    let line = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
    let mut parts = line.split('/').skip(1);
    let (kind, count) = (parts.next().unwrap_or(""), parts.next().and_then(|n| n.parse().ok()).unwrap_or(1));
    let results = memmem::find_iter(request, br#""role":"tool""#).count();
    let mut body =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    if kind == "rounds" && results < count {
        let function = json!({"name": "cmd", "arguments": "{\"command\":\"true\"}"});
        event(
            &mut body,
            &json!({"tool_calls": [{"index": 0, "id": format!("call-{results}"), "function": function}]}),
            None,
        );
        event(&mut body, &json!({}), Some("tool_calls"));
    } else {
        for _ in 0..if kind == "deltas" { count } else { 1 } {
            event(&mut body, &json!({"content": "x"}), None);
        }
        event(&mut body, &json!({}), Some("stop"));
    }
    chunk(&mut body, "data: [DONE]\n\n");
    body.extend_from_slice(b"0\r\n\r\n");
    body
}

fn event(body: &mut Vec<u8>, delta: &serde_json::Value, finish: Option<&str>) {
    let chunk_json = json!({
        "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    });
    chunk(body, &format!("data: {chunk_json}\n\n"));
}

fn chunk(body: &mut Vec<u8>, text: &str) {
    body.extend_from_slice(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
}
