//! The word that was probably meant, for errors about unknown ones.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

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
