//! Lists, filters and runs the tests, each in a process of its own, and counts what was skipped.

use crate::client::{Caller, EVERY};
use crate::fixture::Ctx;
use crate::sys;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// One test function and the callers that it is run as.
#[derive(Clone)]
pub struct Test {
    /// `topic::name`.
    pub name: &'static str,
    /// Who calls the runtime.
    pub callers: &'static [Caller],
    /// The test; panics when the runtime is wrong.
    pub run: fn(&Ctx),
}

/// `tests! { ALL { a, b } USER { c } }`: the module's tests, by caller set.
macro_rules! tests {
    ($($callers:ident { $($name:ident),* $(,)? })*) => {
        pub fn tests() -> Vec<crate::runner::Test> {
            vec![$($(crate::runner::Test {
                name: concat!(module_path!(), "::", stringify!($name)),
                callers: crate::client::$callers,
                run: $name,
            },)*)*]
        }
    };
}
pub(crate) use tests;

/// Ends the test as not run; `why` is printed and counted.
macro_rules! skip {
    ($($why:tt)*) => { crate::runner::end_skipped(&format!($($why)*)) };
}
pub(crate) use skip;

const SKIPPED: i32 = 77;

/// See [`skip!`].
pub fn end_skipped(why: &str) -> ! {
    println!("SKIP {why}");
    // Unwinds, so that the fixture cleans up.
    std::panic::panic_any(Skip)
}

struct Skip;

/// Runs one test in this process; the exit code is 0, 77 (skipped) or 1.
pub fn one(wanted: &str, tests: Vec<Test>) -> i32 {
    let Some((test, caller)) = variants(&tests).find(|(t, c)| full_name(t, *c) == wanted) else {
        eprintln!("no test is named {wanted}");
        return 2;
    };
    sys::become_subreaper();
    // A shell ignores it for what it runs in the background, and the tests send it.
    sys::dispose(libc::SIGINT, false);
    if let Err(e) = own_mounts() {
        eprintln!("a mount namespace for the test: {e}");
        return 1;
    }
    // Low descriptors are taken, so that a child can be given them by dup2 without hitting std's own.
    let _taken: Vec<fs::File> = (0..20).map(|_| fs::File::open("/dev/null").expect("/dev/null")).collect();
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Skip>() {
            quiet(info);
        }
    }));
    let result = std::panic::catch_unwind(|| {
        let ctx = Ctx::new(wanted, caller);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (test.run)(&ctx)));
        let left = ctx.finish();
        if let Err(payload) = result {
            std::panic::resume_unwind(payload);
        }
        assert!(left.is_empty(), "left behind: {left:#?}");
    });
    match result {
        Ok(()) => 0,
        Err(payload) if payload.is::<Skip>() => SKIPPED,
        Err(_) => 1,
    }
}

/// Gives a root test a mount namespace of its own, all of it shared as on a systemd host: what a runtime
/// lets out shows there, and goes with the test's process.
fn own_mounts() -> std::io::Result<()> {
    if !Caller::tests_are_root() {
        return Ok(());
    }
    sys::unshare(libc::CLONE_NEWNS)?;
    sys::mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "")?;
    sys::mount("none", "/", "", libc::MS_REC | libc::MS_SHARED, "")
}

const USAGE: &str = "\
Usage: cargo test --test it -- [FLAGS] [NAME...]

Runs the tests whose names contain one of NAME. A name is topic::test/CALLER.

  --as CALLER       only as this caller: user, root, nested, range, or current,
                    which is root for root and user for everybody else
  --skip NAME       leave out tests whose names contain NAME
  --exact           NAME is a whole name
  --list            print the names
  --nocapture       print what each test prints
  --test-threads N  run N tests at a time; RUST_TEST_THREADS, as for other tests
  --limit SECONDS   end a test that takes longer: 150 if nothing is said, which
                    an emulated processor can need more than
  -q, --quiet       print only the tests that fail
";

/// Runs all tests that the arguments ask for; the exit code is 0, 101, or 2 where the arguments are wrong.
pub fn all(args: &[String], tests: Vec<Test>) -> i32 {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return 0;
    }
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(e) => {
            eprint!("{e}\n\n{USAGE}");
            return 2;
        }
    };
    let wanted: Vec<String> = variants(&tests)
        .filter(|(_, caller)| options.caller.is_none_or(|only| only == *caller))
        .map(|(test, caller)| full_name(test, caller))
        .filter(|name| options.wants(name))
        .collect();
    if options.list {
        wanted.iter().for_each(|name| println!("{name}: test"));
        return 0;
    }
    sys::become_subreaper();
    let base = Base::new();
    let started = Instant::now();
    println!("\nrunning {} tests", wanted.len());
    let queue = Mutex::new(VecDeque::from(wanted));
    let known: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let results: Mutex<BTreeMap<String, Outcome>> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                loop {
                    let Some(name) = queue.lock().unwrap().pop_front() else { break };
                    let outcome = base.run(&name, &known, options.limit);
                    outcome.print(&name, &options);
                    results.lock().unwrap().insert(name, outcome);
                }
            });
        }
    });
    let results = results.into_inner().unwrap();
    drop(base);
    summary(&results, started.elapsed())
}

fn summary(results: &BTreeMap<String, Outcome>, took: Duration) -> i32 {
    let failed: Vec<_> = results.iter().filter(|(_, o)| o.code != 0 && o.code != SKIPPED).collect();
    for (name, outcome) in &failed {
        println!("\n---- {name} ----\n{}", outcome.output.trim_end());
    }
    let skips: Vec<String> = results
        .iter()
        .filter(|(_, o)| o.code == SKIPPED)
        .map(|(name, o)| {
            let why = o.output.lines().find_map(|l| l.strip_prefix("SKIP ")).unwrap_or("no reason given");
            format!("SKIP {name}: {why}")
        })
        .collect();
    println!();
    for line in &skips {
        println!("{line}");
    }
    let skips_file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("skips");
    let _ = fs::write(skips_file, skips.iter().map(|l| format!("{l}\n")).collect::<String>());
    if !failed.is_empty() {
        println!("\nfailures:");
        failed.iter().for_each(|(name, _)| println!("    {name}"));
    }
    println!(
        "\ntest result: {}. {} passed; {} failed; {} skipped; finished in {:.1}s\n",
        if failed.is_empty() { "ok" } else { "FAILED" },
        results.len() - failed.len() - skips.len(),
        failed.len(),
        skips.len(),
        took.as_secs_f64(),
    );
    if failed.is_empty() { 0 } else { 101 }
}

fn variants(tests: &[Test]) -> impl Iterator<Item = (&Test, Caller)> {
    tests.iter().flat_map(|t| t.callers.iter().map(move |c| (t, *c)))
}

fn full_name(test: &Test, caller: Caller) -> String {
    format!("{}/{}", test.name.strip_prefix("it::").unwrap_or(test.name), caller.word())
}

struct Outcome {
    code: i32,
    output: String,
    took: Duration,
}

impl Outcome {
    fn print(&self, name: &str, options: &Options) {
        let word = match self.code {
            0 => "ok",
            SKIPPED => "skipped",
            _ => "FAILED",
        };
        if !options.quiet || word == "FAILED" {
            println!("test {name} ... {word} ({} ms)", self.took.as_millis());
        }
        if options.nocapture {
            print!("{}", self.output);
        }
    }
}

/// The libtest flags that matter here; others are accepted and ignored.
struct Options {
    filters: Vec<String>,
    skips: Vec<String>,
    exact: bool,
    list: bool,
    quiet: bool,
    nocapture: bool,
    threads: usize,
    /// How long one test may take.
    limit: Duration,
    /// The only caller that tests run as, where one is chosen.
    caller: Option<Caller>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options, String> {
        let mut options = Options {
            filters: Vec::new(),
            skips: Vec::new(),
            exact: false,
            list: false,
            quiet: false,
            nocapture: false,
            threads: std::env::var("RUST_TEST_THREADS")
                .ok()
                .and_then(|number| number.parse().ok())
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(2, |n| n.get()).max(2)),
            limit: Duration::from_secs(150),
            caller: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (flag, value) = match arg.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_string())),
                None => (arg.as_str(), None),
            };
            let mut value = || value.clone().or_else(|| args.next().cloned()).unwrap_or_default();
            match flag {
                "--exact" => options.exact = true,
                "--list" => options.list = true,
                "-q" | "--quiet" => options.quiet = true,
                "--nocapture" | "--no-capture" => options.nocapture = true,
                "--as" => options.caller = Some(caller(&value())?),
                "--skip" => options.skips.push(value()),
                "--test-threads" => options.threads = value().parse().unwrap_or(options.threads).max(1),
                "--limit" => {
                    let seconds = value();
                    options.limit = seconds
                        .parse()
                        .map(Duration::from_secs)
                        .map_err(|_| format!("--limit: {seconds:?} is no number of seconds"))?;
                }
                "--color" | "--format" | "--logfile" | "-Z" => drop(value()),
                flag if flag.starts_with('-') => {}
                filter => options.filters.push(filter.to_string()),
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        let matches = |f: &String| if self.exact { name == f } else { name.contains(f.as_str()) };
        (self.filters.is_empty() || self.filters.iter().any(matches)) && !self.skips.iter().any(matches)
    }
}

/// The caller that `--as` names.
fn caller(word: &str) -> Result<Caller, String> {
    let current = if Caller::tests_are_root() { Caller::Root } else { Caller::User };
    match word {
        "current" => Ok(current),
        _ => EVERY
            .iter()
            .copied()
            .find(|caller| caller.word() == word)
            .ok_or_else(|| format!("--as: there is no caller {word:?}")),
    }
}

/// The directory that all tests share: the runtime, the payload and a root filesystem to copy.
struct Base {
    dir: PathBuf,
}

impl Base {
    fn new() -> Base {
        let dir = std::env::temp_dir().join(format!("rt-test-{}", std::process::id()));
        let template = dir.join("template");
        let make = |path: &Path| fs::create_dir_all(path).expect("a directory for the tests");
        make(&template);
        make(&dir.join("bin"));
        let own = std::env::current_exe().expect("/proc/self/exe");
        let copy = |from: &Path, to: &Path| {
            if let Err(e) = fs::copy(from, to) {
                panic!("copy {} to {}: {e}", from.display(), to.display());
            }
        };
        copy(&own, &template.join("probe"));
        // What the payload is linked with, at the paths where its own loader finds it.
        let maps = fs::read_to_string("/proc/self/maps").expect("/proc/self/maps");
        let mut files: Vec<PathBuf> = maps
            .lines()
            .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])))
            .filter(|path| *path != own && path.is_file())
            .collect();
        files.extend(interpreter(&own));
        files.sort();
        files.dedup();
        for file in files {
            let to = template.join(file.strip_prefix("/").expect("an absolute path"));
            make(to.parent().expect("a file has a parent"));
            copy(&file, &to);
        }
        copy(&own, &dir.join("bin/it"));
        // Its own copy: the path may not be reachable for another user.
        copy(&runtime(), &dir.join("bin/rt"));
        Base { dir }
    }

    fn run(&self, name: &str, known: &Mutex<Vec<u32>>, limit: Duration) -> Outcome {
        let started = Instant::now();
        let log = self.dir.join(format!("log-{}", name.replace(['/', ':'], "-")));
        let out = fs::File::create(&log).expect("a log file");
        let mut child = {
            let mut known = known.lock().unwrap();
            let child = Command::new(std::env::current_exe().expect("/proc/self/exe"))
                .args(["--one", name])
                .env("RT_TEST_BASE", &self.dir)
                .env_remove("RUST_BACKTRACE")
                .stdin(Stdio::null())
                .stdout(out.try_clone().expect("dup"))
                .stderr(out)
                .process_group(0)
                .spawn()
                .expect("the test's process");
            known.push(child.id());
            child
        };
        let (code, signal) = wait(&mut child, started, limit);
        known.lock().unwrap().retain(|pid| *pid != child.id());
        let mut output = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
        if let Some(signal) = signal {
            output.push_str(&format!("the test's process died of signal {signal}\n"));
        }
        if code == -1 {
            output.push_str(&format!("did not end within {} s\n", limit.as_secs()));
        }
        let _ = fs::remove_file(&log);
        bury(known);
        if std::env::var_os("RT_TEST_KEEP").is_none()
            && let Err(e) = remove(&self.dir.join(crate::fixture::directory_name(name)))
        {
            output.push_str(&format!("the test's directory: {e}\n"));
            return Outcome { code: 1, output, took: started.elapsed() };
        }
        Outcome { code, output, took: started.elapsed() }
    }
}

/// Removes a tree, also one with directories that lost their write bit. The test's mounts are not in this
/// process's namespace; a tree with any is left alone.
fn remove(dir: &Path) -> std::io::Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    if table.contains(&format!(" {}/", dir.display())) {
        return Err(std::io::Error::other("something is mounted in it"));
    }
    if !dir.exists() {
        return Ok(());
    }
    fs::remove_dir_all(dir).or_else(|_| {
        fn open_up(dir: &Path) {
            let _ = fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700));
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    open_up(&entry.path());
                }
            }
        }
        open_up(dir);
        fs::remove_dir_all(dir)
    })
}

impl Drop for Base {
    fn drop(&mut self) {
        if std::env::var_os("RT_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// The exit code, -1 where it took too long; and the signal that it died of.
fn wait(child: &mut Child, started: Instant, limit: Duration) -> (i32, Option<i32>) {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return (status.code().unwrap_or(1), status.signal());
        }
        if started.elapsed() > limit {
            let _ = sys::kill(-(child.id() as i32), libc::SIGKILL);
            let _ = child.kill();
            let _ = child.wait();
            return (-1, None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills what a test that was killed itself left to this process.
fn bury(known: &Mutex<Vec<u32>>) {
    let known = known.lock().unwrap();
    for pid in crate::fixture::children(std::process::id()) {
        if !known.contains(&pid) {
            let _ = sys::kill(pid as i32, libc::SIGKILL);
            let _ = sys::reap(pid as i32);
        }
    }
}

/// The runtime under test.
fn runtime() -> PathBuf {
    std::env::var_os("RT_BIN").map_or_else(|| env!("CARGO_BIN_EXE_rt").into(), PathBuf::from)
}

/// The path in the PT_INTERP header of an ELF file, if it is dynamic.
fn interpreter(elf: &Path) -> Option<PathBuf> {
    let bytes = fs::read(elf).ok()?;
    let number = |at: usize, size: usize| {
        bytes.get(at..at + size).map(|b| b.iter().rev().fold(0usize, |n, byte| n << 8 | *byte as usize))
    };
    // ELF64, little endian: e_phoff, e_phentsize, e_phnum; p_type, p_offset, p_filesz.
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for header in (0..count).map(|i| table + i * size) {
        if number(header, 4)? == 3 {
            let (at, len) = (number(header + 8, 8)?, number(header + 32, 8)?);
            let text = bytes.get(at..at + len)?;
            return Some(String::from_utf8_lossy(text).trim_end_matches('\0').into());
        }
    }
    None
}
