//! Faults at the calls of operations of `rt`, chosen by a seed, and what is looked at after each of them.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use crate::calls::{self, Kind};
use crate::operations::{self, Next, OPERATIONS, Operation};
use crate::registry;
use crate::sys;
use crate::trace::{Mode, Outcome, Point, Tracer};
use crate::tree::{Closeness, Tree, is_draft, is_new_name, is_removed, told};

/// How long an operation may take, which takes some tenths of a second by itself.
const LIMIT: Duration = Duration::from_secs(40);
/// How long the states of containers may take to become what they are without a fault.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// One fault of it: the call, as [`Point::text`] has it or by its number, and the kind.
    pub(crate) repeat: Option<(String, String)>,
    /// How many processes share the faults.
    pub(crate) jobs: usize,
    /// The share of this process, from 0; none in the one that starts the others.
    pub(crate) part: Option<usize>,
}

/// What came of an operation's faults.
#[derive(Default)]
struct Figures {
    /// How many processes have done their part of it.
    parts: usize,
    reached: usize,
    seconds: f64,
    wrong: usize,
}

/// Runs the battery in several processes, since a tracer waits for all of its children, and prints TAP: a test for each operation
/// without violations, and one for each group of violations. Returns the number of groups.
///
/// # Errors
/// One of them could not do its part.
pub(crate) fn run(asked: &Asked, arguments: &[String]) -> io::Result<usize> {
    let begun = Instant::now();
    let mut parts = Vec::new();
    for part in 0..asked.jobs {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("battery").args(arguments).args(["--part", &part.to_string()]).stdout(Stdio::piped());
        parts.push(command.spawn()?);
    }
    let mut figures: BTreeMap<String, Figures> = BTreeMap::new();
    let mut groups: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut passed = 0;
    let (sender, lines) = mpsc::channel();
    for out in parts.iter_mut().filter_map(|part| part.stdout.take()) {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop)
        });
    }
    drop(sender);
    // Until the last part has closed its output.
    for line in lines {
        let words: Vec<&str> = line.split('\t').collect();
        match words[..] {
            ["done", name, reached, seconds, wrong] => {
                let figure = figures.entry(name.to_owned()).or_default();
                figure.parts += 1;
                figure.reached += reached.parse().unwrap_or(0);
                figure.seconds += seconds.parse().unwrap_or(0.0);
                figure.wrong += wrong.parse().unwrap_or(0);
                if figure.parts == asked.jobs {
                    let Figures { reached, seconds, wrong, .. } = figure;
                    let so_far = begun.elapsed().as_secs();
                    println!(
                        "# {name}: {reached} faults in {seconds:.0} s, {wrong} violations; {so_far} s so far"
                    );
                    if *wrong == 0 {
                        passed += 1;
                        println!("ok {passed} - {name}");
                    }
                }
            }
            ["wrong", group, repeat] => {
                let known = groups.entry(group.to_owned()).or_insert((0, repeat.to_owned()));
                known.0 += 1;
                if known.0 == 1 {
                    println!("#   {group} ({repeat})");
                }
            }
            _ => println!("{line}"),
        }
    }
    for part in &mut parts {
        if !part.wait()?.success() {
            return Err(io::Error::other("a part of the battery failed"));
        }
    }
    for (n, (group, (times, repeat))) in groups.iter().enumerate() {
        println!(
            "not ok {} - {group} ({times} times; integration/faults.sh {} --repeat '{repeat}')",
            passed + n + 1,
            asked.rt.display()
        );
    }
    let done: usize = figures.values().map(|figure| figure.reached).sum();
    println!(
        "# {done} faults at {} operations in {:.0} s; {} groups of violations, seed {}",
        figures.len(),
        begun.elapsed().as_secs_f64(),
        groups.len(),
        asked.seed
    );
    println!("1..{}", passed + groups.len());
    Ok(groups.len())
}

/// Runs one part, and prints what comes of it for [`run`].
///
/// # Errors
/// An operation that fails without a fault.
pub(crate) fn run_part(asked: &Asked, part: usize) -> io::Result<()> {
    let base = PathBuf::from(format!("/dev/shm/rt-faults-{}", std::process::id()));
    operations::make_template(&base.join("template"), &asked.rt)?;
    let port = sys::without_alarms(|| registry::start(base.join("work/registry")))?;
    let only = |o: &&Operation| asked.only.as_ref().is_none_or(|only| only == o.name);
    let operations: Vec<&Operation> = OPERATIONS.iter().filter(only).collect();
    let each = asked.faults.map(|all| all.div_ceil(operations.len()));
    for operation in operations {
        let begun = Instant::now();
        let place = Place { base: &base, rt: &asked.rt, operation, port };
        let known = match place.prepare().and_then(|()| place.undisturbed()) {
            Ok(known) => known,
            // The others are run all the same.
            Err(e) => {
                let text = e.to_string().replace(['\t', '\n'], " ");
                println!("wrong\tfails without a fault: {text}\t{}:0:-", operation.name);
                println!("done\t{}\t0\t{}\t1", operation.name, begun.elapsed().as_secs_f64());
                continue;
            }
        };
        let faults: Vec<(usize, &Point, &str)> = known
            .points
            .iter()
            .enumerate()
            .flat_map(|(n, point)| {
                calls::faults(&point.call, &point.path).into_iter().map(move |kind| (n + 1, point, kind))
            })
            .collect();
        let chosen = match &asked.repeat {
            Some((call, kind)) => {
                let is_asked = |n: usize, point: &Point| point.text() == *call || n.to_string() == *call;
                faults.into_iter().filter(|f| is_asked(f.0, f.1) && f.2 == kind).collect()
            }
            None => choose(faults, each, asked.seed, operation.name),
        };
        let (mut reached, mut wrong) = (0, 0);
        for (_, point, kind) in chosen.into_iter().skip(part).step_by(asked.jobs) {
            let Some(fault) = Kind::parse(kind) else { continue };
            let found = match place.disturbed(point, fault, &known) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                // The others are run all the same.
                Err(e) => vec![format!("cannot be looked at ({e})")],
            };
            reached += 1;
            wrong += usize::from(!found.is_empty());
            for violation in found {
                let group = format!("{violation}: {} {} {}", point.program, point.call, point.path);
                let group = group.replace(['\t', '\n'], " ");
                println!("wrong\t{group}\t{}:{}:{kind}", operation.name, point.text());
            }
        }
        println!("done\t{}\t{reached}\t{}\t{wrong}", operation.name, begun.elapsed().as_secs_f64());
    }
    fs::remove_dir_all(&base)
}

/// Some of the faults of an operation, in an order that the seed alone decides.
fn choose<T>(mut faults: Vec<T>, most: Option<usize>, seed: u64, name: &str) -> Vec<T> {
    let Some(most) = most else { return faults };
    // SipHash with the keys of `DefaultHasher::new` gives the same everywhere.
    let random = |n: usize| {
        let mut hasher = DefaultHasher::new();
        (seed, name, n).hash(&mut hasher);
        hasher.finish() as usize
    };
    for n in 0..most.min(faults.len()) {
        let other = n + random(n) % (faults.len() - n);
        faults.swap(n, other);
    }
    faults.truncate(most);
    faults
}

/// An operation and where it runs.
struct Place<'a> {
    base: &'a Path,
    rt: &'a Path,
    operation: &'a Operation,
    port: u16,
}

/// What an operation does without a fault.
struct Known {
    before: Tree,
    after: Tree,
    stdout: Option<String>,
    points: Vec<Point>,
    /// Processes that live before and after it.
    left: (usize, usize),
    /// What is said of its containers then.
    status: String,
}

impl Place<'_> {
    fn dir(&self) -> PathBuf {
        self.base.join("work")
    }

    /// The operation's own template.
    fn template(&self) -> PathBuf {
        self.base.join(self.operation.name)
    }

    fn command(&self, command: &str) -> Vec<String> {
        let command = command.replace("REGISTRY", &format!("127.0.0.1:{}", self.port));
        let words = command.split(' ').map(str::to_owned);
        if let Some(program) = command.strip_prefix("./") {
            let program = self.dir().join(program).display().to_string();
            return std::iter::once(program).chain(words.skip(1)).collect();
        }
        let rt = self.rt.display().to_string();
        if command.starts_with("nested ") {
            let unshare = ["/usr/bin/unshare", "--map-root-user"].map(str::to_owned);
            return unshare.into_iter().chain([rt]).chain(words.skip(1)).collect();
        }
        // Root's states would be in /run, among those of others.
        let states = self.dir().join("run/states").display().to_string();
        [rt, "--root".to_owned(), states].into_iter().chain(words).collect()
    }

    fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = fs::remove_dir_all(to);
        let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("cp failed")) }
    }

    /// Makes the operation's template.
    fn prepare(&self) -> io::Result<()> {
        self.copy(&self.base.join("template"), &self.dir())?;
        for command in self.operation.prepare {
            self.good(&mut self.tracer(), command)?;
        }
        // What was just pulled is taken for what somebody is about to start.
        let mut find = Command::new("find");
        find.args(["home", "-exec", "touch", "-h", "-d", "2 days ago", "{}", "+"]);
        find.current_dir(self.dir()).status()?;
        self.copy(&self.dir(), &self.template())
    }

    fn tracer(&self) -> Tracer {
        let programs = ["rt", "rt-pull", "rt-image", "program"];
        let mut tracer = Tracer::new(&self.dir(), &programs, None, LIMIT);
        let at = |name: &str| self.dir().join(name).display().to_string();
        tracer.environment(&[
            ("XDG_RUNTIME_DIR".into(), at("run")),
            ("HOME".into(), at("home")),
            ("TMPDIR".into(), at("tmp")),
            ("PATH".into(), "/usr/bin:/bin".into()),
        ]);
        tracer
    }

    /// Runs a command that has to succeed; how many processes live afterwards.
    fn good(&self, tracer: &mut Tracer, command: &str) -> io::Result<Outcome> {
        let outcome = tracer.run(&self.command(command), Mode::Watch, usize::MAX)?;
        match outcome.good() {
            true => Ok(outcome),
            false => Err(io::Error::other(format!("{}: {command}: {}", self.operation.name, outcome.stderr))),
        }
    }

    /// A fresh copy of the template, with the containers that are needed, and how many processes these have.
    fn fresh(&self) -> io::Result<(Tracer, usize)> {
        self.copy(&self.template(), &self.dir())?;
        let mut tracer = self.tracer();
        let mut left = 0;
        for command in self.operation.live {
            left = self.good(&mut tracer, command)?.left;
        }
        // What the program wrote is as old in every run, and an image of it the same.
        let upper = self.dir().join("layer/upper");
        if fs::exists(&upper)? {
            let mut find = Command::new("find");
            find.arg(upper)
                .args(["-exec", "touch", "-h", "-d", "2020-02-02 02:02:02", "{}", "+"])
                .status()?;
        }
        Ok((tracer, left))
    }

    /// What the containers are: ids and states.
    fn status(&self, tracer: &mut Tracer) -> io::Result<String> {
        let outcome = tracer.run(&self.command("list"), Mode::Watch, usize::MAX)?;
        let lines = outcome.stdout.lines().map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            // ID, PID, STATUS; the id of a foreground container is made up.
            words.first().zip(words.get(2)).map(|(id, status)| format!("{id} {status}")).unwrap_or_default()
        });
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Runs it twice without a fault: what differs then is not compared.
    fn undisturbed(&self) -> io::Result<Known> {
        let mut runs = Vec::new();
        let mut expected = None;
        for _ in 0..2 {
            let (mut tracer, live) = self.fresh()?;
            let before = Tree::of(&self.dir());
            let mut outcome =
                tracer.run(&self.command(self.operation.command), Mode::Record, expected.unwrap_or(live))?;
            expected = Some(outcome.left);
            if !outcome.good() {
                let text = format!("{}: {:#x} {}", self.operation.name, outcome.status, outcome.stderr);
                return Err(io::Error::other(text));
            }
            let mut points: Vec<Point> =
                std::mem::take(&mut outcome.points).into_iter().map(|(_, point)| point).collect();
            // Threads and processes take turns in another order each time.
            points.sort();
            let after = Tree::of(&self.dir());
            let status = self.status(&mut tracer)?;
            runs.push((before, after, points, (live, outcome.left), status, outcome.stdout));
        }
        let (Some(second), Some(first)) = (runs.pop(), runs.pop()) else { unreachable!() };
        Ok(Known {
            before: second.0.common(&first.0),
            after: second.1.common(&first.1),
            points: second.2,
            left: second.3,
            status: second.4,
            stdout: (second.5 == first.5).then_some(second.5),
        })
    }

    /// What is wrong after one fault; none where its call was not made this time.
    fn disturbed(&self, point: &Point, kind: Kind, known: &Known) -> io::Result<Option<Vec<String>>> {
        let (mut tracer, _) = self.fresh()?;
        let mounts = self.mounts();
        let most = known.left.0.max(known.left.1);
        let outcome =
            tracer.run(&self.command(self.operation.command), Mode::Inject(point.clone(), kind), most)?;
        if !outcome.reached {
            return Ok(None);
        }
        let mut wrong = Vec::new();
        if outcome.hung {
            wrong.push("hangs".to_owned());
        }
        if [0x6, 0x8600, 0x6500].contains(&outcome.status) || outcome.stderr.contains("panicked") {
            wrong.push("panics".to_owned());
        }
        let after = Tree::of(&self.dir());
        // A draft that cannot be removed is named, and stays until the next run.
        let said = outcome.stderr.lines().filter(|line| !line.starts_with("rt: retrying in "));
        let (drafts, lines): (Vec<&str>, Vec<&str>) =
            said.partition(|line| is_draft(line) && line.contains(" is left"));
        let mut found = match outcome.good() {
            true => after.differences(&[&known.after], Closeness::All),
            false => after.differences(&[&known.before, &known.after], Closeness::Content),
        };
        let stays = |name: &str| is_draft(name) && !drafts.is_empty() || is_removed(name) && !outcome.good();
        found.retain(|name| !stays(name));
        let found = found.first().map(|name| told(name));
        if outcome.good() {
            if known.stdout.as_ref().is_some_and(|stdout| *stdout != outcome.stdout) {
                wrong.push("exit 0 with another output".to_owned());
            }
            wrong.extend(found.map(|name| format!("exit 0 with another result ({name})")));
            let end = Instant::now() + PATIENCE;
            // A signal may as well have come to the program of the container.
            while !matches!(kind, Kind::Signal(_)) && self.status(&mut tracer)? != known.status {
                if Instant::now() > end {
                    wrong.push("exit 0 with another state".to_owned());
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            if lines.iter().any(|line| !line.is_empty()) {
                wrong.push(format!("exit 0 with an error ({:?})", told(lines[0])));
            }
        } else {
            wrong.extend(self.wrong_error(&outcome, &lines, point, kind));
            // A process without a handler dies of either signal. What it leaves goes with the next run.
            if !matches!(kind, Kind::Signal(_)) {
                wrong.extend(found.map(|name| format!("leftover or partial ({name})")));
            }
        }
        if outcome.left > most {
            wrong.push(format!("processes are left ({})", outcome.programs.join(" ")));
        }
        if !outcome.good() || !drafts.is_empty() || self.operation.next != Next::Same {
            wrong.extend(self.next(&mut tracer, kind, known)?);
        }
        tracer.kill_all();
        if self.mounts() > mounts {
            wrong.push("a mount is left".to_owned());
        }
        Ok(Some(wrong))
    }

    /// What is wrong with the error of a command that failed. `lines` are those that name no draft.
    fn wrong_error(&self, outcome: &Outcome, lines: &[&str], point: &Point, kind: Kind) -> Option<String> {
        if matches!(kind, Kind::Signal(_)) || outcome.hung {
            return None;
        }
        match lines {
            [line] if !line.starts_with("rt") => Some("an error that does not say whose it is".to_owned()),
            [line] if !has_noun(line, point) => Some(format!("an error without a noun ({:?})", told(line))),
            [_] => None,
            _ => Some(format!("{} lines of errors", lines.len())),
        }
    }

    /// What is wrong with the next run, which has no fault.
    fn next(&self, tracer: &mut Tracer, kind: Kind, known: &Known) -> io::Result<Vec<String>> {
        // A draft that nobody has signed yet may be another process's, unless it is old.
        for name in Tree::of(&self.dir()).drafts() {
            let old = SystemTime::now() - Duration::from_secs(60);
            let _ = fs::File::open(self.dir().join(name)).and_then(|dir| dir.set_modified(old));
        }
        let command = match self.operation.next {
            Next::Delete(id) => format!("delete --force {id}"),
            Next::Then(command) => command.to_owned(),
            _ => self.operation.command.to_owned(),
        };
        if let Next::Then(_) = self.operation.next {
            tracer.run(&self.command(self.operation.command), Mode::Watch, usize::MAX)?;
        }
        let next = tracer.run(&self.command(&command), Mode::Watch, known.left.1)?;
        if self.operation.next == Next::Same {
            self.delete_dead(tracer, known)?;
        }
        let mut wrong = Vec::new();
        let left = Tree::of(&self.dir());
        if let Next::Delete(id) = self.operation.next {
            if next.hung || !next.good() && !next.stderr.contains("does not exist") {
                wrong.push(format!("delete --force fails ({})", told(next.stderr.trim())));
            } else if self.status(tracer)?.contains(id) {
                wrong.push("delete --force leaves the container".to_owned());
            }
            return Ok(wrong);
        }
        let mut differs = left.differences(&[&known.after], Closeness::Content);
        differs.retain(|name| !(matches!(kind, Kind::Signal(_)) && is_new_name(name)));
        if !next.good() && (self.operation.next == Next::Same || !differs.is_empty()) {
            wrong.push(format!("the next run fails ({})", told(next.stderr.trim())));
        }
        wrong.extend(differs.first().map(|name| format!("after the next run ({})", told(name))));
        Ok(wrong)
    }

    /// Removes the containers whose runtime was killed, which stay until somebody does (docs/design/lifecycle.md).
    fn delete_dead(&self, tracer: &mut Tracer, known: &Known) -> io::Result<()> {
        let is_known = |container: &str| known.status.lines().any(|known| known == container);
        for container in self.status(tracer)?.lines().filter(|container| !is_known(container)) {
            let id = container.split(' ').next().unwrap_or_default();
            tracer.run(&self.command(&format!("delete --force {id}")), Mode::Watch, usize::MAX)?;
        }
        Ok(())
    }

    /// How many mounts of this process's namespace are in the work directory.
    fn mounts(&self) -> usize {
        let work = self.dir().display().to_string();
        fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().matches(&work).count()
    }
}

/// An error names something: a path, an image or an id, or, where the call was about no file, what was asked of the kernel in
/// words.
fn has_noun(line: &str, point: &Point) -> bool {
    let text = line.trim_start_matches("rt: ");
    let word = |word: &str| {
        let is_quoted = word.starts_with('"') && word.len() > 3;
        let word = word.trim_matches([':', ',', '"', '(', ')', '.']);
        word == "/"
            || word.len() > 1 && (word.contains('/') || word.contains("sha256:"))
            || word.contains(['.', '_']) && word.len() > 3
            // A program, as ps(1), and an image, as oci:layout:1.
            || word.contains(['(', ':'])
            || is_quoted
            // The beginning of a digest.
            || word.len() >= 12 && word.bytes().all(|b| b.is_ascii_hexdigit())
            || ["c1", "c2"].contains(&word)
    };
    // What is done to a container's own image, mounts and ids is said in words: there is one of each in a command.
    let words = text.split(": ").next().map_or(0, |doing| doing.split(' ').count());
    let nowhere = ["/proc/", "/memfd:", "/dev/null"].iter().any(|place| point.path.starts_with(place));
    let of_a_file = point.path.contains('/') && !nowhere;
    // Where there is no reason of the kernel's, the whole is said in words.
    let least = if of_a_file || !text.contains(": ") { 3 } else { 1 };
    // The bundle of the operations has this name.
    text.starts_with("bundle bundle: ") || text.split_whitespace().any(word) || words > least
}
