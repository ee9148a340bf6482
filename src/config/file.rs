//! config.toml: written once when absent, read at every start, never overwritten.
//!
//! Wrong syntax or types are one error with a line number; keys nobody knows are one warning.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    time::Duration,
};

use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use super::{ConfigError, Home, Limits, Llm, Secret, Settings, home, limits::LimitsTable};

/// The published file, byte for byte.
pub const TEMPLATE: &str = r#"system_prompt = "You can access computer resources. Use the provided tools to achieve the user's requirements. When needed, use cmd to read a relevant skill's SKILL.md."

[llm]
base_url = "https://openrouter.ai/api/v1"
model = ""
api_key_env = "OPENROUTER_API_KEY"
# Optional reasoning effort sent as the OpenAI Chat Completions "reasoning_effort"
# field, e.g. "low", "medium", "high". Omit or leave unset to send no effort.
# Use a value your provider and model support; an unsupported value fails at runtime.
# effort = "medium"
"#;

const SYSTEM_PROMPT: &str = "You can access computer resources. Use the provided tools to achieve the user's \
                             requirements. When needed, use cmd to read a relevant skill's SKILL.md.";
const BASE_URL: &str = "https://openrouter.ai/api/v1";
/// The variable read when `api_key_env` is left out; not the template's (published).
const API_KEY_ENV: &str = "OPENAI_API_KEY";
const FILE_MODE: u32 = 0o600;
/// Larger than any sensible file, small enough to read by mistake.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Headers that are the request's own.
const RESERVED_HEADERS: [&str; 9] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "transfer-encoding",
];

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    system_prompt: Option<String>,
    llm: LlmTable,
    limits: LimitsTable,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LlmTable {
    base_url: Option<String>,
    model: Option<String>,
    api_key_env: Option<String>,
    effort: Option<String>,
    timeout_secs: Option<u32>,
    data_timeout_secs: Option<u32>,
    max_retries: Option<u32>,
    extra_headers: BTreeMap<String, String>,
    usage: bool,
}

/// Writes the template if there is no config.toml, whole or not at all: a start that loses the race
/// finds the winner's file complete.
pub fn bootstrap(home: &Home) -> Result<(), ConfigError> {
    home::private_dir(home.root())
        .map_err(|e| ConfigError::new("configuration file error").cause(home.root(), &e))?;
    let path = home.config_file();
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    // The published variable: a template that holds its value would be a leak.
    if std::env::var("OPENROUTER_API_KEY").is_ok_and(|key| !key.is_empty() && TEMPLATE.contains(&key)) {
        return Err(ConfigError::new("configuration bootstrap rejected"));
    }
    let failed = |e: &io::Error| ConfigError::new("unable to create config.toml").cause(&path, e);
    let mut draft = tempfile::Builder::new()
        .prefix(".config-")
        .permissions(fs::Permissions::from_mode(FILE_MODE))
        .tempfile_in(home.root())
        .map_err(|e| failed(&e))?;
    draft
        .write_all(TEMPLATE.as_bytes())
        .and_then(|()| draft.as_file().sync_data())
        .map_err(|e| failed(&e))?;
    match draft.persist_noclobber(&path) {
        Err(lost) if lost.error.kind() != io::ErrorKind::AlreadyExists => Err(failed(&lost.error)),
        _ => Ok(()),
    }
}

/// The settings of config.toml, and a warning where it holds keys that mean nothing.
pub fn load(home: &Home) -> Result<(Settings, Option<String>), ConfigError> {
    let path = home.config_file();
    match read(&path)? {
        Some(text) => {
            let (settings, unknown) = parse(&text)?;
            Ok((settings, unknown.map(|keys| format!("{}: unknown keys ignored: {keys}", path.display()))))
        }
        None => Ok((Settings::default(), None)),
    }
}

fn read(path: &std::path::Path) -> Result<Option<String>, ConfigError> {
    let failed = |message, e: &io::Error| ConfigError::new(message).cause(path, e);
    // Non-blocking, so that a FIFO in its place is refused instead of waited for.
    let open =
        fs::OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path);
    let file = match open {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed("unable to read config.toml", &e)),
    };
    let found = file.metadata().map_err(|e| failed("configuration file error", &e))?;
    if !found.is_file() || !home::owned_by_us(&found) {
        return Err(ConfigError::new("configuration file error")
            .hint(format!("{} is not a regular file of this user", path.display())));
    }
    if found.permissions().mode() & 0o777 != FILE_MODE {
        file.set_permissions(fs::Permissions::from_mode(FILE_MODE))
            .map_err(|e| failed("unable to secure config.toml", &e))?;
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|e| failed("unable to read config.toml", &e))?;
    Ok(Some(text))
}

/// Settings from the text of a file, and the unknown keys with their lines.
fn parse(text: &str) -> Result<(Settings, Option<String>), ConfigError> {
    let mut unknown = Vec::new();
    let file: File = toml::Deserializer::parse(text)
        .and_then(|document| serde_ignored::deserialize(document, |key| unknown.push(key.to_string())))
        .map_err(|error| invalid(text, &error))?;
    let unknown: Vec<String> =
        unknown.into_iter().map(|key| format!("{key} (line {})", line_of_key(text, &key))).collect();
    Ok((settings(file)?, (!unknown.is_empty()).then(|| unknown.join(", "))))
}

fn settings(file: File) -> Result<Settings, ConfigError> {
    let trimmed =
        |value: Option<String>, default: &str| value.map_or(default.to_owned(), |v| v.trim().to_owned());
    let llm = file.llm;
    let timeout = seconds("llm.timeout_secs", llm.timeout_secs, 60)?;
    let data_timeout = seconds("llm.data_timeout_secs", llm.data_timeout_secs, 600)?;
    Ok(Settings {
        system_prompt: file.system_prompt.unwrap_or_else(|| SYSTEM_PROMPT.to_owned()),
        llm: Llm {
            base_url: trimmed(llm.base_url, BASE_URL),
            model: trimmed(llm.model, ""),
            api_key_env: trimmed(llm.api_key_env, API_KEY_ENV),
            effort: llm.effort,
            timeout,
            data_timeout,
            max_retries: llm.max_retries.unwrap_or(2).min(10),
            extra_headers: extra_headers(llm.extra_headers)?,
            usage: llm.usage,
        },
        limits: Limits::from_table(&file.limits)
            .map_err(|setting| ConfigError::new(format!("limits.{setting} must be at least 1")))?,
    })
}

impl Default for Settings {
    /// What an empty file gives.
    fn default() -> Self {
        settings(File::default()).expect("the defaults are valid")
    }
}

fn seconds(setting: &str, given: Option<u32>, default: u64) -> Result<Duration, ConfigError> {
    match given {
        Some(0) => Err(ConfigError::new(format!("{setting} must be at least 1"))),
        given => Ok(Duration::from_secs(given.map_or(default, u64::from))),
    }
}

fn extra_headers(headers: BTreeMap<String, String>) -> Result<Vec<(String, Secret)>, ConfigError> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    headers
        .into_iter()
        .map(|(name, value)| {
            if name.is_empty() || !name.bytes().all(token) {
                Err(ConfigError::new("llm.extra_headers has an invalid header name"))
            } else if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
                Err(ConfigError::new(format!("llm.extra_headers must not set {name}")))
            } else if !value.bytes().all(|b| (0x20..0x7f).contains(&b)) {
                Err(ConfigError::new(format!("llm.extra_headers has an invalid value for {name}")))
            } else {
                Ok((name, Secret::new(value)))
            }
        })
        .collect()
}

/// The published message with a hint that says where; never with a value out of the file.
fn invalid(text: &str, error: &toml::de::Error) -> ConfigError {
    let message = error.message().lines().next().unwrap_or_default();
    let why = if message.starts_with("invalid type") || message.starts_with("invalid value") {
        "wrong type of value"
    } else {
        message
    };
    let line = error.span().map_or(1, |span| line_at(text, span.start));
    ConfigError::new("unable to parse config.toml: invalid TOML").hint(format!("line {line}: {why}"))
}

fn line_at(text: &str, byte: usize) -> usize {
    1 + text.as_bytes()[..byte.min(text.len())].iter().filter(|&&b| b == b'\n').count()
}

/// The line on which a dotted key stands. The text parsed before, so it parses here.
fn line_of_key(text: &str, dotted: &str) -> usize {
    let Ok(document) = DeTable::parse(text) else { return 1 };
    let mut table = document.get_ref();
    let mut line = 1;
    for part in dotted.split('.') {
        let Some((key, value)) = table.get_key_value(part) else { break };
        line = line_at(text, key.span().start);
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        let error = parse(text).map(|_| ()).unwrap_err();
        format!("{error} | {}", error.hint_text().unwrap_or_default())
    }

    #[test]
    fn the_template_gives_the_published_settings() {
        let (settings, unknown) = parse(TEMPLATE).unwrap();
        assert_eq!(unknown, None);
        assert_eq!(settings.system_prompt, SYSTEM_PROMPT);
        assert_eq!(settings.llm.base_url, BASE_URL);
        assert_eq!(settings.llm.api_key_env, "OPENROUTER_API_KEY");
        assert_eq!((settings.llm.model.as_str(), settings.llm.effort), ("", None));
    }

    #[test]
    fn an_empty_file_takes_the_defaults() {
        let (settings, _) = parse("").unwrap();
        assert_eq!(settings.llm.api_key_env, "OPENAI_API_KEY");
        assert_eq!(settings.llm.timeout, Duration::from_secs(60));
        assert_eq!(settings.limits, Limits::default());
    }

    #[test]
    fn unknown_keys_are_named_with_their_lines() {
        let (_, unknown) = parse("a = 1\n[llm]\nmodel = \"m\"\ntemperature = 1\n[new]\nx = 2\n").unwrap();
        assert_eq!(unknown.unwrap(), "a (line 1), llm.temperature (line 4), new (line 5)");
    }

    #[test]
    fn faults_name_the_place_and_never_the_value() {
        assert_eq!(
            error("\n[llm]\nmodel = 5\n"),
            "unable to parse config.toml: invalid TOML | line 3: wrong type of value"
        );
        assert!(error("x = ").starts_with("unable to parse config.toml: invalid TOML | line 1: "));
        assert_eq!(error("[limits]\nrounds = 0"), "limits.rounds must be at least 1 | ");
        assert_eq!(error("[llm]\ntimeout_secs = 0"), "llm.timeout_secs must be at least 1 | ");
        assert_eq!(
            error("[llm.extra_headers]\nAuthorization = \"x\""),
            "llm.extra_headers must not set Authorization | "
        );
        assert_eq!(
            error("[llm.extra_headers]\n\"a b\" = \"x\""),
            "llm.extra_headers has an invalid header name | "
        );
        assert_eq!(
            error("[llm.extra_headers]\nX-A = \"quiet\\nvalue\""),
            "llm.extra_headers has an invalid value for X-A | "
        );
    }

    #[test]
    fn effort_stays_verbatim() {
        assert_eq!(parse("[llm]\neffort = \" high \"").unwrap().0.llm.effort.as_deref(), Some(" high "));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn no_toml_like_text_panics(lines in proptest::collection::vec("(\\[[a-z.]{0,8}\\]|[a-z._\"]{1,8} ?= ?[0-9\"a-z\\[\\]{}]{0,8})", 0..8)) {
            let _ = parse(&lines.join("\n"));
        }
    }
}
