//! `lucy demo`: Lucy against the scripted provider, in one process, with a home that is thrown away.

use smol::LocalExecutor;

use super::super::{diagnostics, exit::Exit, jsonl, refuse_open};
use crate::{
    config::{Home, Secret, Settings},
    demo::{self, Answers, Server},
    session,
};

/// No secret: the demo's server takes any key.
const DEMO_KEY: &str = "demo-7h1sisn0s3cr3t";

/// Runs a session in JSONL mode against the demo provider.
pub async fn run(executor: &LocalExecutor<'_>, extended_events: bool) -> Exit {
    diagnostics::note(demo::NOTICE);
    let started = Server::bind(0, Answers::Assistant).and_then(|server| Ok((server, tempfile::tempdir()?)));
    let (server, home) = match started {
        Ok(started) => started,
        Err(error) => {
            diagnostics::say(&format!("unable to start the demo: {error}"));
            return Exit::Failed;
        }
    };
    let mut settings = Settings::default();
    settings.llm.base_url = format!("http://127.0.0.1:{}/v1", server.port());
    settings.llm.model = "demo".to_owned();
    settings.llm.api_key_env = "LUCY_DEMO_KEY".to_owned();
    let opened = session::create(
        &Home::at(home.path().to_owned()),
        settings,
        Some(Secret::new(DEMO_KEY)),
        diagnostics::protect,
    );
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => return refuse_open(&error),
    };
    let _serving = executor.spawn(async move { server.serve().await });
    jsonl::run(executor, opened, extended_events).await
}
