//! The seccomp compiler: an OCI `linux.seccomp` section becomes a classic BPF program.
//!
//! Pure: no system call, no file. Follows the runtime-spec's config-linux.md "Seccomp" and
//! seccomp(2); the meaning of rules is libseccomp's.

use crate::error::Result;
use oci_spec::runtime::LinuxSeccomp;

/// One classic BPF instruction, laid out as the kernel's `struct sock_filter` (linux/filter.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Relative jump when the test holds.
    pub jt: u8,
    /// Relative jump when it does not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// A compiled filter, ready for seccomp(2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The BPF program; never empty and never above BPF_MAXINSNS (4096).
    pub instructions: Vec<Instruction>,
    /// `SECCOMP_FILTER_FLAG_*` bits the section asks for.
    pub flags: u32,
    /// True where some rule answers SCMP_ACT_NOTIFY: the loader must ask for a listener.
    pub notifies: bool,
    /// What the section names and no known kernel has (syscalls, in the order given). Not an error.
    pub unknown: Vec<String>,
}

/// Compiles `section` for the machine that runs this program.
pub fn compile(section: &LinuxSeccomp) -> Result<Program> {
    let _ = section;
    crate::bail!("seccomp: not built yet")
}
