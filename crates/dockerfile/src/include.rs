//! What COPY --parents takes: a path or a pattern below a directory.

use crate::glob::{Pattern, Rules};
use crate::ignore::parents;

/// A path below a directory, with patterns as in .dockerignore: `**` stands for any number of directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Include {
    whole: Pattern,
    /// Of each directory on the way, up to the first that may stand for several.
    way: Vec<Pattern>,
}

impl Include {
    /// Reads a clean path ([`crate::ignore::clean`]) that is not empty.
    ///
    /// # Errors
    /// It is no pattern.
    pub fn new(path: &str) -> Result<Include, String> {
        let way = path.split('/').take_while(|part| !part.contains("**"));
        let way = way.map(|part| Pattern::new(part, Rules::Ignore)).collect::<Result<_, _>>()?;
        Ok(Include { whole: Pattern::new(path, Rules::Ignore)?, way })
    }

    /// True where `path` is taken: it, or a directory that it is in, is what was asked for.
    pub fn takes(&self, path: &str) -> bool {
        self.whole.matches(path) || parents(path).any(|dir| self.whole.matches(dir))
    }

    /// True where something below the directory `path`, which is not taken itself, may be.
    pub fn leads_through(&self, path: &str) -> bool {
        path.split('/').zip(&self.way).all(|(part, pattern)| pattern.matches(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, taken: &[&str], ways: &[&str], others: &[&str]) {
        let include = Include::new(path).unwrap();
        taken.iter().for_each(|text| assert!(include.takes(text), "{path} should take {text}"));
        ways.iter()
            .chain(others)
            .for_each(|text| assert!(!include.takes(text), "{path} should not take {text}"));
        ways.iter()
            .for_each(|text| assert!(include.leads_through(text), "{path} should lead through {text}"));
        others
            .iter()
            .for_each(|text| assert!(!include.leads_through(text), "{path} leads not through {text}"));
    }

    #[test]
    fn what_is_taken_and_the_way_to_it() {
        check("a/b", &["a/b", "a/b/c/d"], &["a"], &["b", "a/c", "ab"]);
        check("*/x.?", &["a/x.c", "b/x.d/e"], &["a"], &["a/y"]);
        check("a/**/e", &["a/e", "a/b/c/e", "a/b/e/f"], &["a", "a/b", "a/b/c"], &["b", "b/e"]);
        check("**/e", &["e", "a/e/b"], &["a", "a/b"], &[]);
        assert!(Include::new("a/[").is_err() && Include::new("**/[").is_err());
    }
}
