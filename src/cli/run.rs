//! `rt run`

use super::operand::{self, Operand};
use super::table::*;
use super::{Call, PROGRAM, create, image};
use crate::container::{self, Lifetime, Overrides};
use rt_cli::image::{PLATFORM, PULL_POLICY};
use rt_sys::bail;
use rt_sys::error::Result;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;

/// Creates a container, starts it and, unless it is detached, waits for its end and removes it.
pub(super) fn run(call: &Call) -> Result<u8> {
    let flags = &call.flags;
    // Before an image is pulled.
    if flags.has(&REMOVE) && (flags.has(&DETACH) || flags.has(&KEEP)) {
        bail!("run: --rm cannot be kept with --detach or --keep (rt delete removes the container)");
    }
    let Some((id, bundle)) = id_and_bundle(call)? else {
        return Ok(PROGRAM.command("run").map_or(1, |command| command.failure));
    };
    let mut options = create::options(call, id, bundle)?;
    options.lifetime = match (flags.has(&DETACH), flags.has(&KEEP)) {
        // The state of a detached container is kept in any case.
        (true, _) => Lifetime::Detached,
        (false, true) => Lifetime::ForegroundKept,
        (false, false) => Lifetime::Foreground,
    };
    options.overrides = Overrides {
        args: call.rest()?,
        env: flags.texts(&ENV)?,
        cwd: flags.path(&CWD),
        terminal: flags.switch(&TTY),
        volumes: flags.texts(&VOLUME)?,
        devices: flags.texts(&DEVICE)?,
    };
    container::run(&super::new_store(call)?, options)
}

/// The id and the bundle that the operand stands for; none where `rt-pull` has said why there is no bundle.
fn id_and_bundle(call: &Call) -> Result<Option<(String, PathBuf)>> {
    let flags = &call.flags;
    let (config, named) = (flags.path(&CONFIG), flags.path(&BUNDLE));
    let config = config.unwrap_or_else(|| PathBuf::from("config.json"));
    let operand = match named {
        Some(_) => Operand::Id(call.id()?.to_owned()),
        None => operand::classify(call.operands[0], &config)?,
    };
    if let Some(flag) = [&PULL_POLICY, &PLATFORM].into_iter().find(|flag| flags.given(flag))
        && !matches!(operand, Operand::Image(_))
    {
        bail!("run: --{} is for images only", flag.long);
    }
    Ok(match operand {
        Operand::Bundle(bundle) => Some((made_up_id(), bundle)),
        Operand::Id(id) => Some((id, named.unwrap_or_else(|| PathBuf::from(".")))),
        Operand::File(path) => return Err(operand::file_is_no_bundle(&path)),
        Operand::Image(name) => image::bundle(call, &name)?.map(|bundle| (made_up_id(), bundle)),
    })
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
    use rt_cli::parse::{self, Flags};
    use std::ffi::OsString;
    use std::path::Path;

    fn read(words: &[&str]) -> (String, PathBuf) {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let call = parse::call(PROGRAM.command("run").unwrap(), Flags::default(), &words).unwrap().unwrap();
        id_and_bundle(&call).unwrap().unwrap()
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
        assert_eq!(read(&["-b", name, "c1"]), ("c1".into(), dir.clone()));
        assert_eq!(read(&["-f", "mod.rs", "src/cli"]).1, Path::new("src/cli"));
        assert_eq!(read(&["-f", "lib.rs", "src"]).1, Path::new("src"));
        // This package's directory has a Cargo.toml.
        assert_eq!(read(&["-f", "Cargo.toml", "c1"]), ("c1".into(), ".".into()));
        std::fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn made_up_ids_differ() {
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| made_up_id()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
