//! Which proxy the environment names, and the tunnel through it.
//!
//! Whether one is asked at all is for `connect` to say: loopback never is.

use std::io;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use hyper_util::client::proxy::matcher::Matcher;
use smol::net::TcpStream;

use super::fault::Fault;

const REPLY_BYTES_MAX: usize = 8192;

/// The proxies that these variables name. Upper case wins; a blank one counts as absent, so it does not
/// hide its twin. In a CGI process HTTP_PROXY is a header of the visitor and is not believed.
pub fn proxies(variable: impl Fn(&str) -> Option<String>) -> Matcher {
    let first = |name: &str| {
        let names = [name.to_owned(), name.to_ascii_lowercase()];
        names
            .iter()
            .filter_map(|name| variable(name))
            .find(|value| !value.trim().is_empty())
            .unwrap_or_default()
    };
    if variable("REQUEST_METHOD").is_some() {
        return Matcher::builder().build();
    }
    Matcher::builder()
        .all(first("ALL_PROXY"))
        .http(first("HTTP_PROXY"))
        .https(first("HTTPS_PROXY"))
        .no(first("NO_PROXY"))
        .build()
}

/// Asks the proxy on `tcp` for a way to a host.
pub async fn tunnel(
    mut tcp: TcpStream,
    host: &str,
    port: u16,
    authorization: Option<&str>,
) -> Result<TcpStream, Fault> {
    let broken = |error: io::Error| Fault::connecting(&error);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let authorization = authorization.map(|a| format!("proxy-authorization: {a}\r\n")).unwrap_or_default();
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nhost: {host}:{port}\r\n{authorization}\r\n");
    tcp.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut reply = Vec::new();
    let mut byte = [0];
    // One byte at a time: what follows the reply belongs to TLS.
    while !reply.ends_with(b"\r\n\r\n") {
        if reply.len() >= REPLY_BYTES_MAX || tcp.read(&mut byte).await.map_err(broken)? == 0 {
            return Err(Fault::unreachable("no valid answer"));
        }
        reply.push(byte[0]);
    }
    let line = String::from_utf8_lossy(&reply);
    let status = line.split_whitespace().nth(1).unwrap_or("");
    if !status.starts_with('2') || status.len() != 3 {
        let hint = if status == "407" { " (it wants a name and a password)" } else { "" };
        return Err(Fault::unreachable(format!("refused with status {status:.3}{hint}")));
    }
    Ok(tcp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_variables() {
        let check = |set: &[(&str, &str)], url: &str, expected: Option<&str>| {
            let variable = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            let found = proxies(variable).intercept(&url.parse().unwrap());
            let host = found.as_ref().and_then(|found| found.uri().host());
            assert_eq!(host, expected, "{set:?} {url}");
        };
        check(&[("HTTP_PROXY", "http://up"), ("http_proxy", "http://low")], "http://h/", Some("up"));
        check(&[("HTTP_PROXY", " "), ("http_proxy", "http://low")], "http://h/", Some("low"));
        check(&[("HTTP_PROXY", "http://p")], "https://h/", None);
        check(&[("https_proxy", "http://p"), ("ALL_PROXY", "http://a")], "https://h/", Some("p"));
        check(&[("all_proxy", "http://a"), ("NO_PROXY", ".other")], "http://h.other/", None);
        check(&[("all_proxy", "http://a"), ("NO_PROXY", "other")], "http://another/", Some("a"));
        check(&[("all_proxy", "http://a"), ("REQUEST_METHOD", "GET")], "http://h/", None);
    }
}
