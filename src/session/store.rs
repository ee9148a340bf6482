//! Opens sessions: a new one from today's settings, or an old one from its own snapshot.
//!
//! The order of checks is published (contract section 2): nothing is written under `sessions/` until all
//! of them passed.

use std::{
    env,
    path::{Path, PathBuf},
    process,
};

use async_channel::Receiver;

use super::{
    credentials::{key_from_env, redactor, secrets_for},
    history::History,
    key_rules::check_key,
    log::{Log, LogError, Tail},
    lucy_log, reader,
    reader::{Found, ReadError},
    record::{Header, is_session_id},
    recorder::{Delivery, Recorder},
    redact::Redactor,
    run::Session,
    turn::Engine,
    unix_ms,
};
use crate::{
    chat::{error::ChatError, transport::HttpModel},
    config::{self, ConfigError, Home, Limits, Llm, Secret, Settings},
    context::{self, ContextError, Places},
    shell::Shell,
    tools::ToolSet,
};

/// Tries to find a free id before giving up (published).
const ID_TRIES: u32 = 16;

/// A session that is ready to run.
pub struct Opened {
    pub session: Session,
    /// What the session says; drained by a front until it ends.
    pub events: Receiver<Delivery>,
}

/// Why a session could not be opened: one line, perhaps a hint.
#[derive(Debug)]
pub struct OpenError {
    pub kind: OpenErrorKind,
    pub message: String,
    pub hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    Config,
    Credentials,
    /// Not found, in use, or unusable.
    Session,
    Storage,
}

impl OpenError {
    fn new(kind: OpenErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl From<ConfigError> for OpenError {
    fn from(error: ConfigError) -> Self {
        let hint = error.hint_text().map(str::to_owned);
        Self { hint, ..Self::new(OpenErrorKind::Config, error.to_string()) }
    }
}

impl From<ContextError> for OpenError {
    fn from(error: ContextError) -> Self {
        let hint = Some(error.hint());
        Self { hint, ..Self::new(OpenErrorKind::Config, error.to_string()) }
    }
}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> Self {
        let kind = match error {
            LogError::NotFound | LogError::InUse { .. } | LogError::NotPrivate => OpenErrorKind::Session,
            LogError::Rejected => OpenErrorKind::Credentials,
            LogError::Storage(_) => OpenErrorKind::Storage,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<ReadError> for OpenError {
    fn from(error: ReadError) -> Self {
        let kind = match error {
            ReadError::SecretInHeader | ReadError::SecretInRecord => OpenErrorKind::Credentials,
            ReadError::Io(_) => OpenErrorKind::Storage,
            _ => OpenErrorKind::Session,
        };
        Self::new(kind, error.to_string())
    }
}

/// Starts a session. `given_key` replaces the environment's (the demo has none); `protect` learns the
/// key before anything can fail with it in a message.
pub fn create(
    home: &Home,
    settings: Settings,
    given_key: Option<Secret>,
    protect: impl FnOnce(&Secret),
) -> Result<Opened, OpenError> {
    let Settings { system_prompt, llm, limits } = settings;
    llm.check_endpoint()?;
    let key = given_key.map_or_else(|| required_key(&llm.api_key_env), Ok)?;
    check(&key)?;
    protect(&key);
    llm.check_model()?;
    let redactor = redactor(&key, &llm);
    let model = http_model(&llm, &key, &limits)?;
    let cwd = session_cwd()?;
    let places = Places { lucy_home: home.root(), home: home.user(), cwd: &cwd };
    let context = context::build(&places, &system_prompt)?;
    let mut header = Header {
        session_id: String::new(),
        created_at: unix_ms(),
        cwd: utf8(&cwd)?,
        boot_system_prompt: redactor.text(&context.system_prompt).into_owned(),
        base_url: llm.base_url,
        model: llm.model,
        api_key_env: llm.api_key_env,
        effort: llm.effort,
    };
    let log = create_log(home, &mut header, &redactor)?;
    let tools = toolset(&header, cwd, &limits, &redactor);
    let (recorder, events) = Recorder::new(redactor, log, History::default());
    let engine = Engine { model, tools, header, limits };
    Ok(Opened { session: Session { engine, recorder, resumed: false, warnings: Vec::new() }, events })
}

/// Continues session `id` from its snapshot. Only bounds and timeouts are today's; a config.toml that
/// cannot be read costs one warning (contract section 0).
pub fn resume(home: &Home, id: &str, protect: impl FnOnce(&Secret)) -> Result<Opened, OpenError> {
    if !is_session_id(id) {
        return Err(OpenError::new(OpenErrorKind::Session, "session id contains invalid characters"));
    }
    let mut log = Log::open(&home.sessions(), id)?;
    let mut history = History::default();
    let source = log.reader().map_err(ReadError::Io)?;
    let found =
        reader::read(source, id, |header| secrets_for(header, None), |record| history.apply(&record))?;
    let key = required_key(&found.header.api_key_env)?;
    check(&key)?;
    protect(&key);
    log.set_tail(found.tail);
    let mut warnings = damage(&found);
    let (settings, config_warning) = todays_settings(home);
    warnings.extend(config_warning);
    let header = found.header;
    let llm = Llm {
        base_url: header.base_url.clone(),
        model: header.model.clone(),
        api_key_env: header.api_key_env.clone(),
        effort: header.effort.clone(),
        ..settings.llm
    };
    let redactor = redactor(&key, &llm);
    let model = http_model(&llm, &key, &settings.limits)?;
    let cwd = resumed_cwd(&header, &mut warnings)?;
    let tools = toolset(&header, cwd, &settings.limits, &redactor);
    let (recorder, events) = Recorder::new(redactor, log, history);
    let engine = Engine { model, tools, header, limits: settings.limits };
    Ok(Opened { session: Session { engine, recorder, resumed: true, warnings }, events })
}

/// The key that `name` holds, or the published complaint, which never names the variable.
fn required_key(name: &str) -> Result<Secret, OpenError> {
    key_from_env(name).ok_or_else(|| {
        OpenError::new(OpenErrorKind::Credentials, "missing provider API key")
            .hint("export the variable that api_key_env names; without a key, try: lucy demo")
    })
}

fn check(key: &Secret) -> Result<(), OpenError> {
    check_key(key.expose(), ToolSet::descriptions())
        .map_err(|refused| OpenError::new(OpenErrorKind::Credentials, refused.message).hint(refused.hint))
}

fn http_model(llm: &Llm, key: &Secret, limits: &Limits) -> Result<Box<HttpModel>, OpenError> {
    let failed = |error: ChatError| {
        OpenError::new(OpenErrorKind::Config, "unable to initialize HTTP client").hint(error.message)
    };
    HttpModel::new(llm, key.clone(), limits.clone()).map(Box::new).map_err(failed)
}

fn toolset(header: &Header, cwd: PathBuf, limits: &Limits, redactor: &Redactor) -> ToolSet {
    ToolSet::new(Shell {
        cwd,
        removed_env: header.api_key_env.clone(),
        timeout: limits.command_timeout,
        grace: limits.capture_grace,
        capture: limits.capture,
        secrets: redactor.secrets().to_vec(),
    })
}

fn session_cwd() -> Result<PathBuf, OpenError> {
    let config = |message: &str| OpenError::new(OpenErrorKind::Config, message);
    let cwd = env::current_dir().map_err(|error| config("unable to resolve cwd").hint(error.to_string()))?;
    cwd.canonicalize().map_err(|error| config("unable to resolve session cwd").hint(error.to_string()))
}

fn utf8(path: &Path) -> Result<String, OpenError> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        OpenError::new(OpenErrorKind::Config, "unable to resolve session cwd")
            .hint("the folder's name is not UTF-8")
    })
}

/// The saved folder, or this one when it is gone; the header is not rewritten.
fn resumed_cwd(header: &Header, warnings: &mut Vec<String>) -> Result<PathBuf, OpenError> {
    let saved = PathBuf::from(&header.cwd);
    if saved.is_dir() {
        return Ok(saved);
    }
    let cwd = session_cwd()?;
    warnings.push(format!("{} is gone; commands run in {}", saved.display(), cwd.display()));
    Ok(cwd)
}

/// A file with its header in it and an id nobody has.
fn create_log(home: &Home, header: &mut Header, redactor: &Redactor) -> Result<Log, OpenError> {
    let failed = |error: LogError| {
        OpenError::new(OpenErrorKind::Storage, "unable to create session file").hint(error.to_string())
    };
    config::private_dir(home.root()).map_err(|error| failed(error.into()))?;
    for counter in 0..ID_TRIES {
        header.session_id = format!("{}-{}-{counter}", header.created_at, process::id());
        let mut line = Vec::new();
        lucy_log::encode_header(header, &mut line);
        if redactor.finds_secret(&line) {
            return Err(OpenError::new(OpenErrorKind::Credentials, "session header rejected")
                .hint("the key stands in the cwd, the settings or the session id"));
        }
        match Log::create(&home.sessions(), &header.session_id) {
            Ok(mut log) => {
                if let Err(error) = log.append(&line) {
                    log.discard();
                    return Err(failed(error));
                }
                return Ok(log);
            }
            Err(LogError::Storage(error)) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(OpenError::new(OpenErrorKind::Storage, "unable to allocate a unique session id"))
}

fn todays_settings(home: &Home) -> (Settings, Option<String>) {
    match config::load(home) {
        Ok(loaded) => loaded,
        Err(error) => {
            let hint = error.hint_text().map(|hint| format!(" ({hint})")).unwrap_or_default();
            (Settings::default(), Some(format!("{error}{hint}; defaults are used")))
        }
    }
}

/// What was wrong with the file, one line each.
fn damage(found: &Found) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(first) = found.damaged.first() {
        let count = found.damaged.len();
        warnings.push(match count {
            1 => format!("session record at line {first} is damaged and was left out"),
            _ => format!("{count} session records are damaged and were left out, the first at line {first}"),
        });
    }
    if found.unknown > 0 {
        warnings.push(match found.unknown {
            1 => "a session record of an unknown kind was left out".to_owned(),
            count => format!("{count} session records of unknown kinds were left out"),
        });
    }
    if let Tail::Torn { bytes } = found.tail {
        warnings.push(format!(
            "the last session record was cut off ({bytes} bytes) and was left out; it moves to the recovery folder"
        ));
    }
    warnings
}
