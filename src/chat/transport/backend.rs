//! surf's `HttpClient` over hyper's HTTP/1.1 engine and rustls: no runtime, no thread, nothing spawned.
//!
//! The request body travels as an extension of type `Bytes`, so it is not copied on its way. A pooled
//! connection that turns out to be dead is replaced once, at once. Redirects and retries are not here.

use std::{future::Future, pin::pin, task::Poll, time::Duration};

use bytes::Bytes;
use futures_lite::future;
use http_body_util::Full;
use hyper::body::Incoming;
use smol::Timer;
use surf::{
    Error, HttpClient, StatusCode, Url,
    http::{Body as SurfBody, Request, Response, url::Position},
};

use super::{
    body::Body,
    connect::{Connector, PlainProxy},
    connection::{Connection, Pool},
    fault::{Fault, FaultKind, engine_reason},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The status as it came; an extension of each response.
#[derive(Clone, Copy, Debug)]
pub struct Status(pub u16);

/// An extension of a response that came by way of a plain proxy, which may have made it itself.
#[derive(Clone, Copy, Debug)]
pub struct ByProxy;

pub struct Backend {
    connector: Connector,
    pool: Pool,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Backend")
    }
}

impl Backend {
    pub fn new() -> Self {
        Self { connector: Connector::new(), pool: Pool::default() }
    }

    async fn connect(&self, url: &Url) -> Result<Connection, Fault> {
        let work = async { Connection::over(self.connector.connect(url).await?).await };
        let timeout = async {
            Timer::after(CONNECT_TIMEOUT).await;
            let reason = format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
            let fault = Fault::new(FaultKind::TimedOut, reason);
            Err(if self.connector.asks_proxy(url) { fault.of_proxy() } else { fault })
        };
        future::or(work, timeout).await
    }

    /// Sends over an idle connection if there is one, else over a new one.
    async fn exchange(
        &self,
        request: &Request,
        origin: &str,
        body: &Bytes,
    ) -> Result<(hyper::Response<Incoming>, Connection), Fault> {
        if let Some(mut connection) = self.pool.take(origin) {
            let message = message(request, connection.plain_proxy.as_ref(), body.clone())?;
            // Quirk 26: it may have died unseen. No byte of an answer came, so nothing is lost.
            match roundtrip(&mut connection, message).await {
                Ok(answer) => return Ok((answer, connection)),
                Err(fault) if fault.kind != FaultKind::Broken => return Err(fault),
                Err(_) => {}
            }
        }
        let mut connection = self.connect(request.url()).await?;
        let message = message(request, connection.plain_proxy.as_ref(), body.clone())?;
        let answer =
            roundtrip(&mut connection, message).await.map_err(|fault| match connection.plain_proxy {
                Some(_) => fault.of_proxy(),
                None => fault,
            })?;
        Ok((answer, connection))
    }
}

#[async_trait::async_trait]
impl HttpClient for Backend {
    async fn send(&self, mut request: Request) -> Result<Response, Error> {
        let body = match request.ext_mut().remove::<Bytes>() {
            Some(body) => body,
            None => request.take_body().into_bytes().await?.into(),
        };
        let origin = request.url().origin().ascii_serialization();
        let (answer, connection) = self.exchange(&request, &origin, &body).await?;
        let status = answer.status().as_u16();
        // http-types knows no status of its own making, such as 520 or 529 (quirks 34, 40).
        let known = StatusCode::try_from(status).unwrap_or(StatusCode::BadGateway);
        let mut response = Response::new(known);
        response.ext_mut().insert(Status(status));
        if connection.plain_proxy.is_some() {
            response.ext_mut().insert(ByProxy);
        }
        for (name, value) in answer.headers() {
            // A header that is not ASCII is of no use here, and http-types refuses it.
            if let Some(value) = value.to_str().ok().filter(|_| name.as_str() != "content-encoding") {
                response.append_header(name.as_str(), value);
            }
        }
        let coding = answer.headers().get("content-encoding").and_then(|value| value.to_str().ok());
        let coding = coding.unwrap_or("identity").trim().to_ascii_lowercase();
        let body = Body::new(answer.into_body(), connection, self.pool.clone(), origin);
        let body = match coding.as_str() {
            "" | "identity" => body,
            "gzip" | "x-gzip" => body.unzip(),
            _ => {
                let reason = format!("content encoding {coding:.20} was not asked for");
                return Err(Fault::unreachable(reason).into());
            }
        };
        response.set_body(SurfBody::from_reader(body, None));
        Ok(response)
    }
}

async fn roundtrip(
    connection: &mut Connection,
    message: hyper::Request<Full<Bytes>>,
) -> Result<hyper::Response<Incoming>, Fault> {
    let mut answer = pin!(connection.sender.send_request(message));
    future::poll_fn(|cx| {
        // The answer is looked at last, as the engine's work may have just completed it.
        connection.poll_engine(cx);
        match answer.as_mut().poll(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(broken(&error))),
            Poll::Ready(Ok(answer)) => Poll::Ready(Ok(answer)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn broken(error: &hyper::Error) -> Fault {
    let kind = if error.is_parse() || error.is_user() { FaultKind::Unreachable } else { FaultKind::Broken };
    let reason = if error.is_parse() { "the answer is not HTTP".to_owned() } else { engine_reason(error) };
    Fault::new(kind, reason)
}

/// `request` for hyper, with the whole URL in the first line if a proxy wants it.
fn message(
    request: &Request,
    proxy: Option<&PlainProxy>,
    body: Bytes,
) -> Result<hyper::Request<Full<Bytes>>, Fault> {
    let url = request.url();
    let target = match proxy {
        Some(_) => &url[..Position::AfterQuery],
        None => &url[Position::BeforePath..Position::AfterQuery],
    };
    let mut message = hyper::Request::builder().method(request.method().as_ref()).uri(target);
    if request.header("host").is_none() {
        message = message.header("host", &url[Position::BeforeHost..Position::AfterPort]);
    }
    for (name, values) in request.iter() {
        for value in values {
            message = message.header(name.as_str(), value.as_str());
        }
    }
    if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.as_deref()) {
        message = message.header("proxy-authorization", authorization);
    }
    message.body(Full::new(body)).map_err(|_| Fault::unreachable("the request has an invalid header"))
}
