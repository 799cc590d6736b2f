//! `rt cache list|prune|verify`.

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::super::cache::Cache;
use super::super::cli::Call;
use super::super::interrupt::Interrupt;
use super::super::progress::size;
use crate::bail;
use crate::error::Result;

/// Runs the command.
pub fn run(call: &Call) -> Result<()> {
    let (cache, _scratch) = super::cache(call, None)?;
    match call.arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list"] => list(call, &cache),
        ["prune"] => prune(call, &cache),
        ["verify"] => verify(&cache),
        _ => bail!("cache: list, prune and verify are known"),
    }
}

fn list(call: &Call, cache: &Cache) -> Result<()> {
    let mut blobs = cache.list()?;
    blobs.sort_by_key(|(_, size, _)| std::cmp::Reverse(*size));
    let total: u64 = blobs.iter().map(|(_, size, _)| size).sum();
    if call.has("json") {
        let blobs: Vec<_> = blobs
            .iter()
            .map(|(digest, size, used)| json!({ "digest": digest, "size": size, "idleSeconds": idle(*used).as_secs() }))
            .collect();
        say!("{}\n", json!({ "path": cache.root(), "bytes": total, "blobs": blobs }));
        return Ok(());
    }
    for (digest, bytes, used) in &blobs {
        say!("{:>9}  {:>4} d  {digest}\n", size(*bytes), idle(*used).as_secs() / 86400);
    }
    say!("{:>9}  {} blobs in {}\n", size(total), blobs.len(), cache.root().display());
    Ok(())
}

fn idle(used: SystemTime) -> Duration {
    SystemTime::now().duration_since(used).unwrap_or_default()
}

/// Oldest first, until what the options allow is left.
fn prune(call: &Call, cache: &Cache) -> Result<()> {
    let mut blobs = cache.list()?;
    blobs.sort_by_key(|(_, _, used)| *used);
    let mut kept: u64 = blobs.iter().map(|(_, size, _)| size).sum();
    let (days, most) = (call.number("older-than")?, call.bytes("max-size")?);
    let all = days.is_none() && most.is_none();
    let mut freed = cache.sweep(all)?;
    for (digest, size, used) in blobs {
        let old = days.is_some_and(|days| idle(used) > Duration::from_secs(days * 86400));
        let much = most.is_some_and(|most| kept > most);
        if all || old || much {
            // Other users' blobs in a sticky directory are theirs.
            if let Ok(bytes) = cache.remove(&digest) {
                freed += bytes;
                kept = kept.saturating_sub(size);
            }
        }
    }
    say!("{} freed\n", size(freed));
    Ok(())
}

fn verify(cache: &Cache) -> Result<()> {
    let interrupt = Interrupt::install();
    let mut bad = 0;
    for (digest, size, _) in cache.list()? {
        if let Err(e) = cache.verify(&digest, size, &interrupt) {
            interrupt.check()?;
            cache.remove(&digest)?;
            tell!("{e}: removed\n");
            bad += 1;
        }
    }
    if bad > 0 {
        bail!("cache: {bad} damaged blobs were removed");
    }
    say!("all blobs are right\n");
    Ok(())
}
