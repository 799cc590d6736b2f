//! `rt features`: what this runtime can do, as features.md of the runtime-spec has it. It is fixed
//! when rt is built; what the kernel lacks is another matter.

use super::Call;
use rt_spec::{ANNOTATION_USER, OCI_VERSION, mounts};
use rt_sys::error::Result;
use serde_json::{Value, json};

/// Prints the features.
pub(super) fn run(_: &Call) -> Result<u8> {
    super::print(format!("{:#}\n", features()))
}

fn features() -> Value {
    let mut annotations = json!({ "rt.version": rt_cli::VERSION, "rt.checkpoint.enabled": "true", "rt.checkpoint.gpus": "nvidia" });
    if let Some(commit) = rt_cli::COMMIT {
        annotations["rt.commit"] = json!(commit);
    }
    json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": OCI_VERSION,
        "hooks": words("prestart createRuntime createContainer startContainer poststart poststop"),
        "mountOptions": mounts::known(),
        "linux": {
            "namespaces": words("cgroup ipc mount network pid time user uts"),
            "capabilities": words(CAPABILITIES),
            // Accepted in a config and not applied: a job stays in the cgroup that the scheduler
            // put it in.
            "cgroup": { "v1": false, "v2": false, "systemd": false, "systemdUser": false, "rdma": false },
            "seccomp": {
                "enabled": true,
                "actions": words(SECCOMP_ACTIONS),
                "operators": words(SECCOMP_OPERATORS),
                "archs": words(SECCOMP_ARCHS),
                "knownFlags": words(SECCOMP_FLAGS),
                "supportedFlags": words(SECCOMP_FLAGS),
            },
            "apparmor": { "enabled": true },
            "selinux": { "enabled": true },
            "intelRdt": { "enabled": false },
            "memoryPolicy": {
                "modes": words(MEMORY_POLICY_MODES),
                "flags": words("MPOL_F_NUMA_BALANCING MPOL_F_RELATIVE_NODES MPOL_F_STATIC_NODES"),
            },
            "mountExtensions": { "idmap": { "enabled": true } },
            "netDevices": { "enabled": true },
        },
        "annotations": annotations,
        // Says which user the process is.
        "potentiallyUnsafeConfigAnnotations": [ANNOTATION_USER],
    })
}

fn words(list: &str) -> Vec<&str> {
    list.split(' ').collect()
}

/// capabilities(7), by number.
const CAPABILITIES: &str = "\
    CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_KILL CAP_SETGID CAP_SETUID \
    CAP_SETPCAP CAP_LINUX_IMMUTABLE CAP_NET_BIND_SERVICE CAP_NET_BROADCAST CAP_NET_ADMIN CAP_NET_RAW \
    CAP_IPC_LOCK CAP_IPC_OWNER CAP_SYS_MODULE CAP_SYS_RAWIO CAP_SYS_CHROOT CAP_SYS_PTRACE CAP_SYS_PACCT \
    CAP_SYS_ADMIN CAP_SYS_BOOT CAP_SYS_NICE CAP_SYS_RESOURCE CAP_SYS_TIME CAP_SYS_TTY_CONFIG CAP_MKNOD \
    CAP_LEASE CAP_AUDIT_WRITE CAP_AUDIT_CONTROL CAP_SETFCAP CAP_MAC_OVERRIDE CAP_MAC_ADMIN CAP_SYSLOG \
    CAP_WAKE_ALARM CAP_BLOCK_SUSPEND CAP_AUDIT_READ CAP_PERFMON CAP_BPF CAP_CHECKPOINT_RESTORE";

const SECCOMP_ACTIONS: &str = "\
    SCMP_ACT_ALLOW SCMP_ACT_ERRNO SCMP_ACT_KILL SCMP_ACT_KILL_PROCESS SCMP_ACT_KILL_THREAD SCMP_ACT_LOG \
    SCMP_ACT_NOTIFY SCMP_ACT_TRACE SCMP_ACT_TRAP";

const SECCOMP_OPERATORS: &str = "\
    SCMP_CMP_EQ SCMP_CMP_GE SCMP_CMP_GT SCMP_CMP_LE SCMP_CMP_LT SCMP_CMP_MASKED_EQ SCMP_CMP_NE";

const MEMORY_POLICY_MODES: &str = "\
    MPOL_BIND MPOL_DEFAULT MPOL_INTERLEAVE MPOL_LOCAL MPOL_PREFERRED MPOL_PREFERRED_MANY \
    MPOL_WEIGHTED_INTERLEAVE";

/// The architectures that the seccomp compiler knows by name.
const SECCOMP_ARCHS: &str = "\
    SCMP_ARCH_AARCH64 SCMP_ARCH_ARM SCMP_ARCH_LOONGARCH64 SCMP_ARCH_M68K SCMP_ARCH_MIPS SCMP_ARCH_MIPS64 \
    SCMP_ARCH_MIPS64N32 SCMP_ARCH_MIPSEL SCMP_ARCH_MIPSEL64 SCMP_ARCH_MIPSEL64N32 SCMP_ARCH_PARISC \
    SCMP_ARCH_PARISC64 SCMP_ARCH_PPC SCMP_ARCH_PPC64 SCMP_ARCH_PPC64LE SCMP_ARCH_RISCV64 SCMP_ARCH_S390 \
    SCMP_ARCH_S390X SCMP_ARCH_SH SCMP_ARCH_SHEB SCMP_ARCH_X32 SCMP_ARCH_X86 SCMP_ARCH_X86_64";

const SECCOMP_FLAGS: &str = "\
    SECCOMP_FILTER_FLAG_LOG SECCOMP_FILTER_FLAG_SPEC_ALLOW SECCOMP_FILTER_FLAG_TSYNC \
    SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV";

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::Features;

    #[test]
    fn the_form_is_the_specs() {
        let features: Features = serde_json::from_value(features()).unwrap();
        // Nothing is lost on the way through the spec's types, so every key is one of theirs.
        assert_eq!(serde_json::to_value(&features).unwrap(), super::features());
        // What CRI-O, containerd, docker and nerdctl look for.
        let linux = features.linux().as_ref().unwrap();
        assert!(features.mount_options().as_ref().unwrap().iter().any(|option| option == "rro"));
        assert_eq!(
            linux.mount_extensions().as_ref().unwrap().idmap().as_ref().unwrap().enabled(),
            &Some(true)
        );
        assert_eq!(features.oci_version_max(), OCI_VERSION);
    }

    #[test]
    fn lists_are_sorted_and_without_doubles() {
        for list in [SECCOMP_ACTIONS, SECCOMP_OPERATORS, SECCOMP_ARCHS, SECCOMP_FLAGS, MEMORY_POLICY_MODES] {
            assert!(words(list).is_sorted_by(|a, b| a < b), "{list:?}");
        }
        assert_eq!(words(CAPABILITIES).len(), 41);
    }
}
