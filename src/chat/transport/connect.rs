//! A byte stream to a host: names, addresses of both families, proxies, TLS.
//!
//! Knows no HTTP; `proxy` knows its CONNECT. Everything is polled by the caller: dropping the future
//! drops the sockets. A name costs one look-up thread; addresses and `localhost` cost none.

use std::{
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

use futures_lite::{AsyncRead, AsyncWrite, future};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use smol::{Timer, net::TcpStream};
use surf::{Url, http::url::Position};

use super::{
    fault::Fault,
    proxy::{proxies, tunnel},
};

/// How long one address has before the next one is tried beside it (RFC 8305).
const STAGGER: Duration = Duration::from_millis(250);

pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A stream to the host of a URL.
pub struct Link {
    pub stream: Box<dyn Duplex>,
    /// Present when requests go to a proxy that wants the whole URL, with what authorises them.
    pub plain_proxy: Option<PlainProxy>,
}

#[derive(Clone, Debug)]
pub struct PlainProxy {
    pub authorization: Option<String>,
}

/// Makes connections.
pub struct Connector {
    tls: OnceLock<Arc<rustls::ClientConfig>>,
    proxies: Matcher,
}

impl Connector {
    /// Reads the proxy variables of the environment.
    pub fn new() -> Self {
        Self { tls: OnceLock::new(), proxies: proxies(|name| std::env::var(name).ok()) }
    }

    pub async fn connect(&self, url: &Url) -> Result<Link, Fault> {
        let host = bare_host(url);
        let port = url.port_or_known_default().unwrap_or(443);
        let secure = url.scheme() == "https";
        let Some(proxy) = self.proxy_for(url) else {
            let tcp = open(host, port).await?;
            let stream = if secure { self.secure(host, tcp).await? } else { Box::new(tcp) };
            return Ok(Link { stream, plain_proxy: None });
        };
        let tcp = open_proxy(&proxy).await?;
        let authorization = proxy.basic_auth().and_then(|value| value.to_str().ok()).map(str::to_owned);
        if !secure {
            return Ok(Link { stream: Box::new(tcp), plain_proxy: Some(PlainProxy { authorization }) });
        }
        let tcp = tunnel(tcp, host, port, authorization.as_deref()).await.map_err(Fault::of_proxy)?;
        let stream = self.secure(host, tcp).await.map_err(Fault::through_proxy)?;
        Ok(Link { stream, plain_proxy: None })
    }

    /// Whether a proxy stands between us and this URL.
    pub fn asks_proxy(&self, url: &Url) -> bool {
        self.proxy_for(url).is_some()
    }

    /// Loopback is never asked of a proxy (quirk 48).
    fn proxy_for(&self, url: &Url) -> Option<Intercept> {
        let host = bare_host(url);
        let loopback = host.parse::<IpAddr>().map_or(is_localhost(host), |ip| ip.is_loopback());
        // The origin alone: a path or query that the proxy matcher cannot read must not lead past the proxy.
        let origin = url[..Position::BeforePath].parse().ok()?;
        if loopback { None } else { self.proxies.intercept(&origin) }
    }

    async fn secure(&self, host: &str, tcp: TcpStream) -> Result<Box<dyn Duplex>, Fault> {
        let name = rustls::pki_types::ServerName::try_from(host.to_owned())
            .map_err(|_| Fault::unreachable("TLS: the host name is not valid"))?;
        let connector = futures_rustls::TlsConnector::from(self.tls()?);
        let stream = connector.connect(name, tcp).await.map_err(|error| Fault::handshake(&error))?;
        Ok(Box::new(stream))
    }

    /// Loads the system's roots at the first need: it takes milliseconds that plain HTTP can spare.
    fn tls(&self) -> Result<Arc<rustls::ClientConfig>, Fault> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            // Else every server would be of an "unknown issuer", which sends people the wrong way.
            return Err(Fault::unreachable(no_roots()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Fault::unreachable(format!("TLS: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(self.tls.get_or_init(|| Arc::new(config)).clone())
    }
}

/// Without the brackets of an IPv6 address.
fn bare_host(url: &Url) -> &str {
    url.host_str().unwrap_or("").trim_matches(['[', ']'])
}

fn no_roots() -> String {
    let set = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter(|name| std::env::var_os(name).is_some());
    match set.collect::<Vec<_>>().join(" and ") {
        set if set.is_empty() => "TLS: no root certificates found (set SSL_CERT_FILE)".to_owned(),
        set => format!("TLS: no certificate could be read from {set}"),
    }
}

fn is_localhost(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost")
}

async fn open(host: &str, port: u16) -> Result<TcpStream, Fault> {
    let addresses = if let Ok(ip) = host.parse::<IpAddr>() {
        vec![SocketAddr::new(ip, port)]
    } else if is_localhost(host) {
        // Quirk 47: servers listen on one of the two, and either may be it.
        vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
    } else {
        let found = smol::net::resolve((host, port)).await;
        interleave(found.map_err(|_| Fault::unreachable("name does not resolve"))?)
    };
    let tcp = first_open(&addresses).await.map_err(|error| Fault::connecting(&error))?;
    tcp.set_nodelay(true).map_err(|error| Fault::connecting(&error))?;
    Ok(tcp)
}

/// Alternates families, beginning with that of the first address.
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (first, second): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|a| a.is_ipv4() == first_is_v4);
    let mut mixed = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            return mixed;
        }
        mixed.extend(pair.into_iter().flatten());
    }
}

/// Tries all addresses, each one a little after the one before or at once when that failed; the first
/// that answers wins and the others are dropped.
async fn first_open(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut waiting = addresses.iter().copied();
    let mut attempts: Vec<Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>> = Vec::new();
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if let Some(address) = waiting.next() {
            attempts.push(Box::pin(TcpStream::connect(address)));
        } else if attempts.is_empty() {
            return Err(failed);
        }
        let any = future::poll_fn(|cx| {
            for at in 0..attempts.len() {
                if let Poll::Ready(result) = attempts[at].as_mut().poll(cx) {
                    drop(attempts.swap_remove(at));
                    return Poll::Ready(Some(result));
                }
            }
            Poll::Pending
        });
        let more = waiting.len() > 0;
        let pause = async {
            if more {
                Timer::after(STAGGER).await;
                None
            } else {
                future::pending().await
            }
        };
        match future::or(any, pause).await {
            Some(Ok(tcp)) => return Ok(tcp),
            Some(Err(error)) => failed = error,
            None => {}
        }
    }
}

async fn open_proxy(proxy: &Intercept) -> Result<TcpStream, Fault> {
    let uri = proxy.uri();
    if uri.scheme_str() != Some("http") {
        return Err(Fault::unreachable("proxy: only http:// proxies are supported"));
    }
    let host = uri.host().unwrap_or("").trim_matches(['[', ']']);
    open(host, uri.port_u16().unwrap_or(80)).await.map_err(Fault::of_proxy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate() {
        let parse = |list: &[&str]| list.iter().map(|a| a.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let mixed = interleave(parse(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"]));
        assert_eq!(mixed, parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]));
        assert_eq!(interleave(Vec::new()), []);
    }

    #[test]
    fn an_address_that_fails_gives_way_to_the_next() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let peer = |addresses: &[SocketAddr]| {
            smol::block_on(first_open(addresses)).map(|tcp| tcp.peer_addr().unwrap()).map_err(|e| e.kind())
        };
        assert_eq!(peer(&[closed, open]), Ok(open));
        assert_eq!(peer(&[closed, closed]), Err(io::ErrorKind::ConnectionRefused));
        assert_eq!(peer(&[]), Err(io::ErrorKind::AddrNotAvailable));
    }

    #[test]
    fn an_address_that_is_silent_does_not_hold_up_the_next() {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
        // A full backlog: further connections wait for ever.
        let silent = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&silent, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        listen(&silent, 0).unwrap();
        let full = SocketAddr::try_from(getsockname(&silent).unwrap()).unwrap();
        let wait = Duration::from_millis(50);
        let fill = || std::net::TcpStream::connect_timeout(&full, wait).ok();
        let _kept: Vec<_> = std::iter::from_fn(fill).take(8).collect();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let begin = std::time::Instant::now();
        let tcp = smol::block_on(first_open(&[full, listener.local_addr().unwrap()])).unwrap();
        assert_eq!(tcp.peer_addr().unwrap(), listener.local_addr().unwrap());
        assert!((STAGGER..STAGGER * 8).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    }

    #[test]
    fn loopback_goes_direct_and_no_proxy_is_honoured() {
        let proxies = Matcher::builder().all("http://p:1").no("inner.example").build();
        let connector = Connector { tls: OnceLock::new(), proxies };
        let asks = |url: &str| connector.asks_proxy(&Url::parse(url).unwrap());
        // The last has characters that the matcher's own parser refuses.
        for proxied in ["https://api.example/v1", "https://api.example/v1?a={b}|^`"] {
            assert!(asks(proxied), "{proxied}");
        }
        for direct in
            ["http://127.0.0.1:9/", "http://[::1]:9/", "http://LOCALHOST/", "https://inner.example/"]
        {
            assert!(!asks(direct), "{direct}");
        }
    }
}
