//! `rt-pull`'s commands. `rt` has the same flags and executes this program.

mod cache;
mod images;
mod inspect;
mod login;
mod pull;
mod push;
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
use rt_sys::error::{Error, Result};
use rt_sys::{bail, err, log};
use squashfs_write::Compression;
use std::path::{Path, PathBuf};

static PROGRAM: Program = Program {
    summary: "turn images into bundles, and look after what is kept of them",
    commands: &[
        Command { run: |call| heeding_quiet(call, pull::run), ..PULL },
        Command { run: |call| heeding_quiet(call, inspect::run), ..INSPECT },
        Command { run: |call| heeding_quiet(call, save::run), ..SAVE },
        Command { run: |call| heeding_quiet(call, push::run), ..PUSH },
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

/// How the image file `target` is compressed; none where its name says that it is to be no file.
fn image_file(flags: &Flags, target: &Path) -> Result<Option<Compression>> {
    let said = flags.text(&COMPRESS)?;
    match is_image_file(target) {
        true => compression(said.unwrap_or("zstd")).map(Some),
        false if said.is_some() => {
            bail!("--compress is for an image file, such as {}.sqsh", target.display())
        }
        false => Ok(None),
    }
}

/// True where the name says that a single file is wanted.
fn is_image_file(target: &Path) -> bool {
    target.extension().is_some_and(|end| ["sqsh", "sqfs", "squashfs"].iter().any(|known| end == *known))
}

/// `none`, `gzip`, `lz4` or `zstd`, and perhaps `:LEVEL`.
fn compression(text: &str) -> Result<Compression> {
    let (name, level) = match text.split_once(':') {
        Some((name, level)) => (name, Some(level.parse::<u8>().map_err(|_| bad_compression(text))?)),
        None => (text, None),
    };
    Ok(match (name, level) {
        ("none", None) => Compression::None,
        ("lz4", None) => Compression::Lz4,
        ("gzip", level @ (None | Some(1..=9))) => Compression::Gzip(level.unwrap_or(9).into()),
        ("zstd", level @ (None | Some(1..=22))) => Compression::Zstd(level.unwrap_or(3).into()),
        _ => return Err(bad_compression(text)),
    })
}

fn bad_compression(text: &str) -> Error {
    err!("--compress {text}: use zstd[:1-22], lz4, gzip[:1-9] or none")
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
