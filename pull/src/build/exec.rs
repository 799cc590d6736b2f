//! RUN: a container of `rt` over the layers of the stage.
//!
//! The container's config is written here and is not the image's: namespaces, mounts and the filter of the profile isolated,
//! but with the network of the host. Of the image come the program, its variables, its directory and its user.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use serde_json::{Value, json};

use super::mount_points::MountPoints;
use super::said::Said;
use crate::image_config::User;
use crate::{filter, profile};
use oci_content::interrupt::Interrupt;
use rt_spec::emulation::RootEmulation;
use rt_spec::hpc::HOST_FILES;
use rt_spec::{ANNOTATION_NAME, ANNOTATION_ROOT_EMULATION, ANNOTATION_USER, DEFAULT_CAPABILITIES};
use rt_sys::error::{Context, Result};
use rt_sys::{disk, err, fd, look, start};

/// No file of hosts is longer.
const LONGEST_HOSTS: usize = 4 << 20;

/// This machine's file of hosts with more lines, in the directory `memory`; none where there are none.
pub(super) fn hosts_file(more: &[(String, IpAddr)], memory: &Path) -> Result<Option<PathBuf>> {
    if more.is_empty() {
        return Ok(None);
    }
    // The first line that has a name counts.
    let mut text: String = more.iter().map(|(name, address)| format!("{address}\t{name}\n")).collect();
    if let Some(own) = network_files().find(|path| is_hosts(path)) {
        let own = fd::read_if_regular(Path::new(own), LONGEST_HOSTS)?;
        text.push_str(&String::from_utf8_lossy(&own.unwrap_or_default()));
    }
    private_file(memory, text.as_bytes(), 0o644).map(Some)
}

/// Files of the host that a program needs to reach other machines.
fn network_files() -> impl Iterator<Item = &'static str> {
    HOST_FILES.into_iter().filter(|path| is_hosts(path) || path.ends_with("/resolv.conf"))
}

fn is_hosts(path: &str) -> bool {
    path.ends_with("/hosts")
}

/// How often somebody who waits for a container looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// No error of `rt` is longer.
const LONGEST_ERROR: usize = 64 << 10;

/// What is run.
pub(super) struct Run<'a> {
    /// The program and its arguments.
    pub args: &'a [String],
    /// Its variables.
    pub env: Vec<String>,
    /// Where it starts.
    pub cwd: &'a str,
    /// As whom.
    pub user: &'a User,
    /// It has loopback alone.
    pub no_network: bool,
    /// The file of hosts that it has in place of this machine's.
    pub hosts: Option<&'a Path>,
    /// Mounts besides those that every container has.
    pub mounts: Vec<Value>,
    /// What becomes of the owners that root gives.
    pub emulation: RootEmulation,
    /// What stands before each line that it says.
    pub prefix: Option<&'a str>,
}

/// How a container ended.
pub(super) enum Ended {
    /// It has not begun, or was lost: what `rt` says of that.
    Failed(String),
    /// By itself.
    Code(i32),
    /// By a signal to `rt`.
    Signal,
}

/// Runs it in the root at `root`. `memory` is a directory that goes with the build.
pub(super) fn run(run: &Run, root: &Path, memory: &Path, interrupt: &Interrupt) -> Result<Ended> {
    let id = format!("build-{}", rt_sys::unique::name());
    let bundle = memory.join(&id);
    fs::create_dir(&bundle).context(|| "make a bundle")?;
    let config = config(run, root)?;
    fs::write(bundle.join("config.json"), config.to_string()).context(|| "write a bundle")?;
    let programs = start::companions("rt")?;
    let program = look::first_file(programs)?.ok_or_else(|| start::no_companion("rt"))?;
    let state = memory.join("state");
    let log = memory.join(format!("log-{id}"));
    let root = disk::open_root(root)?;
    let mount_points = MountPoints::missing(&root, &config["mounts"])?;
    let rt = || {
        let mut command = Command::new(&program);
        command.arg("--root").arg(&state);
        command
    };
    // It is progress: standard output is for the image's digest.
    let (mut said, writer) = Said::pipe(run.prefix)?;
    let also = writer.try_clone().context(|| "duplicate a descriptor")?;
    let mut child = rt()
        .arg("--log")
        .arg(&log)
        .args(["--log-format", "caller"])
        .args(["run", "--no-hooks", "--end-with", &std::process::id().to_string(), "--bundle"])
        .arg(&bundle)
        .arg(&id)
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(also)
        .spawn()
        .context(|| format!("execute {}", program.display()))?;
    let process = pidfd(&child)?;
    let mut asked = false;
    loop {
        let mut fds = vec![PollFd::new(&process, PollFlags::IN)];
        fds.extend(said.waits_for().as_ref().map(|pipe| PollFd::from_borrowed_fd(*pipe, PollFlags::IN)));
        rt_sys::process::poll(&mut fds, Some(LOOK))?;
        if !fds[0].revents().is_empty() {
            break;
        }
        if fds.get(1).is_some_and(|pipe| !pipe.revents().is_empty()) {
            said.pass_on(interrupt)?;
        }
        if interrupt.check().is_err() && !asked {
            asked = true;
            // It ends what runs in the container, whatever that does about signals.
            let _ = rt()
                .args(["delete", "--force", &id])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
    let status = child.wait().context(|| "wait for rt")?;
    said.end(interrupt)?;
    interrupt.check()?;
    if let Some(error) = fd::read_if_regular(&log, LONGEST_ERROR)? {
        return Ok(Ended::Failed(String::from_utf8_lossy(&error).trim_end().to_owned()));
    }
    mount_points.remove(&root)?;
    Ok(status.code().map_or(Ended::Signal, Ended::Code))
}

fn pidfd(child: &std::process::Child) -> Result<OwnedFd> {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).context(|| "open a pidfd")
}

fn config(run: &Run, root: &Path) -> Result<Value> {
    let user = run.user;
    let is_root = user.uid == 0;
    let mut linux = profile::isolated_linux();
    let mut mounts = profile::isolated_mounts();
    if !run.no_network {
        if let Some(namespaces) = linux["namespaces"].as_array_mut() {
            namespaces.retain(|namespace| namespace["type"] != "network");
        }
        for path in network_files() {
            match run.hosts.filter(|_| is_hosts(path)) {
                Some(hosts) => mounts.push(bind(hosts, path, true)),
                None if look::exists(path)? => mounts.push(bind(Path::new(path), path, true)),
                None => {}
            }
        }
    }
    mounts.extend(run.mounts.iter().cloned());
    let capabilities: &[&str] = if is_root { &DEFAULT_CAPABILITIES } else { &[] };
    linux["seccomp"] = section(is_root, capabilities)?;
    Ok(json!({
        "ociVersion": "1.2.0",
        "process": {
            "terminal": false,
            "user": { "uid": user.uid, "gid": user.gid, "additionalGids": user.groups, "umask": 0o022 },
            "args": run.args,
            "env": run.env,
            "cwd": run.cwd,
            // The filter that answers calls which one id cannot do takes it.
            "noNewPrivileges": true,
            "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
        },
        "root": { "path": root, "readonly": false },
        "hostname": "build",
        "mounts": mounts,
        "linux": linux,
        "annotations": {
            ANNOTATION_USER: if is_root { "root" } else { "config" },
            ANNOTATION_ROOT_EMULATION: run.emulation.as_str(),
            // The name keeps it from what rt's own configs are kept from.
            ANNOTATION_NAME: "build",
        },
    }))
}

/// The filter, which is read once: the list that it is made of is long.
fn section(is_root: bool, capabilities: &[&str]) -> Result<Value> {
    static OF_ROOT: OnceLock<Value> = OnceLock::new();
    static OF_USER: OnceLock<Value> = OnceLock::new();
    let known = if is_root { &OF_ROOT } else { &OF_USER };
    if let Some(section) = known.get() {
        return Ok(section.clone());
    }
    let section = filter::section(capabilities)?;
    Ok(known.get_or_init(|| section).clone())
}

/// A bind mount for a config.
pub(super) fn bind(source: &Path, destination: &str, readonly: bool) -> Value {
    let mode = if readonly { "ro" } else { "rw" };
    json!({ "destination": destination, "type": "bind", "source": source, "options": ["bind", mode, "nosuid", "nodev"] })
}

/// Writes a secret, or a script, to a file that only the build sees.
pub(super) fn private_file(dir: &Path, bytes: &[u8], mode: u32) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join(rt_sys::unique::name());
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let mut file = file.context(|| format!("make {}", path.display()))?;
    file.write_all(bytes).context(|| format!("write {}", path.display()))?;
    file.set_permissions(fs::Permissions::from_mode(mode))
        .map_err(|e| err!("set the mode of {}: {e}", path.display()))?;
    Ok(path)
}
