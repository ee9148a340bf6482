//! The `lucy` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    lucy::ui::main()
}
