//! What a hook changes in a container, as a plain value: computed first, then printed or applied.

use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};

/// Everything that a hook changes, in the order in which it is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Edits {
    /// The directory of this hook in the container, a tmpfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<PathBuf>,
    /// Directories hidden behind an empty tmpfs, which may be filled by what follows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<PathBuf>,
    /// Device nodes, bound from the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Bind>,
    /// Files, directories and sockets of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<Bind>,
    /// New files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<NewFile>,
    /// New symbolic links.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<NewLink>,
    /// Libraries that the container's dynamic loader finds from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<Library>,
    /// Environment variables. A hook that runs beside a container cannot set them: `precreate` does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// What was decided and why. Only `--dry-run` prints it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What the user should know. It is printed on every run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Something of the host's at a place in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bind {
    /// On the host, below `--root`.
    pub source: PathBuf,
    /// In the container.
    pub path: PathBuf,
    /// What the container may do with it. Printed as `"writable": true`, or not at all.
    #[serde(
        rename = "writable",
        serialize_with = "is_writable",
        skip_serializing_if = "Access::is_read_only"
    )]
    pub access: Access,
}

/// What a container may do with something of the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It may read it.
    ReadOnly,
    /// It may write to it as well.
    Writable,
}

impl Access {
    fn is_read_only(&self) -> bool {
        *self == Access::ReadOnly
    }
}

/// A new file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewFile {
    /// In the container.
    pub path: PathBuf,
    /// What is in it.
    #[serde(serialize_with = "text_or_size")]
    pub contents: Vec<u8>,
}

/// A new symbolic link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewLink {
    /// In the container.
    pub path: PathBuf,
    /// Its text.
    pub target: PathBuf,
}

/// A library that is entered in ld.so.cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Library {
    /// What programs ask for.
    pub name: String,
    /// Where it is in the container.
    pub path: PathBuf,
    /// The cache's flags: machine and ABI.
    pub flags: i32,
}

impl Edits {
    /// True where nothing is to be done in the container.
    pub fn is_empty(&self) -> bool {
        self.private.is_none()
            && self.masks.is_empty()
            && self.devices.is_empty()
            && self.binds.is_empty()
            && self.files.is_empty()
            && self.links.is_empty()
    }

    /// Adds all of `more`.
    pub fn merge(&mut self, more: Edits) {
        self.private = self.private.take().or(more.private);
        self.masks.extend(more.masks);
        more.devices.into_iter().for_each(|d| self.device_at(d.source, d.path));
        more.binds.into_iter().for_each(|b| self.bind_at(b.source, b.path, b.access));
        self.files.extend(more.files);
        self.links.extend(more.links);
        self.libraries.extend(more.libraries);
        self.env.extend(more.env);
        self.notes.extend(more.notes);
        self.warnings.extend(more.warnings);
    }

    /// Adds a device node at the same place as on the host.
    pub fn device(&mut self, path: impl Into<PathBuf>) {
        let path = path.into();
        self.device_at(path.clone(), path);
    }

    /// Adds the device node `source` at `path`.
    pub fn device_at(&mut self, source: PathBuf, path: PathBuf) {
        if !self.devices.iter().any(|d| d.path == path) {
            self.devices.push(Bind { source, path, access: Access::Writable });
        }
    }

    /// Adds something of the host's, read-only, at the same place.
    pub fn bind(&mut self, path: impl Into<PathBuf>) {
        let path = path.into();
        self.bind_at(path.clone(), path, Access::ReadOnly);
    }

    /// Binds `source` of the host at `path`, unless something else has been bound there.
    pub fn bind_at(&mut self, source: impl Into<PathBuf>, path: impl Into<PathBuf>, access: Access) {
        let (source, path) = (source.into(), path.into());
        if !self.binds.iter().any(|b| b.path == path) {
            self.binds.push(Bind { source, path, access });
        }
    }

    /// Adds a new file.
    pub fn file(&mut self, path: impl Into<PathBuf>, contents: impl Into<Vec<u8>>) {
        self.files.push(NewFile { path: path.into(), contents: contents.into() });
    }

    /// Adds a link.
    pub fn link(&mut self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) {
        let link = NewLink { path: path.into(), target: target.into() };
        if !self.links.contains(&link) {
            self.links.push(link);
        }
    }

    /// Makes the loader find the library at `path` as `name`.
    pub fn library(&mut self, name: impl Into<String>, path: impl Into<PathBuf>, flags: i32) {
        let library = Library { name: name.into(), path: path.into(), flags };
        if !self.libraries.contains(&library) {
            self.libraries.push(library);
        }
    }

    /// Hides a directory.
    pub fn mask(&mut self, path: impl Into<PathBuf>) {
        self.masks.push(path.into());
    }

    /// Adds a note about a decision.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds a warning.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Every place in the container that is changed.
    pub fn places(&self) -> impl Iterator<Item = &Path> {
        let binds = self.devices.iter().chain(&self.binds).map(|b| &b.path);
        let rest = self.files.iter().map(|f| &f.path).chain(self.links.iter().map(|l| &l.path));
        self.private.iter().chain(&self.masks).chain(binds).chain(rest).map(PathBuf::as_path)
    }

    /// The value as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

fn is_writable<S: Serializer>(access: &Access, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(*access == Access::Writable)
}

/// Text as it is; of anything else its size.
fn text_or_size<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => serializer.serialize_str(text),
        _ => serializer.serialize_str(&format!("({} bytes)", bytes.len())),
    }
}
