//! The configuration of a site and of a user: `/etc/rt/config.toml`, `$XDG_CONFIG_HOME/rt/config.toml`, and variables of
//! the environment whose names begin with `RT_`.
//!
//! A variable counts more than the user's file, and that more than the site's. What is a list adds up. Every value knows
//! where it comes from, for `rt config` and for errors.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod expand;
mod file;
pub mod fuzz;
mod keys;
mod mount;
mod variables;

pub use expand::Lookup;
pub use file::SITE;
pub use keys::*;
pub use mount::Mount;

use rt_sys::error::Result;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line, from 1 on.
        line: usize,
    },
    /// A variable of the environment.
    Variable(&'static str),
}

impl Origin {
    fn line(&self) -> usize {
        match self {
            Origin::File { line, .. } => *line,
            Origin::Variable(_) => 0,
        }
    }
}

/// `FILE:LINE`, or the variable's name.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Variable(name) => f.write_str(name),
        }
    }
}

/// A value; of a list, one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Of a switch.
    Switch(bool),
    /// Of a number or a size.
    Number(u64),
    /// Of a text, a word, a path, or a name.
    Text(String),
    /// Of a path in which the values of variables stand: another path for each caller.
    Expanded(String),
    /// A variable's name and value.
    Variable(String, String),
    /// A mount.
    Mount(Mount),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Switch(on) => on.fmt(f),
            Value::Number(number) => number.fmt(f),
            Value::Text(text) | Value::Expanded(text) => text.fmt(f),
            Value::Variable(name, value) => write!(f, "{name}={value}"),
            Value::Mount(mount) => mount.fmt(f),
        }
    }
}

/// A value of a key, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The key.
    pub key: &'static Key,
    /// Its value; of a list, one entry.
    pub value: Value,
    /// Where it comes from.
    pub from: Origin,
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Key {}

/// What is configured: of each key its value, or all its entries in order.
#[derive(Debug, Default)]
pub struct Config {
    /// In the order of [`KEYS`]. What a later place has replaced is not among them.
    pub settings: Vec<Setting>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// The variable `name` of this process's environment, as its caller has set it.
pub fn own_variable(name: &str) -> Option<String> {
    rt_sys::caller::variable(name)
}

/// Where the files are looked for, in the order in which they count.
pub fn places(variable: Lookup<'_>) -> Vec<PathBuf> {
    file::places(variable).into_iter().map(|(_, path)| path).collect()
}

impl Config {
    /// Reads the files that there are, and the variables that `variable` knows.
    pub fn read(variable: Lookup<'_>) -> Result<Config> {
        let mut config = Config::default();
        for (owner, path) in file::places(variable) {
            if let Some(text) = file::read(owner, &path)? {
                for setting in file::parse(&path, &text, variable)? {
                    config.add(setting);
                }
                config.files.push(path);
            }
        }
        for key in KEYS {
            let Some(name) = key.variable else { continue };
            let Some(text) = variable(name).filter(|text| !text.is_empty()) else { continue };
            for (key, value) in variables::values(key, &text, variable).map_err(|e| e.context(name))? {
                config.add(Setting { key, value, from: Origin::Variable(name) });
            }
        }
        let order = |key: &Key| KEYS.iter().position(|known| **known == *key);
        config.settings.sort_by_key(|setting| order(setting.key));
        Ok(config)
    }

    /// Adds a value of a later place than all that are there.
    fn add(&mut self, new: Setting) {
        self.settings.retain(|old| {
            let replaced = match (&old.value, &new.value) {
                (Value::Mount(old), Value::Mount(new)) => old.target == new.target,
                (Value::Variable(old, _), Value::Variable(new, _)) => old == new,
                (old, new_value) => !new.key.kind.adds_up() || old == new_value,
            };
            !(replaced && old.key == new.key)
        });
        self.settings.push(new);
    }

    /// The settings of `key`.
    pub fn of<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Setting> {
        self.settings.iter().filter(move |setting| setting.key == key)
    }

    /// The value of a switch.
    pub fn switch(&self, key: &Key) -> Option<bool> {
        self.of(key).find_map(|setting| match setting.value {
            Value::Switch(on) => Some(on),
            _ => None,
        })
    }

    /// The value of a number or a size.
    pub fn number(&self, key: &Key) -> Option<u64> {
        self.of(key).find_map(|setting| match setting.value {
            Value::Number(number) => Some(number),
            _ => None,
        })
    }

    /// The value of a text, a word or a path.
    pub fn text<'a>(&'a self, key: &'a Key) -> Option<&'a str> {
        self.texts(key).next()
    }

    /// The entries of a list of texts.
    pub fn texts<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a str> {
        self.of(key).filter_map(|setting| match &setting.value {
            Value::Text(text) | Value::Expanded(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The entries of a list of paths.
    pub fn paths(&self, key: &Key) -> Vec<PathBuf> {
        self.texts(key).map(PathBuf::from).collect()
    }

    /// The stores of images, each with whether variables have been replaced in its path.
    pub fn stores(&self) -> Vec<(PathBuf, bool)> {
        let stores = self.of(&STORES).filter_map(|setting| match &setting.value {
            Value::Text(path) => Some((PathBuf::from(path), false)),
            Value::Expanded(path) => Some((PathBuf::from(path), true)),
            _ => None,
        });
        stores.collect()
    }
}
