//! `rt-manual man|bash|zsh|fish DIR`: a tool of the build, which is not installed.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

use std::path::Path;
use std::process::ExitCode;

use rt_manual::Kind;
use rt_sys::err;
use rt_sys::error::Result;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            rt_sys::log::tell(format_args!("rt-manual: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    match words {
        [kind, dir] => rt_manual::write(kind.parse::<Kind>()?, Path::new(dir)),
        _ => Err(err!("needs man, bash, zsh or fish, and DIR")),
    }
}
