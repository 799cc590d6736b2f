//! Mount options (config.md "Mounts", mount(8)): words become attributes, propagation types, parameters of the file system
//! and what `rt` does itself. Nothing here touches the system.

use rt_sys::err;
use rt_sys::error::Result;
use rt_sys::mount::{self, Attr, Follow, Param, Propagation, PropagationType, Recursive};
use rt_sys::nearest::nearest;
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// True for a mount that binds, by its type or by its options (config.md "Mounts").
pub fn is_bind(mount: &oci_spec::runtime::Mount) -> bool {
    mount.typ().as_deref() == Some("bind")
        || mount.options().iter().flatten().any(|word| word == "bind" || word == "rbind")
}

/// What the options of one mount ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `bind` or `rbind` was given.
    pub bind: bool,
    /// A bind shows what is mounted below its source too: `rbind` was given.
    pub recursive: Recursive,
    /// Attributes of the mount itself.
    pub attr: Attr,
    /// Attributes of the mount and all below it (`rro`, `rnosuid`, ...).
    pub recursive_attr: Attr,
    /// Propagation types to set on this mount, in the order given.
    pub propagation: Vec<Propagation>,
    /// The rest, for the file system.
    pub data: Vec<Param>,
    /// Copy what the image has at the destination into the new tmpfs.
    pub copy_up: bool,
    /// The mount translates ids (`idmap`), or it and what is mounted below it (`ridmap`).
    pub idmap: Option<Recursive>,
    /// Whether a link at the source is followed.
    pub follow_source: Follow,
    /// The path of the source has no link in it, or the mount fails.
    pub without_links: bool,
    /// The source is what has this device and inode, or the mount fails.
    pub identity: Option<(u64, u64)>,
    /// Whether a link at the destination is followed.
    pub follow_destination: Follow,
}

/// The option of binds that `rt` adds on the word of a launcher: nobody can lead them elsewhere by a link. It is not for
/// configs, and not among those of [`known`].
pub const WITHOUT_LINKS: &str = "x-rt.without-links";

/// The option of binds that `rt` adds for a source that was looked at before, which must still be there:
/// `x-rt.identity=DEVICE:INODE`. It wants [`WITHOUT_LINKS`].
pub const IDENTITY: &str = "x-rt.identity";

#[derive(Clone, Copy)]
enum Word {
    Set(u64),
    Clear(u64),
    Atime(u64),
}

/// The words of mount attributes. With an `r` in front they are recursive.
const ATTRIBUTES: [(&str, Word); 18] = [
    ("ro", Word::Set(mount::ATTR_RDONLY)),
    ("rw", Word::Clear(mount::ATTR_RDONLY)),
    ("nosuid", Word::Set(mount::ATTR_NOSUID)),
    ("suid", Word::Clear(mount::ATTR_NOSUID)),
    ("nodev", Word::Set(mount::ATTR_NODEV)),
    ("dev", Word::Clear(mount::ATTR_NODEV)),
    ("noexec", Word::Set(mount::ATTR_NOEXEC)),
    ("exec", Word::Clear(mount::ATTR_NOEXEC)),
    ("nodiratime", Word::Set(mount::ATTR_NODIRATIME)),
    ("diratime", Word::Clear(mount::ATTR_NODIRATIME)),
    ("nosymfollow", Word::Set(mount::ATTR_NOSYMFOLLOW)),
    ("symfollow", Word::Clear(mount::ATTR_NOSYMFOLLOW)),
    ("relatime", Word::Atime(0)),
    ("atime", Word::Atime(0)),
    ("nostrictatime", Word::Atime(0)),
    ("noatime", Word::Atime(mount::ATTR_NOATIME)),
    ("strictatime", Word::Atime(mount::ATTR_STRICTATIME)),
    ("norelatime", Word::Atime(mount::ATTR_STRICTATIME)),
];

fn attribute(word: &str) -> Option<Word> {
    ATTRIBUTES.iter().find(|(name, _)| *name == word).map(|(_, attribute)| *attribute)
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

/// The words of propagation types. With an `r` in front they are recursive.
const PROPAGATIONS: [(&str, PropagationType); 4] = [
    ("private", PropagationType::Private),
    ("shared", PropagationType::Shared),
    ("slave", PropagationType::Slave),
    ("unbindable", PropagationType::Unbindable),
];

/// The word of a propagation type, as an option of a mount and as the value of `linux.rootfsPropagation`.
pub fn propagation(word: &str) -> Option<Propagation> {
    let of = |word: &str| PROPAGATIONS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind);
    match of(word) {
        Some(kind) => Some(Propagation { kind, recursive: Recursive::No }),
        None => Some(Propagation { kind: of(word.strip_prefix('r')?)?, recursive: Recursive::Yes }),
    }
}

/// `path` without `//`, `.` and a slash at the end. Almost every path has none of them, and a look at its bytes shows that
/// without a copy.
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

/// Refuses an option of a bind that [`parse`] gives no meaning to: there is no file system that could know it.
pub fn check_option(word: &str) -> Result<()> {
    match parse([word]).data.first() {
        Some(Param::Flag(word) | Param::Value(word, _)) => {
            Err(match nearest(word.as_ref(), known().iter().map(String::as_str)) {
                Some(near) => err!("unknown option {word:?}; did you mean {near}?"),
                None => err!("unknown option {word:?}"),
            })
        }
        None => Ok(()),
    }
}

fn other(options: &mut Options, word: &str) {
    match word {
        "" | "defaults" | "async" | "nomand" | "iversion" | "noiversion" | "nolazytime" | "silent"
        | "loud" | "remount" | "auto" | "noauto" | "nofail" | "user" | "nouser" | "_netdev" => {}
        "bind" => options.bind = true,
        "rbind" => {
            options.bind = true;
            options.recursive = Recursive::Yes;
        }
        "tmpcopyup" => options.copy_up = true,
        "idmap" => options.idmap = Some(Recursive::No),
        "ridmap" => options.idmap = Some(Recursive::Yes),
        "copy-symlink" | "src-nofollow" => {
            options.follow_source = Follow::Not;
            options.follow_destination = Follow::Not;
        }
        WITHOUT_LINKS => options.without_links = true,
        "dest-nofollow" => options.follow_destination = Follow::Not,
        _ => options.data.push(match word.split_once('=') {
            Some((IDENTITY, value)) if identity(value).is_some() => {
                options.identity = identity(value);
                return;
            }
            Some((key, value)) => Param::Value(key.to_owned(), value.to_owned()),
            None => Param::Flag(word.to_owned()),
        }),
    }
}

fn identity(value: &str) -> Option<(u64, u64)> {
    let (device, inode) = value.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

/// The other words that mean something: to [`parse`], or as flags to every file system.
const OTHERS: &str = "async bind copy-symlink defaults dest-nofollow dirsync idmap iversion lazytime loud mand noiversion nolazytime \
                      nomand rbind remount ridmap silent src-nofollow sync tmpcopyup";

/// Every option word that has a meaning, in order, as `features` lists them.
pub fn known() -> Vec<String> {
    let attributes = ATTRIBUTES.iter().map(|(word, _)| *word);
    let with_recursive = attributes.chain(PROPAGATIONS.iter().map(|(word, _)| *word));
    let mut all: Vec<String> =
        with_recursive.flat_map(|word| [word.to_owned(), format!("r{word}")]).collect();
    all.extend(OTHERS.split_whitespace().map(str::to_owned));
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_bits() {
        let o = parse(["rbind", "ro", "nosuid", "rro", "rslave", "size=64k", "noswap", "noatime"]);
        assert!(o.bind);
        assert_eq!(o.recursive, Recursive::Yes);
        assert_eq!(o.attr.set, mount::ATTR_RDONLY | mount::ATTR_NOSUID | mount::ATTR_NOATIME);
        assert_eq!(o.attr.clear, mount::ATTR_ATIME);
        assert_eq!(o.recursive_attr.set, mount::ATTR_RDONLY);
        assert_eq!(o.propagation, [Propagation { kind: PropagationType::Slave, recursive: Recursive::Yes }]);
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
        assert_eq!(parse(["ro", "rw"]).attr, Attr::clearing(mount::ATTR_RDONLY));
        assert_eq!(parse(["rw", "ro"]).attr, Attr::READONLY);
        assert_eq!(parse(["noatime", "relatime"]).attr.set, 0);
    }

    #[test]
    fn every_known_word_has_a_meaning() {
        for word in known() {
            let data = parse([word.as_str()]).data;
            let to_the_kernel = ["dirsync", "lazytime", "mand", "sync"];
            assert!(data.is_empty() || to_the_kernel.contains(&word.as_str()), "{word}");
        }
    }
}
