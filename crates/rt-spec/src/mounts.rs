//! Mount options (config.md "Mounts", mount(8)): words become bits, data and intentions. Pure.

use rt_sys::mount::{self, Attr, Param};
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the options of one mount ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `bind` or `rbind` was given.
    pub bind: bool,
    /// `rbind` was given.
    pub recursive: bool,
    /// Attributes of the mount itself.
    pub attr: Attr,
    /// Attributes of the mount and all below it (`rro`, `rnosuid`, ...).
    pub recursive_attr: Attr,
    /// Propagation to set on this mount, and whether recursively, in the order given.
    pub propagation: Vec<(u64, bool)>,
    /// The rest, for the file system.
    pub data: Vec<Param>,
    /// Copy what the image has at the destination into the new tmpfs.
    pub copy_up: bool,
    /// The mount translates ids; recursively where the second is true.
    pub idmap: Option<bool>,
    /// Do not follow a symlink at the source.
    pub source_nofollow: bool,
    /// Do not follow a symlink at the destination.
    pub destination_nofollow: bool,
}

enum Word {
    Set(u64),
    Clear(u64),
    Atime(u64),
}

/// Options that become mount attributes, `r` in front makes them recursive.
fn attribute(word: &str) -> Option<Word> {
    Some(match word {
        "ro" => Word::Set(mount::ATTR_RDONLY),
        "rw" => Word::Clear(mount::ATTR_RDONLY),
        "nosuid" => Word::Set(mount::ATTR_NOSUID),
        "suid" => Word::Clear(mount::ATTR_NOSUID),
        "nodev" => Word::Set(mount::ATTR_NODEV),
        "dev" => Word::Clear(mount::ATTR_NODEV),
        "noexec" => Word::Set(mount::ATTR_NOEXEC),
        "exec" => Word::Clear(mount::ATTR_NOEXEC),
        "nodiratime" => Word::Set(mount::ATTR_NODIRATIME),
        "diratime" => Word::Clear(mount::ATTR_NODIRATIME),
        "nosymfollow" => Word::Set(mount::ATTR_NOSYMFOLLOW),
        "symfollow" => Word::Clear(mount::ATTR_NOSYMFOLLOW),
        "relatime" | "atime" | "nostrictatime" => Word::Atime(0),
        "noatime" => Word::Atime(mount::ATTR_NOATIME),
        "strictatime" => Word::Atime(mount::ATTR_STRICTATIME),
        "norelatime" => Word::Atime(mount::ATTR_STRICTATIME),
        _ => return None,
    })
}

fn apply(attr: &mut Attr, word: Word) {
    match word {
        Word::Set(bits) => {
            attr.set |= bits;
            attr.clear &= !bits;
        }
        Word::Clear(bits) => {
            attr.clear |= bits;
            attr.set &= !bits;
        }
        Word::Atime(bits) => {
            attr.set = attr.set & !mount::ATTR_ATIME | bits;
            attr.clear |= mount::ATTR_ATIME;
        }
    }
}

fn propagation(word: &str) -> Option<(u64, bool)> {
    Some(match word {
        "private" => (libc::MS_PRIVATE, false),
        "rprivate" => (libc::MS_PRIVATE, true),
        "shared" => (libc::MS_SHARED, false),
        "rshared" => (libc::MS_SHARED, true),
        "slave" => (libc::MS_SLAVE, false),
        "rslave" => (libc::MS_SLAVE, true),
        "unbindable" => (libc::MS_UNBINDABLE, false),
        "runbindable" => (libc::MS_UNBINDABLE, true),
        _ => return None,
    })
}

/// `rootfsPropagation`'s value as bits and whether it is recursive.
pub fn root_propagation(word: &str) -> Option<(u64, bool)> {
    propagation(word)
}

/// `path` without `//`, `.` and a slash at the end. Almost every path has none of them, which a look at the
/// bytes tells.
pub fn clean(path: &Path) -> Cow<'_, Path> {
    let bytes = path.as_os_str().as_bytes();
    let odd = |pair: &[u8]| matches!(pair, b"//" | b"/.");
    if bytes.windows(2).any(odd) || (bytes.len() > 1 && bytes.ends_with(b"/")) {
        Cow::Owned(path.components().collect())
    } else {
        Cow::Borrowed(path)
    }
}

/// Reads the option words of one mount.
pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Options {
    let mut options = Options::default();
    for word in words {
        if let Some(attribute) = attribute(word) {
            apply(&mut options.attr, attribute);
        } else if let Some(change) = propagation(word) {
            options.propagation.push(change);
        } else if let Some(attribute) = word.strip_prefix('r').and_then(attribute) {
            apply(&mut options.recursive_attr, attribute);
        } else {
            other(&mut options, word);
        }
    }
    options
}

fn other(options: &mut Options, word: &str) {
    match word {
        "" | "defaults" | "async" | "nomand" | "iversion" | "noiversion" | "nolazytime" | "silent"
        | "loud" | "remount" | "auto" | "noauto" | "nofail" | "user" | "nouser" | "_netdev" => {}
        "bind" => options.bind = true,
        "rbind" => {
            options.bind = true;
            options.recursive = true;
        }
        "tmpcopyup" => options.copy_up = true,
        "idmap" => options.idmap = Some(false),
        "ridmap" => options.idmap = Some(true),
        "copy-symlink" | "src-nofollow" => {
            options.source_nofollow = true;
            options.destination_nofollow = true;
        }
        "dest-nofollow" => options.destination_nofollow = true,
        _ => options.data.push(match word.split_once('=') {
            Some((key, value)) => Param::Value(key.to_owned(), value.to_owned()),
            None => Param::Flag(word.to_owned()),
        }),
    }
}

/// Every option word that [`parse`] gives a meaning to, for `features`.
pub const KNOWN: &[&str] = &[
    "async",
    "atime",
    "bind",
    "copy-symlink",
    "defaults",
    "dest-nofollow",
    "dev",
    "diratime",
    "dirsync",
    "exec",
    "idmap",
    "iversion",
    "lazytime",
    "loud",
    "mand",
    "noatime",
    "nodev",
    "nodiratime",
    "noexec",
    "noiversion",
    "nolazytime",
    "nomand",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "nosymfollow",
    "private",
    "ratime",
    "rbind",
    "rdev",
    "rdiratime",
    "relatime",
    "remount",
    "rexec",
    "ridmap",
    "rnoatime",
    "rnodev",
    "rnodiratime",
    "rnoexec",
    "rnorelatime",
    "rnostrictatime",
    "rnosuid",
    "rnosymfollow",
    "ro",
    "rprivate",
    "rrelatime",
    "rro",
    "rrw",
    "rshared",
    "rslave",
    "rstrictatime",
    "rsuid",
    "rsymfollow",
    "runbindable",
    "rw",
    "shared",
    "silent",
    "slave",
    "src-nofollow",
    "strictatime",
    "suid",
    "symfollow",
    "sync",
    "tmpcopyup",
    "unbindable",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_bits() {
        let o = parse(["rbind", "ro", "nosuid", "rro", "rslave", "size=64k", "noswap", "noatime"]);
        assert!(o.bind && o.recursive);
        assert_eq!(o.attr.set, mount::ATTR_RDONLY | mount::ATTR_NOSUID | mount::ATTR_NOATIME);
        assert_eq!(o.attr.clear, mount::ATTR_ATIME);
        assert_eq!(o.recursive_attr.set, mount::ATTR_RDONLY);
        assert_eq!(o.propagation, [(libc::MS_SLAVE, true)]);
        assert_eq!(o.data, [Param::Value("size".into(), "64k".into()), Param::Flag("noswap".into())]);
    }

    #[test]
    fn paths_are_cleaned() {
        for (path, clean_path) in
            [("/a/b", "/a/b"), ("/", "/"), ("//a///b/", "/a/b"), ("/./a/.", "/a"), ("/.a", "/.a")]
        {
            assert_eq!(clean(Path::new(path)).as_os_str(), clean_path, "{path}");
        }
    }

    #[test]
    fn the_last_word_wins() {
        assert_eq!(parse(["ro", "rw"]).attr, Attr { clear: mount::ATTR_RDONLY, ..Attr::default() });
        assert_eq!(parse(["rw", "ro"]).attr, Attr { set: mount::ATTR_RDONLY, ..Attr::default() });
        assert_eq!(parse(["noatime", "relatime"]).attr.set, 0);
    }

    #[test]
    fn every_known_word_has_a_meaning() {
        for word in KNOWN {
            let data = parse([*word]).data;
            let to_the_kernel = ["dirsync", "lazytime", "mand", "sync"];
            assert!(data.is_empty() || to_the_kernel.contains(word), "{word}");
        }
    }
}
