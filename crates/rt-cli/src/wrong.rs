//! The texts for command lines that are wrong: those that people know from other programs. The hooks, whose small command
//! lines have a parser of their own, use the same ones.

use rt_sys::err;
use rt_sys::error::Error;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The text for a command that does not exist, with the nearest of `known` or else `hint`, which says where they are
/// listed.
pub fn unknown_command<'a>(name: &OsStr, known: impl IntoIterator<Item = &'a str>, hint: &str) -> Error {
    match nearest(name, known) {
        Some(near) => err!("unknown command {name:?}; did you mean {near}?"),
        None => err!("unknown command {name:?} ({hint})"),
    }
}

/// The text for a flag that does not exist. `flag` has its dashes and no value, and so has each of `known`.
pub fn unknown_flag<'a>(flag: &OsStr, known: impl IntoIterator<Item = &'a str>) -> Error {
    match nearest(flag, known) {
        Some(near) => err!("unknown flag {}; did you mean {near}?", flag.display()),
        None => err!("unknown flag {}", flag.display()),
    }
}

/// The text for a flag behind which the command line ends.
pub fn without_value(flag: &OsStr) -> Error {
    err!("flag {} needs a value", flag.display())
}

/// The text for a flag with a value that it does not take; `takes` says what it does.
pub fn invalid_value(flag: &OsStr, value: &OsStr, takes: &str) -> Error {
    err!("invalid value {value:?} for flag {}: it takes {takes}", flag.display())
}

/// The one of `known` that `word` was probably meant to be. One letter in three may be wrong, and at most two: with
/// more, any short word is near some other. Dashes in front count for nothing.
pub fn nearest<'a>(word: &OsStr, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = without_dashes(word.as_bytes());
    let most = (word.len() / 3).min(2);
    let distances = known.into_iter().map(|name| (distance(word, without_dashes(name.as_bytes())), name));
    let near = distances.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance);
    near.map(|(_, name)| name)
}

fn without_dashes(word: &[u8]) -> &[u8] {
    let dashes = word.iter().take_while(|byte| **byte == b'-').count();
    &word[dashes..]
}

/// The edit distance of two words: how many bytes must be inserted, removed, replaced, or exchanged with the next one
/// (Damerau and Levenshtein, each place edited once).
fn distance(a: &[u8], b: &[u8]) -> usize {
    // Rows of the table of distances between the beginnings of `a` and `b`: the one before the last, and the last.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        for (a, b, expected) in [
            ("", "", 0),
            ("start", "start", 0),
            ("strat", "start", 1),
            ("stat", "start", 1),
            ("starts", "start", 1),
            ("state", "start", 2),
            ("restore", "resume", 3),
            ("", "ps", 2),
        ] {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
            assert_eq!(distance(b.as_bytes(), a.as_bytes()), expected, "{b} {a}");
        }
    }

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["run", "ps", "start", "state", "--bundle", "--root"];
        for (word, expected) in [
            ("strat", Some("start")),
            ("rnu", Some("run")),
            ("pss", Some("ps")),
            ("xyz", None),
            ("x", None),
            ("--bunlde", Some("--bundle")),
            ("--rot", Some("--root")),
            ("--frob", None),
        ] {
            assert_eq!(nearest(OsStr::new(word), known), expected, "{word}");
        }
    }
}
