//! What goes when room is needed: bundles that nobody uses, and that nobody needs by name.

use std::time::Duration;

use rt_sys::error::Result;
use rt_sys::{bail, disk, err};

use super::super::draft;
use super::listing::{self, ListedImage};
use super::removal::Removal;
use super::{OwnStore, Stores};

/// How full a file system may be, in percent of what users can use of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Watermarks {
    /// Nothing is removed below that.
    pub high: f64,
    /// Then images go until less is used than that.
    pub low: f64,
}

impl Watermarks {
    /// The marks of these texts. A low mark alone means nothing; without one it is ten percent below the high mark.
    pub(crate) fn parse(high: Option<&str>, low: Option<&str>) -> Result<Option<Watermarks>> {
        let percent = |text: &str| -> Result<f64> {
            let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
            let number = number.filter(|number| (0.0..=100.0).contains(number));
            number.ok_or_else(|| err!("{text}: not a percentage, 0 to 100"))
        };
        let Some(high) = high.map(percent).transpose()? else { return Ok(None) };
        let low = low.map_or_else(|| Ok((high - 10.0).max(0.0)), percent)?;
        if low > high {
            bail!("the low mark of {low} % is above the high mark of {high} %");
        }
        Ok(Some(Watermarks { high, low }))
    }

    /// The watermarks that the environment sets, or else the configuration.
    pub(crate) fn from_environment() -> Result<Option<Watermarks>> {
        let configured = rt_config::Config::read(&rt_config::own_variable)?;
        let watermark = |name: &str, key| {
            let variable = std::env::var(name).ok().filter(|text| !text.is_empty());
            variable.or_else(|| Some(configured.number(key)?.to_string()))
        };
        let (high, low) = (
            watermark("RT_IMAGES_HIGH", &rt_config::HIGH_WATER),
            watermark("RT_IMAGES_LOW", &rt_config::LOW_WATER),
        );
        Watermarks::parse(high.as_deref(), low.as_deref())
            .map_err(|e| e.context("RT_IMAGES_HIGH and RT_IMAGES_LOW, or images.high-water and low-water"))
    }
}

/// Which bundles go, of those that nobody uses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prune {
    /// Bundles that have a name go, too.
    pub all: bool,
    /// Only those that were not used for so long.
    pub older: Option<Duration>,
    /// Only while the file system is too full; then those that have a name, too.
    pub watermarks: Option<Watermarks>,
    /// Nothing is removed.
    pub dry_run: bool,
}

/// What was removed, or would be.
#[derive(Default)]
pub(crate) struct Freed {
    /// The images.
    pub images: Vec<ListedImage>,
    /// What could not be removed, and why.
    pub failed: Vec<String>,
}

/// Removes bundles from the caller's own store.
pub(crate) fn prune(what: Prune) -> Result<Freed> {
    match Stores::open()?.own()? {
        Some(own) => in_store(&own, what),
        None => Ok(Freed::default()),
    }
}

/// Makes room for an image, where the file system is too full.
pub(super) fn make_room(own: &OwnStore, watermarks: Watermarks) -> Result<()> {
    let freed = in_store(own, Prune { watermarks: Some(watermarks), ..Prune::default() })?;
    for image in &freed.images {
        log::info!("removed {} to make room", image.digest);
    }
    Ok(())
}

fn in_store(own: &OwnStore, what: Prune) -> Result<Freed> {
    if !what.dry_run {
        draft::sweep_all(own.bundles());
        own.sweep_leases()?;
        own.sweep_removed()?;
        own.sweep_names()?;
    }
    let mut freed = Freed::default();
    let mut expected = 0;
    if let Some(marks) = what.watermarks
        && disk::percent_used(own.bundles())? < marks.high
    {
        return Ok(freed);
    }
    for image in candidates(listing::of_own(own)?, what) {
        if let Some(marks) = what.watermarks {
            let used = disk::percent_used(own.bundles())?;
            let spared = expected as f64 / disk::size(own.bundles())?.max(1) as f64 * 100.0;
            if used - spared < marks.low {
                break;
            }
        }
        if what.dry_run {
            expected += image.bytes;
            freed.images.push(image);
            continue;
        }
        match own.remove(&image.bundle) {
            Ok(Removal::Done) => freed.images.push(image),
            // Somebody has come to use it since it was looked at.
            Ok(Removal::Used(_) | Removal::Busy) => {}
            Err(e) => freed.failed.push(e.to_string()),
        }
    }
    Ok(freed)
}

/// The bundles that may go, in this order: without a name first, then the least recently used.
fn candidates(mut images: Vec<ListedImage>, what: Prune) -> Vec<ListedImage> {
    images.retain(|image| {
        let named = what.all || what.watermarks.is_some() || image.names.is_empty();
        image.users.is_empty() && named && what.older.is_none_or(|older| image.idle > older)
    });
    images.sort_by_key(|image| (!image.names.is_empty(), std::cmp::Reverse(image.idle)));
    images
}

impl OwnStore {
    /// Removes names whose bundle is gone, and links that a process left that died.
    fn sweep_names(&self) -> Result<()> {
        const DEAD: Duration = Duration::from_secs(3600);
        let now = self.now();
        for (file, _) in disk::entries(self.names())? {
            let made = match disk::size_and_time(self.names(), &file) {
                Ok((_, made)) => made,
                // Its maker has renamed it meanwhile, or somebody has mounted something there, which is no name.
                Err(e) if e.is(libc::ENOENT) || e.is(libc::EXDEV) => continue,
                Err(e) => return Err(e),
            };
            let old = now.duration_since(made).unwrap_or_default() > DEAD;
            let key = String::from_utf8_lossy(&file);
            let link = self.store.link(self.names(), &key);
            let gone = matches!(&link, Ok(Some(bundle)) if !self.store.has(bundle)?);
            if old && (gone || key.starts_with(",new-")) {
                let _ = disk::unlink(self.names(), &file);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_are_percentages() {
        let parse = |high: Option<&str>, low: Option<&str>| {
            Watermarks::parse(high, low).map(|marks| marks.map(|marks| (marks.high, marks.low))).ok()
        };
        assert_eq!(parse(None, Some("3")), Some(None));
        assert_eq!(parse(Some("80"), None), Some(Some((80.0, 70.0))));
        assert_eq!(parse(Some("5%"), None), Some(Some((5.0, 0.0))));
        assert_eq!(parse(Some("90"), Some("60.5")), Some(Some((90.0, 60.5))));
        for (high, low) in [("101", "1"), ("-1", "0"), ("x", "0"), ("NaN", "0"), ("50", "60"), ("50", "")] {
            assert_eq!(parse(Some(high), Some(low)), None, "{high} {low}");
        }
    }
}
