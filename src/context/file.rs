//! Opens a file that a stranger may have put there: a FIFO, a device, a link out of the project.
//!
//! Links are followed to a regular file of the user or of root, and to nothing else (contract section
//! 0). Never blocks and never reads more than asked. What a file means is its caller's business.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{fs::OFlags, process::geteuid};

/// Why a link that leads in a circle is skipped.
pub const LOOP: &str = "links to itself";

/// What is at a path.
pub enum Found {
    /// Nothing, or a link to nothing.
    Absent,
    /// Something that must not be read, and why.
    Unfit(&'static str),
    /// At most the bytes asked for.
    Bytes(Vec<u8>),
}

/// What went wrong, and when.
pub enum Failure {
    Inspect(io::Error),
    Read(io::Error),
}

/// Reads the first `bytes_max` bytes of the file at `path`.
pub fn read(path: &Path, bytes_max: u64) -> Result<Found, Failure> {
    match path.metadata() {
        Ok(meta) if !meta.is_file() => return Ok(Found::Unfit("not a regular file")),
        Ok(_) => {}
        Err(error) => return absent_or_unfit(error).map_err(Failure::Inspect),
    }
    // What `metadata` saw may have been replaced by a FIFO: opening must not wait for its writer.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) => return absent_or_unfit(error).map_err(Failure::Read),
    };
    if let Some(reason) = unfit(path, &file).map_err(Failure::Inspect)? {
        return Ok(Found::Unfit(reason));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes).map_err(Failure::Read)?;
    Ok(Found::Bytes(bytes))
}

/// Why the open file must not be read. Only a link is asked for its owner: a plain file of somebody
/// else in a shared project is as good as the project.
fn unfit(path: &Path, file: &File) -> io::Result<Option<&'static str>> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Ok(Some("not a regular file"));
    }
    let linked = path.canonicalize()? != path;
    let trusted = meta.uid() == 0 || meta.uid() == geteuid().as_raw();
    Ok((linked && !trusted).then_some("links to a file of another user"))
}

fn absent_or_unfit(error: io::Error) -> io::Result<Found> {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(Found::Absent),
        _ if is_loop(&error) => Ok(Found::Unfit(LOOP)),
        _ => Err(error),
    }
}

/// Whether links were followed in a circle.
pub fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}
