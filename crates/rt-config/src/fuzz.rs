//! What the fuzz targets (`fuzz/` at the root of the sources) call. Each function panics where a promise is broken.

use crate::expand::{is_name, is_pattern};
use crate::keys::{KEYS, Kind};
use crate::mount::Mount;
use crate::{Config, Origin, Setting, Value, file, variables};
use rt_spec::mounts;
use std::fmt::Write;
use std::path::Path;

/// Where the texts are said to stand.
const PLACE: &str = "/etc/rt/config.toml";

/// The environment of all these calls.
fn variable(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/ada".to_owned()),
        "USER" => Some("ada".to_owned()),
        "E" => Some(String::new()),
        _ => None,
    }
}

/// What is wrong in a file is said with a line that the file has. What is read of it is within what its key takes, comes in
/// the order of the lines, counts the same when it is read twice, and is the same when it was written and read again.
pub fn config(text: &str) {
    let lines = text.split('\n').count();
    let settings = match file::parse(Path::new(PLACE), text, &variable) {
        Ok(settings) => settings,
        Err(error) => {
            let shown = error.to_string();
            let line = shown.strip_prefix(PLACE).and_then(|rest| rest.strip_prefix(':')?.split_once(": "));
            let line = line.and_then(|(line, _)| line.parse().ok());
            assert!(line.is_some_and(|line| (1..=lines).contains(&line)), "{lines} lines: {shown}");
            return;
        }
    };
    let line = |setting: &Setting| match setting.from {
        Origin::File { line, .. } => line,
        Origin::Variable(name) => panic!("{name} in a file"),
    };
    assert!(settings.is_sorted_by_key(line));
    for setting in &settings {
        assert!((1..=lines).contains(&line(setting)), "{lines} lines: {setting:?}");
        check(setting);
    }
    let once = counted(settings.iter());
    assert_eq!(once, counted(settings.iter().chain(&settings)), "read twice");
    let again = file::parse(Path::new(PLACE), &written(&settings), &variable);
    let again = again.expect("what was written is read again");
    assert_eq!(values(&again), values(&settings));
}

/// What the value of a variable stands for is within what its key takes, and is the same when it was shown and read again.
pub fn variable_values(text: &str) {
    for key in KEYS.iter().filter(|key| key.variable.is_some()) {
        let Ok(read) = variables::values(key, text, &variable) else { continue };
        for (key, value) in read {
            if key.kind == Kind::Mounts {
                check(&Setting { key, value: value.clone(), from: Origin::Variable("RT_MOUNTS") });
            }
            let shown = value.to_string();
            match &value {
                Value::Mount(mount) => {
                    assert_eq!(Mount::parse(&shown, &variable).ok().flatten().as_ref(), Some(mount))
                }
                Value::Variable(name, _) => assert!(is_name(name), "{shown}"),
                Value::Text(name) if key.kind == Kind::Names => assert!(is_pattern(name), "{shown}"),
                _ => {}
            }
        }
    }
}

/// Checks that a setting is what its key takes.
fn check(setting: &Setting) {
    let absolute = |path: &str| assert!(Path::new(path).is_absolute(), "{setting:?}");
    match (setting.key.kind, &setting.value) {
        (Kind::Switch, Value::Switch(_)) | (Kind::Number | Kind::Size, Value::Number(_)) => {}
        (Kind::Text | Kind::Texts, Value::Text(text)) => assert!(!text.is_empty()),
        (Kind::Word(words), Value::Text(word)) => assert!(words.contains(&word.as_str()), "{setting:?}"),
        (Kind::Path | Kind::Paths, Value::Text(path) | Value::Expanded(path)) => absolute(path),
        (Kind::Names, Value::Text(name)) => assert!(is_pattern(name), "{setting:?}"),
        (Kind::Variables, Value::Variable(name, value)) => {
            assert!(is_name(name) && !value.contains('\0'), "{setting:?}");
        }
        (Kind::Mounts, Value::Mount(mount)) => {
            absolute(&mount.source);
            absolute(&mount.target);
            for word in &mount.options {
                mounts::check_option(word).expect("an option of a bind");
            }
        }
        _ => panic!("{setting:?}"),
    }
}

/// What is left when all of them have been added, each from a later place than those before.
fn counted<'a>(settings: impl Iterator<Item = &'a Setting>) -> Vec<Setting> {
    let mut config = Config::default();
    settings.for_each(|setting| config.add(setting.clone()));
    config.settings
}

/// The values of each key, in order.
fn values(settings: &[Setting]) -> Vec<Vec<&Value>> {
    let of = |key| settings.iter().filter(move |setting| setting.key == key).map(|setting| &setting.value);
    KEYS.iter().map(|key| of(*key).collect()).collect()
}

/// A file that says the same.
fn written(settings: &[Setting]) -> String {
    let mut text = String::new();
    for key in KEYS {
        let of_key: Vec<&Value> = settings.iter().filter(|s| s.key == *key).map(|s| &s.value).collect();
        let [first, ..] = of_key.as_slice() else { continue };
        // A table that is named twice is an error, and a key with dots is none.
        let name = format!("{}.{}", key.table, key.name);
        match key.kind {
            Kind::Variables => {
                for value in of_key {
                    let Value::Variable(variable, value) = value else { continue };
                    let _ = writeln!(text, "{name}.{variable} = {}", quoted(value));
                }
            }
            kind if kind.adds_up() => {
                let entries: Vec<String> = of_key.into_iter().map(entry).collect();
                let _ = writeln!(text, "{name} = [\n{}\n]", entries.join(",\n"));
            }
            _ => {
                let _ = writeln!(text, "{name} = {}", entry(first));
            }
        }
    }
    text
}

fn entry(value: &Value) -> String {
    match value {
        Value::Switch(_) | Value::Number(_) => value.to_string(),
        Value::Text(text) | Value::Expanded(text) => quoted(text),
        Value::Variable(..) => String::new(),
        Value::Mount(Mount { source, target, options, optional }) => {
            let options: Vec<String> = options.iter().map(|word| quoted(word)).collect();
            format!(
                "{{ source = {}, target = {}, options = [{}], optional = {optional} }}",
                quoted(source),
                quoted(target),
                options.join(", ")
            )
        }
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut all = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => all.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(all, "\\u{:04X}", c as u32);
            }
            c => all.push(c),
        }
    }
    all + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The targets themselves work; their search is cargo-fuzz's.
    #[test]
    fn targets_run() {
        config(
            "[run]\nmounts = ['/a:/b:ro', { source = '$HOME/\"x', optional = true }]\nwritable = true\n\
             env = { B = 'a\\\n', A = '\"' }\npass-env = ['X*']\n[pull]\nmax-size = '20G'\nprofile = 'hpc'\n\
             cache = '/c/$USER'\n[images]\nstores = ['/a', '/b', '/a']\nhigh-water = 0x5a\n",
        );
        config("[run]\n[pull\n");
        variable_values("/a:/b:ro,optional,$HOME");
        variable_values("A=1,B*");
    }
}
