//! The real provider: the only place that names surf and hyper, and the only one that knows time.
//!
//! [`HttpModel`] holds what stays the same from request to request. `attempts` runs one request with
//! its retries, `reading` one answer, `backend` is surf's engine, and below it are `connection`, `body`,
//! `connect` and `proxy`. Nothing is spawned: dropping the stream drops the socket.

mod attempts;
mod backend;
mod body;
mod connect;
mod connection;
mod fault;
mod proxy;
mod reading;
#[cfg(test)]
mod tests;
mod url;

use std::{
    cell::Cell,
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_lite::{AsyncReadExt, future, stream};
use smol::Timer;
use surf::{
    Client, Url,
    http::{Method, Request as HttpRequest, Response},
};

use self::{
    attempts::Attempts,
    backend::{Backend, ByProxy, Status},
    fault::{Fault, FaultKind},
};
use super::{
    complaint::{Complaint, one_line},
    error::{ChatError, ChatErrorKind},
    model::{Model, ModelStream, Reply, Request},
    retry::{self, Failure},
    wire::{Dialect, Protocol},
};
use crate::config::{Limits, Llm, Secret};

const REDIRECTS_MAX: usize = 3;
const ERROR_BODY_BYTES_MAX: u64 = 64 * 1024;
/// An error is known by its status; its words are not waited for long.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// A provider behind HTTP.
pub struct HttpModel {
    client: Client,
    protocol: Protocol,
    endpoint: Url,
    /// Names and values of the request, in order; a later one replaces an earlier one.
    headers: Vec<(String, Secret)>,
    limits: Limits,
    timeout: Duration,
    data_timeout: Duration,
    max_retries: u32,
    dialect: Cell<Dialect>,
}

impl fmt::Debug for HttpModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpModel").field("host", &self.endpoint.host_str()).finish_non_exhaustive()
    }
}

impl Model for HttpModel {
    fn stream<'a>(&'a self, request: Request<'a>, reply: &'a mut Reply) -> ModelStream<'a> {
        let attempts = Attempts::new(self, request, reply);
        Box::pin(stream::unfold(attempts, |mut attempts| async move {
            attempts.next().await.map(|event| (event, attempts))
        }))
    }
}

impl HttpModel {
    /// Opens nothing yet. Fails if the base URL, the key or a header can never be sent.
    pub fn new(llm: &Llm, key: Secret, limits: Limits) -> Result<Self, ChatError> {
        let protocol = Protocol::ChatCompletions;
        let mut headers = vec![
            ("authorization".to_owned(), Secret::new(format!("Bearer {}", key.expose()))),
            ("accept".to_owned(), Secret::new("text/event-stream")),
            ("content-type".to_owned(), Secret::new("application/json")),
        ];
        headers
            .extend(llm.extra_headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
        for (name, value) in &headers {
            if !is_header(name, value.expose()) {
                let message = format!("the {} cannot be sent as a header", header_title(name));
                return Err(ChatError::new(ChatErrorKind::Connect, message));
            }
        }
        Ok(Self {
            client: Client::with_http_client(Backend::new()),
            protocol,
            endpoint: url::endpoint(&llm.base_url, protocol.path())?,
            headers,
            limits,
            timeout: llm.timeout,
            data_timeout: llm.data_timeout,
            max_retries: llm.max_retries,
            dialect: Cell::new(Dialect { usage: llm.usage, empty_content: false }),
        })
    }

    /// Sends `body` and waits for the headers of a 2xx answer.
    async fn open(&self, body: &Bytes) -> Result<Response, Failure> {
        let mut url = self.endpoint.clone();
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(&url, body).await?;
            let status = status(&response);
            let location = response.header("location").map(|values| values.as_str().to_owned());
            match location.filter(|_| (300..400).contains(&status)) {
                _ if (200..300).contains(&status) => return Ok(response),
                None => return Err(refusal(status, response).await),
                Some(location) => {
                    url = url::redirect(&url, status, &location).map_err(|target| {
                        let what = format!("it redirects to {}, which is not followed", one_line(&target));
                        status_error(status, Some(&what))
                    })?;
                }
            }
        }
        Err(ChatError::new(ChatErrorKind::Connect, "provider request failed: too many redirects").into())
    }

    async fn send(&self, url: &Url, body: &Bytes) -> Result<Response, Failure> {
        let mut request = HttpRequest::new(Method::Post, url.clone());
        for (name, value) in &self.headers {
            request.insert_header(name.as_str(), value.expose());
        }
        request.ext_mut().insert(body.clone());
        let answer = async { self.client.send(request).await.map(Into::into).map_err(Some) };
        let timeout = async {
            Timer::after(self.timeout).await;
            Err(None)
        };
        match future::or(answer, timeout).await {
            Ok(response) => Ok(response),
            Err(Some(error)) => Err(unsent(&error)),
            Err(None) => {
                let message = format!(
                    "provider request failed: no answer within {} s (setting: [llm] timeout_secs)",
                    self.timeout.as_secs_f64()
                );
                Err(ChatError::new(ChatErrorKind::Timeout, message).into())
            }
        }
    }
}

fn is_header(name: &str, value: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty()
        && name.bytes().all(token)
        && value.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b))
}

fn header_title(name: &str) -> String {
    if name == "authorization" { "API key".to_owned() } else { format!("extra header {}", one_line(name)) }
}

fn status(response: &Response) -> u16 {
    response.ext().get::<Status>().map_or(response.status() as u16, |status| status.0)
}

/// No answer came.
fn unsent(error: &surf::Error) -> Failure {
    let (kind, transient, reason) = match error.downcast_ref::<Fault>() {
        Some(fault) => (fault.error_kind(), fault.kind == FaultKind::Broken, fault.reason.clone()),
        None => (ChatErrorKind::Connect, false, error.to_string()),
    };
    let message = format!("provider request failed: {}", one_line(&reason));
    Failure { error: ChatError::new(kind, message), transient, wait: None }
}

/// The answer is an error: its status and the provider's own words.
async fn refusal(status: u16, mut response: Response) -> Failure {
    let asked = |name: &str| response.header(name).map(|values| values.as_str().to_owned());
    let (ms, after) = (asked("retry-after-ms"), asked("retry-after"));
    let wait = retry::asked_wait(ms.as_deref(), after.as_deref(), SystemTime::now());
    let mut body = Vec::new();
    let read = async {
        // What came before a failure is as good as it gets.
        let _ = response.take_body().take(ERROR_BODY_BYTES_MAX).read_to_end(&mut body).await;
    };
    let timeout = async {
        Timer::after(ERROR_BODY_TIMEOUT).await;
    };
    future::or(read, timeout).await;
    let complaint = Complaint::from_body(&body);
    let mut error = status_error(status, complaint.message.as_deref());
    if response.ext().get::<ByProxy>().is_some() {
        // Only 407 is surely the proxy's own; else who answered cannot be told from here.
        error.message = match status {
            407 => "provider request failed: proxy: refused with status 407 (it wants a name and a password)"
                .into(),
            _ => format!("{} (through the proxy)", error.message),
        };
    }
    Failure { error, transient: retry::status_is_transient(status, &complaint.codes), wait }
}

fn status_error(status: u16, words: Option<&str>) -> ChatError {
    let mut message = format!("provider returned HTTP status {status}");
    if let Some(words) = words {
        message.push_str(": ");
        message.push_str(words);
    }
    ChatError::new(ChatErrorKind::Status(status), message)
}

/// A random number for jitter and made-up ids; the standard library seeds its hashers well enough.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
