//! `rt-pull`'s commands. `rt` has the same flags and executes this program.

mod build;
mod build_words;
mod cache;
mod convert;
mod id_file;
mod images;
mod inspect;
mod login;
mod pull;
mod push;
mod save;

use crate::cache::{Cache, CacheLocation};
use crate::image_file::Form;
use crate::reference::{Source, means_a_file};
use ::log::LevelFilter;
use oci_registry::LeastRate;
use oci_registry::credentials::{CredentialFiles, Credentials};
use oci_registry::registry::ConnectOptions;
use rt_cli::command::{Command, Program};
use rt_cli::flag::{DEBUG, Flag};
use rt_cli::image::*;
use rt_cli::parse::{self, Call, Flags};
use rt_config::{Config, Key};
use rt_image_store::bundle_of_digest;
use rt_image_store::word::{self, There};
use rt_spec::OCI_VERSION;
use rt_sys::error::{Error, Result};
use rt_sys::{bail, err, log, look};
use rustix::fs::FileType;
use squashfs_write::Compression;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

static PROGRAM: Program = Program {
    summary: "turn images into bundles, and look after what is kept of them",
    commands: &[
        Command { run: |call| heeding_quiet(call, pull::run), ..PULL },
        Command { run: |call| heeding_quiet(call, inspect::run), ..INSPECT },
        Command { run: |call| heeding_quiet(call, save::run), ..SAVE },
        Command { run: |call| heeding_quiet(call, convert::run), ..CONVERT },
        Command { run: |call| heeding_quiet(call, push::run), ..PUSH },
        Command { run: |call| heeding_quiet_but(call, LevelFilter::Warn, build::run), ..BUILD },
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
    heeding_quiet_but(call, LevelFilter::Error, run)
}

/// The same, with what is logged nevertheless. A build goes on with what others have made of a base, and only a warning says so.
fn heeding_quiet_but(call: &Call, level: LevelFilter, run: fn(&Call) -> Result<u8>) -> Result<u8> {
    if call.flags.has(&SILENT) && !call.globals.has(&DEBUG) {
        ::log::set_max_level(level);
    }
    run(call)
}

/// What the site and the user have configured, read once.
fn config() -> Result<&'static Config> {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    if CONFIG.get().is_none() {
        let _ = CONFIG.set(Config::read(&rt_config::own_variable)?);
    }
    CONFIG.get().ok_or_else(|| err!("the configuration was not read"))
}

/// The image that an operand names; in the configured registry, where it names none.
fn source(name: &str) -> Result<Source> {
    not_a_file(name)?;
    if bundle_of_digest(name).is_some() {
        return Err(err!("{name}: a digest alone names images of the store, and none of a registry")
            .hint("rt run, save and push take it"));
    }
    Source::named(name, registry()?)
}

/// The registry of names that name none, where one is configured.
fn registry() -> Result<Option<&'static str>> {
    Ok(config()?.text(&rt_config::REGISTRY))
}

/// Refuses a name that is a file here: whoever types that means the file, and the registry may have an image of that name,
/// somebody else's.
pub(super) fn not_a_file(name: &str) -> Result<()> {
    // A name that says where it is means nothing that is here.
    if name.contains("://") {
        return Ok(());
    }
    let path = Path::new(name);
    // What somebody else has put here is not looked into.
    match word::look(path)? {
        There::Own(FileType::RegularFile) => {
            Err(is_no_name(name, "a file", &format!("oci-archive:{name} or docker-archive:{name} reads it")))
        }
        There::Own(FileType::Directory) if look::is_file(path.join("oci-layout"))? => Err(is_a_layout(name)),
        There::Nothing if means_a_file(name) => Err(err!("{name}: no file here, and no such image")
            .hint(format!("docker://{name} would be an image of that name in a registry"))),
        _ => Ok(()),
    }
}

/// What to say where an image layout is here by the name of an image.
fn is_a_layout(name: &str) -> Error {
    is_no_name(name, "an image layout", &format!("oci:{name} reads it"))
}

fn is_no_name(name: &str, what: &str, remedy: &str) -> Error {
    err!("{name} is {what} here, not a name in a registry")
        .hint(format!("{remedy}; docker://{name} is the name"))
}

/// A switch: as the flag says, else as it is configured.
fn switch(flags: &Flags, flag: &Flag, key: &Key) -> Result<bool> {
    Ok(match flags.switch(flag) {
        Some(on) => on,
        None => config()?.switch(key).unwrap_or(false),
    })
}

/// The value of a flag as text, else what is configured.
fn text<'a>(flags: &Flags<'a>, flag: &Flag, key: &'static Key) -> Result<Option<&'a str>> {
    match flags.text(flag)? {
        Some(text) => Ok(Some(text)),
        None => Ok(config()?.text(key)),
    }
}

/// `rt-pull` as registries and their users know it.
const CLIENT: oci_registry::Program = oci_registry::Program {
    name: "rt-pull",
    login: "rt login",
    insecure: "set insecure = true for it in registries.conf (rt pull: --insecure)",
    plain_http: "set insecure = true for it in registries.conf (rt pull: --plain-http)",
    no_such_host: "is the name of the registry right? rt doctor looks at proxies",
    least_rate: "pull.least-rate in config.toml is the least rate, 0 means any",
};

/// What the flags say about the registry.
fn connect_options(flags: &Flags) -> Result<ConnectOptions> {
    let credentials = match flags.text(&CREDS)? {
        Some(pair) => Some(Credentials::from_pair(pair).ok_or_else(|| err!("--creds: not USER:PASSWORD"))?),
        None => None,
    };
    let mut credential_files = CredentialFiles::from_environment()?;
    if let Some(path) = flags.path(&AUTHFILE) {
        credential_files.named.insert(0, path);
    }
    Ok(ConnectOptions {
        program: CLIENT,
        credentials,
        credential_files,
        insecure: flags.has(&INSECURE),
        plain_http: flags.has(&PLAIN_HTTP),
        retries: match flags.given_number(&RETRIES)? {
            Some(n) => Some(n.min(100)),
            None => config()?.number(&rt_config::RETRIES).map(|n| n.min(100) as u32),
        },
        least_rate: {
            let default = LeastRate::default();
            let over = config()?.number(&rt_config::LEAST_RATE_TIME);
            LeastRate {
                bytes: config()?.number(&rt_config::LEAST_RATE).unwrap_or(default.bytes),
                over: over.map_or(default.over, Duration::from_secs),
            }
        },
    })
}

/// Where blobs are kept.
fn cache_location(flags: &Flags) -> Result<CacheLocation> {
    Ok(match (flags.has(&NO_CACHE), flags.path(&CACHE_DIR)) {
        (true, _) => CacheLocation::Scratch,
        (false, Some(dir)) => CacheLocation::Lasting(dir),
        (false, None) => match config()?.text(&rt_config::CACHE) {
            Some(dir) => CacheLocation::Lasting(dir.into()),
            None => CacheLocation::Lasting(Cache::default_root()?),
        },
    })
}

/// An operand as text: names of images and registries are.
fn operand<'a>(call: &Call<'a>, n: usize) -> Result<&'a str> {
    let word = call.operands[n];
    word.to_str().ok_or_else(|| err!("{}: not UTF-8", PathBuf::from(word).display()))
}

/// The second operand, which says what `command` makes.
fn target<'a>(call: &Call<'a>, command: &Command) -> Result<&'a str> {
    match call.operands.len() {
        2 => operand(call, 1),
        _ => Err(parse::missing_operand(command).context(command.name)),
    }
}

/// The value of `flag` as a number of bytes.
fn bytes(flags: &Flags, flag: &Flag) -> Result<Option<u64>> {
    let Some(text) = flags.text(flag)? else { return Ok(None) };
    let bytes = parse::bytes(text).ok_or_else(|| err!("--{} {text}: not a size such as 20G", flag.long))?;
    Ok(Some(bytes))
}

/// What kind of image file `target` is to be; none where its name says that it is to be no file.
fn image_file(flags: &Flags, target: &Path) -> Result<Option<Form>> {
    let word = flags.text(&COMPRESS)?;
    let (runs, whatever_name) = (flags.given(&RUN_FILE), flags.has(&IMAGE_FILE));
    match runs || whatever_name || is_image_file(target) {
        true => {
            let compression = compression(word.unwrap_or("zstd"))?;
            Ok(Some(Form { compression, runs, whatever_name }))
        }
        false if is_other_image_file(target) => Err(err!("{}: rt writes no such file", target.display())
            .hint(format!("{}.sqsh is a file with the image", target.with_extension("").display()))),
        false if word.is_some() => {
            bail!("--compress is for an image file, such as {}.sqsh", target.display())
        }
        false => Ok(None),
    }
}

/// True where the name says that a single file is wanted.
fn is_image_file(target: &Path) -> bool {
    target.extension().is_some_and(|end| ["sqsh", "sqfs", "squashfs"].iter().any(|known| end == *known))
}

/// True where the name says that a file of a kind is wanted that others write: a directory of that name would be a surprise.
fn is_other_image_file(target: &Path) -> bool {
    target.extension().is_some_and(|end| ["sif", "img"].iter().any(|known| end == *known))
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
    let _ = std::io::Write::write_all(&mut std::io::stderr(), log::lines(text).as_bytes());
}
