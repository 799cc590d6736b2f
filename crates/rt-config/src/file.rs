//! The files: whose they may be, and what stands on which line.

use crate::expand::{Lookup, expand, is_name, is_pattern};
use crate::keys::{KEYS, Key, Kind};
use crate::mount::Mount;
use crate::{Origin, Setting, Value};
use rt_cli::{parse::bytes, wrong};
use rt_sys::caller;
use rt_sys::error::{Context, Error, Result};
use rt_sys::owned::{self, Own, Owned};
use rt_sys::{bail, err, fd};
use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The site's file.
pub const SITE: &str = "/etc/rt/config.toml";

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Site,
    User,
}

/// The files' places, in the order in which they count.
pub(crate) fn places(variable: Lookup<'_>) -> Vec<(Owner, PathBuf)> {
    let user = caller::config_home(|name| variable(name).filter(|dir| !dir.is_empty()).map(PathBuf::from));
    let site = (Owner::Site, PathBuf::from(SITE));
    [site].into_iter().chain(user.map(|dir| (Owner::User, dir.join("rt/config.toml")))).collect()
}

/// The text of a file; `None` where there is none. One call where there is none.
pub(crate) fn read(owner: Owner, path: &Path) -> Result<Option<String>> {
    match owner {
        Owner::Site => read_sites(path),
        Owner::User => read_users(path),
    }
    .context(|| path.display())
}

fn read_sites(path: &Path) -> Result<Option<String>> {
    match fs::stat(path) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        found => drop(found?),
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::empty())?;
    let owned = Owned::of(&file)?;
    let uid = owned.stat.st_uid;
    // The user's environment may name anybody's file, and the site's is root's.
    if uid != 0 && !caller::may_be_hosts_root(uid) {
        bail!("it belongs to uid {uid}, not to root");
    }
    text(file, &owned).map(Some)
}

fn read_users(path: &Path) -> Result<Option<String>> {
    match owned::open(path, OFlags::RDONLY) {
        Ok(Own::Missing) => Ok(None),
        Ok(Own::Strangers(why)) => {
            log::warn!("{}: {why}, and it is not read", path.display());
            Ok(None)
        }
        Ok(Own::Opened(file, owned)) => text(file, &owned).map(Some),
        // HOME may be somebody else's, after su or setpriv.
        Err(e) if e.is(Errno::ACCESS.raw_os_error()) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The text of an open file, which nobody but its owner may write.
fn text(file: OwnedFd, owned: &Owned) -> Result<String> {
    if FileType::from_raw_mode(owned.stat.st_mode) != FileType::RegularFile {
        bail!("not a file");
    }
    if owned.others_can_write(&file, false)? {
        return Err(err!("others than its owner may write it").hint("chmod go-w"));
    }
    String::from_utf8(fd::read_all(file)?).map_err(|e| err!("{e}"))
}

/// A file's text, to say on which line something is.
struct Source<'a> {
    path: Arc<Path>,
    text: &'a str,
    variable: Lookup<'a>,
}

/// The settings in `text`, in the file's order.
pub(crate) fn parse(path: &Path, text: &str, variable: Lookup<'_>) -> Result<Vec<Setting>> {
    let source = Source { path: path.into(), text, variable };
    let root = DeTable::parse(text)
        .map_err(|e| source.at(e.span().map_or(0, |span| span.start), err!("{}", e.message())))?;
    let mut all = Vec::new();
    for (table, content) in root.get_ref() {
        let tables: Vec<&str> = KEYS.iter().map(|key| key.table).collect();
        let name = table.get_ref().as_ref();
        if !tables.contains(&name) {
            return Err(source.at(table.span().start, unknown("table", name, tables)));
        }
        let Some(keys) = content.get_ref().as_table() else {
            let text = err!("{name} is a table: [{name}] stands on a line of its own");
            return Err(source.at(table.span().start, text));
        };
        for (key, value) in keys {
            let of_table = KEYS.iter().filter(|key| key.table == name);
            let known = of_table.clone().map(|key| key.name);
            match of_table.clone().find(|known| known.name == key.get_ref().as_ref()) {
                Some(found) => source.read(found, value, &mut all)?,
                None => return Err(source.at(key.span().start, unknown("key", key.get_ref(), known))),
            }
        }
    }
    // The parser sorts tables by name; people read what they wrote.
    all.sort_by_key(|setting| setting.from.line());
    Ok(all)
}

fn unknown<'k>(what: &str, name: &str, known: impl IntoIterator<Item = &'k str> + Clone) -> Error {
    match wrong::nearest(name.as_ref(), known.clone()) {
        Some(near) => err!("unknown {what} {name:?}; did you mean {near}?"),
        None => {
            let mut words: Vec<&str> = known.into_iter().collect();
            words.dedup();
            err!("unknown {what} {name:?}: there are {}", words.join(", "))
        }
    }
}

impl Source<'_> {
    fn origin(&self, offset: usize) -> Origin {
        let before = self.text.as_bytes().get(..offset).unwrap_or_default();
        Origin::File { path: self.path.clone(), line: 1 + before.iter().filter(|b| **b == b'\n').count() }
    }

    /// The error of what stands at `offset`.
    fn at(&self, offset: usize, error: Error) -> Error {
        error.context(self.origin(offset))
    }

    /// Reads the value of `key`.
    fn read(&self, key: &'static Key, value: &Spanned<DeValue>, all: &mut Vec<Setting>) -> Result<()> {
        let mut add = |value: Value, offset| all.push(Setting { key, value, from: self.origin(offset) });
        let offset = value.span().start;
        match (key.kind, value.get_ref()) {
            (Kind::Texts | Kind::Paths | Kind::Names | Kind::Mounts, DeValue::Array(entries)) => {
                for entry in entries.iter() {
                    let offset = entry.span().start;
                    let value = self.entry(key, entry.get_ref()).map_err(|e| self.wrong(key, offset, e))?;
                    value.into_iter().for_each(|value| add(value, offset));
                }
            }
            (Kind::Variables, DeValue::Table(variables)) => {
                for (name, value) in variables {
                    let offset = name.span().start;
                    let name = name.get_ref().as_ref();
                    let text = value.get_ref().as_str().filter(|text| !text.contains('\0') && is_name(name));
                    let text = text
                        .ok_or_else(|| self.wrong(key, offset, err!("{name}: it takes a name and a text")))?;
                    add(Value::Variable(name.to_owned(), text.to_owned()), offset);
                }
            }
            (_, value) => {
                add(self.scalar(key.kind, value).map_err(|e| self.wrong(key, offset, e))?, offset);
            }
        }
        Ok(())
    }

    fn wrong(&self, key: &Key, offset: usize, error: Error) -> Error {
        self.at(offset, error.context(key.full_name()))
    }

    /// An entry of a list. `None` for an optional mount that is not for this caller.
    fn entry(&self, key: &Key, entry: &DeValue) -> Result<Option<Value>> {
        match (key.kind, entry) {
            (Kind::Mounts, DeValue::String(text)) => Ok(Mount::parse(text, self.variable)?.map(Value::Mount)),
            (Kind::Mounts, DeValue::Table(table)) => Ok(self.mount(table)?.map(Value::Mount)),
            (Kind::Paths, DeValue::String(_)) => self.scalar(Kind::Path, entry).map(Some),
            (Kind::Names, DeValue::String(name)) if !is_pattern(name) => {
                Err(err!("{name:?} is no name of a variable"))
            }
            (Kind::Names | Kind::Texts, DeValue::String(text)) if !text.is_empty() => {
                Ok(Some(Value::Text(text.to_string())))
            }
            _ => Err(err!("it takes {}", key.kind.takes())),
        }
    }

    /// A mount that is written as a table.
    fn mount(&self, table: &DeTable) -> Result<Option<Mount>> {
        const KNOWN: [&str; 4] = ["source", "target", "options", "optional"];
        let (mut source, mut target, mut options, mut optional) = ("", "", Vec::new(), false);
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let text = || value.get_ref().as_str().ok_or_else(|| err!("{name} takes a text"));
            match name {
                "source" => source = text()?,
                "target" => target = text()?,
                "optional" => {
                    optional =
                        value.get_ref().as_bool().ok_or_else(|| err!("optional takes true or false"))?;
                }
                "options" => {
                    let words =
                        value.get_ref().as_array().ok_or_else(|| err!("options takes a list of texts"))?;
                    for word in words.iter() {
                        let word = word.get_ref().as_str();
                        options.push(word.ok_or_else(|| err!("options takes a list of texts"))?.to_owned());
                    }
                }
                other => return Err(unknown("key", other, KNOWN)),
            }
        }
        if source.is_empty() {
            bail!("a mount needs a source");
        }
        Mount::new(source, target, options, optional, self.variable)
    }

    fn scalar(&self, kind: Kind, value: &DeValue) -> Result<Value> {
        let takes = || err!("it takes {}", kind.takes());
        let number = |value: &DeValue| {
            let number = value.as_integer().ok_or_else(takes)?;
            u64::from_str_radix(number.as_str(), number.radix()).map_err(|_| takes())
        };
        Ok(match (kind, value) {
            (Kind::Switch, DeValue::Boolean(on)) => Value::Switch(*on),
            (Kind::Number, _) => Value::Number(number(value)?),
            (Kind::Size, DeValue::String(text)) => Value::Number(bytes(text).ok_or_else(takes)?),
            (Kind::Size, _) => Value::Number(number(value)?),
            (Kind::Text, DeValue::String(text)) if !text.is_empty() => Value::Text(text.to_string()),
            (Kind::Word(words), DeValue::String(text)) => {
                if !words.contains(&text.as_ref()) {
                    return Err(match wrong::nearest(text.as_ref().as_ref(), words.iter().copied()) {
                        Some(near) => err!("{text:?} is not {}; did you mean {near}?", kind.takes()),
                        None => err!("{text:?} is not {}", kind.takes()),
                    });
                }
                Value::Text(text.to_string())
            }
            (Kind::Path, DeValue::String(text)) => {
                let path = expand(text, self.variable).map_err(|e| e.context(format!("{text:?}")))?;
                if !Path::new(&path).is_absolute() {
                    bail!("{path:?} is not an absolute path");
                }
                if path == *text { Value::Text(path) } else { Value::Expanded(path) }
            }
            _ => return Err(takes()),
        })
    }
}
