//! Namespaces that the command line chooses, over those of the config: `--net`, `--pid`, `--ipc`, `--hostname`. What the
//! config mounts for a namespace follows the choice.

use crate::container::{Choice, NamespaceChoices};
use oci_spec::runtime::{LinuxNamespaceBuilder, LinuxNamespaceType, Mount, MountBuilder};
use rt_spec::Spec;
use rt_sys::err;
use rt_sys::error::Result;
use std::path::Path;

/// Has the config make, or leave out, the namespaces that are chosen.
pub(super) fn choose(spec: &mut Spec, chosen: &NamespaceChoices) -> Result<()> {
    let mut set = |kind, choice| set_namespace(spec, kind, choice);
    if let Some(choice) = chosen.net {
        set(LinuxNamespaceType::Network, choice)?;
    }
    if let Some(choice) = chosen.pid {
        set(LinuxNamespaceType::Pid, choice)?;
    }
    if let Some(choice) = chosen.ipc {
        set(LinuxNamespaceType::Ipc, choice)?;
    }
    if chosen.hostname.is_some() {
        set(LinuxNamespaceType::Uts, Choice::Private)?;
        spec.set_hostname(chosen.hostname.clone());
    }
    match chosen.pid {
        // The host's /proc shows no process of another PID namespace.
        Some(Choice::Private) => {
            replace(
                spec,
                Path::new("/proc"),
                mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"])?,
            );
        }
        // A new procfs is refused there, and the host's is bound (plan/mod.rs, `note_substitutes`).
        Some(Choice::Host) | None => {}
    }
    let shm = Path::new("/dev/shm");
    match chosen.ipc {
        Some(Choice::Private) => {
            replace(spec, shm, mount("/dev/shm", "tmpfs", "shm", &["nosuid", "nodev", "mode=1777"])?);
        }
        Some(Choice::Host) => {
            replace(spec, shm, mount("/dev/shm", "bind", "/dev/shm", &["rbind", "nosuid", "nodev"])?);
        }
        None => {}
    }
    Ok(())
}

/// Makes the namespace a new one, or takes it out.
fn set_namespace(spec: &mut Spec, kind: LinuxNamespaceType, choice: Choice) -> Result<()> {
    let Some(linux) = spec.linux_mut() else { return Ok(()) };
    let mut namespaces = linux.namespaces().clone().unwrap_or_default();
    namespaces.retain(|namespace| namespace.typ() != kind);
    if choice == Choice::Private {
        namespaces.push(LinuxNamespaceBuilder::default().typ(kind).build().map_err(|e| err!("{e}"))?);
    }
    linux.set_namespaces(Some(namespaces));
    if kind == LinuxNamespaceType::Uts && choice == Choice::Host {
        spec.set_hostname(None);
        spec.set_domainname(None);
    }
    Ok(())
}

/// Puts `mount` in the place of what the config has at `destination`; where it has nothing there, behind what it has
/// above that.
fn replace(spec: &mut Spec, destination: &Path, mount: Mount) {
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    match mounts.iter().position(|m| m.destination() == destination) {
        Some(there) => mounts[there] = mount,
        None => {
            let above = mounts.iter().rposition(|m| destination.starts_with(m.destination()));
            mounts.insert(above.map_or(0, |n| n + 1), mount);
        }
    }
    spec.set_mounts(Some(mounts));
}

fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> Result<Mount> {
    let options: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
    let mount = MountBuilder::default().destination(destination).typ(kind).source(source).options(options);
    mount.build().map_err(|e| err!("mount {destination}: {e}"))
}
