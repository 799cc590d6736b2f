//! `rt cache list|prune|verify`.

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::{bytes, cache_location, operand, tell};
use crate::cache::{Cache, CachedBlob, Sweep};
use crate::progress::size;
use oci_content::interrupt::{Interrupt, is_interrupted};
use rt_cli::image::*;
use rt_cli::parse::Call;
use rt_cli::{print, print_json};
use rt_sys::bail;
use rt_sys::error::{Kind, Result};

/// Runs the command.
pub(super) fn run(call: &Call) -> Result<u8> {
    let (cache, _scratch) = cache_location(&call.flags)?.open(None)?;
    match operand(call, 0)? {
        "list" => list(call, &cache),
        "prune" => prune(call, &cache),
        "verify" => verify(&cache),
        other => bail!("unknown operation {other:?}: use list, prune or verify"),
    }
}

fn list(call: &Call, cache: &Cache) -> Result<u8> {
    let mut blobs = cache.list()?;
    blobs.sort_by_key(|blob| std::cmp::Reverse(blob.size));
    let total: u64 = blobs.iter().map(|blob| blob.size).sum();
    if call.flags.has(&JSON) {
        let blobs: Vec<_> = blobs
            .iter()
            .map(|CachedBlob { digest, size, used }| json!({ "digest": digest, "size": size, "idleSeconds": idle(*used).as_secs() }))
            .collect();
        return print_json(&json!({ "path": cache.path(), "bytes": total, "blobs": blobs }));
    }
    let row = |blob: &CachedBlob| {
        let days = idle(blob.used).as_secs() / 86400;
        format!("{:>9}  {days:>4} d  {}\n", size(blob.size), blob.digest)
    };
    let rows: String = blobs.iter().map(row).collect();
    print(format!("{rows}{:>9}  {} blobs in {}\n", size(total), blobs.len(), cache.path().display()))
}

fn idle(used: SystemTime) -> Duration {
    SystemTime::now().duration_since(used).unwrap_or_default()
}

/// Oldest first, until what the options allow is left.
fn prune(call: &Call, cache: &Cache) -> Result<u8> {
    let mut blobs = cache.list()?;
    blobs.sort_by_key(|blob| blob.used);
    let mut kept: u64 = blobs.iter().map(|blob| blob.size).sum();
    let (days, most) = (call.flags.given_number(&OLDER_THAN)?, bytes(&call.flags, &KEEP_SIZE)?);
    let all = days.is_none() && most.is_none();
    let (mut freed, mut failed) = cache.sweep(if all { Sweep::All } else { Sweep::Old })?;
    for CachedBlob { digest, size, used } in blobs {
        let old = days.is_some_and(|days| idle(used) > Duration::from_secs(u64::from(days) * 86400));
        let much = most.is_some_and(|most| kept > most);
        if all || old || much {
            match cache.remove(&digest) {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    freed += bytes;
                    kept = kept.saturating_sub(size);
                }
                Err(e) => failed.push(e),
            }
        }
    }
    print(format!("{} freed\n", size(freed)))?;
    match failed.first() {
        None => Ok(0),
        Some(why) => bail!("{} files could not be removed; the first: {why}", failed.len()),
    }
}

fn verify(cache: &Cache) -> Result<u8> {
    let interrupt = Interrupt::install();
    let (mut damaged, mut unread) = (0, 0);
    for CachedBlob { digest, size, .. } in cache.list()? {
        match cache.verify(&digest, size, &interrupt) {
            Ok(()) => {}
            Err(e) if is_interrupted(&e) => return Err(e),
            Err(e) if e.kind() == Kind::Damaged => {
                damaged += 1;
                match cache.remove(&digest) {
                    Ok(Some(_)) => tell(&format!("{e}: removed\n")),
                    Ok(None) => tell(&format!("{e}: not removed: it is another user's\n")),
                    Err(why) => tell(&format!("{e}: not removed: {why}\n")),
                }
            }
            // A disk or a server that fails today says nothing about the blob.
            Err(e) => {
                unread += 1;
                tell(&format!("{e}\n"));
            }
        }
    }
    match (damaged, unread) {
        (0, 0) => {}
        (_, 0) => bail!("{damaged} damaged blobs"),
        _ => bail!("{damaged} damaged blobs, and {unread} that could not be read"),
    }
    print("all blobs are right\n")
}
