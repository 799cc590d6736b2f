//! Variables of the environment that say what keys of config.toml say.

use crate::Value;
use crate::expand::{Lookup, is_name, is_pattern};
use crate::keys::{ENV, Key, Kind, PASS_ENV};
use crate::mount::Mount;
use rt_cli::parse::bytes;
use rt_sys::error::Result;
use rt_sys::{bail, err};

/// The values that `text`, the value of the variable of `key`, stands for. Another key than `key` where a word of RT_ENV
/// is the name of a variable alone.
pub(crate) fn values(
    key: &'static Key,
    text: &str,
    variable: Lookup<'_>,
) -> Result<Vec<(&'static Key, Value)>> {
    let one = |value| Ok(vec![(key, value)]);
    let takes = || err!("{text:?} is not {}", key.kind.takes());
    match key.kind {
        Kind::Switch => match text {
            "1" | "true" | "yes" => one(Value::Switch(true)),
            "0" | "false" | "no" => one(Value::Switch(false)),
            _ => Err(err!("{text:?} is not 1 or 0")),
        },
        Kind::Mounts => {
            let mounts =
                split_mounts(text).into_iter().filter_map(|mount| Mount::parse(&mount, variable).transpose());
            mounts.map(|mount| Ok((key, Value::Mount(mount?)))).collect()
        }
        Kind::Variables => text.split(',').filter(|word| !word.is_empty()).map(word_of_env).collect(),
        // Whoever sets a variable has a shell for $NAME. A relative path is from the working directory.
        Kind::Path => one(Value::Text(text.to_owned())),
        Kind::Text => one(Value::Text(text.to_owned())),
        Kind::Word(words) if words.contains(&text) => one(Value::Text(text.to_owned())),
        Kind::Number => one(Value::Number(text.parse().map_err(|_| takes())?)),
        Kind::Size => one(Value::Number(bytes(text).ok_or_else(takes)?)),
        Kind::Texts | Kind::Paths | Kind::Names => {
            Ok(text.split(',').filter(|w| !w.is_empty()).map(|w| (key, Value::Text(w.to_owned()))).collect())
        }
        Kind::Word(_) => Err(takes()),
    }
}

/// The mounts in a list that is separated by commas, as the options of each mount are: what begins with `/` or `$` is
/// another mount.
fn split_mounts(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        match all.last_mut() {
            Some(last) if !part.starts_with(['/', '$']) => {
                last.push(',');
                last.push_str(part);
            }
            _ => all.push(part.to_owned()),
        }
    }
    all
}

fn word_of_env(word: &str) -> Result<(&'static Key, Value)> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    if !(is_name(name) || value.is_none() && is_pattern(name)) {
        bail!("{name:?} is no name of a variable");
    }
    Ok(match value {
        Some(value) => (&ENV, Value::Variable(name.to_owned(), value.to_owned())),
        None => (&PASS_ENV, Value::Text(name.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_separates_mounts_and_options() {
        assert_eq!(split_mounts("/a:/b:ro,nosuid,/c,$HOME:/d,"), ["/a:/b:ro,nosuid", "/c", "$HOME:/d"]);
        assert_eq!(split_mounts("a,/b"), ["a", "/b"]);
        assert!(split_mounts("").is_empty());
    }
}
