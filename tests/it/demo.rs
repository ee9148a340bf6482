//! The rig's own ground: the scripted provider through a plain blocking socket.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use lucy::demo::{Answers, Case, NOTICE};
use serde_json::json;

use crate::support::{Provider, calls, http, text};

fn post(listener: &TcpListener, body: &str) -> String {
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn replies_come_in_order_and_the_port_outlives_the_provider() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let call = calls(&[("a", "cmd", json!({"command": "pwd"})), ("b", "cmd", json!({}))]);
    let provider = Provider::start(&listener, Answers::from(Case::of([text("hi"), call])));
    let first = post(&listener, "{\"n\":1}");
    assert!(first.contains(r#""content":"hi""#) && first.contains(r#""finish_reason":"stop""#), "{first}");
    let second = post(&listener, "{\"n\":2}");
    assert!(
        second.contains(r#""index":1"#) && second.contains(r#""finish_reason":"tool_calls""#),
        "{second}"
    );
    assert!(post(&listener, "{}").starts_with("HTTP/1.1 500 "));
    let seen: Vec<_> = provider.log.exchanges().iter().map(|exchange| exchange.json()["n"].clone()).collect();
    assert_eq!(seen, [json!(1), json!(2), json!(null)]);
    drop(provider);

    let again = Provider::start(&listener, Answers::from(Case::of([http(401, "<p>no</p>")])));
    let refused = post(&listener, "{}");
    assert!(refused.starts_with("HTTP/1.1 401 Unauthorized\r\nContent-Type: text/html\r\n"), "{refused}");
    assert_eq!(again.log.exchanges().len(), 1);
}

#[test]
fn the_notice_is_one_plain_line() {
    assert_eq!(NOTICE, "this is a scripted demo, not a model");
}
