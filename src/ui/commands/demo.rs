//! `lucy demo`: Lucy against the scripted provider, in one process, with a home that is thrown away.

use std::path::Path;

use smol::LocalExecutor;

use super::{
    super::{
        diagnostics,
        exit::Exit,
        jsonl, refuse, refuse_open,
        signals::{self, Stopper},
    },
    print,
};
use crate::{
    config::{Home, Secret, Settings},
    demo::{self, Answers, Case, Server},
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

/// Serves the demo provider, or a script, until a signal comes. The first line on stdout is the base URL.
pub async fn serve(executor: &LocalExecutor<'_>, port: u16, script: Option<&Path>) -> Exit {
    let answers = match script.map(Case::load).transpose() {
        Ok(case) => case.map_or(Answers::Assistant, Answers::from),
        Err(error) => return refuse(&error.to_string(), None, Exit::Usage),
    };
    let (stopper, shutdown) = Stopper::new();
    let started =
        Server::bind(port, answers).and_then(|server| Ok((server, signals::watch(stopper.clone())?)));
    let (server, watch) = match started {
        Ok(started) => started,
        Err(error) => {
            return refuse(&format!("unable to listen on 127.0.0.1:{port}: {error}"), None, Exit::Failed);
        }
    };
    let _signals = executor.spawn(watch);
    diagnostics::note(demo::NOTICE);
    let printed = print(&format!("http://127.0.0.1:{}/v1\n", server.port()));
    if printed != Exit::Ok {
        return printed;
    }
    // Only a signal ends this; the server itself never does.
    let _ = shutdown.or(server.serve()).await;
    stopper.exit().unwrap_or(Exit::Ok)
}
