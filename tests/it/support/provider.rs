//! The scripted provider in a thread of the test process, stopped when it goes out of scope.

use std::{net::TcpListener, thread::JoinHandle};

use async_channel::Sender;
use lucy::demo::{Answers, RequestLog, Server};

/// A server that runs.
pub struct Provider {
    pub log: RequestLog,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    /// Serves on a copy of `listener`, so that the port stays ours from one run to the next.
    pub fn start(listener: &TcpListener, answers: Answers) -> Self {
        let listener = listener.try_clone().expect("a second handle of the listener");
        let mut server = Server::on(listener, answers).expect("a pollable listener");
        let log = server.record();
        let (stop, stopped) = async_channel::bounded::<()>(1);
        let until_stopped = async move {
            // Only ever closed, never sent to.
            let _ = stopped.recv().await;
        };
        let serve = move || smol::block_on(futures_lite::future::or(until_stopped, server.serve()));
        let thread = std::thread::Builder::new().name("provider".into()).spawn(serve);
        Self { log, stop, thread: Some(thread.expect("a thread")) }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stop.close();
        if let Some(thread) = self.thread.take() {
            // A panic over there has been printed already.
            let _ = thread.join();
        }
    }
}
