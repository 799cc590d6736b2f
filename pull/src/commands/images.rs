//! `rt images`, `rt rmi` and `rt prune`, and the store's side of `rt pull`.

use super::pull::{as_json, pull_options, tell_summary};
use super::{operand, registry};
use crate::build;
use crate::images::{self, ListedImage, Prune, StoreRequest, Stored, Watermarks};
use crate::progress::{Style, size};
use crate::reference::Source;
use oci_content::interrupt::Interrupt;
use rt_cli::image::*;
use rt_cli::parse::Call;
use rt_cli::{print, print_json};
use rt_image_store::name::in_registry;
use rt_image_store::{PullPolicy, bundle_of_digest};
use rt_sys::error::Result;
use rt_sys::log::one_line;
use rt_sys::{bail, err};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// `rt pull --store IMAGE`: prints the bundle's path.
pub(super) fn pull(call: &Call) -> Result<u8> {
    let flags = &call.flags;
    for flag in [&PROFILE, &BUNDLE_USER, &WRITABLE, &HOME, &PRIVATE, &REPLACE] {
        if flags.given(flag) {
            let text = err!("pull: --{} is for a bundle of one's own, and not for the store", flag.long);
            return Err(text.hint("rt run has flags for the container"));
        }
    }
    if flags.given(&COMPRESS) {
        bail!("pull: --compress is for an image file, and not for the store");
    }
    if call.operands.len() > 1 {
        bail!("pull: with --store the bundle has no name");
    }
    let (image, source) = named(operand(call, 0)?)?;
    let policy = flags.text(&PULL_POLICY)?.map_or(Ok(PullPolicy::Always), str::parse)?;
    let platform = flags.text(&PLATFORM)?.map(str::to_owned);
    let options = pull_options(call, image, source, PathBuf::new())?;
    let style = options.style;
    let watermarks = Watermarks::from_environment()?;
    let Stored { path, summary } =
        images::fetch(StoreRequest { options, policy, platform, names: None, watermarks, own: false })?;
    match summary {
        Some(summary) if flags.has(&JSON) => return print_json(&as_json(&path, &summary)),
        None if flags.has(&JSON) => {
            return print_json(&json!({ "bundle": path, "unchanged": true }));
        }
        // With missing, as rt run asks, an image that is there is nothing to speak of.
        Some(summary) if style != Style::Quiet && !(summary.unchanged && policy == PullPolicy::Missing) => {
            tell_summary(&summary)
        }
        _ => {}
    }
    print(format!("{}\n", path.display()))
}

/// The name of an image in the store, and where it is; in the configured registry, where it names none.
fn named(image: &str) -> Result<(String, Source)> {
    let source = super::source(image)?;
    Ok(match (&source, registry()?) {
        (Source::Registry(_), Some(registry)) => (in_registry(image, Some(registry)).into_owned(), source),
        _ => (image.to_owned(), source),
    })
}

/// The bundle of an image in the store, where `policy` says what is done if it is missing there.
pub(super) fn stored(call: &Call, image: &str, policy: PullPolicy) -> Result<PathBuf> {
    if let Some(bundle) = bundle_of_digest(image) {
        let missing = || err!("{image}: not in the store of images").hint("rt images lists them");
        return images::Stores::open()?.bundle(&bundle)?.ok_or_else(missing);
    }
    let (image, source) = named(image)?;
    Ok(images::fetch(request(call, image, source, policy)?)?.path)
}

/// The bundle of an image that is in the store by its name, or by a digest, which has to be there; `None` where it has to be got first.
pub(super) fn find(call: &Call, image: &str) -> Result<Option<PathBuf>> {
    if bundle_of_digest(image).is_some() {
        return stored(call, image, PullPolicy::Never).map(Some);
    }
    match named(image)? {
        (image, source @ Source::Registry(_)) => {
            images::find(request(call, image, source, PullPolicy::Never)?)
        }
        // What is on the disk may have changed since.
        _ => Ok(None),
    }
}

fn request(call: &Call, image: String, source: Source, policy: PullPolicy) -> Result<StoreRequest> {
    let options = pull_options(call, image, source, PathBuf::new())?;
    let watermarks = Watermarks::from_environment()?;
    Ok(StoreRequest { options, policy, platform: None, names: None, watermarks, own: false })
}

/// `rt images`.
pub(super) fn list(call: &Call) -> Result<u8> {
    let images = images::list()?;
    if call.flags.has(&JSON) {
        return print_json(&Value::from(images.iter().map(object).collect::<Vec<_>>()));
    }
    if call.flags.has(&DIGESTS_ONLY) {
        return print(images.iter().map(|image| format!("{}\n", image.digest)).collect::<String>());
    }
    print(table(&images))
}

fn object(image: &ListedImage) -> Value {
    let user = |user: &images::BundleUser| match user {
        images::BundleUser::Processes(pids) => json!({ "pids": pids }),
        images::BundleUser::Starting => json!({ "starting": true }),
        images::BundleUser::Elsewhere { host, uid, age } => {
            json!({ "host": host, "uid": uid, "idleSeconds": age.as_secs() })
        }
    };
    json!({
        "names": image.names, "digest": image.digest, "bundle": image.path, "bytes": image.bytes,
        "created": image.created, "pulledSeconds": image.age.as_secs(), "idleSeconds": image.idle.as_secs(),
        "users": image.users.iter().map(user).collect::<Vec<_>>(), "readOnly": !image.own,
    })
}

fn table(images: &[ListedImage]) -> String {
    let mut rows = vec![["NAME", "DIGEST", "SIZE", "PULLED", "USED", "IN USE"].map(str::to_owned)];
    for image in images {
        let digest = image.digest.split_once(':').map_or("", |(_, hex)| hex);
        let row = |name: &str| {
            [
                // Whoever owns the store can have written anything.
                one_line(name),
                one_line(&digest.chars().take(12).collect::<String>()),
                size(image.bytes),
                images::rough(image.age),
                images::rough(image.idle),
                one_line(&users(image)),
            ]
        };
        match &image.names[..] {
            [] => rows.push(row("<none>")),
            names => rows.extend(names.iter().map(|name| row(name))),
        }
    }
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row[..5].iter().enumerate() {
            let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            text += &format!("{cell:<width$}", width = widest + 3);
        }
        text += &format!("{}\n", row[5]);
    }
    text
}

fn users(image: &ListedImage) -> String {
    let mut words = Vec::new();
    for user in &image.users {
        match user {
            images::BundleUser::Processes(pids) => words.push(format!("{} here", pids.len())),
            images::BundleUser::Starting => words.push("just now".to_owned()),
            images::BundleUser::Elsewhere { host, .. } => words.push(host.clone()),
        }
    }
    words.dedup();
    words.join(", ")
}

/// `rt rmi IMAGE...`: what can be removed is, and the first error is told.
pub(super) fn remove(call: &Call) -> Result<u8> {
    let interrupt = Interrupt::install();
    let Some(own) = images::Stores::open()?.own()? else {
        bail!("rmi: there is no store of images that could be changed");
    };
    let platform = call.flags.text(&PLATFORM)?;
    let mut report = String::new();
    let mut failed: Option<rt_sys::error::Error> = None;
    for n in 0..call.operands.len() {
        let name = operand(call, n)?;
        match images::untag(&own, name, registry()?, platform, call.flags.has(&UNTAG), &interrupt) {
            Ok(gone) => {
                report.extend(gone.names.iter().map(|name| format!("untagged {}\n", one_line(name))));
                report.extend(
                    gone.bundle.iter().map(|name| format!("removed {}\n", name.replacen('-', ":", 1))),
                );
            }
            Err(e) => failed = Some(failed.unwrap_or(e)),
        }
    }
    print(report)?;
    failed.map_or(Ok(0), Err)
}

/// `rt prune`.
pub(super) fn prune(call: &Call) -> Result<u8> {
    let flags = &call.flags;
    let what = Prune {
        all: flags.has(&ALL_IMAGES),
        older: flags.text(&OLDER)?.map(duration).transpose()?,
        watermarks: Watermarks::parse(flags.text(&HIGH)?, flags.text(&LOW)?)?,
        dry_run: flags.has(&DRY_RUN),
    };
    if flags.given(&LOW) && what.watermarks.is_none() {
        bail!("prune: --low needs --high");
    }
    let freed = images::prune(what)?;
    // Layers have no names: they go with the images that have one.
    let layers = match what.all && !what.dry_run && what.watermarks.is_none() {
        true => build::Place::prune(what.older.unwrap_or_default())?,
        false => Some(0),
    };
    let bytes: u64 = freed.images.iter().map(|image| image.bytes).sum();
    if flags.has(&JSON) {
        let removed: Vec<Value> = freed.images.iter().map(object).collect();
        print_json(&json!({ "removed": removed, "bytes": bytes, "dryRun": what.dry_run }))?;
    } else {
        let verb = if what.dry_run { "would remove" } else { "removed" };
        let row = |image: &ListedImage| {
            let name = image.names.first().map_or("<none>", String::as_str);
            format!("{verb} {} {} {}\n", one_line(name), one_line(&image.digest), size(image.bytes))
        };
        let rows: String = freed.images.iter().map(row).collect();
        let sum = if what.dry_run { "would be freed" } else { "freed" };
        print(format!("{rows}{} {sum}\n", size(bytes)))?;
    }
    match layers {
        None => log::warn!("layers of builds are kept: a build is running"),
        Some(0) => {}
        Some(count) => log::info!("removed {count} layers of builds"),
    }
    match freed.failed.first() {
        None => Ok(0),
        Some(why) => Err(err!("{} images could not be removed; the first: {why}", freed.failed.len())),
    }
}

/// `30d`, `12h`, `90m`, `45s`, `2w`.
fn duration(text: &str) -> Result<Duration> {
    let wrong = || err!("{text}: not a duration such as 30d, 12h or 45m");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return Err(wrong()),
    };
    let number = text[..text.len() - 1].parse::<u64>().map_err(|_| wrong())?;
    Ok(Duration::from_secs(number.checked_mul(seconds).ok_or_else(wrong)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let read = |text: &str| duration(text).ok().map(|time| time.as_secs());
        assert_eq!(
            ["30d", "12h", "45m", "9s", "1w"].map(read),
            [2_592_000, 43_200, 2700, 9, 604_800].map(Some)
        );
        assert_eq!(["", "d", "3", "-1d", "3\u{e9}", "99999999999999999999d"].map(read), [None; 6]);
    }
}
