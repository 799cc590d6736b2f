//! Which call asks for what. Pure.

use rt_sys::notify::Call;
use rt_sys::seccomp::NATIVE;

/// Calls of x32 are those of x86-64 with this bit.
const X32_BIT: i32 = 0x4000_0000;

/// The numbers by which programs of 32 bits ask for owners, on x86 and on Arm: stat, lstat, fstat, and statx of each.
const ASKING_ON_32_BITS: [i32; 5] = [106, 107, 108, 383, 397];

/// A file as a call names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    /// The directory from which a relative path starts, or the file itself.
    pub at: i32,
    /// The address of the path; none where the call has only a descriptor.
    pub path: Option<u64>,
    /// A link at the end is followed.
    pub follow: bool,
    /// An empty path stands for the descriptor (AT_EMPTY_PATH).
    pub empty: bool,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// An owner and a group, u32::MAX for the one that stays.
    Chown(Named, u32, u32),
    /// A node of this mode, with its type, and this number.
    Mknod(Named, u32, u64),
    /// A `struct stat` at an address.
    Stat(Named, u64),
    /// A `struct statx` at an address, with what a mask asks for.
    Statx(Named, u64, u32),
    /// Something that is the kernel's to do.
    Other,
    /// What a program of another architecture asks for that only root can do: it gets success, and nothing is recorded.
    Foreign,
}

/// Reads a call that the filter has sent.
pub(super) fn operation(call: &Call) -> Operation {
    let number = if NATIVE == 0xc000_003e { call.number & !X32_BIT } else { call.number };
    if call.arch != NATIVE {
        return if ASKING_ON_32_BITS.contains(&call.number) { Operation::Other } else { Operation::Foreign };
    }
    let [a, b, c, d, e, _] = call.args;
    // The kernel takes the lower 32 bits of descriptors, ids, flags and modes.
    let flags = |flags: u64| {
        let flags = flags as i32;
        (flags & libc::AT_SYMLINK_NOFOLLOW == 0, flags & libc::AT_EMPTY_PATH != 0)
    };
    let at = |dir: u64, path: u64, (follow, empty): (bool, bool)| Named {
        at: dir as i32,
        path: Some(path),
        follow,
        empty,
    };
    #[cfg(target_arch = "x86_64")]
    let here = libc::AT_FDCWD as u64;
    let file = Named { at: a as i32, path: None, follow: true, empty: true };
    match i64::from(number) {
        libc::SYS_fchownat => Operation::Chown(at(a, b, flags(e)), c as u32, d as u32),
        libc::SYS_fchown => Operation::Chown(file, b as u32, c as u32),
        libc::SYS_mknodat => Operation::Mknod(at(a, b, (false, false)), c as u32, d),
        libc::SYS_newfstatat => Operation::Stat(at(a, b, flags(d)), c),
        libc::SYS_fstat => Operation::Stat(file, b),
        libc::SYS_statx => Operation::Statx(at(a, b, flags(c)), e, d as u32),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown => Operation::Chown(at(here, a, (true, false)), b as u32, c as u32),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown => Operation::Chown(at(here, a, (false, false)), b as u32, c as u32),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mknod => Operation::Mknod(at(here, a, (false, false)), b as u32, c),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat => Operation::Stat(at(here, a, (true, false)), b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lstat => Operation::Stat(at(here, a, (false, false)), b),
        _ => Operation::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: i64, args: [u64; 6]) -> Call {
        Call { id: 1, thread: 1, number: number as i32, arch: NATIVE, args }
    }

    #[test]
    fn calls_are_read() {
        let nofollow = libc::AT_SYMLINK_NOFOLLOW as u64;
        let named = Named { at: 5, path: Some(7), follow: false, empty: false };
        let chown = call(libc::SYS_fchownat, [5, 7, 33, u64::from(u32::MAX), nofollow, 0]);
        assert_eq!(operation(&chown), Operation::Chown(named, 33, u32::MAX));
        let file = Named { at: 5, path: None, follow: true, empty: true };
        assert_eq!(operation(&call(libc::SYS_fstat, [5, 9, 0, 0, 0, 0])), Operation::Stat(file, 9));
        let empty = Named { follow: true, empty: true, ..named };
        let statx = call(libc::SYS_statx, [5, 7, libc::AT_EMPTY_PATH as u64, 0, 9, 0]);
        assert_eq!(operation(&statx), Operation::Statx(empty, 9, 0));
        assert_eq!(operation(&call(libc::SYS_read, [0; 6])), Operation::Other);
    }

    #[test]
    fn programs_of_32_bits_are_answered_without_a_record() {
        for (number, want) in [(212, Operation::Foreign), (106, Operation::Other), (383, Operation::Other)] {
            let call = Call { arch: 0x4000_0003, ..call(number, [0; 6]) };
            assert_eq!(operation(&call), want, "{number}");
        }
    }
}
