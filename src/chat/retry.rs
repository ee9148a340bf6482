//! When to ask again, and how long to wait first. Pure: no clock, no sockets.
//!
//! `transport` reports each failed attempt as a [`Failure`]; [`Schedule`] decides. What counts as
//! transient is quirks 35 to 43 and the decisions of contract section 0.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::ChatError;

/// Longest wait a provider may ask for; a longer ask is told to the person instead (quirk 39).
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The first backoff is a random part of this; it doubles with each attempt.
const BACKOFF: Duration = Duration::from_millis(500);

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub error: ChatError,
    /// Whether the same request may well succeed later.
    pub transient: bool,
    /// How long the provider asked to wait.
    pub wait: Option<Duration>,
}

impl From<ChatError> for Failure {
    fn from(error: ChatError) -> Self {
        Self { error, transient: false, wait: None }
    }
}

/// The attempts of one request.
#[derive(Debug)]
pub struct Schedule {
    retries_max: u32,
    retries: u32,
}

/// The decision to try again.
#[derive(Debug, PartialEq, Eq)]
pub struct Again {
    /// Counts from 1.
    pub attempt: u32,
    pub wait: Duration,
    pub error: ChatError,
}

impl Schedule {
    pub fn new(retries_max: u32) -> Self {
        Self { retries_max, retries: 0 }
    }

    /// What follows from `failure`. `jitter` is a random number from 0 to 1.
    pub fn after(&mut self, failure: Failure, jitter: f64) -> Result<Again, ChatError> {
        let Failure { mut error, transient, wait } = failure;
        if !transient {
            return Err(error);
        }
        if let Some(wait) = wait.filter(|wait| *wait > WAIT_MAX) {
            error.message = format!("{} (the provider asks to come back in {})", error.message, spoken(wait));
            return Err(error);
        }
        if self.retries >= self.retries_max {
            return Err(error);
        }
        let backoff = BACKOFF.saturating_mul(1 << self.retries.min(8)).min(WAIT_MAX);
        self.retries += 1;
        let wait = wait.unwrap_or_else(|| backoff.mul_f64(jitter.clamp(0.0, 1.0)));
        Ok(Again { attempt: self.retries, wait, error })
    }
}

fn spoken(wait: Duration) -> String {
    match wait.as_secs() {
        0..120 => format!("{} s", wait.as_secs()),
        seconds @ 120..7_200 => format!("{} min", seconds.div_ceil(60)),
        seconds @ 7_200..172_800 => format!("{} h", seconds.div_ceil(3_600)),
        seconds => format!("{} days", seconds.div_ceil(86_400)),
    }
}

/// Codes that say a 429 is about money, which no waiting brings (quirk 41).
const FINAL_CODES: &[&str] = &[
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "insufficient_balance",
    "insufficient_credits",
    "credit_balance_too_low",
    "quota_exceeded",
];

/// Codes inside a 200 answer that pass.
const PASSING_CODES: &[&str] = &[
    "rate_limit_exceeded",
    "rate_limit_error",
    "overloaded_error",
    "overloaded",
    "server_is_overloaded",
    "server_error",
    "internal_error",
    "internal_server_error",
    "service_unavailable",
    "bad_gateway",
    "timeout",
    "timeout_error",
    "api_error",
    // A slip of the model, not of the request (quirk 43).
    "tool_use_failed",
];

/// Whether an HTTP status, with the codes of its body, passes by itself.
pub fn status_is_transient(status: u16, codes: &[String]) -> bool {
    if has_any(codes, FINAL_CODES) {
        return false;
    }
    matches!(status, 408 | 409 | 425 | 429 | 500..=599) || has_any(codes, &["tool_use_failed"])
}

/// Whether an error inside a 200 answer passes by itself: its codes are read like statuses too.
pub fn codes_are_transient(codes: &[String]) -> bool {
    let numbers = codes.iter().filter_map(|code| code.parse().ok());
    !has_any(codes, FINAL_CODES)
        && (has_any(codes, PASSING_CODES) || numbers.into_iter().any(|n| status_is_transient(n, &[])))
}

fn has_any(codes: &[String], known: &[&str]) -> bool {
    codes.iter().any(|code| known.iter().any(|k| k.eq_ignore_ascii_case(code)))
}

/// The wait a provider asks for: the first header that parses wins (quirks 37, 38).
pub fn asked_wait(
    retry_after_ms: Option<&str>,
    retry_after: Option<&str>,
    now: SystemTime,
) -> Option<Duration> {
    let ms = retry_after_ms.and_then(number).map(|ms| ms / 1000.0);
    if let Some(seconds) = ms.or_else(|| retry_after.and_then(number)) {
        return Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    }
    let date = http_date(retry_after?)?;
    Some(date.duration_since(now).unwrap_or_default())
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, and the older `Sunday, 06-Nov-94 08:49:37 GMT`.
fn http_date(text: &str) -> Option<SystemTime> {
    let (_, date) = text.split_once(',')?;
    let mut parts = date.split([' ', '-', ':']).filter(|part| !part.is_empty());
    let day: u64 = parts.next()?.parse().ok()?;
    let name = parts.next()?.to_ascii_lowercase();
    let months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let month = months.iter().position(|m| *m == name)? as u64 + 1;
    let year = match parts.next()?.parse().ok()? {
        short @ 0..70 => 2000 + short,
        short @ 70..100 => 1900 + short,
        year => year,
    };
    let mut clock = [0u64; 3];
    for (field, bound) in clock.iter_mut().zip([24, 60, 61]) {
        *field = parts.next()?.parse().ok().filter(|n| *n < bound)?;
    }
    if !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + clock[0] * 3_600 + clock[1] * 60 + clock[2];
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Counts in years that begin in March, so that the leap day comes last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::error::ChatErrorKind;

    fn failure(transient: bool, wait: Option<u64>) -> Failure {
        let error = ChatError::new(ChatErrorKind::Status(429), "slow down");
        Failure { error, transient, wait: wait.map(Duration::from_secs) }
    }

    #[test]
    fn backoff_doubles_and_ends() {
        let mut schedule = Schedule::new(2);
        let waits: Vec<_> = (0..2).map(|_| schedule.after(failure(true, None), 1.0).unwrap().wait).collect();
        assert_eq!(waits, [Duration::from_millis(500), Duration::from_secs(1)]);
        assert_eq!(schedule.after(failure(true, None), 1.0).unwrap_err().message, "slow down");
        assert_eq!(Schedule::new(9).after(failure(true, None), 0.0).unwrap().wait, Duration::ZERO);
        assert!(Schedule::new(0).after(failure(true, None), 0.5).is_err());
        assert!(Schedule::new(9).after(failure(false, Some(1)), 0.5).is_err());
        let mut long = Schedule::new(40);
        assert!((0..40).all(|_| long.after(failure(true, None), 1.0).unwrap().wait <= WAIT_MAX));
    }

    #[test]
    fn a_provider_is_waited_for_up_to_the_cap() {
        let again = Schedule::new(1).after(failure(true, Some(7)), 0.3).unwrap();
        assert_eq!((again.attempt, again.wait), (1, Duration::from_secs(7)));
        let error = Schedule::new(1).after(failure(true, Some(86_400)), 0.3).unwrap_err();
        assert_eq!(error.message, "slow down (the provider asks to come back in 24 h)");
    }

    #[test]
    fn transient_is_a_short_list() {
        let check = |status, codes: &[&str], expected| {
            let codes: Vec<_> = codes.iter().map(ToString::to_string).collect();
            assert_eq!(status_is_transient(status, &codes), expected, "{status} {codes:?}");
        };
        for status in [408, 409, 425, 429, 500, 502, 503, 504, 520, 529] {
            check(status, &[], true);
        }
        for status in [400, 401, 402, 403, 404, 413, 422, 301, 308] {
            check(status, &[], false);
        }
        check(429, &["insufficient_quota"], false);
        check(429, &["rate_limit_exceeded"], true);
        check(400, &["invalid_request_error", "tool_use_failed"], true);
    }

    #[test]
    fn codes_in_a_stream_are_read_like_statuses() {
        let check = |codes: &[&str], expected| {
            let codes: Vec<_> = codes.iter().map(ToString::to_string).collect();
            assert_eq!(codes_are_transient(&codes), expected, "{codes:?}");
        };
        check(&["502"], true);
        check(&["400"], false);
        check(&["Overloaded_Error"], true);
        check(&["429", "insufficient_quota"], false);
        check(&[], false);
    }

    #[test]
    fn waits_are_read_in_all_forms() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let check = |ms, after, expected: Option<u64>| {
            assert_eq!(asked_wait(ms, after, now), expected.map(Duration::from_millis), "{ms:?} {after:?}");
        };
        check(Some("900"), None, Some(900));
        check(Some("soon"), Some("1"), Some(1000));
        check(None, Some("1.5"), Some(1500));
        check(None, Some("-3"), None);
        check(None, Some("NaN"), None);
        check(None, Some("later"), None);
        check(None, None, None);
        check(None, Some("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10_000));
        check(None, Some("Sunday, 06-Nov-94 08:49:47 GMT"), Some(10_000));
        check(None, Some("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        check(None, Some("Thu, 99 Foo 1970 00:00:00 GMT"), None);
        check(None, Some("Thu, 01 Jan 99999999999 00:00:00 GMT"), None);
        assert!(asked_wait(None, Some("1e300"), now).unwrap() > WAIT_MAX);
    }

    #[test]
    fn days_count_leap_years() {
        for (date, days) in
            [((1970, 1, 1), 0), ((1972, 3, 1), 790), ((2000, 2, 29), 11_016), ((2026, 12, 1), 20_788)]
        {
            assert_eq!(days_since_1970(date.0, date.1, date.2), days, "{date:?}");
        }
    }
}
