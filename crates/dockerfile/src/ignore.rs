//! .dockerignore, by the rules of moby's patternmatcher and not of gitignore: each pattern begins at the context's root, and
//! of those that match the last one counts.

use crate::glob::{Pattern, Rules};

/// What a .dockerignore file, or `--exclude`, leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignore(Vec<(bool, Pattern)>);

impl Ignore {
    /// Reads a file.
    ///
    /// # Errors
    /// A line is no pattern.
    pub fn new(text: &str) -> Result<Ignore, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
        lines
            .map(|(n, line)| read(line).map_err(|e| format!("line {}: {e}", n + 1)))
            .collect::<Result<_, _>>()
            .map(from)
    }

    /// Reads patterns, each by itself.
    ///
    /// # Errors
    /// One is no pattern.
    pub fn of_patterns(patterns: &[String]) -> Result<Ignore, String> {
        patterns.iter().map(|text| read(text)).collect::<Result<_, _>>().map(from)
    }

    /// True where `path`, relative to the context's root, is left out.
    pub fn excludes(&self, path: &str) -> bool {
        let mut out = false;
        for (again, pattern) in &self.0 {
            if *again == out && (pattern.matches(path) || parents(path).any(|dir| pattern.matches(dir))) {
                out = !*again;
            }
        }
        out
    }

    /// True where nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True where something below a directory that is left out may be in all the same.
    pub fn has_exceptions(&self) -> bool {
        self.0.iter().any(|(again, _)| *again)
    }
}

fn from(patterns: Vec<Option<(bool, Pattern)>>) -> Ignore {
    Ignore(patterns.into_iter().flatten().collect())
}

/// A pattern, and whether it takes in again; none of what says nothing.
fn read(text: &str) -> Result<Option<(bool, Pattern)>, String> {
    let text = text.trim();
    let (again, path) = match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, text),
    };
    if again && path.is_empty() {
        return Err("\"!\": not a pattern".to_owned());
    }
    match clean(path) {
        clean if clean.is_empty() => Ok(None),
        clean => Pattern::new(&clean, Rules::Ignore).map(|pattern| Some((again, pattern))),
    }
}

/// The directories that a path is in, from the root on down.
pub(crate) fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// A path as Go's filepath.Clean leaves it, relative to the root, above which it does not lead.
pub fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(file: &str, out: &[&str], within: &[&str]) {
        let ignore = Ignore::new(file).unwrap();
        out.iter().for_each(|path| assert!(ignore.excludes(path), "{file:?} should leave out {path}"));
        within
            .iter()
            .for_each(|path| assert!(!ignore.excludes(path), "{file:?} should not leave out {path}"));
    }

    #[test]
    fn the_last_match_counts() {
        check("*\n!a\n", &["b", "b/a"], &["a", "a/b"]);
        check("!a\n*\n", &["a", "b"], &[]);
        check("docs\n!docs/README.md\n", &["docs", "docs/x"], &["docs/README.md", "README.md"]);
        check(
            "*.md\n!README*.md\nREADME-secret.md\n",
            &["a.md", "README-secret.md"],
            &["README.md", "a/b.md"],
        );
    }

    #[test]
    fn patterns_begin_at_the_root() {
        check("/a\nb/\n", &["a", "a/x", "b", "b/c"], &["x/a", "x/b"]);
        check("*/temp*\n*/*/temp*\ntemp?\n", &["s/tempx", "s/t/temp.txt", "tempa"], &["temp", "a/b/c/temp"]);
        check("**/*.go\n", &["a.go", "x/y/a.go"], &["a.gox"]);
        check("a/../b\n./c\n", &["b", "c"], &["a"]);
    }

    #[test]
    fn comments_blanks_and_marks() {
        check("\u{feff}# a\n \n  a  \n #b\n", &["a", "#b"], &["b", "# a"]);
        assert!(Ignore::new("!\n").is_err() && Ignore::new("[\n").is_err());
        check(".\n/\n", &[], &["a"]);
        for bad in ["[-]", "[-x]", "[a-b-c]", "[b-a]", "!["] {
            let said = Ignore::new(&format!("a\n# b\n{bad}\nc\n")).unwrap_err();
            assert_eq!(said, format!("line 3: {:?}: not a pattern", bad.trim_start_matches('!')));
        }
        let patterns = Ignore::of_patterns(&["#a".to_owned(), " b ".to_owned()]).unwrap();
        assert!(patterns.excludes("#a") && patterns.excludes("b/c") && !patterns.excludes("a"));
    }
}
