//! The network as it is in an office: TLS with an authority of its own, proxies, both address families,
//! base URLs of all kinds, redirects. Every failure is one line that names the reason, and loses nothing.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener},
    thread::{self, JoinHandle},
};

use lucy::demo::{Answers, Case, Exchange, Fields, Reply};

use crate::support::{Authority, Finished, KEY, Middle, Provider, Proxy, Rig, http, text};

const PASSWORD: &str = "proxy-pass-77";

/// A rig whose configuration names this base URL, with short waits and no retries.
fn at(rig: Rig, base_url: &str) -> Rig {
    rig.config(&format!(
        "[llm]\nbase_url = \"{base_url}\"\nmodel = \"m\"\napi_key_env = \"LUCY_TEST_KEY\"\n\
         max_retries = 0\ntimeout_secs = 2\n"
    ))
}

fn ready() -> Rig {
    Rig::new().reply(text("hi"))
}

/// A header as the provider saw it, or nothing.
fn header<'a>(seen: &'a Exchange, name: &str) -> &'a str {
    seen.headers.get(name).map_or("", String::as_str)
}

#[track_caller]
fn answers(rig: Rig) -> Finished {
    let finished = rig.ask("x").run();
    finished.success();
    assert_eq!((finished.reply_text().as_str(), finished.exchanges().len()), ("hi", 1));
    assert_eq!(header(&finished.exchanges()[0], "authorization"), format!("Bearer {KEY}"));
    assert_eq!(header(&finished.exchanges()[0], "proxy-authorization"), "");
    finished
}

/// Exit code 1, one line that says this, and nothing lost.
#[track_caller]
fn fails(rig: Rig, says: &str) -> Finished {
    let finished = rig.ask("asked-this").run();
    finished.code(1).stderr("").never_says(PASSWORD).never_says(KEY);
    let errors = finished.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains(says), "no {says:?} in {:?}", errors[0]);
    assert!(!errors[0].contains('\n') && errors[0].len() < 400, "{:?}", errors[0]);
    let log = finished.session_text();
    assert!(log.contains("asked-this") && log.contains("provider_error"), "{log}");
    finished
}

/// Trusts this authority.
fn trusting(rig: Rig, authority: &Authority) -> Rig {
    let rig = rig.file("ca.pem", authority.pem());
    let path = rig.work().join("ca.pem");
    rig.env("SSL_CERT_FILE", path.to_str().expect("UTF-8"))
}

fn https(port: u16) -> String {
    format!("https://localhost:{port}/v1")
}

#[test]
fn tls_with_an_authority_of_the_office() {
    let (authority, rig) = (Authority::new(), ready());
    let front = Middle::tls(&authority, "localhost", rig.port());
    let finished = answers(trusting(at(rig, &https(front.port)), &authority));
    let seen = &finished.exchanges()[0];
    assert_eq!((seen.target.as_str(), seen.method.as_str()), ("/v1/chat/completions", "POST"));
    assert_eq!(header(seen, "host"), format!("localhost:{}", front.port));
    let rig = ready().file("certs/ca.pem", authority.pem());
    let dir = rig.work().join("certs");
    let front = Middle::tls(&authority, "127.0.0.1", rig.port());
    let base_url = format!("https://127.0.0.1:{}/v1", front.port);
    answers(at(rig, &base_url).env("SSL_CERT_DIR", dir.to_str().expect("UTF-8")));
}

#[test]
fn tls_that_cannot_be_trusted() {
    let (authority, other) = (Authority::new(), Authority::new());
    let check = |front: fn(&Authority, u16) -> Middle, trusted: &Authority, says: &str| {
        let rig = ready();
        let front = front(&authority, rig.port());
        let finished = fails(trusting(at(rig, &https(front.port)), trusted), says);
        assert_eq!(finished.exchanges().len(), 0, "{says}");
    };
    check(
        |ca, to| Middle::tls(ca, "localhost", to),
        &other,
        "issuer is not trusted here (an own CA goes into SSL_CERT_FILE)",
    );
    check(|ca, to| Middle::tls(ca, "elsewhere.example", to), &authority, "not valid for name \"localhost\"");
    check(|ca, to| Middle::tls_expired(ca, "localhost", to), &authority, "the certificate has expired");
}

#[test]
fn tls_that_is_none() {
    let authority = Authority::new();
    let check = |answer: &'static [u8], says: &str| {
        let (port, server) = once(answer);
        fails(trusting(at(ready(), &https(port)), &authority), says);
        server.join().expect("no panic");
    };
    check(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "does not speak TLS");
    check(b"", "TLS: connection closed");
    // A port of our own, given back, could be somebody else's by now; nobody listens on this one.
    fails(trusting(at(ready(), &https(1)), &authority), "connection refused");
    // The dead end of a proxy does as well for a server.
    let silent = Middle::proxy(Proxy::Silent);
    fails(trusting(at(ready(), &https(silent.port)), &authority), "no answer within 2 s");
}

/// A server that answers the first bytes of its one client and ends.
fn once(answer: &'static [u8]) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let server = thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        // Whatever fails here is seen by the client, which is what the test looks at.
        let _ = client.read_exact(&mut [0; 5]);
        let _ = client.write_all(answer);
        let _ = client.shutdown(Shutdown::Write);
        let _ = io::copy(&mut client, &mut io::sink());
    });
    (port, server)
}

#[test]
fn silence_before_a_connection_stands_is_bounded_without_any_setting() {
    let silent = Middle::proxy(Proxy::Silent);
    let config = |base_url: &str| {
        Rig::new().config(&format!(
            "[llm]\nbase_url = \"{base_url}\"\nmodel = \"m\"\napi_key_env = \"LUCY_TEST_KEY\"\n"
        ))
    };
    let authority = Authority::new();
    let direct = trusting(config(&https(silent.port)), &authority).ask("x").start();
    let proxied =
        config("https://provider.invalid/v1").env("HTTPS_PROXY", &through(&silent)).ask("x").start();
    for (mut running, says) in
        [(direct, "no connection within 10 s"), (proxied, "proxy: no connection within 10 s")]
    {
        running.close_stdin();
        let finished = running.wait();
        finished.code(1).never_says(PASSWORD);
        assert!(finished.errors()[0].contains(says), "{:?}", finished.errors());
    }
}

#[test]
fn roots_that_cannot_be_read() {
    let rig = at(ready(), "https://127.0.0.1:1/v1");
    fails(rig.env("SSL_CERT_FILE", "/nonexistent/ca.pem"), "refused");
    let (authority, rig) = (Authority::new(), ready());
    let front = Middle::tls(&authority, "localhost", rig.port());
    let missing = at(rig, &https(front.port)).env("SSL_CERT_FILE", "/nonexistent/ca.pem");
    fails(missing, "no certificate could be read from SSL_CERT_FILE");
    let rig = at(ready(), &https(front.port)).file("empty.pem", "");
    let path = rig.work().join("empty.pem");
    fails(rig.env("SSL_CERT_FILE", path.to_str().expect("UTF-8")), "from SSL_CERT_FILE");
}

fn through(proxy: &Middle) -> String {
    format!("http://user:{PASSWORD}@127.0.0.1:{}", proxy.port)
}

#[test]
fn http_through_a_proxy() {
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        let rig = at(ready(), "http://provider.invalid/v1?a=1");
        let proxy = Middle::proxy(Proxy::Forward(rig.port()));
        let finished = answers(rig.env(variable, &through(&proxy)));
        let seen = proxy.seen();
        assert!(
            seen.starts_with("POST http://provider.invalid/v1/chat/completions?a=1 HTTP/1.1\r\n"),
            "{seen}"
        );
        assert!(seen.contains("\r\nproxy-authorization: Basic dXNlcjpwcm94eS1wYXNzLTc3\r\n"), "{seen}");
        assert_eq!(header(&finished.exchanges()[0], "host"), "provider.invalid");
        finished.never_says(PASSWORD);
    }
}

#[test]
fn https_through_a_proxy_stays_between_the_ends() {
    for variable in ["HTTPS_PROXY", "https_proxy"] {
        let (authority, rig) = (Authority::new(), ready());
        let front = Middle::tls(&authority, "provider.invalid", rig.port());
        let proxy = Middle::proxy(Proxy::Forward(front.port));
        let rig = trusting(at(rig, "https://provider.invalid/v1"), &authority);
        answers(rig.env(variable, &through(&proxy)).env("HTTP_PROXY", "http://127.0.0.1:1"));
        let seen = proxy.seen();
        assert!(seen.starts_with("CONNECT provider.invalid:443 HTTP/1.1\r\n"), "{seen}");
        assert!(seen.contains("\r\nproxy-authorization: Basic "), "{seen}");
        assert!(!seen.contains(KEY) && !seen.contains("messages"), "{seen}");
    }
}

#[test]
fn hosts_that_need_no_proxy() {
    for (variable, value) in
        [("NO_PROXY", "provider.invalid"), ("no_proxy", "x, .invalid"), ("NO_PROXY", "*")]
    {
        let proxy = Middle::proxy(Proxy::Refuse(403));
        let rig = at(ready(), "http://provider.invalid/v1").env("HTTP_PROXY", &through(&proxy));
        fails(rig.env(variable, value), "name does not resolve");
        assert_eq!(proxy.seen(), "", "{value}");
    }
    // Quirk 48: loopback is never asked of a proxy.
    let proxy = Middle::proxy(Proxy::Refuse(403));
    for host in ["127.0.0.1", "localhost"] {
        let rig = ready();
        let base_url = format!("http://{host}:{}/v1", rig.port());
        answers(at(rig, &base_url).env("ALL_PROXY", &through(&proxy)));
    }
    assert_eq!(proxy.seen(), "");
}

#[test]
fn proxies_that_fail_are_named() {
    for scheme in ["http", "https"] {
        let check = |does: Proxy, says: &str| {
            let proxy = Middle::proxy(does);
            let rig = trusting(at(ready(), &format!("{scheme}://provider.invalid/v1")), &Authority::new());
            fails(rig.env("ALL_PROXY", &through(&proxy)), says);
        };
        check(Proxy::Refuse(403), "proxy");
        check(Proxy::Refuse(403), "403");
        check(Proxy::Refuse(407), "proxy: refused with status 407");
        check(Proxy::HangUp, "proxy: ");
        check(Proxy::Silent, "no answer within 2 s");
        let rig = at(ready(), &format!("{scheme}://provider.invalid/v1"));
        fails(rig.env("ALL_PROXY", &format!("http://u:{PASSWORD}@127.0.0.1:1")), "proxy: connection refused");
        let rig = at(ready(), &format!("{scheme}://provider.invalid/v1"));
        fails(rig.env("ALL_PROXY", &format!("https://u:{PASSWORD}@127.0.0.1:1")), "proxy: only http://");
    }
}

#[test]
fn localhost_on_either_family() {
    for address in ["127.0.0.1", "::1"] {
        let listener = TcpListener::bind((address, 0)).expect("this family");
        let port = listener.local_addr().expect("an address").port();
        let provider = Provider::start(&listener, Answers::from(Case::of([text("hi"), text("hi")])));
        let literal = if address == "::1" { "[::1]" } else { address };
        for host in ["localhost", literal] {
            at(Rig::new(), &format!("http://{host}:{port}/v1")).ask("x").run().success();
        }
        let hosts: Vec<_> =
            provider.log.exchanges().iter().map(|seen| header(seen, "host").to_owned()).collect();
        assert_eq!(hosts, [format!("localhost:{port}"), format!("{literal}:{port}")]);
    }
}

#[test]
fn base_urls() {
    let check = |scheme: &str, base: &str, target: &str| {
        let rig = ready();
        let base_url = format!("{scheme}://127.0.0.1:{}{base}", rig.port());
        assert_eq!(answers(at(rig, &base_url)).exchanges()[0].target, target, "{base}");
    };
    check("http", "", "/chat/completions");
    check("HTTP", "/v1//", "/v1/chat/completions");
    check("http", "/a/b/v1/chat/completions", "/a/b/v1/chat/completions");
    check("http", "/d/?api-version=1&b=%20", "/d/chat/completions?api-version=1&b=%20");
    check("http", "/v1#top", "/v1/chat/completions");
}

#[test]
fn base_urls_that_cannot_be_used() {
    let check = |base_url: &str, says: &str| {
        let finished = at(Rig::new(), base_url).ask("x").run();
        finished.code(2).stderr_contains(says).never_says("pass-in-url").never_says(KEY);
        assert!(finished.session_files().is_empty(), "{base_url}");
    };
    check(" ", "llm.base_url must not be empty");
    check("ftp://h/v1", "must start with http:// or https://");
    check("h/v1", "must start with http:// or https://");
    check("http://", "llm.base_url is not usable");
    check("http://h:99999/v1", "llm.base_url is not usable");
    check("http://me:pass-in-url@h/v1", "must not hold a user name or password");
    let finished = at(Rig::new(), &format!("http://127.0.0.1:1/v1?key={KEY}")).ask("x").run();
    finished.never_says(KEY);
    finished.code(3).stderr_contains("session header rejected");
}

fn moved(status: u16, to: &str) -> Reply {
    Reply { headers: Fields::from([("Location", to)]), ..http(status, "") }
}

#[test]
fn redirects_within_the_origin() {
    for status in [307, 308] {
        let finished =
            at(Rig::new(), "{base_url}").reply(moved(status, "/new?x=1")).reply(text("hi")).ask("x").run();
        finished.success();
        let seen = finished.exchanges();
        assert_eq!((seen.len(), seen[1].target.as_str()), (2, "/new?x=1"));
        assert_eq!(
            (seen[0].json(), header(&seen[0], "authorization")),
            (seen[1].json(), header(&seen[1], "authorization"))
        );
    }
    let finished =
        fails(at(Rig::new(), "{base_url}").replies(&moved(308, "/again"), 9), "too many redirects");
    assert_eq!(finished.exchanges().len(), 4);
}

#[test]
fn redirects_that_would_give_the_key_away() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let other = Provider::start(&listener, Answers::from(Case::of([text("stolen")])));
    for status in [301, 302, 303, 307, 308] {
        for host in ["127.0.0.1", "localhost"] {
            let target = format!("http://{host}:{port}");
            let rig = at(Rig::new(), "{base_url}").reply(moved(status, &format!("{target}/v1?token=abc")));
            let finished = fails(rig, &target);
            finished.never_says("token=abc");
            assert_eq!(finished.exchanges().len(), 1);
        }
    }
    for status in [301, 302, 303] {
        let rig = at(Rig::new(), "{base_url}").reply(moved(status, "/same"));
        assert_eq!(fails(rig, "127.0.0.1").exchanges().len(), 1, "a POST does not become a GET");
    }
    let authority = Authority::new();
    let rig = Rig::new().reply(moved(308, &format!("http://localhost:{port}/v1")));
    let front = Middle::tls(&authority, "localhost", rig.port());
    fails(trusting(at(rig, &https(front.port)), &authority), &format!("http://localhost:{port}"));
    assert_eq!(other.log.exchanges().len(), 0, "the other server never heard of it");
}
