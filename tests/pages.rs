//! The pages say nothing that `--help`, the man pages or the sources contradict: commands, flags, links, variables,
//! annotations, keys. integration/pages.sh runs the commands.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags that pages name alone and that are another program's.
const OF_OTHERS: &[(&str, &[&str])] = &[
    (
        "README.md",
        &[
            "container-mount-home",
            "nv",
            "gpus",
            "fakeroot",
            "rw",
            "writable-tmpfs",
            "container-image",
            "container",
        ],
    ),
    ("CHANGELOG.md", &["container", "nv", "bind", "fakeroot"]),
    ("CONTRIBUTING.md", &["as", "repeat"]),
    // Flags of instructions in a Containerfile, and one that is not there.
    (
        "docs/build.md",
        &[
            "network",
            "security",
            "from",
            "chmod",
            "link",
            "exclude",
            "parents",
            "checksum",
            "unpack",
            "keep-git-dir",
            "cache-to",
            "chown",
        ],
    ),
    ("docs/design/build.md", &["link"]),
    // What a program of one file takes.
    ("docs/design/images-as-files.md", &["rt-", "rt-extract"]),
    ("docs/getting-started.md", &["container"]),
    ("docs/images.md", &["long"]),
    ("docs/podman-containerd-docker.md", &["cgroups", "runc-binary", "read-only-tmpfs"]),
    ("docs/slurm.md", &["container", "gpus-per-task"]),
    // Other programs' flags of which the help says what they are here.
    ("docs/design/command-line.md", &["nv", "bind"]),
    ("docs/slurm-plugin.md", &["container", "multi-prog", "overlap", "pty"]),
    ("docs/design/images-as-files.md", &["more"]),
    ("docs/design/performance.md", &["make-rslave"]),
    ("docs/design/rootless.md", &["cap-drop"]),
    // Between processes of rt's own.
    ("docs/design/slurm-plugin.md", &["multi-prog", "export"]),
    ("docs/design/step.md", &["held-lock"]),
    ("docs/design/tests.md", &["as", "faults", "seed", "only", "repeat", "jobs"]),
];

/// The directories of the repository that have sources, scripts or pages.
const DIRECTORIES: [&str; 14] = [
    "src",
    "crates",
    "pull",
    "image",
    "hooks",
    "spank",
    "integration",
    "tests",
    "benches",
    "fuzz",
    "packaging",
    "contrib",
    "docs",
    ".ci",
];

/// A flag as the help of a command lists it: its names, and whether a value follows.
type Flags = BTreeMap<String, bool>;

#[test]
fn commands_and_flags_exist() {
    let commands = commands();
    let globals = flags(&help(&[]));
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in pages() {
        for (line, text) in code(&read(&page)) {
            for words in calls(&text) {
                seen += 1;
                if let Err(e) = judge(&words, &commands, &globals) {
                    wrong.push(format!("{}:{line}: {e}: rt {}", page.display(), words.join(" ")));
                }
            }
        }
    }
    assert!(seen > 250, "{seen} calls found");
    none(wrong);
}

#[test]
fn flags_that_stand_alone_exist() {
    let mut known: BTreeSet<String> = commands().into_values().flat_map(BTreeMap::into_keys).collect();
    known.extend(flags(&help(&[])).into_keys());
    // The options that srun has by Slurm's plugin.
    let plugin = read(Path::new("spank/src/options.rs"));
    let options = plugin.split('"').filter(|w| w.starts_with("container-") || w.starts_with("no-container-"));
    known.extend(options.map(|name| format!("--{name}")));
    let mut wrong = Vec::new();
    let mut seen = 0;
    // Both pages have a column for each of the other programs.
    for page in pages().iter().filter(|p| !p.ends_with("flags.md") && !p.ends_with("compare.md")) {
        let text = read(page);
        for (line, text) in text.lines().enumerate().flat_map(|(n, l)| spans(l).map(move |s| (n + 1, s))) {
            let Some(flag) = text.strip_prefix("--") else { continue };
            let name: String = flag.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            let of_others = OF_OTHERS
                .iter()
                .any(|(file, names)| page == Path::new(file) && names.contains(&name.as_str()));
            seen += usize::from(!of_others);
            if !name.is_empty() && !known.contains(&format!("--{name}")) && !of_others {
                wrong.push(format!("{}:{line}: no command has --{name}", page.display()));
            }
        }
    }
    assert!(seen > 80, "{seen} flags found");
    none(wrong);
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in pages() {
        let text = read(&page);
        for (n, line) in text.lines().enumerate() {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if link.contains("://") || link.contains(' ') {
                    continue;
                }
                seen += 1;
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = match path {
                    "" => page.clone(),
                    _ => page.parent().unwrap().join(path),
                };
                if !target.exists() {
                    wrong.push(format!("{}:{}: {path} does not exist", page.display(), n + 1));
                } else if !anchor.is_empty() && !anchors(&read(&target)).contains(anchor) {
                    wrong.push(format!("{}:{}: {link}: no such heading", page.display(), n + 1));
                }
            }
        }
    }
    assert!(seen > 100, "{seen} links found");
    none(wrong);
}

#[test]
fn paths_of_the_repository_exist() {
    // The changelog names what is there no more.
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in pages().iter().filter(|p| !p.ends_with("CHANGELOG.md")) {
        for (n, line) in read(page).lines().enumerate() {
            for path in spans(line).flat_map(str::split_whitespace).filter_map(path_of_the_repository) {
                seen += 1;
                // A file of rt's own may be named without the `src/` in front of it.
                if !Path::new(path).exists() && !Path::new("src").join(path).exists() {
                    wrong.push(format!("{}:{}: {path} does not exist", page.display(), n + 1));
                }
            }
        }
    }
    assert!(seen > 150, "{seen} paths found");
    none(wrong);
}

#[test]
fn names_of_the_sources_exist() {
    // Such as `Launch::holding` and `fd::leave_open`: the last part is a name in some source.
    let of_rust = ["src", "crates", "pull", "image", "hooks", "spank/src", "integration/faults/src", "tests"];
    let sources: Vec<String> =
        of_rust.iter().flat_map(|dir| sources(Path::new(dir))).map(|path| read(&path)).collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in pages().iter().filter(|p| !p.ends_with("CHANGELOG.md")) {
        for (n, line) in read(page).lines().enumerate() {
            for name in spans(line).filter_map(name_of_a_source) {
                seen += 1;
                if !sources.iter().any(|text| has_word(text, name)) {
                    wrong.push(format!("{}:{}: no source has {name}", page.display(), n + 1));
                }
            }
        }
    }
    assert!(seen > 40, "{seen} names found");
    none(wrong);
}

#[test]
fn readme_is_short_and_begins_with_a_container() {
    let text = read(Path::new("README.md"));
    assert!(text.lines().count() <= 150, "README.md has {} lines", text.lines().count());
    let first = text.lines().position(|line| line.starts_with("rt run ")).unwrap();
    assert!(first < 15, "the first container of README.md is in line {}", first + 1);
}

#[test]
fn the_chart_is_that_of_the_tables() {
    // benches/chart draws it; the figure of each bar is a median of one of the tables, rounded as the program does.
    let medians: Vec<f64> = ["benches/RESULTS.md", "benches/pull/RESULTS.md"]
        .iter()
        .flat_map(|path| read(Path::new(path)).lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.starts_with('|'))
        .flat_map(|line| line.split('|').filter_map(|cell| cell.trim().parse().ok()).collect::<Vec<f64>>())
        .collect();
    let shown = |value: f64| if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") };
    let tables: BTreeSet<String> = medians.into_iter().map(shown).collect();
    let picture = read(Path::new("docs/pictures/figures.svg"));
    let figures: Vec<&str> = picture
        .lines()
        .filter(|line| line.starts_with("<text"))
        .filter_map(|line| line.split('>').nth(1)?.split('<').next()?.split_once(' '))
        .filter(|(value, unit)| ["s", "ms"].contains(unit) && value.parse::<f64>().is_ok())
        .map(|(value, _)| value)
        .collect();
    assert!(figures.len() >= 8, "{figures:?}");
    none(figures.iter().filter(|f| !tables.contains(**f)).map(|f| format!("figures.svg: {f}")).collect());
}

#[test]
fn every_page_is_in_the_index() {
    let index = read(Path::new("docs/README.md"));
    let mut wrong = Vec::new();
    for page in pages().iter().filter(|p| p.parent() == Some(Path::new("docs"))) {
        let name = page.file_name().unwrap().to_str().unwrap();
        if name != "README.md" && !index.contains(&format!("]({name})")) {
            wrong.push(format!("docs/README.md does not name {name}"));
        }
    }
    none(wrong);
}

#[test]
fn reference_names_what_changes_a_container() {
    let page = read(Path::new("docs/reference.md"));
    let has = |name: &str| page.contains(&format!("`{name}`")) || page.contains(&format!("`{name}:"));
    let sources = ["crates/rt-spec/src/annotations.rs", "pull/src/profile.rs"];
    let sources: String = sources.iter().map(|path| read(Path::new(path))).collect();
    let annotations: Vec<&str> = sources
        .lines()
        .filter(|line| line.contains("const ANNOTATION_"))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(annotations.len() > 12, "{annotations:?}");
    let section = |page: &str, name: &str| {
        let rest = man_page(page).split(&format!(".SH {name}\n")).nth(1).unwrap().to_owned();
        rest.split("\n.SH ").next().unwrap().to_owned()
    };
    let heads = |text: &str| -> Vec<String> {
        text.split(".TP\n")
            .skip(1)
            .filter_map(|entry| entry.lines().next())
            .flat_map(|head| head.split(", ").map(str::to_owned).collect::<Vec<_>>())
            .collect()
    };
    let variables = heads(&section("man1/rt.1", "ENVIRONMENT"));
    let keys = heads(&section("man5/rt-config.5", "KEYS"));
    assert!(variables.len() > 25 && keys.len() > 15, "{variables:?} {keys:?}");
    // Those of a step are in the two man pages alone.
    let variables = variables.into_iter().filter(|name| !name.starts_with("RT_CONTAINER_"));
    let names = annotations.iter().map(|s| (*s).to_owned()).chain(variables).chain(keys);
    none(names.filter(|name| !has(name)).map(|name| format!("docs/reference.md: no {name}")).collect());
}

#[test]
fn the_readers_of_this_file_work() {
    assert_eq!(
        calls("A=1 rt run -v a:b x -- rt list | rt ps y # rt z"),
        [vec!["run", "-v", "a:b", "x", "--", "rt", "list"], vec!["ps", "y"]]
    );
    assert_eq!(calls("sh -c 'rt a' && podman --runtime rt run"), Vec::<Vec<String>>::new());
    let page = "text `rt a` and `rt b`\n\n```sh\nrt c \\\n  d\n```\n    rt e\n```toml\nrt = 1\n```\n";
    let found: Vec<_> = code(page).into_iter().map(|(line, text)| format!("{line} {text}")).collect();
    assert_eq!(found, ["1 rt a", "1 rt b", "4 rt c   d", "7 rt e"]);
    let commands = commands();
    let globals = flags(&help(&[]));
    let judged = |text: &str| calls(text).iter().all(|words| judge(words, &commands, &globals).is_ok());
    for right in
        ["rt run -it -e A=1 --pid=host ./x -- --none", "rt --root d exec a --none", "rt pull [FLAGS] I"]
    {
        assert!(judged(right), "{right}");
    }
    for wrong in ["rt strat", "rt run --writeable x", "rt run -y x", "rt --rot d list", "rt pull --as-root x"]
    {
        assert!(!judged(wrong), "{wrong}");
    }
    let paths =
        [("hooks/a.rs::case", "hooks/a.rs"), ("src/b/,", "src/b/"), ("docs/*.md", ""), ("src/NAME.rs", "")];
    for (word, path) in paths {
        assert_eq!(path_of_the_repository(word).unwrap_or_default(), path, "{word}");
    }
    assert_eq!(name_of_a_source("fd::leave_open"), Some("leave_open"));
    assert_eq!(name_of_a_source("hooks/a.rs::case"), None);
    assert!(has_word("fn leave_open(", "leave_open") && !has_word("fn leave_opened(", "leave_open"));
    assert!(anchors("## 2. What /run/rt-slurm is\n").contains("2-what-runrt-slurm-is"));
}

/// Every page of the repository.
fn pages() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for dir in [
        ".",
        "docs",
        "docs/design",
        "hooks",
        "integration/slurm",
        "integration/spank",
        "integration/gpu",
        "integration/kernels",
        "integration/conformance",
        "benches",
        "benches/pull",
    ] {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "md") {
                all.push(path.strip_prefix("./").unwrap_or(&path).to_owned());
            }
        }
    }
    all.sort();
    all
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn help(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rt")).args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn man_page(name: &str) -> String {
    let dir =
        std::env::temp_dir().join(format!("rt-pages-{}-{}", std::process::id(), name.replace('/', "-")));
    fs::create_dir(&dir).unwrap();
    rt_manual::write(rt_manual::Kind::Man, &dir).unwrap();
    let text = fs::read_to_string(dir.join(name));
    fs::remove_dir_all(&dir).unwrap();
    text.unwrap()
        .replace("\\-", "-")
        .replace("\\fB", "")
        .replace("\\fI", "")
        .replace("\\fR", "")
        .replace("\\&", "")
}

/// Each command with its flags.
fn commands() -> BTreeMap<String, Flags> {
    let overview = help(&[]);
    let list = overview.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let mut all: BTreeMap<_, _> = names.map(|name| (name.to_owned(), flags_of(name))).collect();
    assert!(all.len() > 25, "{all:?}");
    // Each form of `rt slurm` has flags of its own; a page may name any of them behind `rt slurm`.
    let usage = help(&["slurm"]);
    let forms = usage.lines().filter_map(|line| line.split("rt slurm ").nth(1)?.split_whitespace().next());
    let of_forms: Vec<_> = forms.flat_map(|form| flags(&help(&["slurm", form]))).collect();
    assert!(of_forms.len() > 20, "{of_forms:?}");
    all.get_mut("slurm").unwrap().extend(of_forms);
    all.insert("help".to_owned(), Flags::new());
    all
}

/// The flags of a command, or of all its forms.
fn flags_of(command: &str) -> Flags {
    let text = help(&[command]);
    if !text.contains("\nMore about each: ") {
        return flags(&text);
    }
    let call = format!("rt {command} ");
    let lines = text.split("\n\n").find(|part| part.starts_with("Usage:")).unwrap().lines();
    let forms = lines.filter_map(|line| line.split_once(&call)?.1.split_whitespace().next());
    forms.flat_map(|form| flags(&help(&[command, form]))).collect()
}

/// The flags in a help text.
fn flags(help: &str) -> Flags {
    let mut all = Flags::new();
    let list = help.split("\nFlags:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap();
    for line in list.lines().filter(|line| line.trim_start().starts_with('-')) {
        let mut words = line.split_whitespace().peekable();
        let mut names = Vec::new();
        while let Some(word) = words.next_if(|word| word.starts_with('-')) {
            let name = word.trim_end_matches(',').split(['[', '=']).next().unwrap();
            names.push(name.to_owned());
        }
        // A value stands one blank behind the name, and the explanation more.
        let end = line.find(names.last().unwrap().as_str()).unwrap() + names.last().unwrap().len();
        let rest = &line[end..];
        let value =
            rest.starts_with('[') || rest.starts_with(' ') && !rest.starts_with("  ") && rest.len() > 1;
        all.extend(names.into_iter().map(|name| (name, value)));
    }
    all
}

/// The code between back quotes in a line.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The path that a word of code names, if it begins with a directory of the repository: without the name of a test behind
/// it, and not where it stands for several (`*`, `{a,b}`, `NAME.rs`).
fn path_of_the_repository(word: &str) -> Option<&str> {
    let word = word.split("::").next()?.trim_end_matches(['.', ',', ':', ';', ')']);
    let (top, _) = word.split_once('/')?;
    let name = word.rsplit('/').next()?;
    let several = word.contains(['*', '{', '$', '<'])
        || name.ends_with(".rs") && name.starts_with(|c: char| c.is_ascii_uppercase());
    (DIRECTORIES.contains(&top) && !several).then_some(word)
}

/// The last part of a name such as `Type::function`, if that is all the code there is.
fn name_of_a_source(code: &str) -> Option<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let (_, last) = code.rsplit_once("::")?;
    (code.chars().all(is_name) && !last.is_empty()).then_some(last)
}

/// Whether a text has this word, and not only a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

/// The sources of Rust below a directory.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.extension() {
            _ if path.is_dir() => sources(&path),
            Some(e) if e == "rs" => vec![path],
            _ => Vec::new(),
        })
        .collect()
}

/// The code of a page with its lines: blocks of shell, indented blocks, and spans in the text. Tables write `\|` for `|`.
fn code(page: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut fence: Option<bool> = None;
    let mut goes_on = false;
    for (n, line) in page.lines().enumerate().map(|(n, line)| (n + 1, line)) {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(["", "sh"].contains(&language)) };
            continue;
        }
        let text = line.trim_end_matches('\\');
        match fence {
            Some(false) => {}
            Some(true) if goes_on => all.last_mut().unwrap().1.push_str(&format!("  {}", text.trim())),
            Some(true) => all.push((n, text.to_owned())),
            None if line.starts_with("    ") => all.push((n, text.trim().to_owned())),
            None => all.extend(spans(line).map(|span| (n, span.replace("\\|", "|")))),
        }
        goes_on = fence == Some(true) && line.ends_with('\\');
    }
    all
}

/// The words behind each `rt` of a command line.
fn calls(text: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut current: Option<Vec<String>> = None;
    let mut before = String::new();
    for word in words(text) {
        match &mut current {
            _ if ["|", "||", "&&", ";", "&"].contains(&word.as_str()) => all.extend(current.take()),
            Some(words) => words.push(word.clone()),
            None if (word == "rt" || word.ends_with("/rt") && !word.contains('='))
                && !before.starts_with("--") =>
            {
                current = Some(Vec::new());
            }
            None => {}
        }
        before = word;
    }
    all.extend(current);
    // A path such as /usr/local/bin/rt alone is no call.
    all.retain(|words| !words.is_empty());
    all
}

/// A command line in words, without what is quoted in one, redirections and remarks. A closing `;` is a word.
fn words(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut quote = None;
    for c in text.chars() {
        let word = all.last_mut().unwrap();
        match (quote, c) {
            (Some(q), _) if c == q => quote = None,
            (Some(_), ' ') => word.push('_'),
            (Some(_), _) => word.push(c),
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') if word.is_empty() => break,
            (None, ';') => all.extend([";".to_owned(), String::new()]),
            (None, c) if c.is_whitespace() => all.push(String::new()),
            (None, _) => word.push(c),
        }
    }
    all.retain(|word| !word.is_empty() && !word.starts_with(['<', '>']) && !word.starts_with("2>"));
    all
}

/// Whether a call names a command and flags that exist.
fn judge(words: &[String], commands: &BTreeMap<String, Flags>, globals: &Flags) -> Result<(), String> {
    let plain = |word: &str| word.trim_matches(['[', ']', '.', ',', '(', ')']).to_owned();
    let words: Vec<String> = words.iter().map(|word| plain(word)).collect();
    let mut rest = words.iter();
    let mut command = None;
    while let Some(word) = rest.next() {
        if !word.starts_with('-') || word == "-" {
            // `rt COMMAND`, `rt [FLAGS]`, `rt ...`, and `rt` as a word of a sentence.
            let placeholder =
                |name: &str| name.is_empty() || !name.starts_with(|c: char| c.is_ascii_lowercase());
            if placeholder(word) {
                continue;
            }
            for name in word.split(['|', ',']).filter(|name| !placeholder(name)) {
                if !commands.contains_key(name) {
                    return Err(format!("no command {name}"));
                }
            }
            command = commands.get(word.split(['|', ',']).next().unwrap());
            break;
        }
        if check(word, globals)? {
            rest.next();
        }
    }
    let Some(command) = command else { return Ok(()) };
    let stops = std::ptr::eq(command, &raw const commands["exec"])
        || std::ptr::eq(command, &raw const commands["ps"]);
    while let Some(word) = rest.next() {
        if word == "--" {
            break;
        }
        if word.starts_with('-') && word.len() > 1 {
            if check(word, command)? {
                rest.next();
            }
        } else if stops {
            // Everything behind the ID is the program's.
            break;
        }
    }
    Ok(())
}

/// Whether a flag exists; true where the next word is its value.
fn check(word: &str, flags: &Flags) -> Result<bool, String> {
    let (name, value) = word.split_once('=').map_or((word, false), |(name, _)| (name, true));
    // Several in one span, `--a|--b`.
    let mut follows = false;
    for name in name.split(['|', '/']) {
        if let Some(takes) = flags.get(name).or_else(|| flags.get(&format!("-{name}"))) {
            follows = *takes && !value;
            continue;
        }
        if name.starts_with("--") || !name.starts_with('-') {
            return Err(format!("no flag {name}"));
        }
        // -it, and -eNAME.
        for c in name.chars().skip(1) {
            match flags.get(&format!("-{c}")) {
                Some(true) => break,
                Some(false) => {}
                None => return Err(format!("no flag -{c}")),
            }
        }
    }
    Ok(follows)
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let text = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
        })
        .collect()
}

#[track_caller]
fn none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
