//! What a flag is, and the flags that every program of this command line has.
#![allow(missing_docs, reason = "each flag says in its help what it is for")]

/// A flag, global or of a command. Commands name flags by these values, so a typing error does not
/// compile.
#[derive(Debug)]
pub struct Flag {
    /// The name after `--`.
    pub long: &'static str,
    /// A second name after `--`.
    pub alias: Option<&'static str>,
    /// The name after `-`.
    pub short: Option<char>,
    /// What help calls the value; none for a switch. Completions read it: `DIR`, `FILE`, `SOCKET`,
    /// or `a|b|c`.
    pub value: Option<&'static str>,
    /// Every occurrence counts, not just the last one.
    pub repeats: bool,
    /// Taken because callers send it; nothing depends on it.
    pub ignored: bool,
    /// One sentence, no dot.
    pub help: &'static str,
}

/// A switch: true where given, or as `--long=false` says.
pub const fn switch(long: &'static str, help: &'static str) -> Flag {
    Flag { long, alias: None, short: None, value: None, repeats: false, ignored: false, help }
}

/// A flag that takes a value.
pub const fn value(long: &'static str, metavar: &'static str, help: &'static str) -> Flag {
    Flag { value: Some(metavar), ..switch(long, help) }
}

impl Flag {
    /// With a short name.
    pub const fn short(self, short: char) -> Flag {
        Flag { short: Some(short), ..self }
    }
    /// With a second long name.
    pub const fn alias(self, alias: &'static str) -> Flag {
        Flag { alias: Some(alias), ..self }
    }
    /// Every occurrence counts.
    pub const fn repeats(self) -> Flag {
        Flag { repeats: true, ..self }
    }
    /// Accepted, without effect.
    pub const fn ignored(self) -> Flag {
        Flag { ignored: true, ..self }
    }
}

// Global flags.
pub static ROOT: Flag = value("root", "DIR", "directory of the containers' states");
pub static LOG: Flag = value("log", "FILE", "append the error to FILE, as well as to stderr");
pub static LOG_FORMAT: Flag = value("log-format", "text|json", "form of the lines in the log");
pub static LOG_LEVEL: Flag =
    value("log-level", "error|warning|info|debug", "log also what is less severe; error by default");
pub static DEBUG: Flag = switch("debug", "the same as --log-level debug");
pub static CGROUP_MANAGER: Flag =
    value("cgroup-manager", "cgroupfs|systemd|disabled", "cgroups are never touched").ignored();
pub static SYSTEMD_CGROUP: Flag = switch("systemd-cgroup", "cgroups are never touched").ignored();
pub static ROOTLESS: Flag = value("rootless", "true|false|auto", "found out by itself").ignored();
pub static VERSION: Flag = switch("version", "print the version").short('v');
pub static HELP: Flag = switch("help", "print this help").short('h');

/// The flags that stand before the command.
pub static GLOBALS: &[&Flag] = &[
    &ROOT,
    &LOG,
    &LOG_FORMAT,
    &LOG_LEVEL,
    &DEBUG,
    &CGROUP_MANAGER,
    &SYSTEMD_CGROUP,
    &ROOTLESS,
    &VERSION,
    &HELP,
];
