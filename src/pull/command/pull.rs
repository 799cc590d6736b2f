//! `rt pull`: the story of a pull, from name to bundle.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::blob::{Blob, BlobReader};
use super::super::bundle::{self, Partial};
use super::super::cache::Cache;
use super::super::cli::Call;
use super::super::digest::Digest;
use super::super::disk;
use super::super::interrupt::{Interrupt, interrupted, is_interrupted};
use super::super::layer::{self, Counts, Rules, Target};
use super::super::limits::Limits;
use super::super::merge::{Layer, Merge};
use super::super::platform::Platform;
use super::super::profile::{self, Choices, Profile};
use super::super::progress::{self, Style, size};
use super::super::reference::Source;
use super::super::source::{Image, Opened};
use super::{access, cache};
use crate::error::{Error, Result};
use crate::{bail, err};

/// What the user asked for.
struct Order<'a> {
    call: &'a Call,
    image: &'a str,
    target: PathBuf,
    platform: Platform,
    choices: Choices,
    shared: bool,
    max_bytes: u64,
    style: Style,
}

/// Runs the command.
pub fn run(call: &Call) -> Result<()> {
    let order = order(call)?;
    let interrupt = Interrupt::install();
    disk::raise_open_files();
    let first = pull(&order, &interrupt);
    let result = match first {
        // What an earlier run left did not fit; it is gone now, and the network has the truth.
        Err(e) if e.to_string().contains("after resuming") && !interrupt.signalled() => {
            pull(&order, &interrupt.again())
        }
        other => other,
    };
    let summary = result.map_err(|e| match is_interrupted(&e) {
        true => err!("interrupted; what was fetched is kept, the same command goes on"),
        false => e,
    })?;
    tell(&order, &summary);
    Ok(())
}

fn order(call: &Call) -> Result<Order<'_>> {
    let (image, target) = match &call.arguments[..] {
        [image] => (image, None),
        [image, target] => (image, Some(PathBuf::from(target))),
        _ => bail!("pull: give an image and, if you like, a directory"),
    };
    let source: Source = image.parse()?;
    let target = match (target, &source) {
        (Some(target), _) => target,
        (None, Source::Registry(reference)) => reference.bundle_name().into(),
        (None, _) => bail!("pull: {image} needs the name of a directory for the bundle"),
    };
    let profile = match call.value("profile") {
        None | Some("hpc") => Profile::Hpc,
        Some("isolated") => Profile::Isolated,
        Some(other) => bail!("--profile {other}: hpc and isolated are known"),
    };
    let user = match call.value("user-map") {
        None => None,
        Some(user @ ("caller" | "root" | "config")) => Some(user.to_owned()),
        Some(other) => bail!("--user-map {other}: caller, root and config are known"),
    };
    let platform = call.value("platform").map_or_else(|| Ok(Platform::host()), str::parse)?;
    let home = call.has("home");
    // Root inside is for installing things.
    let writable = call.has("writable") || user.as_deref() == Some("root");
    Ok(Order {
        call,
        image,
        target,
        platform,
        choices: Choices { profile, user, writable, home },
        shared: profile == Profile::Hpc && !call.has("private"),
        max_bytes: call.bytes("max-size")?.unwrap_or(u64::MAX),
        style: Style::of_terminal(call.has("quiet") || call.has("json")),
    })
}

/// What happened, for people and scripts.
struct Summary {
    digest: String,
    unchanged: bool,
    fetched: u64,
    layer_bytes: u64,
    directories: u64,
    counts: Counts,
    phases: Vec<(&'static str, Duration)>,
}

fn pull(order: &Order, interrupt: &Interrupt) -> Result<Summary> {
    let mut phases = Phases::start();
    let source: Source = order.image.parse()?;
    let force = order.call.has("force");
    let exists = order.target.symlink_metadata().is_ok();
    if exists && force {
        bundle::check_replaceable(&order.target)?;
    }
    // The bundle's own directory comes first where it is to hold the scratch cache.
    let mut partial = None;
    let scratch = match order.call.has("no-cache") && (force || !exists) {
        true => Some(partial.insert(Partial::create(&order.target)?).scratch()),
        false => None,
    };
    let (cache, _scratch) = cache(order.call, scratch)?;
    let opened = Opened::open(&source, access(order.call)?, &cache, interrupt)?;
    let head = opened.head()?;
    if exists && !force {
        return unchanged(order, opened, head, &cache, interrupt, phases);
    }
    let image = opened.resolve(head, &order.platform, &cache, interrupt)?;
    phases.end("resolve");
    let partial = match partial {
        Some(partial) => partial,
        None => Partial::create(&order.target)?,
    };
    let root = disk::open_root(&partial.rootfs())?;
    check_space(&root, image.layer_bytes())?;

    let counts = Counts::default();
    let merge = Merge::new(disk::open_root(&partial.rootfs())?, disk::open_root(&partial.trash())?);
    let rules = Rules { caller: disk::caller(), shared: order.shared, max_bytes: order.max_bytes };
    let mask = disk::clear_umask();
    let target = Target { merge: &merge, root: &root, rules, counts: &counts, interrupt };
    let fetched = layers(order, &image, &target, &cache)?;
    phases.end("layers");

    let config = profile::config(
        order.image,
        &image.digest,
        &image.resolved,
        &image.manifest,
        &image.config,
        &root,
        &order.choices,
    )?;
    profile::prepare_mount_points(&root, &config)?;
    if order.choices.user.as_deref() == Some("root") {
        profile::prepare_package_managers(&root)?;
    }
    let directories = layer::finish_directories(&target)?;
    let shared = order.shared && mask & 0o005 == 0;
    let published = partial.publish(&config, shared, force, order.call.has("sync"));
    // Somebody else was faster: with the same image, all is well.
    let same = || bundle::resolved_digest(&order.target).as_deref() == Some(image.resolved.as_str());
    let unchanged = published.is_err() && same();
    if !unchanged {
        published.map_err(|e| in_the_way(e, order))?;
    }
    phases.end("finish");
    Ok(Summary {
        digest: image.digest.to_string(),
        unchanged,
        fetched,
        layer_bytes: image.layer_bytes(),
        directories,
        counts,
        phases: phases.ended,
    })
}

/// There is something at the target: fine if it is what would be pulled.
fn unchanged(
    order: &Order,
    opened: Opened,
    head: Option<Digest>,
    cache: &Cache,
    interrupt: &Interrupt,
    mut phases: Phases,
) -> Result<Summary> {
    let have = bundle::resolved_digest(&order.target);
    let now = match (&have, head) {
        (None, _) => None,
        (Some(_), Some(head)) => Some(head),
        (Some(_), None) => Some(opened.resolve(None, &order.platform, cache, interrupt)?.resolved),
    };
    let Some(now) = now else { bail!("{}: exists and is no pulled bundle", order.target.display()) };
    if have.as_deref() != Some(now.as_str()) {
        return Err(
            err!("{}: exists, with another image", order.target.display()).hint("use --force to replace it")
        );
    }
    phases.end("resolve");
    Ok(Summary {
        digest: now.to_string(),
        unchanged: true,
        fetched: 0,
        layer_bytes: 0,
        directories: 0,
        counts: Counts::default(),
        phases: phases.ended,
    })
}

fn in_the_way(e: Error, order: &Order) -> Error {
    match e.to_string().contains("exists") {
        true => {
            err!("{}: exists by now", order.target.display()).hint("somebody else was faster, or use --force")
        }
        false => e,
    }
}

/// Less space than the compressed layers have cannot do; an honest guess needs their inflated size.
fn check_space(root: &OwnedFd, layer_bytes: u64) -> Result<()> {
    let (free, _) = disk::free_space(root)?;
    if free < layer_bytes {
        bail!(
            "no space left on device: the image needs more than {}, {} are free",
            size(layer_bytes),
            size(free)
        );
    }
    Ok(())
}

/// Obtains and applies all layers, several at a time, from the top. Returns bytes from the network.
fn layers(order: &Order, image: &Image, target: &Target, cache: &Cache) -> Result<u64> {
    let interrupt = target.interrupt;
    // One blob for layers that are the same.
    let mut blobs: Vec<Arc<Blob>> = Vec::new();
    for layer in &image.manifest.layers {
        let known = blobs.iter().find(|blob| blob.digest == layer.digest && blob.size == layer.size).cloned();
        blobs.push(known.unwrap_or_else(|| Blob::new(layer.digest.clone(), layer.size)));
    }
    let order_of_work: Vec<usize> = (0..blobs.len()).rev().collect();
    let mut unique: Vec<usize> = order_of_work.clone();
    unique.retain(|&at| blobs.iter().position(|blob| Arc::ptr_eq(blob, &blobs[at])) == Some(at));

    let limits = Limits::of_this_job(order.call.number("connections")?.map(|n| n as usize));
    let failures: Mutex<Vec<Error>> = Mutex::default();
    let fail = |e: Error| {
        interrupt.stop();
        failures.lock().unwrap_or_else(|e| e.into_inner()).push(e);
    };
    let fetched = Mutex::new(0u64);
    let deferred = Mutex::new(Vec::new());
    let (next_fetch, next_layer) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let show = scope.spawn(|| progress::show(order.style, &blobs, &done));
        let mut threads = Vec::new();
        for _ in 0..limits.downloads.min(unique.len()) {
            threads.push(scope.spawn(|| {
                while let Some(&at) = unique.get(next_fetch.fetch_add(1, Ordering::Relaxed)) {
                    let blob = &blobs[at];
                    let result = interrupt.check().and_then(|()| image.obtain(at, blob, cache, interrupt));
                    if let Ok(true) = result {
                        *fetched.lock().unwrap_or_else(|e| e.into_inner()) += blob.size;
                    }
                    blob.finish(result.as_ref().map(drop).map_err(Error::clone));
                    if let Err(e) = result {
                        fail(e);
                    }
                }
            }));
        }
        for _ in 0..limits.layers.min(blobs.len()) {
            threads.push(scope.spawn(|| {
                while let Some(&at) = order_of_work.get(next_layer.fetch_add(1, Ordering::Relaxed)) {
                    let number = (at + 1) as Layer;
                    let applied = interrupt
                        .check()
                        .and_then(|()| layer::apply(target, number, blobs[at].size, blobs[at].reader()));
                    match applied {
                        Ok(links) => deferred.lock().unwrap_or_else(|e| e.into_inner()).extend(links),
                        Err(e) => fail(e.context(format!("layer {} ({})", number, blobs[at].digest.short()))),
                    }
                }
            }));
        }
        for thread in threads {
            let _ = thread.join();
        }
        done.store(true, Ordering::Release);
        let _ = show.join();
    });
    if let Some(e) = cause(failures.into_inner().unwrap_or_else(|e| e.into_inner()), &blobs) {
        return Err(e);
    }
    let mut deferred = deferred.into_inner().unwrap_or_else(|e| e.into_inner());
    deferred.sort_by_key(|link| link.layer);
    layer::finish_links(target, deferred, |number| -> Result<BlobReader> {
        Ok(blobs[usize::from(number) - 1].reader())
    })?;
    Ok(fetched.into_inner().unwrap_or_else(|e| e.into_inner()))
}

/// The failure to show: of a blob before that of what its bytes did, and "interrupted" last.
fn cause(failures: Vec<Error>, blobs: &[Arc<Blob>]) -> Option<Error> {
    let blob_failed = |e: &Error| blobs.iter().any(|b| matches!(b.result(), Some(Err(own)) if own == *e));
    let rank = |e: &Error| match (is_interrupted(e), blob_failed(e)) {
        (true, _) => 2,
        (false, false) => 1,
        (false, true) => 0,
    };
    let signal = failures.iter().all(is_interrupted);
    let worst = failures.into_iter().min_by_key(rank)?;
    Some(if signal { interrupted() } else { worst })
}

struct Phases {
    since: Instant,
    ended: Vec<(&'static str, Duration)>,
}

impl Phases {
    fn start() -> Phases {
        Phases { since: Instant::now(), ended: Vec::new() }
    }

    fn end(&mut self, name: &'static str) {
        self.ended.push((name, self.since.elapsed()));
        self.since = Instant::now();
    }
}

fn tell(order: &Order, summary: &Summary) {
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let counts = &summary.counts;
    let path = std::path::absolute(&order.target).unwrap_or_else(|_| order.target.clone());
    if order.call.has("json") {
        let phases: serde_json::Map<String, Value> = summary
            .phases
            .iter()
            .map(|(name, time)| ((*name).to_owned(), json!(time.as_secs_f64())))
            .collect();
        let text = json!({
            "bundle": path, "digest": summary.digest, "unchanged": summary.unchanged,
            "fetchedBytes": summary.fetched, "layerBytes": summary.layer_bytes,
            "files": count(&counts.files), "directories": summary.directories, "bytes": count(&counts.bytes),
            "notWritten": { "entries": count(&counts.hidden), "bytes": count(&counts.hidden_bytes) },
            "changed": {
                "owners": count(&counts.owners), "devices": count(&counts.devices), "xattrs": count(&counts.xattrs),
                "repairedModes": count(&counts.repaired), "guardedModes": count(&counts.guarded),
                "unknown": count(&counts.unknown),
            },
            "seconds": phases,
        });
        say!("{text}\n");
        return;
    }
    say!("{}\n", path.display());
    if order.style == Style::Quiet {
        return;
    }
    if summary.unchanged {
        tell!("unchanged: {}\n", summary.digest);
        return;
    }
    let seconds: f64 = summary.phases.iter().map(|(_, time)| time.as_secs_f64()).sum();
    tell!(
        "{} files, {} written, {} fetched in {seconds:.1} s; {}\n",
        count(&counts.files),
        size(count(&counts.bytes)),
        size(summary.fetched),
        summary.digest
    );
    let notes = [
        (count(&counts.owners), "entries of other owners are yours now"),
        (count(&counts.devices), "device nodes left out"),
        (count(&counts.xattrs), "extended attributes left out"),
        (count(&counts.repaired), "modes repaired that would have locked you out"),
        (count(&counts.guarded), "modes narrowed, for others may see the bundle (--private keeps them)"),
        (count(&counts.unknown), "entries of unknown types left out"),
    ];
    for (number, note) in notes.iter().filter(|(number, _)| *number > 0) {
        tell!("{number} {note}\n");
    }
}
