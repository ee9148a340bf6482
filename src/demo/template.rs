//! Placeholders in header values and templated bodies: `{{port}}`, `{{auth}}`, `{{httpdate+N}}`.

use std::time::{SystemTime, UNIX_EPOCH};

use super::request::Request;

/// What the placeholders stand for.
pub(super) struct Filler<'a> {
    pub port: u16,
    pub request: &'a Request,
}

impl Filler<'_> {
    /// `text` with its placeholders filled in.
    pub fn fill(&self, text: &str) -> String {
        if !text.contains("{{") {
            return text.into();
        }
        let text = text.replace("{{port}}", &self.port.to_string()).replace("{{auth}}", self.credentials());
        fill_dates(&text, unix_seconds())
    }

    fn credentials(&self) -> &str {
        let header =
            if self.request.headers.contains_key("authorization") { "authorization" } else { "x-api-key" };
        let value = self.request.header(header);
        value.strip_prefix("Bearer ").unwrap_or(value)
    }
}

fn fill_dates(text: &str, now: u64) -> String {
    const OPEN: &str = "{{httpdate+";
    let mut parts = text.split(OPEN);
    let mut filled = parts.next().unwrap_or("").to_string();
    for part in parts {
        let date = part.split_once("}}").and_then(|(seconds, rest)| Some((seconds.parse().ok()?, rest)));
        match date {
            Some((seconds, rest)) => filled.extend([&http_date(now.saturating_add(seconds)), rest]),
            None => filled.extend([OPEN, part]),
        }
    }
    filled
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The date form of HTTP headers. Days become a date by the civil-from-days arithmetic over
/// 400-year eras that begin in March, so that the leap day is the last of its year.
fn http_date(unix_seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    let (weekday, month) = (DAYS[(days % 7) as usize], MONTHS[month as usize]);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders() {
        let mut request = Request::post("/", Vec::new());
        let fill = |request: &Request, text: &str| Filler { port: 81, request }.fill(text);
        assert_eq!(fill(&request, "a{{port}}b{{auth}}c{{other}}"), "a81bc{{other}}");
        request.headers.insert("x-api-key".into(), "k1".into());
        assert_eq!(fill(&request, "{{auth}}"), "k1");
        request.headers.insert("authorization".into(), "Bearer k2".into());
        assert_eq!(fill(&request, "<{{auth}}>"), "<k2>");
    }

    #[test]
    fn dates() {
        assert_eq!(
            fill_dates("x {{httpdate+10}} {{httpdate+x}}", 0),
            "x Thu, 01 Jan 1970 00:00:10 GMT {{httpdate+x}}"
        );
        for (seconds, date) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(seconds), date);
        }
    }
}
