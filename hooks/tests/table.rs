//! hooks/README.md lists each variable, device and library set with its test: the list is complete, and its tests exist.

use rt_launch::launchers::HOOK_PREFIXES;
use rt_spec::caller_request::PREFIXES;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The words between back quotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The rows of a text's tables: cells.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter(|l| l.starts_with('|') && !l.starts_with("|---"));
    lines.map(|l| l.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// Where the functions of each file of tests are, by the file's name in the tables.
const FILES: [(&str, &str); 6] = [
    ("gpu", "hooks/tests/gpu.rs"),
    ("mpi", "hooks/tests/mpi.rs"),
    ("rdma", "hooks/tests/rdma.rs"),
    ("writers", "hooks/tests/writers.rs"),
    ("it", "tests/it/devices.rs"),
    ("runs", "tests/it/mpi.rs"),
];

/// The tests of a cell which are not there; an error where it names none.
fn missing(cell: &str) -> Result<Vec<String>, String> {
    let mut file = None;
    let mut wrong = Vec::new();
    let mut count = 0;
    for (n, part) in cell.split('`').enumerate() {
        if n % 2 == 0 {
            let words = part.split(|c: char| !c.is_ascii_alphanumeric());
            file = words.filter_map(|w| FILES.iter().find(|(name, _)| *name == w)).next_back().or(file);
            continue;
        }
        count += 1;
        let (path, name) = match (part.split_once("::"), file) {
            (Some((path, name)), _) => (path, name),
            (None, Some((_, path))) => (*path, part),
            (None, None) => return Err(format!("{cell}: {part} is in no file")),
        };
        let starts = match path.ends_with(".sh") {
            true => ["check ", "check \"", "more "].map(|command| format!("{command}{name}")).to_vec(),
            false => vec![format!("fn {name}(")],
        };
        let text = read(path);
        if !starts.iter().any(|start| text.contains(start)) {
            wrong.push(format!("{path} has no {name}"));
        }
    }
    if count == 0 { Err(format!("{cell}: no test")) } else { Ok(wrong) }
}

#[test]
fn every_row_names_tests_that_exist() {
    let text = read("hooks/README.md");
    let mut count = 0;
    for row in rows(&text) {
        let last = row.last().unwrap();
        if *last != "test" {
            assert_eq!(missing(last).unwrap_or_else(|e| panic!("{row:?}: {e}")), [""; 0], "{row:?}");
            count += 1;
        }
    }
    assert!(count > 40, "{count} rows");
    assert_eq!(
        missing("gpu `requirements`, `no_such_test`").unwrap(),
        ["hooks/tests/gpu.rs has no no_such_test"]
    );
    assert!(missing("integration").is_err());
}

/// The names in double quotes of `text` that begin with one of `prefixes`.
fn named(text: &str, prefixes: &[&str]) -> BTreeSet<String> {
    let quoted = text.split('"').filter(|w| prefixes.iter().any(|p| w.starts_with(p) && w.len() > p.len()));
    let plain = |w: &&str| w.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    quoted.filter(plain).map(str::to_owned).collect()
}

/// What stands in front of a file's own tests.
fn program(path: &str) -> String {
    read(path).split("#[cfg(test)]").next().unwrap().to_owned()
}

#[test]
fn every_variable_has_a_row() {
    let text = read("hooks/README.md");
    let sources = [
        "amd",
        "gpu",
        "intel",
        "kit/numbering",
        "mpi/installed",
        "mpi/mod",
        "mpi/proof",
        "nvidia/mod",
        "nvidia/request",
        "nvidia/select",
        "rdma/mod",
    ];
    let used: BTreeSet<String> =
        sources.iter().flat_map(|s| named(&program(&format!("hooks/src/{s}.rs")), &prefixes())).collect();
    assert!(used.len() > 20, "{used:?}");
    let listed: Vec<&str> = rows(&text).iter().flat_map(|row| quoted(row[0])).collect();
    let lacking: Vec<_> = used
        .iter()
        // Said with CUDA_VISIBLE_DEVICES: it tells whether there is a job at all.
        .filter(|name| *name != "SLURM_JOB_ID")
        .filter(|name| {
            !listed.iter().any(|l| l == name || l.strip_suffix('*').is_some_and(|l| name.starts_with(l)))
        })
        .collect();
    assert!(lacking.is_empty(), "{lacking:?} are not in hooks/README.md");
}

/// What looks like a variable in the sources and is not passed on by `rt`.
const NOT_PASSED_ON: [&str; 4] = [
    // Of the hook's own environment, where a module of the host's has set them.
    "LD_LIBRARY_PATH",
    "MPI_HOME",
    "I_MPI_ROOT",
    // Of the compiler.
    "CARGO_PKG_VERSION",
];

fn prefixes() -> Vec<&'static str> {
    PREFIXES.into_iter().chain(HOOK_PREFIXES).collect()
}

#[test]
fn every_variable_is_passed_on() {
    // Of what `rt run -e` sets, hooks are told only the names that begin with one of [`prefixes`].
    let mut count = 0;
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = std::fs::read_to_string(&path).unwrap();
        // Beginnings of names, such as those of symbols, end in `_`.
        let looks_like_one = |w: &&str| {
            w.contains('_')
                && !w.ends_with('_')
                && w.starts_with(|c: char| c.is_ascii_uppercase())
                && w.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        };
        let quoted = text.split("#[cfg(test)]").next().unwrap().split('"').filter(looks_like_one);
        for name in quoted.filter(|name| !NOT_PASSED_ON.contains(name)) {
            let known = prefixes().iter().any(|prefix| name.starts_with(prefix));
            assert!(
                known,
                "{name} of {} begins with none of PREFIXES of rt-spec and HOOK_PREFIXES of rt-launch",
                path.display()
            );
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}

/// Every file of Rust below `dir`.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .collect()
}

#[test]
fn the_table_says_whose_word_counts() {
    let text = read("hooks/README.md");
    let mut count = 0;
    for row in rows(&text).iter().filter(|row| row.len() == 4) {
        for name in quoted(row[0]).into_iter().filter(|name| *name != "MIG-UUID") {
            let only = rt_spec::caller_request::is_callers(name, "x");
            assert_eq!(row[1].starts_with("any"), !only, "{row:?}");
            count += 1;
        }
    }
    assert!(count > 25, "{count}");
    assert!(rt_spec::caller_request::is_callers("NVIDIA_VISIBLE_DEVICES", "v/c=d"));
}

#[test]
fn every_device_has_a_row() {
    let text = read("hooks/README.md");
    let cells: String =
        rows(&text).iter().flat_map(|row| &row[..row.len() - 1]).flat_map(|cell| [*cell, "\n"]).collect();
    let sources = ["amd", "drm", "intel", "nvidia/mod", "rdma/mod", "rdma/discover"];
    let mut count = 0;
    for source in sources {
        let program = program(&format!("hooks/src/{source}.rs"));
        for path in program.split('"').filter_map(|w| w.strip_prefix("/dev/")) {
            // Of a pattern, what stands in front of the first variable part.
            let name = path.split('{').next().unwrap();
            let name = name.strip_prefix("dri/by-path/pci-").map_or(name, |_| "dri/by-path/");
            if !name.is_empty() {
                assert!(
                    cells.contains(name),
                    "/dev/{path} of hooks/src/{source}.rs is not in hooks/README.md"
                );
                count += 1;
            }
        }
    }
    assert!(count > 15, "{count}");
}
