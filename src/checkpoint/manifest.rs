//! What `rt` writes beside the files of criu: rt.json says what the image is of, and that it is whole.

use super::affinity::Pinned;
use super::contents::{self, Part};
use super::files::Files;
use super::gpu::Gpus;
use super::image::Image;
use super::processes;
use super::shared_files::SharedFiles;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, fd};
use rustix::fs::{self, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file.
pub(super) const NAME: &str = "rt.json";
/// The form of the image. Another form is refused.
const FORM: u32 = 5;
/// How long the file may be, in bytes.
const MOST: usize = 64 << 20;

/// No process has such a number (linux/threads.h).
const PID_MAX_LIMIT: i32 = 1 << 22;

/// What a standard stream is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kind {
    /// The null device.
    Null,
    /// A regular file.
    File,
    /// Anything else.
    #[default]
    Other,
}

/// What is known of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    /// [`FORM`].
    pub form: u32,
    /// When it was written (RFC 3339, UTC).
    pub created: String,
    /// The machine, as Rust names it.
    pub architecture: String,
    /// What the processor can, as /proc/cpuinfo names it; C libraries choose by it which code runs.
    pub cpu: Vec<String>,
    /// The program's process, by its number inside: 1 where it was the first of its PID namespace.
    pub program: i32,
    /// The highest number of a process, thread, group or session.
    pub highest: i32,
    /// What the program's standard input, output and error are, as criu names it; empty what needs nothing of the caller.
    pub streams: Vec<String>,
    /// What kinds of files they were.
    #[serde(default)]
    pub kinds: [Kind; 3],
    /// Whose files it had.
    #[serde(default)]
    pub open: Files,
    /// Where file systems in memory are. The content of the Nth is in the directory `memory-N`.
    pub memory: Vec<PathBuf>,
    /// What is copied of other file systems in memory.
    #[serde(default, skip_serializing_if = "SharedFiles::is_empty")]
    pub shared: SharedFiles,
    /// The container has a network of its own, whose connections were kept.
    pub own_network: bool,
    /// The layer that has what the program wrote to the root, if there is something in it.
    #[serde(default)]
    pub layer: Option<PathBuf>,
    /// The user ids and the group ids that there are inside ([`processes::ids_of`]); none where nothing is known of them.
    #[serde(default)]
    pub ids: Vec<Vec<[u32; 2]>>,
    /// The files that criu has written.
    #[serde(default)]
    pub files: Vec<Part>,
    /// The processors of threads that have chosen them.
    #[serde(default, skip_serializing_if = "Pinned::is_empty")]
    pub pinned: Pinned,
    /// What was on GPUs.
    #[serde(default, skip_serializing_if = "Gpus::is_empty")]
    pub gpus: Gpus,
}

impl Manifest {
    /// One for this machine and this moment.
    pub(super) fn new(program: i32, highest: i32) -> Result<Manifest> {
        Ok(Manifest {
            form: FORM,
            created: rt_sys::time::rfc3339(rt_sys::time::now()),
            architecture: std::env::consts::ARCH.to_owned(),
            cpu: cpu_features()?,
            program,
            highest,
            streams: Vec::new(),
            kinds: [Kind::Other; 3],
            open: Files::default(),
            memory: Vec::new(),
            shared: SharedFiles::default(),
            own_network: false,
            layer: None,
            ids: Vec::new(),
            files: Vec::new(),
            pinned: Pinned::default(),
            gpus: Gpus::default(),
        })
    }

    /// True where the program was the first process of its PID namespace.
    pub(super) fn is_of_first(&self) -> bool {
        self.program == 1
    }

    /// The files of the caller that are standard output and error, and not standard input, too.
    pub(super) fn outputs(&self) -> Vec<&str> {
        let [input, outputs @ ..] = &self.streams[..] else { return Vec::new() };
        let mut files = Vec::new();
        for (name, kind) in outputs.iter().zip(&self.kinds[1..]) {
            if *kind == Kind::File && !name.is_empty() && name != input && !files.contains(&name.as_str()) {
                files.push(name);
            }
        }
        files
    }

    /// Writes it into an image, whose other files are complete.
    pub(super) fn write(&self, image: &Image) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|e| err!("{e}"))?;
        // While the program can still go on.
        if text.len() > MOST {
            bail!("{NAME} would have more than {MOST} bytes: the program has too many files open");
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let shown = || format!("write {}/{NAME}", image.path.display());
        let file = fs::openat(&image.dir, NAME, flags, Mode::RUSR | Mode::WUSR).context(shown)?;
        fd::write_all(&file, &text).context(shown)
    }

    /// Reads that of an image, which may be damaged or made by somebody who means harm.
    pub(super) fn read(image: &Image) -> Result<Manifest> {
        let shown = || format!("read {}/{NAME}", image.path.display());
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(&image.dir, NAME, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => {
                return Err(err!("{}: no image of rt checkpoint", image.path.display())
                    .hint(format!("{NAME} is missing: the checkpoint did not come to its end")));
            }
            file => file.context(shown)?,
        };
        let text = fd::read_regular(file, MOST).context(shown)?;
        let text = text.ok_or_else(|| err!("{}: no file of at most {MOST} bytes", shown()))?;
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| err!("{e}")).context(shown)?;
        if manifest.form != FORM {
            bail!("{}: form {} is another rt's; this one reads {FORM}", shown(), manifest.form);
        }
        let numbers = 1..PID_MAX_LIMIT;
        let has_numbers = numbers.contains(&manifest.program) && numbers.contains(&manifest.highest);
        if !has_numbers || manifest.highest < manifest.program || manifest.streams.len() != 3 {
            bail!("{}: the numbers of its processes are none", shown());
        }
        contents::check(image, &manifest.files)?;
        Ok(manifest)
    }

    /// Fails where this process's user namespace has other ids than the program had: they would be others' ids to it, or none.
    pub(super) fn check_ids(&self) -> Result<()> {
        let here = processes::ids_of(Path::new("/proc/self"))?;
        if self.ids.is_empty() || self.ids == here {
            return Ok(());
        }
        let (had, has) = (shown(&self.ids), shown(&here));
        Err(err!("the program was user {had} inside, and would be {has} here")
            .hint("restore it with the --user, --user-map or --as-root that it was started with"))
    }

    /// Fails where this machine cannot run what the image has in memory.
    pub(super) fn check_machine(&self) -> Result<()> {
        let here = std::env::consts::ARCH;
        if self.architecture != here {
            bail!("the image is of a machine of {}, and this is one of {here}", self.architecture);
        }
        let features = cpu_features()?;
        let missing: Vec<&str> =
            self.cpu.iter().filter(|flag| !features.contains(flag)).map(String::as_str).collect();
        if !missing.is_empty() {
            bail!("the processor lacks what that of the checkpoint had: {}", missing.join(" "));
        }
        Ok(())
    }
}

/// As an error names them, in the form of `--user`.
fn shown(ids: &[Vec<[u32; 2]>]) -> String {
    let range = |[first, count]: &[u32; 2]| match count {
        1 => first.to_string(),
        _ => format!("{first}-{}", u64::from(*first) + u64::from(*count).saturating_sub(1)),
    };
    let list = |ranges: &Vec<[u32; 2]>| ranges.iter().map(range).collect::<Vec<_>>().join(",");
    ids.iter().map(list).collect::<Vec<_>>().join(":")
}

/// The features of the first processor. Those of another family of machines stand in another line, or in none.
fn cpu_features() -> Result<Vec<String>> {
    let text = fd::read_file(Path::new("/proc/cpuinfo")).context(|| "read /proc/cpuinfo")?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let list = text.lines().find_map(|line| {
        let (name, list) = line.split_once(':')?;
        ["flags", "Features"].contains(&name.trim()).then_some(list)
    });
    Ok(list.unwrap_or_default().split_whitespace().map(str::to_owned).collect())
}
