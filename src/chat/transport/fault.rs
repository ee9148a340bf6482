//! What goes wrong below HTTP, in words for a person and classes for `retry`.

use std::{fmt, io};

use crate::chat::error::ChatErrorKind;

/// How a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// No connection, and none to be expected soon: refused, unknown name, TLS, proxy.
    Unreachable,
    /// Broken before the first byte of the answer.
    Broken,
    TimedOut,
}

/// Travels inside a `surf::Error`.
#[derive(Debug)]
pub struct Fault {
    pub kind: FaultKind,
    pub reason: String,
}

impl Fault {
    pub fn new(kind: FaultKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    pub fn unreachable(reason: impl Into<String>) -> Self {
        Self::new(FaultKind::Unreachable, reason)
    }

    /// A failure to connect or to shake hands.
    pub fn connecting(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let kind = match error.kind() {
            Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::UnexpectedEof => {
                FaultKind::Broken
            }
            Kind::TimedOut => FaultKind::TimedOut,
            _ => FaultKind::Unreachable,
        };
        Self::new(kind, reason(error))
    }

    /// A failure to agree on TLS, which says so even where the network was at fault.
    pub fn handshake(error: &io::Error) -> Self {
        let fault = Self::connecting(error);
        let tls = fault.reason.starts_with("TLS: ");
        Self { reason: if tls { fault.reason } else { format!("TLS: {}", fault.reason) }, ..fault }
    }

    /// The same, with the proxy named as the one at fault.
    pub fn of_proxy(self) -> Self {
        Self { reason: format!("proxy: {}", self.reason), ..self }
    }

    /// The same, met behind a proxy's tunnel: either end may be the one at fault.
    pub fn through_proxy(self) -> Self {
        Self { reason: format!("{} (through the proxy)", self.reason), ..self }
    }

    pub fn error_kind(&self) -> ChatErrorKind {
        match self.kind {
            FaultKind::TimedOut => ChatErrorKind::Timeout,
            FaultKind::Unreachable | FaultKind::Broken => ChatErrorKind::Connect,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Fault {}

/// The short reason of an I/O error: no paths, no numbers.
pub fn reason(error: &io::Error) -> String {
    use io::ErrorKind as Kind;
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return format!("TLS: {}", tls_reason(tls));
    }
    match error.kind() {
        Kind::ConnectionRefused => "connection refused".to_owned(),
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => "connection reset".to_owned(),
        Kind::UnexpectedEof => "connection closed".to_owned(),
        Kind::TimedOut => "timed out".to_owned(),
        Kind::HostUnreachable => "host unreachable".to_owned(),
        Kind::NetworkUnreachable => "network unreachable".to_owned(),
        _ => error.to_string(),
    }
}

/// What a person can do something about, in plain words; the rest in the library's.
fn tls_reason(error: &rustls::Error) -> String {
    use rustls::{CertificateError as Certificate, Error, InvalidMessage};
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not speak TLS (is https:// right?)".to_owned()
        }
        // The second where an own CA was made anew under its old name.
        Error::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            "the certificate's issuer is not trusted here (an own CA goes into SSL_CERT_FILE)".to_owned()
        }
        Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => {
            "the certificate has expired".to_owned()
        }
        Error::InvalidCertificate(Certificate::NotValidYet | Certificate::NotValidYetContext { .. }) => {
            "the certificate is not valid yet (is the clock right?)".to_owned()
        }
        other => other.to_string(),
    }
}

/// The short reason of an engine error: that of its cause where it has one.
pub fn engine_reason(error: &hyper::Error) -> String {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return reason(io);
        }
        cause = inner.source();
    }
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "connection closed".to_owned();
    }
    error.to_string()
}
