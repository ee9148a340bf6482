//! The test rig: the real program against the scripted provider, in one sentence per test.
//!
//! `Rig` says what is there before the start, `Running` talks to the program while it runs,
//! `Finished` says what has to be true afterwards. Every wait has a deadline, and whatever a test
//! leaves behind is killed when it goes out of scope.

mod finished;
mod middle;
mod process;
mod provider;
mod replies;
mod rig;
mod running;
mod schema;

pub use finished::{Finished, normalised};
pub use middle::{Authority, Middle, Proxy};
pub use process::is_alive;
pub use provider::Provider;
pub use replies::{call, calls, deltas, http, text};
pub use rig::{KEY, Rig};
pub use running::Running;
pub use schema::{FORMS, Form, Reading, complaint_about_schema};
