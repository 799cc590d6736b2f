//! The kernel's side of a seccomp filter: its checks before it takes one, and running it.

use oci_seccomp::Instruction;

/// What a filter sees: `struct seccomp_data` (linux/seccomp.h).
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    pub number: u32,
    pub arch: u32,
    pub address: u64,
    pub arguments: [u64; 6],
}

impl Call {
    /// The word at an offset, as a machine of the given byte order lays it out.
    fn word(&self, offset: u32, little_endian: bool) -> u32 {
        let half = |value: u64| {
            let upper = offset.is_multiple_of(8) != little_endian;
            if upper { (value >> 32) as u32 } else { value as u32 }
        };
        match offset {
            0 => self.number,
            4 => self.arch,
            8..16 => half(self.address),
            _ => half(self.arguments[(offset as usize - 16) / 8]),
        }
    }
}

/// Refuses what the kernel refuses (bpf_check_classic and seccomp_check_filter).
pub fn check(program: &[Instruction]) -> Result<(), String> {
    if program.is_empty() || program.len() > 4096 {
        return Err(format!("{} instructions", program.len()));
    }
    for (at, instruction) in program.iter().enumerate() {
        let inside = |distance: u32| at as u64 + 1 + u64::from(distance) < program.len() as u64;
        let valid = match instruction.code {
            0x20 => instruction.k < 64 && instruction.k.is_multiple_of(4),
            0x05 => inside(instruction.k),
            0x15 | 0x25 | 0x35 | 0x45 => inside(instruction.jt.into()) && inside(instruction.jf.into()),
            0x06 | 0x54 => true,
            _ => false,
        };
        if !valid {
            return Err(format!("instruction {at} of {}: {instruction:x?}", program.len()));
        }
    }
    match program.last() {
        Some(Instruction { code: 0x06, .. }) => Ok(()),
        last => Err(format!("the last instruction is {last:x?}")),
    }
}

/// What the program returns for a call.
pub fn run(program: &[Instruction], call: &Call, little_endian: bool) -> u32 {
    let mut word = 0;
    let mut at = 0;
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let branch = |holds: bool| usize::from(if holds { jt } else { jf });
        match code {
            0x20 => word = call.word(k, little_endian),
            0x54 => word &= k,
            0x05 => at += k as usize,
            0x15 => at += branch(word == k),
            0x25 => at += branch(word > k),
            0x35 => at += branch(word >= k),
            0x45 => at += branch(word & k != 0),
            0x06 => return k,
            _ => panic!("operation {code:#x} at {}", at - 1),
        }
    }
}
