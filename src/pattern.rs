//! Regular expressions of users: `--regex`, and the conditions in hooks.d.

use regex_lite::Regex;
use rt_sys::err;
use rt_sys::error::Result;

/// Compiles `pattern`; the error is one line that says what is wrong with it.
pub(crate) fn compile(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|e| err!("{pattern:?} is not a regular expression: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_regular_expressions() {
        let job = compile("^job-(17|18)\\.[[:digit:]]+$").unwrap();
        assert!(job.is_match("job-17.0"));
        assert!(!job.is_match("job-19.0"));
        assert!(compile("a").unwrap().is_match("xax"));
        for pattern in ["(", "([", "a{2,1}", "a\n(b", "*"] {
            let text = compile(pattern).unwrap_err().to_string();
            assert!(text.starts_with(&format!("{pattern:?} is not a regular expression: ")), "{text}");
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }
}
