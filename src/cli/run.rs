//! `rt run`

use super::Call;
use super::create;
use super::table::*;
use crate::container::{self, Entrypoint, Lifetime, Overrides};
use rt_sys::bail;
use rt_sys::error::Result;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

/// Creates a container, starts it and, unless it is detached, waits for its end and removes it.
pub(super) fn run(call: &Call) -> Result<u8> {
    let (id, bundle) = id_and_bundle(call)?;
    let flags = &call.flags;
    let mut options = create::options(call, id, bundle)?;
    options.lifetime = match (flags.has(&DETACH), flags.has(&KEEP)) {
        // The state of a detached container is kept in any case.
        (true, _) => Lifetime::Detached,
        (false, true) => Lifetime::ForegroundKept,
        (false, false) => Lifetime::Foreground,
    };
    if flags.has(&REMOVE) && options.lifetime != Lifetime::Foreground {
        bail!("run: --rm cannot be kept with --detach or --keep (rt delete removes the container)");
    }
    // With --bundle it is a client that calls, and the bundle's config says it all.
    options.configured = call.flags.path(&BUNDLE).is_none();
    options.overrides = Overrides {
        args: call.rest()?,
        entrypoint: match flags.text(&ENTRYPOINT)? {
            None => Entrypoint::OfImage,
            Some(command) => Entrypoint::Command(Some(command.to_owned()).filter(|c| !c.is_empty())),
        },
        inherit_env: !flags.has(&CLEAR_ENV),
        env: super::environment(call)?,
        cwd: flags.path(&CWD),
        terminal: flags.switch(&TTY),
        volumes: flags.texts(&VOLUME)?,
        devices: flags.texts(&DEVICE)?,
        ..Overrides::default()
    };
    container::run(&super::new_store(call)?, options)
}

/// What the operand is: the bundle where no `--bundle` is given and it either can be no id, having
/// a slash in it, or names a directory with a config; else the id.
fn id_and_bundle(call: &Call) -> Result<(String, PathBuf)> {
    if let Some(bundle) = call.flags.path(&BUNDLE) {
        return Ok((call.id()?.to_owned(), bundle));
    }
    let operand = Path::new(call.operands[0]);
    let config = call.flags.path(&CONFIG).unwrap_or_else(|| PathBuf::from("config.json"));
    let is_path = operand.as_os_str().as_encoded_bytes().contains(&b'/') || operand == "." || operand == "..";
    if is_path || operand.join(config).is_file() {
        return Ok((made_up_id(), operand.to_owned()));
    }
    Ok((call.id()?.to_owned(), PathBuf::from(".")))
}

/// Twelve random hexadecimal digits, as podman's short ids. That no other container has it is for
/// the store to see.
fn made_up_id() -> String {
    // std seeds each hasher from getrandom(2), so the hash of nothing is a random number.
    format!("{:012x}", RandomState::new().build_hasher().finish() >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::PROGRAM;
    use rt_cli::parse::{self, Flags};
    use std::ffi::OsString;

    fn read(words: &[&str]) -> (String, PathBuf) {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let call = parse::call(PROGRAM.command("run").unwrap(), Flags::default(), &words).unwrap().unwrap();
        id_and_bundle(&call).unwrap()
    }

    #[test]
    fn the_operand_is_an_id_or_a_bundle() {
        let dir = std::env::temp_dir().join(format!("rt-run-{}", made_up_id()));
        std::fs::create_dir(&dir).unwrap();
        let name = dir.to_str().unwrap();
        // A path is a bundle also where nothing is there: the error is then about the bundle.
        let (id, bundle) = read(&[name]);
        assert!(id.len() == 12 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert_eq!(bundle, dir);
        assert_eq!(read(&["."]).1, Path::new("."));
        assert_eq!(read(&["c1"]), ("c1".into(), ".".into()));
        assert_eq!(read(&["-b", name, "c1"]), ("c1".into(), dir.clone()));
        // This package's directory: src is a directory, yet no bundle.
        assert_eq!(read(&["src"]), ("src".into(), ".".into()));
        assert_eq!(read(&["-f", "mod.rs", "src/cli"]).1, Path::new("src/cli"));
        assert_eq!(read(&["-f", "lib.rs", "src"]).1, Path::new("src"));
        std::fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn made_up_ids_differ() {
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| made_up_id()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
