//! The rules of the house that a compiler does not know. They stand here as data; the tests below only
//! read the sources.

use std::fs;
use std::path::{Path, PathBuf};

/// Who may use whom, lower layers first: a module and the modules that `use crate::…` may name in it.
/// Everything here stands in the order of the layers in src/lib.rs.
const MAY_USE: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("log", &["error"]),
    ("sys", &["error", "log"]),
    ("spec", &["error", "log", "sys"]),
    ("seccomp", &["error", "log", "sys"]),
    ("rootfs", &["error", "log", "sys"]),
    ("store", &["error", "log", "sys", "spec", "seccomp", "rootfs"]),
    ("sync", &["error", "log", "sys", "spec", "seccomp", "rootfs"]),
    ("hook", &["error", "log", "sys", "spec", "seccomp", "rootfs"]),
    ("container", &["error", "log", "sys", "spec", "seccomp", "rootfs", "store", "sync", "hook"]),
    // Never the container: an image is not a container.
    ("pull", &["error", "log", "sys", "spec", "seccomp", "rootfs", "store"]),
    (
        "cli",
        &["error", "log", "sys", "spec", "seccomp", "rootfs", "store", "sync", "hook", "container", "pull"],
    ),
];

/// Uses against the order, each with its reason: file, module used.
const EXCEPTIONS: &[(&str, &str)] = &[
    // The kernel's view of a filter is the compiler's output type: plain data.
    ("src/sys/seccomp.rs", "seccomp"),
];

/// What the binaries beside `rt` may use of the library: a path prefix and the modules after `rt::`.
const BINARIES: &[(&str, &[&str])] = &[
    ("src/main.rs", &["cli", "sys"]),
    ("src/bin/rt-pull.rs", &["pull", "cli", "error", "log", "sys"]),
    ("src/bin/rt-hook-", &["hook", "sys"]),
];

/// Where system calls may be made, by rustix. The rest is pure: it decides and lets others act.
const RUSTIX: &[&str] = &[
    "src/sys/",
    "src/error.rs",
    "src/log.rs",
    "src/rootfs.rs",
    "src/rootfs/",
    "src/store.rs",
    "src/store/",
    "src/sync.rs",
    "src/hook/",
    "src/container/",
    "src/pull/",
    // Who the caller is: ids, and whose a directory is.
    "src/spec/caller.rs",
    "src/cli/spec.rs",
];

/// Where the C library's functions and types may be named. Its constants may be named anywhere.
const LIBC_CALLS: &[&str] = &["src/sys/"];

/// Where `unsafe` may stand, each with its SAFETY comment: the sources, and the tests' own system calls.
const UNSAFE: &[&str] = &["src/sys/", "tests/it/sys.rs"];

/// What no source of the program says: output goes through one place that minds closed pipes, and nothing
/// is left for later.
const FORBIDDEN: &[&str] =
    &["println!", "eprintln!", "print!(", "eprint!(", "dbg!(", "todo!(", "unimplemented!("];

/// Error texts that are another runtime's, word for word, because people and scripts know them.
const QUOTED: &[&str] = &["File config.json exists. Remove it first"];

/// Names that say nothing about what is inside.
const DRAWERS: &[&str] = &["util", "utils", "helper", "helpers", "misc", "common", "stuff"];

#[test]
fn modules_use_lower_layers_only() {
    let mut wrong = Vec::new();
    for file in sources("src") {
        let text = read(&file);
        let Some(own) = module(&file) else { continue };
        let allowed =
            MAY_USE.iter().find(|(name, _)| *name == own).map(|(_, allowed)| *allowed).unwrap_or_else(|| {
                panic!("{}: the module {own} is in no layer of tests/tidy.rs", file.display())
            });
        for (n, line) in code(&text) {
            for used in words_after(line, "crate::") {
                let known = MAY_USE.iter().any(|(name, _)| *name == used);
                let excepted = EXCEPTIONS.iter().any(|(path, name)| file.ends_with(path) && *name == used);
                if known && used != own && !excepted && !allowed.contains(&used.as_str()) {
                    wrong.push(format!("{}:{n}: {own} uses {used}", file.display()));
                }
            }
        }
    }
    none(wrong);
}

#[test]
fn every_module_stands_in_a_layer() {
    let text = read(Path::new("src/lib.rs"));
    for line in text.lines().filter_map(|l| l.strip_prefix("pub mod ")) {
        let name = line.trim_end_matches(';');
        assert!(MAY_USE.iter().any(|(known, _)| *known == name), "{name} is in no layer of tests/tidy.rs");
        assert!(text.contains(&format!("[`{name}`]")), "{name} is not in the map at the top of src/lib.rs");
    }
}

#[test]
fn layers_have_no_circles() {
    // Each module's list names earlier ones only.
    for (n, (name, allowed)) in MAY_USE.iter().enumerate() {
        for used in *allowed {
            let at = MAY_USE.iter().position(|(other, _)| other == used);
            assert!(at.is_some_and(|at| at < n), "{name} may use {used}, which does not stand below it");
        }
    }
}

#[test]
fn binaries_use_what_is_theirs() {
    let mut wrong = Vec::new();
    for file in sources("src").into_iter().chain(sources("hooks")) {
        let path = file.display().to_string();
        let Some((_, allowed)) = BINARIES.iter().find(|(prefix, _)| path.starts_with(prefix)) else {
            continue;
        };
        for (n, line) in code(&read(&file)) {
            for used in words_after(line, "rt::") {
                if !allowed.contains(&used.as_str()) {
                    wrong.push(format!("{path}:{n}: uses {used}"));
                }
            }
        }
    }
    none(wrong);
}

#[test]
fn system_calls_have_their_places() {
    let mut wrong = Vec::new();
    for file in sources("src") {
        let path = file.display().to_string();
        let may = |places: &[&str]| places.iter().any(|place| path.starts_with(place));
        for (n, line) in code(&read(&file)) {
            if !may(RUSTIX) && !words_after(line, "rustix::").is_empty() {
                wrong.push(format!("{path}:{n}: rustix"));
            }
            let calls = words_after(line, "libc::");
            if !may(LIBC_CALLS) && calls.iter().any(|name| name.starts_with(|c: char| c.is_lowercase())) {
                wrong.push(format!("{path}:{n}: libc's {calls:?}"));
            }
            if line.contains("use libc") || line.contains("use nix") {
                wrong.push(format!("{path}:{n}: {}", line.trim()));
            }
        }
    }
    none(wrong);
}

#[test]
fn unsafe_is_kept_in_its_place_and_explained() {
    let mut wrong = Vec::new();
    // Elsewhere clippy's undocumented_unsafe_blocks says the same.
    for file in ["src", "hooks", "tests/it"].into_iter().flat_map(sources) {
        let path = file.display().to_string();
        let text = read(&file);
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in code(&text) {
            if !has_word(line, "unsafe") {
                continue;
            }
            if !UNSAFE.iter().any(|place| path.starts_with(place)) {
                wrong.push(format!("{path}:{n}: unsafe outside of sys"));
            }
            // A block is explained above its statement, a function by its Safety section.
            let above = &lines[n.saturating_sub(16)..n];
            let explained = above.iter().any(|l| l.contains("SAFETY:") || l.contains("# Safety"));
            if !explained && !line.contains("deny(") {
                wrong.push(format!("{path}:{n}: unsafe without a SAFETY comment"));
            }
        }
    }
    none(wrong);
}

#[test]
fn nothing_prints_past_the_one_place() {
    let mut wrong = Vec::new();
    for file in sources("src").into_iter().chain(sources("hooks")) {
        for (n, line) in code(&read(&file)) {
            for word in FORBIDDEN {
                if line.contains(word) {
                    wrong.push(format!("{}:{n}: {word}", file.display()));
                }
            }
        }
    }
    none(wrong);
}

#[test]
fn files_say_what_they_are() {
    let mut wrong = Vec::new();
    for file in sources("src").into_iter().chain(sources("hooks")).chain(sources("tests")) {
        let path = file.display().to_string();
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if DRAWERS.contains(&name.as_str()) {
            wrong.push(format!("{path}: a name for anything"));
        }
        if !read(&file).starts_with("//!") {
            wrong.push(format!("{path}: does not begin with what it is (//!)"));
        }
    }
    none(wrong);
}

#[test]
fn errors_are_written_as_the_house_writes_them() {
    // "doing what: why", lower case, no dot at the end.
    let mut wrong = Vec::new();
    for file in sources("src") {
        let text = read(&file);
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (n, line) in code(text) {
            for start in ["bail!(\"", "err!(\"", "Error::new(\""] {
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
                    wrong.push(format!("{}:{n}: {message:?}", file.display()));
                }
            }
        }
    }
    none(wrong);
}

/// The module that a file of src belongs to; none for the crate's roots and binaries.
#[test]
fn promises_name_tests_that_exist() {
    let text = read(Path::new("SECURITY.md"));
    let words: Vec<&str> =
        text.split_whitespace().map(|word| word.trim_matches(['`', ',', '.', ')'])).collect();
    let named: Vec<_> = words
        .windows(2)
        .filter(|pair| ["it", "pull", "hooks"].contains(&pair[0]))
        .filter_map(|pair| Some((pair[0], pair[1].split_once("::")?)))
        .collect();
    assert!(named.len() > 40, "SECURITY.md names {} tests", named.len());
    let exists = |(suite, (module, function)): &(&str, (&str, &str))| {
        let file = PathBuf::from(format!("tests/{suite}/{module}.rs"));
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

fn module(file: &Path) -> Option<String> {
    let below = file.strip_prefix("src").ok()?;
    let first = below.components().next()?.as_os_str().to_string_lossy().into_owned();
    match first.as_str() {
        "main.rs" | "lib.rs" | "bin" => None,
        name => Some(name.trim_end_matches(".rs").to_string()),
    }
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

/// The lines that are not comments, numbered from 1; comments behind code are cut off.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(n, line)| {
        let line = line.split(" // ").next().unwrap_or(line);
        (!line.trim_start().starts_with("//")).then_some((n + 1, line))
    })
}

/// The names that follow `prefix`, where it begins a path; braces are opened: `crate::{a, b::c}` gives a and b.
fn words_after(line: &str, prefix: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, _) in line.match_indices(prefix) {
        let begins =
            line[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':');
        if !begins {
            continue;
        }
        let rest = &line[at + prefix.len()..];
        let name = |text: &str| -> String {
            text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        match rest.strip_prefix('{') {
            None => all.push(name(rest)),
            Some(list) => {
                let mut depth = 0;
                let mut start = 0;
                for (n, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => {
                            all.push(name(&list[start..n]));
                            break;
                        }
                        '}' => depth -= 1,
                        ',' if depth == 0 => {
                            all.push(name(&list[start..n]));
                            start = n + 1;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    all.retain(|name| !name.is_empty());
    all
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word)
}

#[track_caller]
fn none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_readers_of_this_file_work() {
    assert_eq!(words_after("use crate::{bail, sys::{a, b}, err};", "crate::"), ["bail", "sys", "err"]);
    assert_eq!(words_after("x(crate::sys::fd::open, crate::spec::X)", "crate::"), ["sys", "spec"]);
    assert!(words_after("use rustix::fs;", "x::").is_empty());
    assert_eq!(code("a\n// b\nc // d").collect::<Vec<_>>(), [(1, "a"), (3, "c")]);
    assert!(has_word("pub unsafe fn", "unsafe") && !has_word("unsafe_op", "unsafe"));
    assert_eq!(module(Path::new("src/sys/fd.rs")).as_deref(), Some("sys"));
    assert_eq!(module(Path::new("src/main.rs")), None);
}
