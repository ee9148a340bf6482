//! Where Lucy keeps things: `~/.lucy`, or the folder that `LUCY_HOME` names.

use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use super::ConfigError;

/// Only the owner may look into a persisted folder.
const DIR_MODE: u32 = 0o700;

/// The folder of one Lucy, and every path in it.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
    user: Option<PathBuf>,
}

impl Home {
    /// `LUCY_HOME` when it is set and not empty, else `.lucy` in the user's home directory.
    pub fn locate() -> Result<Self, ConfigError> {
        let user = dirs::home_dir().filter(|home| !home.as_os_str().is_empty());
        match (env::var_os("LUCY_HOME").filter(|home| !home.is_empty()), &user) {
            (Some(root), _) => Ok(Self { root: absolute(root.into())?, user }),
            (None, Some(home)) => Ok(Self { root: absolute(home.join(".lucy"))?, user }),
            (None, None) => Err(ConfigError::new("HOME is not set; Lucy needs a user home directory")
                .hint("set HOME, or LUCY_HOME to the folder to use")),
        }
    }

    /// A home at `root` that knows nothing of the user's own: the demo's throw-away one.
    pub fn at(root: PathBuf) -> Self {
        Self { root, user: None }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The user's home directory, which holds what all agents share (`.agents/skills`).
    pub fn user(&self) -> Option<&Path> {
        self.user.as_deref()
    }

    pub fn config_file(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }
}

fn absolute(path: PathBuf) -> Result<PathBuf, ConfigError> {
    std::path::absolute(path)
        .map_err(|error| ConfigError::new("unable to resolve cwd").hint(error.to_string()))
}

/// Makes `dir` exist as a folder that only its owner can enter. A link is followed when its target
/// is a folder of this user or root (contract section 0).
pub fn private_dir(dir: &Path) -> io::Result<()> {
    if let Err(error) = fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    let found = fs::metadata(dir)?;
    if !found.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    if !owned_by_us(&found) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "belongs to another user"));
    }
    if found.mode() & 0o777 != DIR_MODE {
        fs::set_permissions(dir, fs::Permissions::from_mode(DIR_MODE))?;
    }
    Ok(())
}

/// Whether a file is this user's or root's: the only ones whose links are followed.
pub fn owned_by_us(found: &fs::Metadata) -> bool {
    found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw()
}
