//! What is below a directory, and in which names two of them differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::sys;
use crate::trace::normal;

/// What a name is. None stands for what differs between two runs without a fault.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Entry {
    directory: bool,
    mode: Option<u32>,
    content: Option<u64>,
    attributes: Option<u64>,
    modified: Option<(i64, i64)>,
}

/// How closely two entries are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closeness {
    /// In all that is known.
    All,
    /// Not in times, and not in what directories are like: a command that fails may have made one.
    Content,
}

impl Entry {
    fn is_like(&self, other: &Entry, how: Closeness) -> bool {
        fn same<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        let all = how == Closeness::All;
        self.directory == other.directory
            && (!all && self.directory
                || same(&self.mode, &other.mode)
                    && same(&self.content, &other.content)
                    && same(&self.attributes, &other.attributes)
                    && (!all || same(&self.modified, &other.modified)))
    }
}

/// The names below a directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Entry>,
    /// Names that each run makes up anew, without what is random in them.
    random: BTreeSet<String>,
}

/// A name without what is random in it.
fn shape(name: &str) -> String {
    normal(name, Path::new("/nowhere"))
}

impl Tree {
    /// What is below `root`.
    pub(crate) fn of(root: &Path) -> Tree {
        let mut all = Tree::default();
        let mut todo = vec![root.to_owned()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                let Ok(status) = fs::symlink_metadata(&path) else { continue };
                let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                let mut content = DefaultHasher::new();
                if status.is_symlink() {
                    fs::read_link(&path).ok().hash(&mut content);
                } else if status.is_file() {
                    fs::read(&path).ok().hash(&mut content);
                    // A blob of the cache is also a part of itself until the end of its pull.
                    if !name.contains("/blobs/") {
                        status.nlink().hash(&mut content);
                    }
                }
                let mut attributes = DefaultHasher::new();
                sys::attributes(&path).hash(&mut attributes);
                let entry = Entry {
                    directory: status.is_dir(),
                    mode: Some(status.mode()),
                    content: Some(content.finish()),
                    attributes: Some(attributes.finish()),
                    modified: Some((status.mtime(), status.mtime_nsec())),
                };
                if status.is_dir() {
                    todo.push(path);
                }
                all.entries.insert(name, entry);
            }
        }
        all
    }

    /// What is the same in the trees of two runs.
    pub(crate) fn common(mut self, other: &Tree) -> Tree {
        let only = |one: &Tree, other: &Tree| {
            one.entries.keys().filter(|name| !other.entries.contains_key(*name)).cloned().collect::<Vec<_>>()
        };
        for name in only(&self, other).into_iter().chain(only(other, &self)) {
            self.random.insert(shape(&name));
            self.entries.remove(&name);
        }
        for (name, entry) in &mut self.entries {
            let Some(other) = other.entries.get(name) else { continue };
            entry.mode = entry.mode.filter(|_| entry.mode == other.mode);
            entry.content = entry.content.filter(|_| entry.content == other.content);
            entry.attributes = entry.attributes.filter(|_| entry.attributes == other.attributes);
            entry.modified = entry.modified.filter(|_| entry.modified == other.modified);
        }
        self
    }

    /// The names at which this is like none of the others.
    pub(crate) fn differences(&self, others: &[&Tree], how: Closeness) -> Vec<String> {
        let names: BTreeSet<&String> =
            self.entries.keys().chain(others.iter().flat_map(|t| t.entries.keys())).collect();
        let wrong = names.into_iter().filter(|name| {
            // Parts of blobs, from which the next pull goes on; marks of use with the time of it; leases, which whoever needs
            // them takes over from a dead process, and which go with `cache prune` and `prune`; what a client that was killed
            // has begun at the registry, which is the registry's to remove; what the kernel keeps beside the upper layer of an
            // overlay.
            let passing = ["/partial/", "/uses/", "/leases/", "registry/uploads", "/work/"];
            let inside = format!("{name}/");
            if passing.iter().any(|part| inside.contains(part)) {
                return false;
            }
            let known = |other: &Tree| match (self.entries.get(*name), other.entries.get(*name)) {
                (Some(one), Some(other)) => one.is_like(other, how),
                (None, None) => true,
                (Some(_), None) => other.random.contains(&shape(name)),
                (None, Some(_)) => false,
            };
            // A command that fails may have made a directory for what is kept, but none of a draft or a container.
            let bare = how == Closeness::Content
                && self.entries.get(*name).is_some_and(|entry| entry.directory)
                && !is_draft(name)
                && !name.starts_with("run/states/");
            !bare && !others.iter().any(|other| known(other))
        });
        wrong.cloned().collect()
    }

    /// The directories of drafts.
    pub(crate) fn drafts(&self) -> impl Iterator<Item = &String> {
        self.entries.keys().filter(|name| name.rsplit('/').next().is_some_and(is_draft))
    }
}

/// True for what is made beside its place, and for what is in it.
pub(crate) fn is_draft(name: &str) -> bool {
    name.contains(".partial-")
}

/// True for an image that has no name any more and is being removed: `rt prune` removes it, too.
pub(crate) fn is_removed(name: &str) -> bool {
    name.contains(".removed-")
}

/// True for what was about to become a name of an image: `rt prune` removes it when it is old.
pub(crate) fn is_new_name(name: &str) -> bool {
    name.contains("/names/,new-")
}

/// A name as it is told: without what is random in it.
pub(crate) fn told(name: &str) -> String {
    shape(name)
}
