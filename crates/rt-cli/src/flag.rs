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
    /// What help calls the value; none for a switch. Completions offer directories for `DIR`, files for `FILE` and
    /// `SOCKET`, and the words of `a|b|c`.
    pub value: Option<&'static str>,
    /// The value may be left out, and stands behind a `=` where there is one. The flag is a switch, too.
    pub optional: bool,
    /// The flag can be given several times, and every occurrence counts. Of other flags the last one counts.
    pub repeats: bool,
    /// The flag is accepted because callers send it, and has no effect.
    pub ignored: bool,
    /// The flag is shown neither in help nor in man pages and completions: one program passes it to another.
    pub hidden: bool,
    /// One sentence, no dot.
    pub help: &'static str,
}

/// A switch: true where given, or as `--long=false` says.
pub const fn switch(long: &'static str, help: &'static str) -> Flag {
    Flag {
        long,
        alias: None,
        short: None,
        value: None,
        optional: false,
        repeats: false,
        ignored: false,
        hidden: false,
        help,
    }
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
    /// The value may be left out.
    pub const fn optional(self) -> Flag {
        Flag { optional: true, ..self }
    }
    /// Every occurrence counts.
    pub const fn repeats(self) -> Flag {
        Flag { repeats: true, ..self }
    }
    /// Accepted, without effect.
    pub const fn ignored(self) -> Flag {
        Flag { ignored: true, ..self }
    }
    /// Shown nowhere.
    pub const fn hidden(self) -> Flag {
        Flag { hidden: true, ..self }
    }
}

// Global flags.
pub static ROOT: Flag = value("root", "DIR", "keep the containers' states in DIR");
pub static LOG: Flag = value("log", "FILE", "append errors to FILE as well as to stderr");
pub static LOG_FORMAT: Flag = value("log-format", "text|json", "format of the log; text by default");
pub static LOG_LEVEL: Flag =
    value("log-level", "error|warning|info|debug", "log messages of this level and above; error by default");
pub static DEBUG: Flag = switch("debug", "the same as --log-level debug");
pub static CGROUP_MANAGER: Flag =
    value("cgroup-manager", "cgroupfs|systemd|disabled", "how to make cgroups; rt makes none").ignored();
pub static SYSTEMD_CGROUP: Flag =
    switch("systemd-cgroup", "let systemd make cgroups; rt makes none").ignored();
pub static ROOTLESS: Flag =
    value("rootless", "true|false|auto", "whether the caller lacks privileges; rt finds out itself")
        .ignored();
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
