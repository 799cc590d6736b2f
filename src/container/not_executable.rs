//! Why execve(2) refuses a program, in the words of what is missing. The program is looked at only after the kernel has
//! refused it: "no such file or directory" for a file that is there means its interpreter, and only the file names that.

use rt_sys::err;
use rt_sys::error::{Error, Result};
use rustix::fs::{self, FileType, Mode, OFlags, StatVfsMountFlags};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is read of a program: the first line of a script, or the heads of an ELF file.
const HEAD: usize = 4096;
/// Longer paths are no interpreter's.
const LONGEST: usize = 255;

/// The error of executing `path`, with what the file says about it.
#[cold]
pub(super) fn explain(error: Error, path: &CStr) -> Error {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let hint = match error.errno() {
        Some(libc::ENOENT | libc::EACCES | libc::ELOOP | libc::ENOTDIR) => {
            head(path).and_then(|head| unusable_interpreter(&head))
        }
        Some(libc::ENOEXEC) => head(path).map(|head| format(&head)),
        _ => None,
    };
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// True where the file system of `path` is mounted noexec.
pub(super) fn is_noexec(path: &Path) -> bool {
    fs::statvfs(path).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// The dynamic loader that the program `path` names; `None` of a static one.
///
/// # Errors
/// The file is no program of this machine, or cannot be read.
pub(crate) fn loader_of(path: &Path) -> Result<Option<PathBuf>> {
    let head = head(path).ok_or_else(|| err!("it cannot be read"))?;
    let elf = Elf::read(&head).filter(|elf| elf.machine() == Some(std::env::consts::ARCH));
    let elf = elf.ok_or_else(|| err!("it is no program of this machine"))?;
    Ok(elf.interpreter().map(|path| PathBuf::from(OsStr::from_bytes(path))))
}

fn head(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::empty()).ok()?;
    let is_file = FileType::from_raw_mode(fs::fstat(&file).ok()?.st_mode) == FileType::RegularFile;
    let mut head = vec![0; HEAD];
    let n = if is_file { rustix::io::pread(&file, &mut head, 0).ok()? } else { return None };
    head.truncate(n);
    Some(head)
}

/// What is wrong with the interpreter that a program names.
fn unusable_interpreter(head: &[u8]) -> Option<String> {
    let (what, interpreter) = match head.strip_prefix(b"#!") {
        Some(line) => ("the interpreter of its first line", of_script(line)?),
        None => ("the dynamic loader that it is linked for", Elf::read(head)?.interpreter()?),
    };
    let shown = String::from_utf8_lossy(interpreter);
    if interpreter.ends_with(b"\r") {
        return Some(format!(
            "its first line ends in a carriage return, so its interpreter is {shown:?}: dos2unix mends it"
        ));
    }
    let path = Path::new(OsStr::from_bytes(interpreter));
    match fs::stat(path) {
        Err(e) => Some(format!("{what}, {shown}: {}", Error::from(e))),
        Ok(_) if is_noexec(path) => Some(format!("{what}, {shown}, is on a file system mounted noexec")),
        Ok(_) => match fs::access(path, fs::Access::EXEC_OK) {
            Err(e) => Some(format!("{what}, {shown}: {}", Error::from(e))),
            // The interpreter may be a script itself, or another program's.
            Ok(()) => None,
        },
    }
}

/// The interpreter in the first line of a script, behind `#!`.
fn of_script(line: &[u8]) -> Option<&[u8]> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let word = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    (word.len() <= LONGEST).then_some(word)
}

/// What a file is that has a format which the kernel does not execute.
fn format(head: &[u8]) -> String {
    const HOST: &str = std::env::consts::ARCH;
    match Elf::read(head) {
        _ if head.is_empty() => "the file is empty".to_owned(),
        Some(elf) => match elf.machine() {
            Some(machine) if machine != HOST => {
                format!(
                    "it is for {machine}, and this machine is {HOST}: the image is for another architecture"
                )
            }
            _ => "it is an ELF file that this kernel does not execute".to_owned(),
        },
        None if head.starts_with(b"#!") => "its first line names no interpreter".to_owned(),
        None => {
            "it is neither an ELF program nor a script whose first line is #! with an interpreter".to_owned()
        }
    }
}

/// The heads of an ELF file (elf(5)).
struct Elf<'a> {
    head: &'a [u8],
    is_64: bool,
    is_little: bool,
}

impl<'a> Elf<'a> {
    fn read(head: &'a [u8]) -> Option<Elf<'a>> {
        let ident = head.strip_prefix(b"\x7fELF")?;
        let (class, data) = (*ident.first()?, *ident.get(1)?);
        matches!((class, data), (1 | 2, 1 | 2)).then_some(Elf {
            head,
            is_64: class == 2,
            is_little: data == 1,
        })
    }

    /// The number of `len` bytes at `at`.
    fn number(&self, at: usize, len: usize) -> Option<usize> {
        let bytes = self.head.get(at..at.checked_add(len)?)?;
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let number = if self.is_little { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) };
        usize::try_from(number).ok()
    }

    /// The name of its machine as [`std::env::consts::ARCH`] has it.
    fn machine(&self) -> Option<&'static str> {
        Some(match (self.number(18, 2)?, self.is_64) {
            (3, _) => "x86",
            (40, _) => "arm",
            (62, true) => "x86_64",
            (62, false) => "x86_64 with 32-bit addresses",
            (183, _) => "aarch64",
            (21, _) => "powerpc64",
            (22, _) => "s390x",
            (243, true) => "riscv64",
            (258, _) => "loongarch64",
            _ => return None,
        })
    }

    /// The path in the segment PT_INTERP, where that is in what was read.
    fn interpreter(&self) -> Option<&'a [u8]> {
        const PT_INTERP: usize = 3;
        let word = if self.is_64 { 8 } else { 4 };
        // e_phoff, e_phentsize, e_phnum; p_offset, p_filesz.
        let (table, size, count, offset, length) =
            if self.is_64 { (32, 54, 56, 8, 32) } else { (28, 42, 44, 4, 16) };
        let (table, size, count) = (self.number(table, word)?, self.number(size, 2)?, self.number(count, 2)?);
        let entries = (0..count).map_while(|n| table.checked_add(n.checked_mul(size)?));
        let entry = entries
            .take_while(|at| *at < self.head.len())
            .find(|at| self.number(*at, 4) == Some(PT_INTERP))?;
        let (offset, length) =
            (self.number(entry.checked_add(offset)?, word)?, self.number(entry + length, word)?);
        let path = self.head.get(offset..offset.checked_add(length.min(LONGEST + 1))?)?;
        path.split(|byte| *byte == 0).next().filter(|path| path.starts_with(b"/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_loader_is_found() {
        let head = head(Path::new("/proc/self/exe")).unwrap();
        let elf = Elf::read(&head).unwrap();
        assert_eq!(elf.machine(), Some(std::env::consts::ARCH));
        if let Some(loader) = elf.interpreter() {
            assert!(Path::new(OsStr::from_bytes(loader)).exists());
        }
        // Whatever stands there, it is read within bounds.
        for end in 0..head.len() {
            let _ = Elf::read(&head[..end]).and_then(|elf| elf.interpreter().map(<[u8]>::len));
        }
        let mut wild = head.clone();
        wild[32..64].fill(0xff);
        assert_eq!(Elf::read(&wild).unwrap().interpreter(), None);
    }

    #[test]
    fn scripts_name_their_interpreter() {
        assert_eq!(of_script(b"/bin/sh\nx"), Some(&b"/bin/sh"[..]));
        assert_eq!(of_script(b" \t/usr/bin/env python\n"), Some(&b"/usr/bin/env"[..]));
        assert_eq!(of_script(b"\n"), None);
        assert!(unusable_interpreter(b"#!/bin/sh\r\n").unwrap().contains("carriage return"));
        assert!(
            unusable_interpreter(b"#!/no/such\n").unwrap().contains("/no/such: no such file or directory")
        );
        assert_eq!(unusable_interpreter(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn formats_are_told() {
        let mut other = vec![0; 64];
        other[..6].copy_from_slice(b"\x7fELF\x02\x01");
        other[18] = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
        assert!(format(&other).contains("another architecture"), "{}", format(&other));
        assert_eq!(format(b""), "the file is empty");
        assert!(format(b"echo x").contains("neither"));
    }
}
