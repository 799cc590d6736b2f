//! What the job leaves to this process: processors, and memory by the cgroup it is in (only read).

use std::fs;
use std::path::Path;

use oci_layer::decode::PIECE;
use rt_sys::process;

/// Threads and memory to work with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Processors that there is memory for.
    pub threads: usize,
    /// Layers that are unpacked at the same time; each has a thread that inflates and one that writes.
    pub layers: usize,
    /// Blobs that are downloaded at the same time.
    pub downloads: usize,
}

/// Memory of one layer at work: inflate's window and buffers, the pieces in its pipe, the decoder.
const PER_LAYER: u64 = 12 << 20;
/// What all layers together may be inflated ahead of what is written. Small files take long to write and little to
/// inflate, large ones the other way round: what is ahead keeps both threads at work.
const AHEAD: usize = 8 << 20;

impl Limits {
    /// Reads the affinity and the cgroup; `connections` is what the user or the site configures.
    pub(crate) fn of_this_job(connections: Option<usize>) -> Limits {
        let memory = cgroup_memory(
            &fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
            Path::new("/sys/fs/cgroup"),
        );
        Limits::of(process::affinity(), memory, connections)
    }

    fn of(processors: usize, memory: Option<u64>, connections: Option<usize>) -> Limits {
        // A quarter of what the cgroup allows: the page cache counts in the cgroup as well, and so does the rest of the job.
        let by_memory = memory.map_or(usize::MAX, |limit| (limit / 4 / PER_LAYER) as usize);
        let threads = processors.min(by_memory).max(1);
        // More than eight layers at once would use more than 100 MB.
        Limits { threads, layers: threads.min(8), downloads: connections.unwrap_or(4).clamp(1, 32) }
    }

    /// Threads that inflate one of `layers` layers. The one that writes its files keeps up with four, and they need some
    /// 16 MB each.
    pub(crate) fn frame_threads(&self, layers: usize) -> usize {
        (self.threads.min(4) / self.layers.min(layers).max(1)).max(1)
    }

    /// Pieces that one of `layers` layers may be inflated ahead.
    pub(crate) fn pieces(&self, layers: usize) -> usize {
        AHEAD / PIECE / self.layers.min(layers).max(1)
    }
}

/// The smallest memory limit from this process's cgroup up to the root, in bytes.
fn cgroup_memory(membership: &str, mount: &Path) -> Option<u64> {
    let mut smallest = None;
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (base, file) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            c if c.split(',').any(|c| c == "memory") => (mount.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        let mut at = Some(Path::new(path.trim_start_matches('/')));
        while let Some(relative) = at {
            let limit = fs::read_to_string(base.join(relative).join(file)).ok();
            if let Some(limit) = limit.and_then(|text| text.trim().parse::<u64>().ok()) {
                smallest = Some(smallest.map_or(limit, |s: u64| s.min(limit)));
            }
            at = relative.parent();
        }
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_and_memory() {
        assert_eq!(Limits::of(2, None, None), Limits { threads: 2, layers: 2, downloads: 4 });
        assert_eq!(Limits::of(64, None, Some(9)), Limits { threads: 64, layers: 8, downloads: 9 });
        let frame_threads = |processors, layers| Limits::of(processors, None, None).frame_threads(layers);
        assert_eq!([frame_threads(64, 1), frame_threads(64, 2), frame_threads(64, 3)], [4, 2, 1]);
        assert_eq!([frame_threads(2, 1), frame_threads(2, 2), frame_threads(1, 0)], [2, 1, 1]);
        let pieces = |processors, layers| Limits::of(processors, None, None).pieces(layers);
        assert_eq!([pieces(64, 100), pieces(2, 100), pieces(64, 1), pieces(1, 0)], [4, 16, 32, 32]);
        assert_eq!(Limits::of(64, Some(100 << 20), None).layers, 2);
        assert_eq!(Limits::of(64, Some(1 << 20), None).layers, 1);
    }

    #[test]
    fn the_tightest_cgroup_counts() {
        let dir = std::env::temp_dir().join(format!("rt-limits-{}", std::process::id()));
        fs::create_dir_all(dir.join("job/step")).unwrap();
        fs::write(dir.join("job/memory.max"), "1000\n").unwrap();
        fs::write(dir.join("job/step/memory.max"), "max\n").unwrap();
        assert_eq!(cgroup_memory("0::/job/step\n", &dir), Some(1000));
        assert_eq!(cgroup_memory("0::/none\n", &dir), None);
        fs::remove_dir_all(&dir).unwrap();
    }
}
