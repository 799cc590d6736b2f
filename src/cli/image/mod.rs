//! The commands about images. `rt` has only their flags: it executes `rt-pull`, as git does with its
//! commands, so that the runtime holds no network and no archive code.

mod cache;
pub(super) mod flags;
mod inspect;
mod login;
mod pull;
mod save;

use super::args::Command;
use super::parse::{Call, Flags};
use super::{Program, args};
use crate::error::{Context, Result};
use crate::pull::cache::Place;
use crate::pull::credentials::{Credentials, Places};
use crate::pull::registry::Access;
use crate::{bail, err, log};
use ::log::LevelFilter;
use flags::*;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// Executes `rt-pull` with this process's words. Returns only where that fails.
pub fn execute(_: &Call) -> Result<u8> {
    let beside = std::env::current_exe().context(|| "find rt itself")?.with_file_name("rt-pull");
    for program in [beside.as_path(), "rt-pull".as_ref()] {
        let e = std::process::Command::new(program).args(crate::sys::start::args().iter().skip(1)).exec();
        if e.kind() != ErrorKind::NotFound {
            return Err(e).context(|| format!("execute {}", program.display()));
        }
    }
    bail!("rt-pull is installed neither as {} nor in PATH", beside.display())
}

/// `rt-pull`'s main.
pub fn main() -> u8 {
    super::run_program(&Program { act, log_format: log::Format::Plain, log_level: LevelFilter::Info })
}

fn act(command: &'static Command, call: &Call) -> Result<u8> {
    if call.flags.has(&SILENT) && !call.globals.has(&args::DEBUG) {
        ::log::set_max_level(LevelFilter::Error);
    }
    match command.name {
        "pull" => pull::run(call),
        "inspect" => inspect::run(call),
        "save" => save::run(call),
        "login" => login::login(call),
        "logout" => login::logout(call),
        "cache" => cache::run(call),
        name => bail!("rt {name} is not a command of rt-pull"),
    }
}

/// What the flags say about the registry.
fn access(flags: &Flags) -> Result<Access> {
    let credentials = match flags.text(&CREDS)? {
        Some(pair) => Some(Credentials::from_pair(pair).ok_or_else(|| err!("--creds: not USER:PASSWORD"))?),
        None => None,
    };
    let mut places = Places::from_environment();
    if let Some(path) = flags.path(&AUTHFILE) {
        places.docker.insert(0, path);
    }
    Ok(Access {
        credentials,
        places,
        insecure: flags.has(&INSECURE),
        plain_http: flags.has(&PLAIN_HTTP),
        retries: flags.given_number(&RETRIES)?.map(|n| n.min(100)),
    })
}

/// Where blobs are kept.
fn cache_place(flags: &Flags) -> Place {
    match (flags.has(&NO_CACHE), flags.path(&CACHE_DIR)) {
        (true, _) => Place::Scratch,
        (false, Some(dir)) => Place::Lasting(dir),
        (false, None) => Place::default(),
    }
}

/// An operand as text: names of images and registries are.
fn operand<'a>(call: &Call<'a>, n: usize) -> Result<&'a str> {
    let word = call.operands[n];
    word.to_str().ok_or_else(|| err!("{}: not UTF-8", PathBuf::from(word).display()))
}

/// Bytes, with a suffix in powers of 1000.
fn bytes(flags: &Flags, flag: &args::Flag) -> Result<Option<u64>> {
    let Some(text) = flags.text(flag)? else { return Ok(None) };
    let bytes = parse_bytes(text).ok_or_else(|| err!("--{} {text}: not a size such as 20G", flag.long))?;
    Ok(Some(bytes))
}

fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B') {
        "" => 1,
        "K" => 1000,
        "M" => 1000_u64.pow(2),
        "G" => 1000_u64.pow(3),
        "T" => 1000_u64.pow(4),
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Writes to stderr what is no error; who closed it does not want to know.
fn tell(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let all = ["20G", "20gb", "7", "7B", "1K"].map(parse_bytes);
        assert_eq!(all, [Some(20_000_000_000), Some(20_000_000_000), Some(7), Some(7), Some(1000)]);
        assert_eq!(["", "G", "20X", "-1", "99999999999T"].map(parse_bytes), [None; 5]);
    }
}
