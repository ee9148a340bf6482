//! The script format over real loopback sockets: each line of a table is a script, a request and
//! the exact bytes that have to come back.

use std::time::Instant;

use futures_lite::future;
use smol::io::AsyncReadExt;

use super::*;

const GET: &str = "GET / HTTP/1.1\r\n\r\n";

/// Runs `client` against a server with these answers, for ten seconds at most.
fn with_server<T>(answers: impl Into<Answers>, client: impl AsyncFnOnce(u16) -> T) -> (T, Vec<Exchange>) {
    let mut server = Server::bind(0, answers).expect("a free port");
    let (log, port) = (server.record(), server.port());
    let serve = async {
        server.serve().await;
        None
    };
    let limit = async {
        Timer::after(Duration::from_secs(10)).await;
        None
    };
    let client = async { Some(client(port).await) };
    let result = smol::block_on(future::or(client, future::or(serve, limit)));
    (result.expect("an answer within ten seconds"), log.exchanges())
}

/// Sends bytes and reads until the server ends the connection.
async fn talk(port: u16, request: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(request.as_bytes()).await?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.map(|_| bytes)
}

fn post(body: &str) -> String {
    let credentials = "Authorization: Bearer k-1\r\nAccept-Encoding: gzip\r\n";
    format!("POST /v1/chat/completions HTTP/1.1\r\n{credentials}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn case(http: Value, more: Value) -> Case {
    let mut whole = json!({"protocol": "openai-chat", "http": http});
    whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Case::parse(&whole.to_string()).expect("a script")
}

fn reply_to(http: Value, request: &str) -> String {
    let (bytes, _) = with_server(case(http, json!({})), async |port| talk(port, request).await.unwrap());
    String::from_utf8(bytes).unwrap()
}

fn check(http: Value, expected: &str) {
    let label = http.to_string();
    assert_eq!(reply_to(http, &post("{}")), expected, "{label}");
}

#[test]
fn framings() {
    let sse = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    let chunked = format!("{sse}Transfer-Encoding: chunked\r\n");
    let body = json!(["ab", "c"]);
    check(json!({"body_chunks": body}), &format!("{chunked}\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"));
    check(json!({"body_chunks": body, "gap_ms": 0}), &format!("{chunked}\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"));
    check(json!({"body_chunks": body, "framing": "length"}), &format!("{sse}Content-Length: 3\r\n\r\nabc"));
    check(json!({"body_chunks": body, "framing": "close"}), &format!("{sse}Connection: close\r\n\r\nabc"));
    check(
        json!({"body_chunks": body, "framing": "close", "version": "1.0"}),
        "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\nabc",
    );
    check(
        json!({"body_chunks": ["HTTP/1.1 299 Odd\r\n\r\n", "x"], "framing": "raw"}),
        "HTTP/1.1 299 Odd\r\n\r\nx",
    );
    check(json!({"body_chunks": body, "status": 0}), "abc");
    check(json!({"status": 0}), "");
    check(
        json!({"body_chunks": ["a"], "trailers": {"X-T": "1"}}),
        &format!("{chunked}Trailer: X-T\r\n\r\n1\r\na\r\n0\r\nX-T: 1\r\n\r\n"),
    );
}

#[test]
fn heads() {
    check(
        json!({"status": 429, "framing": "length", "headers": {"Retry-After": 7, "Set": ["a", "b"]}}),
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 7\r\nSet: a\r\nSet: b\r\n\
         Content-Length: 0\r\n\r\n",
    );
    check(
        json!({"status": 299, "reason": "Odd", "framing": "length", "headers": {"content-type": null}}),
        "HTTP/1.1 299 Odd\r\nContent-Length: 0\r\n\r\n",
    );
    check(
        json!({"headers": {"content-type": "x/y", "k": "{{auth}}"}, "framing": "length", "body_chunks": ["{{auth}}"]}),
        "HTTP/1.1 200 OK\r\ncontent-type: x/y\r\nk: k-1\r\nContent-Length: 8\r\n\r\n{{auth}}",
    );
    let filled = json!({"template": true, "framing": "length", "headers": {"content-type": null}, "body_chunks": ["{{auth}}"]});
    check(filled, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nk-1");
}

#[test]
fn chunks() {
    let raw = |chunks: Value, expected| check(json!({"framing": "raw", "body_chunks": chunks}), expected);
    raw(json!(["a", {"sleep_ms": 5}, {"b64": "Yg=="}, {"verbatim": "c"}]), "abc");
    raw(json!([{"repeat": {"text": "xy", "n": 3}}, {"repeat": {"text": "z", "n": 0}}]), "xyxyxy");
    raw(json!(["a", {"close": true}, "never"]), "a");
    raw(json!(["a", {"hold_ms": 60}, "never"]), "a");
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let with = |chunks: Value| json!({"headers": {"content-type": null}, "body_chunks": chunks});
    check(
        with(json!([{"repeat": {"text": "xy", "n": 8}}])),
        &format!("{head}10\r\nxyxyxyxyxyxyxyxy\r\n0\r\n\r\n"),
    );
    check(with(json!([{"verbatim": "1;x\r\na\r\n"}, ""])), &format!("{head}1;x\r\na\r\n0\r\n\r\n"));
    check(with(json!(["a", {"close": true}])), &format!("{head}1\r\na\r\n"));
}

#[test]
fn a_reset_is_an_error_for_the_client() {
    let script = case(json!({"body_chunks": ["a", {"rst": true}]}), json!({}));
    let (result, _) = with_server(script, async |port| talk(port, &post("{}")).await);
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn gzip_when_it_is_offered() {
    let script = |framing: &str| {
        json!({"encode": {"coding": "gzip", "when": "accepted"}, "framing": framing,
        "body_chunks": ["hello ", {"repeat": {"text": "you ", "n": 2}}]})
    };
    for framing in ["close", "length"] {
        let http = script(framing);
        let (bytes, _) =
            with_server(case(http, json!({})), async |port| talk(port, &post("{}")).await.unwrap());
        let start = memchr::memmem::find(&bytes, b"\r\n\r\n").unwrap() + 4;
        assert!(String::from_utf8_lossy(&bytes[..start]).contains("Content-Encoding: gzip"));
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[start..]), &mut text).unwrap();
        assert_eq!(text, "hello you you ");
    }
    let plain = reply_to(script("length"), "POST / HTTP/1.1\r\n\r\n");
    assert!(plain.ends_with("Content-Length: 14\r\n\r\nhello you you "), "{plain}");
}

#[test]
fn waits_are_waited() {
    let begin = Instant::now();
    let http = json!({"pre_ms": 30, "gap_ms": 20, "body_chunks": ["a", "b", {"sleep_ms": 30}]});
    reply_to(http, &post("{}"));
    assert!(begin.elapsed() >= Duration::from_millis(80));
}

/// The labels that a row of POST bodies is served.
fn served(script: Case, bodies: &[&str]) -> Vec<String> {
    let requests: String = bodies.iter().map(|body| post(body)).collect();
    let (_, log) = with_server(script, async |port| talk(port, &requests).await.unwrap());
    log.into_iter().map(|exchange| exchange.served).collect()
}

#[test]
fn the_list_its_end_and_what_goes_before_it() {
    let ok = json!({"body_chunks": ["x"]});
    let then = json!([ok, ok]);
    assert_eq!(
        served(case(ok.clone(), json!({"then": then})), &["{}"; 4]),
        ["http", "then[0]", "then[1]", "exhausted"]
    );
    let repeat = case(ok.clone(), json!({"then": [ok], "after": "repeat"}));
    assert_eq!(served(repeat, &["{}"; 4]), ["http", "then[0]", "then[0]", "then[0]"]);
    let guards = json!([{"if": {"n": {"max": 1}}, "http": ok}, {"if": {"has": "/a"}, "http": ok}]);
    let guarded = case(ok.clone(), json!({"guards": guards, "strict": ["not_json"]}));
    let bodies = ["{}", "{\"a\":1}", "{}", "nope"];
    assert_eq!(served(guarded, &bodies), ["guard[0]", "guard[1]", "http", "strict:not_json"]);
    assert_eq!(served(case(ok, json!({"paths": ["^/v2/"]})), &["{}"]), ["path"]);
}

#[test]
fn what_counts_for_nothing() {
    let requests =
        format!("{GET}GET /v1/models HTTP/1.1\r\n\r\nPOST /v1/count_tokens HTTP/1.1\r\n\r\n{}", post("{}"));
    let script = case(json!({"body_chunks": ["x"]}), json!({}));
    let (bytes, log) = with_server(script, async |port| talk(port, &requests).await.unwrap());
    let labels: Vec<_> = log.iter().map(|exchange| (exchange.n, exchange.served.as_str())).collect();
    assert_eq!(labels, [(0, "method"), (0, "models"), (0, "count_tokens"), (1, "http")]);
    assert!(String::from_utf8_lossy(&bytes).starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
}

#[test]
fn the_log_keeps_requests_and_ends() {
    let script = case(json!({"body_chunks": ["a", {"hold_ms": 5000}]}), json!({"strict": ["surrogate"]}));
    let (_, log) = with_server(script, async |port| talk(port, &post("{\"k\":1}")).await.unwrap());
    let exchange = &log[0];
    assert_eq!((exchange.method.as_str(), exchange.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(exchange.headers["authorization"], "Bearer k-1");
    assert_eq!((exchange.json(), &exchange.audit[..]), (json!({"k": 1}), &[AuditCode::NoStream][..]));
    assert_eq!((exchange.sent_bytes.is_some(), exchange.note.as_deref()), (true, Some("client left")));
}

#[test]
fn connections_are_served_side_by_side() {
    let hold = json!({"body_chunks": [{"hold_ms": 9000}]});
    let script = case(hold, json!({"then": [{"body_chunks": ["x"], "close": true}]}));
    let (text, _) = with_server(script, async |port| {
        let mut first = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        first.write_all(post("{}").as_bytes()).await.unwrap();
        let mut head = [0; 12];
        first.read_exact(&mut head).await.unwrap();
        talk(port, &post("{}")).await.unwrap()
    });
    assert!(text.ends_with(b"1\r\nx\r\n0\r\n\r\n"));
}

#[test]
fn two_hundred_thousand_items_are_quick() {
    let begin = Instant::now();
    let reply = Reply {
        body_chunks: vec![super::super::Chunk::Text("data: x\n\n".into()); 200_000],
        gap_ms: 0,
        ..Reply::default()
    };
    let (bytes, log) = with_server(Case::of([reply]), async |port| talk(port, &post("{}")).await.unwrap());
    assert_eq!(
        (log[0].sent_bytes, bytes.iter().filter(|b| **b == b'x').count()),
        (Some(bytes.len() as u64), 200_001)
    );
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn requests_that_are_too_large_or_wrong_get_a_status() {
    let script = || case(json!({}), json!({}));
    let huge = "POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n";
    let (bytes, _) = with_server(script(), async |port| talk(port, huge).await.unwrap());
    assert!(bytes.starts_with(b"HTTP/1.1 413 "));
    let (bytes, _) = with_server(script(), async |port| talk(port, "hm\r\n\r\n").await.unwrap());
    assert!(bytes.starts_with(b"HTTP/1.1 400 "));
}

#[test]
fn the_assistant_speaks_chat_completions() {
    let body = json!({"stream": true, "messages": [{"role": "user", "content": "count to 2"}]}).to_string();
    let (bytes, log) = with_server(Answers::Assistant, async |port| talk(port, &post(&body)).await.unwrap());
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains(r#""content":"1 ""#) && text.contains("data: [DONE]"), "{text}");
    assert_eq!((log[0].served.as_str(), log[0].audit.len()), ("assistant", 0));
}

#[test]
fn only_loopback_is_served() {
    let everywhere = StdListener::bind(("0.0.0.0", 0)).unwrap();
    assert_eq!(Server::on(everywhere, Answers::Assistant).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}
