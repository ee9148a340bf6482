//! The loopback server: accepts, picks a reply, has it written, notes it if asked to.
//!
//! It lives inside the future of [`Server::serve`]: no thread, no global executor, and dropping the
//! future drops every connection. It listens on 127.0.0.1 only, whatever a script says.

use std::{
    cell::Cell,
    collections::BTreeMap,
    io,
    net::TcpListener as StdListener,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use smol::{
    Async, LocalExecutor, Timer,
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};

use super::{
    assistant,
    audit::{AuditCode, Protocol},
    request::{Reader, Request},
    script::{After, Case, Reply},
    send::send,
};

/// After a refused accept (too many open files), before the next try.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where replies come from.
#[derive(Debug)]
pub enum Answers {
    /// A script.
    Script(Box<Case>),
    /// The built-in brain: a handful of sentences it understands.
    Assistant,
}

impl From<Case> for Answers {
    fn from(case: Case) -> Self {
        Self::Script(Box::new(case))
    }
}

/// One request and how it was answered, as the log keeps it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Place among the requests that count, from 1; 0 for those that do not (model lists and such).
    pub n: usize,
    /// Method.
    pub method: String,
    /// Target as it was sent; absolute when the client took us for a proxy.
    pub target: String,
    /// Path without the query.
    pub path: String,
    /// Query without the question mark.
    pub query: String,
    /// Headers by lower-case name; values of one name joined by `, `.
    pub headers: BTreeMap<String, String>,
    /// The body's bytes.
    pub body: Vec<u8>,
    /// What a strict provider would find wrong with the request.
    pub audit: Vec<AuditCode>,
    /// Which reply it got: `http`, `then[1]`, `guard[0]`, `strict:unpaired`, `path`, `exhausted` ...
    pub served: String,
    /// Bytes of the reply that were written; nothing while it is being written.
    pub sent_bytes: Option<u64>,
    /// How the reply ended, if in a special way: `client left`, `held to the end`, `client gone: ...`.
    pub note: Option<String>,
}

impl Exchange {
    /// The body as JSON, null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A view of the requests so far, to be kept outside of the server, in another thread if need be.
#[derive(Clone, Debug, Default)]
pub struct RequestLog(Arc<Mutex<Vec<Exchange>>>);

impl RequestLog {
    /// All exchanges so far, in the order of their requests.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Exchange>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, exchange: Exchange) -> usize {
        let mut exchanges = self.lock();
        exchanges.push(exchange);
        exchanges.len() - 1
    }

    fn close(&self, place: usize, sent_bytes: u64, note: Option<String>) {
        let exchange = &mut self.lock()[place];
        exchange.sent_bytes = Some(sent_bytes);
        exchange.note = note;
    }
}

/// A provider on 127.0.0.1.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    port: u16,
    answers: Answers,
    log: Option<RequestLog>,
    requests: Cell<usize>,
    next_reply: Cell<usize>,
}

impl Server {
    /// Listens on this port, or on a free one for 0.
    ///
    /// # Errors
    /// When the port is taken or may not be used.
    pub fn bind(port: u16, answers: impl Into<Answers>) -> io::Result<Self> {
        Self::on(StdListener::bind(("127.0.0.1", port))?, answers)
    }

    /// Serves on a listener that somebody else keeps as well, so that the port outlives the server.
    ///
    /// # Errors
    /// When the listener is not bound to 127.0.0.1 or cannot be polled.
    pub fn on(listener: StdListener, answers: impl Into<Answers>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the demo listens on 127.0.0.1 only"));
        }
        Ok(Self {
            listener: TcpListener::from(Async::new(listener)?),
            port: address.port(),
            answers: answers.into(),
            log: None,
            requests: Cell::new(0),
            next_reply: Cell::new(0),
        })
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts to keep every exchange, and returns the view of them. Without it nothing is kept.
    pub fn record(&mut self) -> RequestLog {
        self.log.get_or_insert_default().clone()
    }

    /// Serves until the future is dropped; connections are served side by side.
    pub async fn serve(&self) {
        let connections = LocalExecutor::new();
        let accept = async {
            loop {
                match self.listener.accept().await {
                    Ok((stream, _)) => connections.spawn(self.connection(stream)).detach(),
                    Err(_) => drop(Timer::after(ACCEPT_PAUSE).await),
                }
            }
        };
        connections.run(accept).await
    }

    async fn connection(&self, mut stream: TcpStream) {
        // Small scripted pieces have to leave as they are written. A failure costs only that.
        drop(stream.set_nodelay(true));
        let mut buf = Vec::new();
        loop {
            let request = Reader { stream: &mut stream, buf: &mut buf }.request().await;
            match request {
                Ok(Some(request)) => {
                    if !self.exchange(&mut stream, request).await {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return refuse(&mut stream, &error).await,
            }
        }
    }

    /// Answers one request. Whether the connection can carry another comes back.
    async fn exchange(&self, stream: &mut TcpStream, mut request: Request) -> bool {
        if request.method == "POST" {
            request.audit(self.protocol());
        }
        let (served, reply) = match aside(&request) {
            Some(aside) => aside,
            None => {
                self.requests.set(self.requests.get() + 1);
                request.n = self.requests.get();
                self.choose(&request)
            }
        };
        let place = self.log.as_ref().map(|log| (log, log.open(exchange_of(&request, served))));
        let sent = send(stream, reply.get(), &request, self.port).await;
        if let Some((log, place)) = place {
            log.close(place, sent.bytes, sent.note);
        }
        sent.keep_alive && request.keeps_alive()
    }

    fn protocol(&self) -> Protocol {
        match &self.answers {
            Answers::Script(case) => case.protocol,
            Answers::Assistant => Protocol::ChatCompletions,
        }
    }

    fn choose(&self, request: &Request) -> (String, Chosen<'_>) {
        match &self.answers {
            Answers::Script(case) => self.choose_scripted(case, request),
            Answers::Assistant => {
                ("assistant".into(), Chosen::Made(assistant::answer(request.body.as_ref())))
            }
        }
    }

    fn choose_scripted<'a>(&self, case: &'a Case, request: &Request) -> (String, Chosen<'a>) {
        if !case.paths.is_empty() && !case.paths.iter().any(|path| path.found_in(&request.path)) {
            let error = json!({"message": format!("no such path {}", request.path), "type": "not_found"});
            return ("path".into(), Chosen::Made(Reply::json(404, &json!({ "error": error }))));
        }
        if let Some(code) = case.strict.iter().find(|code| request.audit.contains(code)) {
            let reply = Reply::json(400, &refusal(case.protocol, *code));
            return (format!("strict:{}", code.name()), Chosen::Made(reply));
        }
        if let Some(place) = case.guards.iter().position(|guard| guard.when.holds(request)) {
            return (format!("guard[{place}]"), Chosen::Scripted(&case.guards[place].http));
        }
        let next = self.next_reply.get();
        let scripted = case.reply(next).inspect(|_| self.next_reply.set(next + 1));
        let again = || case.reply(next.checked_sub(1)?).filter(|_| case.after == After::Repeat);
        match scripted.or_else(again) {
            Some((label, reply)) => (label, Chosen::Scripted(reply)),
            None => ("exhausted".into(), Chosen::Made(Case::exhausted())),
        }
    }
}

/// A reply of the script, or one made for this request.
enum Chosen<'a> {
    Scripted(&'a Reply),
    Made(Reply),
}

impl Chosen<'_> {
    fn get(&self) -> &Reply {
        match self {
            Self::Scripted(reply) => reply,
            Self::Made(reply) => reply,
        }
    }
}

/// What is answered outside of the script, and counts for nothing in it.
fn aside<'a>(request: &Request) -> Option<(String, Chosen<'a>)> {
    let made =
        |label: &str, status, body: Value| Some((label.into(), Chosen::Made(Reply::json(status, &body))));
    if request.method == "GET" && request.path.ends_with("/models") {
        let models = json!([{"id": "test-model", "object": "model"}]);
        return made("models", 200, json!({"object": "list", "data": models}));
    }
    if request.path.ends_with("/count_tokens") {
        return made("count_tokens", 200, json!({"input_tokens": 10}));
    }
    if request.method != "POST" {
        let error = json!({"message": "method not allowed", "type": "invalid_request_error"});
        return made("method", 405, json!({ "error": error }));
    }
    None
}

fn refusal(protocol: Protocol, code: AuditCode) -> Value {
    let (kind, message) = ("invalid_request_error", code.sentence());
    match protocol {
        Protocol::Messages => json!({"type": "error", "error": {"type": kind, "message": message}}),
        Protocol::ChatCompletions | Protocol::Responses => {
            let code = format!("replay_{}", code.name());
            json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
        }
    }
}

fn exchange_of(request: &Request, served: String) -> Exchange {
    Exchange {
        n: request.n,
        method: request.method.clone(),
        target: request.target.clone(),
        path: request.path.clone(),
        query: request.query.clone(),
        headers: request.headers.clone(),
        body: request.raw.clone(),
        audit: request.audit.clone(),
        served,
        sent_bytes: None,
        note: None,
    }
}

/// A request that cannot be read gets a status if the client still listens, and the connection ends.
async fn refuse(stream: &mut TcpStream, error: &io::Error) {
    let status = match error.kind() {
        io::ErrorKind::FileTooLarge => "413 Payload Too Large",
        io::ErrorKind::InvalidData => "400 Bad Request",
        _ => return,
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    drop(stream.write_all(head.as_bytes()).await);
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
