//! Every bound of the program, with the published number as its default (contract section 0).
//!
//! An error that a bound causes names the setting, so each bound is reached through a [`Limit`] that
//! knows its own name in `[limits]`.

use std::time::Duration;

use serde::Deserialize;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// A bound and the `[limits]` key that moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub max: usize,
    pub setting: &'static str,
}

impl Limit {
    /// Whether `amount` is past the bound.
    pub fn exceeded_by(&self, amount: usize) -> bool {
        amount > self.max
    }
}

/// The bounds in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one SSE line before its LF.
    pub sse_line: Limit,
    /// Bytes of the joined data of one SSE event.
    pub sse_event: Limit,
    /// `data` lines in one SSE event.
    pub sse_event_lines: Limit,
    /// Bytes of one whole response body.
    pub stream: Limit,
    /// Bytes of assistant text in one reply.
    pub text: Limit,
    /// Bytes of tool arguments, summed over the calls of one reply.
    pub arguments: Limit,
    /// Bytes of a tool-call id, and of a name.
    pub call_name: Limit,
    /// Bytes of reasoning metadata as JSON in one reply.
    pub reasoning: Limit,
    /// Bytes of a provider's error text inside a stream.
    pub error_text: Limit,
    /// Replies with tool calls per input message.
    pub rounds: Limit,
    /// Tool calls per input message, and per reply.
    pub calls: Limit,
    /// Bytes kept of each of a command's output streams.
    pub capture: Limit,
    /// Bytes of one input record, and of the records read ahead.
    pub input: Limit,
    /// How long one command may run.
    pub command_timeout: Duration,
    /// How long a command's output may take to end after its shell did.
    pub capture_grace: Duration,
}

/// `[limits]` as written in config.toml: whole numbers, all optional, none zero.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LimitsTable {
    sse_line_kib: Option<u32>,
    sse_event_kib: Option<u32>,
    sse_event_lines: Option<u32>,
    stream_mib: Option<u32>,
    text_kib: Option<u32>,
    arguments_kib: Option<u32>,
    call_name_kib: Option<u32>,
    reasoning_kib: Option<u32>,
    error_text_kib: Option<u32>,
    rounds: Option<u32>,
    calls: Option<u32>,
    capture_kib: Option<u32>,
    input_mib: Option<u32>,
    command_timeout_secs: Option<u32>,
    capture_grace_ms: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self::from_table(&LimitsTable::default()).expect("the published numbers are valid")
    }
}

impl Limits {
    /// The published numbers with those of `table` in their place. `Err` names a setting that is
    /// zero or too large for this machine.
    pub fn from_table(table: &LimitsTable) -> Result<Self, &'static str> {
        let limit = |setting, value: Option<u32>, default: u32, unit: usize| match value {
            Some(0) => Err(setting),
            given => (given.unwrap_or(default) as usize)
                .checked_mul(unit)
                .map(|max| Limit { max, setting })
                .ok_or(setting),
        };
        let timeout = limit("command_timeout_secs", table.command_timeout_secs, 600, 1)?;
        let grace = limit("capture_grace_ms", table.capture_grace_ms, 100, 1)?;
        Ok(Self {
            sse_line: limit("sse_line_kib", table.sse_line_kib, 64, KIB)?,
            sse_event: limit("sse_event_kib", table.sse_event_kib, 1024, KIB)?,
            sse_event_lines: limit("sse_event_lines", table.sse_event_lines, 1024, 1)?,
            stream: limit("stream_mib", table.stream_mib, 8, MIB)?,
            text: limit("text_kib", table.text_kib, 1024, KIB)?,
            arguments: limit("arguments_kib", table.arguments_kib, 1024, KIB)?,
            call_name: limit("call_name_kib", table.call_name_kib, 16, KIB)?,
            reasoning: limit("reasoning_kib", table.reasoning_kib, 1024, KIB)?,
            error_text: limit("error_text_kib", table.error_text_kib, 16, KIB)?,
            rounds: limit("rounds", table.rounds, 32, 1)?,
            calls: limit("calls", table.calls, 64, 1)?,
            capture: limit("capture_kib", table.capture_kib, 64, KIB)?,
            input: limit("input_mib", table.input_mib, 16, MIB)?,
            command_timeout: Duration::from_secs(timeout.max as u64),
            capture_grace: Duration::from_millis(grace.max as u64),
        })
    }
}

// A line has to fit its event and an event its stream, or the inner bound could never be met.
const _: () = assert!(64 * KIB <= 1024 * KIB && 1024 * KIB <= 8 * MIB);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_numbers_are_the_defaults() {
        let limits = Limits::default();
        assert_eq!(limits.sse_line, Limit { max: 65_536, setting: "sse_line_kib" });
        assert_eq!(limits.stream.max, 8_388_608);
        assert_eq!((limits.rounds.max, limits.calls.max), (32, 64));
        assert_eq!(limits.command_timeout, Duration::from_secs(600));
        assert_eq!(limits.capture_grace, Duration::from_millis(100));
    }

    #[test]
    fn zero_is_refused_by_name() {
        let table = LimitsTable { rounds: Some(0), ..LimitsTable::default() };
        assert_eq!(Limits::from_table(&table), Err("rounds"));
    }
}
