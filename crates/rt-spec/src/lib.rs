//! The config: loaded, checked, and adapted to what the caller may do; and the state of a container, as JSON.
//!
//! Of files only the config is read, by [`Config::load`]; [`check()`] looks whether a security module is there. [`environment`] and
//! [`rootless`] read the caller's variables.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod annotations;
pub mod asked_mounts;
pub mod caller_request;
mod check;
mod config;
pub mod emulation;
pub mod environment;
pub mod fuzz;
pub mod host_files;
pub mod hpc;
pub mod mounts;
pub mod rootless;
pub mod state;
mod user_map;

pub use annotations::{
    ANNOTATION_BYTES, ANNOTATION_CMD, ANNOTATION_COPIED, ANNOTATION_DIGEST, ANNOTATION_ENTRYPOINT,
    ANNOTATION_ENVIRONMENT, ANNOTATION_HOME, ANNOTATION_INIT, ANNOTATION_MERGED, ANNOTATION_NAME,
    ANNOTATION_OPTIONAL, ANNOTATION_PASSWD, ANNOTATION_RESOLVED, ANNOTATION_ROOT_EMULATION, ANNOTATION_USER,
    annotate, asks_for_mpi,
};
pub use check::{allowed_below_proc, check, check_id, check_process};
pub use config::{Linux, Process, Spec};

use rt_sys::error::{Context, Error, Result};
use std::borrow::Cow;
use std::path::Path;

/// The OCI runtime-spec version that state and features name.
pub const OCI_VERSION: &str = "1.3.0";

/// The upper layer, in the directory of `rt run --overlay`.
pub const OVERLAY_UPPER: &str = "upper";

/// The file of a bundle by which it is known that files of its root are, by other names, in images or layers that nobody may change.
pub const SHARES_FILES: &str = "shares-files";

/// podman's default capabilities: what root in a container has unless a config says more.
pub const DEFAULT_CAPABILITIES: [&str; 11] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// The system calls about keys (keyrings(7)), which no namespace keeps apart: the kernel gives whoever has a user's uid the keys
/// of that user, as a Kerberos ticket.
pub const KEY_CALLS: [&str; 3] = ["add_key", "keyctl", "request_key"];

/// A loaded config and the text it came from.
#[derive(Debug)]
pub struct Config {
    /// The config. It is large, and on the heap it is not moved.
    pub spec: Box<Spec>,
    /// The JSON text that it was read from.
    read: Vec<u8>,
    /// The spec is another than [`Config::read`] says.
    changed: bool,
    /// What was read and cannot be used (unknown capabilities and the like).
    pub warnings: Vec<String>,
}

impl Config {
    /// Loads the config at `path`.
    ///
    /// # Errors
    /// It could not be read, or is none: what is no regular file is not waited for.
    pub fn load(path: &Path) -> Result<Self> {
        Self::of(rt_sys::fd::read_regular_file(path), path)
    }

    /// Loads the config `name` in a directory in which others can rename.
    ///
    /// # Errors
    /// Others can have put it there.
    pub fn load_among_others(dir: &rt_sys::owned::AmongOthers, name: &Path) -> Result<Self> {
        Self::of(dir.read(name.as_os_str()), name)
    }

    /// The config in the `text` that was read from `path`.
    ///
    /// # Errors
    /// It could not be read, or is none.
    pub fn of(text: Result<Vec<u8>>, path: &Path) -> Result<Self> {
        let shown = || path.display().to_string();
        let text = text.map_err(|e| match e.errno() {
            Some(libc::ENOENT) => e.context(format!("JSON specification file {} not found", shown())),
            _ => e.context(format!("read {}", shown())),
        })?;
        Self::parse(text).context(shown)
    }

    /// Parses a config, out of line for its stack frame. Values that the spec says to warn about are dropped and the
    /// rest is used.
    #[inline(never)]
    pub fn parse(text: Vec<u8>) -> Result<Self> {
        // Checked once and not string by string, and where it is passed over, too.
        let json = std::str::from_utf8(&text).map_err(|e| Error::new(e.to_string()))?;
        let mut spec: Box<Spec> = serde_json::from_str(json).map_err(json_error)?;
        let warnings = spec.take_warnings();
        Ok(Config { spec, read: text, changed: false, warnings })
    }

    /// Says that the spec has been changed, which [`Config::text`] then tells.
    pub fn changed(&mut self) {
        self.changed = true;
    }

    /// The config's JSON text, to be kept with the container's state and told to hooks: what was read, byte for byte, unless the
    /// spec has been changed. It is made anew by each call, which a program that joins a container never needs.
    pub fn text(&self) -> Result<Cow<'_, [u8]>> {
        match self.changed {
            true => Ok(serde_json::to_vec(&self.spec).map_err(json_error)?.into()),
            false => Ok(Cow::Borrowed(&self.read)),
        }
    }
}

/// The value of a variable in the config's environment; the last one counts.
pub fn variable<'a>(spec: &'a Spec, name: &str) -> Option<&'a str> {
    let env = spec.process().as_ref()?.env().as_ref()?;
    env.iter().rev().find_map(|v| v.strip_prefix(name)?.strip_prefix('='))
}

/// serde_json's text, which says line and column.
pub fn json_error(e: serde_json::Error) -> Error {
    Error::new(e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_dropped_and_named() {
        let text = br#"{"ociVersion":"1.0.0","process":{"cwd":"/","args":["a"],"user":{"uid":0,"gid":0},
            "capabilities":{"bounding":["CAP_CHOWN","CAP_FLY"],"effective":["CAP_FLY"]}},
            "linux":{"seccomp":{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86_64","SCMP_ARCH_Z80"]}}}"#;
        let config = Config::parse(text.to_vec()).unwrap();
        assert_eq!(config.warnings.len(), 3, "{:?}", config.warnings);
        let sets = config.spec.process().as_ref().unwrap().capabilities().unwrap();
        assert_eq!(sets.bounding, 1);
        assert_eq!(sets.effective, 0);
    }

    #[test]
    fn broken_json_says_where() {
        let error = Config::parse(b"{\n \"ociVersion\": 7 }".to_vec()).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
