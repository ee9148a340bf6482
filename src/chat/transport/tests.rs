//! The transport against a scripted server on loopback, in a thread of its own. Every wait is bounded.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use futures_lite::{StreamExt, future};
use smol::Timer;

use super::*;
use crate::chat::{
    message::{ContentBlock, Message, ToolCall},
    model::ModelEvent,
};

const BOUND: Duration = Duration::from_secs(10);
const DONE: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// What the server does with a request.
enum Answer {
    /// Writes these bytes and keeps the connection.
    Keep(Vec<u8>),
    /// Writes these bytes and closes it.
    Close(Vec<u8>),
    /// Writes these bytes, then waits until the client leaves, and says so.
    Hold(Vec<u8>),
}

struct Server {
    address: SocketAddr,
    /// One line per event: `open`, `request <head and body>`, `left`.
    log: Receiver<String>,
}

impl Server {
    fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, log) = channel();
        thread::spawn(move || serve(&listener, answers.into_iter(), &tell));
        Self { address, log }
    }

    fn next(&self) -> String {
        self.log.recv_timeout(BOUND).unwrap()
    }
}

fn serve(listener: &TcpListener, mut answers: impl Iterator<Item = Answer>, tell: &Sender<String>) {
    let mut answer = answers.next();
    while answer.is_some() {
        let Ok((mut stream, _)) = listener.accept() else { return };
        stream.set_read_timeout(Some(BOUND)).unwrap();
        let _ = tell.send("open".to_owned());
        while let Some(request) = read_request(&mut stream) {
            let _ = tell.send(format!("request {request}"));
            match answer.take() {
                Some(Answer::Keep(bytes)) => stream.write_all(&bytes).unwrap(),
                Some(Answer::Hold(bytes)) => {
                    stream.write_all(&bytes).unwrap();
                    let gone = matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_));
                    let _ = tell.send(if gone { "left" } else { "sent more" }.to_owned());
                    answer = answers.next();
                    break;
                }
                Some(Answer::Close(bytes)) => {
                    let _ = stream.write_all(&bytes);
                    answer = answers.next();
                    break;
                }
                None => return,
            }
            answer = answers.next();
        }
    }
}

fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            if body.len() >= length.parse().ok()? {
                return Some(text);
            }
        }
        match stream.read(&mut chunk) {
            Ok(read) if read > 0 => bytes.extend_from_slice(&chunk[..read]),
            _ => return None,
        }
    }
}

fn ok(body: &str) -> Vec<u8> {
    chunked("200 OK\r\ncontent-type: text/event-stream", body.as_bytes())
}

fn chunked(head: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("HTTP/1.1 {head}\r\ntransfer-encoding: chunked\r\n\r\n{:x};x=y\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(b"\r\n0\r\nx-sum: 1\r\n\r\n");
    bytes
}

fn fixed(head: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn llm(address: SocketAddr) -> Llm {
    Llm {
        base_url: format!("http://{address}/v1"),
        model: "m".to_owned(),
        api_key_env: "KEY".to_owned(),
        effort: None,
        timeout: Duration::from_secs(5),
        data_timeout: Duration::from_secs(600),
        max_retries: 2,
        extra_headers: vec![("X-Title".to_owned(), Secret::new("lucy"))],
        usage: false,
    }
}

fn model(llm: &Llm) -> HttpModel {
    HttpModel::new(llm, Secret::new("sk-test"), Limits::default()).unwrap()
}

fn request(messages: &[Message]) -> Request<'_> {
    Request { model: "m", effort: None, system: "s", messages, tools: &[] }
}

/// Runs one request; gives its events and its end.
fn ask(model: &HttpModel) -> (Vec<ModelEvent>, Result<Reply, ChatError>) {
    let messages = [Message::User { text: "hi".to_owned() }];
    let mut reply = Reply::default();
    let mut events = Vec::new();
    let run = async {
        let mut stream = model.stream(request(&messages), &mut reply);
        while let Some(event) = stream.next().await {
            events.push(event?);
        }
        Ok(())
    };
    let bound = async {
        Timer::after(BOUND).await;
        panic!("the request does not end");
    };
    let end = smol::block_on(future::or(run, bound));
    (events, end.map(|()| reply))
}

fn waits(events: &[ModelEvent]) -> usize {
    events.iter().filter(|event| matches!(event, ModelEvent::Retry { .. })).count()
}

#[track_caller]
fn check_error(llm: &Llm, kind: ChatErrorKind, message: &str) {
    let error = ask(&model(llm)).1.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (kind, message));
}

/// Where nobody listens. A free port, given back, could be another test's a moment later.
fn deaf_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

#[test]
fn a_request_is_sent_as_published_and_the_connection_used_again() {
    let server = Server::start(vec![Answer::Keep(ok(DONE)), Answer::Keep(ok(DONE))]);
    let model = model(&llm(server.address));
    for _ in 0..2 {
        let (events, reply) = ask(&model);
        assert_eq!(events, [ModelEvent::Opened, ModelEvent::TextDelta("hello".to_owned())]);
        assert_eq!(reply.unwrap().text(), "hello");
    }
    assert_eq!(server.next(), "open");
    let sent = server.next();
    assert!(sent.starts_with("request POST /v1/chat/completions HTTP/1.1\r\n"), "{sent}");
    for header in [
        "authorization: Bearer sk-test",
        "accept: text/event-stream",
        "content-type: application/json",
        "x-title: lucy",
    ] {
        assert!(sent.contains(&format!("\r\n{header}\r\n")), "{header}: {sent}");
    }
    assert!(!sent.contains("accept-encoding") && !sent.contains("user-agent"), "{sent}");
    assert!(server.next().starts_with("request "), "a second connection was opened");
}

#[test]
fn a_dead_pooled_connection_is_replaced_at_once() {
    let answers = vec![Answer::Keep(ok(DONE)), Answer::Close(Vec::new()), Answer::Keep(ok(DONE))];
    let server = Server::start(answers);
    let model = model(&llm(server.address));
    assert!(ask(&model).1.is_ok());
    let (events, reply) = ask(&model);
    assert_eq!((waits(&events), reply.unwrap().text().as_str()), (0, "hello"));
}

#[test]
fn refused_and_unknown_hosts_are_not_tried_again() {
    let refused = ChatErrorKind::Connect;
    check_error(&llm(deaf_port()), refused, "provider request failed: connection refused");
    let port = deaf_port().port();
    let llm = Llm { base_url: format!("http://localhost:{port}"), ..llm(deaf_port()) };
    check_error(&llm, refused, "provider request failed: connection refused");
}

#[test]
fn localhost_finds_the_family_that_listens() {
    let server = Server::start(vec![Answer::Keep(ok(DONE))]);
    let base_url = format!("http://localhost:{}/v1", server.address.port());
    assert!(ask(&model(&Llm { base_url, ..llm(server.address) })).1.is_ok());
}

#[test]
fn a_cut_stream_is_an_error_and_keeps_the_partial_text() {
    let half = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n";
    let mut cut = ok(half);
    cut.truncate(cut.len() - 16);
    let server = Server::start(vec![Answer::Close(cut), Answer::Close(ok(half))]);
    let model = model(&llm(server.address));
    let messages = [];
    let mut reply = Reply::default();
    let error = smol::block_on(async {
        let stream = model.stream(request(&messages), &mut reply);
        stream.filter_map(Result::err).next().await.unwrap()
    });
    assert_eq!(error.kind, ChatErrorKind::Stream);
    assert_eq!(error.message, "unable to read provider stream: connection closed");
    assert_eq!(reply.text(), "half");
    let error = ask(&model).1.unwrap_err();
    assert_eq!(error.message, "provider stream ended before [DONE]");
}

#[test]
fn a_body_cut_after_done_is_complete() {
    let mut cut = ok(DONE);
    cut.truncate(cut.len() - 16);
    let server = Server::start(vec![Answer::Close(cut)]);
    assert!(ask(&model(&llm(server.address))).1.is_ok());
}

#[test]
fn an_http_error_says_its_status_and_the_providers_words() {
    let body = r#"{"error":{"message":"bad key\nsk-test"}}"#;
    let server = Server::start(vec![Answer::Close(fixed("401 Unauthorized", body))]);
    // The message is unredacted on purpose: that is the recorder's work.
    let message = "provider returned HTTP status 401: bad key sk-test";
    check_error(&llm(server.address), ChatErrorKind::Status(401), message);
}

#[test]
fn errors_without_words_and_long_waits() {
    let server = Server::start(vec![Answer::Close(fixed("422 Unprocessable", ""))]);
    check_error(&llm(server.address), ChatErrorKind::Status(422), "provider returned HTTP status 422");
    let daily = fixed("429 Slow\r\nretry-after: 86400", "{\"error\":\"daily limit\"}");
    let server = Server::start(vec![Answer::Close(daily)]);
    let message = "provider returned HTTP status 429: daily limit (the provider asks to come back in 24 h)";
    check_error(&llm(server.address), ChatErrorKind::Status(429), message);
}

#[test]
fn transient_failures_are_tried_again_and_bounded() {
    let page = "<html><title>502 Bad Gateway</title></html>";
    let server = Server::start(vec![
        Answer::Close(fixed("529 Overloaded\r\nretry-after-ms: 1", page)),
        Answer::Close(Vec::new()),
        Answer::Keep(ok(DONE)),
    ]);
    let (events, reply) = ask(&model(&llm(server.address)));
    assert_eq!(waits(&events), 2);
    let ModelEvent::Retry { attempt: 1, wait, error } = &events[0] else { panic!("{events:?}") };
    assert_eq!(*wait, Duration::from_millis(1));
    assert_eq!(error.message, "provider returned HTTP status 529: 502 Bad Gateway");
    assert_eq!(reply.unwrap().text(), "hello");

    let again = || Answer::Close(fixed("503 No\r\nretry-after: 0", ""));
    let server = Server::start(vec![again(), again(), again(), again()]);
    let (events, end) = ask(&model(&llm(server.address)));
    assert_eq!((waits(&events), end.unwrap_err().kind), (2, ChatErrorKind::Status(503)));
}

#[test]
fn a_transient_error_in_the_stream_is_tried_again_until_text_was_shown() {
    let overloaded = "data: {\"error\":{\"message\":\"busy\",\"code\":\"overloaded\"}}\n\n";
    let shown = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"x\"}}}}]}}\n\n{overloaded}");
    let server = Server::start(vec![Answer::Close(ok(overloaded)), Answer::Close(ok(&shown))]);
    let (events, end) = ask(&model(&llm(server.address)));
    assert_eq!(waits(&events), 1);
    assert_eq!(end.unwrap_err().message, "provider stream error: busy");
}

#[test]
fn silence_ends_with_the_name_of_the_setting() {
    let short = Duration::from_millis(80);
    let server = Server::start(vec![Answer::Hold(Vec::new())]);
    let silent = Llm { timeout: short, ..llm(server.address) };
    let message = "provider request failed: no answer within 0.08 s (setting: [llm] timeout_secs)";
    check_error(&silent, ChatErrorKind::Timeout, message);

    let head = b"HTTP/1.1 200 OK\r\n\r\n: hi\n".to_vec();
    let server = Server::start(vec![Answer::Hold(head.clone()), Answer::Hold(head)]);
    let silent = Llm { timeout: short, ..llm(server.address) };
    let message = "unable to read provider stream: no byte within 0.08 s (setting: [llm] timeout_secs)";
    check_error(&silent, ChatErrorKind::Timeout, message);
    let dataless = Llm { data_timeout: short, ..llm(server.address) };
    let message =
        "unable to read provider stream: no data event within 0.08 s (setting: [llm] data_timeout_secs)";
    check_error(&dataless, ChatErrorKind::Timeout, message);
}

#[test]
fn an_open_connection_does_not_keep_a_complete_reply() {
    let mut open = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    open.extend_from_slice(DONE.replace("data: [DONE]\n\n", "").as_bytes());
    let server = Server::start(vec![Answer::Hold(open)]);
    let begun = Instant::now();
    assert!(ask(&model(&llm(server.address))).1.is_ok());
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[test]
fn dropping_the_stream_closes_the_socket() {
    let head = b"HTTP/1.1 200 OK\r\n\r\n: hi\n".to_vec();
    let server = Server::start(vec![Answer::Hold(head)]);
    let model = model(&llm(server.address));
    let mut reply = Reply::default();
    smol::block_on(async {
        let mut stream = model.stream(request(&[]), &mut reply);
        assert_eq!(stream.next().await, Some(Ok(ModelEvent::Opened)));
    });
    assert_eq!(server.next(), "open");
    assert!(server.next().starts_with("request "));
    assert_eq!(server.next(), "left");
}

#[test]
fn gzip_is_read_though_not_asked_for() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(DONE.as_bytes()).unwrap();
    let bytes = chunked("200 OK\r\ncontent-encoding: gzip", &gzip.finish().unwrap());
    let server = Server::start(vec![Answer::Keep(bytes)]);
    assert_eq!(ask(&model(&llm(server.address))).1.unwrap().text(), "hello");
}

#[test]
fn only_a_308_of_the_same_origin_is_followed() {
    let moved = fixed("308 Moved\r\nlocation: /moved", "");
    let server = Server::start(vec![Answer::Close(moved), Answer::Keep(ok(DONE))]);
    assert!(ask(&model(&llm(server.address))).1.is_ok());
    let log: Vec<_> = server.log.try_iter().filter(|line| line.starts_with("request")).collect();
    assert!(log[1].starts_with("request POST /moved HTTP/1.1\r\n"), "{log:?}");
    assert!(log[1].contains("Bearer sk-test") && log[1].contains("\"stream\":true"));

    let away = fixed("302 Found\r\nlocation: https://login.example/x?t=1", "");
    let server = Server::start(vec![Answer::Close(away)]);
    let message =
        "provider returned HTTP status 302: it redirects to https://login.example, which is not followed";
    check_error(&llm(server.address), ChatErrorKind::Status(302), message);
}

#[test]
fn refused_forms_are_changed_once_and_remembered() {
    let refused = fixed("422 No", r#"{"message":{"detail":[{"msg":"extra field stream_options"}]}}"#);
    let server =
        Server::start(vec![Answer::Close(refused), Answer::Close(ok(DONE)), Answer::Close(ok(DONE))]);
    let model = model(&Llm { usage: true, ..llm(server.address) });
    for _ in 0..2 {
        let (events, end) = ask(&model);
        assert_eq!((waits(&events), end.is_ok()), (0, true));
    }
    let sent: Vec<_> = (0..6).map(|_| server.next()).filter(|line| line.starts_with("request")).collect();
    let asked: Vec<_> = sent.iter().map(|request| request.contains("stream_options")).collect();
    assert_eq!(asked, [true, false, false]);
}

#[test]
fn missing_content_is_written_as_the_endpoint_wants_it() {
    let refused =
        || Answer::Close(fixed("400 No", r#"{"error":{"message":"invalid message content type: <nil>"}}"#));
    let call = ToolCall { id: "x".to_owned(), name: "cmd".to_owned(), arguments: "{}".to_owned() };
    let messages = [Message::Assistant { blocks: vec![ContentBlock::ToolCall(call)] }];
    let finish = |answers| {
        let server = Server::start(answers);
        let model = model(&llm(server.address));
        let mut reply = Reply::default();
        let last = smol::block_on(model.stream(request(&messages), &mut reply).last());
        (last.unwrap(), model.dialect.get().empty_content, server)
    };
    let (end, remembered, server) = finish(vec![refused(), Answer::Close(ok(DONE))]);
    assert_eq!((end.is_ok(), remembered), (true, true));
    let sent: Vec<_> = server.log.try_iter().filter(|line| line.starts_with("request")).collect();
    assert!(sent[0].contains(r#""content":null"#) && sent[1].contains(r#""content":"""#), "{sent:?}");
    let (end, remembered, _server) = finish(vec![refused(), refused()]);
    assert_eq!((end.is_err(), remembered), (true, false));
}

#[test]
fn what_cannot_be_sent_is_refused_without_repeating_it() {
    let llm = llm(deaf_port());
    for key in ["sk-\nx", "sk-ü"] {
        let error = HttpModel::new(&llm, Secret::new(key), Limits::default()).unwrap_err();
        assert_eq!(error.message, "the API key cannot be sent as a header");
    }
}
