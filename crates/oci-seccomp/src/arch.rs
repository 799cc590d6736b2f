//! Architectures, and what a call's name is on each.

use super::tables::{self, ARM_PRIVATE, COUNT, MULTIPLEXED, NAMES, NONE};
use oci_spec::runtime::Arch;

/// One architecture as seccomp(2) sees it.
pub(super) struct Machine {
    /// The name in the config.
    pub(super) arch: Arch,
    /// `seccomp_data.arch` of its calls: an AUDIT_ARCH_* value (linux/audit.h).
    pub(super) audit: u32,
    /// What is added to a number of the table.
    pub(super) base: u32,
    /// Arguments have 64 bits; else libseccomp compares only the lower 32.
    pub(super) wide: bool,
    /// The architecture has socketcall(2) and ipc(2), through which old programs make socket and IPC calls.
    pub(super) multiplexed: bool,
    family: Family,
    table: &'static [u16; COUNT],
}

/// Architectures that one kernel can run together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    X86,
    Arm,
    Riscv,
    Loongarch,
    Power,
    PowerLe,
    S390,
    Mips,
    MipsLe,
    Parisc,
    M68k,
    Sh,
    ShBe,
}

/// The bit that tells a call of x32 from one of x86_64: both have one AUDIT_ARCH value.
pub(super) const X32_BIT: u32 = 0x4000_0000;

/// The architecture that this program was built for.
pub(super) const NATIVE: Arch = if cfg!(target_arch = "x86_64") {
    if cfg!(target_pointer_width = "32") { Arch::ScmpArchX32 } else { Arch::ScmpArchX86_64 }
} else if cfg!(target_arch = "x86") {
    Arch::ScmpArchX86
} else if cfg!(target_arch = "aarch64") {
    Arch::ScmpArchAarch64
} else if cfg!(target_arch = "arm") {
    Arch::ScmpArchArm
} else if cfg!(target_arch = "riscv64") {
    Arch::ScmpArchRiscv64
} else if cfg!(target_arch = "loongarch64") {
    Arch::ScmpArchLoongarch64
} else if cfg!(target_arch = "powerpc64") {
    if cfg!(target_endian = "little") { Arch::ScmpArchPpc64le } else { Arch::ScmpArchPpc64 }
} else if cfg!(target_arch = "powerpc") {
    Arch::ScmpArchPpc
} else if cfg!(target_arch = "s390x") {
    Arch::ScmpArchS390x
} else if cfg!(target_arch = "mips64") {
    if cfg!(target_endian = "little") { Arch::ScmpArchMipsel64 } else { Arch::ScmpArchMips64 }
} else if cfg!(target_arch = "mips") {
    if cfg!(target_endian = "little") { Arch::ScmpArchMipsel } else { Arch::ScmpArchMips }
} else if cfg!(target_arch = "m68k") {
    Arch::ScmpArchM68k
} else {
    panic!("seccomp does not know this architecture: add it to ARCHES in tables.py and to MACHINES")
};

impl Machine {
    /// The machine of an architecture; `NATIVE` stands for `native`.
    pub(super) fn of(arch: Arch, native: Arch) -> &'static Machine {
        let arch = if arch == Arch::ScmpArchNative { native } else { arch };
        MACHINES.iter().find(|m| m.arch == arch).expect("every architecture but NATIVE has its machine")
    }

    /// Whether one kernel can run programs of both.
    pub(super) fn runs_beside(&self, other: &Machine) -> bool {
        self.family == other.family
    }

    /// Whether the lower half of an argument comes first in `seccomp_data`.
    pub(super) fn little_endian(&self) -> bool {
        self.arch as u32 & 0x4000_0000 != 0
    }

    /// ENOSYS of errno(3).
    pub(super) fn enosys(&self) -> u32 {
        match self.family {
            Family::Mips | Family::MipsLe => 89,
            Family::Parisc => 251,
            _ => 38,
        }
    }

    /// The slot of a call in a table of [`SLOTS`]; slots keep the order of the numbers.
    pub(super) fn slot(&self, name: Name) -> Option<usize> {
        match self.table[name.0 as usize] {
            NONE => None,
            number if number >= ARM_PRIVATE => Some(PRIVATE_SLOT + (number - ARM_PRIVATE) as usize),
            number => Some(number as usize),
        }
    }

    /// The number of the call in a slot.
    pub(super) fn number(&self, slot: usize) -> u32 {
        match slot.checked_sub(PRIVATE_SLOT) {
            Some(private) => 0xf0000 + private as u32,
            None => self.base + slot as u32,
        }
    }
}

/// Slots for every number that any table has.
pub(super) const SLOTS: usize = 640;
/// Where ARM's private calls have their slots: the one before is never used.
const PRIVATE_SLOT: usize = SLOTS - 16;
const _: () = {
    let all = [
        &tables::X86_64,
        &tables::X86,
        &tables::X32,
        &tables::AARCH64,
        &tables::ARM,
        &tables::RISCV64,
        &tables::LOONGARCH64,
        &tables::PPC64,
        &tables::PPC,
        &tables::S390X,
        &tables::S390,
        &tables::MIPS,
        &tables::MIPS64,
        &tables::MIPS64N32,
        &tables::PARISC,
        &tables::PARISC64,
        &tables::M68K,
        &tables::SH,
    ];
    let mut table = 0;
    while table < all.len() {
        let mut name = 0;
        while name < COUNT {
            let number = all[table][name];
            assert!(number < PRIVATE_SLOT as u16 - 1 || number == NONE || number >= ARM_PRIVATE);
            name += 1;
        }
        table += 1;
    }
};

/// A call that some kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u16);

impl Name {
    /// Finds a call by name, as the kernel's headers and libseccomp spell it.
    pub(super) fn find(name: &str) -> Option<Name> {
        let mut at = hash(name.as_bytes()) as usize % INDEX_SIZE;
        while INDEX[at] != NONE {
            let found = Name(INDEX[at]);
            if same(found.text().as_bytes(), name.as_bytes()) {
                return Some(found);
            }
            at = (at + 1) % INDEX_SIZE;
        }
        None
    }

    /// The name itself.
    pub(super) fn text(self) -> &'static str {
        let at = self.0 as usize;
        &NAMES[STARTS[at] as usize..STARTS[at + 1] as usize - 1]
    }

    /// 0, or its socketcall(2) selector, or 100 more than its ipc(2) selector.
    pub(super) fn multiplexed(self) -> u8 {
        MULTIPLEXED[self.0 as usize]
    }

    /// Every name there is.
    #[cfg(test)]
    pub(super) fn all() -> impl Iterator<Item = Name> {
        (0..COUNT as u16).map(Name)
    }
}

const INDEX_SIZE: usize = 1024;

/// Where each name starts in `NAMES`, worked out when this program is built.
static STARTS: [u16; COUNT + 1] = STARTS_VALUE;
const STARTS_VALUE: [u16; COUNT + 1] = {
    let mut starts = [0; COUNT + 1];
    let (mut name, mut at) = (0, 0);
    while at < NAMES.len() {
        if NAMES.as_bytes()[at] == b' ' {
            name += 1;
            starts[name] = at as u16 + 1;
        }
        at += 1;
    }
    assert!(name == COUNT);
    starts
};

/// A hash table from names to their places, likewise.
static INDEX: [u16; INDEX_SIZE] = {
    let mut index = [NONE; INDEX_SIZE];
    let mut name = 0;
    while name < COUNT {
        let (_, text) = NAMES.as_bytes().split_at(STARTS_VALUE[name] as usize);
        let (text, _) = text.split_at((STARTS_VALUE[name + 1] - STARTS_VALUE[name]) as usize - 1);
        let mut at = hash(text) as usize % INDEX_SIZE;
        while index[at] != NONE {
            at = (at + 1) % INDEX_SIZE;
        }
        index[at] = name as u16;
        name += 1;
    }
    index
};

const fn hash(text: &[u8]) -> u64 {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = text.len() as u64;
    let mut rest = text;
    while let Some((word, more)) = rest.split_first_chunk::<8>() {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(SPREAD).rotate_left(29);
        rest = more;
    }
    // What is left of a long name overlaps what went before.
    let last = match text.last_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let mut last = 0;
            while let Some((byte, more)) = rest.split_first() {
                last = last << 8 | *byte as u64;
                rest = more;
            }
            last
        }
    };
    (hash ^ last).wrapping_mul(SPREAD) >> 48
}

/// Whether two names are the same; names are short, and musl's memcmp goes by bytes.
fn same(mut one: &[u8], mut two: &[u8]) -> bool {
    if one.len() != two.len() {
        return false;
    }
    if let (Some(one), Some(two)) = (one.last_chunk::<8>(), two.last_chunk::<8>())
        && one != two
    {
        return false;
    }
    while let (Some((a, rest_one)), Some((b, rest_two))) =
        (one.split_first_chunk::<8>(), two.split_first_chunk::<8>())
    {
        if a != b {
            return false;
        }
        (one, two) = (rest_one, rest_two);
    }
    one.iter().zip(two).all(|(a, b)| a == b)
}

const fn machine(arch: Arch, family: Family, table: &'static [u16; COUNT]) -> Machine {
    let audit = arch as u32;
    Machine { arch, audit, base: 0, wide: audit & 0x8000_0000 != 0, multiplexed: false, family, table }
}

const fn multiplexed(machine: Machine) -> Machine {
    Machine { multiplexed: true, ..machine }
}

/// Every architecture that a config can name.
pub(super) static MACHINES: [Machine; 23] = {
    use Arch::*;
    use Family::*;
    [
        machine(ScmpArchX86_64, X86, &tables::X86_64),
        multiplexed(machine(ScmpArchX86, X86, &tables::X86)),
        Machine { audit: ScmpArchX86_64 as u32, base: X32_BIT, ..machine(ScmpArchX32, X86, &tables::X32) },
        machine(ScmpArchAarch64, Arm, &tables::AARCH64),
        machine(ScmpArchArm, Arm, &tables::ARM),
        machine(ScmpArchRiscv64, Riscv, &tables::RISCV64),
        machine(ScmpArchLoongarch64, Loongarch, &tables::LOONGARCH64),
        multiplexed(machine(ScmpArchPpc64le, PowerLe, &tables::PPC64)),
        multiplexed(machine(ScmpArchPpc64, Power, &tables::PPC64)),
        multiplexed(machine(ScmpArchPpc, Power, &tables::PPC)),
        multiplexed(machine(ScmpArchS390x, S390, &tables::S390X)),
        multiplexed(machine(ScmpArchS390, S390, &tables::S390)),
        multiplexed(Machine { base: 4000, ..machine(ScmpArchMips, Mips, &tables::MIPS) }),
        Machine { base: 5000, ..machine(ScmpArchMips64, Mips, &tables::MIPS64) },
        Machine { base: 6000, wide: false, ..machine(ScmpArchMips64n32, Mips, &tables::MIPS64N32) },
        multiplexed(Machine { base: 4000, ..machine(ScmpArchMipsel, MipsLe, &tables::MIPS) }),
        Machine { base: 5000, ..machine(ScmpArchMipsel64, MipsLe, &tables::MIPS64) },
        Machine { base: 6000, wide: false, ..machine(ScmpArchMipsel64n32, MipsLe, &tables::MIPS64N32) },
        machine(ScmpArchParisc, Parisc, &tables::PARISC),
        machine(ScmpArchParisc64, Parisc, &tables::PARISC64),
        multiplexed(machine(ScmpArchM68k, M68k, &tables::M68K)),
        multiplexed(machine(ScmpArchSh, Sh, &tables::SH)),
        multiplexed(machine(ScmpArchSheb, ShBe, &tables::SH)),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_others_are_not() {
        let names: Vec<_> = Name::all().map(Name::text).collect();
        assert!(names.is_sorted());
        for name in names {
            assert_eq!(Name::find(name).map(Name::text), Some(name));
            for wrong in [&name[1..], &name[..name.len() - 1], &format!("{name} "), &format!("x{name}")] {
                assert_eq!(Name::find(wrong).map(Name::text).filter(|found| *found != wrong), None);
            }
        }
        assert_eq!(Name::find(""), None);
        assert_eq!(Name::find("no_such_call_with_a_long_name"), None);
    }

    #[test]
    fn numbers_keep_the_order_of_slots() {
        for machine in &MACHINES {
            for name in Name::all() {
                if let Some(slot) = machine.slot(name) {
                    assert!(machine.number(slot) >= machine.base);
                    assert!(slot == 0 || machine.number(slot - 1) < machine.number(slot));
                }
            }
        }
        let arm = Machine::of(Arch::ScmpArchArm, NATIVE);
        let set_tls = Name::find("set_tls").and_then(|name| arm.slot(name));
        assert_eq!(set_tls.map(|slot| arm.number(slot)), Some(0xf0005));
    }
}
