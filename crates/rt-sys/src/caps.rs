//! Capabilities (capabilities(7)): sets as bit masks, and how a process gets them.

use crate::error::{Context, Result};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// Names by number (linux/capability.h), without `CAP_`.
pub const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// A set of capabilities, bit n for capability number n.
pub type Mask = u64;

/// CAP_SETGID and CAP_SETUID (capabilities(7)).
pub const SET_IDS: Mask = 1 << 6 | 1 << 7;

/// The five sets of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sets {
    /// What exec can ever gain.
    pub bounding: Mask,
    /// In force.
    pub effective: Mask,
    /// Passed through an exec of a file with inheritable bits.
    pub inheritable: Mask,
    /// The limit of `effective`.
    pub permitted: Mask,
    /// Kept through an exec of an ordinary file.
    pub ambient: Mask,
}

impl Sets {
    /// Every capability that this kernel knows, in the sets that root has by default.
    pub fn all() -> Sets {
        let all = (1 << NAMES.len()) - 1;
        Sets { bounding: all, effective: all, inheritable: 0, permitted: all, ambient: 0 }
    }
}

/// The mask of one name, `CAP_` in front or not, in any case.
pub fn by_name(name: &str) -> Option<Mask> {
    let bare = match name.get(..4) {
        Some(prefix) if prefix.eq_ignore_ascii_case("CAP_") => &name[4..],
        _ => name,
    };
    NAMES.iter().position(|n| n.eq_ignore_ascii_case(bare)).map(|n| 1 << n)
}

/// The names of a mask's capabilities, with `CAP_`.
pub fn names(mask: Mask) -> Vec<String> {
    let all = NAMES.iter().enumerate();
    all.filter(|(number, _)| mask & (1 << number) != 0).map(|(_, name)| format!("CAP_{name}")).collect()
}

/// Removes what is not in `keep` from the bounding set.
pub fn limit_bounding(keep: Mask) -> Result<()> {
    for number in 0..64u32 {
        if keep & (1 << number) != 0 {
            continue;
        }
        let cap = CapabilitySet::from_bits_retain(1 << number);
        match thread::remove_capability_from_bounding_set(cap) {
            Ok(()) => {}
            // The first number that this kernel does not know.
            Err(rustix::io::Errno::INVAL) => break,
            Err(e) => return Err(e).context(|| format!("drop capability {number} from the bounding set")),
        }
    }
    Ok(())
}

fn set_exactly(sets: &Sets) -> rustix::io::Result<()> {
    let bits = CapabilitySet::from_bits_retain;
    let new = CapabilitySets {
        effective: bits(sets.effective & sets.permitted),
        permitted: bits(sets.permitted),
        inheritable: bits(sets.inheritable),
    };
    thread::set_capabilities(None, new)
}

/// Gives up all capabilities, as a user does who executes a program.
pub fn give_up() -> Result<()> {
    hold(0)
}

/// Has no capabilities but `mask`, which are in force.
pub fn hold(mask: Mask) -> Result<()> {
    set_exactly(&Sets { effective: mask, permitted: mask, ..Sets::default() })
        .context(|| "give up capabilities")
}

/// What this process has now.
pub fn current() -> Result<CapabilitySets> {
    Ok(thread::capabilities(None)?)
}

/// True where this process has CAP_SYS_ADMIN in its user namespace: it may make namespaces and mount.
pub fn may_administer() -> Result<bool> {
    Ok(current()?.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Takes all capabilities out of force until [`raise`]: what this process may do now is what its ids alone allow.
pub fn lower() -> Result<()> {
    let none = CapabilitySets { effective: CapabilitySet::empty(), ..current()? };
    thread::set_capabilities(None, none).context(|| "lower capabilities")
}

/// Puts all permitted capabilities in force. A change of the effective uid from root to another empties the effective set
/// (capabilities(7)), also where PR_SET_KEEPCAPS keeps the permitted one.
pub fn raise() -> Result<()> {
    let now = current()?;
    let all = CapabilitySets { effective: now.permitted, ..now };
    thread::set_capabilities(None, all).context(|| "raise capabilities")
}

/// Sets effective, permitted, inheritable, then ambient, each limited to what the process may have.
///
/// Returns what was asked for and could not be given.
pub fn set(sets: &Sets) -> Result<Mask> {
    // In a user namespace of its own a process has every capability, so that this one call is enough.
    if sets.ambient & sets.inheritable == 0 && set_exactly(sets).is_ok() {
        return Ok(0);
    }
    let now = current()?.permitted.bits();
    let permitted = sets.permitted & now;
    let effective = sets.effective & permitted;
    let inheritable = sets.inheritable & now;
    let new = CapabilitySets {
        effective: CapabilitySet::from_bits_retain(effective),
        permitted: CapabilitySet::from_bits_retain(permitted),
        inheritable: CapabilitySet::from_bits_retain(inheritable),
    };
    thread::set_capabilities(None, new).context(|| "set capabilities")?;
    let ambient = sets.ambient & permitted & inheritable;
    for number in (0..64).filter(|n| ambient & (1 << n) != 0) {
        let cap = CapabilitySet::from_bits_retain(1 << number);
        thread::configure_capability_in_ambient_set(cap, true)
            .context(|| format!("add capability {number} to the ambient set"))?;
    }
    Ok((sets.permitted & !permitted) | (sets.ambient & !ambient))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_every_spelling() {
        assert_eq!(by_name("CAP_CHOWN"), Some(1));
        assert_eq!(by_name("sys_admin"), Some(1 << 21));
        assert_eq!(by_name("cap_checkpoint_restore"), Some(1 << 40));
        assert_eq!(by_name("CAP_NONE_SUCH"), None);
        assert_eq!(by_name("CAP"), None);
    }
}
