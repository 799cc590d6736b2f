//! The life of a container: create, start, run, exec, kill, pause, delete.

use crate::error::Result;
use crate::store::Store;
use std::path::PathBuf;

/// What `create` and `run` are asked to do, beyond what config.json says.
#[derive(Debug, Default)]
pub struct CreateOptions {
    /// The container's id; checked by [`crate::store`].
    pub id: String,
    /// The bundle directory, as given.
    pub bundle: PathBuf,
    /// Another name than `<bundle>/config.json` (crun's `--config`).
    pub config: Option<PathBuf>,
    /// Where to write the pid of the container's first process (digits only, no newline).
    pub pid_file: Option<PathBuf>,
    /// The AF_UNIX socket that receives the terminal's master side.
    pub console_socket: Option<PathBuf>,
    /// The AF_UNIX socket that receives a pidfd of the container's first process.
    pub pidfd_socket: Option<PathBuf>,
    /// Use chroot(2) instead of pivot_root(2) (for a ramfs root).
    pub no_pivot: bool,
    /// Keep the caller's session keyring.
    pub no_new_keyring: bool,
    /// How many descriptors above 2 the container gets.
    pub preserve_fds: u32,
    /// Turns each silent adaptation of a root config into an error (`--strict`).
    pub strict: bool,
    /// Which id the process has inside (`--user-map`), over the annotation `rt.user`.
    pub user_map: Option<UserMap>,
    /// `run` only: return once the container runs.
    pub detach: bool,
    /// `run` only: keep the state after the container has ended.
    pub keep: bool,
    /// `run` only: do not become the reaper of the container's orphans.
    pub no_subreaper: bool,
    /// What the command line changes in the config.
    pub overrides: Overrides,
}

/// What `rt run`'s command line changes in the config.
#[derive(Debug, Default)]
pub struct Overrides {
    /// Replaces `process.args` where not empty.
    pub args: Vec<String>,
    /// Added to `process.env`, `NAME=VALUE` each; a name alone takes the caller's value.
    pub env: Vec<String>,
    /// Replaces `process.cwd`.
    pub cwd: Option<PathBuf>,
    /// Replaces `process.terminal`.
    pub terminal: Option<bool>,
    /// `SRC:DST[:OPTIONS]` each, options as podman's `-v`.
    pub volumes: Vec<String>,
}

/// Which id the caller has inside the container (annotation `rt.user`, `--user-map`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserMap {
    /// The caller's own uid and gid, mapped to themselves.
    Caller,
    /// Root.
    Root,
    /// What `process.user` says.
    Config,
}

/// What `exec` is asked to do.
#[derive(Debug, Default)]
pub struct ExecOptions {
    /// The container to enter.
    pub id: String,
    /// A file with an OCI `process` object (`--process`); overrides everything below it.
    pub process: Option<PathBuf>,
    /// The command, where no process file is given.
    pub args: Vec<String>,
    /// `NAME=VALUE` each, added to the container's environment.
    pub env: Vec<String>,
    /// Replaces the container's working directory.
    pub cwd: Option<PathBuf>,
    /// `UID[:GID]`.
    pub user: Option<String>,
    /// Additional group ids.
    pub additional_gids: Vec<u32>,
    /// Capabilities added to the container's (`CAP_*` names).
    pub caps: Vec<String>,
    /// Sets no_new_privs whatever the config says.
    pub no_new_privs: bool,
    /// Gives the process a terminal; `None` follows the process file.
    pub tty: Option<bool>,
    /// Return once the process runs.
    pub detach: bool,
    /// Where to write the pid of the new process.
    pub pid_file: Option<PathBuf>,
    /// The AF_UNIX socket that receives the terminal's master side.
    pub console_socket: Option<PathBuf>,
    /// The AF_UNIX socket that receives a pidfd of the new process.
    pub pidfd_socket: Option<PathBuf>,
    /// How many descriptors above 2 the process gets.
    pub preserve_fds: u32,
    /// Enter also where the container is paused.
    pub ignore_paused: bool,
    /// AppArmor profile for the new process.
    pub apparmor: Option<String>,
    /// SELinux label for the new process.
    pub process_label: Option<String>,
}

/// Creates a container whose program waits for [`start`].
pub fn create(store: &Store, options: CreateOptions) -> Result<()> {
    let _ = (store, options);
    crate::bail!("not built yet")
}

/// Creates and starts a container and returns its exit code (0 where detached).
///
/// Does not return where the container takes this process's place (DESIGN: exec in place).
pub fn run(store: &Store, options: CreateOptions) -> Result<u8> {
    let _ = (store, options);
    crate::bail!("not built yet")
}

/// Releases a created container.
pub fn start(store: &Store, id: &str) -> Result<()> {
    let _ = (store, id);
    crate::bail!("not built yet")
}

/// Sends `signal` to the container's first process, or to all its processes.
pub fn kill(store: &Store, id: &str, signal: i32, all: bool) -> Result<()> {
    let _ = (store, id, signal, all);
    crate::bail!("not built yet")
}

/// Removes a stopped container, or with `force` any container; `force` of an unknown id is no error.
pub fn delete(store: &Store, id: &str, force: bool) -> Result<()> {
    let _ = (store, id, force);
    crate::bail!("not built yet")
}

/// Runs another program in a running container and returns its exit code (0 where detached).
pub fn exec(store: &Store, options: ExecOptions) -> Result<u8> {
    let _ = (store, options);
    crate::bail!("not built yet")
}

/// Stops every process of the container until `resume`.
pub fn pause(store: &Store, id: &str) -> Result<()> {
    let _ = (store, id);
    crate::bail!("not built yet")
}

/// Continues a paused container.
pub fn resume(store: &Store, id: &str) -> Result<()> {
    let _ = (store, id);
    crate::bail!("not built yet")
}

/// The pids of all the container's processes as the caller sees them, ascending.
pub fn processes(store: &Store, id: &str) -> Result<Vec<i32>> {
    let _ = (store, id);
    crate::bail!("not built yet")
}

