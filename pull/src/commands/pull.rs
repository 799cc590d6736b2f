//! `rt pull`

use super::{
    bytes, cache_location, config, connect_options, image_file, images, operand, source, switch, tell, text,
};
use crate::platform::Platform;
use crate::profile::{Choices, Profile};
use crate::progress::{Style, size};
use crate::pull::{self, PullOptions, Summary};
use crate::reference::{self, Source, is_with_transport};
use rt_cli::image::*;
use rt_cli::parse::Call;
use rt_cli::{print, print_json};
use rt_sys::error::Result;
use rt_sys::{bail, err};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Pulls an image and says what came of it: the bundle's path on stdout, the rest on stderr.
pub(super) fn run(call: &Call) -> Result<u8> {
    if call.flags.has(&STORE) {
        return images::pull(call);
    }
    if call.flags.given(&PULL_POLICY) {
        bail!("pull: --pull needs --store");
    }
    let options = options(call)?;
    let summary = pull::run(&options)?;
    let path = rt_sys::fd::absolute(&options.target)?;
    if call.flags.has(&JSON) {
        return print_json(&as_json(&path, &summary));
    }
    if options.style != Style::Quiet {
        tell_summary(&summary);
    }
    print(format!("{}\n", path.display()))
}

fn options(call: &Call) -> Result<PullOptions> {
    let image = operand(call, 0)?.to_owned();
    if let Some(named) = call.operands.get(1).and_then(|word| word.to_str())
        && is_with_transport(named)
        && !is_with_transport(&image)
    {
        let target = match super::is_other_image_file(Path::new(&image)) {
            true => PathBuf::from(&image).with_extension("sqsh"),
            false => PathBuf::from(&image),
        };
        let error = err!("pull: {named} is an image, and stands where the name of the bundle or file stands");
        return Err(error.hint(format!("rt pull {named} {}", target.display())));
    }
    let source = source(&image)?;
    let target = match (call.operands.get(1), &source) {
        (Some(target), _) => PathBuf::from(target),
        (None, Source::Registry(image)) => reference::bundle_name(image).into(),
        (None, _) => bail!("{image}: needs a name for the bundle's directory"),
    };
    pull_options(call, image, source, target)
}

/// What the flags say, for a bundle at `target`, or in the store where that is empty: what they say of a file is then about another
/// one.
pub(super) fn pull_options(
    call: &Call,
    image: String,
    source: Source,
    target: PathBuf,
) -> Result<PullOptions> {
    let flags = &call.flags;
    let is_for_store = target.as_os_str().is_empty();
    let image_file = if is_for_store { None } else { image_file(flags, &target)? };
    let profile = match text(flags, &PROFILE, &rt_config::PROFILE)? {
        None | Some("hpc") => Profile::Hpc,
        Some("isolated") => Profile::Isolated,
        Some(other) => bail!("--profile {other}: use hpc or isolated"),
    };
    let user = text(flags, &BUNDLE_USER, &rt_config::USER_MAP)?
        .map(rt_spec::rootless::parse_user_map)
        .transpose()?;
    if image_file.is_some() && profile == Profile::Isolated {
        bail!("--profile isolated needs a bundle, not an image file");
    }
    // Somebody who wants to be root inside wants to install something.
    let writable = switch(flags, &WRITABLE, &rt_config::PULL_WRITABLE)?
        || user == Some(rt_spec::rootless::UserMap::Root);
    Ok(PullOptions {
        image,
        source,
        target,
        store: None,
        image_file,
        platform: flags.text(&PLATFORM)?.map_or_else(|| Ok(Platform::host()), str::parse)?,
        choices: Choices { profile, user, writable, home: switch(flags, &HOME, &rt_config::HOME)? },
        shared: profile == Profile::Hpc && !switch(flags, &PRIVATE, &rt_config::PRIVATE)?,
        owners: false,
        force: flags.has(&REPLACE),
        sync: flags.has(&SYNC),
        verify: flags.has(&VERIFY),
        max_bytes: bytes(flags, &MAX_SIZE)?.or(config()?.number(&rt_config::MAX_SIZE)).unwrap_or(u64::MAX),
        connections: match flags.given_number(&CONNECTIONS)? {
            Some(n) => Some(n as usize),
            None => config()?.number(&rt_config::CONNECTIONS).map(|n| n.min(1000) as usize),
        },
        connect: connect_options(flags)?,
        cache: cache_location(flags)?,
        style: Style::of_terminal(flags.has(&SILENT) || flags.has(&JSON)),
    })
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

pub(super) fn as_json(path: &Path, summary: &Summary) -> Value {
    let counts = &summary.counts;
    let phases = summary.phases.iter().map(|(name, time)| ((*name).to_owned(), json!(time.as_secs_f64())));
    json!({
        "bundle": path, "digest": summary.digest, "unchanged": summary.unchanged,
        "fetchedBytes": summary.fetched, "layerBytes": summary.layer_bytes,
        "files": count(&counts.files), "directories": summary.directories, "bytes": count(&counts.bytes),
        "notWritten": { "entries": count(&counts.hidden), "bytes": count(&counts.hidden_bytes) },
        "changed": {
            "owners": count(&counts.owners), "devices": count(&counts.devices), "xattrs": count(&counts.xattrs),
            "repairedModes": count(&counts.repaired), "guardedModes": count(&counts.guarded),
            "unknown": count(&counts.unknown),
        },
        "seconds": phases.collect::<Map<_, _>>(),
    })
}

/// Says on stderr what came of a pull, and in the log what the tree of a caller without root has otherwise than the image.
pub(super) fn tell_summary(summary: &Summary) {
    log_changes(summary);
    match Style::of_terminal(false) {
        // Among what the tasks of a step say, it is rt that speaks.
        Style::Lines => rt_sys::log::tell(as_text(summary)),
        _ => tell(&as_text(summary)),
    }
}

fn as_text(summary: &Summary) -> String {
    if summary.by_another_name {
        return format!("already here, by another name: {}\n", summary.digest);
    }
    if summary.unchanged {
        return format!("unchanged: {}\n", summary.digest);
    }
    let counts = &summary.counts;
    let seconds: f64 = summary.phases.iter().map(|(_, time)| time.as_secs_f64()).sum();
    format!(
        "{} files, {} written, {} fetched in {seconds:.1} s; {}\n",
        count(&counts.files),
        size(count(&counts.bytes)),
        size(summary.fetched),
        summary.digest
    )
}

fn log_changes(summary: &Summary) {
    let counts = &summary.counts;
    for (number, note) in [
        (count(&counts.owners), "entries of other owners are yours now"),
        (count(&counts.devices), "device nodes left out"),
        (count(&counts.xattrs), "extended attributes left out"),
        (count(&counts.repaired), "modes repaired that would have locked you out"),
        (count(&counts.guarded), "modes narrowed, for others may see the bundle (--private keeps them)"),
        (count(&counts.unknown), "entries of unknown types left out"),
    ] {
        if number > 0 {
            log::debug!("{number} {note}");
        }
    }
}
