//! One answer, read to its end: bytes through `intake` and decoder, under three clocks.
//!
//! Silence ends it after `timeout`, chatter without data after `data_timeout`; once the reply is
//! complete, what may still follow is waited for only briefly (quirks 10, 24).

use std::{
    future::Future,
    io,
    time::{Duration, Instant},
};

use futures_lite::{AsyncBufReadExt, future};
use smol::Timer;
use surf::http::{Body, Response};

use super::{HttpModel, fault, random};
use crate::chat::{
    complaint::one_line,
    error::{ChatError, ChatErrorKind},
    intake::Intake,
    message::ToolSpec,
    model::{ModelEvent, Reply},
    retry::Failure,
    wire::{Decoder, Progress},
};

/// How long usage and `[DONE]` are waited for behind a finish reason.
const SETTLE: Duration = Duration::from_millis(250);
/// How long the end of the body is waited for, so that the connection can be used again.
const LINGER: Duration = Duration::from_millis(10);
const LINGER_READS_MAX: usize = 16;

pub struct Reading {
    body: Body,
    intake: Intake,
    decoder: Box<dyn Decoder>,
    stage: Stage,
    timeout: Duration,
    data_timeout: Duration,
    last_data: Instant,
    settle_by: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Body,
    /// The body is over; pending frames are not.
    Tail,
    Closed,
}

impl Reading {
    pub fn new(model: &HttpModel, tools: &[ToolSpec], mut answer: Response) -> Self {
        Self {
            body: answer.take_body(),
            intake: Intake::new(&model.limits),
            decoder: model.protocol.decoder(tools, &model.limits, random()),
            stage: Stage::Body,
            timeout: model.timeout,
            data_timeout: model.data_timeout,
            last_data: Instant::now(),
            settle_by: None,
        }
    }

    /// The next event; none at the end of a complete reply.
    pub async fn next(&mut self, reply: &mut Reply) -> Result<Option<ModelEvent>, Failure> {
        // The time between two calls is the listener's, not the provider's.
        self.last_data = Instant::now();
        loop {
            let event = match self.stage {
                Stage::Closed => return Ok(None),
                _ if self.decoder.progress() == Progress::Done => {
                    self.linger().await;
                    self.stage = Stage::Closed;
                    self.decoder.finish(reply)?
                }
                Stage::Body => self.take_in(reply).await?,
                Stage::Tail => self.take_tail(reply)?,
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Waits for bytes and feeds them on, up to the first event.
    async fn take_in(&mut self, reply: &mut Reply) -> Result<Option<ModelEvent>, Failure> {
        let settling = self.decoder.progress() == Progress::Settling;
        let now = Instant::now();
        let deadline = if settling {
            *self.settle_by.get_or_insert(now + SETTLE)
        } else {
            later(now, self.timeout).min(later(self.last_data, self.data_timeout))
        };
        // A body that always has bytes never lets the timer win.
        let bytes = if now < deadline { until(deadline, self.body.fill_buf()).await } else { None };
        let bytes = match bytes {
            Some(Ok(bytes)) => bytes,
            _ if settling => &[],
            Some(Err(error)) => return Err(broken_off(&error)),
            None => return Err(self.timed_out()),
        };
        if bytes.is_empty() {
            self.stage = Stage::Tail;
            return Ok(None);
        }
        let mut input = bytes;
        let mut event = None;
        while event.is_none() && self.decoder.progress() != Progress::Done {
            let Some(frame) = self.intake.next(&mut input)? else { break };
            if !matches!(frame.data.trim_start().as_bytes(), [] | [b':', ..]) {
                self.last_data = Instant::now();
            }
            event = self.decoder.push(frame, reply)?;
        }
        let used = bytes.len() - input.len();
        self.body.consume(used);
        Ok(event)
    }

    fn take_tail(&mut self, reply: &mut Reply) -> Result<Option<ModelEvent>, Failure> {
        if let Some(frame) = self.intake.finish()? {
            return match self.decoder.push(frame, reply) {
                // A frame that was cut off says nothing; what the reply lacks is judged below.
                Err(failure) if failure.error.kind == ChatErrorKind::Stream => Ok(None),
                event => event,
            };
        }
        self.stage = Stage::Closed;
        self.decoder.finish(reply)
    }

    async fn linger(&mut self) {
        let end = async {
            for _ in 0..LINGER_READS_MAX {
                match self.body.fill_buf().await {
                    Ok(bytes) if !bytes.is_empty() => {
                        let length = bytes.len();
                        self.body.consume(length);
                    }
                    _ => return,
                }
            }
        };
        until(Instant::now() + LINGER, end).await;
    }

    fn timed_out(&self) -> Failure {
        let (what, setting, limit) = if self.last_data.elapsed() >= self.data_timeout {
            ("no data event", "data_timeout_secs", self.data_timeout)
        } else {
            ("no byte", "timeout_secs", self.timeout)
        };
        let seconds = limit.as_secs_f64();
        let message =
            format!("unable to read provider stream: {what} within {seconds} s (setting: [llm] {setting})");
        ChatError::new(ChatErrorKind::Timeout, message).into()
    }
}

fn broken_off(error: &io::Error) -> Failure {
    let reason = one_line(&fault::reason(error));
    ChatError::new(ChatErrorKind::Stream, format!("unable to read provider stream: {reason}")).into()
}

/// A setting may be larger than the clock can count.
fn later(start: Instant, wait: Duration) -> Instant {
    start.checked_add(wait).unwrap_or(start + Duration::from_secs(1 << 30))
}

/// `work`, unless the deadline comes first.
async fn until<T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    let timer = async {
        Timer::at(deadline).await;
        None
    };
    future::or(async { Some(work.await) }, timer).await
}
