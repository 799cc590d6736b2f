//! `rt-pull`'s commands. `rt` has the same flags and executes this program.

mod cache;
mod images;
mod inspect;
mod login;
mod pull;
mod save;

use crate::cache::CacheLocation;
use crate::credentials::{CredentialFiles, Credentials};
use crate::registry::ConnectOptions;
use ::log::LevelFilter;
use rt_cli::command::{Command, Program};
use rt_cli::flag::{DEBUG, Flag};
use rt_cli::image::*;
use rt_cli::parse::{Call, Flags};
use rt_spec::OCI_VERSION;
use rt_sys::error::Result;
use rt_sys::{err, log};
use std::path::PathBuf;

static PROGRAM: Program = Program {
    summary: "turn images into bundles, and look after what is kept of them",
    commands: &[
        Command { run: |call| heeding_quiet(call, pull::run), ..PULL },
        Command { run: |call| heeding_quiet(call, inspect::run), ..INSPECT },
        Command { run: |call| heeding_quiet(call, save::run), ..SAVE },
        Command { run: login::login, ..LOGIN },
        Command { run: login::logout, ..LOGOUT },
        Command { run: cache::run, ..CACHE },
        Command { run: images::list, ..IMAGES_COMMAND },
        Command { run: images::remove, ..RMI },
        Command { run: images::prune, ..PRUNE },
    ],
    version: || rt_cli::version(OCI_VERSION),
    log_format: log::Format::Plain,
    log_level: LevelFilter::Info,
};

/// `rt-pull`'s main.
pub fn main() -> u8 {
    rt_cli::run(&PROGRAM)
}

/// Runs a command that has `--quiet`: with it, nothing but errors is logged.
fn heeding_quiet(call: &Call, run: fn(&Call) -> Result<u8>) -> Result<u8> {
    if call.flags.has(&SILENT) && !call.globals.has(&DEBUG) {
        ::log::set_max_level(LevelFilter::Error);
    }
    run(call)
}

/// What the flags say about the registry.
fn connect_options(flags: &Flags) -> Result<ConnectOptions> {
    let credentials = match flags.text(&CREDS)? {
        Some(pair) => Some(Credentials::from_pair(pair).ok_or_else(|| err!("--creds: not USER:PASSWORD"))?),
        None => None,
    };
    let mut credential_files = CredentialFiles::from_environment();
    if let Some(path) = flags.path(&AUTHFILE) {
        credential_files.docker.insert(0, path);
    }
    Ok(ConnectOptions {
        credentials,
        credential_files,
        insecure: flags.has(&INSECURE),
        plain_http: flags.has(&PLAIN_HTTP),
        retries: flags.given_number(&RETRIES)?.map(|n| n.min(100)),
    })
}

/// Where blobs are kept.
fn cache_location(flags: &Flags) -> CacheLocation {
    match (flags.has(&NO_CACHE), flags.path(&CACHE_DIR)) {
        (true, _) => CacheLocation::Scratch,
        (false, Some(dir)) => CacheLocation::Lasting(dir),
        (false, None) => CacheLocation::default(),
    }
}

/// An operand as text: names of images and registries are.
fn operand<'a>(call: &Call<'a>, n: usize) -> Result<&'a str> {
    let word = call.operands[n];
    word.to_str().ok_or_else(|| err!("{}: not UTF-8", PathBuf::from(word).display()))
}

/// Bytes, with a suffix in powers of 1000.
fn bytes(flags: &Flags, flag: &Flag) -> Result<Option<u64>> {
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
