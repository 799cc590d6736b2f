//! The texts for command lines that are wrong: those that people know from other programs. The hooks, whose small command
//! lines have a parser of their own, use the same ones.

pub use rt_sys::nearest::nearest;

use rt_sys::err;
use rt_sys::error::Error;
use std::ffi::OsStr;

/// Flags of other container programs that are not near any of ours: what is meant, and the flag that has to be there for it.
const ELSEWHERE: [(&str, &str, &str); 10] = [
    ("--bind", "--volume", "--volume"),
    ("--fakeroot", "--as-root", "--as-root"),
    ("--gpus", "--env", "-e NVIDIA_VISIBLE_DEVICES=all"),
    ("--nv", "--env", "-e NVIDIA_VISIBLE_DEVICES=all"),
    ("--rocm", "--env", "-e AMD_VISIBLE_DEVICES=all"),
    ("--pwd", "--cwd", "--cwd"),
    ("--rw", "--writable", "--writable"),
    ("--writable-tmpfs", "--writable", "--writable"),
    ("--write", "--writable", "--writable"),
    ("--write-fake", "--writable", "--writable"),
];

/// Commands of other container programs, with what does the same here.
const COMMANDS_ELSEWHERE: [(&str, &str); 4] = [
    ("shell", "rt run -t IMAGE -- sh"),
    ("import", "rt pull"),
    ("instance", "rt run -d"),
    ("build", "rt pull --user-map root, and rt run in that bundle"),
];

/// The text for a command that does not exist, with the nearest of `known` or else `hint`, which says where they are
/// listed.
pub fn unknown_command<'a>(name: &OsStr, known: impl IntoIterator<Item = &'a str>, hint: &str) -> Error {
    let elsewhere = COMMANDS_ELSEWHERE.iter().find(|(theirs, _)| name == *theirs).map(|(_, ours)| *ours);
    match elsewhere.or_else(|| nearest(name, known)) {
        Some(near) => err!("unknown command {name:?}; did you mean {near}?"),
        None => err!("unknown command {name:?} ({hint})"),
    }
}

/// The text for a flag that does not exist. `flag` has its dashes and no value, and so has each of `known`.
pub fn unknown_flag<'a>(flag: &OsStr, known: impl IntoIterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.into_iter().collect();
    let elsewhere = ELSEWHERE.iter().find(|(theirs, needs, _)| flag == *theirs && known.contains(needs));
    match elsewhere.map(|(.., ours)| *ours).or_else(|| nearest(flag, known)) {
        Some(near) => err!("unknown flag {}; did you mean {near}?", flag.display()),
        None => err!("unknown flag {}", flag.display()),
    }
}

/// The text for a flag behind which the command line ends.
pub fn without_value(flag: &OsStr) -> Error {
    err!("flag {} needs a value", flag.display())
}

/// The text for a flag with a value that it does not take; `takes` says what it does.
pub fn invalid_value(flag: &OsStr, value: &OsStr, takes: &str) -> Error {
    err!("invalid value {value:?} for flag {}: it takes {takes}", flag.display())
}
