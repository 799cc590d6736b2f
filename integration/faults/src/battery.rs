//! Faults at the calls of operations of `rt`, chosen by a seed, and what is looked at after each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::calls::{self, Kind};
use crate::trace::{Mode, Outcome, Point, Tracer};

/// Name, arguments of `rt`, and whether a container c1 was created before.
const OPERATIONS: &[(&str, &str, bool)] = &[
    ("run-bundle", "run ./bundle", false),
    ("run-as-root", "run --as-root ./bundle", false),
    ("run-overlay", "run --overlay out ./bundle", false),
    ("run-volume", "run -v ./data:/mnt ./bundle", false),
    ("pull-layout", "pull -q oci:layout:1 out", false),
    ("pull-store", "pull -q --store oci:layout:1", false),
    ("save-archive", "save -q ./bundle oci-archive:out:1", false),
    ("save-docker-archive", "save -q ./bundle docker-archive:out:x:1", false),
    ("save-sqsh", "save -q ./bundle out.sqsh", false),
    ("convert-sqsh", "convert -q oci:layout:1 out.sqsh", false),
    ("inspect", "inspect oci:layout:1", false),
    ("images", "images", false),
    ("create", "create -b bundle c2", false),
    ("state", "state c1", true),
    ("list", "list -q", true),
    ("delete", "delete --force c1", true),
];

/// What is asked for on the command line.
pub(crate) struct Asked {
    /// The executable.
    pub(crate) rt: PathBuf,
    /// How many faults; none means all.
    pub(crate) faults: Option<usize>,
    /// What chooses them.
    pub(crate) seed: u64,
    /// One operation.
    pub(crate) only: Option<String>,
    /// One fault of it: the number of the call, and the kind.
    pub(crate) repeat: Option<(usize, String)>,
}

/// One file of a tree: type and mode, and a digest of its content.
type Tree = BTreeMap<String, String>;

/// Runs the battery; the number of violations.
pub(crate) fn run(asked: &Asked) -> io::Result<usize> {
    let base = PathBuf::from(format!("/dev/shm/rt-faults-{}", std::process::id()));
    let template = base.join("template");
    make_template(&template, &asked.rt)?;
    let mut groups: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let (mut done, mut random) = (0, asked.seed | 1);
    let each = asked.faults.map(|all| all.div_ceil(OPERATIONS.len()));
    for (name, arguments, created) in OPERATIONS {
        if asked.only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let place = Place { base: &base, rt: &asked.rt, arguments, created: *created };
        let (before, expected, points) = place.undisturbed()?;
        let faults: Vec<(usize, &Point, &str)> = points
            .iter()
            .enumerate()
            .flat_map(|(n, point)| {
                calls::faults(&point.call, &point.path).into_iter().map(move |kind| (n + 1, point, kind))
            })
            .collect();
        let chosen: Vec<_> = match (&asked.repeat, each) {
            (Some((n, kind)), _) => faults.iter().filter(|f| f.0 == *n && f.2 == kind).collect(),
            (None, Some(each)) => (0..each.min(faults.len()))
                .filter_map(|_| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    faults.get(random as usize % faults.len())
                })
                .collect(),
            (None, None) => faults.iter().collect(),
        };
        for (n, point, kind) in chosen {
            let Some(fault) = Kind::parse(kind) else { continue };
            done += 1;
            for violation in place.disturbed(point, fault, &before, &expected)? {
                let group = format!("{violation}: {} {} {}", point.program, point.call, point.path);
                let repeat = format!("--repeat {name}:{n}:{kind}");
                groups.entry(group).or_insert((0, repeat)).0 += 1;
            }
        }
    }
    fs::remove_dir_all(&base)?;
    for (group, (times, repeat)) in &groups {
        println!("FAIL {group} ({times} times; integration/faults.sh {} {repeat})", asked.rt.display());
    }
    let failed: usize = groups.len();
    println!("result: integration/faults: {done} faults; {failed} groups of violations, seed {}", asked.seed);
    Ok(failed)
}

fn make_template(dir: &Path, rt: &Path) -> io::Result<()> {
    let bin = dir.join("bundle/rootfs/bin");
    fs::create_dir_all(&bin)?;
    for name in ["data", "run", "home", "tmp"] {
        fs::create_dir_all(dir.join(name))?;
    }
    fs::copy(rt, bin.join("hello"))?;
    std::os::unix::fs::symlink("hello", bin.join("link"))?;
    let run = |arguments: &[&str], dir: &Path| -> io::Result<()> {
        let output = Command::new(rt).args(arguments).current_dir(dir).output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(io::Error::other(text)) }
    };
    run(&["spec"], &dir.join("bundle"))?;
    let config = dir.join("bundle/config.json");
    let text = fs::read_to_string(&config)?.replace("\"terminal\": true", "\"terminal\": false");
    fs::write(&config, text.replace("\"sh\"", "\"/bin/hello\", \"--version\""))?;
    run(&["save", "-q", "./bundle", "oci:layout:1"], dir)
}

/// An operation and where it runs.
struct Place<'a> {
    base: &'a Path,
    rt: &'a Path,
    arguments: &'a str,
    created: bool,
}

impl Place<'_> {
    fn command(&self, arguments: &str) -> Vec<String> {
        let rt = self.rt.display().to_string();
        // Root's states would be in /run, among those of others.
        let states = self.base.join("work/run/states").display().to_string();
        [rt, "--root".to_owned(), states].into_iter().chain(arguments.split(' ').map(str::to_owned)).collect()
    }

    /// A fresh copy of the template, with the container where one is needed.
    fn fresh(&self) -> io::Result<(PathBuf, Tracer)> {
        let dir = self.base.join("work");
        let _ = fs::remove_dir_all(&dir);
        Command::new("cp").arg("-a").arg(self.base.join("template")).arg(&dir).status()?;
        let mut tracer = Tracer::new(&dir, &["rt", "rt-pull", "rt-image"], None, Duration::from_secs(15));
        let at = |name: &str| dir.join(name).display().to_string();
        tracer.environment(&[
            ("XDG_RUNTIME_DIR".into(), at("run")),
            ("HOME".into(), at("home")),
            ("TMPDIR".into(), at("tmp")),
            ("PATH".into(), "/usr/bin:/bin".into()),
        ]);
        if self.created {
            tracer.run(&self.command("create -b bundle c1"), Mode::Watch, 1)?;
        }
        Ok((dir, tracer))
    }

    /// The tree before, tree and outcome after, and the calls.
    fn undisturbed(&self) -> io::Result<(Tree, (Tree, Outcome), Vec<Point>)> {
        let (dir, mut tracer) = self.fresh()?;
        let before = tree(&dir);
        let mut outcome =
            tracer.run(&self.command(self.arguments), Mode::Record, usize::from(self.created))?;
        if !outcome.good() {
            return Err(io::Error::other(format!("rt {}: {}", self.arguments, outcome.stderr)));
        }
        let points = std::mem::take(&mut outcome.points).into_iter().map(|(_, point)| point).collect();
        Ok((before, (tree(&dir), outcome), points))
    }

    /// What is wrong after one fault.
    fn disturbed(
        &self,
        point: &Point,
        kind: Kind,
        before: &Tree,
        (expected, good): &(Tree, Outcome),
    ) -> io::Result<Vec<String>> {
        let (dir, mut tracer) = self.fresh()?;
        let mode = Mode::Inject(point.clone(), kind);
        let outcome = tracer.run(&self.command(self.arguments), mode, good.left)?;
        let mut wrong = Vec::new();
        if !outcome.reached {
            return Ok(wrong);
        }
        let signal = matches!(kind, Kind::Signal(_));
        if outcome.hung {
            wrong.push("hangs".to_owned());
        }
        if [0x6, 0x8600, 0x6500].contains(&outcome.status) || outcome.stderr.contains("panicked") {
            wrong.push("panics".to_owned());
        }
        let after = tree(&dir);
        if outcome.good() {
            if outcome.stdout != good.stdout && !self.arguments.starts_with("state") {
                wrong.push("exit 0 with another output".to_owned());
            }
            wrong.extend(
                differences(&after, &[expected]).map(|d| format!("exit 0 with another result ({d})")),
            );
        } else if !signal && !outcome.hung {
            let lines: Vec<&str> = outcome.stderr.lines().collect();
            if lines.len() != 1 || !lines[0].starts_with("rt: ") {
                wrong.push(format!("{} lines of errors", lines.len()));
            } else if !has_noun(lines[0]) {
                wrong.push(format!("an error without a noun ({:?})", lines[0]));
            }
        }
        if !outcome.good() && kind != Kind::Signal(libc::SIGKILL) {
            wrong.extend(
                differences(&after, &[before, expected]).map(|d| format!("leftover or partial ({d})")),
            );
        }
        if outcome.left > good.left.max(usize::from(self.created)) {
            wrong.push("processes are left".to_owned());
        }
        if !outcome.good() && !self.created && !self.arguments.starts_with("create") {
            let next = tracer.run(&self.command(self.arguments), Mode::Watch, 0)?;
            if !next.good() && !next.stderr.contains("exists") {
                wrong.push(format!("the next run fails ({})", next.stderr.trim()));
            } else {
                let left = tree(&dir);
                wrong.extend(differences(&left, &[expected]).map(|d| format!("after the next run ({d})")));
            }
        }
        Ok(wrong)
    }
}

/// An error names something: a path, an image or an id, or what the kernel was asked for in words.
fn has_noun(line: &str) -> bool {
    let text = line.trim_start_matches("rt: ");
    let word = |word: &str| {
        let word = word.trim_matches([':', ',', '"', '(', ')']);
        word.len() > 1 && word.contains('/') || word.contains(['.', '_']) && word.len() > 3 || word == "c1"
    };
    // "doing what: why" with words of its own before the reason.
    text.split_whitespace().any(word) || text.split(": ").next().is_some_and(|t| t.split(' ').count() > 2)
}

/// The names at which a tree is like none of the others; of files of the cache, those without a complete blob are left out.
fn differences<'a>(tree: &'a Tree, others: &'a [&'a Tree]) -> impl Iterator<Item = String> + 'a {
    let names: BTreeSet<&String> = tree.keys().chain(others.iter().flat_map(|t| t.keys())).collect();
    let wrong = names.into_iter().filter(move |name| {
        let bare = tree.get(*name).is_some_and(|what| what == "directory");
        let resumable = name.contains("/partial/") || name.contains("/uses/");
        !resumable && !bare && !others.iter().any(|other| other.get(*name) == tree.get(*name))
    });
    wrong.take(1).map(|name| crate::trace::normal(name, Path::new("/nowhere")))
}

/// What is below a directory. States of containers change with each run, so their content does not count.
fn tree(root: &Path) -> Tree {
    let mut all = Tree::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(status) = fs::symlink_metadata(&path) else { continue };
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            let what = if status.is_dir() {
                todo.push(path);
                "directory".to_owned()
            } else {
                let mut hasher = DefaultHasher::new();
                if status.is_symlink() {
                    fs::read_link(&path).ok().hash(&mut hasher);
                } else if status.is_file() && !name.starts_with("run/") {
                    fs::read(&path).ok().hash(&mut hasher);
                }
                format!("{:o} {:x}", status.mode(), hasher.finish())
            };
            all.insert(name, what);
        }
    }
    all
}
