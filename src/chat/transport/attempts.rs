//! One request with its retries, as a sequence of events.
//!
//! Retries end with the first text shown. What an endpoint refuses for its form is changed and sent
//! again at once, and remembered (quirks 91, 97).

use std::time::Duration;

use bytes::Bytes;
use smol::Timer;

use super::{HttpModel, random, reading::Reading};
use crate::chat::{
    error::{ChatError, ChatErrorKind},
    model::{ModelEvent, Reply, Request},
    retry::{Failure, Schedule},
};

pub struct Attempts<'a> {
    model: &'a HttpModel,
    request: Request<'a>,
    reply: &'a mut Reply,
    body: Bytes,
    phase: Phase,
    schedule: Schedule,
    /// Text went out, so the reply can no longer start over.
    shown: bool,
    /// This request changed how missing content is written; undone if that did not help.
    content_changed: bool,
}

enum Phase {
    Send,
    Wait(Duration),
    Read(Box<Reading>),
    Over,
}

impl<'a> Attempts<'a> {
    pub fn new(model: &'a HttpModel, request: Request<'a>, reply: &'a mut Reply) -> Self {
        *reply = Reply::default();
        let schedule = Schedule::new(model.max_retries);
        let mut attempts = Self {
            model,
            request,
            reply,
            body: Bytes::new(),
            phase: Phase::Send,
            schedule,
            shown: false,
            content_changed: false,
        };
        attempts.encode();
        attempts
    }

    fn encode(&mut self) {
        let mut body = Vec::with_capacity(self.body.len().max(16 * 1024));
        self.model.protocol.encode(&self.request, self.model.dialect.get(), &mut body);
        self.body = body.into();
    }

    /// The next event; none after the last one or after an error.
    pub async fn next(&mut self) -> Option<Result<ModelEvent, ChatError>> {
        loop {
            let failure = match &mut self.phase {
                Phase::Over => return None,
                Phase::Wait(wait) => {
                    Timer::after(*wait).await;
                    self.phase = Phase::Send;
                    continue;
                }
                Phase::Send => match self.model.open(&self.body).await {
                    Ok(answer) => {
                        let reading = Reading::new(self.model, self.request.tools, answer);
                        self.phase = Phase::Read(Box::new(reading));
                        return Some(Ok(ModelEvent::Opened));
                    }
                    Err(failure) => failure,
                },
                Phase::Read(reading) => match reading.next(self.reply).await {
                    Ok(Some(event)) => {
                        self.shown = true;
                        return Some(Ok(event));
                    }
                    Ok(None) => {
                        self.phase = Phase::Over;
                        return None;
                    }
                    Err(failure) => failure,
                },
            };
            if self.adapt(&failure.error) {
                continue;
            }
            return Some(self.failed(failure));
        }
    }

    fn failed(&mut self, mut failure: Failure) -> Result<ModelEvent, ChatError> {
        self.phase = Phase::Over;
        failure.transient &= !self.shown;
        let jitter = random() as f64 / u64::MAX as f64;
        let again = self.schedule.after(failure, jitter)?;
        *self.reply = Reply::default();
        self.phase = Phase::Wait(again.wait);
        Ok(ModelEvent::Retry { attempt: again.attempt, wait: again.wait, error: again.error })
    }

    /// Whether the endpoint refused a form of the request that can be had otherwise.
    fn adapt(&mut self, error: &ChatError) -> bool {
        if !matches!(error.kind, ChatErrorKind::Status(400 | 422)) {
            return false;
        }
        let mut dialect = self.model.dialect.get();
        let has_null = memchr::memmem::find(&self.body, br#""content":null"#).is_some();
        if dialect.usage && error.message.contains("stream_options") {
            dialect.usage = false;
        } else if !dialect.empty_content && has_null && error.message.contains("content") {
            dialect.empty_content = true;
            self.content_changed = true;
        } else {
            if self.content_changed {
                dialect.empty_content = false;
                self.model.dialect.set(dialect);
            }
            return false;
        }
        self.model.dialect.set(dialect);
        self.encode();
        self.phase = Phase::Send;
        true
    }
}
