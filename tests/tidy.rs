//! The rules of the house that neither the compiler nor clippy knows. The tests only read sources, and ask cargo who
//! depends on whom.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who may use whom in `rt`, lower modules first: a module, and the modules of the crate that may be named in it. Between
/// crates the same stands in each Cargo.toml.
const MAY_USE: &[(&str, &[&str])] = &[
    ("pattern", &[]),
    ("store", &[]),
    ("hooks", &["pattern"]),
    ("container", &["store", "hooks"]),
    ("checkpoint", &["store", "container"]),
    ("doctor", &["store", "hooks", "container", "checkpoint"]),
    ("cli", &["pattern", "store", "container", "checkpoint", "doctor"]),
];

/// Packages that are published or could be, and know nothing of rt.
const PUBLISHED: [&str; 4] = ["oci-seccomp", "ld-so-cache", "squashfs", "dockerfile"];

/// Packages that others could use, and that of rt need these alone: what they have in common, and the system calls.
const NEARLY_PUBLISHED: [&str; 3] = ["oci-content", "oci-layer", "oci-registry"];

/// What `rt` never has among its dependencies: TLS, archives, C.
const STRANGERS: [&str; 11] = [
    "ring",
    "rustls",
    "ureq",
    "flate2",
    "zstd",
    "zstd-sys",
    "lz4_flex",
    "lzma-rust2",
    "cc",
    "pkg-config",
    "openssl-sys",
];

/// Licences under which everything is that is linked into what is shipped (SPDX): each lets a program under Apache-2.0 be
/// passed on as one executable with notices, and asks for no source.
const LICENCES: [&str; 9] = [
    "Apache-2.0",
    "MIT",
    "ISC",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "Zlib",
    "Unicode-3.0",
    // Data: the certificates of webpki-roots.
    "CDLA-Permissive-2.0",
    "Apache-2.0 WITH LLVM-exception",
];

/// What nothing here has among its dependencies: a second TLS library, and asynchronous runtimes, which have threads.
const NOWHERE: [&str; 6] = ["openssl-sys", "native-tls", "aws-lc-sys", "boring-sys", "tokio", "async-std"];

/// Packages that are there in two versions: only macros at build time, of which nothing is linked.
const TWICE: [&str; 1] = ["syn"];

/// Where the program's sources and its tests are.
const SOURCES: [&str; 6] = ["src", "crates", "hooks", "image", "pull", "spank"];

/// The only places with unsafe code: system calls, and the border to Slurm.
const UNSAFE: [&str; 3] = ["crates/rt-sys/src/lib.rs", "spank/src/entries.rs", "spank/src/ffi.rs"];

/// Error texts that are another runtime's, word for word, because people and scripts know them.
const QUOTED: &[&str] = &["File config.json exists. Remove it first"];

/// Names that say nothing about what is inside.
const DRAWERS: &[&str] = &["util", "utils", "helper", "helpers", "misc", "common", "stuff"];

#[test]
fn modules_use_lower_ones_only() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in sources("src") {
        let below: PathBuf = file.strip_prefix("src").unwrap().into();
        let own = below.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if ["lib", "main"].contains(&own) {
            continue;
        }
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == own) else {
            wrong.push(format!("{}: the module {own} is not in tests/tidy.rs", file.display()));
            continue;
        };
        // A file src/own/x.rs is two below the crate's root, and a mod.rs one.
        let depth = below.components().count() - usize::from(below.ends_with("mod.rs"));
        for used in modules_used(&code(&read(&file)), depth) {
            seen += 1;
            if used != own
                && !allowed.contains(&used.as_str())
                && MAY_USE.iter().any(|(name, _)| *name == used)
            {
                wrong.push(format!("{}: {own} uses {used}", file.display()));
            }
        }
    }
    assert!(seen > 30, "{seen} uses found");
    none(wrong);
}

#[test]
fn packages_depend_on_what_they_may() {
    let depends = |package: &str| {
        let output = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--locked",
                "--offline",
                "--prefix",
                "none",
                "--edges",
                "normal,build",
                "-p",
                package,
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect::<Vec<_>>()
    };
    let rt = depends("rt");
    assert!(rt.contains(&"oci-seccomp".to_owned()) && rt.contains(&"rustix".to_owned()), "{rt:?}");
    none(STRANGERS.iter().filter(|s| rt.iter().any(|d| d == *s)).map(|s| format!("rt has {s}")).collect());
    for package in PUBLISHED {
        let ours = depends(package).into_iter().filter(|d| d.starts_with("rt-") || d == "rt");
        none(ours.map(|d| format!("{package} needs {d}")).collect());
    }
    for package in NEARLY_PUBLISHED {
        let ours = depends(package).into_iter().filter(|d| d.starts_with("rt-") || d == "rt");
        none(ours.filter(|d| d != "rt-sys").map(|d| format!("{package} needs {d}")).collect());
    }
    // rt-pull is where these belong, so the names above are right.
    let pull = depends("rt-pull");
    assert!(
        ["ring", "rustls", "flate2", "zstd-sys", "cc"].iter().all(|s| pull.iter().any(|d| d == s)),
        "{pull:?}"
    );
}

/// What is linked comes from crates.io, under licences that are known, and each package in one version.
#[test]
fn dependencies_may_be_shipped() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--locked", "--offline", "--prefix", "none", "--edges", "normal,build"])
        .args(["--format", "{p}|{l}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut packages: Vec<(&str, &str)> =
        text.lines().filter_map(|line| line.trim_end_matches(" (*)").split_once('|')).collect();
    packages.sort_unstable();
    packages.dedup();
    assert!(packages.len() > 50, "{} packages", packages.len());
    none(
        packages
            .iter()
            .filter(|(_, licence)| !allowed(licence))
            .map(|(package, licence)| format!("{package}: licence {licence:?}"))
            .collect(),
    );
    let names: Vec<&str> = packages.iter().filter_map(|(package, _)| package.split(' ').next()).collect();
    none(
        NOWHERE
            .iter()
            .filter(|s| names.contains(s))
            .map(|s| format!("{s} is among the dependencies"))
            .collect(),
    );
    // They are sorted.
    let twice = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    assert_eq!(twice.collect::<Vec<_>>(), TWICE, "packages in two versions");
    let lock = read(Path::new("Cargo.lock"));
    let sources = lock.lines().filter(|line| line.starts_with("source = "));
    none(
        sources
            .filter(|line| *line != "source = \"registry+https://github.com/rust-lang/crates.io-index\"")
            .map(str::to_owned)
            .collect(),
    );
}

/// True where an SPDX expression leaves a choice that [`LICENCES`] has. `/` is what crates wrote for OR.
fn allowed(expression: &str) -> bool {
    // OR binds less than AND; both only outside of parentheses.
    for (word, all) in [(" OR ", false), ("/", false), (" AND ", true)] {
        let mut depth = 0;
        let cut = expression.char_indices().find(|(at, c)| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            depth == 0 && expression[*at..].starts_with(word)
        });
        if let Some((at, _)) = cut {
            let (left, right) = (allowed(&expression[..at]), allowed(&expression[at + word.len()..]));
            return if all { left && right } else { left || right };
        }
    }
    let name = expression.trim();
    match name.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => allowed(inner),
        None => LICENCES.contains(&name),
    }
}

#[test]
fn files_say_what_they_are() {
    let mut wrong = Vec::new();
    for file in SOURCES.iter().chain(&["tests", "fuzz"]).flat_map(|dir| sources(dir)) {
        let path = file.display().to_string();
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if DRAWERS.contains(&name.as_str()) {
            wrong.push(format!("{path}: a name for anything"));
        }
        let text = read(&file);
        if !text.starts_with("//!") && !text.starts_with("#![no_main]\n") {
            wrong.push(format!("{path}: does not begin with what it is (//!)"));
        }
    }
    none(wrong);
}

#[test]
fn errors_are_written_as_the_house_writes_them() {
    // "doing what: why", lower case, no dot at the end.
    let mut wrong = Vec::new();
    for file in SOURCES.iter().flat_map(|dir| sources(dir)).filter(|path| !path.iter().any(|p| p == "tests"))
    {
        let text = read(&file);
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (n, line) in text.lines().enumerate() {
            for start in ["bail!(\"", "err!(\"", "Error::new(\"", "malformed(\""] {
                let Some(at) = line.find(start) else { continue };
                let message = &line[at + start.len()..];
                let Some(end) = message.rfind('"') else { continue };
                let message = &message[..end];
                let first = message.chars().next().unwrap_or('x');
                let second = message.chars().nth(1).unwrap_or('x');
                // An abbreviation or the spec's own name may begin with a capital.
                if QUOTED.contains(&message) {
                    continue;
                }
                let shouts = first.is_uppercase() && second.is_lowercase() && !message.starts_with("JSON");
                if shouts || message.ends_with('.') && !message.ends_with("...") {
                    wrong.push(format!("{}:{}: {message:?}", file.display(), n + 1));
                }
            }
        }
    }
    none(wrong);
}

#[test]
fn unsafe_code_is_where_it_belongs() {
    // The compiler denies it wherever no attribute allows it.
    let is_test = |path: &Path| path.iter().any(|part| part == "tests" || part == "benches");
    let allows = |path: &PathBuf| code(&read(path)).contains("allow(unsafe_code");
    let files = SOURCES.iter().flat_map(|dir| sources(dir)).filter(|path| !is_test(path));
    let found: Vec<_> = files.filter(allows).map(|path| path.display().to_string()).collect();
    assert_eq!(found, UNSAFE);
}

/// Who reads the environment, and whose word it is there. `caller` reads what somebody has said who may: where Slurm calls
/// `rt` with an image's variables among its own, those are left out. docs/design/trust.md has what each variable decides.
const READERS: [(&str, &str); 19] = [
    ("crates/oci-registry/src/http/proxy.rs", "proxies: the caller's"),
    ("crates/oci-registry/src/http/trust.rs", "certificates: the caller's"),
    ("crates/rt-spec/src/environment.rs", "what a container inherits: it decides nothing here"),
    ("crates/rt-spec/src/rootless.rs", "RT_EMULATE_ROOT: the engine's or the caller's"),
    ("crates/rt-sys/src/caller.rs", "the caller's, without what an image has set"),
    ("hooks/src/gpu.rs", "rt-hook-gpu as a command: the caller's"),
    ("hooks/src/kit/bundle.rs", "a hook's own: the engine's or the site's"),
    ("image/src/run_file.rs", "a program of one file: passed on to rt"),
    ("pull/src/images/prune.rs", "the caller's"),
    ("pull/src/progress.rs", "TERM: the caller's"),
    ("spank/src/plugin.rs", "Slurm's, in its own process"),
    ("src/checkpoint/gate.rs", "criu's, which has started it"),
    ("src/cli/create.rs", "LISTEN_FDS: counts with this process's own pid in LISTEN_PID only"),
    ("src/cli/mount.rs", "SHELL: the caller's"),
    ("src/cli/slurm/task.rs", "slurmstepd's own, passed on"),
    ("src/container/exec.rs", "TERM: the caller's"),
    ("src/container/plan/session.rs", "the caller's: sockets and credentials of the session"),
    ("src/container/protect.rs", "passed on to the copy of this program"),
    ("src/doctor/images.rs", "shown"),
];

#[test]
fn readers_of_the_environment_say_whose_word_it_is() {
    let reads = |path: &PathBuf| {
        let text = read(path);
        let text = code(text.split("#[cfg(test)]").next().unwrap_or_default());
        ["env::var(", "env::var_os(", "env::vars(", "env::vars_os("].iter().any(|call| text.contains(call))
    };
    let is_test = |path: &Path| path.iter().any(|part| part == "tests" || part == "benches");
    let files = SOURCES.iter().flat_map(|dir| sources(dir)).filter(|path| !is_test(path)).filter(reads);
    let mut found: Vec<_> = files.map(|path| path.display().to_string()).collect();
    found.sort();
    let listed: Vec<_> = READERS.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(found, listed, "each file that reads the environment is listed with whose word it takes");
}

#[test]
fn promises_name_tests_that_exist() {
    let text = read(Path::new("SECURITY.md"));
    let words: Vec<&str> =
        text.split_whitespace().map(|word| word.trim_matches(['`', ',', '.', ')'])).collect();
    let suites =
        [("it", "tests/it"), ("pull", "pull/tests"), ("hooks", "hooks/tests"), ("image", "image/tests")];
    // The suite stands before the first of its tests.
    let mut dir = "";
    let mut named = Vec::new();
    for word in words {
        match word.split_once("::") {
            Some(test) => named.push((dir, test)),
            None => dir = suites.iter().find(|(suite, _)| *suite == word).map_or(dir, |(_, dir)| dir),
        }
    }
    assert!(named.len() > 40, "SECURITY.md names {} tests", named.len());
    let exists = |(dir, (module, function)): &(&str, (&str, &str))| {
        let file = PathBuf::from(format!("{dir}/{module}.rs"));
        file.exists() && read(&file).contains(&format!("fn {function}("))
    };
    none(
        named
            .iter()
            .filter(|test| !exists(test))
            .map(|test| format!("SECURITY.md: no test {test:?}"))
            .collect(),
    );
}

/// Where the result of a system call or of a look at a file loses its error: how many lines of the file do so, and what every
/// errno stands for there. "No" is an errno that means no, and every other error is an error. A new place is an error that is
/// returned, or a row with its reason.
const DROPPED: [(&str, usize, &str); 49] = [
    ("crates/oci-registry/src/registries_conf.rs", 1, "EACCES: the certificates are not for the caller"),
    ("crates/rt-image-store/src/lib.rs", 1, "what cannot be proven is not trusted"),
    ("crates/rt-image-store/src/mark.rs", 2, "what cannot be looked at stays"),
    ("crates/rt-sys/src/caller.rs", 1, "whose it is cannot be known, so it is another user's"),
    ("crates/rt-sys/src/disk.rs", 2, "what cannot be proven is not taken"),
    ("crates/rt-sys/src/fd.rs", 1, "what cannot be proven is not taken"),
    ("crates/rt-sys/src/rootfs/missing.rs", 3, "what cannot be proven to be the directory is covered"),
    ("crates/rt-sys/src/rootfs/mod.rs", 3, "another way is taken, or what is held by others stays"),
    ("crates/rt-sys/src/rootfs/notes.rs", 1, "what cannot be opened stays"),
    ("crates/rt-sys/src/tty.rs", 1, "a terminal that cannot be set stays as it is"),
    ("image/src/serve.rs", 1, "words an error that is there already"),
    ("pull/src/cache.rs", 7, "what cannot be read is fetched; mkdir decides afterwards"),
    ("pull/src/disk_full.rs", 1, "the room is not known, and the write decides"),
    ("pull/src/draft.rs", 3, "another way is taken; what cannot be listed stays"),
    ("pull/src/images/mod.rs", 1, "mkdir decides afterwards"),
    ("pull/src/images/stamp.rs", 1, "without a stamp the image is asked for"),
    ("pull/src/images/users.rs", 2, "what cannot be looked at is in use"),
    ("pull/src/limits.rs", 2, "a limit that cannot be read is none"),
    ("pull/src/pull.rs", 1, "rename with RENAME_NOREPLACE decides afterwards"),
    ("pull/src/save/mod.rs", 1, "what cannot be proven to be a layout is not replaced"),
    ("src/checkpoint/gate.rs", 3, "without an answer nothing goes on"),
    ("src/checkpoint/reach.rs", 1, "what cannot be looked at is not the container's"),
    ("src/checkpoint/watches.rs", 2, "what cannot be looked at is not found there"),
    ("src/cli/events.rs", 2, "a figure that cannot be read is left out"),
    ("src/cli/operand.rs", 2, "another user's file stops nobody, whatever he makes the kernel say of it"),
    ("src/cli/slurm/broadcast.rs", 1, "what cannot be looked at is not removed"),
    ("src/cli/slurm/prepare.rs", 1, "a remark is left out"),
    ("src/cli/spec.rs", 1, "mkdir and open with O_EXCL decide afterwards"),
    ("src/container/account.rs", 1, "no error of the kernel: an option"),
    ("src/container/devices.rs", 2, "what cannot be proven to be the device is not taken for it"),
    ("src/container/images/session.rs", 1, "the next place is tried, and the last error is told"),
    ("src/container/init.rs", 1, "words an error that is there already"),
    ("src/container/mounts/binds.rs", 1, "words an error that is there already"),
    ("src/container/mounts/host_files.rs", 1, "no error of the kernel: an option"),
    ("src/container/mounts/mod.rs", 2, "what cannot be proven to be procfs is not taken for it"),
    ("src/container/not_executable.rs", 3, "words an error that is there already"),
    ("src/container/plan/account.rs", 1, "a home that cannot be seen is none"),
    ("src/container/plan/load.rs", 1, "no error of the kernel: an option"),
    (
        "src/container/plan/mounts.rs",
        1,
        "what cannot be proven to be a regular file is bound, and not copied",
    ),
    ("src/container/plan/seccomp.rs", 1, "no error of the kernel: an option"),
    (
        "src/container/program.rs",
        4,
        "what cannot be proven is refused; a stream that cannot be given can still be written to",
    ),
    ("src/container/protect.rs", 4, "what cannot be proven to be safe is copied"),
    ("src/container/refused.rs", 1, "words an error that is there already"),
    ("src/doctor/devices.rs", 3, "doctor shows what it can see"),
    ("src/doctor/kernel.rs", 1, "doctor shows what it can see"),
    ("src/doctor/mod.rs", 3, "doctor shows what it can see"),
    ("src/hooks/run.rs", 1, "words an error that is there already"),
    ("src/store/persistent.rs", 2, "a layer that cannot be looked at is one that is not seen"),
    ("src/store/process_identity.rs", 2, "another way to identify the process is taken"),
];

#[test]
fn errors_of_the_kernel_are_no_answer() {
    let calls = [
        "fs::",
        "fd::",
        "ns::",
        "mount::",
        "disk::",
        "process::",
        "File::",
        "look::",
        "metadata(",
        "read_link(",
        "read_dir(",
    ];
    let losses = [".ok()", ".unwrap_or_default()", ".is_ok_and(", ".is_ok()", ".flatten()"];
    let loses = |line: &&str| {
        let line = line.trim();
        let call = calls.iter().filter_map(|call| line.find(call)).min();
        let loss = losses.iter().filter_map(|loss| line.rfind(loss)).max();
        // `let Ok(x) = CALL` as a statement, or as the condition of `if` or `while`.
        let answered = line.find("let Ok(").and_then(|at| Some(at + line[at..].find(" = ")?));
        !line.starts_with("//")
            && !line.starts_with("use ")
            && (call.zip(loss).is_some_and(|(call, loss)| call < loss)
                || answered.zip(call).is_some_and(|(answered, call)| answered < call))
    };
    for line in
        ["let x = fs::stat(path).ok()?;", "let Ok(x) = fs::stat(path) else {", "while let Ok(x) = fd::x() {"]
    {
        assert!(loses(&line), "{line}");
    }
    for line in ["let x = text.parse().ok();", "let Ok(x) = text.parse() else {", "Ok(fs::stat(path)?)"] {
        assert!(!loses(&line), "{line}");
    }
    let mut found = Vec::new();
    let places = [
        "src",
        "crates/rt-sys/src",
        "crates/rt-image-store/src",
        "crates/oci-content/src",
        "crates/oci-registry/src",
        "crates/oci-layer/src",
        "pull/src",
        "image/src",
    ];
    for file in places.iter().flat_map(|dir| sources(dir)) {
        let text = read(&file);
        let lines = text.split("#[cfg(test)]").next().unwrap_or_default().lines();
        match lines.filter(loses).count() {
            0 => {}
            count => found.push((file.display().to_string(), count)),
        }
    }
    found.sort();
    let listed: Vec<_> = DROPPED.iter().map(|(file, count, _)| ((*file).to_owned(), *count)).collect();
    assert_eq!(found, listed, "each place that loses an error of the kernel is listed with the reason");
}

/// Every Rust source below a directory, in order; nothing where there is no such directory.
fn sources(dir: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut todo = vec![PathBuf::from(dir)];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A source without comments and white space, so that a path over several lines is one word.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line });
    let lines = lines.map(|line| line.split(" // ").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ").replace(":: ", "::")
}

/// The modules at the crate's root that a source names, by `crate::` or by as many `super::` as lead there.
fn modules_used(code: &str, depth: usize) -> Vec<String> {
    let mut all = Vec::new();
    // One more in a module of tests, which stands inside of the file's.
    for prefix in ["crate::".to_owned(), "super::".repeat(depth), "super::".repeat(depth + 1)] {
        for (at, _) in code.match_indices(&prefix) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || before == '_' || before == ':' {
                continue;
            }
            all.extend(first_names(&code[at + prefix.len()..]));
        }
    }
    all
}

/// The first name of a path, or of each path in braces: `a::b` gives a, `{a, b::{c}}` gives a and b.
fn first_names(path: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(list) = path.trim_start().strip_prefix('{') else { return vec![name(path)] };
    let mut all = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (n, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                all.push(name(&list[start..n]));
                start = n + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    all.retain(|name| !name.is_empty());
    all
}

#[track_caller]
fn none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_check_of_a_script_can_fail() {
    let script = r#". integration/tap
        check good 0 '^a$' echo a
        check expression 0 '^b$' echo a
        check status 1 '^a$' echo a
        check swapped '^a$' 0 echo a
        check fails fails '' true
        skip needs "a machine"
        include child bash -c '. integration/tap; check x 0 "" true; skip y "why"; done_testing'
        include no-end bash -c '. integration/tap; check x 0 "" true; exit 0'
        include none bash -c '. integration/tap; done_testing'
        include other bash -c '. integration/tap; skip_all "only root"'
        done_testing"#;
    let out = Command::new("bash").args(["-c", script]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "ok 1 - good",
        "not ok 2 - expression",
        "not ok 3 - status",
        "not ok 4 - swapped",
        "not ok 5 - fails",
        "ok 6 - needs # SKIP a machine",
        "ok 7 - child/x",
        "ok 8 - child/y # SKIP why",
        "ok 9 - no-end/x",
        "not ok 10 - no-end",
        "1..0",
        "not ok 11 - none",
        "ok 12 - other # SKIP only root",
        "1..12",
    ];
    assert_eq!(lines, expected);
    assert_eq!(out.status.code(), Some(1));
}

#[test]
fn the_readers_of_this_file_work() {
    let used = |text: &str, depth| modules_used(&code(text), depth);
    assert_eq!(used("use crate::{\n    a,\n    b::{c, d},\n    e\n};", 2), ["a", "b", "e"]);
    assert_eq!(used("x(crate::cli::y, super::super::store::Z)", 2), ["cli", "store"]);
    assert_eq!(used("use super::{a, b};", 1), ["a", "b"]);
    for good in ["MIT", "GPL-3.0 OR MIT", "MIT/GPL-3.0", "(GPL-2.0 OR ISC) AND Zlib", "Apache-2.0 / MIT"] {
        assert!(allowed(good), "{good}");
    }
    for bad in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR GPL-2.0) AND LGPL-3.0", "GPL-2.0 WITH x OR SSPL-1.0"]
    {
        assert!(!allowed(bad), "{bad}");
    }
    assert!(used("// crate::cli\nuse super::x; use mycrate::y;", 2).is_empty());
}
