//! What stands between the program and the provider in an office: a TLS front, a proxy, a dead end.
//!
//! Each is a thread on a loopback port that ends with its [`Middle`].

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use async_channel::Sender;
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, future, io};
use futures_rustls::TlsAcceptor;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use smol::{LocalExecutor, net::TcpStream};

/// A certificate authority of our own.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Authority of the tests");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Its certificate, for SSL_CERT_FILE.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A server's identity under `name`; an expired one ended in 2020.
    fn server(&self, name: &str, expired: bool) -> ServerConfig {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        if expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let chain = vec![params.signed_by(&key, &self.issuer).expect("a certificate").der().clone()];
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a pair of certificate and key")
    }
}

/// What a proxy does.
#[derive(Clone, Copy)]
pub enum Proxy {
    /// Sends everything to this port of 127.0.0.1, whatever host was named.
    Forward(u16),
    /// Answers with this status.
    Refuse(u16),
    HangUp,
    /// Takes everything and says nothing.
    Silent,
}

/// A thread between the program and the provider.
pub struct Middle {
    pub port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Middle {
    /// TLS under `name` in front of a port.
    pub fn tls(authority: &Authority, name: &str, to: u16) -> Self {
        Self::tls_with(authority.server(name, false), to)
    }

    /// The same with a certificate that has expired.
    pub fn tls_expired(authority: &Authority, name: &str, to: u16) -> Self {
        Self::tls_with(authority.server(name, true), to)
    }

    fn tls_with(config: ServerConfig, to: u16) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::start(async move |client, _| {
            // A client that does not trust us leaves during the handshake.
            let Ok(client) = acceptor.accept(client).await else { return };
            if let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await {
                join(client, server, &Mutex::default()).await;
            }
        })
    }

    /// A proxy that records all bytes of its clients.
    pub fn proxy(does: Proxy) -> Self {
        Self::start(async move |client, seen| {
            // A broken connection is the end of it; the test looks at the program.
            let _ = proxied(client, does, &seen).await;
        })
    }

    /// All that its clients sent, as text.
    pub fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("no panic")).into_owned()
    }

    fn start<F>(serve: F) -> Self
    where
        F: AsyncFn(TcpStream, Arc<Mutex<Vec<u8>>>) + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (stop, stopped) = async_channel::bounded::<()>(1);
        let seen = Arc::default();
        let record = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            let executor = LocalExecutor::new();
            let listener = smol::Async::new(listener).map(smol::net::TcpListener::from).expect("a listener");
            let accept = async {
                while let Ok((client, _)) = listener.accept().await {
                    executor.spawn(serve(client, Arc::clone(&record))).detach();
                }
            };
            let until_stopped = async {
                // Only ever closed, never sent to.
                let _ = stopped.recv().await;
            };
            smol::block_on(executor.run(future::or(until_stopped, accept)));
        });
        Self { port, seen, stop, thread: Some(thread) }
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.stop.close();
        if let Some(thread) = self.thread.take() {
            // A panic over there has been printed already.
            let _ = thread.join();
        }
    }
}

async fn proxied(mut client: TcpStream, does: Proxy, seen: &Mutex<Vec<u8>>) -> io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).await? == 1 {
        head.push(byte[0]);
    }
    seen.lock().expect("no panic").extend_from_slice(&head);
    let to = match does {
        Proxy::Forward(port) => port,
        Proxy::HangUp => return Ok(()),
        Proxy::Silent => return future::pending().await,
        Proxy::Refuse(status) => {
            let answer = format!("HTTP/1.1 {status} No\r\ncontent-length: 2\r\n\r\nno");
            client.write_all(answer.as_bytes()).await?;
            // Until the client leaves, so that no reset overtakes the answer.
            return io::copy(client, io::sink()).await.map(drop);
        }
    };
    let mut server = TcpStream::connect(("127.0.0.1", to)).await?;
    let head = String::from_utf8_lossy(&head).into_owned();
    if head.starts_with("CONNECT ") {
        client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
    } else {
        let kept = head.split_inclusive("\r\n").filter(|line| !line.starts_with("proxy-authorization"));
        let direct = kept.collect::<String>().replacen("http://provider.invalid", "", 1);
        server.write_all(direct.as_bytes()).await?;
    }
    join(client, server, seen).await;
    Ok(())
}

/// Carries bytes both ways until one side ends.
async fn join(client: impl AsyncRead + AsyncWrite + Unpin, server: TcpStream, seen: &Mutex<Vec<u8>>) {
    let (mut from_client, mut to_client) = io::split(client);
    let up = async {
        let mut to_server = server.clone();
        let mut bytes = vec![0; 4096];
        while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
            seen.lock().expect("no panic").extend_from_slice(&bytes[..read]);
            if to_server.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        // Either end may leave first.
        let _ = io::copy(server.clone(), &mut to_client).await;
        let _ = to_client.close().await;
    };
    future::or(up, down).await;
}
