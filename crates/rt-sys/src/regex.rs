//! Extended regular expressions, by the C library's regcomp(3).

use crate::bail;
use crate::error::Result;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;

/// A compiled POSIX extended regular expression (regex(7)).
#[derive(Debug)]
pub struct Regex(Box<libc::regex_t>);

impl Regex {
    /// Compiles `pattern`.
    pub fn new(pattern: &str) -> Result<Regex> {
        let Ok(text) = CString::new(pattern) else { bail!("{pattern:?} is not a regular expression") };
        let mut regex = Box::new(MaybeUninit::<libc::regex_t>::uninit());
        // SAFETY: `regex` is memory for one regex_t, and `text` is a C string; regcomp keeps neither pointer.
        let code =
            unsafe { libc::regcomp(regex.as_mut_ptr(), text.as_ptr(), libc::REG_EXTENDED | libc::REG_NOSUB) };
        if code != 0 {
            bail!("{pattern:?} is not a regular expression");
        }
        // SAFETY: regcomp succeeded, so it has filled the regex_t in.
        Ok(Regex(unsafe { regex.assume_init() }))
    }

    /// True where the expression matches some part of `text`.
    pub fn matches(&self, text: &CStr) -> bool {
        // SAFETY: the regex_t was compiled by regcomp; with REG_NOSUB no match is written.
        unsafe { libc::regexec(&*self.0, text.as_ptr(), 0, ptr::null_mut(), 0) == 0 }
    }
}

impl Drop for Regex {
    fn drop(&mut self) {
        // SAFETY: the regex_t was compiled by regcomp, and is freed once.
        unsafe { libc::regfree(&mut *self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_extended() {
        let job = Regex::new("^job-(17|18)\\.[0-9]+$").unwrap();
        assert!(job.matches(c"job-17.0"));
        assert!(!job.matches(c"job-19.0"));
        assert!(Regex::new("a").unwrap().matches(c"xax"));
        assert!(Regex::new("(").is_err());
    }
}
