//! The keys of config.toml, described once: the reader, `rt config` and the man page all read this table.
#![allow(missing_docs, reason = "each key says in its help what it is for")]

/// A key.
#[derive(Debug)]
pub struct Key {
    /// The table that it stands in.
    pub table: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// The variable of the environment that says the same, and counts more than the files.
    pub variable: Option<&'static str>,
    /// One sentence, no dot.
    pub help: &'static str,
}

/// What the value of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// Any text but an empty one.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An absolute path, in which `$NAME` is the caller's variable.
    Path,
    /// A whole number.
    Number,
    /// A number of bytes, or a text such as `20G`.
    Size,
    /// A list of texts.
    Texts,
    /// A list of absolute paths, in which `$NAME` is the caller's variable.
    Paths,
    /// A list of names of variables.
    Names,
    /// A list of mounts.
    Mounts,
    /// A table of variables and their values.
    Variables,
}

impl Kind {
    /// True where the values of all files and of the variable add up. Of other keys the last value counts.
    pub fn adds_up(self) -> bool {
        matches!(self, Kind::Texts | Kind::Paths | Kind::Names | Kind::Mounts | Kind::Variables)
    }

    /// What a value has to be, for errors.
    pub fn takes(self) -> String {
        match self {
            Kind::Switch => "true or false".to_owned(),
            Kind::Text => "a text that is not empty".to_owned(),
            Kind::Word(words) => words.join(" or "),
            Kind::Path => "an absolute path".to_owned(),
            Kind::Number => "a whole number, 0 or more".to_owned(),
            Kind::Size => "a number of bytes, such as 20G".to_owned(),
            Kind::Texts => "a list of texts".to_owned(),
            Kind::Paths => "a list of absolute paths".to_owned(),
            Kind::Names => "a list of names of variables".to_owned(),
            Kind::Mounts => "a list of mounts".to_owned(),
            Kind::Variables => "a table of variables".to_owned(),
        }
    }
}

impl Key {
    const fn of(table: &'static str, name: &'static str, kind: Kind, help: &'static str) -> Key {
        Key { table, name, kind, variable: None, help }
    }

    const fn variable(self, name: &'static str) -> Key {
        Key { variable: Some(name), ..self }
    }

    /// `TABLE.NAME`
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.table, self.name)
    }
}

// What a container of `rt run` gets.
pub static MOUNTS: Key = Key::of(
    "run",
    "mounts",
    Kind::Mounts,
    "bind these in every container; a later entry replaces an earlier one of the same target",
)
.variable("RT_MOUNTS");
pub static ENV: Key = Key::of("run", "env", Kind::Variables, "set these variables").variable("RT_ENV");
pub static PASS_ENV: Key = Key::of(
    "run",
    "pass-env",
    Kind::Names,
    "set these variables to the caller's values; NAME* means all that begin so",
);
pub static UNSET_ENV: Key = Key::of(
    "run",
    "unset-env",
    Kind::Names,
    "remove these variables, which the bundle or the caller sets; NAME* means all that begin so",
);
pub static WRITABLE: Key = Key::of(
    "run",
    "writable",
    Kind::Switch,
    "write to a layer in memory, as --writable does; false makes the root read-only",
)
.variable("RT_WRITABLE");
pub static RUN_HOME: Key = Key::of("run", "home", Kind::Switch, "mount the caller's home directory");
pub static INIT: Key =
    Key::of("run", "init", Kind::Switch, "have an init of rt's own in containers with a PID namespace");
pub static CLEAR_ENV: Key =
    Key::of("run", "clear-env", Kind::Switch, "leave out the caller's variables, which bundles may ask for");
pub static DEVICES: Key = Key::of("run", "devices", Kind::Texts, "add the CDI devices of these names");
pub static HOOKS_DIRS: Key =
    Key::of("run", "hooks-dirs", Kind::Paths, "read hook definitions from these directories too");

pub static SHARE: Key = Key::of(
    "run",
    "share",
    Kind::Word(&["auto", "never"]),
    "whether the ranks that one launcher has started on a node share a container; RT_SHARE counts more",
);

pub static CRIU: Key = Key::of(
    "checkpoint",
    "criu",
    Kind::Path,
    "the criu that rt checkpoint and rt restore execute, in place of the first in PATH; it may lie in the root of another distribution",
)
.variable("RT_CRIU");
pub static CUDA_CHECKPOINT: Key = Key::of(
    "checkpoint",
    "cuda",
    Kind::Path,
    "the cuda-checkpoint that parts programs from GPUs of NVIDIA for a checkpoint, in place of the first in PATH",
)
.variable("RT_CUDA_CHECKPOINT");

// How `rt pull` makes a bundle.
pub static PROFILE: Key =
    Key::of("pull", "profile", Kind::Word(&["hpc", "isolated"]), "how the container is to run");
pub static USER_MAP: Key = Key::of(
    "pull",
    "user-map",
    Kind::Word(&["caller", "root", "config"]),
    "which user the process is inside",
);
pub static PULL_WRITABLE: Key = Key::of("pull", "writable", Kind::Switch, "make the root writable");
pub static HOME: Key = Key::of("pull", "home", Kind::Switch, "mount the home directory of the user");
pub static PRIVATE: Key =
    Key::of("pull", "private", Kind::Switch, "keep the image's file modes, and hide the bundle from others");
pub static REGISTRY: Key =
    Key::of("pull", "registry", Kind::Text, "the registry of image names that name none");
pub static CACHE: Key =
    Key::of("pull", "cache", Kind::Path, "keep blobs in this directory").variable("RT_CACHE");
pub static BUILD: Key = Key::of(
    "build",
    "dir",
    Kind::Path,
    "keep layers of builds in this directory of a local file system; ~/.cache/rt/build by default",
)
.variable("RT_BUILD_DIR");
pub static CONNECTIONS: Key = Key::of("pull", "connections", Kind::Number, "fetch so many blobs at once");
pub static RETRIES: Key = Key::of("pull", "retries", Kind::Number, "repeat a failed request so many times");
pub static LEAST_RATE: Key = Key::of(
    "pull",
    "least-rate",
    Kind::Size,
    "give a registry up that sends less than so many bytes a second, 1024 by default; 0 means never",
);
pub static LEAST_RATE_TIME: Key =
    Key::of("pull", "least-rate-time", Kind::Number, "measure that over so many seconds, 60 by default");
pub static MAX_SIZE: Key = Key::of("pull", "max-size", Kind::Size, "refuse images that unpack to more");

// Where images are kept.
pub static STORES: Key = Key::of(
    "images",
    "stores",
    Kind::Paths,
    "the stores of images, in this order, instead of the user's own; RT_IMAGES replaces them",
);
pub static HIGH_WATER: Key = Key::of(
    "images",
    "high-water",
    Kind::Number,
    "remove the least recently used images before a pull where more percent of the file system than that are in use; RT_IMAGES_HIGH counts more",
);
pub static LOW_WATER: Key = Key::of(
    "images",
    "low-water",
    Kind::Number,
    "remove them until less percent than that are in use; 10 below high-water by default; RT_IMAGES_LOW counts more",
);

/// All keys, in the order in which they are shown.
pub static KEYS: &[&Key] = &[
    &MOUNTS,
    &ENV,
    &PASS_ENV,
    &UNSET_ENV,
    &WRITABLE,
    &RUN_HOME,
    &INIT,
    &CLEAR_ENV,
    &DEVICES,
    &HOOKS_DIRS,
    &SHARE,
    &CRIU,
    &CUDA_CHECKPOINT,
    &PROFILE,
    &USER_MAP,
    &PULL_WRITABLE,
    &HOME,
    &PRIVATE,
    &REGISTRY,
    &CACHE,
    &BUILD,
    &CONNECTIONS,
    &RETRIES,
    &LEAST_RATE,
    &LEAST_RATE_TIME,
    &MAX_SIZE,
    &STORES,
    &HIGH_WATER,
    &LOW_WATER,
];
