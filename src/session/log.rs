//! One session file: created, locked, appended to, synced. Bytes only; `lucy_log` knows the lines.
//!
//! A line is written whole in one call or taken back. Opening a file changes not one byte of it: what
//! a crash left torn at its end is moved aside at the first append (contract section 0).

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use super::fault;
use crate::config;

const FILE_MODE: u32 = 0o600;

/// A session file that could not be used. One line each, from contract section 7.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("session not found")]
    NotFound,
    #[error("session is in use{}", .holder.map(|pid| format!(" by process {pid}")).unwrap_or_default())]
    InUse { holder: Option<u32> },
    #[error("session file is not a regular private file")]
    NotPrivate,
    #[error("session storage error: {0}")]
    Storage(#[from] io::Error),
    #[error("session record rejected")]
    Rejected,
}

/// An open session file, locked against every other writer until it is dropped.
#[derive(Debug)]
pub struct Log {
    file: File,
    path: PathBuf,
    /// Bytes that are whole lines; everything is appended here.
    good_len: u64,
    tail: Tail,
    /// Written since the last sync.
    dirty: bool,
    /// The file's name in its folder is not yet known to be on disk.
    unsynced_name: bool,
}

/// What follows the last LF of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing.
    None,
    /// A sound record whose LF is missing; it is written before the next one.
    Unterminated,
    /// Part of a record; it is moved to the recovery folder before the next one is written.
    Torn { bytes: u64 },
}

impl Log {
    /// A new file `<id>.jsonl` in `dir`, which is made if need be. `AlreadyExists` when the id is taken.
    pub fn create(dir: &Path, id: &str) -> Result<Self, LogError> {
        config::private_dir(dir)?;
        let path = dir.join(format!("{id}.jsonl"));
        let file = OpenOptions::new().read(true).append(true).create_new(true).mode(FILE_MODE).open(&path)?;
        lock(&file)?;
        Ok(Self { file, path, good_len: 0, tail: Tail::None, dirty: false, unsynced_name: true })
    }

    /// An existing file, locked. The caller reads it with [`Log::reader`] and says what it found at
    /// the end with [`Log::set_tail`].
    pub fn open(dir: &Path, id: &str) -> Result<Self, LogError> {
        let path = dir.join(format!("{id}.jsonl"));
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = match OpenOptions::new().read(true).append(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(LogError::NotFound),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Err(LogError::NotPrivate);
            }
            Err(error) => return Err(error.into()),
        };
        let found = file.metadata()?;
        if !found.is_file() || !config::owned_by_us(&found) {
            return Err(LogError::NotPrivate);
        }
        lock(&file)?;
        Ok(Self { file, path, good_len: found.len(), tail: Tail::None, dirty: false, unsynced_name: false })
    }

    /// The file from its start. It has its own position, so appends are not disturbed.
    pub fn reader(&self) -> io::Result<File> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    }

    /// What reading found at the end of the file.
    pub fn set_tail(&mut self, tail: Tail) {
        if let Tail::Torn { bytes } = tail {
            self.good_len -= bytes;
        }
        self.tail = tail;
    }

    /// Writes one line (without its LF) whole, or leaves the file as it was.
    pub fn append(&mut self, line: &[u8]) -> Result<(), LogError> {
        let found = self.file.metadata()?;
        if !found.is_file() || found.mode() & 0o777 != FILE_MODE {
            return Err(LogError::NotPrivate);
        }
        if found.nlink() == 0 {
            return Err(LogError::Storage(io::Error::new(io::ErrorKind::NotFound, "the file was removed")));
        }
        self.mend_tail()?;
        let mut bytes = Vec::with_capacity(line.len() + 2);
        if self.tail == Tail::Unterminated {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
        if let Err(error) = fault::before_append().and_then(|()| self.file.write_all(&bytes)) {
            // A disk that filled up mid-line must not leave half of it; if even this fails, the half
            // counts as torn the next time.
            let _ = self.file.set_len(self.good_len);
            return Err(error.into());
        }
        self.tail = Tail::None;
        self.good_len += bytes.len() as u64;
        self.dirty = true;
        Ok(())
    }

    /// Makes what was appended survive a loss of power. Costs nothing when nothing was.
    pub fn sync(&mut self) -> Result<(), LogError> {
        if self.dirty {
            self.file.sync_data()?;
            self.dirty = false;
        }
        if self.unsynced_name {
            if let Some(dir) = self.path.parent() {
                File::open(dir)?.sync_all()?;
            }
            self.unsynced_name = false;
        }
        Ok(())
    }

    /// Removes a file that never got its header.
    pub fn discard(self) {
        let _ = fs::remove_file(&self.path);
    }

    fn mend_tail(&mut self) -> io::Result<()> {
        let Tail::Torn { bytes } = self.tail else { return Ok(()) };
        let mut torn = Vec::new();
        let mut reader = self.reader()?;
        reader.seek(SeekFrom::Start(self.good_len))?;
        reader.take(bytes).read_to_end(&mut torn)?;
        self.keep_aside(&torn)?;
        self.file.set_len(self.good_len)?;
        self.tail = Tail::None;
        Ok(())
    }

    /// Saves torn bytes as `recovery/<id>-<ms>.torn` beside the sessions folder: never thrown away.
    fn keep_aside(&self, torn: &[u8]) -> io::Result<()> {
        let root = self.path.parent().and_then(Path::parent).ok_or(io::ErrorKind::NotFound)?;
        let dir = root.join("recovery");
        config::private_dir(&dir)?;
        let id = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let mut copy =
            tempfile::Builder::new().permissions(fs::Permissions::from_mode(FILE_MODE)).tempfile_in(&dir)?;
        copy.write_all(torn)?;
        copy.as_file().sync_data()?;
        copy.persist(dir.join(format!("{id}-{}.torn", super::unix_ms()))).map_err(|failed| failed.error)?;
        Ok(())
    }
}

fn lock(file: &File) -> Result<(), LogError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(LogError::InUse { holder: lock_holder(file) }),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Who holds the lock: Linux tells in /proc/locks, by inode. Elsewhere the message goes without.
fn lock_holder(file: &File) -> Option<u32> {
    let inode = format!(":{}", file.metadata().ok()?.ino());
    fs::read_to_string("/proc/locks").ok()?.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let matches = fields.get(1) == Some(&"FLOCK") && fields.get(5).is_some_and(|f| f.ends_with(&inode));
        if matches { fields.get(4)?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(dir: &Path) -> String {
        fs::read_to_string(dir.join("sessions/1-2-3.jsonl")).unwrap()
    }

    fn sessions() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let sessions = dir.path().join("sessions");
        (dir, sessions)
    }

    #[test]
    fn lines_are_private_and_whole() {
        let (dir, sessions) = sessions();
        let mut log = Log::create(&sessions, "1-2-3").unwrap();
        log.append(b"{}").unwrap();
        log.sync().unwrap();
        assert_eq!(content(dir.path()), "{}\n");
        assert_eq!(fs::metadata(sessions.join("1-2-3.jsonl")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&sessions).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_second_writer_is_told_who_holds_it() {
        let (_dir, sessions) = sessions();
        let log = Log::create(&sessions, "1-2-3").unwrap();
        let refused = Log::open(&sessions, "1-2-3").unwrap_err().to_string();
        assert!(refused.starts_with("session is in use"), "{refused}");
        if cfg!(target_os = "linux") {
            assert_eq!(refused, format!("session is in use by process {}", std::process::id()));
        }
        drop(log);
        Log::open(&sessions, "1-2-3").unwrap();
    }

    #[test]
    fn a_torn_end_moves_aside_at_the_first_append_only() {
        let (dir, sessions) = sessions();
        drop(Log::create(&sessions, "1-2-3").unwrap());
        fs::write(sessions.join("1-2-3.jsonl"), "{}\n{\"torn").unwrap();
        let mut log = Log::open(&sessions, "1-2-3").unwrap();
        log.set_tail(Tail::Torn { bytes: 6 });
        assert_eq!(content(dir.path()), "{}\n{\"torn");
        log.append(b"[]").unwrap();
        assert_eq!(content(dir.path()), "{}\n[]\n");
        let saved: Vec<_> =
            fs::read_dir(dir.path().join("recovery")).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(fs::read_to_string(&saved[0]).unwrap(), "{\"torn");
        assert!(saved[0].to_str().unwrap().ends_with(".torn"));
    }

    #[test]
    fn a_missing_newline_is_written_first() {
        let (dir, sessions) = sessions();
        drop(Log::create(&sessions, "1-2-3").unwrap());
        fs::write(sessions.join("1-2-3.jsonl"), "{}").unwrap();
        let mut log = Log::open(&sessions, "1-2-3").unwrap();
        log.set_tail(Tail::Unterminated);
        log.append(b"[]").unwrap();
        assert_eq!(content(dir.path()), "{}\n[]\n");
    }

    #[test]
    fn files_that_changed_under_us_are_refused() {
        let (_dir, sessions) = sessions();
        let path = sessions.join("1-2-3.jsonl");
        let mut log = Log::create(&sessions, "1-2-3").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(log.append(b"{}"), Err(LogError::NotPrivate)));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(log.append(b"{}").unwrap_err().to_string(), "session storage error: the file was removed");
    }

    #[test]
    fn links_and_missing_files_are_refused() {
        let (_dir, sessions) = sessions();
        drop(Log::create(&sessions, "1-2-3").unwrap());
        std::os::unix::fs::symlink(sessions.join("1-2-3.jsonl"), sessions.join("link.jsonl")).unwrap();
        assert!(matches!(Log::open(&sessions, "link"), Err(LogError::NotPrivate)));
        assert!(matches!(Log::open(&sessions, "none"), Err(LogError::NotFound)));
    }
}
