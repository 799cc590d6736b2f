//! The system call filter of the isolated profile: the one that podman would take from this machine, or our own.
//!
//! podman's list is read where it is installed (containers-common(5), seccomp.json) and resolved for this machine and
//! the profile's capabilities, as the format's `includes` and `excludes` ask. Where it is not, the filter is made from
//! the calls that `rt` knows, less those that reach past a container.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::platform::Platform;
use rt_spec::KEY_CALLS;
use rt_sys::error::{Context, Result};

/// Where podman looks: the site's list, then the distribution's.
const LISTS: [&str; 2] = ["/etc/containers/seccomp.json", "/usr/share/containers/seccomp.json"];

/// Calls that change or look into the whole machine, or reach other programs across namespaces. Most need a capability that
/// the profile does not give; but whoever makes a user namespace inside has all capabilities in it.
const REFUSED: &[&str] = &[
    // Modules, other kernels, swap, quotas, accounting.
    "create_module",
    "delete_module",
    "finit_module",
    "get_kernel_syms",
    "init_module",
    "query_module",
    "kexec_file_load",
    "kexec_load",
    "acct",
    "quotactl",
    "quotactl_fd",
    "swapoff",
    "swapon",
    // The machine's clock and name, and its ports.
    "clock_settime",
    "clock_settime64",
    "settimeofday",
    "stime",
    "setdomainname",
    "sethostname",
    "ioperm",
    "iopl",
    "pciconfig_iobase",
    "pciconfig_read",
    "pciconfig_write",
    "s390_pci_mmio_read",
    "s390_pci_mmio_write",
    "rtas",
    "vhangup",
    // Keyrings are the user's, not the container's.
    "add_key",
    "keyctl",
    "request_key",
    // Tracing of the kernel, and memory of others.
    "bpf",
    "fanotify_init",
    "kcmp",
    "lookup_dcookie",
    "migrate_pages",
    "move_pages",
    "open_by_handle_at",
    "perf_event_open",
    "process_madvise",
    "uprobe",
    "uretprobe",
    // Few programs use these, and many exploits of the kernel do.
    "userfaultfd",
    "vm86",
    "vm86old",
    "vmsplice",
    // Obsolete calls.
    "_sysctl",
    "afs_syscall",
    "bdflush",
    "nfsservctl",
    "sysfs",
    "uselib",
    "ustat",
];

/// Calls that seem to be missing from the kernel (ENOSYS), so that programs use others: io_uring makes calls on behalf of
/// the program that no filter sees.
const ABSENT: &[&str] = &["io_uring_enter", "io_uring_register", "io_uring_setup"];

/// Execution domains that change nothing but how a program sees itself: Linux, 32 bits, the release 2.6, a question.
const PERSONALITIES: [u32; 5] = [0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];

const AF_NETLINK: u32 = libc::AF_NETLINK as u32;
const AF_PACKET: u32 = libc::AF_PACKET as u32;
const NETLINK_AUDIT: u32 = libc::NETLINK_AUDIT as u32;
const EPERM: u32 = libc::EPERM as u32;
const EINVAL: u32 = libc::EINVAL as u32;
const ENOSYS: u32 = libc::ENOSYS as u32;

/// The section `linux.seccomp` for a program that may have `capabilities`.
///
/// # Errors
/// A list of this machine that cannot be read.
pub(crate) fn section(capabilities: &[&str]) -> Result<Value> {
    for path in LISTS.map(Path::new) {
        match std::fs::read(path) {
            Ok(text) => return resolve(&text, capabilities).context(|| format!("read {}", path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e).context(|| format!("read {}", path.display())),
        }
    }
    Ok(without_a_list())
}

/// The file's format: an OCI section with conditions.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeccompList {
    default_action: String,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    arch_map: Vec<ArchMapping>,
    #[serde(default)]
    architectures: Vec<String>,
    #[serde(default)]
    syscalls: Vec<SyscallRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchMapping {
    architecture: String,
    sub_architectures: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SyscallRule {
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    args: Option<Value>,
    #[serde(default)]
    includes: Conditions,
    #[serde(default)]
    excludes: Conditions,
}

/// All of `includes` must hold, none of `excludes`. `minKernel` always holds: `rt` needs a newer kernel than any names.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Conditions {
    arches: Option<Vec<String>>,
    caps: Option<Vec<String>>,
    min_kernel: Option<String>,
}

impl Conditions {
    /// Each condition that is there, and whether it holds.
    fn held(&self, architecture: &str, capabilities: &[&str]) -> impl Iterator<Item = bool> {
        let arches = self.arches.as_ref().filter(|list| !list.is_empty());
        let caps = self.caps.as_ref().filter(|list| !list.is_empty());
        let kernel = self.min_kernel.as_ref().filter(|version| !version.is_empty());
        let arches = arches.map(|list| list.iter().any(|a| a == architecture));
        let caps = caps.map(|list| list.iter().all(|c| capabilities.contains(&c.as_str())));
        [arches, caps, kernel.map(|_| true)].into_iter().flatten()
    }
}

fn resolve(text: &[u8], capabilities: &[&str]) -> Result<Value> {
    let list: SeccompList = serde_json::from_slice(text).map_err(|e| rt_sys::err!("{e}"))?;
    let architecture = Platform::host().architecture;
    let native = native();
    let machine = list.arch_map.iter().find(|m| m.architecture == native);
    let architectures = match machine {
        Some(machine) => {
            let others = machine.sub_architectures.iter().flatten().cloned();
            std::iter::once(machine.architecture.clone()).chain(others).collect()
        }
        None => list.architectures,
    };
    let applies = |entry: &&SyscallRule| {
        entry.includes.held(&architecture, capabilities).all(|held| held)
            && !entry.excludes.held(&architecture, capabilities).any(|held| held)
    };
    let rules: Vec<Value> = list
        .syscalls
        .iter()
        .filter(applies)
        .map(|entry| {
            // podman's list allows them, and gives each container a session keyring; but a key is its user's by the uid alone.
            let names = entry.names.iter().filter(|name| !KEY_CALLS.contains(&name.as_str())).cloned();
            (names.collect::<Vec<_>>(), entry)
        })
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, entry)| rule(&names, &entry.action, entry.errno_ret, entry.args.clone()))
        .collect();
    let mut section = json!({ "defaultAction": list.default_action, "syscalls": rules });
    if let Some(errno) = list.default_errno_ret {
        section["defaultErrnoRet"] = json!(errno);
    }
    if !architectures.is_empty() {
        section["architectures"] = json!(architectures);
    }
    Ok(section)
}

/// The filter without a list of the machine's.
fn without_a_list() -> Value {
    const CONDITIONAL: [&str; 2] = ["personality", "socket"];
    let (refused, rest): (Vec<&str>, Vec<&str>) =
        oci_seccomp::names().filter(|name| !ABSENT.contains(name)).partition(|name| REFUSED.contains(name));
    let allowed: Vec<&str> = rest.into_iter().filter(|name| !CONDITIONAL.contains(name)).collect();
    let argument = |index: u32, value: u32, op: &str| json!({ "index": index, "value": value, "op": op });
    let socket = |action, errno, conditions| rule(&["socket"], action, errno, Some(json!(conditions)));
    let mut rules = vec![
        rule(&allowed, ALLOW, None, None),
        rule(&refused, ERRNO, Some(EPERM), None),
        // Families that come after packet sockets reach other machines past the network namespace (vsock), or are
        // parts of the kernel that few ask for.
        socket(ALLOW, None, vec![argument(0, AF_NETLINK, "SCMP_CMP_LT")]),
        socket(ALLOW, None, vec![argument(0, AF_PACKET, "SCMP_CMP_EQ")]),
        socket(
            ALLOW,
            None,
            vec![argument(0, AF_NETLINK, "SCMP_CMP_EQ"), argument(2, NETLINK_AUDIT, "SCMP_CMP_NE")],
        ),
        socket(
            ERRNO,
            Some(EINVAL),
            vec![argument(0, AF_NETLINK, "SCMP_CMP_EQ"), argument(2, NETLINK_AUDIT, "SCMP_CMP_EQ")],
        ),
    ];
    rules.extend(PERSONALITIES.map(|domain| {
        rule(&["personality"], ALLOW, None, Some(json!([argument(0, domain, "SCMP_CMP_EQ")])))
    }));
    let machines: Vec<_> = oci_seccomp::native_architectures().collect();
    json!({
        "defaultAction": ERRNO, "defaultErrnoRet": ENOSYS, "architectures": machines, "syscalls": rules,
    })
}

/// This machine as a section names it.
fn native() -> String {
    oci_seccomp::native_architectures().next().map(|arch| arch.to_string()).unwrap_or_default()
}

const ALLOW: &str = "SCMP_ACT_ALLOW";
const ERRNO: &str = "SCMP_ACT_ERRNO";

fn rule<S: AsRef<str>>(names: &[S], action: &str, errno: Option<u32>, args: Option<Value>) -> Value {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let mut rule = json!({ "names": names, "action": action });
    if let Some(errno) = errno {
        rule["errnoRet"] = json!(errno);
    }
    if let Some(args) = args.filter(|args| args.as_array().is_some_and(|args| !args.is_empty())) {
        rule["args"] = args;
    }
    rule
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_spec::DEFAULT_CAPABILITIES;

    fn compiles(section: &Value) {
        let section: oci_spec::runtime::LinuxSeccomp = serde_json::from_value(section.clone()).unwrap();
        assert_eq!(oci_seccomp::compile(&section).unwrap().unknown, [""; 0]);
    }

    fn names(section: &Value, action: &str) -> Vec<String> {
        let rules = section["syscalls"].as_array().unwrap().iter().filter(|rule| rule["action"] == action);
        rules.flat_map(|rule| serde_json::from_value::<Vec<String>>(rule["names"].clone()).unwrap()).collect()
    }

    #[test]
    fn every_name_is_known_and_answered_once() {
        let known: Vec<&str> = oci_seccomp::names().collect();
        for name in REFUSED.iter().chain(ABSENT) {
            assert!(known.contains(name), "{name}");
        }
        let section = without_a_list();
        compiles(&section);
        let (allowed, refused) = (names(&section, ALLOW), names(&section, ERRNO));
        for name in known {
            let times = usize::from(allowed.iter().any(|n| n == name)) + usize::from(REFUSED.contains(&name));
            assert_eq!(times, usize::from(!ABSENT.contains(&name)), "{name}");
        }
        assert!(allowed.iter().any(|n| n == "execve") && refused.iter().any(|n| n == "bpf"));
    }

    #[test]
    fn conditions_are_resolved() {
        let arch = Platform::host().architecture;
        let text = json!({
            "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "defaultErrno": "ENOSYS",
            "archMap": [{ "architecture": native(), "subArchitectures": ["SCMP_ARCH_X86"] }],
            "syscalls": [
                { "names": ["read"], "action": ALLOW, "args": [], "includes": {}, "excludes": {} },
                { "names": ["write"], "action": ALLOW, "args": null, "includes": { "arches": [arch] } },
                { "names": ["brk"], "action": ALLOW, "includes": { "arches": ["pdp11"] } },
                { "names": ["chroot"], "action": ALLOW, "includes": { "caps": ["CAP_SYS_CHROOT"] } },
                { "names": ["chroot"], "action": ERRNO, "errnoRet": 1, "excludes": { "caps": ["CAP_SYS_CHROOT"] } },
                { "names": ["bpf"], "action": ALLOW, "includes": { "caps": ["CAP_SYS_ADMIN"] } },
                { "names": ["bpf"], "action": ERRNO, "errnoRet": 1, "excludes": { "caps": ["CAP_SYS_ADMIN"] } },
                { "names": ["ptrace"], "action": ALLOW, "includes": { "minKernel": "4.8" } },
            ],
        });
        let section = resolve(text.to_string().as_bytes(), &DEFAULT_CAPABILITIES).unwrap();
        compiles(&section);
        assert_eq!(names(&section, ALLOW), ["read", "write", "chroot", "ptrace"]);
        assert_eq!(names(&section, ERRNO), ["bpf"]);
        assert_eq!(section["architectures"], json!([native(), "SCMP_ARCH_X86"]));
        assert!(resolve(b"{}", &[]).is_err());
    }
}
